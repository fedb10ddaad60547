//! A model of the groups that exist: their views, admissions and evictions.
use std::collections::{BTreeMap, BTreeSet};

/// The silence after which a member is evicted.
const SUSPECT_NS: u64 = 1_000_000_000;

/// A group that has begun. It identifies processes by their nonces.
#[derive(Clone, Debug, Default)]
pub(super) struct BootstrapGroup {
    /// The newest view.
    pub(super) view: BTreeSet<u32>,
    /// Members that the other members do not hear, and since when, in ns.
    missing: BTreeMap<u32, u64>,
}

impl BootstrapGroup {
    pub(super) fn new(view: BTreeSet<u32>) -> BootstrapGroup {
        BootstrapGroup { view, missing: BTreeMap::new() }
    }

    /// Returns the largest set of members that run and hear each other, if it is a majority of the
    /// view. The search is greedy.
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

    /// Evicts the members that the operative ones have missed for too long, and returns them.
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
