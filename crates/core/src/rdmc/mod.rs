//! Block multicast (RDMC): sends one large object from a root to every member, in blocks. Receivers
//! forward blocks while more blocks arrive.
//!
//! [`Schedule`] is a pure function: it says which block a member sends to which other member in
//! which step. [`Session`] is one member's part in a group with one root. It is a state machine
//! whose inputs are the words that became visible in peers' rows, and whose outputs are the blocks
//! and counters to post. It moves no bytes itself.
//!
//! `docs/protocol/bulk.md` describes the protocol, and why it neither deadlocks nor loses a
//! failure. The members of a bulk group have ranks of their own: its root has rank 0, whatever its
//! rank in a view.
mod hosts;
mod object;
mod pipeline;
mod racks;
mod schedule;
mod session;
mod settings;
mod slot;

pub use hosts::Hosts;
pub use racks::{Racks, RacksError};
pub use schedule::{Algorithm, Hop, Schedule};
pub use session::{AnnouncedBlock, Input, Output, Session, SessionError, SessionSendError};
pub use settings::{BLOCK_BYTES, DIRECT_BYTES, DIRECT_MEMBERS, SessionSettings, blocks};
pub use slot::{Columns, ObjectNumber, Slot};
