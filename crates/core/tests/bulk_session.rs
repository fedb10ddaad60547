//! Scenarios of one member of a bulk group, and invalid counters from its peers.
use spindle_core::rdmc::{
    Algorithm, Columns, Input, ObjectNumber, Output, Schedule, Session, SessionSendError, SessionSettings, Slot,
};
use spindle_core::{Fault, Rank};

const SLOT: Slot = Slot(0);

/// Blocks of 10 bytes, one slot, no direct objects.
fn session(algorithm: Algorithm, members: u32, me: u32) -> (Session, Vec<Output>) {
    let schedule = Schedule::new(algorithm, members);
    let settings =
        SessionSettings { block_bytes: 10, slots: 1, direct_below: 0, ..SessionSettings::new(schedule, Rank(me)) };
    start(settings)
}

fn start(settings: SessionSettings) -> (Session, Vec<Output>) {
    let mut out = vec![];
    (Session::new(settings, &mut out).unwrap(), out)
}

/// Returns the outputs of a session for an input.
fn does(session: &mut Session, input: Input) -> Vec<Output> {
    let mut out = vec![];
    session.handle(input, &mut out).unwrap();
    out
}

fn hears(session: &mut Session, from: u32, columns: Columns) -> Vec<Output> {
    does(session, Input::Columns { from: Rank(from), slot: SLOT, columns })
}

/// A row: lengths plus one, steps, ready, have.
fn columns(bytes: u64, steps: u64, ready: u64, have: u64) -> Columns {
    Columns { bytes, steps, ready, have }
}

/// The receivers of blocks, the offsets in the object, and the lengths.
fn blocks(out: &[Output]) -> Vec<(u32, u64, u64)> {
    let block = |output: &Output| match *output {
        Output::Block { to, at, bytes, .. } => Some((to.0, at, bytes)),
        _ => None,
    };
    out.iter().filter_map(block).collect()
}

fn gone(session: &mut Session) -> Vec<Output> {
    does(session, Input::Gone { slot: SLOT })
}

#[test]
fn a_receiver_is_ready_for_one_block_of_any_object() {
    let (_, out) = session(Algorithm::Chain, 3, 2);
    assert_eq!(out, [Output::Columns { to: Rank(1), slot: SLOT, columns: columns(0, 0, 1, 0) }]);
    let (_, out) = session(Algorithm::Chain, 3, 0);
    assert_eq!(out, [], "the root receives nothing");
    let schedule = Schedule::new(Algorithm::Chain, 3);
    let (_, out) = start(SessionSettings::new(schedule, Rank(2)));
    let told: Vec<u32> = out.iter().map(|o| if let Output::Columns { to, .. } = o { to.0 } else { 9 }).collect();
    assert_eq!(told, [1, 0, 1, 0], "small objects come from the root; there are two slots");
}

#[test]
fn the_first_block_is_passed_on_before_there_is_room_for_the_others() {
    let (mut relay, _) = session(Algorithm::Chain, 3, 1);
    assert_eq!(hears(&mut relay, 2, columns(0, 0, 1, 0)), []);
    let out = hears(&mut relay, 0, columns(26, 1, 0, 0));
    assert_eq!(out[0], Output::Size { object: ObjectNumber(0), bytes: 25 });
    assert_eq!(blocks(&out), [(2, 0, 10)]);
    assert_eq!(gone(&mut relay), []);
    let out = does(&mut relay, Input::Room { object: ObjectNumber(0) });
    assert_eq!(out, [Output::Columns { to: Rank(0), slot: SLOT, columns: columns(26, 2, 3, 0) }], "ready for two more");
}

#[test]
fn the_length_is_exact() {
    let (mut root, _) = session(Algorithm::Chain, 2, 0);
    assert_eq!(hears(&mut root, 1, columns(0, 0, 1, 0)), []);
    let mut out = vec![];
    assert_eq!(root.send(25, &mut out), Ok(ObjectNumber(0)));
    assert_eq!(blocks(&out), [(1, 0, 10)]);
    assert_eq!(gone(&mut root), [], "no credit");
    assert_eq!(blocks(&hears(&mut root, 1, columns(26, 0, 3, 0))), [(1, 10, 10)]);
    let out = gone(&mut root);
    assert_eq!(blocks(&out), [(1, 20, 5)]);
    assert!(matches!(out[0], Output::Block { is_first: false, columns, .. } if columns.bytes == 26), "{out:?}");
    // An object of no bytes is one block of no bytes.
    let (mut root, _) = session(Algorithm::Chain, 2, 0);
    hears(&mut root, 1, columns(0, 0, 1, 0));
    let mut out = vec![];
    root.send(0, &mut out).unwrap();
    assert_eq!(blocks(&out), [(1, 0, 0)]);
}

#[test]
fn a_slot_is_reused_when_all_are_done_with_it() {
    let (mut root, _) = session(Algorithm::Sequential, 3, 0);
    hears(&mut root, 1, columns(0, 0, 1, 0));
    hears(&mut root, 2, columns(0, 0, 1, 0));
    let mut out = vec![];
    root.send(10, &mut out).unwrap();
    assert_eq!(blocks(&out), [(1, 0, 10), (2, 0, 10)], "one block each, at once");
    assert_eq!(root.send(10, &mut out), Err(SessionSendError::Full { slots: 1 }));
    assert_eq!(gone(&mut root), []);
    assert_eq!(gone(&mut root), [Output::Complete { object: ObjectNumber(0) }]);
    // A peer that has finished is ready for the first block of the next object.
    assert_eq!(hears(&mut root, 1, columns(11, 2, 2, 1)), []);
    assert_eq!(root.send(10, &mut out), Err(SessionSendError::Full { slots: 1 }));
    assert_eq!(hears(&mut root, 2, columns(11, 2, 1, 1)), [Output::Everywhere { object: ObjectNumber(0) }]);
    let mut out = vec![];
    assert_eq!(root.send(10, &mut out), Ok(ObjectNumber(1)));
    assert_eq!(blocks(&out), [(1, 0, 10)], "rank 2 has not moved its first block yet");
    assert_eq!(blocks(&hears(&mut root, 2, columns(11, 2, 2, 1))), [(2, 0, 10)]);
}

#[test]
fn a_member_alone_has_everything_at_once() {
    let (mut root, _) = session(Algorithm::BinomialPipeline, 1, 0);
    for object in (0..3).map(ObjectNumber) {
        let mut out = vec![];
        root.send(1_000, &mut out).unwrap();
        assert_eq!(out, [Output::Complete { object }, Output::Everywhere { object }]);
    }
}

#[test]
fn a_death_fails_what_is_not_complete_and_is_told_once() {
    let (mut member, _) = session(Algorithm::Chain, 3, 2);
    hears(&mut member, 1, columns(26, 2, 0, 0));
    let out = does(&mut member, Input::Died { rank: Rank(0) });
    assert_eq!(out, [Output::Failed { object: ObjectNumber(0) }, Output::Closed { dead: Rank(0) }]);
    assert_eq!(does(&mut member, Input::Closed { dead: Rank(1) }), []);
    assert_eq!(hears(&mut member, 1, columns(26, 3, 0, 0)), []);
    let (mut root, _) = session(Algorithm::Chain, 3, 0);
    assert_eq!(does(&mut root, Input::Closed { dead: Rank(2) }), [Output::Closed { dead: Rank(2) }]);
    assert_eq!(root.send(1, &mut vec![]), Err(SessionSendError::Closed { dead: Rank(2) }));
    // A member that has the whole object has not lost it.
    let (mut last, _) = session(Algorithm::Chain, 2, 1);
    hears(&mut last, 0, columns(6, 1, 0, 0));
    let out = does(&mut last, Input::Room { object: ObjectNumber(0) });
    assert_eq!(out[0], Output::Complete { object: ObjectNumber(0) });
    assert_eq!(does(&mut last, Input::Died { rank: Rank(0) }), [Output::Closed { dead: Rank(0) }]);
}

#[test]
fn settings_and_objects_out_of_range_are_refused() {
    let settings = SessionSettings::new(Schedule::new(Algorithm::Chain, 3), Rank(2));
    for wrong in [
        SessionSettings { me: Rank(3), ..settings.clone() },
        SessionSettings { block_bytes: 0, ..settings.clone() },
        SessionSettings { slots: 0, ..settings.clone() },
        SessionSettings { ahead: 1, ..settings.clone() },
        SessionSettings { ahead: 65, ..settings.clone() },
        SessionSettings { posts_max: 0, ..settings.clone() },
        SessionSettings::new(Schedule::new(Algorithm::Chain, 1_025), Rank(0)),
    ] {
        let error = Session::new(wrong, &mut vec![]).unwrap_err();
        assert!(!(error.least..=error.most).contains(&error.found), "{error}");
    }
    let (mut receiver, _) = start(settings);
    assert_eq!(receiver.send(1, &mut vec![]), Err(SessionSendError::NotRoot { me: Rank(2) }));
    let (mut root, _) = session(Algorithm::Chain, 3, 0);
    let max = u64::from(u32::MAX) * 10;
    assert_eq!(root.send(max + 1, &mut vec![]), Err(SessionSendError::TooLong { bytes: max + 1, max }));
    assert_eq!(root.send(max, &mut vec![]), Ok(ObjectNumber(0)), "block numbers fill 32 bits");
}

#[test]
fn nonsense_names_who_wrote_it_and_changes_nothing() {
    let (mut member, _) = session(Algorithm::Chain, 4, 2);
    let said = |member: &mut Session, from, columns| {
        let mut out = vec![];
        let answer = member.handle(Input::Columns { from: Rank(from), slot: SLOT, columns }, &mut out);
        assert!(answer.is_ok() || out.is_empty());
        answer
            .err()
            .map(|fault| if let Fault::Counter { member, counter, .. } = fault { (member.0, counter) } else { (9, "") })
    };
    assert_eq!(said(&mut member, 1, columns(u64::MAX, 0, 0, 0)), Some((1, "bytes")), "no object is that long");
    assert_eq!(said(&mut member, 1, columns(26, 6, 0, 0)), Some((1, "steps")));
    assert_eq!(said(&mut member, 1, columns(26, 2, 3, 0)), None);
    assert_eq!(said(&mut member, 1, columns(26, 2, 2, 0)), Some((1, "ready")), "it fell");
    assert_eq!(said(&mut member, 3, columns(25, 0, 1, 0)), Some((3, "bytes")), "another length");
    assert_eq!(said(&mut member, 3, columns(0, 0, 5, 0)), Some((3, "ready")));
    assert_eq!(said(&mut member, 3, columns(0, 0, 4, 4)), Some((3, "have")));
    assert_eq!(said(&mut member, 3, columns(0, 0, 1, 0)), None);
    let (mut root, _) = session(Algorithm::Chain, 4, 0);
    assert_eq!(said(&mut root, 1, columns(0, 0, 1, 1)), Some((1, "have")), "of an object that nobody sent");
    assert_eq!(said(&mut root, 1, columns(5, 0, 1, 0)), Some((1, "bytes")));
}

/// Counters that grow at random, mostly near the correct values.
#[test]
fn no_counters_of_a_peer_make_a_member_panic() {
    let mut word = 1_u64;
    let mut random = |end: u64| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 33) % end
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..if cfg!(miri) { 20 } else { 2_000 } {
        let algorithms =
            [Algorithm::BinomialPipeline, Algorithm::Sequential, Algorithm::Chain, Algorithm::BinomialTree];
        let members = 2 + random(12) as u32;
        let me = random(members.into()) as u32;
        let (mut member, _) = session(algorithms[random(4) as usize].clone(), members, me);
        let mut rows = vec![[0_u64; 4]; members as usize];
        let mut to_do = vec![];
        for _ in 0..60 {
            let from = random(members.into()) as u32;
            let row = &mut rows[from as usize];
            let before = *row;
            row[random(4) as usize] += if random(40) == 0 { random(1 << 31) << random(33) } else { random(4) };
            let columns = columns(row[0], row[1], row[2], row[3]);
            let mut out = vec![];
            match member.handle(Input::Columns { from: Rank(from), slot: SLOT, columns }, &mut out) {
                Ok(()) => taken += 1,
                Err(fault) => {
                    (*row, refused) = (before, refused + 1);
                    assert_eq!(fault.member(), Rank(from));
                }
            }
            if me == 0 && random(8) == 0 {
                let _ = member.send(random(70), &mut out);
            }
            to_do.append(&mut out);
            if let Some(output) = to_do.pop() {
                let input = match output {
                    Output::Block { slot, .. } => Input::Gone { slot },
                    Output::Size { object, .. } => Input::Room { object },
                    _ => continue,
                };
                member.handle(input, &mut to_do).unwrap();
            }
        }
    }
    assert!(cfg!(miri) || (taken > 50_000 && refused > 5_000), "{taken} {refused}");
}

#[test]
fn announcements_are_known_before_counters_are_taken() {
    // Member 1 of a chain of three: 25 bytes in three blocks, all from the root.
    let (mut session, _) = session(Algorithm::Chain, 3, 1);
    let announced = |session: &Session, from, columns: Columns| -> Vec<(u64, u64, u64, bool)> {
        session.announced(Rank(from), SLOT, &columns).map(|a| (a.object_bytes, a.at, a.bytes, a.is_first)).collect()
    };
    let none = [];
    assert_eq!(announced(&session, 0, columns(0, 1, 0, 0)), none, "no length, no blocks");
    assert_eq!(announced(&session, 0, columns(26, 0, 0, 0)), none, "no step taken");
    assert_eq!(announced(&session, 2, columns(26, 3, 0, 0)), none, "that one sends me nothing");
    assert_eq!(announced(&session, 0, columns(26, 1, 0, 0)), [(25, 0, 10, true)]);
    assert_eq!(announced(&session, 0, columns(26, 3, 0, 0)), [(25, 0, 10, true)], "I am ready for one");
    hears(&mut session, 0, columns(26, 1, 0, 0));
    assert_eq!(announced(&session, 0, columns(26, 3, 0, 0)), none, "taken, and ready for no more");
    does(&mut session, Input::Room { object: ObjectNumber(0) });
    let all = [(25, 10, 10, false), (25, 20, 5, false)];
    assert_eq!(announced(&session, 0, columns(26, 3, 0, 0)), all);
    assert_eq!(announced(&session, 0, columns(26, 2, 0, 0)), all[..1]);
}
