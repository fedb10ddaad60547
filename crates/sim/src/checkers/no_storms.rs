//! Invariant 16, no false storms: pauses shorter than the suspicion time, slow members, slow links
//! and jumping clocks cause no view change. No member reports a fault of another, because no member
//! in a seed sends garbage.
use super::{Checked, Invariant};
use spindle_core::{Defect, Fault, Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(16, "no false storms");

/// Checks the faults of others that `member` has reported by the end of a poll.
///
/// # Errors
/// If there is one.
pub fn polled(member: Rank, faults: &[Fault]) -> Checked {
    match faults.first() {
        Some(fault) => INVARIANT.broken(format!("m{member} blames another, though all are correct: {fault}")),
        None => Ok(()),
    }
}

/// Checks the number of views after the first one against the number of occurrences that may each
/// end a view.
///
/// # Errors
/// If there are more views than reasons.
pub fn views(views: u64, reasons: u64) -> Checked {
    if views <= reasons {
        return Ok(());
    }
    INVARIANT.broken(format!("{views} views followed the first, for {reasons} reasons"))
}

/// Reports a frame that stopped a consumer of `member` on a thread of its own.
///
/// # Errors
/// Always.
pub fn consumer_stopped(member: Rank, subgroup: SubgroupId, defect: Defect) -> Checked {
    let Defect { sender, position, header } = defect;
    INVARIANT.broken(format!(
        "a consumer of m{member} in s{subgroup} found no frame at {position} of m{sender}'s ring (header {header:#x})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_death_is_found() {
        assert!(polled(Rank(0), &[]).is_ok());
        assert_eq!(polled(Rank(0), &[Fault::Proposal { member: Rank(1) }]).unwrap_err().number, 16);
        assert!(views(2, 2).is_ok());
        assert_eq!(views(1, 0).unwrap_err().number, 16);
        let defect = Defect { sender: Rank(1), position: 64, header: 0 };
        assert!(consumer_stopped(Rank(0), SubgroupId(0), defect).is_err());
    }
}
