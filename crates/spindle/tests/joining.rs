//! Admission to a group, and refusal. Each member has its own `ControlSocket`, on a thread of this
//! process.
mod common;

use common::Scratch;
use spindle::{Config, JoinError, Node, Refusal};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn group(scratch: &Scratch, members: u32) -> Config {
    scratch.group(members, LONG)
}

/// Founds a group on a thread of its own, and waits until other processes can find it.
fn create(config: Config) -> JoinHandle<Result<Node, JoinError>> {
    let (tell, here) = channel();
    let founder = thread::spawn(move || {
        let mut progress = move |_: &_| tell.send(()).unwrap_or_default();
        config.join_with(&mut progress, &AtomicBool::new(false))
    });
    here.recv_timeout(LONG).unwrap();
    founder
}

#[test]
fn a_founder_of_another_number_is_refused_and_delays_no_other() {
    let scratch = Scratch::new("founders");
    let founder = create(group(&scratch, 2));
    // It would complete the group.
    let refused = group(&scratch, 3).join().unwrap_err();
    assert!(matches!(refused, JoinError::Refused(Refusal::Founders(2))), "{refused}");
    let second = group(&scratch, 2).join().unwrap();
    assert_eq!(founder.join().unwrap().unwrap().view().members, second.view().members);
}

#[test]
fn a_founder_of_any_number_creates_the_group_with_the_others() {
    let scratch = Scratch::new("any-number");
    let founder = create(group(&scratch, 2));
    let second = group(&scratch, 1).join().unwrap();
    assert_eq!(second.view().members.len(), 2);
    founder.join().unwrap().unwrap();
}

#[test]
fn a_joiner_with_a_shorter_suspicion_time_is_refused() {
    let scratch = Scratch::new("suspicion");
    let founder = create(group(&scratch, 2));
    let mut config = group(&scratch, 2);
    config.suspect_after = Some(Duration::from_secs(7));
    let refused = config.join().unwrap_err();
    assert!(matches!(refused, JoinError::Refused(Refusal::Config(_))), "{refused}");
    group(&scratch, 2).join().unwrap();
    founder.join().unwrap().unwrap();
}
