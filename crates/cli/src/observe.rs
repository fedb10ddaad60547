//! `spindle observe`: prints the deliveries of a group, without being one of its members.
//!
//! One thread follows the group and writes. The main thread waits for the end of that thread or for
//! a signal, so that a full pipe can't prevent a stop.
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::lines;
use crate::log::Verbosity;
use crate::member::output::{BLOCK_BYTES, DeliveryOutput};
use crate::membership::HostsArgs;
use crate::settings::{GroupLocation, GroupSelection};
use crate::signals::Stop;
use crate::views::{self, list, numbers};
use crate::waiting::WaitReporter;
use serde_json::json;
use spindle::{Config, JoinError, Missed, ObserveError, Observed, Observing, View};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Longest single wait. Waits repeat while the group lives.
const WAIT: Duration = Duration::from_millis(100);
/// How long the writing thread may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// Arguments of `spindle observe`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: GroupSelection,

    #[command(flatten)]
    hosts: HostsArgs,

    /// Print the deliveries of this subgroup only [default: all]
    #[arg(long, value_name = "NAME")]
    subgroup: Option<String>,

    /// The file that deliveries are written to; `-` is the standard output. A file is overwritten
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// Binary messages instead of lines: 4 bytes of length (little-endian), then that many bytes
    #[arg(long)]
    frames: bool,

    /// Print the origin of each message, as members do: `VIEW:ID:ROUND ` before each line; with
    /// --frames, 8 bytes each (little-endian) between the length and the bytes
    #[arg(long)]
    with_origin: bool,

    /// How long to wait until a member answers
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    timeout: u64,

    /// Report events on the standard error, as one JSON object a line.
    ///
    /// Each has an "event": "waiting" (members, here: the group is being created), "observing"
    /// (view, members: a list of ids), "view" (view, members, joined, left: lists of ids), "missed"
    /// (view, subgroup, places, gaps: a list of {id, from, until}, the rounds of a member from the
    /// first to before the last), "views_missed" (first, last), "finished" (messages, bytes; also
    /// after Ctrl-C), or "error" (message, status).
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// An event for the main thread.
enum ObserveEvent {
    Signal,
    /// The group has ended, or a signal stopped the thread that follows it.
    Ended(CliResult),
}

/// Counts of the printed messages.
#[derive(Debug, Default)]
struct PrintedCounts {
    messages: AtomicU64,
    bytes: AtomicU64,
}

pub(crate) fn run(args: Args) -> CliResult {
    let json = args.json;
    args.verbosity.begin(json).and_then(|()| observe(args)).map_err(|failure| failure.told_as_json(json))
}

fn observe(args: Args) -> CliResult {
    let config = settle(&args)?;
    let group = config.group.clone();
    let output = DeliveryOutput::open(&args.output, Path::new("-"), args.frames, args.with_origin)?;
    let (events, happened) = channel();
    let signals: Sender<ObserveEvent> = events.clone();
    let stop = Stop::on_signals(move |_| drop(signals.send(ObserveEvent::Signal)))?;
    let observing = open(&args, config, &stop)?;
    check_subgroup(&args, &group, observing.view())?;
    tell_begin(observing.view(), args.json);
    let (counts, json) = (Arc::new(PrintedCounts::default()), args.json);
    let (flag, counted) = (Arc::clone(&stop.flag), Arc::clone(&counts));
    let follow = move || drop(events.send(ObserveEvent::Ended(follow(observing, output, &args, &flag, &counted))));
    let thread = thread::Builder::new().name("observe".into()).spawn(follow);
    thread.map_err(|error| CliError::new(FAILED, format_args!("no thread could be started: {error}")))?;
    let panicked = |_| CliError::new(FAILED, "a thread panicked; please report it");
    match happened.recv().map_err(panicked)? {
        ObserveEvent::Ended(outcome) => outcome?,
        // Ctrl-C ends the command normally while the group runs.
        ObserveEvent::Signal => match happened.recv_timeout(STOP_WAIT) {
            Ok(ObserveEvent::Ended(outcome)) => outcome?,
            _ => return Err(CliError::interrupted(stop.signal(), "while the output took nothing")),
        },
    }
    if json {
        let (messages, bytes) = (counts.messages.load(Ordering::Relaxed), counts.bytes.load(Ordering::Relaxed));
        lines::tell(json!({"event": "finished", "messages": messages, "bytes": bytes}));
    }
    Ok(())
}

/// Returns the configuration to observe with. From the settings it needs only the place where the
/// group meets and how its hosts reach each other.
fn settle(args: &Args) -> CliResult<Config> {
    let mut settings = args.whom.read()?;
    args.hosts.say(&mut settings);
    let effective = settings.effective()?;
    GroupLocation::of(&effective)?;
    let mut config = effective.config()?;
    // The group's own subgroups apply.
    config.subgroups.clear();
    config.gather_timeout = Duration::from_secs(args.timeout);
    Ok(config)
}

fn open(args: &Args, config: Config, stop: &Stop) -> CliResult<Observing> {
    let seeds =
        config.network.as_ref().map(|network| network.seeds.iter().map(ToString::to_string).collect::<Vec<_>>());
    let waiting = WaitReporter::start(&config.group, args.json)?;
    let opened = config.observe_with(&mut |progress| waiting.see(progress), &stop.flag);
    opened.map_err(|error| match (error, seeds) {
        (JoinError::NoGroup { group, dir }, _) => {
            let dir = dir.display();
            let message = format!("group {group} has no members at {dir}; start a member, or name its --runtime-dir");
            CliError::new(FAILED, message)
        }
        (error @ JoinError::Silent { .. }, None) => {
            CliError::new(FAILED, format_args!("{error}. If some are on other hosts, say --listen and --seeds as members do"))
        }
        (JoinError::Silent { group, waited }, Some(seeds)) => {
            let seeds = seeds.join(", ");
            let message = format!(
                "no member of group {group} has answered within {waited:.1?}, on this host or at the seeds {seeds}; name those of its \
                 members, or resume them"
            );
            CliError::new(FAILED, message)
        }
        (JoinError::Cancelled { .. }, _) => CliError::stopped(stop.signal(), "while waiting for the group"),
        (error, _) => error.into(),
    })
}

fn check_subgroup(args: &Args, group: &str, view: &View) -> CliResult {
    let Some(name) = &args.subgroup else { return Ok(()) };
    if view.subgroup(name).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = view.subgroups.iter().map(|subgroup| subgroup.name.as_str()).collect();
    let message = format!("group {group} has no subgroup {name:?}; it has: {}", known.join(", "));
    Err(CliError::new(USAGE, message))
}

fn follow(
    mut observing: Observing,
    mut output: DeliveryOutput,
    args: &Args,
    stop: &AtomicBool,
    counts: &PrintedCounts,
) -> CliResult {
    let is_wanted = |view: &View, name: spindle::SubgroupId| {
        args.subgroup.as_ref().is_none_or(|wanted| view.subgroups[name.index()].name == *wanted)
    };
    let mut buffer = Vec::with_capacity(2 * BLOCK_BYTES);
    while !stop.load(Ordering::Relaxed) {
        // Complete deliveries are written before the thread waits for more.
        match observing.next(if buffer.is_empty() { WAIT } else { Duration::ZERO }) {
            Ok(Observed::Message { view, subgroup, message }) => {
                if is_wanted(view, subgroup) {
                    counts.messages.fetch_add(1, Ordering::Relaxed);
                    counts.bytes.fetch_add(message.payload.len() as u64, Ordering::Relaxed);
                    output.append(&message, view, &mut buffer);
                }
                if buffer.len() >= BLOCK_BYTES {
                    write(&mut output, &mut buffer)?;
                }
            }
            Err(ObserveError::TimedOut { .. }) => write(&mut output, &mut buffer)?,
            other => {
                write(&mut output, &mut buffer)?;
                match other {
                    Ok(Observed::ViewChanged(change)) => views::tell(&change, args.json),
                    Ok(Observed::Missed(missed)) if is_wanted(&missed.view, missed.subgroup) => {
                        tell_missed(&missed, args.json);
                    }
                    Ok(Observed::ViewsMissed { first, last }) => tell_views_missed(first.0, last.0, args.json),
                    Ok(_) => {}
                    Err(ObserveError::Finished) => return Ok(()),
                    Err(end) => return Err(CliError::new(FAILED, end)),
                }
            }
        }
    }
    write(&mut output, &mut buffer)
}

fn write(output: &mut DeliveryOutput, buffer: &mut Vec<u8>) -> CliResult {
    let written = output.write(buffer);
    buffer.clear();
    written
}

fn tell_begin(view: &View, json: bool) {
    if json {
        let members = numbers(&view.members);
        lines::tell(json!({"event": "observing", "view": view.id.0, "members": members}));
    } else {
        eprintln!("view {}: {}; this process only observes", view.id, list(&view.members));
    }
}

fn tell_missed(missed: &Missed, json: bool) {
    if !json {
        return eprintln!("too slow: {missed}");
    }
    let gaps = missed.gaps.iter().map(|gap| {
        let id = missed.view.members[gap.sender.index()].0;
        json!({"id": id, "from": gap.rounds.start, "until": gap.rounds.end})
    });
    let gaps: Vec<_> = gaps.collect();
    let subgroup = &missed.view.subgroups[missed.subgroup.index()].name;
    let (view, count) = (missed.view.id.0, missed.sequence_numbers());
    lines::tell(
        json!({"event": "missed", "view": view, "subgroup": subgroup, "sequence_numbers": count, "gaps": gaps}),
    );
}

fn tell_views_missed(first: u64, last: u64, json: bool) {
    if json {
        lines::tell(json!({"event": "views_missed", "first": first, "last": last}));
    } else {
        eprintln!("too slow: missed everything in views {first} to {last}");
    }
}
