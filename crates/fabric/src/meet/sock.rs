//! Packets with file descriptors over a Unix socket, and the socket and lock of a group.
use super::error::{Fault, MeetError};
use super::limits::{BACKLOG, FDS_PER_MEMBER, MEMBERS_PER_PART, MESSAGE_BYTES_MAX};
use super::wire::Message;
use crate::mail::{GroupName, RuntimeDir};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, lstat, open, stat, unlink};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recvmsg, sendmsg, socket_with,
};
use rustix::process::geteuid;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
const FDS_MAX: usize = MEMBERS_PER_PART * FDS_PER_MEMBER;

/// The founder's exclusive right to a group's name, and the socket at which it hears newcomers.
///
/// The lock comes first and goes last, so whoever removes or makes the socket holds the lock. The lock's file stays:
/// if it were removed, one process could hold the lock of the nameless file while another takes that of a new one.
#[derive(Debug)]
pub(super) struct Door {
    lock: OwnedFd,
    listener: OwnedFd,
    socket: PathBuf,
    /// Device and inode of the socket, so that a stranger's is never removed.
    made: (u64, u64),
}

impl Door {
    /// Takes the name, unless somebody holds it.
    pub(super) fn open(dir: &RuntimeDir, group: &GroupName) -> Result<Option<Self>, MeetError> {
        let socket = dir.socket_path(group)?;
        let Some(lock) = take_lock(dir, group)? else { return Ok(None) };
        let failed = |doing| {
            let path = socket.clone();
            move |errno| MeetError::io(doing, Some(&path), errno)
        };
        match unlink(&socket) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("remove the stale socket")(errno)),
        }
        let address = SocketAddrUnix::new(&socket).map_err(failed("name the socket"))?;
        let listener = new_socket()?;
        bind(&listener, &address).map_err(failed("make the socket"))?;
        listen(&listener, BACKLOG).map_err(failed("listen at the socket"))?;
        let found = lstat(&socket).map_err(failed("look at the socket"))?;
        Ok(Some(Self { lock, listener, made: (found.st_dev, found.st_ino), socket }))
    }

    /// The next newcomer, if one waits.
    pub(super) fn accept(&self) -> Result<Option<OwnedFd>, MeetError> {
        match accept_with(&self.listener, FLAGS) {
            Ok(newcomer) => Ok(Some(newcomer)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(MeetError::io("accept a newcomer at", Some(&self.socket), errno)),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if lstat(&self.socket).is_ok_and(|found| (found.st_dev, found.st_ino) == self.made) {
            let _ = unlink(&self.socket);
        }
        // Closing would do, except that a child that was forked meanwhile could hold the lock on.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

fn take_lock(dir: &RuntimeDir, group: &GroupName) -> Result<Option<OwnedFd>, MeetError> {
    let path = dir.lock_path(group);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = open(&path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| MeetError::io("open the lock file", Some(&path), errno))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
        Err(errno) => return Err(MeetError::io("lock", Some(&path), errno)),
    }
    // Somebody may have removed the file between open and lock; then the lock excludes nobody. Try again later.
    let held = fstat(&lock).map_err(|errno| MeetError::io("look at the lock file", Some(&path), errno))?;
    let named = stat(&path).is_ok_and(|named| (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino));
    Ok(named.then_some(lock))
}

fn new_socket() -> Result<OwnedFd, MeetError> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
        .map_err(|errno| MeetError::io("make a socket", None, errno))
}

/// A connection to the group's founder, if there is one that can be reached now.
pub(super) fn reach(dir: &RuntimeDir, group: &GroupName) -> Result<Option<OwnedFd>, MeetError> {
    let path = dir.socket_path(group)?;
    let address = SocketAddrUnix::new(&path).map_err(|errno| MeetError::io("name the socket", Some(&path), errno))?;
    let socket = new_socket()?;
    match connect(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        // Nobody listens, nobody listens any more, too many wait to be accepted.
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(MeetError::io("connect to", Some(&path), errno)),
    }
}

/// Who is at the other end, by the kernel's word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials {
    /// 0 if the process can't be named here (another pid namespace).
    pub(super) pid: u32,
    pub(super) uid: u32,
}

impl Credentials {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Result<Self, MeetError> {
        // Not rustix's call: its type can't hold the pid 0 that a process of another pid namespace has.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `found` and `bytes` outlive the call, and `bytes` is the size of `found`, so the kernel writes
        // inside them; any bits it writes are valid integers.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut bytes,
            )
        };
        if answer != 0 {
            let source = std::io::Error::last_os_error();
            return Err(MeetError::Io { doing: "ask who connected", path: None, source });
        }
        Ok(Self { pid: found.pid.cast_unsigned(), uid: found.uid })
    }

    /// Whether this user may take part: the same one, or root.
    pub(super) fn trusted(self) -> bool {
        self.uid == geteuid().as_raw() || self.uid == 0
    }
}

/// How sending ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    Done,
    /// The peer's queue is full.
    Full,
    /// Too many descriptors of this user are on their way; nothing tells when that changes.
    Starved,
}

/// Sends one packet without waiting.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(pushed, "{} descriptors are more than a message takes", fds.len());
    }
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) => Ok(Sent::Done),
        Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(Sent::Full),
        Err(Errno::TOOMANYREFS) => Ok(Sent::Starved),
        Err(errno) => Err(errno),
    }
}

/// A packet. Its descriptors are closed with it unless they are taken.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) message: Message,
    pub(super) fds: Vec<OwnedFd>,
}

impl Packet {
    /// Refuses descriptors that do not belong to the message.
    pub(super) fn expect_fds(&self, expected: usize) -> Result<(), Fault> {
        if self.fds.len() != expected {
            return Err(Fault::Fds { got: self.fds.len() as u32, expected: expected as u32 });
        }
        Ok(())
    }
}

/// Why nothing was received.
#[derive(Debug)]
pub(super) enum NoPacket {
    /// Nothing there yet.
    Empty,
    /// The connection is of no more use.
    Fault(Fault),
    /// This process is at its limit of descriptors.
    FdLimit,
}

/// Receives packets; the buffers are kept from one to the next.
#[derive(Debug)]
pub(super) struct Receiver {
    bytes: Vec<u8>,
    control: Vec<MaybeUninit<u8>>,
    fds_max: usize,
}

impl Receiver {
    /// One that takes up to `fds_max` descriptors in a packet.
    pub(super) fn new(fds_max: usize) -> Self {
        let control = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(fds_max))];
        Self { bytes: vec![0; MESSAGE_BYTES_MAX], control, fds_max }
    }

    /// One for a member, which gets everybody's descriptors.
    pub(super) fn for_parts() -> Self {
        Self::new(FDS_MAX)
    }

    /// The next packet, without waiting.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Packet, NoPacket> {
        match self.receive_once(socket) {
            // Told once, before the packets that came earlier: the peer closed without reading all of ours. Its last
            // word may be waiting.
            Err(NoPacket::Fault(Fault::Broken(Errno::CONNRESET))) => self.receive_once(socket),
            answer => answer,
        }
    }

    fn receive_once(&mut self, socket: BorrowedFd<'_>) -> Result<Packet, NoPacket> {
        let mut control = RecvAncillaryBuffer::new(&mut self.control);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut self.bytes)], &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Err(NoPacket::Empty),
            Err(errno) => return Err(NoPacket::Fault(Fault::Broken(errno))),
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) && fds.len() < self.fds_max {
            return Err(NoPacket::FdLimit);
        }
        if fds.len() > self.fds_max || received.flags.contains(ReturnFlags::CTRUNC) {
            let got = fds.len() as u32;
            return Err(NoPacket::Fault(Fault::Fds { got, expected: self.fds_max as u32 }));
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(NoPacket::Fault(Fault::TooLong));
        }
        // An empty packet looks the same; neither is worth an answer.
        if received.bytes == 0 {
            return Err(NoPacket::Fault(Fault::Closed));
        }
        let message = Message::decode(&self.bytes[..received.bytes]).map_err(|e| NoPacket::Fault(e.into()))?;
        Ok(Packet { message, fds })
    }
}

/// Waits for events, or for `timeout` (`None`: without end). An interrupted wait has no events.
pub(super) fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
    let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
    match poll(fds, timeout.as_ref()) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => {
            fds.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// Waits until `fd` can be read, or for `timeout`.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> Result<(), MeetError> {
    wait(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(timeout))
        .map_err(|errno| MeetError::io("wait for the founder", None, errno))
}
