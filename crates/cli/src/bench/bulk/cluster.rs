//! The processes of `spindle bench bulk`, as the benchmark process manages them.
use super::wire::{BulkJob, BulkOrder, BulkPlan, BulkReply, BulkSetup};
use crate::bench::cluster::{ScratchDir, killed};
use crate::log;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// Longest wait for any step.
const PATIENCE: Duration = Duration::from_secs(120);

/// Processes that are the members of one group. Dropping it kills the remaining processes.
#[derive(Debug)]
pub(super) struct BulkCluster {
    processes: Vec<BulkProcess>,
}

#[derive(Debug)]
struct BulkProcess {
    rank: u32,
    child: Child,
    orders: ChildStdin,
    replies: Receiver<String>,
}

/// The cost of a trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    /// Seconds until the last receiver has finished the job.
    pub(super) seconds: f64,
    /// CPU time of all processes.
    pub(super) cpu_seconds: f64,
    /// Bytes sent from one rack to another.
    pub(super) across: u64,
}

impl BulkCluster {
    pub(super) fn start(members: u32, plan: BulkPlan) -> anyhow::Result<BulkCluster> {
        let dir = ScratchDir::new()?;
        let mut cluster = BulkCluster { processes: vec![] };
        for rank in 0..members {
            let setup = BulkSetup { parent: process::id(), dir: dir.0.clone(), members, rank, plan };
            cluster.processes.push(BulkProcess::start(&setup)?);
        }
        let met = cluster.meet(members);
        met.map_err(|error| cluster.blame(error))?;
        Ok(cluster)
    }

    fn meet(&mut self, members: u32) -> anyhow::Result<()> {
        let mut ports = vec![];
        for process in &mut self.processes {
            match process.reply()? {
                BulkReply::Listening(port) => ports.push(port),
                other => bail!("process {} answered {other:?} instead of listening", process.rank),
            }
        }
        self.tell(members, &BulkOrder::Connect(ports))?;
        self.ready(members)
    }

    /// Returns the error that names a killed process, or `error`. If a process was killed, the
    /// errors of the others are only consequences.
    fn blame(&mut self, error: anyhow::Error) -> anyhow::Error {
        killed(self.processes.iter_mut().map(|process| (process.rank, &mut process.child))).unwrap_or(error)
    }

    /// Does a job with an object of `bytes` bytes, and returns its cost.
    pub(super) fn run(&mut self, bytes: u64, job: BulkJob) -> anyhow::Result<Took> {
        let took = self.trial(bytes, job);
        took.map_err(|error| self.blame(error))
    }

    fn trial(&mut self, bytes: u64, job: BulkJob) -> anyhow::Result<Took> {
        let taking_part = match job {
            BulkJob::Multicast | BulkJob::Read | BulkJob::Copy => self.processes.len() as u32,
            BulkJob::Stream => 2,
            BulkJob::Memcpy => 1,
        };
        self.tell(taking_part, &BulkOrder::Trial { bytes, job })?;
        self.ready(taking_part)?;
        self.tell(1, &BulkOrder::Go)?;
        let (mut begin, mut end, mut cpu, mut across, mut first) = (0, 0, 0, 0, None);
        for process in &mut self.processes[..taking_part as usize] {
            let BulkReply::Done { begin_ns, end_ns, cpu_ns, across: sent, digest } = process.reply()? else {
                bail!("process {} has not done its trial", process.rank);
            };
            cpu += cpu_ns;
            across += sent;
            if process.rank == 0 {
                begin = begin_ns;
            }
            // The root learns of the end later than the last receiver reaches it.
            if process.rank > 0 || taking_part == 1 {
                end = end.max(end_ns);
            }
            if *first.get_or_insert(digest) != digest {
                bail!("process {} has other bytes than the root: the figures don't count", process.rank);
            }
        }
        let seconds = end.saturating_sub(begin).max(1) as f64 / 1e9;
        Ok(Took { seconds, cpu_seconds: cpu as f64 / 1e9, across })
    }

    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let all = self.processes.len() as u32;
        self.tell(all, &BulkOrder::Finish)?;
        self.ready(all)?;
        for process in &mut self.processes {
            process.child.wait()?;
        }
        Ok(())
    }

    fn tell(&mut self, count: u32, order: &BulkOrder) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::to_string(order)?);
        for process in &mut self.processes[..count as usize] {
            let told = process.orders.write_all(line.as_bytes());
            told.with_context(|| format!("process {} takes no orders", process.rank))?;
        }
        Ok(())
    }

    fn ready(&mut self, count: u32) -> anyhow::Result<()> {
        for process in &mut self.processes[..count as usize] {
            match process.reply()? {
                BulkReply::Ready => {}
                other => bail!("process {} answered {other:?}", process.rank),
            }
        }
        Ok(())
    }
}

impl BulkProcess {
    fn start(setup: &BulkSetup) -> anyhow::Result<BulkProcess> {
        let program = env::current_exe().context("can't find this program to start others")?;
        let mut command = Command::new(program);
        command.args(["bench", "bulk-member"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        log::hand_on(&mut command);
        let mut child = command.spawn().context("can't start a process")?;
        let orders = child.stdin.take().expect("it was piped");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let (tell, replies) = mpsc::channel();
        // The reader ends with the process's output, so with the process.
        let reader = thread::Builder::new().name(format!("member-{}", setup.rank));
        let mut process = BulkProcess { rank: setup.rank, child, orders, replies };
        reader.spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)))?;
        let told = process.orders.write_all(format!("{}\n", serde_json::to_string(setup)?).as_bytes());
        told.map_err(|error| {
            let dead = killed([(setup.rank, &mut process.child)].into_iter());
            dead.unwrap_or_else(|| anyhow::anyhow!("process {} takes no orders: {error}", setup.rank))
        })?;
        Ok(process)
    }

    fn reply(&mut self) -> anyhow::Result<BulkReply> {
        let until = Instant::now() + PATIENCE;
        let line = self.replies.recv_timeout(until.saturating_duration_since(Instant::now()));
        let line = line.with_context(|| format!("process {} has ended, or does not answer", self.rank))?;
        match serde_json::from_str(&line).with_context(|| format!("process {} said {line:?}", self.rank))? {
            BulkReply::Failed(why) => bail!("process {} failed: {why}", self.rank),
            reply => Ok(reply),
        }
    }
}

impl Drop for BulkProcess {
    fn drop(&mut self) {
        // The process has usually ended already. In that case this has no effect.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
