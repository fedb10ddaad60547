//! Records on their way to another process: chunks with a checksum each, in order.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | kind: 0 = records, or the end: 1 = complete, 2 = not yet, 3 = pruned, 4 = lacks |
//! | 4 | length of the content, at most 4 GiB |
//! | 8 | number of the chunk in the stream, from 0 |
//! | 4 | checksum (CRC32C) of the 16 bytes before and of the content |
//! | length | the content |
//!
//! Numbers are little-endian. Records follow each other without gaps: version (16 bytes), clock (8),
//! length of the payload (4), payload. The content of *pruned* is the oldest version (16 bytes), and that of
//! *lacks* is the last version of the source before, or nothing.
use crate::chunk::{Chunk, follows};
use crate::error::Error;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::version::{Record, Version};
use std::io::{self, Read, Write};

/// The bytes of a chunk before its content.
const HEADER_BYTES: usize = 20;
/// The bytes of a record before its payload.
const RECORD_BYTES: usize = 28;
/// The bytes of records after which a chunk is sent.
const CHUNK_BYTES: usize = 1 << 20;
/// The most bytes of content that are read at once: memory grows only with what has come.
const PIECE_BYTES: u64 = 1 << 20;
/// The longest content: a chunk that was almost full, and the longest record.
const CONTENT_BYTES_MAX: u64 = CHUNK_BYTES as u64 + RECORD_BYTES as u64 + PAYLOAD_BYTES_MAX;

/// The end of a stream of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// The source has sent all that was asked for.
    Complete,
    /// The source has sent all that it has, and not all that was asked for.
    NotYet,
    /// The source sends nothing, because its log begins later.
    Pruned {
        /// The oldest version that it has, or the position at which its log begins.
        oldest: Version,
    },
    /// The source sends nothing, because its log lacks the record before the first one.
    Lacks {
        /// The last version before that one in its log; `None` if there is none.
        last: Option<Version>,
    },
}

/// An error of a stream that is read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The stream broke off.
    #[error("the stream of records broke off: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no chunk, or damaged.
    #[error("chunk {number} of the stream of records is damaged: {reason}; ask another source")]
    Damaged {
        /// The number of the chunk that was expected.
        number: u64,
        /// The check that failed.
        reason: &'static str,
    },
    /// A record does not follow the last one.
    #[error("the stream of records is out of order: {0}")]
    Order(Error),
}

/// The next part of a stream.
#[derive(Debug)]
pub enum StreamPart {
    /// Records, at least one.
    Records(Chunk),
    /// The end.
    End(StreamEnd),
}

/// Writes a stream of records.
pub struct StreamWriter<W> {
    to: W,
    /// The chunk that is being filled, with its header.
    chunk: Vec<u8>,
    number: u64,
}

impl<W: Write> StreamWriter<W> {
    /// Begins a stream.
    pub fn new(to: W) -> StreamWriter<W> {
        StreamWriter { to, chunk: vec![0; HEADER_BYTES], number: 0 }
    }

    /// Adds a record. It is sent once the chunk is full, or with the end.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn put(&mut self, record: &Record<'_>) -> io::Result<()> {
        put_version(&mut self.chunk, record.version);
        self.chunk.extend_from_slice(&record.clock.to_le_bytes());
        self.chunk.extend_from_slice(&(record.payload.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(record.payload);
        match self.chunk.len() - HEADER_BYTES >= CHUNK_BYTES {
            true => self.send(0),
            false => Ok(()),
        }
    }

    /// Sends the rest and the end. Returns the transport.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn finish(mut self, end: StreamEnd) -> io::Result<W> {
        if self.chunk.len() > HEADER_BYTES {
            self.send(0)?;
        }
        match end {
            StreamEnd::Complete => self.send(1)?,
            StreamEnd::NotYet => self.send(2)?,
            StreamEnd::Pruned { oldest } => {
                put_version(&mut self.chunk, oldest);
                self.send(3)?;
            }
            StreamEnd::Lacks { last } => {
                last.into_iter().for_each(|last| put_version(&mut self.chunk, last));
                self.send(4)?;
            }
        }
        Ok(self.to)
    }

    fn send(&mut self, kind: u32) -> io::Result<()> {
        let length = u32::try_from(self.chunk.len() - HEADER_BYTES).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.chunk[..4].copy_from_slice(&kind.to_le_bytes());
        self.chunk[4..8].copy_from_slice(&length.to_le_bytes());
        self.chunk[8..16].copy_from_slice(&self.number.to_le_bytes());
        let checksum = checksum(&self.chunk[..16], &self.chunk[HEADER_BYTES..]);
        self.chunk[16..20].copy_from_slice(&checksum.to_le_bytes());
        self.to.write_all(&self.chunk)?;
        self.number += 1;
        self.chunk.truncate(HEADER_BYTES);
        Ok(())
    }
}

/// Reads a stream of records, a chunk at a time.
pub struct StreamReader<R> {
    from: R,
    content: Vec<u8>,
    number: u64,
    /// The last record, from where the stream continues.
    last: Option<(Version, u64)>,
}

impl<R: Read> StreamReader<R> {
    /// Begins to read a stream whose first record follows `last`, a version and its clock.
    pub fn new(from: R, last: Option<(Version, u64)>) -> StreamReader<R> {
        StreamReader { from, content: vec![], number: 0, last }
    }

    /// Reads the next part.
    ///
    /// # Errors
    /// [`StreamError`]. Records of earlier parts are good.
    pub fn read_part(&mut self) -> Result<StreamPart, StreamError> {
        let mut header = [0; HEADER_BYTES];
        self.from.read_exact(&mut header)?;
        let [kind, length] = [0, 4].map(|at| u32_at(&header, at));
        let damaged = |reason| StreamError::Damaged { number: self.number, reason };
        if u64_at(&header, 8) != self.number {
            return Err(damaged("its number differs"));
        }
        if u64::from(length) > CONTENT_BYTES_MAX {
            return Err(damaged("it is too long"));
        }
        self.read_content(u64::from(length))?;
        let damaged = |reason| StreamError::Damaged { number: self.number, reason };
        if checksum(&header[..16], &self.content) != u32_at(&header, 16) {
            return Err(damaged("its checksum differs"));
        }
        let part = match (kind, self.content.len()) {
            (0, 1..) => StreamPart::Records(self.records()?),
            (1, 0) => StreamPart::End(StreamEnd::Complete),
            (2, 0) => StreamPart::End(StreamEnd::NotYet),
            (3, 16) => StreamPart::End(StreamEnd::Pruned { oldest: version_at(&self.content, 0) }),
            (4, 0) => StreamPart::End(StreamEnd::Lacks { last: None }),
            (4, 16) => StreamPart::End(StreamEnd::Lacks { last: Some(version_at(&self.content, 0)) }),
            _ => return Err(damaged("its kind is unknown")),
        };
        self.number += 1;
        Ok(part)
    }

    /// Reads to the end of the transport, so that the source learns that all of it has come.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn close(mut self) -> io::Result<()> {
        self.from.read(&mut [0]).map(drop)
    }

    fn read_content(&mut self, length: u64) -> Result<(), StreamError> {
        self.content.clear();
        while (self.content.len() as u64) < length {
            let piece = PIECE_BYTES.min(length - self.content.len() as u64);
            self.content.try_reserve(piece as usize).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            if self.from.by_ref().take(piece).read_to_end(&mut self.content)? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        Ok(())
    }

    fn records(&mut self) -> Result<Chunk, StreamError> {
        let damaged = |reason| StreamError::Damaged { number: self.number, reason };
        let mut chunk = Chunk::with_capacity(self.content.len() + self.content.len() / 4);
        let mut rest = &self.content[..];
        while !rest.is_empty() {
            let (head, after) = rest.split_at_checked(RECORD_BYTES).ok_or_else(|| damaged("a record is cut off"))?;
            let (version, clock, length) = (version_at(head, 0), u64_at(head, 16), u32_at(head, 24) as usize);
            let (payload, after) = after.split_at_checked(length).ok_or_else(|| damaged("a record is cut off"))?;
            follows(self.last, (version, clock)).map_err(StreamError::Order)?;
            chunk.push(Record { version, clock, payload }).map_err(StreamError::Order)?;
            self.last = Some((version, clock));
            rest = after;
        }
        Ok(chunk)
    }
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&version.epoch.to_le_bytes());
    out.extend_from_slice(&version.sequence.to_le_bytes());
}

fn checksum(header: &[u8], content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), content)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn version_at(bytes: &[u8], at: usize) -> Version {
    Version::new(u64_at(bytes, at), u64_at(bytes, at + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(records: &[(u64, u64, &[u8])], end: StreamEnd) -> Vec<u8> {
        let mut writer = StreamWriter::new(vec![]);
        for (sequence, clock, payload) in records {
            writer.put(&Record { version: Version::new(1, *sequence), clock: *clock, payload }).unwrap();
        }
        writer.finish(end).unwrap()
    }

    /// Reads a stream to its end: the number of chunks, of records, the last version, and the end.
    fn read(
        bytes: &[u8],
        last: Option<(Version, u64)>,
    ) -> Result<(usize, u32, Option<Version>, StreamEnd), StreamError> {
        let mut reader = StreamReader::new(bytes, last);
        let (mut chunks, mut records, mut version) = (0, 0, None);
        loop {
            match reader.read_part()? {
                StreamPart::Records(chunk) => {
                    (chunks, records, version) = (chunks + 1, records + chunk.records(), chunk.last());
                }
                StreamPart::End(end) => return Ok((chunks, records, version, end)),
            }
        }
    }

    #[test]
    fn records_and_ends_come_as_they_were_sent() {
        let long = vec![7; CHUNK_BYTES / 2];
        let records: Vec<(u64, u64, &[u8])> = (0..5).map(|i| (2 * i, 9, &long[..])).collect();
        let bytes = written(&records, StreamEnd::NotYet);
        assert_eq!(read(&bytes, None).unwrap(), (3, 5, Some(Version::new(1, 8)), StreamEnd::NotYet));
        let oldest = Version::new(3, u64::MAX);
        let lacks = [None, Some(oldest)].map(|last| StreamEnd::Lacks { last });
        for end in [StreamEnd::Complete, StreamEnd::NotYet, StreamEnd::Pruned { oldest }].into_iter().chain(lacks) {
            assert_eq!(read(&written(&[], end), None).unwrap(), (0, 0, None, end));
            assert_eq!(read(&written(&[(0, 0, b"")], end), None).unwrap(), (1, 1, Some(Version::MIN.with(1)), end));
        }
    }

    impl Version {
        fn with(self, epoch: u64) -> Version {
            Version { epoch, ..self }
        }
    }

    #[test]
    fn a_record_at_or_below_the_end_of_the_log_is_an_error() {
        let bytes = written(&[(4, 7, b"a")], StreamEnd::Complete);
        assert!(read(&bytes, Some((Version::new(1, 3), 7))).is_ok());
        for (sequence, clock) in [(4, 7), (5, 7), (3, 8)] {
            let error = read(&bytes, Some((Version::new(1, sequence), clock))).unwrap_err();
            assert!(matches!(error, StreamError::Order(Error::Order { .. })), "{error}");
        }
        let twice = written(&[(4, 7, b"a"), (4, 7, b"a")], StreamEnd::Complete);
        assert!(matches!(read(&twice, None), Err(StreamError::Order(_))));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = written(&[(4, 7, b"abc"), (5, 7, b"")], StreamEnd::Complete);
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = read(&bytes, None).unwrap_err();
            assert!(matches!(error, StreamError::Damaged { .. } | StreamError::Io(_)), "bit {bit}: {error}");
        }
        for cut in 0..bytes.len() {
            assert!(matches!(read(&bytes[..cut], None), Err(StreamError::Io(_))), "cut at {cut}");
        }
        // A chunk that comes twice, or is missing.
        let first = &bytes[..HEADER_BYTES + 2 * RECORD_BYTES + 3];
        assert!(matches!(read(&[first, &bytes].concat(), None), Err(StreamError::Damaged { number: 1, .. })));
        assert!(matches!(read(&bytes[first.len()..], None), Err(StreamError::Damaged { number: 0, .. })));
    }
}
