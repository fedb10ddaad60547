//! The directory at the members of a group that changes: a model of the group draws joins, leaves, crashes and
//! lost sends, and the replicas have to keep one directory.
use spindle_dds_core::Guid;
use spindle_dds_core::directory::*;
use spindle_dds_core::policy::UserDataQosPolicy;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A source of numbers that depend on a seed only.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

const MEMBERS_MAX: usize = 5;

fn guid(process: u64, entity: u64) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&process.to_be_bytes());
    bytes[8..].copy_from_slice(&entity.to_be_bytes());
    Guid(bytes)
}

/// A participant that no other command adds. So a directory shows each command that it lacks.
fn announce(process: u64, entity: u64) -> DirectoryCommand {
    DirectoryCommand::Announce(ParticipantEntry {
        guid: guid(process, entity),
        member: process,
        incarnation: 1,
        name: String::new(),
        user_data: UserDataQosPolicy::default(),
    })
}

/// An entry of the order of the directory's subgroup, of all its epochs.
#[derive(Clone, Debug)]
enum Entry {
    Begin { epoch: u64, members: Vec<u64> },
    Message { sender: u64, bytes: Vec<u8> },
}

struct Process {
    replica: DirectoryReplica,
    /// The next entry to deliver.
    at: usize,
    /// Messages that it has sent, and the group has not ordered yet.
    pending: VecDeque<Vec<u8>>,
    entities: u64,
    expelled: BTreeSet<Guid>,
}

#[derive(Default)]
struct Counts {
    /// Directories that began empty after another one was lost, or first.
    starts: usize,
    states: usize,
    /// States and lacks that an epoch after theirs has delivered.
    late: usize,
    /// Commands that a state does not have, and that a process has got before it.
    early: usize,
    commands: usize,
}

/// The group. A view needs one member of the view before.
struct World {
    seed: u64,
    entries: Vec<Entry>,
    members: Vec<u64>,
    processes: BTreeMap<u64, Process>,
    next: u64,
    epoch: u64,
    /// The entries with which epochs began whose members have all lacked the directory, and begun an empty one.
    starts: BTreeSet<usize>,
    /// The members that had the directory at the begin of an epoch.
    holders: BTreeMap<u64, BTreeSet<u64>>,
    /// The directory after so many entries, by the definition: all commands since the last start.
    expected: BTreeMap<usize, Vec<u8>>,
    /// The first member with the directory after so many entries, as some process has it.
    leaders: BTreeMap<usize, u64>,
    counts: Counts,
}

impl World {
    fn new(seed: u64, first: usize) -> World {
        let mut world = World {
            seed,
            entries: Vec::new(),
            members: Vec::new(),
            processes: BTreeMap::new(),
            next: 1,
            epoch: 0,
            starts: BTreeSet::new(),
            holders: BTreeMap::new(),
            expected: BTreeMap::new(),
            leaders: BTreeMap::new(),
            counts: Counts::default(),
        };
        world.begin(first, &mut Dice(seed));
        world
    }

    /// Begins an epoch with the members that are left, and others that come, at any rank.
    fn begin(&mut self, joining: usize, dice: &mut Dice) {
        for _ in 0..joining {
            let process = Process {
                replica: DirectoryReplica::new(self.next),
                at: self.entries.len(),
                pending: VecDeque::new(),
                entities: 0,
                expelled: BTreeSet::new(),
            };
            self.processes.insert(self.next, process);
            self.members.insert(dice.below(self.members.len() + 1), self.next);
            self.next += 1;
        }
        // Views have gaps: not all of them begin an epoch.
        self.epoch += 1 + self.next % 2;
        self.entries.push(Entry::Begin { epoch: self.epoch, members: self.members.clone() });
    }

    /// Changes the members. The epoch keeps all that a process has delivered, and maybe more; the others send the
    /// rest again.
    fn change_view(&mut self, dice: &mut Dice) {
        let leaving = dice.below(self.members.len()).min(dice.below(3));
        let joining = dice.below(3).min(MEMBERS_MAX - (self.members.len() - leaving));
        if leaving + joining == 0 {
            return;
        }
        let begun = self.entries.iter().rposition(|entry| matches!(entry, Entry::Begin { .. })).unwrap();
        let delivered = self.processes.values().map(|process| process.at).max().unwrap().max(begun + 1);
        let cut = delivered + dice.below(self.entries.len() - delivered + 1);
        for entry in self.entries.split_off(cut).into_iter().rev() {
            let Entry::Message { sender, bytes } = entry else { unreachable!("the epoch is the last one") };
            self.processes.get_mut(&sender).expect("a member has sent it").pending.push_front(bytes);
        }
        for _ in 0..leaving {
            let member = self.members.remove(dice.below(self.members.len()));
            self.processes.remove(&member);
        }
        self.begin(joining, dice);
    }

    /// Lets the group order the next message of a member.
    fn order(&mut self, member: u64) -> bool {
        let Some(bytes) = self.processes.get_mut(&member).unwrap().pending.pop_front() else { return false };
        self.entries.push(Entry::Message { sender: member, bytes });
        true
    }

    /// Lets a member send what is due.
    fn send_due(&mut self, member: u64) -> bool {
        let process = self.processes.get_mut(&member).unwrap();
        let Some(message) = process.replica.due() else { return false };
        process.pending.push_back(message.encode());
        process.replica.sent();
        assert!(process.replica.due().is_none());
        true
    }

    /// Lets the first member with the directory expel the participants of those that are gone.
    fn expel(&mut self, member: u64) -> bool {
        let process = self.processes.get_mut(&member).unwrap();
        let Some(directory) = process.replica.directory().filter(|_| process.replica.leads()) else { return false };
        // It knows the members of the epoch that it is in.
        let begun = self.entries[..process.at].iter().rev();
        let members = begun.into_iter().find_map(|entry| match entry {
            Entry::Begin { members, .. } => Some(members),
            Entry::Message { .. } => None,
        });
        let present: Vec<(u64, u64)> = members.unwrap().iter().map(|id| (*id, 1)).collect();
        let absent = directory.absent(&present);
        let new: Vec<Guid> = absent.into_iter().filter(|guid| process.expelled.insert(*guid)).collect();
        if new.is_empty() {
            return false;
        }
        process.pending.push_back(DirectoryMessage::Command(DirectoryCommand::Expel(new)).encode());
        true
    }

    /// Lets a member send a command. A driver waits for the directory before; the replicas agree without it, too.
    fn command(&mut self, member: u64, dice: &mut Dice) {
        let process = self.processes.get_mut(&member).unwrap();
        if process.replica.directory().is_none() && dice.below(4) > 0 {
            return;
        }
        let command = match dice.below(4) {
            0 if process.entities > 1 => DirectoryCommand::Withdraw(guid(member, 1 + dice.below(2) as u64)),
            _ => {
                process.entities += 1;
                announce(member, process.entities)
            }
        };
        process.pending.push_back(DirectoryMessage::Command(command).encode());
    }

    /// Lets a member deliver the next entry, and checks its directory.
    fn deliver(&mut self, member: u64) -> bool {
        let process = self.processes.get_mut(&member).unwrap();
        let Some(entry) = self.entries.get(process.at) else { return false };
        process.at += 1;
        let had = process.replica.directory().is_some();
        let mut start = false;
        match entry {
            Entry::Begin { epoch, members } => {
                process.replica.begin_epoch(*epoch, members);
                let holders = self.holders.entry(*epoch).or_default();
                holders.extend(had.then_some(member));
            }
            Entry::Message { sender, bytes } => {
                let message = DirectoryMessage::decode(bytes).unwrap();
                let mut outcomes = Vec::new();
                process.replica.deliver(*sender, message.clone(), |directory, sender, command, applied| {
                    outcomes.push((directory.version(), sender, command.clone(), applied));
                });
                match message {
                    DirectoryMessage::Command(command) => {
                        self.counts.commands += 1;
                        assert_eq!(outcomes.len(), usize::from(had), "seed {}", self.seed);
                        assert!(outcomes.iter().all(|it| (it.1, &it.2) == (*sender, &command)), "seed {}", self.seed);
                    }
                    DirectoryMessage::Lacking { epoch } | DirectoryMessage::State { epoch, .. } => {
                        assert!(!had || outcomes.is_empty(), "seed {}", self.seed);
                        let begun = self.begun(self.processes[&member].at);
                        self.counts.late += usize::from(begun.1 != epoch);
                        self.counts.early += outcomes.len();
                        let has = self.processes[&member].replica.directory().is_some();
                        if has && !had {
                            start = matches!(DirectoryMessage::decode(bytes), Ok(DirectoryMessage::Lacking { .. }));
                            self.counts.states += usize::from(!start);
                        }
                    }
                }
            }
        }
        let at = self.processes[&member].at;
        if start {
            let begun = self.begun(at).0;
            self.counts.starts += usize::from(self.starts.insert(begun));
        }
        self.check(member, at);
        true
    }

    /// Returns the entry and the number of the epoch of the last one of the first entries.
    fn begun(&self, at: usize) -> (usize, u64) {
        let epoch = |(index, entry): (usize, &Entry)| match entry {
            Entry::Begin { epoch, .. } => Some((index, *epoch)),
            Entry::Message { .. } => None,
        };
        self.entries[..at].iter().enumerate().rev().find_map(epoch).unwrap()
    }

    /// Compares the directory of a member with all commands since the start of that directory.
    fn check(&mut self, member: u64, at: usize) {
        let seed = self.seed;
        let replica = &self.processes[&member].replica;
        if let Some(directory) = replica.directory() {
            let bytes = postcard::to_stdvec(directory).unwrap();
            if !self.expected.contains_key(&at) {
                let start = *self.starts.range(..at).next_back().expect("a directory begins empty");
                let mut directory = Directory::default();
                for entry in &self.entries[start..at] {
                    if let Entry::Message { sender, bytes } = entry
                        && let Ok(DirectoryMessage::Command(command)) = DirectoryMessage::decode(bytes)
                    {
                        let _ = directory.apply(*sender, &command);
                    }
                }
                self.expected.insert(at, postcard::to_stdvec(&directory).unwrap());
            }
            assert_eq!(self.expected[&at], bytes, "seed {seed}: member {member} after {at} entries: {directory:?}");
        }
        if replica.leads() {
            assert_eq!(*self.leaders.entry(at).or_insert(member), member, "seed {seed}: two lead after {at} entries");
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let member = self.members[dice.below(self.members.len())];
        match dice.below(20) {
            0 => self.change_view(dice),
            1..4 => self.command(member, dice),
            4..6 => drop(self.send_due(member)),
            6 => drop(self.expel(member)),
            7..12 => drop(self.order(member)),
            _ => drop(self.deliver(member)),
        }
    }

    /// Lets the members send, order and deliver all that there is.
    fn settle(&mut self) {
        let mut any = true;
        while any {
            any = false;
            for member in self.members.clone() {
                any |= self.send_due(member) | self.expel(member) | self.order(member) | self.deliver(member);
            }
        }
    }

    /// Checks the group when nothing is on the way.
    fn check_settled(&self) {
        let seed = self.seed;
        let leaders: Vec<u64> = self.members.iter().copied().filter(|id| self.processes[id].replica.leads()).collect();
        assert_eq!(leaders.len(), 1, "seed {seed}: {leaders:?} lead");
        for member in &self.members {
            let directory = self.processes[member].replica.directory();
            let directory =
                directory.unwrap_or_else(|| panic!("seed {seed}: member {member} never gets the directory"));
            let present: Vec<(u64, u64)> = self.members.iter().map(|id| (*id, 1)).collect();
            assert_eq!(directory.absent(&present), vec![], "seed {seed}: participants of processes that are gone");
        }
        for start in &self.starts {
            let (_, epoch) = self.begun(start + 1);
            assert_eq!(self.holders.get(&epoch), Some(&BTreeSet::new()), "seed {seed}: epoch {epoch} began anew");
        }
    }
}

#[test]
fn members_have_one_directory_through_changes_of_the_group() {
    let mut all = Counts::default();
    for seed in 0..4000 {
        let mut dice = Dice(seed);
        let mut world = World::new(seed, 1 + seed as usize % MEMBERS_MAX);
        for _ in 0..4 {
            (0..60).for_each(|_| world.step(&mut dice));
            // A pause, or none: the next change finds the group in the middle of the state transfer.
            if dice.below(3) == 0 {
                world.settle();
                world.check_settled();
            }
        }
        world.settle();
        world.check_settled();
        all.starts += world.counts.starts;
        all.states += world.counts.states;
        all.late += world.counts.late;
        all.early += world.counts.early;
        all.commands += world.counts.commands;
    }
    let Counts { starts, states, late, early, commands } = all;
    assert!(starts > 4200 && states > 4000 && late > 2000 && early > 1000, "{starts} {states} {late} {early}");
    assert!(commands > 50_000, "{commands}");
}

/// Delivers a message to several replicas.
fn deliver_all(replicas: &mut [&mut DirectoryReplica], sender: u64, message: &DirectoryMessage) {
    replicas.iter_mut().for_each(|replica| replica.deliver(sender, message.clone(), |_, _, _, _| {}));
}

#[test]
fn a_process_that_comes_applies_the_commands_after_the_state() {
    let (mut one, mut two) = (DirectoryReplica::new(1), DirectoryReplica::new(2));
    one.begin_epoch(1, &[1]);
    one.deliver(1, one.due().unwrap(), |_, _, _, _| {});
    assert!(one.leads() && one.due().is_none());
    one.begin_epoch(2, &[1, 2]);
    two.begin_epoch(2, &[1, 2]);
    let command = |entity| DirectoryMessage::Command(announce(1, entity));
    let lacking = two.due().unwrap();
    two.sent();
    deliver_all(&mut [&mut one, &mut two], 1, &command(1));
    let state = one.due().unwrap();
    one.sent();
    assert!(matches!(&state, DirectoryMessage::State { epoch: 2, after: 1, .. }), "{state:?}");
    deliver_all(&mut [&mut one, &mut two], 2, &lacking);
    deliver_all(&mut [&mut one, &mut two], 1, &command(2));
    assert!(two.directory().is_none());
    let mut heard = Vec::new();
    one.deliver(1, state.clone(), |_, _, _, _| panic!("it has the directory"));
    two.deliver(1, state, |directory, sender, _, _| heard.push((sender, directory.version())));
    // The first command is in the state, and the second one follows it.
    assert_eq!(heard, [(1, 2)]);
    assert_eq!(two.directory(), one.directory());
    assert!(one.leads() && !two.leads() && one.due().is_none() && two.due().is_none());
}

#[test]
fn a_cut_or_long_message_is_refused() {
    let directory = Box::new(Directory::default());
    for message in [
        DirectoryMessage::Command(announce(1, 1)),
        DirectoryMessage::Lacking { epoch: 300 },
        DirectoryMessage::State { epoch: 300, after: 1, directory },
    ] {
        let mut bytes = message.encode();
        assert_eq!(DirectoryMessage::decode(&bytes).unwrap().encode(), bytes);
        for length in 0..bytes.len() {
            let error = DirectoryMessage::decode(&bytes[..length]).unwrap_err();
            assert_eq!(error.bytes, length);
        }
        bytes.push(0);
        let error = DirectoryMessage::decode(&bytes).unwrap_err().to_string();
        assert!(error.contains("1 bytes follow it; the sender runs another version"), "{error}");
    }
}
