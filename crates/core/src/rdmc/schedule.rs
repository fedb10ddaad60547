//! The transfers of blocks in each step: pure functions of the number of members, the number of
//! blocks, a rank and a step.
//!
//! In a step each member sends at most one block and receives at most one. It can send a received
//! block from the next step on. No member waits for a step to end; steps only define the order in
//! which a member sends and receives. No function here takes more than O(log n) time, where n is
//! the number of members, or stores anything by block. [`Schedule::next_send`] passes over only
//! O(log n) steps, too.
//!
//! The *index* of a transfer counts the blocks that its receiver gets, in the order of steps.
//! Credits are counted by it.
use super::pipeline::Pipeline;
use super::racks::Racks;
use crate::ids::Rank;
use core::ops::Range;

/// The way in which blocks spread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// The binomial pipeline: `blocks - 1 + ceil(log2 members)` steps, which is the optimum.
    BinomialPipeline,
    /// The root sends the whole object to one member after the other: `blocks * (members - 1)`
    /// steps.
    Sequential,
    /// Each member sends to the next: `blocks + members - 2` steps.
    Chain,
    /// Members that have the whole object forward it, twice as many in each stage: `blocks *
    /// ceil(log2 members)` steps.
    BinomialTree,
    /// A chain of racks, and a binomial pipeline inside each.
    Hybrid(Racks),
}

/// The transfer of one block from one member to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hop {
    /// The step.
    pub step: u64,
    /// The rank of the sender.
    pub from: Rank,
    /// The rank of the receiver.
    pub to: Rank,
    /// The number of the block, from 0.
    pub block: u32,
    /// The number of blocks that its receiver has received before it.
    pub index: u32,
}

/// An algorithm for a number of members. Rank 0 is the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    members: u32,
    algorithm: Algorithm,
}

impl Schedule {
    /// Returns the schedule of `algorithm` for `members` members.
    ///
    /// # Panics
    /// If there are no members, or the racks have a different number of them.
    pub fn new(algorithm: Algorithm, members: u32) -> Schedule {
        assert!(members > 0, "a schedule has a root");
        if let Algorithm::Hybrid(racks) = &algorithm {
            assert_eq!(racks.members(), members, "the racks hold all members");
        }
        Schedule { members, algorithm }
    }

    /// The number of members.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// The way in which blocks spread.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The number of steps for `blocks` blocks.
    pub fn steps(&self, blocks: u32) -> u64 {
        let (n, k) = (u64::from(self.members), u64::from(blocks));
        match &self.algorithm {
            _ if n == 1 || k == 0 => 0,
            Algorithm::BinomialPipeline => self.pipeline().steps(blocks),
            Algorithm::Sequential => k * (n - 1),
            Algorithm::Chain => k + n - 2,
            Algorithm::BinomialTree => k * u64::from(n.next_power_of_two().ilog2()),
            Algorithm::Hybrid(racks) => racks.steps(blocks),
        }
    }

    /// The block that `rank` sends in `step`.
    pub fn send(&self, blocks: u32, rank: Rank, step: u64) -> Option<Hop> {
        let (n, k, x) = (self.members, u64::from(blocks), u64::from(rank.0));
        if step >= self.steps(blocks) || rank.0 >= n {
            return None;
        }
        let (to, block) = match &self.algorithm {
            Algorithm::BinomialPipeline => self.pipeline().send(blocks, rank.0, step)?,
            Algorithm::Sequential if x == 0 => (1 + (step / k) as u32, (step % k) as u32),
            Algorithm::Sequential => return None,
            Algorithm::Chain => (rank.0 + 1, step.checked_sub(x).filter(|block| *block < k)? as u32),
            Algorithm::BinomialTree => {
                let reach = 1_u32.checked_shl((step / k) as u32).filter(|reach| rank.0 < *reach)?;
                (rank.0.checked_add(reach)?, (step % k) as u32)
            }
            Algorithm::Hybrid(racks) => {
                let (to, block) = racks.send(blocks, rank, step)?;
                (to.0, block)
            }
        };
        (to < n).then(|| self.hop(step, rank, Rank(to), block))
    }

    /// The block that `rank` receives in `step`.
    pub fn receive(&self, blocks: u32, rank: Rank, step: u64) -> Option<Hop> {
        let (k, x) = (u64::from(blocks), u64::from(rank.0));
        if step >= self.steps(blocks) || rank.0 >= self.members || x == 0 {
            return None;
        }
        let (from, block) = match &self.algorithm {
            Algorithm::BinomialPipeline => self.pipeline().receive(blocks, rank.0, step)?,
            Algorithm::Sequential => (step / k == x - 1).then_some((0, (step % k) as u32))?,
            Algorithm::Chain => (rank.0 - 1, step.checked_sub(x - 1).filter(|block| *block < k)? as u32),
            Algorithm::BinomialTree => {
                let stage = rank.0.ilog2();
                (step / k == u64::from(stage)).then_some((rank.0 - (1 << stage), (step % k) as u32))?
            }
            Algorithm::Hybrid(racks) => {
                let (from, block) = racks.receive(blocks, rank, step)?;
                (from.0, block)
            }
        };
        Some(self.hop(step, Rank(from), rank, block))
    }

    /// The first block that `rank` sends in `step` or later.
    pub fn next_send(&self, blocks: u32, rank: Rank, step: u64) -> Option<Hop> {
        let range = self.sending(blocks, rank);
        (step.max(range.start)..range.end).find_map(|step| self.send(blocks, rank, step))
    }

    /// The block that `rank` receives after `index` others; `None` for the root, and if it has all
    /// blocks.
    pub fn arrival(&self, blocks: u32, rank: Rank, index: u32) -> Option<Hop> {
        if rank.0 == 0 || rank.0 >= self.members || index >= blocks {
            return None;
        }
        self.receive(blocks, rank, self.step_of(blocks, rank, index))
    }

    /// The rank from which `rank` receives its first block; `None` for the root. It is the same for
    /// any number of blocks, so a receiver knows it before it knows the size.
    pub fn first_sender(&self, rank: Rank) -> Option<Rank> {
        // The step may depend on the number of blocks, but the sender does not.
        self.arrival(1, rank, 0).map(|hop| hop.from)
    }

    /// The index of the received block that `hop.from` must have to send `hop`; `None` for the
    /// root, which has all blocks.
    pub fn needs(&self, blocks: u32, hop: &Hop) -> Option<u32> {
        let rank = hop.from;
        if rank.0 == 0 {
            return None;
        }
        match &self.algorithm {
            Algorithm::Sequential | Algorithm::Chain | Algorithm::BinomialTree => Some(hop.block),
            Algorithm::BinomialPipeline | Algorithm::Hybrid(_) => {
                let before = self.received_before(blocks, rank, hop.step);
                // It is one of the last few: a member sends a block at most O(log n) steps after it
                // received it.
                let is_it = |index: &u32| self.arrival(blocks, rank, *index).is_some_and(|a| a.block == hop.block);
                (0..before).rev().find(is_it)
            }
        }
    }

    /// The range of steps outside of which `rank` sends nothing. Inside the range it is idle for
    /// O(log n) steps at a time.
    fn sending(&self, blocks: u32, rank: Rank) -> Range<u64> {
        let (n, k, x) = (self.members, u64::from(blocks), u64::from(rank.0));
        match &self.algorithm {
            // In a group of two, the other member never sends.
            Algorithm::BinomialPipeline if n == 2 && x == 1 => 0..0,
            Algorithm::BinomialPipeline => 0..self.steps(blocks),
            Algorithm::Sequential if x == 0 => 0..self.steps(blocks),
            Algorithm::Sequential => 0..0,
            Algorithm::Chain if rank.0 + 1 < n => x..x + k,
            Algorithm::Chain => 0..0,
            Algorithm::BinomialTree => {
                let stages = self.steps(blocks) / k.max(1);
                let fits = |stage: &u64| (1 << stage) > x && x + (1 << stage) < u64::from(n);
                let first = (0..stages).find(fits).unwrap_or(0);
                let count = (0..stages).filter(fits).count() as u64;
                first * k..(first + count) * k
            }
            Algorithm::Hybrid(racks) => racks.sending(blocks, rank),
        }
    }

    fn step_of(&self, blocks: u32, rank: Rank, index: u32) -> u64 {
        let (k, x, i) = (u64::from(blocks), u64::from(rank.0), u64::from(index));
        match &self.algorithm {
            Algorithm::BinomialPipeline => self.pipeline().step_of(rank.0, index),
            Algorithm::Sequential => (x - 1) * k + i,
            Algorithm::Chain => x - 1 + i,
            Algorithm::BinomialTree => u64::from(rank.0.ilog2()) * k + i,
            Algorithm::Hybrid(racks) => racks.step_of(rank, index),
        }
    }

    fn received_before(&self, blocks: u32, rank: Rank, step: u64) -> u32 {
        let count = match &self.algorithm {
            Algorithm::BinomialPipeline => self.pipeline().received_before(rank.0, step),
            Algorithm::Hybrid(racks) => racks.received_before(rank, step),
            _ => step.saturating_sub(self.step_of(blocks, rank, 0)),
        };
        count.min(blocks.into()) as u32
    }

    fn hop(&self, step: u64, from: Rank, to: Rank, block: u32) -> Hop {
        let index = match &self.algorithm {
            Algorithm::Sequential | Algorithm::Chain | Algorithm::BinomialTree => block,
            // Steps before this one do not depend on the number of blocks.
            Algorithm::BinomialPipeline | Algorithm::Hybrid(_) => self.received_before(u32::MAX, to, step),
        };
        Hop { step, from, to, block, index }
    }

    fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.members)
    }
}
