//! Members of real groups, on threads of this process.
mod common;

use common::{LONG, Scratch, Store, StoreCalls, block_on};
use spindle::Order;
use spindle_object::{
    At, CallError, CallId, End, NotDone, ReadAtError, ReadError, Refusal, Replicated, SessionId, Settings, StartError,
    StateMachine, Stopped, UnknownCause,
};
use std::thread;
use std::time::{Duration, SystemTime};

#[test]
fn calls_from_all_members_and_many_threads_are_executed_once_each() {
    const CALLS: u64 = 200;
    let scratch = Scratch::new("calls");
    let members = scratch.group(3);
    thread::scope(|scope| {
        for (_, store) in &members {
            for _ in 0..2 {
                scope.spawn(|| {
                    let store = store.clone();
                    let mut last = 0;
                    for _ in 0..CALLS {
                        let sum = store.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
                        assert!(sum > last, "replies follow the order");
                        last = sum;
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..CALLS {
                    block_on(store.call_async(&StoreCalls::add("sum".to_owned(), 1))).unwrap();
                }
            });
        }
    });
    for (_, store) in &members {
        let sum = store.read_latest(|store| store.entries["sum"], LONG).unwrap();
        assert_eq!(sum, 9 * CALLS);
    }
    let digests: Vec<u64> = members.iter().map(|(_, store)| store.digest()).collect();
    assert_eq!(digests, [digests[0]; 3]);
    thread::scope(|scope| {
        for (group, store) in members {
            drop(store);
            scope.spawn(|| group.finish(LONG).unwrap());
        }
    });
}

#[test]
fn replies_and_the_clock_are_those_of_the_order() {
    let scratch = Scratch::new("replies");
    let members = scratch.group(2);
    let [one, two] = [&members[0].1, &members[1].1];
    assert_eq!(one.call(&StoreCalls::put("a", 1), LONG).unwrap(), None);
    assert_eq!(two.call(&StoreCalls::put("a", 2), LONG).unwrap(), Some(1));
    let (rolled, now) = one.call(&StoreCalls::roll(), LONG).unwrap();
    let (again, later) = two.call(&StoreCalls::roll(), LONG).unwrap();
    assert_ne!(rolled, again);
    assert!(later >= now && now > Duration::from_secs(1_600_000_000));
    assert_eq!(one.read_latest(|store| store.rolled.clone(), LONG).unwrap(), [rolled, again]);
    assert_eq!(two.read(|store| store.rolled.clone()).unwrap(), [rolled, again]);
    // Longer than a frame, so that it is sent as a large message and not kept.
    let key = "k".repeat(20_000);
    assert_eq!(one.call(&StoreCalls::put(&key, 1), LONG).unwrap(), None);
    assert_eq!(one.call(&StoreCalls::blob(30_000), LONG).unwrap().len(), 30_000);
    assert_eq!(two.read_latest(Store::len, LONG).unwrap(), 2);
}

#[test]
fn an_outcome_can_be_asked_for_by_any_member() {
    let scratch = Scratch::new("outcome");
    let members = scratch.group(2);
    let [one, two] = [&members[0].1, &members[1].1];
    // No time to wait: the call is sent at once, if there is room.
    let error = one.call(&StoreCalls::add("x".to_owned(), 5), Duration::ZERO).unwrap_err();
    let CallError::Unknown { id, why: UnknownCause::TimedOut { .. } } = error else { panic!("{error}") };
    let found: Result<u64, _> = two.outcome(id, LONG);
    let value = match found {
        Ok(value) => value,
        Err(CallError::NotDone(NotDone::Refused(Refusal::Cancelled))) => 0,
        Err(error) => panic!("{error}"),
    };
    let again = two.call_again(&StoreCalls::add("x".to_owned(), 5), id, LONG);
    match value {
        0 => assert!(matches!(again, Err(CallError::NotDone(NotDone::Refused(Refusal::Cancelled)))), "{again:?}"),
        _ => assert_eq!(again.unwrap(), 5, "executed once"),
    }
    assert_eq!(one.outcome::<u64>(id, LONG).ok(), (value > 0).then_some(5));
    let wrong = one.outcome::<(String, String)>(id, LONG);
    assert!(wrong.is_err());
    assert_eq!(one.read_latest(|store| store.entries.get("x").copied().unwrap_or(0), LONG).unwrap(), value);

    // A call that was never sent will never be executed.
    let next = CallId { number: id.number + 100, ..id };
    let asked = block_on(one.outcome_async::<u64>(next));
    assert!(matches!(asked, Err(CallError::NotDone(NotDone::Refused(Refusal::Cancelled)))), "{asked:?}");
    let elsewhere = CallId { session: SessionId { member: 1, nonce: 0 }, number: 1 };
    let asked = one.outcome::<u64>(elsewhere, LONG);
    assert!(
        matches!(asked, Err(CallError::Unknown { why: UnknownCause::Refused(Refusal::NoSession), .. })),
        "{asked:?}"
    );
}

#[test]
fn a_session_that_expired_is_replaced() {
    let scratch = Scratch::new("expired");
    let settings = Settings { sessions_max: 1, ..Settings::default() };
    let join = |_| Replicated::join(scratch.config(2), "all", Store::default(), settings.clone()).unwrap();
    let members: Vec<_> = thread::scope(|scope| {
        let joining: Vec<_> = (0..2).map(|i| scope.spawn(move || join(i))).collect();
        joining.into_iter().map(|member| member.join().unwrap()).collect()
    });
    // Each replaces the session of the other.
    for i in 1..=10 {
        for (_, store) in &members {
            assert!(store.call(&StoreCalls::add("sum".to_owned(), 1), LONG).is_ok(), "{i}");
        }
    }
    assert_eq!(members[0].1.read_latest(|store| store.entries["sum"], LONG).unwrap(), 20);
}

#[test]
fn a_joiner_takes_the_object_and_the_sessions_over() {
    let scratch = Scratch::new("join");
    let members = scratch.group(2);
    let one = &members[0].1;
    for i in 0..100 {
        one.call(&StoreCalls::put(&format!("key {i}"), i), LONG).unwrap();
    }
    let error = one.call(&StoreCalls::add("x".to_owned(), 5), Duration::ZERO).unwrap_err();
    let CallError::Unknown { id, .. } = error else { panic!("{error}") };
    let executed = one.outcome::<u64>(id, LONG).is_ok();
    let (_group, joiner) = scratch.join(1);
    assert!(joiner.read(|store| store.entries["key 99"]).unwrap() == 99);
    assert_eq!(joiner.outcome::<u64>(id, LONG).is_ok(), executed);
    joiner.call(&StoreCalls::put("mine", 1), LONG).unwrap();
    for (_, store) in &members {
        store.read_latest(|_| (), LONG).unwrap();
    }
    joiner.read_latest(|_| (), LONG).unwrap();
    assert_eq!(one.read(Store::clone).unwrap(), joiner.read(Store::clone).unwrap());
    assert_eq!(one.digest(), joiner.digest());
}

#[test]
fn a_command_that_panics_stops_its_member_only() {
    let scratch = Scratch::new("panic");
    let members = scratch.group(3);
    let tripping = &members[1].1;
    let trip = StoreCalls::trip(tripping.member().0);
    let error = tripping.call(&trip, LONG).unwrap_err();
    let CallError::Unknown { why: UnknownCause::End(End::Stopped(stopped)), id } = error else { panic!("{error:?}") };
    assert!(matches!(&stopped, Stopped::Panicked { command: "trip", id: call, .. } if *call == id), "{stopped}");
    assert!(matches!(tripping.read(Store::len), Err(ReadError::End(End::Stopped(_)))));
    assert!(tripping.read_latest(Store::len, LONG).is_err());
    assert!(matches!(tripping.call(&trip, LONG), Err(CallError::NotDone(NotDone::End(_)))));
    for (_, store) in [&members[0], &members[2]] {
        store.outcome::<()>(id, LONG).unwrap();
        store.call(&StoreCalls::put("after", 1), LONG).unwrap();
    }
    assert_eq!(members[0].0.view().members.len(), 2);
}

#[test]
fn calls_inside_of_reads_are_refused() {
    let scratch = Scratch::new("inside");
    let (_group, store) = scratch.join(1);
    let inside = store
        .read(|_| (store.call(&StoreCalls::roll(), LONG), store.read_latest(Store::len, LONG), store.read(Store::len)));
    let (call, latest, read) = inside.unwrap();
    assert!(matches!(call, Err(CallError::NotDone(NotDone::InHandler))), "{call:?}");
    assert!(matches!((latest, read), (Err(ReadError::InHandler), Err(ReadError::InHandler))));
    store.call(&StoreCalls::roll(), LONG).unwrap();
}

#[test]
fn what_is_not_there_is_unsupported() {
    let scratch = Scratch::new("unsupported");
    let (_group, store) = scratch.join(1);
    let error = store.read_at(At::Time(SystemTime::now()), Store::len, LONG).unwrap_err();
    assert!(matches!(error, ReadAtError::NoLog), "{error}");
    let mut fifo = scratch.config(1);
    fifo.subgroups[0].order = Order::Fifo;
    let refused = Replicated::join(fifo, "all", Store::default(), Settings::default());
    assert!(matches!(refused, Err(StartError::NoTotalOrder { .. })));
    let refused =
        Replicated::join(scratch.config(1), "all", Store::default(), Settings { calls_kept: 3, ..Settings::default() });
    assert!(refused.is_err(), "other settings");
}

#[test]
fn commands_have_stable_numbers() {
    let mut specs: Vec<_> =
        Store::COMMANDS.iter().map(|spec| (spec.name, spec.id, spec.since, spec.signature)).collect();
    specs.sort_unstable();
    assert_eq!(
        specs,
        [
            ("add", 7, 1, "(String,u64)->u64"),
            ("blob", 0x63bc_b0aa, 1, "(u32)->Vec<u8>"),
            ("clear", 0x5c6e_1222, 1, "()->()"),
            ("put", 0x6972_99ee, 1, "(&str,u64)->Option<u64>"),
            ("roll", 0x16ff_3d1e, 1, "()->(u64,Duration)"),
            ("trip", 0x7094_33ea, 1, "(u64)->()"),
        ]
    );
    assert_eq!((Store::STATE, Store::VERSION), (3, 1));
}

#[test]
fn a_watch_shows_each_change_in_order() {
    let scratch = Scratch::new("watch");
    let members = scratch.group(2);
    members[0].1.call(&StoreCalls::put("a", 1), LONG).unwrap();
    let latest = members[1].1.read_latest(|store| store.entries["a"], LONG).unwrap();
    let watch = members[1].1.watch(|store| store.entries.get("a").copied()).unwrap();
    let panics = members[1].1.watch(|store| assert!(store.len() < 2, "the test wants it")).unwrap();
    for value in [2, 2, 3] {
        members[0].1.call(&StoreCalls::put("a", value), LONG).unwrap();
        members[0].1.call(&StoreCalls::put("b", value), LONG).unwrap();
    }
    members[0].1.call(&StoreCalls::clear(), LONG).unwrap();
    let next = || watch.next(LONG).unwrap().map(|changed| (changed.value, changed.missed)).unwrap();
    assert_eq!((latest, [next(), next(), next()]), (1, [(Some(2), 0), (Some(3), 0), (None, 0)]));
    assert_eq!(watch.next(Duration::ZERO).unwrap(), None);
    // More changes than are kept.
    for value in 0..1030 {
        members[0].1.call(&StoreCalls::put("a", value), LONG).unwrap();
    }
    members[1].1.read_latest(|_| (), LONG).unwrap();
    assert_eq!((next(), next()), ((Some(6), 6), (Some(7), 0)));
    assert_eq!(panics.next(Duration::ZERO).unwrap(), None);
    for (group, store) in members {
        drop((store, group));
    }
    let end = std::iter::repeat_with(|| watch.next(LONG)).find_map(Result::err).unwrap();
    assert!(matches!(end, End::Left | End::Ended(_)), "{end}");
}
