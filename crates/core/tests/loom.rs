//! The lock-free parts under loom: every interleaving, and every value that a weak memory order
//! allows, of one or two application threads against an engine. `RUSTFLAGS='--cfg loom' cargo test
//! --release -p spindle-core --test loom`.
//!
//! Frames are stored in cells, and loom reports every unsynchronised access to them. So an order
//! too weak on a mark, the tail, the limit or a hand-off is found as a race on the frame that it
//! should have guarded. Rings hold two frames, and the tests use more than one lap. Atomic header
//! words are plain here, which is stricter than the protocol.
#![cfg(loom)]
use loom::cell::Cell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use spindle_core::wire::layout::Layout;
use spindle_core::wire::ring::{HEADER_BYTES, Kind};
use spindle_core::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64 as Plain, Ordering::Relaxed};

const ALL: SubgroupId = SubgroupId(0);
/// Payload bytes of every message: one word to distinguish them, and one that repeats it.
const LEN: u64 = 16;

/// The sends of a thread: names, and whether they are messages.
type Sends = &'static [(u64, Kind)];

/// Payloads are borrowed as bytes, which cells don't allow: message `n` is represented by the
/// `n`-th of these.
static NAMES: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// One row: control words are atomics, all other words are not.
struct Row {
    control: Vec<AtomicU64>,
    frames: Vec<Cell<u64>>,
}

// SAFETY: loom reports every access to a cell that another thread's is not ordered against, and fails the test.
unsafe impl Sync for Row {}
// SAFETY: cells of integers may move anywhere.
unsafe impl Send for Row {}

impl Row {
    fn new(layout: &Layout, rank: Rank) -> Row {
        let row = layout.row(rank);
        let words = |bytes: u64| 0..bytes / 8;
        Row {
            control: words(row.control).map(|_| AtomicU64::new(0)).collect(),
            frames: words(row.size - row.control).map(|_| Cell::new(0)).collect(),
        }
    }

    fn load(&self, at: u64) -> u64 {
        let word = at as usize / 8;
        match self.control.get(word) {
            Some(word) => word.load(Ordering::Acquire),
            None => self.frames[word - self.control.len()].get(),
        }
    }

    fn store(&self, at: u64, value: u64) {
        let word = at as usize / 8;
        match self.control.get(word) {
            Some(word) => word.store(value, Ordering::Release),
            None => self.frames[word - self.control.len()].set(value),
        }
    }
}

/// One member's copies of all rows.
#[derive(Clone)]
struct Memory {
    me: Rank,
    rows: Vec<Arc<Row>>,
    posts: Vec<(u64, u64)>,
}

impl Memory {
    fn new(layout: &Layout, me: Rank) -> Memory {
        let rows = (0..layout.rows().len() as u32).map(|rank| Arc::new(Row::new(layout, Rank(rank))));
        Memory { me, rows: rows.collect(), posts: vec![] }
    }

    /// Copies posted ranges to `peer`'s copy of this member's row.
    fn deliver(&mut self, peer: &Memory) {
        for (at, value) in self.posts.drain(..) {
            peer.rows[self.me.index()].store(at, value);
        }
    }
}

impl Rows for Memory {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.rows[member.index()].load(at)
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        assert_eq!(len, LEN);
        let (name, again) = (self.load(member, at), self.load(member, at + 8));
        assert_eq!(name, again, "a torn message");
        &NAMES[name as usize..name as usize + 1]
    }

    type Frames<'a> = Lookup<'a, Memory>;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Memory> {
        Lookup::new(self, member, ring)
    }
}

impl Table for Memory {
    fn store(&mut self, at: u64, value: u64) {
        self.rows[self.me.index()].store(at, value);
    }

    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        if peers.iter().all(|peer| *peer == self.me) {
            return;
        }
        let words = range.step_by(8).map(|at| (at, self.rows[self.me.index()].load(at)));
        let words: Vec<_> = words.collect();
        self.posts.extend(words);
    }
}

/// Engines of `members` members, all of which send, with rings of two messages.
fn engines(members: u32) -> Vec<(Engine, Memory)> {
    let ranks: Vec<Rank> = (0..members).map(Rank).collect();
    let subgroup = SubgroupSpec {
        member_rule: Rule::Everyone,
        sender_rule: Rule::Everyone,
        name: "all".into(),
        members: ranks.clone(),
        senders: ranks.clone(),
        order: Order::Total,
        window: 2,
        message_bytes_max: LEN,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    };
    let ids = ranks.iter().map(|rank| MemberId(rank.0.into())).collect();
    let view = View { id: ViewId(1), members: ids, nonvoters: vec![], subgroups: vec![subgroup].into() };
    let member = |&rank: &Rank| {
        let engine = Engine::new(view.clone(), rank, Ablation::default()).unwrap();
        let memory = Memory::new(engine.layout(), rank);
        (engine, memory)
    };
    ranks.iter().map(member).collect()
}

fn fill(row: &Row, claim: &Claim, ring: &Ring, name: u64) {
    let at = claim.payload_offset(ring);
    assert_eq!(at, ring.offset(claim.position()) + HEADER_BYTES);
    row.store(at, name);
    row.store(at + 8, name);
}

/// Sends as one of many claimers; false if the ring is full.
fn send(claims: &Claims, row: &Row, name: u64, kind: Kind) -> bool {
    let Ok(claim) = claims.claim(LEN, |_| {}) else { return false };
    fill(row, &claim, claims.ring(), name);
    claims.commit(claim, kind, LEN, |position, word| row.store(claims.ring().offset(position), word));
    true
}

/// Sends as the only claimer.
fn send_alone(claims: &Claims, holder: &mut Exclusive, row: &Row, name: u64, kind: Kind) {
    let claim = loop {
        match claims.claim_exclusive(holder, LEN, |_| {}) {
            Ok(claim) => break claim,
            Err(_) => thread::yield_now(),
        }
    };
    fill(row, &claim, claims.ring(), name);
    row.store(claims.ring().offset(claim.position()) + 8, claims.guess_round(holder));
    claims.commit_exclusive(holder, claim, kind, LEN, |position, word| {
        row.store(claims.ring().offset(position), word);
    });
}

fn poll(engine: &mut Engine, memory: &mut Memory, delivered: &mut Vec<(u32, u8)>) -> bool {
    let mut upcall = |_: SubgroupId, batch: &mut Batch<'_, Memory>| {
        batch.for_each(|message| delivered.push((message.sender.0, message.payload[0])));
    };
    let progress = engine.poll(Time(0), memory, &mut upcall);
    assert_eq!(*engine.state(), State::Running);
    progress.worked
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let runs = std::sync::Arc::new(Plain::new(0));
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        run();
    });
    println!("{} executions", runs.load(Relaxed));
}

/// Two threads claim and commit, and the engine announces, delivers and frees. No thread waits: a
/// thread that finds the ring full does not send that message at all, so that every execution is
/// short.
fn many_claimers(preemptions: usize, polls: usize, first: Sends, second: Sends) {
    let sends = [first, second];
    let frames_max = std::sync::Arc::new(Plain::new(0));
    let most = frames_max.clone();
    model(preemptions, move || {
        let (mut engine, mut memory) = engines(1).pop().unwrap();
        let claims = engine.claims(ALL).unwrap();
        let row = Arc::clone(&memory.rows[0]);
        // The ring is full: the messages that the threads send are stored where other messages were
        // read.
        assert!(send(&claims, &row, 14, Kind::Message) && send(&claims, &row, 15, Kind::Message));
        let claimers = sends.map(|list| {
            let (claims, row) = (claims.clone(), row.clone());
            thread::spawn(move || {
                list.iter().filter(|(name, kind)| send(&claims, &row, *name, *kind)).copied().collect::<Vec<_>>()
            })
        });
        let mut delivered = vec![];
        for _ in 0..polls {
            poll(&mut engine, &mut memory, &mut delivered);
        }
        let sent = claimers.map(|claimer| claimer.join().unwrap());
        while poll(&mut engine, &mut memory, &mut delivered) {}
        let mut messages = 2;
        for list in &sent {
            let wanted: Vec<u8> = list.iter().filter(|m| m.1 == Kind::Message).map(|m| m.0 as u8).collect();
            let got: Vec<u8> = delivered.iter().map(|m| m.1).filter(|name| wanted.contains(name)).collect();
            assert_eq!(got, wanted, "each once, in the order of its sender");
            messages += wanted.len();
        }
        assert_eq!(delivered.len(), messages);
        let frames = sent.iter().map(|list| list.len() as u64).sum();
        assert_eq!(engine.frontiers(ALL).next().unwrap().1.rounds, 2 + frames);
        most.fetch_max(frames, Relaxed);
    });
    assert!(frames_max.load(Relaxed) >= 2, "the ring was gone round");
}

#[test]
fn two_claimers_and_an_engine() {
    many_claimers(3, 2, &[(0, Kind::Message), (1, Kind::Message)], &[(8, Kind::Message)]);
}

#[test]
fn two_claimers_that_give_up_space() {
    many_claimers(
        2,
        2,
        &[(0, Kind::Message), (1, Kind::Void), (2, Kind::Message)],
        &[(8, Kind::Void), (9, Kind::Message)],
    );
}

/// One thread claims exclusively while nulls come between its frames, because the peer sends as
/// well.
fn exclusive_claimer(preemptions: usize, sends: Sends, shared_after: bool) {
    model(preemptions, move || {
        let [(mut engine, mut memory), (mut peer, mut peers)] = <[_; 2]>::try_from(engines(2)).ok().unwrap();
        let (claims, row) = (engine.claims(ALL).unwrap(), Arc::clone(&memory.rows[0]));
        let claimer = thread::spawn(move || {
            let mut holder = claims.begin_exclusive();
            for (name, kind) in sends {
                send_alone(&claims, &mut holder, &row, *name, *kind);
            }
            claims.end_exclusive(holder);
            if shared_after {
                while !send(&claims, &row, 7, Kind::Message) {
                    thread::yield_now();
                }
            }
        });
        assert!(send(&peer.claims(ALL).unwrap(), &peers.rows[1], 8, Kind::Message));
        let mut mine: Vec<u8> = sends.iter().filter(|(_, kind)| *kind == Kind::Message).map(|m| m.0 as u8).collect();
        mine.extend(shared_after.then_some(7));
        let (mut here, mut there) = (vec![], vec![]);
        while here.len().min(there.len()) < mine.len() + 1 {
            let mut worked = poll(&mut peer, &mut peers, &mut there);
            peers.deliver(&memory);
            worked |= poll(&mut engine, &mut memory, &mut here);
            memory.deliver(&peers);
            if !worked {
                thread::yield_now();
            }
        }
        claimer.join().unwrap();
        assert_eq!(here, there, "one order");
        let from = |sender| here.iter().filter(|m| m.0 == sender).map(|m| m.1).collect::<Vec<_>>();
        assert_eq!((from(0), from(1)), (mine, vec![8]));
    });
}

#[test]
fn an_exclusive_claimer_and_an_engine_that_fills_in_nulls() {
    exclusive_claimer(2, &[(0, Kind::Message), (1, Kind::Message)], false);
}

#[test]
#[ignore = "takes long: cargo xtask loom --long"]
fn long_an_exclusive_claimer_and_an_engine_that_fills_in_nulls() {
    exclusive_claimer(2, &[(0, Kind::Message), (1, Kind::Message), (2, Kind::Message)], false);
}

#[test]
fn an_exclusive_claimer_that_becomes_one_of_many() {
    exclusive_claimer(2, &[(0, Kind::Void)], true);
}

/// A consumer on another thread reads in place and reports. The engine frees the reported frames,
/// and the ring is reused.
fn consumer_on_another_thread(preemptions: usize) {
    model(preemptions, || {
        let (mut engine, mut memory) = engines(1).pop().unwrap();
        let claims = engine.claims(ALL).unwrap();
        let (mut cursor, handoff) = engine.hand_off(ALL).unwrap();
        let rows = memory.clone();
        let consumer = thread::spawn(move || {
            let mut taken = vec![];
            while taken.len() < 4 {
                let frontier = handoff.frontier();
                if !cursor.is_behind(frontier) {
                    thread::yield_now();
                    continue;
                }
                let mut batch = cursor.advance(&rows, frontier);
                // By reference: on the batch itself this would be the iterator's method.
                let walk = &mut batch;
                walk.for_each(|message| taken.push(message.payload[0]));
                batch.report(&handoff);
                assert_eq!(cursor.defect(), None);
            }
            assert_eq!(taken, [0, 1, 2, 3]);
        });
        let row = Arc::clone(&memory.rows[0]);
        let mut holder = claims.begin_exclusive();
        let mut none = vec![];
        for name in 0..4 {
            let claim = loop {
                match claims.claim_exclusive(&mut holder, LEN, |_| {}) {
                    Ok(claim) => break claim,
                    Err(_) if poll(&mut engine, &mut memory, &mut none) => {}
                    Err(_) => thread::yield_now(),
                }
            };
            fill(&row, &claim, claims.ring(), name);
            row.store(claims.ring().offset(claim.position()) + 8, claims.guess_round(&holder));
            claims.commit_exclusive(&mut holder, claim, Kind::Message, LEN, |position, word| {
                row.store(claims.ring().offset(position), word);
            });
        }
        while poll(&mut engine, &mut memory, &mut none) {}
        consumer.join().unwrap();
        while poll(&mut engine, &mut memory, &mut none) {}
        assert_eq!(engine.frontiers(ALL).next().unwrap().1.delivered, 4);
        assert_eq!(engine.subgroup_stats(ALL).unwrap().delivered, 4);
    });
}

#[test]
fn a_consumer_on_another_thread() {
    consumer_on_another_thread(2);
}

#[test]
#[ignore = "takes long: cargo xtask loom --long"]
fn long_a_consumer_on_another_thread() {
    consumer_on_another_thread(3);
}
