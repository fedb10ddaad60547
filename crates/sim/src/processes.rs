//! Whole processes from start to end, through bootstrap, joining and views. They run the control
//! plane and the engine of the core, on a simulated network.
//!
//! A [`HostsScene`] lists the hosts, the places and the faults. [`play`] plays a scene and checks it at
//! every step. [`HostsScene::from_seed`] draws a scene at random, and [`campaign`] plays many.
//!
//! The simulator has the duties of a driver (`driver.rs`, `entry.rs`, `views.rs`, `member.rs`,
//! `streams.rs`, and for large messages `large.rs`, `keeping.rs`). Control messages travel as
//! bytes, rows through memory or over streams that break, and the kernel reports deaths. The
//! simulator decides nothing about the group.
mod blocks;
mod counts;
mod disks;
mod driver;
mod entry;
mod host;
mod keeping;
mod large;
mod learning;
mod ledger;
mod logged_order;
mod logs;
mod member;
mod net;
mod network;
mod objects;
mod plan;
mod process;
mod proposed_changes;
mod recovery;
mod rest;
mod rows;
mod shards;
pub mod story;
mod streams;
mod subgroups;
#[cfg(test)]
mod tests;
mod views;
mod waiting;
mod watching;
mod world;

pub use counts::Counts;
pub use disks::LogDisks;
pub use plan::{Differing, HostsFault, HostsScene, LargeMessages, ProcessPlace, Slow};
pub use proposed_changes::ProposedChange;
#[cfg(mutation)]
pub use world::Broken;
pub use world::ProcessesOutcome;

use crate::Violation;
use crate::campaign::many;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(not(mutation))]
use world::Broken;

/// The sums over many seeds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessesSummary {
    /// Seeds that ran.
    pub seeds: u64,
    /// The counts of events.
    pub counts: Counts,
    /// Faults.
    pub faults: u64,
    /// Seeds at whose end all processes were in one view.
    pub united: u64,
    /// Seeds in which a group lost its quorum for good.
    pub lost: u64,
    /// The seeds that failed, ascending, each with its first violation.
    pub failures: Vec<(u64, Violation)>,
}

impl ProcessesSummary {
    fn add(&mut self, scene: &HostsScene, outcome: ProcessesOutcome) {
        self.seeds += 1;
        self.counts.add(&outcome.counts);
        self.faults += scene.faults.len() as u64;
        self.united += u64::from(outcome.united);
        self.lost += u64::from(outcome.lost);
        self.failures.extend(outcome.violations.into_iter().map(|violation| (scene.seed, violation)));
    }
}

/// Plays a scene to its end, or to the first violation. A panic counts as a violation.
pub fn play(scene: &HostsScene) -> ProcessesOutcome {
    tell(scene, Broken::Not, None)
}

/// Plays a scene and writes a log of its events. After a violation the log ends with the command
/// that replays the scene.
pub fn explain(scene: &HostsScene) -> (ProcessesOutcome, String) {
    let mut story = format!("{scene}");
    let outcome = tell(scene, Broken::Not, Some(&mut story));
    for violation in &outcome.violations {
        story += &format!("{violation}\nreplay: {}\n", replay_line(scene.seed));
    }
    (outcome, story)
}

/// Returns the command that prints the event log of a seed.
pub fn replay_line(seed: u64) -> String {
    format!("spindle sim --processes --seed {seed}")
}

fn tell(scene: &HostsScene, broken: Broken, story: Option<&mut String>) -> ProcessesOutcome {
    let played = catch_unwind(AssertUnwindSafe(|| world::HostsWorld::new(scene, broken, story).run()));
    played.unwrap_or_else(|panic| ProcessesOutcome {
        violations: vec![Violation::panicked(&*panic)],
        ..ProcessesOutcome::default()
    })
}

/// Plays the scenes of all `seeds` on so many `threads`. After each scene it calls `progress` with
/// the summary so far; the campaign stops if `progress` returns false.
pub fn campaign(
    seeds: Range<u64>,
    threads: u32,
    progress: impl FnMut(&ProcessesSummary) -> bool + Send,
) -> ProcessesSummary {
    campaign_with(Broken::Not, seeds, threads, progress)
}

/// Plays a campaign with drivers that break their duties in this way.
pub(crate) fn campaign_with(
    broken: Broken,
    seeds: Range<u64>,
    threads: u32,
    progress: impl FnMut(&ProcessesSummary) -> bool + Send,
) -> ProcessesSummary {
    let play_seed = |seed| {
        let scene = HostsScene::from_seed(seed);
        let outcome = tell(&scene, broken, None);
        (scene, outcome)
    };
    let add =
        |summary: &mut ProcessesSummary, (scene, outcome): (HostsScene, ProcessesOutcome)| summary.add(&scene, outcome);
    let mut summary = many(seeds, threads, play_seed, add, progress);
    summary.failures.sort_by_key(|(seed, _)| *seed);
    summary
}
