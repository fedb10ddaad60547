//! The processes that wait at the process that may create the group with them.
use super::{Asks, CLAIM_FOR, Refusal, SeedClaim, SharedSettings, admits};
use crate::ids::{CLIENT_IDS_FROM, MemberId, Time};
use crate::mutation::mutation;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The processes that wait to create the group.
#[derive(Debug)]
pub struct Founder {
    settings: SharedSettings,
    /// The number of members that create the group, 0 if it restarts, and the maximum number.
    members: u32,
    room: u32,
    /// The processes that wait among the same seeds.
    asking: BTreeMap<MemberId, FounderWaiter>,
    /// The seeds among which this process creates the group.
    claim: SeedClaim,
    /// The processes that wait among other seeds, and when they asked last.
    unlike: BTreeMap<MemberId, Time>,
    /// The processes that wait with other settings, and when they asked last.
    differing: BTreeMap<MemberId, Time>,
    /// The processes that were present last, as reported to the waiting ones.
    present: Vec<(MemberId, u32)>,
    /// True if a process has asked or gone since that report.
    changed: bool,
}

#[derive(Debug)]
struct FounderWaiter {
    pid: u32,
    asked: Time,
}

impl Founder {
    /// Returns a process that creates a group of `members` members, or of up to `room`, with
    /// processes that have the same settings.
    pub fn new(settings: SharedSettings, members: u32, room: u32) -> Founder {
        let (asking, claim, unlike, differing, present, changed) = Default::default();
        Founder { settings, members, room, asking, claim, unlike, differing, present, changed }
    }

    /// Notes that no group is created: one restarts.
    pub(super) fn create_none(&mut self) {
        self.members = 0;
    }

    /// Takes in the seeds among which the group is created, and whether this process creates it
    /// (`creates`). Processes that waited before ask again.
    pub fn take_up(&mut self, creates: bool, claim: SeedClaim, now: Time) {
        if !creates || claim != self.claim {
            self.asking.clear();
            self.unlike.clear();
        }
        self.claim = claim;
        self.unlike.retain(|_, asked| now.since(*asked) < CLAIM_FOR);
        if claim.is_some() {
            // A process that does not repeat its claim may be about to make another.
            self.asking.retain(|_, waiter| now.since(waiter.asked) < CLAIM_FOR);
        }
    }

    /// Takes in a request of a process. Returns the answer, if it gets one at once: a refusal, or
    /// that it has to wait.
    pub fn asked(&mut self, asks: &Asks, now: Time) -> Option<Option<Refusal>> {
        let id = asks.id;
        if !admits(self.settings.digest(), asks.config, asks.observer) {
            self.changed |= self.asking.remove(&id).is_some();
            if self.differing.contains_key(&id) || (self.differing.len() as u32) < self.room {
                self.differing.insert(id, now);
            }
            // It does not adopt these settings: another process may create the group with its own.
            return Some(Some(Refusal::Config { settings: self.settings.clone(), incarnation: 0 }));
        }
        self.differing.remove(&id);
        if asks.members == 0 && self.members != 0 {
            // The process restarts another group, and takes no part in the creation of this one.
            self.changed |= self.asking.remove(&id).is_some();
            return Some(None);
        }
        // A process that specifies 1 accepts any number.
        if asks.members != self.members && asks.members != 1 && self.members > 1 {
            return Some(Some(Refusal::Founders(self.members)));
        }
        if id.0 >= CLIENT_IDS_FROM {
            // The process only observes, and takes no part in the bootstrap.
            return Some(None);
        }
        if asks.seeds != self.claim {
            // The process may create a group, or be needed for another one. The answer keeps it
            // from creating one while this process is about to.
            self.changed |= self.asking.remove(&id).is_some();
            if self.unlike.contains_key(&id) || (self.unlike.len() as u32) < self.room {
                self.unlike.insert(id, now);
            }
            return Some(None);
        }
        self.changed = true;
        self.unlike.remove(&id);
        if self.asking.contains_key(&id) || (self.asking.len() as u32) + 1 < self.room {
            self.asking.insert(id, FounderWaiter { pid: asks.pid, asked: now });
        }
        None
    }

    /// Notes that a process has gone.
    pub fn forget(&mut self, id: MemberId) {
        if mutation!(GoneFound) {
            return;
        }
        self.changed |= self.asking.remove(&id).is_some();
        self.unlike.remove(&id);
        self.differing.remove(&id);
    }

    /// Notes which processes are present, including this one. Returns them, and whether all waiting
    /// processes know that already. If not, the caller reports it to them.
    pub fn settle(&mut self, me: (MemberId, u32)) -> (Vec<(MemberId, u32)>, bool) {
        let others = self.asking.iter().map(|(id, waiter)| (*id, waiter.pid));
        let mut present: Vec<(MemberId, u32)> = others.chain([me]).collect();
        present.sort_unstable();
        let is_settled = !core::mem::take(&mut self.changed) && present == self.present;
        self.present.clone_from(&present);
        (present, is_settled)
    }

    /// Returns the processes that wait among the same seeds.
    pub fn waiting(&self) -> Vec<MemberId> {
        self.asking.keys().copied().collect()
    }

    /// Returns all processes that would create the group now, in order.
    pub fn members(&self, me: MemberId) -> Vec<MemberId> {
        let mut members: Vec<MemberId> = self.asking.keys().copied().chain([me]).collect();
        members.sort_unstable();
        members
    }

    /// Returns the processes that were present last, as reported to the waiting ones.
    pub fn present(&self) -> &[(MemberId, u32)] {
        &self.present
    }

    /// Returns the number of processes that wait among other seeds.
    pub fn unlike(&self) -> u32 {
        self.unlike.len() as u32
    }

    /// Returns the number of processes that wait with other settings.
    pub fn differing(&self, now: Time) -> u32 {
        self.differing.values().filter(|asked| now.since(**asked) < CLAIM_FOR).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::Instance;
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use core::num::NonZeroU64;

    const START: Time = Time(0);
    const ME: (MemberId, u32) = (MemberId(1), 1);

    fn settings(window: u64) -> SharedSettings {
        SharedSettings::new([("window".into(), window.to_string())])
    }

    fn claim(number: u64) -> SeedClaim {
        NonZeroU64::new(number)
    }

    fn asks(id: u64, seeds: SeedClaim) -> Asks {
        let instance = Instance::Far(id.into());
        Asks {
            id: MemberId(id),
            pid: 7,
            instance,
            config: settings(9).digest(),
            members: 2,
            observer: false,
            follows: crate::ViewId(0),
            seeds,
            id_conflict: None,
        }
    }

    fn ids<V>(map: &BTreeMap<MemberId, V>) -> Vec<u64> {
        map.keys().map(|id| id.0).collect()
    }

    fn heard<const COUNT: usize>(founder: &mut Founder, asking: [(u64, SeedClaim); COUNT]) -> (Vec<u64>, Vec<u64>) {
        for (id, seeds) in asking {
            founder.asked(&asks(id, seeds), START);
        }
        (ids(&founder.asking), ids(&founder.unlike))
    }

    #[test]
    fn processes_with_other_seeds_get_an_answer_and_are_not_counted() {
        let mut founder = Founder::new(settings(9), 2, 10);
        founder.take_up(true, claim(5), START);
        assert_eq!(founder.asked(&asks(3, claim(6)), START), Some(None));
        let first = [(2, claim(5)), (3, claim(6)), (4, None)];
        assert_eq!(heard(&mut founder, first), (vec![2], vec![3, 4]));
        // The processes change their claims.
        let second = [(2, claim(6)), (3, claim(5)), (4, claim(5))];
        assert_eq!(heard(&mut founder, second), (vec![3, 4], vec![2]));
        founder.forget(MemberId(2));
        assert_eq!(heard(&mut founder, []), (vec![3, 4], vec![]));
        // This process changes its claim, too. The process that waits among the same seeds has not
        // repeated its claim yet.
        founder.take_up(true, claim(6), START);
        assert_eq!(heard(&mut founder, []), (vec![], vec![]));
        // If each seed is one process, a process that takes it for several is not counted.
        founder.take_up(true, None, START);
        assert_eq!(heard(&mut founder, [(2, claim(6)), (3, None)]), (vec![3], vec![2]));
        founder.take_up(false, None, START);
        assert_eq!(heard(&mut founder, []), (vec![], vec![]));
    }

    #[test]
    fn a_process_that_does_not_repeat_its_claim_waits_no_more() {
        let mut founder = Founder::new(settings(9), 2, 10);
        founder.take_up(true, claim(5), START);
        founder.asked(&asks(2, claim(5)), START);
        founder.asked(&asks(3, claim(5)), START + CLAIM_FOR / 2);
        founder.take_up(true, claim(5), START + CLAIM_FOR);
        assert_eq!(founder.waiting(), [MemberId(3)]);
    }

    #[test]
    fn processes_that_do_not_fit_are_refused() {
        let mut founder = Founder::new(settings(9), 2, 10);
        let mut answer = |change: fn(&mut Asks)| {
            let mut asks = asks(2, None);
            change(&mut asks);
            founder.asked(&asks, START)
        };
        let other = Refusal::Config { settings: settings(9), incarnation: 0 };
        assert_eq!(answer(|asks| asks.config = 8), Some(Some(other)));
        assert_eq!(answer(|asks| asks.members = 3), Some(Some(Refusal::Founders(2))));
        assert_eq!(answer(|asks| asks.id = MemberId(CLIENT_IDS_FROM)), Some(None));
        assert_eq!(answer(|asks| asks.members = 1), None);
        assert_eq!(founder.differing(START), 0, "it has the same settings by now");
        founder.asked(&Asks { config: 8, ..asks(2, None) }, START);
        assert_eq!((founder.differing(START), founder.waiting()), (1, vec![]));
        assert_eq!(founder.differing(START + CLAIM_FOR), 0, "it has not asked again");
    }

    #[test]
    fn all_that_wait_are_told_before_the_group_is_founded() {
        let mut founder = Founder::new(settings(9), 2, 2);
        assert_eq!(founder.settle(ME), (vec![ME], false));
        assert_eq!(founder.settle(ME), (vec![ME], true));
        founder.asked(&asks(2, None), START);
        // The group has room for only one more.
        founder.asked(&asks(3, None), START);
        let both = vec![ME, (MemberId(2), 7)];
        assert_eq!(founder.settle(ME), (both.clone(), false));
        assert_eq!(founder.settle(ME), (both, true));
        founder.forget(MemberId(2));
        assert_eq!(founder.settle(ME), (vec![ME], false));
    }

    #[cfg(mutation)]
    #[test]
    #[ignore = "wants a process of its own: cargo xtask mutations"]
    fn mutations_of_founders_fail_their_test() {
        use crate::mutation::{Mutation, failure};
        failure(Mutation::GoneFound, all_that_wait_are_told_before_the_group_is_founded);
    }
}
