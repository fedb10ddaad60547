//! Which samples are read or taken (DDS 2.2.2.5.3.8 to 2.2.2.5.3.20).
use super::cache::{ReaderCache, unknown};
use super::loans::{Loan, LoanId, Place, Selection};
use super::rules::Rules;
use crate::error::DdsError;
use crate::filter::{Query, SortKey};
use crate::id::InstanceHandle;
use crate::instance::{Instance, OrderKey, Sample, SampleData, SampleInfo, SampleState, StateMask, Stored, ViewState};
use crate::policy::PresentationQosPolicyAccessScopeKind;
use crate::time::DdsTime;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The instances from which samples are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All: `read`, `take`.
    Any,
    /// One: `read_instance`, `take_instance`.
    Instance(InstanceHandle),
    /// The first after a handle that has samples of the kind: `read_next_instance`,
    /// `take_next_instance`. `None` starts at the first one.
    NextInstance(Option<InstanceHandle>),
}

/// A selection of samples: each of `read`, `read_w_condition`, `read_next_sample`, `read_instance`,
/// `read_next_instance` and `read_next_instance_w_condition`, and the same of `take`.
#[derive(Clone, Copy, Debug)]
pub struct Select<'q> {
    scope: Scope,
    states: StateMask,
    query: Option<&'q Query>,
    max_samples: usize,
}

impl Default for Select<'_> {
    fn default() -> Self {
        Select { scope: Scope::Any, states: StateMask::ANY, query: None, max_samples: usize::MAX }
    }
}

impl<'q> Select<'q> {
    /// Selects all samples.
    pub fn any() -> Select<'q> {
        Select::default()
    }

    /// Selects the next sample that was not read: `read_next_sample` (DDS 2.2.2.5.3.12).
    pub fn next_sample() -> Select<'q> {
        Select::any().states(StateMask::ANY.sample(&[SampleState::NotRead])).max_samples(1)
    }

    /// Selects samples of some instances.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Select<'q> {
        Select { scope, ..self }
    }

    /// Selects samples with these states.
    #[must_use]
    pub fn states(self, states: StateMask) -> Select<'q> {
        Select { states, ..self }
    }

    /// Selects samples that pass a query, in its order: `read_w_condition`.
    #[must_use]
    pub fn query(self, query: &'q Query) -> Select<'q> {
        Select { query: Some(query), ..self }
    }

    /// Selects no more than this many samples.
    #[must_use]
    pub fn max_samples(self, max_samples: usize) -> Select<'q> {
        Select { max_samples, ..self }
    }
}

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Reads samples, which stay in the cache as read. All that is due is done first. The next
    /// [`poll`](ReaderCache::poll) or [`deliver`](ReaderCache::deliver) returns its effects.
    ///
    /// # Errors
    /// `NoData` if no sample is selected, `BadParameter` if the instance is unknown.
    pub fn read(&mut self, select: &Select<'_>, now: DdsTime) -> Result<Selection<P>, DdsError> {
        self.access(select, false, now)
    }

    /// Takes samples out of the cache, as [`ReaderCache::read`] reads them. RESOURCE_LIMITS count them until
    /// their loan is returned.
    ///
    /// # Errors
    /// As [`ReaderCache::read`].
    pub fn take(&mut self, select: &Select<'_>, now: DdsTime) -> Result<Selection<P>, DdsError> {
        self.access(select, true, now)
    }

    fn access(&mut self, select: &Select<'_>, takes: bool, now: DdsTime) -> Result<Selection<P>, DdsError> {
        self.advance(now);
        let picked = self.pick(select)?;
        let samples = self.fetch(&picked);
        Ok(Selection { samples, loan: self.settle(&picked, takes) })
    }

    /// Marks samples as read, or takes them out, and lends them. Samples and instances that are gone in the
    /// meantime are lent only.
    pub(super) fn settle(&mut self, picked: &[Place], takes: bool) -> LoanId {
        let mut loan = Loan::default();
        for run in runs(picked) {
            let handle = run[0].instance;
            let Some(instance) = self.instances.get_mut(&handle) else {
                for place in run.iter().filter(|place| place.has_data) {
                    self.rules.indices.lend_gone(handle, place.arrival);
                    loan.samples.push((handle, place.arrival));
                }
                continue;
            };
            if instance.view == ViewState::New && instance.life == run[0].life {
                self.rules.indices.change(instance, |instance| instance.view = ViewState::NotNew);
            }
            let before = instance.taken;
            for place in run {
                if !self.rules.settle(instance, place, takes) && place.has_data {
                    loan.samples.push((handle, place.arrival));
                }
            }
            instance.loans += 1;
            loan.instances.push((handle, instance.taken - before));
        }
        self.loan_next += 1;
        self.loans.insert(self.loan_next, loan);
        LoanId(self.loan_next)
    }

    /// Ends a loan: `return_loan` (DDS 2.2.2.5.3.20).
    ///
    /// # Errors
    /// `PreconditionNotMet` if the loan is not one of this reader, or was returned.
    pub fn return_loan(&mut self, loan: LoanId) -> Result<(), DdsError> {
        let Some(Loan { instances, samples }) = self.loans.remove(&loan.0) else {
            let what = format!("loan {} is not open at this reader", loan.0);
            return Err(DdsError::PreconditionNotMet { what, remedy: "return each loan once, where it was taken" });
        };
        for run in samples.chunk_by(|left, right| left.0 == right.0) {
            let mut instance = self.instances.get_mut(&run[0].0);
            for (handle, arrival) in run {
                if self.rules.indices.return_gone(*handle, *arrival) {
                    continue;
                }
                if let Some(instance) = &mut instance
                    && let Some(index) = instance.find(*arrival)
                {
                    instance.samples[index].loans -= 1;
                }
            }
        }
        for (handle, taken) in instances {
            self.rules.indices.taken -= taken as usize;
            if let Some(instance) = self.instances.get_mut(&handle) {
                instance.loans -= 1;
                instance.taken -= taken;
                if instance.is_garbage() {
                    self.collect(handle);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of open loans. A reader with loans can't be deleted (DDS 2.2.2.5.2.6).
    pub fn open_loans(&self) -> usize {
        self.loans.len()
    }

    /// Returns whether a query selects a sample with these states: the trigger of a query condition.
    pub fn has_match(&self, states: StateMask, query: Option<&Query>) -> bool {
        match query {
            None => self.rules.indices.tally.count(states) > 0,
            Some(query) => self.rules.indices.occupied.iter().any(|handle| {
                let Some(instance) = self.instances.get(handle) else { return false };
                let mut samples = instance.samples.iter();
                samples.any(|sample| matches(instance, sample, states) && place(instance, sample, query).is_some())
            }),
        }
    }

    /// Returns the places of samples with these states in ordered access.
    pub(super) fn order_of(&self, states: StateMask) -> impl Iterator<Item = OrderKey> {
        self.rules.indices.order.iter().filter_map(move |(key, handle)| {
            let instance = self.instances.get(handle)?;
            let sample = &instance.samples[instance.find(key.arrival)?];
            matches(instance, sample, states).then_some(*key)
        })
    }

    /// Returns the places of the samples that are selected.
    pub(super) fn pick(&self, select: &Select<'_>) -> Result<Vec<Place>, DdsError> {
        let mut max = select.max_samples;
        let found = match select.scope {
            Scope::Instance(handle) => {
                let instance = self.known(handle).ok_or_else(|| unknown(handle))?;
                candidates(handle, instance, select)
            }
            Scope::NextInstance(after) => {
                let after = after.map_or(Bound::Unbounded, Bound::Excluded);
                let mut next = self.rules.indices.occupied.range((after, Bound::Unbounded));
                next.find_map(|handle| {
                    let found = candidates(*handle, self.instances.get(handle)?, select);
                    (!found.is_empty()).then_some(found)
                })
                .unwrap_or_default()
            }
            Scope::Any if self.rules.settings.ordered => {
                // At GROUP scope the next sample may be in another reader, so there is one at a time.
                if self.rules.settings.scope == PresentationQosPolicyAccessScopeKind::Group {
                    max = max.min(1);
                }
                self.pick_ordered(select, max)
            }
            Scope::Any => {
                let mut found = Vec::new();
                for handle in &self.rules.indices.occupied {
                    if let Some(instance) = self.instances.get(handle) {
                        found.extend(candidates(*handle, instance, select));
                    }
                    if found.len() >= max && !select.query.is_some_and(Query::is_ordered) {
                        break;
                    }
                }
                found
            }
        };
        let picked = sorted(found, select.query, max);
        if picked.is_empty() { Err(DdsError::NoData) } else { Ok(picked) }
    }

    fn pick_ordered(&self, select: &Select<'_>, max: usize) -> Vec<(Option<SortKey>, Place)> {
        let early = !select.query.is_some_and(Query::is_ordered);
        let mut found = Vec::new();
        for (key, handle) in &self.rules.indices.order {
            let Some(instance) = self.instances.get(handle) else { continue };
            let Some(sample) = instance.find(key.arrival).map(|at| &instance.samples[at]) else { continue };
            found.extend(candidate(*handle, instance, sample, select));
            if early && found.len() >= max {
                break;
            }
        }
        found
    }

    /// Returns samples with the information about them, with their ranks (DDS 2.2.2.5.1.5 to 2.2.2.5.1.8).
    pub(super) fn fetch(&self, picked: &[Place]) -> Vec<Sample<P>> {
        // With ordered access, and with an ORDER BY, an instance may have several runs.
        let mut totals: BTreeMap<InstanceHandle, Total> = BTreeMap::new();
        let mut last = None;
        let ascending = runs(picked).all(|run| last.replace(run[0].instance) < Some(run[0].instance));
        if !ascending {
            for run in runs(picked) {
                totals.entry(run[0].instance).or_default().add(&self.total(run));
            }
        }
        let mut samples = Vec::with_capacity(picked.len());
        for run in runs(picked) {
            let Some(instance) = self.instances.get(&run[0].instance) else { continue };
            let mut own = None;
            let total = match totals.get_mut(&instance.handle) {
                Some(total) => total,
                None => own.insert(self.total(run)),
            };
            for place in run {
                let Some(sample) = instance.find(place.arrival).map(|at| &instance.samples[at]) else { continue };
                total.left -= 1;
                let info = info(instance, sample, total.left, total.generations);
                let data = sample.data.clone().map_or_else(|| SampleData::Key(instance.key()), SampleData::Value);
                samples.push(Sample { info, data });
            }
        }
        samples
    }

    /// Returns the number of samples in a run, and the generations of the most recent one.
    fn total(&self, run: &[Place]) -> Total {
        let newest = run.iter().map(|place| place.arrival).max();
        let generations = newest.and_then(|newest| {
            let instance = self.instances.get(&run[0].instance)?;
            Some(instance.samples[instance.find(newest)?].generations())
        });
        Total { left: run.len() as u32, generations: generations.unwrap_or_default() }
    }
}

impl Rules {
    /// Marks a sample as read, or takes it out. Returns whether the loan holds it by the count of its instance:
    /// no other loan does, and the cache does not.
    fn settle<P>(&mut self, instance: &mut Instance<P>, place: &Place, takes: bool) -> bool {
        let Some(index) = instance.find(place.arrival) else {
            if place.has_data {
                self.indices.lend_gone(place.instance, place.arrival);
            }
            return false;
        };
        let alone = takes && instance.samples[index].loans == 0;
        if alone {
            instance.taken += u32::from(place.has_data);
            self.indices.taken += usize::from(place.has_data);
        } else {
            instance.samples[index].loans += u32::from(place.has_data);
        }
        if takes {
            self.indices.remove(&self.settings, instance, index);
        } else if !instance.samples[index].read {
            self.indices.change(instance, |instance| {
                instance.unread -= 1;
                instance.samples[index].read = true;
            });
        }
        alone
    }
}

/// Returns the runs of samples of one instance.
fn runs(picked: &[Place]) -> impl Iterator<Item = &[Place]> {
    picked.chunk_by(|left, right| left.instance == right.instance)
}

/// The samples of an instance in a collection.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// The samples that are still to be described.
    left: u32,
    /// The generations of the most recent one.
    generations: u32,
}

impl Total {
    fn add(&mut self, other: &Total) {
        self.left += other.left;
        self.generations = self.generations.max(other.generations);
    }
}

fn info<P>(instance: &Instance<P>, sample: &Stored<P>, sample_rank: u32, newest: u32) -> SampleInfo {
    SampleInfo {
        sample_state: sample.state(),
        view_state: instance.view,
        instance_state: instance.state,
        source_timestamp: sample.source_timestamp,
        reception_timestamp: sample.reception,
        instance_handle: instance.handle,
        publication_handle: sample.writer.into(),
        disposed_generation_count: sample.disposed_generation,
        no_writers_generation_count: sample.no_writers_generation,
        sample_rank,
        generation_rank: newest - sample.generations(),
        absolute_generation_rank: instance.generations() - sample.generations(),
        valid_data: sample.data.is_some(),
        position: sample.position,
    }
}

fn matches<P>(instance: &Instance<P>, sample: &Stored<P>, states: StateMask) -> bool {
    states.contains(sample.state(), instance.view, instance.state)
}

/// Returns the place of a sample in the order of a query; `None` if it does not pass. A sample that can't
/// be decoded does not.
fn place<P: AsRef<[u8]>>(instance: &Instance<P>, sample: &Stored<P>, query: &Query) -> Option<SortKey> {
    match &sample.data {
        Some(data) => query.select(data.as_ref(), false).ok().flatten(),
        None => query.select(&instance.key(), true).ok().flatten(),
    }
}

fn candidate<P: AsRef<[u8]>>(
    handle: InstanceHandle,
    instance: &Instance<P>,
    sample: &Stored<P>,
    select: &Select<'_>,
) -> Option<(Option<SortKey>, Place)> {
    if !matches(instance, sample, select.states) {
        return None;
    }
    let key = match select.query {
        Some(query) => Some(place(instance, sample, query)?),
        None => None,
    };
    let (arrival, life, has_data) = (sample.arrival, instance.life, sample.data.is_some());
    Some((key, Place { instance: handle, arrival, life, has_data }))
}

fn candidates<P: AsRef<[u8]>>(
    handle: InstanceHandle,
    instance: &Instance<P>,
    select: &Select<'_>,
) -> Vec<(Option<SortKey>, Place)> {
    instance.samples.iter().filter_map(|sample| candidate(handle, instance, sample, select)).collect()
}

fn sorted(mut found: Vec<(Option<SortKey>, Place)>, query: Option<&Query>, max: usize) -> Vec<Place> {
    if query.is_some_and(Query::is_ordered) {
        found.sort_by(|left, right| left.0.cmp(&right.0));
    }
    found.truncate(max);
    found.into_iter().map(|(_, place)| place).collect()
}
