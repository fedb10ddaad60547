//! One-sided memory between the members of a group: each writes its own row, and reads everybody's.
//!
//! Start with [`Fabric`], what a transport offers, and [`Mesh`], the one of groups: by [shared memory](shm) to members of the same
//! machine, over [streams](tcp) or through [libfabric](ofi) to those of others. [`Publisher`] is how applications put messages into that memory;
//! [`conformance`] is what every fabric must pass.
//!
//! This is the only crate with `unsafe`, and [`region`] says what makes it right. There is no protocol here: what the words
//! of a row mean is `spindle-core`'s business, except for the one that says that a member sleeps ([`bell`]).
mod arena;
pub mod barrier;
pub mod bell;
pub mod bulk;
pub mod coarse;
pub mod conformance;
pub mod fabric;
mod far;
pub mod fork;
pub mod life;
pub mod mail;
pub mod mesh;
mod mirror;
pub mod net;
pub mod ofi;
pub mod pipe;
mod places;
#[cfg(test)]
mod pointers;
pub mod probe;
pub mod publisher;
pub mod reader;
mod readings;
pub mod region;
mod shelf;
pub mod shm;
pub mod tcp;

pub use arena::Arena;
pub use bell::{Bell, Doorbell};
pub use coarse::CoarseClock;
pub use fabric::Fabric;
pub use life::LifeLine;
pub use mesh::{Lingering, Mesh, MeshError, Peer, Retired, Watched};
pub use mirror::Mirror;
pub use ofi::OfiError;
pub use publisher::{Claiming, Frame, PublishError, Publisher, Room, SharedPublisher};
pub use reader::{OwnRows, Reader, ReaderFrames};
pub use region::{CopyChunk, CopyRegion, OwnRegion, PeerRegion, RegionError, SharedRegion};
pub use shelf::{commit_name, name_place};
pub use shm::{ControlBlock, MemberBell, OwnRow, PeerParts, ShownRow};
