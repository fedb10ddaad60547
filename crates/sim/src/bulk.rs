//! The block multicast in a model of a network: the core's own [`Session`](spindle_core::bulk::Session)s, on hosts with a
//! NIC and a processor each, in virtual time.
//!
//! A [`Scene`] says what there is and what goes wrong; [`play`] plays it and checks every block and every upcall against a
//! ledger. [`Scene::from_seed`] draws one at random, and [`campaign`] plays many. [`Bench`] builds scenes whose time means something:
//! how long an object takes, by the costs of [`Network`].
//!
//! The model is simple on purpose. A NIC sends one block at a time and receives one at a time, both at once, each for as long as its
//! bytes take; a slow link holds up all that its sender has behind it. A processor does one thing at a time. Switches never drop
//! anything, and hold nothing up but between racks, if those have a bandwidth of their own. Nothing is known of caches,
//! buses or memory.
mod bench;
mod ledger;
mod network;
mod plan;
mod world;

pub use bench::{Bench, SlowLinkCost, Timing};
pub use network::{Network, SlowLink, Uplinks};
pub use plan::{Death, GroupPlan, Scene};
pub use world::Outcome;

use crate::Violation;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What many seeds came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Seeds that ran.
    pub seeds: u64,
    /// Objects that roots began to send.
    pub objects: u64,
    /// Blocks that landed and were checked.
    pub blocks: u64,
    /// Objects that receivers completed, each counted.
    pub completions: u64,
    /// Objects of which members were told that they failed, each counted.
    pub failures_told: u64,
    /// Hosts that died.
    pub deaths: u64,
    /// Slow links, slow hosts and messages out of the ordinary delay.
    pub faults: u64,
    /// Events.
    pub events: u64,
    /// Virtual time of all seeds together, in ns.
    pub virtual_ns: u64,
    /// The seeds that failed, ascending, each with its first violation.
    pub failures: Vec<(u64, Violation)>,
}

/// Plays a scene to its end, or to the first violation. A panic is one too.
pub fn play(scene: &Scene) -> Outcome {
    tell(scene, None)
}

/// Plays a scene and tells what happened, and behind a violation the line that replays it.
pub fn explain(scene: &Scene) -> (Outcome, String) {
    let mut story = format!("{scene}");
    let outcome = tell(scene, Some(&mut story));
    for violation in &outcome.violations {
        story += &format!("{violation}\nreplay: {}\n", replay_line(scene.seed));
    }
    (outcome, story)
}

/// The command that tells the story of a seed.
pub fn replay_line(seed: u64) -> String {
    format!("spindle sim --bulk --seed {seed}")
}

fn tell(scene: &Scene, story: Option<&mut String>) -> Outcome {
    let played = catch_unwind(AssertUnwindSafe(|| world::World::new(scene, story).run()));
    played.unwrap_or_else(|panic| Outcome { violations: vec![Violation::panicked(&*panic)], ..Outcome::default() })
}

/// Plays the scenes of all `seeds`. After each, `progress` is told the summary so far; it may stop by answering false.
pub fn campaign(seeds: Range<u64>, mut progress: impl FnMut(&Summary) -> bool) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        let scene = Scene::from_seed(seed);
        let outcome = play(&scene);
        summary.seeds += 1;
        summary.objects += outcome.objects;
        summary.blocks += outcome.blocks;
        summary.completions += outcome.completions;
        summary.failures_told += outcome.failures_told;
        summary.deaths += outcome.deaths;
        summary.faults += scene.faults() + outcome.late;
        summary.events += outcome.events;
        summary.virtual_ns += outcome.virtual_ns;
        summary.failures.extend(outcome.violations.into_iter().map(|violation| (seed, violation)));
        if !progress(&summary) {
            break;
        }
    }
    summary
}
