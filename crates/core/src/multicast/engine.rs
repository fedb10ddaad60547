//! The engine: all of a member's subgroups, evaluated by one thread, and the posts that result.
//!
//! A subgroup that changes of the view do not touch stays in the engine of the view with which its
//! epoch began: see [`Engine::tend`].
//!
//! [`Engine::poll`] never blocks and does bounded work. It stores into my row as it goes, in the
//! order in which peers may see it, and posts at the end: the frames of all subgroups, then one
//! span of control words per peer. Counts that only free rings wait for the next post, or for the
//! end of the next poll.
mod fork;
mod older;
mod positions;
mod progress;
mod reports;
mod view_end;

use crate::fault::Fault;
use crate::ids::{Rank, SubgroupId, Time, ViewId};
use crate::membership::{Membership, Ranks};
use crate::multicast::ablation::Ablation;
use crate::multicast::moves::Moves;
use crate::multicast::pace::Pace;
use crate::multicast::ready::Ready;
use crate::multicast::stats::EngineStats;
use crate::multicast::subgroup::{Changes, Cuts, Subgroup};
use crate::multicast::upcalls::Upcalls;
use crate::mutation::mutation;
use crate::table::Table;
use crate::view::{View, ViewError};
use crate::wire::layout::{Layout, membership};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use older::Elsewhere;
pub use positions::LogExtent;
pub use progress::{Progress, State};
use reports::Certainty;

/// How many idle polls pass between two looks at all of `subgroups`.
fn scan_every(subgroups: usize) -> u64 {
    subgroups.div_ceil(SCANNED_AT_ONCE).next_power_of_two() as u64
}

/// The findings of one look at the subgroups.
struct Scan {
    /// It was a look at all that may have moved.
    all: bool,
    worked: bool,
    pending: bool,
    /// Some were passed over.
    skipped: bool,
}

/// Whether I may say that I write nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum EndNotice {
    /// Once it is on my disk.
    Held,
    /// The same, and there is nothing else to do.
    Wanted,
    Free,
}

/// A member that can leave as soon as others have heard what it has said in older views looks again
/// after so long.
const UNHEARD_LOOK: Duration = Duration::from_millis(1);
/// While others are busy, an idle subgroup is looked at once in so many polls, or in more if the
/// member is in many ([`SCANNED_AT_ONCE`]).
const IDLE_SCAN: u64 = 16;

/// The largest number of subgroups of which each idle poll looks at all. If a member is in more,
/// and its peers [count](Moves) their posts, every second idle poll does; beyond twice as many
/// every fourth; and so on. The look is for what applications send in idle subgroups.
const SCANNED_AT_ONCE: usize = 16;

/// The protocol of one member in one view.
#[derive(Debug)]
pub struct Engine {
    view: View,
    layout: Arc<Layout>,
    me: Rank,
    ablation: Ablation,
    /// The subgroups whose epochs begin with the view.
    subgroups: Vec<Subgroup>,
    elsewhere: Vec<Elsewhere>,
    /// By view: the members of this one that are awaited by subgroups that are in the engine of
    /// that.
    awaited_elsewhere: Vec<(ViewId, Ranks)>,
    /// Subgroups that have wedged in older engines, whose cuts are not in my row yet.
    unwritten: Vec<(SubgroupId, Cuts)>,
    /// Members that were found to break the protocol after the view has ended.
    accused: Vec<Fault>,
    /// The subgroups that polls look at every time.
    ready: Ready,
    /// All subgroups are looked at once in so many idle polls.
    scan_every: u64,
    /// The next idle poll looks at all of them.
    scan_next: bool,
    everyone: Vec<Rank>,
    /// Subgroups whose entries this poll has changed, by index.
    dirty: Vec<usize>,
    /// Subgroups of which counts that free rings have moved and are not posted, by index.
    put_off: Vec<usize>,
    /// Scratch: those of the poll before.
    due: Vec<usize>,
    /// Scratch: who gets this poll's control post.
    audience: Vec<Rank>,
    last_worked: bool,
    pace: Pace,
    moves: Moves,
    /// Whether the last poll has looked at all subgroups.
    scanned_all: bool,
    membership: Membership,
    /// Members of which the fabric says that they are dead, or gone.
    reported: Vec<(Rank, Certainty)>,
    /// Everything below the trims is on its way to the application.
    ending: bool,
    /// Once that is so, by subgroup of the view: whether its epoch ends.
    touched: Vec<bool>,
    /// Whether I may send in a view to come though I have no ring for it here.
    open: bool,
    /// Whether I wait for the leader to end the view.
    awaits_leader: bool,
    /// Until when I wait for all others.
    awaits_all: Time,
    /// Whether I wait for the others to finish, when I have.
    awaits_end: bool,
    finished: bool,
    all_finished: bool,
    /// Once that is so: who has left.
    left: Ranks,
    end_notice: EndNotice,
    state: State,
    faults: Vec<Fault>,
    stats: EngineStats,
}

impl Engine {
    /// The engine of the member `me` of `view`. All memory that it needs until the view ends is
    /// allocated here.
    ///
    /// # Errors
    /// What [`View::check`] finds.
    ///
    /// # Panics
    /// If `me` is not a rank of the view.
    pub fn new(view: View, me: Rank, ablation: Ablation) -> Result<Engine, ViewError> {
        let layout = Arc::new(Layout::new(&view)?);
        assert!(me.index() < view.members.len(), "rank {me} is not of a view of {}", view.members.len());
        let mine = || view.subgroups_of(me);
        let begins = mine().filter(|(_, spec)| spec.epoch.is_none());
        let subgroups: Vec<Subgroup> = begins.map(|(id, _)| Subgroup::new(&view, &layout, me, id)).collect();
        let elsewhere = mine().filter_map(|(id, spec)| {
            let (has_finished_sending, has_received_all, is_done) = Default::default();
            let (closed, has_ended) = Default::default();
            let epoch = spec.epoch?;
            let place = None;
            Some(Elsewhere { id, epoch, place, closed, has_finished_sending, has_received_all, is_done, has_ended })
        });
        let elsewhere = elsewhere.collect();
        let membership = Membership::new(&view, me, ablation.epochs);
        let end_notice = if membership.persists() { EndNotice::Held } else { EndNotice::Free };
        let moves = Moves::new(&view, &layout, me);
        let senders = subgroups.iter().map(|subgroup| view.subgroups[subgroup.id().index()].senders.len()).sum();
        Ok(Engine {
            ready: Ready::all(subgroups.len()),
            scan_every: if moves.pays() { scan_every(subgroups.len()) } else { 1 },
            scan_next: false,
            dirty: Vec::with_capacity(2 * subgroups.len()),
            put_off: Vec::with_capacity(subgroups.len()),
            due: Vec::with_capacity(subgroups.len()),
            audience: Vec::with_capacity(view.members.len()),
            left: Ranks::none(view.members.len()),
            everyone: view.ranks().collect(),
            view,
            layout,
            me,
            ablation,
            subgroups,
            elsewhere,
            awaited_elsewhere: Vec::new(),
            unwritten: Vec::new(),
            accused: Vec::new(),
            last_worked: false,
            pace: Pace::new(senders),
            moves,
            scanned_all: true,
            membership,
            reported: Vec::new(),
            ending: false,
            touched: Vec::new(),
            open: false,
            awaits_leader: false,
            awaits_all: Time(0),
            awaits_end: false,
            finished: false,
            all_finished: false,
            end_notice,
            state: State::Running,
            faults: Vec::new(),
            stats: EngineStats::default(),
        })
    }

    /// Does what there is to do.
    pub fn poll<T: Table>(&mut self, now: Time, table: &mut T, upcalls: &mut impl Upcalls<T>) -> Progress {
        self.stats.polls += 1;
        let mut wake_at = None;
        if self.state == State::Running {
            if table.membership_moved() {
                self.membership.note_moved();
            }
            wake_at = self.beat(now, table);
        } else if !self.goes_on() {
            return Progress { worked: false, wake_at: None, partial: false };
        }
        self.pace.begin();
        let Scan { all, mut worked, pending, skipped } = self.scan(table, upcalls);
        self.scanned_all = !skipped;
        if self.state == State::Ended {
            return self.go_on(now, worked, pending || skipped, table, upcalls);
        }
        if self.membership.is_changing() {
            let (changed, turn) = self.change_view(now, table, upcalls);
            // Subgroups that were wedged have not looked at what has come since.
            let again = (self.ending && self.state == State::Running) || self.goes_on() || pending || skipped;
            let wake_at = [wake_at, turn].into_iter().flatten().min();
            self.last_worked = worked;
            let wake_at = if again { Some(now) } else { wake_at };
            return Progress { worked: worked | changed, wake_at, partial: false };
        }
        // Nothing else may bring another poll, so one that found nothing to do looks everywhere.
        if (all || !worked) && self.has_to_end(table) {
            self.close(now, table);
            return Progress { worked: true, wake_at: Some(now), partial: false };
        }
        worked |= self.finish(table, worked || skipped);
        self.last_worked = worked;
        self.stats.productive_polls += u64::from(worked);
        // The subgroups that were not looked at may have something, and nothing else will tell.
        let asks = skipped && !mutation!(IdleForgotten);
        let wake_at = if pending || asks {
            Some(now)
        } else if self.all_finished && self.state == State::Running {
            self.wake_before_end(now, worked, wake_at)
        } else {
            wake_at
        };
        Progress { worked, wake_at, partial: asks && !pending }
    }

    /// When to look next for a member that leaves as soon as it can.
    #[cold]
    fn wake_before_end(&self, now: Time, worked: bool, wake_at: Option<Time>) -> Option<Time> {
        if worked {
            return Some(now);
        }
        // No word comes when others have heard what was said in older views.
        let look = (!self.is_done_elsewhere()).then(|| now + UNHEARD_LOOK);
        [wake_at, look].into_iter().flatten().min()
    }

    /// Evaluates the subgroups that are live, and posts what they have to say.
    // A part of each poll.
    #[expect(clippy::inline_always)]
    #[inline(always)]
    fn scan<T: Table>(&mut self, table: &mut T, upcalls: &mut impl Upcalls<T>) -> Scan {
        // Idle subgroups drop out of the scan while others are busy.
        let mut all = !self.last_worked || self.all_finished || self.stats.polls.is_multiple_of(IDLE_SCAN);
        let looks_at_counts = self.moves.pays();
        let (count, start) = (self.subgroups.len(), self.first_to_deliver());
        let mut full = count == 1 || all && (self.scan_every == 1 || self.is_scan_due());
        let (mut worked, mut pending, mut looked) = (false, false, 0);
        if !self.put_off.is_empty() {
            core::mem::swap(&mut self.put_off, &mut self.due);
        }
        // Before the look at any subgroup: what moves behind this is found by the next.
        if all && looks_at_counts {
            self.note_moves(table);
        }
        let (mut at, mut end) = (start, count);
        loop {
            let next = if full { Some(at) } else { self.ready.next(at) };
            let Some(i) = next.filter(|i| *i < end) else {
                if end == start || start == 0 {
                    break;
                }
                (at, end) = (0, start);
                continue;
            };
            at = i + 1;
            looked += 1;
            let subgroup = &mut self.subgroups[i];
            if !subgroup.is_live() {
                // It may be live again.
                self.ready.add(i);
                continue;
            }
            let mut changes = Changes::default();
            let is_hot = !looks_at_counts || self.ready.is_hot(i);
            let Engine { ablation, pace, moves, .. } = self;
            let verdict = subgroup.evaluate(is_hot, table, upcalls, ablation, pace, moves, &mut changes);
            pending |= subgroup.is_pending();
            // Each poll looks at an only subgroup.
            if count > 1 {
                let more = subgroup.has_more();
                self.ready.looked(i, changes.worked, more);
            }
            worked |= changes.worked;
            self.post_data(i, changes, table);
            if let Err(fault) = verdict {
                self.accuse(fault);
                (all, full) = (true, true);
            }
        }
        let skipped = looked < count;
        if start > 0 {
            self.dirty.sort_unstable();
            self.put_off.sort_unstable();
        }
        worked |= !self.due.is_empty();
        self.post_control(table);
        Scan { all, worked, pending, skipped }
    }

    /// Notes in which subgroups entries of others may have moved.
    #[cold]
    #[inline(never)]
    fn note_moves<T: Table>(&mut self, table: &T) {
        if self.ready.has_cold() {
            let Engine { moves, subgroups, ready, .. } = self;
            moves.look(table, |moved| {
                subgroups[moved].note_stale();
                ready.add(moved);
            });
        }
    }

    /// Whether this idle poll looks at all subgroups, though peers tell in which they have posted.
    #[cold]
    fn is_scan_due(&mut self) -> bool {
        let is_ending = self.all_finished || self.membership.is_changing() || self.state != State::Running;
        let is_asked = core::mem::take(&mut self.scan_next);
        is_ending || is_asked || self.stats.polls.is_multiple_of(self.scan_every)
    }

    /// The place of the subgroup that is the first to hand messages to the application.
    #[inline]
    fn first_to_deliver(&self) -> usize {
        match self.pace.last() {
            None => 0,
            Some(last) => self.subgroups.partition_point(|subgroup| subgroup.id() <= last) % self.subgroups.len(),
        }
    }

    /// Hands over as much at a time as the engine of the view `before` did last: how long the
    /// application takes was seen while it got the rest of that view.
    pub(crate) fn keep_pace(&mut self, before: &Engine) {
        self.pace.keep(&before.pace);
    }

    /// Whether the last poll handed over as much as it might: then more may wait, and it matters
    /// how long [the upcalls took](Self::upcalls_took).
    #[inline]
    pub fn has_filled_upcalls(&self) -> bool {
        self.pace.has_filled()
    }

    /// Says that the upcalls of the last poll have taken so many ns, or that it is not known how
    /// many. After long ones the next poll hands less over, so that this member shows meanwhile
    /// that it lives. By default upcalls are short.
    pub fn upcalls_took(&mut self, ns: Option<u64>) {
        if let Some(suspect_after) = self.membership.suspect_after() {
            self.pace.took(ns, suspect_after);
        }
    }

    /// Says that the next poll is the last before a sleep, which has been announced. The `wake_at`
    /// of that poll takes into account the signs of life that others have asked for by then.
    pub fn before_sleep(&mut self) {
        self.scan_next = !mutation!(SleepScanForgotten);
        self.membership.before_sleep();
    }

    /// Sets whether [observers](crate::Observer) follow this view.
    ///
    /// While observers follow it, half of each ring stays readable behind the announced frames, so
    /// that observers have time to read. A ring that is too small for that keeps less readable,
    /// because no sender waits for observers.
    pub fn set_observed(&mut self, observed: bool) {
        for subgroup in &mut self.subgroups {
            subgroup.set_observed(observed);
        }
        self.ready.add_all();
        self.last_worked = false;
    }

    /// Returns the protocol violations that this member has noticed. It suspected each violator.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// How the engine stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// My rank.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the layout of the rows.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    fn subgroup(&self, id: SubgroupId) -> Option<&Subgroup> {
        Some(&self.subgroups[self.index_of(id)?])
    }

    fn index_of(&self, id: SubgroupId) -> Option<usize> {
        self.subgroups.binary_search_by_key(&id, Subgroup::id).ok()
    }

    fn post_data<T: Table>(&mut self, index: usize, changes: Changes, table: &mut T) {
        self.stats.data_posts += changes.data_posts;
        self.stats.control_posts += changes.control_posts;
        if !changes.entry {
            // Once: who waits for room gets it after the next poll at the latest.
            if changes.freeing && self.due.binary_search(&index).is_err() {
                self.put_off.push(index);
            }
            return;
        }
        self.dirty.push(index);
        if mutation!(ControlBeforeData) {
            table.post(self.subgroups[index].members(), self.subgroups[index].entry());
        }
        if !changes.data.is_empty() {
            table.post(self.subgroups[index].members(), changes.data);
            self.stats.data_posts += 1;
        }
    }

    fn post_control<T: Table>(&mut self, table: &mut T) {
        if mutation!(PutOffForgotten) {
            self.due.clear();
        }
        if !self.due.is_empty() {
            self.dirty.append(&mut self.due);
            self.dirty.sort_unstable();
            self.dirty.dedup();
        }
        if self.moves.counts() {
            for &i in &self.dirty {
                self.moves.show(self.subgroups[i].id(), table);
            }
        }
        match self.dirty[..] {
            [] => return,
            [first, .., last] if self.ablation.coalesced_control => {
                // One span over all changed entries; a peer that shares only some of them gets the
                // others' words too, and reads none of them.
                let span = self.subgroups[first].entry().start..self.subgroups[last].entry().end;
                self.audience.clear();
                for rank in &self.everyone {
                    if self.dirty.iter().any(|&i| self.subgroups[i].members().binary_search(rank).is_ok()) {
                        self.audience.push(*rank);
                    }
                }
                table.post(&self.audience, span);
                self.stats.control_posts += 1;
            }
            _ => {
                for &i in &self.dirty {
                    table.post(self.subgroups[i].members(), self.subgroups[i].entry());
                    self.stats.control_posts += 1;
                }
            }
        }
        self.dirty.clear();
    }

    /// Shows that I live, and looks who else does of those that I wait for.
    #[inline]
    fn beat<T: Table>(&mut self, now: Time, table: &mut T) -> Option<Time> {
        let Engine {
            subgroups, awaited_elsewhere, everyone, me, finished, awaits_leader, awaits_all, awaits_end, ..
        } = self;
        let awaits_all = now < *awaits_all && !mutation!(FollowerUnawaited);
        self.membership.beat(now, table, |table, leader, awaited| {
            subgroups.iter_mut().for_each(|subgroup| subgroup.await_peers(awaited));
            awaited_elsewhere.iter().for_each(|(_, ranks)| awaited.unite(ranks));
            let awaits_end = *finished && *awaits_end;
            let is_unfinished = |rank: &Rank| awaits_end && table.load(*rank, membership::FINISHED) == 0;
            let is_awaited = |rank: &&Rank| awaits_all || is_unfinished(rank) || (*awaits_leader && **rank == leader);
            everyone.iter().filter(|rank| **rank != *me).filter(is_awaited).for_each(|rank| _ = awaited.add(*rank));
        })
    }
}
