//! The connections of one member: finding which of them can move bytes, and moving the bytes.
mod leaving;
mod link;
mod observers;

use super::backlog::Image;
use super::error::Down;
use super::inbox;
use super::observer::TcpObserver;
use super::resume::{Posted, announcements};
use crate::region::{CopyRegion, OwnRegion};
use link::TcpLink;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::BorrowedFd;
use spindle_core::wire::layout::entry;
use spindle_core::{Layout, Rank, RowLayout};
use spindle_transport::Connection;
use spindle_transport::stream::is_confirmed;
use spindle_transport::waiting::EpollSpace;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// The target of the events about links to other machines.
const TARGET: &str = "spindle::net";

/// Up to so many connections are read from without first asking the system which of them have
/// bytes.
const UNASKED_MAX: u32 = 2;
/// Events taken from the system at once.
const EVENTS_MAX: usize = 64;
/// The event numbers of the event count, and of the connections of older views. Observers have
/// numbers from `OBSERVERS` on, and smaller numbers are ranks.
const BELL: u64 = u64::MAX;
const OLDER: u64 = BELL - 1;
const OBSERVERS: u64 = 1 << 32;

/// Bytes that went over the connection to one peer, with the heads of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes handed to the system for sending.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes posted, and not handed to the system yet.
    pub waiting_bytes: u64,
}

/// All connections of a member to peers that are on other machines.
#[derive(Debug)]
pub(crate) struct TcpLinks {
    epoll: OwnedFd,
    /// By rank. None at my own, for peers on this machine, and while there is no connection.
    links: Box<[Option<TcpLink>]>,
    /// By rank: the data of peers that have, or had, a connection.
    peers: Box<[Option<Known>]>,
    image: Image,
    /// The rings of my row. An observer has no row, sends nothing, and gets no hello.
    posted: Option<Box<[Posted]>>,
    /// The offsets of the words of my row that observers must not get late.
    freed: Box<[u64]>,
    /// By their event numbers.
    observers: BTreeMap<u64, TcpObserver>,
    next_observer: u64,
    /// The buffer for received bytes that do not go straight to a copy.
    buffer: Box<[u8]>,
    /// How many links there are, and how many of them wait until the system accepts more.
    open: u32,
    blocked: u32,
    /// Links with bytes that have arrived and were not read.
    unread: Vec<Rank>,
    /// Whether there are posts that were not tried yet.
    untried: bool,
    down: VecDeque<(Rank, Down)>,
}

/// A peer, independent of its connections.
#[derive(Debug)]
struct Known {
    copy: Arc<CopyRegion>,
    control_bytes: u64,
    /// The offsets of the words in its row that announce its rings.
    announcements: Box<[u64]>,
    /// Whether its last connection ended before everything was sent.
    is_cut: bool,
}

/// A connection, and the copy that it fills.
pub(crate) type Feed = (Connection, Arc<CopyRegion>);

impl TcpLinks {
    /// Creates the connections of a member with `row`, or of an observer without one. `event_count`
    /// ends a wait, too.
    ///
    /// # Errors
    /// The system call that failed.
    pub(crate) fn new(
        layout: &Layout,
        row: Option<(Rank, &OwnRegion)>,
        event_count: Option<BorrowedFd<'_>>,
        peers: Vec<Option<Feed>>,
    ) -> Result<TcpLinks, (&'static str, io::Error)> {
        let os = |call| move |errno: rustix::io::Errno| (call, errno.into());
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        let add = |fd: BorrowedFd<'_>, data| {
            epoll::add(&epoll, fd, EventData::new_u64(data), EventFlags::IN).map_err(os("epoll_ctl"))
        };
        if let Some(event_count) = event_count {
            add(event_count, BELL)?;
        }
        let image = row.map_or(Image::new(0), |(_, row)| Image::of(row));
        let posted = row.map(|(me, _)| Posted::all(layout.row(me), &image));
        let rings = posted.as_ref().map(|rings| rings.len());
        let (mut links, mut known, mut unread) =
            (Vec::with_capacity(peers.len()), Vec::with_capacity(peers.len()), Vec::with_capacity(peers.len()));
        for ((rank, row), peer) in (0..).zip(layout.rows()).zip(peers) {
            let Some((stream, copy)) = peer else {
                links.push(None);
                known.push(None);
                continue;
            };
            add(stream.fd(), rank)?;
            if stream.has_arrived() {
                // The system does not report bytes that the stream has read already.
                unread.push(Rank(rank as u32));
            }
            let peer = Known::new(copy, row);
            // Nothing was posted yet, and so nothing applied.
            links.push(Some(TcpLink::new(stream, &peer, rings)));
            known.push(Some(peer));
        }
        let places = row.into_iter().flat_map(|(me, _)| layout.row(me).subgroups());
        let freed = places.filter(|place| place.ring.is_some()).map(|place| place.entry + entry::FREED).collect();
        let control_max = layout.rows().iter().map(|row| row.control).max().unwrap_or(0);
        // Each may be in it once. A stream may have read more than its hello before it was handed
        // over.
        Ok(TcpLinks {
            epoll,
            open: links.iter().flatten().count() as u32,
            blocked: 0,
            image,
            posted,
            peers: known.into(),
            freed,
            observers: BTreeMap::new(),
            next_observer: OBSERVERS,
            buffer: vec![0; inbox::buffer_bytes(control_max)].into(),
            // Each may be in it once.
            unread,
            links: links.into(),
            // Hellos wait.
            untried: row.is_some(),
            down: VecDeque::new(),
        })
    }

    /// Returns how many connections are open.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    pub(crate) fn is_open(&self, rank: Rank) -> bool {
        self.links[rank.index()].is_some()
    }

    pub(crate) fn traffic(&self, rank: Rank) -> Option<Traffic> {
        let link = self.links[rank.index()].as_ref()?;
        let TcpLink { sent_bytes, received_bytes, .. } = *link;
        Some(Traffic { sent_bytes, received_bytes, waiting_bytes: link.backlog.bytes() })
    }

    pub(crate) fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.down.pop_front()
    }

    /// Returns whether `rank` has, or had, a connection.
    pub(crate) fn knows(&self, rank: Rank) -> bool {
        self.peers[rank.index()].is_some()
    }

    /// Returns the copy of the row of `rank`, if it has or had a stream.
    pub(crate) fn copy(&self, rank: Rank) -> Option<&Arc<CopyRegion>> {
        self.peers[rank.index()].as_ref().map(|peer| &peer.copy)
    }

    /// Returns how many peers were cut off: their connections ended before everything was sent, and
    /// may be replaced.
    pub(crate) fn cut(&self) -> u32 {
        self.peers.iter().flatten().filter(|peer| peer.is_cut).count() as u32
    }

    /// Gives `rank` its first connection, with the copy that it fills. From now on it is known.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn introduce(
        &mut self,
        (rank, their): (Rank, &RowLayout),
        stream: Connection,
        copy: Arc<CopyRegion>,
        row: &OwnRegion,
    ) -> io::Result<()> {
        let peer = Known::new(copy, their);
        let mut link = TcpLink::new(stream, &peer, self.posted.as_ref().map(|rings| rings.len()));
        let nothing = vec![0; self.posted.as_ref().map_or(0, |rings| rings.len())];
        // It has received nothing from this member, so there is no need to wait until it says so.
        link.catch_up(self.posted.as_deref().unwrap_or_default(), &nothing, row, &self.image)
            .map_err(io::Error::other)?;
        self.peers[rank.index()] = Some(peer);
        self.connect(rank, link)
    }

    /// Replaces the connection to `rank`, which is known, whether it is open or not. Nothing more
    /// is read from the old one, and its end is not reported.
    ///
    /// # Errors
    /// The system's reason. There is no connection then.
    pub(crate) fn replace(&mut self, rank: Rank, stream: Connection) -> io::Result<()> {
        if let Some(mut link) = self.remove(rank) {
            // Posts that have arrived whole count. The stream ends here in any case, so its errors
            // add nothing.
            let _ = link.inbox.receive(&link.copy, &mut *link.stream, &mut self.buffer, &mut link.received_bytes);
        }
        debug!(target: TARGET, rank = rank.0, "stream is replaced");
        self.down.retain(|(other, _)| *other != rank);
        let Some(peer) = &self.peers[rank.index()] else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut link = TcpLink::new(stream, peer, self.posted.as_ref().map(|rings| rings.len()));
        link.is_mute = true;
        self.connect(rank, link)
    }

    fn connect(&mut self, rank: Rank, link: TcpLink) -> io::Result<()> {
        if let Some(peer) = &mut self.peers[rank.index()] {
            // Cut off until the connection is open.
            peer.is_cut = true;
        }
        epoll::add(&self.epoll, link.stream.fd(), EventData::new_u64(rank.0.into()), EventFlags::IN)?;
        if let Some(peer) = &mut self.peers[rank.index()] {
            peer.is_cut = false;
        }
        if link.stream.has_arrived() {
            self.unread.push(rank);
        }
        self.links[rank.index()] = Some(link);
        self.open += 1;
        self.untried = true;
        Ok(())
    }

    /// Takes the link to `rank` out, if there is one.
    fn remove(&mut self, rank: Rank) -> Option<TcpLink> {
        let link = self.links[rank.index()].take()?;
        // Another owner may hold a duplicate of the descriptor, which would keep it on the list.
        let _ = epoll::delete(&self.epoll, link.stream.fd());
        self.open -= 1;
        self.blocked -= u32::from(link.blocked);
        self.unread.retain(|other| *other != rank);
        Some(link)
    }

    /// Returns whether the control block of every peer has come as a whole.
    pub(crate) fn has_all(&self) -> bool {
        self.links.iter().flatten().all(|link| link.inbox.has_control())
    }

    /// Returns whether everything for peers is handed to the system.
    pub(crate) fn is_flushed(&self) -> bool {
        self.links.iter().flatten().all(TcpLink::is_flushed)
    }

    /// Returns whether the peers' systems have confirmed all that was handed to this one.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.links.iter().flatten().all(|link| is_confirmed(link.stream.fd()))
    }

    /// Returns whether `rank` or its system has everything that was posted: its connection is not
    /// cut off, and all is confirmed.
    pub(crate) fn is_heard(&self, rank: Rank) -> bool {
        match &self.links[rank.index()] {
            Some(link) => link.is_flushed() && is_confirmed(link.stream.fd()),
            None => self.peers[rank.index()].as_ref().is_none_or(|peer| !peer.is_cut),
        }
    }

    /// Posts control words and frames of my row. Words are sent at once if that is possible, with
    /// the frames before them. Frames without words can wait until they are announced.
    pub(crate) fn post(&mut self, row: &OwnRegion, peers: &[Rank], words: Range<u64>, frames: Range<u64>) {
        if !frames.is_empty() {
            self.posted.iter_mut().flatten().for_each(|ring| ring.note(&frames, &self.image));
        }
        if !words.is_empty() {
            self.image.update(row, &words);
        }
        for observer in self.observers.values_mut() {
            observer.add(&words, frames.clone());
            self.untried = true;
        }
        for &peer in peers {
            let Some(link) = &mut self.links[peer.index()] else { continue };
            if link.is_mute || link.turn.is_some() {
                continue;
            }
            link.backlog.add_range(frames.clone());
            link.backlog.add_control(&words);
            if words.is_empty() {
                self.untried = true;
            } else if !link.blocked {
                self.send(peer, row);
            }
        }
    }

    /// Sends to all links that can send and have not been tried.
    pub(crate) fn flush(&mut self, row: &OwnRegion) -> bool {
        let mut moved = false;
        if std::mem::take(&mut self.untried) {
            for rank in (0..self.links.len() as u32).map(Rank) {
                let waits = |link: &TcpLink| !link.blocked && !link.is_sent();
                if self.links[rank.index()].as_ref().is_some_and(waits) {
                    moved |= self.send(rank, row);
                }
            }
            let waiting = self.observers.iter().filter(|(_, observer)| !observer.blocked).map(|(event, _)| *event);
            for event in waiting.collect::<Vec<_>>() {
                moved |= self.serve(event, row);
            }
        }
        moved
    }

    /// Sends what can be sent and reads the bytes that have arrived. Returns whether anything was
    /// sent, and whether anything arrived.
    pub(crate) fn progress(&mut self, row: &OwnRegion) -> (bool, bool) {
        let mut sent = self.flush(row);
        let mut arrived = false;
        if self.open <= UNASKED_MAX && self.blocked == 0 && self.observers.is_empty() {
            self.unread.clear();
            for rank in (0..self.links.len() as u32).map(Rank) {
                arrived |= self.receive(rank, row);
            }
            return (sent, arrived);
        }
        for _ in 0..self.unread.len() {
            let rank = self.unread.remove(0);
            arrived |= self.receive(rank, row);
        }
        for (event, flags) in EpollSpace::<EVENTS_MAX>::default().wait(self.epoll.as_fd(), Duration::ZERO) {
            let Ok(rank) = u32::try_from(event).map(Rank) else {
                sent |= self.attend(event, flags, row);
                continue;
            };
            if flags.contains(EventFlags::OUT) {
                sent |= self.send(rank, row);
            }
            if flags.intersects(ARRIVED) {
                arrived |= self.receive(rank, row);
            }
        }
        (sent, arrived)
    }

    /// Returns the descriptor that is ready when something can be done, or the event count is rung.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// From now on, events of `others` end a wait, too, until they are dropped. These are
    /// connections of an older view that [stand apart](Self::stand_apart).
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn wake_by(&mut self, others: &TcpLinks) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, &others.epoll, EventData::new_u64(OLDER), EventFlags::IN)?)
    }

    /// From now on, the event count and connections of older views end no wait here: the view has
    /// ended, and the newest view's connections wait for all of them. The system allows few levels
    /// of descriptors that wait for others.
    ///
    /// # Errors
    /// The system's reason. Nothing has changed then.
    pub(crate) fn stand_apart(&mut self) -> io::Result<()> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (rank, link) in (0..).zip(&self.links) {
            if let Some(link) = link.as_ref().filter(|link| !link.interest().is_empty()) {
                epoll::add(&epoll, link.stream.fd(), EventData::new_u64(rank), link.interest())?;
            }
        }
        for (event, observer) in &self.observers {
            epoll::add(&epoll, observer.stream.fd(), EventData::new_u64(*event), observer.interest())?;
        }
        self.epoll = epoll;
        Ok(())
    }

    /// Returns whether there are unread bytes that the system does not report.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Waits until something can be done or the event count is rung, `at_most` that long. Returns
    /// whether anything has arrived.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        if !self.unread.is_empty() {
            return true;
        }
        EpollSpace::<EVENTS_MAX>::default()
            .wait(self.epoll.as_fd(), at_most)
            .any(|(event, flags)| event != BELL && flags.intersects(ARRIVED))
    }

    /// Handles an event of an observer, or of the event count. Returns whether anything was sent.
    fn attend(&mut self, event: u64, flags: EventFlags, row: &OwnRegion) -> bool {
        let Some(observer) = self.observers.get_mut(&event) else { return false };
        if flags.intersects(ARRIVED) && observer.has_gone() {
            self.dismiss(event);
            return false;
        }
        flags.contains(EventFlags::OUT) && self.serve(event, row)
    }

    /// Sends to one peer; returns whether anything left.
    fn send(&mut self, rank: Rank, row: &OwnRegion) -> bool {
        let Some(link) = &mut self.links[rank.index()] else { return false };
        let before = link.sent_bytes;
        if let Err(error) = link.send(row, &self.image) {
            link.backlog.clear();
            link.is_mute = true;
            link.deaf = Some(error);
            // It ends when all bytes that have come are read.
            if !self.unread.contains(&rank) {
                self.unread.push(rank);
            }
        }
        let moved = link.sent_bytes > before;
        let blocks = link.deaf.is_none() && !link.is_sent();
        if blocks != link.blocked {
            link.blocked = blocks;
            self.blocked = if blocks { self.blocked + 1 } else { self.blocked - 1 };
            watch(&self.epoll, rank, link);
        }
        moved
    }

    /// Receives from one peer; returns whether anything arrived, even if only the end.
    fn receive(&mut self, rank: Rank, row: &OwnRegion) -> bool {
        let Some(link) = &mut self.links[rank.index()] else { return false };
        let before = link.received_bytes;
        match link.inbox.receive(&link.copy, &mut *link.stream, &mut self.buffer, &mut link.received_bytes) {
            Ok(false) if link.deaf.is_some() => {
                self.close(rank, Down::Closed);
                true
            }
            Ok(more) => {
                if more && !self.unread.contains(&rank) {
                    self.unread.push(rank);
                }
                let arrived = link.received_bytes > before;
                if arrived && link.inbox.turn().is_some() {
                    watch(&self.epoll, rank, link);
                }
                if let Some(applied) = link.inbox.take_hello() {
                    return self.heard_hello(rank, &applied, row) | arrived;
                }
                // A stream may have to answer by itself.
                if !link.blocked && link.deaf.is_none() && link.stream.holds_back() {
                    self.send(rank, row);
                }
                arrived
            }
            Err(down) => {
                self.close(rank, down);
                true
            }
        }
    }

    /// Handles the hello of `rank`, which states what it has `applied`. Returns whether anything
    /// happened.
    #[cold]
    fn heard_hello(&mut self, rank: Rank, applied: &[u64], row: &OwnRegion) -> bool {
        let (Some(link), Some(posted)) = (&mut self.links[rank.index()], &self.posted) else { return false };
        if link.deaf.is_some() {
            return false;
        }
        let told = match link.is_mute {
            true => link.catch_up(posted, applied, row, &self.image).map(|lacking_bytes| {
                let control_bytes = self.image.bytes().len();
                info!(target: TARGET, rank = rank.0, lacking_bytes, control_bytes, "stream is resumed");
            }),
            // All that it lacks is in transit, and it can't have had any of it.
            false => {
                posted.iter().zip(applied).try_for_each(|(ring, at)| ring.lacking(*at, row, &self.image).map(drop))
            }
        };
        match told {
            Ok(()) => drop(self.send(rank, row)),
            Err(down) => self.close(rank, down),
        }
        true
    }

    #[cold]
    fn close(&mut self, rank: Rank, down: Down) {
        let Some(link) = self.remove(rank) else { return };
        let has_said_all = link.is_flushed() && matches!(down, Down::Closed);
        let down = match (down, link.deaf) {
            // The system reports the cause only once.
            (Down::Closed | Down::Os { .. }, Some(source)) => Down::Os { call: "sending", source },
            (down, _) => down,
        };
        match &down {
            Down::Closed => debug!(target: TARGET, rank = rank.0, has_said_all, "stream is closed"),
            down => warn!(target: TARGET, rank = rank.0, reason = %down, "stream is broken"),
        }
        if let Some(peer) = &mut self.peers[rank.index()] {
            peer.is_cut = !has_said_all || matches!(down, Down::Os { .. });
        }
        self.down.push_back((rank, down));
    }
}

/// Asks the system for the events that a link needs, or removes the link if it needs none: some
/// events come without a request.
fn watch(epoll: &OwnedFd, rank: Rank, link: &TcpLink) {
    let (fd, data, flags) = (link.stream.fd(), EventData::new_u64(rank.0.into()), link.interest());
    if flags.is_empty() {
        let _ = epoll::delete(epoll, fd);
    } else if epoll::modify(epoll, fd, data, flags).is_err() {
        // It was taken out, and is open. If the system has no room for it, its peer is not
        // observed.
        let _ = epoll::add(epoll, fd, data, flags);
    }
}

/// The events of arrived bytes, and those of a peer that has ended.
const ARRIVED: EventFlags = EventFlags::IN.union(EventFlags::HUP).union(EventFlags::ERR);

impl Known {
    fn new(copy: Arc<CopyRegion>, row: &RowLayout) -> Known {
        Known { copy, control_bytes: row.control, announcements: announcements(row), is_cut: false }
    }
}
