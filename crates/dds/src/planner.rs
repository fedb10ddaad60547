//! The subgroups of the group, as the plans of the order domains want them.
use spindle::{Change, Durability, MemberId, Order, Rank, Rule, Subgroup, SubgroupSpec, View};
use spindle_dds_core::directory::{Directory, DomainPlan};
use std::collections::BTreeSet;

/// The subgroup of the directory.
pub(crate) const DIRECTORY: &str = "directory";
/// The names of the subgroups of order domains begin with it, and end with their numbers.
const PREFIX: &str = "order-domain-";
/// The bytes of a frame in a ring besides its message.
const FRAME_BYTES: u64 = 16;
/// Bounds of the messages that a writer may have on the way.
const WINDOW_MIN: u64 = 8;
const WINDOW_MAX: u64 = 1024;

/// Returns the name of the subgroup of an order domain.
pub(crate) fn name_of(domain: u32) -> String {
    format!("{PREFIX}{domain}")
}

/// Returns the order domain of a subgroup; `None` for other subgroups.
pub(crate) fn domain_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Returns the subgroup of the directory.
pub(crate) fn directory_subgroup() -> Subgroup {
    // Commands are rare. Longer ones, and the state for a member that comes, are objects.
    Subgroup { window: 16, message_bytes_max: 4096, ..Subgroup::new(DIRECTORY) }
}

/// Returns the changes that make the subgroups of a view those that the directory plans. Members that are not in
/// the view count as gone. `ring_bytes` are the bytes of the messages that a process may have on the way in each
/// order domain.
pub(crate) fn changes(view: &View, directory: &Directory, ring_bytes: u64) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut planned = BTreeSet::new();
    let here = |ids: &mut dyn Iterator<Item = u64>| -> BTreeSet<MemberId> {
        ids.map(MemberId).filter(|id| view.rank_of(*id).is_some()).collect()
    };
    let ids = |ranks: &[Rank]| ranks.iter().map(|rank| view.members[rank.index()]).collect::<BTreeSet<_>>();
    for plan in directory.plans() {
        // Observers are members that do not send: the group has no others yet.
        let members = here(&mut plan.members.iter().chain(&plan.observers).copied());
        let senders = here(&mut plan.senders.iter().copied());
        if members.is_empty() {
            continue;
        }
        planned.insert(plan.domain);
        let name = name_of(plan.domain);
        let Some(known) = view.subgroup(&name).map(|id| &view.subgroups[id.index()]) else {
            changes.push(Change::Create(spec_of(plan, members, senders, ring_bytes)));
            continue;
        };
        let is_so = ids(&known.members) == members && ids(&known.senders) == senders;
        let wanted = spec_of(plan, members, senders, ring_bytes);
        // The window is that of the first leader, which may have had other settings.
        let is_as_long = known.message_bytes_max == wanted.message_bytes_max;
        if !is_so || !is_as_long {
            let window = if is_as_long { known.window } else { wanted.window };
            changes.push(Change::Alter(SubgroupSpec { window, ..wanted }));
        }
    }
    let is_over = |name: &str| domain_of(name).is_some_and(|domain| !planned.contains(&domain));
    let over = view.subgroups.iter().filter(|spec| is_over(&spec.name));
    changes.extend(over.map(|spec| Change::Drop(spec.name.clone())));
    changes
}

fn spec_of(
    plan: &DomainPlan,
    members: BTreeSet<MemberId>,
    senders: BTreeSet<MemberId>,
    ring_bytes: u64,
) -> SubgroupSpec {
    let message_bytes_max = u64::from(plan.message_bytes_max).next_multiple_of(8);
    let window = (ring_bytes / (message_bytes_max + FRAME_BYTES)).clamp(WINDOW_MIN, WINDOW_MAX);
    SubgroupSpec {
        name: name_of(plan.domain),
        members: vec![],
        senders: vec![],
        member_rule: Rule::Only(members.into_iter().collect()),
        sender_rule: Rule::Only(senders.into_iter().collect()),
        order: Order::Total,
        window,
        message_bytes_max,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    }
}
