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
const READ_BYTES: usize = 1 << 16;

/// The bytes that have come and are not used yet.
#[derive(Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    used: usize,
}

impl Incoming {
    /// Reads once. Returns 0 at the end of the stream.
    pub(crate) fn read(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let len = self.bytes.len();
        self.bytes.resize(len + READ_BYTES, 0);
        let read = stream.read(&mut self.bytes[len..]);
        self.bytes.truncate(len + *read.as_ref().unwrap_or(&0));
        read
    }

    /// Returns the next frame, if all of it has come: the name of the call, the byte, and the rest.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u32, u8, &[u8])>> {
        let bytes = &self.bytes[self.used..];
        let Some((len, bytes)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if !(HEAD_BYTES..=FRAME_BYTES_MAX).contains(&len) {
            let why = format!("a frame of {len} bytes; {HEAD_BYTES} to {FRAME_BYTES_MAX} are possible");
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        if bytes.len() < len {
            return Ok(None);
        }
        self.used += 4 + len;
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
