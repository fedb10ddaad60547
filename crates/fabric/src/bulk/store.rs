//! The interface by which the streams of a bulk group reach a member: its blocks, and its answers to
//! messages.
use super::error::BulkDown;
use super::wire::BlockHead;
use spindle_core::Rank;
use spindle_core::rdmc::{Columns, Slot};

/// The blocks of a member and which of them are awaited: the part of a member that knows the
/// protocol.
pub trait BlockStore {
    /// Returns the bytes of a block that I posted.
    fn block(&self, block: &BlockHead) -> &[u8];

    /// Handles the beginning of a block from a peer. Returns whether its place is available. If
    /// not, the peer is not read from again before the next look, and then the block goes to the
    /// place that [`place`](Self::place) returns.
    ///
    /// # Errors
    /// If no member has asked for it: the connection ends.
    fn expect(&mut self, from: Rank, block: &BlockHead) -> Result<bool, BulkDown>;

    /// Returns the place for all bytes of an awaited block; `None` if they are not wanted any more.
    /// It may change between two calls, if the bytes that have come already are moved along.
    fn place(&mut self, from: Rank, block: &BlockHead) -> Option<&mut [u8]>;

    /// Handles a message of a peer.
    ///
    /// # Errors
    /// If it is invalid: the connection ends.
    fn arrived(&mut self, from: Rank, word: PeerWord) -> Result<(), BulkDown>;
}

/// A message of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerWord {
    /// All of a block is at its place, and these are its sender's counters.
    Block(BlockHead),
    /// Its counters.
    Columns {
        /// The slot that they belong to.
        slot: Slot,
        /// The counters.
        columns: Columns,
    },
    /// It has closed the group.
    Closed {
        /// The rank whose death it names.
        dead: Rank,
    },
    /// It has done its part, and will end the connection.
    Finished,
}
