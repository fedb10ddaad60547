//! A plain TCP stream between two processes, over loopback: the reference for posts between hosts.
//!
//! Blocks go one way by blocking calls, and neither process fills or checks them. A byte goes back
//! and forth, and the process that waits for it looks again and again, or sleeps in the call.
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::cores::Cores;
use super::error::ProbeError;
use super::pair::{ChildExit, ProbePair, SharedMapping};
use super::percentiles::Percentiles;

/// The throughput of a stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamRate {
    /// Bytes of a write.
    pub block_bytes: u64,
    /// Blocks that arrived per second.
    pub blocks_per_second: f64,
    /// Bytes that arrived per second.
    pub bytes_per_second: f64,
    /// The cores of the two processes.
    pub cores: Cores,
}

/// The round-trip time of a byte.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamRoundTrip {
    /// From before the byte is written until it is back, in ns.
    pub round_trip: Percentiles,
    /// The cores of the two processes.
    pub cores: Cores,
}

/// Writes blocks of `block_bytes` to another process for about `duration`.
///
/// # Errors
/// [`ProbeError::Argument`] if a block is empty or larger than 16 MiB; otherwise the error that
/// kept the two processes from finishing.
pub fn stream(block_bytes: u64, duration: Duration) -> Result<StreamRate, ProbeError> {
    if block_bytes == 0 || block_bytes > BLOCK_BYTES_MAX {
        return Err(ProbeError::Argument { what: "block_bytes", got: block_bytes, need: "1 to 16 MiB" });
    }
    let (near, far) = connected()?;
    let pair =
        ProbePair::start(BUFFER_BYTES as u64, duration.saturating_add(GRACE), move |shared| swallow(shared, &far))?;
    feed(pair, &near, block_bytes, duration)
}

/// Bounces a byte between two processes for about `duration`. `blocking` lets them sleep in the
/// call that waits for it.
///
/// # Errors
/// The error that kept the two processes from finishing.
pub fn stream_round_trip(blocking: bool, duration: Duration) -> Result<StreamRoundTrip, ProbeError> {
    let (near, far) = connected()?;
    let mut pair = ProbePair::start(0, duration.saturating_add(GRACE), move |shared| {
        while receive_byte(&far, blocking, || shared.child_deadline(), |_| ChildExit::Stream)? {
            send(&far, &[0], SendFlags::NOSIGNAL).map_err(|_| ChildExit::Stream)?;
        }
        Ok(())
    })?;
    let mut samples = Vec::with_capacity(1024);
    for _ in 0..WARM_UP {
        round_trip(&mut pair, &near, blocking)?;
    }
    let begin = Instant::now();
    while samples.is_empty() || (begin.elapsed() < duration && samples.len() < SAMPLES_MAX) {
        let from = Instant::now();
        round_trip(&mut pair, &near, blocking)?;
        samples.push(from.elapsed().as_nanos() as f64);
    }
    near.shutdown(Shutdown::Write).map_err(|source| ProbeError::System { call: "shutdown", source })?;
    let cores = pair.cores();
    pair.finish()?;
    let round_trip = Percentiles::of(&mut samples).expect("the loop took a sample");
    Ok(StreamRoundTrip { round_trip, cores })
}

const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Bytes of the buffer that the reader passes to a call.
const BUFFER_BYTES: usize = 128 << 10;
/// Round trips before the measurement.
const WARM_UP: u64 = 100;
/// Bounds the memory that the samples take.
const SAMPLES_MAX: usize = 1 << 20;
const GRACE: Duration = Duration::from_secs(20);
/// A process that waits in a call checks this often whether it should still wait.
const NAP: Duration = Duration::from_millis(50);
/// Looks before a process that spins checks whether it should still wait.
const LOOKS: u32 = 1 << 10;

/// Returns both ends of a connection, whose calls return after a nap.
fn connected() -> Result<(TcpStream, TcpStream), ProbeError> {
    let connect = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        for end in [&near, &far] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(NAP))?;
            end.set_write_timeout(Some(NAP))?;
        }
        Ok((near, far))
    };
    connect().map_err(|source| ProbeError::System { call: "a TCP connection over loopback", source })
}

/// The child: reads until the stream ends, and counts the bytes.
fn swallow(shared: &SharedMapping, stream: &TcpStream) -> Result<(), ChildExit> {
    let count = &shared.control().child.count;
    let mut bytes = 0;
    loop {
        // SAFETY: the data is of `BUFFER_BYTES`, and no other code uses it.
        let buffer = unsafe { std::slice::from_raw_parts_mut(shared.data().as_ptr(), BUFFER_BYTES) };
        match recv(stream.as_fd(), buffer, RecvFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            Ok((got, _)) => {
                bytes += got as u64;
                count.store(bytes, Ordering::Release);
            }
            Err(Errno::AGAIN | Errno::INTR) => shared.child_deadline()?,
            Err(_) => return Err(ChildExit::Stream),
        }
    }
}

/// The parent: writes for about `duration`, and waits until all of it has arrived.
fn feed(
    mut pair: ProbePair,
    stream: &TcpStream,
    block_bytes: u64,
    duration: Duration,
) -> Result<StreamRate, ProbeError> {
    let block = vec![1; block_bytes as usize];
    let mut blocks = 0;
    let begin = Instant::now();
    while blocks == 0 || begin.elapsed() < duration {
        let mut rest = &block[..];
        while !rest.is_empty() {
            match send(stream.as_fd(), rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::AGAIN | Errno::INTR) => pair.split("the child to read").1()?,
                Err(errno) => return Err(ProbeError::System { call: "send", source: errno.into() }),
            }
        }
        blocks += 1;
    }
    let all = blocks * block_bytes;
    pair.wait("the child to read the rest", |shared| {
        (shared.control().child.count.load(Ordering::Acquire) == all).then_some(())
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    stream.shutdown(Shutdown::Write).map_err(|source| ProbeError::System { call: "shutdown", source })?;
    let cores = pair.cores();
    pair.finish()?;
    let blocks_per_second = blocks as f64 / seconds;
    Ok(StreamRate { block_bytes, blocks_per_second, bytes_per_second: blocks_per_second * block_bytes as f64, cores })
}

fn round_trip(pair: &mut ProbePair, stream: &TcpStream, blocking: bool) -> Result<(), ProbeError> {
    let failed = |errno: Errno| ProbeError::System { call: "recv", source: errno.into() };
    send(stream.as_fd(), &[0], SendFlags::NOSIGNAL)
        .map_err(|errno| ProbeError::System { call: "send", source: errno.into() })?;
    let (_, still_going) = pair.split("the child to answer");
    match receive_byte(stream, blocking, still_going, failed)? {
        true => Ok(()),
        false => Err(failed(Errno::CONNRESET)),
    }
}

/// Waits for a byte. Returns false if the stream has ended instead.
fn receive_byte<E>(
    stream: &TcpStream,
    blocking: bool,
    mut check: impl FnMut() -> Result<(), E>,
    failed: impl FnOnce(Errno) -> E,
) -> Result<bool, E> {
    let flags = if blocking { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let mut looks = 0u32;
    loop {
        match recv(stream.as_fd(), &mut [0u8; 1][..], flags) {
            Ok((got, _)) => return Ok(got > 0),
            Err(Errno::AGAIN | Errno::INTR) => {
                looks = looks.wrapping_add(1);
                if blocking || looks.is_multiple_of(LOOKS) {
                    check()?;
                    std::thread::yield_now();
                }
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIEF: Duration = Duration::from_millis(20);

    #[test]
    fn a_stream_carries_something() {
        for block_bytes in [1, 10_240] {
            let rate = stream(block_bytes, BRIEF).expect("measured");
            assert!(rate.blocks_per_second > 0.0, "{rate:?}");
            assert!((rate.bytes_per_second / rate.blocks_per_second - block_bytes as f64).abs() < 1.0, "{rate:?}");
        }
    }

    #[test]
    fn a_byte_takes_some_time_there_and_back() {
        for blocking in [false, true] {
            let took = stream_round_trip(blocking, BRIEF).expect("measured").round_trip;
            assert!(took.samples > 0 && took.min_ns > 100.0, "{took:?}");
        }
    }

    #[test]
    fn refuses_blocks_out_of_bounds() {
        for bytes in [0, BLOCK_BYTES_MAX + 1] {
            let error = stream(bytes, BRIEF).expect_err("out of bounds");
            assert!(matches!(error, ProbeError::Argument { got, .. } if got == bytes), "{error}");
        }
    }
}
