//! The mutations that the search finds, each in the smallest scope: `cargo xtask mutations` runs
//! it.
use crate::member::Memory;
use crate::search::Search;
use crate::world::{Proofs, Scope};
use crate::{calm, directed, recovers, silent};
use spindle_core::mutation::{Mutation, activate};
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Scopes from the smallest to the largest.
fn scopes() -> Vec<Scope> {
    let shared = Scope { early: true, ..calm(Memory::Shared) };
    let posted = Scope { early: true, ..calm(Memory::Posted) };
    let stored = Scope { leaves: true, crashes: 1, ..silent(Memory::Stored) };
    let unproven = Scope { proofs: Proofs::Missing, leaves: true, ..silent(Memory::Posted) };
    let four = Scope { members: 4, ..silent(Memory::Shared) };
    vec![
        Scope { crashes: 1, ..shared.clone() },
        Scope { suspicions: 1, ..shared.clone() },
        Scope { members: 2, suspicions: 2, ..silent(Memory::Shared) },
        Scope { suspicions: 2, ..silent(Memory::Shared) },
        Scope { crashes: 2, ..silent(Memory::Shared) },
        Scope { suspicions: 2, waits: 1, ..silent(Memory::Shared) },
        Scope { crashes: 1, waits: 1, ..unproven },
        Scope { crashes: 2, ..shared },
        stored,
        Scope { crashes: 2, proofs: Proofs::Torn, ..silent(Memory::Posted) },
        Scope { crashes: 2, suspicions: 1, ..silent(Memory::Posted) },
        Scope { suspicions: 2, waits: 1, revocable: true, ..silent(Memory::Posted) },
        Scope { crashes: 1, suspicions: 1, ..four },
        Scope { suspicions: 1, ..posted },
    ]
}

/// The same for recoveries.
fn recoveries() -> Vec<Scope> {
    vec![recovers(2, Scope { members: 4, suspicions: 2, revocable: true, ..silent(Memory::Shared) })]
}

/// Maximum number of states in the search of one scope for one mutation.
const STATES_MAX: usize = 3_000_000;

/// Mutations of the agreement. `PromiseForgotten` is left to the simulator.
const BUGS: &[Mutation] = &[
    Mutation::DeadRowsUnread,
    Mutation::DeadValuesUnread,
    Mutation::DeadWithHigherPromiseCounts,
    Mutation::DeadCountedTwice,
    Mutation::UnfinalRowsCount,
    Mutation::NoQuorum,
    Mutation::UnreadDontBind,
    Mutation::EvictsWithoutQuorum,
    Mutation::NeverAdopts,
    Mutation::DecidesAlone,
    Mutation::TrimIsLongest,
    Mutation::CutUnwritten,
    Mutation::DeliversBeyondTrim,
    Mutation::EvictedGoesOn,
    Mutation::BallotBeforeProposal,
    Mutation::ResendsDelivered,
    Mutation::ResendForgotten,
    Mutation::ReadBeforeDelivery,
    Mutation::ReadAfterEviction,
];

/// Mutations of recoveries.
const RECOVERY_BUGS: &[Mutation] = &[Mutation::OneGivesUp, Mutation::GivenUpHeard];

#[test]
#[ignore = "wants a process of its own: cargo xtask mutations"]
fn mutations_are_found() {
    let _alone = alone();
    let mut missed = Vec::new();
    let of_recoveries = RECOVERY_BUGS.iter().map(|bug| (bug, recoveries()));
    for (&bug, scopes) in BUGS.iter().map(|bug| (bug, scopes())).chain(of_recoveries) {
        activate(Some(bug));
        match scopes.into_iter().find_map(|scope| Some((hunt(&scope)?, scope))) {
            Some((found, scope)) => println!("{bug:?}: {found}\n    {scope}"),
            None => missed.push(bug),
        }
        activate(None);
    }
    assert_eq!(missed, [], "not found");
}

/// Mutations that need longer schedules.
const DIRECTED: [(Mutation, fn()); 4] = [
    (Mutation::AcceptedReadFirst, directed::an_acceptance_that_lands_while_its_row_is_read_binds),
    (Mutation::OneSlot, directed::a_value_that_was_being_replaced_at_the_death_of_its_holder_binds),
    (Mutation::GivenUpQuorum, directed::a_recovery_needs_all_that_are_not_given_up),
    (Mutation::RecoveryNotAdopted, directed::a_recovery_adopts_what_may_be_decided),
];

#[test]
#[ignore = "wants a process of its own: cargo xtask mutations"]
fn mutations_fail_directed_schedules() {
    let _alone = alone();
    for (bug, schedule) in DIRECTED {
        activate(Some(bug));
        let held = panic::catch_unwind(schedule);
        activate(None);
        let panic = held.expect_err("the schedule holds, whatever the bug");
        let what = panic.downcast_ref::<String>().expect("an assertion has words");
        assert!(what.contains("two decisions"), "{bug:?}: {what}");
    }
}

/// Only one mutation can be active in a process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error found in this scope.
fn hunt(scope: &Scope) -> Option<String> {
    match panic::catch_unwind(|| Search::new(scope.clone()).run(STATES_MAX)) {
        Ok(report) => {
            let wrong = report.wrong.filter(|wrong| !wrong.starts_with("more than"))?;
            Some(format!("{} states, {:.1} s: {}", report.states, report.seconds, wrong.lines().next()?))
        }
        Err(panic) => Some(format!("panic: {:?}", panic.downcast_ref::<String>())),
    }
}
