//! Crews on several hosts, which are runtime directories here, without nodes above them.
use super::*;
use crate::Config;
use spindle_fabric::net::Address;
use spindle_fabric::tcp::{SocketOptions, SocketStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// How long to wait for what has to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Hosts, with the addresses of their processes; gone with the test.
pub(crate) struct Hosts(PathBuf);

impl Hosts {
    pub(crate) fn new(name: &str) -> Hosts {
        let path = std::env::temp_dir().join(format!("spindle-crew-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Hosts(path)
    }

    pub(crate) fn dir(&self, host: u32) -> PathBuf {
        self.0.join(format!("host{host}"))
    }

    /// Where nobody listens who was not told to.
    pub(crate) fn at(&self, name: &str) -> Address {
        format!("unix:{}/{name}", self.0.display()).parse().unwrap()
    }

    /// Of a process that listens at `name` and looks for others at `seeds`.
    pub(crate) fn network(&self, name: &str, seeds: &[&str]) -> Network {
        Network::new(self.at(name), seeds.iter().map(|seed| self.at(seed)).collect())
    }

    /// That of a process with an id of its own.
    pub(crate) fn crew(&self, host: u32, id: u64, name: &str, seeds: &[&str]) -> Crew {
        let (dir, group) = (RuntimeDir::new(self.dir(host)).unwrap(), GroupName::new("g").unwrap());
        let mailbox = Mailbox::open(&dir, &group, MemberId(id)).unwrap();
        Crew::new(mailbox, None, Some((&self.network(name, seeds), &dir, &group))).unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A view of these members.
pub(crate) fn view(id: u64, members: &[u64]) -> View {
    let members = members.iter().copied().map(MemberId).collect();
    View { id: ViewId(id), ..Config::new("g", 1).view(members) }
}

/// What comes for `crew` until there is something in it that is looked for.
pub(crate) fn hear<T>(crew: &mut Crew, what: &str, mut find: impl FnMut(News) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = crew.news().into_iter().find_map(&mut find) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "no {what}");
        crew.wait(Duration::from_millis(10));
    }
}

fn stream() -> Peer {
    let (near, _) = UnixStream::pair().unwrap();
    Peer::There(Box::new(SocketStream::new(near, &SocketOptions::default()).unwrap()))
}

#[test]
fn parts_of_a_view_that_has_begun_come_too_late_and_stop_no_others() {
    let hosts = Hosts::new("late-parts");
    let mut crew = hosts.crew(0, 1, "a", &[]);
    crew.set_incarnation(7);
    crew.begin(&view(9, &[1, 2, 3]));
    for late in [1, 9] {
        assert!(!crew.keep_part(7, ViewId(late), MemberId(2), Part::Way(stream())), "of view {late}");
    }
    // How far ahead parts are kept counts from the oldest that are.
    let newest = 9 + VIEWS_AHEAD_MAX;
    for next in [10, newest] {
        assert!(crew.keep_part(7, ViewId(next), MemberId(2), Part::Way(stream())), "of view {next}");
        assert!(crew.has_parts(ViewId(next), MemberId(2)));
    }
    assert!(!crew.keep_part(8, ViewId(10), MemberId(3), Part::Way(stream())), "of another group");
}

/// Whoever polls the member has more to do.
#[test]
fn so_much_is_read_at_one_look_and_the_rest_at_the_next() {
    let hosts = Hosts::new("looks");
    let (mut near, mut far) = (hosts.crew(0, 1, "near", &[]), hosts.crew(1, 2, "far", &["near"]));
    let count = 3 * NET_EVENTS_MAX;
    far.ask_afar(0, 1, false);
    hear(&mut near, "first letter", |news| matches!(news, News::Asks { .. }).then_some(()));
    for _ in 0..count {
        far.ask_afar(0, 1, false);
    }
    // When this is answered, most of them have arrived.
    far.net().unwrap().endpoint().dial(&hosts.at("near"), None, Purpose::State { view: ViewId(1) });
    let start = Instant::now();
    let Ways::Mail { net: Some(net), .. } = &mut far.ways else { unreachable!() };
    while !matches!(net.next(), Some(Event::Stream { .. })) {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
    let mut asked = 0;
    while asked < count {
        assert!(start.elapsed() < PATIENCE, "{asked} of {count}");
        let news = near.news();
        assert!(news.len() <= NET_EVENTS_MAX, "{} at one look", news.len());
        asked += news.iter().filter(|news| matches!(news, News::Asks { .. })).count();
        near.wait(Duration::from_millis(10));
    }
}

#[test]
fn what_many_are_told_is_enclosed_once() {
    let mut enclosure = Enclosure { bytes: b"told", fd: None };
    let fd = enclosure.fd().unwrap();
    assert!(Arc::ptr_eq(&fd, &enclosure.fd().unwrap()));
    assert_eq!(disclose(&fd, 4, 4).unwrap(), b"told");
}
