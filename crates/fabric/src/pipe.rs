//! A pipe through shared memory for one writer and one reader in different processes, as fast as two copies on two cores: an
//! application's state goes from a member to a joiner through it.
//!
//! Data stand in a ring that the writer alone writes; both ends tell each other how far they are in words that both may write. All of
//! it is atomic words. A peer that lies can make the other read rubbish, or wait until its patience is over, and nothing else.
use crate::region::{OwnRegion, PeerRegion, RegionError, SharedRegion};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes on the way, at most: what fits the caches that two cores share.
const DATA_BYTES: u64 = 4 << 20;
/// Bytes of the ends: a line for each word.
const ENDS_BYTES: u64 = 256;
/// How many bytes the writer has written.
const WRITTEN: u64 = 0;
/// How many the reader has read.
const READ: u64 = 64;
/// How the writer has ended: not yet, all written, or given up.
const END: u64 = 128;
/// Whether the reader is gone.
const GONE: u64 = 192;
const FINISHED: u64 = 1;
const FAILED: u64 = 2;

/// Looks before the first pause.
const LOOKS: u32 = 200;
/// The pause while the other end is busy.
const PAUSE: Duration = Duration::from_micros(50);

/// The writing end. Dropped without [`finish`](Self::finish), it tells the reader that there is no more to come.
#[derive(Debug)]
pub struct PipeWriter {
    data: OwnRegion,
    ends: SharedRegion,
    written: u64,
    patience: Duration,
}

/// The reading end.
#[derive(Debug)]
pub struct PipeReader {
    data: PeerRegion,
    ends: SharedRegion,
    read: u64,
    patience: Duration,
}

impl PipeWriter {
    /// A pipe, with the two descriptors that its reader needs. A write fails when the reader has read nothing for `patience`.
    ///
    /// # Errors
    /// As [`OwnRegion::create`].
    pub fn create(patience: Duration) -> Result<(PipeWriter, [OwnedFd; 2]), RegionError> {
        let (data, data_fd) = OwnRegion::create("spindle-pipe", DATA_BYTES, DATA_BYTES)?;
        let (ends, ends_fd) = SharedRegion::create("spindle-pipe-ends", ENDS_BYTES)?;
        Ok((PipeWriter { data, ends, written: 0, patience }, [data_fd, ends_fd]))
    }

    /// Everything is written.
    pub fn finish(self) {
        self.ends.word(END).store(FINISHED, Ordering::Release);
    }
}

impl PipeReader {
    /// The other end of the pipe with these descriptors. A read fails when the writer has written nothing for `patience`.
    ///
    /// # Errors
    /// As [`PeerRegion::open`].
    pub fn open(fds: [impl AsFd; 2], patience: Duration) -> Result<PipeReader, RegionError> {
        let [data, ends] = fds;
        let data = PeerRegion::open("a pipe", data, DATA_BYTES)?;
        let ends = SharedRegion::open("the ends of a pipe", ends, ENDS_BYTES)?;
        Ok(PipeReader { data, ends, read: 0, patience })
    }
}

/// Waits until `ready` answers something.
fn wait<T>(patience: Duration, who: &str, mut ready: impl FnMut() -> Option<io::Result<T>>) -> io::Result<T> {
    let (mut looks, mut since) = (0, None);
    loop {
        if let Some(answer) = ready() {
            return answer;
        }
        looks += 1;
        if looks < LOOKS {
            std::hint::spin_loop();
            continue;
        }
        let since: &Instant = since.get_or_insert_with(Instant::now);
        if since.elapsed() > patience {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{who} has done nothing for {patience:?}")));
        }
        std::thread::sleep(PAUSE);
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (ends, written) = (&self.ends, self.written);
        let room = wait(self.patience, "the reader", || {
            if ends.word(GONE).load(Ordering::Acquire) != 0 {
                return Some(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the reader is gone")));
            }
            // Acquire: what the reader has read is written over from now on. A liar's count leaves no room.
            let unread = written.wrapping_sub(ends.word(READ).load(Ordering::Acquire));
            (unread < DATA_BYTES).then(|| Ok(DATA_BYTES - unread))
        })?;
        let len = (bytes.len() as u64).min(room);
        // Whole words, as far as both ends of the range are on their borders; a word that is shared with older bytes keeps them.
        let mut at = 0;
        while at < len {
            let place = (written + at) % DATA_BYTES;
            let (word, offset) = (place & !7, (place & 7) as usize);
            let count = (8 - offset as u64).min(len - at) as usize;
            let from = &bytes[at as usize..at as usize + count];
            let mut whole = if count == 8 { [0; 8] } else { self.data.load(word).to_le_bytes() };
            whole[offset..offset + count].copy_from_slice(from);
            self.data.word(word).store(u64::from_le_bytes(whole), Ordering::Relaxed);
            at += count as u64;
        }
        self.written += len;
        // Release: who sees it sees the bytes.
        self.ends.word(WRITTEN).store(self.written, Ordering::Release);
        Ok(len as usize)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for PipeReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let (ends, read) = (&self.ends, self.read);
        let there = wait(self.patience, "the writer", || {
            let end = ends.word(END).load(Ordering::Acquire);
            // Acquire: pairs with the writer's release. Loaded after the end, behind which nothing is written.
            let there = ends.word(WRITTEN).load(Ordering::Acquire).wrapping_sub(read);
            match (there, end) {
                (1..=DATA_BYTES, _) => Some(Ok(there)),
                (0, 0) => None,
                (0, FINISHED) => Some(Ok(0)),
                (0, _) => Some(Err(io::Error::new(io::ErrorKind::BrokenPipe, "the writer gave up"))),
                _ => Some(Err(io::Error::new(io::ErrorKind::InvalidData, "the writer's count makes no sense"))),
            }
        })?;
        let len = (bytes.len() as u64).min(there);
        let mut at = 0;
        while at < len {
            let place = (read + at) % DATA_BYTES;
            let (word, offset) = (place & !7, (place & 7) as usize);
            let count = (8 - offset as u64).min(len - at) as usize;
            let whole = self.data.load(word).to_le_bytes();
            bytes[at as usize..at as usize + count].copy_from_slice(&whole[offset..offset + count]);
            at += count as u64;
        }
        self.read += len;
        // Release: the writer may write over what was read.
        self.ends.word(READ).store(self.read, Ordering::Release);
        Ok(len as usize)
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let end = self.ends.word(END);
        let _ = end.compare_exchange(0, FAILED, Ordering::Release, Ordering::Relaxed);
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.ends.word(GONE).store(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn pipe(patience: Duration) -> (PipeWriter, PipeReader) {
        let (writer, fds) = PipeWriter::create(patience).unwrap();
        (writer, PipeReader::open(fds, patience).unwrap())
    }

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_pieces() {
        let (mut writer, mut reader) = pipe(LONG);
        let bytes: Vec<u8> = (0..3 * DATA_BYTES + 12_345).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
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
        let all = vec![0; DATA_BYTES as usize + 1];
        assert_eq!(writer.write_all(&all).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn counts_that_make_no_sense_are_refused() {
        let (writer, mut reader) = pipe(LONG);
        writer.ends.word(WRITTEN).store(DATA_BYTES + 1, Ordering::Release);
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (mut writer, reader) = pipe(Duration::from_millis(5));
        reader.ends.word(READ).store(17, Ordering::Release);
        assert_eq!(writer.write(&[0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
