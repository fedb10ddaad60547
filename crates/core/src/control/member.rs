//! A member of a group across its views: joins, suspicions and their reasons, the start of the next
//! view, and the end of this member's membership.
//!
//! The driver polls the [engine](Member::engine) with the memory of the view, reports events to the
//! member, and carries out the orders of its [`Roster`]. One view leads to the next in three steps:
//!
//! 1. The engine reports that the view has ended. [`Member::end_view`] makes an [`Install`]. The
//!    driver makes this member's row in the next view, and reports that it is
//!    [prepared](Install::prepared).
//! 2. [`Member::look`] returns whether the view begins. It does not begin before the application
//!    has received the rest of the previous view. The driver then takes the rows that have arrived
//!    ([`Roster::take_part`]).
//! 3. [`Member::begin`] continues in the next view with the valid rows.
//!
//! Subgroups that the change does not touch continue meanwhile. They also continue in later views,
//! with the rows with which their epochs began. The driver keeps the tables of [`Member::older`]
//! views, and [polls](Member::poll_older) their engines too. [`Member::home`] returns the engine
//! with which a subgroup's epoch began.
use super::{
    ASK_EVERY, Asks, Begun, ControlEvent, ControlMessage, INSTALL_LOOK, Install, Joins, ObjectOrder, Readmissions,
    Redials, Refusal, Remedy, Request, Roster, SharedSettings, admits,
};
use crate::ids::{MemberId, Process, Rank, SubgroupId, Time, ViewId};
use crate::limits;
use crate::membership::Unrecoverable;
use crate::multicast::Upcalls;
use crate::multicast::engine::{Engine, Progress, State};
use crate::multicast::stats::EngineStats;
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::{Change, View};
use crate::wire::layout::{Layout, membership};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::slice;
use core::time::Duration;
use tracing::{debug, info};

/// The target of events about views.
const TARGET: &str = "spindle::view";
/// The number of the oldest members that report a view to the processes that join with it.
const TELLERS: u32 = 3;
/// The time within which a member whose connections have all ended must give a sign of life, if
/// silence is not suspected.
const CUT_MAX: Duration = Duration::from_secs(2);
/// The interval at which a recovered group looks for members that it gave up.
const MEET_EVERY: Duration = Duration::from_secs(5);
/// The number of times per suspicion timeout that a member reports to other hosts that it lives,
/// while it delivers the rest of a view.
const PATIENCE_PART: u32 = 8;
/// The time for which this member waits for all others after a process has asked to follow. The
/// process asks five times in that time.
const FOLLOW_WAIT: Duration = Duration::from_millis(5 * ASK_EVERY.as_millis() as u64);

/// A function that reads words of a row in the previous view.
pub type Words = Box<dyn Fn(Rank, u64) -> u64 + Send>;

/// The configuration that all members share, as far as a [`Member`] uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// All shared settings.
    pub settings: SharedSettings,
    /// The silence after which a member is suspected, if silence is suspected.
    pub suspect_after: Option<Duration>,
}

/// A task of the driver that follows from news.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The driver answers a request with the state of this member.
    Answer {
        /// The process that made the request.
        to: MemberId,
        /// The number to repeat in the answer.
        reply: u64,
        /// The reason why this member does not do what was requested, if it does not.
        refused: Option<Unrecoverable>,
    },
    /// A view without this member was decided. Its [era](ViewId::era) is a later one if an
    /// operator's recovery gave this member up.
    Evicted {
        /// That view.
        next: ViewId,
    },
    /// The driver sends objects to a process that follows.
    Send(ObjectOrder),
    /// News that does not concern the membership.
    Other(ControlEvent),
}

/// The progress of a member that wants to leave, in whichever view the members agree on that.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Leaving {
    No,
    /// The member first has to send messages of earlier views again.
    Wanted,
    /// The member waits until everything that it had sent by then is delivered everywhere. The
    /// numbers are counts of each view's engine.
    Waits(Vec<(ViewId, Vec<u64>)>),
    /// The member has asked the others to continue without it.
    Asked,
}

/// A member of a group.
pub struct Member {
    engine: Engine,
    /// The engines of ended views in which subgroups continue, the oldest first.
    older: Vec<Engine>,
    /// The sum of the counters of engines that are gone.
    gone: EngineStats,
    view: Arc<View>,
    terms: Terms,
    /// The next view, once this one has ended.
    next: Option<Install>,
    joins: Joins,
    /// True if the processes that will join with the next view were reported to the driver.
    told_newcomers: bool,
    readmissions: Readmissions,
    redials: Redials,
    /// Members of this view that were suspected because their connections reported their end.
    told_ended: BTreeSet<MemberId>,
    /// Members of the view whose rows never came here.
    absent: BTreeSet<MemberId>,
    /// Members of the view whose streams are broken.
    down: BTreeSet<MemberId>,
    /// Members with which this one shares a subgroup that stays with an older view.
    sharing: BTreeSet<(ViewId, MemberId)>,
    /// True if the places of some absent members are unknown.
    seeks: bool,
    /// The time at which this member last looked for these members.
    sought: Time,
    /// The previous view and its rows, if some rows of this view have not arrived.
    before: Option<(Arc<View>, Words)>,
    /// Members to evict until a view without them has begun: their eviction was requested.
    evicting: BTreeSet<MemberId>,
    leaving: Leaving,
    /// The processes that want the state of this member's application, in the order of their
    /// requests.
    states: VecDeque<MemberId>,
    /// The time at which this member last looked for missing members that a view change needs.
    looked: Time,
    /// The time at which this member last asked others whether they continue without it.
    asked: Time,
    /// The time at which this member last reported to others that it delivers the rest of this
    /// view, if it has.
    told_rest: Option<Time>,
    /// True if this view has groups for large messages.
    has_object_groups: bool,
    /// True if a process follows, as far as the driver has reported.
    is_followed: bool,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("engine", &self.engine).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Member {
    /// A member whose first view begins.
    pub fn new<W>(begun: Begun, terms: Terms, roster: &Roster<W>, now: Time) -> Member {
        let Begun { engine, view, absent } = begun;
        let (told_ended, down, evicting, sharing) = Default::default();
        let mut member = Member {
            engine,
            older: Vec::new(),
            gone: EngineStats::default(),
            view,
            readmissions: Readmissions::new(terms.suspect_after),
            redials: Redials::new(terms.suspect_after),
            terms,
            next: None,
            joins: Joins::default(),
            told_newcomers: false,
            told_ended,
            absent,
            down,
            sharing,
            seeks: true,
            sought: now - ASK_EVERY,
            before: None,
            evicting,
            leaving: Leaving::No,
            states: VecDeque::new(),
            looked: now,
            asked: now,
            told_rest: None,
            has_object_groups: false,
            is_followed: false,
        };
        member.begin_redials(roster, now);
        member.weigh_epochs(roster);
        let (me, view, members) = (roster.me().0, member.view.id.0, &member.view.members);
        info!(target: TARGET, me, view, members = ?ids(members), absent = ?ids(&member.absent), "first view begins");
        member
    }

    /// The engine of the newest view that has begun here.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The same, to be polled.
    #[inline]
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The newest engine, and those of older views in which subgroups go on.
    fn engines(&self) -> impl Iterator<Item = &Engine> {
        core::iter::once(&self.engine).chain(&self.older)
    }

    fn engines_mut(&mut self) -> impl Iterator<Item = &mut Engine> {
        core::iter::once(&mut self.engine).chain(&mut self.older)
    }

    /// The engine of the newest view that has begun here, or of an older one in which subgroups go
    /// on.
    pub fn engine_of(&self, view: ViewId) -> Option<&Engine> {
        self.engines().find(|engine| engine.view().id == view)
    }

    /// The same, to be changed.
    pub fn engine_of_mut(&mut self, view: ViewId) -> Option<&mut Engine> {
        self.engines_mut().find(|engine| engine.view().id == view)
    }

    /// Returns the counters of the engines of all views so far, added up.
    pub fn engine_stats(&self) -> EngineStats {
        let mut sum = self.gone;
        self.engines().for_each(|engine| sum += engine.stats());
        sum
    }

    /// The views that have ended and in which subgroups of this member go on, the oldest first. The
    /// driver keeps their tables.
    pub fn older(&self) -> impl Iterator<Item = ViewId> {
        let ended = self.next.iter().map(|_| &self.engine).filter(|engine| engine.goes_on());
        self.older.iter().chain(ended).map(|engine| engine.view().id)
    }

    /// Where a subgroup of the newest view stands for this member: the engine with which its epoch
    /// began, and its number there.
    pub fn home(&self, subgroup: SubgroupId) -> Option<(&Engine, SubgroupId)> {
        let spec = self.view.subgroups.get(subgroup.index())?;
        let engine = self.engine_of(self.view.epoch(subgroup))?;
        Some((engine, engine.view().subgroup(&spec.name)?))
    }

    /// The group has finished, in all views in which something went on.
    pub fn finish(&mut self) {
        if *self.engine.state() == State::Finished {
            self.older.iter_mut().for_each(Engine::finish_older);
        }
    }

    /// Polls the engine of an [older](Self::older) view, with the table of that. To be done before
    /// each poll of the newest [engine](Self::engine_mut), and while the next view is prepared.
    /// `upcalls` get the numbers that subgroups have in the newest one.
    pub fn poll_older<T: Table>(
        &mut self,
        view: ViewId,
        now: Time,
        table: &mut T,
        upcalls: &mut impl Upcalls<T>,
    ) -> Progress {
        if view == self.view.id {
            return self.engine.poll(now, table, upcalls);
        }
        let Some(older) = self.older.iter_mut().find(|older| older.view().id == view) else {
            return Progress { worked: false, wake_at: None, partial: false };
        };
        let mut progress = older.poll(now, table, upcalls);
        progress.worked |= self.engine.tend(older, table, upcalls);
        progress
    }

    /// Says whether subgroups may go on that changes of this view do not touch: as long as the rows
    /// of all members come through shared memory or over streams, no process follows, which reads
    /// the rows of one view, and no object is on its way. While the view changes that stays as it
    /// is: a leader finds it in the row of each member that has promised.
    fn weigh_epochs<W>(&mut self, roster: &Roster<W>) {
        if self.engine.is_changing() {
            return;
        }
        let has_way = |id: &MemberId| !self.absent.contains(id) && (roster.streams_rows() || !roster.is_far(*id));
        let is_alone = !self.is_followed && roster.observers().is_empty() && !self.has_object_groups;
        self.engine.keep_epochs(is_alone && self.view.members.iter().all(has_way));
    }

    /// Says whether there are groups for large messages in this view, by the driver's
    /// [groups](super::ObjectGroups). `outdated` says whether there should be one for a subgroup
    /// whose epoch began with an older view: those belong to the newest view, so all epochs end.
    pub fn note_object_groups<W>(&mut self, are_there: bool, outdated: bool, roster: &Roster<W>) {
        if self.has_object_groups != are_there {
            self.has_object_groups = are_there;
            self.weigh_epochs(roster);
        }
        if outdated {
            self.engine.renew();
        }
    }

    /// Asks all members for a view with a change of its subgroups: those of the view that is about
    /// to begin, or of the newest that has. `has_room` says whether there is memory for rows of so
    /// many bytes in all. Returns false if the change makes no sense in this view, or is the case
    /// already.
    ///
    /// # Errors
    /// That of `has_room`: a view that was agreed on and fits into the memory of no member would
    /// end all members.
    pub fn propose_change<E>(
        &mut self,
        change: Change,
        has_room: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<bool, E> {
        let engine = match &mut self.next {
            Some(next) => next.engine_mut(),
            None => &mut self.engine,
        };
        let view = engine.view();
        if !view.wants(&change) {
            return Ok(false);
        }
        let mut next = view.next(|_| true, &[], slice::from_ref(&change));
        // A later change may touch all subgroups.
        next.begin_epochs();
        let Ok(layout) = Layout::new(&next) else { return Ok(false) };
        has_room(layout.rows().iter().map(|row| row.size).sum())?;
        Ok(engine.propose_change(change))
    }

    /// The newest view that has begun here.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The view that is about to begin.
    pub fn next(&self) -> Option<&Install> {
        self.next.as_ref()
    }

    /// The same, to be prepared.
    pub fn next_mut(&mut self) -> Option<&mut Install> {
        self.next.as_mut()
    }

    /// Returns the processes that will join with the next view, once in each view, when all of them
    /// are known. The driver may make this member's memory for that view by now, while the view
    /// still runs.
    pub fn take_newcomers(&mut self) -> Option<Vec<MemberId>> {
        let is_time = !self.told_newcomers && self.next.is_none() && !self.engine.is_changing();
        if !is_time || !self.joins.is_complete() {
            return None;
        }
        self.told_newcomers = true;
        Some(self.joins.asking().collect())
    }

    /// Notes whether the group is followed, by `observers` over streams or by processes that this
    /// member knows of. Then what was delivered is readable for a while yet.
    pub fn note_followers<W>(&mut self, observers: usize, roster: &Roster<W>) -> bool {
        let is_followed = observers > 0 || !roster.observers().is_empty();
        self.is_followed = is_followed;
        self.engines_mut().for_each(|engine| engine.set_observed(is_followed));
        self.weigh_epochs(roster);
        is_followed
    }

    fn is_in_next(&self, id: MemberId) -> bool {
        self.next.as_ref().is_some_and(|next| next.has(id))
    }

    fn rank_of(&self, id: MemberId) -> Option<Rank> {
        self.view.rank_of(id)
    }

    /// Takes in what has happened. `rows` are those of the view.
    pub fn hear<W>(
        &mut self,
        news: ControlEvent,
        rows: &impl Rows,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Option<Heard> {
        match news {
            ControlEvent::Died(id) => {
                self.forget_joiner(id);
                self.died(id, roster);
            }
            // A member's streams tell what has become of it.
            ControlEvent::Lost(id) if self.rank_of(id).is_none() => self.forget_joiner(id),
            ControlEvent::Lost(_) => {}
            ControlEvent::Asks(asks) => self.asked(asks, rows, roster, now),
            ControlEvent::Requests { from, reply, what } => return self.requested(from, reply, what, rows, roster),
            ControlEvent::View { incarnation, view, decision } => {
                return self.hear_of(incarnation, &view, decision, roster);
            }
            ControlEvent::Reached(card) => roster.tell_view_at(self.newest(), &card),
            ControlEvent::Meets(_) if mutation!(StrangersPass) => {}
            ControlEvent::Meets(card) => {
                roster.tell_view_at(self.newest(), &card);
                roster.ask_view_at(&card);
            }
            ControlEvent::Wants(order) => {
                if self.rank_of(order.from).is_none() && !self.is_in_next(order.from) {
                    // This member forgets a process that reads its control messages slowly.
                    roster.add_observer(order.from);
                }
                return Some(Heard::Send(order));
            }
            other => return Some(Heard::Other(other)),
        }
        None
    }

    /// The newest view that this member knows to be decided.
    pub fn newest(&self) -> &Arc<View> {
        self.next.as_ref().map_or(&self.view, Install::view)
    }

    /// A process wants to join, or to follow.
    fn asked<W>(&mut self, asks: Asks, rows: &impl Rows, roster: &mut Roster<W>, now: Time) {
        let id = asks.id;
        if !admits(self.terms.settings.digest(), asks.config, asks.observer) {
            let (settings, incarnation) = (self.terms.settings.clone(), roster.incarnation());
            let why = Refusal::Config { settings, incarnation };
            return roster.post_at(asks.id_conflict, id, ControlMessage::Refused { why });
        }
        if let Some(address) = asks.id_conflict.clone() {
            // If that is a member it has to go first; while it is heard of it does not go.
            let rank = self.rank_of(id).filter(|rank| !self.engine.suspects(*rank));
            let heartbeat = rank.map(|rank| rows.load(rank, membership::HEARTBEAT));
            let wait = self.told_to_wait(roster);
            let answer = roster.turn_away(&asks, heartbeat, wait, now);
            return roster.post_at(Some(address), id, answer);
        }
        let is_in = self.rank_of(id).is_some();
        if (is_in || self.is_in_next(id)) && !roster.is_instance(id, asks.instance) {
            // Its predecessor has to go first, and it asks again.
            return self.wait(id, roster);
        }
        if is_in && roster.is_far(id) {
            // A process that missed its beginning is too late for it; and one that has come after a
            // member of the same id must have no part in it.
            return self.wait(id, roster);
        }
        if let Some(next) = self.next.as_ref().filter(|next| next.has(id)) {
            return next.hand_over_to(id, roster);
        }
        if is_in {
            roster.tell_view(&self.view, [id]);
            return roster.hand_over(self.view.id, [id]);
        }
        if asks.observer {
            return self.let_follow(id, roster, now);
        }
        if self.view.members.len() >= limits::MEMBERS_MAX {
            return roster.post(id, ControlMessage::Refused { why: Refusal::Full(limits::MEMBERS_MAX as u32) });
        }
        let address = roster.book().and_then(|book| book.address_of(id));
        if address.is_some_and(|address| !self.readmissions.admits(address, now)) {
            // No process waits for it meanwhile.
            self.joins.forget(id);
            return self.wait(id, roster);
        }
        if asks.follows != ViewId(0) && asks.follows < self.view.id {
            // It asks again when it follows this view.
            self.joins.expect(id, now);
            return self.wait(id, roster);
        }
        let process = roster.asker(id);
        if self.joins.ask(process, asks.follows, now) {
            self.admit(process, roster);
        }
        if mutation!(AdmissionsLost) && self.next.is_some() {
            for process in self.joins.all() {
                self.admit(process, roster);
            }
        }
        self.wait(id, roster);
    }

    /// A process does not wait to be let in any more. Views that would be asked to admit it later
    /// would wait for it, and this member would have forgotten by then that it is dead.
    fn forget_joiner(&mut self, id: MemberId) {
        self.states.retain(|waiting| *waiting != id);
        self.joins.forget(id);
        self.engine.withdraw(id);
        if let Some(next) = &mut self.next {
            next.engine_mut().withdraw(id);
        }
    }

    /// Whether a process wants the state of this member's application.
    pub fn has_state_requests(&self) -> bool {
        !self.states.is_empty()
    }

    /// Returns the process to which the state of this member's application goes now, as it is
    /// between two deliveries: to one at a time, as many may want it and the group must not wait.
    /// None gets it while the view changes. If this member can't tell how much its application has
    /// taken, the process is refused, and asks another member.
    pub fn next_state<W>(&mut self, is_known: bool, roster: &mut Roster<W>) -> Option<MemberId> {
        if self.next.is_some() || self.engine.is_changing() {
            return None;
        }
        let to = self.states.pop_front()?;
        if !is_known {
            self.refuse_state(to, roster);
            return None;
        }
        Some(to)
    }

    /// The application can't give its state to `to`.
    pub fn refuse_state<W>(&self, to: MemberId, roster: &mut Roster<W>) {
        roster.post(to, ControlMessage::Refused { why: Refusal::NoState(roster.me()) });
    }

    fn let_follow<W>(&mut self, id: MemberId, roster: &mut Roster<W>, now: Time) {
        // It asks until it has the memory of all members, and each of them gives only its own.
        self.engine.await_all(now + FOLLOW_WAIT);
        if roster.add_observer(id) {
            self.joins.expect(id, now);
        }
        self.weigh_epochs(roster);
        match &self.next {
            Some(next) => next.hand_over_to(id, roster),
            // A message that comes in rows of this view after its end would be missed. The process
            // asks again.
            None if self.engine.is_changing() && !mutation!(FollowersLetInLate) => self.wait(id, roster),
            None if self.view.subgroups.iter().any(|spec| spec.epoch.is_some()) => self.engine.renew(),
            None => {
                self.engine.set_observed(true);
                roster.tell_view(&self.view, [id]);
                roster.hand_over(self.view.id, [id]);
            }
        }
    }

    fn told_to_wait<W>(&self, roster: &Roster<W>) -> ControlMessage {
        let blocked = self.engine.is_blocked() && !mutation!(BlockedUntold);
        let is_here = |rank: &Rank| !(blocked && self.engine.suspects(*rank));
        let ids = self.view.ranks().filter(is_here).map(|rank| self.view.members[rank.index()]);
        let present = ids.map(|id| (id, roster.pid(id))).collect();
        let leader = self.view.members[self.engine.leader().index()];
        ControlMessage::Wait { members: self.view.members.len() as u32, leader, blocked, present }
    }

    /// Tells a process that wants to join who is there.
    fn wait<W>(&self, id: MemberId, roster: &mut Roster<W>) {
        let wait = self.told_to_wait(roster);
        roster.post(id, wait);
        if roster.book().is_some() && self.rank_of(id).is_none() && !mutation!(JoinersUntold) {
            // It finds no member in a directory, or not those on other hosts, and has to ask the
            // leader, too.
            roster.tell_view(&self.view, [id]);
        }
    }

    /// Another process wants something.
    fn requested<W>(
        &mut self,
        from: MemberId,
        reply: u64,
        what: Request,
        rows: &impl Rows,
        roster: &mut Roster<W>,
    ) -> Option<Heard> {
        let mut refused = None;
        match what {
            Request::Leave => {
                self.leave();
            }
            Request::State => {
                if !self.states.contains(&from) {
                    self.states.push_back(from);
                }
                return None;
            }
            Request::Forget => {
                self.forget_joiner(from);
                roster.forget_observer(from);
                return None;
            }
            Request::Evict(id) => self.evict(id, roster.me()),
            Request::Recover(lost) => refused = self.recover(&lost, roster, rows).err(),
            Request::View => {
                roster.tell_view(self.newest(), [from]);
                return None;
            }
            Request::Stopped { nonce, .. } => {
                self.has_stopped(Process { id: from, nonce }, roster);
                return None;
            }
            Request::Patience { incarnation, view } => {
                let rank = self.rank_of(from).filter(|_| incarnation == roster.incarnation());
                if let Some(rank) = rank.filter(|_| self.view.id.follows(view)) {
                    self.engine.heard(rank);
                }
                return None;
            }
            _ => {}
        }
        Some(Heard::Answer { to: from, reply, refused })
    }

    /// The group has to go on without `id`: from this view on, or from the next if it ends already
    /// or this one has.
    fn evict(&mut self, id: MemberId, me: MemberId) {
        let rank = self.rank_of(id);
        if id == me || (rank.is_none() && !self.is_in_next(id)) {
            return;
        }
        self.evicting.insert(id);
        if let Some(rank) = rank {
            self.engine.evict(rank);
        }
    }

    /// Gives up the members `lost`, by the word of an operator that they are lost for good, so that
    /// the others go on though they are no quorum.
    ///
    /// # Errors
    /// The reason, if they are not given up.
    pub fn recover<W>(&mut self, lost: &[MemberId], roster: &Roster<W>, rows: &impl Rows) -> Result<(), Unrecoverable> {
        if self.next.is_some() {
            return Err(Unrecoverable::Changing);
        }
        if let Some(id) = lost.iter().find(|id| **id != roster.me() && roster.runs_here(**id)) {
            return Err(Unrecoverable::Here(*id));
        }
        let rank = |id: &MemberId| self.rank_of(*id).ok_or(Unrecoverable::Stranger(*id));
        let ranks = lost.iter().map(rank).collect::<Result<Vec<_>, _>>()?;
        self.engine.recover(&ranks, rows)
    }

    /// Takes in a newer view of this group that another member tells of. A decided view without
    /// this member ends it; a view that follows this member's comes with the decision that ends
    /// that.
    fn hear_of<W>(
        &mut self,
        incarnation: u128,
        view: &View,
        decision: Vec<u64>,
        roster: &mut Roster<W>,
    ) -> Option<Heard> {
        if incarnation != roster.incarnation() || view.id <= self.newest().id || self.has_left(roster.me()) {
            return None;
        }
        let is_open = self.next.is_none() && self.engine.decision().is_none();
        if is_open && view.id.follows(self.view.id) && !decision.is_empty() {
            self.engine.learn(decision);
        } else if view.rank_of(roster.me()).is_none() {
            if view.id.era() > self.newest().id.era() && !mutation!(GivenUpUntold) {
                // The others of this view were given up with this member, and may be where no
                // member of that one tells them so.
                let others = self.newest().members.iter().copied().filter(|id| *id != roster.me());
                roster.tell_view(view, others.collect::<Vec<_>>());
            }
            return Some(Heard::Evicted { next: view.id });
        }
        None
    }

    /// Whether the others go on without this member, as it asked, and only the
    /// [rest](Self::has_rest) keeps it.
    fn has_left(&self, me: MemberId) -> bool {
        let next = self.engine.decision().filter(|_| self.engine.left_out_of().is_none());
        next.is_some_and(|decision| decision.next.rank_of(me).is_none())
    }

    /// A process begins no view any more. It has written nothing in this one if it has not begun
    /// it: its row is zeros, whether there is a stream to it or not.
    fn has_stopped<W>(&mut self, process: Process, roster: &Roster<W>) {
        let Process { id, .. } = process;
        if self.joins.has_asked(process) {
            self.forget_joiner(id);
        }
        if let Some(rank) = self.rank_of(id).filter(|_| roster.never_begins(self.view.id, id)) {
            self.engine.member_died(rank);
        }
    }

    /// `id` writes nothing any more.
    fn died<W>(&mut self, id: MemberId, roster: &Roster<W>) {
        let Some(rank) = self.rank_of(id) else { return };
        if self.next.is_none() {
            // The view ends anyway.
            for process in self.joins.all() {
                self.admit(process, roster);
            }
        }
        if self.absent.contains(&id) && !self.never_began(id, roster) {
            self.engine.member_gone(rank);
        } else {
            self.engine.member_died(rank);
        }
    }

    /// Whether `id`, a member of this host that is dead and whose row has not come, has written
    /// nothing in this view. A member begins a view when its row is on its way to all of its host,
    /// or says in its row of the view before that it does not wait for that; a newcomer always
    /// waits.
    fn never_began<W>(&self, id: MemberId, roster: &Roster<W>) -> bool {
        let before = self.before.as_ref().and_then(|(view, words)| Some((view.rank_of(id)?, words)));
        match before {
            _ if roster.never_begins(self.view.id, id) => true,
            Some((rank, words)) => words(rank, membership::UNSENT) == 0,
            None => roster.is_new(self.view.id, id),
        }
    }

    /// Asks for a view with `process`. The death of one on another host can't be proven here, so it
    /// has to begin a view before it votes.
    fn admit<W>(&mut self, process: Process, roster: &Roster<W>) {
        match roster.is_far(process.id) && !mutation!(FarJoinersVote) {
            true => self.engine.admit_nonvoter(process),
            false => self.engine.admit(process),
        };
    }

    /// Notes which processes that joined with this view stay in the next, and which were left out
    /// though they neither wanted to leave nor ended. `words` are those of the rows of this view.
    fn note_readmissions<W>(&mut self, next: &View, words: &Words, roster: &Roster<W>, now: Time) {
        let ended = roster.ended();
        for (rank, id) in self.view.ranks().zip(self.view.members.iter().copied()) {
            let address = roster.book().and_then(|book| book.address_of(id));
            let Some(address) = address.filter(|_| roster.is_new(self.view.id, id)) else { continue };
            let has_left = words(rank, membership::LEAVING) != 0 || self.evicting.contains(&id);
            if next.rank_of(id).is_some() {
                self.readmissions.stays(address);
            } else if !has_left && !roster.is_dead(id) && !ended.contains(&id) {
                self.readmissions.failed(address, now);
            }
        }
    }

    /// Whether it is this member's to say when the processes that wait are let in. All know who
    /// waits, in case that the leader dies; and if all decided on the moment, the first would,
    /// which need not know of all those that are on their way.
    pub fn lets_in(&self) -> bool {
        self.next.is_none() && !self.engine.is_changing() && self.engine.leader() == self.engine.me()
    }

    /// Lets in the processes for which it is time, dials streams again for which it is, and
    /// suspects members whose connections tell of their end. To be called whenever something has
    /// happened, and after [`patience`](Self::patience).
    pub fn step<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        for (view, id, failure) in roster.take_failures() {
            if self.redials.failed(view, id, failure, now)
                && view == self.view.id
                && let Some(rank) = self.rank_of(id)
            {
                self.engine.suspect(rank);
            }
        }
        if self.seeks && now.since(self.sought) >= ASK_EVERY {
            self.seek_absent(roster, now);
        }
        if self.is_recovered() && now.since(self.asked) >= MEET_EVERY {
            self.asked = now;
            roster.ask_view_afar(now);
        }
        for (view, id) in self.redials.due(now) {
            debug!(target: "spindle::net", me = roster.me().0, view = view.0, member = id.0, "stream is dialled again");
            roster.redial(view, id);
        }
        let lets_in = self.lets_in();
        self.engine.await_leader(self.joins.is_pending() && !lets_in);
        if lets_in {
            let expected = self.joins.expected(now);
            // None waits for the dead.
            roster.probe(expected);
            for process in self.joins.due(now) {
                self.admit(process, roster);
            }
        }
    }

    /// Looks for members whose rows are not here, and that may be on other hosts for all that is
    /// known. Streams to those that are found are dialled.
    fn seek_absent<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        let is_sought = |id: &MemberId| roster.may_be_elsewhere(*id) && !roster.is_dead(*id);
        let sought: Vec<MemberId> = self.absent.iter().copied().filter(is_sought).collect();
        (self.seeks, self.sought) = (!sought.is_empty(), now);
        if self.seeks {
            roster.seek(&sought, now);
        }
        self.begin_redials(roster, now);
    }

    /// How long until [`step`](Self::step) or [`newly_ended`](Self::newly_ended) has something to
    /// do, if nothing happens.
    pub fn patience<W>(&self, roster: &Roster<W>, now: Time) -> Option<Duration> {
        let joins = self.joins.patience(now).filter(|_| self.lets_in());
        let seeks = self.seeks.then(|| (self.sought + ASK_EVERY).since(now));
        let meets = self.is_recovered().then(|| (self.asked + MEET_EVERY).since(now));
        self.redials.patience(now).into_iter().chain(joins).chain(seeks).chain(meets).chain(roster.patience(now)).min()
    }

    /// Whether members were given up that may live, and have nothing of this group's views. The
    /// member that leads looks for them where the seeds are.
    fn is_recovered(&self) -> bool {
        self.view.id.era() > 0 && self.engine.leader() == self.engine.me()
    }

    /// Whether something waits for its time.
    pub fn is_pending<W>(&self, roster: &Roster<W>) -> bool {
        self.redials.is_pausing() || roster.doubts() || (self.joins.is_pending() && self.lets_in())
    }

    /// The members whose connections tell that their processes have ended, once in each view. The
    /// driver takes in what they have posted last, if it is here, and says that they are to be
    /// [suspected](Self::suspect).
    pub fn newly_ended<W>(&mut self, roster: &mut Roster<W>, now: Time) -> Vec<Rank> {
        // A process that ends closes the connection that tells so before all others, and refuses
        // new ones when it has closed these. If the others break at the same time the network may
        // have reset them all.
        let patience = self.terms.suspect_after.map_or(CUT_MAX, |after| after / 2);
        roster.settle_doubts(|id| self.down.contains(&id), patience, now);
        let ended = roster.ended();
        // One that was taken back may be true the next time.
        self.told_ended.retain(|id| ended.contains(id));
        let ended = ended.into_iter().filter_map(|id| Some((id, self.view.rank_of(id)?)));
        ended.filter(|(id, _)| self.told_ended.insert(*id)).map(|(_, rank)| rank).collect()
    }

    /// There is a reason to believe that a member is gone.
    pub fn suspect(&mut self, rank: Rank) {
        if !self.engine.suspects(rank) {
            self.engine.suspect(rank);
        }
    }

    /// Does what a loss to a group of large messages takes: see
    /// [`ObjectGroups::overdue`](super::ObjectGroups::overdue).
    pub fn remedy(&mut self, remedy: Remedy) {
        match remedy {
            Remedy::Renew(rank) if self.is_connected(rank) => self.engine.renew(),
            // Views that are renewed again and again would leave no time to suspect it by its
            // silence.
            Remedy::Renew(rank) | Remedy::Suspect(rank) => self.suspect(rank),
        }
    }

    /// Whether the row of a member of this view is here, and the stream that carries it, if there
    /// is one, works.
    fn is_connected(&self, rank: Rank) -> bool {
        let id = self.view.members[rank.index()];
        !self.absent.contains(&id) && !self.down.contains(&id)
    }

    /// The stream of a view to a member has ended: of this view, of an [older](Self::older) one, or
    /// of one that is over. If `for_good`, because its peer breaks the protocol or can't come back
    /// in a view that continues, it is suspected.
    pub fn stream_down<W>(&mut self, view: ViewId, id: MemberId, for_good: bool, roster: &mut Roster<W>, now: Time) {
        if let Some(rank) = self.rank_of(id).filter(|_| for_good) {
            self.engine.suspect(rank);
        }
        if view == self.view.id {
            self.down.insert(id);
            if !self.redials.has(view, id) {
                roster.is_cut_off(id, view, now);
            }
        }
        self.redials.down(view, id, now);
    }

    /// There is a new way to a member, in this view or in one that is over.
    pub fn stream_up<W>(&mut self, view: ViewId, id: MemberId, roster: &mut Roster<W>, now: Time) {
        if view == self.view.id {
            self.absent.remove(&id);
            self.down.remove(&id);
            roster.has_come_back(id);
            self.weigh_epochs(roster);
        }
        self.redials.up(view, id, now);
    }

    /// The system refused a new way to a member, whose stream is dialled again.
    pub fn not_attached(&mut self, view: ViewId, id: MemberId, now: Time) {
        self.redials.up(view, id, now);
        self.redials.down(view, id, now);
    }

    /// Only these views that are over have ways that may be dialled again, beside those in which
    /// subgroups go on.
    pub fn retain_old(&mut self, is_over: impl Fn(ViewId) -> bool) {
        let (newest, sharing) = (self.view.id, &self.sharing);
        let goes_on = |view, id| sharing.contains(&(view, id)) && !mutation!(OlderStreamsLost);
        self.redials.retain(|view, id| view == newest || is_over(view) || goes_on(view, id));
    }

    /// After each poll of the engine: if the group can't go on, finds out whether the missing
    /// members are dead, and whether others go on without this one.
    pub fn after_poll<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        if !self.engine.is_blocked() {
            return;
        }
        if now.since(self.looked) >= INSTALL_LOOK {
            self.looked = now;
            // Its memory may never have come here; then its process may not be known yet, and the
            // kernel tells of its end only if it is.
            let suspected = self.view.ranks().filter(|rank| self.engine.suspects(*rank));
            let ids: Vec<MemberId> = suspected.map(|rank| self.view.members[rank.index()]).collect();
            roster.seek(&ids, now);
        }
        if now.since(self.asked) >= ASK_EVERY && !mutation!(CutOffAsksNobody) {
            self.asked = now;
            // A member that was cut off has lost the streams over which it would have heard that
            // the others decided to go on without it.
            roster.ask_view_afar(now);
        }
    }

    /// Asks the others for a view without this member, as soon as they have delivered what it has
    /// sent by now. Returns false if it has asked before.
    pub fn leave(&mut self) -> bool {
        let is_new = self.leaving == Leaving::No;
        if is_new {
            self.leaving = Leaving::Wanted;
        }
        is_new
    }

    /// Whether this member wants to go.
    pub fn is_leaving(&self) -> bool {
        self.leaving != Leaving::No
    }

    /// A step towards leaving, while messages of earlier views wait to be sent again or not
    /// (`has_backlog`): first all that was sent has to be delivered everywhere. Returns whether
    /// anything happened.
    pub fn go(&mut self, has_backlog: bool) -> bool {
        match &self.leaving {
            Leaving::Wanted if !has_backlog => {
                let committed = |engine: &Engine| (engine.view().id, engine.committed());
                self.leaving = Leaving::Waits(self.engines().map(committed).collect());
            }
            Leaving::Waits(committed)
                if committed.iter().all(|(view, committed)| self.has_delivered(*view, committed)) =>
            {
                self.leaving = Leaving::Asked;
                self.engine.leave();
            }
            _ => return false,
        }
        true
    }

    /// Whether everything is delivered everywhere that stood in my rings of `view` when they had
    /// come so far, or is not waited for there any more.
    fn has_delivered(&self, view: ViewId, committed: &[u64]) -> bool {
        self.engine_of(view).is_none_or(|engine| engine.is_delivered(committed))
    }

    /// Whether this member has yet to give up what waits for subgroups that are not available: it
    /// is about to go.
    pub fn gives_up(&self) -> bool {
        self.leaving == Leaving::Wanted
    }

    /// Until when at most the next view is not [made](Self::end_view), because the
    /// [rest](Self::has_rest) of this one is not delivered, or an application that takes its
    /// messages itself `is_behind`, and this member leaves or some members of the next view are on
    /// other hosts. Streams to those would turn to it, and nothing would read them meanwhile.
    /// Members that share memory see there that this one lives; these are told so.
    pub fn waits_for_rest<W>(&mut self, roster: &mut Roster<W>, is_behind: bool, now: Time) -> Option<Time> {
        let has_rest = is_behind || self.has_rest();
        let next = self.engine.decision().map(|decision| &decision.next).filter(|_| has_rest)?;
        let goes_on = next.rank_of(roster.me()).is_some();
        if goes_on && !next.members.iter().any(|id| roster.is_far(*id)) {
            return None;
        }
        let Some(every) = self.terms.suspect_after.filter(|_| goes_on).map(|after| after / PATIENCE_PART) else {
            return Some(now + ASK_EVERY);
        };
        if self.told_rest.is_none_or(|told| now.since(told) >= every) {
            self.told_rest = Some(now);
            let what = Request::Patience { incarnation: roster.incarnation(), view: self.view.id };
            let from = roster.me();
            for to in next.members.iter().copied().filter(|id| *id != from) {
                roster.post(to, ControlMessage::Request { from, reply: 0, what: what.clone() });
            }
        }
        Some(now + every)
    }

    /// The view has ended here, and this member does not [wait](Self::waits_for_rest). Makes the
    /// next one, for which the driver has to make memory. `None`: it is without this member, which
    /// has left.
    pub fn end_view<W>(&mut self, roster: &mut Roster<W>, now: Time) -> Option<&mut Install> {
        debug_assert!(matches!(self.engine.state(), State::Ended));
        if let (Some(decision), Some(words)) = (self.engine.decision(), self.engine.decided()) {
            roster.note_decision(decision.next.id, words.to_vec());
            roster.note_joined(decision.next.id, &decision.joined);
        }
        let mut engine = self.engine.successor()?;
        for (id, spec) in self.view.subgroups_of(self.engine.me()) {
            // Its epoch began before this view, and has ended with it.
            let older = self.home(id).filter(|(home, _)| home.view().id != self.view.id);
            if let (Some((older, _)), Some(id)) = (older, engine.view().subgroup(&spec.name)) {
                engine.follow(older, id);
            }
        }
        self.next = Some(Install::new(engine, self.terms.suspect_after, roster, false, now));
        self.next.as_mut()
    }

    /// The driver has made memory for the next view, which goes to all others.
    pub fn prepared<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        if let Some(next) = &mut self.next {
            next.prepared(roster, now);
        }
    }

    /// The members whose processes stay in the next view, with their ranks in this one, of those
    /// with streams that are open: these streams [continue](Roster::continue_ways) there. Streams
    /// over which subgroups go on that begin no new epoch stay with this view, and others are made
    /// for the next.
    pub fn staying<W>(&self, roster: &Roster<W>, is_open: impl Fn(Rank) -> bool) -> Vec<(Rank, MemberId)> {
        let Some(next) = &self.next else { return Vec::new() };
        let members = self.view.ranks().zip(self.view.members.iter().copied());
        let mut open: Vec<(Rank, MemberId)> = members.filter(|(rank, _)| is_open(*rank)).collect();
        if open.is_empty() {
            // Members of one host have no streams, and this is asked while they wait for the next
            // view.
            return open;
        }
        let me = roster.me();
        let here = next.view().sharers(me).filter(|(epoch, _)| *epoch == self.view.id);
        let sharing: BTreeSet<MemberId> = here.map(|(_, id)| id).collect();
        open.retain(|(_, id)| {
            next.has(*id) && *id != me && !roster.is_new(next.view().id, *id) && !sharing.contains(id)
        });
        open
    }

    /// Tells processes that join of the view that begins, after the driver has prepared it. They
    /// learn of it from the oldest members.
    pub fn tell_joiners<W>(&self, roster: &mut Roster<W>) {
        if let Some(next) = &self.next
            && self.engine.me().0 < TELLERS
        {
            let joiners = next.view().members.iter().copied().filter(|id| self.rank_of(*id).is_none());
            let to: Vec<MemberId> = joiners.chain(roster.observers().iter().copied()).collect();
            roster.tell_view(next.view(), to);
        }
    }

    /// Whether the application has yet to get messages of epochs that have ended; see
    /// [`Engine::has_rest`].
    pub fn has_rest(&self) -> bool {
        self.engines().any(Engine::has_rest)
    }

    /// Whether the next view begins now; see [`Install::look`]. Never while this member
    /// [has](Self::has_rest) something to deliver of those before, or an application that takes its
    /// messages itself `is_behind`.
    pub fn look<W>(
        &mut self,
        roster: &mut Roster<W>,
        is_behind: bool,
        has_sent_all: bool,
        has_met: impl Fn(Rank) -> bool,
        now: Time,
    ) -> bool {
        let has_rest = is_behind || self.has_rest();
        self.next.as_mut().is_some_and(|next| next.look(roster, has_rest, has_sent_all, has_met, now))
    }

    /// Continues in the next view with the rows of these members. Returns the view that is over.
    ///
    /// `before` reads words of the rows of that view.
    ///
    /// # Panics
    /// If there is no next view.
    pub fn begin<W>(
        &mut self,
        here: &BTreeSet<MemberId>,
        before: Words,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Arc<View> {
        let next = self.next.take().expect("a view is about to begin");
        let install_ms = next.age(now).as_secs_f64() * 1e3;
        self.note_readmissions(next.view(), &before, roster, now);
        roster.set_older(self.engines().map(|engine| engine.view().id).filter(|view| next.engine().needs(*view)));
        let Begun { mut engine, view, absent } = next.begin(here, roster, now);
        engine.keep_pace(&self.engine);
        let old = core::mem::replace(&mut self.view, view);
        self.before = (!absent.is_empty()).then(|| (Arc::clone(&old), before));
        self.absent = absent;
        self.older.push(core::mem::replace(&mut self.engine, engine));
        for over in self.older.extract_if(.., |older| !self.engine.needs(older.view().id)) {
            self.gone += over.stats();
        }
        self.sharing = self.view.sharers(roster.me()).collect();
        self.older.iter_mut().for_each(|older| older.rename(&self.view));
        self.has_object_groups = false;
        self.weigh_epochs(roster);
        info!(
            target: TARGET, me = roster.me().0, view = self.view.id.0, members = ?ids(&self.view.members),
            absent = ?ids(&self.absent), install_ms, "view begins"
        );
        self.told_ended.clear();
        self.told_rest = None;
        self.told_newcomers = false;
        self.down.clear();
        (self.seeks, self.sought) = (true, now - ASK_EVERY);
        self.begin_redials(roster, now);
        if self.leaving != Leaving::No {
            // The old view was about to end, or had ended, without this proposed change.
            self.leaving = Leaving::Wanted;
        }
        self.joins.begin(&self.view, now);
        let admitted: Vec<Process> = self.joins.admitted().filter(|_| !mutation!(AdmissionsLost)).collect();
        for process in admitted {
            // The old view's engine heard of it when this one had been made already.
            self.admit(process, roster);
        }
        self.evicting.retain(|id| self.view.members.contains(id));
        for rank in self.evicting.iter().filter_map(|id| self.view.rank_of(*id)) {
            self.engine.evict(rank);
        }
        for id in self.absent.clone() {
            if roster.is_dead(id) {
                self.died(id, roster);
            }
        }
        old
    }

    fn begin_redials<W>(&mut self, roster: &Roster<W>, now: Time) {
        for id in roster.dialled_by_me(&self.view) {
            if self.redials.has(self.view.id, id) {
                continue;
            }
            self.redials.add(self.view.id, id, now);
            if self.absent.contains(&id) {
                self.redials.down(self.view.id, id, now);
            }
        }
    }
}

/// Ids as numbers, for events.
fn ids<'a>(ids: impl IntoIterator<Item = &'a MemberId>) -> Vec<u64> {
    ids.into_iter().map(|id| id.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;
    use crate::control::{Birth, Instance, Me, Order};
    use crate::multicast::Ablation;
    use crate::table::{Found, Frames};
    use crate::view::SubgroupSpec;
    use crate::wire::ring::Ring;
    use alloc::vec;
    use core::ops::Range;

    /// Rows in which no member has written, and their rings.
    #[derive(Clone, Copy)]
    struct Nothing;

    impl<'a> Frames<'a> for Nothing {
        fn header(self, _: u64) -> [u64; 2] {
            [0; 2]
        }

        fn message(self, _: u64) -> Option<Found<'a>> {
            None
        }
    }

    impl Rows for Nothing {
        fn load(&self, _: Rank, _: u64) -> u64 {
            0
        }

        fn bytes(&self, _: Rank, _: u64, _: u64) -> &[u8] {
            &[]
        }

        type Frames<'a> = Nothing;

        fn frames(&self, _: Rank, _: &Ring) -> Nothing {
            Nothing
        }
    }

    impl Table for Nothing {
        fn store(&mut self, _: u64, _: u64) {}

        fn post(&mut self, _: &[Rank], _: Range<u64>) {}

        fn wake(&mut self, _: &[Rank]) {}
    }

    fn settings() -> SharedSettings {
        SharedSettings::new([("window".into(), "4".into())])
    }

    /// A process of this host wants to join, or to follow.
    fn asks(id: u64, observer: bool) -> Asks {
        let instance = Instance::Near(id as u32);
        Asks {
            id: MemberId(id),
            pid: id as u32,
            instance,
            config: settings().digest(),
            members: 2,
            observer,
            follows: ViewId(0),
            seeds: None,
            id_conflict: None,
        }
    }

    /// Member 1 of a view of the members 1 and 2 of one host.
    fn member() -> (Member, Roster<()>) {
        let me = Me { id: MemberId(1), pid: 1, birth: Birth::default() };
        let mut roster: Roster<()> = Roster::new(me, 1, None);
        let ranks = vec![Rank(0), Rank(1)];
        let spec = SubgroupSpec { members: ranks.clone(), senders: ranks, ..SubgroupSpec::of_everyone("all") };
        let members = [1, 2].map(MemberId).to_vec();
        let view = View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![spec].into() };
        roster.begin(&view, Time(0));
        let engine = Engine::new(view.clone(), Rank(0), Ablation::default()).unwrap();
        let begun = Begun { engine, view: Arc::new(view), absent: BTreeSet::new() };
        let member = Member::new(begun, Terms { settings: settings(), suspect_after: None }, &roster, Time(0));
        (member, roster)
    }

    #[test]
    fn a_process_that_asks_for_objects_follows_though_it_was_forgotten() {
        let (mut member, mut roster) = member();
        for (from, follows) in [(9, true), (2, false)] {
            let order = ObjectOrder { from: MemberId(from), view: ViewId(1), reply: 3, objects: vec![] };
            let heard = member.hear(ControlEvent::Wants(order.clone()), &Nothing, &mut roster, Time(0));
            assert_eq!(heard, Some(Heard::Send(order)));
            assert_eq!(roster.observers().contains(&MemberId(from)), follows, "process {from}");
        }
        assert!(member.note_followers(0, &roster));
        roster.forget_observer(MemberId(9));
        assert!(!member.note_followers(0, &roster) && member.note_followers(1, &roster));
    }

    /// Members that were given up together may be where none of those that went on reaches the
    /// others.
    #[test]
    fn a_member_that_was_given_up_tells_the_others_of_its_view() {
        let (mut member, mut roster) = member();
        let recovered = View { id: ViewId(1).recovered(3), members: vec![MemberId(9)], ..(**member.view()).clone() };
        let news = ControlEvent::View { incarnation: 0, view: recovered.clone(), decision: vec![] };
        let heard = member.hear(news, &Nothing, &mut roster, Time(0));
        assert_eq!(heard, Some(Heard::Evicted { next: recovered.id }));
        let told = |order: Order| match order {
            Order::Near { to, message: ControlMessage::View { view, .. }, .. } => Some((to, view)),
            _ => None,
        };
        let told: Vec<_> = core::iter::from_fn(|| roster.next_order()).filter_map(told).collect();
        assert_eq!(told, [(MemberId(2), recovered.id)], "not told");
    }

    /// Messages that come in its rows after its end would be missed.
    #[test]
    fn no_process_begins_to_follow_a_view_that_changes() {
        let (mut member, mut roster) = member();
        member.engine_mut().leave();
        member.engine_mut().poll(Time(0), &mut Nothing, &mut |_: SubgroupId, _: &mut Batch<'_, Nothing>| {});
        assert!(member.engine().is_changing());
        member.hear(ControlEvent::Asks(asks(9, true)), &Nothing, &mut roster, Time(0));
        let orders: Vec<Order> = core::iter::from_fn(|| roster.next_order()).collect();
        let gives = orders.iter().any(|order| matches!(order, Order::HandOver { .. }));
        assert!(!gives, "rows of a view that changes");
        let is_told = |order: &Order| matches!(order, Order::Near { message: ControlMessage::Wait { .. }, .. });
        assert!(orders.iter().any(is_told) && roster.observers().contains(&MemberId(9)));
    }

    #[test]
    fn a_process_that_asks_to_follow_ends_older_epochs_first() {
        let (mut member, mut roster) = member();
        let mut next = (**member.view()).clone();
        next.subgroups[0].epoch = Some(ViewId(1));
        next.id = ViewId(2);
        let engine = Engine::new(next.clone(), Rank(0), Ablation::default()).unwrap();
        roster.begin(&next, Time(0));
        let begun = Begun { engine, view: Arc::new(next), absent: BTreeSet::new() };
        let mut later = Member::new(begun, member.terms.clone(), &roster, Time(0));
        core::mem::swap(&mut member, &mut later);
        member.hear(ControlEvent::Asks(asks(9, true)), &Nothing, &mut roster, Time(0));
        let orders: Vec<Order> = core::iter::from_fn(|| roster.next_order()).collect();
        assert!(!orders.iter().any(|order| matches!(order, Order::HandOver { .. })), "{orders:?}");
        member.engine_mut().poll(Time(0), &mut Nothing, &mut |_: SubgroupId, _: &mut Batch<'_, Nothing>| {});
        assert!(member.engine().is_changing());
    }

    /// Whole processes show the bugs in fewer than one seed of 10,000.
    #[cfg(mutation)]
    #[test]
    #[ignore = "wants a process of its own: cargo xtask mutations"]
    fn mutations_of_members_fail_their_tests() {
        use crate::mutation::{Mutation, failure};
        failure(Mutation::GivenUpUntold, a_member_that_was_given_up_tells_the_others_of_its_view);
        failure(Mutation::FollowersLetInLate, no_process_begins_to_follow_a_view_that_changes);
    }

    #[test]
    fn newcomers_are_told_once() {
        let (mut member, mut roster) = member();
        assert_eq!(member.take_newcomers(), None);
        member.hear(ControlEvent::Asks(asks(3, false)), &Nothing, &mut roster, Time(0));
        assert_eq!(member.take_newcomers(), Some(vec![MemberId(3)]));
        assert_eq!(member.take_newcomers(), None);
    }

    #[test]
    fn a_view_that_fits_into_no_memory_is_not_proposed() {
        let (mut member, _) = member();
        let create = |name| Change::Create(SubgroupSpec::of_everyone(name));
        assert_eq!(member.propose_change(create("all"), |_| Err(())), Ok(false), "it is there");
        let mut asked = 0;
        let refused = member.propose_change(create("more"), |bytes| {
            asked = bytes;
            Err(bytes)
        });
        assert_eq!(refused, Err(asked));
        let now = Layout::new(member.view()).unwrap().rows().iter().map(|row| row.size).sum::<u64>();
        assert!(asked > now, "{asked} bytes, and {now} now");
        assert_eq!(member.propose_change(create("more"), |_| Ok::<_, ()>(())), Ok(true));
    }
}
