//! The tests that every fabric must pass: one function for each case, generic over a [`Harness`]
//! that connects members in this process.
//!
//! [`conformance_suite!`](crate::conformance_suite) makes a `#[test]` of each. The cases in
//! `threaded` modules run members on threads of their own; a fabric that lives on one thread, like
//! a simulated one, leaves them out. A case fails by panic. Waits are bounded, generously; a bound
//! that is reached is a failure, and no case requires a speed.
use crate::fabric::Fabric;
use spindle_core::wire::layout::{LINE_BYTES, entry, membership};
use spindle_core::{
    Layout, MemberId, Order, Rank, Ring, Rows, Rule, SubgroupId, SubgroupSpec, Table, Trace, View, ViewId,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub mod links;
pub mod publishing;
pub mod resuming;

/// The time that a case waits for an event that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A maker of connected members for one kind of fabric.
pub trait Harness {
    /// The fabric.
    type Fabric: Fabric;

    /// Creates all members of a new view, by rank, connected with each other.
    fn connect(layout: &Layout) -> Vec<Self::Fabric>;

    /// Delivers everything that was posted to its destination.
    fn settle(fabrics: &mut [Self::Fabric]);

    /// Returns true if this machine has everything that the fabric needs. If not, cases pass
    /// without having run, and this prints the missing part.
    fn is_here() -> bool {
        true
    }
}

/// Makes one `#[test]` per case, for a [`Harness`](crate::conformance::Harness). With
/// `single_threaded` behind it, only the cases that keep all members on one thread.
#[macro_export]
macro_rules! conformance_suite {
    ($harness:ty) => {
        $crate::conformance_suite!($harness, single_threaded);
        $crate::conformance_suite!($harness, $crate::conformance::threaded, [
            data_is_seen_before_what_announces_it
            words_are_never_torn
            counters_of_many_peers_never_go_back
            a_reader_on_another_thread_sees_what_is_posted
            no_wake_up_is_lost_in_ping_pong
            many_peers_wake_one_sleeper
            a_doorbell_on_another_thread_ends_a_sleep
            sleepers_are_woken_while_others_keep_posting
        ]);
        $crate::conformance_suite!($harness, $crate::conformance::publishing::threaded, [
            waiting_publishers_and_sleeping_engines_wake_each_other
            threads_share_a_ring
            the_end_frees_a_waiting_thread
        ]);
    };
    ($harness:ty, single_threaded) => {
        $crate::conformance_suite!($harness, $crate::conformance, [
            rows_start_as_zeros
            everyone_knows_its_rank
            a_store_is_seen_by_its_owner_at_once
            a_lone_member_works
            two_members_see_each_other
            five_members_see_each_other
            sixteen_members_see_each_other
            every_word_of_a_row_arrives
            words_and_bytes_are_the_same_memory
            bytes_of_any_length_and_offset_are_read
            the_newest_value_wins
            a_post_to_one_reaches_that_one
            posts_to_one_keep_their_order
            a_quiet_post_is_seen_after_those_before_it
            my_own_rank_in_a_post_means_nothing
            a_post_to_no_peer_has_no_effect
            rows_do_not_mix
            rows_of_different_sizes_are_read_to_their_ends
            readers_see_what_the_fabric_sees
            a_reader_outlives_its_fabric
            loads_outside_a_row_panic
            unaligned_words_panic
            bytes_outside_a_row_panic
            stores_outside_my_row_panic
            members_outside_the_view_panic
            a_dead_members_row_stays_readable
            a_peer_that_is_awake_is_not_rung
            a_sleep_is_bounded
            a_ring_between_announcement_and_sleep_counts
            a_post_between_announcement_and_sleep_counts
            a_post_rings_only_its_receivers
            a_withdrawn_sleep_is_over
            a_sleep_without_announcement_is_none
            sleeps_can_follow_each_other
        ]);
        $crate::conformance_suite!($harness, $crate::conformance::publishing, [
            frames_are_read_by_everyone
            a_frame_is_seen_after_its_commit
            messages_of_every_length_survive_many_laps
            a_full_ring_has_room_again_after_delivery
            a_message_over_the_limit_is_refused
            a_frame_may_be_committed_in_part
            committing_more_than_was_claimed_panics
            a_dropped_frame_is_not_delivered
            a_panic_while_filling_gives_the_frame_up
            dropping_the_publishers_finishes_the_group
            a_shared_ring_closes_with_its_last_publisher
            shared_frames_overlap_and_keep_the_order_of_claims
            a_second_publisher_for_a_ring_panics
            publishing_ends_a_sleep
            skipped_rounds_let_others_deliver
            a_claim_gives_up_at_its_deadline
            an_async_claim_is_woken_by_room
            a_dropped_async_claim_is_forgotten
            all_waiting_tasks_are_woken
            the_end_of_the_engine_ends_waits
        ]);
    };
    ($harness:ty, $cases:path, [$($case:ident)*]) => {
        $(#[test]
        fn $case() {
            use $cases as cases;
            if <$harness as $crate::conformance::Harness>::is_here() {
                cases::$case::<$harness>();
            }
        })*
    };
}

/// Returns a view of `members` with one subgroup in which all of them send; a ring holds `window`
/// messages of 100 bytes.
pub fn view(members: u32, window: u64) -> View {
    let ranks: Vec<Rank> = (0..members).map(Rank).collect();
    let everyone = SubgroupSpec {
        member_rule: Rule::Everyone,
        sender_rule: Rule::Everyone,
        name: "everyone".to_string(),
        members: ranks.clone(),
        senders: ranks,
        order: Order::Total,
        window,
        message_bytes_max: 100,
        leftover_bytes_max: 0,
        epoch: None,
    };
    View {
        id: ViewId(1),
        members: (0..u64::from(members)).map(MemberId).collect(),
        nonvoters: vec![],
        subgroups: vec![everyone].into(),
    }
}

/// A group of connected members, and the offsets to write in their rows.
struct Group<H: Harness> {
    layout: Layout,
    fabrics: Vec<H::Fabric>,
    everyone: Vec<Rank>,
}

impl<H: Harness> Group<H> {
    fn new(members: u32) -> Group<H> {
        Group::of(&view(members, 8))
    }

    fn of(view: &View) -> Group<H> {
        let layout = Layout::new(view).expect("the view is sound");
        let fabrics = H::connect(&layout);
        assert_eq!(fabrics.len(), layout.rows().len());
        Group { layout, fabrics, everyone: view.ranks().collect() }
    }

    fn size(&self, rank: Rank) -> u64 {
        self.layout.row(rank).size
    }

    /// Stores and posts one word, to every member.
    fn put(&mut self, rank: Rank, at: u64, value: u64) {
        let fabric = &mut self.fabrics[rank.index()];
        fabric.store(at, value);
        fabric.post(&self.everyone, at..at + 8);
    }

    fn settle(&mut self) {
        H::settle(&mut self.fabrics);
    }

    fn assert_all_see(&self, rank: Rank, at: u64, value: u64) {
        for fabric in &self.fabrics {
            assert_eq!(fabric.load(rank, at), value, "word {at} of member {rank} at member {}", fabric.me());
        }
    }

    fn fabric(&mut self, index: usize) -> &mut H::Fabric {
        &mut self.fabrics[index]
    }
}

/// Returns the ring of the first subgroup in the row of `rank`.
fn ring(layout: &Layout, rank: Rank) -> Ring {
    layout.row(rank).subgroup(SubgroupId(0)).and_then(|place| place.ring).expect("everybody sends")
}

/// Returns the offset of a control word of the row of `rank` that only the case uses.
fn counter(layout: &Layout, rank: Rank) -> u64 {
    layout.row(rank).subgroup(SubgroupId(0)).expect("everybody is in it").entry + entry::ROUNDS
}

fn assert_panics(what: &str, action: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(action)).is_err(), "{what} must panic");
}

/// Fresh rows contain zeros everywhere, mine and my copies of the others'.
pub fn rows_start_as_zeros<H: Harness>() {
    let group = Group::<H>::new(3);
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
    let group = Group::<H>::new(4);
    for (fabric, &rank) in group.fabrics.iter().zip(&group.everyone) {
        assert_eq!((fabric.me(), fabric.members()), (rank, 4));
    }
}

/// The owner needs no post.
pub fn a_store_is_seen_by_its_owner_at_once<H: Harness>() {
    let mut group = Group::<H>::new(2);
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
    let mut group = Group::<H>::new(members);
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
    let mut group = Group::<H>::new(3);
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
    let mut group = Group::<H>::new(2);
    let at = ring(&group.layout, Rank(0)).at;
    group.put(Rank(0), at, 0x0807_0605_0403_0201);
    group.settle();
    for fabric in &group.fabrics {
        assert_eq!(fabric.bytes(Rank(0), at, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}

/// Payloads have any length, and their readers need no alignment.
pub fn bytes_of_any_length_and_offset_are_read<H: Harness>() {
    let mut group = Group::<H>::new(2);
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
    let mut group = Group::<H>::new(3);
    let at = counter(&group.layout, Rank(2));
    (1..=100).for_each(|value| group.put(Rank(2), at, value));
    group.settle();
    group.assert_all_see(Rank(2), at, 100);
}

/// Posts to different peers are independent.
pub fn a_post_to_one_reaches_that_one<H: Harness>() {
    let mut group = Group::<H>::new(3);
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
    let mut group = Group::<H>::new(2);
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
    let mut group = Group::<H>::new(2);
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
    let mut group = Group::<H>::new(2);
    let at = counter(&group.layout, Rank(0));
    group.fabric(0).store(at, 9);
    group.fabric(0).post(&[Rank(0)], at..at + 8);
    group.fabric(0).post(&[Rank(0), Rank(1), Rank(0)], at..at + 8);
    group.settle();
    group.assert_all_see(Rank(0), at, 9);
}

/// A post to no peers or of no bytes has no effect.
pub fn a_post_to_no_peer_has_no_effect<H: Harness>() {
    let mut group = Group::<H>::new(2);
    let at = counter(&group.layout, Rank(0));
    group.fabric(0).post(&[], at..at + 8);
    group.fabric(0).post(&[Rank(1)], at..at);
    group.settle();
    group.assert_all_see(Rank(0), at, 0);
}

/// The same offset in different rows is different memory.
pub fn rows_do_not_mix<H: Harness>() {
    let mut group = Group::<H>::new(4);
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
    let mut group = Group::<H>::of(&view);
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
    let mut group = Group::<H>::new(3);
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
    let mut group = Group::<H>::new(2);
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
    let group = Group::<H>::new(2);
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
    let mut group = Group::<H>::new(2);
    for at in [1, 4, 71] {
        let fabric = group.fabric(0);
        assert_panics("an unaligned load", || _ = fabric.load(Rank(1), at));
        assert_panics("an unaligned store", || fabric.store(at, 1));
    }
}

/// As for words, also with lengths that overflow.
pub fn bytes_outside_a_row_panic<H: Harness>() {
    let group = Group::<H>::new(2);
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
    let mut group = Group::<H>::new(2);
    let size = group.size(Rank(0));
    for at in [size, 1 << 40, u64::MAX - 7] {
        let fabric = group.fabric(0);
        assert_panics("a store outside", || fabric.store(at, 1));
    }
}

/// Only ranks of the view are valid.
pub fn members_outside_the_view_panic<H: Harness>() {
    let group = Group::<H>::new(2);
    let fabric = &group.fabrics[0];
    assert_panics("a load from nobody", || _ = fabric.load(Rank(2), 0));
    assert_panics("bytes of nobody", || _ = fabric.bytes(Rank(u32::MAX), 0, 8));
}

/// The survivors can agree on everything that a member posted before it died.
pub fn a_dead_members_row_stays_readable<H: Harness>() {
    let mut group = Group::<H>::new(3);
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

/// A doorbell costs its ringer a system call only if a thread sleeps.
pub fn a_peer_that_is_awake_is_not_rung<H: Harness>() {
    let group = Group::<H>::new(2);
    assert!(!group.fabrics[0].doorbell().ring());
}

/// No member sleeps longer than it wants to. After such a sleep it is rung until its announcement
/// is withdrawn.
pub fn a_sleep_is_bounded<H: Harness>() {
    let mut group = Group::<H>::new(2);
    let doorbell = group.fabrics[0].doorbell();
    group.fabric(0).begin_sleep();
    for _ in 0..3 {
        assert!(!group.fabric(0).sleep(Duration::from_millis(1)));
    }
    assert!(doorbell.ring());
    group.fabric(0).begin_sleep();
    assert!(group.fabric(0).sleep(PATIENCE), "it was rung between two sleeps");
    assert!(!doorbell.ring());
    group.fabric(0).begin_sleep();
    assert!(!group.fabric(0).sleep(Duration::from_millis(1)));
    group.fabric(0).end_sleep();
    assert!(!doorbell.ring());
}

/// A commit of an application at this moment is not missed.
pub fn a_ring_between_announcement_and_sleep_counts<H: Harness>() {
    let mut group = Group::<H>::new(2);
    let doorbell = group.fabrics[0].doorbell();
    group.fabric(0).begin_sleep();
    assert!(doorbell.ring());
    assert!(group.fabric(0).sleep(PATIENCE));
}

/// A post of a peer is not missed either.
pub fn a_post_between_announcement_and_sleep_counts<H: Harness>() {
    let mut group = Group::<H>::new(3);
    let at = counter(&group.layout, Rank(2));
    let before = group.fabrics[0].trace(Rank(2));
    group.fabric(0).begin_sleep();
    group.put(Rank(2), at, 1);
    group.settle();
    assert!(group.fabric(0).sleep(PATIENCE));
    assert_eq!(group.fabrics[0].load(Rank(2), at), 1);
    // A caller that looks only at rows with a trace finds it.
    let after = group.fabrics[0].trace(Rank(2));
    assert!(after == Trace::Stored || after != before, "{after:?}");
}

/// A peer that gets nothing may continue to sleep.
pub fn a_post_rings_only_its_receivers<H: Harness>() {
    let mut group = Group::<H>::new(3);
    let at = counter(&group.layout, Rank(2));
    group.fabric(0).begin_sleep();
    group.fabric(2).store(at, 1);
    group.fabric(2).post(&[Rank(1), Rank(2)], at..at + 8);
    group.settle();
    assert!(!group.fabric(0).sleep(Duration::from_millis(1)));
}

/// After a withdrawal no peer rings. A second withdrawal, or one without an announcement, is
/// harmless.
pub fn a_withdrawn_sleep_is_over<H: Harness>() {
    let mut group = Group::<H>::new(2);
    group.fabric(0).end_sleep();
    group.fabric(0).begin_sleep();
    group.fabric(0).begin_sleep();
    group.fabric(0).end_sleep();
    assert!(!group.fabrics[0].doorbell().ring());
    group.fabric(0).end_sleep();
    assert!(!group.fabrics[0].doorbell().ring());
}

/// It would miss earlier work. The caller looks at the work whose ring withdrew the announcement.
pub fn a_sleep_without_announcement_is_none<H: Harness>() {
    let mut group = Group::<H>::new(1);
    let fabric = group.fabric(0);
    assert!(fabric.sleep(Duration::MAX), "it counts as rung");
    fabric.begin_sleep();
    fabric.end_sleep();
    assert!(fabric.sleep(Duration::MAX));
}

/// A ring ends one sleep only: it does not cut the next one short, and the next one is rung anew.
pub fn sleeps_can_follow_each_other<H: Harness>() {
    let mut group = Group::<H>::new(2);
    let doorbell = group.fabrics[1].doorbell();
    for _ in 0..3 {
        group.fabric(1).begin_sleep();
        assert!(doorbell.ring());
        assert!(group.fabric(1).sleep(PATIENCE));
        group.fabric(1).begin_sleep();
        assert!(!group.fabric(1).sleep(Duration::from_millis(1)));
    }
}

/// Cases in which members run on threads of their own.
pub mod threaded {
    use super::*;
    use std::thread::{scope, spawn, yield_now};

    const ROUNDS: u64 = 20_000;
    const SLEEPS: u64 = 10_000;

    /// Polls until `ready`, for a bounded time.
    fn poll_until(what: &str, mut ready: impl FnMut() -> bool) {
        let start = Instant::now();
        while !ready() {
            assert!(start.elapsed() < PATIENCE, "{what}: nothing after {PATIENCE:?}");
            yield_now();
        }
    }

    /// Polls until all posts are in flight, as an engine does that has nothing else to do.
    pub(super) fn flush<F: Fabric>(fabric: &mut F) {
        poll_until("the posts to leave", || {
            fabric.progress();
            fabric.is_flushed()
        });
    }

    /// The number of sleeps, and of those that ran out although there was work by then for which no
    /// peer rang.
    static SLEPT: AtomicU64 = AtomicU64::new(0);
    static MISSED: AtomicU64 = AtomicU64::new(0);
    /// The time that a ring may take after the store that it is for, if its ringer has to wait for
    /// a core in between.
    const RINGING: Duration = Duration::from_secs(5);

    /// Sleeps until `ready`. Fails if sleeps run out because a peer forgot to ring: occasionally
    /// the kernel makes that happen ([`crate::barrier`]). Data that arrives over streams ends a
    /// sleep as well, so the check does not detect a missing ring there.
    fn sleep_until<F: Fabric>(fabric: &mut F, mut ready: impl FnMut(&mut F) -> bool) {
        let mut look = |fabric: &mut F| {
            fabric.progress();
            ready(fabric)
        };
        while !look(fabric) {
            fabric.begin_sleep();
            if look(fabric) {
                return fabric.end_sleep();
            }
            let start = Instant::now();
            let slept = SLEPT.fetch_add(1, Ordering::Relaxed);
            let runs_out = !fabric.sleep(PATIENCE);
            assert!(start.elapsed() < PATIENCE, "a wake-up of member {} was lost", fabric.me());
            if runs_out && look(fabric) && !fabric.sleep(RINGING) {
                let missed = MISSED.fetch_add(1, Ordering::Relaxed);
                assert!(missed < 4 + slept / 1000, "{missed} wake-ups of {slept} were lost");
            }
        }
        fabric.end_sleep();
    }

    fn bump<F: Fabric>(fabric: &mut F, at: u64, value: u64, peers: &[Rank]) {
        fabric.store(at, value);
        fabric.post(peers, at..at + 8);
    }

    /// A peer that sees a counter sees everything that was posted before it.
    pub fn data_is_seen_before_what_announces_it<H: Harness<Fabric: Send>>() {
        let Group { layout, fabrics, everyone } = Group::<H>::new(2);
        let [mut writer, mut reader]: [H::Fabric; 2] = fabrics.try_into().ok().expect("two members");
        let (ring, count) = (ring(&layout, Rank(0)), counter(&layout, Rank(0)));
        let slots = ring.capacity / 8;
        scope(|scope| {
            scope.spawn(move || {
                for value in 1..=ROUNDS {
                    let at = ring.at + value % slots * 8;
                    bump(&mut writer, at, value, &everyone);
                    bump(&mut writer, count, value, &everyone);
                }
                flush(&mut writer);
            });
            let mut seen = 0;
            poll_until("the last counter", || {
                reader.progress();
                let value = reader.load(Rank(0), count);
                if value > seen {
                    let data = reader.load(Rank(0), ring.at + value % slots * 8);
                    assert!(data >= value, "counter {value} over data {data}");
                    seen = value;
                }
                seen == ROUNDS
            });
        });
    }

    /// Both halves of a word come from one store.
    pub fn words_are_never_torn<H: Harness<Fabric: Send>>() {
        let Group { layout, fabrics, everyone } = Group::<H>::new(2);
        let [mut writer, mut reader]: [H::Fabric; 2] = fabrics.try_into().ok().expect("two members");
        let at = counter(&layout, Rank(0));
        scope(|scope| {
            scope.spawn(move || {
                (1..=ROUNDS).for_each(|value| bump(&mut writer, at, value << 32 | value, &everyone));
                flush(&mut writer);
            });
            poll_until("the last word", || {
                reader.progress();
                let word = reader.load(Rank(0), at);
                assert_eq!(word >> 32, word & 0xffff_ffff);
                word >> 32 == ROUNDS
            });
        });
    }

    /// INV-MONOTONE holds at the reader if it holds at the writers.
    pub fn counters_of_many_peers_never_go_back<H: Harness<Fabric: Send>>() {
        let Group { layout, mut fabrics, everyone } = Group::<H>::new(5);
        let mut reader = fabrics.remove(0);
        scope(|scope| {
            for mut writer in fabrics {
                let (at, everyone) = (counter(&layout, writer.me()), &everyone);
                scope.spawn(move || {
                    (1..=ROUNDS / 4).for_each(|value| bump(&mut writer, at, value, everyone));
                    flush(&mut writer);
                });
            }
            let mut seen = [0; 5];
            poll_until("the last counters", || {
                reader.progress();
                for rank in 1..5 {
                    let value = reader.load(Rank(rank), counter(&layout, Rank(rank)));
                    assert!(value >= seen[rank as usize]);
                    seen[rank as usize] = value;
                }
                seen[1..].iter().all(|value| *value == ROUNDS / 4)
            });
        });
    }

    /// A consumer thread reads a peer's row while the fabric's own thread is elsewhere.
    pub fn a_reader_on_another_thread_sees_what_is_posted<H: Harness<Fabric: Send>>() {
        let Group { layout, mut fabrics, everyone } = Group::<H>::new(2);
        let at = counter(&layout, Rank(0));
        let reader = fabrics[1].reader();
        let consumer = spawn(move || poll_until("the last counter", || reader.load(Rank(0), at) == ROUNDS));
        (1..=ROUNDS).for_each(|value| bump(&mut fabrics[0], at, value, &everyone));
        H::settle(&mut fabrics);
        consumer.join().expect("the consumer sees the last counter");
    }

    /// Two members each sleep until the other's counter has moved.
    pub fn no_wake_up_is_lost_in_ping_pong<H: Harness<Fabric: Send>>() {
        let Group { layout, fabrics, everyone } = Group::<H>::new(2);
        scope(|scope| {
            for mut fabric in fabrics {
                let (layout, everyone) = (&layout, &everyone);
                scope.spawn(move || {
                    let me = fabric.me();
                    let other = Rank(1 - me.0);
                    let (mine, theirs) = (counter(layout, me), counter(layout, other));
                    for round in 1..=SLEEPS {
                        // Rank 0 moves first.
                        sleep_until(&mut fabric, |fabric| {
                            fabric.load(other, theirs) >= round - u64::from(me == Rank(0))
                        });
                        bump(&mut fabric, mine, round, everyone);
                    }
                });
            }
        });
    }

    /// The peer that moves last wakes the sleeper.
    pub fn many_peers_wake_one_sleeper<H: Harness<Fabric: Send>>() {
        let Group { layout, mut fabrics, everyone } = Group::<H>::new(5);
        let mut sleeper = fabrics.remove(0);
        let (layout, everyone) = (&layout, &everyone);
        let rounds = SLEEPS / 10;
        scope(|scope| {
            for mut peer in fabrics {
                scope.spawn(move || {
                    let (at, served) = (counter(layout, peer.me()), counter(layout, Rank(0)));
                    for round in 1..=rounds {
                        bump(&mut peer, at, round, everyone);
                        sleep_until(&mut peer, |peer| peer.load(Rank(0), served) >= round);
                    }
                });
            }
            let at = counter(layout, Rank(0));
            for round in 1..=rounds {
                let came = |fabric: &mut H::Fabric, rank| fabric.load(Rank(rank), counter(layout, Rank(rank))) >= round;
                sleep_until(&mut sleeper, |fabric| (1..5).all(|rank| came(fabric, rank)));
                bump(&mut sleeper, at, round, everyone);
            }
        });
    }

    /// An application thread wakes its engine.
    pub fn a_doorbell_on_another_thread_ends_a_sleep<H: Harness<Fabric: Send>>() {
        let mut fabric = Group::<H>::new(1).fabrics.remove(0);
        let doorbell = fabric.doorbell();
        let (work, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let (work, done) = (&work, &done);
        scope(|scope| {
            scope.spawn(move || {
                for round in 1..=SLEEPS {
                    // Relaxed: the event count must order this store before its look at the
                    // sleeper.
                    work.store(round, Ordering::Relaxed);
                    doorbell.ring();
                    poll_until("the engine", || done.load(Ordering::Acquire) >= round);
                }
            });
            for round in 1..=SLEEPS {
                sleep_until(&mut fabric, |_| work.load(Ordering::Relaxed) >= round);
                done.store(round, Ordering::Release);
            }
        });
    }

    /// One member streams and never sleeps; the others sleep between the values that they see.
    pub fn sleepers_are_woken_while_others_keep_posting<H: Harness<Fabric: Send>>() {
        let Group { layout, mut fabrics, everyone } = Group::<H>::new(3);
        let mut writer = fabrics.remove(0);
        let at = counter(&layout, Rank(0));
        scope(|scope| {
            for mut fabric in fabrics {
                scope.spawn(move || {
                    let mut seen = 0;
                    while seen < ROUNDS {
                        sleep_until(&mut fabric, |fabric| fabric.load(Rank(0), at) > seen);
                        seen = fabric.load(Rank(0), at);
                    }
                });
            }
            (1..=ROUNDS).for_each(|value| bump(&mut writer, at, value, &everyone));
            flush(&mut writer);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::member_event_count::MemberEventCount;
    use crate::mesh::{Mesh, Peer};
    use crate::shm::{OwnRow, RowDescriptors};
    use spindle_transport::{SocketOptions, SocketStream};
    use std::os::unix::net::UnixStream;

    /// All members on one machine.
    struct Here;

    impl Harness for Here {
        type Fabric = Mesh;

        fn connect(layout: &Layout) -> Vec<Mesh> {
            connect(layout, |_| 0, MemberEventCount::create)
        }

        fn settle(_: &mut [Mesh]) {}
    }

    crate::conformance_suite!(Here);

    #[test]
    fn a_quiet_post_wakes_no_peer() {
        let mut group = Group::<Here>::new(2);
        let [loud, quiet] = [counter(&group.layout, Rank(0)), membership::HEARTBEAT];
        group.fabric(1).begin_sleep();
        group.fabric(0).store(quiet, 1);
        group.fabric(0).post_quietly(&[Rank(1)], quiet..quiet + 8);
        assert!(!group.fabric(1).sleep(Duration::from_millis(1)));
        group.put(Rank(0), loud, 1);
        assert!(group.fabric(1).sleep(PATIENCE));
    }

    /// Two members on each machine.
    mod mixed {
        use super::*;

        struct Mixed;

        impl Harness for Mixed {
            type Fabric = Mesh;

            fn connect(layout: &Layout) -> Vec<Mesh> {
                connect(layout, |rank| rank.0 / 2, MemberEventCount::with_event)
            }

            fn settle(fabrics: &mut [Mesh]) {
                crate::tcp::settle(fabrics);
            }
        }

        crate::conformance_suite!(Mixed);
    }

    /// Connects the members of a view, on the given machines.
    fn connect(
        layout: &Layout,
        machine: impl Fn(Rank) -> u32,
        event_count: impl Fn() -> Result<MemberEventCount, crate::RegionError>,
    ) -> Vec<Mesh> {
        let ranks = || (0..layout.rows().len() as u32).map(Rank);
        let (rows, parts): (Vec<OwnRow>, Vec<RowDescriptors>) =
            ranks().map(|rank| OwnRow::create(layout, rank, &mut Arena::new(event_count().unwrap())).unwrap()).unzip();
        let mut peers: Vec<Vec<(Rank, Option<Peer>)>> = ranks().map(|_| vec![]).collect();
        for near in ranks() {
            for far in ranks().filter(|far| near.0 < far.0) {
                let ends = if machine(near) == machine(far) {
                    [far, near].map(|rank| Peer::Here(parts[rank.index()].try_clone().unwrap()))
                } else {
                    let sockets: [UnixStream; 2] = UnixStream::pair().unwrap().into();
                    let stream = |socket| SocketStream::new(socket, &SocketOptions::default()).unwrap();
                    sockets.map(|socket| Peer::There(Box::new(stream(socket))))
                };
                let [of_near, of_far] = ends;
                peers[near.index()].push((far, Some(of_near)));
                peers[far.index()].push((near, Some(of_far)));
            }
        }
        let meshes = rows.into_iter().zip(peers).map(|(own, peers)| Mesh::new(layout, own, peers).unwrap());
        let mut meshes: Vec<Mesh> = meshes.collect();
        // Initial messages of the streams would end a sleep.
        crate::tcp::settle(&mut meshes);
        meshes
    }

    /// A case that is in no suite would never run.
    #[test]
    fn every_case_is_in_the_suite() {
        let source = include_str!("conformance.rs");
        let cases = source.lines().chain(include_str!("conformance/publishing.rs").lines());
        let names = cases.filter_map(|line| line.trim().strip_prefix("pub fn ")?.split_once("<H:"));
        let missing: Vec<&str> =
            names.map(|(name, _)| name).filter(|name| !source.lines().any(|line| line.trim() == *name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
