//! `spindle demo`: a group of real processes on this machine, watched while it works.
//!
//! This process takes no part in the group. It starts the members ([`child`]), hears from each over a pipe ([`report`]),
//! shows them ([`table`]), tells them to stop, and compares what they delivered. [`troupe`] holds the processes.
pub(crate) mod child;
mod report;
mod table;
mod troupe;

use crate::exit::{ENDED, FAILED, Failure, Outcome, USAGE};
use crate::place::{Place, PrivateDir};
use crate::quantity;
use crate::screen::Screen;
use crate::signals::Stop;
use report::{Final, Line, Report};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use table::Table;
use troupe::Troupe;

/// The ring of each member takes about so many bytes, unless `--window` says otherwise.
const RING_BYTES: u64 = 1 << 20;
const WINDOW_MIN: u64 = 4;
const WINDOW_MAX: u64 = 1 << 15;
/// How often a terminal is redrawn, and otherwise a line or object printed.
const REDRAW_EVERY: Duration = Duration::from_millis(250);
const PRINT_EVERY: Duration = Duration::from_secs(1);
/// How long the members may take to find each other.
const GATHER_WAIT: Duration = Duration::from_secs(35);
/// How long they may take to deliver the rest.
const FINISH_WAIT: Duration = Duration::from_secs(35);
/// How long the others may take to end when one has failed.
const FAIL_WAIT: Duration = Duration::from_secs(3);
/// How often it is looked whether they have: nothing says so.
const REAP_EVERY: Duration = Duration::from_millis(5);

/// Arguments of `spindle demo`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many processes
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    members: u32,

    /// Bytes of each message (100, 1k, 1M); below 8 there is no room for a time, and so no latency
    #[arg(short, long, value_name = "BYTES", default_value = "1k", value_parser = quantity::bytes)]
    size: u64,

    /// Who sends
    #[arg(long, value_enum, default_value_t = Senders::All)]
    senders: Senders,

    /// How long
    #[arg(short = 't', long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// Subgroups, each with an order of its own; everybody is in all, and sends to one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    subgroups: u32,

    /// Messages each sender may have on the way in each subgroup [default: what fits 1M]
    #[arg(long, value_name = "MESSAGES")]
    window: Option<u64>,

    /// Print one JSON object a second, and one at the end, instead of a table.
    ///
    /// "event": "interval" has elapsed_s and members, a list of {member, pid, messages_per_second, bytes_per_second,
    /// sent_per_second, send_batch, receive_batch, delivery_batch, nulls_per_second, lag, latency: {samples, p50_ns, p99_ns,
    /// p999_ns, max_ns}}. "event": "final" has agree, elapsed_s, and members, a list of {member, pid, sent, delivered,
    /// delivered_bytes, latency, subgroups: [{name, delivered, digest}]}.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// Which members send.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Senders {
    /// Every member
    All,
    /// Every other member
    Half,
    /// The first
    One,
}

/// What this process waits for.
#[derive(Debug)]
enum Event {
    Signal,
    /// A member, by rank, said something.
    Said(usize, Box<Line>),
    /// A member, by rank, has closed its pipe: it has ended or is about to.
    Gone(usize),
}

pub(crate) fn run(args: Args) -> Outcome {
    let json = args.json;
    Demo::start(args).and_then(Demo::run).map_err(|failure| failure.told_as_json(json))
}

#[derive(Debug)]
struct Demo {
    args: Args,
    troupe: Troupe,
    happened: Receiver<Event>,
    stop: Stop,
    screen: Screen,
    joined: usize,
    table: Table,
    finals: Vec<Option<Final>>,
    interrupted: bool,
    _dir: PrivateDir,
}

impl Demo {
    fn start(args: Args) -> Outcome<Demo> {
        let window = args.window.unwrap_or_else(|| (RING_BYTES / (args.size + 16)).clamp(WINDOW_MIN, WINDOW_MAX));
        if args.size > MESSAGE_BYTES_MAX {
            let max = MESSAGE_BYTES_MAX >> 20;
            return Err(Failure::new(USAGE, format_args!("--size {}: a message has at most {max}M", args.size)));
        }
        let (events, happened) = channel();
        let signals = events.clone();
        let stop = Stop::on_signals(move |_| drop(signals.send(Event::Signal)))?;
        let dir = PrivateDir::create(&args.place, "demo")?;
        let live = stdout().is_terminal() && !args.json;
        let every = if live { REDRAW_EVERY } else { PRINT_EVERY };
        let senders = args.senders.count(args.members);
        let member = |id| child::Args {
            parent: std::process::id(),
            dir: dir.path().to_path_buf(),
            members: args.members,
            id,
            senders,
            size: args.size,
            window,
            subgroups: args.subgroups,
            report_ms: every.as_millis() as u64,
        };
        let troupe = Troupe::start((1..=u64::from(args.members)).map(member), &events)?;
        let plural = if args.subgroups == 1 { "" } else { "s" };
        let (members, size, subgroups) = (args.members, args.size, args.subgroups);
        let title =
            format!("{members} members, {senders} sending {size} B, {subgroups} subgroup{plural}, window {window}");
        let count = args.members as usize;
        Ok(Demo {
            table: Table::new(title, troupe.pids(), Duration::from_secs(args.seconds)),
            args,
            troupe,
            happened,
            stop,
            screen: Screen::new(live),
            joined: 0,
            finals: vec![None; count],
            interrupted: false,
            _dir: dir,
        })
    }

    fn run(mut self) -> Outcome {
        self.gather()?;
        let start = Instant::now();
        self.watch(start)?;
        let elapsed = start.elapsed();
        self.finish(Instant::now() + FINISH_WAIT)?;
        self.conclude(elapsed)
    }

    /// Waits until all members are in the group.
    fn gather(&mut self) -> Outcome {
        let deadline = Instant::now() + GATHER_WAIT;
        while self.joined < self.troupe.len() {
            self.next(deadline)?;
            if self.interrupted {
                return Err(Failure::interrupted(self.stop.signal(), "before all members were there"));
            }
            if Instant::now() >= deadline {
                return Err(Failure::new(
                    FAILED,
                    "the members did not find each other in time; is the machine that busy?",
                ));
            }
        }
        Ok(())
    }

    /// Shows the members at work until the time is over.
    fn watch(&mut self, start: Instant) -> Outcome {
        let end = start + Duration::from_secs(self.args.seconds);
        let every = if self.screen.is_live() { REDRAW_EVERY } else { PRINT_EVERY };
        let mut tick = start + every + every / 2;
        while Instant::now() < end && !self.interrupted {
            self.next(tick.min(end))?;
            // Rates are those of the members' last reports, so they are shown when everybody has reported, or is late.
            if Instant::now() >= tick || self.table.is_fresh() {
                self.show(start.elapsed())?;
                tick = Instant::now() + every + every / 2;
            }
        }
        Ok(())
    }

    fn show(&mut self, elapsed: Duration) -> Outcome {
        let shown = if self.args.json {
            self.screen.line(&self.table.json(elapsed).to_string())
        } else if self.screen.is_live() {
            self.screen.redraw(&self.table.lines(elapsed))
        } else {
            self.screen.line(&self.table.summary(elapsed))
        };
        self.table.seen();
        Ok(shown.map_err(|error| anyhow::anyhow!("can't write to the standard output: {error}"))?)
    }

    /// Tells all members to stop and waits until everything is delivered.
    fn finish(&mut self, deadline: Instant) -> Outcome {
        self.troupe.stop_all();
        while self.finals.iter().any(Option::is_none) {
            self.next(deadline)?;
            if Instant::now() >= deadline {
                let late = self.finals.iter().zip(1..).filter(|(done, _)| done.is_none());
                let late: Vec<String> = late.map(|(_, id)| id.to_string()).collect();
                let late = late.join(", ");
                return Err(Failure::new(
                    FAILED,
                    format_args!("members that did not deliver everything in time: {late}"),
                ));
            }
        }
        Ok(())
    }

    /// Takes in what happens next, until `deadline` at most.
    fn next(&mut self, deadline: Instant) -> Outcome {
        match self.happened.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal) => self.interrupted = true,
            Ok(Event::Said(rank, line)) => match *line {
                Line::Joined { at_ns } => {
                    self.joined += 1;
                    self.table.start(rank, at_ns);
                }
                Line::Report(report) => self.table.note(rank, report),
                Line::Final(done) => self.finals[rank] = Some(done),
                Line::Failed { message } => return Err(self.failed(rank, Some(message))),
            },
            Ok(Event::Gone(rank)) if self.finals[rank].is_none() => return Err(self.failed(rank, None)),
            Ok(Event::Gone(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::new(FAILED, "all members have ended")),
        }
        Ok(())
    }

    /// A member could not go on. Those that were killed are to blame, not those that noticed.
    fn failed(&mut self, rank: usize, message: Option<String>) -> Failure {
        let mut messages = vec![(rank, message)];
        let deadline = Instant::now() + FAIL_WAIT;
        // The others notice at once.
        while !self.troupe.have_all_ended() && Instant::now() < deadline {
            if let Ok(Event::Said(rank, line)) = self.happened.recv_timeout(REAP_EVERY)
                && let Line::Failed { message } = *line
            {
                messages.push((rank, Some(message)));
            }
        }
        self.screen.leave();
        let deaths = self.troupe.deaths();
        if !deaths.is_empty() {
            return Failure::new(ENDED, deaths.join("; "));
        }
        let first = messages.into_iter().find_map(|(rank, message)| Some((rank, message?)));
        let (rank, message) = first.unwrap_or((rank, "ended without a word".to_string()));
        Failure::new(FAILED, format_args!("member {}: {message}", rank + 1))
    }

    /// Compares the members and prints what they came to.
    fn conclude(mut self, elapsed: Duration) -> Outcome {
        let finals: Vec<Final> = self.finals.iter().flatten().cloned().collect();
        let first = &finals[0].subgroups;
        let odd: Vec<usize> = (0..finals.len()).filter(|&i| finals[i].subgroups != *first).collect();
        let printed = if self.args.json {
            let members: Vec<Value> = finals.iter().zip(self.troupe.pids()).zip(1..).map(member_json).collect();
            let object = json!({
                "event": "final", "agree": odd.is_empty(), "elapsed_s": elapsed.as_secs_f64(), "members": members,
            });
            self.screen.line(&object.to_string())
        } else {
            let mut lines = table::final_lines(&finals);
            let total: u64 = first.iter().map(|stream| stream.delivered).sum();
            let count = finals.len();
            lines.push(match odd.is_empty() {
                true => format!("All {count} members delivered the same {total} messages in the same order."),
                false => "THE MEMBERS DO NOT AGREE.".to_string(),
            });
            lines.iter().try_for_each(|line| self.screen.line(line))
        };
        printed.and_then(|()| io::stdout().flush()).map_err(|error| anyhow::anyhow!("can't write: {error}"))?;
        if !odd.is_empty() {
            let ids: Vec<String> = odd.iter().map(|i| (i + 1).to_string()).collect();
            let message = format!("members that delivered other messages than member 1: {}", ids.join(", "));
            return Err(Failure::new(FAILED, message));
        }
        if self.interrupted {
            return Err(Failure::interrupted(self.stop.signal(), "before the time was over; the members agree"));
        }
        Ok(())
    }
}

/// The longest message that the library takes.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

impl Senders {
    fn count(self, members: u32) -> u32 {
        match self {
            Senders::All => members,
            Senders::Half => members.div_ceil(2),
            Senders::One => 1,
        }
    }
}

fn member_json(((done, pid), id): ((&Final, u32), u64)) -> Value {
    let Report { sent, delivered, delivered_bytes, latency, .. } = &done.totals;
    json!({
        "member": id, "pid": pid, "sent": sent, "delivered": delivered, "delivered_bytes": delivered_bytes,
        "latency": latency, "subgroups": done.subgroups,
    })
}
