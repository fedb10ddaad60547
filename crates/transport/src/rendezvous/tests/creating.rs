//! Tests of how processes find a group or create it: one at a time, whatever dies.
use super::*;

/// The group of a name is never created twice at the same time, whatever the timing.
#[test]
fn one_of_many_that_start_at_once_creates_the_group() {
    for _ in 0..20 {
        let town = Arc::new(Town::new());
        let barrier = Arc::new(Barrier::new(8));
        let start = |_| {
            let (town, barrier) = (Arc::clone(&town), Arc::clone(&barrier));
            spawn(move || {
                barrier.wait();
                town.find(None)
            })
        };
        let threads: Vec<_> = (0..8).map(start).collect();
        let roles: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut ids = Vec::new();
        let mut founders = Vec::new();
        for role in &roles {
            match role {
                Role::Founder { control_socket, .. } => {
                    founders.push(control_socket.id().0);
                    ids.push(control_socket.id().0);
                }
                Role::Joiner { control_socket, members } => {
                    assert_eq!(members.len(), 1);
                    ids.push(control_socket.id().0);
                }
            }
        }
        ids.sort_unstable();
        assert_eq!(ids, (1..=8).collect::<Vec<_>>());
        assert_eq!(founders.len(), 1);
        assert_eq!((town.members(), town.present()), (founders, ids));
        drop(roles);
        assert!(town.files().is_empty());
    }
}

#[test]
fn one_of_two_processes_that_start_at_once_creates_the_group() {
    for _ in 0..5 {
        let town = Town::new();
        let mut processes = [0, 0].map(|id| Process::start(&town, "find", id));
        processes.iter_mut().for_each(|process| drop(process.says("ready")));
        processes.iter_mut().for_each(Process::tell);
        let mut created = 0;
        for process in &mut processes {
            let mut line = String::new();
            while !line.starts_with("founder") && !line.starts_with("joiner") {
                line.clear();
                assert_ne!(process.lines.read_line(&mut line).unwrap(), 0);
            }
            created += u32::from(line.starts_with("founder"));
        }
        assert_eq!(created, 1);
    }
}

/// Prints how long the last of them waits.
#[test]
fn a_hundred_that_start_at_once_all_find_the_group() {
    raise_fd_limit();
    let town = Arc::new(Town::new());
    let barrier = Arc::new(Barrier::new(100));
    let start = |_| {
        let (town, barrier) = (Arc::clone(&town), Arc::clone(&barrier));
        spawn(move || {
            barrier.wait();
            let start = Instant::now();
            (town.find(None), start.elapsed())
        })
    };
    let threads: Vec<_> = (0..100).map(start).collect();
    let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut took: Vec<_> = found.iter().map(|(_, took)| *took).collect();
    took.sort_unstable();
    println!("of 100 one created the group in {:?} in the median, {:?} at most", took[50], took[99]);
    assert_eq!(town.present(), (1..=100).collect::<Vec<_>>());
    assert_eq!(town.members().len(), 1);
}

/// Not all members are asked whether they live.
#[test]
fn a_process_finds_a_group_of_many_members() {
    let town = Town::new();
    let Role::Founder { control_socket, incarnation } = town.find(None) else { panic!("no member lives") };
    let mut control_sockets = vec![control_socket];
    for id in 2..=CENSUS_MAX as u64 + 2 {
        let (control_socket, members) = town.join(id);
        assert!(control_socket.enter(incarnation).unwrap());
        assert_eq!(members.len() as u64, id - 1);
        control_sockets.push(control_socket);
    }
    let all: Vec<MemberId> = control_sockets.iter().map(ControlSocket::id).collect();
    let Role::Joiner { control_socket, members } = town.find(None) else { panic!("members live") };
    assert_eq!((control_socket.id().0, members), (all.len() as u64 + 1, all.clone()));
    assert_eq!(ControlSocket::known_members(&town.dir, &town.group).unwrap(), all);
    drop(control_sockets);
    assert_eq!(ControlSocket::known_members(&town.dir, &town.group).unwrap(), []);
    assert!(matches!(again(&control_socket), CreateOutcome::Founder { .. }));
}

#[test]
fn a_group_lives_on_without_its_founder() {
    let town = Town::new();
    let mut founder = Process::start(&town, "find", 1);
    founder.tell();
    let incarnation: u128 = founder.says("founder").parse().unwrap();
    let (second, members) = town.join(2);
    assert_eq!(members, [1]);
    assert!(second.enter(incarnation).unwrap());
    assert!(second.enter(incarnation).unwrap(), "entering twice is entering once");
    assert_eq!(town.members(), [1, 2]);
    founder.kill();
    let (third, members) = town.join(3);
    assert_eq!((members, town.members()), (vec![2], vec![2]));
    assert_eq!(again(&third), CreateOutcome::Joiner { members: vec![MemberId(2)] });
    // The member may be the last one, and come back as another.
    second.leave();
    assert_eq!((town.members(), town.present()), (vec![], vec![2, 3]));
    let CreateOutcome::Founder { incarnation: other } = again(&third) else { panic!("no member is left") };
    assert_ne!(other, incarnation);
    assert_eq!(town.join(4).1, [3]);
}

/// The members of a group that spans hosts die, and the group is created again on another host.
#[test]
fn a_group_that_spans_hosts_is_entered_anew_where_no_member_of_the_last_one_lives() {
    let town = Town::new();
    let (old, incarnation) = town.create(1);
    let (first, _) = town.join(2);
    let (second, _) = town.join(3);
    let other = incarnation ^ 1;
    assert!(!first.enter_afar(other).unwrap(), "a member of the last one lives");
    drop(old);
    assert!(!first.enter(other).unwrap(), "a group of this host is created here");
    assert!(first.enter_afar(other).unwrap());
    assert!(second.enter_afar(other).unwrap());
    assert!(!second.enter_afar(incarnation).unwrap());
    assert_eq!(town.members(), [2, 3]);
}

/// A joiner that was decided to be a member, but has not read that when all others die and another
/// group is created.
#[test]
fn a_joiner_that_reads_its_admission_too_late_stays_out() {
    let town = Town::new();
    let (founder, incarnation) = town.create(1);
    let (late, _) = town.join(2);
    let (other, _) = town.join(3);
    drop(founder);
    assert!(matches!(again(&other), CreateOutcome::Founder { .. }));
    assert!(!late.enter(incarnation).unwrap());
    assert_eq!(town.members(), [3]);
    // If it had been in time, no process could have created another.
    let town = Town::new();
    let (founder, incarnation) = town.create(1);
    let (late, _) = town.join(2);
    drop(founder);
    assert!(late.enter(incarnation).unwrap());
    assert_eq!(town.join(3).1, [2]);
}

/// Runs a process that enters the group as the library would, or creates it once no member can
/// admit it, and that admits others.
pub(super) fn live(dir: &RuntimeDir, group: &GroupName) {
    let town = Town { _temp: None, dir: dir.clone(), group: group.clone() };
    let (mut control_socket, mut member) = match town.find(None) {
        Role::Founder { control_socket, incarnation } => (control_socket, Some(incarnation)),
        Role::Joiner { control_socket, .. } => (control_socket, None),
    };
    member.iter().for_each(|incarnation| say(&format!("member {incarnation}")));
    let (me, pid) = (control_socket.id(), std::process::id());
    let (address, rack, seeds) = (None, None, None);
    let ask = ControlMessage::Ask {
        from: me,
        pid,
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
    let view = enclose(b"a view").unwrap();
    let stdin = std::io::stdin();
    while !readable(&stdin, Duration::ZERO) {
        // The directory may be removed meanwhile.
        if let Err(taken @ RendezvousError::IdInUse { .. }) = control_socket.restore() {
            panic!("{taken}");
        }
        while let Some((message, _)) = control_socket.receive() {
            let now = match (message, member) {
                (ControlMessage::Ask { from, .. }, Some(incarnation)) => {
                    let message = ControlMessage::View { incarnation, view: ViewId(2), from: me, bytes: 6 };
                    let _ = control_socket.send(from, &message, &[view.as_fd()]).unwrap();
                    continue;
                }
                (ControlMessage::View { incarnation, .. }, None) => {
                    control_socket.enter(incarnation).unwrap().then_some(incarnation)
                }
                _ => continue,
            };
            member = now;
            member.iter().for_each(|incarnation| say(&format!("member {incarnation}")));
        }
        if member.is_none() {
            match again(&control_socket) {
                CreateOutcome::Founder { incarnation } => {
                    member = Some(incarnation);
                    say(&format!("member {incarnation}"));
                }
                CreateOutcome::Joiner { members } => {
                    let _ = control_socket.send(members[0], &ask, &[]).unwrap();
                }
            }
        }
        if readable(&control_socket, Duration::from_millis(2)) {
            // Some are slow to read that they were admitted.
            std::thread::sleep(Duration::from_millis(u64::from(pid % 3) * 4));
        }
    }
}

/// Processes come and are killed at any moment. Two live processes are never members of different
/// groups.
#[test]
fn any_single_death_leaves_one_group_of_a_name() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    println!("replay: SEED={seed} cargo test -p spindle-transport any_single_death");
    let mut state = seed | 1;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let town = Town::new();
    let (tell, said) = channel();
    let mut living: BTreeMap<u32, (Running, ChildStdin, Option<u128>)> = BTreeMap::new();
    let mut groups = BTreeSet::new();
    let mut entered = 0;
    for _ in 0..120 {
        while living.len() < 6 {
            let Process { process, input, lines } = Process::start(&town, "live", 0);
            let (pid, tell) = (process.0.id(), tell.clone());
            living.insert(pid, (process, input, None));
            spawn(move || {
                for line in lines.lines().map_while(Result::ok) {
                    if let Some(incarnation) = line.strip_prefix("member ") {
                        let _ = tell.send((pid, incarnation.parse::<u128>().unwrap()));
                    }
                }
            });
        }
        let pause = [0, 0, 1, 2, 5, 20][random(6)];
        let until = Instant::now() + Duration::from_millis(pause);
        while let Ok((pid, incarnation)) = said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            // It may have been killed since.
            let Some((_, _, member)) = living.get_mut(&pid) else { continue };
            *member = Some(incarnation);
            entered += 1;
            groups.insert(incarnation);
            let others: BTreeSet<_> = living.values().filter_map(|(_, _, member)| *member).collect();
            assert_eq!(others.len(), 1, "groups that live at the same time: {others:?}");
        }
        // With all its contents, at any moment.
        if random(4) == 0 {
            let _ = std::fs::remove_dir_all(town.dir.path());
        }
        // Sometimes all members, so that the others have to create another group.
        let all = random(4) == 0;
        let one = random(living.len());
        let pids: Vec<_> = living.iter().map(|(pid, (_, _, member))| (*pid, member.is_some())).collect();
        for (i, (pid, member)) in pids.into_iter().enumerate() {
            if i == one || (all && member) {
                let killed = living.remove(&pid).map(|(mut process, ..)| process.0.try_wait().unwrap());
                assert_eq!(killed, Some(None), "it has ended by itself");
            }
        }
    }
    println!("{entered} processes became members of {} groups", groups.len());
    assert!(groups.len() > 1 && entered > groups.len());
}

#[test]
fn groups_of_other_names_are_other_groups() {
    let town = Town::new();
    let (_control_socket, _) = town.create(1);
    for name in ["g.1", "g.1.sock", "h"] {
        let other = Town { _temp: None, dir: town.dir.clone(), group: GroupName::new(name).unwrap() };
        let (control_socket, _) = other.create(1);
        assert_eq!((other.present(), town.present()), (vec![1], vec![1]));
        drop(control_socket);
    }
    assert_eq!(town.files(), ["g.1.live", "g.1.sock"]);
}

#[test]
fn a_lock_that_is_kept_is_named_and_ends_with_its_process() {
    let town = Town::new();
    let mut keeper = Process::start(&town, "lock", 0);
    keeper.says("locked");
    let cancelled = AtomicBool::new(false);
    let find = |wait| found_or_find(&town.dir, &town.group, None, Instant::now() + wait, &cancelled);
    let refused = find(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(&refused, RendezvousError::Locked { path, .. } if path.ends_with("g.lock")), "{refused}");
    cancelled.store(true, Ordering::Relaxed);
    assert!(matches!(find(BOUND), Err(RendezvousError::Cancelled)));
    cancelled.store(false, Ordering::Relaxed);
    keeper.kill();
    assert!(matches!(find(BOUND), Ok(Role::Founder { .. })));
}
