//! A process that sends the control messages of a member without being a member. It asks to join,
//! and then does not do a member's part.
mod common;

use common::Scratch;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use spindle::{
    Batch, Config, Group, Handler, JoinError, Message, Publisher, Snapshot, State, SubgroupId, View, ViewChange,
};
use spindle_core::control::{ControlMessage, Refusal};
use spindle_core::{Layout, MemberId, Rank, ViewId};
use spindle_fabric::{Arena, LivenessThread, MemberEventCount, OwnRow};
use spindle_transport::rendezvous::{ControlSocket, GroupName, RuntimeDir, SendOutcome, disclose, own_birth};
use std::io::{Cursor, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SOON: Option<Duration> = Some(Duration::from_secs(1));
const ID: MemberId = MemberId(7);
const NONCE: u32 = 7;

fn group(scratch: &Scratch, members: u32, id: u64) -> Config {
    Config { id: Some(MemberId(id)), ..scratch.group(members, LONG) }
}

/// Counts messages, and records the views that the member has reported to it.
#[derive(Clone, Default)]
struct Counter {
    count: Arc<AtomicU64>,
    views: Arc<Mutex<Vec<View>>>,
}

impl Handler for Counter {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        let count = batch.map(|_| 1).sum::<u64>();
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.views.lock().unwrap().push(View::clone(&change.new));
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let bytes = self.count.load(Ordering::Relaxed).to_le_bytes();
        Some(Snapshot { len: Some(8), bytes: Box::new(Cursor::new(bytes)) })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        let mut bytes = [0; 8];
        state.read_exact(&mut bytes)?;
        self.count.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        Ok(())
    }

    fn learn(&mut self, _: &View, _: SubgroupId, _: &Message<'_>) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

type Member = (Group, Publisher, Counter);

/// Founds a group of two members that have delivered so many messages.
fn create(scratch: &Scratch, messages: u64, suspect_after: Option<Duration>) -> Vec<Member> {
    let founder = |id: u64| {
        let config = Config { suspect_after, ..group(scratch, 2, id) };
        std::thread::spawn(move || {
            let mut node = config.join().unwrap();
            let publisher = node.publisher("all").unwrap();
            let counter = Counter::default();
            (node.start(counter.clone()).unwrap(), publisher, counter)
        })
    };
    let founders = [founder(1), founder(2)];
    let mut members: Vec<Member> = founders.into_iter().map(|founder| founder.join().unwrap()).collect();
    for _ in 0..messages {
        members[0].1.send(b"before", LONG).unwrap();
    }
    until("the first messages", || {
        members.iter().all(|(_, _, counter)| counter.count.load(Ordering::Relaxed) == messages)
    });
    members
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < patience, "waited for {what}");
        std::thread::yield_now();
    }
}

fn hear<T>(control_socket: &mut ControlSocket, mut what: impl FnMut(ControlMessage, Vec<OwnedFd>) -> Option<T>) -> T {
    let mut heard = None;
    until("a control message", || {
        heard = control_socket.receive().and_then(|(message, fds)| what(message, fds));
        heard.is_some()
    });
    heard.unwrap()
}

/// Asks to be admitted, until it is. Returns the group, and the view that contains it.
fn get_in(control_socket: &mut ControlSocket) -> (u128, View) {
    let ask = |config| ControlMessage::Ask {
        from: ID,
        pid: std::process::id(),
        birth: own_birth(),
        nonce: NONCE,
        config,
        members: 1,
        observer: false,
        follows: ViewId(0),
        address: None,
        rack: None,
        seeds: None,
        clock: 0,
    };
    let _ = control_socket.send(MemberId(1), &ask(0), &[]).unwrap();
    // A refusal contains the digest of the required configuration, whichever process asks.
    let digest = hear(control_socket, |message, _| match message {
        ControlMessage::Refused { why: Refusal::Config { settings, .. } } => Some(settings.digest()),
        _ => None,
    });
    let _ = control_socket.send(MemberId(1), &ask(digest), &[]).unwrap();
    hear(control_socket, |message, fds| {
        let ControlMessage::View { incarnation, bytes, .. } = message else { return None };
        let bytes = disclose(&fds[0], bytes, 1 << 20).unwrap();
        let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        // The members that are new in the view follow the view.
        let view = &words[1..][..words[0] as usize];
        Some((incarnation, View::decode(view).unwrap()))
    })
}

fn open(scratch: &Scratch) -> ControlSocket {
    ControlSocket::open(&RuntimeDir::new(&scratch.0).unwrap(), &GroupName::new("g").unwrap(), ID).unwrap()
}

/// An earlier attempt with the same id had asked to be admitted. A process that joins with this id
/// now is a member only once it has the state.
#[test]
fn the_request_of_an_earlier_attempt_admits_no_process_without_the_state() {
    let scratch = Scratch::new("too-early");
    let members = create(&scratch, 100, SOON);
    let mut control_socket = open(&scratch);
    let (_, view) = get_in(&mut control_socket);
    assert!(view.members.contains(&ID));
    drop(control_socket);
    let patience = Instant::now() + LONG;
    let (counter, node) = loop {
        let mut counter = Counter::default();
        match group(&scratch, 1, ID.0).learn(&mut counter, &mut |_| {}, &AtomicBool::new(false)) {
            Ok(node) => break (counter, node),
            Err(JoinError::Source(_)) => assert!(Instant::now() < patience),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(counter.count.load(Ordering::Relaxed), 100);
    assert_eq!(node.view().members.len(), 3);
    drop((node, members));
}

/// The thread that stands for the process's life ends. The process itself lives, so its pidfd
/// reports nothing. The members would not notice silence either.
#[test]
fn a_member_about_to_be_dead_is_left_out() {
    let scratch = Scratch::new("dying");
    let mut members = create(&scratch, 1, Some(LONG * 10));
    let mut control_socket = open(&scratch);
    let (incarnation, view) = get_in(&mut control_socket);
    let me = view.rank_of(ID).unwrap();
    let event_count = MemberEventCount::create().unwrap();
    let (_row, parts) = OwnRow::create(&Layout::new(&view).unwrap(), me, &mut Arena::new(event_count.clone())).unwrap();
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let message = ControlMessage::RowDescriptors {
        incarnation,
        view: view.id,
        from: ID,
        pid: std::process::id(),
        birth: own_birth(),
        at: parts.at,
        bytes: parts.bytes,
        event: false,
        address: None,
        rack: None,
    };
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let heart = std::thread::spawn(move || {
        let line = LivenessThread::hold(&event_count).unwrap();
        let _ = ends.recv();
        std::mem::forget(line);
    });
    for other in [MemberId(1), MemberId(2)] {
        let fds = [parts.row.as_fd(), parts.event_count.as_fd(), pidfd.as_fd(), parts.lease.as_fd()];
        let _ = control_socket.send(other, &message, &fds).unwrap();
    }
    until("the view with it", || members.iter().all(|(group, _, _)| group.view().members.len() == 3));
    assert!(members.iter().all(|(group, _, _)| group.status().members.iter().all(|member| !member.suspected)));
    drop(end);
    heart.join().unwrap();
    until("a view without it", || members.iter().all(|(group, _, _)| group.view().id.0 == 3));
    for (group, publisher, _) in &mut members {
        assert_eq!(group.view().members, [MemberId(1), MemberId(2)]);
        publisher.send(b"after", LONG).unwrap();
    }
    until("their messages", || members.iter().all(|(_, _, counter)| counter.count.load(Ordering::Relaxed) == 3));
}

/// The process hands over a doorbell in place of a row. This ends that process, and no other.
#[test]
fn bad_memory_of_one_member_ends_no_other() {
    let scratch = Scratch::new("bad-memory");
    let mut members = create(&scratch, 1, SOON);
    let mut control_socket = open(&scratch);
    let (incarnation, view) = get_in(&mut control_socket);
    let me = view.rank_of(ID).unwrap();
    let layout = Layout::new(&view).unwrap();
    let (_row, parts) = OwnRow::create(&layout, me, &mut Arena::new(MemberEventCount::create().unwrap())).unwrap();
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let message = ControlMessage::RowDescriptors {
        incarnation,
        view: view.id,
        from: ID,
        pid: std::process::id(),
        birth: own_birth(),
        at: parts.at,
        bytes: parts.bytes,
        event: false,
        address: None,
        rack: None,
    };
    for other in [MemberId(1), MemberId(2)] {
        let fds = [parts.event_count.as_fd(), parts.event_count.as_fd(), pidfd.as_fd(), parts.lease.as_fd()];
        let _ = control_socket.send(other, &message, &fds).unwrap();
    }
    until("a view without it", || {
        members.iter().all(|(group, _, _)| group.view().id.0 >= 3 || group.ended().is_some())
    });
    for (group, publisher, _) in &mut members {
        assert!(group.ended().is_none(), "{:?}", group.ended());
        assert_eq!(group.view().members, [MemberId(1), MemberId(2)]);
        publisher.send(b"after", LONG).unwrap();
    }
    until("their messages", || members.iter().all(|(_, _, counter)| counter.count.load(Ordering::Relaxed) == 3));
    assert_eq!(members[0].0.rank(), Rank(0));
}

/// The process asks and reads no answer. Silence means nothing in this group, so no member would
/// ever stop waiting for it.
#[test]
fn a_process_that_reads_no_messages_delays_no_view() {
    let scratch = Scratch::new("deaf");
    let members = create(&scratch, 1, None);
    let control_socket = open(&scratch);
    let ask = ControlMessage::Ask {
        from: ID,
        pid: std::process::id(),
        birth: own_birth(),
        nonce: NONCE,
        config: 0,
        members: 1,
        observer: false,
        follows: ViewId(0),
        address: None,
        rack: None,
        seeds: None,
        clock: 0,
    };
    // More requests than any `ControlSocket` holds. The members answer each of them.
    for _ in 0..2000 {
        for member in [MemberId(1), MemberId(2)] {
            until("room", || control_socket.send(member, &ask, &[]).unwrap() == SendOutcome::Done);
        }
    }
    let joined = Config { suspect_after: None, ..group(&scratch, 1, 3) }.join().unwrap();
    assert_eq!(joined.view().members, [MemberId(1), MemberId(2), MemberId(3)]);
    until("their view", || members.iter().all(|(group, _, _)| group.view().members.len() == 3));
}
