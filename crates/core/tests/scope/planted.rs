//! Which planted bugs the search finds, and with how little: `cargo xtask planted` runs it.
use crate::member::Memory;
use crate::world::Scope;
use crate::{calm, search};
use spindle_core::planted::{Bug, activate};
use std::panic;

/// From the smallest to the largest.
fn scopes() -> Vec<Scope> {
    let shared = Scope { early: true, ..calm(Memory::Shared) };
    let posted = Scope { early: true, ..calm(Memory::Posted) };
    vec![
        Scope { crashes: 1, ..shared.clone() },
        Scope { suspicions: 1, ..shared.clone() },
        Scope { crashes: 2, ..shared.clone() },
        Scope { crashes: 1, ..calm(Memory::Shared) },
        Scope { suspicions: 1, leaves: true, ..shared.clone() },
        Scope { crashes: 1, ..posted.clone() },
        Scope { suspicions: 2, ..shared.clone() },
        Scope { crashes: 1, suspicions: 1, ..shared.clone() },
        Scope { crashes: 1, suspicions: 1, proofs: false, ..shared.clone() },
        Scope { suspicions: 2, leaves: true, ..shared },
        Scope { suspicions: 1, ..posted },
    ]
}

const BUGS: &[Bug] = &[
    Bug::NoFence,
    Bug::DeadCountAsPresent,
    Bug::DeadRowsUnread,
    Bug::NoQuorum,
    Bug::RoundsBeforeRanks,
    Bug::NeverAdopts,
    Bug::DecidesAlone,
    Bug::TrimIsLongest,
    Bug::CutUnwritten,
    Bug::DeliversBeyondTrim,
    Bug::SuspicionKept,
    Bug::ReadsSuspected,
    Bug::EvictedGoesOn,
    Bug::BallotBeforeProposal,
    Bug::OneSlot,
    Bug::ResendsDelivered,
    Bug::ResendForgotten,
];

#[test]
#[ignore = "wants a process of its own: cargo xtask planted"]
fn planted_bugs_are_found() {
    let mut missed = Vec::new();
    for &bug in BUGS {
        activate(Some(bug));
        let found = scopes().into_iter().find_map(|scope| {
            let report = panic::catch_unwind(|| search(&scope));
            match report {
                Ok(report) => report.wrong.map(|wrong| (scope, report.states, wrong)),
                Err(panic) => {
                    let what = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                    Some((scope, 0, format!("panic: {what}")))
                }
            }
        });
        activate(None);
        match found {
            Some((scope, states, wrong)) => {
                println!("{bug:?}: {} ({states} states; {scope})", wrong.lines().next().unwrap_or_default());
            }
            None => {
                println!("{bug:?}: not found");
                missed.push(bug);
            }
        }
    }
    println!("{} of {} found", BUGS.len() - missed.len(), BUGS.len());
}
