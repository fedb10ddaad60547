//! Conditions and wait sets (DDS 2.2.4.4, 2.2.2.1.6 to 2.2.2.1.9).
//!
//! A [`WaitSet`] blocks a thread, or suspends a task of any runtime, until one of its conditions is true.
//! All types may be used by many threads.
//!
//! - **No wake-up is lost.** A condition that may have become true marks itself in each wait set, under
//!   the lock of the wait set. The waiting thread takes the marks, evaluates these conditions without a
//!   lock, and sleeps only if there is no new mark.
//! - **No condition starves.** A wait returns all conditions that are true.
//! - **A wait costs what has changed.** Conditions without a mark are not evaluated.
//! - **Locks have an order**: those of the application and of a reader before that of a wait set. No
//!   condition is evaluated under the lock of a wait set.
mod core;
mod guard;
mod read;
mod status;
mod sync;
mod wait_set;

pub use self::core::Condition;
pub use guard::GuardCondition;
pub use read::{GroupSource, QueryCondition, ReadCondition, ReadConditions, SampleSource};
pub use status::StatusCondition;
pub use wait_set::{WaitAsync, WaitSet};
