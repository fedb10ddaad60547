//! Changes of subgroups that members propose while the group runs.
use super::plan::HostsFault;
use super::process::{ProcessPhase, SimProcess};
use super::subgroups::{LONG_BYTES, SHORT_BYTES, total};
use super::world::{Broken, HostsWorld};
use crate::random::Random;
use spindle_core::{Change, Durability, MemberId, Order, Rule, SubgroupSpec, View, ViewId};
use std::convert::Infallible;

/// A change that a member proposes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProposedChange {
    /// A new subgroup.
    Create(SubgroupSpec),
    /// Other sizes for an existing subgroup, and perhaps another rule for its members.
    Alter {
        /// Its name.
        name: String,
        /// Its window.
        window: u64,
        /// The length of its longest message.
        message_bytes_max: u64,
        /// The rule.
        rule: Option<Rule>,
    },
    /// Drops a subgroup.
    Drop(String),
    /// Adds a member to a subgroup whose members are listed.
    Enter(String, MemberId),
    /// Removes a member from such a subgroup.
    Exit(String, MemberId),
}

/// A proposed change that a member's engine has accepted.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    process: usize,
    of: u128,
    /// The view in which it was not carried out.
    view: ViewId,
    change: Change,
}

/// Draws the proposed changes of a seed, with their times. Members of the first `places` propose
/// them before `calm_ns`, for the initial subgroups of a group or others.
pub(super) fn drawn(seed: u64, initial: &[SubgroupSpec], places: u32, calm_ns: u64) -> Vec<(u64, HostsFault)> {
    let mut random = Random::new(seed, 25);
    let random = &mut random;
    let amount = if random.one_in(2) { 0 } else { random.range(1, 8) };
    let change = |_| {
        let at = random.below(calm_ns);
        let place = random.below(places.into()) as u32;
        (at, HostsFault::Propose { place, change: one(random, initial, places) })
    };
    (0..amount).map(change).collect()
}

fn one(random: &mut Random, initial: &[SubgroupSpec], places: u32) -> ProposedChange {
    let new = random.pick(&["x", "y"]);
    let id = MemberId(random.range(1, u64::from(places) + 1));
    match random.below(8) {
        0..=2 => {
            let order = random.pick(&[Order::Total, Order::Fifo]);
            let spec =
                SubgroupSpec { order, member_rule: rule(random, places), window: random.range(1, 5), ..total(new) };
            ProposedChange::Create(spec)
        }
        3 | 4 => {
            let spec = &initial[random.below(initial.len() as u64) as usize];
            let rule = match spec.member_rule {
                Rule::Shard { set, .. } if random.one_in(2) => {
                    Some(Rule::Shard { set, least: random.range(1, 4) as u32, most: random.range(3, 9) as u32 })
                }
                _ => None,
            };
            let message_bytes_max = random.range(SHORT_BYTES as u64, LONG_BYTES + 1);
            ProposedChange::Alter { name: spec.name.clone(), window: random.range(1, 6), message_bytes_max, rule }
        }
        5 => ProposedChange::Alter {
            name: new.into(),
            window: random.range(1, 6),
            message_bytes_max: LONG_BYTES,
            rule: Some(rule(random, places)),
        },
        6 => {
            // The first subgroup stays, so that all members hear each other.
            let dropped = initial[1..].iter().map(|spec| spec.name.as_str()).chain(["x", "y"]).collect::<Vec<_>>();
            ProposedChange::Drop(random.pick(&dropped).into())
        }
        _ if random.one_in(2) => ProposedChange::Enter(new.into(), id),
        _ => ProposedChange::Exit(new.into(), id),
    }
}

fn rule(random: &mut Random, places: u32) -> Rule {
    match random.below(4) {
        0 => Rule::First(random.range(1, 4) as u32),
        1 | 2 => Rule::Only((1..=u64::from(places)).filter(|_| random.one_in(2)).map(MemberId).collect()),
        _ => Rule::Everyone,
    }
}

impl ProposedChange {
    /// Returns the change in terms of this view; `None` if the view has no such subgroup.
    fn in_view(&self, view: &View) -> Option<Change> {
        Some(match self {
            ProposedChange::Create(spec) => Change::Create(spec.clone()),
            ProposedChange::Alter { name, window, message_bytes_max, rule } => {
                let known = &view.subgroups[view.subgroup(name)?.index()];
                let member_rule = rule.clone().unwrap_or_else(|| known.member_rule.clone());
                let (window, message_bytes_max) = (*window, *message_bytes_max);
                Change::Alter(SubgroupSpec { window, message_bytes_max, member_rule, ..known.clone() })
            }
            ProposedChange::Drop(name) => Change::Drop(name.clone()),
            ProposedChange::Enter(name, id) => Change::Enter { name: name.clone(), id: *id },
            ProposedChange::Exit(name, id) => Change::Exit { name: name.clone(), id: *id },
        })
    }
}

impl HostsWorld<'_> {
    /// Lets the application of a member propose a change.
    pub(super) fn propose_change(&mut self, place: u32, change: &ProposedChange) {
        let Some(number) = self.places[place as usize].process else { return };
        let is_lost = self.broken == Broken::ProposedChangesLost;
        let Some(process) = self.living(number) else { return };
        let of = process.roster.incarnation();
        let ProcessPhase::Member(member) = &mut process.phase else { return };
        let newest = member.newest().clone();
        let Some(change) = change.in_view(&newest) else { return };
        let view = newest.id;
        let is_accepted = match is_lost {
            true => newest.wants(&change),
            false => member.propose_change(change.clone(), |_| Ok::<_, Infallible>(())).unwrap_or(false),
        };
        if is_accepted {
            self.outcome.counts.proposed += 1;
            self.note(|| format!("process {number} proposes in view {view}: {change:?}"));
            self.tell(number, || format!("proposes a change of subgroup {}", change.name()));
            self.pending.push(PendingChange { process: number, of, view, change });
            self.wake(number, self.now);
        }
    }

    /// Returns a proposed change of a process that no view has settled, if one exists.
    pub(super) fn unsettled(&self, process: &SimProcess) -> Option<String> {
        let is_its = |pending: &&PendingChange| pending.process == process.number && !process.is_leaving;
        let mut pending = self.pending.iter().filter(is_its);
        let open = pending.find(|pending| !self.ledger.has_settled(pending.of, pending.view, &pending.change));
        open.map(|pending| format!("waits for {:?} since view {}", pending.change, pending.view))
    }
}

/// Returns true if `later`, a view after `view`, settles `change`: the subgroup is as proposed, or
/// differs from its earlier state.
pub(super) fn settles(view: &View, later: &View, change: &Change) -> bool {
    let of = |view: &View| view.subgroup(change.name()).map(|id| view.subgroups[id.index()].clone());
    let lists = |spec: &SubgroupSpec, id| match &spec.member_rule {
        Rule::Only(ids) => Some(ids.contains(id)),
        _ => None,
    };
    match (change, of(later)) {
        (Change::Enter { id, .. }, Some(spec)) => lists(&spec, id) != Some(false),
        (Change::Exit { id, .. }, Some(spec)) => lists(&spec, id) != Some(true),
        (_, spec) => {
            let bare = |spec: SubgroupSpec| SubgroupSpec {
                members: vec![],
                senders: vec![],
                leftover_bytes_max: 0,
                durability: Durability::InMemory,
                clock: 0,
                epoch: None,
                ..spec
            };
            spec.map(bare) != of(view).map(bare)
        }
    }
}
