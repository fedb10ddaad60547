//! Invariant 21: each process that waits is told what it waits for, and what it is told is true.
use super::{Invariant, Violation};

const TOLD: Invariant = Invariant(21, "nobody waits in the dark");

/// A process has been told something within this time.
pub const TOLD_WITHIN_NS: u64 = 2_000_000_000;
/// What it was told of a seed is no older than this.
pub const TRUE_FOR_NS: u64 = 6_000_000_000;

/// What a process was told of a seed, and what has happened between the two, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// It was told that the seed has answered.
    pub told_answers: bool,
    /// When something from the seed arrived last, if anything did; and how often within the last second and a half.
    pub last: Option<u64>,
    /// So often within the last second and a half.
    pub recent: u32,
    /// Since when there is a connection to it, or has been none.
    pub since: u64,
}

/// Judges what a process knows that waits since `since`, and was told something `told_at` last.
///
/// # Errors
/// It was told nothing, or what is not so.
pub fn judge(now: u64, since: u64, is_told: bool, seeds: &[Heard]) -> Result<(), Violation> {
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
    fn what_is_not_so_is_found() {
        let now = 10 * TRUE_FOR_NS;
        let heard = |told_answers, last, recent| Heard { told_answers, last, recent, since: 0 };
        judge(now, 0, true, &[heard(true, Some(now), 1), heard(false, Some(1), 0), heard(false, None, 0)]).unwrap();
        assert!(judge(now, 0, true, &[heard(true, Some(1), 0)]).is_err());
        assert!(judge(now, 0, true, &[heard(true, None, 0)]).is_err());
        assert!(judge(now, 0, true, &[heard(false, Some(now), 3)]).is_err());
    }
}
