//! Streams between members that are cut while a view runs. Each member is reached through a proxy,
//! which sees what a connection is for.
mod common;

use common::Scratch;
use spindle::{
    Address, Batch, Config, Group, Handler, MemberId, Network, Outcome, Publisher, Subgroup, SubgroupId, ViewChange,
    ViewId, Who,
};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any pause of a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// The kinds of connections that carry rows and blocks of large messages, as their hellos say it.
const ROWS: u8 = 2;
const BULK: u8 = 5;

/// Connections to one member, as they pass.
#[derive(Default)]
struct Gate {
    is_cut: Mutex<bool>,
    /// Whether only those that carry rows are kept out.
    refuses: AtomicBool,
    changed: Condvar,
    /// Connections that carry rows.
    rows: Mutex<Vec<UnixStream>>,
    /// Connections that carry blocks of large messages.
    bulk: Mutex<Vec<UnixStream>>,
    /// How many of those that carry rows have come, and how many of them were refused.
    passed: AtomicUsize,
    refused: AtomicUsize,
}

impl Gate {
    /// A proxy at `front` of what listens at `back`.
    fn open(front: PathBuf, back: PathBuf) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let listener = UnixListener::bind(front).unwrap();
        let it = Arc::clone(&gate);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (gate, back, client) = (Arc::clone(&it), back.clone(), client.unwrap());
                thread::spawn(move || gate.pass(client, &back));
            }
        });
        gate
    }

    fn pass(self: Arc<Gate>, mut client: UnixStream, back: &PathBuf) -> Option<()> {
        // A head of 16 bytes, with the length of the hello, then the group's name, and then what
        // the connection is for.
        let mut hello = vec![0; 16];
        client.read_exact(&mut hello).ok()?;
        let len = u32::from_le_bytes(hello[12..].try_into().unwrap()) as usize;
        hello.resize(16 + len, 0);
        client.read_exact(&mut hello[16..]).ok()?;
        let name = u32::from_le_bytes(hello[16..20].try_into().unwrap()) as usize;
        let carries_rows = hello[20 + name] == ROWS;
        let is_cut = *self.is_cut.lock().unwrap();
        if carries_rows && (is_cut || self.refuses.load(Ordering::SeqCst)) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        self.wait_until_open();
        let mut server = UnixStream::connect(back).ok()?;
        server.write_all(&hello).ok()?;
        if carries_rows {
            self.rows.lock().unwrap().extend([client.try_clone().ok()?, server.try_clone().ok()?]);
            self.passed.fetch_add(1, Ordering::SeqCst);
        }
        if hello[20 + name] == BULK {
            self.bulk.lock().unwrap().extend([client.try_clone().ok()?, server.try_clone().ok()?]);
        }
        let (from, to) = (client.try_clone().ok()?, server.try_clone().ok()?);
        let gate = Arc::clone(&self);
        thread::spawn(move || gate.pump(from, to));
        self.pump(server, client);
        Some(())
    }

    fn pump(&self, mut from: UnixStream, mut to: UnixStream) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let got = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            self.wait_until_open();
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }

    fn wait_until_open(&self) {
        let is_cut = self.is_cut.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(is_cut, |is_cut| *is_cut));
    }

    /// Breaks what carries rows, at any byte, and refuses more of it. All other connections fall
    /// silent.
    fn cut(&self) {
        *self.is_cut.lock().unwrap() = true;
        self.break_rows();
    }

    fn refuse_rows(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    fn heal(&self) {
        *self.is_cut.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn break_rows(&self) {
        shut(&self.rows);
    }
}

/// Breaks these connections; how many ends there were.
fn shut(ends: &Mutex<Vec<UnixStream>>) -> usize {
    let ends = std::mem::take(&mut *ends.lock().unwrap());
    ends.iter().for_each(|end| _ = end.shutdown(Shutdown::Both));
    ends.len()
}

/// The messages that one member has delivered, and its views.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Handler for Log {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        let mut lines = self.0.lock().unwrap();
        batch.for_each(|message| lines.push(String::from_utf8(message.payload.to_vec()).unwrap()));
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.0.lock().unwrap().push(format!("view of {}", change.new.members.len()));
    }
}

struct Member {
    group: Group,
    publisher: Publisher,
    /// That of the subgroup "pair", if this member is in it.
    pair: Option<Publisher>,
    log: Log,
}

/// A group whose members are on hosts of their own, each behind its gate.
struct World {
    _scratch: Scratch,
    gates: Vec<Arc<Gate>>,
    starting: Vec<Receiver<Member>>,
}

impl World {
    fn new(name: &str, count: usize, suspect_after: Duration) -> World {
        World::with(name, count, suspect_after, vec![Subgroup::new("all")], |_| {})
    }

    fn with(
        name: &str,
        count: usize,
        suspect_after: Duration,
        subgroups: Vec<Subgroup>,
        prepare: impl Fn(&[Arc<Gate>]),
    ) -> World {
        let scratch = Scratch::new(name);
        std::fs::create_dir_all(&scratch.0).unwrap();
        let at = |kind: &str, i: usize| scratch.0.join(format!("{kind}{i}"));
        let address = |path: PathBuf| -> Address { format!("unix:{}", path.display()).parse().unwrap() };
        let gates: Vec<Arc<Gate>> = (0..count).map(|i| Gate::open(at("front", i), at("back", i))).collect();
        prepare(&gates);
        let seeds: Vec<Address> = (0..count).map(|i| address(at("front", i))).collect();
        let starting = (0..count).map(|i| {
            let network =
                Network { advertise: Some(seeds[i].clone()), ..Network::new(address(at("back", i)), seeds.clone()) };
            let config = Config {
                group: name.to_string(),
                id: Some(MemberId(i as u64 + 1)),
                runtime_dir: Some(at("host", i)),
                network: Some(network),
                suspect_after: Some(suspect_after),
                subgroups: subgroups.clone(),
                ..scratch.group(count as u32, LONG)
            };
            let (tell, told) = channel();
            thread::spawn(move || {
                let mut node = config.join().unwrap();
                let (publisher, pair) = (node.publisher("all").unwrap(), node.publisher("pair").ok());
                let log = Log::default();
                let group = node.start(log.clone()).unwrap();
                let _ = tell.send(Member { group, publisher, pair, log });
            });
            told
        });
        let starting = starting.collect();
        World { _scratch: scratch, gates, starting }
    }

    fn members(&mut self) -> Vec<Member> {
        self.starting.drain(..).map(|member| member.recv_timeout(LONG).unwrap()).collect()
    }
}

fn wait(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < LONG, "no {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sends `count` messages from each member, of all sizes.
fn say(members: &mut [Member], topic: &str, count: usize) {
    for i in 0..count {
        for (number, member) in members.iter_mut().enumerate() {
            let text = format!("{topic} {i} of {number} {}", "x".repeat(i * 37 % 900));
            member.publisher.send(text.as_bytes(), LONG).unwrap();
        }
    }
}

/// All deliver `count` messages in one order, and nothing else.
fn agree(members: &[Member], count: usize) {
    for member in members {
        wait("messages", || member.log.lines().len() >= count);
        let lines = member.log.lines();
        assert!(lines.len() == count && !lines.iter().any(|line| line.starts_with("view")), "{} lines", lines.len());
        assert!(lines == members[0].log.lines(), "another order");
        assert_eq!(member.group.status().view, members[0].group.status().view);
    }
}

fn finish(members: Vec<Member>) {
    let ending = members.into_iter().map(|Member { group, publisher, pair, .. }| {
        drop((publisher, pair));
        thread::spawn(move || group.finish(LONG).map(|_| ()))
    });
    ending.collect::<Vec<_>>().into_iter().for_each(|member| member.join().unwrap().unwrap());
}

#[test]
fn a_group_whose_links_are_all_cut_for_a_while_loses_nothing() {
    let mut world = World::new("cut", 3, LONG);
    let mut members = world.members();
    say(&mut members, "before", 50);
    agree(&members, 150);
    for round in 1..=3 {
        world.gates.iter().for_each(|gate| gate.cut());
        // They try again, and say what there is room for.
        say(&mut members, "meanwhile", 5);
        let tried = || world.gates[1..].iter().all(|gate| gate.refused.load(Ordering::SeqCst) >= 4 * round);
        wait("attempts", tried);
        world.gates.iter().for_each(|gate| gate.heal());
        say(&mut members, "after", 45);
        agree(&members, 150 + 150 * round);
    }
    finish(members);
}

#[test]
fn a_flapping_link_evicts_no_member() {
    let mut world = World::new("flap", 3, LONG);
    let mut members = world.members();
    // The member with the lower id dials.
    let gate = Arc::clone(&world.gates[1]);
    let rounds = 25;
    for round in 1..=rounds {
        let passed = gate.passed.load(Ordering::SeqCst);
        gate.break_rows();
        say(&mut members, "flap", 20);
        wait("new stream", || gate.passed.load(Ordering::SeqCst) > passed);
        if round % 5 == 0 {
            agree(&members, 60 * round);
        }
    }
    agree(&members, 60 * rounds);
    finish(members);
}

/// A member that was cut off from one that has gone on to the next view still gets the end of the
/// one before from it.
#[test]
fn views_change_while_a_link_flaps() {
    let mut world = World::new("turns", 3, LONG);
    let mut members = world.members();
    let gate = Arc::clone(&world.gates[1]);
    let done = Arc::new(AtomicBool::new(false));
    let flapping = {
        let (gate, done) = (Arc::clone(&gate), Arc::clone(&done));
        thread::spawn(move || {
            let start = Instant::now();
            let mut passed = 0;
            while !done.load(Ordering::SeqCst) && start.elapsed() < LONG {
                let now = gate.passed.load(Ordering::SeqCst);
                if now > passed {
                    passed = now;
                    gate.break_rows();
                }
                thread::sleep(Duration::from_millis(3));
            }
        })
    };
    say(&mut members, "three", 20);
    let Member { group, publisher, log, .. } = members.pop().unwrap();
    drop(publisher);
    group.leave(LONG).unwrap();
    for member in &members {
        wait("view of two", || member.log.lines().contains(&"view of 2".to_string()));
    }
    say(&mut members, "two", 20);
    wait("messages", || members.iter().all(|member| member.log.lines().len() == 60 + 40 + 1));
    wait("streams", || gate.passed.load(Ordering::SeqCst) > 3);
    done.store(true, Ordering::SeqCst);
    flapping.join().unwrap();
    assert!(members[0].log.lines() == members[1].log.lines(), "another order");
    assert!(members[0].log.lines().starts_with(&log.lines()[..60]));
    finish(members);
}

/// Members begin without the rows of members whose streams come late. No member is suspected for
/// that.
#[test]
fn rows_that_come_late_are_rows_of_the_view() {
    let suspect_after = Duration::from_secs(8);
    let mut world = World::with("late", 3, suspect_after, vec![Subgroup::new("all")], |gates| {
        // Control messages pass.
        gates.iter().for_each(|gate| gate.refuse_rows(true));
    });
    let mut members = world.members();
    assert!(world.gates[1..].iter().all(|gate| gate.passed.load(Ordering::SeqCst) == 0));
    world.gates.iter().for_each(|gate| gate.refuse_rows(false));
    say(&mut members, "late", 50);
    agree(&members, 150);
    finish(members);
}

/// Members that stay keep their streams from view to view: none is dialled again, whatever is under
/// way when a view ends.
#[test]
fn streams_continue_from_view_to_view() {
    let mut world = World::new("continue", 5, LONG);
    let mut members = world.members();
    // To the first so many.
    let passed = |world: &World, count: usize| -> usize {
        world.gates[..count].iter().map(|gate| gate.passed.load(Ordering::SeqCst)).sum()
    };
    say(&mut members, "five", 20);
    wait("streams", || passed(&world, 5) >= 10);
    while members.len() > 2 {
        let Member { group, publisher, .. } = members.pop().unwrap();
        // The one that leaves may be dialled once more, for the view that it leaves.
        let staying = members.len();
        let streams = passed(&world, staying);
        drop(publisher);
        let left = thread::spawn(move || group.leave(LONG).map(|_| ()));
        say(&mut members, "between", 20);
        left.join().unwrap().unwrap();
        let view = format!("view of {}", members.len());
        for member in &members {
            wait("next view", || member.log.lines().contains(&view));
        }
        say(&mut members, "after", 20);
        let count = members.iter().map(|member| member.log.lines().len()).max().unwrap();
        wait("messages", || members.iter().all(|member| member.log.lines().len() >= count));
        assert_eq!(passed(&world, staying), streams, "streams were dialled again for the view of {staying}");
    }
    finish(members);
}

/// A subgroup that a change does not touch continues over the streams of the view with which its
/// epoch began, also when those break. The next view has streams of its own.
#[test]
fn a_subgroup_goes_on_over_streams_that_break() {
    let pair = Subgroup { members: Who::Ranks(vec![0, 1]), ..Subgroup::new("pair") };
    let mut world = World::with("older", 4, LONG, vec![Subgroup::new("all"), pair], |_| {});
    let mut members = world.members();
    let gate = Arc::clone(&world.gates[1]);
    let epoch_of = |member: &mut Member, text: &str| {
        let receipt = member.pair.as_mut().unwrap().send_tracked(text.as_bytes(), LONG).unwrap();
        wait("outcome", || receipt.outcome().is_some());
        match receipt.outcome().unwrap() {
            Outcome::Delivered { epoch, .. } => epoch,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(epoch_of(&mut members[0], "pair 0"), ViewId(1));
    let leave = |members: &mut Vec<Member>| {
        let Member { group, publisher, pair, .. } = members.pop().unwrap();
        drop((publisher, pair));
        group.leave(LONG).unwrap();
        let view = format!("view of {}", members.len());
        members.iter().for_each(|member| wait("next view", || member.log.lines().contains(&view)));
    };
    let before = gate.passed.load(Ordering::SeqCst);
    leave(&mut members);
    leave(&mut members);
    // The first of the two views has a stream beside that of the epoch, which is the second one's,
    // too.
    assert_eq!(gate.passed.load(Ordering::SeqCst), before + 1);
    for round in 1..=10 {
        let passed = gate.passed.load(Ordering::SeqCst);
        gate.break_rows();
        say(&mut members, "all", 5);
        assert_eq!(epoch_of(&mut members[round % 2], &format!("pair {round}")), ViewId(1));
        wait("new streams", || gate.passed.load(Ordering::SeqCst) >= passed + 2);
    }
    leave(&mut members);
    assert_eq!(epoch_of(&mut members[0], "pair 11"), ViewId(4));
    let all: Vec<String> = (0..12).map(|round| format!("pair {round}")).collect();
    let lines = members[0].log.lines();
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("pair")).collect::<Vec<_>>(),
        all.iter().collect::<Vec<_>>()
    );
    finish(members);
}

/// The groups of large messages are made anew in a view with the same members, and what was on its
/// way is sent again.
#[test]
fn broken_connections_of_large_messages_evict_no_member() {
    let mut world = World::new("bulk-resets", 3, Duration::from_millis(300));
    let mut members = world.members();
    for round in 0..4 {
        for member in &mut members {
            let text = format!("{round} {}", "x".repeat(1 << 20));
            member.publisher.send(text.as_bytes(), LONG).unwrap();
        }
        // Some amid an object, some between two; in the last round none.
        if round < 3 {
            wait("connections", || world.gates.iter().any(|gate| !gate.bulk.lock().unwrap().is_empty()));
            let broken: usize = world.gates.iter().map(|gate| shut(&gate.bulk)).sum();
            assert!(broken > 0);
        }
        let is_message = |line: &&String| !line.starts_with("view");
        for member in &members {
            let messages = || member.log.lines().iter().filter(is_message).count();
            wait("messages", || messages() == 3 * (round + 1));
        }
    }
    let lines = members[0].log.lines();
    assert!(
        lines.iter().filter(|line| line.starts_with("view")).all(|line| line == "view of 3"),
        "a member was left out"
    );
    assert!(members.iter().all(|member| member.log.lines() == lines), "another order");
    finish(members);
}
