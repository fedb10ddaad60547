//! Invariant 29, clocks within the bound (INV-CLOCK-BOUND): the clock of a log is ahead of the true time by
//! at most the bound, however far the clocks of members step.
use super::{Checked, Invariant};

const INVARIANT: Invariant = Invariant(29, "clocks within the bound");

/// The bound of the simulated groups, in ns. Clocks step farther.
pub const SKEW_MAX_NS: u64 = 2_000_000_000;

/// Checks the clock of a record that is appended at `now`, the true time. The clocks of its epoch begin
/// with `floor`, and the logs have taken `records` records, each of which may add 1 ns.
///
/// # Errors
/// If it is too far ahead.
pub fn recorded(clock: u64, now: u64, floor: u64, records: u64) -> Checked {
    let latest = now.saturating_add(SKEW_MAX_NS).max(floor).saturating_add(records + 1);
    match clock <= latest {
        true => Ok(()),
        false => INVARIANT.broken(format!("a record has the clock {clock} at {now}, and {latest} is the latest")),
    }
}

/// Checks that a process with a clock that is off by `mine` ns is in a view with one whose clock is off by
/// `other` ns only if they differ by at most twice `max_ns`: each may differ by that from the member that
/// admitted it.
///
/// # Errors
/// If they differ by more.
pub fn together(mine: i64, other: i64, max_ns: u64) -> Checked {
    match mine.abs_diff(other) <= 2 * max_ns {
        true => Ok(()),
        false => INVARIANT.broken(format!("clocks that are off by {mine} and {other} ns are in one view")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_too_far_ahead_is_found() {
        assert!(recorded(100 + SKEW_MAX_NS, 100, 0, 0).is_ok() && recorded(50, 100, 60, 0).is_ok());
        assert_eq!(recorded(102 + SKEW_MAX_NS, 100, 0, 0).unwrap_err().number, 29);
        assert!(recorded(102 + SKEW_MAX_NS, 100, 0, 1).is_ok());
        assert!(together(-5, 5, 5).is_ok() && together(-5, 6, 5).is_err());
    }
}
