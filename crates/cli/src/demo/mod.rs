//! `spindle demo`: a group of real processes on this machine, shown while it works.
//!
//! This process takes no part in the group. It starts the members ([`child`]), reads the reports of
//! each over a pipe ([`report`]), shows them ([`table`]), orders them to stop, and compares their
//! deliveries. [`cluster`] holds the processes, in slots: the member with id 1 has slot 0. With
//! `--kill` one of them is killed during the run ([`accident`]).
mod accident;
pub(crate) mod child;
mod cluster;
mod report;
mod table;

use crate::clock::now_ns;
use crate::exit::{CliError, CliResult, ENDED, FAILED, USAGE};
use crate::log::Verbosity;
use crate::private::PrivateDir;
use crate::quantity;
use crate::screen::Screen;
use crate::settings::RuntimeDirArgs;
use crate::signals::Stop;
use crate::views::shortened;
use accident::{Accident, KillStage};
use cluster::DemoCluster;
use report::{Final, MemberReport, OutputLine, ViewBegun, ViewDeliveries};
use serde_json::{Value, json};
use spindle_core::limits::MESSAGE_BYTES_MAX;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use table::MemberTable;

/// Approximate bytes of each member's ring, unless `--window` sets its size.
const RING_BYTES: u64 = 1 << 20;
const WINDOW_MIN: u64 = 4;
const WINDOW_MAX: u64 = 1 << 15;
/// Time between two drawings on a terminal. Elsewhere the next constant is the time between two
/// lines or objects.
const REDRAW_EVERY: Duration = Duration::from_millis(250);
const PRINT_EVERY: Duration = Duration::from_secs(1);
/// How long the members may take to find each other.
const GATHER_WAIT: Duration = Duration::from_secs(35);
/// How long the members may take to deliver the rest.
const FINISH_WAIT: Duration = Duration::from_secs(35);
/// Time of the kill, as a part of the run.
const KILL_AT: f64 = 0.4;
/// How long the other members may take to end after one has failed.
const FAIL_WAIT: Duration = Duration::from_secs(3);
/// How often the demo checks whether they have ended. No event reports it.
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

    /// The members that send
    #[arg(long, value_enum, default_value_t = DemoSenders::All)]
    senders: DemoSenders,

    /// How long to send, in seconds
    #[arg(short = 't', long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// Subgroups, each with an order of its own; every member is in all of them, and sends to one
    /// after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    subgroups: u32,

    /// Messages each sender may have on the way in each subgroup [default: as many as fit 1M]
    #[arg(long, value_name = "MESSAGES")]
    window: Option<u64>,

    /// In the middle of the run, kill a member (as `kill -9` does), show how long the others take
    /// to continue without it, and start a new one, which joins
    #[arg(long)]
    kill: bool,

    /// Print one JSON object a second, and one at the end, instead of a table.
    ///
    /// "event": "interval" has elapsed_s and members, a list of {member, pid, messages_per_second,
    /// bytes_per_second, sent_per_second, send_batch, receive_batch, delivery_batch,
    /// nulls_per_second, lag, latency: {samples, p50_ns, p99_ns, p999_ns, max_ns}}. "event":
    /// "final" has agree, elapsed_s, and members, a list of {member, pid, sent, delivered,
    /// delivered_bytes, latency, views: [{view, subgroups: [{name, delivered, digest}]}]}. Each
    /// change of the view is an "event": "view" with view, members, joined, left. Each lost member
    /// is an "event": "lost" with member, pid and message. With --kill there are also "killed"
    /// (member, pid, elapsed_s) and "survived" (view, members: a list of {member, view_ns,
    /// delivery_ns}, times from the kill to the start of the view and to its first delivery).
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: RuntimeDirArgs,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// Which members send.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DemoSenders {
    /// Every member
    All,
    /// Every other member
    Half,
    /// The first
    One,
}

/// An event for this process.
#[derive(Debug)]
enum DemoEvent {
    Signal,
    /// A member, by slot, sent a line.
    Said(usize, Box<OutputLine>),
    /// A member, by slot, has closed its pipe: it has ended or is about to.
    Gone(usize),
}

pub(crate) fn run(args: Args) -> CliResult {
    let json = args.json;
    let begun = args.verbosity.begin(false);
    begun.and_then(|()| Demo::start(args)).and_then(Demo::run).map_err(|failure| failure.told_as_json(json))
}

#[derive(Debug)]
struct Demo {
    args: Args,
    template: child::DemoMemberArgs,
    cluster: DemoCluster,
    events: Sender<DemoEvent>,
    happened: Receiver<DemoEvent>,
    stop: Stop,
    screen: Screen,
    table: MemberTable,
    /// The members, by slot.
    cast: Vec<Performer>,
    /// The newest view that a member has reported.
    view: u64,
    accident: Option<Accident>,
    interrupted: bool,
    _dir: PrivateDir,
}

/// The known state of a member.
#[derive(Clone, Debug, Default)]
struct Performer {
    joined: bool,
    done: Option<Final>,
    /// The reason why the member is gone, if it neither finished nor was killed by the demo.
    lost: Option<String>,
    killed: bool,
}

impl Performer {
    fn is_here(&self) -> bool {
        self.lost.is_none() && !self.killed
    }
}

impl Demo {
    fn start(args: Args) -> CliResult<Demo> {
        let window = args.window.unwrap_or_else(|| (RING_BYTES / (args.size + 16)).clamp(WINDOW_MIN, WINDOW_MAX));
        if args.size > MESSAGE_BYTES_MAX {
            let max = MESSAGE_BYTES_MAX >> 20;
            return Err(CliError::new(USAGE, format_args!("--size {}: a message has at most {max}M", args.size)));
        }
        if args.kill && args.members == 1 {
            return Err(CliError::new(USAGE, "--kill: no member would be left of one; give --members 2 or more"));
        }
        let (events, happened) = channel();
        let signals = events.clone();
        let stop = Stop::on_signals(move |_| drop(signals.send(DemoEvent::Signal)))?;
        let dir = PrivateDir::create(args.place.dir(), "demo")?;
        let live = stdout().is_terminal() && !args.json;
        let every = if live { REDRAW_EVERY } else { PRINT_EVERY };
        let senders = args.senders.count(args.members);
        let template = child::DemoMemberArgs {
            parent: std::process::id(),
            dir: dir.path().to_path_buf(),
            members: args.members,
            id: 0,
            senders,
            size: args.size,
            window,
            subgroups: args.subgroups,
            report_ms: every.as_millis() as u64,
            verbosity: args.verbosity.clone(),
        };
        let member = |id| child::DemoMemberArgs { id, ..template.clone() };
        let cluster = DemoCluster::start((1..=u64::from(args.members)).map(member), &events)?;
        let plural = if args.subgroups == 1 { "" } else { "s" };
        let (members, size, subgroups) = (args.members, args.size, args.subgroups);
        let title =
            format!("{members} members, {senders} sending {size} B, {subgroups} subgroup{plural}, window {window}");
        Ok(Demo {
            table: MemberTable::new(title, cluster.pids(), Duration::from_secs(args.seconds)),
            accident: args.kill.then(|| Accident::new(members)),
            cast: vec![Performer::default(); members as usize],
            args,
            template,
            cluster,
            events,
            happened,
            stop,
            screen: Screen::new(live),
            view: 1,
            interrupted: false,
            _dir: dir,
        })
    }

    fn run(mut self) -> CliResult {
        self.gather()?;
        let start = Instant::now();
        self.watch(start)?;
        let elapsed = start.elapsed();
        self.finish(Instant::now() + FINISH_WAIT)?;
        self.conclude(elapsed)
    }

    /// Waits until all members are in the group.
    fn gather(&mut self) -> CliResult {
        let deadline = Instant::now() + GATHER_WAIT;
        while !self.cast.iter().all(|performer| performer.joined) {
            self.next(deadline)?;
            if let Some(slot) = self.cast.iter().position(|performer| !performer.is_here()) {
                return Err(self.failed(slot));
            }
            if self.interrupted {
                return Err(CliError::stopped(self.stop.signal(), "before all members were there"));
            }
            if Instant::now() >= deadline {
                return Err(CliError::new(
                    FAILED,
                    "the members did not find each other in time; is the machine that busy?",
                ));
            }
        }
        Ok(())
    }

    /// Shows the members at work until the end of the run.
    fn watch(&mut self, start: Instant) -> CliResult {
        let end = start + Duration::from_secs(self.args.seconds);
        let every = if self.screen.is_live() { REDRAW_EVERY } else { PRINT_EVERY };
        let mut tick = start + every + every / 2;
        let kill_at = start + Duration::from_secs(self.args.seconds).mul_f64(KILL_AT);
        let stage = |demo: &Demo| demo.accident.as_ref().map(|accident| accident.stage);
        loop {
            let (now, stage) = (Instant::now(), stage(self));
            // The demo waits for the process that replaces the killed one.
            let changing = matches!(stage, Some(KillStage::Killed | KillStage::Replaced)) && now < end + GATHER_WAIT;
            if self.interrupted || now >= end && !changing {
                break;
            }
            let next = if stage == Some(KillStage::Before) { kill_at.min(end) } else { end };
            self.next(if now < next { tick.min(next) } else { tick })?;
            self.stage_accident(kill_at, start)?;
            // Rates come from the members' last reports. So they are shown when every member has
            // reported, or when a report is late.
            if Instant::now() >= tick || self.table.is_fresh() {
                self.show(start.elapsed())?;
                tick = Instant::now() + every + every / 2;
            }
        }
        Ok(())
    }

    /// Makes the next step of the kill, if a member is to be killed.
    fn stage_accident(&mut self, kill_at: Instant, start: Instant) -> CliResult {
        let Some(accident) = &mut self.accident else { return Ok(()) };
        let victim = accident.victim;
        match accident.stage {
            KillStage::Before if Instant::now() >= kill_at && self.cast[victim].is_here() => {
                let (id, pid, elapsed) =
                    (accident.victim_id(), self.cluster.pid(victim), start.elapsed().as_secs_f64());
                self.cast[victim].killed = true;
                accident.strike(now_ns());
                self.cluster.kill(victim);
                self.table.lose(victim, "killed");
                let object = json!({"event": "killed", "member": id, "pid": pid, "elapsed_s": elapsed});
                self.remark(format!("{elapsed:.1} s: member {id} (process {pid}) is killed"), &object)
            }
            KillStage::Killed => {
                let here = self.cast.iter().zip(1u64..).filter(|(performer, _)| performer.is_here());
                let survivors: Vec<u64> = here.map(|(_, id)| id).collect();
                let Some((view, survivors)) = accident.survived(&survivors) else { return Ok(()) };
                accident.stage = KillStage::Replaced;
                let times = survivors.iter().map(|s| format!("member {} after {}", s.id, table::time(s.first_ns)));
                let times: Vec<String> = times.collect();
                let members: Vec<Value> = survivors.iter().map(accident::Survivor::json).collect();
                let object = json!({"event": "survived", "view": view, "members": members});
                self.remark(format!("first delivery in view {view} since the kill: {}", times.join(", ")), &object)?;
                let id = self.cluster.len() as u64 + 1;
                self.cluster.add(&child::DemoMemberArgs { id, ..self.template.clone() }, &self.events)?;
                self.table.add(self.cluster.pid(self.cluster.len() - 1));
                self.cast.push(Performer::default());
                Ok(())
            }
            KillStage::Replaced if self.cast.last().is_some_and(|newcomer| newcomer.joined || !newcomer.is_here()) => {
                accident.stage = KillStage::Over;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reports an event: on a terminal below the table, elsewhere as a line or object.
    fn remark(&mut self, note: String, object: &Value) -> CliResult {
        let told = if self.args.json {
            self.screen.line(&object.to_string())
        } else if self.screen.is_live() {
            self.table.remark(note);
            Ok(())
        } else {
            self.screen.line(&note)
        };
        Ok(told.map_err(|error| anyhow::anyhow!("can't write to the standard output: {error}"))?)
    }

    fn show(&mut self, elapsed: Duration) -> CliResult {
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

    /// Orders all members to stop and waits until everything is delivered.
    fn finish(&mut self, deadline: Instant) -> CliResult {
        // A process that has not joined yet would create a group of its own after the others have
        // ended, so it is killed.
        for slot in 0..self.cast.len() {
            if !self.cast[slot].joined {
                self.cluster.kill(slot);
                self.cast[slot].killed = true;
                self.table.lose(slot, "late");
            }
        }
        self.cluster.stop_all();
        let is_open = |performer: &Performer| performer.is_here() && performer.done.is_none();
        while self.cast.iter().any(is_open) {
            self.next(deadline)?;
            if Instant::now() >= deadline {
                let late = self.cast.iter().zip(1..).filter(|(performer, _)| is_open(performer));
                let late: Vec<u64> = late.map(|(_, id)| id).collect();
                let late = shortened(&late);
                return Err(CliError::new(
                    FAILED,
                    format_args!("members that did not deliver everything in time: {late}"),
                ));
            }
        }
        Ok(())
    }

    /// Handles the next event. Waits until `deadline` at most.
    fn next(&mut self, deadline: Instant) -> CliResult {
        match self.happened.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(DemoEvent::Signal) => self.interrupted = true,
            Ok(DemoEvent::Said(slot, line)) => return self.hear(slot, *line),
            Ok(DemoEvent::Gone(slot)) if self.cast[slot].is_here() && self.cast[slot].done.is_none() => {
                return self.lose(slot, None);
            }
            Ok(DemoEvent::Gone(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(CliError::new(FAILED, "all members have ended")),
        }
        Ok(())
    }

    fn hear(&mut self, slot: usize, line: OutputLine) -> CliResult {
        let id = slot as u64 + 1;
        match line {
            OutputLine::Joined { at_ns, .. } => {
                self.cast[slot].joined = true;
                self.table.start(slot, at_ns);
            }
            OutputLine::View(begun) => {
                if let Some(accident) = &mut self.accident {
                    accident.begun(id, begun.view, &begun.members, begun.at_ns);
                }
                if begun.view > self.view {
                    self.view = begun.view;
                    return self.tell_view(&begun);
                }
            }
            OutputLine::First { view, at_ns } => {
                if let Some(accident) = &mut self.accident {
                    accident.delivered(id, view, at_ns);
                }
            }
            OutputLine::Report(report) => self.table.note(slot, report),
            OutputLine::Final(done) => self.cast[slot].done = Some(done),
            OutputLine::Failed { message } => return self.lose(slot, Some(message)),
        }
        Ok(())
    }

    fn tell_view(&mut self, begun: &ViewBegun) -> CliResult {
        let ViewBegun { view, members, joined, left, .. } = begun;
        let plural = if members.len() == 1 { "" } else { "s" };
        let gone = (!left.is_empty()).then(|| format!("without {}", shortened(left)));
        let come = (!joined.is_empty()).then(|| format!("with {}", shortened(joined)));
        let what: Vec<String> = [gone, come].into_iter().flatten().collect();
        let object = json!({"event": "view", "view": view, "members": members, "joined": joined, "left": left});
        self.remark(format!("view {view} {}: member{plural} {}", what.join(" and "), shortened(members)), &object)
    }

    /// Records that a member failed, or was killed from outside the demo. The others continue, if
    /// there are any.
    fn lose(&mut self, slot: usize, message: Option<String>) -> CliResult {
        if !self.cast[slot].is_here() {
            return Ok(());
        }
        let deadline = Instant::now() + FAIL_WAIT;
        // The member's pipe closes a moment before its process ends.
        while message.is_none() && !self.cluster.has_ended(slot) && Instant::now() < deadline {
            thread::sleep(REAP_EVERY);
        }
        let id = slot + 1;
        let told = message.map(|message| format!("member {id}: {message}"));
        let what =
            told.or_else(|| self.cluster.death(slot)).unwrap_or_else(|| format!("member {id} ended without a report"));
        self.cast[slot].lost = Some(what.clone());
        self.table.lose(slot, "lost");
        if !self.cast.iter().any(Performer::is_here) {
            return Err(self.failed(slot));
        }
        let object = json!({"event": "lost", "member": id, "pid": self.cluster.pid(slot), "message": what});
        self.remark(what, &object)
    }

    /// Returns the failure when no member can continue. It blames the killed members, not those
    /// that noticed the kill.
    fn failed(&mut self, slot: usize) -> CliError {
        let deadline = Instant::now() + FAIL_WAIT;
        while !self.cluster.have_all_ended() && Instant::now() < deadline {
            thread::sleep(REAP_EVERY);
        }
        self.screen.leave();
        let deaths = self.cluster.deaths();
        if !deaths.is_empty() {
            return CliError::new(ENDED, deaths.join("; "));
        }
        let first = self.cast[slot].lost.clone();
        CliError::new(FAILED, first.unwrap_or_else(|| format!("member {} ended without a report", slot + 1)))
    }

    /// Compares the members and prints their results.
    fn conclude(mut self, elapsed: Duration) -> CliResult {
        let finals = self.cast.iter().zip(1u64..).filter_map(|(performer, id)| Some((id, performer.done.clone()?)));
        let finals: Vec<(u64, Final)> = finals.collect();
        let odd = disagreeing(&finals);
        let printed = if self.args.json {
            let members: Vec<Value> =
                finals.iter().map(|(id, done)| member_json(*id, done, self.cluster.pid(*id as usize - 1))).collect();
            let object = json!({
                "event": "final", "agree": odd.is_empty(), "elapsed_s": elapsed.as_secs_f64(), "members": members,
            });
            self.screen.line(&object.to_string())
        } else {
            let mut lines = table::final_lines(&finals);
            lines.push(if odd.is_empty() { verdict(&finals) } else { "THE MEMBERS DO NOT AGREE.".to_string() });
            lines.iter().try_for_each(|line| self.screen.line(line))
        };
        printed.and_then(|()| io::stdout().flush()).map_err(|error| anyhow::anyhow!("can't write: {error}"))?;
        if !odd.is_empty() {
            let (first, ids) = (finals[0].0, shortened(&odd));
            return Err(CliError::new(
                FAILED,
                format_args!("members that delivered other messages than member {first}: {ids}"),
            ));
        }
        let lost: Vec<String> = self.cast.iter().filter_map(|performer| performer.lost.clone()).collect();
        if !lost.is_empty() {
            return Err(CliError::new(ENDED, format_args!("{}; the others agree", lost.join("; "))));
        }
        if self.interrupted {
            return Err(CliError::stopped(self.stop.signal(), "before the time was over; the members agree"));
        }
        if self.accident.as_ref().is_some_and(|accident| accident.stage != KillStage::Over) {
            return Err(CliError::new(FAILED, "the view did not change in time; is the machine that busy?"));
        }
        Ok(())
    }
}

/// Returns the members whose deliveries differ from the first member's. A member that joined later
/// must have the same deliveries from its first view on. Every view is compared as a whole, because
/// all members that begin a view deliver the same in it.
fn disagreeing(finals: &[(u64, Final)]) -> Vec<u64> {
    let Some((_, first)) = finals.first() else { return vec![] };
    let agrees = |done: &Final| {
        let begin = done.views.first().map_or(0, |delivered| delivered.view);
        let known: Vec<&ViewDeliveries> = first.views.iter().filter(|delivered| delivered.view >= begin).collect();
        !done.views.is_empty() && known.iter().copied().eq(&done.views)
    };
    finals.iter().filter(|(_, done)| !agrees(done)).map(|(id, _)| *id).collect()
}

/// Describes that all members agree.
fn verdict(finals: &[(u64, Final)]) -> String {
    let mut groups: BTreeMap<u64, (Vec<String>, u64)> = BTreeMap::new();
    for (id, done) in finals {
        let begin = done.views.first().map_or(0, |delivered| delivered.view);
        groups.entry(begin).or_insert((vec![], done.totals.delivered)).0.push(id.to_string());
    }
    let mut groups = groups.into_values();
    let (all, total) = groups.next().unwrap_or_default();
    let Some((late, part)) = groups.next() else {
        let count = all.len();
        if count == 1 {
            return format!("Member {} delivered {total} messages.", all[0]);
        }
        return format!("All {count} members delivered the same {total} messages in the same order.");
    };
    let (count, all, late) = (all.len(), shortened(&all), shortened(&late));
    if count == 1 {
        return format!(
            "Member {all} delivered {total} messages, and member {late} the last {part} of them in the same order."
        );
    }
    format!("Members {all} agree on all {total} messages and their order, member {late} on the last {part}.")
}

impl DemoSenders {
    fn count(self, members: u32) -> u32 {
        match self {
            DemoSenders::All => members,
            DemoSenders::Half => members.div_ceil(2),
            DemoSenders::One => 1,
        }
    }
}

fn member_json(id: u64, done: &Final, pid: u32) -> Value {
    let MemberReport { sent, delivered, delivered_bytes, latency, .. } = &done.totals;
    json!({
        "member": id, "pid": pid, "sent": sent, "delivered": delivered, "delivered_bytes": delivered_bytes,
        "latency": latency, "views": done.views,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::SubgroupDeliveries;

    fn member(id: u64, views: &[(u64, &str)]) -> (u64, Final) {
        let views = views.iter().map(|(view, digest)| {
            let stream = SubgroupDeliveries { name: "s0".into(), delivered: 1, digest: (*digest).to_string() };
            ViewDeliveries { view: *view, subgroups: vec![stream] }
        });
        (id, Final { totals: MemberReport::default(), views: views.collect() })
    }

    #[test]
    fn one_member_is_not_said_to_be_several() {
        let alone = member(1, &[(1, "a"), (2, "b")]);
        let (late, other) = (member(3, &[(2, "b")]), member(2, &[(1, "a"), (2, "b")]));
        let told = |finals: &[&(u64, Final)]| verdict(&finals.iter().copied().cloned().collect::<Vec<_>>());
        assert_eq!(told(&[&alone]), "Member 1 delivered 0 messages.");
        assert!(told(&[&alone, &late]).starts_with("Member 1 delivered 0 messages, and member 3 the last 0 of them"));
        assert!(told(&[&alone, &other]).starts_with("All 2 members delivered the same"));
        assert!(told(&[&alone, &other, &late]).starts_with("Members 1, 2 agree"));
    }

    #[test]
    fn a_later_receiver_must_have_the_rest_and_nothing_else() {
        let first = member(1, &[(1, "a"), (2, "b"), (3, "c")]);
        let odd = |views: &[(u64, &str)]| !disagreeing(&[first.clone(), member(4, views)]).is_empty();
        assert!(!odd(&[(1, "a"), (2, "b"), (3, "c")]) && !odd(&[(3, "c")]) && !odd(&[(2, "b"), (3, "c")]));
        for wrong in [&[(3, "b")][..], &[(2, "b")], &[(1, "a"), (3, "c")], &[(3, "c"), (4, "d")], &[(4, "d")], &[]] {
            assert!(odd(wrong), "{wrong:?}");
        }
    }
}
