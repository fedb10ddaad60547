//! Coherent sets at TOPIC scope (DDS 2.2.3.6).
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::Guid;
use spindle_dds_core::cache::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;

const SCOPE: PresentationQosPolicyAccessScopeKind = PresentationQosPolicyAccessScopeKind::Topic;

fn coherent(qos: &DataReaderQos) -> Fixture {
    Fixture::new(qos, &presented(SCOPE, true, true))
}

pub(crate) fn in_set(source: Guid, number: u64, change: CacheChange<Payload>) -> ReaderEvent<Payload> {
    ReaderEvent::Change(CacheChange { set: Some(SetId { source, number }), ..change })
}

fn send(reader: &mut Fixture, number: u64, key: u8, value: u8) {
    reader.event(in_set(A, number, change(A, Write, key, value, 0)));
}

fn end(reader: &mut Fixture, number: u64, count: u32) {
    reader.event(ReaderEvent::SetEnd(SetEnd { set: SetId { source: A, number }, changes: vec![(A, count)] }));
}

#[test]
fn a_set_becomes_visible_at_its_end() {
    let mut reader = coherent(&keep_all());
    send(&mut reader, 1, 1, 1);
    reader.write(B, 5, 5);
    send(&mut reader, 1, 2, 2);
    assert!(!reader.effects[0].data_available);
    assert_eq!(text(&reader.read(&Select::any()).unwrap()), "5=5");
    assert_eq!(reader.cache.pending_changes().len(), 2);
    end(&mut reader, 1, 2);
    // It is ordered by its end; its samples keep their own positions.
    let samples = reader.read(&Select::any()).unwrap();
    assert_eq!(text(&samples), "5=5 1=1 2=2");
    assert_eq!(samples[1].info.position.seq + 2, samples[2].info.position.seq);
    assert_eq!(reader.cache.counters().sets_committed, 1);
}

#[test]
fn a_reader_without_coherent_access_sees_changes_at_once() {
    for subscriber in
        [presented(SCOPE, false, true), presented(PresentationQosPolicyAccessScopeKind::Instance, true, false)]
    {
        let mut reader = Fixture::new(&keep_all(), &subscriber);
        send(&mut reader, 1, 1, 1);
        assert_eq!(reader.taken(), "1=1");
        end(&mut reader, 1, 1);
        assert_eq!(reader.taken(), "");
    }
}

#[test]
fn a_set_without_its_end_is_never_seen() {
    for event in [
        ReaderEvent::WriterUnmatched(A, WriterEnd::Lost),
        ReaderEvent::WriterUnmatched(A, WriterEnd::Deleted { autodispose: true }),
        ReaderEvent::SetAbandoned(SetId { source: A, number: 1 }),
    ] {
        let mut reader = coherent(&keep_all());
        send(&mut reader, 1, 1, 1);
        reader.event(event);
        end(&mut reader, 1, 1);
        assert_eq!(reader.taken(), "");
        assert_eq!((reader.cache.counters().sets_discarded, reader.cache.footprint()), (1, 0));
        // The application hears that a sample is lost.
        assert_eq!(reader.effects.iter().map(|effects| effects.lost).sum::<u32>(), 1);
    }
    let mut reader = coherent(&keep_all());
    send(&mut reader, 1, 1, 1);
    send(&mut reader, 2, 2, 2);
    end(&mut reader, 2, 1);
    end(&mut reader, 1, 1);
    assert_eq!(reader.taken(), "2=2");
}

#[test]
fn a_set_of_which_a_part_is_missing_is_discarded() {
    let mut reader = coherent(&keep_all());
    send(&mut reader, 1, 1, 1);
    end(&mut reader, 1, 2);
    assert_eq!((reader.taken().as_str(), reader.cache.counters().sets_discarded), ("", 1));
    assert_eq!(reader.effects.last().unwrap().lost, 1);
    // A joiner that gets the changes of pending sets has the whole set.
    send(&mut reader, 2, 1, 1);
    let mut joiner = coherent(&keep_all());
    joiner.seq = reader.seq;
    let pending: Vec<_> = reader.cache.pending_changes().into_iter().map(|(at, change)| (at, change.clone())).collect();
    for (place, change) in pending {
        let _ = joiner.cache.deliver(place, ReaderEvent::Change(change), at(0));
    }
    for reader in [&mut reader, &mut joiner] {
        send(reader, 2, 2, 2);
        end(reader, 2, 2);
        assert_eq!(reader.taken(), "1=1 2=2");
    }
}

#[test]
fn a_set_beyond_a_limit_is_rejected_as_a_whole() {
    let limited = |max_samples, max_instances, max_samples_per_instance| {
        let mut qos = keep_all();
        qos.resource_limits = ResourceLimitsQosPolicy { max_samples, max_instances, max_samples_per_instance };
        coherent(&qos)
    };
    let three = Length::Limited(3);
    // Larger than the buffer, no room beside other samples, no room for instances, and for samples of one.
    type Case<'a> = (Fixture, &'a [(u8, u8)], RejectedReason);
    let cases: [Case<'_>; 4] = [
        (
            limited(three, Length::Unlimited, Length::Unlimited),
            &[(1, 1), (2, 1), (3, 1), (4, 1)],
            RejectedReason::Samples,
        ),
        (limited(three, Length::Unlimited, Length::Unlimited), &[(1, 1), (2, 1), (3, 1)], RejectedReason::Samples),
        (limited(Length::Unlimited, three, Length::Unlimited), &[(1, 1), (2, 1), (3, 1)], RejectedReason::Instances),
        (
            limited(Length::Unlimited, Length::Unlimited, three),
            &[(9, 1), (9, 2), (9, 3)],
            RejectedReason::SamplesPerInstance,
        ),
    ];
    for (mut reader, changes, reason) in cases {
        reader.write(B, 9, 9);
        for (key, value) in changes {
            send(&mut reader, 1, *key, *value);
        }
        end(&mut reader, 1, changes.len() as u32);
        let rejected: Vec<_> = reader.effects.iter().flat_map(|effects| &effects.rejected).collect();
        assert_eq!(rejected.len(), changes.len());
        assert!(rejected.iter().all(|(own, _)| *own == reason));
        assert_eq!(reader.cache.counters().sets_rejected, 1);
        assert_eq!(reader.taken(), "9=9");
        // The next one fits.
        send(&mut reader, 2, 1, 1);
        end(&mut reader, 2, 1);
        assert_eq!(reader.taken(), "1=1");
    }
    let mut qos = keep_last(1);
    qos.resource_limits.max_samples = Length::Limited(2);
    let mut reader = coherent(&qos);
    reader.write(B, 1, 0);
    send(&mut reader, 1, 1, 1);
    send(&mut reader, 1, 2, 2);
    end(&mut reader, 1, 2);
    assert_eq!(reader.taken(), "1=1 2=2");
}

#[test]
fn ends_of_instances_belong_to_the_set() {
    let mut reader = coherent(&keep_all());
    reader.write(A, 1, 1);
    reader.event(in_set(A, 1, change(A, Dispose, 1, 0, 0)));
    send(&mut reader, 1, 2, 2);
    assert_eq!(reader.taken(), "1=1");
    end(&mut reader, 1, 2);
    assert_eq!(reader.taken(), "1! 2=2");
}

/// Random sets of two writers, some of which are given up. A second cache without coherent access gets the
/// changes of each set at its end, and no change of the others. The first one is replaced by its snapshot at
/// random points.
#[test]
fn sets_are_seen_as_if_written_at_their_end() {
    for seed in 1..200 {
        let mut chance = Chance::new(seed);
        let subscriber = presented(SCOPE, true, false);
        let mut reader = Fixture::new(&keep_last(3), &subscriber);
        let mut other = Fixture::of(&keep_last(3));
        // The open set of each writer, and its changes with their positions.
        type Open = Option<(u64, Vec<(u64, CacheChange<Payload>)>)>;
        let mut open: [Open; 2] = [None, None];
        for number in 0..150 {
            let writer = chance.below(2);
            let guid = [A, B][writer];
            reader.seq += 1;
            let (seq, id) = (reader.seq, open[writer].as_ref().map(|(number, _)| *number));
            let mut deliver = |event| drop(reader.cache.deliver(position(seq), event, at(0)));
            let mut expect = |seq, change| drop(other.cache.deliver(position(seq), ReaderEvent::Change(change), at(0)));
            let set = |number| SetId { source: guid, number };
            match (chance.below(8), id) {
                (0, None) => open[writer] = Some((number, Vec::new())),
                (0 | 1, Some(id)) => {
                    let (_, changes) = open[writer].take().unwrap();
                    let count = changes.len() as u32;
                    deliver(ReaderEvent::SetEnd(SetEnd { set: set(id), changes: vec![(guid, count)] }));
                    changes.into_iter().for_each(|(seq, change)| expect(seq, change));
                }
                (2, Some(id)) => {
                    open[writer] = None;
                    deliver(ReaderEvent::SetAbandoned(set(id)));
                }
                (_, id) => {
                    let kind = chance.pick(&[Write, Write, Write, Dispose, Unregister, DisposeUnregister]);
                    let change = change(guid, kind, 1 + chance.below(3) as u8, number as u8, 0);
                    match id {
                        Some(id) => {
                            deliver(in_set(guid, id, change.clone()));
                            open[writer].as_mut().unwrap().1.push((seq, change));
                        }
                        None => {
                            deliver(ReaderEvent::Change(change.clone()));
                            expect(seq, change);
                        }
                    }
                }
            }
            if chance.below(12) == 0 {
                // Another cache continues with a snapshot, in the middle of sets, too.
                let snapshot = reader.cache.snapshot();
                reader.cache = ReaderCache::new(&keep_last(3), &subscriber, key_reader()).unwrap();
                let _ = reader.cache.restore(&snapshot, |payload| Payload::from(payload), at(0)).unwrap();
            }
            let select = Select::any();
            let (left, right) = (reader.read(&select).ok(), other.read(&select).ok());
            assert_eq!(left, right, "seed {seed}");
            if chance.below(10) == 0 {
                assert_eq!(reader.taken(), other.taken(), "seed {seed}");
            }
        }
    }
}

#[test]
fn pending_changes_have_the_order_of_their_positions() {
    let mut reader = coherent(&keep_all());
    for (source, number, value) in [(B, 1, 1), (A, 1, 2), (B, 1, 3)] {
        reader.event(in_set(source, number, change(source, Write, 1, value, 0)));
    }
    let values: Vec<u8> = reader.cache.pending_changes().iter().map(|(_, change)| change.payload[1]).collect();
    assert_eq!(values, [1, 2, 3]);
}

#[test]
fn the_buffer_of_sets_has_the_bounds_of_the_cache() {
    // Two instances with one sample each: the product bounds the buffer.
    let mut qos = keep_all();
    qos.resource_limits.max_instances = Length::Limited(2);
    qos.resource_limits.max_samples_per_instance = Length::Limited(1);
    let mut reader = coherent(&qos);
    (1..=3).for_each(|key| send(&mut reader, 1, key, 1));
    assert_eq!(reader.cache.pending_changes().len(), 0);
    assert_eq!(reader.effects.last().unwrap().rejected.len(), 3);
    // A set that was refused is forgotten with its writer.
    reader.event(ReaderEvent::WriterUnmatched(A, WriterEnd::Lost));
    assert_eq!(reader.cache.footprint(), 0);

    // Ends of instances take no place of samples.
    let mut qos = keep_all();
    qos.resource_limits.max_samples = Length::Limited(2);
    let mut reader = coherent(&qos);
    for key in 1..=2 {
        send(&mut reader, 1, key, 1);
        reader.event(in_set(A, 1, change(A, Dispose, key, 0, 0)));
    }
    end(&mut reader, 1, 4);
    assert_eq!(reader.taken(), "1=1 1! 2=1 2!");
}

#[test]
fn a_change_in_a_set_is_a_sign_of_life() {
    let mut reader = coherent(&keep_all());
    reader.event(ReaderEvent::WriterAlive(A, false));
    send(&mut reader, 1, 1, 1);
    assert_eq!(reader.effects[1].liveness[0].now, Some(true));
}

#[test]
fn a_lent_sample_takes_the_place_of_a_set() {
    let mut qos = keep_last(1);
    qos.resource_limits.max_samples = Length::Limited(1);
    let mut reader = coherent(&qos);
    reader.write(B, 1, 1);
    let loan = reader.cache.read(&Select::any(), at(0)).unwrap().loan;
    for number in 1..=2 {
        send(&mut reader, number, 1, number as u8);
        end(&mut reader, number, 1);
        assert_eq!(reader.cache.counters().sets_rejected, 1);
        let _ = reader.cache.return_loan(loan);
    }
    assert_eq!(reader.taken(), "1=2");
}

#[test]
fn a_set_that_comes_after_the_departure_of_its_writer_is_whole_or_lost() {
    for count in [2, 3] {
        let mut reader = coherent(&keep_all());
        reader.seq = 50;
        reader.event(ReaderEvent::WriterUnmatched(A, WriterEnd::Lost));
        reader.seq = 20;
        (1..=2).for_each(|key| send(&mut reader, 1, key, 1));
        end(&mut reader, 1, count);
        assert_eq!(reader.taken(), if count == 2 { "1=1 2=1 1! 2!" } else { "" });
    }
}

#[test]
fn a_late_set_without_its_end_goes_with_its_writer() {
    let mut reader = coherent(&keep_all());
    reader.seq = 50;
    reader.event(ReaderEvent::WriterUnmatched(A, WriterEnd::Lost));
    reader.seq = 20;
    send(&mut reader, 1, 1, 1);
    let effects = reader.cache.forget_departed(position(50));
    assert_eq!(effects, Effects::default());
    assert_eq!(reader.cache.forget_departed(position(51)).lost, 1);
    assert_eq!(reader.cache.footprint(), 0);
}

/// A set that is accepted fits as a whole, also beside samples that the application holds.
#[test]
fn a_set_that_is_accepted_fits() {
    let (mut committed, mut rejected) = (0, 0);
    for seed in 1..300 {
        let mut chance = Chance::new(seed);
        let mut qos = if chance.one_in(2) { keep_all() } else { keep_last(2) };
        qos.resource_limits.max_samples = Length::Limited(chance.pick(&[4, 6]));
        qos.resource_limits.max_instances = Length::Limited(3);
        qos.resource_limits.max_samples_per_instance = Length::Limited(3);
        let mut reader = coherent(&qos);
        let mut loans = Vec::new();
        for number in 1..60 {
            let count = chance.below(4);
            for _ in 0..count {
                send(&mut reader, number, chance.below(4) as u8, number as u8);
            }
            if chance.one_in(3) {
                reader.write(B, chance.below(4) as u8, 0);
            }
            let before = reader.cache.counters().sets_committed;
            reader.effects.clear();
            end(&mut reader, number, count as u32);
            if reader.cache.counters().sets_committed > before {
                assert_eq!(reader.effects[0].rejected, [], "seed {seed}, set {number}");
                committed += 1;
            } else {
                rejected += usize::from(count > 0);
            }
            let select = Select::any().max_samples(1 + chance.below(3));
            let found = match chance.below(4) {
                0 => reader.cache.read(&select, at(0)),
                1 | 2 => reader.cache.take(&select, at(0)),
                _ => continue,
            };
            loans.extend(found.map(|selection| selection.loan));
            if chance.one_in(2) && !loans.is_empty() {
                let loan = loans.swap_remove(chance.below(loans.len()));
                reader.cache.return_loan(loan).unwrap();
            }
        }
    }
    assert!(committed > 1000 && rejected > 1000, "{committed} committed, {rejected} rejected");
}
