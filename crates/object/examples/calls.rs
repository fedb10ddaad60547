//! Measures calls of a replicated object: calls per second with many on the way, and the round trip
//! of one call at a time.
//!
//! ```text
//! cargo run --release -p spindle-object --example calls -- --json
//! ```
//!
//! Each member is a process of this machine. The first one calls; all execute. A call has an argument
//! of `--size` bytes, which the command adds up, and a reply of 8 bytes.
//!
//! Keys of `--json`: `bench`, `cores`, `members`, `size_bytes`, `outstanding`, and two runs,
//! `throughput` and `round_trip`, with:
//! - `calls`, `seconds`, `calls_per_second`;
//! - `p50_ns`, `p90_ns`, `p99_ns`, `p999_ns`, `max_ns`: from before a call until its reply.
use clap::Parser;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use spindle::{Config, Group};
use spindle_object::{Call, Replicated, Settings, commands};
use std::error::Error;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, available_parallelism};
use std::time::{Duration, Instant};

/// How long a member may wait for the others, at the beginning and at the end.
const WAIT: Duration = Duration::from_secs(30);
/// How long a call may take until the measurement is given up.
const CALL_MAX: Duration = Duration::from_secs(10);

/// Measures calls of a replicated object
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Members, each a process
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    members: u32,
    /// Bytes of a call's argument
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=9000))]
    size: u32,
    /// Calls on the way at a time, in the first run
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    outstanding: u32,
    /// How long each run takes, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The directory in which a member meets the one that has started it
    #[arg(long, hide = true)]
    member: Option<PathBuf>,
}

/// A sum of bytes.
#[derive(Default, Serialize, Deserialize)]
struct Sum(u64);

#[commands]
impl Sum {
    #[command]
    fn add(&mut self, bytes: &[u8]) -> u64 {
        self.0 = bytes.iter().fold(self.0, |sum, byte| sum.wrapping_add(u64::from(*byte)));
        self.0
    }
}

#[derive(Debug, Serialize)]
struct CallsReport {
    bench: &'static str,
    cores: u32,
    members: u32,
    size_bytes: u32,
    outstanding: u32,
    throughput: CallsRun,
    round_trip: CallsRun,
}

#[derive(Debug, Serialize)]
struct CallsRun {
    calls: u64,
    seconds: f64,
    calls_per_second: f64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some(dir) = &arguments.member {
        return execute_only(dir, arguments.members);
    }
    let report = measure(&arguments, Duration::from_secs(arguments.seconds))?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let CallsReport { cores, members, size_bytes, .. } = report;
    println!("{members} members, {size_bytes} B, {cores} cores");
    for (outstanding, run) in [(report.outstanding, report.throughput), (1, report.round_trip)] {
        let us = |ns: u64| ns as f64 / 1000.0;
        println!(
            "{outstanding:3} on the way: {:9.0} calls/s, {:7.1} µs (50 %), {:7.1} µs (99 %), {:7.1} µs (99.9 %)",
            run.calls_per_second,
            us(run.p50_ns),
            us(run.p99_ns),
            us(run.p999_ns)
        );
    }
    Ok(())
}

/// A directory and processes that end with the measurement.
struct Cluster {
    dir: PathBuf,
    processes: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn join(dir: &Path, members: u32) -> Result<(Group, Replicated<Sum>), Box<dyn Error>> {
    let mut config = Config::new("calls", members);
    config.runtime_dir = Some(dir.to_owned());
    config.gather_timeout = WAIT;
    Ok(Replicated::join(config, "all", Sum::default(), Settings::default())?)
}

/// A member that executes calls until its input ends, which it does with the process that started it.
fn execute_only(dir: &Path, members: u32) -> Result<(), Box<dyn Error>> {
    let (group, sum) = join(dir, members)?;
    io::stdin().lines().for_each(drop);
    drop(sum);
    group.leave(WAIT)?;
    Ok(())
}

fn measure(arguments: &Arguments, time: Duration) -> Result<CallsReport, Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("spindle-calls-{}", std::process::id()));
    let mut cluster = Cluster { dir, processes: vec![] };
    let members = arguments.members.to_string();
    for _ in 1..arguments.members {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--member").arg(&cluster.dir).args(["--members", &members]).stdin(Stdio::piped());
        cluster.processes.push(command.spawn()?);
    }
    let (_group, sum) = join(&cluster.dir, arguments.members)?;
    let bytes = vec![1; arguments.size as usize];
    let call = SumCalls::add(&bytes);
    run_calls(&sum, &call, arguments.outstanding, time / 10)?;
    Ok(CallsReport {
        bench: "calls",
        cores: available_parallelism().map_or(0, |cores| cores.get() as u32),
        members: arguments.members,
        size_bytes: arguments.size,
        outstanding: arguments.outstanding,
        throughput: run_calls(&sum, &call, arguments.outstanding, time)?,
        round_trip: run_calls(&sum, &call, 1, time)?,
    })
}

type Calling<'a> = Pin<Box<dyn Future<Output = Result<u64, spindle_object::CallError>> + 'a>>;

/// Has so many calls on the way for a time.
fn run_calls(
    sum: &Replicated<Sum>,
    call: &Call<Sum, u64>,
    outstanding: u32,
    time: Duration,
) -> Result<CallsRun, Box<dyn Error>> {
    let mut histogram = Histogram::<u64>::new(3)?;
    let ready = Arc::new(Ready { slots: Mutex::default(), thread: thread::current() });
    let wakers: Vec<Waker> =
        (0..outstanding).map(|slot| Arc::new(WakeSlot { slot, ready: Arc::clone(&ready) }).into()).collect();
    let begin = Instant::now();
    let start = || -> (Instant, Calling<'_>) { (Instant::now(), Box::pin(sum.call_async(call))) };
    // By slot: its call, until the time is over.
    let mut calling: Vec<_> = (0..outstanding).map(|_| Some(start())).collect();
    let mut slots: Vec<u32> = (0..outstanding).collect();
    let (mut calls, mut last) = (0, begin);
    loop {
        for slot in slots.drain(..) {
            let waker = &wakers[slot as usize];
            let slot = &mut calling[slot as usize];
            while let Some((called, future)) = slot
                && let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(waker))
            {
                result?;
                last = Instant::now();
                histogram.record(u64::try_from((last - *called).as_nanos())?)?;
                calls += 1;
                *slot = (last - begin < time).then(start);
            }
        }
        if calling.iter().all(Option::is_none) {
            break;
        }
        slots = ready.wait(Instant::now() + CALL_MAX).ok_or("no call was answered in time")?;
    }
    let seconds = (last - begin).as_secs_f64();
    let quantile = |part| histogram.value_at_quantile(part);
    Ok(CallsRun {
        calls,
        seconds,
        calls_per_second: calls as f64 / seconds,
        p50_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        max_ns: histogram.max(),
    })
}

/// The calls that may have an outcome.
struct Ready {
    slots: Mutex<Vec<u32>>,
    thread: Thread,
}

struct WakeSlot {
    slot: u32,
    ready: Arc<Ready>,
}

impl Wake for WakeSlot {
    fn wake(self: Arc<Self>) {
        let mut slots = self.ready.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(self.slot);
        drop(slots);
        self.ready.thread.unpark();
    }
}

impl Ready {
    /// Waits for calls. Returns `None` if there are none by `deadline`.
    fn wait(&self, deadline: Instant) -> Option<Vec<u32>> {
        loop {
            let mut slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
            if !slots.is_empty() {
                slots.sort_unstable();
                slots.dedup();
                return Some(slots);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One member, so that no other process is started. All calls are executed.
    #[test]
    fn calls_are_measured() {
        let arguments = Arguments::parse_from(["calls", "--members", "1", "--size", "10", "--outstanding", "8"]);
        let report = measure(&arguments, Duration::from_millis(50)).unwrap();
        assert!(report.throughput.calls >= 8 && report.round_trip.calls >= 1, "{report:?}");
        assert!(report.round_trip.p50_ns > 0 && report.round_trip.p50_ns <= report.round_trip.max_ns);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((json["bench"].as_str(), json["size_bytes"].as_u64()), (Some("calls"), Some(10)));
    }
}
