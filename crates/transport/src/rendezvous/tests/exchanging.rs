//! Tests of members that give their row descriptors to all others, as in a view change.
use super::*;

const MANY: u64 = 64;

/// Gives this member's row descriptors to all others of `many` and gets theirs, as in a view
/// change.
fn exchange(control_socket: &mut ControlSocket, fds: &[Arc<OwnedFd>], many: u64) -> Vec<(MemberId, Vec<OwnedFd>)> {
    let until = Instant::now() + BOUND;
    let mut outbox = Outbox::new();
    // Each begins with its neighbour, so that not all send to the same one at once.
    let others = (0..many - 1).map(|i| MemberId((control_socket.id().0 + i) % many + 1));
    others.for_each(|id| outbox.push(id, parts(control_socket.id(), 2), fds).unwrap());
    let mut got = Vec::new();
    loop {
        assert!(outbox.flush(control_socket).unwrap().is_empty());
        while let Some((message, fds)) = control_socket.receive() {
            let ControlMessage::RowDescriptors { from, view: ViewId(2), .. } = message else { panic!("{message:?}") };
            got.push((from, fds));
        }
        if got.len() as u64 == many - 1 && outbox.is_empty() {
            return got;
        }
        assert!(Instant::now() < until);
        readable(&*control_socket, outbox.patience().unwrap_or(BOUND));
    }
}

fn check(me: MemberId, got: &[(MemberId, Vec<OwnedFd>)], many: u64) {
    let mut ids: Vec<_> = got.iter().map(|(id, _)| id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=many).filter(|id| *id != me.0).collect::<Vec<_>>());
    for (id, fds) in got {
        assert_eq!(load(&fds[0]), id.0);
    }
}

pub(super) fn exchange_as_child(control_socket: &mut ControlSocket, many: u64) {
    let (_own, fds) = memory(control_socket.id());
    say("ready");
    wait_for_input();
    let start = Instant::now();
    let got = exchange(control_socket, &fds, many);
    say(&format!("done {}", start.elapsed().as_micros()));
    // Not before all are done, so that the measured times are right.
    wait_for_input();
    check(control_socket.id(), &got, many);
    assert_eq!(control_socket.dropped(), ControlSocketDrops::default());
    say("right");
    wait_for_input();
}

fn processes_trade(many: u64) {
    let town = Town::new();
    let role = format!("exchange {many}");
    let mut processes: Vec<_> = (1..=many).map(|id| Process::start(&town, &role, id)).collect();
    processes.iter_mut().for_each(|process| drop(process.says("ready")));
    let start = Instant::now();
    processes.iter_mut().for_each(Process::tell);
    let mut took: Vec<u64> = processes.iter_mut().map(|process| process.says("done").parse().unwrap()).collect();
    let total = start.elapsed();
    took.sort_unstable();
    println!(
        "{many} processes traded their parts in {total:?}; one took {} us in the median, {} us at most",
        took[took.len() / 2],
        took[took.len() - 1]
    );
    processes.iter_mut().for_each(Process::tell);
    processes.iter_mut().for_each(|process| drop(process.says("right")));
}

#[test]
fn three_and_eight_processes_trade_all_to_all() {
    processes_trade(3);
    processes_trade(8);
}

#[test]
fn sixty_four_processes_trade_all_to_all() {
    processes_trade(MANY);
}

#[test]
fn forty_eight_threads_trade_all_to_all() {
    // With those in transit, they have 20 thousand descriptors when there are 64.
    const THREADS: u64 = 48;
    raise_fd_limit();
    let town = Town::new();
    let control_sockets: Vec<_> = (1..=THREADS).map(|id| town.open(id)).collect();
    let barrier = Arc::new(Barrier::new(THREADS as usize));
    let threads = control_sockets.into_iter().map(|mut control_socket| {
        let barrier = Arc::clone(&barrier);
        spawn(move || {
            let (_own, fds) = memory(control_socket.id());
            barrier.wait();
            let start = Instant::now();
            let got = exchange(&mut control_socket, &fds, THREADS);
            let took = start.elapsed();
            // No address is given up while others may still send to it.
            barrier.wait();
            check(control_socket.id(), &got, THREADS);
            took
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut took: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    took.sort_unstable();
    println!(
        "{THREADS} threads traded their parts; one took {:?} in the median, {:?} at most",
        took[took.len() / 2],
        took[took.len() - 1]
    );
}
