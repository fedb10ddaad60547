//! Cases of rows, posts and readers.
use super::harness::{ConnectedGroup, Harness, assert_panics, counter, ring, view};
use crate::fabric::Fabric;
use spindle_core::wire::layout::{LINE_BYTES, membership};
use spindle_core::{Rank, Rows, Table};

/// Fresh rows contain zeros everywhere, mine and my copies of the others'.
pub fn rows_start_as_zeros<H: Harness>() {
    let group = ConnectedGroup::<H>::new(3);
    for fabric in &group.fabrics {
        for &rank in &group.everyone {
            // Except for a word that fabrics with shared memory write.
            let mapped = membership::mapped(3);
            assert!((0..group.size(rank)).step_by(8).all(|at| at == mapped || fabric.load(rank, at) == 0));
            let rest = mapped + 8..group.size(rank);
            assert!(fabric.bytes(rank, rest.start, rest.end - rest.start).iter().all(|byte| *byte == 0));
        }
    }
}

/// Fabrics come by rank and know their number.
pub fn everyone_knows_its_rank<H: Harness>() {
    let group = ConnectedGroup::<H>::new(4);
    for (fabric, &rank) in group.fabrics.iter().zip(&group.everyone) {
        assert_eq!((fabric.me(), fabric.members()), (rank, 4));
    }
}

/// The owner needs no post.
pub fn a_store_is_seen_by_its_owner_at_once<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let at = counter(&group.layout, Rank(1));
    group.fabric(1).store(at, 7);
    assert_eq!(group.fabrics[1].load(Rank(1), at), 7);
}

/// A view of one member.
pub fn a_lone_member_works<H: Harness>() {
    members_see_each_other::<H>(1);
}

/// A view of two members.
pub fn two_members_see_each_other<H: Harness>() {
    members_see_each_other::<H>(2);
}

/// A view of five members.
pub fn five_members_see_each_other<H: Harness>() {
    members_see_each_other::<H>(5);
}

/// A view of sixteen members.
pub fn sixteen_members_see_each_other<H: Harness>() {
    members_see_each_other::<H>(16);
}

fn members_see_each_other<H: Harness>(members: u32) {
    let mut group = ConnectedGroup::<H>::new(members);
    for round in 1..4 {
        for rank in group.everyone.clone() {
            let at = counter(&group.layout, rank);
            group.put(rank, at, round * 100 + u64::from(rank.0));
        }
        group.settle();
        for &rank in &group.everyone {
            group.assert_all_see(rank, counter(&group.layout, rank), round * 100 + u64::from(rank.0));
        }
    }
}

/// A post of the whole row transfers all of it, including the final word.
pub fn every_word_of_a_row_arrives<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(3);
    let size = group.size(Rank(1));
    let everyone = group.everyone.clone();
    // The membership line is left out: its first word says that I sleep.
    let words = || (LINE_BYTES..size).step_by(8);
    let fabric = group.fabric(1);
    words().for_each(|at| fabric.store(at, at * 0x0001_0000_0000_0001 + 1));
    fabric.post(&everyone, LINE_BYTES..size);
    group.settle();
    words().for_each(|at| group.assert_all_see(Rank(1), at, at * 0x0001_0000_0000_0001 + 1));
}

/// Memory contains words as their little-endian bytes.
pub fn words_and_bytes_are_the_same_memory<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let at = ring(&group.layout, Rank(0)).at;
    group.put(Rank(0), at, 0x0807_0605_0403_0201);
    group.settle();
    for fabric in &group.fabrics {
        assert_eq!(fabric.bytes(Rank(0), at, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

/// Payloads have any length, and their readers need no alignment.
pub fn bytes_of_any_length_and_offset_are_read<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let ring = ring(&group.layout, Rank(0));
    let everyone = group.everyone.clone();
    let fabric = group.fabric(0);
    let words = ring.at..ring.at + 64;
    for at in words.clone().step_by(8) {
        let byte = |i: u64| (at - ring.at + i) as u8;
        fabric.store(at, u64::from_le_bytes(std::array::from_fn(|i| byte(i as u64))));
    }
    fabric.post(&everyone, words);
    group.settle();
    for start in 0..64 {
        for len in 0..=64 - start {
            let expected: Vec<u8> = (start..start + len).map(|byte| byte as u8).collect();
            assert_eq!(group.fabrics[1].bytes(Rank(0), ring.at + start, len), expected);
        }
    }
}

/// Posts of one word may merge; the last value arrives.
pub fn the_newest_value_wins<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(3);
    let at = counter(&group.layout, Rank(2));
    (1..=100).for_each(|value| group.put(Rank(2), at, value));
    group.settle();
    group.assert_all_see(Rank(2), at, 100);
}

/// Posts to different peers are independent.
pub fn a_post_to_one_reaches_that_one<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(3);
    let at = counter(&group.layout, Rank(0));
    group.fabric(0).store(at, 5);
    group.fabric(0).post(&[Rank(2)], at..at + 8);
    group.settle();
    assert_eq!(group.fabrics[2].load(Rank(0), at), 5);
    // The other peer may have seen it already, and sees it at the latest when it is posted there.
    assert!([0, 5].contains(&group.fabrics[1].load(Rank(0), at)));
    group.fabric(0).post(&[Rank(1)], at..at + 8);
    group.settle();
    assert_eq!(group.fabrics[1].load(Rank(0), at), 5);
}

/// When the second of two posts is visible, the first is visible, too, wherever their bytes are.
pub fn posts_to_one_keep_their_order<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let (data, count) = (ring(&group.layout, Rank(0)).at, counter(&group.layout, Rank(0)));
    for value in 1..50 {
        group.put(Rank(0), data, value);
        group.put(Rank(0), count, value);
        let peer = &group.fabrics[1];
        let announced = peer.load(Rank(0), count);
        assert!(peer.load(Rank(0), data) >= announced);
        if value % 7 == 0 {
            group.settle();
        }
    }
}

/// A quiet post keeps the order, though it wakes no peer.
pub fn a_quiet_post_is_seen_after_those_before_it<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let (first, second) = (counter(&group.layout, Rank(0)), membership::HEARTBEAT);
    for value in 1..50 {
        group.put(Rank(0), first, value);
        group.fabric(0).store(second, value);
        group.fabric(0).post_quietly(&[Rank(1)], second..second + 8);
        let peer = &group.fabrics[1];
        let shown = peer.load(Rank(0), second);
        assert!(peer.load(Rank(0), first) >= shown);
    }
    group.settle();
    group.assert_all_see(Rank(0), second, 49);
}

/// Lists of peers may name the poster.
pub fn my_own_rank_in_a_post_means_nothing<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let at = counter(&group.layout, Rank(0));
    group.fabric(0).store(at, 9);
    group.fabric(0).post(&[Rank(0)], at..at + 8);
    group.fabric(0).post(&[Rank(0), Rank(1), Rank(0)], at..at + 8);
    group.settle();
    group.assert_all_see(Rank(0), at, 9);
}

/// A post to no peers or of no bytes has no effect.
pub fn a_post_to_no_peer_has_no_effect<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let at = counter(&group.layout, Rank(0));
    group.fabric(0).post(&[], at..at + 8);
    group.fabric(0).post(&[Rank(1)], at..at);
    group.settle();
    group.assert_all_see(Rank(0), at, 0);
}

/// The same offset in different rows is different memory.
pub fn rows_do_not_mix<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(4);
    let at = counter(&group.layout, Rank(0));
    group.put(Rank(1), at, 11);
    group.put(Rank(3), at, 33);
    group.settle();
    for (rank, value) in [0, 11, 0, 33].into_iter().enumerate() {
        group.assert_all_see(Rank(rank as u32), at, value);
    }
}

/// Rows of members that send and of members that don't have different lengths.
pub fn rows_of_different_sizes_are_read_to_their_ends<H: Harness>() {
    let mut view = view(3, 8);
    view.subgroups[0].senders = vec![Rank(1)];
    let mut group = ConnectedGroup::<H>::of(&view);
    let last = group.size(Rank(1)) - 8;
    assert!(group.size(Rank(0)) <= last);
    group.put(Rank(1), last, 3);
    group.settle();
    group.assert_all_see(Rank(1), last, 3);
    let fabric = &group.fabrics[2];
    assert_panics("a load behind a shorter row", || _ = fabric.load(Rank(0), last));
}

/// A reader sees the same table.
pub fn readers_see_what_the_fabric_sees<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(3);
    let reader = group.fabrics[1].reader();
    for rank in group.everyone.clone() {
        let at = counter(&group.layout, rank);
        group.put(rank, at, 40 + u64::from(rank.0));
    }
    group.settle();
    for &rank in &group.everyone {
        let at = counter(&group.layout, rank);
        assert_eq!(reader.load(rank, at), 40 + u64::from(rank.0));
        assert_eq!(reader.clone().bytes(rank, at, 8), (40 + u64::from(rank.0)).to_le_bytes());
    }
}

/// A consumer may finish reading after the engine has gone.
pub fn a_reader_outlives_its_fabric<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let at = counter(&group.layout, Rank(0));
    group.put(Rank(0), at, 6);
    group.settle();
    let readers: Vec<_> = group.fabrics.iter().map(Fabric::reader).collect();
    drop(group);
    for reader in readers {
        assert_eq!(reader.load(Rank(0), at), 6);
    }
}

/// No announcement of a peer can lead a reader out of its row.
pub fn loads_outside_a_row_panic<H: Harness>() {
    let group = ConnectedGroup::<H>::new(2);
    for rank in [Rank(0), Rank(1)] {
        let size = group.size(rank);
        for at in [size, size + 8, 1 << 40, u64::MAX - 7] {
            let fabric = &group.fabrics[0];
            assert_panics("a load outside", || _ = fabric.load(rank, at));
        }
    }
}

/// A word is aligned.
pub fn unaligned_words_panic<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    for at in [1, 4, 71] {
        let fabric = group.fabric(0);
        assert_panics("an unaligned load", || _ = fabric.load(Rank(1), at));
        assert_panics("an unaligned store", || fabric.store(at, 1));
    }
}

/// As for words, also with lengths that overflow.
pub fn bytes_outside_a_row_panic<H: Harness>() {
    let group = ConnectedGroup::<H>::new(2);
    for rank in [Rank(0), Rank(1)] {
        let size = group.size(rank);
        for (at, len) in
            [(size, 1), (size - 1, 2), (0, size + 1), (8, u64::MAX - 4), (u64::MAX, 2), (u64::MAX, u64::MAX)]
        {
            let fabric = &group.fabrics[0];
            assert_panics("bytes outside", || _ = fabric.bytes(rank, at, len));
        }
        assert_eq!(group.fabrics[0].bytes(rank, size, 0), b"");
    }
}

/// A member writes only its own row.
pub fn stores_outside_my_row_panic<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let size = group.size(Rank(0));
    for at in [size, 1 << 40, u64::MAX - 7] {
        let fabric = group.fabric(0);
        assert_panics("a store outside", || fabric.store(at, 1));
    }
}

/// Only ranks of the view are valid.
pub fn members_outside_the_view_panic<H: Harness>() {
    let group = ConnectedGroup::<H>::new(2);
    let fabric = &group.fabrics[0];
    assert_panics("a load from nobody", || _ = fabric.load(Rank(2), 0));
    assert_panics("bytes of nobody", || _ = fabric.bytes(Rank(u32::MAX), 0, 8));
}

/// The survivors can agree on everything that a member posted before it died.
pub fn a_dead_members_row_stays_readable<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(3);
    let at = counter(&group.layout, Rank(2));
    group.put(Rank(2), at, 12);
    group.settle();
    drop(group.fabrics.pop());
    group.assert_all_see(Rank(2), at, 12);
    // A post to a dead member is harmless.
    let at = counter(&group.layout, Rank(0));
    group.put(Rank(0), at, 1);
    group.settle();
    group.assert_all_see(Rank(0), at, 1);
}
