//! A condition that the application sets.
use super::core::{Condition, Trigger};
use super::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// A condition that the application sets (DDS 2.2.2.1.8). Clones are the same condition.
#[derive(Clone, Debug)]
pub struct GuardCondition {
    condition: Condition,
    flag: Arc<Flag>,
}

#[derive(Debug)]
struct Flag(AtomicBool);

impl Trigger for Flag {
    fn is_triggered(&self) -> bool {
        // Acquire: pairs with `set_trigger_value`.
        self.0.load(Ordering::Acquire)
    }
}

impl Default for GuardCondition {
    fn default() -> GuardCondition {
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        GuardCondition { condition: Condition::new(flag.clone()), flag }
    }
}

impl GuardCondition {
    /// Makes a condition that is false.
    pub fn new() -> GuardCondition {
        GuardCondition::default()
    }

    /// Sets the condition: `set_trigger_value`.
    pub fn set_trigger_value(&self, value: bool) {
        // Release: data that the application wrote before is visible to the thread that is woken.
        self.flag.0.store(value, Ordering::Release);
        if value {
            self.condition.signal();
        }
    }

    /// Returns the condition, to attach it.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Deletes the condition. Its wait sets lose it.
    pub fn delete(&self) {
        self.condition.delete();
    }
}
