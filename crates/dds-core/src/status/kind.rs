//! The 13 kinds of statuses, and masks of them.
use std::fmt;

/// A communication status (DDS 2.2.4.1). The value is its bit in a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum StatusKind {
    /// INCONSISTENT_TOPIC, of a topic.
    InconsistentTopic = 1,
    /// OFFERED_DEADLINE_MISSED, of a writer.
    OfferedDeadlineMissed = 1 << 1,
    /// REQUESTED_DEADLINE_MISSED, of a reader.
    RequestedDeadlineMissed = 1 << 2,
    /// OFFERED_INCOMPATIBLE_QOS, of a writer.
    OfferedIncompatibleQos = 1 << 5,
    /// REQUESTED_INCOMPATIBLE_QOS, of a reader.
    RequestedIncompatibleQos = 1 << 6,
    /// SAMPLE_LOST, of a reader.
    SampleLost = 1 << 7,
    /// SAMPLE_REJECTED, of a reader.
    SampleRejected = 1 << 8,
    /// DATA_ON_READERS, of a subscriber.
    DataOnReaders = 1 << 9,
    /// DATA_AVAILABLE, of a reader.
    DataAvailable = 1 << 10,
    /// LIVELINESS_LOST, of a writer.
    LivelinessLost = 1 << 11,
    /// LIVELINESS_CHANGED, of a reader.
    LivelinessChanged = 1 << 12,
    /// PUBLICATION_MATCHED, of a writer.
    PublicationMatched = 1 << 13,
    /// SUBSCRIPTION_MATCHED, of a reader.
    SubscriptionMatched = 1 << 14,
}

impl StatusKind {
    /// All kinds.
    pub const ALL: [StatusKind; 13] = [
        StatusKind::InconsistentTopic,
        StatusKind::OfferedDeadlineMissed,
        StatusKind::RequestedDeadlineMissed,
        StatusKind::OfferedIncompatibleQos,
        StatusKind::RequestedIncompatibleQos,
        StatusKind::SampleLost,
        StatusKind::SampleRejected,
        StatusKind::DataOnReaders,
        StatusKind::DataAvailable,
        StatusKind::LivelinessLost,
        StatusKind::LivelinessChanged,
        StatusKind::PublicationMatched,
        StatusKind::SubscriptionMatched,
    ];

    /// Returns the name, as the specification writes it.
    pub const fn name(self) -> &'static str {
        match self {
            StatusKind::InconsistentTopic => "INCONSISTENT_TOPIC",
            StatusKind::OfferedDeadlineMissed => "OFFERED_DEADLINE_MISSED",
            StatusKind::RequestedDeadlineMissed => "REQUESTED_DEADLINE_MISSED",
            StatusKind::OfferedIncompatibleQos => "OFFERED_INCOMPATIBLE_QOS",
            StatusKind::RequestedIncompatibleQos => "REQUESTED_INCOMPATIBLE_QOS",
            StatusKind::SampleLost => "SAMPLE_LOST",
            StatusKind::SampleRejected => "SAMPLE_REJECTED",
            StatusKind::DataOnReaders => "DATA_ON_READERS",
            StatusKind::DataAvailable => "DATA_AVAILABLE",
            StatusKind::LivelinessLost => "LIVELINESS_LOST",
            StatusKind::LivelinessChanged => "LIVELINESS_CHANGED",
            StatusKind::PublicationMatched => "PUBLICATION_MATCHED",
            StatusKind::SubscriptionMatched => "SUBSCRIPTION_MATCHED",
        }
    }
}

impl fmt::Display for StatusKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of statuses.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StatusMask(u32);

impl StatusMask {
    /// No status: STATUS_MASK_NONE.
    pub const NONE: StatusMask = StatusMask(0);
    /// All statuses: STATUS_MASK_ANY.
    pub const ANY: StatusMask = StatusMask(0b111_1111_1110_0111);

    /// Returns the set with a status added.
    #[must_use]
    pub const fn with(self, kind: StatusKind) -> StatusMask {
        StatusMask(self.0 | kind as u32)
    }

    /// Returns the set without a status.
    #[must_use]
    pub const fn without(self, kind: StatusKind) -> StatusMask {
        StatusMask(self.0 & !(kind as u32))
    }

    /// Returns whether a status is in the set.
    pub const fn contains(self, kind: StatusKind) -> bool {
        self.0 & kind as u32 != 0
    }

    /// Returns the statuses that are in both sets.
    #[must_use]
    pub const fn and(self, other: StatusMask) -> StatusMask {
        StatusMask(self.0 & other.0)
    }

    /// Returns whether the set has no status.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the bits, as the specification numbers them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Makes a set of bits. Bits without a status are dropped.
    pub const fn from_bits(bits: u32) -> StatusMask {
        StatusMask(bits & StatusMask::ANY.0)
    }
}

impl FromIterator<StatusKind> for StatusMask {
    fn from_iter<I: IntoIterator<Item = StatusKind>>(kinds: I) -> StatusMask {
        kinds.into_iter().fold(StatusMask::NONE, StatusMask::with)
    }
}

impl fmt::Debug for StatusMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(StatusKind::ALL.iter().filter(|kind| self.contains(**kind))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_bit_of_its_own() {
        let all: StatusMask = StatusKind::ALL.into_iter().collect();
        assert_eq!(all, StatusMask::ANY);
        assert_eq!(all.bits().count_ones(), 13);
        assert_eq!(StatusMask::from_bits(u32::MAX), all);
        let mask = StatusMask::NONE.with(StatusKind::SampleLost);
        assert!(mask.contains(StatusKind::SampleLost) && mask.without(StatusKind::SampleLost).is_empty());
        assert_eq!(format!("{mask:?}"), "{SampleLost}");
    }
}
