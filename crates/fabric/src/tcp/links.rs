//! The connections of one member: which of them can move bytes, and moving them.
use super::backlog::{Backlog, Image};
use super::error::{Down, TcpError};
use super::inbox::{self, Inbox};
use super::stream::Connection;
use crate::bell::EventBell;
use crate::region::{CopyRegion, OwnRegion};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::AsFd;
use rustix::fs::Timespec;
use spindle_core::{Layout, Rank};
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Up to so many connections are read from without asking first which of them have something.
const UNASKED_MAX: u32 = 2;
/// Events taken from the system at once.
const EVENTS_MAX: usize = 64;
/// The event of the bell; the others are ranks.
const BELL: u64 = u64::MAX;

/// Bytes that went over the connection to one peer, with the heads of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Handed to the system for sending.
    pub sent_bytes: u64,
    /// Received.
    pub received_bytes: u64,
    /// Posted, and not handed to the system yet.
    pub waiting_bytes: u64,
}

/// All connections of a member.
#[derive(Debug)]
pub(super) struct Links {
    epoll: OwnedFd,
    /// By rank; none at my own, and for peers that are gone.
    links: Box<[Option<Link>]>,
    image: Image,
    /// What is received goes through it, if it does not go straight to its place.
    buffer: Box<[u8]>,
    /// How many links there are, and how many of them wait until the system takes more.
    open: u32,
    blocked: u32,
    /// Links of which not everything was read that has arrived.
    unread: Vec<Rank>,
    /// Whether there are posts that nobody has tried to send.
    untried: bool,
    down: VecDeque<(Rank, Down)>,
}

#[derive(Debug)]
struct Link {
    stream: Connection,
    copy: Arc<CopyRegion>,
    backlog: Backlog,
    inbox: Inbox,
    /// Whether it waits until the system takes more.
    blocked: bool,
    /// Why nothing can be sent any more. What the peer has sent is still read.
    deaf: Option<io::Error>,
    sent_bytes: u64,
    received_bytes: u64,
}

/// A connection, and the copy that it fills.
pub(super) type Peer = (Connection, Arc<CopyRegion>);

/// Where the system writes events.
struct Room([MaybeUninit<Event>; EVENTS_MAX]);

impl Default for Room {
    fn default() -> Room {
        Room([const { MaybeUninit::uninit() }; EVENTS_MAX])
    }
}

impl Links {
    /// Those of `me`, by rank.
    pub(super) fn new(
        layout: &Layout,
        me: Rank,
        bell: &EventBell,
        peers: Vec<Option<Peer>>,
    ) -> Result<Links, TcpError> {
        let os = |call| move |errno: rustix::io::Errno| TcpError::Os { call, source: errno.into() };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        let add = |fd: rustix::fd::BorrowedFd<'_>, data| {
            epoll::add(&epoll, fd, EventData::new_u64(data), EventFlags::IN).map_err(os("epoll_ctl"))
        };
        add(bell.as_fd(), BELL)?;
        let mut links = Vec::with_capacity(peers.len());
        for ((rank, row), peer) in (0..).zip(layout.rows()).zip(peers) {
            let Some((stream, copy)) = peer else {
                links.push(None);
                continue;
            };
            add(stream.fd(), rank)?;
            let inbox = Inbox::new(row.size, row.control);
            let (backlog, blocked, deaf, sent_bytes, received_bytes) = (Backlog::default(), false, None, 0, 0);
            links.push(Some(Link { stream, copy, backlog, inbox, blocked, deaf, sent_bytes, received_bytes }));
        }
        let control_max = layout.rows().iter().map(|row| row.control).max().unwrap_or(0);
        Ok(Links {
            epoll,
            open: links.iter().flatten().count() as u32,
            blocked: 0,
            image: Image::new(layout.row(me).control),
            buffer: vec![0; inbox::buffer_bytes(control_max)].into(),
            // Each may be in it once.
            unread: Vec::with_capacity(links.len()),
            links: links.into(),
            untried: false,
            down: VecDeque::new(),
        })
    }

    /// How many connections there are still.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    pub(super) fn is_open(&self, rank: Rank) -> bool {
        self.links[rank.index()].is_some()
    }

    pub(super) fn traffic(&self, rank: Rank) -> Option<Traffic> {
        let link = self.links[rank.index()].as_ref()?;
        let Link { sent_bytes, received_bytes, .. } = *link;
        Some(Traffic { sent_bytes, received_bytes, waiting_bytes: link.backlog.bytes() })
    }

    pub(super) fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.down.pop_front()
    }

    /// Whether everything is handed to the system.
    pub(super) fn is_flushed(&self) -> bool {
        self.links.iter().flatten().all(Link::is_flushed)
    }

    /// Posts control words and frames. Words are sent at once if that is possible, with the frames before them; frames alone can wait until
    /// they are announced.
    pub(super) fn post(&mut self, row: &OwnRegion, peers: &[Rank], words: Range<u64>, frames: Range<u64>) {
        if !words.is_empty() {
            self.image.update(row, &words);
        }
        for &peer in peers {
            let Some(link) = &mut self.links[peer.index()] else { continue };
            if link.deaf.is_some() {
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

    /// Sends to all who can take something and have not been tried.
    pub(super) fn flush(&mut self, row: &OwnRegion) -> bool {
        let mut moved = false;
        if std::mem::take(&mut self.untried) {
            for rank in (0..self.links.len() as u32).map(Rank) {
                let waits = |link: &Link| !link.blocked && !link.is_flushed();
                if self.links[rank.index()].as_ref().is_some_and(waits) {
                    moved |= self.send(rank, row);
                }
            }
        }
        moved
    }

    /// Sends what can be sent and takes in what has arrived; whether something was sent, and whether something arrived.
    pub(super) fn progress(&mut self, row: &OwnRegion) -> (bool, bool) {
        let mut sent = self.flush(row);
        let mut arrived = false;
        if self.open <= UNASKED_MAX && self.blocked == 0 {
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
        for (rank, flags) in self.ask(Duration::ZERO, &mut Room::default()) {
            if flags.contains(EventFlags::OUT) {
                sent |= self.send(rank, row);
            }
            if flags.intersects(ARRIVED) {
                arrived |= self.receive(rank, row);
            }
        }
        (sent, arrived)
    }

    /// Waits until something can be done or the bell rings, `at_most` that long. Whether something has arrived.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        if !self.unread.is_empty() {
            return true;
        }
        self.ask(at_most, &mut Room::default()).any(|(_, flags)| flags.intersects(ARRIVED))
    }

    /// Asks, and waits if need be, which links can do what.
    fn ask<'r>(&self, at_most: Duration, room: &'r mut Room) -> impl Iterator<Item = (Rank, EventFlags)> + use<'r> {
        let timeout =
            Timespec { tv_sec: at_most.as_secs().min(i32::MAX as u64) as i64, tv_nsec: at_most.subsec_nanos().into() };
        let events: &[Event] = match epoll::wait(&self.epoll, &mut room.0, Some(&timeout)) {
            Ok((events, _)) => events,
            // Interrupted is as good as timed out.
            Err(_) => &[],
        };
        events.iter().filter_map(|event| {
            // Copied, because it may stand unaligned.
            let (flags, data) = (event.flags, event.data);
            Some((Rank(u32::try_from(data.u64()).ok()?), flags))
        })
    }

    /// Tells all peers that nothing more comes.
    pub(super) fn finish(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.stream.finish();
        }
        // A stream may have to say something for that.
        self.untried = true;
    }

    /// Sends to one; whether anything left.
    fn send(&mut self, rank: Rank, row: &OwnRegion) -> bool {
        let Some(link) = &mut self.links[rank.index()] else { return false };
        let before = link.sent_bytes;
        if let Err(error) = link.send(row, &self.image) {
            link.backlog.clear();
            link.deaf = Some(error);
        }
        let moved = link.sent_bytes > before;
        let blocks = link.deaf.is_none() && !link.is_flushed();
        if blocks != link.blocked {
            link.blocked = blocks;
            self.blocked = if blocks { self.blocked + 1 } else { self.blocked - 1 };
            let flags = if blocks { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // It was added, with the same descriptor, and is open.
            let modified = epoll::modify(&self.epoll, link.stream.fd(), EventData::new_u64(rank.0.into()), flags);
            debug_assert!(modified.is_ok());
        }
        moved
    }

    /// Receives from one; whether anything arrived, if only the end.
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

    #[cold]
    fn close(&mut self, rank: Rank, down: Down) {
        let Some(link) = self.links[rank.index()].take() else { return };
        // Somebody may hold a duplicate of the descriptor, which would keep it in there.
        let _ = epoll::delete(&self.epoll, link.stream.fd());
        self.open -= 1;
        self.blocked -= u32::from(link.blocked);
        self.unread.retain(|other| *other != rank);
        let down = match (down, link.deaf) {
            // The system says only once what was wrong.
            (Down::Closed | Down::Os { .. }, Some(source)) => Down::Os { call: "sending", source },
            (down, _) => down,
        };
        self.down.push_back((rank, down));
    }
}

/// What a peer that has ended brings along, too.
const ARRIVED: EventFlags = EventFlags::IN.union(EventFlags::HUP).union(EventFlags::ERR);

impl Link {
    fn send(&mut self, row: &OwnRegion, image: &Image) -> io::Result<()> {
        self.sent_bytes += self.backlog.send(row, image, &mut *self.stream)?;
        if self.stream.holds_back() {
            match self.stream.send(&[]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn is_flushed(&self) -> bool {
        self.backlog.is_empty() && !self.stream.holds_back()
    }
}
