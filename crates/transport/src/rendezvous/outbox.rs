//! Control messages that wait until others have emptied their queues: a queue may hold as few as
//! ten, and a view change sends one to every member at once.
use super::control_socket::{ControlSocket, SendOutcome};
use super::error::RendezvousError;
use super::limits::{
    FULL_PAUSE_MAX, FULL_PER_PAUSE, OUTBOX_CONTROL_MESSAGES_MAX, RESEND_PAUSE, UNREACHED_CONTROL_MESSAGES_MAX,
    UNREACHED_PAUSE_MAX,
};
use spindle_core::MemberId;
use spindle_core::control::ControlMessage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Control messages to be sent, in order for each addressee. No addressee waits for another one's
/// queue.
#[derive(Debug, Default)]
pub struct Outbox {
    messages: VecDeque<OutgoingMessage>,
    /// When to try addressees again that had no room, or no address. A failed attempt costs as much
    /// as one that succeeds, and an addressee may be slow just because hundreds of processes try.
    pauses: BTreeMap<MemberId, Pause>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    /// The time of the next attempt.
    until: Instant,
    /// The length of the pause.
    length: Duration,
}

#[derive(Debug)]
struct OutgoingMessage {
    to: MemberId,
    message: ControlMessage,
    fds: Vec<Arc<OwnedFd>>,
}

impl Outbox {
    /// Creates an empty outbox.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Adds a control message; the next [`flush`](Self::flush) sends it.
    ///
    /// # Errors
    /// [`RendezvousError::OutboxFull`].
    pub fn push(&mut self, to: MemberId, message: ControlMessage, fds: &[Arc<OwnedFd>]) -> Result<(), RendezvousError> {
        if self.messages.len() >= OUTBOX_CONTROL_MESSAGES_MAX {
            return Err(RendezvousError::OutboxFull { max: OUTBOX_CONTROL_MESSAGES_MAX as u64 });
        }
        self.messages.push_back(OutgoingMessage { to, message, fds: fds.to_vec() });
        Ok(())
    }

    /// Makes the next [`flush`](Self::flush) try all addressees: there is no later one.
    pub fn hurry(&mut self) {
        self.pauses.clear();
    }

    /// Sends what can be sent now, without waiting. Addressees that could not be reached a moment
    /// ago are not tried. Returns the addressees that have no address now, which proves nothing
    /// about their processes. The newest control messages to them are kept, and tried again until
    /// they are [forgotten](Self::forget).
    ///
    /// # Errors
    /// The first error that is not a full queue. That control message is dropped; all others were
    /// tried.
    ///
    /// # Panics
    /// As [`ControlSocket::send`].
    pub fn flush(&mut self, control_socket: &ControlSocket) -> Result<BTreeSet<MemberId>, RendezvousError> {
        let now = Instant::now();
        let Self { messages, pauses } = self;
        // All processes that have as many addressees try each of them. Together they must not keep
        // the addressees from reading.
        let longest = FULL_PAUSE_MAX * (1 + pauses.len() as u32 / FULL_PER_PAUSE);
        let mut gone = BTreeSet::new();
        let mut failed = None;
        messages.retain(|OutgoingMessage { to, message, fds }| {
            let last = pauses.get(to).copied();
            if last.is_some_and(|pause| pause.until > now) {
                return true;
            }
            let twice = last.map_or(RESEND_PAUSE, |pause| 2 * pause.length);
            let mut pause = |length: Duration| _ = pauses.insert(*to, Pause { until: now + length, length });
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            match control_socket.send(*to, message, &fds) {
                Ok(SendOutcome::Done) => {
                    // There is room again, but little.
                    match last.map(|last| last.length / 2).filter(|half| *half >= RESEND_PAUSE) {
                        Some(length) => _ = pauses.insert(*to, Pause { until: now, length }),
                        None => _ = pauses.remove(to),
                    }
                    false
                }
                Ok(SendOutcome::Full) => {
                    pause(twice.min(longest));
                    true
                }
                Ok(SendOutcome::Gone) => {
                    pause(twice.min(UNREACHED_PAUSE_MAX));
                    gone.insert(*to);
                    true
                }
                Err(error) => {
                    failed.get_or_insert(error);
                    false
                }
            }
        });
        if messages.is_empty() {
            // Queues that were full once need not be full the next time.
            pauses.clear();
        }
        for id in &gone {
            self.drop_oldest(*id);
        }
        match failed {
            None => Ok(gone),
            Some(error) => Err(error),
        }
    }

    fn drop_oldest(&mut self, to: MemberId) {
        let mut excess =
            self.addressees().filter(|id| *id == to).count().saturating_sub(UNREACHED_CONTROL_MESSAGES_MAX);
        self.messages.retain(|message| {
            let drops = message.to == to && excess > 0;
            excess -= usize::from(drops);
            !drops
        });
    }

    /// Drops the control messages to a process.
    pub fn forget(&mut self, to: MemberId) {
        self.messages.retain(|message| message.to != to);
        self.pauses.remove(&to);
    }

    /// Returns how long to wait at most before the next [`flush`](Self::flush); `None`: no control
    /// message waits.
    pub fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let wait = |to| self.pauses.get(&to).map_or(Duration::ZERO, |pause| pause.until.saturating_duration_since(now));
        self.addressees().map(wait).min()
    }

    /// Returns the addressees of waiting control messages, one for each.
    pub fn addressees(&self) -> impl Iterator<Item = MemberId> {
        self.messages.iter().map(|message| message.to)
    }

    /// Returns whether a control message to `to` waits.
    pub fn holds_for(&self, to: MemberId) -> bool {
        self.addressees().any(|addressee| addressee == to)
    }

    /// Returns how many control messages wait.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether no control message waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
