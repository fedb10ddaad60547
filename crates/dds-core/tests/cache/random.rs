//! Random operations on the cache and on the model, which must agree in every answer.
//!
//! `DDS_SEED` sets the first seed and `DDS_SEEDS` the number of seeds. A failure prints its seed.
use crate::model::{Model, Policies};
use crate::support::*;
use ChangeKind::*;
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::{DataReaderQos, QosSet, SubscriberQos};
use spindle_dds_core::{DdsDuration, Guid, InstanceHandle, Position, ReturnCode};
use std::collections::BTreeMap;
use std::sync::Arc;

fn policies(chance: &mut Chance) -> Policies {
    Policies {
        depth: chance.perhaps(&[1, 2, 3]),
        max_samples: chance.perhaps(&[3, 5, 8]),
        max_instances: chance.perhaps(&[2, 3]),
        max_per_instance: chance.perhaps(&[3]),
        by_source: chance.one_in(2),
        exclusive: chance.one_in(2),
        reliable: chance.one_in(2),
        ordered: chance.one_in(2),
        separation: chance.pick(&[0, 0, 4]),
        deadline: chance.perhaps(&[4, 9]),
        purge_disposed: chance.perhaps(&[3, 12]),
        purge_no_writers: chance.perhaps(&[5, 12]),
    }
}

fn qos(policies: &Policies) -> DataReaderQos {
    let mut qos = DataReaderQos::default();
    let length = |limit: Option<usize>| limit.map_or(Length::Unlimited, |limit| Length::Limited(limit as u32));
    let duration = |time: Option<i64>| time.map_or(DdsDuration::INFINITE, |time| nanos(time as u64));
    qos.history.kind = policies.history();
    qos.resource_limits = ResourceLimitsQosPolicy {
        max_samples: length(policies.max_samples),
        max_instances: length(policies.max_instances),
        max_samples_per_instance: length(policies.max_per_instance),
    };
    if policies.by_source {
        qos.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp;
    }
    if policies.exclusive {
        qos.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    }
    if policies.reliable {
        qos.reliability = ReliabilityQosPolicy::WRITER;
    }
    qos.time_based_filter.minimum_separation = nanos(policies.separation as u64);
    qos.deadline.period = duration(policies.deadline);
    qos.reader_data_lifecycle.autopurge_disposed_samples_delay = duration(policies.purge_disposed);
    qos.reader_data_lifecycle.autopurge_nowriter_samples_delay = duration(policies.purge_no_writers);
    qos.check_consistent().unwrap();
    qos
}

const KEYS: [u8; 4] = [1, 2, 3, 4];
const WRITERS: [Guid; 3] = [A, B, C];

fn event(chance: &mut Chance, now: i64) -> ReaderEvent<Payload> {
    let (guid, key) = (chance.pick(&WRITERS), chance.pick(&KEYS));
    match chance.below(20) {
        0 => {
            let end = chance.pick(&[
                WriterEnd::Lost,
                WriterEnd::Unmatched,
                WriterEnd::Deleted { autodispose: true },
                WriterEnd::Deleted { autodispose: false },
            ]);
            ReaderEvent::WriterUnmatched(guid, end)
        }
        1 | 2 => {
            let lifespan = chance.perhaps(&[3, 10]).map_or(DdsDuration::INFINITE, nanos);
            let (strength, alive) = (chance.below(3) as i32, !chance.one_in(4));
            let writer = WriterInfo { guid, strength, lifespan, alive };
            match chance.one_in(4) {
                true => ReaderEvent::WriterDeparted(writer, WriterEnd::Deleted { autodispose: chance.one_in(2) }),
                false => ReaderEvent::WriterMatched(writer),
            }
        }
        3 => ReaderEvent::WriterAlive(guid, chance.one_in(2)),
        5 => ReaderEvent::SamplesLost(1),
        _ => {
            let kind = chance.pick(&[Write, Write, Write, Write, Register, Dispose, Unregister, DisposeUnregister]);
            let time = now - chance.below(4) as i64;
            ReaderEvent::Change(change(guid, kind, key, chance.below(256) as u8, time))
        }
    }
}

fn states(chance: &mut Chance) -> StateMask {
    let mut states = StateMask::ANY;
    if chance.one_in(3) {
        states = states.sample(&[chance.pick(&[SampleState::Read, SampleState::NotRead])]);
    }
    if chance.one_in(3) {
        states = states.view(&[chance.pick(&[ViewState::New, ViewState::NotNew])]);
    }
    if chance.one_in(3) {
        let all = [InstanceState::Alive, InstanceState::NotAliveDisposed, InstanceState::NotAliveNoWriters];
        states = states.instance(&[chance.pick(&all)]);
    }
    states
}

struct Run {
    chance: Chance,
    fixture: Fixture,
    model: Model,
    loans: Vec<LoanId>,
    accesses: usize,
    /// The verdicts that the cache has proposed.
    verdicts: Vec<DeadlineVerdict>,
    subscriber: SubscriberQos,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut chance = Chance::new(seed);
        let policies = policies(&mut chance);
        let scope = PresentationQosPolicyAccessScopeKind::Topic;
        let subscriber = presented(scope, false, policies.ordered);
        let fixture = Fixture::new(&qos(&policies), &subscriber);
        let mut model = Model::new(policies);
        for (seq, (guid, strength)) in [(A, 1), (B, 2), (C, 3)].into_iter().enumerate() {
            let event = ReaderEvent::WriterMatched(writer(guid, strength));
            let _ = model.deliver(position(seq as u64 + 1), &event, 0);
        }
        Run { chance, fixture, model, loans: Vec::new(), accesses: 0, verdicts: Vec::new(), subscriber }
    }

    fn step(&mut self) {
        let (chance, fixture) = (&mut self.chance, &mut self.fixture);
        // Time passes before any operation, not only before a poll.
        if chance.one_in(3) {
            fixture.now += chance.below(5) as i64;
        }
        match chance.below(12) {
            0..=6 => {
                let event = match self.verdicts.is_empty() || !chance.one_in(10) {
                    true => event(chance, fixture.now),
                    false => ReaderEvent::DeadlineVerdict(chance.pick(&self.verdicts)),
                };
                // A change may come late, with a place before the departure of its writer.
                let late = if chance.one_in(8) { chance.below(20) as u64 } else { 0 };
                fixture.seq += 1;
                let place = Position { index: fixture.seq as u32, ..position(fixture.seq.saturating_sub(late)) };
                let expected = self.model.deliver(place, &event, fixture.now);
                self.verdicts.extend(expected.deadlines.iter().filter_map(|missed| missed.verdict));
                assert_eq!(fixture.cache.deliver(place, event, at(fixture.now)), expected);
            }
            7 | 8 => {
                let now = fixture.now + chance.below(5) as i64;
                fixture.advance(now);
                let expected = self.model.poll(now);
                self.verdicts.extend(expected.deadlines.iter().filter_map(|missed| missed.verdict));
                assert_eq!(fixture.effects.pop(), Some(expected));
            }
            9 if chance.one_in(4) => self.rejoin(),
            9 if chance.one_in(3) => {
                let times = policies(chance);
                let Policies { separation, deadline, purge_disposed, purge_no_writers, .. } = times;
                let own = self.model.policies.clone();
                let changed = Policies { separation, deadline, purge_disposed, purge_no_writers, ..own };
                let effects = fixture.cache.set_qos(&qos(&changed), &self.subscriber, at(fixture.now)).unwrap();
                assert_eq!(effects, self.model.set_policies(changed, fixture.now));
            }
            9 if !self.loans.is_empty() => {
                let index = chance.below(self.loans.len());
                fixture.cache.return_loan(self.loans.swap_remove(index)).unwrap();
                self.model.return_loan(index);
            }
            _ => self.access(),
        }
    }

    /// Replaces the cache by another one, which has its state by a snapshot.
    fn rejoin(&mut self) {
        let (now, fixture) = (self.fixture.now, &mut self.fixture);
        assert_eq!(fixture.cache.poll(at(now)), self.model.poll(now));
        let bytes = fixture.cache.snapshot();
        let mut cache = ReaderCache::new(&qos(&self.model.policies), &self.subscriber, key_reader()).unwrap();
        let effects = cache.restore(&bytes, |payload| Arc::from(payload), at(now)).unwrap();
        assert_eq!(effects, self.model.rejoin());
        assert_eq!(cache.snapshot(), bytes);
        fixture.cache = cache;
        self.loans.clear();
    }

    fn access(&mut self) {
        let (chance, fixture) = (&mut self.chance, &mut self.fixture);
        let key = chance.pick(&KEYS);
        let after = (!chance.one_in(4)).then(|| handle(key));
        let scope = chance.pick(&[Scope::Any, Scope::Any, Scope::Instance(handle(key)), Scope::NextInstance(after)]);
        let (states, max) = (states(chance), chance.pick(&[1, 2, 100]));
        let (takes, lends) = (chance.one_in(2), chance.one_in(4));
        let select = Select::any().scope(scope).states(states).max_samples(max);
        let now = at(fixture.now);
        let found = if takes { fixture.cache.take(&select, now) } else { fixture.cache.read(&select, now) };
        let expected = self.model.access(scope, states, max, takes, lends, fixture.now);
        match (found, expected) {
            (Ok(selection), Some(expected)) => {
                assert_eq!(selection.samples, expected);
                self.accesses += 1;
                match lends {
                    true => self.loans.push(selection.loan),
                    false => fixture.cache.return_loan(selection.loan).unwrap(),
                }
            }
            (Err(error), Some(expected)) => {
                assert_eq!((error.code(), expected), (ReturnCode::NoData, Vec::new()));
            }
            (Err(error), None) => assert_eq!(error.code(), ReturnCode::BadParameter),
            (Ok(selection), None) => panic!("{selection:?}"),
        }
    }

    fn compare(&self) {
        let cache = &self.fixture.cache;
        for key in KEYS {
            let sorted = |info: Option<InstanceInfo>| {
                info.map(|mut info| {
                    info.writers.sort();
                    info
                })
            };
            assert_eq!(sorted(cache.instance(handle(key))), self.model.instance(key), "instance {key}");
            assert_eq!(cache.admits(handle(key)), self.model.admits(key), "limits of instance {key}");
        }
        for mask in [StateMask::ANY, StateMask::ANY.not_alive(), StateMask::ANY.sample(&[SampleState::NotRead])] {
            assert_eq!(cache.count(mask), self.model.count(mask));
        }
        assert_eq!(cache.counters(), self.model.counters);
        assert_eq!(cache.wake_at(), self.model.wake_at());
    }

    /// Everything goes away, and nothing is left.
    fn end(&mut self) {
        for guid in WRITERS {
            self.fixture.event(ReaderEvent::WriterUnmatched(guid, WriterEnd::Lost));
        }
        for loan in std::mem::take(&mut self.loans) {
            self.fixture.cache.return_loan(loan).unwrap();
        }
        let _ = self.fixture.taken();
        assert_eq!(self.fixture.cache.footprint(), 0, "{:?}", self.fixture.cache);
    }
}

#[test]
fn the_cache_and_the_model_agree() {
    let setting = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (first, seeds) = (setting("DDS_SEED", 1), setting("DDS_SEEDS", 400));
    let mut accesses = 0;
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            for _ in 0..300 {
                run.step();
                run.compare();
            }
            run.end();
            run.accesses
        });
        match run {
            Ok(count) => accesses += count,
            Err(cause) => {
                eprintln!("replay: DDS_SEED={seed} DDS_SEEDS=1 cargo test -p spindle-dds-core --test cache random");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(accesses as u64 > 10 * seeds, "{accesses} reads of {seeds} seeds found samples");
}

/// Returns the sum of effects: the missed periods of each instance, and the numbers of other effects.
fn sum(total: &mut Total, effects: &[Effects]) {
    for effects in effects {
        total.available |= effects.data_available;
        total.rejected.extend(effects.rejected.iter().copied());
        for missed in &effects.deadlines {
            *total.missed.entry(missed.instance).or_default() += missed.periods;
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Total {
    available: bool,
    rejected: Vec<(RejectedReason, InstanceHandle)>,
    missed: BTreeMap<InstanceHandle, u32>,
}

/// A cache that is polled at every time, and one that is never polled, have the same contents and effects.
#[test]
fn polls_change_nothing() {
    for seed in 1..300 {
        let mut chance = Chance::new(seed);
        let qos = qos(&policies(&mut chance));
        let subscriber = presented(PresentationQosPolicyAccessScopeKind::Topic, false, chance.one_in(2));
        let [mut polled, mut lazy] = [(); 2].map(|()| Fixture::new(&qos, &subscriber));
        for _ in 0..200 {
            let now = lazy.now + chance.below(6) as i64;
            (polled.now..=now).for_each(|time| polled.advance(time));
            lazy.now = now;
            if chance.one_in(4) {
                let (states, max) = (states(&mut chance), chance.pick(&[1, 100]));
                let select = Select::any().states(states).max_samples(max);
                assert_eq!(polled.take(&select).ok(), lazy.take(&select).ok(), "seed {seed}");
            } else {
                let event = event(&mut chance, now);
                polled.event(event.clone());
                lazy.event(event);
            }
            assert_eq!(polled.cache.counters(), lazy.cache.counters(), "seed {seed}");
        }
        lazy.advance(lazy.now);
        let mut totals = [Total::default(), Total::default()];
        sum(&mut totals[0], &polled.effects);
        sum(&mut totals[1], &lazy.effects);
        assert_eq!(totals[0], totals[1], "seed {seed}");
    }
}
