//! A member of a group before, or without, a polling thread.
use crate::config::Config;
use crate::crew::{Crew, Handover, News, Notices, Process};
use crate::error::{Ended, HandleError, JoinError};
use crate::following::ASK_EVERY;
use crate::group::Group;
use crate::joining::Joins;
use crate::large::{Kept, LINK_LOOK, Large, Order, Serving};
use crate::line::Line;
use crate::meeting::{self, Meeting};
use crate::publisher::Publisher;
use crate::receiver::Receiver;
use crate::shared::{End, Shared, Upcall};
use crate::state::{STREAM_WAIT, send_state, send_state_afar};
use crate::status::Status;
use crate::{Batch, Handler, ViewChange};
use spindle_core::layout::{RowLayout, membership};
use spindle_core::{
    Ablation, Change, Engine, Layout, MemberId, Rank, Rows, State, SubgroupId, SubgroupSpec, Time, Upcalls, View,
    ViewId, limits,
};
use spindle_fabric::mail::{Letter, Refusal, Request};
use spindle_fabric::net::{Address, Purpose};
use spindle_fabric::region::check_room;
use spindle_fabric::tcp::Connection;
use spindle_fabric::{CoarseClock, Fabric, MemberBell, Mesh, MeshError, OwnRow, Peer, PeerParts, Retired};
use std::collections::{BTreeSet, VecDeque};
use std::panic::{self, AssertUnwindSafe};
use std::slice;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A member that the caller drives: by calling [`poll`](Self::poll) in a loop of its own, or by [`start`](Self::start), which
/// gives the node to a thread.
///
/// Polling oneself saves the hand-over between threads: it is the fastest way on a machine with few cores. A node that is
/// not polled acknowledges nothing, holds everybody up, and is evicted after a while.
#[derive(Debug)]
pub struct Node {
    crew: Crew,
    joins: Joins,
    engine: Engine,
    fabric: Mesh,
    bell: MemberBell,
    view: Arc<View>,
    large: Large,
    /// Objects for those who follow.
    kept: Arc<Kept>,
    serving: Serving,
    /// By name; the order is that of the first view.
    lines: Vec<Line>,
    /// By subgroup of this view: which line.
    by_id: Vec<usize>,
    /// The next view, once this one has ended.
    next: Option<Installing>,
    /// Streams of views that have ended, since when.
    retired: Vec<(Retired, Instant)>,
    /// Of those who follow a view that has not begun here.
    guests: Vec<(ViewId, Connection)>,
    /// Whether somebody has followed this view over a stream, and its end was not seen.
    had_guests: bool,
    /// For the next view.
    spare: Option<Spare>,
    /// Whether one was made in this view.
    had_spare: bool,
    relaying: bool,
    /// Whether messages, or applications, may wait for a subgroup to have enough members again.
    waiting: bool,
    /// Whether there may be something to do beside the engine's work.
    has_chores: bool,
    leaving: Leaving,
    /// Whether it has been polled: no more handles are given out.
    running: bool,
    shared: Arc<Shared>,
    pub(crate) terms: Terms,
    clock: Clock,
    /// Who wants this application's state.
    states: VecDeque<MemberId>,
    /// When the engine wants to be polled though nothing happens.
    wake_at: Option<Time>,
    /// When those were looked for last without whom the view can't change.
    looked: Instant,
    /// Members of the view whose rows never came here.
    absent: BTreeSet<MemberId>,
    /// Members that have to go, until a view without them has begun: somebody wants it, or their process on another host has ended.
    evicting: BTreeSet<MemberId>,
    /// Whether this member is blocked, and since when it is or is not any more.
    blocked: bool,
    blocked_since: Instant,
    /// Whether the handler was told that it is, or whom it follows.
    told_blocked: bool,
    /// When others were asked last whether they go on without this member.
    asked: Instant,
    /// Since when everything is done.
    finished: Option<Instant>,
    /// Since when others have told of views that have this member in them and can't be reached from this one.
    missed: Option<Instant>,
}

/// What a node keeps of its configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) spin_for: Duration,
    pub(crate) suspect_after: Option<Duration>,
    pub(crate) ablation: Ablation,
    /// The digest of what all must have configured alike.
    pub(crate) digest: u64,
    pub(crate) object_bytes_max: u64,
}

/// A view that is decided and has not begun here.
#[derive(Debug)]
pub(crate) struct Installing {
    engine: Engine,
    /// With members whose rows come through libfabric. Closed before the row is given up.
    meeting: Option<Meeting>,
    row: Pledge,
    handover: Handover,
    view: Arc<View>,
    since: Instant,
    /// When those who are missing were looked for last.
    looked: Instant,
    suspect_after: Option<Duration>,
}

/// A member's row in a view that may come, made while nobody waits for it.
#[derive(Debug)]
pub(crate) struct Spare {
    me: Rank,
    layout: RowLayout,
    row: OwnRow,
    parts: PeerParts,
}

/// This member's row in a view that it has not begun, and that others may have. If it never begins it, they find that there.
#[derive(Debug)]
struct Pledge(Option<OwnRow>);

impl Drop for Pledge {
    fn drop(&mut self) {
        if let Some(row) = &self.0 {
            row.control_block().store(membership::ABANDONED, 1);
        }
    }
}

/// A view that begins here.
struct Begun {
    engine: Engine,
    fabric: Mesh,
    view: Arc<View>,
    handover: Handover,
    /// Whose row is not here.
    absent: BTreeSet<MemberId>,
}

/// What one poll of a [`Node`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// Something to do: poll again at once.
    Worked,
    /// Nothing.
    Idle,
    /// Every member has finished, and everything is delivered here.
    Finished,
}

/// How far a member is that wants to go, in whatever view it is agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Leaving {
    No,
    /// It has something of earlier views to send again first.
    Wanted,
    /// It waits until what it had sent by then, as the engine counts, is delivered everywhere.
    Waits(Vec<u64>),
    /// The others are asked to go on without it.
    Asked,
}

/// The time that engines are told: precise enough for them, and read seldom.
#[derive(Debug)]
struct Clock {
    start: Instant,
    now: Time,
    polls: u32,
    /// The last poll found work, of which an upcall may have been a part.
    worked: bool,
    coarse: CoarseClock,
    /// Whether it was read since somebody asked.
    looked: bool,
}

/// Polls that find nothing for which the clock is not read.
const POLLS_PER_LOOK: u32 = 64;
/// How often a node looks whether a view that begins is complete, beside being woken for it.
const INSTALL_LOOK: Duration = Duration::from_millis(10);
/// So many times the silence that is suspected a node waits for most of the members of a view.
const HOPELESS: u32 = 2;
/// How long the streams of an ended view are kept for what is on its way, at most.
const RETIRED_MAX: Duration = Duration::from_secs(2);
/// How often they are looked after.
const RETIRED_LOOK: Duration = Duration::from_millis(1);
/// How long a member that ends waits until its peers on other hosts have heard so, at most.
const FAREWELL_MAX: Duration = Duration::from_millis(200);
/// How long a member that has finished waits for those who follow and may want large messages of it, at most: until they go.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// How long it waits for those to whom its last words are still on their way: their links may be down. Without them they count it among those
/// who may live and go on elsewhere.
const UNHEARD_MAX: Duration = Duration::from_secs(3);
/// How many of the oldest members tell a view to those who join it.
const TELLERS: u32 = 3;
/// Streams that are kept for views to come, at most.
const GUESTS_MAX: usize = 64;
/// Views that a receiver may be behind before the next one has to wait for it.
const VIEWS_BEHIND_MAX: usize = 8;

impl Clock {
    fn new() -> Clock {
        Clock {
            start: Instant::now(),
            now: Time(0),
            polls: 0,
            worked: false,
            coarse: CoarseClock::new(),
            looked: false,
        }
    }

    fn look(&mut self) {
        (self.polls, self.looked) = (0, true);
        self.now = Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// Before each poll. Nobody knows how long an upcall takes, and it costs little to ask the coarse clock, which moves on every few
    /// milliseconds.
    #[inline]
    fn tick(&mut self) {
        self.polls += 1;
        if self.polls == POLLS_PER_LOOK || (std::mem::take(&mut self.worked) && self.coarse.has_moved()) {
            self.look();
        }
    }
}

impl Spare {
    /// The row of `me` in the view behind `view` if all stay and `joining` come. `None` if there is no memory for it, which is no
    /// matter yet.
    pub(crate) fn new(view: &View, joining: &[MemberId], me: MemberId, bell: &MemberBell) -> Option<Spare> {
        let next = view.next(|_| true, joining, &[]);
        let (me, layout) = (next.rank_of(me)?, Layout::new(&next).ok()?);
        let (row, parts) = OwnRow::create(&layout, me, bell).ok()?;
        Some(Spare { me, layout: layout.row(me).clone(), row, parts })
    }

    /// Whether it was made for a row like that of `me`.
    fn fits(&self, layout: &Layout, me: Rank) -> bool {
        self.me == me && self.layout == *layout.row(me)
    }
}

impl Installing {
    /// Prepares the view of `engine`: makes this member's memory for it, unless that is the `spare`, and hands it to all others.
    pub(crate) fn new(
        mut engine: Engine,
        crew: &mut Crew,
        bell: &MemberBell,
        terms: &Terms,
        spare: Option<Spare>,
    ) -> Result<Self, MeshError> {
        let suspect_after = terms.suspect_after;
        engine.set_suspect_after(suspect_after.map(|after| after.as_nanos() as u64));
        let (row, parts) = match spare.filter(|spare| spare.fits(engine.layout(), engine.me())) {
            Some(Spare { row, parts, .. }) => (row, parts),
            None => OwnRow::create(engine.layout(), engine.me(), bell)?,
        };
        crew.expect(engine.view());
        let view = Arc::new(engine.view().clone());
        let meeting = Meeting::new(crew, &view, engine.layout(), &row)?;
        let others: Vec<MemberId> = view.members.iter().copied().filter(|id| *id != crew.me).collect();
        let handover = Handover::new(parts);
        crew.hand_over(view.id, &handover, &others);
        let observers: Vec<MemberId> = crew.observers().iter().copied().filter(|id| !others.contains(id)).collect();
        crew.hand_over(view.id, &handover, &observers);
        crew.connect(&view);
        crew.set_doorbell(row.doorbell());
        crew.flush_now();
        let since = Instant::now();
        let row = Pledge(Some(row));
        let mut installing = Installing { engine, meeting, row, handover, view, since, looked: since, suspect_after };
        installing.meet(crew);
        Ok(installing)
    }

    /// The same for the first view of this process, of which the application has had these first rounds already.
    pub(crate) fn first(
        view: View,
        known: &[(SubgroupId, Rank, u64)],
        crew: &mut Crew,
        bell: &MemberBell,
        terms: &Terms,
        spare: Option<Spare>,
    ) -> Result<Self, JoinError> {
        let me = view.rank_of(crew.me).expect("it is in the view");
        let mut engine = Engine::new(view, me, terms.ablation)?;
        for (subgroup, sender, rounds) in known {
            engine.pass_over(*subgroup, *sender, *rounds);
        }
        Ok(Installing::new(engine, crew, bell, terms, spare)?)
    }

    /// Who has not come and may still.
    fn missing<'a>(&'a self, crew: &'a Crew) -> impl Iterator<Item = MemberId> + 'a {
        let others = self.view.members.iter().copied().filter(|id| *id != crew.me);
        let never_comes = |id| crew.is_dead(id) || crew.never_begins(self.view.id, id);
        others.filter(move |id| !crew.has_parts(self.view.id, *id) && !self.has_met(*id) && !never_comes(*id))
    }

    /// Whether the row of `id` comes through libfabric, and can.
    fn has_met(&self, id: MemberId) -> bool {
        self.meeting.as_ref().zip(self.view.rank_of(id)).is_some_and(|(meeting, rank)| meeting.is_connected(rank))
    }

    /// Goes on with connections through libfabric, if there are to be any.
    fn meet(&mut self, crew: &mut Crew) {
        let missing: Vec<MemberId> = self.missing(crew).collect();
        if let Some(meeting) = &mut self.meeting {
            meeting.look(crew, &self.view, &missing);
        }
    }

    /// How long to wait for news, at most, before the next [look](Self::look).
    pub(crate) fn patience(&self) -> Duration {
        if self.meeting.is_some() { meeting::LOOK } else { INSTALL_LOOK }
    }

    /// Whether nobody has to be waited for any more. This member's own memory is on its way to all then.
    ///
    /// Those who have begun the view already see meanwhile that this member lives: they would suspect it before it suspects those
    /// who keep it waiting.
    pub(crate) fn look(&mut self, crew: &mut Crew) -> bool {
        if let Some(row) = &self.row.0 {
            self.engine.show_life(|at, word| row.control_block().store(at, word));
        }
        self.meet(crew);
        let waited = self.since.elapsed();
        // Who is on another host sees no life of this member before the view begins, and would suspect it first.
        let has_far = || self.view.members.iter().any(|id| *id != crew.me && crew.is_far(*id));
        let missing: Vec<MemberId> = self.missing(crew).collect();
        // With less than most of them it could only wait for ever for those whom it suspects by then.
        let is_hopeless = 2 * missing.len() >= self.view.members.len() && has_far();
        let patience = |after: Duration| if is_hopeless { HOPELESS * after } else { after };
        let late = |after: Duration| waited >= patience(after) || (waited >= after / 2 && !is_hopeless && has_far());
        let late = self.suspect_after.is_some_and(late);
        if late || (crew.has_sent_all(&self.view) && missing.is_empty()) {
            return true;
        }
        if self.looked.elapsed() >= INSTALL_LOOK {
            self.looked = Instant::now();
            // Who has not come may have died before it could be watched.
            crew.look_for(&missing);
            // Streams may have failed.
            crew.connect(&self.view);
        }
        false
    }

    pub(crate) fn has(&self, id: MemberId) -> bool {
        self.view.rank_of(id).is_some()
    }

    /// Takes in what others have written, and answers those who ask with this `digest`: they may not have heard of the view yet.
    pub(crate) fn attend(&self, crew: &mut Crew, digest: u64) {
        for news in crew.news_now() {
            if let News::Asks { id, process, config, observer, namesake: None, .. } = news
                && Config::admits(digest, config, observer)
                && (!self.has(id) || !crew.is_far(id) || crew.is_new(self.view.id, id))
                && (!self.has(id) || crew.is_process(id, process))
            {
                if observer && !self.has(id) {
                    crew.add_observer(id);
                }
                self.hand_over_to(crew, id);
            }
        }
    }

    /// Somebody has to be told again: it asks, though it is in, or follows.
    pub(crate) fn hand_over_to(&self, crew: &mut Crew, id: MemberId) {
        crew.tell_view(&self.view, [id]);
        crew.hand_over(self.view.id, &self.handover, &[id]);
    }

    /// The table of the view. Who has not come by now, or with something that is no row of this view, has a row of zeros, and is
    /// reported.
    fn begin(mut self, crew: &mut Crew) -> Result<Begun, MeshError> {
        let me = crew.me;
        let others = self.view.members.iter().copied().zip((0..).map(Rank)).filter(|(id, _)| *id != me);
        let (mut parts, mut absent): (Vec<(Rank, Option<Peer>)>, BTreeSet<MemberId>) = Default::default();
        for (id, rank) in others {
            let theirs = crew.take_parts(self.view.id, id);
            // One bad member must not end all others.
            let theirs = theirs.filter(|peer| peer.check(self.engine.layout(), rank).is_ok());
            let is_here = theirs.is_some() || self.has_met(id);
            if crew.never_begins(self.view.id, id) {
                self.engine.member_died(rank);
            }
            match (is_here, crew.is_dead(id)) {
                (true, true) => self.engine.member_died(rank),
                // It may have come to others, and have agreed with them on a view without this member.
                (false, true) => self.engine.member_gone(rank),
                (false, false) => self.engine.suspect(rank),
                (true, false) => {}
            }
            if !is_here {
                absent.insert(id);
            }
            parts.push((rank, theirs));
        }
        let row = self.row.0.take().expect("a view begins once");
        let control = row.control_block();
        let fabric = Mesh::over(self.engine.layout(), row, parts, self.meeting.map(Meeting::end));
        let fabric = fabric.inspect_err(|_| control.store(membership::ABANDONED, 1))?;
        crew.begin(&self.view);
        // By whoever has asked by now, and has not gone.
        self.engine.set_observed(!crew.observers().is_empty());
        Ok(Begun { engine: self.engine, fabric, view: self.view, handover: self.handover, absent })
    }
}

impl Node {
    /// A member whose first view is ready.
    pub(crate) fn new(
        mut crew: Crew,
        installing: Installing,
        bell: MemberBell,
        terms: Terms,
    ) -> Result<Node, JoinError> {
        let Begun { mut engine, fabric, view, handover, absent } = installing.begin(&mut crew)?;
        let shared = Arc::new(Shared::new(Arc::clone(&view)));
        let notices = crew.notices();
        let line = |spec: &SubgroupSpec| Line::new(spec.name.clone(), &shared, notices, terms.object_bytes_max);
        let mut lines: Vec<Line> = view.subgroups.iter().map(line).collect();
        let (large, kept) = (Large::new(notices, &terms), Arc::new(Kept::default()));
        kept.begin(&view, engine.layout(), engine.me(), fabric.reader());
        let by_id = begin_lines(&mut lines, &mut engine, &fabric, &view);
        let clock = Clock::new();
        let joins = Joins::new(handover);
        let (next, relaying, waiting, running, states, wake_at) = (None, false, true, false, VecDeque::new(), None);
        let leaving = Leaving::No;
        Ok(Node {
            crew,
            joins,
            engine,
            fabric,
            bell,
            view,
            large,
            kept,
            serving: Serving::default(),
            lines,
            by_id,
            next,
            retired: vec![],
            guests: vec![],
            had_guests: false,
            spare: None,
            had_spare: false,
            relaying,
            waiting,
            has_chores: true,
            leaving,
            running,
            shared,
            terms,
            clock,
            states,
            wake_at,
            looked: Instant::now(),
            absent,
            evicting: BTreeSet::new(),
            blocked: false,
            blocked_since: Instant::now(),
            told_blocked: false,
            asked: Instant::now(),
            finished: None,
            missed: None,
        })
    }

    /// The newest view that has begun here: who is in, in which subgroups.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// This member's rank in the view.
    pub fn rank(&self) -> Rank {
        self.engine.me()
    }

    /// This member's id.
    pub fn id(&self) -> MemberId {
        self.crew.me
    }

    /// The way to send in `subgroup`, given out once, before the first poll. One that nobody has taken by then counts as
    /// dropped: this member sends nothing there. In a subgroup that was created later it may be taken at any time; until then, or
    /// until [`seal`](Self::seal), the group does not finish.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn publisher(&mut self, subgroup: &str) -> Result<Publisher, HandleError> {
        find(&self.view, self.rank(), subgroup)?;
        let name = subgroup.to_string();
        let line = self.lines.iter_mut().find(|line| line.name == subgroup).expect("a line for each subgroup");
        match line.publisher() {
            Some(publisher) => Ok(publisher),
            None if line.is_taken() => Err(HandleError::Taken { what: "publisher", name }),
            None if self.running => Err(HandleError::Running { name }),
            None => Err(HandleError::NoSender { name }),
        }
    }

    /// Asks for no more publishers: those that nobody has taken count as dropped.
    pub fn seal(&mut self) {
        self.lines.iter_mut().for_each(Line::seal);
    }

    /// Asks all members for a view with a change of its subgroups. False if it makes no sense in this view, or is the case already.
    /// Of changes that contradict each other the one of the older member counts; [`Handler::view_changed`] tells what came of it.
    ///
    /// # Errors
    /// [`HandleError::Memory`]: a view that was agreed on and fits into nobody's memory would end all members.
    pub fn wish(&mut self, change: Change) -> Result<bool, HandleError> {
        let engine = match &mut self.next {
            // The old one's engine is asked nothing any more.
            Some(next) => &mut next.engine,
            None => &mut self.engine,
        };
        let view = engine.view();
        if !view.wants(&change) {
            return Ok(false);
        }
        let Ok(layout) = Layout::new(&view.next(|_| true, &[], slice::from_ref(&change))) else { return Ok(false) };
        let bytes = layout.rows().iter().map(|row| row.size).sum();
        check_room("the members' rows", bytes).map_err(|why| HandleError::Memory { bytes, why: why.to_string() })?;
        Ok(engine.wish(change))
    }

    /// The deliveries of `subgroup`, for another thread than the one that polls; before the first poll. The handler gets
    /// nothing of this subgroup then.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn receiver(&mut self, subgroup: &str) -> Result<Receiver, HandleError> {
        let id = find(&self.view, self.rank(), subgroup)?;
        let name = subgroup.to_string();
        let line = self.lines.iter_mut().find(|line| line.name == subgroup).expect("a line for each subgroup");
        if line.has_receiver() {
            return Err(HandleError::Taken { what: "receiver", name });
        }
        if self.running {
            return Err(HandleError::Running { name });
        }
        Ok(line.receiver(id, &mut self.engine, &self.fabric, &self.view))
    }

    /// Does what there is to do, and returns. Never blocks, but for the time that making the memory of a new view takes.
    ///
    /// # Errors
    /// Why the group ended for this member before everything was delivered.
    pub fn poll(&mut self, handler: &mut impl Handler) -> Result<Poll, Ended> {
        if !self.running {
            self.running = true;
            self.seal();
            // While this member joined.
            self.evict_the_ended();
        }
        if self.terms.suspect_after.is_some() {
            self.clock.tick();
            if std::mem::take(&mut self.clock.looked) {
                self.suspect_the_dying();
            }
        }
        // Alone, and before anything that asks whether all is sent on: a silent application's ring is looked after for ever.
        let mut worked = self.relaying && self.next.is_none() && self.relay();
        if self.waiting {
            self.waiting = self.lines.iter().any(Line::is_waiting);
            self.engine.keep_open(self.waiting);
        }
        if self.has_chores || self.crew.has_notice() {
            worked |= self.do_chores(handler)?;
            if self.next.is_some() {
                return self.install(handler);
            }
        }
        if self.fabric.progress() {
            worked = true;
            while let Some((rank, _)) = self.fabric.next_down() {
                // No proof that it is dead, but it will never be heard again in this view.
                self.engine.suspect(rank);
            }
        }
        if self.had_guests && self.fabric.guests() == 0 {
            // Nobody says so, and what was kept for the last of them is free.
            self.had_guests = false;
            self.heed_observers();
        }
        if !self.retired.is_empty() {
            self.retired.retain_mut(|(retired, since)| !retired.progress() && since.elapsed() < RETIRED_MAX);
        }
        let mut upcalls = Relay { handler, lines: &self.lines, by_id: &self.by_id };
        let progress = self.engine.poll(self.clock.now, &mut self.fabric, &mut upcalls);
        if self.fabric.has_objects() {
            self.look_after_objects(progress.worked);
        }
        if self.engine.is_blocked() != self.blocked {
            (self.blocked, self.blocked_since) = (!self.blocked, Instant::now());
            self.missed = None;
        }
        if self.is_blocked() != self.told_blocked {
            self.tell_blocked(handler);
        }
        if self.blocked {
            if self.engine.is_stranded() || self.is_outdone() {
                // Who follows need not wait until this node is dropped.
                self.engine.abandon(1, &mut self.fabric);
                return Err(self.broken(Ended::Evicted { id: self.crew.me, view: self.view.id }));
            }
            if self.has_missed() {
                self.engine.abandon(1, &mut self.fabric);
                return Err(self.broken(Ended::Evicted { id: self.crew.me, view: self.view.id }));
            }
            worked |= self.look_for_the_suspected();
            self.ask_whether_they_go_on();
        }
        self.wake_at = progress.wake_at;
        self.clock.worked = progress.worked;
        match self.engine.state() {
            State::Running if worked || progress.worked || progress.wake_at.is_some_and(|at| at <= self.clock.now) => {
                // If it slept before.
                self.fabric.end_sleep();
                Ok(Poll::Worked)
            }
            State::Running => Ok(Poll::Idle),
            State::Finished => Ok(self.finish()),
            State::Ended => self.end_view(),
            State::Evicted => Err(self.broken(Ended::Evicted { id: self.crew.me, view: self.view.id })),
            State::Failed(fault) => Err(self.broken(Ended::Stuck(fault.to_string()))),
        }
    }

    /// Everything is done here. Who follows may have yet to ask for the last large messages.
    #[cold]
    fn finish(&mut self) -> Poll {
        let since = *self.finished.get_or_insert_with(Instant::now);
        if self.kept.is_any() && since.elapsed() < KEPT_FOR {
            self.wake_at = Some(Time(self.clock.now.0 + INSTALL_LOOK.as_nanos() as u64));
            return Poll::Idle;
        }
        self.end(End::Finished);
        Poll::Finished
    }

    /// Forgets the objects of messages that are delivered: others' here, my own everywhere.
    #[cold]
    fn look_after_objects(&mut self, worked: bool) {
        self.lines.iter_mut().for_each(|line| line.look_after_objects(&self.engine, &self.kept));
        if !worked {
            return;
        }
        for (id, spec) in self.view.subgroups_of(self.rank()) {
            for (sender, member) in spec.senders.iter().enumerate().filter(|(_, member)| **member != self.engine.me()) {
                let place = self.engine.layout().row(*member).place(id);
                let ring = place.and_then(|place| place.ring).expect("it sends there");
                let rounds = self.engine.delivered_rounds(id, sender);
                let is_read = !self.lines[self.by_id[id.index()]].delivers_to_nobody();
                self.kept.keep(id, *member, || self.fabric.forget_objects(*member, &ring, is_read.then_some(rounds)));
            }
        }
    }

    /// Opens bulk groups for those who have something for them, and takes part in those of others.
    fn open_large(&mut self) -> Result<(), Ended> {
        if let Err(why) = self.large.look(self.view.id) {
            return Err(self.broken(Ended::Stuck(why)));
        }
        if !self.engine.is_wedged() {
            let me = self.rank();
            for rank in self.large.overdue().into_iter().filter(|rank| *rank != me) {
                self.engine.suspect(rank);
            }
            let wanted = self.lines.iter().filter_map(Line::outbound).filter(|(_, outbound)| outbound.wants_group());
            self.large.open(&mut self.crew, &self.view, &self.engine, &self.fabric, wanted);
            if !self.crew.is_calm() {
                self.crew.flush_now();
            }
        }
        Ok(())
    }

    #[cold]
    fn tell_blocked(&mut self, handler: &mut impl Handler) {
        self.told_blocked = !self.told_blocked;
        let _running = Upcall::enter();
        handler.blocked(self.told_blocked);
    }

    /// Whether this member can't go on, or whom it follows.
    fn is_blocked(&self) -> bool {
        self.engine.is_blocked() || self.engine.is_held_up(&self.fabric)
    }

    /// What is seldom to be done beside the engine's work. Whether anything happened.
    #[cold]
    fn do_chores(&mut self, handler: &mut impl Handler) -> Result<bool, Ended> {
        let mut worked = self.attend()?;
        self.serving.serve(&mut self.crew, &self.kept);
        if self.next.is_none() {
            self.open_large()?;
            if !self.states.is_empty() && !self.engine.is_wedged() {
                self.give_state(handler);
            }
            if self.leaving != Leaving::No {
                worked |= self.go();
            }
        }
        self.has_chores = self.next.is_some()
            || self.leaving != Leaving::No
            || !self.states.is_empty()
            || self.large.is_pending()
            || !self.crew.is_calm()
            || (self.joins.is_pending() && self.lets_in());
        Ok(worked)
    }

    /// Sends on what stands in rings of ended views.
    #[cold]
    fn relay(&mut self) -> bool {
        let mut worked = false;
        for line in &mut self.lines {
            worked |= line.step();
            line.drop_unwanted();
        }
        self.relaying = self.lines.iter().any(Line::is_relaying);
        worked
    }

    /// The view has ended here: prepares the next.
    #[cold]
    fn end_view(&mut self) -> Result<Poll, Ended> {
        if let Some(ended) = self.shared.broken() {
            return Err(ended.clone());
        }
        if self.lines.iter().any(|line| line.behind() >= VIEWS_BEHIND_MAX) {
            return Ok(Poll::Idle);
        }
        let decided = self.engine.decision().map(|decision| decision.next.clone());
        for line in &mut self.lines {
            line.end_view(&self.engine, &self.fabric, &self.kept);
        }
        self.kept.end_view();
        self.large.end_view();
        let Some(engine) = self.engine.successor() else { return Err(self.broken(Ended::Left)) };
        let installing = Installing::new(engine, &mut self.crew, &self.bell, &self.terms, self.spare.take());
        let installing = installing.map_err(|error| self.broken(Ended::Stuck(error.to_string())))?;
        // Who joins learns of the view from the oldest members.
        if let Some(next) = decided
            && self.rank().0 < TELLERS
        {
            let joiners = next.members.iter().copied().filter(|id| !self.view.members.contains(id));
            let to: Vec<MemberId> = joiners.chain(self.crew.observers().iter().copied()).collect();
            self.crew.tell_view(&next, to);
        }
        (self.next, self.has_chores) = (Some(installing), true);
        Ok(Poll::Worked)
    }

    /// Between two views: until everybody's memory is here, or its owner is known not to come.
    #[cold]
    fn install(&mut self, handler: &mut impl Handler) -> Result<Poll, Ended> {
        if let Some(ended) = self.shared.broken() {
            return Err(ended.clone());
        }
        // What it has posted last may not have left yet.
        self.fabric.progress();
        // The old view's silence has no meaning any more, but whoever reads it must not take this member for dead.
        let Some(next) = &mut self.next else { return Ok(Poll::Idle) };
        self.wake_at = Some(Time(self.clock.now.0 + next.patience().as_nanos() as u64));
        if !next.look(&mut self.crew) {
            return Ok(Poll::Idle);
        }
        let Some(next) = self.next.take() else { return Ok(Poll::Idle) };
        let begun = next.begin(&mut self.crew);
        let Begun { mut engine, mut fabric, view, handover, absent } =
            begun.map_err(|error| self.broken(Ended::Stuck(error.to_string())))?;
        self.absent = absent;
        let mut lingering = self.fabric.take_lingering();
        lingering.extend(self.lines.iter_mut().flat_map(Line::relays).filter_map(|relay| relay.lingering.take()));
        fabric.listen_to(lingering);
        for spec in &view.subgroups {
            if !self.lines.iter().any(|line| line.name == spec.name) {
                let (notices, bytes_max) = (self.crew.notices(), self.terms.object_bytes_max);
                self.lines.push(Line::new(spec.name.clone(), &self.shared, notices, bytes_max));
            }
        }
        self.by_id = begin_lines(&mut self.lines, &mut engine, &fabric, &view);
        self.kept.begin(&view, engine.layout(), engine.me(), fabric.reader());
        let change = ViewChange::new(Arc::clone(&self.view), Arc::clone(&view));
        self.retired.extend(self.fabric.retire().map(|retired| (retired, Instant::now())));
        (self.engine, self.fabric, self.view) = (engine, fabric, view);
        (self.relaying, self.waiting, self.has_chores) = (true, true, true);
        (self.spare, self.had_spare) = (None, false);
        if self.leaving != Leaving::No {
            // The old view was about to end, or had ended, without this wish.
            (self.leaving, self.has_chores) = (Leaving::Wanted, true);
        }
        self.let_guests_in();
        self.joins.begin(handover, &self.view);
        for id in self.joins.admitted() {
            // The old view's engine heard of it when this one had been made already.
            self.engine.admit(id);
        }
        self.missed = None;
        self.evicting.retain(|id| self.view.members.contains(id));
        for rank in self.evicting.iter().filter_map(|id| self.view.rank_of(*id)) {
            self.engine.suspect(rank);
        }
        self.evict_the_ended();
        self.shared.set_view(Arc::clone(&self.view));
        let _running = Upcall::enter();
        handler.view_changed(&change);
        Ok(Poll::Worked)
    }

    /// Takes in what others have written and who has died, and lets in who waits.
    #[cold]
    fn attend(&mut self) -> Result<bool, Ended> {
        self.clock.look();
        // Everybody waits for these letters.
        let news = if self.next.is_some() { self.crew.news_now() } else { self.crew.news() };
        let worked = !news.is_empty();
        for news in news {
            match news {
                News::Died(id) => {
                    self.joins.forget(id);
                    self.died(id);
                }
                // A member's streams tell what has become of it.
                News::Lost(id) if self.view.rank_of(id).is_none() => {
                    self.joins.forget(id);
                    self.crew.forget_observer(id);
                }
                News::Asks { id, config, observer, namesake, .. }
                    if !Config::admits(self.terms.digest, config, observer) =>
                {
                    let why = Refusal::Config(self.terms.digest);
                    self.crew.post_at(namesake.as_ref(), id, Letter::Refused { why });
                }
                News::Asks { id, process, namesake: Some(address), .. } => {
                    self.asked_by_namesake(id, process, &address)
                }
                News::Asks { id, process, observer, .. } => self.asked(id, process, observer),
                News::Requests { from, reply, what } => self.requested(from, reply, what),
                News::Guest { view, stream } if self.guests.len() < GUESTS_MAX => self.guests.push((view, stream)),
                News::View { incarnation, view } if self.is_left_behind(incarnation, &view) => {
                    // Who follows need not wait until this node is dropped.
                    self.engine.abandon(1, &mut self.fabric);
                    return Err(self.broken(Ended::Evicted { id: self.crew.me, view: self.view.id }));
                }
                News::Wants(order) => self.wanted(order),
                News::View { incarnation, view } => self.hear_of(incarnation, &view),
                News::Lost(_)
                | News::Objects { .. }
                | News::Guest { .. }
                | News::Refused(_)
                | News::Waits(_)
                | News::State { .. } => {}
            }
        }
        self.evict_the_ended();
        self.let_guests_in();
        self.heed_observers();
        if !self.had_spare && self.next.is_none() && !self.engine.is_wedged() && self.joins.is_complete() {
            self.had_spare = true;
            let joining: Vec<MemberId> = self.joins.asking().collect();
            self.spare = Spare::new(&self.view, &joining, self.crew.me, &self.bell);
        }
        if self.lets_in() {
            let now = Instant::now();
            for id in self.crew.unreachable(&self.joins.expected(now)) {
                // Nobody waits for the dead.
                self.joins.forget(id);
                self.crew.forget_observer(id);
            }
            let due = self.joins.due(now);
            self.admit(due);
        }
        Ok(worked)
    }

    /// Whether somebody follows who needs what was delivered for a while yet: keeps it then.
    fn heed_observers(&mut self) {
        let is_observed = !self.crew.observers().is_empty() || self.fabric.guests() > 0;
        self.engine.set_observed(is_observed);
        self.kept.set_on(is_observed);
    }

    /// Lets those follow the view who have made a stream for it.
    fn let_guests_in(&mut self) {
        if self.next.is_some() {
            return;
        }
        let view = self.view.id;
        for (_, stream) in self.guests.extract_if(.., |(wanted, _)| *wanted == view) {
            // If the system refuses, it finds its stream closed.
            let _ = self.fabric.add_guest(self.engine.layout(), stream);
            self.engine.set_observed(true);
            self.had_guests = true;
        }
        self.guests.retain(|(wanted, _)| *wanted > view);
    }

    fn admit(&mut self, ids: Vec<MemberId>) {
        for id in ids {
            self.engine.admit(id);
        }
    }

    /// Whether it is this member's to say when those who wait are let in. All know who waits, in case that the leader dies; and if all
    /// decided on the moment, the first would, who need not know of all those who are on their way.
    fn lets_in(&self) -> bool {
        self.next.is_none() && !self.engine.is_wedged() && self.engine.leader() == self.rank()
    }

    /// Somebody wants to join.
    fn asked(&mut self, id: MemberId, process: Process, observer: bool) {
        let is_in = |view: &View| view.rank_of(id).is_some();
        let is_in_any = is_in(&self.view) || self.next.as_ref().is_some_and(|next| is_in(&next.view));
        if is_in_any && !self.crew.is_process(id, process) {
            // Its predecessor has to go first, and it asks again.
            return self.wait(id);
        }
        if is_in(&self.view) && self.crew.is_far(id) {
            // Whoever missed its beginning is too late for it; and who has come after a member of the same id must have no part in it.
            return self.wait(id);
        }
        if let Some(next) = self.next.as_ref().filter(|next| is_in(&next.view)) {
            return next.hand_over_to(&mut self.crew, id);
        }
        if is_in(&self.view) {
            self.crew.tell_view(&self.view, [id]);
            return self.crew.hand_over(self.view.id, self.joins.handover(), &[id]);
        }
        if observer {
            if self.crew.add_observer(id) {
                self.joins.expect(id, Instant::now());
            }
            if let Some(next) = &self.next {
                return next.hand_over_to(&mut self.crew, id);
            }
            self.engine.set_observed(true);
            self.crew.tell_view(&self.view, [id]);
            return self.crew.hand_over(self.view.id, self.joins.handover(), &[id]);
        }
        if self.view.members.len() >= limits::MEMBERS_MAX {
            return self.crew.post(id, Letter::Refused { why: Refusal::Full(limits::MEMBERS_MAX as u32) });
        }
        self.joins.ask(id, Instant::now());
        self.wait(id);
    }

    /// Somebody wants to join whose id another process has. If that is a member it has to go first; while it is heard of it does not go.
    fn asked_by_namesake(&mut self, id: MemberId, process: Process, address: &Address) {
        let rank = self.view.rank_of(id).filter(|rank| !self.engine.suspects(*rank));
        let heartbeat = rank.map(|rank| self.fabric.load(rank, membership::HEARTBEAT));
        let wait = self.told_to_wait();
        let answer = self.crew.turn_away((id, process), heartbeat, wait);
        self.crew.post_at(Some(address), id, answer);
    }

    fn told_to_wait(&self) -> Letter {
        let blocked = self.told_blocked;
        let is_here = |rank: &Rank| !(blocked && self.engine.suspects(*rank));
        let ids = self.view.ranks().filter(is_here).map(|rank| self.view.members[rank.index()]);
        let present = ids.map(|id| (id, self.crew.pid(id))).collect();
        let leader = self.view.members[self.engine.leader().index()];
        Letter::Wait { members: self.view.members.len() as u32, leader, blocked, present }
    }

    /// Tells somebody who wants to join who is there.
    fn wait(&mut self, id: MemberId) {
        let wait = self.told_to_wait();
        self.crew.post(id, wait);
        if self.crew.net().is_some() && self.view.rank_of(id).is_none() {
            // It finds nobody in a directory, or not those on other hosts, and has to ask the leader, too.
            self.crew.tell_view(&self.view, [id]);
        }
    }

    /// Somebody who follows wants objects.
    fn wanted(&mut self, order: Order) {
        let is_in = |view: &View| view.rank_of(order.from).is_some();
        if !is_in(&self.view) && !self.next.as_ref().is_some_and(|next| is_in(&next.view)) {
            // It may have been forgotten, because it was slow to read its letters.
            self.crew.add_observer(order.from);
        }
        self.serving.ask(order);
    }

    /// Another process of this user wants something.
    fn requested(&mut self, from: MemberId, reply: u64, what: Request) {
        match what {
            Request::Leave => self.leave(),
            Request::State => return self.states.push_back(from),
            Request::Forget => {
                self.joins.forget(from);
                return self.crew.forget_observer(from);
            }
            Request::Evict(id) => self.evict(id),
            Request::View => return self.crew.tell_view(&self.view, [from]),
            Request::Stopped { incarnation, view } => return self.has_stopped(from, incarnation, view),
            _ => {}
        }
        let text = self.status().to_json().to_string();
        self.crew.answer(from, reply, &text);
    }

    /// The group has to go on without `id`: from this view on, or from the next if it ends already or this one has.
    fn evict(&mut self, id: MemberId) {
        let is_next = self.next.as_ref().is_some_and(|next| next.has(id));
        let rank = self.view.rank_of(id);
        if id == self.crew.me || (rank.is_none() && !is_next) {
            return;
        }
        self.evicting.insert(id);
        if let Some(rank) = rank {
            self.engine.suspect(rank);
        }
    }

    /// Those whose processes on other hosts have ended write nothing any more. What they have sent comes first, if it is here.
    fn evict_the_ended(&mut self) {
        for id in self.crew.ended() {
            if self.view.rank_of(id).is_none_or(|rank| !self.engine.suspects(rank)) {
                self.fabric.progress();
                self.evict(id);
            }
        }
    }

    /// Hands this application's state to one of those who want it, as it is between two deliveries. To one at a time: many may want
    /// it, and the group must not wait.
    #[cold]
    fn give_state(&mut self, handler: &mut impl Handler) {
        let Some(to) = self.states.pop_front() else { return };
        if self.lines.iter().any(Line::has_receiver) {
            // What a receiver has delivered, and what the state has of it, nobody can tell.
            return self.crew.post(to, Letter::Refused { why: Refusal::NoState });
        }
        let ids = (0..self.view.subgroups.len() as u32).map(SubgroupId);
        let places: Vec<Option<u64>> = ids.map(|id| self.engine.delivered(id)).collect();
        let state = {
            let _running = Upcall::enter();
            // All members run the same code: if this were the end of one of them, a joiner would end them one after the other.
            panic::catch_unwind(AssertUnwindSafe(|| handler.snapshot()))
        };
        let Ok(state) = state else { return self.crew.post(to, Letter::Refused { why: Refusal::NoState }) };
        let (view, notices) = (self.view.id, Arc::clone(self.notices()));
        let thread = thread::Builder::new().name("spindle-state".into());
        // Without a thread or memory for it the joiner hears nothing, and asks somebody else.
        if self.crew.is_far(to) {
            let stream = self.crew.dial_for(to, Purpose::State { view });
            let send = move || match stream.recv_timeout(STREAM_WAIT) {
                Ok(stream) => send_state_afar(state, &places, stream),
                Err(_) => Ok(()),
            };
            let _ = thread.spawn(send);
            return;
        }
        let letter = Letter::State { view, from: self.crew.me };
        let _ = thread.spawn(move || send_state(state, &places, |pipe| notices.tell_of_pipe(to, letter, pipe)));
    }

    /// The others are too few without somebody who is suspected. Who has no address any more writes nothing any more, whether its
    /// process lives or not; one whose memory never came here is watched by nobody, so this is the only way to hear of its end.
    #[cold]
    fn look_for_the_suspected(&mut self) -> bool {
        if self.looked.elapsed() < INSTALL_LOOK {
            return false;
        }
        self.looked = Instant::now();
        let suspected = self.view.ranks().filter(|rank| self.engine.suspects(*rank));
        let ids: Vec<MemberId> = suspected.map(|rank| self.view.members[rank.index()]).collect();
        let gone = self.crew.look_for(&ids);
        gone.iter().for_each(|id| self.died(*id));
        !gone.is_empty()
    }

    /// Whether others would not be blocked without this member, for so long that the last words that it lacks are not on their way any more.
    fn is_outdone(&self) -> bool {
        let patience = self.terms.suspect_after.map(|after| UNHEARD_MAX + after);
        patience.is_some_and(|patience| self.blocked_since.elapsed() > patience) && self.engine.is_outdone(&self.fabric)
    }

    /// Who was cut off has lost the streams over which it would have heard that the others decided to go on without it.
    fn ask_whether_they_go_on(&mut self) {
        if self.asked.elapsed() >= ASK_EVERY {
            self.asked = Instant::now();
            self.crew.ask_view_afar();
        }
    }

    /// Whether a view that others tell of shows that they go on without this member, which can't go on without them.
    fn is_left_behind(&self, incarnation: u128, view: &View) -> bool {
        let is_later = incarnation == self.crew.incarnation() && view.id > self.view.id;
        self.blocked && is_later && view.rank_of(self.crew.me).is_none()
    }

    /// Others tell of a view. They may have decided it with what this member has acknowledged, and the decision has not come; if it does not,
    /// this member is too late for that view, and they can't know whether it begins it before it says that it has stopped.
    fn hear_of(&mut self, incarnation: u128, view: &View) {
        let is_later = incarnation == self.crew.incarnation() && view.id > self.view.id;
        if self.blocked && self.next.is_none() && is_later && view.rank_of(self.crew.me).is_some() {
            self.missed.get_or_insert_with(Instant::now);
        }
    }

    /// Whether it has waited long enough for the decision that others know.
    fn has_missed(&self) -> bool {
        let patience = self.terms.suspect_after.filter(|_| self.next.is_none());
        patience.zip(self.missed).is_some_and(|(patience, since)| since.elapsed() > patience)
    }

    /// Somebody begins no view any more. It has written nothing in this one if it has not begun it: its row is zeros, whether there is a stream to it
    /// or not.
    fn has_stopped(&mut self, id: MemberId, incarnation: u128, view: ViewId) {
        self.crew.note_stopped(id, incarnation, view);
        if let Some(rank) = self.view.rank_of(id).filter(|_| self.crew.never_begins(self.view.id, id)) {
            self.engine.member_died(rank);
        }
    }

    /// `id` writes nothing any more.
    fn died(&mut self, id: MemberId) {
        if self.view.rank_of(id).is_some() && self.next.is_none() {
            // The view ends anyway.
            let all = self.joins.all();
            self.admit(all);
        }
        match self.view.rank_of(id) {
            Some(rank) if self.absent.contains(&id) => self.engine.member_gone(rank),
            Some(rank) => self.engine.member_died(rank),
            None => {}
        }
    }

    /// Those who are about to be dead write little any more, and their deaths may be told late. The others go on without them meanwhile,
    /// if they are enough for that without proof.
    fn suspect_the_dying(&mut self) {
        for rank in self.fabric.dying() {
            if !self.engine.suspects(rank) {
                self.engine.suspect(rank);
            }
        }
    }

    /// A step towards leaving: first everything that was sent has to be delivered everywhere. Whether anything happened.
    #[cold]
    fn go(&mut self) -> bool {
        if self.leaving == Leaving::Wanted {
            self.lines.iter_mut().for_each(Line::give_up_waiting);
        }
        match &self.leaving {
            Leaving::Wanted if !self.lines.iter().any(Line::has_backlog) => {
                self.leaving = Leaving::Waits(self.engine.committed());
                true
            }
            Leaving::Waits(committed) if self.engine.is_delivered(committed) => {
                self.leaving = Leaving::Asked;
                self.engine.leave();
                true
            }
            _ => false,
        }
    }

    /// Asks the others for a view without this member, as soon as they have delivered what it has sent by now. When that view is
    /// agreed on, [`poll`](Self::poll) answers [`Ended::Left`]. What is sent meanwhile may be delivered by all, or by nobody.
    pub fn leave(&mut self) {
        if self.leaving == Leaving::No {
            (self.leaving, self.has_chores) = (Leaving::Wanted, true);
            self.notices().ring();
        }
    }

    /// Sleeps until something happens for this member, or `at_most` that long, or less: the first sleep after there was something is
    /// short. For callers that poll: only after a poll that was [`Poll::Idle`], and poll again after it.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn sleep(&mut self, handler: &mut impl Handler, at_most: Duration) -> Result<Poll, Ended> {
        self.sleep_unless(handler, at_most, || false)
    }

    /// As [`sleep`](Self::sleep), unless `called` says, after the announcement, that somebody wants this thread.
    pub(crate) fn sleep_unless(
        &mut self,
        handler: &mut impl Handler,
        at_most: Duration,
        called: impl Fn() -> bool,
    ) -> Result<Poll, Ended> {
        if self.next.is_some() {
            if called() {
                return Ok(Poll::Idle);
            }
            self.crew.wait(at_most.min(INSTALL_LOOK));
            return Ok(Poll::Idle);
        }
        self.fabric.begin_sleep();
        if self.terms.suspect_after.is_some() {
            self.clock.look();
        }
        // What happened before the announcement is seen now; what happens after it rings.
        let poll = self.poll(handler);
        if matches!(poll, Ok(Poll::Idle)) && !called() && self.next.is_none() {
            let wake_in = self.wake_at.map(|at| Duration::from_nanos(at.0.saturating_sub(self.clock.now.0)));
            let joins = self.joins.patience(Instant::now()).filter(|_| self.lets_in());
            let retired = (!self.retired.is_empty()).then_some(RETIRED_LOOK);
            let opening = self.large.is_pending().then_some(LINK_LOOK);
            let waits = [wake_in, self.crew.patience(), joins, retired, opening];
            self.fabric.sleep(waits.into_iter().flatten().fold(at_most, Duration::min));
            if self.terms.suspect_after.is_some() {
                self.clock.look();
            }
        } else {
            self.fabric.end_sleep();
        }
        poll
    }

    /// Gives the node to a thread that polls until the group ends. `handler` runs on that thread, for the subgroups whose
    /// [`receiver`](Self::receiver) was not taken.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self, handler: impl Handler + Send + 'static) -> Result<Group, JoinError> {
        Group::start(self, handler)
    }

    /// How the group stands, as this member knows it.
    pub fn status(&self) -> Status {
        let lost = self.lines.iter().map(|line| line.lost).sum();
        let observers = self.crew.observers().len() as u64;
        let is_far = |id| self.crew.is_far(id);
        let rack = |id| self.crew.rack(id).cloned();
        Status::of(&self.engine, &self.fabric, |id| self.crew.pid(id), is_far, rack, lost, observers)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        self.crew.notices()
    }

    fn broken(&mut self, ended: Ended) -> Ended {
        self.end(End::Broken(ended.clone()));
        self.shared.broken().cloned().unwrap_or(ended)
    }

    fn end(&mut self, end: End) {
        self.shared.set_end(end);
        for (id, _) in self.view.subgroups_of(self.rank()) {
            if let Some(claims) = self.engine.claims(id) {
                claims.revoke();
            }
        }
        self.lines.iter_mut().for_each(Line::end);
        self.kept.end();
        if let Some(mailbox) = self.crew.mailbox() {
            mailbox.leave();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A member that is gone can't acknowledge: the others go on without it.
        self.engine.abandon(1, &mut self.fabric);
        if !matches!(self.engine.state(), State::Finished) {
            // They may be in the next view already.
            self.crew.say_stopped(self.view.id);
        }
        self.fabric.finish_heard(FAREWELL_MAX, UNHEARD_MAX);
        // Before the crew tells that nothing moves any more.
        self.next = None;
        self.end(End::Broken(Ended::Dropped));
    }
}

/// The engine's upcalls, passed on to the handler and to whoever waits.
struct Relay<'a, H> {
    handler: &'a mut H,
    lines: &'a [Line],
    by_id: &'a [usize],
}

impl<H: Handler> Upcalls<Mesh> for Relay<'_, H> {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let _running = Upcall::enter();
        self.handler.deliver(subgroup, batch);
    }

    fn room(&mut self, subgroup: SubgroupId) {
        self.lines[self.by_id[subgroup.index()]].make_room();
    }

    fn handed_off(&mut self, subgroup: SubgroupId) {
        self.lines[self.by_id[subgroup.index()]].wake_receiver();
    }
}

impl From<MeshError> for JoinError {
    fn from(error: MeshError) -> JoinError {
        JoinError::Memory(error)
    }
}

/// Begins a view in all lines. Answers, by subgroup, which line it is.
fn begin_lines(lines: &mut [Line], engine: &mut Engine, fabric: &Mesh, view: &Arc<View>) -> Vec<usize> {
    for line in &mut *lines {
        let id = view.subgroup(&line.name);
        let mine = id.filter(|id| view.subgroups[id.index()].members.contains(&engine.me()));
        line.begin(mine, engine, fabric, view);
    }
    let line = |name: &str| lines.iter().position(|line| line.name == name).expect("a line for each subgroup");
    view.subgroups.iter().map(|spec| line(&spec.name)).collect()
}

fn find(view: &View, me: Rank, name: &str) -> Result<SubgroupId, HandleError> {
    let found = view.subgroups_of(me).find(|(_, spec)| spec.name == name);
    found.map(|(id, _)| id).ok_or_else(|| {
        let known: Vec<&str> = view.subgroups_of(me).map(|(_, spec)| spec.name.as_str()).collect();
        HandleError::NoSuchSubgroup { name: name.to_string(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests;
