//! The part of a transport that the engine and the library need beyond the [`Table`] that the core
//! reads and writes.
use crate::event_count::Doorbell;
use crate::publisher::Publisher;
use spindle_core::{Claims, Rank, Rows, Table};
use std::sync::Arc;
use std::time::Duration;

/// One member's side of a transport, for one view: the table, and a way to sleep until something
/// happens.
///
/// It belongs to the thread that runs the engine. Other threads get a [`reader`](Self::reader), a
/// [`doorbell`](Self::doorbell), or a [`publisher`](Self::publisher).
///
/// To sleep, call [`begin_sleep`](Self::begin_sleep) and poll everything once more. Then call
/// [`sleep`](Self::sleep) if the poll found nothing, or [`end_sleep`](Self::end_sleep) if it found
/// work. A sleep ends when a peer posts, unless it posts [quietly](Table::post_quietly), and when
/// an application commits. To poll is to call [`progress`](Self::progress) and then the engine.
pub trait Fabric: Table {
    /// Read access to all rows for other threads; it keeps the memory alive.
    type Reader: Rows + Clone + Send + Sync + 'static;

    /// Returns my rank in the view.
    fn me(&self) -> Rank;

    /// Returns the number of members of the view.
    fn members(&self) -> u32;

    /// Returns a reader for another thread.
    fn reader(&self) -> Self::Reader;

    /// Returns the handle that wakes this member's engine, for threads that have work for it.
    fn doorbell(&self) -> Doorbell;

    /// Moves memory, in a transport that needs the processor for that: sends posted data that is
    /// still unsent, and takes in arrived data. Returns true if anything moved.
    ///
    /// The caller calls it before every look at the rows. It never blocks.
    fn progress(&mut self) -> bool {
        false
    }

    /// Returns true once everything that I posted has been handed to the system, or is for peers
    /// that are gone. Until then the caller has to keep calling [`progress`](Self::progress).
    fn is_flushed(&self) -> bool {
        true
    }

    /// Announces that I am about to sleep, unless an announcement is in force already. The caller
    /// then polls everything once more.
    fn begin_sleep(&mut self);

    /// Sleeps until rung, or for at most `at_most`. Returns true if it was rung.
    ///
    /// If it was rung, the announcement is withdrawn. If not, the announcement stays in force, and
    /// a caller that finds work after all withdraws it. It may return early for no reason. If no
    /// announcement is in force, it returns true at once, because the caller has to look at the
    /// work whose ring withdrew the announcement.
    fn sleep(&mut self, at_most: Duration) -> bool;

    /// Withdraws the announcement, if there is one: a poll found work, and peers need not ring
    /// while there is more.
    fn end_sleep(&mut self);

    /// Returns the publisher that puts messages into the ring that `claims` are on.
    ///
    /// # Panics
    /// If the ring is not one of my row's, or if a publisher for it was made before: two would be
    /// given the same memory.
    fn publisher(&self, claims: Arc<Claims>) -> Publisher;
}
