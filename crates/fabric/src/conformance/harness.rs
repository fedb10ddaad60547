//! The parts that all cases share: the harness that they are generic over, and a group of its
//! members.
use crate::fabric::Fabric;
use spindle_core::wire::layout::entry;
use spindle_core::{
    Durability, Layout, MemberId, Order, Rank, Ring, Rows, Rule, SubgroupId, SubgroupSpec, Table, View, ViewId,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The time that a case waits for an event that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A maker of connected members for one kind of fabric.
pub trait Harness {
    /// The fabric.
    type Fabric: Fabric;

    /// Creates all members of a new view, by rank, connected with each other.
    fn connect(layout: &Layout) -> Vec<Self::Fabric>;

    /// Delivers everything that was posted to its destination.
    fn settle(fabrics: &mut [Self::Fabric]);

    /// Returns true if this machine has everything that the fabric needs. If not, cases pass
    /// without having run, and this prints the missing part.
    fn is_here() -> bool {
        true
    }
}

/// Returns a view of `members` with one subgroup in which all of them send; a ring holds `window`
/// messages of 100 bytes.
pub fn view(members: u32, window: u64) -> View {
    let ranks: Vec<Rank> = (0..members).map(Rank).collect();
    let everyone = SubgroupSpec {
        member_rule: Rule::Everyone,
        sender_rule: Rule::Everyone,
        name: "everyone".to_string(),
        members: ranks.clone(),
        senders: ranks,
        order: Order::Total,
        window,
        message_bytes_max: 100,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    };
    View {
        id: ViewId(1),
        members: (0..u64::from(members)).map(MemberId).collect(),
        nonvoters: vec![],
        subgroups: vec![everyone].into(),
    }
}

/// A group of connected members, and the offsets to write in their rows.
pub(super) struct ConnectedGroup<H: Harness> {
    pub(super) layout: Layout,
    pub(super) fabrics: Vec<H::Fabric>,
    pub(super) everyone: Vec<Rank>,
}

impl<H: Harness> ConnectedGroup<H> {
    pub(super) fn new(members: u32) -> ConnectedGroup<H> {
        ConnectedGroup::of(&view(members, 8))
    }

    pub(super) fn of(view: &View) -> ConnectedGroup<H> {
        let layout = Layout::new(view).expect("the view is sound");
        let fabrics = H::connect(&layout);
        assert_eq!(fabrics.len(), layout.rows().len());
        ConnectedGroup { layout, fabrics, everyone: view.ranks().collect() }
    }

    pub(super) fn size(&self, rank: Rank) -> u64 {
        self.layout.row(rank).size
    }

    /// Stores and posts one word, to every member.
    pub(super) fn put(&mut self, rank: Rank, at: u64, value: u64) {
        let fabric = &mut self.fabrics[rank.index()];
        fabric.store(at, value);
        fabric.post(&self.everyone, at..at + 8);
    }

    pub(super) fn settle(&mut self) {
        H::settle(&mut self.fabrics);
    }

    pub(super) fn assert_all_see(&self, rank: Rank, at: u64, value: u64) {
        for fabric in &self.fabrics {
            assert_eq!(fabric.load(rank, at), value, "word {at} of member {rank} at member {}", fabric.me());
        }
    }

    pub(super) fn fabric(&mut self, index: usize) -> &mut H::Fabric {
        &mut self.fabrics[index]
    }
}

/// Returns the ring of the first subgroup in the row of `rank`.
pub(super) fn ring(layout: &Layout, rank: Rank) -> Ring {
    layout.row(rank).subgroup(SubgroupId(0)).and_then(|place| place.ring).expect("everybody sends")
}

/// Returns the offset of a control word of the row of `rank` that only the case uses.
pub(super) fn counter(layout: &Layout, rank: Rank) -> u64 {
    layout.row(rank).subgroup(SubgroupId(0)).expect("everybody is in it").entry + entry::ROUNDS
}

pub(super) fn assert_panics(what: &str, action: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(action)).is_err(), "{what} must panic");
}
