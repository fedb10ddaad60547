//! Every planted bug is found: `RUSTFLAGS='--cfg planted' cargo test --release -p spindle-sim --test planted`.
#![cfg(planted)]
use spindle_core::planted::{Bug, activate};
use spindle_sim::planted::hunt;
use spindle_sim::{Faults, Happening, MemberPlan, Options, Outcome, Plan, Visibility, What, campaign, run};
use std::sync::{Mutex, MutexGuard, PoisonError};

const MEDIAN_MAX: u64 = 200;
const WORST_MAX: u64 = 2_000;

/// They need several things to happen in one order within a few microseconds, which chance hardly ever brings about. The search
/// through all orders finds them: `crates/core/tests/scope/planted.rs`.
const SEARCHED: [Bug; 4] = [Bug::NoFence, Bug::NeverAdopts, Bug::OneSlot, Bug::ReadsSuspected];

/// It makes others wait for a member that hangs, and nothing else: found below.
const SCENE: Bug = Bug::SuspicionKept;

/// There is one active bug in a process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_planted_bug_is_found() {
    let _alone = alone();
    let clean = campaign(0..200, 2, &Options::default(), |_| true);
    assert_eq!(clean.failures, [], "no bug is active");
    let hunted: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| *bug != SCENE && !SEARCHED.contains(bug)).collect();
    let mut seeds = vec![];
    let mut missed = vec![];
    for &bug in &hunted {
        match hunt(bug, WORST_MAX) {
            Some(found) => {
                println!("{bug:?}: seed {}, {}", found.seed, found.violation);
                seeds.push(found.seed + 1);
            }
            None => missed.push(bug),
        }
    }
    seeds.sort_unstable();
    let median = seeds[seeds.len() / 2];
    println!("{} of {} found, median {median} seeds, worst {:?}", seeds.len(), hunted.len(), seeds.last());
    assert_eq!(missed, [], "not found in {WORST_MAX} seeds");
    assert!(median <= MEDIAN_MAX, "median {median}");
}

/// The leader hangs and one other is told so. The two that are left go on at once, and die before the leader moves again, which
/// learns that it is out. A third that does not take over the suspicion keeps the second waiting at the fence.
#[test]
fn a_suspicion_that_is_kept_is_found() {
    let _alone = alone();
    for seed in 0..20 {
        let went_on = |outcome: &Outcome| outcome.counts.installs >= 2 && outcome.counts.evictions == 1;
        let plan = hung_leader(seed);
        let outcome = run(&plan);
        assert!(went_on(&outcome) && outcome.violations.is_empty(), "{outcome:?}");
        activate(Some(SCENE));
        let outcome = run(&plan);
        activate(None);
        assert!(!went_on(&outcome), "{outcome:?}");
    }
}

/// Three members that send to each other. Silence means nothing.
fn hung_leader(seed: u64) -> Plan {
    let faults = Faults { membership: true, ..Faults::NONE };
    let (members_min, members_max, visibility) = (3, 3, Some(Visibility::Shared));
    let options =
        Options { members_min, members_max, visibility, faults, always_membership: true, ..Options::default() };
    let plan = Plan::from_seed(seed, &options);
    let die = [1, 2].map(|process| Happening::at(3_000_000, What::Crash { process, actions: 0 }));
    let happenings = vec![
        Happening::at(10_000, What::Hang { process: 0, ns: 9_000_000 }),
        Happening::at(20_000, What::Suspect { by: 1, whom: 0 }),
        die[0],
        die[1],
    ];
    let members = plan.members.iter().map(|member| MemberPlan { pauses: vec![], ..member.clone() });
    Plan { members: members.collect(), happenings, suspect_after_ns: None, ..plan }
}
