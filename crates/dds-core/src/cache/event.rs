//! The events that drive a cache. Each has a position in the order that all readers agree on.
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::InstanceState;
use crate::time::{DdsDuration, DdsTime};
use spindle_xcdr::CdrReadError;
use std::sync::Arc;

/// Returns the serialised key of a serialised sample.
///
/// # Errors
/// [`CdrReadError`] if the sample is not of the type. The sample counts as lost.
pub type KeyReader<P> = Arc<dyn Fn(&P) -> Result<Arc<[u8]>, CdrReadError> + Send + Sync>;

/// A coherent set: that of a writer at TOPIC scope, that of a publisher at GROUP scope (DDS 2.2.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId {
    /// The writer, or the publisher.
    pub source: Guid,
    /// The number of the set at its source. Numbers grow.
    pub number: u64,
}

/// The kind of a change of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It wrote a sample.
    Write,
    /// It registered the instance.
    Register,
    /// It disposed the instance.
    Dispose,
    /// It unregistered the instance.
    Unregister,
    /// It disposed and unregistered the instance.
    DisposeUnregister,
}

/// A change of an instance by a writer.
#[derive(Clone, Debug)]
pub struct CacheChange<P> {
    /// The writer.
    pub writer: Guid,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The instance.
    pub instance: InstanceHandle,
    /// When the writer did it.
    pub source_timestamp: DdsTime,
    /// The coherent set to which the change belongs.
    pub set: Option<SetId>,
    /// The serialised sample; for other changes than writes, the serialised key.
    pub payload: P,
}

/// A writer that matches the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterInfo {
    /// Its identity.
    pub guid: Guid,
    /// Its strength.
    pub strength: i32,
    /// Its LIFESPAN.
    pub lifespan: DdsDuration,
    /// Whether it is alive (LIVELINESS). A reader may match a writer that is not.
    pub alive: bool,
}

/// How a writer went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterEnd {
    /// It lives, and no longer matches. Its instances lose a writer, and are not disposed.
    Unmatched,
    /// It was deleted, which unregisters its instances. With `autodispose`, it disposes them, too
    /// (WRITER_DATA_LIFECYCLE, DDS 2.2.3.21).
    Deleted {
        /// Whether its instances are disposed.
        autodispose: bool,
    },
    /// Its process failed.
    Lost,
}

/// The verdict that the owner of an instance has missed its DEADLINE, so it owns it no more until it writes
/// (DDS 2.2.3.9.2).
///
/// Each reader measures the deadline by its clock. One of them proposes the verdict, and the group orders
/// it. A write of the owner may be ordered before the verdict, and then the verdict has no effect. So the
/// owner is the same at all readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineVerdict {
    /// The instance.
    pub instance: InstanceHandle,
    /// Its owner.
    pub writer: Guid,
    /// The position of the last change of the instance by the owner.
    pub last: Position,
}

/// The end of a coherent set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetEnd {
    /// The set.
    pub set: SetId,
    /// The changes of each writer in the set.
    pub changes: Vec<(Guid, u32)>,
}

/// An event of a reader's stream.
#[derive(Clone, Debug)]
pub enum ReaderEvent<P> {
    /// A writer changed an instance.
    Change(CacheChange<P>),
    /// A coherent set has ended. At GROUP scope it concerns all readers, and goes to
    /// [`GroupCaches::end_set`](super::GroupCaches::end_set); in the stream of one reader it has no effect.
    SetEnd(SetEnd),
    /// The source of a coherent set has given it up, or has failed. A driver sends it for each open set of a
    /// publisher that fails, also if its writers no longer match.
    SetAbandoned(SetId),
    /// A writer matches from here on, or has new policies.
    WriterMatched(WriterInfo),
    /// A writer no longer matches, because it was deleted or has failed, or for another reason.
    WriterUnmatched(Guid, WriterEnd),
    /// A writer that did not match here went away. Its samples that were ordered before may come.
    WriterDeparted(WriterInfo, WriterEnd),
    /// A writer is alive, or is not (LIVELINESS, DDS 2.2.3.11).
    WriterAlive(Guid, bool),
    /// An instance with its retained samples, for a late joiner.
    History(Box<InstanceHistory<P>>),
    /// The group has decided that the owner of an instance has missed its DEADLINE.
    DeadlineVerdict(DeadlineVerdict),
    /// Samples were lost before they arrived.
    SamplesLost(u32),
}

/// An instance with its retained samples.
#[derive(Clone, Debug)]
pub struct InstanceHistory<P> {
    /// The instance.
    pub instance: InstanceHandle,
    /// The serialised key; `None` if no sample was seen.
    pub key: Option<Arc<[u8]>>,
    /// Its state.
    pub state: InstanceState,
    /// Its writers.
    pub writers: Vec<InstanceWriter>,
    /// The source timestamp and the writer of its newest change.
    pub newest: Option<(DdsTime, Guid)>,
    /// The samples with data, in the order in which they became visible.
    pub samples: Vec<HistorySample<P>>,
    /// The change by which it ceased to be alive: the writer, the source timestamp and the position.
    pub end: Option<(Guid, DdsTime, Position)>,
}

/// A writer of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceWriter {
    /// The writer.
    pub writer: Guid,
    /// The position of its last change; `None` if it has registered the instance only.
    pub last: Option<Position>,
    /// Whether it may own the instance: it has written, and kept its DEADLINE since.
    pub may_own: bool,
}

/// A retained sample.
#[derive(Clone, Debug)]
pub struct HistorySample<P> {
    /// The writer.
    pub writer: Guid,
    /// When it was written.
    pub source_timestamp: DdsTime,
    /// Its position.
    pub position: Position,
    /// When its LIFESPAN ends.
    pub expires: DdsTime,
    /// The serialised sample.
    pub payload: P,
}
