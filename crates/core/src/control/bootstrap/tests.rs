use super::*;
use crate::control::Card;
use crate::limits::BOOTSTRAP_WORDS_MAX;
use alloc::format;
use alloc::vec;

fn process(id: u64) -> Process {
    Process { id: MemberId(id), nonce: id as u32 + 7 }
}

fn initial_view(count: u64) -> InitialView {
    InitialView { incarnation: Incarnation(u128::MAX - 5), members: (0..count).map(process).collect() }
}

/// Returns the card of a process, with the longest address and rack that there are if it `is_long`.
fn card(id: u64, is_long: bool) -> Card {
    let label = "a".repeat(if is_long { 63 } else { 5 });
    let address = format!("{label}.{label}.{label}.z{id:0>60}:7411");
    let rack = is_long.then(|| "r".repeat(64).parse().unwrap());
    Card { id: MemberId(id), host: id.into(), address: address.parse().unwrap(), rack }
}

fn samples() -> Vec<BootstrapMessage> {
    let (ballot, incarnation) = (BootstrapBallot { round: 1 << 40, seed: 3 }, Incarnation(9 << 64 | 4));
    vec![
        BootstrapMessage::Hello { seeds: 5, belongs: None },
        BootstrapMessage::Here { seeds: 0, durable: true, belongs: Some(incarnation) },
        BootstrapMessage::Prepare { ballot, seeds: u64::MAX },
        BootstrapMessage::Promise { ballot, durable: false, accepted: Some((ballot, initial_view(3))) },
        BootstrapMessage::Promise { ballot, durable: true, accepted: None },
        BootstrapMessage::Behind { promised: ballot },
        BootstrapMessage::Invite { incarnation, forced: true },
        BootstrapMessage::Pledge { incarnation },
        BootstrapMessage::Accept { ballot, seeds: 1, initial_view: initial_view(2) },
        BootstrapMessage::Accepted { ballot, durable: true },
        BootstrapMessage::Decided { initial_view: initial_view(MEMBERS_MAX as u64), cards: vec![] },
        BootstrapMessage::Decided { initial_view: initial_view(2), cards: vec![card(0, false), card(1, true)] },
        BootstrapMessage::Places { incarnation, cards: vec![card(1, true), card(2, false)] },
        BootstrapMessage::Exists { incarnation },
    ]
}

#[test]
fn messages_and_records_survive_the_trip_and_cuts_are_noticed() {
    for message in samples() {
        let words = message.encode();
        assert_eq!(BootstrapMessage::decode(&words).as_ref(), Some(&message));
        assert!((0..words.len()).all(|cut| BootstrapMessage::decode(&words[..cut]).is_none()), "{message:?}");
        assert_eq!(BootstrapMessage::decode(&[&words[..], &[0]].concat()), None);
    }
    let ballot = BootstrapBallot { round: 2, seed: 1 };
    for accepted in [None, Some((ballot, initial_view(5)))] {
        let record = BootstrapRecord { seeds: 3, promised: ballot, accepted, belongs: Some(Incarnation(1)) };
        let words = record.encode();
        assert_eq!(BootstrapRecord::decode(&words).as_ref(), Some(&record));
        assert!((0..words.len()).all(|cut| BootstrapRecord::decode(&words[..cut]).is_none()));
    }
}

#[test]
fn a_decision_of_any_size_comes_with_all_cards() {
    for (count, is_long, is_one) in [(3, true, true), (80, false, true), (1024, false, false), (1024, true, false)] {
        let cards: Vec<Card> = (0..count).map(|id| card(id, is_long)).collect();
        let messages = BootstrapMessage::decided(initial_view(count), cards.clone());
        assert_eq!(messages.len() == 1, is_one, "{count}: {}", messages.len());
        let mut told = vec![];
        for (number, message) in messages.iter().enumerate() {
            let words = message.encode();
            assert!(words.len() <= BOOTSTRAP_WORDS_MAX, "{count}: {}", words.len());
            assert_eq!(BootstrapMessage::decode(&words).as_ref(), Some(message));
            assert_eq!(number + 1 == messages.len(), matches!(message, BootstrapMessage::Decided { .. }));
            match message {
                BootstrapMessage::Decided { cards, .. } | BootstrapMessage::Places { cards, .. } => told.extend(cards),
                _ => panic!("{message:?}"),
            }
        }
        told.sort_unstable_by_key(|card| card.id);
        assert!(told.into_iter().eq(&cards), "{count}");
    }
}

#[test]
fn garbage_is_no_message_or_one_that_can_be_said() {
    let mut random = 0x9e37_79b9_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 24
    };
    let mut boot = start(0, 2, false);
    for _ in 0..20_000 {
        let samples = samples();
        let mut words = samples[next() as usize % samples.len()].encode();
        for _ in 0..2 {
            let at = next() as usize % words.len();
            words[at] = next() << (next() % 64);
        }
        if let Some(message) = BootstrapMessage::decode(&words) {
            assert_eq!(BootstrapMessage::decode(&message.encode()).as_ref(), Some(&message));
            boot.hear(process(9), message, Time(0));
            while boot.next_output().is_some() {}
        }
    }
}

/// Returns one of `members` seeds.
fn start(index: u32, members: u32, durable: bool) -> Bootstrap {
    let me = process(index.into());
    let setup = Setup { me, members, random: u128::from(index) << 32, durable, record: BootstrapRecord::default() };
    let mut boot = Bootstrap::new(setup, Time(0));
    boot.set_seeds(SeedList { count: members, own: [index].into(), digest: 4 }, Time(0));
    (0..members).filter(|other| *other != index).for_each(|other| boot.reached(other, MemberId(other.into()), Time(0)));
    boot
}

/// Delivers messages between the seeds, as far as `passes` allows, until none is left or until
/// `until`.
fn talk(boots: &mut [Bootstrap], until: u64, passes: impl Fn(u32, u32) -> bool) -> Vec<Option<InitialView>> {
    let mut begun = vec![None; boots.len()];
    for ms in 0..until {
        let now = Time(ms * MS);
        let mut sent = vec![];
        for (i, boot) in boots.iter_mut().enumerate() {
            if boot.wake_at() <= now {
                boot.poll(now);
            }
            while let Some(output) = boot.next_output() {
                match output {
                    BootstrapOutput::Send { to: To::Seed(to), message } => sent.push((i, to as usize, message)),
                    BootstrapOutput::Send { to: To::Process(to), message } => sent.push((i, to.id.0 as usize, message)),
                    BootstrapOutput::Persist(_) => boot.persisted(now),
                    BootstrapOutput::Begin(initial_view) => begun[i] = Some(initial_view),
                    BootstrapOutput::Join(_) | BootstrapOutput::Waits(_) | BootstrapOutput::Conflict { .. } => {}
                }
            }
        }
        for (from, to, message) in sent {
            if passes(from as u32, to as u32) {
                boots[to].hear(process(from as u64), message, now);
            }
        }
    }
    begun
}

#[test]
fn seeds_that_start_together_found_one_group() {
    for durable in [true, false] {
        let mut boots: Vec<Bootstrap> = (0..3).map(|index| start(index, 3, durable)).collect();
        let begun = talk(&mut boots, 3_000, |_, _| true);
        let first = begun[0].as_ref().unwrap();
        assert_eq!(first.members, [0, 1, 2].map(process));
        assert!(begun.iter().all(|other| other.as_ref() == Some(first)));
    }
}

/// A majority of the seeds creates the group if their votes are on disk. Otherwise the third seed
/// has to answer, and each process reports so.
#[test]
fn silence_is_no_answer_without_disks() {
    for durable in [true, false] {
        let mut boots: Vec<Bootstrap> = (0..3).map(|index| start(index, 3, durable)).collect();
        boots.iter_mut().for_each(|boot| boot.setup.members = 2);
        boots[0].not_reached(2, Time(0));
        let begun = talk(&mut boots, 6_000, |from, to| from != 2 && to != 2);
        assert_eq!(begun[0].is_some(), durable);
        if !durable {
            assert_eq!(boots[0].waiting().need, Need::Seeds);
            assert_eq!(boots[0].waiting().seeds, [SeedState::Own, SeedState::Answers, SeedState::Unreachable]);
            assert_eq!(boots[2].waiting().seeds, [SeedState::Silent, SeedState::Silent, SeedState::Own]);
            // An operator's word replaces the missing answer.
            boots[1].force_create();
            let begun = talk(&mut boots, 10_000, |from, to| from != 2 && to != 2);
            assert_eq!(begun[1].as_ref().unwrap().members, [0, 1].map(process));
            assert_eq!(begun[0], begun[1]);
        }
    }
}

/// All were members of a group, and none knows whether the group continues.
#[test]
fn evicted_members_found_nothing() {
    let mut boots: Vec<Bootstrap> = (0..3).map(|index| start(index, 1, false)).collect();
    boots.iter_mut().for_each(|boot| boot.record.belongs = Some(Incarnation(6)));
    assert_eq!(talk(&mut boots, 10_000, |_, _| true), [None, None, None]);
    assert_eq!(boots[1].waiting().need, Need::Group(Incarnation(6)));
    // The other members continued without them. One of the others sends a message.
    boots[0].hear(process(7), BootstrapMessage::Exists { incarnation: Incarnation(6) }, Time(10_000 * MS));
    assert_eq!(boots[0].waiting().need, Need::Admission(Incarnation(6)));
}

#[test]
fn members_of_two_groups_report_both() {
    let mut boots = [start(0, 1, false), start(1, 1, false)];
    let groups = [3, 4].map(Incarnation);
    boots[0].joined(groups[0], Time(0));
    boots[1].joined(groups[1], Time(0));
    boots[0].hear(process(1), BootstrapMessage::Exists { incarnation: groups[1] }, Time(0));
    let conflict = BootstrapOutput::Conflict { mine: groups[0], theirs: groups[1] };
    assert_eq!(boots[0].next_output(), Some(conflict));
    boots[0].hear(process(1), BootstrapMessage::Exists { incarnation: groups[1] }, Time(0));
    assert_eq!(boots[0].next_output(), None);
}
