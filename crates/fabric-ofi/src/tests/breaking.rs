//! Tests of connections that break, and are made again.
use super::*;

/// Connections break at any time, at either end, while a ring is written and read. Nothing is lost,
/// and nothing is written twice.
#[test]
fn connections_may_break_at_any_time_and_any_number_of_times() {
    if !is_here("tcp") {
        return;
    }
    let kinds = [connect, connect_as_hardware];
    for seed in 0..40 {
        let case = format!("seed {seed}");
        let mut random = TestRandom(seed);
        let connect = |layout: &Layout| kinds[seed as usize % 2](layout, "tcp").try_into().unwrap();
        let mut pair = Pair::of(connect);
        let (mut breaks, mut resumed) = (0, 0);
        for _ in 0..1500 {
            match random.below(9) {
                0..3 => pair.append(1 + random.below(5)),
                3 => pair.announce(),
                4 => _ = pair.writer.progress(),
                5..8 => pair.read(random.below(2) == 0, &case),
                _ if random.below(16) == 0 => {
                    // So that it breaks again after it was resumed.
                    let start = Instant::now();
                    while !pair.writer.is_connected(Rank(1)) || !pair.reader.is_connected(Rank(0)) {
                        assert!(start.elapsed() < PATIENCE, "{case}: not connected again");
                        pair.writer.progress();
                        pair.reader.progress();
                        std::thread::yield_now();
                    }
                }
                _ if random.below(8) == 0 => {
                    let (mesh, other) =
                        if random.below(2) == 0 { (&mut pair.writer, 1) } else { (&mut pair.reader, 0) };
                    if mesh.is_connected(Rank(other)) {
                        shut(mesh, Rank(other));
                        breaks += 1;
                    }
                }
                _ => {}
            }
            for mesh in [&mut pair.writer, &mut pair.reader] {
                while let Some((_, why)) = mesh.next_down() {
                    assert!(matches!(why, Down::Os { .. }), "{case}: {why}");
                }
                while mesh.next_up().is_some() {
                    resumed += 1;
                }
            }
        }
        // Until both ends have noticed the last break.
        let (start, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < Duration::from_millis(10) {
            assert!(start.elapsed() < PATIENCE, "{case}: not connected again");
            pair.writer.progress();
            pair.read(true, &case);
            let is_down = pair.writer.next_down().or_else(|| pair.reader.next_down()).is_some();
            if is_down || !pair.writer.is_connected(Rank(1)) || !pair.reader.is_connected(Rank(0)) {
                last = Instant::now();
            }
        }
        pair.finish(&case);
        assert!(breaks > 0 && resumed > 0, "{case}: {breaks} breaks, {resumed} times resumed");
    }
}

/// A call to a peer that has ended fails, and its host refuses it.
#[test]
fn calls_to_a_process_that_has_ended_are_refused() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let mut far = members.pop().unwrap();
    let near = &mut members[0];
    far.links_mut().give_up();
    drop(far);
    assert!(matches!(first_end(near), (Rank(1), Down::Os { .. })));
    let (rank, why) = first_end(near);
    assert!(rank == Rank(1) && matches!(why, Down::Refused), "{why}");
    assert!(near.cut() == 1 && near.next_up().is_none());
}

/// A sleeping member learns as well that no process listens at its peer's address, and calls no
/// more often than the pauses allow.
#[test]
fn a_sleeping_member_learns_that_calls_are_refused() {
    if !is_here("tcp") {
        return;
    }
    for _ in 0..5 {
        let mut meshes = connect(&layout(2), "tcp");
        settle(&mut meshes);
        let (far, mut near) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        drop_abruptly(far);
        let (start, before, mut ends) = (Instant::now(), begun(&near), vec![]);
        while !ends.iter().any(|down| matches!(down, Down::Refused)) {
            assert!(start.elapsed() < PATIENCE, "nobody has said so: {ends:?}");
            near.begin_sleep();
            near.progress();
            ends.extend(std::iter::from_fn(|| near.next_down()).map(|(_, down)| down));
            near.sleep(PATIENCE);
        }
        assert!(ends.len() == 2 && matches!(ends[0], Down::Os { .. }), "{ends:?}");
        // The first call may have met the port while it closed.
        let calls = begun(&near) - before;
        assert!((2..=4).contains(&calls), "{calls} calls");
    }
}

/// Ends the connections of `mesh` without a last message.
fn drop_abruptly(mut mesh: Mesh) {
    drop(mesh.retire());
}

/// A connection that breaks after the last message was handed over has not ended in order: the
/// message may be lost. Both ends continue until they have received the last message of the other.
#[test]
fn a_break_after_the_last_message_is_a_cut() {
    if !is_here("tcp") {
        return;
    }
    // Which side finishes, and whether the other has learned that and answered when the connection
    // breaks.
    for (finishes, answers) in [(0, false), (0, true), (1, false)] {
        let mut members = bare(&layout(2));
        let (me, peer) = (Rank(finishes as u32), Rank(1 - finishes as u32));
        members[finishes].links_mut().finish();
        let start = Instant::now();
        while !members[finishes].links().is_flushed() {
            assert!(start.elapsed() < PATIENCE, "the last message does not leave");
            // No message is taken in.
            members[finishes].links_mut().flush();
            members[finishes].links_mut().look();
        }
        if answers {
            let end = first_end(&mut members[1 - finishes]);
            assert!(matches!(end, (_, Down::Closed)), "{end:?}");
        } else {
            members[1 - finishes].links_mut().lose(me);
        }
        members[finishes].links_mut().lose(peer);
        let (_, why) = first_end(&mut members[finishes]);
        assert!(matches!(why, Down::Os { .. }), "{why}");
        assert_eq!(members[finishes].cut(), 1);
        advance_until(&mut members, "the end in order", |members| members[finishes].cut() == 0);
        advance_until(&mut members, "the end of the connection", |members| {
            members.iter().all(|member| member.links().connected() == 0 && member.cut() == 0)
        });
        let ends: Vec<Down> = std::iter::from_fn(|| members[finishes].next_down()).map(|(_, why)| why).collect();
        assert!(matches!(ends.last(), Some(Down::Closed)), "{ends:?}");
    }
}

/// A peer that has closed its port no longer needs the end of the view.
#[test]
fn a_finished_member_gives_up_a_peer_that_refuses() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let mut far = members.pop().unwrap();
    far.links_mut().give_up();
    members[0].links_mut().finish();
    drop(far);
    assert!(matches!(first_end(&mut members[0]), (_, Down::Os { .. })));
    assert!(matches!(first_end(&mut members[0]), (_, Down::Refused)));
    assert_eq!(members[0].cut(), 0);
}

/// A connection may have broken before the member learned that it was made. The same member calls
/// again.
#[test]
fn a_connection_that_breaks_as_soon_as_it_is_made_is_called_again() {
    if !is_here("tcp") {
        return;
    }
    for me in [0, 1] {
        let mut members = bare(&layout(2));
        let endpoint = members[me].links().endpoint(Rank(1 - me as u32));
        // As by an event that was queued while it was not connected.
        members[me].lost(endpoint, libc::ECONNRESET).unwrap();
        assert!(matches!(first_end(&mut members[me]), (_, Down::Os { .. })));
        assert_eq!(members[me].cut(), 1);
        let mut ups = 0;
        advance_until(&mut members, "the next connection", |members| {
            ups += u32::from(members[me].next_up().is_some());
            ups > 0 && members.iter().all(|member| member.cut() == 0)
        });
    }
}

/// A caller that does not ask which peer is back learns once that there is something.
#[test]
fn a_connection_that_is_made_again_is_progress_once() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    members[0].links_mut().shut_rank(Rank(1));
    assert!(matches!(first_end(&mut members[0]), (_, Down::Os { .. })));
    let (start, mut last) = (Instant::now(), None);
    while last.is_none_or(|last: Instant| last.elapsed() < Duration::from_millis(20)) {
        assert!(start.elapsed() < PATIENCE, "it is progress for ever, or never");
        members[1].advance();
        if members[0].advance().1 {
            last = Some(Instant::now());
        }
    }
    assert_eq!([members[0].next_up(), members[0].next_up()], [Some(Rank(1)), None]);
}

/// A connection that breaks again and again is called after longer and longer pauses.
#[test]
fn a_flapping_connection_keeps_its_pauses() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let start = Instant::now();
    for _ in 0..6 {
        members[0].links_mut().shut_rank(Rank(1));
        assert!(matches!(first_end(&mut members[0]), (_, Down::Os { .. })));
        advance_until(&mut members, "the next connection", |members| {
            members.iter_mut().for_each(|member| while member.next_down().is_some() {});
            members[0].next_up().is_some()
        });
    }
    // The first may have lasted for long.
    let pauses = [0, 4, 8, 16, 32, 64].iter().sum();
    assert!(start.elapsed() >= Duration::from_millis(pauses), "{:?}", start.elapsed());
}

/// A member that waits for a call sleeps.
#[test]
fn a_member_that_waits_for_a_call_sleeps() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    let (mut far, mut near) = (members.pop().unwrap(), members.pop().unwrap());
    near.links_mut().give_up();
    drop(near);
    assert!(matches!(first_end(&mut far), (Rank(0), Down::Os { .. })));
    let (start, mut sleeps) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(100) {
        far.advance();
        far.rest(PATIENCE);
        sleeps += 1;
    }
    assert!(far.cut() == 1 && sleeps < 30, "{sleeps} sleeps in 100 ms");
}

/// A retired view needs progress while peers are cut off: they lack the end of the view.
#[test]
fn a_retired_view_is_looked_after_until_its_peers_are_back() {
    if !is_here("tcp") {
        return;
    }
    let mut meshes = connect(&layout(2), "tcp");
    settle(&mut meshes);
    let (mut far, mut near) = (meshes.pop().unwrap(), meshes.pop().unwrap());
    put(&mut near, COUNT, 7);
    shut(&mut near, Rank(1));
    let mut retired = near.retire().unwrap();
    let start = Instant::now();
    while retired.next_down().is_none() {
        assert!(!retired.progress() && start.elapsed() < PATIENCE);
    }
    assert!(!retired.is_open() && retired.is_calling() && retired.is_cut() && !retired.progress());
    while !retired.progress() {
        assert!(start.elapsed() < PATIENCE, "the end of the view is not told");
        far.progress();
    }
    assert!(!retired.is_open() && !retired.is_calling() && far.load(Rank(0), COUNT) == 7);
}

/// A call that fails at once is made again, after pauses, and proves nothing.
#[test]
fn a_call_that_fails_at_once_is_made_again() {
    if !is_here("tcp") || std::env::var_os("SPINDLE_OFI_PROVIDER").is_some() {
        return;
    }
    let mut members = bare(&layout(2));
    let near = &mut members[0];
    // No route leads there from the loopback interface.
    let mut bytes = near.address().to_bytes();
    bytes[8..12].copy_from_slice(&[255; 4]);
    let right = near.misdirect(Rank(1), OfiAddress::from_bytes(&bytes).unwrap()).unwrap();
    let begun = near.links().begun();
    near.links_mut().shut_rank(Rank(1));
    assert!(matches!(first_end(near), (Rank(1), Down::Os { .. })));
    advance_until(&mut members, "calls that fail", |members| members[0].links().begun() >= begun + 4);
    assert!(members[0].next_down().is_none() && members[0].cut() == 1);
    members[0].misdirect(Rank(1), right);
    advance_until(&mut members, "the next connection", |members| members[0].next_up().is_some());
    assert!(members[0].next_down().is_none());
}

/// The peer has called again, so its connection is closed before the answer is made, and there is
/// no room for the answer. The end of the connection is reported once, and the next call is
/// answered.
#[test]
fn an_answer_that_fails_after_a_replacement_is_made_again() {
    if !is_here("tcp") {
        return;
    }
    let mut members = bare(&layout(2));
    members[1].links().desk().network().is_full.store(true, Ordering::Relaxed);
    let begun = members[0].links().begun();
    members[0].links_mut().lose(Rank(1));
    let start = Instant::now();
    // The call is there when the end is noticed.
    while members[0].links().begun() == begun {
        assert!(start.elapsed() < PATIENCE, "it does not call");
        members[0].advance();
    }
    assert!(matches!(first_end(&mut members[1]), (Rank(0), Down::Os { .. })));
    let mut refused = 0;
    advance_until(&mut members, "a refused call", |members| {
        refused += u32::from(matches!(members[0].next_down(), Some((_, Down::Refused))));
        refused > 0
    });
    assert!(members[1].next_down().is_none() && members[1].cut() == 1, "its end was told before");
    members[1].links().desk().network().is_full.store(false, Ordering::Relaxed);
    advance_until(&mut members, "the next connection", |members| members[1].next_up().is_some());
    assert!(members[1].next_down().is_none() && members[1].cut() == 0);
}

/// More calls than are handled in one look are all refused.
#[test]
fn many_calls_at_once_are_all_refused() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let (mut forming, address) = expecting(&layout);
    let stranger = Stranger::new();
    let endpoints: Vec<ActiveEndpoint> = (0..100).map(|_| stranger.call(&address, &[1, 2, 3, 4])).collect();
    for _ in &endpoints {
        let event = stranger.event(|| assert!(!forming.progress().unwrap(), "nobody has come"));
        assert!(matches!(event, ConnectionEvent::Failed { .. } | ConnectionEvent::Shutdown { .. }), "{event:?}");
    }
}
