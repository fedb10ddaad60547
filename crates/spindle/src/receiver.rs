//! Receiving on the application's own thread.
use crate::error::ReceiveError;
use crate::shared::{End, Shared};
use spindle_core::{Batch, Cursor, Handoff, Message};
use spindle_fabric::{Bell, Doorbell, ShmReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks at the frontier before a receiver goes to sleep.
const SPINS: u32 = 64;
/// The longest single sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The deliveries of one subgroup, taken in order on any one thread, lent in place.
///
/// There is no queue: messages stay in their senders' rings until they are taken. A receiver that is slow holds its own
/// `delivered` count back, which everybody sees as its lag, and in the end the senders, whose rings fill up. One that is
/// dropped holds nobody up: what comes after counts as delivered here.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) cursor: Cursor,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) rows: ShmReader,
    /// Wakes this receiver.
    pub(crate) bell: Bell,
    /// Wakes the engine.
    pub(crate) engine: Doorbell,
    pub(crate) shared: Arc<Shared>,
}

/// Messages in the order of delivery, to be read while this lives. Those that were taken count as delivered when it is
/// dropped, and their senders write over them then; the others are offered again.
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
    batch: Option<Batch<'a, ShmReader>>,
    handoff: &'a Handoff,
    engine: &'a Doorbell,
}

/// The messages of [`Deliveries`], which stay lent as long as this or any of them lives.
#[derive(Debug)]
pub struct Messages<'d, 'a> {
    batch: Option<&'d mut Batch<'a, ShmReader>>,
}

impl Receiver {
    /// The messages that are ready, at least one; waits up to `timeout` for the first.
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`]; [`ReceiveError::Finished`] after the last message; [`ReceiveError::Ended`] after the
    /// last that is known to be everywhere, if the group ended early.
    pub fn receive(&mut self, timeout: Duration) -> Result<Deliveries<'_>, ReceiveError> {
        if !self.is_ready() {
            self.wait(timeout)?;
        }
        Ok(self.deliveries())
    }

    /// The messages that are ready at this moment, if any.
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

    /// Whether a message is ready; passes over the nulls before it.
    fn is_ready(&mut self) -> bool {
        let frontier = self.handoff.frontier();
        if !self.cursor.is_behind(frontier) {
            return false;
        }
        let mut batch = self.cursor.advance(&self.rows, frontier);
        if batch.has_next() {
            return true;
        }
        batch.report(&self.handoff);
        self.engine.ring();
        false
    }

    fn deliveries(&mut self) -> Deliveries<'_> {
        let frontier = self.handoff.frontier();
        let batch = Some(self.cursor.advance(&self.rows, frontier));
        Deliveries { batch, handoff: &self.handoff, engine: &self.engine }
    }

    /// The end of the stream, once nothing that came before it is left.
    fn end(&mut self) -> Option<ReceiveError> {
        let end = match self.shared.end()? {
            End::Finished => ReceiveError::Finished,
            End::Broken(ended) => ReceiveError::Ended(ended.clone()),
        };
        // What the engine handed off before it ended is seen now.
        if self.is_ready() { None } else { Some(end) }
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
            let announced = self.bell.announce();
            let (ready, end) = (self.is_ready(), self.end());
            let left = timeout.saturating_sub(start.elapsed());
            if ready || end.is_some() || left.is_zero() {
                self.bell.withdraw(announced);
                return match end {
                    _ if ready || self.is_ready() => Ok(()),
                    Some(end) => Err(end),
                    None => Err(ReceiveError::TimedOut { waited: start.elapsed() }),
                };
            }
            self.bell.wait(announced, left.min(SLEEP_MAX));
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.handoff.give_up();
        self.engine.ring();
    }
}

impl<'a> Deliveries<'a> {
    /// The messages that are left. Those that are not taken are offered again.
    #[inline]
    pub fn iter(&mut self) -> Messages<'_, 'a> {
        Messages { batch: self.batch.as_mut() }
    }

    /// Calls `upcall` with every message that is left. Faster than a loop over the iterator. If `upcall` panics, the message that it
    /// was called with counts as delivered.
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
