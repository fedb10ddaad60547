//! The exchange with typed orders.
mod support;

use support::{Scratch, Terminal};

#[test]
fn both_terminals_report_the_same_positions() {
    let scratch = Scratch::new("typed");
    let dir = scratch.runtime_dir("exchange");
    let start = |id: &str| Terminal::start(env!("CARGO_BIN_EXE_typed_messages"), &["--id", id, "--runtime-dir", &dir]);
    let mut terminals = ["1", "2"].map(start);
    for terminal in &mut terminals {
        for line in ["buy ACME 100", "sell ACME 40", "nonsense", "buy B 1"] {
            terminal.write(line);
        }
    }
    for terminal in &mut terminals {
        terminal.wait_for("the second buy of both", |line| line == "B 2");
    }
    terminals[0].write("cancel ACME");
    for terminal in &mut terminals {
        terminal.wait_for_line("ACME 0");
        terminal.end_input();
    }
    for terminal in &mut terminals {
        assert!(terminal.wait_for_end().success());
    }
    assert_eq!(terminals[0].lines.len(), 7);
    assert_eq!(terminals[0].lines, terminals[1].lines);
}
