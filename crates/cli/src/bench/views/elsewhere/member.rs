//! A member of `spindle bench views --subgroups`. The two oldest share a stream, and all members
//! report each view.
use super::{EVERYONE, EXTRA, STREAM};
use crate::bench::args::ranks;
use crate::bench::views::member::{Args, DeliveryGap, MemberLine, PATIENCE, configured, say};
use crate::clock::now_ns;
use spindle::{
    Batch, Change, Config, Ended, FinishError, Group, Handler, MemberId, Publisher, Rule, Subgroup, SubgroupId,
    SubgroupSpec, View, ViewChange, Who,
};
use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two messages of the stream.
pub(super) const STREAM_PACE: Duration = Duration::from_micros(500);
/// Shortest time between two probes in the subgroup of everyone. Each probe wakes all members.
pub(super) const PROBE_PACE: Duration = Duration::from_millis(2);
/// Number of gaps that are kept.
const GAPS_MAX: usize = 4096;
/// How often the sender checks whether its last probe was delivered.
const PROBE_LOOK: Duration = Duration::from_micros(100);

/// Returns the subgroups: the subgroup of everyone, the stream, and the idle ones.
fn subgroups(members: u32, subgroups: u32, span: u32) -> Vec<Subgroup> {
    let small =
        |name: String, members: Who| Subgroup { members, window: 16, message_bytes_max: 128, ..Subgroup::new(name) };
    let idle = (0..subgroups).map(|i| small(format!("idle-{i}"), Who::Ranks(ranks(i, span, members))));
    let stream = Subgroup { senders: Who::First(1), ..small(STREAM.into(), Who::Ranks(vec![0, 1])) };
    let everyone = Subgroup { senders: Who::First(1), ..small(EVERYONE.into(), Who::All) };
    [everyone, stream].into_iter().chain(idle).collect()
}

/// Times without a delivery in one subgroup that are longer than its pace explains.
#[derive(Debug)]
struct Gaps {
    least_ns: u64,
    last_ns: u64,
    list: VecDeque<DeliveryGap>,
}

impl Gaps {
    fn new(pace: Duration) -> Gaps {
        let least_ns = pace.as_nanos() as u64;
        Gaps { least_ns, last_ns: 0, list: VecDeque::new() }
    }

    fn delivered(&mut self, now_ns: u64) {
        let from_ns = std::mem::replace(&mut self.last_ns, now_ns);
        if from_ns > 0 && now_ns - from_ns >= self.least_ns {
            if self.list.len() == GAPS_MAX {
                self.list.pop_front();
            }
            self.list.push_back(DeliveryGap { from_ns, to_ns: now_ns });
        }
    }

    fn take(&mut self) -> Vec<DeliveryGap> {
        std::mem::take(&mut self.list).into()
    }
}

/// Gaps that the polling thread and the others share.
struct SharedGaps {
    stream: Mutex<Gaps>,
    probes: Mutex<Gaps>,
    probed: AtomicU64,
}

struct GapRecorder {
    seen: Arc<SharedGaps>,
    /// The ids of the subgroup of everyone and of the stream.
    ids: [Option<SubgroupId>; 2],
}

impl GapRecorder {
    fn find(&mut self, view: &View) {
        let id = |name: &str| view.subgroups.iter().position(|spec| spec.name == name);
        self.ids = [EVERYONE, STREAM].map(|name| id(name).map(|at| SubgroupId(at as u32)));
    }
}

impl Handler for GapRecorder {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let mut count = 0;
        batch.for_each(|_| count += 1);
        if count == 0 {
            return;
        }
        let is_probe = self.ids[0] == Some(subgroup);
        let gaps = if is_probe { &self.seen.probes } else { &self.seen.stream };
        gaps.lock().unwrap_or_else(PoisonError::into_inner).delivered(now_ns());
        if is_probe {
            self.seen.probed.fetch_add(count, Ordering::Release);
        }
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.find(&change.new);
        let ids = |list: &[MemberId]| list.iter().map(|id| id.0).collect();
        let extra = change.new.subgroups.iter().find(|spec| spec.name == EXTRA);
        say(&MemberLine::Installed {
            view: change.new.id.0,
            joined: ids(&change.joined),
            left: ids(&change.left),
            extra: extra.map(|spec| spec.window),
        });
    }
}

/// Returns the specification of the subgroup that is created, altered and dropped. It contains this
/// member alone.
fn extra(me: MemberId, window: u64) -> SubgroupSpec {
    SubgroupSpec {
        member_rule: Rule::Only(vec![me]),
        window,
        message_bytes_max: 128,
        ..SubgroupSpec::of_everyone(EXTRA)
    }
}

pub(in crate::bench::views) fn serve(args: &Args, idle: u32) -> anyhow::Result<()> {
    // A joining process has the founders' configuration.
    let subgroups = subgroups(args.base, idle, args.span);
    let config = Config { founders: args.base, subgroups, ..configured(args)? };
    let gaps = |pace| Mutex::new(Gaps::new(pace));
    // A pause counts if it is twice as long as the pace.
    let seen =
        Arc::new(SharedGaps { stream: gaps(2 * STREAM_PACE), probes: gaps(2 * PROBE_PACE), probed: AtomicU64::new(0) });
    let mut witness = GapRecorder { seen: Arc::clone(&seen), ids: [None; 2] };
    let asked_ns = now_ns();
    let mut node = config.learn(&mut witness, &mut |_| {}, &AtomicBool::new(false))?;
    witness.find(node.view());
    let stream = node.publisher(STREAM).ok();
    let probe = node.publisher(EVERYONE).ok();
    node.seal();
    let group = node.start(witness)?;
    let (at_ns, view) = (now_ns(), group.view().id.0);
    say(&MemberLine::Joined { asked_ns, at_ns, view, restore_ns: 0, restored_bytes: 0 });
    let stop = Arc::new(AtomicBool::new(false));
    let probing = Arc::new(AtomicBool::new(false));
    let senders = [
        stream.map(|publisher| send_steadily(publisher, Arc::clone(&stop))),
        probe.map(|publisher| send_probes(publisher, Arc::clone(&stop), Arc::clone(&probing), Arc::clone(&seen))),
    ];
    let (tell, orders) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    let last = obey(&group, &orders, &probing, &seen)?;
    stop.store(true, Ordering::Relaxed);
    for sender in senders.into_iter().flatten() {
        let _ = sender?.join();
    }
    let ended = match last.as_deref() {
        Some("leave") => group.leave(PATIENCE),
        Some(_) => group.finish(PATIENCE),
        None => return Ok(()),
    };
    ended.map(drop).map_err(|error: FinishError| error.into())
}

/// Carries out orders. Returns the last order, which ends the member, if there is one.
fn obey(
    group: &Group,
    orders: &Receiver<String>,
    probing: &AtomicBool,
    seen: &SharedGaps,
) -> anyhow::Result<Option<String>> {
    let take = |gaps: &Mutex<Gaps>| gaps.lock().unwrap_or_else(PoisonError::into_inner).take();
    loop {
        match group.ended() {
            Some(Ended::Evicted { .. }) => {
                say(&MemberLine::Evicted);
                return Ok(None);
            }
            Some(ended) => return Err(ended.into()),
            None => {}
        }
        // The timeout is long, so that a waiting member takes no CPU time from the others.
        let order = match orders.recv_timeout(Duration::from_secs(1)) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        };
        match order.as_str() {
            "create" => _ = group.propose_change(Change::Create(extra(group.id(), 4)))?,
            "alter" => _ = group.propose_change(Change::Alter(extra(group.id(), 8)))?,
            "drop" => _ = group.propose_change(Change::Drop(EXTRA.into()))?,
            "probe" => probing.store(true, Ordering::Relaxed),
            "rest" => probing.store(false, Ordering::Relaxed),
            "gaps" => say(&MemberLine::Gaps { gaps: take(&seen.stream) }),
            "probe-gaps" => say(&MemberLine::Gaps { gaps: take(&seen.probes) }),
            _ => return Ok(Some(order)),
        }
    }
}

fn send_steadily(mut publisher: Publisher, stop: Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    let send = move || {
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) && publisher.send(&[1; 64], PATIENCE).is_ok() {
            next += STREAM_PACE;
            match next.checked_duration_since(Instant::now()) {
                Some(left) => thread::sleep(left),
                // Missed messages are not sent later.
                None => next = Instant::now(),
            }
        }
    };
    thread::Builder::new().name("stream".into()).spawn(send)
}

/// Sends one message after the other in the subgroup of everyone, while `probing` is set.
fn send_probes(
    mut publisher: Publisher,
    stop: Arc<AtomicBool>,
    probing: Arc<AtomicBool>,
    seen: Arc<SharedGaps>,
) -> io::Result<JoinHandle<()>> {
    let send = move || {
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            if !probing.load(Ordering::Relaxed) {
                // The time without probes is no gap.
                seen.probes.lock().unwrap_or_else(PoisonError::into_inner).last_ns = 0;
                thread::sleep(PROBE_PACE);
                continue;
            }
            if publisher.send(&[2; 64], PATIENCE).is_err() {
                return;
            }
            sent += 1;
            while seen.probed.load(Ordering::Acquire) < sent && !stop.load(Ordering::Relaxed) {
                thread::sleep(PROBE_LOOK);
            }
            thread::sleep(PROBE_PACE);
        }
    };
    thread::Builder::new().name("probe".into()).spawn(send)
}
