//! The part of DDS 1.4 (DCPS) that needs no network and no group.
//!
//! The crate is driven by an ordered stream of samples and events, and time is an argument. Two caches
//! that get the same stream have the same contents.
//!
//! ```text
//! policy, qos --> matching --> directory --> stream --> cache <-- filter
//!                                                         |
//!                                                       status --> condition
//! ```
//!
//! A policy is honoured, or refused with an error that names it: the driver says which policies it honours
//! ([`qos::Supported`]). Each writer that does not match a reader has a reason that prints both values. Comments cite the clauses of OMG DDS 1.4
//! (formal/2015-04-10) as DDS and those of DDS-XTypes 1.3 as XTypes.
//!
//! **Absent on purpose:** I/O, clocks, threads, the encoding of types (`spindle-xcdr`).
#![forbid(unsafe_code)]

pub mod cache;
pub mod condition;
pub mod directory;
mod error;
pub mod filter;
mod id;
pub mod instance;
pub mod matching;
pub mod policy;
pub mod qos;
pub mod status;
pub mod stream;
mod time;

pub use error::{DdsError, PolicyConflict, ReturnCode};
pub use id::{Guid, InstanceHandle, Position};
pub use time::{DdsDuration, DdsTime};
