//! The processes that a step starts. They get no input, end in time, and never outlive an
//! interrupted run.
//!
//! Each child leads a process group of its own, so that the processes that it starts can be stopped
//! with it.
use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a waiting session checks its child.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a child that was asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// True if a signal asked this process to stop.
pub(crate) struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Watches for Ctrl-C, a termination and a lost terminal from now on.
    pub(crate) fn watch() -> Result<Signals> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("can't watch for signals")?;
        }
        Ok(Signals(flag))
    }

    pub(crate) fn arrived(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The run was asked to stop, so the step has no result.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The step was skipped, because this machine lacks a requirement of it.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) String);

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped: {}", self.0)
    }
}

impl std::error::Error for Skipped {}

/// One step's run: its directory, its output, and its deadline.
pub(crate) struct StepSession<'a> {
    root: &'a Path,
    log: Option<File>,
    deadline: Instant,
    signals: &'a Signals,
}

impl<'a> StepSession<'a> {
    /// Returns a session in the workspace at `root` that sends output to `log`, or to the terminal
    /// if there is none.
    pub(crate) fn new(root: &'a Path, log: Option<File>, deadline: Instant, signals: &'a Signals) -> StepSession<'a> {
        StepSession { root, log, deadline, signals }
    }

    /// Returns the root of the workspace.
    pub(crate) fn root(&self) -> &Path {
        self.root
    }

    /// Returns what Cargo knows of the packages of the workspace, without their dependencies.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        Ok(MetadataCommand::new().manifest_path(self.root().join("Cargo.toml")).no_deps().exec()?)
    }

    /// Returns a command that works in the workspace. The variables that `cargo run` set for this
    /// process's own package are removed.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.root);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs cargo with `args`.
    pub(crate) fn cargo(&self, args: &[&str]) -> Result<String> {
        self.run(self.command("cargo").args(args))?;
        Ok(String::new())
    }

    /// Runs `command` to its end. It must succeed.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        if let Some(log) = &self.log {
            command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        }
        self.finish(command)
    }

    /// Does the same as [`run`](Self::run), and returns the output. The log gets the output, too,
    /// even if the command fails.
    pub(crate) fn read(&self, mut command: Command) -> Result<String> {
        let (mut output, printed) = std::io::pipe()?;
        command.stdout(printed);
        if let Some(log) = &self.log {
            command.stderr(log.try_clone()?);
        }
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        });
        let finished = self.finish(&mut command);
        // The command holds the other end.
        drop(command);
        let text = reader.join().expect("reading does not panic")?;
        match &self.log {
            Some(log) => log.try_clone()?.write_all(text.as_bytes())?,
            None => print!("{text}"),
        }
        finished.map(|()| text)
    }

    /// Runs `command` to its end, and returns how it ended and all that it printed.
    pub(crate) fn output(&self, command: &mut Command) -> Result<Output> {
        use std::os::unix::process::CommandExt;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let shown = shown(command);
        let mut child = command.spawn().with_context(|| format!("can't start `{shown}`"))?;
        let stdout = read_all(child.stdout.take().context("a child's output is a pipe")?);
        let stderr = read_all(child.stderr.take().context("a child's errors are a pipe")?);
        let status = self.wait(child, &shown)?;
        let [stdout, stderr] = [stdout, stderr].map(|reader| reader.join().expect("reading does not panic"));
        Ok(Output { status, stdout: stdout?, stderr: stderr? })
    }

    fn finish(&self, command: &mut Command) -> Result<()> {
        use std::os::unix::process::CommandExt;
        command.stdin(Stdio::null()).process_group(0);
        let shown = shown(command);
        let child = command.spawn().with_context(|| format!("can't start `{shown}`"))?;
        let status = self.wait(child, &shown)?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        Ok(())
    }

    fn wait(&self, mut child: Child, shown: &str) -> Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.signals.arrived() {
                stop(child)?;
                return Err(Interrupted.into());
            }
            if Instant::now() >= self.deadline {
                stop(child)?;
                bail!("`{shown}` was stopped: the step's time was up");
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Reads to the end on a thread of its own.
fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<std::io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes)
    })
}

/// Ends `child` and all of its group: with a signal to end first.
fn stop(mut child: Child) -> Result<()> {
    let group = Pid::from_child(&child);
    // This fails only if the whole group is gone already.
    let _ = kill_process_group(group, Signal::TERM);
    let killed_at = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < killed_at {
        std::thread::sleep(LOOK_EVERY);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()?;
    Ok(())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;

    fn run(script: &str, limit: Duration, signalled: bool) -> Result<()> {
        let signals = Signals(Arc::new(AtomicBool::new(signalled)));
        let session = StepSession::new(Path::new("."), None, Instant::now() + limit, &signals);
        session.run(session.command("sh").args(["-c", script]))
    }

    #[test]
    fn a_command_succeeds_fails_or_is_stopped() {
        let long = Duration::from_secs(60);
        run("exit 0", long, false).unwrap();
        assert!(run("exit 3", long, false).unwrap_err().to_string().contains("exit status: 3"));
        assert!(run("exec sleep 1000", Duration::ZERO, false).unwrap_err().to_string().contains("time was up"));
        assert!(run("exec sleep 1000", long, true).unwrap_err().is::<Interrupted>());
    }

    #[test]
    fn the_output_of_a_command_can_be_parsed() {
        let signals = Signals(Arc::new(AtomicBool::new(false)));
        let session = StepSession::new(Path::new("."), None, Instant::now() + Duration::from_secs(60), &signals);
        let script = |text: &str| {
            let mut command = session.command("sh");
            command.args(["-c", text]);
            session.read(command)
        };
        assert_eq!(script("echo one; echo two").unwrap(), "one\ntwo\n");
        assert!(script("echo one; exit 3").unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn a_stopped_command_takes_what_it_started_along() {
        let (output, log) = std::io::pipe().unwrap();
        let signals = Signals(Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&signals.0);
        let reader = std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines();
            let first = lines.next();
            flag.store(true, Ordering::Relaxed);
            // The lines end when no process holds the other end, so not before the grandchild is
            // gone.
            assert_eq!(lines.count(), 0);
            first
        });
        let log = Some(File::from(OwnedFd::from(log)));
        let session = StepSession::new(Path::new("."), log, Instant::now() + Duration::from_secs(60), &signals);
        let error = session.run(session.command("sh").args(["-c", "sleep 1000 & echo started; wait"])).unwrap_err();
        assert!(error.is::<Interrupted>());
        drop(session);
        assert_eq!(reader.join().unwrap().unwrap().unwrap(), "started");
    }
}
