//! The part of a process in an order domain.
use super::message::{ChangeMessage, StreamMessage};
use super::writers::{StreamWriters, end_of, info_of, source_of};
use crate::cache::{CacheChange, DeadlineVerdict, ReaderEvent, SetEnd, WriterEnd, WriterInfo};
use crate::directory::{Applied, Directory, DirectoryEvent};
use crate::id::{Guid, Position};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A change of the directory that concerns the domain. It takes effect at a fence.
#[derive(Clone, Debug)]
enum Effect {
    /// A writer came, or has another state.
    Writer {
        number: u32,
        info: WriterInfo,
        source: Guid,
    },
    WriterGone {
        guid: Guid,
        end: WriterEnd,
    },
    /// A pair matches, with the process of the one that is not here.
    Matched {
        pair: Pair,
        other: u64,
    },
    Unmatched(Pair),
    ReaderGone(Guid),
}

/// A writer and a reader.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Pair {
    writer: Guid,
    reader: Guid,
}

/// A pair that matches, as this process has it.
#[derive(Clone, Copy, Debug)]
struct PairState {
    /// The process of the other endpoint.
    other: u64,
    /// Whether the writer is one of this process, and has heard of the reader.
    is_told: bool,
}

/// An event at the position of a message, for an endpoint of this process.
#[derive(Clone, Debug)]
pub enum StreamEvent<P> {
    /// An event of a reader.
    Reader {
        /// The reader.
        reader: Guid,
        /// The event.
        event: ReaderEvent<P>,
    },
    /// A reader of any process gets the samples of a writer of this process from here on
    /// (PUBLICATION_MATCHED).
    Matched {
        /// The writer.
        writer: Guid,
        /// The reader.
        reader: Guid,
    },
    /// A reader gets no more samples of a writer of this process.
    Unmatched {
        /// The writer.
        writer: Guid,
        /// The reader.
        reader: Guid,
    },
}

/// The message can't be delivered yet: the directory of this process is behind. It has to be offered again, once
/// the directory has the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The version that is needed.
    pub version: u64,
}

/// The stream of an order domain at one process: which endpoints get which events.
///
/// A driver makes it with the command by which the [plan](crate::directory::DomainPlan) of the domain first
/// names the process. It feeds it with all later commands of the directory ([`DomainStream::note`]), and with
/// the epochs and messages of the subgroup, each in their order. A stream that has
/// [ended](DomainStream::end) may begin another epoch. [`ProcessStreams`](super::ProcessStreams) keeps these rules.
#[derive(Clone, Debug)]
pub struct DomainStream {
    domain: u32,
    /// The process.
    member: u64,
    /// The version of the directory that was noted.
    known: u64,
    /// The version of the directory with the last change of the domain, at any process.
    due: u64,
    /// The version of the domain with which the stream began here. Messages before a fence of it are for others.
    since: u64,
    /// The newest version that has taken effect.
    fenced: u64,
    /// Whether a fence has let the writers of the domain take effect since the process has entered.
    has_begun: bool,
    /// The newest version of a fence that this process has sent in this epoch.
    sent: Option<u64>,
    /// The members of the epoch.
    members: Vec<u64>,
    /// The effects that wait for a fence, with the versions of the directory that had them.
    waiting: VecDeque<(u64, Vec<Effect>)>,
    /// The pairs with an endpoint of this process that match.
    pairs: BTreeMap<Pair, PairState>,
    /// The pairs that wait for the other process to be a member, or for a fence of the newest version.
    apart: BTreeSet<Pair>,
    writers: StreamWriters,
    /// The writers and readers of the domain, as the directory has them. The flag tells those of this process.
    noted_writers: BTreeMap<Guid, bool>,
    noted_readers: BTreeSet<Guid>,
    strays: u64,
}

impl DomainStream {
    /// Makes the stream of a domain. The endpoints that the directory has take effect at the first fence.
    pub fn new(domain: u32, member: u64, directory: &Directory) -> DomainStream {
        let changed = directory.domain_version(domain).unwrap_or(directory.version());
        let mut stream = DomainStream {
            domain,
            member,
            known: directory.version(),
            due: changed,
            since: changed,
            fenced: 0,
            has_begun: false,
            sent: None,
            members: Vec::new(),
            waiting: VecDeque::new(),
            pairs: BTreeMap::new(),
            apart: BTreeSet::new(),
            writers: StreamWriters::default(),
            noted_writers: BTreeMap::new(),
            noted_readers: BTreeSet::new(),
            strays: 0,
        };
        let mut effects = Vec::new();
        directory.writers().for_each(|own| stream.note_writer(directory, own.description.guid, &mut effects));
        directory.readers().for_each(|own| stream.note_reader(directory, own.description.guid));
        for (writer, reader, _) in directory.matches() {
            stream.note_match(directory, Pair { writer, reader }, &mut effects);
        }
        stream.waiting.push_back((changed, effects));
        stream
    }

    /// Returns the order domain.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Returns the newest version that has taken effect: that of a fence, or of the [end](DomainStream::end).
    pub fn fenced(&self) -> u64 {
        self.fenced
    }

    /// Returns whether a writer may send: a fence that has it was delivered here.
    pub fn is_active(&self, writer: Guid) -> bool {
        self.writers.has(writer)
    }

    /// Returns the number of messages that named a writer after its end. It stays 0 while all senders keep the
    /// rules. A sender may be ahead of the fences of an epoch, so messages of writers that are to come count not.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Begins an epoch of the subgroup with these members. A writer of this process hears that the readers of
    /// those that have left get its samples no more. `take` gets these events.
    pub fn begin_epoch<P>(&mut self, members: &[u64], mut take: impl FnMut(StreamEvent<P>)) {
        self.members = members.to_vec();
        self.sent = None;
        let left = self.pairs.iter_mut().filter(|(_, state)| state.is_told && !members.contains(&state.other));
        for (pair, state) in left {
            state.is_told = false;
            self.apart.insert(*pair);
            take(StreamEvent::Unmatched { writer: pair.writer, reader: pair.reader });
        }
    }

    /// Returns the version for which this process has to send a fence; `None` if none is due, or if another
    /// process has to. `senders` are those of the epoch. Call [`DomainStream::fence_sent`] when it is sent.
    pub fn fence_due(&self, senders: &[u64]) -> Option<u64> {
        let is_mine = senders.iter().min() == Some(&self.member);
        let is_new = self.due > self.fenced.max(self.sent.unwrap_or(0));
        // Each epoch needs one, for the processes that have come.
        (is_mine && (is_new || self.sent.is_none())).then_some(self.due)
    }

    /// Notes that this process has sent a fence.
    pub fn fence_sent(&mut self, version: u64) {
        self.sent = self.sent.max(Some(version));
    }

    /// Takes over the outcome of a command that the directory has applied. It takes effect at a fence.
    pub fn note(&mut self, directory: &Directory, applied: &Applied) {
        self.known = directory.version();
        // No endpoint is left in a domain that has gone, so its last change concerns no other one.
        self.due = directory.domain_version(self.domain).unwrap_or(0).max(self.due);
        let mut effects = Vec::new();
        for event in &applied.events {
            match event {
                DirectoryEvent::Writer(guid) => self.note_writer(directory, *guid, &mut effects),
                DirectoryEvent::WriterGone { entry, deleted } => {
                    let guid = entry.description.guid;
                    if self.noted_writers.remove(&guid).is_some() {
                        effects.push(Effect::WriterGone { guid, end: end_of(entry, *deleted) });
                    }
                }
                DirectoryEvent::Reader(guid) => self.note_reader(directory, *guid),
                DirectoryEvent::ReaderGone(entry) => {
                    let guid = entry.description.guid;
                    if self.noted_readers.remove(&guid) {
                        self.writers.remove_reader(guid);
                    }
                    effects.push(Effect::ReaderGone(guid));
                }
                DirectoryEvent::Matched { writer, reader, .. } => {
                    self.note_match(directory, Pair { writer: *writer, reader: *reader }, &mut effects);
                }
                DirectoryEvent::Unmatched { writer, reader } => {
                    effects.push(Effect::Unmatched(Pair { writer: *writer, reader: *reader }));
                }
                _ => {}
            }
        }
        if !effects.is_empty() && self.due == self.known {
            self.waiting.push_back((self.known, effects));
        }
    }

    /// Delivers the next message of the epoch. `payload` makes a payload of its bytes, and `take` gets the events
    /// of the endpoints of this process, in order.
    ///
    /// # Errors
    /// [`Behind`] if the message is a fence of a version that was not [noted](DomainStream::note). Nothing has
    /// changed.
    pub fn deliver<P: Clone>(
        &mut self,
        position: Position,
        message: &StreamMessage<'_>,
        payload: impl FnOnce(&[u8]) -> P,
        mut take: impl FnMut(StreamEvent<P>),
    ) -> Result<(), Behind> {
        match message {
            StreamMessage::Change(change) => self.change(change, payload, take),
            StreamMessage::Fence(version) if *version > self.known => return Err(Behind { version: *version }),
            StreamMessage::Fence(version) => self.apply(*version, &mut take),
            StreamMessage::SetEnd { set, changes } => {
                let guid = |number: u32| Some(self.writers.get(number)?.info.guid);
                let changes = changes.iter().filter_map(|(writer, count)| Some((guid(*writer)?, *count))).collect();
                let end = ReaderEvent::SetEnd(SetEnd { set: *set, changes });
                tell(self.writers.end_set(*set), end, &mut take);
            }
            StreamMessage::SetAbandoned(set) => {
                tell(self.writers.end_set(*set), ReaderEvent::SetAbandoned(*set), &mut take);
            }
            StreamMessage::Verdict { writer, instance, last: (view, seq, index) } => {
                let Some(own) = self.writers.get(*writer) else {
                    self.note_stray(*writer);
                    return Ok(());
                };
                let last = Position { domain: position.domain, view: *view, seq: *seq, index: *index };
                let verdict = DeadlineVerdict { instance: *instance, writer: own.info.guid, last };
                tell(own.readers.iter().copied(), ReaderEvent::DeadlineVerdict(verdict), &mut take);
            }
        }
        Ok(())
    }

    /// Ends the epoch without another one: the process is in the subgroup no more. The changes up to this version
    /// take effect, and then no writer matches any more. If the process enters again, all that this version has
    /// takes effect at the first fence, as it does at a member that has stayed.
    ///
    /// # Errors
    /// [`Behind`] if the version was not [noted](DomainStream::note). Nothing has changed.
    pub fn end<P: Clone>(&mut self, version: u64, mut take: impl FnMut(StreamEvent<P>)) -> Result<(), Behind> {
        if version > self.known {
            return Err(Behind { version });
        }
        // Matches that are new reach no member any more.
        self.members.clear();
        self.apply(version, &mut take);
        let writers = self.writers.iter().map(|(number, own)| {
            let (info, source) = (own.info, own.source);
            Effect::Writer { number, info, source }
        });
        let pairs = self.pairs.iter().map(|(pair, state)| Effect::Matched { pair: *pair, other: state.other });
        let effects: Vec<Effect> = writers.chain(pairs).collect();
        if !effects.is_empty() {
            self.waiting.push_front((self.fenced, effects));
        }
        for guid in self.writers.guids() {
            self.happen(Effect::WriterGone { guid, end: WriterEnd::Unmatched }, &mut take);
        }
        (self.has_begun, self.sent) = (false, None);
        Ok(())
    }

    fn change<P: Clone>(
        &mut self,
        change: &ChangeMessage<'_>,
        payload: impl FnOnce(&[u8]) -> P,
        mut take: impl FnMut(StreamEvent<P>),
    ) {
        let set = change.set.and_then(|number| self.writers.note_set(change.writer, number));
        let Some(own) = self.writers.get(change.writer) else { return self.note_stray(change.writer) };
        if own.readers.is_empty() {
            return;
        }
        let change = CacheChange {
            writer: own.info.guid,
            kind: change.kind,
            instance: change.instance,
            source_timestamp: change.source_timestamp,
            set,
            payload: payload(change.payload),
        };
        tell(own.readers.iter().copied(), ReaderEvent::Change(change), &mut take);
    }

    /// Counts a message of a writer that is not there, unless the writer is still to come.
    fn note_stray(&mut self, writer: u32) {
        self.strays += u64::from(self.has_begun && self.writers.is_known(writer));
    }

    /// Lets the effects up to a version happen, and those that waited for a process to come.
    fn apply<P: Clone>(&mut self, version: u64, take: &mut impl FnMut(StreamEvent<P>)) {
        let is_newest = version >= self.fenced;
        self.fenced = self.fenced.max(version);
        self.has_begun |= self.fenced >= self.since;
        while let Some((_, effects)) = self.waiting.pop_front_if(|(of, _)| *of <= self.fenced) {
            effects.into_iter().for_each(|effect| self.happen(effect, take));
        }
        self.settle(is_newest, take);
    }

    /// Lets the matches take effect that have waited, as far as the other process is a member. A process that has
    /// entered may be behind the fences of earlier epochs. So a writer hears of a reader at a fence of the newest
    /// version only: then all members have applied it.
    fn settle<P: Clone>(&mut self, is_newest: bool, take: &mut impl FnMut(StreamEvent<P>)) {
        for pair in std::mem::take(&mut self.apart) {
            let Pair { writer, reader } = pair;
            let (Some(state), Some(own)) = (self.pairs.get_mut(&pair), self.writers.by_guid(writer)) else { continue };
            if !self.members.contains(&state.other) {
                self.apart.insert(pair);
                continue;
            }
            if let (Err(at), true) = (own.readers.binary_search(&reader), self.noted_readers.contains(&reader)) {
                own.readers.insert(at, reader);
                take(StreamEvent::Reader { reader, event: ReaderEvent::WriterMatched(own.info) });
            }
            if self.noted_writers.get(&writer) != Some(&true) || state.is_told {
                continue;
            }
            if is_newest {
                state.is_told = true;
                take(StreamEvent::Matched { writer, reader });
            } else {
                self.apart.insert(pair);
            }
        }
    }

    fn happen<P: Clone>(&mut self, effect: Effect, take: &mut impl FnMut(StreamEvent<P>)) {
        match effect {
            Effect::Writer { number, info, source } => {
                let (own, before) = self.writers.put(number, info, source);
                let event = match before == (WriterInfo { alive: before.alive, ..info }) {
                    true if before.alive == info.alive => return,
                    true => ReaderEvent::WriterAlive(info.guid, info.alive),
                    false => ReaderEvent::WriterMatched(info),
                };
                tell(own.readers.iter().copied(), event, take);
            }
            Effect::WriterGone { guid, end } => {
                self.forget_pairs(|pair| pair.writer == guid, take);
                let Some((own, given_up)) = self.writers.remove(guid) else { return };
                for (set, readers) in given_up {
                    tell(readers, ReaderEvent::SetAbandoned(set), take);
                }
                tell(own.readers, ReaderEvent::WriterUnmatched(guid, end), take);
            }
            // Other terms of a match concern no event.
            Effect::Matched { pair, other } => {
                if let Entry::Vacant(entry) = self.pairs.entry(pair) {
                    entry.insert(PairState { other, is_told: false });
                    self.apart.insert(pair);
                }
            }
            Effect::Unmatched(pair) => {
                let Pair { writer, reader } = pair;
                self.forget_pairs(|of| *of == pair, take);
                let Some(own) = self.writers.by_guid(writer) else { return };
                if let Ok(at) = own.readers.binary_search(&reader) {
                    own.readers.remove(at);
                    let event = ReaderEvent::WriterUnmatched(writer, WriterEnd::Unmatched);
                    take(StreamEvent::Reader { reader, event });
                }
            }
            Effect::ReaderGone(reader) => self.forget_pairs(|pair| pair.reader == reader, take),
        }
    }

    /// Forgets the pairs of an endpoint that went. The writers of this process among them are told.
    fn forget_pairs<P>(&mut self, is_gone: impl Fn(&Pair) -> bool, take: &mut impl FnMut(StreamEvent<P>)) {
        for (pair, state) in self.pairs.extract_if(.., |pair, _| is_gone(pair)) {
            self.apart.remove(&pair);
            if state.is_told {
                take(StreamEvent::Unmatched { writer: pair.writer, reader: pair.reader });
            }
        }
    }

    /// Returns the process of a participant.
    fn process_of(directory: &Directory, participant: Guid) -> Option<u64> {
        directory.participant(participant).map(|own| own.member)
    }

    /// Notes a writer that came or changed, if it is of this domain.
    fn note_writer(&mut self, directory: &Directory, guid: Guid, effects: &mut Vec<Effect>) {
        let (Some(entry), Some(number)) = (directory.writer(guid), directory.writer_number(guid)) else { return };
        if directory.domain_of(&entry.description.topic.name) == Some(self.domain) {
            let is_mine = Self::process_of(directory, entry.participant) == Some(self.member);
            self.noted_writers.insert(guid, is_mine);
            effects.push(Effect::Writer { number, info: info_of(entry), source: source_of(entry) });
        }
    }

    /// Notes a reader, if it is one of this process. A reader of another domain matches no writer of this one.
    fn note_reader(&mut self, directory: &Directory, guid: Guid) {
        let Some(entry) = directory.reader(guid) else { return };
        if Self::process_of(directory, entry.participant) == Some(self.member) {
            self.noted_readers.insert(guid);
        }
    }

    /// Notes a match, if an endpoint of it is of this process.
    fn note_match(&mut self, directory: &Directory, pair: Pair, effects: &mut Vec<Effect>) {
        let Some(is_mine) = self.noted_writers.get(&pair.writer) else { return };
        let writer = directory.writer(pair.writer).and_then(|own| Self::process_of(directory, own.participant));
        let reader = directory.reader(pair.reader).and_then(|own| Self::process_of(directory, own.participant));
        let (Some(writer), Some(reader)) = (writer, reader) else { return };
        if *is_mine || reader == self.member {
            effects.push(Effect::Matched { pair, other: if *is_mine { reader } else { writer } });
        }
    }
}

/// Gives an event to each of these readers. The last one gets the event itself, the others copies.
fn tell<P: Clone>(
    readers: impl IntoIterator<Item = Guid>,
    event: ReaderEvent<P>,
    take: &mut impl FnMut(StreamEvent<P>),
) {
    let mut readers = readers.into_iter().peekable();
    while let Some(reader) = readers.next() {
        if readers.peek().is_none() {
            return take(StreamEvent::Reader { reader, event });
        }
        take(StreamEvent::Reader { reader, event: event.clone() });
    }
}
