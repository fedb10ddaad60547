//! Groups whose members are on several hosts: a host is a runtime directory here, and the network
//! is loopback.
mod common;

use common::Scratch;
use spindle::{
    Address, Batch, Config, Ended, Group, Handler, JoinError, MemberId, Message, Network, ObserveError, Observed,
    Publisher, RackName, Refusal, Security, Snapshot, State, SubgroupId, Transport, View, ViewChange,
};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Returns the transport that carries rows. A sibling of this file runs the same tests over another
/// transport.
#[allow(dead_code, reason = "unless this is the sibling's module")]
fn transport() -> Transport {
    Transport::Tcp
}

/// The messages that one member has delivered, and its other events.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn messages(&self) -> Vec<String> {
        self.lines().into_iter().filter(|line| !line.starts_with("view")).collect()
    }

    pub(crate) fn wait(&self, what: &str, ready: impl Fn(&[String]) -> bool) {
        let start = Instant::now();
        while !ready(&self.lines()) {
            assert!(start.elapsed() < LONG, "no {what}: {:?}", self.lines());
            thread::sleep(Duration::from_millis(1));
        }
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

    fn blocked(&mut self, blocked: bool) {
        self.0.lock().unwrap().push(if blocked { "blocked" } else { "unblocked" }.to_string());
    }
}

/// A world of hosts.
pub(crate) struct World {
    /// The name of the group. Worlds have different names, because a port may have belonged to
    /// another world.
    name: String,
    pub(crate) scratch: Scratch,
    seeds: Vec<Address>,
}

impl World {
    /// Creates a world with seeds at Unix sockets, which no other process creates.
    pub(crate) fn new(name: &str, seeds: usize) -> World {
        World::within(name, Scratch::new(name).0.clone(), seeds)
    }

    /// Creates a world as [`new`](Self::new) does, in this directory.
    pub(crate) fn within(name: &str, dir: PathBuf, seeds: usize) -> World {
        let scratch = Scratch(dir);
        std::fs::create_dir_all(&scratch.0).unwrap();
        let seeds = (0..seeds).map(|i| at(&scratch.0, &format!("seed{i}"))).collect();
        World { name: name.to_string(), scratch, seeds }
    }

    /// Returns the configuration of a process on `host`, which listens at an address of its own.
    fn config(&self, host: u32, listen: Address, members: u32) -> Config {
        let network = Network { transport: crate::transport(), ..Network::new(listen, self.seeds.clone()) };
        Config {
            group: self.name.clone(),
            runtime_dir: Some(self.scratch.0.join(format!("host{host}"))),
            network: Some(network),
            // Longer than any pause of a busy machine, so that only a member that hangs is
            // suspected.
            suspect_after: Some(LONG),
            ..self.scratch.group(members, LONG)
        }
    }

    pub(crate) fn seed(&self, host: u32, seed: usize, members: u32) -> Config {
        self.config(host, self.seeds[seed].clone(), members)
    }

    pub(crate) fn other(&self, host: u32, name: &str, members: u32) -> Config {
        self.config(host, at(&self.scratch.0, name), members)
    }
}

/// Returns the configuration for a group that suspects members that hang.
fn soon(config: Config) -> Config {
    Config { suspect_after: Some(Duration::from_secs(2)), ..config }
}

fn at(dir: &Path, name: &str) -> Address {
    format!("unix:{}/{name}", dir.display()).parse().unwrap()
}

/// A member that runs, and its log.
pub(crate) struct Member {
    group: Group,
    pub(crate) log: Log,
    orders: Option<Sender<String>>,
}

impl Member {
    /// Leaves the group.
    pub(crate) fn leave(mut self) {
        self.orders = None;
        self.group.leave(LONG).unwrap();
    }
}

/// Joins on a thread.
pub(crate) fn start(config: Config) -> Receiver<Result<Member, JoinError>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let joined = config.join().map(|mut node| {
            let publisher = node.publisher("all").unwrap();
            let log = Log::default();
            Member::of(node.start(log.clone()).unwrap(), publisher, log)
        });
        let _ = tell.send(joined);
    });
    told
}

fn all(starting: Vec<Receiver<Result<Member, JoinError>>>) -> Vec<Member> {
    starting.into_iter().map(|member| member.recv_timeout(LONG).unwrap().unwrap()).collect()
}

impl Member {
    /// Returns a member that sends the texts of its channel, on a thread.
    fn of(group: Group, mut publisher: Publisher, log: Log) -> Member {
        let (orders, ordered) = channel::<String>();
        thread::spawn(move || {
            for text in ordered {
                if publisher.send(text.as_bytes(), LONG).is_err() {
                    return;
                }
            }
        });
        Member { group, log, orders: Some(orders) }
    }

    pub(crate) fn send(&self, text: &str) {
        self.orders.as_ref().unwrap().send(text.to_string()).unwrap();
    }
}

/// Makes each member send `count` messages, and checks that all deliver the same.
pub(crate) fn chat(members: &[Member], count: usize, topic: &str) {
    let before: Vec<usize> = members.iter().map(|member| member.log.messages().len()).collect();
    for i in 0..count {
        for (number, member) in members.iter().enumerate() {
            member.send(&format!("{topic} {i} of {number}"));
        }
    }
    for (member, before) in members.iter().zip(&before) {
        let is_mine = |line: &&String| line.starts_with(topic);
        member.log.wait("messages", |lines| lines.iter().filter(is_mine).count() == count * members.len());
        assert_eq!(member.log.messages().len(), before + count * members.len());
    }
    let said = |member: &Member| -> Vec<String> {
        member.log.messages().into_iter().filter(|line| line.starts_with(topic)).collect()
    };
    for member in members {
        assert_eq!(said(member), said(&members[0]));
    }
}

pub(crate) fn finish(members: Vec<Member>) {
    let mut ending = vec![];
    for mut member in members {
        member.orders = None;
        ending.push(thread::spawn(move || member.group.finish(LONG).map(|_| ())));
    }
    ending.into_iter().for_each(|member| member.join().unwrap().unwrap());
}

#[test]
fn members_of_three_hosts_are_a_group() {
    let world = World::new("three-hosts", 3);
    let members = all((0..3).map(|i| start(world.seed(i as u32, i, 3))).collect());
    chat(&members, 300, "hello");
    finish(members);
}

#[test]
fn members_that_share_a_host_share_memory_and_others_do_not() {
    let world = World::new("mixed-hosts", 1);
    let mut starting = vec![start(world.seed(0, 0, 5))];
    starting.extend((0..4).map(|i| start(world.other([0, 1, 1, 2][i], &format!("other{i}"), 5))));
    let members = all(starting);
    chat(&members, 200, "mixed");
    finish(members);
}

#[test]
fn over_tcp_whoever_comes_later_is_let_in_and_whoever_leaves_is_let_go() {
    let mut world = World::new("tcp-hosts", 0);
    // No other process gets this port for a while.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.seeds = vec![format!("127.0.0.1:{port}").parse().unwrap()];
    let any = || -> Address { "127.0.0.1:0".parse().unwrap() };
    let mut members = all(vec![start(world.seed(0, 0, 2)), start(world.config(1, any(), 2))]);
    chat(&members, 50, "two");
    for (host, count) in [(1, 3), (2, 4)] {
        members.extend(all(vec![start(world.config(host, any(), 1))]));
        for member in &members[..count - 1] {
            member.log.wait("view", |lines| lines.contains(&format!("view of {count}")));
        }
        chat(&members, 50, &format!("{count} now"));
    }
    // The founder, which is a seed, too.
    let mut leaver = members.remove(0);
    leaver.orders = None;
    leaver.leave();
    for member in &members {
        member.log.wait("view", |lines| lines.last().is_some_and(|line| line == "view of 3"));
    }
    chat(&members, 50, "without it");
    finish(members);
}

#[test]
fn the_others_go_on_when_a_host_is_gone() {
    let world = World::new("gone-host", 3);
    let mut members = all((0..3).map(|i| start(world.seed(i as u32, i, 3))).collect());
    chat(&members, 50, "three");
    drop(members.remove(0));
    for member in &members {
        member.log.wait("view", |lines| lines.contains(&"view of 2".to_string()));
    }
    chat(&members, 50, "two");
    finish(members);
}

#[test]
fn a_group_whose_members_are_all_gone_is_founded_anew() {
    let world = World::new("anew", 3);
    for topic in ["first", "second"] {
        let members = all((0..3).map(|i| start(world.seed(i as u32, i, 3))).collect());
        chat(&members, 20, topic);
        // The members do not agree on the end.
        drop(members);
    }
}

#[test]
fn a_joiner_that_finds_only_a_member_of_its_host_is_let_in_by_the_leader_of_another() {
    let world = World::new("near-only", 1);
    let named = |id, config| start(Config { id: Some(MemberId(id)), ..config });
    let mut members = all(vec![
        named(9, world.seed(0, 0, 3)),
        named(1, world.other(1, "leader", 3)),
        named(2, world.other(2, "near", 3)),
    ]);
    // After the seed has left, no member is where others look for the group.
    let mut seed = members.remove(0);
    seed.orders = None;
    seed.group.leave(LONG).unwrap();
    for member in &members {
        member.log.wait("view", |lines| lines.contains(&"view of 2".to_string()));
    }
    members.extend(all(vec![start(world.other(2, "joiner", 1))]));
    chat(&members, 20, "three");
    finish(members);
}

/// Waits until all members are in a view of these ids, in which each id has this rack.
fn wait_for_racks(members: &[Member], expected: &[(u64, &str)]) {
    let start = Instant::now();
    for member in members {
        loop {
            let rack = |rack: Option<RackName>| rack.map(|rack| rack.to_string()).unwrap_or_default();
            let mut found: Vec<_> =
                member.group.status().members.into_iter().map(|member| (member.id.0, rack(member.rack))).collect();
            found.sort_unstable();
            if found.iter().map(|(id, rack)| (*id, rack.as_str())).eq(expected.iter().copied()) {
                break;
            }
            assert!(start.elapsed() < LONG, "{}: {found:?} instead of {expected:?}", member.group.id());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn racks_are_known_to_all_whatever_carries_rows() {
    let world = World::new("racks", 1);
    let racked = |id: u64, rack: &str, config: Config| {
        let network = config.network.map(|network| Network { rack: rack.parse().ok(), ..network });
        start(Config { id: Some(MemberId(id)), network, ..config })
    };
    let other = |id: u64, rack: &str, host: u32, members: u32| {
        racked(id, rack, world.other(host, &format!("{id}{rack}"), members))
    };
    let seed = racked(1, "r1", world.seed(0, 0, 5));
    let mut members =
        all(vec![seed, other(2, "r2", 1, 5), other(3, "r2", 1, 5), other(4, "r1", 2, 5), other(5, "r3", 3, 5)]);
    wait_for_racks(&members, &[(1, "r1"), (2, "r2"), (3, "r2"), (4, "r1"), (5, "r3")]);
    let say = |members: &[Member], topic: &str| {
        for member in members {
            member.send(&format!("{topic} {}", "x".repeat(400_000)));
        }
        for member in members {
            let is_mine = |line: &&String| line.starts_with(topic);
            member.log.wait("large messages", |lines| lines.iter().filter(is_mine).count() == members.len());
        }
    };
    say(&members, "five");
    // Two members have gone, one of them from a host that it shared with another. Their ids come
    // again, in other racks.
    members.drain(2..4);
    members[0].log.wait("view", |lines| lines.contains(&"view of 3".to_string()));
    members.extend(all(vec![other(3, "r4", 4, 1)]));
    wait_for_racks(&members, &[(1, "r1"), (2, "r2"), (3, "r4"), (5, "r3")]);
    members.extend(all(vec![other(4, "r2", 1, 1)]));
    wait_for_racks(&members, &[(1, "r1"), (2, "r2"), (3, "r4"), (4, "r2"), (5, "r3")]);
    say(&members, "again");
    finish(members);
}

/// One member of two is no majority: the other member may be the one that continues.
#[test]
fn one_of_two_hosts_does_not_go_on_alone() {
    let world = World::new("half-host", 1);
    let hanging = soon(world.other(1, "other", 2));
    let joining = thread::spawn(move || hanging.join().unwrap());
    let members = all(vec![start(soon(world.seed(0, 0, 2)))]);
    let hanging = joining.join().unwrap();
    members[0].log.wait("block", |lines| lines == ["blocked"]);
    members[0].send("nobody hears this");
    thread::sleep(Duration::from_millis(600));
    assert_eq!(members[0].log.lines(), ["blocked"]);
    drop(hanging);
}

/// A seed that does not answer may be in a group that continues. Once, more than half of the seeds
/// were enough, and they created a second group beside that one.
#[test]
fn no_group_is_created_without_all_of_the_seeds() {
    let world = World::new("few-seeds", 3);
    let founder = Config { gather_timeout: Duration::from_millis(600), ..world.seed(0, 0, 1) };
    let other = Config { gather_timeout: Duration::from_millis(600), ..world.other(1, "other", 1) };
    let second = Config { gather_timeout: Duration::from_millis(600), ..world.seed(2, 1, 1) };
    for told in [start(founder), start(other), start(second)] {
        let error = told.recv_timeout(LONG).unwrap().err().expect("it created the group");
        assert!(matches!(error, JoinError::TimedOut { .. }), "{error}");
    }
    // With one more seed they create the group.
    let members = all((0..3).map(|i| start(world.seed(i as u32, i, 1))).collect());
    chat(&members, 10, "all three");
    finish(members);
}

/// A seed's address may be written in another way than its process writes its own.
#[test]
fn seeds_are_known_by_who_answers_there() {
    let mut world = World::new("named-seeds", 0);
    let listeners: Vec<_> = (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    drop(listeners);
    world.seeds = ports.iter().map(|port| format!("localhost:{port}").parse().unwrap()).collect();
    let config = |i: usize| world.config(i as u32, format!("127.0.0.1:{}", ports[i]).parse().unwrap(), 1);
    let members = all((0..3).map(|i| start(config(i))).collect());
    chat(&members, 10, "named");
    finish(members);
}

#[test]
fn listening_off_this_host_requires_tls_or_a_trusted_network() {
    let world = World::new("insecure", 0);
    let mut config = world.config(0, "0.0.0.0:0".parse().unwrap(), 1);
    let error = config.clone().join().unwrap_err();
    assert!(matches!(error, JoinError::Net(spindle::NetError::Insecure { .. })), "{error}");
    let network = config.network.as_mut().unwrap();
    network.security = Security::Insecure;
    let error = config.clone().join().unwrap_err();
    assert!(matches!(error, JoinError::Net(spindle::NetError::Advertise { .. })), "{error}");
    config.network.as_mut().unwrap().advertise = Some("127.0.0.1:0".parse().unwrap());
    drop(config.join().unwrap());
}

#[test]
fn a_member_of_another_host_that_hangs_is_evicted_and_learns_it() {
    let world = World::new("hanging-host", 1);
    let hanging = soon(world.other(2, "b", 3));
    let joining = thread::spawn(move || hanging.join().unwrap());
    let members = all(vec![start(soon(world.seed(0, 0, 3))), start(soon(world.other(1, "a", 3)))]);
    let mut hanging = joining.join().unwrap();
    // No thread polls it.
    for member in &members {
        member.log.wait("view", |lines| lines.contains(&"view of 2".to_string()));
    }
    chat(&members, 20, "without it");
    let (mut log, start) = (Log::default(), Instant::now());
    let ended = loop {
        assert!(start.elapsed() < LONG);
        if let Err(ended) = hanging.poll(&mut log) {
            break ended;
        }
    };
    assert!(matches!(ended, Ended::Evicted { .. }), "{ended}");
    assert_eq!(log.messages(), [""; 0]);
    finish(members);
}

/// The process must have no part in the view of the member whose id it has. The other members would
/// take its messages for that member's.
#[test]
fn the_id_of_a_member_of_another_host_waits_until_that_member_is_out() {
    let world = World::new("same-id", 2);
    let named = |config| Config { id: Some(MemberId(5)), ..config };
    let before = named(world.other(2, "before", 3));
    let before = thread::spawn(move || before.join().unwrap());
    let mut members = all((0..2).map(|i| start(world.seed(i as u32, i, 3))).collect());
    // It hangs: no thread polls it.
    let before = before.join().unwrap();
    let after = named(world.other(3, "after", 1));
    let (tell, told) = channel();
    let joining = thread::spawn(move || {
        let mut waits = |progress: &spindle::BootstrapProgress| tell.send(progress.members).unwrap();
        let joined = after.join_with(&mut waits, &std::sync::atomic::AtomicBool::new(false)).unwrap();
        (joined.view().id, joined)
    });
    let start = Instant::now();
    loop {
        // At first the joiner counts only itself.
        if told.recv_timeout(LONG.saturating_sub(start.elapsed())).expect("it was not told to wait") == 3 {
            break;
        }
    }
    drop(before);
    let (view, mut node) = joining.join().unwrap();
    assert_eq!((view.0, node.view().members.len()), (3, 3));
    let (publisher, log) = (node.publisher("all").unwrap(), Log::default());
    members.push(Member::of(node.start(log.clone()).unwrap(), publisher, log));
    chat(&members, 20, "after");
    finish(members);
}

/// Returns the configuration with this id, in a group that suspects members that hang.
fn named(id: u64, config: Config) -> Config {
    soon(Config { id: Some(MemberId(id)), ..config })
}

/// Waits for the error with which `starting` ends, which has to be that member 2 has its id.
fn is_refused(starting: &Receiver<Result<Member, JoinError>>) {
    let error = starting.recv_timeout(LONG).unwrap().err().expect("it was let in");
    assert!(matches!(error, JoinError::Refused(Refusal::InUse(MemberId(2)))), "{error}");
}

/// Between hosts no directory exists that could refuse the process.
#[test]
fn the_id_of_a_living_member_of_another_host_is_refused() {
    let world = World::new("id-conflict", 3);
    let mut members = all((0..3).map(|i| start(named(i as u64 + 1, world.seed(i as u32, i, 3)))).collect());
    is_refused(&start(named(2, world.other(3, "id-conflict", 1))));
    // The process must not join where one of the members is only near, either.
    is_refused(&start(named(2, world.other(0, "near-id-conflict", 1))));
    members.extend(all(vec![start(named(4, world.other(4, "another", 1)))]));
    chat(&members, 20, "four");
    finish(members);
}

#[test]
fn a_second_waiting_process_with_an_id_is_refused() {
    let world = World::new("waiting-id-conflict", 1);
    let (tell, told) = channel();
    let first = named(2, world.other(1, "first", 3));
    let first = thread::spawn(move || {
        let mut waits = |progress: &spindle::BootstrapProgress| {
            let _ = tell.send(progress.present.len());
        };
        first.join_with(&mut waits, &std::sync::atomic::AtomicBool::new(false)).unwrap()
    });
    let founder = start(named(1, world.seed(0, 0, 3)));
    while told.recv_timeout(LONG).expect("the founder does not count it") < 2 {}
    is_refused(&start(named(2, world.other(2, "second", 3))));
    let third = start(named(3, world.other(3, "third", 3)));
    let mut node = first.join().unwrap();
    assert_eq!(node.view().members, [1, 2, 3].map(MemberId));
    let (publisher, log) = (node.publisher("all").unwrap(), Log::default());
    let mut members = all(vec![founder, third]);
    members.push(Member::of(node.start(log.clone()).unwrap(), publisher, log));
    chat(&members, 20, "three");
    finish(members);
}

/// Otherwise a process with a member's id could replace that member's address until it is refused,
/// or for ever if it is not refused. The next joiner must find that member, and a member on the
/// same host must not lose it.
#[test]
fn only_a_member_reports_its_own_address() {
    for (name, host_of_second) in [("card-far", 1), ("card-near", 0)] {
        let world = World::new(name, 3);
        let hosts = [0, host_of_second, 2];
        let mut members = all((0..3).map(|i| start(named(i as u64 + 1, world.seed(hosts[i], i, 3)))).collect());
        let hasty = Config { gather_timeout: Duration::from_millis(400), ..named(2, world.other(3, "id-conflict", 1)) };
        start(hasty).recv_timeout(LONG).unwrap().err().expect("it was let in");
        let mut joiner = world.other(4, "joiner", 1);
        joiner.network.as_mut().unwrap().seeds = vec![world.seeds[2].clone()];
        members.extend(all(vec![start(soon(joiner))]));
        chat(&members, 20, "four");
        for member in &members[..3] {
            let mut views: Vec<String> =
                member.log.lines().into_iter().filter(|line| line.starts_with("view")).collect();
            // One more view makes the new members voters.
            views.dedup();
            assert_eq!(views, ["view of 4"], "{name}: at {}", member.group.id());
        }
        finish(members);
    }
}

/// The other members have sent to its id at a seed's address.
#[test]
fn the_id_of_a_seed_that_has_gone_is_admitted_elsewhere() {
    let world = World::new("gone-seed", 2);
    let mut members = all(vec![
        start(named(1, world.seed(0, 0, 3))),
        start(named(2, world.seed(1, 1, 3))),
        start(named(3, world.other(2, "third", 3))),
    ]);
    drop(members.remove(1));
    for member in &members {
        member.log.wait("view", |lines| lines.contains(&"view of 2".to_string()));
    }
    members.extend(all(vec![start(named(2, world.other(3, "elsewhere", 1)))]));
    chat(&members, 20, "again");
    finish(members);
}

/// One of the two members leads, and the other waits for it.
#[test]
fn all_who_are_left_with_too_few_are_told() {
    let world = World::new("half-of-four", 2);
    let hanging = ["third", "fourth"].map(|name| soon(world.other(name.len() as u32, name, 4)));
    let hanging = hanging.map(|config| thread::spawn(move || config.join().unwrap()));
    let members = all((0..2).map(|i| start(soon(world.seed(i as u32, i, 4)))).collect());
    let hanging = hanging.map(|joining| joining.join().unwrap());
    for member in &members {
        member.log.wait("block", |lines| lines == ["blocked"]);
        assert!(member.group.status().is_blocked);
    }
    // A joiner learns once that the group is blocked, although not both members know all processes.
    let joiner = Config { gather_timeout: Duration::from_secs(3), ..soon(world.other(7, "joiner", 1)) };
    let (mut told, stop) = (vec![], std::sync::atomic::AtomicBool::new(false));
    let joined = joiner.join_with(&mut |progress: &spindle::BootstrapProgress| told.push(progress.clone()), &stop);
    assert!(matches!(joined, Err(JoinError::TimedOut { .. })), "{joined:?}");
    // The known state of each seed may change at any time.
    let blocked = told.iter().filter(|progress| progress.blocked);
    let mut present: Vec<_> = blocked.map(|progress| (progress.members, &progress.present)).collect();
    present.dedup();
    assert!((1..=3).contains(&present.len()), "{told:?}");
    assert_eq!((present[0].0, present[0].1.len()), (4, 2));
    assert!(told.iter().skip_while(|progress| !progress.blocked).all(|progress| progress.blocked), "{told:?}");
    // Their final rows prove that they have ended.
    drop(hanging);
    for member in &members {
        member.log.wait("view", |lines| lines.last().is_some_and(|line| line == "view of 2"));
        assert!(member.log.lines().contains(&"unblocked".to_string()));
    }
    chat(&members, 20, "two");
    finish(members);
}

/// A state machine: the digest of all messages in their order, how many there were, and ballast.
#[derive(Clone, Default)]
struct Machine {
    /// Count and digest.
    state: Arc<Mutex<(u64, u64)>>,
    ballast: u64,
}

impl Machine {
    fn apply(&self, payload: &[u8]) {
        let mut state = self.state.lock().unwrap();
        let mix = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3).rotate_left(5);
        *state = (state.0 + 1, payload.iter().fold(state.1, mix));
    }

    fn get(&self) -> (u64, u64) {
        *self.state.lock().unwrap()
    }
}

impl Handler for Machine {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.apply(message.payload));
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let (count, digest) = self.get();
        let head = [count.to_le_bytes(), digest.to_le_bytes()].concat();
        let bytes = Box::new(Cursor::new(head).chain(std::io::repeat(7).take(self.ballast)));
        Some(Snapshot { len: Some(16 + self.ballast), bytes })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        let mut words = [0; 16];
        state.read_exact(&mut words)?;
        let mut ballast = vec![];
        state.read_to_end(&mut ballast)?;
        assert!(ballast.iter().all(|byte| *byte == 7));
        self.ballast = ballast.len() as u64;
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
        *self.state.lock().unwrap() = (word(0), word(8));
        Ok(())
    }

    fn learn(&mut self, _: &View, _: SubgroupId, message: &Message<'_>) {
        self.apply(message.payload);
    }
}

/// Joins with the state of the group, on a thread.
fn learn(config: Config, ballast: u64) -> thread::JoinHandle<(Group, Publisher, Machine)> {
    thread::spawn(move || {
        let mut machine = Machine { ballast, ..Machine::default() };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut node = config.learn(&mut machine, &mut |_| {}, &stop).unwrap();
        let publisher = node.publisher("all").unwrap();
        (node.start(machine.clone()).unwrap(), publisher, machine)
    })
}

/// Members with state create a group. Joiners on the same host and on other hosts join while the
/// group runs. All have the same state.
#[test]
fn a_joiner_from_another_host_has_the_state() {
    let world = World::new("learning-hosts", 2);
    let configs = [world.seed(0, 0, 2), world.seed(1, 1, 2)];
    let learners = configs.map(|config| learn(config, 3 << 20));
    let mut members: Vec<_> = learners.into_iter().map(|member| member.join().unwrap()).collect();
    let (stop, sent) = (Arc::new(std::sync::atomic::AtomicBool::new(false)), Arc::new(Mutex::new(0u64)));
    // The founders continue to send.
    let senders: Vec<_> = members
        .drain(..)
        .enumerate()
        .map(|(number, (group, mut publisher, machine))| {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            let sending = thread::spawn(move || {
                let mut i = 0u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    publisher.send(format!("{i} of {number}").as_bytes(), LONG).unwrap();
                    i += 1;
                    *sent.lock().unwrap() += 1;
                    thread::sleep(Duration::from_micros(200));
                }
            });
            (group, machine, sending)
        })
        .collect();
    let newcomers: Vec<_> = [(0, "near"), (2, "far"), (2, "farther")]
        .into_iter()
        .map(|(host, name)| learn(world.other(host, name, 2), 0).join().unwrap())
        .collect();
    thread::sleep(Duration::from_millis(20));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut running = vec![];
    for (group, machine, sending) in senders {
        sending.join().unwrap();
        running.push((group, machine));
    }
    running.extend(newcomers.into_iter().map(|(group, publisher, machine)| {
        drop(publisher);
        (group, machine)
    }));
    let total = *sent.lock().unwrap();
    let start = Instant::now();
    while running.iter().any(|(_, machine)| machine.get().0 < total) {
        let counts: Vec<_> = running.iter().map(|(_, machine)| machine.get().0).collect();
        assert!(start.elapsed() < LONG, "{counts:?} of {total}");
        thread::sleep(Duration::from_millis(1));
    }
    for (_, machine) in &running {
        assert_eq!((machine.get(), machine.ballast), (running[0].1.get(), 3 << 20));
        assert_eq!(machine.get().0, total);
    }
    let ending: Vec<_> =
        running.into_iter().map(|(group, _)| thread::spawn(move || group.finish(LONG).map(drop))).collect();
    ending.into_iter().for_each(|member| member.join().unwrap().unwrap());
}

/// The directories of its hosts remember the group that died.
#[test]
fn a_learner_enters_the_successor_of_a_dead_group() {
    let world = World::new("learning-anew", 1);
    for _ in 0..2 {
        let founder = learn(world.seed(0, 0, 1), 1 << 10).join().unwrap();
        let learner = learn(world.other(1, "learner", 1), 0).join().unwrap();
        assert_eq!(learner.2.ballast, 1 << 10);
        drop((founder, learner));
    }
}

/// Otherwise the members would keep half of each ring for it, and send it every view, for ever.
#[test]
fn an_unwritable_observer_is_forgotten() {
    let world = World::new("unreachable-eye", 1);
    let members = all(vec![start(world.seed(0, 0, 1))]);
    let observers = || members[0].group.status().observers;
    let mut eye = world.other(1, "eye", 1);
    eye.network.as_mut().unwrap().advertise = Some(at(&world.scratch.0, "nobody"));
    eye.gather_timeout = LONG;
    let start = Instant::now();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let observing = scope.spawn(|| eye.observe_with(&mut |_| {}, &stop));
        while observers() == 0 {
            assert!(start.elapsed() < LONG, "it is not known");
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(observing.join().unwrap(), Err(JoinError::Cancelled { .. })));
    });
    while observers() > 0 {
        assert!(start.elapsed() < LONG, "it is not forgotten");
        thread::sleep(Duration::from_millis(1));
    }
    finish(members);
}

#[test]
fn an_observer_on_another_host_is_told_what_is_delivered() {
    let world = World::new("observing-hosts", 1);
    let members = all(vec![start(world.seed(0, 0, 2)), start(world.other(1, "a", 2))]);
    let mut observing = world.other(2, "eye", 2).observe().unwrap();
    let count = 200;
    for i in 0..count {
        members[i % 2].send(&format!("{i}"));
    }
    let mut seen = vec![];
    while seen.len() < count {
        match observing.next(LONG).unwrap() {
            Observed::Message { message, .. } => seen.push(String::from_utf8(message.payload.to_vec()).unwrap()),
            Observed::ViewChanged(_) => {}
            other => panic!("{other:?}"),
        }
    }
    members[0].log.wait("messages", |lines| lines.len() == count);
    assert_eq!(seen, members[0].log.lines());
    // The observer continues into the next view. It may miss messages that the new member sends
    // before that member knows of the observer. The observer then reports them as missed.
    let newcomer = all(vec![start(world.other(1, "b", 1))]).remove(0);
    let beginning = Instant::now();
    loop {
        assert!(beginning.elapsed() < LONG);
        newcomer.send("new");
        match observing.next(Duration::from_millis(20)) {
            Ok(Observed::Message { message, .. }) if message.payload == b"new" => break,
            Ok(Observed::ViewChanged(change)) => assert_eq!(change.new.members.len(), 3),
            Ok(Observed::Missed(missed)) => assert_eq!(missed.view.members.len(), 3, "{missed:?}"),
            Err(ObserveError::TimedOut { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    drop(observing);
    finish(members.into_iter().chain([newcomer]).collect());
}
