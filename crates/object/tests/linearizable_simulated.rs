//! Simulated histories of concurrent clients are linearizable, and the checker finds planted stale reads.
//!
//! The machines are real. The order is simulated: it takes one message after the other from the queues of
//! the members, and each member applies it when chance wants. Members are evicted, which the clients of the
//! member do not notice at once, and start again from a snapshot and the messages behind it.
mod common;
#[path = "common/linearizability.rs"]
mod linearizability;

use common::{Chance, Store, StoreCalls};
use linearizability::{Action, History, Operation, Violation, check_keys};
use spindle::MemberId;
use spindle_object::{Answer, Applied, Call, CallId, Machine, Message, SessionId, Settings};
use std::collections::VecDeque;

const MEMBERS: usize = 3;
const KEYS: u64 = 2;
/// The number of operations after which no more begin.
const OPERATIONS: usize = 40;

/// How a client reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    /// After a tick in the order, unless the member has been evicted by then.
    Latest,
    /// Planted: at once, from the state of the member.
    AtOnce,
    /// Planted: a member answers a read whose tick is lost with its eviction.
    DespiteEviction,
    /// Planted: a member that starts again forgets the messages since its snapshot.
    AfterLossyRestart,
}

/// A running operation of a member's client.
struct Running {
    key: String,
    action: Action,
    called: u64,
    id: CallId,
}

struct Member {
    machine: Machine<Store>,
    applied: usize,
    snapshot: (Vec<u8>, usize),
    unsent: VecDeque<Vec<u8>>,
    is_evicted: bool,
    running: Option<Running>,
    calls: u64,
}

impl Member {
    fn session(member: usize) -> SessionId {
        SessionId { member: member as u64, nonce: 1 }
    }
}

struct World {
    chance: Chance,
    reads: Reads,
    order: Vec<(usize, Vec<u8>)>,
    members: Vec<Member>,
    history: History,
    time: u64,
    begun: usize,
}

fn message<R>(id: CallId, call: &Call<Store, R>, arguments: &[u8]) -> Vec<u8> {
    let spec = call.command();
    Message::Call { id, time_us: 1, command: spec.id, since: spec.since, arguments }.encode()
}

impl World {
    fn new(seed: u64, reads: Reads) -> World {
        let member = |number| {
            let machine = Machine::new(Store::default(), Settings::default());
            let open = Message::Open { session: Member::session(number), time_us: 1 }.encode();
            let (snapshot, unsent) = ((machine.snapshot(), 0), VecDeque::from([open]));
            Member { machine, applied: 0, snapshot, unsent, is_evicted: false, running: None, calls: 0 }
        };
        let members = (0..MEMBERS).map(member).collect();
        World { chance: Chance(seed), reads, order: vec![], members, history: History::new(), time: 0, begun: 0 }
    }

    fn run(mut self) -> History {
        for _ in 0..2000 {
            self.time += 1;
            let member = self.chance.next(MEMBERS as u64) as usize;
            match self.chance.next(100) {
                0..30 => self.begin(member),
                30..60 => self.send(member),
                60..97 => self.apply(member),
                97 => self.evict(member),
                _ => self.start_again(member),
            }
        }
        for member in 0..MEMBERS {
            if let Some(running) = self.members[member].running.take() {
                self.note(running, None);
            }
        }
        self.history
    }

    fn note(&mut self, running: Running, reply: Option<Option<u64>>) {
        let Running { key, action, called, .. } = running;
        let ended = reply.map(|reply| (self.time, reply));
        self.history.entry(key).or_default().push(Operation { action, called, ended });
    }

    /// A client begins an operation.
    fn begin(&mut self, number: usize) {
        let value = (self.begun as u64 + 1) * 1000;
        let (kind, key) = (self.chance.next(4), format!("key {}", self.chance.next(KEYS)));
        let member = &mut self.members[number];
        if member.running.is_some() || self.begun >= OPERATIONS {
            return;
        }
        self.begun += 1;
        member.calls += 1;
        let id = CallId { session: Member::session(number), number: member.calls };
        let (action, bytes) = match kind {
            0 => {
                let arguments = postcard::to_stdvec(&(&key, value)).unwrap();
                (Action::Put(value), message(id, &StoreCalls::put(&key, value), &arguments))
            }
            1 => {
                let arguments = postcard::to_stdvec(&(&key, value)).unwrap();
                (Action::Add(value), message(id, &StoreCalls::add(key.clone(), value), &arguments))
            }
            _ => (Action::Read, Message::Tick { nonce: id.number }.encode()),
        };
        let running = Running { key, action, called: self.time, id };
        if action == Action::Read && self.reads == Reads::AtOnce {
            let value = member.machine.object().entries.get(&running.key).copied();
            self.time += 1;
            return self.note(running, Some(value));
        }
        member.running = Some(running);
        member.unsent.push_back(bytes);
    }

    /// A message gets its place in the order.
    fn send(&mut self, number: usize) {
        let member = &mut self.members[number];
        if member.is_evicted {
            let running = member.running.take_if(|running| running.action == Action::Read);
            let Some(running) = running else { return };
            let value = member.machine.object().entries.get(&running.key).copied();
            return self.note(running, (self.reads == Reads::DespiteEviction).then_some(value));
        }
        self.order.extend(member.unsent.pop_front().map(|bytes| (number, bytes)));
    }

    /// A member applies the next message.
    fn apply(&mut self, number: usize) {
        let member = &mut self.members[number];
        let Some((sender, bytes)) = self.order.get(member.applied).filter(|_| !member.is_evicted) else { return };
        let is_mine = *sender == number;
        let applied = member.machine.apply(MemberId(*sender as u64), bytes).unwrap();
        member.applied += 1;
        let Some(running) = member.running.as_ref().filter(|_| is_mine) else { return };
        let reply: Option<u64> = match (applied, running.action) {
            (Applied::Called { id, answer: Answer::Done(reply), .. }, Action::Put(_)) if id == running.id => {
                postcard::from_bytes(&reply).unwrap()
            }
            (Applied::Called { id, answer: Answer::Done(reply), .. }, Action::Add(_)) if id == running.id => {
                Some(postcard::from_bytes(&reply).unwrap())
            }
            (Applied::Ticked { nonce }, Action::Read) if nonce == running.id.number => {
                member.machine.object().entries.get(&running.key).copied()
            }
            _ => return,
        };
        let running = member.running.take().unwrap();
        self.note(running, Some(reply));
    }

    /// The others continue without a member. One always stays.
    fn evict(&mut self, number: usize) {
        if self.members.iter().filter(|member| !member.is_evicted).count() > 1 {
            self.members[number].is_evicted = true;
        }
    }

    /// A member writes a snapshot, or starts again from the last one and the messages since. Its client
    /// does not know the outcome of its operation.
    fn start_again(&mut self, number: usize) {
        let member = &mut self.members[number];
        if self.chance.next(2) == 0 {
            member.snapshot = (member.machine.snapshot(), member.applied);
            return;
        }
        member.machine = Machine::restore(&member.snapshot.0, Settings::default()).unwrap();
        let behind = &self.order[member.snapshot.1..member.applied];
        if self.reads != Reads::AfterLossyRestart {
            for (sender, bytes) in behind {
                member.machine.apply(MemberId(*sender as u64), bytes).unwrap();
            }
        }
        if let Some(running) = member.running.take() {
            self.note(running, None);
        }
    }
}

#[test]
fn simulated_histories_are_linearizable() {
    let mut known = 0;
    for seed in 0..400 {
        let history = World::new(seed, Reads::Latest).run();
        known += history.values().flatten().filter(|operation| operation.ended.is_some()).count();
        let checked = check_keys(&history);
        assert!(checked.is_ok(), "seed {seed}: {checked:?}");
    }
    assert!(known > 400 * OPERATIONS / 3, "{known} operations have ended");
}

#[test]
fn planted_stale_reads_are_found_in_simulated_histories() {
    for reads in [Reads::AtOnce, Reads::DespiteEviction, Reads::AfterLossyRestart] {
        let is_found = |seed: &u64| {
            let checked = check_keys(&World::new(*seed, reads).run());
            matches!(checked, Err((_, Violation::NotLinearizable { .. })))
        };
        let found = (0..400).filter(is_found).count();
        assert!(found > 20, "{reads:?} was found in {found} histories");
    }
}
