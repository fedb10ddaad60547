//! Admission to a group, and refusal. Each member has its own `ControlSocket`, on a thread of this
//! process.
mod common;

use common::Scratch;
use spindle::{Adoption, Batch, BootstrapProgress, Config, Difference, JoinError, Node, Refusal, Subgroup, SubgroupId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Two processes that wait have different settings. No process adopts those of the other; both
/// report it, and the group is created with a third process.
#[test]
fn processes_that_wait_with_other_settings_report_the_difference() {
    let scratch = Scratch::new("suspicion");
    let founder = create(group(&scratch, 2));
    let mut config = group(&scratch, 2);
    config.suspect_after = Some(Duration::from_secs(7));
    config.adoption = Adoption::Except(BTreeSet::new());
    let (give_up, mut told) = (AtomicBool::new(false), vec![]);
    let mut progress = |progress: &BootstrapProgress| {
        if !progress.differing.is_empty() {
            told = vec![progress.clone()];
            give_up.store(true, Ordering::Relaxed);
        }
    };
    let cancelled = config.join_with(&mut progress, &give_up).map(drop).unwrap_err();
    let text = "a process that waits has other settings: group.suspect_after is 1s there and 7s here";
    assert!(cancelled.to_string().contains(text), "{cancelled}");
    assert_eq!(told[0].differing[0].key, "group.suspect_after");
    group(&scratch, 2).join().unwrap();
    founder.join().unwrap().unwrap();
}

#[test]
fn a_running_group_refuses_other_settings_with_both_values() {
    let scratch = Scratch::new("other-settings");
    let mut config = group(&scratch, 1);
    config.subgroups[0].window = 50;
    let mut founder = config.clone().join().unwrap();
    // While it may send, the group has not finished.
    let publisher = founder.publisher("all").unwrap();
    let founder = founder.start(|_: SubgroupId, _: &mut Batch<'_>| {}).unwrap();
    let refused = group(&scratch, 1).join().map(drop).unwrap_err();
    let JoinError::OtherSettings { differences } = &refused else { panic!("{refused}") };
    let window = |value: u64| Some(value.to_string());
    let expected = Difference { key: "subgroup.all.window".into(), here: window(100), there: window(50) };
    assert_eq!(differences, &[expected]);
    assert!(refused.to_string().contains("subgroup.all.window is 50 there and 100 here"), "{refused}");
    drop((publisher, founder));
}

/// A process adopts all settings of a running group, computes its memory from them, and sends
/// messages of the group's length.
#[test]
fn a_process_that_adopts_takes_part_with_the_settings_of_the_group() {
    let scratch = Scratch::new("adopts");
    let mut config = group(&scratch, 1);
    config.subgroups =
        vec![Subgroup { window: 5, message_bytes_max: 20_000, ..Subgroup::new("long") }, Subgroup::new("other")];
    config.object_bytes_max = 0;
    config.suspect_after = Some(Duration::from_secs(3));
    let mut first = config.clone().join().unwrap();
    let (idle, receiver) = (first.publisher("long").unwrap(), first.receiver("long").unwrap());
    let first = first.start(|_: SubgroupId, _: &mut Batch<'_>| {}).unwrap();
    let joiner = Config { adoption: Adoption::Except(BTreeSet::new()), ..group(&scratch, 1) };
    let own = joiner.shared_settings();
    let mut second = joiner.join().unwrap();
    assert_eq!(second.shared_settings(), &config.shared_settings());
    assert_ne!(second.shared_settings(), &own);
    assert_eq!((second.object_bytes_max(), second.view().subgroups.len()), (0, 2));
    let (mut publisher, own_receiver) = (second.publisher("long").unwrap(), second.receiver("long").unwrap());
    let second = second.start(|_: SubgroupId, _: &mut Batch<'_>| {}).unwrap();
    let message = vec![7; 20_000];
    publisher.send(&message, LONG).unwrap();
    for mut receiver in [receiver, own_receiver] {
        let mut batch = receiver.receive(LONG).unwrap();
        assert_eq!(batch.iter().next().unwrap().payload, message);
    }
    drop((idle, first, second));
}
