//! Every way in which a small group can end a view, on the real engines: docs/protocol/views.md says what that shows.
//!
//! [`member`] is one member and one poll of it, [`world`] all that each member can do, [`search`] the walk through all states of
//! the group, with what must hold in them. A poll is one step here: that stores land while somebody reads is left to the
//! simulator's and the fabric's tests, in so far as it is not the same as landing before or after.
//!
//! The quick scopes are part of `cargo test`. Those of CI want a release build: `cargo xtask scope`. With `--long` that runs the
//! ones with four members.
#![expect(clippy::disallowed_types, reason = "nothing here depends on the order of a map")]
mod intern;
mod member;
#[cfg(planted)]
mod planted;
mod search;
mod world;

use member::Memory;
use search::{Report, Search};
use std::time::Instant;
use world::Scope;

/// Three members of which two send one message each at any time, and nothing else happens.
fn calm(memory: Memory) -> Scope {
    Scope {
        members: 3,
        messages: vec![1, 1],
        early: false,
        crashes: 0,
        proofs: true,
        suspicions: 0,
        leaves: false,
        absent: vec![],
        mistaken: false,
        memory,
    }
}

/// Nobody says anything: for the agreement alone, in groups that would be too large otherwise. The sender is there because a
/// group without senders is at its end.
fn silent(memory: Memory) -> Scope {
    Scope { messages: vec![0], early: true, ..calm(memory) }
}

/// All ways in which so many rows may never come to somebody else.
fn absences(members: usize, count: usize) -> Vec<Vec<(usize, usize)>> {
    let pairs = (0..members).flat_map(|reader| (0..members).map(move |other| (reader, other)));
    let pairs: Vec<_> = pairs.filter(|(reader, other)| reader != other).collect();
    let mut ways = vec![vec![]];
    for _ in 0..count {
        let longer = |way: &Vec<(usize, usize)>| {
            let behind = way.last().map_or(0, |last| 1 + pairs.iter().position(|pair| pair == last).unwrap());
            pairs[behind..].iter().map(|pair| [&way[..], &[*pair]].concat()).collect::<Vec<_>>()
        };
        ways = ways.iter().flat_map(longer).collect();
    }
    ways
}

fn search(scope: &Scope) -> Report {
    Search::new(scope.clone()).run(STATES_MAX)
}

/// More would not fit into the memory of a small machine.
const STATES_MAX: usize = 400_000_000;

#[track_caller]
fn holds(scope: &Scope) {
    let report = search(scope);
    println!("{scope}\n    {}", report.line());
    if let Some(wrong) = report.wrong {
        panic!("{scope}: {wrong}");
    }
}

/// Holds, whichever `count` rows never come.
#[track_caller]
fn holds_without(count: usize, scope: &Scope) {
    let mut sum = [0; 5];
    #[expect(clippy::disallowed_methods, reason = "how long it took is for people")]
    let started = Instant::now();
    for absent in absences(scope.members, count) {
        let scope = Scope { absent, ..scope.clone() };
        let report = search(&scope);
        if let Some(wrong) = report.wrong {
            panic!("{scope}: {wrong}");
        }
        let counts = [report.states as u64, report.transitions, report.ends, report.blocked, report.nobody];
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [states, transitions, ends, blocked, nobody] = sum;
    let rest = format!("{ends} states of rest ({blocked} with somebody blocked, {nobody} with nobody left)");
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{scope}, {count} rows never come\n    {states} states, {transitions} transitions, {rest}, {seconds:.1} s"
    );
}

#[test]
fn one_of_three_crashes_over_shared_memory() {
    holds(&Scope { crashes: 1, ..calm(Memory::Shared) });
}

#[test]
fn one_of_three_is_suspected_over_shared_memory() {
    holds(&Scope { suspicions: 1, early: true, ..calm(Memory::Shared) });
}

#[test]
fn agreement_of_four() {
    holds(&Scope { members: 4, crashes: 1, ..silent(Memory::Posted) });
    holds(&Scope { members: 4, suspicions: 1, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_crashes() {
    holds(&Scope { crashes: 1, ..calm(Memory::Posted) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_crashes_with_one_sender() {
    holds(&Scope { crashes: 1, messages: vec![2], early: true, ..calm(Memory::Posted) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_crashes_between_any_two_stores() {
    holds(&Scope { crashes: 1, early: true, ..calm(Memory::Stored) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_crashes_and_nobody_can_prove_it() {
    holds(&Scope { crashes: 1, proofs: false, early: true, ..calm(Memory::Posted) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn two_of_three_crash() {
    holds(&Scope { crashes: 2, early: true, ..calm(Memory::Posted) });
    holds(&Scope { crashes: 2, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_is_suspected() {
    holds(&Scope { suspicions: 1, early: true, ..calm(Memory::Posted) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn three_suspect_each_other() {
    holds(&Scope { suspicions: 3, early: true, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_leaves_and_two_are_suspected() {
    holds(&Scope { suspicions: 2, leaves: true, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_crashes_and_one_is_suspected() {
    holds(&Scope { crashes: 1, suspicions: 1, early: true, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn two_of_three_crash_and_two_are_suspected() {
    holds(&Scope { crashes: 2, suspicions: 2, ..silent(Memory::Shared) });
    holds(&Scope { crashes: 2, suspicions: 2, proofs: false, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn two_of_four_crash() {
    holds(&Scope { members: 4, crashes: 2, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn rows_of_two_never_come() {
    for count in [1, 2] {
        holds_without(count, &Scope { members: 2, crashes: 1, suspicions: 2, ..silent(Memory::Shared) });
    }
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn rows_of_three_never_come() {
    for count in [1, 2] {
        for suspicions in [0, 1] {
            holds_without(count, &Scope { crashes: 2, suspicions, ..silent(Memory::Shared) });
        }
        holds_without(count, &Scope { crashes: 1, early: true, ..calm(Memory::Shared) });
        holds_without(count, &Scope { crashes: 2, ..silent(Memory::Posted) });
    }
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn rows_of_four_never_come() {
    // One that knows of two that decide nothing but that they are gone, and one that knows nothing of anybody.
    for absent in [vec![(2, 0), (2, 1)], vec![(3, 0), (3, 1), (3, 2)]] {
        holds(&Scope { members: 4, crashes: 2, absent, ..silent(Memory::Shared) });
    }
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_rows_of_four_never_come() {
    for count in [1, 2] {
        holds_without(count, &Scope { members: 4, crashes: 2, ..silent(Memory::Shared) });
        holds_without(count, &Scope { crashes: 2, early: true, ..calm(Memory::Shared) });
    }
}

/// Whoever took zeros for the last words of two that have died would go on beside what they had decided.
#[test]
fn a_row_that_never_came_is_nobodys_last_word() {
    for absent in absences(3, 2) {
        let (reader, other) = (absent[0].0, absent[1].0);
        let scope = Scope { crashes: 2, suspicions: 1, absent, mistaken: true, ..silent(Memory::Shared) };
        let wrong = search(&scope).wrong.unwrap_or_default();
        assert_eq!(wrong.starts_with("two decisions"), reader == other, "{scope}: {wrong}");
    }
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_three_crash_and_two_are_suspected() {
    holds(&Scope { crashes: 2, suspicions: 2, early: true, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_four_crashes() {
    holds(&Scope { members: 4, crashes: 1, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_three_of_four_are_suspected() {
    holds(&Scope { members: 4, suspicions: 3, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_four_crashes_and_one_is_suspected() {
    holds(&Scope { members: 4, crashes: 1, suspicions: 1, ..silent(Memory::Posted) });
}
