//! Draws the parts of a plan: ids, subgroups, members and applications.
use super::{AppPlan, MemberPlan, SENIORS_MAX};
use crate::options::{Faults, Options};
use crate::random::{Random, mix};
use spindle_core::wire::ring::frame_bytes;
use spindle_core::{Ablation, Durability, MemberId, Order, Rank, Rule, SubgroupId, SubgroupSpec, View};

/// Draws ids that are unrelated to ranks.
pub(super) fn draw_ids(random: &mut Random, count: usize) -> Vec<MemberId> {
    let salt = random.word();
    (0..count as u64).map(|i| MemberId(crate::random::mix(salt.wrapping_add(i)) >> 40)).collect()
}

/// Draws the rules by which each view assigns members to subgroups.
pub(super) fn draw_rules(random: &mut Random, ids: &[MemberId], subgroups: &mut [SubgroupSpec]) {
    for (i, spec) in subgroups.iter_mut().enumerate() {
        let rule = |random: &mut Random| match random.below(6) {
            0 => Rule::Only(ids.iter().copied().filter(|_| !random.one_in(3)).collect()),
            1 => Rule::First(random.range(1, 4) as u32),
            _ => Rule::Everyone,
        };
        spec.member_rule = if i == 0 { Rule::Everyone } else { rule(random) };
        spec.sender_rule = rule(random);
        (spec.members, spec.senders) = (vec![], vec![]);
    }
}

pub(super) fn draw_members(random: &mut Random, faults: &Faults, options: &Options) -> u32 {
    if faults.lone_members && options.members_min <= 2 {
        return 1;
    }
    if faults.membership {
        let few = options.members_max.min(options.members_min.max(6));
        let most = if random.one_in(10) { options.members_max * 3 / 2 } else { few };
        return random.range(u64::from(options.members_min), u64::from(most.min(SENIORS_MAX))) as u32;
    }
    let most = if faults.long_lag { options.members_max.min(options.members_min.max(3)) } else { options.members_max };
    random.range(u64::from(options.members_min), u64::from(most)) as u32
}

pub(super) fn draw_ablation(random: &mut Random, faults: &Faults) -> Ablation {
    let mut on = || !faults.ablations || !random.one_in(4);
    Ablation {
        send_batch: on(),
        receive_batch: on(),
        delivery_batch: on(),
        null_sends: on(),
        coalesced_control: on(),
        deferred_posts: on(),
        epochs: false,
    }
}

pub(super) fn draw_subgroups(random: &mut Random, faults: &Faults, members: u32) -> Vec<SubgroupSpec> {
    let count = match faults {
        Faults { many_subgroups: true, .. } => random.range(12, 20),
        Faults { long_lag: true, .. } => 1,
        _ => random.range(1, 4),
    };
    let some_of = |random: &mut Random, list: &[Rank]| -> Vec<Rank> {
        let chance = random.range(1, 3);
        let some: Vec<Rank> = list.iter().copied().filter(|_| random.below(3) < chance).collect();
        if some.is_empty() { vec![random.pick(list)] } else { some }
    };
    let everyone: Vec<Rank> = (0..members).map(Rank).collect();
    let subgroup = |i: u64, random: &mut Random| {
        let of = if i == 0 || random.one_in(2) { everyone.clone() } else { some_of(random, &everyone) };
        let senders = match random.below(32) {
            _ if faults.long_lag => vec![random.pick(&of)],
            0 => vec![],
            1..16 => of.clone(),
            _ => some_of(random, &of),
        };
        let message_bytes_max = match faults {
            Faults { long_lag: true, .. } => random.pick(&[0, 8, 32]),
            Faults { many_subgroups: true, .. } => random.pick(&[0, 8, 40, 100]),
            _ => random.pick(&[0, 1, 16, 24, 40, 100, 250, 600, 2000]),
        };
        let fitting = (8192 / frame_bytes(message_bytes_max)).max(1);
        let window = match faults {
            Faults { long_lag: true, .. } => random.range(1100, 1300),
            Faults { tiny_windows: true, .. } => random.range(1, 2),
            Faults { many_subgroups: true, .. } => random.range(2, 8),
            _ => random.range(1, 64).min(fitting),
        };
        let order = if random.one_in(4) { Order::Fifo } else { Order::Total };
        SubgroupSpec {
            name: format!("s{i}"),
            members: of,
            senders,
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            order,
            window,
            message_bytes_max,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        }
    };
    (0..count).map(|i| subgroup(i, random)).collect()
}

pub(super) fn draw_apps(
    random: &mut Random,
    faults: &Faults,
    view: &View,
    ablation: &Ablation,
    deliveries: u64,
) -> Vec<AppPlan> {
    let mut apps = vec![];
    let busy = if faults.many_subgroups { random.range(1, 3) } else { view.subgroups.len() as u64 };
    for (id, spec) in (0..).map(SubgroupId).zip(&view.subgroups) {
        // If there are many subgroups, few are busy; half of the others have a message now and
        // then.
        let is_busy = u64::from(id.0) < busy;
        if !is_busy && random.one_in(2) {
            continue;
        }
        let budget = random.range(deliveries / 2, deliveries * 4);
        let total = if is_busy { budget / busy / spec.members.len() as u64 } else { random.range(1, 4) };
        let total = if faults.long_lag { 3500 } else { total };
        let each = (total / spec.senders.len().max(1) as u64).max(1);
        let pace = random.pick(&[200, 1_000, 5_000]);
        for &member in &spec.senders {
            // Without nulls all senders must send the same number of rounds.
            let claims = match random.below(4) {
                _ if !ablation.null_sends || faults.long_lag => each,
                0 => 0,
                1 => random.range(1, each),
                2 => each * 2,
                _ => each,
            };
            let threads = if random.one_in(2) { 1 } else { random.range(2, 3) };
            for thread in 0..threads {
                let claims = claims / threads + u64::from(thread < claims % threads);
                if claims == 0 {
                    continue;
                }
                let idle = if is_busy { 1 } else { random.range(5, 200) };
                apps.push(AppPlan {
                    member: member.index(),
                    subgroup: id,
                    claims: claims as u32,
                    think_ns: pace * idle * random.range(1, 3),
                    hold_ns: random.pick(&[50, 500, 5_000]),
                });
            }
        }
    }
    apps
}

pub(super) fn draw_member(random: &mut Random, faults: &Faults, view: &View, id: MemberId) -> MemberPlan {
    let poll_ns = random.range(200, 1_000);
    let mut plan = MemberPlan { id, poll_ns, pauses: vec![], clock_jumps: vec![], hand_offs: vec![] };
    if faults.slow_members && random.one_in(3) {
        plan.poll_ns *= random.range(5, 40);
    }
    let mut at = 0;
    let pauses = if faults.pauses { random.below(5) } else { 0 };
    for _ in 0..pauses {
        at += random.range(1_000, 200_000);
        let end = at + random.pick(&[2_000, 50_000, 2_000_000]);
        plan.pauses.push((at, end));
        at = end;
    }
    if faults.long_lag && view.members.last() == Some(&id) {
        plan.pauses = vec![(2_000, 8_000_000)];
    }
    let mut at = 0;
    let jumps = if faults.clock_jumps { random.below(6) } else { 0 };
    for _ in 0..jumps {
        at += random.range(1_000, 200_000);
        plan.clock_jumps.push((at, random.range(0, 20_000_000_000) as i64 - 10_000_000_000));
    }
    if faults.hand_offs {
        let ids = (0..view.subgroups.len() as u32).map(SubgroupId);
        plan.hand_offs = ids.filter(|_| random.one_in(2)).collect();
    }
    plan
}

/// Makes some of the subgroups with a total order logged ones. Members that `may_leave` do so in some plans.
pub(super) fn draw_logs(seed: u64, subgroups: &mut [SubgroupSpec], members: u32, may_leave: bool) {
    for (i, spec) in (0..).zip(subgroups).filter(|(_, spec)| spec.order == Order::Total) {
        let drawn = mix(seed ^ mix(i));
        if !drawn.is_multiple_of(4) {
            let copies = 1 + (drawn >> 8) as u32 % members;
            // A message that waits for members would wait for ever.
            let enough = if may_leave { 1 } else { copies.min(spec.members.len() as u32).max(1) };
            spec.durability = match (drawn >> 40).is_multiple_of(3) {
                true => Durability::LoggedBeforeDelivery { copies: enough },
                false => Durability::Logged { copies },
            };
        }
    }
}
