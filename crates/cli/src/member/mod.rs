//! `spindle member`: one member of a group, between an input and an output.
//!
//! It uses three threads and the library's own. [`input`] reads and sends, [`output`] receives and
//! writes. The main thread holds the group and waits for the next event. So a full pipe or an idle
//! terminal delays only its own thread. When one side fails, the others continue without this
//! member at once.
mod acks;
mod args;
mod counts;
mod input;
mod metrics;
pub(crate) mod output;
mod rejoining;

use crate::exit::{CliError, CliResult, ENDED, FAILED, USAGE};
use crate::lines;
use crate::quantity::messages;
use crate::settings::GroupLocation;
use crate::signals::Stop;
use crate::views::{self, list, numbers};
use crate::waiting::WaitReporter;
use acks::{AckOutput, AckQueue, AckSource};
pub(crate) use args::Args;
use counts::MemberCounts;
use input::{MessageInput, SendResult};
use metrics::Exposed;
use output::{DeliveryOutput, WriteResult};
use rejoining::GroupLoss;
use serde_json::json;
use spindle::settings::Effective;
use spindle::{
    Batch, Config, Difference, Ended, FinishError, Group, HandleError, Handler, Incarnation, JoinError, Lag, MemberId,
    Node, Publisher, Security, SubgroupId, View, ViewChange,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two reports with `--json`.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Shortest duration of a write to the output that is reported.
const STALL: Duration = Duration::from_secs(2);
/// How long the end of the group may take after everything is delivered here.
const FINISH_WAIT: Duration = Duration::from_secs(5);
/// How long a leaving member waits until its own messages are delivered. The next constant is how
/// long it then waits for the others' consent.
const SETTLE_WAIT: Duration = Duration::from_secs(2);
const LEAVE_WAIT: Duration = Duration::from_secs(5);
/// How often a leaving member checks for that.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An event for the main thread.
#[derive(Debug)]
enum MemberEvent {
    Signal(i32),
    View(ViewChange),
    /// True if too few members are present to agree on the next view.
    Blocked(bool),
    Lag(Lag),
    /// Another group of this name exists.
    Conflict(Incarnation, Incarnation),
    Sent(SendResult),
    Written(WriteResult),
    /// All lines about durable messages are written, or can't be.
    Acknowledged(CliResult),
    /// A thread of this process panicked.
    Panicked,
}

/// Forwards the library's reports, because the polling thread must not wait for a terminal.
struct ReportForwarder(Sender<MemberEvent>);

impl Handler for ReportForwarder {
    /// Drops deliveries of the subgroups that are not printed. Without this their senders would
    /// have to wait.
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(drop);
    }

    fn view_changed(&mut self, change: &ViewChange) {
        // This fails only when the end is known and the reader is gone.
        let _ = self.0.send(MemberEvent::View(change.clone()));
    }

    fn blocked(&mut self, is_blocked: bool) {
        let _ = self.0.send(MemberEvent::Blocked(is_blocked));
    }

    fn lag(&mut self, lag: &Lag) {
        let _ = self.0.send(MemberEvent::Lag(lag.clone()));
    }

    fn conflict(&mut self, mine: Incarnation, theirs: Incarnation) {
        let _ = self.0.send(MemberEvent::Conflict(mine, theirs));
    }
}

pub(crate) fn run(args: Args) -> CliResult {
    let json = args.json;
    args.verbosity.begin(json).and_then(|()| take_part(args)).map_err(|failure| failure.told_as_json(json))
}

fn take_part(args: Args) -> CliResult {
    let (effective, subgroup) = args.settle()?;
    let found = GroupLocation::of(&effective)?;
    tell_warnings(&effective, args.json);
    let mut config = effective.config()?;
    config.force_create = args.force_create;
    config.lost = args.lost.iter().copied().map(MemberId).collect();
    config.adoption = effective.adoption();
    if let Some(dir) = config.data_dir.as_ref().filter(|_| args.init) {
        spindle::initialise_data_dir(dir, &config.group).map_err(|error| CliError::new(USAGE, error))?;
    }
    // The longest message is known when the settings of the group are.
    let mut input = MessageInput::open(&args.input, args.frames, config.object_bytes_max)?;
    let output = DeliveryOutput::open(&args.output, &args.input, args.frames, args.with_origin)?;
    let acks = args.durable_acks.as_ref().map(|path| AckOutput::open(path, [&args.input, &args.output])).transpose()?;
    let metrics = args.metrics.map(|address| Exposed::start(address, &config.group)).transpose()?;
    if let Some(exposed) = &metrics {
        match args.json {
            true => lines::tell(json!({"event": "metrics", "url": exposed.url()})),
            false => eprintln!("metrics: {}", exposed.url()),
        }
    }
    let (events, happened) = channel();
    let signals: Sender<MemberEvent> = events.clone();
    let stop = Stop::on_signals(move |signal| drop(signals.send(MemberEvent::Signal(signal))))?;
    let counts = Arc::new(MemberCounts::new());
    let (publishers, for_input) = channel();
    let publishers = Some(publishers);
    let (sent, silent, stalled, id, ids_max, incarnation) = Default::default();
    let mut member = RunningMember {
        args,
        found,
        config,
        subgroup,
        stop,
        events,
        happened,
        counts,
        publishers,
        sent,
        silent,
        stalled,
        metrics,
        id,
        ids_max,
        incarnation,
        acks: acks.is_some().then(Arc::default),
    };
    let node = member.try_join(&member.config).and_then(|joined| member.joined(joined))?;
    member.choose_subgroup(node.view())?;
    tell_adopted(&member.config, &node, member.args.json);
    let longest = node.view().subgroup(&member.subgroup).map(|id| node.view().subgroups[id.index()].message_bytes_max);
    input.set_bytes_max(longest.unwrap_or(0).max(node.object_bytes_max()));
    if let Some((acks, queue)) = acks.zip(member.acks.clone()) {
        if let Some(id) = node.view().subgroup(&member.subgroup) {
            acks::check(&node.view().subgroups[id.index()])?;
        }
        input.acknowledge(AckSource::new(&queue));
        spawn("acks", member.events.clone(), move || MemberEvent::Acknowledged(acks.write_all(&queue)))?;
    }
    let mut group = member.start(node, output)?;
    let counts = Arc::clone(&member.counts);
    spawn("input", member.events.clone(), move || MemberEvent::Sent(input.send_all(&for_input, &counts)))?;
    loop {
        match member.work(group)? {
            None => return Ok(()),
            Some((left_out, output)) => group = member.rejoin(left_out, output)?,
        }
    }
}

#[derive(Debug)]
struct RunningMember {
    args: Args,
    found: GroupLocation,
    config: Config,
    /// The subgroup that the member sends in and prints.
    subgroup: String,
    stop: Stop,
    events: Sender<MemberEvent>,
    happened: Receiver<MemberEvent>,
    counts: Arc<MemberCounts>,
    /// The input takes the next publisher when the group of the last one has ended. `None`: there
    /// will be no next one.
    publishers: Option<Sender<Publisher>>,
    /// True if the input has ended.
    sent: bool,
    /// True if this member is no sender in the newest group.
    silent: bool,
    /// True if it was reported that the output takes nothing.
    stalled: bool,
    /// Where the metrics of this member are served, if they are.
    metrics: Option<Exposed>,
    /// The id of this process in the newest group.
    id: u64,
    /// The largest id that this process has seen in a view.
    ids_max: u64,
    /// The incarnation of the newest group. It distinguishes groups of the same name.
    incarnation: u128,
    /// The messages that wait for a line about their durability, if lines are wanted.
    acks: Option<Arc<AckQueue>>,
}

impl RunningMember {
    fn joined(&self, joined: Result<Node, JoinError>) -> CliResult<Node> {
        joined.map_err(|error| match error {
            JoinError::Cancelled { progress } => {
                CliError::stopped(self.stop.signal(), format_args!("while waiting for the group: {progress}"))
            }
            error => error.into(),
        })
    }

    /// Takes the group's first subgroup if none was named and the group does not have the one that
    /// this member would have created.
    fn choose_subgroup(&mut self, view: &View) -> CliResult {
        if view.subgroup(&self.subgroup).is_some() {
            return Ok(());
        }
        let known: Vec<&str> = view.subgroups.iter().map(|subgroup| subgroup.name.as_str()).collect();
        match (&self.args.subgroup, known.first()) {
            (None, Some(first)) => self.subgroup = first.to_string(),
            (Some(name), _) => {
                let message = format!("--subgroup {name}: the group has no such subgroup, but {}", known.join(", "));
                return Err(CliError::new(USAGE, message));
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn try_join(&self, config: &Config) -> CliResult<Result<Node, JoinError>> {
        let waiting = WaitReporter::start(&config.group, self.args.json)?;
        Ok(config.clone().join_with(&mut |progress| waiting.see(progress), &self.stop.flag))
    }

    /// Takes part with `node`, and writes its deliveries to `output`.
    fn start(&mut self, mut node: Node, output: DeliveryOutput) -> CliResult<Group> {
        let broken = |error: HandleError| CliError::new(USAGE, error);
        let publisher = match node.publisher(&self.subgroup) {
            Err(HandleError::NoSender { .. }) => None,
            taken => Some(taken.map_err(broken)?),
        };
        let receiver = node.receiver(&self.subgroup).map_err(broken)?;
        let (id, rank, view) = (node.id(), node.rank(), Arc::clone(node.view()));
        self.incarnation = node.incarnation();
        let group = node.start(ReportForwarder(self.events.clone()))?;
        if let Some(metrics) = &self.metrics {
            metrics.show(group.monitor());
        }
        self.see(&view);
        self.id = id.0;
        if self.args.json {
            let members = numbers(&view.members);
            let (view, rank, id) = (view.id.0, rank.0, id.0);
            lines::tell(json!({"event": "joined", "view": view, "rank": rank, "id": id, "members": members}));
        } else {
            eprintln!("view {}: {}; this is member {id}", view.id, list(&view.members));
        }
        self.silent = publisher.is_none();
        if self.silent {
            tell_silent(&self.subgroup, self.args.json);
        }
        if let (Some(publishers), Some(publisher)) = (self.publishers.as_ref(), publisher) {
            // An input that has ended takes no publisher. In that case this member has nothing to
            // send in this group.
            let _ = publishers.send(publisher);
        }
        if !self.args.rejoin {
            self.publishers = None;
        }
        let counts = Arc::clone(&self.counts);
        spawn("output", self.events.clone(), move || MemberEvent::Written(output.write_all(receiver, id, &counts)))?;
        Ok(group)
    }

    /// Waits until the output has everything, or until an error occurs. When the group is dropped,
    /// the others continue without this member. Returns how they continued without it, if it may
    /// join again.
    fn work(&mut self, group: Group) -> CliResult<Option<(GroupLoss, DeliveryOutput)>> {
        let mut written = false;
        while !((self.sent || self.silent) && written) {
            self.tell_of_certificate();
            self.tell_of_output();
            match self.happened.recv_timeout(REPORT_EVERY) {
                Ok(MemberEvent::Signal(signal)) => return Err(self.leave(group, signal)),
                Ok(MemberEvent::View(change)) => self.tell(&change),
                Ok(MemberEvent::Blocked(is_blocked)) => {
                    views::tell_blocked(group.view().id, is_blocked, self.args.json)
                }
                Ok(MemberEvent::Lag(lag)) => views::tell_lag(&lag, self.args.json),
                Ok(MemberEvent::Conflict(mine, theirs)) => views::tell_conflict(mine, theirs, self.args.json),
                Ok(MemberEvent::Sent(SendResult::All)) => self.sent = true,
                // The output reports the same after the last delivery.
                Ok(MemberEvent::Sent(SendResult::Ended | SendResult::Halted)) => {}
                Ok(MemberEvent::Sent(SendResult::Failed(failure, publisher))) => {
                    drop(group);
                    drop(publisher);
                    return Err(failure);
                }
                Ok(MemberEvent::Written(WriteResult::All)) => written = true,
                Ok(MemberEvent::Written(WriteResult::Ended(ended, output)))
                    if ended.is_left_out() && self.publishers.is_some() =>
                {
                    let given_up = matches!(ended, Ended::GivenUp { .. });
                    return Ok(Some((GroupLoss { view: group.view().id, given_up }, output)));
                }
                Ok(MemberEvent::Written(WriteResult::Ended(ended, output))) => {
                    return self.ended(&ended, &output).map(|()| None);
                }
                Ok(MemberEvent::Written(WriteResult::Failed(failure))) => return Err(failure),
                Ok(MemberEvent::Acknowledged(result)) => result?,
                Ok(MemberEvent::Panicked) => {
                    return Err(CliError::new(FAILED, "a thread panicked; please report it"));
                }
                Err(RecvTimeoutError::Timeout) if self.args.json => self.counts.print("progress"),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(CliError::from(Ended::Dropped)),
            }
        }
        let finished = group.finish(FINISH_WAIT).map_err(|error| CliError::new(ENDED, error));
        self.wait_for_acks();
        finished?;
        while let Ok(event) = self.happened.try_recv() {
            match event {
                MemberEvent::View(change) => self.tell(&change),
                MemberEvent::Acknowledged(result) => result?,
                _ => {}
            }
        }
        if self.args.json {
            self.counts.print("finished");
        }
        Ok(None)
    }

    /// Waits for the lines about durable messages, once the group has ended here.
    fn wait_for_acks(&self) {
        if let Some(acks) = &self.acks {
            acks.wait_for_all(SETTLE_WAIT);
        }
    }

    /// Warns if the certificate of this process expires soon, or was replaced by an unusable one.
    fn tell_of_certificate(&self) {
        let Some(Security::Tls(identity)) = self.config.network.as_ref().map(|network| &network.security) else {
            return;
        };
        for warning in identity.take_warnings() {
            match self.args.json {
                true => lines::tell(json!({"event": "warning", "message": warning.to_string()})),
                false => eprintln!("warning: {warning}"),
            }
        }
    }

    /// Reports when the output has taken nothing for a while, and when it takes data again.
    /// Meanwhile all members wait for this one as soon as the rings are full.
    fn tell_of_output(&mut self) {
        let stalled = self.counts.writing_for() >= STALL;
        if std::mem::replace(&mut self.stalled, stalled) == stalled {
            return;
        }
        match (self.args.json, stalled) {
            (true, _) => lines::tell(json!({"event": "stalled", "stalled": stalled})),
            (false, true) => eprintln!(
                "the output has taken nothing for {} s: this member delivers no more until it does, and then all others wait for this one",
                STALL.as_secs()
            ),
            (false, false) => eprintln!("the output goes on"),
        }
    }

    /// Reports that the group continues without this member for good.
    fn ended(&self, ended: &Ended, output: &DeliveryOutput) -> CliResult {
        self.counts.wait_for_rest(SETTLE_WAIT);
        self.wait_for_acks();
        let (open, written) = (self.counts.open(), self.counts.delivered.load(Ordering::Relaxed));
        if matches!(ended, Ended::Left) && (self.sent || self.silent) && open == 0 {
            if self.args.json {
                self.counts.print("finished");
            }
            return Ok(());
        }
        let mut message = format!("{ended}; {} holds the {} delivered before", output.name(), messages(written));
        if open > 0 {
            let that = if open == 1 { "that was" } else { "that were" };
            message += &format!(", and the last {open} {that} sent may have been delivered elsewhere or not");
        }
        if ended.is_left_out() {
            message += "; start it again, with --rejoin if it shall do so by itself";
        }
        Err(CliError::new(ENDED, message))
    }

    /// Leaves the group because of a signal. No message is lost if the others agree in time.
    fn leave(&mut self, group: Group, signal: i32) -> CliError {
        self.counts.halt();
        let deadline = Instant::now() + SETTLE_WAIT;
        self.counts.wait_for_rest(SETTLE_WAIT);
        let mut written = false;
        while self.counts.open() > 0 && !written && Instant::now() < deadline {
            written = self.hear_last(LOOK_EVERY);
        }
        let left = group.leave(LEAVE_WAIT);
        let deadline = Instant::now() + SETTLE_WAIT;
        while left.is_ok() && !written && Instant::now() < deadline {
            written = self.hear_last(LOOK_EVERY);
        }
        self.wait_for_acks();
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let (sent, delivered, open) = (of(&self.counts.sent), of(&self.counts.delivered), self.counts.open());
        let is_in_order = left.is_ok();
        let mut message = match left {
            Ok(_) => "and left the group in order".to_string(),
            Err(FinishError::TimedOut { waited, .. }) => {
                format!("before the others let it go, which took more than {waited:.1?}; they go on without it")
            }
            Err(error) => format!("while the group ended otherwise: {error}"),
        };
        let were = if sent == 1 { "was" } else { "were" };
        message += &format!("; {} {were} sent and {delivered} delivered", messages(sent));
        if open > 0 {
            message += &format!(", the last {open} of its own perhaps elsewhere and perhaps not");
        }
        match is_in_order {
            true => CliError::stopped(signal, message),
            false => CliError::interrupted(signal, message),
        }
    }

    /// Handles one event while the member leaves. Returns true if the output has ended.
    fn hear_last(&mut self, at_most: Duration) -> bool {
        match self.happened.recv_timeout(at_most) {
            Ok(MemberEvent::View(change)) => self.tell(&change),
            Ok(MemberEvent::Written(_) | MemberEvent::Panicked) => return true,
            _ => {}
        }
        false
    }

    fn tell(&mut self, change: &ViewChange) {
        self.see(&change.new);
        views::tell(change, self.args.json);
    }

    fn see(&mut self, view: &View) {
        let newest = view.members.iter().map(|id| id.0).max();
        self.ids_max = self.ids_max.max(newest.unwrap_or(0));
    }
}

pub(crate) fn tell_warnings(effective: &Effective, json: bool) {
    for problem in effective.warnings() {
        match json {
            true => lines::tell(json!({"event": "warning", "message": problem.to_string()})),
            false => eprintln!("{problem}"),
        }
    }
}

/// Reports the settings of a running group that this member has adopted.
fn tell_adopted(config: &Config, node: &Node, json: bool) {
    let adopted = config.shared_settings().differences(node.shared_settings());
    for Difference { key, here, there } in &adopted {
        match json {
            true => lines::tell(json!({"event": "adopted", "key": key, "value": there, "own": here})),
            false => {
                let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
                eprintln!("{key} is {} as in the group; the default is {}", value(there), value(here));
            }
        }
    }
}

fn tell_silent(subgroup: &str, json: bool) {
    match json {
        true => lines::tell(json!({"event": "silent", "subgroup": subgroup})),
        false => eprintln!("this member is no sender of subgroup {subgroup:?}: its input is not read"),
    }
}

/// Runs a thread and sends its result as an event.
fn spawn(
    name: &str,
    events: Sender<MemberEvent>,
    run: impl FnOnce() -> MemberEvent + Send + 'static,
) -> anyhow::Result<()> {
    let run = move || {
        let event = catch_unwind(AssertUnwindSafe(run)).unwrap_or(MemberEvent::Panicked);
        // This fails only when the end is known and the reader is gone.
        let _ = events.send(event);
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    thread.map(drop).map_err(|error| anyhow::anyhow!("no thread could be started: {error}"))
}
