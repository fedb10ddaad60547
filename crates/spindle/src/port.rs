//! How an application goes on sending while views change: the handle stays, the ring behind it is another one.
//!
//! When a view ends, its rings are full for ever. A claimer that finds its ring so *retires* it and waits for the next view's,
//! which its [`Port`] has once everything that stands in the old one, and was not delivered, has been sent again
//! ([`Relay`]). So the messages of one sender keep their order, and none is lost or doubled. A claimer that does not look, because
//! it is silent, or knows of room in the old ring, or still holds a frame, is waited for by nobody: what it commits there is
//! sent on as it comes.
use crate::error::{Ended, SendError};
use crate::large::{Outbound, Permit};
use crate::shared::Shared;
use crate::tracking::Tracker;
use spindle_core::control::ObjectName;
use spindle_core::ring::Kind;
use spindle_core::{Rank, Resend, Resent, Rows};
use spindle_fabric::{Bell, Doorbell, Fabric, Lingering, Mesh, OwnRows, PublishError, Publisher, SharedPublisher};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The longest single sleep of a claimer that waits for a ring.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The next view's ring, between the polling thread and the handles of one subgroup.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) tracker: Tracker,
    ring: Mutex<Waiting>,
    bell: Bell,
    /// All handles are gone: this member will send no more.
    closed: AtomicBool,
    /// What wakes the polling thread, whichever view it is in.
    engine: Mutex<Option<Doorbell>>,
}

#[derive(Debug, Default)]
struct Waiting {
    ring: Ring,
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
enum Ring {
    /// It does not exist, or what was sent before has to be sent again first.
    #[default]
    NotYet,
    Ready(Publisher),
    Shared(SharedPublisher),
    /// This member does not send there any more.
    Never,
}

/// Held by every handle of a port. The last to go closes it.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) Arc<Port>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        // Nobody will take what waits there, or the port's own clone of what many took.
        drop(self.0.empty());
        self.0.ring_engine();
    }
}

impl Port {
    pub(crate) fn new(shared: Arc<Shared>, outbound: Arc<Outbound>, tracker: Tracker) -> Port {
        let (ring, engine) = Default::default();
        Port { shared, outbound, tracker, ring, bell: Bell::new(), closed: AtomicBool::new(false), engine }
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
            // The last handle went before it could see this one.
            drop(self.empty());
        }
        self.bell.ring();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes out whatever ring is in the port. To be dropped without the lock.
    fn empty(&self) -> Ring {
        std::mem::take(&mut self.lock().ring)
    }

    /// The view has ended: its ring is no longer the newest.
    pub(crate) fn close_ring(&self) -> Option<Publisher> {
        match std::mem::take(&mut self.lock().ring) {
            Ring::Ready(publisher) => Some(publisher),
            _ => None,
        }
    }

    pub(crate) fn offer(&self, publisher: Publisher) {
        self.put(Ring::Ready(publisher));
    }

    /// This member is no sender any more.
    pub(crate) fn refuse(&self) {
        self.put(Ring::Never);
    }

    /// The group has ended: nobody waits any more.
    pub(crate) fn end(&self) {
        let wakers = std::mem::take(&mut self.lock().wakers);
        self.bell.ring();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What is in the port for the one claimer, if its view has ended.
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

    /// Checks that the group has not ended for this member. A claimer may have room left in a ring that is no longer read, so it checks before
    /// each claim.
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

    #[cold]
    fn ended(&self) -> SendError {
        SendError::Ended(self.shared.broken().cloned().unwrap_or(Ended::Dropped))
    }

    /// Why no ring will ever come.
    pub(crate) fn refusal(&self) -> Option<SendError> {
        if let Err(ended) = self.check() {
            return Some(ended);
        }
        matches!(self.lock().ring, Ring::Never).then_some(SendError::NoSender)
    }

    /// Room for an object of `len` bytes, where a ring takes messages of so many; waits for it `at_most` that long.
    pub(crate) fn permit(
        &self,
        len: u64,
        message_bytes_max: u64,
        at_most: Duration,
        in_upcall: bool,
    ) -> Result<Permit<'_>, SendError> {
        let max = self.outbound.bytes_max();
        if len > max {
            return Err(SendError::TooLong { len, max: max.max(message_bytes_max) });
        }
        self.outbound.permit(at_most, in_upcall, || self.refusal())
    }

    /// Waits for `ready`, which looks into the port.
    fn wait<T>(&self, at_most: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        let start = Instant::now();
        loop {
            let announced = self.bell.announce();
            let found = ready();
            let left = at_most.saturating_sub(start.elapsed());
            if found.is_some() || left.is_zero() || self.refusal().is_some() {
                self.bell.withdraw(announced);
                return found;
            }
            self.bell.wait(announced, left.min(SLEEP_MAX));
        }
    }

    async fn wait_async<T>(&self, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        poll_fn(|context| {
            self.lock().wakers.push(context.waker().clone());
            match ready() {
                Some(found) => Poll::Ready(Some(found)),
                None if self.refusal().is_some() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// Goes on to the next view's ring, if `publisher`'s has ended and the next is there in time.
#[cold]
pub(crate) fn go_on(publisher: &mut Publisher, port: &Port, at_most: Duration) -> bool {
    if !publisher.room().has_ended() {
        return false;
    }
    publisher.retire();
    port.ring_engine();
    let next = if at_most.is_zero() { port.take() } else { port.wait(at_most, || port.take()) };
    next.map(|next| *publisher = next).is_some()
}

pub(crate) async fn go_on_async(publisher: &mut Publisher, port: &Port) -> bool {
    if !publisher.room().has_ended() {
        return false;
    }
    publisher.retire();
    port.ring_engine();
    port.wait_async(|| port.take()).await.map(|next| *publisher = next).is_some()
}

#[cold]
pub(crate) fn go_on_shared(publisher: &mut SharedPublisher, port: &Port, at_most: Duration) -> bool {
    if !publisher.room().has_ended() {
        return false;
    }
    publisher.retire();
    port.ring_engine();
    let next = if at_most.is_zero() { port.take_shared() } else { port.wait(at_most, || port.take_shared()) };
    next.map(|next| *publisher = next).is_some()
}

pub(crate) async fn go_on_shared_async(publisher: &mut SharedPublisher, port: &Port) -> bool {
    if !publisher.room().has_ended() {
        return false;
    }
    publisher.retire();
    port.ring_engine();
    port.wait_async(|| port.take_shared()).await.map(|next| *publisher = next).is_some()
}

/// Sends on what stands in the ring of an ended view.
#[derive(Debug)]
pub(crate) struct Relay {
    resend: Resend,
    /// This member's row in that view.
    rows: OwnRows,
    me: Rank,
    /// What the new ring had no room for.
    held: Option<Resent>,
    /// By position: own names of the objects there.
    objects: BTreeMap<u64, u64>,
    /// Wakes this member when an application commits there still.
    pub(crate) lingering: Option<Lingering>,
    _user: Arc<()>,
}

impl Relay {
    pub(crate) fn new(resend: Resend, fabric: &Mesh, objects: BTreeMap<u64, u64>) -> Relay {
        let user = Arc::new(());
        let (rows, lingering) = (fabric.own_rows(), Some(fabric.linger(&user)));
        Relay { resend, rows, me: fabric.me(), held: None, objects, lingering, _user: user }
    }

    /// Whether the new ring had no room for what is there.
    pub(crate) fn waits(&self) -> bool {
        self.held.is_some()
    }

    /// Sends on what is there, as far as `publisher` has room. Whether that is all, for ever.
    pub(crate) fn step(&mut self, publisher: &mut Publisher, port: &Port, lost: &mut u64) -> bool {
        let Port { outbound, tracker, .. } = port;
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
                        // A frame that is dropped is one.
                        Kind::Void => {}
                    }
                }
                Err(spindle_core::ClaimError::Full) => {
                    self.held = Some(resent);
                    return false;
                }
                // No message that was accepted.
                Err(_) => {
                    self.lose(resent, port);
                    *lost += 1;
                }
            }
        }
        self.pass_objects(outbound);
        self.resend.is_done()
    }

    /// What can't be sent any more takes no room any more.
    fn lose(&self, resent: Resent, port: &Port) {
        port.tracker.lose(self.resend.claims(), resent.position);
        if resent.kind == Kind::Object
            && let Some(name) = ObjectName::decode(self.rows.bytes(self.me, resent.at, resent.len))
        {
            port.outbound.pass(std::iter::once(name.own));
        }
    }

    /// Who waits for room for an object does not look at any ring, so this can't wait until it does.
    fn pass_objects(&mut self, outbound: &Outbound) {
        let rest = self.objects.split_off(&self.resend.position());
        let passed = std::mem::replace(&mut self.objects, rest);
        if !passed.is_empty() {
            outbound.pass(passed.into_values());
        }
    }

    /// Counts what can't be sent any more. Whether that is all, for ever.
    pub(crate) fn give_up(&mut self, port: &Port, lost: &mut u64) -> bool {
        while let Some(resent) = self.held.take().or_else(|| self.resend.next(&self.rows)) {
            self.lose(resent, port);
            *lost += u64::from(resent.kind != Kind::Void);
        }
        self.pass_objects(&port.outbound);
        self.resend.is_done()
    }
}

/// What a claim came to, for the caller.
#[cold]
pub(crate) fn failed(error: PublishError, port: &Port, in_upcall: bool) -> SendError {
    match error {
        PublishError::TooLong { len, max } => SendError::TooLong { len, max },
        PublishError::Full { waited } => match port.refusal() {
            Some(refusal) => refusal,
            None if in_upcall => SendError::InUpcall,
            None => SendError::Full { waited },
        },
        _ => port.refusal().unwrap_or(SendError::Full { waited: Duration::ZERO }),
    }
}
