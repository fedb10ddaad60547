//! The processes of the demo's members. None of them outlives this.
use super::Event;
use super::child;
use super::report::Line;
use anyhow::Context;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

/// All members, by rank.
#[derive(Debug)]
pub(super) struct Troupe {
    children: Vec<Child>,
}

impl Troupe {
    /// Starts a process for each of `members`; what they say comes as events.
    pub(super) fn start(members: impl Iterator<Item = child::Args>, events: &Sender<Event>) -> anyhow::Result<Troupe> {
        let program = env::current_exe().context("can't find this program's file")?;
        let mut troupe = Troupe { children: Vec::new() };
        for (rank, args) in members.enumerate() {
            let mut command = Command::new(&program);
            command.arg("demo-member").args(words(&args)).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().with_context(|| format!("can't start member {}", args.id))?;
            let stdout = child.stdout.take().context("a member without a pipe")?;
            troupe.children.push(child);
            let events = events.clone();
            let listen = move || listen(rank, stdout, &events);
            thread::Builder::new().name(format!("hears-{rank}")).spawn(listen).context("no thread could be started")?;
        }
        Ok(troupe)
    }

    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// Process ids, by rank.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Tells all to finish. One that is gone is noticed elsewhere.
    pub(super) fn stop_all(&mut self) {
        for stdin in self.children.iter_mut().filter_map(|child| child.stdin.as_mut()) {
            let _ = stdin.write_all(b"stop\n").and_then(|()| stdin.flush());
        }
    }

    pub(super) fn have_all_ended(&mut self) -> bool {
        self.children.iter_mut().all(|child| matches!(child.try_wait(), Ok(Some(_))))
    }

    /// Who was killed, in words.
    pub(super) fn deaths(&mut self) -> Vec<String> {
        let ended = self.children.iter_mut().zip(1..).filter_map(|(child, id)| {
            let status = child.try_wait().ok().flatten()?;
            death(&status).map(|how| format!("member {id} (process {}) {how}", child.id()))
        });
        ended.collect()
    }
}

impl Drop for Troupe {
    fn drop(&mut self) {
        for child in &mut self.children {
            // An error says that it has ended.
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

fn death(status: &ExitStatus) -> Option<String> {
    status.signal().map(|signal| match signal {
        9 => "was killed (signal 9)".to_string(),
        signal => format!("died of signal {signal}"),
    })
}

fn listen(rank: usize, stdout: ChildStdout, events: &Sender<Event>) {
    for text in BufReader::new(stdout).lines() {
        // A half line is that of a member that was killed while it wrote.
        let Some(line) = text.ok().and_then(|text| serde_json::from_str::<Line>(&text).ok()) else { break };
        if events.send(Event::Said(rank, Box::new(line))).is_err() {
            return;
        }
    }
    let _ = events.send(Event::Gone(rank));
}

fn words(args: &child::Args) -> Vec<std::ffi::OsString> {
    let child::Args { parent, dir, members, id, senders, size, window, subgroups, report_ms } = args;
    let numbers = [
        ("--parent", u64::from(*parent)),
        ("--members", u64::from(*members)),
        ("--id", *id),
        ("--senders", u64::from(*senders)),
        ("--size", *size),
        ("--window", *window),
        ("--subgroups", u64::from(*subgroups)),
        ("--report-ms", *report_ms),
    ];
    let numbers = numbers.into_iter().flat_map(|(flag, number)| [flag.into(), number.to_string().into()]);
    numbers.chain(["--dir".into(), dir.into()]).collect()
}
