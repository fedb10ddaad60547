//! Tests of control messages and streams between endpoints that follow the protocol.
use super::*;

/// Other threads may hold it and take its events.
#[test]
fn endpoints_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<NetEndpoint>();
}

/// Both sides connect at the same time, and each has its own connection for its control messages.
fn messages_arrive_in_order(one: &str, other: &str) {
    let hosts = [open(options(1, one)), open(options(2, other))];
    let cards = [hosts[0].card().clone(), hosts[1].card().clone()];
    for number in 0..500 {
        send_numbered(&hosts[0], &cards[1].address, number);
        send_numbered(&hosts[1], &cards[0].address, number);
    }
    expect_numbered(&hosts[1], &cards[0], 0..500);
    expect_numbered(&hosts[0], &cards[1], 0..500);
    for host in &hosts {
        assert_eq!(host.dropped(), EndpointDrops::default());
        assert!(host.receive().is_none());
    }
}

#[test]
fn messages_arrive_in_order_over_ipv4() {
    messages_arrive_in_order(LOOPBACK, LOOPBACK);
}

#[test]
fn messages_arrive_in_order_over_ipv6() {
    messages_arrive_in_order("[::1]:0", "[::1]:0");
}

#[test]
fn messages_arrive_in_order_by_name() {
    messages_arrive_in_order("localhost:0", "LOCALHOST:0");
}

#[test]
fn messages_arrive_in_order_over_unix_sockets_and_between_kinds() {
    let temp = TempDir::new();
    let path = |name| format!("unix:{}", temp.path().join(name).display());
    messages_arrive_in_order(&path("a"), &path("b"));
    messages_arrive_in_order(&path("c"), LOOPBACK);
}

#[test]
fn large_attachments_arrive() {
    let (near, far) = (host(1), host(2));
    for bytes in [64 << 20, 1, 5_000_000] {
        let attachment: Vec<u8> = (0..bytes as u32).map(|i| (i ^ i >> 8) as u8).collect();
        let message = ControlMessage::View { incarnation: 5, view: ViewId(9), from: MemberId(1), bytes };
        near.send(far.address(), Some(MemberId(2)), &message, &attachment);
        let (from, got, came) = far.message();
        assert_eq!((&from, got), (near.card(), message));
        assert!(came == attachment);
    }
}

#[test]
fn each_purpose_has_its_stream() {
    let (near, far) = (host(1), host(2));
    for purpose in PURPOSES {
        near.dial(far.address(), Some(MemberId(2)), purpose);
        let (with, what, mut there, dialled) = far.stream();
        assert_eq!((&with, what, dialled), (near.card(), purpose, false));
        // Before the dialling side has looked.
        write_all(&mut *there, b"first");
        let (with, what, mut here, dialled) = near.stream();
        assert_eq!((&with, what, dialled), (far.card(), purpose, true));
        write_all(&mut *here, &[7; 300_000][..100_000]);
        assert_eq!(read_exactly(&mut *here, 5), b"first");
        assert_eq!(read_exactly(&mut *there, 100_000), vec![7; 100_000]);
    }
}

#[test]
fn streams_outlive_their_endpoints() {
    let (near, far) = (host(1), host(2));
    near.dial(far.address(), None, PURPOSES[0]);
    let (_, _, mut there, _) = far.stream();
    let (_, _, mut here, _) = near.stream();
    drop((near, far));
    write_all(&mut *here, b"still here");
    assert_eq!(read_exactly(&mut *there, 10), b"still here");
}

/// Bytes that follow a hello, or its answer, in the same segment are not lost.
#[test]
fn bytes_after_the_hello_belong_to_the_stream() {
    let far = host(2);
    let mut socket = raw(far.address());
    let first = hello(PURPOSES[2], 1, 1);
    socket.write_all(&[&first.encode()[..], b"and more"].concat()).unwrap();
    assert!(matches!(answer(&socket), HelloAnswer::Welcome(card, _) if card == *far.card()));
    let (with, _, mut stream, _) = far.stream();
    assert_eq!(with, first.card);
    assert_eq!(read_exactly(&mut *stream, 8), b"and more");

    let listener = TcpListener::bind(LOOPBACK).unwrap();
    far.dial(&listener.local_addr().unwrap().into(), None, PURPOSES[2]);
    let mut socket = listener.accept().unwrap().0;
    let reply = HelloAnswer::Welcome(first.card.clone(), 77).encode();
    socket.write_all(&[&reply[..], b"and more"].concat()).unwrap();
    let (with, _, mut stream, dialled) = far.stream();
    assert!(dialled && with == first.card);
    assert_eq!(read_exactly(&mut *stream, 8), b"and more");
}

#[test]
fn a_gone_receiver_is_lost_and_one_that_is_back_gets_messages() {
    let near = host(1);
    let far = host(2);
    let card = far.card().clone();
    send_numbered(&near, &card.address, 0);
    expect_numbered(&far, near.card(), 0..1);
    drop(far);
    assert_eq!(near.lost(), card);
    // No process listens there yet.
    (1..20).for_each(|number| send_numbered(&near, &card.address, number));
    let far = open(options(3, &card.address.to_string()));
    expect_numbered(&far, near.card(), 1..20);
    assert!(near.receive().is_none());
}

#[test]
fn messages_leave_before_their_endpoint_ends() {
    let (near, far) = (host(1), host(2));
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    let card = near.card().clone();
    (1..1000).for_each(|number| send_numbered(&near, far.address(), number));
    drop(near);
    expect_numbered(&far, &card, 1..1000);
}

#[test]
fn a_peer_that_reads_nothing_does_not_delay_an_end() {
    let near = host(1);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    let attachment = vec![0; 32 << 20];
    near.send(&address, None, &ControlMessage::Answer { reply: 1, bytes: 32 << 20 }, &attachment);
    let mut socket = listener.accept().unwrap().0;
    socket.write_all(&HelloAnswer::Welcome(hello(Purpose::Control, 2, 2).card, 77).encode()).unwrap();
    socket.read_exact(&mut [0; 1000]).unwrap();
    drop(near);
    ends_by(socket);
}

#[test]
fn messages_that_find_no_room_are_told_once() {
    let near = host(1);
    let (_kept, nobody) = deserted();
    (0..QUEUE_CONTROL_MESSAGES_MAX as u64 + 10).for_each(|number| send_numbered(&near, &nobody, number));
    let (_, _, why) = near.failed();
    assert!(
        matches!(why, NetError::QueueFull { messages, .. } if messages == QUEUE_CONTROL_MESSAGES_MAX as u64),
        "{why}"
    );
    let (_kept, nobody) = deserted();
    let large = vec![0; 60 << 20];
    (0..3).for_each(|_| near.send(&nobody, None, &ControlMessage::Answer { reply: 0, bytes: 60 << 20 }, &large));
    assert!(matches!(near.failed().2, NetError::QueueFull { messages: 2, .. }));
    // The oldest were kept, until no process accepted them.
    (0..2).for_each(|_| assert!(matches!(near.failed().2, NetError::Connect { .. })));
}

#[test]
fn forgotten_messages_are_not_sent() {
    let temp = TempDir::new();
    let address: Address = format!("unix:{}", temp.path().join("far").display()).parse().unwrap();
    let near = host(1);
    near.dial(&address, None, PURPOSES[0]);
    near.failed();
    (0..10).for_each(|number| send_numbered(&near, &address, number));
    near.forget(&address);
    let far = open(options(2, &address.to_string()));
    send_numbered(&near, &address, 10);
    expect_numbered(&far, near.card(), 10..11);
    // A connection that is up is closed without an event.
    near.forget(&address);
    send_numbered(&near, &address, 11);
    expect_numbered(&far, near.card(), 11..12);
    assert!(near.receive().is_none());
}

#[test]
fn a_subscriber_that_takes_no_events_gets_no_more() {
    let far = host(2);
    let mut socket = greeted(far.address(), &hello(Purpose::Control, 5, 5));
    let count = 40 * EVENTS_MAX as u64;
    let writer = std::thread::spawn(move || {
        for first in (0..count).step_by(1000) {
            let messages: Vec<u8> = (first..count.min(first + 1000)).flat_map(|i| bytes_of(&request(5, i))).collect();
            socket.write_all(&messages).unwrap();
        }
        socket
    });
    far.wait_for("enough", |far| far.waiting() >= EVENTS_MAX);
    // No other process is accepted either.
    let near = host(1);
    send_numbered(&near, far.address(), 0);
    // At most one more turn of reading.
    let turn = crate::net::limits::READS_MAX * crate::net::limits::READ_BYTES / bytes_of(&request(5, 0)).len();
    assert!(far.waiting() <= EVENTS_MAX + turn, "{}", far.waiting());
    let (mut next, mut other) = (0, false);
    while next < count || !other {
        match far.message() {
            (from, message, _) if from.id == MemberId(5) => {
                assert_eq!(message, request(5, next));
                next += 1;
            }
            (from, ..) => other = from == *near.card(),
        }
        assert!(far.waiting() <= EVENTS_MAX + turn, "{}", far.waiting());
    }
    drop(writer.join().unwrap());
}
