use super::*;
use crate::arena::Arena;
use crate::conformance::view;
use crate::fabric::Fabric;
use crate::member_event_count::MemberEventCount;
use crate::mesh::{Mesh, Peer};
use crate::shm::OwnRow;
use crate::tcp::settle;
use spindle_core::{Layout, Rank, Rows, Table};
use spindle_transport::{SocketOptions, SocketStream};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn copy(mirror: &Mirror, bytes: u64) -> Arc<CopyRegion> {
    mirror.copy("test", bytes).unwrap()
}

fn place(copy: &CopyRegion) -> (u64, u64) {
    (copy.chunk().0.id(), copy.chunk().1)
}

fn is_zero(copy: &CopyRegion) -> bool {
    (0..copy.size()).step_by(8).all(|at| copy.load(at) == 0)
}

/// Pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }
}

#[test]
fn the_place_of_a_copy_is_free_when_its_last_reader_has_gone() {
    let mirror = Mirror::new();
    let first = copy(&mirror, 3 * page_bytes());
    first.fill(9000, &[1; 200]);
    let (at, reader) = (place(&first), Arc::clone(&first));
    drop(first);
    let second = copy(&mirror, 3 * page_bytes());
    assert_ne!(place(&second), at);
    drop(reader);
    let third = copy(&mirror, 3 * page_bytes());
    assert_eq!(place(&third), at);
    assert!(is_zero(&third));
}

/// A copy keeps the memory of a mirror that is gone, because an application may continue to read
/// when its member has ended.
#[test]
fn a_copy_outlives_the_mirror() {
    let mirror = Mirror::new();
    let first = copy(&mirror, 64);
    first.store_words(0, &7_u64.to_le_bytes());
    drop(mirror);
    assert_eq!(first.load(0), 7);
}

#[test]
fn a_copy_that_is_too_long_is_an_error() {
    let mirror = Mirror::new();
    for bytes in [u64::MAX, u64::MAX / 2, 1 << 63] {
        assert!(matches!(mirror.copy("test", bytes), Err(RegionError::TooLong { .. })), "{bytes}");
    }
    assert_eq!(mirror.size(), 0);
}

/// The copies of one view, as held by its readers: a place is reused only when all readers of the
/// view are gone.
struct Seen {
    number: u64,
    copies: Vec<(u64, Arc<CopyRegion>)>,
}

impl Seen {
    /// Fills parts of the copies with their marks, as streams do.
    fn fill(&self, chance: &mut Chance) {
        for (mark, copy) in &self.copies {
            copy.store_words(0, &mark.to_le_bytes());
            copy.store_words(copy.size() - 8, &mark.to_le_bytes());
            for _ in 0..chance.below(5) {
                let len = 8 * (1 + chance.below(copy.size() / 8));
                let at = 8 * chance.below((copy.size() - len) / 8 + 1);
                copy.fill(at, &mark.to_le_bytes().repeat(len as usize / 8));
            }
        }
    }

    fn check(&self) {
        for (mark, copy) in &self.copies {
            let (first, last) = (copy.load(0), copy.load(copy.size() - 8));
            assert!(first == *mark && last == *mark, "a copy of view {} was overwritten", self.number);
            let is_mine = |at| [0, *mark].contains(&copy.load(at));
            assert!((0..copy.size()).step_by(1024).all(is_mine), "a copy of view {} was overwritten", self.number);
        }
    }

    fn bytes(&self) -> u64 {
        self.copies.iter().map(|(_, copy)| copy.size().next_multiple_of(page_bytes())).sum()
    }
}

/// Members join and leave, so that rows grow and shrink; applications keep old views as long as
/// they like.
#[test]
fn views_come_and_go_for_years_in_memory_that_stays_bounded() {
    let views = if cfg!(miri) { 12 } else { 6_000 };
    for seed in 1..=if cfg!(miri) { 1 } else { 4 } {
        let (mirror, mut chance) = (Mirror::new(), Chance(seed * 0x9e37_79b9));
        let (mut members, mut window, mut marks, mut most) = (3, 1, 0, 0);
        let mut read: Vec<Seen> = vec![];
        for number in 1..=views {
            match chance.below(8) {
                0 if members < 9 => members += 1,
                1 if members > 1 => members -= 1,
                2 => window = 1 + chance.below(40),
                _ => {}
            }
            let copies = (0..members).map(|rank| {
                marks += 1;
                // A word for each member, and a ring, which some members have.
                let ring = if rank % 3 == 2 { 0 } else { 1000 * window };
                let copy = copy(&mirror, 512 * members + ring / 8 * 8);
                assert!(is_zero(&copy), "seed {seed}, view {number}");
                (marks, copy)
            });
            let view = Seen { number, copies: copies.collect() };
            mirror.trim();
            view.fill(&mut chance);
            read.push(view);
            let places: Vec<_> = read.iter().flat_map(|seen| &seen.copies).map(|(_, copy)| place(copy)).collect();
            assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
            read.iter().for_each(Seen::check);
            most = most.max(read.iter().map(Seen::bytes).sum());
            let bound = 6 * most;
            assert!(mirror.size() <= bound, "seed {seed}, view {number}: {} of {bound} bytes", mirror.size());
            while read.len() as u64 > 1 + chance.below(4) {
                read.remove(chance.below(read.len() as u64) as usize);
            }
        }
        // The memory of long rows is released.
        read.clear();
        let last = copy(&mirror, page_bytes());
        mirror.trim();
        assert!(mirror.size() <= 16 * last.size(), "{} bytes for one small row", mirror.size());
    }
}

#[test]
#[cfg_attr(miri, ignore = "its rows are long")]
fn the_copies_of_the_same_rows_take_turns_in_the_same_memory() {
    for bytes in [64 << 10, 17 << 20] {
        let mirror = Mirror::new();
        let (mut places, mut last) = (BTreeSet::new(), vec![]);
        for _ in 0..8 {
            let view: Vec<_> = (0..3).map(|_| copy(&mirror, bytes)).collect();
            mirror.trim();
            view.iter().for_each(|copy| copy.fill(copy.size() - 8, &[1; 8]));
            places.extend(view.iter().map(|copy| place(copy)));
            last = view;
        }
        assert_eq!(places.len(), 6, "of {} copies at a time", 2 * last.len());
    }
}

/// Two members on different hosts go through views. In each view each member reads zeros before the
/// other posts. Their applications still read the view before.
#[test]
#[cfg_attr(miri, ignore = "it has sockets")]
fn the_copies_of_meshes_take_turns_in_the_memory_of_their_members() {
    let usual = SocketOptions { send_buffer_bytes: None, receive_buffer_bytes: None, silence_ms: None };
    let layout = Layout::new(&view(2, 64)).unwrap();
    let mut arenas = [(); 2].map(|()| Arena::new(MemberEventCount::with_event().unwrap()));
    let (mut last, mut places) = (None, BTreeSet::new());
    for view in 1..8 {
        let [near, far] = std::os::unix::net::UnixStream::pair().unwrap().into();
        let mut meshes: Vec<_> = (0..)
            .zip(arenas.iter_mut().zip([near, far]))
            .map(|(rank, (arena, socket))| {
                let stream = Peer::There(Box::new(SocketStream::new(socket, &usual).unwrap()));
                let (own, _) = OwnRow::create(&layout, Rank(rank), arena).unwrap();
                Mesh::new(&layout, own, [(Rank(1 - rank), Some(stream))]).unwrap()
            })
            .collect();
        let size = layout.row(Rank(0)).size;
        for (me, mesh) in (0..).zip(&mut meshes) {
            assert!((0..size).step_by(8).all(|at| mesh.load(Rank(1 - me), at) == 0), "view {view}");
            places.insert((me, place(&mesh.copy(Rank(1 - me)))));
            (0..size).step_by(8).for_each(|at| mesh.store(at, view));
            mesh.post(&[Rank(1 - me)], layout.row(Rank(me)).control..size);
            mesh.post(&[Rank(1 - me)], 0..layout.row(Rank(me)).control);
        }
        settle(&mut meshes);
        let readers = [meshes[0].reader(), meshes[1].reader()];
        let shows = |readers: &[crate::Reader; 2], view| {
            let reads = |me: usize| readers[me].load(Rank(1 - me as u32), size - 8) == view;
            reads(0) && reads(1)
        };
        assert!(shows(&readers, view));
        if let Some(last) = last.replace(readers) {
            assert!(shows(&last, view - 1), "view {view}");
        }
    }
    // Each member has two places: for the newest view and for the one before.
    assert_eq!(places.len(), 4);
}

/// Measures the time to make the copies of seven rows for a view, and to drop those of the view
/// before: on the heap, and in a mirror.
#[test]
#[ignore = "it measures"]
fn copies_on_the_heap_and_in_a_mirror() {
    const PEERS: usize = 7;
    const VIEWS: u32 = 20;
    let heap = |bytes| Arc::new(CopyRegion::on_heap("test", bytes).unwrap());
    // The part of each row that a view has used.
    for (bytes, used) in [(1_u64 << 20, 1), (1 << 20, 16), (16 << 20, 1), (16 << 20, 16), (16 << 20, 1024)] {
        let mirror = Mirror::new();
        let (mut times, mut last) = ([Duration::ZERO; 2], [vec![], vec![]]);
        let frames = vec![1; (bytes / used) as usize];
        for view in 0..VIEWS + 2 {
            for way in 0..2 {
                let start = Instant::now();
                let copies: Vec<_> =
                    (0..PEERS).map(|_| if way == 0 { heap(bytes) } else { copy(&mirror, bytes) }).collect();
                mirror.trim();
                // Both reuse old memory from the third view on.
                times[way] += if view < 2 { Duration::ZERO } else { start.elapsed() };
                copies.iter().for_each(|copy| copy.fill(0, &frames));
                let old = std::mem::replace(&mut last[way], copies);
                let start = Instant::now();
                drop(old);
                times[way] += if view < 2 { Duration::ZERO } else { start.elapsed() };
            }
        }
        let [heap, mirror] = times.map(|time| time.as_micros() as u64 / u64::from(VIEWS));
        println!("{PEERS} rows of {bytes} bytes, 1/{used} used: heap {heap} us, mirror {mirror} us");
    }
}
