//! Tests of connections that are not established: absent, silent and wrong peers.
use super::*;

#[test]
fn an_absent_peer_fails_its_messages_and_dials() {
    let near = host(1);
    let (_kept, nobody) = deserted();
    near.dial(&nobody, None, PURPOSES[1]);
    let (address, purpose, why) = near.failed();
    assert_eq!((&address, purpose), (&nobody, PURPOSES[1]));
    assert!(matches!(why, NetError::Connect { .. }), "{why}");
    send_numbered(&near, &nobody, 1);
    let (address, purpose, why) = near.failed();
    assert_eq!((&address, purpose), (&nobody, Purpose::Control));
    assert!(matches!(why, NetError::Connect { .. }), "{why}");
    let no_path: Address = "unix:/nonexistent/spindle".parse().unwrap();
    near.dial(&no_path, None, PURPOSES[1]);
    assert!(matches!(near.failed().2, NetError::Connect { .. }));
    let nowhere = Names::known_by(|_| Err(io::ErrorKind::NotFound.into()));
    let near = open(EndpointOptions { names: nowhere, ..options(2, LOOPBACK) });
    near.dial(&"name:1".parse().unwrap(), None, PURPOSES[1]);
    let why = near.failed().2;
    assert!(matches!(why, NetError::Resolve { .. }), "{why}");
}

#[test]
fn why_messages_wait_is_told_before_they_are_given_up() {
    let near = host(1);
    let (_kept, nobody) = deserted();
    send_numbered(&near, &nobody, 1);
    let start = Instant::now();
    let mut delays = 0;
    loop {
        assert!(start.elapsed() < PATIENCE, "told {delays} times");
        match near.endpoint.receive() {
            Some(NetEvent::Delayed { address, why }) => {
                assert_eq!((address, why.starts_with("Connection refused")), (nobody.clone(), true), "{why}");
                delays += 1;
            }
            Some(NetEvent::Failed { why, .. }) => break assert!(matches!(why, NetError::Connect { .. }), "{why}"),
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
    assert!(delays > 1);
}

#[test]
fn a_name_is_looked_up_with_all_its_addresses_and_by_one_at_a_time() {
    let (asked, was_asked) = channel();
    let (answer, answers) = channel::<io::Result<Vec<IpAddr>>>();
    let answers = Mutex::new(answers);
    let names = Names::known_by(move |host| {
        asked.send(host.to_string()).unwrap();
        answers.lock().unwrap().recv().unwrap()
    });
    let near = open(EndpointOptions { names, ..options(1, LOOPBACK) });
    let looked_up = |address: &str| match near.next() {
        NetEvent::LookedUp { address: of, found } if of.to_string() == address => found,
        other => panic!("{other:?}"),
    };
    let many: Vec<IpAddr> = (1..=100).map(|last| Ipv4Addr::new(127, 0, 0, last).into()).collect();
    for name in ["many:7", "many:7", "127.0.0.1:9"] {
        near.look_up(&name.parse().unwrap());
    }
    // It is asked last and answered first, because it waits for no resolver.
    assert_eq!(looked_up("127.0.0.1:9").unwrap(), ["127.0.0.1:9".parse().unwrap()]);
    answer.send(Ok(many.clone())).unwrap();
    let expected: Vec<Address> = many.into_iter().map(|ip| SocketAddr::new(ip, 7).into()).collect();
    assert_eq!(looked_up("many:7").unwrap(), expected);
    assert_eq!(was_asked.try_iter().collect::<Vec<_>>(), ["many"]);
    answer.send(Err(io::ErrorKind::TimedOut.into())).unwrap();
    near.look_up(&"many:7".parse().unwrap());
    assert!(matches!(looked_up("many:7"), Err(NetError::Resolve { .. })));
}

#[test]
fn a_connected_silent_peer_is_given_up() {
    let near = host(1);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    near.dial(&address, None, PURPOSES[1]);
    let socket = listener.accept().unwrap().0;
    let why = near.failed().2;
    assert!(matches!(why, NetError::TimedOut { what: "say who it is", .. }), "{why}");
    ends_by(socket);
}

#[test]
fn a_peer_with_an_unknown_answer_is_foreign() {
    let near = host(1);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    let echo = hello(PURPOSES[1], 1, 1).encode();
    for reply in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", &echo] {
        near.dial(&address, None, PURPOSES[1]);
        let mut socket = listener.accept().unwrap().0;
        // Read, so that the end is an end and not a reset.
        let mut head = [0; 16];
        socket.read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_le_bytes(*head.last_chunk().unwrap()) as usize];
        socket.read_exact(&mut body).unwrap();
        socket.write_all(reply).unwrap();
        drop(socket);
        let why = near.failed().2;
        assert!(matches!(why, NetError::Incoming { .. }), "{why}");
    }
}

#[test]
fn a_foreign_process_is_refused() {
    let far = host(2);
    let other = GroupName::new("other").unwrap();
    let incoming = open(EndpointOptions { group: other, ..options(1, LOOPBACK) });
    let group = |why: &Declined| matches!(why, Declined::Group(group) if group.as_str() == "net-tests");
    fails_for(&incoming, far.address(), None, |why| matches!(why, NetError::Declined { why, .. } if group(why)));
    let twin = host(2);
    let named = |why: &Declined| *why == Declined::IdConflict(MemberId(2));
    fails_for(&twin, far.address(), None, |why| matches!(why, NetError::Declined { why, .. } if named(why)));
    far.wait_for("four refusals", |far| far.dropped() == EndpointDrops { declined: 4, ..EndpointDrops::default() });
}

#[test]
fn the_wanted_process_is_another() {
    let (near, far) = (host(1), host(2));
    let wanted = Some(MemberId(7));
    let elsewhere = |why: &NetError| matches!(why, NetError::Elsewhere { wanted: MemberId(7), found: MemberId(2), .. });
    fails_for(&near, far.address(), wanted, elsewhere);
    // This has no effect on control messages to others, before or after.
    near.send(far.address(), Some(MemberId(2)), &numbered(0).0, &[]);
    expect_numbered(&far, near.card(), 0..1);
    fails_for(&near, far.address(), wanted, elsewhere);
    send_numbered(&near, far.address(), 1);
    expect_numbered(&far, near.card(), 1..2);
}

#[test]
fn a_process_that_dials_itself_learns_it() {
    let near = open(EndpointOptions {
        listen: vec![LOOPBACK.parse().unwrap(), "[::1]:0".parse().unwrap()],
        ..options(1, LOOPBACK)
    });
    let myself = |why: &NetError| matches!(why, NetError::Myself { .. });
    fails_for(&near, near.address(), None, myself);
    fails_for(&near, near.address(), Some(MemberId(1)), myself);
    let by_name: Address = format!("localhost:{}", near.address().port().unwrap()).parse().unwrap();
    fails_for(&near, &by_name, None, myself);
}

#[test]
fn without_tls_nothing_leaves_the_host_unless_said() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let why = refused(options(1, address));
        assert!(matches!(why, NetError::Insecure { .. }), "{why}");
    }
    let near = host(1);
    let away: Address = "192.0.2.1:9".parse().unwrap();
    fails_for(&near, &away, None, |why| matches!(why, NetError::Insecure { .. }));
    let insecure = EndpointOptions { security: Security::Insecure, ..options(2, "0.0.0.0:0") };
    let why = refused(insecure.clone());
    assert!(matches!(why, NetError::Advertise { .. }), "{why}");
    let far = open(EndpointOptions { advertise: Some("127.0.0.1:0".parse().unwrap()), ..insecure });
    assert!(far.address().port().is_some_and(|port| port != 0));
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
}

#[test]
fn an_address_that_cannot_be_bound_is_reported() {
    let nowhere = EndpointOptions { listen: vec![], ..options(1, LOOPBACK) };
    assert!(matches!(refused(nowhere), NetError::Nowhere));
    let far = host(2);
    let why = refused(options(1, &far.address().to_string()));
    assert!(matches!(why, NetError::Listen { .. }), "{why}");
    let temp = TempDir::new();
    let unix = format!("unix:{}", temp.path().join("a").display());
    let advertise = Some("127.0.0.1:0".parse().unwrap());
    let why = refused(EndpointOptions { advertise, ..options(1, &unix) });
    assert!(matches!(why, NetError::Advertise { .. }), "{why}");
}

#[test]
fn paths_of_the_dead_are_taken_over_and_others_are_not() {
    let temp = TempDir::new();
    let path = temp.path().join("socket");
    let unix = format!("unix:{}", path.display());
    drop(UnixListener::bind(&path).unwrap());
    let far = open(options(2, &unix));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(refused(options(1, &unix)), NetError::Listen { .. }));
    assert!(UnixStream::connect(&path).is_ok());
    drop(far);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(refused(options(1, &unix)), NetError::Listen { .. }));
    assert!(path.exists());
}
