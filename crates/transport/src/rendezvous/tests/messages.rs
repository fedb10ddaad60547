//! Tests of control messages: their delivery, their descriptors, and those that are dropped.
use super::*;

#[test]
fn clients_are_answered_and_do_not_count() {
    let town = Town::new();
    let client = || ControlSocket::client(&town.dir, &town.group).unwrap();
    let (mut client, other) = (client(), client());
    assert_eq!((client.id().0, other.id().0), (CLIENT_IDS_FROM, CLIENT_IDS_FROM + 1));
    assert!(town.present().is_empty());
    let (mut member, _) = town.create(1);
    let ask = ControlMessage::Request { from: client.id(), reply: 77, what: Request::Evict(MemberId(3)) };
    assert_eq!(client.send(MemberId(1), &ask, &[]).unwrap(), SendOutcome::Done);
    let (ControlMessage::Request { from, reply, .. }, _) = next(&mut member) else { panic!("another control message") };
    let text = br#"{"members":1}"#;
    let enclosed = enclose(text).unwrap();
    let answer = ControlMessage::Answer { reply, bytes: text.len() as u64 };
    assert_eq!(member.send(from, &answer, &[enclosed.as_fd()]).unwrap(), SendOutcome::Done);
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
    while mine.send(MemberId(2), &status(1, sent), &[]).unwrap() == SendOutcome::Done {
        sent += 1;
        assert!(sent < 1_000_000);
    }
    println!("a control socket takes {sent} control messages");
    assert!(sent >= 2);
    assert_eq!(mine.send(MemberId(2), &status(1, sent), &[]).unwrap(), SendOutcome::Full);
    for reply in 0..sent {
        assert_eq!(next(&mut theirs).0, status(1, reply));
    }
    assert!(theirs.receive().is_none());
    assert_eq!(mine.send(MemberId(2), &status(1, sent), &[]).unwrap(), SendOutcome::Done);
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
    let mut expected = ControlSocketDrops::default();
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
    assert_eq!(theirs.send(MemberId(1), &status(2, 6), &[]).unwrap(), SendOutcome::Done);
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
        clock: 0,
    };
    for (asked, message) in [&ask, &status(2, 1)].into_iter().enumerate() {
        // A control message of that version may have any bytes after its header.
        assert!(throw(&other_fd, &mine, &town, &message.encode_as(VERSION + 1)[..21], &[]));
        assert!(mine.receive().is_none());
        assert_eq!(mine.dropped(), ControlSocketDrops { foreign: asked as u64 + 1, ..ControlSocketDrops::default() });
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

pub(super) fn garbage_with_descriptors(dir: &RuntimeDir, group: &GroupName) {
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
    let ControlSocketDrops { garbage, forged, foreign } = mine.dropped();
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
    assert_eq!(mine.send(MemberId(2), &parts(MemberId(1), 1), &fds).unwrap(), SendOutcome::Done);
    process.tell();
    process.says("starved");
    assert_eq!(mine.send(MemberId(2), &parts(MemberId(1), 2), &fds).unwrap(), SendOutcome::Done);
    process.tell();
    process.says("received both");
}

/// Runs a member that has room for no descriptor, for one, and so on, up to the four that it needs.
pub(super) fn poor(control_socket: &mut ControlSocket) {
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
    assert_eq!(control_socket.dropped(), ControlSocketDrops::default());
    assert!(!control_socket.is_drained() && control_socket.receive().is_none() && control_socket.is_drained());
    say("received both");
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
    assert_eq!(mine.send(MemberId(2), &parts(MemberId(1), 1), &fds).unwrap(), SendOutcome::Done);
    kill_process(process.pid(), Signal::CONT).unwrap();
    process.tell();
    process.says("starved");
}
