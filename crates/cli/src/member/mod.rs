//! `spindle member`: one member of a group, between an input and an output.
//!
//! Three threads and the library's own: [`input`] reads and sends, [`output`] receives and writes, and this one holds the
//! group and waits for whatever happens first. So a full pipe or a silent terminal holds up nothing but itself, and when
//! one side fails the others hear at once that this member gave up.
mod input;
mod output;

use crate::exit::{ENDED, FAILED, Failure, Outcome, USAGE};
use crate::place::Place;
use crate::quantity;
use crate::signals::Stop;
use crate::waiting::Waiting;
use input::Input;
use output::Output;
use serde_json::json;
use spindle::{Config, Ended, Group, JoinError, Node, Order, Publisher, SendError, SubgroupId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The group's only subgroup.
const SUBGROUP: &str = "all";
/// The ring of each member takes about so many bytes, unless `--window` says otherwise.
const RING_BYTES: u64 = 1 << 20;
const WINDOW_MIN: u64 = 4;
/// How often `--json` reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long the end may take once everything is delivered here.
const FINISH_WAIT: Duration = Duration::from_secs(5);

/// Arguments of `spindle member`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The group's name: letters, digits, `.`, `_`, `-`
    group: String,

    /// How many members found the group: nothing is sent before all are there. A group that runs is joined whatever this says
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    members: u32,

    /// This member's number, unique in the group [default: the smallest, from 1, that nobody has had]
    #[arg(long)]
    id: Option<u64>,

    /// What to send; `-` is the standard input
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    input: PathBuf,

    /// Where deliveries go; `-` is the standard output. A file is overwritten
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Binary messages instead of lines, in and out: 4 bytes of length (little-endian), then so many bytes
    #[arg(long)]
    frames: bool,

    /// Say who sent each message and in which round of the order: `RANK:ROUND ` before each line; with --frames, 4
    /// bytes of rank and 8 bytes of round (little-endian) between the length and the bytes, not counted in the length
    #[arg(long)]
    with_origin: bool,

    /// The longest message, the same at all members (100, 64k, 1M)
    #[arg(long, value_name = "BYTES", default_value = "64k", value_parser = quantity::bytes)]
    max_message: u64,

    /// How many messages of that size each member may have on the way, the same at all members [default: what fits 1M]
    #[arg(long, value_name = "MESSAGES")]
    window: Option<u64>,

    /// The order of delivery, the same at all members
    #[arg(long, value_enum, default_value_t = OrderArg::Total)]
    order: OrderArg,

    /// How long to wait for the other members
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    gather_timeout: u64,

    /// Tell what happens on the standard error, as one JSON object a line.
    ///
    /// Each has an "event": "waiting" (members, here: a list of id and pid), "dropped" (pid, why), "joined" (rank, id,
    /// members: a list of ids), every second "progress" and at the end "finished" (seconds, sent, sent_bytes, delivered,
    /// delivered_bytes), or "error" (message, status).
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// The orders, as arguments.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum OrderArg {
    /// The same order at all members, everything only once every member has received it
    Total,
    /// The messages of each member in order; those of different members in any
    Fifo,
}

/// What the main thread waits for.
#[derive(Debug)]
enum Event {
    Signal(i32),
    /// The input has ended, or can't be read, or can't be sent. The publisher is left over where it must not be dropped
    /// before the group: that would say that this member has finished.
    Input(Outcome, Option<Publisher>),
    /// Everything is written, or the group has ended, or the output can't be written.
    Output(Outcome),
    /// A thread of this process panicked.
    Panicked,
}

/// What has passed through so far.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    delivered: AtomicU64,
    delivered_bytes: AtomicU64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let json = args.json;
    take_part(args).map_err(|failure| failure.told_as_json(json))
}

fn take_part(args: Args) -> Outcome {
    let input = Input::open(&args.input, args.frames, args.max_message)?;
    let output = Output::open(&args.output, &args.input, args.frames, args.with_origin)?;
    let (events, happened) = channel();
    let signals: Sender<Event> = events.clone();
    let stop = Stop::on_signals(move |signal| drop(signals.send(Event::Signal(signal))))?;
    let mut node = join(&args, &stop)?;
    let broken = |error: spindle::HandleError| Failure::new(USAGE, error);
    let mut publisher = node.publisher(SUBGROUP).map_err(broken)?;
    let receiver = node.receiver(SUBGROUP).map_err(broken)?;
    let group = node.start(|_: SubgroupId, _: &mut spindle::Batch<'_>| {})?;
    if args.json {
        let members: Vec<u64> = group.view().members.iter().map(|id| id.0).collect();
        eprintln!("{}", json!({"event": "joined", "rank": group.rank().0, "id": group.id().0, "members": members}));
    }
    let counts = Arc::new(Counts::default());
    let counted = Arc::clone(&counts);
    spawn("input", events.clone(), move || {
        let outcome = input.send_all(&mut publisher, &counted);
        let left = outcome.is_err().then_some(publisher);
        Event::Input(outcome, left)
    })?;
    let counted = Arc::clone(&counts);
    spawn("output", events, move || Event::Output(output.write_all(receiver, &counted)))?;
    wait(group, &happened, &counts, args.json)
}

fn join(args: &Args, stop: &Stop) -> Outcome<Node> {
    let mut config = Config::new(&args.group, args.members);
    config.id = args.id;
    config.gather_timeout = Duration::from_secs(args.gather_timeout);
    config.runtime_dir = args.place.dir();
    let subgroup = &mut config.subgroups[0];
    subgroup.message_bytes_max = args.max_message;
    subgroup.window = args.window.unwrap_or_else(|| (RING_BYTES / (args.max_message + 16)).max(WINDOW_MIN));
    subgroup.order = match args.order {
        OrderArg::Total => Order::Total,
        OrderArg::Fifo => Order::Fifo,
    };
    let waiting = Waiting::start(&args.group, args.json)?;
    config.join_with(&mut |gathering| waiting.see(gathering), &stop.flag).map_err(|error| match error {
        JoinError::Cancelled { gathering } => {
            Failure::interrupted(stop.signal(), format_args!("while waiting for the group: {gathering}"))
        }
        error => error.into(),
    })
}

/// Waits until the output has everything, or until something goes wrong. Dropping the group then tells the others.
fn wait(group: Group, happened: &Receiver<Event>, counts: &Counts, json: bool) -> Outcome {
    let start = Instant::now();
    let (mut sent, mut written) = (false, false);
    while !(sent && written) {
        match happened.recv_timeout(REPORT_EVERY) {
            Ok(Event::Signal(signal)) => {
                let left = "before the end; the other members are told";
                return Err(Failure::interrupted(signal, left));
            }
            Ok(Event::Input(Ok(()), _)) => sent = true,
            // The output says so, too, behind the last delivery.
            Ok(Event::Input(Err(failure), _)) if failure.status == ENDED => {}
            Ok(Event::Input(Err(failure), publisher)) => {
                drop(group);
                drop(publisher);
                return Err(failure);
            }
            Ok(Event::Output(Ok(()))) => written = true,
            Ok(Event::Output(Err(failure))) => return Err(failure),
            Ok(Event::Panicked) => return Err(Failure::new(FAILED, "a thread panicked; please report it")),
            Err(RecvTimeoutError::Timeout) if json => counts.print("progress", start),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::from(Ended::Dropped)),
        }
    }
    group.finish(FINISH_WAIT).map_err(|error| Failure::new(ENDED, error))?;
    if json {
        counts.print("finished", start);
    }
    Ok(())
}

impl Counts {
    fn print(&self, event: &str, start: Instant) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let object = json!({
            "event": event,
            "seconds": seconds,
            "sent": of(&self.sent),
            "sent_bytes": of(&self.sent_bytes),
            "delivered": of(&self.delivered),
            "delivered_bytes": of(&self.delivered_bytes),
        });
        eprintln!("{object}");
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Failure {
        match error {
            SendError::Ended(ended) => ended.into(),
            error => anyhow::Error::new(error).into(),
        }
    }
}

/// Runs a thread and tells what it came to.
fn spawn(name: &str, events: Sender<Event>, run: impl FnOnce() -> Event + Send + 'static) -> anyhow::Result<()> {
    let run = move || {
        let event = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Event::Panicked);
        // Nobody listens once the end is known.
        let _ = events.send(event);
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    thread.map(drop).map_err(|error| anyhow::anyhow!("no thread could be started: {error}"))
}
