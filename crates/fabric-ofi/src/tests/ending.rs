//! Tests of members that end: by their own will, by a break, or killed.
use super::*;

/// The address at which the child that is killed finds its peer.
const CHILD: &str = "SPINDLE_OFI_TEST_CHILD";

/// A peer that has closed is reported, whatever was in flight, and the data that it had sent before
/// is valid.
#[test]
fn a_peer_that_ends_is_told() {
    if !is_here("tcp") {
        return;
    }
    for busy in [false, true] {
        let layout = layout(3);
        let mut fabrics = connect(&layout, "tcp");
        put(&mut fabrics[2], COUNT, 7);
        settle(&mut fabrics);
        if busy {
            for fabric in &mut fabrics {
                for value in 8..50 {
                    fabric.post(&EVERYONE, ring(&layout));
                    put(fabric, OTHER, value);
                }
            }
        }
        drop(fabrics.pop());
        for fabric in &mut fabrics {
            let (rank, why) = down(fabric);
            assert_eq!((rank, fabric.load(Rank(2), COUNT)), (Rank(2), 7), "{why}");
            assert!(!fabric.is_connected(Rank(2)) && fabric.next_down().is_none());
        }
        // The others continue.
        put(&mut fabrics[0], COUNT, 3);
        settle(&mut fabrics);
        assert_eq!(fabrics[1].load(Rank(0), COUNT), 3);
    }
}

/// A peer that sends its last message has ended in order, even if the network reports its end
/// first. Any other end is a break.
#[test]
fn an_end_in_order_is_told_from_a_break() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    for (in_order, is_told_first) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut members = bare(&layout);
        let (mut far, mut near) = (members.pop().unwrap(), members.pop().unwrap());
        if in_order {
            far.links_mut().finish();
            let start = Instant::now();
            while !far.links().is_flushed() {
                assert!(start.elapsed() < PATIENCE, "the last message does not leave");
                far.advance();
            }
        } else {
            far.links_mut().give_up();
        }
        if is_told_first {
            // As by an event that overtakes the completion.
            near.links_mut().shut_rank(Rank(1));
        } else {
            drop(far);
        }
        let (rank, why) = first_end(&mut near);
        assert_eq!((rank, matches!(why, Down::Closed)), (Rank(1), in_order), "told first: {is_told_first}: {why}");
        assert!(near.links().connected() == 0 && near.next_down().is_none());
        assert_eq!(near.cut(), u32::from(!in_order));
    }
}

/// A queue that is overrun may have lost completions of any connection. So all connections have
/// ended, and not in order.
#[test]
fn an_overrun_breaks_all_connections() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(3));
    let near = &mut members[0];
    assert_eq!(near.links().connected(), 2);
    // A provider has no operation to name, so it names none.
    assert!(!near.links_mut().take(Completion::Failed { context: 0, code: FI_EOVERRUN }));
    let mut ended = [first_end(near), first_end(near)];
    ended.sort_by_key(|(rank, _)| *rank);
    for ((rank, why), expected) in ended.iter().zip([Rank(1), Rank(2)]) {
        assert!(*rank == expected && matches!(why, Down::Os { .. }), "{rank}: {why}");
    }
    assert!(near.next_down().is_none());
}

/// A caller that asks for ended peers only after progress learns of those that went while it slept.
#[test]
fn a_peer_that_ends_in_a_sleep_is_progress() {
    if !is_here("tcp") {
        return;
    }
    let mut fabrics = connect(&layout(2), "tcp");
    settle(&mut fabrics);
    drop(fabrics.pop());
    let near = &mut fabrics[0];
    let start = Instant::now();
    while near.is_connected(Rank(1)) {
        assert!(start.elapsed() < PATIENCE, "nobody has noticed");
        near.begin_sleep();
        near.sleep(PATIENCE);
    }
    assert!(near.progress());
    assert!(matches!(near.next_down(), Some((Rank(1), _))));
    assert!(!near.progress());
}

/// A process that is killed sends nothing more, and its peers notice, awake or asleep.
#[test]
fn a_process_that_is_killed_is_noticed() {
    let layout = layout(2);
    if let Ok(address) = std::env::var(CHILD) {
        return play_the_child(&layout, &address);
    }
    if !is_here("tcp") {
        return;
    }
    for asleep in [false, true] {
        let (forming, address) = expecting(&layout);
        let bytes: Vec<String> = address.to_bytes().iter().map(|byte| byte.to_string()).collect();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::ending::a_process_that_is_killed_is_noticed"])
            .env(CHILD, bytes.join(" "))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut fabric = forming.finish(PATIENCE).unwrap();
        progress_until(&mut fabric, "the child's word", |fabric| fabric.load(Rank(0), COUNT) == 7);
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        let (rank, why) = loop {
            if let Some(down) = fabric.next_down() {
                break down;
            }
            assert!(start.elapsed() < PATIENCE, "nobody has noticed");
            if asleep {
                fabric.begin_sleep();
                fabric.progress();
                fabric.sleep(PATIENCE);
            } else {
                fabric.progress();
            }
        };
        assert!(rank == Rank(0) && !matches!(why, Down::Closed), "{why}");
        assert_eq!(fabric.load(Rank(0), COUNT), 7);
    }
}

fn play_the_child(layout: &Layout, address: &str) {
    let bytes: Vec<u8> = address.split(' ').map(|byte| byte.parse().unwrap()).collect();
    let address = OfiAddress::from_bytes(&bytes).unwrap();
    let forming = Forming::new(port(1), layout, 0, PURPOSE, [(1, address)]).unwrap();
    let mut fabric = forming.finish(PATIENCE).unwrap();
    put(&mut fabric, COUNT, 7);
    let start = Instant::now();
    while start.elapsed() < PATIENCE && fabric.next_down().is_none() {
        fabric.begin_sleep();
        fabric.progress();
        fabric.sleep(Duration::from_secs(1));
    }
}

/// With an orderly end everything arrives, however slow the peer is.
#[test]
fn a_sender_that_finishes_loses_nothing() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let ring = ring(&layout);
    let mut fabrics = connect(&layout, "tcp");
    let (mut second, mut first) = (fabrics.pop().unwrap(), fabrics.pop().unwrap());
    for at in ring.clone().step_by(8) {
        first.store(at, at);
        second.store(at, at);
    }
    first.post(&EVERYONE[..2], ring.clone());
    second.post(&EVERYONE[..2], ring.clone());
    (1..=1000).for_each(|value| put(&mut first, COUNT, value));
    std::thread::scope(|scope| {
        scope.spawn(move || assert!(first.finish(PATIENCE)));
        let (rank, why) = down(&mut second);
        assert!(matches!((rank, &why), (Rank(0), Down::Closed)), "{why}");
    });
    assert_eq!(second.load(Rank(0), COUNT), 1000);
    assert!(ring.clone().step_by(8).all(|at| second.load(Rank(0), at) == at));
    assert!(!second.finish(Duration::ZERO), "it could tell nobody");
}

/// The same if both finish at once.
#[test]
fn all_can_finish_at_once() {
    if !is_here("tcp") {
        return;
    }
    let mut fabrics = connect(&layout(3), "tcp");
    let readers: Vec<_> = fabrics.iter().map(Fabric::reader).collect();
    fabrics.iter_mut().for_each(|fabric| (1..=100).for_each(|value| put(fabric, COUNT, value)));
    let ended: Vec<bool> = std::thread::scope(|scope| {
        let ending: Vec<_> =
            fabrics.into_iter().map(|mut fabric| scope.spawn(move || fabric.finish(PATIENCE))).collect();
        ending.into_iter().map(|ending| ending.join().unwrap()).collect()
    });
    // The others may have learned that a peer has finished before they could report it.
    assert!(ended.contains(&true), "{ended:?}");
    for reader in readers {
        assert!(EVERYONE.iter().all(|rank| reader.load(*rank, COUNT) > 0));
    }
}

/// A finish is bounded.
#[test]
fn a_peer_that_hangs_does_not_hold_a_finish() {
    if !is_here("tcp") {
        return;
    }
    let mut fabrics = connect(&layout(2), "tcp");
    assert!(!fabrics.remove(0).finish(Duration::from_millis(5)));
}

/// Connections are closed before memory is released, whichever goes first and whatever is in
/// flight, and readers keep their memory.
#[test]
fn memory_outlives_what_moves_in_it() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(3);
    for seed in 0..20 {
        let mut random = TestRandom(seed);
        let mut fabrics = connect(&layout, "tcp");
        let readers: Vec<_> = fabrics.iter().map(Fabric::reader).collect();
        while !fabrics.is_empty() {
            for fabric in &mut fabrics {
                for _ in 0..random.below(10) {
                    fabric.post(&EVERYONE, ring(&layout));
                    put(fabric, COUNT, seed);
                }
            }
            drop(fabrics.remove(random.below(fabrics.len() as u64) as usize));
            fabrics.iter_mut().for_each(|fabric| _ = fabric.progress());
        }
        for reader in readers {
            for rank in EVERYONE {
                assert!((0..layout.row(rank).size).step_by(8).map(|at| reader.load(rank, at)).max().is_some());
            }
        }
    }
}

/// A process that has closed all of its fabrics has no more descriptors than before.
#[test]
fn everything_is_closed_in_the_end() {
    const ALONE: &str = "SPINDLE_OFI_TEST_ALONE";
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    if std::env::var_os(ALONE).is_some() {
        // The library may keep something after the first time.
        drop(connect(&layout(3), "tcp"));
        let before = descriptors();
        for _ in 0..3 {
            let mut fabrics = connect(&layout(3), "tcp");
            put(&mut fabrics[0], COUNT, 1);
            settle(&mut fabrics);
            assert!(descriptors() > before);
        }
        return assert_eq!(descriptors(), before);
    }
    if is_here("tcp") {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::ending::everything_is_closed_in_the_end", "--test-threads", "1"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
    }
}
