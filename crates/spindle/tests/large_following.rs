//! Large messages for processes that follow a group: observers, and joiners that take over its
//! state.
mod common;

use common::Scratch;
use spindle::{
    Address, Batch, Config, Group, Handler, MemberId, Message, Network, Observed, Observing, Order, Publisher,
    Snapshot, State, SubgroupId, View, ViewChange,
};
use std::io::{Cursor, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(10);

/// An event that a member or a follower received.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    /// View, sender's id, length, and the byte of which it consists.
    Message(u64, u64, usize, u8),
    View(u64),
}

fn message(view: &View, message: &Message<'_>) -> Told {
    let byte = message.payload[0];
    assert!(message.payload.iter().all(|other| *other == byte), "one byte, many times");
    Told::Message(view.id.0, view.members[message.sender.index()].0, message.payload.len(), byte)
}

/// The events that a member received since its state machine began. They are its state.
#[derive(Clone, Default)]
struct Log {
    told: Arc<Mutex<Vec<Told>>>,
    view: Option<Arc<View>>,
    /// Bytes of ballast in a snapshot.
    ballast: u64,
    learned: Arc<AtomicU64>,
    /// The log of a member that must receive more events before this one has restored a state.
    ahead: Option<Arc<Mutex<Vec<Told>>>>,
}

impl Log {
    fn messages(&self) -> Vec<Told> {
        self.told.lock().unwrap().iter().filter(|told| matches!(told, Told::Message(..))).cloned().collect()
    }

    /// Waits until the log contains so many messages.
    fn wait(&self, count: usize) {
        until("messages", || self.messages().len() >= count);
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < patience, "waited for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

impl Handler for Log {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        let view = self.view.clone().unwrap();
        batch.for_each(|got| self.told.lock().unwrap().push(message(&view, &got)));
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.view = Some(Arc::clone(&change.new));
        self.told.lock().unwrap().push(Told::View(change.new.id.0));
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let words = |told: &Told| match *told {
            Told::Message(view, sender, len, byte) => [view, sender, len as u64, u64::from(byte)],
            Told::View(view) => [view, 0, 0, 0],
        };
        let words: Vec<u64> = self.told.lock().unwrap().iter().flat_map(words).collect();
        let mut bytes = (words.len() as u64).to_le_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        Some(Snapshot { len: None, bytes: Box::new(Cursor::new(bytes).chain(std::io::repeat(7).take(self.ballast))) })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        let mut word = [0; 8];
        state.read_exact(&mut word)?;
        let mut words = vec![0; 8 * u64::from_le_bytes(word) as usize];
        state.read_exact(&mut words)?;
        let words: Vec<u64> = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let told = words.as_chunks::<4>().0.iter().map(|words| match *words {
            [view, 0, 0, 0] => Told::View(view),
            [view, sender, len, byte] => Told::Message(view, sender, len as usize, byte as u8),
        });
        *self.told.lock().unwrap() = told.collect();
        self.ballast = state.read_to_end(&mut vec![])? as u64;
        if let Some(ahead) = &self.ahead {
            let now = ahead.lock().unwrap().len();
            until("more messages", || ahead.lock().unwrap().len() >= now + 20);
        }
        Ok(())
    }

    fn learn(&mut self, view: &View, _: SubgroupId, got: &Message<'_>) {
        self.learned.fetch_add(u64::from(got.payload.len() > 1000), Ordering::Relaxed);
        self.told.lock().unwrap().push(message(view, got));
    }
}

/// The places of a group's members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// All on one host.
    Near,
    /// Each on a host of its own.
    Far,
}

struct World {
    scratch: Scratch,
    place: Place,
    order: Order,
}

impl World {
    fn new(name: &str, place: Place, order: Order) -> World {
        let scratch = Scratch::new(&format!("{name}-{place:?}-{order:?}"));
        if place == Place::Far {
            // The directory of their sockets.
            std::fs::create_dir_all(&scratch.0).unwrap();
        }
        World { scratch, place, order }
    }

    /// Returns the configuration of process `i` of a group that so many processes found. The first
    /// one is the seed.
    fn config(&self, i: u64, founders: u32) -> Config {
        let mut config =
            Config { id: Some(MemberId(i)), suspect_after: Some(LONG), ..self.scratch.group(founders, LONG) };
        config.subgroups[0].order = self.order;
        config.subgroups[0].window = 500;
        config.subgroups[0].message_bytes_max = 64;
        if self.place == Place::Far {
            let at = |i| -> Address { format!("unix:{}/at{i}", self.scratch.0.display()).parse().unwrap() };
            config.runtime_dir = Some(self.scratch.0.join(format!("host{i}")));
            config.network = Some(Network::new(at(i), vec![at(1)]));
        }
        config
    }

    fn create(&self, founders: u32, ballast: u64) -> Vec<Member> {
        let starting = (1..=u64::from(founders)).map(|i| {
            let config = self.config(i, founders);
            thread::spawn(move || Member::join(config, Log { ballast, ..Log::default() }))
        });
        let starting: Vec<_> = starting.collect();
        starting.into_iter().map(|member| member.join().unwrap()).collect()
    }

    fn observe(&self, i: u64) -> Observing {
        self.config(i, 1).observe().unwrap()
    }
}

struct Member {
    group: Group,
    publisher: Publisher,
    log: Log,
}

impl Member {
    fn join(config: Config, mut log: Log) -> Member {
        let mut node = config.learn(&mut log, &mut |_| {}, &AtomicBool::new(false)).unwrap();
        log.view = Some(Arc::clone(node.view()));
        let publisher = node.publisher("all").unwrap();
        let kept = log.clone();
        Member { group: node.start(log).unwrap(), publisher, log: kept }
    }
}

fn finish(members: Vec<Member>) {
    let ending = members.into_iter().map(|Member { group, publisher, .. }| {
        drop(publisher);
        thread::spawn(move || group.finish(LONG).map(|_| ()))
    });
    let ending: Vec<_> = ending.collect();
    ending.into_iter().for_each(|member| member.join().unwrap().unwrap());
}

/// Appends the observer's next event to `told`. Returns the number of sequence numbers that the
/// observer missed.
fn take(observing: &mut Observing, told: &mut Vec<Told>) -> u64 {
    match observing.next(SOON) {
        Ok(Observed::Message { view, message: got, .. }) => told.push(message(view, &got)),
        Ok(Observed::ViewChanged(change)) => told.push(Told::View(change.new.id.0)),
        Ok(Observed::Missed(missed)) => return missed.sequence_numbers(),
        Ok(other) => panic!("{other:?}"),
        Err(spindle::ObserveError::TimedOut { .. }) => {}
        Err(end) => panic!("{end}"),
    }
    0
}

/// Returns the `k`-th length: small ones, and large ones of all sizes.
fn length(k: u64) -> usize {
    [20, 70_000, 3_000, 1, 1_200_000, 400_000, 30][k as usize % 7]
}

#[test]
fn a_joiner_with_state_comes_in_while_large_messages_never_pause() {
    for place in [Place::Near, Place::Far] {
        let world = World::new("join-large", place, Order::Total);
        let mut members = world.create(2, 8 << 20);
        let stop = AtomicBool::new(false);
        let ahead = Some(Arc::clone(&members[0].log.told));
        let begin = Instant::now();
        let (joined, sent) = thread::scope(|scope| {
            let sending: Vec<_> = members
                .iter_mut()
                .enumerate()
                .map(|(i, Member { publisher, .. })| {
                    let stop = &stop;
                    scope.spawn(move || {
                        let mut k = 0;
                        // If the joiner fails, no thread sets `stop`.
                        while !stop.load(Ordering::Relaxed) && begin.elapsed() < LONG {
                            let len = length(k + 3 * i as u64);
                            publisher.send(&vec![k as u8; len], LONG).unwrap();
                            k += 1;
                            // Busy machines stop any thread for a while.
                            thread::sleep(Duration::from_millis(if len > 1000 { 10 } else { 0 }));
                        }
                        k as usize
                    })
                })
                .collect();
            let joining = scope.spawn(|| Member::join(world.config(3, 1), Log { ahead, ..Log::default() }));
            let mut joined = joining.join().unwrap();
            let count = joined.log.messages().len();
            joined.log.wait(count + 20);
            joined.publisher.send(&[1; 500_000], LONG).unwrap();
            stop.store(true, Ordering::Relaxed);
            let sent: usize = sending.into_iter().map(|sending| sending.join().unwrap()).sum();
            (joined, sent)
        });
        assert!(joined.log.learned.load(Ordering::Relaxed) > 0, "no large message came before it was let in");
        members.push(joined);
        members.iter().for_each(|member| member.log.wait(sent + 1));
        let messages: Vec<_> = members.iter().map(|member| member.log.messages()).collect();
        assert!(messages.iter().all(|all| *all == messages[0]), "{place:?}");
        finish(members);
    }
}

/// Sends so many messages from each of these members, until `progress` counts all. No sender is
/// more than a few messages ahead of the observer.
fn send_along(publishers: Vec<&mut Publisher>, count: u64, progress: &AtomicU64) {
    let senders = publishers.len() as u64;
    thread::scope(|scope| {
        for (i, publisher) in publishers.into_iter().enumerate() {
            scope.spawn(move || {
                for k in 0..count {
                    until("who observes", || progress.load(Ordering::Relaxed) + 4 * senders >= k * senders);
                    publisher.send(&vec![k as u8; length(k + 3 * i as u64)], LONG).unwrap();
                }
            });
        }
    });
}

#[test]
fn an_observer_that_keeps_up_misses_no_large_message() {
    for (place, order) in [(Place::Near, Order::Total), (Place::Near, Order::Fifo), (Place::Far, Order::Total)] {
        let world = World::new("observe-large", place, order);
        let mut members = world.create(2, 0);
        let mut observing = world.observe(9);
        let progress = AtomicU64::new(0);
        let mut told = vec![];
        thread::scope(|scope| {
            let publishers = members.iter_mut().map(|member| &mut member.publisher).collect();
            scope.spawn(|| send_along(publishers, 28, &progress));
            let patience = Instant::now() + LONG;
            while told.len() < 56 {
                assert_eq!(take(&mut observing, &mut told), 0, "missed after {told:?}");
                progress.store(told.len() as u64, Ordering::Relaxed);
                assert!(Instant::now() < patience, "{place:?} {order:?}: {told:?}");
            }
        });
        members.iter().for_each(|member| member.log.wait(56));
        if order == Order::Total {
            assert_eq!(told, members[0].log.messages());
        }
        for sender in 1..=2 {
            let lengths = told.iter().filter_map(|told| match told {
                Told::Message(_, of, len, k) if *of == sender => Some((*len, *k)),
                _ => None,
            });
            let sent = (0..28).map(|k| (length(k + 3 * (sender - 1)), k as u8));
            assert!(lengths.eq(sent), "{told:?}");
        }
        drop(observing);
        finish(members);
    }
}

#[test]
fn a_member_that_goes_takes_no_large_message_with_it() {
    for place in [Place::Near, Place::Far] {
        let world = World::new("goes", place, Order::Total);
        let mut members = world.create(3, 0);
        // An observer asks one of the members first. Three observers ask a different member each.
        let mut observing: Vec<Observing> = (9..12).map(|i| world.observe(i)).collect();
        let gone = members.remove(1);
        let progress = AtomicU64::new(0);
        let mut told = vec![vec![]; observing.len()];
        thread::scope(|scope| {
            let mut leaves = Some(gone);
            let publishers = vec![&mut members[0].publisher];
            scope.spawn(|| send_along(publishers, 35, &progress));
            let patience = Instant::now() + LONG;
            let messages = |told: &Vec<Told>| told.iter().filter(|told| matches!(told, Told::Message(..))).count();
            while told.iter().any(|told| messages(told) < 35) {
                for (observing, told) in observing.iter_mut().zip(&mut told) {
                    assert_eq!(take(observing, told), 0, "missed after {told:?}");
                }
                let least = told.iter().map(messages).min().unwrap();
                progress.store(least as u64, Ordering::Relaxed);
                if least >= 12 {
                    // The member sends no message when it goes, like a member that is killed.
                    drop(leaves.take());
                }
                assert!(Instant::now() < patience, "{place:?}: {told:?}");
            }
        });
        members[0].log.wait(35);
        let all = members[0].log.told.lock().unwrap().clone();
        assert!(all.contains(&Told::View(2)));
        for told in told {
            assert_eq!(told, all);
        }
        drop(observing);
        finish(members);
    }
}

/// Members do not wait for observers of small messages: these are stored in memory that outlives
/// the members.
#[test]
fn members_that_have_finished_wait_a_moment_for_who_may_want_the_last_large_message() {
    let world = World::new("last", Place::Near, Order::Total);
    let mut members = world.create(2, 0);
    let mut observing = world.observe(9);
    let begin = Instant::now();
    members[0].publisher.send(&[1; 100_000], LONG).unwrap();
    members.iter().for_each(|member| member.log.wait(1));
    let finishing = thread::spawn(|| finish(members));
    let (mut told, mut missed) = (vec![], 0);
    while missed + told.len() as u64 == 0 {
        missed += take(&mut observing, &mut told);
        assert!(begin.elapsed() < LONG);
    }
    finishing.join().unwrap();
    // The observer has not gone, and the members can't know what it has received.
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    drop(observing);
}

#[test]
fn objects_that_no_member_keeps_are_reported_as_missed() {
    let world = World::new("gone", Place::Near, Order::Total);
    let mut members = world.create(2, 0);
    let mut observing = world.observe(9);
    // More messages than the members keep, and fewer than a ring holds.
    for k in 0..200 {
        members[0].publisher.send(&vec![k; 100_000], LONG).unwrap();
    }
    members.iter().for_each(|member| member.log.wait(200));
    let (mut told, mut missed) = (vec![], 0);
    let patience = Instant::now() + LONG;
    while told.len() as u64 + missed < 200 {
        let more = take(&mut observing, &mut told);
        assert!(more == 0 || told.is_empty(), "the oldest are given up first");
        missed += more;
        assert!(Instant::now() < patience, "{missed} missed, {told:?}");
    }
    assert!((1..200).contains(&missed), "{missed} missed");
    assert_eq!(told, members[0].log.messages()[missed as usize..]);
    drop(observing);
    finish(members);
}
