//! Invariant 2, no invention: a delivered message was committed by its sender, byte for byte.
use super::{Checked, Invariant};
use crate::ledger::{ClaimState, Ledger};
use spindle_core::{Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(2, "no invention");

/// Checks a delivery by `member` of a message of the sender with this sender rank.
///
/// # Errors
/// If the sender never committed these bytes.
pub fn delivered(ledger: &Ledger, subgroup: SubgroupId, member: Rank, sender: usize, len: u64, digest: u64) -> Checked {
    let lane = ledger.lane(subgroup, sender);
    let sent = ClaimState::Message { len, digest };
    // Nearly always it is the next message. The search is needed only if this or the next invariant
    // is violated.
    let next = lane.frames.get(lane.next_message(member)).is_some_and(|frame| frame.fate == sent);
    if next || lane.frames.iter().any(|frame| frame.fate == sent) {
        return Ok(());
    }
    INVARIANT.broken(format!("m{member} delivers {len} bytes of m{} in s{subgroup} that it never sent", lane.sender))
}

/// Checks that the member `sender` sends its message `number` in a new view as in the old one;
/// `old` and `new` are its fates there.
///
/// # Errors
/// If they differ.
pub fn sent_again(sender: Rank, subgroup: SubgroupId, number: u64, old: ClaimState, new: ClaimState) -> Checked {
    if old == new {
        return Ok(());
    }
    INVARIANT.broken(format!("m{sender} sends message {number} in s{subgroup} again as {new:?}, but it was {old:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{example, message};
    use spindle_core::Order;

    #[test]
    fn bytes_that_no_member_sent_are_found() {
        let mut ledger = example(Order::Total);
        message(&mut ledger, 0, 77, 0);
        assert_eq!(delivered(&ledger, SubgroupId(0), Rank(1), 0, 48, 77), Ok(()));
        assert_eq!(delivered(&ledger, SubgroupId(0), Rank(1), 0, 48, 78).unwrap_err().number, 2);
        assert!(delivered(&ledger, SubgroupId(0), Rank(1), 0, 47, 77).is_err(), "a part of it");
        assert!(delivered(&ledger, SubgroupId(0), Rank(1), 1, 48, 77).is_err(), "another sender");
    }

    #[test]
    fn a_claim_that_was_given_up_is_no_message() {
        let mut ledger = example(Order::Total);
        let index = ledger.claimed(SubgroupId(0), 0, 256, 64, 0);
        assert!(delivered(&ledger, SubgroupId(0), Rank(1), 0, 48, 5).is_err());
        ledger.committed(SubgroupId(0), 0, index, ClaimState::Void);
        assert!(delivered(&ledger, SubgroupId(0), Rank(1), 0, 48, 5).is_err());
    }
    #[test]
    fn a_message_that_changes_between_views_is_found() {
        let message = ClaimState::Message { len: 3, digest: 4 };
        assert_eq!(sent_again(Rank(0), SubgroupId(0), 7, message, message), Ok(()));
        assert_eq!(sent_again(Rank(0), SubgroupId(0), 7, message, ClaimState::Void).unwrap_err().number, 2);
    }
}
