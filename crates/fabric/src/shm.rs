//! The memory that members of one machine share: a row is a range of its owner's memory, mapped
//! read-only by all others, and next to it is the doorbell that wakes the owner.
//!
//! This module does not move segments and doorbells between processes, and does not detect the
//! death of a member: see [`rendezvous`](spindle_transport::rendezvous). [`Mesh`](crate::Mesh)
//! makes a fabric of them.
use crate::arena::{Arena, LentRow};
use crate::error::MeshError;
use crate::event_count::{Doorbell, EVENT_COUNT_BYTES, EventCount, is_event};
pub use crate::member_event_count::MemberEventCount;
use crate::mirror::Mirror;
use crate::readings::Readings;
use crate::region::{OwnRegion, PeerRegion, RegionError, SharedRegion, VacantRegion};
use spindle_core::{Layout, Rank};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// My row and doorbell, before the peers are known.
#[derive(Debug)]
pub struct OwnRow {
    pub(crate) me: Rank,
    pub(crate) row: Arc<OwnRegion>,
    pub(crate) event_count: EventCount,
    /// The memory for the copies of the peers' rows.
    pub(crate) mirror: Mirror,
    /// The place where it announces the views that it reads.
    pub(crate) readings: Arc<Readings>,
}

/// The descriptors that one member gives to all others of its machine: of its row, for reading, and
/// of its doorbell, for ringing.
#[derive(Debug)]
pub struct RowDescriptors {
    /// The memory of which its row is a range.
    pub row: OwnedFd,
    /// Offset in that memory at which the row begins, in bytes.
    pub at: u64,
    /// Length of the row in bytes.
    pub bytes: u64,
    /// As long as a copy of this is open, the row's memory is used for nothing else.
    pub lease: OwnedFd,
    /// The segment of its doorbell.
    pub event_count: OwnedFd,
    /// The eventfd of its doorbell, if the member has peers on other machines and so can't sleep on
    /// the segment alone.
    pub event: Option<OwnedFd>,
}

/// The next row of a peer of this machine, in memory of the peer that this process has mapped, and
/// its doorbell.
#[derive(Debug)]
pub struct ShownRow {
    pub(crate) row: PeerRegion,
    pub(crate) event_count: Arc<SharedRegion>,
    pub(crate) event: Option<Arc<OwnedFd>>,
}

/// The words of a member's own row.
#[derive(Clone, Debug)]
pub struct ControlBlock(Arc<OwnRegion>);

impl OwnRow {
    /// Creates the row of `me` in its `arena`, and the descriptors for every peer.
    ///
    /// # Errors
    /// As [`OwnRegion::create`], for my own rank, and [`MeshError::Os`].
    ///
    /// # Panics
    /// If `me` is not in `layout`.
    pub fn create(layout: &Layout, me: Rank, arena: &mut Arena) -> Result<(OwnRow, RowDescriptors), MeshError> {
        let (row, LentRow { chunk, at, lease }) = arena.row(layout, me)?;
        let event_count = arena.event_count();
        let of = |part| move |source| MeshError::Region { rank: me, part, source };
        let os = |source| RegionError::Os { call: "dup", name: "a doorbell".to_string(), source };
        let clone = |fd: &Arc<OwnedFd>| fd.try_clone().map_err(|error| of("doorbell")(os(error)));
        let event = event_count.event.as_ref().map(clone).transpose()?;
        let parts =
            RowDescriptors { row: chunk, at, bytes: row.size(), lease, event_count: clone(&event_count.fd)?, event };
        let event_count = EventCount::of_member(row.clone(), event_count.region.clone(), event_count.event.clone());
        let (mirror, readings) = (arena.mirror().clone(), Arc::clone(arena.readings()));
        Ok((OwnRow { me, row, event_count, mirror, readings }, parts))
    }

    /// Returns the rank of its owner, this member.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Returns its memory.
    pub fn region(&self) -> &Arc<OwnRegion> {
        &self.row
    }

    /// Returns the memory for the copies of the peers' rows.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns its control block, which peers may read already if the fabric can't be made.
    pub fn control_block(&self) -> ControlBlock {
        ControlBlock(self.row.clone())
    }

    /// Returns the offset at which it begins in the member's memory, in bytes.
    pub fn offset(&self) -> u64 {
        self.row.begins_at()
    }

    /// Returns the doorbell that rings this member, for threads that must be able to before the
    /// fabric is made.
    pub fn doorbell(&self) -> Doorbell {
        self.event_count.doorbell()
    }
}

impl ControlBlock {
    /// Stores a word.
    ///
    /// # Panics
    /// If `at` is unaligned, or beyond the block.
    pub fn store(&self, at: u64, value: u64) {
        assert!(at < self.0.control(), "offset {at} is not of a control block of {} bytes", self.0.control());
        self.0.store(at, value);
    }
}

impl ShownRow {
    /// Checks that this is the row of the member `rank` of a view of this layout, as far as can be
    /// seen.
    ///
    /// # Errors
    /// [`MeshError::Region`], if it has another size.
    ///
    /// # Panics
    /// If `rank` is not in `layout`.
    pub fn check(&self, layout: &Layout, rank: Rank) -> Result<(), MeshError> {
        let (expected, got) = (layout.row(rank).size, self.row.size());
        let source = RegionError::Size { expected, got };
        if expected == got { Ok(()) } else { Err(MeshError::Region { rank, part: "row", source }) }
    }

    pub(crate) fn open(
        self,
        layout: &Layout,
        rank: Rank,
    ) -> Result<(Arc<PeerRegion>, Arc<SharedRegion>, Doorbell), MeshError> {
        self.check(layout, rank)?;
        let row = Arc::new(self.row);
        let doorbell = Doorbell::of_peer(row.clone(), self.event_count.clone(), self.event);
        Ok((row, self.event_count, doorbell))
    }
}

impl RowDescriptors {
    /// Duplicates the descriptors, for another peer.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub fn try_clone(&self) -> io::Result<RowDescriptors> {
        let event = self.event.as_ref().map(OwnedFd::try_clone).transpose()?;
        let [row, lease, event_count] = [&self.row, &self.lease, &self.event_count].map(OwnedFd::try_clone);
        Ok(RowDescriptors {
            row: row?,
            at: self.at,
            bytes: self.bytes,
            lease: lease?,
            event_count: event_count?,
            event,
        })
    }

    /// Checks that these are the descriptors of the member `rank` of a view of this layout.
    ///
    /// # Errors
    /// [`MeshError::Region`]: the segment that does not fit, and the reason.
    ///
    /// # Panics
    /// If `rank` is not in `layout`.
    pub fn check(&self, layout: &Layout, rank: Rank) -> Result<(), MeshError> {
        let of = |part| move |source| MeshError::Region { rank, part, source };
        self.range(layout, rank)
            .and_then(|range| PeerRegion::check_range("a peer's row", &self.row, &range))
            .map_err(of("row"))?;
        SharedRegion::check("a peer's doorbell", &self.event_count, EVENT_COUNT_BYTES).map_err(of("doorbell"))?;
        self.check_event(rank)
    }

    /// Returns the range of its row in the memory that came with it.
    fn range(&self, layout: &Layout, rank: Rank) -> Result<Range<u64>, RegionError> {
        match layout.row(rank).size {
            expected if expected != self.bytes => Err(RegionError::Size { expected, got: self.bytes }),
            bytes => Ok(self.at..self.at.saturating_add(bytes)),
        }
    }

    /// Maps the row for reading.
    pub(crate) fn open_row(self, layout: &Layout, rank: Rank) -> Result<PeerRegion, MeshError> {
        let of = |source| MeshError::Region { rank, part: "row", source };
        let range = self.range(layout, rank).map_err(of)?;
        PeerRegion::open_range("a peer's row", &self.row, range, self.lease).map_err(of)
    }

    /// Checks that ringing never waits. With a descriptor other than an eventfd it might.
    fn check_event(&self, rank: Rank) -> Result<(), MeshError> {
        match &self.event {
            Some(event) if !is_event(event) => Err(MeshError::NoEvent { rank }),
            _ => Ok(()),
        }
    }

    /// Maps the row and the doorbell's segment, and opens the doorbell.
    pub(crate) fn open(
        mut self,
        layout: &Layout,
        rank: Rank,
    ) -> Result<(Arc<PeerRegion>, Arc<SharedRegion>, Doorbell), MeshError> {
        // All checks that can refuse it come before anything is mapped.
        self.check(layout, rank)?;
        let event_count = self.open_event_count(rank)?;
        let event = self.event.take().map(Arc::new);
        let row = Arc::new(self.open_row(layout, rank)?);
        let doorbell = Doorbell::of_peer(row.clone(), event_count.clone(), event);
        Ok((row, event_count, doorbell))
    }

    /// As [`open`](Self::open), with the row in the place that was kept for it. Returns `None` if
    /// that is taken.
    pub(crate) fn map(
        self,
        vacant: &VacantRegion,
        layout: &Layout,
        rank: Rank,
    ) -> Result<Option<(Arc<SharedRegion>, Doorbell)>, MeshError> {
        let of = |source| MeshError::Region { rank, part: "row", source };
        // All checks that can refuse it come before the row shows.
        self.check(layout, rank)?;
        let event_count = self.open_event_count(rank)?;
        let Some(row) = vacant.map("a peer's row", &self.row, self.at, self.lease).map_err(of)? else {
            return Ok(None);
        };
        let doorbell = Doorbell::of_peer(Arc::new(row), event_count.clone(), self.event.map(Arc::new));
        Ok(Some((event_count, doorbell)))
    }

    fn open_event_count(&self, rank: Rank) -> Result<Arc<SharedRegion>, MeshError> {
        let of = |source| MeshError::Region { rank, part: "doorbell", source };
        let event_count = SharedRegion::open("a peer's doorbell", &self.event_count, EVENT_COUNT_BYTES).map_err(of)?;
        self.check_event(rank)?;
        Ok(Arc::new(event_count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::barrier::Barrier;
    use crate::conformance::view;
    use crate::mesh::{Mesh, Peer};
    use spindle_core::Rows;

    fn layout(members: u32, window: u64) -> Layout {
        Layout::new(&view(members, window)).unwrap()
    }

    fn create(layout: &Layout, rank: u32) -> (OwnRow, RowDescriptors) {
        OwnRow::create(layout, Rank(rank), &mut Arena::new(MemberEventCount::create().unwrap())).unwrap()
    }

    #[test]
    fn a_row_shows_words_of_its_control_block_only() {
        let layout = layout(2, 8);
        let (row, _) = create(&layout, 0);
        let control = layout.row(Rank(0)).control;
        row.control_block().store(control - 8, 7);
        for at in [control, layout.row(Rank(0)).size - 8, 4, u64::MAX - 7] {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| row.control_block().store(at, 1)))
                .expect_err("it was stored");
        }
        let fabric = Mesh::new(&layout, row, [(Rank(1), None)]).unwrap();
        assert_eq!(fabric.load(Rank(0), control - 8), 7);
        assert!((control..layout.row(Rank(0)).size).step_by(8).all(|at| fabric.load(Rank(0), at) == 0));
    }

    #[test]
    fn a_row_of_another_layout_is_refused() {
        let ours = layout(2, 8);
        let (own, _) = create(&ours, 0);
        let (_row, parts) = create(&layout(2, 100), 1);
        assert!(parts.check(&ours, Rank(1)).is_err() && parts.check(&layout(2, 100), Rank(1)).is_ok());
        let error = Mesh::new(&ours, own, [(Rank(1), Some(Peer::Here(parts)))]).unwrap_err();
        let MeshError::Region { rank: Rank(1), part: "row", source: RegionError::Size { .. } } = error else {
            panic!("{error}");
        };
    }

    #[test]
    fn a_row_is_no_doorbell() {
        let layout = layout(2, 8);
        let (own, _) = create(&layout, 0);
        let (_row, RowDescriptors { row, event_count, .. }) = create(&layout, 1);
        let (_other, parts) = create(&layout, 1);
        let swapped = RowDescriptors { row: event_count, event_count: row, ..parts };
        assert!(swapped.check(&layout, Rank(1)).is_err());
        let error = Mesh::new(&layout, own, [(Rank(1), Some(Peer::Here(swapped)))]).unwrap_err();
        assert!(
            matches!(error, MeshError::Region { part: "row", source: RegionError::Unsealed { .. }, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_member_that_needs_fences_gets_them() {
        let layout = layout(2, 8);
        let (own, _) = create(&layout, 0);
        let (_row, parts) = create(&layout, 1);
        crate::event_count::pretend_fenced(&parts.event_count);
        let fabric = Mesh::new(&layout, own, [(Rank(1), Some(Peer::Here(parts)))]).unwrap();
        assert_eq!(fabric.barrier(), Barrier::Fence);
    }

    #[test]
    fn a_pipe_is_no_eventfd() {
        let layout = layout(2, 8);
        let (_row, parts) =
            OwnRow::create(&layout, Rank(1), &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap();
        assert!(parts.check(&layout, Rank(1)).is_ok());
        let wrong = RowDescriptors { event: Some(rustix::pipe::pipe().unwrap().1), ..parts.try_clone().unwrap() };
        assert!(matches!(wrong.check(&layout, Rank(1)), Err(MeshError::NoEvent { rank: Rank(1) })));
        let (own, _) = create(&layout, 0);
        Mesh::new(&layout, own, [(Rank(1), Some(Peer::Here(wrong)))]).unwrap_err();
        // An eventfd that would make its ringer wait.
        rustix::fs::fcntl_setfl(parts.event.as_ref().unwrap(), rustix::fs::OFlags::empty()).unwrap();
        assert!(matches!(parts.check(&layout, Rank(1)), Err(MeshError::NoEvent { rank: Rank(1) })));
    }
}
