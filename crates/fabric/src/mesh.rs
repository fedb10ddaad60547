//! The [`Fabric`] of a group's member: to each peer by the memory that both share, if they are on one machine, and over a stream if not.
//!
//! - *A peer that is [here](Peer::Here)* maps my row and I map its row. A store is a post, and reading my copy of its row is reading
//!   its row; no byte is copied, whatever the number of members. A post only wakes it, if it sleeps ([`shm`](crate::shm)).
//! - *A peer that is [there](Peer::There)* has a copy of my row, and I have a copy of its. A post goes over the stream, and what arrives
//!   is put into the copy by [`progress`](Fabric::progress) ([`tcp`](crate::tcp)).
//!
//! Nothing else tells the two apart: not the engine, not publishers, not readers. A mesh without streams makes no system calls but to sleep and
//! to wake; one with streams sleeps in the system's wait for descriptors, and peers that are here wake it by its eventfd.
use crate::barrier::Barrier;
use crate::bell::{Announced, Bell, Doorbell};
use crate::fabric::Fabric;
use crate::life::{LIFE, has_ended};
use crate::publisher::Publisher;
use crate::reader::{Held, Reader, ReaderFrames};
use crate::region::{CopyRegion, OwnRegion, PeerRegion, RegionError, SharedRegion};
use crate::shm::{OwnRow, PeerParts};
use crate::tcp::{Connection, Down, Links, ROW_BYTES_MAX, Traffic};
use spindle_core::{Claims, Layout, Rank, Ring, Rows, Table};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The way to one peer.
#[derive(Debug)]
pub enum Peer {
    /// It is on this machine, and these are its row and doorbell.
    Here(PeerParts),
    /// It is on another, and this is a stream to it, whose first byte belongs to the view.
    There(Connection),
}

/// One member's side of the ways to all others, for one view.
///
/// Over streams nothing moves but in [`progress`](Fabric::progress), in [`post`](Table::post) (a post of control words is sent at once,
/// if the system takes it) and before a sleep.
#[derive(Debug)]
pub struct Mesh {
    me: Rank,
    rows: Reader,
    row: Arc<OwnRegion>,
    bell: Bell,
    announced: Option<Announced>,
    lingering: Vec<Lingering>,
    /// By rank; none at my own, and of peers that are not here.
    doorbells: Box<[Option<Doorbell>]>,
    /// The segments of these, in which their life lines stand.
    lives: Vec<(Rank, Arc<SharedRegion>)>,
    /// What serves for all of them.
    barrier: Barrier,
    /// To those who are not here, if there are any.
    links: Option<Links>,
    /// Whether something has arrived since sleep was announced.
    arrived: bool,
}

/// A row of an ended view whose ring applications of this process still use: what they commit there rings the member, too.
#[derive(Debug)]
pub struct Lingering {
    bell: Bell,
    announced: Option<Announced>,
}

/// The streams of a view that is over: what was posted is still on its way, and peers may not have said all.
#[derive(Debug)]
pub struct Retired {
    links: Links,
    row: Arc<OwnRegion>,
    told: bool,
}

/// Why a [`Mesh`] could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A segment of a peer could not be used, or there is no memory for one of ours.
    #[error("the {part} of member {rank} can't be used: {source}")]
    Region {
        /// Whose.
        rank: Rank,
        /// "row" or "doorbell".
        part: &'static str,
        /// Why.
        source: RegionError,
    },
    /// A peer's doorbell came with a descriptor that is no eventfd, or one that waits.
    #[error("the doorbell of member {rank} can't be used: it came with a descriptor that is no non-blocking eventfd")]
    NoEvent {
        /// Whose.
        rank: Rank,
    },
    /// The peers are not all the other members of the view, once each.
    #[error(
        "the way to member {rank} was given {times} times, to member {me}: one for each rank but the own is needed"
    )]
    Peers {
        /// Which peer.
        rank: Rank,
        /// How often it was there.
        times: u32,
        /// Who builds the mesh.
        me: Rank,
    },
    /// A row is longer than what is posted over streams can say.
    #[error(
        "the row of member {rank} has {bytes} bytes and {max} can be posted over a network: lower window or message_bytes_max"
    )]
    TooLong {
        /// Whose row.
        rank: Rank,
        /// Bytes by the layout.
        bytes: u64,
        /// Bytes that are possible.
        max: u64,
    },
    /// A system call failed.
    #[error("{call} failed: {source}; raise the limit of open files if it was that (ulimit -n)")]
    Os {
        /// The call.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Mesh {
    /// The fabric of the member that owns `own`, over the ways to every other member of the view, in any order. A member that
    /// never came (`None`) has a row of zeros, and nothing wakes it.
    ///
    /// # Errors
    /// [`MeshError`]: peers that are missing or there twice, a segment that is not what the layout says, no memory for copies.
    ///
    /// # Panics
    /// If `own` was made for another layout, or, with peers that are [there](Peer::There), with a bell
    /// [without an eventfd](crate::MemberBell::with_event).
    pub fn new(
        layout: &Layout,
        own: OwnRow,
        peers: impl IntoIterator<Item = (Rank, Option<Peer>)>,
    ) -> Result<Mesh, MeshError> {
        let OwnRow { me, row, bell } = own;
        assert_eq!(row.size(), layout.row(me).size, "the row was made for another layout");
        let mut rows = Vec::with_capacity(layout.rows().len());
        let mut doorbells = Vec::with_capacity(layout.rows().len());
        let mut streams = Vec::with_capacity(layout.rows().len());
        let mut lives = Vec::new();
        for (rank, peer) in (0..).map(Rank).zip(by_rank(layout, me, peers)?) {
            let bytes = layout.row(rank).size;
            let of = |source| MeshError::Region { rank, part: "row", source };
            let (mut ring, mut stream) = (None, None);
            rows.push(match peer {
                _ if rank == me => Held::Own(row.clone()),
                Some(Peer::Here(parts)) => {
                    let (row, bell, doorbell) = parts.open(layout, rank)?;
                    ring = Some(doorbell);
                    lives.push((rank, bell));
                    Held::Peer(row)
                }
                Some(Peer::There(connection)) => {
                    for (rank, bytes) in [(me, row.size()), (rank, bytes)] {
                        if bytes > ROW_BYTES_MAX {
                            return Err(MeshError::TooLong { rank, bytes, max: ROW_BYTES_MAX });
                        }
                    }
                    let name = format!("the copy of the row of member {rank}");
                    let copy = Arc::new(CopyRegion::on_heap(&name, bytes).map_err(of)?);
                    stream = Some((connection, copy.clone()));
                    Held::Copy(copy)
                }
                None => Held::Peer(Arc::new(PeerRegion::zeros("an absent peer's row", bytes).map_err(of)?)),
            });
            doorbells.push(ring);
            streams.push(stream);
        }
        let links = match streams.iter().any(Option::is_some) {
            true => {
                let event = bell.event().expect("a member with peers on other machines needs a bell with an eventfd");
                let os = |(call, source)| MeshError::Os { call, source };
                Some(Links::new(layout, me, event, streams).map_err(os)?)
            }
            false => None,
        };
        let barrier = doorbells.iter().flatten().map(Doorbell::barrier).fold(Barrier::register(), Barrier::joined);
        let (announced, lingering, arrived) = (None, vec![], false);
        let (rows, doorbells) = (Reader::of(rows), doorbells.into());
        Ok(Mesh { me, rows, row, bell, announced, lingering, doorbells, lives, barrier, links, arrived })
    }

    /// Whose [life line](crate::LifeLine) is broken: they are dead, or dying, and tell nobody else yet.
    pub fn dying(&self) -> impl Iterator<Item = Rank> + '_ {
        self.lives.iter().filter(|(_, bell)| has_ended(bell.half_word(LIFE))).map(|(rank, _)| *rank)
    }

    /// A peer from whose stream nothing more will arrive, and why; each is told once.
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.links.as_mut()?.next_down()
    }

    /// Whether `peer` has a stream, which is open.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_connected(&self, peer: Rank) -> bool {
        self.links.as_ref().is_some_and(|links| links.is_open(peer))
    }

    /// What went over the stream to `peer`, if it has one.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn traffic(&self, peer: Rank) -> Option<Traffic> {
        self.links.as_ref()?.traffic(peer)
    }

    /// Ends the view, and hands out its streams, if there are any, which need some more [progress](Retired::progress): what was posted
    /// is still to be sent.
    pub fn retire(mut self) -> Option<Retired> {
        let links = self.links.take()?;
        Some(Retired { links, row: self.row.clone(), told: false })
    }

    /// Ends the view in order, as [`retire`](Self::retire), and waits `at_most` that long until every peer has closed its stream, too. Then
    /// everything has arrived, which is what the answer says.
    pub fn finish(self, at_most: Duration) -> bool {
        let start = Instant::now();
        let Some(mut retired) = self.retire() else { return true };
        let all = retired.links.open() > 0;
        while !retired.progress() {
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            retired.links.wait(left);
        }
        all
    }

    /// What is left of this view for as long as applications of this process still use its rings.
    pub fn linger(&self) -> Lingering {
        Lingering { bell: self.bell.clone(), announced: None }
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

    #[cfg(test)]
    pub(crate) fn barrier(&self) -> Barrier {
        self.barrier
    }
}

/// The ways to all members, by rank.
fn by_rank(
    layout: &Layout,
    me: Rank,
    peers: impl IntoIterator<Item = (Rank, Option<Peer>)>,
) -> Result<Vec<Option<Peer>>, MeshError> {
    let mut by_rank: Vec<Option<Option<Peer>>> = layout.rows().iter().map(|_| None).collect();
    by_rank[me.index()] = Some(None);
    for (rank, peer) in peers {
        match by_rank.get_mut(rank.index()) {
            Some(slot @ None) => *slot = Some(peer),
            Some(Some(_)) if rank != me => return Err(MeshError::Peers { rank, times: 2, me }),
            _ => return Err(MeshError::Peers { rank, times: 1, me }),
        }
    }
    let each = |(rank, peer): (Rank, Option<_>)| peer.ok_or(MeshError::Peers { rank, times: 0, me });
    (0..).map(Rank).zip(by_rank).map(each).collect()
}

impl Retired {
    /// Sends on what waits, and takes in what arrives; then tells the peers that nothing more comes, and says whether they all have
    /// closed, too. Until then the streams must be kept: were one closed while bytes of the peer are still on their way, the system would
    /// cut it off, and what is on its way to the peer could be lost.
    pub fn progress(&mut self) -> bool {
        self.links.progress(&self.row);
        if !self.told && self.links.is_flushed() {
            self.links.finish();
            self.told = true;
        }
        self.links.open() == 0
    }
}

impl Fabric for Mesh {
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
        let Some(links) = &mut self.links else { return false };
        let (sent, arrived) = links.progress(&self.row);
        self.arrived |= arrived;
        sent | arrived
    }

    fn is_flushed(&self) -> bool {
        self.links.as_ref().is_none_or(Links::is_flushed)
    }

    fn begin_sleep(&mut self) {
        if self.announced.is_none() {
            self.arrived = false;
            self.lingering.iter_mut().for_each(Lingering::announce);
            self.announced =
                Some(if self.links.is_some() { self.bell.announce_for_event() } else { self.bell.announce() });
        }
    }

    fn sleep(&mut self, at_most: Duration) -> bool {
        let announced =
            self.announced.take().expect("sleep without begin_sleep: what arrived before it would be missed");
        let woken = match &mut self.links {
            None => self.bell.wait(announced, at_most),
            Some(links) => {
                links.flush(&self.row);
                let mut rung = self.bell.is_rung(&announced);
                let mut arrived = self.arrived;
                if !rung && !arrived {
                    arrived = links.wait(at_most);
                    rung = self.bell.is_rung(&announced);
                }
                // Also if it was neither: it may have been woken by a ring that was late for an earlier sleep.
                if rung || !arrived {
                    self.bell.clear();
                }
                self.bell.withdraw(announced);
                rung || arrived
            }
        };
        self.lingering.iter_mut().for_each(Lingering::withdraw);
        woken
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
    /// Listens there as well. The bell itself is announced after this.
    fn announce(&mut self) {
        self.announced = Some(self.bell.announce_too());
    }

    fn withdraw(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.bell.withdraw(announced);
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        // Peers would go on ringing for nobody.
        self.end_sleep();
        if let Some(links) = &mut self.links {
            // As much of `finish` as needs no waiting.
            links.progress(&self.row);
            links.finish();
            links.progress(&self.row);
        }
    }
}

impl Rows for Mesh {
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

impl Table for Mesh {
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
    /// If there are streams, and the range is not of whole words, or not inside my row.
    #[inline]
    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        // After the stores that the peers should find, whoever made them: they happened before this call.
        self.barrier.light();
        for peer in peers {
            if let Some(doorbell) = &self.doorbells[peer.index()] {
                doorbell.ring_unfenced();
            }
        }
        if let Some(links) = &mut self.links {
            links.post(&self.row, peers, range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{PATIENCE, view};
    use crate::shm::MemberBell;

    fn own(layout: &Layout, rank: u32) -> (OwnRow, PeerParts) {
        OwnRow::create(layout, Rank(rank), &MemberBell::create().unwrap()).unwrap()
    }

    #[test]
    fn each_other_member_is_needed_once() {
        let layout = Layout::new(&view(3, 8)).unwrap();
        let (_row, parts) = own(&layout, 1);
        for (given, rank, times) in
            [(vec![], 1, 0), (vec![1], 2, 0), (vec![1, 1], 1, 2), (vec![0], 0, 1), (vec![1, 2, 3], 3, 1)]
        {
            let given = given.into_iter().map(|rank| (Rank(rank), Some(Peer::Here(parts.try_clone().unwrap()))));
            let error = Mesh::new(&layout, own(&layout, 0).0, given).unwrap_err();
            assert!(
                matches!(error, MeshError::Peers { rank: r, times: t, me: Rank(0) } if (r.0, t) == (rank, times)),
                "{error}"
            );
        }
    }

    #[test]
    fn who_never_came_has_a_row_of_zeros() {
        let layout = Layout::new(&view(2, 8)).unwrap();
        let mut mesh = Mesh::new(&layout, own(&layout, 0).0, [(Rank(1), None)]).unwrap();
        assert!((0..layout.row(Rank(1)).size).step_by(8).all(|at| mesh.load(Rank(1), at) == 0));
        mesh.post(&[Rank(1)], 0..64);
        assert!(!mesh.is_connected(Rank(1)) && mesh.traffic(Rank(1)).is_none() && mesh.is_flushed());
        assert!(mesh.next_down().is_none() && mesh.retire().is_none());
    }

    /// An application that has not noticed the new view commits in the old ring, and the member sleeps in the new one.
    #[test]
    fn a_ring_of_an_ended_view_wakes_its_member_still() {
        let layout = Layout::new(&view(1, 8)).unwrap();
        let bell = MemberBell::create().unwrap();
        let mesh = || Mesh::new(&layout, OwnRow::create(&layout, Rank(0), &bell).unwrap().0, []).unwrap();
        let (old, mut new) = (mesh(), mesh());
        let (stale, lingering) = (old.doorbell(), old.linger());
        drop(old);
        new.begin_sleep();
        assert!(!stale.ring(), "nobody listens there yet");
        new.listen_to(vec![lingering]);
        for _ in 0..2 {
            new.begin_sleep();
            assert!(stale.ring());
            assert!(new.sleep(PATIENCE));
            assert!(!stale.ring(), "it is awake");
        }
        assert_eq!(new.take_lingering().len(), 1);
    }
}
