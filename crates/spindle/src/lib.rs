//! Spindle keeps a group of processes in the same state: **atomic multicast**, where every member
//! gets every message in the same order, at the speed of shared memory.
//!
//! ```text
//! Config --join()--> Node --start()--> Group            the library polls on a thread of its own
//!                     |  \--poll()                      or the caller polls
//!                     +--> Publisher: claim, fill in place, commit
//!                     +--> Receiver: messages in order, lent in place, on any thread
//!        \--observe()--> Observing                      no member: follows, and nobody waits for it
//! ```
//!
//! Read [`Config`] first, then [`Node`]. The order is that of the Derecho and Spindle papers:
//! rounds with one message of each sender. A message is delivered once every member has received
//! it.
#![forbid(unsafe_code)]

mod bootstrap;
mod bootstrap_progress;
pub mod bulk;
mod carry;
mod change;
mod config;
mod control_plane;
mod data_dir;
mod error;
mod following;
mod group;
mod handler_watch;
mod histogram;
mod joining;
mod lag;
mod large;
mod learning;
mod meeting;
mod mesh;
#[cfg(feature = "prometheus")]
mod metrics;
mod network;
mod node;
mod observing;
mod pace;
mod publisher;
mod publisher_slot;
mod receiver;
mod sampling;
#[cfg(feature = "settings")]
pub mod settings;
mod shared;
mod shared_settings;
mod state;
mod status;
mod stream;
mod subgroup_handles;
mod tracking;
#[cfg(feature = "typed")]
pub mod typed;

pub use bootstrap_progress::{BootstrapProgress, Present};
pub use change::ViewChange;
pub use config::{Config, Subgroup, Who};
pub use data_dir::{DataDirError, initialise_data_dir};
pub use error::{Ended, FinishError, HandleError, JoinError, ObserveError, ReceiveError, SendError};
pub use group::{Group, Monitor};
pub use handler_watch::HandlerStatus;
pub use histogram::Histogram;
pub use lag::Lag;
#[cfg(feature = "prometheus")]
pub use metrics::Metrics;
pub use network::{Network, Transport};
pub use node::{Node, Poll};
pub use observing::{Missed, Observed, Observing};
pub use publisher::{Publisher, SharedPublisher};
pub use receiver::{Deliveries, Messages, Receiver};
pub use spindle_core::control::{Address, AddressError, RackName, RackNameError};
pub use spindle_core::control::{Adoption, Difference, SharedSettings};
pub use spindle_core::control::{Incarnation, Need, SeedState, SeedsKnown, Unreached, Waits};
pub use spindle_core::control::{Refusal, VERSION as RENDEZVOUS_VERSION};
pub use spindle_core::multicast::stats::{EngineStats, Frontier, SubgroupStats};
pub use spindle_core::{
    Ablation, Change, Gap, MemberId, Message, Order, Rank, Rule, SubgroupId, SubgroupSpec, View, ViewId,
};
pub use spindle_fabric::Frame;
pub use spindle_fabric_ofi::{OfiError, OfiOptions};
#[cfg(feature = "tls")]
pub use spindle_transport::net::{Identity, Rule as IdentityRule, TlsError, TlsWarning};
pub use spindle_transport::net::{Names, NetError, Security};
pub use spindle_transport::rendezvous::{DirError, NameError, RendezvousError};
pub use state::{Snapshot, State};
pub use status::{MemberStatus, Standing, Status, SubgroupStatus, SubgroupTotals};
pub use stream::{Delivery, DeliveryStream};
pub use tracking::{NotDelivered, Outcome, Receipt};

/// The messages of one upcall, lent in place: an iterator over [`Message`].
pub type Batch<'a> = spindle_core::Batch<'a, spindle_fabric::Mesh<spindle_fabric_ofi::OfiMeeting>>;

/// The application's part on the polling thread. A closure over (subgroup, batch) is a handler.
///
/// The batch contains all messages that are ready. A message that the handler does not take is
/// offered again at the next poll, so a handler that stops early slows down its own group only. A
/// handler must not block: while it runs, this member acknowledges nothing. A call that takes
/// longer than an eighth of `suspect_after` (at least 10 ms) is reported as an event of `tracing`,
/// while it still runs, and in [`Status::handler`].
pub trait Handler {
    /// Takes messages of `subgroup`, in order. Subgroups and senders have the numbers and ranks of
    /// the newest view.
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
    /// nothing and claims wait. The [`Status`] shows which members it waits for. It continues by
    /// itself as soon as they are back or their processes have ended.
    fn blocked(&mut self, _is_blocked: bool) {}

    /// Reports another group of this name, between hosts: this member has received a message from a
    /// process of that group.
    ///
    /// Either an operator created the other group while this one lived, or all seeds were restarted
    /// without [votes](Config::data_dir). Both groups accept messages. One of them has to be ended.
    fn conflict(&mut self, _mine: Incarnation, _theirs: Incarnation) {}

    /// Reports that a member begins to lag, or no longer does: this one, whose application does not
    /// take its messages, or another.
    ///
    /// A member lags if it has not delivered what every member had received a second ago. When the
    /// rings are full, all senders of the subgroup wait for it. The [`Status`] shows the same.
    fn lag(&mut self, _lag: &Lag) {}

    /// Returns the current state, between two deliveries, for a joiner; `None` if the application
    /// has none.
    ///
    /// It is called only while all subgroups deliver to this handler. The group waits for this
    /// call, so return a copy that costs little (a shared or persistent structure, a fork). The
    /// bytes are produced while the joiner reads them. At least one byte has to come every 5 s, or
    /// the transfer breaks off. If the call panics, the joiner asks another member and this member
    /// continues, so the call must not leave anything half changed.
    ///
    /// The state must not depend on messages of [`Order::Fifo`] subgroups. They have no common
    /// order, so the joiner can't know which of their messages the state contains, and it may
    /// [learn](Self::learn) some of them again.
    fn snapshot(&mut self) -> Option<Snapshot> {
        None
    }

    /// Takes over the state of another member on a joiner, in place of anything that it had. See
    /// [`Config::learn`]. The call has to read at least every 5 s, or the sending member gives up.
    ///
    /// # Errors
    /// Any error that prevents the takeover. Pass on those of reading.
    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        std::io::copy(state, &mut std::io::sink()).map(drop)
    }

    /// Takes a message on a joiner that was sent after the state was taken, at its position in the
    /// order. `view` is the view in which it was sent. From [`Order::Fifo`] subgroups the joiner
    /// learns only the messages that came after it began to observe, whatever the
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
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../guide/library.md")]
    struct Guide;
    #[doc = include_str!("../guide/bulk.md")]
    struct Bulk;
    #[doc = include_str!("../guide/hosts.md")]
    struct Hosts;
}
