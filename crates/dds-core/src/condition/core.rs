//! The part that all conditions share: an identity, a trigger, and the wait sets to signal.
use super::sync::{AtomicBool, Mutex, Ordering, lock};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

/// The identities given out. It orders nothing, so loom need not see it.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Says whether a condition is true.
pub(super) trait Trigger: Send + Sync {
    fn is_triggered(&self) -> bool;
}

/// A wait set, as a condition sees it.
pub(super) trait Waiter: Send + Sync {
    /// Marks a condition, and wakes the waiting thread.
    fn signal(&self, condition: u64);

    /// Removes a condition that was deleted.
    fn forget(&self, condition: u64);
}

/// A condition of any kind (DDS 2.2.2.1.7). Two handles are equal if they are of one condition.
#[derive(Clone)]
pub struct Condition(Arc<Core>);

struct Core {
    id: u64,
    trigger: Arc<dyn Trigger>,
    /// The wait sets to which the condition is attached, replaced as a whole at each change.
    waiters: Mutex<Arc<[Weak<dyn Waiter>]>>,
    deleted: AtomicBool,
}

impl Condition {
    pub(super) fn new(trigger: Arc<dyn Trigger>) -> Condition {
        let waiters = Mutex::new(Arc::from([]));
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Condition(Arc::new(Core { id, trigger, waiters, deleted: AtomicBool::new(false) }))
    }

    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns whether the condition is true now: `get_trigger_value`. A deleted one never is.
    pub fn trigger_value(&self) -> bool {
        !self.is_deleted() && self.0.trigger.is_triggered()
    }

    /// Returns whether the condition was deleted.
    pub fn is_deleted(&self) -> bool {
        // Acquire: pairs with `delete`.
        self.0.deleted.load(Ordering::Acquire)
    }

    /// Marks the condition in its wait sets: it may have become true.
    pub(super) fn signal(&self) {
        let waiters = lock(&self.0.waiters).clone();
        waiters.iter().filter_map(Weak::upgrade).for_each(|waiter| waiter.signal(self.0.id));
    }

    /// Deletes the condition. Its wait sets lose it, also while a thread waits.
    pub(super) fn delete(&self) {
        // Release: pairs with `is_deleted`.
        self.0.deleted.store(true, Ordering::Release);
        let waiters = std::mem::replace(&mut *lock(&self.0.waiters), Arc::from([]));
        waiters.iter().filter_map(Weak::upgrade).for_each(|waiter| waiter.forget(self.0.id));
    }

    /// Adds a wait set, once.
    pub(super) fn add_waiter(&self, waiter: Weak<dyn Waiter>) {
        let mut waiters = lock(&self.0.waiters);
        let others = waiters.iter().filter(|own| own.strong_count() > 0 && !own.ptr_eq(&waiter)).cloned();
        *waiters = others.chain([waiter.clone()]).collect();
    }

    /// Removes a wait set.
    pub(super) fn remove_waiter(&self, waiter: &Weak<dyn Waiter>) {
        let mut waiters = lock(&self.0.waiters);
        *waiters = waiters.iter().filter(|own| own.strong_count() > 0 && !own.ptr_eq(waiter)).cloned().collect();
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Condition {}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({})", self.0.id)
    }
}
