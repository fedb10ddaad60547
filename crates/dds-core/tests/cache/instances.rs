//! States of instances, generations, ownership and collection.
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::{Guid, InstanceHandle};

fn infos(fixture: &mut Fixture) -> Vec<(ViewState, u32, u32, u32, u32, u32)> {
    let samples = fixture.read(&Select::any()).unwrap();
    let info = |info: &SampleInfo| {
        let counts = (info.disposed_generation_count, info.no_writers_generation_count);
        let ranks = (info.sample_rank, info.generation_rank, info.absolute_generation_rank);
        (info.view_state, counts.0, counts.1, ranks.0, ranks.1, ranks.2)
    };
    samples.iter().map(|sample| info(&sample.info)).collect()
}

#[test]
fn an_instance_lives_dies_and_is_reborn() {
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 10);
    assert_eq!(reader.state(1), Some(InstanceState::Alive));
    reader.change(A, Dispose, 1, 0);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveDisposed));
    reader.change(A, Dispose, 1, 0);
    reader.write(A, 1, 11);
    reader.change(A, Unregister, 1, 0);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveNoWriters));
    reader.write(B, 1, 12);
    use ViewState::New;
    // The sample that announced the dispose gave way to the one that announced the loss of writers.
    let expected = [(New, 0, 0, 3, 2, 2), (New, 1, 0, 2, 1, 1), (New, 1, 0, 1, 1, 1), (New, 1, 1, 0, 0, 0)];
    assert_eq!(infos(&mut reader), expected);
    assert_eq!(infos(&mut reader)[0].0, ViewState::NotNew);
    assert_eq!(reader.taken(), "1=10 1=11 1! 1=12");
}

#[test]
fn a_disposed_instance_stays_disposed_without_writers() {
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 10);
    reader.change(A, DisposeUnregister, 1, 0);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveDisposed));
    reader.change(B, Register, 1, 0);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveDisposed));
    let samples = reader.read(&Select::any()).unwrap();
    assert!(samples[0].info.valid_data && !samples[1].info.valid_data);
    assert_eq!(samples[1].info.publication_handle, A.into());
}

#[test]
fn a_dispose_of_an_unknown_instance_is_seen() {
    let mut reader = Fixture::of(&keep_all());
    reader.change(A, Unregister, 1, 0);
    assert_eq!(reader.state(1), None);
    reader.change(A, Dispose, 1, 0);
    assert_eq!(reader.taken(), "1!");
    // A dispose registers: an instance without writers has one again, and then it is disposed.
    reader.write(A, 2, 1);
    reader.change(A, Unregister, 2, 0);
    reader.change(B, Dispose, 2, 0);
    let samples = reader.read(&Select::any()).unwrap();
    assert_eq!(samples[1].info.no_writers_generation_count, 1);
    assert_eq!(samples[1].info.instance_state, InstanceState::NotAliveDisposed);
}

#[test]
fn writers_that_go_away_leave_instances_without_writers() {
    for end in [WriterEnd::Lost, WriterEnd::Deleted { autodispose: false }] {
        let mut reader = Fixture::of(&keep_all());
        reader.write(A, 1, 1);
        reader.write(A, 2, 1);
        reader.write(B, 2, 2);
        reader.event(ReaderEvent::WriterUnmatched(A, end));
        assert_eq!(reader.state(1), Some(InstanceState::NotAliveNoWriters));
        assert_eq!(reader.state(2), Some(InstanceState::Alive));
        reader.write(A, 1, 3);
        assert_eq!(reader.cache.counters().unmatched, 1);
    }
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 1);
    reader.event(ReaderEvent::WriterUnmatched(A, WriterEnd::Deleted { autodispose: true }));
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveDisposed));
    assert_eq!(reader.taken(), "1=1 1!");
    assert_eq!(reader.cache.instance_count(), 0);
}

#[test]
fn a_writer_that_is_not_alive_is_no_writer_until_it_writes() {
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 1);
    reader.event(ReaderEvent::WriterAlive(A, false));
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveNoWriters));
    reader.event(ReaderEvent::WriterAlive(A, true));
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveNoWriters));
    reader.event(ReaderEvent::WriterAlive(A, false));
    reader.write(A, 1, 2);
    assert_eq!(reader.state(1), Some(InstanceState::Alive));
    let changes: Vec<_> = reader.effects.iter().flat_map(|effects| &effects.liveness).map(|own| own.now).collect();
    assert_eq!(changes, [Some(false), Some(true), Some(false), Some(true)]);
}

fn exclusive() -> Fixture {
    let mut qos = keep_all();
    qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    Fixture::of(&qos)
}

#[test]
fn the_strongest_writer_owns_an_instance() {
    let mut reader = exclusive();
    reader.write(A, 1, 1);
    reader.write(B, 1, 2);
    reader.write(A, 1, 3);
    assert_eq!(reader.owner(1), Some(B));
    // A dispose counts from the owner only, an unregister always.
    reader.change(A, Dispose, 1, 0);
    assert_eq!(reader.state(1), Some(InstanceState::Alive));
    reader.change(B, Unregister, 1, 0);
    assert_eq!(reader.owner(1), Some(A));
    reader.write(A, 1, 4);
    assert_eq!(reader.taken(), "1=1 1=2 1=4");
    assert_eq!(reader.cache.counters().not_owned, 2);
}

#[test]
fn ownership_moves_with_strength_liveliness_and_loss() {
    let mut reader = exclusive();
    for guid in [A, B, C] {
        reader.write(guid, 1, 0);
    }
    assert_eq!(reader.owner(1), Some(C));
    reader.event(ReaderEvent::WriterMatched(writer(A, 9)));
    assert_eq!(reader.owner(1), Some(A));
    reader.event(ReaderEvent::WriterAlive(A, false));
    assert_eq!(reader.owner(1), Some(C));
    reader.event(ReaderEvent::WriterUnmatched(C, WriterEnd::Lost));
    assert_eq!(reader.owner(1), Some(B));
    // A register claims nothing; a write does.
    reader.change(A, Register, 1, 0);
    assert_eq!(reader.owner(1), Some(B));
    reader.write(A, 1, 0);
    assert_eq!(reader.owner(1), Some(A));
}

#[test]
fn of_equal_strengths_the_smaller_identity_wins() {
    let mut reader = exclusive();
    reader.event(ReaderEvent::WriterMatched(writer(A, 2)));
    reader.write(B, 1, 0);
    reader.write(A, 1, 0);
    assert_eq!(reader.owner(1), Some(A));
}

#[test]
fn a_missed_deadline_moves_ownership_when_the_group_says_so() {
    let mut qos = keep_all();
    qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    qos.deadline.period = nanos(10);
    let mut reader = Fixture::of(&qos);
    reader.write(A, 1, 0);
    reader.write(B, 1, 0);
    let last = position(reader.seq);
    reader.effects.clear();
    reader.advance(25);
    let verdict = DeadlineVerdict { instance: handle(1), writer: B, last };
    assert_eq!(
        reader.effects[0].deadlines,
        [MissedDeadline { instance: handle(1), verdict: Some(verdict), periods: 2 }]
    );
    assert_eq!(reader.owner(1), Some(B));
    reader.event(ReaderEvent::DeadlineVerdict(verdict));
    assert_eq!(reader.owner(1), Some(A));
    reader.write(B, 1, 5);
    assert_eq!(reader.owner(1), Some(B));
    // The write is ordered before a second copy of the verdict, which comes too late.
    reader.event(ReaderEvent::DeadlineVerdict(verdict));
    assert_eq!(reader.owner(1), Some(B));
}

#[test]
fn an_instance_is_collected_without_writers_samples_and_loans() {
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 1);
    let loan = reader.cache.take(&Select::any(), at(0)).unwrap().loan;
    reader.change(A, Unregister, 1, 0);
    assert_eq!(reader.taken(), "1!");
    assert_eq!(reader.cache.instance_count(), 1);
    assert_eq!(&*reader.cache.key_value(handle(1)).unwrap(), [1]);
    reader.cache.return_loan(loan).unwrap();
    assert_eq!(reader.cache.footprint(), 0);
    assert!(reader.cache.return_loan(loan).unwrap_err().to_string().contains("loan 1 is not open"));
    assert!(reader.cache.key_value(handle(1)).is_err());
}

/// Keys come and go, by each way in which they can: the memory stays.
#[test]
fn churned_keys_leave_nothing_behind() {
    let mut qos = keep_last(2);
    qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    qos.deadline.period = nanos(1 << 40);
    qos.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp;
    qos.reader_data_lifecycle.autopurge_disposed_samples_delay = nanos(50);
    let mut reader = Fixture::new(&qos, &presented(PresentationQosPolicyAccessScopeKind::Topic, false, true));
    let lifespan = nanos(1 << 30);
    for guid in [A, B] {
        reader.event(ReaderEvent::WriterMatched(WriterInfo { lifespan, ..writer(guid, 1) }));
    }
    let (mut largest, keys) = (0, 200_000_u32);
    for key in 0..keys {
        reader.now += 1;
        let instance = InstanceHandle(u128::from(key.reverse_bits()).to_be_bytes());
        let mut send = |writer: Guid, kind: ChangeKind, value: u8| {
            let own = CacheChange { instance, ..change(writer, kind, 1, value, i64::from(key)) };
            reader.event(ReaderEvent::Change(own));
        };
        send(A, Write, 1);
        send(B, Write, 2);
        match key % 3 {
            0 => send(A, DisposeUnregister, 0),
            1 => send(A, Unregister, 0),
            _ => send(A, Dispose, 0),
        }
        send(B, Unregister, 0);
        if key % 3 == 2 {
            send(A, Unregister, 0);
        }
        reader.effects.clear();
        if key % 16 == 0 {
            reader.advance(reader.now);
            let _ = reader.take(&Select::any());
        }
        largest = largest.max(reader.cache.footprint());
    }
    let _ = reader.take(&Select::any());
    assert_eq!(reader.cache.footprint(), 0);
    assert_eq!(reader.cache.counters().instances_collected, u64::from(keys));
    assert!(largest < 500, "{largest} entries");
}

#[test]
fn a_registration_counts_before_the_instance_is_known() {
    let mut reader = Fixture::of(&keep_all());
    reader.change(A, Register, 1, 0);
    assert_eq!((reader.state(1), reader.cache.instance_count()), (None, 0));
    assert_eq!(reader.cache.lookup_instance(handle(1)), None);
    reader.write(B, 1, 5);
    reader.change(B, Unregister, 1, 0);
    // A has registered it, so the instance has a writer.
    assert_eq!(reader.state(1), Some(InstanceState::Alive));
    reader.change(A, Unregister, 1, 0);
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveNoWriters));
    // Without a sample the end of a registration is no news.
    reader.change(C, Register, 2, 0);
    reader.change(C, Unregister, 2, 0);
    assert_eq!(reader.taken(), "1=5 1!");
    assert_eq!(reader.cache.footprint(), 0);
}

#[test]
fn an_unregister_has_its_own_time() {
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 5);
    reader.event(ReaderEvent::Change(change(A, Unregister, 1, 0, 7)));
    let samples = reader.take(&Select::any()).unwrap();
    assert_eq!(samples[1].info.source_timestamp, at(7));
}

#[test]
fn a_writer_that_no_longer_matches_disposes_nothing() {
    let mut reader = Fixture::of(&keep_all());
    reader.write(A, 1, 1);
    reader.event(ReaderEvent::WriterUnmatched(A, WriterEnd::Unmatched));
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveNoWriters));
    let liveness = &reader.effects.last().unwrap().liveness;
    assert_eq!(*liveness, [WriterLiveness { writer: A, before: Some(true), now: None }]);
}

#[test]
fn a_writer_may_match_without_being_alive() {
    let mut reader = Fixture::of(&keep_all());
    let dead = WriterInfo { guid: Guid([7; 16]), alive: false, ..writer(A, 1) };
    reader.event(ReaderEvent::WriterMatched(dead));
    let liveness = |before, now| [WriterLiveness { writer: dead.guid, before, now }];
    assert_eq!(reader.effects[0].liveness, liveness(None, Some(false)));
    reader.write(dead.guid, 1, 1);
    assert_eq!(reader.effects[1].liveness, liveness(Some(false), Some(true)));
    reader.event(ReaderEvent::WriterMatched(dead));
    assert_eq!(reader.effects[2].liveness, liveness(Some(true), Some(false)));
    assert_eq!(reader.state(1), Some(InstanceState::NotAliveNoWriters));
}

fn late(reader: &mut Fixture, seq: u64, change: CacheChange<Payload>) {
    let effects = reader.cache.deliver(position(seq), ReaderEvent::Change(change), at(reader.now));
    reader.effects.push(effects);
}

#[test]
fn samples_of_a_departed_writer_come_if_they_were_ordered_before() {
    for (end, state, ends) in [
        (WriterEnd::Lost, InstanceState::NotAliveNoWriters, "1=1 1=2 1!"),
        (WriterEnd::Deleted { autodispose: true }, InstanceState::NotAliveDisposed, "1=1 1=2 1!"),
    ] {
        let mut reader = Fixture::of(&keep_all());
        reader.write(A, 1, 1);
        reader.seq += 2;
        reader.event(ReaderEvent::WriterUnmatched(A, end));
        let place = reader.seq - 1;
        reader.effects.clear();
        late(&mut reader, place, change(A, Write, 1, 2, 0));
        assert!(reader.effects[0].data_available && reader.effects[0].liveness.is_empty());
        assert_eq!(reader.state(1), Some(state));
        // A change after the departure is none of a writer that matches.
        let after = reader.seq + 1;
        late(&mut reader, after, change(A, Write, 1, 3, 0));
        assert_eq!(reader.cache.counters().unmatched, 1);
        assert_eq!(reader.taken(), ends);
        assert_eq!(reader.cache.footprint(), 0);
        // When no event before the departure can come, it is forgotten.
        let _ = reader.cache.forget_departed(position(reader.seq));
        late(&mut reader, place, change(A, Write, 1, 4, 0));
        assert_eq!(reader.cache.counters().unmatched, 2);
    }
}

#[test]
fn a_joiner_gets_samples_of_writers_that_it_never_matched() {
    let mut reader = Fixture::of(&keep_all());
    let gone = WriterInfo { lifespan: nanos(50), ..writer(Guid([7; 16]), 1) };
    reader.now = 10;
    reader.seq = 100;
    reader.event(ReaderEvent::WriterDeparted(gone, WriterEnd::Lost));
    late(&mut reader, 30, change(gone.guid, Write, 1, 1, 5));
    late(&mut reader, 31, change(gone.guid, Write, 1, 2, 6));
    let samples = reader.read(&Select::any()).unwrap();
    assert_eq!(text(&samples), "1=1 1=2 1!");
    assert_eq!(samples[0].info.position.seq, 30);
    assert_eq!(samples[0].info.instance_state, InstanceState::NotAliveNoWriters);
    assert_eq!(reader.cache.wake_at(), Some(at(55)));
    assert!(reader.effects.iter().all(|effects| effects.liveness.is_empty()));
}

#[test]
fn departed_writers_are_bounded() {
    let mut reader = Fixture::of(&keep_all());
    let guid = |number: u32| Guid(u128::from(number + 1).to_be_bytes());
    for number in 0..1025 {
        reader.event(ReaderEvent::WriterDeparted(writer(guid(number), 1), WriterEnd::Lost));
    }
    // The first one is forgotten for the last one.
    late(&mut reader, 1, change(guid(0), Write, 1, 1, 0));
    late(&mut reader, 1, change(guid(1), Write, 1, 2, 0));
    late(&mut reader, 1, change(guid(1024), Write, 1, 3, 0));
    assert_eq!((reader.taken().as_str(), reader.cache.counters().unmatched), ("1=2 1=3 1!", 1));
}
