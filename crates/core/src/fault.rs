//! What ends a group early. Which process a rank is, and what to do, is the library's to say.
use crate::cursor::Defect;
use crate::ids::{Rank, SubgroupId};

/// What stops an engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A member's counter went back, or further than any can go.
    #[error("the member of rank {member} sent garbage: its counter `{counter}` went from {before} to {now}")]
    Counter {
        /// Who.
        member: Rank,
        /// Which counter.
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
        /// Where.
        subgroup: SubgroupId,
        /// What was found.
        defect: Defect,
    },
    /// A proposal, or a decision, that no correct member writes.
    #[error("the member of rank {member} sent garbage: what it has accepted, or says was decided, makes no view")]
    Proposal {
        /// Who.
        member: Rank,
    },
}

impl Fault {
    /// Whose fault it is.
    pub fn member(&self) -> Rank {
        match self {
            Fault::Counter { member, .. } | Fault::Proposal { member } => *member,
            Fault::Frame { defect, .. } => defect.sender,
        }
    }
}
