//! Members with RDMA hardware: frames are written by one side into the other's memory, through libfabric.
//!
//! A [`Mesh`](crate::Mesh) is [made over](crate::Mesh::over) the connections of a view (`links.rs`), which an [`OfiMeeting`] makes at the process's [`OfiPort`],
//! takes over from the view before, and makes again when they break. libfabric is loaded when it is asked for (`library.rs`), through own definitions of its
//! interface (`ffi.rs`); `objects.rs` closes its objects in the right order. What there is on a machine, [`available`] says.
//!
//! - *Frames* go by one-sided writes from my row into the peers' copies of it, without a copy on the way.
//! - *Control words* go by messages behind them, as docs/adr/0016 has it.
//! - *The target drives progress*: words are applied, and some providers move frames, when the peer's engine calls
//!   [`progress`](crate::Fabric::progress).
//!
//! Nothing here is encrypted, and whoever can reach the network of the hardware is trusted as members are.
mod channel;
mod error;
mod ffi;
mod hello;
mod info;
mod library;
mod link;
mod links;
mod meeting;
mod network;
mod objects;
mod port;
mod provider;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turning;

pub use error::{Failure, OfiError};
pub use hello::{Mismatch, Purpose};
pub use meeting::OfiMeeting;
pub use port::{OfiAddress, OfiPort};
pub use provider::{OfiOptions, Provider, available};
