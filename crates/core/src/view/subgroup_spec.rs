//! The subgroups of a view as the application declares them, the rules that choose their members,
//! and the changes of both.
use super::ViewError;
use crate::ids::{MemberId, Rank, ViewId};
use crate::limits;
use crate::mutation::mutation;
use crate::wire::ring::{TIME_BYTES, frame_bytes};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::slice;

/// The order in which a subgroup delivers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Order {
    /// Every member delivers every message in the same order, once every member has received it
    /// (atomic multicast).
    #[default]
    Total,
    /// A message is delivered on receipt, first-in first-out per sender, with no common order
    /// ("unordered" in the papers).
    Fifo,
}

/// Where the messages of a subgroup are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Durability {
    /// In the memory of the members, until all of them have delivered a message.
    #[default]
    InMemory,
    /// In the log of each member too. A member delivers a message and appends it to its log.
    ///
    /// A message is durable once the log of every member has it on disk, if there are at least
    /// `copies` members. A subgroup of fewer members delivers, and no message becomes durable.
    Logged {
        /// The least number of members, 1 or more.
        copies: u32,
    },
    /// In the log of each member before any application gets it.
    ///
    /// A member delivers a message once the logs of all members have it on disk, if there are at least
    /// `copies` members. So no application acts on a message that a crash of all processes can erase.
    /// A subgroup of fewer members delivers nothing. Its messages stay in the rings of their senders.
    LoggedBeforeDelivery {
        /// The least number of members, 1 or more.
        copies: u32,
    },
}

impl Durability {
    /// The least number of members that a message needs to become durable. `None` if there is no log.
    pub const fn copies(self) -> Option<u32> {
        match self {
            Durability::InMemory => None,
            Durability::Logged { copies } | Durability::LoggedBeforeDelivery { copies } => Some(copies),
        }
    }

    /// Whether a message is delivered only once it is durable.
    pub const fn delivers_durable(self) -> bool {
        matches!(self, Durability::LoggedBeforeDelivery { .. })
    }
}

/// The rule that picks a subgroup's members, or its senders, when the view's members change.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rule {
    /// All members of the view, for members, or all members of the subgroup, for senders.
    #[default]
    Everyone,
    /// The listed members, as far as the view contains them or, for senders, the subgroup does.
    Only(Vec<MemberId>),
    /// The so many lowest ranks.
    First(u32),
    /// One shard of several: the subgroups of a view with the same `set` share its members among
    /// them.
    ///
    /// A member stays in its shard. New members are placed in the order of the view's list: first
    /// in shards that have fewer than `least` members, then in shards that have fewer than `most`.
    Shard {
        /// The number that all shards of one set have in common.
        set: u32,
        /// The smallest number of members. With fewer the shard is unavailable, and no member may
        /// send in it.
        least: u32,
        /// The largest number of members.
        most: u32,
    },
}

/// A change of the subgroups that a member requests for later views.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// A new subgroup. Its lists of members and senders mean nothing; its rules do.
    Create(SubgroupSpec),
    /// Other rules, window or message size for the subgroup of this name. The lists mean nothing,
    /// as there. Its order stays: what is sent again in the next view counts by the order in which
    /// it was sent first.
    Alter(SubgroupSpec),
    /// No such subgroup any more. One of its name and another order can be created a view later.
    Drop(String),
    /// Member `id` wants to be in a subgroup whose members are [listed](Rule::Only).
    Enter {
        /// The subgroup.
        name: String,
        /// The member.
        id: MemberId,
    },
    /// Member `id` wants to be out of such a subgroup.
    Exit {
        /// The subgroup.
        name: String,
        /// The member.
        id: MemberId,
    },
    /// A logged subgroup begins a new epoch, whose messages have later clocks than this one. It
    /// ends the wait for the clock of a subgroup in which nothing is sent.
    Clock {
        /// The subgroup.
        name: String,
        /// The clock, in ns since 1970.
        clock: u64,
    },
}

/// One subgroup of a view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SubgroupSpec {
    /// Its name, unique in the view, 1 to 128 bytes.
    pub name: String,
    /// Its members, as ranks of the view, ascending. With none it is unavailable.
    pub members: Vec<Rank>,
    /// The members that send, ascending. A sender's index in this list is its sender rank.
    pub senders: Vec<Rank>,
    /// The rule that picks the members in later views.
    pub member_rule: Rule,
    /// The rule that picks the senders in later views.
    pub sender_rule: Rule,
    /// The order of delivery.
    pub order: Order,
    /// How many messages of the largest size a sender may have on the way (w in the papers).
    pub window: u64,
    /// The largest message, in bytes (m in the papers).
    pub message_bytes_max: u64,
    /// The largest message, in bytes, that a member may have to send again from a view in which
    /// larger messages were allowed; 0 if that is none. It follows from the views before, and means
    /// nothing in a [`Change`].
    pub leftover_bytes_max: u64,
    /// Where the messages are kept.
    pub durability: Durability,
    /// In a logged subgroup: all messages of this epoch have later clocks, and no message of an earlier
    /// epoch has one, in ns since 1970. It follows from the views before and from
    /// [`Change::Clock`], and means nothing in other changes.
    pub clock: u64,
    /// The view with which the subgroup's epoch began, if it is an earlier view.
    ///
    /// No change of the view since then has touched the subgroup. Its entries and rings are stored
    /// in the rows of that view. `None` if the epoch begins with this view. The field follows from
    /// the views before, and has no meaning in a [`Change`].
    pub epoch: Option<ViewId>,
}

/// The subgroups of a view. Clones share one list until one of them is changed: there may be a
/// thousand subgroups, and a member has its view in several places.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Subgroups(Arc<Vec<SubgroupSpec>>);

impl Deref for Subgroups {
    type Target = Vec<SubgroupSpec>;

    #[inline]
    fn deref(&self) -> &Vec<SubgroupSpec> {
        &self.0
    }
}

/// A change of a shared list makes a copy.
impl DerefMut for Subgroups {
    fn deref_mut(&mut self) -> &mut Vec<SubgroupSpec> {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<SubgroupSpec>> for Subgroups {
    fn from(list: Vec<SubgroupSpec>) -> Subgroups {
        Subgroups(Arc::new(list))
    }
}

impl FromIterator<SubgroupSpec> for Subgroups {
    fn from_iter<I: IntoIterator<Item = SubgroupSpec>>(list: I) -> Subgroups {
        Subgroups::from(Vec::from_iter(list))
    }
}

impl<'a> IntoIterator for &'a Subgroups {
    type Item = &'a SubgroupSpec;
    type IntoIter = slice::Iter<'a, SubgroupSpec>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Subgroups {
    type Item = &'a mut SubgroupSpec;
    type IntoIter = slice::IterMut<'a, SubgroupSpec>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl SubgroupSpec {
    /// Returns a totally ordered subgroup in which every member sends up to 10,000 bytes, 100
    /// messages at a time.
    ///
    /// Its lists are empty, because it is meant for [`Change::Create`].
    pub fn of_everyone(name: impl Into<String>) -> SubgroupSpec {
        SubgroupSpec {
            name: name.into(),
            members: Vec::new(),
            senders: Vec::new(),
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            order: Order::Total,
            window: 100,
            message_bytes_max: 10_000,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        }
    }

    /// Returns the part of it that is the same in each view, until it is altered.
    pub(super) fn bare(&self) -> SubgroupSpec {
        SubgroupSpec { members: vec![], senders: vec![], leftover_bytes_max: 0, clock: 0, epoch: None, ..self.clone() }
    }
}

impl SubgroupSpec {
    /// Returns whether the subgroup has as many members as its rule asks for. No member sends in an
    /// unavailable subgroup.
    pub fn is_available(&self) -> bool {
        match self.member_rule {
            Rule::Shard { least, .. } => self.members.len() >= least as usize,
            _ => !self.members.is_empty(),
        }
    }

    /// Whether it has members, and is the same as `next` of a later view, if the members have these
    /// ranks there: with the same members and senders, and rings of the same shape.
    pub(super) fn is_same(&self, next: &SubgroupSpec, now: &[Option<Rank>]) -> bool {
        let are = |ranks: &[Rank], next: &[Rank]| {
            let mut there =
                ranks.iter().map(|rank| now[rank.index()]).filter(|now| now.is_some() || !mutation!(GoneUnnoticed));
            next.iter().all(|next| there.next() == Some(Some(*next))) && there.next().is_none()
        };
        let shape = |spec: &SubgroupSpec| {
            let SubgroupSpec { order, window, message_bytes_max, leftover_bytes_max, durability, .. } = *spec;
            (order, window, message_bytes_max, leftover_bytes_max, durability)
        };
        let has_members = !self.members.is_empty();
        // A clock that has been raised counts from the first message of an epoch on.
        has_members
            && (self.clock == next.clock || mutation!(RaisedWithinEpoch))
            && shape(self) == shape(next)
            && are(&self.members, &next.members)
            && are(&self.senders, &next.senders)
    }

    /// Whether its members keep a log.
    pub fn is_logged(&self) -> bool {
        self.durability.copies().is_some()
    }

    /// Whether it delivers only what is durable, and has too few members for that. Then it delivers nothing.
    pub fn lacks_copies(&self) -> bool {
        self.durability.delivers_durable() && self.durability.copies() > Some(self.members.len() as u32)
    }

    /// Bytes at the end of each frame, after its payload.
    pub fn trailer_bytes(&self) -> u64 {
        if self.is_logged() { TIME_BYTES } else { 0 }
    }

    /// Whether what `member` has to send again here waits until the subgroup has enough members. If
    /// not, and it is no sender, it gives that up.
    pub fn keeps(&self, member: Rank) -> bool {
        !self.is_available() && self.members.binary_search(&member).is_ok()
    }

    /// The number of a message of `sender` with this round among all of one view: in a total order
    /// its place, with nulls and voids counted, so that numbers ascend and need not follow each
    /// other; in a Fifo subgroup its place among those of its sender. The same at all members.
    /// `None` if it is no sender.
    pub fn sequence(&self, sender: Rank, round: u64) -> Option<u64> {
        let rank = self.sender_rank(sender)? as u64;
        Some(match self.order {
            Order::Total => round * self.senders.len() as u64 + rank,
            Order::Fifo => round,
        })
    }

    /// The sender rank of `member`: its place among the senders.
    pub fn sender_rank(&self, member: Rank) -> Option<usize> {
        self.senders.binary_search(&member).ok()
    }

    pub(super) fn check(&self, members: usize) -> Result<(), ViewError> {
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
        self.in_range("leftover_bytes_max", self.leftover_bytes_max, 0, limits::MESSAGE_BYTES_MAX)?;
        if let Some(copies) = self.durability.copies() {
            self.in_range("durable_copies", copies.into(), 1, limits::MEMBERS_MAX as u64)?;
            if self.order == Order::Fifo {
                return Err(ViewError::LoggedFifo { name: self.name.clone() });
            }
        }
        let ring = self.window * frame_bytes(self.message_bytes_max + self.trailer_bytes());
        self.in_range("window * message_bytes_max", ring, 1, limits::RING_BYTES_MAX)
    }

    fn in_range(&self, field: &'static str, got: u64, min: u64, max: u64) -> Result<(), ViewError> {
        if (min..=max).contains(&got) {
            return Ok(());
        }
        Err(ViewError::Range { name: self.name.clone(), field, got, min, max })
    }
}

impl Change {
    /// The subgroup that it is about.
    pub fn name(&self) -> &str {
        match self {
            Change::Create(spec) | Change::Alter(spec) => &spec.name,
            Change::Drop(name)
            | Change::Enter { name, .. }
            | Change::Exit { name, .. }
            | Change::Clock { name, .. } => name,
        }
    }

    /// The same without what means nothing: the lists of a subgroup, which are ranks of some view.
    pub(crate) fn bare(self) -> Change {
        match self {
            Change::Create(spec) => Change::Create(spec.bare()),
            Change::Alter(spec) => Change::Alter(spec.bare()),
            other => other,
        }
    }

    /// Whether the two can't both count: they are about one subgroup, and not about two members of
    /// it. A clock can be raised beside any other change.
    pub(crate) fn contradicts(&self, other: &Change) -> bool {
        if matches!(self, Change::Clock { .. }) || matches!(other, Change::Clock { .. }) {
            return false;
        }
        let member = |change: &Change| match change {
            Change::Enter { id, .. } | Change::Exit { id, .. } => Some(*id),
            _ => None,
        };
        let (mine, theirs) = (member(self), member(other));
        self.name() == other.name() && (mine.is_none() || theirs.is_none() || mine == theirs)
    }
}

impl Rule {
    /// The ranks of `from`, which ascends, that it picks; `ids` are the ids of all ranks.
    pub fn pick(&self, ids: &[MemberId], from: &[Rank]) -> Vec<Rank> {
        self.pick_by(&by_id(ids), from)
    }

    pub(super) fn pick_by(&self, by_id: &BTreeMap<MemberId, Rank>, from: &[Rank]) -> Vec<Rank> {
        match self {
            Rule::Everyone => from.to_vec(),
            Rule::Only(list) => {
                let is_there = |rank: &Rank| from.binary_search(rank).is_ok();
                let mut picked: Vec<Rank> =
                    list.iter().filter_map(|id| by_id.get(id).copied()).filter(is_there).collect();
                picked.sort_unstable();
                picked.dedup();
                picked
            }
            Rule::First(count) => from.iter().copied().take(*count as usize).collect(),
            // A member's shard depends on the shard that it was in before.
            Rule::Shard { .. } => from.to_vec(),
        }
    }
}

/// The ranks of members by their ids.
pub(super) fn by_id(ids: &[MemberId]) -> BTreeMap<MemberId, Rank> {
    ids.iter().copied().zip((0..).map(Rank)).collect()
}
