//! The bytes of requests and replies on a socket.
//!
//! A frame is its length without these 4 bytes, 4 bytes that name the call, a byte, and the rest. In
//! a request the byte is the operation, and the rest is the key, of [`KEY_BYTES`], and the value. In
//! a reply the byte is 0, and the rest is the result; or it is 1, and the rest is an error's text.
//! Numbers are little-endian.
use crate::store::{Operation, Reply, key};
use std::io::{self, ErrorKind, Read};

/// The length of a key.
pub(crate) const KEY_BYTES: usize = 12;
/// The longest frame.
const FRAME_BYTES_MAX: usize = 1 << 16;
const HEAD_BYTES: usize = 5;

/// The bytes that have come and are not used yet.
pub(crate) struct Incoming {
    bytes: Box<[u8]>,
    /// The bytes from here to `end` are not used.
    start: usize,
    end: usize,
}

impl Default for Incoming {
    fn default() -> Incoming {
        // Room for a read beside the longest frame.
        Incoming { bytes: vec![0; 2 * (4 + FRAME_BYTES_MAX)].into(), start: 0, end: 0 }
    }
}

impl Incoming {
    /// Reads once. Returns 0 at the end of the stream, and would block while frames take all the room.
    pub(crate) fn read(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.bytes.len() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let read = stream.read(&mut self.bytes[self.end..])?;
        self.end += read;
        Ok(read)
    }

    /// Returns the next frame, if all of it has come: the name of the call, the byte, and the rest.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u32, u8, &[u8])>> {
        let bytes = &self.bytes[self.start..self.end];
        let Some((len, bytes)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if !(HEAD_BYTES..=FRAME_BYTES_MAX).contains(&len) {
            let why = format!("a frame of {len} bytes; {HEAD_BYTES} to {FRAME_BYTES_MAX} are possible");
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        if bytes.len() < len {
            return Ok(None);
        }
        self.start += 4 + len;
        let (call, rest) = bytes[..len].split_first_chunk::<4>().expect("the length was checked");
        Ok(Some((u32::from_le_bytes(*call), rest[0], &rest[1..])))
    }
}

fn frame(out: &mut Vec<u8>, call: u32, byte: u8, rest: [&[u8]; 2]) {
    let len = HEAD_BYTES + rest[0].len() + rest[1].len();
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend_from_slice(&call.to_le_bytes());
    out.push(byte);
    rest.iter().for_each(|part| out.extend_from_slice(part));
}

pub(crate) fn request(out: &mut Vec<u8>, call: u32, operation: Operation, number: u32, value: &[u8]) {
    let (byte, value) = match operation {
        Operation::Put => (0, value),
        Operation::Get => (1, &[][..]),
    };
    frame(out, call, byte, [key(number).as_bytes(), value]);
}

/// Returns the operation, the key and the value of a request.
pub(crate) fn parse_request(byte: u8, rest: &[u8]) -> io::Result<(Operation, &str, &[u8])> {
    let bad = |why: &str| io::Error::new(ErrorKind::InvalidData, format!("a request with {why}"));
    let operation = match byte {
        0 => Operation::Put,
        1 => Operation::Get,
        other => return Err(bad(&format!("operation {other}"))),
    };
    let (key, value) = rest.split_at_checked(KEY_BYTES).ok_or_else(|| bad("too short a key"))?;
    Ok((operation, str::from_utf8(key).map_err(|_| bad("a key that is no text"))?, value))
}

pub(crate) fn reply(out: &mut Vec<u8>, call: u32, reply: &Reply) {
    match reply {
        Ok(result) => frame(out, call, 0, [result, &[]]),
        Err(error) => frame(out, call, 1, [error.as_bytes(), &[]]),
    }
}

pub(crate) fn parse_reply(byte: u8, rest: &[u8]) -> Result<&[u8], String> {
    if byte == 0 { Ok(rest) } else { Err(String::from_utf8_lossy(rest).into_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames in `bytes`, which come `step` bytes at a time.
    fn frames(bytes: &[u8], step: usize) -> io::Result<Vec<(u32, u8, Vec<u8>)>> {
        let (mut incoming, mut found) = (Incoming::default(), vec![]);
        for mut part in bytes.chunks(step) {
            while !part.is_empty() {
                incoming.read(&mut part)?;
                while let Some((call, byte, rest)) = incoming.next()? {
                    found.push((call, byte, rest.to_vec()));
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_come_in_parts_and_together() {
        let mut bytes = vec![];
        let value = vec![7; 4000];
        (0..100).for_each(|call| request(&mut bytes, call, Operation::Put, call, &value));
        reply(&mut bytes, 100, &Err("no".to_owned()));
        for step in [1, 3, 4096, bytes.len()] {
            let found = frames(&bytes, step).unwrap();
            assert_eq!(found.len(), 101, "{step}");
            let (operation, name, of) = parse_request(found[99].1, &found[99].2).unwrap();
            assert_eq!((operation, name, of), (Operation::Put, &*key(99), &*value));
            assert_eq!(parse_reply(found[100].1, &found[100].2), Err("no".to_owned()));
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        for bytes in [[0; 16], [0xFF; 16]] {
            assert_eq!(frames(&bytes, 16).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        for (byte, rest) in [(2, &[b'k'; 12][..]), (0, &[b'k'; 11]), (0, &[0xFF; 12])] {
            assert_eq!(parse_request(byte, rest).unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_reader_without_room_would_block() {
        let mut incoming = Incoming::default();
        let bytes = vec![0; 1 << 20];
        let mut stream = &bytes[..];
        let error = loop {
            match incoming.read(&mut stream) {
                Ok(read) => assert!(read > 0),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
