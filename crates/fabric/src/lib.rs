//! One-sided memory between the members of a group: each writes its own row, and reads everybody's.
//!
//! Start with [`Fabric`], what a transport offers, [`ShmFabric`], the one for members of one machine, and [`TcpFabric`], the one
//! for members of different ones. [`Publisher`] is
//! how applications put messages into that memory; [`conformance`] is what every fabric must pass.
//!
//! This is the only crate with `unsafe`, and [`region`] says what makes it right. There is no protocol here: what the words
//! of a row mean is `spindle-core`'s business, except for the one that says that a member sleeps ([`bell`]).
pub mod barrier;
pub mod bell;
pub mod bulk;
pub mod conformance;
pub mod fabric;
pub mod life;
pub mod mail;
pub mod pipe;
pub mod probe;
pub mod publisher;
pub mod reader;
pub mod region;
pub mod shm;
pub mod tcp;

pub use bell::{Bell, Doorbell, EventBell};
pub use fabric::Fabric;
pub use life::LifeLine;
pub use publisher::{Claiming, Frame, PublishError, Publisher, Room, SharedPublisher};
pub use reader::{Reader, ReaderFrames};
pub use region::{CopyRegion, OwnRegion, PeerRegion, RegionError, SharedRegion};
pub use shm::{ControlBlock, Lingering, MemberBell, OwnRow, PeerParts, ShmError, ShmFabric, ShmReader};
pub use tcp::{TcpError, TcpFabric};
