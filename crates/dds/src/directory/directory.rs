//! The state, and how a command changes it.
use super::command::{DirectoryCommand, EntityChange};
use super::domain::Domains;
use super::entry::{Entity, ParticipantEntry, ReaderEntry, TopicEntry, WriterEntry};
use super::error::DirectoryError;
use super::event::DirectoryEvent;
use super::pairs::Pairs;
use super::plan::DomainPlan;
use super::stored::Stored;
use super::types::TypeTable;
use crate::error::DdsError;
use crate::id::Guid;
use crate::matching::{EndpointMatch, Mismatch, TopicRef, check_topics, near_miss};
use crate::policy::PartitionQosPolicy;
use crate::qos::{QosSet, Supported};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spindle_xcdr::{TypeDescription, TypeHash};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The longest name of a topic, a type, a partition or a participant, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The most names of PARTITION.
const PARTITIONS_MAX: usize = 64;
/// The longest USER_DATA, TOPIC_DATA or GROUP_DATA, in bytes.
const DATA_BYTES_MAX: usize = 64 << 10;

/// The outcome of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// A result for each change of [`DirectoryCommand::Change`]; one result for any other command.
    pub results: Vec<Result<(), DirectoryError>>,
    /// All that changed, in order.
    pub events: Vec<DirectoryEvent>,
}

/// The directory of a domain.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    version: u64,
    types: TypeTable,
    participants: BTreeMap<Guid, ParticipantEntry>,
    topics: BTreeMap<Guid, TopicEntry>,
    writers: BTreeMap<Guid, WriterEntry>,
    readers: BTreeMap<Guid, ReaderEntry>,
    /// The numbers of the writers, by which samples name them, and the next one.
    writer_numbers: BTreeMap<Guid, u32>,
    writer_next: u32,
    domains: Domains,
    /// Follows from the entries, as do the plans of the order domains.
    pairs: Pairs,
    /// The order domains whose plans may have changed during a command.
    touched: BTreeSet<u32>,
}

/// A kind of entity with a map of its own.
trait Kept: Entity + Sized {
    fn map(directory: &Directory) -> &BTreeMap<Guid, Self>;
    fn map_mut(directory: &mut Directory) -> &mut BTreeMap<Guid, Self>;
    fn check(&self) -> Result<(), DirectoryError>;
    /// Checks that the policies may change to those of another entry.
    fn check_change(&self, to: &Self) -> Result<(), DdsError>;
}

impl Directory {
    /// Returns the number of commands that have changed the directory.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the participants.
    pub fn participants(&self) -> impl Iterator<Item = &ParticipantEntry> {
        self.participants.values()
    }

    /// Returns a participant.
    pub fn participant(&self, guid: Guid) -> Option<&ParticipantEntry> {
        self.participants.get(&guid)
    }

    /// Returns the topics of all participants.
    pub fn topics(&self) -> impl Iterator<Item = &TopicEntry> {
        self.topics.values()
    }

    /// Returns a topic.
    pub fn topic(&self, guid: Guid) -> Option<&TopicEntry> {
        self.topics.get(&guid)
    }

    /// Returns the writers.
    pub fn writers(&self) -> impl Iterator<Item = &WriterEntry> {
        self.writers.values()
    }

    /// Returns a writer.
    pub fn writer(&self, guid: Guid) -> Option<&WriterEntry> {
        self.writers.get(&guid)
    }

    /// Returns the number of a writer, by which its samples name it. Numbers are never used again.
    pub fn writer_number(&self, guid: Guid) -> Option<u32> {
        self.writer_numbers.get(&guid).copied()
    }

    /// Returns the readers.
    pub fn readers(&self) -> impl Iterator<Item = &ReaderEntry> {
        self.readers.values()
    }

    /// Returns a reader.
    pub fn reader(&self, guid: Guid) -> Option<&ReaderEntry> {
        self.readers.get(&guid)
    }

    /// Returns the plans of the order domains.
    pub fn plans(&self) -> impl Iterator<Item = &DomainPlan> {
        self.domains.plans()
    }

    /// Returns the plan of an order domain.
    pub fn plan(&self, domain: u32) -> Option<&DomainPlan> {
        self.domains.plan(domain)
    }

    /// Returns the order domain of a topic; `None` while it has no writer.
    pub fn domain_of(&self, topic: &str) -> Option<u32> {
        self.domains.of_topic(topic)
    }

    /// Returns the description of a type.
    pub fn description(&self, hash: TypeHash) -> Option<&Arc<TypeDescription>> {
        self.types.description(hash)
    }

    /// Returns the complete type objects of a type and of those that it reaches.
    pub fn type_objects(&self, hash: TypeHash) -> Option<&BTreeMap<TypeHash, Vec<u8>>> {
        self.types.objects(hash)
    }

    /// Returns all pairs of a writer and a reader of one topic, with the terms of the match or the reasons
    /// against it.
    pub fn pairs(&self) -> impl Iterator<Item = (Guid, Guid, Result<&EndpointMatch, &[Mismatch]>)> {
        self.pairs.iter().map(|(writer, reader, state)| (writer, reader, state.as_ref().map_err(Vec::as_slice)))
    }

    /// Returns why a writer and a reader match: the terms, or all reasons against it. Endpoints of two topics
    /// have one reason.
    ///
    /// # Errors
    /// `NoEntity` for an endpoint that is not in the directory.
    pub fn why(&self, writer: Guid, reader: Guid) -> Result<Result<EndpointMatch, Vec<Mismatch>>, DirectoryError> {
        let own = self.writers.get(&writer).ok_or(DirectoryError::NoEntity(writer))?;
        let other = self.readers.get(&reader).ok_or(DirectoryError::NoEntity(reader))?;
        let state = self.pairs.state(writer, reader).cloned();
        Ok(state.unwrap_or_else(|| crate::matching::match_endpoints(&own.description, &other.description)))
    }

    /// Returns the probable mistakes in the name of an endpoint's topic: other topics with endpoints of the
    /// other side whose names are close, each with the reason.
    pub fn near_misses(&self, endpoint: Guid) -> Vec<Mismatch> {
        let (writer, reader) = (self.writers.get(&endpoint), self.readers.get(&endpoint));
        let others = self.pairs.topics();
        match (writer, reader) {
            (Some(own), _) => others
                .filter(|(_, endpoints)| !endpoints.readers.is_empty())
                .filter_map(|(name, _)| near_miss(&own.description.topic.name, name))
                .collect(),
            (_, Some(own)) => others
                .filter(|(_, endpoints)| !endpoints.writers.is_empty())
                .filter_map(|(name, _)| near_miss(name, &own.description.topic.name))
                .collect(),
            (None, None) => Vec::new(),
        }
    }

    /// Applies a command, the next one in the order of the group.
    pub fn apply(&mut self, command: &DirectoryCommand) -> Applied {
        let mut events = Vec::new();
        let results = match command {
            DirectoryCommand::Announce(entry) => vec![self.announce(entry, &mut events)],
            DirectoryCommand::Withdraw(guid) => match self.participants.contains_key(guid) {
                true => {
                    self.remove_participant(*guid, &mut events);
                    vec![Ok(())]
                }
                false => vec![Err(DirectoryError::NoParticipant(*guid))],
            },
            DirectoryCommand::Change { participant, changes } => {
                changes.iter().map(|change| self.change(*participant, change, &mut events)).collect()
            }
            DirectoryCommand::Expel(participants) => {
                participants.iter().for_each(|guid| self.remove_participant(*guid, &mut events));
                vec![Ok(())]
            }
        };
        self.types.collect();
        self.plan_touched(&mut events);
        self.version += u64::from(!events.is_empty());
        Applied { results, events }
    }

    fn announce(&mut self, entry: &ParticipantEntry, events: &mut Vec<DirectoryEvent>) -> Result<(), DirectoryError> {
        check_length("the name of a participant", entry.name.len(), NAME_BYTES_MAX)?;
        check_length("USER_DATA", entry.user_data.value.len(), DATA_BYTES_MAX)?;
        match self.participants.get(&entry.guid) {
            Some(known) if known == entry => return Ok(()),
            Some(known) if known.member != entry.member => {
                let (owner, member) = (known.member, entry.member);
                return Err(DirectoryError::OtherProcess { guid: entry.guid, owner, member });
            }
            None if self.is_entity(entry.guid) => {
                return Err(DirectoryError::InUse { guid: entry.guid, kind: "participant".to_owned() });
            }
            _ => {}
        }
        self.participants.insert(entry.guid, entry.clone());
        events.push(DirectoryEvent::Participant(entry.guid));
        Ok(())
    }

    fn change(
        &mut self,
        participant: Guid,
        change: &EntityChange,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), DirectoryError> {
        if !self.participants.contains_key(&participant) {
            return Err(DirectoryError::NoParticipant(participant));
        }
        match change {
            EntityChange::Type { hash, objects } => self.types.add(*hash, objects),
            EntityChange::Topic(entry) => self.put_topic(participant, entry, events),
            EntityChange::Writer(entry) => self.put_writer(participant, entry, events),
            EntityChange::Reader(entry) => self.put_reader(participant, entry, events),
            EntityChange::Delete(guid) => self.delete(participant, *guid, events),
        }
    }

    /// Adds an entry or changes its policies. Returns whether anything changed.
    fn put<E: Kept + Clone + PartialEq>(&mut self, participant: Guid, entry: &E) -> Result<bool, DirectoryError> {
        let guid = entry.guid();
        if entry.participant() != participant {
            return Err(DirectoryError::NoParticipant(entry.participant()));
        }
        entry.check()?;
        let mut entry = entry.clone();
        let Some(known) = E::map(self).get(&guid) else {
            if self.is_entity(guid) || self.participants.contains_key(&guid) {
                return Err(DirectoryError::InUse { guid, kind: E::KIND.to_owned() });
            }
            let description = entry.type_hash().map(|hash| self.types.refer(hash)).transpose()?;
            entry.topic_mut().description = description;
            E::map_mut(self).insert(guid, entry);
            return Ok(true);
        };
        let (own, other) = (known.topic(), entry.topic());
        for (part, differs) in [
            ("topic", own.name != other.name),
            ("type", own.type_name != other.type_name || known.type_hash() != entry.type_hash()),
            ("parent", known.parent() != entry.parent() || known.participant() != participant),
        ] {
            if differs {
                return Err(DirectoryError::Fixed { guid, kind: E::KIND.to_owned(), part: part.to_owned() });
            }
        }
        known.check_change(&entry)?;
        entry.topic_mut().description.clone_from(&known.topic().description);
        let differs = *known != entry;
        E::map_mut(self).insert(guid, entry);
        Ok(differs)
    }

    fn put_topic(
        &mut self,
        participant: Guid,
        entry: &TopicEntry,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), DirectoryError> {
        let is_new = !self.topics.contains_key(&entry.guid);
        if !self.put(participant, entry)? {
            return Ok(());
        }
        events.push(DirectoryEvent::Topic(entry.guid));
        let own = &self.topics[&entry.guid];
        let same_name = |other: &&TopicEntry| other.guid != own.guid && other.topic.name == own.topic.name;
        for other in self.topics.values().filter(same_name).filter(|_| is_new) {
            if let Err(reason) = check_topics(&own.topic, &other.topic) {
                let (topic, other) = (own.guid, other.guid);
                events.push(DirectoryEvent::InconsistentTopic { topic, other, reason: Box::new(reason) });
            }
        }
        Ok(())
    }

    fn put_writer(
        &mut self,
        participant: Guid,
        entry: &WriterEntry,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), DirectoryError> {
        let guid = entry.description.guid;
        let is_new = !self.writers.contains_key(&guid);
        let chosen = if is_new { self.domains.choose(entry, &self.writers)? } else { None };
        if !self.put(participant, entry)? {
            return Ok(());
        }
        events.push(DirectoryEvent::Writer(guid));
        let own = &self.writers[&guid];
        let topic = &own.description.topic.name;
        if is_new {
            self.writer_numbers.insert(guid, self.writer_next);
            self.writer_next += 1;
            self.domains.bind(topic, own.description.qos.consistency_level(), chosen);
        }
        self.pairs.put_writer(own, &self.readers, events);
        self.touched.extend(self.domains.of_topic(topic));
        Ok(())
    }

    fn put_reader(
        &mut self,
        participant: Guid,
        entry: &ReaderEntry,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), DirectoryError> {
        let guid = entry.description.guid;
        if !self.put(participant, entry)? {
            return Ok(());
        }
        events.push(DirectoryEvent::Reader(guid));
        let own = &self.readers[&guid];
        self.pairs.put_reader(own, &self.writers, events);
        self.touched.extend(self.domains.of_topic(&own.description.topic.name));
        Ok(())
    }

    fn delete(
        &mut self,
        participant: Guid,
        guid: Guid,
        events: &mut Vec<DirectoryEvent>,
    ) -> Result<(), DirectoryError> {
        let of = |owner: Guid| owner == participant;
        if self.topics.get(&guid).is_some_and(|own| of(own.participant)) {
            self.remove_topic(guid, events);
        } else if self.writers.get(&guid).is_some_and(|own| of(own.participant)) {
            self.remove_writer(guid, true, events);
        } else if self.readers.get(&guid).is_some_and(|own| of(own.participant)) {
            self.remove_reader(guid, events);
        } else {
            return Err(DirectoryError::NoEntity(guid));
        }
        Ok(())
    }

    fn is_entity(&self, guid: Guid) -> bool {
        self.topics.contains_key(&guid) || self.writers.contains_key(&guid) || self.readers.contains_key(&guid)
    }

    /// Removes a participant with its entities, if it is there.
    fn remove_participant(&mut self, guid: Guid, events: &mut Vec<DirectoryEvent>) {
        if !self.participants.contains_key(&guid) {
            return;
        }
        let of = |(own, participant): (Guid, Guid)| (participant == guid).then_some(own);
        let readers: Vec<Guid> = self.readers.iter().filter_map(|(own, it)| of((*own, it.participant))).collect();
        let writers: Vec<Guid> = self.writers.iter().filter_map(|(own, it)| of((*own, it.participant))).collect();
        let topics: Vec<Guid> = self.topics.iter().filter_map(|(own, it)| of((*own, it.participant))).collect();
        readers.into_iter().for_each(|reader| self.remove_reader(reader, events));
        writers.into_iter().for_each(|writer| self.remove_writer(writer, false, events));
        topics.into_iter().for_each(|topic| self.remove_topic(topic, events));
        self.participants.remove(&guid);
        events.push(DirectoryEvent::ParticipantGone(guid));
    }

    fn remove_topic(&mut self, guid: Guid, events: &mut Vec<DirectoryEvent>) {
        if let Some(own) = self.topics.remove(&guid) {
            own.type_hash.into_iter().for_each(|hash| self.types.release(hash));
            events.push(DirectoryEvent::TopicGone(guid));
        }
    }

    fn remove_writer(&mut self, guid: Guid, deleted: bool, events: &mut Vec<DirectoryEvent>) {
        let Some(own) = self.writers.remove(&guid) else { return };
        own.type_hash.into_iter().for_each(|hash| self.types.release(hash));
        let topic = &own.description.topic.name;
        self.touched.extend(self.domains.of_topic(topic));
        self.writer_numbers.remove(&guid);
        self.pairs.remove_writer(topic, guid);
        if self.pairs.endpoints(topic).is_none_or(|endpoints| endpoints.writers.is_empty()) {
            self.domains.release(topic);
        }
        events.push(DirectoryEvent::WriterGone { entry: Box::new(own), deleted });
    }

    fn remove_reader(&mut self, guid: Guid, events: &mut Vec<DirectoryEvent>) {
        let Some(own) = self.readers.remove(&guid) else { return };
        own.type_hash.into_iter().for_each(|hash| self.types.release(hash));
        let topic = &own.description.topic.name;
        self.touched.extend(self.domains.of_topic(topic));
        self.pairs.remove_reader(topic, guid);
        events.push(DirectoryEvent::ReaderGone(Box::new(own)));
    }

    /// Makes the plans anew that may have changed.
    fn plan_touched(&mut self, events: &mut Vec<DirectoryEvent>) {
        let Directory { domains, pairs, writers, readers, participants, touched, .. } = self;
        for domain in std::mem::take(touched) {
            let member_of = |guid: Guid| participants.get(&guid).map(|own| own.member);
            match domains.plan_anew(domain, pairs, writers, readers, member_of) {
                Some(Some(plan)) => events.push(DirectoryEvent::Domain(plan)),
                Some(None) => events.push(DirectoryEvent::DomainGone(domain)),
                None => {}
            }
        }
    }

    fn to_stored(&self) -> Stored<'_> {
        Stored {
            version: self.version,
            types: self.types.iter().map(|(hash, objects)| (hash, objects.clone())).collect(),
            participants: Cow::Borrowed(&self.participants),
            topics: Cow::Borrowed(&self.topics),
            writers: Cow::Borrowed(&self.writers),
            readers: Cow::Borrowed(&self.readers),
            writer_numbers: Cow::Borrowed(&self.writer_numbers),
            writer_next: self.writer_next,
            domain_next: self.domains.next,
            domains: Cow::Borrowed(&self.domains.all),
        }
    }

    /// Makes a directory of its serialised form, with all that follows from it.
    fn from_stored(stored: Stored<'_>) -> Result<Directory, DirectoryError> {
        let mut types = TypeTable::default();
        stored.types.iter().try_for_each(|(hash, objects)| types.add(*hash, objects))?;
        let mut directory = Directory {
            version: stored.version,
            types,
            participants: stored.participants.into_owned(),
            topics: stored.topics.into_owned(),
            writers: stored.writers.into_owned(),
            readers: stored.readers.into_owned(),
            writer_numbers: stored.writer_numbers.into_owned(),
            writer_next: stored.writer_next,
            domains: Domains::stored(stored.domain_next, stored.domains.into_owned()),
            ..Directory::default()
        };
        let Directory { types, topics, writers, readers, pairs, domains, touched, .. } = &mut directory;
        describe(types, topics)?;
        describe(types, writers)?;
        describe(types, readers)?;
        readers.values().for_each(|reader| pairs.put_reader(reader, writers, &mut Vec::new()));
        writers.values().for_each(|writer| pairs.put_writer(writer, readers, &mut Vec::new()));
        touched.extend(domains.all.keys());
        directory.plan_touched(&mut Vec::new());
        Ok(directory)
    }
}

/// Gives the entries of a serialised directory the descriptions of their types.
fn describe<E: Entity>(types: &mut TypeTable, entries: &mut BTreeMap<Guid, E>) -> Result<(), DirectoryError> {
    for entry in entries.values_mut() {
        entry.topic_mut().description = entry.type_hash().map(|hash| types.refer(hash)).transpose()?;
    }
    Ok(())
}

impl Serialize for Directory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_stored().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Directory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Directory, D::Error> {
        Directory::from_stored(Stored::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl PartialEq for Directory {
    /// Compares the entries, and all that follows from them.
    fn eq(&self, other: &Directory) -> bool {
        let types = |of: &Directory| of.types.iter().map(|(hash, _)| hash).collect::<Vec<_>>();
        (self.version, &self.participants, &self.topics, &self.writers, &self.readers)
            == (other.version, &other.participants, &other.topics, &other.writers, &other.readers)
            && (&self.writer_numbers, self.writer_next) == (&other.writer_numbers, other.writer_next)
            && self.domains == other.domains
            && self.pairs == other.pairs
            && types(self) == types(other)
    }
}

macro_rules! kept {
    ($of:ident, $map:ident) => {
        fn map(directory: &Directory) -> &BTreeMap<Guid, $of> {
            &directory.$map
        }

        fn map_mut(directory: &mut Directory) -> &mut BTreeMap<Guid, $of> {
            &mut directory.$map
        }
    };
}

impl Kept for TopicEntry {
    kept!(TopicEntry, topics);

    fn check(&self) -> Result<(), DirectoryError> {
        check_topic(&self.topic)?;
        check_length("TOPIC_DATA", self.qos.topic_data.value.len(), DATA_BYTES_MAX)?;
        Ok(self.qos.check_consistent()?)
    }

    fn check_change(&self, to: &TopicEntry) -> Result<(), DdsError> {
        self.qos.check_change(&to.qos, true, &Supported::all())
    }
}

impl Kept for WriterEntry {
    kept!(WriterEntry, writers);

    fn check(&self) -> Result<(), DirectoryError> {
        let own = &self.description;
        check_topic(&own.topic)?;
        check_length("USER_DATA", own.qos.user_data.value.len(), DATA_BYTES_MAX)?;
        check_length("GROUP_DATA", own.publisher.group_data.value.len(), DATA_BYTES_MAX)?;
        check_partition(&own.publisher.partition)?;
        own.qos.check_consistent()?;
        Ok(own.publisher.check_consistent()?)
    }

    fn check_change(&self, to: &WriterEntry) -> Result<(), DdsError> {
        let (own, to) = (&self.description, &to.description);
        own.qos.check_change(&to.qos, true, &Supported::all())?;
        own.publisher.check_change(&to.publisher, true, &Supported::all())
    }
}

impl Kept for ReaderEntry {
    kept!(ReaderEntry, readers);

    fn check(&self) -> Result<(), DirectoryError> {
        let own = &self.description;
        check_topic(&own.topic)?;
        check_length("USER_DATA", own.qos.user_data.value.len(), DATA_BYTES_MAX)?;
        check_length("GROUP_DATA", own.subscriber.group_data.value.len(), DATA_BYTES_MAX)?;
        check_partition(&own.subscriber.partition)?;
        own.qos.check_consistent()?;
        Ok(own.subscriber.check_consistent()?)
    }

    fn check_change(&self, to: &ReaderEntry) -> Result<(), DdsError> {
        let (own, to) = (&self.description, &to.description);
        own.qos.check_change(&to.qos, true, &Supported::all())?;
        own.subscriber.check_change(&to.subscriber, true, &Supported::all())
    }
}

fn check_topic(topic: &TopicRef) -> Result<(), DirectoryError> {
    check_length("the name of a topic", topic.name.len(), NAME_BYTES_MAX)?;
    check_length("the name of a type", topic.type_name.len(), NAME_BYTES_MAX)
}

fn check_partition(partition: &PartitionQosPolicy) -> Result<(), DirectoryError> {
    if partition.name.len() > PARTITIONS_MAX {
        return Err(DirectoryError::TooLong {
            what: "PARTITION".to_owned(),
            length: partition.name.len() as u64,
            unit: "names".to_owned(),
            limit: PARTITIONS_MAX as u64,
        });
    }
    partition.name.iter().try_for_each(|name| check_length("a name of PARTITION", name.len(), NAME_BYTES_MAX))
}

fn check_length(what: &str, length: usize, limit: usize) -> Result<(), DirectoryError> {
    if length <= limit {
        return Ok(());
    }
    Err(DirectoryError::TooLong {
        what: what.to_owned(),
        length: length as u64,
        unit: "bytes".to_owned(),
        limit: limit as u64,
    })
}
