//! How an application continues to send while views change: the handle stays, and the ring behind
//! it is replaced.
//!
//! When a view ends, its rings stay full for ever. A claimer that finds this *retires* its ring and
//! waits for the next view's ring. That ring comes to its [`PublisherSlot`], the publisher slot,
//! once all undelivered messages of the old ring have been sent again ([`RingRelay`]). So the
//! messages of one sender keep their order, and none is lost or doubled.
//!
//! A claimer may not notice the end: it is silent, sees room in the old ring, or still has a frame.
//! No thread waits for it. A frame that it commits in the old ring is sent again when it comes.
use super::tracking::Tracker;
use crate::bulk::Object;
use crate::error::{Ended, SendError};
use crate::large::{Outbound, Permit};
use crate::mesh::Mesh;
use crate::shared::{Shared, note_waker};
use spindle_core::control::ObjectName;
use spindle_core::wire::ring::Kind;
use spindle_core::{Claims, Rank, Resend, Resent, Rows};
use spindle_fabric::{
    Doorbell, EventCount, Fabric, Frame, Lingering, OwnRows, PublishError, Publisher, SharedPublisher,
};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The longest single sleep of a claimer that waits for a ring.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The publisher slot: it passes the next view's ring from the polling thread to the handles of one
/// subgroup.
#[derive(Debug)]
pub(crate) struct PublisherSlot {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) tracker: Tracker,
    ring: Mutex<Waiting>,
    event_count: EventCount,
    /// Whether all handles are dropped: this member will send no more.
    closed: AtomicBool,
    /// Wakes the polling thread, whichever view it is in.
    engine: Mutex<Option<Doorbell>>,
}

#[derive(Debug, Default)]
struct Waiting {
    ring: Ring,
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
enum Ring {
    /// The ring does not exist, or earlier messages have to be sent again first.
    #[default]
    NotYet,
    Ready(Publisher),
    Shared(SharedPublisher),
    /// This member is no longer a sender there.
    Never,
}

/// A reference that every handle of a slot has. The last one to be dropped closes the slot.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) Arc<PublisherSlot>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        // No handle will take a waiting ring, or the slot's own clone of a ring that many handles
        // took.
        drop(self.0.empty());
        self.0.ring_engine();
    }
}

impl PublisherSlot {
    pub(crate) fn new(shared: Arc<Shared>, outbound: Arc<Outbound>, tracker: Tracker) -> PublisherSlot {
        let (ring, engine) = Default::default();
        PublisherSlot {
            shared,
            outbound,
            tracker,
            ring,
            event_count: EventCount::new(),
            closed: AtomicBool::new(false),
            engine,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn set_engine(&self, engine: Doorbell) {
        *self.engine.lock().unwrap_or_else(PoisonError::into_inner) = Some(engine);
    }

    fn ring_engine(&self) {
        if let Some(engine) = &*self.engine.lock().unwrap_or_else(PoisonError::into_inner) {
            engine.ring();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, ring: Ring) {
        let wakers = {
            let mut waiting = self.lock();
            waiting.ring = ring;
            std::mem::take(&mut waiting.wakers)
        };
        if self.is_closed() {
            // The last handle was dropped before it could see this ring.
            drop(self.empty());
        }
        self.event_count.ring();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes out the ring in the slot, if any. The result has to be dropped without the lock.
    fn empty(&self) -> Ring {
        std::mem::take(&mut self.lock().ring)
    }

    /// Handles the end of the view: its ring is no longer the newest.
    pub(crate) fn close_ring(&self) -> Option<Publisher> {
        match std::mem::take(&mut self.lock().ring) {
            Ring::Ready(publisher) => Some(publisher),
            _ => None,
        }
    }

    pub(crate) fn offer(&self, publisher: Publisher) {
        self.put(Ring::Ready(publisher));
    }

    /// Sets that this member is a sender again: a ring is there, or will be.
    pub(crate) fn readmit(&self) {
        let mut waiting = self.lock();
        if matches!(waiting.ring, Ring::Never) {
            waiting.ring = Ring::NotYet;
        }
    }

    /// Sets that this member is no longer a sender.
    pub(crate) fn refuse(&self) {
        self.put(Ring::Never);
    }

    /// Handles the end of the group: wakes all waiting claimers.
    pub(crate) fn end(&self) {
        let wakers = std::mem::take(&mut self.lock().wakers);
        self.event_count.ring();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the ring in the slot for the only claimer, whose view has ended.
    fn take(&self) -> Option<Publisher> {
        let mut waiting = self.lock();
        match std::mem::take(&mut waiting.ring) {
            Ring::Ready(publisher) => Some(publisher),
            other => {
                waiting.ring = other;
                None
            }
        }
    }

    fn take_shared(&self) -> Option<SharedPublisher> {
        let mut waiting = self.lock();
        let shared = match std::mem::take(&mut waiting.ring) {
            Ring::Ready(publisher) => publisher.share(),
            Ring::Shared(shared) => shared,
            other => {
                waiting.ring = other;
                return None;
            }
        };
        waiting.ring = Ring::Shared(shared.clone());
        Some(shared)
    }

    /// Checks that the group has not ended for this member. A claimer may have room left in a ring
    /// that is no longer read, so it checks before each claim.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SendError> {
        match self.shared.end() {
            None => Ok(()),
            Some(_) => Err(self.ended()),
        }
    }

    /// Takes the claim at this position as a sample if one is wanted, and reports the end.
    ///
    /// # Errors
    /// [`SendError::Ended`].
    #[cold]
    #[inline(never)]
    pub(crate) fn attend(&self, claim: (&Arc<Claims>, u64)) -> Result<(), SendError> {
        self.shared.take_sample(claim);
        self.check()
    }

    #[cold]
    fn ended(&self) -> SendError {
        SendError::Ended(self.shared.broken().cloned().unwrap_or(Ended::Dropped))
    }

    /// Returns why no ring will ever come.
    pub(crate) fn refusal(&self) -> Option<SendError> {
        if let Err(ended) = self.check() {
            return Some(ended);
        }
        matches!(self.lock().ring, Ring::Never).then_some(SendError::NoSender)
    }

    /// Returns a permit for an object of `len` bytes, for a ring with messages of at most the given
    /// size. Waits up to `at_most` for it.
    pub(crate) fn permit(
        &self,
        len: u64,
        message_bytes_max: u64,
        at_most: Duration,
        in_upcall: bool,
    ) -> Result<Permit, SendError> {
        let max = self.outbound.bytes_max();
        if len > max {
            return Err(SendError::TooLong { len, max: max.max(message_bytes_max) });
        }
        self.outbound.permit(at_most, in_upcall, || self.refusal())
    }

    /// As [`permit`](Self::permit), for a task.
    pub(crate) fn permit_async(self: &Arc<Self>, len: u64, message_bytes_max: u64) -> Permitting {
        Permitting { slot: Arc::clone(self), len, message_bytes_max }
    }

    /// Commits `frame` as the name of `object`.
    pub(crate) fn commit_object(&self, permit: Permit, object: Object, frame: Frame<'_>) {
        self.outbound.send(permit, frame, object);
        self.tracker.announce_if_tracked();
    }

    /// Waits until `ready`, which checks the slot, returns a value.
    fn wait<T>(&self, at_most: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        let start = Instant::now();
        loop {
            let announced = self.event_count.announce();
            let found = ready();
            let left = at_most.saturating_sub(start.elapsed());
            if found.is_some() || left.is_zero() || self.refusal().is_some() {
                self.event_count.withdraw(announced);
                return found;
            }
            self.event_count.wait(announced, left.min(SLEEP_MAX));
        }
    }

    /// As [`wait`](Self::wait), for a task, which is woken when the ring in the slot changes.
    fn poll<T>(&self, context: &Context<'_>, ready: impl FnOnce() -> Option<T>) -> Poll<Option<T>> {
        note_waker(&mut self.lock().wakers, context.waker());
        match ready() {
            None if self.refusal().is_none() => Poll::Pending,
            found => Poll::Ready(found),
        }
    }
}

/// Becomes ready with a permit for an object, or with the reason why there is none.
#[derive(Debug)]
pub(crate) struct Permitting {
    slot: Arc<PublisherSlot>,
    len: u64,
    message_bytes_max: u64,
}

impl Future for Permitting {
    type Output = Result<Permit, SendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Permitting { slot, len, message_bytes_max } = &*self;
        let (len, max) = (*len, slot.outbound.bytes_max());
        if len > max {
            return Poll::Ready(Err(SendError::TooLong { len, max: max.max(*message_bytes_max) }));
        }
        slot.outbound.poll_permit(context, || slot.refusal())
    }
}

/// Moves `publisher` to the next view's ring, if its own view has ended and the next ring comes in
/// time.
#[cold]
pub(crate) fn go_on(publisher: &mut Publisher, slot: &PublisherSlot, at_most: Duration) -> bool {
    if !publisher.room().has_ended() {
        return false;
    }
    publisher.retire();
    slot.ring_engine();
    let next = if at_most.is_zero() { slot.take() } else { slot.wait(at_most, || slot.take()) };
    next.map(|next| *publisher = next).is_some()
}

/// As [`go_on`], for a task.
pub(crate) fn poll_go_on(publisher: &mut Publisher, slot: &PublisherSlot, context: &mut Context<'_>) -> Poll<bool> {
    if !publisher.room().has_ended() {
        return Poll::Ready(false);
    }
    publisher.retire();
    slot.ring_engine();
    slot.poll(context, || slot.take()).map(|next| next.map(|next| *publisher = next).is_some())
}

#[cold]
pub(crate) fn go_on_shared(publisher: &mut SharedPublisher, slot: &PublisherSlot, at_most: Duration) -> bool {
    if !publisher.room().has_ended() {
        return false;
    }
    publisher.retire();
    slot.ring_engine();
    let next = if at_most.is_zero() { slot.take_shared() } else { slot.wait(at_most, || slot.take_shared()) };
    next.map(|next| *publisher = next).is_some()
}

/// As [`go_on_shared`], for a task.
pub(crate) fn poll_go_on_shared(
    publisher: &mut SharedPublisher,
    slot: &PublisherSlot,
    context: &mut Context<'_>,
) -> Poll<bool> {
    if !publisher.room().has_ended() {
        return Poll::Ready(false);
    }
    publisher.retire();
    slot.ring_engine();
    slot.poll(context, || slot.take_shared()).map(|next| next.map(|next| *publisher = next).is_some())
}

/// Sends the messages in the ring of an ended view again.
#[derive(Debug)]
pub(crate) struct RingRelay {
    resend: Resend,
    /// This member's row in that view.
    rows: OwnRows,
    me: Rank,
    /// A message that the new ring had no room for.
    held: Option<Resent>,
    /// The own names of the objects in the ring, by position.
    objects: BTreeMap<u64, u64>,
    /// Wakes this member when an application still commits in that ring.
    pub(crate) lingering: Option<Lingering>,
    _user: Arc<()>,
}

impl RingRelay {
    pub(crate) fn new(resend: Resend, fabric: &Mesh, objects: BTreeMap<u64, u64>) -> RingRelay {
        let user = Arc::new(());
        let (rows, lingering) = (fabric.own_rows(), Some(fabric.linger(&user)));
        RingRelay { resend, rows, me: fabric.me(), held: None, objects, lingering, _user: user }
    }

    /// Returns whether the new ring had no room for a message.
    pub(crate) fn waits(&self) -> bool {
        self.held.is_some()
    }

    /// Sends messages of the old ring again, as far as `publisher` has room. Returns whether all of
    /// them are done, for ever.
    pub(crate) fn step(&mut self, publisher: &mut Publisher, slot: &PublisherSlot, lost: &mut u64) -> bool {
        let PublisherSlot { outbound, tracker, .. } = slot;
        while let Some(resent) = self.held.take().or_else(|| self.resend.next(&self.rows)) {
            match publisher.claim_again(resent.len) {
                Ok(mut frame) => {
                    tracker.pass(self.resend.claims(), &resent, &frame);
                    let payload = self.rows.bytes(self.me, resent.at, resent.len);
                    match resent.kind {
                        Kind::Message => {
                            frame.copy_from_slice(payload);
                            frame.commit();
                        }
                        Kind::Object => {
                            let (claims, position) = (Arc::clone(frame.claims()), frame.position());
                            if !outbound.send_again(payload, frame) {
                                tracker.lose(&claims, position);
                            }
                        }
                        // A dropped frame becomes a void frame.
                        Kind::Void => {}
                    }
                }
                Err(spindle_core::ClaimError::Full) => {
                    self.held = Some(resent);
                    return false;
                }
                // This message was never accepted.
                Err(_) => {
                    self.lose(resent, slot);
                    *lost += 1;
                }
            }
        }
        self.pass_objects(outbound);
        self.resend.is_done()
    }

    /// Releases the room of a message that can't be sent again.
    fn lose(&self, resent: Resent, slot: &PublisherSlot) {
        slot.tracker.lose(self.resend.claims(), resent.position);
        if resent.kind == Kind::Object
            && let Some(name) = ObjectName::decode(self.rows.bytes(self.me, resent.at, resent.len))
        {
            slot.outbound.pass(std::iter::once(name.own));
        }
    }

    /// Reports the objects that are done in the old ring. A claimer that waits for room for an
    /// object checks no ring, so this can't wait for such a check.
    fn pass_objects(&mut self, outbound: &Outbound) {
        let rest = self.objects.split_off(&self.resend.position());
        let passed = std::mem::replace(&mut self.objects, rest);
        if !passed.is_empty() {
            outbound.pass(passed.into_values());
        }
    }

    /// Counts the messages that can't be sent again. Returns whether all of them are done, for
    /// ever.
    pub(crate) fn give_up(&mut self, slot: &PublisherSlot, lost: &mut u64) -> bool {
        while let Some(resent) = self.held.take().or_else(|| self.resend.next(&self.rows)) {
            self.lose(resent, slot);
            *lost += u64::from(resent.kind != Kind::Void);
        }
        self.pass_objects(&slot.outbound);
        self.resend.is_done()
    }
}

/// Returns the error of a failed claim, for the caller.
#[cold]
pub(crate) fn failed(error: PublishError, slot: &PublisherSlot, in_upcall: bool) -> SendError {
    match error {
        PublishError::TooLong { len, max } => SendError::TooLong { len, max },
        PublishError::Full { waited } => match slot.refusal() {
            Some(refusal) => refusal,
            None if in_upcall => SendError::InUpcall,
            None => SendError::Full { waited },
        },
        _ => slot.refusal().unwrap_or(SendError::Full { waited: Duration::ZERO }),
    }
}
