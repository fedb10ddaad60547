//! The chat of three terminals.
mod support;

use rustix::process::Signal;
use std::process::Command;
use support::{Scratch, Terminal};

fn start(scratch: &Scratch, id: &str, name: &str) -> Terminal {
    let dir = scratch.runtime_dir("chat");
    Terminal::start(env!("CARGO_BIN_EXE_chat"), &["--id", id, "--name", name, "--runtime-dir", &dir])
}

#[test]
fn terminals_show_the_same_lines_in_the_same_order() {
    let scratch = Scratch::new("chat");
    let names = ["ada", "bob", "cyd"];
    let mut terminals: Vec<_> = (1..).zip(names).map(|(id, name)| start(&scratch, &id.to_string(), name)).collect();
    for i in 0..20 {
        for terminal in &mut terminals {
            terminal.write(&format!("line {i}"));
        }
    }
    // The last one is announced by the others when it leaves.
    terminals[2].end_input();
    assert!(terminals[2].wait_for_end().success());
    for terminal in &mut terminals[..2] {
        terminal.wait_for_line("* cyd left");
    }

    let mut piped = start(&scratch, "5", "eve");
    piped.write("from a pipe");
    piped.end_input();
    assert!(piped.wait_for_end().success());
    for line in ["* eve joined", "eve: from a pipe", "* eve left"] {
        terminals[..2].iter_mut().for_each(|terminal| terminal.wait_for_line(line));
    }

    let mut dan = start(&scratch, "4", "dan");
    dan.wait_for_line("* dan joined");
    terminals[0].wait_for_line("* dan joined");
    terminals[1].signal(Signal::INT);
    assert!(terminals[1].wait_for_end().success());
    terminals[0].wait_for_line("* bob left");
    dan.wait_for_line("* member 2 left"); // it joined after that introduction
    for terminal in [&mut terminals[0], &mut dan] {
        terminal.end_input();
        assert!(terminal.wait_for_end().success());
    }

    let lines = |i: usize| terminals[i].lines.iter().filter(|line| !line.starts_with("* "));
    for name in names {
        let of_one: Vec<_> = lines(0).filter(|line| line.starts_with(name)).cloned().collect();
        let typed: Vec<_> = (0..20).map(|i| format!("{name}: line {i}")).collect();
        assert_eq!(of_one, typed);
    }
    assert!(lines(0).eq(lines(1)), "{:?}", terminals[1].lines);
    // A member that leaves has delivered its own lines, and a prefix of the lines of the others.
    assert!(lines(2).zip(lines(0)).all(|(left, right)| left == right));
    assert!(terminals[2].lines.contains(&"cyd: line 19".to_owned()));
}

#[test]
fn a_terminal_that_waits_ends_with_ctrl_c() {
    let scratch = Scratch::new("chat-waiting");
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
    command.args(["--id", "1", "--name", "ada", "--runtime-dir", &scratch.runtime_dir("chat")]);
    let mut terminal = Terminal::start_with_errors(command);
    terminal.wait_for_line("waiting for the other members"); // the signals are handled by now
    terminal.signal(Signal::INT);
    assert!(terminal.wait_for_end().success());
    assert_eq!(terminal.lines, ["waiting for the other members"]);
}
