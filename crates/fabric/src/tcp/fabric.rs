//! The [`Fabric`] of members on different machines.
use super::error::{Down, TcpError};
use super::links::{Links, Traffic};
use super::stream::Connection;
use super::wire::ROW_BYTES_MAX;
use crate::bell::{Announced, Bell, Doorbell, EventBell};
use crate::fabric::Fabric;
use crate::publisher::Publisher;
use crate::reader::{Held, Reader, ReaderFrames};
use crate::region::{CopyRegion, OwnRegion, PeerRegion};
use crate::shm::Lingering;
use spindle_core::{Claims, Layout, Rank, Ring, Rows, Table};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One member's side of streams to all others, for one view.
///
/// Nothing moves but in [`progress`](Fabric::progress), in [`post`](Table::post) (a post of control words is sent at once, if
/// the system takes it) and before a sleep.
#[derive(Debug)]
pub struct TcpFabric {
    me: Rank,
    rows: Reader,
    row: Arc<OwnRegion>,
    bell: Bell,
    announced: Option<Announced>,
    lingering: Vec<Lingering>,
    links: Links,
    /// Whether something has arrived since sleep was announced.
    arrived: bool,
}

impl TcpFabric {
    /// The fabric of the member `me`, whom `bell` wakes, over a stream to every other member of the view, in any order. A member that
    /// never came (`None`) has a row of zeros. The first byte on each stream belongs to this view.
    ///
    /// # Errors
    /// [`TcpError`]: no memory, or streams that are missing or there twice.
    ///
    /// # Panics
    /// If `me` is not in `layout`.
    pub fn new(
        layout: &Layout,
        me: Rank,
        bell: &EventBell,
        streams: impl IntoIterator<Item = (Rank, Option<Connection>)>,
    ) -> Result<TcpFabric, TcpError> {
        let mut by_rank: Vec<Option<Option<Connection>>> = layout.rows().iter().map(|_| None).collect();
        for (rank, stream) in streams {
            match by_rank.get_mut(rank.index()) {
                Some(slot @ None) if rank != me => *slot = Some(stream),
                Some(Some(_)) => return Err(TcpError::Connections { rank, times: 2, me }),
                _ => return Err(TcpError::Connections { rank, times: 1, me }),
            }
        }
        let size = layout.row(me);
        let row = OwnRegion::on_heap(&format!("the row of member {me}"), size.size, size.control);
        let row = Arc::new(row.map_err(|source| TcpError::Region { rank: me, source })?);
        let mut rows = Vec::with_capacity(by_rank.len());
        let mut peers = Vec::with_capacity(by_rank.len());
        for (rank, stream) in (0..).map(Rank).zip(by_rank) {
            let bytes = layout.row(rank).size;
            if bytes > ROW_BYTES_MAX {
                return Err(TcpError::TooLong { rank, bytes, max: ROW_BYTES_MAX });
            }
            let of = |source| TcpError::Region { rank, source };
            if rank == me {
                rows.push(Held::Own(row.clone()));
                peers.push(None);
            } else if let Some(stream) = stream.ok_or(TcpError::Connections { rank, times: 0, me })? {
                let copy = CopyRegion::on_heap(&format!("the copy of the row of member {rank}"), bytes);
                let copy = Arc::new(copy.map_err(of)?);
                rows.push(Held::Copy(copy.clone()));
                peers.push(Some((stream, copy)));
            } else {
                rows.push(Held::Peer(Arc::new(PeerRegion::zeros("an absent peer's row", bytes).map_err(of)?)));
                peers.push(None);
            }
        }
        let links = Links::new(layout, me, bell, peers)?;
        let bell = Bell::of_waiter(row.clone(), bell);
        let rows = Reader::of(rows);
        Ok(TcpFabric { me, rows, row, bell, announced: None, lingering: vec![], links, arrived: false })
    }

    /// A peer from whom nothing more will arrive, and why; each is told once.
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.links.next_down()
    }

    /// Whether there is a connection to `peer`.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_connected(&self, peer: Rank) -> bool {
        self.links.is_open(peer)
    }

    /// What went over the connection to `peer`, if there is one.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn traffic(&self, peer: Rank) -> Option<Traffic> {
        self.links.traffic(peer)
    }

    /// Ends the connections in order: sends what is posted, tells the peers, and waits until they have closed, too, `at_most` that
    /// long. Then everything has arrived, which is what the answer says. (Were a connection closed while bytes of the peer are still on
    /// their way, the system would cut it off, and what is on its way to the peer could be lost.)
    pub fn finish(mut self, at_most: Duration) -> bool {
        let start = Instant::now();
        let mut told = false;
        loop {
            self.links.progress(&self.row);
            if self.links.open() == 0 {
                return told;
            }
            if !told && self.links.is_flushed() {
                self.links.finish();
                told = true;
            }
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            self.links.wait(left);
            self.bell.clear();
        }
    }

    /// What is left of this view for as long as applications of this process still use its rings.
    pub fn linger(&self) -> Lingering {
        Lingering::of(&self.bell)
    }

    /// Listens to those who still use rings of ended views, in which the same bell woke this member.
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

impl Fabric for TcpFabric {
    type Reader = Reader;

    fn me(&self) -> Rank {
        self.me
    }

    fn members(&self) -> u32 {
        self.rows.members()
    }

    fn reader(&self) -> Reader {
        self.rows.clone()
    }

    fn doorbell(&self) -> Doorbell {
        self.bell.doorbell()
    }

    #[inline]
    fn progress(&mut self) -> bool {
        let (sent, arrived) = self.links.progress(&self.row);
        self.arrived |= arrived;
        sent | arrived
    }

    fn is_flushed(&self) -> bool {
        self.links.is_flushed()
    }

    fn begin_sleep(&mut self) {
        if self.announced.is_none() {
            self.arrived = false;
            self.lingering.iter_mut().for_each(Lingering::announce);
            self.announced = Some(self.bell.announce());
        }
    }

    fn sleep(&mut self, at_most: Duration) -> bool {
        let announced =
            self.announced.take().expect("sleep without begin_sleep: what arrived before it would be missed");
        self.links.flush(&self.row);
        let mut rung = self.bell.is_rung(&announced);
        let mut arrived = self.arrived;
        if !rung && !arrived {
            arrived = self.links.wait(at_most);
            rung = self.bell.is_rung(&announced);
        }
        // Also if it was neither: it may have been woken by a ring that was late for an earlier sleep.
        if rung || !arrived {
            self.bell.clear();
        }
        self.bell.withdraw(announced);
        self.lingering.iter_mut().for_each(Lingering::withdraw);
        rung || arrived
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

impl Drop for TcpFabric {
    fn drop(&mut self) {
        self.end_sleep();
        // As much of `finish` as needs no waiting.
        self.links.progress(&self.row);
        self.links.finish();
        self.links.progress(&self.row);
    }
}

impl Rows for TcpFabric {
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

impl Table for TcpFabric {
    #[inline]
    fn store(&mut self, at: u64, value: u64) {
        self.row.store(at, value);
    }

    #[inline]
    fn stamp(&mut self, ring: &Ring, position: u64, round: u64) {
        self.row.stamp(ring, position, round);
    }

    /// As there.
    ///
    /// # Panics
    /// If the range is not of whole words, or not inside my row.
    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        let whole = range.start.is_multiple_of(8) && range.end.is_multiple_of(8);
        assert!(whole && range.end <= self.row.size(), "{range:?} is not of whole words, or outside my row");
        if range.is_empty() {
            return;
        }
        let control = self.row.control();
        let words = range.start.min(control)..range.end.min(control);
        let frames = range.start.max(control)..range.end.max(control);
        self.links.post(&self.row, peers, words, frames);
    }
}
