//! How a process joins with the state of the group's application, without making the group wait for it.
//!
//! It begins as an observer, which follows the order from outside; then a member hands over its state as it is at that moment; then
//! come the messages since, in order; and only when it has caught up does it ask to be let in. The view in which that is decided
//! it follows to its end, as the members do, and so begins the next one with exactly the state that they have.
//!
//! Two threads: one [follows](Follower), reads the mail, and writes down what is delivered; the other is the caller's, and restores and
//! applies.
use crate::ViewChange;
use crate::crew::{Crew, News};
use crate::error::JoinError;
use crate::following::{Begun, Follower};
use crate::gathering::Gathering;
use crate::node::{First, Spare, Terms};
use crate::state::State;
use spindle_core::control::{self, Letter, Request};
use spindle_core::{Engine, MemberId, Rank, SubgroupId, View, ViewId};
use spindle_fabric::MemberBell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a member may take until its state begins to come.
const STATE_WAIT: Duration = Duration::from_secs(2);
/// The pauses of the thread that follows: they grow while it finds little, or many who wait to be let in together would keep the machine
/// busy. Letters end them, and there are some whenever a view begins; but nobody tells that a ring fills up.
const PAUSE_MIN: Duration = Duration::from_micros(25);
const PAUSE_LEARNING: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(2);
/// A pause is this part of the time since it found much.
const PAUSE_PART: u32 = 32;
/// What is much to find at once, as a part of the smallest window.
const MUCH: u64 = 8;
/// Bytes that wait to be applied, at most. A joiner that is slower than the group is lapped.
const QUEUE_BYTES_MAX: u64 = 1 << 30;
/// Messages that are followed at once, at most.
const BATCH_MAX: usize = 4096;
/// With fewer messages waiting it has caught up.
const CAUGHT_UP: usize = 1000;

/// What the follower has for the application, in order.
pub(crate) enum Item {
    /// The state begins to come; what was delivered before it is passed over.
    State {
        state: Box<State>,
        source: MemberId,
        view: Arc<View>,
    },
    Message {
        subgroup: SubgroupId,
        sender: Rank,
        round: u64,
        payload: Vec<u8>,
    },
    Changed(ViewChange),
    /// The last view is followed to its end, and this process is in the next.
    Admitted(Box<Admitted>),
    Failed(JoinError),
}

/// What is needed to take part.
pub(crate) struct Admitted {
    /// The first view of this process. Before the crew: who gives up says so before its address is gone.
    pub(crate) first: First,
    pub(crate) crew: Crew,
}

/// The view that lets this process in.
struct Entrance {
    view: View,
    /// By subgroup and sender of the view: how many of the first rounds the application has had already.
    known: Vec<(SubgroupId, Rank, u64)>,
}

impl Item {
    /// What it takes while it waits.
    fn bytes(&self) -> u64 {
        match self {
            Item::Message { payload, .. } => payload.len() as u64 + 64,
            _ => 0,
        }
    }
}

/// Between the two threads.
#[derive(Default)]
pub(crate) struct Queue {
    items: Mutex<(VecDeque<Item>, u64)>,
    filled: Condvar,
    pub(crate) stop: AtomicBool,
    /// The state is restored.
    pub(crate) restored: AtomicBool,
    /// And what has come since is nearly applied.
    pub(crate) caught_up: AtomicBool,
    /// Whether members may let this process in, or have.
    pub(crate) is_wanted: AtomicBool,
    /// Whether the application has applied all that it took.
    is_idle: AtomicBool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Item>, u64)> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, items: impl IntoIterator<Item = Item>) -> u64 {
        let mut queue = self.lock();
        for item in items {
            queue.1 += item.bytes();
            queue.0.push_back(item);
        }
        self.filled.notify_one();
        queue.1
    }

    /// The next item; `None` if there is none for a while.
    pub(crate) fn take(&self, at_most: Duration) -> Option<Item> {
        let queue = self.lock();
        self.is_idle.store(true, Ordering::Relaxed);
        if self.restored.load(Ordering::Relaxed) && queue.0.len() < CAUGHT_UP {
            self.caught_up.store(true, Ordering::Release);
        }
        let waited = self.filled.wait_timeout_while(queue, at_most, |queue| queue.0.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        let item = queue.0.pop_front();
        queue.1 -= item.as_ref().map_or(0, Item::bytes);
        self.is_idle.store(item.is_none(), Ordering::Relaxed);
        item
    }

    /// Whether everything is applied that was put there.
    fn is_applied(&self) -> bool {
        let queue = self.lock();
        queue.0.is_empty() && self.is_idle.load(Ordering::Relaxed)
    }
}

/// The thread that follows.
pub(crate) struct Learner {
    follower: Follower,
    bell: MemberBell,
    terms: Terms,
    queue: Arc<Queue>,
    seen: Arc<Mutex<Gathering>>,
    /// Whom the state was asked for, and until when it may take to send it.
    state_from: Option<(MemberId, Instant)>,
    /// One that is about to come, of which view and whose it is.
    opening: Option<(ViewId, MemberId, Receiver<io::Result<State>>)>,
    /// How many had none to give.
    without_state: usize,
    has_state: bool,
    /// In this view, to be let in.
    has_asked: bool,
    /// For the view that lets only this process in.
    spare: Option<Spare>,
    had_spare: bool,
    /// By subgroup of the view in which the observation began: the first place that was observed.
    start: Vec<u64>,
    /// What was delivered since, until the state comes.
    early: Vec<Item>,
    early_bytes: u64,
    /// When it found much to do last.
    busy: Instant,
}

impl Learner {
    /// One that asks for the state of the member after `failed`, whose state broke off before.
    pub(crate) fn new(
        follower: Follower,
        (bell, terms): (MemberBell, Terms),
        failed: Option<MemberId>,
        queue: Arc<Queue>,
        seen: Arc<Mutex<Gathering>>,
    ) -> Learner {
        let state_from = failed.map(|id| (id, Instant::now()));
        let (without_state, has_state, has_asked, start, early, early_bytes) = Default::default();
        Learner {
            follower,
            bell,
            terms,
            queue,
            seen,
            state_from,
            opening: None,
            without_state,
            has_state,
            has_asked,
            spare: None,
            had_spare: false,
            start,
            early,
            early_bytes,
            busy: Instant::now(),
        }
    }

    /// Runs until this process is let in, or can't be.
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
                    break admitted.map_or_else(Item::Failed, |admitted| Item::Admitted(Box::new(admitted)));
                }
                Err(error) => break Item::Failed(error),
            }
        };
        queue.put([last]);
    }

    /// Hands this process's memory to the others, who wait for it, at once: the application may be busy still. Until it is done, this
    /// thread takes in what they hand over, and shows that this process lives.
    fn enter(self, Entrance { view, known }: Entrance) -> Result<Admitted, JoinError> {
        let (mut crew, incarnation) = self.follower.into_crew();
        let mailbox = crew.mailbox().expect("a process that joins has an address");
        let spans_hosts = crew.net().is_some();
        if !(if spans_hosts { mailbox.enter_afar(incarnation)? } else { mailbox.enter(incarnation)? }) {
            return Err(JoinError::GroupGone);
        }
        let me = view.rank_of(crew.me).expect("it is in the view");
        let engine = Engine::new(view, me, self.terms.ablation)?;
        let mut first = First::new(engine, &known, &mut crew, &self.bell, self.terms.suspect_after, self.spare)?;
        while !self.queue.stop.load(Ordering::Acquire) {
            if first.look(&mut crew) && self.queue.is_applied() {
                break;
            }
            crew.wait(PAUSE_LEARNING);
            first.attend(&mut crew, self.terms.digest)?;
        }
        Ok(Admitted { first, crew })
    }

    /// The view in which this process is let in, if it is.
    fn turn(&mut self) -> Result<Option<Entrance>, JoinError> {
        self.ask()?;
        for news in self.follower.news()? {
            self.hear(news)?;
        }
        self.look_for_the_state();
        if self.has_asked && !std::mem::replace(&mut self.had_spare, true) {
            self.spare = self.follower.view().and_then(|view| {
                let me = self.follower.me();
                Spare::new(view, &[me], me, &self.bell)
            });
        }
        if let Some(view) = self.founded()? {
            return Ok(Some(Entrance { view, known: vec![] }));
        }
        if self.follower.is_cut_off() {
            return Err(JoinError::Source(io::Error::other("the connection to a member is lost")));
        }
        if self.has_state && self.follower.is_passed_over() {
            return Err(JoinError::Source(io::Error::other("the group has passed over a view meanwhile")));
        }
        if let Some(begun) = self.follower.begin()? {
            self.begin(begun);
        }
        if !self.follower.is_following() {
            self.pause();
            return Ok(None);
        }
        let count = self.follow()?;
        if let Some(change) = self.follower.end() {
            return self.end(change);
        }
        if count as u64 * MUCH > self.smallest_window() {
            self.busy = Instant::now();
        } else {
            self.pause();
        }
        Ok(None)
    }

    fn pause(&self) {
        // A burst that comes meanwhile must not lap it; who waits to be let in does so for a short time only.
        let longest = if self.has_asked { PAUSE_MAX } else { PAUSE_LEARNING };
        self.follower.wait((self.busy.elapsed() / PAUSE_PART).clamp(PAUSE_MIN, longest));
    }

    /// How many messages may come at once without that one is lost.
    fn smallest_window(&self) -> u64 {
        let subgroups = self.follower.view().into_iter().flat_map(|view| &view.subgroups);
        subgroups.map(|spec| spec.window).min().unwrap_or(0)
    }

    /// The view that founds the group, if this process is one of those who do. Nobody else is a member without the state.
    fn founded(&self) -> Result<Option<View>, JoinError> {
        // Between hosts a process founds a group only by the word of the founding.
        let may_found = !self.has_state && !self.follower.is_following() && !self.follower.spans_hosts();
        let mine = |view: &&View| may_found && view.rank_of(self.follower.me()).is_some();
        match self.follower.told().filter(mine) {
            Some(view) if view.id != ViewId(1) => Err(self.is_too_early()),
            view => Ok(view.cloned()),
        }
    }

    /// The members have let in who has had this id before, and take this process for it.
    fn is_too_early(&self) -> JoinError {
        self.queue.is_wanted.store(true, Ordering::Relaxed);
        let why =
            "an attempt that failed has been let in with this id, and has yet to be put out again: wait, or take no id";
        JoinError::Source(io::Error::other(why))
    }

    fn begin(&mut self, begun: Begun) {
        (self.has_asked, self.spare, self.had_spare) = (false, None, false);
        self.busy = Instant::now();
        if begun == Begun::Newest || !self.has_state {
            self.start = self.follower.places();
            self.ask_the_next();
            self.early.clear();
            self.early_bytes = 0;
        }
    }

    /// Passes on what is deliverable, or keeps it until the state is here. How many there were.
    fn follow(&mut self) -> Result<usize, JoinError> {
        let mut got = vec![];
        while got.len() < BATCH_MAX
            && let Some(seen) = self.follower.next()?
        {
            let payload = self.follower.take_payload();
            got.push(Item::Message { subgroup: seen.subgroup, sender: seen.sender, round: seen.round, payload });
        }
        let count = got.len();
        if count == 0 {
            return Ok(0);
        }
        let waiting = if self.has_state {
            self.queue.put(got)
        } else {
            self.early_bytes += got.iter().map(Item::bytes).sum::<u64>();
            self.early.extend(got);
            self.early_bytes
        };
        if waiting > QUEUE_BYTES_MAX {
            return Err(JoinError::TooSlow { bytes: QUEUE_BYTES_MAX });
        }
        Ok(count)
    }

    /// The followed view has ended.
    fn end(&mut self, change: ViewChange) -> Result<Option<Entrance>, JoinError> {
        self.busy = Instant::now();
        let next = Arc::clone(&change.new);
        if next.members.is_empty() {
            // The last member has left.
            return Err(JoinError::GroupGone);
        }
        let is_in = self.follower.joins_with(next.id);
        if !self.has_state {
            return if is_in { Err(self.is_too_early()) } else { Ok(None) };
        }
        self.queue.put([Item::Changed(change)]);
        if !is_in {
            return Ok(None);
        }
        let known = self.follower.known_in(&next)?;
        Ok(Some(Entrance { view: View::clone(&next), known }))
    }

    /// Waits no longer for the state of who was asked.
    fn ask_the_next(&mut self) {
        self.follower.ask_again();
        if let Some((_, until)) = &mut self.state_from {
            *until = Instant::now();
        }
    }

    /// Asks for what is missing: the view, its rows, the state, or to be let in.
    fn ask(&mut self) -> Result<(), JoinError> {
        // Who is between two views asks for the rows of the next: those who have just come have yet to hand theirs over.
        let has_learned = self.has_state && self.queue.caught_up.load(Ordering::Acquire);
        let wants_in = has_learned && self.follower.is_following();
        if wants_in && !std::mem::replace(&mut self.has_asked, true) {
            self.follower.ask_again();
            self.busy = Instant::now();
        }
        let is_time = self.follower.ask(wants_in)?;
        if is_time && let Some(book) = self.follower.crew().book() {
            let unreached = book.seeds().unreached();
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).unreached = unreached;
        }
        if is_time && wants_in {
            self.queue.is_wanted.store(true, Ordering::Relaxed);
        }
        if !is_time || self.has_state || self.state_from.is_some_and(|(_, until)| Instant::now() < until) {
            return Ok(());
        }
        let Some(view) = self.follower.view().filter(|_| self.follower.is_following()) else { return Ok(()) };
        // The next one, if the last one asked has nothing to give; at first one or the other, as many may come at once.
        let (ids, from) = (&view.members, self.follower.me());
        let last = self.state_from.and_then(|(id, _)| ids.iter().position(|member| *member == id));
        let next = last.map_or(from.0, |last| last as u64 + 1) % ids.len() as u64;
        let source = ids[next as usize];
        self.state_from = Some((source, Instant::now() + STATE_WAIT));
        self.follower.crew().post(source, Letter::Request { from, reply: 0, what: Request::State });
        Ok(())
    }

    fn hear(&mut self, news: News) -> Result<(), JoinError> {
        match news {
            News::Control(control::News::Died(id)) if self.state_from.is_some_and(|(from, _)| from == id) => {
                self.ask_the_next()
            }
            News::Control(control::News::Refused(why)) => {
                self.without_state += 1;
                if self.follower.view().is_none_or(|view| self.without_state >= view.members.len()) {
                    return Err(JoinError::Refused(why));
                }
                self.ask_the_next();
            }
            News::Control(control::News::Waits { members, blocked, present }) => {
                let gathering = Gathering::heard(members, blocked, present);
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let unreached = std::mem::take(&mut seen.unreached);
                *seen = Gathering { unreached, ..gathering.behind(&seen) };
            }
            News::State { view, way } => {
                if let Some((source, _)) = self.state_from.filter(|_| self.wants_state_of(view).is_some()) {
                    match State::open_apart(way) {
                        Ok(opening) => self.opening = Some((view, source, opening)),
                        Err(_) => self.ask_for_another_state(),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The view `id`, if that is the one that is followed, and the state of a member in it is missing.
    fn wants_state_of(&self, id: ViewId) -> Option<&Arc<View>> {
        let view = self.follower.view().filter(|_| self.follower.is_following() && !self.has_state);
        view.filter(|view| view.id == id)
    }

    /// Takes the state over that has begun to come, if one has.
    fn look_for_the_state(&mut self) {
        let Some((id, source, opening)) = &self.opening else { return };
        let (id, source) = (*id, *source);
        let opened = match opening.try_recv() {
            Ok(opened) => opened.ok(),
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => None,
        };
        self.opening = None;
        if self.has_state {
            return;
        }
        let state = opened.filter(|state| {
            // What came between the state and the begin of the observation would be missing.
            state.places.iter().zip(&self.start).all(|(place, start)| place.is_none_or(|place| place >= *start))
        });
        let Some((state, view)) = state.zip(self.wants_state_of(id).map(Arc::clone)) else {
            // The member had not delivered that far, or the view has ended.
            return self.ask_for_another_state();
        };
        self.has_state = true;
        self.queue.put([Item::State { state: Box::new(state), source, view }]);
        self.queue.put(self.early.drain(..));
    }

    fn ask_for_another_state(&mut self) {
        self.state_from = None;
        self.follower.ask_again();
    }
}
