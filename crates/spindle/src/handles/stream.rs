//! Deliveries as an asynchronous stream of copies, for any runtime.
use super::receiver::Receiver;
use crate::error::{Ended, ReceiveError};
use futures_core::Stream;
use spindle_core::{MemberId, Rank, View};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The most messages that are copied at once.
const COPIED_MAX: usize = 256;
/// The payload bytes after which no more messages are copied at once.
const COPIED_BYTES: usize = 256 << 10;

/// The deliveries of one subgroup as a `Stream`, made by
/// [`Receiver::into_stream`]. Each item is a copy of a message.
///
/// The stream ends after the last message if every member has finished. If the group ended early
/// for this member, the last item is the reason.
///
/// The stream copies up to 256 messages, or up to the message with which 256 KiB are reached. They
/// count as delivered once they are copied, and a stream that is dropped discards those that were
/// not taken. When they are taken, it copies the next ones. [`Receiver::receive_async`] waits in
/// the same way and lends messages without a copy.
#[derive(Debug)]
pub struct DeliveryStream {
    receiver: Receiver,
    copied: VecDeque<Delivery>,
    has_ended: bool,
}

/// A copy of a delivered message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The view in which the members of the subgroup began to send the message.
    pub view: Arc<View>,
    /// The rank of its sender in that view.
    pub sender: Rank,
    /// The id of its sender.
    pub sender_id: MemberId,
    /// Its round, as in [`Message::round`](crate::Message::round).
    pub round: u64,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Receiver {
    /// Turns this into a stream of copies, for any runtime.
    pub fn into_stream(self) -> DeliveryStream {
        DeliveryStream::new(self)
    }
}

impl DeliveryStream {
    fn new(receiver: Receiver) -> DeliveryStream {
        DeliveryStream { receiver, copied: VecDeque::new(), has_ended: false }
    }

    /// Returns the next message, or `None` after the end. A caller that drops the future loses no
    /// message.
    ///
    /// # Errors
    /// [`Ended`] if the group ended early for this member; `None` follows.
    pub async fn next(&mut self) -> Option<Result<Delivery, Ended>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    fn copy(&mut self) {
        let view = Arc::clone(self.receiver.shared_view());
        let mut bytes = 0;
        for message in self.receiver.deliveries().iter() {
            bytes += message.payload.len();
            self.copied.push_back(Delivery {
                view: Arc::clone(&view),
                sender: message.sender,
                sender_id: message.sender_id,
                round: message.round,
                payload: message.payload.to_vec(),
            });
            if self.copied.len() >= COPIED_MAX || bytes >= COPIED_BYTES {
                return;
            }
        }
    }
}

impl Stream for DeliveryStream {
    type Item = Result<Delivery, Ended>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(delivery) = self.copied.pop_front() {
                return Poll::Ready(Some(Ok(delivery)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(self.receiver.poll_ready(context)) {
                Ok(()) => self.copy(),
                Err(end) => {
                    self.has_ended = true;
                    return Poll::Ready(match end {
                        ReceiveError::Ended(ended) => Some(Err(ended)),
                        ReceiveError::Finished | ReceiveError::TimedOut { .. } => None,
                    });
                }
            }
        }
    }
}
