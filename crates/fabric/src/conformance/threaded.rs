//! Cases in which members run on threads of their own.
use super::harness::{ConnectedGroup, Harness, PATIENCE, counter, ring};
use crate::fabric::Fabric;
use spindle_core::{Rank, Rows};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{scope, spawn, yield_now};
use std::time::{Duration, Instant};

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
    let ConnectedGroup { layout, fabrics, everyone } = ConnectedGroup::<H>::new(2);
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
    let ConnectedGroup { layout, fabrics, everyone } = ConnectedGroup::<H>::new(2);
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
    let ConnectedGroup { layout, mut fabrics, everyone } = ConnectedGroup::<H>::new(5);
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
    let ConnectedGroup { layout, mut fabrics, everyone } = ConnectedGroup::<H>::new(2);
    let at = counter(&layout, Rank(0));
    let reader = fabrics[1].reader();
    let consumer = spawn(move || poll_until("the last counter", || reader.load(Rank(0), at) == ROUNDS));
    (1..=ROUNDS).for_each(|value| bump(&mut fabrics[0], at, value, &everyone));
    H::settle(&mut fabrics);
    consumer.join().expect("the consumer sees the last counter");
}

/// Two members each sleep until the other's counter has moved.
pub fn no_wake_up_is_lost_in_ping_pong<H: Harness<Fabric: Send>>() {
    let ConnectedGroup { layout, fabrics, everyone } = ConnectedGroup::<H>::new(2);
    scope(|scope| {
        for mut fabric in fabrics {
            let (layout, everyone) = (&layout, &everyone);
            scope.spawn(move || {
                let me = fabric.me();
                let other = Rank(1 - me.0);
                let (mine, theirs) = (counter(layout, me), counter(layout, other));
                for round in 1..=SLEEPS {
                    // Rank 0 moves first.
                    sleep_until(&mut fabric, |fabric| fabric.load(other, theirs) >= round - u64::from(me == Rank(0)));
                    bump(&mut fabric, mine, round, everyone);
                }
            });
        }
    });
}

/// The peer that moves last wakes the sleeper.
pub fn many_peers_wake_one_sleeper<H: Harness<Fabric: Send>>() {
    let ConnectedGroup { layout, mut fabrics, everyone } = ConnectedGroup::<H>::new(5);
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
    let mut fabric = ConnectedGroup::<H>::new(1).fabrics.remove(0);
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
    let ConnectedGroup { layout, mut fabrics, everyone } = ConnectedGroup::<H>::new(3);
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
