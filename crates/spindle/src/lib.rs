//! Spindle keeps a group of processes in the same state: **atomic multicast**, where every member gets every message in
//! the same order, at the speed of shared memory.
//!
//! ```text
//! Config --join()--> Node --start()--> Group            the library polls on a thread of its own
//!                     |  \--poll()                      or the caller polls
//!                     +--> Publisher: claim, fill in place, commit
//!                     +--> Receiver: messages in order, lent in place, on any thread
//!        \--observe()--> Observing                      no member: follows, and nobody waits for it
//! ```
//!
//! Read [`Config`] first, then [`Node`]. The order is that of the Derecho and Spindle papers: in rounds, one message of
//! each sender a round, delivered once every member has received it.
#![forbid(unsafe_code)]

mod bootstrap;
pub mod bulk;
mod carry;
mod change;
mod config;
mod crew;
mod data_dir;
mod error;
mod following;
mod gathering;
mod group;
mod joining;
mod large;
mod learning;
mod line;
mod meeting;
mod network;
mod node;
mod observing;
mod pace;
mod port;
mod publisher;
mod receiver;
pub mod settings;
mod shared;
mod state;
mod status;
mod tracking;

pub use change::ViewChange;
pub use config::{Config, Subgroup, Who};
pub use data_dir::{DataDirError, initialise_data_dir};
pub use error::{Ended, FinishError, HandleError, JoinError, ObserveError, ReceiveError, SendError};
pub use gathering::{Gathering, Present};
pub use group::Group;
pub use network::{Network, Transport};
pub use node::{Node, Poll};
pub use observing::{Missed, Observed, Observing};
pub use publisher::{Publisher, SharedPublisher};
pub use receiver::{Deliveries, Messages, Receiver};
pub use spindle_core::control::{Address, AddressError, RackName, RackNameError};
pub use spindle_core::control::{Incarnation, Need, SeedState, SeedsKnown, Unreached, Waits};
pub use spindle_core::control::{Refusal, VERSION as RENDEZVOUS_VERSION};
pub use spindle_core::stats::{EngineStats, Frontier, SubgroupStats};
pub use spindle_core::{
    Ablation, Change, Gap, MemberId, Message, Order, Rank, Rule, SubgroupId, SubgroupSpec, View, ViewId,
};
pub use spindle_fabric::Frame;
pub use spindle_fabric::mail::{DirError, MailError, NameError};
pub use spindle_fabric::net::{Identity, Names, NetError, Rule as IdentityRule, Security, TlsError, TlsWarning};
pub use spindle_fabric::ofi::{OfiError, OfiOptions};
pub use state::{Snapshot, State};
pub use status::{MemberStatus, Status, SubgroupStatus};
pub use tracking::{NotDelivered, Outcome, Receipt};

/// Messages of one upcall, lent in place; an iterator over [`Message`].
pub type Batch<'a> = spindle_core::Batch<'a, spindle_fabric::Mesh>;

/// What a member does with messages on the thread that polls. A closure over (subgroup, batch) is one.
///
/// The batch holds all messages that are ready. What is not taken out of it is offered again at the next poll, so a
/// handler that stops early slows down its own group only. A handler must not block: while it runs, this member
/// acknowledges nothing.
pub trait Handler {
    /// Takes messages of `subgroup`, in order. Subgroups and senders have the numbers and ranks of the newest view.
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>);

    /// The view has changed. In the subgroups that the change touches, because a member enters or leaves them or their order, window or message size
    /// changes, everything that was delivered before belongs to the old view, everything after to the new one, at all members: so "who was in the
    /// subgroup when this message came" has one answer. The other subgroups go on meanwhile, with the same members; that the change comes between two of their messages
    /// here says nothing about other members. Subgroups and senders have the numbers and ranks of the new view from now on.
    fn view_changed(&mut self, _change: &ViewChange) {}

    /// This member can't agree with the others on the next view (`true`), or can again (`false`): too few are with it, or with the one that it follows.
    /// Of two members, for instance, the other one hangs. Until it is not blocked any more nothing is delivered here, and claims
    /// wait; who it waits for is told by the [`Status`]. It goes on by itself as soon as they are back, or their processes have ended.
    fn blocked(&mut self, _is_blocked: bool) {}

    /// There is another group of this name, between hosts: that of a process that this member has heard. An operator founded it while this
    /// one lived, or all seeds were restarted that keep no [votes](Config::data_dir). Both accept messages. One of them has to be ended.
    fn conflict(&mut self, _mine: Incarnation, _theirs: Incarnation) {}

    /// The state as it is now, between two deliveries, for somebody who joins; `None` if there is none. It is asked for only while all
    /// subgroups deliver to this handler. The group waits for this call: make it a copy that costs little (a shared or persistent
    /// structure, a fork), whose bytes are made while they are read; one of them at least every 5 s, or the transfer breaks off. If it
    /// panics, the joiner asks another member, and this one goes on: nothing may be left half changed.
    ///
    /// Of [`Order::Fifo`] subgroups nothing may go into the state: they have no common order, so nobody can tell which of their
    /// messages it contains, and the joiner may [learn](Self::learn) some of those again.
    fn snapshot(&mut self) -> Option<Snapshot> {
        None
    }

    /// This member joins: takes over the state of another one, in place of anything that it had. See [`Config::learn`]. It has to read
    /// at least every 5 s, or the other end gives up.
    ///
    /// # Errors
    /// Whatever keeps it from doing so; those of reading are passed on.
    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        std::io::copy(state, &mut std::io::sink()).map(drop)
    }

    /// This member joins: a message that was sent after the state was taken, in its place in the order. `view` is the one that it was
    /// sent in. Of [`Order::Fifo`] subgroups only what came after the joiner began to listen is learned, whatever the
    /// [snapshot](Self::snapshot) contains.
    fn learn(&mut self, _view: &View, _subgroup: SubgroupId, _message: &Message<'_>) {}
}

impl<F: FnMut(SubgroupId, &mut Batch<'_>)> Handler for F {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        self(subgroup, batch);
    }
}

/// The examples of the README and of the guide, compiled and run as documentation tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/library.md")]
    struct Guide;
    #[doc = include_str!("../../../docs/guide/bulk.md")]
    struct Bulk;
    #[doc = include_str!("../../../docs/guide/hosts.md")]
    struct Hosts;
}
