//! One-sided memory between the members of a group: each member writes its own row and reads all
//! rows.
//!
//! Start with [`Fabric`], the interface of a transport, and [`Mesh`], the fabric of groups. A
//! `Mesh` reaches members of the same machine by [shared memory](shm), and members of other
//! machines over [streams](tcp) or over [another network](connections). With a [`Publisher`],
//! applications put messages into that memory. Every fabric must pass [`conformance`].
//!
//! The `unsafe` code of shared memory is here, and [`region`] says why it is sound. The crate
//! contains no protocol: `spindle-core` defines the meaning of a row's words, except for the word
//! that says that a member sleeps ([`event_count`]).
#[cfg(not(target_os = "linux"))]
compile_error!("Spindle runs on Linux only: it shares memory by memfd, and uses futex, pidfd and membarrier");
#[cfg(target_endian = "big")]
compile_error!("Spindle's rows are little-endian: processors with the other order are not supported");

mod arena;
pub mod barrier;
pub mod bulk;
pub mod coarse;
pub mod conformance;
pub mod connections;
mod error;
pub mod event_count;
pub mod fabric;
mod far;
pub mod life;
mod log_clock;
mod member_event_count;
pub mod mesh;
mod mirror;
mod object_table;
pub mod pipe;
mod places;
#[cfg(test)]
mod pointers;
pub mod probe;
pub mod publisher;
pub mod reader;
mod readings;
pub mod region;
pub mod shm;
pub mod tcp;

pub use arena::Arena;
pub use coarse::CoarseClock;
pub use connections::{Connections, NoConnections};
pub use error::MeshError;
pub use event_count::{Announced, Doorbell, EventCount};
pub use fabric::Fabric;
pub use life::LivenessThread;
pub use log_clock::{LogClock, WallClock};
pub use member_event_count::MemberEventCount;
pub use mesh::{Lingering, Mesh, Peer, Retired, Watched};
pub use mirror::Mirror;
pub use object_table::{commit_name, name_place};
pub use publisher::{Claiming, Frame, PublishError, Publisher, Room, SharedPublisher};
pub use reader::{OwnRows, Reader, ReaderFrames};
pub use region::{CopyChunk, CopyRegion, OwnRegion, PeerRegion, RegionError, SharedRegion};
pub use shm::{ControlBlock, OwnRow, RowDescriptors, ShownRow};
