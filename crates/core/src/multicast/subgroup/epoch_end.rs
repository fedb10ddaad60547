//! The end of a subgroup's epoch: it wedges, reports its cuts, and is closed at the trims.
use super::{Awaits, Changes, Delivery, Peer, Phase, Subgroup};
use crate::ids::Position;
use crate::ids::{MemberId, Rank};
use crate::multicast::ablation::Ablation;
use crate::multicast::cursor::rounds_before;
use crate::multicast::moves::Moves;
use crate::multicast::pace::Pace;
use crate::multicast::resend::Resend;
use crate::multicast::upcalls::Upcalls;
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::{Order, View};
use crate::wire::layout::entry;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hash;

/// Maximum number of batches that are announced between the decision to wedge and the wedge. Later
/// messages are sent again.
const WEDGE_BATCHES_MAX: u32 = 64;

/// The part of a wedged subgroup that a member has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cuts {
    /// The rounds that are here, with the sender rank; those on disk, if only durable messages are delivered.
    pub(crate) rounds: Vec<(usize, u64)>,
    /// The sequence numbers that are delivered, as far as the engine knows.
    pub(crate) delivered: u64,
    /// In a logged subgroup: a clock that is no earlier than that of any of these messages.
    pub(crate) clock: Option<u64>,
}

impl Subgroup {
    /// Wedges the subgroup before the end of its epoch. First it announces the messages that
    /// applications have committed by now, so that peers may receive them. From here on this member
    /// announces and receives nothing, and its cuts don't change.
    pub(crate) fn wedge<T: Table>(&mut self, table: &mut T, ablation: &Ablation, moves: &mut Moves) {
        self.awaits = Awaits::Unknown;
        for _ in 0..WEDGE_BATCHES_MAX {
            let mut changes = Changes::default();
            self.pending = false;
            self.send(table, ablation, &mut changes);
            if changes.entry {
                self.post(table, moves, &mut changes);
            }
            if !self.pending {
                break;
            }
        }
        self.phase = Phase::Wedged;
    }

    /// The number of rounds of each sender that are here.
    pub(crate) fn cuts<R: Rows>(&self, rows: &R) -> Cuts {
        let own = self.sending.as_ref().map(|sending| (sending.rank, self.own.rounds));
        let others = self.peers.iter().filter_map(|peer| {
            let sender = peer.sender?;
            // In a Fifo subgroup the cursor may have been ahead of the rounds that this member has
            // seen announced. A round that all members have delivered is freed, and can't arrive
            // again.
            let delivered = if self.order == Order::Fifo { self.own.delivered[sender] } else { 0 };
            Some((sender, peer.rounds.max(delivered)))
        });
        let rounds: Vec<(usize, u64)> = match self.log.as_ref().and_then(|log| log.cut()) {
            Some(count) => {
                (0..self.senders).map(|sender| (sender, rounds_before(count, sender, self.senders))).collect()
            }
            None => own.into_iter().chain(others).collect(),
        };
        let clock = self.log.as_ref().map(|log| {
            let mut by_sender = alloc::vec![0; self.senders];
            rounds.iter().for_each(|(sender, rounds)| by_sender[*sender] = *rounds);
            log.clock_at(rows, &by_sender)
        });
        Cuts { rounds, delivered: self.own.delivered.iter().sum(), clock }
    }

    /// Continues the subgroup: the change of the view has not touched it.
    pub(crate) fn unwedge(&mut self) {
        if self.phase == Phase::Wedged && !mutation!(UnwedgeForgotten) {
            (self.phase, self.pending, self.stale) = (Phase::Live, true, true);
        }
    }

    /// Informs the peers once that this member's applications send nothing more, when everything
    /// that they sent is announced.
    pub(crate) fn tell_closed<T: Table>(&mut self, table: &mut T, moves: &mut Moves) {
        if !self.told_closed && self.has_finished_sending() {
            self.told_closed = true;
            table.store(self.layout.entry + entry::CLOSED, 1);
            moves.show(self.id, table);
            table.post(&self.members, self.entry());
        }
    }

    /// Whether all senders have declared that they send nothing more.
    pub(crate) fn senders_have_closed<R: Rows>(&self, rows: &R) -> bool {
        let has_closed = |peer: &Peer| peer.sender.is_none() || rows.load(peer.rank, peer.entry + entry::CLOSED) != 0;
        self.has_finished_sending() && self.peers.iter().all(has_closed)
    }

    /// Closes the epoch, whose end is decided: messages below the trims are delivered, and no
    /// others.
    pub(crate) fn close<T: Table>(&mut self, trims: &[u64], table: &T, upcalls: &mut impl Upcalls<T>) {
        self.phase = Phase::Closed;
        self.trim = self.sending.as_ref().map_or(0, |sending| trims[sending.rank]);
        match &mut self.delivery {
            Delivery::Inline(cursor) => cursor.close(table, trims),
            Delivery::Handoff(handoff) => {
                handoff.end(trims);
                upcalls.handed_off(self.named);
            }
            Delivery::Nobody => {}
        }
        if let Some(from) = self.log.as_mut().and_then(|log| log.close(table, trims))
            && !mutation!(LogUncut)
        {
            upcalls.cut_log(self.named, from);
        }
    }

    /// Delivers the rest of the epoch. A consumer on another thread finds the rest by itself, and
    /// continues with the next epoch.
    pub(crate) fn deliver_rest<T: Table>(&mut self, pace: &mut Pace, table: &T, upcalls: &mut impl Upcalls<T>) {
        self.offer(0, pace, table, upcalls);
        if let Some(log) = self.log.as_mut().filter(|log| !log.is_at_end()) {
            upcalls.log(self.named, &mut log.records(table, 0));
        }
    }

    /// Notes that the log has everything up to `position` on disk, and may have room again.
    pub(crate) fn note_persisted(&mut self, position: Option<Position>) {
        if let Some(log) = &mut self.log {
            log.note_persisted(position);
            self.look_again();
        }
    }

    /// Sets whether the log lacks records of older epochs that may come.
    pub(crate) fn set_catching_up(&mut self, is_catching_up: bool) {
        if let Some(log) = &mut self.log {
            log.set_catching_up(is_catching_up);
            self.look_again();
        }
    }

    /// Returns this member's messages that have to be sent again after the end of the epoch.
    pub(crate) fn resend(&self, me: Rank) -> Option<Resend> {
        let sending = self.sending.as_ref()?;
        let claims = Arc::clone(&sending.claims);
        let positions = self.own.freed..self.own.published;
        Some(Resend::new(claims, me, self.order, positions, self.trim, sending.tail()))
    }

    /// Continues in `view` at the end of `old`, a subgroup of the view `was`.
    pub(crate) fn follow(&mut self, old: &Subgroup, was: &View, view: &View) {
        if let (Delivery::Inline(cursor), Delivery::Inline(before)) = (&mut self.delivery, &old.delivery) {
            cursor.follow(before, (was, old.id), (view, self.id));
        }
        self.follow_log(old, was, view);
    }

    /// Continues with the log of `old`, a subgroup of the view `was`, as far as it is by now.
    pub(crate) fn follow_log(&mut self, old: &Subgroup, was: &View, view: &View) {
        let (Some(log), Some(before)) = (&mut self.log, &old.log) else { return };
        let now = &view.subgroups[self.id.index()].members;
        let stays = |id: &MemberId| view.rank_of(*id).is_some_and(|rank| now.contains(&rank));
        let old = was.subgroups[old.id.index()].members.iter().map(|rank| was.members[rank.index()]);
        log.follow(before, old.filter(stays));
    }

    /// As [`Engine::pass_over`](crate::Engine::pass_over).
    pub(crate) fn pass_over(&mut self, sender: MemberId, rounds: u64, view: &View) {
        if let Delivery::Inline(cursor) = &mut self.delivery {
            cursor.pass_over(sender, rounds, (view, self.id));
        }
    }

    /// Whether the consumer on another thread has come further than this member has reported to its
    /// peers.
    pub(super) fn handed_back(&self) -> bool {
        match &self.delivery {
            Delivery::Inline(_) | Delivery::Nobody => false,
            Delivery::Handoff(handoff) if handoff.is_given_up() => true,
            Delivery::Handoff(handoff) => {
                let logged = self.log.as_ref().map_or(u64::MAX, |log| log.count());
                let counts = self.own.delivered.iter().enumerate();
                let mut changed =
                    counts.filter(|(i, count)| handoff.delivered(*i).map(|now| now.min(logged)) != Ok(**count));
                changed.next().is_some()
            }
        }
    }
}
