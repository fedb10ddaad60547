//! Says on stderr who is there while a member waits for the others, if that takes long enough to wonder.
use serde_json::json;
use spindle::{Gathering, SeedsKnown};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A wait that is over sooner is not worth a line.
const QUIET: Duration = Duration::from_millis(300);

/// Shows the state of a meeting until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Board {
    group: String,
    json: bool,
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct News {
    latest: Option<Gathering>,
    over: bool,
}

impl Waiting {
    pub(crate) fn start(group: &str, json: bool) -> anyhow::Result<Waiting> {
        let (news, changed) = Default::default();
        let board = Arc::new(Board { group: group.to_string(), json, news, changed });
        let shown = Arc::clone(&board);
        let thread = thread::Builder::new().name("waiting".into()).spawn(move || shown.show())?;
        Ok(Waiting { board, thread: Some(thread) })
    }

    /// Something has changed.
    pub(crate) fn see(&self, gathering: &Gathering) {
        let mut news = self.board.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.latest = Some(gathering.clone());
        self.board.changed.notify_one();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.board.news.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.board.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Board {
    fn show(&self) {
        let start = Instant::now();
        let mut shown = None;
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        while !news.over {
            let quiet = QUIET.saturating_sub(start.elapsed());
            if quiet.is_zero() && news.latest != shown {
                shown = news.latest.clone();
                self.print(shown.as_ref());
            }
            // Without a bound once everything is shown: a change or the end wakes it.
            news = match quiet {
                Duration::ZERO => self.changed.wait(news).unwrap_or_else(PoisonError::into_inner),
                quiet => self.changed.wait_timeout(news, quiet).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    fn print(&self, gathering: Option<&Gathering>) {
        let Some(gathering) = gathering else { return };
        if self.json {
            let here = gathering.present.iter().map(|p| json!({"id": p.id.0, "pid": p.pid}));
            let here: Vec<_> = here.collect();
            let mut object = json!({"event": "waiting", "members": gathering.members, "here": here});
            if gathering.blocked {
                object["blocked"] = true.into();
            }
            if let Some(seeds) = &gathering.seeds {
                let SeedsKnown { wanted, known, failed, unlike, .. } = &**seeds;
                let known: Vec<_> = known.iter().map(|seed| seed.to_string()).collect();
                object["seeds"] = json!({"wanted": wanted, "known": known, "failed": failed, "unlike": unlike});
            }
            if !gathering.unreached.is_empty() {
                let unreached = gathering.unreached.iter().map(|u| json!({"seed": u.seed.to_string(), "why": u.why}));
                object["unreached"] = unreached.collect();
            }
            if gathering.seeds_missing > 0 {
                object["seeds_missing"] = gathering.seeds_missing.into();
            }
            eprintln!("{object}");
        } else {
            eprintln!("group {}: {gathering}", self.group);
        }
    }
}
