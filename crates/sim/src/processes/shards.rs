//! The rule of shards, as far as a view and the previous one show it.
use super::ledger::VIEWS;
use crate::checkers::Checked;
use spindle_core::{Rank, Rule, View};
use std::collections::BTreeSet;

/// Checks that a member stays in its shard, is in at most one shard of a set, and sends in none
/// that has too few members.
pub(super) fn check_shards(before: &View, view: &View) -> Checked {
    let mut placed = BTreeSet::new();
    for spec in &view.subgroups {
        let Rule::Shard { set, least, most } = spec.member_rule else { continue };
        let (count, name) = (spec.members.len(), &spec.name);
        let is_sound = count <= most as usize && (count >= least as usize || spec.senders.is_empty());
        let is_twice = spec.members.iter().any(|rank| !placed.insert((set, *rank)));
        let old = before.subgroup(name).map(|id| &before.subgroups[id.index()]);
        let old = old.filter(|old| old.member_rule == spec.member_rule);
        let is_gone = |rank: &&Rank| {
            let rank = view.rank_of(before.members[rank.index()]);
            rank.is_some_and(|rank| !spec.members.contains(&rank))
        };
        let gone = old.and_then(|old| old.members.iter().find(is_gone));
        if !is_sound || is_twice || gone.is_some() {
            return VIEWS.broken(format!("shard {name} of view {} is {spec:?} and was {old:?}", view.id));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::subgroups::{first_view, total};
    use spindle_core::{MemberId, SubgroupSpec};

    #[test]
    fn members_that_change_their_shards_or_send_in_one_that_is_too_small_are_found() {
        let member_rule = Rule::Shard { set: 0, least: 2, most: 2 };
        let shard = |name| SubgroupSpec { member_rule: member_rule.clone(), ..total(name) };
        let before = first_view(&[shard("s"), shard("t")], (1..=4).map(MemberId).collect());
        let is_sound = |change: &dyn Fn(&mut View)| {
            let mut next = before.next(|_| true, &[], &[]);
            change(&mut next);
            check_shards(&before, &next).is_ok()
        };
        assert!(is_sound(&|_| {}));
        assert!(!is_sound(&|view| {
            let members = view.subgroups[0].members.clone();
            view.subgroups[0].members = std::mem::replace(&mut view.subgroups[1].members, members);
        }));
        assert!(!is_sound(&|view| view.subgroups[0].members.push(Rank(3))), "three are too many");
        assert!(!is_sound(&|view| view.subgroups[1].members = view.subgroups[0].members.clone()), "in both");
        let one = before.next(|rank| rank == Rank(0), &[], &[]);
        assert!(check_shards(&before, &one).is_ok());
        let mut sends = one.clone();
        sends.subgroups[0].senders = vec![Rank(0)];
        assert!(check_shards(&before, &sends).is_err(), "a sender in a shard of one");
    }
}
