//! Invariant 6, primary component: the decision that ends a view was accepted by a quorum of its
//! voters. More voters accepted it than may know of another decision. A voter that did not accept
//! can't know of another one if it is proven dead and its final row promises no higher ballot. Two
//! such quorums meet in a row that the later leader reads, so a view never has two successors.
use super::{Checked, Invariant};
use spindle_core::{Rank, View};

const INVARIANT: Invariant = Invariant(6, "primary component");

/// The voters of one view, as acceptors.
#[derive(Clone, Debug)]
pub struct Primary {
    /// One bit for each voter.
    voters: u64,
    /// By rank: the highest ballot that the voter has promised or accepted.
    promised: Vec<u64>,
    /// Each ballot with a bit mask of the members that accepted it.
    accepted: Vec<(u64, u64)>,
    decided: Vec<u64>,
}

impl Primary {
    /// Returns the checker of a view of at most 64 members.
    pub fn new(view: &View) -> Primary {
        let voters = view.ranks().filter(|rank| view.is_voter(*rank)).fold(0, |voters, rank| voters | 1 << rank.0);
        Primary { voters, promised: vec![0; view.members.len()], accepted: vec![], decided: vec![] }
    }

    /// Records that `member` stores `ballot` as the highest one that it has promised.
    pub fn promised(&mut self, member: Rank, ballot: u64) {
        let promised = &mut self.promised[member.index()];
        *promised = (*promised).max(ballot);
    }

    /// Records that `member` stores `ballot` as the one that it has accepted.
    ///
    /// # Errors
    /// If it has promised a higher one.
    pub fn accepted(&mut self, member: Rank, ballot: u64) -> Checked {
        let promised = self.promised[member.index()];
        if promised > ballot {
            return INVARIANT.broken(format!("m{member} accepts ballot {ballot:#x} after it promised {promised:#x}"));
        }
        self.promised(member, ballot);
        match self.accepted.iter_mut().find(|(known, _)| *known == ballot) {
            Some((_, who)) => *who |= 1 << member.0,
            None => self.accepted.push((ballot, 1 << member.0)),
        }
        Ok(())
    }

    /// Checks the report of `member` that `ballot` is decided. `is_final` is true for members that
    /// are proven dead and whose rows `member` can read to the end. Above a decided ballot the same
    /// value is decided again.
    ///
    /// # Errors
    /// If no quorum has accepted the ballot.
    pub fn decided(&mut self, member: Rank, ballot: u64, is_final: impl Fn(Rank) -> bool) -> Checked {
        if self.decided.iter().any(|decided| *decided <= ballot) {
            return Ok(());
        }
        self.decided.push(ballot);
        let who = self.accepted.iter().find(|(known, _)| *known == ballot).map_or(0, |(_, who)| *who & self.voters);
        let silent = |rank: &Rank| {
            let outside = (self.voters & !who) >> rank.0 & 1 == 1;
            outside && is_final(*rank) && self.promised[rank.index()] <= ballot
        };
        let dead = (0..self.promised.len() as u32).map(Rank).filter(silent).count() as u32;
        let (with, voters) = (who.count_ones(), self.voters.count_ones());
        if 2 * with + dead > voters {
            return Ok(());
        }
        INVARIANT.broken(format!(
            "m{member} takes ballot {ballot:#x} as decided, which {with} of {voters} voters have accepted with {dead} others proven dead"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::{MemberId, ViewId};

    fn of(members: u64) -> Primary {
        let members = (0..members).map(MemberId).collect();
        Primary::new(&View { id: ViewId(1), members, nonvoters: vec![], subgroups: Default::default() })
    }

    #[test]
    fn a_decision_without_a_quorum_is_found() {
        let mut checker = of(4);
        for member in [1, 1, 3] {
            checker.accepted(Rank(member), 9).unwrap();
        }
        let dead = |ranks: &'static [u32]| move |rank: Rank| ranks.contains(&rank.0);
        assert_eq!(checker.clone().decided(Rank(1), 9, dead(&[])).unwrap_err().number, 6, "half of four");
        assert!(checker.clone().decided(Rank(1), 9, dead(&[3])).is_err(), "it has accepted, and counts once");
        assert_eq!(checker.clone().decided(Rank(1), 9, dead(&[0])), Ok(()), "two of three");
        checker.promised(Rank(0), 10);
        assert!(checker.clone().decided(Rank(1), 9, dead(&[0])).is_err(), "the dead one knows of something higher");
        assert!(checker.clone().decided(Rank(1), 8, dead(&[0, 2, 3])).is_err(), "a ballot that no member accepted");
        checker.accepted(Rank(2), 9).unwrap();
        assert_eq!(checker.decided(Rank(1), 9, dead(&[])), Ok(()));
        assert_eq!(checker.decided(Rank(2), 11, dead(&[])), Ok(()), "a later leader has learnt of it");
        assert!(checker.decided(Rank(2), 8, dead(&[])).is_err(), "one below it");
        assert_eq!(checker.accepted(Rank(0), 9).unwrap_err().number, 6, "it has promised more");
    }

    #[test]
    fn members_that_do_not_vote_count_for_nothing() {
        let mut checker = of(3);
        checker.voters = 0b011;
        checker.accepted(Rank(1), 9).unwrap();
        checker.accepted(Rank(2), 9).unwrap();
        assert!(checker.clone().decided(Rank(1), 9, |_| false).is_err());
        checker.accepted(Rank(0), 9).unwrap();
        assert_eq!(checker.decided(Rank(1), 9, |_| false), Ok(()));
    }
}
