//! A process's address in its group, and sending to others'.
use super::bytes::WireError;
use super::dir::{GroupName, RuntimeDir};
use super::error::MailError;
use super::kernel::{is_pidfd, random};
use super::limits::{GARBAGE_PER_LOOK, LETTER_BYTES_MAX, LETTER_FDS_MAX, LOCK_WAIT, SEND_BUFFER_BYTES};
use super::place::{Census, Lock, Place, Probe, VISITOR_IDS_FROM, keep_cleaners_out, new_socket, remove};
use super::wire::{Letter, Refusal, Stranger, VERSION, stranger};
use super::{Role, Standing};
use rustix::fs::lstat;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, bind, recv, recvmsg, sendmsg_addr,
};
use spindle_core::MemberId;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A process's address in a group: a datagram socket in the runtime directory, `<group>.<id>.mail`. Nothing here waits,
/// except for the group's lock where it says so.
///
/// Dropping it gives the address up, and the mark of a member with it. Wait for it with [`Watch`](super::Watch), or poll its
/// descriptor.
#[derive(Debug)]
pub struct Mailbox {
    place: Place,
    id: MemberId,
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket, so that a stranger's is never removed.
    made: (u64, u64),
    bytes: Vec<u8>,
    dropped: Dropped,
    starved: bool,
    /// At hand, so that who has no descriptor left can tell who lives.
    probe: Probe,
    _cleaners_out: Option<OwnedFd>,
}

/// How sending ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Delivery {
    /// The letter is in the peer's mailbox and stays there, even if this process dies.
    Done,
    /// The peer's mailbox takes no more now, or too many letters or descriptors of this process are on their way. Nothing
    /// tells when that changes: try again after a moment, as an [`Outbox`](super::Outbox) does.
    Full,
    /// Nobody is at that address.
    Gone,
}

/// What a mailbox threw away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// What was no letter, or one with the wrong descriptors.
    pub garbage: u64,
    /// Letters whose sender has no mailbox in this group, or another one than it says.
    pub forged: u64,
    /// Letters of other versions of Spindle; those that ask for something were refused.
    pub foreign: u64,
}

/// What one look into the queue brought.
enum Look {
    Letter(Letter, Vec<OwnedFd>),
    Dropped,
    /// This process has no room for the descriptors.
    Starved,
    Empty,
}

impl Mailbox {
    /// Binds the address of `id`, or takes it over if its process is gone. The process is no member by this.
    ///
    /// Waits up to two seconds for the group's lock.
    ///
    /// # Errors
    /// [`MailError::IdInUse`], [`MailError::IdReserved`], or what the system refuses.
    pub fn open(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<Mailbox, MailError> {
        let place = Place::new(dir, group);
        let lock = lock_briefly(&place)?;
        Self::bind_member(place, id, &lock)
    }

    /// An address for a process that takes no part and only wants to ask something: members answer it, and
    /// [`present`](Self::present) does not count it.
    ///
    /// Waits up to two seconds for the group's lock.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn visit(dir: &RuntimeDir, group: &GroupName) -> Result<Mailbox, MailError> {
        let place = Place::new(dir, group);
        let lock = lock_briefly(&place)?;
        let taken = place.addressees()?;
        let id = smallest_free(VISITOR_IDS_FROM, &taken);
        Self::bind(place, id, &lock)
    }

    /// As [`visit`](Self::visit), with an id of one's own, from [`VISITOR_IDS_FROM`] on: for who visits several hosts.
    ///
    /// # Errors
    /// [`MailError::IdInUse`], or what the system refuses.
    ///
    /// # Panics
    /// If the id is a member's.
    pub fn visit_as(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<Mailbox, MailError> {
        assert!(id.0 >= VISITOR_IDS_FROM, "{id} is no visitor's");
        let place = Place::new(dir, group);
        let lock = lock_briefly(&place)?;
        Self::bind(place, id, &lock)
    }

    /// Who has an address in this group and lives, by ascending id: members and those who want to be. Visitors don't
    /// count.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn present(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, MailError> {
        let mut ids = Place::new(dir, group).addressees()?;
        ids.retain(|id| id.0 < VISITOR_IDS_FROM);
        Ok(ids)
    }

    /// Who of those present is a member: founded the group, or [entered](Self::enter) it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn members(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, MailError> {
        Place::new(dir, group).members()
    }

    /// Founds the group unless a member lives. For who is no member, and waited to be let in by members that died meanwhile.
    ///
    /// # Errors
    /// [`MailError::Locked`] at the deadline, [`MailError::Cancelled`], or what the system refuses.
    ///
    /// # Panics
    /// In a group without members, if this is a [visitor](Self::visit).
    pub fn found(&self, deadline: Instant, cancelled: &AtomicBool) -> Result<Standing, MailError> {
        let lock = self.place.lock(deadline, cancelled)?;
        self.found_under(&lock, self.place.census(&lock)?)
    }

    /// Makes this process a member of the group `incarnation`, which has a decided view with it. From then on nobody founds
    /// another while this process lives.
    ///
    /// The answer is false if that has happened already: all members were dead before this process had read that it
    /// was one. Then it must have no part in that view, and may ask the new group to join.
    ///
    /// Waits up to two seconds for the group's lock.
    ///
    /// # Errors
    /// What the system refuses.
    ///
    /// # Panics
    /// If this is a [visitor](Self::visit).
    #[must_use = "a group that was superseded must not be entered"]
    pub fn enter(&self, incarnation: u128) -> Result<bool, MailError> {
        let lock = lock_briefly(&self.place)?;
        match lock.incarnation()? {
            Some(last) if last != incarnation => return Ok(false),
            Some(_) => {}
            // Somebody removed the lock's file, and nobody has founded a group since.
            None => lock.set_incarnation(incarnation)?,
        }
        self.put_mark(&lock)?;
        Ok(true)
    }

    /// As [`enter`](Self::enter), for a group that spans hosts: it can have been founded anew on another one, of which nothing is known here. So
    /// what was the group here last counts only while a member of it lives here.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Panics
    /// As [`enter`](Self::enter).
    #[must_use = "a group that was superseded must not be entered"]
    pub fn enter_afar(&self, incarnation: u128) -> Result<bool, MailError> {
        let lock = lock_briefly(&self.place)?;
        if lock.incarnation()? != Some(incarnation) {
            let others = self.place.census(&lock)?.members;
            if others.iter().any(|id| *id != self.id) {
                return Ok(false);
            }
            lock.set_incarnation(incarnation)?;
        }
        self.put_mark(&lock)?;
        Ok(true)
    }

    /// Ends what [`enter`](Self::enter) or [`found`](Self::found) began: this process is no member any more, but has its
    /// address still. For who was evicted, before it asks to join again: as long as it counts as a member nobody can found
    /// the group, even if all others are dead.
    pub fn leave(&self) {
        if let Ok(mark) = self.place.mark(self.id) {
            self.remove_mine(&mark);
        }
    }

    /// Whether somebody is at the address of `id`. If not, its process is gone, or has given its address up; so it can
    /// be told that a joiner died whose [parts](Letter::Parts), and with them its process, never arrived.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn reaches(&self, id: MemberId) -> Result<bool, MailError> {
        self.probe.answers(&self.place.address(id)?)
    }

    /// Whose address this is.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// What was thrown away so far.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Whether the last [`receive`](Self::receive) left a letter where it is because this process has no room for its
    /// descriptors. The letter is not lost: receive it after a moment, or raise the limit (`ulimit -n`). Until then the
    /// mailbox is readable, and yields nothing.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Sends without waiting.
    ///
    /// # Errors
    /// What the system refuses for another reason than that the peer is gone or its queue is full.
    ///
    /// # Panics
    /// If the number of descriptors is not [the letter's](Letter::fds), or the letter says that another wrote it.
    pub fn send(&self, to: MemberId, letter: &Letter, fds: &[BorrowedFd<'_>]) -> Result<Delivery, MailError> {
        assert_eq!(fds.len(), letter.fds(), "descriptors that do not belong to {letter:?}");
        assert!(letter.from().is_none_or(|from| from == self.id), "{letter:?} is not from {}", self.id);
        self.send_bytes(to, &letter.encode(), fds)
    }

    fn send_bytes(&self, to: MemberId, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Delivery, MailError> {
        let path = self.place.address(to)?;
        let failed = |errno| MailError::io("send a letter to", Some(&path), errno);
        let address = SocketAddrUnix::new(&path).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LETTER_FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(pushed, "{} descriptors are more than a letter takes", fds.len());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg_addr(&self.socket, &address, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(Delivery::Done),
            // The queue, the socket's own buffer, the kernel's memory, the descriptors on their way.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => Ok(Delivery::Full),
            Err(Errno::CONNREFUSED | Errno::NOENT | Errno::PIPE | Errno::CONNRESET) => Ok(Delivery::Gone),
            // A socket that is none of ours has taken the address.
            Err(Errno::PROTOTYPE | Errno::PERM) => Ok(Delivery::Gone),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// The next letter with its descriptors, without waiting.
    ///
    /// What is no letter, and what strangers send, is [counted](Self::dropped) and thrown away. After much of that the
    /// answer is `None` although there may be more; the descriptor stays readable then.
    pub fn receive(&mut self) -> Option<(Letter, Vec<OwnedFd>)> {
        self.starved = false;
        for _ in 0..GARBAGE_PER_LOOK {
            match self.look() {
                Look::Letter(letter, fds) => {
                    self.take_out();
                    return Some((letter, fds));
                }
                Look::Dropped => self.take_out(),
                Look::Starved => {
                    self.starved = true;
                    return None;
                }
                Look::Empty => return None,
            }
        }
        None
    }

    /// Removes what was looked at. Its descriptors go with it; those that were taken are copies.
    fn take_out(&self) {
        // Interrupted, it would leave the letter there to be read again.
        let _ = retry_on_intr(|| recv(&self.socket, &mut [0_u8; 1], RecvFlags::DONTWAIT));
    }

    /// What lies first in the queue, which stays there.
    fn look(&mut self) -> Look {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LETTER_FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let Ok(received) = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut self.bytes)], &mut control, flags) else {
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
        let sender = address.and_then(|address| self.place.owner(address.path()?.to_bytes()));
        let letter = match self.bytes.get(..received.bytes) {
            Some(bytes) if !received.flags.contains(ReturnFlags::TRUNC) => Letter::decode(bytes),
            _ => Err(WireError::Magic),
        };
        let (letter, sender) = match (letter, sender) {
            (Err(WireError::Version { .. }), Some(sender)) => return self.answer_stranger(sender, received.bytes),
            (Err(_), _) => {
                self.dropped.garbage += 1;
                return Look::Dropped;
            }
            (Ok(_), None) => {
                self.dropped.forged += 1;
                return Look::Dropped;
            }
            (Ok(letter), Some(sender)) => (letter, sender),
        };
        if letter.from().is_some_and(|from| from != sender) {
            self.dropped.forged += 1;
            return Look::Dropped;
        }
        let cut = received.flags.contains(ReturnFlags::CTRUNC);
        if cut && fds.len() < letter.fds() {
            return Look::Starved;
        }
        let sound = match &letter {
            Letter::Parts { .. } => fds.get(2).is_some_and(|fd| is_pidfd(fd.as_fd())),
            _ => true,
        };
        if cut || fds.len() != letter.fds() || !sound {
            self.dropped.garbage += 1;
            return Look::Dropped;
        }
        Look::Letter(letter, fds)
    }

    /// Tells somebody of another version, as far as it can be told, that it is one.
    fn answer_stranger(&mut self, sender: MemberId, bytes: usize) -> Look {
        self.dropped.foreign += 1;
        match self.bytes.get(..bytes).and_then(stranger) {
            Some(Stranger::Refuses { version }) => {
                return Look::Letter(Letter::Refused { why: Refusal::Version(version) }, Vec::new());
            }
            Some(Stranger::Asks) => {
                // If it can't be told now, it will ask again.
                let _ = self.send(sender, &Letter::Refused { why: Refusal::Version(VERSION) }, &[]);
            }
            Some(Stranger::Else) | None => {}
        }
        Look::Dropped
    }

    fn bind_member(place: Place, id: MemberId, lock: &Lock) -> Result<Mailbox, MailError> {
        if id.0 >= VISITOR_IDS_FROM {
            return Err(MailError::IdReserved { id });
        }
        Self::bind(place, id, lock)
    }

    fn bind(place: Place, id: MemberId, _held: &Lock) -> Result<Mailbox, MailError> {
        let (path, mark) = (place.address(id)?, place.mark(id)?);
        if Probe::new()?.answers(&path)? {
            return Err(MailError::IdInUse { id, group: place.group, path });
        }
        remove(&mark)?;
        remove(&path)?;
        let failed = |doing| {
            let path = path.clone();
            move |errno: Errno| MailError::io(doing, Some(&path), errno)
        };
        let socket = new_socket()?;
        // Letters in others' queues count here. A wish: the system may allow less.
        let _ = set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
        let address = SocketAddrUnix::new(&path).map_err(failed("name the socket"))?;
        bind(&socket, &address).map_err(failed("make the socket"))?;
        let found = lstat(&path).map_err(failed("look at the socket"))?;
        let made = (found.st_dev, found.st_ino);
        let (bytes, dropped) = (vec![0; LETTER_BYTES_MAX], Dropped::default());
        let (starved, probe) = (false, Probe::new()?);
        let _cleaners_out = keep_cleaners_out(&place.dir);
        Ok(Self { place, id, socket, path, made, bytes, dropped, starved, probe, _cleaners_out })
    }

    fn found_under(&self, lock: &Lock, Census { addressees, members }: Census) -> Result<Standing, MailError> {
        if !members.is_empty() {
            return Ok(Standing::Joiner { members });
        }
        // In a new group all ids are new, but for those of who waits already.
        let highest = lock.highest_given()?;
        let given = addressees.iter().map(|id| id.0).chain([self.id.0]).filter(|id| *id <= highest);
        lock.set_highest_given(given.max().unwrap_or(0))?;
        let incarnation = random().map_err(|source| MailError::io("draw random bits", None, source))?;
        // Before the mark, so that who finds the mark finds the incarnation.
        lock.set_incarnation(incarnation)?;
        self.put_mark(lock)?;
        Ok(Standing::Founder { incarnation })
    }

    fn put_mark(&self, _held: &Lock) -> Result<(), MailError> {
        assert!(self.id.0 < VISITOR_IDS_FROM, "a visitor takes no part in its group");
        let mark = self.place.mark(self.id)?;
        if self.is_mine(&mark) {
            return Ok(());
        }
        remove(&mark)?;
        std::fs::hard_link(&self.path, &mark).map_err(|source| MailError::io("make", Some(&mark), source))
    }

    fn is_mine(&self, path: &Path) -> bool {
        lstat(path).is_ok_and(|found| (found.st_dev, found.st_ino) == self.made)
    }

    /// Needs no lock: while this socket is open nobody takes its names over.
    fn remove_mine(&self, path: &Path) {
        if self.is_mine(path) {
            let _ = remove(path);
        }
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.leave();
        self.remove_mine(&self.path);
    }
}

/// Finds the group, or founds it if no member lives: takes the address of `id`, or the smallest one from 1 that nobody has had in this group, and
/// says what this process is by that. Nobody else can found the group meanwhile, nor later while this process
/// [is a member](Mailbox::leave).
///
/// # Errors
/// [`MailError::IdInUse`], [`MailError::Locked`] at the deadline, [`MailError::Cancelled`], or what the system refuses.
pub fn found_or_find(
    dir: &RuntimeDir,
    group: &GroupName,
    id: Option<MemberId>,
    deadline: Instant,
    cancelled: &AtomicBool,
) -> Result<Role, MailError> {
    let place = Place::new(dir, group);
    let lock = place.lock(deadline, cancelled)?;
    let census = place.census(&lock)?;
    let id = match id {
        Some(id) => id,
        None => unused(&census, &lock)?,
    };
    let mailbox = Mailbox::bind_member(place, id, &lock)?;
    Ok(match mailbox.found_under(&lock, census)? {
        Standing::Founder { incarnation } => Role::Founder { mailbox, incarnation },
        Standing::Joiner { members } => Role::Joiner { mailbox, members },
    })
}

/// The smallest id that nobody has, nor had in this group: members that don't know yet that its former owner is dead would
/// take the new one for it, and one that was stopped meanwhile would found a group of ghosts with it.
fn unused(census: &Census, lock: &Lock) -> Result<MemberId, MailError> {
    let highest = lock.highest_given()?;
    let from = if census.members.is_empty() { 1 } else { highest + 1 };
    let id = smallest_free(from, &census.addressees);
    lock.set_highest_given(highest.max(id.0))?;
    Ok(id)
}

/// The smallest id that nobody has, `from` up; `taken` is ascending.
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

/// For calls that have no deadline of their own.
fn lock_briefly(place: &Place) -> Result<Lock, MailError> {
    place.lock(Instant::now() + LOCK_WAIT, &AtomicBool::new(false))
}
