//! Invariant 15, liveness: once faults are over and applications silent, the group comes to rest.
//! Then every member has delivered every message, and every peer has every word that its owner
//! stored. Once claims are closed, every engine finishes.
//!
//! The simulator polls an engine only when an event has reached it. So a forgotten wake-up shows as
//! a group at rest with work undone.
use super::{Checked, Invariant, Violation};
use crate::ledger::{ClaimState, SubgroupRecord};
use spindle_core::{MemberId, Rank, State, SubgroupId};
use std::fmt::Display;

const INVARIANT: Invariant = Invariant(15, "liveness");

/// Checks a subgroup while the group is at rest.
///
/// # Errors
/// If some member has not delivered a message of this subgroup.
pub fn at_rest(id: SubgroupId, group: &SubgroupRecord) -> Checked {
    for lane in &group.lanes {
        for member in &group.members {
            let next = lane.next_message(*member);
            if let Some(frame) = lane.frames.get(next) {
                let what = if frame.fate == ClaimState::Claimed { "uncommitted" } else { "undelivered" };
                return INVARIANT.broken(format!(
                    "the group is at rest, but claim {next} of m{} in s{id} (round {:?}, of {}) is {what} at m{member}",
                    lane.sender,
                    frame.round,
                    lane.frames.len(),
                ));
            }
        }
    }
    Ok(())
}

/// Checks a copied word while the group is at rest. `holder`'s copy of the word at offset `at` of
/// `owner`'s row is `copy`, and the owner's own is `newest`.
///
/// # Errors
/// If they differ, because a post was forgotten.
pub fn copied(holder: Rank, owner: Rank, at: u64, copy: u64, newest: u64) -> Checked {
    if copy == newest {
        return Ok(());
    }
    INVARIANT.broken(format!(
        "the group is at rest, but m{holder} never heard that the word at {at} of m{owner}'s row is {newest}, not {copy}"
    ))
}

/// Checks that `member` has finished. All claims are closed and no event is left.
///
/// # Errors
/// If `member` has not finished.
pub fn ended(member: Rank, state: &State) -> Checked {
    match state {
        State::Finished => Ok(()),
        state => INVARIANT.broken(format!("all claims are closed and nothing moves, but m{member} is {state:?}")),
    }
}

/// Reports a member that can't continue although a quorum lives, faults are over and no event is
/// left.
///
/// # Errors
/// Always.
pub fn stuck<T>(member: impl Display, why: String) -> Result<T, Violation> {
    INVARIANT.broken(format!("nothing moves any more, but {member} {why}"))
}

/// Reports a joiner that still asks to be admitted while a working group is at rest.
///
/// # Errors
/// Always.
pub fn never_admitted<T>(joiner: MemberId) -> Result<T, Violation> {
    INVARIANT.broken(format!("a group is at work, and member {joiner} asks in vain to be admitted"))
}

/// Reports a leaver that still asks to leave while a working group is at rest.
///
/// # Errors
/// Always.
pub fn never_let_go<T>(leaver: MemberId) -> Result<T, Violation> {
    INVARIANT.broken(format!("a group is at work, and member {leaver} asks in vain to be let go"))
}

/// Reports a group without a quorum, although more than half of the last view's members live, were
/// never disturbed, and always heard each other. `members` is the size of that view. No event is
/// left.
///
/// # Errors
/// Always.
pub fn lost<T>(members: usize) -> Result<T, Violation> {
    INVARIANT.broken(format!("no member is at work, though more than half of {members} members were never apart"))
}

/// Reports the eviction of a member although no fault affected it or any of its links.
///
/// # Errors
/// Always.
pub fn evicted_for_nothing<T>(member: MemberId) -> Result<T, Violation> {
    INVARIANT.broken(format!("member {member} was evicted, though it and all its links were at work all the time"))
}

/// Reports a run that had more events than any plan needs, and still has undelivered messages.
///
/// # Errors
/// Always.
pub fn endless(events: u64) -> Checked {
    INVARIANT.broken(format!("after {events} events there still are messages to deliver"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{example, message};
    use spindle_core::Order;

    #[test]
    fn a_message_that_one_member_never_delivers_is_found() {
        let mut ledger = example(Order::Total);
        assert_eq!(at_rest(SubgroupId(0), &ledger.groups[0]), Ok(()));
        message(&mut ledger, 0, 1, 0);
        ledger.groups[0].lanes[0].taken = vec![1, 0, 1];
        let found = at_rest(SubgroupId(0), &ledger.groups[0]).unwrap_err();
        assert_eq!(found.number, 15);
        assert!(found.what.contains("m1"), "{found}");
    }

    #[test]
    fn forgotten_posts_and_engines_that_never_finish_are_found() {
        assert!(copied(Rank(0), Rank(1), 64, 5, 5).is_ok());
        assert_eq!(copied(Rank(0), Rank(1), 64, 4, 5).unwrap_err().number, 15);
        assert!(ended(Rank(0), &State::Finished).is_ok());
        assert!(ended(Rank(0), &State::Running).is_err());
        assert!(endless(1).is_err());
        assert!(stuck::<()>("m1", "waits".into()).is_err());
        assert!(never_admitted::<()>(MemberId(1)).is_err());
        assert!(lost::<()>(3).is_err());
        assert!(evicted_for_nothing::<()>(MemberId(1)).is_err());
        assert_eq!(never_let_go::<()>(MemberId(1)).unwrap_err().number, 15);
    }
}
