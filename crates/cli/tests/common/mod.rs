//! Processes of the command, each test's in a directory of its own. They end with the test that
//! starts them.
#![allow(dead_code, reason = "each test file uses a part")]
pub(crate) mod logs;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a step of a test without any output, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for a step, with any other output meanwhile.
const LONGEST: Duration = Duration::from_secs(300);

/// A directory that is removed with its contents.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("spindle-cli-test-{}-{number}", std::process::id()));
        // A killed process with the same id may have left this directory.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        Scratch(path)
    }

    /// Returns a path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a file with these bytes.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Returns the directory in which groups of this test meet.
    pub(crate) fn runtime_dir(&self) -> PathBuf {
        self.path("run")
    }

    /// Returns the command, with these arguments.
    pub(crate) fn spindle<S: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        command.env("SPINDLE_RUNTIME_DIR", self.runtime_dir()).env_remove("SPINDLE_LOG").args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Returns the command for a member of a group of `members`, which reports events as JSON.
    pub(crate) fn member(&self, group: &str, members: u32) -> Command {
        self.spindle(["member", group, "--json", "--founders", &members.to_string()])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process of the command; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    said: Receiver<Said>,
    /// Lines of the standard error so far.
    pub(crate) errors: Vec<String>,
    stdout: Vec<u8>,
    open: u32,
    /// The name of the awaited event, and the start of the wait.
    waits: (String, Instant),
}

#[derive(Debug)]
enum Said {
    Out(Vec<u8>),
    Err(String),
    /// One of the two pipes has ended.
    End,
}

/// The result of a process.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) errors: Vec<String>,
}

impl Running {
    /// Starts the command and reads its output.
    pub(crate) fn start(command: &mut Command) -> Running {
        Running::listening(command, true)
    }

    /// Starts the command like `start`. If the standard output is not read here, `command` sets its
    /// destination.
    pub(crate) fn listening(command: &mut Command, to_stdout: bool) -> Running {
        if to_stdout {
            command.stdout(Stdio::piped());
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (tell, said) = channel();
        let mut open = 1;
        if to_stdout {
            let (stdout, tell) = (child.stdout.take().unwrap(), tell.clone());
            thread::spawn(move || relay_bytes(stdout, &tell));
            open += 1;
        }
        let stderr = child.stderr.take().unwrap();
        thread::spawn(move || relay_lines(stderr, &tell));
        Running {
            stdin: child.stdin.take(),
            child,
            said,
            errors: Vec::new(),
            stdout: Vec::new(),
            open,
            waits: (String::new(), Instant::now()),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops all threads of the process. The signal alone lets them run on for a while.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let pid = Pid::from_child(&self.child);
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Waits for a JSON event on the standard error.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        self.event_with(name, |_| true)
    }

    /// Waits for a JSON event on the standard error that `is_wanted`.
    pub(crate) fn event_with(&mut self, name: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let wanted = |line: &String| {
            let object: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?} is no JSON: {e}"));
            (object["event"] == name && is_wanted(&object)).then_some(object)
        };
        if let Some(found) = self.errors.iter().find_map(wanted) {
            return found;
        }
        loop {
            self.hear(&format!("event {name:?}"));
            if let Some(found) = self.errors.last().and_then(wanted) {
                return found;
            }
        }
    }

    /// Waits for an event "view" with these members.
    pub(crate) fn view(&mut self, members: &[u64]) -> Value {
        let wanted = |line: &String| {
            let object: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?} is no JSON: {e}"));
            let view = ["view", "joined"].iter().any(|name| object["event"] == *name);
            (view && object["members"] == serde_json::json!(members)).then_some(object)
        };
        loop {
            if let Some(found) = self.errors.iter().find_map(wanted) {
                return found;
            }
            self.hear(&format!("a view of {members:?}"));
        }
    }

    /// Waits for an event "view" with `count` members, the first of which are `first`.
    pub(crate) fn larger_view(&mut self, first: &[u64], count: usize) -> Vec<u64> {
        let mut seen = 0;
        loop {
            let events = self.errors[seen..].iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let views = events.filter(|object| object["event"] == "view");
            let mut members = views.map(|view| serde_json::from_value::<Vec<u64>>(view["members"].clone()).unwrap());
            if let Some(found) = members.find(|members| members.len() == count && members.starts_with(first)) {
                return found;
            }
            seen = self.errors.len();
            self.hear(&format!("a view of {first:?} and more, {count} in all"));
        }
    }

    /// Waits for a line of the standard error that contains `words`.
    pub(crate) fn says(&mut self, words: &str) -> String {
        let mut seen = 0;
        loop {
            if let Some(line) = self.errors[seen..].iter().find(|line| line.contains(words)) {
                return line.clone();
            }
            seen = self.errors.len();
            self.hear(&format!("a line with {words:?}"));
        }
    }

    /// Waits until the standard output has `count` lines, and returns them.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        while self.stdout.iter().filter(|byte| **byte == b'\n').count() < count {
            self.hear(&format!("{count} lines"));
        }
        String::from_utf8_lossy(&self.stdout).lines().map(str::to_string).collect()
    }

    /// Waits until the process has ended.
    pub(crate) fn done(mut self) -> Done {
        drop(self.stdin.take());
        while self.open > 0 {
            self.hear("its end");
        }
        // The pipes of the process are closed, so it is about to end.
        let status = self.child.wait().unwrap();
        Done { status, stdout: std::mem::take(&mut self.stdout), errors: std::mem::take(&mut self.errors) }
    }

    /// Ends all inputs, and waits until all members have ended. A member ends only when every input
    /// has ended.
    pub(crate) fn all_done(mut members: Vec<Running>) -> Vec<Done> {
        members.iter_mut().for_each(|member| drop(member.stdin.take()));
        members.into_iter().map(Running::done).collect()
    }

    fn hear(&mut self, wanted: &str) {
        if self.waits.0 != wanted {
            self.waits = (wanted.to_string(), Instant::now());
        }
        // The process may print other lines meanwhile.
        let patience = PATIENCE.min(LONGEST.saturating_sub(self.waits.1.elapsed()));
        match self.said.recv_timeout(patience) {
            Ok(Said::Out(bytes)) => self.stdout.extend_from_slice(&bytes),
            Ok(Said::Err(line)) => self.errors.push(line),
            Ok(Said::End) => self.open -= 1,
            Err(error) => {
                let out = String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(2000)]).into_owned();
                panic!("waited for {wanted}: {error}; it said {out:?} and {:#?}", self.errors)
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Done {
    /// Checks the exit status.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Done {
        let out = String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(500)]).into_owned();
        assert_eq!(self.status.code(), Some(code), "it said {out:?} and {:#?}", self.errors);
        self
    }

    /// Returns the JSON event with this name.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        let objects = self.errors.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        objects.into_iter().find(|object| object["event"] == name).unwrap_or_else(|| panic!("{:#?}", self.errors))
    }

    /// Returns the message of the last JSON event, which is an error.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        self.message("error")
    }

    /// Returns the message of the last JSON event, which reports that a signal stopped the command
    /// in order.
    #[track_caller]
    pub(crate) fn stop(&self) -> String {
        self.message("stopped")
    }

    #[track_caller]
    fn message(&self, event: &str) -> String {
        let last = self.errors.last().expect("an event is told");
        let object: Value = serde_json::from_str(last).unwrap();
        assert_eq!(object["event"], event, "{last}");
        object["message"].as_str().unwrap().to_string()
    }

    /// Returns the standard output, a JSON object a line.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let lines = self.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

fn relay_bytes(mut from: impl Read, tell: &Sender<Said>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let _ = tell.send(Said::Out(buffer[..count].to_vec()));
    }
    let _ = tell.send(Said::End);
}

fn relay_lines(from: impl Read, tell: &Sender<Said>) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        let _ = tell.send(Said::Err(line));
    }
    let _ = tell.send(Said::End);
}

/// Returns `count` addresses at which a process can listen.
pub(crate) fn seeds(count: u32) -> Vec<String> {
    // No other process gets these ports for a while. All ports are held at the same time, so they
    // differ.
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}
