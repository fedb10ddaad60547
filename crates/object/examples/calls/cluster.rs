//! The members, as the process that measures sees them.
use crate::member::{Order, Setup, Told, WAIT};
use crate::store::DurabilityArg;
use std::error::Error;
use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;
/// The way to a member's orders, its answers, and its process.
pub(crate) type Started = (Box<dyn Write>, Box<dyn Read + Send>, Option<Child>);
/// Starts a member.
pub(crate) type Start = fn(&Setup) -> Outcome<Started>;

/// Members, and the directories that they use. Dropping it ends the members.
pub(crate) struct Cluster {
    members: Vec<Member>,
    pub(crate) logs: PathBuf,
    dirs: Vec<PathBuf>,
}

struct Member {
    orders: Box<dyn Write>,
    told: Receiver<String>,
    process: Option<Child>,
    address: Option<SocketAddr>,
}

/// Starts this program as a member.
pub(crate) fn start_process(setup: &Setup) -> Outcome<Started> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--member").arg(serde_json::to_string(setup)?).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn()?;
    let orders = process.stdin.take().ok_or("no pipe to a member")?;
    let told = process.stdout.take().ok_or("no pipe from a member")?;
    Ok((Box::new(orders), Box::new(told), Some(process)))
}

impl Cluster {
    /// Starts members and waits until all have joined. Their logs are in a new directory in `data`.
    pub(crate) fn start(start: Start, members: u32, durability: DurabilityArg, data: &Path) -> Outcome<Cluster> {
        let (dir, logs) = (new_dir(&std::env::temp_dir())?, new_dir(data)?);
        let mut cluster = Cluster { members: vec![], logs: logs.clone(), dirs: vec![dir.clone(), logs.clone()] };
        for number in 0..members {
            let data_dir = (durability != DurabilityArg::Memory).then(|| logs.join(format!("member-{number}")));
            let setup = Setup { dir: dir.clone(), members, durability, data_dir };
            let (orders, told, process) = start(&setup)?;
            let (tell, lines) = channel();
            // It ends with the member's output.
            thread::spawn(move || {
                BufReader::new(told).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
            });
            cluster.members.push(Member { orders, told: lines, process, address: None });
        }
        let until = Instant::now() + 2 * WAIT;
        for (number, member) in cluster.members.iter_mut().enumerate() {
            match member.answer(number, until)? {
                Told::Ready(address) => member.address = Some(address),
                other => return Err(format!("member {number} answered {other:?} instead of joining").into()),
            }
        }
        Ok(cluster)
    }

    /// Returns the address of the first member's socket.
    pub(crate) fn address(&self) -> Outcome<SocketAddr> {
        Ok(self.members.first().and_then(|member| member.address).ok_or("no member has a socket")?)
    }

    /// Gives an order to the first member, which takes about `time`, and returns the answer.
    pub(crate) fn order(&mut self, order: &Order, time: Duration) -> Outcome<Told> {
        let first = self.members.first_mut().ok_or("there is no member")?;
        writeln!(first.orders, "{}", serde_json::to_string(order)?)?;
        first.orders.flush()?;
        first.answer(0, Instant::now() + time + 2 * WAIT)
    }
}

impl Member {
    fn answer(&mut self, number: usize, until: Instant) -> Outcome<Told> {
        let line = self.told.recv_timeout(until.saturating_duration_since(Instant::now()));
        let line = line.map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("member {number} does not answer; is the machine overloaded?"),
            // Its output ends a moment before the process.
            RecvTimeoutError::Disconnected => match self.process.as_mut().map(Child::wait) {
                Some(Ok(status)) => format!("member {number} is gone: {status}"),
                _ => format!("member {number} is gone"),
            },
        })?;
        match serde_json::from_str(&line)? {
            Told::Failed(why) => Err(format!("member {number} failed: {why}").into()),
            told => Ok(told),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
        for dir in &self.dirs {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Creates a directory that only this user can access.
fn new_dir(parent: &Path) -> Outcome<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = parent.join(format!("spindle-calls-{}-{count}", std::process::id()));
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| format!("can't create {}: {error}; --data names another directory", path.display()))?;
    Ok(path)
}
