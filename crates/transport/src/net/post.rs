//! The control messages to one address, and the connection on which they leave.
use super::error::NetError;
use super::limits::{
    BACK_OFF_MAX, BACK_OFF_MIN, CONTROL_MESSAGES_DEADLINE, QUEUE_BYTES_MAX, QUEUE_CONTROL_MESSAGES_MAX,
};
use super::messages::{self, QueuedMessage};
use super::poller::{Poller, Wire};
use crate::stream::Space;
use spindle_core::MemberId;
use spindle_core::control::{Address, Card};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Post {
    pub(super) address: Address,
    parcels: VecDeque<QueuedMessage>,
    /// Bytes of the first control message that have left.
    sent: usize,
    pub(super) state: PostState,
    /// Since when control messages have waited without a connection.
    waiting_since: Instant,
    back_off: Duration,
    /// Whether a control message was dropped for lack of room, and none has found room since.
    was_full: bool,
    /// The reason why the last connection attempt failed.
    failed: Option<NetError>,
}

#[derive(Debug)]
pub(super) enum PostState {
    /// A connection attempt is in progress.
    Trying,
    /// The next connection attempt starts at this time.
    Pausing(Instant),
    Up(Wire, Card),
}

impl Post {
    /// Creates a queue that waits for its first connection attempt.
    pub(super) fn new(address: Address) -> Post {
        Post {
            address,
            parcels: VecDeque::new(),
            sent: 0,
            state: PostState::Trying,
            waiting_since: Instant::now(),
            back_off: BACK_OFF_MIN,
            was_full: false,
            failed: None,
        }
    }

    /// Queues a control message.
    ///
    /// # Errors
    /// The reason why the control message is dropped; `None`: a reason that was reported for an
    /// earlier one.
    pub(super) fn push(&mut self, parcel: QueuedMessage) -> Result<(), Option<NetError>> {
        if let PostState::Up(_, card) = &self.state
            && let Some(wanted) = parcel.whom.filter(|wanted| *wanted != card.id)
        {
            return Err(Some(self.elsewhere(wanted, card.id)));
        }
        let bytes: usize = self.parcels.iter().map(QueuedMessage::len).sum();
        if self.parcels.len() >= QUEUE_CONTROL_MESSAGES_MAX || bytes + parcel.len() > QUEUE_BYTES_MAX {
            let told = std::mem::replace(&mut self.was_full, true);
            let messages = self.parcels.len() as u64;
            return Err((!told).then(|| NetError::QueueFull { address: self.address.clone(), messages }));
        }
        self.was_full = false;
        self.parcels.push_back(parcel);
        Ok(())
    }

    fn elsewhere(&self, wanted: MemberId, found: MemberId) -> NetError {
        NetError::Elsewhere { address: self.address.clone(), wanted, found }
    }

    /// Records a connection. Returns an error for each control message that is for another member.
    pub(super) fn connected(&mut self, wire: Wire, card: Card) -> Vec<NetError> {
        let found = card.id;
        self.state = PostState::Up(wire, card);
        let (stay, go): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.parcels).into_iter().partition(|parcel| parcel.whom.is_none_or(|id| id == found));
        self.parcels = stay;
        go.into_iter().filter_map(|parcel| parcel.whom).map(|wanted| self.elsewhere(wanted, found)).collect()
    }

    /// Records that the connection has ended, or that no new one could be made.
    pub(super) fn disconnected(&mut self, why: Option<NetError>) {
        let now = Instant::now();
        if matches!(self.state, PostState::Up(..)) {
            self.waiting_since = now;
        }
        // The receiver has not got all of this control message, and discards the rest with the
        // connection.
        self.sent = 0;
        self.failed = why.or(self.failed.take());
        self.state = PostState::Pausing(now + self.back_off);
        self.back_off = (2 * self.back_off).min(BACK_OFF_MAX);
    }

    /// Sends what the connection accepts. Returns whether the connection is still up.
    pub(super) fn progress(&mut self, poller: &Poller) -> bool {
        let PostState::Up(wire, _) = &mut self.state else { return true };
        let before = self.parcels.len();
        let Ok(all) = messages::send(&mut self.parcels, &mut self.sent, &mut *wire.stream) else { return false };
        if self.parcels.len() < before {
            self.back_off = BACK_OFF_MIN;
        }
        wire.want_out(poller, !all);
        // Only the end of the connection can arrive.
        match wire.stream.receive(&mut [Space::of(&mut [0; 16])]) {
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, PostState::Up(..))
    }

    /// Returns whether a control message that was pushed can be sent at once.
    pub(super) fn can_send(&self) -> bool {
        matches!(&self.state, PostState::Up(wire, _) if !wire.wants_out())
    }

    /// Returns whether control messages wait that have not left in full.
    pub(super) fn has_messages(&self) -> bool {
        !self.parcels.is_empty()
    }

    /// Returns whether the system has all control messages.
    pub(super) fn is_flushed(&self) -> bool {
        self.parcels.is_empty() && !matches!(&self.state, PostState::Up(wire, _) if wire.stream.holds_back())
    }

    /// Returns when it next needs to run, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.state {
            PostState::Up(..) => None,
            PostState::Trying => Some(self.gives_up_at()),
            PostState::Pausing(until) => Some(until.min(self.gives_up_at())),
        }
    }

    fn gives_up_at(&self) -> Instant {
        self.waiting_since + CONTROL_MESSAGES_DEADLINE
    }

    /// Returns the reason why its control messages are given up now, if they are.
    pub(super) fn gives_up(&mut self, now: Instant) -> Option<NetError> {
        if self.is_up() || now < self.gives_up_at() {
            return None;
        }
        let (address, what, after) = (self.address.clone(), "take a control message", CONTROL_MESSAGES_DEADLINE);
        Some(self.failed.take().unwrap_or(NetError::TimedOut { address, what, after }))
    }
}
