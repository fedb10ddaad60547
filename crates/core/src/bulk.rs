//! Block multicast (RDMC): how one large object gets from a root to every member, in blocks that receivers pass on while
//! more are coming.
//!
//! [`Schedule`] says, as a pure function, which block a member sends to whom in which step. [`Session`] is one member's part in a
//! group with one root: a state machine that is told what became visible in its peers' rows and answers which blocks and counters
//! to post. It moves no byte itself.
//!
//! The protocol, and why it neither deadlocks nor loses a failure, stands in `docs/protocol/bulk.md`. The members of a bulk
//! group have ranks of their own: its root is rank 0, whatever its rank in a view.
mod hosts;
mod object;
mod pipeline;
mod racks;
mod schedule;
mod session;

pub use hosts::Hosts;
pub use racks::{Racks, RacksError};
pub use schedule::{Algorithm, Hop, Schedule};
pub use session::{
    Announced, BLOCK_BYTES, Columns, DIRECT_BYTES, DIRECT_MEMBERS, Input, Object, Output, SendError, Session,
    SessionError, Settings, Slot, blocks,
};
