//! Letters that wait until others have emptied their mailboxes: a mailbox may hold as few as ten, and a view change
//! sends one to everybody at once.
use super::error::MailError;
use super::mailbox::{Delivery, Mailbox};
use super::wire::Letter;
use crate::meet::limits::{OUTBOX_LETTERS_MAX, RESEND_PAUSE};
use spindle_core::MemberId;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Letters to be sent, in order for each addressee. Nobody waits here for anybody else's mailbox.
#[derive(Debug, Default)]
pub struct Outbox {
    letters: VecDeque<Outgoing>,
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

    /// Sends what can be sent now, without waiting. The answer: who is gone. The letters to them are dropped.
    ///
    /// # Errors
    /// The first that is no matter of a full queue. That letter is dropped, all others were tried.
    ///
    /// # Panics
    /// As [`Mailbox::send`].
    pub fn flush(&mut self, mailbox: &Mailbox) -> Result<BTreeSet<MemberId>, MailError> {
        let (mut full, mut gone) = (BTreeSet::new(), BTreeSet::new());
        let mut failed = None;
        self.letters.retain(|Outgoing { to, letter, fds }| {
            if full.contains(to) {
                return true;
            }
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            match mailbox.send(*to, letter, &fds) {
                Ok(Delivery::Done) => false,
                Ok(Delivery::Full) => {
                    full.insert(*to);
                    true
                }
                Ok(Delivery::Gone) => {
                    gone.insert(*to);
                    false
                }
                Err(error) => {
                    failed.get_or_insert(error);
                    false
                }
            }
        });
        match failed {
            None => Ok(gone),
            Some(error) => Err(error),
        }
    }

    /// Drops the letters to somebody.
    pub fn forget(&mut self, to: MemberId) {
        self.letters.retain(|letter| letter.to != to);
    }

    /// How long to wait at most before the next [`flush`](Self::flush); `None`: nothing waits to be sent.
    pub fn patience(&self) -> Option<Duration> {
        (!self.letters.is_empty()).then_some(RESEND_PAUSE)
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
