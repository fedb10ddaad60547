//! Order domains: which topics have a common order, and which processes take part in it.
use super::entry::{ReaderEntry, WriterEntry};
use super::error::DirectoryError;
use super::pairs::Pairs;
use super::plan::{DomainPlan, StreamKind};
use crate::id::Guid;
use crate::policy::ConsistencyKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most order domains. Each is a subgroup, of which a group has 1,024.
const DOMAINS_MAX: usize = 1000;
/// The longest header of a sample, in bytes.
const HEADER_BYTES_MAX: u32 = 64;
/// The bytes of the end of a coherent set: its head, and the part of each writer.
const SET_END_BYTES: (u32, u32) = (32, 8);

/// The part of an order domain that does not follow from the endpoints that there are now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Domain {
    /// The version of the directory with its last change.
    pub(super) version: u64,
    pub(super) generation: u32,
    pub(super) level: ConsistencyKind,
    pub(super) message_bytes_max: u32,
    pub(super) topics: BTreeSet<String>,
}

/// All order domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Domains {
    pub(super) next: u32,
    pub(super) all: BTreeMap<u32, Domain>,
    of_topic: BTreeMap<String, u32>,
    plans: BTreeMap<u32, DomainPlan>,
}

impl Domains {
    /// Takes over serialised order domains.
    pub(super) fn stored(next: u32, all: BTreeMap<u32, Domain>) -> Result<Domains, DirectoryError> {
        let mut of_topic = BTreeMap::new();
        for (id, domain) in &all {
            let is_wrong = |topic: &String| of_topic.insert(topic.clone(), *id).is_some();
            if *id >= next || domain.topics.is_empty() || domain.topics.iter().any(is_wrong) {
                return Err(DirectoryError::Damaged(format!("order domain {id}")));
            }
        }
        Ok(Domains { next, all, of_topic, plans: BTreeMap::new() })
    }

    pub(super) fn of_topic(&self, topic: &str) -> Option<u32> {
        self.of_topic.get(topic).copied()
    }

    /// Returns the version of the directory with the last change of a domain.
    pub(super) fn version(&self, domain: u32) -> Option<u64> {
        self.all.get(&domain).map(|own| own.version)
    }

    /// Returns all order domains with their versions.
    pub(super) fn versions(&self) -> Vec<(u32, u64)> {
        self.all.iter().map(|(id, own)| (*id, own.version)).collect()
    }

    pub(super) fn plan(&self, domain: u32) -> Option<&DomainPlan> {
        self.plans.get(&domain)
    }

    pub(super) fn plans(&self) -> impl Iterator<Item = &DomainPlan> {
        self.plans.values()
    }

    /// Finds the order domain for a new writer: that of its topic, that of its publisher's topics, or a new
    /// one (`None`).
    pub(super) fn choose(
        &self,
        writer: &WriterEntry,
        writers: &BTreeMap<Guid, WriterEntry>,
    ) -> Result<Option<u32>, DirectoryError> {
        let topic = &writer.description.topic.name;
        let bound = self.of_topic(topic);
        let others = writers.values().filter(|other| writer.has_group_order() && other.publisher == writer.publisher);
        let publisher = others.filter_map(|other| self.of_topic(&other.description.topic.name)).next();
        match (bound, publisher) {
            (Some(bound), Some(publisher_domain)) if bound != publisher_domain => Err(DirectoryError::OrderDomains {
                topic: topic.clone(),
                bound,
                publisher: writer.publisher,
                publisher_domain,
            }),
            (None, None) if self.all.len() >= DOMAINS_MAX || self.next == u32::MAX => Err(DirectoryError::TooMany {
                what: "order domains".to_owned(),
                count: self.all.len() as u64,
                limit: DOMAINS_MAX as u64,
            }),
            (bound, publisher) => Ok(bound.or(publisher)),
        }
    }

    /// Binds the topic of a writer.
    pub(super) fn bind(&mut self, topic: &str, level: ConsistencyKind, chosen: Option<u32>) {
        let id = chosen.unwrap_or(self.next);
        self.next = self.next.max(id + 1);
        let domain = self.all.entry(id).or_insert_with(|| Domain {
            version: 0,
            generation: 0,
            level,
            message_bytes_max: 0,
            topics: BTreeSet::new(),
        });
        let raised = domain.level.max(level);
        domain.generation += u32::from(StreamKind::from(raised) != StreamKind::from(domain.level));
        domain.level = raised;
        domain.topics.insert(topic.to_owned());
        self.of_topic.insert(topic.to_owned(), id);
    }

    /// Frees a topic without endpoints.
    pub(super) fn release(&mut self, topic: &str) {
        let Some(id) = self.of_topic.remove(topic) else { return };
        let Some(domain) = self.all.get_mut(&id) else { return };
        domain.topics.remove(topic);
        if domain.topics.is_empty() {
            self.all.remove(&id);
        }
    }

    /// Makes the plan of an order domain anew that a command of this version has changed. Returns the plan if it
    /// is another one than before, or `None` in place of it if the order domain went.
    pub(super) fn plan_anew(
        &mut self,
        id: u32,
        version: u64,
        pairs: &Pairs,
        writers: &BTreeMap<Guid, WriterEntry>,
        readers: &BTreeMap<Guid, ReaderEntry>,
        member_of: impl Fn(Guid) -> Option<u64>,
    ) -> Option<Option<DomainPlan>> {
        let Some(domain) = self.all.get_mut(&id) else { return self.plans.remove(&id).map(|_| None) };
        let (mut members, mut senders, mut observers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut bytes, mut count) = (domain.message_bytes_max, 0);
        for endpoints in domain.topics.iter().filter_map(|topic| pairs.endpoints(topic)) {
            for writer in endpoints.writers.iter().filter_map(|guid| writers.get(guid)) {
                senders.extend(member_of(writer.participant));
                bytes = bytes.max(writer.sample_bytes_max + HEADER_BYTES_MAX);
                count += 1;
            }
            for (guid, reader) in endpoints.readers.iter().filter_map(|guid| readers.get_key_value(guid)) {
                if endpoints.writers.iter().any(|writer| pairs.is_match(*writer, *guid)) {
                    let of = if reader.is_reliable() { &mut members } else { &mut observers };
                    of.extend(member_of(reader.participant));
                }
            }
        }
        members.extend(&senders);
        domain.version = version;
        domain.message_bytes_max = bytes.max(SET_END_BYTES.0 + SET_END_BYTES.1 * count);
        let plan = DomainPlan {
            domain: id,
            version,
            generation: domain.generation,
            level: domain.level,
            topics: domain.topics.iter().cloned().collect(),
            observers: observers.difference(&members).copied().collect(),
            members: members.into_iter().collect(),
            senders: senders.into_iter().collect(),
            message_bytes_max: domain.message_bytes_max,
        };
        let before = self.plans.insert(id, plan.clone());
        let is_same = before.is_some_and(|before| DomainPlan { version, ..before } == plan);
        (!is_same).then_some(Some(plan))
    }
}
