//! How a process joins with the state of the group's application, without making the group wait for it.
//!
//! It begins as an observer, which follows the order from outside; then a member hands over its state as it is at that moment; then
//! come the messages since, in order; and only when it has caught up does it ask to be let in. The view in which that is decided
//! it follows to its end, as the members do, and so begins the next one with exactly the state that they have.
//!
//! The core's [`Learn`] decides which member is asked and when to ask to be let in. Two threads: one [follows](Follower), reads the mail, and writes down what is delivered; the other is the caller's, and restores and
//! applies.
use crate::ViewChange;
use crate::crew::{Crew, News};
use crate::error::JoinError;
use crate::following::Follower;
use crate::gathering::Gathering;
use crate::node::{First, Spare, Terms};
use crate::state::State;
use spindle_core::control::{self, Learn, LearnError, Roster, ViewStart};
use spindle_core::{Engine, MemberId, Rank, SubgroupId, Time, View, ViewId};
use spindle_fabric::{Arena, Peer};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
        let waited = self.filled.wait_timeout_while(queue, at_most, |queue| queue.0.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        let item = queue.0.pop_front();
        queue.1 -= item.as_ref().map_or(0, Item::bytes);
        self.is_idle.store(item.is_none(), Ordering::Relaxed);
        item
    }

    /// How many items wait to be applied to the state, once that is restored.
    fn waiting(&self) -> Option<usize> {
        self.restored.load(Ordering::Acquire).then(|| self.lock().0.len())
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
    learn: Learn,
    arena: Arena,
    terms: Terms,
    queue: Arc<Queue>,
    seen: Arc<Mutex<Gathering>>,
    /// A state that is about to come, of which view and whose it is.
    opening: Option<(ViewId, MemberId, Receiver<io::Result<State>>)>,
    /// For the view that lets only this process in.
    spare: Option<Spare>,
    had_spare: bool,
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
        (arena, terms): (Arena, Terms),
        failed: Option<MemberId>,
        queue: Arc<Queue>,
        seen: Arc<Mutex<Gathering>>,
    ) -> Learner {
        let learn = Learn::new(failed, follower.now());
        let (opening, spare, had_spare, early, early_bytes) = Default::default();
        let busy = Instant::now();
        Learner { follower, learn, arena, terms, queue, seen, opening, spare, had_spare, early, early_bytes, busy }
    }

    /// Lets the control plane act now.
    fn act<R>(&mut self, act: impl FnOnce(&mut Learn, &mut control::Follow, &mut Roster<Peer>, Time) -> R) -> R {
        let learn = &mut self.learn;
        self.follower.act(|follow, roster, now| act(learn, follow, roster, now))
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
        let mut first = First::new(engine, &known, &mut crew, self.arena, self.terms.suspect_after, self.spare)?;
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
        for news in self.follower.news_by(&mut self.learn)? {
            self.hear(news);
        }
        self.look_for_the_state();
        if self.learn.has_asked() && !std::mem::replace(&mut self.had_spare, true) {
            self.spare = self.follower.view().and_then(|view| {
                let me = self.follower.me();
                Spare::new(view, &[me], me, &mut self.arena)
            });
        }
        if let Some(view) = self.act(|learn, follow, roster, _| learn.founded(follow, roster)) {
            return Ok(Some(Entrance { view, known: vec![] }));
        }
        if self.follower.is_cut_off() {
            return Err(LearnError::CutOff.into());
        }
        self.act(|learn, follow, roster, now| learn.check(follow, roster, now))?;
        if let Some(start) = self.follower.begin()? {
            self.begin(start)?;
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
        let longest = if self.learn.has_asked() { PAUSE_MAX } else { PAUSE_LEARNING };
        self.follower.wait((self.busy.elapsed() / PAUSE_PART).clamp(PAUSE_MIN, longest));
    }

    /// How many messages may come at once without that one is lost.
    fn smallest_window(&self) -> u64 {
        let subgroups = self.follower.view().into_iter().flat_map(|view| &view.subgroups);
        subgroups.map(|spec| spec.window).min().unwrap_or(0)
    }

    fn begin(&mut self, start: ViewStart) -> Result<(), JoinError> {
        (self.spare, self.had_spare) = (None, false);
        self.busy = Instant::now();
        let places = self.follower.places();
        if self.act(|learn, follow, _, now| learn.begin(start, places, follow, now))? {
            self.early.clear();
            self.early_bytes = 0;
        }
        Ok(())
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
        let waiting = if self.learn.has_state() {
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
        let is_in = self.act(|learn, _, roster, _| learn.end(&next, roster))?;
        if self.learn.has_state() {
            self.queue.put([Item::Changed(change)]);
        }
        if !is_in {
            return Ok(None);
        }
        let known = self.follower.known_in(&next)?;
        Ok(Some(Entrance { view: View::clone(&next), known }))
    }

    /// Asks for what is missing: the view, its rows, the state, or to be let in.
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
        if let Some(book) = self.follower.crew().book() {
            let unreached = book.seeds().unreached();
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).unreached = unreached;
        }
        Ok(())
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Control(control::News::Waits { members, blocked, present }) => {
                let gathering = Gathering::heard(members, blocked, present);
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let unreached = std::mem::take(&mut seen.unreached);
                *seen = Gathering { unreached, ..gathering.behind(&seen) };
            }
            News::State { view, from, way } => {
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
        let Some(state) = opened else {
            return self.act(|learn, follow, _, now| learn.state_failed(follow, now));
        };
        let view = self.act(|learn, follow, _, now| learn.state_opened(id, &state.places, follow, now));
        if let Some(view) = view {
            self.queue.put([Item::State { state: Box::new(state), source, view }]);
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
