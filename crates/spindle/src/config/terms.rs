//! The part of its [`Config`] that a member keeps while it runs.
use super::{Config, LogSettings};
use spindle_core::Ablation;
use spindle_core::control::SharedSettings;
use spindle_fabric::LogClock;
use std::path::PathBuf;
use std::time::Duration;

/// The part of its configuration that a member keeps.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) spin_for: Duration,
    pub(crate) suspect_after: Option<Duration>,
    pub(crate) ablation: Ablation,
    /// The settings that all members must share.
    pub(crate) settings: SharedSettings,
    pub(crate) object_bytes_max: u64,
    /// Whether this member may have logs.
    pub(crate) may_log: bool,
    /// How far the clocks of processes that ask for admission may be off. `None`: by any time.
    pub(crate) clock_skew_max: Option<Duration>,
    /// The clock of the messages of logs.
    pub(crate) clock: LogClock,
    pub(crate) group: String,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) log: LogSettings,
}

impl Config {
    /// Returns the part that a member keeps, whose clock is `clock`, with the bound that the group has.
    pub(crate) fn terms(&self, clock: &LogClock) -> Terms {
        let may_log = self.may_log();
        let clock_skew_max = self.clock_skew_max.filter(|_| may_log);
        clock.bound(clock_skew_max);
        Terms {
            may_log,
            clock_skew_max,
            clock: clock.clone(),
            object_bytes_max: self.object_bytes_max,
            spin_for: self.spin_for,
            suspect_after: self.suspect_after,
            ablation: self.ablation,
            settings: self.shared_settings(),
            group: self.group.clone(),
            data_dir: self.data_dir.clone(),
            log: self.log,
        }
    }
}
