//! A pipe through shared memory for one writer and one reader in different processes, as fast as
//! two copies on two cores. An application's state travels through it from a member to a joiner.
//!
//! The data is in a ring that only the writer writes. Both ends lend it in place, a piece at a
//! time. So the producer of a byte copies it once, and it is copied once more only if its reader
//! wants it elsewhere. The ends report their progress to each other in words that both may write.
//!
//! Bytes between the two counts belong to the reader: they do not change until the reader's count
//! has passed them, as frames do not change before all members have delivered them (INV-FRAME). The
//! rest of the ring belongs to the writer. So both ends lend plain bytes. A faulty peer can make
//! the other end read garbage, or wait until its patience is over, and nothing else.
use crate::barrier::Barrier;
use crate::region::{OwnRegion, PeerRegion, RegionError, SharedRegion};
use rustix::io::Errno;
use rustix::thread::futex;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of the largest ring, which fits the caches that two cores share.
const RING_BYTES_MAX: u64 = 2 << 20;
/// Bytes of the smallest ring, also a power of two: to create and drop a ring takes longer than to
/// send a small state.
const RING_BYTES_MIN: u64 = 64 << 10;
/// Pieces of a ring. At most one is lent at once, so that both ends have work.
const PIECES: u64 = 8;
/// Bytes of the words of both ends: a line for each word.
const ENDS_BYTES: u64 = 384;
/// Offset of the number of bytes that the writer has written.
const WRITTEN: u64 = 0;
/// Offset of the number of bytes that the reader has read.
const READ: u64 = 64;
/// Offset of the writer's end: not yet, all written, or given up.
const END: u64 = 128;
/// Offset of the word that says that the reader is gone.
const GONE: u64 = 192;
/// Offset of the word that says that the writer sleeps, or is about to: a futex.
const WRITER_SLEEPS: u64 = 256;
/// Offset of the same word of the reader.
const READER_SLEEPS: u64 = 320;
const FINISHED: u64 = 1;
const FAILED: u64 = 2;

/// Looks before sleep. Few, because looking for as long as a piece takes keeps other threads off
/// this core, possibly the other end.
const LOOKS: u32 = 20;
/// A safety net: a sleep that no other end interrupts ends anyway. In tests it does not, as none
/// needs it.
const SLEEP_MAX: Duration = if cfg!(test) { Duration::MAX } else { Duration::from_millis(4) };
/// Between a look and sleep on one side, and a count and the look for sleepers on the other. Its
/// cost is spread over a piece of many bytes.
const BARRIER: Barrier = Barrier::Fence;

/// The writing end. If it is dropped without [`finish`](Self::finish), the reader learns that no
/// more comes.
#[derive(Debug)]
pub struct PipeWriter {
    data: OwnRegion,
    ends: PipeEnds,
    ring_bytes: u64,
    written: u64,
}

/// The reading end. It lends its bytes in place, as [`BufRead`]: no buffer around it makes it
/// faster.
#[derive(Debug)]
pub struct PipeReader {
    data: PeerRegion,
    ends: PipeEnds,
    ring_bytes: u64,
    read: u64,
    /// Bytes from `read` on that are known to be there, up to the end of their piece.
    lent: u64,
}

/// The words by which the ends report to each other.
#[derive(Debug)]
struct PipeEnds {
    words: SharedRegion,
    patience: Duration,
}

/// The result of a look at the other end.
enum PipeLook<T> {
    Done(io::Result<T>),
    /// Not yet. The number decreases when the other end makes progress.
    Wait(u64),
}

impl PipeWriter {
    /// Creates a pipe for about `expected` bytes, if that is known, or any number, and the two
    /// descriptors that its reader needs. A write fails when the reader has read nothing for
    /// `patience`.
    ///
    /// # Errors
    /// As [`OwnRegion::create`].
    pub fn create(expected: Option<u64>, patience: Duration) -> Result<(PipeWriter, [OwnedFd; 2]), RegionError> {
        let ring_bytes =
            expected.map_or(RING_BYTES_MAX, |bytes| bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX).next_power_of_two());
        let (data, data_fd) = OwnRegion::create("spindle-pipe", ring_bytes, 0)?;
        let (words, words_fd) = SharedRegion::create("spindle-pipe-ends", ENDS_BYTES)?;
        Ok((PipeWriter { data, ends: PipeEnds { words, patience }, ring_bytes, written: 0 }, [data_fd, words_fd]))
    }

    /// Lets `from` read straight into the pipe, up to its end. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of `from`, and as [`write`](Write::write).
    pub fn write_from(&mut self, mut from: impl Read) -> io::Result<u64> {
        let before = self.written;
        loop {
            let space = self.space()?;
            let len = space.len();
            match from.read(space) {
                Ok(0) => return Ok(self.written - before),
                Ok(read) if read > len => return Err(io::Error::other("it has read more than it was asked for")),
                Ok(read) => self.publish(read as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Marks the data as complete.
    pub fn finish(self) {
        // A reader that waits for it is woken when this is dropped.
        self.ends.words.word(END).store(FINISHED, Ordering::Release);
    }

    /// Returns the space for the next bytes of this piece. It waits for room for all of them: a
    /// reader that takes a few bytes at a time does not make the writer do the same.
    fn space(&mut self) -> io::Result<&mut [u8]> {
        let (words, written) = (&self.ends.words, self.written);
        let (ring_bytes, piece_bytes) = (self.ring_bytes, self.ring_bytes / PIECES);
        let len = piece_bytes - written % piece_bytes;
        self.ends.wait(WRITER_SLEEPS, "the reader", || {
            if words.word(GONE).load(Ordering::Acquire) != 0 {
                return PipeLook::Done(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the reader is gone")));
            }
            // Acquire: the writer overwrites the bytes that the reader has read from now on. A
            // false count leaves no room.
            let unread = written.wrapping_sub(words.word(READ).load(Ordering::Acquire));
            if unread <= ring_bytes - len { PipeLook::Done(Ok(())) } else { PipeLook::Wait(unread) }
        })?;
        Ok(self.data.bytes_mut(written % ring_bytes, len))
    }

    /// Publishes `len` written bytes of [`space`](Self::space).
    fn publish(&mut self, len: u64) {
        self.written += len;
        // Release: a reader that sees it sees the bytes.
        self.ends.words.word(WRITTEN).store(self.written, Ordering::Release);
        self.ends.wake(READER_SLEEPS);
    }
}

impl PipeReader {
    /// Opens the other end of the pipe with these descriptors. A read fails when the writer has
    /// written nothing for `patience`.
    ///
    /// # Errors
    /// As [`PeerRegion::open`].
    pub fn open(fds: [impl AsFd; 2], patience: Duration) -> Result<PipeReader, RegionError> {
        let [data, words] = fds;
        let os = |errno: Errno| RegionError::Os { call: "fstat", name: "a pipe".to_string(), source: errno.into() };
        let ring_bytes = rustix::fs::fstat(&data).map_err(os)?.st_size as u64;
        if !ring_bytes.is_power_of_two() || !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) {
            return Err(RegionError::Size { expected: RING_BYTES_MAX, got: ring_bytes });
        }
        let data = PeerRegion::open("a pipe", data, ring_bytes)?;
        let words = SharedRegion::open("the ends of a pipe", words, ENDS_BYTES)?;
        Ok(PipeReader { data, ends: PipeEnds { words, patience }, ring_bytes, read: 0, lent: 0 })
    }
}

impl PipeEnds {
    /// Looks until there is an answer, or `who` has made no progress for too long.
    fn wait<T>(&self, sleeps: u64, who: &str, look: impl Fn() -> PipeLook<T>) -> io::Result<T> {
        let mut looks = 0;
        // The smallest remaining number, and the time since when.
        let mut least: Option<(u64, Instant)> = None;
        loop {
            let left = match look() {
                PipeLook::Done(answer) => return answer,
                PipeLook::Wait(left) => left,
            };
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            let since = match least {
                Some((least, since)) if left >= least => since,
                _ => least.insert((left, now)).1,
            };
            let rest = self.patience.saturating_sub(now - since);
            if rest.is_zero() {
                let why = format!("{who} has done nothing for {:?}", self.patience);
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            if let Some(answer) = self.sleep(sleeps, rest.min(SLEEP_MAX), &look) {
                return answer;
            }
        }
    }

    /// Sleeps until the other end [wakes](Self::wake) this one, unless a last look finds an answer.
    fn sleep<T>(&self, sleeps: u64, at_most: Duration, look: &impl Fn() -> PipeLook<T>) -> Option<io::Result<T>> {
        let word = self.words.half_word(sleeps);
        word.store(1, Ordering::Relaxed);
        BARRIER.heavy();
        let answer = match look() {
            PipeLook::Done(answer) => Some(answer),
            PipeLook::Wait(_) => {
                let (tv_sec, tv_nsec) = (at_most.as_secs() as i64, at_most.subsec_nanos().into());
                let timeout = futex::Timespec { tv_sec, tv_nsec };
                // Woken before, timed out, interrupted: it looks again in any case.
                let _ = futex::wait(word, futex::Flags::empty(), 1, Some(&timeout));
                None
            }
        };
        word.store(0, Ordering::Relaxed);
        answer
    }

    /// Wakes the other end if it sleeps. The caller stores the data that the other end waits for
    /// first.
    fn wake(&self, sleeps: u64) {
        BARRIER.light();
        let word = self.words.half_word(sleeps);
        if word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0 {
            let _ = futex::wake(word, futex::Flags::empty(), 1);
        }
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let space = self.space()?;
        let len = bytes.len().min(space.len());
        space[..len].copy_from_slice(&bytes[..len]);
        self.publish(len as u64);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BufRead for PipeReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let (words, read, ring_bytes) = (&self.ends.words, self.read, self.ring_bytes);
        if self.lent == 0 {
            let there = self.ends.wait(READER_SLEEPS, "the writer", || {
                let end = words.word(END).load(Ordering::Acquire);
                // Acquire: pairs with the writer's release. Loaded after the end, after which
                // nothing is written.
                let there = words.word(WRITTEN).load(Ordering::Acquire).wrapping_sub(read);
                match (there, end) {
                    (there, _) if (1..=ring_bytes).contains(&there) => PipeLook::Done(Ok(there)),
                    (0, 0) => PipeLook::Wait(0),
                    (0, FINISHED) => PipeLook::Done(Ok(0)),
                    (0, _) => PipeLook::Done(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the writer gave up"))),
                    _ => {
                        let why = "the writer's count makes no sense";
                        PipeLook::Done(Err(io::Error::new(io::ErrorKind::InvalidData, why)))
                    }
                }
            })?;
            let piece_bytes = ring_bytes / PIECES;
            self.lent = there.min(piece_bytes - read % piece_bytes);
        }
        Ok(self.data.bytes(read % ring_bytes, self.lent))
    }

    /// # Panics
    /// If it is more than was lent.
    fn consume(&mut self, len: usize) {
        let len = len as u64;
        assert!(len <= self.lent, "{len} bytes are consumed of {} that were lent", self.lent);
        if len == 0 {
            return;
        }
        self.lent -= len;
        self.read += len;
        // Release: the writer may overwrite the bytes that were read.
        self.ends.words.word(READ).store(self.read, Ordering::Release);
        // The writer waits for whole pieces.
        if self.read.is_multiple_of(self.ring_bytes / PIECES) {
            self.ends.wake(WRITER_SLEEPS);
        }
    }
}

impl Read for PipeReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let there = self.fill_buf()?;
        let len = bytes.len().min(there.len());
        bytes[..len].copy_from_slice(&there[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let end = self.ends.words.word(END);
        let _ = end.compare_exchange(0, FAILED, Ordering::Release, Ordering::Relaxed);
        self.ends.wake(READER_SLEEPS);
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.ends.words.word(GONE).store(1, Ordering::Release);
        self.ends.wake(WRITER_SLEEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn pipe(patience: Duration) -> (PipeWriter, PipeReader) {
        let (writer, fds) = PipeWriter::create(None, patience).unwrap();
        (writer, PipeReader::open(fds, patience).unwrap())
    }

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_pieces() {
        pass_through(pipe(LONG));
        for (expected, ring_bytes) in
            [(0, RING_BYTES_MIN), (RING_BYTES_MIN + 1, 2 * RING_BYTES_MIN), (u64::MAX, RING_BYTES_MAX)]
        {
            let (writer, fds) = PipeWriter::create(Some(expected), LONG).unwrap();
            let reader = PipeReader::open(fds, LONG).unwrap();
            assert_eq!(reader.ring_bytes, ring_bytes);
            pass_through((writer, reader));
        }
    }

    #[test]
    fn a_ring_of_another_size_is_refused() {
        let (_writer, [_, words]) = PipeWriter::create(None, LONG).unwrap();
        for bytes in [RING_BYTES_MIN / 2, RING_BYTES_MIN + 4096, 2 * RING_BYTES_MAX] {
            let (_data, data) = OwnRegion::create("test", bytes, 0).unwrap();
            let refused = PipeReader::open([data, words.try_clone().unwrap()], LONG);
            assert!(matches!(refused, Err(RegionError::Size { got, .. }) if got == bytes), "{refused:?}");
        }
    }

    fn pass_through((mut writer, mut reader): (PipeWriter, PipeReader)) {
        let bytes: Vec<u8> = (0..3 * RING_BYTES_MAX + 12_345).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
        let expected = bytes.clone();
        let writing = std::thread::spawn(move || {
            let mut rest = &bytes[..];
            for i in 0.. {
                let piece = rest.len().min([1, 7, 8, 1000, 1 << 20][i % 5]);
                writer.write_all(&rest[..piece]).unwrap();
                rest = &rest[piece..];
                if rest.is_empty() {
                    return writer.finish();
                }
            }
        });
        let mut got = vec![];
        for i in 0.. {
            let mut piece = vec![0; [3, 8, 4096, 1 << 19][i % 4]];
            let read = reader.read(&mut piece).unwrap();
            if read == 0 {
                break;
            }
            got.extend_from_slice(&piece[..read]);
        }
        writing.join().unwrap();
        assert!(got == expected);
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0, "the end stays the end");
    }

    /// A source that reads a few bytes at a time, a different number each time, and is interrupted.
    struct Crumbs<'a> {
        rest: &'a [u8],
        calls: usize,
    }

    impl Read for Crumbs<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.calls += 1;
            match self.calls % 4 {
                0 => Err(io::ErrorKind::Interrupted.into()),
                call => {
                    let len = bytes.len().min([0, 1, 4099, usize::MAX][call]);
                    self.rest.read(&mut bytes[..len])
                }
            }
        }
    }

    #[test]
    fn bytes_are_lent_where_they_stand_whatever_the_pieces() {
        let (mut writer, mut reader) = pipe(LONG);
        let bytes: Vec<u8> = (0..5 * RING_BYTES_MAX + 4321).map(|i| ((i * 2_654_435_761) >> 11) as u8).collect();
        let expected = bytes.clone();
        let writing = std::thread::spawn(move || {
            let len = writer.write_from(Crumbs { rest: &bytes, calls: 0 }).unwrap();
            writer.finish();
            len
        });
        let mut got = vec![];
        for i in 0.. {
            let lent = reader.fill_buf().unwrap();
            if lent.is_empty() {
                break;
            }
            assert!(lent.len() as u64 <= RING_BYTES_MAX / PIECES);
            let len = lent.len().min([usize::MAX, 1, 70_001, 8][i % 4]);
            got.extend_from_slice(&lent[..len]);
            reader.consume(len);
            reader.consume(0);
        }
        assert_eq!(writing.join().unwrap(), expected.len() as u64);
        assert!(got == expected);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let ((mut there, mut at_peer), (mut back, mut here)) = (pipe(LONG), pipe(LONG));
        let all = vec![7; 2 * RING_BYTES_MAX as usize];
        let answer = all.clone();
        let peer = std::thread::spawn(move || {
            let mut one = [0];
            while at_peer.read(&mut one).unwrap() == 1 {
                back.write_all(&one).unwrap();
            }
            back.write_all(&answer).unwrap();
        });
        for i in 0..200 {
            there.write_all(&[i]).unwrap();
            let mut one = [0];
            here.read_exact(&mut one).unwrap();
            assert_eq!(one, [i]);
        }
        there.finish();
        let mut got = vec![0; all.len()];
        here.read_exact(&mut got).unwrap();
        assert!(got == all);
        assert_eq!(here.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        peer.join().unwrap();
    }

    #[test]
    fn no_bytes_are_read_and_written_without_a_wait() {
        let (mut writer, mut reader) = pipe(LONG);
        assert_eq!(reader.read(&mut []).unwrap(), 0);
        assert_eq!(writer.write(&[]).unwrap(), 0);
        assert_eq!(writer.write_from(io::empty()).unwrap(), 0);
        writer.write_all(&vec![0; RING_BYTES_MAX as usize]).unwrap();
        assert_eq!(writer.write(&[]).unwrap(), 0, "it needs no room");
        writer.finish();
        assert_eq!(io::copy(&mut reader, &mut io::sink()).unwrap(), RING_BYTES_MAX);
    }

    #[test]
    fn source_errors_follow_the_bytes_it_gave() {
        struct Boaster;
        impl Read for Boaster {
            fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
                Ok(bytes.len() + 1)
            }
        }
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        }
        let (mut writer, mut reader) = pipe(LONG);
        assert_eq!(writer.write_from(Boaster).unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(writer.write_from(b"good".chain(Failing)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        drop(writer);
        let mut got = vec![];
        assert_eq!(reader.read_to_end(&mut got).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(got, b"good");
    }

    #[test]
    #[should_panic(expected = "5 bytes are consumed of 4 that were lent")]
    fn more_than_was_lent_can_not_be_consumed() {
        let (mut writer, mut reader) = pipe(LONG);
        writer.write_all(b"four").unwrap();
        assert_eq!(reader.fill_buf().unwrap(), b"four");
        reader.consume(5);
    }

    #[test]
    fn patience_begins_anew_with_everything_that_is_done() {
        let (writer, _reader) = pipe(Duration::from_millis(2));
        let steps = std::cell::Cell::new(40_u64);
        let step = || match steps.replace(steps.get().saturating_sub(1)) {
            0 => PipeLook::Done(Ok(())),
            left => PipeLook::Wait(left),
        };
        // Each sleep takes the whole patience.
        writer.ends.wait(WRITER_SLEEPS, "the other", step).unwrap();
        let error = writer.ends.wait(WRITER_SLEEPS, "the other", || PipeLook::<()>::Wait(7)).unwrap_err();
        assert_eq!(error.to_string(), "the other has done nothing for 2ms");
    }

    #[test]
    fn a_liar_that_writes_over_what_is_lent_makes_rubbish_and_nothing_else() {
        const ALL: u64 = 20 * RING_BYTES_MAX;
        let (mut writer, mut reader) = pipe(LONG);
        let writing = std::thread::spawn(move || {
            for rubbish in [1, 2].into_iter().cycle() {
                writer.data.bytes_mut(0, RING_BYTES_MAX).fill(rubbish);
                let read = writer.ends.words.word(READ).load(Ordering::Acquire);
                if read == ALL || writer.ends.words.word(GONE).load(Ordering::Acquire) != 0 {
                    return writer.finish();
                }
                writer.written = ALL.min(read + RING_BYTES_MAX);
                writer.publish(0);
            }
        });
        let mut got = vec![];
        assert_eq!(reader.read_to_end(&mut got).unwrap() as u64, ALL);
        assert!(got.iter().all(|byte| [1, 2].contains(byte)));
        writing.join().unwrap();
    }

    #[test]
    fn an_end_that_goes_away_or_does_nothing_is_told() {
        let (writer, mut reader) = pipe(LONG);
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (mut writer, reader) = pipe(LONG);
        drop(reader);
        assert_eq!(writer.write(&[0]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (mut writer, mut reader) = pipe(Duration::from_millis(5));
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let all = vec![0; RING_BYTES_MAX as usize + 1];
        assert_eq!(writer.write_all(&all).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn counts_that_make_no_sense_are_refused() {
        let (writer, mut reader) = pipe(LONG);
        writer.ends.words.word(WRITTEN).store(RING_BYTES_MAX + 1, Ordering::Release);
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (mut writer, reader) = pipe(Duration::from_millis(5));
        reader.ends.words.word(READ).store(17, Ordering::Release);
        assert_eq!(writer.write(&[0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
