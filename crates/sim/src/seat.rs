//! The place of a member in the world: a stage and a rank.
use spindle_core::Rank;

/// A member on one stage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Seat {
    pub(crate) stage: usize,
    pub(crate) rank: Rank,
}
