//! Pruning of a member's logs, by the thread that writes them.
use super::{DurableFrontier, TARGET};
use crate::config::LogSettings;
use spindle_log::{Log, Retention, Store, Version};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The pause between two looks while the logs grow.
pub(super) const PRUNE_EVERY: Duration = Duration::from_millis(50);
/// The time to the next look if other members lack what could be pruned.
pub(super) const HELD_BACK: Duration = Duration::from_secs(10);
/// The longest time to the next look while old segments wait for their age: a clock may be set.
const LOOK_MAX: Duration = Duration::from_secs(3600);

/// The bounds of the logs of a member.
pub(super) struct Pruning {
    pub(super) settings: LogSettings,
    /// By number.
    pub(super) logs: Vec<(u32, Arc<DurableFrontier>)>,
}

impl Pruning {
    /// Prunes what is beyond the bounds, and what all members have on disk. `now` is the time since
    /// 1970. Returns the time after which there may be more to prune though nothing is written. A
    /// failure poisons the store.
    pub(super) fn prune(&self, store: &mut Store, now: Duration) -> Option<Duration> {
        let of_log = |(number, frontier): &(u32, Arc<DurableFrontier>)| {
            let log = store.log(*number).ok()?;
            let durable = frontier.look(|state| state.frontier());
            let durable = durable.map_or(Version::MIN, |at| Version::new(at.epoch.0, at.sequence));
            self.prune_log(log, durable, now)
        };
        self.logs.iter().filter_map(of_log).min()
    }

    fn prune_log(&self, log: &mut Log, durable: Version, now: Duration) -> Option<Duration> {
        let LogSettings { bytes_max, age_max, .. } = self.settings;
        // The clocks of records are times, or later.
        let clock_min = age_max.map(|age| nanos(now.saturating_sub(age)));
        let rule = Retention { bytes_max, clock_min, before: Some(durable), ..Retention::default() };
        if let Err(error) = log.retain(&rule) {
            warn!(target: TARGET, %error, "logs are not pruned");
            return None;
        }
        if log.readers().prunable(&Retention { before: None, ..rule }).segments > 0 {
            return Some(HELD_BACK);
        }
        let old_at = Duration::from_nanos(log.oldest_segment_clock()?).saturating_add(age_max?);
        Some(old_at.saturating_sub(now).saturating_add(Duration::from_millis(1)).min(LOOK_MAX))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
