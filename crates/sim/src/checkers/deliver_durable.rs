//! Invariant 28, durable before delivery: where only durable messages are delivered, a message is on
//! the disks of all members of the subgroup, and of enough members, before any of them delivers it. So a
//! crash of all processes erases nothing that an application has got.
use super::{Checked, Invariant};
use spindle_core::{MemberId, Position};

const INVARIANT: Invariant = Invariant(28, "durable before delivery");

/// Checks that the disk of `holder` has the message at `position`, which `by` delivers. `on_disk` is the
/// newest record on that disk.
///
/// # Errors
/// If it does not.
pub fn delivered(by: MemberId, position: Position, holder: MemberId, on_disk: Option<Position>) -> Checked {
    match on_disk >= Some(position) {
        true => Ok(()),
        false => {
            INVARIANT.broken(format!("#{by} delivers {position:?}, and the disk of #{holder} ends with {on_disk:?}"))
        }
    }
}

/// Checks the number of members of a subgroup in which `by` delivers a message while the epoch lasts.
///
/// # Errors
/// If they are fewer than `copies`.
pub fn enough(by: MemberId, position: Position, members: usize, copies: u32) -> Checked {
    match members >= copies as usize {
        true => Ok(()),
        false => INVARIANT.broken(format!(
            "#{by} delivers {position:?} in a subgroup of {members} members that wants {copies} copies"
        )),
    }
}

/// Checks that no message is cut off that a member has delivered: `delivered` is the last one.
///
/// # Errors
/// If one is.
pub fn cut(member: MemberId, from: Position, delivered: Option<Position>) -> Checked {
    match delivered.filter(|delivered| delivered.epoch == from.epoch && *delivered >= from) {
        None => Ok(()),
        Some(delivered) => {
            INVARIANT.broken(format!("the log of #{member} is cut at {from:?}, and {delivered:?} was delivered"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::ViewId;

    #[test]
    fn a_delivery_before_the_disks_is_found() {
        let [me, other] = [1, 2].map(MemberId);
        let at = |sequence| Position { epoch: ViewId(1), sequence };
        assert_eq!(delivered(me, at(3), other, Some(at(3))), Ok(()));
        assert_eq!(delivered(me, at(3), other, Some(at(2))).unwrap_err().number, 28);
        assert!(delivered(me, at(0), other, None).is_err());
        assert!(enough(me, at(0), 2, 2).is_ok() && enough(me, at(0), 1, 2).is_err());
        assert!(cut(me, at(4), Some(at(3))).is_ok() && cut(me, at(4), None).is_ok());
        assert!(cut(me, at(4), Some(at(4))).is_err());
    }
}
