//! Snapshots of a cache, and the history that late joiners get (DURABILITY, DDS 2.2.3.4).
use crate::sets::in_set;
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::{InstanceState, SampleState, StateMask};
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::{DataReaderQos, SubscriberQos};
use std::collections::BTreeMap;
use std::sync::Arc;

const SCOPE: PresentationQosPolicyAccessScopeKind = PresentationQosPolicyAccessScopeKind::Topic;

fn bytes(payload: &[u8]) -> Payload {
    Arc::from(payload)
}

fn restored(reader: &Fixture, qos: &DataReaderQos, subscriber: &SubscriberQos) -> Fixture {
    let mut cache = ReaderCache::new(qos, subscriber, key_reader()).unwrap();
    let effects = cache.restore(&reader.cache.snapshot(), bytes, at(reader.now)).unwrap();
    Fixture { cache, seq: reader.seq, now: reader.now, effects: vec![effects] }
}

#[test]
fn a_snapshot_has_instances_sets_and_writers() {
    let mut qos = keep_last(2);
    qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    qos.deadline.period = nanos(10);
    let subscriber = presented(SCOPE, true, true);
    let mut reader = Fixture::new(&qos, &subscriber);
    reader.write(A, 1, 1);
    reader.write(B, 1, 2);
    reader.change(B, Dispose, 2, 0);
    reader.change(C, Register, 3, 0);
    reader.event(in_set(A, 7, change(A, Write, 4, 1, 0)));
    let end = WriterEnd::Deleted { autodispose: true };
    reader.event(ReaderEvent::WriterUnmatched(C, end));
    let mut joiner = restored(&reader, &qos, &subscriber);
    assert_eq!(joiner.cache.snapshot(), reader.cache.snapshot());
    let liveness: Vec<_> = joiner.effects[0].liveness.iter().map(|own| (own.writer, own.now)).collect();
    assert_eq!(liveness, [(A, Some(true)), (B, Some(true))]);
    assert!(joiner.effects[0].data_available);
    for reader in [&mut reader, &mut joiner] {
        // The half of the set, the owner, the deadline and the departed writer are there.
        reader.event(in_set(A, 7, change(A, Write, 4, 2, 0)));
        let set = SetId { source: A, number: 7 };
        reader.event(ReaderEvent::SetEnd(SetEnd { set, changes: vec![(A, 2)] }));
        reader.write(A, 1, 3);
        let late = ReaderEvent::Change(change(C, Write, 5, 5, 0));
        let _ = reader.cache.deliver(position(2), late, at(0));
        assert_eq!(reader.owner(1), Some(B));
        assert_eq!(reader.cache.wake_at(), Some(at(10)));
        assert_eq!(reader.taken(), "5=5 1=1 1=2 2! 5! 4=1 4=2");
    }
}

#[test]
fn what_has_ended_since_the_snapshot_ends_at_the_restore() {
    let mut reader = Fixture::of(&keep_all());
    reader.event(ReaderEvent::WriterMatched(WriterInfo { lifespan: nanos(10), ..writer(A, 1) }));
    reader.write(A, 1, 1);
    reader.write(B, 2, 1);
    let mut qos = keep_all();
    qos.deadline.period = nanos(8);
    let mut cache = ReaderCache::new(&qos, &SubscriberQos::default(), key_reader()).unwrap();
    let effects = cache.restore(&reader.cache.snapshot(), bytes, at(20)).unwrap();
    assert_eq!((effects.deadlines.len(), cache.sample_count(), cache.counters().expired), (2, 1, 1));
}

#[test]
fn a_snapshot_fits_a_new_cache_with_the_same_policies() {
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 1);
    let snapshot = reader.cache.snapshot();
    assert_eq!(reader.cache.restore(&snapshot, bytes, at(0)), Err(SnapshotError::InUse));
    let restore = |qos: &DataReaderQos, snapshot: &[u8]| {
        let mut cache = ReaderCache::new(qos, &SubscriberQos::default(), key_reader()).unwrap();
        let result = cache.restore(snapshot, bytes, at(0));
        assert!(result.is_ok() || cache.footprint() == 0);
        result.map_err(|error| error.to_string())
    };
    let error = restore(&keep_last(1), &snapshot).unwrap_err();
    assert_eq!(error, "the snapshot is of a cache with another HISTORY; make this cache with the same policies");
    let mut limited = keep_all();
    limited.resource_limits.max_instances = Length::Limited(3);
    assert!(restore(&limited, &snapshot).unwrap_err().contains("RESOURCE_LIMITS max_instances"));
    assert!(restore(&keep_all(), b"xy").unwrap_err().contains("no snapshot of a cache"));
    let mut other = snapshot.clone();
    other[4] = 9;
    assert!(restore(&keep_all(), &other).unwrap_err().contains("has version 9, and this is version 1"));
    for length in 0..snapshot.len() {
        assert!(restore(&keep_all(), &snapshot[..length]).is_err(), "{length} bytes");
    }
    let longer = [&snapshot[..], &[0]].concat();
    assert!(restore(&keep_all(), &longer).unwrap_err().contains("bytes follow the end"));
    let _ = restore(&keep_all(), &snapshot).unwrap();
}

/// Makes a cache with all parts that a snapshot may have.
fn busy(chance: &mut Chance, qos: &DataReaderQos, subscriber: &SubscriberQos) -> Fixture {
    let mut reader = Fixture::new(qos, subscriber);
    for number in 0..40 {
        reader.now += chance.below(3) as i64;
        let (guid, key) = (chance.pick(&[A, B, C]), chance.below(4) as u8);
        let kind = chance.pick(&[Write, Write, Write, Dispose, Register, Unregister]);
        let change = change(guid, kind, key, number, reader.now);
        match chance.below(6) {
            0 => reader.event(in_set(guid, 1 + chance.below(2) as u64, change)),
            1 => reader
                .event(ReaderEvent::WriterDeparted(writer(spindle_dds_core::Guid([number; 16]), 1), WriterEnd::Lost)),
            _ => reader.event(ReaderEvent::Change(change)),
        }
    }
    reader
}

#[test]
fn a_snapshot_with_wrong_bytes_is_refused_or_is_one() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 1..400 {
        let mut chance = Chance::new(seed);
        let coherent = chance.one_in(2);
        let mut qos = keep_last(2);
        qos.time_based_filter.minimum_separation = nanos(if coherent { 0 } else { 4 });
        qos.deadline.period = nanos(7);
        let subscriber = presented(SCOPE, coherent, true);
        let mut reader = busy(&mut chance, &qos, &subscriber);
        let mut snapshot = reader.cache.snapshot();
        for _ in 0..1 + chance.below(3) {
            // The head is another test's.
            let place = 74 + chance.below(snapshot.len() - 74);
            match chance.below(4) {
                0 => drop(snapshot.remove(place)),
                1 => snapshot.insert(place, chance.below(256) as u8),
                2 => snapshot[place] = 0xff,
                _ => snapshot[place] ^= 1 << chance.below(8),
            }
        }
        let mut cache = ReaderCache::new(&qos, &subscriber, key_reader()).unwrap();
        match cache.restore(&snapshot, bytes, at(reader.now)) {
            Err(_) => {
                refused += 1;
                assert_eq!(cache.footprint(), 0);
            }
            Ok(_) => {
                taken += 1;
                // It is a cache like any other.
                reader.cache = cache;
                for value in 0..20 {
                    reader.now += 3;
                    let keys = |key: u8| change(chance_writer(value), Write, key, value, 0);
                    (0..4).for_each(|key| reader.event(ReaderEvent::Change(keys(key))));
                    let _ = reader.read(&Select::any());
                }
                let _ = reader.cache.history();
                for guid in [A, B, C] {
                    reader.event(ReaderEvent::WriterUnmatched(guid, WriterEnd::Lost));
                }
                let _ = reader.taken();
            }
        }
    }
    assert!(refused > 50 && taken > 50, "{refused} refused, {taken} taken");
}

fn chance_writer(value: u8) -> spindle_dds_core::Guid {
    [A, B, C][usize::from(value % 3)]
}

/// A store keeps all, and a joiner gets its history: it has the same instances, writers, owners and values.
#[test]
fn the_history_makes_a_late_joiner_equal() {
    for seed in 1..400 {
        let mut chance = Chance::new(seed);
        let mut qos = if chance.one_in(2) { keep_all() } else { keep_last(2) };
        if chance.one_in(2) {
            qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
        }
        let mut store = Fixture::of(&qos);
        let mut matched = vec![A, B, C];
        let mut strengths = BTreeMap::from([(A, 1), (B, 2), (C, 3)]);
        for number in 0..60 {
            let (guid, key) = (chance.pick(&[A, B, C]), 1 + chance.below(3) as u8);
            match chance.below(20) {
                0 if matched.len() > 1 => {
                    let end = chance.pick(&[WriterEnd::Lost, WriterEnd::Deleted { autodispose: true }]);
                    matched.retain(|own| *own != guid);
                    store.event(ReaderEvent::WriterUnmatched(guid, end));
                }
                _ if !matched.contains(&guid) => {}
                1 => {
                    let strength = chance.below(4) as i32;
                    strengths.insert(guid, strength);
                    store.event(ReaderEvent::WriterMatched(writer(guid, strength)));
                }
                _ => {
                    let kind = chance.pick(&[Write, Write, Write, Write, Register, Dispose, Unregister]);
                    store.change(guid, kind, key, number);
                }
            }
        }
        let cache = ReaderCache::new(&qos, &SubscriberQos::default(), key_reader()).unwrap();
        let mut joiner = Fixture { cache, seq: store.seq, now: 0, effects: Vec::new() };
        // The joiner matches the writers that live, by the news of the group.
        for guid in matched {
            joiner.event(ReaderEvent::WriterMatched(writer(guid, strengths[&guid])));
        }
        for (position, event) in store.cache.history() {
            let _ = joiner.cache.deliver(position, event, at(0));
        }
        for key in 1..=3 {
            let sorted = |reader: &Fixture| {
                reader.cache.instance(handle(key)).map(|mut info| {
                    info.writers.sort();
                    (info.state, info.writers, info.owner)
                })
            };
            assert_eq!(sorted(&joiner), sorted(&store), "seed {seed}, instance {key}");
        }
        let values = |reader: &mut Fixture| {
            let text = reader.taken();
            text.split(' ').filter(|value| !value.ends_with('!')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(values(&mut joiner), values(&mut store), "seed {seed}");
    }
}

#[test]
fn the_history_says_that_an_instance_is_disposed() {
    let mut store = Fixture::of(&keep_all());
    store.write(A, 1, 1);
    let _ = store.read(&Select::any()).unwrap();
    store.change(A, Dispose, 1, 0);
    // The application of the store takes the sample that says so.
    let unread = StateMask::ANY.sample(&[SampleState::NotRead]);
    assert_eq!(text(&store.take(&Select::any().states(unread)).unwrap()), "1!");
    let mut joiner = Fixture::of(&keep_all());
    for (position, event) in store.cache.history() {
        let _ = joiner.cache.deliver(position, event, at(0));
    }
    assert_eq!(joiner.state(1), Some(InstanceState::NotAliveDisposed));
    assert_eq!(joiner.taken(), "1=1 1!");
}
