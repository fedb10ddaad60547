//! Outcomes of messages that were sent with a [`Receipt`].
//!
//! A [`Tracker`] belongs to one subgroup of one member and outlives views. It knows, by ring and position, which frames
//! have a receipt. The polling thread asks the engine about them after each poll. When a view ends, an entry is
//! resolved by the trim, or moves with its message into the next view's ring. Messages without a receipt cost nothing here.
use super::receipt::{NotDelivered, Outcome, Receipt, Slot};
use crate::logs::DurableFrontier;
use crate::shared::Notices;
use spindle_core::{Claims, Engine, Order, Resent, Rows, SubgroupId, ViewId};
use spindle_fabric::Frame;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{debug, info};

/// The tracing target of receipts.
const TARGET: &str = "spindle::view";

/// A message with a receipt.
#[derive(Debug)]
struct Entry {
    slot: Arc<Slot>,
    /// Whether a member may have delivered it in an earlier view: it was announced there, in a Fifo
    /// subgroup.
    seen: bool,
}

impl Entry {
    /// Resolves the receipt of a message that no ring will contain again.
    fn give_up(self, why: NotDelivered) {
        self.slot.resolve(if self.seen { Outcome::Unknown } else { Outcome::NotDelivered(why) });
    }
}

/// The tracked frames of one ring, by position.
#[derive(Debug)]
struct Tracked {
    claims: Arc<Claims>,
    entries: BTreeMap<u64, Entry>,
}

impl Tracked {
    fn set_watch(&self) {
        self.claims.set_watch(self.entries.first_key_value().map_or(u64::MAX, |(position, _)| *position));
    }
}

/// The tracked messages of one member in one subgroup.
#[derive(Debug)]
pub(crate) struct Tracker {
    rings: Mutex<Rings>,
    /// The number of entries in `rings`, so that the polling thread need not lock.
    count: AtomicUsize,
    notices: Arc<Notices>,
    /// The durable frontier, if the subgroup is logged.
    frontier: Option<Arc<DurableFrontier>>,
}

#[derive(Debug, Default)]
struct Rings {
    rings: Vec<Tracked>,
    closed: bool,
}

impl Tracker {
    pub(crate) fn new(notices: Arc<Notices>, frontier: Option<Arc<DurableFrontier>>) -> Tracker {
        Tracker { rings: Mutex::default(), count: AtomicUsize::new(0), notices, frontier }
    }

    fn lock(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        // Relaxed: a thread that registers a message sends a notice, and a thread that sends it
        // again sees the count through its commit.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Tracks `frame`, which is about to be committed. Call [`announce`](Self::announce) after the
    /// commit.
    pub(crate) fn register(&self, frame: &Frame<'_>) -> Receipt {
        let slot = Arc::new(Slot::default());
        let mut rings = self.lock();
        if rings.closed {
            drop(rings);
            // No engine will announce a frame that is committed now.
            slot.resolve(Outcome::NotDelivered(NotDelivered::Ended));
        } else {
            self.insert(&mut rings, frame.claims(), frame.position(), Entry { slot: Arc::clone(&slot), seen: false });
        }
        Receipt::new(slot, self.frontier.clone())
    }

    fn insert(&self, rings: &mut Rings, claims: &Arc<Claims>, position: u64, entry: Entry) {
        let found = rings.rings.iter().position(|ring| Arc::ptr_eq(&ring.claims, claims));
        let index = found.unwrap_or_else(|| {
            rings.rings.push(Tracked { claims: Arc::clone(claims), entries: BTreeMap::new() });
            rings.rings.len() - 1
        });
        let ring = &mut rings.rings[index];
        ring.entries.insert(position, entry);
        ring.set_watch();
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, rings: &mut Rings, claims: &Arc<Claims>, position: u64) -> Option<Entry> {
        let index = rings.rings.iter().position(|ring| Arc::ptr_eq(&ring.claims, claims))?;
        let ring = &mut rings.rings[index];
        let entry = ring.entries.remove(&position)?;
        ring.set_watch();
        if ring.entries.is_empty() {
            rings.rings.swap_remove(index);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(entry)
    }

    /// Calls [`announce`](Self::announce) if any message is tracked.
    pub(crate) fn announce_if_tracked(&self) {
        if !self.is_empty() {
            self.announce();
        }
    }

    /// Makes the polling thread check the registered messages.
    pub(crate) fn announce(&self) {
        self.notices.ring();
    }

    /// Resolves the messages of this view's ring that are delivered. Returns whether any is still
    /// tracked.
    pub(crate) fn look<R: Rows>(&self, id: SubgroupId, engine: &mut Engine, rows: &R) -> bool {
        if self.is_empty() {
            return false;
        }
        if let Some(claims) = engine.claims(id) {
            let epoch = engine.view().id;
            if self.take(&claims, epoch, |position| engine.outcome(id, position, rows)) {
                engine.watch_moved(id);
            }
        }
        !self.is_empty()
    }

    /// Resolves the first messages of a ring that have a sequence number. Returns whether there
    /// were any.
    fn take(&self, claims: &Arc<Claims>, epoch: ViewId, place: impl Fn(u64) -> Option<u64>) -> bool {
        let mut resolved = vec![];
        let mut rings = self.lock();
        let first = |rings: &Rings| {
            let ring = rings.rings.iter().find(|ring| Arc::ptr_eq(&ring.claims, claims))?;
            let position = *ring.entries.first_key_value()?.0;
            Some((position, place(position)?))
        };
        while let Some((position, sequence)) = first(&rings) {
            resolved.extend(self.remove(&mut rings, claims, position).map(|entry| (entry, sequence)));
        }
        drop(rings);
        let is_any = !resolved.is_empty();
        for (entry, sequence) in resolved {
            entry.slot.resolve(Outcome::Delivered { epoch, sequence });
        }
        is_any
    }

    /// Handles the end of `engine`'s view: resolves messages below the trim; the others are sent
    /// again. Also handles the finish of the group.
    pub(crate) fn end_view<R: Rows>(&self, id: SubgroupId, engine: &Engine, rows: &R) {
        let Some(claims) = engine.claims(id).filter(|_| !self.is_empty()) else { return };
        self.take(&claims, engine.view().id, |position| engine.final_outcome(id, position, rows));
        if engine.view().subgroups[id.index()].order == Order::Fifo {
            let mut rings = self.lock();
            let ring = rings.rings.iter_mut().find(|ring| Arc::ptr_eq(&ring.claims, &claims));
            for (position, entry) in ring.into_iter().flat_map(|ring| &mut ring.entries) {
                entry.seen |= engine.is_announced(id, *position);
            }
        }
    }

    /// Moves the receipt of `resent`, of a ring of an ended view, to `frame`, which is about to be
    /// committed.
    pub(crate) fn pass(&self, old: &Arc<Claims>, resent: &Resent, frame: &Frame<'_>) {
        if self.is_empty() {
            return;
        }
        let mut rings = self.lock();
        if let Some(entry) = self.remove(&mut rings, old, resent.position) {
            self.insert(&mut rings, frame.claims(), frame.position(), entry);
        }
    }

    /// Resolves the frame at `position` of a ring, which will not be sent again.
    pub(crate) fn lose(&self, claims: &Arc<Claims>, position: u64) {
        if self.is_empty() {
            return;
        }
        let entry = self.remove(&mut self.lock(), claims, position);
        if let Some(entry) = entry {
            debug!(target: TARGET, position, reason = %NotDelivered::NoSender, "message is not sent again");
            entry.give_up(NotDelivered::NoSender);
        }
    }

    /// Handles the end of the group for this member: nothing is announced or sent again.
    /// `announced` returns whether others may have received a frame, by its ring and position.
    pub(crate) fn close(&self, announced: impl Fn(&Arc<Claims>, u64) -> bool) {
        let rings = {
            let mut rings = self.lock();
            rings.closed = true;
            self.count.store(0, Ordering::Relaxed);
            std::mem::take(&mut rings.rings)
        };
        let (mut unknown, mut not_delivered) = (0_u64, 0_u64);
        for Tracked { claims, entries } in rings {
            for (position, mut entry) in entries {
                entry.seen |= announced(&claims, position);
                *(if entry.seen { &mut unknown } else { &mut not_delivered }) += 1;
                entry.give_up(NotDelivered::Ended);
            }
        }
        if unknown + not_delivered > 0 {
            info!(target: TARGET, unknown, not_delivered, "receipts end with the group");
        }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // The member was dropped without an end.
        self.close(|_, _| true);
    }
}
