//! Invariant 31, read barrier: a member whose read barrier passes has delivered every message that any
//! member has delivered, in this view and in later ones.
use super::{Checked, Invariant};
use spindle_core::{MemberId, SubgroupId};

const INVARIANT: Invariant = Invariant(31, "read barrier");

/// Checks a barrier that has passed at `member`. It has made `delivered` deliveries in the epoch of the
/// subgroup, and all members together `all`. They have made `later` deliveries in later epochs.
///
/// # Errors
/// If the member lacks a message.
pub fn passed(member: MemberId, subgroup: SubgroupId, delivered: usize, all: usize, later: usize) -> Checked {
    if delivered < all {
        return INVARIANT.broken(format!(
            "the read barrier of member {member} in s{subgroup} passes after {delivered} deliveries, and others have made {all}"
        ));
    }
    if later > 0 {
        return INVARIANT.broken(format!(
            "the read barrier of member {member} in s{subgroup} passes, and others have made {later} deliveries in later epochs"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_behind_is_found() {
        let check = |delivered, all, later| passed(MemberId(1), SubgroupId(0), delivered, all, later);
        assert_eq!(check(3, 3, 0), Ok(()));
        assert_eq!(check(2, 3, 0).unwrap_err().number, 31);
        assert!(check(3, 3, 1).is_err());
    }
}
