//! Bulk groups on one machine: the root sends every other member the descriptor of the segment that
//! contains an object.
//!
//! A Unix socket that preserves message boundaries connects the root to each of the others; they
//! need none among themselves. An object that is too small for a segment of its own comes in the
//! message. Descriptors beyond the one that an object needs are discarded.
//!
//! Mapping memory takes about as long as copying it. So a receiver keeps its mappings, and the root
//! uses a segment again. The root does so once all receivers have dropped the object in it, which
//! they report ([`BulkHead::Released`]), and the application has dropped it, too. Until then no process
//! writes it, which makes it correct to lend its bytes (INV-LENT, docs/protocol/bulk.md). A segment
//! that is not tracked any more while a process may still read it is never written again.
use super::error::{BulkDown, BulkLinksError};
use super::inbox::mismatch;
use super::object::{Loan, NAME, Object, Segment};
use super::wire::{BulkHead, Greeting, HEAD_BYTES, LentPlace};
use crate::region::{PeerRegion, RegionError};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use spindle_core::Rank;
use spindle_transport::waiting::EpollSpace;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Bytes of the largest object that can come inside a message.
const INSIDE_BYTES_MAX: u64 = 64 << 10;
/// Descriptors that one message may bring, of which one is used.
const FDS_MAX: usize = 4;
/// Messages from one peer before the turn of the others.
const MESSAGES_MAX: u32 = 16;
/// Events taken from the system at once.
const EVENTS_MAX: usize = 64;
/// Segments without readers that the root keeps to use them again.
const KEPT_MAX: usize = 2;
/// Objects that the root tracks: those with readers, and the segments above.
const LOANED_MAX: usize = 16;
/// Segments that are being written again and that the root tracks.
const REUSED_MAX: usize = 8;
/// Segments that receivers have mapped.
const KNOWN_MAX: usize = 2 * LOANED_MAX;
const _: () = assert!(LOANED_MAX + REUSED_MAX < KNOWN_MAX);

/// The descriptors that a member of a group on one machine needs to take part. They can be passed
/// to another process.
#[derive(Debug)]
pub struct LocalPart {
    members: u32,
    me: Rank,
    root: Rank,
    /// Sockets to all other members, if this is the root; otherwise to the root.
    sockets: Vec<(Rank, OwnedFd)>,
}

impl LocalPart {
    /// Creates the parts of all members, by rank. `root` is one of `members`.
    ///
    /// # Errors
    /// [`BulkLinksError::Os`].
    ///
    /// # Panics
    /// If `root` is none of them.
    pub fn parts(members: u32, root: Rank) -> Result<Vec<LocalPart>, BulkLinksError> {
        LocalPart::parts_among(&(0..members).map(Rank).collect::<Vec<_>>(), members, root)
    }

    /// Creates the parts of `those` members that share a machine, in the same order, in a group of
    /// `members`. The others are on other machines. `root` is the one that lends its memory to the
    /// rest of them.
    ///
    /// # Errors
    /// [`BulkLinksError::Os`].
    ///
    /// # Panics
    /// If `root` is none of them, or one of them is none of `members`.
    pub fn parts_among(those: &[Rank], members: u32, root: Rank) -> Result<Vec<LocalPart>, BulkLinksError> {
        assert!(those.iter().all(|rank| rank.0 < members), "they are members");
        let place = those.iter().position(|rank| *rank == root).expect("the root is one of them");
        let (mut roots, mut parts) = (vec![], vec![]);
        for me in those.iter().copied() {
            let mut sockets = vec![];
            if me != root {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
                let (near, far) = pair.map_err(os("socketpair"))?;
                roots.push((me, near));
                sockets.push((root, far));
            }
            parts.push(LocalPart { members, me, root, sockets });
        }
        parts[place].sockets = roots;
        Ok(parts)
    }

    /// Returns its descriptors, to be passed to the member's process.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        self.sockets.into_iter().map(|(_, socket)| socket).collect()
    }

    /// Creates the part of `me` from the descriptors that have come. The root's are those of all
    /// others, by rank.
    ///
    /// # Errors
    /// [`BulkLinksError::Connections`] if there are too few or too many of them, or if the ranks
    /// don't exist.
    pub fn from_fds(members: u32, me: Rank, root: Rank, fds: Vec<OwnedFd>) -> Result<LocalPart, BulkLinksError> {
        let expected = if me == root { members.saturating_sub(1) } else { 1 };
        if me.0 >= members || root.0 >= members || fds.len() != expected as usize {
            return Err(BulkLinksError::Connections { rank: root, times: fds.len() as u32, expected, me });
        }
        for fd in &fds {
            rustix::io::ioctl_fionbio(fd, true).map_err(os("ioctl"))?;
        }
        let peers = (0..members).map(Rank).filter(|rank| (me == root) != (*rank == root));
        Ok(LocalPart { members, me, root, sockets: peers.zip(fds).collect() })
    }

    /// Returns how many members the group has.
    pub fn members(&self) -> u32 {
        self.members
    }

    /// Returns the rank of the member that it is for.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Returns the rank of the root, the shared-memory bulk sender.
    pub fn root(&self) -> Rank {
        self.root
    }

    /// Returns the peers to which there is a socket.
    pub fn peers(&self) -> impl Iterator<Item = Rank> {
        self.sockets.iter().map(|(peer, _)| *peer)
    }
}

/// An event from a peer.
#[derive(Debug)]
pub enum LocalEvent {
    /// An object of the root.
    Object {
        /// Its number.
        number: u64,
        /// The object.
        object: Object,
    },
    /// To the root: the number of objects that the peer has.
    Have {
        /// That number.
        objects: u64,
    },
    /// It has closed the group.
    Closed {
        /// The rank whose death it names.
        dead: Rank,
    },
    /// It has done its part, and will end the connection.
    Finished,
}

/// The sockets of one member. Only [`ready`](Self::ready) can wait, if it is asked to.
#[derive(Debug)]
pub struct LocalLinks {
    epoll: OwnedFd,
    /// By rank.
    links: Box<[Option<LocalLink>]>,
    buffer: Box<[u8]>,
    /// At the root: objects in segments that receivers know, in the order in which they were sent.
    loaned: Vec<Loaned>,
    /// Segments that receivers know and that are being written, to be sent again: only the newest.
    reused: VecDeque<u64>,
}

/// An object that others read.
#[derive(Debug)]
struct Loaned {
    number: u64,
    object: Object,
    /// The members that have not reported that they no longer read it.
    readers: Vec<Rank>,
}

impl Loaned {
    /// Stops tracking it.
    fn leave(self) {
        if let Some(segment) = self.object.segment().filter(|_| !self.readers.is_empty()) {
            segment.abandon();
        }
    }
}

/// The report that a receiver owes the root for one object.
#[derive(Debug)]
struct Owed {
    number: u64,
    /// Gone when the connection is.
    socket: Weak<OwnedFd>,
    /// Reports that could not be sent.
    unsent: Arc<Mutex<Vec<u64>>>,
}

impl Loan for Owed {
    /// Reports to the root at once, from any thread: the root may be waiting for the memory.
    fn end(&self) {
        let Some(socket) = self.socket.upgrade() else { return };
        let head = BulkHead::Released { number: self.number }.encode();
        if rustix::net::send(&socket, &head, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
            self.unsent.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        }
    }
}

#[derive(Debug)]
struct LocalLink {
    socket: Arc<OwnedFd>,
    /// Segments of mine that are mapped there.
    handed: Vec<u64>,
    /// Segments of the root that are mapped here.
    known: Vec<(u64, Arc<PeerRegion>)>,
    unsent: Arc<Mutex<Vec<u64>>>,
    /// Bounded by what its owner posts.
    queue: VecDeque<(BulkHead, Option<Object>)>,
    /// Whether the system will report when it accepts more.
    is_blocked: bool,
    is_deaf: bool,
    /// The greeting that it must begin with, until it has come.
    greeting: Option<Greeting>,
}

impl LocalLinks {
    /// Creates the sockets of a part. `digest` is of all that the members have to agree on.
    ///
    /// # Errors
    /// [`BulkLinksError::Os`].
    pub fn new(part: LocalPart, digest: u64) -> Result<LocalLinks, BulkLinksError> {
        let LocalPart { members, me, sockets, .. } = part;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        let mut links: Vec<Option<LocalLink>> = (0..members).map(|_| None).collect();
        for (peer, socket) in sockets {
            let data = EventData::new_u64(peer.0.into());
            epoll::add(&epoll, &socket, data, EventFlags::IN).map_err(os("epoll_ctl"))?;
            let greeting = Some(Greeting { from: peer, to: me, digest });
            let first = BulkHead::Greeting(Greeting { from: me, to: peer, digest });
            let queue = VecDeque::from([(first, None)]);
            let (socket, unsent) = (Arc::new(socket), Arc::default());
            let (handed, known, is_blocked, is_deaf) = (vec![], vec![], false, false);
            links[peer.index()] =
                Some(LocalLink { socket, handed, known, unsent, queue, is_blocked, is_deaf, greeting });
        }
        let buffer = vec![0; HEAD_BYTES + INSIDE_BYTES_MAX as usize].into();
        let mut made = LocalLinks { epoll, links: links.into(), buffer, loaned: vec![], reused: VecDeque::new() };
        made.send_all();
        Ok(made)
    }

    /// Returns whether there is a connection to `peer`.
    pub fn is_open(&self, peer: Rank) -> bool {
        self.links.get(peer.index()).is_some_and(Option::is_some)
    }

    /// Returns whether an object of so many bytes can go inside a message.
    pub fn fits(bytes: u64) -> bool {
        bytes <= INSIDE_BYTES_MAX
    }

    /// Returns memory for an object of so many bytes, with undefined contents: that of an earlier
    /// object that no process reads any more, or new memory.
    ///
    /// # Errors
    /// As [`Segment::create`].
    pub fn segment(&mut self, bytes: u64) -> Result<Segment, RegionError> {
        for i in 0..self.loaned.len() {
            let Loaned { object, readers, .. } = &self.loaned[i];
            if readers.is_empty() && object.segment().is_some_and(|segment| segment.suits(bytes)) {
                let Loaned { number, object, readers } = self.loaned.remove(i);
                match object.into_segment() {
                    Ok(mut segment) => {
                        segment.resize(bytes);
                        self.reused.push_back(segment.id());
                        if self.reused.len() > REUSED_MAX {
                            self.reused.pop_front();
                        }
                        return Ok(segment);
                    }
                    // The application still has it.
                    Err(object) => self.loaned.insert(i, Loaned { number, object, readers }),
                }
            }
        }
        Segment::create(bytes)
    }

    /// Sends an object to all other members.
    ///
    /// # Panics
    /// If it neither [fits](Self::fits) nor is in a segment.
    pub fn post_object(&mut self, number: u64, object: &Object) {
        let bytes = object.len() as u64;
        let Some(segment) = object.segment() else {
            assert!(LocalLinks::fits(bytes), "{bytes} bytes are in no segment");
            return self.post(BulkHead::Object { number, bytes, place: LentPlace::Inside }, Some(object));
        };
        let (id, segment_bytes) = (segment.id(), segment.size());
        self.reused.retain(|reused| *reused != id);
        let readers: Vec<Rank> =
            (0..).map(Rank).zip(&self.links).filter_map(|(rank, link)| link.as_ref().map(|_| rank)).collect();
        self.loaned.push(Loaned { number, object: object.clone(), readers });
        for link in self.links.iter_mut().flatten() {
            let is_known = link.handed.contains(&id);
            let place =
                if is_known { LentPlace::Known { segment: id } } else { LentPlace::New { segment: id, segment_bytes } };
            if !is_known {
                link.handed.push(id);
            }
            link.queue.push_back((BulkHead::Object { number, bytes, place }, Some(object.clone())));
        }
        self.forget();
        self.send_all();
    }

    /// Drops segments beyond the limits: first the oldest ones without readers. A segment that is
    /// still read is left to its readers.
    fn forget(&mut self) {
        loop {
            let mut unread = self.loaned.iter().enumerate().filter(|(_, loaned)| loaned.readers.is_empty());
            let oldest = unread.next().map(|(i, _)| i);
            if unread.count() < KEPT_MAX && self.loaned.len() <= LOANED_MAX {
                break;
            }
            self.loaned.remove(oldest.unwrap_or(0)).leave();
        }
        let is_kept = |id: &u64| {
            self.loaned.iter().any(|loaned| loaned.object.segment().is_some_and(|s| s.id() == *id))
                || self.reused.contains(id)
        };
        for link in self.links.iter_mut().flatten() {
            for segment in link.handed.extract_if(.., |id| !is_kept(id)) {
                link.queue.push_back((BulkHead::Forget { segment }, None));
            }
        }
    }

    /// Reports to the root how many objects are here.
    pub fn post_have(&mut self, objects: u64) {
        self.post(BulkHead::Have { objects }, None);
    }

    /// Reports to all peers that I have done my part.
    pub fn post_finished(&mut self) {
        self.post(BulkHead::Finished, None);
    }

    /// Reports to all peers that the group is closed, and drops all other posts.
    pub fn close(&mut self, dead: Rank) {
        self.links.iter_mut().flatten().for_each(|link| link.queue.clear());
        self.post(BulkHead::Closed { dead }, None);
    }

    /// Returns whether the system has everything that can be handed to it.
    pub fn is_flushed(&self) -> bool {
        self.links.iter().flatten().all(|link| link.is_deaf || link.queue.is_empty())
    }

    /// Adds to `ready` the peers that can be received from now, or within `at_most`. Sends what can
    /// be sent.
    pub fn ready(&mut self, at_most: Duration, ready: &mut Vec<Rank>) {
        for (data, flags) in EpollSpace::<EVENTS_MAX>::default().wait(self.epoll.as_fd(), at_most) {
            let Ok(peer) = u32::try_from(data) else { continue };
            if flags.contains(EventFlags::OUT) {
                self.send(Rank(peer));
            }
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                ready.push(Rank(peer));
            }
        }
    }

    /// Receives what has come from a peer, up to a number of messages. Returns why the connection
    /// has ended, if it has.
    pub fn receive(&mut self, from: Rank, news: &mut Vec<LocalEvent>) -> Option<BulkDown> {
        for _ in 0..MESSAGES_MAX {
            let link = self.links.get_mut(from.index())?.as_mut()?;
            let down = match link.receive(&mut self.buffer) {
                Ok(LocalArrival::Nothing) => return None,
                Ok(LocalArrival::Known) => continue,
                Ok(LocalArrival::Event(found)) => {
                    news.push(found);
                    continue;
                }
                Ok(LocalArrival::Released { number }) if self.release(from, number) => continue,
                Ok(LocalArrival::Released { number }) => BulkDown::Garbage { word: number },
                Err(down) => down,
            };
            self.end(from);
            return Some(down);
        }
        None
    }

    /// Records that a peer no longer reads an object. Returns false if the peer was not one of its
    /// readers.
    fn release(&mut self, from: Rank, number: u64) -> bool {
        // A report about an object that is no longer tracked has no effect.
        let Some(loaned) = self.loaned.iter_mut().find(|loaned| loaned.number == number) else { return true };
        let before = loaned.readers.len();
        loaned.readers.retain(|reader| *reader != from);
        loaned.readers.len() < before
    }

    fn end(&mut self, peer: Rank) {
        if let Some(link) = self.links[peer.index()].take() {
            // Another owner may hold a duplicate of the descriptor, which would keep it on the
            // list.
            let _ = epoll::delete(&self.epoll, &link.socket);
        }
    }

    fn post(&mut self, head: BulkHead, object: Option<&Object>) {
        for link in self.links.iter_mut().flatten() {
            link.queue.push_back((head, object.cloned()));
        }
        self.send_all();
    }

    fn send_all(&mut self) {
        for peer in 0..self.links.len() as u32 {
            if self.links[peer as usize].as_ref().is_some_and(|link| !link.is_blocked) {
                self.send(Rank(peer));
            }
        }
    }

    fn send(&mut self, peer: Rank) {
        let Some(link) = &mut self.links[peer.index()] else { return };
        let unsent = std::mem::take(&mut *link.unsent.lock().unwrap_or_else(PoisonError::into_inner));
        link.queue.extend(unsent.into_iter().map(|number| (BulkHead::Released { number }, None)));
        link.send();
        let is_blocked = !link.queue.is_empty();
        if is_blocked != link.is_blocked {
            link.is_blocked = is_blocked;
            let flags = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // It was added, with the same descriptor, and is open.
            let modified = epoll::modify(&self.epoll, &link.socket, EventData::new_u64(peer.0.into()), flags);
            debug_assert!(modified.is_ok());
        }
    }
}

impl Drop for LocalLinks {
    fn drop(&mut self) {
        self.loaned.drain(..).for_each(Loaned::leave);
    }
}

/// Readable when [`LocalLinks::ready`] would find a peer.
impl AsFd for LocalLinks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl LocalLink {
    /// Sends what the system accepts.
    fn send(&mut self) {
        while let Some((head, object)) = self.queue.front() {
            let inside: &[u8] = match object {
                Some(object) if object.segment().is_none() => object,
                _ => &[],
            };
            let is_new = matches!(head, BulkHead::Object { place: LentPlace::New { .. }, .. });
            let fd = object.as_ref().and_then(Object::segment).filter(|_| is_new).map(AsFd::as_fd);
            let head = head.encode();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let pushed = fd.is_none() || control.push(SendAncillaryMessage::ScmRights(fd.as_slice()));
            debug_assert!(pushed, "there is room for one");
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &[IoSlice::new(&head), IoSlice::new(inside)], &mut control, flags) {
                Ok(_) => _ = self.queue.pop_front(),
                Err(Errno::INTR) => {}
                // The cause is the queue, the kernel's memory, or the descriptors in transit.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => return,
                // Messages that the peer sent before it ended are still read, and then its end.
                Err(_) => {
                    self.queue.clear();
                    self.is_deaf = true;
                }
            }
        }
    }

    /// Receives the next message, if there is one.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<LocalArrival, BulkDown> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(LocalArrival::Nothing),
            Err(errno) => return Err(BulkDown::Os { call: "receiving", source: errno.into() }),
        };
        let mut fds: Vec<OwnedFd> = vec![];
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        if received.bytes == 0 {
            return Err(BulkDown::Closed);
        }
        let is_cut = received.flags.contains(ReturnFlags::TRUNC);
        let whole = buffer.get(..received.bytes).filter(|_| !is_cut).and_then(|bytes| bytes.split_first_chunk());
        let Some((head, inside)) = whole else { return Err(BulkDown::Garbage { word: 0 }) };
        let garbage = || BulkDown::Garbage { word: u64::from_le_bytes(*head.first_chunk().unwrap_or(&[0; 8])) };
        let head = BulkHead::decode(head)?;
        let is_inside =
            matches!(head, BulkHead::Object { place: LentPlace::Inside, bytes, .. } if bytes == inside.len() as u64);
        if !is_inside && !inside.is_empty() {
            return Err(garbage());
        }
        if let Some(expected) = self.greeting {
            let BulkHead::Greeting(found) = head else { return Err(garbage()) };
            if found != expected {
                return Err(mismatch(expected, found));
            }
            self.greeting = None;
            return Ok(LocalArrival::Known);
        }
        Ok(LocalArrival::Event(match head {
            BulkHead::Object { number, place: LentPlace::Inside, .. } if is_inside => {
                LocalEvent::Object { number, object: inside.to_vec().into() }
            }
            BulkHead::Object { number, bytes, place: LentPlace::New { segment, segment_bytes } } => {
                if fds.is_empty() && received.flags.contains(ReturnFlags::CTRUNC) {
                    // The system drops the descriptor when this process has no room for one more.
                    let (call, name, source) = ("receiving a descriptor", NAME.to_string(), Errno::MFILE.into());
                    return Err(BulkDown::Segment(RegionError::Os { call, name, source }));
                }
                let fd = fds.first().filter(|_| self.known.len() < KNOWN_MAX).ok_or_else(garbage)?;
                let region = PeerRegion::open(NAME, fd, segment_bytes).map_err(BulkDown::Segment)?;
                self.known.push((segment, Arc::new(region)));
                self.lend(number, segment, bytes).ok_or_else(garbage)?
            }
            BulkHead::Object { number, bytes, place: LentPlace::Known { segment } } => {
                self.lend(number, segment, bytes).ok_or_else(garbage)?
            }
            BulkHead::Have { objects } => LocalEvent::Have { objects },
            BulkHead::Closed { dead } => LocalEvent::Closed { dead },
            BulkHead::Finished => LocalEvent::Finished,
            BulkHead::Released { number } => return Ok(LocalArrival::Released { number }),
            BulkHead::Forget { segment } => {
                self.known.retain(|(known, _)| *known != segment);
                return Ok(LocalArrival::Known);
            }
            _ => return Err(garbage()),
        }))
    }

    /// Returns an object in a segment that is mapped here, if there is one and it is long enough.
    fn lend(&self, number: u64, segment: u64, bytes: u64) -> Option<LocalEvent> {
        let (_, region) = self.known.iter().find(|(known, _)| *known == segment)?;
        if bytes > region.size() {
            return None;
        }
        let owed = Owed { number, socket: Arc::downgrade(&self.socket), unsent: self.unsent.clone() };
        Some(LocalEvent::Object { number, object: Object::lent(region.clone(), bytes, owed) })
    }
}

/// The kind of a message.
enum LocalArrival {
    /// There was no message.
    Nothing,
    /// A message that its owner need not know.
    Known,
    Released {
        number: u64,
    },
    Event(LocalEvent),
}

fn os(call: &'static str) -> impl Fn(Errno) -> BulkLinksError {
    move |errno| BulkLinksError::Os { call, source: errno.into() }
}
