//! Tests of the runtime directory: files that are removed, taken over, or left behind.
use super::*;

/// Waits until descriptors that were dropped are closed everywhere: a child that another test is
/// starting may hold copies for a moment.
fn wait_for_copies(are_closed: impl Fn() -> bool) {
    let until = Instant::now() + BOUND;
    while !are_closed() {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
}

#[test]
fn a_group_survives_that_its_lock_file_is_removed() {
    let town = Town::new();
    let (_founder, incarnation) = town.create(1);
    std::fs::remove_file(town.dir.path().join("g.lock")).unwrap();
    let (second, members) = town.join(2);
    assert_eq!(members, [1]);
    assert!(second.enter(incarnation).unwrap());
    let (third, _) = town.join(3);
    assert!(!third.enter(incarnation + 1).unwrap());
    assert!(third.enter(incarnation).unwrap());
    assert_eq!(town.members(), [1, 2, 3]);
}

#[test]
fn processes_that_know_each_other_stay_connected_when_the_directory_is_gone() {
    let town = Town::new();
    let ((mut first, incarnation), (second, _)) = (town.create(1), town.join(2));
    assert!(second.enter(incarnation).unwrap());
    assert_eq!(second.send(MemberId(1), &status(2, 1), &[]).unwrap(), SendOutcome::Done);
    remove_all(&town);
    assert!(second.reaches(MemberId(1)).unwrap() && !first.reaches(MemberId(2)).unwrap());
    assert_eq!(second.send(MemberId(1), &status(2, 2), &[]).unwrap(), SendOutcome::Done);
    assert_eq!(first.send(MemberId(2), &status(1, 1), &[]).unwrap(), SendOutcome::Gone, "it has never written there");
    assert_eq!([next(&mut first).0, next(&mut first).0], [status(2, 1), status(2, 2)]);
    // Control messages to the old socket and to the new one both arrive.
    assert!(restore(&mut first) && !first.restore().unwrap());
    assert_eq!(second.send(MemberId(1), &status(2, 3), &[]).unwrap(), SendOutcome::Done);
    let client = ControlSocket::client(&town.dir, &town.group).unwrap();
    let asks = status(client.id().0, 4);
    assert_eq!(client.send(MemberId(1), &asks, &[]).unwrap(), SendOutcome::Done);
    assert_eq!([next(&mut first).0, next(&mut first).0], [status(2, 3), asks]);
}

#[test]
fn no_second_group_is_created_when_the_directory_is_gone() {
    let town = Town::new();
    let ((mut first, incarnation), (mut second, _)) = (town.create(1), town.join(2));
    assert!(second.enter(incarnation).unwrap());
    for renamed in [false, true] {
        match renamed {
            false => remove_all(&town),
            true => std::fs::rename(town.dir.path(), town.dir.path().with_extension("old")).unwrap(),
        }
        // As another process would.
        let fresh = Town { _temp: None, dir: RuntimeDir::new(town.dir.path()).unwrap(), group: town.group.clone() };
        let id = 3 + u64::from(renamed);
        let (third, members) = fresh.join(id);
        assert_eq!(members, [1, 2], "they live, whatever the directory says");
        let taken = ControlSocket::open(&fresh.dir, &fresh.group, MemberId(2)).unwrap_err();
        assert!(matches!(taken, RendezvousError::IdInUse { id: MemberId(2), .. }), "{taken}");
        assert!(restore(&mut first) && restore(&mut second));
        assert_eq!((fresh.present(), fresh.members()), (vec![1, 2, id], vec![1, 2]));
        assert!(!third.enter(incarnation ^ 1).unwrap(), "it is the same group");
        assert!(third.enter(incarnation).unwrap());
    }
    let _ = std::fs::remove_dir_all(town.dir.path().with_extension("old"));
    // The group ends with its members.
    drop((first, second));
    remove_all(&town);
    wait_for_copies(|| town.present().is_empty());
    town.create(1);
}

/// One file, not the directory.
#[test]
fn a_socket_that_was_removed_is_made_again() {
    let town = Town::new();
    let (mut mine, _) = town.create(1);
    let remove = |name| std::fs::remove_file(town.dir.path().join(name)).unwrap();
    remove("g.1.sock");
    assert_eq!(town.join(2).1, [1], "its mark is there");
    assert!(!restore(&mut mine), "the same socket has its name again");
    assert_eq!((town.present(), town.files()), (vec![1], vec!["g.1.live".into(), "g.1.sock".into()]));
    remove("g.1.live");
    assert_eq!(town.join(2).1, [1], "the kernel knows it");
    restore(&mut mine);
    assert_eq!(town.files(), ["g.1.live", "g.1.sock"]);
    // Another program has its address meanwhile, and keeps it.
    let mut waits = town.join(2).0;
    remove("g.2.sock");
    let refused = ControlSocket::open(&town.dir, &town.group, MemberId(2)).unwrap_err();
    assert!(matches!(refused, RendezvousError::IdInUse { .. }), "{refused}");
    let _other = elsewhere(&town, 2);
    let until = Instant::now() + BOUND;
    let refused = std::iter::repeat_with(|| waits.restore()).find(|done| done.is_err() || Instant::now() >= until);
    assert!(matches!(refused, Some(Err(RendezvousError::IdInUse { id: MemberId(2), .. }))));
    drop(waits);
    assert_eq!(town.present(), [1, 2]);
}

/// Creates a foreign socket that has the address of a process.
fn elsewhere(town: &Town, id: u64) -> OwnedFd {
    let socket = new_socket().unwrap();
    bind(&socket, &SocketAddrUnix::new(&*town.place().address(MemberId(id)).unwrap()).unwrap()).unwrap();
    socket
}

#[test]
fn ids_of_those_who_live_are_not_given_out_again_when_the_directory_is_gone() {
    let town = Town::new();
    let mut group: Vec<Role> = (0..3).map(|_| town.find(None)).collect();
    let Role::Founder { incarnation, .. } = group[0] else { panic!("the first one") };
    let Role::Joiner { control_socket: third, .. } = group.remove(2) else { panic!("the third") };
    assert!(third.enter(incarnation).unwrap());
    remove_all(&town);
    let Role::Joiner { control_socket: fourth, members } = town.find(None) else { panic!("they live") };
    assert_eq!((fourth.id(), members), (MemberId(4), vec![MemberId(1), MemberId(3)]));
}

/// A file must not remain for each name that a group ever had.
#[test]
fn the_last_to_go_leaves_nothing_behind() {
    let town = Town::new();
    let ends = || {
        let all = || std::fs::read_dir(town.dir.path()).unwrap().count();
        let ((first, _), (second, _)) = (town.create(1), town.join(2));
        drop(first);
        assert_eq!(all(), 2, "a lock, and the address of who is left");
        drop(second);
        assert_eq!(all(), 0);
        let client = ControlSocket::client(&town.dir, &town.group).unwrap();
        drop(client);
        assert_eq!(all(), 0);
        // No process makes a directory again only to remove its files.
        let (last, _) = town.create(1);
        remove_all(&town);
        drop(last);
        assert!(!town.dir.path().exists());
    };
    // A process of its own: children of other tests hold no copy of its locks.
    assert_eq!(forked(ends), Some(DONE));
}

#[test]
fn a_child_gives_nothing_up_and_holds_nothing_on() {
    let town = Town::new();
    let (control_socket, _) = town.create(1);
    let watch = Watch::spawn(&control_socket, || (), |_| {}).unwrap();
    let mut both = Some((watch, control_socket));
    assert_eq!(forked(|| drop(both.take())), Some(DONE));
    assert_eq!((town.present(), town.members()), (vec![1], vec![1]));
    // A member that is killed while a child of it lives on.
    let mut parent = Process::start(&town, "forks", 2);
    parent.says("forked");
    assert_eq!(town.present(), [1, 2]);
    parent.kill();
    wait_for_copies(|| town.present() == [1]);
    drop(town.open(2));
}

/// Does what systemd's remover of old files does before it looks into a directory.
#[test]
fn cleaners_are_kept_out_while_an_address_exists() {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
    let town = Town::new();
    let control_sockets = [town.open(1), town.open(2)];
    let dir = open(town.dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    assert_eq!(flock(&dir, FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::WOULDBLOCK));
    drop(control_sockets);
    wait_for_copies(|| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok());
}

#[test]
fn addresses_of_dead_processes_are_taken_over() {
    let town = Town::new();
    let mut dead = Process::start(&town, "find", 5);
    dead.tell();
    dead.says("founder");
    assert_eq!((town.present(), town.members()), (vec![5], vec![5]));
    dead.kill();
    assert_eq!(town.files(), ["g.5.live", "g.5.sock"]);
    assert_eq!((town.present(), town.members()), (vec![], vec![]));
    let stale = town.open(6);
    assert!(!stale.reaches(MemberId(5)).unwrap());
    assert_eq!(stale.send(MemberId(5), &status(6, 1), &[]).unwrap(), SendOutcome::Gone);
    let mut mine = town.open(5);
    assert_eq!((town.files(), town.members()), (vec!["g.5.sock".into(), "g.6.sock".into()], vec![]));
    assert_eq!(stale.send(MemberId(5), &status(6, 1), &[]).unwrap(), SendOutcome::Done);
    assert_eq!(next(&mut mine).0, status(6, 1));
    assert!(stale.reaches(MemberId(5)).unwrap());
    // The process that starts the group removes the files of dead processes.
    let mut dead = Process::start(&town, "sit", 9);
    dead.says("sits");
    dead.kill();
    let (_founder, _) = town.create(1);
    assert_eq!(town.files(), ["g.1.live", "g.1.sock", "g.5.sock", "g.6.sock"]);
}

#[test]
fn an_id_in_use_is_refused_and_its_owner_undisturbed() {
    let town = Town::new();
    let mut owner = town.open(4);
    let refused = ControlSocket::open(&town.dir, &town.group, MemberId(4)).unwrap_err();
    assert!(matches!(&refused, RendezvousError::IdInUse { id: MemberId(4), .. }), "{refused}");
    let mut elsewhere = Process::start(&town, "sit", 7);
    elsewhere.says("sits");
    let wanted =
        found_or_find(&town.dir, &town.group, Some(MemberId(7)), Instant::now() + BOUND, &AtomicBool::new(false));
    assert!(matches!(wanted, Err(RendezvousError::IdInUse { id: MemberId(7), .. })));
    let reserved = ControlSocket::open(&town.dir, &town.group, MemberId(CLIENT_IDS_FROM)).unwrap_err();
    assert!(matches!(reserved, RendezvousError::IdReserved { .. }), "{reserved}");
    assert_eq!(town.present(), [4, 7]);
    let other = town.open(1);
    assert_eq!(other.send(MemberId(4), &status(1, 3), &[]).unwrap(), SendOutcome::Done);
    assert_eq!(next(&mut owner).0, status(1, 3));
}

#[test]
fn the_smallest_free_ids_are_given_out() {
    let town = Town::new();
    let _others = [2, 3, 70].map(|id| town.open(id));
    let id = |role: &Role| match role {
        Role::Founder { control_socket, .. } | Role::Joiner { control_socket, .. } => control_socket.id().0,
    };
    let first = town.find(None);
    let second = town.find(None);
    assert_eq!((id(&first), id(&second)), (1, 4));
    drop(first);
    assert_eq!(id(&town.find(None)), 1);
}

/// A member that was stopped does not know what happened to the others: an id must not mean another
/// process when it continues.
#[test]
fn an_id_is_given_out_once_in_a_group() {
    let town = Town::new();
    let id = |role: &Role| match role {
        Role::Founder { control_socket, .. } | Role::Joiner { control_socket, .. } => control_socket.id().0,
    };
    let founder = town.find(None);
    let dead = town.find(None);
    assert_eq!((id(&founder), id(&dead)), (1, 2));
    drop(dead);
    let waits = town.find(None);
    assert_eq!(id(&waits), 3);
    // A group that is created again has new ids, except that of a process that waits.
    drop(founder);
    let founder = town.find(None);
    assert!(matches!(founder, Role::Founder { .. }));
    assert_eq!((id(&founder), id(&town.find(None))), (1, 4));
}

#[test]
fn an_address_with_a_new_owner_is_not_removed() {
    let town = Town::new();
    let control_socket = town.open(1);
    let path = town.place().address(MemberId(1)).unwrap();
    std::fs::remove_file(&*path).unwrap();
    let _other = elsewhere(&town, 1);
    drop(control_socket);
    assert_eq!(town.present(), [1]);
}

#[test]
fn a_directory_that_others_can_enter_holds_no_control_socket() {
    use std::os::unix::fs::PermissionsExt;
    let temp = TempDir::new();
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(RuntimeDir::new(temp.path()), Err(DirError::Exposed { mode: 0o755, .. })));
}
