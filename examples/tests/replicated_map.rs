//! The replicated map: a joiner takes the state over, and a killed member loses nothing.
mod support;

use rustix::process::Signal;
use std::time::Instant;
use support::{LONG, Scratch, Terminal};

fn start(scratch: &Scratch) -> Terminal {
    let dir = scratch.runtime_dir("map");
    Terminal::start(env!("CARGO_BIN_EXE_replicated_map"), &["--runtime-dir", &dir])
}

/// Asks until both have the same digest: a member applies a command some time after its sender.
fn wait_for_equal_digests(one: &mut Terminal, other: &mut Terminal) {
    let until = Instant::now() + LONG;
    while one.ask("digest", "digest") != other.ask("digest", "digest") {
        assert!(Instant::now() < until, "{:?} and {:?}", one.lines, other.lines);
    }
}

#[test]
fn joiners_take_the_state_over_and_kills_lose_nothing() {
    let scratch = Scratch::new("map");
    let mut terminals: Vec<_> = (0..3).map(|_| start(&scratch)).collect();
    for (i, terminal) in terminals.iter_mut().enumerate() {
        terminal.wait_for("entries", |line| line.ends_with(" has 0 entries"));
        terminal.write(&format!("set key{i} value {i}"));
        terminal.wait_for_line("ok");
    }
    terminals[0].write("set gone soon");
    terminals[0].wait_for_line("ok");
    terminals[0].write("delete gone");
    terminals[0].wait_for_line("ok");

    let mut joiner = start(&scratch);
    joiner.wait_for_line("member 4 has 3 entries");
    wait_for_equal_digests(&mut joiner, &mut terminals[0]);

    let mut killed = terminals.pop().unwrap();
    killed.write("set last words");
    killed.wait_for_line("ok");
    killed.signal(Signal::KILL);
    assert!(!killed.wait_for_end().success());
    joiner.write("set after kill");
    joiner.wait_for_line("ok"); // is delivered after all messages of the killed member
    for (key, answer) in [("last", "last = words"), ("key2", "key2 = value 2"), ("gone", "gone is not set")] {
        joiner.write(&format!("get {key}"));
        joiner.wait_for_line(answer);
    }
    for terminal in &mut terminals {
        wait_for_equal_digests(&mut joiner, terminal);
    }
    joiner.signal(Signal::INT); // leaves, as at the end of the input
    assert!(joiner.wait_for_end().success());
    for mut terminal in terminals {
        terminal.end_input();
        assert!(terminal.wait_for_end().success());
    }
}
