//! A member that was stopped for too long is evicted, joins again and takes the state over.
mod support;

use rustix::process::Signal;
use support::{Scratch, Terminal};

fn start(scratch: &Scratch) -> Terminal {
    let dir = scratch.runtime_dir("total");
    Terminal::start(env!("CARGO_BIN_EXE_rejoin"), &["--runtime-dir", &dir])
}

#[test]
fn an_evicted_member_joins_again_with_the_state() {
    let scratch = Scratch::new("rejoin");
    let mut terminals: Vec<_> = (0..3).map(|_| start(&scratch)).collect();
    for terminal in &mut terminals {
        terminal.wait_for("member", |line| line.ends_with(" has total 0"));
    }
    let mut stopped = terminals.remove(1);
    stopped.write("5");
    stopped.wait_for_line("total 5");

    stopped.signal(Signal::STOP);
    terminals[0].write("10"); // is delivered only once the others have evicted the stopped member
    terminals[0].wait_for_line("total 15");
    stopped.signal(Signal::CONT);
    stopped.wait_for_line("evicted, joins again");
    stopped.wait_for_line("member 4 has total 15");
    stopped.write("100");
    stopped.wait_for_line("total 115");
    terminals[1].write("1000");
    terminals[1].wait_for_line("total 1115");

    stopped.signal(Signal::INT); // leaves, as at the end of the input
    assert!(stopped.wait_for_end().success());
    for mut terminal in terminals {
        terminal.end_input();
        assert!(terminal.wait_for_end().success());
    }
}
