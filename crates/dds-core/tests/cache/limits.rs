//! HISTORY and RESOURCE_LIMITS (DDS 2.2.3.18, 2.2.3.19), and DESTINATION_ORDER (DDS 2.2.3.17).
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::StateMask;
use spindle_dds_core::policy::*;

fn limited(qos: spindle_dds_core::qos::DataReaderQos, limits: [Length; 3]) -> Fixture {
    let [max_samples, max_instances, max_samples_per_instance] = limits;
    let resource_limits = ResourceLimitsQosPolicy { max_samples, max_instances, max_samples_per_instance };
    Fixture::of(&spindle_dds_core::qos::DataReaderQos { resource_limits, ..qos })
}

const FREE: Length = Length::Unlimited;

fn rejected(reader: &Fixture) -> Vec<RejectedReason> {
    reader.effects.iter().flat_map(|effects| &effects.rejected).map(|(reason, _)| *reason).collect()
}

#[test]
fn keep_last_replaces_the_oldest_and_counts_it() {
    let mut reader = Fixture::of(&keep_last(2));
    reader.write(A, 1, 1);
    let _ = reader.read(&Select::any()).unwrap();
    for value in 2..=4 {
        reader.write(A, 1, value);
    }
    reader.write(A, 2, 9);
    // The end of an instance displaces no sample.
    reader.change(A, Dispose, 1, 0);
    assert_eq!((reader.cache.counters().overwritten, reader.cache.counters().overwritten_unread), (2, 1));
    assert_eq!(reader.taken(), "1=3 1=4 1! 2=9");
}

#[test]
fn each_limit_rejects_with_its_reason() {
    let mut reader = limited(keep_all(), [FREE, FREE, Length::Limited(2)]);
    (1..=3).for_each(|value| reader.write(A, 1, value));
    reader.write(A, 2, 1);
    assert_eq!(rejected(&reader), [RejectedReason::SamplesPerInstance]);
    assert_eq!(reader.cache.admits(handle(1)), Err(RejectedReason::SamplesPerInstance));
    assert_eq!(reader.taken(), "1=1 1=2 2=1");
    assert_eq!(reader.cache.admits(handle(1)), Ok(()));

    let mut reader = limited(keep_all(), [Length::Limited(2), FREE, FREE]);
    (1..=3).for_each(|key| reader.write(A, key, 0));
    assert_eq!(rejected(&reader), [RejectedReason::Samples]);
    assert_eq!(reader.state(3), None);

    let mut reader = limited(keep_last(1), [Length::Limited(2), FREE, FREE]);
    (1..=2).for_each(|key| reader.write(A, key, 0));
    reader.write(A, 1, 1);
    assert_eq!(rejected(&reader), []);
    reader.write(A, 3, 1);
    assert_eq!(rejected(&reader), [RejectedReason::Samples]);

    let mut reader = limited(keep_all(), [FREE, Length::Limited(1), FREE]);
    reader.write(A, 1, 1);
    reader.write(A, 2, 1);
    reader.change(A, Dispose, 3, 0);
    assert_eq!(rejected(&reader), [RejectedReason::Instances; 2]);
    assert_eq!(reader.cache.counters().rejected, 2);
    // An instance that is collected leaves its place.
    reader.change(A, Unregister, 1, 0);
    let _ = reader.take(&Select::any()).unwrap();
    reader.write(A, 2, 1);
    assert_eq!(reader.taken(), "2=1");
}

fn by_source() -> Fixture {
    let mut qos = keep_all();
    qos.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp;
    Fixture::of(&qos)
}

#[test]
fn older_changes_are_dropped_and_counted_by_source() {
    let mut reader = by_source();
    let mut send = |writer, kind, value, time| {
        reader.event(ReaderEvent::Change(change(writer, kind, 1, value, time)));
    };
    send(B, Write, 1, 10);
    send(A, Write, 2, 9);
    send(A, Write, 3, 10);
    send(C, Write, 4, 10);
    send(B, Write, 5, 10);
    send(C, Write, 6, 10);
    send(A, Dispose, 0, 9);
    send(A, Dispose, 0, 11);
    // Equal times: the larger identity counts as newer, and a writer's own order holds.
    assert_eq!(reader.taken(), "1=1 1=4 1=6 1!");
    assert_eq!(reader.cache.counters().late, 4);
}

#[test]
fn all_orders_of_arrival_end_with_the_same_value_by_source() {
    let changes = [(A, 1, 5), (B, 2, 5), (C, 3, 4), (A, 4, 6), (B, 5, 6)];
    let mut ends = std::collections::BTreeSet::new();
    for start in 0..changes.len() {
        for step in 1..changes.len() {
            let mut reader = by_source();
            for index in 0..changes.len() {
                let (writer, value, time) = changes[(start + index * step) % changes.len()];
                reader.event(ReaderEvent::Change(change(writer, Write, 1, value, time)));
            }
            ends.insert(reader.taken().split(' ').next_back().unwrap().to_owned());
        }
    }
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), ["1=5"]);
}

#[test]
fn samples_are_counted_by_their_states() {
    let mut reader = Fixture::of(&keep_all());
    (1..=3).for_each(|key| reader.write(A, key, 0));
    assert_eq!(reader.cache.count(StateMask::ANY), 3);
    reader.change(A, Dispose, 1, 0);
    assert_eq!(reader.cache.count(StateMask::ANY.not_alive()), 2);
    let _ = reader.taken();
    assert_eq!(reader.cache.count(StateMask::ANY), 0);
}

#[test]
fn lent_samples_count_until_they_are_returned() {
    let mut reader = limited(keep_all(), [Length::Limited(2), FREE, FREE]);
    (1..=2).for_each(|value| reader.write(A, 1, value));
    let loan = reader.cache.take(&Select::any().max_samples(1), at(0)).unwrap().loan;
    reader.write(A, 1, 3);
    assert_eq!(rejected(&reader), [RejectedReason::Samples]);
    reader.cache.return_loan(loan).unwrap();
    reader.write(A, 1, 4);
    assert_eq!(reader.taken(), "1=2 1=4");

    // A sample that is replaced while it is lent leaves no place for the new one.
    let mut reader = limited(keep_last(1), [Length::Limited(2), FREE, Length::Limited(2)]);
    reader.write(A, 1, 1);
    let loans = [(); 2].map(|()| reader.cache.read(&Select::any(), at(0)).unwrap().loan);
    reader.write(A, 1, 2);
    reader.cache.return_loan(loans[0]).unwrap();
    let loan = reader.cache.read(&Select::any(), at(0)).unwrap().loan;
    assert_eq!(reader.cache.admits(handle(1)), Err(RejectedReason::SamplesPerInstance));
    assert_eq!(reader.cache.admits(handle(2)), Err(RejectedReason::Samples));
    reader.cache.return_loan(loans[1]).unwrap();
    reader.write(A, 1, 3);
    reader.cache.return_loan(loan).unwrap();
    assert_eq!((reader.taken().as_str(), reader.cache.counters().rejected), ("1=3", 0));
    reader.change(A, Unregister, 1, 0);
    let _ = reader.taken();
    assert_eq!(reader.cache.footprint(), 0);
}
