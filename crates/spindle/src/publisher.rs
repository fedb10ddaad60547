//! Sending: claim space in this member's ring, fill it in place, commit.
use crate::error::SendError;
use crate::shared::{Shared, Upcall};
use spindle_core::ClaimError;
use spindle_fabric::{Frame, PublishError};
use std::sync::Arc;
use std::time::Duration;

/// The only sender of this member in one subgroup; [`share`](Self::share) makes it one for many threads.
///
/// When it is dropped, this member has finished sending in the subgroup.
#[derive(Debug)]
pub struct Publisher {
    inner: spindle_fabric::Publisher,
    shared: Arc<Shared>,
}

/// A sender that many threads use at once, at the price of one atomic read-modify-write a message.
///
/// When the last clone is dropped, this member has finished sending in the subgroup.
#[derive(Clone, Debug)]
pub struct SharedPublisher {
    inner: spindle_fabric::SharedPublisher,
    shared: Arc<Shared>,
}

impl Publisher {
    pub(crate) fn new(inner: spindle_fabric::Publisher, shared: Arc<Shared>) -> Publisher {
        Publisher { inner, shared }
    }

    /// Claims a frame of `len` bytes if there is room at this moment: `None` if the ring is full.
    ///
    /// # Errors
    /// [`SendError::TooLong`] and [`SendError::Ended`].
    #[inline(always)]
    pub fn try_claim(&mut self, len: u64) -> Result<Option<Frame<'_>>, SendError> {
        now(self.inner.claim(len), &self.shared)
    }

    /// Claims a frame of `len` bytes; waits up to `timeout` for room. Other threads poll meanwhile: a caller that polls
    /// itself uses [`try_claim`](Self::try_claim).
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn claim(&mut self, len: u64, timeout: Duration) -> Result<Frame<'_>, SendError> {
        self.inner.claim_timeout(len, patience(timeout)).map_err(|error| failed(error, &self.shared))
    }

    /// Claims a frame of `len` bytes; waits for room without a thread, in any runtime.
    ///
    /// # Errors
    /// [`SendError::TooLong`] and [`SendError::Ended`].
    pub async fn claim_async(&mut self, len: u64) -> Result<Frame<'_>, SendError> {
        self.inner.claim_async(len).await.map_err(|error| failed(error, &self.shared))
    }

    /// Copies `payload` into a frame and commits it; waits up to `timeout` for room.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&mut self, payload: &[u8], timeout: Duration) -> Result<(), SendError> {
        let mut frame = self.claim(payload.len() as u64, timeout)?;
        frame.copy_from_slice(payload);
        frame.commit();
        Ok(())
    }

    /// Declares `rounds` rounds in which this member sends nothing, so that nobody waits for it.
    pub fn skip_rounds(&self, rounds: u64) {
        self.inner.skip_rounds(rounds);
    }

    /// Lets several threads send.
    pub fn share(self) -> SharedPublisher {
        SharedPublisher { inner: self.inner.share(), shared: self.shared }
    }
}

impl SharedPublisher {
    /// As [`Publisher::try_claim`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_claim(&self, len: u64) -> Result<Option<Frame<'_>>, SendError> {
        now(self.inner.claim(len), &self.shared)
    }

    /// As [`Publisher::claim`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn claim(&self, len: u64, timeout: Duration) -> Result<Frame<'_>, SendError> {
        self.inner.claim_timeout(len, patience(timeout)).map_err(|error| failed(error, &self.shared))
    }

    /// As [`Publisher::claim_async`].
    ///
    /// # Errors
    /// As there.
    pub async fn claim_async(&self, len: u64) -> Result<Frame<'_>, SendError> {
        self.inner.claim_async(len).await.map_err(|error| failed(error, &self.shared))
    }

    /// As [`Publisher::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, payload: &[u8], timeout: Duration) -> Result<(), SendError> {
        let mut frame = self.claim(payload.len() as u64, timeout)?;
        frame.copy_from_slice(payload);
        frame.commit();
        Ok(())
    }

    /// As [`Publisher::skip_rounds`].
    pub fn skip_rounds(&self, rounds: u64) {
        self.inner.skip_rounds(rounds);
    }
}

/// A ring whose group has ended is full for ever, so that only a full ring has to ask.
#[inline(always)]
fn now<'a>(claimed: Result<Frame<'a>, ClaimError>, shared: &Shared) -> Result<Option<Frame<'a>>, SendError> {
    match claimed {
        Ok(frame) => Ok(Some(frame)),
        Err(ClaimError::Full) => shared.broken().map_or(Ok(None), |ended| Err(SendError::Ended(ended.clone()))),
        Err(ClaimError::TooLong { len, max }) => Err(SendError::TooLong { len, max }),
    }
}

/// How long to wait: in an upcall not at all, because the waiting thread is the one that makes room.
#[inline]
fn patience(timeout: Duration) -> Duration {
    if Upcall::is_running() { Duration::ZERO } else { timeout }
}

#[cold]
fn failed(error: PublishError, shared: &Shared) -> SendError {
    match error {
        PublishError::TooLong { len, max } => SendError::TooLong { len, max },
        PublishError::Full { .. } if Upcall::is_running() => SendError::InUpcall,
        PublishError::Full { waited } => SendError::Full { waited },
        // The room ends only after the reason is known, or with the last message delivered.
        _ => shared.broken().cloned().map_or(SendError::Ended(crate::Ended::Dropped), SendError::Ended),
    }
}
