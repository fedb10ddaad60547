//! Sets and order over several readers (GROUP scope, DDS 2.2.3.6 and 2.2.2.5.2.8).
use crate::sets::in_set;
use crate::support::*;
use ChangeKind::Write;
use spindle_dds::cache::*;
use spindle_dds::instance::*;
use spindle_dds::policy::*;
use spindle_dds::qos::DataReaderQos;
use spindle_dds::{Guid, ReturnCode};

const X: Guid = Guid([1; 16]);
const Y: Guid = Guid([2; 16]);
/// The publisher of the writer `A` of reader `X`, and the writer `B` of reader `Y`.
const PUBLISHER: Guid = Guid([9; 16]);

struct Group {
    caches: GroupCaches<Payload>,
    seq: u64,
}

impl Group {
    fn new(qos: &DataReaderQos, ordered: bool) -> Group {
        let mut group = Group { caches: GroupCaches::default(), seq: 0 };
        let subscriber = presented(PresentationQosPolicyAccessScopeKind::Group, true, ordered);
        for (reader, guid) in [(X, A), (Y, B)] {
            group.caches.insert(reader, ReaderCache::new(qos, &subscriber, key_reader()).unwrap());
            group.event(reader, ReaderEvent::WriterMatched(writer(guid, 1)));
        }
        group
    }

    fn event(&mut self, reader: Guid, event: ReaderEvent<Payload>) {
        self.seq += 1;
        let _ = self.caches.deliver(reader, position(self.seq), event, at(0));
    }

    fn send(&mut self, reader: Guid, number: u64, key: u8, value: u8) {
        let guid = if reader == X { A } else { B };
        self.event(reader, in_set(PUBLISHER, number, change(guid, Write, key, value, 0)));
    }

    fn write(&mut self, reader: Guid, key: u8, value: u8) {
        let guid = if reader == X { A } else { B };
        self.event(reader, ReaderEvent::Change(change(guid, Write, key, value, 0)));
    }

    fn end(&mut self, number: u64, of_a: u32, of_b: u32) -> Vec<(Guid, Effects)> {
        self.seq += 1;
        let set = SetId { source: PUBLISHER, number };
        self.caches.end_set(position(self.seq), SetEnd { set, changes: vec![(A, of_a), (B, of_b)] }, at(0))
    }

    /// Takes one sample from each reader that is listed, in an access.
    fn taken(&mut self) -> String {
        self.caches.begin_access();
        let taken = self.taken_in_access();
        let _ = self.caches.end_access().unwrap();
        taken
    }

    fn taken_in_access(&mut self) -> String {
        let mut all = Vec::new();
        let readers = self.caches.readers_with(StateMask::ANY).unwrap();
        for reader in readers {
            let name = if reader == X { "x" } else { "y" };
            let cache = self.caches.reader_mut(reader).unwrap();
            let selection = cache.take(&Select::any(), at(0)).unwrap();
            cache.return_loan(selection.loan).unwrap();
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
    assert!(group.end(2, 1, 1).is_empty());
    assert_eq!(group.taken(), "");
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
    group.event(Y, ReaderEvent::WriterUnmatched(B, WriterEnd::Deleted { autodispose: false }));
    let _ = group.end(1, 1, 1);
    assert_eq!(group.taken(), "");
    assert_eq!(group.caches.reader(X).unwrap().footprint() + group.caches.reader(Y).unwrap().footprint(), 0);
}

#[test]
fn an_access_shows_one_state_of_all_readers() {
    let mut group = Group::new(&keep_last(1), true);
    group.write(X, 1, 1);
    group.write(Y, 1, 1);
    group.caches.begin_access();
    group.write(Y, 1, 2);
    group.send(X, 1, 1, 3);
    group.send(Y, 1, 2, 3);
    assert!(group.end(1, 1, 1).is_empty());
    assert_eq!(group.taken_in_access(), "x:1=1 y:1=1");
    let effects = group.caches.end_access().unwrap();
    assert_eq!(effects.iter().filter(|(_, effects)| effects.data_available).count(), 3);
    assert_eq!(group.taken(), "y:1=2 x:1=3 y:2=3");
}

#[test]
fn reads_outside_of_an_access_are_refused() {
    let mut group = Group::new(&keep_all(), true);
    group.write(X, 1, 1);
    let error = group.caches.reader_mut(X).unwrap().read(&Select::any(), at(0)).unwrap_err();
    assert_eq!(error.code(), ReturnCode::PreconditionNotMet);
    assert_eq!(group.caches.readers_with(StateMask::ANY).unwrap_err().code(), ReturnCode::PreconditionNotMet);
    assert_eq!(group.caches.end_access().unwrap_err().code(), ReturnCode::PreconditionNotMet);
    group.caches.begin_access();
    group.caches.begin_access();
    let _ = group.caches.end_access().unwrap();
    assert_eq!(group.taken_in_access(), "x:1=1");
}

#[test]
fn ordered_access_lists_a_reader_for_each_sample() {
    let mut group = Group::new(&keep_all(), true);
    for (reader, value) in [(X, 1), (Y, 2), (X, 3), (X, 4), (Y, 5)] {
        group.write(reader, 1, value);
    }
    group.caches.begin_access();
    assert_eq!(group.caches.readers_with(StateMask::ANY).unwrap(), [X, Y, X, X, Y]);
    assert_eq!(group.taken_in_access(), "x:1=1 y:1=2 x:1=3 x:1=4 y:1=5");
    let mut group = Group::new(&keep_all(), false);
    (1..=2).for_each(|value| group.write(X, 1, value));
    assert_eq!(group.taken(), "x:1=1 1=2");
}

#[test]
fn changes_that_wait_for_an_access_are_bounded() {
    let mut qos = keep_all();
    qos.resource_limits.max_samples = Length::Limited(2);
    let mut group = Group::new(&qos, true);
    group.caches.begin_access();
    for value in 1..=3 {
        group.write(X, 1, value);
    }
    assert_eq!(group.caches.reader(X).unwrap().counters().rejected, 1);
    let _ = group.caches.end_access().unwrap();
    assert_eq!(group.taken(), "x:1=1 x:1=2");
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
