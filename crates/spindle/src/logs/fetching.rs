//! Records on their way from another process to a log of this one. A thread of its own reads the
//! stream and appends to the log, a chunk at a time.
use super::{TARGET, position};
use crate::shared::Notices;
use crate::transfer::{CarryReader, PATIENCE, TransferWay};
use spindle_core::control::{NoRecords, RecordStreamEnd};
use spindle_fabric::pipe::PipeReader;
use spindle_log::{Appender, Chunk, Error, StreamEnd, StreamError, StreamPart, StreamReader, Version, WriterHandle};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;
use tracing::warn;

/// The pause before records are appended again for which the disk had no space.
const FULL_RETRY: Duration = Duration::from_millis(50);

/// The counts of one log, over all of its streams.
#[derive(Debug, Default)]
pub(super) struct FetchCounts {
    pub(super) records: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) is_full: AtomicBool,
}

/// The result of a stream.
pub(super) struct Fetched {
    pub(super) end: RecordStreamEnd,
    /// The last record of the log, and its clock.
    pub(super) last: Option<(Version, u64)>,
    /// The first record that came.
    pub(super) first: Option<Version>,
    /// The bytes of the records that came.
    pub(super) bytes: u64,
    /// The appender with which the log continues.
    pub(super) appender: Result<Appender, Error>,
}

/// A stream that is being read.
pub(super) struct Fetch {
    is_cancelled: Arc<AtomicBool>,
    done: Receiver<Fetched>,
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}

/// A log whose end is being removed. A thread of its own waits for the disk.
pub(super) struct Cut {
    done: Receiver<Result<CutLog, Error>>,
}

/// A log after a cut: its last record with the clock, and the appender with which it continues.
pub(super) type CutLog = (Option<(Version, u64)>, Appender);

impl Cut {
    /// Begins to remove the records after this one from the log with this number.
    ///
    /// # Errors
    /// [`Error::Stopped`]: no thread can be started.
    pub(super) fn begin(
        writer: WriterHandle,
        number: u32,
        after: Option<Version>,
        notices: &Arc<Notices>,
    ) -> Result<Cut, Error> {
        let (tell, done) = channel();
        let notices = Arc::clone(notices);
        let thread = thread::Builder::new().name("spindle-catch-up".into());
        let started = thread.spawn(move || {
            let last = writer.cut_after(number, after);
            // The owner may have gone.
            let _ = tell.send(last.and_then(|last| Ok((last, writer.appender(number)?))));
            notices.ring();
        });
        started.map(|_| Cut { done }).map_err(|_| Error::Stopped)
    }

    /// Returns the result, once there is one.
    pub(super) fn result(&self) -> Option<Result<CutLog, Error>> {
        received(&self.done).map(Result::flatten)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Those of the log; [`Error::Stopped`] if the disk hangs.
    pub(super) fn wait(self) -> Result<CutLog, Error> {
        self.done.recv_timeout(2 * PATIENCE).map_err(|_| Error::Stopped)?
    }
}

/// Returns the result of a thread, once there is one; an error if the thread has ended by a panic.
fn received<T>(done: &Receiver<T>) -> Option<Result<T, Error>> {
    match done.try_recv() {
        Ok(result) => Some(Ok(result)),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(Err(Error::Stopped)),
    }
}

/// A stream, and the log to which it goes.
struct FetchThread {
    writer: WriterHandle,
    number: u32,
    last: Option<(Version, u64)>,
    /// Whether the source may leave out older records.
    may_skip: bool,
    counts: Arc<FetchCounts>,
    is_cancelled: Arc<AtomicBool>,
    first: Option<Version>,
    bytes: u64,
}

/// Why a stream ends before its end.
enum FetchError {
    Stream(StreamError),
    Log(Error),
    Cancelled,
}

impl Fetch {
    /// Begins to read a stream, for the log with this number whose last record is `last`. If the source may
    /// leave out older records, the log is emptied, and continues behind what comes first: a log has no
    /// gap.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn begin(
        way: TransferWay,
        (writer, number): (WriterHandle, u32),
        (last, may_skip): (Option<(Version, u64)>, bool),
        counts: &Arc<FetchCounts>,
        notices: &Arc<Notices>,
    ) -> std::io::Result<Fetch> {
        let (tell, done) = channel();
        let (notices, counts, is_cancelled) = (Arc::clone(notices), Arc::clone(counts), Arc::default());
        let (first, bytes) = Default::default();
        let cancelled = Arc::clone(&is_cancelled);
        let fetch = FetchThread { writer, number, last, may_skip, counts, is_cancelled: cancelled, first, bytes };
        thread::Builder::new().name("spindle-catch-up".into()).spawn(move || {
            // The owner may have gone.
            let _ = tell.send(fetch.run(way));
            notices.ring();
        })?;
        Ok(Fetch { is_cancelled, done })
    }

    /// Stops to read, and waits for the thread: as long as a transport may be silent, and the disk takes
    /// for one chunk.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the thread has ended by a panic, or does not end.
    pub(super) fn abandon(self) -> Result<Fetched, Error> {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.done.recv_timeout(2 * PATIENCE).map_err(|_| Error::Stopped)
    }

    /// Returns the result, once there is one; an error if the thread has ended by a panic.
    pub(super) fn result(&self) -> Option<Result<Fetched, Error>> {
        received(&self.done)
    }
}

impl FetchThread {
    fn run(mut self, way: TransferWay) -> Fetched {
        let fetched = match way {
            TransferWay::Pipe(ends) => match PipeReader::open(ends, PATIENCE) {
                Ok(pipe) => self.read(pipe),
                Err(error) => Err(FetchError::Stream(std::io::Error::other(error).into())),
            },
            TransferWay::Stream(connection) => self.read(CarryReader::new(connection, PATIENCE)),
        };
        let mut failure = None;
        let end = match fetched {
            Ok(StreamEnd::Complete) => RecordStreamEnd::Complete,
            Ok(StreamEnd::NotYet) => RecordStreamEnd::NotYet,
            Ok(StreamEnd::Pruned { oldest }) => {
                RecordStreamEnd::Refused(NoRecords::Pruned { oldest: position(oldest) })
            }
            Ok(StreamEnd::Lacks { last }) => RecordStreamEnd::Refused(NoRecords::Lacks { last: last.map(position) }),
            Err(FetchError::Stream(error)) => {
                warn!(target: TARGET, reason = %error, "a stream of records ended early");
                RecordStreamEnd::Broken
            }
            Err(FetchError::Log(error)) => {
                failure = Some(error);
                RecordStreamEnd::Broken
            }
            Err(FetchError::Cancelled) => RecordStreamEnd::Broken,
        };
        let appender = failure.map_or_else(|| self.writer.appender(self.number), Err);
        let FetchThread { last, first, bytes, .. } = self;
        Fetched { end, last, first, bytes, appender }
    }

    fn read(&mut self, from: impl Read) -> Result<StreamEnd, FetchError> {
        let mut reader = StreamReader::new(from, self.last);
        loop {
            match reader.read_part().map_err(FetchError::Stream)? {
                StreamPart::Records(chunk) => self.append(chunk)?,
                StreamPart::End(end) => {
                    // The records are on disk, whatever happens to the transport now.
                    let _ = reader.close();
                    return Ok(end);
                }
            }
        }
    }

    /// Appends records, and waits until they are on disk.
    fn append(&mut self, mut chunk: Chunk) -> Result<(), FetchError> {
        let (first, last) = (chunk.first(), chunk.last_with_clock());
        let (records, bytes) = (u64::from(chunk.records()), chunk.bytes());
        if self.may_skip
            && self.first.is_none()
            && let Some((last, clock)) = chunk.last_with_clock()
        {
            // Its last record is one that the source has: the next request can name it.
            self.writer.reset(self.number, last, clock).map_err(FetchError::Log)?;
            (self.first, self.last) = (Some(last), Some((last, clock)));
            return Ok(());
        }
        loop {
            if self.is_cancelled.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            match self.writer.append(self.number, chunk) {
                (Ok(_), _) => break,
                (Err(error), Some(again)) => {
                    if !self.counts.is_full.swap(true, Ordering::Relaxed) {
                        warn!(target: TARGET, %error, "the disk has no space for the records of other members");
                    }
                    chunk = again;
                    thread::sleep(FULL_RETRY);
                }
                (Err(error), None) => return Err(FetchError::Log(error)),
            }
        }
        self.counts.is_full.store(false, Ordering::Relaxed);
        self.counts.records.fetch_add(records, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        self.first = self.first.or(first);
        self.last = last;
        Ok(())
    }
}
