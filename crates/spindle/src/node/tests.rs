//! What a member does between two views.
use super::*;
use crate::crew::tests::{Hosts, PATIENCE, hear, view};

fn installing(crew: &mut Crew, view: View, suspect_after: Option<Duration>) -> Installing {
    let bell = MemberBell::with_event().unwrap();
    let terms = Terms { suspect_after, ..Config::new("g", 1).terms() };
    Installing::first(view, &[], crew, &bell, &terms, None).unwrap()
}

/// Those who have begun see no life of a member of another host that has not, and suspect it soon.
#[test]
fn who_misses_members_of_other_hosts_begins_before_it_is_suspected() {
    let hosts = Hosts::new("half");
    let after = Duration::from_secs(80);
    for (host_of_other, begins_at) in [(0, after), (1, after / 2)] {
        let mut crew = hosts.crew(0, 1, "a", &[]);
        let _other = hosts.crew(host_of_other, 2, "b", &[]);
        let mut installing = installing(&mut crew, view(2, &[1, 2]), Some(after));
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
    let digest = 4;
    for (id, is_told) in [(5, false), (6, true)] {
        let mut other = hosts.crew(id as u32, id, &format!("{id}"), &["a"]);
        other.ask_afar(digest, 1, false);
        let start = Instant::now();
        while crew.pid(MemberId(id)) == 0 {
            assert!(start.elapsed() < PATIENCE);
            crew.wait(Duration::from_millis(10));
            installing.attend(&mut crew, digest);
        }
        // Behind what it may have been answered.
        crew.post(MemberId(id), Letter::Wait { members: 1, leader: MemberId(1), present: vec![] });
        let was_told = hear(&mut other, "answer", |news| match news {
            News::View { .. } => Some(true),
            News::Waits(_) => Some(false),
            _ => None,
        });
        assert_eq!(was_told, is_told, "member {id}");
    }
}
