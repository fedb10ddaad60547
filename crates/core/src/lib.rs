//! The protocol of Spindle: the members of a group agree on one order of messages through memory.
//! Each member writes only its own row, and all members read all rows.
//!
//! This crate contains no I/O, no clock, no thread and no `unsafe`. Time is an argument, memory is
//! the [`Table`] that a fabric supplies, and [`Engine::poll`] does a bounded amount of work and
//! returns. The same code runs in a real process, polled by a thread, and in the simulator, which
//! polls hundreds of engines in virtual time.
//!
//! Start with [`View`] (the members and their subgroups), then [`Layout`] (the offsets in a
//! member's row), [`Claims`] (how applications put messages into their own ring) and
//! [`Engine`] (the send, receive and delivery predicates). The names are those of the Derecho and
//! Spindle papers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

pub mod clock;
pub mod control;
mod fault;
pub mod ids;
pub mod limits;
mod membership;
pub mod multicast;
pub mod mutation;
pub mod rdmc;
mod sync;
pub mod table;
pub mod view;
pub mod wire;

pub use fault::Fault;
pub use ids::{MemberId, Position, Process, Rank, SubgroupId, Time, ViewId};
pub use membership::{Ballot, Decision, Liveness, Trims, Unrecoverable};
pub use multicast::{
    Ablation, Batch, Claim, ClaimError, Claims, Cursor, Defect, DurableRise, Engine, Exclusive, Gap, Handoff, Lapped,
    LogExtent, Message, Observer, Progress, ReadBarrier, Record, Records, Resend, Resent, Seen, State, Upcalls,
};
pub use table::{Found, Frames, Lookup, Rows, Table, Trace};
pub use view::{Change, Durability, Order, Rule, SubgroupSpec, Subgroups, View, ViewError};
pub use wire::{Layout, Ring, RowLayout};
