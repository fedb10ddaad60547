//! The member processes of a benchmark, as the benchmark process manages them.
use super::args::{Drive, FabricArg, WaitArg, cores};
use super::clock::Usage;
use super::wire::{BenchOrder, BenchPlan, BenchReply, BenchSetup, EngineCounts, MemberNetwork, Ran};
use crate::clock::now_ns;
use crate::exit::death;
use crate::log;
use anyhow::{Context, bail};
use rustix::process::getuid;
use spindle_fabric::probe::Cores;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// How long members may take to start, to leave, and to answer after the time of their work.
const PATIENCE: Duration = Duration::from_secs(70);
/// How long a killed process may take to end.
const END_WAIT: Duration = Duration::from_secs(1);
/// How long the members' polling threads may take to fall asleep after a slice.
const QUIET_WITHIN: Duration = Duration::from_secs(5);
/// The members count as asleep if all together use less than one core divided by this number.
const QUIET_PART: u32 = 15;
const QUIET_LOOK: Duration = Duration::from_millis(3);

/// Member processes that have joined one group. Dropping it kills the remaining processes.
#[derive(Debug)]
pub(super) struct Cluster {
    plan: BenchPlan,
    members: Vec<ClusterMember>,
    /// Removed after the members have ended, because they would create it again.
    dir: ScratchDir,
    _logs: Option<ScratchDir>,
}

#[derive(Debug)]
struct ClusterMember {
    rank: u32,
    process: Child,
    orders: ChildStdin,
    replies: Receiver<String>,
}

/// The results of a slice of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    /// The results of the members of active subgroups, by rank.
    pub(super) ran: Vec<Ran>,
    /// The resources that all other members have used meanwhile.
    pub(super) idle: Usage,
}

impl Slice {
    /// Returns the CPU time of all members during the slice.
    pub(super) fn busy_ns(&self) -> u64 {
        self.ran.iter().map(|ran| ran.busy_ns).sum::<u64>() + self.idle.cpu_ns
    }

    /// Returns the mean length of the slice at its members.
    pub(super) fn took_ns(&self) -> u64 {
        self.ran.iter().map(|ran| ran.took_ns).sum::<u64>() / self.ran.len().max(1) as u64
    }

    /// Returns the messages of the group per second: deliveries per member.
    pub(super) fn messages_per_second(&self) -> f64 {
        self.deliveries_per_second() / self.ran.len() as f64
    }

    /// Returns the deliveries per second, summed over the members.
    pub(super) fn deliveries_per_second(&self) -> f64 {
        self.ran.iter().map(|ran| ran.delivered as f64 * 1e9 / ran.elapsed_ns.max(1) as f64).sum()
    }
}

impl Cluster {
    /// Starts `members` processes and waits until they have joined. `pinned` assigns two members in
    /// poll drive to the cores of the probes: the sender gets the core of the raw ring's writer. If
    /// the plan is logged, the members have their data directories in `logs`.
    pub(super) fn start(members: u32, plan: BenchPlan, pinned: Cores, logs: Option<&Path>) -> anyhow::Result<Cluster> {
        let dir = ScratchDir::new()?;
        let logs = logs.filter(|_| plan.logged).map(ScratchDir::inside).transpose()?;
        let seed = match plan.fabric {
            FabricArg::Shm => None,
            FabricArg::Tcp | FabricArg::Ofi => Some(free_address()?),
        };
        let data_dir = |rank: u32| logs.as_ref().map(|logs| logs.0.join(rank.to_string()));
        let data_dirs: Vec<_> = (0..members).map(data_dir).collect();
        for data_dir in data_dirs.iter().flatten() {
            make(data_dir).with_context(|| format!("can't make {} for a member's log", data_dir.display()))?;
        }
        let mut cluster = Cluster { plan, members: Vec::new(), dir, _logs: logs };
        for rank in 0..members {
            let core = match pinned {
                Cores::Two { parent, child } if members == 2 && plan.drive == Drive::Poll => Some([child, parent]),
                _ => None,
            };
            let setup = BenchSetup {
                parent: process::id(),
                group: "bench".to_string(),
                runtime_dir: cluster.dir.of(plan.fabric, rank),
                network: seed.as_ref().map(|seed| MemberNetwork {
                    advertise: None,
                    listen: if rank == 0 { seed.clone() } else { ANY_PORT.to_string() },
                    seeds: vec![seed.clone()],
                    insecure: false,
                    provider: plan.fabric.provider(),
                }),
                members,
                rank,
                plan,
                data_dir: data_dirs[rank as usize].clone(),
                core: core.map(|cores| cores[rank as usize]),
            };
            cluster.members.push(ClusterMember::start(&setup)?);
        }
        let joined = cluster.join();
        joined.map_err(|error| cluster.blame(error))?;
        Ok(cluster)
    }

    fn join(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        for member in &mut self.members {
            match member.reply(until)? {
                BenchReply::Ready => {}
                other => bail!("member {} answered {other:?} instead of joining", member.rank),
            }
        }
        Ok(())
    }

    /// Returns the error that names a killed member, or `error`. If a member was killed, the errors
    /// of the others are only consequences.
    fn blame(&mut self, error: anyhow::Error) -> anyhow::Error {
        killed(self.members.iter_mut().map(|member| (member.rank, &mut member.process))).unwrap_or(error)
    }

    /// Lets the members work for `length`. The first tenth of it does not count.
    pub(super) fn slice(&mut self, length: Duration) -> anyhow::Result<Slice> {
        let slice = self.work(length);
        slice.map_err(|error| self.blame(error))
    }

    fn work(&mut self, length: Duration) -> anyhow::Result<Slice> {
        // Members of idle subgroups only stay asleep: hundreds of processes that begin a slice at
        // the same time would delay those that are measured.
        let active = (self.plan.span as usize).min(self.members.len());
        let (active, idle) = self.members.split_at_mut(active);
        let before = usage(idle)?;
        let now = now_ns();
        let length_ns = length.as_nanos() as u64;
        let run = BenchOrder::Run { begin_ns: now + length_ns / 10, end_ns: now + length_ns };
        tell(active, run)?;
        let until = Instant::now() + length + PATIENCE;
        let mut ran = Vec::new();
        for member in active {
            match member.reply(until)? {
                BenchReply::Ran(slice) => ran.push(*slice),
                other => bail!("member {} answered {other:?} to a slice", member.rank),
            }
        }
        let idle = usage(idle)?.since(before);
        if self.plan.drive == Drive::Thread && self.plan.wait != WaitArg::Polling {
            self.quiet()?;
        }
        Ok(Slice { ran, idle })
    }

    /// Waits until all sent messages are delivered and the polling threads sleep.
    fn quiet(&self) -> anyhow::Result<()> {
        let until = Instant::now() + QUIET_WITHIN;
        let (mut before, mut looked) = (self.usage()?, Instant::now());
        loop {
            thread::sleep(QUIET_LOOK);
            let now = self.usage()?;
            let elapsed = looked.elapsed();
            looked += elapsed;
            if QUIET_PART * Duration::from_nanos(now.since(before).cpu_ns) < elapsed {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("the members' polling threads still work {QUIET_WITHIN:?} after the last message");
            }
            before = now;
        }
    }

    /// Returns the resources that the members have used.
    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        usage(&self.members)
    }

    /// Returns the median memory of a member that no other process maps, in bytes.
    pub(super) fn private_bytes(&self) -> anyhow::Result<u64> {
        let of = |member: &ClusterMember| {
            Usage::private_bytes(member.process.id()).context("can't read a member's memory from /proc")
        };
        let mut bytes = self.members.iter().map(of).collect::<anyhow::Result<Vec<u64>>>()?;
        bytes.sort_unstable();
        Ok(bytes.get(bytes.len() / 2).copied().unwrap_or(0))
    }

    /// Ends the group and checks that all members have delivered every message that was sent.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let finished = self.end();
        finished.map_err(|error| self.blame(error))
    }

    fn end(&mut self) -> anyhow::Result<()> {
        tell(&mut self.members, BenchOrder::Finish)?;
        let until = Instant::now() + PATIENCE;
        let mut counts: Vec<EngineCounts> = Vec::new();
        for member in &mut self.members {
            match member.reply(until)? {
                BenchReply::Finished(finished) => counts.push(finished),
                other => bail!("member {} answered {other:?} at the end", member.rank),
            }
        }
        let sent: u64 = counts.iter().map(|counts| counts.sent).sum();
        let concerned = &counts[..counts.len().min(self.plan.span as usize)];
        if let Some(rank) = concerned.iter().position(|counts| counts.delivered != sent) {
            bail!("member {rank} delivered {} messages of {sent}: the figures don't count", counts[rank].delivered);
        }
        for member in &mut self.members {
            member.wait(until)?;
        }
        Ok(())
    }
}

/// Returns the resources that the processes have used.
fn usage(members: &[ClusterMember]) -> anyhow::Result<Usage> {
    let of =
        |member: &ClusterMember| Usage::of(member.process.id()).context("can't read a member's CPU time from /proc");
    members.iter().map(of).sum()
}

fn tell(members: &mut [ClusterMember], order: BenchOrder) -> anyhow::Result<()> {
    let line = format!("{}\n", serde_json::to_string(&order)?);
    for member in members {
        if let Err(error) = member.orders.write_all(line.as_bytes()) {
            let how = member.how_it_ended();
            bail!("member {} takes no orders ({error}): {how}", member.rank);
        }
    }
    Ok(())
}

impl ClusterMember {
    fn start(setup: &BenchSetup) -> anyhow::Result<ClusterMember> {
        let program = env::current_exe().context("can't find this program to start members")?;
        let mut command = Command::new(program);
        command.args(["bench", "member"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        log::hand_on(&mut command);
        let mut process = command.spawn().context("can't start a member")?;
        let orders = process.stdin.take().expect("it was piped");
        let lines = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        let (tell, replies) = mpsc::channel();
        // The reader ends with the member's output, so with the member.
        let reader = thread::Builder::new().name(format!("member-{}", setup.rank));
        let mut member = ClusterMember { rank: setup.rank, process, orders, replies };
        reader.spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)))?;
        let told = member.orders.write_all(format!("{}\n", serde_json::to_string(setup)?).as_bytes());
        told.map_err(|error| {
            let dead = killed([(setup.rank, &mut member.process)].into_iter());
            dead.unwrap_or_else(|| anyhow::anyhow!("member {} takes no orders: {error}", setup.rank))
        })?;
        Ok(member)
    }

    fn reply(&mut self, until: Instant) -> anyhow::Result<BenchReply> {
        match self.replies.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(BenchReply::Failed(why)) => bail!("member {} failed: {why}", self.rank),
                Ok(reply) => Ok(reply),
                Err(error) => bail!("member {} said {line:?}: {error}", self.rank),
            },
            Err(RecvTimeoutError::Timeout) => bail!("member {} does not answer; is the machine overloaded?", self.rank),
            Err(RecvTimeoutError::Disconnected) => {
                let how = self.how_it_ended();
                bail!("member {} is gone: {how}", self.rank)
            }
        }
    }

    fn how_it_ended(&mut self) -> String {
        match self.process.try_wait() {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "it is ending".to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Waits until the process has ended. Its output ends first.
    fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
        match self.replies.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Disconnected) => Ok(()),
            other => bail!("member {} did not end, but: {other:?}", self.rank),
        }
    }
}

impl Drop for ClusterMember {
    fn drop(&mut self) {
        // The process has usually ended already. In that case this has no effect.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an error that names the killed process, if one was killed. A process that the others
/// know to be dead may need a moment to end.
pub(super) fn killed<'a>(processes: impl Iterator<Item = (u32, &'a mut Child)>) -> Option<anyhow::Error> {
    let mut processes: Vec<_> = processes.collect();
    let until = Instant::now() + END_WAIT;
    loop {
        let dead = processes.iter_mut().find_map(|(rank, process)| {
            let how = death(&process.try_wait().ok().flatten()?)?;
            Some(anyhow::anyhow!("member {rank} (process {}) {how}", process.id()))
        });
        if dead.is_some() || Instant::now() >= until {
            return dead;
        }
        thread::sleep(QUIET_LOOK);
    }
}

/// A directory in which members meet. After all members have met, none of its content is needed.
#[derive(Debug)]
pub(super) struct ScratchDir(pub(super) PathBuf);

impl ScratchDir {
    /// Returns the runtime directory of a member. Members with different directories count as being
    /// on different hosts.
    pub(super) fn of(&self, fabric: FabricArg, rank: u32) -> PathBuf {
        match fabric {
            FabricArg::Shm => self.0.clone(),
            FabricArg::Tcp | FabricArg::Ofi => self.0.join(rank.to_string()),
        }
    }

    pub(super) fn new() -> anyhow::Result<ScratchDir> {
        ScratchDir::inside(&env::temp_dir())
    }

    /// Creates a directory in `parent`.
    pub(super) fn inside(parent: &Path) -> anyhow::Result<ScratchDir> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("spindle-bench-{}-{}-{count}", getuid().as_raw(), process::id());
        let path = parent.join(name);
        let made = make(&path);
        made.with_context(|| format!("can't make {} for the members", path.display()))?;
        Ok(ScratchDir(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // If this fails, only an empty directory for temporary files remains.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An address at which a member listens on any free port.
const ANY_PORT: &str = "127.0.0.1:0";

/// Returns an address at which no process listened a moment ago. The others have to know the first
/// member's address before that member exists.
pub(super) fn free_address() -> anyhow::Result<String> {
    let found = TcpListener::bind(ANY_PORT).and_then(|listener| listener.local_addr());
    Ok(found.context("can't listen on loopback")?.to_string())
}

/// Creates a new directory that only this user can access. It must not exist before.
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Returns true if each of `members` members can have a core of its own.
pub(super) fn fits(members: u32) -> bool {
    members <= cores()
}
