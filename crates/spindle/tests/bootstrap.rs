//! Groups between hosts that are created once, whatever is slow, silent or restarted: members at
//! loopback addresses of their own.
mod common;

use common::Scratch;
use spindle::{BootstrapProgress, Config, JoinError, Names, Need, Network, Node, SeedState, initialise_data_dir};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

struct World {
    name: &'static str,
    scratch: Scratch,
    port: u16,
    seeds: u8,
}

impl World {
    /// With seeds at 127.0.0.2 and on.
    fn new(name: &'static str, seeds: u8) -> World {
        let bind = |last: u8, port| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port));
        let free = || {
            let first = bind(2, 0).unwrap();
            let port = first.local_addr().unwrap().port();
            let rest: Result<Vec<_>, _> = (3..10).map(|last| bind(last, port)).collect();
            rest.is_ok().then_some(port)
        };
        let port = (0..100).find_map(|_| free()).expect("a port that is free everywhere");
        World { name, scratch: Scratch::new(name), port, seeds }
    }

    fn at(&self, last: u8) -> String {
        format!("127.0.0.{last}:{}", self.port)
    }

    fn config(&self, last: u8, members: u32) -> Config {
        let seeds = (2..2 + self.seeds).map(|last| self.at(last).parse().unwrap()).collect();
        let network = Network::new(self.at(last).parse().unwrap(), seeds);
        Config {
            group: self.name.to_string(),
            runtime_dir: Some(self.scratch.0.join(format!("host{last}"))),
            network: Some(network),
            ..self.scratch.group(members, LONG)
        }
    }

    /// With durable votes.
    fn durable(&self, last: u8, members: u32) -> Config {
        let dir = self.scratch.0.join(format!("data{last}"));
        if !dir.exists() {
            initialise_data_dir(&dir, self.name).unwrap();
        }
        Config { data_dir: Some(dir), ..self.config(last, members) }
    }
}

/// A process that looks for its group.
struct Joining {
    told: Receiver<BootstrapProgress>,
    cancelled: Arc<AtomicBool>,
    thread: JoinHandle<Result<Node, JoinError>>,
}

fn start(config: Config) -> Joining {
    let (tell, told) = channel();
    let cancelled = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&cancelled);
    let joins = move || config.join_with(&mut |progress| drop(tell.send(progress.clone())), &stop);
    Joining { told, cancelled, thread: thread::spawn(joins) }
}

impl Joining {
    /// Waits until the process reports a wait whose need fulfils `need` and whose seeds fulfil
    /// `seeds`.
    fn waits_for(&self, need: impl Fn(Need) -> bool, seeds: impl Fn(&[SeedState]) -> bool) -> BootstrapProgress {
        let (begin, mut last) = (Instant::now(), None);
        while let Ok(progress) = self.told.recv_timeout(LONG.saturating_sub(begin.elapsed())) {
            if let Some(waits) = &progress.waits {
                let states: Vec<SeedState> = waits.seeds.iter().map(|(_, state)| *state).collect();
                if need(waits.need) && seeds(&states) {
                    return progress;
                }
            }
            last = Some(progress);
        }
        panic!("not told, but {last:?}");
    }

    fn cancel(self) {
        self.cancelled.store(true, Ordering::Relaxed);
        assert!(self.thread.join().unwrap().is_err());
    }

    fn joined(self) -> Node {
        self.thread.join().unwrap().unwrap()
    }
}

/// Keeps members at work until it is dropped.
struct Running(Arc<AtomicBool>, Vec<JoinHandle<()>>);

fn run(nodes: Vec<Node>) -> Running {
    let over = Arc::new(AtomicBool::new(false));
    let poll = |mut node: Node| {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            let _publisher = node.publisher("all").unwrap();
            let group = node.start(|_: spindle::SubgroupId, _: &mut spindle::Batch<'_>| {}).unwrap();
            while !over.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(5));
            }
            drop(group);
        })
    };
    let threads = nodes.into_iter().map(poll).collect();
    Running(over, threads)
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The third seed takes connections and is silent for long, as a process is that stands still, or
/// one behind a slow link.
#[test]
fn two_seeds_of_three_do_not_found_a_group_while_the_third_is_silent() {
    let world = World::new("silent-seed", 3);
    let silent = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 4), world.port)).unwrap();
    let [one, other] = [2, 3].map(|last| start(world.config(last, 2)));
    let needs = |need| need == Need::Seeds;
    one.waits_for(needs, |seeds| seeds == [SeedState::Own, SeedState::Answers, SeedState::Silent]);
    let told = one.waits_for(needs, |seeds| seeds == [SeedState::Own, SeedState::Answers, SeedState::Unreachable]);
    assert_eq!(told.seeds_missing, 1);
    assert!(told.to_string().contains("did not say who it is within 2s"), "{told}");
    assert!(!one.thread.is_finished() && !other.thread.is_finished());
    drop(silent);
    let third = start(world.config(4, 2));
    let nodes = [one, other, third].map(Joining::joined);
    assert!(nodes.iter().all(|node| node.incarnation() == nodes[0].incarnation()));
}

#[test]
fn members_that_were_evicted_found_no_group_unless_an_operator_says_so() {
    let world = World::new("evicted-seeds", 3);
    let was = |config| Config { was_member_of: Some(7), ..config };
    let mut evicted: Vec<Joining> = (2..5).map(|last| start(was(world.config(last, 3)))).collect();
    for member in &evicted {
        let knows = |seed: &SeedState| matches!(seed, SeedState::Own | SeedState::Belongs(_));
        let told = member.waits_for(|need| matches!(need, Need::Group(_)), |seeds| seeds.iter().all(knows));
        assert!(told.to_string().contains("was created before, and none of its members answers"), "{told}");
    }
    evicted.remove(0).cancel();
    let founder = start(Config { force_create: true, ..was(world.config(2, 3)) }).joined();
    let nodes: Vec<Node> = evicted.into_iter().map(Joining::joined).collect();
    assert!(nodes.iter().all(|node| node.incarnation() == founder.incarnation()));
    assert_eq!(founder.view().members.len(), 3);
}

/// The number of founders with which a process was started does not constrain a group that others
/// found while the process looks for its own group.
#[test]
fn a_member_that_was_evicted_is_taken_by_founders_of_another_number() {
    let world = World::new("evicted-among-founders", 1);
    let founder = start(world.config(2, 2));
    let evicted = start(Config { was_member_of: Some(7), ..world.config(3, 3) });
    drop(evicted.waits_for(|need| matches!(need, Need::Group(_)), |_| true));
    let founders: Vec<Node> = [founder, start(world.config(4, 2))].map(Joining::joined).into();
    let incarnation = founders[0].incarnation();
    let running = run(founders);
    assert_eq!(evicted.joined().incarnation(), incarnation);
    drop(running);
}

/// A majority whose votes are on disk creates the group, once: all of them start again, and look
/// for it.
#[test]
fn durable_seeds_found_one_group_by_majority_and_never_another() {
    let world = World::new("durable-seeds", 3);
    let nodes: Vec<Node> = [2, 3].map(|last| start(world.durable(last, 2))).map(Joining::joined).into_iter().collect();
    let incarnation = nodes[0].incarnation();
    assert_eq!(nodes[1].incarnation(), incarnation);
    let running = run(nodes);
    // The late seed has nothing on its disk, and is admitted.
    let late = start(world.durable(4, 2)).joined();
    assert_eq!(late.incarnation(), incarnation);
    drop(late);
    drop(running);
    let again: Vec<Joining> = (2..5).map(|last| start(world.durable(last, 2))).collect();
    for member in again {
        member.waits_for(|need| need == Need::Group(spindle::Incarnation(incarnation)), |_| true);
        member.cancel();
    }
}

/// All seeds of a group are restarted, each one after the one before has gone. A member that is no
/// seed looks for them.
#[test]
fn a_seed_that_starts_again_hears_of_the_group_from_one_that_is_no_seed() {
    let world = World::new("dialled-seeds", 2);
    let founders =
        [2, 3, 4].map(|last| start(Config { suspect_after: Some(Duration::from_secs(1)), ..world.config(last, 3) }));
    let [one, other, third] = founders.map(Joining::joined);
    let incarnation = third.incarnation();
    let running = run(vec![other, third]);
    // The seed ends without a message, and does not know of the group when it is back.
    drop(one);
    let again = start(Config { suspect_after: Some(Duration::from_secs(1)), ..world.config(2, 1) }).joined();
    assert_eq!(again.incarnation(), incarnation);
    drop(running);
}

/// The name of the second seed leads the first one, which starts again, to a place where no process
/// answers. Another member, which is no seed, reaches both: with that one the first could found a
/// view 1 of its own, as two processes are enough for it.
#[test]
fn a_first_seed_that_can_not_reach_the_second_founds_no_group_with_a_member_of_theirs() {
    let world = World::new("parted-seeds", 2);
    let ip = |last: u8| -> IpAddr { Ipv4Addr::new(127, 0, 0, last).into() };
    let named = |last: u8, members: u32, second: u8| {
        let mut config = world.config(last, members);
        let network = config.network.as_mut().unwrap();
        network.seeds = ["first", "second"].map(|name| format!("{name}:{}", world.port).parse().unwrap()).to_vec();
        network.names = Names::known_by(move |host| match host {
            "first" => Ok(vec![ip(2)]),
            "second" => Ok(vec![ip(second)]),
            other => Err(std::io::Error::other(format!("no such host: {other}"))),
        });
        Config { suspect_after: Some(Duration::from_secs(1)), ..config }
    };
    let [one, other, third] = [2, 3, 4].map(|last| start(named(last, 3, 3))).map(Joining::joined);
    let incarnation = third.incarnation();
    let running = run(vec![other, third]);
    drop(one);
    let silent = TcpListener::bind((ip(9), world.port)).unwrap();
    let again = start(named(2, 2, 9)).joined();
    assert_eq!(again.incarnation(), incarnation, "view {}", again.view().id);
    assert!(again.view().id.0 > 1);
    drop((running, silent));
}
