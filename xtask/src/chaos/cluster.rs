//! The processes of a round: started, stopped, killed, and read.
//!
//! The driver signals only processes that it started and has not reaped. They die with the driver,
//! however it ends, because they ask the kernel for that. The next run removes the files that they
//! leave in the directory, once it finds that the owner is gone.
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

/// Number of bytes per read of a log.
const READ_BYTES: usize = 1 << 20;
/// Size of the pieces in which the read part of a log is returned to the system.
const PUNCH_BYTES: u64 = 8 << 20;
/// How many of a member's last records are kept for a report.
const TAIL: usize = 24;

/// The directory with all files of a run. It is removed when dropped.
pub(super) struct Folder(PathBuf);

const FOLDER: &str = "spindle-chaos-";

impl Folder {
    /// Creates the directory, and removes the directories of runs that were killed.
    pub(super) fn new() -> Result<Folder> {
        let temp = std::env::temp_dir();
        for entry in fs::read_dir(&temp).with_context(|| format!("can't read {}", temp.display()))? {
            let entry = entry?;
            let owner = entry.file_name().to_str().and_then(|name| name.strip_prefix(FOLDER)?.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                // Another process may be removing the directory, too, or it belongs to another
                // user.
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
pub(super) struct ChaosProcess {
    pub(super) instance: u32,
    /// The first process that had its directory of logs, if it has one.
    pub(super) logs: Option<u32>,
    child: Child,
    input: Option<ChildStdin>,
    /// The log. The next fields are how far it was read, and how far it was returned to the system.
    log: Option<File>,
    read: u64,
    punched: u64,
    folder: PathBuf,
    pub(super) tail: VecDeque<Record>,
    /// Time of the stop, and time at which the process will continue.
    pub(super) stopped: Option<(Instant, Instant)>,
    /// Time at which the process continued last, and length of the stop before.
    pub(super) resumed: Option<(Instant, Duration)>,
    /// The longest stop of the process.
    pub(super) longest_stop: Duration,
    pub(super) killed: Option<Instant>,
    /// Index of its host; 0 if there are no hosts.
    pub(super) host: usize,
    /// True if it listens at an address at which others look for the group.
    pub(super) is_seed: bool,
    /// True if its host's network was disturbed, apart from outages of all links.
    pub(super) disturbed: bool,
    pub(super) had_outage: bool,
    pub(super) told_to_leave: bool,
    pub(super) status: Option<ExitStatus>,
}

impl ChaosProcess {
    /// Starts `program` with `folder`, which contains all files of the process under its number.
    /// The process runs in `namespace`, if there is one.
    pub(super) fn start(
        program: &Path,
        namespace: Option<&str>,
        folder: &Folder,
        instance: u32,
        arguments: &[String],
        traces: Option<&Path>,
        logs: Option<u32>,
    ) -> Result<ChaosProcess> {
        let errors =
            File::create(folder.path().join(format!("{instance}.err"))).context("can't write in the run's folder")?;
        let mut command = match namespace {
            Some(name) => {
                // The command replaces itself with the program, so the started process is the
                // program.
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
            .envs(logs.map(|owner| ("SPINDLE_CHAOS_LOGS", owner.to_string())))
            .spawn()
            .with_context(|| format!("can't start {}", program.display()))?;
        let input = child.stdin.take();
        Ok(ChaosProcess {
            instance,
            logs,
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
        // The process is not reaped, so its number is still its own.
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
        // A process that is dead by now does not receive the command.
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{command}");
        }
    }

    /// Returns true if the process has ended by now.
    pub(super) fn reap(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_some())
    }

    /// Waits for the end of a process that was killed.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.status = Some(self.child.wait()?);
        Ok(())
    }

    /// Returns the records that were written since the last call. A partial record at the end, torn
    /// off by a death, does not count.
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
            // This call only saves space.
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

    /// Returns the error output of the process.
    pub(super) fn errors(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.err", self.instance))).unwrap_or_default()
    }

    /// Returns the last answer of the process to "status".
    pub(super) fn answer(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.status", self.instance))).unwrap_or_default()
    }

    /// Removes the files of the process, because its log may be large.
    pub(super) fn clean(&self) {
        for suffix in ["log", "err", "status"] {
            let _ = fs::remove_file(self.folder.join(format!("{}.{suffix}", self.instance)));
        }
    }
}

/// A running `spindle recover`.
#[derive(Debug)]
pub(super) struct Operator(Child);

impl Operator {
    /// Reports on a host that the members `lost` are lost for good. The command's binary is in the
    /// directory above that of `member`, which is an example.
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

    /// Returns whether the order was carried out, and the output of the command, once it has ended.
    pub(super) fn answer(&mut self) -> Result<Option<(bool, String)>> {
        let Some(status) = self.0.try_wait()? else { return Ok(None) };
        let mut said = String::new();
        // Each output is one line, so both fit into the pipes until here.
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

impl Drop for ChaosProcess {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.clean();
    }
}
