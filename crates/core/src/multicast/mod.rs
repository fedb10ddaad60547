//! Atomic multicast of small messages: claims put messages into the ring of their member, and the
//! engine announces, receives, stabilises and delivers them, in one order at all members.
//!
//! Start with [`Engine`], which polls each [`subgroup`](self) of a member. [`Claims`] are the
//! application's side of a ring, and a [`Cursor`] is the order in which a member delivers. An
//! [`Observer`] reads the rings of a group that it is no member of.
mod ablation;
pub mod claims;
pub mod cursor;
pub mod engine;
pub(crate) mod logging;
pub(crate) mod moves;
mod observer;
pub(crate) mod pace;
mod read_barrier;
mod ready;
pub(crate) mod resend;
mod sending;
pub mod stats;
mod subgroup;
mod upcalls;

pub use ablation::Ablation;
pub use claims::{Claim, ClaimError, Claims, Exclusive};
pub use cursor::{Batch, Cursor, Defect, Handoff, Message};
pub use engine::{Engine, LogExtent, Progress, State};
pub use logging::{DurableRise, Record, Records};
pub use observer::{Gap, Lapped, Observer, Seen};
pub use read_barrier::ReadBarrier;
pub use resend::{Resend, Resent};
pub use upcalls::Upcalls;
