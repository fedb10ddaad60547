//! How a process joins with the state of the group's application, without making the group wait for it.
//!
//! It begins as an observer, which follows the order from outside; then a member hands over its state as it is at that moment; then
//! come the messages since, in order; and only when it has caught up does it ask to be let in. The view in which that is decided
//! it follows to its end, as the members do, and so begins the next one with exactly the state that they have.
//!
//! Two threads: one follows, reads the mail, and writes down what is delivered; the other is the caller's, and restores and applies.
use crate::ViewChange;
use crate::crew::{Crew, News};
use crate::error::JoinError;
use crate::gathering::Gathering;
use crate::state::State;
use spindle_core::{MemberId, Observer, Rank, SubgroupId, View};
use spindle_fabric::ShmReader;
use spindle_fabric::mail::{GroupName, Letter, Mailbox, Request, RuntimeDir};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it asks again.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// How long a member may take until its state begins to come.
const STATE_WAIT: Duration = Duration::from_secs(2);
/// The pause of the thread that follows, when there is nothing to follow.
const PAUSE: Duration = Duration::from_micros(200);
/// Bytes that wait to be applied, at most. A joiner that is slower than the group is lapped.
const QUEUE_BYTES_MAX: u64 = 1 << 30;
/// With fewer messages waiting it has caught up.
const CAUGHT_UP: usize = 1000;

/// What the follower has for the application, in order.
pub(crate) enum Item {
    /// The state begins to come; what was delivered before it is passed over.
    State {
        state: Box<State>,
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
    Admitted(Box<(Crew, u128, View)>),
    Failed(JoinError),
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
        let waited = self.filled.wait_timeout_while(queue, at_most, |queue| queue.0.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        let item = queue.0.pop_front();
        queue.1 -= item.as_ref().map_or(0, Item::bytes);
        if self.restored.load(Ordering::Relaxed) && queue.0.len() < CAUGHT_UP {
            self.caught_up.store(true, Ordering::Release);
        }
        item
    }
}

/// The thread that follows.
pub(crate) struct Follower {
    crew: Option<Crew>,
    me: MemberId,
    digest: u64,
    dir: RuntimeDir,
    group: GroupName,
    queue: Arc<Queue>,
    seen: Arc<Mutex<Gathering>>,
    incarnation: u128,
    /// The view that is followed.
    followed: Option<Followed>,
    /// Views that were told, and whose rows have yet to come.
    told: Option<View>,
    asked: Option<Instant>,
    /// Whom the state was asked for, and when.
    state_from: Option<(MemberId, Instant)>,
    has_state: bool,
    /// What was delivered since the observation began, until the state comes.
    early: Vec<Item>,
    early_bytes: u64,
}

struct Followed {
    observer: Observer,
    /// By subgroup: the first place that was observed.
    start: Vec<u64>,
    rows: ShmReader,
    view: Arc<View>,
}

impl Follower {
    pub(crate) fn new(
        crew: Crew,
        digest: u64,
        dir: RuntimeDir,
        group: GroupName,
        queue: Arc<Queue>,
        seen: Arc<Mutex<Gathering>>,
    ) -> Follower {
        Follower {
            me: crew.me,
            crew: Some(crew),
            digest,
            dir,
            group,
            queue,
            seen,
            incarnation: 0,
            followed: None,
            told: None,
            asked: None,
            state_from: None,
            has_state: false,
            early: Vec::new(),
            early_bytes: 0,
        }
    }

    /// The view that founds the group, if this process is one of those who do.
    fn founded(&mut self) -> Option<Item> {
        let view = self.told.take_if(|view| !self.has_state && view.rank_of(self.me).is_some())?;
        Some(Item::Admitted(Box::new((self.crew.take()?, self.incarnation, view))))
    }

    /// Runs until this process is let in, or can't be.
    pub(crate) fn run(mut self) {
        let last = loop {
            if self.queue.stop.load(Ordering::Acquire) {
                return;
            }
            match self.turn() {
                Ok(None) => {}
                Ok(Some(item)) => break item,
                Err(error) => break Item::Failed(error),
            }
        };
        self.queue.put([last]);
    }

    fn crew(&mut self) -> &mut Crew {
        self.crew.as_mut().expect("it goes with the last item only")
    }

    fn turn(&mut self) -> Result<Option<Item>, JoinError> {
        self.ask()?;
        if !self.crew().is_calm() {
            for news in self.crew().news() {
                self.hear(news)?;
            }
        }
        if self.followed.is_none()
            && let Some(founded) = self.founded()
        {
            return Ok(Some(founded));
        }
        self.begin()?;
        let Some(followed) = &mut self.followed else {
            self.crew().wait(PAUSE * 10);
            return Ok(None);
        };
        let mut got = vec![];
        let any = followed.observer.follow(&followed.rows, |subgroup, sender, round, payload| {
            got.push(Item::Message { subgroup, sender, round, payload: payload.to_vec() });
        })?;
        let at_end = followed.observer.is_at_end(&followed.rows);
        let waiting = if self.has_state && !got.is_empty() {
            self.queue.put(got)
        } else {
            self.early_bytes += got.iter().map(Item::bytes).sum::<u64>();
            self.early.extend(got);
            self.early_bytes
        };
        if waiting > QUEUE_BYTES_MAX {
            return Err(JoinError::TooSlow { bytes: QUEUE_BYTES_MAX });
        }
        if at_end {
            return Ok(self.end());
        }
        if !any {
            self.crew().wait(PAUSE);
        }
        Ok(None)
    }

    /// The followed view has ended.
    fn end(&mut self) -> Option<Item> {
        let followed = self.followed.take()?;
        let next = followed.observer.decision()?.next.clone();
        let change = ViewChange::new(Arc::clone(&followed.view), Arc::new(next.clone()));
        if next.members.is_empty() {
            // The last member has left.
            return Some(Item::Failed(JoinError::GroupGone));
        }
        // Without a state, the observation begins anew.
        self.early.clear();
        if self.has_state {
            self.queue.put([Item::Changed(change)]);
        }
        if next.rank_of(self.me).is_some() {
            let crew = self.crew.take()?;
            return Some(Item::Admitted(Box::new((crew, self.incarnation, next))));
        }
        self.told = Some(next);
        None
    }

    /// Asks for what is missing: the view, its rows, the state, or to be let in.
    fn ask(&mut self) -> Result<(), JoinError> {
        if self.asked.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return Ok(());
        }
        self.asked = Some(Instant::now());
        let members = Mailbox::members(&self.dir, &self.group)?;
        if members.is_empty() {
            return Err(JoinError::GroupGone);
        }
        let digest = self.digest;
        let wants_in = self.has_state && self.queue.caught_up.load(Ordering::Acquire);
        if self.followed.is_none() || wants_in {
            for member in &members {
                self.crew().ask(*member, digest, !wants_in);
            }
        }
        let Some(followed) = &self.followed else { return Ok(()) };
        if self.has_state || self.state_from.is_some_and(|(_, at)| at.elapsed() < STATE_WAIT) {
            return Ok(());
        }
        // The next one, if the last one asked has nothing to give.
        let ids = &followed.view.members;
        let last = self.state_from.and_then(|(id, _)| ids.iter().position(|member| *member == id));
        let source = ids[last.map_or(0, |last| (last + 1) % ids.len())];
        self.state_from = Some((source, Instant::now()));
        let from = self.me;
        self.crew().post(source, Letter::Request { from, reply: 0, what: Request::State });
        Ok(())
    }

    fn hear(&mut self, news: News) -> Result<(), JoinError> {
        match news {
            News::Refused(why) => return Err(JoinError::Refused(why)),
            News::Waits(gathering) => *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = gathering,
            News::View { incarnation, view } => {
                if self.incarnation == 0 {
                    self.incarnation = incarnation;
                    self.crew().set_incarnation(incarnation);
                }
                if incarnation != self.incarnation {
                    // All of the group that was followed are dead, and another has been founded. What was learned is not its state.
                    return Err(JoinError::GroupGone);
                }
                // Only where to begin: from then on each view says which is the next.
                if self.followed.is_some() || self.told.as_ref().is_some_and(|told| told.id >= view.id) {
                    return Ok(());
                }
                let Some(told) = self.told.as_ref().filter(|_| self.has_state) else {
                    // The members hand out the memory of their newest view only.
                    self.told = Some(view);
                    return Ok(());
                };
                let (id, members) = (told.id, told.members.clone());
                if !members.iter().all(|member| self.crew().has_parts(id, *member)) {
                    return Err(JoinError::Source(std::io::Error::other("the group has passed over a view meanwhile")));
                }
            }
            News::State { view, pipe } => {
                let Some(followed) = self.followed.as_ref().filter(|_| !self.has_state) else { return Ok(()) };
                let state = State::open(pipe).ok().filter(|state| {
                    // What came between the state and the begin of the observation would be missing.
                    let places = state.places.iter().zip(&followed.start);
                    followed.view.id == view
                        && places.into_iter().all(|(place, start)| place.is_none_or(|place| place >= *start))
                });
                match state {
                    Some(state) => {
                        self.has_state = true;
                        let view = Arc::clone(&followed.view);
                        self.queue.put([Item::State { state: Box::new(state), view }]);
                        self.queue.put(self.early.drain(..));
                    }
                    // The member had not delivered that far. It is asked again.
                    None => (self.state_from, self.asked) = (None, None),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins to follow the view that was told, once the rows of all its members are here.
    fn begin(&mut self) -> Result<(), JoinError> {
        if self.followed.is_some() {
            return Ok(());
        }
        let Some(view) = self.told.take_if(|view| self.has_state || view.rank_of(self.me).is_none()) else {
            return Ok(());
        };
        let crew = self.crew.as_mut().expect("it goes with the last item only");
        let missing: Vec<MemberId> =
            view.members.iter().copied().filter(|id| !crew.has_parts(view.id, *id) && !crew.is_dead(*id)).collect();
        if !missing.is_empty() {
            crew.look_for(&missing);
            self.told = Some(view);
            return Ok(());
        }
        if !view.members.iter().all(|id| crew.has_parts(view.id, *id)) {
            // Somebody died before its memory came here. The members have it, and may deliver messages from it; taken for a row
            // of zeros, it would have sent none.
            if self.has_state {
                return Err(JoinError::Source(std::io::Error::other("a member died before it could be followed")));
            }
            // The next view is without it.
            return Ok(());
        }
        let layout = spindle_core::Layout::new(&view)?;
        let parts = view.members.iter().map(|id| crew.take_parts(view.id, *id)).collect();
        let rows = ShmReader::of_others(&layout, parts)?;
        let observer =
            if self.has_state { Observer::at_start(view.clone())? } else { Observer::new(view.clone(), &rows)? };
        self.state_from = None;
        let start = (0..view.subgroups.len() as u32).map(|id| observer.place(SubgroupId(id))).collect();
        self.followed = Some(Followed { observer, start, rows, view: Arc::new(view) });
        Ok(())
    }
}
