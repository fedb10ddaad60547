//! Objects whose messages are logged: the state comes back when all members have ended.
mod common;

use common::{LONG, Scratch, Store, StoreCalls, block_on};
use spindle::{Config, Durability, Group, LogSettings, MemberId, NotDurable, Subgroup};
use spindle_object::{DurableError, Replicated, Settings, StartError, Stopped};
use std::thread;
use std::time::Duration;

/// The data directories of members, which are removed with the test.
struct Data(Scratch);

impl Drop for Data {
    fn drop(&mut self) {
        (1..=2).for_each(|id| drop(std::fs::remove_dir_all(self.dir(id))));
    }
}

impl Data {
    fn dir(&self, id: u64) -> std::path::PathBuf {
        self.0.path.with_extension(format!("data-{id}"))
    }

    fn config(&self, members: u32, id: u64) -> Config {
        std::fs::create_dir_all(self.dir(id)).unwrap();
        let log = LogSettings { segment_bytes: 8192, ..LogSettings::default() };
        let subgroup = Subgroup { durability: Durability::Logged { copies: 1 }, ..Subgroup::new("all") };
        let config = self.0.config(members);
        Config { id: Some(MemberId(id)), data_dir: Some(self.dir(id)), log, subgroups: vec![subgroup], ..config }
    }

    fn join(&self, ids: &[u64]) -> Vec<Member> {
        let count = ids.len() as u32;
        let joining: Vec<_> = ids
            .iter()
            .map(|id| {
                let config = self.config(count, *id);
                thread::spawn(move || start(config).unwrap())
            })
            .collect();
        joining.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

type Member = (Group, Replicated<Store>);

fn start(config: Config) -> Result<Member, StartError> {
    Replicated::join(config, "all", Store::default(), Settings::default())
}

fn finish(members: Vec<Member>) {
    let ending: Vec<_> = members
        .into_iter()
        .map(|(group, store)| {
            drop(store);
            thread::spawn(move || drop(group.finish(LONG).unwrap()))
        })
        .collect();
    ending.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_state_survives_the_end_of_all_members() {
    let data = Data(Scratch::new("durable"));
    let members = data.join(&[1, 2]);
    for (round, (_, store)) in members.iter().cycle().take(20).enumerate() {
        let sum = store.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        assert_eq!(sum, round as u64 + 1);
    }
    members[1].1.call(&StoreCalls::roll(), LONG).unwrap();
    let before = members[0].1.read_latest(Store::clone, LONG).unwrap();
    finish(members);
    for round in 0..2 {
        let members = data.join(&[2, 1]);
        let sum = members[0].1.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        assert_eq!(sum, 21 + round);
        for (_, store) in &members {
            let now = store.read_latest(Store::clone, LONG).unwrap();
            assert_eq!((now.entries["sum"], now.rolled), (21 + round, before.rolled.clone()));
        }
        finish(members);
    }
}

#[test]
fn a_member_whose_log_lacks_the_first_messages_says_so() {
    let data = Data(Scratch::new("durable-pruned"));
    let config = data.config(1, 1);
    let pruned = || Config { log: LogSettings { bytes_max: Some(1), ..config.log }, ..config.clone() };
    let (group, store) = start(pruned()).unwrap();
    let has_segment = |number: u64| data.dir(1).join(format!("log/subgroup-00000000/segment-{number:016x}")).exists();
    // Until the first segment is pruned.
    let mut count = 0;
    while count < 200 || has_segment(0) || has_segment(1) {
        store.call(&StoreCalls::add(format!("key {}", count % 10), 1), LONG).unwrap();
        count += 1;
    }
    finish(vec![(group, store)]);
    let error = start(pruned()).unwrap_err();
    let StartError::Stopped(Stopped::LogIncomplete { first: Some(_) }) = error else { panic!("{error}") };
}

#[test]
fn a_durable_call_is_on_all_disks_and_says_why_not() {
    let data = Data(Scratch::new("durable-calls"));
    let members = data.join(&[1, 2]);
    let add = StoreCalls::add("sum".to_owned(), 1);
    assert_eq!(members[0].1.call_durable(&add, LONG).unwrap(), 1);
    let sum = block_on(members[1].1.call_durable_async(&add));
    assert_eq!(sum.unwrap(), 2);
    finish(members);

    let in_memory = Scratch::new("durable-memory");
    let (_group, store) = in_memory.join(1);
    let error = store.call_durable(&add, LONG).unwrap_err();
    let DurableError::NotDurable { id, reply, why } = error else { panic!("{error}") };
    assert_eq!((reply.unwrap(), why), (1, NotDurable::InMemory));
    assert_eq!(store.outcome::<u64>(id, LONG).unwrap(), 1);
}

#[test]
fn a_durable_call_with_too_few_members_has_its_reply() {
    let data = Data(Scratch::new("durable-copies"));
    let mut config = data.config(1, 1);
    config.subgroups[0].durability = Durability::Logged { copies: 2 };
    let (_group, store) = start(config).unwrap();
    let error = store.call_durable(&StoreCalls::add("sum".to_owned(), 1), Duration::from_millis(100)).unwrap_err();
    let DurableError::NotDurable { reply, why, .. } = error else { panic!("{error}") };
    assert_eq!((reply.unwrap(), why), (1, NotDurable::TooFewCopies { present: 1, needed: 2 }));
}
