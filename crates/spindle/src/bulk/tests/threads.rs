//! Tests of groups that a thread polls.
use super::*;

/// Groups of the same members, one for each root, and each member's thread with its part of all of
/// them.
struct Threads {
    threads: Vec<BulkThread>,
    /// By member and root.
    groups: Vec<Vec<BulkGroup>>,
    told: Vec<Receiver<(usize, Upcall)>>,
}

fn threads(members: u32, waiting: BulkWaiting, kind: Kind) -> Threads {
    let settings = settings(Algorithm::BinomialPipeline);
    let mut threads: Vec<BulkThread> = vec![];
    let mut groups: Vec<Vec<BulkGroup>> = vec![];
    let (senders, told): (Vec<_>, Vec<_>) = (0..members).map(|_| channel()).unzip();
    for _ in 0..members {
        threads.push(BulkThread::start(waiting).unwrap());
        groups.push(vec![]);
    }
    for root in 0..members {
        for (me, node) in nodes(members, root, &settings, kind).into_iter().enumerate() {
            let upcalls = Reported { upcalls: senders[me].clone(), group: root as usize };
            groups[me].push(threads[me].run(node, upcalls).unwrap());
        }
    }
    Threads { threads, groups, told }
}

#[test]
fn all_send_at_once_on_threads_however_these_wait() {
    let spin = BulkWaiting::Hybrid { spin_for: Duration::from_micros(200) };
    for (waiting, kind) in [(BulkWaiting::Interrupt, Kind::Unix), (spin, Kind::Tcp), (BulkWaiting::Polling, Kind::Unix)]
    {
        let members = 4;
        let Threads { threads, groups, told } = threads(members, waiting, kind);
        let bytes = |root: usize, object: u64| 37 * BLOCK * object + 11 * root as u64;
        for object in 0..2 {
            for (root, groups) in groups.iter().enumerate() {
                let data = content(object, bytes(root, object));
                assert_eq!(groups[root].send(data).unwrap(), ObjectId(object));
            }
        }
        for (me, told) in told.iter().enumerate() {
            let mut complete: BTreeMap<usize, u64> = BTreeMap::new();
            let mut everywhere = 0;
            while complete.values().sum::<u64>() < 2 * u64::from(members) || everywhere < 2 {
                match told.recv_timeout(PATIENCE).unwrap() {
                    (root, Upcall::Complete(object, data)) => {
                        let next = complete.entry(root).or_default();
                        assert_eq!(object, *next);
                        assert!(*data == *content(object, bytes(root, object)));
                        *next += 1;
                    }
                    (root, Upcall::Everywhere) => {
                        assert_eq!(root, me);
                        everywhere += 1;
                    }
                    (root, Upcall::Failed(failure)) => panic!("group {root}: {failure}"),
                }
            }
        }
        let leave = |groups: Vec<BulkGroup>| {
            std::thread::spawn(move || groups.into_iter().try_for_each(|group| group.destroy(PATIENCE)))
        };
        let leaving: Vec<_> = groups.into_iter().map(leave).collect();
        leaving.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        drop(threads);
        assert!(told.iter().flat_map(|told| told.try_iter()).next().is_none(), "who leaves in order fails nobody");
    }
}

#[test]
fn a_thread_that_dies_fails_its_groups_at_all_others() {
    let members = 4;
    let Threads { mut threads, groups, told } = threads(members, BulkWaiting::Interrupt, Kind::Tcp);
    groups[0][0].send(content(0, 500 * BLOCK)).unwrap();
    drop(threads.remove(2));
    for me in [0, 1, 3] {
        let mut failed = vec![];
        while failed.len() < members as usize {
            match told[me].recv_timeout(PATIENCE).unwrap() {
                (group, Upcall::Failed(failure)) => {
                    assert_eq!(failure.dead, Rank(2));
                    assert!(!failed.contains(&group), "once");
                    failed.push(group);
                }
                (group, other) => assert_eq!(group, 0, "{other:?}"),
            }
        }
    }
    assert!(matches!(groups[2][2].send(vec![1]), Err(BulkSendError::Destroyed)), "its thread has ended");
    let destroyed = groups.into_iter().next().unwrap().into_iter().next().unwrap().destroy(PATIENCE);
    assert!(matches!(destroyed, Err(DestroyError::Failed(_))), "{destroyed:?}");
}

#[test]
fn an_early_leaver_is_told_which_members_remain() {
    let Threads { threads: _threads, mut groups, told: _told } = threads(2, BulkWaiting::Interrupt, Kind::Unix);
    let destroyed = groups[0].remove(0).destroy(Duration::from_millis(1));
    assert!(matches!(destroyed, Err(DestroyError::TimedOut { open: 1, .. })), "{destroyed:?}");
}

#[test]
fn on_one_machine_threads_leave_in_order_and_parts_pass_as_descriptors() {
    let (upcalls, told) = channel();
    let thread = BulkThread::start(BulkWaiting::Interrupt).unwrap();
    let mut groups = vec![];
    for (me, part) in LocalPart::parts(3, Rank(0)).unwrap().into_iter().enumerate() {
        let fds = part.into_fds();
        assert_eq!(fds.len(), if me == 0 { 2 } else { 1 });
        let part = LocalPart::from_fds(3, Rank(me as u32), Rank(0), fds).unwrap();
        let node = BulkNode::on_one_machine(&BulkSettings::default(), part).unwrap();
        groups.push(thread.run(node, Reported { upcalls: upcalls.clone(), group: me }).unwrap());
    }
    let mut segment = groups[0].segment(200_000).unwrap();
    segment.copy_from_slice(&content(0, 200_000));
    groups[0].send(segment).unwrap();
    let mut complete = 0;
    while complete < 3 {
        if let (_, Upcall::Complete(0, data)) = told.recv_timeout(PATIENCE).unwrap() {
            assert!(*data == *content(0, 200_000));
            complete += 1;
        }
    }
    let leaving: Vec<_> = groups.into_iter().map(|group| std::thread::spawn(|| group.destroy(PATIENCE))).collect();
    leaving.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    let part = |fds| LocalPart::from_fds(3, Rank(0), Rank(0), fds).map(drop);
    assert!(matches!(part(vec![]), Err(BulkLinksError::Connections { times: 0, expected: 2, .. })));
}
