//! A chat: lines that are typed in any terminal appear in the same order in every terminal.
//!
//! Run it in three terminals, with the ids 1 to 3:
//! `cargo run -p spindle-examples --bin chat -- --id 1 --name ada`.
//! A fourth terminal may join at any time. Ctrl-D and Ctrl-C leave.
use anyhow::{Context, Result, ensure};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use spindle::{Batch, Config, Handler, JoinError, MemberId, SubgroupId, ViewChange};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);
/// How often the program looks whether its group has ended.
const LOOK: Duration = Duration::from_millis(200);

/// A chat of several terminals.
#[derive(Parser)]
struct Arguments {
    /// The id of this member, which no other member has.
    #[arg(long)]
    id: u64,
    /// The name that the others see.
    #[arg(long)]
    name: String,
    /// The number of members that create the chat together.
    #[arg(long, default_value_t = 3)]
    members: u32,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

/// Everything that the main loop reacts to. One channel carries it, from three threads.
enum Event {
    /// A line was typed.
    Typed(String),
    /// The input has ended (Ctrl-D), or a signal asks to stop (Ctrl-C).
    Stop,
    /// The group has delivered a message.
    Delivered(MemberId, String),
    /// These members are no longer in the group.
    Left(Vec<MemberId>),
}

/// Passes deliveries on to the main loop. A handler must not block, and a terminal may: so the
/// main loop prints.
struct Deliveries(Sender<Event>);

impl Handler for Deliveries {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            let text = String::from_utf8_lossy(message.payload).into_owned();
            let _ = self.0.send(Event::Delivered(message.sender_id, text));
        });
    }

    fn view_changed(&mut self, change: &ViewChange) {
        let _ = self.0.send(Event::Left(change.left.clone()));
    }
}

fn main() -> Result<()> {
    let Arguments { id, name, members, runtime_dir } = Arguments::parse();
    ensure!(!name.contains(['\t', '\n']), "the name {name:?} contains a tab or a line end: choose another");
    let (events, incoming) = channel();
    let cancelled = stop_on_signals(events.clone())?;

    let mut config = Config::new("chat", members);
    config.id = Some(MemberId(id));
    config.runtime_dir = runtime_dir;
    config.suspect_after = Some(Duration::from_secs(5));
    eprintln!("waiting for the other members");
    let mut node = match config.join_with(&mut |_| {}, &cancelled) {
        Err(JoinError::Cancelled { .. }) => return Ok(()),
        joined => joined?,
    };
    let mut publisher = node.publisher("all")?;
    let group = node.start(Deliveries(events.clone()))?;

    publisher.send(name.as_bytes(), WAIT)?; // a message without a tab introduces its sender
    read_lines(events)?;
    let mut screen = Screen::default();
    loop {
        match incoming.recv_timeout(LOOK) {
            Ok(Event::Typed(line)) => publisher.send(format!("{name}\t{line}").as_bytes(), WAIT)?,
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(event) => screen.show(event)?,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(ended) = group.ended() {
            return Err(ended.into());
        }
    }
    drop(publisher);
    group.leave(WAIT)?; // when it returns, every member has delivered the lines of this one
    screen.show_rest(&incoming)
}

/// The output, and the names of the members by id.
#[derive(Default)]
struct Screen(BTreeMap<MemberId, String>);

impl Screen {
    fn show(&mut self, event: Event) -> Result<()> {
        let mut out = io::stdout().lock();
        match event {
            Event::Delivered(sender, text) => match text.split_once('\t') {
                Some((name, line)) => {
                    self.0.entry(sender).or_insert_with(|| name.to_owned());
                    writeln!(out, "{name}: {line}")?;
                }
                None => {
                    writeln!(out, "* {text} joined")?;
                    self.0.insert(sender, text);
                }
            },
            Event::Left(members) => {
                for id in members {
                    let name = self.0.remove(&id).unwrap_or_else(|| format!("member {id}"));
                    writeln!(out, "* {name} left")?;
                }
            }
            Event::Typed(_) | Event::Stop => {}
        }
        Ok(())
    }

    /// Shows the deliveries that came while this member left.
    fn show_rest(&mut self, incoming: &Receiver<Event>) -> Result<()> {
        incoming.try_iter().try_for_each(|event| self.show(event))
    }
}

/// Reads the standard input on a thread of its own, because a read waits for as long as it likes.
fn read_lines(events: Sender<Event>) -> Result<()> {
    let read = move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if events.send(Event::Typed(line)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Stop);
    };
    thread::Builder::new().name("input".into()).spawn(read).context("the input can't be read")?;
    Ok(())
}

/// Makes SIGINT and SIGTERM stop the main loop. The flag ends the wait for other members.
fn stop_on_signals(events: Sender<Event>) -> Result<Arc<AtomicBool>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals can't be handled")?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancelled);
    let wait = move || {
        for _ in signals.forever() {
            flag.store(true, Ordering::Release);
            let _ = events.send(Event::Stop);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("signals can't be handled")?;
    Ok(cancelled)
}
