//! The schedules of the block multicast: compared with an oracle's digests, and with the rules that
//! every schedule must keep.
use spindle_core::Rank;
use spindle_core::rdmc::{Algorithm, Hop, Racks, RacksError, Schedule};

const BLOCKS_MAX: u32 = 50;

/// All transfers, ordered by step and sender.
fn sent(schedule: &Schedule, blocks: u32) -> Vec<Hop> {
    let steps = 0..schedule.steps(blocks);
    steps.flat_map(|step| (0..schedule.members()).filter_map(move |x| schedule.send(blocks, Rank(x), step))).collect()
}

/// Checks every promise of a schedule, for one number of blocks.
fn check(schedule: &Schedule, blocks: u32) {
    let n = schedule.members();
    let name = format!("{:?}", schedule.algorithm());
    let context = format!("{}, {n} members, {blocks} blocks", name.split('(').next().unwrap_or_default());
    let mut held = vec![vec![None; blocks as usize]; n as usize];
    held[0].fill(Some(0));
    let mut arrived = vec![0; n as usize];
    let (mut sent_in, mut received_in) = (vec![None; n as usize], vec![None; n as usize]);
    let hops = sent(schedule, blocks);
    for hop in &hops {
        let at = format_args!("{context}: {hop:?}");
        assert!(hop.to.0 < n && hop.to != hop.from && hop.block < blocks, "{at}");
        assert_ne!(sent_in[hop.from.index()].replace(hop.step), Some(hop.step), "two sends in a step: {at}");
        assert_ne!(received_in[hop.to.index()].replace(hop.step), Some(hop.step), "two receipts in a step: {at}");
        let since = held[hop.from.index()][hop.block as usize];
        assert!(since.is_some_and(|since| since <= hop.step), "it does not hold the block: {at}");
        assert_eq!(hop.index, arrived[hop.to.index()], "{at}");
        arrived[hop.to.index()] += 1;
        let held = &mut held[hop.to.index()][hop.block as usize];
        assert_eq!(held.replace(hop.step + 1), None, "twice: {at}");
        assert_eq!(schedule.receive(blocks, hop.to, hop.step), Some(*hop), "the receiver knows it: {at}");
        assert_eq!(schedule.arrival(blocks, hop.to, hop.index), Some(*hop), "{at}");
        let needs = schedule.needs(blocks, hop);
        let source = needs.and_then(|index| schedule.arrival(blocks, hop.from, index));
        assert_eq!(needs.is_none(), hop.from.0 == 0, "{at}");
        assert!(source.is_none_or(|source| source.block == hop.block && source.step < hop.step), "{at}");
    }
    assert!(held.iter().flatten().all(Option::is_some), "somebody is not complete: {context}");
    let last = hops.iter().map(|hop| hop.step + 1).max().unwrap_or(0);
    assert_eq!(schedule.steps(blocks), last, "{context}");
    // No member receives a block that no member sends.
    let received = (0..last).map(|step| (0..n).filter(|x| schedule.receive(blocks, Rank(*x), step).is_some()).count());
    assert_eq!(received.sum::<usize>(), hops.len(), "{context}");
    let mut by_sender = vec![vec![]; n as usize];
    hops.iter().for_each(|hop| by_sender[hop.from.index()].push(*hop));
    for (x, mine) in (0..n).map(Rank).zip(by_sender) {
        let walk = std::iter::successors(schedule.next_send(blocks, x, 0), |hop: &Hop| {
            schedule.next_send(blocks, x, hop.step + 1)
        });
        assert_eq!(walk.collect::<Vec<_>>(), mine, "{context}");
        let first = schedule.arrival(blocks, x, 0).map(|hop| hop.from);
        assert_eq!(schedule.first_sender(x), first, "{context}");
        assert_eq!(schedule.arrival(blocks, x, blocks), None);
    }
}

fn pipeline(members: u32) -> Schedule {
    Schedule::new(Algorithm::BinomialPipeline, members)
}

fn ceil_log2(n: u32) -> u64 {
    n.next_power_of_two().ilog2().into()
}

#[test]
fn the_binomial_pipeline_is_that_of_the_oracle() {
    let mut cases = 0;
    for line in include_str!("golden/bulk.txt").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [members, blocks, count, digest] = words[..] else { panic!("{line}") };
        let schedule = pipeline(members.parse().unwrap());
        let (first, last) = blocks.split_once('-').unwrap();
        let blocks = first.parse().unwrap()..=last.parse().unwrap();
        let hops: Vec<Hop> = blocks.flat_map(|blocks| sent(&schedule, blocks)).collect();
        let words = hops.iter().flat_map(|hop| [hop.step as u32, hop.from.0, hop.to.0, hop.block]);
        let bytes = words.flat_map(u32::to_le_bytes);
        let sum =
            bytes.fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        assert_eq!((hops.len().to_string(), format!("{sum:016x}")), (count.to_string(), digest.to_string()), "{line}");
        cases += 1;
    }
    assert_eq!(cases, 63 + 60);
}

/// The oracle's schedules of a few small groups, to be read.
#[test]
fn small_pipelines_are_those_of_the_oracle() {
    for line in include_str!("golden/bulk_small.txt").lines() {
        let words: Vec<u32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [members, blocks, step, from, to, block] = words[..] else { panic!("{line}") };
        let hop = pipeline(members).send(blocks, Rank(from), step.into()).unwrap();
        assert_eq!((hop.to, hop.block), (Rank(to), block), "{line}");
    }
}

#[test]
fn the_binomial_pipeline_keeps_its_promises_and_is_optimal() {
    for members in 1..=64 {
        for blocks in 1..=BLOCKS_MAX {
            check(&pipeline(members), blocks);
            let steps = if members == 1 { 0 } else { u64::from(blocks) - 1 + ceil_log2(members) };
            assert_eq!(pipeline(members).steps(blocks), steps);
        }
    }
    for members in [65, 96, 127, 128, 129, 255, 256, 300, 511, 512, 513, 1000] {
        for blocks in [1, 2, 3, 7, 20] {
            check(&pipeline(members), blocks);
        }
    }
}

#[test]
fn the_plain_schedules_keep_their_promises() {
    for members in 1..=40 {
        for blocks in [1, 2, 3, 5, 8, 13] {
            let (n, k) = (u64::from(members), u64::from(blocks));
            let many = u64::from(members > 1);
            for (algorithm, steps) in [
                (Algorithm::Sequential, k * (n - 1)),
                (Algorithm::Chain, many * (k + n).saturating_sub(2)),
                (Algorithm::BinomialTree, k * ceil_log2(members)),
            ] {
                let schedule = Schedule::new(algorithm, members);
                check(&schedule, blocks);
                assert_eq!(schedule.steps(blocks), steps);
            }
        }
    }
}

/// Racks of these sizes. Ranks are assigned to them in turns, as for hosts that were not sorted by
/// rack.
fn dealt(sizes: &[u32]) -> Racks {
    let mut racks: Vec<Vec<Rank>> = vec![vec![]; sizes.len()];
    let mut next = 0;
    while next < sizes.iter().sum() {
        for (rack, size) in racks.iter_mut().zip(sizes) {
            if rack.len() < *size as usize {
                rack.push(Rank(next));
                next += 1;
            }
        }
    }
    Racks::new(racks).unwrap()
}

#[test]
fn the_hybrid_keeps_its_promises_and_crosses_once() {
    let mut cases: Vec<Vec<u32>> = (1..=12).flat_map(|a| (1..=12).map(move |b| vec![a, b])).collect();
    cases.extend([
        vec![7],
        vec![1, 1, 1, 1],
        vec![4, 1, 3, 1, 8],
        vec![2, 2, 2],
        vec![6, 5, 3, 16, 9],
        vec![32, 33, 31],
    ]);
    for sizes in cases {
        let racks = dealt(&sizes);
        let schedule = Schedule::new(Algorithm::Hybrid(racks.clone()), sizes.iter().sum());
        for blocks in [1, 2, 3, 4, 9, 20] {
            check(&schedule, blocks);
            let across = |hop: &&Hop| racks.rack_of(hop.from) != racks.rack_of(hop.to);
            let crossings = sent(&schedule, blocks).iter().filter(across).count();
            assert_eq!(crossings, (sizes.len() - 1) * blocks as usize, "{sizes:?}");
            let begins = sizes.iter().scan(0, |begin, size| {
                *begin += u64::from(size.ilog2()) + 1;
                Some(*begin - u64::from(size.ilog2()) - 1)
            });
            let steps = begins.zip(&sizes).map(|(begin, size)| begin + ceil_log2(*size)).max().unwrap();
            assert_eq!(schedule.steps(blocks), u64::from(blocks) - 1 + steps, "{sizes:?}");
        }
    }
}

/// For any names: the partition has the same order at every member, and a hybrid schedule crosses
/// once.
#[test]
fn racks_that_are_named_are_a_partition_in_the_order_of_their_first_members() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % bound
    };
    for _ in 0..400 {
        let (members, most) = (1 + below(40), 1 + below(9));
        let names: Vec<Option<u32>> = (0..members).map(|_| below(most).checked_sub(1)).collect();
        let racks = Racks::grouped(&names);
        assert_eq!(racks.members(), members);
        assert_eq!(racks.rack_of(Rank(0)), 0);
        let mut seen: Vec<Option<u32>> = vec![];
        for (rank, name) in (0..).map(Rank).zip(&names) {
            if !seen.contains(name) {
                assert_eq!(racks.rack_of(rank) as usize, seen.len(), "{names:?}");
                seen.push(*name);
            }
            assert_eq!(seen[racks.rack_of(rank) as usize], *name, "{names:?}");
        }
        assert_eq!(racks.count() as usize, seen.len());
        let by_hand =
            seen.iter().map(|of| (0..members).filter(|rank| names[*rank as usize] == *of).map(Rank).collect());
        assert_eq!(Racks::new(by_hand.collect()), Ok(racks.clone()), "{names:?}");
        // The names themselves make no difference.
        assert_eq!(Racks::grouped(names.iter().map(|name| name.map(|name| 99 - name))), racks);
        let schedule = Schedule::new(Algorithm::Hybrid(racks.clone()), members);
        for blocks in [1, 5] {
            check(&schedule, blocks);
            let across = |hop: &&Hop| racks.rack_of(hop.from) != racks.rack_of(hop.to);
            assert_eq!(sent(&schedule, blocks).iter().filter(across).count(), (seen.len() - 1) * blocks as usize);
        }
    }
}

#[test]
#[should_panic(expected = "a root")]
fn a_group_without_members_has_no_racks() {
    let _ = Racks::grouped::<u32>([]);
}

#[test]
fn block_numbers_fill_32_bits() {
    let all = [Algorithm::BinomialPipeline, Algorithm::Sequential, Algorithm::Chain, Algorithm::BinomialTree];
    let all = all.map(|algorithm| Schedule::new(algorithm, 13));
    for schedule in all.iter().chain([&Schedule::new(Algorithm::Hybrid(dealt(&[4, 6, 3])), 13)]) {
        let blocks = u32::MAX;
        for x in (1..13).map(Rank) {
            for index in [0, 1, 2, 1 << 31, blocks - 2, blocks - 1] {
                let hop = schedule.arrival(blocks, x, index).unwrap();
                assert_eq!((hop.to, hop.index), (x, index), "{schedule:?}");
                assert_eq!(schedule.send(blocks, hop.from, hop.step), Some(hop), "{schedule:?}");
                let source = schedule.needs(blocks, &hop).map(|i| schedule.arrival(blocks, hop.from, i).unwrap().block);
                assert!(source.is_none_or(|source| source == hop.block));
            }
        }
    }
}

#[test]
fn racks_that_are_no_partition_are_refused() {
    let racks =
        |racks: &[&[u32]]| Racks::new(racks.iter().map(|rack| rack.iter().copied().map(Rank).collect()).collect());
    assert_eq!(racks(&[]), Err(RacksError::Empty { rack: 0 }));
    assert_eq!(racks(&[&[0], &[]]), Err(RacksError::Empty { rack: 1 }));
    assert_eq!(racks(&[&[1], &[0]]), Err(RacksError::RootNotFirst { found: Rank(1) }));
    assert_eq!(racks(&[&[0, 2], &[2]]), Err(RacksError::NotAPartition { rank: Rank(2), members: 3 }));
    assert_eq!(racks(&[&[0], &[2]]), Err(RacksError::NotAPartition { rank: Rank(2), members: 2 }));
}
