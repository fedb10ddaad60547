//! Faults that end a group early. The library maps a rank to its process, and decides what to do.
use crate::ids::{Rank, SubgroupId};
use crate::multicast::cursor::Defect;

/// A fault that stops an engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A member's counter went back, or further than any counter can go.
    #[error("the member of rank {member} sent garbage: its counter `{counter}` went from {before} to {now}")]
    Counter {
        /// The rank of the member.
        member: Rank,
        /// The name of the counter.
        counter: &'static str,
        /// Its last good value.
        before: u64,
        /// Its value now.
        now: u64,
    },
    /// A member announced a frame that no correct member writes.
    #[error(
        "the member of rank {} sent garbage in subgroup {subgroup}: no frame at position {} of its ring (header {:#x})",
        defect.sender, defect.position, defect.header
    )]
    Frame {
        /// The subgroup of the frame.
        subgroup: SubgroupId,
        /// The frame that was found.
        defect: Defect,
    },
    /// A member accepted a proposal, or published a decision, that no correct member writes.
    #[error("the member of rank {member} sent garbage: what it has accepted, or says was decided, makes no view")]
    Proposal {
        /// The rank of the member.
        member: Rank,
    },
}

impl Fault {
    /// Returns the rank of the member that caused the fault.
    pub fn member(&self) -> Rank {
        match self {
            Fault::Counter { member, .. } | Fault::Proposal { member } => *member,
            Fault::Frame { defect, .. } => defect.sender,
        }
    }
}
