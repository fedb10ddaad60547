//! The binomial pipeline of Ganesan and Seshadri, for any number of members, in closed form.
//!
//! Let m = 2^l be the largest power of two that is at most n. The members are placed on the m
//! vertices of a hypercube: the root alone on vertex 0, and two members on each of the vertices 1
//! to n - m, which are *twins*. In step j every vertex exchanges blocks with its neighbour along
//! dimension j mod l: it sends the newest block that it has. One of two twins receives the block
//! from outside (the *receiver*), and the other sends the block to the outside. Meanwhile the
//! receiver passes the last block that it got from outside to its twin. A receiver and its twin
//! swap roles after each step along a dimension whose bit is set in their vertex.
//!
//! Positions here count from the root, which is 0. Steps are u64, because block numbers fill 32
//! bits.

/// A binomial pipeline among `members` members, at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pipeline {
    members: u32,
    /// l, the dimensions of the hypercube.
    pub(super) dimensions: u32,
}

impl Pipeline {
    pub(super) fn new(members: u32) -> Pipeline {
        assert!(members > 0, "a pipeline has a root");
        Pipeline { members, dimensions: members.ilog2() }
    }

    /// The number of steps for `blocks` blocks: `blocks - 1 + ceil(log2 members)`, the minimum
    /// possible.
    pub(super) fn steps(&self, blocks: u32) -> u64 {
        match self.members {
            1 => 0,
            _ => self.outside_steps(blocks) + u64::from(self.has_twins()),
        }
    }

    /// The receiver and the block that `x` sends in `step`.
    pub(super) fn send(&self, blocks: u32, x: u32, step: u64) -> Option<(u32, u32)> {
        if step >= self.steps(blocks) {
            return None;
        }
        let (v, twin) = (self.vertex(x), self.twin(x));
        if step == self.outside_steps(blocks) {
            return match blocks {
                1 => self.send_single(x, v),
                _ => twin.and_then(|twin| Some((twin, self.newest_from_outside(blocks, x, step)?))),
            };
        }
        if let Some(twin) = twin.filter(|_| self.receiver(v, step) == x) {
            return Some((twin, self.newest_from_outside(blocks, x, step)?));
        }
        let block = self.vertex_sends(blocks, v, step)?;
        Some((self.receiver(self.neighbour(v, step), step), block))
    }

    /// The sender and the block that `x` receives in `step`.
    pub(super) fn receive(&self, blocks: u32, x: u32, step: u64) -> Option<(u32, u32)> {
        if x == 0 || step >= self.steps(blocks) {
            return None;
        }
        let (v, twin) = (self.vertex(x), self.twin(x));
        if step == self.outside_steps(blocks) {
            let twin = twin?;
            return match blocks {
                1 => (self.receiver(v, step) == x).then(|| (self.sender(v ^ 1, step), 0)),
                _ => Some((twin, self.newest_from_outside(blocks, twin, step)?)),
            };
        }
        if let Some(twin) = twin.filter(|_| self.receiver(v, step) != x) {
            return Some((twin, self.newest_from_outside(blocks, twin, step)?));
        }
        let w = self.neighbour(v, step);
        Some((self.sender(w, step), self.vertex_sends(blocks, w, step)?))
    }

    /// The step in which `x`, not the root, receives its first block. It does not depend on the
    /// number of blocks.
    pub(super) fn first_step(&self, x: u32) -> u64 {
        let v = self.vertex(x);
        let step = u64::from(v.ilog2());
        if self.receiver(v, step) == x { step } else { u64::from(self.dimensions) }
    }

    /// The step in which `x`, not the root, receives its `index`-th block, counted from 0.
    pub(super) fn step_of(&self, x: u32, index: u32) -> u64 {
        let first = self.first_step(x);
        match index {
            0 => first,
            // Between its first step and step l it receives nothing. If a twin was first, it
            // receives nothing from outside in step l, and its twin has nothing for it yet.
            _ => u64::from(self.dimensions) + u64::from(index) - u64::from(!self.is_late(x)),
        }
    }

    /// The number of blocks that `x`, not the root, has received before `step`, if there are
    /// enough.
    pub(super) fn received_before(&self, x: u32, step: u64) -> u64 {
        let first = self.first_step(x);
        if step <= first {
            return 0;
        }
        let second = self.step_of(x, 1);
        1 + step.saturating_sub(second)
    }

    /// The member of vertex `v` that sends to the outside in `step`.
    pub(super) fn sender(&self, v: u32, step: u64) -> u32 {
        match self.twin(v) {
            Some(twin) if self.receiver(v, step) == v => twin,
            _ => v,
        }
    }

    /// Whether `x` has a twin.
    pub(super) fn has_twins(&self) -> bool {
        !self.members.is_power_of_two()
    }

    /// Whether `x` receives its second and later blocks a step later than a member alone on a
    /// vertex.
    fn is_late(&self, x: u32) -> bool {
        self.twin(x).is_some()
    }

    /// The last step of an object with one block, if there are twins: members without the block get
    /// it along dimension 0, and not from their twins. So the first sender of each member is the
    /// same for all sizes.
    fn send_single(&self, x: u32, v: u32) -> Option<(u32, u32)> {
        let step = u64::from(self.dimensions);
        let to = v ^ 1;
        (self.sender(v, step) == x && self.is_double(to)).then(|| (self.receiver(to, step), 0))
    }

    /// Steps in which vertices exchange blocks.
    pub(super) fn outside_steps(&self, blocks: u32) -> u64 {
        u64::from(blocks) + u64::from(self.dimensions) - 1
    }

    /// m, the number of vertices.
    fn vertices(&self) -> u32 {
        1 << self.dimensions
    }

    fn vertex(&self, x: u32) -> u32 {
        if x < self.vertices() { x } else { x - self.vertices() + 1 }
    }

    fn is_double(&self, v: u32) -> bool {
        v != 0 && v <= self.members - self.vertices()
    }

    fn twin(&self, x: u32) -> Option<u32> {
        let v = self.vertex(x);
        self.is_double(v).then(|| if x == v { v + self.vertices() - 1 } else { v })
    }

    fn neighbour(&self, v: u32, step: u64) -> u32 {
        v ^ (1 << self.dimension(step))
    }

    fn dimension(&self, step: u64) -> u32 {
        (step % u64::from(self.dimensions)) as u32
    }

    /// The member of vertex `v` that receives the block from outside in `step`.
    fn receiver(&self, v: u32, step: u64) -> u32 {
        if !self.is_double(v) {
            return v;
        }
        let (rounds, dimension) = (step / u64::from(self.dimensions), self.dimension(step));
        let changes = (rounds & 1) as u32 * v.count_ones() + (v & ((1 << dimension) - 1)).count_ones();
        if changes.is_multiple_of(2) { v } else { v + self.vertices() - 1 }
    }

    /// The block that vertex `v` sends in `step`.
    fn vertex_sends(&self, blocks: u32, v: u32, step: u64) -> Option<u32> {
        let last = u64::from(blocks) - 1;
        if v == 0 {
            return Some(step.min(last) as u32);
        }
        let (l, dimension) = (self.dimensions, self.dimension(step));
        let turned = (v >> dimension | v << (l - dimension)) & (self.vertices() - 1);
        if turned == 1 {
            // The neighbour is the root.
            return None;
        }
        let block = (step + u64::from(turned.trailing_zeros())).checked_sub(u64::from(l))?;
        Some(block.min(last) as u32)
    }

    /// The last block that `x` has received from outside its vertex before `step`. It was the
    /// receiver in one of the 2l + 1 steps before, because twins swap roles in every l steps.
    fn newest_from_outside(&self, blocks: u32, x: u32, step: u64) -> Option<u32> {
        let v = self.vertex(x);
        let end = step.min(self.outside_steps(blocks));
        let start = end.saturating_sub(2 * u64::from(self.dimensions) + 1);
        let turn = (start..end).rev().find(|turn| self.receiver(v, *turn) == x)?;
        self.vertex_sends(blocks, self.neighbour(v, turn), turn)
    }
}
