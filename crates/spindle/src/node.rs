//! A member of a group before, or without, a polling thread: a driver of the core's [`Member`].
use crate::config::Terms;
use crate::control_plane::ControlPlane;
use crate::error::{Ended, JoinError};
use crate::handler::{Batch, Handler};
use crate::handles::SubgroupHandles;
use crate::joining::{AGAIN, First, PreallocatedRow, Preparing};
use crate::lag::Lags;
use crate::large::{Large, LargeObjectCache, LargeObjectServer};
use crate::logs::{Logs, RecordServer};
use crate::mesh::Mesh;
use crate::queries::{OpenQueries, Queries};
use crate::random::random_word;
use crate::shared::{HandlerWatch, Notices, Shared};
use crate::status::Status;
use spindle_core::control::{self, LINK_LOOK, Member, QueryOrder, SharedSettings};
use spindle_core::multicast::stats::Frontier;
use spindle_core::{
    DurableRise, Engine, MemberId, Position, Progress, Rank, Records, State, SubgroupId, Time, Upcalls, View, ViewId,
};
use spindle_fabric::{Arena, Fabric};
use spindle_transport::Connection;
use spindle_transport::fork::Owner;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod catching_up;
mod clock;
mod ending;
mod handles;
mod joining;
mod lagging;
mod links;
mod measuring;
mod objects;
mod older;
mod replaying;
mod views;

use clock::Clock;
use links::Over;
use measuring::Measurements;
use older::Older;
use views::Shows;

/// A member that the caller drives: by calling [`poll`](Self::poll) in a loop of its own, or by
/// [`start`](Self::start), which gives the node to a thread.
///
/// A caller that polls saves the hand-over between threads: this is the fastest way on a machine
/// with few cores. A node that is not polled acknowledges nothing, delays all members, and is
/// evicted after a while.
#[derive(Debug)]
pub struct Node {
    owner: Owner,
    control_plane: ControlPlane,
    member: Member,
    /// The rows of the view.
    fabric: Mesh,
    /// The rows of views that have ended, in which subgroups continue.
    older: Vec<Older>,
    /// How often these were polled, and whether the next poll looks at what has come for them over
    /// streams.
    older_polls: u32,
    older_due: bool,
    arena: Arena,
    /// This member's memory for the next view, once this one has ended.
    preparing: Option<Preparing>,
    /// Whether others can see that memory.
    is_next_shown: bool,
    /// Rows for that view that need no control messages.
    shows: Shows,
    large: Large,
    /// Objects for processes that follow.
    object_cache: Arc<LargeObjectCache>,
    object_server: LargeObjectServer,
    /// `None` if no subgroup is logged.
    logs: Option<Logs>,
    record_server: RecordServer,
    /// The queries of this member, and those of others that its handler gets next.
    open_queries: Arc<OpenQueries>,
    queries: VecDeque<QueryOrder>,
    /// By name; the order is that of the first view.
    handles: Vec<SubgroupHandles>,
    /// By subgroup of this view: which of `handles`.
    by_id: Vec<usize>,
    /// Views that are over, whose streams have something to send.
    over: Vec<Over>,
    /// Streams of processes that follow a view that has not begun here.
    observers: Vec<(ViewId, Connection)>,
    /// Whether this view was followed over a stream whose end was not seen.
    had_observers: bool,
    /// For the next view.
    spare: Option<PreallocatedRow>,
    relaying: bool,
    /// Whether messages, or applications, may wait for a subgroup to have enough members again.
    waiting: bool,
    /// When members of this view were tried last that libfabric does not connect, if there are
    /// some.
    lacks_since: Option<Instant>,
    /// Whether there may be something to do beside the engine's work.
    has_chores: bool,
    /// Whether logs may have to be replayed.
    replays: bool,
    /// Whether the handler has the state of another member.
    is_restored: bool,
    /// Whether it has been polled: no more handles are given out.
    running: bool,
    shared: Arc<Shared>,
    pub(crate) terms: Terms,
    clock: Clock,
    measurements: Measurements,
    lags: Lags,
    /// When the engine wants to be polled though nothing happens.
    wake_at: Option<Time>,
    /// Whether the handler was told that this member is blocked.
    told_blocked: bool,
    /// Since when everything is done.
    finished: Option<Time>,
}

/// The result of one poll of a [`Node`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// The poll found work: poll again at once.
    Worked,
    /// The poll found nothing. A member in more than 16 subgroups does not look for messages of its
    /// own applications in all of them in each such poll. It does so in each [`Node::sleep`].
    Idle,
    /// Every member has finished, and everything is delivered here.
    Finished,
}

/// The pause between two looks at views that are over.
const RETIRED_LOOK: Duration = Duration::from_millis(1);
impl Node {
    /// Creates a member whose first view is ready.
    pub(crate) fn new(
        mut control_plane: ControlPlane,
        first: First,
        (mut logs, is_restored): (Option<Logs>, bool),
        terms: Terms,
    ) -> Result<Node, JoinError> {
        control_plane.set_clock(terms.clock.clone(), terms.clock_skew_max);
        let (begun, fabric, arena) = first.begin(&mut control_plane)?;
        let alike = control::Terms { settings: terms.settings.clone(), suspect_after: terms.suspect_after };
        let mut member = control_plane.act(|roster, now| Member::new(begun, alike, roster, now));
        let view = Arc::clone(member.view());
        let shared = Arc::new(Shared::new(Arc::clone(&view)));
        shared.ask_for_sample();
        let notices = control_plane.notices();
        let mut handles = vec![];
        let (large, object_cache) = (Large::new(notices, &terms), Arc::new(LargeObjectCache::default()));
        object_cache.begin(&view, member.engine().layout(), member.engine().me(), fabric.reader());
        let of_subgroup = |name: &str| {
            let log = logs.as_mut().and_then(|logs| logs.take(name));
            SubgroupHandles::new(name.to_string(), &shared, notices, terms.object_bytes_max, log)
        };
        let by_id = begin_handles(&mut handles, of_subgroup, member.engine_mut(), &fabric, &view);
        catching_up::show_completeness(&handles, &mut member);
        let clock = Clock::new(control_plane.origin());
        let open_queries = Arc::new(Mutex::new(control::Queries::new(random_word()?, &view.members)));
        let (preparing, over, observers, spare, wake_at) = Default::default();
        Ok(Node {
            owner: Owner::new(),
            control_plane,
            member,
            fabric,
            older: vec![],
            older_polls: 0,
            older_due: false,
            arena,
            preparing,
            is_next_shown: false,
            shows: Shows::default(),
            large,
            object_cache,
            object_server: LargeObjectServer::default(),
            logs,
            record_server: RecordServer::default(),
            open_queries,
            queries: VecDeque::new(),
            handles,
            by_id,
            over,
            observers,
            had_observers: false,
            spare,
            relaying: false,
            waiting: true,
            lacks_since: None,
            has_chores: true,
            replays: true,
            is_restored,
            running: false,
            shared,
            terms,
            clock,
            measurements: Measurements::default(),
            lags: Lags::default(),
            wake_at,
            told_blocked: false,
            finished: None,
        })
    }

    /// Returns the newest view that has begun here: its members, and their subgroups.
    pub fn view(&self) -> &Arc<View> {
        self.member.view()
    }

    /// Returns this member's rank in the view.
    pub fn rank(&self) -> Rank {
        self.member.engine().me()
    }

    /// Returns the number that distinguishes this group from earlier groups of the same name. The
    /// founder draws it. See [`Config::was_member_of`](crate::Config::was_member_of).
    pub fn incarnation(&self) -> u128 {
        self.control_plane.incarnation()
    }

    /// Returns the settings that all members of the group share. They differ from those of the
    /// [`Config`](crate::Config) if this process has [adopted](crate::Config::adoption) them.
    pub fn shared_settings(&self) -> &SharedSettings {
        &self.terms.settings
    }

    /// Returns the longest message that is sent as an object, in bytes; 0 if none is.
    pub fn object_bytes_max(&self) -> u64 {
        self.terms.object_bytes_max
    }

    /// Returns this member's id.
    pub fn id(&self) -> MemberId {
        self.control_plane.me
    }

    /// Does the work that is due, and returns. It never blocks, except for the time that making the
    /// memory of a new view takes.
    ///
    /// # Errors
    /// Why the group ended for this member before everything was delivered.
    pub fn poll(&mut self, handler: &mut impl Handler) -> Result<Poll, Ended> {
        self.begin();
        self.look_around(handler);
        let mut worked = self.relay_ended_views();
        self.keep_waiting_rings_open();
        if self.has_chores || self.control_plane.has_notice() {
            worked |= self.do_chores(handler)?;
            if self.preparing.is_some() {
                return self.install(handler);
            }
        }
        if self.replays {
            worked |= self.replay(handler)?;
        }
        worked |= self.progress_fabric();
        self.note_departed_observers();
        worked |= self.poll_earlier_views(handler);
        if self.member.engine().waits_for_record() {
            self.write_vote_and_end_notice()?;
        }
        let progress = self.poll_engine(handler);
        self.note_engine_state(handler, progress);
        self.outcome(progress, worked)
    }

    /// In the first poll: makes the row readable, and reports the processes that ended while this
    /// member joined.
    #[inline]
    fn begin(&mut self) {
        if !self.running {
            self.running = true;
            self.seal();
            self.suspect_the_ended();
        }
    }

    /// Reads the clock and, at intervals, looks for the work that only time brings.
    #[inline]
    fn look_around(&mut self, handler: &mut impl Handler) {
        if self.terms.suspect_after.is_some() {
            self.clock.tick();
            if std::mem::take(&mut self.clock.looked) {
                self.control_plane.look_at_bootstrap();
                self.suspect_the_dying();
                self.shared.ask_for_sample();
                self.look_at_lags(handler, self.clock.now);
                self.note_waiting_logs();
            }
        }
    }

    /// Sends on what rings of ended views still contain. No other step of a poll does: this member
    /// relays the ring of an application that is silent for as long as it is silent.
    #[inline]
    fn relay_ended_views(&mut self) -> bool {
        self.relaying && self.preparing.is_none() && self.relay()
    }

    /// Keeps the view open while an application waits for room in a ring, or a log is replayed.
    #[inline]
    fn keep_waiting_rings_open(&mut self) {
        if self.waiting {
            self.waiting = self.replays || self.handles.iter().any(SubgroupHandles::is_waiting);
            self.member.engine_mut().keep_open(self.waiting);
        }
    }

    /// Moves words and frames of this and of other hosts.
    #[inline]
    fn progress_fabric(&mut self) -> bool {
        let worked = self.fabric.progress();
        if worked {
            self.heed_broken_streams();
        }
        worked
    }

    /// Drops the objects that were kept for observers of other hosts when the last of those has
    /// gone. The fabric does not report the ends of their streams.
    #[inline]
    fn note_departed_observers(&mut self) {
        if self.had_observers && self.fabric.observers() == 0 {
            self.had_observers = false;
            self.heed_observers();
        }
    }

    /// Serves the subgroups that a change of the view did not touch, and frees ended views.
    #[inline]
    fn poll_earlier_views(&mut self, handler: &mut impl Handler) -> bool {
        if !self.over.is_empty() {
            self.look_after_retired();
        }
        !self.older.is_empty() && self.poll_older(handler)
    }

    /// Receives, sends and delivers.
    #[inline]
    fn poll_engine(&mut self, handler: &mut impl Handler) -> Progress {
        let (watch, handles) = (&self.shared.handler, &mut self.handles);
        let mut upcalls = Upcaller { handler, watch, handles, by_id: &self.by_id, replays: self.replays };
        let engine = self.member.engine_mut();
        let progress = engine.poll(self.clock.now, &mut self.fabric, &mut upcalls);
        if engine.has_filled_upcalls() {
            engine.upcalls_took(self.clock.since_tick());
        }
        progress
    }

    /// Reports what the engine's poll has changed.
    #[inline]
    fn note_engine_state(&mut self, handler: &mut impl Handler, progress: Progress) {
        let engine = self.member.engine();
        let is_blocked = engine.is_blocked();
        if engine.is_changing() && !self.is_change_noted() {
            self.note_change();
        }
        if self.shared.is_sample_taken() {
            self.look_at_sample();
        }
        if self.fabric.has_objects() {
            self.look_after_objects(progress.worked);
        }
        if is_blocked != self.told_blocked {
            self.tell_blocked(handler);
        }
        if is_blocked {
            self.control_plane.act(|roster, now| self.member.after_poll(roster, now));
        }
        self.wake_at = progress.wake_at;
        self.clock.worked = progress.worked;
        self.lags.has_worked |= progress.worked;
    }

    /// Returns what the caller learns of this poll, and ends the view if the engine has.
    #[inline]
    fn outcome(&mut self, progress: Progress, worked: bool) -> Result<Poll, Ended> {
        match self.member.engine().state() {
            State::Running if worked || progress.worked || !progress.partial && progress.has_more(self.clock.now) => {
                // If it slept before.
                self.fabric.end_sleep();
                Ok(Poll::Worked)
            }
            State::Running => Ok(Poll::Idle),
            State::Finished => Ok(self.finish()),
            State::Ended => match self.end_view()? {
                // The view ends when a receiver has delivered more.
                Poll::Idle if worked => Ok(Poll::Worked),
                poll => Ok(poll),
            },
            State::Incomplete => Err(self.incomplete()),
            State::Evicted => {
                let next = self.member.engine().left_out_of().unwrap_or(self.member.view().id);
                Err(self.left_out(next))
            }
        }
    }

    #[cold]
    fn tell_blocked(&mut self, handler: &mut impl Handler) {
        self.told_blocked = !self.told_blocked;
        let _running = self.shared.handler.enter();
        handler.blocked(self.told_blocked);
    }

    /// Sends on the messages that rings of ended views still contain.
    #[cold]
    fn relay(&mut self) -> bool {
        let mut worked = false;
        for of_subgroup in &mut self.handles {
            worked |= of_subgroup.step();
            of_subgroup.drop_unwanted();
        }
        self.relaying = self.handles.iter().any(SubgroupHandles::is_relaying);
        worked
    }

    /// Sleeps until something happens for this member, or `at_most` that long, or less: the first
    /// sleep after something happened is short. A caller that polls sleeps only after a poll that
    /// was [`Poll::Idle`], and polls again after it.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn sleep(&mut self, handler: &mut impl Handler, at_most: Duration) -> Result<Poll, Ended> {
        self.sleep_unless(handler, at_most, || false)
    }

    /// Sleeps as [`sleep`](Self::sleep) does, unless `called` returns true after the announcement:
    /// another thread wants this one.
    pub(crate) fn sleep_unless(
        &mut self,
        handler: &mut impl Handler,
        at_most: Duration,
        called: impl Fn() -> bool,
    ) -> Result<Poll, Ended> {
        self.fabric.begin_sleep();
        self.member.engine_mut().before_sleep();
        self.control_plane.look_at_bootstrap();
        self.shared.ask_for_sample();
        self.note_waiting_logs();
        if self.terms.suspect_after.is_some() {
            self.clock.look();
        } else {
            self.look_at_lags(handler, self.control_plane.now());
        }
        // This poll sees the events before the announcement. Later events ring the doorbell.
        let poll = self.poll(handler);
        if matches!(poll, Ok(Poll::Idle)) && !called() {
            let wake_in = self.wake_at.map(|at| at.since(self.clock.now));
            let retired = self.over.iter().any(Over::needs_looks).then_some(RETIRED_LOOK);
            let lacking = self.lacks_since.is_some().then_some(AGAIN);
            let opening = self.large.is_pending().then_some(LINK_LOOK);
            let due = self.member.patience(self.control_plane.roster(), self.control_plane.now());
            // No notice comes for work that is due by time.
            self.has_chores |= due == Some(Duration::ZERO);
            let records = self.catch_up_patience();
            self.has_chores |= records == Some(Duration::ZERO);
            let lags = self.lags.patience(self.control_plane.now());
            let logs = self.logs.as_ref().and_then(Logs::patience);
            let waits = [records, wake_in, self.control_plane.patience(), due, retired, opening, lacking, lags, logs];
            let sleep = waits.into_iter().flatten().fold(at_most, Duration::min);
            self.fabric.sleep(sleep);
            self.older_due = true;
            if self.terms.suspect_after.is_some() {
                self.clock.look_after(sleep);
            }
        } else {
            self.fabric.end_sleep();
        }
        poll
    }

    /// Returns the status of the group, as this member knows it.
    pub fn status(&self) -> Status {
        let now = self.control_plane.now();
        let lags = |number, id| self.lags.of(number, id, now);
        let is_far = |id| self.control_plane.is_far(id);
        let rack = |id| self.control_plane.book()?.rack(id).cloned();
        let pid = |id| self.control_plane.pid(id);
        let status = Status::of(&self.member, &self.fabric, pid, is_far, rack, &self.handles, lags);
        Status {
            observers: self.control_plane.roster().observers().len() as u64,
            clock: self.clock_status(),
            view_changes: self.measurements.view_changes,
            handler: self.shared.handler.status(),
            ..status
        }
    }

    /// Returns the frontiers of the members of `subgroup`, as this member knows them; none if it is
    /// not in the subgroup. This costs less than the whole [`status`](Self::status): nothing is
    /// allocated.
    pub fn frontiers(&self, subgroup: SubgroupId) -> impl Iterator<Item = (MemberId, Frontier)> {
        self.member.home(subgroup).into_iter().flat_map(|(home, there)| {
            home.frontiers(there).map(|(rank, frontier)| (home.view().members[rank.index()], frontier))
        })
    }

    /// Returns a handle that asks the applications of other members.
    pub fn queries(&self) -> Queries {
        let is_local = !self.control_plane.may_show();
        let me = (self.id(), self.incarnation());
        Queries::new(me, &self.open_queries, self.notices(), is_local)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        self.control_plane.notices()
    }
}

/// The engine's upcalls, passed on to the handler and to the threads that wait.
struct Upcaller<'a, H> {
    handler: &'a mut H,
    watch: &'a HandlerWatch,
    handles: &'a mut [SubgroupHandles],
    by_id: &'a [usize],
    replays: bool,
}

impl<H> Upcaller<'_, H> {
    /// Whether the log of `subgroup` has to be replayed before anything is delivered.
    #[cold]
    fn is_replayed_first(&self, subgroup: SubgroupId) -> bool {
        self.handles[self.by_id[subgroup.index()]].log.as_ref().is_some_and(|log| log.replay.is_some())
    }
}

impl<H: Handler> Upcalls<Mesh> for Upcaller<'_, H> {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        if self.replays && self.is_replayed_first(subgroup) {
            return;
        }
        let _running = self.watch.enter();
        self.handler.deliver(subgroup, batch);
    }

    #[cold]
    #[inline(never)]
    fn log(&mut self, subgroup: SubgroupId, records: &mut Records<'_, Mesh>) {
        if let Some(log) = &mut self.handles[self.by_id[subgroup.index()]].log {
            log.take(records);
        }
    }

    #[cold]
    fn cut_log(&mut self, subgroup: SubgroupId, from: Position) {
        if let Some(log) = &mut self.handles[self.by_id[subgroup.index()]].log {
            log.cut_from(from);
        }
    }

    #[cold]
    #[inline(never)]
    fn durable(&mut self, subgroup: SubgroupId, rise: DurableRise) {
        if let Some(log) = &self.handles[self.by_id[subgroup.index()]].log {
            log.frontier.raise(rise);
        }
    }

    fn room(&mut self, subgroup: SubgroupId) {
        self.handles[self.by_id[subgroup.index()]].make_room();
    }

    fn handed_off(&mut self, subgroup: SubgroupId) {
        self.handles[self.by_id[subgroup.index()]].wake_receiver();
    }
}

/// Begins a view in the handles of all subgroups that begin with it. Makes `new` handles for each
/// subgroup that this member is in for the first time. Returns the index of each subgroup's
/// handles, or `usize::MAX` if this member never was in the subgroup.
fn begin_handles(
    handles: &mut Vec<SubgroupHandles>,
    new: impl FnMut(&str) -> SubgroupHandles,
    engine: &mut Engine,
    fabric: &Mesh,
    view: &Arc<View>,
) -> Vec<usize> {
    let known: BTreeSet<&str> = handles.iter().map(|of_subgroup| &*of_subgroup.name).collect();
    let mine = view.subgroups_of(engine.me()).map(|(_, spec)| &*spec.name);
    let new: Vec<SubgroupHandles> = mine.filter(|name| !known.contains(name)).map(new).collect();
    handles.extend(new);
    let ids: BTreeMap<&str, SubgroupId> =
        view.subgroups.iter().map(|spec| &*spec.name).zip((0..).map(SubgroupId)).collect();
    let mut by_id = vec![usize::MAX; view.subgroups.len()];
    for (number, of_subgroup) in handles.iter_mut().enumerate() {
        let id = ids.get(&*of_subgroup.name).copied();
        id.iter().for_each(|id| by_id[id.index()] = number);
        let mine = id.filter(|id| view.subgroups[id.index()].members.binary_search(&engine.me()).is_ok());
        if mine.is_none_or(|id| view.epoch(id) == view.id) {
            of_subgroup.begin(mine, engine, fabric, view);
        }
    }
    by_id
}

#[cfg(test)]
mod tests;
