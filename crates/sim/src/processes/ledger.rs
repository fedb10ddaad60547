//! What is believed to have happened, and what must not.
use crate::checkers::{Invariant, Violation};
use spindle_core::{MemberId, View};
use std::collections::{BTreeMap, BTreeSet};

const ONE_GROUP: Invariant = Invariant(18, "one incarnation");
const VIEWS: Invariant = Invariant(8, "view sequence");
const ORDER: Invariant = Invariant(3, "total order");
const ONCE: Invariant = Invariant(5, "no invention");
const SAME_END: Invariant = Invariant(9, "uniformity");

/// A message: the process that has sent it, and its number there.
pub(super) type Sent = (u32, u32);

/// A view of a group.
pub(super) type Key = (u128, u64);

#[derive(Debug, Default)]
struct Viewed {
    members: Vec<MemberId>,
    /// By subgroup, the messages that were delivered in it, in order.
    orders: Vec<Vec<Sent>>,
    /// By process and subgroup, how many of them it has delivered.
    delivered: BTreeMap<usize, Vec<usize>>,
    /// How many the processes have delivered that have ended it, by subgroup, and the first that has.
    ended: Option<(usize, Vec<usize>)>,
}

/// All groups, views and messages of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    views: BTreeMap<Key, Viewed>,
    /// When the groups delivered first and last, at which processes.
    groups: BTreeMap<u128, Lived>,
    /// How many messages a process has sent.
    sent: BTreeMap<u32, u32>,
    /// By process and sender, the last number that was delivered there; by subgroup.
    last: BTreeMap<(usize, u32, u32), u32>,
    /// The seeds of the first group were lost with what they knew, so another may be founded.
    pub(super) may_be_two: bool,
    pub(super) deliveries: u64,
}

#[derive(Clone, Debug)]
struct Lived {
    first: u64,
    last: u64,
}

impl Ledger {
    /// Whether a group has begun.
    pub(super) fn knows(&self, of: u128) -> bool {
        self.groups.contains_key(&of)
    }

    /// How many groups were founded.
    pub(super) fn foundings(&self) -> u64 {
        self.groups.len() as u64
    }

    /// How many views were begun beside the first ones.
    pub(super) fn changes(&self) -> u64 {
        self.views.len() as u64 - self.groups.len().min(self.views.len()) as u64
    }

    /// A process begins a view.
    pub(super) fn begins(&mut self, of: u128, view: &View) -> Result<bool, Violation> {
        self.groups.entry(of).or_insert(Lived { first: u64::MAX, last: 0 });
        self.sees(of, view)
    }

    /// A process knows a view, or its decision. Returns whether it is new.
    pub(super) fn sees(&mut self, of: u128, view: &View) -> Result<bool, Violation> {
        let key = (of, view.id.0);
        if let Some(known) = self.views.get(&key) {
            if known.members != view.members {
                return VIEWS.broken(format!(
                    "view {} of group {of:032x} has the members {:?} and {:?}",
                    view.id, known.members, view.members
                ));
            }
            return Ok(false);
        }
        let orders = vec![vec![]; view.subgroups.len()];
        self.views.insert(key, Viewed { members: view.members.clone(), orders, ..Viewed::default() });
        Ok(true)
    }

    /// An application sends. Returns the message's number.
    pub(super) fn sends(&mut self, process: u32) -> u32 {
        let count = self.sent.entry(process).or_default();
        *count += 1;
        *count
    }

    /// A process delivers a message.
    pub(super) fn delivers(
        &mut self,
        key: Key,
        process: usize,
        subgroup: u32,
        message: Sent,
        now: u64,
    ) -> Result<(), Violation> {
        self.deliveries += 1;
        self.lives(key.0, now)?;
        let (sender, number) = message;
        if number == 0 || self.sent.get(&sender).is_none_or(|sent| *sent < number) {
            return ONCE.broken(format!(
                "process {process} delivers message {number} of process {sender}, which was not sent"
            ));
        }
        let last = self.last.entry((process, sender, subgroup)).or_default();
        if *last >= number {
            return ONCE.broken(format!(
                "process {process} delivers message {number} of process {sender} behind its message {last}, in view {} of subgroup {subgroup}",
                key.1
            ));
        }
        *last = number;
        let viewed = self.views.get_mut(&key).expect("a view that has begun");
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

    /// A group is at work.
    fn lives(&mut self, of: u128, now: u64) -> Result<(), Violation> {
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

    /// A process has delivered all that belongs to a view, and continues in another.
    pub(super) fn ends(&mut self, key: Key, process: usize) -> Result<(), Violation> {
        let viewed = self.views.get_mut(&key).expect("a view that has begun");
        let none = vec![0; viewed.orders.len()];
        let counts = viewed.delivered.get(&process).unwrap_or(&none).clone();
        match &viewed.ended {
            Some((other, known)) if *known != counts => SAME_END.broken(format!(
                "process {process} ends view {} after {counts:?} messages, process {other} after {known:?}",
                key.1
            )),
            Some(_) => Ok(()),
            None => {
                viewed.ended = Some((process, counts));
                Ok(())
            }
        }
    }

    /// How many messages a process has delivered in a view.
    pub(super) fn delivered(&self, key: Key, process: usize) -> BTreeSet<Sent> {
        let Some(viewed) = self.views.get(&key) else { return BTreeSet::new() };
        let Some(counts) = viewed.delivered.get(&process) else { return BTreeSet::new() };
        viewed.orders.iter().zip(counts).flat_map(|(order, count)| order[..*count].iter().copied()).collect()
    }
}
