//! The encoder of snapshots.
use super::{MAGIC, VERSION};
use crate::cache::cache::{PendingSet, ReaderCache};
use crate::cache::departed::Departed;
use crate::cache::event::{CacheChange, ChangeKind, SetId, WriterEnd};
use crate::cache::rules::WriterRecord;
use crate::cache::settings::CacheSettings;
use crate::id::{Guid, Position};
use crate::instance::{Instance, InstanceState, Stored, ViewState};
use crate::policy::{HistoryQosPolicyKind, PresentationQosPolicyAccessScopeKind};

pub(super) fn snapshot<P: Clone + AsRef<[u8]>>(cache: &ReaderCache<P>) -> Vec<u8> {
    let mut out = Output(MAGIC.to_vec());
    out.u16(VERSION);
    settings(&mut out, &cache.rules.settings);
    out.u64(cache.rules.indices.arrival());
    out.position(cache.rules.last);
    out.count(cache.rules.writers.len());
    cache.rules.writers.iter().for_each(|(guid, own)| writer(&mut out, *guid, own));
    out.count(cache.rules.departed.0.len());
    cache.rules.departed.0.iter().for_each(|(guid, own)| departed(&mut out, *guid, own));
    // A loan is no reason for an instance at another reader.
    let kept = |own: &&Instance<P>| !own.is_garbage_without_loans();
    out.count(cache.instances.values().filter(kept).count());
    cache.instances.values().filter(kept).for_each(|own| instance(&mut out, own));
    out.count(cache.sets.len());
    cache.sets.iter().for_each(|(id, own)| set(&mut out, *id, own));
    out.0
}

/// Writes each policy that can't change as one number of 64 bits or more.
pub(super) fn settings(out: &mut Output, settings: &CacheSettings) {
    out.u64(match settings.history {
        HistoryQosPolicyKind::KeepAll => 0,
        HistoryQosPolicyKind::KeepLast(depth) => depth.into(),
    });
    for limit in [settings.limits.max_samples, settings.limits.max_instances, settings.limits.max_samples_per_instance]
    {
        out.u64(limit.bound());
    }
    let scope = match settings.scope {
        PresentationQosPolicyAccessScopeKind::Instance => 0,
        PresentationQosPolicyAccessScopeKind::Topic => 1,
        PresentationQosPolicyAccessScopeKind::Group => 2,
    };
    for flag in [u64::from(settings.by_source), settings.exclusive.into(), settings.reliable.into()] {
        out.u64(flag);
    }
    out.u64(scope + 4 * u64::from(settings.coherent) + 8 * u64::from(settings.ordered));
}

fn writer(out: &mut Output, guid: Guid, own: &WriterRecord) {
    out.guid(guid);
    out.u32(own.strength.cast_unsigned());
    out.u64(own.lifespan.as_nanos());
    out.flag(own.alive);
}

fn departed(out: &mut Output, guid: Guid, own: &Departed) {
    out.guid(guid);
    out.u32(own.strength.cast_unsigned());
    out.u64(own.lifespan.as_nanos());
    out.u8(match own.end {
        WriterEnd::Unmatched => 0,
        WriterEnd::Deleted { autodispose: false } => 1,
        WriterEnd::Deleted { autodispose: true } => 2,
        WriterEnd::Lost => 3,
    });
    out.position(own.position);
}

fn instance<P: AsRef<[u8]>>(out: &mut Output, own: &Instance<P>) {
    out.0.extend(own.handle.0);
    out.flag(own.is_known());
    if own.is_known() {
        out.bytes(&own.key());
    }
    out.u8(match own.state {
        InstanceState::Alive => 0,
        InstanceState::NotAliveDisposed => 1,
        InstanceState::NotAliveNoWriters => 2,
    });
    out.flag(own.view == ViewState::NotNew);
    out.u64(own.life);
    out.u32(own.disposed_generation);
    out.u32(own.no_writers_generation);
    // In the order of identities, so that equal caches have equal bytes.
    let mut writers = own.writers.clone();
    writers.sort_by_key(|writer| writer.writer);
    out.count(writers.len());
    for writer in writers {
        out.guid(writer.writer);
        out.flag(writer.candidate);
        out.option(writer.last, Output::position);
    }
    out.option(own.newest, |out, (time, guid)| {
        out.i64(time.as_nanos());
        out.guid(guid);
    });
    for time in [own.accepted, own.period_from, own.ended] {
        out.option(time, |out, time| out.i64(time.as_nanos()));
    }
    out.option(own.pending.as_ref(), |out, pending| sample(out, pending));
    out.count(own.samples.len());
    own.samples.iter().for_each(|own| sample(out, own));
}

fn sample<P: AsRef<[u8]>>(out: &mut Output, own: &Stored<P>) {
    out.u64(own.arrival);
    out.guid(own.writer);
    out.i64(own.source_timestamp.as_nanos());
    out.i64(own.reception.as_nanos());
    out.position(own.position);
    out.position(own.visible);
    out.u32(own.disposed_generation);
    out.u32(own.no_writers_generation);
    out.flag(own.read);
    out.i64(own.expires.as_nanos());
    out.option(own.data.as_ref(), |out, data| out.bytes(data.as_ref()));
}

fn set<P: AsRef<[u8]>>(out: &mut Output, id: SetId, own: &PendingSet<P>) {
    out.guid(id.source);
    out.u64(id.number);
    out.flag(own.broken);
    out.u32(own.refused);
    out.count(own.writers.len());
    own.writers.iter().for_each(|guid| out.guid(*guid));
    out.count(own.changes.len());
    for (position, own) in &own.changes {
        out.position(*position);
        change(out, own);
    }
}

fn change<P: AsRef<[u8]>>(out: &mut Output, own: &CacheChange<P>) {
    out.guid(own.writer);
    out.u8(match own.kind {
        ChangeKind::Write => 0,
        ChangeKind::Register => 1,
        ChangeKind::Dispose => 2,
        ChangeKind::Unregister => 3,
        ChangeKind::DisposeUnregister => 4,
    });
    out.0.extend(own.instance.0);
    out.i64(own.source_timestamp.as_nanos());
    out.bytes(own.payload.as_ref());
}

/// The bytes that were written.
pub(super) struct Output(pub(super) Vec<u8>);

impl Output {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn flag(&mut self, value: bool) {
        self.u8(value.into());
    }

    fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.0.extend(value.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.u64(count as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    fn guid(&mut self, guid: Guid) {
        self.0.extend(guid.0);
    }

    fn position(&mut self, position: Position) {
        self.u32(position.domain);
        self.u64(position.view);
        self.u64(position.seq);
        self.u32(position.index);
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Output, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}
