//! Situations that a view protocol must survive, by name: some are known to have broken other
//! protocols, and the design of this one depends on others. Each is a small plan that forces the
//! situation. It is played with many seeds, since the seed still draws every delay. The checkers
//! decide whether the run was correct; a test asserts that the situation occurred.
use spindle_core::*;
use spindle_sim::*;

const SUSPECT_AFTER_NS: u64 = 500_000;
const BOTH: [Visibility; 2] = [Visibility::Posted, Visibility::Shared];

/// Returns a group of `members` members and `joiners` processes that may join. All of them send all
/// the time, in a subgroup with a total order and in a Fifo subgroup.
fn group(seed: u64, members: usize, joiners: usize, visibility: Visibility) -> Plan {
    let subgroup = |name: &str, order| SubgroupSpec {
        name: name.into(),
        members: vec![],
        senders: vec![],
        member_rule: Rule::Everyone,
        sender_rule: Rule::Everyone,
        order,
        window: 4,
        message_bytes_max: 40,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    };
    // These ids expose code that uses ids as ranks, or assumes that they ascend.
    let ids: Vec<MemberId> = (0..(members + joiners) as u64).map(|i| MemberId(1000 - i * 37 % 101)).collect();
    let subgroups = vec![subgroup("total", Order::Total), subgroup("fifo", Order::Fifo)];
    let view = View { id: ViewId(0), members: vec![], nonvoters: vec![], subgroups: subgroups.into() }.next(
        |_| true,
        &ids[..members],
        &[],
    );
    let process =
        |id: &MemberId| MemberPlan { id: *id, poll_ns: 500, pauses: vec![], clock_jumps: vec![], hand_offs: vec![] };
    let app = |member: usize, subgroup: u32| AppPlan {
        member,
        subgroup: SubgroupId(subgroup),
        claims: 40,
        think_ns: 5_000,
        hold_ns: 500,
    };
    Plan {
        seed,
        members: ids.iter().map(process).collect(),
        apps: (0..ids.len()).flat_map(|member| [app(member, 0), app(member, 1)]).collect(),
        link_ns: vec![vec![2_000; ids.len()]; ids.len()],
        actions: vec![],
        changes: vec![],
        suspect_after_ns: Some(SUSPECT_AFTER_NS),
        view,
        visibility,
        ablation: Ablation::default(),
        faults: Faults { membership: true, delayed_posts: true, ..Faults::NONE },
        consumer_ns: 1_500,
        events_max: 5_000_000,
        setting: Setting::Mixed,
    }
}

/// Plays a plan with these actions, in which no invariant may break.
fn play(plan: Plan, actions: &[Action]) -> Outcome {
    let plan = Plan { actions: actions.to_vec(), ..plan };
    let outcome = run(&plan);
    assert_eq!(outcome.violations, [], "{}", explain(&plan).1);
    outcome
}

fn crash(process: usize) -> ActionKind {
    ActionKind::Crash { process, actions: 0 }
}

/// Cuts every link from a process of `one` to a process of `other`, for ever.
fn cut_off(one: &[usize], other: &[usize]) -> Vec<Action> {
    let pairs = one.iter().flat_map(|from| other.iter().map(move |to| (*from, *to)));
    pairs.map(|(from, to)| Action::at(50_000, ActionKind::Cut { from, to, ns: u64::MAX })).collect()
}

/// For everything that the leader may have written, the next leader finds enough to continue, and
/// makes the same decision if there was one.
#[test]
fn the_leader_dies_at_each_point_of_the_agreement() {
    for visibility in BOTH {
        for step in [InstallStep::Wedges, InstallStep::Adopts, InstallStep::Decides] {
            for actions in 0..12 {
                let suspect = Action::at(50_000, ActionKind::Suspect { by: 1, whom: 3 });
                let dies = Action::on(0, 1, step, ActionKind::Crash { process: 0, actions });
                let outcome = play(group(actions, 5, 0, visibility), &[suspect, dies]);
                assert!(outcome.counts.crashes == 1 && outcome.counts.views >= 1 && !outcome.blocked, "{outcome:?}");
            }
        }
    }
}

/// The two that are left of four are no majority. On one machine they continue all the same,
/// because the dead are proven dead.
#[test]
fn two_die_at_once() {
    for seed in 0..20 {
        for visibility in BOTH {
            let both = [0, 2].map(|process| Action::at(60_000, crash(process)));
            let four = play(group(seed, 4, 0, visibility), &both);
            assert_eq!(four.blocked, visibility == Visibility::Posted);
            let five = play(group(seed, 5, 0, visibility), &both);
            assert!(!five.blocked && five.counts.views >= 1, "{five:?}");
        }
    }
}

/// The others install a view whose leader is dead, and end it again.
#[test]
fn the_leader_dies_while_the_next_view_is_built() {
    for seed in 0..20 {
        for visibility in BOTH {
            let join = Action::at(50_000, ActionKind::Join { process: 4 });
            let dies = Action::on(0, 2, InstallStep::Installs, crash(0));
            let outcome = play(group(seed, 4, 1, visibility), &[join, dies]);
            assert!(outcome.counts.views == 2 && !outcome.blocked, "{outcome:?}");
        }
    }
}

/// The joiner is a member of a view that it never installs.
#[test]
fn a_joiner_dies_before_it_installs() {
    for seed in 0..20 {
        for visibility in BOTH {
            let join = Action::at(50_000, ActionKind::Join { process: 3 });
            let dies = Action::on(0, 1, InstallStep::Adopts, crash(3));
            let outcome = play(group(seed, 3, 1, visibility), &[join, dies]);
            assert!(outcome.counts.views == 2 && outcome.counts.crashes == 1 && !outcome.blocked, "{outcome:?}");
        }
    }
}

/// Messages of a subgroup without order are delivered on receipt. Some are beyond the trim; they
/// are sent again and skipped.
#[test]
fn fifo_messages_cross_a_view_change() {
    let mut resent = 0;
    for seed in 0..20 {
        for visibility in BOTH {
            let joins = [3, 4].map(|process| Action::at(process as u64 * 20_000, ActionKind::Join { process }));
            let outcome = play(group(seed, 3, 2, visibility), &joins);
            assert!(outcome.counts.views >= 1 && !outcome.blocked, "{outcome:?}");
            resent += outcome.counts.resent;
        }
    }
    assert!(resent > 100, "{resent}");
}

/// The leader is the oldest member, which has the highest id here.
#[test]
fn ids_are_in_no_relation_to_ranks() {
    let mut plan = group(1, 3, 1, Visibility::Shared);
    plan.actions = vec![Action::at(5_000, ActionKind::Join { process: 3 })];
    // This trace is printed in full.
    plan.apps.iter_mut().for_each(|app| app.claims = 2);
    let ids: Vec<u64> = plan.members.iter().map(|member| member.id.0).collect();
    assert!(!ids.is_sorted() && ids[..3].iter().all(|id| *id <= ids[0]), "{ids:?}");
    let (outcome, story) = explain(&plan);
    assert_eq!((outcome.violations, outcome.counts.views), (vec![], 1));
    let follows = format!("by ballot 0.1 view 2 follows, of #{} #{} #{} #{}", ids[0], ids[1], ids[2], ids[3]);
    assert!(story.contains(&follows), "{story}");
}

/// A change after the proposal goes into another proposal, or into the view after the next.
#[test]
fn a_view_change_during_a_view_change() {
    for seed in 0..20 {
        for visibility in BOTH {
            for step in [InstallStep::Wedges, InstallStep::Adopts, InstallStep::Decides, InstallStep::Ends] {
                let first = Action::at(50_000, ActionKind::Suspect { by: 0, whom: 1 });
                let joins = Action::on(0, 1, step, ActionKind::Join { process: 5 });
                let dies = Action::on(2, 1, step, crash(2));
                let outcome = play(group(seed, 5, 1, visibility), &[first, joins, dies]);
                // A member that learns the decision early accepts nothing.
                let joins = outcome.counts.joins == 1 || step == InstallStep::Adopts;
                assert!(outcome.counts.views >= 1 && joins && !outcome.blocked, "{outcome:?}");
            }
        }
    }
}

/// The member returns to a group that has continued, learns that, and delivers nothing more.
#[test]
fn a_suspected_member_was_only_slow() {
    for seed in 0..20 {
        for visibility in BOTH {
            let hang = Action::at(50_000, ActionKind::Hang { process: 0, ns: 3 * SUSPECT_AFTER_NS });
            let outcome = play(group(seed, 3, 0, visibility), &[hang]);
            assert_eq!((outcome.counts.views, outcome.counts.evictions, outcome.blocked), (1, 1, false));
        }
    }
}

/// No member is suspected for a pause that is shorter than the suspicion time.
#[test]
fn short_pauses_change_nothing() {
    for seed in 0..20 {
        for visibility in BOTH {
            let hang = |process| ActionKind::Hang { process, ns: SUSPECT_AFTER_NS * 85 / 100 };
            let hangs = [0, 1, 2].map(|process| Action::at(50_000 + 1_000 * process as u64, hang(process)));
            assert_eq!(play(group(seed, 3, 0, visibility), &hangs).counts.views, 0);
        }
    }
}

/// The trims count rounds. Rounds of nulls end with the view, and no member waits for them in the
/// next one.
#[test]
fn nulls_are_in_flight_at_the_wedge() {
    for seed in 0..40 {
        for visibility in BOTH {
            let mut plan = group(seed, 4, 1, visibility);
            plan.apps.retain(|app| app.member == 1 || app.member == 4);
            let join = Action::at(30_000 + 500 * seed, ActionKind::Join { process: 4 });
            let outcome = play(plan, &[join]);
            assert!(outcome.counts.nulls > 50 && outcome.counts.views == 1 && !outcome.blocked, "{outcome:?}");
        }
    }
}

/// If a group splits into three parts without a majority, all of them stop, and none continues.
#[test]
fn a_partition_into_two_two_and_one_stops_all() {
    for seed in 0..10 {
        let sides: [(&[usize], &[usize]); 6] =
            [(&[0, 1], &[2, 3, 4]), (&[2, 3, 4], &[0, 1]), (&[2, 3], &[4]), (&[4], &[2, 3]), (&[], &[]), (&[], &[])];
        let cuts: Vec<Action> = sides.iter().flat_map(|(one, other)| cut_off(one, other)).collect();
        let outcome = play(group(seed, 5, 0, Visibility::Posted), &cuts);
        assert_eq!((outcome.counts.views, outcome.blocked), (0, true));
    }
}

/// The larger part continues, the smaller one stops.
#[test]
fn after_a_partition_into_three_and_two_the_three_continue() {
    for seed in 0..10 {
        let cuts = [cut_off(&[0, 1], &[2, 3, 4]), cut_off(&[2, 3, 4], &[0, 1])].concat();
        let outcome = play(group(seed, 5, 0, Visibility::Posted), &cuts);
        assert_eq!((outcome.counts.views, outcome.blocked), (1, false));
    }
}

/// A member that the others do not hear is suspected by them, and learns so from their rows.
#[test]
fn silence_in_one_direction_evicts_one_member() {
    for seed in 0..10 {
        let outcome = play(group(seed, 4, 0, Visibility::Posted), &cut_off(&[1], &[0, 2, 3]));
        assert_eq!((outcome.counts.views, outcome.counts.evictions, outcome.blocked), (1, 1, false));
    }
}

/// Cuts all links from `side` to the others of a group of `members` at once if `out`, and those
/// back if `back`, for `ns`.
fn split(members: usize, side: &[usize], (out, back): (bool, bool), ns: u64) -> Vec<Action> {
    let others: Vec<usize> = (0..members).filter(|other| !side.contains(other)).collect();
    let pairs = side.iter().flat_map(|one| others.iter().map(move |other| (*one, *other)));
    let cut = |from, to| Action::at(50_000, ActionKind::Cut { from, to, ns });
    let cuts = pairs.flat_map(|(one, other)| [(out, cut(one, other)), (back, cut(other, one))]);
    cuts.filter(|(is_cut, _)| *is_cut).map(|(_, action)| action).collect()
}

/// A minority loses contact with the others for about the suspicion time, in one direction or both,
/// and returns at any moment of their reaction. It has suspected them all by then, which must not
/// end them; at most the minority itself is evicted.
#[test]
fn a_member_that_returns_from_a_partition_evicts_no_other() {
    let sides: [(usize, &[usize]); 6] = [(7, &[0]), (7, &[3]), (7, &[0, 1]), (5, &[1, 4]), (3, &[0]), (3, &[2])];
    let (mut evicted, mut stayed) = (0, 0);
    for (members, side) in sides {
        for ways in [(true, true), (false, true), (true, false)] {
            for percent in 90..140 {
                let cuts = split(members, side, ways, SUSPECT_AFTER_NS * percent / 100);
                // Delays as long as several heartbeats would make it suspect one after the other.
                let faults = Faults { membership: true, ..Faults::NONE };
                let outcome = play(Plan { faults, ..group(percent, members, 0, Visibility::Posted) }, &cuts);
                let gone = outcome.counts.evictions;
                assert!(gone <= side.len() as u64, "{side:?} of {members}, {ways:?}, {percent} %: {outcome:?}");
                assert!(!outcome.blocked && outcome.counts.views <= 1 + gone, "{outcome:?}");
                evicted += u32::from(gone > 0);
                stayed += u32::from(gone == 0);
            }
        }
    }
    assert!(evicted > 200 && stayed > 50, "{evicted} {stayed}");
}

/// Two halves lose contact, and one of them continues: the one with the lowest rank.
#[test]
fn one_of_two_halves_that_hear_each_other_again_continues() {
    for percent in 100..140 {
        for side in [[0, 1], [0, 3]] {
            let cuts = split(4, &side, (true, true), SUSPECT_AFTER_NS * percent / 100);
            let outcome = play(group(percent, 4, 0, Visibility::Posted), &cuts);
            assert!(outcome.counts.evictions <= 3 && !outcome.blocked, "{side:?}, {percent} %: {outcome:?}");
        }
    }
}

/// First no member hears any other, and then all hear each other. The group must survive.
#[test]
fn a_group_that_was_shattered_is_not_lost() {
    for members in [2, 3, 5, 6] {
        for percent in 100..140 {
            let all = |one: usize| split(members, &[one], (true, false), SUSPECT_AFTER_NS * percent / 100);
            let cuts: Vec<Action> = (0..members).flat_map(all).collect();
            let outcome = play(group(percent, members, 0, Visibility::Posted), &cuts);
            assert!(outcome.counts.evictions < members as u64 && !outcome.blocked, "{percent} %: {outcome:?}");
        }
    }
}

/// A, B and C form a group. C is dead; A and B are paused past the suspicion time and resumed
/// together. They must not become two groups.
#[test]
fn two_that_suspect_each_other_do_not_both_go_on() {
    for seed in 0..40 {
        let hang = |process| Action::at(51_000, ActionKind::Hang { process, ns: 3 * SUSPECT_AFTER_NS });
        let told = |by, whom| Action::at(51_000 + 3 * SUSPECT_AFTER_NS, ActionKind::Suspect { by, whom });
        let outcome = play(
            group(seed, 3, 0, Visibility::Shared),
            &[Action::at(50_000, crash(2)), hang(0), hang(1), told(0, 1), told(1, 0)],
        );
        assert!(outcome.counts.evictions <= 1 && outcome.counts.views >= 1, "{outcome:?}");
        let paused = [Action::at(50_000, crash(2)), hang(0), hang(1)];
        let outcome = play(group(seed, 3, 0, Visibility::Shared), &paused);
        assert!(!outcome.blocked && outcome.counts.views > 0, "{outcome:?}");
    }
}

/// A and B decide without C, then die. C reads their rows, finds that it was evicted, and stops.
#[test]
fn the_last_one_reads_that_it_was_excluded() {
    for seed in 0..20 {
        let hang = Action::at(50_000, ActionKind::Hang { process: 2, ns: 6 * SUSPECT_AFTER_NS });
        let die = [0, 1].map(|process| Action::on(process, 2, InstallStep::Installs, crash(process)));
        let outcome = play(group(seed, 3, 0, Visibility::Shared), &[hang, die[0], die[1]]);
        assert_eq!(
            (outcome.counts.views, outcome.counts.crashes, outcome.counts.evictions, outcome.blocked),
            (1, 2, 1, false)
        );
    }
}

/// A process that crashed returns as another member, with an id of its own.
#[test]
fn a_crashed_member_comes_back_under_a_new_id() {
    for seed in 0..20 {
        for visibility in BOTH {
            let crash = Action::at(50_000, crash(1));
            let join = Action::at(60_000, ActionKind::Join { process: 3 });
            let outcome = play(group(seed, 3, 1, visibility), &[crash, join]);
            assert!(outcome.counts.views >= 1 && !outcome.blocked && outcome.counts.installs >= 3, "{outcome:?}");
        }
    }
}

/// Many processes that ask at once are admitted together.
#[test]
fn joins_are_batched() {
    for visibility in BOTH {
        let joins: Vec<Action> = (3..9).map(|process| Action::at(50_000, ActionKind::Join { process })).collect();
        let outcome = play(group(3, 3, 6, visibility), &joins);
        assert!((1..=2).contains(&outcome.counts.views) && !outcome.blocked, "{outcome:?}");
    }
}

/// A planned leave loses no message of the members that stay, and the leaver acknowledges the view
/// without it.
#[test]
fn members_leave_until_one_is_left() {
    for seed in 0..10 {
        for visibility in BOTH {
            let leaves =
                [0, 1, 2].map(|process| Action::at(500_000 * (process as u64 + 1), ActionKind::Leave { process }));
            let outcome = play(group(seed, 4, 0, visibility), &leaves);
            assert_eq!(
                (outcome.counts.leaves, outcome.counts.views, outcome.blocked, outcome.counts.evictions),
                (3, 3, false, 0)
            );
        }
    }
}

/// A member accepts, then suspects its leader, and hears it again: the view ends all the same.
#[test]
fn a_leader_is_suspected_when_it_decides() {
    for what in [ActionKind::Join { process: 2 }, ActionKind::Leave { process: 1 }] {
        for seed in 0..200 {
            let suspect = Action::on(1, 1, InstallStep::Adopts, ActionKind::Suspect { by: 1, whom: 0 });
            let plan = Plan { suspect_after_ns: Some(1_000_000), ..group(seed, 2, 1, Visibility::Shared) };
            let outcome = play(plan, &[Action::at(50_000, what), suspect]);
            assert!(!outcome.blocked && outcome.counts.views > 0, "{outcome:?}");
        }
    }
}

/// Returns the action with which `process` installs the second view, in which the memory of `whom`
/// does not arrive at it.
fn miss(process: usize, whom: usize) -> Action {
    Action::on(process, 2, InstallStep::Installs, ActionKind::Miss { process, whom })
}

/// Three members continue without one that saw none of their stores, and die. Their rows are not
/// final to it, so it does not know what they did. It stays blocked, and does not use the zeros
/// that it has in place of their stores.
#[test]
fn rows_that_never_came_are_not_final() {
    for seed in 0..20 {
        let join = Action::at(50_000, ActionKind::Join { process: 3 });
        let apart = [1, 2, 3].map(|other| [miss(0, other), miss(other, 0)]).concat();
        let die = [1, 2, 3].map(|process| Action::on(process, 3, InstallStep::Installs, crash(process)));
        let outcome = play(group(seed, 3, 1, Visibility::Shared), &[&[join], &apart[..], &die].concat());
        let counts = (outcome.counts.absences, outcome.counts.views, outcome.counts.crashes, outcome.counts.evictions);
        assert_eq!((counts, outcome.blocked), ((6, 2, 3, 0), true));
    }
}

/// The same situation with two members.
#[test]
fn one_that_never_saw_the_other_is_blocked_by_its_death() {
    for seed in 0..20 {
        let join = Action::at(50_000, ActionKind::Join { process: 1 });
        let dies = Action::on(1, 2, InstallStep::Installs, crash(1));
        let actions = [join, miss(0, 1), miss(1, 0), dies];
        let outcome = play(group(seed, 1, 1, Visibility::Shared), &actions);
        assert_eq!((outcome.counts.absences, outcome.counts.evictions, outcome.blocked), (2, 0, true));
    }
}

/// A member whose memory is late at one other member is evicted for good; all others report that to
/// it.
#[test]
fn one_that_is_late_at_one_member_is_evicted() {
    for seed in 0..20 {
        let join = Action::at(50_000, ActionKind::Join { process: 3 });
        let outcome = play(group(seed, 3, 1, Visibility::Shared), &[join, miss(1, 2)]);
        assert_eq!(
            (outcome.counts.absences, outcome.counts.views, outcome.counts.evictions, outcome.blocked),
            (1, 2, 1, false)
        );
    }
}

/// Any rows of a view of three are missing, and any members die at any step of the way out of the
/// view.
#[test]
fn every_way_in_which_three_miss_each_other() {
    let pairs: Vec<(usize, usize)> = (0..3).flat_map(|to| (0..3).map(move |from| (to, from))).collect();
    let pairs: Vec<(usize, usize)> = pairs.into_iter().filter(|(to, from)| to != from).collect();
    let (mut went_on, mut stopped) = (0, 0);
    for (absent, dying) in (1..64).flat_map(|absent| (0..8).map(move |dying| (absent, dying))) {
        for (view, step) in
            [(2, InstallStep::Wedges), (2, InstallStep::Adopts), (2, InstallStep::Decides), (3, InstallStep::Installs)]
        {
            let absent = pairs.iter().enumerate().filter(|(i, _)| absent >> i & 1 == 1);
            let absent = absent.map(|(_, (process, whom))| miss(*process, *whom));
            let dying = (0..3).filter(|process| dying >> process & 1 == 1);
            let dying = dying.map(|process| Action::on(process, view, step, crash(process)));
            let join = Action::at(20_000, ActionKind::Join { process: 2 });
            let actions: Vec<Action> = absent.chain(dying).chain([join]).collect();
            let mut plan = group(actions.len() as u64, 2, 1, Visibility::Shared);
            plan.apps.iter_mut().for_each(|app| app.claims = 2);
            let outcome = play(plan, &actions);
            assert!(outcome.counts.absences > 0, "{outcome:?}");
            went_on += u32::from(outcome.counts.views > 1);
            stopped += u32::from(outcome.counts.views == 1);
        }
    }
    assert!(went_on > 500 && stopped > 100, "{went_on} {stopped}");
}

/// Returns the group of [`group`] with one shard per order. Each shard needs all three members of
/// the first view.
fn shards(seed: u64, visibility: Visibility) -> Plan {
    let plan = group(seed, 3, 1, visibility);
    let mut view = plan.view.clone();
    for (set, spec) in (1..).zip(&mut view.subgroups) {
        spec.member_rule = Rule::Shard { set, least: 3, most: 3 };
    }
    Plan { view, ..plan }
}

/// Messages were delivered on receipt before their shard lost a member. They are sent again after
/// another member has taken its place, a view or more later. All members and the sender skip them.
#[test]
fn a_shard_is_unavailable_and_comes_back() {
    let (mut waits, mut resent) = (0, 0);
    for seed in 0..20 {
        for visibility in BOTH {
            for goes in [ActionKind::Leave { process: 1 }, crash(1)] {
                let goes = Action::at(60_000, goes);
                let comes = Action::on(0, 2, InstallStep::Installs, ActionKind::Join { process: 3 });
                let outcome = play(shards(seed, visibility), &[goes, comes]);
                assert!(outcome.counts.views == 2 && !outcome.blocked, "{outcome:?}");
                (waits, resent) = (waits + outcome.counts.waits, resent + outcome.counts.resent);
            }
        }
    }
    assert!(waits > 100 && resent > 100, "{waits} {resent}");
}

/// Messages that were short enough when they were accepted are sent again under any new limit.
#[test]
fn messages_outlive_a_smaller_limit() {
    let mut resent = 0;
    for seed in 0..20 {
        for visibility in BOTH {
            let plan = group(seed, 3, 0, visibility);
            let alter = |spec: usize, message_bytes_max| {
                let (members, senders) = (vec![], vec![]);
                let spec = plan.view.subgroups[spec].clone();
                Change::Alter(SubgroupSpec { members, senders, window: 2, message_bytes_max, ..spec })
            };
            // The second pair of changes arrives when the first has just been installed.
            let changes = vec![alter(0, 8), alter(1, 8), alter(0, 0), alter(1, 16)];
            let ask = |change| ActionKind::Change { process: 0, change };
            let actions = [
                Action::at(60_000, ask(0)),
                Action::at(60_000, ask(1)),
                Action::on(0, 2, InstallStep::Installs, ask(2)),
                Action::on(0, 2, InstallStep::Installs, ask(3)),
            ];
            let outcome = play(Plan { changes, ..plan }, &actions);
            assert!(outcome.counts.alterations == 4 && outcome.counts.views == 2 && !outcome.blocked, "{outcome:?}");
            resent += outcome.counts.resent;
        }
    }
    assert!(resent > 100, "{resent}");
}
