//! The groups that exist, as a model: who is in which view, and who is admitted and evicted.
use std::collections::{BTreeMap, BTreeSet};

/// The silence after which a member is evicted.
const SUSPECT_NS: u64 = 1_000_000_000;

/// A group that has begun. Processes are known by their nonces.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The newest view.
    pub(super) view: BTreeSet<u32>,
    /// Members that others miss, since when.
    missing: BTreeMap<u32, u64>,
}

impl Group {
    pub(super) fn new(view: BTreeSet<u32>) -> Group {
        Group { view, missing: BTreeMap::new() }
    }

    /// The largest set of members that are at work and hear each other, if it is a majority of the view. (A greedy one.)
    pub(super) fn operative(
        &self,
        is_at_work: impl Fn(u32) -> bool,
        joins: impl Fn(u32, u32) -> bool,
    ) -> Option<BTreeSet<u32>> {
        let at_work: Vec<u32> = self.view.iter().copied().filter(|process| is_at_work(*process)).collect();
        let from = |first: u32| {
            let mut set = BTreeSet::from([first]);
            for process in &at_work {
                if set.iter().all(|other| joins(*process, *other)) {
                    set.insert(*process);
                }
            }
            set
        };
        let largest = at_work.iter().map(|first| from(*first)).max_by_key(BTreeSet::len);
        largest.filter(|set| 2 * set.len() > self.view.len())
    }

    /// Evicts members that were missed for too long by those at work. The answer: whom.
    pub(super) fn evict(&mut self, operative: Option<&BTreeSet<u32>>, now: u64) -> Vec<u32> {
        let Some(operative) = operative else {
            self.missing.clear();
            return vec![];
        };
        self.missing.retain(|process, _| !operative.contains(process));
        for process in self.view.difference(operative) {
            self.missing.entry(*process).or_insert(now);
        }
        let evicted: Vec<u32> =
            self.missing.extract_if(.., |_, since| *since + SUSPECT_NS <= now).map(|(process, _)| process).collect();
        evicted.iter().for_each(|process| {
            self.view.remove(process);
        });
        evicted
    }
}
