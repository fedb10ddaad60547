//! Tests of the pointer code between a publisher and the readers of its ring, on heap memory:
//! leases, frames, commits from several threads, deliveries in place, copies that posts fill. These
//! tests need no mapping, so Miri can run them (`cargo xtask miri`). Miri checks every access for
//! races, bounds and provenance.
use crate::event_count::EventCount;
use crate::publisher::Publisher;
use crate::reader::{Reader, ReaderFrames, RowMemory};
use crate::region::{CopyRegion, OwnRegion};
use spindle_core::{
    Ablation, Batch, Engine, MemberId, Rank, Ring, Rows, SubgroupId, SubgroupSpec, Table, Time, View, ViewId,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A member's own row and its copies of the others', which posts fill at once.
struct RowPointers {
    me: Rank,
    row: Arc<OwnRegion>,
    reader: Reader,
    /// By rank: the copy of this member's row that each other member has.
    copies: Vec<Option<Arc<CopyRegion>>>,
    control: u64,
}

impl Rows for RowPointers {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.reader.load(member, at)
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.reader.bytes(member, at, len)
    }

    type Frames<'a> = ReaderFrames<'a>;

    fn frames(&self, member: Rank, ring: &Ring) -> ReaderFrames<'_> {
        self.reader.frames(member, ring)
    }
}

impl Table for RowPointers {
    fn store(&mut self, at: u64, value: u64) {
        self.row.store(at, value);
    }

    fn stamp(&mut self, ring: &Ring, position: u64, round: u64) {
        self.row.stamp(ring, position, round);
    }

    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        for copy in peers.iter().filter_map(|peer| self.copies[peer.index()].as_ref()) {
            if range.start < self.control {
                let words: Vec<u8> = range.clone().step_by(8).flat_map(|at| self.row.load(at).to_le_bytes()).collect();
                copy.store_words(range.start, &words);
            } else {
                copy.fill(range.start, self.row.announced(&range));
            }
        }
    }
}

/// Creates a group of this many members, whose rings hold two messages of 40 bytes.
fn group(members: u32) -> Vec<(Engine, RowPointers, Publisher)> {
    let ranks: Vec<Rank> = (0..members).map(Rank).collect();
    let spec = SubgroupSpec {
        members: ranks.clone(),
        senders: ranks.clone(),
        window: 2,
        message_bytes_max: 40,
        ..SubgroupSpec::of_everyone("s")
    };
    let view = View {
        id: ViewId(1),
        members: (1..=u64::from(members)).map(MemberId).collect(),
        nonvoters: vec![],
        subgroups: vec![spec].into(),
    };
    let engines: Vec<Engine> =
        ranks.iter().map(|rank| Engine::new(view.clone(), *rank, Ablation::default()).unwrap()).collect();
    let layout = engines[0].layout();
    let row = |rank: Rank| {
        let row = layout.row(rank);
        Arc::new(OwnRegion::on_heap("row", row.size, row.control).unwrap())
    };
    let copy = |of: Rank| Arc::new(CopyRegion::on_heap("copy", layout.row(of).size).unwrap());
    let rows: Vec<_> = ranks.iter().map(|rank| row(*rank)).collect();
    // By owner, and by reader.
    let copies: Vec<Vec<Option<_>>> =
        ranks.iter().map(|of| ranks.iter().map(|at| (of != at).then(|| copy(*of))).collect()).collect();
    let desks: Vec<RowPointers> = ranks
        .iter()
        .map(|&me| {
            let held = |of: &Rank| match &copies[of.index()][me.index()] {
                Some(copy) => RowMemory::Copy(Arc::clone(copy)),
                None => RowMemory::Own(Arc::clone(&rows[me.index()])),
            };
            RowPointers {
                me,
                row: Arc::clone(&rows[me.index()]),
                reader: Reader::of(ranks.iter().map(held).collect()),
                copies: copies[me.index()].clone(),
                control: layout.row(me).control,
            }
        })
        .collect();
    let publisher = |engine: &Engine, desk: &RowPointers| {
        Publisher::new(
            &desk.row,
            engine.claims(SubgroupId(0)).unwrap(),
            EventCount::new().doorbell(),
            Default::default(),
        )
    };
    let publishers: Vec<Publisher> = engines.iter().zip(&desks).map(|(engine, desk)| publisher(engine, desk)).collect();
    engines
        .into_iter()
        .zip(desks)
        .zip(publishers)
        .map(|((engine, desk), publisher)| (engine, desk, publisher))
        .collect()
}

/// Polls all members until each has delivered this many messages. Returns the messages.
fn deliver(members: &mut [(Engine, RowPointers)], count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut delivered = vec![vec![]; members.len()];
    while delivered.iter().any(|list: &Vec<Vec<u8>>| list.len() < count) {
        for (engine, desk) in members.iter_mut() {
            let list = &mut delivered[desk.me.index()];
            let mut upcall = |_: SubgroupId, batch: &mut Batch<'_, RowPointers>| {
                batch.for_each(|message| list.push(message.payload.to_vec()));
            };
            engine.poll(Time(0), desk, &mut upcall);
        }
        std::thread::yield_now();
    }
    delivered
}

/// Reports that the thread that delivers has panicked, so that no more room is made. Relaxed,
/// because the tests must not order anything themselves.
#[derive(Default)]
struct DeliveryPanic(AtomicBool);

struct Stopping<'a>(&'a DeliveryPanic);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl DeliveryPanic {
    /// Yields to the other threads. Panics if that is pointless because the other thread has ended.
    fn wait(&self) {
        assert!(!self.0.load(Ordering::Relaxed), "the other thread has ended");
        std::thread::yield_now();
    }
}

fn payload(thread: u8, i: u8) -> Vec<u8> {
    vec![thread << 6 | i; usize::from(i) % 41]
}

const COUNT: u8 = 12;

#[test]
fn one_thread_writes_frames_while_another_delivers_them_in_place() {
    let (engine, desk, mut publisher) = group(1).remove(0);
    let stop = &DeliveryPanic::default();
    std::thread::scope(|scope| {
        let _stopping = Stopping(stop);
        scope.spawn(move || {
            for i in 0..COUNT {
                let bytes = payload(0, i);
                let mut frame = loop {
                    match publisher.claim(40) {
                        Ok(frame) => break frame,
                        Err(_) => stop.wait(),
                    }
                };
                frame[..bytes.len()].copy_from_slice(&bytes);
                frame.commit_len(bytes.len() as u64);
                // A frame that is given up, and one that is leaked.
                drop(publisher.claim(8));
                std::mem::forget(publisher.claim(8));
            }
        });
        let delivered = deliver(&mut [(engine, desk)], COUNT.into());
        assert_eq!(delivered[0], (0..COUNT).map(|i| payload(0, i)).collect::<Vec<_>>());
    });
}

#[test]
fn many_threads_write_frames_of_one_ring() {
    let (engine, desk, publisher) = group(1).remove(0);
    let shared = publisher.share();
    let stop = &DeliveryPanic::default();
    std::thread::scope(|scope| {
        let _stopping = Stopping(stop);
        for thread in 0..2 {
            let shared = shared.clone();
            scope.spawn(move || {
                for i in 0..COUNT {
                    let bytes = payload(thread, i);
                    let mut frame = loop {
                        match shared.claim(bytes.len() as u64) {
                            Ok(frame) => break frame,
                            Err(_) => stop.wait(),
                        }
                    };
                    frame.copy_from_slice(&bytes);
                    frame.commit();
                }
            });
        }
        let delivered = deliver(&mut [(engine, desk)], 2 * usize::from(COUNT));
        let expected = |thread| (1..COUNT).map(|i| payload(thread, i)).collect::<Vec<_>>();
        for thread in 0..2 {
            let of = |bytes: &&Vec<u8>| bytes.first().is_some_and(|byte| byte >> 6 == thread);
            assert_eq!(delivered[0].iter().filter(of).cloned().collect::<Vec<_>>(), expected(thread));
        }
    });
}

/// Rings wrap, and frames run past their ends.
#[test]
fn copies_that_posts_fill_are_read_in_place() {
    let mut publishers = vec![];
    let mut members = vec![];
    for (engine, desk, publisher) in group(2) {
        members.push((engine, desk));
        publishers.push(publisher);
    }
    let mut all = vec![vec![]; 2];
    for i in 0..COUNT {
        for (thread, publisher) in (0..).zip(&mut publishers) {
            let bytes = payload(thread, 28 + i);
            let mut frame = publisher.claim(bytes.len() as u64).unwrap();
            frame.copy_from_slice(&bytes);
            frame.commit();
        }
        for (all, delivered) in all.iter_mut().zip(deliver(&mut members, 2)) {
            all.extend(delivered);
        }
        // Until the rings are free again.
        for _ in 0..4 {
            for (engine, desk) in &mut members {
                engine.poll(Time(0), desk, &mut |_: SubgroupId, _: &mut Batch<'_, RowPointers>| {});
            }
        }
    }
    let expected: Vec<_> = (0..COUNT).flat_map(|i| [payload(0, 28 + i), payload(1, 28 + i)]).collect();
    assert!(all.iter().all(|all| *all == expected), "{all:?}");
}
