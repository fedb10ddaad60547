//! Groups whose seeds are behind one name. Each member has a loopback address of its own, and the
//! test resolves the names.
mod common;

use common::Scratch;
use rcgen::{CertificateParams, KeyPair};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spindle::{
    Batch, BootstrapProgress, Config, Group, Handler, Identity, JoinError, Names, Network, Node, Publisher, Security,
    SeedsKnown, Snapshot, State, SubgroupId,
};
use std::io::{Cursor, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// The addresses of the name, as some of the processes resolve it.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<IpAddr>>>);

impl Book {
    fn of(lasts: &[u8]) -> Book {
        let book = Book::default();
        book.say(lasts);
        book
    }

    fn say(&self, lasts: &[u8]) {
        *self.0.lock().unwrap() = lasts.iter().copied().map(ip).collect();
    }

    fn names(&self) -> Names {
        let book = Arc::clone(&self.0);
        Names::known_by(move |host| match host {
            "spindle" => Ok(book.lock().unwrap().clone()),
            other => Err(std::io::Error::other(format!("nobody knows {other}"))),
        })
    }
}

struct World {
    name: &'static str,
    scratch: Scratch,
    port: u16,
    /// Set to ask all processes of this world to stop.
    cancelled: Arc<AtomicBool>,
}

impl World {
    /// Creates a world with a port that is free at all these addresses.
    fn new(name: &'static str, lasts: &[u8]) -> World {
        let free = || {
            let first = TcpListener::bind((ip(lasts[0]), 0)).unwrap();
            let port = first.local_addr().unwrap().port();
            let rest: Result<Vec<_>, _> = lasts[1..].iter().map(|last| TcpListener::bind((ip(*last), port))).collect();
            rest.is_ok().then_some(port)
        };
        let port = (0..100).find_map(|_| free()).expect("a port that is free everywhere");
        World { name, scratch: Scratch::new(name), port, cancelled: Arc::default() }
    }

    fn config(&self, last: u8, members: u32, count: u32, book: &Book) -> Config {
        let listen = format!("127.0.0.{last}:{}", self.port).parse().unwrap();
        let seeds = vec![format!("spindle:{}", self.port).parse().unwrap()];
        let network = Network { seed_count: Some(count), names: book.names(), ..Network::new(listen, seeds) };
        Config {
            group: self.name.to_string(),
            runtime_dir: Some(self.scratch.0.join(format!("host{last}"))),
            network: Some(network),
            suspect_after: Some(LONG),
            ..self.scratch.group(members, LONG)
        }
    }

    fn at(&self, last: u8) -> String {
        format!("127.0.0.{last}:{}", self.port)
    }

    /// Returns the configuration of a process that looks for its group at seeds, each of which is
    /// one process. The process could create the group by itself.
    fn looking(&self, last: u8, seeds: &[&str]) -> Config {
        let mut config = self.config(last, 1, 1, &Book::default());
        let network = config.network.as_mut().unwrap();
        (network.seed_count, network.seeds) = (None, seeds.iter().map(|seed| seed.parse().unwrap()).collect());
        config
    }

    /// Returns the configuration of a process that creates its group at its own address, where it
    /// waits for another member.
    fn waiting(&self, last: u8) -> Config {
        Config { founders: 2, ..self.looking(last, &[&self.at(last)]) }
    }

    fn start(&self, config: Config) -> Joining {
        let (tell, told) = channel();
        let cancelled = Arc::clone(&self.cancelled);
        let joins =
            move || config.join_with(&mut |progress| drop(tell.send((Instant::now(), progress.clone()))), &cancelled);
        Joining { told, thread: thread::spawn(joins) }
    }
}

/// A process that looks for its group.
struct Joining {
    told: Receiver<(Instant, BootstrapProgress)>,
    thread: JoinHandle<Result<Node, JoinError>>,
}

impl Joining {
    /// Waits until `is_it` is true for the process's knowledge of its seeds.
    fn knows(&self, what: &str, is_it: impl Fn(&SeedsKnown) -> bool) {
        let (start, mut last) = (Instant::now(), None);
        loop {
            match self.told.recv_timeout(LONG.saturating_sub(start.elapsed())) {
                Ok((_, BootstrapProgress { seeds, .. })) if seeds.as_deref().is_some_and(&is_it) => return,
                Ok((_, progress)) => last = Some(progress.to_string()),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => panic!("not {what}: {last:?}"),
            }
        }
    }

    /// Waits until the process reports a progress that contains all `parts`.
    fn is_told(&self, parts: &[&str]) {
        let (start, mut last) = (Instant::now(), None);
        while let Ok((_, progress)) = self.told.recv_timeout(LONG.saturating_sub(start.elapsed())) {
            let text = progress.to_string();
            if parts.iter().all(|part| text.contains(part)) {
                return;
            }
            last = Some(text);
        }
        panic!("not {parts:?}, but {last:?}");
    }

    /// Returns the error with which the process ended.
    fn error(self) -> String {
        self.thread.join().unwrap().unwrap_err().to_string()
    }

    fn joined(self) -> Node {
        self.thread.join().unwrap().unwrap()
    }
}

/// Checks that all nodes deliver a message that one of them sends.
fn talk(mut nodes: Vec<Node>) {
    let mut publisher = nodes[0].publisher("all").unwrap();
    let (tell, told) = channel();
    let groups = nodes.into_iter().map(|node| {
        let tell = tell.clone();
        node.start(move |_: SubgroupId, batch: &mut Batch<'_>| {
            batch.for_each(|message| drop(tell.send(message.payload.to_vec())));
        })
    });
    let groups: Vec<_> = groups.collect::<Result<_, _>>().unwrap();
    publisher.send(b"hello", LONG).unwrap();
    for _ in &groups {
        assert_eq!(told.recv_timeout(LONG).unwrap(), b"hello");
    }
    drop(publisher);
    let ending = groups.into_iter().map(|group| thread::spawn(move || group.finish(LONG).map(|_| ())));
    ending.collect::<Vec<_>>().into_iter().for_each(|group| group.join().unwrap().unwrap());
}

fn view(nodes: &[Node]) -> Vec<u64> {
    let view = nodes[0].view();
    assert!(nodes.iter().all(|node| node.view().members == view.members));
    view.members.iter().map(|id| id.0).collect()
}

#[test]
fn three_members_behind_one_name_found_one_group_when_all_of_them_are_known() {
    let world = World::new("one-name", &[2, 3, 20]);
    let book = Book::of(&[20, 3]);
    let joining: Vec<_> = [2, 3, 20].map(|last| world.start(world.config(last, 3, 3, &book))).into();
    for member in &joining {
        member.knows("that one is missing", |seeds| seeds.known.len() == 2 && seeds.wanted == 3);
    }
    // The process at 127.0.0.3 is the first, and another one waits with it: more than half.
    assert!(joining.iter().all(|member| !member.thread.is_finished()));
    book.say(&[20, 2, 3]);
    for member in &joining {
        member.knows("all", |seeds| seeds.known[0].to_string().starts_with("127.0.0.2:") && seeds.known.len() == 3);
    }
    let nodes: Vec<Node> = joining.into_iter().map(Joining::joined).collect();
    assert_eq!(view(&nodes).len(), 3);
    talk(nodes);
}

#[test]
fn one_that_answers_is_enough_to_join_whatever_else_the_name_stands_for() {
    let world = World::new("any-seed", &[2, 3, 4, 5, 6]);
    let book = Book::of(&[3, 4]);
    let founders = [3, 4].map(|last| world.start(world.config(last, 2, 2, &book)));
    // As long as a member may send, the group continues.
    let go_on = |mut node: Node| {
        let publisher = node.publisher("all").unwrap();
        (node.start(|_: SubgroupId, _: &mut Batch<'_>| {}).unwrap(), publisher)
    };
    let mut groups: Vec<(Group, Publisher)> = founders.map(|founder| go_on(founder.joined())).into();
    // First the name has more addresses than the seed count. No process listens at the first of
    // them, and the last one is the joiner's. Then the name has fewer addresses.
    for (last, lasts) in [(5, &[2, 3, 4, 5][..]), (6, &[4])] {
        let node = world.start(world.config(last, 2, 2, &Book::of(lasts))).joined();
        assert_eq!(node.view().members.len(), groups.len() + 1);
        groups.push(go_on(node));
    }
}

/// Silent connections to each member, if this process may have enough descriptors for both ends of
/// all of them.
const SILENT_MAX: usize = 800;

/// Raises the limit of this process's descriptors as far as it may. Returns the number of silent
/// connections to each member that the limit allows.
fn silent_count() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let descriptors = limit.maximum.map_or(usize::MAX, |maximum| maximum as usize);
    let count = SILENT_MAX.min(descriptors.saturating_sub(500) / (2 * 3));
    if count < SILENT_MAX {
        println!("only {count} silent connections to each member: the limit is {descriptors} descriptors");
    }
    count
}

/// More silent connections than an endpoint has slots for, from several addresses, while members
/// leave and join.
#[test]
fn silent_connections_neither_split_nor_stop_a_group() {
    let count = silent_count();
    for is_secure in [false, true] {
        let name = if is_secure { "silence-tls" } else { "silence" };
        let world = World::new(name, &[2, 3, 4, 5]);
        let (book, authority) = (Book::of(&[2, 3, 4]), identity(&world, "all"));
        let config = |last| {
            let mut config = world.config(last, 3, 3, &book);
            if is_secure {
                config.network.as_mut().unwrap().security = Security::Tls(authority.clone());
            }
            Config { suspect_after: Some(Duration::from_secs(10)), ..config }
        };
        let go_on = |mut node: Node| {
            let publisher = node.publisher("all").unwrap();
            (node.start(|_: SubgroupId, _: &mut Batch<'_>| {}).unwrap(), publisher)
        };
        let founders = [2, 3, 4].map(|last| world.start(config(last)));
        let mut groups: Vec<(Group, Publisher)> = founders.map(|founder| go_on(founder.joined())).into();
        // The connections come from the members' own addresses and from others. No member will
        // listen at one of the others, because a connection may have any port.
        let silent =
            [2, 3, 4].into_iter().flat_map(|to| (0..count).map(move |n| ([2, 3, 4, 105, 106, 107][n % 6], to)));
        let silent: Vec<TcpStream> = silent.map(|(from, to)| connect(ip(from), (ip(to), world.port).into())).collect();
        let (leaving, publisher) = groups.remove(1);
        drop(publisher);
        leaving.leave(LONG).unwrap();
        let node = world.start(config(5)).joined();
        assert_eq!(node.view().members.len(), 3);
        groups.push(go_on(node));
        for (_, publisher) in &mut groups {
            publisher.send(b"still here", LONG).unwrap();
        }
        // None was evicted, and none is in another view.
        let view = groups[2].0.view();
        for (group, _) in &groups {
            let start = Instant::now();
            while group.view().id != view.id {
                assert!(start.elapsed() < LONG && group.ended().is_none(), "{:?} {:?}", group.view(), group.ended());
                thread::sleep(Duration::from_millis(1));
            }
        }
        drop(silent);
    }
}

fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::new(from, 0)).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    socket.into()
}

/// The processes resemble pods whose names are answered from other caches.
#[test]
fn a_process_with_other_seed_addresses_is_not_counted_until_they_agree() {
    let world = World::new("other-minds", &[2, 3, 4]);
    let (new, old) = (Book::of(&[2, 4]), Book::of(&[3, 4]));
    // The second process waits for the process that was at 127.0.0.3. It knows of the first process
    // because that one looks for it.
    let (first, second) = (world.start(world.config(2, 2, 2, &new)), world.start(world.config(4, 2, 2, &old)));
    first.knows("that another list is in somebody's mind", |seeds| seeds.unlike == 1);
    assert!(!first.thread.is_finished() && !second.thread.is_finished());
    old.say(&[2, 4]);
    let nodes = vec![first.joined(), second.joined()];
    assert_eq!(view(&nodes).len(), 2);
    talk(nodes);
}

/// A state machine whose state is all that it has delivered.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<u8>>>);

impl Handler for Keeper {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.0.lock().unwrap().extend(message.payload));
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let bytes = self.0.lock().unwrap().clone();
        Some(Snapshot { len: Some(bytes.len() as u64), bytes: Box::new(Cursor::new(bytes)) })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        state.read_to_end(&mut self.0.lock().unwrap()).map(drop)
    }
}

/// A process with a state does not know beforehand whether it creates the group.
#[test]
fn a_process_with_a_state_creates_and_learns_by_one_name() {
    let world = World::new("state-by-name", &[2, 3, 4]);
    let book = Book::of(&[2, 3]);
    let learn = |last: u8| {
        let (config, mut keeper) = (world.config(last, 2, 2, &book), Keeper::default());
        thread::spawn(move || {
            let mut node = config.learn(&mut keeper, &mut |_| {}, &AtomicBool::new(false)).unwrap();
            let publisher = node.publisher("all").unwrap();
            (node.start(keeper.clone()).unwrap(), publisher, keeper)
        })
    };
    let holds = |keeper: &Keeper, what: &[u8]| {
        let start = Instant::now();
        while *keeper.0.lock().unwrap() != what {
            assert!(start.elapsed() < LONG, "{:?}", keeper.0.lock().unwrap());
            thread::yield_now();
        }
    };
    let founders = [learn(2), learn(3)];
    let mut members: Vec<_> = founders.map(|member| member.join().unwrap()).into();
    members[0].1.send(b"one ", LONG).unwrap();
    members.iter().for_each(|(.., keeper)| holds(keeper, b"one "));
    book.say(&[2, 3, 4]);
    members.push(learn(4).join().unwrap());
    members[2].1.send(b"two", LONG).unwrap();
    members.iter().for_each(|(.., keeper)| holds(keeper, b"one two"));
}

#[test]
fn a_failed_name_lookup_is_reported() {
    let world = World::new("no-name", &[2]);
    let mut config = world.config(2, 1, 1, &Book::of(&[2]));
    config.network.as_mut().unwrap().seeds = vec!["elsewhere:7411".parse().unwrap()];
    let member = world.start(config);
    member.knows("why", |seeds| seeds.failed.as_ref().is_some_and(|why| why.contains("nobody knows elsewhere")));
    world.cancelled.store(true, Ordering::Relaxed);
    let error = member.thread.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("; 0 of 1 addresses of elsewhere:7411 are known (can't resolve elsewhere:7411"), "{error}");
    let mut config = world.config(2, 1, 1, &Book::default());
    config.network.as_mut().unwrap().seeds = vec![];
    let error = config.join().unwrap_err().to_string();
    assert!(error.contains("seed_count is 1: there are no seeds to count"), "{error}");
}

#[test]
fn an_unusable_seed_is_reported_with_the_reason() {
    let world = World::new("useless-seeds", &[2, 8, 9]);
    let mute = TcpListener::bind((ip(8), world.port)).unwrap();
    let member = world.start(world.looking(2, &[&world.at(9), "elsewhere:7411", &world.at(8)]));
    let refused = format!("{}: Connection refused", world.at(9));
    let unknown = "; elsewhere:7411: can't be resolved: nobody knows elsewhere;";
    let silent = format!("{}: did not say who it is within 2s", world.at(8));
    member.is_told(&["no seed has answered; ", &refused, unknown, &silent]);
    world.cancelled.store(true, Ordering::Relaxed);
    let error = member.error();
    assert!([&refused, unknown, &silent].iter().all(|part| error.contains(*part)), "{error}");
    drop(mute);
}

#[test]
fn a_process_with_too_few_seeds_is_told_which_and_why() {
    let world = World::new("few-seeds-told", &[2, 8, 9]);
    let founder = world.start(world.looking(2, &[&world.at(2), &world.at(8), &world.at(9)]));
    let refused = [8, 9].map(|last| format!("{}: Connection refused", world.at(last)));
    // A missing answer does not count as "no group". The founder needs an answer from every seed
    // that keeps no votes on a disk.
    founder.is_told(&["), and 2 more of the seeds must be; ", &refused[0], &refused[1]]);
    world.cancelled.store(true, Ordering::Relaxed);
    assert!(!founder.error().contains("not all of them ready"));
}

#[test]
fn a_process_refused_for_another_group_is_told_which() {
    let world = World::new("other-group", &[2, 3]);
    let other = world.start(Config { group: "somebody-elses".into(), ..world.waiting(3) });
    let member = world.start(world.looking(2, &[&world.at(3)]));
    member.is_told(&[&format!("{}: refused: it belongs to group somebody-elses", world.at(3))]);
    world.cancelled.store(true, Ordering::Relaxed);
    assert!(other.error().contains("1 of 2 members are here"));
    assert!(member.error().contains("no seed has answered; "));
}

/// A certificate that is its own authority.
fn identity(world: &World, name: &str) -> Identity {
    std::fs::create_dir_all(&world.scratch.0).unwrap();
    let [pem_at, key_at] = ["pem", "key"].map(|end| world.scratch.0.join(format!("{name}.{end}")));
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::new(vec!["host".into()]).unwrap().self_signed(&key).unwrap().pem();
    std::fs::write(&pem_at, pem).unwrap();
    std::fs::write(&key_at, key.serialize_pem()).unwrap();
    Identity::load(&pem_at, &pem_at, &key_at).unwrap()
}

#[test]
fn a_tls_mismatch_is_reported() {
    let world = World::new("tls-told", &[2, 3, 4, 5, 6]);
    let secured = |name: &str, mut config: Config| {
        config.network.as_mut().unwrap().security = Security::Tls(identity(&world, name));
        config
    };
    let seeds = [world.start(secured("a", world.waiting(2))), world.start(world.waiting(3))];
    let plain = world.start(world.looking(4, &[&world.at(2)]));
    let other = world.start(secured("b", world.looking(5, &[&world.at(2)])));
    let lonely = world.start(secured("c", world.looking(6, &[&world.at(3)])));
    let closed = "it closed the connection before it answered, as one does that expects TLS, or does not";
    plain.is_told(&["no seed has answered; ", &world.at(2), closed]);
    lonely.is_told(&["no seed has answered; ", &world.at(3), closed]);
    other.is_told(&["no seed has answered; ", &world.at(2), "no TLS: invalid peer certificate"]);
    world.cancelled.store(true, Ordering::Relaxed);
    for one in seeds.into_iter().chain([plain, other, lonely]) {
        one.error();
    }
}

#[test]
fn learners_and_observers_are_told_why_a_seed_is_unusable() {
    let world = World::new("useless-to-learn", &[2, 9]);
    let looking = || Config { gather_timeout: Duration::from_secs(2), ..world.looking(2, &[&world.at(9)]) };
    let never = AtomicBool::new(false);
    let learning = looking().learn(&mut Keeper::default(), &mut |_| {}, &never).unwrap_err().to_string();
    let mut told = vec![];
    let observing = looking().observe_with(&mut |progress| told.push(progress.to_string()), &never);
    let observing = observing.unwrap_err().to_string();
    let why = format!("no seed has answered; {}: Connection refused", world.at(9));
    assert!(told.iter().any(|told| told.contains(&why)), "{told:?}");
    for error in [learning, observing] {
        assert!(error.starts_with(&format!("the wait is over: {why}")), "{error}");
        assert!(error.ends_with("; see that the seeds run and can be reached, or wait longer"), "{error}");
    }
}
