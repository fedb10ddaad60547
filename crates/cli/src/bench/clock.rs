//! Times of a benchmark: when a slice begins, and what a process has cost.
use crate::clock::now_ns;
use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::iter::Sum;
use std::thread;
use std::time::{Duration, Instant};

/// Sleeps until [`now_ns`] is `at_ns`.
pub(super) fn sleep_until(at_ns: u64) {
    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
}

/// What a process has used since it started, its threads together.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) cpu_ns: u64,
    /// Context switches because a thread had to wait.
    pub(super) voluntary: u64,
    /// Context switches because another thread had its turn.
    pub(super) involuntary: u64,
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(all: I) -> Usage {
        all.fold(Usage::default(), |sum, usage| Usage {
            cpu_ns: sum.cpu_ns + usage.cpu_ns,
            voluntary: sum.voluntary + usage.voluntary,
            involuntary: sum.involuntary + usage.involuntary,
        })
    }
}

impl Usage {
    /// This process's.
    pub(super) fn mine() -> io::Result<Usage> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        Ok(Usage { cpu_ns, ..Usage::of(std::process::id())? })
    }

    /// Another process's, without asking it: asking would wake it.
    pub(super) fn of(pid: u32) -> io::Result<Usage> {
        let mut usage = Usage::default();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            let read = |name| fs::read_to_string(task.join(name));
            // A thread may end while it is looked at.
            let (Ok(status), Ok(schedstat)) = (read("status"), read("schedstat")) else { continue };
            usage.cpu_ns += schedstat.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            usage.voluntary += count(&status, "voluntary_ctxt_switches:");
            usage.involuntary += count(&status, "nonvoluntary_ctxt_switches:");
        }
        Ok(usage)
    }

    pub(super) fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

fn count(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// What processes that only sleep use, in percent of a core: `count` threads of this one, that wake up so often, all together.
pub(super) fn sleepers(count: u32, wakes_per_second: f64, time: Duration) -> anyhow::Result<f64> {
    let nap = Duration::try_from_secs_f64(f64::from(count) / wakes_per_second).unwrap_or(time);
    let until = Instant::now() + time;
    thread::scope(|scope| {
        let sleeper = move |i: u32| {
            // They would wake together otherwise, and one interrupt do for many.
            thread::sleep(nap * i / count);
            while Instant::now() < until {
                thread::sleep(nap);
            }
            let cpu = clock_gettime(ClockId::ThreadCPUTime);
            cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9
        };
        let start = |i| thread::Builder::new().spawn_scoped(scope, move || sleeper(i));
        let threads =
            (0..count).map(start).collect::<io::Result<Vec<_>>>().context("can't start threads that sleep")?;
        let used: f64 = threads.into_iter().map(|thread| thread.join().expect("it only sleeps")).sum();
        Ok(100.0 * used / time.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_cpu_time() {
        let before = Usage::mine().unwrap();
        let start = Usage::of(std::process::id()).unwrap();
        while Usage::mine().unwrap().since(before).cpu_ns < 30_000_000 {}
        assert!(Usage::of(std::process::id()).unwrap().since(start).cpu_ns > 0);
    }

    #[test]
    fn names_are_matched_whole() {
        let status = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t3\n";
        assert_eq!(count(status, "voluntary_ctxt_switches:"), 3);
        assert_eq!(count(status, "nonvoluntary_ctxt_switches:"), 7);
        assert_eq!(count(status, "other:"), 0);
    }
}
