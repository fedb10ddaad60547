//! Queries of one member: their answers, their ends, and that a handle sees no earlier state than before.
mod common;
#[path = "common/process.rs"]
mod process;

use common::{LONG, Scratch, Store, StoreCalls, StoreQueries, block_on};
use process::Process;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use spindle::MemberId;
use spindle_object::{
    CommandSpec, Context, ExecuteError, Query, QueryError, QuerySpec, Replicated, Settings, StateMachine,
    decode_arguments, encode_reply,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
#[ignore = "a process of the other tests"]
fn member_process() {
    process::run();
}

#[test]
fn the_member_that_is_named_answers_from_its_object() {
    let scratch = Scratch::new("queries");
    let members = scratch.group(3);
    let one = &members[0].1;
    one.call(&StoreCalls::put("a", 1), LONG).unwrap();
    let (commands, digest) = (one.commands(), one.digest());
    for (_, store) in &members {
        let member = store.member();
        assert_eq!(one.query(member, &StoreQueries::value("a"), LONG).unwrap(), Some(1));
        assert_eq!(block_on(one.query_async(member, &StoreQueries::value("b"), LONG)).unwrap(), None);
        assert_eq!(one.query(member, &StoreQueries::zeros(1 << 19), LONG).unwrap().len(), 1 << 19);
        let error = one.query(member, &StoreQueries::fail(), LONG).unwrap_err();
        assert!(matches!(error, QueryError::Panicked { query: "fail", .. }), "{error}");
    }
    assert_eq!((one.commands(), one.digest()), (commands, digest), "queries change nothing");
    let two = members[1].1.member();
    let error = one.query(two, &StoreQueries::zeros(1 << 20), LONG).unwrap_err();
    let max = 1 << 20;
    assert!(
        matches!(error, QueryError::NotAnswered(spindle::QueryError::AnswerTooLong { member, bytes, max: most })
            if member == two && bytes > max && most == max),
        "{error}"
    );
    let error = one.query(MemberId(99), &StoreQueries::fail(), LONG).unwrap_err();
    assert!(matches!(error, QueryError::NotAnswered(spindle::QueryError::NoMember(MemberId(99)))), "{error}");
    let inside = one.read(|_| one.query(two, &StoreQueries::value("a"), LONG)).unwrap();
    assert!(matches!(inside, Err(QueryError::InHandler)), "{inside:?}");
    one.call(&StoreCalls::put("a", 2), LONG).unwrap();
}

#[test]
fn a_query_ends_with_its_member_or_at_its_deadline() {
    let mut scratch = Scratch::new("queries-end");
    scratch.suspect_after = None;
    let process = Process::start("member_process", &scratch, 3);
    let members = thread::scope(|scope| {
        let joining = [0, 1].map(|_| scope.spawn(|| scratch.join(3)));
        joining.map(|member| member.join().unwrap())
    });
    assert_eq!(process.answer(), "joined");
    let (group, one) = &members[0];
    let other =
        *group.view().members.iter().find(|id| members.iter().all(|(_, store)| store.member() != **id)).unwrap();
    assert_eq!(one.query(other, &StoreQueries::value("a"), LONG).unwrap(), None);
    process.signal(Signal::STOP);
    let waited = Duration::from_millis(50);
    let error = one.query(other, &StoreQueries::value("a"), waited).unwrap_err();
    assert!(matches!(error, QueryError::NotAnswered(spindle::QueryError::TimedOut { .. })), "{error}");
    let error = thread::scope(|scope| {
        let asking = scope.spawn(|| one.query(other, &StoreQueries::value("a"), LONG).unwrap_err());
        process.kill();
        asking.join().unwrap()
    });
    // The query may come to the member list after the death.
    let is_gone = |error: &QueryError| {
        use spindle::QueryError::{Gone, NoMember};
        matches!(error, QueryError::NotAnswered(Gone(id) | NoMember(id)) if *id == other)
    };
    assert!(is_gone(&error), "{error}");
    let error = one.query(other, &StoreQueries::value("a"), LONG).unwrap_err();
    assert!(is_gone(&error), "{error}");
    let two = members[1].1.member();
    assert_eq!(one.query(two, &StoreQueries::value("a"), LONG).unwrap(), None);

    let [first, second] = members;
    drop(second.1);
    second.0.leave(LONG).unwrap();
    assert!(first.1.query(two, &StoreQueries::value("a"), LONG).is_err());
    let store = first.1.clone();
    drop(first);
    let error = store.query(two, &StoreQueries::value("a"), LONG).unwrap_err();
    assert!(matches!(error, QueryError::End(_)), "{error}");
}

const ONE: QuerySpec = QuerySpec { id: 1, name: "one", signature: "()->u64" };
const CHANGED: QuerySpec = QuerySpec { id: 1, name: "one", signature: "()->u32" };
const TWO: QuerySpec = QuerySpec { id: 2, name: "two", signature: "()->u64" };

/// An object of several builds, whose queries differ: 0 has none, 2 has two, 3 has changed the types of one.
#[derive(Serialize, Deserialize, Default)]
struct Built<const BUILD: u32>;

impl<const BUILD: u32> StateMachine for Built<BUILD> {
    const COMMANDS: &'static [CommandSpec] = &[];
    const STATE: u32 = 0;
    const VERSION: u32 = 1;
    const QUERIES: &'static [QuerySpec] = match BUILD {
        0 => &[],
        1 => &[ONE],
        2 => &[ONE, TWO],
        _ => &[CHANGED],
    };

    fn execute(&mut self, id: u32, _: &[u8], _: &mut Context) -> Result<Vec<u8>, ExecuteError> {
        Err(ExecuteError::UnknownCommand { id })
    }

    fn answer(&self, query: u32, arguments: &[u8]) -> Result<Vec<u8>, ExecuteError> {
        let () = decode_arguments(arguments)?;
        encode_reply(&u64::from(query))
    }
}

#[test]
fn members_of_other_builds_say_that_they_do_not_know_a_query() {
    let scratch = Scratch::new("queries-builds");
    let settings = Settings::default();
    let (_first, none) = scratch.join_with(1, Built::<0>, &settings).unwrap();
    let (_second, old) = scratch.join_with(1, Built::<1>, &settings).unwrap();
    let (_third, changed) = scratch.join_with(1, Built::<3>, &settings).unwrap();
    let (_fourth, new) = scratch.join_with(1, Built::<2>, &settings).unwrap();
    let ask = |member, spec| new.query(member, &Query::<Built<2>, u64>::new(spec, &()), LONG);
    assert_eq!(ask(old.member(), ONE).unwrap(), 1);
    assert!(matches!(ask(old.member(), TWO), Err(QueryError::Unknown { query: "two", .. })));
    assert!(matches!(ask(changed.member(), ONE), Err(QueryError::OtherTypes { query: "one", .. })));
    let asked = ask(none.member(), ONE);
    assert!(matches!(asked, Err(QueryError::NotAnswered(spindle::QueryError::Unanswered(_)))), "{asked:?}");
    assert_eq!(ask(new.member(), TWO).unwrap(), 2);
}

/// Lets a client add to a key and query the third member for it in turns. Returns the first value that is
/// lower than one that the client has seen. The sums of all clients rise, so such a value is stale.
fn stale(adds: &Replicated<Store>, asks: &Replicated<Store>, third: MemberId, rounds: u32) -> Option<(u64, u64)> {
    let mut last = 0;
    for _ in 0..rounds {
        last = last.max(adds.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap());
        let value = asks.query(third, &StoreQueries::value("sum"), LONG).unwrap().unwrap_or(0);
        if value < last {
            return Some((last, value));
        }
        last = value;
    }
    None
}

#[test]
fn a_handle_sees_its_own_calls_and_nothing_older_than_before() {
    let scratch = Scratch::new("queries-monotonic");
    let members = scratch.group(3);
    let ids: Vec<MemberId> = members.iter().map(|(_, store)| store.member()).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The handle is used by two threads, each of which asks another member.
        let clients: Vec<_> = [1, 2]
            .into_iter()
            .map(|asked| {
                scope.spawn({
                    let (store, to) = (members[0].1.clone(), ids[asked]);
                    move || stale(&store, &store, to, 300)
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                members[2].1.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
            }
        });
        let found: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        is_over.store(true, Ordering::Release);
        for found in found {
            assert_eq!(found.unwrap(), None);
        }
    });
    // Answers of one member after those of another one that is ahead.
    for round in 0..100 {
        members[1].1.call(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        let ask = |to| members[0].1.query(to, &StoreQueries::value("sum"), LONG).unwrap().unwrap();
        let (first, second, own) = (ask(ids[1]), ask(ids[2]), ask(ids[0]));
        assert!(first <= second && second <= own, "round {round}: {first}, {second}, {own}");
    }
}

/// The planted mistake: the client asks through the handle of another member, which does not know what the
/// client has seen.
#[test]
fn a_stale_answer_is_found() {
    let scratch = Scratch::new("queries-stale");
    let members = scratch.group(3);
    let [one, two] = [&members[0].1, &members[1].1];
    let until = Instant::now() + LONG;
    while stale(one, two, members[2].1.member(), 1000).is_none() {
        assert!(Instant::now() < until, "no stale answer");
    }
}
