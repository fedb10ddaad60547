//! A replicated map: every member has all entries, and a member that joins takes them over.
//!
//! Run it in three terminals: `cargo run -p spindle-examples --bin replicated_map`. Commands are
//! `set KEY VALUE`, `get KEY`, `delete KEY`, `list` and `digest`. Ctrl-C and Ctrl-D leave.
use anyhow::{Context, Result, bail};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use spindle::{Batch, Config, Handler, JoinError, Message, Outcome, Publisher, Snapshot, State, SubgroupId, View};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Cursor};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);
/// How often the program looks whether the group has ended, or it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// A map that all members have.
#[derive(Parser)]
struct Arguments {
    /// The number of members that create the map together.
    #[arg(long, default_value_t = 3)]
    members: u32,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

type Entries = BTreeMap<String, String>;

/// The map of this member. Its clones share it: one is the handler, and one answers questions.
#[derive(Clone, Default)]
struct Map(Arc<Mutex<Entries>>);

impl Map {
    /// Calls `f` with the entries. No call between may block, because the handler takes the lock.
    fn with<T>(&self, f: impl FnOnce(&mut Entries) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies a command. All members apply the same ones in the same order, so the result may
    /// depend on nothing but the command and the map.
    fn apply(&self, command: &[u8]) {
        let command = String::from_utf8_lossy(command);
        self.with(|entries| match words(&command) {
            ("set", key, value) => drop(entries.insert(key.to_owned(), value.to_owned())),
            ("delete", key, _) => drop(entries.remove(key)),
            _ => {} // a command of a newer version
        });
    }

    /// Returns the entries as lines.
    fn lines(&self) -> String {
        self.with(|entries| entries.iter().map(|(key, value)| format!("{key} {value}\n")).collect())
    }
}

impl Handler for Map {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.apply(message.payload));
    }

    /// Provides the state for a joiner. The group waits for this copy, and not for its transfer.
    fn snapshot(&mut self) -> Option<Snapshot> {
        let lines = self.lines().into_bytes();
        Some(Snapshot { len: Some(lines.len() as u64), bytes: Box::new(Cursor::new(lines)) })
    }

    /// Takes over the state of another member. It may be called again if that member fails.
    fn restore(&mut self, state: &mut State) -> io::Result<()> {
        let mut restored = Entries::new();
        for line in state.lines() {
            let line = line?;
            let (key, value) = line.split_once(' ').unwrap_or((&line, ""));
            restored.insert(key.to_owned(), value.to_owned());
        }
        self.with(|entries| *entries = restored);
        Ok(())
    }

    /// Takes a message that was sent after the state was taken.
    fn learn(&mut self, _: &View, _: SubgroupId, message: &Message<'_>) {
        self.apply(message.payload);
    }
}

fn main() -> Result<()> {
    let Arguments { members, runtime_dir } = Arguments::parse();
    let mut config = Config::new("map", members);
    config.runtime_dir = runtime_dir;
    config.suspect_after = Some(Duration::from_secs(5));
    let stop = stop_on_signals()?;
    let mut map = Map::default();
    eprintln!("waiting for the other members");
    let mut node = match config.learn(&mut map, &mut |_| {}, &stop) {
        Err(JoinError::Cancelled { .. }) => return Ok(()),
        joined => joined?,
    };
    let mut publisher = node.publisher("all")?;
    println!("member {} has {} entries", node.id(), map.with(|entries| entries.len()));
    let group = node.start(map.clone())?;

    let lines = read_lines()?;
    while !stop.load(Ordering::Acquire) {
        if let Some(ended) = group.ended() {
            bail!(ended);
        }
        let line = match lines.recv_timeout(LOOK) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        match words(&line) {
            ("set", key, _) | ("delete", key, "") if !key.is_empty() => send(&mut publisher, &line)?,
            ("get", key, "") => match map.with(|entries| entries.get(key).cloned()) {
                Some(value) => println!("{key} = {value}"),
                None => println!("{key} is not set"),
            },
            ("list", "", _) => print!("{}", map.lines()),
            ("digest", "", _) => println!("digest {:016x}", digest(map.lines().as_bytes())),
            _ => eprintln!("unknown command {line:?}: use set KEY VALUE, get KEY, delete KEY, list or digest"),
        }
    }
    drop(publisher);
    group.leave(WAIT)?;
    Ok(())
}

/// Sends a command, and returns when this member has applied it and every other member has it.
fn send(publisher: &mut Publisher, command: &str) -> Result<()> {
    match publisher.send_tracked(command.as_bytes(), WAIT)?.wait(WAIT) {
        Some(Outcome::Delivered { .. }) => println!("ok"),
        Some(outcome) => bail!("the outcome of {command:?} is {outcome:?}: start again and look at the map"),
        None => bail!("{command:?} was not delivered within {WAIT:?}: see which member lags"),
    }
    Ok(())
}

/// Reads the standard input on a thread of its own, because a read waits for as long as it likes.
fn read_lines() -> Result<Receiver<io::Result<String>>> {
    let (lines, incoming) = channel();
    let read = move || {
        let _ = io::stdin().lock().lines().try_for_each(|line| lines.send(line));
    };
    thread::Builder::new().name("input".into()).spawn(read).context("the input can't be read")?;
    Ok(incoming)
}

/// Makes SIGINT and SIGTERM set a flag, which ends the wait for the group and the membership. The
/// second signal ends the process.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop)).context("signals can't be handled")?;
        flag::register(signal, Arc::clone(&stop)).context("signals can't be handled")?;
    }
    Ok(stop)
}

/// Splits a command into its name, a key and a value. Each may be empty.
fn words(command: &str) -> (&str, &str, &str) {
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    let (key, value) = rest.split_once(' ').unwrap_or((rest, ""));
    (name, key, value)
}

/// Returns the FNV-1a hash, which is the same in every build.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
