//! The end of an epoch before the end of its log, in a subgroup that delivers only what is durable: the
//! log is cut. Until that is on disk, it takes no message of the next epoch, and serves no other process.
use super::fetching::{Cut, CutLog};
use super::{SubgroupLog, TARGET, version};
use crate::error::Ended;
use crate::shared::Notices;
use spindle_core::Position;
use spindle_log::{Error, Version};
use std::sync::Arc;
use tracing::debug;

/// The cut of a log.
pub(super) enum EpochCut {
    /// The records before have to be on disk first.
    Waits { after: Version },
    /// The thread that writes cuts the log.
    Runs(Cut),
}

impl SubgroupLog {
    /// Removes the records from `from` on, which are not part of their epoch, once all that the log has
    /// taken is on disk. [`Self::look`] continues it.
    pub(crate) fn cut_from(&mut self, from: Position) {
        debug!(target: TARGET, subgroup = self.appender.subgroup(), from = %from, "the log is cut: its epoch has ended");
        let from = version(from);
        // No record has a version between.
        let before = || Version::new(from.epoch.saturating_sub(1), u64::MAX);
        let after = from.sequence.checked_sub(1).map_or_else(before, |last| Version::new(from.epoch, last));
        self.cut = Some(EpochCut::Waits { after });
    }

    /// Whether records wait to be removed.
    pub(crate) fn is_cutting(&self) -> bool {
        self.cut.is_some()
    }

    /// Continues the cut. Returns whether it is done with this call.
    ///
    /// # Errors
    /// [`Ended::Log`].
    pub(super) fn go_on_cutting(&mut self, name: &str, notices: &Arc<Notices>) -> Result<bool, Ended> {
        let failed = |error: Error| Ended::Log { subgroup: name.to_string(), reason: error.to_string() };
        match &self.cut {
            Some(EpochCut::Waits { after }) if self.appender.queued_bytes() == 0 => {
                let (writer, number) = (self.appender.handle(), self.appender.subgroup());
                self.cut = Some(EpochCut::Runs(Cut::begin(writer, number, Some(*after), notices).map_err(failed)?));
                Ok(false)
            }
            Some(EpochCut::Runs(cut)) => {
                let Some(result) = cut.result() else { return Ok(false) };
                let (_, appender): CutLog = result.map_err(failed)?;
                self.continue_with(appender);
                self.cut = None;
                Ok(true)
            }
            Some(EpochCut::Waits { .. }) | None => Ok(false),
        }
    }
}
