//! One member of a chaos run. It joins, sends numbered messages in several subgroups, and records
//! every event until the driver tells it to leave or to finish, or kills it. `cargo xtask chaos`
//! starts many of these members and judges their records.
//!
//! Usage: `chaos_member DIR GROUP MEMBERS INSTANCE SUSPECT_AFTER_MS PARENT receivers|states BUG|-
//! [RUNTIME_DIR [LISTEN tcp|ofi ID|- DATA_DIR|- SEED...]]`. Groups that span hosts take the
//! arguments from LISTEN on. A data directory that does not exist is initialised. `chaos_member
//! ofi` prints the reason if libfabric can't be used.
//!
//! With the variable `SPINDLE_CHAOS_LOGS` a subgroup is logged. Its value is the number of the first
//! process that had this process's directory, `DIR/NUMBER.data`. If that belongs to a group that has
//! ended, the process makes a directory with its own number.
//!
//! Commands arrive by lines on the standard input: `leave` while it sends, `retire` after it has
//! sent all, `finish`, `status`. Exit status 0: it finished, or left; 3: it was evicted; 1: an
//! unexpected error.
#![allow(missing_docs)]
#[allow(dead_code, reason = "reading is for the driver, which includes this file too")]
mod record;
mod sending;

use record::{End, Kind, NO_SUBGROUP, Record, digest, mix};
use sending::{Sender, Sending, Stream};
use spindle::{
    Batch, Config, Durability, Ended, FinishError, Group, Handler, JoinError, MemberId, Message, Network, Node,
    OfiOptions, Order, Rank, ReceiveError, Receiver, Security, SendError, Snapshot, State, Subgroup, SubgroupId,
    Transport, View, ViewChange, initialise_data_dir,
};
use spindle_fabric_ofi::OfiPort;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Cursor, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The subgroups by number: name, order, largest message. The polling thread delivers the even
/// ones, a thread each the odd ones.
const SUBGROUPS: [(&str, Order, u64); 4] = [
    ("orders", Order::Total, 256),
    ("facts", Order::Total, 2000),
    ("gossip", Order::Fifo, 256),
    ("feed", Order::Fifo, 1000),
];
/// The subgroup that is logged, if one is.
const LOGGED: &str = "facts";
const HEADER_BYTES: u64 = 24;
/// Bytes of the longest message.
const LARGE_BYTES_MAX: u64 = 2_000_000;
/// Numbers that a sender asks for at a time.
const RESERVE: u64 = 64;
/// Longer than any view change should take. The sender then tries the claim again, since only the
/// driver decides how long is too long.
const CLAIM_WAIT: Duration = Duration::from_secs(2);
/// Longer than any outage, because only the driver decides how long is too long.
const GATHER_WAIT: Duration = Duration::from_secs(120);
/// Shorter than the driver's timeout, so that a member that is stuck reports it.
const FINISH_WAIT: Duration = Duration::from_secs(20);
const EVICTED: u8 = 3;

/// The file that receives all records.
#[derive(Clone)]
struct Log(Arc<File>);

impl Log {
    fn write(&self, records: &[Record]) {
        let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
        // One call, so that the records of a batch stay together, and survive this process as far
        // as they were written.
        (&*self.0).write_all(&bytes).expect("the log can be written");
    }

    fn view(&self, view: &View) {
        let mut records = vec![Record::new(Kind::View, NO_SUBGROUP, [view.id.0, view.members.len() as u64, now()])];
        let member = |(rank, id): (u32, &MemberId)| {
            Record::new(Kind::Member, NO_SUBGROUP, [view.id.0, u64::from(!view.is_voter(Rank(rank))), id.0])
        };
        records.extend((0..).zip(&view.members).map(member));
        self.write(&records);
    }
}

/// Nanoseconds on a clock that all processes share.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A generator of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// The application's states, one for each totally ordered subgroup: a number that depends on every
/// message and on their order, and the count of messages.
type States = [(u64, u64); 2];

/// Bytes of a snapshot beside the states, so that it takes its time.
const BALLAST: u64 = 300_000;

/// The handler of everything that the polling thread delivers.
struct Deliver {
    log: Log,
    records: Vec<Record>,
    dice: Dice,
    /// Whether this process is a member. Earlier views are only those of the messages that it
    /// learns.
    joined: bool,
    /// The states of a round in which all subgroups are delivered here and joiners learn the
    /// states.
    states: Option<Arc<Mutex<States>>>,
    views: Views,
}

/// The views that have begun here, for the threads that receive: the numbers of views jump with a
/// recovery.
#[derive(Clone, Default)]
struct Views(Arc<Mutex<Vec<u64>>>);

impl Views {
    /// The longest time by which a receiver learns of a view before the handler does, in ms.
    const LATE_MAX: u32 = 1000;

    fn push(&self, view: u64) {
        self.0.lock().expect("no thread panics with it").push(view);
    }

    /// Returns the views behind `was`, up to `is`.
    fn between(&self, was: u64, is: u64) -> Vec<u64> {
        for _ in 0..Views::LATE_MAX {
            let views = self.0.lock().expect("no thread panics with it");
            if was == is || views.contains(&is) {
                return views.iter().copied().filter(|view| was < *view && *view <= is).collect();
            }
            drop(views);
            thread::sleep(Duration::from_millis(1));
        }
        vec![is]
    }
}

impl Deliver {
    fn apply(&self, subgroup: u8, message: &Message<'_>) {
        let Some(states) = &self.states else { return };
        if let Some(state) = lock(states).get_mut(usize::from(subgroup)) {
            let sum = message
                .payload
                .iter()
                .fold(message.round, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
            *state = (mix(state.0 ^ sum), state.1 + 1);
        }
    }

    fn note_states(&self, view: u64) {
        if let Some(states) = &self.states {
            note_states(&self.log, &lock(states), view);
        }
    }
}

fn note_states(log: &Log, states: &States, view: u64) {
    let state = |(subgroup, (sum, count)): (u8, &(u64, u64))| Record::new(Kind::State, subgroup, [view, *sum, *count]);
    let records: Vec<Record> = (0..).zip(states).map(state).collect();
    log.write(&records);
}

fn lock(states: &Mutex<States>) -> MutexGuard<'_, States> {
    states.lock().expect("no thread panics with it")
}

impl Handler for Deliver {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let subgroup = subgroup.0 as u8;
        self.records.push(Record::new(Kind::Batch, subgroup, [now(), 0, 0]));
        // Sometimes the handler leaves a part for the next time.
        let most = if self.dice.one_in(8) { 1 + self.dice.below(5) as usize } else { usize::MAX };
        for message in batch.take(most) {
            self.apply(subgroup, &message);
            self.records.push(delivered(subgroup, &message));
        }
        self.log.write(&self.records);
        self.records.clear();
    }

    fn view_changed(&mut self, change: &ViewChange) {
        if !self.joined {
            return;
        }
        self.views.push(change.new.id.0);
        self.log.view(&change.new);
        stretches(&self.log, &change.new, |subgroup| subgroup % 2 == 0 || self.states.is_some());
        self.note_states(change.new.id.0);
    }

    fn blocked(&mut self, is_blocked: bool) {
        eprintln!("{} at {} ms", if is_blocked { "blocked" } else { "unblocked" }, now() / 1_000_000);
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let states = lock(self.states.as_ref()?);
        let words = states.iter().flat_map(|(sum, count)| [sum.to_le_bytes(), count.to_le_bytes()]);
        let words: Vec<u8> = words.flatten().collect();
        let bytes = Cursor::new(words).chain(std::io::repeat(7).take(BALLAST));
        Some(Snapshot { len: None, bytes: Box::new(bytes) })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        let mut bytes = vec![];
        state.read_to_end(&mut bytes)?;
        let word = |i: usize| bytes.get(8 * i..8 * i + 8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
        let [Some(a), Some(b), Some(c), Some(d)] = [0, 1, 2, 3].map(word) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        if bytes.len() as u64 != 32 + BALLAST || bytes[32..].iter().any(|byte| *byte != 7) {
            return Err(std::io::Error::other(format!("a state of {} bytes that was not sent", bytes.len())));
        }
        if let Some(states) = &self.states {
            *lock(states) = [(a, b), (c, d)];
        }
        Ok(())
    }

    fn learn(&mut self, _: &View, subgroup: SubgroupId, message: &Message<'_>) {
        self.apply(subgroup.0 as u8, message);
    }
}

/// Returns the record of having joined: the id, and the group's incarnation.
fn joined(node: &Node) -> Record {
    let incarnation = node.incarnation();
    Record::new(Kind::Joined, NO_SUBGROUP, [node.id().0, incarnation as u64, (incarnation >> 64) as u64])
}

fn stretches(log: &Log, view: &View, wanted: impl Fn(u8) -> bool) {
    let stretch = |subgroup| Record::new(Kind::Stretch, subgroup, [view.id.0, 0, now()]);
    let records: Vec<Record> = (0..SUBGROUPS.len() as u8).filter(|subgroup| wanted(*subgroup)).map(stretch).collect();
    log.write(&records);
}

/// Returns the record of a message: its number if it equals, byte for byte, a message of this run.
fn delivered(subgroup: u8, message: &Message<'_>) -> Record {
    let payload = message.payload;
    let word =
        |at: usize| payload.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    let [Some(head), Some(number), Some(sum)] = [word(0), word(8), word(16)] else {
        return Record::new(Kind::Garbage, subgroup, [message.round, 0, 0]).extra(message.sender.0 as u8);
    };
    let (instance, thread) = ((head >> 16) as u32, head as u8);
    let right = (head >> 8) as u8 == subgroup
        && sum == digest(instance, subgroup, thread, number)
        && payload[HEADER_BYTES as usize..].iter().all(|byte| *byte == sum as u8);
    let words = [message.round, u64::from(instance) << 32 | sum & 0xffff_ffff, if right { number } else { head }];
    let kind = if right { Kind::Deliver } else { Kind::Garbage };
    Record::new(kind, subgroup, words).thread(thread).extra(message.sender.0 as u8)
}

/// Receives in `subgroup` until the group ends.
fn receive(mut receiver: Receiver, subgroup: u8, log: &Log, views: &Views, mut dice: Dice) -> Result<(), ReceiveError> {
    let (mut view, mut finished) = (receiver.view().id.0, false);
    while !finished {
        let mut records = vec![];
        let most = if dice.one_in(8) { 1 + dice.below(5) as usize } else { usize::MAX };
        match receiver.receive(Duration::from_secs(1)) {
            Ok(mut deliveries) => {
                records.push(Record::new(Kind::Batch, subgroup, [now(), 0, 0]));
                records.extend(deliveries.iter().take(most).map(|message| delivered(subgroup, &message)));
            }
            Err(ReceiveError::TimedOut { .. }) => {}
            Err(ReceiveError::Finished) => finished = true,
            Err(error) => return Err(error),
        }
        // The view is that of the received messages. Views that were passed over contained none.
        let is = receiver.view().id.0;
        let stretch = |id| Record::new(Kind::Stretch, subgroup, [id, 0, now()]);
        records.splice(0..0, views.between(view, is).into_iter().map(stretch));
        view = is;
        if !records.is_empty() {
            log.write(&records);
        }
        if dice.one_in(200) {
            thread::sleep(Duration::from_micros(dice.below(30_000)));
        }
    }
    Ok(())
}

/// The command line's arguments.
struct Orders {
    dir: PathBuf,
    /// The directory in which the members of one host meet.
    runtime_dir: PathBuf,
    network: Option<Network>,
    id: Option<MemberId>,
    data_dir: Option<PathBuf>,
    group: String,
    members: u32,
    instance: u32,
    suspect_after: Duration,
    /// Whether joiners take over the states of the other members.
    states: bool,
    /// The process whose logs this one continues, which may be itself, if a subgroup is logged.
    logs: Option<u32>,
}

/// Returns the options for libfabric over any network.
fn ofi() -> OfiOptions {
    OfiOptions { provider: Some("tcp".to_string()), ..OfiOptions::default() }
}

fn main() -> ExitCode {
    // This process dies with the driver. The driver may have died before this call.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["ofi"] {
        let usable = OfiPort::open(&OfiOptions { address: Some([127, 0, 0, 1].into()), ..ofi() }, 1);
        usable.as_ref().err().inspect(|error| println!("{error}"));
        return ExitCode::from(u8::from(usable.is_err()));
    }
    let number = |i: usize| words[i].parse::<u64>().expect("a number");
    if rustix::process::getppid().is_none_or(|parent| u64::from(parent.as_raw_pid() as u32) != number(5)) {
        return ExitCode::FAILURE;
    }
    if let Some(bug) = words.get(7).filter(|bug| *bug != "-") {
        plant(bug);
    }
    let network = words.get(9).map(|listen| {
        let seeds = words[13..].iter().map(|seed| seed.parse().expect("an address")).collect();
        // The only network is the one between the namespaces.
        let transport = match words[10].as_str() {
            "ofi" => Transport::Ofi(ofi()),
            _ => Transport::Tcp,
        };
        Network { security: Security::Insecure, transport, ..Network::new(listen.parse().expect("an address"), seeds) }
    });
    let orders = Orders {
        runtime_dir: PathBuf::from(words.get(8).unwrap_or(&words[0])),
        network,
        id: words.get(11).filter(|id| *id != "-").map(|id| MemberId(id.parse().expect("an id"))),
        data_dir: words.get(12).filter(|dir| *dir != "-").map(PathBuf::from),
        dir: PathBuf::from(&words[0]),
        group: words[1].clone(),
        members: number(2) as u32,
        instance: number(3) as u32,
        suspect_after: Duration::from_millis(number(4)),
        states: words[6] == "states",
        logs: std::env::var("SPINDLE_CHAOS_LOGS").ok().map(|owner| owner.parse().expect("a number")),
    };
    trace(&orders);
    let path = orders.dir.join(format!("{}.log", orders.instance));
    let file = OpenOptions::new().create(true).append(true).open(path).expect("the log can be made");
    let log = Log(Arc::new(file));
    log.write(&[Record::new(Kind::Start, NO_SUBGROUP, [orders.instance.into(), now(), 0])]);
    let end = match run(&orders, &log) {
        Ok(end) => end,
        Err(text) => {
            eprintln!("{text}");
            log.write(&Record::texts(&text));
            End::Failed
        }
    };
    log.write(&[Record::new(Kind::End, NO_SUBGROUP, [end as u64, now(), 0])]);
    match end {
        End::Finished | End::Left => ExitCode::SUCCESS,
        End::Evicted => ExitCode::from(EVICTED),
        End::Failed => ExitCode::FAILURE,
    }
}

/// Writes the member's traces to a file if the environment asks for them.
fn trace(orders: &Orders) {
    let Some(dir) = std::env::var_os("SPINDLE_CHAOS_TRACES") else { return };
    let path = PathBuf::from(dir).join(format!("{}-{}.trace", orders.group, orders.instance));
    let file = File::create(path).expect("the file for traces can be made");
    let filter = tracing_subscriber::EnvFilter::new("spindle=debug");
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Arc::new(file)).init();
}

#[cfg(mutation)]
fn plant(bug: &str) {
    use spindle_core::mutation::{Mutation, activate};
    let found = Mutation::ALL.iter().find(|known| format!("{known:?}") == bug);
    activate(Some(*found.expect("a bug that can be planted")));
}

#[cfg(not(mutation))]
fn plant(_: &str) {
    panic!("this build has no mutations: build it with --cfg mutation");
}

fn run(orders: &Orders, log: &Log) -> Result<End, String> {
    let mut config = Config::new(&orders.group, orders.members);
    config.runtime_dir = Some(orders.runtime_dir.clone());
    config.network = orders.network.clone();
    config.id = orders.id;
    config.data_dir = orders.data_dir.clone();
    config.gather_timeout = GATHER_WAIT;
    if let Some(owner) = orders.logs {
        config.data_dir = Some(logs_of(orders, owner)?);
        // Members come and go all the time.
        config.log.segment_bytes = 1 << 20;
    }
    if let Some(dir) = orders.data_dir.as_ref().filter(|dir| !dir.exists()) {
        initialise_data_dir(dir, &orders.group).map_err(|error| error.to_string())?;
    }
    config.suspect_after = Some(orders.suspect_after);
    config.subgroups = SUBGROUPS
        .map(|(name, order, message_bytes_max)| Subgroup {
            durability: if orders.logs.is_some() && name == LOGGED {
                Durability::Logged { copies: 1 }
            } else {
                Durability::InMemory
            },
            order,
            // A learner reads the messages that the rings contain, and may be slow.
            window: if orders.states { 1024 } else { 64 },
            message_bytes_max,
            ..Subgroup::new(name)
        })
        .into();
    let dice = |salt: u64| Dice(mix(u64::from(orders.instance) << 8 | salt));
    let states = orders.states.then(Arc::default);
    let mut handler = Deliver {
        log: log.clone(),
        records: vec![],
        dice: dice(20),
        joined: false,
        states: states.clone(),
        views: Views::default(),
    };
    let views = handler.views.clone();
    let mut join = |config: &Config| match orders.states {
        true => learn(config, &mut handler),
        false => config.clone().join().map_err(|error| ("joining", error)),
    };
    let joined_with_logs = match join(&config) {
        // The group of the logs has ended.
        Err((_, JoinError::OtherIncarnation { .. })) if orders.logs != Some(orders.instance) => {
            config.data_dir = Some(logs_of(orders, orders.instance)?);
            join(&config)
        }
        joined => joined,
    };
    let mut node = joined_with_logs.map_err(|(doing, error)| format!("{doing}: {error}"))?;
    log.write(&[joined(&node)]);
    log.view(node.view());
    stretches(log, node.view(), |_| true);
    handler.note_states(node.view().id.0);
    handler.joined = true;
    let (stop, mut threads) = (Arc::new(AtomicBool::new(false)), vec![]);
    let mut publisher = |name: &str| node.publisher(name).map_err(|error| error.to_string());
    let alone = vec![(0, 0, Sender::Own(publisher("orders")?)), (2, 0, Sender::Own(publisher("gossip")?))];
    let (facts, feed) = (publisher("facts")?.share(), publisher("feed")?.share());
    let both = |thread: u8| vec![(1, thread, Sender::Shared(facts.clone())), (3, thread, Sender::Shared(feed.clone()))];
    let streams = [alone, both(1), both(2)];
    drop((facts, feed));
    let busy = Arc::new(AtomicUsize::new(streams.len()));
    // Runs between hosts do not test speed, and they have more members than cores.
    let pause_us = if orders.network.is_some() { 20_000 } else { 2_000 };
    for (streams, salt) in streams.into_iter().zip(1..) {
        let stream = |(subgroup, thread, sender)| Stream { subgroup, thread, sender, next: 0, reserved: 0, told: 0 };
        let streams = streams.into_iter().map(stream).collect();
        let (log, stop) = (log.clone(), Arc::clone(&stop));
        let logged = orders.logs.and_then(|_| SUBGROUPS.iter().position(|(name, ..)| *name == LOGGED));
        let logged = logged.map(|subgroup| subgroup as u8);
        let (instance, dice, receipts) = (orders.instance, dice(salt), vec![]);
        let sending = Sending { instance, pause_us, log, streams, dice, stop, logged, receipts };
        let busy = Arc::clone(&busy);
        threads.push(thread::spawn(move || {
            let result = sending.run();
            busy.fetch_sub(1, Ordering::AcqRel);
            unless_ended(result.map_err(Trouble::from))
        }));
    }
    let received: &[(&str, u8)] = if orders.states { &[] } else { &[("facts", 1), ("feed", 3)] };
    for (name, subgroup) in received.iter().copied() {
        let receiver = node.receiver(name).map_err(|error| error.to_string())?;
        let (log, views, dice) = (log.clone(), views.clone(), dice(10 + u64::from(subgroup)));
        threads.push(thread::spawn(move || {
            unless_ended(receive(receiver, subgroup, &log, &views, dice).map_err(Trouble::from))
        }));
    }
    let group = node.start(handler).map_err(|error| error.to_string())?;
    let end = obey(group, &orders.dir.join(format!("{}.status", orders.instance)), &stop, &busy);
    stop.store(true, Ordering::Release);
    let mut trouble = vec![];
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(text)) => trouble.push(text),
            Err(_) => trouble.push("a thread panicked".to_string()),
        }
    }
    let end = end?;
    if let (End::Finished, Some(states)) = (end, states) {
        note_states(log, &lock(&states), u64::MAX);
    }
    if trouble.is_empty() { Ok(end) } else { Err(trouble.join("; ")) }
}

/// Returns the directory of the logs whose first process has this number.
fn logs_of(orders: &Orders, owner: u32) -> Result<PathBuf, String> {
    let dir = orders.dir.join(format!("{owner}.data"));
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    Ok(dir)
}

/// Joins with the state of the other members, however often they die meanwhile.
fn learn(config: &Config, handler: &mut Deliver) -> Result<Node, (&'static str, JoinError)> {
    let begin = Instant::now();
    loop {
        match config.clone().learn(handler, &mut |_| {}, &AtomicBool::new(false)) {
            Ok(node) => return Ok(node),
            Err(JoinError::Source(_) | JoinError::Lapped(_) | JoinError::GroupGone)
                if begin.elapsed() < FINISH_WAIT =>
            {
                // The handler may hold a part of the state, or the state of a group that has ended.
                if let Some(states) = &handler.states {
                    *lock(states) = Default::default();
                }
            }
            Err(error) => return Err(("learning", error)),
        }
    }
}

/// An error that a thread of the application met.
enum Trouble {
    Ended(Ended),
    Other(String),
}

impl From<SendError> for Trouble {
    fn from(error: SendError) -> Trouble {
        match error {
            SendError::Ended(ended) => Trouble::Ended(ended),
            other => Trouble::Other(format!("sending: {other}")),
        }
    }
}

impl From<ReceiveError> for Trouble {
    fn from(error: ReceiveError) -> Trouble {
        match error {
            ReceiveError::Ended(ended) => Trouble::Ended(ended),
            other => Trouble::Other(format!("receiving: {other}")),
        }
    }
}

fn unless_ended(result: Result<(), Trouble>) -> Result<(), String> {
    match result {
        Ok(()) | Err(Trouble::Ended(Ended::Evicted { .. } | Ended::Left)) => Ok(()),
        // The polling thread reports the cause.
        Err(Trouble::Ended(Ended::Dropped)) => Ok(()),
        Err(Trouble::Ended(ended)) => Err(ended.to_string()),
        Err(Trouble::Other(text)) => Err(text),
    }
}

/// Runs the group until a command ends it, or it ends by itself.
fn obey(group: Group, status: &Path, stop: &AtomicBool, busy: &AtomicUsize) -> Result<End, String> {
    let commands = commands();
    let evicted = |error: FinishError| match error {
        FinishError::Ended(Ended::Evicted { .. }) => Ok(End::Evicted),
        other => Err(other.to_string()),
    };
    loop {
        match group.ended() {
            Some(Ended::Evicted { .. }) => return Ok(End::Evicted),
            Some(other) => return Err(other.to_string()),
            None => {}
        }
        let command = match commands.recv_timeout(Duration::from_millis(20)) {
            Ok(command) => command,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err("the driver is gone".into()),
        };
        match command.as_str() {
            "status" => {
                let text = format!("{:#}\n", group.status().to_json());
                std::fs::write(status, text).map_err(|error| error.to_string())?;
            }
            "retire" => {
                stop.store(true, Ordering::Release);
                while busy.load(Ordering::Acquire) > 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                return group.leave(FINISH_WAIT).map_or_else(evicted, |_| Ok(End::Left));
            }
            "leave" => return group.leave(FINISH_WAIT).map_or_else(evicted, |_| Ok(End::Left)),
            "finish" => {
                stop.store(true, Ordering::Release);
                return group.finish(FINISH_WAIT).map_or_else(evicted, |_| Ok(End::Finished));
            }
            other => return Err(format!("unknown command {other:?}")),
        }
    }
}

/// Returns the driver's commands, one a line.
fn commands() -> Inbox<String> {
    let (say, hear) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if say.send(line).is_err() {
                return;
            }
        }
    });
    hear
}
