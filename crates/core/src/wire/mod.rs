//! Formats: the data that other processes read, in memory or in control messages.
//!
//! [`layout`] computes the offsets in a member's row, and [`ring`] defines the frames in its rings.
//! [`ControlMessage`] is a control message, whose bytes [`bytes`] reads and writes. Bytes of a peer
//! never cause a panic: an invalid message is an error or is dropped.
mod address;
mod birth;
pub mod bytes;
mod card;
pub(crate) mod control_message;
pub mod layout;
mod port;
mod query;
mod rack;
mod records;
pub mod ring;
mod settings;

pub use address::{Address, AddressError, Endpoint};
pub use birth::Birth;
pub use card::{Card, Purpose};
pub use control_message::{ControlMessage, Refusal, Request, Stranger, VERSION, Wanted, stranger};
pub use layout::{Layout, RowLayout};
pub use port::PortAddress;
pub use query::NoAnswer;
pub use rack::{RackName, RackNameError};
pub use records::{NoRecords, RecordBound, WantedRecords};
pub use ring::Ring;
pub use settings::{Difference, SharedSettings};
