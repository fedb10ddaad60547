//! Invariant 14, bounded: claims stay inside their ring, and a poll does no more stores and posts
//! than its subgroups and frames require. `tests/allocations.rs` checks that polls do not allocate,
//! because only a test can count with an allocator of its own.
use super::{Checked, Invariant};
use crate::ledger::SenderFrames;
use spindle_core::{Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(14, "bounded");

/// Checks a claim of `span` bytes at offset `at` of the row, by the sender of `lane`. Call it after
/// the check of frame safety, which moves `oldest`.
///
/// # Errors
/// If the claim is outside its ring, or more is in use than the ring holds.
pub fn claimed(lane: &SenderFrames, subgroup: SubgroupId, at: u64, span: u64) -> Checked {
    let ring = lane.ring;
    let (start, end) = (ring.at, ring.at + ring.size());
    if at < start || at >= start + ring.capacity || at + span > end {
        return INVARIANT.broken(format!(
            "m{} is given {at}..{} of its row in s{subgroup}, but its ring is {start}..{end}",
            lane.sender,
            at + span
        ));
    }
    let used: u64 = lane.frames[lane.oldest..].iter().map(|frame| frame.span).sum::<u64>() + span;
    if used > ring.size() {
        return INVARIANT.broken(format!(
            "m{} has {used} bytes on the way in s{subgroup}, but its ring has {}",
            lane.sender,
            ring.size()
        ));
    }
    Ok(())
}

/// Checks the number of posts of `member` in one poll.
///
/// # Errors
/// If it is more than six per subgroup (data twice, frames, nulls, receipt, delivery) and two at
/// the end.
pub fn posted(member: Rank, subgroups: u64, posts: u64) -> Checked {
    let most = 6 * subgroups + 2;
    if posts <= most {
        return Ok(());
    }
    INVARIANT.broken(format!("m{member} made {posts} posts in one poll; {subgroups} subgroups call for {most} at most"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{example, message};
    use spindle_core::Order;

    #[test]
    fn claims_outside_the_ring_and_too_many_of_them_are_found() {
        let mut ledger = example(Order::Total);
        let lane = |ledger: &crate::ledger::Ledger| ledger.groups[0].lanes[0].clone();
        assert_eq!(claimed(&lane(&ledger), SubgroupId(0), 256, 64), Ok(()));
        assert_eq!(claimed(&lane(&ledger), SubgroupId(0), 192, 64).unwrap_err().number, 14);
        let size = lane(&ledger).ring.size();
        assert!(claimed(&lane(&ledger), SubgroupId(0), 256, size + 16).is_err());
        for i in 0..size / 64 {
            message(&mut ledger, 0, i, i);
        }
        assert!(claimed(&lane(&ledger), SubgroupId(0), 256, 64).is_err(), "all of it is in use");
    }

    #[test]
    fn a_poll_that_posts_without_end_is_found() {
        assert!(posted(Rank(0), 3, 20).is_ok());
        assert_eq!(posted(Rank(0), 3, 21).unwrap_err().number, 14);
    }
}
