//! The block multicast in a model of a network: the core's own
//! [`Session`](spindle_core::rdmc::Session)s run in virtual time, on hosts with one NIC and one
//! processor each.
//!
//! A [`BulkScene`] lists the hosts, the groups and the faults. [`play`] plays a scene and checks every
//! block and every upcall against a ledger. [`BulkScene::from_seed`] draws a scene at random, and
//! [`campaign`] plays many. [`BulkBench`] builds scenes whose virtual time is a result: the time to
//! send an object, by the costs of [`NetworkModel`].
//!
//! The model is simple on purpose. A NIC sends one block at a time and receives one block at a
//! time, and does both at once. Each block takes as long as its bytes need. A slow link delays
//! everything that its sender has queued behind the block. A processor does one thing at a time.
//! Switches never drop a block. They delay blocks only between racks, if the racks have a bandwidth
//! of their own. The model has no caches, buses or memory.
mod bench;
mod ledger;
mod network;
mod plan;
mod world;

pub use bench::{BulkBench, BulkTiming, SlowLinkCost};
pub use network::{NetworkModel, SlowLink, Uplinks};
pub use plan::{BulkScene, GroupPlan, HostDeath};
pub use world::BulkOutcome;

use crate::Violation;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The sums over many seeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BulkSummary {
    /// Seeds that ran.
    pub seeds: u64,
    /// Objects that roots began to send.
    pub objects: u64,
    /// Blocks that landed and were checked.
    pub blocks: u64,
    /// Objects that receivers completed, counted once per receiver.
    pub completions: u64,
    /// Objects that were reported as failed, counted once per member.
    pub failures_told: u64,
    /// Hosts that died.
    pub deaths: u64,
    /// Slow links, slow hosts, and messages with an extra delay.
    pub faults: u64,
    /// Events that were processed.
    pub events: u64,
    /// Virtual time of all seeds together, in ns.
    pub virtual_ns: u64,
    /// The seeds that failed, ascending, each with its first violation.
    pub failures: Vec<(u64, Violation)>,
}

/// Plays a scene to its end, or to the first violation. A panic counts as a violation.
pub fn play(scene: &BulkScene) -> BulkOutcome {
    tell(scene, None)
}

/// Plays a scene and writes a log of its events. After a violation the log ends with the command
/// that replays the scene.
pub fn explain(scene: &BulkScene) -> (BulkOutcome, String) {
    let mut story = format!("{scene}");
    let outcome = tell(scene, Some(&mut story));
    for violation in &outcome.violations {
        story += &format!("{violation}\nreplay: {}\n", replay_line(scene.seed));
    }
    (outcome, story)
}

/// Returns the command that prints the event log of a seed.
pub fn replay_line(seed: u64) -> String {
    format!("spindle sim --bulk --seed {seed}")
}

fn tell(scene: &BulkScene, story: Option<&mut String>) -> BulkOutcome {
    let played = catch_unwind(AssertUnwindSafe(|| world::BulkWorld::new(scene, story).run()));
    played.unwrap_or_else(|panic| BulkOutcome {
        violations: vec![Violation::panicked(&*panic)],
        ..BulkOutcome::default()
    })
}

/// Plays the scenes of all `seeds`. After each scene it calls `progress` with the summary so far;
/// the campaign stops if `progress` returns false.
pub fn campaign(seeds: Range<u64>, mut progress: impl FnMut(&BulkSummary) -> bool) -> BulkSummary {
    let mut summary = BulkSummary::default();
    for seed in seeds {
        let scene = BulkScene::from_seed(seed);
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
