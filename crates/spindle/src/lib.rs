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

mod bootstrap_progress;
pub mod bulk;
mod change;
mod config;
mod control_plane;
mod data_dir;
mod error;
mod group;
mod group_record;
mod handler;
mod handles;
mod histogram;
mod joining;
mod lag;
mod large;
mod logs;
mod mesh;
#[cfg(feature = "prometheus")]
mod metrics;
mod node;
mod observing;
mod old_logs;
mod pace;
mod queries;
mod random;
#[cfg(feature = "settings")]
pub mod settings;
mod shared;
mod status;
mod transfer;
#[cfg(feature = "typed")]
pub mod typed;

pub use bootstrap_progress::{BootstrapProgress, Present};
pub use change::ViewChange;
pub use config::{Config, LogSettings, Network, Subgroup, Transport, Who};
pub use data_dir::{DataDirError, initialise_data_dir};
pub use error::{Ended, FinishError, HandleError, JoinError, LogEnds, ObserveError, ReceiveError, SendError};
pub use group::{Group, GroupWaker, Monitor};
pub use group_record::{GroupRecord, RestoreError};
pub use handler::{Batch, Handler, LoggedExtent, ReplayedMessage};
pub use handles::{
    Deliveries, Delivery, DeliveryStream, Durable, Messages, NotDelivered, NotDurable, Outcome, Publisher, ReadBarrier,
    Receipt, Receiver, SharedPublisher,
};
pub use histogram::Histogram;
pub use lag::Lag;
pub use logs::{CatchUpStatus, LogAccess, LogStatus};
#[cfg(feature = "prometheus")]
pub use metrics::Metrics;
pub use node::{Node, Poll};
pub use observing::{Missed, Observed, Observing};
pub use queries::{Asked, IncomingQuery, Queries, QueryError};
pub use shared::HandlerStatus;
pub use spindle_core::clock::ClockSkew;
pub use spindle_core::control::{Address, AddressError, RackName, RackNameError};
pub use spindle_core::control::{Adoption, Difference, SharedSettings};
pub use spindle_core::control::{Incarnation, Need, RestartWait, SeedState, SeedWait, SeedsKnown, Unreached};
pub use spindle_core::control::{Refusal, VERSION as RENDEZVOUS_VERSION};
pub use spindle_core::multicast::stats::{EngineStats, Frontier, SubgroupStats};
pub use spindle_core::{
    Ablation, Change, Durability, Gap, MemberId, Message, Order, Position, Rank, Rule, SubgroupId, SubgroupSpec, View,
    ViewId,
};
pub use spindle_fabric::{Frame, WallClock};
pub use spindle_fabric_ofi::{OfiError, OfiOptions};
#[cfg(feature = "tls")]
pub use spindle_transport::net::{Identity, IdentityRule, TlsError, TlsWarning};
pub use spindle_transport::net::{Names, NetError, Security};
pub use spindle_transport::rendezvous::{DirError, NameError, RendezvousError};
pub use status::{ClockStatus, MemberStatus, Standing, Status, SubgroupStatus, SubgroupTotals};
pub use transfer::{Snapshot, State};

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
