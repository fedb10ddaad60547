//! The messages that members sent and delivered over all views.
//!
//! A sender's claims in a subgroup have numbers that continue from view to view. A message that is
//! sent again in the next view keeps its number. So the numbers that a receiver gets from a sender
//! ascend for as long as both live.
use crate::ledger::ClaimState;
use spindle_core::SubgroupId;
use std::collections::BTreeMap;

/// One claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentMessage {
    /// The fate of the claim.
    pub fate: ClaimState,
    /// True if a member delivered it.
    pub delivered: bool,
}

/// All messages that were sent, and the progress of each process in them. Processes are numbered by
/// the plan.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By process and subgroup.
    sent: BTreeMap<(usize, SubgroupId), Vec<SentMessage>>,
    /// By receiver, subgroup and sender: the number after the last delivery.
    next: BTreeMap<(usize, SubgroupId, usize), u64>,
}

impl History {
    /// Records a claim of `sender` and returns the claim's number.
    pub fn claimed(&mut self, sender: usize, subgroup: SubgroupId) -> u64 {
        let sent = self.sent.entry((sender, subgroup)).or_default();
        sent.push(SentMessage { fate: ClaimState::Claimed, delivered: false });
        sent.len() as u64 - 1
    }

    /// Records that the claim with this number was committed.
    pub fn committed(&mut self, sender: usize, subgroup: SubgroupId, number: u64, fate: ClaimState) {
        self.sent.get_mut(&(sender, subgroup)).expect("it has claimed")[number as usize].fate = fate;
    }

    /// Records that `receiver` delivers the message with this number. Returns the number after its
    /// previous delivery, if it had one.
    pub fn delivered(&mut self, receiver: usize, subgroup: SubgroupId, sender: usize, number: u64) -> Option<u64> {
        if let Some(sent) = self.sent.get_mut(&(sender, subgroup)) {
            sent[number as usize].delivered = true;
        }
        self.next.insert((receiver, subgroup, sender), number + 1)
    }

    /// Returns all claims of `sender`.
    pub fn sent(&self, sender: usize, subgroup: SubgroupId) -> &[SentMessage] {
        self.sent.get(&(sender, subgroup)).map_or(&[], Vec::as_slice)
    }

    /// Returns the number after the last message of `sender` that `receiver` has delivered.
    pub fn next(&self, receiver: usize, subgroup: SubgroupId, sender: usize) -> Option<u64> {
        self.next.get(&(receiver, subgroup, sender)).copied()
    }
}
