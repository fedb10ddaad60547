//! Tests of incoming connections that are silent, foreign or random: they harm no other connection.
use super::*;

#[test]
fn half_open_strangers_are_closed_and_counted() {
    let far = host(2);
    let silent = raw(far.address());
    let mut slow = raw(far.address());
    slow.write_all(&hello(Purpose::Control, 1, 1).encode()[..40]).unwrap();
    let mut rude = raw(far.address());
    rude.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    [silent, slow, rude].into_iter().for_each(ends_by);
    far.wait_for("three strangers", |far| far.dropped() == EndpointDrops { incoming: 3, ..EndpointDrops::default() });
    let mut gone = raw(far.address());
    gone.write_all(b"spnd").unwrap();
    drop(gone);
    far.wait_for("a fourth", |far| far.dropped().incoming == 4);
}

/// Sending control messages is retried until there is room.
#[test]
fn more_connections_than_slots_delay_no_peer_for_ever() {
    let (near, far) = (host(1), host(2));
    let half_open: Vec<_> = (0..HALF_OPEN_MAX + 20).map(|_| raw(far.address())).collect();
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    drop(half_open);
}

/// Connects from an address of this host.
fn raw_from(from: Ipv4Addr, to: &Address) -> TcpStream {
    let to: SocketAddr = to.to_string().parse().unwrap();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    socket.into()
}

/// More silent connections than there are slots, from the members' address and from others, are
/// open while members connect.
#[test]
fn silent_connections_delay_no_member() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let authority = Authority::new();
    for is_secure in [false, true] {
        let member = |id| match is_secure {
            true => secured(id, LOOPBACK, authority.identity()),
            false => host(id),
        };
        let (near, far) = (member(1), member(2));
        let silent = |last| (0..2 * HALF_OPEN_MAX / 3).map(move |_| Ipv4Addr::new(127, 0, 0, last));
        let half_open = || (1..=5).flat_map(silent).map(|from| raw_from(from, far.address())).collect::<Vec<_>>();
        // Some before the first control message, when the endpoint has no peer, and some after it.
        let mut open = half_open();
        send_numbered(&near, far.address(), 0);
        expect_numbered(&far, near.card(), 0..1);
        open.extend(half_open());
        let third = member(3);
        for from in [&near, &third] {
            for purpose in PURPOSES {
                from.dial(far.address(), Some(MemberId(2)), purpose);
                assert_eq!((from.stream().1, far.stream().1), (purpose, purpose));
            }
        }
        assert!(far.dropped().incoming > 0, "some had to make room");
        drop(open);
    }
}

#[test]
fn foreign_versions_are_told_ours() {
    let far = host(2);
    let mut socket = raw(far.address());
    let bytes = hello(Purpose::Control, 1, 1).encode_as(VERSION + 1);
    // Its body is not looked at, and may be longer than this version's.
    socket.write_all(&[&bytes[..], &[1; 5000]].concat()).unwrap();
    assert_eq!(answer(&socket), HelloAnswer::Declined(Declined::Version(VERSION)));
    drop(socket);
    far.wait_for("a refusal", |far| far.dropped() == EndpointDrops { declined: 1, ..EndpointDrops::default() });

    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    let mut reply = HelloAnswer::Declined(Declined::Version(VERSION)).encode();
    reply[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    for dials in [true, false] {
        match dials {
            true => far.dial(&address, None, PURPOSES[0]),
            false => send_numbered(&far, &address, 0),
        }
        let mut socket = listener.accept().unwrap().0;
        socket.write_all(&reply).unwrap();
        let (_, _, why) = far.failed();
        assert!(matches!(why, NetError::Declined { why: Declined::Version(v), .. } if v == VERSION + 1), "{why}");
    }
}

#[test]
fn messages_of_others_are_forged() {
    let far = host(2);
    let hello = hello(Purpose::Control, 5, 5);
    let mut socket = greeted(far.address(), &hello);
    let parts = ControlMessage::RowDescriptors {
        incarnation: 1,
        view: ViewId(1),
        from: MemberId(5),
        pid: 1,
        birth: Birth::default(),
        at: 0,
        bytes: 64,
        event: false,
        address: None,
        rack: None,
    };
    socket.write_all(&[bytes_of(&request(6, 1)), bytes_of(&parts), bytes_of(&request(5, 2))].concat()).unwrap();
    assert_eq!(far.message(), (hello.card, request(5, 2), vec![]));
    assert_eq!(far.dropped(), EndpointDrops { garbage: 1, forged: 1, ..EndpointDrops::default() });
    socket.write_all(&[0xff; 100]).unwrap();
    ends_by(socket);
    assert_eq!(far.dropped().garbage, 2);
}

/// A process that lost its connection dials again. Its earlier control messages are read first, and
/// half a control message does not count.
#[test]
fn a_second_connection_follows_the_first() {
    let far = host(2);
    let hello = hello(Purpose::Control, 5, 5);
    for round in 0..20 {
        let mut first = greeted(far.address(), &hello);
        let messages: Vec<u8> = (0..200).flat_map(|i| bytes_of(&request(5, i))).collect();
        first.write_all(&messages).unwrap();
        first.write_all(&bytes_of(&request(5, 200))[..10]).unwrap();
        let mut second = greeted(far.address(), &hello);
        second.write_all(&bytes_of(&request(5, 200))).unwrap();
        for i in 0..=200 {
            assert_eq!(far.message().1, request(5, i), "in round {round}");
        }
        ends_by(first);
    }
    assert_eq!(far.dropped(), EndpointDrops::default());
}

/// At whatever stage incoming connections misbehave or leave, others are served, and no trace is
/// left of them.
#[test]
fn noise_costs_only_its_sender() {
    let (near, far) = (host(1), host(2));
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    println!("replay: SEED={seed} cargo test -p spindle-transport noise_costs_only_its_sender");
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let purpose = if random() % 2 == 0 { Purpose::Control } else { PURPOSES[0] };
        let mut bytes = hello(purpose, 5, u128::from(random() % 3)).encode();
        if purpose == Purpose::Control {
            bytes.extend(bytes_of(&request(5, 1)));
        }
        for _ in 0..random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] ^= 1 << (random() % 8);
        }
        bytes.truncate(random() as usize % (2 * bytes.len()));
        let mut socket = raw(far.address());
        // It may have been closed.
        let _ = socket.write_all(&bytes);
        if random() % 2 == 0 {
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
        drop(socket);
        if round % 10 == 0 {
            send_numbered(&near, far.address(), round / 10);
            let wanted = loop {
                match far.next() {
                    NetEvent::ControlMessage { from, message, .. } if from == *near.card() => break message,
                    NetEvent::ControlMessage { from, .. } => assert_eq!(from.address.to_string().len(), 11, "{from:?}"),
                    NetEvent::Stream { .. } => {}
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(wanted, numbered(round / 10).0);
        }
    }
}
