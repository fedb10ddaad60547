//! The connections of one member: which of them can move bytes, and moving them.
use super::backlog::{Backlog, Image};
use super::error::Down;
use super::guest::Guest;
use super::inbox::{self, Inbox};
use super::stream::{Connection, is_confirmed};
use crate::region::{CopyRegion, OwnRegion};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::BorrowedFd;
use rustix::fs::Timespec;
use spindle_core::layout::entry;
use spindle_core::{Layout, Rank};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Up to so many connections are read from without asking first which of them have something.
const UNASKED_MAX: u32 = 2;
/// Events taken from the system at once.
const EVENTS_MAX: usize = 64;
/// The event of the bell; those of guests are from another one on, and all others are ranks.
const BELL: u64 = u64::MAX;
const GUESTS: u64 = 1 << 32;

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

/// All connections of a member, to peers that are not on its machine.
#[derive(Debug)]
pub(crate) struct Links {
    epoll: OwnedFd,
    /// By rank; none at my own, for peers that are here, and for those that are gone.
    links: Box<[Option<Link>]>,
    image: Image,
    /// Where the words of my row stand that guests must not get late.
    freed: Box<[u64]>,
    /// By the number in their events.
    guests: BTreeMap<u64, Guest>,
    next_guest: u64,
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
pub(crate) type Feed = (Connection, Arc<CopyRegion>);

/// Where the system writes events.
struct Room([MaybeUninit<Event>; EVENTS_MAX]);

impl Default for Room {
    fn default() -> Room {
        Room([const { MaybeUninit::uninit() }; EVENTS_MAX])
    }
}

impl Links {
    /// Those of somebody with `row`, or without one; `bell` ends a wait, too.
    ///
    /// # Errors
    /// The system call that failed.
    pub(crate) fn new(
        layout: &Layout,
        row: Option<(Rank, &OwnRegion)>,
        bell: Option<BorrowedFd<'_>>,
        peers: Vec<Option<Feed>>,
    ) -> Result<Links, (&'static str, io::Error)> {
        let os = |call| move |errno: rustix::io::Errno| (call, errno.into());
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        let add = |fd: BorrowedFd<'_>, data| {
            epoll::add(&epoll, fd, EventData::new_u64(data), EventFlags::IN).map_err(os("epoll_ctl"))
        };
        if let Some(bell) = bell {
            add(bell, BELL)?;
        }
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
        let places = row.into_iter().flat_map(|(me, _)| layout.row(me).places());
        let freed = places.filter(|place| place.ring.is_some()).map(|place| place.entry + entry::FREED).collect();
        let control_max = layout.rows().iter().map(|row| row.control).max().unwrap_or(0);
        Ok(Links {
            epoll,
            open: links.iter().flatten().count() as u32,
            blocked: 0,
            image: row.map_or(Image::new(0), |(_, row)| Image::of(row)),
            freed,
            guests: BTreeMap::new(),
            next_guest: GUESTS,
            buffer: vec![0; inbox::buffer_bytes(control_max)].into(),
            // Each may be in it once.
            unread: Vec::with_capacity(links.len()),
            links: links.into(),
            untried: false,
            down: VecDeque::new(),
        })
    }

    /// How many connections there are still.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    pub(crate) fn is_open(&self, rank: Rank) -> bool {
        self.links[rank.index()].is_some()
    }

    pub(crate) fn traffic(&self, rank: Rank) -> Option<Traffic> {
        let link = self.links[rank.index()].as_ref()?;
        let Link { sent_bytes, received_bytes, .. } = *link;
        Some(Traffic { sent_bytes, received_bytes, waiting_bytes: link.backlog.bytes() })
    }

    pub(crate) fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.down.pop_front()
    }

    /// From now on `stream` gets what any peer does, and all of the row before.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn add_guest(&mut self, stream: Connection, row: &OwnRegion) -> io::Result<()> {
        epoll::add(&self.epoll, stream.fd(), EventData::new_u64(self.next_guest), EventFlags::IN)?;
        self.guests.insert(self.next_guest, Guest::new(stream, row));
        self.next_guest += 1;
        self.untried = true;
        Ok(())
    }

    /// Whether everything is handed to the system that is for guests.
    pub(crate) fn has_served(&self) -> bool {
        self.guests.values().all(Guest::is_flushed)
    }

    pub(crate) fn guests(&self) -> usize {
        self.guests.len()
    }

    /// Whether everybody's control block has come as a whole.
    pub(crate) fn has_all(&self) -> bool {
        self.links.iter().flatten().all(|link| link.inbox.has_control())
    }

    /// Whether everything is handed to the system that is for peers.
    pub(crate) fn is_flushed(&self) -> bool {
        self.links.iter().flatten().all(Link::is_flushed)
    }

    /// Whether the peers' systems have confirmed all that was handed to this one.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.links.iter().flatten().all(|link| is_confirmed(link.stream.fd()))
    }

    /// Posts control words and frames of my row. Words are sent at once if that is possible, with the frames before them; frames alone can
    /// wait until they are announced.
    pub(crate) fn post(&mut self, row: &OwnRegion, peers: &[Rank], words: Range<u64>, frames: Range<u64>) {
        if !words.is_empty() {
            self.image.update(row, &words);
        }
        for guest in self.guests.values_mut() {
            guest.add(&words, frames.clone());
            self.untried = true;
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
    pub(crate) fn flush(&mut self, row: &OwnRegion) -> bool {
        let mut moved = false;
        if std::mem::take(&mut self.untried) {
            for rank in (0..self.links.len() as u32).map(Rank) {
                let waits = |link: &Link| !link.blocked && !link.is_flushed();
                if self.links[rank.index()].as_ref().is_some_and(waits) {
                    moved |= self.send(rank, row);
                }
            }
            let waiting = self.guests.iter().filter(|(_, guest)| !guest.blocked).map(|(event, _)| *event);
            for event in waiting.collect::<Vec<_>>() {
                moved |= self.serve(event, row);
            }
        }
        moved
    }

    /// Sends what can be sent and takes in what has arrived; whether something was sent, and whether something arrived.
    pub(crate) fn progress(&mut self, row: &OwnRegion) -> (bool, bool) {
        let mut sent = self.flush(row);
        let mut arrived = false;
        if self.open <= UNASKED_MAX && self.blocked == 0 && self.guests.is_empty() {
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
        for (event, flags) in self.ask(Duration::ZERO, &mut Room::default()) {
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

    /// What is ready when something can be done, or the bell rings.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Waits until something can be done or the bell rings, `at_most` that long. Whether something has arrived.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        if !self.unread.is_empty() {
            return true;
        }
        self.ask(at_most, &mut Room::default()).any(|(event, flags)| event != BELL && flags.intersects(ARRIVED))
    }

    /// Asks, and waits if need be, which links can do what.
    fn ask<'r>(&self, at_most: Duration, room: &'r mut Room) -> impl Iterator<Item = (u64, EventFlags)> + use<'r> {
        let timeout =
            Timespec { tv_sec: at_most.as_secs().min(i32::MAX as u64) as i64, tv_nsec: at_most.subsec_nanos().into() };
        let events: &[Event] = match epoll::wait(&self.epoll, &mut room.0, Some(&timeout)) {
            Ok((events, _)) => events,
            // Interrupted is as good as timed out.
            Err(_) => &[],
        };
        events.iter().map(|event| {
            // Copied, because it may stand unaligned.
            let (flags, data) = (event.flags, event.data);
            (data.u64(), flags)
        })
    }

    /// Something has happened to a guest, or to the bell. Whether anything was sent.
    fn attend(&mut self, event: u64, flags: EventFlags, row: &OwnRegion) -> bool {
        let Some(guest) = self.guests.get_mut(&event) else { return false };
        if flags.intersects(ARRIVED) && guest.has_gone() {
            self.dismiss(event);
            return false;
        }
        flags.contains(EventFlags::OUT) && self.serve(event, row)
    }

    /// Sends to a guest; whether anything left.
    fn serve(&mut self, event: u64, row: &OwnRegion) -> bool {
        let Some(guest) = self.guests.get_mut(&event) else { return false };
        let Ok(moved) = guest.send(row, &self.image, &self.freed) else {
            self.dismiss(event);
            return false;
        };
        let blocks = !guest.is_flushed();
        if blocks != guest.blocked {
            guest.blocked = blocks;
            let flags = if blocks { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // It was added, with the same descriptor, and is open.
            let modified = epoll::modify(&self.epoll, guest.stream.fd(), EventData::new_u64(event), flags);
            debug_assert!(modified.is_ok());
        }
        moved
    }

    fn dismiss(&mut self, event: u64) {
        if let Some(guest) = self.guests.remove(&event) {
            // Somebody may hold a duplicate of the descriptor.
            let _ = epoll::delete(&self.epoll, guest.stream.fd());
        }
    }

    /// Tells all peers that nothing more comes.
    pub(crate) fn finish(&mut self) {
        for mut guest in std::mem::take(&mut self.guests).into_values() {
            guest.stream.finish();
        }
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
            // It ends when everything is read that has come.
            if !self.unread.contains(&rank) {
                self.unread.push(rank);
            }
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
        self.deaf.is_some() || self.backlog.is_empty() && !self.stream.holds_back()
    }
}
