//! The numbers of proposals, and the words of a row that hold them.
use crate::ids::Rank;
use crate::mutation::mutation;
use crate::table::Rows;
use crate::wire::layout::membership;

/// The number of a proposal: compared by its round first, then by the rank of its leader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ballot {
    /// Counts the attempts of all leaders in the view, from 1.
    pub round: u32,
    /// The rank of the member that proposes under this number.
    pub leader: Rank,
}

/// No view takes more rounds. A higher number was not written by a correct member.
const ROUNDS_MAX: u32 = 1 << 30;

impl Ballot {
    /// The lowest ballot of `leader` above `top`.
    pub(crate) fn above(top: Option<Ballot>, leader: Rank) -> Ballot {
        Ballot { round: top.map_or(0, |top| top.round) + 1, leader }
    }

    /// The word of a row that names this ballot and the slot of its value.
    pub(crate) fn encode(self, slot: u64) -> u64 {
        u64::from(self.round) << 32 | (u64::from(self.leader.0) + 1) << 1 | slot
    }

    /// Reads a word of a peer in a view of so many members; `None` for zero and for words that no
    /// correct member writes.
    pub(crate) fn decode(word: u64, members: usize) -> Option<(Ballot, u64)> {
        let (round, leader) = ((word >> 32) as u32, ((word as u32) >> 1).checked_sub(1)?);
        let is_valid = (1..ROUNDS_MAX).contains(&round) && (leader as usize) < members;
        is_valid.then_some((Ballot { round, leader: Rank(leader) }, word & 1))
    }
}

/// One row as an acceptor of the agreement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Acceptor {
    /// The effective promise: the higher one of the words `PROMISED` and `ACCEPTED`.
    pub(crate) promised: Option<Ballot>,
    pub(crate) accepted: Option<Ballot>,
    /// The newest acceptance that is on the member's disk.
    pub(crate) persisted: Option<Ballot>,
}

impl Acceptor {
    /// Reads the row of `member` in a view of so many: `PROMISED` before `ACCEPTED`, so that a
    /// promise is never seen without the acceptance before it.
    pub(crate) fn read<R: Rows>(member: Rank, members: usize, rows: &R) -> Acceptor {
        let read = |at| Ballot::decode(rows.load(member, at), members).map(|(ballot, _)| ballot);
        let first = mutation!(AcceptedReadFirst).then(|| read(membership::ACCEPTED));
        let promised = read(membership::PROMISED);
        let accepted = first.unwrap_or_else(|| read(membership::ACCEPTED));
        Acceptor { promised: promised.max(accepted), accepted, persisted: read(membership::PERSISTED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_are_ordered_by_round_first_and_survive_the_word() {
        let ballot = |round, leader| Ballot { round, leader: Rank(leader) };
        let ascending = [ballot(1, 0), ballot(1, 1), ballot(1, 1023), ballot(2, 0), ballot(ROUNDS_MAX - 1, 7)];
        assert!(ascending.windows(2).all(|pair| pair[0] < pair[1] && pair[0].encode(1) < pair[1].encode(0)));
        for ballot in ascending {
            for slot in [0, 1] {
                assert_eq!(Ballot::decode(ballot.encode(slot), 1024), Some((ballot, slot)));
            }
        }
        assert_eq!(Ballot::above(None, Rank(3)), ballot(1, 3));
        assert_eq!(Ballot::above(Some(ballot(4, 9)), Rank(3)), ballot(5, 3));
    }

    #[test]
    fn words_that_no_member_writes_are_no_ballots() {
        let high = Ballot { round: ROUNDS_MAX, leader: Rank(0) }.encode(0);
        let stranger = Ballot { round: 1, leader: Rank(3) }.encode(1);
        for word in [0, 1, u64::MAX, high, stranger, 1 << 32] {
            assert_eq!(Ballot::decode(word, 3), None, "{word:#x}");
        }
    }
}
