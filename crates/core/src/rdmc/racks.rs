//! The partition of members into racks, and the hybrid schedule between and inside the racks.
//!
//! A binomial pipeline runs inside each rack, with the rack's first member as its root. Racks form
//! a chain: every block crosses once from a rack to the next. The paper does not specify which
//! member sends it across. The first member of a rack has no free send, as it sends within its rack
//! in every step. But in each step some member's neighbour in the hypercube is that first member,
//! which needs nothing. This member sends the block that it got from the first member l steps ago
//! across instead. So no member ever sends two blocks in a step, the chain runs at the full rate,
//! and a rack is l + 1 steps behind the one before it.
use super::pipeline::Pipeline;
use crate::ids::Rank;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A partition of the members of a bulk group into racks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Racks {
    racks: Vec<Rack>,
    /// By rank: the rack, and the index in it.
    places: Vec<(u32, u32)>,
    /// The number of steps of an object minus the number of its blocks.
    more_steps: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rack {
    members: Vec<Rank>,
    pipeline: Pipeline,
    /// The step in which the first member of the rack begins to send.
    begin: u64,
}

/// The reason why a partition into racks is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RacksError {
    /// A rack is empty.
    #[error("rack {rack} is empty; leave it out")]
    Empty {
        /// The index of the rack in the list, from 0.
        rack: usize,
    },
    /// The first rack does not begin with the root.
    #[error(
        "the first rack begins with rank {found}; name the root's rack first, and in it the root, which has rank 0"
    )]
    RootNotFirst {
        /// The rank that was found in its place.
        found: Rank,
    },
    /// A rank is listed twice, or is too high.
    #[error(
        "rank {rank} is in two racks, or there are only {members} members; name each of the ranks 0 to {members} - 1 once"
    )]
    NotAPartition {
        /// The rank.
        rank: Rank,
        /// The number of ranks listed.
        members: u32,
    },
}

impl Racks {
    /// Creates racks in the order of their chain, with their members. The ranks must be those from
    /// 0 up, each in one rack. The first member of each rack receives the blocks from the rack
    /// before.
    ///
    /// # Errors
    /// If the ranks are not those, if a rack is empty, or if the first rack does not begin with
    /// rank 0.
    pub fn new(racks: Vec<Vec<Rank>>) -> Result<Racks, RacksError> {
        let members = racks.iter().map(Vec::len).sum::<usize>();
        let mut places = alloc::vec![None; members];
        let (mut list, mut begin) = (Vec::with_capacity(racks.len()), 0);
        for (r, rack) in racks.into_iter().enumerate() {
            let first = *rack.first().ok_or(RacksError::Empty { rack: r })?;
            if r == 0 && first != Rank(0) {
                return Err(RacksError::RootNotFirst { found: first });
            }
            for (i, rank) in rack.iter().enumerate() {
                let wrong = RacksError::NotAPartition { rank: *rank, members: members as u32 };
                let place = places.get_mut(rank.index()).ok_or(wrong)?;
                if place.replace((r as u32, i as u32)).is_some() {
                    return Err(wrong);
                }
            }
            let pipeline = Pipeline::new(rack.len() as u32);
            list.push(Rack { members: rack, pipeline, begin });
            begin += u64::from(pipeline.dimensions) + 1;
        }
        let more = |rack: &Rack| rack.begin + u64::from(rack.members.len().next_power_of_two().ilog2());
        let more_steps = list.iter().map(more).max().ok_or(RacksError::Empty { rack: 0 })?;
        // The list has as many members as places, and none twice: every place is filled.
        Ok(Racks { racks: list, places: places.into_iter().flatten().collect(), more_steps })
    }

    /// Groups members into racks by the names that they give, by rank: members with the same name
    /// are in the same rack. The root's rack comes first, the others follow in the order of their
    /// first members, and each lists its members by rank. So every process that knows the same
    /// names computes the same racks.
    ///
    /// # Panics
    /// If `names` is empty.
    pub fn grouped<Name: Ord>(names: impl IntoIterator<Item = Name>) -> Racks {
        let mut racks: Vec<Vec<Rank>> = Vec::new();
        let mut places = BTreeMap::new();
        for (rank, name) in (0..).map(Rank).zip(names) {
            let place = *places.entry(name).or_insert(racks.len());
            match racks.get_mut(place) {
                Some(rack) => rack.push(rank),
                None => racks.push(alloc::vec![rank]),
            }
        }
        assert!(!racks.is_empty(), "racks have a root");
        Racks::new(racks).expect("each rank is in the rack that it names, the root in the first")
    }

    /// The number of racks.
    pub fn count(&self) -> u32 {
        self.racks.len() as u32
    }

    /// The number of members.
    pub fn members(&self) -> u32 {
        self.places.len() as u32
    }

    /// The index of the rack that contains `rank`, from 0.
    pub fn rack_of(&self, rank: Rank) -> u32 {
        self.places[rank.index()].0
    }

    pub(super) fn steps(&self, blocks: u32) -> u64 {
        if self.places.len() == 1 { 0 } else { u64::from(blocks) + self.more_steps - 1 }
    }

    pub(super) fn send(&self, blocks: u32, rank: Rank, step: u64) -> Option<(Rank, u32)> {
        let (r, x) = self.places[rank.index()];
        let rack = &self.racks[r as usize];
        let step = step.checked_sub(rack.begin)?;
        if let Some((to, block)) = rack.pipeline.send(blocks, x, step) {
            return Some((rack.members[to as usize], block));
        }
        let next = self.racks.get(r as usize + 1)?;
        let (from, block) = rack.across(blocks, step)?;
        (from == x).then(|| (next.members[0], block))
    }

    pub(super) fn receive(&self, blocks: u32, rank: Rank, step: u64) -> Option<(Rank, u32)> {
        let (r, x) = self.places[rank.index()];
        let rack = &self.racks[r as usize];
        if x > 0 {
            let (from, block) = rack.pipeline.receive(blocks, x, step.checked_sub(rack.begin)?)?;
            return Some((rack.members[from as usize], block));
        }
        let before = &self.racks[(r as usize).checked_sub(1)?];
        let (from, block) = before.across(blocks, step.checked_sub(before.begin)?)?;
        Some((before.members[from as usize], block))
    }

    pub(super) fn step_of(&self, rank: Rank, index: u32) -> u64 {
        let (r, x) = self.places[rank.index()];
        let rack = &self.racks[r as usize];
        if x == 0 { rack.begin - 1 + u64::from(index) } else { rack.begin + rack.pipeline.step_of(x, index) }
    }

    pub(super) fn received_before(&self, rank: Rank, step: u64) -> u64 {
        let (r, x) = self.places[rank.index()];
        let rack = &self.racks[r as usize];
        match x {
            0 => (step + 1).saturating_sub(rack.begin),
            _ => rack.pipeline.received_before(x, step.saturating_sub(rack.begin)),
        }
    }

    /// The range of steps outside of which `rank` sends nothing.
    pub(super) fn sending(&self, blocks: u32, rank: Rank) -> core::ops::Range<u64> {
        let (r, x) = self.places[rank.index()];
        let rack = &self.racks[r as usize];
        let is_last = r as usize + 1 == self.racks.len();
        if is_last && (rack.members.len() == 1 || (rack.members.len() == 2 && x == 1)) {
            return 0..0;
        }
        rack.begin..rack.begin + rack.pipeline.outside_steps(blocks) + 1
    }
}

impl Rack {
    /// The sender and the block that crosses to the next rack in `step` of this rack.
    fn across(&self, blocks: u32, step: u64) -> Option<(u32, u32)> {
        let (pipeline, l) = (&self.pipeline, u64::from(self.pipeline.dimensions));
        let block = u32::try_from(step.checked_sub(l)?).ok().filter(|block| *block < blocks)?;
        // In the last step twins send to each other. Then the first member has a free send.
        let first = l == 0 || (pipeline.has_twins() && blocks > 1 && block == blocks - 1);
        Some((if first { 0 } else { pipeline.sender(1 << (step % l), step) }, block))
    }
}
