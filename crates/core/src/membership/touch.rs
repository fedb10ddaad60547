//! The subgroups whose epochs may end with the view, and how far this member is with them.
use crate::ids::{Rank, SubgroupId};
use crate::view::View;
use alloc::vec::Vec;

/// By subgroup of the view. All but `mine` only grow.
#[derive(Clone, Hash, Debug)]
pub(super) struct Touch {
    /// Whether this member is in it.
    mine: Vec<bool>,
    /// Whether it has to wedge here.
    wanted: Vec<bool>,
    /// How much of its order was delivered here when it wedged.
    wedged: Vec<Option<u64>>,
    /// Whether my ballots touch it.
    proposed: Vec<bool>,
}

impl Touch {
    pub(super) fn new(view: &View, me: Rank) -> Touch {
        let count = view.subgroups.len();
        Touch {
            mine: view.subgroups.iter().map(|spec| spec.members.binary_search(&me).is_ok()).collect(),
            wanted: alloc::vec![false; count],
            wedged: alloc::vec![None; count],
            proposed: alloc::vec![false; count],
        }
    }

    /// These have to wedge. Whether this member has yet to do so in some of them.
    pub(super) fn want(&mut self, touched: &[bool]) -> bool {
        unite(&mut self.wanted, touched);
        self.lacks()
    }

    /// All have to wedge.
    pub(super) fn want_all(&mut self) {
        self.wanted.fill(true);
    }

    /// Whether this member has yet to wedge in some of them.
    pub(super) fn lacks(&self) -> bool {
        self.to_wedge().next().is_some()
    }

    /// The subgroups in which this member has yet to wedge.
    pub(super) fn to_wedge(&self) -> impl Iterator<Item = SubgroupId> + '_ {
        let lacks = |i: &usize| self.mine[*i] && self.wanted[*i] && self.wedged[*i].is_none();
        (0..self.mine.len()).filter(lacks).map(|i| SubgroupId(i as u32))
    }

    /// It has wedged, with so much of its order delivered.
    pub(super) fn note_wedged(&mut self, subgroup: SubgroupId, delivered: u64) {
        self.wedged[subgroup.index()] = Some(delivered);
    }

    /// How much of the order of `subgroup` was delivered here when it wedged; `None` if it has not.
    pub(super) fn delivered(&self, subgroup: SubgroupId) -> Option<u64> {
        self.wedged[subgroup.index()]
    }

    /// My next ballots touch these, too.
    pub(super) fn propose(&mut self, touched: &[bool]) {
        unite(&mut self.proposed, touched);
    }

    /// My next ballots touch these, too, and so this member wedges all that they touch. Whether it has yet to do so in some of them.
    pub(super) fn want_proposed(&mut self, touched: &[bool]) -> bool {
        self.propose(touched);
        unite(&mut self.wanted, &self.proposed);
        self.lacks()
    }

    /// The subgroups that my ballots touch.
    pub(super) fn proposed(&self) -> &[bool] {
        &self.proposed
    }

    /// Whether my newest ballot touches all of these.
    pub(super) fn may_touch(&self, touched: &[bool]) -> bool {
        touched.iter().zip(&self.proposed).all(|(touched, proposed)| *proposed || !touched)
    }
}

fn unite(all: &mut [bool], more: &[bool]) {
    all.iter_mut().zip(more).for_each(|(all, more)| *all |= more);
}
