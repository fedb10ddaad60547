//! 8, uniformity: whatever any member delivered in a subgroup with a total order, also one that crashed or was evicted
//! later, all members that go on delivered too.
use super::{Invariant, Violation};
use spindle_core::{Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(8, "uniformity");

/// By subgroup of one view: how many messages the members that ended it delivered.
#[derive(Clone, Debug)]
pub struct Uniformity {
    ends: Vec<Option<usize>>,
}

impl Uniformity {
    /// For so many subgroups.
    pub fn new(subgroups: usize) -> Uniformity {
        Uniformity { ends: vec![None; subgroups] }
    }

    /// `member` has ended the view with `count` deliveries; the one list of the subgroup has `list` messages.
    ///
    /// # Errors
    /// If somebody delivered more, or another member ended with another count.
    pub fn ended(&mut self, subgroup: SubgroupId, member: Rank, count: usize, list: usize) -> Result<(), Violation> {
        let end = *self.ends[subgroup.index()].get_or_insert(count);
        if end != count {
            return INVARIANT.broken(format!(
                "m{member} ends the view with {count} deliveries in s{subgroup}, another member with {end}"
            ));
        }
        if list > count {
            return INVARIANT.broken(format!(
                "m{member} ends the view with {count} deliveries in s{subgroup}, and somebody delivered {list}"
            ));
        }
        Ok(())
    }

    /// `member` makes its delivery number `place`, from 0.
    ///
    /// # Errors
    /// If the view has ended without it.
    pub fn delivered(&self, subgroup: SubgroupId, member: Rank, place: usize) -> Result<(), Violation> {
        match self.ends[subgroup.index()] {
            Some(end) if place >= end => INVARIANT.broken(format!(
                "m{member} makes delivery {place} in s{subgroup}, but others have ended the view with {end}"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: SubgroupId = SubgroupId(0);

    #[test]
    fn a_dead_members_extra_delivery_is_found() {
        let mut checker = Uniformity::new(1);
        assert_eq!(checker.delivered(S, Rank(2), 5), Ok(()));
        assert_eq!(checker.ended(S, Rank(0), 5, 6).unwrap_err().number, 8);
        assert_eq!(checker.ended(S, Rank(0), 5, 5), Ok(()));
        assert!(checker.ended(S, Rank(1), 4, 5).is_err(), "another end");
        assert_eq!(checker.delivered(S, Rank(2), 4), Ok(()), "it is behind");
        assert_eq!(checker.delivered(S, Rank(2), 5).unwrap_err().number, 8);
    }
}
