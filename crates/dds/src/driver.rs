//! The part of a participant on the polling thread of its group.
//!
//! ```text
//! deliver:      directory messages --> DirectoryReplica --> ProcessStreams.note
//!               samples and fences --> ProcessStreams --> readers, writers
//! view_changed: epochs --> DirectoryReplica, ProcessStreams
//! after_poll:   requests, state, fences --> messages; plans --> changes of the view; timers
//! ```
//!
//! The decisions are those of the state machines of `spindle-dds-core`.
use crate::outcome::{count_event, settle};
use crate::payload::Payload;
use crate::planner::{self, DIRECTORY, domain_of, name_of};
use crate::reader_core::ReaderCore;
use crate::shared::{Request, Shared, State};
use crate::sync::now;
use crate::writer_core::WriterCore;
use spindle::{
    Batch, Change, Ended, Handler, MemberId, Node, Publisher, SendError, SharedPublisher, SubgroupId, View, ViewChange,
};
use spindle_dds_core::cache::ReaderEvent;
use spindle_dds_core::directory::{Applied, Directory, DirectoryCommand, DirectoryMessage};
use spindle_dds_core::stream::{PlacedEvent, ProcessStreams, StreamEvent, StreamMessage};
use spindle_dds_core::{DdsError, DdsTime, Guid, Position};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// The changes in one command, beyond which another command begins.
const COMMAND_CHANGES_MAX: usize = 64;
/// How soon a message that found no room is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// How often writers that close are looked at, if nothing happens.
const LOOK: Duration = Duration::from_millis(10);
/// The refusals of a change after which it is reported.
const REFUSALS: u32 = 3;
/// The number of a process among those of its id: ids are never used again.
pub(crate) const INCARNATION: u64 = 1;

/// The contents of a subgroup of the newest view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Directory,
    Domain(u32),
    Other,
}

/// The outcome of sending a message of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Sent,
    TooLong,
    Full,
}

/// The handler of a participant.
pub(crate) struct Driver {
    me: MemberId,
    shared: Arc<Shared>,
    /// The bytes of messages that this process may have on the way in each order domain.
    ring_bytes: u64,
    view: Arc<View>,
    contents: Vec<Contents>,
    /// The order domains whose subgroups have this process, with the views with which their epochs began.
    epochs: BTreeMap<u32, u64>,
    streams: ProcessStreams,
    directory: Publisher,
    /// By order domain. A publisher is given out once, and stays valid when the process leaves and enters again.
    publishers: BTreeMap<u32, SharedPublisher>,
    entities_version: u64,
    readers: HashMap<Guid, Arc<ReaderCore>>,
    writers: HashMap<Guid, Arc<WriterCore>>,
    /// The writers of this process by the numbers that their samples have, with their order domains.
    numbers: HashMap<u32, (u32, Arc<WriterCore>)>,
    /// The order domains in which this process sends in the view.
    sending: BTreeSet<u32>,
    /// The events of readers that are delivered at the end of an upcall, so that each cache is locked once.
    inbox: HashMap<Guid, Vec<(Position, ReaderEvent<Payload>)>>,
    /// When readers have something to do.
    wakes: BTreeMap<Guid, DdsTime>,
    /// Whether there may be something to send, to propose or to activate.
    is_dirty: bool,
    /// Whether the subgroups may have to change.
    is_replanning: bool,
    /// Whether writers wait for the delivery of their last samples.
    is_closing: bool,
    /// The changes that this process has proposed in the view, and how often the group has refused those of a
    /// subgroup.
    proposed: Vec<Change>,
    unmade: BTreeMap<String, u32>,
    /// The participants that this process has expelled, and that are still there.
    expelled: BTreeSet<Guid>,
}

impl Driver {
    pub(crate) fn new(shared: &Arc<Shared>, node: &mut Node, ring_bytes: u64) -> Result<Driver, DdsError> {
        let directory = node.publisher(DIRECTORY);
        let directory = directory.map_err(|error| DdsError::Error(format!("the group is no DDS domain: {error}")))?;
        let (me, view) = (node.id(), Arc::clone(node.view()));
        let mut driver = Driver {
            me,
            shared: Arc::clone(shared),
            ring_bytes,
            view: Arc::clone(&view),
            contents: Vec::new(),
            epochs: BTreeMap::new(),
            streams: ProcessStreams::new(me.0),
            directory,
            publishers: BTreeMap::new(),
            entities_version: 0,
            readers: HashMap::new(),
            writers: HashMap::new(),
            numbers: HashMap::new(),
            sending: BTreeSet::new(),
            inbox: HashMap::new(),
            wakes: BTreeMap::new(),
            is_dirty: true,
            is_replanning: true,
            is_closing: false,
            proposed: Vec::new(),
            unmade: BTreeMap::new(),
            expelled: BTreeSet::new(),
        };
        driver.begin(None, &view);
        Ok(driver)
    }

    /// Begins the epochs of a view.
    fn begin(&mut self, old: Option<&View>, view: &Arc<View>) {
        let epoch_of = |view: &View, name: &str| {
            let spec = &view.subgroups[view.subgroup(name)?.index()];
            Some(spec.epoch.unwrap_or(view.id).0)
        };
        let directory = epoch_of(view, DIRECTORY);
        if let Some(epoch) = directory.filter(|epoch| old.and_then(|old| epoch_of(old, DIRECTORY)) != Some(*epoch)) {
            let members: Vec<u64> = view.members.iter().map(|id| id.0).collect();
            self.shared.lock().replica.begin_epoch(epoch, &members);
        }
        let (mut now, mut sending) = (BTreeMap::new(), BTreeSet::new());
        for spec in &view.subgroups {
            let Some(domain) = domain_of(&spec.name) else { continue };
            let ids =
                |ranks: &[spindle::Rank]| ranks.iter().map(|rank| view.members[rank.index()].0).collect::<Vec<_>>();
            let members = ids(&spec.members);
            if !members.contains(&self.me.0) {
                continue;
            }
            let epoch = spec.epoch.unwrap_or(view.id).0;
            now.insert(domain, epoch);
            let senders = ids(&spec.senders);
            sending.extend(senders.contains(&self.me.0).then_some(domain));
            if self.epochs.get(&domain) != Some(&epoch) {
                self.streams.begin_epoch(domain, epoch, &members, &senders);
            }
        }
        self.sending = sending;
        let left: Vec<u32> = self.epochs.keys().copied().filter(|domain| !now.contains_key(domain)).collect();
        for domain in left {
            self.streams.end(domain);
        }
        self.epochs = now;
        self.contents = view
            .subgroups
            .iter()
            .map(|spec| match domain_of(&spec.name) {
                Some(domain) => Contents::Domain(domain),
                None if spec.name == DIRECTORY => Contents::Directory,
                None => Contents::Other,
            })
            .collect();
        self.view = Arc::clone(view);
        self.proposed.clear();
        (self.is_dirty, self.is_replanning) = (true, true);
        self.advance();
    }

    /// Delivers a message of the directory's subgroup.
    fn direct(&mut self, sender: MemberId, bytes: &[u8]) {
        let message = match DirectoryMessage::decode(bytes) {
            Ok(message) => message,
            Err(error) => return warn!(target: "spindle::dds", sender = sender.0, "{error}"),
        };
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let mut outcomes: Vec<(u64, DirectoryCommand, Applied)> = Vec::new();
        let had = state.replica.directory().is_some();
        let streams = &mut self.streams;
        state.replica.deliver(sender.0, message, |directory, sender, command, applied| {
            streams.note(directory, &applied);
            outcomes.push((sender, command.clone(), applied));
        });
        if let Some(directory) = state.replica.directory().filter(|_| !had) {
            streams.note(directory, &Applied::default());
            debug!(target: "spindle::dds", me = self.me.0, version = directory.version(), "the directory is here");
        }
        let mut tasks = Vec::new();
        for (sender, command, applied) in outcomes {
            tasks.extend(applied.events.iter().filter_map(|event| count_event(&state, event)));
            if sender == self.me.0 {
                tasks.extend(settle(&mut state, &command, &applied));
            }
        }
        drop(state);
        // They may wake tasks of the application, which may come back for the lock.
        tasks.into_iter().for_each(|task| task());
        (self.is_dirty, self.is_replanning) = (true, true);
        shared.notify();
        self.advance();
    }

    /// Takes the steps of the streams that have waited for the directory.
    fn advance(&mut self) {
        let Driver { streams, writers, inbox, .. } = self;
        let faults = streams.advance(|bytes| Payload::from(bytes), |placed| hand_out(placed, writers, inbox));
        self.flush();
        if faults > 0 {
            warn!(target: "spindle::dds", faults, "messages of an order domain were none, and were passed over");
        }
    }

    /// Delivers the events of the readers.
    fn flush(&mut self) {
        let Driver { readers, inbox, wakes, .. } = self;
        let time = now();
        for (guid, events) in inbox.iter_mut().filter(|(_, events)| !events.is_empty()) {
            let Some(reader) = readers.get(guid) else {
                events.clear();
                continue;
            };
            match reader.deliver(events, time) {
                Some(at) => drop(wakes.insert(*guid, at)),
                None => drop(wakes.remove(guid)),
            }
        }
    }

    /// Counts what writers have sent in order domains in which this process is no sender any more: the group does not
    /// send it again. A plan names the process until its writers are deleted, so this is the effect of an old plan.
    fn give_up_lost(&self) {
        for (domain, writer) in self.numbers.values() {
            let lost = if self.sending.contains(domain) { 0 } else { writer.give_up() };
            if lost > 0 {
                warn!(target: "spindle::dds", writer = %writer.guid, lost, "samples were lost in a change of the view");
            }
        }
    }

    /// Sends what is due, and proposes what follows from the plans. Returns when to look again.
    fn work(&mut self, node: &mut Node) -> Option<Duration> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.is_dirty = false;
        if state.entities_version != self.entities_version {
            self.entities_version = state.entities_version;
            self.readers = state.readers.iter().map(|(guid, own)| (*guid, Arc::clone(own))).collect();
            let writers = state.writers.values().chain(&state.closing);
            self.writers = writers.map(|own| (own.guid, Arc::clone(own))).collect();
            self.wakes.retain(|guid, _| self.readers.contains_key(guid));
            self.inbox.retain(|guid, _| self.readers.contains_key(guid));
        }
        let mut has_room = true;
        if let Some(message) = state.replica.due() {
            has_room = self.tell(&message.encode()) != Told::Full;
            if has_room {
                state.replica.sent();
            }
        }
        if has_room && state.replica.directory().is_some() {
            has_room = self.send_requests(&mut state) && self.expel(&state);
        }
        self.take_publishers(node);
        has_room &= self.send_fences();
        if let Some(directory) = state.replica.directory() {
            self.activate_writers(directory);
            if std::mem::take(&mut self.is_replanning) && state.replica.leads() {
                let changes = planner::changes(&self.view, directory, self.ring_bytes);
                self.unmade.retain(|name, _| changes.iter().any(|change| name_of_change(change) == name));
                for change in changes {
                    self.propose(node, change);
                }
            }
            let (directory, epochs) = (state.replica.directory(), &self.epochs);
            let exists = |domain: &u32| directory.is_some_and(|own| own.plan(*domain).is_some());
            self.publishers.retain(|domain, _| epochs.contains_key(domain) || exists(domain));
        }
        self.give_up_lost();
        self.delete_writers(&mut state);
        has_room &= state.outbox.is_empty() || state.replica.directory().is_none();
        self.is_dirty |= !has_room || self.is_closing;
        if has_room { self.is_closing.then_some(LOOK) } else { Some(RETRY) }
    }

    /// Asks the group for a change of its subgroups. A change that fits no view is reported once.
    fn propose(&mut self, node: &mut Node, change: Change) {
        if self.proposed.contains(&change) {
            return;
        }
        debug!(target: "spindle::dds", me = self.me.0, ?change, "the subgroups change");
        let why = match node.propose_change(change.clone()) {
            Ok(true) => return self.proposed.push(change),
            Ok(false) if !self.view.wants(&change) => return,
            Ok(false) => "it has too many members for a proposal, or the view has too many subgroups".to_owned(),
            Err(error) => error.to_string(),
        };
        let name = name_of_change(&change);
        // The same change may be on its way, so the first refusals say nothing.
        let count = self.unmade.entry(name.to_owned()).or_default();
        *count += 1;
        if *count == REFUSALS {
            warn!(target: "spindle::dds", subgroup = name, "an order domain has no subgroup, or an old one: {why}");
        }
    }

    /// Sends a message in the directory's subgroup, if there is room now.
    fn tell(&mut self, bytes: &[u8]) -> Told {
        match self.directory.send(bytes, Duration::ZERO) {
            Ok(()) => Told::Sent,
            Err(SendError::TooLong { len, max }) => {
                warn!(target: "spindle::dds", len, max, "a command is too long for the group, and was dropped");
                Told::TooLong
            }
            Err(_) => Told::Full,
        }
    }

    /// Sends the requests of the application. Changes of several entities are one command.
    fn send_requests(&mut self, state: &mut State) -> bool {
        while let Some(first) = state.outbox.front() {
            let (command, guids, count) = match first {
                Request::Announce(entry) => (DirectoryCommand::Announce(entry.clone()), None, 1),
                Request::Withdraw => (DirectoryCommand::Withdraw(self.shared.participant), None, 1),
                Request::Change(..) => {
                    let (mut changes, mut guids, mut count) = (Vec::new(), Vec::new(), 0);
                    for request in &state.outbox {
                        let Request::Change(guid, own) = request else { break };
                        if count > 0 && changes.len() + own.len() > COMMAND_CHANGES_MAX {
                            break;
                        }
                        guids.extend(own.iter().map(|_| *guid));
                        changes.extend(own.iter().cloned());
                        count += 1;
                    }
                    let participant = self.shared.participant;
                    (DirectoryCommand::Change { participant, changes }, Some(guids), count)
                }
            };
            match self.tell(&DirectoryMessage::Command(command).encode()) {
                Told::Sent => state.in_flight.extend(guids),
                Told::TooLong => {}
                Told::Full => return false,
            }
            state.outbox.drain(..count);
        }
        true
    }

    /// Expels the participants whose processes are gone, if this process leads.
    fn expel(&mut self, state: &State) -> bool {
        let Some(directory) = state.replica.directory().filter(|_| state.replica.leads()) else { return true };
        let processes: Vec<(u64, u64)> = self.view.members.iter().map(|id| (id.0, INCARNATION)).collect();
        let absent = directory.absent(&processes);
        self.expelled.retain(|guid| absent.contains(guid));
        let new: Vec<Guid> = absent.into_iter().filter(|guid| !self.expelled.contains(guid)).collect();
        if new.is_empty() {
            return true;
        }
        let command = DirectoryMessage::Command(DirectoryCommand::Expel(new.clone()));
        let has_room = self.tell(&command.encode()) != Told::Full;
        if has_room {
            self.expelled.extend(new);
        }
        has_room
    }

    /// Takes the publishers of the subgroups in which this process sends.
    fn take_publishers(&mut self, node: &mut Node) {
        for domain in self.epochs.keys() {
            if !self.publishers.contains_key(domain)
                && let Ok(publisher) = node.publisher(&name_of(*domain))
            {
                self.publishers.insert(*domain, publisher.share());
            }
        }
    }

    fn send_fences(&mut self) -> bool {
        let due: Vec<(u32, u64)> = self.streams.fences_due().collect();
        let mut has_room = true;
        for (domain, version) in due {
            let Some(publisher) = self.publishers.get_mut(&domain) else { continue };
            match publisher.send(&StreamMessage::Fence(version).encode(), Duration::ZERO) {
                Ok(()) => self.streams.fence_sent(domain, version),
                Err(_) => has_room = false,
            }
        }
        has_room
    }

    /// Lets the writers send that may, and no others.
    fn activate_writers(&mut self, directory: &Directory) {
        for writer in self.writers.values() {
            let domain = self.streams.active_domain(writer.guid);
            let active = domain.and_then(|domain| {
                Some((self.publishers.get(&domain)?.clone(), directory.writer_number(writer.guid)?))
            });
            if active.is_some() == writer.is_active() {
                continue;
            }
            if let (Some((_, number)), Some(domain)) = (&active, domain) {
                self.numbers.insert(*number, (domain, Arc::clone(writer)));
            }
            writer.set_active(active);
        }
    }

    /// Deletes the writers whose last samples have been delivered.
    fn delete_writers(&mut self, state: &mut State) {
        let shared = &self.shared;
        let mut is_done = false;
        let State { closing, outbox, .. } = state;
        closing.retain(|writer| {
            if !writer.is_delivered() {
                return true;
            }
            outbox.push_back(Request::deletion(writer.guid));
            writer.set_active(None);
            writer.end(DdsError::AlreadyDeleted("writer"));
            is_done = true;
            false
        });
        self.is_closing = !state.closing.is_empty();
        if is_done {
            state.entities_version += 1;
            self.numbers.retain(|_, (_, writer)| {
                state.closing.iter().any(|own| own.guid == writer.guid) || state.writers.contains_key(&writer.guid)
            });
            // The command is sent after the next poll.
            shared.wake();
        }
    }

    /// Does what is due by time. Returns how long nothing more is.
    fn look_at_timers(&mut self) -> Option<Duration> {
        if self.wakes.is_empty() {
            return None;
        }
        let time = now();
        let due: Vec<Guid> = self.wakes.iter().filter(|(_, at)| **at <= time).map(|(guid, _)| *guid).collect();
        for guid in due {
            match self.readers.get(&guid).and_then(|reader| reader.poll(time)) {
                Some(at) => self.wakes.insert(guid, at),
                None => self.wakes.remove(&guid),
            };
        }
        let next = self.wakes.values().min()?;
        let left = next.as_nanos().saturating_sub(time.as_nanos()).max(0);
        Some(Duration::from_nanos(left.unsigned_abs()).max(Duration::from_micros(100)))
    }

    /// Works after a poll. Returns the longest sleep.
    pub(crate) fn after_poll(&mut self, node: &mut Node) -> Option<Duration> {
        let retry = if self.is_dirty || self.shared.take_request() { self.work(node) } else { None };
        let timer = self.look_at_timers();
        retry.into_iter().chain(timer).min()
    }
}

/// Returns the name of the subgroup that a change is about.
fn name_of_change(change: &Change) -> &str {
    match change {
        Change::Create(spec) | Change::Alter(spec) => &spec.name,
        Change::Drop(name) | Change::Enter { name, .. } | Change::Exit { name, .. } | Change::Clock { name, .. } => {
            name
        }
    }
}

/// Gives an event to its endpoint.
fn hand_out(
    PlacedEvent { position, event }: PlacedEvent<Payload>,
    writers: &HashMap<Guid, Arc<WriterCore>>,
    inbox: &mut HashMap<Guid, Vec<(Position, ReaderEvent<Payload>)>>,
) {
    match event {
        StreamEvent::Reader { reader, event } => inbox.entry(reader).or_default().push((position, event)),
        StreamEvent::Matched { writer, reader } => {
            writers.get(&writer).into_iter().for_each(|own| own.count_matched(reader, true));
        }
        StreamEvent::Unmatched { writer, reader } => {
            writers.get(&writer).into_iter().for_each(|own| own.count_matched(reader, false));
        }
    }
}

impl Drop for Driver {
    /// Tells all threads that wait, also if the polling thread panics.
    fn drop(&mut self) {
        self.shared.end(DdsError::Error("the domain has ended for this participant: its thread has ended".to_owned()));
    }
}

impl Handler for Driver {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        match self.contents.get(subgroup.index()).copied().unwrap_or(Contents::Other) {
            Contents::Directory => {
                for message in batch.by_ref() {
                    self.direct(message.sender_id, message.payload);
                }
            }
            Contents::Domain(domain) => {
                let Driver { streams, writers, numbers, inbox, me, is_dirty, is_closing, .. } = self;
                // A fence may need a newer directory. Its subgroup is independent, so it comes.
                while !streams.is_blocked(domain)
                    && let Some(message) = batch.next()
                {
                    let bytes = message.payload;
                    let delivered = streams.deliver(
                        domain,
                        bytes,
                        |bytes| Payload::from(bytes),
                        |placed| hand_out(placed, writers, inbox),
                    );
                    if let Err(error) = delivered {
                        warn!(target: "spindle::dds", sender = message.sender_id.0, domain, "{error}");
                    }
                    match StreamMessage::writer_of(bytes) {
                        Some(number) if message.sender_id == *me => {
                            numbers.get(&number).into_iter().for_each(|(_, own)| own.note_delivered());
                            *is_dirty |= *is_closing;
                        }
                        Some(_) => {}
                        // A fence lets writers send.
                        None => *is_dirty = true,
                    }
                }
                self.flush();
            }
            Contents::Other => batch.for_each(|_| {}),
        }
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.begin(Some(&change.old), &change.new);
    }

    fn ended(&mut self, reason: Option<&Ended>) {
        let why = reason.map_or_else(|| "it was left".to_owned(), ToString::to_string);
        self.shared.end(DdsError::Error(format!("the domain has ended for this participant: {why}")));
    }
}
