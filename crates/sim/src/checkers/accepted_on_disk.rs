//! Invariant 30, a decision is on disks: in a view with logged subgroups, the decision that ends it is on
//! the disks of so many voters that any set of disks with which a group may restart has one of them.
use super::{Checked, Invariant};
use spindle_core::{Ballot, MemberId};

const INVARIANT: Invariant = Invariant(30, "a decision is on disks");

/// Checks a decision when a member first knows it: `with` voters of `voters` have it on disk, and `dead`
/// others had ended by then.
///
/// # Errors
/// If they are no quorum.
pub fn is_quorum(ballot: Ballot, with: usize, dead: usize, voters: usize) -> Checked {
    match 2 * with + dead > voters {
        true => Ok(()),
        false => INVARIANT.broken(format!(
            "ballot {}.{} is decided, and is on the disks of {with} of {voters} voters, of which {dead} others have ended",
            ballot.round, ballot.leader
        )),
    }
}

/// Checks a member that has left, which others count as dead: `is_on_disk` says whether its disk knows.
///
/// # Errors
/// If the disk does not.
pub fn has_said_last(member: MemberId, is_on_disk: bool) -> Checked {
    match is_on_disk {
        true => Ok(()),
        false => INVARIANT.broken(format!("member {member} has left, and its disk does not say so")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::Rank;

    #[test]
    fn a_decision_that_too_few_disks_have_is_found() {
        let ballot = Ballot { round: 1, leader: Rank(0) };
        is_quorum(ballot, 2, 0, 3).unwrap();
        is_quorum(ballot, 1, 2, 3).unwrap();
        assert!(is_quorum(ballot, 1, 1, 3).is_err() && is_quorum(ballot, 2, 0, 4).is_err());
        assert!(has_said_last(MemberId(1), true).is_ok() && has_said_last(MemberId(1), false).is_err());
    }
}
