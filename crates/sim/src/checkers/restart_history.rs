//! Invariant 10, durable prefix, across restarts: the messages of one subgroup in their order, with
//! those that were acknowledged as durable.
use super::{Checked, Invariant};
use spindle_core::Position;
use std::collections::{BTreeMap, BTreeSet};

const DURABLE: Invariant = Invariant(10, "durable prefix");

/// A message.
#[derive(Clone, Debug)]
pub struct RestartMessageEntry {
    /// Its position.
    pub position: Position,
    /// Its content.
    pub digest: u64,
    /// The disks that had it when it was acknowledged as durable.
    pub durable: Option<BTreeSet<u32>>,
    /// The disks on which it ever was.
    pub synced: BTreeSet<u32>,
    /// True if no disk has it any more, for a reason that was proved.
    pub gone: bool,
}

/// The messages of one subgroup, in order.
#[derive(Clone, Debug, Default)]
pub struct RestartHistory {
    entries: Vec<RestartMessageEntry>,
    /// All messages that ever had a position.
    digests: BTreeMap<Position, u64>,
}

impl RestartHistory {
    /// Returns the messages.
    pub fn entries(&self) -> &[RestartMessageEntry] {
        &self.entries
    }

    /// Returns the index of the first message after this position.
    pub fn after(&self, position: Option<Position>) -> usize {
        self.entries.partition_point(|entry| Some(entry.position) <= position)
    }

    /// Returns the index of a message.
    pub fn index(&self, position: Position) -> Option<usize> {
        self.entries.binary_search_by_key(&position, |entry| entry.position).ok()
    }

    /// Adds a message.
    ///
    /// # Errors
    /// If another message had this position, or it is not the last one.
    pub fn append(&mut self, position: Position, digest: u64) -> Checked {
        if let Some(other) = self.digests.insert(position, digest).filter(|other| *other != digest) {
            return DURABLE
                .broken(format!("{position:?} is the position of {digest:016x}, and was that of {other:016x}"));
        }
        if self.entries.last().is_some_and(|last| last.position >= position) {
            return DURABLE.broken(format!("{position:?} follows {:?}", self.entries.last()));
        }
        let (durable, synced) = Default::default();
        self.entries.push(RestartMessageEntry { position, digest, durable, synced, gone: false });
        Ok(())
    }

    /// Notes that a disk has a message.
    pub fn synced(&mut self, index: usize, disk: u32) {
        self.entries[index].synced.insert(disk);
    }

    /// Notes that a message is acknowledged as durable.
    pub fn acknowledged(&mut self, index: usize, disks: BTreeSet<u32>) {
        self.entries[index].durable.get_or_insert(disks);
    }

    /// Removes the messages from `index` on, because the group continues without them.
    ///
    /// # Errors
    /// If one of them is durable, and `is_excused` does not hold.
    pub fn cut(&mut self, index: usize, is_excused: impl Fn(&RestartMessageEntry) -> bool) -> Checked {
        for entry in self.entries.drain(index.min(self.entries.len())..) {
            if entry.durable.is_some() && !entry.gone && !is_excused(&entry) {
                return DURABLE.broken(format!("the group continues without the durable message {entry:?}"));
            }
        }
        Ok(())
    }

    /// Notes that no disk has a message any more, although later ones exist.
    ///
    /// # Errors
    /// If `is_excused` does not hold.
    pub fn lose(&mut self, index: usize, is_excused: impl Fn(&RestartMessageEntry) -> bool) -> Checked {
        let entry = &mut self.entries[index];
        if !entry.gone && !is_excused(entry) {
            return DURABLE.broken(format!("the group continues with later messages and without {entry:?}"));
        }
        entry.gone = true;
        Ok(())
    }

    /// Checks that a log has the messages below `end`, except those for which `is_excused` holds, and
    /// no others.
    ///
    /// # Errors
    /// If it does not.
    pub fn compare(
        &self,
        log: &[(Position, u64)],
        end: usize,
        is_excused: impl Fn(&RestartMessageEntry) -> bool,
    ) -> Checked {
        let has: BTreeMap<Position, u64> = log.iter().copied().collect();
        for entry in &self.entries[..end.min(self.entries.len())] {
            match has.get(&entry.position) {
                Some(digest) if *digest != entry.digest => {
                    return DURABLE.broken(format!("a log has {digest:016x} instead of {entry:?}"));
                }
                None if !entry.gone && !is_excused(entry) => {
                    return DURABLE.broken(format!("a log that is complete lacks {entry:?}"));
                }
                _ => {}
            }
        }
        match log.iter().find(|(position, _)| self.index(*position).is_none()) {
            Some((position, _)) => DURABLE.broken(format!("a log has {position:?}, and the group has not")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::ViewId;

    fn at(epoch: u64, sequence: u64) -> Position {
        Position { epoch: ViewId(epoch), sequence }
    }

    fn history() -> RestartHistory {
        let mut history = RestartHistory::default();
        (0..4).for_each(|sequence| history.append(at(1, sequence), sequence).unwrap());
        history.acknowledged(1, BTreeSet::from([7]));
        history
    }

    #[test]
    fn a_position_with_two_messages_is_found() {
        let mut history = history();
        assert!(history.append(at(1, 2), 2).is_err());
        history.cut(2, |_| false).unwrap();
        history.clone().append(at(1, 2), 2).unwrap();
        assert!(history.append(at(1, 2), 9).is_err());
    }

    #[test]
    fn a_durable_message_that_is_lost_is_found() {
        assert!(history().cut(1, |_| false).is_err());
        history().cut(1, |_| true).unwrap();
        assert!(history().lose(0, |_| false).is_err());
    }

    #[test]
    fn logs_that_differ_are_found() {
        let (history, log) = (history(), [(at(1, 0), 0), (at(1, 1), 1)]);
        history.compare(&log, 2, |_| false).unwrap();
        assert!(history.compare(&log, 3, |_| false).is_err());
        history.compare(&log, 3, |entry| entry.position == at(1, 2)).unwrap();
        assert!(history.compare(&[(at(1, 0), 5)], 1, |_| false).is_err());
        assert!(history.compare(&[(at(1, 0), 0), (at(9, 0), 5)], 1, |_| false).is_err());
    }
}
