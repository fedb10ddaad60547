//! Invariant 12, frame safety: no byte of a ring is given to a new claim before every member has
//! finished with the frame in that place. A member has delivered all that it reports as delivered.
//! A frame does not change while a consumer holds it.
use super::{Checked, Invariant};
use crate::ledger::SubgroupRecord;
use spindle_core::{Order, Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(12, "frame safety");

/// Checks a claim of `span` bytes at offset `at` of the row by the sender `lane`. Call it before
/// the claim is entered in the ledger.
///
/// # Errors
/// If a member has not finished with a frame in that place.
pub fn claimed(group: &mut SubgroupRecord, subgroup: SubgroupId, lane: usize, at: u64, span: u64) -> Checked {
    let mut oldest = group.lanes[lane].oldest;
    let frames = group.lanes[lane].frames.len();
    while oldest < frames && group.members.iter().all(|member| group.is_done(*member, lane, oldest)) {
        oldest += 1;
    }
    group.lanes[lane].oldest = oldest;
    for index in oldest..frames {
        let frame = &group.lanes[lane].frames[index];
        if at < frame.at + frame.span && frame.at < at + span {
            let late = group.members.iter().find(|member| !group.is_done(**member, lane, index));
            let Some(late) = late else { continue };
            return INVARIANT.broken(format!(
                "m{} may overwrite its claim {index} in s{subgroup} (round {:?}), which m{late} has yet to deliver",
                group.lanes[lane].sender, frame.round
            ));
        }
    }
    Ok(())
}

/// Checks the report of `member` that it has delivered `count` sequence numbers of the order, or,
/// in a Fifo subgroup, rounds of `lane`.
///
/// # Errors
/// If the member has not delivered a message among them.
pub fn says_delivered(
    group: &mut SubgroupRecord,
    subgroup: SubgroupId,
    member: Rank,
    lane: usize,
    count: u64,
) -> Checked {
    group.delivered[member.index()][lane] = count;
    let lanes = group.lanes.len() as u64;
    for (i, sent) in group.lanes.iter().enumerate() {
        if group.order == Order::Fifo && i != lane {
            continue;
        }
        let done = sent.done[member.index()];
        // The first message that the member has not finished with.
        let Some(frame) = sent.frames[done..].iter().find(|frame| sent.is_due(member, frame)) else { continue };
        let Some(round) = frame.round else { continue };
        let place = if group.order == Order::Total { round * lanes + i as u64 } else { round };
        if place < count {
            return INVARIANT.broken(format!(
                "m{member} says that it has delivered {count} in s{subgroup}, but round {round} of m{} is missing",
                sent.sender
            ));
        }
    }
    Ok(())
}

/// Checks a frame that a consumer returns. Its payload had the digest `lent` when the consumer got
/// it, and has the digest `now`.
///
/// # Errors
/// If the digests differ.
pub fn given_back(member: Rank, sender: Rank, subgroup: SubgroupId, lent: u64, now: u64) -> Checked {
    if lent == now {
        return Ok(());
    }
    INVARIANT.broken(format!("a frame of m{sender} in s{subgroup} changed while a consumer of m{member} held it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{example, message};

    #[test]
    fn space_in_use_is_not_given_away() {
        let mut ledger = example(Order::Total);
        message(&mut ledger, 0, 1, 0);
        message(&mut ledger, 0, 2, 1);
        let group = &mut ledger.groups[0];
        assert_eq!(claimed(group, SubgroupId(0), 0, 256 + 128, 64), Ok(()));
        group.lanes[0].done = vec![1, 0, 1];
        assert_eq!(claimed(group, SubgroupId(0), 0, 256, 64).unwrap_err().number, 12);
        assert!(claimed(group, SubgroupId(0), 0, 300, 16).is_err(), "in its middle");
        group.lanes[0].done[1] = 1;
        assert_eq!(claimed(group, SubgroupId(0), 0, 256, 64), Ok(()));
        assert!(claimed(group, SubgroupId(0), 0, 256, 65).is_err(), "into the second");
    }

    #[test]
    fn a_member_that_says_too_much_is_found() {
        for (order, count) in [(Order::Total, 3), (Order::Fifo, 2)] {
            let mut ledger = example(order);
            message(&mut ledger, 0, 1, 0);
            message(&mut ledger, 0, 2, 1);
            let group = &mut ledger.groups[0];
            group.lanes[0].done[2] = 1;
            assert_eq!(says_delivered(group, SubgroupId(0), Rank(2), 0, count - 1), Ok(()));
            assert_eq!(says_delivered(group, SubgroupId(0), Rank(2), 0, count).unwrap_err().number, 12);
        }
    }

    #[test]
    fn a_frame_that_changes_on_loan_is_found() {
        assert!(given_back(Rank(0), Rank(1), SubgroupId(0), 5, 5).is_ok());
        assert_eq!(given_back(Rank(0), Rank(1), SubgroupId(0), 5, 6).unwrap_err().number, 12);
    }
}
