//! Messages that a member sends again in the next view: its own messages that were not delivered in
//! the old view.
use crate::ids::Rank;
use crate::multicast::claims::{Claims, Tail};
use crate::mutation::mutation;
use crate::table::Rows;
use crate::view::Order;
use crate::wire::ring::{HEADER_BYTES, Header, Kind};
use alloc::sync::Arc;

/// The member's own messages of an ended view that were not delivered, in order. They are the
/// messages announced at or after its trim, and the messages that applications have committed, or
/// are still committing, in the old ring.
///
/// Applications may use the old ring for a while: one that holds a claim, or is the only claimer
/// and knows of free space. They get access to the next view's ring when this resend is
/// [done](Self::is_done), so that their messages keep their order.
#[derive(Debug)]
pub struct Resend {
    claims: Arc<Claims>,
    me: Rank,
    order: Order,
    position: u64,
    /// Frames below this position were announced, and have their rounds.
    announced: u64,
    trim: u64,
    tail: Tail,
}

/// A frame to be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resent {
    /// A message, the name of an object, or a void. A Fifo subgroup needs voids for counting.
    pub kind: Kind,
    /// Offset of its payload in this member's row of the old view.
    pub at: u64,
    /// Bytes of payload.
    pub len: u64,
    /// Position of the frame in this member's ring of the old view.
    pub position: u64,
}

impl Resend {
    pub(crate) fn new(
        claims: Arc<Claims>,
        me: Rank,
        order: Order,
        positions: core::ops::Range<u64>,
        trim: u64,
        tail: Tail,
    ) -> Resend {
        Resend { claims, me, order, position: positions.start, announced: positions.end, trim, tail }
    }

    /// Returns the next frame, if one exists now. `old` is the old view's table.
    ///
    /// # Panics
    /// If `old` is another table.
    pub fn next<R: Rows>(&mut self, old: &R) -> Option<Resent> {
        let ring = *self.claims.ring();
        loop {
            let position = self.position;
            if position < self.announced {
                let header = self.header(old);
                let round = old.load(self.me, ring.offset(position) + 8);
                self.position = ring.after(self.position, header.span);
                let belongs_here = round >= self.trim || mutation!(ResendsDelivered);
                match self.resent(header, position).filter(|_| belongs_here && !mutation!(ResendForgotten)) {
                    Some(resent) => return Some(resent),
                    None => continue,
                }
            }
            let header = if self.claims.tail() != self.tail {
                let header = self.header(old);
                self.tail = self.tail.step(ring.after(self.position, header.span) - self.position);
                header
            } else {
                let (kind, span) = self.claims.marks().take(self.position, || true)?;
                Header { kind, span, ..self.header(old) }
            };
            self.position = ring.after(self.position, header.span);
            if let Some(resent) = self.resent(header, position) {
                return Some(resent);
            }
        }
    }

    /// The position up to which the old ring was read. Frames below it were handed out or are
    /// delivered.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The claims on the old ring.
    pub fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// Whether no application will commit in the old ring any more, and every frame in it has been
    /// handed out.
    pub fn is_done(&self) -> bool {
        self.position >= self.announced && self.claims.ends_at(self.position, self.tail)
    }

    /// Whether the applications have declared that they will send nothing more.
    pub fn is_closed(&self) -> bool {
        self.claims.is_closed()
    }

    fn header<R: Rows>(&self, old: &R) -> Header {
        let ring = self.claims.ring();
        let word = old.load(self.me, ring.offset(self.position));
        Header::decode(word, ring).expect("my own frames are well formed")
    }

    fn resent(&self, header: Header, position: u64) -> Option<Resent> {
        let wanted = header.kind != Kind::Void || self.order == Order::Fifo;
        let at = self.claims.ring().offset(position) + HEADER_BYTES;
        wanted.then_some(Resent { kind: header.kind, at, len: header.len, position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ring::Ring;

    struct Empty;

    impl Rows for Empty {
        fn load(&self, _: Rank, _: u64) -> u64 {
            0
        }

        fn bytes(&self, _: Rank, _: u64, _: u64) -> &[u8] {
            &[]
        }

        type Frames<'a> = crate::table::Lookup<'a, Empty>;

        fn frames(&self, member: Rank, ring: &Ring) -> crate::table::Lookup<'_, Empty> {
            crate::table::Lookup::new(self, member, ring)
        }
    }

    /// A view may end at the moment in which an application takes its ring and shares it between threads.
    #[test]
    fn a_ring_that_is_shared_after_its_view_has_ended_is_done() {
        for is_revoked_first in [true, false] {
            let claims = Arc::new(Claims::new(Ring::new(0, 4, 16), 0));
            let mut resend = Resend::new(Arc::clone(&claims), Rank(0), Order::Total, 0..0, 0, Tail::default());
            let holder = claims.begin_exclusive();
            let mut holder = Some(holder);
            let mut share = || holder.take().into_iter().for_each(|holder| claims.end_exclusive(holder));
            if !is_revoked_first {
                share();
            }
            claims.revoke();
            assert!(resend.next(&Empty).is_none());
            assert_eq!(resend.is_done(), !is_revoked_first, "its only claimer may still send");
            share();
            assert!(resend.next(&Empty).is_none() && resend.is_done());
            assert!(claims.claim(8, |_| {}).is_err(), "it is full for ever");
        }
    }
}
