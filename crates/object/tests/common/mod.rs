//! An object, and groups of members on threads of this process.
#![allow(dead_code, reason = "each test uses a part")]
use serde::{Deserialize, Serialize};
use spindle::{Config, Durability, Group, MemberId, Subgroup};
use spindle_object::{Context, Replicated, Settings, StartError, StateMachine, commands};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A generator of numbers.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// Returns a number below `end`.
    pub(crate) fn next(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Debug)]
pub(crate) struct Store {
    pub(crate) entries: BTreeMap<String, u64>,
    pub(crate) rolled: Vec<u64>,
}

#[commands(state = 3)]
impl Store {
    #[command]
    pub(crate) fn put(&mut self, key: &str, value: u64) -> Option<u64> {
        self.entries.insert(key.to_owned(), value)
    }

    #[command(id = 7)]
    pub(crate) fn add(&mut self, key: String, more: u64) -> u64 {
        let value = self.entries.entry(key).or_default();
        *value += more;
        *value
    }

    #[command]
    pub(crate) fn roll(&mut self, context: &mut Context) -> (u64, Duration) {
        self.rolled.push(context.random());
        (self.rolled[self.rolled.len() - 1], context.now())
    }

    /// Panics at the member that the test has chosen.
    #[command]
    pub(crate) fn trip(&mut self, member: u64) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        assert_ne!(name, format!("spindle-{member}"), "tripped");
    }

    #[command]
    pub(crate) fn blob(&mut self, len: u32) -> Vec<u8> {
        vec![1; len as usize]
    }

    #[command]
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    #[query]
    pub(crate) fn value(&self, key: &str) -> Option<u64> {
        self.entries.get(key).copied()
    }

    #[query(id = 9)]
    pub(crate) fn zeros(&self, len: u32) -> Vec<u8> {
        vec![0; len as usize]
    }

    #[query]
    pub(crate) fn fail(&self) -> u64 {
        panic!("a query of the tests")
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future without any runtime.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let until = Instant::now() + LONG;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Task::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < until, "the future is never ready");
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// A directory that is removed with the test.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    /// A busy machine lets a thread wait for long, so silence is not suspected by default.
    pub(crate) suspect_after: Option<Duration>,
    is_removed: bool,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("spindle-object-{name}-{}", std::process::id()));
        Scratch { path, suspect_after: None, is_removed: true }
    }

    /// Uses the directory of another process.
    pub(crate) fn of(path: PathBuf, suspect_after: Option<Duration>) -> Scratch {
        Scratch { path, suspect_after, is_removed: false }
    }

    pub(crate) fn config(&self, founders: u32) -> Config {
        Config {
            runtime_dir: Some(self.path.clone()),
            gather_timeout: LONG,
            suspect_after: self.suspect_after,
            ..Config::new("objects", founders)
        }
    }

    pub(crate) fn join(&self, founders: u32) -> (Group, Replicated<Store>) {
        self.join_with(founders, Store::default(), &Settings::default()).unwrap()
    }

    /// Joins as the member `id`, with a data directory of its own. Messages are delivered when they are on the
    /// disks of all members.
    pub(crate) fn join_durable(&self, founders: u32, id: u64) -> (Group, Replicated<Store>) {
        let data_dir = self.data_dir().join(id.to_string());
        std::fs::create_dir_all(&data_dir).unwrap();
        let durability = Durability::LoggedBeforeDelivery { copies: founders / 2 + 1 };
        let subgroups = vec![Subgroup { durability, ..Subgroup::new("all") }];
        let config = Config { id: Some(MemberId(id)), data_dir: Some(data_dir), subgroups, ..self.config(founders) };
        let settings = Settings { snapshot_every_commands: 40, ..Settings::default() };
        Replicated::join(config, "all", Store::default(), settings).unwrap()
    }

    /// Returns the directory of the data of all members.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.path.with_extension("data")
    }

    pub(crate) fn join_with<T: StateMachine>(
        &self,
        founders: u32,
        object: T,
        settings: &Settings,
    ) -> Result<(Group, Replicated<T>), StartError> {
        Replicated::join(self.config(founders), "all", object, settings.clone())
    }

    /// Creates a group.
    pub(crate) fn group(&self, founders: u32) -> Vec<(Group, Replicated<Store>)> {
        self.group_with(founders, Store::default, &Settings::default())
    }

    pub(crate) fn group_with<T: StateMachine>(
        &self,
        founders: u32,
        object: impl Fn() -> T + Sync,
        settings: &Settings,
    ) -> Vec<(Group, Replicated<T>)> {
        std::thread::scope(|scope| {
            let join = || self.join_with(founders, object(), settings).unwrap();
            let members: Vec<_> = (0..founders).map(|_| scope.spawn(join)).collect();
            members.into_iter().map(|member| member.join().unwrap()).collect()
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_removed {
            let _ = std::fs::remove_dir_all(&self.path);
            let _ = std::fs::remove_dir_all(self.data_dir());
        }
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::yield_now();
    }
}
