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

/// The limit of every wait of a test that works; a test that hangs fails after it.
const BOUND: Duration = Duration::from_secs(60);
const REGION: u64 = 4096;

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

fn again(control_socket: &ControlSocket) -> Standing {
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
            assert_eq!(control_socket.send(MemberId(1), &parts(control_socket.id(), 7), &fds).unwrap(), Delivery::Done);
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
        "live" => live(&dir, &group),
        "garbage" => garbage_with_descriptors(&dir, &group),
        "poor" => poor(&mut open()),
        role => match role.strip_prefix("exchange ") {
            Some(many) => exchange_as_child(&mut open(), many.parse().unwrap()),
            None => panic!("no such role: {role}"),
        },
    }
}

/// The group of a name is never created twice at the same time, whatever the timing.
#[test]
fn one_of_many_that_start_at_once_creates_the_group() {
    for _ in 0..20 {
        let town = Arc::new(Town::new());
        let barrier = Arc::new(Barrier::new(8));
        let start = |_| {
            let (town, barrier) = (Arc::clone(&town), Arc::clone(&barrier));
            spawn(move || {
                barrier.wait();
                town.find(None)
            })
        };
        let threads: Vec<_> = (0..8).map(start).collect();
        let roles: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut ids = Vec::new();
        let mut founders = Vec::new();
        for role in &roles {
            match role {
                Role::Founder { control_socket, .. } => {
                    founders.push(control_socket.id().0);
                    ids.push(control_socket.id().0);
                }
                Role::Joiner { control_socket, members } => {
                    assert_eq!(members.len(), 1);
                    ids.push(control_socket.id().0);
                }
            }
        }
        ids.sort_unstable();
        assert_eq!(ids, (1..=8).collect::<Vec<_>>());
        assert_eq!(founders.len(), 1);
        assert_eq!((town.members(), town.present()), (founders, ids));
        drop(roles);
        assert!(town.files().is_empty());
    }
}

#[test]
fn one_of_two_processes_that_start_at_once_creates_the_group() {
    for _ in 0..5 {
        let town = Town::new();
        let mut processes = [0, 0].map(|id| Process::start(&town, "find", id));
        processes.iter_mut().for_each(|process| drop(process.says("ready")));
        processes.iter_mut().for_each(Process::tell);
        let mut created = 0;
        for process in &mut processes {
            let mut line = String::new();
            while !line.starts_with("founder") && !line.starts_with("joiner") {
                line.clear();
                assert_ne!(process.lines.read_line(&mut line).unwrap(), 0);
            }
            created += u32::from(line.starts_with("founder"));
        }
        assert_eq!(created, 1);
    }
}

/// Prints how long the last of them waits.
#[test]
fn a_hundred_that_start_at_once_all_find_the_group() {
    raise_fd_limit();
    let town = Arc::new(Town::new());
    let barrier = Arc::new(Barrier::new(100));
    let start = |_| {
        let (town, barrier) = (Arc::clone(&town), Arc::clone(&barrier));
        spawn(move || {
            barrier.wait();
            let start = Instant::now();
            (town.find(None), start.elapsed())
        })
    };
    let threads: Vec<_> = (0..100).map(start).collect();
    let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut took: Vec<_> = found.iter().map(|(_, took)| *took).collect();
    took.sort_unstable();
    println!("of 100 one created the group in {:?} in the median, {:?} at most", took[50], took[99]);
    assert_eq!(town.present(), (1..=100).collect::<Vec<_>>());
    assert_eq!(town.members().len(), 1);
}

/// Not all members are asked whether they live.
#[test]
fn a_process_finds_a_group_of_many_members() {
    let town = Town::new();
    let Role::Founder { control_socket, incarnation } = town.find(None) else { panic!("no member lives") };
    let mut control_sockets = vec![control_socket];
    for id in 2..=CENSUS_MAX as u64 + 2 {
        let (control_socket, members) = town.join(id);
        assert!(control_socket.enter(incarnation).unwrap());
        assert_eq!(members.len() as u64, id - 1);
        control_sockets.push(control_socket);
    }
    let all: Vec<MemberId> = control_sockets.iter().map(ControlSocket::id).collect();
    let Role::Joiner { control_socket, members } = town.find(None) else { panic!("members live") };
    assert_eq!((control_socket.id().0, members), (all.len() as u64 + 1, all.clone()));
    assert_eq!(ControlSocket::known_members(&town.dir, &town.group).unwrap(), all);
    drop(control_sockets);
    assert_eq!(ControlSocket::known_members(&town.dir, &town.group).unwrap(), []);
    assert!(matches!(again(&control_socket), Standing::Founder { .. }));
}

#[test]
fn a_group_lives_on_without_its_founder() {
    let town = Town::new();
    let mut founder = Process::start(&town, "find", 1);
    founder.tell();
    let incarnation: u128 = founder.says("founder").parse().unwrap();
    let (second, members) = town.join(2);
    assert_eq!(members, [1]);
    assert!(second.enter(incarnation).unwrap());
    assert!(second.enter(incarnation).unwrap(), "entering twice is entering once");
    assert_eq!(town.members(), [1, 2]);
    founder.kill();
    let (third, members) = town.join(3);
    assert_eq!((members, town.members()), (vec![2], vec![2]));
    assert_eq!(again(&third), Standing::Joiner { members: vec![MemberId(2)] });
    // The member may be the last one, and come back as another.
    second.leave();
    assert_eq!((town.members(), town.present()), (vec![], vec![2, 3]));
    let Standing::Founder { incarnation: other } = again(&third) else { panic!("no member is left") };
    assert_ne!(other, incarnation);
    assert_eq!(town.join(4).1, [3]);
}

/// The members of a group that spans hosts die, and the group is created again on another host.
#[test]
fn a_group_that_spans_hosts_is_entered_anew_where_no_member_of_the_last_one_lives() {
    let town = Town::new();
    let (old, incarnation) = town.create(1);
    let (first, _) = town.join(2);
    let (second, _) = town.join(3);
    let other = incarnation ^ 1;
    assert!(!first.enter_afar(other).unwrap(), "a member of the last one lives");
    drop(old);
    assert!(!first.enter(other).unwrap(), "a group of this host is created here");
    assert!(first.enter_afar(other).unwrap());
    assert!(second.enter_afar(other).unwrap());
    assert!(!second.enter_afar(incarnation).unwrap());
    assert_eq!(town.members(), [2, 3]);
}

/// A joiner that was decided to be a member, but has not read that when all others die and another
/// group is created.
#[test]
fn a_joiner_that_reads_its_admission_too_late_stays_out() {
    let town = Town::new();
    let (founder, incarnation) = town.create(1);
    let (late, _) = town.join(2);
    let (other, _) = town.join(3);
    drop(founder);
    assert!(matches!(again(&other), Standing::Founder { .. }));
    assert!(!late.enter(incarnation).unwrap());
    assert_eq!(town.members(), [3]);
    // If it had been in time, no process could have created another.
    let town = Town::new();
    let (founder, incarnation) = town.create(1);
    let (late, _) = town.join(2);
    drop(founder);
    assert!(late.enter(incarnation).unwrap());
    assert_eq!(town.join(3).1, [2]);
}

#[test]
fn a_group_survives_that_its_lock_file_is_removed() {
    let town = Town::new();
    let (_founder, incarnation) = town.create(1);
    std::fs::remove_file(town.dir.path().join("g.lock")).unwrap();
    let (second, members) = town.join(2);
    assert_eq!(members, [1]);
    assert!(second.enter(incarnation).unwrap());
    let (third, _) = town.join(3);
    assert!(!third.enter(incarnation + 1).unwrap());
    assert!(third.enter(incarnation).unwrap());
    assert_eq!(town.members(), [1, 2, 3]);
}

/// Removes all files, as a logout or another program may.
fn remove_all(town: &Town) {
    std::fs::remove_dir_all(town.dir.path()).unwrap();
}

#[test]
fn processes_that_know_each_other_stay_connected_when_the_directory_is_gone() {
    let town = Town::new();
    let ((mut first, incarnation), (second, _)) = (town.create(1), town.join(2));
    assert!(second.enter(incarnation).unwrap());
    assert_eq!(second.send(MemberId(1), &status(2, 1), &[]).unwrap(), Delivery::Done);
    remove_all(&town);
    assert!(second.reaches(MemberId(1)).unwrap() && !first.reaches(MemberId(2)).unwrap());
    assert_eq!(second.send(MemberId(1), &status(2, 2), &[]).unwrap(), Delivery::Done);
    assert_eq!(first.send(MemberId(2), &status(1, 1), &[]).unwrap(), Delivery::Gone, "it has never written there");
    assert_eq!([next(&mut first).0, next(&mut first).0], [status(2, 1), status(2, 2)]);
    // Control messages to the old socket and to the new one both arrive.
    assert!(first.restore().unwrap() && !first.restore().unwrap());
    assert_eq!(second.send(MemberId(1), &status(2, 3), &[]).unwrap(), Delivery::Done);
    let client = ControlSocket::client(&town.dir, &town.group).unwrap();
    let asks = status(client.id().0, 4);
    assert_eq!(client.send(MemberId(1), &asks, &[]).unwrap(), Delivery::Done);
    assert_eq!([next(&mut first).0, next(&mut first).0], [status(2, 3), asks]);
}

#[test]
fn no_second_group_is_created_when_the_directory_is_gone() {
    let town = Town::new();
    let ((mut first, incarnation), (mut second, _)) = (town.create(1), town.join(2));
    assert!(second.enter(incarnation).unwrap());
    for renamed in [false, true] {
        match renamed {
            false => remove_all(&town),
            true => std::fs::rename(town.dir.path(), town.dir.path().with_extension("old")).unwrap(),
        }
        // As another process would.
        let fresh = Town { _temp: None, dir: RuntimeDir::new(town.dir.path()).unwrap(), group: town.group.clone() };
        let id = 3 + u64::from(renamed);
        let (third, members) = fresh.join(id);
        assert_eq!(members, [1, 2], "they live, whatever the directory says");
        let taken = ControlSocket::open(&fresh.dir, &fresh.group, MemberId(2)).unwrap_err();
        assert!(matches!(taken, RendezvousError::IdInUse { id: MemberId(2), .. }), "{taken}");
        assert!(first.restore().unwrap() && second.restore().unwrap());
        assert_eq!((fresh.present(), fresh.members()), (vec![1, 2, id], vec![1, 2]));
        assert!(!third.enter(incarnation ^ 1).unwrap(), "it is the same group");
        assert!(third.enter(incarnation).unwrap());
    }
    let _ = std::fs::remove_dir_all(town.dir.path().with_extension("old"));
    // The group ends with its members.
    drop((first, second));
    remove_all(&town);
    town.create(1);
}

/// One file, not the directory.
#[test]
fn a_socket_that_was_removed_is_made_again() {
    let town = Town::new();
    let (mut mine, _) = town.create(1);
    let remove = |name| std::fs::remove_file(town.dir.path().join(name)).unwrap();
    remove("g.1.sock");
    assert_eq!(town.join(2).1, [1], "its mark is there");
    assert!(!mine.restore().unwrap(), "the same socket has its name again");
    assert_eq!((town.present(), town.files()), (vec![1], vec!["g.1.live".into(), "g.1.sock".into()]));
    remove("g.1.live");
    assert_eq!(town.join(2).1, [1], "the kernel knows it");
    mine.restore().unwrap();
    assert_eq!(town.files(), ["g.1.live", "g.1.sock"]);
    // Another program has its address meanwhile, and keeps it.
    let mut waits = town.join(2).0;
    remove("g.2.sock");
    let refused = ControlSocket::open(&town.dir, &town.group, MemberId(2)).unwrap_err();
    assert!(matches!(refused, RendezvousError::IdInUse { .. }), "{refused}");
    let _other = elsewhere(&town, 2);
    assert!(matches!(waits.restore(), Err(RendezvousError::IdInUse { id: MemberId(2), .. })));
    drop(waits);
    assert_eq!(town.present(), [1, 2]);
}

/// Creates a foreign socket that has the address of a process.
fn elsewhere(town: &Town, id: u64) -> OwnedFd {
    let socket = new_socket().unwrap();
    bind(&socket, &SocketAddrUnix::new(&*town.place().address(MemberId(id)).unwrap()).unwrap()).unwrap();
    socket
}

#[test]
fn ids_of_those_who_live_are_not_given_out_again_when_the_directory_is_gone() {
    let town = Town::new();
    let mut group: Vec<Role> = (0..3).map(|_| town.find(None)).collect();
    let Role::Founder { incarnation, .. } = group[0] else { panic!("the first one") };
    let Role::Joiner { control_socket: third, .. } = group.remove(2) else { panic!("the third") };
    assert!(third.enter(incarnation).unwrap());
    remove_all(&town);
    let Role::Joiner { control_socket: fourth, members } = town.find(None) else { panic!("they live") };
    assert_eq!((fourth.id(), members), (MemberId(4), vec![MemberId(1), MemberId(3)]));
}

/// A file must not remain for each name that a group ever had.
#[test]
fn the_last_to_go_leaves_nothing_behind() {
    let town = Town::new();
    let all = || std::fs::read_dir(town.dir.path()).unwrap().count();
    let ((first, _), (second, _)) = (town.create(1), town.join(2));
    drop(first);
    assert_eq!(all(), 2, "a lock, and the address of who is left");
    drop(second);
    assert_eq!(all(), 0);
    let client = ControlSocket::client(&town.dir, &town.group).unwrap();
    drop(client);
    assert_eq!(all(), 0);
    // No process makes a directory again only to remove its files.
    let (last, _) = town.create(1);
    remove_all(&town);
    drop(last);
    assert!(!town.dir.path().exists());
}

#[test]
fn the_watch_notices_that_an_address_is_gone() {
    let town = Town::new();
    let (mut mine, _) = town.create(1);
    let (tell, notices) = channel();
    let watch = Watch::spawn(&mine, || (), move |notice| tell.send(notice).unwrap()).unwrap();
    remove_all(&town);
    assert_eq!(notices.recv_timeout(BOUND), Ok(Notice::Displaced));
    assert!(mine.restore().unwrap());
    watch.renew(&mine).unwrap();
    let other = town.join(2).0;
    assert_eq!(other.send(MemberId(1), &status(2, 1), &[]).unwrap(), Delivery::Done);
    let heard = std::iter::repeat_with(|| notices.recv_timeout(BOUND).unwrap());
    assert!(heard.into_iter().any(|notice| notice == Notice::Messages));
    assert_eq!(next(&mut mine).0, status(2, 1));
}

#[test]
fn a_child_gives_nothing_up_and_holds_nothing_on() {
    let town = Town::new();
    let (control_socket, _) = town.create(1);
    let watch = Watch::spawn(&control_socket, || (), |_| {}).unwrap();
    let mut both = Some((watch, control_socket));
    assert_eq!(forked(|| drop(both.take())), Some(DONE));
    assert_eq!((town.present(), town.members()), (vec![1], vec![1]));
    // A member that is killed while a child of it lives on.
    let mut parent = Process::start(&town, "forks", 2);
    parent.says("forked");
    assert_eq!(town.present(), [1, 2]);
    parent.kill();
    // A child that is being started by another test may hold a copy for a moment.
    let until = Instant::now() + BOUND;
    while town.present() != [1] {
        assert!(Instant::now() < until, "{:?}", town.present());
        std::thread::yield_now();
    }
    drop(town.open(2));
}

/// Does what systemd's remover of old files does before it looks into a directory.
#[test]
fn cleaners_are_kept_out_while_an_address_exists() {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
    let town = Town::new();
    let control_sockets = [town.open(1), town.open(2)];
    let dir = open(town.dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    assert_eq!(flock(&dir, FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::WOULDBLOCK));
    drop(control_sockets);
    let until = Instant::now() + BOUND;
    // A child that is being started by another test may hold a copy for a moment.
    while flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
}

/// Runs a process that enters the group as the library would, or creates it once no member can
/// admit it, and that admits others.
fn live(dir: &RuntimeDir, group: &GroupName) {
    let town = Town { _temp: None, dir: dir.clone(), group: group.clone() };
    let (mut control_socket, mut member) = match town.find(None) {
        Role::Founder { control_socket, incarnation } => (control_socket, Some(incarnation)),
        Role::Joiner { control_socket, .. } => (control_socket, None),
    };
    member.iter().for_each(|incarnation| say(&format!("member {incarnation}")));
    let (me, pid) = (control_socket.id(), std::process::id());
    let (address, rack, seeds) = (None, None, None);
    let ask = ControlMessage::Ask {
        from: me,
        pid,
        birth: Birth::default(),
        nonce: 5,
        config: 1,
        members: 1,
        observer: false,
        follows: ViewId(0),
        address,
        rack,
        seeds,
    };
    let view = enclose(b"a view").unwrap();
    let stdin = std::io::stdin();
    while !readable(&stdin, Duration::ZERO) {
        // The directory may be removed meanwhile.
        if let Err(taken @ RendezvousError::IdInUse { .. }) = control_socket.restore() {
            panic!("{taken}");
        }
        while let Some((message, _)) = control_socket.receive() {
            let now = match (message, member) {
                (ControlMessage::Ask { from, .. }, Some(incarnation)) => {
                    let message = ControlMessage::View { incarnation, view: ViewId(2), from: me, bytes: 6 };
                    let _ = control_socket.send(from, &message, &[view.as_fd()]).unwrap();
                    continue;
                }
                (ControlMessage::View { incarnation, .. }, None) => {
                    control_socket.enter(incarnation).unwrap().then_some(incarnation)
                }
                _ => continue,
            };
            member = now;
            member.iter().for_each(|incarnation| say(&format!("member {incarnation}")));
        }
        if member.is_none() {
            match again(&control_socket) {
                Standing::Founder { incarnation } => {
                    member = Some(incarnation);
                    say(&format!("member {incarnation}"));
                }
                Standing::Joiner { members } => {
                    let _ = control_socket.send(members[0], &ask, &[]).unwrap();
                }
            }
        }
        if readable(&control_socket, Duration::from_millis(2)) {
            // Some are slow to read that they were admitted.
            std::thread::sleep(Duration::from_millis(u64::from(pid % 3) * 4));
        }
    }
}

/// Processes come and are killed at any moment. Two live processes are never members of different
/// groups.
#[test]
fn any_single_death_leaves_one_group_of_a_name() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    println!("replay: SEED={seed} cargo test -p spindle-fabric whoever_dies_when");
    let mut state = seed | 1;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let town = Town::new();
    let (tell, said) = channel();
    let mut living: BTreeMap<u32, (Running, ChildStdin, Option<u128>)> = BTreeMap::new();
    let mut groups = BTreeSet::new();
    let mut entered = 0;
    for _ in 0..120 {
        while living.len() < 6 {
            let Process { process, input, lines } = Process::start(&town, "live", 0);
            let (pid, tell) = (process.0.id(), tell.clone());
            living.insert(pid, (process, input, None));
            spawn(move || {
                for line in lines.lines().map_while(Result::ok) {
                    if let Some(incarnation) = line.strip_prefix("member ") {
                        let _ = tell.send((pid, incarnation.parse::<u128>().unwrap()));
                    }
                }
            });
        }
        let pause = [0, 0, 1, 2, 5, 20][random(6)];
        let until = Instant::now() + Duration::from_millis(pause);
        while let Ok((pid, incarnation)) = said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            // It may have been killed since.
            let Some((_, _, member)) = living.get_mut(&pid) else { continue };
            *member = Some(incarnation);
            entered += 1;
            groups.insert(incarnation);
            let others: BTreeSet<_> = living.values().filter_map(|(_, _, member)| *member).collect();
            assert_eq!(others.len(), 1, "groups that live at the same time: {others:?}");
        }
        // With all its contents, at any moment.
        if random(4) == 0 {
            let _ = std::fs::remove_dir_all(town.dir.path());
        }
        // Sometimes all members, so that the others have to create another group.
        let all = random(4) == 0;
        let one = random(living.len());
        let pids: Vec<_> = living.iter().map(|(pid, (_, _, member))| (*pid, member.is_some())).collect();
        for (i, (pid, member)) in pids.into_iter().enumerate() {
            if i == one || (all && member) {
                let killed = living.remove(&pid).map(|(mut process, ..)| process.0.try_wait().unwrap());
                assert_eq!(killed, Some(None), "it has ended by itself");
            }
        }
    }
    println!("{entered} processes became members of {} groups", groups.len());
    assert!(groups.len() > 1 && entered > groups.len());
}

#[test]
fn addresses_of_dead_processes_are_taken_over() {
    let town = Town::new();
    let mut dead = Process::start(&town, "find", 5);
    dead.tell();
    dead.says("founder");
    assert_eq!((town.present(), town.members()), (vec![5], vec![5]));
    dead.kill();
    assert_eq!(town.files(), ["g.5.live", "g.5.sock"]);
    assert_eq!((town.present(), town.members()), (vec![], vec![]));
    let stale = town.open(6);
    assert!(!stale.reaches(MemberId(5)).unwrap());
    assert_eq!(stale.send(MemberId(5), &status(6, 1), &[]).unwrap(), Delivery::Gone);
    let mut mine = town.open(5);
    assert_eq!((town.files(), town.members()), (vec!["g.5.sock".into(), "g.6.sock".into()], vec![]));
    assert_eq!(stale.send(MemberId(5), &status(6, 1), &[]).unwrap(), Delivery::Done);
    assert_eq!(next(&mut mine).0, status(6, 1));
    assert!(stale.reaches(MemberId(5)).unwrap());
    // The process that starts the group removes the files of dead processes.
    let mut dead = Process::start(&town, "sit", 9);
    dead.says("sits");
    dead.kill();
    let (_founder, _) = town.create(1);
    assert_eq!(town.files(), ["g.1.live", "g.1.sock", "g.5.sock", "g.6.sock"]);
}

#[test]
fn an_id_in_use_is_refused_and_its_owner_undisturbed() {
    let town = Town::new();
    let mut owner = town.open(4);
    let refused = ControlSocket::open(&town.dir, &town.group, MemberId(4)).unwrap_err();
    assert!(matches!(&refused, RendezvousError::IdInUse { id: MemberId(4), .. }), "{refused}");
    let mut elsewhere = Process::start(&town, "sit", 7);
    elsewhere.says("sits");
    let wanted =
        found_or_find(&town.dir, &town.group, Some(MemberId(7)), Instant::now() + BOUND, &AtomicBool::new(false));
    assert!(matches!(wanted, Err(RendezvousError::IdInUse { id: MemberId(7), .. })));
    let reserved = ControlSocket::open(&town.dir, &town.group, MemberId(CLIENT_IDS_FROM)).unwrap_err();
    assert!(matches!(reserved, RendezvousError::IdReserved { .. }), "{reserved}");
    assert_eq!(town.present(), [4, 7]);
    let other = town.open(1);
    assert_eq!(other.send(MemberId(4), &status(1, 3), &[]).unwrap(), Delivery::Done);
    assert_eq!(next(&mut owner).0, status(1, 3));
}

#[test]
fn the_smallest_free_ids_are_given_out() {
    let town = Town::new();
    let _others = [2, 3, 70].map(|id| town.open(id));
    let id = |role: &Role| match role {
        Role::Founder { control_socket, .. } | Role::Joiner { control_socket, .. } => control_socket.id().0,
    };
    let first = town.find(None);
    let second = town.find(None);
    assert_eq!((id(&first), id(&second)), (1, 4));
    drop(first);
    assert_eq!(id(&town.find(None)), 1);
}

/// A member that was stopped does not know what happened to the others: an id must not mean another
/// process when it continues.
#[test]
fn an_id_is_given_out_once_in_a_group() {
    let town = Town::new();
    let id = |role: &Role| match role {
        Role::Founder { control_socket, .. } | Role::Joiner { control_socket, .. } => control_socket.id().0,
    };
    let founder = town.find(None);
    let dead = town.find(None);
    assert_eq!((id(&founder), id(&dead)), (1, 2));
    drop(dead);
    let waits = town.find(None);
    assert_eq!(id(&waits), 3);
    // A group that is created again has new ids, except that of a process that waits.
    drop(founder);
    let founder = town.find(None);
    assert!(matches!(founder, Role::Founder { .. }));
    assert_eq!((id(&founder), id(&town.find(None))), (1, 4));
}

#[test]
fn groups_of_other_names_are_other_groups() {
    let town = Town::new();
    let (_control_socket, _) = town.create(1);
    for name in ["g.1", "g.1.sock", "h"] {
        let other = Town { _temp: None, dir: town.dir.clone(), group: GroupName::new(name).unwrap() };
        let (control_socket, _) = other.create(1);
        assert_eq!((other.present(), town.present()), (vec![1], vec![1]));
        drop(control_socket);
    }
    assert_eq!(town.files(), ["g.1.live", "g.1.sock"]);
}

#[test]
fn an_address_with_a_new_owner_is_not_removed() {
    let town = Town::new();
    let control_socket = town.open(1);
    let path = town.place().address(MemberId(1)).unwrap();
    std::fs::remove_file(&*path).unwrap();
    let _other = elsewhere(&town, 1);
    drop(control_socket);
    assert_eq!(town.present(), [1]);
}

#[test]
fn a_lock_that_is_kept_is_named_and_ends_with_its_process() {
    let town = Town::new();
    let mut keeper = Process::start(&town, "lock", 0);
    keeper.says("locked");
    let cancelled = AtomicBool::new(false);
    let find = |wait| found_or_find(&town.dir, &town.group, None, Instant::now() + wait, &cancelled);
    let refused = find(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(&refused, RendezvousError::Locked { path, .. } if path.ends_with("g.lock")), "{refused}");
    cancelled.store(true, Ordering::Relaxed);
    assert!(matches!(find(BOUND), Err(RendezvousError::Cancelled)));
    cancelled.store(false, Ordering::Relaxed);
    keeper.kill();
    assert!(matches!(find(BOUND), Ok(Role::Founder { .. })));
}

#[test]
fn a_directory_that_others_can_enter_holds_no_control_socket() {
    use std::os::unix::fs::PermissionsExt;
    let temp = TempDir::new();
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(RuntimeDir::new(temp.path()), Err(DirError::Exposed { mode: 0o755, .. })));
}

#[test]
fn clients_are_answered_and_do_not_count() {
    let town = Town::new();
    let client = || ControlSocket::client(&town.dir, &town.group).unwrap();
    let (mut client, other) = (client(), client());
    assert_eq!((client.id().0, other.id().0), (CLIENT_IDS_FROM, CLIENT_IDS_FROM + 1));
    assert!(town.present().is_empty());
    let (mut member, _) = town.create(1);
    let ask = ControlMessage::Request { from: client.id(), reply: 77, what: Request::Evict(MemberId(3)) };
    assert_eq!(client.send(MemberId(1), &ask, &[]).unwrap(), Delivery::Done);
    let (ControlMessage::Request { from, reply, .. }, _) = next(&mut member) else { panic!("another control message") };
    let text = br#"{"members":1}"#;
    let enclosed = enclose(text).unwrap();
    let answer = ControlMessage::Answer { reply, bytes: text.len() as u64 };
    assert_eq!(member.send(from, &answer, &[enclosed.as_fd()]).unwrap(), Delivery::Done);
    let (ControlMessage::Answer { reply: 77, bytes }, fds) = next(&mut client) else {
        panic!("another control message")
    };
    assert_eq!(disclose(&fds[0], bytes, 1 << 20).unwrap(), text);
}

/// The system's queue may be as short as ten control messages.
#[test]
fn a_full_control_socket_is_told_and_takes_more_once_it_was_read() {
    let town = Town::new();
    let (mine, mut theirs) = (town.open(1), town.open(2));
    let mut sent = 0;
    while mine.send(MemberId(2), &status(1, sent), &[]).unwrap() == Delivery::Done {
        sent += 1;
        assert!(sent < 1_000_000);
    }
    println!("a control socket takes {sent} control messages");
    assert!(sent >= 2);
    assert_eq!(mine.send(MemberId(2), &status(1, sent), &[]).unwrap(), Delivery::Full);
    for reply in 0..sent {
        assert_eq!(next(&mut theirs).0, status(1, reply));
    }
    assert!(theirs.receive().is_none());
    assert_eq!(mine.send(MemberId(2), &status(1, sent), &[]).unwrap(), Delivery::Done);
    assert_eq!(next(&mut theirs).0, status(1, sent));
}

/// A process that reads no control messages delays no other one's.
#[test]
fn an_outbox_keeps_order_and_waits_for_no_receiver() {
    let town = Town::new();
    let (mine, _stuck, mut reader) = (town.open(1), town.open(2), town.open(3));
    let mut outbox = Outbox::new();
    assert_eq!(outbox.patience(), None);
    for reply in 0..2_000 {
        for to in [2, 3, 4] {
            outbox.push(MemberId(to), status(1, reply), &[]).unwrap();
        }
    }
    let full = (2_000..).find_map(|reply| outbox.push(MemberId(2), status(1, reply), &[]).err());
    assert!(matches!(full, Some(RendezvousError::OutboxFull { max }) if max == outbox.len() as u64));
    // It reads while control messages are sent, so that its queue may have room again in the middle
    // of a flush.
    let reads = spawn(move || (0..2_000).for_each(|reply| assert_eq!(next(&mut reader).0, status(1, reply))));
    let until = Instant::now() + BOUND;
    let mut gone = outbox.flush(&mine).unwrap();
    assert_eq!(gone.pop_last(), Some(MemberId(4)));
    // Its control messages are kept, but are few.
    assert!(outbox.holds_for(MemberId(4)));
    assert!(outbox.addressees().filter(|id| *id == MemberId(4)).count() <= UNREACHED_CONTROL_MESSAGES_MAX);
    outbox.forget(MemberId(4));
    while !reads.is_finished() {
        assert!(Instant::now() < until);
        assert!(outbox.flush(&mine).unwrap().is_empty());
    }
    reads.join().unwrap();
    assert!(outbox.patience().is_some());
    outbox.forget(MemberId(2));
    outbox.forget(MemberId(3));
    assert!(outbox.is_empty());
}

#[test]
fn descriptors_arrive_and_memory_is_the_senders() {
    let town = Town::new();
    let mut mine = town.open(1);
    let mut sender = Process::start(&town, "send", 2);
    sender.says("sent");
    let (message, fds) = next(&mut mine);
    let pid = sender.process.0.id();
    let expected = ControlMessage::RowDescriptors {
        incarnation: 1,
        view: ViewId(7),
        from: MemberId(2),
        pid,
        birth: Birth::default(),
        at: 0,
        bytes: REGION,
        event: false,
        address: None,
        rack: None,
    };
    assert_eq!((message, fds.len()), (expected, 4));
    for fd in &fds {
        assert_eq!(rustix::io::fcntl_getfd(fd), Ok(rustix::io::FdFlags::CLOEXEC));
    }
    let row = &fds[0];
    assert_eq!(load(row), 2);
    sender.tell();
    sender.says("stored");
    assert_eq!(load(row), 99);
    rustix::io::write(&fds[1], &1_u64.to_ne_bytes()).unwrap();
    assert!(!readable(&fds[2], Duration::ZERO));
    sender.kill();
    assert!(readable(&fds[2], BOUND));
    assert_eq!(load(row), 99, "the memory outlives its owner here");
}

#[test]
fn a_message_outlives_its_sender() {
    let town = Town::new();
    let mut mine = town.open(1);
    let mut sender = Process::start(&town, "send", 2);
    sender.says("sent");
    sender.kill();
    let (message, fds) = next(&mut mine);
    assert!(matches!(message, ControlMessage::RowDescriptors { from: MemberId(2), .. }));
    assert_eq!(load(&fds[0]), 2);
    assert!(readable(&fds[2], BOUND));
}

#[test]
fn foreign_datagrams_are_dropped_and_counted() {
    let town = Town::new();
    let (mut mine, theirs) = (town.open(1), town.open(2));
    let stranger = new_socket().unwrap();
    let elsewhere = new_socket().unwrap();
    bind(&elsewhere, &SocketAddrUnix::new(town.dir.path().join("h.2.sock")).unwrap()).unwrap();
    let message = status(2, 5).encode();
    let garbage: [&[u8]; 4] = [b"", b"GET / HTTP/1.1\r\n\r\n", &message[..20], &[b'x'; 60_000]];
    let (pipe, other_end) = rustix::pipe::pipe().unwrap();
    let mut expected = Dropped::default();
    for bytes in garbage {
        for from in [&stranger, &elsewhere, &theirs.as_fd().try_clone_to_owned().unwrap()] {
            assert!(throw(from, &mine, &town, bytes, &[other_end.as_fd(); 3]));
            assert!(mine.receive().is_none());
            expected.garbage += 1;
            assert_eq!(mine.dropped(), expected);
        }
    }
    // A valid control message, but of a foreign sender, or of another than it says.
    for (from, bytes) in [(&stranger, &message), (&elsewhere, &message)] {
        assert!(throw(from, &mine, &town, bytes, &[]));
        assert!(mine.receive().is_none());
        expected.forged += 1;
    }
    let theirs_fd = theirs.as_fd().try_clone_to_owned().unwrap();
    assert!(throw(&theirs_fd, &mine, &town, &status(3, 5).encode(), &[]));
    assert!(mine.receive().is_none());
    expected.forged += 1;
    assert_eq!(mine.dropped(), expected);
    // The wrong descriptors: too many, too few, or none of a process.
    for (bytes, count) in [(&message, 1), (&message, 253), (&parts(MemberId(2), 1).encode(), 2)] {
        assert!(throw(&theirs_fd, &mine, &town, bytes, &vec![other_end.as_fd(); count]));
        assert!(mine.receive().is_none());
        expected.garbage += 1;
        assert_eq!(mine.dropped(), expected);
    }
    assert!(throw(&theirs_fd, &mine, &town, &parts(MemberId(2), 1).encode(), &[other_end.as_fd(); 3]));
    assert!(mine.receive().is_none());
    expected.garbage += 1;
    assert_eq!(mine.dropped(), expected);
    // All were closed again, so the pipe hangs up.
    drop(other_end);
    assert!(readable(&pipe, BOUND));
    assert_eq!(rustix::io::read(&pipe, &mut [0; 1]), Ok(0));
    // Garbage before a control message does it no harm.
    assert!(throw(&stranger, &mine, &town, b"?", &[]));
    assert_eq!(theirs.send(MemberId(1), &status(2, 6), &[]).unwrap(), Delivery::Done);
    assert_eq!(mine.receive().unwrap().0, status(2, 6));
}

#[test]
fn versions_tell_each_other_that_they_differ() {
    let town = Town::new();
    let (mut mine, mut other) = (town.open(1), town.open(2));
    let other_fd = other.as_fd().try_clone_to_owned().unwrap();
    let (address, rack, seeds) = (None, None, None);
    let ask = ControlMessage::Ask {
        from: MemberId(2),
        pid: 1,
        birth: Birth::default(),
        nonce: 5,
        config: 1,
        members: 1,
        observer: false,
        follows: ViewId(0),
        address,
        rack,
        seeds,
    };
    for (asked, message) in [&ask, &status(2, 1)].into_iter().enumerate() {
        // A control message of that version may have any bytes after its header.
        assert!(throw(&other_fd, &mine, &town, &message.encode_as(VERSION + 1)[..21], &[]));
        assert!(mine.receive().is_none());
        assert_eq!(mine.dropped(), Dropped { foreign: asked as u64 + 1, ..Dropped::default() });
        assert_eq!(next(&mut other).0, ControlMessage::Refused { why: Refusal::Version(VERSION) });
    }
    // The same in the other direction, without further answers.
    let refused = ControlMessage::Refused { why: Refusal::Version(VERSION + 1) };
    assert!(throw(&other_fd, &mine, &town, &refused.encode_as(VERSION + 1), &[]));
    assert_eq!(mine.receive().unwrap().0, refused);
    assert!(throw(&other_fd, &mine, &town, &parts(MemberId(2), 1).encode_as(VERSION + 1), &[]));
    assert!(mine.receive().is_none());
    assert!(other.receive().is_none());
}

/// In a process of its own: other tests open descriptors meanwhile.
#[test]
fn garbage_with_descriptors_leaks_none() {
    let town = Town::new();
    Process::start(&town, "garbage", 0).says("no more than before");
}

fn garbage_with_descriptors(dir: &RuntimeDir, group: &GroupName) {
    let town = Town { _temp: None, dir: dir.clone(), group: group.clone() };
    let (mut mine, theirs) = (town.open(1), town.open(2));
    let (stranger, theirs) = (new_socket().unwrap(), theirs.as_fd().try_clone_to_owned().unwrap());
    let mut seed = 0x5eed_u64;
    let before = open_fds();
    for i in 0..1_000_usize {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut bytes = parts(MemberId(2), 1).encode();
        let at = (seed >> 33) as usize % bytes.len();
        bytes[at] ^= 1 << (seed % 8);
        let from = if i % 2 == 0 { &stranger } else { &theirs };
        let count = [1, 2, 3, 4, 253][i % 5];
        let fds = vec![stranger.as_fd(); count];
        assert!(throw(from, &mine, &town, &bytes, &fds));
        assert!(mine.receive().is_none());
    }
    let Dropped { garbage, forged, foreign } = mine.dropped();
    assert_eq!(garbage + forged + foreign, 1_000);
    assert_eq!(open_fds(), before);
    say("no more than before");
}

#[test]
fn a_process_without_descriptors_loses_nothing() {
    let town = Town::new();
    let mine = town.open(1);
    let mut process = Process::start(&town, "poor", 2);
    process.says("full");
    let (_own, fds) = memory(MemberId(1));
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    assert_eq!(mine.send(MemberId(2), &parts(MemberId(1), 1), &fds).unwrap(), Delivery::Done);
    process.tell();
    process.says("starved");
    assert_eq!(mine.send(MemberId(2), &parts(MemberId(1), 2), &fds).unwrap(), Delivery::Done);
    process.tell();
    process.says("received both");
}

/// Runs a member that has room for no descriptor, for one, and so on, up to the four that it needs.
fn poor(control_socket: &mut ControlSocket) {
    let mut hoard = Vec::new();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(open_fds() as u64 + 8), ..limit }).unwrap();
    while let Ok(fd) = eventfd(0, EventfdFlags::CLOEXEC) {
        hoard.push(fd);
    }
    assert!(control_socket.reaches(MemberId(1)).unwrap() && !control_socket.reaches(MemberId(7)).unwrap());
    hoard.pop();
    say("full");
    wait_for_input();
    for room in 1..4 {
        for _ in 0..100 {
            assert!(control_socket.receive().is_none());
            assert!(control_socket.is_starved() && !control_socket.is_drained());
        }
        // The descriptors that it took of the four were closed again.
        let room_left = (0..).map_while(|_| eventfd(0, EventfdFlags::CLOEXEC).ok()).collect::<Vec<_>>().len();
        assert_eq!(room_left, room);
        hoard.pop();
    }
    say("starved");
    wait_for_input();
    for view in [1, 2] {
        let (message, fds) = next(control_socket);
        assert!(matches!(message, ControlMessage::RowDescriptors { view: ViewId(got), .. } if got == view));
        assert_eq!((fds.len(), control_socket.is_starved()), (4, false));
    }
    assert_eq!(control_socket.dropped(), Dropped::default());
    assert!(!control_socket.is_drained() && control_socket.receive().is_none() && control_socket.is_drained());
    say("received both");
}

/// Creates a watch whose notices can be waited for.
fn watch(control_socket: &ControlSocket) -> (Watch, Receiver<Notice>) {
    let (tell, notices) = channel();
    (Watch::spawn(control_socket, || (), move |notice| tell.send(notice).unwrap()).unwrap(), notices)
}

/// Waits for the next death, and returns the watch that it belongs to.
fn next_death(notices: &Receiver<Notice>) -> (u64, u64) {
    match notices.recv_timeout(BOUND) {
        Ok(Notice::Death { token, serial }) => (token, serial),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_death_is_reported_once() {
    let town = Town::new();
    let control_socket = town.open(1);
    let mut processes = [2, 3, 4].map(|id| Process::start(&town, "sit", id));
    processes.iter_mut().for_each(|process| drop(process.says("sits")));
    let (watch, notices) = watch(&control_socket);
    let [second, third, fourth] = &mut processes;
    watch.watch(2, second.pidfd()).unwrap();
    let serials = [3, 30].map(|token| (token, watch.watch(token, third.pidfd()).unwrap()));
    watch.watch(4, fourth.pidfd()).unwrap();
    third.kill();
    let mut dead = [next_death(&notices), next_death(&notices)];
    dead.sort();
    assert_eq!(dead, serials);
    assert!(!watch.unwatch(3));
    // The death of a process that is not watched any more, or not under this token, is not
    // reported.
    assert!(watch.unwatch(2));
    let serial = watch.watch(4, second.pidfd()).unwrap();
    let dead = fourth.pidfd();
    fourth.kill();
    // The death of a process that is already dead is reported at once.
    watch.watch(5, dead).unwrap();
    assert_eq!(next_death(&notices).0, 5);
    second.kill();
    assert_eq!(next_death(&notices), (4, serial));
    drop(watch);
    assert_eq!(notices.iter().count(), 0);
}

#[test]
fn mail_wakes_the_watch_once_until_it_was_read() {
    let town = Town::new();
    let (mut mine, theirs) = (town.open(1), town.open(2));
    let mut process = Process::start(&town, "sit", 3);
    process.says("sits");
    let (watch, notices) = watch(&mine);
    assert_eq!(theirs.send(MemberId(1), &status(2, 0), &[]).unwrap(), Delivery::Done);
    assert_eq!(notices.recv_timeout(BOUND), Ok(Notice::Messages));
    // More arrives before it is read, and a death overtakes it.
    assert_eq!(theirs.send(MemberId(1), &status(2, 1), &[]).unwrap(), Delivery::Done);
    watch.watch(3, process.pidfd()).unwrap();
    process.kill();
    assert_eq!(next_death(&notices).0, 3);
    assert!(notices.try_recv().is_err());
    // A reader that says that it has read when it has not is notified again, and nothing is ever
    // lost.
    assert_eq!(mine.receive().unwrap().0, status(2, 0));
    watch.messages_read();
    assert_eq!(notices.recv_timeout(BOUND), Ok(Notice::Messages));
    assert_eq!(mine.receive().unwrap().0, status(2, 1));
    assert!(mine.receive().is_none());
    watch.messages_read();
    assert_eq!(theirs.send(MemberId(1), &status(2, 2), &[]).unwrap(), Delivery::Done);
    assert_eq!(notices.recv_timeout(BOUND), Ok(Notice::Messages));
    drop(watch);
    assert_eq!(notices.iter().count(), 0);
}

#[test]
fn a_watch_may_be_dropped_by_its_own_thread() {
    let town = Town::new();
    let (mine, theirs) = (town.open(1), town.open(2));
    let held: Arc<Mutex<Option<Watch>>> = Arc::default();
    let (noticed, notices) = channel();
    let own = Arc::clone(&held);
    let mut before = 0;
    let watch = Watch::spawn(
        &mine,
        || (),
        move |notice| {
            noticed.send(notice).unwrap();
            // The first call waits until there are many more notices; the second drops the watch
            // that has taken all of them.
            let mut own = own.lock().unwrap();
            if before == 1 {
                drop(own.take());
            }
            before += 1;
        },
    );
    let watch = watch.unwrap();
    let mut process = Process::start(&town, "sit", 3);
    process.says("sits");
    let pidfd = process.pidfd();
    process.kill();
    let mut held = held.lock().unwrap();
    assert_eq!(theirs.send(MemberId(1), &status(2, 0), &[]).unwrap(), Delivery::Done);
    assert_eq!(notices.recv_timeout(BOUND), Ok(Notice::Messages));
    for token in 0..10 {
        watch.watch(token, pidfd.try_clone().unwrap()).unwrap();
    }
    *held = Some(watch);
    drop(held);
    next_death(&notices);
    // The channel ends with the thread.
    assert!(matches!(notices.recv_timeout(BOUND), Err(RecvTimeoutError::Disconnected)));
}

#[test]
fn a_thousand_processes_can_be_watched() {
    raise_fd_limit();
    let town = Town::new();
    let control_socket = town.open(1);
    let mut process = Process::start(&town, "sit", 2);
    process.says("sits");
    let pidfd = process.pidfd();
    let (watch, notices) = watch(&control_socket);
    let serials: Vec<_> =
        (0..1_100).map(|token| (token, watch.watch(token, pidfd.try_clone().unwrap()).unwrap())).collect();
    process.kill();
    let mut dead: Vec<_> = (0..1_100).map(|_| next_death(&notices)).collect();
    dead.sort();
    assert_eq!(dead, serials);
}

const MANY: u64 = 64;

/// Gives this member's row descriptors to all others of `many` and gets theirs, as in a view
/// change.
fn exchange(control_socket: &mut ControlSocket, fds: &[Arc<OwnedFd>], many: u64) -> Vec<(MemberId, Vec<OwnedFd>)> {
    let until = Instant::now() + BOUND;
    let mut outbox = Outbox::new();
    // Each begins with its neighbour, so that not all send to the same one at once.
    let others = (0..many - 1).map(|i| MemberId((control_socket.id().0 + i) % many + 1));
    others.for_each(|id| outbox.push(id, parts(control_socket.id(), 2), fds).unwrap());
    let mut got = Vec::new();
    loop {
        assert!(outbox.flush(control_socket).unwrap().is_empty());
        while let Some((message, fds)) = control_socket.receive() {
            let ControlMessage::RowDescriptors { from, view: ViewId(2), .. } = message else { panic!("{message:?}") };
            got.push((from, fds));
        }
        if got.len() as u64 == many - 1 && outbox.is_empty() {
            return got;
        }
        assert!(Instant::now() < until);
        readable(&*control_socket, outbox.patience().unwrap_or(BOUND));
    }
}

fn check(me: MemberId, got: &[(MemberId, Vec<OwnedFd>)], many: u64) {
    let mut ids: Vec<_> = got.iter().map(|(id, _)| id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=many).filter(|id| *id != me.0).collect::<Vec<_>>());
    for (id, fds) in got {
        assert_eq!(load(&fds[0]), id.0);
    }
}

fn exchange_as_child(control_socket: &mut ControlSocket, many: u64) {
    let (_own, fds) = memory(control_socket.id());
    say("ready");
    wait_for_input();
    let start = Instant::now();
    let got = exchange(control_socket, &fds, many);
    say(&format!("done {}", start.elapsed().as_micros()));
    // Not before all are done, so that the measured times are right.
    wait_for_input();
    check(control_socket.id(), &got, many);
    assert_eq!(control_socket.dropped(), Dropped::default());
    say("right");
    wait_for_input();
}

fn processes_trade(many: u64) {
    let town = Town::new();
    let role = format!("exchange {many}");
    let mut processes: Vec<_> = (1..=many).map(|id| Process::start(&town, &role, id)).collect();
    processes.iter_mut().for_each(|process| drop(process.says("ready")));
    let start = Instant::now();
    processes.iter_mut().for_each(Process::tell);
    let mut took: Vec<u64> = processes.iter_mut().map(|process| process.says("done").parse().unwrap()).collect();
    let total = start.elapsed();
    took.sort_unstable();
    println!(
        "{many} processes traded their parts in {total:?}; one took {} us in the median, {} us at most",
        took[took.len() / 2],
        took[took.len() - 1]
    );
    processes.iter_mut().for_each(Process::tell);
    processes.iter_mut().for_each(|process| drop(process.says("right")));
}

#[test]
fn three_and_eight_processes_trade_all_to_all() {
    processes_trade(3);
    processes_trade(8);
}

#[test]
fn sixty_four_processes_trade_all_to_all() {
    processes_trade(MANY);
}

#[test]
fn forty_eight_threads_trade_all_to_all() {
    // With those in transit, they have 20 thousand descriptors when there are 64.
    const THREADS: u64 = 48;
    raise_fd_limit();
    let town = Town::new();
    let control_sockets: Vec<_> = (1..=THREADS).map(|id| town.open(id)).collect();
    let barrier = Arc::new(Barrier::new(THREADS as usize));
    let threads = control_sockets.into_iter().map(|mut control_socket| {
        let barrier = Arc::clone(&barrier);
        spawn(move || {
            let (_own, fds) = memory(control_socket.id());
            barrier.wait();
            let start = Instant::now();
            let got = exchange(&mut control_socket, &fds, THREADS);
            let took = start.elapsed();
            // No address is given up while others may still send to it.
            barrier.wait();
            check(control_socket.id(), &got, THREADS);
            took
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut took: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    took.sort_unstable();
    println!(
        "{THREADS} threads traded their parts; one took {:?} in the median, {:?} at most",
        took[took.len() / 2],
        took[took.len() - 1]
    );
}

/// A stopped process is not gone: its queue fills up, and it reads its control messages when it
/// continues.
#[test]
fn a_stopped_process_is_present_and_gets_its_messages_later() {
    let town = Town::new();
    let mine = town.open(1);
    let mut process = Process::start(&town, "poor", 2);
    process.says("full");
    kill_process(process.pid(), Signal::STOP).unwrap();
    assert_eq!(town.present(), [1, 2]);
    let (_own, fds) = memory(MemberId(1));
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    assert_eq!(mine.send(MemberId(2), &parts(MemberId(1), 1), &fds).unwrap(), Delivery::Done);
    kill_process(process.pid(), Signal::CONT).unwrap();
    process.tell();
    process.says("starved");
}
