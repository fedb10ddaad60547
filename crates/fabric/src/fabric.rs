//! What the engine and the library need of a transport, beyond the [`Table`] that the core reads and writes.
use crate::bell::Doorbell;
use crate::publisher::Publisher;
use spindle_core::{Claims, Rank, Rows, Table};
use std::sync::Arc;
use std::time::Duration;

/// One member's side of a transport, for one view: the table, and a way to sleep until something happens.
///
/// It belongs to the thread that runs the engine. Other threads get a [`reader`](Self::reader), a
/// [`doorbell`](Self::doorbell), or a [`publisher`](Self::publisher).
///
/// To sleep: [`begin_sleep`](Self::begin_sleep), poll everything once more, then [`sleep`](Self::sleep) if there was nothing
/// or [`end_sleep`](Self::end_sleep) if there was. What peers post, unless they do so [quietly](Table::post_quietly), and what applications
/// commit ends a sleep. To poll is to call [`progress`](Self::progress) and then the engine.
pub trait Fabric: Table {
    /// Read access to all rows for other threads; it keeps the memory alive.
    type Reader: Rows + Clone + Send + Sync + 'static;

    /// My rank in the view.
    fn me(&self) -> Rank;

    /// Members of the view.
    fn members(&self) -> u32;

    /// A reader for another thread.
    fn reader(&self) -> Self::Reader;

    /// What wakes this member's engine, for threads that have work for it.
    fn doorbell(&self) -> Doorbell;

    /// Does what a transport that needs the processor has to do for memory to move: sends on what was posted and waits to be sent,
    /// and takes in what has arrived. To be called before every look at the rows. It waits for nothing. Says whether anything moved.
    fn progress(&mut self) -> bool {
        false
    }

    /// Whether everything that I posted has been handed to the system, or is for peers that are gone. Until then it takes further calls
    /// of [`progress`](Self::progress).
    fn is_flushed(&self) -> bool {
        true
    }

    /// Announces that I am about to sleep, if that does not stand yet. The caller polls everything once more after it.
    fn begin_sleep(&mut self);

    /// Sleeps until rung, or `at_most` that long. Says whether it was rung. If it was, that withdraws the announcement; if not, it stands, and
    /// a caller that finds work after all withdraws it. It may return early for no reason. Without an announcement that stands it returns at once, as if it was rung:
    /// what has withdrawn it is to be looked at.
    fn sleep(&mut self, at_most: Duration) -> bool;

    /// Withdraws the announcement, if there is one: a poll found work, and peers need not ring while there is more.
    fn end_sleep(&mut self);

    /// The way to put messages into the ring that `claims` are on.
    ///
    /// # Panics
    /// If the ring is not one of my row's, or if a publisher for it was made before: two would be given the same memory.
    fn publisher(&self, claims: Arc<Claims>) -> Publisher;
}
