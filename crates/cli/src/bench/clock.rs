//! Times of a benchmark: the start of a slice, and the resources that a process has used.
use crate::clock::now_ns;
use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::iter::Sum;
use std::thread;
use std::time::{Duration, Instant};

/// Sleeps until [`now_ns`] is `at_ns`.
pub(super) fn sleep_until(at_ns: u64) {
    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
}

/// Resources that all threads of a process have used since it started.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) cpu_ns: u64,
    /// Context switches because a thread had to wait.
    pub(super) voluntary: u64,
    /// Context switches because another thread was scheduled.
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
    /// Returns the usage of this process.
    pub(super) fn mine() -> io::Result<Usage> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        Ok(Usage { cpu_ns, ..Usage::switches(std::process::id())? })
    }

    /// Returns the usage of process `pid` without asking that process, because a request would wake
    /// it.
    pub(super) fn of(pid: u32) -> io::Result<Usage> {
        let file = format!("/proc/{pid}/schedstat");
        let unknown = |why: &dyn fmt::Display| io::Error::other(format!("{file} does not tell its CPU time: {why}"));
        // The file of the first thread shows whether the kernel provides such files.
        fs::read_to_string(&file).map_err(|error| unknown(&error))?;
        let times =
            tasks(pid, "schedstat")?.map(|text| text.split(' ').next().and_then(|word| word.parse::<u64>().ok()));
        let cpu_ns = times.sum::<Option<u64>>().ok_or_else(|| unknown(&"it has no number"))?;
        Ok(Usage { cpu_ns, ..Usage::switches(pid)? })
    }

    /// Returns the memory of a process that no other process maps, in bytes.
    pub(super) fn private_bytes(pid: u32) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        Ok(1024 * (count(&text, "Private_Clean:") + count(&text, "Private_Dirty:")))
    }

    /// Returns how often the threads of a process were switched from.
    fn switches(pid: u32) -> io::Result<Usage> {
        let switches = tasks(pid, "status")?.map(|status| Usage {
            cpu_ns: 0,
            voluntary: count(&status, "voluntary_ctxt_switches:"),
            involuntary: count(&status, "nonvoluntary_ctxt_switches:"),
        });
        Ok(switches.sum())
    }

    pub(super) fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

/// Returns the content of a file for each thread of a process. A thread may end meanwhile.
fn tasks(pid: u32, file: &'static str) -> io::Result<impl Iterator<Item = String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(tasks.flatten().filter_map(move |task| fs::read_to_string(task.path().join(file)).ok()))
}

fn count(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns the CPU time of `count` threads of this process that only sleep, in percent of a core.
/// Together they wake up `wakes_per_second` times. Processes would use more, because a switch
/// between processes also changes the address space.
pub(super) fn sleepers(count: u32, wakes_per_second: f64, time: Duration) -> anyhow::Result<f64> {
    let nap = Duration::try_from_secs_f64(f64::from(count) / wakes_per_second).unwrap_or(time).min(time);
    let until = Instant::now() + time;
    thread::scope(|scope| {
        let sleeper = move |i: u32| {
            // Otherwise they would wake together, and one interrupt would serve many of them.
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
        assert_eq!(count("Private_Dirty:        72 kB\n", "Private_Dirty:"), 72);
    }
}
