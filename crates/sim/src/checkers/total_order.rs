//! Invariant 1, total order: a subgroup with a total order has one list, and every member's n-th
//! delivery is its n-th entry.
use super::{Invariant, Violation};
use spindle_core::{Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(1, "total order");

/// The one list of every subgroup, and the progress of each member in it.
#[derive(Clone, Debug)]
pub struct TotalOrder {
    lists: Vec<Vec<(Rank, u64, u64)>>,
    next: Vec<Vec<usize>>,
}

impl TotalOrder {
    /// Returns a checker of so many subgroups and members.
    pub fn new(subgroups: usize, members: usize) -> TotalOrder {
        TotalOrder { lists: vec![vec![]; subgroups], next: vec![vec![0; members]; subgroups] }
    }

    /// Records that `member` delivers a message of `sender`. Returns true if it is the first member
    /// to do so.
    ///
    /// # Errors
    /// If another member delivered another message at this position.
    pub fn delivered(
        &mut self,
        subgroup: SubgroupId,
        member: Rank,
        sender: Rank,
        round: u64,
        digest: u64,
    ) -> Result<bool, Violation> {
        let list = &mut self.lists[subgroup.index()];
        let place = &mut self.next[subgroup.index()][member.index()];
        *place += 1;
        let entry = (sender, round, digest);
        match list.get(*place - 1) {
            Some(expected) if *expected == entry => Ok(false),
            Some(expected) => INVARIANT.broken(format!(
                "delivery {} of m{member} in s{subgroup} is round {round} of m{sender}, but another member's was round {} of m{}{}",
                *place - 1,
                expected.1,
                expected.0,
                if expected.2 == digest { "" } else { " with other bytes" },
            )),
            None => {
                list.push(entry);
                Ok(true)
            }
        }
    }

    /// Returns how many messages `member` has delivered, and how many any member has.
    pub fn counts(&self, subgroup: SubgroupId, member: Rank) -> (usize, usize) {
        (self.next[subgroup.index()][member.index()], self.lists[subgroup.index()].len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_orders_are_found() {
        let mut checker = TotalOrder::new(1, 2);
        let mut deliver =
            |member, sender, digest| checker.delivered(SubgroupId(0), Rank(member), Rank(sender), 0, digest);
        assert_eq!(deliver(0, 0, 1), Ok(true));
        assert_eq!(deliver(0, 1, 2), Ok(true));
        assert_eq!(deliver(1, 0, 1), Ok(false));
        assert_eq!(deliver(1, 0, 2).unwrap_err().number, 1);
    }

    #[test]
    fn other_bytes_in_the_same_place_are_found() {
        let mut checker = TotalOrder::new(1, 2);
        checker.delivered(SubgroupId(0), Rank(0), Rank(0), 0, 1).unwrap();
        assert!(checker.delivered(SubgroupId(0), Rank(1), Rank(0), 0, 9).is_err());
    }
}
