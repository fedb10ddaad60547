//! Sending: claim space in this member's ring, fill it in place, commit.
use super::publisher_slot::{Held, PublisherSlot, failed, go_on, go_on_shared, poll_go_on, poll_go_on_shared};
use super::receipt::Receipt;
use crate::bulk::{Buffer, Object};
use crate::error::SendError;
use crate::large::Permit;
use crate::shared::Upcall;
use spindle_core::ClaimError;
use spindle_core::control::ObjectName;
use spindle_fabric::Frame;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The only sender of this member in one subgroup. [`share`](Self::share) turns it into one for
/// many threads.
///
/// It stays valid while views change. When it is dropped, this member has finished sending in the
/// subgroup.
#[derive(Debug)]
pub struct Publisher {
    inner: spindle_fabric::Publisher,
    held: Held,
}

/// A sender for many threads at once, each with a clone. It costs one atomic read-modify-write a
/// message.
///
/// When the last clone is dropped, this member has finished sending in the subgroup.
#[derive(Clone, Debug)]
pub struct SharedPublisher {
    inner: spindle_fabric::SharedPublisher,
    held: Arc<Held>,
}

impl Publisher {
    pub(crate) fn new(inner: spindle_fabric::Publisher, slot: Arc<PublisherSlot>) -> Publisher {
        Publisher { inner, held: Held(slot) }
    }

    /// Claims a frame of `len` bytes if the ring has room now. Returns `None` if the ring is full
    /// or the view is changing.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::NoSender`] and [`SendError::Ended`].
    #[inline(always)]
    pub fn try_claim(&mut self, len: u64) -> Result<Option<Frame<'_>>, SendError> {
        let slot = &self.held.0;
        if slot.shared.needs_attention() {
            slot.attend(self.inner.next_position())?;
        }
        now(self.inner.claim_or(len, |inner| go_on(inner, slot, Duration::ZERO)), slot)
    }

    /// Claims a frame of `len` bytes; waits up to `timeout` for room. Another thread has to poll
    /// meanwhile: a caller that polls itself uses [`try_claim`](Self::try_claim).
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn claim(&mut self, len: u64, timeout: Duration) -> Result<Frame<'_>, SendError> {
        let slot = &self.held.0;
        if slot.shared.needs_attention() {
            slot.attend(self.inner.next_position())?;
        }
        let claimed = self.inner.claim_timeout_or(len, patience(timeout), |inner, left| go_on(inner, slot, left));
        claimed.map_err(|error| failed(error, slot, Upcall::is_running()))
    }

    /// Claims a frame of `len` bytes; waits for room asynchronously, in any runtime. A caller that
    /// drops the future claims nothing.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::NoSender`] and [`SendError::Ended`].
    pub async fn claim_async(&mut self, len: u64) -> Result<Frame<'_>, SendError> {
        let slot = &self.held.0;
        if slot.shared.needs_attention() {
            slot.attend(self.inner.next_position())?;
        }
        let claimed = self.inner.claim_async_or(len, |inner, context| poll_go_on(inner, slot, context)).await;
        claimed.map_err(|error| failed(error, slot, false))
    }

    /// Turns this into a sender for several threads.
    pub fn share(self) -> SharedPublisher {
        SharedPublisher { inner: self.inner.share(), held: Arc::new(self.held) }
    }
}

impl SharedPublisher {
    /// As [`Publisher::try_claim`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_claim(&mut self, len: u64) -> Result<Option<Frame<'_>>, SendError> {
        let slot = &self.held.0;
        if slot.shared.needs_attention() {
            slot.attend(self.inner.next_position())?;
        }
        now(self.inner.claim_or(len, |inner| go_on_shared(inner, slot, Duration::ZERO)), slot)
    }

    /// As [`Publisher::claim`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn claim(&mut self, len: u64, timeout: Duration) -> Result<Frame<'_>, SendError> {
        let slot = &self.held.0;
        if slot.shared.needs_attention() {
            slot.attend(self.inner.next_position())?;
        }
        let claimed =
            self.inner.claim_timeout_or(len, patience(timeout), |inner, left| go_on_shared(inner, slot, left));
        claimed.map_err(|error| failed(error, slot, Upcall::is_running()))
    }

    /// As [`Publisher::claim_async`].
    ///
    /// # Errors
    /// As there.
    pub async fn claim_async(&mut self, len: u64) -> Result<Frame<'_>, SendError> {
        let slot = &self.held.0;
        if slot.shared.needs_attention() {
            slot.attend(self.inner.next_position())?;
        }
        let claimed = self.inner.claim_async_or(len, |inner, context| poll_go_on_shared(inner, slot, context)).await;
        claimed.map_err(|error| failed(error, slot, false))
    }
}

/// The calls of both publishers that claim frames, each in its publisher's way.
macro_rules! sending {
    ($publisher:ty) => {
        impl $publisher {
            /// Sends a message of any length as an object, which needs no room in the ring.
            ///
            /// The object is delivered at its position in this member's order, like any of its messages,
            /// once every member has all of it. Messages of other senders do not wait for that. The call
            /// waits up to `timeout` for room: the number of undelivered objects is limited.
            ///
            /// An object is not copied between hosts. For members on one machine it is copied once, and
            /// only if it is not stored in a [`Segment`](crate::bulk::Segment).
            ///
            /// # Errors
            /// [`SendError`]. Also [`SendError::TooLong`] if the subgroup's messages are too small for the
            /// name of an object, 24 bytes.
            pub fn send_object(&mut self, object: impl Into<Object>, timeout: Duration) -> Result<(), SendError> {
                let object = object.into();
                self.put(object.len() as u64, || Some(object), timeout, |_, _| ())
            }

            /// Copies `payload` into a frame and commits it. If `payload` is too long for a frame, it
            /// becomes an [object](Self::send_object). Waits up to `timeout` for room.
            ///
            /// # Errors
            /// [`SendError`].
            pub fn send(&mut self, payload: &[u8], timeout: Duration) -> Result<(), SendError> {
                if payload.len() as u64 > self.inner.message_bytes_max() {
                    return self.put(
                        payload.len() as u64,
                        || Buffer::copied(payload).map(Object::from),
                        timeout,
                        |_, _| (),
                    );
                }
                let mut frame = self.claim(payload.len() as u64, timeout)?;
                frame.copy_from_slice(payload);
                frame.commit();
                Ok(())
            }

            /// Sends as [`send`](Self::send), and returns a receipt. The receipt resolves when the outcome
            /// of the message is certain, also across view changes and if this member leaves or is evicted:
            /// see [`Outcome`](crate::Outcome). It costs an allocation and a few locks.
            ///
            /// # Errors
            /// [`SendError`]. In that case the message is not sent.
            pub fn send_tracked(&mut self, payload: &[u8], timeout: Duration) -> Result<Receipt, SendError> {
                if payload.len() as u64 > self.inner.message_bytes_max() {
                    return self.put(
                        payload.len() as u64,
                        || Buffer::copied(payload).map(Object::from),
                        timeout,
                        track,
                    );
                }
                let slot = Arc::clone(&self.held.0);
                let mut frame = self.claim(payload.len() as u64, timeout)?;
                frame.copy_from_slice(payload);
                Ok(commit_tracked(frame, &slot))
            }

            /// As [`send`](Self::send), and waits for room asynchronously, in any runtime, without a
            /// deadline. If the caller drops the future before it is ready, the message is not sent.
            ///
            /// # Errors
            /// [`SendError`], without the variants of a wait that is over.
            pub async fn send_async(&mut self, payload: &[u8]) -> Result<(), SendError> {
                if payload.len() as u64 > self.inner.message_bytes_max() {
                    let slot = Arc::clone(&self.held.0);
                    let (permit, object, frame) = self.admit_async(payload).await?;
                    slot.commit_object(permit, object, frame);
                    return Ok(());
                }
                let mut frame = self.claim_async(payload.len() as u64).await?;
                frame.copy_from_slice(payload);
                frame.commit();
                Ok(())
            }

            /// As [`send_tracked`](Self::send_tracked). Waits for room as [`send_async`](Self::send_async)
            /// does.
            ///
            /// # Errors
            /// As there.
            pub async fn send_tracked_async(&mut self, payload: &[u8]) -> Result<Receipt, SendError> {
                let slot = Arc::clone(&self.held.0);
                if payload.len() as u64 > self.inner.message_bytes_max() {
                    let (permit, object, frame) = self.admit_async(payload).await?;
                    let receipt = track(&slot, &frame);
                    slot.commit_object(permit, object, frame);
                    return Ok(receipt);
                }
                let mut frame = self.claim_async(payload.len() as u64).await?;
                frame.copy_from_slice(payload);
                Ok(commit_tracked(frame, &slot))
            }

            /// As [`send_object`](Self::send_object), and returns a receipt as
            /// [`send_tracked`](Self::send_tracked) does.
            ///
            /// # Errors
            /// As there.
            pub fn send_object_tracked(
                &mut self,
                object: impl Into<Object>,
                timeout: Duration,
            ) -> Result<Receipt, SendError> {
                let object = object.into();
                self.put(object.len() as u64, || Some(object), timeout, track)
            }

            /// Sends an object of `len` bytes, which `object` makes when there is room for it, if there is
            /// memory. `note` receives the frame of the object's name before it is committed.
            fn put<T>(
                &mut self,
                len: u64,
                object: impl FnOnce() -> Option<Object>,
                timeout: Duration,
                note: impl FnOnce(&PublisherSlot, &Frame<'_>) -> T,
            ) -> Result<T, SendError> {
                let (slot, start) = (Arc::clone(&self.held.0), Instant::now());
                let permit =
                    slot.permit(len, self.inner.message_bytes_max(), patience(timeout), Upcall::is_running())?;
                let object = object().ok_or(SendError::NoMemory { len })?;
                let frame = self.claim(ObjectName::BYTES, timeout.saturating_sub(start.elapsed()))?;
                let noted = note(&slot, &frame);
                slot.commit_object(permit, object, frame);
                Ok(noted)
            }

            /// Waits for room for an object that is a copy of `payload`, and for its name.
            async fn admit_async(&mut self, payload: &[u8]) -> Result<(Permit, Object, Frame<'_>), SendError> {
                let (slot, len) = (Arc::clone(&self.held.0), payload.len() as u64);
                let permit = slot.permit_async(len, self.inner.message_bytes_max()).await?;
                let object = Buffer::copied(payload).ok_or(SendError::NoMemory { len })?;
                Ok((permit, object.into(), self.claim_async(ObjectName::BYTES).await?))
            }

            /// Returns the bytes of the largest message that fits into a frame now. A longer one is sent as
            /// an object. It may change with the view.
            pub fn message_bytes_max(&self) -> u64 {
                self.inner.message_bytes_max()
            }

            /// Declares `rounds` rounds in which this member sends nothing, so that no member waits for it.
            /// A hint, for this view.
            pub fn skip_rounds(&self, rounds: u64) {
                self.inner.skip_rounds(rounds);
            }
        }
    };
}

sending!(Publisher);
sending!(SharedPublisher);

/// Commits a frame and returns its receipt.
fn commit_tracked(frame: Frame<'_>, slot: &PublisherSlot) -> Receipt {
    let receipt = track(slot, &frame);
    frame.commit();
    slot.tracker.announce();
    receipt
}

fn track(slot: &PublisherSlot, frame: &Frame<'_>) -> Receipt {
    slot.tracker.register(frame)
}

/// The ring of an ended group stays full for ever, so the end is checked only for a full ring.
#[inline(always)]
fn now<'a>(claimed: Result<Frame<'a>, ClaimError>, slot: &PublisherSlot) -> Result<Option<Frame<'a>>, SendError> {
    match claimed {
        Ok(frame) => Ok(Some(frame)),
        Err(ClaimError::Full) => slot.refusal().map_or(Ok(None), Err),
        Err(ClaimError::TooLong { len, max }) => Err(SendError::TooLong { len, max }),
    }
}

/// How long to wait. In an upcall it is zero, because the waiting thread is the one that makes
/// room.
#[inline]
fn patience(timeout: Duration) -> Duration {
    if Upcall::is_running() { Duration::ZERO } else { timeout }
}
