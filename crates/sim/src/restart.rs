//! Total restarts: it runs the core's own [`Restart`](spindle_core::control::Restart)s in whole
//! processes with disks and logs, in virtual time, on one host or between hosts.
//!
//! A [`RestartScene`] lists the seats of processes and the faults. [`play`] plays a scene and checks
//! it at every step. [`RestartScene::from_seed`] draws a scene at random, and [`campaign`] plays
//! many.
//!
//! The group itself is a model that does what a restart relies on: INV-RECORD, the quorum of a view
//! change, delivery in a view that all its members have begun, logs in the order of delivery, and
//! logs that catch up when their member joins. A member with a new disk has a new id. Views, logs
//! and their catching up have simulators and tests of their own.
mod plan;
mod world;

pub use plan::{RestartBroken, RestartFault, RestartScene};
pub use world::{RestartCounts, RestartOutcome};

use crate::Violation;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The sums over many seeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestartSummary {
    /// Seeds that ran.
    pub seeds: u64,
    /// The counted events.
    pub counts: RestartCounts,
    /// Faults.
    pub faults: u64,
    /// Seeds at whose end all processes were in one group.
    pub united: u64,
    /// Virtual time of all seeds together, in ns.
    pub virtual_ns: u64,
    /// The seeds that failed, ascending, each with its first violation.
    pub failures: Vec<(u64, Violation)>,
}

/// Plays a scene to its end, or to the first violation. A panic counts as a violation.
pub fn play(scene: &RestartScene) -> RestartOutcome {
    tell(scene, None)
}

/// Plays a scene and writes a log of its events. After a violation the log ends with the command
/// that replays the scene.
pub fn explain(scene: &RestartScene) -> (RestartOutcome, String) {
    let mut story = format!("{scene}");
    let outcome = tell(scene, Some(&mut story));
    for violation in &outcome.violations {
        story += &format!("{violation}\nreplay: {}\n", replay_line(scene.seed));
    }
    (outcome, story)
}

/// Returns the command that prints the event log of a seed.
pub fn replay_line(seed: u64) -> String {
    format!("spindle sim --restart --seed {seed}")
}

fn tell(scene: &RestartScene, story: Option<&mut String>) -> RestartOutcome {
    let played = catch_unwind(AssertUnwindSafe(|| world::RestartWorld::new(scene, story).run()));
    played.unwrap_or_else(|panic| RestartOutcome {
        violations: vec![Violation::panicked(&*panic)],
        ..RestartOutcome::default()
    })
}

/// Plays the scenes of all `seeds`. After each scene it calls `progress` with the summary so far;
/// the campaign stops if `progress` returns false.
pub fn campaign(seeds: Range<u64>, progress: impl FnMut(&RestartSummary) -> bool) -> RestartSummary {
    campaign_with(RestartBroken::Not, seeds, progress)
}

/// Plays as [`campaign`] does, with drivers that leave a duty undone.
pub fn campaign_with(
    broken: RestartBroken,
    seeds: Range<u64>,
    mut progress: impl FnMut(&RestartSummary) -> bool,
) -> RestartSummary {
    let mut summary = RestartSummary::default();
    for seed in seeds {
        let scene = RestartScene { broken, ..RestartScene::from_seed(seed) };
        let outcome = play(&scene);
        summary.seeds += 1;
        summary.counts.add(&outcome.counts);
        summary.faults += scene.faults.len() as u64;
        summary.united += u64::from(outcome.united);
        summary.virtual_ns += outcome.virtual_ns;
        summary.failures.extend(outcome.violations.into_iter().map(|violation| (seed, violation)));
        if !progress(&summary) {
            break;
        }
    }
    summary
}
