//! The connections of one member: which of them can move bytes, and moving them.
use super::backlog::{Backlog, Image};
use super::error::Down;
use super::guest::Guest;
use super::inbox::{self, Inbox};
use super::resume::{Posted, announcements};
use super::stream::{Connection, again, is_confirmed};
use super::wire::{self, TURN_BYTES};
use crate::far::TARGET;
use crate::region::{CopyRegion, OwnRegion};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::BorrowedFd;
use rustix::fs::Timespec;
use spindle_core::layout::entry;
use spindle_core::{Layout, Rank, RowLayout, ViewId};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Up to so many connections are read from without asking first which of them have something.
const UNASKED_MAX: u32 = 2;
/// Events taken from the system at once.
const EVENTS_MAX: usize = 64;
/// The events of the bell, and of the connections of older views; those of guests are from another one on, and all others are ranks.
const BELL: u64 = u64::MAX;
const OLDER: u64 = BELL - 1;
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
    /// By rank; none at my own, for peers that are here, and while there is no connection.
    links: Box<[Option<Link>]>,
    /// By rank: what is known of peers that have, or had, a connection.
    peers: Box<[Option<Known>]>,
    image: Image,
    /// The rings of my row. A follower has no row, sends nothing, and gets no hello.
    posted: Option<Box<[Posted]>>,
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

/// A peer, whatever becomes of its connections.
#[derive(Debug)]
struct Known {
    copy: Arc<CopyRegion>,
    control_bytes: u64,
    /// Where its row announces its rings.
    announcements: Box<[u64]>,
    /// Whether its last connection ended before all was said.
    is_cut: bool,
}

#[derive(Debug)]
struct Link {
    stream: Connection,
    copy: Arc<CopyRegion>,
    backlog: Backlog,
    inbox: Inbox,
    /// Whether it waits until the system takes more.
    blocked: bool,
    /// Whether posts pass it by: nothing can be sent, or what the peer has applied is not known yet.
    is_mute: bool,
    /// Why nothing can be sent any more. What the peer has sent is still read.
    deaf: Option<io::Error>,
    /// The last frame of the view, once nothing more is posted, and how much of it has left.
    turn: Option<([u8; TURN_BYTES], usize)>,
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
                // The system does not tell of what the stream has taken in already.
                unread.push(Rank(rank as u32));
            }
            let peer = Known::new(copy, row);
            // Nothing was posted yet, and so nothing applied.
            links.push(Some(Link::new(stream, &peer, rings)));
            known.push(Some(peer));
        }
        let places = row.into_iter().flat_map(|(me, _)| layout.row(me).places());
        let freed = places.filter(|place| place.ring.is_some()).map(|place| place.entry + entry::FREED).collect();
        let control_max = layout.rows().iter().map(|row| row.control).max().unwrap_or(0);
        // Each may be in it once. A stream may have read more than its hello before it was handed over.
        Ok(Links {
            epoll,
            open: links.iter().flatten().count() as u32,
            blocked: 0,
            image,
            posted,
            peers: known.into(),
            freed,
            guests: BTreeMap::new(),
            next_guest: GUESTS,
            buffer: vec![0; inbox::buffer_bytes(control_max)].into(),
            // Each may be in it once.
            unread,
            links: links.into(),
            // Hellos wait.
            untried: row.is_some(),
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

    /// Whether `rank` has, or had, a connection.
    pub(crate) fn knows(&self, rank: Rank) -> bool {
        self.peers[rank.index()].is_some()
    }

    #[cfg(test)]
    pub(crate) fn copy(&self, rank: Rank) -> Option<&Arc<CopyRegion>> {
        self.peers[rank.index()].as_ref().map(|peer| &peer.copy)
    }

    /// How many peers were cut off: their connections ended before all was said, and may be replaced.
    pub(crate) fn cut(&self) -> u32 {
        self.peers.iter().flatten().filter(|peer| peer.is_cut).count() as u32
    }

    /// Gives `rank` its first connection, with the copy that it fills. From now on it is known.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn introduce(
        &mut self,
        (rank, their): (Rank, &RowLayout),
        stream: Connection,
        copy: Arc<CopyRegion>,
        row: &OwnRegion,
    ) -> io::Result<()> {
        let peer = Known::new(copy, their);
        let mut link = Link::new(stream, &peer, self.posted.as_ref().map(|rings| rings.len()));
        let nothing = vec![0; self.posted.as_ref().map_or(0, |rings| rings.len())];
        // It has had nothing from this member, so there is no need to wait for it to say so.
        link.catch_up(self.posted.as_deref().unwrap_or_default(), &nothing, row, &self.image)
            .map_err(io::Error::other)?;
        self.peers[rank.index()] = Some(peer);
        self.connect(rank, link)
    }

    /// Replaces the connection to `rank`, which is known, whether it is open or not. Nothing more is taken from the old one, nor told of it.
    ///
    /// # Errors
    /// What the system said. There is no connection then.
    pub(crate) fn replace(&mut self, rank: Rank, stream: Connection) -> io::Result<()> {
        if let Some(mut link) = self.remove(rank) {
            // Posts that have arrived whole count. The stream ends here in any case, so its errors say nothing new.
            let _ = link.inbox.receive(&link.copy, &mut *link.stream, &mut self.buffer, &mut link.received_bytes);
        }
        debug!(target: TARGET, rank = rank.0, "stream is replaced");
        self.down.retain(|(other, _)| *other != rank);
        let Some(peer) = &self.peers[rank.index()] else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut link = Link::new(stream, peer, self.posted.as_ref().map(|rings| rings.len()));
        link.is_mute = true;
        self.connect(rank, link)
    }

    fn connect(&mut self, rank: Rank, link: Link) -> io::Result<()> {
        if let Some(peer) = &mut self.peers[rank.index()] {
            // Until it is open.
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
    fn remove(&mut self, rank: Rank) -> Option<Link> {
        let link = self.links[rank.index()].take()?;
        // Somebody may hold a duplicate of the descriptor, which would keep it in there.
        let _ = epoll::delete(&self.epoll, link.stream.fd());
        self.open -= 1;
        self.blocked -= u32::from(link.blocked);
        self.unread.retain(|other| *other != rank);
        Some(link)
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

    /// Whether `rank` lacks nothing that was posted, or its system has it: its connection is not cut off, and all is confirmed.
    pub(crate) fn is_heard(&self, rank: Rank) -> bool {
        match &self.links[rank.index()] {
            Some(link) => link.is_flushed() && is_confirmed(link.stream.fd()),
            None => self.peers[rank.index()].as_ref().is_none_or(|peer| !peer.is_cut),
        }
    }

    /// Posts control words and frames of my row. Words are sent at once if that is possible, with the frames before them; frames alone can
    /// wait until they are announced.
    pub(crate) fn post(&mut self, row: &OwnRegion, peers: &[Rank], words: Range<u64>, frames: Range<u64>) {
        if !frames.is_empty() {
            self.posted.iter_mut().flatten().for_each(|ring| ring.note(&frames, &self.image));
        }
        if !words.is_empty() {
            self.image.update(row, &words);
        }
        for guest in self.guests.values_mut() {
            guest.add(&words, frames.clone());
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

    /// Sends to all who can take something and have not been tried.
    pub(crate) fn flush(&mut self, row: &OwnRegion) -> bool {
        let mut moved = false;
        if std::mem::take(&mut self.untried) {
            for rank in (0..self.links.len() as u32).map(Rank) {
                let waits = |link: &Link| !link.blocked && !link.is_sent();
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

    /// From now on whatever can be done on `others`, those of an older view that [stand apart](Self::stand_apart), ends a wait, too: until they are dropped.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn wake_by(&mut self, others: &Links) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, &others.epoll, EventData::new_u64(OLDER), EventFlags::IN)?)
    }

    /// From now on the bell and connections of older views end no wait: the view has ended, and the newest one's connections wait for all of them. The system
    /// allows few descriptors that wait for others that wait.
    ///
    /// # Errors
    /// What the system said. All is as before then.
    pub(crate) fn stand_apart(&mut self) -> io::Result<()> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (rank, link) in (0..).zip(&self.links) {
            if let Some(link) = link.as_ref().filter(|link| !link.interest().is_empty()) {
                epoll::add(&epoll, link.stream.fd(), EventData::new_u64(rank), link.interest())?;
            }
        }
        for (event, guest) in &self.guests {
            epoll::add(&epoll, guest.stream.fd(), EventData::new_u64(*event), guest.interest())?;
        }
        self.epoll = epoll;
        Ok(())
    }

    /// Whether something has come that the system does not tell of.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
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
            // It was added, with the same descriptor, and is open.
            let modified = epoll::modify(&self.epoll, guest.stream.fd(), EventData::new_u64(event), guest.interest());
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

    /// Nothing more is posted to `rank` in this view: what follows on its stream is of `next`. Means nothing if that was said before, or there is
    /// no stream that sends.
    pub(crate) fn turn(&mut self, rank: Rank, next: ViewId, row: &OwnRegion) {
        if let Some(link) = &mut self.links[rank.index()]
            && link.turn.is_none()
            && link.deaf.is_none()
        {
            link.turn = Some((wire::turn(next), 0));
            if !link.blocked {
                self.send(rank, row);
            }
        }
    }

    /// Takes the streams out that both sides have [turned](Self::turn) to `next`: all of this view has arrived at both. Streams whose peers have turned to another view
    /// are closed.
    pub(crate) fn take_turned(&mut self, next: ViewId) -> Vec<(Rank, Connection)> {
        let mut turned = vec![];
        for rank in (0..self.links.len() as u32).map(Rank) {
            let Some(link) = &self.links[rank.index()] else { continue };
            match link.inbox.turn() {
                Some(theirs) if theirs != next => self.close(rank, Down::Astray { turned: theirs, next }),
                Some(_) if link.has_turned(next) => {
                    let Some(link) = self.remove(rank) else { continue };
                    turned.push((rank, again(link.stream, link.inbox.ahead())));
                }
                _ => {}
            }
        }
        turned
    }

    /// Drops the streams whose peers have turned to the next view: they need nothing more of this one.
    pub(crate) fn drop_turned(&mut self) {
        for rank in (0..self.links.len() as u32).map(Rank) {
            if self.links[rank.index()].as_ref().is_some_and(|link| link.inbox.turn().is_some()) {
                drop(self.remove(rank));
            }
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
            link.is_mute = true;
            link.deaf = Some(error);
            // It ends when everything is read that has come.
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

    /// `rank` states what it has `applied`. Whether anything happened.
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
            // All is on its way that it lacks, and it can't have had any of it.
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
            // The system says only once what was wrong.
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

/// Asks the system for what is to be known of a link, and for nothing if that is nothing: of some things it tells unasked.
fn watch(epoll: &OwnedFd, rank: Rank, link: &Link) {
    let (fd, data, flags) = (link.stream.fd(), EventData::new_u64(rank.0.into()), link.interest());
    if flags.is_empty() {
        let _ = epoll::delete(epoll, fd);
    } else if epoll::modify(epoll, fd, data, flags).is_err() {
        // It was taken out, and is open. If the system has no room for it, its peer is missed.
        let _ = epoll::add(epoll, fd, data, flags);
    }
}

/// What a peer that has ended brings along, too.
const ARRIVED: EventFlags = EventFlags::IN.union(EventFlags::HUP).union(EventFlags::ERR);

impl Known {
    fn new(copy: Arc<CopyRegion>, row: &RowLayout) -> Known {
        Known { copy, control_bytes: row.control, announcements: announcements(row), is_cut: false }
    }
}

impl Link {
    /// One over which nothing has gone, for a row of so many `rings`; without a row nothing is said.
    fn new(stream: Connection, peer: &Known, rings: Option<usize>) -> Link {
        let Known { copy, control_bytes, announcements, .. } = peer;
        let inbox = Inbox::new(copy.size(), *control_bytes, rings);
        let applied = || announcements.iter().map(|at| copy.load(*at)).collect::<Vec<u64>>();
        let backlog = rings.map_or(Backlog::default(), |_| Backlog::greeting(&wire::hello(&applied())));
        let (blocked, is_mute, deaf, turn, sent_bytes, received_bytes) = Default::default();
        Link {
            stream,
            copy: Arc::clone(copy),
            backlog,
            inbox,
            blocked,
            is_mute,
            deaf,
            turn,
            sent_bytes,
            received_bytes,
        }
    }

    /// Prepares what the peer lacks, if it has `applied` so much of my row. The bytes of rings that it lacks.
    ///
    /// # Errors
    /// It can't have.
    fn catch_up(&mut self, posted: &[Posted], applied: &[u64], row: &OwnRegion, image: &Image) -> Result<u64, Down> {
        let mut bytes = 0;
        for (ring, applied) in posted.iter().zip(applied) {
            for range in ring.lacking(*applied, row, image)? {
                bytes += range.end - range.start;
                self.backlog.add_range(range);
            }
        }
        self.backlog.add_control(&(0..image.bytes().len() as u64));
        self.is_mute = false;
        Ok(bytes)
    }

    fn send(&mut self, row: &OwnRegion, image: &Image) -> io::Result<()> {
        self.sent_bytes += self.backlog.send(row, image, &mut *self.stream)?;
        if let Some((bytes, sent)) = &mut self.turn
            && self.backlog.is_empty()
            && !self.is_mute
        {
            while *sent < bytes.len() {
                match self.stream.send(&[IoSlice::new(&bytes[*sent..])]) {
                    Ok(now) => (*sent, self.sent_bytes) = (*sent + now, self.sent_bytes + now as u64),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        if self.stream.holds_back() {
            match self.stream.send(&[]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether there is nothing to send now.
    fn is_sent(&self) -> bool {
        let turns = self.turn.is_some_and(|(bytes, sent)| sent < bytes.len() && !self.is_mute);
        self.deaf.is_some() || self.backlog.is_empty() && !turns && !self.stream.holds_back()
    }

    /// Whether both sides have said that the stream continues in `next`, and nothing of this view is under way.
    fn has_turned(&self, next: ViewId) -> bool {
        self.inbox.turn() == Some(next) && self.turn.is_some() && !self.is_mute && self.deaf.is_none() && self.is_sent()
    }

    /// The events that the system is asked for. Bytes that follow a turn are not for this view, nor is the end.
    fn interest(&self) -> EventFlags {
        let out = if self.blocked { EventFlags::OUT } else { EventFlags::empty() };
        if self.inbox.turn().is_some() { out } else { out | EventFlags::IN }
    }

    /// Whether everything was sent that was posted, or never will be.
    fn is_flushed(&self) -> bool {
        self.is_sent() && (self.deaf.is_some() || !self.is_mute)
    }
}
