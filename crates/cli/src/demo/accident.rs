//! The kill of a member in the middle of a run (`--kill`): the victim, the time, how long until the
//! others continued, and the process that replaces it.
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kill that the demo makes.
#[derive(Debug)]
pub(super) struct Accident {
    /// The row of the member that is killed.
    pub(super) victim: usize,
    pub(super) stage: KillStage,
    killed_ns: u64,
    /// The first view without the victim.
    view: Option<u64>,
    /// Times by id: the start of that view, and the delivery of its first message.
    began_ns: BTreeMap<u64, u64>,
    first_ns: BTreeMap<u64, u64>,
}

/// The stage of the kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KillStage {
    /// No member has been killed.
    Before,
    /// The victim is dead, and some of the others have not continued yet.
    Killed,
    /// The others have continued, and the new member has not joined yet.
    Replaced,
    /// The new member has joined.
    Over,
}

impl Accident {
    pub(super) fn new(members: u32) -> Accident {
        // The victim is not the first member, which may be the only sender.
        let victim = members as usize / 2;
        let (began_ns, first_ns) = Default::default();
        Accident { victim, stage: KillStage::Before, killed_ns: 0, view: None, began_ns, first_ns }
    }

    pub(super) fn victim_id(&self) -> u64 {
        self.victim as u64 + 1
    }

    pub(super) fn strike(&mut self, now_ns: u64) {
        (self.stage, self.killed_ns) = (KillStage::Killed, now_ns);
    }

    /// Records that a member has begun a view.
    pub(super) fn begun(&mut self, id: u64, view: u64, members: &[u64], at_ns: u64) {
        let without = self.stage == KillStage::Killed && !members.contains(&self.victim_id());
        if without && view <= *self.view.get_or_insert(view) {
            self.began_ns.insert(id, at_ns);
        }
    }

    /// Records that a member has delivered its first message in a view.
    pub(super) fn delivered(&mut self, id: u64, view: u64, at_ns: u64) {
        if self.view == Some(view) {
            self.first_ns.entry(id).or_insert(at_ns);
        }
    }

    /// Returns the times of each survivor, once all of them deliver again.
    pub(super) fn survived(&self, survivors: &[u64]) -> Option<(u64, Vec<Survivor>)> {
        let since = |ns: &u64| ns.saturating_sub(self.killed_ns);
        let survivor = |id: &u64| {
            let (began_ns, first_ns) = (since(self.began_ns.get(id)?), since(self.first_ns.get(id)?));
            Some(Survivor { id: *id, began_ns, first_ns })
        };
        Some((self.view?, survivors.iter().map(survivor).collect::<Option<_>>()?))
    }
}

/// Times since the kill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survivor {
    pub(super) id: u64,
    /// Time until the next view began.
    pub(super) began_ns: u64,
    /// Time until its first message was delivered.
    pub(super) first_ns: u64,
}

impl Survivor {
    pub(super) fn json(&self) -> Value {
        json!({"member": self.id, "view_ns": self.began_ns, "delivery_ns": self.first_ns})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_kill_to_the_first_delivery_in_the_view_without_the_victim() {
        let mut accident = Accident::new(3);
        assert_eq!(accident.victim_id(), 2);
        accident.begun(1, 2, &[1, 3], 5);
        accident.strike(10);
        accident.delivered(1, 1, 11);
        accident.begun(1, 2, &[1, 3], 12);
        accident.begun(3, 2, &[1, 3], 13);
        accident.delivered(1, 2, 15);
        assert!(accident.survived(&[1, 3]).is_none(), "the other has delivered nothing");
        accident.delivered(3, 2, 16);
        let (view, survivors) = accident.survived(&[1, 3]).unwrap();
        let times: Vec<_> = survivors.iter().map(|s| (s.id, s.began_ns, s.first_ns)).collect();
        assert_eq!((view, times), (2, vec![(1, 2, 5), (3, 3, 6)]));
    }
}
