//! A view: who takes part, in which subgroups, and how much each may send. Everything else that the members must agree
//! on (ranks, memory layout, order) follows from it.
use crate::ids::{MemberId, Rank, SubgroupId, ViewId};
use crate::limits;
use alloc::string::String;
use alloc::vec::Vec;

/// The order in which a subgroup delivers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Order {
    /// Every member delivers every message in the same order, once every member has received it (atomic multicast).
    #[default]
    Total,
    /// A message is delivered on receipt, first-in first-out per sender, with no common order ("unordered" in the
    /// papers).
    Fifo,
}

/// Who belongs to a subgroup, or sends in it, when members come and go.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rule {
    /// Everybody: of the view for members, of the subgroup for senders.
    #[default]
    Everyone,
    /// These, as far as they are there.
    Only(Vec<MemberId>),
    /// The so many lowest ranks.
    First(u32),
}

/// One subgroup of a view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubgroupSpec {
    /// Its name, unique in the view, 1 to 128 bytes.
    pub name: String,
    /// Its members, as ranks of the view, ascending. With none it is unavailable.
    pub members: Vec<Rank>,
    /// Those of its members that send, ascending. Their places in this list are their sender ranks.
    pub senders: Vec<Rank>,
    /// Who its members are in the views to come.
    pub member_rule: Rule,
    /// Who its senders are in the views to come.
    pub sender_rule: Rule,
    /// The order of delivery.
    pub order: Order,
    /// How many messages of the largest size a sender may have on the way (w in the papers).
    pub window: u64,
    /// The largest message, in bytes (m in the papers).
    pub message_bytes_max: u64,
}

/// A numbered membership and its subgroups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// Its number.
    pub id: ViewId,
    /// The members; a member's index is its [`Rank`].
    pub members: Vec<MemberId>,
    /// The subgroups; a subgroup's index is its [`SubgroupId`].
    pub subgroups: Vec<SubgroupSpec>,
}

/// Why a [`View`] can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// No member, or too many.
    #[error("a view holds 1 to {max} members, not {got}", max = limits::MEMBERS_MAX)]
    Members {
        /// How many there are.
        got: usize,
    },
    /// The same member twice.
    #[error("member {id} is listed twice in the view")]
    MemberTwice {
        /// Who.
        id: MemberId,
    },
    /// Too many subgroups.
    #[error("a view holds at most {max} subgroups, not {got}", max = limits::SUBGROUPS_MAX)]
    Subgroups {
        /// How many there are.
        got: usize,
    },
    /// A name that is empty, too long, or in use.
    #[error("subgroup name {name:?} is empty, longer than {max} bytes, or used twice", max = limits::NAME_BYTES_MAX)]
    Name {
        /// The name.
        name: String,
    },
    /// A member or sender list that is not ascending, or names somebody who is not there.
    #[error("the {list} of subgroup {name:?} must be ascending ranks of {of}")]
    Ranks {
        /// The subgroup.
        name: String,
        /// "members" or "senders".
        list: &'static str,
        /// What the list is drawn from.
        of: &'static str,
    },
    /// A number outside its limits.
    #[error("{field} of subgroup {name:?} is {got}; it may be {min} to {max}")]
    Range {
        /// The subgroup.
        name: String,
        /// Which number.
        field: &'static str,
        /// Its value.
        got: u64,
        /// The smallest it may be.
        min: u64,
        /// The largest it may be.
        max: u64,
    },
}

impl View {
    /// Checks everything that the rest of the crate relies on.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ViewError> {
        if self.members.is_empty() || self.members.len() > limits::MEMBERS_MAX {
            return Err(ViewError::Members { got: self.members.len() });
        }
        for (i, id) in self.members.iter().enumerate() {
            if self.members[..i].contains(id) {
                return Err(ViewError::MemberTwice { id: *id });
            }
        }
        if self.subgroups.len() > limits::SUBGROUPS_MAX {
            return Err(ViewError::Subgroups { got: self.subgroups.len() });
        }
        for (i, subgroup) in self.subgroups.iter().enumerate() {
            let used = self.subgroups[..i].iter().any(|other| other.name == subgroup.name);
            if subgroup.name.is_empty() || subgroup.name.len() > limits::NAME_BYTES_MAX || used {
                return Err(ViewError::Name { name: subgroup.name.clone() });
            }
            subgroup.check(self.members.len())?;
        }
        Ok(())
    }

    /// The view that follows this one: those of its members that stay, in their order, then those who join. So ranks go by
    /// age, and the subgroups' lists follow from their rules.
    pub fn next(&self, stays: impl Fn(Rank) -> bool, joining: &[MemberId]) -> View {
        let old = self.ranks().filter(|rank| stays(*rank)).map(|rank| self.members[rank.index()]);
        let members: Vec<MemberId> = old.chain(joining.iter().copied()).collect();
        let everyone: Vec<Rank> = (0..members.len() as u32).map(Rank).collect();
        let subgroups = self.subgroups.iter().map(|spec| {
            let of = spec.member_rule.pick(&members, &everyone);
            SubgroupSpec { senders: spec.sender_rule.pick(&members, &of), members: of, ..spec.clone() }
        });
        View { id: ViewId(self.id.0 + 1), subgroups: subgroups.collect(), members }
    }

    /// The rank of the member with this id.
    pub fn rank_of(&self, id: MemberId) -> Option<Rank> {
        self.members.iter().position(|member| *member == id).map(|index| Rank(index as u32))
    }

    /// The subgroup of this name.
    pub fn subgroup(&self, name: &str) -> Option<SubgroupId> {
        self.subgroups.iter().position(|spec| spec.name == name).map(|index| SubgroupId(index as u32))
    }

    /// The ranks of all members, in order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.members.len() as u32).map(Rank)
    }

    /// The subgroups that `member` belongs to.
    pub fn subgroups_of(&self, member: Rank) -> impl Iterator<Item = (SubgroupId, &SubgroupSpec)> {
        (0..).map(SubgroupId).zip(&self.subgroups).filter(move |(_, s)| s.members.contains(&member))
    }
}

impl Rule {
    /// Those of `from` that it picks; `ids` are the ids of all ranks.
    pub fn pick(&self, ids: &[MemberId], from: &[Rank]) -> Vec<Rank> {
        match self {
            Rule::Everyone => from.to_vec(),
            Rule::Only(list) => from.iter().copied().filter(|rank| list.contains(&ids[rank.index()])).collect(),
            Rule::First(count) => from.iter().copied().take(*count as usize).collect(),
        }
    }
}

impl SubgroupSpec {
    /// The sender rank of `member`: its place among the senders.
    pub fn sender_rank(&self, member: Rank) -> Option<usize> {
        self.senders.binary_search(&member).ok()
    }

    fn check(&self, members: usize) -> Result<(), ViewError> {
        let ascending = |list: &[Rank]| list.windows(2).all(|pair| pair[0] < pair[1]);
        let wrong = |list, of| Err(ViewError::Ranks { name: self.name.clone(), list, of });
        if !ascending(&self.members) || self.members.iter().any(|r| r.index() >= members) {
            return wrong("members", "the view's members");
        }
        if !ascending(&self.senders) || self.senders.iter().any(|r| self.members.binary_search(r).is_err()) {
            return wrong("senders", "the subgroup's members");
        }
        self.in_range("window", self.window, 1, limits::WINDOW_MAX)?;
        self.in_range("message_bytes_max", self.message_bytes_max, 0, limits::MESSAGE_BYTES_MAX)?;
        let ring = self.window * crate::ring::frame_bytes(self.message_bytes_max);
        self.in_range("window * message_bytes_max", ring, 1, limits::RING_BYTES_MAX)
    }

    fn in_range(&self, field: &'static str, got: u64, min: u64, max: u64) -> Result<(), ViewError> {
        if (min..=max).contains(&got) {
            return Ok(());
        }
        Err(ViewError::Range { name: self.name.clone(), field, got, min, max })
    }
}
