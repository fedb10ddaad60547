//! Members that are killed, stopped or slow, as processes of their own, while others call.
mod common;
#[path = "common/process.rs"]
mod process;

use common::{LONG, Scratch, Store, StoreCalls, wait_until};
use process::Process;
use rustix::process::Signal;
use spindle_object::{CallError, CallId, NotDone, ReadError, Refusal, Replicated, Settings, UnknownCause};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

/// Too short for a call while a member does not answer.
const SHORT: Duration = Duration::from_millis(50);

#[test]
#[ignore = "a process of the other tests"]
fn member_process() {
    process::run();
}

/// Creates a group of this process's members and one process.
fn group_with_process(scratch: &Scratch, founders: u32) -> (Vec<(spindle::Group, Replicated<Store>)>, Process) {
    let process = Process::start("member_process", scratch, founders);
    let members = thread::scope(|scope| {
        let joining: Vec<_> = (1..founders).map(|_| scope.spawn(|| scratch.join(founders))).collect();
        joining.into_iter().map(|member| member.join().unwrap()).collect()
    });
    assert_eq!(process.answer(), "joined");
    (members, process)
}

fn add(key: &str) -> spindle_object::Call<Store, u64> {
    StoreCalls::add(key.to_owned(), 1)
}

#[test]
fn a_call_of_a_killed_member_has_one_outcome() {
    let scratch = Scratch::new("killed-caller");
    let (members, mut process) = group_with_process(&scratch, 3);
    process.order("send x 200");
    let mut ids: Vec<CallId> = (0..20).map(|_| process.answer().parse().unwrap()).collect();
    ids.extend(process.kill().iter().map(|id| id.parse::<CallId>().unwrap()));
    // The process may have sent more than it has printed.
    let last = ids[ids.len() - 1];
    let rest = 200 - ids.len() as u64;
    ids.extend((1..=rest).map(|more| CallId { number: last.number + more, ..last }));

    let (one, two) = (&members[0].1, &members[1].1);
    let mut replies = BTreeSet::new();
    for id in ids {
        match (one.outcome::<u64>(id, LONG), two.outcome::<u64>(id, LONG)) {
            (Ok(reply), Ok(other)) => assert!(reply == other && replies.insert(reply), "{id}: {reply}, {other}"),
            (
                Err(CallError::NotDone(NotDone::Refused(Refusal::Cancelled))),
                Err(CallError::NotDone(NotDone::Refused(Refusal::Cancelled))),
            ) => {
                let again = two.call_again(&add("x"), id, LONG);
                assert!(matches!(again, Err(CallError::NotDone(NotDone::Refused(Refusal::Cancelled)))), "{again:?}");
            }
            other => panic!("{id}: {other:?}"),
        }
    }
    let executed = replies.len() as u64;
    assert_eq!(replies.into_iter().collect::<Vec<_>>(), (1..=executed).collect::<Vec<_>>());
    assert_eq!(two.read_latest(|store| store.entries.get("x").copied().unwrap_or(0), LONG).unwrap(), executed);
    assert_eq!(one.call(&add("x"), LONG).unwrap(), executed + 1);
}

/// Calls until there is a reply, each time with the same id, over both members in turns.
fn call_stubbornly(stores: [&Replicated<Store>; 2]) -> u64 {
    let call = add("sum");
    let mut outcome = stores[0].call(&call, Duration::ZERO);
    for i in 1_u64.. {
        outcome = match outcome {
            Ok(sum) => return sum,
            Err(CallError::Unknown { id, why: UnknownCause::TimedOut { .. } | UnknownCause::NotAsked(_) }) => {
                let timeout = if i.is_multiple_of(3) { Duration::from_millis(10) } else { Duration::ZERO };
                stores[i as usize % 2].call_again(&call, id, timeout)
            }
            Err(CallError::NotDone(NotDone::TimedOut { .. } | NotDone::NotDelivered(_))) => {
                stores[0].call(&call, Duration::ZERO)
            }
            Err(error) => panic!("{error}"),
        };
    }
    unreachable!("the loop has no end")
}

/// INV-ONCE: the replies are all different, and without a gap.
#[test]
fn retries_across_a_death_and_a_join_are_executed_once() {
    const CALLS: u64 = 150;
    let scratch = Scratch::new("retries");
    let (members, process) = group_with_process(&scratch, 3);
    let (one, two) = (&members[0].1, &members[1].1);
    let mut sums: Vec<u64> = thread::scope(|scope| {
        let callers: Vec<_> = [[one, two], [one, two], [two, one], [two, one]]
            .map(|stores| scope.spawn(move || (0..CALLS).map(|_| call_stubbornly(stores)).collect::<Vec<_>>()))
            .into_iter()
            .collect();
        wait_until("some calls", || one.commands() > CALLS);
        process.kill();
        wait_until("more calls", || one.commands() > 2 * CALLS);
        let (_group, joiner) = scratch.join(1);
        joiner.read_latest(|_| (), LONG).unwrap();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    sums.sort_unstable();
    assert_eq!(sums, (1..=4 * CALLS).collect::<Vec<_>>());
    assert_eq!(one.read_latest(|store| store.entries["sum"], LONG).unwrap(), 4 * CALLS);
}

#[test]
fn an_evicted_member_reads_nothing_with_read_latest() {
    let mut scratch = Scratch::new("evicted");
    scratch.suspect_after = Some(Duration::from_secs(3));
    let (members, mut process) = group_with_process(&scratch, 3);
    process.order("add x 1");
    assert_eq!(process.answer(), "1");
    process.order("read x");
    assert_eq!(process.answer(), "1");

    process.signal(Signal::STOP);
    // The signal may come between two calls, so this is repeated until a call had to wait for the
    // eviction.
    let (group, store) = &members[0];
    let mut last = 1;
    wait_until("eviction", || {
        last = store.call(&add("x"), LONG).unwrap();
        group.view().members.len() == 2
    });
    (0..3).for_each(|_| process.order("read x"));
    process.signal(Signal::CONT);
    for _ in 0..3 {
        let answer = process.answer();
        assert!(answer.starts_with("failed ") && answer.contains("Evicted"), "the others are at {last}: {answer}");
    }
}

#[test]
fn calls_fail_in_time_while_the_window_is_full() {
    let scratch = Scratch::new("full");
    let (members, process) = group_with_process(&scratch, 2);
    let store = &members[0].1;
    process.signal(Signal::STOP);
    let (mut replied, mut sent) = (0_u64, vec![]);
    loop {
        match store.call(&add("x"), Duration::ZERO) {
            Ok(_) => replied += 1,
            Err(CallError::Unknown { id, why: UnknownCause::TimedOut { .. } }) => sent.push(id),
            Err(CallError::NotDone(NotDone::TimedOut { .. })) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent.len() < 1_000_000, "the window is never full");
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let called = store.call(&add("x"), SHORT);
                assert!(matches!(called, Err(CallError::NotDone(NotDone::TimedOut { .. }))), "{called:?}");
            });
        }
    });
    // As long as the stopped member has not received a message, no member has delivered it, and no message
    // has to be sent for the read.
    let latest = store.read_latest(Store::len, SHORT);
    assert!(matches!(latest, Ok(_) | Err(ReadError::TimedOut { .. })), "{latest:?}");
    let asked = store.outcome::<u64>(sent[0], SHORT);
    assert!(matches!(asked, Err(CallError::Unknown { why: UnknownCause::TimedOut { .. }, .. })), "{asked:?}");
    store.read(Store::len).unwrap();

    process.signal(Signal::CONT);
    let executed = replied + sent.len() as u64;
    for id in &sent[sent.len().saturating_sub(50)..] {
        store.outcome::<u64>(*id, LONG).unwrap();
    }
    assert_eq!(store.call(&add("x"), LONG).unwrap(), executed + 1, "calls that were not sent are not executed");
}

/// A read blocks the machine, so no call is answered. A call that waits does so until its deadline,
/// and not for the read.
#[test]
fn calls_beyond_those_whose_outcomes_are_kept_wait_for_older_ones() {
    let scratch = Scratch::new("admission");
    let settings = Settings { calls_kept: 3, ..Settings::default() };
    let (_group, store) = scratch.join_with(1, Store::default(), &settings).unwrap();
    let call = add("x");
    let (begun, has_begun) = channel();
    let (end, is_over) = channel();
    thread::scope(|scope| {
        let (store, call) = (&store, &call);
        scope.spawn(move || {
            store.read(|_| {
                begun.send(()).unwrap();
                is_over.recv_timeout(LONG).unwrap();
            })
        });
        has_begun.recv().unwrap();
        let mut calls: Vec<_> = (0..3).map(|_| Box::pin(store.call_async(call))).collect();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let called = store.call(call, SHORT);
        assert!(matches!(called, Err(CallError::NotDone(NotDone::TimedOut { .. }))), "{called:?}");
        drop(calls.remove(0));
        let called = store.call(call, SHORT);
        assert!(
            matches!(called, Err(CallError::Unknown { why: UnknownCause::TimedOut { .. }, .. })),
            "it was sent: {called:?}"
        );
        end.send(()).unwrap();
    });
    assert_eq!(store.call(&call, LONG).unwrap(), 5);
}
