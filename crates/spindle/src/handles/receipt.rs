//! Receipts: the outcome of one message, and its durability, for the thread or task that asks.
use crate::logs::{Copies, DurabilityState, DurableFrontier, Found};
use crate::shared::{Awaited, Ticket, Upcall};
use spindle_core::ViewId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The outcome of one message, for the sending thread or any other. It is also a future, in any
/// runtime.
///
/// It may be dropped at any time; the message is sent nevertheless. A receipt outlives its
/// publisher and the group.
///
/// See [`Publisher::send_tracked`](crate::Publisher::send_tracked).
#[derive(Clone, Debug)]
#[must_use = "a message whose outcome is not asked for is sent cheaper without a receipt"]
pub struct Receipt {
    slot: Arc<Slot>,
    /// `None` in a subgroup that was never logged.
    frontier: Option<Arc<DurableFrontier>>,
    ticket: Ticket<Option<Outcome>>,
}

/// The outcome of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The position of the message is final: every member that continues delivers it there, and
    /// nowhere else.
    ///
    /// In a subgroup with a total order the message is stable, and this member has delivered it:
    /// its handler or its [`Receiver`](crate::Receiver) has returned it. In a Fifo subgroup every
    /// member of the view has delivered it, or did so in the view before. If the message belongs to
    /// the end of a view, this member's receiver may still have to take it.
    Delivered {
        /// The number of the view in which it was delivered.
        epoch: ViewId,
        /// Its sequence number in the subgroup's order in that view, the same at all members:
        /// [`SubgroupSpec::sequence`](crate::SubgroupSpec::sequence) of the
        /// [`Message`](crate::Message) there.
        sequence: u64,
    },
    /// No member has delivered the message, and none will.
    NotDelivered(NotDelivered),
    /// This process can't know the outcome. The group ended for it, for instance by an eviction,
    /// after others could have received the message and before it learned whether they keep it. If
    /// the message is sent again, it may be delivered twice.
    Unknown,
}

/// Why no member delivers a message that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotDelivered {
    /// The subgroup was dropped, or this member is no longer a sender in it, before the message was
    /// sent in a view that all have agreed on.
    #[error("the member is no sender of the subgroup any more: send in a subgroup where it is one")]
    NoSender,
    /// The group ended for this member before the message was announced.
    #[error("the group ended for this member before the message was sent: join again and send it again")]
    Ended,
}

/// The outcome of a message, once it is known.
pub(super) type Slot = Awaited<Option<Outcome>>;

impl Slot {
    /// Sets the outcome, unless it was set before.
    pub(super) fn resolve(&self, outcome: Outcome) {
        self.change(|known| _ = known.get_or_insert(outcome));
    }
}

impl Receipt {
    pub(super) fn new(slot: Arc<Slot>, frontier: Option<Arc<DurableFrontier>>) -> Receipt {
        Receipt { slot, frontier, ticket: Ticket::default() }
    }

    /// Returns the outcome, if it is known.
    pub fn outcome(&self) -> Option<Outcome> {
        self.slot.look(|outcome| *outcome)
    }

    /// Waits up to `timeout` for the outcome. In a handler it does not wait, because the waiting
    /// thread is the one that finds the outcome.
    pub fn wait(&self, timeout: Duration) -> Option<Outcome> {
        let until = (Instant::now(), timeout);
        self.slot.wait(until, || !Upcall::is_running(), |outcome| *outcome, Option::is_some)
    }

    /// Returns the durability of the message: a wait, or a future, for the moment at which the
    /// message is on the disks of all members of its subgroup.
    pub fn durable(&self) -> Durable {
        Durable { receipt: self.clone(), ticket: Ticket::default() }
    }
}

/// The durability of one message of a [logged](crate::Durability::Logged) subgroup; see
/// [`Receipt::durable`].
///
/// A message is durable once the log of every member of the subgroup has it on disk, and the
/// subgroup has at least as many members as `durable_copies`. From then on the loss of fewer disks
/// than that loses no message.
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless it is waited for"]
pub struct Durable {
    receipt: Receipt,
    ticket: Ticket<DurabilityState>,
}

/// Why a message is not durable, or not known to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotDurable {
    /// The subgroup keeps no log.
    #[error("the subgroup keeps its messages in memory: set its durability to \"logged\"")]
    InMemory,
    /// The message was not delivered in time.
    #[error("the message was not delivered within {waited:?}: see which member lags in `spindle status`")]
    Undelivered {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The message was delivered, and was not on all disks in time.
    #[error(
        "the message was delivered, and was not on the disks of all members within {waited:?}: see `spindle status`"
    )]
    Unsynced {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The message was delivered, and the subgroup has too few members for messages to become
    /// durable. Messages that are sent once enough have joined become durable; this one does not.
    #[error(
        "the message was delivered, and {present} of {needed} members that a durable message needs are in the subgroup: start more"
    )]
    TooFewCopies {
        /// The members of the subgroup.
        present: u32,
        /// The members that it needs.
        needed: u32,
    },
    /// The message was delivered, and members that had it left the subgroup before it was on
    /// `durable_copies` disks. It stays on fewer disks: members that come later do not get it.
    #[error(
        "the message was delivered, and members that had it are gone before it was on enough disks: send it again if that matters"
    )]
    MembersLost,
    /// The message was delivered, and its subgroup was dropped before the message was known to be
    /// durable. A subgroup of the same name was created, which keeps no log.
    #[error(
        "the subgroup was dropped before the message was known to be durable, and the one that now has its name keeps no log: look for the message in the logs before sending it again"
    )]
    Dropped,
    /// No member has delivered the message, and none will.
    #[error("the message was not sent: {0}")]
    NotDelivered(NotDelivered),
    /// The group ended for this member, and its message may be durable or not.
    #[error(
        "the group ended for this member before it knew the message to be durable: look for the message before sending it again"
    )]
    Unknown,
}

impl Durable {
    /// Waits up to `timeout` for the message to become durable. In a handler it does not wait,
    /// because the waiting thread is the one that finds the outcome.
    ///
    /// # Errors
    /// [`NotDurable`].
    pub fn wait(&self, timeout: Duration) -> Result<(), NotDurable> {
        let start = Instant::now();
        let Some(frontier) = &self.receipt.frontier else { return Err(NotDurable::InMemory) };
        let Some(outcome) = self.receipt.wait(timeout) else {
            return Err(NotDurable::Undelivered { waited: start.elapsed() });
        };
        let (epoch, sequence) = delivered(outcome)?;
        let look = |durability: &DurabilityState| durability.find(epoch, sequence);
        match frontier.wait((start, timeout), || !Upcall::is_running(), look, Found::is_final) {
            Found::Pending(Copies { present, needed }) if present >= needed => {
                Err(NotDurable::Unsynced { waited: start.elapsed() })
            }
            found => durable(&found),
        }
    }
}

impl Future for Durable {
    type Output = Result<(), NotDurable>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Durable { receipt, ticket } = self.get_mut();
        let Some(frontier) = receipt.frontier.clone() else { return Poll::Ready(Err(NotDurable::InMemory)) };
        let Poll::Ready(outcome) = Pin::new(receipt).poll(context) else { return Poll::Pending };
        let (epoch, sequence) = match delivered(outcome) {
            Ok(position) => position,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let look = |durability: &DurabilityState| durability.find(epoch, sequence);
        frontier.poll(ticket, context, look, Found::is_final).map(|found| durable(&found))
    }
}

/// Returns the position of a message that was delivered.
fn delivered(outcome: Outcome) -> Result<(ViewId, u64), NotDurable> {
    match outcome {
        Outcome::Delivered { epoch, sequence } => Ok((epoch, sequence)),
        Outcome::NotDelivered(why) => Err(NotDurable::NotDelivered(why)),
        Outcome::Unknown => Err(NotDurable::Unknown),
    }
}

fn durable(found: &Found) -> Result<(), NotDurable> {
    match *found {
        Found::Durable => Ok(()),
        Found::Lost => Err(NotDurable::MembersLost),
        Found::Pending(Copies { present, needed }) => Err(NotDurable::TooFewCopies { present, needed }),
        Found::Ended => Err(NotDurable::Unknown),
        Found::InMemory => Err(NotDurable::InMemory),
        Found::Dropped => Err(NotDurable::Dropped),
    }
}

impl Future for Receipt {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Receipt { slot, ticket, .. } = self.get_mut();
        let found = slot.poll(ticket, context, |outcome| *outcome, Option::is_some);
        found.map(|outcome| outcome.unwrap_or(Outcome::Unknown))
    }
}
