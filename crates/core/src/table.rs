//! The memory that members share, as the protocol sees it: the shared state table (SST) of the Derecho papers.
//!
//! Every member owns one row and alone writes it; it reads its own copy of everybody else's. A fabric supplies the
//! memory and keeps this contract, which is that of RDMA reliable connections:
//!
//! - ranges that one member posts to one peer become visible there in the order in which they were posted; inside one
//!   range no order is promised;
//! - an aligned 8-byte word, and an aligned 64-byte line, is never seen torn;
//! - a post carries what its range held when `post` was called: never less, and nothing that was stored after (a word that
//!   announces data must not overtake the post of that data). Announced frames don't change, so only the control block
//!   needs copying;
//! - posts to different peers are independent. A post of control words may be left out when a later one to that peer, not
//!   yet sent, covers it and every post of control words between the two: the peer sees only the newer values, which is
//!   harmless because every word of a row is monotonic (INV-MONOTONE). It must not be left out across a post of control
//!   words that stays, which may be one that speaks about it (`FINISHED` says that no more is announced).
//!
//! On shared memory a store is a post, seen at once. Engines therefore store in posting order, and nothing relies on a
//! value being unseen until it is posted.
use crate::ids::Rank;
use core::ops::Range;

/// Reading the table: my own row and my copies of the others'. Offsets are bytes from the start of a row.
pub trait Rows {
    /// The aligned 8-byte word at `at` in my copy of `member`'s row, with acquire order: whatever its owner stored before
    /// it is visible after it.
    ///
    /// # Panics
    /// If `member` is not of this view, or `at` is unaligned or outside the row.
    fn load(&self, member: Rank, at: u64) -> u64;

    /// `len` bytes at `at` in my copy of `member`'s row. The caller knows from counters it has loaded that the owner does
    /// not write them as long as the slice lives (INV-FRAME).
    ///
    /// # Panics
    /// If `member` is not of this view or the range is outside the row.
    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8];
}

/// Writing the table: my own row, and posting ranges of it to peers.
pub trait Table: Rows {
    /// Stores an aligned word of my own row with release order.
    ///
    /// # Panics
    /// If `at` is unaligned or outside my row.
    fn store(&mut self, at: u64, value: u64);

    /// Makes `range` of my row appear in the copies of `peers`, after everything posted to them before. My own rank may be
    /// among them and means nothing. A fabric in which a store is a post only has to wake the peers that sleep.
    fn post(&mut self, peers: &[Rank], range: Range<u64>);
}
