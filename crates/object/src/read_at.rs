//! Reads of an earlier state, which is made from the disk on the caller's thread.
use crate::error::{End, ReadAtError};
use crate::history::{Bound, History, HistoryError, position, version};
use crate::message::Message;
use crate::replicated::{Replicated, deadline};
use crate::state_machine::StateMachine;
use crate::waiting::{Inside, block_on};
use spindle::{Outcome, Position};
use spindle_log::Version;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The longest pause between two looks at the disk.
const LOOK_MAX: Duration = Duration::from_millis(20);

/// An earlier state of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// After the message of this version, and all before it. `spindle log cat` lists versions.
    Version(Position),
    /// After all messages with a [clock](spindle::ReplayedMessage::clock) of at most this time. The clock
    /// of a message is the time at which it was sent, by its sender's clock, or later.
    Time(SystemTime),
}

impl<T: StateMachine> Replicated<T> {
    /// Reads the object as it was. The state is made on the caller's thread from this member's disk: from
    /// the newest snapshot that is old enough, or the first state, and the messages behind it. It needs
    /// memory for another copy of the object, and the time to execute these messages.
    ///
    /// The state is the same at all members. A read by version waits until the message of this version,
    /// or a later one, is on this member's disk. A read by time waits until no further message can get a
    /// clock of at most that time, for which it sends a message if the group is idle. `timeout` is the
    /// time for the wait and for making the state.
    ///
    /// # Errors
    /// [`ReadAtError`].
    pub fn read_at<R>(&self, at: At, read: impl FnOnce(&T) -> R, timeout: Duration) -> Result<R, ReadAtError> {
        if Inside::is_running() {
            return Err(ReadAtError::InHandler);
        }
        if let Some(end) = self.shared.waiting.ended() {
            return Err(end.into());
        }
        let Some(history) = self.shared.history.get() else { return Err(ReadAtError::NoLog) };
        let until = deadline(timeout);
        let timed_out =
            || ReadAtError::TimedOut { waited: timeout, logged: history.logged().ok().flatten().map(position) };
        let bound = match at {
            At::Version(at) => {
                self.await_logged(history, version(at), until)?.then_some(()).ok_or_else(timed_out)?;
                Bound::Through(version(at))
            }
            At::Time(time) => {
                let clock = clock_of(time);
                self.await_clock(history, clock, until)?.then_some(()).ok_or_else(timed_out)?;
                Bound::Clock(clock)
            }
        };
        let then = history.state_at(bound, &|| Instant::now() >= until).map_err(|error| match error {
            HistoryError::Pruned { oldest } => ReadAtError::Pruned {
                oldest: oldest.map(|(version, _)| position(version)),
                time: oldest.map(|(_, clock)| SystemTime::UNIX_EPOCH + Duration::from_nanos(clock)),
            },
            HistoryError::Stopped(stopped) => End::Stopped(stopped).into(),
            HistoryError::Cancelled => timed_out(),
            error => ReadAtError::Unreadable { reason: error.to_string() },
        })?;
        // A call in `read` is refused here as it is in other reads.
        let _inside = Inside::enter();
        Ok(read(then.machine.object()))
    }

    /// Returns the version of the newest message on this member's disk; `None` if there is none, or if the
    /// subgroup has no log.
    pub fn logged(&self) -> Option<Position> {
        self.shared.history.get()?.logged().ok()?.map(position)
    }

    /// Waits until a message of at least this version is on disk. Returns whether it is.
    fn await_logged(&self, history: &History<T>, version: Version, until: Instant) -> Result<bool, ReadAtError> {
        let mut pause = Duration::from_millis(1);
        loop {
            let logged = history.logged().map_err(|error| ReadAtError::Unreadable { reason: error.to_string() })?;
            if logged >= Some(version) {
                return Ok(true);
            }
            if let Some(end) = self.shared.waiting.ended() {
                return Err(end.into());
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            // The thread that writes the log tells no other thread.
            thread::park_timeout(pause.min(until.saturating_duration_since(Instant::now())));
            pause = (2 * pause).min(LOOK_MAX);
        }
    }

    /// Waits until a message with a later clock is on disk: clocks rise along the log. Returns whether
    /// one is.
    fn await_clock(&self, history: &History<T>, clock: u64, until: Instant) -> Result<bool, ReadAtError> {
        loop {
            let end = history.end().map_err(|error| ReadAtError::Unreadable { reason: error.to_string() })?;
            if end.is_some_and(|(_, last)| last > clock) {
                return Ok(true);
            }
            let early = Duration::from_nanos(clock.saturating_sub(clock_of(SystemTime::now())));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if !early.is_zero() {
                thread::park_timeout(early.min(left));
                continue;
            }
            // Its clock is the time at which it is sent, or later.
            let Some(at) = block_on(self.send_tick(), until) else { return Ok(false) };
            if !self.await_logged(history, version(at?), until)? {
                return Ok(false);
            }
        }
    }

    /// Sends a message that changes nothing. Returns its version once it is delivered here.
    async fn send_tick(&self) -> Result<Position, ReadAtError> {
        let bytes = Message::Tick { nonce: self.nonce() }.encode();
        let receipt =
            self.sender().send_tracked_async(&bytes).await.map_err(|error| match self.end_behind(&error) {
                Some(end) => end.into(),
                None => ReadAtError::Send(error),
            })?;
        match receipt.await {
            Outcome::Delivered { epoch, sequence } => Ok(Position { epoch, sequence }),
            _ => Err(self.shared.waiting.ended().unwrap_or(End::Left).into()),
        }
    }
}

/// Returns a time in nanoseconds since 1970, as the clocks of messages are.
fn clock_of(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
