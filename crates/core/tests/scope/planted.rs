//! Which planted bugs the search finds, and with how little: `cargo xtask planted` runs it.
use crate::member::Memory;
use crate::world::Scope;
use crate::{calm, search, silent};
use spindle_core::planted::{Bug, activate};
use std::panic;

/// From the smallest to the largest.
fn scopes() -> Vec<Scope> {
    let shared = Scope { early: true, ..calm(Memory::Shared) };
    let posted = Scope { early: true, ..calm(Memory::Posted) };
    let stored = Scope { leaves: true, crashes: 1, ..silent(Memory::Stored) };
    let four = Scope { members: 4, ..silent(Memory::Shared) };
    vec![
        Scope { crashes: 1, ..shared.clone() },
        Scope { suspicions: 1, ..shared.clone() },
        Scope { members: 2, suspicions: 2, ..silent(Memory::Shared) },
        Scope { suspicions: 2, ..silent(Memory::Shared) },
        Scope { crashes: 2, suspicions: 1, ..silent(Memory::Shared) },
        Scope { crashes: 2, ..shared },
        stored,
        Scope { crashes: 2, suspicions: 1, ..silent(Memory::Posted) },
        Scope { suspicions: 1, ..posted },
        Scope { suspicions: 2, leaves: true, ..four },
    ]
}

/// Those that are about the agreement. `SuspicionKept` makes others wait for a member that hangs and is suspected; here everybody polls
/// in the end, finds itself suspected, and says so in its final row.
const BUGS: &[Bug] = &[
    Bug::NoFence,
    Bug::DeadCountAsPresent,
    Bug::DeadRowsUnread,
    Bug::NoQuorum,
    Bug::RoundsBeforeRanks,
    Bug::NeverAdopts,
    Bug::OneSlot,
    Bug::ReadsSuspected,
    Bug::DecidesAlone,
    Bug::TrimIsLongest,
    Bug::CutUnwritten,
    Bug::DeliversBeyondTrim,
    Bug::EvictedGoesOn,
    Bug::BallotBeforeProposal,
    Bug::ResendsDelivered,
    Bug::ResendForgotten,
];

#[test]
#[ignore = "wants a process of its own: cargo xtask planted"]
fn planted_bugs_are_found() {
    let mut missed = Vec::new();
    for &bug in BUGS {
        activate(Some(bug));
        match scopes().into_iter().find_map(|scope| Some((hunt(&scope)?, scope))) {
            Some((found, scope)) => println!("{bug:?}: {found}\n    {scope}"),
            None => missed.push(bug),
        }
        activate(None);
    }
    assert_eq!(missed, [], "not found");
}

/// What is wrong in this scope.
fn hunt(scope: &Scope) -> Option<String> {
    match panic::catch_unwind(|| search(scope)) {
        Ok(report) => {
            let wrong = report.wrong?;
            Some(format!("{} states, {:.1} s: {}", report.states, report.seconds, wrong.lines().next()?))
        }
        Err(panic) => Some(format!("panic: {:?}", panic.downcast_ref::<String>())),
    }
}
