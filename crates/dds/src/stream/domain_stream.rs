//! The part of a process in an order domain.
use super::message::{ChangeMessage, StreamMessage};
use super::writers::{StreamWriters, end_of, info_of, source_of};
use crate::cache::{CacheChange, DeadlineVerdict, ReaderEvent, SetEnd, WriterEnd, WriterInfo};
use crate::directory::{Applied, Directory, DirectoryEvent};
use crate::id::{Guid, Position};
use std::collections::{BTreeSet, VecDeque};

/// A change of the directory that concerns the domain. It takes effect at a fence.
#[derive(Clone, Debug)]
enum Effect {
    /// A writer came, or has other policies.
    Writer {
        number: u32,
        info: WriterInfo,
        source: Guid,
    },
    WriterGone {
        guid: Guid,
        end: WriterEnd,
    },
    Matched {
        writer: Guid,
        reader: Guid,
    },
    Unmatched {
        writer: Guid,
        reader: Guid,
    },
}

/// The outcome of a message for the readers of this process.
#[derive(Clone, Debug)]
pub struct Delivery<P> {
    /// The reader.
    pub reader: Guid,
    /// The event, at the position of the message.
    pub event: ReaderEvent<P>,
}

/// The fence can't be delivered yet: the directory of this process is behind. The message has to be offered
/// again, once the directory has the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The version that the fence names.
    pub version: u64,
}

/// The stream of an order domain at one process: which readers get which events.
///
/// A driver feeds it with all commands of the directory ([`DomainStream::note`]) and all messages of the
/// subgroup ([`DomainStream::deliver`]), each in their order.
#[derive(Clone, Debug)]
pub struct DomainStream {
    domain: u32,
    /// The process.
    member: u64,
    /// The version of the directory that was noted.
    known: u64,
    /// The version of the directory with which the stream began here. Samples before a fence of this version
    /// are for others.
    since: u64,
    /// The version of the last fence.
    fenced: u64,
    /// The newest version that changed the domain, at any process.
    due: u64,
    /// The newest version for which this process was asked to send a fence.
    asked: u64,
    /// The effects that wait for a fence, with the versions of the directory that had them.
    waiting: VecDeque<(u64, Vec<Effect>)>,
    writers: StreamWriters,
    /// The writers of the domain, and the readers of this process, as the directory has them.
    noted_writers: BTreeSet<Guid>,
    noted_readers: BTreeSet<Guid>,
    /// Samples of writers that were not in the domain: a sender broke the rules.
    strays: u64,
}

impl DomainStream {
    /// Makes the stream of a domain from a directory: at the command by which the process got its first
    /// endpoint of the domain, or by which the domain came. The endpoints that exist take effect at the first
    /// fence.
    pub fn new(domain: u32, member: u64, directory: &Directory) -> DomainStream {
        let mut stream = DomainStream {
            domain,
            member,
            known: directory.version(),
            since: directory.version(),
            fenced: 0,
            due: 0,
            asked: 0,
            waiting: VecDeque::new(),
            writers: StreamWriters::default(),
            noted_writers: BTreeSet::new(),
            noted_readers: BTreeSet::new(),
            strays: 0,
        };
        let mut effects = Vec::new();
        for entry in directory.writers() {
            stream.note_writer(directory, entry.description.guid, &mut effects);
        }
        for entry in directory.readers() {
            stream.note_reader(directory, entry.description.guid);
        }
        for (writer, reader, _) in directory.pairs().filter(|(.., state)| state.is_ok()) {
            stream.note_pair(writer, reader, true, &mut effects);
        }
        stream.wait(effects);
        stream
    }

    /// Returns the order domain.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Returns the version of the last fence: the matches are those of the directory at this version.
    pub fn fenced(&self) -> u64 {
        self.fenced
    }

    /// Returns whether a writer may send: a fence of a version that has it was delivered here.
    pub fn is_active(&self, writer: Guid) -> bool {
        self.writers.has(writer)
    }

    /// Returns the number of samples of writers that were not in the domain. It stays 0 while all senders keep
    /// the rules.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Returns the version for which this process has to send a fence; `None` if none is due, or if another
    /// process has to. `senders` are those of the subgroup's current view. The process is asked once for each
    /// version and view: after a change of the view, call [`DomainStream::ask_again`] first.
    pub fn fence_due(&mut self, senders: &[u64]) -> Option<u64> {
        let is_mine = senders.iter().min() == Some(&self.member);
        if !is_mine || self.due <= self.asked.max(self.fenced) {
            return None;
        }
        self.asked = self.due;
        Some(self.due)
    }

    /// Forgets which fences this process was asked for. The view has changed, so they may be lost with it.
    pub fn ask_again(&mut self) {
        self.asked = self.fenced;
    }

    /// Takes over the outcome of a command that the directory has applied. It takes effect at a fence.
    pub fn note(&mut self, directory: &Directory, applied: &Applied) {
        self.known = directory.version();
        let mut effects = Vec::new();
        for event in &applied.events {
            match event {
                DirectoryEvent::Writer(guid) => self.note_writer(directory, *guid, &mut effects),
                DirectoryEvent::WriterGone { entry, deleted } => {
                    let guid = entry.description.guid;
                    if self.noted_writers.remove(&guid) {
                        self.due = self.known;
                        effects.push(Effect::WriterGone { guid, end: end_of(entry, *deleted) });
                    }
                }
                DirectoryEvent::Reader(guid) => self.note_reader(directory, *guid),
                // No other reader sees the end of a reader, so it needs no fence.
                DirectoryEvent::ReaderGone(entry) if self.noted_readers.remove(&entry.description.guid) => {
                    self.writers.remove_reader(entry.description.guid);
                }
                DirectoryEvent::Matched { writer, reader, .. } => {
                    self.note_pair(*writer, *reader, true, &mut effects);
                }
                DirectoryEvent::Unmatched { writer, reader } => {
                    self.note_pair(*writer, *reader, false, &mut effects);
                }
                _ => {}
            }
        }
        self.wait(effects);
    }

    /// Delivers the next message. `payload` makes a payload of its bytes, and `take` gets the events of the
    /// readers of this process, in order.
    ///
    /// # Errors
    /// [`Behind`] if the message is a fence of a version that was not [noted](DomainStream::note). Nothing has
    /// changed.
    pub fn deliver<P: Clone>(
        &mut self,
        position: Position,
        message: &StreamMessage<'_>,
        payload: impl FnOnce(&[u8]) -> P,
        mut take: impl FnMut(Delivery<P>),
    ) -> Result<(), Behind> {
        match message {
            StreamMessage::Change(change) => self.change(change, payload, take),
            StreamMessage::Fence(version) if *version > self.known => return Err(Behind { version: *version }),
            StreamMessage::Fence(version) => self.fence(*version, take),
            StreamMessage::SetEnd { writer, number, changes } => {
                let Some((set, readers)) = self.writers.set(*writer, *number) else { return Ok(()) };
                let guid = |number: u32| Some(self.writers.get(number)?.info.guid);
                let changes = changes.iter().filter_map(|(writer, count)| Some((guid(*writer)?, *count))).collect();
                let end = SetEnd { set, changes };
                readers
                    .into_iter()
                    .for_each(|reader| take(Delivery { reader, event: ReaderEvent::SetEnd(end.clone()) }));
            }
            StreamMessage::SetAbandoned { writer, number } => {
                let Some((set, readers)) = self.writers.set(*writer, *number) else { return Ok(()) };
                readers.into_iter().for_each(|reader| take(Delivery { reader, event: ReaderEvent::SetAbandoned(set) }));
            }
            StreamMessage::Verdict { writer, instance, last: (view, seq, index) } => {
                let Some(own) = self.writers.get(*writer) else { return Ok(()) };
                let last = Position { domain: position.domain, view: *view, seq: *seq, index: *index };
                let verdict = DeadlineVerdict { instance: *instance, writer: own.info.guid, last };
                let event = |reader| Delivery { reader, event: ReaderEvent::DeadlineVerdict(verdict) };
                own.readers.iter().for_each(|reader| take(event(*reader)));
            }
        }
        Ok(())
    }

    fn change<P: Clone>(
        &mut self,
        change: &ChangeMessage<'_>,
        payload: impl FnOnce(&[u8]) -> P,
        mut take: impl FnMut(Delivery<P>),
    ) {
        let Some(own) = self.writers.get(change.writer) else {
            self.strays += u64::from(self.fenced >= self.since);
            return;
        };
        let Some((last, others)) = own.readers.split_last() else { return };
        let change = CacheChange {
            writer: own.info.guid,
            kind: change.kind,
            instance: change.instance,
            source_timestamp: change.source_timestamp,
            set: change.set.map(|number| StreamWriters::set_of(own, number)),
            payload: payload(change.payload),
        };
        for reader in others {
            take(Delivery { reader: *reader, event: ReaderEvent::Change(change.clone()) });
        }
        take(Delivery { reader: *last, event: ReaderEvent::Change(change) });
    }

    /// Lets the effects up to a version happen.
    fn fence<P: Clone>(&mut self, version: u64, mut take: impl FnMut(Delivery<P>)) {
        while let Some((_, effects)) = self.waiting.pop_front_if(|(of, _)| *of <= version) {
            effects.into_iter().for_each(|effect| self.happen(effect, &mut take));
        }
        self.fenced = self.fenced.max(version);
        self.asked = self.asked.max(version);
    }

    fn happen<P: Clone>(&mut self, effect: Effect, take: &mut impl FnMut(Delivery<P>)) {
        match effect {
            Effect::Writer { number, info, source } => {
                let (own, before) = self.writers.put(number, info, source);
                let event = match before == (WriterInfo { alive: before.alive, ..info }) {
                    true if before.alive == info.alive => return,
                    true => ReaderEvent::WriterAlive(info.guid, info.alive),
                    false => ReaderEvent::WriterMatched(info),
                };
                own.readers.iter().for_each(|reader| take(Delivery { reader: *reader, event: event.clone() }));
            }
            Effect::WriterGone { guid, end } => {
                for reader in self.writers.remove(guid).into_iter().flat_map(|own| own.readers) {
                    take(Delivery { reader, event: ReaderEvent::WriterUnmatched(guid, end) });
                }
            }
            Effect::Matched { writer, reader } => {
                let Some(own) = self.writers.by_guid(writer) else { return };
                // Other terms of a match concern no event of the reader.
                if let (Err(at), true) = (own.readers.binary_search(&reader), self.noted_readers.contains(&reader)) {
                    own.readers.insert(at, reader);
                    take(Delivery { reader, event: ReaderEvent::WriterMatched(own.info) });
                }
            }
            Effect::Unmatched { writer, reader } => {
                let Some(own) = self.writers.by_guid(writer) else { return };
                if let Ok(at) = own.readers.binary_search(&reader) {
                    own.readers.remove(at);
                    take(Delivery { reader, event: ReaderEvent::WriterUnmatched(writer, WriterEnd::Unmatched) });
                }
            }
        }
    }

    /// Notes a writer that came or changed, if it is of this domain.
    fn note_writer(&mut self, directory: &Directory, guid: Guid, effects: &mut Vec<Effect>) {
        let (Some(entry), Some(number)) = (directory.writer(guid), directory.writer_number(guid)) else { return };
        if directory.domain_of(&entry.description.topic.name) == Some(self.domain) {
            self.noted_writers.insert(guid);
            self.due = self.known;
            effects.push(Effect::Writer { number, info: info_of(entry), source: source_of(entry) });
        }
    }

    /// Notes a reader, if it is one of this process. A reader of another domain matches no writer of this one.
    fn note_reader(&mut self, directory: &Directory, guid: Guid) {
        let Some(entry) = directory.reader(guid) else { return };
        let owner = directory.participant(entry.participant).map(|participant| participant.member);
        if owner == Some(self.member) {
            self.noted_readers.insert(guid);
        }
    }

    /// Notes a pair that matches from now on, or no more. Those of other processes need the fence, too.
    fn note_pair(&mut self, writer: Guid, reader: Guid, matches: bool, effects: &mut Vec<Effect>) {
        if !self.noted_writers.contains(&writer) {
            return;
        }
        self.due = self.known;
        if self.noted_readers.contains(&reader) {
            effects.push(match matches {
                true => Effect::Matched { writer, reader },
                false => Effect::Unmatched { writer, reader },
            });
        }
    }

    fn wait(&mut self, effects: Vec<Effect>) {
        if !effects.is_empty() {
            self.waiting.push_back((self.known, effects));
        }
    }
}
