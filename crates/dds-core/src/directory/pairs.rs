//! The writers and readers of each topic, and which of them match.
use super::entry::{ReaderEntry, WriterEntry};
use super::event::DirectoryEvent;
use crate::id::Guid;
use crate::matching::{EndpointMatch, Mismatch, match_endpoints};
use std::collections::{BTreeMap, BTreeSet};

/// The endpoints of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopicEndpoints {
    pub(super) writers: BTreeSet<Guid>,
    pub(super) readers: BTreeSet<Guid>,
}

/// All pairs that match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    topics: BTreeMap<String, TopicEndpoints>,
    /// By writer and reader.
    matches: BTreeMap<(Guid, Guid), EndpointMatch>,
}

impl Pairs {
    pub(super) fn endpoints(&self, topic: &str) -> Option<&TopicEndpoints> {
        self.topics.get(topic)
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = (&str, &TopicEndpoints)> {
        self.topics.iter().map(|(name, endpoints)| (name.as_str(), endpoints))
    }

    pub(super) fn is_match(&self, writer: Guid, reader: Guid) -> bool {
        self.matches.contains_key(&(writer, reader))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Guid, Guid, &EndpointMatch)> {
        self.matches.iter().map(|((writer, reader), terms)| (*writer, *reader, terms))
    }

    /// Matches a new or changed writer with all readers of its topic.
    pub(super) fn put_writer(
        &mut self,
        writer: &WriterEntry,
        readers: &BTreeMap<Guid, ReaderEntry>,
        events: &mut Vec<DirectoryEvent>,
    ) {
        let endpoints = self.topics.entry(writer.description.topic.name.clone()).or_default();
        endpoints.writers.insert(writer.description.guid);
        for reader in endpoints.readers.iter().filter_map(|guid| readers.get(guid)) {
            pair(&mut self.matches, writer, reader, events);
        }
    }

    /// Matches a new or changed reader with all writers of its topic.
    pub(super) fn put_reader(
        &mut self,
        reader: &ReaderEntry,
        writers: &BTreeMap<Guid, WriterEntry>,
        events: &mut Vec<DirectoryEvent>,
    ) {
        let endpoints = self.topics.entry(reader.description.topic.name.clone()).or_default();
        endpoints.readers.insert(reader.description.guid);
        for writer in endpoints.writers.iter().filter_map(|guid| writers.get(guid)) {
            pair(&mut self.matches, writer, reader, events);
        }
    }

    /// Removes a writer, and returns whether the topic has no endpoint any more.
    pub(super) fn remove_writer(&mut self, topic: &str, writer: Guid) -> bool {
        let Some(endpoints) = self.topics.get_mut(topic) else { return false };
        endpoints.writers.remove(&writer);
        for reader in &endpoints.readers {
            self.matches.remove(&(writer, *reader));
        }
        self.forget_empty(topic)
    }

    /// Removes a reader, and returns whether the topic has no endpoint any more.
    pub(super) fn remove_reader(&mut self, topic: &str, reader: Guid) -> bool {
        let Some(endpoints) = self.topics.get_mut(topic) else { return false };
        endpoints.readers.remove(&reader);
        for writer in &endpoints.writers {
            self.matches.remove(&(*writer, reader));
        }
        self.forget_empty(topic)
    }

    fn forget_empty(&mut self, topic: &str) -> bool {
        let is_empty = self.topics.get(topic).is_some_and(|own| own.writers.is_empty() && own.readers.is_empty());
        is_empty && self.topics.remove(topic).is_some()
    }
}

/// Matches a pair. Events tell of a match that is new, has other terms or is gone, and of a mismatch.
fn pair(
    matches: &mut BTreeMap<(Guid, Guid), EndpointMatch>,
    writer: &WriterEntry,
    reader: &ReaderEntry,
    events: &mut Vec<DirectoryEvent>,
) {
    let (own, other) = (writer.description.guid, reader.description.guid);
    match match_endpoints(&writer.description, &reader.description) {
        Ok(terms) => {
            if matches.get(&(own, other)) != Some(&terms) {
                matches.insert((own, other), terms.clone());
                events.push(DirectoryEvent::Matched { writer: own, reader: other, terms: Box::new(terms) });
            }
        }
        Err(reasons) => {
            if matches.remove(&(own, other)).is_some() {
                events.push(DirectoryEvent::Unmatched { writer: own, reader: other });
            }
            events.push(DirectoryEvent::Mismatched {
                writer: own,
                reader: other,
                policies: reasons.iter().filter_map(Mismatch::policy).collect(),
                inconsistent_topic: reasons.iter().any(Mismatch::is_inconsistent_topic),
            });
        }
    }
}
