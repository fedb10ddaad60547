//! A view: who takes part, in which subgroups, and how much each may send. Everything else that the
//! members must agree on (ranks, memory layout, order) follows from it.
use crate::ids::{MemberId, Rank, SubgroupId, ViewId};
use crate::limits;
use crate::mutation::mutation;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::slice;

/// The older views whose rows a member needs, at most: it has memory, and streams, for each.
const OLDER_MAX: usize = 6;

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
    /// The view with which the subgroup's epoch began, if it is an earlier view.
    ///
    /// No change of the view since then has touched the subgroup. Its entries and rings are stored
    /// in the rows of that view. `None` if the epoch begins with this view. The field follows from
    /// the views before, and has no meaning in a [`Change`].
    pub epoch: Option<ViewId>,
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
            epoch: None,
        }
    }

    /// Returns the part of it that is the same in each view, until it is altered.
    fn bare(&self) -> SubgroupSpec {
        SubgroupSpec { members: vec![], senders: vec![], leftover_bytes_max: 0, epoch: None, ..self.clone() }
    }
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

/// A numbered membership and its subgroups.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// Its number.
    pub id: ViewId,
    /// The members; a member's index is its [`Rank`].
    pub members: Vec<MemberId>,
    /// Members that are no voters in this view, ascending: they have yet to begin a view. All
    /// others count for what ends it.
    pub nonvoters: Vec<Rank>,
    /// The subgroups; a subgroup's index is its [`SubgroupId`].
    pub subgroups: Subgroups,
}

/// Where a member sends again what was not delivered everywhere when the view before ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// In its ring of this view: it has this sender rank.
    Here(usize),
    /// Not in this view: the subgroup has too few members, and the member keeps its messages until
    /// it has enough.
    Later,
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
        /// The member.
        id: MemberId,
    },
    /// A list of members that don't vote that is not ascending, names a member that is not there,
    /// or leaves no voter.
    #[error("the {got} nonvoters of a view of {members} must be ascending ranks, and fewer than its members")]
    Voters {
        /// How many nonvoters are listed.
        got: usize,
        /// How many members there are.
        members: usize,
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
    /// A member or sender list that is not ascending, or has a rank that is not allowed there.
    #[error("the {list} of subgroup {name:?} must be ascending ranks of {of}")]
    Ranks {
        /// The subgroup.
        name: String,
        /// "members" or "senders".
        list: &'static str,
        /// The list that the ranks are drawn from.
        of: &'static str,
    },
    /// An epoch that began with this view, or begins with a later one.
    #[error("the epoch of subgroup {name:?} began with view {epoch}, which is no earlier view than {view}")]
    Epoch {
        /// The subgroup.
        name: String,
        /// The view with which its epoch is said to have begun.
        epoch: ViewId,
        /// The view.
        view: ViewId,
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
        if let Some(id) = twice(self.members.iter()) {
            return Err(ViewError::MemberTwice { id: *id });
        }
        let ascends = self.nonvoters.windows(2).all(|pair| pair[0] < pair[1]);
        let is_there = self.nonvoters.last().is_none_or(|last| last.index() < self.members.len());
        if !ascends || !is_there || self.nonvoters.len() == self.members.len() {
            return Err(ViewError::Voters { got: self.nonvoters.len(), members: self.members.len() });
        }
        if self.subgroups.len() > limits::SUBGROUPS_MAX {
            return Err(ViewError::Subgroups { got: self.subgroups.len() });
        }
        if let Some(name) = twice(self.subgroups.iter().map(|subgroup| &subgroup.name)) {
            return Err(ViewError::Name { name: name.clone() });
        }
        for subgroup in &self.subgroups {
            if subgroup.name.is_empty() || subgroup.name.len() > limits::NAME_BYTES_MAX {
                return Err(ViewError::Name { name: subgroup.name.clone() });
            }
            subgroup.check(self.members.len())?;
            if let Some(epoch) = subgroup.epoch.filter(|epoch| *epoch >= self.id) {
                return Err(ViewError::Epoch { name: subgroup.name.clone(), epoch, view: self.id });
            }
        }
        Ok(())
    }

    /// Returns the view that follows this one.
    ///
    /// Its members are the members that stay, in their order, and then the joiners. So ranks go by
    /// age, and the subgroups' lists follow from their rules. The function ignores `changes` that
    /// make no sense in this view. Subgroups that the change of the view does not touch keep their
    /// [epochs](SubgroupSpec::epoch).
    pub fn next(&self, stays: impl Fn(Rank) -> bool, joining: &[MemberId], changes: &[Change]) -> View {
        let old = self.ranks().filter(|rank| stays(*rank)).map(|rank| self.members[rank.index()]);
        let members: Vec<MemberId> = old.chain(joining.iter().copied()).collect();
        let subgroups = self.subgroups.clone();
        let mut next = View { id: self.id.next(), members, nonvoters: vec![], subgroups };
        // Members that stay keep their order, and come first.
        let mut ranks = (0..).map(Rank);
        let now: Vec<Option<Rank>> = self.ranks().map(|was| stays(was).then(|| ranks.next()).flatten()).collect();
        // The rules pick all lists below. Only shards start from the members that they have here.
        for spec in &mut next.subgroups {
            spec.members = spec.members.iter().filter_map(|was| now[was.index()]).collect();
            spec.senders.clear();
        }
        for change in changes {
            let before = next.subgroups.clone();
            if !(next.apply(change) && next.is_sound() && self.has_orders_of(&next)) {
                next.subgroups = before;
            }
        }
        next.keep_leftovers(self);
        next.lay_out();
        next.keep_epochs(self);
        next
    }

    /// Subgroups that are what they were in the view `before`, member by member, keep their epochs.
    fn keep_epochs(&mut self, before: &View) {
        let now = before.ranks_in(self);
        let old: BTreeMap<&str, (SubgroupId, &SubgroupSpec)> =
            (0..).map(SubgroupId).zip(&before.subgroups).map(|(id, spec)| (&*spec.name, (id, spec))).collect();
        for spec in &mut self.subgroups {
            let kept = old.get(&*spec.name).filter(|(_, old)| old.is_same(spec, &now));
            spec.epoch = kept.map(|(id, _)| before.epoch(*id));
        }
        self.bound_epochs();
    }

    /// Ends the oldest epochs of members that would need the rows of more than [`OLDER_MAX`] older
    /// views.
    fn bound_epochs(&mut self) {
        let epochs: BTreeSet<ViewId> = self.subgroups.iter().filter_map(|spec| spec.epoch).collect();
        if epochs.len() <= OLDER_MAX {
            return;
        }
        let mut older: Vec<BTreeSet<ViewId>> = self.members.iter().map(|_| BTreeSet::new()).collect();
        for spec in &self.subgroups {
            for rank in &spec.members {
                older[rank.index()].extend(spec.epoch);
            }
        }
        // By rank, the oldest view whose rows the member needs.
        let oldest = |older: &BTreeSet<ViewId>| older.iter().rev().nth(OLDER_MAX - 1).copied();
        let oldest: Vec<Option<ViewId>> = older.iter().map(oldest).collect();
        for spec in &mut self.subgroups {
            let is_too_old = |rank: &Rank| spec.epoch < oldest[rank.index()];
            if spec.members.iter().any(is_too_old) {
                spec.epoch = None;
            }
        }
    }

    /// Begins a new epoch of every subgroup.
    pub fn begin_epochs(&mut self) {
        self.subgroups.iter_mut().for_each(|spec| spec.epoch = None);
    }

    /// The view with which the epoch of `subgroup` began.
    ///
    /// # Panics
    /// If the view has no such subgroup.
    pub fn epoch(&self, subgroup: SubgroupId) -> ViewId {
        self.subgroups[subgroup.index()].epoch.unwrap_or(self.id)
    }

    /// The members of the subgroups of `id` whose epochs began with older views, each with the
    /// view.
    pub fn sharers(&self, id: MemberId) -> impl Iterator<Item = (ViewId, MemberId)> {
        let me = self.rank_of(id);
        let older = self.subgroups.iter().filter_map(|spec| Some((spec.epoch?, &spec.members)));
        let mine = older.filter(move |(_, members)| me.is_some_and(|me| members.contains(&me)));
        mine.flat_map(move |(epoch, members)| members.iter().map(move |rank| (epoch, self.members[rank.index()])))
    }

    /// By subgroup of this view, whether its epoch ends with it when `next` follows: it is not
    /// there any more, or begins anew.
    pub fn touched_by(&self, next: &View) -> Vec<bool> {
        let next = next.by_name();
        let goes_on = |spec: &SubgroupSpec| next.get(&*spec.name).is_some_and(|next| next.epoch.is_some());
        self.subgroups.iter().map(|spec| !goes_on(spec)).collect()
    }

    /// Whether `next`, which may be anything that a peer has written, keeps the epochs of those
    /// subgroups only that it does not touch.
    pub(crate) fn has_sound_epochs(&self, next: &View) -> bool {
        let mut expected = next.clone();
        expected.keep_epochs(self);
        next.subgroups
            .iter()
            .zip(&expected.subgroups)
            .all(|(next, most)| next.epoch.is_none() || next.epoch == most.epoch)
    }

    /// By rank of this view: the rank in `next` of the same member.
    fn ranks_in(&self, next: &View) -> Vec<Option<Rank>> {
        let ranks = by_id(&next.members);
        self.members.iter().map(|id| ranks.get(id).copied()).collect()
    }

    /// Whether `change` makes sense in this view, and is not the case already.
    pub fn wants(&self, change: &Change) -> bool {
        let mut next = self.bare();
        next.apply(change) && next != self.bare() && next.is_sound() && self.has_orders_of(&next)
    }

    /// Whether the subgroups that go on in `next` keep their orders.
    fn has_orders_of(&self, next: &View) -> bool {
        let before = self.by_name();
        next.subgroups.iter().all(|spec| before.get(&*spec.name).is_none_or(|before| before.order == spec.order))
    }

    /// Whether `next`, which follows this view, has settled what `change` is about, by it or by
    /// another change.
    pub(crate) fn has_settled(&self, change: &Change, next: &View) -> bool {
        let of = |view: &View| {
            let spec = view.subgroups.iter().find(|spec| spec.name == change.name()).map(SubgroupSpec::bare);
            match (change, spec.as_ref().map(|spec| &spec.member_rule)) {
                (Change::Enter { id, .. } | Change::Exit { id, .. }, Some(Rule::Only(ids))) => (None, ids.contains(id)),
                (Change::Enter { .. } | Change::Exit { .. }, _) => (None, false),
                _ => (spec, false),
            }
        };
        of(self) != of(next)
    }

    /// Whether its subgroups are within the limits, whoever the members are.
    fn is_sound(&self) -> bool {
        View { members: vec![MemberId(0)], nonvoters: vec![], ..self.bare() }.check().is_ok()
    }

    /// Returns the view without members, and its subgroups without lists.
    fn bare(&self) -> View {
        let empty = |spec: &SubgroupSpec| SubgroupSpec { leftover_bytes_max: spec.leftover_bytes_max, ..spec.bare() };
        let subgroups = self.subgroups.iter().map(empty).collect();
        View { id: self.id, members: vec![], nonvoters: vec![], subgroups }
    }

    /// Changes the list of subgroups, and the lists in their rules. Returns false if the change
    /// does not apply.
    fn apply(&mut self, change: &Change) -> bool {
        let at = |name: &str| self.subgroups.iter().position(|spec| spec.name == name);
        match change {
            Change::Create(spec) => {
                let is_new = at(&spec.name).is_none();
                if is_new {
                    let leftover_bytes_max = 0;
                    let (members, senders) = (vec![], vec![]);
                    self.subgroups.push(SubgroupSpec {
                        members,
                        senders,
                        leftover_bytes_max,
                        epoch: None,
                        ..spec.clone()
                    });
                }
                is_new
            }
            Change::Alter(spec) => at(&spec.name).is_some_and(|at| {
                let old = &mut self.subgroups[at];
                let (members, leftover_bytes_max) = (core::mem::take(&mut old.members), old.leftover_bytes_max);
                *old = SubgroupSpec { members, senders: vec![], leftover_bytes_max, epoch: None, ..spec.clone() };
                true
            }),
            Change::Drop(name) => at(name).map(|at| self.subgroups.remove(at)).is_some(),
            Change::Enter { name, id } => at(name).is_some_and(|at| match &mut self.subgroups[at].member_rule {
                Rule::Only(ids) if !ids.contains(id) && ids.len() < limits::MEMBERS_MAX => {
                    ids.push(*id);
                    true
                }
                _ => false,
            }),
            Change::Exit { name, id } => at(name).is_some_and(|at| match &mut self.subgroups[at].member_rule {
                Rule::Only(ids) => {
                    ids.retain(|listed| listed != id);
                    true
                }
                _ => false,
            }),
        }
    }

    /// Messages that were accepted in the view `before`, or in one before that, still fit into the
    /// rings: none is lost because its subgroup takes shorter ones now.
    fn keep_leftovers(&mut self, before: &View) {
        let before = before.by_name();
        for spec in &mut self.subgroups {
            let Some(old) = before.get(&*spec.name) else { continue };
            let largest = old.message_bytes_max.max(old.leftover_bytes_max);
            spec.leftover_bytes_max = if largest > spec.message_bytes_max { largest } else { 0 };
        }
    }

    /// Fills the subgroups by their rules. Before the call, each shard contains the members that it
    /// had.
    fn lay_out(&mut self) {
        let everyone: Vec<Rank> = self.ranks().collect();
        let by_id = by_id(&self.members);
        self.fill_shards();
        for spec in &mut self.subgroups {
            let available = match spec.member_rule {
                Rule::Shard { least, .. } => spec.members.len() >= least as usize,
                _ => {
                    spec.members = spec.member_rule.pick_by(&by_id, &everyone);
                    true
                }
            };
            spec.senders = if available { spec.sender_rule.pick_by(&by_id, &spec.members) } else { Vec::new() };
        }
    }

    /// Shares the members among the [shards](Rule::Shard). A member stays in its shard.
    ///
    /// The senders of shards follow from the rules. All other subgroups stay as they are. So a
    /// first view gets its shards, as later views do by [`next`](Self::next).
    pub fn share_out(&mut self) {
        self.fill_shards();
        for spec in self.subgroups.iter_mut().filter(|spec| matches!(spec.member_rule, Rule::Shard { .. })) {
            let available = spec.is_available();
            spec.senders = if available { spec.sender_rule.pick(&self.members, &spec.members) } else { Vec::new() };
        }
    }

    fn fill_shards(&mut self) {
        let shard = |spec: &SubgroupSpec| match spec.member_rule {
            Rule::Shard { set, least, most } => Some((set, least as usize, most as usize)),
            _ => None,
        };
        let mut sets: Vec<u32> = self.subgroups.iter().filter_map(|spec| Some(shard(spec)?.0)).collect();
        sets.sort_unstable();
        sets.dedup();
        for set in sets {
            let in_set = |spec: &&mut SubgroupSpec| shard(spec).is_some_and(|(of, ..)| of == set);
            let mut shards: Vec<&mut SubgroupSpec> = self.subgroups.iter_mut().filter(in_set).collect();
            for spec in &mut shards {
                let most = shard(spec).map_or(0, |(_, _, most)| most);
                spec.members.truncate(most);
            }
            let is_placed =
                |rank: &Rank, shards: &[&mut SubgroupSpec]| shards.iter().any(|spec| spec.members.contains(rank));
            let free = (0..self.members.len() as u32).map(Rank).filter(|rank| !is_placed(rank, &shards));
            let free: Vec<Rank> = free.collect();
            for rank in free {
                // Shards below their `least` come first, and then the shard with the fewest
                // members.
                let need = |spec: &SubgroupSpec| {
                    let (_, least, most) = shard(spec)?;
                    let count = spec.members.len();
                    (count < most).then_some((count >= least, count))
                };
                let chosen = (0..shards.len()).filter_map(|i| Some((need(shards[i])?, i))).min();
                if let Some((_, i)) = chosen {
                    shards[i].members.push(rank);
                }
            }
            for spec in shards {
                spec.members.sort_unstable();
            }
        }
    }

    /// Whether the member of this rank counts for the agreement that ends the view.
    pub fn is_voter(&self, rank: Rank) -> bool {
        self.nonvoters.binary_search(&rank).is_err()
    }

    /// Makes nonvoters of the members for which `is_one` holds, and voters of all others.
    pub fn set_nonvoters(&mut self, is_one: impl Fn(MemberId) -> bool) {
        let ranks = self.ranks();
        self.nonvoters = ranks.filter(|rank| is_one(self.members[rank.index()])).collect();
    }

    /// Where `sender` sends again in `subgroup` what it could not before; `None` if it never will.
    pub(crate) fn sends_again(&self, subgroup: SubgroupId, sender: MemberId) -> Option<Again> {
        let (spec, rank) = (&self.subgroups[subgroup.index()], self.rank_of(sender)?);
        match spec.sender_rank(rank) {
            Some(sender) => Some(Again::Here(sender)),
            None => spec.keeps(rank).then_some(Again::Later),
        }
    }

    /// The rank of the member with this id.
    pub fn rank_of(&self, id: MemberId) -> Option<Rank> {
        self.members.iter().position(|member| *member == id).map(|index| Rank(index as u32))
    }

    /// The subgroup of this name.
    pub fn subgroup(&self, name: &str) -> Option<SubgroupId> {
        self.subgroups.iter().position(|spec| spec.name == name).map(|index| SubgroupId(index as u32))
    }

    /// The subgroups by their names, for those who look for many.
    fn by_name(&self) -> BTreeMap<&str, &SubgroupSpec> {
        self.subgroups.iter().map(|spec| (&*spec.name, spec)).collect()
    }

    /// The ranks of all members, in order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.members.len() as u32).map(Rank)
    }

    /// The subgroups that `member` belongs to.
    pub fn subgroups_of(&self, member: Rank) -> impl Iterator<Item = (SubgroupId, &SubgroupSpec)> {
        (0..).map(SubgroupId).zip(&self.subgroups).filter(move |(_, s)| s.members.binary_search(&member).is_ok())
    }
}

impl Change {
    /// The subgroup that it is about.
    pub fn name(&self) -> &str {
        match self {
            Change::Create(spec) | Change::Alter(spec) => &spec.name,
            Change::Drop(name) | Change::Enter { name, .. } | Change::Exit { name, .. } => name,
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
    /// it.
    pub(crate) fn contradicts(&self, other: &Change) -> bool {
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

    fn pick_by(&self, by_id: &BTreeMap<MemberId, Rank>, from: &[Rank]) -> Vec<Rank> {
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
fn by_id(ids: &[MemberId]) -> BTreeMap<MemberId, Rank> {
    ids.iter().copied().zip((0..).map(Rank)).collect()
}

/// One of `items` that is among them twice.
fn twice<'a, T: Ord>(items: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let mut sorted: Vec<&T> = items.collect();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
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
    fn is_same(&self, next: &SubgroupSpec, now: &[Option<Rank>]) -> bool {
        let are = |ranks: &[Rank], next: &[Rank]| {
            let mut there =
                ranks.iter().map(|rank| now[rank.index()]).filter(|now| now.is_some() || !mutation!(GoneUnnoticed));
            next.iter().all(|next| there.next() == Some(Some(*next))) && there.next().is_none()
        };
        let shape = |spec: &SubgroupSpec| (spec.order, spec.window, spec.message_bytes_max, spec.leftover_bytes_max);
        let has_members = !self.members.is_empty();
        has_members
            && shape(self) == shape(next)
            && are(&self.members, &next.members)
            && are(&self.senders, &next.senders)
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
        self.in_range("leftover_bytes_max", self.leftover_bytes_max, 0, limits::MESSAGE_BYTES_MAX)?;
        let ring = self.window * crate::wire::ring::frame_bytes(self.message_bytes_max);
        self.in_range("window * message_bytes_max", ring, 1, limits::RING_BYTES_MAX)
    }

    fn in_range(&self, field: &'static str, got: u64, min: u64, max: u64) -> Result<(), ViewError> {
        if (min..=max).contains(&got) {
            return Ok(());
        }
        Err(ViewError::Range { name: self.name.clone(), field, got, min, max })
    }
}

#[cfg(test)]
mod tests;
