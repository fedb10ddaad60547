//! One `spindle member` process of a round: its input, its events, its end.
use super::files;
use super::judge::Sent;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// The silence after which members evict each other. Longer than this machine stands still.
pub(super) const SUSPECT_AFTER: Duration = Duration::from_millis(2000);
/// How long a restart quorum waits for the others.
const RESTART_WAIT: Duration = Duration::from_millis(700);
/// Lines that are written to a process at once.
const BLOCK_LINES: u32 = 16;
/// Segments are small, so that a round has many of them.
const SEGMENT: &str = "1MiB";

/// How fast a process gets its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    /// Lines at full speed.
    pub(super) burst: u32,
    /// The pause between the lines after these.
    pub(super) pause: Duration,
}

/// The command line of a process.
#[derive(Clone, Debug)]
pub(super) struct Start<'a> {
    pub(super) program: &'a Path,
    /// The directory with the files of the round.
    pub(super) folder: &'a Path,
    pub(super) group: &'a str,
    pub(super) founders: u32,
    pub(super) instance: u32,
    pub(super) data: &'a Path,
    pub(super) lost: &'a [u64],
    pub(super) pace: Pace,
    /// Its host, if there are several.
    pub(super) host: Option<usize>,
    /// The sockets of all seats, if they are on several hosts, and which of them is its own.
    pub(super) sockets: &'a [String],
    pub(super) seat: usize,
}

/// The newest view of a process: its number, and the ids of the members.
pub(super) type KnownView = (u64, Vec<u64>);

/// A process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) instance: u32,
    child: Child,
    feeder: Option<JoinHandle<u32>>,
    stop_feeding: Arc<AtomicBool>,
    errors: PathBuf,
    events: Option<File>,
    read: u64,
    rest: Vec<u8>,
    /// Its id, once it has joined.
    pub(super) id: Option<u64>,
    pub(super) view: Option<KnownView>,
    /// Its last report about whom it waits for.
    pub(super) waiting: Option<Value>,
    /// The error with which it ended.
    pub(super) error: Option<String>,
    pub(super) stopped: bool,
    pub(super) status: Option<ExitStatus>,
}

/// The path of a file of a process.
pub(super) fn path(folder: &Path, instance: u32, what: &str) -> PathBuf {
    folder.join(format!("{instance}.{what}"))
}

impl Start<'_> {
    pub(super) fn command(&self) -> Command {
        let file = |what: &str| path(self.folder, self.instance, what);
        let mut command = Command::new(self.program);
        command.args(["member", self.group, "--json", "-v", "--with-origin", "--durability", "logged"]);
        command.args(["--founders", &self.founders.to_string()]);
        command.args(["--suspect-after", &format!("{}ms", SUSPECT_AFTER.as_millis())]);
        command.arg("--data").arg(self.data).arg("--output").arg(file("out")).arg("--durable-acks").arg(file("acks"));
        if !self.lost.is_empty() {
            let lost: Vec<String> = self.lost.iter().map(u64::to_string).collect();
            command.args(["--lost", &lost.join(",")]);
        }
        let run = self.host.map_or_else(|| "run".to_owned(), |host| format!("run{host}"));
        if self.host.is_some() {
            command.args(["--listen", &self.sockets[self.seat], "--seeds", &self.sockets.join(",")]);
            command.env("SPINDLE_MEMBER_RESTART_WAIT", format!("{}ms", RESTART_WAIT.as_millis()));
        }
        command.env("SPINDLE_RUNTIME_DIR", self.folder.join(run)).env("SPINDLE_MEMBER_LOG_SEGMENT_BYTES", SEGMENT);
        command.env("RUST_BACKTRACE", "1").env_remove("SPINDLE_LOG");
        command
    }
}

impl Member {
    pub(super) fn start(start: &Start<'_>) -> Result<Member> {
        let errors = path(start.folder, start.instance, "err");
        let file = File::create(&errors).context("can't write in the run's folder")?;
        let mut command = start.command();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(file);
        let mut child = command.spawn().with_context(|| format!("can't start {}", start.program.display()))?;
        let input = child.stdin.take().context("a child's input is a pipe")?;
        let stop_feeding = Arc::new(AtomicBool::new(false));
        let (stop, instance, pace) = (Arc::clone(&stop_feeding), start.instance, start.pace);
        let feeder = thread::spawn(move || feed(input, instance, pace, &stop));
        Ok(Member {
            instance,
            child,
            feeder: Some(feeder),
            stop_feeding,
            errors,
            events: None,
            read: 0,
            rest: vec![],
            id: None,
            view: None,
            waiting: None,
            error: None,
            stopped: false,
            status: None,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        // The process is not reaped, so its number is still its own.
        if self.status.is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the end of a process that was killed, and reads what it reported.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.status = Some(self.child.wait()?);
        self.end_input();
        self.hear()
    }

    /// Stops all threads of the process.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.signal(Signal::STOP);
        waitid(
            WaitId::Pid(Pid::from_child(&self.child)),
            WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )?;
        self.stopped = true;
        Ok(())
    }

    pub(super) fn go_on(&mut self) {
        self.signal(Signal::CONT);
        self.stopped = false;
    }

    /// Ends the input after a last whole line.
    pub(super) fn finish(&self) {
        self.stop_feeding.store(true, Ordering::Relaxed);
    }

    /// Returns how many lines were written to the process.
    pub(super) fn end_input(&mut self) -> u32 {
        self.finish();
        self.feeder.take().and_then(|feeder| feeder.join().ok()).unwrap_or(0)
    }

    /// Returns whether the process has ended, and reads its events.
    pub(super) fn look(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        self.hear()?;
        Ok(self.status.is_some())
    }

    fn hear(&mut self) -> Result<()> {
        if self.events.is_none() {
            self.events = Some(File::open(&self.errors)?);
        }
        let Some(file) = &self.events else { return Ok(()) };
        let mut bytes = vec![0; 1 << 16];
        loop {
            let count = file.read_at(&mut bytes, self.read)?;
            if count == 0 {
                break;
            }
            self.read += count as u64;
            self.rest.extend_from_slice(&bytes[..count]);
        }
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            if let Ok(event) = serde_json::from_slice::<Value>(&line) {
                self.see(event);
            }
        }
        Ok(())
    }

    fn see(&mut self, event: Value) {
        let members = || event["members"].as_array().map(|ids| ids.iter().filter_map(Value::as_u64).collect());
        match event["event"].as_str() {
            Some(name @ ("joined" | "view")) => {
                self.view = event["view"].as_u64().zip(members());
                self.waiting = None;
                if name == "joined" {
                    self.id = event["id"].as_u64();
                }
            }
            Some("waiting") => self.waiting = Some(event),
            Some("error") => self.error = event["message"].as_str().map(str::to_string),
            _ => {}
        }
    }

    /// Returns the members that a restart waits for, as far as this process knows.
    pub(super) fn missing(&self) -> Vec<u64> {
        let missing = self.waiting.as_ref().and_then(|waiting| waiting["restart"]["missing"].as_array());
        missing.map(|ids| ids.iter().filter_map(Value::as_u64).collect()).unwrap_or_default()
    }

    /// The end of what the process reported.
    pub(super) fn last_words(&self, bytes: usize) -> String {
        let text = std::fs::read(&self.errors).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(bytes)..]).into_owned()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill();
            let _ = self.child.wait();
        }
        self.end_input();
    }
}

/// Writes messages to a process until it has ended or `stop` is set. Returns the number of whole
/// lines.
fn feed(mut input: ChildStdin, instance: u32, pace: Pace, stop: &AtomicBool) -> u32 {
    let (mut count, mut block) = (0, vec![]);
    while !stop.load(Ordering::Relaxed) {
        let lines = if count < pace.burst { BLOCK_LINES } else { 1 };
        block.clear();
        (1..=lines).for_each(|i| files::write_line(Sent { instance, number: count + i }, &mut block));
        if input.write_all(&block).is_err() {
            break;
        }
        count += lines;
        if count >= pace.burst {
            sleep(pace.pause);
        }
    }
    count
}

/// Runs the command of a process that must be refused. Returns its output once it has ended.
///
/// # Errors
/// It has not ended in time.
pub(super) fn refused(start: &Start<'_>, at_most: Duration) -> Result<(Option<i32>, String)> {
    let errors = path(start.folder, start.instance, "err");
    let file = File::create(&errors).context("can't write in the run's folder")?;
    let mut child = start.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn()?;
    let begin = Instant::now();
    while child.try_wait()?.is_none() && begin.elapsed() < at_most {
        sleep(Duration::from_millis(5));
    }
    let status = child.try_wait()?;
    if status.is_none() {
        let _ = child.kill();
        child.wait()?;
    }
    let said = std::fs::read_to_string(&errors)?;
    Ok((status.and_then(|status| status.code()), said))
}
