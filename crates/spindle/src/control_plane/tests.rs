//! Control planes on several hosts, which are runtime directories here, without nodes above them.
use super::arrivals::NET_EVENTS_MAX;
use super::*;
use crate::Config;
use spindle_core::control::{Address, Asks, Birth, HostProcess, Instance, Question, Request, ViewAnnouncement};
use spindle_transport::net::NetEvent;
use spindle_transport::rendezvous::enclose;
use std::path::PathBuf;

/// How long to wait for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const QUESTION: Question = Question { config: 0, members: 1, observer: false, follows: ViewId(0) };

/// Hosts, with the addresses of their processes; removed at the end of the test.
pub(crate) struct Hosts(PathBuf);

impl Hosts {
    pub(crate) fn new(name: &str) -> Hosts {
        let path = std::env::temp_dir().join(format!("spindle-control-plane-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Hosts(path)
    }

    pub(crate) fn dir(&self, host: u32) -> PathBuf {
        self.0.join(format!("host{host}"))
    }

    /// Returns an address that no process uses unless the test makes it listen there.
    pub(crate) fn at(&self, name: &str) -> Address {
        format!("unix:{}/{name}", self.0.display()).parse().unwrap()
    }

    /// Returns the network of a process that listens at `name` and looks for others at `seeds`.
    pub(crate) fn network(&self, name: &str, seeds: &[&str]) -> Network {
        Network::new(self.at(name), seeds.iter().map(|seed| self.at(seed)).collect())
    }

    /// Returns the control plane of a process with an id of its own.
    pub(crate) fn control_plane(&self, host: u32, id: u64, name: &str, seeds: &[&str]) -> ControlPlane {
        let (dir, group) = (RuntimeDir::new(self.dir(host)).unwrap(), GroupName::new("g").unwrap());
        let control_socket = ControlSocket::open(&dir, &group, MemberId(id)).unwrap();
        ControlPlane::new(control_socket, None, Some((&self.network(name, seeds), &dir, &group))).unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a view of these members.
pub(crate) fn view(id: u64, members: &[u64]) -> View {
    let members = members.iter().copied().map(MemberId).collect();
    View { id: ViewId(id), ..Config::new("g", 1).view(members) }
}

/// Returns the first event of `control_plane` in which `find` finds a value.
pub(crate) fn hear<T>(
    control_plane: &mut ControlPlane,
    what: &str,
    mut find: impl FnMut(ControlPlaneEvent) -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = control_plane.news().into_iter().find_map(&mut find) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "no {what}");
        control_plane.wait(Duration::from_millis(10));
    }
}

/// Returns the members that have died, according to these events.
fn died(news: &[ControlPlaneEvent]) -> Vec<MemberId> {
    let died = news.iter().filter_map(|news| match news {
        ControlPlaneEvent::Control(control::ControlEvent::Died(id)) => Some(*id),
        _ => None,
    });
    died.collect()
}

fn asks(news: &ControlPlaneEvent) -> bool {
    matches!(news, ControlPlaneEvent::Control(control::ControlEvent::Asks(_)))
}

/// Returns a control plane of one host, without other hosts.
fn near(hosts: &Hosts, id: u64) -> ControlPlane {
    let (dir, group) = (RuntimeDir::new(hosts.dir(0)).unwrap(), GroupName::new("g").unwrap());
    let mut control_plane =
        ControlPlane::new(ControlSocket::open(&dir, &group, MemberId(id)).unwrap(), None, None).unwrap();
    control_plane.set_incarnation(7);
    control_plane
}

#[test]
fn a_missing_address_proves_no_death() {
    let hosts = Hosts::new("missing-address");
    let mut control_plane = near(&hosts, 1);
    control_plane.act(|roster, now| roster.begin(&view(1, &[1, 2]), now));
    for id in [2, 3] {
        control_plane.act(|roster, now| roster.ask(MemberId(id), QUESTION, now));
    }
    let news = control_plane.news_now();
    let is_it = matches!(news[..], [ControlPlaneEvent::Control(control::ControlEvent::Lost(MemberId(3)))]);
    assert!(is_it, "a member is no less one for that: {news:?}");
    control_plane.act(|roster, now| roster.seek(&[MemberId(2)], now));
    let Ways::Rendezvous(rendezvous) = &control_plane.ways else { unreachable!() };
    assert!(!control_plane.roster.is_dead(MemberId(2)) && rendezvous.outbox.holds_for(MemberId(2)));
    // It makes its address again, and gets the messages that were written meanwhile.
    let mut back = near(&hosts, 2);
    let asked = || {
        control_plane.flush_now();
        back.wait(Duration::from_millis(1));
        back.news().into_iter().any(|news| {
            matches!(news, ControlPlaneEvent::Control(control::ControlEvent::Asks(Asks { id: MemberId(1), .. })))
        })
    };
    let start = Instant::now();
    assert!(std::iter::repeat_with(asked).take_while(|_| start.elapsed() < PATIENCE).any(|asked| asked));
}

/// The process that announces a view knows the processes of joiners, which may have ended since.
#[test]
fn a_member_that_ends_before_its_memory_comes_is_proven_dead_once() {
    let hosts = Hosts::new("unread-row");
    let mut control_plane = near(&hosts, 1);
    let mut ends = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let birth = Birth { started: 0, ..own_birth() };
    let process = |id, pid| HostProcess { id: MemberId(id), host: 0, pid, birth };
    let processes = vec![process(2, ends.id()), process(3, ended.id())];
    let told = ViewAnnouncement {
        view: view(1, &[1, 2, 3]),
        decision: vec![],
        newcomers: vec![control_plane.roster().as_process()],
        observers: vec![],
        processes,
        cards: vec![],
    };
    let bytes = told.encode();
    let message =
        ControlMessage::View { incarnation: 7, view: ViewId(1), from: MemberId(4), bytes: bytes.len() as u64 };
    let mut news = vec![];
    control_plane.take(message, vec![enclose(&bytes).unwrap()], &mut news);
    control_plane.gather(&mut news);
    let is_told = |news: &[ControlPlaneEvent]| {
        news.iter().any(|news| matches!(news, ControlPlaneEvent::Control(control::ControlEvent::View { .. })))
    };
    // A death is reported after all messages in the control socket.
    assert!(news.len() == 1 && is_told(&news) && !control_plane.roster.is_dead(MemberId(3)), "{news:?}");
    assert_eq!(died(&control_plane.news()), [MemberId(3)]);
    assert!(!control_plane.roster.is_dead(MemberId(2)));
    ends.kill().unwrap();
    ends.wait().unwrap();
    hear(&mut control_plane, "death", |news| (died(&[news]) == [MemberId(2)]).then_some(()));
    assert!(control_plane.roster.is_dead(MemberId(2)) && control_plane.roster.is_dead(MemberId(3)));
    assert!(died(&control_plane.news_now()).is_empty());
}

/// The process lives on, so the kernel reports no end.
#[test]
fn a_process_that_gives_up_before_its_first_view_says_so() {
    let hosts = Hosts::new("gives-up");
    let (mut control_plane, mut joins) = (near(&hosts, 1), near(&hosts, 2));
    joins.act(|roster, now| roster.ask(MemberId(1), QUESTION, now));
    joins.flush_now();
    let instance: Instance = hear(&mut control_plane, "question", |news| match news {
        ControlPlaneEvent::Control(control::ControlEvent::Asks(asks)) if asks.id == MemberId(2) => Some(asks.instance),
        _ => None,
    });
    control_plane.act(|roster, _| roster.expect(&view(2, &[1, 2])));
    drop(joins);
    hear(&mut control_plane, "end notice", |news| (died(&[news]) == [MemberId(2)]).then_some(()));
    let is_it = control_plane.roster.is_instance(MemberId(2), instance);
    assert!(control_plane.roster.is_dead(MemberId(2)) && !is_it, "its next attempt is another");
}

/// No kernel reports its end, and the group may have too few other members to change the view.
#[test]
fn a_process_that_gives_up_before_its_first_view_says_so_on_other_hosts() {
    let hosts = Hosts::new("gives-up-afar");
    let (mut control_plane, mut joins) =
        (hosts.control_plane(0, 1, "near", &[]), hosts.control_plane(1, 2, "far", &["near"]));
    joins.act(|roster, now| roster.ask_afar(QUESTION, now));
    hear(&mut control_plane, "question", |news| asks(&news).then_some(()));
    control_plane.act(|roster, _| roster.expect(&view(2, &[1, 2])));
    assert!(!control_plane.roster.never_begins(ViewId(2), MemberId(2)));
    drop(joins);
    hear(&mut control_plane, "end notice", |news| {
        let ControlPlaneEvent::Control(control::ControlEvent::Requests { from, what: Request::Stopped { .. }, .. }) =
            news
        else {
            return None;
        };
        (from == MemberId(2)).then_some(())
    });
    assert!(control_plane.roster.never_begins(ViewId(2), MemberId(2)));
}

/// The thread that polls the member has other work.
#[test]
fn so_much_is_read_at_one_look_and_the_rest_at_the_next() {
    let hosts = Hosts::new("looks");
    let (mut near, mut far) = (hosts.control_plane(0, 1, "near", &[]), hosts.control_plane(1, 2, "far", &["near"]));
    let count = 3 * NET_EVENTS_MAX;
    far.act(|roster, now| roster.ask_afar(QUESTION, now));
    hear(&mut near, "first control message", |news| asks(&news).then_some(()));
    for _ in 0..count {
        far.act(|roster, now| roster.ask_afar(QUESTION, now));
    }
    // When this is answered, most of the messages have arrived.
    far.net().unwrap().endpoint().dial(&hosts.at("near"), None, Purpose::State { view: ViewId(1) });
    let start = Instant::now();
    let Ways::Rendezvous(Rendezvous { net: Some(net), .. }) = &mut far.ways else { unreachable!() };
    while !matches!(net.next(), Some(NetEvent::Stream { .. })) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    let mut asked = 0;
    while asked < count {
        assert!(start.elapsed() < PATIENCE, "{asked} of {count}");
        let news = near.news();
        assert!(news.len() <= NET_EVENTS_MAX, "{} at one look", news.len());
        asked += news.iter().filter(|news| asks(news)).count();
        near.wait(Duration::from_millis(10));
    }
}
