//! An election with a lease and a fencing token, as a replicated object.
//!
//! Run it in three terminals: `cargo run -p spindle-examples --bin leader_lease`. Lines are
//! `write TEXT`, which only the leader may do, `show`, and `hang`: the program does not extend its
//! lease until the next line. Ctrl-D leaves. Kill the leader, or stop and continue it (`kill -STOP`,
//! `kill -CONT`): another member takes the lease over.
use anyhow::{Result, bail};
use clap::Parser;
use serde::{Deserialize, Serialize};
use spindle::Config;
use spindle_object::{CallError, Context, Replicated, Settings, commands};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);
/// The lease is extended so many times while it lasts.
const EXTENSIONS: u32 = 4;
/// The lines of input that may wait.
const LINES_MAX: usize = 64;

/// Members that elect a leader.
#[derive(Parser)]
struct Arguments {
    /// The number of members that create the group together.
    #[arg(long, default_value_t = 3)]
    members: u32,
    /// How long a lease lasts without an extension, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    lease_ms: u64,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

/// The lease, and a journal that only its holder may write.
#[derive(Default, Serialize, Deserialize)]
struct Lease {
    holder: Holder,
    /// The end of the lease, in the time of the log.
    until: Duration,
    entries: u64,
    last: String,
}

#[derive(Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Holder {
    member: u64,
    /// One more for each lease, so that a resource can refuse the holder of an older lease.
    token: u64,
}

#[commands]
impl Lease {
    /// Extends the lease of its holder. If it is over, the caller becomes the holder.
    #[command]
    fn take(&mut self, context: &mut Context, lasts: Duration) -> Holder {
        let (caller, now) = (context.sender().0, context.now());
        if now >= self.until {
            self.holder = Holder { member: caller, token: self.holder.token + 1 };
        }
        if self.holder.member == caller {
            self.until = now.saturating_add(lasts);
        }
        self.holder
    }

    /// Ends the lease early.
    #[command]
    fn release(&mut self, context: &mut Context, token: u64) {
        if self.holder.token == token {
            self.until = context.now();
        }
    }

    /// Writes to the journal. A caller whose lease is over is refused, also if it has not noticed.
    #[command]
    fn write(&mut self, context: &mut Context, token: u64, text: String) -> Result<u64, Holder> {
        if self.holder.token != token || context.now() >= self.until {
            return Err(self.holder);
        }
        self.entries += 1;
        self.last = text;
        Ok(self.entries)
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut config = Config::new("lease", arguments.members);
    config.runtime_dir = arguments.runtime_dir;
    config.suspect_after = Some(Duration::from_secs(3));
    eprintln!("waiting for the other members");
    let (group, lease) = Replicated::join(config, "all", Lease::default(), Settings::default())?;
    println!("member {}", lease.member());

    let mut candidate = Candidate {
        lease,
        lasts: Duration::from_millis(arguments.lease_ms),
        known: Holder::default(),
        is_hanging: false,
    };
    let lines = read_lines();
    let outcome = candidate.run(&lines);
    if let Some(ended) = group.ended() {
        // The others continue without this member: its lease is over, whatever its clock says.
        println!("not the leader: {ended}");
        bail!(ended);
    }
    outcome?;
    drop(candidate);
    group.leave(WAIT)?;
    Ok(())
}

/// A member that wants to lead.
struct Candidate {
    lease: Replicated<Lease>,
    lasts: Duration,
    /// The holder in the latest reply.
    known: Holder,
    is_hanging: bool,
}

impl Candidate {
    fn run(&mut self, lines: &Receiver<String>) -> Result<()> {
        loop {
            let line = match self.is_hanging {
                true => lines.recv().map_err(RecvTimeoutError::from),
                false => {
                    self.campaign()?;
                    lines.recv_timeout(self.lasts / EXTENSIONS)
                }
            };
            match line {
                Ok(line) => self.obey(&line)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.leads() {
            self.lease.call(&LeaseCalls::release(self.known.token), WAIT)?;
        }
        Ok(())
    }

    fn leads(&self) -> bool {
        self.known.member == self.lease.member().0
    }

    /// Takes or extends the lease. The leader calls it several times while a lease lasts, so the
    /// others take over only if it stops to do so. A call whose outcome is not known changes nothing
    /// here: the next one returns the holder.
    fn campaign(&mut self) -> Result<(), CallError> {
        match self.lease.call(&LeaseCalls::take(self.lasts), WAIT) {
            Ok(holder) => self.learn(holder),
            Err(CallError::Unknown { .. }) if self.lease.ended().is_none() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn learn(&mut self, holder: Holder) {
        if self.known != holder {
            println!("member {} leads with token {}", holder.member, holder.token);
        }
        self.known = holder;
    }

    fn obey(&mut self, line: &str) -> Result<(), CallError> {
        self.is_hanging = line == "hang";
        match line.split_once(' ').unwrap_or((line, "")) {
            ("write", text) => self.write(text)?,
            ("show", _) => {
                let shown = self.lease.read_latest(|lease| (lease.entries, lease.last.clone()), WAIT);
                match shown {
                    Ok((entries, last)) => println!("{entries} entries, the last is {last:?}"),
                    Err(error) => println!("not shown: {error}"),
                }
            }
            ("hang", _) => println!("hangs"),
            _ => eprintln!("unknown line {line:?}: use write TEXT, show or hang"),
        }
        Ok(())
    }

    /// Writes as the leader. The token goes with the write, so the check and the write are one step
    /// of the order. If the outcome is not known in time, it asks once more: the answer is final.
    fn write(&mut self, text: &str) -> Result<(), CallError> {
        if !self.leads() {
            println!("not written: member {} leads", self.known.member);
            return Ok(());
        }
        let called = self.lease.call(&LeaseCalls::write(self.known.token, text.to_owned()), WAIT);
        let written = match called {
            Err(CallError::Unknown { id, .. }) => self.lease.outcome(id, WAIT)?,
            other => other?,
        };
        match written {
            Ok(entry) => println!("written as entry {entry}"),
            Err(holder) => {
                println!("not written: token {} is over", self.known.token);
                self.learn(holder);
            }
        }
        Ok(())
    }
}

/// Reads lines on a thread of its own, so that the lease is extended meanwhile.
fn read_lines() -> Receiver<String> {
    let (sender, lines) = sync_channel(LINES_MAX);
    thread::spawn(move || {
        // The end of the input, or of the program, ends the thread.
        let _ = io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
    });
    lines
}
