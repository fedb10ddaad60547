//! The engine: all of a member's subgroups, evaluated by one thread, and the posts that result.
//!
//! A subgroup that changes of the view do not touch stays in the engine of the view with which its
//! epoch began: see [`Engine::tend`].
//!
//! [`Engine::poll`] never blocks and does bounded work. It stores into my row as it goes, in the
//! order in which peers may see it, and posts at the end: the frames of all subgroups, then one
//! span of control words per peer. Counts that only free rings wait for the next post, or for the
//! end of the next poll.
use crate::fault::Fault;
use crate::ids::{MemberId, Process, Rank, SubgroupId, Time, ViewId};
use crate::membership::{Ballot, Decision, Liveness, Membership, Ranks, Unrecoverable};
use crate::multicast::ablation::Ablation;
use crate::multicast::claims::Claims;
use crate::multicast::cursor::{Cursor, Handoff};
use crate::multicast::moves::Moves;
use crate::multicast::pace::Pace;
use crate::multicast::ready::Ready;
use crate::multicast::resend::Resend;
use crate::multicast::stats::{EngineStats, Frontier, SubgroupStats};
use crate::multicast::subgroup::{Changes, Cuts, Subgroup};
use crate::multicast::upcalls::Upcalls;
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::{Change, View, ViewError};
use crate::wire::layout::{Layout, membership};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::time::Duration;

/// How many idle polls pass between two looks at all of `subgroups`.
fn scan_every(subgroups: usize) -> u64 {
    subgroups.div_ceil(SCANNED_AT_ONCE).next_power_of_two() as u64
}

/// The result of a poll, and the time at which the engine needs the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Whether it found anything to do. Then there may be more to do at once, whatever `wake_at`
    /// says.
    pub worked: bool,
    /// When to poll again even if nothing happens; `None` if only an event can bring more work.
    pub wake_at: Option<Time>,
    /// Whether the poll found nothing and `wake_at` is now only because it has passed over
    /// subgroups. A caller that sleeps after such polls first calls [`Engine::before_sleep`] and
    /// polls again, until a poll is not partial.
    pub partial: bool,
}

impl Progress {
    /// Whether the caller should poll again at once.
    pub fn has_more(&self, now: Time) -> bool {
        self.worked || self.wake_at.is_some_and(|at| at <= now)
    }
}

/// How the engine stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// It works.
    Running,
    /// Every member has finished sending and everything is delivered here.
    Finished,
    /// The view has ended, in agreement: see [`Engine::successor`]. Further [polls](Engine::poll)
    /// deliver the [rest](Engine::has_rest) of it.
    Ended,
    /// The others go on without me, because they heard nothing from me for too long or were told
    /// to. Nothing more may be delivered here: it might not be what they deliver.
    Evicted,
}

/// How sure it is that a member is lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Certainty {
    /// Dead, with a final row.
    Dead,
    /// Dead, with a row that is not here as a whole.
    Gone,
    /// To be left out of the next view.
    Evicted,
    Suspected,
    /// Heard of again.
    Trusted,
    /// It has said itself that it lives.
    Heard,
}

/// A subgroup of the view whose epoch began with an earlier one. The engine of that has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Elsewhere {
    id: SubgroupId,
    epoch: ViewId,
    /// Its place among the subgroups of that engine, once it was looked for.
    place: Option<usize>,
    /// All senders say that they send no more.
    closed: bool,
    /// My applications will send no more, and all they sent is announced.
    has_finished_sending: bool,
    /// All messages that the senders announced before they closed are stable here, or delivered.
    has_received_all: bool,
    /// It is delivered here, all members have finished, and each that has not left has heard all
    /// that I say there.
    is_done: bool,
    /// The view ends, and what that is for the subgroup is carried out.
    has_ended: bool,
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

    /// The rest of a poll when the view has ended: of the subgroups that go on.
    #[cold]
    fn go_on<T: Table>(
        &mut self,
        now: Time,
        mut worked: bool,
        mut again: bool,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
    ) -> Progress {
        for subgroup in self.subgroups.iter_mut().filter(|subgroup| !subgroup.is_closed()) {
            subgroup.tell_closed(table, &mut self.moves);
        }
        if self.deliver_rest(table, upcalls) {
            worked = true;
            match self.has_rest() {
                true => again = true,
                false => self.membership.tell_end(now),
            }
        }
        self.last_worked = worked;
        self.stats.productive_polls += u64::from(worked);
        Progress { worked, wake_at: again.then_some(now), partial: false }
    }

    /// Hands over as much at a time as the engine of the view `before` did last: how long the
    /// application takes was seen while it got the rest of that view.
    pub(crate) fn keep_pace(&mut self, before: &Engine) {
        self.pace.keep(&before.pace);
    }

    /// Whether the application has yet to get messages of epochs that have ended. While it does,
    /// the engine has to be [polled](Self::poll), the next view can't begin here, and others of its
    /// host that have begun it see by its [row there](Self::show_life) that this member lives.
    pub fn has_rest(&self) -> bool {
        self.subgroups.iter().any(|subgroup| subgroup.is_closed() && !subgroup.is_through())
    }

    /// Hands over what is left of epochs that have ended, as much as one poll may. Whether there
    /// was something.
    #[cold]
    fn deliver_rest<T: Table>(&mut self, table: &T, upcalls: &mut impl Upcalls<T>) -> bool {
        let mut worked = false;
        let start = self.first_to_deliver();
        let (before, behind) = self.subgroups.split_at_mut(start);
        let in_turn = behind.iter_mut().chain(before);
        for subgroup in in_turn.filter(|subgroup| subgroup.is_closed() && !subgroup.is_through()) {
            subgroup.deliver_rest(&mut self.pace, table, upcalls);
            worked = true;
        }
        worked
    }

    /// Whether subgroups go on here though the view has ended, or are not
    /// [through](Self::has_rest): then the engine has to be [polled](Self::poll) further, with its
    /// table, beside that of the newest view, which [tends](Self::tend) it.
    pub fn goes_on(&self) -> bool {
        self.state == State::Ended && self.subgroups.iter().any(|subgroup| !subgroup.is_through())
    }

    /// The view `next` has begun, and subgroups [go on](Self::goes_on) here: the upcalls name them
    /// and their senders by the numbers and ranks of that view.
    pub fn rename(&mut self, next: &View) {
        self.subgroups.iter_mut().for_each(|subgroup| subgroup.rename(&self.view, next));
    }

    /// The group has finished in a later view, and so have all subgroups of this one.
    pub(crate) fn finish_older(&mut self) {
        self.state = State::Finished;
    }

    /// Whether subgroups of mine have been in the engine of the older `view` when this view began:
    /// that is to be kept, and [tended](Self::tend), until this view has ended.
    pub fn needs(&self, view: ViewId) -> bool {
        self.elsewhere.iter().any(|it| it.epoch == view)
    }

    /// Whether the epoch of `subgroup` has ended. False if this engine does not have it.
    pub fn is_closed(&self, subgroup: SubgroupId) -> bool {
        self.subgroup(subgroup).is_some_and(Subgroup::is_closed)
    }

    /// Keeps this engine and that of an older view, in which subgroups [go on](Self::goes_on), in
    /// step: the changes of this view end the epochs of subgroups there. `rows` is the older view's
    /// table. To be called beside each poll of this engine, for each older one. Whether there may
    /// be more to do at once, by polling both.
    pub fn tend<T: Table>(&mut self, older: &mut Engine, rows: &mut T, upcalls: &mut impl Upcalls<T>) -> bool {
        // While others are busy, idle subgroups are looked at now and then.
        if self.state != State::Running || !(older.scanned_all || self.membership.is_changing()) {
            return false;
        }
        let unheard = self.all_finished.then(|| self.unheard(older, rows));
        let mut worked = self.heed(older, unheard.as_ref());
        let is_heard = unheard.is_some_and(|unheard| unheard.is_empty());
        let to_wedge = self.membership.to_wedge();
        let mut next = 0;
        for i in 0..self.elsewhere.len() {
            let Elsewhere { id, epoch, place, .. } = self.elsewhere[i];
            if epoch != older.view.id {
                continue;
            }
            let Some(at) = place.or_else(|| older.place_of(&self.view.subgroups[id.index()].name, next)) else {
                continue;
            };
            self.elsewhere[i].place = Some(at);
            next = at + 1;
            if to_wedge.contains(&id) && !self.unwritten.iter().any(|(known, _)| *known == id) {
                let mut cuts = older.wedge(at, rows);
                if mutation!(OlderCutUnwritten) {
                    cuts.rounds.clear();
                }
                self.unwritten.push((id, cuts));
                worked = true;
            }
            worked |= self.follow_end(i, is_heard, &mut older.subgroups[at], rows, upcalls);
            older.last_worked &= !worked;
        }
        worked
    }

    /// The place of the subgroup of this name among mine. Most are in the order of those of other
    /// views, so it is looked for from `near` on.
    fn place_of(&self, name: &str, near: usize) -> Option<usize> {
        let count = self.subgroups.len();
        let is_it = |at: &usize| self.view.subgroups[self.subgroups[*at].id().index()].name == name;
        (near..count).chain(0..near.min(count)).find(is_it)
    }

    /// Takes in what an older engine says about members.
    fn heed(&mut self, older: &mut Engine, unheard: Option<&Ranks>) -> bool {
        let rank = |was: Rank| self.view.rank_of(older.view.members[was.index()]);
        let mut awaited = Ranks::none(self.view.members.len());
        if self.membership.suspect_after().is_some() && !mutation!(OlderUnawaited) {
            let mut there = Ranks::none(older.view.members.len());
            older.subgroups.iter_mut().filter(|subgroup| subgroup.is_live()).for_each(|it| it.await_peers(&mut there));
            there.iter().filter_map(rank).for_each(|rank| _ = awaited.add(rank));
            unheard.into_iter().for_each(|unheard| awaited.unite(unheard));
        }
        let mut accused = false;
        for fault in older.accused.drain(..) {
            accused |= rank(fault.member()).is_some_and(|rank| self.membership.bar(rank));
        }
        match self.awaited_elsewhere.iter_mut().find(|(view, _)| *view == older.view.id) {
            Some((_, known)) => *known = awaited,
            None => self.awaited_elsewhere.push((older.view.id, awaited)),
        }
        self.last_worked &= !accused;
        accused
    }

    /// The members of this view that have yet to hear what I posted in the older one: once they see
    /// that I have left, they count on nothing more of me.
    fn unheard<T: Table>(&self, older: &Engine, rows: &T) -> Ranks {
        let mut unheard = Ranks::none(self.view.members.len());
        for (there, id) in older.view.ranks().zip(&older.view.members).filter(|(rank, _)| *rank != older.me) {
            let goes_on = |rank: &Rank| !self.left.has(*rank) && !self.membership.suspects(*rank);
            if let Some(rank) = self.view.rank_of(*id).filter(goes_on)
                && !(rows.is_heard(there) || mutation!(LeavesUnheard))
            {
                unheard.add(rank);
            }
        }
        unheard
    }

    /// Looks how far a subgroup of an older engine is, and carries out there what the end of this
    /// view is for it.
    fn follow_end<T: Table>(
        &mut self,
        i: usize,
        is_heard: bool,
        subgroup: &mut Subgroup,
        rows: &T,
        upcalls: &mut impl Upcalls<T>,
    ) -> bool {
        let elsewhere = &mut self.elsewhere[i];
        // Others may have closed, or I.
        let has_finished_sending = subgroup.has_finished_sending();
        let has_news = subgroup.take_news() || elsewhere.has_finished_sending != has_finished_sending;
        if !(has_news || is_heard || self.ending || mutation!(OlderUnclosed)) {
            return false;
        }
        let before = (elsewhere.clone(), subgroup.is_live(), subgroup.is_closed());
        if let Some(decision) = self.membership.decision().filter(|_| self.ending) {
            match self.touched[elsewhere.id.index()] {
                false => subgroup.unwedge(),
                true if subgroup.is_closed() || mutation!(OlderEndForgotten) => {}
                true => subgroup.close(&decision.trims[elsewhere.id.index()], rows, upcalls),
            }
            elsewhere.has_ended = true;
        }
        elsewhere.has_finished_sending = has_finished_sending;
        self.awaits_end |= subgroup.has_sent();
        // Senders announce their last messages before they declare that they send no more. So the
        // subgroup reads the announcements again after it has seen all declarations.
        if !elsewhere.closed {
            elsewhere.closed = subgroup.senders_have_closed(rows) || mutation!(OlderUnclosed);
            if elsewhere.closed {
                subgroup.look_again();
            }
        } else if has_news || is_heard {
            elsewhere.has_received_all = subgroup.has_received_all();
            elsewhere.is_done = is_heard && subgroup.has_delivered_all();
        }
        (elsewhere.clone(), subgroup.is_live(), subgroup.is_closed()) != before
    }

    /// Watches the others' silence: a member that shows no sign of life for so many ns is
    /// suspected, and the group continues without it if enough others do. By default silence means
    /// nothing. Pauses of up to nine tenths of it are safe.
    pub fn set_suspect_after(&mut self, ns: Option<u64>) {
        self.membership.set_suspect_after(ns);
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

    /// Says when members show that they live. By default they do so at all times.
    pub fn set_liveness(&mut self, liveness: Liveness) {
        self.membership.set_liveness(liveness);
    }

    /// Says that this member waits for the others to finish. One that has sent anything does so
    /// from when it has finished itself.
    pub fn await_end(&mut self) {
        self.awaits_end = true;
    }

    /// Says that the next poll is the last before a sleep, which has been announced. The `wake_at`
    /// of that poll takes into account the signs of life that others have asked for by then.
    pub fn before_sleep(&mut self) {
        self.scan_next = !mutation!(SleepScanForgotten);
        self.membership.before_sleep();
    }

    /// Says whether this member waits for the [leader](Self::leader) to end the view, for a process
    /// that wants to join.
    pub fn await_leader(&mut self, awaits: bool) {
        self.awaits_leader = awaits;
    }

    /// Says that this member waits for all others until `until`, for a process that needs the
    /// memory of each.
    pub fn await_all(&mut self, until: Time) {
        self.awaits_all = until;
    }

    /// Tells the engine that `member` is proven dead and that its row is final here: nothing in it
    /// moves any more. Means nothing if it had left.
    pub fn member_died(&mut self, member: Rank) {
        self.report(member, Certainty::Dead);
    }

    /// Tells the engine that `member` is proven dead, and that its row is not here as a whole: it
    /// may have written more.
    pub fn member_gone(&mut self, member: Rank) {
        self.report(member, if mutation!(UnfinalRowsCount) { Certainty::Dead } else { Certainty::Gone });
    }

    /// Tells the engine that `member` seems to be lost: its connection broke, or it is dying. The
    /// suspicion is taken back when the member is heard again.
    pub fn suspect(&mut self, member: Rank) {
        self.report(member, Certainty::Suspected);
    }

    /// Tells the engine that `member` is there after all, as far as is known beside its heartbeats.
    pub fn trust(&mut self, member: Rank) {
        self.report(member, Certainty::Trusted);
    }

    /// Tells the engine that `member` has said that it lives, otherwise than in its row.
    pub fn heard(&mut self, member: Rank) {
        self.report(member, Certainty::Heard);
    }

    /// Asks for a next view without `member`, which may be alive. It is left out before any other
    /// member, unless no other would stay.
    pub fn evict(&mut self, member: Rank) {
        self.report(member, Certainty::Evicted);
    }

    /// Gives up the members `lost`, by the word of an operator that they are lost for good: the
    /// others, which are too few to end the view without them, do so if all of them are there and
    /// none of them hears any of `lost`. `rows` are those of the view.
    ///
    /// # Errors
    /// The reason, if they are not given up.
    pub fn recover<R: Rows>(&mut self, lost: &[Rank], rows: &R) -> Result<(), Unrecoverable> {
        self.last_worked = false;
        self.membership.give_up(lost, &self.view, rows)
    }

    /// Whether `member` is given up.
    pub fn is_given_up(&self, member: Rank) -> bool {
        self.membership.is_given_up(member)
    }

    fn report(&mut self, member: Rank, certainty: Certainty) {
        self.reported.push((member, certainty));
        // The next poll looks everywhere.
        self.last_worked = false;
    }

    /// Asks for a next view in which `joiner` is a member, and a voter. False if it is one, or was
    /// asked for before, or too many were, or the view is full.
    pub fn admit(&mut self, joiner: Process) -> bool {
        self.last_worked = false;
        self.membership.admit(&self.view, joiner, true)
    }

    /// As [`admit`](Self::admit), for a joiner whose death no member could prove: it becomes a
    /// voter by a later view, once it has begun one. So a joiner that never begins blocks no group.
    pub fn admit_nonvoter(&mut self, joiner: Process) -> bool {
        self.last_worked = false;
        self.membership.admit(&self.view, joiner, false)
    }

    /// Takes an admission back that was asked for: the joiner has ended, or does not wait any more.
    /// The next view may have it nevertheless, and later ones are not asked for it.
    pub fn withdraw(&mut self, joiner: MemberId) {
        self.membership.withdraw(joiner);
    }

    /// Asks for a next view with a `change` of its subgroups.
    ///
    /// Returns false if the change makes no sense in this view, or is the case already, or if too
    /// many changes are asked for. If changes of two members contradict each other, the change of
    /// the lower rank counts.
    pub fn propose_change(&mut self, change: Change) -> bool {
        self.last_worked = false;
        self.membership.propose_change(&self.view, change)
    }

    /// How far my applications have come in each of my rings: for
    /// [`is_delivered`](Self::is_delivered).
    pub fn committed(&self) -> Vec<u64> {
        self.subgroups.iter().map(Subgroup::committed).collect()
    }

    /// Whether everything that stood in my rings when they had come so far is delivered by every
    /// member of this view.
    pub fn is_delivered(&self, committed: &[u64]) -> bool {
        // Messages that an epoch left undelivered when it ended are sent again.
        let is_delivered = |subgroup: &Subgroup, position| subgroup.is_closed() || subgroup.is_delivered(position);
        self.subgroups.iter().zip(committed).all(|(subgroup, position)| is_delivered(subgroup, *position))
    }

    /// Asks for a next view with the same members: ways that belong to this view are broken, and
    /// the next one makes them anew.
    pub fn renew(&mut self) {
        if !self.membership.is_changing() {
            self.membership.renew();
            self.last_worked = false;
        }
    }

    /// Says whether subgroups may go on that the end of this view does not touch. If one member
    /// says no, the epochs of all subgroups end. By default they may, unless that is [switched
    /// off](Ablation::epochs).
    pub fn keep_epochs(&mut self, keeps: bool) {
        self.membership.keep_epochs(keeps && self.ablation.epochs);
    }

    /// Asks for a next view without this member. Messages that it has sent by then are delivered
    /// or, if other members have not received them, lost.
    pub fn leave(&mut self) {
        self.membership.leave();
        self.last_worked = false;
    }

    /// Says whether this member has something to send in a view to come, though the subgroup has no
    /// ring for it in this one. The group does not finish before.
    pub fn keep_open(&mut self, open: bool) {
        self.last_worked &= self.open == open;
        self.open = open;
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

    /// Shows the others that I live, while I can't be polled because their rows are not here yet.
    /// `store` writes a word of my row.
    pub fn show_life(&mut self, store: impl FnOnce(u64, u64)) {
        store(membership::HEARTBEAT, self.membership.next_heartbeat());
    }

    /// Returns the member that would lead a change of the view now: the lowest rank that I don't
    /// suspect.
    pub fn leader(&self) -> Rank {
        self.membership.leader()
    }

    /// Whether I suspect `member`.
    pub fn suspects(&self, member: Rank) -> bool {
        self.membership.suspects(member)
    }

    /// Whether this view is coming to its end: the agreement is under way, and subgroups that it
    /// may touch are wedged.
    pub fn is_changing(&self) -> bool {
        self.membership.is_changing()
    }

    /// Whether this view can't end, because the members that I don't suspect are no quorum of it,
    /// or for longer than an agreement takes: I may be on the smaller side of a partition. It
    /// continues when enough of the others are heard again, or are proven dead.
    pub fn is_blocked(&self) -> bool {
        self.membership.is_blocked()
    }

    /// Tells the engine the decision that ends this view, in the words that
    /// [`decided`](Self::decided) yields at another member. Words that make no sense in this view
    /// mean nothing.
    pub fn learn(&mut self, words: Vec<u64>) {
        self.last_worked = false;
        self.membership.tell(words);
    }

    /// The words of the decision that ends this view, for members to which it has not come.
    pub fn decided(&self) -> Option<&[u64]> {
        self.membership.decided()
    }

    /// The highest ballot that I have promised.
    pub fn ballot(&self) -> Option<Ballot> {
        self.membership.ballot()
    }

    /// The view that the others go on to without me: see [`State::Evicted`]. It begins an
    /// [era](ViewId::era) if I was given up.
    pub fn left_out_of(&self) -> Option<ViewId> {
        self.membership.left_out_of()
    }

    /// How the view ends, once that is decided. See [`State::Ended`].
    pub fn decision(&self) -> Option<&Decision> {
        self.membership.decision()
    }

    /// Returns the protocol violations that this member has noticed. It suspected each violator.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns my engine in the view that follows. It continues where this engine stopped.
    ///
    /// Returns `None` if I am not in that view, or if this view has not [ended](State::Ended).
    pub fn successor(&mut self) -> Option<Engine> {
        let decision = self.decision().filter(|_| self.state == State::Ended)?.clone();
        let me = decision.next.rank_of(self.view.members[self.me.index()])?;
        let mut next = Engine::new(decision.next, me, self.ablation).expect("a decided view is well formed");
        let was = |rank: Rank| self.view.rank_of(next.view.members[rank.index()]);
        next.membership.inherit(&self.membership, was);
        next.awaits_end = self.awaits_end || self.subgroups.iter().any(Subgroup::has_sent);
        next.keep_pace(self);
        // The agreement had no room for these proposals.
        let proposed = self.membership.take_proposed();
        for join in proposed.joins {
            next.membership.admit(&next.view, join.process, join.votes);
        }
        for change in proposed.changes {
            if !self.view.has_settled(&change, &next.view) {
                next.membership.propose_change(&next.view, change);
            }
        }
        for id in (0..next.view.subgroups.len() as u32).map(SubgroupId) {
            next.follow(self, id);
        }
        Some(next)
    }

    /// Says that the epoch of `subgroup` before the one that begins with this view
    /// [ended](Self::is_closed) in `older`: it continues where that stopped. Before the first poll,
    /// and before its deliveries are [handed off](Self::hand_off). Means nothing if its epoch began
    /// before this view, or it was not there.
    pub fn follow(&mut self, older: &Engine, subgroup: SubgroupId) {
        let Some(subgroup) = self.subgroups.iter_mut().find(|known| known.id() == subgroup) else { return };
        let old = older.view.subgroup(&self.view.subgroups[subgroup.id().index()].name);
        if let Some(old) = older.subgroups.iter().find(|known| known.is_closed() && Some(known.id()) == old) {
            subgroup.follow(old, &older.view, &self.view);
        }
    }

    /// Says that the first `rounds` rounds of `sender` in `subgroup` were delivered here in the
    /// view before, in which I was no member yet and only [observed](crate::Observer::known): they
    /// come again, and are passed over. Before the first poll, and before deliveries are [handed
    /// off](Self::hand_off). Means nothing in a total order.
    pub fn pass_over(&mut self, subgroup: SubgroupId, sender: Rank, rounds: u64) {
        let subgroup = self.subgroups.iter_mut().find(|found| found.id() == subgroup);
        if let (Some(subgroup), Some(sender)) = (subgroup, self.view.members.get(sender.index())) {
            subgroup.pass_over(*sender, rounds, &self.view);
        }
    }

    /// After the [end](State::Ended): my messages of `subgroup` that were not delivered, to be sent
    /// again in the next view. `None` if I did not send there, or its epoch has not ended.
    pub fn resend(&self, subgroup: SubgroupId) -> Option<Resend> {
        self.subgroup(subgroup).filter(|subgroup| self.state == State::Ended && subgroup.is_closed())?.resend(self.me)
    }

    /// Gives the group up: tells the others that I acknowledge nothing more, and in `reason`, which
    /// is not 0 and means nothing here, why. Means nothing once everything is finished.
    pub fn abandon<T: Table>(&mut self, reason: u64, table: &mut T) {
        if self.state != State::Finished {
            self.announce(membership::ABANDONED, reason.max(1), table);
        }
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

    /// My ring's claims in `subgroup`; `None` if I don't send there.
    pub fn claims(&self, subgroup: SubgroupId) -> Option<Arc<Claims>> {
        self.subgroup(subgroup)?.claims().cloned()
    }

    /// Hands the deliveries of `subgroup` to a consumer on another thread; `None` if I am not in
    /// it.
    ///
    /// # Panics
    /// If the engine has been polled.
    pub fn hand_off(&mut self, subgroup: SubgroupId) -> Option<(Cursor, Arc<Handoff>)> {
        assert_eq!(self.stats.polls, 0, "deliveries are handed off before the first poll");
        let found = self.subgroups.iter_mut().find(|s| s.id() == subgroup)?;
        Some(found.hand_off(&self.view, &self.layout))
    }

    /// Counts of the whole engine.
    pub fn stats(&self) -> EngineStats {
        self.stats
    }

    /// Counts of `subgroup`; `None` if I am not in it.
    pub fn subgroup_stats(&self, subgroup: SubgroupId) -> Option<SubgroupStats> {
        Some(self.subgroup(subgroup)?.stats())
    }

    /// The state shared with the consumer of `subgroup` on another thread; `None` if there is none,
    /// or it has given up.
    pub fn handoff(&self, subgroup: SubgroupId) -> Option<&Arc<Handoff>> {
        self.subgroup(subgroup)?.handoff()
    }

    /// The number of sequence numbers of `subgroup` that every member has received, as I know it.
    pub fn stable(&self, subgroup: SubgroupId) -> Option<u64> {
        Some(self.subgroup(subgroup)?.stable())
    }

    /// The number of sequence numbers of `subgroup` that I have delivered; `None` if I am not in it, it is
    /// Fifo, or a consumer on another thread delivers there.
    pub fn delivered(&self, subgroup: SubgroupId) -> Option<u64> {
        self.subgroup(subgroup)?.delivered_inline()
    }

    /// How many rounds of the sender of this sender rank I have delivered in `subgroup`; 0 if I am
    /// not in it.
    ///
    /// # Panics
    /// If the subgroup has no such sender.
    pub fn delivered_rounds(&self, subgroup: SubgroupId, sender: usize) -> u64 {
        self.subgroup(subgroup).map_or(0, |subgroup| subgroup.delivered_rounds(sender))
    }

    /// The number of rounds that I have announced in `subgroup`; `None` if I am not in it.
    pub fn announced_rounds(&self, subgroup: SubgroupId) -> Option<u64> {
        Some(self.subgroup(subgroup)?.announced_rounds())
    }

    /// The position in my ring in `subgroup` below which every member has delivered everything;
    /// `None` if I don't send there.
    pub fn delivered_everywhere(&self, subgroup: SubgroupId) -> Option<u64> {
        self.subgroup(subgroup)?.delivered_everywhere()
    }

    /// The place that my frame at `position` of my ring in `subgroup` has in the order
    /// ([`SubgroupSpec::sequence`]), once it is delivered here, and so is stable; in a Fifo
    /// subgroup once every member has delivered it. `rows` is the table. Only for a frame behind
    /// the [watch](Claims::set_watch).
    ///
    /// [`SubgroupSpec::sequence`]: crate::SubgroupSpec::sequence
    pub fn outcome<R: Rows>(&self, subgroup: SubgroupId, position: u64, rows: &R) -> Option<u64> {
        self.subgroup(subgroup)?.outcome(position, rows)
    }

    /// As [`outcome`](Self::outcome), after the view has [ended](State::Ended): the place, if the
    /// frame belongs to the view. If not it is [sent again](Self::resend). After the group has
    /// [finished](State::Finished) all frames belong to it.
    pub fn final_outcome<R: Rows>(&self, subgroup: SubgroupId, position: u64, rows: &R) -> Option<u64> {
        let subgroup = self.subgroup(subgroup)?;
        match self.state {
            State::Ended if !subgroup.is_closed() => None,
            State::Ended => subgroup.final_outcome(position, rows, subgroup.trim()),
            State::Finished => subgroup.final_outcome(position, rows, u64::MAX),
            _ => None,
        }
    }

    /// Whether my frame at `position` of my ring in `subgroup` is announced, so that others may
    /// deliver it.
    pub fn is_announced(&self, subgroup: SubgroupId, position: u64) -> bool {
        self.subgroup(subgroup).is_some_and(|subgroup| subgroup.is_announced(position))
    }

    /// The [watch](Claims::set_watch) of my ring in `subgroup` was moved: space may be free behind
    /// it.
    pub fn watch_moved(&mut self, subgroup: SubgroupId) {
        if let Some(i) = self.index_of(subgroup) {
            self.subgroups[i].look_again();
            self.ready.add(i);
            self.last_worked = false;
        }
    }

    /// Returns how far each member of `subgroup` is, as I know it. The member that has delivered
    /// least holds back the senders.
    pub fn frontiers(&self, subgroup: SubgroupId) -> impl Iterator<Item = (Rank, Frontier)> {
        self.subgroup(subgroup).into_iter().flat_map(Subgroup::frontiers)
    }

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
            &self.left,
            &self.state,
        )
            .hash(state);
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

    /// Whether this member can leave as far as subgroups of older views are concerned.
    fn is_done_elsewhere(&self) -> bool {
        self.elsewhere.iter().all(|elsewhere| elsewhere.is_done)
    }

    /// Ends the group: once all members have finished sending and I have delivered everything, I
    /// leave.
    fn finish<T: Table>(&mut self, table: &mut T, worked: bool) -> bool {
        if worked || !(self.finished || self.has_finished_sending()) {
            return false;
        }
        self.go_towards_end(table)
    }

    fn has_finished_sending(&self) -> bool {
        !self.open
            && self.subgroups.iter().all(Subgroup::has_finished_sending)
            && self.elsewhere.iter().all(|elsewhere| elsewhere.has_finished_sending)
    }

    /// Takes the next step towards the end: finishes, sees that all have, or leaves.
    #[cold]
    fn go_towards_end<T: Table>(&mut self, table: &mut T) -> bool {
        if !self.finished {
            self.finished = true;
            self.awaits_end |= self.subgroups.iter().any(Subgroup::has_sent);
            self.announce(membership::FINISHED, 1, table);
            return true;
        }
        if !self.all_finished {
            let finished = |rank: &Rank| table.load(*rank, membership::FINISHED) != 0;
            self.all_finished = self.everyone.iter().all(finished);
            // The next poll looks at every subgroup once more, because no member announces anything
            // new now.
            return self.all_finished;
        }
        let is_done_elsewhere = self.is_done_elsewhere();
        if !is_done_elsewhere {
            let has_left = |rank: &&Rank| table.load(**rank, membership::LEFT) != 0;
            self.everyone.iter().filter(has_left).for_each(|rank| _ = self.left.add(*rank));
        }
        if !is_done_elsewhere || !self.subgroups.iter().all(Subgroup::has_delivered_all) {
            return false;
        }
        self.announce(membership::LEFT, 1, table);
        self.membership.tell_finished();
        self.state = State::Finished;
        true
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

    /// Returns whether the view has to end. It does not for a member that needs no peer any more.
    fn has_to_end<T: Table>(&mut self, table: &T) -> bool {
        if !self.reported.is_empty() {
            self.take_reports(table);
        }
        if !self.membership.watch(table) {
            return false;
        }
        let is_finished = |rank: &Rank| table.load(*rank, membership::FINISHED) != 0;
        // Looked at before the flags are, the counters may be behind them: then the next poll
        // tells.
        let done = self.subgroups.iter().all(Subgroup::has_received_all)
            && self.elsewhere.iter().all(|it| it.has_received_all);
        !(done && self.everyone.iter().all(is_finished))
    }

    #[cold]
    fn take_reports<T: Table>(&mut self, table: &T) {
        for (member, certainty) in self.reported.drain(..) {
            match certainty {
                _ if table.load(member, membership::LEFT) != 0 => {}
                Certainty::Dead => self.membership.died(member),
                Certainty::Gone => self.membership.gone(member),
                Certainty::Evicted => self.membership.evict(member),
                Certainty::Suspected => _ = self.membership.suspect(member),
                Certainty::Trusted => self.membership.trust(member),
                Certainty::Heard => self.membership.heard(member),
            }
        }
    }

    /// Begins to end the view.
    #[cold]
    fn close<T: Table>(&mut self, now: Time, table: &mut T) {
        if !self.membership.keeps_epochs() {
            // First: others that see this view close had better have all of it.
            self.membership.want_all();
            self.wedge_wanted(table);
        }
        self.membership.close(now, &self.layout, table);
        self.stats.control_posts += 3;
    }

    /// Stops announcing and receiving in the subgroups that have to wedge and are here, and says
    /// what I have of them, and of those that have wedged elsewhere. Whether there was one.
    #[cold]
    fn wedge_wanted<T: Table>(&mut self, table: &mut T) -> bool {
        let mut has_cut = false;
        for id in self.membership.to_wedge() {
            if let Some(at) = self.subgroups.iter().position(|subgroup| subgroup.id() == id) {
                let cuts = self.wedge(at, table);
                self.write_cuts(id, &cuts, table);
                has_cut = true;
            }
        }
        for (id, cuts) in core::mem::take(&mut self.unwritten) {
            self.write_cuts(id, &cuts, table);
            has_cut = true;
        }
        if has_cut {
            self.post_cuts(table);
        }
        has_cut
    }

    /// Stops announcing and receiving in a subgroup.
    fn wedge<T: Table>(&mut self, at: usize, table: &mut T) -> Cuts {
        if !self.put_off.is_empty() || !self.due.is_empty() {
            self.due.append(&mut self.put_off);
            self.post_control(table);
        }
        let subgroup = &mut self.subgroups[at];
        subgroup.wedge(table, &self.ablation, &mut self.moves);
        subgroup.cuts()
    }

    /// Writes down how much this member has of each sender of a subgroup, which may be in an older
    /// engine, and that it has wedged there.
    fn write_cuts<T: Table>(&mut self, id: SubgroupId, cuts: &Cuts, table: &mut T) {
        let at = self.layout.row(self.me).cut(id).expect("I am a member of it");
        for (sender, rounds) in cuts.rounds.iter().filter(|_| !mutation!(CutUnwritten)) {
            table.store(at + 8 * *sender as u64, *rounds);
        }
        self.membership.note_wedged(id, cuts.delivered);
    }

    fn post_cuts<T: Table>(&self, table: &mut T) {
        let cuts = self.layout.row(self.me).cuts.clone();
        if !cuts.is_empty() {
            table.post_quietly(&self.everyone, cuts);
        }
    }

    /// From the wedge to the end: whether anything happened, and when to come again.
    #[cold]
    fn change_view<T: Table>(
        &mut self,
        now: Time,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
    ) -> (bool, Option<Time>) {
        self.take_reports(table);
        let (mut worked, wake_at) = self.membership.agree(now, &self.view, &self.layout, table);
        worked |= self.wedge_wanted(table);
        let blamed = self.membership.take_blamed();
        self.faults.extend(blamed.into_iter().map(|member| Fault::Proposal { member }));
        if self.membership.is_evicted() {
            self.state = State::Evicted;
            // My row is final: no member has to wait for me.
            self.announce(membership::ABANDONED, 1, table);
            return (true, None);
        }
        let Some(decision) = self.membership.decision() else { return (worked, wake_at) };
        if !self.ending {
            self.ending = true;
            self.touched = self.view.touched_by(&decision.next);
            for subgroup in &mut self.subgroups {
                match self.touched[subgroup.id().index()] {
                    true => subgroup.close(&decision.trims[subgroup.id().index()], table, upcalls),
                    false => subgroup.unwedge(),
                }
            }
            worked = true;
        }
        worked |= self.deliver_rest(table, upcalls);
        if self.elsewhere.iter().all(|it| it.has_ended) {
            self.membership.end(table);
            self.state = State::Ended;
            worked = true;
            if !self.has_rest() {
                self.membership.tell_end(now);
            }
        }
        (worked, wake_at)
    }

    /// Suspects the member that breaks the protocol. The fault may be found again at each poll
    /// until the view ends.
    #[cold]
    fn accuse(&mut self, fault: Fault) {
        let is_over = self.state == State::Ended;
        if is_over && !self.accused.contains(&fault) && !self.faults.contains(&fault) {
            self.accused.push(fault);
            self.faults.push(fault);
        } else if !is_over && self.membership.accuse(&fault) {
            self.faults.push(fault);
        }
    }

    fn announce<T: Table>(&mut self, word: u64, value: u64, table: &mut T) {
        table.store(word, value);
        table.post(&self.everyone, word..word + 8);
        self.stats.control_posts += 1;
    }
}
