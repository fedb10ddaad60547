//! Liveness connections, whose end shows at once that a process has ended.
//!
//! The kernel closes the sockets of a killed process after it has taken back its memory, which
//! takes longer the more memory it has. More precisely, the kernel closes a *table* of descriptors
//! when the last thread that uses it ends. The threads end at once, and only the last of all has to
//! give back the memory. So a separate thread, the liveness thread, has its own table, which
//! contains only a connection to each peer. Hardly anything is sent there. If the process ends,
//! these connections end. If the liveness thread is the last one, all other threads of the process
//! have ended by then.
//!
//! An end counts as a death only after both sides have said that they watch. The dialling side
//! sends [`BEGIN`] when its liveness thread has the connection. The other side replies with
//! [`BEGIN`] when its own has it, and is answered with [`STILL`]. So a side that gives up before
//! that is not taken for dead. A side that releases a connection first sends [`GOODBYE`]. These
//! words are not encrypted, also over TLS: an attacker that could forge one could also cut the
//! connection.
use super::limits::EVENTS_PER_WAIT;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::{Mode, OFlags, Timespec, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, shutdown, socketpair,
};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Sent on a connection: from now on, its end is the end of my process.
const BEGIN: u8 = 1;
/// Sent on a connection: it ends, and my process does not.
const GOODBYE: u8 = 2;
/// Sent on a connection that has begun, so that proxies on the path do not treat it as idle.
const STILL: u8 = 3;

/// The size of an order or a report of the liveness thread: a byte, and the number of a connection.
const WORD_BYTES: usize = 9;

/// An order for the liveness thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LivenessOrder {
    /// Keep the connection that comes with this, and begin.
    Begin = 1,
    /// The same, but begin when the peer does.
    Answer = 2,
    /// Say goodbye and close it.
    Release = 3,
}

/// The outcome of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LivenessOutcome {
    /// Both liveness threads have it, and its end has a meaning. No other thread needs it any more.
    Begun = 1,
    /// It is over, and its end means nothing.
    Over = 2,
    /// The peer's process has ended, or the way to it is broken.
    Ended = 3,
}

/// The liveness thread, as its process sees it. When it is dropped, it says goodbye on all
/// connections.
#[derive(Debug)]
pub(super) struct LivenessConnections {
    /// The channel to the thread. `None`: the thread is gone.
    channel: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl LivenessConnections {
    /// Starts the thread, which says on each connection that it is not idle, once in each such
    /// period.
    ///
    /// # Errors
    /// Returns the system's error. A thread can't have its own table before Linux 5.9, or where that
    /// is forbidden.
    pub(super) fn start(still_every: Duration) -> io::Result<LivenessConnections> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (tell, told) = sync_channel(1);
        let kept = far.as_raw_fd();
        let run = move || {
            shut_out_handlers();
            // SAFETY: this thread owns no descriptor, nor do those whose values it has, and no
            // signal handler runs on it. `kept` is open in the table that it has shared until now,
            // because the thread that started it waits.
            let alone = unsafe { isolate(kept) }.and_then(Watcher::new);
            // The thread that started it waits for that.
            let _ = tell.send(alone.as_ref().map(|_| ()).map_err(|error| io::Error::from(error.kind())));
            if let Ok(line) = alone {
                line.run(still_every);
            }
        };
        let thread = std::thread::Builder::new().name("spindle-life".into()).spawn(run)?;
        let started = told.recv().unwrap_or(Err(io::ErrorKind::Other.into()));
        // The copy in this table; the thread has one in its own table.
        drop(far);
        let liveness = LivenessConnections { channel: Some(near), thread: Some(thread) };
        started.map(|()| liveness)
    }

    /// Returns the descriptor that becomes readable when there is something to be
    /// [told](Self::told).
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// Gives a connection to the liveness thread, after which no other thread may read or write it.
    /// `dialled`: by this process. The caller keeps it open until it has [begun](Fate::Begun).
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn keep(&self, number: u64, connection: BorrowedFd<'_>, dialled: bool) -> io::Result<()> {
        let fds = [connection];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let order = if dialled { LivenessOrder::Begin } else { LivenessOrder::Answer };
        self.send(order, number, &mut control)
    }

    /// Releases a connection.
    pub(super) fn release(&self, number: u64) {
        // If the order can't be sent, the peer learns of the connection's end when the process
        // ends, which is then correct.
        let _ = self.send(LivenessOrder::Release, number, &mut SendAncillaryBuffer::default());
    }

    fn send(&self, order: LivenessOrder, number: u64, control: &mut SendAncillaryBuffer<'_, '_, '_>) -> io::Result<()> {
        let channel = self.channel.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(channel, &[IoSlice::new(&word(order as u8, number))], control, flags)?;
        Ok(())
    }

    /// Returns the outcome of a connection; `None`: there is none.
    pub(super) fn told(&mut self) -> Option<(u64, LivenessOutcome)> {
        let mut bytes = [0; WORD_BYTES];
        let (got, _) = recv(self.channel.as_ref()?, &mut bytes, RecvFlags::DONTWAIT).ok()?;
        if got == 0 {
            // The thread is gone. No caller may wait for it.
            self.channel = None;
        }
        let (what, number) = read_word(bytes.get(..got)?)?;
        let fate = [LivenessOutcome::Begun, LivenessOutcome::Over, LivenessOutcome::Ended]
            .into_iter()
            .find(|fate| *fate as u8 == what)?;
        Some((number, fate))
    }
}

impl Drop for LivenessConnections {
    fn drop(&mut self) {
        // The thread sees that and ends. Closing would not suffice: a forked child may have the
        // channel, too.
        if let Some(channel) = &self.channel {
            let _ = shutdown(channel, Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the time that packets take over a connection and back, as the system has measured it. 0
/// if the system has not measured it, or if this is no TCP connection.
pub(super) fn round_trip(connection: BorrowedFd<'_>) -> Duration {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the system writes at most `len`
    // bytes, which `info` has.
    let result = unsafe {
        libc::getsockopt(connection.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &mut len)
    };
    if result != 0 {
        return Duration::ZERO;
    }
    // SAFETY: it was zeroed, and any bytes are a valid value.
    let info = unsafe { info.assume_init() };
    Duration::from_micros(info.tcpi_rtt.into())
}

fn word(what: u8, number: u64) -> [u8; WORD_BYTES] {
    let mut word = [what; WORD_BYTES];
    word[1..].copy_from_slice(&number.to_le_bytes());
    word
}

fn read_word(bytes: &[u8]) -> Option<(u8, u64)> {
    let (what, number) = bytes.split_first()?;
    Some((*what, u64::from_le_bytes(number.try_into().ok()?)))
}

/// Gives the calling thread its own table of descriptors, which contains only `kept`, and null
/// devices as the standard descriptors: bytes that a library writes there must not reach a peer.
///
/// # Safety
/// The thread owns no descriptor, nor does any value that it drops later, and `kept` is open in the
/// table that it shares with others until this returns.
unsafe fn isolate(kept: RawFd) -> io::Result<OwnedFd> {
    let number = kept as libc::c_uint;
    // This range first: the descriptors above `kept` are not even copied.
    close_range(number + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if number > 0 {
        // The flag does nothing now, because no other thread shares the table any more.
        close_range(0, number - 1, libc::CLOSE_RANGE_UNSHARE)?;
    }
    // SAFETY: it is open, and it has no other owner in this table.
    let kept = unsafe { OwnedFd::from_raw_fd(kept) };
    loop {
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if null.as_raw_fd() > libc::STDERR_FILENO {
            return Ok(kept);
        }
        let _for_good = null.into_raw_fd();
    }
}

/// Stops the application's signal handlers from running on the calling thread: a descriptor's
/// number means something else here.
fn shut_out_handlers() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: turns any memory of the right size into a set of signals.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was made just now, and no answer is wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) };
}

fn close_range(first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: touches no memory. The caller has promised that these descriptors have no owner.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The state of the liveness thread itself.
#[derive(Debug)]
struct Watcher {
    channel: OwnedFd,
    epoll: OwnedFd,
    kept: BTreeMap<u64, WatchedPeer>,
}

#[derive(Debug)]
struct WatchedPeer {
    connection: OwnedFd,
    dialled: bool,
    stage: LivenessStage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LivenessStage {
    /// The peer has said nothing.
    New,
    /// The peer has dialled, its liveness thread has the connection, and I have answered.
    Answered,
    /// Both sides know that both have it.
    Begun,
}

/// The number of the channel in the poller's list; connections have others.
const CHANNEL: u64 = u64::MAX;

impl Watcher {
    fn new(channel: OwnedFd) -> io::Result<Watcher> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &channel, EventData::new_u64(CHANNEL), EventFlags::IN)?;
        Ok(Watcher { channel, epoll, kept: BTreeMap::new() })
    }

    /// Runs until no process is left that could send orders.
    fn run(mut self, still_every: Duration) {
        let mut said = Instant::now();
        loop {
            if said.elapsed() >= still_every {
                self.kept.values().filter(|kept| kept.stage == LivenessStage::Begun).for_each(|kept| kept.say(STILL));
                said = Instant::now();
            }
            let left = Timespec::try_from(still_every.saturating_sub(said.elapsed())).ok();
            let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_WAIT];
            let numbers: Vec<u64> = match epoll::wait(&self.epoll, &mut room, left.as_ref()) {
                // Copied, because they may be unaligned.
                Ok((events, _)) => events.iter().map(|&Event { data, .. }| data.u64()).collect(),
                Err(_) => continue,
            };
            for number in numbers {
                if number != CHANNEL {
                    self.hear(number);
                } else if !self.obey() {
                    self.kept.values().for_each(|kept| kept.say(GOODBYE));
                    return;
                }
            }
        }
    }

    /// Carries out one order, if there is one. Returns whether any more can ever come.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; WORD_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(&self.channel, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => received.bytes,
            Err(errno) => return matches!(errno, Errno::AGAIN | Errno::INTR),
        };
        let connection = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let Some((what, number)) = bytes.get(..got).and_then(read_word) else { return false };
        if what == LivenessOrder::Release as u8 {
            self.let_go(number);
            return true;
        }
        let is_watched = |connection: &OwnedFd| {
            epoll::add(&self.epoll, connection, EventData::new_u64(number), EventFlags::IN).is_ok()
        };
        match connection.filter(is_watched) {
            Some(connection) => {
                let kept =
                    WatchedPeer { connection, dialled: what == LivenessOrder::Begin as u8, stage: LivenessStage::New };
                if kept.dialled {
                    kept.say(BEGIN);
                }
                self.kept.insert(number, kept);
            }
            // There is no room for it. Its owner closes it.
            None => self.tell(number, LivenessOutcome::Over),
        }
        true
    }

    /// Reads what a peer says, or finds that the connection has ended.
    fn hear(&mut self, number: u64) {
        let Some(kept) = self.kept.get_mut(&number) else { return };
        let mut said = [0];
        let fate = match recv(&kept.connection, &mut said, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((1, _)) => match (said[0], kept.stage) {
                (BEGIN, LivenessStage::New) if !kept.dialled => {
                    kept.stage = LivenessStage::Answered;
                    return kept.say(BEGIN);
                }
                (BEGIN, LivenessStage::New) | (STILL, LivenessStage::Answered) => {
                    if kept.dialled {
                        kept.say(STILL);
                    }
                    kept.stage = LivenessStage::Begun;
                    return self.tell(number, LivenessOutcome::Begun);
                }
                (STILL, LivenessStage::Begun) => return,
                _ => LivenessOutcome::Over,
            },
            // The kernel ends what a process has left open in one of these two ways, depending on
            // whether bytes were unread. If the network falls silent, silence detection handles it.
            Ok((0, _)) | Err(Errno::CONNRESET) if kept.stage == LivenessStage::Begun => LivenessOutcome::Ended,
            _ => LivenessOutcome::Over,
        };
        self.let_go(number);
        self.tell(number, fate);
    }

    /// Says goodbye on a connection and closes it.
    fn let_go(&mut self, number: u64) {
        if let Some(kept) = self.kept.remove(&number) {
            kept.say(GOODBYE);
            // It would stay on the list as long as another table has it.
            let _ = epoll::delete(&self.epoll, &kept.connection);
        }
    }

    fn tell(&self, number: u64, fate: LivenessOutcome) {
        // Waits while the owner does not read; the owner has the channel on its list. If no owner
        // is left, that shows at once.
        let _ = send(&self.channel, &word(fate as u8, number), SendFlags::NOSIGNAL);
    }
}

impl WatchedPeer {
    /// There is room, because nothing else is ever sent.
    fn say(&self, word: u8) {
        let _ = send(&self.connection, &[word], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::PATIENCE;
    use std::fs;
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    /// Creates a connection that is kept, and its other end.
    fn kept(liveness: &LivenessConnections, number: u64, dialled: bool) -> (UnixStream, UnixStream) {
        let (mine, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        liveness.keep(number, mine.as_fd(), dialled).unwrap();
        (mine, theirs)
    }

    fn told(liveness: &mut LivenessConnections) -> (u64, LivenessOutcome) {
        let start = Instant::now();
        loop {
            if let Some(told) = liveness.told() {
                return told;
            }
            assert!(start.elapsed() < PATIENCE, "nothing was told");
            std::thread::yield_now();
        }
    }

    fn says(mut theirs: &UnixStream) -> u8 {
        let mut said = [0];
        theirs.read_exact(&mut said).unwrap();
        said[0]
    }

    fn is_closed(mut theirs: &UnixStream) -> bool {
        theirs.read(&mut [0]).unwrap() == 0
    }

    #[test]
    fn the_dialler_begins_the_other_answers_and_then_an_end_is_final() {
        let mut liveness = LivenessConnections::start(PATIENCE).unwrap();
        for (number, dialled) in [(1, true), (2, false)] {
            let (mine, mut theirs) = kept(&liveness, number, dialled);
            if dialled {
                assert_eq!(says(&theirs), BEGIN);
            }
            assert_eq!(liveness.told(), None);
            theirs.write_all(&[BEGIN]).unwrap();
            assert_eq!(says(&theirs), if dialled { STILL } else { BEGIN });
            theirs.write_all(&[STILL; 3]).unwrap();
            assert_eq!(told(&mut liveness), (number, LivenessOutcome::Begun));
            drop(mine);
            drop(theirs);
            assert_eq!(told(&mut liveness), (number, LivenessOutcome::Ended));
        }
    }

    #[test]
    fn an_end_before_it_has_begun_means_nothing_nor_does_one_that_is_announced() {
        let mut liveness = LivenessConnections::start(PATIENCE).unwrap();
        // The bytes that the dialling side receives, and those that the dialled side receives.
        let dialler: [&[u8]; 6] = [&[], &[BEGIN, GOODBYE], &[GOODBYE], &[BEGIN, BEGIN], &[STILL], b"garbage"];
        let dialled: [&[u8]; 6] = [&[], &[BEGIN], &[BEGIN, BEGIN], &[BEGIN, STILL, GOODBYE], &[STILL], &[BEGIN, 7]];
        for (dials, said) in dialler.map(|said| (true, said)).into_iter().chain(dialled.map(|said| (false, said))) {
            let (mine, mut theirs) = kept(&liveness, 5, dials);
            drop(mine);
            theirs.write_all(said).unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            if said.starts_with(if dials { &[BEGIN] } else { &[BEGIN, STILL] }) {
                assert_eq!(told(&mut liveness), (5, LivenessOutcome::Begun));
            }
            assert_eq!(told(&mut liveness), (5, LivenessOutcome::Over), "{said:?}");
            let mut heard = vec![];
            // The connection is reset if the test sent more than was read.
            let _ = theirs.read_to_end(&mut heard);
            assert_eq!(heard.last(), Some(&GOODBYE));
        }
    }

    #[test]
    fn a_released_member_is_told_so() {
        let liveness = LivenessConnections::start(PATIENCE).unwrap();
        let (mine, theirs) = kept(&liveness, 1, true);
        let (also_mine, also_theirs) = kept(&liveness, 2, true);
        drop((mine, also_mine));
        liveness.release(1);
        liveness.release(7);
        assert_eq!((says(&theirs), says(&theirs)), (BEGIN, GOODBYE));
        assert!(is_closed(&theirs));
        drop(liveness);
        assert_eq!((says(&also_theirs), says(&also_theirs)), (BEGIN, GOODBYE));
        assert!(is_closed(&also_theirs));
    }

    /// Returns the open files of this process's threads that are `file`, by thread. Tables are
    /// compared by their contents.
    fn tables_with(file: &str) -> Vec<Vec<String>> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let table = |task: fs::DirEntry| {
            let fds = fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten();
            fds.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned())).collect()
        };
        let tables = tasks.flatten().map(table);
        tables.filter(|table: &Vec<String>| table.iter().any(|open| open == file)).collect()
    }

    /// The end of a kept connection waits for no other thread, because no other thread's table has
    /// it. Its thread's table has nothing else, which would have to wait for that thread.
    #[test]
    fn only_the_keeper_holds_the_kept_memory_and_no_other() {
        let mut liveness = LivenessConnections::start(PATIENCE).unwrap();
        let (mine, mut theirs) = kept(&liveness, 1, true);
        let socket = fs::read_link(format!("/proc/self/fd/{}", mine.as_raw_fd())).unwrap();
        let socket = socket.to_string_lossy();
        theirs.write_all(&[BEGIN]).unwrap();
        assert_eq!(told(&mut liveness), (1, LivenessOutcome::Begun));
        assert!(tables_with(&socket).len() > 1);
        drop(mine);
        // Another test's liveness thread may be about to discard its copy.
        let start = Instant::now();
        let mut tables = tables_with(&socket);
        while tables.len() != 1 {
            assert!(start.elapsed() < PATIENCE && !tables.is_empty(), "{tables:?}");
            tables = tables_with(&socket);
        }
        let mut table = tables.remove(0);
        table.retain(|open| *open != "/dev/null" && !open.contains("eventpoll") && **open != *socket);
        assert_eq!(table.len(), 1, "only the channel is left: {table:?}");
        assert!(table[0].starts_with("socket:"));
    }

    #[test]
    fn a_connection_that_has_begun_is_not_idle_for_long() {
        let mut liveness = LivenessConnections::start(Duration::from_millis(1)).unwrap();
        let (_mine, mut theirs) = kept(&liveness, 1, true);
        let (_also_mine, silent) = kept(&liveness, 2, true);
        theirs.write_all(&[BEGIN]).unwrap();
        assert_eq!(told(&mut liveness), (1, LivenessOutcome::Begun));
        assert_eq!([(); 4].map(|()| says(&theirs)), [BEGIN, STILL, STILL, STILL]);
        drop(liveness);
        assert_eq!((says(&silent), says(&silent)), (BEGIN, GOODBYE));
    }
}
