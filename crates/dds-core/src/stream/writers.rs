//! The writers of an order domain, as its fences show them.
use crate::cache::{SetId, WriterEnd, WriterInfo};
use crate::directory::WriterEntry;
use crate::id::Guid;
use crate::policy::PresentationQosPolicyAccessScopeKind;
use std::collections::{BTreeMap, BTreeSet};

/// A writer, and the readers of this process that match it.
#[derive(Clone, Debug)]
pub(super) struct StreamWriter {
    pub(super) info: WriterInfo,
    /// The source of its coherent sets: its publisher at GROUP scope, else the writer.
    pub(super) source: Guid,
    pub(super) readers: Vec<Guid>,
}

/// The coherent sets that have not ended, and the readers that have changes of them.
pub(super) type OpenSets = BTreeMap<SetId, BTreeSet<Guid>>;

/// All writers, by number, and the coherent sets that have not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamWriters {
    all: BTreeMap<u32, StreamWriter>,
    numbers: BTreeMap<Guid, u32>,
    /// The number after the highest one of any writer so far.
    next: u32,
    open: OpenSets,
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
        self.next = self.next.max(number.saturating_add(1));
        let own = self.all.entry(number).or_insert(StreamWriter { info, source, readers: Vec::new() });
        let before = std::mem::replace(&mut own.info, info);
        (own, before)
    }

    /// Removes a writer. Returns it, and the sets that no writer can end any more, with their readers.
    pub(super) fn remove(&mut self, guid: Guid) -> Option<(StreamWriter, OpenSets)> {
        let own = self.all.remove(&self.numbers.remove(&guid)?)?;
        let is_last = self.all.values().all(|other| other.source != own.source);
        let given_up = self.open.extract_if(.., |set, _| is_last && set.source == own.source).collect();
        Some((own, given_up))
    }

    pub(super) fn get(&self, number: u32) -> Option<&StreamWriter> {
        self.all.get(&number)
    }

    pub(super) fn by_guid(&mut self, guid: Guid) -> Option<&mut StreamWriter> {
        self.all.get_mut(self.numbers.get(&guid)?)
    }

    /// Returns whether a number is that of a writer that has come, or could have. Numbers rise.
    pub(super) fn is_known(&self, number: u32) -> bool {
        number < self.next
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &StreamWriter)> {
        self.all.iter().map(|(number, own)| (*number, own))
    }

    pub(super) fn has(&self, guid: Guid) -> bool {
        self.numbers.contains_key(&guid)
    }

    pub(super) fn guids(&self) -> Vec<Guid> {
        self.numbers.keys().copied().collect()
    }

    /// Forgets a reader.
    pub(super) fn remove_reader(&mut self, reader: Guid) {
        self.all.values_mut().for_each(|own| own.readers.retain(|guid| *guid != reader));
        self.open.values_mut().for_each(|readers| _ = readers.remove(&reader));
    }

    /// Notes a change of a set by a writer, and returns the set.
    pub(super) fn note_set(&mut self, writer: u32, number: u64) -> Option<SetId> {
        let own = self.all.get(&writer)?;
        let set = SetId { source: own.source, number };
        if !own.readers.is_empty() {
            self.open.entry(set).or_default().extend(own.readers.iter().copied());
        }
        Some(set)
    }

    /// Ends a set, and returns the readers of this process that have changes of it, or match a writer of its
    /// source.
    pub(super) fn end_set(&mut self, set: SetId) -> BTreeSet<Guid> {
        let mut readers = self.open.remove(&set).unwrap_or_default();
        let same = self.all.values().filter(|own| own.source == set.source);
        readers.extend(same.flat_map(|own| own.readers.iter().copied()));
        readers
    }
}
