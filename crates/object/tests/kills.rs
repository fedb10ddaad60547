//! A durable object whose processes are killed, all of them again and again: each call that was answered
//! counts, and the history is linearizable across the restarts.
//!
//! `SPINDLE_KILLS=200 cargo test --release -p spindle-object --test kills` plays so many rounds.
mod common;
#[path = "common/linearizability.rs"]
mod linearizability;
#[path = "common/process.rs"]
mod process;

use common::{Chance, LONG, Scratch, Store, StoreCalls};
use linearizability::{Action, History, Operation, check_keys, parse};
use process::{Process, now_ns};
use rustix::process::Signal;
use std::time::Duration;

const MEMBERS: u64 = 3;
const KEYS: u64 = 3;

#[test]
#[ignore = "a process of the other tests"]
fn member_process() {
    process::run();
}

/// Starts all processes, and waits until they have joined.
fn start(scratch: &Scratch) -> Vec<Process> {
    let start = |id| Process::start_durable("member_process", scratch, MEMBERS as u32, id);
    let members: Vec<Process> = (1..=MEMBERS).map(start).collect();
    members.iter().for_each(|member| assert_eq!(member.answer(), "joined"));
    members
}

/// Reads all keys at one process.
fn read_all(member: &mut Process) -> Vec<Option<u64>> {
    let mut read = |key| {
        member.order(&format!("read key {key}"));
        let value: u64 = member.answer().parse().unwrap();
        Some(value).filter(|value| *value > 0)
    };
    (0..KEYS).map(&mut read).collect()
}

/// Kills all: at once, or one first, or while one stands still. Returns what they have told.
fn kill_all(mut members: Vec<Process>, chance: &mut Chance) -> Vec<Vec<String>> {
    let first = members.swap_remove(chance.next(MEMBERS) as usize);
    let kind = chance.next(3);
    if kind == 1 {
        first.signal(Signal::STOP);
    }
    let mut told = vec![];
    let pause = Duration::from_millis(chance.next(30));
    if kind == 2 {
        told.push(first.kill());
        std::thread::sleep(pause);
        told.extend(members.into_iter().map(Process::kill));
    } else {
        std::thread::sleep(if kind == 1 { pause } else { Duration::ZERO });
        told.extend(members.into_iter().map(Process::kill));
        told.push(first.kill());
    }
    told
}

#[test]
fn no_answered_call_is_lost_when_all_processes_are_killed() {
    let rounds = std::env::var("SPINDLE_KILLS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4);
    let scratch = Scratch::new("kills");
    let mut chance = Chance(7);
    let mut members = start(&scratch);
    let mut values = read_all(&mut members[0]);
    let (mut answered, mut killed_early) = (0, 0);
    for round in 0..rounds {
        let began = now_ns();
        for (number, member) in (0..).zip(&mut members) {
            member.order(&format!("work {KEYS} {}", (round * MEMBERS + number + 1) << 32));
        }
        std::thread::sleep(Duration::from_millis(20 + chance.next(300)));
        let told = kill_all(members, &mut chance);
        // Sometimes they are killed while they start, too.
        if chance.next(3) == 0 {
            let start = |id| Process::start_durable("member_process", &scratch, MEMBERS as u32, id);
            let starting: Vec<Process> = (1..=MEMBERS).map(start).collect();
            std::thread::sleep(Duration::from_millis(chance.next(200)));
            drop(starting);
            killed_early += 1;
        }
        members = start(&scratch);
        let restarted = now_ns();
        let found = read_all(&mut members[chance.next(MEMBERS) as usize]);
        // The round begins with the values that were found last, and ends with the ones that are found now.
        let mut history = History::new();
        for told in &told {
            for (key, operations) in parse(told) {
                answered += operations.iter().filter(|operation| operation.ended.is_some()).count();
                history.entry(key).or_default().extend(operations);
            }
        }
        for (key, (before, after)) in (0..KEYS).zip(values.iter().zip(&found)) {
            let operations = history.entry(format!("key {key}")).or_default();
            let put = |value| Operation { action: Action::Put(value), called: 0, ended: Some((1, None)) };
            operations.extend(before.map(put));
            let ended = Some((restarted + 1, *after));
            operations.push(Operation { action: Action::Read, called: restarted, ended });
            assert!(operations.iter().all(|operation| operation.called == 0 || operation.called >= began));
        }
        let checked = check_keys(&history);
        assert!(checked.is_ok(), "round {round}: {checked:?}");
        // A call that is missing would be noticed.
        if let Some(value) = found.iter().position(Option::is_some) {
            let mut changed = history;
            let operations = changed.get_mut(&format!("key {value}")).unwrap();
            operations.last_mut().unwrap().ended = Some((restarted + 1, Some(1)));
            assert!(check_keys(&changed).is_err(), "round {round}: the checker accepts any value");
        }
        values = found;
    }
    println!("{rounds} rounds, {killed_early} with kills at the start, {answered} calls and reads answered");
    assert!(answered as u64 > 20 * rounds, "{answered}");
    members.iter_mut().for_each(|member| assert!(member.answer_within(Duration::ZERO).is_none()));
}
