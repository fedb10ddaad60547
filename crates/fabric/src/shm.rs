//! Members of one machine: every row is a memory segment of its owner, mapped read-only by everybody else.
//!
//! A store is a post, and reading my copy of a peer's row is reading the peer's row; no byte is copied, whatever the number
//! of members. `post` only wakes peers that sleep. How segments and doorbells travel between processes, and who finds out
//! that a member died, is not here: see [`OwnRow::create`] and [`mail`](crate::mail).
use crate::barrier::Barrier;
use crate::bell::{Announced, BELL_BYTES, Bell, Doorbell, describe};
use crate::fabric::Fabric;
use crate::life::{LIFE, has_ended};
use crate::publisher::Publisher;
use crate::reader::{Held, Reader, ReaderFrames};
use crate::region::{OwnRegion, PeerRegion, RegionError, SharedRegion};
use spindle_core::{Claims, Layout, Rank, Ring, Rows, Table};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// What wakes one member, in every view that it is in.
#[derive(Clone, Debug)]
pub struct MemberBell {
    region: Arc<SharedRegion>,
    fd: Arc<OwnedFd>,
}

/// My row and doorbell, before the peers are known.
#[derive(Debug)]
pub struct OwnRow {
    me: Rank,
    row: Arc<OwnRegion>,
    bell: Bell,
}

/// A row of an ended view whose ring applications of this process still use: what they commit there rings the member, too.
#[derive(Debug)]
pub struct Lingering {
    bell: Bell,
    announced: Option<Announced>,
}

/// What one member gives to all others: its row to read and its doorbell to ring.
#[derive(Debug)]
pub struct PeerParts {
    /// The segment of its row.
    pub row: OwnedFd,
    /// The segment of its doorbell.
    pub bell: OwnedFd,
}

/// The [`Fabric`] of members of one machine.
#[derive(Debug)]
pub struct ShmFabric {
    me: Rank,
    rows: ShmReader,
    row: Arc<OwnRegion>,
    bell: Bell,
    announced: Option<Announced>,
    lingering: Vec<Lingering>,
    /// By rank; none at my own.
    doorbells: Box<[Option<Doorbell>]>,
    /// The segments of these, in which their life lines stand.
    lives: Vec<(Rank, Arc<SharedRegion>)>,
    /// What serves for all of them.
    barrier: Barrier,
}

/// All rows of a view, to read.
pub type ShmReader = Reader;

/// Why a [`ShmFabric`] could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// A segment of a peer could not be used.
    #[error("the {part} of member {rank} can't be used: {source}")]
    Region {
        /// Whose.
        rank: Rank,
        /// "row" or "doorbell".
        part: &'static str,
        /// Why.
        source: RegionError,
    },
    /// The parts are not those of every other member of the view, once each.
    #[error("parts of member {rank} were given {times} times, to member {me}: one for each rank but the own is needed")]
    Parts {
        /// Whose parts.
        rank: Rank,
        /// How often they were there.
        times: u32,
        /// Who builds the fabric.
        me: Rank,
    },
}

impl MemberBell {
    /// A new one.
    ///
    /// # Errors
    /// As [`OwnRegion::create`].
    pub fn create() -> Result<MemberBell, RegionError> {
        let (region, fd) = SharedRegion::create("spindle-bell", BELL_BYTES)?;
        describe(&region);
        Ok(MemberBell { region: Arc::new(region), fd: Arc::new(fd) })
    }

    /// What tells that the thread has ended that [holds](crate::LifeLine) it.
    pub(crate) fn life(&self) -> &AtomicU32 {
        self.region.half_word(LIFE)
    }
}

/// The words of a member's own row.
#[derive(Clone, Debug)]
pub struct ControlBlock(Arc<OwnRegion>);

impl OwnRow {
    /// Creates the row of `me`, which is woken by `bell`, and what to give to every peer.
    ///
    /// # Errors
    /// As [`OwnRegion::create`], for my own rank.
    ///
    /// # Panics
    /// If `me` is not in `layout`.
    pub fn create(layout: &Layout, me: Rank, bell: &MemberBell) -> Result<(OwnRow, PeerParts), ShmError> {
        let size = layout.row(me);
        let of = |part| move |source| ShmError::Region { rank: me, part, source };
        let (row, row_fd) =
            OwnRegion::create(&format!("spindle-row-{me}"), size.size, size.control).map_err(of("row"))?;
        let os = |source| RegionError::Os { call: "dup", name: "a doorbell".to_string(), source };
        let bell_fd = bell.fd.try_clone().map_err(|error| of("doorbell")(os(error)))?;
        let row = Arc::new(row);
        let bell = Bell::of_member(row.clone(), bell.region.clone());
        Ok((OwnRow { me, row, bell }, PeerParts { row: row_fd, bell: bell_fd }))
    }

    /// Its control block, which others may read already when the fabric can't be made.
    pub fn control_block(&self) -> ControlBlock {
        ControlBlock(self.row.clone())
    }

    /// What rings this member, for threads that must be able to before the fabric is made.
    pub fn doorbell(&self) -> Doorbell {
        self.bell.doorbell()
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

impl PeerParts {
    /// Copies of the descriptors, for another peer.
    ///
    /// # Errors
    /// When the process has too many.
    pub fn try_clone(&self) -> io::Result<PeerParts> {
        Ok(PeerParts { row: self.row.try_clone()?, bell: self.bell.try_clone()? })
    }

    /// Whether these are what the member `rank` of a view of this layout has to give.
    ///
    /// # Errors
    /// [`ShmError::Region`]: the segment that is none, and why.
    ///
    /// # Panics
    /// If `rank` is not in `layout`.
    pub fn check(&self, layout: &Layout, rank: Rank) -> Result<(), ShmError> {
        let of = |part| move |source| ShmError::Region { rank, part, source };
        PeerRegion::check("a peer's row", &self.row, layout.row(rank).size).map_err(of("row"))?;
        SharedRegion::check("a peer's doorbell", &self.bell, BELL_BYTES).map_err(of("doorbell"))
    }
}

impl ShmFabric {
    /// The fabric of the member that owns `own`, over the parts of every other member of the view, in any order. A member that
    /// never came (`None`) has a row of zeros, and nothing wakes it.
    ///
    /// # Errors
    /// [`ShmError`]: parts that are missing or there twice, or a segment that is not what the layout says.
    ///
    /// # Panics
    /// If `own` was made for another layout.
    pub fn new(
        layout: &Layout,
        own: OwnRow,
        parts: impl IntoIterator<Item = (Rank, Option<PeerParts>)>,
    ) -> Result<ShmFabric, ShmError> {
        let OwnRow { me, row, bell } = own;
        assert_eq!(row.size(), layout.row(me).size, "the row was made for another layout");
        let members = layout.rows().len();
        let mut by_rank: Vec<Option<Option<PeerParts>>> = (0..members).map(|_| None).collect();
        for (rank, parts) in parts {
            match by_rank.get_mut(rank.index()) {
                Some(slot @ None) if rank != me => *slot = Some(parts),
                Some(Some(_)) => return Err(ShmError::Parts { rank, times: 2, me }),
                _ => return Err(ShmError::Parts { rank, times: 1, me }),
            }
        }
        let mut rows = Vec::with_capacity(members);
        let mut doorbells = Vec::with_capacity(members);
        let mut lives = Vec::new();
        for (rank, parts) in (0..).map(Rank).zip(by_rank) {
            if rank == me {
                rows.push(Held::Own(row.clone()));
                doorbells.push(None);
                continue;
            }
            let row = match parts.ok_or(ShmError::Parts { rank, times: 0, me })? {
                Some(parts) => {
                    let (row, bell) = open(layout, rank, &parts)?;
                    doorbells.push(Some(Doorbell::of_peer(row.clone(), bell.clone())));
                    lives.push((rank, bell));
                    row
                }
                None => {
                    let zeros = PeerRegion::zeros("an absent peer's row", layout.row(rank).size);
                    doorbells.push(None);
                    Arc::new(zeros.map_err(|source| ShmError::Region { rank, part: "row", source })?)
                }
            };
            rows.push(Held::Peer(row));
        }
        let barrier = doorbells.iter().flatten().map(Doorbell::barrier).fold(Barrier::register(), Barrier::joined);
        let (announced, lingering, doorbells) = (None, vec![], doorbells.into());
        let rows = Reader::of(rows);
        Ok(ShmFabric { me, rows, row, bell, announced, lingering, doorbells, lives, barrier })
    }

    /// Whose [life line](crate::LifeLine) is broken: they are dead, or dying, and tell nobody else yet.
    pub fn dying(&self) -> impl Iterator<Item = Rank> + '_ {
        self.lives.iter().filter(|(_, bell)| has_ended(bell.half_word(LIFE))).map(|(rank, _)| *rank)
    }

    /// What is left of this view for as long as applications of this process still use its rings.
    pub fn linger(&self) -> Lingering {
        Lingering::of(&self.bell)
    }

    /// Listens to those who still use rings of ended views.
    pub fn listen_to(&mut self, lingering: Vec<Lingering>) {
        self.end_sleep();
        self.lingering = lingering;
    }

    /// Takes back what [`listen_to`](Self::listen_to) was given.
    pub fn take_lingering(&mut self) -> Vec<Lingering> {
        self.end_sleep();
        std::mem::take(&mut self.lingering)
    }
}

impl Fabric for ShmFabric {
    type Reader = ShmReader;

    fn me(&self) -> Rank {
        self.me
    }

    fn members(&self) -> u32 {
        self.rows.members()
    }

    fn reader(&self) -> ShmReader {
        self.rows.clone()
    }

    fn doorbell(&self) -> Doorbell {
        self.bell.doorbell()
    }

    fn begin_sleep(&mut self) {
        if self.announced.is_none() {
            self.lingering.iter_mut().for_each(Lingering::announce);
            self.announced = Some(self.bell.announce());
        }
    }

    fn sleep(&mut self, at_most: Duration) -> bool {
        let announced =
            self.announced.take().expect("sleep without begin_sleep: what arrived before it would be missed");
        let rung = self.bell.wait(announced, at_most);
        self.lingering.iter_mut().for_each(Lingering::withdraw);
        rung
    }

    fn end_sleep(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.bell.withdraw(announced);
            self.lingering.iter_mut().for_each(Lingering::withdraw);
        }
    }

    fn publisher(&self, claims: Arc<Claims>) -> Publisher {
        Publisher::new(&self.row, claims, self.bell.doorbell())
    }
}

impl Lingering {
    pub(crate) fn of(bell: &Bell) -> Lingering {
        Lingering { bell: bell.clone(), announced: None }
    }

    /// Listens there as well. The bell itself is announced after this.
    pub(crate) fn announce(&mut self) {
        self.announced = Some(self.bell.announce_too());
    }

    pub(crate) fn withdraw(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.bell.withdraw(announced);
        }
    }
}

impl Drop for ShmFabric {
    fn drop(&mut self) {
        // Peers would go on ringing for nobody.
        self.end_sleep();
    }
}

impl Rows for ShmFabric {
    #[inline]
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.rows.load(member, at)
    }

    #[inline]
    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.rows.bytes(member, at, len)
    }

    type Frames<'a> = ReaderFrames<'a>;

    #[inline]
    fn frames(&self, member: Rank, ring: &Ring) -> ReaderFrames<'_> {
        self.rows.frames(member, ring)
    }
}

impl Table for ShmFabric {
    #[inline]
    fn store(&mut self, at: u64, value: u64) {
        self.row.store(at, value);
    }

    #[inline]
    fn stamp(&mut self, ring: &Ring, position: u64, round: u64) {
        self.row.stamp(ring, position, round);
    }

    #[inline]
    fn post(&mut self, peers: &[Rank], _: Range<u64>) {
        // After the stores that the peers should find, whoever made them: they happened before this call.
        self.barrier.light();
        for peer in peers {
            if let Some(doorbell) = &self.doorbells[peer.index()] {
                doorbell.ring_unfenced();
            }
        }
    }
}

impl ShmReader {
    /// The rows of a view for somebody who is no member of it: of each member, in the order of the ranks, its row, or zeros if it
    /// never came.
    ///
    /// # Errors
    /// [`ShmError`].
    ///
    /// # Panics
    /// If there is not one entry for each member.
    pub fn of_others(layout: &Layout, parts: Vec<Option<PeerParts>>) -> Result<ShmReader, ShmError> {
        assert_eq!(parts.len(), layout.rows().len(), "one entry for each member");
        let mut rows = Vec::with_capacity(parts.len());
        for (rank, parts) in (0..).map(Rank).zip(parts) {
            let size = layout.row(rank).size;
            let row = match parts {
                Some(parts) => PeerRegion::open("a member's row", &parts.row, size),
                None => PeerRegion::zeros("an absent member's row", size),
            };
            let row = row.map_err(|source| ShmError::Region { rank, part: "row", source })?;
            rows.push(Held::Peer(Arc::new(row)));
        }
        Ok(Reader::of(rows))
    }
}

fn open(layout: &Layout, rank: Rank, parts: &PeerParts) -> Result<(Arc<PeerRegion>, Arc<SharedRegion>), ShmError> {
    let of = |part| move |source| ShmError::Region { rank, part, source };
    let row = PeerRegion::open("a peer's row", &parts.row, layout.row(rank).size).map_err(of("row"))?;
    let bell = SharedRegion::open("a peer's doorbell", &parts.bell, BELL_BYTES).map_err(of("doorbell"))?;
    Ok((Arc::new(row), Arc::new(bell)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::view;

    fn layout(members: u32, window: u64) -> Layout {
        Layout::new(&view(members, window)).unwrap()
    }

    fn create(layout: &Layout, rank: u32) -> (OwnRow, PeerParts) {
        OwnRow::create(layout, Rank(rank), &MemberBell::create().unwrap()).unwrap()
    }

    #[test]
    fn each_other_member_is_needed_once() {
        let layout = layout(3, 8);
        let (_row, parts) = create(&layout, 1);
        for (given, rank, times) in
            [(vec![], 1, 0), (vec![1], 2, 0), (vec![1, 1], 1, 2), (vec![0], 0, 1), (vec![1, 2, 3], 3, 1)]
        {
            let (own, _) = create(&layout, 0);
            let given = given.into_iter().map(|rank| (Rank(rank), Some(parts.try_clone().unwrap())));
            let error = ShmFabric::new(&layout, own, given).unwrap_err();
            assert!(
                matches!(error, ShmError::Parts { rank: r, times: t, me: Rank(0) } if (r.0, t) == (rank, times)),
                "{error}"
            );
        }
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
        let fabric = ShmFabric::new(&layout, row, [(Rank(1), None)]).unwrap();
        assert_eq!(fabric.load(Rank(0), control - 8), 7);
        assert!((control..layout.row(Rank(0)).size).step_by(8).all(|at| fabric.load(Rank(0), at) == 0));
    }

    #[test]
    fn a_row_of_another_layout_is_refused() {
        let ours = layout(2, 8);
        let (own, _) = create(&ours, 0);
        let (_row, parts) = create(&layout(2, 100), 1);
        assert!(parts.check(&ours, Rank(1)).is_err() && parts.check(&layout(2, 100), Rank(1)).is_ok());
        let error = ShmFabric::new(&ours, own, [(Rank(1), Some(parts))]).unwrap_err();
        let ShmError::Region { rank: Rank(1), part: "row", source: RegionError::Size { .. } } = error else {
            panic!("{error}");
        };
    }

    #[test]
    fn a_row_is_no_doorbell() {
        let layout = layout(2, 8);
        let (own, _) = create(&layout, 0);
        let (_row, PeerParts { row, bell }) = create(&layout, 1);
        let swapped = PeerParts { row: bell, bell: row };
        assert!(swapped.check(&layout, Rank(1)).is_err());
        let error = ShmFabric::new(&layout, own, [(Rank(1), Some(swapped))]).unwrap_err();
        assert!(matches!(error, ShmError::Region { part: "row", source: RegionError::Unsealed { .. }, .. }), "{error}");
    }

    #[test]
    fn who_never_came_has_a_row_of_zeros() {
        let layout = layout(2, 8);
        let (own, _) = create(&layout, 0);
        let mut fabric = ShmFabric::new(&layout, own, [(Rank(1), None)]).unwrap();
        assert!((0..layout.row(Rank(1)).size).step_by(8).all(|at| fabric.load(Rank(1), at) == 0));
        fabric.post(&[Rank(1)], 0..64);
    }

    /// An application that has not noticed the new view commits in the old ring, and the member sleeps in the new one.
    #[test]
    fn a_ring_of_an_ended_view_wakes_its_member_still() {
        let layout = layout(1, 8);
        let bell = MemberBell::create().unwrap();
        let fabric = || ShmFabric::new(&layout, OwnRow::create(&layout, Rank(0), &bell).unwrap().0, []).unwrap();
        let (old, mut new) = (fabric(), fabric());
        let (stale, lingering) = (old.doorbell(), old.linger());
        drop(old);
        new.begin_sleep();
        assert!(!stale.ring(), "nobody listens there yet");
        new.listen_to(vec![lingering]);
        for _ in 0..2 {
            new.begin_sleep();
            assert!(stale.ring());
            assert!(new.sleep(Duration::from_secs(60)));
            assert!(!stale.ring(), "it is awake");
        }
    }

    #[test]
    fn a_member_that_needs_fences_gets_them() {
        let layout = layout(2, 8);
        let (own, _) = create(&layout, 0);
        let (_row, parts) = create(&layout, 1);
        crate::bell::pretend_fenced(&parts.bell);
        let fabric = ShmFabric::new(&layout, own, [(Rank(1), Some(parts))]).unwrap();
        assert_eq!(fabric.barrier, Barrier::Fence);
    }
}
