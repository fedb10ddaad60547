//! An application's state on its way from a member to a joiner.
//!
//! ```text
//! stream = subgroups (u64) | for each: its place + 1, or 0 (u64) | length + 1, or 0 if unknown (u64) | the application's bytes
//! ```
//!
//! A place says how much of a subgroup's order the state contains.
use spindle_fabric::pipe::{PipeReader, PipeWriter};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long one end waits for the other to do anything.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that are moved at once.
const PIECE_BYTES: usize = 256 << 10;
/// Subgroups that anybody has.
const SUBGROUPS_MAX: u64 = spindle_core::limits::SUBGROUPS_MAX as u64;

/// What an application hands to a joiner: its state as it was when [`Handler::snapshot`](crate::Handler::snapshot) was called.
pub struct Snapshot {
    /// How many bytes it has, if that is known: the joiner can tell how far it is.
    pub len: Option<u64>,
    /// Its bytes, read on a thread of their own while the group goes on.
    pub bytes: Box<dyn Read + Send>,
}

/// The state of the group's application, for a joiner to read.
#[derive(Debug)]
pub struct State {
    pipe: PipeReader,
    /// How many bytes it has, if that is known.
    pub len: Option<u64>,
    /// How many were read.
    pub taken: u64,
    /// By subgroup: how much of its order is in it.
    pub(crate) places: Vec<Option<u64>>,
    /// Whether the pipe failed, and not the application.
    pub(crate) broken: bool,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Writes a state into a pipe on a thread of its own. The ends for the joiner.
pub(crate) fn send_state(state: Option<Snapshot>, places: &[Option<u64>]) -> io::Result<[OwnedFd; 2]> {
    let (mut writer, ends) = PipeWriter::create(PATIENCE).map_err(io::Error::other)?;
    let mut head = vec![places.len() as u64];
    head.extend(places.iter().map(|place| place.map_or(0, |place| place + 1)));
    let (len, bytes) = match state {
        Some(Snapshot { len, bytes }) => (len, bytes),
        None => (Some(0), Box::new(io::empty()) as Box<dyn Read + Send>),
    };
    head.push(len.map_or(0, |len| len + 1));
    let write = move || -> io::Result<()> {
        let head: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        writer.write_all(&head)?;
        let mut bytes = io::BufReader::with_capacity(PIECE_BYTES, bytes);
        io::copy(&mut bytes, &mut writer)?;
        writer.finish();
        Ok(())
    };
    // If it fails, the joiner notices, and asks somebody else.
    std::thread::Builder::new().name("spindle-state".into()).spawn(move || drop(write()))?;
    Ok(ends)
}

impl State {
    /// Opens the pipe and reads what stands before the state.
    pub(crate) fn open(ends: [OwnedFd; 2]) -> io::Result<State> {
        let mut pipe = PipeReader::open(ends, PATIENCE).map_err(io::Error::other)?;
        let mut word = || -> io::Result<u64> {
            let mut bytes = [0; 8];
            pipe.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        let subgroups = word()?;
        if subgroups > SUBGROUPS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a state of more subgroups than there can be"));
        }
        let places = (0..subgroups).map(|_| Ok(word()?.checked_sub(1))).collect::<io::Result<_>>()?;
        let len = word()?.checked_sub(1);
        Ok(State { pipe, len, taken: 0, places, broken: false })
    }
}

impl Read for State {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.pipe.read(bytes);
        self.broken |= read.is_err();
        self.taken += *read.as_ref().unwrap_or(&0) as u64;
        read
    }
}
