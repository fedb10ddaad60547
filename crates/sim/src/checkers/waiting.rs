//! Invariant 21: each waiting process reports what it waits for, and its reports are true.
use super::{Checked, Invariant};

const TOLD: Invariant = Invariant(21, "a waiting process is informed");

/// The time within which a process must report what it waits for.
pub const TOLD_WITHIN_NS: u64 = 2_000_000_000;
/// The maximum age of the report on a seed.
pub const TRUE_FOR_NS: u64 = 6_000_000_000;

/// A process's report on a seed, and the messages between the two. Times are in ns.
#[derive(Clone, Copy, Debug)]
pub struct SeedReport {
    /// True if the report says that the seed has answered.
    pub told_answers: bool,
    /// The time of the last message from the seed, if one arrived.
    pub last: Option<u64>,
    /// The number of messages within the last 1.5 s.
    pub recent: u32,
    /// Since when the connection to the seed exists, or is absent.
    pub since: u64,
}

/// Checks the reports of a process that waits since `since`. `is_told` is true if the process has
/// reported what it waits for.
///
/// # Errors
/// If the process has reported nothing in time, or a report is false.
pub fn judge(now: u64, since: u64, is_told: bool, seeds: &[SeedReport]) -> Checked {
    if !is_told && now > since + TOLD_WITHIN_NS {
        return TOLD.broken("a process was not told what it waits for".into());
    }
    for (seed, heard) in seeds.iter().enumerate() {
        let is_old = heard.last.unwrap_or(heard.since) + TRUE_FOR_NS < now;
        if heard.told_answers && is_old {
            return TOLD.broken(format!("a process was told that seed {seed} has answered, which is silent"));
        }
        if is_told && !heard.told_answers && heard.recent >= 3 && heard.since + TRUE_FOR_NS < now {
            return TOLD.broken(format!("a process was told that seed {seed} is silent, which answers"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_found() {
        judge(TOLD_WITHIN_NS, 0, false, &[]).unwrap();
        assert!(judge(TOLD_WITHIN_NS + 1, 0, false, &[]).is_err());
    }

    #[test]
    fn false_reports_are_found() {
        let now = 10 * TRUE_FOR_NS;
        let heard = |told_answers, last, recent| SeedReport { told_answers, last, recent, since: 0 };
        judge(now, 0, true, &[heard(true, Some(now), 1), heard(false, Some(1), 0), heard(false, None, 0)]).unwrap();
        assert!(judge(now, 0, true, &[heard(true, Some(1), 0)]).is_err());
        assert!(judge(now, 0, true, &[heard(true, None, 0)]).is_err());
        assert!(judge(now, 0, true, &[heard(false, Some(now), 3)]).is_err());
    }
}
