//! Block multicast: one large object from a root to every member of a group, without any order among groups (RDMC).
//!
//! ```text
//! BulkNode::over_streams(..), on_one_machine(..), across_hosts(..)  create_group: one member's part, which the caller polls
//!      | send(object)                  post_receive_buffer(..)      Events: Allocate, Complete, Everywhere, Failed
//!      v
//! BulkThread::run(node, upcalls) --> BulkGroup                      the same, polled by a thread that serves many groups
//! ```
//!
//! Members, root and settings of a group never change. For another root, make another group, of the
//! same members if needed; groups run side by side. All members get the root's objects whole and in
//! the order in which it sent them, or one failure that names the dead member, after which the
//! group is closed. Before that, each member gets a prefix of the objects sent, which may be longer
//! at one member than at another. An application that needs all or nothing needs an ordered
//! subgroup.
//!
//! Over streams, members pass on the blocks that they receive, by a
//! [`Schedule`](spindle_core::rdmc::Schedule); the protocol is described in docs/protocol/bulk.md.
//! On one machine the object stays in the memory of its root, where all members read it. Across
//! hosts, one member of each host does the former, and lends the object to the others of its host.
mod error;
mod event;
mod host_gateway;
mod node;
mod settings;
mod shared_memory_bulk;
mod stream_bulk;
#[cfg(test)]
mod tests;
mod thread;

pub use error::{BulkError, BulkSendError, DestroyError, PostError};
pub use event::{BulkEvent, BulkFailure, FailureCause, ObjectId};
pub use node::BulkNode;
pub use settings::{BulkSettings, BulkWaiting};
pub use spindle_core::rdmc::{Algorithm, Hosts, Racks, RacksError};
pub use spindle_fabric::bulk::{Buffer, BulkDown, BulkLinksError, LocalPart, Object, Segment};
pub use spindle_transport::{Connection, SocketOptions, SocketStream, Stream};
pub use thread::{BulkGroup, BulkThread, BulkUpcalls};
