//! Members that are processes of their own, which a test can stop and kill.
//!
//! A process is the test's own program, started again to run one ignored test. It reads orders from
//! its input, and its answers are the lines that begin with `=`.
#![allow(dead_code, reason = "each test uses a part")]
use super::{LONG, Scratch, Store, StoreCalls};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use spindle_object::{CallError, Replicated, UnknownCause};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A process, which is killed with the test.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    /// Starts a member. Its test is the one of this name, which calls [`run`].
    pub(crate) fn start(test: &str, scratch: &Scratch, founders: u32) -> Process {
        Process::start_durable(test, scratch, founders, 0)
    }

    /// Starts the member `id`, which has its data directory beside `scratch` and delivers what all members have
    /// on disk. A member with id 0 does neither.
    pub(crate) fn start_durable(test: &str, scratch: &Scratch, founders: u32, id: u64) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, answers) = channel();
        thread::spawn(move || {
            let answers = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("= ").map(str::to_owned));
            // The end of the output, or of the test, ends the thread.
            let _ = { answers }.try_for_each(|answer| tell.send(answer));
        });
        let mut process = Process { input: child.stdin.take().unwrap(), child, answers };
        let suspect_ms = scratch.suspect_after.map_or(0, |time| time.as_millis());
        process.order(&format!("{founders} {suspect_ms} {id} {}", scratch.path.display()));
        process
    }

    /// Returns the next answer, if it comes in time.
    pub(crate) fn answer_within(&self, time: Duration) -> Option<String> {
        self.answers.recv_timeout(time).ok()
    }

    pub(crate) fn order(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
    }

    /// Returns the next answer.
    pub(crate) fn answer(&self) -> String {
        self.answers.recv_timeout(LONG).expect("an answer of the process")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills the process, and returns the answers that were not taken.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let until = Instant::now() + LONG;
        let next = || self.answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process: joins, and obeys until its input ends. Without input it returns at once.
pub(crate) fn run() {
    let mut lines = io::stdin().lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let [founders, suspect_ms, id, path] = first.splitn(4, ' ').collect::<Vec<_>>()[..] else { return };
    let suspect_ms: u64 = suspect_ms.parse().unwrap();
    let suspect_after = (suspect_ms > 0).then(|| Duration::from_millis(suspect_ms));
    let scratch = Scratch::of(PathBuf::from(path), suspect_after);
    let founders = founders.parse().unwrap();
    let (_group, store) = match id.parse().unwrap() {
        0 => scratch.join(founders),
        id => scratch.join_durable(founders, id),
    };
    // The line of the test's name is not complete yet.
    println!("\n= joined");
    for order in lines {
        obey(&store, &order);
    }
}

fn obey(store: &Replicated<Store>, order: &str) {
    match order.split(' ').collect::<Vec<_>>()[..] {
        ["add", key, more] => answer(store.call(&StoreCalls::add(key.to_owned(), more.parse().unwrap()), LONG)),
        ["read", ref key @ ..] => {
            let key = key.join(" ");
            answer(store.read_latest(|store| store.entries.get(&key).copied().unwrap_or(0), LONG));
        }
        // Sends calls and does not wait for their outcomes.
        ["send", key, calls] => {
            for _ in 0..calls.parse().unwrap() {
                match store.call(&StoreCalls::add(key.to_owned(), 1), Duration::ZERO) {
                    Err(CallError::Unknown { id, why: UnknownCause::TimedOut { .. } }) => println!("= {id}"),
                    Ok(_) | Err(CallError::NotDone(_)) => {}
                    Err(error) => println!("= failed {error:?}"),
                }
            }
        }
        // Writes to some keys, with different values.
        ["write", keys, calls] => {
            let (keys, calls): (u64, u64) = (keys.parse().unwrap(), calls.parse().unwrap());
            for i in 0..calls {
                perform(store, i, if i % 5 == 0 { "put" } else { "add" }, i % keys, 1 << 48 | i).unwrap();
            }
        }
        // Puts, adds and reads with values from `first` on, until it is killed.
        ["work", keys, first] => {
            let (keys, first): (u64, u64) = (keys.parse().unwrap(), first.parse().unwrap());
            for i in 0_u64.. {
                perform(store, i, ["add", "read", "put"][(i % 3) as usize], i / 3 % keys, first + i).unwrap();
            }
        }
        // Adds and reads in turns, until a call or a read fails, which is not told: it was interrupted.
        ["mix", keys, calls] => {
            let (keys, calls): (u64, u64) = (keys.parse().unwrap(), calls.parse().unwrap());
            let does = |i| perform(store, i, if i.is_multiple_of(2) { "add" } else { "read" }, i % keys, 1 << 48 | i);
            let _ = (0..calls).try_for_each(does);
            println!("= over");
        }
        _ => panic!("unknown order {order:?}"),
    }
}

/// Calls or reads, and tells the times and the reply: the action of this number.
fn perform(store: &Replicated<Store>, i: u64, action: &str, key: u64, value: u64) -> Result<(), String> {
    let name = format!("key {key}");
    println!("= call {i} {key} {action} {value} {}", now_ns());
    let failed = |error: CallError| format!("{error:?}");
    let reply = match action {
        "add" => store.call(&StoreCalls::add(name, value), LONG).map(Some).map_err(failed)?,
        "put" => store.call(&StoreCalls::put(&name, value), LONG).map_err(failed)?,
        _ => {
            store.read_latest(|store| store.entries.get(&name).copied(), LONG).map_err(|error| format!("{error:?}"))?
        }
    };
    let reply = reply.map_or("none".to_owned(), |reply| reply.to_string());
    println!("= end {i} {} {reply}", now_ns());
    Ok(())
}

/// Returns the time of a clock that all processes of this machine share, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn answer<E: std::fmt::Debug>(result: Result<u64, E>) {
    match result {
        Ok(value) => println!("= {value}"),
        Err(error) => println!("= failed {error:?}"),
    }
}
