//! A member of `spindle bench views`: it sends at a steady rate and reports each change of the
//! view.
use super::phases;
use crate::bench::member::network;
use crate::clock::now_ns;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use spindle::bulk::Buffer;
use spindle::{Batch, Config, FinishError, Handler, MemberId, Snapshot, State, Subgroup, SubgroupId, View, ViewChange};
use std::collections::VecDeque;
use std::io::{self, BufRead, Cursor, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A timeout longer than the life of a member.
const ALWAYS: Duration = Duration::from_secs(1 << 30);
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Shortest gap that counts. Shorter ones occur between two bursts of the senders.
const GAP_NS_MIN: u64 = 200_000;
/// Number of gaps that are kept: those of some seconds.
const GAPS_MAX: usize = 4096;
/// The subgroup of large messages, if there is one.
const OBJECTS: SubgroupId = SubgroupId(1);
/// How often a member checks whether it has become the oldest.
const OLDEST_LOOK: Duration = Duration::from_millis(1);
/// The time between two looks of a member that sends nothing whether it is to stop.
const QUIET_LOOK: Duration = Duration::from_millis(50);
/// How often a new member checks whether it votes.
const VOTER_LOOK: Duration = Duration::from_micros(200);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    pub(super) parent: u32,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    id: u64,
    #[arg(long)]
    members: u32,
    /// Messages per second; 0: it sends nothing
    #[arg(long)]
    rate: u64,
    #[arg(long)]
    size: u64,
    #[arg(long)]
    suspect_after: u64,
    #[arg(long)]
    state: u64,
    /// Bytes of a large message; 0: no large messages
    #[arg(long)]
    object: u64,
    /// The member's place on the network, in JSON, if each member is on a host of its own
    #[arg(long)]
    place: Option<String>,
    /// 1: the state is restored into memory that was written before
    #[arg(long)]
    mapped: u64,
    /// Whether it polls without a pause
    #[arg(long)]
    polls: bool,
    /// Whether the phases of changes are timed
    #[arg(long)]
    pub(super) phases: bool,
    /// Idle subgroups beside a stream of two members; none: everyone sends in one subgroup
    #[arg(long)]
    pub(super) subgroups: Option<u32>,
    /// How many founders there are in all
    #[arg(long)]
    pub(super) base: u32,
    /// Members of an idle subgroup
    #[arg(long)]
    pub(super) span: u32,
}

/// A time in which nothing was delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct DeliveryGap {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// Large messages that were delivered, counted from the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct ObjectCounts {
    pub(super) delivered: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// A line of a member's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MemberLine {
    Joined {
        asked_ns: u64,
        at_ns: u64,
        view: u64,
        restore_ns: u64,
        restored_bytes: u64,
    },
    Changed {
        joined: Vec<u64>,
        left: Vec<u64>,
        gaps: Vec<DeliveryGap>,
        first_after_ns: u64,
        /// The end of each phase.
        phases: Vec<u64>,
        objects: ObjectCounts,
    },
    /// The times in which nothing was delivered.
    Gaps {
        gaps: Vec<DeliveryGap>,
    },
    /// A view is installed. Sent with `--subgroups`.
    Installed {
        view: u64,
        joined: Vec<u64>,
        left: Vec<u64>,
        /// The window of the subgroup that is created and dropped.
        extra: Option<u64>,
    },
    Evicted,
    Failed(String),
}

pub(super) fn say(said: &MemberLine) {
    let mut out = io::stdout().lock();
    let line = serde_json::to_string(said).expect("plain data");
    // This fails only when the benchmark is gone, and then this process ends too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

impl ObjectCounts {
    fn add(&mut self, now_ns: u64) {
        self.delivered += 1;
        self.to_ns = now_ns;
        if self.delivered == 1 {
            self.from_ns = now_ns;
        }
    }
}

/// Records the times of deliveries.
struct DeliveryTimes {
    /// Time of the last delivery; 0 before the first.
    last_ns: u64,
    /// The newest gaps between two deliveries that count, oldest first.
    gaps: VecDeque<DeliveryGap>,
    /// The change after which nothing has been delivered yet.
    change: Option<ViewChange>,
    objects: ObjectCounts,
    /// True if the benchmark has asked for the gaps.
    asked: Arc<AtomicBool>,
    state: Arc<Vec<u8>>,
    /// Memory into which a state is restored.
    memory: Vec<u8>,
    restored: Arc<Mutex<(u64, u64)>>,
}

impl Handler for DeliveryTimes {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        if subgroup == OBJECTS {
            return batch.for_each(|_| self.objects.add(now_ns()));
        }
        let mut any = false;
        batch.for_each(|_| any = true);
        if !any {
            return;
        }
        let now = now_ns();
        let gap = DeliveryGap { from_ns: std::mem::replace(&mut self.last_ns, now), to_ns: now };
        if gap.from_ns > 0 && now - gap.from_ns >= GAP_NS_MIN {
            if self.gaps.len() == GAPS_MAX {
                self.gaps.pop_front();
            }
            self.gaps.push_back(gap);
        }
        if self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Relaxed) {
            say(&MemberLine::Gaps { gaps: self.gaps.iter().copied().collect() });
        }
        if let Some(change) = self.change.take() {
            let ids = |list: &[MemberId]| list.iter().map(|id| id.0).collect();
            let (joined, left) = (ids(&change.joined), ids(&change.left));
            let gaps = self.gaps.iter().copied().collect();
            let (phases, objects) = (phases::take(), self.objects);
            say(&MemberLine::Changed { joined, left, gaps, first_after_ns: now, phases, objects });
        }
    }

    fn view_changed(&mut self, change: &ViewChange) {
        // Two changes without a delivery between them are reported as one.
        let mut change = change.clone();
        if let Some(earlier) = self.change.take() {
            change.joined.extend(earlier.joined);
            change.left.extend(earlier.left);
        }
        self.change = Some(change);
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let len = Some(self.state.len() as u64);
        Some(Snapshot { len, bytes: Box::new(Cursor::new(SharedSnapshots(Arc::clone(&self.state)))) })
    }

    fn restore(&mut self, state: &mut State) -> io::Result<()> {
        let start = Instant::now();
        let mut bytes = std::mem::take(&mut self.memory);
        state.read_to_end(&mut bytes)?;
        let took = start.elapsed().as_nanos() as u64;
        *self.restored.lock().unwrap_or_else(PoisonError::into_inner) = (took, bytes.len() as u64);
        self.state = Arc::new(bytes);
        Ok(())
    }
}

/// State that several snapshots share.
struct SharedSnapshots(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedSnapshots {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The configuration that all members have in common.
pub(super) fn configured(args: &Args) -> anyhow::Result<Config> {
    let mut config = Config::new("views", args.members);
    config.id = Some(MemberId(args.id));
    config.runtime_dir = Some(args.dir.clone());
    config.suspect_after = Some(Duration::from_millis(args.suspect_after));
    if args.polls {
        config.spin_for = ALWAYS;
    }
    if let Some(place) = &args.place {
        config.network = Some(network(&serde_json::from_str(place)?)?);
    }
    Ok(config)
}

pub(super) fn serve(args: &Args) -> anyhow::Result<()> {
    let mut config = configured(args)?;
    config.subgroups[0].message_bytes_max = args.size.max(16);
    config.subgroups[0].window = 1000;
    if args.object > 0 {
        config.subgroups.push(Subgroup::new("objects"));
    }
    let (restored, asked) = (Arc::new(Mutex::new((0, 0))), Arc::new(AtomicBool::new(false)));
    let state = if args.members > 1 { vec![7; args.state as usize] } else { vec![] };
    let mut memory = if args.mapped == 1 { vec![1; args.state as usize] } else { vec![] };
    memory.clear();
    let mut witness = DeliveryTimes {
        last_ns: 0,
        gaps: VecDeque::new(),
        change: None,
        objects: ObjectCounts::default(),
        asked: Arc::clone(&asked),
        state: Arc::new(state),
        memory,
        restored: Arc::clone(&restored),
    };
    let asked_ns = now_ns();
    let mut node = config.learn(&mut witness, &mut |_| {}, &AtomicBool::new(false))?;
    let mut publisher = node.publisher("all")?;
    let objects = (args.object > 0).then(|| node.publisher("objects")).transpose()?;
    let group = Arc::new(node.start(witness)?);
    let (restore_ns, restored_bytes) = *restored.lock().unwrap_or_else(PoisonError::into_inner);
    let (at_ns, view) = (now_ns(), group.view().id.0);
    // Until this member votes, the group may lack a quorum if another member dies.
    let votes = |view: &View| view.rank_of(group.id()).is_some_and(|me| !view.nonvoters.contains(&me));
    while group.ended().is_none() && !votes(&group.view()) {
        thread::sleep(VOTER_LOOK);
    }
    say(&MemberLine::Joined { asked_ns, at_ns, view, restore_ns, restored_bytes });

    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, size, rate) = (Arc::clone(&stop), args.size, args.rate);
    let sender = thread::Builder::new().name("sender".into()).spawn(move || {
        let payload = vec![1; size as usize];
        // Messages are sent in bursts of a millisecond, so that a sleeping sender keeps its rate.
        let burst = rate.div_ceil(1000);
        let step = (burst * 1_000_000_000).checked_div(rate).map_or(QUIET_LOOK, Duration::from_nanos);
        let mut next = Instant::now();
        while !stopped.load(Ordering::Relaxed) {
            for _ in 0..burst {
                if publisher.send(&payload, PATIENCE).is_err() {
                    return;
                }
            }
            next += step;
            match next.checked_duration_since(Instant::now()) {
                Some(left) => thread::sleep(left),
                // Missed messages are not sent later.
                None => next = Instant::now(),
            }
        }
    })?;
    let objects = objects.map(|mut publisher| {
        let (group, stopped, object) = (Arc::clone(&group), Arc::clone(&stop), vec![2; args.object as usize]);
        let send = move || {
            while !stopped.load(Ordering::Relaxed) && group.ended().is_none() {
                if group.view().members.iter().min() != Some(&group.id()) {
                    thread::sleep(OLDEST_LOOK);
                } else if Buffer::copied(&object).is_none_or(|copy| publisher.send_object(copy, PATIENCE).is_err()) {
                    return;
                }
            }
        };
        thread::Builder::new().name("objects".into()).spawn(send)
    });
    let objects = objects.transpose()?;
    let (tell, orders) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    let order = loop {
        if group.ended().is_some_and(|ended| ended.is_left_out()) {
            say(&MemberLine::Evicted);
            return Ok(());
        }
        match orders.recv_timeout(Duration::from_millis(10)) {
            Ok(order) if order == "gaps" => asked.store(true, Ordering::Relaxed),
            Ok(order) => break order,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    };
    stop.store(true, Ordering::Relaxed);
    let _ = sender.join();
    if let Some(objects) = objects {
        let _ = objects.join();
    }
    let group = Arc::into_inner(group).context("the group is still in use")?;
    let ended = if order == "leave" { group.leave(PATIENCE) } else { group.finish(PATIENCE) };
    ended.map(drop).map_err(|error: FinishError| error.into())
}
