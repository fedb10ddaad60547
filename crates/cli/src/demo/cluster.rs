//! The processes of the demo's members. None of them outlives this process.
use super::DemoEvent;
use super::child;
use super::report::OutputLine;
use crate::exit::death;
use crate::log;
use anyhow::Context;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

/// All members started so far, by id from 1.
#[derive(Debug)]
pub(super) struct DemoCluster {
    children: Vec<Child>,
}

impl DemoCluster {
    /// Starts a process for each of `members`. Their lines arrive as events.
    pub(super) fn start(
        members: impl Iterator<Item = child::DemoMemberArgs>,
        events: &Sender<DemoEvent>,
    ) -> anyhow::Result<DemoCluster> {
        let mut cluster = DemoCluster { children: Vec::new() };
        members.into_iter().try_for_each(|args| cluster.add(&args, events))?;
        Ok(cluster)
    }

    /// Starts one more process.
    pub(super) fn add(&mut self, args: &child::DemoMemberArgs, events: &Sender<DemoEvent>) -> anyhow::Result<()> {
        let program = env::current_exe().context("can't find this program's file")?;
        let mut command = Command::new(&program);
        command.arg("demo-member").args(words(args)).stdin(Stdio::piped()).stdout(Stdio::piped());
        log::hand_on(&mut command);
        let mut child = command.spawn().with_context(|| format!("can't start member {}", args.id))?;
        let stdout = child.stdout.take().context("a member without a pipe")?;
        let slot = self.children.len();
        self.children.push(child);
        let events = events.clone();
        let listen = move || listen(slot, stdout, &events);
        let thread = thread::Builder::new().name(format!("hears-{}", args.id)).spawn(listen);
        thread.map(drop).context("no thread could be started")
    }

    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    pub(super) fn pid(&self, slot: usize) -> u32 {
        self.children[slot].id()
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Kills a process, as `kill -9` does.
    pub(super) fn kill(&mut self, slot: usize) {
        // An error means that the process has ended.
        let _ = self.children[slot].kill();
    }

    /// Orders all members to finish. A member that is gone is noticed elsewhere.
    pub(super) fn stop_all(&mut self) {
        for stdin in self.children.iter_mut().filter_map(|child| child.stdin.as_mut()) {
            let _ = stdin.write_all(b"stop\n").and_then(|()| stdin.flush());
        }
    }

    pub(super) fn has_ended(&mut self, slot: usize) -> bool {
        !matches!(self.children[slot].try_wait(), Ok(None))
    }

    /// Describes the kill of a process, if it was killed.
    pub(super) fn death(&mut self, slot: usize) -> Option<String> {
        let status = self.children[slot].try_wait().ok().flatten()?;
        death(&status).map(|how| format!("member {} (process {}) {how}", slot + 1, self.pid(slot)))
    }

    pub(super) fn have_all_ended(&mut self) -> bool {
        (0..self.len()).all(|slot| self.has_ended(slot))
    }

    /// Describes the processes that were killed.
    pub(super) fn deaths(&mut self) -> Vec<String> {
        (0..self.len()).filter_map(|slot| self.death(slot)).collect()
    }
}

impl Drop for DemoCluster {
    fn drop(&mut self) {
        for child in &mut self.children {
            // An error means that the process has ended.
            let _ = child.kill();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

fn listen(slot: usize, stdout: ChildStdout, events: &Sender<DemoEvent>) {
    for text in BufReader::new(stdout).lines() {
        // A half line comes from a member that was killed while it wrote.
        let Some(line) = text.ok().and_then(|text| serde_json::from_str::<OutputLine>(&text).ok()) else { break };
        if events.send(DemoEvent::Said(slot, Box::new(line))).is_err() {
            return;
        }
    }
    let _ = events.send(DemoEvent::Gone(slot));
}

fn words(args: &child::DemoMemberArgs) -> Vec<std::ffi::OsString> {
    let child::DemoMemberArgs { parent, dir, members, id, senders, size, window, subgroups, report_ms, verbosity: _ } =
        args;
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
