//! One member on each of three hosts, with TLS between them.
//!
//! Each host has a settings file like those in `examples/three_hosts`, and beside it the
//! certificate of the authority, and its own with the key. Run on each host, with its own file:
//! `cargo run -p spindle-examples --bin three_hosts -- member-1.toml`.
//! Lines that are typed on any host appear in the same order on all. Ctrl-D and Ctrl-C leave.
use anyhow::{Context, Result, bail};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use spindle::settings::Settings;
use spindle::{
    Batch, BootstrapProgress, Config, Handler, Identity, JoinError, MemberId, Publisher, Security, SendError,
    SubgroupId, ViewChange,
};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long one attempt to send, or to leave, may wait for the other members.
const WAIT: Duration = Duration::from_secs(10);
/// How often the program looks at signals, its group and its certificate.
const LOOK: Duration = Duration::from_millis(200);

/// One member of a group on several hosts.
#[derive(Parser)]
struct Arguments {
    /// The settings of this member. Variables of the environment, such as `SPINDLE_NETWORK_LISTEN`,
    /// have precedence.
    settings: PathBuf,
}

/// Everything that the main loop reacts to.
enum Event {
    /// The group has delivered a message.
    Delivered(MemberId, String),
    /// The members are these from now on.
    View(Vec<MemberId>),
    /// This member has lost the majority, or has it again.
    Blocked(bool),
    /// No more lines are sent.
    InputEnded(Result<(), SendError>),
}

/// Passes on what happens. A handler must not block, and an output may.
struct Events(Sender<Event>);

impl Handler for Events {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            let text = String::from_utf8_lossy(message.payload).into_owned();
            let _ = self.0.send(Event::Delivered(message.sender_id, text));
        });
    }

    /// Passes on the members if they have changed. A view that completes a join has the same ones.
    fn view_changed(&mut self, change: &ViewChange) {
        if !change.joined.is_empty() || !change.left.is_empty() {
            let _ = self.0.send(Event::View(change.new.members.clone()));
        }
    }

    fn blocked(&mut self, is_blocked: bool) {
        let _ = self.0.send(Event::Blocked(is_blocked));
    }
}

fn main() -> Result<()> {
    let config = read_settings(&Arguments::parse().settings)?;
    let identity = identity_of(&config)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop)).context("signals can't be handled")?;
    }

    let mut waiting = |progress: &BootstrapProgress| eprintln!("waiting: {progress}");
    let mut node = match config.join_with(&mut waiting, &stop) {
        Err(JoinError::Cancelled { .. }) => return Ok(()),
        joined => joined?,
    };
    let publisher = node.publisher("all")?;
    print(&Event::View(node.view().members.clone()))?;
    let (events, incoming) = channel();
    let group = node.start(Events(events.clone()))?;
    let read = move || drop(events.send(Event::InputEnded(send_lines(publisher))));
    thread::Builder::new().name("input".into()).spawn(read).context("the input can't be read")?;

    while !stop.load(Ordering::Acquire) {
        match incoming.recv_timeout(LOOK) {
            Ok(Event::InputEnded(Ok(()))) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(event) => print(&event)?,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(ended) = group.ended() {
            return Err(ended.into()); // evicted, for example: a service manager starts it again
        }
        for warning in identity.take_warnings() {
            eprintln!("warning: {warning}");
        }
    }
    group.leave(WAIT)?;
    incoming.try_iter().try_for_each(|event| print(&event))
}

/// Reads the file, and the environment on top of it. An error lists everything that is wrong.
fn read_settings(path: &Path) -> Result<Config> {
    let mut settings = Settings::new();
    settings.file(path)?;
    settings.variables(std::env::vars_os());
    Ok(settings.effective()?.config()?)
}

/// Returns the certificate in use. The library reads its files again when they change.
fn identity_of(config: &Config) -> Result<Identity> {
    match config.network.as_ref().map(|network| &network.security) {
        Some(Security::Tls(identity)) => Ok(identity.clone()),
        _ => bail!("the settings have no certificate: set ca, cert and key in [network.tls]"),
    }
}

/// Sends the lines of the standard input. A send waits while a majority of the hosts is missing, so
/// this runs on a thread of its own.
fn send_lines(mut publisher: Publisher) -> Result<(), SendError> {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        while let Err(error) = publisher.send(line.as_bytes(), WAIT) {
            if !matches!(error, SendError::Full { .. }) {
                return Err(error);
            }
        }
    }
    Ok(())
}

fn print(event: &Event) -> Result<()> {
    let mut out = io::stdout().lock();
    match event {
        Event::Delivered(sender, text) => writeln!(out, "{sender}: {text}")?,
        Event::View(members) => {
            let members: Vec<_> = members.iter().map(ToString::to_string).collect();
            writeln!(out, "* members {}", members.join(", "))?;
        }
        Event::Blocked(true) => writeln!(out, "* blocked: more than half of the members must be reachable")?,
        Event::Blocked(false) => writeln!(out, "* continues")?,
        Event::InputEnded(Ok(())) => {}
        Event::InputEnded(Err(error)) => eprintln!("the input is not sent any more: {error}"),
    }
    Ok(())
}
