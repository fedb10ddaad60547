use super::*;
use alloc::string::ToString;

fn spec(name: &str, member_rule: Rule) -> SubgroupSpec {
    SubgroupSpec {
        name: name.to_string(),
        members: vec![],
        senders: vec![],
        member_rule,
        sender_rule: Rule::Everyone,
        order: Order::Total,
        window: 4,
        message_bytes_max: 100,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    }
}

fn ids(view: &View, subgroup: usize) -> Vec<u64> {
    view.subgroups[subgroup].members.iter().map(|rank| view.members[rank.index()].0).collect()
}

fn everyone(view: &View, joining: &[u64], changes: &[Change]) -> View {
    let joining: Vec<MemberId> = joining.iter().copied().map(MemberId).collect();
    view.next(|_| true, &joining, changes)
}

/// Each member has memory, and streams, for the rows of each view that it needs.
#[test]
fn a_member_needs_the_rows_of_few_views() {
    let only = |ids: &[u64]| Rule::Only(ids.iter().copied().map(MemberId).collect());
    let members = [1, 2, 3].map(MemberId).to_vec();
    let mut view = View { id: ViewId(1), members, nonvoters: vec![], subgroups: Default::default() };
    view = everyone(&view, &[], &[Change::Create(spec("old", only(&[3])))]);
    let older = |view: &View, rank: u32| -> BTreeSet<ViewId> {
        let mine = view.subgroups.iter().filter(|spec| spec.members.contains(&Rank(rank)));
        mine.filter_map(|spec| spec.epoch).collect()
    };
    let mut touched = vec![];
    for number in 0..20 {
        let next = everyone(&view, &[], &[Change::Create(spec(&alloc::format!("s{number}"), only(&[1, 2])))]);
        touched.push(view.touched_by(&next).iter().filter(|touched| **touched).count());
        assert!(view.has_sound_epochs(&next));
        view = next;
        assert!((0..2).all(|rank| older(&view, rank).len() <= OLDER_MAX), "{view:?}");
        assert!(view.subgroups.iter().all(|spec| spec.name != "old" || spec.epoch == Some(ViewId(2))));
    }
    assert_eq!(older(&view, 0).len(), OLDER_MAX);
    // Subgroups of one epoch begin anew together, and share the next one.
    assert!(touched[..=OLDER_MAX].iter().all(|touched| *touched == 0) && touched[OLDER_MAX + 1] == 1, "{touched:?}");
}

#[test]
fn shards_keep_their_members_and_newcomers_go_where_they_are_needed() {
    let shard = Rule::Shard { set: 7, least: 2, most: 3 };
    let first = View { id: ViewId(1), members: vec![MemberId(10)], nonvoters: vec![], subgroups: Default::default() };
    let changes = ["kv/0", "kv/1"].map(|name| Change::Create(spec(name, shard.clone())));
    let two = everyone(&first, &[11], &changes);
    assert_eq!((ids(&two, 0), ids(&two, 1)), (vec![10], vec![11]));
    assert!(!two.subgroups[0].is_available() && two.subgroups[0].senders.is_empty());
    let mut created = two.clone();
    created.subgroups.iter_mut().for_each(|spec| spec.members.clear());
    created.share_out();
    assert_eq!(created, two, "founders are shared out as those are who come");
    let five = everyone(&two, &[12, 13, 14], &[]);
    assert_eq!((ids(&five, 0), ids(&five, 1)), (vec![10, 12, 14], vec![11, 13]));
    assert!(five.subgroups.iter().all(|spec| spec.is_available() && spec.senders == spec.members));
    let more = everyone(&five, &[15, 16], &[]);
    assert_eq!((ids(&more, 0), ids(&more, 1)), (vec![10, 12, 14], vec![11, 13, 15]), "one is left over");
    // 11 and 13 leave: the member that is left over fills up a shard, and no member changes its
    // shard.
    let fewer = more.next(|rank| ![1, 3].contains(&rank.0), &[], &[]);
    assert_eq!((ids(&fewer, 0), ids(&fewer, 1)), (vec![10, 12, 14], vec![15, 16]));
    let broken = fewer.next(|rank| ![3, 4].contains(&rank.0), &[], &[]);
    assert_eq!((ids(&broken, 0), ids(&broken, 1)), (vec![10, 12, 14], vec![]));
    assert!(broken.subgroups[0].is_available() && !broken.subgroups[1].is_available());
    assert_eq!(broken.check(), Ok(()));
}

#[test]
fn subgroups_come_change_and_go() {
    let first = View {
        id: ViewId(1),
        members: vec![MemberId(1), MemberId(2)],
        nonvoters: vec![],
        subgroups: Default::default(),
    };
    let create = Change::Create(spec("a", Rule::Only(vec![MemberId(2)])));
    assert!(first.wants(&create));
    let second = everyone(&first, &[], &[create.clone(), Change::Create(spec("b", Rule::Everyone))]);
    assert!(!second.wants(&create), "it is there");
    assert_eq!((ids(&second, 0), ids(&second, 1)), (vec![2], vec![1, 2]));
    let enter = Change::Enter { name: "a".to_string(), id: MemberId(1) };
    let third = everyone(&second, &[], &[enter.clone(), Change::Drop("b".to_string())]);
    assert_eq!((ids(&third, 0), third.subgroups.len()), (vec![1, 2], 1));
    assert!(!third.wants(&enter) && !third.wants(&Change::Drop("b".to_string())));
    let altered = Change::Alter(SubgroupSpec { window: 9, ..spec("a", Rule::First(1)) });
    let fourth = everyone(&third, &[], core::slice::from_ref(&altered));
    assert_eq!(fourth.subgroups[0].window, 9);
    assert_eq!(ids(&fourth, 0), [1]);
    assert!(!fourth.wants(&altered));
    // A change that makes no sense is ignored, and other changes of the view still apply.
    let wrong = Change::Alter(SubgroupSpec { window: 0, ..spec("a", Rule::Everyone) });
    assert!(!fourth.wants(&wrong));
    let fifth = everyone(&fourth, &[3], &[wrong, Change::Drop("none".to_string())]);
    assert_eq!((ids(&fifth, 0), fifth.members.len()), (vec![1], 3));
}

#[test]
fn a_raised_clock_begins_a_new_epoch_of_its_subgroup_alone() {
    let logged = |name| SubgroupSpec { durability: Durability::Logged { copies: 1 }, ..spec(name, Rule::Everyone) };
    let subgroups = vec![logged("a"), logged("b"), spec("c", Rule::Everyone)];
    let view = View { id: ViewId(4), members: vec![MemberId(1)], nonvoters: vec![], subgroups: subgroups.into() };
    let view = everyone(&view, &[], &[]);
    let raise = |name: &str, clock| Change::Clock { name: name.to_string(), clock };
    let change = raise("b", 70);
    assert!(view.wants(&change) && !view.wants(&raise("c", 70)) && !view.wants(&raise("none", 70)));
    // A view without the change settles nothing.
    assert!(!view.has_settled(&change, &everyone(&view, &[2], &[])));
    let next = everyone(&view, &[], &[change.clone(), raise("c", 9), raise("b", 60)]);
    let clocks = |view: &View| view.subgroups.iter().map(|spec| spec.clock).collect::<Vec<_>>();
    assert_eq!(clocks(&next), [0, 70, 0]);
    assert_eq!(view.touched_by(&next), [false, true, false]);
    assert!(view.has_sound_epochs(&next) && view.has_settled(&change, &next) && !next.wants(&change));
    assert_eq!(clocks(&everyone(&next, &[2], &[])), [0, 70, 0]);
    // It counts beside any other change of the subgroup.
    let alter = Change::Alter(SubgroupSpec { window: 9, ..logged("b") });
    assert!(!alter.contradicts(&change) && !change.contradicts(&alter) && !change.contradicts(&raise("b", 60)));
    let both = everyone(&view, &[], &[change.clone(), alter]);
    assert_eq!((both.subgroups[1].window, both.subgroups[1].clock), (9, 70));
    assert!(view.has_settled(&change, &everyone(&view, &[], &[Change::Drop("b".to_string())])));
}

#[test]
fn a_subgroup_keeps_its_order_as_long_as_it_has_its_name() {
    let fifo = SubgroupSpec { order: Order::Fifo, window: 9, ..spec("a", Rule::Everyone) };
    let view = View {
        id: ViewId(1),
        members: vec![MemberId(1)],
        nonvoters: vec![],
        subgroups: vec![spec("a", Rule::Everyone)].into(),
    };
    let (drop, create) = (Change::Drop("a".to_string()), Change::Create(fifo.clone()));
    assert!(!view.wants(&Change::Alter(fifo.clone())));
    assert_eq!(everyone(&view, &[], &[Change::Alter(fifo)]).subgroups, everyone(&view, &[], &[]).subgroups);
    let next = everyone(&view, &[], &[drop, create.clone()]);
    assert!(next.subgroups.is_empty(), "the new one is not the old one's successor");
    assert_eq!(everyone(&next, &[], &[create]).subgroups[0].order, Order::Fifo);
}

#[test]
fn rings_keep_room_for_what_was_accepted_under_a_larger_limit() {
    let sized = |message_bytes_max| SubgroupSpec { message_bytes_max, ..spec("a", Rule::Everyone) };
    let view =
        View { id: ViewId(1), members: vec![MemberId(1)], nonvoters: vec![], subgroups: vec![sized(100)].into() };
    let alter = |size| Change::Alter(SubgroupSpec { leftover_bytes_max: 7, ..sized(size) });
    let limits = |view: &View| (view.subgroups[0].message_bytes_max, view.subgroups[0].leftover_bytes_max);
    let mut views = vec![view];
    for (change, expected) in [(Some(40), (40, 100)), (None, (40, 100)), (Some(60), (60, 100)), (Some(100), (100, 0))] {
        let changes: Vec<Change> = change.map(alter).into_iter().collect();
        let last = views.last().unwrap();
        assert!(changes.iter().all(|change| last.wants(change)));
        let next = everyone(last, &[], &changes);
        assert_eq!((limits(&next), next.check()), (expected, Ok(())));
        assert!(changes.iter().all(|change| !next.wants(change)), "what is left over is no part of a change");
        views.push(next);
    }
    let last = views.last().unwrap();
    let (drop, create) =
        (Change::Drop("a".to_string()), Change::Create(SubgroupSpec { leftover_bytes_max: 7, ..sized(1) }));
    let dropped = everyone(last, &[], &[drop]);
    assert_eq!(limits(&everyone(&dropped, &[], &[create])), (1, 0), "another one of the name");
}

#[test]
fn a_change_is_settled_by_it_or_by_one_that_contradicts_it() {
    let listed = |ids: &[u64]| spec("a", Rule::Only(ids.iter().copied().map(MemberId).collect()));
    let view =
        View { id: ViewId(1), members: vec![MemberId(1)], nonvoters: vec![], subgroups: vec![listed(&[1])].into() };
    let enter = |id| Change::Enter { name: "a".to_string(), id: MemberId(id) };
    let exit = |id| Change::Exit { name: "a".to_string(), id: MemberId(id) };
    let alter = |window| Change::Alter(SubgroupSpec { window, ..listed(&[1]) });
    let drop = Change::Drop("a".to_string());
    let settles = |change: &Change, other: Change| view.has_settled(change, &everyone(&view, &[], &[other]));
    for (one, other, contradict) in [
        (enter(2), enter(3), false),
        (enter(2), exit(1), false),
        (exit(1), enter(1), true),
        (alter(5), alter(6), true),
        (alter(5), drop.clone(), true),
        (alter(5), enter(2), true),
        (drop, Change::Drop("b".to_string()), false),
    ] {
        assert_eq!((one.contradicts(&other), other.contradicts(&one)), (contradict, contradict));
    }
    assert!(settles(&alter(5), alter(6)) && settles(&alter(5), alter(5)) && settles(&exit(1), exit(1)));
    assert!(!settles(&enter(2), enter(3)) && !settles(&enter(2), alter(6)), "both can count");
}
