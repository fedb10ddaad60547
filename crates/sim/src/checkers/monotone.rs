//! Invariant 11, monotone rows and single writer: no word of a control block decreases, in its
//! owner's row or in any copy. An engine writes only the control block of its own row and the
//! rounds of its own committed frames.
use super::{Checked, Invariant, Violation};
use crate::ledger::{ClaimState, SenderFrames};
use spindle_core::Rank;

const INVARIANT: Invariant = Invariant(11, "monotone rows, single writer");

/// The newest value of every word of every control block, as its owner stored it.
#[derive(Clone, Debug)]
pub struct Monotone {
    words: Vec<Vec<u64>>,
}

impl Monotone {
    /// Returns a checker of rows with so many bytes of control block each.
    pub fn new(control_bytes: &[u64]) -> Monotone {
        Monotone { words: control_bytes.iter().map(|bytes| vec![0; *bytes as usize / 8]).collect() }
    }

    /// Records that `writer` stores a control word of `owner`'s row, and returns the word's
    /// previous value.
    ///
    /// # Errors
    /// If the word decreases, or the row belongs to another member.
    pub fn stored(&mut self, writer: Rank, owner: Rank, at: u64, value: u64) -> Result<u64, Violation> {
        if writer != owner {
            return INVARIANT.broken(format!("m{writer} writes {value} at {at} of the row of m{owner}"));
        }
        let word = &mut self.words[owner.index()][at as usize / 8];
        if value < *word {
            return INVARIANT.broken(format!("m{owner} moves its word at {at} back from {word} to {value}"));
        }
        Ok(std::mem::replace(word, value))
    }

    /// Records that an owner stores a word of a proposal, which may take any value.
    pub fn replaced(&mut self, owner: Rank, at: u64, value: u64) {
        self.words[owner.index()][at as usize / 8] = value;
    }

    /// Returns the value that the owner stored last.
    pub fn newest(&self, owner: Rank, at: u64) -> u64 {
        self.words[owner.index()][at as usize / 8]
    }
}

/// Reports a word that decreased in a copy.
///
/// # Errors
/// Always.
pub fn went_back(holder: Rank, owner: Rank, at: u64, before: u64, now: u64) -> Checked {
    INVARIANT.broken(format!("the word at {at} of m{owner}'s row went back from {before} to {now} in m{holder}'s copy"))
}

/// Checks a write of the engine of `lane`'s sender at offset `at`, which is in its ring.
///
/// # Errors
/// If `at` isn't the round word of a committed frame that is not announced.
pub fn stamped(lane: &SenderFrames, at: u64) -> Checked {
    let mut waiting = lane.frames[lane.announced..].iter().filter(|frame| frame.fate != ClaimState::Claimed);
    if waiting.any(|frame| frame.at + 8 == at) {
        return Ok(());
    }
    INVARIANT.broken(format!("the engine of m{} writes at {at}, where no frame waits for its round", lane.sender))
}

/// Records that the engine of `lane`'s sender announces its ring up to `position`. From now on the
/// frames below `position` have the rounds that are stored in them, which `word` reads. Returns the
/// number of these frames.
///
/// # Errors
/// If the committed frames do not end exactly at `position`, or one of them is an object that some
/// members do not have.
pub fn announced(lane: &mut SenderFrames, position: u64, word: impl Fn(u64) -> u64) -> Result<usize, Violation> {
    let before = lane.announced;
    while lane.position < position {
        let committed =
            lane.frames.get_mut(lane.announced).filter(|frame| frame.fate != ClaimState::Claimed && !frame.held);
        let Some(frame) = committed else { break };
        let round = word(frame.at + 8);
        frame.round = Some(round);
        lane.position = lane.ring.after(lane.position, frame.span);
        (lane.announced, lane.spoken) = (lane.announced + 1, round + 1);
    }
    if lane.position != position {
        return INVARIANT.broken(format!(
            "m{} announces its ring up to {position}, and what it may announce ends at {}",
            lane.sender, lane.position
        ));
    }
    Ok(lane.announced - before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::example;
    use spindle_core::{Order, SubgroupId};

    #[test]
    fn a_word_that_goes_back_and_a_foreign_writer_are_found() {
        let mut checker = Monotone::new(&[128, 128]);
        assert_eq!(checker.stored(Rank(0), Rank(0), 64, 5), Ok(0));
        assert_eq!(checker.stored(Rank(0), Rank(0), 64, 5), Ok(5));
        assert_eq!(checker.stored(Rank(0), Rank(0), 64, 4).unwrap_err().number, 11);
        assert!(checker.stored(Rank(0), Rank(1), 64, 6).is_err());
        assert!(went_back(Rank(1), Rank(0), 64, 5, 4).is_err());
    }

    #[test]
    fn an_engine_that_writes_or_announces_what_is_not_committed_is_found() {
        let mut ledger = example(Order::Total);
        let index = ledger.claimed(SubgroupId(0), 0, 256, 64, 0);
        assert_eq!(stamped(&ledger.groups[0].lanes[0], 264).unwrap_err().number, 11);
        assert_eq!(announced(&mut ledger.groups[0].lanes[0], 64, |_| 0).unwrap_err().number, 11);
        ledger.committed(SubgroupId(0), 0, index, ClaimState::Void);
        let lane = &mut ledger.groups[0].lanes[0];
        assert!(stamped(lane, 272).is_err(), "in the payload");
        assert_eq!(stamped(lane, 264), Ok(()));
        assert!(announced(&mut lane.clone(), 32, |_| 0).is_err(), "in the middle of a frame");
        assert_eq!(announced(lane, 64, |_| 7), Ok(1));
        assert_eq!((lane.frames[0].round, lane.spoken), (Some(7), 8));
        assert!(stamped(lane, 264).is_err(), "announced");
    }
}
