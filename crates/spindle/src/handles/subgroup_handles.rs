//! One subgroup of this member, from view to view: its handles, and the rings and messages that
//! they get.
use super::publisher::Publisher;
use super::publisher_slot::{PublisherSlot, RingRelay};
use super::read_barrier::{BarrierRows, ReadBarrier};
use super::receiver::{Inlet, Receiver, Stretch};
use super::tracking::Tracker;
use crate::config::Subgroup;
use crate::error::Ended;
use crate::histogram::Histogram;
use crate::large::{LargeObjectCache, Outbound};
use crate::logs::SubgroupLog;
use crate::mesh::Mesh;
use crate::shared::{Notices, Shared};
use spindle_core::multicast::stats::SubgroupStats;
use spindle_core::{Engine, Handoff, State, SubgroupId, View, ViewId};
use spindle_fabric::{Fabric, Room};
use spindle_transport::fork::ForkMark;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A subgroup by its name.
#[derive(Debug)]
pub(crate) struct SubgroupHandles {
    pub(crate) name: String,
    /// The view with which its epoch began, and its number there, if this member is in it.
    home: Option<(ViewId, SubgroupId)>,
    slot: Arc<PublisherSlot>,
    /// The ring of this epoch, until an application has it.
    ring: Option<spindle_fabric::Publisher>,
    /// The place at which claimers in this epoch's ring wait.
    room: Option<Room>,
    /// The rings of ended epochs that have yet to be sent on, the newest first.
    relays: VecDeque<RingRelay>,
    /// Whether sending on waits for the subgroup to have enough members again.
    unavailable: bool,
    handle: Handle,
    /// The position up to which this epoch's ring was known to be delivered everywhere when its
    /// objects were looked after last.
    settled: u64,
    inlet: Option<Arc<Inlet>>,
    read_barrier: ReadBarrier,
    /// The number of messages that could not be sent on, because no ring existed for them any more.
    pub(crate) lost: u64,
    /// The time from claim to delivery, of a sample of this member's messages.
    pub(crate) latency: Histogram,
    /// The sum of the counters of ended epochs, without the deliveries in `untaken`.
    ended: SubgroupStats,
    /// The deliveries of ended epochs from which the receiver may still take messages.
    untaken: Vec<Arc<Handoff>>,
    /// Its log, if it is logged.
    pub(crate) log: Option<Box<SubgroupLog>>,
}

/// The state of the application's publisher. In a subgroup that is created while the group runs,
/// the application may ask for it at any time before the group finishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Handle {
    /// It may still ask for the publisher.
    Free,
    Taken,
    /// The application did not ask for it in time.
    None,
}

impl SubgroupHandles {
    pub(crate) fn new(
        name: String,
        shared: &Arc<Shared>,
        notices: &Arc<Notices>,
        object_bytes_max: u64,
        log: Option<SubgroupLog>,
    ) -> SubgroupHandles {
        let (ring, room, relays, inlet, read_barrier) = Default::default();
        // The polling thread copies a message to the log at once.
        let object_bytes_max =
            if log.is_some() { object_bytes_max.min(Subgroup::LOGGED_MESSAGE_BYTES_MAX) } else { object_bytes_max };
        let outbound = Arc::new(Outbound::new(Arc::clone(notices), object_bytes_max));
        let tracker = Tracker::new(Arc::clone(notices), log.as_ref().map(|log| Arc::clone(&log.frontier)));
        let slot = Arc::new(PublisherSlot::new(Arc::clone(shared), outbound, tracker));
        SubgroupHandles {
            name,
            home: None,
            slot,
            ring,
            room,
            relays,
            unavailable: false,
            handle: Handle::Free,
            settled: 0,
            inlet,
            read_barrier,
            lost: 0,
            latency: Histogram::default(),
            ended: SubgroupStats::default(),
            untaken: vec![],
            log: log.map(Box::new),
        }
    }

    /// Begins an epoch of the subgroup with a view. The subgroup is `id` there, if this member is
    /// in it.
    pub(crate) fn begin(&mut self, id: Option<SubgroupId>, engine: &mut Engine, fabric: &Mesh, view: &Arc<View>) {
        (self.home, self.settled) = (id.map(|id| (view.id, id)), 0);
        self.unavailable = id.is_some_and(|id| !view.subgroups[id.index()].is_available());
        self.slot.set_engine(fabric.doorbell());
        if let Some(log) = &mut self.log {
            let catches_up = log.begin(view.id, id.map(|id| &view.subgroups[id.index()]));
            if let Some(id) = id.filter(|_| catches_up) {
                engine.set_catching_up(id, true);
            }
        }
        let claims = id.and_then(|id| engine.claims(id));
        match claims {
            Some(claims) => {
                let is_alone = id.is_some_and(|id| view.subgroups[id.index()].members.len() == 1);
                let (rows, doorbell) = (fabric.reader(), fabric.doorbell());
                self.slot.outbound.begin(view.id, Arc::clone(&claims), rows, engine.me(), doorbell, is_alone);
                let publisher = fabric.publisher(claims);
                self.room = Some(publisher.room());
                self.ring = Some(publisher);
                self.slot.readmit();
            }
            None => {
                self.ring = None;
                self.slot.refuse();
                self.slot.outbound.wake();
            }
        }
        if let (Some(inlet), Some(id)) = (&self.inlet, id) {
            inlet.put(stretch(id, engine, fabric, view));
        }
        self.settle();
    }

    /// Notes that an application that has not asked for the publisher by now never will.
    pub(crate) fn seal(&mut self) {
        if self.handle == Handle::Free {
            self.handle = Handle::None;
            self.ring = None;
        }
    }

    pub(crate) fn publisher(&mut self) -> Option<Publisher> {
        let ring = self.ring.take()?;
        self.handle = Handle::Taken;
        Some(Publisher::new(ring, Arc::clone(&self.slot)))
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.handle == Handle::Taken
    }

    pub(crate) fn has_receiver(&self) -> bool {
        self.inlet.is_some()
    }

    pub(crate) fn receiver(
        &mut self,
        id: SubgroupId,
        engine: &mut Engine,
        fabric: &Mesh,
        view: &Arc<View>,
    ) -> Receiver {
        self.close_read_barrier();
        let inlet = Arc::new(Inlet::new());
        self.inlet = Some(Arc::clone(&inlet));
        Receiver::new(stretch(id, engine, fabric, view), inlet, Arc::clone(&self.slot.shared))
    }

    /// Handles the end of the epoch. `engine` and `fabric` are those of its [home](Self::home).
    pub(crate) fn end_epoch(&mut self, engine: &Engine, fabric: &Mesh, object_cache: &LargeObjectCache) {
        let Some((_, id)) = self.home else { return };
        self.count_epoch(id, engine);
        self.slot.tracker.end_view(id, engine, fabric);
        if let Some(claims) = engine.claims(id) {
            claims.revoke();
            // Objects that the engine knows to be delivered everywhere need not be sent again.
            self.look_after_objects(engine, object_cache);
        }
        let objects = self.slot.outbound.end_view();
        if let Some(room) = self.room.take() {
            room.end();
        }
        // A ring that no application has is this member's own: nothing comes from there any more.
        for mut ring in [self.ring.take(), self.slot.close_ring()].into_iter().flatten() {
            ring.retire();
        }
        if let Some(resend) = engine.resend(id) {
            // The messages in this ring were sent before those that older rings still contain.
            self.relays.push_front(RingRelay::new(resend, fabric, objects));
        }
        self.home = None;
    }

    /// Adds the counters of an epoch that has ended to the totals.
    fn count_epoch(&mut self, id: SubgroupId, engine: &Engine) {
        let mut stats = engine.subgroup_stats(id).unwrap_or_default();
        if let Some(handoff) = engine.handoff(id) {
            (stats.delivered, stats.delivered_bytes, stats.delivery_batches) = (0, 0, 0);
            self.untaken.push(Arc::clone(handoff));
        }
        self.ended += stats;
        for mut handoff in std::mem::take(&mut self.untaken) {
            // No other owner is left: the receiver has taken the last message.
            match Arc::get_mut(&mut handoff) {
                Some(handoff) => self.ended += taken(handoff),
                None => self.untaken.push(handoff),
            }
        }
    }

    /// Returns the counters of all epochs so far. `epoch` has those of the current one.
    pub(crate) fn totals(&self, epoch: SubgroupStats) -> SubgroupStats {
        let mut sum = self.ended;
        sum += epoch;
        self.untaken.iter().for_each(|handoff| sum += taken(handoff));
        sum
    }

    /// Sends on the rest of earlier views, and then lets the application into this view's ring.
    /// Returns whether anything happened.
    pub(crate) fn step(&mut self) -> bool {
        if self.relays.is_empty() {
            return false;
        }
        let before = self.relays.len();
        self.settle();
        before != self.relays.len()
    }

    fn settle(&mut self) {
        while let Some(relay) = self.relays.front_mut() {
            let is_done = match &mut self.ring {
                Some(ring) => relay.step(ring, &self.slot, &mut self.lost),
                None if self.unavailable => return,
                // No ring exists any more in which to send it.
                None => relay.give_up(&self.slot, &mut self.lost),
            };
            if !is_done {
                return;
            }
            self.relays.pop_front();
            if self.relays.is_empty() {
                self.slot.outbound.forget_ended();
            }
        }
        match self.handle {
            Handle::Free => {}
            Handle::Taken if !self.slot.is_closed() => {
                if let Some(ring) = self.ring.take() {
                    self.slot.offer(ring);
                }
            }
            // Dropped: this member has finished sending.
            Handle::Taken | Handle::None => self.ring = None,
        }
    }

    /// True if rings of earlier views still have to be sent on in this one's.
    pub(crate) fn is_relaying(&self) -> bool {
        !self.relays.is_empty()
    }

    /// True if messages of earlier views wait for room. Messages that an application still commits
    /// there do not count.
    pub(crate) fn has_backlog(&self) -> bool {
        self.relays.len() > 1 || self.relays.front().is_some_and(RingRelay::waits)
    }

    /// True if the application waits for this subgroup to have enough members again: it has
    /// something to send there, or may have.
    pub(crate) fn is_waiting(&self) -> bool {
        let may_send = self.handle == Handle::Free || (self.handle == Handle::Taken && !self.slot.is_closed());
        self.unavailable && (may_send || self.is_relaying())
    }

    /// Ends the wait for enough members, because this member is about to leave.
    pub(crate) fn give_up_waiting(&mut self) {
        if std::mem::take(&mut self.unavailable) {
            self.settle();
        }
    }

    pub(crate) fn relays(&mut self) -> impl Iterator<Item = &mut RingRelay> {
        self.relays.iter_mut()
    }

    /// Drops the ring that waits in the publisher slot, if the last handle was dropped meanwhile.
    pub(crate) fn drop_unwanted(&mut self) {
        if self.handle == Handle::Taken && self.slot.is_closed() {
            drop(self.slot.close_ring());
        }
    }

    /// The view with which its epoch began, and its number there, if this member is in it.
    pub(crate) fn home(&self) -> Option<(ViewId, SubgroupId)> {
        self.home
    }

    pub(crate) fn read_barrier(&self) -> &ReadBarrier {
        &self.read_barrier
    }

    /// Opens the read barrier in the view of `newest`. `engine` and `fabric` are those of its
    /// [home](Self::home). It stays closed for messages that a receiver takes: it is not known here
    /// which of earlier epochs the application has taken.
    pub(crate) fn open_read_barrier(&self, engine: &Engine, fabric: &Mesh, newest: &Mesh, members: usize) {
        let begun = self.home.filter(|_| self.inlet.is_none());
        let words = begun.and_then(|(_, id)| engine.read_barrier(id, members));
        let (mark, home) = (ForkMark::new(), fabric.own_rows());
        let rows = |words| BarrierRows { words, rows: newest.reader(), home, mark };
        self.read_barrier.set(words.map(rows));
    }

    /// Closes the read barrier.
    pub(crate) fn close_read_barrier(&self) {
        self.read_barrier.set(None);
    }

    /// Returns the member's own objects.
    pub(crate) fn outbound(&self) -> &Arc<Outbound> {
        &self.slot.outbound
    }

    /// True if no thread reads messages of the subgroup: its receiver is gone, and it has no log.
    pub(crate) fn delivers_to_none(&self) -> bool {
        // Acquire: the thread that has dropped the receiver reads nothing any more.
        self.log.is_none() && self.inlet.as_ref().is_some_and(|inlet| inlet.gone.load(Ordering::Acquire))
    }

    /// Forgets its own objects that are delivered everywhere.
    pub(crate) fn look_after_objects(&mut self, engine: &Engine, object_cache: &LargeObjectCache) {
        let Some((_, id)) = self.home else { return };
        let position = engine.delivered_everywhere(id).unwrap_or(0);
        if position != self.settled {
            self.settled = position;
            object_cache.keep(id, engine.me(), || self.slot.outbound.settle(position));
        }
    }

    /// Reports to the engine what its log has on disk. `engine` is that of its [home](Self::home).
    ///
    /// # Errors
    /// [`Ended::Log`].
    pub(crate) fn look_after_log(&mut self, engine: &mut Engine) -> Result<(), Ended> {
        let Some(log) = &mut self.log else { return Ok(()) };
        if log.is_cutting() && log.look_after_cut(&self.name)? {
            self.home.iter().for_each(|(_, id)| engine.set_catching_up(*id, false));
        }
        let news = log.look(&self.name)?;
        if let (Some((_, id)), Some(position)) = (self.home, news) {
            engine.note_persisted(id, position);
        }
        Ok(())
    }

    /// The messages that its log does not have on disk. `engine` is that of its [home](Self::home).
    pub(crate) fn unsynced(&self, engine: &Engine) -> u64 {
        let Some(log) = &self.log else { return 0 };
        let of_epoch = self.home.and_then(|(epoch, id)| Some((epoch, engine.subgroup_stats(id)?.delivered)));
        let (epoch, delivered) = of_epoch.unwrap_or((ViewId(0), 0));
        log.unsynced(epoch, delivered)
    }

    /// Reports deliveries to the holders of receipts. Returns whether some of them still wait.
    pub(crate) fn look_after_receipts(&self, engine: &mut Engine, fabric: &Mesh) -> bool {
        self.home.is_some_and(|(_, id)| self.slot.tracker.look(id, engine, fabric))
    }

    pub(crate) fn make_room(&self) {
        if let Some(room) = &self.room {
            room.ring_if_waiting();
        }
    }

    pub(crate) fn wake_receiver(&self) {
        if let Some(inlet) = &self.inlet {
            inlet.wake();
        }
    }

    /// Returns the number of views that its receiver is behind.
    pub(crate) fn behind(&self) -> usize {
        self.inlet.as_ref().map_or(0, |inlet| inlet.behind())
    }

    /// Handles the end of the group for this member. `engine` and `fabric` are those of its
    /// [home](Self::home), or any if it has none.
    pub(crate) fn end(&mut self, engine: &mut Engine, fabric: &Mesh) {
        // Before this member counts no longer as one: then the others may go on without its acceptance.
        self.close_read_barrier();
        self.give_up_waiting();
        let id = self.home.map(|(_, id)| id);
        if let (Some(id), State::Finished) = (id, engine.state()) {
            self.slot.tracker.end_view(id, engine, fabric);
        }
        self.look_after_receipts(engine, fabric);
        let ring = id.and_then(|id| Some((id, engine.claims(id)?)));
        ring.iter().for_each(|(_, claims)| claims.revoke());
        self.slot.tracker.close(|claims, position| {
            let is_of_this_view = ring.as_ref().filter(|(_, ring)| Arc::ptr_eq(ring, claims));
            is_of_this_view.is_some_and(|(id, _)| engine.is_announced(*id, position))
        });
        if let Some(room) = &self.room {
            room.end();
        }
        self.slot.end();
        self.slot.outbound.end();
        if let Some(log) = &self.log {
            log.frontier.end();
        }
        self.wake_receiver();
    }
}

fn taken(handoff: &Handoff) -> SubgroupStats {
    let (delivered, delivered_bytes, delivery_batches) = handoff.counts();
    SubgroupStats { delivered, delivered_bytes, delivery_batches, ..SubgroupStats::default() }
}

fn stretch(id: SubgroupId, engine: &mut Engine, fabric: &Mesh, view: &Arc<View>) -> Stretch {
    let (cursor, handoff) = engine.hand_off(id).expect("this member is in the subgroup");
    let (rows, engine) = (fabric.reader(), fabric.doorbell());
    Stretch { view: Arc::clone(view), subgroup: id, cursor, handoff, rows, engine, closed: false }
}
