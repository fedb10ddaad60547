//! The printed trace of one seed: the beginning, the end, and a note of how much was left out
//! between them.
use crate::checkers::Violation;
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// Lines kept from the beginning.
const FIRST_LINES: usize = 400;
/// Lines kept from the end.
const LAST_LINES: usize = 200;
/// Lines shown again after a violation.
const BEFORE_VIOLATION: usize = 40;

/// The lines of a run, each with a virtual time.
#[derive(Debug, Default)]
pub(crate) struct RunTrace {
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: u64,
}

impl RunTrace {
    pub(crate) fn line(&mut self, now: u64, text: fmt::Arguments<'_>) {
        let line = format!("{:>12} ns  {text}", now);
        if self.first.len() < FIRST_LINES {
            self.first.push(line);
            return;
        }
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(line);
    }

    /// Returns the whole trace. After a violation it ends with the lines before the violation and
    /// the command that replays the seed.
    pub(crate) fn render(&self, replay: &str, violations: &[Violation]) -> String {
        let mut text = String::new();
        let mut line = |line: &dyn fmt::Display| writeln!(text, "{line}").expect("a string takes everything");
        self.first.iter().for_each(|l| line(l));
        if self.left_out > 0 {
            line(&format_args!("             ... {} lines left out ...", self.left_out));
        }
        self.last.iter().for_each(|l| line(l));
        for violation in violations {
            line(&format_args!("\n{violation}\nthe {BEFORE_VIOLATION} lines before it:"));
            let all = self.first.iter().chain(&self.last);
            let skipped = (self.first.len() + self.last.len()).saturating_sub(BEFORE_VIOLATION);
            all.skip(skipped).for_each(|l| line(l));
            line(&format_args!("replay: {replay}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trace_keeps_both_ends_and_says_what_it_left_out() {
        let mut trace = RunTrace::default();
        for i in 0..1000 {
            trace.line(i, format_args!("event {i}"));
        }
        let violation = Violation { number: 1, name: "total order", at: 999, what: "two orders".into() };
        let text = trace.render("spindle sim --seed 7", &[violation]);
        for part in ["event 0\n", "event 399\n", "400 lines left out", "event 999\n", "(total order)"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("event 500\n"));
        assert!(text.ends_with("replay: spindle sim --seed 7\n"));
    }
}
