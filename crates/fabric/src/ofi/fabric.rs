//! The [`Fabric`] of members with RDMA hardware.
use super::error::OfiError;
use super::hello::Purpose;
use super::links::OfiLinks;
use super::port::{OfiAddress, OfiMeeting, OfiPeer, OfiPort};
use crate::bell::{Announced, Bell, Doorbell};
use crate::fabric::Fabric;
use crate::publisher::Publisher;
use crate::reader::{Held, Reader, ReaderFrames};
use crate::region::{CopyRegion, OwnRegion, PeerRegion};
use crate::shm::OwnRow;
use crate::tcp::{Down, Traffic};
use spindle_core::{Claims, Layout, Rank, Ring, Rows, Table};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One member's side of connections to all others, for one view.
///
/// Nothing moves but in [`progress`](Fabric::progress), in [`post`](Table::post) and before and in a sleep.
#[derive(Debug)]
pub struct OfiFabric {
    me: Rank,
    rows: Reader,
    row: Arc<OwnRegion>,
    bell: Bell,
    announced: Option<Announced>,
    links: OfiLinks,
    /// Whether something has arrived since sleep was announced.
    arrived: bool,
}

/// A fabric whose connections are being made.
#[derive(Debug)]
pub struct OfiForming {
    me: Rank,
    rows: Reader,
    row: Arc<OwnRegion>,
    bell: Bell,
    meeting: OfiMeeting,
}

impl OfiFabric {
    /// Begins to connect the member that owns `own`, at `port`, with every other member of the view, in any order, each of which does the same. A
    /// member that never came (`None`) has a row of zeros.
    ///
    /// # Errors
    /// No memory, or none that can be registered; peers that are missing or there twice, or with addresses that lead nowhere.
    ///
    /// # Panics
    /// If `own` was made for another layout, or with a bell [without an eventfd](crate::MemberBell::with_event).
    pub fn form(
        port: OfiPort,
        layout: &Layout,
        own: OwnRow,
        purpose: Purpose,
        peers: impl IntoIterator<Item = (Rank, Option<OfiAddress>)>,
    ) -> Result<OfiForming, OfiError> {
        let OwnRow { me, row, bell } = own;
        assert!(bell.event().is_some(), "a member with connections needs a bell with an eventfd");
        let mut by_rank: Vec<Option<Option<OfiAddress>>> = layout.rows().iter().map(|_| None).collect();
        for (rank, address) in peers {
            match by_rank.get_mut(rank.index()) {
                Some(slot @ None) if rank != me => *slot = Some(address),
                Some(Some(_)) => return Err(OfiError::Peers { rank, times: 2, me }),
                _ => return Err(OfiError::Peers { rank, times: 1, me }),
            }
        }
        let (mut rows, mut peers) = (Vec::with_capacity(by_rank.len()), vec![]);
        for (rank, address) in (0..).map(Rank).zip(by_rank) {
            let bytes = layout.row(rank).size;
            let of = |source| OfiError::Region { rank, source };
            if rank == me {
                rows.push(Held::Own(row.clone()));
            } else if let Some(address) = address.ok_or(OfiError::Peers { rank, times: 0, me })? {
                let copy = CopyRegion::on_heap(&format!("the copy of the row of member {rank}"), bytes);
                let copy = Arc::new(copy.map_err(of)?);
                rows.push(Held::Copy(copy.clone()));
                peers.push((rank, OfiPeer { address, copy }));
            } else {
                rows.push(Held::Peer(Arc::new(PeerRegion::zeros("an absent peer's row", bytes).map_err(of)?)));
            }
        }
        let meeting = port.meet(layout, me, purpose, row.clone(), peers)?;
        Ok(OfiForming { me, rows: Reader::of(rows), row, bell, meeting })
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
    /// long. Then everything has arrived, which is what the answer says.
    pub fn finish(mut self, at_most: Duration) -> bool {
        let start = Instant::now();
        let mut told = false;
        loop {
            self.links.progress();
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
            self.links.wait(left.min(LOOK_AGAIN));
            self.bell.clear();
        }
    }
}

/// How long a finish sleeps before it looks whether everything is on its way.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl OfiForming {
    /// Goes on, and says whether everybody is connected. It waits for nothing.
    ///
    /// # Errors
    /// As [`OfiMeeting::progress`].
    pub fn progress(&mut self) -> Result<bool, OfiError> {
        self.meeting.progress()
    }

    /// The meeting itself.
    pub fn meeting(&mut self) -> &mut OfiMeeting {
        &mut self.meeting
    }

    /// The fabric, once everybody is connected, which may take as long as `at_most`.
    ///
    /// # Errors
    /// As [`OfiMeeting::wait`].
    pub fn finish(mut self, at_most: Duration) -> Result<OfiFabric, OfiError> {
        self.meeting.wait(at_most)?;
        let OfiForming { me, rows, row, bell, meeting } = self;
        let links = meeting.links(bell.event())?;
        Ok(OfiFabric { me, rows, row, bell, announced: None, links, arrived: false })
    }
}

impl Fabric for OfiFabric {
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
        let (sent, arrived) = self.links.progress();
        self.arrived |= arrived;
        sent | arrived
    }

    fn is_flushed(&self) -> bool {
        self.links.is_flushed()
    }

    fn begin_sleep(&mut self) {
        if self.announced.is_none() {
            self.arrived = false;
            self.announced = Some(self.bell.announce_for_event());
        }
    }

    fn sleep(&mut self, at_most: Duration) -> bool {
        let announced =
            self.announced.take().expect("sleep without begin_sleep: what arrived before it would be missed");
        self.links.flush();
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
        rung || arrived
    }

    fn end_sleep(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.bell.withdraw(announced);
        }
    }

    fn publisher(&self, claims: Arc<Claims>) -> Publisher {
        Publisher::new(&self.row, claims, self.bell.doorbell())
    }
}

impl Drop for OfiFabric {
    fn drop(&mut self) {
        self.end_sleep();
    }
}

impl Rows for OfiFabric {
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

impl Table for OfiFabric {
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
        self.links.post(peers, words, frames);
    }
}
