//! A view: who takes part, in which subgroups, and how much each may send. Everything else that the
//! members must agree on (ranks, memory layout, order) follows from it.
mod error;
mod subgroup_spec;

use crate::ids::{MemberId, Rank, SubgroupId, ViewId};
use crate::limits;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
pub use error::ViewError;
use subgroup_spec::by_id;
pub use subgroup_spec::{Change, Durability, Order, Rule, SubgroupSpec, Subgroups};

/// The older views whose rows a member needs, at most: it has memory, and streams, for each.
const OLDER_MAX: usize = 6;

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

    /// Takes over the clocks of logged subgroups from `before`, where they are later.
    pub(crate) fn keep_clocks(&mut self, before: &View) {
        let before = before.by_name();
        for spec in &mut self.subgroups {
            spec.clock = spec.clock.max(before.get(&*spec.name).map_or(0, |before| before.clock));
        }
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
        if let Change::Clock { name, clock } = change {
            return self.subgroups.iter().any(|spec| spec.name == *name && spec.is_logged() && spec.clock < *clock);
        }
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
        if matches!(change, Change::Clock { .. }) {
            return !next.wants(change);
        }
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
                        clock: 0,
                        epoch: None,
                        ..spec.clone()
                    });
                }
                is_new
            }
            Change::Alter(spec) => at(&spec.name).is_some_and(|at| {
                let old = &mut self.subgroups[at];
                let members = core::mem::take(&mut old.members);
                let SubgroupSpec { leftover_bytes_max, clock, .. } = *old;
                let (senders, epoch) = (vec![], None);
                *old = SubgroupSpec { members, senders, leftover_bytes_max, clock, epoch, ..spec.clone() };
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
            Change::Clock { name, clock } => at(name).is_some_and(|at| {
                let spec = &mut self.subgroups[at];
                spec.clock = if spec.is_logged() { spec.clock.max(*clock) } else { spec.clock };
                spec.is_logged()
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

/// One of `items` that is among them twice.
fn twice<'a, T: Ord>(items: impl Iterator<Item = &'a T>) -> Option<&'a T> {
    let mut sorted: Vec<&T> = items.collect();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests;
