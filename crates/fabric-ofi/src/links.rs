//! The connections of one member: writing frames into the peers' copies, and announcing them.
//!
//! Frames go straight from my row into each peer's copy of it, by one-sided writes. Control words
//! go as *messages*, one behind the writes of the frames that they announce. The peer's engine puts
//! the words into its copy when it takes the message in. docs/adr/0016 says why words don't go by
//! writes, too. A message reports that something came, and wakes a sleeper. It is applied as a
//! whole, so posts may merge as on streams. And no word is ever torn, whatever carries the bytes.
//!
//! One connection is a [`OfiLink`] (`link.rs`). This file has the parts that all links of a view
//! share: the event count, the set of peers that can send, and the set of those that have gone. The
//! queues are shared with other views of this process (`network.rs`).
use crate::TARGET;
use crate::channel::{Channel, Limits};
use crate::error::OfiError;
use crate::ffi::{FI_MR_ENDPOINT, FI_MR_LOCAL};
use crate::limits::{COMPLETIONS, RECEIVES, WRITE_BYTES_MAX};
use crate::link::{LinkRows, OfiLink, SentRow};
use crate::network::{EndpointAddress, ViewDesk, register_row};
use crate::objects::{ActiveEndpoint, ConnectionEvent, EndpointId, Registered};
use crate::provider;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::BorrowedFd;
use rustix::fs::Timespec;
use spindle_core::{Layout, Rank, RowLayout};
use spindle_fabric::tcp::{Down, Image, Posted, Traffic};
use spindle_fabric::{CopyRegion, OwnRegion};
use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// The number of looks after which connections are looked at, too.
const EVENTS_EVERY: u32 = 16;
/// The longest sleep while a provider that is busy with other work takes nothing.
const TRY_AGAIN: Duration = Duration::from_millis(1);
/// Spurious wake-ups after which a descriptor counts as stuck, and the longest single sleep then.
const FOR_NOTHING_MAX: u32 = 8;
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The time that handed-over data may take when connections are closed.
const DRAIN_MAX: Duration = Duration::from_millis(100);

mod taking;
mod turning;

/// All connections of a member in one view.
#[derive(Debug)]
pub(crate) struct OfiLinks {
    // Closed from the top: connections before the memory that they move.
    links: Box<[Option<OfiLink>]>,
    row_memory: Option<Arc<Registered>>,
    row: Arc<OwnRegion>,
    mine: RowLayout,
    image: Image,
    /// The rings of my row.
    posted: Box<[Posted]>,
    /// The number of links, and the number of them that are about to be closed.
    open: u32,
    ending: u32,
    /// Connections that were begun.
    begun: u32,
    /// True if something was found that belongs to another view.
    has_passed_on: bool,
    /// The number of queues whose descriptors are waited for, and the one to read next.
    watched: usize,
    next_queue: usize,
    /// True if nothing more is posted.
    is_finished: bool,
    /// True if nothing is waited for any more.
    given_up: bool,
    /// True if a link may be able to send that has not tried.
    untried: bool,
    looks: u32,
    limits: Limits,
    ended: VecDeque<EndedLink>,
    /// Events of calls, and of links that are not connected.
    events: VecDeque<ConnectionEvent>,
    /// Wakes when completions can be read, the event count rings, or an event is reported.
    epoll: OwnedFd,
    /// The same, except that completions wake it only when new ones are reported.
    news: OwnedFd,
    desk: ViewDesk,
}

/// A connection that has ended.
#[derive(Debug)]
pub(crate) struct EndedLink {
    pub(crate) rank: Rank,
    pub(crate) down: Down,
    /// True if both sides had turned, and need nothing more of this view.
    pub(crate) is_through: bool,
}

/// The source that ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WakeSource {
    EventCount,
    Network,
    Nobody,
}

/// The event data of the event count, and that of the network.
const BELL: u64 = 0;
const NETWORK: u64 = 1;

impl OfiLinks {
    /// Creates the set of links, empty, for `me`, whose row is `row`.
    pub(crate) fn begin(desk: ViewDesk, layout: &Layout, me: Rank, row: Arc<OwnRegion>) -> Result<OfiLinks, OfiError> {
        let os = |call| move |errno: rustix::io::Errno| OfiError::Os { call, source: errno.into() };
        let create = || epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create"));
        let (epoll, news) = (create()?, create()?);
        let adapter = desk.adapter();
        // Events are read until there are none, and some providers leave their descriptor ready for
        // ever.
        for epoll in [&epoll, &news] {
            let once = EventFlags::IN | EventFlags::ET;
            epoll::add(epoll, adapter.events_fd(), EventData::new_u64(NETWORK), once).map_err(os("epoll_ctl"))?;
        }
        let info = adapter.info();
        let limits = Limits {
            queue: provider::queue(info),
            write_bytes: (info.message_bytes_max() as u64).min(WRITE_BYTES_MAX) & !7,
            inject_bytes: info.inject_bytes() as u64,
        };
        let mine = layout.row(me).clone();
        let image = Image::of(&row);
        let mut links = OfiLinks {
            links: layout.rows().iter().map(|_| None).collect(),
            row_memory: None,
            posted: Posted::all(&mine, &image),
            image,
            row,
            mine,
            open: 0,
            ending: 0,
            begun: 0,
            has_passed_on: false,
            watched: 0,
            next_queue: 0,
            is_finished: false,
            given_up: false,
            untried: false,
            looks: 0,
            limits,
            ended: VecDeque::new(),
            events: VecDeque::new(),
            epoll,
            news,
            desk,
        };
        links.watch_queues().map_err(|source| OfiError::Os { call: "epoll_ctl", source })?;
        // SAFETY: the row is new, and no publisher has its rings yet.
        unsafe { links.row.touch(&(links.mine.control..links.mine.size)) };
        if links.desk.adapter().info().memory_mode() & FI_MR_ENDPOINT == 0 {
            links.row_memory = links.register_row(None)?;
        }
        Ok(links)
    }

    /// Waits for the queues, too, that were opened since the last call.
    fn watch_queues(&mut self) -> io::Result<()> {
        while let Some(fd) = self.desk.adapter().completions_fd(self.watched) {
            let data = EventData::new_u64(NETWORK);
            epoll::add(&self.epoll, fd, data, EventFlags::IN)?;
            epoll::add(&self.news, fd, data, EventFlags::IN | EventFlags::ET)?;
            self.watched += 1;
        }
        Ok(())
    }

    /// Registers the row, if it has to be registered and is not.
    fn register_row(&self, endpoint: Option<&ActiveEndpoint>) -> Result<Option<Arc<Registered>>, OfiError> {
        let rings = self.mine.control..self.mine.size;
        let local = self.desk.adapter().info().memory_mode() & FI_MR_LOCAL != 0;
        if !local || rings.is_empty() {
            return Ok(None);
        }
        match endpoint {
            None => self.desk.register_row(&self.row, &rings).map(Some),
            Some(_) => {
                let registered = register_row(&self.desk, &self.row.memory(), &self.row, &rings, endpoint)?;
                Ok(Some(Arc::new(registered)))
            }
        }
    }

    /// Creates a link to `rank` over `endpoint`, not connected yet. A link that `resumes` an
    /// earlier one, or comes late, sends no data of my row before the peer has stated what it has.
    ///
    /// # Errors
    /// There is no room, or no memory.
    pub(crate) fn link(
        &mut self,
        rank: Rank,
        (place, endpoint): (EndpointAddress, ActiveEndpoint),
        copy: Arc<CopyRegion>,
        theirs: &RowLayout,
        resumes: bool,
    ) -> Result<&mut OfiLink, OfiError> {
        self.watch_queues().map_err(|source| OfiError::Os { call: "epoll_ctl", source })?;
        let channel = Channel::new(&self.desk, place, rank, endpoint, &self.mine, theirs)?;
        self.begun += 1;
        let mut link = self.over(rank, channel, copy, theirs)?;
        if resumes {
            link.mute();
        }
        if self.is_finished {
            link.finish();
        }
        self.open += 1;
        Ok(self.links[rank.index()].insert(link))
    }

    fn over(
        &self,
        rank: Rank,
        channel: Channel,
        copy: Arc<CopyRegion>,
        theirs: &RowLayout,
    ) -> Result<OfiLink, OfiError> {
        let row_memory = match self.desk.adapter().info().memory_mode() & FI_MR_ENDPOINT {
            0 => self.row_memory.clone(),
            _ => self.register_row(Some(channel.endpoint()))?,
        };
        OfiLink::new(&self.desk, rank, channel, LinkRows { theirs, copy, row_memory })
    }

    /// Closes the link to `rank`, if there is one, after the data that had arrived. Returns true if
    /// it was connected, and its end is not [reported](Self::next_ended) and will not be.
    #[cold]
    pub(crate) fn replace(&mut self, rank: Rank) -> bool {
        self.look();
        let was_connected = self.is_open(rank);
        self.forget(rank);
        let ended = self.ended.len();
        self.ended.retain(|ended| ended.rank != rank);
        was_connected || self.ended.len() < ended
    }

    /// Closes the link to `rank` without a report.
    pub(crate) fn forget(&mut self, rank: Rank) {
        if let Some(link) = self.links[rank.index()].take() {
            self.forget_events(link.endpoint().id());
            self.open -= 1;
            self.ending -= u32::from(link.close().is_some());
        }
    }

    /// Drops the events of an endpoint that is about to be closed, because another endpoint may get
    /// its address.
    fn forget_events(&mut self, closing: EndpointId) {
        self.events.retain(|event| !event.is_of(closing));
        self.desk.forget_events(closing);
    }

    /// Lets sleeps end when `event_count` is ready.
    pub(crate) fn wake_by(&self, event_count: BorrowedFd<'_>) -> io::Result<()> {
        for epoll in [&self.epoll, &self.news] {
            epoll::add(epoll, event_count, EventData::new_u64(BELL), EventFlags::IN)?;
        }
        Ok(())
    }

    /// Returns the link over `endpoint`, and its rank.
    pub(crate) fn find(&mut self, endpoint: EndpointId) -> Option<(Rank, &mut OfiLink)> {
        let found = (0..)
            .zip(&mut self.links)
            .find(|(_, link)| link.as_ref().is_some_and(|link| link.endpoint().id() == endpoint));
        let (rank, link) = found?;
        Some((Rank(rank), link.as_mut()?))
    }

    /// Returns true if nothing more is posted.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(crate) fn desk(&self) -> &ViewDesk {
        &self.desk
    }

    /// Returns the number of connections that are still open.
    pub(crate) fn connected(&self) -> u32 {
        self.links.iter().flatten().filter(|link| link.is_connected()).count() as u32
    }

    /// Returns true if there is a connection to `rank`.
    ///
    /// # Panics
    /// If it is not of this view.
    pub(crate) fn is_open(&self, rank: Rank) -> bool {
        self.links[rank.index()].as_ref().is_some_and(OfiLink::is_connected)
    }

    /// Returns the traffic of the connection to `rank`, if there is one. The bytes that a peer
    /// writes into my memory are known when it reports them.
    ///
    /// # Panics
    /// If it is not of this view.
    pub(crate) fn traffic(&self, rank: Rank) -> Option<Traffic> {
        self.links[rank.index()].as_ref().map(OfiLink::traffic)
    }

    /// Returns a connection that has ended; each is reported once.
    pub(crate) fn next_ended(&mut self) -> Option<EndedLink> {
        self.ended.pop_front()
    }

    /// Returns an event of a call, or of a link that is not connected.
    pub(crate) fn next_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    /// Returns true if there is an [event](Self::next_event), or a connection that has
    /// [ended](Self::next_ended).
    pub(crate) fn has_news(&self) -> bool {
        !self.events.is_empty() || !self.ended.is_empty()
    }

    /// Returns true if everything has left my memory.
    pub(crate) fn is_flushed(&self) -> bool {
        self.links.iter().flatten().all(OfiLink::is_flushed)
    }

    /// Posts control words and frames of the row. Words are sent at once if that is possible, with
    /// the frames before them; frames alone can wait until they are announced.
    ///
    /// # Panics
    /// If a peer is not of this view, or a range not inside the row.
    pub(crate) fn post(&mut self, peers: &[Rank], words: Range<u64>, frames: Range<u64>) {
        if !frames.is_empty() {
            self.posted.iter_mut().for_each(|ring| ring.note(&frames, &self.image));
        }
        if !words.is_empty() {
            self.image.update(&self.row, &words);
        }
        for &peer in peers {
            let Some(link) = &mut self.links[peer.index()] else { continue };
            if !link.add(&words, frames.clone()) {
                continue;
            }
            if words.is_empty() {
                self.untried = true;
            } else {
                self.send(peer);
            }
        }
    }

    /// Sends to all peers that can take data and have not been tried.
    pub(crate) fn flush(&mut self) -> bool {
        let mut moved = false;
        if std::mem::take(&mut self.untried) {
            for rank in (0..self.links.len() as u32).map(Rank) {
                moved |= self.send(rank);
            }
        }
        moved
    }

    /// Sends as much as possible and takes in arrived data. Returns whether data was sent, and
    /// whether data arrived or there are [events](Self::has_news).
    pub(crate) fn progress(&mut self) -> (bool, bool) {
        let mut sent = self.flush();
        let mut arrived = self.look();
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(EVENTS_EVERY) {
            let _ = self.look_at_events();
        }
        if self.ending > 0 {
            arrived |= self.close_ended();
        }
        sent |= self.flush();
        // The peers that went while this member slept have not been asked for yet.
        (sent, arrived || self.has_news())
    }

    /// Waits until data has arrived, here or for another view, the event count rings or there are
    /// [events](Self::has_news), for at most `at_most`, and does pending work meanwhile. Returns
    /// true if data has arrived.
    pub(crate) fn wait(&mut self, at_most: Duration) -> bool {
        let (start, mut for_nothing) = (Instant::now(), 0);
        loop {
            let left = at_most.saturating_sub(start.elapsed());
            let woken = if self.untried || self.ending > 0 {
                self.rest(&self.epoll, left.min(TRY_AGAIN))
            } else if for_nothing < FOR_NOTHING_MAX {
                self.rest(&self.epoll, left)
            } else {
                // The descriptor is ready for ever, as with 1.17's `net`. New events alone would be
                // sufficient if everything were read, which is unknown.
                self.rest(&self.news, left.min(LOOK_AGAIN))
            };
            if woken == WakeSource::EventCount {
                return false;
            }
            let _ = self.look_at_events();
            let (_, arrived) = self.progress();
            let arrived = arrived | std::mem::take(&mut self.has_passed_on);
            for_nothing += 1;
            if arrived || start.elapsed() >= at_most {
                return arrived;
            }
        }
    }

    /// Marks that a link may be able to send that could not before.
    pub(crate) fn try_all(&mut self) {
        self.untried = true;
    }

    /// Lets connections be closed as they are.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Reports to all peers that nothing more comes, once all waiting data has left.
    pub(crate) fn finish(&mut self) {
        self.links.iter_mut().flatten().for_each(OfiLink::finish);
        (self.is_finished, self.untried) = (true, true);
        self.flush();
    }

    /// Sleeps until the event count rings or the network has work, for at most `at_most`.
    fn rest(&self, epoll: &OwnedFd, at_most: Duration) -> WakeSource {
        if self.desk.has_messages() || !self.desk.adapter().may_sleep() {
            return WakeSource::Network;
        }
        let timeout =
            Timespec { tv_sec: at_most.as_secs().min(i32::MAX as u64) as i64, tv_nsec: at_most.subsec_nanos().into() };
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; 3];
        let events: &[epoll::Event] = match epoll::wait(epoll, &mut room, Some(&timeout)) {
            Ok((events, _)) => events,
            // An interruption is treated like a timeout.
            Err(_) => &[],
        };
        let mut woken = WakeSource::Nobody;
        for event in events {
            // Copied, because it may be unaligned.
            let data = event.data;
            woken = if data.u64() == BELL || woken == WakeSource::EventCount {
                WakeSource::EventCount
            } else {
                WakeSource::Network
            };
        }
        woken
    }

    /// As [`wait`](Self::wait), for a meeting.
    pub(crate) fn nap(&self, at_most: Duration) {
        self.rest(&self.epoll, at_most);
    }

    /// Sends to one peer. Returns true if anything left.
    fn send(&mut self, rank: Rank) -> bool {
        let Some(link) = &mut self.links[rank.index()] else { return false };
        let from = SentRow { row: &self.row, image: &self.image, limits: &self.limits };
        match link.send(from) {
            Ok(moved) => {
                self.untried |= link.is_held();
                moved
            }
            Err(failure) => {
                self.ending += u32::from(link.end(Down::Os { call: "sending", source: failure.to_io() }, true));
                true
            }
        }
    }

    /// As [`shut`](Self::shut), for the connection to `rank`.
    #[cfg(test)]
    pub(crate) fn shut_rank(&mut self, rank: Rank) {
        self.shut(self.endpoint(rank));
    }

    /// As [`shut_rank`](Self::shut_rank), but data that has arrived is lost.
    #[cfg(test)]
    pub(crate) fn lose(&mut self, rank: Rank) {
        let link = self.links[rank.index()].take().expect("it has one");
        self.forget_events(link.endpoint().id());
        self.open -= 1;
        let is_through = link.is_through();
        self.ended.extend(link.lose().map(|down| EndedLink { rank, down, is_through }));
    }

    #[cfg(test)]
    pub(crate) fn endpoint(&self, rank: Rank) -> EndpointId {
        self.links[rank.index()].as_ref().expect("it has one").endpoint().id()
    }

    /// Returns the number of connections that were begun.
    #[cfg(test)]
    pub(crate) fn begun(&self) -> u32 {
        self.begun
    }

    /// Closes connections that have ended, after taking in the data that had arrived before.
    /// Returns true if there were any.
    #[cold]
    fn close_ended(&mut self) -> bool {
        self.take_messages();
        // No more than can have been there, because others may send without end.
        let most = u64::from(self.open) * (self.limits.queue + RECEIVES);
        let queues = self.desk.adapter().queues();
        for _ in 0..queues {
            for _ in 0..=most / COMPLETIONS as u64 {
                if self.take_completions().is_none() {
                    break;
                }
            }
            self.next_queue = (self.next_queue + 1) % queues;
        }
        let mut closed = false;
        for rank in (0..self.links.len() as u32).map(Rank) {
            let Some(link) = self.links[rank.index()].take_if(|link| link.is_over()) else { continue };
            self.open -= 1;
            self.ending -= 1;
            closed = true;
            self.forget_events(link.endpoint().id());
            let is_through = link.is_through();
            let Some(down) = link.close() else { continue };
            match &down {
                Down::Closed => debug!(target: TARGET, rank = rank.0, "connection is closed"),
                down => warn!(target: TARGET, rank = rank.0, reason = %down, "connection is broken"),
            }
            self.ended.push_back(EndedLink { rank, down, is_through });
        }
        closed
    }

    /// Waits a moment for operations in flight, so that closing does not cancel them.
    fn drain(&mut self) {
        let start = Instant::now();
        let under_way = |links: &OfiLinks| links.links.iter().flatten().any(OfiLink::is_under_way);
        while under_way(self) && start.elapsed() < DRAIN_MAX {
            self.progress();
            std::thread::yield_now();
        }
    }
}

impl Drop for OfiLinks {
    fn drop(&mut self) {
        // As much of an orderly end as needs no waiting for the peers.
        if !self.given_up {
            self.progress();
            self.finish();
            self.drain();
        }
        for link in self.links.iter().flatten() {
            link.endpoint().shut_down();
        }
    }
}
