//! The ballots of a restart, as words.
use crate::ids::MemberId;
use crate::membership::Ballot;
use alloc::vec::Vec;

/// An attempt to restart. Ballots are ordered by round; no two processes have the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RestartBallot {
    /// The number of the attempt, from 1. Round 0 has the ballots of the agreement that ends a view while the
    /// group runs.
    pub round: u64,
    /// The member that leads it.
    pub leader: MemberId,
    /// The nonce of its process: a member that is started again leads other attempts.
    pub nonce: u32,
}

impl RestartBallot {
    /// Returns the ballot of a view that was accepted while the group ran: it is below those of all
    /// attempts to restart, and ordered as the ballots of the agreement are.
    pub fn of_agreement(ballot: Ballot) -> RestartBallot {
        RestartBallot { round: 0, leader: MemberId(ballot.encode(0)), nonce: 0 }
    }
}

impl Default for RestartBallot {
    fn default() -> RestartBallot {
        RestartBallot { round: 0, leader: MemberId(0), nonce: 0 }
    }
}

pub(super) fn take_word(from: &mut &[u64]) -> Option<u64> {
    from.split_off_first().copied()
}

pub(super) fn put_ballot(out: &mut Vec<u64>, ballot: RestartBallot) {
    out.extend([ballot.round, ballot.leader.0, u64::from(ballot.nonce)]);
}

pub(super) fn ballot(from: &mut &[u64]) -> Option<RestartBallot> {
    let (round, leader) = (take_word(from)?, MemberId(take_word(from)?));
    Some(RestartBallot { round, leader, nonce: u32::try_from(take_word(from)?).ok()? })
}
