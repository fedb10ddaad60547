//! A joiner that advertises an address at which no process answers asks to be let into a group between hosts.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::{Hosts, Member, finish, join};
use rustix::net::{AddressFamily, SocketType};
use spindle::{Config, JoinError};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// The joiner asks for so long.
const ASKS: Duration = Duration::from_secs(5);
/// An admission and its end are two views, and the second admission follows the first at once. Pauses come before all
/// further ones.
const VIEWS_MAX: usize = 4;

#[test]
fn a_member_alone_continues_when_joiners_advertise_wrong_addresses() {
    continue_despite_both("wrong-1", 1);
}

#[test]
fn three_members_continue_when_joiners_advertise_wrong_addresses() {
    continue_despite_both("wrong-3", 3);
}

/// A group for each of the two kinds of wrong addresses, at the same time.
fn continue_despite_both(name: &str, count: usize) {
    thread::scope(|scope| {
        scope.spawn(|| continues(&format!("{name}-refusing"), count, refusing()));
        scope.spawn(|| continues(&format!("{name}-silent"), count, silent()));
    });
}

/// A port that is taken, where no process listens.
fn refusing() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

/// A port at which the kernel accepts connections, and no process reads them.
fn silent() -> (OwnedFd, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener.into(), address)
}

fn continues(name: &str, count: usize, (_held, wrong): (OwnedFd, SocketAddr)) {
    let hosts = Hosts::new(name, count, Duration::from_secs(2));
    let mut members = hosts.create();
    let mut joiner = Config { gather_timeout: ASKS, ..hosts.other(count, 1) };
    joiner.network.as_mut().unwrap().advertise = Some(wrong.to_string().parse().unwrap());
    let joining = thread::spawn(move || {
        let mut told = vec![];
        let joined = joiner.join_with(&mut |progress| told.push(progress.to_string()), &AtomicBool::new(false));
        (joined.map(|node| node.view().members.clone()), told)
    });
    let mut sent = 0;
    while !joining.is_finished() {
        sent += say(&mut members, &format!("message {sent}"));
        thread::sleep(Duration::from_millis(5));
    }
    let (joined, told) = joining.join().unwrap();
    // The joiner learns that no seed answers it.
    assert!(matches!(joined, Err(JoinError::TimedOut { .. })), "{joined:?}");
    let seed = hosts.seeds[0].to_string();
    assert!(told.iter().any(|told| told.contains("not answered") && told.contains(&seed)), "{told:?}");
    for member in &members {
        let views = member.log.views();
        assert!(views.len() <= VIEWS_MAX, "views of {views:?}");
    }
    // Another joiner is let in.
    members.push(join(hosts.other(count + 1, 1)));
    say(&mut members, "after");
    finish(members);
}

/// Each member sends a message, and all deliver all of them.
fn say(members: &mut [Member], text: &str) -> usize {
    let count = members.len();
    members.iter_mut().for_each(|member| member.send(text));
    for member in members {
        member.log.wait(text, |log| log.messages().iter().filter(|message| *message == text).count() == count);
    }
    count
}
