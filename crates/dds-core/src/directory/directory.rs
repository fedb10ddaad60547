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
use crate::id::Guid;
use crate::matching::{EndpointMatch, Mismatch, check_topics, match_endpoints, near_miss};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spindle_xcdr::{TypeDescription, TypeHash};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
}

/// A kind of entity, with its map.
trait Kept: Entity {
    fn map(directory: &Directory) -> &BTreeMap<Guid, Self>;
    fn map_mut(directory: &mut Directory) -> &mut BTreeMap<Guid, Self>;
}

macro_rules! kept {
    ($of:ident, $map:ident) => {
        impl Kept for $of {
            fn map(directory: &Directory) -> &BTreeMap<Guid, $of> {
                &directory.$map
            }

            fn map_mut(directory: &mut Directory) -> &mut BTreeMap<Guid, $of> {
                &mut directory.$map
            }
        }
    };
}

kept!(TopicEntry, topics);
kept!(WriterEntry, writers);
kept!(ReaderEntry, readers);

/// The consequences of a command, while it is applied.
#[derive(Default)]
struct Consequences {
    events: Vec<DirectoryEvent>,
    /// The order domains that it changes.
    domains: BTreeSet<u32>,
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

    /// Returns the version of the directory with the last change of an order domain, its writers, its readers
    /// or its matches.
    pub fn domain_version(&self, domain: u32) -> Option<u64> {
        self.domains.version(domain)
    }

    /// Returns the order domain of a topic; `None` before its first writer.
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

    /// Returns all pairs of a writer and a reader that match, with the terms.
    pub fn matches(&self) -> impl Iterator<Item = (Guid, Guid, &EndpointMatch)> {
        self.pairs.iter()
    }

    /// Returns why a writer and a reader match: the terms, or all reasons against it. Endpoints of two topics
    /// have one reason.
    ///
    /// # Errors
    /// `NoEntity` for an endpoint that is not in the directory.
    pub fn why(&self, writer: Guid, reader: Guid) -> Result<Result<EndpointMatch, Vec<Mismatch>>, DirectoryError> {
        let own = self.writers.get(&writer).ok_or(DirectoryError::NoEntity(writer))?;
        let other = self.readers.get(&reader).ok_or(DirectoryError::NoEntity(reader))?;
        Ok(match_endpoints(&own.description, &other.description))
    }

    /// Returns the participants whose processes are not among these, each with its id and its
    /// [incarnation](ParticipantEntry::incarnation). Each process asks at each view, and expels them.
    pub fn absent(&self, processes: &[(u64, u64)]) -> Vec<Guid> {
        let is_absent = |own: &&ParticipantEntry| !processes.contains(&(own.member, own.incarnation));
        self.participants.values().filter(is_absent).map(|own| own.guid).collect()
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

    /// Applies a command, the next one in the order of the group, which process `sender` sent.
    pub fn apply(&mut self, sender: u64, command: &DirectoryCommand) -> Applied {
        let mut to = Consequences::default();
        let results = match command {
            DirectoryCommand::Announce(entry) => vec![self.announce(sender, entry, &mut to)],
            DirectoryCommand::Withdraw(guid) => {
                let checked = self.check_owner(sender, *guid);
                if checked.is_ok() {
                    self.remove_participant(*guid, true, &mut to);
                }
                vec![checked]
            }
            DirectoryCommand::Change { participant, changes } => {
                let owner = self.check_owner(sender, *participant);
                let change = |change| owner.clone().and_then(|()| self.change(*participant, change, &mut to));
                changes.iter().map(change).collect()
            }
            DirectoryCommand::Expel(participants) => {
                participants.iter().for_each(|guid| self.remove_participant(*guid, false, &mut to));
                vec![Ok(())]
            }
        };
        self.types.collect();
        self.version += u64::from(!to.events.is_empty());
        self.plan_changed(&mut to);
        Applied { results, events: to.events }
    }

    /// Checks that a participant is there, and belongs to the process that sent the command.
    fn check_owner(&self, sender: u64, guid: Guid) -> Result<(), DirectoryError> {
        match self.participants.get(&guid) {
            None => Err(DirectoryError::NoParticipant(guid)),
            Some(own) if own.member == sender => Ok(()),
            Some(own) => Err(DirectoryError::OtherProcess { guid, owner: own.member, member: sender }),
        }
    }

    fn announce(&mut self, sender: u64, entry: &ParticipantEntry, to: &mut Consequences) -> Result<(), DirectoryError> {
        entry.check()?;
        let known = self.participants.get(&entry.guid);
        let owner = known.map_or(entry.member, |known| known.member);
        if owner != sender || entry.member != sender {
            return Err(DirectoryError::OtherProcess { guid: entry.guid, owner, member: sender });
        }
        if known.is_none() && self.is_entity(entry.guid) {
            return Err(DirectoryError::InUse { guid: entry.guid, kind: "participant".to_owned() });
        }
        if known != Some(entry) {
            self.participants.insert(entry.guid, entry.clone());
            to.events.push(DirectoryEvent::Participant(entry.guid));
        }
        Ok(())
    }

    fn change(
        &mut self,
        participant: Guid,
        change: &EntityChange,
        to: &mut Consequences,
    ) -> Result<(), DirectoryError> {
        match change {
            EntityChange::Type { hash, objects } => self.types.add(*hash, objects),
            EntityChange::Topic(entry) => self.put_topic(participant, entry, to),
            EntityChange::Writer(entry) => self.put_writer(participant, entry, to),
            EntityChange::Reader(entry) => self.put_reader(participant, entry, to),
            EntityChange::Alive { writer, alive } => {
                let own = self.writers.get(writer).filter(|own| own.participant == participant);
                let own = own.ok_or(DirectoryError::NoEntity(*writer))?;
                self.put_writer(participant, &WriterEntry { alive: *alive, ..own.clone() }, to)
            }
            EntityChange::Delete(guid) => self.delete(participant, *guid, to),
        }
    }

    /// Adds an entry or changes its policies. Returns whether anything changed.
    fn put<E: Kept>(&mut self, participant: Guid, entry: &E) -> Result<bool, DirectoryError> {
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
        to: &mut Consequences,
    ) -> Result<(), DirectoryError> {
        let is_new = !self.topics.contains_key(&entry.guid);
        if !self.put(participant, entry)? {
            return Ok(());
        }
        to.events.push(DirectoryEvent::Topic(entry.guid));
        let own = &self.topics[&entry.guid];
        let same_name = |other: &&TopicEntry| other.guid != own.guid && other.topic.name == own.topic.name;
        for other in self.topics.values().filter(same_name).filter(|_| is_new) {
            if let Err(reason) = check_topics(&own.topic, &other.topic) {
                let (topic, other) = (own.guid, other.guid);
                to.events.push(DirectoryEvent::InconsistentTopic { topic, other, reason: Box::new(reason) });
            }
        }
        Ok(())
    }

    fn put_writer(
        &mut self,
        participant: Guid,
        entry: &WriterEntry,
        to: &mut Consequences,
    ) -> Result<(), DirectoryError> {
        let guid = entry.description.guid;
        let is_new = !self.writers.contains_key(&guid);
        let chosen = if is_new { self.domains.choose(entry, &self.writers)? } else { None };
        if is_new && self.writer_next == u32::MAX {
            let (count, limit) = (u64::from(self.writer_next), u64::from(u32::MAX));
            return Err(DirectoryError::TooMany { what: "writers since its begin".to_owned(), count, limit });
        }
        if !self.put(participant, entry)? {
            return Ok(());
        }
        to.events.push(DirectoryEvent::Writer(guid));
        let own = &self.writers[&guid];
        let topic = &own.description.topic.name;
        if is_new {
            self.writer_numbers.insert(guid, self.writer_next);
            self.writer_next += 1;
            self.domains.bind(topic, own.description.qos.consistency_level(), chosen);
        }
        self.pairs.put_writer(own, &self.readers, &mut to.events);
        to.domains.extend(self.domains.of_topic(topic));
        Ok(())
    }

    fn put_reader(
        &mut self,
        participant: Guid,
        entry: &ReaderEntry,
        to: &mut Consequences,
    ) -> Result<(), DirectoryError> {
        let guid = entry.description.guid;
        if !self.put(participant, entry)? {
            return Ok(());
        }
        to.events.push(DirectoryEvent::Reader(guid));
        let own = &self.readers[&guid];
        self.pairs.put_reader(own, &self.writers, &mut to.events);
        to.domains.extend(self.domains.of_topic(&own.description.topic.name));
        Ok(())
    }

    fn delete(&mut self, participant: Guid, guid: Guid, to: &mut Consequences) -> Result<(), DirectoryError> {
        let of = |owner: Guid| owner == participant;
        if self.topics.get(&guid).is_some_and(|own| of(own.participant)) {
            self.remove_topic(guid, to);
        } else if self.writers.get(&guid).is_some_and(|own| of(own.participant)) {
            self.remove_writer(guid, true, to);
        } else if self.readers.get(&guid).is_some_and(|own| of(own.participant)) {
            self.remove_reader(guid, to);
        } else {
            return Err(DirectoryError::NoEntity(guid));
        }
        Ok(())
    }

    fn is_entity(&self, guid: Guid) -> bool {
        self.topics.contains_key(&guid) || self.writers.contains_key(&guid) || self.readers.contains_key(&guid)
    }

    /// Removes a participant with its entities, if it is there. They are deleted, or their process failed.
    fn remove_participant(&mut self, guid: Guid, deleted: bool, to: &mut Consequences) {
        if self.participants.remove(&guid).is_none() {
            return;
        }
        let of = |(own, participant): (Guid, Guid)| (participant == guid).then_some(own);
        let readers: Vec<Guid> = self.readers.iter().filter_map(|(own, it)| of((*own, it.participant))).collect();
        let writers: Vec<Guid> = self.writers.iter().filter_map(|(own, it)| of((*own, it.participant))).collect();
        let topics: Vec<Guid> = self.topics.iter().filter_map(|(own, it)| of((*own, it.participant))).collect();
        readers.into_iter().for_each(|reader| self.remove_reader(reader, to));
        writers.into_iter().for_each(|writer| self.remove_writer(writer, deleted, to));
        topics.into_iter().for_each(|topic| self.remove_topic(topic, to));
        to.events.push(DirectoryEvent::ParticipantGone(guid));
    }

    fn remove_topic(&mut self, guid: Guid, to: &mut Consequences) {
        if let Some(own) = self.topics.remove(&guid) {
            own.type_hash.into_iter().for_each(|hash| self.types.release(hash));
            to.events.push(DirectoryEvent::TopicGone(guid));
        }
    }

    fn remove_writer(&mut self, guid: Guid, deleted: bool, to: &mut Consequences) {
        let Some(own) = self.writers.remove(&guid) else { return };
        own.type_hash.into_iter().for_each(|hash| self.types.release(hash));
        let topic = &own.description.topic.name;
        to.domains.extend(self.domains.of_topic(topic));
        self.writer_numbers.remove(&guid);
        if self.pairs.remove_writer(topic, guid) {
            self.domains.release(topic);
        }
        to.events.push(DirectoryEvent::WriterGone { entry: Box::new(own), deleted });
    }

    fn remove_reader(&mut self, guid: Guid, to: &mut Consequences) {
        let Some(own) = self.readers.remove(&guid) else { return };
        own.type_hash.into_iter().for_each(|hash| self.types.release(hash));
        let topic = &own.description.topic.name;
        to.domains.extend(self.domains.of_topic(topic));
        if self.pairs.remove_reader(topic, guid) {
            self.domains.release(topic);
        }
        to.events.push(DirectoryEvent::ReaderGone(Box::new(own)));
    }

    /// Makes the plans of the changed order domains anew.
    fn plan_changed(&mut self, to: &mut Consequences) {
        for domain in std::mem::take(&mut to.domains) {
            match self.plan_anew(domain, self.version) {
                Some(Some(plan)) => to.events.push(DirectoryEvent::Domain(plan)),
                Some(None) => to.events.push(DirectoryEvent::DomainGone(domain)),
                None => {}
            }
        }
    }

    /// As [`Domains::plan_anew`].
    fn plan_anew(&mut self, domain: u32, version: u64) -> Option<Option<DomainPlan>> {
        let Directory { domains, pairs, writers, readers, participants, .. } = self;
        let member_of = |guid: Guid| participants.get(&guid).map(|own| own.member);
        domains.plan_anew(domain, version, pairs, writers, readers, member_of)
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
            domains: Domains::stored(stored.domain_next, stored.domains.into_owned())?,
            pairs: Pairs::default(),
        };
        let Directory { types, participants, topics, writers, readers, pairs, .. } = &mut directory;
        participants.values().try_for_each(ParticipantEntry::check)?;
        restore(types, participants, topics)?;
        restore(types, participants, writers)?;
        restore(types, participants, readers)?;
        readers.values().for_each(|reader| pairs.put_reader(reader, writers, &mut Vec::new()));
        writers.values().for_each(|writer| pairs.put_writer(writer, readers, &mut Vec::new()));
        directory.check_restored()?;
        for (domain, version) in directory.domains.versions() {
            directory.plan_anew(domain, version);
        }
        Ok(directory)
    }

    /// Checks the relations between the parts of a serialised directory.
    fn check_restored(&self) -> Result<(), DirectoryError> {
        let damaged = |what: String| Err(DirectoryError::Damaged(what));
        if let Some((guid, _)) =
            self.participants.iter().find(|(guid, own)| **guid != own.guid || self.is_entity(**guid))
        {
            return damaged(format!("participant {guid}"));
        }
        let numbers: BTreeSet<u32> = self.writer_numbers.values().copied().collect();
        let is_numbered = self.writer_numbers.keys().eq(self.writers.keys()) && numbers.len() == self.writers.len();
        if !is_numbered || numbers.last().is_some_and(|last| *last >= self.writer_next) {
            return damaged("the numbers of its writers".to_owned());
        }
        for own in self.writers.values() {
            let domain = self.domains.of_topic(&own.description.topic.name).and_then(|id| self.domains.all.get(&id));
            let level = own.description.qos.consistency_level();
            if domain.is_none_or(|domain| domain.level < level || domain.version > self.version) {
                return damaged(format!("the order domain of topic '{}'", own.description.topic.name));
            }
        }
        let has_endpoints = |topic: &String| self.pairs.endpoints(topic).is_some();
        match self.domains.all.iter().find(|(_, own)| !own.topics.iter().all(has_endpoints)) {
            Some((id, _)) => damaged(format!("order domain {id}")),
            None => Ok(()),
        }
    }
}

/// Checks the entries of a serialised directory, and gives them the descriptions of their types.
fn restore<E: Entity>(
    types: &mut TypeTable,
    participants: &BTreeMap<Guid, ParticipantEntry>,
    entries: &mut BTreeMap<Guid, E>,
) -> Result<(), DirectoryError> {
    for (guid, entry) in entries {
        entry.check()?;
        if *guid != entry.guid() || !participants.contains_key(&entry.participant()) {
            return Err(DirectoryError::Damaged(format!("{} {guid}", E::KIND)));
        }
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
