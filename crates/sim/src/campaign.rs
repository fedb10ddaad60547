//! Runs many seeds on a few threads.
use crate::checkers::Violation;
use crate::counts::Counts;
use crate::options::{Options, Setting};
use crate::plan::Plan;
use crate::trace::RunTrace;
use crate::world::{Outcome, World};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The result of a campaign.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Seeds that ran.
    pub seeds: u64,
    /// The sums of the counts of all seeds.
    pub counts: Counts,
    /// Seeds at whose end no group had a quorum of running members in contact.
    pub blocked: u64,
    /// The seeds that failed, ascending, each with its first violation.
    pub failures: Vec<(u64, Violation)>,
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.counts += outcome.counts;
        self.blocked += u64::from(outcome.blocked);
        self.failures.extend(outcome.violations.into_iter().map(|violation| (outcome.seed, violation)));
    }
}

/// Runs a plan to its end, or to the first violation. A panic counts as a violation.
pub fn run(plan: &Plan) -> Outcome {
    play(plan, None)
}

/// Runs a plan and writes a log: the plan, its events, and after a violation the command that
/// replays it.
pub fn explain(plan: &Plan) -> (Outcome, String) {
    let mut trace = RunTrace::default();
    let outcome = play(plan, Some(&mut trace));
    let text = trace.render(&replay_line(plan.seed, plan.setting), &outcome.violations);
    (outcome, format!("{plan}{text}"))
}

/// Returns the command that prints the event log of a seed of this setting.
pub fn replay_line(seed: u64, setting: Setting) -> String {
    let which = match setting {
        Setting::Mixed => "",
        Setting::Views => "--views ",
        Setting::Large => "--large ",
    };
    format!("spindle sim {which}--seed {seed}")
}

fn play(plan: &Plan, trace: Option<&mut RunTrace>) -> Outcome {
    // After a panic only the trace of the world is used; it is complete after every line.
    let played = catch_unwind(AssertUnwindSafe(|| World::new(plan, trace).run()));
    played.unwrap_or_else(|panic| Outcome {
        seed: plan.seed,
        violations: vec![Violation::panicked(&*panic)],
        ..Outcome::default()
    })
}

/// Runs all `seeds` on so many `threads`. After each seed it calls `progress` with the summary so
/// far; the campaign stops if `progress` returns false.
pub fn campaign(
    seeds: Range<u64>,
    threads: u32,
    options: &Options,
    progress: impl FnMut(&Summary) -> bool + Send,
) -> Summary {
    let mut summary = many(seeds, threads, |seed| run(&Plan::from_seed(seed, options)), Summary::add, progress);
    summary.failures.sort_by_key(|(seed, _)| *seed);
    summary
}

/// Runs `play` with all `seeds` on so many `threads`, and adds up the outcomes. It calls `progress`
/// with the sum after each seed, and stops if `progress` returns false.
pub(crate) fn many<S: Default + Send, O>(
    seeds: Range<u64>,
    threads: u32,
    play: impl Fn(u64) -> O + Sync,
    add: impl Fn(&mut S, O) + Sync,
    progress: impl FnMut(&S) -> bool + Send,
) -> S {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let shared = Mutex::new((S::default(), progress));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = play(seed);
                    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    let (sum, progress) = &mut *shared;
                    add(sum, outcome);
                    if !progress(sum) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    shared.into_inner().unwrap_or_else(PoisonError::into_inner).0
}
