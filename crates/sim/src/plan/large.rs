//! Large groups: [`Setting::Large`].
use super::{AppPlan, MemberPlan, Plan, draw_ids};
use crate::actions::{Action, ActionKind};
use crate::options::{Faults, Options, Setting, Visibility};
use crate::random::Random;
use spindle_core::{Ablation, Change, Durability, MemberId, Order, Rule, SubgroupId, SubgroupSpec, View, ViewId};

/// The number of processes, and how many of them are members of the first view.
const PROCESSES: usize = 64;
const SENIORS: usize = 60;
/// The number of subgroups of the first view.
const SUBGROUPS: u64 = 200;
/// The number of members of a subgroup that is neither that of all members nor that of the oldest
/// ones.
const MEMBERS: (u64, u64) = (2, 4);
/// The number of requested changes of the view or of the subgroups, in addition to the joins.
const CHANGES: u64 = 12;
/// The silence after which a member is suspected, in ns. Members poll seldom, so it is long.
const SUSPECT_AFTER_NS: u64 = 40_000_000;
/// The time within which all faults and requests begin, in ns.
const HORIZON_NS: u64 = 4_000_000;

impl Plan {
    /// Draws a group of 60 members with 200 subgroups, most of which have two to four members. Four
    /// processes join, members leave and crash, and subgroups are altered, while some of the
    /// subgroups are in use.
    pub(super) fn large(seed: u64, options: &Options) -> Plan {
        let mut random = Random::new(seed, 40);
        let random = &mut random;
        let ids = draw_ids(random, PROCESSES);
        let subgroups = (0..SUBGROUPS).map(|i| draw_subgroup(random, i, &ids)).collect();
        let nobody = View { id: ViewId(0), members: vec![], nonvoters: vec![], subgroups };
        let view = nobody.next(|_| true, &ids[..SENIORS], &[]);
        let (actions, changes) = draw_changes(random, &view);
        let apps = draw_apps(random, &view, &ids);
        // In shared memory each of 63 peers sees each store at a time of its own, which takes ten
        // times as many events.
        let visibility = options.visibility.unwrap_or(Visibility::Posted);
        let member = |id: &MemberId| {
            let (pauses, clock_jumps, hand_offs) = Default::default();
            MemberPlan { id: *id, poll_ns: 20_000, pauses, clock_jumps, hand_offs }
        };
        Plan {
            seed,
            visibility,
            ablation: Ablation { epochs: !random.one_in(4), ..Ablation::default() },
            faults: Faults {
                membership: true,
                crashes: true,
                joins: true,
                leaves: true,
                alterations: true,
                ..Faults::NONE
            },
            members: ids.iter().map(member).collect(),
            actions,
            changes,
            suspect_after_ns: Some(SUSPECT_AFTER_NS),
            apps,
            link_ns: vec![vec![2_000; PROCESSES]; PROCESSES],
            consumer_ns: 1_500,
            events_max: 10 * options.events_max,
            setting: Setting::Large,
            view,
        }
    }
}

fn draw_subgroup(random: &mut Random, i: u64, ids: &[MemberId]) -> SubgroupSpec {
    let member_rule = match i {
        0 => Rule::Everyone,
        1 => Rule::First(8),
        _ => Rule::Only((0..random.range(MEMBERS.0, MEMBERS.1)).map(|_| random.pick(ids)).collect()),
    };
    SubgroupSpec {
        name: format!("s{i}"),
        members: vec![],
        senders: vec![],
        member_rule,
        sender_rule: if i == 0 { Rule::First(2) } else { Rule::Everyone },
        order: if random.one_in(4) { Order::Fifo } else { Order::Total },
        window: random.range(2, 6),
        message_bytes_max: 24,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    }
}

fn draw_changes(random: &mut Random, view: &View) -> (Vec<Action>, Vec<Change>) {
    let (mut actions, mut changes) = (vec![], vec![]);
    for process in SENIORS..PROCESSES {
        actions.push(Action::at(random.below(HORIZON_NS), ActionKind::Join { process }));
    }
    for _ in 0..CHANGES {
        let process = random.below(SENIORS as u64) as usize;
        let what = match random.below(4) {
            0 => ActionKind::Leave { process },
            1 => ActionKind::Crash { process, actions: random.below(12) },
            _ => {
                let spec = &view.subgroups[random.below(SUBGROUPS) as usize];
                let (members, senders) = (vec![], vec![]);
                changes.push(Change::Alter(SubgroupSpec { members, senders, window: spec.window + 1, ..spec.clone() }));
                ActionKind::Change { process, change: changes.len() - 1 }
            }
        };
        actions.push(Action::at(random.below(HORIZON_NS), what));
    }
    (actions, changes)
}

/// Draws the senders: one subgroup in four is used, in addition to that of all members.
fn draw_apps(random: &mut Random, view: &View, ids: &[MemberId]) -> Vec<AppPlan> {
    let mut apps = vec![];
    for (subgroup, spec) in (0..).map(SubgroupId).zip(&view.subgroups) {
        if subgroup.0 > 0 && !random.one_in(4) {
            continue;
        }
        for sender in &spec.senders {
            let id = view.members[sender.index()];
            let member = ids.iter().position(|other| *other == id).expect("it is a process");
            let claims = random.range(4, 12) as u32;
            let think_ns = HORIZON_NS / u64::from(claims);
            apps.push(AppPlan { member, subgroup, claims, think_ns, hold_ns: 5_000 });
        }
    }
    apps
}
