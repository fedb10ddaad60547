//! Invariant 4, atomicity: members that go together from one view to the next delivered the same
//! messages in the old one. In a subgroup with a total order they delivered the messages below the
//! trims and no others, in a Fifo subgroup at least the messages below the trims.
use super::{Checked, Invariant};
use crate::ledger::SubgroupRecord;
use spindle_core::{Order, Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(4, "atomicity");

/// Checks the deliveries of `member`, which has ended the view. The decision trims the senders of
/// this subgroup at the rounds `trims`.
///
/// # Errors
/// If the member lacks a message below the trims, or has delivered one beyond them.
pub fn ended(group: &SubgroupRecord, subgroup: SubgroupId, member: Rank, trims: &[u64]) -> Checked {
    if !group.members.contains(&member) {
        return Ok(());
    }
    for (lane, trim) in group.lanes.iter().zip(trims) {
        let taken = lane.taken[member.index()];
        let missing = lane.frames.get(lane.next_message(member)).and_then(|frame| frame.round);
        if let Some(round) = missing.filter(|round| round < trim) {
            return INVARIANT.broken(format!(
                "m{member} ends the view without round {round} of m{} in s{subgroup}, which is trimmed at {trim}",
                lane.sender
            ));
        }
        let last = lane.frames[..taken].last().and_then(|frame| frame.round);
        if let Some(round) = last.filter(|round| round >= trim && group.order == Order::Total) {
            return INVARIANT.broken(format!(
                "m{member} delivered round {round} of m{} in s{subgroup}, which is trimmed at {trim}",
                lane.sender
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{example, message};

    #[test]
    fn a_member_that_delivers_less_or_more_than_the_trims_say_is_found() {
        for order in [Order::Total, Order::Fifo] {
            let mut ledger = example(order);
            for i in 0..3 {
                message(&mut ledger, 0, 10 + i, 2 * i);
            }
            let group = &mut ledger.groups[0];
            group.lanes[0].taken = vec![2, 1, 3];
            let ended = |member| ended(group, SubgroupId(0), Rank(member), &[3, 0]);
            assert_eq!(ended(0), Ok(()));
            assert_eq!(ended(1).unwrap_err().number, 4, "round 2 is missing");
            assert_eq!(ended(2).is_err(), order == Order::Total, "round 4 is beyond the trim");
        }
    }
}
