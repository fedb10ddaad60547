//! Tests of ports, addresses, calls and answers.
use super::*;

#[test]
fn the_status_is_reported() {
    if !is_here("tcp") {
        return;
    }
    let providers = available().unwrap();
    for provider in &providers {
        println!("{provider:?}");
    }
    let asked = options("tcp").provider;
    assert!(providers.iter().any(|provider| Some(&provider.name) == asked.as_ref() && provider.usable));
    let error = |name: &str| {
        let options = OfiOptions { provider: Some(name.to_string()), ..OfiOptions::default() };
        OfiPort::open(&options, 1).map(|_| ()).unwrap_err()
    };
    let none = error("nothing");
    assert!(matches!(&none, OfiError::NoProvider { there, .. } if there.contains(&asked.unwrap())), "{none}");
    assert!(providers.iter().all(|provider| !provider.usable || !provider.name.contains("sockets")));
    assert!(matches!(error("a\0b"), OfiError::NoProvider { .. }));
    for provider in providers.iter().filter(|provider| !provider.usable) {
        assert!(!["tcp", "verbs"].contains(&&*provider.name));
        let unsupported = error(&provider.name);
        assert!(matches!(&unsupported, OfiError::Unsupported { .. }), "{unsupported}");
    }
}

#[test]
fn addresses_survive_a_journey_and_garbage_is_none() {
    if !is_here("tcp") {
        return;
    }
    let port = port(1);
    let address = port.address();
    assert_eq!(OfiAddress::from_bytes(&address.to_bytes()).as_ref(), Some(address));
    for bytes in [&[][..], &[2, 0, 0, 0], &[0; 100]] {
        assert_eq!(OfiAddress::from_bytes(bytes), None);
    }
    let layout = layout(2);
    let other = OfiAddress::from_bytes(&[&address.to_bytes()[..], &[0]].concat()).unwrap();
    let error = Forming::new(port, &layout, 0, PURPOSE, [(1, other)]).unwrap_err();
    assert!(matches!(error, OfiError::Address { .. }), "{error}");
}

/// More connections than expected take another queue, in which they sleep as in the first.
#[test]
fn a_port_has_room_for_more_than_it_was_opened_for() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(6);
    let ranks: Vec<Rank> = (0..6).map(Rank).collect();
    let put = |fabric: &mut Mesh, at, value| {
        fabric.store(at, value);
        fabric.post(&ranks, at..at + 8);
    };
    let mut fabrics = connect_through(&layout, |_| port(1));
    for (value, from) in (7..).zip(0..fabrics.len()) {
        put(&mut fabrics[from], COUNT, value);
        settle(&mut fabrics);
        assert!(fabrics.iter().all(|fabric| fabric.load(Rank(from as u32), COUNT) == value));
    }
    let (mut near, rest) = (fabrics.remove(0), fabrics);
    std::thread::scope(|scope| {
        for (value, mut far) in (100..).zip(rest) {
            let put = &put;
            scope.spawn(move || {
                put(&mut far, OTHER, value);
                far.finish(PATIENCE);
            });
        }
        let start = Instant::now();
        while (1..6).any(|rank| near.load(Rank(rank), OTHER) != 99 + u64::from(rank)) {
            assert!(start.elapsed() < PATIENCE, "not all have arrived");
            near.begin_sleep();
            near.progress();
            near.sleep(PATIENCE);
        }
        near.finish(PATIENCE);
    });
}

#[test]
fn ip_of_version_6_carries_posts() {
    let address = Some(IpAddr::from(Ipv6Addr::LOCALHOST));
    let options = OfiOptions { provider: Some("tcp".to_string()), domain: None, address };
    if let Err(error) = OfiPort::open(&options, 1) {
        return println!("skipped: {error}");
    }
    let mut fabrics = connect_through(&layout(2), |peers| OfiPort::open(&options, peers).unwrap());
    put(&mut fabrics[0], COUNT, 7);
    settle(&mut fabrics);
    assert_eq!(fabrics[1].load(Rank(0), COUNT), 7);
}

#[test]
fn an_absent_member_has_a_row_of_zeros() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let forming = Forming::new(port(1), &layout, 0, PURPOSE, []).unwrap();
    let mut fabric = forming.finish(Duration::ZERO).unwrap();
    assert!((0..layout.row(Rank(1)).size).step_by(8).all(|at| fabric.load(Rank(1), at) == 0));
    put(&mut fabric, COUNT, 1);
    assert!(!fabric.is_connected(Rank(1)) && fabric.traffic(Rank(1)).is_none() && fabric.is_flushed());
    assert!(fabric.next_down().is_none() && !fabric.finish(Duration::ZERO));
}

/// Calls with garbage are refused, and the expected peer is connected all the same.
#[test]
fn garbage_for_a_greeting_is_refused() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let (mut forming, address) = expecting(&layout);
    let other_view = LinkPurpose { view: ViewId(2), ..PURPOSE };
    let good = hello(&layout);
    let mut foreign = good.encode();
    foreign[3] ^= 1;
    let from = |rank| OfiHello { from: Rank(rank), ..good }.encode().to_vec();
    let cases: [(Vec<u8>, IsTold); 7] = [
        (vec![0xff; 52], |why| matches!(why, HelloMismatch::NoHello { .. })),
        (vec![1, 2, 3, 4], |why| matches!(why, HelloMismatch::NoHello { .. })),
        (foreign.to_vec(), |why| matches!(why, HelloMismatch::NoHello { .. })),
        (OfiHello { purpose: other_view, ..good }.encode().to_vec(), |why| {
            matches!(why, HelloMismatch::Purpose { .. })
        }),
        (OfiHello { row: 8, ..good }.encode().to_vec(), |why| matches!(why, HelloMismatch::Lengths)),
        (from(1), |why| matches!(why, HelloMismatch::From { .. })),
        (from(9), |why| matches!(why, HelloMismatch::From { .. })),
    ];
    let stranger = Stranger::new();
    for (i, (data, is_told)) in cases.iter().enumerate() {
        let endpoint = stranger.call(&address, data);
        let event = stranger.event(|| assert!(!forming.progress().unwrap(), "nobody has come"));
        let refused = matches!(event, ConnectionEvent::Failed { .. } | ConnectionEvent::Shutdown { .. });
        assert!(refused, "case {i}: {event:?}");
        let why = forming.meeting.refused().last().expect("it was refused here");
        assert!(is_told(why), "case {i}: {why}");
        drop(endpoint);
    }
    let mut caller = Forming::new(port(1), &layout, 0, PURPOSE, [(1, address.clone())]).unwrap();
    let start = Instant::now();
    while !(caller.progress().unwrap() & forming.progress().unwrap()) {
        assert!(start.elapsed() < PATIENCE, "the member is not let in");
        std::thread::yield_now();
    }
    // A member that calls again has lost its connection.
    let endpoint = stranger.call(&address, &good.encode());
    let event = stranger.event(|| _ = forming.progress().unwrap());
    assert!(matches!(event, ConnectionEvent::Connected { .. }), "{event:?}");
    drop(endpoint);
}

/// The process that answers for a member has to be that member.
#[test]
fn garbage_for_an_answer_is_told() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let stranger = Stranger::new();
    let rows = (layout.row(Rank(1)), layout.row(Rank(0)));
    let me = OfiHello::new(PURPOSE, Rank(1), rows.0, rows.1, RingTarget { address: 0, key: 1 });
    for data in [vec![0xee; 52], vec![], OfiHello { from: Rank(0), ..me }.encode().to_vec()] {
        let port = port(1);
        let address = stranger.address(port.address());
        let mut caller = Forming::new(port, &layout, 0, PURPOSE, [(1, address)]).unwrap();
        let event = stranger.event(|| _ = caller.progress().unwrap());
        let ConnectionEvent::Request { info, data: said } = event else { panic!("{event:?}") };
        assert!(OfiHello::read(&said, PURPOSE, Rank(1), layout.rows()).is_ok());
        let endpoint = stranger.adapter.endpoint_for(0, &info).unwrap();
        endpoint.accept(&data).unwrap();
        let start = Instant::now();
        let error = loop {
            assert!(start.elapsed() < PATIENCE, "garbage is no answer");
            match caller.progress() {
                Ok(connected) => assert!(!connected),
                Err(error) => break error,
            }
            let _ = stranger.adapter.event().unwrap();
        };
        assert!(matches!(error, OfiError::Stranger { rank: Rank(1), .. }), "{error}");
    }
}

#[test]
fn a_member_of_another_view_refuses() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let (mut forming, address) = expecting(&layout);
    let other = LinkPurpose { incarnation: 1, ..PURPOSE };
    let mut caller = Forming::new(port(1), &layout, 0, other, [(1, address)]).unwrap();
    let start = Instant::now();
    let error = loop {
        assert!(start.elapsed() < PATIENCE && !forming.progress().unwrap());
        match caller.progress() {
            Ok(connected) => assert!(!connected),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, OfiError::Refused { rank: Rank(1), .. }), "{error}");
}

/// No member waits for ever: neither for a peer that does not come, nor at an address without a
/// listener.
#[test]
fn meetings_are_bounded() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(3);
    let gone = port(1).address().clone();
    let forming = Forming::new(port(1), &layout, 1, PURPOSE, [(0, gone.clone())]).unwrap();
    let error = forming.finish(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(&error, OfiError::TimedOut { missing, .. } if *missing == [0]), "{error}");
    let error = match Forming::new(port(1), &layout, 0, PURPOSE, [(2, gone)]) {
        Ok(forming) => forming.finish(Duration::from_secs(5)).unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, OfiError::Refused { rank: Rank(2), .. } | OfiError::TimedOut { .. }), "{error}");
}

/// A failed call costs only time: it is made again, and data in flight for the first does not
/// affect the second.
#[test]
fn a_call_that_failed_can_be_made_again() {
    if !is_here("tcp") {
        return;
    }
    let layout = layout(2);
    let gone = port(1).address().clone();
    let (mut forming, address) = expecting(&layout);
    let mut caller = Forming::new(port(1), &layout, 0, PURPOSE, []).unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        let error = match caller.meeting.call(Rank(1), &gone) {
            Ok(()) => loop {
                assert!(start.elapsed() < PATIENCE, "nobody is there");
                match caller.progress() {
                    Ok(connected) => assert!(!connected),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        assert!(matches!(error, OfiError::Refused { rank: Rank(1), .. }), "{error}");
        assert!(!caller.meeting.is_connected(Rank(1)));
    }
    caller.meeting.call(Rank(1), &address).unwrap();
    // A second call has no effect.
    caller.meeting.call(Rank(1), &address).unwrap();
    let start = Instant::now();
    while !(caller.progress().unwrap() & forming.progress().unwrap()) {
        assert!(start.elapsed() < PATIENCE, "the member is not let in");
        std::thread::yield_now();
    }
    let mut fabrics = [caller, forming].map(|forming| forming.finish(PATIENCE).unwrap());
    put(&mut fabrics[0], COUNT, 7);
    settle(&mut fabrics);
    assert_eq!(fabrics[1].load(Rank(0), COUNT), 7);
}
