//! Tests of the watch: the notices of deaths, of control messages and of a lost address.
use super::*;

#[test]
fn the_watch_notices_that_an_address_is_gone() {
    let town = Town::new();
    let (mut mine, _) = town.create(1);
    let (tell, notices) = channel();
    let watch = Watch::spawn(&mine, || (), move |notice| tell.send(notice).unwrap()).unwrap();
    remove_all(&town);
    assert_eq!(notices.recv_timeout(BOUND), Ok(Notice::Displaced));
    assert!(restore(&mut mine));
    watch.renew(&mine).unwrap();
    let other = town.join(2).0;
    assert_eq!(other.send(MemberId(1), &status(2, 1), &[]).unwrap(), SendOutcome::Done);
    let heard = std::iter::repeat_with(|| notices.recv_timeout(BOUND).unwrap());
    assert!(heard.into_iter().any(|notice| notice == Notice::Messages));
    assert_eq!(next(&mut mine).0, status(2, 1));
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
    assert_eq!(theirs.send(MemberId(1), &status(2, 0), &[]).unwrap(), SendOutcome::Done);
    assert_eq!(notices.recv_timeout(BOUND), Ok(Notice::Messages));
    // More arrives before it is read, and a death overtakes it.
    assert_eq!(theirs.send(MemberId(1), &status(2, 1), &[]).unwrap(), SendOutcome::Done);
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
    assert_eq!(theirs.send(MemberId(1), &status(2, 2), &[]).unwrap(), SendOutcome::Done);
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
    assert_eq!(theirs.send(MemberId(1), &status(2, 0), &[]).unwrap(), SendOutcome::Done);
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
