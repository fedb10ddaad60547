//! 6, primary component: what ends a view was adopted by more than half of its members, those left out of the count whose
//! death is proven and whose final rows can be read; by half, if all others are dead and only their rows can't be read. Two such
//! quorums meet, so a view never has two successors.
use super::{Invariant, Violation};
use spindle_core::Rank;

const INVARIANT: Invariant = Invariant(6, "primary component");

/// Who adopted which ballot in one view.
#[derive(Clone, Debug)]
pub struct Primary {
    members: usize,
    /// (ballot, who adopted it by bits)
    adopted: Vec<(u64, u64)>,
    decided: Vec<u64>,
}

impl Primary {
    /// For a view of so many members, at most 64.
    pub fn new(members: usize) -> Primary {
        Primary { members, adopted: vec![], decided: vec![] }
    }

    /// `member` stores `ballot` as the one that it has adopted.
    pub fn adopted(&mut self, member: Rank, ballot: u64) {
        match self.adopted.iter_mut().find(|(known, _)| *known == ballot) {
            Some((_, who)) => *who |= 1 << member.0,
            None => self.adopted.push((ballot, 1 << member.0)),
        }
    }

    /// `member` says that `ballot` is decided, when so many members are dead for certain and have been read, and so many are
    /// `gone`, dead too but unread. Answers whether it is the first to
    /// say so. Above one that was decided nothing else can be, so that a higher one only says the same again.
    ///
    /// # Errors
    /// If no quorum has adopted it.
    pub fn decided(&mut self, member: Rank, ballot: u64, dead: usize, gone: usize) -> Result<bool, Violation> {
        if self.decided.iter().any(|decided| *decided <= ballot) {
            return Ok(false);
        }
        self.decided.push(ballot);
        let who = self.adopted.iter().find(|(known, _)| *known == ballot).map_or(0, |(_, who)| *who);
        let (with, counted) = (who.count_ones() as usize, self.members - dead);
        if 2 * with > counted || (2 * with == counted && with + gone >= counted) {
            return Ok(true);
        }
        INVARIANT.broken(format!(
            "m{member} takes ballot {ballot:#x} as decided, which {} of {} members have adopted with {dead} proven dead",
            who.count_ones(),
            self.members
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_without_a_quorum_is_found() {
        let mut checker = Primary::new(4);
        checker.adopted(Rank(1), 9);
        checker.adopted(Rank(1), 9);
        checker.adopted(Rank(3), 9);
        assert_eq!(checker.clone().decided(Rank(1), 9, 0, 0).unwrap_err().number, 6, "half of four");
        assert_eq!(checker.clone().decided(Rank(1), 9, 1, 0), Ok(true), "two of three");
        assert!(checker.clone().decided(Rank(1), 8, 3, 0).is_err(), "a ballot that nobody adopted");
        assert!(checker.clone().decided(Rank(1), 9, 0, 1).is_err(), "half of four, and one of the others may live");
        assert_eq!(checker.clone().decided(Rank(1), 9, 0, 2), Ok(true), "half of four, and the others are no more");
        checker.adopted(Rank(0), 9);
        assert_eq!(checker.decided(Rank(1), 9, 0, 0), Ok(true));
        assert_eq!(checker.decided(Rank(3), 9, 0, 0), Ok(false));
        assert_eq!(checker.decided(Rank(2), 11, 0, 0), Ok(false), "a later leader has learnt of it");
        assert!(checker.decided(Rank(2), 8, 0, 0).is_err(), "one below it");
    }
}
