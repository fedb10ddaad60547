//! Who is to blame for a group's end. A member that gives up because of another says whose death or departure it was, so
//! that those who hear of it second-hand, or meet its own end first, name the right one.
use crate::error::Ended;
use spindle_core::{Fault, Rank};

/// Why a member gave the group up, as it stands in the `ABANDONED` word of its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Its own decision, or something that only it knows of.
    Own,
    /// That member died.
    Died(Rank),
    /// That member gave the group up before.
    Abandoned(Rank),
}

const OWN: u64 = 1;
const DIED: u64 = 2;
const ABANDONED: u64 = 3;

impl Cause {
    /// Why a member is going for which the group had ended in this way, if it had.
    pub(crate) fn of(ended: Option<&Ended>) -> Cause {
        match ended {
            Some(Ended::Died { rank, .. }) => Cause::Died(*rank),
            Some(Ended::Abandoned { rank, .. }) => Cause::Abandoned(*rank),
            _ => Cause::Own,
        }
    }

    /// The word; never 0.
    pub(crate) fn encode(self) -> u64 {
        let (kind, rank) = match self {
            Cause::Own => (OWN, 0),
            Cause::Died(rank) => (DIED, rank.0),
            Cause::Abandoned(rank) => (ABANDONED, rank.0),
        };
        u64::from(rank) << 8 | kind
    }

    /// What a peer in a view of `members` wrote; nonsense is its own decision, 0 is none.
    fn decode(word: u64, members: u32) -> Option<Cause> {
        let rank = u32::try_from(word >> 8).ok().filter(|rank| *rank < members).map(Rank);
        match (word & 0xff, rank) {
            _ if word == 0 => None,
            (DIED, Some(rank)) => Some(Cause::Died(rank)),
            (ABANDONED, Some(rank)) => Some(Cause::Abandoned(rank)),
            _ => Some(Cause::Own),
        }
    }
}

/// What stopped this member, given the `ABANDONED` word of the member that the engine names. `me` knows that it lives.
pub(crate) fn trace_back(fault: Fault, word: u64, me: Rank, members: u32) -> Fault {
    let (Fault::Died { member } | Fault::Abandoned { member }) = fault else { return fault };
    match Cause::decode(word, members) {
        Some(Cause::Died(first)) if first != me => Fault::Died { member: first },
        Some(Cause::Abandoned(first)) if first != me => Fault::Abandoned { member: first },
        Some(_) => Fault::Abandoned { member },
        None => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_survive_the_word_and_nonsense_is_the_members_own() {
        for cause in [Cause::Own, Cause::Died(Rank(0)), Cause::Died(Rank(1023)), Cause::Abandoned(Rank(7))] {
            assert_eq!(Cause::decode(cause.encode(), 1024), Some(cause));
        }
        assert_eq!(Cause::decode(0, 4), None);
        for word in [4, 0xff, Cause::Died(Rank(4)).encode(), u64::MAX] {
            assert_eq!(Cause::decode(word, 4), Some(Cause::Own));
        }
    }
}
