//! Every way in which a small group can end a view, on the real engines. docs/protocol/views.md
//! explains what that shows.
//!
//! [`member`] is one member and one poll of it, [`world`] all steps that each member can take, and
//! [`search`] the walk through all states of the group, with the conditions that must hold in them.
//! A poll is one step here; in some scopes, writes of one peer may land in the middle of it.
//! [`directed`] contains schedules that are too long for the search.
//!
//! The quick scopes are part of `cargo test`. The scopes of CI need a release build: `cargo xtask
//! scope`. With `--long` that runs the scopes with four members.
#![expect(clippy::disallowed_types, reason = "nothing here depends on the order of a map")]
mod directed;
mod intern;
mod member;
#[cfg(mutation)]
mod mutation;
mod search;
mod world;

use member::Memory;
use search::{Report, Search};
use world::{Proofs, Scope};

/// Three members, two of which send one message each at any time, and nothing else happens.
fn calm(memory: Memory) -> Scope {
    Scope {
        members: 3,
        messages: vec![1, 1],
        early: false,
        crashes: 0,
        proofs: Proofs::Final,
        suspicions: 0,
        revocable: false,
        waits: 0,
        leaves: false,
        recoveries: 0,
        lost: 0,
        memory,
        landings: false,
        epochs: false,
    }
}

/// No member sends a message: for the agreement alone, in groups that would be too large otherwise.
/// The sender exists because a group without senders is at its end.
fn silent(memory: Memory) -> Scope {
    Scope { messages: vec![0], early: true, ..calm(memory) }
}

fn search(scope: &Scope) -> Report {
    Search::new(scope.clone()).run(STATES_MAX)
}

/// More states would not fit into the memory of a small machine.
const STATES_MAX: usize = 400_000_000;

#[track_caller]
fn holds(scope: &Scope) {
    let report = search(scope);
    println!("{scope}\n    {}", report.line());
    if let Some(wrong) = report.wrong {
        panic!("{scope}: {wrong}");
    }
    assert!(scope.recoveries == 0 || report.recovered > 0, "{scope}: no recovery is ever decided");
}

#[test]
fn one_of_three_crashes_over_shared_memory() {
    holds(&Scope { crashes: 1, ..calm(Memory::Shared) });
}

#[test]
fn one_of_three_is_suspected_over_shared_memory() {
    holds(&Scope { suspicions: 1, early: true, ..calm(Memory::Shared) });
}

/// Members announce and receive until they learn of a ballot.
#[test]
fn members_wedge_for_a_ballot() {
    let epochs = |memory| Scope { epochs: true, early: true, ..calm(memory) };
    holds(&Scope { crashes: 1, ..epochs(Memory::Shared) });
    holds(&Scope { suspicions: 1, ..epochs(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn members_wedge_for_a_ballot_that_is_posted() {
    holds(&Scope { epochs: true, crashes: 1, messages: vec![2], early: true, ..calm(Memory::Posted) });
    holds(&Scope { epochs: true, suspicions: 2, waits: 1, ..silent(Memory::Shared) });
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
fn dead_members_leave_torn_rows() {
    holds(&Scope { crashes: 1, proofs: Proofs::Torn, early: true, ..calm(Memory::Posted) });
    holds(&Scope { crashes: 2, proofs: Proofs::Torn, ..silent(Memory::Posted) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_crashes_and_no_member_can_prove_it() {
    holds(&Scope { crashes: 1, proofs: Proofs::Missing, early: true, ..calm(Memory::Posted) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn writes_land_while_rows_are_read() {
    let landings = |scope: Scope| Scope { landings: true, ..scope };
    let leaves = Scope { leaves: true, ..silent(Memory::Posted) };
    holds(&landings(Scope { crashes: 1, proofs: Proofs::Missing, ..leaves }));
    holds(&landings(Scope { crashes: 1, ..silent(Memory::Stored) }));
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_writes_land_while_rows_are_read() {
    holds(&Scope { suspicions: 1, leaves: true, landings: true, ..silent(Memory::Posted) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_three_crash() {
    holds(&Scope { crashes: 2, early: true, ..calm(Memory::Posted) });
    holds(&Scope { crashes: 2, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_is_suspected() {
    holds(&Scope { suspicions: 1, revocable: true, waits: 1, early: true, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn two_suspicions_and_their_ends() {
    holds(&Scope { suspicions: 2, revocable: true, waits: 1, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_leaves_and_two_are_suspected() {
    holds(&Scope { suspicions: 2, revocable: true, waits: 1, leaves: true, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_three_crashes_and_one_is_suspected_posted() {
    holds(&Scope { crashes: 1, suspicions: 1, revocable: true, waits: 1, ..silent(Memory::Posted) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_three_crash_and_one_is_suspected() {
    holds(&Scope { crashes: 2, suspicions: 1, revocable: true, waits: 1, ..silent(Memory::Shared) });
    holds(&Scope { crashes: 2, suspicions: 1, ..silent(Memory::Posted) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_four_crash() {
    holds(&Scope { members: 4, crashes: 2, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_three_is_suspected() {
    holds(&Scope { suspicions: 1, early: true, ..calm(Memory::Posted) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_suspicions_and_their_ends() {
    holds(&Scope { suspicions: 2, revocable: true, waits: 2, ..silent(Memory::Shared) });
    holds(&Scope { suspicions: 2, revocable: true, waits: 1, ..silent(Memory::Posted) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_three_suspicions_and_their_ends() {
    holds(&Scope { suspicions: 3, revocable: true, waits: 1, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_three_crashes_and_one_is_suspected() {
    holds(&Scope { crashes: 1, suspicions: 1, revocable: true, waits: 1, early: true, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_three_crash_and_two_are_suspected() {
    holds(&Scope { crashes: 2, suspicions: 2, revocable: true, waits: 1, ..silent(Memory::Shared) });
    holds(&Scope { crashes: 2, suspicions: 2, waits: 1, proofs: Proofs::Missing, ..silent(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_three_crash_with_torn_rows_and_one_is_suspected() {
    holds(&Scope { crashes: 2, proofs: Proofs::Torn, suspicions: 1, waits: 1, ..silent(Memory::Posted) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_four_crashes() {
    holds(&Scope { members: 4, crashes: 1, ..calm(Memory::Shared) });
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_four_crashes_and_one_is_suspected() {
    holds(&Scope { members: 4, crashes: 1, suspicions: 1, revocable: true, waits: 1, ..silent(Memory::Shared) });
}

/// The members of the highest ranks are lost, as an operator declares once.
fn recovers(lost: usize, scope: Scope) -> Scope {
    Scope { recoveries: 1, lost, ..scope }
}

#[test]
fn one_of_three_recovers() {
    let dead = Scope { crashes: 2, proofs: Proofs::Missing, ..silent(Memory::Posted) };
    holds(&recovers(2, dead.clone()));
    holds(&recovers(1, Scope { proofs: Proofs::MissingForLost, ..dead }));
    holds(&recovers(2, Scope { suspicions: 2, ..silent(Memory::Shared) }));
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn two_of_four_recover() {
    holds(&recovers(2, Scope { members: 4, crashes: 2, proofs: Proofs::Missing, ..silent(Memory::Shared) }));
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn some_of_four_recover_from_others_that_live() {
    let four = Scope { members: 4, ..silent(Memory::Shared) };
    holds(&recovers(2, Scope { suspicions: 2, revocable: true, ..four.clone() }));
    holds(&recovers(2, Scope { suspicions: 2, leaves: true, ..four.clone() }));
    holds(&recovers(3, Scope { suspicions: 1, ..four }));
}

#[test]
#[ignore = "wants a release build: cargo xtask scope"]
fn one_of_three_recovers_from_two_that_live() {
    holds(&recovers(2, Scope { suspicions: 2, ..silent(Memory::Posted) }));
    holds(&recovers(2, Scope { suspicions: 1, leaves: true, ..silent(Memory::Posted) }));
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_three_recovers() {
    let dead = Scope { crashes: 2, proofs: Proofs::Missing, early: true, ..calm(Memory::Posted) };
    holds(&recovers(2, dead));
    holds(&recovers(2, Scope { suspicions: 2, revocable: true, waits: 1, ..silent(Memory::Shared) }));
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_one_of_three_recovers_while_one_leaves() {
    holds(&recovers(2, Scope { suspicions: 2, leaves: true, ..silent(Memory::Posted) }));
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_four_recover() {
    holds(&recovers(2, Scope { members: 4, crashes: 2, proofs: Proofs::Missing, ..silent(Memory::Posted) }));
}

#[test]
#[ignore = "takes long: cargo xtask scope --long"]
fn long_two_of_four_recover_from_two_that_live() {
    let four = Scope { members: 4, ..silent(Memory::Shared) };
    holds(&recovers(2, Scope { suspicions: 2, revocable: true, waits: 1, ..four }));
}
