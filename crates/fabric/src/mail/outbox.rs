//! Letters that wait until others have emptied their mailboxes: a mailbox may hold as few as ten, and a view change
//! sends one to everybody at once.
use super::error::MailError;
use super::limits::{FULL_PAUSE_MAX, OUTBOX_LETTERS_MAX, RESEND_PAUSE, UNREACHED_LETTERS_MAX, UNREACHED_PAUSE_MAX};
use super::mailbox::{Delivery, Mailbox};
use spindle_core::MemberId;
use spindle_core::control::Letter;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Letters to be sent, in order for each addressee. Nobody waits here for anybody else's mailbox.
#[derive(Debug, Default)]
pub struct Outbox {
    letters: VecDeque<Outgoing>,
    /// When to try addressees again that had no room, or no address. A failed try costs as much as one that succeeds, and an addressee may be slow just because
    /// hundreds of processes try.
    pauses: BTreeMap<MemberId, Pause>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    /// When to try again.
    until: Instant,
    /// How long it was.
    length: Duration,
}

#[derive(Debug)]
struct Outgoing {
    to: MemberId,
    letter: Letter,
    fds: Vec<Arc<OwnedFd>>,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Adds a letter; the next [`flush`](Self::flush) sends it.
    ///
    /// # Errors
    /// [`MailError::OutboxFull`].
    pub fn push(&mut self, to: MemberId, letter: Letter, fds: &[Arc<OwnedFd>]) -> Result<(), MailError> {
        if self.letters.len() >= OUTBOX_LETTERS_MAX {
            return Err(MailError::OutboxFull { max: OUTBOX_LETTERS_MAX as u64 });
        }
        self.letters.push_back(Outgoing { to, letter, fds: fds.to_vec() });
        Ok(())
    }

    /// Lets the next [`flush`](Self::flush) try all addressees: there is no later one.
    pub fn hurry(&mut self) {
        self.pauses.clear();
    }

    /// Sends what can be sent now, without waiting; who could not be written to a moment ago is not tried. The answer: who has no address
    /// now. That proves nothing about its process. Letters to it are kept, the newest of them, and tried again until they are
    /// [forgotten](Self::forget).
    ///
    /// # Errors
    /// The first that is no matter of a full queue. That letter is dropped, all others were tried.
    ///
    /// # Panics
    /// As [`Mailbox::send`].
    pub fn flush(&mut self, mailbox: &Mailbox) -> Result<BTreeSet<MemberId>, MailError> {
        let now = Instant::now();
        let Self { letters, pauses } = self;
        let mut gone = BTreeSet::new();
        let mut failed = None;
        letters.retain(|Outgoing { to, letter, fds }| {
            let last = pauses.get(to).copied();
            if last.is_some_and(|pause| pause.until > now) {
                return true;
            }
            let twice = last.map_or(RESEND_PAUSE, |pause| 2 * pause.length);
            let mut pause = |length: Duration| _ = pauses.insert(*to, Pause { until: now + length, length });
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            match mailbox.send(*to, letter, &fds) {
                Ok(Delivery::Done) => {
                    // There is room for more, and little of it.
                    match last.map(|last| last.length / 2).filter(|half| *half >= RESEND_PAUSE) {
                        Some(length) => _ = pauses.insert(*to, Pause { until: now, length }),
                        None => _ = pauses.remove(to),
                    }
                    false
                }
                Ok(Delivery::Full) => {
                    pause(twice.min(FULL_PAUSE_MAX));
                    true
                }
                Ok(Delivery::Gone) => {
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
        if letters.is_empty() {
            // What was crowded once need not be so the next time.
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
        let mut excess = self.addressees().filter(|id| *id == to).count().saturating_sub(UNREACHED_LETTERS_MAX);
        self.letters.retain(|letter| {
            let drops = letter.to == to && excess > 0;
            excess -= usize::from(drops);
            !drops
        });
    }

    /// Drops the letters to somebody.
    pub fn forget(&mut self, to: MemberId) {
        self.letters.retain(|letter| letter.to != to);
        self.pauses.remove(&to);
    }

    /// How long to wait at most before the next [`flush`](Self::flush); `None`: nothing waits to be sent.
    pub fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let wait = |to| self.pauses.get(&to).map_or(Duration::ZERO, |pause| pause.until.saturating_duration_since(now));
        self.addressees().map(wait).min()
    }

    /// To whom letters wait, one for each letter.
    pub fn addressees(&self) -> impl Iterator<Item = MemberId> {
        self.letters.iter().map(|letter| letter.to)
    }

    /// Whether a letter to `to` waits.
    pub fn holds_for(&self, to: MemberId) -> bool {
        self.addressees().any(|addressee| addressee == to)
    }

    /// How many letters wait.
    pub fn len(&self) -> usize {
        self.letters.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }
}
