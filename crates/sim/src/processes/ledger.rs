//! The record of the groups, views and messages of a run, and its checks.
use super::proposed_changes::settles;
use super::shards::check_shards;
use crate::checkers::{Checked, Invariant, Violation};
use spindle_core::{Change, MemberId, Order, SubgroupId, SubgroupSpec, View, ViewId};
use std::collections::{BTreeMap, BTreeSet};

const ONE_GROUP: Invariant = Invariant(18, "one incarnation");
pub(super) const VIEWS: Invariant = Invariant(5, "one view sequence");
const ORDER: Invariant = Invariant(1, "total order");
const ONCE: Invariant = Invariant(2, "no invention");
const GAPS: Invariant = Invariant(3, "no duplicate, no gap, FIFO");
const ALL: Invariant = Invariant(4, "atomicity");
const LOGGED: Invariant = Invariant(10, "durable prefix");
const SAME_END: Invariant = Invariant(8, "uniformity");

/// A message: the sending process, and the message's number there.
pub(super) type MessageId = (u32, u32);

/// A view of a group.
pub(super) type ViewKey = (u128, u64);

/// A process, a subgroup of a view, and a sender in it.
type LaneId = (usize, u32, u32);

#[derive(Debug)]
struct Viewed {
    view: View,
    /// By member, the process that has begun the view.
    processes: BTreeMap<MemberId, u32>,
    /// By subgroup with a total order: the delivered messages, in order.
    orders: Vec<Vec<MessageId>>,
    /// By process and subgroup: how many of these messages the process has delivered.
    delivered: BTreeMap<usize, Vec<usize>>,
    /// By subgroup and sender: the messages in its ring, in order, with voids between them.
    rings: BTreeMap<(u32, u32), Vec<Option<u32>>>,
    /// The position of a process in these rings, and the last number of each sender that it has
    /// delivered here.
    taken: BTreeMap<LaneId, (usize, u32)>,
    /// By subgroup: the end of the view in it.
    ended: Vec<SubgroupEnd>,
}

/// The end of a view in a subgroup: processes, and how many messages they had delivered or observed
/// by then.
#[derive(Clone, Default, Debug)]
struct SubgroupEnd {
    /// The first member that has ended it.
    member: Option<(usize, usize)>,
    /// Observers that ended the view before any member. If no member ends it, because none
    /// continues, no trim is decided, and observers may have seen more or less.
    observers: Vec<(usize, usize)>,
}

/// The last message of a sender in a subgroup that a process has delivered: its number, and the
/// view.
#[derive(Clone, Copy, Debug)]
struct LastDelivered {
    number: u32,
    view: u64,
}

/// All groups, views and messages of a run.
#[derive(Debug, Default)]
pub(super) struct HostsLedger {
    views: BTreeMap<ViewKey, Viewed>,
    /// The times of the first and the last delivery of each group, over all processes.
    groups: BTreeMap<u128, Lived>,
    /// The number of messages that each process has sent.
    sent: BTreeMap<u32, u32>,
    /// By sender and subgroup: the numbers of its messages, without those that it has given up.
    numbers: BTreeMap<(u32, String), BTreeSet<u32>>,
    /// By process, sender and subgroup.
    last: BTreeMap<(usize, u32, String), LastDelivered>,
    /// Learners. They may lack messages that the group had received before they began to listen.
    learned: BTreeSet<usize>,
    /// By process and subgroup: the first of the consecutive views in which the process is a member
    /// of the subgroup.
    since: BTreeMap<(usize, String), u64>,
    /// Processes that were given up, and those that joined them since. Their activity among
    /// themselves is lost to the others; the operator who gave them up is responsible for that.
    given_up: BTreeSet<usize>,
    /// By group: the view that the last recovery has ended, and the first view of its era.
    divided: BTreeMap<u128, (u64, u64)>,
    /// True if the seeds of the first group lost their memory of it, so another group may be
    /// created.
    pub(super) may_be_two: bool,
    pub(super) deliveries: u64,
    /// Deliveries in Fifo subgroups.
    pub(super) fifo: u64,
    /// Subgroups that became unavailable, and those that became available again.
    pub(super) unavailable: u64,
    pub(super) available_again: u64,
    /// Subgroups that were created, altered and dropped.
    pub(super) changes: u64,
}

#[derive(Clone, Debug)]
struct Lived {
    first: u64,
    last: u64,
}

impl HostsLedger {
    /// Returns the process that has begun a view as this member.
    pub(super) fn process_of(&self, key: ViewKey, id: MemberId) -> Option<usize> {
        self.views.get(&key)?.processes.get(&id).map(|process| *process as usize)
    }

    /// Returns true if a group has begun.
    pub(super) fn knows(&self, of: u128) -> bool {
        self.groups.contains_key(&of)
    }

    /// Returns how many groups were created.
    pub(super) fn bootstraps(&self) -> u64 {
        self.groups.len() as u64
    }

    /// Returns how many views were begun, without the first ones.
    pub(super) fn views_changed(&self) -> u64 {
        self.views.len() as u64 - self.groups.len().min(self.views.len()) as u64
    }

    /// Records that a process begins a view, as this member.
    pub(super) fn begins(&mut self, of: u128, view: &View, process: usize, id: MemberId) -> Result<bool, Violation> {
        self.groups.entry(of).or_insert(Lived { first: u64::MAX, last: 0 });
        let is_new = self.sees(of, view)?;
        if let Some((old, next)) = self.divided.get(&of).copied() {
            // True if the process still begins the view that a recovery has ended without it.
            let goes_on = |viewed: &Viewed| viewed.view.members.contains(&id);
            let is_lost = view.id.0 == old && !self.views.get(&(of, next)).is_none_or(goes_on);
            if is_lost || (old < view.id.0 && view.id.0 < next) {
                self.given_up.insert(process);
            }
        }
        let rank = view.rank_of(id);
        let is_in = |name: &str| {
            let spec = view.subgroup(name).map(|id| &view.subgroups[id.index()]);
            spec.zip(rank).is_some_and(|(spec, rank)| spec.members.contains(&rank))
        };
        // A member that enters a subgroup again is new in it. So is a learner that is not in the
        // subgroup at first.
        self.since.retain(|(known, name), _| *known != process || is_in(name));
        self.last.retain(|(known, _, name), _| *known != process || is_in(name));
        for (_, spec) in rank.into_iter().flat_map(|rank| view.subgroups_of(rank)) {
            self.since.entry((process, spec.name.clone())).or_insert(view.id.0);
        }
        let viewed = self.views.get_mut(&(of, view.id.0)).expect("it was seen");
        viewed.processes.insert(id, process as u32);
        Ok(is_new)
    }

    /// Records that a process knows a view, or its decision. Returns true if the view is new.
    pub(super) fn sees(&mut self, of: u128, view: &View) -> Result<bool, Violation> {
        let key = (of, view.id.0);
        if let Some(Viewed { view: known, .. }) = self.views.get(&key) {
            if known.members != view.members {
                return VIEWS.broken(format!(
                    "view {} of group {of:032x} has the members {:?} and {:?}",
                    view.id, known.members, view.members
                ));
            }
            if known != view {
                let (known, specs) = (&known.subgroups, &view.subgroups);
                return VIEWS.broken(format!("view {} of group {of:032x} has {known:?} and {specs:?}", view.id));
            }
            return Ok(false);
        }
        if let Some(before) = self.before(of, view.id).map(|before| before.view.clone()) {
            check_shards(&before, view)?;
            let was = |name: &str| before.subgroup(name).map(|id| before.subgroups[id.index()].is_available());
            let bare = |view: &View| -> BTreeMap<String, _> {
                let rules = |spec: &SubgroupSpec| (spec.member_rule.clone(), spec.window, spec.message_bytes_max);
                view.subgroups.iter().map(|spec| (spec.name.clone(), rules(spec))).collect()
            };
            let (old, new) = (bare(&before), bare(view));
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            self.changes += names.into_iter().filter(|name| old.get(*name) != new.get(*name)).count() as u64;
            if view.id.era() > before.id.era() {
                self.divide((of, before.id.0), view);
            }
            for spec in &view.subgroups {
                self.unavailable += u64::from(!spec.is_available() && was(&spec.name) == Some(true));
                self.available_again += u64::from(spec.is_available() && was(&spec.name) == Some(false));
            }
        }
        let count = view.subgroups.len();
        let (processes, delivered, rings, taken) = Default::default();
        let (orders, ended) = (vec![vec![]; count], vec![SubgroupEnd::default(); count]);
        self.views.insert(key, Viewed { view: view.clone(), processes, orders, delivered, rings, taken, ended });
        Ok(true)
    }

    /// Returns true if a process was given up, or has joined a process that was given up.
    pub(super) fn is_given_up(&self, process: usize) -> bool {
        self.given_up.contains(&process)
    }

    /// Records that the view `key` has ended with a recovery, whose `next` view lacks some of its
    /// members.
    fn divide(&mut self, key: ViewKey, next: &View) {
        self.divided.insert(key.0, (key.1, next.id.0));
        let viewed = self.views.get_mut(&key).expect("a view that has begun");
        let (left, lost): (Vec<_>, Vec<_>) = viewed.processes.iter().partition(|(id, _)| next.members.contains(id));
        let left: Vec<usize> = left.into_iter().map(|(_, process)| *process as usize).collect();
        self.given_up.extend(lost.into_iter().map(|(_, process)| *process as usize));
        let epochs: Vec<(u64, String)> = (0..)
            .map(SubgroupId)
            .zip(&viewed.view.subgroups)
            .map(|(id, spec)| (viewed.view.epoch(id).0, spec.name.clone()))
            .collect();
        for (epoch, name) in epochs {
            let home = self.views.get_mut(&(key.0, epoch)).expect("a view that has begun");
            let subgroup = home.view.subgroup(&name).expect("its epoch began there").index();
            let counts = left.iter().filter_map(|process| home.delivered.get(process));
            home.orders[subgroup].truncate(counts.map(|counts| counts[subgroup]).max().unwrap_or(0));
            let end = &mut home.ended[subgroup];
            if end.member.is_some_and(|(process, _)| !left.contains(&process)) {
                *end = SubgroupEnd::default();
            }
        }
        let later = self.views.range((key.0, key.1 + 1)..(key.0, next.id.0));
        let joined = later.flat_map(|(_, viewed)| viewed.processes.values().map(|process| *process as usize));
        self.given_up.extend(joined.filter(|process| !left.contains(process)));
    }

    /// Returns the view that led to this one. A recovery may have begun an era after it; in that
    /// case no member of this view knows the decisions that others have made in the meantime.
    fn before(&self, of: u128, id: ViewId) -> Option<&Viewed> {
        let before = self.views.range((of, 0)..(of, id.0)).filter(|((_, before), _)| id.follows(ViewId(*before)));
        before.max_by_key(|((_, before), _)| ViewId(*before).era()).map(|(_, viewed)| viewed)
    }

    /// Returns the view that led to this one.
    pub(super) fn view_before(&self, of: u128, id: ViewId) -> Option<View> {
        self.before(of, id).map(|viewed| viewed.view.clone())
    }

    /// Checks that a process has logged the messages of a subgroup's epoch that it has delivered, in their
    /// order. `key` is the view with which the epoch began.
    pub(super) fn is_logged(&self, key: ViewKey, process: usize, subgroup: u32, logged: &[MessageId]) -> Checked {
        let viewed = &self.views[&key];
        let count = viewed.delivered.get(&process).map_or(0, |counts| counts[subgroup as usize]);
        let order = &viewed.orders[subgroup as usize];
        let is_short = logged.len() != count && !self.learned.contains(&process);
        match order.iter().zip(logged).find(|(one, other)| one != other) {
            None if !is_short => Ok(()),
            found => LOGGED.broken(format!(
                "process {process} has logged {} messages in view {} and delivered {count}; the first that differs: {found:?}",
                logged.len(),
                key.1
            )),
        }
    }

    /// Returns true if a later view than this one was decided, without this member.
    pub(super) fn is_left_out(&self, of: u128, view: u64, id: MemberId) -> bool {
        self.views.range((of, view + 1)..=(of, u64::MAX)).any(|(_, viewed)| !viewed.view.members.contains(&id))
    }

    /// Returns true if a later view than this one was decided.
    pub(super) fn has_later(&self, of: u128, view: u64) -> bool {
        self.views.range((of, view + 1)..=(of, u64::MAX)).next().is_some()
    }

    /// Returns true if a view after this one has settled a change.
    pub(super) fn has_settled(&self, of: u128, view: ViewId, change: &Change) -> bool {
        let Some(viewed) = self.views.get(&(of, view.0)) else { return false };
        let mut later = self.views.range((of, view.0 + 1)..=(of, u64::MAX));
        later.any(|(_, later)| settles(&viewed.view, &later.view, change))
    }

    /// Records that an application sends in a subgroup. Returns the message's number.
    pub(super) fn sends(&mut self, process: u32, subgroup: &str) -> u32 {
        let count = self.sent.entry(process).or_default();
        *count += 1;
        self.numbers.entry((process, subgroup.into())).or_default().insert(*count);
        *count
    }

    /// Records that a process will not send a message, because it is no longer a sender in the
    /// subgroup, or leaves.
    pub(super) fn gives_up(&mut self, process: u32, subgroup: &str, number: u32) {
        if let Some(numbers) = self.numbers.get_mut(&(process, subgroup.into())) {
            numbers.remove(&number);
        }
    }

    /// Records that a process puts a message, or a void, into its ring.
    pub(super) fn commits(&mut self, key: ViewKey, process: u32, subgroup: u32, number: Option<u32>) {
        let viewed = self.views.get_mut(&key).expect("a view that has begun");
        viewed.rings.entry((subgroup, process)).or_default().push(number);
    }

    fn was_sent(&self, (sender, number): MessageId) -> bool {
        number != 0 && self.sent.get(&sender).is_some_and(|sent| *sent >= number)
    }

    /// Records that a process delivers a message.
    pub(super) fn delivers(
        &mut self,
        key: ViewKey,
        process: usize,
        subgroup: u32,
        message: MessageId,
        now: u64,
    ) -> Checked {
        self.deliveries += 1;
        self.lives(key.0, now)?;
        let (sender, number) = message;
        if !self.was_sent(message) {
            return ONCE.broken(format!(
                "process {process} delivers message {number} of process {sender}, which was not sent"
            ));
        }
        self.follows(key, process, subgroup, message)?;
        let viewed = self.views.get_mut(&key).expect("a view that has begun");
        if viewed.view.subgroups[subgroup as usize].order == Order::Fifo {
            self.fifo += 1;
            return Ok(());
        }
        if self.given_up.contains(&process) {
            return Ok(());
        }
        let counts = viewed.delivered.entry(process).or_insert_with(|| vec![0; viewed.orders.len()]);
        let (at, order) = (&mut counts[subgroup as usize], &mut viewed.orders[subgroup as usize]);
        match order.get(*at) {
            Some(known) if *known != message => {
                return ORDER.broken(format!(
                    "process {process} delivers {message:?} as number {at} of view {} of subgroup {subgroup}, another {known:?}",
                    key.1
                ));
            }
            Some(_) => {}
            None => order.push(message),
        }
        *at += 1;
        Ok(())
    }

    /// Checks that a message follows the last one of this sender that the process has delivered: in
    /// the sender's ring of this view, and among all messages that it has sent in the subgroup.
    fn follows(&mut self, key: ViewKey, process: usize, subgroup: u32, (sender, number): MessageId) -> Checked {
        let viewed = self.views.get_mut(&key).expect("a view that has begun");
        let name = viewed.view.subgroups[subgroup as usize].name.clone();
        let since = self.since.get(&(process, name.clone())).copied();
        let last = self.last.get(&(process, sender, name.clone())).copied();
        let behind = last.map_or(0, |last| last.number);
        let told = || format!("message {number} of process {sender} in view {} of subgroup {name}", key.1);
        if behind >= number {
            return GAPS.broken(format!("process {process} delivers {} behind message {behind}", told()));
        }
        let ring = viewed.rings.get(&(subgroup, sender)).map_or(&[][..], Vec::as_slice);
        let (at, newest) = viewed.taken.entry((process, subgroup, sender)).or_default();
        let is_free = last.is_none() && self.learned.contains(&process);
        let is_due = |sent: &Option<u32>| sent.is_some_and(|sent| sent == number || (sent > behind && !is_free));
        let due = ring[*at..].iter().position(is_due);
        let due = due.map(|due| *at + due).filter(|due| ring[*due] == Some(number));
        let Some(due) = due else {
            return GAPS.broken(format!(
                "process {process} delivers {} behind message {behind}, and its ring holds {:?} behind that",
                told(),
                &ring[*at..ring.len().min(*at + 10)]
            ));
        };
        (*at, *newest) = (due + 1, number);
        if let Some(last) = last.filter(|last| since.is_some_and(|since| since <= last.view)) {
            let numbers = self.numbers.get(&(sender, name.clone()));
            let lost = numbers.and_then(|numbers| numbers.range(last.number + 1..number).next());
            if let Some(lost) = lost {
                return GAPS.broken(format!("process {process} delivers {} and not {lost} before that", told()));
            }
        }
        self.last.insert((process, sender, name), LastDelivered { number, view: key.1 });
        Ok(())
    }

    /// Records that a group delivers.
    fn lives(&mut self, of: u128, now: u64) -> Checked {
        let lived = self.groups.entry(of).or_insert(Lived { first: u64::MAX, last: 0 });
        lived.first = lived.first.min(now);
        lived.last = now;
        let first = lived.first;
        let other =
            self.groups.iter().find(|(other, lived)| **other != of && lived.first <= now && lived.last >= first);
        match other {
            Some((other, _)) if !self.may_be_two => {
                ONE_GROUP.broken(format!("groups {of:032x} and {other:032x} both deliver"))
            }
            _ => Ok(()),
        }
    }

    /// Records that a process has delivered all messages of a subgroup's epoch that began with this
    /// view. `trims` contains the number of rounds of the epoch, by sender.
    pub(super) fn ends(&mut self, key: ViewKey, process: usize, id: SubgroupId, trims: &[u64]) -> Checked {
        if self.given_up.contains(&process) {
            return Ok(());
        }
        let HostsLedger { views, last, learned, .. } = self;
        let viewed = views.get_mut(&key).expect("a view that has begun");
        let Viewed { view, delivered, processes, rings, ended, .. } = viewed;
        let spec = &view.subgroups[id.index()];
        let name = &spec.name;
        if spec.order == Order::Total {
            let count = delivered.get(&process).map_or(0, |counts| counts[id.index()]);
            let SubgroupEnd { member, observers } = &mut ended[id.index()];
            let known = *member.get_or_insert((process, count));
            for told in [(process, count)].into_iter().chain(observers.drain(..)) {
                same_end(known, key.1, name, told)?;
            }
            return Ok(());
        }
        for (rank, trim) in spec.senders.iter().zip(trims) {
            let sender = processes.get(&view.members[rank.index()]).copied();
            let ring = sender.and_then(|sender| rings.get(&(id.0, sender))).map_or(&[][..], Vec::as_slice);
            let sender = sender.unwrap_or(u32::MAX);
            if *trim > ring.len() as u64 {
                let of = ring.len();
                return ALL.broken(format!("view {} ends behind {trim} of {of} rounds of process {sender}", key.1));
            }
            let last = last.get(&(process, sender, name.clone())).map(|last| last.number);
            if last.is_none() && learned.contains(&process) {
                continue;
            }
            let last = last.unwrap_or(0);
            let missing = ring[..*trim as usize].iter().flatten().find(|number| **number > last);
            if let Some(missing) = missing {
                return ALL.broken(format!(
                    "process {process} ends view {} without message {missing} of process {sender} in subgroup {name}",
                    key.1
                ));
            }
        }
        Ok(())
    }

    /// Records that a learner reads a message of a Fifo subgroup: the message will not be delivered
    /// again there.
    pub(super) fn learns(&mut self, key: ViewKey, process: usize, subgroup: u32, (sender, number): MessageId) {
        self.learned.insert(process);
        let spec = &self.views[&key].view.subgroups[subgroup as usize];
        if spec.order == Order::Fifo {
            self.last.insert((process, sender, spec.name.clone()), LastDelivered { number, view: key.1 });
        }
    }

    /// Records that a learner has missed a view.
    pub(super) fn forgets(&mut self, process: usize) {
        self.learned.insert(process);
        self.last.retain(|(known, ..), _| *known != process);
    }

    /// Records that an observer receives a message of a subgroup with a total order. The message
    /// follows `at` messages of the order, or more, if the observer `may_skip` some. Returns the
    /// observer's new position in the order, if it is known.
    pub(super) fn observes(
        &mut self,
        key: ViewKey,
        process: usize,
        subgroup: u32,
        (at, may_skip): (usize, bool),
        message: MessageId,
    ) -> Result<Option<usize>, Violation> {
        if !self.was_sent(message) {
            return ONCE.broken(format!("observer {process} is told {message:?}, which was not sent"));
        }
        let order = &mut self.views.get_mut(&key).expect("a view that is known").orders[subgroup as usize];
        if may_skip {
            return Ok(order[at..].iter().position(|known| *known == message).map(|behind| at + behind + 1));
        }
        match order.get(at) {
            Some(known) if *known != message => ORDER.broken(format!(
                "observer {process} is told {message:?} as number {at} of view {} of subgroup {subgroup}, and not {known:?}",
                key.1
            )),
            Some(_) => Ok(Some(at + 1)),
            None => {
                order.push(message);
                Ok(Some(at + 1))
            }
        }
    }

    /// Checks that an observer receives a message of a Fifo subgroup that follows the `last` one of
    /// this sender, if none was missed between them.
    pub(super) fn observes_fifo(
        &self,
        key: ViewKey,
        process: usize,
        subgroup: u32,
        last: Option<u32>,
        message: MessageId,
    ) -> Checked {
        let (sender, number) = message;
        let viewed = &self.views[&key];
        let ring = viewed.rings.get(&(subgroup, sender));
        if !self.was_sent(message) || !ring.is_some_and(|ring| ring.contains(&Some(number))) {
            return ONCE.broken(format!("observer {process} is told {message:?}, which was not sent in this view"));
        }
        let Some(last) = last else { return Ok(()) };
        let name = &viewed.view.subgroups[subgroup as usize].name;
        let numbers = self.numbers.get(&(sender, name.clone()));
        let is_next = last < number && numbers.is_none_or(|known| known.range(last + 1..number).next().is_none());
        match is_next {
            true => Ok(()),
            false => GAPS.broken(format!(
                "observer {process} is told message {number} of process {sender} in subgroup {name} behind message {last}"
            )),
        }
    }

    /// Records that an observer has received all of a view: so many messages by subgroup with a
    /// total order.
    pub(super) fn observed(&mut self, key: ViewKey, process: usize, counts: Vec<usize>) -> Checked {
        let Viewed { view, ended, .. } = self.views.get_mut(&key).expect("a view that is known");
        for ((spec, ended), count) in view.subgroups.iter().zip(ended).zip(counts) {
            if spec.order == Order::Total {
                match ended.member {
                    Some(known) => same_end(known, key.1, &spec.name, (process, count))?,
                    None => ended.observers.push((process, count)),
                }
            }
        }
        Ok(())
    }

    /// Returns the last message of a sender that a process has delivered in a view.
    pub(super) fn newest(&self, key: ViewKey, lane: LaneId) -> u32 {
        self.views.get(&key).and_then(|viewed| viewed.taken.get(&lane)).map_or(0, |(_, newest)| *newest)
    }
}

/// Checks that all processes that have delivered a whole view have delivered the same number of
/// messages of a subgroup.
fn same_end((other, known): (usize, usize), view: u64, name: &str, (process, count): (usize, usize)) -> Checked {
    match known == count {
        true => Ok(()),
        false => SAME_END.broken(format!(
            "process {process} ends view {view} after {count} messages of subgroup {name}, process {other} after {known}"
        )),
    }
}

#[cfg(test)]
mod tests;
