//! The [`Fabric`](crate::Fabric) of a group's member: to each peer on the same machine by the
//! memory that both share, and to each other peer over a stream or another network's connection.
//!
//! - *A peer that is [here](Peer::Here)* maps my row and I map its row. A store is a post, and
//!   reading my copy of its row is reading its row; no byte is copied, whatever the number of
//!   members. A post only wakes the peer, if it sleeps ([`shm`](crate::shm)).
//! - *A peer that is [there](Peer::There)* has a copy of my row, and I have a copy of its. A post
//!   goes over the stream, and [`progress`](crate::Fabric::progress) puts arriving data into the
//!   copy ([`tcp`](crate::tcp)).
//! - *A peer that was [met](Mesh::over) over another network*, such as libfabric's, has such
//!   copies, too. [`Connections`] is the interface of that network, which another crate implements.
//!
//! Nothing else distinguishes them: neither the engine, nor publishers, nor readers do. A mesh of
//! peers that are here makes no system calls except to sleep and to wake. A mesh with others sleeps
//! in the system's wait for descriptors, and peers that are here wake it by its eventfd.
use crate::barrier::Barrier;
use crate::bulk::Object;
use crate::connections::{Connections, NoConnections};
use crate::event_count::{Doorbell, EventCount, LIFE};
use crate::far::Far;
use crate::life::has_ended;
use crate::log_clock::LogClock;
use crate::reader::{OwnRows, Reader, ReaderFrames, RowMemory};
use crate::readings::{Readings, RowReading};
use crate::region::{CopyRegion, OwnRegion, SharedRegion, VacantRegion};
use crate::shm::{OwnRow, RowDescriptors, ShownRow};
use crate::tcp::{ROW_BYTES_MAX, TcpLinks};
use spindle_core::wire::layout::membership;
use spindle_core::{Layout, Rank, Ring, Rows, Table, Trace};
use spindle_transport::Connection;
use std::ops::Range;
use std::sync::Arc;

mod network;
mod retired;
mod showing;
mod sleeper;
mod sleeping;
#[cfg(test)]
mod tests;
mod watched;

pub use crate::error::MeshError;
pub use retired::Retired;
pub use sleeper::Lingering;
use sleeper::Sleeper;
pub use watched::Watched;

/// The link to one peer.
#[derive(Debug)]
pub enum Peer {
    /// The peer is on this machine, and these are its row and doorbell.
    Here(RowDescriptors),
    /// The peer is on this machine, and this is its row, at the place where it was
    /// [shown](Mesh::shown).
    Shown(ShownRow),
    /// The peer is on another machine, and this is a stream to it, whose first byte belongs to the
    /// view.
    There(Connection),
}

impl Peer {
    /// Checks that this is the link of the member `rank` of a view of this layout, as far as can be
    /// seen.
    ///
    /// # Errors
    /// As [`RowDescriptors::check`].
    ///
    /// # Panics
    /// If `rank` is not in `layout`.
    pub fn check(&self, layout: &Layout, rank: Rank) -> Result<(), MeshError> {
        match self {
            Peer::Here(parts) => parts.check(layout, rank),
            Peer::Shown(row) => row.check(layout, rank),
            Peer::There(_) => Ok(()),
        }
    }
}

/// One member's side of the links to all others, for one view.
///
/// Data moves to other machines only in [`progress`](crate::Fabric::progress), in
/// [`post`](Table::post) (a post of control words is sent at once, if the system takes it) and
/// before a sleep.
#[derive(Debug)]
pub struct Mesh<C: Connections = NoConnections> {
    me: Rank,
    rows: Reader,
    row: Arc<OwnRegion>,
    event_count: EventCount,
    announced: Option<Sleeper>,
    lingering: Vec<Lingering>,
    /// By rank; `None` at my own rank and for peers that are not here.
    doorbells: Box<[Option<Doorbell>]>,
    /// The doorbell segments of peers that are here, which contain their liveness words.
    lives: Vec<(Rank, Arc<SharedRegion>)>,
    /// The peer at which the next look for [dying](Self::dying) ones starts.
    next_life: usize,
    /// The barrier that serves for all of them.
    barrier: Barrier,
    /// The links to peers that are not here.
    far: Far<C>,
    /// True if data has arrived since the sleep was begun.
    arrived: bool,
    readings: Arc<Readings>,
    /// As long as this lives, rows of the view are read, or may be.
    _reading: RowReading,
    /// Bytes of my row's membership block.
    membership: u64,
    /// True if words of peers' membership blocks may have moved, other than by stores of peers that
    /// are here.
    moved: bool,
    /// The number of times that data has arrived from peers that are not here.
    arrivals: u64,
    /// The clock of publishers.
    clock: LogClock,
}

/// The number of peers whose liveness words a look for [dying](Mesh::dying) ones reads. A word is a
/// cache line of another process: those of 200 peers take a member that wakes up 30 µs.
const LIVES_PER_LOOK: usize = 16;

impl Mesh {
    /// Creates the fabric of the member that owns `own`, over the links to every other member of
    /// the view, in any order. The row of a member that has not come (`None`) reads as zeros, and
    /// nothing wakes that member, until it is [attached](Self::attach).
    ///
    /// # Errors
    /// [`MeshError`]: peers that are missing or given twice, a segment that does not match the
    /// layout, no memory for copies.
    ///
    /// # Panics
    /// If `own` was made for another layout, or, with peers that are [there](Peer::There), with a
    /// event count [without an eventfd](crate::MemberEventCount::with_event).
    pub fn new(
        layout: &Layout,
        own: OwnRow,
        peers: impl IntoIterator<Item = (Rank, Option<Peer>)>,
    ) -> Result<Mesh, MeshError> {
        Mesh::over(layout, own, peers, None)
    }
}

impl<C: Connections> Mesh<C> {
    /// As [`new`](Mesh::new), with peers that were met over another network. Among `peers` they
    /// count as members that have not come. Others may be [met later](Self::meet).
    ///
    /// # Errors
    /// As [`new`](Mesh::new).
    ///
    /// # Panics
    /// As [`new`](Mesh::new), and if the meeting is that of another row, or the event count has no
    /// eventfd.
    pub fn over(
        layout: &Layout,
        own: OwnRow,
        peers: impl IntoIterator<Item = (Rank, Option<Peer>)>,
        meeting: Option<C>,
    ) -> Result<Mesh<C>, MeshError> {
        let OwnRow { me, row, event_count, mirror, readings } = own;
        assert_eq!(row.size(), layout.row(me).size, "the row was made for another layout");
        let mut rows = Vec::with_capacity(layout.rows().len());
        let mut doorbells = Vec::with_capacity(layout.rows().len());
        let mut streams = Vec::with_capacity(layout.rows().len());
        let mut lives = Vec::new();
        let event =
            || event_count.event().expect("a member with peers on other machines needs an event count with an eventfd");
        let mut connections = meeting;
        if let Some(connections) = &mut connections {
            connections.begin(event()).map_err(C::Error::into)?;
        }
        for (rank, peer) in (0..).map(Rank).zip(by_rank(layout, me, peers)?) {
            let bytes = layout.row(rank).size;
            let of = |source| MeshError::Region { rank, part: "row", source };
            let (mut ring, mut stream) = (None, None);
            if peer.is_some()
                && let Some(connections) = &mut connections
            {
                connections.leave_out(rank);
            }
            let near = match peer {
                Some(Peer::Here(parts)) => Ok(parts.open(layout, rank)?),
                Some(Peer::Shown(shown)) => Ok(shown.open(layout, rank)?),
                peer => Err(peer),
            };
            rows.push(match near {
                _ if rank == me => RowMemory::Own(row.clone()),
                Ok((theirs, event_count, doorbell)) => {
                    ring = Some(doorbell);
                    lives.push((rank, event_count));
                    set_bit(&row, membership::mapped(layout.rows().len()), rank);
                    RowMemory::Peer(theirs)
                }
                Err(Some(Peer::There(connection))) => {
                    check_length([(me, row.size()), (rank, bytes)])?;
                    let name = format!("the copy of the row of member {rank}");
                    let copy = mirror.copy(&name, bytes).map_err(of)?;
                    stream = Some((connection, copy.clone()));
                    RowMemory::Copy(copy)
                }
                Err(_) => match connections.as_ref().and_then(|connections| connections.copy(rank)) {
                    Some(copy) => RowMemory::Copy(copy.clone()),
                    None => RowMemory::Vacant(VacantRegion::new("an absent peer's row", bytes).map_err(of)?),
                },
            });
            doorbells.push(ring);
            streams.push(stream);
        }
        let os = |(call, source)| MeshError::Os { call, source };
        let streams = match streams.iter().any(Option::is_some) {
            true => Some(TcpLinks::new(layout, Some((me, &row)), Some(event()), streams).map_err(os)?),
            false => None,
        };
        let far = Far::new(streams, connections).map_err(|source| os(("epoll_ctl", source)))?;
        // The copies of connections were made before.
        mirror.trim();
        let barrier = doorbells.iter().flatten().map(Doorbell::barrier).fold(Barrier::register(), Barrier::joined);
        let (rows, doorbells) = (Reader::of(rows), doorbells.into());
        let mesh = Mesh {
            me,
            rows,
            row,
            event_count,
            announced: None,
            lingering: vec![],
            doorbells,
            lives,
            next_life: 0,
            barrier,
            far,
            arrived: false,
            arrivals: 0,
            clock: LogClock::default(),
            _reading: readings.begin(layout.view()),
            readings,
            membership: layout.row(me).membership,
            moved: true,
        };
        Ok(mesh)
    }

    /// Attaches a link to `rank` while the view runs: its row came late, or its stream broke and
    /// this one replaces it. Readers that were given out before see the data that arrives over the
    /// link.
    ///
    /// A stream is new at both ends. The old one is closed at once: data of it that had arrived
    /// whole is applied, and nothing after that. Then this side states what it has applied. It
    /// sends the rest, and its control block as a whole, when the peer has stated the same, or at
    /// once over the first stream. For that, frames of a ring must be posted in their order, as the
    /// engine does.
    ///
    /// A connection that breaks is [made again](Self::next_up) by itself, and its peer
    /// is not attached.
    ///
    /// # Errors
    /// [`MeshError::Attached`], [`MeshError::Region`], [`MeshError::NoEvent`],
    /// [`MeshError::TooLong`], [`MeshError::Os`]. After an error, a row that had not come still
    /// counts as not come, and after [`MeshError::Os`] there is no stream to the peer.
    ///
    /// # Panics
    /// If `rank` is my own or not in `layout`, if `layout` is that of another view, or, for a peer
    /// that is [there](Peer::There), if the member's event count is [without an
    /// eventfd](crate::MemberEventCount::with_event).
    pub fn attach(&mut self, layout: &Layout, rank: Rank, peer: Peer) -> Result<(), MeshError> {
        assert_eq!(layout.row(self.me).size, self.row.size(), "the layout of another view");
        assert_ne!(rank, self.me, "a way to oneself");
        let of = |source| MeshError::Region { rank, part: "row", source };
        let os = |source| MeshError::Os { call: "epoll_ctl", source };
        // Posts that had arrived over a stream that is replaced are applied, too.
        self.note_arrival(true);
        let peer = match peer {
            Peer::There(stream) if self.far.is_stream(rank) => return self.far.replace(rank, stream).map_err(os),
            peer => peer,
        };
        let rows = self.rows.clone();
        let (vacant, given) = match (rows.held(rank), &peer) {
            (RowMemory::Vacant(vacant), Peer::Here(_) | Peer::Shown(_)) => (vacant, "memory"),
            (RowMemory::Vacant(vacant), Peer::There(_)) => (vacant, "a stream"),
            (_, Peer::There(_)) => return Err(MeshError::Attached { rank, given: "a stream" }),
            (_, Peer::Here(_) | Peer::Shown(_)) => return Err(MeshError::Attached { rank, given: "memory" }),
        };
        let taken = MeshError::Attached { rank, given };
        match peer {
            // No row is found this way once the view has begun.
            Peer::Shown(_) => return Err(taken),
            Peer::Here(parts) => {
                let (event_count, doorbell) = parts.map(vacant, layout, rank)?.ok_or(taken)?;
                self.withdraw();
                self.barrier = self.barrier.joined(doorbell.barrier());
                // The peer may sleep, and no earlier post was announced to it.
                doorbell.mark_moved();
                doorbell.ring();
                self.lives.push((rank, event_count));
                self.doorbells[rank.index()] = Some(doorbell);
            }
            Peer::There(stream) => {
                check_length([(self.me, self.row.size()), (rank, layout.row(rank).size)])?;
                let copy = vacant.copy(&format!("the copy of the row of member {rank}")).map_err(of)?.ok_or(taken)?;
                let event = self
                    .event_count
                    .event()
                    .expect("a member with peers on other machines needs an event count with an eventfd");
                let own = (self.me, &*self.row);
                self.far.introduce(layout, own, event, (rank, Arc::new(copy)), stream).map_err(os)?;
            }
        }
        Ok(())
    }

    /// Returns my row, for code that reads it longer than this mesh lives.
    pub fn own_rows(&self) -> OwnRows {
        OwnRows { me: self.me, row: Arc::clone(&self.row) }
    }

    /// Returns my row.
    pub(crate) fn row(&self) -> &OwnRegion {
        &self.row
    }

    /// Returns true if `peer` is on this machine, and its row is here.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_here(&self, peer: Rank) -> bool {
        self.doorbells[peer.index()].is_some()
    }

    /// As [`Reader::has_objects`].
    #[inline]
    pub fn has_objects(&self) -> bool {
        self.rows.has_objects()
    }

    /// As [`Reader::forget_objects`].
    ///
    /// # Panics
    /// As [`Reader::forget_objects`].
    pub fn forget_objects(&self, member: Rank, ring: &Ring, rounds: Option<u64>) -> Vec<(u64, Object)> {
        self.rows.forget_objects(member, ring, rounds)
    }

    /// Returns peers whose [liveness word](crate::LivenessThread) shows an end: they are dead, or
    /// dying, and nothing else shows it yet. A call reads the words of 16 peers, and the next call
    /// those of the next.
    pub fn dying(&mut self) -> impl Iterator<Item = Rank> + '_ {
        let start = self.next_life;
        let end = self.lives.len().min(start + LIVES_PER_LOOK);
        self.next_life = if end < self.lives.len() { end } else { 0 };
        self.lives[start..end]
            .iter()
            .filter(|(_, event_count)| has_ended(event_count.half_word(LIFE)))
            .map(|(rank, _)| *rank)
    }

    /// Wakes those of these peers that are here and sleep.
    #[inline]
    fn ring(&self, peers: &[Rank]) {
        // After the stores that the peers should find, whichever thread made them: they happened
        // before this call.
        self.barrier.light();
        for peer in peers {
            if let Some(doorbell) = &self.doorbells[peer.index()] {
                doorbell.ring_unfenced();
            }
        }
    }

    /// Withdraws the announcement of a sleep, if there is one.
    fn withdraw(&mut self) {
        if let Some(Sleeper { announced, .. }) = self.announced.take() {
            self.event_count.withdraw(announced);
            self.lingering.iter_mut().for_each(Lingering::withdraw);
        }
    }

    /// Announces to peers that are here that words of my membership block are posted.
    #[cold]
    fn mark_moved(&self, peers: &[Rank]) {
        peers.iter().filter_map(|peer| self.doorbells[peer.index()].as_ref()).for_each(Doorbell::mark_moved);
    }

    #[inline]
    fn note_arrival(&mut self, arrived: bool) {
        self.moved |= arrived;
        self.arrivals += u64::from(arrived);
    }

    /// A function of its own, so that a post that stays here is small enough to be inlined into the
    /// engine's loop.
    #[inline(never)]
    fn post_far(&mut self, peers: &[Rank], range: Range<u64>) {
        let whole = range.start.is_multiple_of(8) && range.end.is_multiple_of(8);
        assert!(whole && range.end <= self.row.size(), "{range:?} is not of whole words, or outside my row");
        if range.is_empty() {
            return;
        }
        let control = self.row.control();
        let words = range.start.min(control)..range.end.min(control);
        let frames = range.start.max(control)..range.end.max(control);
        self.far.post(&self.row, peers, words, frames);
    }

    /// Returns the copy that takes the data arriving from `rank`, which is on another machine.
    pub(crate) fn copy(&self, rank: Rank) -> Arc<CopyRegion> {
        Arc::clone(self.far.copy(rank).expect("it is on another machine"))
    }

    #[cfg(test)]
    pub(crate) fn barrier(&self) -> Barrier {
        self.barrier
    }
}

/// Sets the bit of `peer` among those that begin at `at` in my row.
fn set_bit(row: &OwnRegion, at: u64, peer: Rank) {
    let word = at + 8 * u64::from(peer.0 / 64);
    row.store(word, row.load(word) | 1 << (peer.0 % 64));
}

/// Refuses rows that are too long for streams.
fn check_length(rows: [(Rank, u64); 2]) -> Result<(), MeshError> {
    match rows.into_iter().find(|(_, bytes)| *bytes > ROW_BYTES_MAX) {
        Some((rank, bytes)) => Err(MeshError::TooLong { rank, bytes, max: ROW_BYTES_MAX }),
        None => Ok(()),
    }
}

/// Returns the links to all members, by rank.
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

impl<C: Connections> Mesh<C> {
    /// Sets the clock of publishers that are created from now on.
    pub fn set_clock(&mut self, clock: LogClock) {
        self.clock = clock;
    }
}

impl<C: Connections> Drop for Mesh<C> {
    fn drop(&mut self) {
        // Otherwise peers would keep ringing, and no thread would wait for it.
        self.withdraw();
        self.far.hang_up(&self.row);
    }
}

impl<C: Connections> Rows for Mesh<C> {
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

impl<C: Connections> Table for Mesh<C> {
    #[inline]
    fn store(&mut self, at: u64, value: u64) {
        self.row.store(at, value);
    }

    #[inline]
    fn stamp(&mut self, ring: &Ring, position: u64, round: u64) {
        self.row.stamp(ring, position, round);
    }

    #[inline]
    fn posts_cost(&self) -> bool {
        !self.far.is_empty()
    }

    /// As [`Table::post`].
    ///
    /// # Panics
    /// If there are peers on other machines, and the range is not of whole words, or not inside my
    /// row.
    #[inline]
    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        if range.start < self.membership {
            self.mark_moved(peers);
        }
        self.ring(peers);
        self.post_quietly(peers, range);
    }

    /// Peers that share memory have the data already.
    ///
    /// # Panics
    /// As [`post`](Self::post).
    #[inline]
    fn post_quietly(&mut self, peers: &[Rank], range: Range<u64>) {
        if !self.far.is_empty() {
            self.post_far(peers, range);
        }
    }

    fn wake(&mut self, peers: &[Rank]) {
        self.mark_moved(peers);
        self.ring(peers);
    }

    fn is_heard(&self, peer: Rank) -> bool {
        self.far.is_heard(peer)
    }

    #[inline]
    fn membership_moved(&mut self) -> bool {
        // Both marks are cleared.
        self.event_count.take_moved() | std::mem::take(&mut self.moved)
    }

    #[inline]
    fn trace(&self, member: Rank) -> Trace {
        match self.doorbells[member.index()] {
            None if member != self.me => Trace::Arrived(self.arrivals),
            _ => Trace::Stored,
        }
    }
}
