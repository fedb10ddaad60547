//! A service that rejoins: a member that the others have evicted joins again with the state.
//!
//! Run it in three terminals: `cargo run -p spindle-examples --bin rejoin`. Each line is a number
//! to add to a total that all members have. Stop one process (`kill -STOP`), type in the others
//! until they report the eviction, and continue it (`kill -CONT`): it joins again. Ctrl-C and Ctrl-D
//! leave.
use anyhow::{Context, Result, bail};
use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use spindle::{
    Batch, Config, Ended, FinishError, Handler, JoinError, Message, Outcome, SendError, Snapshot, State, SubgroupId,
    View, ViewChange,
};
use std::io::{self, BufRead, Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);
/// How often the service looks whether it was evicted, or is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// A total that all members have.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// The number of members that create the group together.
    #[arg(long, default_value_t = 3)]
    members: u32,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

/// The state of the service.
#[derive(Clone, Default)]
struct Total(Arc<AtomicI64>);

impl Total {
    fn apply(&self, message: &[u8]) {
        if let Ok(number) = message.try_into().map(i64::from_le_bytes) {
            self.0.store(self.value().wrapping_add(number), Ordering::Release);
        }
    }

    fn value(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Handler for Total {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.apply(message.payload));
    }

    /// Prints the change. A service whose standard error may block hands it to another thread.
    fn view_changed(&mut self, change: &ViewChange) {
        eprintln!("view {}: joined {:?}, left {:?}", change.new.id, change.joined, change.left);
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        Some(Snapshot { len: Some(8), bytes: Box::new(Cursor::new(self.value().to_le_bytes())) })
    }

    fn restore(&mut self, state: &mut State) -> io::Result<()> {
        let mut bytes = [0; 8];
        state.read_exact(&mut bytes)?;
        self.0.store(i64::from_le_bytes(bytes), Ordering::Release);
        Ok(())
    }

    fn learn(&mut self, _: &View, _: SubgroupId, message: &Message<'_>) {
        self.apply(message.payload);
    }
}

/// The way in which one membership ended.
enum End {
    /// The input has ended or a signal has come, and this member has left.
    Left,
    /// The others continue without this member. This number may have to be sent again.
    Evicted(Ended, Option<i64>),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let stop = stop_on_signals()?;
    let numbers = read_numbers()?;
    let mut again = None;
    loop {
        match serve(&arguments, &numbers, again.take(), &stop)? {
            End::Left => return Ok(()),
            End::Evicted(why, unsent) => {
                println!("evicted, joins again");
                eprintln!("{why}");
                again = unsent;
            }
        }
    }
}

/// Is a member from the join to the end. Each call begins with a new state and no id: the group
/// assigns a new one, because an evicted member comes back as another member.
fn serve(arguments: &Arguments, numbers: &Receiver<i64>, mut again: Option<i64>, stop: &AtomicBool) -> Result<End> {
    let mut config = Config::new("total", arguments.members);
    config.runtime_dir.clone_from(&arguments.runtime_dir);
    config.suspect_after = Some(Duration::from_secs(2));
    let mut total = Total::default();
    let mut node = match config.learn(&mut total, &mut |_| {}, stop) {
        Err(JoinError::Cancelled { .. }) => return Ok(End::Left),
        joined => joined?,
    };
    let mut publisher = node.publisher("all")?;
    println!("member {} has total {}", node.id(), total.value());
    let group = node.start(total.clone())?;
    while !stop.load(Ordering::Acquire) {
        if let Some(ended) = group.ended() {
            return left_out(ended, again);
        }
        let number = match again.take().map_or_else(|| numbers.recv_timeout(LOOK), Ok) {
            Ok(number) => number,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let receipt = match publisher.send_tracked(&number.to_le_bytes(), WAIT) {
            Ok(receipt) => receipt,
            Err(SendError::Ended(ended)) => return left_out(ended, Some(number)),
            Err(error) => return Err(error.into()),
        };
        match receipt.wait(WAIT).context("a number was not delivered in time: see which member lags")? {
            Outcome::Delivered { .. } => println!("total {}", total.value()),
            Outcome::NotDelivered(_) => again = Some(number),
            outcome => println!("{number} may be in the total or not: {outcome:?}"),
        }
    }
    drop(publisher);
    match group.leave(WAIT) {
        Ok(_) => Ok(End::Left),
        Err(FinishError::Ended(ended)) => left_out(ended, None),
        Err(error) => Err(error.into()),
    }
}

/// Decides whether to join again: after an eviction only. Every other early end is an error.
fn left_out(ended: Ended, unsent: Option<i64>) -> Result<End> {
    if !ended.is_left_out() {
        bail!(ended);
    }
    Ok(End::Evicted(ended, unsent))
}

/// Makes SIGINT and SIGTERM set a flag, which ends the wait for the group and the membership. The
/// second signal ends the process.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop)).context("signals can't be handled")?;
        flag::register(signal, Arc::clone(&stop)).context("signals can't be handled")?;
    }
    Ok(stop)
}

/// Reads numbers on a thread of its own, which continues while the service joins again.
fn read_numbers() -> Result<Receiver<i64>> {
    let (numbers, incoming) = channel();
    let read = move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match line.trim().parse() {
                Ok(number) if numbers.send(number).is_ok() => {}
                Ok(_) => return,
                Err(error) => eprintln!("{line:?} is no number: {error}"),
            }
        }
    };
    thread::Builder::new().name("input".into()).spawn(read).context("the input can't be read")?;
    Ok(incoming)
}
