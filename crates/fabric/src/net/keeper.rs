//! Connections whose end tells that a process ends, as soon as it does.
//!
//! The kernel closes the sockets of a process that is killed after it has taken its memory back, which takes the longer the more it has. To be exact, it
//! closes a *table* of descriptors when the last thread that uses it ends, and threads end at once; only the last of them all has
//! the memory to give back. So there is a thread, the keeper, with a table of its own, in which there is nothing but a connection to each
//! peer. Hardly anything is said there. If the process ends, these connections do; if the thread happens to be the last one, all the others
//! of the process have ended by then.
//!
//! An end counts as a death only after both sides have said that they watch: who has dialled says [`BEGIN`] when its keeper has the connection,
//! the other answers that when its own has, and is answered [`STILL`]. So who gives up on the way there is not taken for dead. Who lets go of a
//! connection says so before ([`GOODBYE`]). These words are not encrypted, also over TLS: whoever could forge one could cut the connection as well.
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

/// On a connection: from now on its end is that of my process.
const BEGIN: u8 = 1;
/// On a connection: it ends, and my process does not.
const GOODBYE: u8 = 2;
/// On a connection that has begun: it is not idle, whatever proxies between think of one that has nothing to say.
const STILL: u8 = 3;

/// What the keeper is asked for, and what it tells: a byte, and the number of a connection.
const WORD_BYTES: usize = 9;

/// What the keeper is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// To keep the connection that comes with this, and begin.
    Begin = 1,
    /// The same, and to begin when the peer does.
    Answer = 2,
    /// To say goodbye and close it.
    Release = 3,
}

/// What has become of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Both keepers have it, and its end is a word. Nobody else needs it any more.
    Begun = 1,
    /// It is over, and that means nothing.
    Over = 2,
    /// The peer's process has ended, or the way to it is broken.
    Ended = 3,
}

/// The keeper, as its process sees it. Dropped, it says goodbye to all.
#[derive(Debug)]
pub(super) struct Keeper {
    /// To the thread. `None`: that is gone.
    channel: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread, which says on each connection that it is not idle, so often.
    ///
    /// # Errors
    /// What the system refuses: before Linux 5.9, or where it is forbidden, there are no tables of one's own.
    pub(super) fn start(still_every: Duration) -> io::Result<Keeper> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (tell, told) = sync_channel(1);
        let kept = far.as_raw_fd();
        let run = move || {
            shut_out_handlers();
            // SAFETY: this thread owns no descriptor, nor do those whose values it has, and no handler of a signal runs on it. `kept` is open in
            // the table that it has shared until now, because who has started it waits.
            let alone = unsafe { isolate(kept) }.and_then(Line::new);
            // Who has started it waits for that.
            let _ = tell.send(alone.as_ref().map(|_| ()).map_err(|error| io::Error::from(error.kind())));
            if let Ok(line) = alone {
                line.run(still_every);
            }
        };
        let thread = std::thread::Builder::new().name("spindle-life".into()).spawn(run)?;
        let started = told.recv().unwrap_or(Err(io::ErrorKind::Other.into()));
        // This table's own; the thread has one in its table.
        drop(far);
        let keeper = Keeper { channel: Some(near), thread: Some(thread) };
        started.map(|()| keeper)
    }

    /// What becomes readable when there is something to be [told](Self::told).
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// Gives a connection to the keeper, which nobody reads or writes from now on; `dialled`: by this process. The caller keeps it
    /// open until it has [begun](Fate::Begun).
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn keep(&self, number: u64, connection: BorrowedFd<'_>, dialled: bool) -> io::Result<()> {
        let fds = [connection];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let order = if dialled { Order::Begin } else { Order::Answer };
        self.send(order, number, &mut control)
    }

    /// Lets go of a connection.
    pub(super) fn release(&self, number: u64) {
        // If it can't be told so, the peer learns of its end when the process ends, which it is told rightly.
        let _ = self.send(Order::Release, number, &mut SendAncillaryBuffer::default());
    }

    fn send(&self, order: Order, number: u64, control: &mut SendAncillaryBuffer<'_, '_, '_>) -> io::Result<()> {
        let channel = self.channel.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(channel, &[IoSlice::new(&word(order as u8, number))], control, flags)?;
        Ok(())
    }

    /// What has become of a connection; `None`: nothing since.
    pub(super) fn told(&mut self) -> Option<(u64, Fate)> {
        let mut bytes = [0; WORD_BYTES];
        let (got, _) = recv(self.channel.as_ref()?, &mut bytes, RecvFlags::DONTWAIT).ok()?;
        if got == 0 {
            // The thread is gone. Nobody shall wait for it.
            self.channel = None;
        }
        let (what, number) = read_word(bytes.get(..got)?)?;
        let fate = [Fate::Begun, Fate::Over, Fate::Ended].into_iter().find(|fate| *fate as u8 == what)?;
        Some((number, fate))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Its thread sees that, and ends. Closing would not do: a child that was forked may have the channel, too.
        if let Some(channel) = &self.channel {
            let _ = shutdown(channel, Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long packets take over a connection and back, as the system has measured it; 0 if it has not, or this is no TCP connection.
pub(super) fn round_trip(connection: BorrowedFd<'_>) -> Duration {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the system writes at most `len` bytes, which `info` has.
    let result = unsafe {
        libc::getsockopt(connection.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &mut len)
    };
    if result != 0 {
        return Duration::ZERO;
    }
    // SAFETY: it was zeroed, and any bytes are one.
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

/// Gives the calling thread a table of descriptors of its own, in which there is `kept`, and nothing else but null devices in the place of the
/// standard ones: whatever a library writes there must not reach a peer.
///
/// # Safety
/// The thread owns no descriptor, nor does anything that it drops later, and `kept` is open in the table that it shares with others until
/// this returns.
unsafe fn isolate(kept: RawFd) -> io::Result<OwnedFd> {
    let number = kept as libc::c_uint;
    // This one first: what is behind `kept` is not even copied.
    close_range(number + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if number > 0 {
        // The flag does nothing now, because nobody shares the table any more.
        close_range(0, number - 1, libc::CLOSE_RANGE_UNSHARE)?;
    }
    // SAFETY: it is open, and in this table nobody else has it.
    let kept = unsafe { OwnedFd::from_raw_fd(kept) };
    loop {
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if null.as_raw_fd() > libc::STDERR_FILENO {
            return Ok(kept);
        }
        let _for_good = null.into_raw_fd();
    }
}

/// The application's handlers of signals do not run on the calling thread from now on: a descriptor's number means something else here.
fn shut_out_handlers() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: makes a set of signals out of any memory for one.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was made just now, and no answer is wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) };
}

fn close_range(first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: touches no memory; whose descriptors these are is the caller's affair, which has promised that they are nobody's.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The keeper's thread.
#[derive(Debug)]
struct Line {
    channel: OwnedFd,
    epoll: OwnedFd,
    kept: BTreeMap<u64, Kept>,
}

#[derive(Debug)]
struct Kept {
    connection: OwnedFd,
    dialled: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The peer has said nothing.
    New,
    /// It has dialled, and its keeper has the connection; I have answered.
    Answered,
    /// Both know that both have it.
    Begun,
}

/// The number under which the list has the channel; connections have others.
const CHANNEL: u64 = u64::MAX;

impl Line {
    fn new(channel: OwnedFd) -> io::Result<Line> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &channel, EventData::new_u64(CHANNEL), EventFlags::IN)?;
        Ok(Line { channel, epoll, kept: BTreeMap::new() })
    }

    /// Until nobody is there who could ask for anything.
    fn run(mut self, still_every: Duration) {
        let mut said = Instant::now();
        loop {
            if said.elapsed() >= still_every {
                self.kept.values().filter(|kept| kept.stage == Stage::Begun).for_each(|kept| kept.say(STILL));
                said = Instant::now();
            }
            let left = Timespec::try_from(still_every.saturating_sub(said.elapsed())).ok();
            let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_WAIT];
            let numbers: Vec<u64> = match epoll::wait(&self.epoll, &mut room, left.as_ref()) {
                // Copied, because they may stand unaligned.
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

    /// Takes in one order, if there is one. Whether there may be more, ever.
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
        if what == Order::Release as u8 {
            self.let_go(number);
            return true;
        }
        let is_watched = |connection: &OwnedFd| {
            epoll::add(&self.epoll, connection, EventData::new_u64(number), EventFlags::IN).is_ok()
        };
        match connection.filter(is_watched) {
            Some(connection) => {
                let kept = Kept { connection, dialled: what == Order::Begin as u8, stage: Stage::New };
                if kept.dialled {
                    kept.say(BEGIN);
                }
                self.kept.insert(number, kept);
            }
            // There is no room for it. Its owner closes it.
            None => self.tell(number, Fate::Over),
        }
        true
    }

    /// Hears what a peer says, or that it says nothing any more.
    fn hear(&mut self, number: u64) {
        let Some(kept) = self.kept.get_mut(&number) else { return };
        let mut said = [0];
        let fate = match recv(&kept.connection, &mut said, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((1, _)) => match (said[0], kept.stage) {
                (BEGIN, Stage::New) if !kept.dialled => {
                    kept.stage = Stage::Answered;
                    return kept.say(BEGIN);
                }
                (BEGIN, Stage::New) | (STILL, Stage::Answered) => {
                    if kept.dialled {
                        kept.say(STILL);
                    }
                    kept.stage = Stage::Begun;
                    return self.tell(number, Fate::Begun);
                }
                (STILL, Stage::Begun) => return,
                _ => Fate::Over,
            },
            // As the kernel ends what a process has left open, by whether there was something unread. If it is the network that
            // is silent, silence tells.
            Ok((0, _)) | Err(Errno::CONNRESET) if kept.stage == Stage::Begun => Fate::Ended,
            _ => Fate::Over,
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

    fn tell(&self, number: u64, fate: Fate) {
        // Waits while nobody reads, who has it on its list; if there is nobody any more, that shows at once.
        let _ = send(&self.channel, &word(fate as u8, number), SendFlags::NOSIGNAL);
    }
}

impl Kept {
    /// There is room: nothing was ever sent but this.
    fn say(&self, word: u8) {
        let _ = send(&self.connection, &[word], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::PATIENCE;
    use std::fs;
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    /// A connection that is kept, and its other end.
    fn kept(keeper: &Keeper, number: u64, dialled: bool) -> (UnixStream, UnixStream) {
        let (mine, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        keeper.keep(number, mine.as_fd(), dialled).unwrap();
        (mine, theirs)
    }

    fn told(keeper: &mut Keeper) -> (u64, Fate) {
        let start = Instant::now();
        loop {
            if let Some(told) = keeper.told() {
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
    fn who_has_dialled_begins_and_the_other_answers_and_then_an_end_is_a_word() {
        let mut keeper = Keeper::start(PATIENCE).unwrap();
        for (number, dialled) in [(1, true), (2, false)] {
            let (mine, mut theirs) = kept(&keeper, number, dialled);
            if dialled {
                assert_eq!(says(&theirs), BEGIN);
            }
            assert_eq!(keeper.told(), None);
            theirs.write_all(&[BEGIN]).unwrap();
            assert_eq!(says(&theirs), if dialled { STILL } else { BEGIN });
            theirs.write_all(&[STILL; 3]).unwrap();
            assert_eq!(told(&mut keeper), (number, Fate::Begun));
            drop(mine);
            drop(theirs);
            assert_eq!(told(&mut keeper), (number, Fate::Ended));
        }
    }

    #[test]
    fn an_end_before_it_has_begun_means_nothing_nor_does_one_that_is_announced() {
        let mut keeper = Keeper::start(PATIENCE).unwrap();
        // What who has dialled hears, and who was dialled.
        let dialler: [&[u8]; 6] = [&[], &[BEGIN, GOODBYE], &[GOODBYE], &[BEGIN, BEGIN], &[STILL], b"garbage"];
        let dialled: [&[u8]; 6] = [&[], &[BEGIN], &[BEGIN, BEGIN], &[BEGIN, STILL, GOODBYE], &[STILL], &[BEGIN, 7]];
        for (dials, said) in dialler.map(|said| (true, said)).into_iter().chain(dialled.map(|said| (false, said))) {
            let (mine, mut theirs) = kept(&keeper, 5, dials);
            drop(mine);
            theirs.write_all(said).unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            if said.starts_with(if dials { &[BEGIN] } else { &[BEGIN, STILL] }) {
                assert_eq!(told(&mut keeper), (5, Fate::Begun));
            }
            assert_eq!(told(&mut keeper), (5, Fate::Over), "{said:?}");
            let mut heard = vec![];
            // Cut off, if it has said more than was heard.
            let _ = theirs.read_to_end(&mut heard);
            assert_eq!(heard.last(), Some(&GOODBYE));
        }
    }

    #[test]
    fn who_is_let_go_of_is_told_so() {
        let keeper = Keeper::start(PATIENCE).unwrap();
        let (mine, theirs) = kept(&keeper, 1, true);
        let (also_mine, also_theirs) = kept(&keeper, 2, true);
        drop((mine, also_mine));
        keeper.release(1);
        keeper.release(7);
        assert_eq!((says(&theirs), says(&theirs)), (BEGIN, GOODBYE));
        assert!(is_closed(&theirs));
        drop(keeper);
        assert_eq!((says(&also_theirs), says(&also_theirs)), (BEGIN, GOODBYE));
        assert!(is_closed(&also_theirs));
    }

    /// What the threads of this process have open that is `file`, by thread: tables are compared by what they say.
    fn tables_with(file: &str) -> Vec<Vec<String>> {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let table = |task: fs::DirEntry| {
            let fds = fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten();
            fds.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned())).collect()
        };
        let tables = tasks.flatten().map(table);
        tables.filter(|table: &Vec<String>| table.iter().any(|open| open == file)).collect()
    }

    /// What makes that its end does not wait for other threads: no other thread's table has it, and its thread's table has nothing else, which
    /// would have to wait for it.
    #[test]
    fn nobody_but_the_keeper_has_what_is_kept_and_it_has_nothing_else() {
        let mut keeper = Keeper::start(PATIENCE).unwrap();
        let (mine, mut theirs) = kept(&keeper, 1, true);
        let socket = fs::read_link(format!("/proc/self/fd/{}", mine.as_raw_fd())).unwrap();
        let socket = socket.to_string_lossy();
        theirs.write_all(&[BEGIN]).unwrap();
        assert_eq!(told(&mut keeper), (1, Fate::Begun));
        assert!(tables_with(&socket).len() > 1);
        drop(mine);
        // Another test's keeper may be about to throw its copy away.
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
        let mut keeper = Keeper::start(Duration::from_millis(1)).unwrap();
        let (_mine, mut theirs) = kept(&keeper, 1, true);
        let (_also_mine, silent) = kept(&keeper, 2, true);
        theirs.write_all(&[BEGIN]).unwrap();
        assert_eq!(told(&mut keeper), (1, Fate::Begun));
        assert_eq!([(); 4].map(|()| says(&theirs)), [BEGIN, STILL, STILL, STILL]);
        drop(keeper);
        assert_eq!((says(&silent), says(&silent)), (BEGIN, GOODBYE));
    }
}
