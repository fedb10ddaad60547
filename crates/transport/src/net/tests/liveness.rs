//! Tests of processes that watch each other: how the end of one is known.
use super::*;

/// A process with an endpoint, of member 2. It uses TLS if files for that are given.
struct Other(Child, Address, #[expect(dead_code, reason = "it would end by writing to nobody")] BufReader<ChildStdout>);

impl Other {
    fn start(files: Option<(&Path, &(PathBuf, PathBuf))>) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "net::tests::liveness::child", "--ignored", "--nocapture", "--test-threads=1"]);
        process.env("NET_CHILD", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some((authority, (certificate, key))) = files {
            process.env("NET_CA", authority).env("NET_CERTIFICATE", certificate).env("NET_KEY", key);
        }
        let mut process = process.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let lines = output.by_ref().lines().map_while(Result::ok);
        let address = lines.filter_map(|line| line.strip_prefix("listens at ")?.parse().ok()).next();
        Other(process, address.expect("it has an endpoint"), output)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the program that [`Other`] runs.
#[test]
#[ignore = "other tests start it"]
fn child() {
    if std::env::var_os("NET_CHILD").is_none() {
        return;
    }
    let file = |name| std::env::var_os(name).map(PathBuf::from);
    let host = match (file("NET_CA"), file("NET_CERTIFICATE"), file("NET_KEY")) {
        (Some(authority), Some(certificate), Some(key)) => {
            secured(2, LOOPBACK, Identity::load(&authority, &certificate, &key).unwrap())
        }
        _ => host(2),
    };
    println!("\nlistens at {}", host.address());
    // Runs until it is killed, or until its input ends or has a byte, as a request to leave.
    let _ = io::stdin().read(&mut [0]);
}

#[test]
fn the_end_of_a_watched_process_is_known_and_a_leaver_has_not_ended() {
    let near = host(1);
    // Requests may come to these processes after their ends.
    let mut gone = vec![];
    for _ in 0..2 {
        let mut leaves = Other::start(None);
        near.watch(&leaves.1, MemberId(2), 7, ViewId(3));
        assert_eq!(near.watched_despite(&gone).id, MemberId(2));
        gone.push(leaves.1.clone());
        // A second request is no second watch.
        near.watch(&leaves.1, MemberId(2), 7, ViewId(3));
        leaves.0.stdin.take().unwrap().write_all(b"x").unwrap();
        assert!(leaves.0.wait().unwrap().success());
        let dies = Other::start(None);
        // Until this process notices that the one that has left is watched no more.
        let start = Instant::now();
        let with = loop {
            near.watch(&dies.1, MemberId(2), 7, ViewId(3));
            match near.receive() {
                Some(NetEvent::Watched { with }) => break with,
                // The second request may come when the first process has left already.
                Some(NetEvent::Answers { .. } | NetEvent::Failed { purpose: LIFE, .. }) => {}
                Some(other) => panic!("{other:?}"),
                None => assert!(start.elapsed() < PATIENCE),
            }
        };
        assert_eq!(with.address, dies.1);
        gone.push(dies.1.clone());
        drop(dies);
        assert_eq!(near.ended_despite(&gone), with);
        // No process answers there any more.
        near.check(&with.address, MemberId(2), 7, ViewId(3));
        assert!(matches!(near.next(), NetEvent::Failed { purpose: LIFE, .. }));
    }
    let is_late = |event| matches!(event, NetEvent::Failed { address, purpose: LIFE, .. } if gone.contains(&address));
    assert!(std::iter::from_fn(|| near.receive()).all(is_late));
}

#[test]
fn a_process_that_lives_answers_when_its_watch_has_ended() {
    let far = host(2);
    let mut socket = greeted(far.address(), &hello(LIFE, 1, 1));
    socket.write_all(&[1, 3]).unwrap();
    assert_eq!(far.watched().id, MemberId(1));
    drop(socket);
    assert_eq!(far.ended().id, MemberId(1));
    let near = host(1);
    far.check(near.address(), MemberId(1), 7, ViewId(3));
    assert_eq!((far.watched(), near.watched()), (near.card().clone(), far.card().clone()));
}

#[test]
fn over_tls_the_end_of_a_watched_process_is_known() {
    let authority = Authority::new();
    let near = secured(1, LOOPBACK, authority.identity());
    let dies = Other::start(Some((&authority.path("ca.pem"), &authority.sign("other", |_| {}))));
    near.watch(&dies.1, MemberId(2), 7, ViewId(3));
    let with = near.watched();
    drop(dies);
    assert_eq!(near.ended(), with);
}

#[test]
fn each_watches_over_the_other_until_one_does_not_want_to() {
    let (near, far) = (host(1), host(2));
    near.watch(far.address(), MemberId(2), 7, ViewId(3));
    assert_eq!((near.watched(), far.watched()), (far.card().clone(), near.card().clone()));
    // The process is known from its hello.
    far.watch(near.address(), MemberId(1), 7, ViewId(3));
    near.unwatch(MemberId(2));
    // A new watch can begin as soon as the other side knows the end of the first one, which is not
    // taken for a death.
    let start = Instant::now();
    while far.receive().is_none_or(|event| !matches!(event, NetEvent::Watched { .. })) {
        near.watch(far.address(), MemberId(2), 7, ViewId(3));
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(near.watched(), *far.card());
}

/// Peers that are watched, or are to be watched, and do not follow the protocol.
#[test]
fn a_stranger_on_a_watch_does_no_harm() {
    let far = host(2);
    for said in [&[][..], &[1], &[1, 3, 2], &[9; 100]] {
        let mut socket = greeted(far.address(), &hello(LIFE, 1, 1));
        socket.write_all(said).unwrap();
        if said.len() == 3 {
            assert_eq!(far.watched().id, MemberId(1));
        } else {
            assert!(matches!(far.next(), NetEvent::Answers { .. }));
        }
        // The peer may have closed it already.
        let _ = socket.shutdown(Shutdown::Write);
        ends_by(socket);
    }
    let mut socket = greeted(far.address(), &hello(LIFE, 3, 1));
    socket.write_all(&[1, 3]).unwrap();
    assert_eq!(far.watched().id, MemberId(3));
    // Before the bytes were read, the end might be one with unread bytes, as that of a process is,
    // too.
    drop(socket);
    assert_eq!(far.ended().id, MemberId(3));
    assert!(far.receive().is_none());
}
