//! Transfers an application's state from a member to a joiner.
//!
//! ```text
//! stream = subgroups (u64) | for each: its place + 1, or 0 (u64) | length + 1, or 0 if unknown (u64) | the application's bytes
//! ```
//!
//! A place is the number of sequence numbers of a subgroup's order that the state contains.
use super::carry::{CarryReader, CarryWriter};
use spindle_fabric::pipe::{PipeReader, PipeWriter};
use spindle_fabric::region::advise_huge_pages;
use spindle_transport::Connection;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// The tracing target of state transfers.
pub(crate) const TARGET: &str = "spindle::state";

/// How long one end waits for the other to make progress.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for a stream to another host.
pub(crate) const STREAM_WAIT: Duration = Duration::from_secs(7);
/// The most subgroups that a group can have.
const SUBGROUPS_MAX: u64 = spindle_core::limits::SUBGROUPS_MAX as u64;

/// The state that an application sends to a joiner, as it was when
/// [`Handler::snapshot`](crate::Handler::snapshot) was called.
pub struct Snapshot {
    /// The number of bytes, if it is known. The joiner can then report its progress.
    pub len: Option<u64>,
    /// The bytes, read on a thread of their own while the group continues. They are read in large
    /// pieces, directly to the memory in which the joiner finds them, so a buffer around the reader
    /// does not help.
    pub bytes: Box<dyn Read + Send>,
}

/// The state of the group's application, for a joiner to read.
///
/// As [`BufRead`] it lends the bytes in place, in pieces, so parsing needs no copy. To keep the
/// bytes unchanged, [`read_to_end`](Read::read_to_end) is the fastest way: it reserves memory for
/// all of them at once, if [`len`](Self::len) is known, and asks for huge pages.
pub struct State {
    bytes: Box<dyn BufRead + Send>,
    /// The number of bytes, if it is known.
    pub len: Option<u64>,
    /// The number of bytes that were read.
    pub taken: u64,
    /// By subgroup: how much of its order the state contains.
    pub(crate) sequences: Vec<Option<u64>>,
    /// Whether the pipe failed, and not the application.
    pub(crate) broken: bool,
}

/// The transport of a state: a pipe in shared memory, or a stream from another host.
#[derive(Debug)]
pub(crate) enum TransferWay {
    Pipe([OwnedFd; 2]),
    Stream(Connection),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("len", &self.len).field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Writes a state into a pipe; `tell` receives the joiner's ends. Returns when all of it is
/// written, or the joiner has ended. It runs on a thread of its own.
///
/// # Errors
/// Why there is no pipe, or why it broke off. In the latter case the joiner notices and asks
/// another member.
pub(crate) fn send_state(
    state: Option<Snapshot>,
    sequences: &[Option<u64>],
    tell: impl FnOnce([OwnedFd; 2]),
) -> io::Result<()> {
    let (head, Snapshot { len, bytes }) = headed(state, sequences);
    let expected = len.map(|len| len.saturating_add(head.len() as u64));
    told("a pipe", len, || {
        let (mut writer, ends) = PipeWriter::create(expected, PATIENCE).map_err(io::Error::other)?;
        tell(ends);
        writer.write_all(&head)?;
        writer.write_from(bytes)?;
        writer.finish();
        Ok(())
    })
}

/// Writes a state into a stream, to a joiner on another host.
///
/// # Errors
/// Why it broke off.
pub(crate) fn send_state_afar(
    state: Option<Snapshot>,
    sequences: &[Option<u64>],
    connection: Connection,
) -> io::Result<()> {
    let (head, Snapshot { len, bytes }) = headed(state, sequences);
    told("a stream", len, || {
        let mut writer = CarryWriter::new(connection, PATIENCE);
        writer.write_all(&head)?;
        writer.write_from(bytes)?;
        writer.finish()
    })
}

/// Sends a state of `len` bytes `through` a transport, and reports the result.
fn told(through: &'static str, len: Option<u64>, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let start = Instant::now();
    debug!(target: TARGET, through, bytes = len, "state is being sent");
    let sent = send();
    let send_ms = start.elapsed().as_secs_f64() * 1000.0;
    match &sent {
        Ok(()) => info!(target: TARGET, through, bytes = len, send_ms, "state sent"),
        Err(error) => warn!(target: TARGET, through, bytes = len, send_ms, reason = %error, "state not sent"),
    }
    sent
}

/// Returns the bytes before the application's bytes, and the source of these.
fn headed(state: Option<Snapshot>, sequences: &[Option<u64>]) -> (Vec<u8>, Snapshot) {
    let snapshot = state.unwrap_or(Snapshot { len: Some(0), bytes: Box::new(io::empty()) });
    let mut head = vec![sequences.len() as u64];
    head.extend(sequences.iter().map(|place| place.map_or(0, |place| place + 1)));
    head.push(snapshot.len.map_or(0, |len| len + 1));
    (head.iter().flat_map(|word| word.to_le_bytes()).collect(), snapshot)
}

impl State {
    /// Reads the header of a state on a thread of its own, because it may be long in coming.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn open_apart(way: TransferWay) -> io::Result<Receiver<io::Result<State>>> {
        let (tell, told) = channel();
        // The caller may have stopped waiting.
        let open = move || drop(tell.send(State::open(way)));
        thread::Builder::new().name("spindle-state".into()).spawn(open)?;
        Ok(told)
    }

    /// Reads the header of a state.
    pub(crate) fn open(way: TransferWay) -> io::Result<State> {
        let mut bytes: Box<dyn BufRead + Send> = match way {
            TransferWay::Pipe(ends) => Box::new(PipeReader::open(ends, PATIENCE).map_err(io::Error::other)?),
            TransferWay::Stream(connection) => Box::new(CarryReader::new(connection, PATIENCE)),
        };
        let mut word = || -> io::Result<u64> {
            let mut word = [0; 8];
            bytes.read_exact(&mut word)?;
            Ok(u64::from_le_bytes(word))
        };
        let subgroups = word()?;
        if subgroups > SUBGROUPS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a state of more subgroups than there can be"));
        }
        let sequences = (0..subgroups).map(|_| Ok(word()?.checked_sub(1))).collect::<io::Result<_>>()?;
        let len = word()?.checked_sub(1);
        debug!(target: TARGET, bytes = len, subgroups, "state transfer begins");
        Ok(State { bytes, len, taken: 0, sequences, broken: false })
    }
}

impl Read for State {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(bytes);
        self.broken |= read.is_err();
        self.taken += *read.as_ref().unwrap_or(&0) as u64;
        read
    }

    fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let before = bytes.len();
        let left = self.len.map_or(0, |len| len.saturating_sub(self.taken));
        let left = usize::try_from(left).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if bytes.capacity() - before < left {
            bytes.try_reserve_exact(left)?;
            advise_huge_pages(bytes.spare_capacity_mut());
        }
        loop {
            let piece = self.fill_buf()?;
            if piece.is_empty() {
                return Ok(bytes.len() - before);
            }
            bytes.try_reserve(piece.len())?;
            bytes.extend_from_slice(piece);
            let len = piece.len();
            self.consume(len);
        }
    }
}

impl BufRead for State {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let State { bytes, broken, .. } = self;
        bytes.fill_buf().inspect_err(|_| *broken = true)
    }

    fn consume(&mut self, len: usize) {
        self.bytes.consume(len);
        self.taken += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_transport::{SocketOptions, SocketStream};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::TryRecvError;

    fn sent(len: Option<u64>, bytes: Vec<u8>) -> State {
        open(Snapshot { len, bytes: Box::new(io::Cursor::new(bytes)) }, vec![Some(7), None])
    }

    /// Returns the reading end of a pipe that a thread writes.
    fn open(state: Snapshot, sequences: Vec<Option<u64>>) -> State {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || send_state(Some(state), &sequences, |ends| tell.send(ends).unwrap()));
        State::open(TransferWay::Pipe(told.recv().unwrap())).unwrap()
    }

    #[test]
    fn a_state_comes_to_its_end_whatever_length_was_told() {
        let bytes: Vec<u8> = (0..9_000_001u64).map(|i| ((i * 2_654_435_761) >> 15) as u8).collect();
        let whole = bytes.len() as u64;
        for len in [Some(whole), None, Some(0), Some(whole - 1), Some(2 * whole)] {
            let mut state = sent(len, bytes.clone());
            assert_eq!((state.len, &state.sequences), (len, &vec![Some(7), None]));
            let mut got = b"before".to_vec();
            assert_eq!(state.read_to_end(&mut got).unwrap() as u64, whole);
            assert!(got[..6] == *b"before" && got[6..] == bytes);
            assert_eq!((state.taken, state.broken), (whole, false));
        }
    }

    /// If the following thread waited, it would miss messages meanwhile.
    #[test]
    fn no_member_waits_for_a_state_transfer_to_begin() {
        let sockets: [UnixStream; 2] = UnixStream::pair().unwrap().into();
        let [near, far] = sockets.map(|socket| Box::new(SocketStream::new(socket, &SocketOptions::default()).unwrap()));
        let opening = State::open_apart(TransferWay::Stream(far)).unwrap();
        assert!(matches!(opening.try_recv(), Err(TryRecvError::Empty)));
        let bytes = Box::new(io::Cursor::new(b"late".to_vec()));
        std::thread::spawn(|| send_state_afar(Some(Snapshot { len: None, bytes }), &[Some(7)], near));
        let mut state = opening.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
        let mut got = vec![];
        state.read_to_end(&mut got).unwrap();
        assert_eq!((got.as_slice(), state.sequences), (&b"late"[..], vec![Some(7)]));
    }

    #[test]
    fn a_state_is_read_and_lent_in_turns() {
        let mut state = sent(Some(11), b"hello world".to_vec());
        let mut first = [0; 2];
        state.read_exact(&mut first).unwrap();
        assert_eq!((&first, state.fill_buf().unwrap()), (b"he", &b"llo world"[..]));
        state.consume(4);
        assert_eq!(state.taken, 6);
        let mut rest = vec![];
        state.read_to_end(&mut rest).unwrap();
        assert_eq!((rest.as_slice(), state.taken), (&b"world"[..], 11));
    }

    #[test]
    fn more_than_there_is_memory_for_is_an_error() {
        let mut state = sent(Some(u64::MAX - 1), b"short".to_vec());
        assert_eq!(state.read_to_end(&mut vec![]).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(!state.broken, "it is not the pipe's fault");
    }

    #[test]
    fn a_pipe_that_breaks_is_told_from_an_application_that_fails() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no more"))
            }
        }
        let bytes = Box::new(b"half".chain(Failing));
        let mut state = open(Snapshot { len: Some(8), bytes }, vec![]);
        assert_eq!(state.read_to_end(&mut vec![]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!((state.taken, state.broken), (4, true));
    }
}
