//! The search for the listener that is called (DDS 2.2.4.3).
use super::kind::{StatusKind, StatusMask};

/// An entity in the search for a listener, from the entity itself up to the participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The topic, the writer or the reader.
    Entity,
    /// The publisher or the subscriber. Topics have none.
    Parent,
    /// The participant.
    Participant,
}

/// The listener of an entity, as far as the search needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerMask {
    /// The statuses for which the listener was set.
    pub mask: StatusMask,
    /// Whether there is a listener. The nil listener takes its statuses, and does nothing
    /// (DDS 2.2.2.1.1.3).
    pub installed: bool,
}

impl ListenerMask {
    fn takes(&self, kind: StatusKind) -> bool {
        self.mask.contains(kind)
    }
}

/// Returns the level whose listener takes a status: the first one whose mask has it. `None` if no
/// listener takes it. A listener that is not installed takes it too, and is not called.
///
/// `levels` are the listeners of the entity, its publisher or subscriber, and its participant.
pub fn find_listener(kind: StatusKind, levels: [ListenerMask; 3]) -> Option<Level> {
    let found = levels.iter().position(|listener| listener.takes(kind))?;
    Some([Level::Entity, Level::Parent, Level::Participant][found])
}

/// Returns the listener that is called because a reader has new samples, and with which status.
///
/// `on_data_on_readers` of the subscriber or the participant comes first; only if no listener takes it
/// `on_data_available` of the reader, the subscriber or the participant is called (DDS 2.2.4.3.2).
pub fn find_reader_call(levels: [ListenerMask; 3]) -> Option<(StatusKind, Level)> {
    let [_, parent, participant] = levels;
    let on_readers = [ListenerMask::default(), parent, participant];
    let first = find_listener(StatusKind::DataOnReaders, on_readers);
    first
        .map(|level| (StatusKind::DataOnReaders, level))
        .or_else(|| find_listener(StatusKind::DataAvailable, levels).map(|level| (StatusKind::DataAvailable, level)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kinds: &[StatusKind]) -> ListenerMask {
        ListenerMask { mask: kinds.iter().copied().collect(), installed: true }
    }

    #[test]
    fn the_search_climbs_to_the_first_mask() {
        let lost = StatusKind::SampleLost;
        let (with, without) = (of(&[lost]), of(&[StatusKind::SampleRejected]));
        for (levels, expected) in [
            ([with, with, with], Some(Level::Entity)),
            ([without, with, with], Some(Level::Parent)),
            ([without, without, with], Some(Level::Participant)),
            ([without; 3], None),
            ([ListenerMask { installed: false, ..with }, with, with], Some(Level::Entity)),
        ] {
            assert_eq!(find_listener(lost, levels), expected);
        }
    }

    #[test]
    fn data_on_readers_comes_before_data_available() {
        use StatusKind::{DataAvailable, DataOnReaders};
        let (none, both) = (of(&[]), of(&[DataOnReaders, DataAvailable]));
        for (levels, expected) in [
            ([both, both, both], Some((DataOnReaders, Level::Parent))),
            ([both, of(&[DataAvailable]), both], Some((DataOnReaders, Level::Participant))),
            ([both, of(&[DataAvailable]), none], Some((DataAvailable, Level::Entity))),
            ([none, of(&[DataAvailable]), none], Some((DataAvailable, Level::Parent))),
            // DATA_ON_READERS is no status of a reader.
            ([of(&[DataOnReaders]), none, none], None),
            ([none; 3], None),
        ] {
            assert_eq!(find_reader_call(levels), expected);
        }
    }
}
