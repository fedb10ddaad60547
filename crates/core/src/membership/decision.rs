//! The outcome of a view change.
use super::ballot::Ballot;
use super::proposal;
use super::proposal::{ProposalValue, Trims};
use super::slots::read_value;
use crate::ids::Process;
use crate::table::Rows;
use crate::view::View;
use crate::wire::layout::{Layout, membership};
use alloc::vec::Vec;
use core::hash::Hash;

/// The outcome of a view change.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// The ballot of the decision.
    pub ballot: Ballot,
    /// The next view.
    pub next: View,
    /// The processes that join with the next view, in its order. Another process with the id of one
    /// of them is not in the view.
    pub joined: Vec<Process>,
    /// The trims, which bound what is still delivered in the old view.
    pub trims: Trims,
}

/// Reads the decision from any row that contains one, for processes that are no members.
pub(crate) fn read_decision<R: Rows>(view: &View, layout: &Layout, rows: &R) -> Option<Decision> {
    // A row that claims a decision without containing it hides no other row's.
    view.ranks().find_map(|rank| {
        let (ballot, words) = read_value(rank, membership::DECIDED, layout, rows)?;
        let ProposalValue { next, joined, trims } = proposal::decode(&words, view)?;
        Some(Decision { ballot, next, joined, trims })
    })
}
