//! Invariant 13, the null rule: every round that a sender announces is a frame of its own, a
//! declared skip, or a null for which some other sender's message waits. When applications are
//! silent and everything is delivered, the group is silent too.
use super::{Checked, Invariant};
use crate::ledger::SubgroupRecord;
use spindle_core::{Rank, SubgroupId};

const INVARIANT: Invariant = Invariant(13, "null rule");

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    rounds: u64,
    /// Frames that got a round since `rounds` last increased.
    frames: u64,
    /// Rounds that the application skips and the engine has not announced.
    skipped: u64,
}

/// An account of the rounds of every sender.
#[derive(Clone, Debug)]
pub struct NullRule {
    accounts: Vec<Vec<Account>>,
    nulls: u64,
}

impl NullRule {
    /// Returns a checker of subgroups with so many senders each.
    pub fn new(senders: impl Iterator<Item = usize>) -> NullRule {
        NullRule { accounts: senders.map(|count| vec![Account::default(); count]).collect(), nulls: 0 }
    }

    /// Returns the number of nulls so far.
    pub fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Records that an application declares that it skips rounds.
    pub fn skipped(&mut self, subgroup: SubgroupId, sender: usize, rounds: u64) {
        self.accounts[subgroup.index()][sender].skipped += rounds;
    }

    /// Records that the engine writes `round` into its next frame.
    ///
    /// # Errors
    /// If the rounds before it are not exactly those that were announced, skipped or given to
    /// frames.
    pub fn stamped(&mut self, subgroup: SubgroupId, sender: usize, round: u64) -> Checked {
        let account = &mut self.accounts[subgroup.index()][sender];
        let expected = account.rounds + account.skipped + account.frames;
        account.frames += 1;
        if round != expected {
            return INVARIANT.broken(format!(
                "sender {sender} of s{subgroup} gives a frame round {round}, where {expected} is next"
            ));
        }
        Ok(())
    }

    /// Checks an announcement of `rounds` by the engine of `sender`. Call it after the frames
    /// before it are stamped.
    ///
    /// # Errors
    /// If the engine announces too few rounds, or more nulls than another sender's messages wait
    /// for.
    pub fn announced(&mut self, group: &SubgroupRecord, subgroup: SubgroupId, sender: usize, rounds: u64) -> Checked {
        let account = &mut self.accounts[subgroup.index()][sender];
        let explained = account.rounds + account.frames + account.skipped;
        *account = Account { rounds, frames: 0, skipped: 0 };
        if rounds < explained {
            return INVARIANT
                .broken(format!("sender {sender} of s{subgroup} announces {rounds} rounds, but has used {explained}"));
        }
        if rounds == explained {
            return Ok(());
        }
        self.nulls += rounds - explained;
        // A message in round k waits for round k of each sender of lower rank, and for the rounds
        // below k of each sender of higher rank.
        let waited = |(i, lane): (usize, &crate::ledger::SenderFrames)| match i {
            _ if i == sender || lane.spoken == 0 => 0,
            _ => lane.spoken - 1 + u64::from(sender < i),
        };
        let needed = group.lanes.iter().enumerate().map(waited).max().unwrap_or(0);
        if rounds > needed {
            return INVARIANT.broken(format!(
                "sender {sender} of s{subgroup} sends nulls up to {rounds}, but no receiver waits for more than {needed}"
            ));
        }
        Ok(())
    }
}

/// Checks a poll of `member` after the group was at rest with everything delivered.
///
/// # Errors
/// If the poll found work or posted.
pub fn at_rest(member: Rank, worked: bool, posts: u64) -> Checked {
    if !worked && posts == 0 {
        return Ok(());
    }
    INVARIANT.broken(format!("the group is at rest, but a poll of m{member} made {posts} posts (worked: {worked})"))
}

/// Reports a group that has delivered everything and yet does not come to rest.
///
/// # Errors
/// Always.
pub fn restless(events: u64) -> Checked {
    INVARIANT.broken(format!("everything is delivered, and after {events} events the group still posts"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{example, message};
    use spindle_core::Order;

    const S: SubgroupId = SubgroupId(0);

    #[test]
    fn nulls_that_no_member_waits_for_are_found() {
        let mut ledger = example(Order::Total);
        let mut checker = NullRule::new([2].into_iter());
        message(&mut ledger, 1, 5, 3);
        assert_eq!(checker.announced(&ledger.groups[0], S, 0, 4), Ok(()));
        assert_eq!(checker.nulls(), 4);
        assert_eq!(checker.announced(&ledger.groups[0], S, 0, 5).unwrap_err().number, 13);
        let mut ledger = example(Order::Total);
        message(&mut ledger, 0, 5, 3);
        let mut checker = NullRule::new([2].into_iter());
        assert!(
            checker.announced(&ledger.groups[0], S, 1, 4).is_err(),
            "a message before me doesn't wait for my round"
        );
    }

    #[test]
    fn rounds_that_are_not_accounted_for_are_found() {
        let ledger = example(Order::Total);
        let mut checker = NullRule::new([2].into_iter());
        assert_eq!(checker.stamped(S, 0, 0), Ok(()));
        assert_eq!(checker.stamped(S, 0, 1), Ok(()));
        assert!(checker.clone().announced(&ledger.groups[0], S, 0, 1).is_err(), "one frame too few");
        assert_eq!(checker.announced(&ledger.groups[0], S, 0, 2), Ok(()));
        checker.skipped(S, 0, 10);
        assert!(checker.clone().stamped(S, 0, 2).is_err(), "in a skipped round");
        assert_eq!(checker.stamped(S, 0, 12), Ok(()));
        assert_eq!(checker.announced(&ledger.groups[0], S, 0, 13), Ok(()));
    }

    #[test]
    fn a_group_that_is_not_silent_at_rest_is_found() {
        assert!(at_rest(Rank(0), false, 0).is_ok());
        assert!(at_rest(Rank(0), true, 0).is_err());
        assert_eq!(at_rest(Rank(0), false, 1).unwrap_err().number, 13);
        assert!(restless(9).is_err());
    }
}
