//! Tests of streams that break, and of rows that come late.
use super::Down;
use super::tests::{TINY, USUAL, socket_ends, tcp_pair, tls_ends, unix_pair};
use super::wire::{FrameHead, hello};
use crate::arena::Arena;
use crate::conformance::links::{COUNT, TestRandom, progress_until};
use crate::conformance::resuming::Pair;
use crate::conformance::{PATIENCE, view};
use crate::fabric::Fabric;
use crate::member_event_count::MemberEventCount;
use crate::mesh::{Mesh, MeshError, Peer};
use crate::shm::OwnRow;
use spindle_core::{Layout, Rank, Rows, Table};
use spindle_transport::{Connection, SocketStream, Space, Stream, limit_silence};
use std::io::{self, IoSlice, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BOTH: [Rank; 2] = [Rank(0), Rank(1)];
/// A stream that sends so many bytes, receives so many, and then is broken.
#[derive(Debug)]
struct Brittle {
    inner: Connection,
    sends: Arc<AtomicU64>,
    receives: Arc<AtomicU64>,
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Stream for Brittle {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let left = self.sends.load(Ordering::Relaxed);
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(left as usize).collect();
        if bytes.is_empty() && parts.iter().any(|part| !part.is_empty()) {
            return Err(broken());
        }
        let took = self.inner.send(&[IoSlice::new(&bytes)])?;
        self.sends.fetch_sub(took as u64, Ordering::Relaxed);
        Ok(took)
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        let left = self.receives.load(Ordering::Relaxed) as usize;
        let room: usize = spaces.iter().map(|space| space.len()).sum();
        if left == 0 {
            return Err(broken());
        }
        let mut buffer = vec![0; room.min(left)];
        let got = self.inner.receive(&mut [Space::of(&mut buffer)])?;
        let mut rest = &buffer[..got];
        for space in spaces {
            let filled = space.fill(rest);
            rest = &rest[filled..];
        }
        self.receives.fetch_sub(got as u64, Ordering::Relaxed);
        Ok(got)
    }

    fn finish(&mut self) {
        self.inner.finish();
    }

    fn holds_back(&self) -> bool {
        self.inner.holds_back()
    }

    fn has_arrived(&self) -> bool {
        self.inner.has_arrived()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }
}

/// Returns a pair whose first end breaks after it has sent and received so many bytes.
fn brittle([near, far]: [Connection; 2], sends: u64, receives: u64) -> [Connection; 2] {
    let [sends, receives] = [sends, receives].map(|bytes| Arc::new(AtomicU64::new(bytes)));
    [Box::new(Brittle { inner: near, sends, receives }), far]
}

fn row(layout: &Layout, me: Rank) -> OwnRow {
    OwnRow::create(layout, me, &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap().0
}

/// Returns a member that appends and one that reads, at these two ends of a stream.
fn connected([near, far]: [Connection; 2]) -> Pair {
    let there = |rank, stream| [(rank, Some(Peer::There(stream)))];
    Pair::of(|layout| {
        let writer = Mesh::new(layout, row(layout, Rank(0)), there(Rank(1), near)).unwrap();
        [writer, Mesh::new(layout, row(layout, Rank(1)), there(Rank(0), far)).unwrap()]
    })
}

/// Attaches the two ends of a stream to the members of `pair`.
fn attach(pair: &mut Pair, [near, far]: [Connection; 2]) {
    pair.writer.attach(&pair.layout, Rank(1), Peer::There(near)).unwrap();
    pair.reader.attach(&pair.layout, Rank(0), Peer::There(far)).unwrap();
}

/// Runs a script of some laps, through a first stream that breaks at some point.
fn run_script(case: &str, first: [Connection; 2], second: [Connection; 2], by_reader: bool) -> bool {
    let [near, far] = first;
    let mut pair = connected(if by_reader { [far, near] } else { [near, far] });
    let mut second = Some(second);
    for step in 0..24 {
        pair.append(1 + step % 5);
        if step % 3 > 0 {
            pair.announce();
        }
        pair.writer.progress();
        pair.read(step % 4 > 1, case);
        let told = pair.writer.next_down().is_some() | pair.reader.next_down().is_some();
        if told && let Some(second) = second.take() {
            attach(&mut pair, second);
        }
    }
    // It may break at the last step.
    if second.is_some() && (!pair.writer.is_connected(Rank(1)) || !pair.reader.is_connected(Rank(0))) {
        attach(&mut pair, second.take().unwrap());
    }
    if let Some(second) = second.take() {
        // It did not break: both ends give it up.
        attach(&mut pair, second);
        pair.finish(case);
        return false;
    }
    pair.finish(case);
    true
}

#[test]
fn a_stream_that_breaks_at_any_byte_is_resumed() {
    let ends = || socket_ends(unix_pair(), &USUAL);
    for by_reader in [false, true] {
        for sends in [true, false] {
            let mut at = 0;
            loop {
                let limit = |is_it: bool| if is_it { at } else { u64::MAX };
                let case = format!("by the reader: {by_reader}, sending: {sends}, at byte {at}");
                if !run_script(&case, brittle(ends(), limit(sends), limit(!sends)), ends(), by_reader) {
                    assert!(at > 100, "{case}: the script is too short");
                    break;
                }
                at += 1;
            }
        }
    }
}

/// Streams of all kinds break at any time, at one end or both, repeatedly, while the ring wraps.
/// The ends attach at different times.
#[test]
fn streams_may_break_at_any_time_and_any_number_of_times() {
    for seed in 0..60 {
        let ends = || match seed % 4 {
            0 => socket_ends(unix_pair(), &USUAL),
            1 => socket_ends(unix_pair(), &TINY),
            2 => socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL),
            _ => tls_ends(unix_pair(), &TINY),
        };
        let case = format!("seed {seed}");
        let mut random = TestRandom(seed);
        let mut pair = connected(ends());
        let mut waiting: [Option<Connection>; 2] = [None, None];
        for _ in 0..1500 {
            match random.below(9) {
                0..3 => pair.append(1 + random.below(5)),
                3 => pair.announce(),
                4 => _ = pair.writer.progress(),
                5..8 => pair.read(random.below(2) == 0, &case),
                _ if waiting.iter().all(Option::is_none) && random.below(3) == 0 => {
                    let bytes =
                        |random: &mut TestRandom| if random.below(2) == 0 { u64::MAX } else { random.below(3000) };
                    let (sends, receives) = (bytes(&mut random), bytes(&mut random));
                    let mut fresh = brittle(ends(), sends, receives);
                    if random.below(2) == 0 {
                        fresh.reverse();
                    }
                    waiting = fresh.map(Some);
                }
                _ => {}
            }
            for (rank, stream) in waiting.iter_mut().enumerate() {
                if random.below(4) == 0
                    && let Some(stream) = stream.take()
                {
                    let (mesh, other) = if rank == 0 { (&mut pair.writer, 1) } else { (&mut pair.reader, 0) };
                    mesh.attach(&pair.layout, Rank(other), Peer::There(stream)).unwrap();
                }
            }
            while pair.writer.next_down().or_else(|| pair.reader.next_down()).is_some() {}
        }
        attach(&mut pair, ends());
        pair.finish(&case);
        assert!(pair.written > 3 * pair.words(), "{case}: {} words", pair.written);
    }
}

/// Posts without a stream take no memory of their own, and the member continues.
#[test]
fn a_member_goes_on_without_a_stream() {
    let mut pair = connected(brittle(socket_ends(unix_pair(), &USUAL), 0, u64::MAX));
    progress_until(&mut pair.writer, "the end", |writer| writer.next_down().is_some());
    for _ in 0..100 {
        pair.append(1);
        pair.announce();
    }
    assert_eq!(pair.written, pair.words(), "as much as there is room for");
    assert!(pair.writer.is_flushed() && pair.writer.traffic(Rank(1)).is_none() && pair.writer.is_stream(Rank(1)));
    attach(&mut pair, socket_ends(unix_pair(), &USUAL));
    assert!(!pair.writer.is_flushed(), "the peer has not said what it lacks");
    pair.finish("after the pause");
}

/// A stream that was replaced has no effect any more, whatever arrives there.
#[test]
fn a_superseded_stream_is_not_listened_to() {
    let layout = Layout::new(&view(2, 4)).unwrap();
    let stream = |socket| Peer::There(Box::new(SocketStream::new(socket, &USUAL).unwrap()) as Connection);
    let post = |value: u64| [FrameHead { at: COUNT, len: 8 }.encode(), value.to_le_bytes()].concat();
    let [near, mut old] = unix_pair();
    let mut fabric = Mesh::new(&layout, row(&layout, Rank(0)), [(Rank(1), Some(stream(near)))]).unwrap();
    old.write_all(&hello(&[0])).unwrap();
    old.write_all(&post(1)).unwrap();
    // The first half of a frame that is not whole when the stream is replaced.
    old.write_all(&post(2)[..12]).unwrap();
    let [near, mut new] = unix_pair();
    fabric.attach(&layout, Rank(1), stream(near)).unwrap();
    assert_eq!(fabric.load(Rank(1), COUNT), 1, "what had arrived whole counts");
    let _ = old.write_all(&post(2)[12..]);
    let _ = old.write_all(&post(3));
    fabric.progress();
    assert_eq!(fabric.load(Rank(1), COUNT), 1);
    let mut said = vec![];
    old.read_to_end(&mut said).unwrap_or_default();
    new.write_all(&hello(&[0])).unwrap();
    new.write_all(&post(4)).unwrap();
    progress_until(&mut fabric, "the new stream", |fabric| fabric.load(Rank(1), COUNT) == 4);
    assert!(fabric.next_down().is_none(), "the old one is not told of");
}

#[test]
fn nonsense_in_place_of_a_hello_ends_the_stream() {
    let layout = Layout::new(&view(2, 4)).unwrap();
    let first = |words: &[u64], is_first: bool| {
        let streams = [unix_pair(), unix_pair()];
        let [[near, old], [next, mut far]] = streams;
        let stream = |socket| Peer::There(Box::new(SocketStream::new(socket, &USUAL).unwrap()) as Connection);
        let mut fabric = Mesh::new(&layout, row(&layout, Rank(0)), [(Rank(1), Some(stream(near)))]).unwrap();
        if is_first {
            far = old;
        } else {
            fabric.attach(&layout, Rank(1), stream(next)).unwrap();
        }
        far.write_all(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let mut down = None;
        progress_until(&mut fabric, "the end", |fabric| {
            down = fabric.next_down();
            down.is_some()
        });
        down.unwrap().1
    };
    for is_first in [true, false] {
        for words in [&[2, 0, 0][..], &[0], &[1 | 1 << 32, 0], &[u64::MAX]] {
            let down = first(words, is_first);
            assert!(matches!(down, Down::NoHello { word, rings: 1 } if word == words[0]), "{down}");
        }
        for applied in [16, 8, u64::MAX] {
            let down = first(&[1, applied], is_first);
            assert!(matches!(down, Down::ReorderBuffer { applied: a, published: 0, .. } if a == applied), "{down}");
        }
    }
}

#[test]
fn the_silence_of_a_connection_is_limited_where_the_system_can() {
    let limit = Duration::from_millis(700);
    for [stream, _peer] in [tls_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL), socket_ends(unix_pair(), &USUAL)] {
        limit_silence(&*stream, limit).unwrap();
        let set = rustix::net::sockopt::tcp_user_timeout(stream.fd());
        assert!(set.is_err() || set == Ok(700), "{set:?}");
    }
}

/// A member that has begun without a peer gets its row when it comes, and so do readers that were
/// created before.
#[test]
fn a_stream_may_come_late() {
    let mut pair = connected(socket_ends(unix_pair(), &USUAL));
    let layout = pair.layout.clone();
    pair.reader = Mesh::new(&layout, row(&layout, Rank(1)), [(Rank(0), None)]).unwrap();
    // The stream at the other end is of a process that has not begun yet.
    pair.append(3);
    pair.announce();
    let rows = pair.reader.reader();
    assert_eq!(rows.load(Rank(0), COUNT), 0);
    attach(&mut pair, socket_ends(unix_pair(), &USUAL));
    pair.copy = pair.reader.copy(Rank(0));
    for step in 0..40 {
        pair.append(step % 5);
        pair.announce();
        pair.read(true, "late");
        pair.writer.progress();
    }
    pair.finish("late");
    assert_eq!(rows.load(Rank(0), COUNT), pair.written);
    // Both at the same time, when neither had a stream before.
    let mut pair = connected(socket_ends(unix_pair(), &USUAL));
    pair.reader = Mesh::new(&layout, row(&layout, Rank(1)), [(Rank(0), None)]).unwrap();
    pair.writer = Mesh::new(&layout, row(&layout, Rank(0)), [(Rank(1), None)]).unwrap();
    assert!(!pair.writer.is_stream(Rank(1)));
    pair.append(5);
    pair.announce();
    attach(&mut pair, socket_ends(unix_pair(), &USUAL));
    pair.copy = pair.reader.copy(Rank(0));
    pair.finish("both late");
}

/// Memory that comes late is seen by threads that read already, and its owner is rung.
#[test]
fn memory_may_come_late() {
    let layout = Layout::new(&view(2, 4)).unwrap();
    let event_counts = [(); 2].map(|()| MemberEventCount::create().unwrap());
    let [(own, parts), (peer, peers_parts)] =
        [0, 1].map(|i| OwnRow::create(&layout, Rank(i), &mut Arena::new(event_counts[i as usize].clone())).unwrap());
    let mut near = Mesh::new(&layout, own, [(Rank(1), None)]).unwrap();
    let mut far = Mesh::new(&layout, peer, [(Rank(0), Some(Peer::Here(parts)))]).unwrap();
    let rows = near.reader();
    let looks = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let look = scope.spawn(|| {
            let (mut last, mut sum) = (0, 0);
            while looks.load(Ordering::Relaxed) {
                let now = rows.load(Rank(1), COUNT);
                assert!(now >= last, "back from {last} to {now}");
                last = now;
                let size = layout.row(Rank(1)).size;
                sum += (0..size).step_by(64).map(|at| rows.load(Rank(1), at)).max().unwrap();
            }
            (last, sum)
        });
        for count in 1..200 {
            far.store(COUNT, count);
            if count == 100 {
                near.attach(&layout, Rank(1), Peer::Here(peers_parts.try_clone().unwrap())).unwrap();
            }
            assert_eq!(near.load(Rank(1), COUNT), if count < 100 { 0 } else { count });
            std::thread::yield_now();
        }
        looks.store(false, Ordering::Relaxed);
        look.join().unwrap();
    });
    let again = near.attach(&layout, Rank(1), Peer::Here(peers_parts));
    assert!(matches!(again, Err(MeshError::Attached { rank: Rank(1), given: "memory" })), "{again:?}");
    let stream = socket_ends(unix_pair(), &USUAL).into_iter().next().unwrap();
    let again = near.attach(&layout, Rank(1), Peer::There(stream));
    assert!(matches!(again, Err(MeshError::Attached { rank: Rank(1), given: "a stream" })), "{again:?}");
    // It is woken from now on.
    far.begin_sleep();
    near.store(COUNT, 1);
    near.post(&BOTH, COUNT..COUNT + 8);
    assert!(far.sleep(PATIENCE) && far.load(Rank(0), COUNT) == 1);
}

/// A segment that does not belong to the view leaves the row as it was.
#[test]
fn late_memory_is_checked() {
    let layout = Layout::new(&view(2, 4)).unwrap();
    let other = Layout::new(&view(2, 400)).unwrap();
    let event_count = MemberEventCount::create().unwrap();
    let (own, _) = OwnRow::create(&layout, Rank(0), &mut Arena::new(event_count.clone())).unwrap();
    let mut mesh = Mesh::new(&layout, own, [(Rank(1), None)]).unwrap();
    let (_row, wrong) = OwnRow::create(&other, Rank(1), &mut Arena::new(event_count.clone())).unwrap();
    let error = mesh.attach(&layout, Rank(1), Peer::Here(wrong)).unwrap_err();
    assert!(matches!(error, MeshError::Region { rank: Rank(1), part: "row", .. }), "{error}");
    assert!((0..layout.row(Rank(1)).size).step_by(8).all(|at| mesh.load(Rank(1), at) == 0));
    let (row, right) = OwnRow::create(&layout, Rank(1), &mut Arena::new(event_count.clone())).unwrap();
    mesh.attach(&layout, Rank(1), Peer::Here(right)).unwrap();
    row.control_block().store(COUNT, 7);
    assert_eq!(mesh.load(Rank(1), COUNT), 7);
}

/// A peer that was cut off from a view that is over nevertheless gets the end of it.
#[test]
fn a_retired_view_is_still_told_to_its_end() {
    let mut pair = connected(brittle(socket_ends(unix_pair(), &USUAL), 60, u64::MAX));
    pair.append(3);
    pair.announce();
    let mut retired = pair.writer.retire().unwrap();
    let start = Instant::now();
    while retired.next_down().is_none() {
        retired.progress();
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(retired.is_cut() && !retired.progress());
    let [near, far] = socket_ends(unix_pair(), &USUAL);
    retired.attach(Rank(1), near).unwrap();
    pair.reader.attach(&pair.layout, Rank(0), Peer::There(far)).unwrap();
    while pair.reader.load(Rank(0), COUNT) < pair.written {
        retired.progress();
        pair.reader.progress();
        assert!(start.elapsed() < PATIENCE, "the end did not come");
    }
    drop(pair.reader);
    while !retired.progress() {
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(!retired.is_cut());
}
