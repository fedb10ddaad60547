//! Times of a benchmark: when a slice begins, and what a process has cost.
use crate::clock::now_ns;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

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

impl Usage {
    /// This process's.
    pub(super) fn mine() -> io::Result<Usage> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        let mut usage = Usage { cpu_ns, ..Usage::default() };
        for task in fs::read_dir("/proc/self/task")? {
            // A thread may end while it is looked at.
            let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
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

/// CPU time of another process, its threads together, without asking it: asking would wake it.
pub(super) fn cpu_of(pid: u32) -> io::Result<Duration> {
    let mut ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(schedstat) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        ns += schedstat.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_cpu_time() {
        let before = Usage::mine().unwrap();
        let start = cpu_of(std::process::id()).unwrap();
        while Usage::mine().unwrap().since(before).cpu_ns < 30_000_000 {}
        assert!(cpu_of(std::process::id()).unwrap() > start);
    }

    #[test]
    fn names_are_matched_whole() {
        let status = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t3\n";
        assert_eq!(count(status, "voluntary_ctxt_switches:"), 3);
        assert_eq!(count(status, "nonvoluntary_ctxt_switches:"), 7);
        assert_eq!(count(status, "other:"), 0);
    }
}
