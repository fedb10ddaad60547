//! Copies of engines, for a search through all interleavings.
use super::Engine;
use crate::multicast::stats::EngineStats;
use crate::multicast::subgroup::Subgroup;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

impl Engine {
    /// A copy that shares nothing with this one, for tests that try every way on. Counts are left
    /// out, of events and of polls alike: the copy is one that has not been polled, in the state of
    /// this one.
    ///
    /// # Panics
    /// If deliveries were [handed off](Self::hand_off).
    #[doc(hidden)]
    pub fn fork(&self) -> Engine {
        Engine {
            view: self.view.clone(),
            layout: Arc::clone(&self.layout),
            me: self.me,
            ablation: self.ablation,
            subgroups: self.subgroups.iter().map(Subgroup::fork).collect(),
            elsewhere: self.elsewhere.clone(),
            awaited_elsewhere: self.awaited_elsewhere.clone(),
            unwritten: self.unwritten.clone(),
            accused: self.accused.clone(),
            ready: self.ready.clone(),
            scan_every: self.scan_every,
            scan_next: self.scan_next,
            everyone: self.everyone.clone(),
            dirty: self.dirty.clone(),
            put_off: self.put_off.clone(),
            due: Vec::new(),
            audience: Vec::new(),
            last_worked: self.last_worked,
            pace: self.pace.clone(),
            moves: self.moves.clone(),
            scanned_all: self.scanned_all,
            membership: self.membership.clone(),
            reported: self.reported.clone(),
            ending: self.ending,
            touched: self.touched.clone(),
            open: self.open,
            awaits_leader: self.awaits_leader,
            awaits_all: self.awaits_all,
            awaits_end: self.awaits_end,
            finished: self.finished,
            all_finished: self.all_finished,
            left: self.left.clone(),
            end_notice: self.end_notice,
            state: self.state.clone(),
            faults: self.faults.clone(),
            stats: EngineStats::default(),
        }
    }

    /// Tells apart what two engines of one member of one view would do, counts and how long a
    /// subgroup has been idle aside.
    #[doc(hidden)]
    pub fn fingerprint(&self, state: &mut impl Hasher) {
        (&self.elsewhere, &self.awaited_elsewhere, &self.unwritten, &self.accused).hash(state);
        (&self.subgroups, &self.dirty, &self.put_off, &self.membership, &self.reported, &self.faults).hash(state);
        (
            self.last_worked,
            self.ending,
            self.open,
            self.awaits_leader,
            self.awaits_all,
            self.awaits_end,
            self.finished,
            self.all_finished,
            (&self.left, self.end_notice),
            &self.state,
        )
            .hash(state);
    }
}
