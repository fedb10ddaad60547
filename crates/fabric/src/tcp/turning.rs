//! Tests of streams that continue in the next view.
use super::Down;
use super::tests::{Ends, TINY, USUAL, mesh, socket_ends, tcp_pair, tls_ends, unix_pair};
use super::wire::{hello, turn};
use crate::conformance::links::{COUNT, TestRandom, down, layout, progress_until, put, ring};
use crate::conformance::{PATIENCE, view};
use crate::fabric::Fabric;
use crate::mesh::{Mesh, Retired};
use spindle_core::{Layout, Rank, Rows, Table, ViewId};
use spindle_transport::stream::again;
use spindle_transport::{Connection, SocketStream, Space};
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const BOTH: [Rank; 2] = [Rank(0), Rank(1)];

/// One of two members, in a view that it may have ended.
struct TurningMember {
    mesh: Mesh,
    over: Option<Retired>,
    view: u64,
    posted: u64,
    has_ended: bool,
    /// The stream, when it continues in the next view.
    stream: Option<Connection>,
}

impl TurningMember {
    fn me(&self) -> Rank {
        self.mesh.me()
    }

    /// Posts frames, and a count of them. Each word contains the number of its view.
    fn post(&mut self, layouts: &[Layout; 2], random: &mut TestRandom) {
        let ring = ring(&layouts[self.view as usize % 2]);
        let words = (ring.end - ring.start) / 8;
        let more = random.below(words - self.posted + 1);
        let (from, to) = (self.posted, self.posted + more);
        for index in from..to {
            self.mesh.store(ring.start + index * 8, self.view << 32 | index);
        }
        self.mesh.post(&BOTH, ring.start + from * 8..ring.start + to * 8);
        self.posted = to;
        put(&mut self.mesh, COUNT, self.view << 32 | self.posted);
    }

    /// Checks that all announced data is there, and is of this view.
    fn check(&mut self, layouts: &[Layout; 2], case: &str) {
        let other = Rank(1 - self.me().0);
        let ring = ring(&layouts[self.view as usize % 2]);
        let count = self.mesh.load(other, COUNT);
        assert!(count == 0 || count >> 32 == self.view, "{case}: {count:#x} in view {}", self.view);
        for index in 0..count & 0xffff_ffff {
            let word = self.mesh.load(other, ring.start + index * 8);
            assert_eq!(word, self.view << 32 | index, "{case}: word {index} of {count:#x}");
        }
    }

    /// Takes the stream out, once both have turned.
    fn turn(&mut self) {
        let (other, next) = (Rank(1 - self.me().0), ViewId(self.view + 1));
        self.mesh.turn(other, next);
        for (rank, stream) in self.mesh.take_turned(next) {
            assert!(rank == other && self.stream.replace(stream).is_none());
        }
    }

    fn begin(&mut self, layouts: &[Layout; 2]) {
        let me = self.me();
        self.view += 1;
        let stream = self.stream.take().map(|stream| (Rank(1 - me.0), stream));
        let next = mesh(&layouts[self.view as usize % 2], me, stream);
        self.over = self.mesh.retire();
        assert!(self.over.as_mut().is_none_or(Retired::progress), "nothing of the view before is under way");
        (self.mesh, self.posted, self.has_ended) = (next, 0, false);
    }
}

/// Two members go through views of two kinds over one stream. In each they post at random, end the
/// view at random times, and begin the next one at random times once they have the stream.
fn continues(name: &str, pair: impl Fn() -> Ends) {
    let layouts = [4, 9].map(|window| Layout::new(&view(2, window)).unwrap());
    for seed in 0..20 {
        let case = format!("{name}, seed {seed}");
        let mut random = TestRandom(seed);
        let mut members: Vec<TurningMember> = BOTH
            .into_iter()
            .zip(pair())
            .map(|(me, stream)| {
                let mesh = mesh(&layouts[1], me, [(Rank(1 - me.0), stream)]);
                TurningMember { mesh, over: None, view: 1, posted: 0, has_ended: false, stream: None }
            })
            .collect();
        let start = Instant::now();
        while members.iter().any(|member| member.view < 12) {
            assert!(start.elapsed() < PATIENCE, "{case}: the stream did not go on");
            let [view, other] = [0, 1].map(|i| members[i].view);
            assert!(view.abs_diff(other) <= 1, "{case}");
            let i = random.below(2) as usize;
            let others = members[1 - i].posted | members[1 - i].view << 32;
            let member = &mut members[i];
            for _ in 0..random.below(4) {
                member.mesh.progress();
            }
            member.check(&layouts, &case);
            assert!(member.mesh.next_down().is_none(), "{case}");
            if member.has_ended {
                member.turn();
                if member.stream.is_some() && random.below(3) == 0 {
                    // All of the other's posts have arrived before its turn.
                    let last = member.mesh.load(Rank(1 - i as u32), COUNT);
                    let has_gone_on = others >> 32 > member.view;
                    assert!(
                        has_gone_on || last & 0xffff_ffff == others & 0xffff_ffff,
                        "{case}: {last:#x}, {others:#x}"
                    );
                    member.begin(&layouts);
                }
            } else {
                member.post(&layouts, &mut random);
                member.has_ended = random.below(4) == 0;
            }
        }
    }
}

#[test]
fn a_stream_continues_from_view_to_view() {
    continues("unix", || socket_ends(unix_pair(), &USUAL));
    continues("tiny buffers", || socket_ends(unix_pair(), &TINY));
    continues("tcp", || socket_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL));
    continues("tls", || tls_ends(tcp_pair(Ipv4Addr::LOCALHOST), &USUAL));
    continues("tls and tiny buffers", || tls_ends(unix_pair(), &TINY));
}

/// One end turns, and the other can't any more, or does not want to: the stream ends.
#[test]
fn a_stream_that_one_side_turns_ends_with_the_view() {
    let layout = layout(2);
    let [near, far] = socket_ends(unix_pair(), &USUAL);
    let mut near = mesh(&layout, Rank(0), [(Rank(1), near)]);
    let mut far = mesh(&layout, Rank(1), [(Rank(0), far)]);
    near.turn(Rank(1), ViewId(2));
    assert!(near.take_turned(ViewId(2)).is_empty(), "its peer has not");
    put(&mut far, COUNT, 7);
    progress_until(&mut near, "a post", |near| near.load(Rank(1), COUNT) == 7);
    let mut retired = near.retire().unwrap();
    assert!(!retired.progress() && retired.is_open(), "its peer may have to send more");
    // Nothing after the turn is read in this view, not even the end of the stream.
    progress_until(&mut far, "the turn", |far| {
        far.turn(Rank(0), ViewId(2));
        far.is_flushed()
    });
    assert!(far.is_connected(Rank(0)) && far.next_down().is_none());
    let start = Instant::now();
    while !retired.progress() {
        assert!(start.elapsed() < PATIENCE, "its peer needs nothing more");
    }
    let mut turned = vec![];
    progress_until(&mut far, "both turns", |far| {
        turned = far.take_turned(ViewId(2));
        !turned.is_empty()
    });
    let mut next = mesh(&layout, Rank(1), turned);
    assert!(matches!(down(&mut next), (Rank(0), Down::Closed | Down::Os { .. })));
}

fn stranger() -> (Mesh, UnixStream) {
    let [near, mut far] = unix_pair();
    far.write_all(&hello(&[0])).unwrap();
    let stream: Connection = Box::new(SocketStream::new(near, &USUAL).unwrap());
    let mut fabric = mesh(&layout(2), Rank(0), [(Rank(1), stream)]);
    fabric.progress();
    (fabric, far)
}

/// A peer can neither lead this member to another view than was decided, nor end unnoticed in the
/// middle of a turn.
#[test]
fn a_turn_to_another_view_ends_the_stream() {
    let (mut fabric, mut far) = stranger();
    far.write_all(&turn(ViewId(3))).unwrap();
    far.write_all(&[0xff; 5000]).unwrap();
    fabric.turn(Rank(1), ViewId(2));
    let start = Instant::now();
    while fabric.is_connected(Rank(1)) {
        fabric.progress();
        assert!(fabric.take_turned(ViewId(2)).is_empty() && start.elapsed() < PATIENCE);
    }
    let (rank, why) = fabric.next_down().unwrap();
    assert!(matches!((rank, &why), (Rank(1), Down::Astray { turned: ViewId(3), next: ViewId(2) })), "{why}");
    for cut in 1..16 {
        let (mut fabric, mut far) = stranger();
        far.write_all(&turn(ViewId(2))[..cut]).unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        let (_, why) = down(&mut fabric);
        let whole = if cut < 8 { 8 } else { 16 };
        assert!(matches!(why, Down::Broken { missing } if missing == whole - cut as u64), "{cut}: {why}");
    }
}

/// Bytes that wait behind a turn wake no member that can't read them.
#[test]
fn bytes_behind_a_turn_end_no_sleep() {
    let (mut fabric, mut far) = stranger();
    far.write_all(&turn(ViewId(2))).unwrap();
    progress_until(&mut fabric, "a pause", |fabric| {
        fabric.begin_sleep();
        !fabric.sleep(Duration::from_millis(20))
    });
    far.write_all(&[1; 100]).unwrap();
    drop(far);
    assert!(!fabric.sleep(Duration::from_millis(20)), "it was woken");
    fabric.end_sleep();
}

/// The system allows few levels of descriptors that wait for others.
#[test]
fn messages_in_many_older_views_end_a_sleep() {
    const VIEWS: usize = 8;
    let layout = layout(2);
    let (mut older, mut far): (Vec<Mesh>, Vec<Mesh>) = (vec![], vec![]);
    for view in 1..=VIEWS as u64 {
        let [here, there] = socket_ends(unix_pair(), &USUAL);
        let mut newest = mesh(&layout, Rank(0), [(Rank(1), here)]);
        far.push(mesh(&layout, Rank(1), [(Rank(0), there)]));
        older.iter().for_each(|older| newest.wake_by(&layout, older).unwrap());
        let settle = |newest: &mut Mesh, older: &mut [Mesh], far: &mut [Mesh]| {
            let start = Instant::now();
            loop {
                assert!(start.elapsed() < PATIENCE, "something is always ready in view {view}");
                far.iter_mut().chain(older.iter_mut()).chain([&mut *newest]).for_each(|mesh| _ = mesh.progress());
                newest.begin_sleep();
                if !newest.sleep(Duration::from_millis(2)) {
                    return;
                }
            }
        };
        settle(&mut newest, &mut older, &mut far);
        for at in 0..older.len() {
            put(&mut far[at], COUNT, view);
            progress_until(&mut far[at], "a post", |far| far.is_flushed());
            newest.begin_sleep();
            assert!(newest.sleep(PATIENCE), "view {at} did not wake view {view}");
            settle(&mut newest, &mut older, &mut far);
            assert_eq!(older[at].load(Rank(1), COUNT), view);
        }
        // The event count of all of them is the member's.
        newest.begin_sleep();
        newest.doorbell().ring();
        assert!(newest.sleep(PATIENCE));
        settle(&mut newest, &mut older, &mut far);
        newest.end_sleep();
        newest.stand_apart().unwrap();
        older.push(newest);
    }
}

#[test]
fn bytes_that_were_taken_back_come_first_and_in_order() {
    let [near, mut far] = unix_pair();
    far.write_all(b"gh").unwrap();
    let near: Connection = Box::new(SocketStream::new(near, &USUAL).unwrap());
    let mut stream = again(again(near, b"cdef"), b"ab");
    assert!(stream.has_arrived());
    let mut take = |len: usize| {
        let (mut one, mut two) = (vec![0; len], [0; 1]);
        let got = stream.receive(&mut [Space::of(&mut one), Space::of(&mut two)]).unwrap();
        let bytes = [&one[..], &two].concat();
        (String::from_utf8(bytes[..got].to_vec()).unwrap(), stream.has_arrived())
    };
    assert_eq!(take(2), ("abc".to_string(), true));
    assert_eq!(take(4), ("def".to_string(), false));
    assert_eq!(take(4), ("gh".to_string(), false));
}
