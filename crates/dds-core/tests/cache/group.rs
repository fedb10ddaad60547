//! Sets and order over several readers (GROUP scope, DDS 2.2.3.6 and 2.2.2.5.2.8).
use crate::sets::in_set;
use crate::support::*;
use ChangeKind::Write;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::DataReaderQos;
use spindle_dds_core::{Guid, ReturnCode};

const X: Guid = Guid([1; 16]);
const Y: Guid = Guid([2; 16]);
/// The publisher of the writer `A` of reader `X`, and the writer `B` of reader `Y`.
const PUBLISHER: Guid = Guid([9; 16]);

struct Group {
    caches: GroupCaches<Payload>,
    seq: u64,
    now: i64,
}

impl Group {
    fn new(qos: &DataReaderQos, ordered: bool) -> Group {
        let subscriber = presented(PresentationQosPolicyAccessScopeKind::Group, true, ordered);
        let mut group = Group { caches: GroupCaches::new(&subscriber).unwrap(), seq: 0, now: 0 };
        for (reader, guid) in [(X, A), (Y, B)] {
            group.caches.insert(reader, qos, key_reader()).unwrap();
            let _ = group.event(reader, ReaderEvent::WriterMatched(writer(guid, 1)));
        }
        group
    }

    fn event(&mut self, reader: Guid, event: ReaderEvent<Payload>) -> Effects {
        self.seq += 1;
        self.caches.deliver(reader, position(self.seq), event, at(self.now))
    }

    fn send(&mut self, reader: Guid, number: u64, key: u8, value: u8) {
        let guid = if reader == X { A } else { B };
        drop(self.event(reader, in_set(PUBLISHER, number, change(guid, Write, key, value, 0))));
    }

    fn write(&mut self, reader: Guid, key: u8, value: u8) {
        let guid = if reader == X { A } else { B };
        drop(self.event(reader, ReaderEvent::Change(change(guid, Write, key, value, 0))));
    }

    fn end(&mut self, number: u64, of_a: u32, of_b: u32) -> Vec<(Guid, Effects)> {
        self.seq += 1;
        let set = SetId { source: PUBLISHER, number };
        self.caches.end_set(position(self.seq), &SetEnd { set, changes: vec![(A, of_a), (B, of_b)] }, at(self.now))
    }

    /// Takes one sample from each reader that is listed, in an access.
    fn taken(&mut self) -> String {
        self.begin();
        let taken = self.taken_in_access();
        let _ = self.finish();
        taken
    }

    fn begin(&mut self) {
        let _ = self.caches.begin_access(at(self.now));
    }

    fn finish(&mut self) -> Vec<(Guid, Effects)> {
        self.caches.end_access(at(self.now)).unwrap()
    }

    fn taken_in_access(&mut self) -> String {
        let mut all = Vec::new();
        let readers = self.caches.readers_with(StateMask::ANY).unwrap();
        for reader in readers {
            let name = if reader == X { "x" } else { "y" };
            let selection = self.caches.take(reader, &Select::any(), at(self.now)).unwrap();
            self.caches.return_loan(reader, selection.loan).unwrap();
            all.push(format!("{name}:{}", text(&selection.samples)));
        }
        all.join(" ")
    }
}

#[test]
fn a_set_is_seen_at_all_readers_or_none() {
    let mut group = Group::new(&keep_all(), true);
    group.send(X, 1, 1, 1);
    group.send(Y, 1, 2, 2);
    group.send(X, 1, 3, 3);
    assert_eq!(group.taken(), "");
    assert_eq!(group.end(1, 2, 1).len(), 2);
    assert_eq!(group.taken(), "x:1=1 y:2=2 x:3=3");
    // One reader lacks a part, and so neither sees the set.
    group.send(X, 2, 1, 1);
    let lost: Vec<_> = group.end(2, 1, 1).iter().map(|(reader, effects)| (*reader, effects.lost)).collect();
    assert_eq!((lost, group.taken().as_str()), (vec![(X, 1)], ""));
}

#[test]
fn a_limit_of_one_reader_rejects_the_set_everywhere() {
    let mut qos = keep_all();
    qos.resource_limits.max_samples_per_instance = Length::Limited(1);
    let mut group = Group::new(&qos, true);
    group.send(X, 1, 1, 1);
    group.send(Y, 1, 2, 1);
    group.send(Y, 1, 2, 2);
    let rejected: usize = group.end(1, 1, 2).iter().map(|(_, effects)| effects.rejected.len()).sum();
    assert_eq!((rejected, group.taken().as_str()), (3, ""));
    assert_eq!(group.caches.reader(X).unwrap().counters().sets_rejected, 1);
}

#[test]
fn a_writer_that_is_deleted_within_a_set_takes_it_along() {
    let mut group = Group::new(&keep_all(), true);
    group.send(X, 1, 1, 1);
    group.send(Y, 1, 2, 1);
    let _ = group.event(Y, ReaderEvent::WriterUnmatched(B, WriterEnd::Deleted { autodispose: false }));
    let _ = group.end(1, 1, 1);
    assert_eq!(group.taken(), "");
    assert_eq!(group.caches.reader(X).unwrap().footprint() + group.caches.reader(Y).unwrap().footprint(), 0);
}

#[test]
fn an_access_shows_one_state_of_all_readers() {
    let mut group = Group::new(&keep_last(1), true);
    group.write(X, 1, 1);
    group.write(Y, 1, 1);
    group.begin();
    group.write(Y, 1, 2);
    group.send(X, 1, 1, 3);
    group.send(Y, 1, 2, 3);
    assert!(group.end(1, 1, 1).iter().all(|(_, effects)| !effects.data_available));
    assert_eq!(group.taken_in_access(), "x:1=1 y:1=1");
    // The application hears of the samples when it can see them.
    let effects = group.finish();
    assert_eq!(effects.iter().filter(|(_, effects)| effects.data_available).count(), 2);
    assert_eq!(group.taken(), "y:1=2 x:1=3 y:2=3");
}

#[test]
fn reads_outside_of_an_access_are_refused() {
    let mut group = Group::new(&keep_all(), true);
    group.write(X, 1, 1);
    let error = group.caches.read(X, &Select::any(), at(0)).unwrap_err();
    assert_eq!(error.code(), ReturnCode::PreconditionNotMet);
    assert_eq!(group.caches.readers_with(StateMask::ANY).unwrap_err().code(), ReturnCode::PreconditionNotMet);
    assert_eq!(group.caches.end_access(at(0)).unwrap_err().code(), ReturnCode::PreconditionNotMet);
    group.begin();
    group.begin();
    let _ = group.finish();
    assert_eq!(group.taken_in_access(), "x:1=1");
}

#[test]
fn ordered_access_lists_a_reader_for_each_sample() {
    let mut group = Group::new(&keep_all(), true);
    for (reader, value) in [(X, 1), (Y, 2), (X, 3), (X, 4), (Y, 5)] {
        group.write(reader, 1, value);
    }
    group.begin();
    assert_eq!(group.caches.readers_with(StateMask::ANY).unwrap(), [X, Y, X, X, Y]);
    assert_eq!(group.taken_in_access(), "x:1=1 y:1=2 x:1=3 x:1=4 y:1=5");
    let mut group = Group::new(&keep_all(), false);
    (1..=2).for_each(|value| group.write(X, 1, value));
    assert_eq!(group.taken(), "x:1=1 1=2");
}

/// Events within an access have the effects that they have without one.
#[test]
fn history_and_limits_hold_within_an_access() {
    let mut qos = keep_last(2);
    qos.resource_limits.max_samples = Length::Limited(2);
    let mut group = Group::new(&qos, true);
    group.write(X, 1, 1);
    group.begin();
    for value in 2..=5 {
        group.write(X, 1, value);
    }
    group.write(X, 2, 1);
    assert_eq!(group.taken_in_access(), "x:1=1");
    let _ = group.finish();
    let counters = group.caches.reader(X).unwrap().counters();
    assert_eq!((counters.overwritten, counters.rejected), (3, 1));
    assert_eq!(group.taken(), "x:1=4 x:1=5");

    let mut qos = keep_all();
    qos.resource_limits.max_samples = Length::Limited(2);
    let mut group = Group::new(&qos, true);
    group.write(X, 1, 1);
    group.begin();
    // A sample that the application takes within the access leaves its place.
    assert_eq!(group.taken_in_access(), "x:1=1");
    (2..=4).for_each(|value| group.write(X, 1, value));
    assert_eq!(group.taken_in_access(), "");
    let _ = group.finish();
    assert_eq!(group.caches.reader(X).unwrap().counters().rejected, 1);
    assert_eq!(group.taken(), "x:1=2 x:1=3");
}

#[test]
fn samples_are_read_once_though_they_change_within_the_access() {
    let mut group = Group::new(&keep_last(1), false);
    group.write(X, 1, 1);
    group.write(X, 2, 1);
    group.begin();
    group.write(X, 1, 2);
    let new = Select::any().states(StateMask::ANY.sample(&[SampleState::NotRead]));
    let first = group.caches.read(X, &new, at(0)).unwrap();
    assert_eq!(text(&first.samples), "1=1 2=1");
    assert_eq!(group.caches.read(X, &new, at(0)).unwrap_err().code(), ReturnCode::NoData);
    let _ = group.finish();
    group.begin();
    // The instance was seen in this life, and the sample was read.
    let second = group.caches.take(X, &new, at(0)).unwrap();
    assert_eq!((text(&second.samples).as_str(), second.samples[0].info.view_state), ("1=2", ViewState::NotNew));
    assert_eq!(group.taken_in_access(), "x:2=1");
    let _ = group.finish();
    for loan in [first.loan, second.loan] {
        group.caches.return_loan(X, loan).unwrap();
    }
    let _ = group.event(X, ReaderEvent::WriterUnmatched(A, WriterEnd::Lost));
    let _ = group.taken();
    assert_eq!(group.caches.current(X).unwrap().footprint(), 0);
}

#[test]
fn a_loan_within_an_access_outlives_its_instance() {
    let mut qos = keep_all();
    qos.reader_data_lifecycle.autopurge_nowriter_samples_delay = nanos(0);
    qos.resource_limits.max_samples = Length::Limited(2);
    let mut group = Group::new(&qos, false);
    group.write(X, 1, 1);
    group.begin();
    let _ = group.event(X, ReaderEvent::WriterUnmatched(A, WriterEnd::Lost));
    let _ = group.caches.poll(at(1));
    assert_eq!(group.caches.current(X).unwrap().instance_count(), 0);
    let lent = group.caches.read(X, &Select::any(), at(1)).unwrap();
    let _ = group.finish();
    // The sample that the application holds counts for the limit.
    let _ = group.event(X, ReaderEvent::WriterMatched(writer(A, 1)));
    (1..=2).for_each(|value| group.write(X, 1, value));
    assert_eq!(group.caches.reader(X).unwrap().counters().rejected, 1);
    group.caches.return_loan(X, lent.loan).unwrap();
    group.write(X, 1, 3);
    assert_eq!(group.taken(), "x:1=1 1=3");
}

#[test]
fn time_passes_behind_an_access() {
    let mut qos = keep_all();
    qos.deadline.period = nanos(10);
    let mut group = Group::new(&qos, true);
    group.write(X, 1, 1);
    let _ = group.event(Y, ReaderEvent::WriterMatched(WriterInfo { lifespan: nanos(15), ..writer(B, 1) }));
    group.write(Y, 1, 1);
    group.begin();
    // Writes within the access keep the deadline, and a miss is found within it, too.
    group.now = 8;
    group.write(X, 1, 2);
    group.now = 12;
    let effects = group.caches.poll(at(12));
    assert_eq!(
        effects.iter().map(|(reader, effects)| (*reader, effects.deadlines.len())).collect::<Vec<_>>(),
        [(Y, 1)]
    );
    // A sample whose lifespan has ended is not seen.
    group.now = 15;
    assert!(group.caches.read(Y, &Select::any(), at(15)).is_err());
    assert_eq!(group.taken_in_access(), "x:1=1");
    group.now = 18;
    let effects = group.finish();
    assert_eq!(effects[0].1.deadlines.len(), 1);
    group.begin();
    let samples = group.caches.take(X, &Select::any(), at(18)).unwrap().samples;
    assert_eq!(samples[0].info.reception_timestamp, at(8));
}

#[test]
fn caches_at_group_scope_belong_to_a_group() {
    let of = |scope, coherent, ordered| presented(scope, coherent, ordered);
    let group = PresentationQosPolicyAccessScopeKind::Group;
    for (coherent, ordered) in [(true, false), (false, true)] {
        let found = ReaderCache::<Payload>::new(&keep_all(), &of(group, coherent, ordered), key_reader());
        assert_eq!(found.unwrap_err().code(), ReturnCode::Unsupported);
    }
    ReaderCache::<Payload>::new(&keep_all(), &of(group, false, false), key_reader()).unwrap();
    let topic = of(PresentationQosPolicyAccessScopeKind::Topic, true, true);
    assert_eq!(GroupCaches::<Payload>::new(&topic).unwrap_err().code(), ReturnCode::BadParameter);
    let mut caches = GroupCaches::<Payload>::new(&of(group, true, true)).unwrap();
    assert_eq!(caches.set_filter(X, None).unwrap_err().code(), ReturnCode::BadParameter);
    assert!(!caches.remove(X));
}

/// Random sets over two readers whose limits leave no room for some: each set is seen at both readers as a
/// whole, or at neither.
#[test]
fn random_sets_are_seen_at_both_readers_or_neither() {
    let (mut committed, mut refused) = (0, 0);
    for seed in 1..100 {
        let mut chance = Chance::new(seed);
        let mut qos = keep_all();
        qos.resource_limits.max_samples = Length::Limited(chance.pick(&[4, 8]));
        qos.resource_limits.max_instances = Length::Limited(3);
        let mut group = Group::new(&qos, chance.below(2) == 0);
        for number in 1..60 {
            let mut counts = [0, 0];
            for _ in 0..chance.below(7) {
                let reader = chance.below(2);
                // One change in 40 does not arrive, which ordered streams exclude and joiners may see.
                counts[reader] += 1;
                if chance.below(40) > 0 {
                    group.send([X, Y][reader], number, chance.below(4) as u8, number as u8);
                }
                if chance.below(6) == 0 {
                    group.write([X, Y][chance.below(2)], chance.below(4) as u8, 0);
                }
            }
            let samples = |group: &Group| [X, Y].map(|reader| group.caches.reader(reader).unwrap().sample_count());
            let before = samples(&group);
            let _ = group.end(number, counts[0] as u32, counts[1] as u32);
            let after = samples(&group);
            match [after[0] - before[0], after[1] - before[1]] {
                [0, 0] => refused += usize::from(counts != [0, 0]),
                seen => {
                    assert_eq!(seen, counts, "seed {seed}, set {number}");
                    committed += 1;
                }
            }
            if chance.below(3) == 0 {
                let _ = group.taken();
            }
        }
    }
    assert!(committed > 500 && refused > 500, "{committed} committed, {refused} refused");
}

/// Two groups get the same events. One has accesses all the time, which read nothing: it ends with the same
/// contents and counters, and within an access nothing changes.
#[test]
fn accesses_change_nothing() {
    for seed in 1..150 {
        let mut chance = Chance::new(seed);
        let mut qos = keep_last(2);
        qos.deadline.period = nanos(7);
        qos.reader_data_lifecycle.autopurge_disposed_samples_delay = nanos(5);
        qos.resource_limits.max_samples = Length::Limited(5);
        let ordered = chance.one_in(2);
        let mut groups = [Group::new(&qos, ordered), Group::new(&qos, ordered)];
        let mut seen = None;
        for number in 0..120 {
            let now = groups[0].now + chance.below(3) as i64;
            let (reader, key, kind) = (chance.pick(&[X, Y]), chance.below(4) as u8, chance.below(8));
            let guid = if reader == X { A } else { B };
            for group in &mut groups {
                group.now = now;
                match kind {
                    0 => drop(group.end(number, 0, 0)),
                    1 => drop(group.event(reader, ReaderEvent::Change(change(guid, ChangeKind::Dispose, key, 0, now)))),
                    2 => group.send(reader, number, key, 9),
                    3 => drop(group.caches.poll(at(now))),
                    _ => group.write(reader, key, number as u8),
                }
            }
            let [with, without] = &mut groups;
            let contents = |group: &Group, seen: bool| {
                [X, Y].map(|reader| {
                    let cache = if seen { group.caches.reader(reader) } else { group.caches.current(reader) };
                    let cache = cache.unwrap();
                    let instances: Vec<_> = (0..4).map(|key| cache.instance(handle(key))).collect();
                    (cache.count(StateMask::ANY), instances, cache.counters())
                })
            };
            assert_eq!(contents(with, false), contents(without, false), "seed {seed}");
            match (seen.take(), chance.below(4)) {
                (None, 0) => {
                    with.begin();
                    let _ = without.caches.poll(at(now));
                    seen = Some(contents(with, true));
                }
                (Some(_), 0) => {
                    let _ = with.finish();
                    let _ = without.caches.poll(at(now));
                    assert_eq!(contents(with, true), contents(without, true), "seed {seed}");
                }
                (Some(before), _) => {
                    assert_eq!(contents(with, true), before, "seed {seed}");
                    seen = Some(before);
                }
                (None, _) => {}
            }
        }
    }
}

#[test]
fn a_group_store_passes_half_a_set_on() {
    let mut store = Group::new(&keep_all(), true);
    store.write(X, 1, 1);
    store.send(X, 1, 1, 2);
    store.send(Y, 1, 1, 3);
    let subscriber = presented(PresentationQosPolicyAccessScopeKind::Group, true, true);
    let mut joiner = Group { caches: GroupCaches::new(&subscriber).unwrap(), seq: store.seq, now: 0 };
    for reader in [X, Y] {
        joiner.caches.insert(reader, &keep_all(), key_reader()).unwrap();
        let snapshot = store.caches.current(reader).unwrap().snapshot();
        let payload = |bytes: &[u8]| Payload::from(bytes);
        let effects = joiner.caches.restore(reader, &snapshot, payload, at(0)).unwrap();
        assert_eq!(effects.data_available, reader == X);
        let again = joiner.caches.restore(reader, &snapshot, payload, at(0)).unwrap_err();
        assert!(again.to_string().contains("restore into a new cache"));
    }
    for group in [&mut store, &mut joiner] {
        group.send(Y, 1, 2, 4);
        let _ = group.end(1, 1, 2);
        assert_eq!(group.taken(), "x:1=1 x:1=2 y:1=3 y:2=4");
    }
}
