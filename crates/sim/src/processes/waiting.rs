//! Processes that are killed while they wait for admission, as a view begins without them.
//!
//! A group is reduced to few members. Then a process comes back, and others right after it: they ask
//! while a view with the first one is being made. Members must notice their ends, although they
//! never ask again.
//!
//! Other scenes kill seeds after they have decided a first view, and before they announce it. A seed sends
//! the decision to the founders, enters the group on its host, and then announces the view with all
//! addresses. If it ends in between, only the decision has brought these.
use super::plan::{HostsFault, MS, S};
use super::process::{ProcessPhase, SimProcess};
use super::world::{HostsWorld, ProcessEvent};
use crate::random::Random;
use spindle_core::View;

/// The longest time from the begin of a view until a waiting process is killed.
const KILLED_WITHIN_NS: u64 = 2 * MS;

/// Draws the faults of a seed by which processes are killed while they wait. The members of one host
/// can prove all ends, so the others continue without a majority.
pub(super) fn drawn(seed: u64, hosts: u32, places: u32, calm_ns: u64) -> Vec<(u64, HostsFault)> {
    let mut random = Random::new(seed, 32);
    if hosts > 1 || places < 4 || !random.one_in(2) {
        return vec![];
    }
    let at = random.range(S, calm_ns - S);
    let down_ns = random.range(100 * MS, S);
    let mut ids: Vec<u32> = (0..places).collect();
    for last in (1..places as usize).rev() {
        ids.swap(last, random.below(last as u64 + 1) as usize);
    }
    // With the process that comes back first, fewer members stay than are killed.
    let stay = if places > 5 && random.one_in(2) { 2 } else { 1 };
    let mut faults = vec![];
    for (number, place) in ids.into_iter().skip(stay).enumerate() {
        let later = if number == 0 { 0 } else { random.range(2 * MS, 30 * MS) };
        let down_ns = Some(down_ns + later);
        faults.push((at, HostsFault::Kill { place, down_ns, renamed: true }));
        if number > 0 {
            let down_ns = random.one_in(3).then(|| random.range(100 * MS, 2 * S));
            faults.push((at + 1, HostsFault::KillWaiting { place, down_ns }));
        }
    }
    faults
}

/// Draws whether all seeds are killed as a group is created.
pub(super) fn drawn_founding(seed: u64, is_afar: bool, hosts: u32, seeds: u32) -> Vec<(u64, HostsFault)> {
    let mut random = Random::new(seed, 35);
    if !is_afar || hosts < 3 || !random.one_in(12) {
        return vec![];
    }
    let mut down = || (!random.one_in(4)).then(|| random.range(MS, 5 * S));
    (0..seeds).map(|place| (0, HostsFault::KillFounding { place, down_ns: down() })).collect()
}

impl HostsWorld<'_> {
    /// Kills the processes that a fault of the plan kills while they wait, as `view` begins without
    /// them.
    pub(super) fn kill_waiting(&mut self, view: &View) {
        for place in 0..self.places.len() {
            let Some(down_ns) = self.places[place].dies_waiting else { continue };
            let waits = self.places[place].process.and_then(|number| self.living(number)).is_some_and(|process| {
                matches!(process.phase, ProcessPhase::Seeks(_) | ProcessPhase::Learns(_))
                    && !view.members.contains(&process.me.id)
            });
            if waits {
                self.places[place].dies_waiting = None;
                let at = self.now + self.random.below(KILLED_WITHIN_NS);
                self.push(at, ProcessEvent::KillWaiting { place, down_ns });
            }
        }
    }

    /// Kills the process of a place, if it still waits for admission.
    pub(super) fn kill_if_waiting(&mut self, place: usize, down_ns: Option<u64>) {
        let number = self.places[place].process;
        let waits = number
            .and_then(|number| self.living(number))
            .is_some_and(|process| matches!(process.phase, ProcessPhase::Seeks(_) | ProcessPhase::Learns(_)));
        let Some(number) = number.filter(|_| waits) else { return };
        self.outcome.counts.killed_waiting += 1;
        self.kill_for(number, place, down_ns);
    }

    /// Returns true if a fault of the plan kills this process now, as it is to begin the first view of a
    /// group.
    pub(super) fn dies_founding(&mut self, process: &mut SimProcess) -> bool {
        let Some(down_ns) = self.places[process.place].dies_founding.take() else { return false };
        // The control messages that it has written are on their way.
        process.phase = ProcessPhase::Out;
        self.push(self.now, ProcessEvent::KillFounding { process: process.number, down_ns });
        true
    }

    /// Kills a process that was to begin the first view of a group.
    pub(super) fn kill_founding(&mut self, number: usize, down_ns: Option<u64>) {
        let Some(place) = self.living(number).map(|process| process.place) else { return };
        self.outcome.counts.killed_founding += 1;
        self.kill_for(number, place, down_ns);
    }

    /// Kills a process. Another one starts at its place after a while, if there is one.
    fn kill_for(&mut self, number: usize, place: usize, down_ns: Option<u64>) {
        self.die(number, true);
        self.places[place].is_over |= down_ns.is_none();
        if let Some(down_ns) = down_ns {
            let id = Some(self.new_id(place));
            self.push(self.now + down_ns, ProcessEvent::Start { place, id });
        }
    }
}
