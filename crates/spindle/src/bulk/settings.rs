//! The settings of a bulk group.
use spindle_core::Rank;
use spindle_core::rdmc::Hosts;
use spindle_core::rdmc::{Algorithm, Schedule, SessionSettings};
use std::time::Duration;

/// The settings that the members of a bulk group have to agree on. This is checked when their
/// connections begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkSettings {
    /// How blocks spread among the [leaders](Hosts::heads) of hosts. The racks of
    /// [`Algorithm::Hybrid`] contain their positions: the root's is 0, and the others follow by
    /// rank, from the one after the root, wrapping around after the last. Default: the binomial
    /// pipeline.
    pub algorithm: Algorithm,
    /// The size of a block in bytes, up to 1 GiB. Large blocks cost less each. Small ones let
    /// members begin earlier to pass on, and stay in the processor's caches on their way.
    pub block_bytes: u64,
    /// How many objects may be in transfer at once, 1 to 64. Each costs every member the memory of
    /// a block.
    pub slots: u32,
    /// For how many blocks a receiver is ready beyond those that it has, 2 to 64. With too few,
    /// senders wait for its credits.
    pub ahead: u32,
    /// How many posted blocks of a member may be unsent, at least 1.
    pub posts_max: u32,
    /// Objects of fewer bytes, and of one block, go from the root directly to all members. 0: none
    /// do.
    pub direct_below: u64,
    /// The longest object that this member accepts, in bytes. A member that announces or lends a
    /// longer one counts as dead. It need not be equal everywhere, but should be at members that
    /// share a host.
    pub object_bytes_max: u64,
    /// A further identification of this group: for example a name's hash, or the number of a view.
    pub tag: u64,
}

impl BulkSettings {
    /// Default of [`block_bytes`](Self::block_bytes).
    pub const BLOCK_BYTES: u64 = 256 << 10;
    /// Default of [`direct_below`](Self::direct_below).
    pub const DIRECT_BELOW: u64 = (64 << 10) + 1;
    /// The longest object that [`object_bytes_max`](Self::object_bytes_max) allows by default: 1 TiB.
    pub const OBJECT_BYTES_MAX: u64 = 1 << 40;
}

impl Default for BulkSettings {
    fn default() -> BulkSettings {
        BulkSettings {
            algorithm: Algorithm::BinomialPipeline,
            block_bytes: Self::BLOCK_BYTES,
            slots: 2,
            ahead: 4,
            posts_max: 2,
            direct_below: Self::DIRECT_BELOW,
            object_bytes_max: Self::OBJECT_BYTES_MAX,
            tag: 0,
        }
    }
}

impl BulkSettings {
    pub(super) fn session(&self, hosts: &Hosts, me: Rank) -> SessionSettings {
        let BulkSettings { block_bytes, slots, ahead, posts_max, direct_below, .. } = *self;
        let schedule = Schedule::new(self.algorithm.clone(), hosts.count());
        SessionSettings { schedule, me: hosts.position(me), block_bytes, slots, ahead, posts_max, direct_below }
    }

    /// Returns a digest of all settings that must be equal at all members.
    pub(super) fn digest(&self, hosts: &Hosts) -> u64 {
        let BulkSettings { algorithm, block_bytes, slots, ahead, posts_max, direct_below, tag, object_bytes_max: _ } =
            self;
        let all = [*block_bytes, (*slots).into(), (*ahead).into(), (*posts_max).into(), *direct_below, *tag];
        let algorithm = match algorithm {
            Algorithm::BinomialPipeline => "binomial pipeline".to_string(),
            Algorithm::Sequential => "sequential".to_string(),
            Algorithm::Chain => "chain".to_string(),
            Algorithm::BinomialTree => "binomial tree".to_string(),
            Algorithm::Hybrid(racks) => format!("{racks:?}"),
        };
        let members = (0..hosts.members()).map(|rank| u64::from(hosts.head(Rank(rank)).0));
        let words = all.into_iter().chain([hosts.root().0.into()]).chain(members).flat_map(u64::to_le_bytes);
        // FNV-1a: against mistakes, not against attacks.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        words.chain(algorithm.into_bytes()).fold(0xcbf2_9ce4_8422_2325, mix)
    }
}

/// How a thread that serves bulk groups waits for work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BulkWaiting {
    /// It never sleeps: this has the lowest latency, and takes a core.
    Polling,
    /// It looks for this long after its last work, and then sleeps. If other threads want its core
    /// it sleeps sooner.
    Hybrid {
        /// How long.
        spin_for: Duration,
    },
    /// It sleeps whenever it has no work, until the system wakes it.
    Interrupt,
}

impl Default for BulkWaiting {
    /// Sleeps after 50 µs.
    fn default() -> BulkWaiting {
        BulkWaiting::Hybrid { spin_for: Duration::from_micros(50) }
    }
}
