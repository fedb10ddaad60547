//! A sample in the cache, and as the application gets it.
use super::states::{InstanceState, SampleState, ViewState};
use crate::id::{Guid, InstanceHandle, Position};
use crate::time::DdsTime;
use std::sync::Arc;

/// The information about a sample besides its data (DDS 2.2.2.5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleInfo {
    /// Whether the sample was read before.
    pub sample_state: SampleState,
    /// Whether the instance was seen before in this life.
    pub view_state: ViewState,
    /// Whether the instance is alive now.
    pub instance_state: InstanceState,
    /// When the writer wrote it.
    pub source_timestamp: DdsTime,
    /// When it became visible in this cache, by the local clock.
    pub reception_timestamp: DdsTime,
    /// The instance.
    pub instance_handle: InstanceHandle,
    /// The writer.
    pub publication_handle: InstanceHandle,
    /// How often the instance had come to life after a dispose, when the sample was received.
    pub disposed_generation_count: u32,
    /// How often it had come to life without writers before.
    pub no_writers_generation_count: u32,
    /// The samples of the instance that follow in the same collection.
    pub sample_rank: u32,
    /// The generations between this sample and the most recent one of its instance in the collection.
    pub generation_rank: u32,
    /// The generations between this sample and the most recent one that the reader has received.
    pub absolute_generation_rank: u32,
    /// Whether there is data. Otherwise the sample announces a change of the instance's state.
    pub valid_data: bool,
    /// The place in the order that all readers agree on. An extension of the specification.
    pub position: Position,
}

/// The data of a sample, or the key of its instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleData<P> {
    /// The serialised sample.
    Value(P),
    /// The serialised key, if the sample announces a change of the instance's state.
    Key(Arc<[u8]>),
}

/// A sample, as the application gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<P> {
    /// The information about it.
    pub info: SampleInfo,
    /// Its data or its key.
    pub data: SampleData<P>,
}

/// A sample in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Stored<P> {
    /// The number of the sample in this cache.
    pub(crate) arrival: u64,
    pub(crate) writer: Guid,
    pub(crate) source_timestamp: DdsTime,
    pub(crate) reception: DdsTime,
    pub(crate) position: Position,
    /// The position at which it became visible: that of the end of its coherent set, or its own.
    pub(crate) visible: Position,
    pub(crate) disposed_generation: u32,
    pub(crate) no_writers_generation: u32,
    pub(crate) read: bool,
    pub(crate) expires: DdsTime,
    /// The open loans of the sample.
    pub(crate) loans: u32,
    /// The data; `None` if the sample announces a change of state.
    pub(crate) data: Option<P>,
}

/// The place of a sample in ordered access over several instances or readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    source: Option<(DdsTime, Guid)>,
    visible: (u64, u64, u32),
    place: (u64, u64, u32),
    pub(crate) arrival: u64,
}

impl<P> Stored<P> {
    pub(crate) fn order(&self, by_source: bool) -> OrderKey {
        OrderKey {
            source: by_source.then_some((self.source_timestamp, self.writer)),
            visible: self.visible.place(),
            place: self.position.place(),
            arrival: self.arrival,
        }
    }

    pub(crate) fn generations(&self) -> u32 {
        self.disposed_generation.saturating_add(self.no_writers_generation)
    }

    pub(crate) fn state(&self) -> SampleState {
        if self.read { SampleState::Read } else { SampleState::NotRead }
    }
}
