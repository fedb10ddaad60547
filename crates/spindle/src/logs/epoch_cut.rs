//! The cut of a log whose epoch has ended before its last records, in a subgroup that delivers only durable
//! messages. Until the cut is on disk, the log takes no message, and serves no other process.
use super::fetching::Cut;
use super::version;
use crate::shared::Notices;
use spindle_core::Position;
use spindle_log::{Appender, Error, Version};
use std::sync::Arc;

/// The cut of a log.
pub(super) enum EpochCut {
    /// All that the log has taken has to be on disk first.
    Waits { after: Version },
    /// The thread that writes cuts the log.
    Runs(Cut),
}

impl EpochCut {
    /// Returns the cut that removes the records from `from` on.
    pub(super) fn at(from: Position) -> EpochCut {
        let from = version(from);
        // No record has a version between.
        let before = || Version::new(from.epoch.saturating_sub(1), u64::MAX);
        EpochCut::Waits {
            after: from.sequence.checked_sub(1).map_or_else(before, |last| Version::new(from.epoch, last)),
        }
    }

    /// Continues the cut of the log of `appender`. Returns the appender with which the log continues, once
    /// the cut is on disk.
    ///
    /// # Errors
    /// Those of the log.
    pub(super) fn go_on(&mut self, appender: &Appender, notices: &Arc<Notices>) -> Result<Option<Appender>, Error> {
        match self {
            EpochCut::Waits { after } if appender.queued_bytes() == 0 => {
                let (writer, number) = (appender.handle(), appender.subgroup());
                *self = EpochCut::Runs(Cut::begin(writer, number, Some(*after), notices)?);
                Ok(None)
            }
            EpochCut::Waits { .. } => Ok(None),
            EpochCut::Runs(cut) => cut.result().transpose().map(|done| done.map(|(_, appender)| appender)),
        }
    }
}
