//! Writers that went away.
use super::event::WriterEnd;
use crate::id::{Guid, Position};
use crate::time::DdsDuration;
use std::collections::BTreeMap;

/// The most departed writers that a cache remembers. The one that went away first is forgotten for the next.
pub(super) const DEPARTED_MAX: usize = 1024;

/// A writer that went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departed {
    pub(super) strength: i32,
    pub(super) lifespan: DdsDuration,
    pub(super) end: WriterEnd,
    pub(super) position: Position,
}

/// The writers that went away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DepartedWriters(pub(super) BTreeMap<Guid, Departed>);

impl DepartedWriters {
    /// Adds a writer, and returns the one that is forgotten for it.
    pub(super) fn add(&mut self, guid: Guid, departed: Departed) -> Option<Guid> {
        self.0.insert(guid, departed);
        if self.0.len() <= DEPARTED_MAX {
            return None;
        }
        let first = self.0.iter().min_by_key(|(guid, own)| (own.position.place(), **guid));
        let first = first.map(|(guid, _)| *guid)?;
        self.0.remove(&first);
        Some(first)
    }

    /// Removes the writers that went away at a position or before, and returns them.
    pub(super) fn remove_until(&mut self, position: Position) -> Vec<Guid> {
        let gone = self.0.extract_if(.., |_, own| own.position <= position);
        gone.map(|(guid, _)| guid).collect()
    }

    /// Returns a writer, if an event at a position was ordered before it went away.
    pub(super) fn after(&self, guid: Guid, position: Position) -> Option<Departed> {
        self.0.get(&guid).copied().filter(|own| position < own.position)
    }
}
