//! Tests of a stream: both directions at once, bytes that are held back, and damage on the way.
use super::super::error::is_fault;
use super::*;
use crate::stream::SocketOptions;
use crate::testing::{Authority, PATIENCE};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Instant;

fn stream(socket: UnixStream, identity: &Identity, dialled: bool) -> TlsStream {
    let options = SocketOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: None, silence_ms: None };
    TlsStream::new(SocketStream::new(socket, &options).unwrap(), identity, dialled).unwrap()
}

/// Creates the dialling side and the dialled side.
fn pair() -> [TlsStream; 2] {
    let authority = Authority::new();
    let (near, far) = UnixStream::pair().unwrap();
    [stream(near, &authority.identity(), true), stream(far, &authority.identity(), false)]
}

fn is_pending<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Sends as much of `bytes` as is accepted.
fn push(stream: &mut TlsStream, bytes: &mut &[u8]) {
    let (first, second) = bytes.split_at(bytes.len() / 3);
    match stream.send(&[IoSlice::new(first), IoSlice::new(second)]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        sent => *bytes = &bytes[sent.unwrap()..],
    }
}

/// Receives what has arrived, into spaces of odd sizes.
fn pull(stream: &mut TlsStream, into: &mut Vec<u8>) -> io::Result<bool> {
    let (mut first, mut second) = ([0; 1001], [0; 20_003]);
    match stream.receive(&mut [Space::of(&mut first), Space::of(&mut second)]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
        Ok(got) => {
            into.extend_from_slice(&first[..got.min(1001)]);
            into.extend_from_slice(&second[..got.saturating_sub(1001)]);
            Ok(got > 0)
        }
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn bytes_pass_both_ways_at_once_and_the_end_is_told() {
    let [mut near, mut far] = pair();
    let (forth, back) = (noise(3_000_000), noise(1_234_567));
    let (mut to_send, mut to_answer) = (&forth[..], &back[..]);
    let (mut came, mut returned, start) = (vec![], vec![], Instant::now());
    while came.len() < forth.len() || returned.len() < back.len() {
        assert!(start.elapsed() < PATIENCE, "{} and {} bytes came", came.len(), returned.len());
        push(&mut near, &mut to_send);
        push(&mut far, &mut to_answer);
        assert!(pull(&mut far, &mut came).unwrap() && pull(&mut near, &mut returned).unwrap());
    }
    assert!(came == forth && returned == back);
    near.finish();
    assert!(!pull(&mut far, &mut came).unwrap(), "the end is told");
    assert!(is_pending(&near.receive(&mut [Space::of(&mut [0; 9])])), "and only to one side");
    // Decrypted bytes must be reported, because the descriptor does not show them.
    push(&mut far, &mut &b"twelve bytes"[..]);
    assert_eq!(near.receive(&mut [Space::of(&mut [0; 9])]).unwrap(), 9);
    assert!(near.has_arrived());
    assert_eq!(near.receive(&mut [Space::of(&mut [0; 9])]).unwrap(), 3);
    assert!(!near.has_arrived());
}

/// A socket that accepts nothing more: the bytes that were accepted before are held back,
/// bounded, and arrive.
#[test]
fn held_back_posts_are_bounded_and_arrive() {
    let [mut near, mut far] = pair();
    let (bytes, mut came) = (noise(8 << 20), vec![]);
    let (mut rest, start) = (&bytes[..], Instant::now());
    push(&mut near, &mut &b"x"[..]);
    while came.is_empty() {
        pull(&mut far, &mut came).unwrap();
        pull(&mut near, &mut vec![]).unwrap();
    }
    came.clear();
    while !is_pending(&near.send(&[IoSlice::new(rest)]).map(|sent| rest = &rest[sent..])) {}
    let taken = bytes.len() - rest.len();
    assert!(near.holds_back() && taken < 2 * SEND_BYTES, "{taken}");
    near.finish();
    while pull(&mut far, &mut came).unwrap() {
        assert!(start.elapsed() < PATIENCE, "{} bytes came", came.len());
        let _ = near.send(&[]);
    }
    assert!(came == bytes[..taken]);
}

/// Sends bytes through `change` to the dialled side. Returns what arrives.
fn through(change: impl Fn(usize, &mut [u8])) -> io::Result<Vec<u8>> {
    let authority = Authority::new();
    let (near, mut near_end) = UnixStream::pair().unwrap();
    let (far, mut far_end) = UnixStream::pair().unwrap();
    let mut near = stream(near, &authority.identity(), true);
    let mut far = stream(far, &authority.identity(), false);
    near_end.set_nonblocking(true).unwrap();
    far_end.set_nonblocking(true).unwrap();
    let (mut came, mut at, mut buffer, start) = (vec![], 0, [0; 4096], Instant::now());
    let bytes = noise(20_000);
    let mut rest = &bytes[..];
    while came.len() < bytes.len() {
        assert!(start.elapsed() < PATIENCE, "{} bytes came", came.len());
        push(&mut near, &mut rest);
        if let Ok(got) = near_end.read(&mut buffer) {
            change(at, &mut buffer[..got]);
            at += got;
            far_end.write_all(&buffer[..got]).unwrap();
        }
        if !pull(&mut far, &mut came)? {
            break;
        }
        if let Ok(got) = far_end.read(&mut buffer) {
            near_end.write_all(&buffer[..got]).unwrap();
        }
        pull(&mut near, &mut vec![]).unwrap();
    }
    Ok(came)
}

#[test]
fn a_bit_that_was_turned_is_noticed() {
    assert_eq!(through(|_, _| {}).unwrap(), noise(20_000));
    for turned in [300, 5000, 15_000] {
        let turn = |at, bytes: &mut [u8]| {
            if let Some(byte) = usize::checked_sub(turned, at).and_then(|at| bytes.get_mut(at)) {
                *byte ^= 1;
            }
        };
        let error = through(turn).unwrap_err();
        assert!(is_fault(&error), "{error}");
    }
}

#[test]
fn an_end_without_a_report_is_none() {
    let [mut near, mut far] = pair();
    let (mut came, start) = (vec![], Instant::now());
    push(&mut near, &mut &b"all of it?"[..]);
    while came.is_empty() {
        assert!(start.elapsed() < PATIENCE);
        assert!(pull(&mut far, &mut came).unwrap() && pull(&mut near, &mut vec![]).unwrap());
    }
    drop(near);
    let error = pull(&mut far, &mut came).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
}
