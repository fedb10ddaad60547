//! The delivery of a subgroup's messages to the application: on the engine's thread, or on another
//! one to which the engine has handed the cursor.
use super::{Changes, Peer, Subgroup, cursor};
use crate::fault::Fault;
use crate::multicast::ablation::Ablation;
use crate::multicast::cursor::{Cursor, Handoff};
use crate::multicast::pace::Pace;
use crate::multicast::upcalls::Upcalls;
use crate::mutation::mutation;
use crate::table::Table;
use crate::view::{Order, View};
use crate::wire::layout::{Layout, entry};
use alloc::sync::Arc;
use core::hash::{Hash, Hasher};

#[derive(Debug)]
pub(super) enum Delivery {
    Inline(Cursor),
    Handoff(Arc<Handoff>),
    /// The consumer has ended: stable messages count as delivered.
    Nobody,
}

impl Hash for Delivery {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Delivery::Inline(cursor) => cursor.hash(state),
            Delivery::Handoff(_) => panic!("what a consumer on another thread has taken changes at any time"),
            Delivery::Nobody => {}
        }
    }
}

impl Subgroup {
    /// The state shared with a consumer on another thread, if there is one.
    pub(crate) fn handoff(&self) -> Option<&Arc<Handoff>> {
        match &self.delivery {
            Delivery::Handoff(handoff) => Some(handoff),
            Delivery::Inline(_) | Delivery::Nobody => None,
        }
    }

    /// Gives the deliveries to a consumer on another thread. Allowed only before the first
    /// delivery.
    pub(crate) fn hand_off(&mut self, view: &View, layout: &Layout) -> (Cursor, Arc<Handoff>) {
        let handoff = Arc::new(Handoff::new(self.order, self.senders));
        match core::mem::replace(&mut self.delivery, Delivery::Handoff(Arc::clone(&handoff))) {
            // This cursor knows which messages must be passed over.
            Delivery::Inline(cursor) => (cursor, handoff),
            Delivery::Handoff(_) | Delivery::Nobody => (cursor(view, layout, self.id), handoff),
        }
    }

    /// Handles a peer that breaks the protocol. If all messages are stable here, the view need not
    /// end for it, and stable messages must still be delivered.
    #[cold]
    pub(super) fn deliver_despite<T: Table>(
        &mut self,
        fault: Fault,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
        ablation: &Ablation,
        pace: &mut Pace,
        changes: &mut Changes,
    ) -> Result<(), Fault> {
        if self.has_received_all() {
            self.deliver(table, upcalls, ablation, pace, changes)?;
            changes.entry |= changes.freeing;
            changes.worked |= changes.entry;
        }
        Err(fault)
    }

    /// The delivery predicate.
    // Inlined into the engine's loop: otherwise one message at a time costs some percent more.
    #[expect(clippy::inline_always)]
    #[inline(always)]
    pub(super) fn deliver<T: Table>(
        &mut self,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
        ablation: &Ablation,
        pace: &mut Pace,
        changes: &mut Changes,
    ) -> Result<(), Fault> {
        let delivered: u64 = match (self.order, &self.delivery) {
            // The application may be ahead of the log.
            (Order::Total, Delivery::Inline(cursor)) if self.log.is_some() => cursor.count(),
            (Order::Total, _) => self.own.delivered[0],
            (Order::Fifo, _) => self.own.delivered.iter().sum(),
        };
        let mut frontier = self.deliverable();
        if !ablation.delivery_batch && frontier > delivered + 1 {
            frontier = delivered + 1;
            self.pending = true;
        }
        let subgroup = self.id;
        let garbage = |defect| Fault::Frame { subgroup, defect };
        if matches!(&self.delivery, Delivery::Handoff(handoff) if handoff.is_given_up()) {
            self.stats = self.stats();
            self.delivery = Delivery::Nobody;
        }
        match &self.delivery {
            Delivery::Inline(_) if frontier > delivered => {
                let cursor = self.offer(frontier, pace, table, upcalls);
                cursor.and_then(Cursor::defect).map_or(Ok(()), |defect| Err(garbage(defect)))?;
            }
            Delivery::Handoff(handoff) if frontier > handoff.frontier() => {
                handoff.raise(frontier);
                changes.worked = true;
                upcalls.handed_off(self.named);
            }
            _ => {}
        }
        let logged = match &self.log {
            None => u64::MAX,
            Some(_) => self.offer_log(table, upcalls, changes)?,
        };
        for index in 0..self.own.delivered.len() {
            let now = match (&self.delivery, self.order) {
                (Delivery::Inline(_), Order::Total) if mutation!(DeliveredWithoutTaking) => frontier,
                (Delivery::Inline(cursor), Order::Total) => cursor.count(),
                (Delivery::Inline(cursor), Order::Fifo) => cursor.taken(index),
                (Delivery::Handoff(handoff), _) => handoff.delivered(index).map_err(garbage)?,
                (Delivery::Nobody, Order::Total) => frontier,
                (Delivery::Nobody, Order::Fifo) => self.spoken_by(index),
            };
            // Space is needed until the message is delivered and the log has it.
            let now = if mutation!(FreedBeforeLogged) { now } else { now.min(logged) };
            if now != self.own.delivered[index] {
                self.own.delivered[index] = now;
                let at = match self.order {
                    Order::Total => self.layout.entry + entry::DELIVERED,
                    Order::Fifo => self.layout.by_sender + 8 * index as u64,
                };
                table.store(at, now);
                changes.freeing = true;
            }
        }
        if self.order == Order::Fifo && changes.freeing {
            table.store(self.layout.entry + entry::DELIVERED, self.own.delivered.iter().sum());
        }
        let inline = matches!(self.delivery, Delivery::Inline(_));
        self.pending |= match (&self.log, &self.delivery) {
            (None, _) => inline && self.own.delivered.iter().sum::<u64>() < self.stable,
            (Some(log), delivery) => {
                let delivered = if let Delivery::Inline(cursor) = delivery { cursor.count() } else { frontier };
                // The log may have raised what can be delivered.
                log.has_more(self.stable) || delivered < self.deliverable()
            }
        };
        Ok(())
    }

    /// Offers stable messages to the log, and computes what is on disk, here and everywhere.
    /// Returns the number of sequence numbers that the log has.
    #[cold]
    #[inline(never)]
    fn offer_log<T: Table>(
        &mut self,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
        changes: &mut Changes,
    ) -> Result<u64, Fault> {
        let Some(log) = &mut self.log else { return Ok(u64::MAX) };
        if log.has_more(self.stable) {
            upcalls.log(self.named, &mut log.records(table, self.stable));
            let garbage = |defect| Fault::Frame { subgroup: self.id, defect };
            log.defect().map_or(Ok(()), |defect| Err(garbage(defect)))?;
        }
        if let Some(word) = log.raise_persisted() {
            table.store(self.layout.entry + entry::PERSISTED, word);
            changes.entry = true;
        }
        if let Some(rise) = log.find_durable() {
            upcalls.durable(self.named, rise);
        }
        Ok(log.count())
    }

    /// Loads the counters of the peers' logs. Returns whether any changed.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_logs<T: Table>(&mut self, table: &T) -> Result<bool, Fault> {
        let Some(log) = &mut self.log else { return Ok(false) };
        let peers = self.peers.iter().map(|peer| (peer.rank, peer.entry));
        log.observe(table, peers, super::COUNTS_MAX[2])
    }

    /// Offers the messages between the cursor and `frontier` to the application, if messages are
    /// delivered on this thread.
    // Always inlined: a call costs small batches of several senders over one per cent.
    #[expect(clippy::inline_always)]
    #[inline(always)]
    pub(super) fn offer<T: Table>(
        &mut self,
        frontier: u64,
        pace: &mut Pace,
        table: &T,
        upcalls: &mut impl Upcalls<T>,
    ) -> Option<&Cursor> {
        let Delivery::Inline(cursor) = &mut self.delivery else { return None };
        let quota = pace.quota(self.senders);
        if quota == 0 {
            return Some(cursor);
        }
        let mut batch = cursor.advance(table, frontier).at_most(quota);
        if batch.has_next() {
            upcalls.deliver(self.named, &mut batch);
            // Passes over the nulls after the last message.
            batch.has_next();
        }
        pace.note(self.id, quota, batch.quota());
        let (messages, bytes) = (batch.messages(), batch.bytes());
        self.stats.delivered += messages;
        self.stats.delivered_bytes += bytes;
        self.stats.delivery_batches += u64::from(messages > 0);
        Some(cursor)
    }

    /// INV-FRAME: frees the space of this member's ring that every member has delivered.
    pub(super) fn free<T: Table>(&mut self, table: &mut T, upcalls: &mut impl Upcalls<T>, changes: &mut Changes) {
        let Some(sending) = &mut self.sending else { return };
        let (senders, rank) = (self.senders as u64, sending.rank as u64);
        let count = sending.checkpoints.count();
        let delivered = match self.order {
            Order::Total => {
                let seen = |peer: &Peer| if mutation!(FreedOnReceipt) { peer.received } else { peer.delivered };
                let sequence = self.peers.iter().map(seen).fold(self.own.delivered[0], u64::min);
                // The last of these rounds of this member has a sequence number below the delivered
                // ones.
                sending.checkpoints.pop(|rounds| rounds * senders + rank < sequence + senders)
            }
            Order::Fifo => {
                let delivered = self.peers.iter().map(|peer| peer.delivered_of_mine);
                let delivered = delivered.fold(self.own.delivered[sending.rank], u64::min);
                sending.checkpoints.pop(|rounds| rounds <= delivered)
            }
        };
        let freed = if sending.checkpoints.is_holding() {
            sending.release(count - sending.checkpoints.count(), self.own.freed, self.own.published)
        } else {
            delivered
        };
        // Space that observers hold back is freed before all is delivered, or never.
        let is_untold = freed < delivered && delivered == self.own.published && freed > sending.told;
        if freed > self.own.freed || is_untold {
            let freed = freed.min(sending.claims.watch());
            changes.freeing |= freed > self.own.freed;
            self.own.freed = freed;
            table.store(self.layout.entry + entry::FREED, freed);
            sending.claims.raise_limit(freed + sending.ring.capacity);
            // A waiter is woken for a batch of messages, not for each: once a quarter of the ring
            // was freed, or everything that can be freed.
            let worth = freed - sending.told >= sending.ring.capacity / 4 || delivered == self.own.published;
            if worth {
                sending.told = freed;
            }
            if worth && !(mutation!(RoomUntold) && self.stats.receive_batches % 2 == 1) {
                upcalls.room(self.named);
            }
        }
    }
}
