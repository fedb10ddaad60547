//! A writer without its Rust type: where it sends, and what has been delivered.
use crate::sync::{Deadline, lock};
use spindle::{Frame, SendError, SharedPublisher};
use spindle_dds_core::cache::{ChangeKind, SetId};
use spindle_dds_core::condition::StatusCondition;
use spindle_dds_core::policy::{PolicyId, ReliabilityQosPolicyKind};
use spindle_dds_core::qos::DataWriterQos;
use spindle_dds_core::status::WriterStatuses;
use spindle_dds_core::stream::{ChangeMessage, StreamMessage};
use spindle_dds_core::{DdsDuration, DdsError, DdsTime, Guid, InstanceHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A writer. The polling thread gives it a publisher once it may send, and counts its deliveries.
pub(crate) struct WriterCore {
    pub(crate) guid: Guid,
    is_reliable: bool,
    max_blocking: DdsDuration,
    /// The place in which the polling thread puts the publisher.
    slot: Mutex<Slot>,
    /// Signalled when the slot changes, and when samples are delivered that are awaited.
    changed: Condvar,
    /// Rises with each change of the slot.
    generation: AtomicU64,
    sending: Mutex<Sending>,
    /// The messages that a thread sends now: 0 or 1.
    underway: AtomicU64,
    /// The messages that were sent, and those among them that were delivered.
    sent: AtomicU64,
    delivered: AtomicU64,
    /// Samples of a BEST_EFFORT writer that found no room.
    dropped: AtomicU64,
    /// The messages that were sent and are never delivered.
    lost: AtomicU64,
    /// The number of the coherent set that is given up by the thread that sends now.
    abandoned: AtomicU64,
    /// Whether all later writes are refused. SeqCst: a thread that sends says so before it looks, so the polling thread
    /// sees that, or the thread sees this.
    is_closed: AtomicBool,
    /// Whether a thread waits for deliveries.
    awaited: AtomicBool,
    state: Mutex<State>,
    pub(crate) status_condition: StatusCondition,
}

#[derive(Default)]
struct Slot {
    /// The publisher of the order domain, and the number of the writer; `None` while it may not send.
    active: Option<(SharedPublisher, u32)>,
    /// Why the writer never sends again.
    ended: Option<DdsError>,
}

/// The part of the thread that sends.
#[derive(Default)]
struct Sending {
    generation: u64,
    active: Option<(SharedPublisher, u32)>,
    /// The instances that are registered, with their serialised keys.
    instances: BTreeMap<InstanceHandle, Arc<[u8]>>,
    /// The coherent set that is open.
    set: Option<OpenSet>,
    /// Whether the last sample of a BEST_EFFORT writer found no room.
    is_crowded: bool,
}

/// A coherent set of a writer.
#[derive(Clone, Copy)]
struct OpenSet {
    number: u64,
    /// The changes in it that were sent.
    count: u32,
    /// Whether a change in it found no room, so that the set can't be whole.
    is_broken: bool,
}

#[derive(Default)]
struct State {
    statuses: WriterStatuses,
    /// The readers that match.
    matched: BTreeSet<Guid>,
}

impl fmt::Debug for WriterCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriterCore").field("guid", &self.guid).finish_non_exhaustive()
    }
}

/// How long a writer waits for its place in a new view before it looks again.
const LOOK: Duration = Duration::from_millis(10);
/// How long a BEST_EFFORT writer waits for its ring.
const RING_WAIT: DdsDuration = DdsDuration::from_millis(1);
/// How long a writer waits for room at a time.
const PART: Duration = Duration::from_millis(100);

impl WriterCore {
    pub(crate) fn new(guid: Guid, qos: &DataWriterQos) -> WriterCore {
        let (slot, changed, generation, sending, sent, delivered) = Default::default();
        let (underway, abandoned) = Default::default();
        let (dropped, lost, is_closed, awaited, state, status_condition) = Default::default();
        let is_reliable = qos.reliability.kind == ReliabilityQosPolicyKind::Reliable;
        let max_blocking = qos.reliability.max_blocking_time;
        WriterCore {
            guid,
            is_reliable,
            max_blocking,
            slot,
            changed,
            generation,
            sending,
            underway,
            abandoned,
            sent,
            delivered,
            dropped,
            lost,
            is_closed,
            awaited,
            state,
            status_condition,
        }
    }

    /// Lets the writer send, or forbids it. The polling thread calls it, and waits for no thread that sends.
    pub(crate) fn set_active(&self, active: Option<(SharedPublisher, u32)>) {
        let mut slot = lock(&self.slot);
        slot.active = active;
        // Release: the thread that sees the number sees the slot.
        self.generation.fetch_add(1, Ordering::Release);
        drop(slot);
        self.changed.notify_all();
    }

    /// Returns whether the writer may send.
    pub(crate) fn is_active(&self) -> bool {
        lock(&self.slot).active.is_some()
    }

    /// Tells all that wait that the writer never sends again.
    pub(crate) fn end(&self, why: DdsError) {
        let mut slot = lock(&self.slot);
        slot.ended.get_or_insert(why);
        slot.active = None;
        self.generation.fetch_add(1, Ordering::Release);
        drop(slot);
        self.changed.notify_all();
    }

    /// Sends a change of an instance, and returns whether it was sent: a BEST_EFFORT writer drops what finds no
    /// room. `key` has the serialised key of an instance that is new or gone.
    pub(crate) fn send(
        &self,
        kind: ChangeKind,
        instance: InstanceHandle,
        source_timestamp: DdsTime,
        payload: &[u8],
        key: impl FnOnce() -> Result<Arc<[u8]>, DdsError>,
    ) -> Result<bool, DdsError> {
        let mut sending = lock(&self.sending);
        let outcome = self.send_change(&mut sending, kind, instance, source_timestamp, payload, key);
        self.settle_abandoned(&mut sending);
        outcome
    }

    fn send_change(
        &self,
        sending: &mut Sending,
        kind: ChangeKind,
        instance: InstanceHandle,
        source_timestamp: DdsTime,
        payload: &[u8],
        key: impl FnOnce() -> Result<Arc<[u8]>, DdsError>,
    ) -> Result<bool, DdsError> {
        self.settle_abandoned(sending);
        let set = sending.set.map(|set| set.number);
        // A BEST_EFFORT writer waits a moment for its ring in a new view, and not for a ring that stays full.
        let patience = if self.is_reliable { self.max_blocking } else { RING_WAIT };
        let patience = if sending.is_crowded { None } else { Some(patience) };
        let is_sent = self.send_message(sending, patience, |number| {
            StreamMessage::Change(ChangeMessage { writer: number, kind, instance, source_timestamp, set, payload })
        });
        let is_sent = match is_sent {
            Err(DdsError::Timeout { .. }) if !self.is_reliable => false,
            outcome => outcome?,
        };
        sending.is_crowded = !is_sent;
        if let Some(set) = &mut sending.set {
            set.count += u32::from(is_sent);
            set.is_broken |= !is_sent;
        }
        if !is_sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        match kind {
            ChangeKind::Unregister | ChangeKind::DisposeUnregister => drop(sending.instances.remove(&instance)),
            _ if instance != InstanceHandle::KEYLESS && !sending.instances.contains_key(&instance) => {
                sending.instances.insert(instance, key()?);
            }
            _ => {}
        }
        Ok(true)
    }

    /// Sends a message, made with the number of the writer, and waits for room that long; without a bound in
    /// `patience` it does not wait. Returns whether it was sent.
    fn send_message<'m>(
        &self,
        sending: &mut Sending,
        patience: Option<DdsDuration>,
        message: impl Fn(u32) -> StreamMessage<'m>,
    ) -> Result<bool, DdsError> {
        self.underway.fetch_add(1, Ordering::SeqCst);
        let outcome = self.place_message(sending, patience, &message);
        // The end of a set that is given up names no writer, so its delivery is not counted.
        if matches!(outcome, Ok(true)) && !matches!(message(0), StreamMessage::SetAbandoned(_)) {
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        self.underway.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    fn place_message<'m>(
        &self,
        sending: &mut Sending,
        patience: Option<DdsDuration>,
        message: &impl Fn(u32) -> StreamMessage<'m>,
    ) -> Result<bool, DdsError> {
        if self.is_closed() {
            return Err(DdsError::AlreadyDeleted("writer"));
        }
        // Most messages find room at once, and read no clock.
        if let Some((publisher, number)) = &mut sending.active
            && sending.generation == self.generation.load(Ordering::Acquire)
            && let StreamMessage::Change(change) = message(*number)
            && try_publish(publisher, &change)
        {
            return Ok(true);
        }
        let timeout = patience.unwrap_or(DdsDuration::ZERO);
        let deadline = Deadline::after(timeout);
        let late = |what| if patience.is_none() { Ok(false) } else { Err(DdsError::Timeout { what, after: timeout }) };
        loop {
            let Some((publisher, number)) = self.active(sending, deadline)? else {
                return late("a write before the readers have it");
            };
            // The wait for room is in parts, so that the end of the writer is noticed.
            let left = deadline.left().unwrap_or(PART).min(PART);
            match publish(publisher, &message(*number), left) {
                Ok(()) => return Ok(true),
                // Another view begins: it says whether the writer may send there.
                Err(SendError::NoSender) => {
                    sending.active = None;
                    if !deadline.pause(&self.changed, lock(&self.slot), LOOK) {
                        return late("a write during a change of the view");
                    }
                }
                Err(SendError::Full { .. } | SendError::TooMany { .. }) => {
                    if deadline.left().is_some_and(|left| left.is_zero()) {
                        return late("a write");
                    }
                }
                Err(error) => return Err(DdsError::Error(format!("the sample was not sent: {error}"))),
            }
        }
    }

    /// Begins a coherent set.
    pub(crate) fn begin_set(&self, number: u64) {
        lock(&self.sending).set = Some(OpenSet { number, count: 0, is_broken: false });
    }

    /// Ends the coherent set, if one is open: the readers see all of it from here on. Returns false if it was given up:
    /// a change in it found no room, or the writer was deleted before the end. After an error the set is still open.
    pub(crate) fn end_set(&self) -> Result<bool, DdsError> {
        let mut sending = lock(&self.sending);
        let Some(set) = sending.set else { return Ok(true) };
        match self.close_set(&mut sending, set, Some(self.max_blocking)) {
            Ok(_) => Ok(!set.is_broken),
            Err(DdsError::AlreadyDeleted(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives up a coherent set, if it is open. It waits for no thread that sends: that thread gives the set up then.
    pub(crate) fn abandon_set(&self, number: u64) {
        self.abandoned.store(number, Ordering::SeqCst);
        if let Ok(mut sending) = self.sending.try_lock() {
            self.settle_abandoned(&mut sending);
        }
    }

    fn settle_abandoned(&self, sending: &mut Sending) {
        let number = self.abandoned.load(Ordering::SeqCst);
        if number == 0 {
            return;
        }
        if let Some(set) = sending.set.filter(|set| set.number == number) {
            // If this finds no room, the readers give the set up when the writer goes, or begins another one.
            let _ = self.close_set(sending, OpenSet { is_broken: true, ..set }, None);
            sending.set = None;
        }
        let _ = self.abandoned.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn close_set(&self, sending: &mut Sending, set: OpenSet, patience: Option<DdsDuration>) -> Result<bool, DdsError> {
        let id = SetId { source: self.guid, number: set.number };
        let is_sent = match set {
            OpenSet { count: 0, .. } => true,
            OpenSet { is_broken: true, .. } => {
                self.send_message(sending, patience, |_| StreamMessage::SetAbandoned(id))?
            }
            OpenSet { count, .. } => self.send_message(sending, patience, |writer| StreamMessage::SetEnd {
                set: id,
                changes: vec![(writer, count)],
            })?,
        };
        sending.set = None;
        Ok(is_sent)
    }

    /// Returns the publisher and the number of the writer, once it may send; `None` if the wait is over.
    fn active<'s>(
        &self,
        sending: &'s mut Sending,
        deadline: Deadline,
    ) -> Result<Option<&'s mut (SharedPublisher, u32)>, DdsError> {
        // Acquire: pairs with the change of the slot.
        if sending.active.is_none() || sending.generation != self.generation.load(Ordering::Acquire) {
            let mut slot = lock(&self.slot);
            loop {
                if let Some(ended) = &slot.ended {
                    return Err(ended.clone());
                }
                if self.is_closed() {
                    return Err(DdsError::AlreadyDeleted("writer"));
                }
                if slot.active.is_some() {
                    sending.generation = self.generation.load(Ordering::Acquire);
                    sending.active = slot.active.clone();
                    break;
                }
                match deadline.wait(&self.changed, slot) {
                    Some(guard) => slot = guard,
                    None => return Ok(None),
                }
            }
        } else if self.is_closed() {
            return Err(DdsError::AlreadyDeleted("writer"));
        }
        Ok(sending.active.as_mut())
    }

    /// Returns whether an instance is registered.
    pub(crate) fn is_registered(&self, instance: InstanceHandle) -> bool {
        lock(&self.sending).instances.contains_key(&instance)
    }

    /// Returns the serialised key of an instance that is registered.
    pub(crate) fn key_of(&self, instance: InstanceHandle) -> Option<Arc<[u8]>> {
        lock(&self.sending).instances.get(&instance).cloned()
    }

    /// Counts a message that was delivered here, and so was received everywhere.
    pub(crate) fn note_delivered(&self) {
        // SeqCst, as in `wait_delivered`: one of the two sees the other.
        self.delivered.fetch_add(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) {
            drop(lock(&self.slot));
            self.changed.notify_all();
        }
    }

    /// Returns whether all that was sent has been delivered, or is lost, and no thread sends.
    pub(crate) fn is_delivered(&self) -> bool {
        self.underway.load(Ordering::SeqCst) == 0 && self.undelivered() == 0
    }

    fn undelivered(&self) -> u64 {
        let settled = self.delivered.load(Ordering::SeqCst) + self.lost.load(Ordering::SeqCst);
        self.sent.load(Ordering::SeqCst).saturating_sub(settled)
    }

    /// Counts the messages on their way as lost, and returns their number.
    pub(crate) fn give_up(&self) -> u64 {
        let lost = self.undelivered();
        if lost > 0 {
            self.lost.fetch_add(lost, Ordering::SeqCst);
            drop(lock(&self.slot));
            self.changed.notify_all();
        }
        lost
    }

    /// Waits until all that was sent before has been delivered.
    pub(crate) fn wait_delivered(&self, timeout: DdsDuration) -> Result<(), DdsError> {
        let (deadline, target) = (Deadline::after(timeout), self.sent.load(Ordering::SeqCst));
        self.awaited.store(true, Ordering::SeqCst);
        let mut slot = lock(&self.slot);
        loop {
            let lost = self.lost.load(Ordering::SeqCst);
            if self.delivered.load(Ordering::SeqCst) + lost >= target {
                break;
            }
            if let Some(ended) = &slot.ended {
                return Err(ended.clone());
            }
            let late = DdsError::Timeout { what: "the acknowledgment of samples", after: timeout };
            slot = deadline.wait(&self.changed, slot).ok_or(late)?;
        }
        match self.lost.load(Ordering::SeqCst) {
            0 => Ok(()),
            lost => Err(DdsError::Error(format!("{lost} samples of this writer were lost in a change of the view"))),
        }
    }

    /// Refuses all later writes, also those that wait. It waits for no thread that sends.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        drop(lock(&self.slot));
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn count_matched(&self, reader: Guid, matches: bool) {
        let mut state = lock(&self.state);
        if matches {
            state.matched.insert(reader)
        } else {
            state.matched.remove(&reader)
        };
        state.statuses.count_matched(reader.into(), matches);
        self.status_condition.store_changes(state.statuses.changes());
        drop(state);
        self.status_condition.signal();
        drop(lock(&self.slot));
        self.changed.notify_all();
    }

    /// Waits until at least `count` readers match.
    pub(crate) fn wait_matched(&self, count: usize, timeout: DdsDuration) -> Result<(), DdsError> {
        let deadline = Deadline::after(timeout);
        let mut slot = lock(&self.slot);
        while lock(&self.state).matched.len() < count {
            if let Some(ended) = &slot.ended {
                return Err(ended.clone());
            }
            let late = DdsError::Timeout { what: "a wait for readers", after: timeout };
            slot = deadline.wait(&self.changed, slot).ok_or(late)?;
        }
        Ok(())
    }

    /// Counts a reader that requests more than this writer offers.
    pub(crate) fn count_incompatible(&self, policies: &[PolicyId]) {
        self.with_statuses(|statuses| statuses.count_incompatible(policies));
    }

    /// Reads or changes the statuses.
    pub(crate) fn with_statuses<R>(&self, with: impl FnOnce(&mut WriterStatuses) -> R) -> R {
        let mut state = lock(&self.state);
        let found = with(&mut state.statuses);
        self.status_condition.store_changes(state.statuses.changes());
        drop(state);
        self.status_condition.signal();
        found
    }

    /// Returns the readers that match: `get_matched_subscriptions`.
    pub(crate) fn matched(&self) -> Vec<Guid> {
        lock(&self.state).matched.iter().copied().collect()
    }

    /// Returns the samples of a BEST_EFFORT writer that found no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Sends a change in a frame of the ring if there is room now. Other cases are for [`publish`].
fn try_publish(publisher: &mut SharedPublisher, change: &ChangeMessage<'_>) -> bool {
    let bytes = change.header_bytes() + change.payload.len();
    if bytes as u64 > publisher.message_bytes_max() {
        return false;
    }
    let Ok(Some(frame)) = publisher.try_claim(bytes as u64) else { return false };
    fill(frame, change);
    true
}

fn fill(mut frame: Frame<'_>, change: &ChangeMessage<'_>) {
    let head = change.header_bytes();
    change.write_header(&mut frame[..head]);
    frame[head..].copy_from_slice(change.payload);
    frame.commit();
}

/// Sends a message in a frame of the ring, or as an object if it is too long for one.
fn publish(publisher: &mut SharedPublisher, message: &StreamMessage<'_>, timeout: Duration) -> Result<(), SendError> {
    let StreamMessage::Change(change) = message else { return publisher.send(&message.encode(), timeout) };
    let bytes = change.header_bytes() + change.payload.len();
    if bytes as u64 > publisher.message_bytes_max() {
        return publisher.send(&message.encode(), timeout);
    }
    fill(publisher.claim(bytes as u64, timeout)?, change);
    Ok(())
}
