//! Control sockets of one process, and of several that can be killed: those run this test binary
//! again, started with a role (see [`child`]).
use super::group_files::{GroupFiles, new_socket};
use super::limits::{CENSUS_MAX, UNREACHED_CONTROL_MESSAGES_MAX};
use super::*;
use crate::fork::create_file;
use crate::testing::{DONE, TempDir, fork, forked};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, bind, sendmsg_addr};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, pidfd_open, setrlimit,
};
use spindle_core::control::{Birth, ControlMessage, Refusal, Request, VERSION};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::{MemberId, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::spawn;
use std::time::{Duration, Instant};

mod creating;
mod directory;
mod exchanging;
mod messages;
mod watching;

/// The limit of every wait of a test that works; a test that hangs fails after it.
const BOUND: Duration = Duration::from_secs(60);
const REGION: u64 = 4096;

/// Makes an address and its mark again. Returns whether there is a new socket. A child that another
/// test is starting may hold a copy of the group's lock for a moment, and
/// [`restore`](ControlSocket::restore) waits for no lock.
fn restore(control_socket: &mut ControlSocket) -> bool {
    let until = Instant::now() + BOUND;
    let mut is_new = false;
    while !control_socket.address().is_in_place() {
        assert!(Instant::now() < until);
        is_new |= control_socket.restore().unwrap();
    }
    is_new
}

/// The data that the processes and threads of one test share.
struct Town {
    /// Not set if another process made it, which will remove it.
    _temp: Option<TempDir>,
    dir: RuntimeDir,
    group: GroupName,
}

impl Town {
    fn new() -> Self {
        let temp = TempDir::new();
        let dir = RuntimeDir::new(temp.path()).unwrap();
        Self { _temp: Some(temp), dir, group: GroupName::new("g").unwrap() }
    }

    fn open(&self, id: u64) -> ControlSocket {
        ControlSocket::open(&self.dir, &self.group, MemberId(id)).unwrap()
    }

    fn find(&self, id: Option<u64>) -> Role {
        let deadline = Instant::now() + BOUND;
        found_or_find(&self.dir, &self.group, id.map(MemberId), deadline, &AtomicBool::new(false)).unwrap()
    }

    fn create(&self, id: u64) -> (ControlSocket, u128) {
        match self.find(Some(id)) {
            Role::Founder { control_socket, incarnation } => (control_socket, incarnation),
            Role::Joiner { members, .. } => panic!("there are members already: {members:?}"),
        }
    }

    fn join(&self, id: u64) -> (ControlSocket, Vec<u64>) {
        match self.find(Some(id)) {
            Role::Founder { .. } => panic!("there is no member"),
            Role::Joiner { control_socket, members } => (control_socket, members.iter().map(|id| id.0).collect()),
        }
    }

    fn present(&self) -> Vec<u64> {
        ControlSocket::present(&self.dir, &self.group).unwrap().iter().map(|id| id.0).collect()
    }

    fn members(&self) -> Vec<u64> {
        ControlSocket::members(&self.dir, &self.group).unwrap().iter().map(|id| id.0).collect()
    }

    fn place(&self) -> GroupFiles {
        GroupFiles::new(&self.dir, &self.group)
    }

    /// Returns the names of the files, except the lock's.
    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.ends_with(".lock"));
        names.sort();
        names
    }
}

fn again(control_socket: &ControlSocket) -> CreateOutcome {
    control_socket.create(Instant::now() + BOUND, &AtomicBool::new(false)).unwrap()
}

fn readable(fd: impl AsFd, wait: Duration) -> bool {
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    let fd = fd.as_fd();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&wait)).unwrap() == 1
}

fn next(control_socket: &mut ControlSocket) -> (ControlMessage, Vec<OwnedFd>) {
    let until = Instant::now() + BOUND;
    loop {
        if let Some(message) = control_socket.receive() {
            return message;
        }
        assert!(Instant::now() < until, "no control message for {}", control_socket.id());
        readable(&*control_socket, Duration::from_secs(1));
    }
}

fn status(from: u64, reply: u64) -> ControlMessage {
    ControlMessage::Request { from: MemberId(from), reply, what: Request::Status }
}

fn myself() -> OwnedFd {
    pidfd_open(getpid(), PidfdFlags::empty()).unwrap()
}

fn parts(from: MemberId, view: u64) -> ControlMessage {
    ControlMessage::RowDescriptors {
        incarnation: 1,
        view: ViewId(view),
        from,
        pid: std::process::id(),
        birth: Birth::default(),
        at: 0,
        bytes: REGION,
        event: false,
        address: None,
        rack: None,
    }
}

/// Creates a member's memory, with its id in the first word.
fn memory(id: MemberId) -> (OwnedFd, Vec<Arc<OwnedFd>>) {
    let row = create_file("row").unwrap();
    rustix::fs::ftruncate(&row, REGION).unwrap();
    store(&row, id.0);
    let own = row.try_clone().unwrap();
    let event_count = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let (_, lease) = rustix::pipe::pipe().unwrap();
    (own, [row, event_count, myself(), lease].into_iter().map(Arc::new).collect())
}

/// Writes the first word of a member's memory.
fn store(row: &OwnedFd, word: u64) {
    assert_eq!(rustix::io::pwrite(row, &word.to_ne_bytes(), 0), Ok(8));
}

/// Reads the first word of a member's memory.
fn load(row: &OwnedFd) -> u64 {
    let mut word = [0; 8];
    assert_eq!(rustix::io::pread(row, &mut word, 0), Ok(8));
    u64::from_ne_bytes(word)
}

/// Sends bytes as a foreign process: `from` has no address, or one of its own choice.
fn throw(from: &OwnedFd, to: &ControlSocket, town: &Town, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    let address = SocketAddrUnix::new(&*town.place().address(to.id()).unwrap()).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg_addr(from, &address, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
}

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn raise_fd_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// A member in a process of its own. It is killed, if it still runs, when this is dropped. It ends
/// by itself when its standard input does.
struct Process {
    process: Running,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

/// Kills it when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(town: &Town, role: &str, id: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rendezvous::tests::child", "--ignored", "--nocapture", "--test-threads=1"])
            .env("CONTROL_ROLE", role)
            .env("CONTROL_DIR", town.dir.path())
            .env("CONTROL_ID", id.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process: Running(process), input, lines: BufReader::new(output) }
    }

    /// Waits until the child prints a line that begins with `word`, and returns the rest.
    fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.trim_end().strip_prefix(word) {
                return rest.trim().to_string();
            }
            line.clear();
        }
        panic!("the child ended without {word:?}");
    }

    /// Lets a child continue that waits in [`wait_for_input`].
    fn tell(&mut self) {
        self.input.write_all(b"x").unwrap();
    }

    fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.0.id().cast_signed()).unwrap()
    }

    fn pidfd(&self) -> OwnedFd {
        pidfd_open(self.pid(), PidfdFlags::empty()).unwrap()
    }
}

fn say(word: &str) {
    println!("\n{word}");
    std::io::stdout().flush().unwrap();
}

fn wait_for_input() {
    let _ = std::io::stdin().read(&mut [0; 1]);
}

/// Not a test: the program that [`Process`] runs.
#[test]
#[ignore = "the other tests start it, with a role"]
fn child() {
    let Ok(role) = std::env::var("CONTROL_ROLE") else { return };
    let dir = RuntimeDir::new(std::env::var("CONTROL_DIR").unwrap()).unwrap();
    let group = GroupName::new("g").unwrap();
    let id = std::env::var("CONTROL_ID").unwrap().parse::<u64>().unwrap();
    let open = || ControlSocket::open(&dir, &group, MemberId(id)).unwrap();
    match role.as_str() {
        "find" => {
            say("ready");
            wait_for_input();
            let id = (id != 0).then_some(MemberId(id));
            match found_or_find(&dir, &group, id, Instant::now() + BOUND, &AtomicBool::new(false)).unwrap() {
                Role::Founder { control_socket, incarnation } => {
                    say(&format!("founder {incarnation}"));
                    wait_for_input();
                    drop(control_socket);
                }
                Role::Joiner { control_socket, members } => {
                    say(&format!("joiner {}", members.len()));
                    wait_for_input();
                    drop(control_socket);
                }
            }
        }
        "forks" => {
            let _control_socket = open();
            // It reads the input of this process, so that it ends with the test.
            fork(|| {
                let _ = rustix::io::read(std::io::stdin(), &mut [0_u8; 1]);
            });
            say("forked");
            wait_for_input();
        }
        "sit" => {
            let _control_socket = open();
            say("sits");
            wait_for_input();
        }
        "send" => {
            let control_socket = open();
            let (own, fds) = memory(control_socket.id());
            let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            assert_eq!(
                control_socket.send(MemberId(1), &parts(control_socket.id(), 7), &fds).unwrap(),
                SendOutcome::Done
            );
            say("sent");
            wait_for_input();
            store(&own, 99);
            say("stored");
            wait_for_input();
        }
        "lock" => {
            let _lock = GroupFiles::new(&dir, &group).lock(Instant::now() + BOUND, &AtomicBool::new(false)).unwrap();
            say("locked");
            wait_for_input();
        }
        "live" => creating::live(&dir, &group),
        "garbage" => messages::garbage_with_descriptors(&dir, &group),
        "poor" => messages::poor(&mut open()),
        role => match role.strip_prefix("exchange ") {
            Some(many) => exchanging::exchange_as_child(&mut open(), many.parse().unwrap()),
            None => panic!("no such role: {role}"),
        },
    }
}

/// Removes all files, as a logout or another program may.
fn remove_all(town: &Town) {
    std::fs::remove_dir_all(town.dir.path()).unwrap();
}
