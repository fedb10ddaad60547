//! Block multicast: one large object from a root to every member of a group, without any order among groups (RDMC).
//!
//! ```text
//! BulkNode::over_streams(..), on_one_machine(..), across_hosts(..)  create_group: one member's part, which the caller polls
//!      | send(object)                  post_receive_buffer(..)      Events: Allocate, Complete, Everywhere, Failed
//!      v
//! BulkThread::run(node, upcalls) --> BulkGroup                      the same, polled by a thread that serves many groups
//! ```
//!
//! Members, root and settings of a group never change; whoever wants another root makes another group, of the same members if need be, and
//! they run side by side. All members get the root's objects whole and in the order in which it sent them, or one failure that says who died, after
//! which the group is closed. What a member got before that is a prefix of what was sent, which may be longer at one member than at another: who needs
//! all or nothing needs an ordered subgroup.
//!
//! Over streams, members pass on what they receive, in blocks, by a [`Schedule`](spindle_core::bulk::Schedule); the protocol stands in
//! docs/protocol/bulk.md. On one machine the object stays in the memory of its root, and is read there by all. Across hosts one member of each does the
//! former, and lends the object to the others of its host.
mod bridge;
mod error;
mod lender;
mod node;
mod relay;
mod settings;
#[cfg(test)]
mod tests;
mod thread;

pub use error::{BulkError, BulkSendError, Cause, DestroyError, Failure, PostError};
pub use node::{BulkNode, Event, ObjectId};
pub use settings::{BulkSettings, Waiting};
pub use spindle_core::bulk::{Algorithm, Hosts, Racks, RacksError};
pub use spindle_fabric::bulk::{Buffer, BulkDown, BulkLinksError, LocalPart, Object, Segment};
pub use spindle_fabric::tcp::{Connection, SocketOptions, SocketStream, Stream};
pub use thread::{BulkGroup, BulkThread, Upcalls};
