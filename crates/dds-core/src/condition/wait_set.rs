//! A set of conditions for which a thread or a task waits.
use super::core::{Condition, Waiter};
use super::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::error::DdsError;
use crate::time::DdsDuration;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// How often a task evaluates conditions that turn out to be false before it lets others run.
const ROUNDS_MAX: usize = 8;

/// A set of conditions for which a thread or a task waits (DDS 2.2.2.1.6). Clones are the same set.
#[derive(Clone)]
pub struct WaitSet(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    marked: Condvar,
}

#[derive(Default)]
struct State {
    attached: BTreeMap<u64, Condition>,
    /// The conditions that may be true. One that was true when it was evaluated stays here.
    marks: BTreeSet<u64>,
    is_waiting: bool,
    waker: Option<Waker>,
    closed: bool,
}

impl Default for WaitSet {
    fn default() -> WaitSet {
        WaitSet(Arc::new(Shared { state: Mutex::new(State::default()), marked: Condvar::new() }))
    }
}

impl Waiter for Shared {
    fn signal(&self, condition: u64) {
        let mut state = lock(&self.state);
        if state.attached.contains_key(&condition) && state.marks.insert(condition) {
            self.wake(state);
        }
    }

    fn forget(&self, condition: u64) {
        let mut state = lock(&self.state);
        let removed = state.attached.remove(&condition);
        state.marks.remove(&condition);
        drop(state);
        // The last reference to a condition may run code of the application.
        drop(removed);
    }
}

impl Shared {
    /// Wakes the thread or the task that waits. The lock is released before.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        self.marked.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Begins a wait.
    fn begin(&self) -> Result<(), DdsError> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(DdsError::AlreadyDeleted("wait set"));
        }
        if state.is_waiting {
            let what = "another thread waits on this wait set".to_owned();
            return Err(DdsError::PreconditionNotMet { what, remedy: "use a wait set for each thread" });
        }
        state.is_waiting = true;
        Ok(())
    }

    /// Evaluates the conditions that are marked. A condition that is true keeps its mark.
    fn evaluate(&self) -> Vec<Condition> {
        let mut state = lock(&self.state);
        let marks = std::mem::take(&mut state.marks);
        let marked: Vec<Condition> = marks.iter().filter_map(|id| state.attached.get(id)).cloned().collect();
        drop(state);
        let mut active: Vec<Condition> = marked.into_iter().filter(Condition::trigger_value).collect();
        let mut state = lock(&self.state);
        // A condition may have been detached in the meantime.
        active.retain(|condition| state.attached.contains_key(&condition.id()));
        state.marks.extend(active.iter().map(Condition::id));
        active
    }
}

/// A wait that has begun. It ends when it is dropped, also by a panic of a condition.
struct Waiting(Arc<Shared>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        (state.is_waiting, state.waker) = (false, None);
    }
}

impl WaitSet {
    /// Makes an empty set.
    pub fn new() -> WaitSet {
        WaitSet::default()
    }

    fn waiter(&self) -> Weak<dyn Waiter> {
        let shared: Arc<dyn Waiter> = self.0.clone();
        Arc::downgrade(&shared)
    }

    /// Adds a condition: `attach_condition`. A condition that is attached already stays. If a thread waits
    /// and the condition is true, the thread is woken.
    ///
    /// # Errors
    /// `AlreadyDeleted` if the condition was deleted, or the set closed.
    pub fn attach(&self, condition: &Condition) -> Result<(), DdsError> {
        let mut state = lock(&self.0.state);
        if state.closed {
            return Err(DdsError::AlreadyDeleted("wait set"));
        }
        state.attached.insert(condition.id(), condition.clone());
        drop(state);
        condition.add_waiter(self.waiter());
        if condition.is_deleted() {
            // It was deleted before it knew of this set.
            self.0.forget(condition.id());
            return Err(DdsError::AlreadyDeleted("condition"));
        }
        self.0.signal(condition.id());
        Ok(())
    }

    /// Removes a condition: `detach_condition`.
    ///
    /// # Errors
    /// `PreconditionNotMet` if it is not attached.
    pub fn detach(&self, condition: &Condition) -> Result<(), DdsError> {
        condition.remove_waiter(&self.waiter());
        let mut state = lock(&self.0.state);
        state.marks.remove(&condition.id());
        let removed = state.attached.remove(&condition.id());
        drop(state);
        if removed.is_none() {
            let what = format!("{condition:?} is not attached");
            return Err(DdsError::PreconditionNotMet { what, remedy: "attach it first" });
        }
        Ok(())
    }

    /// Returns the conditions that are attached: `get_conditions`.
    pub fn conditions(&self) -> Vec<Condition> {
        lock(&self.0.state).attached.values().cloned().collect()
    }

    /// Waits until a condition is true, and returns all that are. It blocks the thread.
    ///
    /// # Errors
    /// `Timeout`, `PreconditionNotMet` if another thread or task waits, `AlreadyDeleted` if the set is
    /// closed.
    pub fn wait(&self, timeout: DdsDuration) -> Result<Vec<Condition>, DdsError> {
        self.0.begin()?;
        let waiting = Waiting(self.0.clone());
        let shared = &waiting.0;
        let deadline = timeout.to_std().and_then(|timeout| now().checked_add(timeout));
        loop {
            let active = shared.evaluate();
            if !active.is_empty() {
                return Ok(active);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let state = lock(&shared.state);
            if state.closed {
                return Err(DdsError::AlreadyDeleted("wait set"));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Err(DdsError::Timeout { what: "a wait for conditions", after: timeout });
            }
            if !state.marks.is_empty() {
                continue;
            }
            // A signal sets a mark under the lock, so none can come between the look and the sleep.
            match left {
                None => drop(shared.marked.wait(state).unwrap_or_else(PoisonError::into_inner)),
                Some(left) => drop(shared.marked.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner)),
            }
        }
    }

    /// Waits until a condition is true, without blocking the thread. The caller bounds the wait with its
    /// runtime.
    pub fn wait_async(&self) -> WaitAsync {
        WaitAsync { shared: self.0.clone(), waiting: None }
    }

    /// Closes the set for good: the thread that waits, and all later calls, get `AlreadyDeleted`.
    pub fn close(&self) {
        let mut state = lock(&self.0.state);
        state.closed = true;
        state.marks.clear();
        let attached = std::mem::take(&mut state.attached);
        self.0.wake(state);
        attached.values().for_each(|condition| condition.remove_waiter(&self.waiter()));
    }
}

#[expect(clippy::disallowed_methods, reason = "the timeout of a blocking wait is the only use of a clock")]
fn now() -> Instant {
    Instant::now()
}

impl fmt::Debug for WaitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitSet").field("conditions", &self.conditions()).finish()
    }
}

/// A wait of a task: [`WaitSet::wait_async`]. Its errors are those of [`WaitSet::wait`], without `Timeout`.
#[must_use = "a future does nothing unless it is polled"]
pub struct WaitAsync {
    shared: Arc<Shared>,
    waiting: Option<Waiting>,
}

impl Future for WaitAsync {
    type Output = Result<Vec<Condition>, DdsError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared.clone();
        if self.waiting.is_none() {
            if let Err(error) = shared.begin() {
                return Poll::Ready(Err(error));
            }
            self.waiting = Some(Waiting(shared.clone()));
        }
        for _ in 0..ROUNDS_MAX {
            let active = shared.evaluate();
            if !active.is_empty() {
                self.waiting = None;
                return Poll::Ready(Ok(active));
            }
            let mut state = lock(&shared.state);
            if state.closed {
                drop(state);
                self.waiting = None;
                return Poll::Ready(Err(DdsError::AlreadyDeleted("wait set")));
            }
            if state.marks.is_empty() {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl fmt::Debug for WaitAsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitAsync").field("begun", &self.waiting.is_some()).finish()
    }
}
