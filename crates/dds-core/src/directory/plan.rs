//! The plan of an order domain: the subgroup that carries it.
use crate::policy::ConsistencyKind;
use std::fmt;

/// The kind of stream that carries an order domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamKind {
    /// All samples are in one order. It carries UNORDERED samples as well.
    Ordered,
    /// All samples are in one order, and in a log.
    Logged,
}

impl From<ConsistencyKind> for StreamKind {
    fn from(level: ConsistencyKind) -> StreamKind {
        match level {
            ConsistencyKind::Unordered | ConsistencyKind::AtomicMulticast | ConsistencyKind::VolatileStorage => {
                StreamKind::Ordered
            }
            ConsistencyKind::LoggedStorage => StreamKind::Logged,
        }
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamKind::Ordered => "ordered",
            StreamKind::Logged => "logged",
        })
    }
}

/// The subgroup of an order domain, as it follows from the endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainPlan {
    /// The number of the order domain. Numbers are never used again.
    pub domain: u32,
    /// The version of the directory with the last change of the domain. A plan of a later version takes the
    /// place of an earlier one.
    pub version: u64,
    /// The number of the stream, from 0. A stronger level may need another kind of stream.
    pub generation: u32,
    /// The level of its samples: the strongest of any writer that it has had.
    pub level: ConsistencyKind,
    /// Its topics.
    pub topics: Vec<String>,
    /// The processes that acknowledge samples: those with writers, or with reliable readers that match one.
    pub members: Vec<u64>,
    /// The members with writers.
    pub senders: Vec<u64>,
    /// The processes whose readers that match a writer are all BEST_EFFORT.
    pub observers: Vec<u64>,
    /// The largest message, in bytes. It does not shrink.
    pub message_bytes_max: u32,
}

impl DomainPlan {
    /// Returns the kind of its stream.
    pub fn kind(&self) -> StreamKind {
        self.level.into()
    }

    /// Returns the memory for the messages on their way at each member, in bytes, with so many messages of the
    /// largest size for each sender.
    pub fn ring_bytes(&self, window: u32) -> u64 {
        self.senders.len() as u64 * u64::from(window) * u64::from(self.message_bytes_max)
    }
}

impl fmt::Display for DomainPlan {
    /// Writes the plan in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DomainPlan { domain, topics, members, senders, observers, .. } = self;
        write!(
            f,
            "order domain {domain} ({}, {}): topics {}; members {members:?}, senders {senders:?}, observers \
             {observers:?}; messages of up to {} bytes",
            self.level,
            self.kind(),
            topics.join(", "),
            self.message_bytes_max
        )
    }
}
