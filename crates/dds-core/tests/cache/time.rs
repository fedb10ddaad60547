//! LIFESPAN, TIME_BASED_FILTER, DEADLINE and purge delays.
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::InstanceState;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::{DataReaderQos, SubscriberQos};

#[test]
fn samples_expire_by_their_source_timestamp() {
    let mut reader = Fixture::of(&keep_all());
    reader.event(ReaderEvent::WriterMatched(WriterInfo { lifespan: nanos(10), ..writer(A, 1) }));
    reader.now = 5;
    reader.event(ReaderEvent::Change(change(A, Write, 1, 1, 0)));
    reader.event(ReaderEvent::Change(change(A, Write, 1, 2, 4)));
    reader.now = 11;
    reader.event(ReaderEvent::Change(change(A, Write, 1, 3, 1)));
    assert_eq!(reader.cache.counters().expired, 2);
    assert_eq!(reader.cache.wake_at(), Some(at(14)));
    assert_eq!(reader.taken(), "1=2");
    reader.write(A, 1, 4);
    reader.advance(21);
    assert_eq!((reader.taken().as_str(), reader.cache.counters().expired), ("", 3));
    reader.change(A, Unregister, 1, 0);
    let _ = reader.taken();
    assert_eq!(reader.cache.footprint(), 0);
}

fn separated(reliable: bool) -> Fixture {
    let mut qos = keep_all();
    qos.time_based_filter.minimum_separation = nanos(10);
    if !reliable {
        qos.reliability = ReliabilityQosPolicy::default();
    }
    Fixture::of(&qos)
}

#[test]
fn a_best_effort_reader_drops_samples_that_come_too_soon() {
    let mut reader = separated(false);
    for (now, value) in [(0, 1), (4, 2), (9, 3), (10, 4), (19, 5), (25, 6)] {
        reader.now = now;
        reader.write(A, 1, value);
    }
    reader.write(A, 2, 7);
    assert_eq!(reader.taken(), "1=1 1=4 1=6 2=7");
    assert_eq!(reader.cache.counters().separated, 3);
    assert_eq!(reader.cache.wake_at(), None);
}

#[test]
fn a_reliable_reader_gets_the_last_sample_later() {
    let mut reader = separated(true);
    for (now, value) in [(0, 1), (4, 2), (9, 3)] {
        reader.now = now;
        reader.write(A, 1, value);
    }
    assert_eq!(reader.cache.wake_at(), Some(at(10)));
    assert_eq!(reader.taken(), "1=1");
    reader.advance(10);
    let samples = reader.read(&Select::any()).unwrap();
    assert_eq!(text(&samples), "1=3");
    assert_eq!((samples[0].info.source_timestamp, samples[0].info.reception_timestamp), (at(9), at(10)));
    assert_eq!(reader.cache.counters().separated, 1);
    // The last sample is seen before the end of its instance.
    reader.now = 12;
    reader.write(A, 1, 4);
    reader.change(A, DisposeUnregister, 1, 0);
    assert_eq!(reader.taken(), "1=3 1=4 1!");
    assert_eq!(reader.cache.footprint(), 0);
}

#[test]
fn ranks_hold_with_separated_samples() {
    let mut reader = separated(true);
    reader.write(A, 1, 1);
    reader.change(A, Dispose, 1, 0);
    reader.now = 3;
    reader.write(A, 1, 2);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveDisposed));
    reader.advance(10);
    let samples = reader.read(&Select::any()).unwrap();
    let ranks: Vec<_> = samples.iter().map(|sample| (sample.info.sample_rank, sample.info.generation_rank)).collect();
    assert_eq!(ranks, [(2, 1), (1, 1), (0, 0)]);
}

#[test]
fn instances_that_are_alive_must_keep_their_deadline() {
    let mut qos = keep_all();
    qos.deadline.period = nanos(10);
    let mut reader = Fixture::of(&qos);
    reader.write(A, 1, 1);
    reader.write(A, 2, 1);
    reader.now = 5;
    reader.write(A, 2, 2);
    reader.effects.clear();
    reader.advance(14);
    let missed = |key, periods| MissedDeadline { instance: handle(key), verdict: None, periods };
    assert_eq!(reader.effects[0].deadlines, [missed(1, 1)]);
    reader.change(A, Dispose, 2, 0);
    reader.advance(41);
    assert_eq!(reader.effects[2].deadlines, [missed(1, 3)]);
    assert_eq!(reader.cache.wake_at(), Some(at(50)));
}

#[test]
fn instances_that_are_not_alive_are_purged() {
    let mut qos = keep_all();
    qos.reader_data_lifecycle.autopurge_disposed_samples_delay = nanos(10);
    qos.reader_data_lifecycle.autopurge_nowriter_samples_delay = nanos(20);
    let mut reader = Fixture::of(&qos);
    for key in 1..=3 {
        reader.write(A, key, 1);
    }
    reader.change(A, Dispose, 1, 0);
    reader.change(A, Unregister, 2, 0);
    reader.change(A, Dispose, 3, 0);
    reader.now = 9;
    reader.write(A, 3, 2);
    reader.advance(10);
    assert_eq!(reader.cache.counters().purged, 2);
    assert_eq!(reader.cache.instance(handle(1)).unwrap().writers, [A]);
    reader.advance(20);
    assert_eq!(reader.state(2), None);
    assert_eq!(reader.taken(), "3=1 3! 3=2");
    // A life without writers begins without memory of the one that was purged.
    reader.write(A, 2, 5);
    let samples = reader.take(&Select::any()).unwrap();
    assert_eq!(samples[0].info.no_writers_generation_count, 0);
    // Without writers nothing keeps a disposed instance.
    reader.change(A, Unregister, 1, 0);
    assert_eq!(reader.state(1), None);
}

#[test]
fn a_purge_of_samples_keeps_the_disposed_instance() {
    let mut qos = keep_all();
    qos.reader_data_lifecycle.autopurge_disposed_samples_delay = nanos(10);
    qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    qos.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp;
    let mut reader = Fixture::of(&qos);
    reader.write(A, 1, 1);
    reader.write(B, 1, 2);
    reader.event(ReaderEvent::Change(change(B, Dispose, 1, 0, 5)));
    reader.advance(10);
    assert_eq!((reader.cache.counters().purged, reader.taken().as_str()), (3, ""));
    // B still owns the instance, and the time of its dispose is known.
    assert_eq!(reader.owner(1), Some(B));
    reader.write(A, 1, 3);
    reader.event(ReaderEvent::Change(change(B, Write, 1, 4, 4)));
    assert_eq!((reader.cache.counters().not_owned, reader.cache.counters().late), (1, 1));
    reader.write(B, 1, 5);
    let samples = reader.take(&Select::any()).unwrap();
    assert_eq!((text(&samples).as_str(), samples[0].info.disposed_generation_count), ("1=5", 1));
    // An instance without writers is forgotten when no loan refers to it.
    reader.change(B, DisposeUnregister, 1, 0);
    let loan = reader.cache.read(&Select::any(), at(reader.now)).unwrap().loan;
    reader.change(A, Unregister, 1, 0);
    reader.advance(20);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveDisposed));
    reader.cache.return_loan(loan).unwrap();
    assert_eq!((reader.state(1), reader.cache.footprint()), (None, 0));
}

#[test]
fn an_instance_that_is_not_alive_misses_no_deadline() {
    let mut qos = keep_all();
    qos.time_based_filter.minimum_separation = nanos(10);
    qos.deadline.period = nanos(20);
    let mut reader = Fixture::of(&qos);
    reader.event(ReaderEvent::WriterMatched(WriterInfo { lifespan: nanos(5), ..writer(A, 1) }));
    reader.write(A, 1, 1);
    reader.change(A, Dispose, 1, 0);
    reader.write(A, 1, 2);
    // The lifespan of the sample that would revive the instance ends before the separation.
    reader.advance(10);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveDisposed));
    assert_eq!(reader.cache.wake_at(), None);
}

/// No call polls: the delivery, the read and the take come later than what is due.
#[test]
fn a_delivery_first_does_what_is_due() {
    let mut reader = separated(true);
    reader.write(A, 1, 1);
    reader.now = 4;
    reader.write(A, 1, 2);
    // The separation of value 2 has ended, so it comes before value 3, which waits from then on.
    reader.now = 13;
    reader.write(A, 1, 3);
    assert_eq!(reader.cache.wake_at(), Some(at(20)));
    assert_eq!(reader.taken(), "1=1 1=2");
    reader.now = 20;
    let samples = reader.take(&Select::any()).unwrap();
    assert_eq!((text(&samples).as_str(), samples[0].info.reception_timestamp), ("1=3", at(20)));
    // The read has made a sample visible, which no effect has said yet.
    assert_eq!(reader.cache.wake_at(), Some(at(20)));
    reader.effects.clear();
    reader.write(A, 2, 1);
    assert!(reader.effects[0].data_available);
    assert_eq!(reader.cache.wake_at(), None);
}

#[test]
fn a_late_write_does_not_hide_a_missed_deadline() {
    let mut qos = keep_all();
    qos.deadline.period = nanos(10);
    let mut reader = Fixture::of(&qos);
    reader.write(A, 1, 1);
    reader.effects.clear();
    reader.now = 25;
    reader.write(A, 1, 2);
    assert_eq!(reader.effects[0].deadlines.iter().map(|missed| missed.periods).collect::<Vec<_>>(), [2]);
    reader.now = 36;
    assert_eq!(reader.taken(), "1=1 1=2");
    reader.advance(36);
    assert_eq!(reader.effects[1].deadlines.iter().map(|missed| missed.periods).collect::<Vec<_>>(), [1]);
    reader.advance(36);
    assert_eq!(reader.effects[2], Effects::default());
}

#[test]
fn a_sample_whose_lifespan_has_ended_leaves_its_place_to_the_next() {
    let mut qos = keep_all();
    qos.resource_limits.max_samples_per_instance = Length::Limited(1);
    let mut reader = Fixture::of(&qos);
    reader.event(ReaderEvent::WriterMatched(WriterInfo { lifespan: nanos(10), ..writer(A, 1) }));
    reader.write(A, 1, 1);
    reader.now = 10;
    reader.write(A, 1, 2);
    assert_eq!((reader.cache.counters().rejected, reader.cache.counters().expired), (0, 1));
    assert_eq!(reader.taken(), "1=2");
}

#[test]
fn time_does_not_run_backwards() {
    let mut qos = keep_all();
    qos.deadline.period = nanos(10);
    let mut reader = Fixture::of(&qos);
    reader.advance(100);
    reader.now = 50;
    reader.write(A, 1, 1);
    assert_eq!(reader.cache.wake_at(), Some(at(110)));
}

#[test]
fn a_change_of_policies_sets_the_timers_again() {
    let (qos, subscriber) = (keep_all(), SubscriberQos::default());
    let mut reader = Fixture::of(&qos);
    for key in 1..=3 {
        reader.write(A, key, 1);
    }
    reader.change(A, Dispose, 2, 0);
    reader.change(A, Unregister, 3, 0);
    assert_eq!(reader.cache.wake_at(), None);
    reader.now = 4;
    let mut set = |qos: &DataReaderQos, now| reader.cache.set_qos(qos, &subscriber, at(now)).unwrap();
    let mut changed = qos.clone();
    changed.deadline.period = nanos(10);
    changed.reader_data_lifecycle.autopurge_disposed_samples_delay = nanos(3);
    changed.reader_data_lifecycle.autopurge_nowriter_samples_delay = nanos(9);
    let effects = set(&changed, 4);
    assert_eq!(effects, Effects::default());
    // The delay of instance 2 has passed, that of instance 3 lasts, and so does the period of instance 1.
    assert_eq!((reader.cache.counters().purged, reader.cache.wake_at()), (2, Some(at(9))));
    reader.advance(9);
    assert_eq!((reader.state(3), reader.cache.wake_at()), (None, Some(at(10))));
    let mut set = |qos: &DataReaderQos, now| reader.cache.set_qos(qos, &subscriber, at(now)).unwrap();
    changed.deadline.period = nanos(5);
    assert_eq!(set(&changed, 9).deadlines, [MissedDeadline { instance: handle(1), verdict: None, periods: 1 }]);
    assert_eq!(reader.cache.wake_at(), Some(at(14)));
    let _ = reader.cache.set_qos(&qos, &subscriber, at(9)).unwrap();
    assert_eq!(reader.cache.wake_at(), None);
}

#[test]
fn a_shorter_separation_makes_the_waiting_sample_visible() {
    let mut reader = separated(true);
    reader.write(A, 1, 1);
    reader.now = 3;
    reader.write(A, 1, 2);
    let effects = reader.cache.set_qos(&keep_all(), &SubscriberQos::default(), at(4)).unwrap();
    assert!(effects.data_available);
    let samples = reader.read(&Select::any()).unwrap();
    assert_eq!((text(&samples).as_str(), samples[1].info.reception_timestamp), ("1=1 1=2", at(4)));
}
