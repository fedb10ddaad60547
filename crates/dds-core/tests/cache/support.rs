//! A cache with the writers `A`, `B` and `C`, and short names for what happens to it.
use spindle_dds_core::cache::*;
use spindle_dds_core::instance::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::{DdsDuration, DdsError, DdsTime, Guid, InstanceHandle, Position};
use std::sync::Arc;

pub(crate) type Payload = Arc<[u8]>;

pub(crate) const A: Guid = Guid([0xa; 16]);
pub(crate) const B: Guid = Guid([0xb; 16]);
pub(crate) const C: Guid = Guid([0xc; 16]);

pub(crate) fn at(nanos: i64) -> DdsTime {
    DdsTime::from_nanos(nanos)
}

pub(crate) fn nanos(nanos: u64) -> DdsDuration {
    DdsDuration::from_nanos(nanos)
}

pub(crate) fn handle(key: u8) -> InstanceHandle {
    InstanceHandle([key; 16])
}

/// A payload is the key and a value.
pub(crate) fn key_reader() -> KeyReader<Payload> {
    Arc::new(|payload: &Payload| Ok(Arc::from(&payload[..1])))
}

pub(crate) fn change(writer: Guid, kind: ChangeKind, key: u8, value: u8, time: i64) -> CacheChange<Payload> {
    let payload: Payload = match kind {
        ChangeKind::Write => Arc::from([key, value]),
        _ => Arc::from([key]),
    };
    CacheChange { writer, kind, instance: handle(key), source_timestamp: at(time), set: None, payload }
}

pub(crate) fn writer(guid: Guid, strength: i32) -> WriterInfo {
    WriterInfo { guid, strength, lifespan: DdsDuration::INFINITE, alive: true }
}

pub(crate) fn position(seq: u64) -> Position {
    Position { domain: 0, view: 1, seq, index: 0 }
}

/// A reliable reader that keeps all, which tests change.
pub(crate) fn keep_all() -> DataReaderQos {
    let mut qos = DataReaderQos { reliability: ReliabilityQosPolicy::WRITER, ..DataReaderQos::default() };
    qos.history.kind = HistoryQosPolicyKind::KeepAll;
    qos
}

pub(crate) fn keep_last(depth: u32) -> DataReaderQos {
    let mut qos = keep_all();
    qos.history.kind = HistoryQosPolicyKind::KeepLast(depth);
    qos
}

pub(crate) fn presented(
    access_scope: PresentationQosPolicyAccessScopeKind,
    coherent_access: bool,
    ordered_access: bool,
) -> SubscriberQos {
    let presentation = PresentationQosPolicy { access_scope, coherent_access, ordered_access };
    SubscriberQos { presentation, ..SubscriberQos::default() }
}

/// A cache, the clock and the stream.
pub(crate) struct Fixture {
    pub(crate) cache: ReaderCache<Payload>,
    pub(crate) seq: u64,
    pub(crate) now: i64,
    /// The effects of all events since they were looked at.
    pub(crate) effects: Vec<Effects>,
}

impl Fixture {
    /// Makes a cache whose writers `A`, `B` and `C` have the strengths 1, 2 and 3.
    pub(crate) fn new(qos: &DataReaderQos, subscriber: &SubscriberQos) -> Fixture {
        let cache = ReaderCache::new(qos, subscriber, key_reader()).unwrap();
        let mut fixture = Fixture { cache, seq: 0, now: 0, effects: Vec::new() };
        for (guid, strength) in [(A, 1), (B, 2), (C, 3)] {
            fixture.event(ReaderEvent::WriterMatched(writer(guid, strength)));
        }
        fixture.effects.clear();
        fixture
    }

    pub(crate) fn of(qos: &DataReaderQos) -> Fixture {
        Fixture::new(qos, &SubscriberQos::default())
    }

    pub(crate) fn event(&mut self, event: ReaderEvent<Payload>) {
        self.seq += 1;
        let effects = self.cache.deliver(position(self.seq), event, at(self.now));
        self.effects.push(effects);
    }

    /// Delivers a write whose source timestamp is the clock.
    pub(crate) fn write(&mut self, writer: Guid, key: u8, value: u8) {
        self.change(writer, ChangeKind::Write, key, value);
    }

    pub(crate) fn change(&mut self, writer: Guid, kind: ChangeKind, key: u8, value: u8) {
        let change = change(writer, kind, key, value, self.now);
        self.event(ReaderEvent::Change(change));
    }

    /// Sets the clock, and lets the cache do what is due.
    pub(crate) fn advance(&mut self, now: i64) {
        self.now = now;
        let effects = self.cache.poll(at(now));
        self.effects.push(effects);
    }

    pub(crate) fn read(&mut self, select: &Select<'_>) -> Result<Vec<Sample<Payload>>, DdsError> {
        let selection = self.cache.read(select, at(self.now))?;
        self.cache.return_loan(selection.loan).unwrap();
        Ok(selection.samples)
    }

    pub(crate) fn take(&mut self, select: &Select<'_>) -> Result<Vec<Sample<Payload>>, DdsError> {
        let selection = self.cache.take(select, at(self.now))?;
        self.cache.return_loan(selection.loan).unwrap();
        Ok(selection.samples)
    }

    /// Takes all, and returns each as text: `1=5` is value 5 of key 1, `1!` its end.
    pub(crate) fn taken(&mut self) -> String {
        self.take(&Select::any()).map_or(String::new(), |samples| text(&samples))
    }

    pub(crate) fn state(&self, key: u8) -> Option<InstanceState> {
        self.cache.instance(handle(key)).map(|instance| instance.state)
    }

    pub(crate) fn owner(&self, key: u8) -> Option<Guid> {
        self.cache.instance(handle(key)).and_then(|instance| instance.owner)
    }
}

pub(crate) fn text(samples: &[Sample<Payload>]) -> String {
    let each = samples.iter().map(|sample| match &sample.data {
        SampleData::Value(value) => format!("{}={}", value[0], value[1]),
        SampleData::Key(key) => format!("{}!", key[0]),
    });
    each.collect::<Vec<_>>().join(" ")
}

/// A generator of numbers (xorshift64*).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns one of the values, or none in half of the cases.
    pub(crate) fn perhaps<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!self.one_in(2)).then(|| self.pick(from))
    }
}
