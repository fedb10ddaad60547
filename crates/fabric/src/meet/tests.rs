//! Meetings of threads, which share a process but not a connection, and of processes, which can be killed: those are
//! this test binary again, started with a role (see [`child`]).
use super::limits::FDS_PER_MEMBER;
use super::sock::{Door, NoPacket, Packet, Receiver, Sent, reach, send, wait_readable};
use super::wire::{Hello, Message, Refusal};
use super::*;
use crate::mail::tests::TempDir;
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Events, Sender, channel};
use std::thread::{JoinHandle, spawn};

/// Bounds every wait of a test that works; one that hangs fails after it.
const BOUND: Duration = Duration::from_secs(60);

/// What the processes and threads of one test share.
struct Place {
    temp: TempDir,
    dir: RuntimeDir,
    group: GroupName,
}

/// One member's wishes.
#[derive(Clone, Copy)]
struct Wish {
    members: u32,
    id: Option<u64>,
    config: u64,
    wait: Duration,
}

impl Wish {
    fn of(members: u32) -> Self {
        Self { members, id: None, config: 1, wait: BOUND }
    }

    fn id(self, id: u64) -> Self {
        Self { id: Some(id), ..self }
    }
}

/// A member in a thread.
struct Attempt {
    cancelled: Arc<AtomicBool>,
    progress: Events<Gathering>,
    thread: JoinHandle<Result<Meeting, MeetError>>,
}

impl Place {
    fn new() -> Self {
        let temp = TempDir::new();
        let dir = RuntimeDir::new(temp.path()).unwrap();
        Self { temp, dir, group: GroupName::new("g").unwrap() }
    }

    fn start(&self, wish: Wish) -> Attempt {
        let cancelled = Arc::new(AtomicBool::new(false));
        let (tell, progress) = channel();
        let (dir, group, stop) = (self.dir.clone(), self.group.clone(), Arc::clone(&cancelled));
        let thread = spawn(move || attend(&dir, &group, wish, &stop, &tell));
        Attempt { cancelled, progress, thread }
    }

    /// The same, once it waits as the founder.
    fn start_founder(&self, wish: Wish) -> Attempt {
        let attempt = self.start(wish);
        attempt.wait_for(|gathering| gathering.present.len() == 1);
        // It has seen itself; now it is about to open its socket.
        let until = Instant::now() + BOUND;
        while self.reach().is_none() {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        attempt
    }

    fn reach(&self) -> Option<OwnedFd> {
        reach(&self.dir, &self.group).unwrap()
    }

    fn hello(&self, wish: Wish) -> Message {
        let Wish { members, id, config, .. } = wish;
        Message::Hello(Hello { group: self.group.clone(), members, id: id.map(MemberId), config, pid: 1 })
    }
}

impl Attempt {
    fn wait_for(&self, wanted: impl Fn(&Gathering) -> bool) -> Gathering {
        loop {
            let gathering = self.progress.recv_timeout(BOUND).unwrap();
            if wanted(&gathering) {
                return gathering;
            }
        }
    }

    fn end(self) -> Result<Meeting, MeetError> {
        self.thread.join().unwrap()
    }

    fn refusal(self) -> MeetError {
        self.end().unwrap_err()
    }
}

fn attend(
    dir: &RuntimeDir,
    group: &GroupName,
    wish: Wish,
    cancelled: &AtomicBool,
    tell: &Sender<Gathering>,
) -> Result<Meeting, MeetError> {
    let Wish { members, id, config, wait } = wish;
    let deadline = Instant::now() + wait;
    let terms = Terms { dir, group, members, id: id.map(MemberId), config, deadline, cancelled };
    meet(&terms, &mut |gathering| drop(tell.send(gathering.clone())), offer)
}

/// A row that holds its member's id.
fn offer(roster: &Roster) -> Result<Offer, std::io::Error> {
    let row = rustix::fs::memfd_create("row", MemfdFlags::CLOEXEC)?;
    rustix::io::pwrite(&row, &roster.members[roster.me.index()].id.0.to_le_bytes(), 0)?;
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    Ok(Offer { row, bell })
}

fn row_of(peer: &PeerFds) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(&peer.row, &mut bytes, 0), Ok(8));
    u64::from_le_bytes(bytes)
}

fn ids(meeting: &Meeting) -> Vec<u64> {
    meeting.roster.members.iter().map(|m| m.id.0).collect()
}

fn raise_fd_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Whether every other end of the pipe is closed.
fn is_hung_up(pipe: &OwnedFd) -> bool {
    wait_readable(pipe.as_fd(), BOUND).unwrap();
    rustix::io::read(pipe, &mut [0; 1]) == Ok(0)
}

#[test]
fn groups_of_one_two_and_many_meet_and_hold_the_same() {
    for members in [1, 2, 8] {
        let place = Place::new();
        let attempts: Vec<_> = (0..members).map(|_| place.start(Wish::of(members))).collect();
        let meetings: Vec<_> = attempts.into_iter().map(|a| a.end().unwrap()).collect();
        let mut ranks: Vec<_> = meetings.iter().map(|m| m.roster.me.0).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..members).collect::<Vec<_>>());
        assert_eq!(meetings.iter().filter(|m| m.keeper.is_founder()).count(), 1);
        for meeting in &meetings {
            assert_eq!(ids(meeting), (1..=u64::from(members)).collect::<Vec<_>>());
            assert_eq!(meeting.peers.iter().map(row_of).collect::<Vec<_>>(), ids(meeting));
            assert_eq!(meeting.roster.incarnation, meetings[0].roster.incarnation);
            assert_eq!(meeting.keeper.is_founder(), meeting.roster.me == meeting.roster.founder);
            assert!(meeting.roster.members.iter().all(|m| m.pid == std::process::id()));
        }
        let socket = place.dir.socket_path(&place.group).unwrap();
        assert!(socket.exists());
        drop(meetings);
        assert!(!socket.exists());
    }
}

/// More members than one message has descriptors for, and more descriptors on their way than an unprivileged user may
/// have. The others are bare connections, which keep nothing: a hundred real members would hold 30,000 descriptors.
#[test]
fn a_hundred_members_get_everything_in_parts() {
    raise_fd_limit();
    let place = Place::new();
    let founder = place.start_founder(Wish::of(100));
    let mut receiver = Receiver::for_parts();
    let mut next = |socket: &OwnedFd| {
        loop {
            match receiver.receive(socket.as_fd()) {
                Ok(packet) => return packet,
                Err(NoPacket::Empty) => wait_readable(socket.as_fd(), BOUND).unwrap(),
                Err(NoPacket::Fault(fault)) => panic!("{fault}"),
                Err(NoPacket::FdLimit) => panic!("no descriptors left"),
            }
        }
    };
    let until = Instant::now() + BOUND;
    let mut others = Vec::new();
    while others.len() < 99 {
        assert!(Instant::now() < until);
        let Some(socket) = place.reach() else { continue };
        send(socket.as_fd(), &place.hello(Wish::of(100)).encode(), &[]).unwrap();
        others.push(socket);
    }
    for socket in &others {
        let roster = loop {
            match next(socket).message {
                Message::View(roster) => break roster,
                message => assert!(matches!(message, Message::Here(_)), "{message:?}"),
            }
        };
        let Offer { row, bell } = offer(&roster).unwrap();
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let fds = [row.as_fd(), bell.as_fd(), pidfd.as_fd()];
        assert_eq!(send(socket.as_fd(), &Message::Offer.encode(), &fds), Ok(Sent::Done));
    }
    for socket in &others {
        for (first, count) in [(0, 80), (80, 20)] {
            let Packet { message, fds } = next(socket);
            assert_eq!((message, fds.len()), (Message::Part { first, count }, 3 * count as usize));
        }
        assert_eq!(send(socket.as_fd(), &Message::Ready.encode(), &[]), Ok(Sent::Done));
    }
    assert!(others.iter().all(|socket| next(socket).message == Message::Go));
    let meeting = founder.end().unwrap();
    assert_eq!(meeting.peers.iter().map(row_of).collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
}

#[test]
fn each_meeting_is_another() {
    let place = Place::new();
    let first = place.start(Wish::of(1)).end().unwrap().roster.incarnation;
    assert_ne!(place.start(Wish::of(1)).end().unwrap().roster.incarnation, first);
}

#[test]
fn wanted_ids_come_first() {
    let place = Place::new();
    let wishes = [None, Some(2), None, Some(1), Some(70)];
    let attempts: Vec<_> = wishes.iter().map(|id| place.start(Wish { id: *id, ..Wish::of(5) })).collect();
    for (attempt, wish) in attempts.into_iter().zip(wishes) {
        let meeting = attempt.end().unwrap();
        assert_eq!(ids(&meeting), [1, 2, 3, 4, 70]);
        let mine = meeting.roster.members[meeting.roster.me.index()].id.0;
        assert!(wish.map_or([3, 4].contains(&mine), |id| id == mine));
    }
}

#[test]
fn who_does_not_fit_is_told_why_and_disturbs_nobody() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(2).id(7));
    let refused = place.start(Wish::of(2).id(7)).refusal();
    assert!(matches!(refused, MeetError::IdInUse { id: MemberId(7), pid } if pid == std::process::id()), "{refused}");
    let refused = place.start(Wish::of(3)).refusal();
    assert!(matches!(refused, MeetError::MembersMismatch { ours: 3, theirs: 2 }), "{refused}");
    let refused = place.start(Wish { config: 5, ..Wish::of(2) }).refusal();
    assert!(matches!(refused, MeetError::ConfigMismatch { ours: 5, theirs: 1 }), "{refused}");
    assert_eq!(ids(&place.start(Wish::of(2)).end().unwrap()), [1, 7]);
    founder.end().unwrap();
    assert!(matches!(place.start(Wish::of(0)).refusal(), MeetError::Members { got: 0 }));
    assert!(matches!(place.start(Wish::of(1025)).refusal(), MeetError::Members { got: 1025 }));
}

#[test]
fn versions_tell_each_other_that_they_differ() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(2));
    // A newer joiner.
    let socket = place.reach().unwrap();
    let hello = place.hello(Wish::of(2)).encode_as(VERSION + 1);
    assert_eq!(send(socket.as_fd(), &hello, &[]), Ok(Sent::Done));
    wait_readable(socket.as_fd(), BOUND).unwrap();
    let answer = Receiver::new(0).receive(socket.as_fd()).unwrap();
    assert_eq!(answer.message, Message::Refusal(Refusal::Version));
    founder.cancelled.store(true, Ordering::Relaxed);
    assert!(matches!(founder.refusal(), MeetError::Cancelled { .. }));
    // A newer founder.
    let door = Door::open(&place.dir, &place.group).unwrap().unwrap();
    let joiner = place.start(Wish::of(2));
    wait_readable(door.as_fd(), BOUND).unwrap();
    let socket = door.accept().unwrap().unwrap();
    let answer = Message::Refusal(Refusal::Version).encode_as(VERSION + 1);
    assert_eq!(send(socket.as_fd(), &answer, &[]), Ok(Sent::Done));
    let refused = joiner.refusal();
    assert!(matches!(refused, MeetError::VersionMismatch { ours: 1, theirs: 2 }), "{refused}");
}

#[test]
fn a_founder_that_talks_nonsense_is_reported() {
    let place = Place::new();
    let door = Door::open(&place.dir, &place.group).unwrap().unwrap();
    for (answer, expected) in [
        (b"220 smtp ready".to_vec(), Fault::Wire(WireError::Magic)),
        (Message::Go.encode(), Fault::OutOfTurn),
        (vec![0; 20_000], Fault::TooLong),
    ] {
        let joiner = place.start(Wish::of(2));
        wait_readable(door.as_fd(), BOUND).unwrap();
        let socket = door.accept().unwrap().unwrap();
        assert_eq!(send(socket.as_fd(), &answer, &[]), Ok(Sent::Done));
        let refused = joiner.refusal();
        assert!(matches!(&refused, MeetError::Founder { fault, .. } if *fault == expected), "{refused}");
    }
}

#[test]
fn a_running_group_turns_newcomers_away() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(2));
    let other = place.start(Wish::of(2)).end().unwrap();
    let mut meeting = founder.end().unwrap();
    let keeper = std::mem::replace(&mut meeting.keeper, Keeper::none());
    let watcher = Watcher::spawn(vec![], keeper, |rank| panic!("{rank} lives")).unwrap();
    // Strangers that say nothing, or nonsense, are no obstacle, however many.
    let silent: Vec<_> = (0..8).map(|_| place.reach().unwrap()).collect();
    let rude = place.reach().unwrap();
    send(rude.as_fd(), b"let me in", &[]).unwrap();
    let refused = place.start(Wish::of(2)).refusal();
    let pid = std::process::id();
    assert!(matches!(&refused, MeetError::GroupRunning { members: 2, pids } if *pids == [pid, pid]), "{refused}");
    let refused = place.start(Wish::of(2).id(2)).refusal();
    assert!(matches!(refused, MeetError::IdInUse { id: MemberId(2), .. }), "{refused}");
    // The name is free once the founder lets go of it, though the other member does not.
    drop(watcher);
    place.start(Wish::of(1)).end().unwrap();
    drop((other, silent));
}

#[test]
fn another_takes_over_from_a_founder_that_leaves() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(3).id(1));
    let second = place.start(Wish::of(3).id(2));
    second.wait_for(|gathering| gathering.present.len() == 2);
    founder.cancelled.store(true, Ordering::Relaxed);
    let cancelled = founder.refusal();
    assert!(matches!(&cancelled, MeetError::Cancelled { gathering } if gathering.missing() == 1), "{cancelled}");
    second.wait_for(|gathering| gathering.present.len() == 1);
    let others = [place.start(Wish::of(3).id(3)), place.start(Wish::of(3).id(4))];
    for attempt in others.into_iter().chain([second]) {
        assert_eq!(ids(&attempt.end().unwrap()), [2, 3, 4]);
    }
}

#[test]
fn a_member_that_leaves_too_early_is_replaced() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(3).id(1));
    let second = place.start(Wish::of(3).id(2));
    founder.wait_for(|gathering| gathering.present.len() == 2);
    second.cancelled.store(true, Ordering::Relaxed);
    second.refusal();
    founder.wait_for(|gathering| gathering.present.len() == 1);
    let others = [place.start(Wish::of(3).id(2)), place.start(Wish::of(3).id(3))];
    for attempt in others.into_iter().chain([founder]) {
        assert_eq!(ids(&attempt.end().unwrap()), [1, 2, 3]);
    }
}

/// Connects a stranger, lets it do something, and says why the founder dropped it.
fn drops(founder: &Attempt, stranger: OwnedFd, acts: impl FnOnce(BorrowedFd<'_>)) -> Fault {
    acts(stranger.as_fd());
    let dropped = founder.wait_for(|gathering| gathering.dropped.is_some()).dropped.unwrap();
    assert_eq!(dropped.0, std::process::id());
    dropped.1
}

#[test]
fn strangers_are_dropped_for_a_reason_and_disturb_nobody() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(2));
    // What the start needed to know that the founder is there.
    founder.wait_for(|gathering| matches!(gathering.dropped, Some((_, Fault::Closed))));
    let says =
        |bytes: &[u8]| drops(&founder, place.reach().unwrap(), |s| assert_eq!(send(s, bytes, &[]), Ok(Sent::Done)));
    let hello = place.hello(Wish::of(2)).encode();
    assert_eq!(says(b"GET / HTTP/1.1\r\n\r\n"), Fault::Wire(WireError::Magic));
    assert_eq!(says(&hello[..20]), Fault::Wire(WireError::Short));
    assert_eq!(says(&[hello.as_slice(), &[0]].concat()), Fault::Wire(WireError::Long { extra: 1 }));
    assert_eq!(says(&vec![b'x'; 100_000]), Fault::TooLong);
    assert_eq!(says(b""), Fault::Closed);
    assert_eq!(says(&Message::Ready.encode()), Fault::OutOfTurn);
    // Descriptors that nobody asked for are closed again: the pipe that they belong to hangs up.
    for count in [1, FDS_PER_MEMBER, 200] {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let fault = drops(&founder, place.reach().unwrap(), |stranger| {
            send(stranger, &hello, &vec![write.as_fd(); count]).unwrap();
        });
        assert!(matches!(fault, Fault::Fds { .. }), "{fault}");
        drop(write);
        assert!(is_hung_up(&read));
    }
    // One that does not fit was told so.
    let fault = drops(&founder, place.reach().unwrap(), |stranger| {
        let hello = place.hello(Wish::of(3)).encode();
        send(stranger, &hello, &[]).unwrap();
    });
    assert!(matches!(fault, Fault::Refused(_)), "{fault}");
    place.start(Wish::of(2)).end().unwrap();
    founder.end().unwrap();
}

#[test]
fn who_says_nothing_is_dropped_in_time_or_when_too_many_do() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(2));
    founder.wait_for(|gathering| matches!(gathering.dropped, Some((_, Fault::Closed))));
    assert_eq!(
        drops(&founder, place.reach().unwrap(), |stranger| {
            // Until the founder closes it.
            wait_readable(stranger, BOUND).unwrap();
        }),
        Fault::Silent
    );
    let crowd: Vec<_> = (0..40).map(|_| place.reach().unwrap()).collect();
    founder.wait_for(|gathering| matches!(gathering.dropped, Some((_, Fault::Crowded))));
    place.start(Wish::of(2)).end().unwrap();
    founder.end().unwrap();
    drop(crowd);
}

#[test]
fn a_deadline_says_who_was_there_and_how_many_were_missing() {
    let place = Place::new();
    let founder = place.start_founder(Wish { wait: Duration::from_millis(300), ..Wish::of(3).id(5) });
    let _second = place.start(Wish { wait: Duration::from_millis(400), ..Wish::of(3) });
    let over = founder.refusal();
    let text = over.to_string();
    let MeetError::TimedOut { gathering } = over else { panic!("{over}") };
    assert_eq!(gathering.present[0], Present { id: Some(MemberId(5)), pid: std::process::id() });
    assert!((1..=2).contains(&gathering.missing()));
    assert!(text.contains("member 5") && text.contains("missing"), "{text}");
}

#[test]
fn a_member_that_breaks_the_protocol_when_all_are_here_ends_the_meeting() {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let no_pidfd = [write.as_fd(); FDS_PER_MEMBER];
    let too_few = [write.as_fd(); 2];
    for (message, fds) in [(Message::Offer, &no_pidfd[..]), (Message::Offer, &too_few), (Message::Ready, &[])] {
        let place = Place::new();
        let founder = place.start_founder(Wish::of(3).id(1));
        let third = place.start(Wish::of(3).id(3));
        founder.wait_for(|gathering| gathering.present.len() == 2);
        let rogue = place.reach().unwrap();
        send(rogue.as_fd(), &place.hello(Wish::of(3).id(2)).encode(), &[]).unwrap();
        founder.wait_for(|gathering| gathering.present.len() == 3);
        send(rogue.as_fd(), &message.encode(), fds).unwrap();
        for attempt in [founder, third] {
            let lost = attempt.refusal();
            let expected = matches!(lost, MeetError::MemberLost { id: MemberId(2), why: Loss::Misbehaved, .. });
            assert!(expected, "{lost}");
        }
    }
    drop(write);
    assert!(is_hung_up(&read));
}

#[test]
fn a_member_that_can_not_make_its_memory_says_so_and_the_others_name_it() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(2).id(1));
    let cancelled = AtomicBool::new(false);
    let deadline = Instant::now() + BOUND;
    let terms = Terms {
        dir: &place.dir,
        group: &place.group,
        members: 2,
        id: Some(MemberId(2)),
        config: 1,
        deadline,
        cancelled: &cancelled,
    };
    let failed = meet(&terms, &mut |_| {}, |_| Err("no memory")).unwrap_err();
    assert!(matches!(&failed, MeetError::Make(why) if why.to_string() == "no memory"), "{failed}");
    let lost = founder.refusal();
    assert!(matches!(lost, MeetError::MemberLost { id: MemberId(2), why: Loss::Gone, .. }), "{lost}");
}

/// A member in a process of its own. It is killed, if it still runs, when this is dropped; and it ends by itself when
/// its standard input does.
struct Process {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(place: &Place, role: &str, wish: Wish) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "meet::tests::child", "--ignored", "--nocapture", "--test-threads=1"])
            .env("MEET_ROLE", role)
            .env("MEET_DIR", place.temp.path())
            .env("MEET_MEMBERS", wish.members.to_string())
            .env("MEET_ID", wish.id.unwrap_or(0).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Waits until the child says `word`.
    fn says(&mut self, word: &str) {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if line.trim_end() == word {
                return;
            }
            line.clear();
        }
        panic!("the child ended without {word:?}");
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn say(word: &str) {
    println!("\n{word}");
    std::io::stdout().flush().unwrap();
}

fn wait_for_the_end_of_input() {
    let _ = std::io::stdin().read(&mut [0; 1]);
}

/// Not a test: what [`Process`] runs.
#[test]
#[ignore = "the other tests start it, with a role"]
fn child() {
    let Ok(role) = std::env::var("MEET_ROLE") else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let dir = RuntimeDir::new(std::env::var("MEET_DIR").unwrap()).unwrap();
    let group = GroupName::new("g").unwrap();
    let cancelled = AtomicBool::new(false);
    let terms = Terms {
        dir: &dir,
        group: &group,
        members: number("MEET_MEMBERS") as u32,
        id: Some(MemberId(number("MEET_ID"))),
        config: 1,
        deadline: Instant::now() + BOUND,
        cancelled: &cancelled,
    };
    let mut hoard = Vec::new();
    let mut progress = |gathering: &Gathering| match role.as_str() {
        // The first news comes before the socket is there; a stranger's connection comes after.
        "hoard" if gathering.dropped.is_some() && hoard.is_empty() => {
            let limit = Rlimit { current: Some(open_fds() as u64 + 8), maximum: getrlimit(Resource::Nofile).maximum };
            setrlimit(Resource::Nofile, limit).unwrap();
            while let Ok(fd) = rustix::event::eventfd(0, EventfdFlags::CLOEXEC) {
                hoard.push(fd);
            }
            say("full");
        }
        _ => say(&format!("present {}", gathering.present.len())),
    };
    let make = |roster: &Roster| {
        if role == "stall" {
            say("stalled");
            wait_for_the_end_of_input();
        }
        offer(roster)
    };
    match meet(&terms, &mut progress, make) {
        Ok(meeting) => {
            say("met");
            wait_for_the_end_of_input();
            drop(meeting);
        }
        Err(MeetError::FdLimit { limit, .. }) => {
            assert_eq!(Some(limit), getrlimit(Resource::Nofile).current);
            say("out of descriptors");
        }
        Err(error) => say(&error.to_string()),
    }
}

#[test]
fn what_a_killed_founder_leaves_behind_is_no_obstacle() {
    let place = Place::new();
    let mut killed = Process::start(&place, "plain", Wish::of(2).id(1));
    killed.says("present 1");
    let until = Instant::now() + BOUND;
    while place.reach().is_none() {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let waiting = place.start(Wish::of(2).id(1));
    killed.kill();
    assert!(place.dir.socket_path(&place.group).unwrap().exists());
    // Whether it met the dead one's socket or its place, the id is free again.
    waiting.cancelled.store(true, Ordering::Relaxed);
    drop(waiting.end());
    let attempts = [place.start(Wish::of(2).id(1)), place.start(Wish::of(2).id(2))];
    for attempt in attempts {
        assert_eq!(ids(&attempt.end().unwrap()), [1, 2]);
    }
}

#[test]
fn a_member_that_is_killed_once_all_are_here_is_named_to_everyone() {
    let place = Place::new();
    let founder = place.start_founder(Wish::of(3).id(1));
    let second = place.start(Wish::of(3).id(2));
    let mut killed = Process::start(&place, "stall", Wish::of(3).id(3));
    killed.says("stalled");
    killed.kill();
    for attempt in [founder, second] {
        let lost = attempt.refusal();
        let expected =
            matches!(lost, MeetError::MemberLost { id: MemberId(3), pid, why: Loss::Gone } if pid == killed.pid());
        assert!(expected, "{lost}");
    }
}

#[test]
fn a_founder_that_is_killed_once_all_are_here_is_named_too() {
    let place = Place::new();
    let mut killed = Process::start(&place, "stall", Wish::of(2).id(4));
    killed.says("present 1");
    let member = place.start(Wish::of(2).id(5));
    // Either may have founded the group, and both must name the other.
    killed.says("stalled");
    killed.kill();
    let lost = member.refusal();
    assert!(
        matches!(lost, MeetError::MemberLost { id: MemberId(4), pid, why: Loss::Gone } if pid == killed.pid()),
        "{lost}"
    );
}

#[test]
fn the_watcher_reports_each_death_once() {
    let place = Place::new();
    let mine = place.start_founder(Wish::of(3).id(1));
    let mut others = [2, 3].map(|id| Process::start(&place, "plain", Wish::of(3).id(id)));
    let mut meeting = mine.end().unwrap();
    others.iter_mut().for_each(|other| other.says("met"));
    let keeper = std::mem::replace(&mut meeting.keeper, Keeper::none());
    let pidfds = meeting.peers.into_iter().skip(1).map(|peer| peer.pidfd);
    let (tell, deaths) = channel();
    let watched = (1..).map(Rank).zip(pidfds).collect();
    let watcher = Watcher::spawn(watched, keeper, move |rank| tell.send(rank).unwrap()).unwrap();
    others[1].kill();
    assert_eq!(deaths.recv_timeout(BOUND), Ok(Rank(2)));
    // It goes on to answer for the group, and to watch.
    assert!(matches!(place.start(Wish::of(3)).refusal(), MeetError::GroupRunning { members: 3, .. }));
    others[0].kill();
    assert_eq!(deaths.recv_timeout(BOUND), Ok(Rank(1)));
    drop(watcher);
    assert_eq!(deaths.iter().count(), 0);
}

#[test]
fn the_watcher_takes_a_thousand_members_and_those_already_dead() {
    raise_fd_limit();
    let place = Place::new();
    let mut other = Process::start(&place, "plain", Wish::of(2));
    let pid = rustix::process::Pid::from_raw(other.pid().cast_signed()).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let copies = || (0..1_100).map(Rank).map(|rank| (rank, pidfd.try_clone().unwrap())).collect();
    let (tell, deaths) = channel();
    let told = tell.clone();
    let living = Watcher::spawn(copies(), Keeper::none(), move |rank| told.send(rank).unwrap()).unwrap();
    other.kill();
    let mut reported: Vec<_> = (0..1_100).map(|_| deaths.recv_timeout(BOUND).unwrap()).collect();
    // It may die while the kernel looks through them.
    reported.sort_unstable();
    assert_eq!(reported, (0..1_100).map(Rank).collect::<Vec<_>>());
    drop(living);
    let late = Watcher::spawn(copies(), Keeper::none(), move |rank| tell.send(rank).unwrap()).unwrap();
    assert_eq!(deaths.recv_timeout(BOUND), Ok(Rank(0)));
    drop(late);
}

#[test]
fn a_founder_without_descriptors_says_so() {
    let place = Place::new();
    let mut poor = Process::start(&place, "hoard", Wish::of(8));
    poor.says("present 1");
    let until = Instant::now() + BOUND;
    // The first connection, dropped at once, makes it use up its descriptors; the next is one too many.
    while place.reach().is_none() {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    poor.says("full");
    let _stranger = place.reach();
    poor.says("out of descriptors");
    assert!(poor.process.wait().unwrap().success());
}
