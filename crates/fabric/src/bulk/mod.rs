//! The transport of a bulk group's blocks: separate streams between every two hosts, or, on one
//! machine, the object itself.
//!
//! Read [`BulkLinks`] first, which moves frames (`wire.rs`): blocks and a member's counters. Blocks
//! are sent out of the memory that contains their object, and received into that of the receiver's
//! object. A [`BlockStore`] says what is to be sent and where it goes. The streams are separate from
//! those of the small messages, so that no counter of an ordered subgroup waits behind a block.
//!
//! On one machine nothing is moved: [`LocalLinks`] pass the descriptor of the [`Segment`] that
//! contains an object from its root to the others, which map it. [`Object`] and [`Buffer`] are sent
//! and received, in any kind of memory.
//!
//! Data that a peer sends without a request ends the connection to that peer ([`BulkDown`]), and
//! nothing else.
mod error;
mod inbox;
mod links;
mod local;
mod object;
mod outbox;
mod store;
#[cfg(test)]
mod tests;
mod wire;

pub use error::{BulkDown, BulkLinksError};
pub use links::{BulkLinks, LinkReadiness};
pub use local::{LocalEvent, LocalLinks, LocalPart};
pub use object::{Buffer, Object, Segment};
pub use store::{BlockStore, PeerWord};
pub use wire::{BlockHead, Greeting};
