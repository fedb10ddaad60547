//! Tests of endpoints that use TLS.
use super::*;

#[test]
fn messages_arrive_over_tls() {
    for listen in [LOOPBACK, "[::1]:0"] {
        let (near, far) = secured_pair(listen);
        for number in 0..500 {
            send_numbered(&near, far.address(), number);
            send_numbered(&far, near.address(), number);
        }
        expect_numbered(&far, near.card(), 0..500);
        expect_numbered(&near, far.card(), 0..500);
        let attachment: Vec<u8> = (0..20_000_000_u32).map(|i| (i ^ i >> 8) as u8).collect();
        let message = ControlMessage::Answer { reply: 1, bytes: 20_000_000 };
        near.send(far.address(), None, &message, &attachment);
        let (_, _, came) = far.message();
        assert!(came == attachment);
        near.forget(far.address());
        far.forget(near.address());
        let card = near.card().clone();
        (0..900).for_each(|number| send_numbered(&near, far.address(), number));
        drop(near);
        expect_numbered(&far, &card, 0..900);
        assert_eq!(far.dropped(), EndpointDrops::default());
    }
}

#[test]
fn streams_over_tls_lose_nothing() {
    let (near, far) = secured_pair(LOOPBACK);
    for purpose in PURPOSES {
        near.dial(far.address(), Some(MemberId(2)), purpose);
        let (with, what, mut there, _) = far.stream();
        assert_eq!((&with, what), (near.card(), purpose));
        write_all(&mut *there, b"first");
        let (_, _, mut here, _) = near.stream();
        write_all(&mut *here, &[7; 100_000]);
        assert_eq!(read_exactly(&mut *here, 5), b"first");
        assert_eq!(read_exactly(&mut *there, 100_000), vec![7; 100_000]);
    }
}

/// TLS refuses dials from `near` and to it, whichever of the two rejects the other, and the other
/// continues to work.
fn tls_fails_between(near: &Host, far: &Host) {
    for (from, to) in [(near, far), (far, near)] {
        fails_for(from, to.address(), None, |why| matches!(why, NetError::Tls { .. }));
        to.wait_for("two strangers", |to| to.dropped().incoming >= 2);
        assert!(to.receive().is_none());
    }
}

#[test]
fn certificates_of_another_authority_do_not_count() {
    tls_fails_between(
        &secured(1, LOOPBACK, Authority::new().identity()),
        &secured(2, LOOPBACK, Authority::new().identity()),
    );
}

#[test]
fn certificates_have_their_time() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let expired = authority.sign("expired", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let old = secured(1, LOOPBACK, authority.load_in(2000, &expired));
    tls_fails_between(&old, &far);
    far.dial(old.address(), None, PURPOSES[0]);
    let why = far.failed().2.reason();
    assert_eq!(why, "no TLS: invalid peer certificate: it expired at 2001-01-01 00:00:00 UTC");
    let early = authority.sign("early", |params| params.not_before = rcgen::date_time_ymd(4000, 1, 1));
    tls_fails_between(&secured(3, LOOPBACK, authority.load_in(4001, &early)), &far);
    // A valid certificate works.
    let near = secured(4, LOOPBACK, authority.identity());
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
}

/// Creates a certificate with this DNS name.
fn named(authority: &Authority, name: &str) -> Identity {
    let san = rcgen::SanType::DnsName(name.try_into().unwrap());
    authority.load(&authority.sign(name, |params| params.subject_alt_names = vec![san]))
}

#[test]
fn a_certificate_is_good_for_the_ids_that_it_names() {
    let authority = Authority::new();
    let strict = |name| named(&authority, name).with_rule(IdentityRule::Names);
    let near = secured(1, LOOPBACK, strict("spindle-member-1"));
    let far = secured(2, LOOPBACK, strict("spindle-member-2"));
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    let own = |id, name| refused(EndpointOptions { security: Security::Tls(strict(name)), ..options(id, LOOPBACK) });
    for (id, name) in [(3, "spindle-member-1"), (1, "spindle-member-11"), (CLIENT_IDS_FROM, "spindle-member-1")] {
        let why = own(id, name);
        assert!(matches!(why, NetError::OwnIdentity { id: MemberId(found) } if found == id), "{why}");
    }
    // A process that does not check its own certificate.
    for id in [3, CLIENT_IDS_FROM] {
        let impostor = secured(id, LOOPBACK, named(&authority, "spindle-member-1"));
        let is_declined =
            |why: &NetError| matches!(why, NetError::Declined { why: Declined::Identity(of), .. } if of.0 == id);
        fails_for(&impostor, far.address(), None, is_declined);
        fails_for(&far, impostor.address(), None, |why| matches!(why, NetError::Identity { id: of, .. } if of.0 == id));
    }
    let judge = secured(CLIENT_IDS_FROM + 1, LOOPBACK, strict("spindle-admin"));
    send_numbered(&judge, far.address(), 0);
    expect_numbered(&far, judge.card(), 0..1);
}

#[test]
fn an_open_endpoint_shows_a_certificate_that_was_renewed() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let files = authority.sign("renewed", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let near = secured(1, LOOPBACK, authority.load_in(2000, &files));
    tls_fails_between(&near, &far);
    authority.sign("renewed", |_| {});
    let start = Instant::now();
    loop {
        near.dial(far.address(), None, PURPOSES[0]);
        match near.next() {
            NetEvent::Stream { .. } => break,
            NetEvent::Failed { why, .. } => assert!(start.elapsed() < PATIENCE, "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_peer_without_certificate_is_refused() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let nameless = authority.identity().without_certificate();
    let near = secured(1, LOOPBACK, nameless);
    fails_for(&near, far.address(), None, |why| matches!(why, NetError::Tls { .. }));
    assert!(far.receive().is_none());
}

#[test]
fn with_tls_and_without_do_not_mix() {
    let (plain, far) = (host(1), secured(2, LOOPBACK, Authority::new().identity()));
    for (from, to) in [(&plain, &far), (&far, &plain)] {
        from.dial(to.address(), None, PURPOSES[0]);
        let why = from.failed().2;
        assert!(matches!(why, NetError::Incoming { .. }), "{why}");
        to.wait_for("a stranger", |to| to.dropped().incoming == 1);
    }
}

#[test]
fn refusals_are_told_over_tls() {
    let authority = Authority::new();
    let far = secured(2, LOOPBACK, authority.identity());
    let twin = secured(2, LOOPBACK, authority.identity());
    let named = |why: &NetError| matches!(why, NetError::Declined { why: Declined::IdConflict(MemberId(2)), .. });
    fails_for(&twin, far.address(), None, named);
    fails_for(&far, far.address(), None, |why| matches!(why, NetError::Myself { .. }));
}

#[test]
fn with_tls_one_may_listen_off_the_host() {
    let advertise = Some("127.0.0.1:0".parse().unwrap());
    let authority = Authority::new();
    let security = Security::Tls(authority.identity());
    let far = open(EndpointOptions { security, advertise, ..options(2, "0.0.0.0:0") });
    let near = secured(1, LOOPBACK, authority.identity());
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
}

/// Incoming connections that begin as TLS does, or not, and leave or stay.
#[test]
fn noise_before_tls_costs_only_its_sender() {
    let (near, far) = secured_pair(LOOPBACK);
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    println!("replay: SEED={seed} cargo test -p spindle-transport noise_before_tls");
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // A connection that has said who it is keeps its slot.
    send_numbered(&near, far.address(), 0);
    expect_numbered(&far, near.card(), 0..1);
    let mut stay = vec![];
    for round in 0..200_u64 {
        let mut bytes: Vec<u8> = (0..random() % 600).map(|_| random() as u8).collect();
        if random() % 3 > 0 {
            // The head of a record of a handshake, or of an alert.
            let record = [21 + (random() % 3) as u8, 3, 1, 0, (random() % 256) as u8, 1];
            bytes.splice(0..0, record);
        }
        let mut socket = raw(far.address());
        let _ = socket.write_all(&bytes);
        if random() % 4 == 0 {
            stay.push(socket);
        }
        if round % 10 == 0 {
            send_numbered(&near, far.address(), 1 + round / 10);
        }
    }
    expect_numbered(&far, near.card(), 1..21);
    stay.into_iter().for_each(ends_by);
    far.wait_for("all of them", |far| far.dropped() == EndpointDrops { incoming: 200, ..EndpointDrops::default() });
}

/// Control messages that the connection held back when it broke are lost, and no caller waits for
/// them.
#[test]
fn a_loss_over_tls_is_told_once() {
    let authority = Authority::new();
    let socket = SocketOptions { send_buffer_bytes: Some(1), ..SocketOptions::default() };
    let security = Security::Tls(authority.identity());
    let near = open(EndpointOptions { security, socket, ..options(1, LOOPBACK) });
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 16 << 10).unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    near.send(&address, None, &ControlMessage::Answer { reply: 1, bytes: 200_000 }, &[7; 200_000]);
    let far = SocketStream::new(listener.accept().unwrap().0, &SocketOptions::default()).unwrap();
    let mut far = TlsStream::new(far, &authority.identity(), false).unwrap();
    let head = read_exactly(&mut far, 16);
    read_exactly(&mut far, u32::from_le_bytes(*head.last_chunk().unwrap()) as usize);
    let card = hello(Purpose::Control, 2, 2).card;
    write_all(&mut far, &HelloAnswer::Welcome(card.clone(), 77).encode());
    // It has begun to leave, and is accepted whole once the sender does something else.
    read_exactly(&mut far, 1);
    let other = secured(3, LOOPBACK, authority.identity());
    send_numbered(&other, near.address(), 0);
    expect_numbered(&near, other.card(), 0..1);
    drop((far, listener));
    assert_eq!(near.lost(), card);
    let (_kept, nobody) = deserted();
    send_numbered(&near, &nobody, 0);
    assert_eq!(near.failed().0, nobody);
}
