//! The cache of a reader: which samples it holds, and what `read` and `take` return.
//!
//! [`ReaderCache`] takes the events of an ordered stream ([`ReaderEvent`]) and the time, and answers with
//! [`Effects`]. [`Select`] says which samples are read or taken. [`GroupCaches`] holds the caches of a
//! subscriber at GROUP scope. No operation waits.
//!
//! - State, ownership and coherent sets are functions of the stream, so they are the same at all readers.
//!   The local clock decides about LIFESPAN, TIME_BASED_FILTER, DEADLINE and purge delays only.
//! - A sample that announces a change of state counts against no limit. An instance has at most one.
//! - RESOURCE_LIMITS count the samples in the cache, and those that the application holds by a loan. A
//!   payload is cloned, so its memory lasts as long as a clone of it.
//! - An instance is removed when no writer, sample or loan refers to it.
//! - Registrations and ownership of an instance are kept before the application knows it: its samples may
//!   be filtered out or rejected, or no one has been written.
#[allow(clippy::module_inception)]
mod cache;
mod deliver;
mod departed;
mod effects;
mod event;
mod group;
mod history;
mod indices;
mod late;
mod loans;
mod rules;
mod select;
mod sets;
mod settings;
mod snapshot;
mod timers;

pub use cache::{InstanceInfo, ReaderCache};
pub use effects::{CacheCounters, Effects, MissedDeadline, RejectedReason, WriterLiveness};
pub use event::{
    CacheChange, ChangeKind, DeadlineVerdict, HistorySample, InstanceHistory, InstanceWriter, KeyReader, ReaderEvent,
    SetEnd, SetId, WriterEnd, WriterInfo,
};
pub use group::GroupCaches;
pub use loans::{LoanId, Selection};
pub use select::{Scope, Select};
pub use snapshot::SnapshotError;
