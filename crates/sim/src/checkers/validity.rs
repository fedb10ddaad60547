//! 7, validity: once faults are over, every message that a surviving member's group accepted in a subgroup in which the member
//! still sends has been delivered, by somebody at least, and by every member that was there for the ones before it.
use super::{Invariant, Violation};
use crate::history::Sent;
use crate::ledger::Fate;
use spindle_core::{MemberId, SubgroupId};

const INVARIANT: Invariant = Invariant(7, "validity");

/// All that the survivor `sender` ever claimed in `subgroup`.
///
/// # Errors
/// If one of its messages was delivered by nobody.
pub fn delivered(sender: MemberId, subgroup: SubgroupId, sent: &[Sent]) -> Result<(), Violation> {
    let lost = sent.iter().position(|sent| matches!(sent.fate, Fate::Message { .. }) && !sent.delivered);
    match lost {
        Some(number) => INVARIANT.broken(format!(
            "message {number} of member {sender} in s{subgroup} was accepted, and nobody delivered it"
        )),
        None => Ok(()),
    }
}

/// As far as the survivor `receiver` is in them: its next one would have the number `next`.
///
/// # Errors
/// If it lacks one.
pub fn reached(
    receiver: MemberId,
    sender: MemberId,
    subgroup: SubgroupId,
    next: u64,
    sent: &[Sent],
) -> Result<(), Violation> {
    let missing = sent.iter().skip(next as usize).position(|sent| matches!(sent.fate, Fate::Message { .. }));
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
        let message = |delivered| Sent { fate: Fate::Message { len: 1, digest: 2 }, delivered };
        let void = Sent { fate: Fate::Void, delivered: false };
        let (sender, receiver, s) = (MemberId(5), MemberId(6), SubgroupId(0));
        let mut sent = vec![message(true), void, message(true), void];
        assert_eq!(delivered(sender, s, &sent), Ok(()));
        assert_eq!(reached(receiver, sender, s, 3, &sent), Ok(()));
        assert_eq!(reached(receiver, sender, s, 1, &sent).unwrap_err().number, 7);
        sent.push(message(false));
        assert_eq!(delivered(sender, s, &sent).unwrap_err().number, 7);
    }
}
