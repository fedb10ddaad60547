//! The streams of one member of a bulk group.
use super::error::{BulkDown, BulkLinksError};
use super::inbox::{self, BulkInbox};
use super::outbox::BulkOutbox;
use super::store::BlockStore;
use super::wire::{BlockHead, BulkHead, Greeting};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use spindle_core::Rank;
use spindle_core::rdmc::{Columns, Slot};
use spindle_transport::Connection;
use spindle_transport::waiting::EpollSpace;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Events taken from the system at once.
const EVENTS_MAX: usize = 64;

/// The operations that are possible on the stream to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkReadiness {
    /// The peer.
    pub peer: Rank,
    /// Bytes may be received.
    pub to_receive: bool,
    /// Waiting bytes may be sent.
    pub to_send: bool,
}

/// One stream to every peer of a member of a bulk group.
///
/// Bytes move only in [`send`](Self::send) and [`receive`](Self::receive), which do not wait.
/// [`ready`](Self::ready) reports when they are useful, and can wait for that.
#[derive(Debug)]
pub struct BulkLinks {
    epoll: OwnedFd,
    /// By rank; none at my own rank, and for peers that are gone.
    links: Box<[Option<BulkStreamLink>]>,
    buffer: Box<[u8]>,
    /// Peers with bytes that have arrived and were not read, which the descriptor may not report.
    unread: Vec<Rank>,
}

#[derive(Debug)]
struct BulkStreamLink {
    stream: Connection,
    outbox: BulkOutbox,
    inbox: BulkInbox,
    /// Whether the system will report when it accepts more.
    is_blocked: bool,
    /// The reason why nothing can be sent any more. Bytes from the peer are still read, and may say
    /// more.
    deaf: Option<io::Error>,
    sent_bytes: u64,
    received_bytes: u64,
}

impl BulkLinks {
    /// Creates the connections of `me` to its `peers`, in any order. `digest` is of all that the
    /// members have to agree on.
    ///
    /// # Errors
    /// [`BulkLinksError`]: one is missing, or is given twice, or can't be waited for.
    pub fn new(
        me: Rank,
        peers: &[Rank],
        digest: u64,
        streams: impl IntoIterator<Item = (Rank, Connection)>,
    ) -> Result<BulkLinks, BulkLinksError> {
        let os = |call| move |errno: rustix::io::Errno| BulkLinksError::Os { call, source: errno.into() };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        let ranks = peers.iter().map(|peer| peer.index() + 1).max().unwrap_or(0);
        let mut links: Vec<Option<BulkStreamLink>> = (0..ranks).map(|_| None).collect();
        for (rank, stream) in streams {
            let is_peer = peers.contains(&rank);
            match links.get_mut(rank.index()) {
                Some(slot @ None) if is_peer => {
                    let data = EventData::new_u64(rank.0.into());
                    epoll::add(&epoll, stream.fd(), data, EventFlags::IN).map_err(os("epoll_ctl"))?;
                    let mut outbox = BulkOutbox::default();
                    outbox.push(BulkHead::Greeting(Greeting { from: me, to: rank, digest }));
                    let inbox = BulkInbox::new(Greeting { from: rank, to: me, digest });
                    let (is_blocked, deaf, sent_bytes, received_bytes) = (false, None, 0, 0);
                    *slot =
                        Some(BulkStreamLink { stream, outbox, inbox, is_blocked, deaf, sent_bytes, received_bytes });
                }
                slot => {
                    let times = 1 + u32::from(slot.is_some_and(|slot| slot.is_some()));
                    return Err(BulkLinksError::Connections { rank, times, expected: is_peer.into(), me });
                }
            }
        }
        if let Some(rank) = peers.iter().copied().find(|peer| links[peer.index()].is_none()) {
            return Err(BulkLinksError::Connections { rank, times: 0, expected: 1, me });
        }
        let mut unread = Vec::with_capacity(links.len());
        // A stream may have read more than its hello before it was handed over, and the descriptor
        // does not report that.
        let has_arrived = |link: &Option<BulkStreamLink>| link.as_ref().is_some_and(|link| link.stream.has_arrived());
        unread.extend((0..).map(Rank).zip(&links).filter(|(_, link)| has_arrived(link)).map(|(rank, _)| rank));
        Ok(BulkLinks { epoll, links: links.into(), buffer: vec![0; inbox::BUFFER_BYTES].into(), unread })
    }

    /// Returns whether there is a connection to `peer`.
    pub fn is_open(&self, peer: Rank) -> bool {
        self.link(peer).is_some()
    }

    /// Returns how many connections there are.
    pub fn open(&self) -> u32 {
        self.links.iter().flatten().count() as u32
    }

    /// Returns whether the system has not accepted all that was posted to `peer`:
    /// [`ready`](Self::ready) reports when it does.
    pub fn is_blocked(&self, peer: Rank) -> bool {
        self.link(peer).is_some_and(|link| link.is_blocked)
    }

    /// Returns whether the system has everything that can be handed to it.
    pub fn is_flushed(&self) -> bool {
        self.links.iter().flatten().all(BulkStreamLink::is_flushed)
    }

    /// Returns the bytes that were handed to the system for a peer, and those that were received
    /// from it, with the heads of frames.
    pub fn traffic(&self, peer: Rank) -> Option<(u64, u64)> {
        self.link(peer).map(|link| (link.sent_bytes, link.received_bytes))
    }

    /// Posts counters. They are sent by the next [`send`](Self::send).
    pub fn post_columns(&mut self, to: Rank, slot: Slot, columns: Columns) {
        if let Some(link) = self.to(to) {
            link.outbox.push_columns(slot, columns);
        }
    }

    /// Posts a block. The store keeps its bytes until [`send`](Self::send) reports that it is gone.
    /// If the connection ends, that is not reported.
    pub fn post_block(&mut self, to: Rank, block: BlockHead) {
        if let Some(link) = self.to(to) {
            link.outbox.push_block(block);
        }
    }

    /// Posts that I have done my part.
    pub fn post_finished(&mut self) {
        for link in self.links.iter_mut().flatten().filter(|link| link.deaf.is_none()) {
            link.outbox.push(BulkHead::Finished);
        }
    }

    /// Drops all posts, and posts that the group is closed. The store is not asked for blocks any
    /// more.
    pub fn close(&mut self, dead: Rank) {
        for link in self.links.iter_mut().flatten().filter(|link| link.deaf.is_none()) {
            link.outbox.give_up();
            link.outbox.push(BulkHead::Closed { dead });
        }
    }

    /// Sends to a peer as much as its stream accepts. Returns whether anything left. The slots of
    /// the blocks that are gone are added to `gone`.
    pub fn send(&mut self, to: Rank, store: &impl BlockStore, gone: &mut Vec<Slot>) -> bool {
        let Some(link) = self.links.get_mut(to.index()).and_then(Option::as_mut) else { return false };
        let before = link.sent_bytes;
        if let Err(error) = link.send(store, gone) {
            link.outbox.clear();
            link.deaf = Some(error);
        }
        let is_blocked = !link.is_flushed();
        if is_blocked != link.is_blocked {
            link.is_blocked = is_blocked;
            let flags = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // It was added, with the same descriptor, and is open.
            let modified = epoll::modify(&self.epoll, link.stream.fd(), EventData::new_u64(to.0.into()), flags);
            debug_assert!(modified.is_ok());
        }
        link.sent_bytes > before
    }

    /// Receives from a peer. Returns whether anything came, and why the connection has ended, if it
    /// has.
    pub fn receive(&mut self, from: Rank, store: &mut impl BlockStore) -> (bool, Option<BulkDown>) {
        let Some(link) = self.links.get_mut(from.index()).and_then(Option::as_mut) else { return (false, None) };
        let before = link.received_bytes;
        let received = link.inbox.receive(&mut *link.stream, &mut self.buffer, store, &mut link.received_bytes);
        let came = link.received_bytes > before;
        let down = match received {
            // It was read to its end, which does not say why nothing can be sent.
            Ok(false) if link.deaf.is_some() => BulkDown::Closed,
            Ok(more) => {
                if more && !self.unread.contains(&from) {
                    self.unread.push(from);
                }
                return (came, None);
            }
            Err(down) => down,
        };
        (came, Some(self.end(from, down)))
    }

    /// Ends the connection to a peer.
    pub fn end(&mut self, peer: Rank, down: BulkDown) -> BulkDown {
        let Some(link) = self.links.get_mut(peer.index()).and_then(Option::take) else { return down };
        // Another owner may hold a duplicate of the descriptor, which would keep it on the list.
        let _ = epoll::delete(&self.epoll, link.stream.fd());
        self.unread.retain(|other| *other != peer);
        match (down, link.deaf) {
            // The system reports the cause only once.
            (BulkDown::Closed | BulkDown::Os { .. }, Some(source)) => BulkDown::Os { call: "sending", source },
            (down, _) => down,
        }
    }

    /// Adds to `ready` the operations that are possible now, or within `at_most`.
    pub fn ready(&mut self, at_most: Duration, ready: &mut Vec<LinkReadiness>) {
        let unread = self.unread.drain(..).map(|peer| LinkReadiness { peer, to_receive: true, to_send: false });
        ready.extend(unread);
        let at_most = if ready.is_empty() { at_most } else { Duration::ZERO };
        for (data, flags) in EpollSpace::<EVENTS_MAX>::default().wait(self.epoll.as_fd(), at_most) {
            let Ok(peer) = u32::try_from(data) else { continue };
            let to_receive = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
            ready.push(LinkReadiness { peer: Rank(peer), to_receive, to_send: flags.contains(EventFlags::OUT) });
        }
    }

    /// Returns whether there are bytes to receive that the descriptor does not report.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Reports to all peers that nothing more comes.
    pub fn finish(&mut self) {
        for link in self.links.iter_mut().flatten() {
            link.stream.finish();
        }
    }

    fn link(&self, peer: Rank) -> Option<&BulkStreamLink> {
        self.links.get(peer.index())?.as_ref()
    }

    /// Returns the link to `peer`, if data can be sent on it.
    fn to(&mut self, peer: Rank) -> Option<&mut BulkStreamLink> {
        self.links.get_mut(peer.index())?.as_mut().filter(|link| link.deaf.is_none())
    }
}

/// Readable when [`BulkLinks::ready`] would find an operation, except for those that
/// [`BulkLinks::has_unread`] reports.
impl AsFd for BulkLinks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl BulkStreamLink {
    fn send(&mut self, store: &impl BlockStore, gone: &mut Vec<Slot>) -> io::Result<()> {
        self.sent_bytes += self.outbox.send(&mut *self.stream, store, gone)?;
        self.stream.send_held()
    }

    fn is_flushed(&self) -> bool {
        self.deaf.is_some() || (self.outbox.is_empty() && !self.stream.holds_back())
    }
}
