//! Measures calls of a replicated key-value store: calls per second, and their times, from inside a
//! member and through a socket of it, in memory and on disks.
//!
//! ```text
//! cargo run --release -p spindle-object --example calls -- --json
//! cargo run --release -p spindle-object --example calls -- --durability memory --from socket --seconds 10
//! cargo run --release -p spindle-object --example calls -- --durability logged --data /srv/disk
//! ```
//!
//! Each member is a process of this machine, and has all entries. The first one is called: from inside
//! by a thread, or by this process, which connects to its socket over TCP on loopback. A put has a key
//! of 12 bytes and a value of `--size` bytes, and its reply is the revision of the store. A get is
//! linearizable: it reads all changes that were answered anywhere before. Its reply is the value. Each
//! run is preceded by one of a tenth of its time, which does not count.
//!
//! With logs, one durable call at a time is compared with as many concurrent bare fdatasyncs as there
//! are members, in turns: threads that write as many bytes to files of zeros in the same directory.
//!
//! Keys of `--json`: `bench`, `cores`, `members`, `size_bytes`, `keys`, and
//! - `runs`, each with `durability`, `from`, `operation`, `outstanding`, `calls`, `seconds`,
//!   `calls_per_second`, and `p50_ns`, `p90_ns`, `p99_ns`, `p999_ns`, `max_ns`: from before a call until
//!   its reply;
//! - `durable_calls`, one for each logged durability: `durability`, `calls`, `p50_ns`, `p99_ns`,
//!   `fdatasyncs` (how many at once), `fdatasyncs_p50_ns`, `fdatasyncs_p99_ns` (until the last has
//!   ended), `ratio`, `ratio_p10`, `ratio_p90` and `pairs`: over the pairs of turns.
mod caller;
mod cluster;
mod durable;
mod frames;
mod measured;
mod member;
mod server;
mod store;
mod tasks;

use caller::{Job, call_by_socket};
use clap::{Parser, ValueEnum};
use cluster::{Cluster, Start, start_process};
use durable::DurableCalls;
use measured::CallsRun;
use member::{Order, Setup, Told};
use rustix::fs::statfs;
use serde::Serialize;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;
use store::{DurabilityArg, Operation};

/// Measures calls of a replicated key-value store
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Members, each a process
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    members: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4000))]
    size: u32,
    /// Keys, which are used in turn
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// Calls on the way at a time, a list
    #[arg(long, default_value = "64,1", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    outstanding: Vec<u32>,
    /// When a put has its reply, a list
    #[arg(long, value_enum, value_delimiter = ',', default_value = "memory,logged,logged-before-delivery")]
    durability: Vec<DurabilityArg>,
    /// The caller, a list
    #[arg(long, value_enum, value_delimiter = ',', default_value = "inside,socket")]
    from: Vec<From>,
    /// The operations, a list
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put,get")]
    operation: Vec<Operation>,
    /// The directory for the logs of all members, on a disk [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How long each run takes, in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The setup of a member, started by this program
    #[arg(long, hide = true)]
    member: Option<String>,
}

/// The caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum From {
    /// A thread of the first member
    Inside,
    /// Another process, through one connection to the first member
    Socket,
}

#[derive(Debug, Serialize)]
struct CallsReport {
    bench: &'static str,
    cores: u32,
    members: u32,
    size_bytes: u32,
    keys: u32,
    runs: Vec<Run>,
    durable_calls: Vec<DurableCalls>,
}

#[derive(Debug, Serialize)]
struct Run {
    durability: DurabilityArg,
    from: From,
    operation: Operation,
    outstanding: u32,
    #[serde(flatten)]
    run: CallsRun,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some(setup) = &arguments.member {
        let setup: Setup = serde_json::from_str(setup)?;
        return member::run(&setup, io::stdin().lock(), io::stdout());
    }
    let report = measure(&arguments, start_process)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(())
}

fn measure(arguments: &Arguments, start: Start) -> Result<CallsReport, Box<dyn Error>> {
    let time = Duration::try_from_secs_f64(arguments.seconds).map_err(|error| format!("--seconds: {error}"))?;
    let data = arguments.data.clone().unwrap_or_else(std::env::temp_dir);
    let (mut runs, mut durable_calls) = (vec![], vec![]);
    for &durability in &arguments.durability {
        let is_logged = durability != DurabilityArg::Memory;
        if is_logged {
            refuse_memory(&data)?;
        }
        let mut cluster = Cluster::start(start, arguments.members, durability, &data)?;
        let job = |operation, outstanding, time| Job {
            operation,
            size: arguments.size,
            keys: arguments.keys,
            outstanding,
            time,
        };
        cluster.order(&Order::Fill(job(Operation::Put, 64, time)), time)?;
        for &from in &arguments.from {
            for &operation in &arguments.operation {
                for &outstanding in &arguments.outstanding {
                    let mut call = |time| call(&mut cluster, from, &job(operation, outstanding, time));
                    call(time / 10)?;
                    runs.push(Run { durability, from, operation, outstanding, run: call(time)? });
                }
            }
        }
        if is_logged && arguments.operation.contains(&Operation::Put) {
            let order = Order::Durable(job(Operation::Put, 1, time), cluster.logs.clone(), arguments.members);
            match cluster.order(&order, time)? {
                Told::Durable(found) => durable_calls.push(found),
                other => return Err(format!("a member answered {other:?} to durable calls").into()),
            }
        }
    }
    Ok(CallsReport {
        bench: "calls",
        cores: available_parallelism().map_or(0, |cores| cores.get() as u32),
        members: arguments.members,
        size_bytes: arguments.size,
        keys: arguments.keys,
        runs,
        durable_calls,
    })
}

fn call(cluster: &mut Cluster, from: From, job: &Job) -> Result<CallsRun, Box<dyn Error>> {
    match from {
        From::Socket => Ok(call_by_socket(cluster.address()?, job)?),
        From::Inside => match cluster.order(&Order::Call(*job), job.time)? {
            Told::Called(run) => Ok(run),
            other => Err(format!("a member answered {other:?} to calls").into()),
        },
    }
}

/// Refuses a directory in memory, where nothing is synced.
fn refuse_memory(dir: &Path) -> Result<(), Box<dyn Error>> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let kind = statfs(dir).map_err(|error| format!("can't use {} for logs: {error}", dir.display()))?.f_type;
    if kind.cast_unsigned() == TMPFS_MAGIC {
        return Err(format!("{} is in memory (tmpfs); --data names a directory on a disk", dir.display()).into());
    }
    Ok(())
}

impl CallsReport {
    fn print(&self) {
        let us = |ns: u64| ns as f64 / 1000.0;
        println!("{} members, values of {} B, {} cores", self.members, self.size_bytes, self.cores);
        println!(
            "{:<23}{:<8}{:<5}{:>12}{:>11}{:>10}{:>10}",
            "durability", "from", "", "outstanding", "calls/s", "p50 us", "p99 us"
        );
        for Run { durability, from, operation, outstanding, run } in &self.runs {
            let [durability, from, operation] = [name(durability), name(from), name(operation)];
            println!(
                "{durability:<23}{from:<8}{operation:<5}{outstanding:>12}{:>11.0}{:>10.1}{:>10.1}",
                run.calls_per_second,
                us(run.p50_ns),
                us(run.p99_ns)
            );
        }
        for found in &self.durable_calls {
            print!(
                "{}: a durable call {:.0} us (p99 {:.0}), {} concurrent fdatasyncs {:.0} us (p99 {:.0}): ",
                name(&found.durability),
                us(found.p50_ns),
                us(found.p99_ns),
                found.fdatasyncs,
                us(found.fdatasyncs_p50_ns),
                us(found.fdatasyncs_p99_ns)
            );
            let DurableCalls { ratio, ratio_p10, ratio_p90, pairs, .. } = found;
            println!("ratio {ratio:.2} ({ratio_p10:.2} to {ratio_p90:.2} in {pairs} pairs)");
        }
    }
}

/// Returns the name of a value on the command line.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Started;
    use std::io::BufReader;
    use std::thread;

    /// Starts a member in a thread: a test can't start this program.
    fn start_thread(setup: &Setup) -> Result<Started, Box<dyn Error>> {
        let (orders, give) = io::pipe()?;
        let (take, told) = io::pipe()?;
        let setup = setup.clone();
        thread::spawn(move || member::run(&setup, BufReader::new(orders), told).map_err(|error| error.to_string()));
        Ok((Box::new(give), Box::new(take), None))
    }

    #[test]
    fn calls_are_measured() {
        // The directory for temporary files may be in memory.
        let data = std::env::current_exe().unwrap().parent().unwrap().display().to_string();
        let arguments = Arguments::parse_from([
            "calls",
            "--members",
            "1",
            "--size",
            "10",
            "--outstanding",
            "8",
            "--seconds",
            "0.05",
            "--data",
            &data,
        ]);
        let report = measure(&arguments, start_thread).unwrap();
        assert_eq!((report.runs.len(), report.durable_calls.len()), (3 * 2 * 2, 2));
        for run in &report.runs {
            assert!(run.run.calls >= 8 && run.run.p50_ns > 0 && run.run.p50_ns <= run.run.max_ns, "{run:?}");
        }
        assert!(report.durable_calls.iter().all(|found| found.ratio > 0.0), "{report:?}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((json["bench"].as_str(), json["size_bytes"].as_u64()), (Some("calls"), Some(10)));
        assert_eq!(json["runs"][0]["durability"].as_str(), Some("memory"));
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let error = refuse_memory(Path::new("/nonexistent/logs")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/logs"), "{error}");
    }
}
