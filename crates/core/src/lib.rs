//! The protocol of Spindle: the members of a group agree on one order of messages through memory.
//! Each member writes only its own row, and all members read all rows.
//!
//! This crate contains no I/O, no clock, no thread and no `unsafe`. Time is an argument, memory is
//! the [`Table`] that a fabric supplies, and [`Engine::poll`] does a bounded amount of work and
//! returns. The same code runs in a real process, polled by a thread, and in the simulator, which
//! polls hundreds of engines in virtual time.
//!
//! Start with [`View`] (the members and their subgroups), then [`Layout`] (the offsets in a
//! member's row), [`claims::Claims`] (how applications put messages into their own ring) and
//! [`Engine`] (the send, receive and delivery predicates). The names are those of the Derecho and
//! Spindle papers.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, loom))]
extern crate std;

mod ablation;
pub mod bulk;
pub mod claims;
pub mod control;
pub mod cursor;
pub mod engine;
mod fault;
pub mod ids;
pub mod layout;
pub mod limits;
mod membership;
mod moves;
mod observer;
mod pace;
pub mod planted;
mod proposal;
mod ready;
mod resend;
pub mod ring;
mod sending;
pub mod stats;
mod subgroup;
mod sync;
pub mod table;
mod upcalls;
pub mod view;

pub use ablation::Ablation;
pub use claims::{Claim, ClaimError, Claims, Exclusive};
pub use cursor::{Batch, Cursor, Defect, Handoff, Message};
pub use engine::{Engine, Progress, State};
pub use fault::Fault;
pub use ids::{MemberId, Process, Rank, SubgroupId, Time, ViewId};
pub use layout::{Layout, RowLayout};
pub use membership::{Ballot, Decision, Liveness, Unrecoverable};
pub use observer::{Gap, Lapped, Observer, Seen};
pub use proposal::Trims;
pub use resend::{Resend, Resent};
pub use ring::Ring;
pub use table::{Found, Frames, Lookup, Rows, Table, Trace};
pub use upcalls::Upcalls;
pub use view::{Change, Order, Rule, SubgroupSpec, Subgroups, View, ViewError};
