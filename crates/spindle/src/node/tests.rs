//! What a member does between two views.
use super::*;
use crate::crew::tests::{Hosts, PATIENCE, hear, view};
use spindle_core::Rows;
use spindle_core::layout::entry;
use spindle_fabric::net::Address;
use spindle_fabric::tcp::{SocketOptions, SocketStream};
use std::os::unix::net::UnixStream;

struct Nothing;

impl Handler for Nothing {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {});
    }
}

fn installing(crew: &mut Crew, view: View, suspect_after: Option<Duration>) -> Installing {
    let bell = MemberBell::with_event().unwrap();
    let terms = Terms { suspect_after, ..Config::new("g", 1).terms() };
    Installing::first(view, &[], crew, &bell, &terms, None).unwrap()
}

/// Those who have begun see no life of a member of another host that has not, and suspect it soon. But without half of the members nobody gets
/// anywhere.
#[test]
fn who_misses_few_members_of_other_hosts_begins_before_it_is_suspected() {
    let hosts = Hosts::new("half");
    let after = Duration::from_secs(80);
    let cases: [(u32, &[u64], Duration); 3] =
        [(0, &[1, 2], after), (1, &[1, 2, 3], after / 2), (1, &[1, 2], 2 * after)];
    for (host_of_other, members, begins_at) in cases {
        let mut crew = hosts.crew(0, 1, "a", &[]);
        let _other = hosts.crew(host_of_other, 2, "b", &[]);
        crew.set_incarnation(7);
        crew.begin(&view(1, members));
        let mut installing = installing(&mut crew, view(2, members), Some(after));
        // It is waited for no more.
        crew.note_stopped(MemberId(3), 7, ViewId(1));
        assert!(!installing.look(&mut crew));
        installing.since -= begins_at / 2;
        assert!(!installing.look(&mut crew), "on host {host_of_other}");
        installing.since -= begins_at / 2;
        assert!(installing.look(&mut crew), "on host {host_of_other}");
    }
}

/// Who asks with the id of a member of another host has come after that member, or is it; only who was not in the view before needs to be
/// told again.
#[test]
fn between_two_views_only_newcomers_of_other_hosts_are_told_of_the_next() {
    let hosts = Hosts::new("namesake");
    let mut crew = hosts.crew(0, 1, "a", &[]);
    crew.set_incarnation(7);
    crew.begin(&view(1, &[1, 5]));
    let installing = installing(&mut crew, view(2, &[1, 5, 6]), None);
    for (id, is_told) in [(5, false), (6, true)] {
        let name = format!("{id}");
        let mut other = hosts.crew(id as u32, id, &name, &["a"]);
        assert_eq!(is_told_who_asks(&installing, &mut crew, &mut other, &hosts.at(&name)), is_told, "member {id}");
    }
}

/// They may have the same pid: so they do here.
#[test]
fn between_two_views_a_newcomer_of_another_host_is_told_from_one_that_has_its_id() {
    let hosts = Hosts::new("two-processes");
    let mut crew = hosts.crew(0, 1, "a", &[]);
    crew.set_incarnation(7);
    crew.begin(&view(1, &[1]));
    let installing = installing(&mut crew, view(2, &[1, 6]), None);
    let mut first = hosts.crew(2, 6, "first", &["a"]);
    assert!(is_told_who_asks(&installing, &mut crew, &mut first, &hosts.at("first")));
    let mut second = hosts.crew(3, 6, "second", &["a"]);
    second.ask_afar(4, 1, false);
    let namesake = hear(&mut crew, "question", |news| match news {
        News::Asks { namesake, .. } => Some(namesake),
        _ => None,
    });
    assert_eq!(namesake, Some(hosts.at("second")));
    assert_eq!(crew.net().and_then(|net| net.far(MemberId(6))), Some(&hosts.at("first")));
}

/// Whether `other`, which asks from `at`, is told of the view.
fn is_told_who_asks(installing: &Installing, crew: &mut Crew, other: &mut Crew, at: &Address) -> bool {
    let digest = 4;
    other.ask_afar(digest, 1, false);
    let start = Instant::now();
    while crew.net().and_then(|net| net.far(other.me)) != Some(at) {
        assert!(start.elapsed() < PATIENCE);
        crew.wait(Duration::from_millis(10));
        installing.attend(crew, digest);
    }
    // Behind what it may have been answered.
    crew.post(other.me, Letter::Wait { members: 1, leader: crew.me, blocked: false, present: vec![] });
    hear(other, "answer", |news| match news {
        News::View { .. } => Some(true),
        News::Waits(_) => Some(false),
        _ => None,
    })
}

/// What is kept readable for those who follow over streams is free when the last of them has gone, though nothing else happens.
#[test]
fn when_the_last_guest_has_gone_what_was_kept_for_it_is_free() {
    let hosts = Hosts::new("last-guest");
    let mut crew = hosts.crew(0, 1, "a", &[]);
    let bell = MemberBell::with_event().unwrap();
    let terms = Config::new("g", 1).terms();
    let mut installing = Installing::first(view(1, &[1]), &[], &mut crew, &bell, &terms, None).unwrap();
    assert!(installing.look(&mut crew));
    let mut node = Node::new(crew, installing, bell, terms).unwrap();
    let mut publisher = node.publisher("all").unwrap();
    let place = *node.engine.layout().row(Rank(0)).places().next().unwrap();
    let start = Instant::now();
    let until = |node: &mut Node, what: &str, done: &dyn Fn(&Node) -> bool| {
        while !done(node) {
            assert!(start.elapsed() < PATIENCE, "{what}");
            node.sleep(&mut Nothing, Duration::from_millis(10)).unwrap();
        }
    };
    let word = move |node: &Node, word: u64| node.fabric.load(Rank(0), place.entry + word);
    let kept = move |node: &Node| word(node, entry::PUBLISHED) - word(node, entry::FREED);
    let (near, guest) = UnixStream::pair().unwrap();
    node.guests.push((ViewId(1), Box::new(SocketStream::new(near, &SocketOptions::default()).unwrap())));
    node.let_guests_in();
    publisher.send(b"kept for a while", PATIENCE).unwrap();
    let is_delivered = |node: &Node| node.status().subgroups[0].stats.delivered == 1;
    until(&mut node, "the delivery", &is_delivered);
    assert!(kept(&node) > 0);
    drop(guest);
    until(&mut node, "all of it to be free", &|node: &Node| kept(node) == 0);
}
