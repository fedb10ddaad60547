//! The family of `read` and `take` (DDS 2.2.2.5.3).
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::cache::*;
use spindle_dds_core::filter::{ContentFilter, Query};
use spindle_dds_core::instance::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::{Guid, InstanceHandle, ReturnCode};
use spindle_xcdr::*;
use std::sync::Arc;

fn three() -> Fixture {
    let mut reader = Fixture::of(&keep_all());
    for (key, value) in [(2, 1), (1, 1), (2, 2), (3, 1)] {
        reader.write(A, key, value);
    }
    reader
}

#[test]
fn samples_of_an_instance_are_consecutive() {
    let mut reader = three();
    assert_eq!(text(&reader.read(&Select::any()).unwrap()), "1=1 2=1 2=2 3=1");
    assert_eq!(text(&reader.read(&Select::any().max_samples(2)).unwrap()), "1=1 2=1");
    assert_eq!(reader.taken(), "1=1 2=1 2=2 3=1");
    assert_eq!(reader.read(&Select::any()).unwrap_err().code(), ReturnCode::NoData);
}

#[test]
fn ordered_access_mixes_instances() {
    let scope = PresentationQosPolicyAccessScopeKind::Topic;
    let mut reader = Fixture::new(&keep_all(), &presented(scope, false, true));
    for (key, value) in [(2, 1), (1, 1), (2, 2), (1, 2)] {
        reader.write(A, key, value);
    }
    let samples = reader.read(&Select::any()).unwrap();
    assert_eq!(text(&samples), "2=1 1=1 2=2 1=2");
    let ranks: Vec<u32> = samples.iter().map(|sample| sample.info.sample_rank).collect();
    assert_eq!(ranks, [1, 1, 0, 0]);
    assert_eq!(text(&reader.take(&Select::any().max_samples(3)).unwrap()), "2=1 1=1 2=2");
    assert_eq!(reader.taken(), "1=2");

    let mut qos = keep_all();
    qos.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp;
    let mut reader = Fixture::new(&qos, &presented(scope, false, true));
    for (key, value, time) in [(1, 1, 30), (2, 2, 10), (3, 3, 20)] {
        reader.event(ReaderEvent::Change(change(A, Write, key, value, time)));
    }
    assert_eq!(reader.taken(), "2=2 3=3 1=1");
}

#[test]
fn masks_select_by_each_state() {
    let mut reader = three();
    let not_read = Select::any().states(StateMask::ANY.sample(&[SampleState::NotRead]));
    let _ = reader.read(&Select::any().scope(Scope::Instance(handle(2)))).unwrap();
    assert_eq!(text(&reader.read(&not_read).unwrap()), "1=1 3=1");
    assert_eq!(reader.read(&not_read).unwrap_err().code(), ReturnCode::NoData);
    reader.write(A, 2, 3);
    reader.write(A, 4, 1);
    assert_eq!(text(&reader.read(&Select::next_sample()).unwrap()), "2=3");
    let new = Select::any().states(StateMask::ANY.view(&[ViewState::New]));
    assert_eq!(text(&reader.read(&new).unwrap()), "4=1");
    reader.change(A, Dispose, 1, 0);
    reader.change(A, Unregister, 3, 0);
    let of = |states: &[InstanceState]| Select::any().states(StateMask::ANY.instance(states));
    assert_eq!(text(&reader.read(&of(&[InstanceState::NotAliveDisposed])).unwrap()), "1=1 1!");
    assert_eq!(text(&reader.take(&of(&[InstanceState::NotAliveNoWriters])).unwrap()), "3=1 3!");
    assert_eq!(text(&reader.take(&of(&[InstanceState::Alive])).unwrap()), "2=1 2=2 2=3 4=1");
    assert_eq!(reader.taken(), "1=1 1!");
}

#[test]
fn instances_are_read_one_after_another() {
    let mut reader = three();
    let mut next = None;
    let mut seen = Vec::new();
    while let Ok(samples) = reader.read(&Select::any().scope(Scope::NextInstance(next))) {
        next = Some(samples[0].info.instance_handle);
        seen.push(text(&samples));
    }
    assert_eq!(seen, ["1=1", "2=1 2=2", "3=1"]);
    // The handle before need not be one of an instance.
    let between = Scope::NextInstance(Some(InstanceHandle([1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9])));
    assert_eq!(text(&reader.take(&Select::any().scope(between)).unwrap()), "2=1 2=2");
    let unknown = reader.read(&Select::any().scope(Scope::Instance(handle(9)))).unwrap_err();
    assert_eq!(unknown.code(), ReturnCode::BadParameter);
    let empty = reader.read(&Select::any().scope(Scope::Instance(handle(2)))).unwrap_err();
    assert_eq!(empty.code(), ReturnCode::NoData);
}

#[derive(Debug, DdsType)]
#[dds(appendable)]
struct Car {
    #[dds(key)]
    plate: u8,
    speed: u16,
}

/// A cache of serialised cars.
struct Cars {
    cache: ReaderCache<Payload>,
    seq: u64,
}

impl Cars {
    fn new() -> Cars {
        Cars::with(&keep_all())
    }

    fn with(qos: &DataReaderQos) -> Cars {
        let key_of: KeyReader<Payload> = Arc::new(|payload: &Payload| {
            let car: Car = decode_sample(payload)?;
            Ok(encode_key_sample(&car, SampleFormat::default()).unwrap().into())
        });
        let cache = ReaderCache::new(qos, &SubscriberQos::default(), key_of).unwrap();
        let mut cars = Cars { cache, seq: 0 };
        cars.event(ReaderEvent::WriterMatched(writer(A, 1)));
        cars
    }

    fn of() -> Arc<DynamicType> {
        Arc::new(DynamicType::new(Car::description()))
    }

    fn event(&mut self, event: ReaderEvent<Payload>) {
        self.seq += 1;
        let _ = self.cache.deliver(position(self.seq), event, at(0));
    }

    fn send(&mut self, kind: ChangeKind, plate: u8, speed: u16) {
        self.send_by(A, kind, plate, speed, 0);
    }

    fn send_by(&mut self, guid: Guid, kind: ChangeKind, plate: u8, speed: u16, time: i64) {
        let car = Car { plate, speed };
        let payload = match kind {
            Write => encode_sample(&car, SampleFormat::default()).unwrap(),
            _ => encode_key_sample(&car, SampleFormat::default()).unwrap(),
        };
        let change = CacheChange { payload: payload.into(), ..change(guid, kind, plate, 0, time) };
        self.event(ReaderEvent::Change(change));
    }

    fn read(&mut self, select: &Select<'_>) -> Vec<u16> {
        let Ok(selection) = self.cache.read(select, at(0)) else { return Vec::new() };
        let speed = |sample: &Sample<Payload>| match &sample.data {
            SampleData::Value(bytes) => decode_sample::<Car>(bytes).unwrap().speed,
            SampleData::Key(bytes) => 1000 + u16::from(decode_key_sample::<Car>(bytes).unwrap().plate),
        };
        self.cache.return_loan(selection.loan).unwrap();
        selection.samples.iter().map(speed).collect()
    }
}

#[test]
fn a_filter_keeps_samples_out_of_the_cache() {
    let mut cars = Cars::new();
    cars.cache.set_filter(Some(ContentFilter::new(Cars::of(), "speed > %0", &["50"]).unwrap()));
    for (plate, speed) in [(1, 40), (2, 60), (1, 70), (2, 30)] {
        cars.send(Write, plate, speed);
    }
    assert_eq!(cars.read(&Select::any()), [70, 60]);
    // The end of an instance that the reader knows is seen, and that of another one is no news.
    cars.send(Dispose, 1, 0);
    cars.send(Dispose, 3, 0);
    assert_eq!(cars.read(&Select::any()), [70, 1001, 60]);
    assert_eq!(cars.cache.counters().filtered, 3);
    cars.cache.set_filter(Some(ContentFilter::new::<&str>(Cars::of(), "plate > 3", &[]).unwrap()));
    cars.send(Dispose, 3, 0);
    cars.send(Dispose, 4, 0);
    assert_eq!(cars.read(&Select::any().scope(Scope::Instance(handle(4)))), [1004]);
    assert_eq!(cars.cache.lookup_instance(handle(3)), None);
}

#[test]
fn a_query_selects_and_orders_samples() {
    let mut cars = Cars::new();
    for (plate, speed) in [(1, 40), (2, 60), (3, 20), (2, 30)] {
        cars.send(Write, plate, speed);
    }
    let query = Query::new(Cars::of(), "speed >= %0 ORDER BY speed", &["30"]).unwrap();
    assert_eq!(cars.read(&Select::any().query(&query)), [30, 40, 60]);
    assert_eq!(cars.read(&Select::any().query(&query).max_samples(1)), [30]);
    let next = Select::any().query(&query).scope(Scope::NextInstance(Some(handle(1))));
    assert_eq!(cars.read(&next), [30, 60]);
    let unread = StateMask::ANY.sample(&[SampleState::NotRead]);
    assert!(!cars.cache.has_match(unread, Some(&query)));
    assert!(cars.cache.has_match(unread, None));
    cars.send(Write, 9, 90);
    assert!(cars.cache.has_match(unread, Some(&query)));
    let two = Query::new::<&str>(Cars::of(), "plate = 2", &[]).unwrap();
    cars.send(Dispose, 2, 0);
    assert_eq!(cars.read(&Select::any().query(&two)), [60, 30, 1002]);
}

#[test]
fn a_separation_with_coherent_access_is_refused() {
    let mut qos = DataReaderQos::default();
    qos.time_based_filter.minimum_separation = nanos(5);
    let subscriber = presented(PresentationQosPolicyAccessScopeKind::Topic, true, false);
    let error = ReaderCache::<Payload>::new(&qos, &subscriber, key_reader()).unwrap_err();
    let expected =
        "unsupported: TIME_BASED_FILTER 5 ns with coherent_access; a set would be seen in part: use one of them";
    assert_eq!(error.to_string(), expected);
    let subscriber = presented(PresentationQosPolicyAccessScopeKind::Instance, true, false);
    ReaderCache::<Payload>::new(&qos, &subscriber, key_reader()).unwrap();
}

/// The owner and the newest time follow from the stream, whichever samples pass the filter.
#[test]
fn a_sample_that_is_filtered_out_counts_for_ownership() {
    let mut qos = keep_all();
    qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    qos.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp;
    let mut cars = Cars::with(&qos);
    cars.event(ReaderEvent::WriterMatched(writer(B, 2)));
    cars.cache.set_filter(Some(ContentFilter::new(Cars::of(), "speed > %0", &["50"]).unwrap()));
    // The stronger writer owns the instance, which the application does not know.
    cars.send_by(B, Write, 1, 40, 5);
    assert_eq!(cars.cache.lookup_instance(handle(1)), None);
    cars.send_by(A, Write, 1, 60, 6);
    assert_eq!((cars.read(&Select::any()), cars.cache.counters().not_owned), (vec![], 1));
    // An older sample is late, also if the newer one was filtered out.
    cars.send_by(B, Write, 1, 70, 4);
    assert_eq!((cars.read(&Select::any()), cars.cache.counters().late), (vec![], 1));
    cars.send_by(B, Write, 1, 80, 7);
    assert_eq!(cars.read(&Select::any()), [80]);
    // When the owner goes, the other writer owns the instance.
    cars.send_by(B, Unregister, 1, 0, 8);
    cars.send_by(A, Write, 1, 90, 9);
    assert_eq!(cars.read(&Select::any()), [80, 90]);
}

#[test]
fn a_sample_without_a_readable_key_is_lost() {
    let mut cars = Cars::new();
    let bad = CacheChange { payload: Arc::from([0, 9, 0, 0, 7]), ..change(A, Write, 1, 0, 0) };
    let effects = cars.cache.deliver(position(99), ReaderEvent::Change(bad), at(0));
    assert_eq!((effects.lost, effects.data_available), (1, false));
    assert_eq!((cars.cache.counters().undecodable, cars.cache.instance_count()), (1, 0));
}
