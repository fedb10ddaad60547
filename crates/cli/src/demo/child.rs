//! One member of the demo: a process that the demo starts and that never outlives it.
//!
//! Commands come over the standard input: a line `stop` ends it in agreement with the others, the end of the input means
//! that the demo is no more. [`Line`]s go to the standard output.
use super::report::{Final, Latency, Line, Report, Stream};
use crate::exit::{ENDED, FAILED, Failure, Outcome};
use anyhow::Context;
use hdrhistogram::Histogram;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use spindle::{Batch, Config, Group, Message, Publisher, Rank, SendError, Status, Subgroup, SubgroupId, Who};
use std::io::{self, BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// One message in so many carries the time of its commit.
const SAMPLE_EVERY: u64 = 16;
/// The longest wait for room before a sender looks whether to stop.
const ROOM_WAIT: Duration = Duration::from_millis(100);
/// How long the members may take to deliver the rest once they stop sending.
const FINISH_WAIT: Duration = Duration::from_secs(30);
/// How long they may take to find each other.
const GATHER_WAIT: Duration = Duration::from_secs(30);

/// What the demo says to its members.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The process that must be alive.
    #[arg(long)]
    pub(crate) parent: u32,
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) members: u32,
    #[arg(long)]
    pub(crate) id: u64,
    #[arg(long)]
    pub(crate) senders: u32,
    #[arg(long)]
    pub(crate) size: u64,
    #[arg(long)]
    pub(crate) window: u64,
    #[arg(long)]
    pub(crate) subgroups: u32,
    #[arg(long)]
    pub(crate) report_ms: u64,
}

#[derive(Debug)]
enum Event {
    Stop,
    Sender(Result<(), SendError>),
}

/// What the handler has seen.
#[derive(Debug)]
struct Tally {
    /// (messages, digest) by subgroup.
    streams: Vec<(u64, u64)>,
    latest: Histogram<u64>,
    all: Histogram<u64>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let outcome = take_part(&args);
    if let Err(failure) = &outcome {
        say(&Line::Failed { message: format!("{:#}", failure.error) });
        // The demo prints what it was told.
        process::exit(i32::from(failure.status));
    }
    outcome
}

fn take_part(args: &Args) -> Outcome {
    stay_with_parent(args.parent)?;
    let (events, happened) = channel();
    let commands = events.clone();
    thread::spawn(move || obey(&commands));
    let mut config = Config::new("demo", args.members);
    config.id = Some(args.id);
    config.runtime_dir = Some(args.dir.clone());
    config.gather_timeout = GATHER_WAIT;
    config.subgroups = (0..args.subgroups).map(|i| subgroup(i, args)).collect();
    let mut node = config.join()?;
    let (me, sends) = (node.rank(), node.rank().0 < args.senders);
    let names: Vec<String> = (0..args.subgroups).map(name).collect();
    let publishers = names.iter().filter(|_| sends).map(|name| node.publisher(name)).collect::<Result<Vec<_>, _>>();
    let publishers = publishers.map_err(|error| Failure::new(FAILED, error))?;
    let tally = Arc::new(Mutex::new(Tally::new(args.subgroups)));
    let seen = Arc::clone(&tally);
    let size = args.size;
    let group = node.start(move |subgroup: SubgroupId, batch: &mut Batch<'_>| {
        let mut tally = lock(&seen);
        for message in batch {
            tally.add(subgroup, &message, size >= 8 && message.sender != me);
        }
    })?;
    say(&Line::Joined { at_ns: now_ns() });
    let stop = Arc::new(AtomicBool::new(false));
    if sends {
        let stop = Arc::clone(&stop);
        let send = move || drop(events.send(Event::Sender(send_all(publishers, size, &stop))));
        thread::Builder::new().name("sender".into()).spawn(send).context("no thread could be started")?;
    }
    report_until_stop(&group, &tally, &happened, Duration::from_millis(args.report_ms))?;
    stop.store(true, Ordering::Relaxed);
    let status = group.finish(FINISH_WAIT).map_err(|error| Failure::new(ENDED, error))?;
    let tally = lock(&tally);
    let streams = names.into_iter().zip(&tally.streams);
    let streams = streams.map(|(name, (delivered, digest))| Stream {
        name,
        delivered: *delivered,
        digest: format!("{digest:016x}"),
    });
    say(&Line::Final(Final { totals: report(&status, me, Latency::of(&tally.all)), subgroups: streams.collect() }));
    Ok(())
}

/// Ends this process with the demo, however that ends.
fn stay_with_parent(parent: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("can't tie this process to the demo")?;
    // It may have died before the call.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() as u32 != parent) {
        process::exit(i32::from(FAILED));
    }
    // Ctrl-C in a terminal reaches the members, too; the demo tells them what to do.
    let ignored = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
    ignored.map(drop).context("can't take over SIGINT")
}

/// Follows the commands of the demo.
fn obey(events: &Sender<Event>) {
    for line in stdin().lock().lines() {
        if line.is_ok_and(|line| line == "stop") {
            let _ = events.send(Event::Stop);
        }
    }
    // The demo keeps the pipe open until this process has ended.
    process::exit(i32::from(FAILED));
}

fn report_until_stop(group: &Group, tally: &Mutex<Tally>, happened: &Receiver<Event>, every: Duration) -> Outcome {
    let mut next = Instant::now() + every;
    loop {
        if let Some(ended) = group.ended() {
            return Err(ended.into());
        }
        match happened.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Event::Stop) => return Ok(()),
            Ok(Event::Sender(Ok(()))) | Err(RecvTimeoutError::Disconnected) => {}
            Ok(Event::Sender(Err(SendError::Ended(ended)))) => return Err(ended.into()),
            Ok(Event::Sender(Err(error))) => return Err(Failure::new(FAILED, error)),
            Err(RecvTimeoutError::Timeout) => {
                next += every;
                let status = group.status();
                let latency = lock(tally).take_latest();
                say(&Line::Report(report(&status, group.rank(), latency)));
            }
        }
    }
}

/// Sends as fast as there is room, to one subgroup after the other.
fn send_all(mut publishers: Vec<Publisher>, size: u64, stop: &AtomicBool) -> Result<(), SendError> {
    let mut count = 0u64;
    loop {
        for publisher in &mut publishers {
            let mut frame = loop {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match publisher.claim(size, ROOM_WAIT) {
                    Err(SendError::Full { .. }) => {}
                    claimed => break claimed?,
                }
            };
            frame.fill(count as u8);
            if let Some((stamp, _)) = frame.split_first_chunk_mut::<8>() {
                let now = if count.is_multiple_of(SAMPLE_EVERY) { now_ns() } else { 0 };
                *stamp = now.to_le_bytes();
            }
            frame.commit();
            count += 1;
        }
    }
}

impl Tally {
    fn new(subgroups: u32) -> Tally {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds make sense");
        Tally { streams: vec![(0, 0); subgroups as usize], latest: histogram.clone(), all: histogram }
    }

    #[inline]
    fn add(&mut self, subgroup: SubgroupId, message: &Message<'_>, sampled: bool) {
        let (count, digest) = &mut self.streams[subgroup.index()];
        *count += 1;
        *digest = mix(*digest, message);
        if !sampled {
            return;
        }
        if let Some(stamp) = message.payload.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
            && stamp != 0
        {
            let latency = now_ns().saturating_sub(stamp);
            self.latest.saturating_record(latency);
            self.all.saturating_record(latency);
        }
    }

    fn take_latest(&mut self) -> Latency {
        let latency = Latency::of(&self.latest);
        self.latest.reset();
        latency
    }
}

/// A step of the digest over (sender, round, payload). For a given message it is one-to-one, so two histories that differ
/// in one place or in their order differ in the end, in all likelihood.
#[inline]
fn mix(digest: u64, message: &Message<'_>) -> u64 {
    let place = message.round << 16 ^ u64::from(message.sender.0);
    let step = XxHash3_64::oneshot(message.payload) ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (digest.rotate_left(23) ^ step).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

fn report(status: &Status, me: Rank, latency: Latency) -> Report {
    let mut report = Report { at_ns: now_ns(), latency, ..Report::default() };
    for subgroup in &status.subgroups {
        let stats = &subgroup.stats;
        report.sent += stats.sent;
        report.delivered += stats.delivered;
        report.delivered_bytes += stats.delivered_bytes;
        report.send_batches += stats.send_batches;
        report.receive_batches += stats.receive_batches;
        report.delivery_batches += stats.delivery_batches;
        report.nulls += stats.nulls;
        report.received += subgroup.members[me.index()].frontier.received;
        report.lag.resize(subgroup.members.len(), 0);
        for (sum, member) in report.lag.iter_mut().zip(&subgroup.members) {
            *sum += member.lag;
        }
    }
    report
}

fn name(subgroup: u32) -> String {
    format!("s{subgroup}")
}

fn subgroup(number: u32, args: &Args) -> Subgroup {
    let mut subgroup = Subgroup::new(name(number));
    subgroup.senders = Who::First(args.senders);
    subgroup.message_bytes_max = args.size;
    subgroup.window = args.window;
    subgroup
}

/// The same clock in all processes of this machine.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(line: &Line) {
    let mut text = serde_json::to_string(line).expect("a line is plain data");
    text.push('\n');
    let written = stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    if written.is_err() {
        // Nobody listens any more.
        process::exit(i32::from(FAILED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_order_sender_round_and_bytes_apart() {
        let message = |sender, round, payload| Message { sender: Rank(sender), round, payload };
        let (a, b) = (message(0, 1, b"x".as_slice()), message(1, 1, b"x".as_slice()));
        let others = [b, message(0, 2, b"x"), message(0, 1, b"y"), message(0, 1, b"xx")];
        assert!(others.iter().all(|other| mix(7, other) != mix(7, &a)));
        assert_ne!(mix(mix(0, &a), &b), mix(mix(0, &b), &a));
        assert_ne!(mix(0, &a), mix(mix(0, &a), &a));
    }
}
