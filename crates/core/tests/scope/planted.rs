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
    let only = std::env::var("BUG").ok();
    for &bug in BUGS.iter().filter(|bug| only.as_ref().is_none_or(|only| format!("{bug:?}") == *only)) {
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
                if std::env::var_os("WAYS").is_some() {
                    println!("{wrong}");
                }
            }
            None => {
                println!("{bug:?}: not found");
                missed.push(bug);
            }
        }
    }
    println!("{} of {} found", BUGS.len() - missed.len(), BUGS.len());
}

#[test]
#[ignore]
fn try_one() {
    let arg = |name: &str, default: usize| std::env::var(name).map_or(default, |v| v.parse().unwrap());
    let s = Scope {
        members: arg("M", 3),
        early: arg("EARLY", 1) == 1,
        crashes: arg("C", 0),
        proofs: arg("P", 1) == 1,
        suspicions: arg("S", 0) as u8,
        leaves: arg("L", 0) == 1,
        messages: std::env::var("MSG").map_or(vec![0], |v| v.split(',').map(|x| x.parse().unwrap()).collect()),
        memory: [Memory::Shared, Memory::Posted, Memory::Stored][arg("MEM", 0)],
    };
    let bug = std::env::var("BUG").ok();
    activate(Bug::ALL.iter().copied().find(|b| Some(format!("{b:?}")) == bug));
    let report = crate::search::Search::new(s.clone()).run(arg("MAX", 5_000_000));
    println!("{bug:?} {s} {}\n{}", report.line(), report.wrong.unwrap_or_default());
}
