//! Tests of meshes on one machine, of observers, and of sleeps.
use super::sleeping::{NAP, WORKED_MAX};
use super::*;
use crate::arena::Arena;
use crate::conformance::{PATIENCE, view};
use crate::fabric::Fabric;
use crate::member_event_count::MemberEventCount;
use crate::mirror::Mirror;
use spindle_core::wire::layout::entry;
use spindle_transport::{SocketOptions, SocketStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

fn own(layout: &Layout, rank: u32) -> (OwnRow, RowDescriptors) {
    OwnRow::create(layout, Rank(rank), &mut Arena::new(MemberEventCount::create().unwrap())).unwrap()
}

#[test]
fn each_other_member_is_needed_once() {
    let layout = Layout::new(&view(3, 8)).unwrap();
    let (_row, parts) = own(&layout, 1);
    for (given, rank, times) in
        [(vec![], 1, 0), (vec![1], 2, 0), (vec![1, 1], 1, 2), (vec![0], 0, 1), (vec![1, 2, 3], 3, 1)]
    {
        let given = given.into_iter().map(|rank| (Rank(rank), Some(Peer::Here(parts.try_clone().unwrap()))));
        let error = Mesh::new(&layout, own(&layout, 0).0, given).unwrap_err();
        assert!(
            matches!(error, MeshError::Peers { rank: r, times: t, me: Rank(0) } if (r.0, t) == (rank, times)),
            "{error}"
        );
    }
}

#[test]
fn an_absent_member_has_a_row_of_zeros() {
    let layout = Layout::new(&view(2, 8)).unwrap();
    let mut mesh = Mesh::new(&layout, own(&layout, 0).0, [(Rank(1), None)]).unwrap();
    assert!((0..layout.row(Rank(1)).size).step_by(8).all(|at| mesh.load(Rank(1), at) == 0));
    mesh.post(&[Rank(1)], 0..64);
    assert!(!mesh.is_connected(Rank(1)) && mesh.traffic(Rank(1)).is_none() && mesh.is_flushed());
    assert!(mesh.next_down().is_none() && mesh.retire().is_none());
}

/// An observer over a stream sees nothing but what was sent, however often rings are
/// overwritten meanwhile. By the counts of freed bytes it can determine whether the bytes that
/// it has read are valid.
#[test]
fn a_observer_sees_what_was_sent_or_that_it_was_lapped() {
    let layout = Layout::new(&view(1, 8)).unwrap();
    let place = *layout.row(Rank(0)).subgroups().next().unwrap();
    let ring = place.ring.unwrap();
    let words = ring.capacity / 8;
    let (published, freed) = (place.entry + entry::PUBLISHED, place.entry + entry::FREED);
    for (seed, buffer) in [(1u64, Some(1)), (2, None), (3, Some(1)), (4, None)] {
        let (own, _) =
            OwnRow::create(&layout, Rank(0), &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap();
        let mut mesh = Mesh::new(&layout, own, []).unwrap();
        let options = SocketOptions { send_buffer_bytes: buffer, receive_buffer_bytes: buffer, silence_ms: None };
        let [near, far] = <[_; 2]>::from(UnixStream::pair().unwrap())
            .map(|socket| Box::new(SocketStream::new(socket, &options).unwrap()));
        let mut random = seed;
        let mut below = move |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let total = 300 * words;
        let write = |mesh: &mut Mesh, from: u64, to: u64| {
            // Freed before it is overwritten, and announced later.
            mesh.store(freed, to.saturating_sub(words) * 8);
            mesh.progress();
            for index in from..to {
                let at = ring.at + index % words * 8;
                mesh.store(at, index + 1);
                mesh.post(&[], at..at + 8);
            }
            mesh.store(published, to * 8);
            mesh.post(&[], place.entry..place.entry + 64);
        };
        // The observer begins at a time when all laps look alike.
        write(&mut mesh, 0, 3 * words / 2);
        mesh.add_observer(&layout, near).unwrap();
        assert_eq!(mesh.observers(), 1);
        let mut watched = Watched::new(&layout, vec![Some(Peer::There(far))], &Mirror::new()).unwrap();
        let (mut written, mut seen, mut good, mut lapped, mut free) = (3 * words / 2, 0, 0, 0, 0);
        let start = Instant::now();
        while seen < total {
            assert!(start.elapsed() < PATIENCE, "seed {seed}: {seen} of {total} seen");
            let to = (written + below(words / 2)).min(total);
            write(&mut mesh, written, to);
            written = to;
            mesh.progress();
            if below(4) > 0 && written < total {
                continue;
            }
            watched.progress();
            let rows = watched.rows();
            let now = rows.load(Rank(0), published) / 8;
            assert!(now >= seen, "seed {seed}: back from {seen} to {now}");
            assert!(rows.load(Rank(0), freed) >= free, "seed {seed}: what was free is not any more");
            free = rows.load(Rank(0), freed);
            for index in now.saturating_sub(words)..now {
                let word = rows.load(Rank(0), ring.at + index % words * 8);
                if rows.load(Rank(0), freed) <= index * 8 {
                    assert_eq!(word, index + 1, "seed {seed}, word {index} of {now}");
                    good += 1;
                } else {
                    lapped += 1;
                }
            }
            seen = now;
        }
        assert!(good > words && lapped > 0, "seed {seed}: {good} words seen, {lapped} lapped");
        // Each side notices the end of the other.
        drop(watched);
        while mesh.observers() > 0 {
            mesh.progress();
            assert!(start.elapsed() < PATIENCE);
        }
    }
}

/// A ringer goes by what was announced, whatever has come since.
#[test]
fn a_observer_that_comes_before_a_sleep_does_not_make_it_deaf() {
    let layout = Layout::new(&view(1, 8)).unwrap();
    let (own, _) = OwnRow::create(&layout, Rank(0), &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap();
    let mut mesh = Mesh::new(&layout, own, []).unwrap();
    let (near, _far) = UnixStream::pair().unwrap();
    mesh.begin_sleep();
    assert!(!mesh.sleep(PATIENCE));
    // From now on it sleeps as long as it is asked to.
    mesh.begin_sleep();
    mesh.add_observer(&layout, Box::new(SocketStream::new(near, &SocketOptions::default()).unwrap())).unwrap();
    let (doorbell, start) = (mesh.doorbell(), Instant::now());
    let sleeper = format!("/proc/self/task/{}/stat", rustix::thread::gettid().as_raw_nonzero());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !std::fs::read_to_string(&sleeper).unwrap().contains(") S ") {
                assert!(start.elapsed() < PATIENCE, "it does not sleep");
                std::thread::yield_now();
            }
            assert!(doorbell.ring());
        });
        assert!(mesh.sleep(PATIENCE) && start.elapsed() < PATIENCE, "it was not woken");
    });
}

#[test]
fn the_first_sleep_after_an_announcement_is_a_nap_and_while_it_stands_none_is() {
    let layout = Layout::new(&view(1, 8)).unwrap();
    let mut mesh = Mesh::new(
        &layout,
        OwnRow::create(&layout, Rank(0), &mut Arena::new(MemberEventCount::create().unwrap())).unwrap().0,
        [],
    )
    .unwrap();
    let naps = |mesh: &mut Mesh| {
        let start = Instant::now();
        mesh.begin_sleep();
        assert!(!mesh.sleep(PATIENCE) && start.elapsed() < PATIENCE);
    };
    naps(&mut mesh);
    for _ in 0..2 {
        let start = Instant::now();
        mesh.begin_sleep();
        assert!(!mesh.sleep(5 * NAP) && start.elapsed() >= 5 * NAP);
    }
    // The announcement is still in force.
    assert!(mesh.doorbell().ring());
    mesh.begin_sleep();
    assert!(mesh.sleep(PATIENCE) && !mesh.doorbell().ring(), "it is awake");
    assert!(mesh.sleep(PATIENCE), "it has not looked for work again");
    for found in [1, WORKED_MAX - 1] {
        let start = Instant::now();
        (0..found).for_each(|_| mesh.end_sleep());
        assert!(!mesh.doorbell().ring());
        mesh.begin_sleep();
        assert!(!mesh.sleep(5 * NAP) && start.elapsed() >= 5 * NAP, "no nap: the announcement stands");
    }
    (0..WORKED_MAX).for_each(|_| mesh.end_sleep());
    assert_eq!(mesh.row.load(membership::ASLEEP), 0, "it has much to do");
    naps(&mut mesh);
}

/// The row of a member comes late, while this member is about to sleep.
#[test]
fn a_member_that_attaches_a_way_does_not_sleep_before_it_has_looked_again() {
    let layout = Layout::new(&view(2, 8)).unwrap();
    let row = |rank| OwnRow::create(&layout, Rank(rank), &mut Arena::new(MemberEventCount::create().unwrap())).unwrap();
    let mut mesh = Mesh::new(&layout, row(0).0, [(Rank(1), None)]).unwrap();
    let (_row, parts) = row(1);
    mesh.begin_sleep();
    mesh.attach(&layout, Rank(1), Peer::Here(parts)).unwrap();
    assert!(mesh.sleep(PATIENCE));
    mesh.begin_sleep();
    assert!(!mesh.sleep(NAP));
}

/// An application that has not noticed the new view commits in the old ring, and the member
/// sleeps in the new view.
#[test]
fn a_ring_of_an_ended_view_wakes_its_member_still() {
    let layout = Layout::new(&view(1, 8)).unwrap();
    let event_count = MemberEventCount::create().unwrap();
    let mesh = || {
        Mesh::new(&layout, OwnRow::create(&layout, Rank(0), &mut Arena::new(event_count.clone())).unwrap().0, [])
            .unwrap()
    };
    let (old, mut new) = (mesh(), mesh());
    let user = Arc::new(());
    let (stale, lingering) = (old.doorbell(), old.linger(&user));
    drop(old);
    new.begin_sleep();
    assert!(!stale.ring(), "nobody listens there yet");
    new.listen_to(vec![lingering]);
    for _ in 0..2 {
        new.begin_sleep();
        assert!(stale.ring());
        assert!(new.sleep(PATIENCE));
        assert!(!stale.ring(), "it is awake");
    }
    drop(user);
    new.begin_sleep();
    assert!(!stale.ring(), "nobody uses it any more");
    assert!(new.take_lingering().is_empty());
}
