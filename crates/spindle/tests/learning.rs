//! Joining a running group, with the state of its application. Each member has its own
//! `ControlSocket`, on a thread of this process.
mod common;

use common::Scratch;
use spindle::{
    Batch, Config, Handler, JoinError, MemberId, Message, Node, Refusal, Snapshot, State, SubgroupId, View, ViewChange,
};
use std::io::{Cursor, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn group(scratch: &Scratch, members: u32) -> Config {
    let mut config = scratch.group(members, LONG);
    config.subgroups[0].window = 1000;
    config.subgroups[0].message_bytes_max = 64;
    config
}

/// A state machine. Its state is the digest of all messages in their order, and their count.
#[derive(Clone, Default)]
struct Machine {
    count: Arc<AtomicU64>,
    digest: Arc<AtomicU64>,
    /// Bytes of ballast in a snapshot.
    ballast: u64,
    views: Arc<Mutex<Vec<u64>>>,
}

impl Machine {
    fn apply(&self, payload: &[u8]) {
        let digest = payload.iter().fold(self.digest.load(Ordering::Relaxed), |digest, byte| {
            (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3).rotate_left(5)
        });
        self.digest.store(digest, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    fn state(&self) -> (u64, u64) {
        (self.count.load(Ordering::Acquire), self.digest.load(Ordering::Relaxed))
    }
}

impl Handler for Machine {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.apply(message.payload));
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.views.lock().unwrap().push(change.new.id.0);
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let (count, digest) = self.state();
        let head = [count.to_le_bytes(), digest.to_le_bytes()].concat();
        let len = Some(16 + self.ballast);
        Some(Snapshot { len, bytes: Box::new(Cursor::new(head).chain(std::io::repeat(7).take(self.ballast))) })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        let mut words = [0; 16];
        state.read_exact(&mut words)?;
        let mut ballast = vec![];
        state.read_to_end(&mut ballast)?;
        assert_eq!(state.len, Some(state.taken));
        assert!(ballast.iter().all(|byte| *byte == 7));
        self.ballast = ballast.len() as u64;
        self.count.store(u64::from_le_bytes(words[..8].try_into().unwrap()), Ordering::Release);
        self.digest.store(u64::from_le_bytes(words[8..].try_into().unwrap()), Ordering::Release);
        Ok(())
    }

    fn learn(&mut self, view: &View, _: SubgroupId, message: &Message<'_>) {
        assert_eq!(message.sender_id, view.members[message.sender.index()]);
        self.apply(message.payload);
    }
}

fn join(config: Config, machine: &mut Machine) -> Result<Node, JoinError> {
    config.learn(machine, &mut |_| {}, &AtomicBool::new(false))
}

#[test]
fn a_joiner_ends_up_with_the_state_of_all() {
    for ballast in [0, 30 << 20] {
        let scratch = Scratch::new(&format!("learn-{ballast}"));
        let stop = AtomicBool::new(false);
        let sent = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let founders: Vec<_> = (0..2)
                .map(|_| {
                    let (config, stop, sent) = (group(&scratch, 2), &stop, &sent);
                    scope.spawn(move || {
                        let mut machine = Machine { ballast, ..Machine::default() };
                        let mut node = join(config, &mut machine).unwrap();
                        let mut publisher = node.publisher("all").unwrap();
                        let kept = machine.clone();
                        let group = node.start(machine).unwrap();
                        let mut i = 0u64;
                        while !stop.load(Ordering::Relaxed) {
                            publisher.send(&i.to_le_bytes(), LONG).unwrap();
                            sent.fetch_add(1, Ordering::Relaxed);
                            i += 1;
                            if i.is_multiple_of(64) {
                                std::thread::sleep(Duration::from_micros(500));
                            }
                        }
                        drop(publisher);
                        group.finish(LONG).unwrap();
                        kept
                    })
                })
                .collect();
            while sent.load(Ordering::Relaxed) < 1000 {
                std::thread::yield_now();
            }
            let mut machine = Machine::default();
            let mut node = join(group(&scratch, 1), &mut machine).unwrap();
            assert_eq!(node.view().members.len(), 3);
            assert!(machine.state().0 >= 1000);
            let mut publisher = node.publisher("all").unwrap();
            let kept = machine.clone();
            let group = node.start(machine).unwrap();
            publisher.send(b"from the new one", LONG).unwrap();
            let before = sent.load(Ordering::Relaxed);
            let patience = Instant::now() + LONG;
            while sent.load(Ordering::Relaxed) < before + 1000 {
                assert!(Instant::now() < patience);
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            drop(publisher);
            group.finish(LONG).unwrap();
            let all: Vec<_> = founders.into_iter().map(|founder| founder.join().unwrap().state()).collect();
            assert_eq!(all[0], all[1]);
            assert_eq!(kept.state(), all[0], "the joiner has another state");
            assert_eq!(all[0].0, sent.load(Ordering::Relaxed) + 1);
        });
    }
}

/// The way in which a member fails that is asked for its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// Its snapshot panics.
    Panics,
    /// Its snapshot ends in the middle, with an error.
    Breaks,
    /// The same, with a panic.
    PanicsLate,
}

/// An application with so many bytes of state. It may fail to hand them over or to take them.
struct Ballast {
    bytes: u64,
    flaw: Flaw,
    asked: Arc<AtomicU64>,
    full: bool,
}

/// Bytes that never come.
struct Broken(Flaw);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        assert_ne!(self.0, Flaw::PanicsLate, "a flaw that the test wants");
        Err(std::io::Error::other("the application's own trouble"))
    }
}

impl Handler for Ballast {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {});
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert_ne!(self.flaw, Flaw::Panics, "a flaw that the test wants");
        let bytes = std::io::repeat(7).take(self.bytes / 2);
        let rest: Box<dyn Read + Send> = match self.flaw {
            Flaw::None => Box::new(std::io::repeat(7).take(self.bytes - self.bytes / 2)),
            flaw => Box::new(Broken(flaw)),
        };
        Some(Snapshot { len: Some(self.bytes), bytes: Box::new(bytes.chain(rest)) })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        if self.full {
            state.read_exact(&mut [0; 1000])?;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes = std::io::copy(state, &mut std::io::sink())?;
        Ok(())
    }
}

/// Returns the outcome for a joiner at two members with these flaws, and how often each of the two
/// was asked for its state. Afterwards the members still agree, and finish.
fn join_despite(name: &str, flaws: [Flaw; 2], full: bool) -> (Result<u64, JoinError>, [u64; 2]) {
    const BYTES: u64 = 3 << 20;
    let scratch = Scratch::new(name);
    // A member whose handler panics may be silent for long, because printing the place of the panic
    // takes time.
    let group = |scratch: &Scratch, members| Config { suspect_after: None, ..group(scratch, members) };
    let asked = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    std::thread::scope(|scope| {
        let founders: Vec<_> = (0..2)
            .map(|i| {
                let config = Config { id: Some(MemberId(i as u64 + 1)), ..group(&scratch, 2) };
                let ballast = Ballast { bytes: BYTES, flaw: flaws[i], asked: Arc::clone(&asked[i]), full: false };
                scope.spawn(move || {
                    let mut node = config.join().unwrap();
                    // As long as the publisher exists, the group does not finish.
                    let publisher = node.publisher("all").unwrap();
                    (publisher, node.start(ballast).unwrap())
                })
            })
            .collect();
        let (publishers, groups): (Vec<_>, Vec<_>) =
            founders.into_iter().map(|founder| founder.join().unwrap()).unzip();
        let mut joiner = Ballast { bytes: 0, flaw: Flaw::None, asked: Arc::default(), full };
        // An even number begins with the first of two members.
        let config = Config { id: Some(MemberId(4)), ..group(&scratch, 1) };
        let joined = config.learn(&mut joiner, &mut |_| {}, &AtomicBool::new(false));
        let joined = joined.map(|node| node.start(joiner).unwrap());
        let views: Vec<u64> = groups.iter().map(|group| group.view().members.len() as u64).collect();
        let members = 2 + u64::from(joined.is_ok());
        // The joiner is in its view when the call returns. The other members begin that view at
        // about that time.
        assert!(views.iter().all(|count| (2..=members).contains(count)), "{views:?}");
        drop(publishers);
        let all: Vec<_> = groups.into_iter().map(|group| scope.spawn(move || group.finish(LONG).unwrap())).collect();
        let joined = joined.map(|group| drop(group.finish(LONG).unwrap()));
        all.into_iter().for_each(|finished| drop(finished.join().unwrap()));
        (joined.map(|()| BYTES), asked.map(|asked| asked.load(Ordering::Relaxed)))
    })
}

#[test]
fn a_source_that_fails_is_replaced_by_the_next_member() {
    for flaw in [Flaw::Panics, Flaw::Breaks, Flaw::PanicsLate] {
        let (joined, asked) = join_despite(&format!("flaw-{flaw:?}"), [flaw, Flaw::None], false);
        assert!(joined.is_ok(), "{flaw:?}: {joined:?}");
        assert!(asked[0] > 0 && asked[1] > 0, "{flaw:?}: asked {asked:?}");
    }
}

#[test]
fn a_joiner_for_which_no_member_has_a_state_is_told_so() {
    let (joined, _) = join_despite("no-state", [Flaw::Panics; 2], false);
    assert!(matches!(joined, Err(JoinError::Refused(Refusal::NoState(_)))), "{joined:?}");
    let (joined, _) = join_despite("broken-state", [Flaw::Breaks; 2], false);
    assert!(matches!(joined, Err(JoinError::Source(_))), "{joined:?}");
}

#[test]
fn a_state_that_a_joiner_can_not_take_is_its_own_trouble() {
    let (joined, _) = join_despite("full", [Flaw::None; 2], true);
    let Err(JoinError::Restore(error)) = joined else { panic!("{joined:?}") };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

/// A learner that kills its only source while it takes over the state.
struct Orphan {
    source: Option<spindle::Group>,
}

impl Handler for Orphan {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {});
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        let taken = std::io::copy(state, &mut std::io::sink());
        drop(self.source.take());
        taken.map(drop)
    }
}

#[test]
fn the_state_of_a_dead_group_creates_no_group() {
    let scratch = Scratch::new("orphan");
    let mut node = group(&scratch, 1).join().unwrap();
    let _publisher = node.publisher("all").unwrap();
    let ballast = Ballast { bytes: 1000, flaw: Flaw::None, asked: Arc::default(), full: false };
    let mut orphan = Orphan { source: Some(node.start(ballast).unwrap()) };
    let joined = group(&scratch, 1).learn(&mut orphan, &mut |_| {}, &AtomicBool::new(false));
    assert!(matches!(joined, Err(JoinError::GroupGone)), "{joined:?}");
    // With a new application it may create a group.
    let created = group(&scratch, 1).learn(&mut Orphan { source: None }, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert_eq!(created.view().members.len(), 1);
}

/// Spindle can't determine which of the messages that a receiver has delivered are in a state.
#[test]
fn a_member_that_delivers_to_a_receiver_has_no_state_to_give() {
    let scratch = Scratch::new("receiver");
    let mut node = group(&scratch, 1).join().unwrap();
    let (_publisher, _receiver) = (node.publisher("all").unwrap(), node.receiver("all").unwrap());
    let asked = Arc::new(AtomicU64::new(0));
    let ballast = Ballast { bytes: 10, flaw: Flaw::None, asked: Arc::clone(&asked), full: false };
    let _group = node.start(ballast).unwrap();
    let joined = join(group(&scratch, 1), &mut Machine::default());
    assert!(matches!(joined, Err(JoinError::Refused(Refusal::NoState(_)))), "{joined:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// A machine that takes over its state when all other machines do.
struct Together {
    machine: Machine,
    all: Arc<Barrier>,
}

impl Handler for Together {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        self.machine.deliver(subgroup, batch);
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        self.all.wait();
        self.machine.restore(state)
    }

    fn learn(&mut self, view: &View, subgroup: SubgroupId, message: &Message<'_>) {
        self.machine.learn(view, subgroup, message);
    }
}

/// No learner asks to be admitted before all of them learn. The members that admit them therefore
/// know which learners to wait for.
#[test]
fn many_learners_come_in_few_views() {
    const JOINERS: u64 = 10;
    let scratch = Scratch::new("crowd");
    let config = |members| Config { suspect_after: None, ..group(&scratch, members) };
    let views = std::thread::scope(|scope| {
        let founders: Vec<_> = (0..2)
            .map(|_| {
                let config = config(2);
                scope.spawn(move || {
                    let mut node = config.join().unwrap();
                    // As long as the publisher exists, the group does not finish.
                    let publisher = node.publisher("all").unwrap();
                    (publisher, node.start(Machine::default()).unwrap())
                })
            })
            .collect();
        let (publishers, mut groups): (Vec<_>, Vec<_>) =
            founders.into_iter().map(|founder| founder.join().unwrap()).unzip();
        let all = Arc::new(Barrier::new(JOINERS as usize));
        let joiners: Vec<_> = (0..JOINERS)
            .map(|_| {
                let (config, all) = (config(1), Arc::clone(&all));
                scope.spawn(move || {
                    let mut together = Together { machine: Machine::default(), all };
                    let node = config.learn(&mut together, &mut |_| {}, &AtomicBool::new(false)).unwrap();
                    node.start(together).unwrap()
                })
            })
            .collect();
        groups.extend(joiners.into_iter().map(|joiner| joiner.join().unwrap()));
        drop(publishers);
        let finish = |group: spindle::Group| {
            move || {
                let newest = group.view();
                group.finish(LONG).unwrap();
                newest.id.0
            }
        };
        let all: Vec<_> = groups.into_iter().map(|group| scope.spawn(finish(group))).collect();
        all.into_iter().map(|group| group.join().unwrap()).max().unwrap() - 1
    });
    assert!((1..=3).contains(&views), "{JOINERS} joined in {views} views");
}

/// A handler that is slow at the view change that admits it.
struct Slow {
    machine: Machine,
    pause: Duration,
}

impl Handler for Slow {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        self.machine.deliver(subgroup, batch);
    }

    fn view_changed(&mut self, change: &ViewChange) {
        std::thread::sleep(std::mem::take(&mut self.pause));
        self.machine.view_changed(change);
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        self.machine.restore(state)
    }

    fn learn(&mut self, view: &View, subgroup: SubgroupId, message: &Message<'_>) {
        self.machine.learn(view, subgroup, message);
    }
}

/// The other members hand over their memory meanwhile. The joiner must not suspect them for
/// silence, and they must not suspect the joiner.
#[test]
fn a_joiner_that_is_slow_at_the_last_moment_is_let_in() {
    const SUSPECT_AFTER: Duration = Duration::from_secs(1);
    let scratch = Scratch::new("slow");
    let config = |members| Config { suspect_after: Some(SUSPECT_AFTER), ..group(&scratch, members) };
    let founders = [config(2), config(2)].map(|config| std::thread::spawn(move || config.join().unwrap()));
    let mut members: Vec<_> = founders
        .into_iter()
        .map(|founder| {
            let (mut node, machine) = (founder.join().unwrap(), Machine::default());
            let publisher = node.publisher("all").unwrap();
            (node.start(machine.clone()).unwrap(), publisher, machine)
        })
        .collect();
    members[0].1.send(b"before", LONG).unwrap();
    let mut slow = Slow { machine: Machine::default(), pause: 2 * SUSPECT_AFTER };
    let mut node = config(1).learn(&mut slow, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    let (publisher, machine) = (node.publisher("all").unwrap(), slow.machine.clone());
    members.push((node.start(slow).unwrap(), publisher, machine));
    for (_, publisher, _) in &mut members {
        publisher.send(b"after", LONG).unwrap();
    }
    let patience = Instant::now() + LONG;
    while members.iter().any(|(_, _, machine)| machine.state().0 < 4) {
        assert!(
            Instant::now() < patience,
            "{:?}",
            members.iter().map(|(group, ..)| group.status()).collect::<Vec<_>>()
        );
        std::thread::yield_now();
    }
    for (group, ..) in &members {
        assert_eq!((group.view().id.0, group.view().members.len()), (2, 3), "nobody was left out");
    }
}
