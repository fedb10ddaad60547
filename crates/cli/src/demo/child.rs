//! One member of the demo: a process that the demo starts and that never outlives it.
//!
//! Commands come over the standard input. A line `stop` ends the member in agreement with the
//! others. The end of the input means that the demo process is gone. The member writes [`OutputLine`]s to
//! the standard output.
use super::report::{Final, Latency, MemberReport, OutputLine, SubgroupDeliveries, ViewBegun, ViewDeliveries};
use crate::clock::now_ns;
use crate::exit::{CliError, CliResult, ENDED, FAILED};
use crate::log::Verbosity;
use crate::parent;
use anyhow::Context;
use hdrhistogram::Histogram;
use spindle::{
    Batch, Config, Group, HandleError, Handler, MemberId, Message, Publisher, Rank, SendError, Status, Subgroup,
    SubgroupId, ViewChange, Who,
};
use std::io::{self, BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// One message in this many carries the time of its commit.
const SAMPLE_EVERY: u64 = 16;
/// Longest wait for room before a sender checks whether to stop.
const ROOM_WAIT: Duration = Duration::from_millis(100);
/// How long the members may take to deliver the rest after they stop sending.
const FINISH_WAIT: Duration = Duration::from_secs(30);
/// How long the members may take to find each other.
const GATHER_WAIT: Duration = Duration::from_secs(30);
/// Silence after which a member is suspected to hang. It is long, because a demo may have far more
/// members than the machine has cores.
const SUSPECT_AFTER: Duration = Duration::from_secs(5);

/// The settings that the demo passes to its members.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoMemberArgs {
    /// The process that must be alive
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

    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

#[derive(Debug)]
enum ChildEvent {
    Stop,
    Sender(Result<(), SendError>),
    /// A line for the demo. The polling thread does not wait for the pipe.
    Tell(OutputLine),
}

/// The deliveries that the handler has counted.
#[derive(Debug)]
struct DeliveryTally {
    /// Views from this member's first: (messages, digest) by subgroup.
    views: Vec<(u64, Vec<(u64, u64)>)>,
    delivered: u64,
    delivered_bytes: u64,
    latest: Histogram<u64>,
    all: Histogram<u64>,
}

pub(crate) fn run(args: DemoMemberArgs) -> CliResult {
    let outcome = args.verbosity.begin(false).and_then(|()| take_part(&args));
    if let Err(failure) = &outcome {
        say(&OutputLine::Failed { message: format!("{:#}", failure.error) });
        // The demo prints the error, which it has received.
        process::exit(i32::from(failure.status));
    }
    outcome
}

fn take_part(args: &DemoMemberArgs) -> CliResult {
    parent::stay_with(args.parent)?;
    ignore_interrupts()?;
    let (events, happened) = channel();
    let commands = events.clone();
    thread::spawn(move || obey(&commands));
    let mut config = Config::new("demo", args.members);
    config.id = Some(MemberId(args.id));
    config.runtime_dir = Some(args.dir.clone());
    config.gather_timeout = GATHER_WAIT;
    config.suspect_after = Some(SUSPECT_AFTER);
    config.subgroups = (0..args.subgroups).map(|i| subgroup(i, args)).collect();
    let mut node = config.join()?;
    let (me, first) = (node.id(), node.view().id.0);
    let names: Vec<String> = (0..args.subgroups).map(name).collect();
    let mut publishers = vec![];
    for name in &names {
        match node.publisher(name) {
            Ok(publisher) => publishers.push(publisher),
            Err(HandleError::NoSender { .. }) => {}
            Err(error) => return Err(CliError::new(FAILED, error)),
        }
    }
    let tally = Arc::new(Mutex::new(DeliveryTally::new(first, args.subgroups)));
    let (rank, size) = (node.rank(), args.size);
    let listener = CountingHandler {
        tally: Arc::clone(&tally),
        events: events.clone(),
        me,
        rank,
        view: first,
        silent: true,
        size,
    };
    let group = node.start(listener)?;
    say(&OutputLine::Joined { at_ns: now_ns(), view: first });
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    if !publishers.is_empty() {
        let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
        let send = move || drop(events.send(ChildEvent::Sender(send_all(publishers, size, &stop, &sent))));
        thread::Builder::new().name("sender".into()).spawn(send).context("no thread could be started")?;
    }
    let mut reporter = Reporter {
        me,
        tally: &tally,
        sent: &sent,
        view: 0,
        last: MemberReport::default(),
        before: MemberReport::default(),
    };
    report_until_stop(&group, &mut reporter, &happened, Duration::from_millis(args.report_ms))?;
    stop.store(true, Ordering::Relaxed);
    let status = group.finish(FINISH_WAIT).map_err(|error| CliError::new(ENDED, error))?;
    while let Ok(event) = happened.try_recv() {
        if let ChildEvent::Tell(line) = event {
            say(&line);
        }
    }
    let latency = Latency::of(&lock(&tally).all);
    let totals = reporter.report(&status, latency);
    let views = std::mem::take(&mut lock(&tally).views);
    let views = views.iter().map(|(view, streams)| {
        let streams = names.iter().zip(streams).map(|(name, (delivered, digest))| SubgroupDeliveries {
            name: name.clone(),
            delivered: *delivered,
            digest: format!("{digest:016x}"),
        });
        ViewDeliveries { view: *view, subgroups: streams.collect() }
    });
    let views = views.collect();
    say(&OutputLine::Final(Final { totals, views }));
    Ok(())
}

/// The handler on the polling thread.
struct CountingHandler {
    tally: Arc<Mutex<DeliveryTally>>,
    events: Sender<ChildEvent>,
    me: MemberId,
    rank: Rank,
    view: u64,
    /// True if nothing has been delivered in this view.
    silent: bool,
    size: u64,
}

impl Handler for CountingHandler {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let mut tally = lock(&self.tally);
        let (size, rank) = (self.size, self.rank);
        let before = tally.delivered;
        for message in batch {
            tally.add(subgroup, &message, size >= 8 && message.sender != rank);
        }
        if self.silent && tally.delivered > before {
            self.silent = false;
            let _ = self.events.send(ChildEvent::Tell(OutputLine::First { view: self.view, at_ns: now_ns() }));
        }
    }

    fn view_changed(&mut self, change: &ViewChange) {
        let at_ns = now_ns();
        self.view = change.new.id.0;
        self.silent = true;
        self.rank = change.new.rank_of(self.me).unwrap_or(self.rank);
        lock(&self.tally).begin(self.view);
        let numbers = |ids: &[MemberId]| ids.iter().map(|id| id.0).collect();
        let [members, joined, left] = [&change.new.members, &change.joined, &change.left].map(|ids| numbers(ids));
        let begun = ViewBegun { view: self.view, at_ns, members, joined, left };
        let _ = self.events.send(ChildEvent::Tell(OutputLine::View(begun)));
    }
}

/// Ignores Ctrl-C, which a terminal also sends to the members. The demo sends them their orders.
fn ignore_interrupts() -> anyhow::Result<()> {
    let ignored = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default());
    ignored.map(drop).context("can't take over SIGINT")
}

/// Follows the commands of the demo.
fn obey(events: &Sender<ChildEvent>) {
    for line in stdin().lock().lines() {
        if line.is_ok_and(|line| line == "stop") {
            let _ = events.send(ChildEvent::Stop);
        }
    }
    // The demo keeps the pipe open until this process has ended, so the demo is gone.
    process::exit(i32::from(FAILED));
}

fn report_until_stop(
    group: &Group,
    reporter: &mut Reporter<'_>,
    happened: &Receiver<ChildEvent>,
    every: Duration,
) -> CliResult {
    let mut next = Instant::now() + every;
    loop {
        if let Some(ended) = group.ended() {
            return Err(ended.into());
        }
        match happened.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(ChildEvent::Stop) => return Ok(()),
            Ok(ChildEvent::Tell(line)) => say(&line),
            Ok(ChildEvent::Sender(Ok(()))) | Err(RecvTimeoutError::Disconnected) => {}
            Ok(ChildEvent::Sender(Err(SendError::Ended(ended)))) => return Err(ended.into()),
            Ok(ChildEvent::Sender(Err(error))) => return Err(CliError::new(FAILED, error)),
            Err(RecvTimeoutError::Timeout) => {
                next += every;
                let status = group.status();
                let latency = lock(reporter.tally).take_latest();
                say(&OutputLine::Report(reporter.report(&status, latency)));
            }
        }
    }
}

/// Sends as fast as there is room, to one subgroup after the other.
fn send_all(mut publishers: Vec<Publisher>, size: u64, stop: &AtomicBool, sent: &AtomicU64) -> Result<(), SendError> {
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
            // Only this thread writes the count.
            sent.store(count, Ordering::Relaxed);
        }
    }
}

impl DeliveryTally {
    fn new(view: u64, subgroups: u32) -> DeliveryTally {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds make sense");
        let views = vec![(view, vec![(0, 0); subgroups as usize])];
        DeliveryTally { views, delivered: 0, delivered_bytes: 0, latest: histogram.clone(), all: histogram }
    }

    /// Starts the digests of a new view, so that a member that joins later can be compared from its
    /// first view on.
    fn begin(&mut self, view: u64) {
        let subgroups = self.views[0].1.len();
        self.views.push((view, vec![(0, 0); subgroups]));
    }

    #[inline]
    fn add(&mut self, subgroup: SubgroupId, message: &Message<'_>, sampled: bool) {
        let (_, streams) = self.views.last_mut().expect("there is a first view");
        let (count, digest) = &mut streams[subgroup.index()];
        *count += 1;
        *digest = mix(*digest, message);
        self.delivered += 1;
        self.delivered_bytes += message.payload.len() as u64;
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

/// One step of the digest over (sender, round, payload). For a given message it is one-to-one. So
/// two histories that differ in one place or in their order very probably have different digests.
#[inline]
fn mix(digest: u64, message: &Message<'_>) -> u64 {
    let place = message.round << 16 ^ u64::from(message.sender.0);
    let step = XxHash3_64::oneshot(message.payload) ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (digest.rotate_left(23) ^ step).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Sums the counts of the engines from the start of each view.
struct Reporter<'a> {
    me: MemberId,
    tally: &'a Mutex<DeliveryTally>,
    sent: &'a AtomicU64,
    view: u64,
    /// The newest counts of this view. The next field has the sums of the earlier views.
    last: MemberReport,
    before: MemberReport,
}

impl Reporter<'_> {
    fn report(&mut self, status: &Status, latency: Latency) -> MemberReport {
        let now = counts(status, self.me);
        if status.view.0 != self.view {
            self.before = sum(&self.before, &self.last);
            self.view = status.view.0;
        }
        self.last = now;
        let tally = lock(self.tally);
        MemberReport {
            at_ns: now_ns(),
            sent: self.sent.load(Ordering::Relaxed),
            delivered: tally.delivered,
            delivered_bytes: tally.delivered_bytes,
            latency,
            lag: self.last.lag.clone(),
            ..sum(&self.before, &self.last)
        }
    }
}

/// Returns the counts of one view's engine.
fn counts(status: &Status, me: MemberId) -> MemberReport {
    let mut report = MemberReport::default();
    for subgroup in &status.subgroups {
        let stats = &subgroup.stats;
        report.announced += stats.sent;
        report.send_batches += stats.send_batches;
        report.receive_batches += stats.receive_batches;
        report.delivery_batches += stats.delivery_batches;
        report.nulls += stats.nulls;
        for member in &subgroup.members {
            let id = member.id.0;
            match report.lag.iter_mut().find(|(of, _)| *of == id) {
                Some((_, lag)) => *lag += member.lag,
                None => report.lag.push((id, member.lag)),
            }
            if member.id == me {
                report.received += member.frontier.received;
            }
        }
    }
    report
}

fn sum(a: &MemberReport, b: &MemberReport) -> MemberReport {
    MemberReport {
        announced: a.announced + b.announced,
        received: a.received + b.received,
        send_batches: a.send_batches + b.send_batches,
        receive_batches: a.receive_batches + b.receive_batches,
        delivery_batches: a.delivery_batches + b.delivery_batches,
        nulls: a.nulls + b.nulls,
        ..MemberReport::default()
    }
}

fn name(subgroup: u32) -> String {
    format!("s{subgroup}")
}

fn subgroup(number: u32, args: &DemoMemberArgs) -> Subgroup {
    let mut subgroup = Subgroup::new(name(number));
    subgroup.senders = if args.senders == args.members { Who::All } else { Who::First(args.senders) };
    subgroup.message_bytes_max = args.size;
    subgroup.window = args.window;
    subgroup
}

fn lock(tally: &Mutex<DeliveryTally>) -> MutexGuard<'_, DeliveryTally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(line: &OutputLine) {
    let mut text = serde_json::to_string(line).expect("a line is plain data");
    text.push('\n');
    let written = stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    if written.is_err() {
        // The demo is gone.
        process::exit(i32::from(FAILED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_order_sender_round_and_bytes_apart() {
        let message = |sender, round, payload| Message {
            sender: Rank(sender),
            sender_id: MemberId(u64::from(sender) + 1),
            round,
            payload,
        };
        let (a, b) = (message(0, 1, b"x".as_slice()), message(1, 1, b"x".as_slice()));
        let others = [b, message(0, 2, b"x"), message(0, 1, b"y"), message(0, 1, b"xx")];
        assert!(others.iter().all(|other| mix(7, other) != mix(7, &a)));
        assert_ne!(mix(mix(0, &a), &b), mix(mix(0, &b), &a));
        assert_ne!(mix(0, &a), mix(mix(0, &a), &a));
    }
}
