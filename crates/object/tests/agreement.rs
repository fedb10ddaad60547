//! Members that have to agree: on settings, versions, states and sessions.
mod common;

use common::{LONG, Scratch, Store, StoreCalls, wait_until};
use serde::{Deserialize, Serialize};
use spindle_object::{
    Call, CallError, CallId, CommandSpec, Context, End, ExecuteError, NotDone, ReadError, Refusal, Replicated,
    Settings, StartError, StateMachine, Stopped, UnknownCause, commands, decode_arguments, encode_reply, fingerprint,
};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn add(key: &str) -> Call<Store, u64> {
    StoreCalls::add(key.to_owned(), 1)
}

#[test]
fn a_joiner_with_other_settings_is_refused() {
    let scratch = Scratch::new("settings");
    let (group, store) = scratch.join(1);
    let settings = Settings { calls_kept: 3, ..Settings::default() };
    let refused = scratch.join_with(1, Store::default(), &settings).map(|_| ()).unwrap_err();
    let text = refused.to_string();
    for part in [
        format!("version 1 of this program has fingerprint {:016x}", fingerprint::<Store>(&settings, 1)),
        format!("the group's has {:016x}", fingerprint::<Store>(&Settings::default(), 1)),
        "run the same program with the same settings".to_owned(),
    ] {
        assert!(text.contains(&part), "{text}");
    }
    assert_eq!(store.call(&add("x"), LONG).unwrap(), 1);
    wait_until("the view without the joiner", || group.view().members.len() == 1);
    scratch.join(1);
}

/// The first announcement in the order decides: the other founder stops, and names both fingerprints.
#[test]
fn founders_with_different_settings_do_not_form_a_group() {
    let scratch = Scratch::new("founders");
    let settings = |calls_kept| Settings { calls_kept, ..Settings::default() };
    let members = thread::scope(|scope| {
        let joining = [10, 11].map(|kept| {
            let scratch = &scratch;
            scope.spawn(move || scratch.join_with(2, Store::default(), &settings(kept)))
        });
        joining.map(|member| member.join().unwrap())
    });
    let stopped = members.iter().filter(|member| match member {
        Ok((_, store)) => {
            assert!(store.ended().is_none());
            false
        }
        Err(StartError::Stopped(Stopped::Fingerprint { version: 1, mine, group })) => mine != group,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(stopped.count(), 1);
    let (_, store) = members.iter().flatten().next().unwrap();
    assert_eq!(store.call(&add("x"), LONG).unwrap(), 1);
}

const COUNT: CommandSpec = CommandSpec { id: 1, name: "count", since: 1, signature: "() -> u64" };
const DOUBLE: CommandSpec = CommandSpec { id: 2, name: "double", since: 2, signature: "() -> u64" };

/// A counter, of a build of this version: the second one can double it.
#[derive(Serialize, Deserialize, Default)]
struct Counter<const VERSION: u32>(u64);

impl<const VERSION: u32> StateMachine for Counter<VERSION> {
    const COMMANDS: &'static [CommandSpec] = if VERSION == 1 { &[COUNT] } else { &[COUNT, DOUBLE] };
    const STATE: u32 = 0;
    const VERSION: u32 = VERSION;

    fn execute(&mut self, command: u32, arguments: &[u8], _: &mut Context) -> Result<Vec<u8>, ExecuteError> {
        let () = decode_arguments(arguments)?;
        self.0 = match command {
            1 => self.0 + 1,
            2 if VERSION > 1 => self.0 * 2,
            id => return Err(ExecuteError::UnknownCommand { id }),
        };
        encode_reply(&self.0)
    }
}

#[test]
fn a_new_command_is_accepted_once_every_member_has_its_version() {
    let scratch = Scratch::new("versions");
    let settings = Settings::default();
    let mut old = scratch.group_with(2, Counter::<1>::default, &settings);
    let count = Call::<Counter<1>, u64>::new(COUNT, &());
    assert_eq!(old[0].1.call(&count, LONG).unwrap(), 1);

    let (_group, new) = scratch.join_with(1, Counter::<2>::default(), &settings).unwrap();
    let double = Call::<Counter<2>, u64>::new(DOUBLE, &());
    let mut refused = vec![];
    while let Some((group, store)) = old.pop() {
        // One member of the old version is enough.
        let called = new.call(&double, LONG);
        let expected =
            matches!(called, Err(CallError::NotDone(NotDone::Refused(Refusal::NotEnabled { needs: 2, enabled: 1 }))));
        assert!(expected, "{called:?}");
        refused.push(called);
        assert_eq!((new.version(), store.version()), (1, 1));
        store.call(&count, LONG).unwrap();
        drop(store);
        group.leave(LONG).unwrap();
    }
    assert_eq!(refused.len(), 2);
    let mut doubled = new.call(&double, LONG);
    wait_until("version 2", || {
        let is_refused = matches!(doubled, Err(CallError::NotDone(NotDone::Refused(Refusal::NotEnabled { .. }))));
        if is_refused {
            doubled = new.call(&double, LONG);
        }
        !is_refused
    });
    assert_eq!((doubled.unwrap(), new.version()), (6, 2));

    let late = scratch.join_with(1, Counter::<1>::default(), &settings).map(|_| ()).unwrap_err();
    assert!(late.to_string().contains("the group is at version 2, and this program at 1"), "{late}");
    let (_group, joiner) = scratch.join_with(1, Counter::<2>::default(), &settings).unwrap();
    assert_eq!((joiner.call(&double, LONG).unwrap(), joiner.version()), (12, 2));
}

/// A counter with a command that depends on the member that executes it.
#[derive(Serialize, Deserialize, Default)]
struct Drifting(u64);

#[commands]
impl Drifting {
    #[command]
    fn count(&mut self, context: &mut Context) -> CallId {
        self.0 += 1;
        context.id()
    }

    #[command]
    fn drift(&mut self, context: &mut Context, member: u64) -> CallId {
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.0 += if name == format!("spindle-{member}") { 100 } else { 1 };
        context.id()
    }
}

/// Calls `count` seven times, then `drift` for the last member, then `count` until that member has
/// stopped. Returns the reason, and the calls.
fn drift(name: &str, digest_every: u64) -> (Stopped, Vec<CallId>) {
    let scratch = Scratch::new(name);
    let settings = Settings { digest_every, ..Settings::default() };
    let members = scratch.group_with(3, Drifting::default, &settings);
    let (caller, drifting) = (&members[0].1, &members[2].1);
    let count = || caller.call(&DriftingCalls::count(), LONG).unwrap();
    let mut ids: Vec<_> = (0..7).map(|_| count()).collect();
    ids.push(caller.call(&DriftingCalls::drift(drifting.member().0), LONG).unwrap());
    ids.extend((0..2 * digest_every).map(|_| count()));
    wait_until("the end of the member that differs", || drifting.ended().is_some());
    let Some(End::Stopped(stopped)) = drifting.ended() else { panic!("{:?}", drifting.ended()) };
    assert!(matches!(drifting.call(&DriftingCalls::count(), LONG), Err(CallError::NotDone(NotDone::End(_)))));
    wait_until("the view without it", || members[0].0.view().members.len() == 2);
    // The others continue, and are equal.
    for (_, store) in &members[..2] {
        store.call(&DriftingCalls::count(), LONG).unwrap();
    }
    let read = |i: usize| members[i].1.read_latest(|drifting| drifting.0, LONG).unwrap();
    assert_eq!((read(0), read(1)), (10 + 2 * digest_every, 10 + 2 * digest_every));
    (stopped, ids)
}

#[test]
fn a_member_that_differs_stops_and_names_the_first_command_after_which_it_does() {
    let (stopped, ids) = drift("drift-1", 1);
    let Stopped::Diverged { agreed: 7, commands: 8, command: "drift", id, mine, theirs } = stopped.clone() else {
        panic!("{stopped:?}")
    };
    assert!(id == ids[7] && mine != theirs);
    assert!(stopped.to_string().contains(&format!("the last is drift (call {id})")), "{stopped}");
}

#[test]
fn digests_after_several_commands_name_the_range_with_the_difference() {
    let (stopped, ids) = drift("drift-5", 5);
    let Stopped::Diverged { agreed: 5, commands: 10, command: "count", id, .. } = stopped else {
        panic!("{stopped:?}")
    };
    assert_eq!(id, ids[9]);
}

/// The time of the log advances with the calls of the other member.
#[test]
fn a_repetition_after_the_session_has_expired_is_refused() {
    const IDLE: Duration = Duration::from_millis(100);
    let scratch = Scratch::new("late");
    let members = scratch.group_with(2, Store::default, &Settings { session_idle: IDLE, ..Settings::default() });
    let (one, two) = (&members[0].1, &members[1].1);
    let read = |store: &Replicated<Store>| {
        store.read_latest(|store| store.entries.get("x").copied().unwrap_or(0), LONG).unwrap()
    };
    let id = loop {
        if let Err(CallError::Unknown { id, .. }) = one.call(&add("x"), Duration::ZERO) {
            break id;
        }
    };
    // The outcome is final, also if the call is cancelled.
    let _ = two.outcome::<u64>(id, LONG);
    let before = read(two);
    let sent = Instant::now();
    wait_until("the time of a session", || sent.elapsed() > 2 * IDLE);
    // A session that has expired is replaced, also if it does so again before the call.
    let add_later = |store: &Replicated<Store>, key| loop {
        match store.call(&add(key), LONG) {
            Err(CallError::NotDone(NotDone::Refused(Refusal::NoSession))) => {}
            other => break other.unwrap(),
        }
    };
    add_later(two, "other");
    for store in [one, two] {
        let again = store.call_again(&add("x"), id, LONG).unwrap_err();
        let CallError::Unknown { why: UnknownCause::Refused(Refusal::NoSession), .. } = again else {
            panic!("{again:?}")
        };
        assert!(again.to_string().contains("the session of the call has expired"), "{again}");
    }
    assert_eq!((read(one), read(two)), (before, before), "no repetition was executed");
    assert_eq!(add_later(one, "x"), before + 1);
}

/// An object whose command calls the object.
#[derive(Serialize, Deserialize, Default)]
struct Recursive(Vec<String>);

static HANDLE: OnceLock<Replicated<Recursive>> = OnceLock::new();

#[commands]
impl Recursive {
    #[command]
    fn descend(&mut self) -> Vec<String> {
        let store = HANDLE.get().expect("set before the call");
        let id = CallId { session: spindle_object::SessionId { member: 1, nonce: 1 }, number: 1 };
        let call = RecursiveCalls::descend();
        vec![
            format!("{:?}", store.call(&call, LONG)),
            format!("{:?}", store.call_again(&call, id, LONG)),
            format!("{:?}", store.outcome::<u64>(id, LONG)),
            format!("{:?}", store.read(|object| object.0.len())),
            format!("{:?}", store.read_latest(|object| object.0.len(), LONG)),
        ]
    }
}

#[test]
fn a_command_that_uses_the_handle_gets_an_error_and_waits_for_nothing() {
    let scratch = Scratch::new("recursive");
    let (_group, store) = scratch.join_with(1, Recursive::default(), &Settings::default()).unwrap();
    assert!(HANDLE.set(store.clone()).is_ok());
    let results = store.call(&RecursiveCalls::descend(), LONG).unwrap();
    assert_eq!(results.len(), 5);
    for result in results {
        assert!(result.starts_with("Err(") && result.contains("InHandler"), "{result}");
    }
    assert!(matches!(store.read(|_| store.read(|_| ())), Ok(Err(ReadError::InHandler))));
}

/// INV-OBJECT: all have the same digest at the end.
#[test]
fn joiners_take_a_state_over_that_changes_meanwhile() {
    let scratch = Scratch::new("flow");
    let members = scratch.group(2);
    let is_over = AtomicBool::new(false);
    let (calls, joiners) = thread::scope(|scope| {
        let callers: Vec<_> = members
            .iter()
            .flat_map(|(_, store)| [store, store])
            .enumerate()
            .map(|(i, store)| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut calls = 0_u64;
                    while !is_over.load(Ordering::Acquire) {
                        store.call(&add("sum"), LONG).unwrap();
                        // The state grows, so that a snapshot takes a while.
                        store.call(&StoreCalls::put(&format!("{i} {calls}"), calls), LONG).unwrap();
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        let mut joiners = vec![];
        for i in 1..=4 {
            wait_until("calls", || members[0].1.commands() > 300 * i);
            let (group, store) = scratch.join(1);
            // The joiner's calls and those of the others are one order.
            let (before, after) =
                (store.call(&add("joiner"), LONG).unwrap(), store.call(&add("joiner"), LONG).unwrap());
            assert_eq!((before, after), (2 * i - 1, 2 * i));
            joiners.push((group, store));
        }
        is_over.store(true, Ordering::Release);
        (callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>(), joiners)
    });
    let all: Vec<_> = members.iter().chain(&joiners).map(|(_, store)| store).collect();
    for store in &all {
        store.read_latest(|store| assert_eq!(store.entries["sum"], calls), LONG).unwrap();
        assert_eq!(store.commands(), 2 * calls + 8);
    }
    let digests: Vec<u64> = all.iter().map(|store| store.digest()).collect();
    assert_eq!(digests, [digests[0]; 6]);
}
