//! The clock of a process that joins: compared with its own logs, and with those of the members.
use super::Candidate;
use crate::control_plane::ControlPlane;
use crate::error::JoinError;
use crate::old_logs::OldLogs;

impl Candidate<'_> {
    /// Refuses a clock that is too far behind the logs. A member may be admitted with a clock that is ahead
    /// by the bound, which may then step by the bound.
    pub(super) fn check_clock(&self, old: Option<&OldLogs>) -> Result<(), JoinError> {
        let (Some(old), Some(max)) = (old, self.config.clock_skew_max) else { return Ok(()) };
        let now = self.clock.now();
        let latest = u64::try_from(2 * max.as_nanos()).map_or(u64::MAX, |max| now.saturating_add(max));
        match old.states().iter().find(|state| state.clock > latest) {
            None => Ok(()),
            Some(state) => {
                let (path, subgroup, log) = (old.path().clone(), state.name.clone(), state.clock);
                Err(JoinError::ClockBehindLog { path, subgroup, log, now, max })
            }
        }
    }

    /// Sets the clock that members compare with theirs.
    pub(super) fn set_clock(&self, control_plane: &mut ControlPlane) {
        let max = self.config.clock_skew_max.filter(|_| self.config.may_log());
        control_plane.set_clock(self.clock.clone(), max);
    }
}
