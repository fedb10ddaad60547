//! What carries the blocks of a bulk group: streams of their own between every two hosts, or, on one machine, the object itself.
//!
//! Read [`BulkLinks`] first, which moves frames (`wire.rs`): blocks and a member's counters. Blocks are sent out of
//! the memory in which their object stands, and received into theirs; what there is to send and where it goes, a [`Store`] says. Streams
//! are apart from those of the small messages, so that no counter of an ordered subgroup waits behind a block.
//!
//! On one machine nothing is moved: [`LocalLinks`] hand the descriptor of the [`Segment`] in which an object stands from its root to the
//! others, who map it. [`Object`] and [`Buffer`] are what is sent and received, whatever it stands in.
//!
//! What a peer sends that nobody asked for ends the connection to that peer ([`BulkDown`]), and nothing else.
mod error;
mod inbox;
mod links;
mod local;
mod object;
mod outbox;
#[cfg(test)]
mod tests;
mod wire;

pub use error::{BulkDown, BulkLinksError};
pub use links::{BulkLinks, Ready, Store, Word};
pub use local::{LocalLinks, LocalNews, LocalPart};
pub use object::{Buffer, Object, Segment};
pub use wire::{BlockHead, Greeting};
