//! Groups whose members are on several hosts, as in `hosts.rs`. Their rows go through libfabric's
//! provider for ordinary networks.
//!
//! If libfabric is not installed, rows go over streams again, and the test prints a line about it.
#[path = "hosts.rs"]
mod hosts;

use hosts::{LONG, World, chat, finish, start};
use rcgen::{CertificateParams, KeyPair};
use rustix::net::{self, AddressFamily, Shutdown, SocketAddrAny};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use spindle::{Config, Identity, JoinError, OfiError, OfiOptions, Security, Transport};
use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn options() -> OfiOptions {
    OfiOptions { provider: Some("tcp".to_string()), domain: None, address: Some(IpAddr::from(Ipv4Addr::LOCALHOST)) }
}

/// Returns the transport that carries rows in all of these tests.
fn transport() -> Transport {
    if is_here() { Transport::Ofi(options()) } else { Transport::Tcp }
}

fn is_here() -> bool {
    match spindle_fabric_ofi::OfiPort::open(&options(), 1) {
        Ok(_) => true,
        Err(error @ (OfiError::NoLibrary { .. } | OfiError::NoProvider { .. })) => {
            println!("skipped: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn unprotectable_configurations_are_refused() {
    if !is_here() {
        return;
    }
    let world = World::new("ofi-refused", 1);
    let with = |options, security| {
        let mut config = Config { gather_timeout: Duration::ZERO, ..world.seed(0, 0, 2) };
        let network = config.network.as_mut().unwrap();
        (network.transport, network.security) = (Transport::Ofi(options), security);
        config.join().unwrap_err()
    };
    let error = with(OfiOptions { provider: Some("none".to_string()), ..options() }, Security::Local);
    assert!(matches!(error, JoinError::Ofi(OfiError::NoProvider { .. })), "{error}");
    let error = with(options(), Security::Tls(identity(&world.scratch.0)));
    assert!(matches!(error, JoinError::Unencrypted), "{error}");
    // The provider takes any address of this machine, if it chooses one by itself.
    let error = with(OfiOptions { address: None, ..options() }, Security::Local);
    let is_refused = matches!(error, JoinError::Exposed { .. } | JoinError::Ofi(OfiError::NoAddress { .. }));
    assert!(is_refused || matches!(error, JoinError::TimedOut { .. }), "{error}");
}

/// A certificate that is its own authority.
fn identity(dir: &Path) -> Identity {
    let files = ["ca.pem", "own.pem", "own.key"].map(|name| dir.join(name));
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::new(vec!["host".into()]).unwrap().self_signed(&key).unwrap().pem();
    for (file, text) in files.iter().zip([&pem, &pem, &key.serialize_pem()]) {
        std::fs::write(file, text).unwrap();
    }
    Identity::load(&files[0], &files[1], &files[2]).unwrap()
}

/// A process whose transport differs from the members' is refused.
#[test]
fn all_have_the_same_transport() {
    if !is_here() {
        return;
    }
    let world = World::new("ofi-mixed", 1);
    let first = start(world.seed(0, 0, 1));
    let members = vec![first.recv_timeout(Duration::from_secs(30)).unwrap().unwrap()];
    let mut other = world.other(1, "a", 1);
    other.network.as_mut().unwrap().transport = Transport::Tcp;
    let error = other.join().unwrap_err();
    let JoinError::OtherSettings { differences } = &error else { panic!("{error}") };
    assert_eq!(differences[0].key, "network.fabric.kind", "{error}");
    assert!(error.to_string().ends_with("; give the same settings"), "{error}");
    chat(&members, 3, "alone");
    finish(members);
}

/// The variable in which the child process finds the directory of its world.
const CHILD: &str = "SPINDLE_HOSTS_OFI_CHILD";

/// A process that is killed, as the child of a test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One host of three is killed while it sends, and another host joins.
#[test]
fn a_host_that_is_killed_is_noticed_by_its_connections_and_another_joins() {
    let world = match std::env::var_os(CHILD) {
        Some(dir) => {
            // This process must not remove the directory.
            let world = ManuallyDrop::new(World::within("ofi-killed", dir.into(), 1));
            let member = start(world.other(2, "child", 3)).recv().unwrap().unwrap();
            for i in 0..300_000 {
                member.send(&format!("noise {i}"));
                std::thread::sleep(Duration::from_micros(100));
            }
            return;
        }
        None => World::new("ofi-killed", 1),
    };
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_host_that_is_killed_is_noticed_by_its_connections_and_another_joins"])
        .env(CHILD, &world.scratch.0)
        .stdout(Stdio::null())
        .spawn();
    let child = Killed(child.unwrap());
    let starting = [start(world.seed(0, 0, 3)), start(world.other(1, "a", 3))];
    let mut members: Vec<_> = starting.into_iter().map(|member| member.recv().unwrap().unwrap()).collect();
    for member in &members {
        // The member's watch of the child may not have begun yet.
        member.log.wait("noise", |lines| lines.iter().any(|line| line.starts_with("noise")));
    }
    drop(child);
    // No member is suspected for its silence within this test's time.
    for member in &members {
        member.log.wait("view", |lines| lines.contains(&"view of 2".to_string()));
    }
    chat(&members, 50, "two");
    members.push(start(world.other(2, "b", 1)).recv().unwrap().unwrap());
    for member in &members[..2] {
        member.log.wait("view", |lines| lines.contains(&"view of 3".to_string()));
    }
    chat(&members, 50, "three");
    let said = |lines: Vec<String>| lines.into_iter().filter(|line| line.starts_with("noise")).collect::<Vec<_>>();
    assert_eq!(said(members[0].log.lines()), said(members[1].log.lines()));
    finish(members);
}

/// Returns the sockets of this process that are connected over TCP. They are libfabric's, because
/// control messages go through Unix sockets here.
fn sockets() -> Vec<OwnedFd> {
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers = descriptors.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let sockets = numbers.filter_map(|number| pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).ok());
    let is_connected = |socket: &OwnedFd| {
        let peer = net::getpeername(socket);
        peer.is_ok_and(|peer| peer.is_some_and(|peer| peer.address_family() == AddressFamily::INET))
    };
    sockets.filter(is_connected).collect()
}

/// Breaks all of these sockets. Returns the number of broken ends, at least one for each
/// connection.
fn break_all() -> usize {
    sockets().iter().filter(|socket| net::shutdown(socket, Shutdown::Both).is_ok()).count()
}

/// Returns the ends of all connections.
fn ends() -> BTreeSet<(SocketAddr, SocketAddr)> {
    let address = |any: SocketAddrAny| SocketAddr::try_from(any).ok();
    let ends =
        |socket: &OwnedFd| Some((address(net::getsockname(socket).ok()?)?, address(net::getpeername(socket).ok()??)?));
    sockets().iter().filter_map(ends).collect()
}

/// Returns the result of [`ends`] once it has `expected` entries. On a busy machine a member may
/// have connected to another twice, and the first connection takes time to end.
fn settled(expected: usize) -> BTreeSet<(SocketAddr, SocketAddr)> {
    let start = Instant::now();
    loop {
        let ends = ends();
        if ends.len() == expected {
            return ends;
        }
        assert!(start.elapsed() < LONG, "not {expected}: {ends:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs the test of this `name` in a process of its own, so that the process has only the test's
/// connections. Returns true if this is that process.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "SPINDLE_HOSTS_OFI_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    if is_here() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let alone = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
    }
    false
}

/// Members that stay keep their connections from view to view, whatever is under way when a view
/// ends. A new connection is made only to a joining member.
#[test]
fn connections_continue_from_view_to_view() {
    if !is_alone("connections_continue_from_view_to_view") {
        return;
    }
    let world = World::new("ofi-continue", 4);
    let starting: Vec<_> = (0..4).map(|i| start(world.seed(i as u32, i, 4))).collect();
    let mut members: Vec<_> = starting.into_iter().map(|member| member.recv().unwrap().unwrap()).collect();
    chat(&members, 20, "four");
    let of = |members: usize| members * (members - 1);
    while members.len() > 2 {
        let before = settled(of(members.len()));
        let leaver = members.pop().unwrap();
        let left = std::thread::spawn(move || leaver.leave());
        let between = format!("before {} stay", members.len());
        (0..50).for_each(|i| members[0].send(&format!("{between} {i}")));
        left.join().unwrap();
        let (view, staying) = (format!("view of {}", members.len()), members.len());
        for member in &members {
            let is_between = |line: &&String| line.starts_with(&between);
            member.log.wait("view", |lines| lines.contains(&view) && lines.iter().filter(is_between).count() == 50);
        }
        chat(&members, 20, &format!("{staying} stay:"));
        let after = ends();
        assert!(after.is_subset(&before) && after.len() >= of(staying), "{staying} stay: {before:?}, {after:?}");
    }
    let before = settled(of(2));
    members.push(start(world.other(2, "joiner", 1)).recv().unwrap().unwrap());
    chat(&members, 20, "three");
    let after = settled(of(3));
    assert!(after.is_superset(&before), "the joiner's are new, and no others: {before:?}, {after:?}");
    finish(members);
}

/// Connections that break are made again and lose no data. No member is evicted.
#[test]
fn connections_that_break_cost_no_view_change() {
    if !is_alone("connections_that_break_cost_no_view_change") {
        return;
    }
    let world = World::new("ofi-broken", 3);
    let starting: Vec<_> = (0..3).map(|i| start(world.seed(i as u32, i, 3))).collect();
    let members: Vec<_> = starting.into_iter().map(|member| member.recv().unwrap().unwrap()).collect();
    chat(&members, 50, "whole");
    for round in 0..10 {
        // Some connections may not have been made again since the last round.
        let ends = break_all();
        assert!(round > 0 || ends >= 3, "{ends}");
        chat(&members, 50, &format!("round {round}:"));
    }
    for member in &members {
        assert!(member.log.lines().iter().all(|line| !line.starts_with("view")), "{:?}", member.log.lines());
    }
    finish(members);
}
