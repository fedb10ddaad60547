//! Invariant 18, one incarnation: two groups of one name never both live, whatever restarts, delays
//! and partitions occur.
use super::{Checked, Invariant};
use spindle_core::control::{BootstrapBallot, BootstrapMessage};
use std::collections::{BTreeMap, BTreeSet};

const ONE_INCARNATION: Invariant = Invariant(18, "one incarnation");

/// The groups that were created, and the processes that acknowledged each.
#[derive(Clone, Debug, Default)]
pub struct OneIncarnation {
    begun: BTreeSet<u128>,
    /// The processes that have acknowledged an incarnation.
    pledged: BTreeMap<u128, BTreeSet<u64>>,
}

impl OneIncarnation {
    /// Records that a process has acknowledged that it will be in the first view of this group.
    pub fn pledges(&mut self, process: u64, incarnation: u128) {
        self.pledged.entry(incarnation).or_default().insert(process);
    }

    /// Returns how many groups have begun.
    pub fn count(&self) -> u64 {
        self.begun.len() as u64
    }

    /// Records that a process begins the first view of this group, with these processes.
    /// `remembered` contains the groups that a seed's process remembers or belongs to. `by_word` is
    /// true if an operator requested a new group.
    ///
    /// # Errors
    /// If another group exists, or the view has a process that does not know of this group. The
    /// founder's own acknowledgement is not seen.
    pub fn begins(
        &mut self,
        incarnation: u128,
        members: &[u64],
        remembered: &BTreeSet<u128>,
        by_word: bool,
    ) -> Checked {
        let other = self.begun.iter().find(|other| **other != incarnation && remembered.contains(other));
        if let Some(other) = other.filter(|_| !by_word && !self.begun.contains(&incarnation)) {
            return ONE_INCARNATION
                .broken(format!("group {incarnation:032x} begins, although {other:032x} has begun and is remembered"));
        }
        let none = BTreeSet::new();
        let pledged = self.pledged.get(&incarnation).unwrap_or(&none);
        let strangers: Vec<&u64> = members.iter().filter(|process| !pledged.contains(process)).collect();
        if strangers.len() > 1 {
            return ONE_INCARNATION.broken(format!(
                "the first view of group {incarnation:032x} has processes {strangers:?}, which have not acknowledged it"
            ));
        }
        self.begun.insert(incarnation);
        Ok(())
    }
}

/// Checks a message that a seed with a disk sends while the disk contains this promise and this
/// vote.
///
/// # Errors
/// If the message contains a promise or a vote that is not on the disk.
pub fn told(message: &BootstrapMessage, promised: BootstrapBallot, voted: Option<BootstrapBallot>) -> Checked {
    let is_there = match message {
        BootstrapMessage::Promise { ballot, .. } => *ballot <= promised,
        BootstrapMessage::Accepted { ballot, .. } => Some(*ballot) <= voted,
        _ => true,
    };
    match is_there {
        true => Ok(()),
        false => ONE_INCARNATION
            .broken(format!("{message:?} is sent, and the disk has {promised:?} and a vote in {voted:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_before_its_write_is_found() {
        let [low, high] = [1, 2].map(|round| BootstrapBallot { round, seed: 0 });
        told(&BootstrapMessage::Promise { ballot: low, durable: true, accepted: None }, high, None).unwrap();
        assert!(told(&BootstrapMessage::Promise { ballot: high, durable: true, accepted: None }, low, None).is_err());
        told(&BootstrapMessage::Accepted { ballot: low, durable: true }, high, Some(high)).unwrap();
        assert!(told(&BootstrapMessage::Accepted { ballot: low, durable: true }, high, None).is_err());
    }

    #[test]
    fn a_second_group_is_found_while_the_first_is_remembered() {
        let mut groups = OneIncarnation::default();
        let (none, first) = (BTreeSet::new(), BTreeSet::from([7]));
        groups.begins(7, &[1], &none, false).unwrap();
        groups.begins(7, &[1], &first, false).unwrap();
        assert!(groups.clone().begins(8, &[2], &first, false).is_err());
        groups.clone().begins(8, &[2], &first, true).unwrap();
        groups.begins(8, &[2], &none, false).unwrap();
        assert_eq!(groups.count(), 2);
    }

    #[test]
    fn a_member_that_knows_of_nothing_is_found() {
        let mut groups = OneIncarnation::default();
        groups.pledges(2, 7);
        let none = BTreeSet::new();
        groups.clone().begins(7, &[1, 2], &none, false).unwrap();
        assert!(groups.begins(7, &[1, 2, 3], &none, false).is_err());
    }
}
