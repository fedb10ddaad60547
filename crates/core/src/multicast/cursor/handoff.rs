//! The two words that an engine and a consumer on another thread exchange: the frontier, and the
//! counts that are delivered.
use super::{Cursor, Defect};
use crate::ids::Rank;
use crate::sync::{AtomicBool, AtomicU64, Ordering, Padded};
use crate::view::Order;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Stored in place of a count: the consumer has found a [`Defect`].
const STOPPED: u64 = u64::MAX;

/// The words that the engine and a consumer on another thread exchange about one subgroup.
#[derive(Debug)]
pub struct Handoff {
    pub(super) frontier: Padded<AtomicU64>,
    /// One count in a subgroup with a total order, one for each sender in a Fifo subgroup. The
    /// first is [`STOPPED`] after a defect.
    pub(super) delivered: Padded<Box<[AtomicU64]>>,
    /// Whether the consumer has ended.
    pub(super) given_up: AtomicBool,
    /// The trims by sender rank, once the view has ended.
    pub(super) trims: Box<[AtomicU64]>,
    pub(super) ended: AtomicBool,
    /// Sender, position and header of the defect that stopped the consumer.
    pub(super) defect: [AtomicU64; 3],
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) batches: AtomicU64,
}

impl Handoff {
    pub(crate) fn new(order: Order, senders: usize) -> Handoff {
        let counts = match order {
            Order::Total => 1,
            Order::Fifo => senders,
        };
        Handoff {
            frontier: Padded(AtomicU64::new(0)),
            delivered: Padded((0..counts).map(|_| AtomicU64::new(0)).collect()),
            given_up: AtomicBool::new(false),
            trims: (0..senders).map(|_| AtomicU64::new(0)).collect(),
            ended: AtomicBool::new(false),
            defect: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
        }
    }

    /// The frontier up to which the consumer may deliver, for [`Cursor::advance`]. In a Fifo
    /// subgroup it only shows that something was announced.
    pub fn frontier(&self) -> u64 {
        // Acquire: pairs with the release in `raise`. The consumer sees everything that the engine
        // saw announced.
        self.frontier.load(Ordering::Acquire)
    }

    /// Reports to the engine that the consumer has finished everything behind `cursor`, and the
    /// defect that stopped it, if any.
    pub fn report(&self, cursor: &Cursor, messages: u64, bytes: u64) {
        // Release: pairs with the acquire in `delivered`, so that no frame is freed before its
        // reader has finished.
        match cursor.order {
            Order::Total => self.delivered[0].store(cursor.count(), Ordering::Release),
            Order::Fifo => {
                for (count, lane) in self.delivered.iter().zip(&cursor.lanes) {
                    count.store(lane.next, Ordering::Release);
                }
            }
        }
        if let Some(Defect { sender, position, header }) = cursor.defect {
            for (word, value) in self.defect.iter().zip([sender.0.into(), position, header]) {
                word.store(value, Ordering::Relaxed);
            }
            self.delivered[0].store(STOPPED, Ordering::Release);
        }
        if messages > 0 {
            // Only one consumer exists: plain additions, no read-modify-write.
            let add = |count: &AtomicU64, by| count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
            add(&self.messages, messages);
            add(&self.bytes, bytes);
            add(&self.batches, 1);
        }
    }

    /// The trims with which the view ends, by sender rank, once that is decided, for
    /// [`Cursor::close`].
    pub fn trims(&self) -> Option<Vec<u64>> {
        // Acquire: pairs with the release in `end`.
        let ended = self.ended.load(Ordering::Acquire);
        ended.then(|| self.trims.iter().map(|trim| trim.load(Ordering::Relaxed)).collect())
    }

    /// Reports to the consumer that the view has ended.
    pub(crate) fn end(&self, trims: &[u64]) {
        for (word, trim) in self.trims.iter().zip(trims) {
            word.store(*trim, Ordering::Relaxed);
        }
        // Release: a consumer that loads it sees the trims, and everything that the engine has seen
        // of the rows.
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn raise(&self, frontier: u64) {
        self.frontier.store(frontier, Ordering::Release);
    }

    /// Reports to the engine that no consumer will take the deliveries any more: they count as
    /// delivered from now on.
    pub fn give_up(&self) {
        // Release: the consumer's reads come before any reuse of the space.
        self.given_up.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// The progress of the consumer, or the defect that it found.
    pub(crate) fn delivered(&self, index: usize) -> Result<u64, Defect> {
        match self.delivered[index].load(Ordering::Acquire) {
            STOPPED => Err(self.defect()),
            count => Ok(count),
        }
    }

    #[cold]
    pub(super) fn defect(&self) -> Defect {
        let [sender, position, header] = self.defect.each_ref().map(|word| word.load(Ordering::Relaxed));
        Defect { sender: Rank(sender as u32), position, header }
    }

    /// Returns the numbers of messages, bytes and batches that the consumer has taken so far.
    pub fn counts(&self) -> (u64, u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.messages), load(&self.bytes), load(&self.batches))
    }
}
