//! The queue: jobs of workers that are killed or too slow are given to others, and each is done once.
mod support;

use rustix::process::Signal;
use support::{Scratch, Terminal};

fn start(scratch: &Scratch, deadline_ms: &str) -> Vec<Terminal> {
    let dir = scratch.runtime_dir("queue");
    let program = env!("CARGO_BIN_EXE_work_queue");
    let start = |_| Terminal::start(program, &["--runtime-dir", &dir, "--deadline-ms", deadline_ms]);
    let mut terminals: Vec<_> = (0..3).map(start).collect();
    terminals.iter_mut().for_each(|terminal| drop(terminal.wait_for("id", |line| line.starts_with("member "))));
    terminals
}

fn leave(terminals: Vec<Terminal>) {
    for mut terminal in terminals {
        terminal.end_input();
        assert!(terminal.wait_for_end().success());
    }
}

/// The sum of the squares from 1 to `n`: the sum of all results if each job is done once.
fn squares(n: u64) -> u64 {
    (1..=n).map(|number| number * number).sum()
}

#[test]
fn jobs_of_a_killed_worker_are_done_once() {
    const JOBS: u64 = 300;
    let scratch = Scratch::new("queue-kill");
    // No deadline passes in this test: only the death of the worker gives its job back.
    let mut terminals = start(&scratch, "3600000");
    let mut idle = terminals.remove(1);
    idle.write("take");
    idle.wait_for_line("no job waits");
    terminals[0].write(&format!("put 1 {JOBS}"));
    terminals[0].wait_for_line("put");

    idle.write("take");
    idle.wait_for("job", |line| line.starts_with("took job "));
    idle.write("finish");
    idle.wait_for("job", |line| line.starts_with("finished job "));
    idle.write("take");
    idle.wait_for("job", |line| line.starts_with("took job "));
    terminals.iter_mut().for_each(|terminal| terminal.write("work"));
    terminals[1].wait_for("job", |line| line.starts_with("finished job "));
    idle.signal(Signal::KILL); // with a job
    terminals[1].signal(Signal::KILL); // perhaps with a job, or between two
    assert!(!idle.wait_for_end().success());
    let mut joiner = Terminal::start(
        env!("CARGO_BIN_EXE_work_queue"),
        &["--runtime-dir", &scratch.runtime_dir("queue"), "--deadline-ms", "3600000"],
    );
    joiner.write("work");
    terminals[0].wait_for_line("no job is open");
    joiner.wait_for_line("no job is open");
    let mut killed = terminals.remove(1);
    assert!(!killed.wait_for_end().success());
    terminals.push(joiner);
    for terminal in &mut terminals {
        let shown = terminal.ask("show", "0 jobs open");
        assert_eq!(shown, format!("0 jobs open, {JOBS} done, the sum is {}", squares(JOBS)));
    }
    leave(terminals);
}

#[test]
fn a_job_whose_deadline_passed_is_given_to_another_worker() {
    let scratch = Scratch::new("queue-deadline");
    let mut terminals = start(&scratch, "500");
    terminals[0].write("put 1 1");
    terminals[0].wait_for_line("put");
    terminals[1].write("take");
    terminals[1].wait_for_line("took job 0");
    terminals[2].write("work");
    terminals[2].wait_for_line("no job is open");
    terminals[1].write("finish");
    terminals[1].wait_for_line("not finished: job 0 was given back");
    assert!(terminals[2].lines.iter().any(|line| line == "finished job 0"), "{:?}", terminals[2].lines);
    assert_eq!(terminals[0].ask("show", "0 jobs open"), "0 jobs open, 1 done, the sum is 1");
    leave(terminals);
}
