//! Real histories of concurrent clients are linearizable, and the checker finds those that are not.
mod common;
#[path = "common/linearizability.rs"]
mod linearizability;
#[path = "common/process.rs"]
mod process;

use common::{Chance, LONG, Scratch, Store, StoreCalls, StoreQueries, wait_until};
use linearizability::{Action, History, Operation, Reply, Violation, check, check_keys, parse};
use process::{Process, now_ns};
use rustix::process::Signal;
use spindle::{Config, Durability, Group, MemberId, Subgroup};
use spindle_object::{CallError, ReadError, Replicated, Settings};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
#[ignore = "a process of the other tests"]
fn member_process() {
    process::run();
}

impl Chance {
    /// Values are different in one history, so that a read shows which operation it has seen.
    fn action(&mut self, value: u64) -> Action {
        match self.next(4) {
            0 => Action::Put(value),
            1 => Action::Add(value),
            _ => Action::Read,
        }
    }
}

fn operation(action: Action, called: u64, ended: u64, reply: Reply) -> Operation {
    Operation { action, called, ended: Some((ended, reply)) }
}

#[test]
fn the_checker_distinguishes_these_histories() {
    use Action::{Add, Put, Read};
    let put = operation(Put(1), 0, 10, None);
    let unknown = Operation { action: Put(2), called: 5, ended: None };
    let cases: [(&str, Vec<Operation>, bool); 9] = [
        ("a read of nothing", vec![operation(Read, 0, 1, None)], true),
        (
            "a read during a write sees either",
            vec![put, operation(Read, 2, 4, None), operation(Read, 5, 6, Some(1))],
            true,
        ),
        (
            "not the old value after the new one",
            vec![put, operation(Read, 2, 4, Some(1)), operation(Read, 5, 6, None)],
            false,
        ),
        ("a stale read", vec![put, operation(Read, 11, 12, None)], false),
        ("a lost update", vec![operation(Add(1), 0, 10, Some(1)), operation(Add(1), 1, 9, Some(1))], false),
        ("two updates", vec![operation(Add(1), 0, 10, Some(2)), operation(Add(1), 1, 9, Some(1))], true),
        (
            "an unknown write takes effect late",
            vec![put, unknown, operation(Read, 90, 91, Some(1)), operation(Read, 92, 93, Some(2))],
            true,
        ),
        (
            "an unknown write takes effect once",
            vec![
                put,
                unknown,
                operation(Read, 20, 21, Some(2)),
                operation(Put(3), 30, 31, Some(2)),
                operation(Read, 40, 41, Some(2)),
            ],
            false,
        ),
        ("not before its call", vec![put, operation(Read, 2, 3, Some(2)), unknown], false),
    ];
    for (name, history, is_linearizable) in cases {
        let checked = check(&history);
        assert_eq!(checked.is_ok(), is_linearizable, "{name}: {checked:?}");
    }
}

/// The sequential object for the other checker.
#[derive(Clone, Debug, Default)]
struct Key(Option<u64>);

impl SequentialSpec for Key {
    type Op = Action;
    type Ret = Reply;

    fn invoke(&mut self, action: &Action) -> Reply {
        let (value, reply) = action.apply(self.0);
        self.0 = value;
        reply
    }
}

/// Draws a history of some clients: each operation takes effect at a time between its call and its
/// end, and some replies are changed. Returns it with the verdict of stateright's tester.
fn draw(chance: &mut Chance) -> (Vec<Operation>, bool) {
    let clients = 2 + chance.next(3);
    let mut tester = LinearizabilityTester::new(Key::default());
    let (mut value, mut history) = (None, vec![]);
    // By client: its operation, and the reply once it has taken effect.
    let mut running: Vec<Option<(usize, Option<Reply>)>> = vec![None; clients as usize];
    let wrong = chance.next(3) == 0;
    for time in 0..12 + chance.next(20) {
        let client = chance.next(clients) as usize;
        match running[client] {
            None if chance.next(12) > 0 => {
                let value = 1 + chance.next(3);
                let action = chance.action(value);
                history.push(Operation { action, called: time, ended: None });
                tester.on_invoke(client, action).unwrap();
                running[client] = Some((history.len() - 1, None));
            }
            None => {}
            Some((i, None)) => {
                let (new, reply) = history[i].action.apply(value);
                value = new;
                running[client] = Some((i, Some(reply)));
            }
            // Some operations never end.
            Some((_, Some(_))) if chance.next(12) == 0 => {}
            Some((i, Some(reply))) => {
                let reply = if wrong && chance.next(4) == 0 { Some(chance.next(4)) } else { reply };
                history[i].ended = Some((time, reply));
                tester.on_return(client, reply).unwrap();
                running[client] = None;
            }
        }
    }
    let is_linearizable = tester.is_consistent();
    (history, is_linearizable)
}

#[test]
fn the_checker_agrees_with_that_of_stateright() {
    let mut verdicts = [0, 0];
    for seed in 0..3000 {
        let (history, expected) = draw(&mut Chance(seed));
        let checked = check(&history);
        assert_eq!(checked.is_ok(), expected, "seed {seed}: {checked:?} of {history:#?}");
        verdicts[usize::from(expected)] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 300), "{verdicts:?}");
}

/// How a client reads.
type Read = fn(&Replicated<Store>, &str) -> Result<Reply, ReadError>;

fn read_latest(store: &Replicated<Store>, key: &str) -> Result<Reply, ReadError> {
    store.read_latest(|store| store.entries.get(key).copied(), LONG)
}

/// The planted mistake: a linearizable read is answered from the state of this member.
fn read_stale(store: &Replicated<Store>, key: &str) -> Result<Reply, ReadError> {
    store.read(|store| store.entries.get(key).copied())
}

/// Carries an operation out. Returns `None` if it was not executed.
fn run(store: &Replicated<Store>, key: &str, action: Action, read: Read) -> Option<Operation> {
    let called = now_ns();
    let reply = match action {
        Action::Put(value) => store.call(&StoreCalls::put(key, value), LONG),
        Action::Add(more) => store.call(&StoreCalls::add(key.to_owned(), more), LONG).map(Some),
        Action::Read => Ok(read(store, key).unwrap()),
    };
    match reply {
        Ok(reply) => Some(Operation { action, called, ended: Some((now_ns(), reply)) }),
        Err(CallError::NotDone(_)) => None,
        Err(_) => Some(Operation { action, called, ended: None }),
    }
}

/// Runs clients on these members until told to stop. Each has values of its own.
fn run_clients(stores: &[&Replicated<Store>], seed: u64, read: Read, is_over: &AtomicBool) -> History {
    let run_client = |client: u64, store: &Replicated<Store>| {
        let mut chance = Chance(seed + client);
        let mut history = History::new();
        let mut value = (client + 1) << 32;
        while !is_over.load(Ordering::Acquire) {
            value += 1;
            let key = format!("key {}", chance.next(3));
            let done = run(store, &key, chance.action(value), read);
            history.entry(key).or_default().extend(done);
        }
        history
    };
    thread::scope(|scope| {
        let clients: Vec<_> = stores
            .iter()
            .flat_map(|store| [store, store])
            .zip(0..)
            .map(|(store, client)| scope.spawn(move || run_client(client, store)))
            .collect();
        let mut all = History::new();
        for client in clients {
            merge(&mut all, client.join().unwrap());
        }
        all
    })
}

fn merge(all: &mut History, more: History) {
    more.into_iter().for_each(|(key, operations)| all.entry(key).or_default().extend(operations));
}

/// Starts a group of a process and two members of this one.
fn start_three(scratch: &Scratch) -> (Process, [(Group, Replicated<Store>); 2]) {
    let process = Process::start("member_process", scratch, 3);
    let members = thread::scope(|scope| {
        let joining = [0, 1].map(|_| scope.spawn(|| scratch.join(3)));
        joining.map(|member| member.join().unwrap())
    });
    assert_eq!(process.answer(), "joined");
    (process, members)
}

#[test]
fn histories_with_a_kill_are_linearizable() {
    for seed in 0..3 {
        let scratch = Scratch::new(&format!("history-{seed}"));
        let (mut process, members) = start_three(&scratch);
        let stores = members.each_ref().map(|(_, store)| store);
        let is_over = AtomicBool::new(false);
        let (history, answers) = thread::scope(|scope| {
            let clients = scope.spawn(|| run_clients(&stores, 100 * seed, read_latest, &is_over));
            process.order(&format!("write 3 {}", u64::MAX >> 1));
            let mut answers: Vec<String> = (0..100).map(|_| process.answer()).collect();
            answers.extend(process.kill());
            let killed = stores[0].commands();
            wait_until("calls after the kill", || stores[0].commands() > killed + 300);
            is_over.store(true, Ordering::Release);
            (clients.join().unwrap(), answers)
        });
        let of_process = parse(&answers);
        assert!(of_process.values().map(Vec::len).sum::<usize>() >= 50);
        let mut all = history;
        merge(&mut all, of_process);
        let checked = check_keys(&all);
        assert!(checked.is_ok(), "seed {seed}: {checked:?}");

        // One reply that is changed is noticed: the last read of a key sees its first value.
        let (_, operations) = all.first_key_value().unwrap();
        let mut changed = operations.clone();
        let mut reads: Vec<_> = changed.iter_mut().filter(|operation| operation.action == Action::Read).collect();
        reads.sort_by_key(|operation| operation.called);
        let (first, last) = (reads[0].ended.unwrap().1, reads.len() - 1);
        reads[last].ended.as_mut().unwrap().1 = first;
        assert!(matches!(check(&changed), Err(Violation::NotLinearizable { .. })));
    }
}

/// A member is stopped until the others have evicted it, and then continues. Its calls and reads may not end
/// as if it were still a member.
#[test]
fn histories_with_a_member_that_wakes_up_evicted_are_linearizable() {
    let mut scratch = Scratch::new("history-evicted");
    scratch.suspect_after = Some(Duration::from_secs(2));
    let (mut process, members) = start_three(&scratch);
    let stores = members.each_ref().map(|(_, store)| store);
    let is_over = AtomicBool::new(false);
    let (mut all, answers) = thread::scope(|scope| {
        let clients = scope.spawn(|| run_clients(&stores, 900, read_latest, &is_over));
        process.order(&format!("mix 3 {}", u64::MAX >> 1));
        let mut answers: Vec<String> = (0..100).map(|_| process.answer()).collect();
        process.signal(Signal::STOP);
        wait_until("the eviction", || members[0].0.view().members.len() == 2);
        let evicted = stores[0].commands();
        wait_until("calls after the eviction", || stores[0].commands() > evicted + 100);
        process.signal(Signal::CONT);
        while answers.last().is_none_or(|answer| answer != "over") {
            answers.push(process.answer());
        }
        is_over.store(true, Ordering::Release);
        (clients.join().unwrap(), answers)
    });
    let of_process = parse(&answers);
    let reads = of_process.values().flatten().filter(|operation| operation.action == Action::Read);
    assert!(reads.filter(|operation| operation.ended.is_some()).count() >= 10);
    merge(&mut all, of_process);
    let checked = check_keys(&all);
    assert!(checked.is_ok(), "{checked:?}");
}

/// All members of a durable group end at once, in the middle of the history, and start again. All calls
/// that were answered before are durable by then.
#[test]
fn histories_with_a_restart_of_all_members_are_linearizable() {
    let scratch = Scratch::new("history-restart");
    let data = scratch.path.with_extension("data");
    let join = |id: u64| {
        let data_dir = data.join(id.to_string());
        std::fs::create_dir_all(&data_dir).unwrap();
        let subgroup = Subgroup { durability: Durability::Logged { copies: 2 }, ..Subgroup::new("all") };
        let config = scratch.config(2);
        let config = Config { id: Some(MemberId(id)), data_dir: Some(data_dir), subgroups: vec![subgroup], ..config };
        let settings = Settings { snapshot_every_commands: 40, ..Settings::default() };
        Replicated::join(config, "all", Store::default(), settings).unwrap()
    };
    let mut all = History::new();
    for round in 0..3 {
        let members = thread::scope(|scope| {
            let joining = [1, 2].map(|id| scope.spawn(move || join(id)));
            joining.map(|member| member.join().unwrap())
        });
        let stores = members.each_ref().map(|(_, store)| store);
        let (is_over, before) = (AtomicBool::new(false), stores[0].commands());
        let history = thread::scope(|scope| {
            let clients = scope.spawn(|| run_clients(&stores, 5000 + 100 * round, read_latest, &is_over));
            wait_until("calls", || stores[0].commands() > before + 300);
            is_over.store(true, Ordering::Release);
            clients.join().unwrap()
        });
        merge(&mut all, history);
        // It covers all calls before it.
        stores[0].call_durable(&StoreCalls::add("end".to_owned(), 1), LONG).unwrap();
        // Nothing finishes: both give the group up.
        thread::scope(|scope| {
            members.into_iter().for_each(|member| drop(scope.spawn(move || drop(member))));
        });
    }
    std::fs::remove_dir_all(&data).unwrap();
    let checked = check_keys(&all);
    assert!(checked.is_ok(), "{checked:?}");
    // A state from before the first restart does not pass for one from after it.
    let (_, operations) = all.first_key_value().unwrap();
    let mut changed = operations.clone();
    changed.retain(|operation| operation.ended.is_some());
    changed.sort_by_key(|operation| operation.called);
    let first = changed.iter().position(|operation| operation.action == Action::Read).unwrap();
    let last = changed.iter().rposition(|operation| operation.action == Action::Read).unwrap();
    changed[last].ended.as_mut().unwrap().1 = changed[first].ended.unwrap().1;
    assert!(matches!(check(&changed), Err(Violation::NotLinearizable { .. })));
}

/// A query is no linearizable read: a member that is named answers from its own state.
fn read_by_query(store: &Replicated<Store>, key: &str) -> Result<Reply, ReadError> {
    let members = [1, 2, 3].map(MemberId);
    let asked = members[now_ns() as usize % 3];
    Ok(store.query(asked, &StoreQueries::value(key), LONG).unwrap())
}

#[test]
fn a_stale_read_is_found() {
    find_stale_read("stale", read_stale);
}

#[test]
fn the_checker_distinguishes_queries_from_linearizable_reads() {
    find_stale_read("stale-query", read_by_query);
}

fn find_stale_read(name: &str, read: Read) {
    let scratch = Scratch::new(name);
    let members = scratch.group(3);
    let stores: Vec<_> = members.iter().map(|(_, store)| store).collect();
    let until = Instant::now() + LONG;
    for seed in 0.. {
        assert!(Instant::now() < until, "no stale read in {seed} histories");
        let is_over = AtomicBool::new(false);
        let before = stores[0].commands();
        let mut history = thread::scope(|scope| {
            let clients = scope.spawn(|| run_clients(&stores, 100 * seed, read, &is_over));
            wait_until("calls", || stores[0].commands() > before + 300);
            is_over.store(true, Ordering::Release);
            clients.join().unwrap()
        });
        if let Err((_, violation)) = check_keys(&history) {
            assert!(matches!(violation, Violation::NotLinearizable { .. }), "{violation:?}");
            // Without the reads, the same history is linearizable: only they are stale.
            history.values_mut().for_each(|operations| operations.retain(|done| done.action != Action::Read));
            check_keys(&history).unwrap();
            return;
        }
        // Each history begins with no value.
        stores[0].call(&StoreCalls::clear(), LONG).unwrap();
        stores.iter().for_each(|store| store.read_latest(|_| (), LONG).unwrap());
    }
}
