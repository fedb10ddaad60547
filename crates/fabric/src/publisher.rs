//! How applications put messages into their ring: claim space, fill it in place, commit.
//!
//! A [`Publisher`] is the only claimer of its ring and pays no atomic read-modify-write.
//! [`Publisher::share`] turns it into a [`SharedPublisher`] for several threads. Both give out
//! [`Frame`]s. When the last of them is dropped, the ring is closed, which announces that this
//! member will send no more on it.
//!
//! No frame is ever given out to two claimers at the same time. A publisher holds the only
//! [`Lease`] of its ring's memory, is the only claimer there, and claims are disjoint until every
//! member has delivered them (INV-FRAME, kept by [`Claims`]).
use crate::event_count::{Announced, Doorbell, EventCount};
use crate::log_clock::LogClock;
use crate::region::{FrameMemory, Lease, OwnRegion};
use spindle_core::wire::ring::Kind;
use spindle_core::{Claim, ClaimError, Claims, Exclusive};
use std::future::Future;
use std::future::poll_fn;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Tries of a claim that waits for room before it yields to the engine, which may wait for this
/// core.
const SPINS: u32 = 8;
/// Tries after that, before it goes to sleep.
const YIELDS: u32 = 16;
/// The longest single sleep of a claim that waits.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The only claimer of a ring.
#[derive(Debug)]
pub struct Publisher {
    outlet: Outlet,
    exclusive: Exclusive,
}

/// One of several claimers of a ring. Clones publish on the same ring.
#[derive(Clone, Debug)]
pub struct SharedPublisher {
    outlet: Arc<Outlet>,
}

/// Space for one message, to be filled in place. It may hold bytes of an older message.
///
/// [`commit`](Self::commit) publishes it. A frame that is dropped, also by a panic of its filler,
/// becomes a void, which no application sees. A frame of a [`Publisher`] that is leaked
/// (`mem::forget`) is as if it had never been claimed. A leaked or never finished frame of a
/// [`SharedPublisher`] stops its ring for ever, and the group with it.
#[derive(Debug)]
#[must_use = "a frame that is dropped is not published"]
pub struct Frame<'a> {
    outlet: &'a Outlet,
    claimer: Claimer<'a>,
    /// Taken by `end`, and only there.
    claim: ManuallyDrop<Claim>,
    memory: FrameMemory<'a>,
}

/// The place where claimers wait for room in a ring. The engine's side rings it after it has raised
/// the limit. Clones are the same room.
#[derive(Clone, Debug)]
pub struct Room {
    waiting: Arc<Waiting>,
}

/// A claim that becomes ready when there is room.
#[derive(Debug)]
#[must_use = "a future does nothing unless polled"]
pub struct Claiming<'a> {
    /// Taken once it is ready.
    taking: Option<Taking<'a, 'a>>,
}

/// As [`Claiming`], without the frame.
#[derive(Debug)]
struct Taking<'o, 'c> {
    outlet: &'o Outlet,
    claimer: Claimer<'c>,
    len: u64,
    /// The key of my waker in the room's list, once it has been there.
    ticket: Option<u64>,
}

/// The reason why a message could not be put into its ring.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The message is too long.
    #[error("a message of {len} bytes is over the subgroup's limit of {max} bytes: split it, or raise the limit")]
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The ring stayed full.
    #[error("the ring was full for {waited:?}: the slowest member has not delivered what is in it")]
    Full {
        /// The time that the claim waited.
        waited: Duration,
    },
    /// The engine has ended: there will be no more room, and no engine announces commits.
    #[error("the group has ended at this member: nothing more can be sent")]
    Ended,
}

/// The kind of claimer.
#[derive(Debug)]
enum Claimer<'a> {
    Only(&'a mut Exclusive),
    OneOfMany,
}

/// The parts that frames of one ring use. Dropping it closes the ring.
#[derive(Debug)]
struct Outlet {
    lease: Lease,
    claims: Arc<Claims>,
    engine: Doorbell,
    clock: LogClock,
    room: Room,
    /// True if its claimers have changed to the next view's ring.
    retired: AtomicBool,
}

#[derive(Debug)]
struct Waiting {
    event_count: EventCount,
    ended: AtomicBool,
    tasks: Mutex<Tasks>,
}

/// Tasks that wait. Each has announced itself at the event count, as a thread would.
#[derive(Debug, Default)]
struct Tasks {
    tickets: u64,
    list: Vec<(u64, Waker, Announced)>,
}

impl Publisher {
    /// Creates a publisher into the ring of `claims` in `row`, which rings `engine` when it has
    /// committed. Messages of logged subgroups get their times from `clock`.
    ///
    /// # Panics
    /// If the ring is not behind the control block of `row` and inside it, or if there was a
    /// publisher for part of that memory before: two could be given the same space.
    pub fn new(row: &Arc<OwnRegion>, claims: Arc<Claims>, engine: Doorbell, clock: LogClock) -> Publisher {
        let ring = claims.ring();
        let lease = row.lease(ring);
        let lease = lease.expect("a ring has one publisher, once, and stands behind the control block of its row");
        let exclusive = claims.begin_exclusive();
        Publisher {
            outlet: Outlet { lease, claims, engine, clock, room: Room::new(), retired: AtomicBool::new(false) },
            exclusive,
        }
    }

    /// Claims `len` bytes, if there is room at this moment.
    ///
    /// # Errors
    /// [`ClaimError::TooLong`], or [`ClaimError::Full`].
    #[inline(always)]
    pub fn claim(&mut self, len: u64) -> Result<Frame<'_>, ClaimError> {
        self.outlet.claim(Claimer::Only(&mut self.exclusive), len)
    }

    /// Returns the claims on its ring, and the position of the next claim.
    pub fn next_position(&self) -> (&Arc<Claims>, u64) {
        (&self.outlet.claims, self.exclusive.position())
    }

    /// As [`claim`](Self::claim), for a message of an ended view that is sent again: it may be
    /// longer than new ones.
    ///
    /// # Errors
    /// [`ClaimError::Full`]; [`ClaimError::TooLong`] for a length that no such message had.
    pub fn claim_again(&mut self, len: u64) -> Result<Frame<'_>, ClaimError> {
        let outlet = &self.outlet;
        let claim = outlet.claims.claim_again(Some(&mut self.exclusive), len, |claim| outlet.stamp_time(claim))?;
        Ok(self.outlet.frame(Claimer::Only(&mut self.exclusive), claim))
    }

    /// Claims `len` bytes, and waits up to `timeout` for room. The thread that polls the engine
    /// must not call it, because the engine makes the room.
    ///
    /// # Errors
    /// [`PublishError`].
    #[inline]
    pub fn claim_timeout(&mut self, len: u64, timeout: Duration) -> Result<Frame<'_>, PublishError> {
        self.outlet.claim_timeout(Claimer::Only(&mut self.exclusive), len, timeout)
    }

    /// Claims `len` bytes, and waits for room without blocking a thread. Works in any runtime.
    pub fn claim_async(&mut self, len: u64) -> Claiming<'_> {
        let claimer = Claimer::Only(&mut self.exclusive);
        Claiming { taking: Some(Taking { outlet: &self.outlet, claimer, len, ticket: None }) }
    }

    /// As [`claim`](Self::claim). If there is no room, `go_on` may replace this publisher by that
    /// of the next view's ring, and returns whether it did.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    #[inline(always)]
    pub fn claim_or(&mut self, len: u64, go_on: impl FnOnce(&mut Self) -> bool) -> Result<Frame<'_>, ClaimError> {
        let claim = match self.take(len) {
            Err(ClaimError::Full) if go_on(self) => self.take(len)?,
            claim => claim?,
        };
        Ok(self.outlet.frame(Claimer::Only(&mut self.exclusive), claim))
    }

    /// As [`claim_timeout`](Self::claim_timeout). If the ring [has ended](Room::end), `go_on` may
    /// replace this publisher by that of the next view's ring, and returns whether it did. It may
    /// wait for that as long as its argument says.
    ///
    /// # Errors
    /// As [`claim_timeout`](Self::claim_timeout).
    #[inline]
    pub fn claim_timeout_or(
        &mut self,
        len: u64,
        timeout: Duration,
        mut go_on: impl FnMut(&mut Self, Duration) -> bool,
    ) -> Result<Frame<'_>, PublishError> {
        let claim = match self.take(len) {
            Ok(claim) => claim,
            Err(_) => until(timeout, |left| {
                match self.outlet.wait_for_room(&mut Claimer::Only(&mut self.exclusive), len, left) {
                    Err(PublishError::Ended) if go_on(self, left) => None,
                    outcome => Some(outcome),
                }
            })?,
        };
        Ok(self.outlet.frame(Claimer::Only(&mut self.exclusive), claim))
    }

    /// As [`claim_async`](Self::claim_async), and as [`claim_timeout_or`](Self::claim_timeout_or)
    /// for a ring that has ended.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn claim_async_or(
        &mut self,
        len: u64,
        mut go_on: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<bool>,
    ) -> Result<Frame<'_>, PublishError> {
        let claim = loop {
            let claimer = Claimer::Only(&mut self.exclusive);
            match (Taking { outlet: &self.outlet, claimer, len, ticket: None }).await {
                Err(PublishError::Ended) if poll_fn(|context| go_on(self, context)).await => {}
                outcome => break outcome?,
            }
        };
        Ok(self.outlet.frame(Claimer::Only(&mut self.exclusive), claim))
    }

    #[inline(always)]
    fn take(&mut self, len: u64) -> Result<Claim, ClaimError> {
        self.outlet.take(&mut Claimer::Only(&mut self.exclusive), len)
    }

    /// Declares `rounds` rounds in which this member sends nothing, so that no member waits for it.
    pub fn skip_rounds(&self, rounds: u64) {
        self.outlet.skip_rounds(rounds);
    }

    /// Ends publishing on this ring, because its view has ended and it was revoked. The ring is
    /// full for ever, and dropping the publisher no longer announces anything.
    pub fn retire(&mut self) {
        self.outlet.retired.store(true, Ordering::Relaxed);
        self.outlet.claims.retire(&mut self.exclusive);
    }

    /// Lets several threads publish on the ring, at the cost of one atomic read-modify-write per
    /// claim.
    pub fn share(self) -> SharedPublisher {
        if !self.outlet.retired.load(Ordering::Relaxed) {
            self.outlet.claims.end_exclusive(self.exclusive);
        }
        SharedPublisher { outlet: Arc::new(self.outlet) }
    }

    /// Returns the length of the longest message, in bytes.
    pub fn message_bytes_max(&self) -> u64 {
        self.outlet.claims.ring().message_bytes_max
    }

    /// Returns the room in which claimers of this ring wait, for the side that makes room.
    pub fn room(&self) -> Room {
        self.outlet.room.clone()
    }
}

impl SharedPublisher {
    /// Returns the claims on its ring, and the position of the next claim, by whichever thread.
    pub fn next_position(&self) -> (&Arc<Claims>, u64) {
        (&self.outlet.claims, self.outlet.claims.claimed())
    }

    /// As [`Publisher::claim`].
    ///
    /// # Errors
    /// [`ClaimError::TooLong`], or [`ClaimError::Full`].
    #[inline]
    pub fn claim(&self, len: u64) -> Result<Frame<'_>, ClaimError> {
        self.outlet.claim(Claimer::OneOfMany, len)
    }

    /// As [`Publisher::claim_timeout`].
    ///
    /// # Errors
    /// [`PublishError`].
    #[inline]
    pub fn claim_timeout(&self, len: u64, timeout: Duration) -> Result<Frame<'_>, PublishError> {
        self.outlet.claim_timeout(Claimer::OneOfMany, len, timeout)
    }

    /// As [`Publisher::claim_async`].
    pub fn claim_async(&self, len: u64) -> Claiming<'_> {
        let claimer = Claimer::OneOfMany;
        Claiming { taking: Some(Taking { outlet: &self.outlet, claimer, len, ticket: None }) }
    }

    /// As [`Publisher::claim_or`].
    ///
    /// # Errors
    /// As [`Publisher::claim_or`].
    #[inline]
    pub fn claim_or(&mut self, len: u64, go_on: impl FnOnce(&mut Self) -> bool) -> Result<Frame<'_>, ClaimError> {
        let claim = match self.outlet.take(&mut Claimer::OneOfMany, len) {
            Err(ClaimError::Full) if go_on(self) => self.outlet.take(&mut Claimer::OneOfMany, len)?,
            claim => claim?,
        };
        Ok(self.outlet.frame(Claimer::OneOfMany, claim))
    }

    /// As [`Publisher::claim_timeout_or`].
    ///
    /// # Errors
    /// As [`Publisher::claim_timeout_or`].
    #[inline]
    pub fn claim_timeout_or(
        &mut self,
        len: u64,
        timeout: Duration,
        mut go_on: impl FnMut(&mut Self, Duration) -> bool,
    ) -> Result<Frame<'_>, PublishError> {
        let claim = match self.outlet.take(&mut Claimer::OneOfMany, len) {
            Ok(claim) => claim,
            Err(_) => until(timeout, |left| match self.outlet.wait_for_room(&mut Claimer::OneOfMany, len, left) {
                Err(PublishError::Ended) if go_on(self, left) => None,
                outcome => Some(outcome),
            })?,
        };
        Ok(self.outlet.frame(Claimer::OneOfMany, claim))
    }

    /// As [`Publisher::claim_async_or`].
    ///
    /// # Errors
    /// As [`Publisher::claim_async_or`].
    pub async fn claim_async_or(
        &mut self,
        len: u64,
        mut go_on: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<bool>,
    ) -> Result<Frame<'_>, PublishError> {
        let claim = loop {
            match (Taking { outlet: &self.outlet, claimer: Claimer::OneOfMany, len, ticket: None }).await {
                Err(PublishError::Ended) if poll_fn(|context| go_on(self, context)).await => {}
                outcome => break outcome?,
            }
        };
        Ok(self.outlet.frame(Claimer::OneOfMany, claim))
    }

    /// As [`Publisher::skip_rounds`].
    pub fn skip_rounds(&self, rounds: u64) {
        self.outlet.skip_rounds(rounds);
    }

    /// Marks that one of the claimers changes to the next view's ring, as the others will: dropping
    /// them no longer announces anything.
    pub fn retire(&self) {
        self.outlet.retired.store(true, Ordering::Relaxed);
    }

    /// As [`Publisher::message_bytes_max`].
    pub fn message_bytes_max(&self) -> u64 {
        self.outlet.claims.ring().message_bytes_max
    }

    /// As [`Publisher::room`].
    pub fn room(&self) -> Room {
        self.outlet.room.clone()
    }
}

impl Outlet {
    #[inline(always)]
    fn take(&self, claimer: &mut Claimer<'_>, len: u64) -> Result<Claim, ClaimError> {
        match claimer {
            Claimer::Only(exclusive) => self.claims.claim_exclusive(exclusive, len, |claim| self.stamp_time(claim)),
            Claimer::OneOfMany => self.claims.claim(len, |claim| self.stamp_time(claim)),
        }
    }

    /// Stores the time of a claim in a ring whose frames have a trailer.
    #[cold]
    #[inline(never)]
    fn stamp_time(&self, claim: &Claim) {
        let frame = self.lease.frame(claim.position());
        // SAFETY: the claim is of this ring, whose frames have a trailer.
        let word = unsafe { frame.time(claim.span()) };
        // Relaxed: the commit has the release.
        word.store(self.clock.now(), Ordering::Relaxed);
    }

    /// As [`take`](Self::take), but returns `None` for a ring that is full, and still in use.
    fn take_or_wait(&self, claimer: &mut Claimer<'_>, len: u64) -> Option<Result<Claim, PublishError>> {
        match self.take(claimer, len) {
            Ok(claim) => Some(Ok(claim)),
            Err(ClaimError::TooLong { len, max }) => Some(Err(PublishError::TooLong { len, max })),
            Err(ClaimError::Full) if self.room.has_ended() => Some(Err(PublishError::Ended)),
            Err(ClaimError::Full) => None,
        }
    }

    #[inline(always)]
    fn frame<'a>(&'a self, mut claimer: Claimer<'a>, claim: Claim) -> Frame<'a> {
        if let Claimer::Only(exclusive) = &mut claimer {
            // The peers hold the cache lines from the lap before.
            exclusive.look_ahead(|block| self.lease.prefetch(block));
        }
        let memory = self.lease.frame(claim.position());
        Frame { outlet: self, claimer, claim: ManuallyDrop::new(claim), memory }
    }

    #[inline(always)]
    fn claim<'a>(&'a self, mut claimer: Claimer<'a>, len: u64) -> Result<Frame<'a>, ClaimError> {
        let claim = self.take(&mut claimer, len)?;
        Ok(self.frame(claimer, claim))
    }

    #[inline]
    fn claim_timeout<'a>(
        &'a self,
        mut claimer: Claimer<'a>,
        len: u64,
        timeout: Duration,
    ) -> Result<Frame<'a>, PublishError> {
        let claim = match self.take(&mut claimer, len) {
            Ok(claim) => claim,
            Err(_) => self.wait_for_room(&mut claimer, len, timeout)?,
        };
        Ok(self.frame(claimer, claim))
    }

    #[cold]
    fn wait_for_room(&self, claimer: &mut Claimer<'_>, len: u64, timeout: Duration) -> Result<Claim, PublishError> {
        let start = Instant::now();
        for attempt in 0..SPINS + YIELDS {
            if let Some(outcome) = self.take_or_wait(claimer, len) {
                return outcome;
            }
            if attempt < SPINS {
                std::hint::spin_loop();
            } else if start.elapsed() < timeout {
                std::thread::yield_now();
            }
        }
        let event_count = &self.room.waiting.event_count;
        loop {
            let announced = event_count.announce();
            if let Some(outcome) = self.take_or_wait(claimer, len) {
                event_count.withdraw(announced);
                return outcome;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                event_count.withdraw(announced);
                return Err(PublishError::Full { waited: start.elapsed() });
            }
            event_count.wait(announced, left.min(SLEEP_MAX));
        }
    }

    fn skip_rounds(&self, rounds: u64) {
        self.claims.skip_rounds(rounds);
        self.engine.ring();
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // Every frame borrows its publisher, so all are finished, or leaked and their ring stopped.
        if !self.retired.load(Ordering::Relaxed) {
            self.claims.close();
        }
        self.engine.ring();
    }
}

impl Frame<'_> {
    /// Publishes the message.
    #[inline(always)]
    pub fn commit(self) {
        let len = self.claim.len();
        self.finish(Kind::Message, len);
    }

    /// Publishes the first `len` bytes as the message.
    ///
    /// # Panics
    /// If the frame has fewer bytes; nothing is published then.
    #[inline(always)]
    pub fn commit_len(self, len: u64) {
        assert!(len <= self.claim.len(), "{len} bytes of a frame of {}", self.claim.len());
        self.finish(Kind::Message, len);
    }

    /// As [`commit_name`](crate::commit_name).
    pub(crate) fn commit_object(self) {
        let len = self.claim.len();
        self.finish(Kind::Object, len);
    }

    /// Returns its position in its ring.
    pub fn position(&self) -> u64 {
        self.claim.position()
    }

    /// Returns the claims on its ring.
    pub fn claims(&self) -> &Arc<Claims> {
        &self.outlet.claims
    }

    #[inline(always)]
    fn finish(self, kind: Kind, len: u64) {
        let mut frame = ManuallyDrop::new(self);
        frame.end(kind, len);
    }

    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        self.end(Kind::Void, 0);
    }

    /// Called once: by `finish`, which keeps the frame from being dropped, or by `drop`.
    #[inline(always)]
    fn end(&mut self, kind: Kind, len: u64) {
        let outlet = self.outlet;
        let [first, second] = self.memory.header();
        // SAFETY: called once, and no code reads the claim after it.
        let claim = unsafe { ManuallyDrop::take(&mut self.claim) };
        // Relaxed: what the commit stores next has the release.
        match &mut self.claimer {
            Claimer::Only(exclusive) => {
                let round = outlet.claims.guess_round(exclusive);
                outlet.claims.commit_exclusive(exclusive, claim, kind, len, |_, header| {
                    first.store(header, Ordering::Relaxed);
                    second.store(round, Ordering::Relaxed);
                });
            }
            Claimer::OneOfMany => {
                outlet.claims.commit(claim, kind, len, |_, header| first.store(header, Ordering::Relaxed));
            }
        }
        outlet.engine.ring();
    }
}

impl Deref for Frame<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the lease, which the frame borrows, keeps it mapped. The claim is of this ring:
        // lease and claims were made from the same one, and claims can't be made otherwise. So its
        // length is within the frame. Nothing else has these bytes until the frame is finished: the
        // lease is unique, claims on it are disjoint, and older readers are done (INV-FRAME). Any
        // byte is a valid u8.
        unsafe { std::slice::from_raw_parts(self.memory.payload().as_ptr(), self.claim.len() as usize) }
    }
}

impl DerefMut for Frame<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; and `&mut self` makes it the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.memory.payload().as_ptr(), self.claim.len() as usize) }
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

// SAFETY: it is an exclusive borrow of bytes that belong to no thread.
unsafe impl Send for Frame<'_> {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for Frame<'_> {}

impl Room {
    fn new() -> Room {
        Room {
            waiting: Arc::new(Waiting {
                event_count: EventCount::new(),
                ended: AtomicBool::new(false),
                tasks: Mutex::default(),
            }),
        }
    }

    /// Wakes every claimer that waits. The engine's side calls it after it has raised the limit of
    /// the ring's claims. It costs a load if no claimer waits.
    #[inline]
    pub fn ring_if_waiting(&self) {
        if self.waiting.event_count.ring() {
            self.wake_tasks();
        }
    }

    /// Ends every wait, now and from now on, with [`PublishError::Ended`]. The engine's side calls
    /// it when it stops.
    pub fn end(&self) {
        self.waiting.ended.store(true, Ordering::Release);
        self.ring_if_waiting();
    }

    /// Returns true if it [has ended](Self::end).
    pub fn has_ended(&self) -> bool {
        self.waiting.ended.load(Ordering::Acquire)
    }

    #[cold]
    fn wake_tasks(&self) {
        let list = mem::take(&mut self.tasks().list);
        for (_, waker, announced) in list {
            self.waiting.event_count.withdraw(announced);
            waker.wake();
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.waiting.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a task on the list of tasks to wake.
    fn enter(&self, waker: &Waker) -> u64 {
        let mut tasks = self.tasks();
        tasks.tickets += 1;
        let ticket = tasks.tickets;
        // Under the lock: a ringer that sees the announcement finds the waker.
        let announced = self.waiting.event_count.announce();
        tasks.list.push((ticket, waker.clone(), announced));
        ticket
    }

    /// Removes a task from the list, if it is still there.
    fn leave(&self, ticket: u64) {
        let mut tasks = self.tasks();
        if let Some(index) = tasks.list.iter().position(|entry| entry.0 == ticket) {
            let (_, _, announced) = tasks.list.swap_remove(index);
            self.waiting.event_count.withdraw(announced);
        }
    }
}

impl<'a> Future for Claiming<'a> {
    type Output = Result<Frame<'a>, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let taking = self.taking.as_mut().expect("a future is not polled after it was ready");
        Pin::new(taking).poll(context).map(|claim| {
            let claim = claim?;
            let mut taking = self.taking.take().expect("it was there");
            // It has nothing left to end, and the frame gets the claimer.
            let claimer = mem::replace(&mut taking.claimer, Claimer::OneOfMany);
            Ok(taking.outlet.frame(claimer, claim))
        })
    }
}

impl Future for Taking<'_, '_> {
    type Output = Result<Claim, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.leave();
        let this = &mut *self;
        if let Some(outcome) = this.outlet.take_or_wait(&mut this.claimer, this.len) {
            return Poll::Ready(outcome);
        }
        this.ticket = Some(this.outlet.room.enter(context.waker()));
        match this.outlet.take_or_wait(&mut this.claimer, this.len) {
            Some(outcome) => {
                this.leave();
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl Taking<'_, '_> {
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.outlet.room.leave(ticket);
        }
    }
}

impl Drop for Taking<'_, '_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Tries again and again, with the remaining time, until there is a result.
fn until<T>(
    timeout: Duration,
    mut attempt: impl FnMut(Duration) -> Option<Result<T, PublishError>>,
) -> Result<T, PublishError> {
    let start = Instant::now();
    loop {
        let waited = start.elapsed();
        match attempt(timeout.saturating_sub(waited)) {
            Some(Err(PublishError::Full { .. })) => return Err(PublishError::Full { waited: start.elapsed() }),
            Some(outcome) => return outcome,
            None if waited > timeout => return Err(PublishError::Full { waited }),
            None => {}
        }
    }
}
