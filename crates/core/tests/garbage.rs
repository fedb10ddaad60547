//! A peer's memory may contain anything. An engine, and a cursor on another thread, read random
//! data, torn announcements and counters that go back. They either continue or stop with a fault
//! that names the peer: no panic, no endless poll, and no store except into the own row.
//!
//! A failure prints its seed; `GARBAGE_SEED=n cargo test -p spindle-core --test garbage` runs that
//! case alone.
use spindle_core::wire::layout::{LINE_BYTES, entry, membership};
use spindle_core::wire::ring::{HEADER_BYTES, Header, Kind, frame_bytes};
use spindle_core::*;
use std::cell::Cell;
use std::ops::Range;

/// Loads that one call may make before it counts as hung: far more than the headers of all frames
/// of all rings.
const LOADS_MAX: u64 = 1_000_000;
const CASES: u64 = if cfg!(miri) { 200 } else { 100_000 };

/// Rows as `me` sees them: a store is a post.
struct Memory {
    me: Rank,
    rows: Vec<Vec<u8>>,
    loads: Cell<u64>,
}

impl Memory {
    fn put(&mut self, member: Rank, at: u64, value: u64) {
        self.rows[member.index()][at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }
}

impl Rows for Memory {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.loads.set(self.loads.get() + 1);
        assert!(self.loads.get() < LOADS_MAX, "no end of loads");
        assert!(at.is_multiple_of(8), "unaligned load at {at}");
        u64::from_le_bytes(self.rows[member.index()][at as usize..at as usize + 8].try_into().unwrap())
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        &self.rows[member.index()][at as usize..(at + len) as usize]
    }

    type Frames<'a> = Lookup<'a, Memory>;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Memory> {
        Lookup::new(self, member, ring)
    }
}

impl Table for Memory {
    fn store(&mut self, at: u64, value: u64) {
        assert!(at.is_multiple_of(8), "unaligned store at {at}");
        self.put(self.me, at, value);
    }

    fn post(&mut self, _: &[Rank], range: Range<u64>) {
        assert!(range.start <= range.end && range.end <= self.rows[self.me.index()].len() as u64);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// A random number that is often an edge case.
    fn nasty(&mut self) -> u64 {
        let edge = [0, 1, 8, 16, 64, 1 << 31, 1 << 32, 1 << 47, 1 << 48, 1 << 56, 1 << 58, 1 << 63, u64::MAX];
        match self.below(5) {
            0 => self.next(),
            1 => self.next() >> self.below(64),
            2 => self.below(40),
            3 => edge[self.below(edge.len() as u64) as usize],
            _ => edge[self.below(edge.len() as u64) as usize].wrapping_add(self.below(5)).wrapping_sub(2),
        }
    }

    /// A subset, in order; not empty.
    fn some_of(&mut self, ranks: &[Rank]) -> Vec<Rank> {
        let keep = self.below(ranks.len() as u64) as usize;
        (0..).zip(ranks).filter(|(i, _)| *i == keep || self.below(2) == 0).map(|(_, rank)| *rank).collect()
    }
}

/// Prints the seed if the test panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: GARBAGE_SEED={} cargo test -p spindle-core --test garbage", self.0);
        }
    }
}

fn view(random: &mut Random) -> View {
    // Sometimes many members: values that are multiplied by the number of senders get largest
    // there.
    let members = if random.chance(400) { 100 } else { 2 + random.below(3) };
    let ranks: Vec<Rank> = (0..members as u32).map(Rank).collect();
    let subgroups = (0..1 + random.below(2)).map(|i| {
        let members = if random.chance(2) { ranks.clone() } else { random.some_of(&ranks) };
        SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: format!("s{i}"),
            senders: if random.chance(2) { members.clone() } else { random.some_of(&members) },
            members,
            order: if random.chance(3) { Order::Fifo } else { Order::Total },
            window: 1 + random.below(6),
            message_bytes_max: random.below(120),
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        }
    });
    let subgroups = subgroups.collect();
    View {
        id: ViewId(1),
        members: ranks.iter().map(|rank| MemberId(rank.0.into())).collect(),
        nonvoters: vec![],
        subgroups,
    }
}

/// The behaviour of one faulty peer. It also sends plausible values, so that its garbage is found
/// deep inside.
struct Liar {
    rank: Rank,
    subgroup: SubgroupId,
    position: u64,
    round: u64,
}

impl Liar {
    fn act(&mut self, random: &mut Random, layout: &Layout, memory: &mut Memory) {
        let row = layout.row(self.rank);
        match random.below(10) {
            0 => {
                let at = random.below(row.size / 8) * 8;
                memory.put(self.rank, at, random.nasty());
            }
            1 => {
                let at = random.below(row.control / 8) * 8;
                memory.put(self.rank, at, random.nasty());
            }
            2 => {
                memory.put(self.rank, [membership::FINISHED, membership::LEFT][random.below(2) as usize], random.next())
            }
            3..6 => {
                // Acknowledges all possible sequence numbers.
                let Some(place) = row.subgroup(self.subgroup) else { return };
                let count = if random.chance(8) { random.nasty() } else { random.below(200) };
                for at in (place.entry + entry::RECEIVED..place.entry + LINE_BYTES)
                    .chain(place.by_sender..place.end)
                    .step_by(8)
                {
                    memory.put(self.rank, at, count);
                }
            }
            _ => self.speak(random, layout, memory),
        }
    }

    /// Announces frames, most of which are valid.
    fn speak(&mut self, random: &mut Random, layout: &Layout, memory: &mut Memory) {
        let Some(place) = layout.row(self.rank).subgroup(self.subgroup) else { return };
        let Some(ring) = place.ring else { return };
        for _ in 0..1 + random.below(4) {
            let len = random.below(ring.message_bytes_max + 1);
            let mut span = frame_bytes(len);
            let kind = if random.chance(6) { Kind::Void } else { Kind::Message };
            let mut word = Header { kind, span, len }.encode();
            let mut round = self.round;
            match random.below(20) {
                0 => word = random.nasty(),
                1 => round = random.nasty(),
                2 => round = round.saturating_add(random.below(3)),
                3 => {
                    // Longer than allowed, within the largest span.
                    span = ring.frame_bytes_max;
                    word = Header { kind, span, len: span - HEADER_BYTES }.encode();
                }
                4 => word = word & !(0xff_ffff << 32) | random.below(1 << 24) << 32,
                _ => {}
            }
            let at = ring.offset(self.position);
            memory.put(self.rank, at, word);
            memory.put(self.rank, at + 8, round);
            self.position = ring.after(self.position, span);
            self.round = round.saturating_add(1);
        }
        let mut words = [(entry::PUBLISHED, self.position), (entry::SPOKEN, self.round), (entry::ROUNDS, self.round)];
        if random.chance(6) {
            words[random.below(3) as usize].1 = random.nasty();
        }
        if random.chance(8) {
            let word = &mut words[random.below(3) as usize].1;
            *word = word.wrapping_add(random.below(64)).wrapping_sub(32);
        }
        for (i, (at, value)) in words.into_iter().enumerate() {
            // Torn: the remaining words do not arrive.
            if i == 0 || !random.chance(12) {
                memory.put(self.rank, place.entry + at, value);
            }
        }
    }
}

fn walk<R: Rows>(batch: &mut Batch<'_, R>, how: u64, limit: u64) {
    let mut bytes = 0;
    match how {
        0 => batch.for_each(|message| bytes += message.payload.iter().map(|b| u64::from(*b)).sum::<u64>()),
        1 => bytes = batch.by_ref().take(limit as usize).map(|message| message.payload.len() as u64).sum(),
        2 => bytes = batch.by_ref().map(|message| message.payload.len() as u64).sum(),
        _ => {}
    }
    std::hint::black_box(bytes);
}

#[derive(Default, Debug)]
struct Seen {
    counters: u64,
    frames: u64,
    cursors: u64,
    others: u64,
    running: u64,
    finished: u64,
    messages: u64,
}

fn case(seed: u64, seen: &mut Seen) {
    let _seed = Seed(seed);
    let random = &mut Random(seed);
    let view = view(random);
    let me = Rank(random.below(view.members.len() as u64) as u32);
    let mut on = || !random.chance(8);
    let ablation = Ablation {
        send_batch: on(),
        receive_batch: on(),
        delivery_batch: on(),
        null_sends: on(),
        coalesced_control: on(),
        deferred_posts: on(),
        epochs: on(),
    };
    let mut engine = Engine::new(view.clone(), me, ablation).unwrap();
    let layout = engine.layout().clone();
    let others: Vec<Rank> = view.ranks().filter(|rank| *rank != me).collect();
    // The other peers are silent, and must not be blamed.
    let liars = if random.chance(2) { others } else { random.some_of(&others) };
    let mut faces: Vec<Liar> = liars
        .iter()
        .flat_map(|&rank| {
            (0..view.subgroups.len() as u32).map(move |i| Liar { rank, subgroup: SubgroupId(i), position: 0, round: 0 })
        })
        .collect();
    let rows = layout.rows().iter().map(|row| vec![0; row.size as usize]).collect();
    let mut memory = Memory { me, rows, loads: Cell::new(0) };
    let mut consumer = if random.chance(2) { engine.hand_off(SubgroupId(0)) } else { None };

    for _ in 0..1 + random.below(24) {
        let acts = 1 + random.below(2 * faces.len() as u64);
        for _ in 0..acts {
            let face = random.below(faces.len() as u64) as usize;
            faces[face].act(random, &layout, &mut memory);
        }
        for id in (0..view.subgroups.len() as u32).map(SubgroupId) {
            let Some(claims) = engine.claims(id) else { continue };
            for _ in 0..random.below(3) {
                let len = random.below(claims.ring().message_bytes_max + 1);
                if let Ok(claim) = claims.claim(len, |_| {}) {
                    let kind = if random.chance(5) { Kind::Void } else { Kind::Message };
                    claims
                        .commit(claim, kind, len, |position, word| memory.store(claims.ring().offset(position), word));
                }
            }
            if random.chance(40) {
                claims.close();
            }
        }
        let peers = |memory: &Memory| {
            let mut rows = memory.rows.clone();
            rows[me.index()].clear();
            rows
        };
        let before = peers(&memory);
        for _ in 0..1 + random.below(6) {
            let (how, limit) = (random.below(4), random.below(4));
            memory.loads.set(0);
            engine.poll(Time(0), &mut memory, &mut |_: SubgroupId, batch: &mut Batch<'_, Memory>| {
                walk(batch, how, limit);
                seen.messages += batch.messages();
            });
            memory.loads.set(0);
            if let Some((cursor, handoff)) = &mut consumer {
                let mut batch = cursor.advance(&memory, handoff.frontier());
                walk(&mut batch, how, limit);
                seen.messages += batch.messages();
                batch.report(handoff);
                if let Some(defect) = cursor.defect() {
                    assert!(liars.contains(&defect.sender), "{defect:?} blames the wrong one of {liars:?}");
                }
            }
            for fault in engine.faults() {
                assert!(liars.contains(&fault.member()), "{fault} blames the wrong one of {liars:?}");
                assert!(!fault.to_string().is_empty());
            }
        }
        assert!(peers(&memory) == before, "it wrote into others' rows");
        if *engine.state() != State::Running {
            break;
        }
    }
    seen.cursors += u64::from(consumer.is_some_and(|(cursor, _)| cursor.defect().is_some()));
    match (engine.faults().first(), engine.state()) {
        (Some(Fault::Counter { .. }), _) => seen.counters += 1,
        (Some(Fault::Frame { .. }), _) => seen.frames += 1,
        (None, State::Running) => seen.running += 1,
        (None, State::Finished) => seen.finished += 1,
        (Some(_), _) | (None, _) => seen.others += 1,
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the harness of cargo test passes no arguments on")]
fn nonsense_from_peers_is_survived_or_a_fault_that_names_one_of_them() {
    let mut seen = Seen::default();
    if let Ok(seed) = std::env::var("GARBAGE_SEED") {
        return case(seed.parse().expect("a seed is a number"), &mut seen);
    }
    (0..CASES).for_each(|seed| case(seed, &mut seen));
    println!("{seen:?}");
    let [counters, frames, cursors] = [seen.counters, seen.frames, seen.cursors];
    assert!(counters.min(frames).min(cursors) > CASES / 100, "every kind of fault was met: {seen:?}");
    assert!(seen.running > CASES / 10 && seen.messages > CASES, "not everything is refused: {seen:?}");
}

#[test]
fn headers_of_any_bits_are_refused_or_fit() {
    let random = &mut Random(1);
    let mut fitting = 0;
    for i in 0..400_000 {
        let ring = Ring::new(random.below(100) * 64, 1 + random.below(9), random.below(3000));
        let word = match i % 3 {
            0 => random.nasty(),
            1 => (1 + random.below(3)) << 56 | random.below(300) << 32 | random.below(4000),
            _ => {
                let len = random.below(ring.message_bytes_max + 1);
                Header { kind: Kind::Message, span: frame_bytes(len), len }.encode() ^ 1 << random.below(64)
            }
        };
        let Some(header) = Header::decode(word, &ring) else { continue };
        fitting += 1;
        assert_eq!(header.encode(), word, "nothing is ignored");
        assert!(header.span <= ring.frame_bytes_max && header.len + HEADER_BYTES <= header.span, "{header:?} {ring:?}");
        let position = random.below(1 << 40) * 16;
        assert!(ring.offset(position) + header.span <= ring.at + ring.size());
        let after = ring.after(position, header.span);
        assert!(after > position && after <= position + header.span);
    }
    assert!(fitting > 10_000, "{fitting}");
}

/// A view in which every field may be wrong.
fn wild_view(random: &mut Random) -> View {
    let members = random.below(7);
    let ranks = |random: &mut Random, count: u64| -> Vec<Rank> {
        let mut list: Vec<Rank> = (0..random.below(count + 1))
            .map(|_| Rank(if random.chance(40) { random.nasty() as u32 } else { random.below(count.max(1)) as u32 }))
            .collect();
        if !random.chance(6) {
            list.sort_unstable();
            list.dedup();
        }
        list
    };
    let subgroups = (0..random.below(5)).map(|i| {
        let list = ranks(random, members);
        SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: if random.chance(10) { "x".repeat(random.below(200) as usize) } else { format!("s{i}") },
            senders: if random.chance(2) { random_part(random, &list) } else { ranks(random, members) },
            members: list,
            order: if random.chance(2) { Order::Fifo } else { Order::Total },
            window: if random.chance(4) { random.nasty() } else { 1 + random.below(1 << 20) },
            message_bytes_max: if random.chance(4) { random.nasty() } else { random.below(5000) },
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        }
    });
    let subgroups = subgroups.collect();
    let id = |i| MemberId(if random.chance(20) { 1 } else { i + 10 });
    View { id: ViewId(0), members: (0..members).map(id).collect(), nonvoters: vec![], subgroups }
}

fn random_part(random: &mut Random, list: &[Rank]) -> Vec<Rank> {
    if list.is_empty() { vec![] } else { random.some_of(list) }
}

#[test]
fn views_of_any_kind_are_refused_or_laid_out_without_overlap() {
    let random = &mut Random(2);
    let mut accepted = 0;
    for seed in 0..50_000 {
        let view = wild_view(random);
        let layout = match Layout::new(&view) {
            Ok(layout) => layout,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        accepted += 1;
        for (rank, row) in view.ranks().zip(layout.rows()) {
            let mut spans = vec![(0, LINE_BYTES)];
            for id in (0..view.subgroups.len() as u32).map(SubgroupId) {
                let spec = &view.subgroups[id.index()];
                let Some(place) = row.subgroup(id) else {
                    assert!(!spec.members.contains(&rank));
                    continue;
                };
                assert_eq!(place.ring.is_some(), spec.senders.contains(&rank));
                assert!(place.end <= row.control, "counters stand in the control block");
                spans.push((place.entry, place.end));
                if let Some(ring) = place.ring {
                    assert!(
                        ring.at >= row.control && ring.capacity >= spec.window * frame_bytes(spec.message_bytes_max)
                    );
                    spans.push((ring.at, ring.at + ring.size()));
                }
            }
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "view {seed}: {spans:?}");
            assert!(spans.iter().all(|(start, end)| start % LINE_BYTES == 0 && *end <= row.size), "view {seed}");
        }
    }
    assert!(accepted > 500, "{accepted}");
}
