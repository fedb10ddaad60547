//! Formats: the data that other processes read, in memory or in control messages.
//!
//! [`layout`] computes the offsets in a member's row, and [`ring`] defines the frames in its rings.
//! [`Letter`] is a control message, whose bytes [`bytes`] reads and writes. Bytes of a peer never
//! cause a panic: an invalid message is an error or is dropped.
mod address;
mod birth;
pub mod bytes;
mod card;
pub mod layout;
pub(crate) mod letter;
mod port;
mod rack;
pub mod ring;
mod settings;

pub use address::{Address, AddressError, Place};
pub use birth::Birth;
pub use card::{Card, Purpose};
pub use layout::{Layout, RowLayout};
pub use letter::{Letter, Refusal, Request, Stranger, VERSION, Wanted, stranger};
pub use port::PortAddress;
pub use rack::{RackName, RackNameError};
pub use ring::Ring;
pub use settings::{Difference, SharedSettings};
