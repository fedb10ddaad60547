//! One subgroup at one member: the send, receive and delivery predicates of the Spindle paper
//! (sections II-D and III), evaluated over the entries of its members.
//!
//! Everything is batched as it is found: one evaluation handles all data that has arrived since the
//! last one. Stores happen in the order in which peers may see them: a frame, then the counters
//! that announce it, then the acknowledgements.
mod delivery;
mod epoch_end;
mod positions;

use crate::fault::Fault;
use crate::ids::{Rank, SubgroupId};
use crate::membership::Ranks;
use crate::multicast::ablation::Ablation;
use crate::multicast::claims::Claims;
use crate::multicast::cursor::{Cursor, ROUNDS_MAX, sequence_end};
use crate::multicast::logging::Logging;
use crate::multicast::moves::Moves;
use crate::multicast::pace::Pace;
use crate::multicast::sending::{Announced, Sending};
use crate::multicast::stats::SubgroupStats;
use crate::multicast::upcalls::Upcalls;
use crate::mutation::mutation;
use crate::table::Table;
use crate::view::{Order, View};
use crate::wire::layout::{LINE_BYTES, Layout, SubgroupLayout, entry};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::ops::Range;
use delivery::Delivery;
pub(crate) use epoch_end::Cuts;

/// Maxima of the counters in the life of a view. A peer with a higher counter has sent garbage.
/// Rounds, and the counters of rounds, stay far enough below [`ROUNDS_MAX`]: if this member follows
/// a faulty peer with nulls, its own frames are still valid.
const COUNTS_MAX: [u64; 5] = {
    let rounds = ROUNDS_MAX / 2;
    let sequence = rounds * crate::limits::MEMBERS_MAX as u64;
    // Fits with a round to spare, for each factor by which it is multiplied.
    assert!(sequence < u64::MAX / 4);
    [rounds, rounds, sequence, sequence, rounds]
};

/// Rounds that applications may skip in the life of a view. Rounds beyond this number are announced
/// as nulls.
const SKIPPED_MAX: u64 = ROUNDS_MAX / 4;

/// The counters of one peer, as this member knows them.
#[derive(Clone, Hash, Debug)]
struct Peer {
    rank: Rank,
    /// Offset of its entry in its row.
    entry: u64,
    /// Its sender rank.
    sender: Option<usize>,
    rounds: u64,
    spoken: u64,
    received: u64,
    delivered: u64,
    /// In a Fifo subgroup in which this member sends: the number of its rounds that the peer has
    /// delivered.
    delivered_of_mine: u64,
}

/// This member's own counters, as stored in its row.
#[derive(Clone, Hash, Debug, Default)]
struct Own {
    published: u64,
    rounds: u64,
    spoken: u64,
    freed: u64,
    received: u64,
    /// One count in a subgroup with a total order, one count for each sender in a Fifo subgroup.
    delivered: Box<[u64]>,
}

/// The phase of a subgroup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// It announces, receives and delivers.
    Live,
    /// It announces and receives nothing until it is known whether the change of the view has
    /// touched it.
    Wedged,
    /// Its epoch has ended: messages below the trims are delivered.
    Closed,
}

/// One subgroup of the engine.
#[derive(Hash, Debug)]
pub(crate) struct Subgroup {
    id: SubgroupId,
    /// Its number in the newest view, by which the application knows it.
    named: SubgroupId,
    order: Order,
    members: Vec<Rank>,
    layout: SubgroupLayout,
    me: usize,
    senders: usize,
    /// The other members.
    peers: Vec<Peer>,
    own: Own,
    sending: Option<Sending>,
    delivery: Delivery,
    /// Its log, if it is logged.
    log: Option<Box<Logging>>,
    phase: Phase,
    /// Whether all peers know that this member sends nothing more.
    told_closed: bool,
    /// Whether work is left to do although no counter changed.
    pending: bool,
    /// Whether counters of peers may have changed unnoticed.
    stale: bool,
    /// Whether anything has happened, or counters of peers may have changed, since the last
    /// `take_news`.
    news: bool,
    awaits: Awaits,
    stable: u64,
    /// The number of this member's rounds that belong to the view, once the end of the view is
    /// decided.
    trim: u64,
    stats: SubgroupStats,
}

/// Whether this member waits for peers in the subgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    /// It has to be computed.
    Unknown,
    /// It waits for no peer, as long as its ring has no gate.
    Nobody,
}

/// This follows from the other fields, so states that differ only in it are the same.
impl Hash for Awaits {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The changes that one evaluation made in this member's row and has not posted.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Ring bytes to post.
    pub(crate) data: Range<u64>,
    /// Whether the entry has to be posted.
    pub(crate) entry: bool,
    /// Whether counts have changed that only free rings. No member waits for them to deliver a
    /// message.
    pub(crate) freeing: bool,
    /// Whether the evaluation did any work.
    pub(crate) worked: bool,
    pub(crate) data_posts: u64,
    pub(crate) control_posts: u64,
}

impl Subgroup {
    pub(crate) fn new(view: &View, layout: &Layout, me: Rank, id: SubgroupId) -> Subgroup {
        let spec = &view.subgroups[id.index()];
        let at = |rank| layout.row(rank).subgroup(id).expect("a member of the subgroup has a place for it");
        let peers = spec.members.iter().filter(|rank| **rank != me).map(|&rank| Peer {
            rank,
            entry: at(rank).entry,
            sender: spec.sender_rank(rank),
            rounds: 0,
            spoken: 0,
            received: 0,
            delivered: 0,
            delivered_of_mine: 0,
        });
        let sending = spec.sender_rank(me).map(|rank| {
            let ring = at(me).ring.expect("a sender has a ring");
            Sending::new(rank, ring, spec.trailer_bytes())
        });
        let counts = match spec.order {
            Order::Total => 1,
            Order::Fifo => spec.senders.len(),
        };
        Subgroup {
            id,
            named: id,
            order: spec.order,
            members: spec.members.clone(),
            layout: at(me),
            me: spec.members.binary_search(&me).expect("I am a member"),
            senders: spec.senders.len(),
            peers: peers.collect(),
            own: Own { delivered: alloc::vec![0; counts].into(), ..Own::default() },
            sending,
            delivery: Delivery::Inline(cursor(view, layout, id)),
            log: Logging::new(spec, view.id, cursor(view, layout, id)),
            phase: Phase::Live,
            told_closed: false,
            // A log says that it lacks nothing of older epochs.
            pending: spec.is_logged(),
            stale: true,
            news: true,
            awaits: Awaits::Unknown,
            stable: 0,
            trim: 0,
            stats: SubgroupStats::default(),
        }
    }

    /// Whether it announces, receives and delivers.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Whether its epoch has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether its epoch has ended and all of it is delivered to the application here.
    pub(crate) fn is_through(&self) -> bool {
        let is_at_end = !matches!(&self.delivery, Delivery::Inline(cursor) if !cursor.is_at_end());
        self.is_closed() && is_at_end && self.log.as_ref().is_none_or(|log| log.is_at_end())
    }

    /// As [`Engine::fork`](crate::Engine::fork).
    pub(crate) fn fork(&self) -> Subgroup {
        let Delivery::Inline(cursor) = &self.delivery else { panic!("a consumer on another thread can't be copied") };
        Subgroup {
            members: self.members.clone(),
            peers: self.peers.clone(),
            own: self.own.clone(),
            sending: self.sending.as_ref().map(Sending::fork),
            delivery: Delivery::Inline(cursor.fork()),
            log: self.log.as_ref().map(|log| log.fork()),
            stats: SubgroupStats::default(),
            ..*self
        }
    }

    /// Notes that the view `next` has begun and has not touched this subgroup. In `next` it has
    /// another number, and its members have other ranks.
    pub(crate) fn rename(&mut self, was: &View, next: &View) {
        self.named = next.subgroup(&was.subgroups[self.id.index()].name).unwrap_or(self.id);
        let cursors = match &mut self.delivery {
            Delivery::Inline(cursor) => [Some(cursor), None],
            Delivery::Handoff(_) | Delivery::Nobody => [None, None],
        };
        let logged = self.log.as_mut().map(|log| log.cursor_mut());
        for cursor in cursors.into_iter().flatten().chain(logged) {
            cursor.rename(|rank| next.rank_of(was.members[rank.index()]));
        }
    }

    pub(crate) fn id(&self) -> SubgroupId {
        self.id
    }

    pub(crate) fn members(&self) -> &[Rank] {
        &self.members
    }

    /// The range of this member's row that contains this subgroup's counters.
    pub(crate) fn entry(&self) -> Range<u64> {
        self.layout.entry..self.layout.end
    }

    pub(crate) fn claims(&self) -> Option<&Arc<Claims>> {
        self.sending.as_ref().map(|sending| &sending.claims)
    }

    pub(crate) fn stable(&self) -> u64 {
        self.stable
    }

    pub(crate) fn log(&self) -> Option<&Logging> {
        self.log.as_deref()
    }

    pub(crate) fn set_observed(&mut self, observed: bool) {
        self.pending = true;
        if let Some(sending) = &mut self.sending {
            sending.checkpoints.hold(observed);
        }
    }

    /// Evaluates all predicates once. Counters of peers are loaded if `is_hot`, or if they are
    /// [stale](Self::note_stale).
    #[inline]
    #[expect(clippy::too_many_arguments)]
    pub(crate) fn evaluate<T: Table>(
        &mut self,
        is_hot: bool,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
        ablation: &Ablation,
        pace: &mut Pace,
        moves: &mut Moves,
        changes: &mut Changes,
    ) -> Result<(), Fault> {
        let pending = core::mem::take(&mut self.pending);
        let moved = match is_hot || self.stale {
            true => match self.observe(table) {
                Ok(moved) => moved,
                Err(fault) => return self.deliver_despite(fault, table, upcalls, ablation, pace, changes),
            },
            false => false,
        };
        self.send(table, ablation, changes);
        if !(moved || changes.entry || pending || self.handed_back()) {
            return Ok(());
        }
        (self.awaits, self.news) = (Awaits::Unknown, true);
        changes.worked = moved;
        self.post_now(table, ablation, moves, changes);
        match self.order {
            Order::Total => {
                self.send_nulls(table, ablation, changes);
                self.post_now(table, ablation, moves, changes);
                self.receive(table, ablation, changes);
                self.post_now(table, ablation, moves, changes);
                self.find_stable();
            }
            Order::Fifo => self.stable = self.announced().map(|(_, spoken)| spoken).sum(),
        }
        self.deliver(table, upcalls, ablation, pace, changes)?;
        self.free(table, upcalls, changes);
        changes.entry |= changes.freeing && !(ablation.deferred_posts && table.posts_cost() && self.may_put_off());
        self.post_now(table, ablation, moves, changes);
        changes.worked |= changes.entry || changes.freeing;
        Ok(())
    }

    /// Posts the changes at once, if posting at the end of the loop is switched off.
    #[inline]
    fn post_now<T: Table>(&self, table: &mut T, ablation: &Ablation, moves: &mut Moves, changes: &mut Changes) {
        if !ablation.deferred_posts && changes.entry {
            self.post(table, moves, changes);
        }
    }

    /// Whether counters that free rings may wait for the next post. They may not while more
    /// messages can be delivered: a sender may be waiting for the room.
    fn may_put_off(&self) -> bool {
        !self.pending
    }

    #[cold]
    fn post<T: Table>(&self, table: &mut T, moves: &mut Moves, changes: &mut Changes) {
        changes.worked = true;
        moves.show(self.id, table);
        (changes.entry, changes.freeing) = (false, false);
        let data = core::mem::take(&mut changes.data);
        if !data.is_empty() {
            table.post(&self.members, data);
            changes.data_posts += 1;
        }
        table.post(&self.members, self.entry());
        changes.control_posts += 1;
    }

    /// Whether another evaluation at once may do work although no counter of a peer changes.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether the next poll has to look at the subgroup.
    pub(crate) fn has_more(&self) -> bool {
        let is_handed_off = matches!(self.delivery, Delivery::Handoff(_));
        self.pending || self.stale || is_handed_off && self.own.delivered.iter().sum::<u64>() < self.deliverable()
    }

    /// (sender rank, rounds up to and including its newest message) of every sender, including this
    /// member.
    fn announced(&self) -> impl Iterator<Item = (usize, u64)> {
        let own = self.sending.as_ref().map(|sending| (sending.rank, self.own.spoken));
        own.into_iter().chain(self.peers.iter().filter_map(|peer| Some((peer.sender?, peer.spoken))))
    }

    /// Rounds up to and including the newest message of the sender with this sender rank.
    fn spoken_by(&self, sender: usize) -> u64 {
        self.announced().find(|(rank, _)| *rank == sender).map_or(0, |(_, spoken)| spoken)
    }

    /// The number of sequence numbers of the total order up to and including the last message.
    fn end(&self) -> u64 {
        self.announced().map(|(sender, spoken)| sequence_end(spoken, sender, self.senders)).max().unwrap_or(0)
    }

    /// Loads the counters of all peers. Returns true if any changed.
    fn observe<T: Table>(&mut self, table: &T) -> Result<bool, Fault> {
        let mut moved = false;
        self.news = true;
        // This counter is in another line of the peer's row. It may arrive after the line of the
        // entry, and must be noticed then.
        let of_mine = match (self.order, &self.sending) {
            (Order::Fifo, Some(sending)) => Some(LINE_BYTES + 8 * sending.rank as u64),
            _ => None,
        };
        for peer in &mut self.peers {
            let word = |at| table.load(peer.rank, peer.entry + at);
            // `rounds` first: everything that it announces, `published` and `spoken` included, was
            // stored before it.
            let (rounds, spoken) = match peer.sender {
                Some(_) => (word(entry::ROUNDS), word(entry::SPOKEN)),
                None => (0, 0),
            };
            let (received, delivered) = (word(entry::RECEIVED), word(entry::DELIVERED));
            let now = [rounds, spoken, received, delivered, of_mine.map_or(0, word)];
            let before = [peer.rounds, peer.spoken, peer.received, peer.delivered, peer.delivered_of_mine];
            // Compared as a whole, without a branch for each counter.
            let changed = now.iter().zip(&before).fold(0, |changed, (now, before)| changed | (now ^ before));
            if changed == 0 || (mutation!(FifoRoomUnnoticed) && now[..4] == before[..4]) {
                continue;
            }
            moved = true;
            // INV-MONOTONE: a peer that sends garbage breaks it.
            if let Some(i) = (0..5).find(|&i| now[i] < before[i] || now[i] > COUNTS_MAX[i]) {
                // The remaining peers have not been read yet.
                self.stale = true;
                let counter = ["rounds", "spoken", "received", "delivered", "delivered by sender"][i];
                return Err(Fault::Counter { member: peer.rank, counter, before: before[i], now: now[i] });
            }
            [peer.rounds, peer.spoken, peer.received, peer.delivered, peer.delivered_of_mine] = now;
        }
        if self.log.is_some() {
            moved |= self.observe_logs(table)?;
        }
        self.stale = false;
        Ok(moved)
    }

    /// The send predicate: announces the messages that applications have committed, and the rounds
    /// that they skip.
    fn send<T: Table>(&mut self, table: &mut T, ablation: &Ablation, changes: &mut Changes) {
        let Some(sending) = &mut self.sending else { return };
        let own = &mut self.own;
        if self.order == Order::Total {
            let skipped = sending.claims.take_skipped().min(SKIPPED_MAX.saturating_sub(own.rounds));
            if skipped > 0 {
                own.rounds += skipped;
                sending.claims.set_nulls(own.rounds - sending.frames);
                changes.entry = true;
            }
        }
        let me = self.members[self.me];
        if mutation!(AnnouncedBeforeStamped) && sending.has_more(own.published) {
            table.store(self.layout.entry + entry::ROUNDS, own.rounds + 1);
        }
        let batch = sending.collect(table, me, Announced { published: own.published, rounds: own.rounds }, ablation);
        self.pending |= batch.more;
        if batch.frames > 0 {
            let overhang = sending.ring.at + sending.ring.capacity;
            let end = if mutation!(OverhangUnposted) { batch.end.min(overhang) } else { batch.end };
            changes.data = sending.ring.offset(own.published)..end;
            own.published = batch.position;
            own.rounds += batch.frames - u64::from(mutation!(VoidTakesNoRound) && batch.voids > 0);
            own.spoken = own.rounds;
            sending.frames += batch.frames;
            sending.checkpoints.push(own.spoken, own.published);
            if mutation!(SpokenBeforePublished) {
                table.store(self.layout.entry + entry::SPOKEN, own.spoken);
            }
            table.store(self.layout.entry + entry::PUBLISHED, own.published);
            table.store(self.layout.entry + entry::SPOKEN, own.spoken);
            changes.entry = true;
            self.stats.sent += batch.frames - batch.voids;
            self.stats.send_batches += u64::from(batch.frames > batch.voids);
        }
        if changes.entry {
            table.store(self.layout.entry + entry::ROUNDS, own.rounds);
        }
    }

    /// The null rule (paper, section III-B) in closed form, INV-NULL: a sender that is behind the
    /// newest *message* of another sender raises its rounds until that message no longer waits for
    /// it.
    fn send_nulls<T: Table>(&mut self, table: &mut T, ablation: &Ablation, changes: &mut Changes) {
        let Some(sending) = &self.sending else { return };
        if !ablation.null_sends {
            return;
        }
        let needed = |peer: &Peer| {
            let newest = if mutation!(NullsAnswerNulls) { peer.rounds + 1 } else { peer.spoken };
            let before = peer.sender.is_some_and(|sender| sending.rank < sender) && !mutation!(NullsFallShort);
            peer.sender.map_or(0, |_| (newest + u64::from(before)).saturating_sub(1))
        };
        let target = self.peers.iter().map(needed).max().unwrap_or(0);
        if target > self.own.rounds {
            self.stats.nulls += target - self.own.rounds;
            self.stats.null_batches += 1;
            self.own.rounds = target;
            sending.claims.set_nulls(target - sending.frames);
            table.store(self.layout.entry + entry::ROUNDS, target);
            changes.entry = true;
        }
    }

    /// The receive predicate: every message before round m = min c_i has arrived, and in round m
    /// the messages of the ranks below the first with c_i = m.
    fn receive<T: Table>(&mut self, table: &mut T, ablation: &Ablation, changes: &mut Changes) {
        let own = self.sending.as_ref().map(|sending| (self.own.rounds, sending.rank));
        let others = self.peers.iter().filter_map(|peer| Some((peer.rounds, peer.sender?)));
        // The smallest (rounds, sender rank) is exactly (m, r).
        let Some((round, rank)) = own.into_iter().chain(others).min() else { return };
        let mut received = round * self.senders as u64 + rank as u64;
        if mutation!(ReceivedOneTooMany) {
            received += 1;
        }
        if !ablation.receive_batch && received > self.own.received + 1 {
            received = self.own.received + 1;
            self.pending = true;
        }
        if received > self.own.received || (mutation!(ReceivedGoesBack) && self.stats.receive_batches % 100 == 99) {
            received -= u64::from(mutation!(ReceivedGoesBack) && received > 0 && received <= self.own.received);
            self.own.received = received;
            self.stats.receive_batches += 1;
            table.store(self.layout.entry + entry::RECEIVED, received);
            changes.entry = true;
        }
    }

    /// INV-STABLE: computes the frontier that every member has received.
    fn find_stable(&mut self) {
        let count = self.peers.len() - usize::from(mutation!(StableForgetsOne) && !self.peers.is_empty());
        let others = self.peers.iter().take(count).map(|peer| peer.received);
        let stable = others.chain([self.own.received]).min().unwrap_or(0);
        self.stable = if mutation!(DeliveredOnReceipt) { self.own.received } else { stable };
    }

    /// Adds the peers for which this member waits: those that have not received everything
    /// announced, as far as this member knows, and those that have not delivered everything that it
    /// sent. While its ring has a gate it waits for all peers: frames committed there wait until
    /// each member has a large message.
    pub(crate) fn await_peers(&mut self, awaited: &mut Ranks) {
        let is_held_back =
            self.sending.as_ref().is_some_and(|sending| sending.claims.is_gated()) && !mutation!(GateUnawaited);
        if self.awaits == Awaits::Nobody && !is_held_back {
            return;
        }
        self.awaits = Awaits::Nobody;
        let own_delivered = match (&self.sending, self.order) {
            (Some(sending), Order::Total) => sequence_end(self.own.spoken, sending.rank, self.senders),
            (Some(_), Order::Fifo) => self.own.spoken,
            (None, _) => 0,
        };
        let end = match self.order {
            Order::Total => self.end(),
            Order::Fifo => 0,
        };
        for (index, peer) in self.peers.iter().enumerate() {
            let delivered = if self.order == Order::Total { peer.delivered } else { peer.delivered_of_mine };
            let unwritten = self.log.as_ref().is_some_and(|log| log.awaits(index)) && !mutation!(LogUnawaited);
            let lacks = peer.received < end && !mutation!(ReceiptUnawaited) || unwritten;
            let owes = delivered < own_delivered && !mutation!(DeliveryUnawaited);
            if lacks || owes || is_held_back {
                awaited.add(peer.rank);
                self.awaits = Awaits::Unknown;
            }
        }
    }

    /// The sequence number of a round of this member.
    fn sequence(&self, round: u64) -> u64 {
        match (self.order, &self.sending) {
            (Order::Total, Some(sending)) => round * self.senders as u64 + sending.rank as u64,
            _ => round,
        }
    }

    /// Makes the next evaluation read everything.
    pub(crate) fn look_again(&mut self) {
        (self.pending, self.stale) = (true, true);
    }

    /// Notes that counters of peers may have changed. This holds until all of them have been
    /// loaded.
    pub(crate) fn note_stale(&mut self) {
        self.stale = true;
    }

    /// Whether anything has happened, or counters of peers may have changed, since the last call.
    pub(crate) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }
}

fn cursor(view: &View, layout: &Layout, id: SubgroupId) -> Cursor {
    let spec = &view.subgroups[id.index()];
    let senders = spec.senders.iter().map(|&rank| {
        let at = layout.row(rank).subgroup(id).expect("a sender is a member of its subgroup");
        (rank, view.members[rank.index()], at.ring.expect("a sender has a ring"), at.entry + entry::PUBLISHED)
    });
    Cursor::new(spec.order, senders)
}
