//! Invariant 8, uniformity: if any member delivered a message in a subgroup with a total order, all
//! members that continue delivered it too. This holds also if the first member crashed or was
//! evicted later.
use super::{Checked, Invariant};
use spindle_core::{Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(8, "uniformity");

/// The number of messages that the members that ended one view delivered, by subgroup.
#[derive(Clone, Debug)]
pub struct Uniformity {
    ends: Vec<Option<usize>>,
}

impl Uniformity {
    /// Returns a checker of so many subgroups.
    pub fn new(subgroups: usize) -> Uniformity {
        Uniformity { ends: vec![None; subgroups] }
    }

    /// Records that `member` has ended the view with `count` deliveries; the one list of the
    /// subgroup has `list` messages.
    ///
    /// # Errors
    /// If a member delivered more, or another member ended with another count.
    pub fn ended(&mut self, subgroup: SubgroupId, member: Rank, count: usize, list: usize) -> Checked {
        let end = *self.ends[subgroup.index()].get_or_insert(count);
        if end != count {
            return INVARIANT.broken(format!(
                "m{member} ends the view with {count} deliveries in s{subgroup}, another member with {end}"
            ));
        }
        if list > count {
            return INVARIANT.broken(format!(
                "m{member} ends the view with {count} deliveries in s{subgroup}, and another delivered {list}"
            ));
        }
        Ok(())
    }

    /// Checks the delivery number `place` of `member`, counted from 0.
    ///
    /// # Errors
    /// If other members have ended the view without it.
    pub fn delivered(&self, subgroup: SubgroupId, member: Rank, place: usize) -> Checked {
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
