//! Order domains at several processes, through changes of the view: every reader gets what the directory says,
//! whichever process is how far, and whichever plan a view follows.
mod scripts;
mod spec;
mod world;

use spec::is_match;
use spindle_dds_core::Guid;
use spindle_dds_core::stream::*;
use std::collections::{BTreeMap, BTreeSet};
use world::{Dice, Gone, Leader, PROCESSES, Seen, Step, World, process_of};

/// Returns the outcome of each step: two commands may take effect at one fence, and then an endpoint hears of
/// both.
fn net(seen: &[(usize, Seen)]) -> Vec<(usize, Seen)> {
    let mut net: Vec<(usize, Seen)> = Vec::new();
    let mut matched: BTreeMap<Guid, (i32, bool)> = BTreeMap::new();
    let mut readers: BTreeSet<Guid> = BTreeSet::new();
    for chunk in seen.chunk_by(|a, b| a.0 == b.0) {
        let (place, before, heard) = (chunk[0].0, matched.clone(), readers.clone());
        let mut ends: BTreeMap<Guid, Gone> = BTreeMap::new();
        for (_, event) in chunk {
            match event {
                Seen::Matched(guid, state) => drop(matched.insert(*guid, *state)),
                Seen::Alive(guid, alive) => matched.get_mut(guid).expect("it matches").1 = *alive,
                Seen::Unmatched(guid, gone) => {
                    assert!(matched.remove(guid).is_some(), "{guid} did not match");
                    assert!(before.contains_key(guid), "{guid} matched for no time");
                    ends.insert(*guid, *gone);
                }
                Seen::Publication(guid, true) => assert!(readers.insert(*guid), "{guid} matches already"),
                Seen::Publication(guid, false) => assert!(readers.remove(guid), "{guid} did not match"),
                other => net.push((place, other.clone())),
            }
        }
        let new = matched.iter().filter(|(guid, state)| before.get(guid) != Some(state));
        net.extend(new.map(|(guid, state)| (place, Seen::Matched(*guid, *state))));
        let gone = before.keys().filter(|own| !matched.contains_key(own));
        net.extend(gone.map(|own| (place, Seen::Unmatched(*own, ends[own]))));
        net.extend(readers.difference(&heard).map(|own| (place, Seen::Publication(*own, true))));
        net.extend(heard.difference(&readers).map(|own| (place, Seen::Publication(*own, false))));
    }
    net.sort();
    net
}

/// Compares all that the endpoints got with the specification.
pub(crate) fn check_events(world: &World) {
    let seed = world.seed;
    for (index, process) in world.processes.iter().enumerate() {
        assert_eq!(process.streams.strays(), 0, "seed {seed}, process {index}");
        for domain in world.steps.keys() {
            for endpoint in process.readers.iter().chain(&process.writers) {
                let seen = process.seen.get(&(*endpoint, *domain)).map_or(&[][..], Vec::as_slice);
                let expected = net(process.spec.expected(*endpoint, *domain));
                assert_eq!(net(seen), expected, "seed {seed}, process {index}, {endpoint}, domain {domain}");
            }
        }
    }
}

/// Checks that a reader gets each sample of a writer that has heard of it, up to the end of the match. The reader
/// may be ahead: its process has entered with a directory in which the match has been interrupted meanwhile.
/// Returns how many samples it got.
pub(crate) fn check_publications(world: &World) -> usize {
    let mut count = 0;
    for (domain, steps) in &world.steps {
        for process in &world.processes {
            for (writer, seen) in
                process.writers.iter().filter_map(|own| Some((own, process.seen.get(&(*own, *domain))?)))
            {
                let mut heard: BTreeMap<Guid, usize> = BTreeMap::new();
                let mut until = seen.iter();
                let mut next = until.next();
                for (place, step) in steps.iter().enumerate() {
                    while let Some((at, event)) = next.filter(|(at, _)| *at <= place) {
                        match event {
                            Seen::Publication(reader, true) => drop(heard.insert(*reader, *at)),
                            Seen::Publication(reader, false) => drop(heard.remove(reader)),
                            _ => {}
                        }
                        next = until.next();
                    }
                    let Step::Message { bytes, .. } = step else { continue };
                    let Ok(StreamMessage::Change(change)) = StreamMessage::decode(bytes) else { continue };
                    if world.versions.values().find_map(|it| it.writer_number(*writer)) != Some(change.writer) {
                        continue;
                    }
                    for (reader, since) in &heard {
                        count += usize::from(check_sample(world, *domain, (*writer, *reader), (*since, place)));
                    }
                }
            }
        }
    }
    count
}

/// Checks that a reader got the sample at a place, which has a writer that heard of the reader at another one.
fn check_sample(world: &World, domain: u32, (writer, reader): (Guid, Guid), (since, place): (usize, usize)) -> bool {
    let own = &world.processes[process_of(reader)];
    if !own.readers.contains(&reader) {
        return false;
    }
    let sender = &world.processes[process_of(writer)].spec;
    let (_, from) = sender.at(domain, since).expect("it is a fence");
    // A process that has failed before it delivered the sample has not heard all that comes before it.
    let (Some(_), Some((known, _))) = (sender.at(domain, place), own.spec.at(domain, place)) else { return false };
    if world.versions.range(from..=known).any(|(_, directory)| !is_match(directory, domain, writer, reader)) {
        return false;
    }
    let seen = own.seen.get(&(reader, domain)).map_or(&[][..], Vec::as_slice);
    let found =
        seen.iter().any(|(at, event)| *at == place && matches!(event, Seen::Change(from, ..) if *from == writer));
    assert!(found, "seed {}: {reader} lacks the sample of {writer} at {place} in {domain}", world.seed);
    true
}

/// Checks a group whose processes have delivered all: nothing waits for ever.
pub(crate) fn check_settled(world: &World) {
    let seed = world.seed;
    for (index, process) in world.processes.iter().enumerate().filter(|(_, it)| it.has_joined && !it.has_crashed) {
        assert_eq!(process.streams.fences_due().count(), 0, "seed {seed}, process {index}");
        for domain in world.steps.keys() {
            let at = format!("seed {seed}, process {index}, domain {domain}");
            assert!(!process.streams.is_blocked(*domain), "{at}");
            let stream = process.streams.stream(*domain);
            assert_eq!(stream.is_some(), process.spec.has_stream(*domain), "{at}");
            let (members, senders) = world.epoch(*domain);
            assert_eq!(stream.is_some(), members.contains(&(index as u64)), "{at}");
            if let Some(stream) = stream.filter(|_| !senders.is_empty()) {
                let version = world.reference.domain_version(*domain).expect("it has members");
                assert!(stream.fenced() >= version, "{at}: no fence for {version} after {}", stream.fenced());
            }
        }
        for writer in &process.writers {
            // The directory may have refused it.
            let Some(entry) = world.reference.writer(*writer) else { continue };
            let domain = world.reference.domain_of(&entry.description.topic.name);
            assert_eq!(process.streams.active_domain(*writer), domain, "seed {seed}: {writer} may never send");
        }
    }
}

fn run(seeds: std::ops::Range<u64>, leader: Leader) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for seed in seeds {
        let mut dice = Dice(seed);
        let mut world = World::new(seed, leader, seed % 2 == 0);
        let join_at = 300 + dice.below(1000);
        for step in 0..2000 {
            world.step(&mut dice);
            if step == join_at {
                world.join(PROCESSES - 1);
            }
            if step == 1400 && seed % 3 == 0 {
                // The first process is the one with coherent sets.
                world.crash([0, 0, 1, 2][dice.below(4)], &mut dice);
            }
        }
        world.settle(&mut dice);
        check_settled(&world);
        check_events(&world);
        *counts.entry("samples").or_default() += check_publications(&world);
        for process in &world.processes {
            *counts.entry("blocked").or_default() += process.blocked;
            for (_, event) in process.seen.values().flatten() {
                let name = match event {
                    Seen::Matched(..) => "Matched",
                    Seen::Unmatched(_, Gone::Unmatched) => "Unmatched",
                    Seen::Unmatched(_, Gone::Deleted) => "Deleted",
                    Seen::Unmatched(_, Gone::Lost) => "Lost",
                    Seen::Change(..) => "Change",
                    Seen::SetEnd(_) => "SetEnd",
                    Seen::SetAbandoned(_) => "SetAbandoned",
                    Seen::Alive(..) => "Alive",
                    Seen::Publication(..) => "Publication",
                };
                *counts.entry(name).or_default() += 1;
            }
        }
    }
    counts
}

fn check_counts(counts: &BTreeMap<&'static str, usize>) {
    for (name, least) in [
        ("blocked", 100),
        ("Matched", 500),
        ("Unmatched", 100),
        ("Deleted", 50),
        ("Lost", 20),
        ("Change", 1000),
        ("SetEnd", 20),
        ("SetAbandoned", 5),
        ("Alive", 20),
        ("Publication", 500),
        ("samples", 500),
    ] {
        assert!(counts.get(name).is_some_and(|count| *count >= least), "{name}: {counts:?}");
    }
}

#[test]
fn endpoints_get_what_the_directory_says_at_the_last_fence() {
    check_counts(&run(0..600, Leader::Newest));
}

#[test]
fn views_follow_the_plans_that_a_process_has() {
    check_counts(&run(10_000..10_600, Leader::Process));
}

#[test]
fn views_follow_plans_in_any_order() {
    check_counts(&run(20_000..20_600, Leader::Any));
}
