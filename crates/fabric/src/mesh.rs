//! The [`Fabric`] of a group's member: to each peer on the same machine by the memory that both
//! share, and to each other peer over a stream or another network's connection.
//!
//! - *A peer that is [here](Peer::Here)* maps my row and I map its row. A store is a post, and
//!   reading my copy of its row is reading its row; no byte is copied, whatever the number of
//!   members. A post only wakes the peer, if it sleeps ([`shm`](crate::shm)).
//! - *A peer that is [there](Peer::There)* has a copy of my row, and I have a copy of its. A post
//!   goes over the stream, and [`progress`](Fabric::progress) puts arriving data into the copy
//!   ([`tcp`](crate::tcp)).
//! - *A peer that was [met](Mesh::over) over another network*, such as libfabric's, has such
//!   copies, too. [`Connections`] is the interface of that network, which another crate implements.
//!
//! Nothing else distinguishes them: neither the engine, nor publishers, nor readers do. A mesh of
//! peers that are here makes no system calls except to sleep and to wake. A mesh with others sleeps
//! in the system's wait for descriptors, and peers that are here wake it by its eventfd.
use crate::barrier::Barrier;
use crate::bulk::Object;
use crate::connections::{Connections, NoConnections};
use crate::event_count::{Announced, Doorbell, EventCount};
use crate::fabric::Fabric;
use crate::far::Far;
use crate::life::{LIFE, has_ended};
use crate::mirror::Mirror;
use crate::publisher::Publisher;
use crate::reader::{Held, OwnRows, Reader, ReaderFrames};
use crate::readings::{Reading, Readings};
use crate::region::{CopyRegion, OwnRegion, RegionError, SharedRegion, VacantRegion};
use crate::shm::{OwnRow, RowDescriptors, ShownRow};
use crate::tcp::{Down, Links, ROW_BYTES_MAX, Traffic};
use spindle_core::wire::layout::membership;
use spindle_core::{Claims, Layout, Rank, Ring, Rows, Table, Trace, ViewId};
use spindle_transport::Connection;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

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
/// Data moves to other machines only in [`progress`](Fabric::progress), in [`post`](Table::post) (a
/// post of control words is sent at once, if the system takes it) and before a sleep.
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
    _reading: Reading,
    /// Bytes of my row's membership block.
    membership: u64,
    /// True if words of peers' membership blocks may have moved, other than by stores of peers that
    /// are here.
    moved: bool,
    /// The number of times that data has arrived from peers that are not here.
    arrivals: u64,
}

/// A sleep that was announced, and the means that will end it.
#[derive(Debug)]
struct Sleeper {
    announced: Announced,
    /// True if the eventfd ends it, among other descriptors.
    by_event: bool,
    /// The time of the announcement.
    since: Instant,
    /// True if the look at all work that precedes the sleep begins so long after the announcement
    /// that it misses nothing.
    settled: bool,
    /// True if the member is awake while the announcement is in force.
    is_awake: bool,
    /// The number of times that work was found since the last sleep.
    worked: u32,
}

/// An announcement is withdrawn when work was found this many times in a row.
const WORKED_MAX: u32 = 64;
/// The number of peers whose liveness words a look for [dying](Mesh::dying) ones reads. A word is a
/// cache line of another process: those of 200 peers take a member that wakes up 30 µs.
const LIVES_PER_LOOK: usize = 16;

/// A row of an ended view whose ring applications of this process still use. Their commits there
/// ring the member, too.
#[derive(Debug)]
pub struct Lingering {
    event_count: EventCount,
    announced: Option<Announced>,
    /// The applications that use the ring; this entry is of no use once it is gone.
    user: Weak<()>,
}

/// The links to other machines of a view that is over: posted data is still in flight, and peers
/// may not have sent everything.
#[derive(Debug)]
pub struct Retired<C: Connections = NoConnections> {
    far: Far<C>,
    row: Arc<OwnRegion>,
    told: bool,
}

/// The reason why a [`Mesh`] could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A segment of a peer could not be used, or there is no memory for one of ours.
    #[error("the {part} of member {rank} can't be used: {source}")]
    Region {
        /// Rank of the segment's owner.
        rank: Rank,
        /// "row" or "doorbell".
        part: &'static str,
        /// The cause.
        source: RegionError,
    },
    /// A peer's doorbell came with a descriptor that is not an eventfd, or with an eventfd that
    /// blocks.
    #[error("the doorbell of member {rank} can't be used: it came with a descriptor that is no non-blocking eventfd")]
    NoEvent {
        /// Rank of the doorbell's owner.
        rank: Rank,
    },
    /// The peers are not all the other members of the view, once each.
    #[error(
        "the way to member {rank} was given {times} times, to member {me}: one for each rank but the own is needed"
    )]
    Peers {
        /// Rank of the peer.
        rank: Rank,
        /// The number of times it was given.
        times: u32,
        /// Rank of the member that builds the mesh.
        me: Rank,
    },
    /// A row is longer than posts over streams can address.
    #[error(
        "the row of member {rank} has {bytes} bytes and {max} can be posted over a network: lower window or message_bytes_max"
    )]
    TooLong {
        /// Rank of the row's owner.
        rank: Rank,
        /// Bytes by the layout.
        bytes: u64,
        /// Bytes that are possible.
        max: u64,
    },
    /// The peer has a link that can't be replaced: memory, or a connection.
    #[error("member {rank} has a way of another kind already, which can't be replaced by {given}")]
    Attached {
        /// Rank of the peer.
        rank: Rank,
        /// "memory", "a stream" or "a connection".
        given: &'static str,
    },
    /// A system call failed.
    #[error("{call} failed: {source}; raise the limit of open files if it was that (ulimit -n)")]
    Os {
        /// The call.
        call: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// [`Connections`] can't be used or made.
    #[error(transparent)]
    Connections(Box<dyn Error + Send + Sync>),
}

impl From<Infallible> for MeshError {
    fn from(error: Infallible) -> MeshError {
        match error {}
    }
}

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
                _ if rank == me => Held::Own(row.clone()),
                Ok((theirs, event_count, doorbell)) => {
                    ring = Some(doorbell);
                    lives.push((rank, event_count));
                    set_bit(&row, membership::mapped(layout.rows().len()), rank);
                    Held::Peer(theirs)
                }
                Err(Some(Peer::There(connection))) => {
                    check_length([(me, row.size()), (rank, bytes)])?;
                    let name = format!("the copy of the row of member {rank}");
                    let copy = mirror.copy(&name, bytes).map_err(of)?;
                    stream = Some((connection, copy.clone()));
                    Held::Copy(copy)
                }
                Err(_) => match connections.as_ref().and_then(|connections| connections.copy(rank)) {
                    Some(copy) => Held::Copy(copy.clone()),
                    None => Held::Vacant(VacantRegion::new("an absent peer's row", bytes).map_err(of)?),
                },
            });
            doorbells.push(ring);
            streams.push(stream);
        }
        let os = |(call, source)| MeshError::Os { call, source };
        let streams = match streams.iter().any(Option::is_some) {
            true => Some(Links::new(layout, Some((me, &row)), Some(event()), streams).map_err(os)?),
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
            (Held::Vacant(vacant), Peer::Here(_) | Peer::Shown(_)) => (vacant, "memory"),
            (Held::Vacant(vacant), Peer::There(_)) => (vacant, "a stream"),
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

    /// Returns the peers of this machine that have mapped the memory of my row, and their
    /// doorbells' segments.
    pub(crate) fn mapped_by(&self) -> impl Iterator<Item = (Rank, &Arc<SharedRegion>)> {
        let at = membership::mapped(self.doorbells.len());
        self.lives
            .iter()
            .filter(move |(rank, _)| self.has_bit(*rank, at, self.me))
            .map(|(rank, event_count)| (*rank, event_count))
    }

    /// Returns the bit of `member` among those that begin at `at` in the row of `of`.
    fn has_bit(&self, of: Rank, at: u64, member: Rank) -> bool {
        self.rows.load(of, at + 8 * u64::from(member.0 / 64)) >> (member.0 % 64) & 1 == 1
    }

    /// Publishes in my row the offset at which the row for `view` begins, in the same memory, and
    /// that `peers` may take it: they have been [noted](crate::Arena::show) as its readers.
    pub(crate) fn show(&self, peers: &[Rank], view: ViewId, at: u64) {
        self.row.store(membership::NEXT_AT, at);
        for peer in peers {
            set_bit(&self.row, membership::shown_to(self.doorbells.len()), *peer);
        }
        self.row.store(membership::NEXT_VIEW, view.0);
    }

    /// Returns true if `peer` is on this machine, and its row is here.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_here(&self, peer: Rank) -> bool {
        self.doorbells[peer.index()].is_some()
    }

    /// Returns the doorbell's segment of a peer that is here.
    pub(crate) fn event_count_of(&self, peer: Rank) -> Option<&Arc<SharedRegion>> {
        self.lives.iter().find(|(rank, _)| *rank == peer).map(|(_, event_count)| event_count)
    }

    /// Announces that this member looks for [shown](Self::shown) rows of `view` once more, after
    /// this, and never again. With peers that show theirs later it exchanges control messages.
    pub fn look_last(&self, view: ViewId) {
        self.readings.look_last(view);
    }

    /// Returns the row of `peer`, of `bytes`, for `view`, if that peer has
    /// [shown](crate::Arena::show) it and it can be found from here.
    ///
    /// # Errors
    /// [`MeshError::Region`], if the announced place can't contain the row.
    ///
    /// # Panics
    /// If the peer is not of this view.
    pub fn shown(&self, peer: Rank, view: ViewId, bytes: u64) -> Result<Option<ShownRow>, MeshError> {
        let Held::Peer(row) = self.rows.held(peer) else { return Ok(None) };
        // The place and the bits were stored before the view. A row that was shown only to others
        // has a lease, and comes in a control message.
        let is_shown = row.load(membership::NEXT_VIEW) == view.0
            && self.has_bit(peer, membership::shown_to(self.doorbells.len()), self.me);
        if !is_shown || !row.is_of_chunk() {
            return Ok(None);
        }
        let found = self.event_count_of(peer).zip(self.doorbells[peer.index()].as_ref());
        let Some((event_count, doorbell)) = found else { return Ok(None) };
        let next = row.beside(row.load(membership::NEXT_AT), bytes, self.readings.begin(view));
        let next = next.map_err(|source| MeshError::Region { rank: peer, part: "row", source })?;
        Ok(Some(ShownRow { row: next, event_count: Arc::clone(event_count), event: doorbell.event().cloned() }))
    }

    /// Returns true if the link to `rank` is, or was, a stream, so that another may
    /// [replace](Self::attach) it.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_stream(&self, rank: Rank) -> bool {
        self.far.is_stream(rank)
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

    /// Returns a peer on another machine whose connection has ended, and the reason. Each end is
    /// reported once.
    ///
    /// If the connection was [a stream](Self::is_stream), the peer may be [attached](Self::attach)
    /// again; until then nothing arrives from it, and posts for it wait. A connection
    /// that was broken, rather than [closed](Down::Closed), is made again.
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.far.next_down()
    }

    /// Returns a peer whose connection had [ended](Self::next_down), was made
    /// again and continues, or was [made late](Self::meet). Each time is reported once.
    pub fn next_up(&mut self) -> Option<Rank> {
        self.far.next_up()
    }

    /// Returns true if there is an open link to `peer` on another machine.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_connected(&self, peer: Rank) -> bool {
        self.far.is_open(peer)
    }

    /// Returns the network traffic with `peer`, if it is on another machine.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn traffic(&self, peer: Rank) -> Option<Traffic> {
        self.far.traffic(peer)
    }

    /// Sends over `stream` everything that peers get from now on, and first the whole contents of
    /// the row: for a process that [observes](Watched) the view without being a member. No member
    /// waits for it.
    ///
    /// # Errors
    /// Error of the system.
    ///
    /// # Panics
    /// If `layout` is not that of the view, or the member's event count is [without an
    /// eventfd](crate::MemberEventCount::with_event).
    pub fn add_observer(&mut self, layout: &Layout, stream: Connection) -> io::Result<()> {
        assert_eq!(layout.row(self.me).size, self.row.size(), "the layout of another view");
        let event = self
            .event_count
            .event()
            .expect("a member with observers on other machines needs an event count with an eventfd");
        self.far.add_observer(layout, (self.me, &self.row), event, stream)
    }

    /// Marks this as the mesh of a view that has ended. It no longer sleeps: the mesh of another
    /// view is [woken](Self::wake_by) in its place.
    ///
    /// # Errors
    /// Error of the system.
    pub fn stand_apart(&mut self) -> io::Result<()> {
        self.far.stand_apart()
    }

    /// Lets data over the streams of `older` wake this mesh, too. `older` is the mesh of a view
    /// that has ended and [stands apart](Self::stand_apart). This lasts until `older` is dropped.
    ///
    /// # Errors
    /// Error of the system.
    ///
    /// # Panics
    /// As [`add_observer`](Self::add_observer), if `older` has streams.
    pub fn wake_by(&mut self, layout: &Layout, older: &Mesh<C>) -> io::Result<()> {
        if older.far.is_empty() {
            return Ok(());
        }
        let event = self
            .event_count
            .event()
            .expect("a member with peers on other machines needs an event count with an eventfd");
        self.far.wake_by(layout, (self.me, &self.row), event, &older.far)
    }

    /// Hands data posted over streams to the system, as far as it takes that. A mesh that
    /// [sleeps](Fabric::sleep) does so itself. Returns true if there is data to [take
    /// in](Fabric::progress) that the system does not report.
    pub fn flush(&mut self) -> bool {
        self.far.flush(&self.row);
        self.far.has_unread()
    }

    /// Drops the streams that their peers have turned. These peers need nothing more of this view,
    /// which has ended here.
    pub fn drop_turned(&mut self) {
        self.far.drop_turned();
    }

    /// Returns the number of observers.
    pub fn observers(&self) -> usize {
        self.far.observers()
    }

    /// Lets the link to `peer` continue in `next`, the view after this one, in which both are
    /// members: this member has nothing more to post to the peer here.
    ///
    /// When the peer has done the same, a stream can be [taken out](Self::take_turned), and a
    /// connection can be [carried on](Self::carry). The call has no effect if there is
    /// no such link, or if it was turned before.
    ///
    /// # Panics
    /// If `peer` is not of this view.
    pub fn turn(&mut self, peer: Rank, next: ViewId) {
        self.far.turn(peer, next, &self.row);
    }

    /// Takes the streams out that both sides have turned to `next`. All data posted in this view
    /// has arrived at both sides, and the next byte is the first of `next`. If more has arrived
    /// already, the stream yields that first.
    ///
    /// A stream that does not get so far stays: it ends with this view.
    pub fn take_turned(&mut self, next: ViewId) -> Vec<(Rank, Connection)> {
        self.far.take_turned(next)
    }

    /// Lets the connections that both sides have turned to `next` continue there, with
    /// the members that have these ranks in `next`, as [`Connections::carry`] does. Others stay, and
    /// end with this view.
    pub fn carry(&mut self, next: &mut C, rank_of: impl Fn(Rank) -> Option<Rank>) {
        self.far.carry(next, rank_of);
    }

    /// Returns the address at which peers find this member on the network, if some of its rows go
    /// over [`Connections`].
    pub fn port(&self) -> Option<&C::Address> {
        self.far.connections().map(C::address)
    }

    /// Returns true if `peer` has none of the [`Connections`], and can have one.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn lacks(&self, peer: Rank) -> bool {
        self.far.connections().is_some_and(|connections| connections.lacks(peer))
    }

    /// Connects `peer` by one of the [`Connections`] while the view runs: its row was not here when the view
    /// began.
    ///
    /// A peer with a higher rank is called at `address`; one with a lower rank is expected to call.
    /// When there is a connection, it is [reported](Self::next_up), and readers that were given out
    /// before see the arriving data. The call has no effect if there is a connection, or one is
    /// being made.
    ///
    /// # Errors
    /// [`MeshError::Attached`], [`MeshError::Region`], or [`MeshError::Connections`] for a call that fails
    /// at once. The caller may try it again.
    ///
    /// # Panics
    /// If `peer` is my own rank or not in `layout`, or `layout` is that of another view.
    pub fn meet(&mut self, layout: &Layout, peer: Rank, address: Option<&C::Address>) -> Result<(), MeshError> {
        assert_eq!(layout.row(self.me).size, self.row.size(), "the layout of another view");
        assert_ne!(peer, self.me, "a way to oneself");
        let given = "a connection";
        let Some(connections) = self.far.connections_mut().filter(|connections| connections.lacks(peer)) else {
            return Ok(());
        };
        if connections.copy(peer).is_none() {
            let Held::Vacant(vacant) = self.rows.held(peer) else {
                return Err(MeshError::Attached { rank: peer, given });
            };
            let copy = vacant.copy(&format!("the copy of the row of member {peer}"));
            let copy = copy.map_err(|source| MeshError::Region { rank: peer, part: "row", source })?;
            connections.introduce(peer, Arc::new(copy.ok_or(MeshError::Attached { rank: peer, given })?));
        }
        match address {
            _ if peer < self.me => connections.expect(peer),
            Some(address) => connections.call(peer, address).map_err(C::Error::into)?,
            None => {}
        }
        Ok(())
    }

    /// Returns the connections to peers that were met over another network, if there may be any.
    pub fn connections(&self) -> Option<&C> {
        self.far.connections()
    }

    /// The same, to change them.
    pub fn connections_mut(&mut self) -> Option<&mut C> {
        self.far.connections_mut()
    }

    /// Hands out the links to other machines, if there are any, when the view is over. They need
    /// some more [progress](Retired::progress), because posted data is still to be sent. From now
    /// on nothing is posted over them, and nothing arrives.
    pub fn retire(&mut self) -> Option<Retired<C>> {
        let mut far = std::mem::take(&mut self.far);
        // If the system refuses, waits end early.
        let _ = far.stand_apart();
        (!far.is_empty()).then(|| Retired { far, row: self.row.clone(), told: false })
    }

    /// As [`retire`](Self::retire), and waits for at most `at_most` until every peer has closed its
    /// side, too. Returns true if all have; then everything has arrived.
    pub fn finish(&mut self, at_most: Duration) -> bool {
        self.finish_heard(at_most, at_most)
    }

    /// As [`finish`](Self::finish), but waits up to `unheard` for peers on other machines whose
    /// systems have not confirmed all posted data. When a process ends, its unconfirmed data is
    /// lost if the peer's next bytes come before the system has sent the data again.
    pub fn finish_heard(&mut self, at_most: Duration, unheard: Duration) -> bool {
        let start = Instant::now();
        let Some(mut retired) = self.retire() else { return true };
        let all = retired.far.open() > 0;
        self.event_count.clear();
        while !retired.step() {
            let limit = if retired.is_heard() { at_most } else { at_most.max(unheard) };
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            // Not all providers report when data has left, and the system does not report what was
            // confirmed.
            retired.far.wait(left.min(LOOK_AGAIN));
        }
        all
    }

    /// Returns the part of this view that lasts as long as applications of this process still use
    /// its rings: until `user` is dropped.
    pub fn linger(&self, user: &Arc<()>) -> Lingering {
        Lingering { event_count: self.event_count.clone(), announced: None, user: Arc::downgrade(user) }
    }

    /// Listens to applications that still use rings of ended views, in which the same event count
    /// woke this member.
    pub fn listen_to(&mut self, lingering: Vec<Lingering>) {
        self.withdraw();
        self.lingering = lingering;
        self.forget_unused();
    }

    fn forget_unused(&mut self) {
        self.lingering.retain_mut(|lingering| {
            let is_used = lingering.user.strong_count() > 0;
            if !is_used {
                lingering.withdraw();
            }
            is_used
        });
    }

    /// Takes back the entries that [`listen_to`](Self::listen_to) was given.
    pub fn take_lingering(&mut self) -> Vec<Lingering> {
        self.withdraw();
        std::mem::take(&mut self.lingering)
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

/// The time after an announcement at which the member looks once more. At the moment of the
/// announcement a ring may be missed ([`crate::barrier`]), and this look finds the work that the
/// ring was for. By then every peer sees the announcement.
const NAP: Duration = Duration::from_millis(1);
/// The time that a finish sleeps before it checks whether everything has left.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The rows of a view for a process that is not a member of it. Rows of members on other machines
/// fill by [`progress`](Self::progress).
#[derive(Debug)]
pub struct Watched {
    rows: Reader,
    links: Option<Links>,
    /// An own row, to which nothing is posted.
    row: Arc<OwnRegion>,
}

impl Watched {
    /// Opens the rows of all members, in the order of the ranks, with zeros for those that never
    /// came. Copies are made in `mirror`.
    ///
    /// # Errors
    /// [`MeshError`].
    ///
    /// # Panics
    /// If there is not one entry for each member.
    pub fn new(layout: &Layout, peers: Vec<Option<Peer>>, mirror: &Mirror) -> Result<Watched, MeshError> {
        assert_eq!(peers.len(), layout.rows().len(), "one entry for each member");
        let (mut rows, mut streams) = (Vec::with_capacity(peers.len()), Vec::with_capacity(peers.len()));
        for (rank, peer) in (0..).map(Rank).zip(peers) {
            let size = layout.row(rank).size;
            let of = |source| MeshError::Region { rank, part: "row", source };
            let mut stream = None;
            rows.push(match peer {
                Some(Peer::Here(parts)) => Held::Peer(Arc::new(parts.open_row(layout, rank)?)),
                Some(Peer::Shown(shown)) => Held::Peer(Arc::new(shown.row)),
                Some(Peer::There(connection)) => {
                    let copy = mirror.copy(&format!("the copy of the row of member {rank}"), size).map_err(of)?;
                    stream = Some((connection, copy.clone()));
                    Held::Copy(copy)
                }
                None => Held::Vacant(VacantRegion::new("an absent member's row", size).map_err(of)?),
            });
            streams.push(stream);
        }
        mirror.trim();
        let of = |source| MeshError::Region { rank: Rank(0), part: "row", source };
        let row = Arc::new(OwnRegion::on_heap("nobody's row", 8, 8).map_err(of)?);
        let links = match streams.iter().any(Option::is_some) {
            true => {
                let os = |(call, source)| MeshError::Os { call, source };
                Some(Links::new(layout, None, None, streams).map_err(os)?)
            }
            false => None,
        };
        Ok(Watched { rows: Reader::of(rows), links, row })
    }

    /// Returns the rows.
    pub fn rows(&self) -> &Reader {
        &self.rows
    }

    /// Returns true if the rows show what the members had posted when they admitted this process as
    /// an observer, or later. Before that they are zeros.
    pub fn is_complete(&self) -> bool {
        self.links.as_ref().is_none_or(Links::has_all)
    }

    /// Takes in arrived data. Returns true if there was any.
    pub fn progress(&mut self) -> bool {
        self.links.as_mut().is_some_and(|links| links.progress(&self.row).1)
    }

    /// Returns a member from whose stream nothing more will arrive, and the reason. Each is
    /// reported once.
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.links.as_mut()?.next_down()
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

impl<C: Connections> Retired<C> {
    /// Sends unsent data, and takes in arriving data. When all is sent, it reports to the peers and
    /// observers that nothing more comes. Returns true once all peers have closed their sides, too.
    ///
    /// Until then the links must be kept. If one were closed while bytes of the peer are in flight,
    /// the system would reset the connection, and data in flight to the peer could be lost. Peers
    /// that were [cut off](Self::is_cut) have not closed.
    pub fn progress(&mut self) -> bool {
        self.step() && !self.is_cut()
    }

    /// As [`progress`](Self::progress), but ignores peers without a connection.
    fn step(&mut self) -> bool {
        self.far.progress(&self.row);
        self.far.drop_turned();
        if !self.told && self.far.is_flushed() && self.far.has_served() {
            self.far.finish();
            self.told = true;
        }
        self.told && self.far.open() == 0
    }
}

impl<C: Connections> Retired<C> {
    /// As [`Mesh::attach`], for a peer that had a stream, and has not confirmed that it has all of
    /// the view.
    ///
    /// # Errors
    /// Error of the system, or that the peer had no stream.
    pub fn attach(&mut self, rank: Rank, stream: Connection) -> io::Result<()> {
        // The end of the view is sent over this stream, too.
        self.told = false;
        self.far.replace(rank, stream)
    }

    /// As [`Mesh::next_down`].
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.far.next_down()
    }

    /// Returns true if there is an open link that needs [progress](Self::progress), rather than
    /// only peers that were cut off.
    pub fn is_open(&self) -> bool {
        !self.told || self.far.open() > 0
    }

    /// Returns true if connections are being made again, which needs [progress](Self::progress),
    /// too: they end no sleep of another view.
    pub fn is_calling(&self) -> bool {
        self.far.is_calling()
    }

    /// Returns true if peers were cut off in the middle of their streams. They may be
    /// [attached](Self::attach) again, and lack the end of the view until then.
    pub fn is_cut(&self) -> bool {
        self.far.cut() > 0
    }

    /// Returns true if the systems of all peers have confirmed all posted data, as far as this one
    /// knows.
    fn is_heard(&self) -> bool {
        self.told && self.far.is_confirmed()
    }
}

impl<C: Connections> Drop for Retired<C> {
    fn drop(&mut self) {
        // It had its time: a peer that still delays it is gone.
        self.far.give_up();
    }
}

impl<C: Connections> Mesh<C> {
    /// A function of its own, because an announcement is in force after few of the polls that found
    /// work.
    #[cold]
    fn stay_awake(&mut self) {
        let Some(sleeper) = &mut self.announced else { return };
        if !std::mem::replace(&mut sleeper.is_awake, true) {
            self.event_count.disarm();
        }
        sleeper.worked += 1;
        if sleeper.worked >= WORKED_MAX {
            self.withdraw();
        }
    }

    fn withdraw(&mut self) {
        if let Some(Sleeper { announced, .. }) = self.announced.take() {
            self.event_count.withdraw(announced);
            self.lingering.iter_mut().for_each(Lingering::withdraw);
        }
    }
}

impl<C: Connections> Fabric for Mesh<C> {
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
        self.event_count.doorbell()
    }

    #[inline]
    fn progress(&mut self) -> bool {
        if self.far.is_empty() {
            return false;
        }
        let (sent, arrived) = self.far.progress(&self.row);
        self.arrived |= arrived;
        self.note_arrival(arrived);
        sent | arrived
    }

    fn is_flushed(&self) -> bool {
        self.far.is_flushed()
    }

    fn begin_sleep(&mut self) {
        let by_event = !self.far.is_empty();
        if self.announced.as_ref().is_some_and(|sleeper| sleeper.by_event != by_event) {
            self.withdraw();
        }
        self.arrived = false;
        match &mut self.announced {
            Some(sleeper) => {
                sleeper.settled = sleeper.settled || sleeper.since.elapsed() >= NAP;
                if std::mem::take(&mut sleeper.is_awake) {
                    sleeper.worked = 0;
                    self.event_count.rearm(&mut sleeper.announced, by_event);
                    self.forget_unused();
                }
            }
            None => {
                self.forget_unused();
                self.lingering.iter_mut().for_each(Lingering::announce);
                let announced =
                    if by_event { self.event_count.announce_for_event() } else { self.event_count.announce() };
                let (since, settled, is_awake, worked) = (Instant::now(), false, false, 0);
                self.announced = Some(Sleeper { announced, by_event, since, settled, is_awake, worked });
            }
        }
    }

    fn sleep(&mut self, at_most: Duration) -> bool {
        let sleeper = self.announced.as_mut().filter(|sleeper| !sleeper.is_awake);
        let Some(Sleeper { announced, by_event, settled, .. }) = sleeper else { return true };
        let at_most = if *settled { at_most } else { at_most.min(NAP) };
        // By the means that was announced, and not by the links that exist now: ringers go by the
        // announcement.
        let woken = if *by_event {
            self.far.flush(&self.row);
            let mut rung = self.event_count.is_rung(announced);
            let mut arrived = self.arrived;
            if !rung && !arrived {
                arrived = self.far.wait(at_most);
                self.moved |= arrived;
                self.arrivals += u64::from(arrived);
                rung = self.event_count.is_rung(announced);
            }
            // Also if it was neither: a ring that was late for an earlier sleep may have woken the
            // member.
            if rung || !arrived {
                self.event_count.clear();
            }
            rung || arrived
        } else {
            self.event_count.wait_on(announced, at_most)
        };
        if woken {
            self.end_sleep();
        }
        woken
    }

    #[inline]
    fn end_sleep(&mut self) {
        if self.announced.is_some() {
            self.stay_awake();
        }
    }

    fn publisher(&self, claims: Arc<Claims>) -> Publisher {
        Publisher::new(&self.row, claims, self.event_count.doorbell())
    }
}

impl Lingering {
    /// Listens there as well. The event count itself is announced after this.
    fn announce(&mut self) {
        self.announced = Some(self.event_count.announce_too());
    }

    fn withdraw(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.event_count.withdraw(announced);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::conformance::{PATIENCE, view};
    use crate::shm::MemberEventCount;
    use spindle_core::wire::layout::entry;
    use spindle_transport::{SocketOptions, SocketStream};
    use std::os::unix::net::UnixStream;

    fn own(layout: &Layout, rank: u32) -> (OwnRow, RowDescriptors) {
        OwnRow::create(layout, Rank(rank), &mut Arena::new(MemberEventCount::create().unwrap())).unwrap()
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
    fn an_absent_member_has_a_row_of_zeros() {
        let layout = Layout::new(&view(2, 8)).unwrap();
        let mut mesh = Mesh::new(&layout, own(&layout, 0).0, [(Rank(1), None)]).unwrap();
        assert!((0..layout.row(Rank(1)).size).step_by(8).all(|at| mesh.load(Rank(1), at) == 0));
        mesh.post(&[Rank(1)], 0..64);
        assert!(!mesh.is_connected(Rank(1)) && mesh.traffic(Rank(1)).is_none() && mesh.is_flushed());
        assert!(mesh.next_down().is_none() && mesh.retire().is_none());
    }

    /// An observer over a stream sees nothing but what was sent, however often rings are
    /// overwritten meanwhile. By the counts of freed bytes it can determine whether the bytes that
    /// it has read are valid.
    #[test]
    fn a_observer_sees_what_was_sent_or_that_it_was_lapped() {
        let layout = Layout::new(&view(1, 8)).unwrap();
        let place = *layout.row(Rank(0)).subgroups().next().unwrap();
        let ring = place.ring.unwrap();
        let words = ring.capacity / 8;
        let (published, freed) = (place.entry + entry::PUBLISHED, place.entry + entry::FREED);
        for (seed, buffer) in [(1u64, Some(1)), (2, None), (3, Some(1)), (4, None)] {
            let (own, _) =
                OwnRow::create(&layout, Rank(0), &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap();
            let mut mesh = Mesh::new(&layout, own, []).unwrap();
            let options = SocketOptions { send_buffer_bytes: buffer, receive_buffer_bytes: buffer, silence_ms: None };
            let [near, far] = <[_; 2]>::from(UnixStream::pair().unwrap())
                .map(|socket| Box::new(SocketStream::new(socket, &options).unwrap()));
            let mut random = seed;
            let mut below = move |bound: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % bound
            };
            let total = 300 * words;
            let write = |mesh: &mut Mesh, from: u64, to: u64| {
                // Freed before it is overwritten, and announced later.
                mesh.store(freed, to.saturating_sub(words) * 8);
                mesh.progress();
                for index in from..to {
                    let at = ring.at + index % words * 8;
                    mesh.store(at, index + 1);
                    mesh.post(&[], at..at + 8);
                }
                mesh.store(published, to * 8);
                mesh.post(&[], place.entry..place.entry + 64);
            };
            // The observer begins at a time when all laps look alike.
            write(&mut mesh, 0, 3 * words / 2);
            mesh.add_observer(&layout, near).unwrap();
            assert_eq!(mesh.observers(), 1);
            let mut watched = Watched::new(&layout, vec![Some(Peer::There(far))], &Mirror::new()).unwrap();
            let (mut written, mut seen, mut good, mut lapped, mut free) = (3 * words / 2, 0, 0, 0, 0);
            let start = Instant::now();
            while seen < total {
                assert!(start.elapsed() < PATIENCE, "seed {seed}: {seen} of {total} seen");
                let to = (written + below(words / 2)).min(total);
                write(&mut mesh, written, to);
                written = to;
                mesh.progress();
                if below(4) > 0 && written < total {
                    continue;
                }
                watched.progress();
                let rows = watched.rows();
                let now = rows.load(Rank(0), published) / 8;
                assert!(now >= seen, "seed {seed}: back from {seen} to {now}");
                assert!(rows.load(Rank(0), freed) >= free, "seed {seed}: what was free is not any more");
                free = rows.load(Rank(0), freed);
                for index in now.saturating_sub(words)..now {
                    let word = rows.load(Rank(0), ring.at + index % words * 8);
                    if rows.load(Rank(0), freed) <= index * 8 {
                        assert_eq!(word, index + 1, "seed {seed}, word {index} of {now}");
                        good += 1;
                    } else {
                        lapped += 1;
                    }
                }
                seen = now;
            }
            assert!(good > words && lapped > 0, "seed {seed}: {good} words seen, {lapped} lapped");
            // Each side notices the end of the other.
            drop(watched);
            while mesh.observers() > 0 {
                mesh.progress();
                assert!(start.elapsed() < PATIENCE);
            }
        }
    }

    /// A ringer goes by what was announced, whatever has come since.
    #[test]
    fn a_observer_that_comes_before_a_sleep_does_not_make_it_deaf() {
        let layout = Layout::new(&view(1, 8)).unwrap();
        let (own, _) =
            OwnRow::create(&layout, Rank(0), &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap();
        let mut mesh = Mesh::new(&layout, own, []).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        mesh.begin_sleep();
        assert!(!mesh.sleep(PATIENCE));
        // From now on it sleeps as long as it is asked to.
        mesh.begin_sleep();
        mesh.add_observer(&layout, Box::new(SocketStream::new(near, &SocketOptions::default()).unwrap())).unwrap();
        let (doorbell, start) = (mesh.doorbell(), Instant::now());
        let sleeper = format!("/proc/self/task/{}/stat", rustix::thread::gettid().as_raw_nonzero());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !std::fs::read_to_string(&sleeper).unwrap().contains(") S ") {
                    assert!(start.elapsed() < PATIENCE, "it does not sleep");
                    std::thread::yield_now();
                }
                assert!(doorbell.ring());
            });
            assert!(mesh.sleep(PATIENCE) && start.elapsed() < PATIENCE, "it was not woken");
        });
    }

    #[test]
    fn the_first_sleep_after_an_announcement_is_a_nap_and_while_it_stands_none_is() {
        let layout = Layout::new(&view(1, 8)).unwrap();
        let mut mesh = Mesh::new(
            &layout,
            OwnRow::create(&layout, Rank(0), &mut Arena::new(MemberEventCount::create().unwrap())).unwrap().0,
            [],
        )
        .unwrap();
        let naps = |mesh: &mut Mesh| {
            let start = Instant::now();
            mesh.begin_sleep();
            assert!(!mesh.sleep(PATIENCE) && start.elapsed() < PATIENCE);
        };
        naps(&mut mesh);
        for _ in 0..2 {
            let start = Instant::now();
            mesh.begin_sleep();
            assert!(!mesh.sleep(5 * NAP) && start.elapsed() >= 5 * NAP);
        }
        // The announcement is still in force.
        assert!(mesh.doorbell().ring());
        mesh.begin_sleep();
        assert!(mesh.sleep(PATIENCE) && !mesh.doorbell().ring(), "it is awake");
        assert!(mesh.sleep(PATIENCE), "it has not looked for work again");
        for found in [1, WORKED_MAX - 1] {
            let start = Instant::now();
            (0..found).for_each(|_| mesh.end_sleep());
            assert!(!mesh.doorbell().ring());
            mesh.begin_sleep();
            assert!(!mesh.sleep(5 * NAP) && start.elapsed() >= 5 * NAP, "no nap: the announcement stands");
        }
        (0..WORKED_MAX).for_each(|_| mesh.end_sleep());
        assert_eq!(mesh.row.load(membership::ASLEEP), 0, "it has much to do");
        naps(&mut mesh);
    }

    /// The row of a member comes late, while this member is about to sleep.
    #[test]
    fn a_member_that_attaches_a_way_does_not_sleep_before_it_has_looked_again() {
        let layout = Layout::new(&view(2, 8)).unwrap();
        let row =
            |rank| OwnRow::create(&layout, Rank(rank), &mut Arena::new(MemberEventCount::create().unwrap())).unwrap();
        let mut mesh = Mesh::new(&layout, row(0).0, [(Rank(1), None)]).unwrap();
        let (_row, parts) = row(1);
        mesh.begin_sleep();
        mesh.attach(&layout, Rank(1), Peer::Here(parts)).unwrap();
        assert!(mesh.sleep(PATIENCE));
        mesh.begin_sleep();
        assert!(!mesh.sleep(NAP));
    }

    /// An application that has not noticed the new view commits in the old ring, and the member
    /// sleeps in the new view.
    #[test]
    fn a_ring_of_an_ended_view_wakes_its_member_still() {
        let layout = Layout::new(&view(1, 8)).unwrap();
        let event_count = MemberEventCount::create().unwrap();
        let mesh = || {
            Mesh::new(&layout, OwnRow::create(&layout, Rank(0), &mut Arena::new(event_count.clone())).unwrap().0, [])
                .unwrap()
        };
        let (old, mut new) = (mesh(), mesh());
        let user = Arc::new(());
        let (stale, lingering) = (old.doorbell(), old.linger(&user));
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
        drop(user);
        new.begin_sleep();
        assert!(!stale.ring(), "nobody uses it any more");
        assert!(new.take_lingering().is_empty());
    }
}
