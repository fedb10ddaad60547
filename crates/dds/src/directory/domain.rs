//! Order domains: which topics have a common order, and which processes take part in it.
use super::entry::{ReaderEntry, WriterEntry};
use super::error::DirectoryError;
use super::pairs::Pairs;
use super::plan::{DomainPlan, StreamKind};
use crate::id::Guid;
use crate::policy::ConsistencyKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The part of an order domain that does not follow from the endpoints that there are now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Domain {
    pub(super) generation: u32,
    pub(super) level: ConsistencyKind,
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
    pub(super) fn stored(next: u32, all: BTreeMap<u32, Domain>) -> Domains {
        let of_topic = all.iter().flat_map(|(id, own)| own.topics.iter().map(|topic| (topic.clone(), *id))).collect();
        Domains { next, all, of_topic, plans: BTreeMap::new() }
    }

    pub(super) fn of_topic(&self, topic: &str) -> Option<u32> {
        self.of_topic.get(topic).copied()
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
        if !writer.has_group_order() {
            return Ok(bound);
        }
        let others = writers.values().filter(|other| other.publisher == writer.publisher);
        let publisher = others.filter_map(|other| self.of_topic(&other.description.topic.name)).next();
        match (bound, publisher) {
            (Some(bound), Some(publisher_domain)) if bound != publisher_domain => Err(DirectoryError::OrderDomains {
                topic: topic.clone(),
                bound,
                publisher: writer.publisher,
                publisher_domain,
            }),
            (bound, publisher) => Ok(bound.or(publisher)),
        }
    }

    /// Binds the topic of a writer, and returns the order domain.
    pub(super) fn bind(&mut self, topic: &str, level: ConsistencyKind, chosen: Option<u32>) -> u32 {
        let id = chosen.unwrap_or(self.next);
        self.next = self.next.max(id + 1);
        let domain = self.all.entry(id).or_insert_with(|| Domain { generation: 0, level, topics: BTreeSet::new() });
        let raised = domain.level.max(level);
        domain.generation += u32::from(StreamKind::from(raised) != StreamKind::from(domain.level));
        domain.level = raised;
        domain.topics.insert(topic.to_owned());
        self.of_topic.insert(topic.to_owned(), id);
        id
    }

    /// Frees a topic whose last writer went.
    pub(super) fn release(&mut self, topic: &str) {
        let Some(id) = self.of_topic.remove(topic) else { return };
        let Some(domain) = self.all.get_mut(&id) else { return };
        domain.topics.remove(topic);
        if domain.topics.is_empty() {
            self.all.remove(&id);
        }
    }

    /// Makes the plan of an order domain anew. Returns the plan if it is another one than before, or `None`
    /// in place of it if the order domain went.
    pub(super) fn plan_anew(
        &mut self,
        id: u32,
        pairs: &Pairs,
        writers: &BTreeMap<Guid, WriterEntry>,
        readers: &BTreeMap<Guid, ReaderEntry>,
        member_of: impl Fn(Guid) -> Option<u64>,
    ) -> Option<Option<DomainPlan>> {
        let Some(domain) = self.all.get(&id) else { return self.plans.remove(&id).map(|_| None) };
        let (mut members, mut senders, mut observers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut sample_bytes_max = 0;
        for endpoints in domain.topics.iter().filter_map(|topic| pairs.endpoints(topic)) {
            for writer in endpoints.writers.iter().filter_map(|guid| writers.get(guid)) {
                senders.extend(member_of(writer.participant));
                sample_bytes_max = sample_bytes_max.max(writer.sample_bytes_max);
            }
            for (guid, reader) in endpoints.readers.iter().filter_map(|guid| readers.get_key_value(guid)) {
                if endpoints.writers.iter().any(|writer| pairs.is_match(*writer, *guid)) {
                    let of = if reader.is_reliable() { &mut members } else { &mut observers };
                    of.extend(member_of(reader.participant));
                }
            }
        }
        members.extend(&senders);
        let plan = DomainPlan {
            domain: id,
            generation: domain.generation,
            level: domain.level,
            topics: domain.topics.iter().cloned().collect(),
            observers: observers.difference(&members).copied().collect(),
            members: members.into_iter().collect(),
            senders: senders.into_iter().collect(),
            sample_bytes_max,
        };
        if self.plans.get(&id) == Some(&plan) {
            return None;
        }
        self.plans.insert(id, plan.clone());
        Some(Some(plan))
    }
}
