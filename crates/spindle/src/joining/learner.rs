//! How a process joins with the state of the group's application, without making the group wait.
//!
//! The joiner begins as an observer, which follows the order from outside. A member then sends its
//! state at that moment. The messages since then follow, in order. Only when the joiner has caught
//! up does it ask to be admitted. It follows the view that decides this to its end, as the members
//! do. So it begins the next view with exactly the state that they have.
//!
//! The core's [`Learn`] decides which member is asked and when to ask for admission. There are two
//! threads. One [follows](Follower), reads control messages, and records what is delivered. The
//! caller's thread restores and applies.
use super::follower::Follower;
use super::preparing::{First, PreallocatedRow};
use crate::bootstrap_progress::BootstrapProgress;
use crate::change::ViewChange;
use crate::config::Terms;
use crate::control_plane::{ControlPlane, ControlPlaneEvent};
use crate::error::JoinError;
use crate::logs::Logs;
use crate::transfer::State;
use spindle_core::control::{self, Learn, LearnError, Roster, ViewStart};
use spindle_core::{Engine, MemberId, Rank, Seen, SubgroupId, Time, View, ViewId};
use spindle_fabric::{Arena, Peer};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The pauses of the following thread. They grow while it finds little; otherwise many processes
/// that wait for admission together would keep the machine busy. A control message ends a pause,
/// and every view begins with some. But no event reports that a ring fills up.
const PAUSE_MIN: Duration = Duration::from_micros(25);
const PAUSE_LEARNING: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(2);
/// The longest pause while no message comes, and while no view is followed.
const PAUSE_QUIET: Duration = Duration::from_millis(20);
/// A pause is this fraction of the time since the thread found much.
const PAUSE_PART: u32 = 32;
/// The number of messages that counts as much, as a fraction of the smallest window.
const MUCH: u64 = 8;
/// The most bytes that may wait to be applied. A joiner that is slower than the group is lapped.
const QUEUE_BYTES_MAX: u64 = 1 << 30;
/// The most messages that are followed at once.
const BATCH_MAX: usize = 4096;

/// An item of the follower for the application, in order.
pub(crate) enum LearnerItem {
    /// The state transfer begins. The application skips what was delivered before it.
    State {
        state: Box<State>,
        source: MemberId,
        view: Arc<View>,
    },
    Message {
        subgroup: SubgroupId,
        sender: Rank,
        sender_id: MemberId,
        round: u64,
        payload: Vec<u8>,
    },
    Changed(ViewChange),
    /// The last view was followed to its end, and this process is in the next one.
    Admitted(Box<AdmittedLearner>),
    Failed(JoinError),
}

/// The parts that a new member needs.
pub(crate) struct AdmittedLearner {
    /// The first view of this process. It is dropped before the control plane, so that a process
    /// that gives up reports this before its address is gone.
    pub(crate) first: First,
    pub(crate) logs: Option<Logs>,
    pub(crate) control_plane: ControlPlane,
}

/// The view that admits this process.
struct Entrance {
    view: View,
    /// By subgroup and sender of the view: how many of the first rounds the application has already
    /// received.
    known: Vec<(SubgroupId, Rank, u64)>,
    /// The members of the view before. Empty if the group begins with the view.
    vouchers: Vec<MemberId>,
}

impl LearnerItem {
    /// Returns the memory that it takes while it waits.
    fn bytes(&self) -> u64 {
        match self {
            LearnerItem::Message { payload, .. } => payload.len() as u64 + 64,
            _ => 0,
        }
    }
}

/// The queue between the two threads.
#[derive(Default)]
pub(crate) struct LearnerQueue {
    items: Mutex<(VecDeque<LearnerItem>, u64)>,
    filled: Condvar,
    pub(crate) stop: AtomicBool,
    /// The state is restored.
    pub(crate) restored: AtomicBool,
    /// Whether the application has applied all items that it took.
    is_idle: AtomicBool,
}

impl LearnerQueue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<LearnerItem>, u64)> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, items: impl IntoIterator<Item = LearnerItem>) -> u64 {
        let mut queue = self.lock();
        for item in items {
            queue.1 += item.bytes();
            queue.0.push_back(item);
        }
        self.filled.notify_one();
        queue.1
    }

    /// Returns the next item; `None` if none comes for a while.
    pub(crate) fn take(&self, at_most: Duration) -> Option<LearnerItem> {
        let queue = self.lock();
        self.is_idle.store(true, Ordering::Relaxed);
        let waited = self.filled.wait_timeout_while(queue, at_most, |queue| queue.0.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        let item = queue.0.pop_front();
        queue.1 -= item.as_ref().map_or(0, LearnerItem::bytes);
        self.is_idle.store(item.is_none(), Ordering::Relaxed);
        item
    }

    /// Returns how many items wait to be applied to the state, once the state is restored.
    fn waiting(&self) -> Option<usize> {
        self.restored.load(Ordering::Acquire).then(|| self.lock().0.len())
    }

    /// Returns whether all items that were put in are applied.
    fn is_applied(&self) -> bool {
        let queue = self.lock();
        queue.0.is_empty() && self.is_idle.load(Ordering::Relaxed)
    }
}

/// The following thread.
pub(crate) struct Learner {
    follower: Follower,
    learn: Learn,
    arena: Arena,
    terms: Terms,
    queue: Arc<LearnerQueue>,
    seen: Arc<Mutex<BootstrapProgress>>,
    /// A state that is about to come: its view, the member that sends it, and the state itself.
    opening: Option<(ViewId, MemberId, Receiver<io::Result<State>>)>,
    /// The preallocated row for the view that admits only this process.
    spare: Option<PreallocatedRow>,
    had_spare: bool,
    /// The deliveries since then, until the state comes.
    early: Vec<LearnerItem>,
    early_bytes: u64,
    /// When the thread last found much to do.
    busy: Instant,
    /// When it last found a message.
    heard: Instant,
}

impl Learner {
    /// Creates a learner that asks for the state of the member after `failed`, whose state transfer
    /// broke off.
    pub(crate) fn new(
        follower: Follower,
        (arena, terms): (Arena, Terms),
        failed: Option<MemberId>,
        queue: Arc<LearnerQueue>,
        seen: Arc<Mutex<BootstrapProgress>>,
    ) -> Learner {
        let learn = Learn::new(failed, follower.now());
        let (opening, spare, had_spare, early, early_bytes) = Default::default();
        let busy = Instant::now();
        Learner {
            follower,
            learn,
            arena,
            terms,
            queue,
            seen,
            opening,
            spare,
            had_spare,
            early,
            early_bytes,
            busy,
            heard: busy,
        }
    }

    /// Runs a step of the control plane with the current time.
    fn act<R>(&mut self, act: impl FnOnce(&mut Learn, &mut control::Follow, &mut Roster<Peer>, Time) -> R) -> R {
        let learn = &mut self.learn;
        self.follower.act(|follow, roster, now| act(learn, follow, roster, now))
    }

    /// Runs until this process is admitted, or can't be.
    pub(crate) fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        let last = loop {
            if queue.stop.load(Ordering::Acquire) {
                return;
            }
            match self.turn() {
                Ok(None) => {}
                Ok(Some(entrance)) => {
                    let admitted = self.enter(entrance);
                    break admitted
                        .map_or_else(LearnerItem::Failed, |admitted| LearnerItem::Admitted(Box::new(admitted)));
                }
                Err(error) => break LearnerItem::Failed(error),
            }
        };
        queue.put([last]);
    }

    /// Hands this process's memory to the members, which wait for it, at once: the application may
    /// still be busy. Until the application is done, this thread takes in the memory of the members
    /// and shows that this process lives.
    fn enter(self, Entrance { view, known, vouchers }: Entrance) -> Result<AdmittedLearner, JoinError> {
        let (mut control_plane, incarnation) = self.follower.into_control_plane();
        let control_socket = control_plane.control_socket().expect("a process that joins has an address");
        let spans_hosts = control_plane.net().is_some();
        if !(if spans_hosts { control_socket.enter_afar(incarnation)? } else { control_socket.enter(incarnation)? }) {
            return Err(JoinError::GroupGone);
        }
        let me = view.rank_of(control_plane.me).expect("it is in the view");
        // Before others can see that this process begins the view.
        let mut logs = Logs::open(&self.terms, &view, &mut control_plane)?;
        let engine = Engine::new(view, me, self.terms.ablation)?;
        let mut first =
            First::new(engine, &known, &mut control_plane, self.arena, self.terms.suspect_after, self.spare)?;
        if logs.is_some() {
            first.await_voucher(vouchers);
        }
        while !self.queue.stop.load(Ordering::Acquire) {
            if first.look(&mut control_plane) && self.queue.is_applied() {
                break;
            }
            // The application does not report that it is done.
            control_plane.wait(if self.queue.is_applied() { first.patience() } else { PAUSE_LEARNING });
            if let Err(error) = first.attend(&mut control_plane, &self.terms.settings) {
                logs.iter_mut().for_each(|logs| logs.end(&control_plane));
                return Err(error);
            }
        }
        Ok(AdmittedLearner { first, logs, control_plane })
    }

    /// Returns the view that admits this process, if it has begun.
    fn turn(&mut self) -> Result<Option<Entrance>, JoinError> {
        self.ask()?;
        for news in self.follower.news_by(&mut self.learn)? {
            self.hear(news);
        }
        if let Some(differing) = self.follower.take_differing() {
            let differences = self.terms.settings.differences(&differing).into();
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).differing = differences;
        }
        self.look_for_the_state();
        if self.learn.has_asked() && !std::mem::replace(&mut self.had_spare, true) {
            self.spare = self.follower.view().and_then(|view| {
                let me = self.follower.me();
                PreallocatedRow::new(view, &[me], me, &mut self.arena)
            });
        }
        if let Some(view) = self.act(|learn, follow, roster, _| learn.created(follow, roster)) {
            return Ok(Some(Entrance { view, known: vec![], vouchers: vec![] }));
        }
        if self.follower.is_cut_off() {
            return Err(LearnError::CutOff.into());
        }
        self.act(|learn, follow, roster, now| learn.check(follow, roster, now))?;
        if let Some(start) = self.follower.begin()? {
            self.begin(start)?;
        }
        if !self.follower.is_following() {
            // Control messages begin a view, and data from other hosts is read from its streams.
            self.follower.wait(if self.follower.is_filling() { PAUSE_LEARNING } else { PAUSE_QUIET });
            return Ok(None);
        }
        let count = self.follow()?;
        if let Some(change) = self.follower.end() {
            return self.end(change);
        }
        if count > 0 {
            self.heard = Instant::now();
        }
        if count as u64 * MUCH > self.smallest_window() {
            self.busy = self.heard;
        } else {
            self.pause();
        }
        Ok(None)
    }

    fn pause(&self) {
        // The learner must not be lapped by a burst that comes meanwhile. A process waits for
        // admission for a short time only.
        let longest = if self.learn.has_asked() { PAUSE_MAX } else { PAUSE_LEARNING };
        let busy = (self.busy.elapsed() / PAUSE_PART).clamp(PAUSE_MIN, longest);
        let quiet = (self.heard.elapsed() / PAUSE_PART).min(PAUSE_QUIET);
        self.follower.wait(busy.max(quiet));
    }

    /// Returns how many messages may come at once without a loss.
    fn smallest_window(&self) -> u64 {
        let subgroups = self.follower.view().into_iter().flat_map(|view| &view.subgroups);
        subgroups.map(|spec| spec.window).min().unwrap_or(0)
    }

    fn begin(&mut self, start: ViewStart) -> Result<(), JoinError> {
        (self.spare, self.had_spare) = (None, false);
        self.busy = Instant::now();
        let sequences = self.follower.sequences();
        if self.act(|learn, follow, _, now| learn.begin(start, sequences, follow, now))? {
            self.early.clear();
            self.early_bytes = 0;
        }
        Ok(())
    }

    /// Passes on the deliverable messages, or stores them until the state has come. Returns their
    /// number.
    fn follow(&mut self) -> Result<usize, JoinError> {
        let mut got = vec![];
        while got.len() < BATCH_MAX
            && let Some(seen) = self.follower.next()?
        {
            let Seen { subgroup, sender, round } = seen;
            let view = self.follower.view().expect("a message belongs to the view that is followed");
            let sender_id = view.members[sender.index()];
            let payload = self.follower.take_payload();
            got.push(LearnerItem::Message { subgroup, sender, sender_id, round, payload });
        }
        let count = got.len();
        if count == 0 {
            return Ok(0);
        }
        let waiting = if self.learn.has_state() {
            self.queue.put(got)
        } else {
            self.early_bytes += got.iter().map(LearnerItem::bytes).sum::<u64>();
            self.early.extend(got);
            self.early_bytes
        };
        if waiting > QUEUE_BYTES_MAX {
            return Err(JoinError::TooSlow { bytes: QUEUE_BYTES_MAX });
        }
        Ok(count)
    }

    /// Handles the end of the followed view.
    fn end(&mut self, change: ViewChange) -> Result<Option<Entrance>, JoinError> {
        self.busy = Instant::now();
        let (next, vouchers) = (Arc::clone(&change.new), change.old.members.clone());
        let is_in = self.act(|learn, _, roster, _| learn.end(&next, roster))?;
        if self.learn.has_state() {
            self.queue.put([LearnerItem::Changed(change)]);
        }
        if !is_in {
            return Ok(None);
        }
        let known = self.follower.known_in(&next)?;
        Ok(Some(Entrance { view: View::clone(&next), known, vouchers }))
    }

    /// Requests the missing parts: the view, its rows, the state, or admission.
    fn ask(&mut self) -> Result<(), JoinError> {
        if self.learn.is_catching_up()
            && let Some(waiting) = self.queue.waiting()
        {
            self.learn.note_waiting(waiting);
        }
        let had_asked = self.learn.has_asked();
        let is_due = self.act(|learn, follow, _, now| learn.is_due(follow, now));
        if self.learn.has_asked() && !had_asked {
            self.busy = Instant::now();
        }
        if !is_due {
            return Ok(());
        }
        let here = self.follower.members_here()?;
        self.act(|learn, follow, roster, now| learn.ask(&here, follow, roster, now))?;
        if let Some(book) = self.follower.control_plane().book() {
            let unreached = book.seeds().unreached();
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).unreached = unreached;
        }
        Ok(())
    }

    fn hear(&mut self, news: ControlPlaneEvent) {
        match news {
            ControlPlaneEvent::Control(control::ControlEvent::Waits { members, blocked, present }) => {
                let progress = BootstrapProgress::heard(members, blocked, present);
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let unreached = std::mem::take(&mut seen.unreached);
                *seen = BootstrapProgress { unreached, ..progress.behind(&seen) };
            }
            ControlPlaneEvent::State { view, from, way } => {
                if !self.act(|learn, follow, _, _| learn.state_comes(view, from, follow)) {
                    return;
                }
                match State::open_apart(way) {
                    Ok(opening) => self.opening = Some((view, from, opening)),
                    Err(_) => self.act(|learn, follow, _, now| learn.state_failed(follow, now)),
                }
            }
            _ => {}
        }
    }

    /// Takes over a state that has begun to come, if any.
    fn look_for_the_state(&mut self) {
        let Some((id, source, opening)) = &self.opening else { return };
        let (id, source) = (*id, *source);
        let opened = match opening.try_recv() {
            Ok(opened) => opened.ok(),
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => None,
        };
        self.opening = None;
        let Some(state) = opened else {
            return self.act(|learn, follow, _, now| learn.state_failed(follow, now));
        };
        let view = self.act(|learn, follow, _, now| learn.state_opened(id, &state.sequences, follow, now));
        if let Some(view) = view {
            self.queue.put([LearnerItem::State { state: Box::new(state), source, view }]);
            self.queue.put(self.early.drain(..));
        }
    }
}

impl From<LearnError> for JoinError {
    fn from(error: LearnError) -> JoinError {
        match error {
            LearnError::GroupGone => JoinError::GroupGone,
            LearnError::Refused(why) => JoinError::Refused(why),
            LearnError::PassedOver => JoinError::Source(io::Error::other("the group has passed over a view meanwhile")),
            _ => JoinError::Source(io::Error::other("the connection to a member is lost")),
        }
    }
}
