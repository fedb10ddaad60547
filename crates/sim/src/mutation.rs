//! The search for mutations: the number of seeds until the checkers notice each. Only in builds
//! with `--cfg mutation`.
pub use crate::processes::Broken;
pub use crate::restart::RestartBroken;
use crate::{Faults, Options, Setting, Summary, Violation, bootstrap, bulk, campaign, processes, restart};
use spindle_core::mutation::{Mutation, activate};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A mutation that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundMutation {
    /// The first seed that shows it.
    pub seed: u64,
    /// The violation by which it shows.
    pub violation: Violation,
}

/// Mutations of the block multicast, which has a model of its own.
pub const BULK: [Mutation; 6] = [
    Mutation::CreditIgnored,
    Mutation::SendsUnheld,
    Mutation::LengthFromBlocks,
    Mutation::SlotReusedEarly,
    Mutation::StepsAhead,
    Mutation::FailureForgotten,
];

/// Mutations of the bootstrap between hosts, which also has a model of its own.
pub const BOOTSTRAP: [Mutation; 11] = [
    Mutation::AnswersBeforeDisk,
    Mutation::SilenceIsAnAnswer,
    Mutation::AnyMajority,
    Mutation::EvictedFound,
    Mutation::VotesForgotten,
    Mutation::PromisesForgotten,
    Mutation::WaitersAreMembers,
    Mutation::MembersKeepSilent,
    Mutation::MembersUnheard,
    Mutation::SilentWhileItWaits,
    Mutation::OldAnswersCount,
];

/// Mutations of total restarts, which also have a model of their own.
pub const RESTART: [Mutation; 11] = [
    Mutation::RestartsWithout,
    Mutation::RestartPromiseForgotten,
    Mutation::RestartForgets,
    Mutation::RestartAnswersEarly,
    Mutation::RestartTakesShortest,
    Mutation::RestartProposesUnequal,
    Mutation::RestartBeginsLate,
    Mutation::RestartDecidesAlone,
    Mutation::RestartForgetsDead,
    Mutation::RestartCutsBack,
    Mutation::RestartCutUnreported,
];

/// Mutations of the control plane, and of logs as whole processes have them, which the simulator of
/// whole processes finds. Some of the other mutations show there, too.
pub const CONTROL: [Mutation; 38] = [
    Mutation::DecisionKept,
    Mutation::GoesOnIncomplete,
    Mutation::FoundersUnplaced,
    Mutation::SkewAdmitted,
    Mutation::AdmissionsLost,
    Mutation::JoinersForgotten,
    Mutation::JoinersUntold,
    Mutation::NoncesIgnored,
    Mutation::FirstViewNeverOver,
    Mutation::EvictionIsProof,
    Mutation::ReadmittedAtOnce,
    Mutation::NoTimeToBegin,
    Mutation::BeginsHastily,
    Mutation::RestCutOff,
    Mutation::MoveUnshown,
    Mutation::CutOffAsksNobody,
    Mutation::StrangersPass,
    Mutation::GivenUpUntold,
    Mutation::RedialsGiveUp,
    Mutation::OlderStreamsLost,
    Mutation::DecisionsUntold,
    Mutation::GoneFound,
    Mutation::GivenKeyAdopted,
    Mutation::WaitersAdopted,
    Mutation::LateStreamsRefused,
    Mutation::FarJoinersVote,
    Mutation::ConflictsBelieved,
    Mutation::RacksForgotten,
    Mutation::SeedPlacesKept,
    Mutation::BlockedUnknown,
    Mutation::BlockedUntold,
    Mutation::ObserversKept,
    Mutation::PlacesGuessed,
    Mutation::DeathOfAnother,
    Mutation::ForeignRecordsKept,
    Mutation::DurableForgetsOne,
    Mutation::CutBelowDurable,
    Mutation::HoldersForgotten,
];

/// Mutations of other layers that whole processes show, too.
pub const SHOWN: [Mutation; 14] = [
    Mutation::SuspicionKept,
    Mutation::SilenceIsAnAnswer,
    Mutation::FifoTwice,
    Mutation::WaitingForgotten,
    Mutation::ResendForgotten,
    Mutation::LeftoversTooLong,
    Mutation::PersistedBeforeSync,
    Mutation::DurableOnOne,
    Mutation::TooFewCopies,
    Mutation::OlderForgotten,
    Mutation::DeliveredBeforeDurable,
    Mutation::CutBeyondDisk,
    Mutation::LogUncut,
    Mutation::ClockForgotten,
];

/// Searches for a mutation of the core, or for a broken duty of a driver, with whole processes.
pub fn hunt_in_processes(bug: Option<Mutation>, broken: Broken, seeds: Range<u64>) -> Option<FoundMutation> {
    static HUNTING: Mutex<()> = Mutex::new(());
    let _one = HUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    activate(bug);
    // A panic is not the finding of a checker.
    let is_checked = |(_, violation): &&(u64, Violation)| violation.number != 0;
    let goes_on = |summary: &processes::ProcessesSummary| !summary.failures.iter().any(|failure| is_checked(&failure));
    let summary = processes::campaign_with(broken, seeds, 2, goes_on);
    activate(None);
    let found = summary.failures.iter().find(is_checked).cloned();
    found.map(|(seed, violation)| FoundMutation { seed, violation })
}

/// Searches for a mutation of a restart, or for a duty that the driver of a restart leaves undone.
pub fn hunt_in_restarts(bug: Option<Mutation>, broken: RestartBroken, seeds: Range<u64>) -> Option<FoundMutation> {
    static HUNTING: Mutex<()> = Mutex::new(());
    let _one = HUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    activate(bug);
    // A panic is not the finding of a checker.
    let is_checked = |(_, violation): &&(u64, Violation)| violation.number != 0;
    let goes_on = |summary: &restart::RestartSummary| !summary.failures.iter().any(|failure| is_checked(&failure));
    let summary = restart::campaign_with(broken, seeds, goes_on);
    activate(None);
    let found = summary.failures.iter().find(is_checked).cloned();
    found.map(|(seed, violation)| FoundMutation { seed, violation })
}

/// Searches for `bug` with the `seeds`, in their order. Returns `None` if no seed shows it. The
/// result is the same every time. Only one search runs at a time, as a process can have only one
/// mutation at a time.
pub fn hunt(bug: Mutation, seeds: Range<u64>) -> Option<FoundMutation> {
    if RESTART.contains(&bug) {
        return hunt_in_restarts(Some(bug), RestartBroken::Not, seeds);
    }
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
    // Every seed below the first failure was begun before it and is in the summary.
    failures.into_iter().next().map(|(seed, violation)| FoundMutation { seed, violation })
}

/// Returns the options of a search. A mutation of the membership shows only where members join and
/// leave.
fn options(bug: Mutation) -> Options {
    match (bug as u32) < (Mutation::DeadRowsUnread as u32) {
        true => Options { faults: Faults { membership: false, ..Faults::ALL }, ..Options::default() },
        false => Options { setting: Setting::Views, ..Options::default() },
    }
}
