//! A process's address in its group, and sending to the addresses of others.
use super::TARGET;
use super::dir::{GroupName, RuntimeDir};
use super::error::RendezvousError;
use super::group_files::{Census, GroupFiles, Lock, Probe, Spot, keep_cleaners_out, new_socket};
use super::kernel::{is_pidfd, random};
use super::limits::{
    CONTROL_MESSAGE_FDS_MAX, GARBAGE_PER_LOOK, LOCK_WAIT, OLD_SOCKETS_MAX, SEND_BUFFER_BYTES, VANISHES_MAX,
};
use super::living::{Key, Name};
use super::{Role, Standing};
use crate::fork::{Owner, Socket};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, bind, recv, recvmsg, sendmsg_addr,
};
use spindle_core::MemberId;
use spindle_core::control::{ControlMessage, Refusal, Stranger, VERSION, stranger};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::limits::CONTROL_MESSAGE_BYTES_MAX;
use spindle_core::wire::bytes::WireError;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{debug, info, trace, warn};

/// A process's address in a group: a datagram socket in the runtime directory, `<group>.<id>.sock`,
/// which is its control socket. Nothing here waits, except for the group's lock where the
/// documentation says so.
///
/// Dropping it gives the address up, and the mark of a member with it. Wait for control messages
/// with [`Watch`](super::Watch), or poll its descriptor.
///
/// If its socket is removed, [`restore`](Self::restore) makes another. Processes that have sent to
/// it before continue to use the old one.
#[derive(Debug)]
pub struct ControlSocket {
    spot: Arc<Address>,
    id: MemberId,
    socket: Socket,
    /// Sockets whose names were removed, from the oldest to the newest.
    old: Vec<Socket>,
    /// Sockets of others, by which they are reached even if their names are removed.
    peers: Mutex<BTreeMap<MemberId, OwnedFd>>,
    /// Whether the id was given out, and may not be given out again.
    given: bool,
    bytes: Vec<u8>,
    dropped: Dropped,
    starved: bool,
    /// Whether the last look found nothing.
    drained: bool,
    /// Opened early, so that a process without free descriptors can check which processes live.
    probe: Probe,
    _cleaners_out: Option<OwnedFd>,
}

/// An address, and whether its owner is a member, as others see it.
#[derive(Debug)]
pub(super) struct Address {
    place: GroupFiles,
    id: MemberId,
    /// A forked child has a copy of everything, and gives nothing up.
    owner: Owner,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The device and inode of the socket, so that a socket of another process is never removed.
    made: (u64, u64),
    /// The incarnation of the group that it is a member of.
    member: Option<u128>,
    /// Its name that outlives the directory.
    name: Option<Name>,
}

/// The result of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Delivery {
    /// The control message is in the peer's queue and stays there, even if this process dies.
    Done,
    /// The peer's queue is full, or too many control messages or descriptors of this process are in
    /// transit. No event reports when that changes: try again after a moment, as an
    /// [`Outbox`](super::Outbox) does.
    Full,
    /// The address leads to no process now. The peer may live.
    Gone,
}

/// Counts of what a control socket discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Bytes that were no control message, and control messages with the wrong descriptors.
    pub garbage: u64,
    /// Control messages whose sender has no address in this group, or another one than it says.
    pub forged: u64,
    /// Control messages of other versions of Spindle; those that ask for something were refused.
    pub foreign: u64,
}

/// The result of one look into the queue.
enum Look {
    ControlMessage(ControlMessage, Vec<OwnedFd>),
    Dropped,
    /// This process has no room for the descriptors.
    Starved,
    Empty,
}

impl ControlSocket {
    /// Binds the address of `id`, or takes it over if its process is gone. This does not make the
    /// process a member.
    ///
    /// Waits up to ten seconds for the group's lock.
    ///
    /// # Errors
    /// [`RendezvousError::IdInUse`], [`RendezvousError::IdReserved`], or what the system refuses.
    pub fn open(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<ControlSocket, RendezvousError> {
        let place = GroupFiles::new(dir, group);
        let control_socket = again_if_it_vanishes(dir, || {
            let lock = lock_briefly(&place)?;
            Self::bind_member(&place, id, &lock, false)
        })?;
        if place.known_members().is_ok_and(|members| members.is_empty()) {
            place.sweep_others(dir);
        }
        Ok(control_socket)
    }

    /// Opens an address for an observer or an admin client, which is no member and only sends
    /// requests. Members answer it, and [`present`](Self::present) does not count it.
    ///
    /// Waits up to ten seconds for the group's lock.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn client(dir: &RuntimeDir, group: &GroupName) -> Result<ControlSocket, RendezvousError> {
        let place = GroupFiles::new(dir, group);
        again_if_it_vanishes(dir, || {
            let lock = lock_briefly(&place)?;
            let taken = place.addressees()?;
            let id = smallest_free(CLIENT_IDS_FROM, &taken);
            Self::bind(&place, id, &lock, false)
        })
    }

    /// Does the same as [`client`](Self::client), with a given id, from [`CLIENT_IDS_FROM`] on: for
    /// clients that use several hosts.
    ///
    /// # Errors
    /// [`RendezvousError::IdInUse`], or what the system refuses.
    ///
    /// # Panics
    /// If the id is a member's.
    pub fn client_as(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<ControlSocket, RendezvousError> {
        assert!(id.0 >= CLIENT_IDS_FROM, "{id} is no client's");
        let place = GroupFiles::new(dir, group);
        again_if_it_vanishes(dir, || Self::bind(&place, id, &lock_briefly(&place)?, false))
    }

    /// Returns whether `id` is a live member, by its name that outlives the directory. False where
    /// the system lists no such names.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn lives(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<bool, RendezvousError> {
        Ok(GroupFiles::new(dir, group).key.living()?.contains(&id))
    }

    /// Returns the live processes that have an address in this group, by ascending id: members and
    /// those that want to be. Observers and admin clients don't count.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn present(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, RendezvousError> {
        let mut ids = GroupFiles::new(dir, group).addressees()?;
        ids.retain(|id| id.0 < CLIENT_IDS_FROM);
        Ok(ids)
    }

    /// Returns which of the present processes are members: they created the group, or
    /// [entered](Self::enter) it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn members(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, RendezvousError> {
        GroupFiles::new(dir, group).members()
    }

    /// Returns the same as [`members`](Self::members) in a group that is not large. In a large one,
    /// asks only some of the members whether they live; others may have ended.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn known_members(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, RendezvousError> {
        GroupFiles::new(dir, group).known_members()
    }

    /// Creates the group unless a member lives. For a process that is no member, and that waited to
    /// be admitted by members that died meanwhile.
    ///
    /// # Errors
    /// [`RendezvousError::Locked`] at the deadline, [`RendezvousError::Cancelled`], or what the
    /// system refuses.
    ///
    /// # Panics
    /// In a group without members, if this is a [client](Self::client).
    pub fn create(&self, deadline: Instant, cancelled: &AtomicBool) -> Result<Standing, RendezvousError> {
        let place = &self.spot.place;
        again_if_it_vanishes(&place.dir, || {
            let lock = place.lock(deadline, cancelled)?;
            self.create_under(&lock, place.census(&lock)?)
        })
    }

    /// Makes this process a member of the group `incarnation`, which has decided a view with it.
    /// From then on no process can create another group of this name while this process lives.
    ///
    /// Returns false if another group exists already: all members died before this process had read
    /// that it was a member. Then it must have no part in that view, and may ask the new group to
    /// join.
    ///
    /// Waits up to ten seconds for the group's lock.
    ///
    /// # Errors
    /// What the system refuses.
    ///
    /// # Panics
    /// If this is a [client](Self::client).
    #[must_use = "a group that was superseded must not be entered"]
    pub fn enter(&self, incarnation: u128) -> Result<bool, RendezvousError> {
        let place = &self.spot.place;
        again_if_it_vanishes(&place.dir, || {
            let lock = lock_briefly(place)?;
            let last = lock.incarnation()?;
            if last != Some(incarnation) {
                // The lock file may have been removed, and another group created since.
                if !place.key.are_of(incarnation)?.unwrap_or(last.is_none()) {
                    return Ok(false);
                }
                lock.set_incarnation(incarnation)?;
            }
            self.spot.put_mark(&lock, incarnation)?;
            Ok(true)
        })
    }

    /// Does the same as [`enter`](Self::enter), for a group that spans hosts. Another host may have
    /// created the group again, which is not known here. So the last group on this host counts only
    /// while a member of it lives here.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Panics
    /// As [`enter`](Self::enter).
    #[must_use = "a group that was superseded must not be entered"]
    pub fn enter_afar(&self, incarnation: u128) -> Result<bool, RendezvousError> {
        let place = &self.spot.place;
        again_if_it_vanishes(&place.dir, || {
            let lock = lock_briefly(place)?;
            if lock.incarnation()? != Some(incarnation) {
                let may_enter = match place.key.are_of(incarnation)? {
                    Some(are_of_it) => are_of_it,
                    None => place.census(&lock)?.members.iter().all(|id| *id == self.id),
                };
                if !may_enter {
                    return Ok(false);
                }
                lock.set_incarnation(incarnation)?;
            }
            self.spot.put_mark(&lock, incarnation)?;
            Ok(true)
        })
    }

    /// Ends the membership that [`enter`](Self::enter) or [`create`](Self::create) began. The process
    /// keeps its address. An evicted process calls this before it asks to join again: as long as it
    /// counts as a member no process can create the group, even if all others are dead.
    pub fn leave(&self) {
        self.spot.leave();
    }

    /// Returns whether a process is at the address of `id`. If not, nothing can be sent to it. That
    /// is no proof that its process has ended: its socket may have been removed.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn reaches(&self, id: MemberId) -> Result<bool, RendezvousError> {
        let spot = self.spot.place.address(id)?;
        if let Some(held) = self.peers().get(&id).and_then(|held| spot.path_of(held.as_fd()))
            && self.probe.answers(&held)?
        {
            return Ok(true);
        }
        self.probe.answers(&spot)
    }

    /// Releases the sockets of processes that are not wanted any more.
    pub fn retain_peers(&self, is_wanted: impl Fn(MemberId) -> bool) {
        self.peers().retain(|id, _| is_wanted(*id));
    }

    /// Makes this address again, and the mark of a member, if they or the directory were removed,
    /// so that other processes find this one again. Returns true if there is a new socket to
    /// [watch](super::Watch::renew). Never waits: if the group's lock is not free, it does nothing.
    ///
    /// # Errors
    /// [`RendezvousError::IdInUse`] if another process has this address by now, or what the system
    /// refuses.
    pub fn restore(&mut self) -> Result<bool, RendezvousError> {
        if self.spot.is_in_place() {
            return Ok(false);
        }
        let place = &self.spot.place;
        let Some(lock) = place.try_lock()? else { return Ok(false) };
        let (spot, mark) = (place.address(self.id)?, place.mark(self.id)?);
        let (made, incarnation) = {
            let state = self.spot.state();
            (state.made, state.member)
        };
        let mut fresh = None;
        if spot.found() != Some(made) {
            if self.probe.answers(&spot)? {
                return Err(RendezvousError::IdInUse {
                    id: self.id,
                    group: place.group.clone(),
                    path: place.shown(self.id),
                });
            }
            spot.remove()?;
            if mark.found() != Some(made) || mark.link(&spot).is_err() {
                let (socket, made) = bind_at(&spot)?;
                self.spot.state().made = made;
                fresh = Some(socket);
            }
        }
        if let Some(incarnation) = incarnation {
            if lock.incarnation()?.is_none() {
                lock.set_incarnation(incarnation)?;
            }
            self.spot.put_mark(&lock, incarnation)?;
        }
        if self.given && lock.highest_given()? < self.id.0 {
            lock.set_highest_given(self.id.0)?;
        }
        drop(lock);
        self._cleaners_out = keep_cleaners_out(&self.spot.place.dir);
        info!(target: TARGET, me = self.id.0, address = %self.spot.shown().display(), "address is made again");
        let Some(socket) = fresh else { return Ok(false) };
        self.old.push(std::mem::replace(&mut self.socket, socket));
        if self.old.len() > OLD_SOCKETS_MAX {
            // Processes that still use it find the newest.
            self.old.remove(0);
        }
        Ok(true)
    }

    /// Returns the address, which shows whether [`restore`](Self::restore) has anything to do.
    pub(super) fn address(&self) -> &Arc<Address> {
        &self.spot
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<MemberId, OwnedFd>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of its owner.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Returns what was discarded so far.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Returns whether the last [`receive`](Self::receive) left a control message in the queue
    /// because this process has no room for its descriptors. The control message is not lost:
    /// receive it after a moment, or raise the limit (`ulimit -n`). Until then the descriptor is
    /// readable, and nothing is received.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Returns whether the last [`receive`](Self::receive) found the queue empty. If a process had
    /// ended by then, all of its control messages were received. That does not hold if this process
    /// [is starved](Self::is_starved), or if the queue was full of garbage.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// Sends a control message without waiting.
    ///
    /// # Errors
    /// What the system refuses for another reason than that the peer is gone or its queue is full.
    ///
    /// # Panics
    /// If the number of descriptors is not the one that [`ControlMessage::fds`] returns, or if the
    /// control message names another sender.
    pub fn send(
        &self,
        to: MemberId,
        message: &ControlMessage,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Delivery, RendezvousError> {
        assert_eq!(fds.len(), message.fds(), "descriptors that do not belong to {message:?}");
        assert!(message.from().is_none_or(|from| from == self.id), "{message:?} is not from {}", self.id);
        let delivery = self.send_bytes(to, &message.encode(), fds);
        trace!(target: TARGET, me = self.id.0, to = to.0, ?message, ?delivery, "message");
        delivery
    }

    /// Sends through the socket that is held, or to the process that has the address now.
    fn send_bytes(&self, to: MemberId, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Delivery, RendezvousError> {
        let spot = self.spot.place.address(to)?;
        let mut peers = self.peers();
        if let Some(path) = peers.get(&to).and_then(|held| spot.path_of(held.as_fd())) {
            match self.send_to(&path, to, bytes, fds)? {
                // The process has ended, or has another socket.
                Delivery::Gone => drop(peers.remove(&to)),
                delivery => return Ok(delivery),
            }
        }
        // Observers and admin clients come and go, so their sockets are not held.
        let held = if to.0 < CLIENT_IDS_FROM { spot.hold().ok() } else { None };
        let path = held.as_ref().and_then(|held| spot.path_of(held.as_fd()));
        let delivery = self.send_to(path.as_deref().unwrap_or(&spot), to, bytes, fds)?;
        if let Some(held) = held.filter(|_| delivery != Delivery::Gone) {
            peers.insert(to, held);
        }
        Ok(delivery)
    }

    fn send_to(
        &self,
        path: &Path,
        to: MemberId,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Delivery, RendezvousError> {
        let failed = |errno| RendezvousError::io("send a control message to", Some(&self.spot.place.shown(to)), errno);
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CONTROL_MESSAGE_FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(pushed, "{} descriptors are more than a control message takes", fds.len());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg_addr(&self.socket, &address, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(Delivery::Done),
            // The cause is the queue, the socket's own buffer, the kernel's memory, or the
            // descriptors in transit.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => Ok(Delivery::Full),
            Err(Errno::CONNREFUSED | Errno::NOENT | Errno::PIPE | Errno::CONNRESET) => Ok(Delivery::Gone),
            // A foreign socket has taken the address.
            Err(Errno::PROTOTYPE | Errno::PERM) => Ok(Delivery::Gone),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Returns the next control message with its descriptors, without waiting.
    ///
    /// Bytes that are no control message, and messages of foreign senders, are
    /// [counted](Self::dropped) and discarded. After many of those the answer is `None` although
    /// there may be more; the descriptor stays readable then.
    pub fn receive(&mut self) -> Option<(ControlMessage, Vec<OwnedFd>)> {
        let was_starved = std::mem::take(&mut self.starved);
        self.drained = false;
        let mut empty = 0;
        // The oldest socket first: its messages were sent before.
        for socket in 0..=self.old.len() {
            for _ in 0..GARBAGE_PER_LOOK {
                match self.look(socket) {
                    Look::ControlMessage(message, fds) => {
                        trace!(target: TARGET, me = self.id.0, ?message, "control message received");
                        self.take_out(socket);
                        return Some((message, fds));
                    }
                    Look::Dropped => {
                        let Dropped { garbage, forged, foreign } = self.dropped;
                        debug!(target: TARGET, me = self.id.0, garbage, forged, foreign, "control message dropped");
                        self.take_out(socket);
                    }
                    Look::Starved => {
                        if !was_starved {
                            warn!(target: TARGET, me = self.id.0, "no file descriptor left for control messages (ulimit -n)");
                        }
                        self.starved = true;
                        return None;
                    }
                    Look::Empty => {
                        empty += 1;
                        break;
                    }
                }
            }
        }
        self.drained = empty > self.old.len();
        None
    }

    /// Returns one of its sockets, of which the last is the newest.
    fn socket(&self, number: usize) -> &Socket {
        self.old.get(number).unwrap_or(&self.socket)
    }

    /// Removes the message that was looked at, and its descriptors; those that were taken are
    /// copies.
    fn take_out(&self, socket: usize) {
        // If this were interrupted, the control message would stay and be read again.
        let _ = retry_on_intr(|| recv(self.socket(socket), &mut [0_u8; 1], RecvFlags::DONTWAIT));
    }

    /// Looks at the first message of the queue, which stays there.
    fn look(&mut self, socket: usize) -> Look {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CONTROL_MESSAGE_FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let socket = self.old.get(socket).unwrap_or(&self.socket);
        let Ok(received) = recvmsg(socket, &mut [IoSliceMut::new(&mut self.bytes)], &mut control, flags) else {
            return Look::Empty;
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        self.judge(received, fds)
    }

    fn judge(&mut self, received: RecvMsg, fds: Vec<OwnedFd>) -> Look {
        let address = received.address.and_then(|address| SocketAddrUnix::try_from(address).ok());
        let sender = address.and_then(|address| self.spot.place.owner(address.path()?.to_bytes()));
        let message = match self.bytes.get(..received.bytes) {
            Some(bytes) if !received.flags.contains(ReturnFlags::TRUNC) => ControlMessage::decode(bytes),
            _ => Err(WireError::Magic),
        };
        let (message, sender) = match (message, sender) {
            (Err(WireError::Version { .. }), Some(sender)) => return self.answer_stranger(sender, received.bytes),
            (Err(_), _) => {
                self.dropped.garbage += 1;
                return Look::Dropped;
            }
            (Ok(_), None) => {
                self.dropped.forged += 1;
                return Look::Dropped;
            }
            (Ok(message), Some(sender)) => (message, sender),
        };
        if message.from().is_some_and(|from| from != sender) {
            self.dropped.forged += 1;
            return Look::Dropped;
        }
        let cut = received.flags.contains(ReturnFlags::CTRUNC);
        if cut && fds.len() < message.fds() {
            return Look::Starved;
        }
        let sound = match &message {
            ControlMessage::RowDescriptors { .. } => fds.get(2).is_some_and(|fd| is_pidfd(fd.as_fd())),
            _ => true,
        };
        if cut || fds.len() != message.fds() || !sound {
            self.dropped.garbage += 1;
            return Look::Dropped;
        }
        Look::ControlMessage(message, fds)
    }

    /// Tells a process of another version, as far as it can understand, that the versions differ.
    fn answer_stranger(&mut self, sender: MemberId, bytes: usize) -> Look {
        self.dropped.foreign += 1;
        match self.bytes.get(..bytes).and_then(stranger) {
            Some(Stranger::Refuses { version }) => {
                return Look::ControlMessage(ControlMessage::Refused { why: Refusal::Version(version) }, Vec::new());
            }
            Some(Stranger::Asks) => {
                // If the refusal can't be sent now, the process will ask again.
                let _ = self.send(sender, &ControlMessage::Refused { why: Refusal::Version(VERSION) }, &[]);
            }
            Some(Stranger::Else) | None => {}
        }
        Look::Dropped
    }

    fn bind_member(
        place: &GroupFiles,
        id: MemberId,
        lock: &Lock,
        given: bool,
    ) -> Result<ControlSocket, RendezvousError> {
        if id.0 >= CLIENT_IDS_FROM {
            return Err(RendezvousError::IdReserved { id });
        }
        // The directory may be new, and that process about to make its socket again.
        if place.key.has(id)? {
            return Err(RendezvousError::IdInUse { id, path: place.shown(id), group: place.group.clone() });
        }
        Self::bind(place, id, lock, given)
    }

    fn bind(place: &GroupFiles, id: MemberId, _held: &Lock, given: bool) -> Result<ControlSocket, RendezvousError> {
        let (spot, mark) = (place.address(id)?, place.mark(id)?);
        if Probe::new()?.answers(&spot)? {
            return Err(RendezvousError::IdInUse { id, path: place.shown(id), group: place.group.clone() });
        }
        mark.remove()?;
        spot.remove()?;
        let (socket, made) = bind_at(&spot)?;
        let (bytes, dropped) = (vec![0; CONTROL_MESSAGE_BYTES_MAX], Dropped::default());
        let (starved, drained, probe, old, peers) = (false, false, Probe::new()?, vec![], Mutex::default());
        let _cleaners_out = keep_cleaners_out(&place.dir);
        let name = if id.0 < CLIENT_IDS_FROM { place.key.wait(id)? } else { None };
        let state = Mutex::new(State { made, member: None, name });
        let spot = Arc::new(Address { place: place.clone(), id, owner: Owner::new(), state });
        Ok(Self { spot, id, socket, old, peers, given, bytes, dropped, starved, drained, probe, _cleaners_out })
    }

    fn create_under(&self, lock: &Lock, Census { addressees, members }: Census) -> Result<Standing, RendezvousError> {
        if !members.is_empty() {
            return Ok(Standing::Joiner { members });
        }
        // In a new group all ids are new, except those of processes that wait already.
        let highest = lock.highest_given()?;
        let given = addressees.iter().map(|id| id.0).chain([self.id.0]).filter(|id| *id <= highest);
        lock.set_highest_given(given.max().unwrap_or(0))?;
        let incarnation = random().map_err(|source| RendezvousError::io("draw random bits", None, source))?;
        // Before the mark, so that a process that finds the mark finds the incarnation.
        lock.set_incarnation(incarnation)?;
        self.spot.put_mark(lock, incarnation)?;
        Ok(Standing::Founder { incarnation })
    }
}

impl Address {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code here panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the address, as shown to operators.
    pub(super) fn shown(&self) -> PathBuf {
        self.place.shown(self.id)
    }

    /// Returns whether others find this process at its address. Closes the connections of those
    /// that have checked.
    pub(super) fn is_in_place(&self) -> bool {
        let state = self.state();
        if let Some(name) = &state.name {
            name.see_probes();
        }
        let is_mine = |spot: Result<Spot, _>| spot.is_ok_and(|spot: Spot| spot.found() == Some(state.made));
        self.place.dir.is_current()
            && is_mine(self.place.address(self.id))
            && (state.member.is_none() || is_mine(self.place.mark(self.id)))
    }

    fn put_mark(&self, _held: &Lock, incarnation: u128) -> Result<(), RendezvousError> {
        assert!(self.id.0 < CLIENT_IDS_FROM, "a client takes no part in its group");
        let mut state = self.state();
        if state.member.is_none() {
            state.name = self.place.key.live(self.id, incarnation)?;
        }
        state.member = Some(incarnation);
        let (spot, mark) = (self.place.address(self.id)?, self.place.mark(self.id)?);
        if mark.found() == Some(state.made) {
            return Ok(());
        }
        mark.remove()?;
        match spot.link(&mark) {
            // Its address was removed, and both are made again together. Meanwhile its abstract
            // name shows that it is a member.
            Err(Errno::NOENT) if state.name.is_some() => Ok(()),
            linked => linked.map_err(|source| RendezvousError::io("make", Some(&mark), source)),
        }
    }

    fn leave(&self) {
        if self.owner.is_copy() {
            return;
        }
        let mut state = self.state();
        if state.member.take().is_some() {
            state.name = self.place.key.wait(self.id).unwrap_or(None);
        }
        drop(state);
        self.remove_mine(self.place.mark(self.id).ok());
    }

    /// Needs no lock: while this socket is open no process takes its names over.
    fn remove_mine(&self, spot: Option<Spot>) {
        if let Some(spot) = spot.filter(|spot| spot.found() == Some(self.state().made)) {
            let _ = spot.remove();
        }
    }
}

/// Returns a socket with a name, and its device and inode.
fn bind_at(spot: &Spot) -> Result<(Socket, (u64, u64)), RendezvousError> {
    let failed = |doing| move |errno: Errno| RendezvousError::io(doing, Some(spot), errno);
    let socket = new_socket()?;
    // Control messages in others' queues count against it. The system may allow less.
    let _ = set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
    let address = SocketAddrUnix::new(&**spot).map_err(failed("name the socket"))?;
    bind(&socket, &address).map_err(failed("make the socket"))?;
    let made = spot.found().ok_or_else(|| failed("look at the socket")(Errno::NOENT))?;
    Ok((Socket::new(socket), made))
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.spot.owner.is_copy() {
            return;
        }
        self.leave();
        let place = &self.spot.place;
        self.spot.remove_mine(place.address(self.id).ok());
        // The last process to leave removes the lock file, unless another one comes just now.
        if place.is_deserted()
            && let Ok(Some(lock)) = place.try_lock()
        {
            place.remove_if_deserted(lock);
        }
    }
}

/// Finds the group, or creates it if no member lives. Takes the address of `id`, or else of the
/// smallest id from 1 that no process has had in this group. Returns the role that results for this
/// process. No other process can create the group meanwhile, nor later while this process is a
/// member (see [`ControlSocket::leave`]).
///
/// # Errors
/// [`RendezvousError::IdInUse`], [`RendezvousError::Locked`] at the deadline,
/// [`RendezvousError::Cancelled`], or what the system refuses.
pub fn found_or_find(
    dir: &RuntimeDir,
    group: &GroupName,
    id: Option<MemberId>,
    deadline: Instant,
    cancelled: &AtomicBool,
) -> Result<Role, RendezvousError> {
    let place = GroupFiles::new(dir, group);
    let role = again_if_it_vanishes(dir, || {
        let lock = place.lock(deadline, cancelled)?;
        let census = place.brief_census(&lock)?;
        let given = id.is_none();
        let id = match id {
            Some(id) => id,
            None => unused(&census, &place.key, &lock)?,
        };
        let control_socket = ControlSocket::bind_member(&place, id, &lock, given)?;
        Ok(match control_socket.create_under(&lock, census)? {
            Standing::Founder { incarnation } => Role::Founder { control_socket, incarnation },
            Standing::Joiner { members } => Role::Joiner { control_socket, members },
        })
    })?;
    if matches!(role, Role::Founder { .. }) {
        place.sweep_others(dir);
    }
    Ok(role)
}

/// Runs an action under the lock, and repeats it if the directory is removed meanwhile.
fn again_if_it_vanishes<T>(
    dir: &RuntimeDir,
    mut attempt: impl FnMut() -> Result<T, RendezvousError>,
) -> Result<T, RendezvousError> {
    for _ in 0..VANISHES_MAX {
        match attempt() {
            Err(RendezvousError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && !dir.is_current() => {}
            done => return done,
        }
    }
    attempt()
}

/// Ids from here on are hardly ever given out: processes have chosen them.
const IDS_CHOSEN_FROM: u64 = 1 << 32;

/// Returns the smallest id that no process has or had in this group. Members that don't know yet
/// that an id's former owner is dead would take the new owner for it. A former owner that was
/// stopped meanwhile would create a group of dead members with it. Live processes may have no
/// socket now; their names show them.
fn unused(census: &Census, key: &Key, lock: &Lock) -> Result<MemberId, RendezvousError> {
    let has_members = !census.members.is_empty();
    let mut highest = lock.highest_given()?;
    if has_members && lock.incarnation()?.is_none() {
        // The lock file is new, so it is not known which ids were given out before those of the
        // live processes.
        let present = key.present()?.into_iter().map(|id| id.0);
        highest = present.filter(|id| *id < IDS_CHOSEN_FROM).max().unwrap_or(0).max(highest);
    }
    let from = if has_members { highest + 1 } else { 1 };
    let mut taken = [&census.addressees[..], &key.present_from(from)?].concat();
    taken.sort_unstable();
    taken.dedup();
    let id = smallest_free(from, &taken);
    lock.set_highest_given(highest.max(id.0))?;
    Ok(id)
}

/// Returns the smallest id from `from` on that no process has; `taken` is ascending.
fn smallest_free(from: u64, taken: &[MemberId]) -> MemberId {
    let mut free = from;
    for id in taken.iter().filter(|id| id.0 >= from) {
        if id.0 != free {
            break;
        }
        free += 1;
    }
    MemberId(free)
}

/// Takes the lock for calls that have no deadline of their own.
fn lock_briefly(place: &GroupFiles) -> Result<Lock, RendezvousError> {
    place.lock(Instant::now() + LOCK_WAIT, &AtomicBool::new(false))
}
