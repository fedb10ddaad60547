//! The processes of a round: started, stopped, killed, and read.
//!
//! Only processes that this one started are ever signalled, by descriptors that this one has not reaped. They die with this
//! process, whatever kills it, because they ask the kernel for that; what they leave in the directory is removed by the next
//! run that finds its owner gone.
use super::record::{RECORD_BYTES, Record};
use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a log that are read at a time.
const READ_BYTES: usize = 1 << 20;
/// What was read of a log is given back to the system in such pieces.
const PUNCH_BYTES: u64 = 8 << 20;
/// How many of a member's last records are kept for a report.
const TAIL: usize = 24;

/// Where everything of a run stands. Removed when it is dropped.
pub(super) struct Folder(PathBuf);

const FOLDER: &str = "spindle-chaos-";

impl Folder {
    /// Makes it, and removes those of runs that were killed.
    pub(super) fn new() -> Result<Folder> {
        let temp = std::env::temp_dir();
        for entry in fs::read_dir(&temp).with_context(|| format!("can't read {}", temp.display()))? {
            let entry = entry?;
            let owner = entry.file_name().to_str().and_then(|name| name.strip_prefix(FOLDER)?.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                // Somebody else may be removing it, too, or it is another user's.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = temp.join(format!("{FOLDER}{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("can't make {}", path.display()))?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One process.
pub(super) struct Process {
    pub(super) instance: u32,
    child: Child,
    input: Option<ChildStdin>,
    /// The log, how far it was read, and how far it was given back.
    log: Option<File>,
    read: u64,
    punched: u64,
    folder: PathBuf,
    pub(super) tail: VecDeque<Record>,
    /// Since when it was stopped, and when it will go on.
    pub(super) stopped: Option<(Instant, Instant)>,
    /// When it went on last, and how long it had been stopped.
    pub(super) resumed: Option<(Instant, Duration)>,
    /// The longest stop it has had.
    pub(super) longest_stop: Duration,
    pub(super) killed: Option<Instant>,
    /// Which of the hosts it is on; 0 if there are none.
    pub(super) host: usize,
    /// Whether it listens where others look for the group.
    pub(super) is_seed: bool,
    /// Its host's network was disturbed, apart from outages of all links.
    pub(super) disturbed: bool,
    pub(super) had_outage: bool,
    pub(super) told_to_leave: bool,
    pub(super) status: Option<ExitStatus>,
}

impl Process {
    /// Starts `program` for `folder`, in which everything of it stands under its number; in `namespace`, if there is one.
    pub(super) fn start(
        program: &Path,
        namespace: Option<&str>,
        folder: &Folder,
        instance: u32,
        arguments: &[String],
        traces: Option<&Path>,
    ) -> Result<Process> {
        let errors =
            File::create(folder.path().join(format!("{instance}.err"))).context("can't write in the run's folder")?;
        let mut command = match namespace {
            Some(name) => {
                // It becomes the program, so that the process is the one that was started.
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.arg(folder.path()).args(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(errors)
            .env("RUST_BACKTRACE", "1")
            .envs(traces.map(|traces| ("SPINDLE_CHAOS_TRACES", traces)))
            .spawn()
            .with_context(|| format!("can't start {}", program.display()))?;
        let input = child.stdin.take();
        Ok(Process {
            instance,
            child,
            input,
            log: None,
            read: 0,
            punched: 0,
            folder: folder.path().to_owned(),
            tail: VecDeque::new(),
            stopped: None,
            resumed: None,
            longest_stop: Duration::ZERO,
            killed: None,
            host: 0,
            is_seed: false,
            disturbed: false,
            had_outage: false,
            told_to_leave: false,
            status: None,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.status.is_none() && self.killed.is_none()
    }

    fn signal(&self, signal: Signal) {
        // Not reaped, so the number is still this process's.
        if self.status.is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    pub(super) fn stop(&mut self, time: Duration) {
        let now = Instant::now();
        let (since, until) = self.stopped.unwrap_or((now, now));
        self.stopped = Some((since, until.max(now + time)));
        self.signal(Signal::STOP);
    }

    pub(super) fn go_on(&mut self) {
        if let Some((since, _)) = self.stopped.take() {
            self.resumed = Some((Instant::now(), since.elapsed()));
            self.longest_stop = self.longest_stop.max(since.elapsed());
            self.signal(Signal::CONT);
        }
    }

    pub(super) fn kill(&mut self) {
        self.killed = Some(Instant::now());
        self.signal(Signal::KILL);
    }

    pub(super) fn say(&mut self, command: &str) {
        // Who is dead by now hears nothing.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{command}");
        }
    }

    /// Whether it has ended by now.
    pub(super) fn reap(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_some())
    }

    /// Waits for its end. For one that was killed.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.status = Some(self.child.wait()?);
        Ok(())
    }

    /// The records that were written since the last time. What a death has torn off at the end is none.
    pub(super) fn news(&mut self) -> Result<Vec<Record>> {
        let path = self.folder.join(format!("{}.log", self.instance));
        if self.log.is_none() && path.exists() {
            self.log = Some(File::options().read(true).write(true).open(&path)?);
        }
        let Some(log) = &self.log else { return Ok(vec![]) };
        let (mut records, mut bytes) = (vec![], vec![0; READ_BYTES]);
        loop {
            let count = log.read_at(&mut bytes, self.read)?;
            let whole = count - count % RECORD_BYTES;
            for record in bytes[..whole].chunks_exact(RECORD_BYTES) {
                let Some(record) = Record::decode(record.try_into()?) else {
                    bail!("the log of process {} is torn at {}, though more follows", self.instance, self.read);
                };
                records.push(record);
            }
            self.read += whole as u64;
            if whole < READ_BYTES {
                break;
            }
        }
        if self.read - self.punched >= PUNCH_BYTES {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Only saves room.
            let _ = fallocate(log, flags, self.punched, self.read - self.punched);
            self.punched = self.read;
        }
        for record in records.iter().rev().take(TAIL).rev() {
            self.tail.push_back(*record);
        }
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
        Ok(records)
    }

    /// What it printed.
    pub(super) fn errors(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.err", self.instance))).unwrap_or_default()
    }

    /// Its last answer to "status".
    pub(super) fn answer(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.status", self.instance))).unwrap_or_default()
    }

    /// Removes its files: its log may be large.
    pub(super) fn clean(&self) {
        for suffix in ["log", "err", "status"] {
            let _ = fs::remove_file(self.folder.join(format!("{}.{suffix}", self.instance)));
        }
    }
}

/// `spindle recover`, while it runs.
#[derive(Debug)]
pub(super) struct Operator(Child);

impl Operator {
    /// Says on a host that the members `lost` are lost for good. The command is beside the examples of which `member` is one.
    pub(super) fn recover(
        member: &Path,
        namespace: Option<&str>,
        runtime_dir: &Path,
        group: &str,
        lost: &str,
    ) -> Result<Operator> {
        let program = member.parent().and_then(Path::parent).context("the member has no folder")?.join("spindle");
        let mut command = match namespace {
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        command.args(["recover", group, "--lost", lost, "--yes", "--json", "--runtime-dir"]).arg(runtime_dir);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Ok(Operator(child.with_context(|| format!("can't start {}", program.display()))?))
    }

    /// Whether the order was carried out, and what the command printed, once it has ended.
    pub(super) fn answer(&mut self) -> Result<Option<(bool, String)>> {
        let Some(status) = self.0.try_wait()? else { return Ok(None) };
        let mut said = String::new();
        // A line each: they stay in the pipes until here.
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        if let Some(mut errors) = self.0.stderr.take() {
            errors.read_to_string(&mut said)?;
        }
        Ok(Some((status.success(), said.trim().to_owned())))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.clean();
    }
}
