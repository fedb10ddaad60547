//! What members sent and delivered over all views, message by message.
//!
//! A sender's claims in a subgroup have numbers that go on from view to view. A message that is sent again in the next view
//! keeps its number; so a receiver's stream from a sender ascends for as long as both live.
use crate::ledger::Fate;
use spindle_core::SubgroupId;
use std::collections::BTreeMap;

/// One claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// What became of it.
    pub fate: Fate,
    /// Somebody delivered it.
    pub delivered: bool,
}

/// Everything that was sent, and how far each process is in it. Processes are numbered by the plan.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By process and subgroup.
    sent: BTreeMap<(usize, SubgroupId), Vec<Sent>>,
    /// By receiver, subgroup and sender: the number behind the last delivery.
    next: BTreeMap<(usize, SubgroupId, usize), u64>,
}

impl History {
    /// `sender` claims; answers the claim's number.
    pub fn claimed(&mut self, sender: usize, subgroup: SubgroupId) -> u64 {
        let sent = self.sent.entry((sender, subgroup)).or_default();
        sent.push(Sent { fate: Fate::Claimed, delivered: false });
        sent.len() as u64 - 1
    }

    /// The claim with this number was committed.
    pub fn committed(&mut self, sender: usize, subgroup: SubgroupId, number: u64, fate: Fate) {
        self.sent.get_mut(&(sender, subgroup)).expect("it has claimed")[number as usize].fate = fate;
    }

    /// `receiver` delivers the message with this number. Answers the number behind its last one, if there was any.
    pub fn delivered(&mut self, receiver: usize, subgroup: SubgroupId, sender: usize, number: u64) -> Option<u64> {
        if let Some(sent) = self.sent.get_mut(&(sender, subgroup)) {
            sent[number as usize].delivered = true;
        }
        self.next.insert((receiver, subgroup, sender), number + 1)
    }

    /// All claims of `sender`.
    pub fn sent(&self, sender: usize, subgroup: SubgroupId) -> &[Sent] {
        self.sent.get(&(sender, subgroup)).map_or(&[], Vec::as_slice)
    }

    /// The number behind the last message of `sender` that `receiver` has delivered.
    pub fn next(&self, receiver: usize, subgroup: SubgroupId, sender: usize) -> Option<u64> {
        self.next.get(&(receiver, subgroup, sender)).copied()
    }
}
