//! Watches: values of the object that are compared after each command, on the polling thread.
use crate::error::End;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The changes that wait to be taken. One more replaces the oldest.
const CHANGES_MAX: usize = 1024;

/// The changes of a value of the object. See [`Replicated::watch`](crate::Replicated::watch).
#[derive(Debug)]
pub struct Watch<R>(Arc<Changes<R>>);

/// A change of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Changed<R> {
    /// The value after a command.
    pub value: R,
    /// The number of changes before it that were not taken in time: 0, unless more than 1024 waited.
    pub missed: u64,
}

#[derive(Debug)]
struct Changes<R> {
    queue: Mutex<Queue<R>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue<R> {
    values: VecDeque<R>,
    missed: u64,
    end: Option<End>,
}

impl<R> Changes<R> {
    fn lock(&self) -> MutexGuard<'_, Queue<R>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch at the polling thread.
trait Watcher<T>: Send {
    /// Compares the value with the last one. Returns false if no more changes are wanted.
    fn look(&mut self, object: &T) -> bool;
    fn end(&self, end: &End);
}

struct Watching<R, F> {
    changes: Weak<Changes<R>>,
    select: F,
    last: R,
}

impl<T, R: PartialEq + Clone + Send, F: Fn(&T) -> R + Send> Watcher<T> for Watching<R, F> {
    fn look(&mut self, object: &T) -> bool {
        let Some(changes) = self.changes.upgrade() else { return false };
        let Ok(value) = catch_unwind(AssertUnwindSafe(|| (self.select)(object))) else {
            tracing::error!(target: "spindle::object", "the function of a watch has panicked, and the watch shows no more changes");
            return false;
        };
        if value != self.last {
            self.last = value.clone();
            let mut queue = changes.lock();
            if queue.values.len() >= CHANGES_MAX {
                queue.values.pop_front();
                queue.missed += 1;
            }
            queue.values.push_back(value);
            changes.changed.notify_one();
        }
        true
    }

    fn end(&self, end: &End) {
        if let Some(changes) = self.changes.upgrade() {
            changes.lock().end.get_or_insert_with(|| end.clone());
            changes.changed.notify_one();
        }
    }
}

/// All watches of this process.
pub(crate) struct Watches<T> {
    /// So that a command costs nothing if there are none.
    has_some: AtomicBool,
    watchers: Mutex<Vec<Box<dyn Watcher<T>>>>,
}

impl<T> Default for Watches<T> {
    fn default() -> Watches<T> {
        Watches { has_some: AtomicBool::new(false), watchers: Mutex::default() }
    }
}

impl<T> std::fmt::Debug for Watches<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

impl<T> Watches<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<Box<dyn Watcher<T>>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a watch, while no command runs.
    pub(crate) fn add<R: PartialEq + Clone + Send + 'static>(
        &self,
        object: &T,
        select: impl Fn(&T) -> R + Send + 'static,
    ) -> Watch<R>
    where
        T: 'static,
    {
        let queue = Mutex::new(Queue { values: VecDeque::new(), missed: 0, end: None });
        let changes = Arc::new(Changes { queue, changed: Condvar::new() });
        let last = select(object);
        let mut watchers = self.lock();
        watchers.push(Box::new(Watching { changes: Arc::downgrade(&changes), select, last }));
        self.has_some.store(true, Ordering::Release);
        Watch(changes)
    }

    /// Whether there may be some. A watch that begins during a command has seen its result.
    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Looks at the object after a command.
    pub(crate) fn look(&self, object: &T) {
        let mut watchers = self.lock();
        watchers.retain_mut(|watcher| watcher.look(object));
        self.has_some.store(!watchers.is_empty(), Ordering::Release);
    }

    pub(crate) fn end(&self, end: &End) {
        std::mem::take(&mut *self.lock()).iter().for_each(|watcher| watcher.end(end));
    }
}

impl<R> Watch<R> {
    /// Returns the next change, or `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// How this member's part in the group ended, after the last change.
    pub fn next(&self, timeout: Duration) -> Result<Option<Changed<R>>, End> {
        let start = Instant::now();
        let mut queue = self.0.lock();
        loop {
            if let Some(value) = queue.values.pop_front() {
                return Ok(Some(Changed { value, missed: std::mem::take(&mut queue.missed) }));
            }
            if let Some(end) = &queue.end {
                return Err(end.clone());
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            queue = self.0.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
