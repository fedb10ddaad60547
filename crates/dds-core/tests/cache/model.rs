//! A second reader, written after the clauses of the specification: lists, and a look at everything for
//! every answer. It has none of the cache's indices, timers or counts.
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::*;
use spindle_dds_core::policy::HistoryQosPolicyKind;
use spindle_dds_core::{DdsTime, Guid, Position};
use std::collections::{BTreeMap, BTreeSet};

/// The policies, as plain numbers. `None` is no bound.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    pub(crate) depth: Option<usize>,
    pub(crate) max_samples: Option<usize>,
    pub(crate) max_instances: Option<usize>,
    pub(crate) max_per_instance: Option<usize>,
    pub(crate) by_source: bool,
    pub(crate) exclusive: bool,
    pub(crate) reliable: bool,
    pub(crate) ordered: bool,
    pub(crate) separation: i64,
    pub(crate) deadline: Option<i64>,
    pub(crate) purge_disposed: Option<i64>,
    pub(crate) purge_no_writers: Option<i64>,
}

impl Policies {
    pub(crate) fn history(&self) -> HistoryQosPolicyKind {
        self.depth.map_or(HistoryQosPolicyKind::KeepAll, |depth| HistoryQosPolicyKind::KeepLast(depth as u32))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ModelSample {
    /// A number of its own, 0 until it is visible.
    pub(crate) id: u64,
    pub(crate) loans: usize,
    pub(crate) instance: u8,
    pub(crate) writer: Guid,
    pub(crate) value: Option<u8>,
    pub(crate) source: i64,
    pub(crate) received: i64,
    pub(crate) position: Position,
    pub(crate) generations: (u32, u32),
    pub(crate) read: bool,
    pub(crate) expires: Option<i64>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelInstance {
    /// Whether the application may know it.
    pub(crate) known: bool,
    pub(crate) state: InstanceState,
    pub(crate) seen: bool,
    pub(crate) generations: (u32, u32),
    /// The writers, whether each may own the instance, and where it has written last.
    pub(crate) writers: BTreeMap<Guid, (bool, Option<Position>)>,
    pub(crate) newest: Option<(i64, Guid)>,
    pub(crate) accepted: Option<i64>,
    pub(crate) pending: Option<ModelSample>,
    pub(crate) period_from: Option<i64>,
    pub(crate) ended: Option<i64>,
    pub(crate) loans: usize,
}

/// The strength, the lifespan and the liveliness of a writer.
pub(crate) type ModelWriter = (i32, Option<i64>, bool);

/// The reader.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) policies: Policies,
    pub(crate) instances: BTreeMap<u8, ModelInstance>,
    /// All samples, in the order in which they became visible.
    pub(crate) samples: Vec<ModelSample>,
    pub(crate) writers: BTreeMap<Guid, ModelWriter>,
    /// The writers that went away, how and where.
    pub(crate) departed: BTreeMap<Guid, (ModelWriter, WriterEnd, Position)>,
    pub(crate) counters: CacheCounters,
    pub(crate) ids: u64,
    /// The samples with data that are lent, and no longer in the cache.
    pub(crate) lent: Vec<ModelSample>,
    /// The open loans: instances and samples.
    pub(crate) loans: Vec<(BTreeSet<u8>, Vec<u64>)>,
    pub(crate) now: i64,
    pub(crate) policies_since: i64,
    /// The effects of the passage of time that were not returned.
    pub(crate) owed: Effects,
}

impl Model {
    pub(crate) fn new(policies: Policies) -> Model {
        Model {
            policies,
            instances: BTreeMap::new(),
            samples: Vec::new(),
            writers: BTreeMap::new(),
            departed: BTreeMap::new(),
            counters: CacheCounters::default(),
            ids: 0,
            lent: Vec::new(),
            loans: Vec::new(),
            now: 0,
            policies_since: 0,
            owed: Effects::default(),
        }
    }

    pub(crate) fn instance(&self, key: u8) -> Option<InstanceInfo> {
        let own = self.instances.get(&key).filter(|own| own.known)?;
        Some(InstanceInfo {
            state: own.state,
            view: if own.seen { ViewState::NotNew } else { ViewState::New },
            writers: own.writers.keys().copied().collect(),
            owner: self.owner(key),
            samples: self.samples.iter().filter(|sample| sample.instance == key).count(),
        })
    }

    fn owner(&self, key: u8) -> Option<Guid> {
        if !self.policies.exclusive {
            return None;
        }
        let mut best: Option<(i32, Guid)> = None;
        for (guid, (candidate, _)) in &self.instances.get(&key)?.writers {
            let strength = self.writers.get(guid)?.0;
            // Identities grow, so an equal strength does not replace the smaller one.
            if *candidate && best.is_none_or(|(other, _)| strength > other) {
                best = Some((strength, *guid));
            }
        }
        best.map(|(_, guid)| guid)
    }

    fn valid(&self, key: u8) -> usize {
        self.samples.iter().filter(|sample| sample.instance == key && sample.value.is_some()).count()
    }

    fn oldest(&self, key: u8) -> Option<usize> {
        self.samples.iter().position(|own| own.instance == key && own.value.is_some())
    }

    /// Removes samples, and returns how many there were.
    pub(crate) fn remove(&mut self, goes: impl Fn(&ModelSample) -> bool) -> u64 {
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.samples).into_iter().partition(goes);
        self.samples = stay;
        let count = gone.len() as u64;
        self.lent.extend(gone.into_iter().filter(|sample| sample.loans > 0 && sample.value.is_some()));
        count
    }

    fn push(&mut self, mut sample: ModelSample) {
        self.ids += 1;
        sample.id = self.ids;
        self.samples.push(sample);
    }

    pub(crate) fn admits(&self, key: u8) -> Result<(), RejectedReason> {
        let full = |used: usize, limit: Option<usize>| limit.is_some_and(|limit| used >= limit);
        let all = self.samples.iter().filter(|sample| sample.value.is_some()).count() + self.lent.len();
        let lent = self.lent.iter().filter(|sample| sample.instance == key).count();
        let is_oldest_free = self.oldest(key).is_none_or(|oldest| self.samples[oldest].loans == 0);
        if !self.is_known(key) && full(self.known(), self.policies.max_instances) {
            Err(RejectedReason::Instances)
        } else if is_oldest_free && self.policies.depth.is_some_and(|depth| self.valid(key) >= depth) {
            Ok(())
        } else if full(self.valid(key) + lent, self.policies.max_per_instance) {
            Err(RejectedReason::SamplesPerInstance)
        } else if full(all, self.policies.max_samples) {
            Err(RejectedReason::Samples)
        } else {
            Ok(())
        }
    }

    fn is_known(&self, key: u8) -> bool {
        self.instances.get(&key).is_some_and(|own| own.known)
    }

    fn known(&self) -> usize {
        self.instances.values().filter(|own| own.known).count()
    }

    fn reject(&mut self, key: u8, reason: RejectedReason, effects: &mut Effects) {
        self.counters.rejected += 1;
        effects.rejected.push((reason, handle(key)));
    }

    pub(crate) fn deliver(&mut self, position: Position, event: &ReaderEvent<Payload>, now: i64) -> Effects {
        self.catch_up(now);
        let mut effects = std::mem::take(&mut self.owed);
        let liveness = |writer, before, now| WriterLiveness { writer, before, now };
        match event {
            ReaderEvent::Change(change) => {
                let guid = change.writer;
                if let Some(writer) = self.writers.get_mut(&guid) {
                    if !std::mem::replace(&mut writer.2, true) {
                        effects.liveness.push(liveness(guid, Some(false), Some(true)));
                    }
                    self.change(position, change, now, &mut effects);
                    return effects;
                }
                let Some((writer, end, place)) = self.departed.get(&guid).cloned().filter(|own| position < own.2)
                else {
                    self.counters.unmatched += 1;
                    return effects;
                };
                // The writer is there for the change, and goes away at its own place.
                self.writers.insert(guid, writer);
                self.change(position, change, now, &mut effects);
                self.leave(guid, end, place, now, &mut effects);
                self.writers.remove(&guid);
            }
            ReaderEvent::WriterMatched(info) => {
                let lifespan = (!info.lifespan.is_infinite()).then_some(info.lifespan.as_nanos() as i64);
                let alive = self.writers.get(&info.guid).map(|writer| writer.2);
                self.writers.insert(info.guid, (info.strength, lifespan, info.alive));
                self.departed.remove(&info.guid);
                if alive != Some(info.alive) {
                    effects.liveness.push(liveness(info.guid, alive, Some(info.alive)));
                    if !info.alive {
                        for key in self.instances_of(info.guid) {
                            self.unregister(key, info.guid, None, position, now, &mut effects);
                        }
                    }
                }
            }
            ReaderEvent::WriterUnmatched(guid, end) => {
                let Some((strength, lifespan, alive)) = self.writers.get(guid).copied() else { return effects };
                self.leave(*guid, *end, position, now, &mut effects);
                self.writers.remove(guid);
                self.departed.insert(*guid, ((strength, lifespan, true), *end, position));
                effects.liveness.push(liveness(*guid, Some(alive), None));
            }
            ReaderEvent::WriterDeparted(info, end) => {
                if !self.writers.contains_key(&info.guid) {
                    let lifespan = (!info.lifespan.is_infinite()).then_some(info.lifespan.as_nanos() as i64);
                    self.departed.insert(info.guid, ((info.strength, lifespan, true), *end, position));
                }
            }
            ReaderEvent::WriterAlive(guid, alive) => match self.writers.get_mut(guid) {
                Some(writer) if writer.2 != *alive => {
                    writer.2 = *alive;
                    effects.liveness.push(liveness(*guid, Some(!alive), Some(*alive)));
                    if !alive {
                        for key in self.instances_of(*guid) {
                            self.unregister(key, *guid, None, position, now, &mut effects);
                        }
                    }
                }
                _ => {}
            },
            ReaderEvent::DeadlineVerdict(verdict) => {
                if let Some(own) = self.instances.get_mut(&verdict.instance.0[0])
                    && let Some((candidate, last)) = own.writers.get_mut(&verdict.writer)
                    && *last == Some(verdict.last)
                {
                    *candidate = false;
                }
            }
            ReaderEvent::SamplesLost(count) => effects.lost += count,
            ReaderEvent::SetEnd(_) | ReaderEvent::SetAbandoned(_) | ReaderEvent::History(_) => {}
        }
        effects
    }

    fn leave(&mut self, guid: Guid, end: WriterEnd, position: Position, now: i64, effects: &mut Effects) {
        for key in self.instances_of(guid) {
            let disposes = end == (WriterEnd::Deleted { autodispose: true });
            if disposes && self.is_known(key) && self.may_change(key, guid) {
                self.end(key, guid, InstanceState::NotAliveDisposed, None, position, now, effects);
            }
            self.unregister(key, guid, None, position, now, effects);
        }
    }

    fn instances_of(&self, guid: Guid) -> Vec<u8> {
        self.instances.iter().filter(|(_, own)| own.writers.contains_key(&guid)).map(|(key, _)| *key).collect()
    }

    fn may_change(&mut self, key: u8, guid: Guid) -> bool {
        let may = !self.policies.exclusive || self.owner(key) == Some(guid);
        self.counters.not_owned += u64::from(!may);
        may
    }

    fn create(&mut self, key: u8) {
        if self.instances.contains_key(&key) {
            return;
        }
        let own = ModelInstance {
            known: false,
            state: InstanceState::Alive,
            seen: false,
            generations: (0, 0),
            writers: BTreeMap::new(),
            newest: None,
            accepted: None,
            pending: None,
            period_from: None,
            ended: None,
            loans: 0,
        };
        self.instances.insert(key, own);
    }

    fn is_late(&mut self, key: u8, source: i64, guid: Guid) -> bool {
        let own = self.instances.get_mut(&key).unwrap();
        if self.policies.by_source && own.newest.is_some_and(|newest| newest > (source, guid)) {
            self.counters.late += 1;
            return true;
        }
        own.newest = Some((source, guid));
        false
    }

    fn change(&mut self, position: Position, change: &CacheChange<Payload>, now: i64, effects: &mut Effects) {
        let (key, guid, source) = (change.payload[0], change.writer, change.source_timestamp.as_nanos());
        self.create(key);
        match change.kind {
            Write => {
                self.instances.get_mut(&key).unwrap().writers.insert(guid, (true, Some(position)));
                if !self.may_change(key, guid) || self.is_late(key, source, guid) {
                    return;
                }
                let expires = self.writers[&guid].1.map(|lifespan| source + lifespan);
                if expires.is_some_and(|expires| expires <= now) {
                    self.counters.expired += 1;
                    return;
                }
                if !self.is_known(key) {
                    if let Err(reason) = self.admits(key) {
                        return self.reject(key, reason, effects);
                    }
                    self.instances.get_mut(&key).unwrap().known = true;
                }
                let sample = ModelSample {
                    id: 0,
                    loans: 0,
                    instance: key,
                    writer: guid,
                    value: Some(change.payload[1]),
                    source,
                    received: now,
                    position,
                    generations: (0, 0),
                    read: false,
                    expires,
                };
                let own = self.instances.get_mut(&key).unwrap();
                own.period_from = Some(now);
                if own.accepted.is_some_and(|accepted| now < accepted + self.policies.separation) {
                    let dropped = if self.policies.reliable { own.pending.replace(sample) } else { Some(sample) };
                    self.counters.separated += u64::from(dropped.is_some());
                    return;
                }
                self.accept(sample, effects);
            }
            Register => {
                self.instances.get_mut(&key).unwrap().writers.entry(guid).or_insert((false, None));
            }
            Unregister => self.unregister(key, guid, Some(source), position, now, effects),
            Dispose | DisposeUnregister => {
                self.instances.get_mut(&key).unwrap().writers.insert(guid, (true, Some(position)));
                if self.may_change(key, guid) && !self.is_late(key, source, guid) {
                    if !self.is_known(key) && self.policies.max_instances.is_some_and(|limit| self.known() >= limit) {
                        self.reject(key, RejectedReason::Instances, effects);
                    } else {
                        self.instances.get_mut(&key).unwrap().known = true;
                        let kind = InstanceState::NotAliveDisposed;
                        self.end(key, guid, kind, Some(source), position, now, effects);
                    }
                }
                if change.kind == DisposeUnregister {
                    self.unregister(key, guid, Some(source), position, now, effects);
                }
            }
        }
    }

    fn revive(own: &mut ModelInstance) {
        match own.state {
            InstanceState::Alive => return,
            InstanceState::NotAliveDisposed => own.generations.0 += 1,
            InstanceState::NotAliveNoWriters => own.generations.1 += 1,
        }
        (own.state, own.seen) = (InstanceState::Alive, false);
    }

    fn accept(&mut self, mut sample: ModelSample, effects: &mut Effects) {
        let key = sample.instance;
        if let Err(reason) = self.admits(key) {
            return self.reject(key, reason, effects);
        }
        if self.policies.depth.is_some_and(|depth| self.valid(key) >= depth) {
            let oldest = self.samples[self.oldest(key).unwrap()].clone();
            self.remove(|own| own.id == oldest.id);
            self.counters.overwritten += 1;
            self.counters.overwritten_unread += u64::from(!oldest.read);
        }
        let own = self.instances.get_mut(&key).unwrap();
        Model::revive(own);
        (own.accepted, own.ended) = (Some(sample.received), None);
        sample.generations = own.generations;
        self.push(sample);
        self.counters.accepted += 1;
        effects.data_available = true;
    }

    fn release(&mut self, key: u8, now: i64, effects: &mut Effects) {
        if let Some(sample) = self.instances.get_mut(&key).and_then(|own| own.pending.take()) {
            if sample.expires.is_some_and(|expires| expires <= now) {
                self.counters.expired += 1;
            } else {
                self.accept(ModelSample { received: now, ..sample }, effects);
            }
            let own = self.instances.get_mut(&key).unwrap();
            own.period_from = own.period_from.filter(|_| own.state == InstanceState::Alive);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn end(
        &mut self,
        key: u8,
        writer: Guid,
        state: InstanceState,
        source: Option<i64>,
        position: Position,
        now: i64,
        effects: &mut Effects,
    ) {
        self.release(key, now, effects);
        let own = self.instances.get_mut(&key).unwrap();
        let disposed = state == InstanceState::NotAliveDisposed;
        if own.state == InstanceState::NotAliveDisposed || own.state != InstanceState::Alive && !disposed {
            return;
        }
        Model::revive(own);
        own.state = state;
        (own.period_from, own.ended) = (None, Some(now));
        let source = source.or(own.newest.map(|(time, _)| time)).unwrap_or(now);
        let generations = own.generations;
        self.samples.retain(|sample| sample.instance != key || sample.value.is_some());
        self.push(ModelSample {
            id: 0,
            loans: 0,
            instance: key,
            writer,
            value: None,
            source,
            received: now,
            position,
            generations,
            read: false,
            expires: None,
        });
        effects.data_available = true;
    }

    fn unregister(
        &mut self,
        key: u8,
        guid: Guid,
        source: Option<i64>,
        position: Position,
        now: i64,
        effects: &mut Effects,
    ) {
        let Some(own) = self.instances.get_mut(&key) else { return };
        own.writers.remove(&guid);
        if own.writers.is_empty() && own.known {
            self.end(key, guid, InstanceState::NotAliveNoWriters, source, position, now, effects);
        }
        self.collect();
    }

    pub(crate) fn collect(&mut self) {
        let samples = &self.samples;
        let before = self.known();
        self.instances.retain(|key, own| {
            let has_samples = samples.iter().any(|sample| sample.instance == *key);
            has_samples || !own.writers.is_empty() || own.pending.is_some() || own.loans > 0
        });
        self.counters.instances_collected += (before - self.known()) as u64;
    }

    /// Returns what is due first: a time, a kind in the order of kinds, and the instance.
    fn due(&self) -> Option<(i64, u8, u8)> {
        let expiries = self.samples.iter().filter_map(|sample| Some((sample.expires?, 0, sample.instance)));
        let timers = self.instances.iter().flat_map(|(key, own)| {
            let release = own.pending.as_ref().and(own.accepted).map(|accepted| accepted + self.policies.separation);
            let deadline = own.period_from.and_then(|from| Some(from + self.policies.deadline?));
            let delay = match own.state {
                InstanceState::NotAliveDisposed => self.policies.purge_disposed,
                _ => self.policies.purge_no_writers,
            };
            let purge = own.ended.and_then(|ended| Some(ended + delay?));
            let all = [release, deadline, purge].into_iter().enumerate();
            all.filter_map(|(kind, at)| Some((at?.max(self.policies_since), kind as u8 + 1, *key)))
        });
        expiries.chain(timers).min()
    }

    pub(crate) fn set_policies(&mut self, policies: Policies, now: i64) -> Effects {
        self.catch_up(now);
        (self.policies, self.policies_since) = (policies, now);
        self.poll(now)
    }

    pub(crate) fn poll(&mut self, now: i64) -> Effects {
        self.catch_up(now);
        std::mem::take(&mut self.owed)
    }

    /// Does what is due, one thing after another, each as of its own time.
    pub(crate) fn catch_up(&mut self, now: i64) {
        self.now = now;
        let mut effects = std::mem::take(&mut self.owed);
        while let Some((at, kind, key)) = self.due().filter(|(at, ..)| *at <= now) {
            match kind {
                0 => {
                    let ends = |sample: &ModelSample| sample.expires.is_some_and(|end| end <= at);
                    self.counters.expired += self.remove(|sample| sample.instance == key && ends(sample));
                }
                1 => self.release(key, at, &mut effects),
                2 => {
                    let period = self.policies.deadline.unwrap();
                    let periods = (now - at) / period + 1;
                    let owner = self.owner(key);
                    let own = self.instances.get_mut(&key).unwrap();
                    own.period_from = Some(at + (periods - 1) * period);
                    let verdict = owner.map(|writer| DeadlineVerdict {
                        instance: handle(key),
                        writer,
                        last: own.writers[&writer].1.unwrap(),
                    });
                    effects.deadlines.push(MissedDeadline { instance: handle(key), verdict, periods: periods as u32 });
                }
                _ => {
                    self.counters.purged += self.remove(|sample| sample.instance == key);
                    self.instances.get_mut(&key).unwrap().ended = None;
                }
            }
            self.collect();
        }
        self.owed = effects;
    }

    pub(crate) fn wake_at(&self) -> Option<DdsTime> {
        let owes = self.owed != Effects::default();
        if owes { Some(at(self.now)) } else { self.due().map(|(time, ..)| at(time)) }
    }
}
