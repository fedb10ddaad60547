//! The condition of an entity's statuses.
use super::core::{Condition, Trigger};
use super::sync::{AtomicU32, Ordering};
use crate::status::StatusMask;
use std::sync::Arc;

/// The condition that an enabled status of an entity has changed (DDS 2.2.2.1.9).
#[derive(Clone, Debug)]
pub struct StatusCondition {
    condition: Condition,
    masks: Arc<Masks>,
}

#[derive(Debug)]
struct Masks {
    enabled: AtomicU32,
    changed: AtomicU32,
}

impl Trigger for Masks {
    fn is_triggered(&self) -> bool {
        // Acquire: pairs with the stores below.
        self.enabled.load(Ordering::Acquire) & self.changed.load(Ordering::Acquire) != 0
    }
}

impl Default for StatusCondition {
    /// All statuses are enabled.
    fn default() -> StatusCondition {
        let (enabled, changed) = (AtomicU32::new(StatusMask::ANY.bits()), AtomicU32::new(0));
        let masks = Arc::new(Masks { enabled, changed });
        StatusCondition { condition: Condition::new(masks.clone()), masks }
    }
}

impl StatusCondition {
    /// Returns the statuses that are enabled: `get_enabled_statuses`.
    pub fn enabled_statuses(&self) -> StatusMask {
        StatusMask::from_bits(self.masks.enabled.load(Ordering::Acquire))
    }

    /// Enables statuses, and disables all others: `set_enabled_statuses`.
    pub fn set_enabled_statuses(&self, enabled: StatusMask) {
        self.masks.enabled.store(enabled.bits(), Ordering::Release);
        self.signal();
    }

    /// Takes over the statuses of the entity that have changed: `get_status_changes`. The entity calls it
    /// under its own lock, after each change and each reset.
    pub fn set_changes(&self, changed: StatusMask) {
        self.store_changes(changed);
        self.signal();
    }

    /// As [`StatusCondition::set_changes`], and wakes no thread yet: [`StatusCondition::signal`] does, without the locks
    /// of the entity. A task that is woken may take them.
    pub fn store_changes(&self, changed: StatusMask) {
        self.masks.changed.store(changed.bits(), Ordering::Release);
    }

    /// Wakes the threads and tasks that wait for the condition, if it is true.
    pub fn signal(&self) {
        if self.masks.is_triggered() {
            self.condition.signal();
        }
    }

    /// Returns the condition, to attach it.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Deletes the condition with its entity. Its wait sets lose it.
    pub fn delete(&self) {
        self.condition.delete();
    }
}
