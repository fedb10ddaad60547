//! Invariant 3, no duplicate, no gap, first in first out: a member delivers exactly one message of
//! a sender at a time, in the order of the sender's claims, and in the round that the sender gave
//! it.
use super::{Checked, Invariant, Violation};
use crate::history::SentMessage;
use crate::ledger::{ClaimState, Ledger};
use spindle_core::{MemberId, Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(3, "no duplicate, no gap, FIFO");

/// Records that `member` takes a message of the sender with this sender rank out of a batch, and
/// returns the message's index among the claims.
///
/// # Errors
/// If it isn't the sender's next message.
pub fn delivered(
    ledger: &mut Ledger,
    subgroup: SubgroupId,
    member: Rank,
    sender: usize,
    round: u64,
    digest: u64,
) -> Result<usize, Violation> {
    let group = &mut ledger.groups[subgroup.index()];
    let lane = &mut group.lanes[sender];
    let next = lane.next_message(member);
    let is = |fate: ClaimState| matches!(fate, ClaimState::Message { digest: sent, .. } if sent == digest);
    if !lane.frames.get(next).is_some_and(|frame| is(frame.fate)) {
        let found = lane.frames.iter().position(|frame| is(frame.fate));
        return INVARIANT.broken(format!(
            "m{member} delivers claim {found:?} of m{} in s{subgroup}, where claim {next} is next",
            lane.sender
        ));
    }
    if lane.frames[next].round != Some(round) {
        return INVARIANT.broken(format!(
            "m{member} delivers claim {next} of m{} in s{subgroup} in round {round}, not in its own, {:?}",
            lane.sender, lane.frames[next].round
        ));
    }
    lane.taken[member.index()] = next + 1;
    group.deliveries += 1;
    Ok(next)
}

/// Checks, over all views, that `receiver` delivers the message with this number from `sent`, the
/// claims that `sender` ever made. `before` is the number after its previous delivery; `None` if it
/// joined later than the sender and this is the first.
///
/// # Errors
/// If it is not the next message; voids are skipped.
pub fn across_views(
    receiver: MemberId,
    sender: MemberId,
    subgroup: SubgroupId,
    before: Option<u64>,
    number: u64,
    sent: &[SentMessage],
) -> Checked {
    let Some(before) = before else { return Ok(()) };
    let between = || &sent[before as usize..number as usize];
    if number >= before && between().iter().all(|sent| sent.fate == ClaimState::Void) {
        return Ok(());
    }
    let what = if number < before { "again" } else { "too early" };
    INVARIANT.broken(format!(
        "member {receiver} delivers message {number} of member {sender} in s{subgroup} {what}: {before} is next"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{example, message};
    use spindle_core::Order;

    #[test]
    fn duplicates_and_gaps_are_found() {
        let mut ledger = example(Order::Fifo);
        for i in 0..4 {
            message(&mut ledger, 1, 100 + i, i);
        }
        let mut deliver = |digest, round| delivered(&mut ledger, SubgroupId(0), Rank(0), 1, round, digest);
        assert_eq!(deliver(100, 0), Ok(0));
        assert_eq!(deliver(101, 1), Ok(1));
        assert_eq!(deliver(101, 1).unwrap_err().number, 3, "a duplicate");
        assert_eq!(deliver(103, 3).unwrap_err().number, 3, "a gap");
        assert_eq!(deliver(102, 1).unwrap_err().number, 3, "another round");
        assert_eq!(deliver(102, 2), Ok(2));
    }
    #[test]
    fn duplicates_and_gaps_between_views_are_found() {
        let message = SentMessage { fate: ClaimState::Message { len: 0, digest: 0 }, delivered: false };
        let sent = [message, SentMessage { fate: ClaimState::Void, ..message }, message, message];
        let across = |before, number| across_views(MemberId(1), MemberId(2), SubgroupId(0), before, number, &sent);
        assert_eq!(across(Some(0), 0), Ok(()));
        assert_eq!(across(Some(1), 2), Ok(()), "over a void");
        assert_eq!(across(Some(1), 3).unwrap_err().number, 3, "a gap");
        assert_eq!(across(Some(3), 2).unwrap_err().number, 3, "a duplicate");
        assert_eq!(across(None, 3), Ok(()), "a joiner begins anywhere");
    }
}
