//! The part of its [`Config`] that a member keeps while it runs.
use super::{Config, LogSettings};
use spindle_core::Ablation;
use spindle_core::control::SharedSettings;
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
    pub(crate) group: String,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) log: LogSettings,
}

impl Config {
    /// Returns the part that a member keeps.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
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
