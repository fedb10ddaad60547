//! Invariant 7, validity: once faults are over, every accepted message of a surviving member has
//! been delivered, if the member still sends in the message's subgroup. At least one member
//! delivered it, and every member that was in the group for the messages before it.
use super::{Checked, Invariant};
use crate::history::SentMessage;
use crate::ledger::ClaimState;
use spindle_core::{MemberId, SubgroupId};

const INVARIANT: Invariant = Invariant(7, "validity");

/// Checks `sent`, all claims that the survivor `sender` ever made in `subgroup`.
///
/// # Errors
/// If no member delivered one of its messages.
pub fn delivered(sender: MemberId, subgroup: SubgroupId, sent: &[SentMessage]) -> Checked {
    let lost = sent.iter().position(|sent| matches!(sent.fate, ClaimState::Message { .. }) && !sent.delivered);
    match lost {
        Some(number) => INVARIANT.broken(format!(
            "message {number} of member {sender} in s{subgroup} was accepted, and no member delivered it"
        )),
        None => Ok(()),
    }
}

/// Checks that the survivor `receiver` has delivered all of `sent`; its next delivery would have
/// the number `next`.
///
/// # Errors
/// If it lacks a message.
pub fn reached(receiver: MemberId, sender: MemberId, subgroup: SubgroupId, next: u64, sent: &[SentMessage]) -> Checked {
    let missing = sent.iter().skip(next as usize).position(|sent| matches!(sent.fate, ClaimState::Message { .. }));
    match missing {
        Some(behind) => INVARIANT.broken(format!(
            "message {} of member {sender} in s{subgroup} never came to member {receiver}",
            next as usize + behind
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_messages_are_found() {
        let message = |delivered| SentMessage { fate: ClaimState::Message { len: 1, digest: 2 }, delivered };
        let void = SentMessage { fate: ClaimState::Void, delivered: false };
        let (sender, receiver, s) = (MemberId(5), MemberId(6), SubgroupId(0));
        let mut sent = vec![message(true), void, message(true), void];
        assert_eq!(delivered(sender, s, &sent), Ok(()));
        assert_eq!(reached(receiver, sender, s, 3, &sent), Ok(()));
        assert_eq!(reached(receiver, sender, s, 1, &sent).unwrap_err().number, 7);
        sent.push(message(false));
        assert_eq!(delivered(sender, s, &sent).unwrap_err().number, 7);
    }
}
