//! The events of a bulk group at one member, the last of which is its failure.
use spindle_core::Rank;
use spindle_fabric::RegionError;
use spindle_fabric::bulk::{BulkDown, Object};
use tracing::info;

/// The number of an object in its group: the root numbers them from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub u64);

/// An event of a member.
#[derive(Clone, Debug)]
pub enum BulkEvent {
    /// An object is coming: call [`post_receive_buffer`](crate::bulk::BulkNode::post_receive_buffer) with a
    /// buffer of this length. Meanwhile the first block is received and passed on. The others wait,
    /// here and at the members behind this one.
    Allocate {
        /// The object.
        object: ObjectId,
        /// Its exact length.
        bytes: u64,
    },
    /// All of an object is here, and this member has done its part for the others. Objects complete
    /// in order. At the root, the object is not read any more. At another member, the root learns
    /// of it with the next [`poll`](crate::bulk::BulkNode::poll), once all members of the host have it.
    Complete {
        /// The object's number.
        object: ObjectId,
        /// The object.
        data: Object,
    },
    /// At the root: every member has all of it.
    Everywhere {
        /// The object.
        object: ObjectId,
    },
    /// The group is closed. It is the last event, and comes at most once.
    Failed(BulkFailure),
}

/// How a bulk group ended at one member.
#[derive(Clone, Debug, thiserror::Error)]
#[error("member {dead} is lost: {cause}")]
pub struct BulkFailure {
    /// The member whose death or misbehaviour closed it.
    pub dead: Rank,
    /// How this was detected.
    pub cause: FailureCause,
    /// Known objects that will never be complete here; at the root, those that may be incomplete at
    /// another member.
    pub objects: Vec<ObjectId>,
}

/// How a member learned that another one is lost.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FailureCause {
    /// By its own connection to the lost member.
    #[error("{0}")]
    Down(std::sync::Arc<BulkDown>),
    /// By the report of a peer.
    #[error("member {by} says so")]
    Reported {
        /// The peer.
        by: Rank,
    },
    /// The lost member is this one: it can't share an object with the others of its host, or map an
    /// object that is lent to it.
    #[error("it has no memory for an object that its host shares: {0}")]
    Memory(std::sync::Arc<RegionError>),
    /// The lost member has destroyed the group, but still had to receive something.
    #[error("it has destroyed the group, and there is more for it")]
    Left,
}

impl BulkFailure {
    /// Logs that a bulk group is closed at `me`.
    pub(super) fn tell(&self, me: Rank) {
        let BulkFailure { dead, cause, objects } = self;
        let objects = objects.len();
        info!(target: "spindle::object", rank = me.0, dead = dead.0, reason = %cause, objects, "bulk group is closed");
    }
}
