//! Reports on the standard error which processes are present while a member waits for the others,
//! if the wait is long enough to report.
use crate::lines;
use serde_json::json;
use spindle::{BootstrapProgress, MemberId, SeedState, SeedsKnown};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shortest wait that is reported.
const QUIET: Duration = Duration::from_millis(300);
/// Shortest time between two equal lines, with any lines in between. Seeds that are tried in turn
/// fail in turn.
const REPEAT_AFTER: Duration = Duration::from_secs(5);

/// Shows the state of the wait until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitReporter {
    board: Arc<WaitBoard>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct WaitBoard {
    group: String,
    json: bool,
    news: Mutex<LatestProgress>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LatestProgress {
    latest: Option<BootstrapProgress>,
    over: bool,
}

impl WaitReporter {
    pub(crate) fn start(group: &str, json: bool) -> anyhow::Result<WaitReporter> {
        let (news, changed) = Default::default();
        let board = Arc::new(WaitBoard { group: group.to_string(), json, news, changed });
        let shown = Arc::clone(&board);
        let thread = thread::Builder::new().name("waiting".into()).spawn(move || shown.show())?;
        Ok(WaitReporter { board, thread: Some(thread) })
    }

    /// Takes a new state to show.
    pub(crate) fn see(&self, progress: &BootstrapProgress) {
        let mut news = self.board.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.latest = Some(progress.clone());
        self.board.changed.notify_one();
    }
}

impl Drop for WaitReporter {
    fn drop(&mut self) {
        self.board.news.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.board.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WaitBoard {
    fn show(&self) {
        let start = Instant::now();
        let mut pace = LinePace::default();
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        while !news.over {
            let quiet = QUIET.saturating_sub(start.elapsed());
            let due = match news.latest.as_ref().filter(|_| quiet.is_zero()).map(|latest| self.line(latest)) {
                None => LineDue::In(quiet),
                Some(line) => {
                    let due = pace.due(&line, Instant::now());
                    if matches!(due, LineDue::Now) {
                        lines::tell(line);
                    }
                    due
                }
            };
            // After everything is shown the wait has no bound. A change or the end wakes it.
            news = match due {
                LineDue::In(time) if !time.is_zero() => {
                    self.changed.wait_timeout(news, time).unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.changed.wait(news).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn line(&self, progress: &BootstrapProgress) -> String {
        if self.json {
            let here = progress.present.iter().map(|p| json!({"id": p.id.0, "pid": p.pid}));
            let here: Vec<_> = here.collect();
            let mut object = json!({"event": "waiting", "members": progress.members, "here": here});
            if progress.blocked {
                object["blocked"] = true.into();
            }
            if let Some(restart) = &progress.restart {
                let ids = |ids: &[MemberId]| ids.iter().map(|id| id.0).collect::<Vec<_>>();
                object["restart"] = json!({"view": restart.base.0, "missing": ids(&restart.missing)});
                if restart.goes_on {
                    object["restart"]["goes_on"] = true.into();
                }
                if !restart.not_lost.is_empty() {
                    object["restart"]["not_lost"] = ids(&restart.not_lost).into();
                }
            }
            if let Some(seeds) = &progress.seeds {
                let SeedsKnown { wanted, known, failed, unlike, .. } = &**seeds;
                let known: Vec<_> = known.iter().map(|seed| seed.to_string()).collect();
                object["seeds"] = json!({"wanted": wanted, "known": known, "failed": failed, "unlike": unlike});
            }
            if !progress.unreached.is_empty() {
                let unreached = progress.unreached.iter().map(|u| json!({"seed": u.seed.to_string(), "why": u.why}));
                object["unreached"] = unreached.collect();
            }
            if let Some(waits) = &progress.waits {
                let silent = waits.seeds.iter().filter(|(_, state)| *state == SeedState::Silent);
                let silent: Vec<_> = silent.map(|(seed, _)| seed.to_string()).collect();
                if !silent.is_empty() {
                    object["silent"] = silent.into();
                }
            }
            if !progress.differing.is_empty() {
                let differing = progress.differing.iter();
                let differing = differing.map(|it| json!({"key": it.key, "here": it.here, "there": it.there}));
                object["differing"] = differing.collect();
            }
            if progress.differing_here > 0 {
                object["differing_here"] = progress.differing_here.into();
            }
            if progress.seeds_missing > 0 {
                object["seeds_missing"] = progress.seeds_missing.into();
            }
            object.to_string()
        } else {
            format!("group {}: {progress}", self.group)
        }
    }
}

/// Decides when lines are shown: when they differ from the last one, and none twice within
/// [`REPEAT_AFTER`].
#[derive(Debug, Default)]
struct LinePace {
    /// The lines shown within that time, the oldest first.
    shown: Vec<(String, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineDue {
    Now,
    In(Duration),
    /// The line is the last one that was shown.
    Never,
}

impl LinePace {
    /// Returns when to show this line, if it does not change until then. If that is now, it counts
    /// as shown.
    fn due(&mut self, line: &str, now: Instant) -> LineDue {
        if self.shown.last().is_some_and(|(last, _)| last == line) {
            return LineDue::Never;
        }
        let age = |at: Instant| now.saturating_duration_since(at);
        // The last line stays at any age.
        let old =
            self.shown.iter().take(self.shown.len().saturating_sub(1)).take_while(|(_, at)| age(*at) >= REPEAT_AFTER);
        self.shown.drain(..old.count());
        if let Some((_, at)) = self.shown.iter().find(|(shown, at)| shown == line && age(*at) < REPEAT_AFTER) {
            return LineDue::In(REPEAT_AFTER - age(*at));
        }
        self.shown.push((line.to_string(), now));
        LineDue::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_when_it_is_new_and_not_again_soon() {
        let (mut pace, start) = (LinePace::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(pace.due("a", at(0)), LineDue::Now);
        assert_eq!(pace.due("a", at(9)), LineDue::Never, "nothing has changed");
        assert_eq!(pace.due("b", at(9)), LineDue::Now);
        // Two lines alternate.
        assert_eq!(pace.due("a", at(10)), LineDue::Now);
        assert_eq!(pace.due("b", at(10)), LineDue::In(Duration::from_secs(4)));
        assert_eq!(pace.due("a", at(11)), LineDue::Never);
        assert_eq!(pace.due("b", at(14)), LineDue::Now);
        assert_eq!(pace.due("c", at(14)), LineDue::Now);
        assert_eq!(pace.due("a", at(14)), LineDue::In(Duration::from_secs(1)));
        assert!(pace.shown.len() < 4, "what is old is forgotten");
    }
}
