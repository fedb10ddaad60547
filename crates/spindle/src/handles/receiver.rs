//! Receives messages on a thread of the application.
use crate::error::ReceiveError;
use crate::shared::{End, Shared};
use spindle_core::{Batch, Cursor, Handoff, Message, SubgroupId, View};
use spindle_fabric::{Announced, Doorbell, EventCount, Reader};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often a receiver looks at the frontier before it sleeps.
const SPINS: u32 = 64;
/// The longest single sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The deliveries of one subgroup, taken in order on any one thread, lent in place.
///
/// It stays valid while views change. After a change that touches its subgroup, messages are
/// delivered in the new [view](Self::view). So every message has one view that says who was in the
/// subgroup, the same at all members. Other changes have no effect on it.
///
/// The receiver has no queue: messages stay in their senders' rings until they are taken. A slow
/// receiver holds back its own `delivered` count, which all members see as its lag. In the end the
/// rings fill up and the senders wait. A dropped receiver delays no member: later messages count as
/// delivered here.
#[derive(Debug)]
pub struct Receiver {
    stretch: Stretch,
    inlet: Arc<Inlet>,
    pub(crate) shared: Arc<Shared>,
}

/// The deliveries of one view.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) view: Arc<View>,
    pub(crate) subgroup: SubgroupId,
    pub(crate) cursor: Cursor,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) rows: Reader,
    /// Wakes the engine.
    pub(crate) engine: Doorbell,
    /// Whether the cursor is closed.
    pub(crate) closed: bool,
}

/// The coming views, passed from the polling thread to the receiver of one subgroup.
#[derive(Debug)]
pub(crate) struct Inlet {
    event_count: EventCount,
    /// The task that waits for messages. It has announced itself at the event count, as a thread would.
    task: Mutex<Option<(Waker, Announced)>>,
    stretches: Mutex<VecDeque<Stretch>>,
    /// Set when the receiver is dropped: no later view is taken.
    pub(crate) gone: AtomicBool,
}

/// Messages in the order of delivery, readable while this lives. When it is dropped, the messages
/// that were taken count as delivered, and their senders may overwrite them. The others are offered
/// again.
///
/// A message can't outlive its deliveries:
///
/// ```compile_fail,E0515
/// # use spindle::{Message, ReceiveError, Receiver};
/// # use std::time::Duration;
/// fn first(receiver: &mut Receiver) -> Result<Message<'_>, ReceiveError> {
///     let message = receiver.receive(Duration::MAX)?.iter().next().unwrap();
///     Ok(message)
/// }
/// ```
#[derive(Debug)]
pub struct Deliveries<'a> {
    /// Taken by `drop`, and only there.
    batch: Option<Batch<'a, Reader>>,
    handoff: &'a Handoff,
    engine: &'a Doorbell,
    view: &'a View,
}

/// The messages of [`Deliveries`]. They stay lent as long as this or any of them lives.
#[derive(Debug)]
pub struct Messages<'d, 'a> {
    batch: Option<&'d mut Batch<'a, Reader>>,
}

impl Receiver {
    /// Returns the messages that are ready, at least one; waits up to `timeout` for the first.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`]; [`ReceiveError::Finished`] after the last message;
    /// [`ReceiveError::Ended`] if the group ended early, after the last message that all members
    /// are known to have.
    pub fn receive(&mut self, timeout: Duration) -> Result<Deliveries<'_>, ReceiveError> {
        if !self.is_ready() {
            self.wait(timeout)?;
        }
        Ok(self.deliveries())
    }

    /// Returns the messages that are ready now, if any.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), without [`ReceiveError::TimedOut`].
    pub fn try_receive(&mut self) -> Result<Option<Deliveries<'_>>, ReceiveError> {
        if self.is_ready() {
            return Ok(Some(self.deliveries()));
        }
        match self.end() {
            Some(end) => Err(end),
            None => Ok(None),
        }
    }

    /// As [`receive`](Self::receive), and waits asynchronously, in any runtime. It waits without a
    /// deadline: a caller that drops the future loses no message.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), without [`ReceiveError::TimedOut`].
    pub async fn receive_async(&mut self) -> Result<Deliveries<'_>, ReceiveError> {
        Waiting(self).await?;
        Ok(self.deliveries())
    }

    /// Returns the view, with members by rank, in which the members of the subgroup began to send
    /// the next messages.
    pub fn view(&self) -> &View {
        &self.stretch.view
    }

    /// Returns whether a message is ready. Skips the nulls before it, and enters the next view
    /// after the last message of this one.
    fn is_ready(&mut self) -> bool {
        loop {
            let stretch = &mut self.stretch;
            if !stretch.closed
                && let Some(trims) = stretch.handoff.trims()
            {
                stretch.cursor.close(&stretch.rows, &trims);
                stretch.closed = true;
            }
            let frontier = stretch.handoff.frontier();
            if !stretch.closed && !stretch.cursor.is_behind(frontier) {
                return false;
            }
            let mut batch = stretch.cursor.advance(&stretch.rows, frontier);
            if batch.has_next() {
                return true;
            }
            batch.report(&stretch.handoff);
            if !(stretch.closed && stretch.cursor.is_at_end()) {
                stretch.engine.ring();
                return false;
            }
            let Some(next) = self.inlet.take() else { return false };
            self.go_on(next);
        }
    }

    fn go_on(&mut self, mut next: Stretch) {
        let old = &self.stretch;
        next.cursor.follow(&old.cursor, (&old.view, old.subgroup), (&next.view, next.subgroup));
        self.stretch = next;
        // The next view may wait for a receiver that is many views behind.
        self.inlet.ring_newest(&self.stretch);
    }

    pub(crate) fn deliveries(&mut self) -> Deliveries<'_> {
        let Stretch { view, cursor, handoff, rows, engine, .. } = &mut self.stretch;
        let batch = Some(cursor.advance(rows, handoff.frontier()));
        Deliveries { batch, handoff, engine, view }
    }

    /// Returns the end of the stream, once everything before it was taken.
    fn end(&mut self) -> Option<ReceiveError> {
        let end = match self.shared.end()? {
            End::Finished => ReceiveError::Finished,
            End::Broken(ended) => ReceiveError::Ended(ended.clone()),
        };
        // The receiver now sees everything that the engine handed off before it ended.
        if self.is_ready() { None } else { Some(end) }
    }

    /// Returns whether a message is ready, or the end, if one of the two has come.
    fn look(&mut self) -> Option<Result<(), ReceiveError>> {
        if self.is_ready() {
            return Some(Ok(()));
        }
        match self.end() {
            Some(end) => Some(Err(end)),
            // The search for the end may have found the last messages.
            None => self.is_ready().then_some(Ok(())),
        }
    }

    /// Becomes ready once a message is, or with the end. At most one task waits at a time.
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReceiveError>> {
        self.inlet.leave();
        if let Some(outcome) = self.look() {
            return Poll::Ready(outcome);
        }
        self.inlet.enter(context.waker());
        // A message that came before the announcement woke no task.
        match self.look() {
            Some(outcome) => {
                self.inlet.leave();
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }

    /// Returns the view of the next messages.
    pub(crate) fn shared_view(&self) -> &Arc<View> {
        &self.stretch.view
    }

    #[cold]
    fn wait(&mut self, timeout: Duration) -> Result<(), ReceiveError> {
        let start = Instant::now();
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.is_ready() {
                return Ok(());
            }
        }
        loop {
            let announced = self.inlet.event_count.announce();
            let (ready, end) = (self.is_ready(), self.end());
            let left = timeout.saturating_sub(start.elapsed());
            if ready || end.is_some() || left.is_zero() {
                self.inlet.event_count.withdraw(announced);
                return match end {
                    _ if ready || self.is_ready() => Ok(()),
                    Some(end) => Err(end),
                    None => Err(ReceiveError::TimedOut { waited: start.elapsed() }),
                };
            }
            self.inlet.event_count.wait(announced, left.min(SLEEP_MAX));
        }
    }
}

impl Receiver {
    pub(crate) fn new(stretch: Stretch, inlet: Arc<Inlet>, shared: Arc<Shared>) -> Receiver {
        Receiver { stretch, inlet, shared }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.inlet.leave();
        self.inlet.gone.store(true, Ordering::Release);
        self.stretch.handoff.give_up();
        for stretch in self.inlet.lock().drain(..) {
            stretch.handoff.give_up();
        }
        self.stretch.engine.ring();
    }
}

impl Inlet {
    pub(crate) fn new() -> Inlet {
        Inlet {
            event_count: EventCount::new(),
            task: Mutex::default(),
            stretches: Mutex::default(),
            gone: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Stretch>> {
        self.stretches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Stretch> {
        self.lock().pop_front()
    }

    /// Wakes the member through its newest view, or through `current` if no other is left.
    fn ring_newest(&self, current: &Stretch) {
        self.lock().back().unwrap_or(current).engine.ring();
    }

    fn task(&self) -> MutexGuard<'_, Option<(Waker, Announced)>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a task, which then has to look for messages once more.
    fn enter(&self, waker: &Waker) {
        let waker = waker.clone();
        let mut task = self.task();
        // Under the lock: a thread that rings and sees the announcement finds the waker.
        *task = Some((waker, self.event_count.announce()));
    }

    /// Withdraws the task, unless it was woken.
    fn leave(&self) {
        let task = self.task().take();
        if let Some((_, announced)) = task {
            self.event_count.withdraw(announced);
        }
    }

    /// Wakes the receiver, if it waits. The caller stores the news before it calls this.
    pub(crate) fn wake(&self) {
        if self.event_count.ring() {
            self.wake_task();
        }
    }

    #[cold]
    fn wake_task(&self) {
        let task = self.task().take();
        if let Some((waker, announced)) = task {
            self.event_count.withdraw(announced);
            waker.wake();
        }
    }

    /// Returns how many views the receiver is behind.
    pub(crate) fn behind(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn put(&self, stretch: Stretch) {
        let mut stretches = self.lock();
        if self.gone.load(Ordering::Acquire) {
            stretch.handoff.give_up();
            return;
        }
        stretches.push_back(stretch);
        drop(stretches);
        self.wake();
    }
}

/// Becomes ready with a receiver that has messages, or with the end.
struct Waiting<'a>(&'a mut Receiver);

impl Future for Waiting<'_> {
    type Output = Result<(), ReceiveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_ready(context)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.inlet.leave();
    }
}

impl<'a> Deliveries<'a> {
    /// Returns the view in which the members of the subgroup began to send all of these. It maps
    /// ranks to members.
    pub fn view(&self) -> &'a View {
        self.view
    }

    /// Returns the messages that are left. Messages that are not taken are offered again.
    #[inline]
    pub fn iter(&mut self) -> Messages<'_, 'a> {
        Messages { batch: self.batch.as_mut() }
    }

    /// Calls `upcall` with every message that is left. It is faster than a loop over the iterator.
    /// If `upcall` panics, the message that it was called with counts as delivered.
    #[inline]
    pub fn for_each(mut self, upcall: impl FnMut(Message<'_>)) {
        if let Some(batch) = &mut self.batch {
            batch.for_each(upcall);
        }
    }
}

impl<'d, 'a> IntoIterator for &'d mut Deliveries<'a> {
    type Item = Message<'d>;
    type IntoIter = Messages<'d, 'a>;

    #[inline]
    fn into_iter(self) -> Messages<'d, 'a> {
        self.iter()
    }
}

impl<'d> Iterator for Messages<'d, '_> {
    type Item = Message<'d>;

    #[inline]
    fn next(&mut self) -> Option<Message<'d>> {
        self.batch.as_mut()?.next()
    }
}

impl Drop for Deliveries<'_> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.report(self.handoff);
            self.engine.ring();
        }
    }
}
