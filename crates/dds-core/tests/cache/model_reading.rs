//! The second reader: which samples it returns, loans, and a new reader with its state.
use crate::model::{Model, ModelSample};
use crate::support::*;
use spindle_dds_core::InstanceHandle;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::*;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Model {
    /// Forgets what belongs to one application: loans and counters. Returns the effects on a new reader.
    pub(crate) fn rejoin(&mut self) -> Effects {
        self.samples.iter_mut().for_each(|sample| sample.loans = 0);
        self.instances.values_mut().for_each(|own| own.loans = 0);
        (self.lent, self.loans) = (Vec::new(), Vec::new());
        self.collect();
        self.counters = CacheCounters::default();
        let each = self.writers.iter();
        let liveness = each.map(|(writer, own)| WriterLiveness { writer: *writer, before: None, now: Some(own.2) });
        Effects { liveness: liveness.collect(), data_available: !self.samples.is_empty(), ..Effects::default() }
    }

    pub(crate) fn count(&self, states: StateMask) -> usize {
        self.samples.iter().filter(|sample| self.selects(sample, states)).count()
    }

    fn selects(&self, sample: &ModelSample, states: StateMask) -> bool {
        let own = &self.instances[&sample.instance];
        let read = if sample.read { SampleState::Read } else { SampleState::NotRead };
        states.contains(read, if own.seen { ViewState::NotNew } else { ViewState::New }, own.state)
    }

    /// Reads or takes; `None` if the instance is unknown. An empty list is NO_DATA. The loan of the samples
    /// stays open if the flag is set.
    pub(crate) fn access(
        &mut self,
        scope: Scope,
        states: StateMask,
        max: usize,
        takes: bool,
        lends: bool,
        now: i64,
    ) -> Option<Vec<Sample<Payload>>> {
        self.catch_up(now);
        let mut found: Vec<ModelSample> = self.samples.clone();
        found.retain(|sample| self.selects(sample, states));
        match scope {
            Scope::Instance(InstanceHandle(key)) => {
                self.instances.get(&key[0]).filter(|own| own.known)?;
                found.retain(|sample| sample.instance == key[0]);
            }
            Scope::NextInstance(after) => {
                found.retain(|sample| after.is_none_or(|after| handle(sample.instance) > after));
                let first = found.iter().map(|sample| sample.instance).min();
                found.retain(|sample| Some(sample.instance) == first);
            }
            Scope::Any => {}
        }
        if !self.policies.ordered || scope != Scope::Any {
            found.sort_by_key(|sample| sample.instance);
        } else if self.policies.by_source {
            found.sort_by_key(|sample| (sample.source, sample.writer, sample.position.place()));
        } else {
            found.sort_by_key(|sample| sample.position.place());
        }
        found.truncate(max);
        let samples = self.describe(&found);
        let touched: BTreeSet<u8> = found.iter().map(|sample| sample.instance).collect();
        let ids: Vec<u64> = found.iter().map(|sample| sample.id).collect();
        for sample in self.samples.iter_mut().filter(|sample| ids.contains(&sample.id)) {
            sample.read = true;
            sample.loans += usize::from(lends);
        }
        if takes {
            self.remove(|sample| ids.contains(&sample.id));
        }
        for key in &touched {
            let own = self.instances.get_mut(key).unwrap();
            own.seen = true;
            own.loans += usize::from(lends);
        }
        if lends && !found.is_empty() {
            self.loans.push((touched, ids));
        }
        self.collect();
        Some(samples)
    }

    /// Returns a loan, by its place among those that are open.
    pub(crate) fn return_loan(&mut self, index: usize) {
        let (keys, ids) = self.loans.swap_remove(index);
        for sample in self.samples.iter_mut().chain(&mut self.lent).filter(|sample| ids.contains(&sample.id)) {
            sample.loans -= 1;
        }
        self.lent.retain(|sample| sample.loans > 0);
        for key in keys {
            self.instances.get_mut(&key).unwrap().loans -= 1;
        }
        self.collect();
    }

    fn describe(&self, found: &[ModelSample]) -> Vec<Sample<Payload>> {
        let total = |sample: &ModelSample| sample.generations.0 + sample.generations.1;
        let mut described = Vec::new();
        for (index, sample) in found.iter().enumerate() {
            let own = &self.instances[&sample.instance];
            let of_instance = |other: &&ModelSample| other.instance == sample.instance;
            let newest = found.iter().filter(of_instance).map(total).max().unwrap();
            described.push(Sample {
                info: SampleInfo {
                    sample_state: if sample.read { SampleState::Read } else { SampleState::NotRead },
                    view_state: if own.seen { ViewState::NotNew } else { ViewState::New },
                    instance_state: own.state,
                    source_timestamp: at(sample.source),
                    reception_timestamp: at(sample.received),
                    instance_handle: handle(sample.instance),
                    publication_handle: sample.writer.into(),
                    disposed_generation_count: sample.generations.0,
                    no_writers_generation_count: sample.generations.1,
                    sample_rank: found[index + 1..].iter().filter(of_instance).count() as u32,
                    generation_rank: newest - total(sample),
                    absolute_generation_rank: own.generations.0 + own.generations.1 - total(sample),
                    valid_data: sample.value.is_some(),
                    position: sample.position,
                },
                data: match sample.value {
                    Some(value) => SampleData::Value(Arc::from([sample.instance, value])),
                    None => SampleData::Key(Arc::from([sample.instance])),
                },
            });
        }
        described
    }
}
