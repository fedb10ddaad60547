//! Groups between hosts over TCP: a host is a runtime directory here, and the network is loopback.
#![allow(dead_code, reason = "each test file uses a part")]
use crate::common::Scratch;
use spindle::{Address, Batch, Config, Group, Handler, JoinError, Network, Publisher, SubgroupId, ViewChange};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The hosts of one group.
pub(crate) struct Hosts {
    /// The group's, not used by another test: ports may have belonged to another group's.
    name: String,
    scratch: Scratch,
    pub(crate) seeds: Vec<Address>,
    suspect_after: Duration,
}

impl Hosts {
    pub(crate) fn new(name: &str, seeds: usize, suspect_after: Duration) -> Hosts {
        let scratch = Scratch::new(name);
        // No other process gets these ports for a while.
        let held: Vec<_> = (0..seeds).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let seeds = held.iter().map(|held| held.local_addr().unwrap().to_string().parse().unwrap()).collect();
        Hosts { name: name.to_string(), scratch, seeds, suspect_after }
    }

    /// A process on `host`, which listens there and is one of `members` founders.
    pub(crate) fn at(&self, host: usize, listen: Address, members: u32) -> Config {
        Config {
            group: self.name.clone(),
            runtime_dir: Some(self.scratch.0.join(format!("host{host}"))),
            network: Some(Network::new(listen, self.seeds.clone())),
            suspect_after: Some(self.suspect_after),
            ..self.scratch.group(members, LONG)
        }
    }

    /// The seed of this number, on the host of the same number.
    pub(crate) fn seed(&self, seed: usize, members: u32) -> Config {
        self.at(seed, self.seeds[seed].clone(), members)
    }

    /// A process on `host` at any port.
    pub(crate) fn other(&self, host: usize, members: u32) -> Config {
        self.at(host, "127.0.0.1:0".parse().unwrap(), members)
    }

    /// The seeds have created the group.
    pub(crate) fn create(&self) -> Vec<Member> {
        let count = self.seeds.len();
        let starting: Vec<_> = (0..count).map(|seed| start(self.seed(seed, count as u32))).collect();
        starting.into_iter().map(|member| member.recv_timeout(LONG).unwrap().unwrap()).collect()
    }
}

/// The messages that one member has delivered, and the sizes of its views.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<(Vec<String>, Vec<usize>)>>, pub(crate) Duration);

impl Log {
    pub(crate) fn messages(&self) -> Vec<String> {
        self.0.lock().unwrap().0.clone()
    }

    pub(crate) fn views(&self) -> Vec<usize> {
        self.0.lock().unwrap().1.clone()
    }

    pub(crate) fn wait(&self, what: &str, ready: impl Fn(&Log) -> bool) {
        let start = Instant::now();
        while !ready(self) {
            let (messages, views) = (self.messages(), self.views());
            assert!(start.elapsed() < LONG, "no {what}: {} messages, views of {views:?}", messages.len());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Handler for Log {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            thread::sleep(self.1);
            self.0.lock().unwrap().0.push(String::from_utf8(message.payload.to_vec()).unwrap());
        });
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.0.lock().unwrap().1.push(change.new.members.len());
    }
}

pub(crate) struct Member {
    pub(crate) group: Group,
    pub(crate) publisher: Publisher,
    pub(crate) log: Log,
}

impl Member {
    pub(crate) fn send(&mut self, text: &str) {
        self.publisher.send(text.as_bytes(), LONG).unwrap();
    }

    /// Finishes on a thread.
    pub(crate) fn finish(self) -> JoinHandle<()> {
        thread::spawn(move || {
            drop(self.publisher);
            self.group.finish(LONG).unwrap();
        })
    }

    pub(crate) fn leave(self) {
        drop(self.publisher);
        self.group.leave(LONG).unwrap();
    }
}

/// Joins on a thread.
pub(crate) fn start(config: Config) -> Receiver<Result<Member, JoinError>> {
    start_slow(config, Duration::ZERO)
}

/// As `start`; the member takes so long for each message.
pub(crate) fn start_slow(config: Config, each: Duration) -> Receiver<Result<Member, JoinError>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let joined = config.join().map(|mut node| {
            let publisher = node.publisher("all").unwrap();
            let log = Log(Arc::default(), each);
            Member { group: node.start(log.clone()).unwrap(), publisher, log }
        });
        let _ = tell.send(joined);
    });
    told
}

pub(crate) fn join(config: Config) -> Member {
    start(config).recv_timeout(LONG).unwrap().unwrap()
}

/// Ends all of them, after all messages.
pub(crate) fn finish(members: impl IntoIterator<Item = Member>) {
    let ending: Vec<_> = members.into_iter().map(Member::finish).collect();
    ending.into_iter().for_each(|member| member.join().unwrap());
}
