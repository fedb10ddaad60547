//! Replicated objects: the key-value store and the ledger, as real processes.
mod support;

use rustix::process::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{Scratch, Terminal};

/// How long a thread may take to write a snapshot.
const LONG: Duration = Duration::from_secs(30);

fn start(program: &str, scratch: &Scratch) -> Terminal {
    Terminal::start(program, &["--runtime-dir", &scratch.runtime_dir("objects")])
}

fn leave(terminals: Vec<Terminal>) {
    for mut terminal in terminals {
        terminal.end_input();
        assert!(terminal.wait_for_end().success());
    }
}

#[test]
fn a_swap_succeeds_once_and_reads_are_the_latest() {
    let scratch = Scratch::new("key-value");
    let store = || start(env!("CARGO_BIN_EXE_key_value"), &scratch);
    let mut terminals: Vec<_> = (0..3).map(|_| store()).collect();
    terminals[0].write("swap lock free taken");
    terminals[0].wait_for_line("not swapped: lock is not set");
    terminals[0].write("set lock free");
    terminals[0].wait_for_line("ok, it was None");
    let answers: Vec<String> = (0..3)
        .map(|i| {
            terminals[i].write(&format!("swap lock free {i}"));
            terminals[i].wait_for("an answer", |line| line.contains("swapped"))
        })
        .collect();
    assert_eq!(answers, ["swapped", "not swapped: lock = 0", "not swapped: lock = 0"]);
    terminals[0].write("watch other");
    terminals[1].write("set other 1");
    terminals[1].wait_for_line("ok, it was None");
    terminals[2].write("get other");
    terminals[2].wait_for_line("other = 1");
    terminals[0].write("set other 2");
    terminals[0].wait_for_line("now other = 2");
    // The member with this id answers, with what this one has seen.
    for member in 1..=3 {
        assert_eq!(terminals[0].ask(&format!("ask {member} other"), "other"), "other = 2");
    }
    terminals[0].write("ask 9 other");

    let mut joiner = store();
    joiner.wait_for("entries", |line| line.ends_with(" has 2 entries"));
    let mut killed = terminals.remove(1);
    killed.signal(Signal::KILL);
    assert!(!killed.wait_for_end().success());
    joiner.write("set after kill");
    joiner.wait_for_line("ok, it was None");
    terminals[0].write("get after");
    terminals[0].wait_for_line("after = kill");
    joiner.write("get after");
    joiner.wait_for_line("after = kill");
    assert_eq!(joiner.ask("digest", "digest"), terminals[0].ask("digest", "digest"));
    terminals.push(joiner);
    leave(terminals);
}

#[test]
fn a_durable_store_survives_the_kill_of_all_members() {
    kill_and_restart("durable-store", 1, &[]);
}

/// The kills hit snapshots that are being written.
#[test]
fn a_store_with_many_snapshots_survives_the_kill_of_all_members() {
    kill_and_restart("snapshot-store", 25, &["--snapshot-every", "1"]);
}

fn kill_and_restart(name: &str, keys: usize, more: &[&str]) {
    let scratch = Scratch::new(name);
    let start_all = |order: [u32; 3]| -> Vec<Terminal> {
        let start = |i: u32| {
            let data = scratch.runtime_dir(&format!("data-{i}"));
            let arguments = ["--data-dir", &data, "--runtime-dir", &scratch.runtime_dir("objects")];
            Terminal::start(env!("CARGO_BIN_EXE_key_value"), &[&arguments, more].concat())
        };
        order.map(start).into()
    };
    let mut terminals = start_all([1, 2, 3]);
    for round in 0..2 {
        for key in 0..keys {
            for (i, terminal) in terminals.iter_mut().enumerate() {
                // The change is on the disks of all members when it is acknowledged.
                terminal.ask(&format!("set key-{round}-{key}-{i} {i}"), "ok");
            }
        }
        let has_snapshot = || {
            let log = scratch.0.join("data-1/log/subgroup-00000000");
            let names = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            { names }.any(|name| name.starts_with("snapshot-") && !name.ends_with(".tmp"))
        };
        // A thread writes snapshots after the commands.
        let start = Instant::now();
        while !more.is_empty() && !has_snapshot() {
            assert!(start.elapsed() < LONG, "no snapshot");
            sleep(Duration::from_millis(1));
        }
        terminals.iter_mut().for_each(|terminal| terminal.signal(Signal::KILL));
        terminals.iter_mut().for_each(|terminal| assert!(!terminal.wait_for_end().success()));
        assert_eq!(has_snapshot(), !more.is_empty());
        terminals = start_all([[3, 1, 2], [2, 3, 1]][round]);
    }
    for terminal in &mut terminals {
        for (round, key) in (0..2).flat_map(|round| (0..keys).map(move |key| (round, key))) {
            for i in 0..3 {
                let answer = terminal.ask(&format!("get key-{round}-{key}-{i}"), "key-");
                assert_eq!(answer, format!("key-{round}-{key}-{i} = {i}"));
            }
        }
    }
    let answers: Vec<String> = terminals.iter_mut().map(|terminal| terminal.ask("digest", "digest")).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(terminals[0].ask("get key-1-0-0 0", "key-1-0-0"), "key-1-0-0 = 0");
    leave(terminals);
}

#[test]
fn transfers_neither_create_nor_destroy_money() {
    let scratch = Scratch::new("ledger");
    let mut terminals: Vec<_> = (0..3).map(|_| start(env!("CARGO_BIN_EXE_bank_ledger"), &scratch)).collect();
    for terminal in &mut terminals {
        terminal.wait_for("the transfers", |line| line.ends_with(" declined"));
    }
    let answers: Vec<String> = terminals.iter_mut().map(|terminal| terminal.ask("", "3 accounts with 300")).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    leave(terminals);
}
