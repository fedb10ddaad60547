//! The pairs of writers and readers of one topic, and whether they match.
use super::entry::{ReaderEntry, WriterEntry};
use super::event::DirectoryEvent;
use crate::id::Guid;
use crate::matching::{EndpointMatch, Mismatch, match_endpoints};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a pair: the terms of its match, or all reasons against one.
pub(super) type PairState = Result<EndpointMatch, Vec<Mismatch>>;

/// The endpoints of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopicEndpoints {
    pub(super) writers: BTreeSet<Guid>,
    pub(super) readers: BTreeSet<Guid>,
}

/// All pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    topics: BTreeMap<String, TopicEndpoints>,
    /// By writer and reader.
    states: BTreeMap<(Guid, Guid), PairState>,
}

impl Pairs {
    pub(super) fn endpoints(&self, topic: &str) -> Option<&TopicEndpoints> {
        self.topics.get(topic)
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = (&str, &TopicEndpoints)> {
        self.topics.iter().map(|(name, endpoints)| (name.as_str(), endpoints))
    }

    pub(super) fn state(&self, writer: Guid, reader: Guid) -> Option<&PairState> {
        self.states.get(&(writer, reader))
    }

    pub(super) fn is_match(&self, writer: Guid, reader: Guid) -> bool {
        matches!(self.state(writer, reader), Some(Ok(_)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Guid, Guid, &PairState)> {
        self.states.iter().map(|((writer, reader), state)| (*writer, *reader, state))
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
            pair(&mut self.states, writer, reader, events);
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
            pair(&mut self.states, writer, reader, events);
        }
    }

    pub(super) fn remove_writer(&mut self, topic: &str, writer: Guid) {
        let Some(endpoints) = self.topics.get_mut(topic) else { return };
        endpoints.writers.remove(&writer);
        for reader in &endpoints.readers {
            self.states.remove(&(writer, *reader));
        }
        self.forget_empty(topic);
    }

    pub(super) fn remove_reader(&mut self, topic: &str, reader: Guid) {
        let Some(endpoints) = self.topics.get_mut(topic) else { return };
        endpoints.readers.remove(&reader);
        for writer in &endpoints.writers {
            self.states.remove(&(*writer, reader));
        }
        self.forget_empty(topic);
    }

    fn forget_empty(&mut self, topic: &str) {
        if self.topics.get(topic).is_some_and(|own| own.writers.is_empty() && own.readers.is_empty()) {
            self.topics.remove(topic);
        }
    }
}

/// Computes the state of a pair. An event tells if it differs from the state before.
fn pair(
    states: &mut BTreeMap<(Guid, Guid), PairState>,
    writer: &WriterEntry,
    reader: &ReaderEntry,
    events: &mut Vec<DirectoryEvent>,
) {
    let (own, other) = (writer.description.guid, reader.description.guid);
    let state = match_endpoints(&writer.description, &reader.description);
    let before = states.get(&(own, other));
    if before == Some(&state) {
        return;
    }
    if let (Some(Ok(_)), Err(_)) = (before, &state) {
        events.push(DirectoryEvent::Unmatched { writer: own, reader: other });
    }
    events.push(match &state {
        Ok(terms) => DirectoryEvent::Matched { writer: own, reader: other, terms: Box::new(terms.clone()) },
        Err(reasons) => DirectoryEvent::Mismatched { writer: own, reader: other, reasons: reasons.clone() },
    });
    states.insert((own, other), state);
}
