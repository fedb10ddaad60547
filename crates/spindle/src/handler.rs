//! The application's part in the delivery of messages.
use crate::change::ViewChange;
use crate::error::Ended;
use crate::lag::Lag;
use crate::mesh::Mesh;
use crate::queries::IncomingQuery;
use crate::transfer::{Snapshot, State};
use spindle_core::control::Incarnation;
use spindle_core::{MemberId, Message, Position, SubgroupId, View, ViewId};

/// The messages of one upcall, lent in place: an iterator over [`Message`].
pub type Batch<'a> = spindle_core::Batch<'a, Mesh>;

/// The application's part on the polling thread. A closure over (subgroup, batch) is a handler.
///
/// The batch contains all messages that are ready. A message that the handler does not take is
/// offered again at the next poll, so a handler that stops early slows down its own group only. A
/// handler must not block: while it runs, this member acknowledges nothing. A call that takes
/// longer than an eighth of `suspect_after` (at least 10 ms) is reported as an event of `tracing`,
/// while it still runs, and in [`Status::handler`](crate::Status::handler).
pub trait Handler {
    /// Takes messages of `subgroup`, in order. Subgroups and senders have the numbers and ranks of
    /// the newest view.
    ///
    /// A process that joins with a state gets the messages before its first view by
    /// [`learn`](Self::learn).
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>);

    /// Reports that the view has changed. From now on subgroups and senders have the numbers and
    /// ranks of the new view.
    ///
    /// A change touches a subgroup if a member enters or leaves it, or if its order, window or
    /// message size changes. In a touched subgroup all earlier deliveries belong to the old view
    /// and all later ones to the new view, at all members. So "who was in the subgroup when this
    /// message came" has one answer.
    ///
    /// The other subgroups continue during the change, with the same members. The point between two
    /// of their messages at which this member reports the change says nothing about other members.
    fn view_changed(&mut self, _change: &ViewChange) {}

    /// Reports that this member can't agree with the others on the next view (`true`), or can again
    /// (`false`).
    ///
    /// A blocked member, or the leader that it follows, is supported by too few members. For
    /// example, the other one of two members hangs. While this member is blocked it delivers
    /// nothing and claims wait. The [`Status`](crate::Status) shows which members it waits for. It
    /// continues by itself as soon as they are back or their processes have ended.
    fn blocked(&mut self, _is_blocked: bool) {}

    /// Reports another group of this name, between hosts: this member has received a message from a
    /// process of that group.
    ///
    /// Either an operator created the other group while this one lived, or all seeds were restarted
    /// without [votes](crate::Config::data_dir). Both groups accept messages. One of them has to be
    /// ended.
    fn conflict(&mut self, _mine: Incarnation, _theirs: Incarnation) {}

    /// Takes a [query](crate::Queries::ask) of another member, between two deliveries. The query may be given
    /// to another thread, which answers. By default the asker learns that it gets no answer.
    fn query(&mut self, _query: IncomingQuery) {}

    /// Reports that a member begins to lag, or no longer does: this one, whose application does not
    /// take its messages, or another.
    ///
    /// A member lags if it has not delivered what every member had received a second ago. When the
    /// rings are full, all senders of the subgroup wait for it. The [`Status`](crate::Status) shows
    /// the same.
    fn lag(&mut self, _lag: &Lag) {}

    /// Reports, as the last call, that the group has ended at this member: with the reason, or with
    /// `None` after all members have finished and everything is delivered.
    ///
    /// Only the thread of a [`Group`](crate::Group) calls it; [`Node::poll`](crate::Node::poll)
    /// returns the same to its caller. It is not called if the program drops the group, or if a
    /// handler panics.
    fn ended(&mut self, _reason: Option<&Ended>) {}

    /// Returns the current state, between two deliveries, for a joiner; `None` if the application
    /// has none.
    ///
    /// It is called only while all subgroups deliver to this handler. The group waits for this
    /// call, so return a copy that costs little (a shared or persistent structure, a fork). The
    /// bytes are produced while the joiner reads them. At least one byte has to come every 5 s, or
    /// the transfer breaks off. If the call panics, the joiner asks another member and this member
    /// continues, so the call must not leave anything half changed.
    ///
    /// The state must not depend on messages of [`Order::Fifo`](crate::Order::Fifo) subgroups. They
    /// have no common order, so the joiner can't know which of their messages the state contains,
    /// and it may [learn](Self::learn) some of them again.
    fn snapshot(&mut self) -> Option<Snapshot> {
        None
    }

    /// Takes over the state of another member on a joiner, in place of anything that it had. See
    /// [`Config::learn`](crate::Config::learn). The call has to read at least every 5 s, or the
    /// sending member gives up.
    ///
    /// # Errors
    /// Any error that prevents the takeover. Pass on those of reading.
    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        std::io::copy(state, &mut std::io::sink()).map(drop)
    }

    /// Takes a message on a joiner that was sent after the state was taken, at its position in the
    /// order. `view` is the view in which it was sent.
    ///
    /// The joiner gets each message once: those before its own first view by `learn`, and all later
    /// ones by [`deliver`](Self::deliver). So both have to change the application's state in the
    /// same way, and a handler that implements [`restore`](Self::restore) has to implement `learn`,
    /// too. The default ignores the message, which is right only for an application without state.
    ///
    /// From [`Order::Fifo`](crate::Order::Fifo) subgroups the joiner learns only the messages that
    /// came after it began to observe, whatever the [snapshot](Self::snapshot) contains.
    fn learn(&mut self, _view: &View, _subgroup: SubgroupId, _message: &Message<'_>) {}

    /// Whether the logs are [replayed](Self::replay) on a member that was started again with its data
    /// directory. By default they are not.
    fn replays(&self) -> bool {
        false
    }

    /// Returns the position from which the log of `subgroup` is [replayed](Self::replay); `None` for no
    /// replay. A position before the first message of the log means that message, and so does the
    /// default.
    ///
    /// `log` says what the log contains. An application that keeps a state of its own on disk begins
    /// behind the last message that the state contains.
    ///
    /// It is called once for each logged subgroup of a handler that [replays](Self::replays), before
    /// anything of the subgroup is delivered, unless the member has taken over the
    /// [state](Self::restore) of another one.
    fn replay_from(&mut self, _subgroup: SubgroupId, log: &LoggedExtent) -> Option<Position> {
        log.first
    }

    /// Takes a message of the log, in order. The messages of the epochs before the member's first view
    /// come by `replay`, and all later ones by [`deliver`](Self::deliver): each once.
    ///
    /// Meanwhile nothing of `subgroup` is delivered, and its senders wait when their rings are full. A
    /// poll replays a bounded part.
    fn replay(&mut self, _subgroup: SubgroupId, _message: &ReplayedMessage<'_>) {}
}

/// The contents of the log of a subgroup at a member that was started again.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LoggedExtent {
    /// The name of the subgroup.
    pub subgroup: String,
    /// The first message in the log; `None` if there is none.
    pub first: Option<Position>,
    /// True if the log has all messages since the subgroup was created. If not, older messages were
    /// pruned, or the member entered the subgroup later.
    pub is_complete: bool,
    /// The last message that was pruned, if some were.
    pub pruned: Option<Position>,
    /// The epoch from which on no message is missing; `None` if none is missing at all, pruned ones
    /// apart.
    pub complete_since: Option<ViewId>,
}

/// A message in the log of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ReplayedMessage<'a> {
    /// Its position, equal at all members.
    pub position: Position,
    /// Its clock, equal at all members: the [time](Self::time) or later, and never falling along the
    /// log. In ns since 1970.
    pub clock: u64,
    /// The time at which it was sent, by the sender's clock, in ns since 1970.
    pub time: u64,
    /// The member that sent it.
    pub sender: MemberId,
    /// The message.
    pub payload: &'a [u8],
}

impl<F: FnMut(SubgroupId, &mut Batch<'_>)> Handler for F {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        self(subgroup, batch);
    }
}
