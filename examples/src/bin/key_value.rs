//! A replicated key-value store with compare-and-swap, as a replicated object.
//!
//! Run it in three terminals: `cargo run -p spindle-examples --bin key_value`. Commands are
//! `set KEY VALUE`, `swap KEY EXPECTED VALUE`, `get KEY`, `get KEY SECONDS_AGO`, `ask MEMBER KEY`,
//! `watch KEY` and `digest`. Ctrl-D leaves. With `--data-dir DIR`, another one for each member, the store survives the end of all members, with each
//! change that was acknowledged.
use anyhow::Result;
use clap::Parser;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spindle::{Config, Durability, MemberId, Subgroup};
use spindle_object::{At, Call, CallError, DurableError, ReadAtError, Replicated, Settings, commands};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);

/// A key-value store that all members have.
#[derive(Parser)]
struct Arguments {
    /// The number of members that create the store together.
    #[arg(long, default_value_t = 3)]
    members: u32,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
    /// The directory of this member's log. Without it, the store is in memory only.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The calls between two snapshots of the store in the data directory. By default it depends on bytes.
    #[arg(long, default_value_t = 0)]
    snapshot_every: u64,
}

#[derive(Default, Serialize, Deserialize)]
struct Store {
    entries: BTreeMap<String, String>,
}

#[commands]
impl Store {
    /// Sets a key, and returns its old value.
    #[command]
    fn set(&mut self, key: String, value: String) -> Option<String> {
        self.entries.insert(key, value)
    }

    /// Sets a key if it has the expected value. Returns the value that it has, if that is another.
    #[command]
    fn swap(&mut self, key: &str, expected: &str, value: String) -> Result<(), Option<String>> {
        match self.entries.get_mut(key) {
            Some(found) if found == expected => {
                *found = value;
                Ok(())
            }
            found => Err(found.cloned()),
        }
    }

    /// A query: an ordinary method, for reads here, which other members can ask for.
    #[query]
    fn get(&self, key: &str) -> Option<String> {
        self.entries.get(key).cloned()
    }
}

fn main() -> Result<()> {
    let Arguments { members, runtime_dir, data_dir, snapshot_every } = Arguments::parse();
    let mut config = Config::new("key-value", members);
    config.runtime_dir = runtime_dir;
    config.suspect_after = Some(Duration::from_secs(5));
    let is_durable = data_dir.is_some();
    if is_durable {
        let durability = Durability::Logged { copies: members / 2 + 1 };
        config.subgroups = vec![Subgroup { durability, ..Subgroup::new("all") }];
        config.data_dir = data_dir;
    }
    eprintln!("waiting for the other members");
    let settings = Settings { snapshot_every_commands: snapshot_every, ..Settings::default() };
    let (group, store) = Replicated::join(config, "all", Store::default(), settings)?;
    println!("member {} has {} entries", store.member(), store.read(|store| store.entries.len())?);

    for line in io::stdin().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["set", key, value] => set(&store, key, value, is_durable)?,
            ["swap", key, expected, value] => {
                match call(&store, &StoreCalls::swap(key, expected, value.to_owned()), is_durable)? {
                    Ok(()) => println!("swapped"),
                    Err(Some(found)) => println!("not swapped: {key} = {found}"),
                    Err(None) => println!("not swapped: {key} is not set"),
                }
            }
            ["get", key] => print(key, store.read_latest(|store| store.get(key), WAIT)?),
            ["get", key, seconds_ago] => match seconds_ago.parse() {
                Ok(seconds_ago) => get_before(&store, key, seconds_ago)?,
                Err(error) => eprintln!("{seconds_ago}: {error}; give seconds"),
            },
            ["ask", member, key] => match member.parse() {
                Ok(member) => match store.query(MemberId(member), &StoreQueries::get(key), WAIT) {
                    Ok(value) => print(key, value),
                    Err(error) => eprintln!("{error}"),
                },
                Err(error) => eprintln!("{member}: {error}; give the id of a member"),
            },
            ["watch", key] => watch(&store, key.to_owned())?,
            ["digest"] => println!("digest {:016x}", store.digest()),
            _ => eprintln!(
                "unknown command {line:?}: use set KEY VALUE, swap KEY EXPECTED VALUE, get KEY [SECONDS_AGO], ask MEMBER KEY, \
                 watch KEY or digest"
            ),
        }
    }
    drop(store);
    group.leave(WAIT)?;
    Ok(())
}

fn print(key: &str, value: Option<String>) {
    match value {
        Some(value) => println!("{key} = {value}"),
        None => println!("{key} is not set"),
    }
}

/// Prints a key as it was some seconds ago.
fn get_before(store: &Replicated<Store>, key: &str, seconds_ago: u64) -> Result<()> {
    let then = SystemTime::now().checked_sub(Duration::from_secs(seconds_ago)).unwrap_or(SystemTime::UNIX_EPOCH);
    match store.read_at(At::Time(then), |store| store.get(key), WAIT) {
        Ok(value) => print(key, value),
        Err(error @ (ReadAtError::NoLog | ReadAtError::Pruned { .. })) => eprintln!("{error}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Calls a command. A store with a data directory has it on the disks of all members when this returns.
fn call<R: DeserializeOwned>(
    store: &Replicated<Store>,
    call: &Call<Store, R>,
    is_durable: bool,
) -> Result<R, DurableError<R>> {
    if is_durable { store.call_durable(call, WAIT) } else { Ok(store.call(call, WAIT)?) }
}

/// Sets a key. If the outcome is not known in time, it asks once more: the answer is final.
fn set(store: &Replicated<Store>, key: &str, value: &str, is_durable: bool) -> Result<()> {
    match call(store, &StoreCalls::set(key.to_owned(), value.to_owned()), is_durable) {
        Ok(old) => println!("ok, it was {old:?}"),
        Err(DurableError::Call(CallError::Unknown { id, .. })) => {
            let old: Option<String> = store.outcome(id, WAIT)?;
            println!("done, perhaps not on the disks yet, it was {old:?}");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Prints each change of a key, until the group ends.
fn watch(store: &Replicated<Store>, key: String) -> Result<()> {
    let of_key = key.clone();
    let watch = store.watch(move |store| store.get(&of_key))?;
    thread::spawn(move || {
        while let Ok(changed) = watch.next(WAIT) {
            match changed.map(|changed| changed.value) {
                Some(Some(value)) => println!("now {key} = {value}"),
                Some(None) => println!("now {key} is not set"),
                None => {}
            }
        }
    });
    Ok(())
}
