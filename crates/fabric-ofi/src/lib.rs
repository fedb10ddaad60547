//! Members with RDMA hardware: each side writes frames into the other's memory, through libfabric.
//!
//! A [`Mesh`](spindle_fabric::Mesh) is [made over](spindle_fabric::Mesh::over) the connections of a
//! view (`links.rs`). An [`OfiMeeting`] makes these connections at the process's [`OfiPort`], takes
//! them over from the view before, and makes them again when they break. libfabric is loaded at the
//! first request (`library.rs`), through own definitions of its interface (`ffi.rs`); `objects.rs`
//! closes its objects in the right order. [`available`] lists the providers of a machine.
//!
//! - *Frames* go by one-sided writes from my row into the peers' copies of it, without an
//!   intermediate copy.
//! - *Control words* go by messages behind them, as docs/adr/0016 describes.
//! - *The target drives progress*: words are applied, and some providers move frames, when the
//!   peer's engine calls [`progress`](spindle_fabric::Fabric::progress).
//!
//! Nothing here is encrypted. Any process that can reach the hardware's network is trusted as
//! members are.
mod address;
mod channel;
mod error;
mod ffi;
mod hello;
mod info;
mod library;
mod limits;
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

/// The target of the events about links to other machines.
const TARGET: &str = "spindle::net";

pub use address::OfiAddress;
pub use error::{CallFailure, OfiError};
pub use hello::{HelloMismatch, LinkPurpose};
pub use meeting::OfiMeeting;
pub use port::OfiPort;
pub use provider::{OfiOptions, Provider, available};
