//! The hunt for planted bugs: how many seeds it takes until the checkers notice each. Only in builds with `--cfg planted`.
pub use crate::processes::Broken;
use crate::{Faults, Options, Setting, Summary, Violation, bootstrap, bulk, campaign, processes};
use spindle_core::planted::{Bug, activate};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A planted bug that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The first of the seeds that shows it.
    pub seed: u64,
    /// How it showed.
    pub violation: Violation,
}

/// Bugs of the block multicast, which has a model of its own.
pub const BULK: [Bug; 6] = [
    Bug::CreditIgnored,
    Bug::SendsUnheld,
    Bug::LengthFromBlocks,
    Bug::SlotReusedEarly,
    Bug::StepsAhead,
    Bug::FailureForgotten,
];

/// Bugs of founding between hosts, which has one, too.
pub const BOOTSTRAP: [Bug; 11] = [
    Bug::AnswersBeforeDisk,
    Bug::SilenceIsAnAnswer,
    Bug::AnyMajority,
    Bug::EvictedFound,
    Bug::VotesForgotten,
    Bug::PromisesForgotten,
    Bug::WaitersAreMembers,
    Bug::MembersKeepSilent,
    Bug::MembersUnheard,
    Bug::SilentWhileItWaits,
    Bug::OldAnswersCount,
];

/// Bugs of the control plane, which the simulator of whole processes finds. Some of the others show there, too.
pub const CONTROL: [Bug; 26] = [
    Bug::AdmissionsLost,
    Bug::JoinersUntold,
    Bug::NoncesIgnored,
    Bug::FirstViewNeverOver,
    Bug::EvictionIsProof,
    Bug::ReadmittedAtOnce,
    Bug::NoTimeToBegin,
    Bug::BeginsHastily,
    Bug::RestCutOff,
    Bug::MoveUnshown,
    Bug::CutOffAsksNobody,
    Bug::StrangersPass,
    Bug::GivenUpUntold,
    Bug::RedialsGiveUp,
    Bug::OlderStreamsLost,
    Bug::DecisionsUntold,
    Bug::GoneFound,
    Bug::LateStreamsRefused,
    Bug::FarJoinersVote,
    Bug::ConflictsBelieved,
    Bug::SeedPlacesKept,
    Bug::BlockedUnknown,
    Bug::BlockedUntold,
    Bug::ObserversKept,
    Bug::PlacesGuessed,
    Bug::DeathOfAnother,
];

/// Bugs of other layers that whole processes show, too.
pub const SHOWN: [Bug; 6] = [
    Bug::SuspicionKept,
    Bug::SilenceIsAnAnswer,
    Bug::FifoTwice,
    Bug::WaitingForgotten,
    Bug::ResendForgotten,
    Bug::LeftoversTooLong,
];

/// Looks for a bug of the core, or for what drivers do wrong, with whole processes.
pub fn hunt_in_processes(bug: Option<Bug>, broken: Broken, seeds: Range<u64>) -> Option<Found> {
    static HUNTING: Mutex<()> = Mutex::new(());
    let _one = HUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    activate(bug);
    // A panic is no check.
    let is_checked = |(_, violation): &&(u64, Violation)| violation.number != 0;
    let goes_on = |summary: &processes::Summary| !summary.failures.iter().any(|failure| is_checked(&failure));
    let summary = processes::campaign_with(broken, seeds, 2, goes_on);
    activate(None);
    let found = summary.failures.iter().find(is_checked).cloned();
    found.map(|(seed, violation)| Found { seed, violation })
}

/// Looks for `bug` with the `seeds`, in their order; `None` if none of them shows it. The answer is the same every
/// time. Only one hunt runs at a time, as there is only one bug at a time in a process.
pub fn hunt(bug: Bug, seeds: Range<u64>) -> Option<Found> {
    static HUNTING: Mutex<()> = Mutex::new(());
    let _one = HUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    activate(Some(bug));
    let failures = if BULK.contains(&bug) {
        bulk::campaign(seeds, |summary| summary.failures.is_empty()).failures
    } else if BOOTSTRAP.contains(&bug) {
        bootstrap::campaign(seeds, |summary| summary.failures.is_empty()).failures
    } else {
        let Summary { failures, .. } = campaign(seeds, 2, &options(bug), |summary| summary.failures.is_empty());
        failures
    };
    activate(None);
    // Every seed below the first to fail was begun before it and is in the summary.
    failures.into_iter().next().map(|(seed, violation)| Found { seed, violation })
}

/// What the seeds are drawn from: a bug of the membership shows itself only where members come and go.
fn options(bug: Bug) -> Options {
    match (bug as u32) < (Bug::DeadRowsUnread as u32) {
        true => Options { faults: Faults { membership: false, ..Faults::ALL }, ..Options::default() },
        false => Options { setting: Setting::Views, ..Options::default() },
    }
}
