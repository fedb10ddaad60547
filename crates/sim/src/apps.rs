//! The applications: threads that send, and consumers that deliver on threads of their own.
use crate::plan::AppPlan;
use crate::random::mix;
use crate::seat::Seat;
use spindle_core::{Claim, ClaimError, Claims, Cursor, Exclusive, Handoff, Rank, SubgroupId};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// A sending thread.
pub(crate) struct App {
    pub(crate) plan: AppPlan,
    /// True if no other thread of its member sends in its subgroup.
    pub(crate) alone: bool,
    /// The ring in which it claims. None while its member has no ring for it: before the member has
    /// joined, between two views, or if the member does not send in its subgroup.
    pub(crate) ring: Option<OpenRing>,
    /// True once it has been given a ring.
    pub(crate) started: bool,
    /// The claims that it has yet to make.
    pub(crate) left: u32,
    /// The claim in which it builds a message: the claim, its index in the ledger, and the frame's
    /// offset in the row.
    pub(crate) holding: Option<(Claim, usize, u64)>,
    /// True if it has committed before its planned time, in the middle of a poll.
    pub(crate) early: bool,
    /// True while it waits for space in the ring.
    pub(crate) parked: bool,
}

/// A ring that an application may claim in.
#[derive(Clone)]
pub(crate) struct OpenRing {
    /// The seat of the ring's owner: the member and the view.
    pub(crate) seat: Seat,
    pub(crate) subgroup: SubgroupId,
    pub(crate) claims: Arc<Claims>,
    /// Its member's sender rank.
    pub(crate) sender: usize,
    /// The claimer's position, if there is only one claimer.
    pub(crate) exclusive: Option<Rc<RefCell<Exclusive>>>,
    /// Positions of objects that are committed in the ring, or being committed, and that some
    /// members do not have.
    pub(crate) held: Rc<RefCell<BTreeSet<u64>>>,
}

impl OpenRing {
    pub(crate) fn new(seat: Seat, subgroup: SubgroupId, claims: Arc<Claims>, sender: usize, alone: bool) -> OpenRing {
        let exclusive = alone.then(|| Rc::new(RefCell::new(claims.begin_exclusive())));
        OpenRing { seat, subgroup, claims, sender, exclusive, held: Rc::default() }
    }

    /// Claims space for `len` bytes; None if there is none.
    pub(crate) fn claim(&self, len: u64) -> Option<Claim> {
        match &self.exclusive {
            Some(exclusive) => self.claims.claim_exclusive(&mut exclusive.borrow_mut(), len, |_| {}).ok(),
            None => self.claims.claim(len, |_| {}).ok(),
        }
    }

    /// Claims as [`claim`](Self::claim) does, for a message that is sent again.
    pub(crate) fn claim_again(&self, len: u64) -> Result<Claim, ClaimError> {
        match &self.exclusive {
            Some(exclusive) => self.claims.claim_again(Some(&mut exclusive.borrow_mut()), len, |_| {}),
            None => self.claims.claim_again(None, len, |_| {}),
        }
    }

    /// Sets the gate before the first object that some members do not have.
    pub(crate) fn set_gate(&self) {
        self.claims.set_gate(self.held.borrow().first().copied().unwrap_or(u64::MAX));
    }

    /// Makes the claimer leave the ring, because its view has ended.
    pub(crate) fn leave(self) {
        if let Some(exclusive) = self.exclusive {
            self.claims.retire(&mut exclusive.borrow_mut());
        }
    }
}

impl App {
    pub(crate) fn new(plan: AppPlan, alone: bool) -> App {
        let (started, early, parked) = (false, false, false);
        App { left: plan.claims, plan, alone, ring: None, started, holding: None, early, parked }
    }

    /// Returns true if the application claims at `seat` in `subgroup`.
    pub(crate) fn is_at(&self, seat: Seat, subgroup: SubgroupId) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.seat == seat && ring.subgroup == subgroup)
    }
}

/// A frame that a consumer holds.
pub(crate) struct LentFrame {
    pub(crate) sender: usize,
    pub(crate) index: usize,
    pub(crate) len: u64,
    pub(crate) digest: u64,
}

/// A consumer on a thread of its own.
pub(crate) struct Consumer {
    pub(crate) member: Rank,
    pub(crate) subgroup: SubgroupId,
    pub(crate) cursor: Cursor,
    pub(crate) handoff: Arc<Handoff>,
    /// True if it has been woken, or still holds a frame.
    pub(crate) scheduled: bool,
    /// The frontier at its last look: it delivers up to here.
    pub(crate) frontier: u64,
    /// True if it left messages undelivered at its last look.
    pub(crate) more: bool,
    /// True once the view has ended and it has learnt that.
    pub(crate) closed: bool,
    /// True once it has delivered all messages of the view.
    pub(crate) at_end: bool,
    /// The consumer, by stage and index, that delivers the view before this one and is not at its
    /// end.
    pub(crate) behind: Option<(usize, usize)>,
    pub(crate) lent: Vec<LentFrame>,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Consumer {
    pub(crate) fn new(member: Rank, subgroup: SubgroupId, cursor: Cursor, handoff: Arc<Handoff>) -> Consumer {
        let (scheduled, more) = (false, false);
        let (frontier, messages, bytes) = (0, 0, 0);
        Consumer {
            member,
            subgroup,
            cursor,
            handoff,
            scheduled,
            frontier,
            more,
            closed: false,
            at_end: false,
            behind: None,
            lent: vec![],
            messages,
            bytes,
        }
    }
}

/// Fills a payload with bytes that are unique to `content`.
pub(crate) fn fill(bytes: &mut [u8], content: u64) {
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix(content.wrapping_add(i as u64)).to_le_bytes()[..chunk.len()]);
    }
}

/// Returns a digest of a payload.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let words = chunks.map(|chunk| u64::from_le_bytes(chunk.try_into().expect("8 bytes")));
    let step = |digest: u64, word: u64| (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    words.chain([u64::from_le_bytes(last)]).fold(mix(bytes.len() as u64), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_changes_the_digest() {
        for len in [1, 7, 8, 9, 64, 100] {
            let mut bytes = vec![0; len];
            fill(&mut bytes, 5);
            let before = digest(&bytes);
            for i in 0..len {
                bytes[i] ^= 1;
                assert_ne!(digest(&bytes), before);
                bytes[i] ^= 1;
            }
            assert_eq!(digest(&bytes), before);
        }
        assert_ne!(digest(&[]), digest(&[0]));
    }
}
