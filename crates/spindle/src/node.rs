//! A member of a group before, or without, a polling thread: a driver of the core's [`Member`].
use crate::crew::{Crew, Notices};
use crate::error::{Ended, HandleError, JoinError};
use crate::group::Group;
use crate::large::{Kept, LINK_LOOK, Large, Serving};
use crate::line::Line;
use crate::publisher::Publisher;
use crate::receiver::Receiver;
use crate::shared::{End, Shared, Upcall};
use crate::status::Status;
use crate::{Batch, Handler};
use spindle_core::control::{self, INSTALL_LOOK, Member};
use spindle_core::{
    Ablation, Change, Engine, Layout, MemberId, Rank, State, SubgroupId, SubgroupSpec, Time, Upcalls, View, ViewId,
};
use spindle_fabric::fork::Owner;
use spindle_fabric::region::check_room;
use spindle_fabric::tcp::Connection;
use spindle_fabric::{Fabric, MemberBell, Mesh, MeshError};
use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod clock;
mod links;
mod preparing;
mod views;

use clock::Clock;
use links::Over;
use preparing::Preparing;
pub(crate) use preparing::{First, Spare};

/// A member that the caller drives: by calling [`poll`](Self::poll) in a loop of its own, or by [`start`](Self::start), which
/// gives the node to a thread.
///
/// Polling oneself saves the hand-over between threads: it is the fastest way on a machine with few cores. A node that is
/// not polled acknowledges nothing, holds everybody up, and is evicted after a while.
#[derive(Debug)]
pub struct Node {
    owner: Owner,
    crew: Crew,
    member: Member,
    /// The rows of the view.
    fabric: Mesh,
    bell: MemberBell,
    /// This member's memory for the next view, once this one has ended.
    preparing: Option<Preparing>,
    large: Large,
    /// Objects for processes that follow.
    kept: Arc<Kept>,
    serving: Serving,
    /// By name; the order is that of the first view.
    lines: Vec<Line>,
    /// By subgroup of this view: which line.
    by_id: Vec<usize>,
    /// Views that are over, whose streams have something to send.
    over: Vec<Over>,
    /// Of processes that follow a view that has not begun here.
    guests: Vec<(ViewId, Connection)>,
    /// Whether this view was followed over a stream whose end was not seen.
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
    /// Whether it has been polled: no more handles are given out.
    running: bool,
    shared: Arc<Shared>,
    pub(crate) terms: Terms,
    clock: Clock,
    /// The processes that want this application's state.
    states: VecDeque<MemberId>,
    /// When the engine wants to be polled though nothing happens.
    wake_at: Option<Time>,
    /// Whether the handler was told that this member is blocked.
    told_blocked: bool,
    /// Since when everything is done.
    finished: Option<Instant>,
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

/// The target of events of views.
const TARGET: &str = "spindle::view";
/// The pause between two looks at views that are over.
const RETIRED_LOOK: Duration = Duration::from_millis(1);
/// How long a member that ends waits until its peers on other hosts have heard so, at most.
const FAREWELL_MAX: Duration = Duration::from_millis(200);
/// How long a member that has finished waits for processes that follow and may want large messages of it, at most: until they go.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// How long it waits for peers to which its last words are still on their way: their links may be down. Without them they count it among those
/// that may live and go on elsewhere.
const UNHEARD_MAX: Duration = Duration::from_secs(3);

impl Node {
    /// A member whose first view is ready.
    pub(crate) fn new(mut crew: Crew, first: First, bell: MemberBell, terms: Terms) -> Result<Node, JoinError> {
        let (begun, fabric) = first.begin(&mut crew)?;
        let alike = control::Terms { digest: terms.digest, suspect_after: terms.suspect_after };
        let mut member = crew.act(|roster, now| Member::new(begun, alike, roster, now));
        let view = Arc::clone(member.view());
        let shared = Arc::new(Shared::new(Arc::clone(&view)));
        let notices = crew.notices();
        let line = |spec: &SubgroupSpec| Line::new(spec.name.clone(), &shared, notices, terms.object_bytes_max);
        let mut lines: Vec<Line> = view.subgroups.iter().map(line).collect();
        let (large, kept) = (Large::new(notices, &terms), Arc::new(Kept::default()));
        kept.begin(&view, member.engine().layout(), member.engine().me(), fabric.reader());
        let by_id = begin_lines(&mut lines, member.engine_mut(), &fabric, &view);
        let clock = Clock::new(crew.origin());
        let (preparing, over, guests, spare, wake_at) = Default::default();
        Ok(Node {
            owner: Owner::new(),
            crew,
            member,
            fabric,
            bell,
            preparing,
            large,
            kept,
            serving: Serving::default(),
            lines,
            by_id,
            over,
            guests,
            had_guests: false,
            spare,
            had_spare: false,
            relaying: false,
            waiting: true,
            has_chores: true,
            running: false,
            shared,
            terms,
            clock,
            states: VecDeque::new(),
            wake_at,
            told_blocked: false,
            finished: None,
        })
    }

    /// The newest view that has begun here: who is in, in which subgroups.
    pub fn view(&self) -> &Arc<View> {
        self.member.view()
    }

    /// This member's rank in the view.
    pub fn rank(&self) -> Rank {
        self.member.engine().me()
    }

    /// What tells this group from those that had its name before: drawn by who founded it. See [`Config::was_member_of`](crate::Config::was_member_of).
    pub fn incarnation(&self) -> u128 {
        self.crew.incarnation()
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
        find(self.member.view(), self.rank(), subgroup)?;
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
        let engine = self.member.newest_engine_mut();
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
        let id = find(self.member.view(), self.rank(), subgroup)?;
        let name = subgroup.to_string();
        let line = self.lines.iter_mut().find(|line| line.name == subgroup).expect("a line for each subgroup");
        if line.has_receiver() {
            return Err(HandleError::Taken { what: "receiver", name });
        }
        if self.running {
            return Err(HandleError::Running { name });
        }
        let view = Arc::clone(self.member.view());
        Ok(line.receiver(id, self.member.engine_mut(), &self.fabric, &view))
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
            self.suspect_the_ended();
        }
        if self.terms.suspect_after.is_some() {
            self.clock.tick();
            if std::mem::take(&mut self.clock.looked) {
                self.crew.look_at_bootstrap();
                self.suspect_the_dying();
            }
        }
        // Alone, and before anything that asks whether all is sent on: a silent application's ring is looked after for ever.
        let mut worked = self.relaying && self.preparing.is_none() && self.relay();
        if self.waiting {
            self.waiting = self.lines.iter().any(Line::is_waiting);
            self.member.engine_mut().keep_open(self.waiting);
        }
        if self.has_chores || self.crew.has_notice() {
            worked |= self.do_chores(handler)?;
            if self.preparing.is_some() {
                return self.install(handler);
            }
        }
        if self.fabric.progress() {
            worked = true;
            self.heed_broken_streams();
        }
        if self.had_guests && self.fabric.guests() == 0 {
            // Their ends are not told, and what was kept for the last of them is free.
            self.had_guests = false;
            self.heed_observers();
        }
        if !self.over.is_empty() {
            self.look_after_retired();
        }
        let mut upcalls = Relay { handler, lines: &self.lines, by_id: &self.by_id };
        let engine = self.member.engine_mut();
        let progress = engine.poll(self.clock.now, &mut self.fabric, &mut upcalls);
        let is_blocked = engine.is_blocked();
        if self.fabric.has_objects() {
            self.look_after_objects(progress.worked);
        }
        if is_blocked != self.told_blocked {
            self.tell_blocked(handler);
        }
        if is_blocked {
            self.crew.act(|roster, now| self.member.after_poll(roster, now));
        }
        self.wake_at = progress.wake_at;
        self.clock.worked = progress.worked;
        match self.member.engine().state() {
            State::Running if worked || progress.worked || progress.wake_at.is_some_and(|at| at <= self.clock.now) => {
                // If it slept before.
                self.fabric.end_sleep();
                Ok(Poll::Worked)
            }
            State::Running => Ok(Poll::Idle),
            State::Finished => Ok(self.finish()),
            State::Ended => self.end_view(),
            State::Evicted => Err(self.broken(Ended::Evicted { id: self.crew.me, view: self.member.view().id })),
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
        self.lines.iter_mut().for_each(|line| line.look_after_objects(self.member.engine(), &self.kept));
        if !worked {
            return;
        }
        let view = Arc::clone(self.member.view());
        let engine = self.member.engine();
        for (id, spec) in view.subgroups_of(engine.me()) {
            for (sender, member) in spec.senders.iter().enumerate().filter(|(_, member)| **member != self.rank()) {
                let place = engine.layout().row(*member).place(id);
                let ring = place.and_then(|place| place.ring).expect("it sends there");
                let rounds = engine.delivered_rounds(id, sender);
                let is_read = !self.lines[self.by_id[id.index()]].delivers_to_nobody();
                self.kept.keep(id, *member, || self.fabric.forget_objects(*member, &ring, is_read.then_some(rounds)));
            }
        }
    }

    #[cold]
    fn tell_blocked(&mut self, handler: &mut impl Handler) {
        self.told_blocked = !self.told_blocked;
        let _running = Upcall::enter();
        handler.blocked(self.told_blocked);
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

    /// Asks the others for a view without this member, as soon as they have delivered what it has sent by now. When that view is
    /// agreed on, [`poll`](Self::poll) answers [`Ended::Left`]. What is sent meanwhile may be delivered by all, or by nobody.
    pub fn leave(&mut self) {
        if self.member.leave() {
            self.has_chores = true;
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
        if self.preparing.is_some() {
            if called() {
                return Ok(Poll::Idle);
            }
            self.crew.wait(at_most.min(INSTALL_LOOK));
            return Ok(Poll::Idle);
        }
        self.fabric.begin_sleep();
        self.crew.look_at_bootstrap();
        if self.terms.suspect_after.is_some() {
            self.clock.look();
        }
        // What happened before the announcement is seen now; what happens after it rings.
        let poll = self.poll(handler);
        if matches!(poll, Ok(Poll::Idle)) && !called() && self.preparing.is_none() {
            let wake_in = self.wake_at.map(|at| at.since(self.clock.now));
            let retired = self.over.iter().any(Over::is_open).then_some(RETIRED_LOOK);
            let opening = self.large.is_pending().then_some(LINK_LOOK);
            let waits = [wake_in, self.crew.patience(), self.member.patience(self.crew.now()), retired, opening];
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
        let observers = self.crew.roster().observers().len() as u64;
        let is_far = |id| self.crew.is_far(id);
        let rack = |id| self.crew.book()?.rack(id).cloned();
        Status::of(self.member.engine(), &self.fabric, |id| self.crew.pid(id), is_far, rack, lost, observers)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        self.crew.notices()
    }

    fn broken(&mut self, ended: Ended) -> Ended {
        let (me, view) = (self.crew.me.0, self.member.view().id.0);
        match &ended {
            Ended::Left => tracing::info!(target: TARGET, me, view, "this member has left"),
            why => tracing::error!(target: TARGET, me, view, reason = %why, "the group has ended for this member"),
        }
        self.end(End::Broken(ended.clone()));
        self.shared.broken().cloned().unwrap_or(ended)
    }

    fn end(&mut self, end: End) {
        self.shared.set_end(end);
        let engine = self.member.engine();
        for (id, _) in self.member.view().subgroups_of(engine.me()) {
            if let Some(claims) = engine.claims(id) {
                claims.revoke();
            }
        }
        self.lines.iter_mut().for_each(|line| line.end(self.member.engine_mut(), &self.fabric));
        self.kept.end();
        if let Some(mailbox) = self.crew.mailbox() {
            mailbox.leave();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.owner.is_copy() {
            // In a child that was forked: the member goes on in the parent.
            return;
        }
        // A member that is gone can't acknowledge: the others go on without it.
        self.member.engine_mut().abandon(1, &mut self.fabric);
        if !matches!(self.member.engine().state(), State::Finished) {
            // They may be in the next view already.
            let view = self.member.view().id;
            self.crew.act(|roster, _| roster.say_stopped(view));
        }
        self.fabric.finish_heard(FAREWELL_MAX, UNHEARD_MAX);
        // Before the crew tells that nothing moves any more.
        self.preparing = None;
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
