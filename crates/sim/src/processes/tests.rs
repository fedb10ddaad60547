//! The scenes of some seeds, and drivers that break their duties.
use super::plan::{MS, S};
use super::*;

/// Returns the first seed below `most` at which the check of this name notices a broken driver.
fn noticed(broken: Broken, name: &str, most: u64) -> Option<u64> {
    let is_noticed = |seed: &u64| {
        let outcome = tell(&HostsScene::from_seed(*seed), broken, None);
        outcome.violations.first().is_some_and(|violation| violation.name == name)
    };
    (0..most).find(is_noticed)
}

#[test]
fn some_seeds_break_nothing() {
    let summary = campaign(0..60, 2, |_| true);
    assert!(summary.failures.is_empty(), "{:?}", summary.failures);
    assert!(
        summary.counts.joins > 60 && summary.counts.views > 60 && summary.counts.kills > 20 && summary.united > 45,
        "{summary:?}"
    );
}

/// Returns the place of a process of that host, which asks the seeds. The processes of hosts 0 to 2
/// are the seeds.
fn place(host: u32, start_ns: u64) -> ProcessPlace {
    ProcessPlace { host, start_ns, is_seed: host < 3, is_durable: false, is_unreachable: false, is_observer: false }
}

/// Returns a scene in which three members create a group, links have that delay, and no fault
/// occurs.
fn scene(places: Vec<ProcessPlace>, delay_ns: u64) -> HostsScene {
    let hosts = places.iter().map(|place| place.host + 1).max().unwrap_or(0);
    HostsScene {
        seed: 1,
        hosts,
        is_afar: true,
        places,
        name: None,
        members: 3,
        delays: vec![vec![delay_ns; hosts as usize]; hosts as usize],
        jitter_ns: 0,
        loss_one_in: 0,
        lost_percent: 0,
        suspect_after_ns: S,
        send_every_ns: 100 * MS,
        restart_ns: 100 * MS,
        faults: vec![],
        calm_ns: 4 * S,
        learns: false,
        subgroups: subgroups::plain(),
        recovers_ns: None,
        errs: false,
        large: None,
        epochs: true,
        wrong_clocks: false,
        slow: None,
        logs: None,
        differing: vec![],
    }
}

/// A process of a fourth host asks members of three hosts that can't reach it. It is restarted
/// after each eviction.
fn changes_of_views(seconds: u64, unreachable: bool) -> u64 {
    let mut places: Vec<_> = (0..4).map(|host| place(host, u64::from(host / 3) * 5 * S)).collect();
    places[3].is_unreachable = unreachable;
    let outcome = play(&HostsScene { calm_ns: seconds * S, ..scene(places, MS) });
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    outcome.counts.views
}

#[test]
fn a_process_that_no_member_reaches_changes_views_ever_more_rarely() {
    let changes = [20, 40, 80, 160].map(|seconds| changes_of_views(seconds, true));
    let pairs = changes.iter().zip(&changes[1..]);
    assert!(pairs.clone().all(|(fewer, more)| fewer <= more && *more <= fewer + 4), "{changes:?}");
    // The process is admitted, and votes.
    assert_eq!(changes_of_views(20, false), 2);
}

/// If the process voted before it has begun a view, the group would wait for its vote for ever.
#[test]
fn a_member_alone_goes_on_when_it_lets_a_process_in_that_it_does_not_reach() {
    let mut places = vec![place(0, 0), ProcessPlace { is_seed: false, ..place(1, S) }];
    places[1].is_unreachable = true;
    let outcome = play(&HostsScene { members: 1, calm_ns: 20 * S, ..scene(places, MS) });
    assert!(outcome.violations.is_empty() && outcome.counts.views >= 2, "{outcome:?}");
}

/// Track record 226: the only process that had the addresses of all founders ended between the decision and
/// its announcement. The others began the first view, took each other for processes of their own hosts,
/// and suspected each other for good.
#[test]
fn founders_find_each_other_though_the_only_seed_ends_before_it_announces_their_view() {
    for down_ns in [None, Some(S)] {
        let places = (0..3).map(|host| ProcessPlace { is_seed: host == 0, ..place(host, 0) });
        let faults = vec![(0, HostsFault::KillFounding { place: 0, down_ns })];
        let outcome = play(&HostsScene { faults, calm_ns: 20 * S, ..scene(places.collect(), MS) });
        assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
        assert_eq!((outcome.counts.killed_founding, outcome.counts.bootstraps), (1, 1));
    }
}

/// Two processes of a host wait for a third. One of them is killed before the third starts.
#[test]
fn a_process_that_has_ended_creates_no_group_with_others() {
    let at = |start_ns| ProcessPlace { is_seed: false, ..place(0, start_ns) };
    let kill = (S, HostsFault::Kill { place: 1, down_ns: None, renamed: false });
    let places = [0, 0, 2 * S, 8 * S].map(at).to_vec();
    let outcome = play(&HostsScene { is_afar: false, faults: vec![kill], calm_ns: 10 * S, ..scene(places, MS) });
    assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
    // All members of the first view live.
    assert_eq!((outcome.counts.bootstraps, outcome.counts.views), (1, 0), "{outcome:?}");
}

/// Runs a test with a mutation, which has to make it fail. A process has one active mutation.
#[cfg(mutation)]
fn fails_with(bug: spindle_core::mutation::Mutation, test: fn()) {
    use spindle_core::mutation::activate;
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    activate(Some(bug));
    let held = std::panic::catch_unwind(test);
    activate(None);
    assert!(held.is_err(), "the test passes, whatever the bug");
}

/// No seed of 10,000 shows the mutation.
#[cfg(mutation)]
#[test]
#[ignore = "wants a process of its own: cargo xtask mutations"]
fn mutations_of_founders_fail_their_test() {
    fails_with(spindle_core::mutation::Mutation::GoneFound, a_process_that_has_ended_creates_no_group_with_others);
}

/// At most one seed of 10,000 shows the mutation.
#[cfg(mutation)]
#[test]
#[ignore = "wants a process of its own: cargo xtask mutations"]
fn mutations_of_admission_fail_their_test() {
    fails_with(
        spindle_core::mutation::Mutation::FarJoinersVote,
        a_member_alone_goes_on_when_it_lets_a_process_in_that_it_does_not_reach,
    );
}

/// Regression: the end of the connection that reports a death raised a suspicion at once, although
/// that connection breaks with all others if a network resets them.
#[test]
fn connections_that_break_and_can_be_made_again_change_no_view() {
    for delay in [50_000, 5 * MS, 100 * MS] {
        let pairs = [(0, 1), (0, 2), (1, 2)];
        let pause = (500 * MS).max(10 * delay);
        let resets = (0..40).flat_map(|round| {
            pairs.iter().map(move |(a, b)| (2 * S + round * pause, HostsFault::Break { a: *a, b: *b, half: false }))
        });
        let scene = HostsScene {
            jitter_ns: delay / 2,
            suspect_after_ns: S.max(10 * delay),
            send_every_ns: 50 * MS,
            faults: resets.collect(),
            calm_ns: 2 * S + 45 * pause,
            ..scene((0..3).map(|host| place(host, 0)).collect(), delay)
        };
        let outcome = play(&scene);
        assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
        assert!(outcome.counts.breaks >= 120, "{outcome:?}");
        assert_eq!((outcome.counts.views, outcome.counts.evictions), (0, 0), "with a delay of {} us", delay / 1000);
    }
}

/// An application takes long for each message. Its ring holds so many messages that the others
/// would not wait for all of them when a view ends. A process joins meanwhile, and is killed.
#[test]
fn a_slow_application_costs_its_process_no_place_when_the_view_changes() {
    for (is_afar, hosts) in [(false, 1), (true, 1), (true, 3)] {
        for epochs in [false, true] {
            let places = (0..4)
                .map(|at| ProcessPlace { is_seed: is_afar && at < 3, ..place(at % hosts, u64::from(at / 3) * 4 * S) });
            let mut subgroups = subgroups::plain();
            subgroups.iter_mut().for_each(|spec| spec.window = 128);
            let scene = HostsScene {
                is_afar,
                slow: Some(Slow { place: 1, each_ns: 15 * MS }),
                send_every_ns: 10 * MS,
                faults: vec![(14 * S, HostsFault::Kill { place: 3, down_ns: None, renamed: false })],
                calm_ns: 25 * S,
                subgroups,
                epochs,
                ..scene(places.collect(), MS)
            };
            let outcome = play(&scene);
            assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
            let Counts { evictions, views, .. } = outcome.counts;
            assert_eq!((evictions, views), (0, 2), "{hosts} hosts, {epochs}: {outcome:?}");
        }
    }
}

/// Regression: the members that had continued without it were other processes by then, at addresses
/// that it did not know.
#[test]
fn a_member_that_was_cut_off_is_told_of_a_view_by_members_that_it_does_not_know() {
    let places = vec![place(0, 0), place(1, 0), ProcessPlace { is_seed: false, ..place(0, 0) }];
    let cuts = [(1, 2), (2, 1)].map(|(from, to)| (3 * S, HostsFault::Cut { from, to, ns: 17 * S }));
    let kills = [(6 * S, 2, Some(300 * MS)), (12 * S, 0, None)];
    let kills = kills.map(|(at, place, down_ns)| (at, HostsFault::Kill { place, down_ns, renamed: false }));
    let scene = HostsScene { faults: [cuts, kills].concat(), calm_ns: 20 * S, ..scene(places, MS) };
    let outcome = play(&scene);
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    assert!(outcome.united, "{outcome:?}");
}

/// All members are paused at once and resume one after the other, each later than the suspicion
/// time. They run on one host, or on one host each. The group continues as soon as a majority
/// exists. It evicts the members that are still paused, and no other.
#[test]
fn members_that_go_on_one_after_the_other_keep_a_majority() {
    for (members, hosts) in [(3, 1), (3, 3), (5, 1), (5, 5)] {
        for pause in [900 * MS, 1500 * MS, 4 * S] {
            let stops = (0..members).map(|at| {
                let ns = 2 * S + u64::from(at) * pause;
                (3 * S, HostsFault::Pause { place: at, ns })
            });
            let places = (0..members).map(|at| place(at % hosts, 0)).collect();
            let calm_ns = 5 * S + u64::from(members) * pause;
            let scene = HostsScene { members, faults: stops.collect(), calm_ns, ..scene(places, MS) };
            let outcome = play(&scene);
            assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
            let minority = u64::from(members - 1) / 2;
            assert_eq!(outcome.counts.evictions, minority, "{members} on {hosts} hosts, {pause} ns apart: {outcome:?}");
            assert!(outcome.united, "{outcome:?}");
        }
    }
}

/// One of two founders on two hosts wants to leave before its first view has begun there. The other
/// founder is no majority and continues all the same, because the leaver reports that it has begun
/// none of the group's views.
#[test]
fn a_founder_that_leaves_before_its_first_view_blocks_no_group() {
    for at in (0..200).map(|at| at * MS / 2) {
        let places = (0..2).map(|host| place(host, 0)).collect();
        let fault = (at, HostsFault::Leave { place: 1, down_ns: None });
        let outcome = play(&HostsScene { members: 2, faults: vec![fault], ..scene(places, 5 * MS) });
        assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
        assert!(outcome.united && outcome.counts.bootstraps == 1, "after {at} ns: {outcome:?}");
    }
}

/// A founder of a host has no room for descriptors, so no other process gets its memory. All others
/// wait for it. Then it is killed, and so are all but one of the others: that one knows of all ends
/// before its first view begins.
#[test]
fn a_process_that_died_before_the_first_view_of_another_blocks_no_group() {
    let on_the_host = |start_ns| ProcessPlace { is_seed: false, ..place(0, start_ns) };
    for seed in 1..20 {
        let places: Vec<_> = [0, 2 * MS, 3 * MS, 40 * MS].map(on_the_host).to_vec();
        let mut faults = vec![(9 * MS, HostsFault::Full { place: 1, ns: 3 * S })];
        for place in [0, 1, 3] {
            faults.push((S, HostsFault::Kill { place, down_ns: None, renamed: false }));
        }
        let suspect_after_ns = 5 * S;
        let scene = scene(places, MS);
        let outcome = play(&HostsScene { seed, is_afar: false, members: 4, suspect_after_ns, faults, ..scene });
        assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
    }
}

/// Three of five members on hosts of their own end for good. The other two continue if an operator
/// gives the three up, and admit a process.
#[test]
fn a_group_that_has_lost_its_majority_continues_on_an_order() {
    let kills = [0, 3, 4].map(|place| (3 * S, HostsFault::Kill { place, down_ns: None, renamed: false }));
    let mut places: Vec<_> = (0..5).map(|host| place(host, 0)).collect();
    places.push(ProcessPlace { start_ns: 4 * S, ..place(5, 0) });
    let lost = HostsScene { members: 5, faults: kills.to_vec(), ..scene(places, MS) };
    let outcome = play(&lost);
    assert!(outcome.violations.is_empty() && outcome.lost, "{outcome:?}");
    let outcome = play(&HostsScene { recovers_ns: Some(2 * S), ..lost });
    assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
    assert_eq!((outcome.counts.recoveries, outcome.counts.joins, outcome.counts.evictions), (1, 1, 0));
}

/// Two of five members are cut off from the other three, which continue. An operator makes the two
/// give the three up. When the cut heals, all join the group of the two.
#[test]
fn members_that_were_given_up_by_mistake_come_back() {
    let cuts = [(0b11, 0b11100), (0b11100, 0b11)].map(|(from, to)| (3 * S, HostsFault::Cut { from, to, ns: 20 * S }));
    let places = (0..5).map(|host| place(host, 0)).collect();
    let scene = HostsScene {
        members: 5,
        faults: cuts.to_vec(),
        calm_ns: 24 * S,
        recovers_ns: Some(5 * S),
        errs: true,
        ..scene(places, MS)
    };
    let outcome = play(&scene);
    assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
    assert_eq!((outcome.counts.mistakes, outcome.counts.bootstraps), (1, 1));
}

/// Processes of 61 hosts join a group of three at once, and vote in a view after the one that
/// admits them.
#[test]
fn processes_of_64_hosts_join_in_few_views() {
    let founders = (0..3).map(|host| place(host, 0));
    let joiners = (3..64).map(|host| place(host, 3 * S + u64::from(host) * MS));
    let scene = HostsScene { send_every_ns: 500 * MS, ..scene(founders.chain(joiners).collect(), MS) };
    let outcome = play(&scene);
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    assert_eq!((outcome.counts.joins, outcome.counts.views), (61, 2));
}

/// Each second message is an object. Three hosts, on racks of their own, have two members each. One
/// member is killed while objects are in flight.
#[test]
fn large_messages_are_sent_again_to_the_members_that_are_left() {
    let large = LargeMessages { one_in: 2, longest: 640, block_bytes: 64, ahead: 2, direct_below: 0, racks: 2 };
    let places: Vec<_> = (0..6).map(|number| ProcessPlace { is_seed: number < 3, ..place(number % 3, 0) }).collect();
    let mut subgroups = subgroups::plain();
    subgroups.iter_mut().for_each(|spec| spec.message_bytes_max = 24);
    let kill = HostsFault::Kill { place: 1, down_ns: None, renamed: false };
    let calm = HostsScene { members: 6, subgroups, large: Some(large), ..scene(places, 10 * MS) };
    let outcome = play(&calm);
    assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
    let Counts { large_sent, large, large_again, lent, blocks, groups_closed, .. } = outcome.counts;
    assert!(large > 5 * large_sent && blocks > large_sent && lent > 2 * large_sent, "{outcome:?}");
    assert_eq!((large_again, groups_closed), (0, 0));
    let outcome = play(&HostsScene { faults: vec![(3 * S, kill)], ..calm });
    assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
    assert!(outcome.counts.large_again > 0 && outcome.counts.groups_closed > 0, "{outcome:?}");
}

/// A process joins with the state, and two observe, on hosts of their own. One of the three members
/// leaves at last, so that the others are asked.
#[test]
fn processes_that_follow_fetch_large_messages_and_miss_none() {
    let large = LargeMessages { one_in: 2, longest: 640, block_bytes: 64, ahead: 2, direct_below: 65, racks: 0 };
    let mut places: Vec<_> = (0..3).map(|host| place(host, 0)).collect();
    places.push(ProcessPlace { start_ns: S, ..place(0, 0) });
    places.extend([0, 3].map(|host| ProcessPlace { is_seed: false, is_observer: true, ..place(host, S) }));
    places[3].is_seed = false;
    let mut subgroups = subgroups::plain();
    subgroups.iter_mut().for_each(|spec| (spec.message_bytes_max, spec.window) = (24, 8));
    let leave = (3 * S, HostsFault::Leave { place: 2, down_ns: None });
    let scene =
        HostsScene { learns: true, subgroups, large: Some(large), faults: vec![leave], ..scene(places, 5 * MS) };
    let outcome = play(&scene);
    assert!(outcome.violations.is_empty() && outcome.united, "{outcome:?}");
    let Counts { fetched, objects_missed, learned, gaps, leaves, .. } = outcome.counts;
    assert!(fetched > 40, "{outcome:?}");
    assert_eq!((objects_missed, learned, gaps, leaves), (0, 1, 0, 1));
}

#[test]
fn a_seed_means_the_same_run_for_ever() {
    let hashes: Vec<u64> = (0..3).map(|seed| play(&HostsScene::from_seed(seed)).trace_hash).collect();
    let again: Vec<u64> = (0..3).map(|seed| play(&HostsScene::from_seed(seed)).trace_hash).collect();
    assert_eq!(hashes, again);
    assert_eq!(hashes, PINNED);
}

const PINNED: [u64; 3] = [13131267339354659112, 5875831140380026306, 592928265674681323];

#[test]
fn broken_drivers_are_noticed() {
    let cases = [
        (Broken::LockIgnored, "one incarnation"),
        (Broken::OrderSwapped, "total order"),
        (Broken::ViewForged, "one view sequence"),
        (Broken::SentTwice, "no duplicate, no gap, FIFO"),
        (Broken::VoidsForgotten, "no duplicate, no gap, FIFO"),
        (Broken::KeptForgotten, "no duplicate, no gap, FIFO"),
        (Broken::MessageSkipped, "no duplicate, no gap, FIFO"),
        (Broken::LastForgotten, "atomicity"),
        (Broken::ProposedChangesLost, "liveness"),
        (Broken::RedialForgotten, "bounded"),
        (Broken::AsksAlways, "bounded"),
        (Broken::GateIgnored, "no eviction without a cause"),
        (Broken::MatesIgnored, "stability truth"),
        (Broken::ObjectsForgotten, "no duplicate, no gap, FIFO"),
        (Broken::ShelfNotCleared, "no duplicate, no gap, FIFO"),
        (Broken::KeepsTooShort, "no object is missed without a cause"),
        (Broken::TailForgotten, "state at the first view"),
        (Broken::StateMisplaced, "state at the first view"),
        (Broken::GapUntold, "total order"),
        (Broken::ToldTwice, "total order"),
    ];
    for (broken, name) in cases {
        let found = noticed(broken, name, 200);
        println!("{broken:?}: {name}, by seed {found:?}");
        assert!(found.is_some(), "{broken:?} is not noticed");
    }
}
