//! The bootstrap of a group between hosts: it runs the core's own
//! [`Bootstrap`](spindle_core::control::Bootstrap)s in whole processes with disks, in virtual time,
//! on a network that delays and loses messages and cuts links.
//!
//! A [`BootstrapScene`] lists the hosts and the faults. [`play`] plays a scene and checks it at every step.
//! [`BootstrapScene::from_seed`] draws a scene at random, and [`campaign`] plays many.
//!
//! The group itself is a model: it admits processes and evicts members while a majority of its view
//! is up and connected. Its views change at the same moment everywhere. Views have a simulator of
//! their own.
mod ledger;
mod network;
mod plan;
mod world;

pub use plan::{BootstrapFault, BootstrapScene};
pub use world::BootstrapOutcome;

use crate::Violation;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The sums over many seeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BootstrapSummary {
    /// Seeds that ran.
    pub seeds: u64,
    /// Groups that were created.
    pub bootstraps: u64,
    /// Processes that a group admitted.
    pub joins: u64,
    /// Members that a group evicted.
    pub evictions: u64,
    /// Processes that were restarted, after a crash or an eviction.
    pub restarts: u64,
    /// Faults.
    pub faults: u64,
    /// Seeds at whose end all processes were in one group.
    pub united: u64,
    /// Seeds in which a group was lost for good, and every process that waited for it reported
    /// that.
    pub lost: u64,
    /// Groups that an operator's command created after such a loss.
    pub words: u64,
    /// Seeds in which two groups existed, because all seed hosts were restarted without a disk
    /// while other members lived. The two groups reported that.
    pub forgotten: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Events that were processed.
    pub events: u64,
    /// Virtual time of all seeds together, in ns.
    pub virtual_ns: u64,
    /// The seeds that failed, ascending, each with its first violation.
    pub failures: Vec<(u64, Violation)>,
}

/// Plays a scene to its end, or to the first violation. A panic counts as a violation.
pub fn play(scene: &BootstrapScene) -> BootstrapOutcome {
    tell(scene, None)
}

/// Plays a scene and writes a log of its events. After a violation the log ends with the command
/// that replays the scene.
pub fn explain(scene: &BootstrapScene) -> (BootstrapOutcome, String) {
    let mut story = format!("{scene}");
    let outcome = tell(scene, Some(&mut story));
    for violation in &outcome.violations {
        story += &format!("{violation}\nreplay: {}\n", replay_line(scene.seed));
    }
    (outcome, story)
}

/// Returns the command that prints the event log of a seed.
pub fn replay_line(seed: u64) -> String {
    format!("spindle sim --bootstrap --seed {seed}")
}

fn tell(scene: &BootstrapScene, story: Option<&mut String>) -> BootstrapOutcome {
    let played = catch_unwind(AssertUnwindSafe(|| world::BootstrapWorld::new(scene, story).run()));
    played.unwrap_or_else(|panic| BootstrapOutcome {
        violations: vec![Violation::panicked(&*panic)],
        ..BootstrapOutcome::default()
    })
}

/// Plays the scenes of all `seeds`. After each scene it calls `progress` with the summary so far;
/// the campaign stops if `progress` returns false.
pub fn campaign(seeds: Range<u64>, mut progress: impl FnMut(&BootstrapSummary) -> bool) -> BootstrapSummary {
    let mut summary = BootstrapSummary::default();
    for seed in seeds {
        let scene = BootstrapScene::from_seed(seed);
        let outcome = play(&scene);
        summary.seeds += 1;
        summary.bootstraps += outcome.bootstraps;
        summary.joins += outcome.joins;
        summary.evictions += outcome.evictions;
        summary.restarts += outcome.restarts;
        summary.faults += scene.faults.len() as u64;
        summary.united += u64::from(outcome.united);
        summary.lost += u64::from(outcome.lost);
        summary.words += u64::from(outcome.lost && outcome.united);
        summary.forgotten += u64::from(outcome.forgotten);
        summary.messages += outcome.messages;
        summary.events += outcome.events;
        summary.virtual_ns += outcome.virtual_ns;
        summary.failures.extend(outcome.violations.into_iter().map(|violation| (seed, violation)));
        if !progress(&summary) {
            break;
        }
    }
    summary
}
