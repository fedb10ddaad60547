//! The writers of an order domain, as its fences show them.
use crate::cache::{SetId, WriterEnd, WriterInfo};
use crate::directory::WriterEntry;
use crate::id::Guid;
use crate::policy::PresentationQosPolicyAccessScopeKind;
use std::collections::BTreeMap;

/// A writer, and the readers of this process that match it.
#[derive(Clone, Debug)]
pub(super) struct StreamWriter {
    pub(super) info: WriterInfo,
    /// The source of its coherent sets: its publisher at GROUP scope, else the writer.
    source: Guid,
    pub(super) readers: Vec<Guid>,
}

/// All writers, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamWriters {
    all: BTreeMap<u32, StreamWriter>,
    numbers: BTreeMap<Guid, u32>,
}

/// Returns the part of a writer's entry that readers see.
pub(super) fn info_of(entry: &WriterEntry) -> WriterInfo {
    let own = &entry.description;
    WriterInfo {
        guid: own.guid,
        strength: own.qos.ownership_strength.value,
        lifespan: own.qos.lifespan.duration,
        alive: entry.alive,
    }
}

/// Returns the source of a writer's coherent sets.
pub(super) fn source_of(entry: &WriterEntry) -> Guid {
    match entry.description.publisher.presentation.access_scope {
        PresentationQosPolicyAccessScopeKind::Group => entry.publisher,
        _ => entry.description.guid,
    }
}

/// Returns how a writer went.
pub(super) fn end_of(entry: &WriterEntry, deleted: bool) -> WriterEnd {
    let autodispose = entry.description.qos.writer_data_lifecycle.autodispose_unregistered_instances;
    if deleted { WriterEnd::Deleted { autodispose } } else { WriterEnd::Lost }
}

impl StreamWriters {
    /// Adds a writer or its new state. Returns its record, and its state before.
    pub(super) fn put(&mut self, number: u32, info: WriterInfo, source: Guid) -> (&StreamWriter, WriterInfo) {
        self.numbers.insert(info.guid, number);
        let own = self.all.entry(number).or_insert(StreamWriter { info, source, readers: Vec::new() });
        let before = std::mem::replace(&mut own.info, info);
        (own, before)
    }

    pub(super) fn remove(&mut self, guid: Guid) -> Option<StreamWriter> {
        let number = self.numbers.remove(&guid)?;
        self.all.remove(&number)
    }

    pub(super) fn get(&self, number: u32) -> Option<&StreamWriter> {
        self.all.get(&number)
    }

    pub(super) fn by_guid(&mut self, guid: Guid) -> Option<&mut StreamWriter> {
        self.all.get_mut(self.numbers.get(&guid)?)
    }

    pub(super) fn has(&self, guid: Guid) -> bool {
        self.numbers.contains_key(&guid)
    }

    /// Forgets a reader.
    pub(super) fn remove_reader(&mut self, reader: Guid) {
        self.all.values_mut().for_each(|own| own.readers.retain(|guid| *guid != reader));
    }

    /// Returns the identity of a set, and the readers that match any writer of its source.
    pub(super) fn set(&self, writer: u32, number: u64) -> Option<(SetId, Vec<Guid>)> {
        let source = self.get(writer)?.source;
        let same = self.all.values().filter(|own| own.source == source);
        let mut readers: Vec<Guid> = same.flat_map(|own| own.readers.iter().copied()).collect();
        readers.sort_unstable();
        readers.dedup();
        Some((SetId { source, number }, readers))
    }

    /// Returns the identity of the set of a change.
    pub(super) fn set_of(own: &StreamWriter, number: u64) -> SetId {
        SetId { source: own.source, number }
    }
}
