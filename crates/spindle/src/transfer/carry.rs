//! Carries bytes over a connection to another host, for threads that may wait: a state transfer.
//!
//! ```text
//! stream = chunks: length (u32, little endian) | bytes ... | a chunk of length 0
//! ```
//!
//! So the reader can distinguish the end from a broken connection.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spindle_transport::{Connection, Space};
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::time::Duration;

/// The size of the largest chunk, in bytes.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// The writing end.
#[derive(Debug)]
pub(crate) struct CarryWriter {
    connection: CarryWait,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct CarryReader {
    connection: CarryWait,
    chunk: Vec<u8>,
    taken: usize,
    ended: bool,
}

/// A connection whose calls wait, for a limited time.
#[derive(Debug)]
struct CarryWait {
    connection: Connection,
    patience: Duration,
}

impl CarryWait {
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        let timeout = Timespec::try_from(self.patience).map_err(io::Error::other)?;
        match poll(&mut [PollFd::from_borrowed_fd(self.connection.fd(), flags)], Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() || self.connection.holds_back() {
            match self.connection.send(&[IoSlice::new(bytes)]) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_exact(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.connection.receive(&mut [Space::of(bytes)]) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(got) => bytes = &mut bytes[got..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::IN)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl CarryWriter {
    pub(crate) fn new(connection: Connection, patience: Duration) -> CarryWriter {
        CarryWriter { connection: CarryWait { connection, patience } }
    }

    /// Writes all bytes of `from`.
    pub(crate) fn write_from(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut chunk = vec![0; 4 + CHUNK_BYTES_MAX];
        loop {
            match from.read(&mut chunk[4..]) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    chunk[..4].copy_from_slice(&(len as u32).to_le_bytes());
                    self.connection.write_all(&chunk[..4 + len])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Marks the end, and waits until the reader has closed its end.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.connection.write_all(&0u32.to_le_bytes())?;
        self.connection.connection.finish();
        match self.connection.read_exact(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
            _ => Ok(()),
        }
    }
}

impl Write for CarryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(CHUNK_BYTES_MAX);
        if len > 0 {
            self.connection.write_all(&[&(len as u32).to_le_bytes(), &bytes[..len]].concat())?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CarryReader {
    pub(crate) fn new(connection: Connection, patience: Duration) -> CarryReader {
        let connection = CarryWait { connection, patience };
        CarryReader { connection, chunk: vec![], taken: 0, ended: false }
    }
}

impl BufRead for CarryReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.chunk.len() && !self.ended {
            let mut head = [0; 4];
            self.connection.read_exact(&mut head)?;
            let len = u32::from_le_bytes(head) as usize;
            if len > CHUNK_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk of a state that is too long"));
            }
            self.ended = len == 0;
            // A chunk is read only as a whole.
            let mut chunk = std::mem::take(&mut self.chunk);
            self.taken = 0;
            chunk.resize(len, 0);
            self.connection.read_exact(&mut chunk)?;
            self.chunk = chunk;
        }
        Ok(&self.chunk[self.taken..])
    }

    fn consume(&mut self, len: usize) {
        self.taken = (self.taken + len).min(self.chunk.len());
    }
}

impl Read for CarryReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let len = from.len().min(bytes.len());
        bytes[..len].copy_from_slice(&from[..len]);
        self.consume(len);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_transport::{SocketOptions, SocketStream};
    use std::os::unix::net::UnixStream;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn ends(options: &SocketOptions) -> [Connection; 2] {
        let sockets: [UnixStream; 2] = UnixStream::pair().unwrap().into();
        sockets.map(|socket| Box::new(SocketStream::new(socket, options).unwrap()) as Connection)
    }

    #[test]
    fn written_bytes_are_read_through_small_and_large_buffers() {
        let bytes: Vec<u8> = (0..3_000_001u64).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
        let tiny = SocketOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: Some(1), silence_ms: None };
        for options in [tiny, SocketOptions::default()] {
            let [near, far] = ends(&options);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut writer = CarryWriter::new(near, PATIENCE);
                    writer.write_all(&bytes[..7]).unwrap();
                    writer.write_from(&bytes[7..]).unwrap();
                    writer.finish().unwrap();
                });
                let mut got = vec![];
                CarryReader::new(far, PATIENCE).read_to_end(&mut got).unwrap();
                assert!(got == bytes);
            });
        }
    }

    #[test]
    fn a_connection_that_breaks_is_no_end() {
        let [near, far] = ends(&SocketOptions::default());
        let mut writer = CarryWriter::new(near, PATIENCE);
        writer.write_all(b"half").unwrap();
        drop(writer);
        let mut got = vec![];
        let error = CarryReader::new(far, PATIENCE).read_to_end(&mut got).unwrap_err();
        assert_eq!((error.kind(), got.as_slice()), (io::ErrorKind::BrokenPipe, &b"half"[..]));
    }

    #[test]
    fn garbage_and_silence_are_errors() {
        let [mut near, far] = ends(&SocketOptions::default());
        near.send(&[IoSlice::new(&[255; 8])]).unwrap();
        let mut reader = CarryReader::new(far, PATIENCE);
        assert_eq!(reader.fill_buf().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let [_near, far] = ends(&SocketOptions::default());
        let mut reader = CarryReader::new(far, Duration::from_millis(5));
        assert_eq!(reader.fill_buf().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
