//! Runs the examples as real processes, with pipes for terminals and a directory of their own.
#![allow(dead_code, reason = "each test uses a part")]
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory that is removed with the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("spindle-example-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// Returns the path of a runtime directory within it.
    pub(crate) fn runtime_dir(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that the test has started. It is killed if the test fails.
pub(crate) struct Terminal {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    /// The lines that were waited for, and those before them.
    pub(crate) lines: Vec<String>,
}

impl Terminal {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Terminal {
        let mut command = Command::new(program);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Terminal::of(child, stdout)
    }

    /// Starts a process whose errors are lines of the output, too.
    pub(crate) fn start_with_errors(mut command: Command) -> Terminal {
        let (reader, writer) = pipe().unwrap();
        command.stdin(Stdio::piped()).stdout(writer.try_clone().unwrap()).stderr(writer);
        Terminal::of(command.spawn().unwrap(), reader)
    }

    fn of(mut child: Child, output: impl Read + Send + 'static) -> Terminal {
        let lines = BufReader::new(output).lines();
        let (tell, output) = channel();
        thread::spawn(move || {
            // The end of the output, or of the test, ends the thread.
            let _ = lines.map_while(Result::ok).try_for_each(|line| tell.send(line));
        });
        Terminal { input: child.stdin.take(), child, output, lines: Vec::new() }
    }

    /// Types a line.
    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for a line of output that fits, and returns it.
    pub(crate) fn wait_for(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + LONG;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.output.recv_timeout(left) else {
                panic!("no {what} in {:?}; the process: {:?}", self.lines, self.child.try_wait())
            };
            self.lines.push(line.clone());
            if fits(&line) {
                return line;
            }
        }
    }

    /// Waits for exactly this line.
    pub(crate) fn wait_for_line(&mut self, line: &str) {
        self.wait_for(line, |found| found == line);
    }

    /// Types a question and returns the next line that begins with this word.
    pub(crate) fn ask(&mut self, question: &str, begins: &str) -> String {
        self.write(question);
        self.wait_for(begins, |line| line.starts_with(begins))
    }

    /// Ends the input, as Ctrl-D does.
    pub(crate) fn end_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the process, and takes the rest of its output.
    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.lines.extend(self.output.iter());
                return status;
            }
            assert!(Instant::now() < until, "the process does not end: {:?}", self.lines);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
