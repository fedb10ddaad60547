//! The standby: two valves see it take over at one position.
mod support;

use rustix::process::Signal;
use support::{Scratch, Terminal};

#[test]
fn two_valves_agree_where_the_standby_takes_over() {
    let scratch = Scratch::new("standby");
    let dir = scratch.runtime_dir("standby");
    let start = |role: &[&str]| {
        let arguments: Vec<&str> = ["--runtime-dir", &dir].into_iter().chain(role.iter().copied()).collect();
        Terminal::start(env!("CARGO_BIN_EXE_standby"), &arguments)
    };
    let mut valves = [start(&["valve"]), start(&["valve"])];
    valves.iter_mut().for_each(|valve| valve.wait_for_line("the valve waits for a controller"));
    let mut strong = start(&["control", "20"]);
    strong.wait_for_line("controller 20 sets valve 1");
    valves.iter_mut().for_each(|valve| {
        valve.wait_for("the first controller", |line| line.starts_with("controller 20 sets the valve from position"));
    });
    let mut weak = start(&["control", "10"]);
    weak.wait_for_line("controller 10 sets valve 1");
    strong.signal(Signal::KILL);
    strong.wait_for_end();
    let lines = valves.each_mut().map(|valve| {
        valve.wait_for("the standby", |line| line.starts_with("controller 10 sets the valve from position"))
    });
    assert_eq!(lines[0], lines[1]);
    for mut terminal in valves.into_iter().chain([weak]) {
        terminal.signal(Signal::INT);
        assert!(terminal.wait_for_end().success());
    }
}
