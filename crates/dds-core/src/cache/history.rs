//! The retained samples of a cache, as another reader gets them (DURABILITY, DDS 2.2.3.4).
//!
//! A late joiner has its own filter, HISTORY, RESOURCE_LIMITS and TIME_BASED_FILTER, so it can't take over a
//! snapshot. The history has the outcome of the stream for each instance: a replay of the changes that are
//! left would find other owners than the stream did.
use super::cache::ReaderCache;
use super::effects::{Effects, RejectedReason};
use super::event::{HistorySample, InstanceHistory, InstanceWriter, ReaderEvent, WriterInfo};
use super::rules::{Moment, Rules};
use crate::id::Position;
use crate::instance::{Instance, InstanceState};
use std::sync::Arc;

impl<P: Clone + AsRef<[u8]>> ReaderCache<P> {
    /// Returns the events by which a late joiner with policies of its own gets the retained samples.
    ///
    /// The joiner gets them after the matches of the writers that live, and before the stream. They are the
    /// writers that went away, and the instances. Open coherent sets are not among them:
    /// [`ReaderCache::pending_changes`] has their changes.
    pub fn history(&self) -> Vec<(Position, ReaderEvent<P>)> {
        let departed = self.rules.departed.0.iter().map(|(guid, own)| {
            let info = WriterInfo { guid: *guid, strength: own.strength, lifespan: own.lifespan, alive: true };
            (own.position, ReaderEvent::WriterDeparted(info, own.end))
        });
        let kept = self.instances.values().filter(|own| !own.is_garbage_without_loans());
        let instances = kept.map(|own| (self.rules.last, ReaderEvent::History(Box::new(history(own)))));
        departed.chain(instances).collect()
    }

    /// Takes over an instance of the history.
    pub(super) fn take_history(&mut self, history: InstanceHistory<P>, at: Moment, effects: &mut Effects) {
        let handle = history.instance;
        let instance = self.instances.entry(handle).or_insert_with(|| Instance::new(handle));
        for InstanceWriter { writer, last, may_own } in history.writers {
            if self.rules.writers.contains_key(&writer) {
                self.rules.register(instance, writer, last);
                instance.set_candidate(writer, may_own);
            }
        }
        self.rules.choose_owner(instance);
        instance.newest = instance.newest.max(history.newest);
        for sample in history.samples {
            let at = Moment { position: sample.position, visible: sample.position, ..at };
            self.rules.take_sample(instance, sample, history.key.as_ref(), at, effects);
        }
        if let (Some(key), Some((writer, time, position))) = (&history.key, history.end)
            && history.state != InstanceState::Alive
            && self.rules.hears_of_end(instance, key, effects)
        {
            let at = Moment { position, visible: position, ..at };
            self.rules.end_life(instance, writer, history.state, Some(time), at, effects);
        }
        if instance.is_garbage() {
            self.collect(handle);
        }
    }
}

impl Rules {
    /// Adds a retained sample, if the reader wants it.
    fn take_sample<P: AsRef<[u8]>>(
        &mut self,
        instance: &mut Instance<P>,
        sample: HistorySample<P>,
        key: Option<&Arc<[u8]>>,
        at: Moment,
        effects: &mut Effects,
    ) {
        if !self.passes(&sample.payload, false, effects) {
            return;
        }
        if sample.expires <= at.now {
            self.counters.expired += 1;
            return;
        }
        if !instance.is_known() {
            if let Err(reason) = self.admits(Some(&*instance)) {
                return self.reject(instance.handle, reason, effects);
            }
            self.make_known(instance, key.cloned().unwrap_or_default());
        }
        let HistorySample { writer, source_timestamp, expires, payload, .. } = sample;
        self.arrive(instance, (writer, source_timestamp, expires), payload, at, effects);
    }

    /// Returns whether the application hears that an instance is alive no more. It may not know it yet.
    pub(super) fn hears_of_end<P>(
        &mut self,
        instance: &mut Instance<P>,
        key: &Arc<[u8]>,
        effects: &mut Effects,
    ) -> bool {
        if instance.is_known() {
            return true;
        }
        if self.filter.as_ref().is_some_and(|filter| !filter.is_key_only()) {
            // The reader has not seen the instance, so its end is no news.
            self.counters.filtered += 1;
            return false;
        }
        if !self.passes(key, true, effects) {
            return false;
        }
        if !self.settings.limits.max_instances.admits(self.known) {
            self.reject(instance.handle, RejectedReason::Instances, effects);
            return false;
        }
        self.make_known(instance, key.clone());
        true
    }
}

fn history<P: Clone>(own: &Instance<P>) -> InstanceHistory<P> {
    let samples = own.samples.iter().filter_map(|sample| {
        Some(HistorySample {
            writer: sample.writer,
            source_timestamp: sample.source_timestamp,
            position: sample.position,
            expires: sample.expires,
            payload: sample.data.clone()?,
        })
    });
    let announced = own.samples.iter().find(|sample| sample.data.is_none());
    let announced = announced.map(|sample| (sample.writer, sample.source_timestamp, sample.position));
    // The sample that announced the end may have been taken.
    let last = own.samples.back().filter(|_| own.state != InstanceState::Alive);
    let end = announced.or_else(|| {
        let (last, (time, writer)) = (last?, own.newest?);
        Some((writer, time, last.position))
    });
    let writers = own.writers.iter();
    InstanceHistory {
        instance: own.handle,
        key: own.is_known().then(|| own.key()),
        state: own.state,
        writers: writers
            .map(|own| InstanceWriter { writer: own.writer, last: own.last, may_own: own.candidate })
            .collect(),
        newest: own.newest,
        samples: samples.collect(),
        end,
    }
}
