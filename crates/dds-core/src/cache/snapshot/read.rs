//! The decoder of snapshots. It trusts nothing.
use super::write::{Output, settings};
use super::{MAGIC, Parts, SnapshotError, VERSION};
use crate::cache::cache::PendingSet;
use crate::cache::departed::{DEPARTED_MAX, Departed, DepartedWriters};
use crate::cache::event::{CacheChange, ChangeKind, SetId, WriterEnd};
use crate::cache::rules::WriterRecord;
use crate::cache::settings::CacheSettings;
use crate::id::{Guid, InstanceHandle, Position};
use crate::instance::{Instance, InstanceState, Registration, Stored, ViewState};
use crate::time::{DdsDuration, DdsTime};
use std::collections::{BTreeMap, BTreeSet};

/// The largest number of a sample. Beyond it, numbers would run out.
const ARRIVAL_MAX: u64 = u64::MAX / 2;

/// The policies in the order of the format.
const POLICIES: [&str; 8] = [
    "HISTORY",
    "RESOURCE_LIMITS max_samples",
    "RESOURCE_LIMITS max_instances",
    "RESOURCE_LIMITS max_samples_per_instance",
    "DESTINATION_ORDER",
    "OWNERSHIP",
    "RELIABILITY",
    "PRESENTATION",
];

pub(super) fn parts<P>(
    bytes: &[u8],
    own: &CacheSettings,
    payload: impl FnMut(&[u8]) -> P,
) -> Result<Parts<P>, SnapshotError> {
    if !bytes.starts_with(MAGIC) {
        let found = bytes[..bytes.len().min(MAGIC.len())].to_vec();
        return Err(SnapshotError::Magic { found });
    }
    let mut input = Input { bytes, at: MAGIC.len(), payload };
    let version = u16::from_le_bytes(input.array("the version")?);
    if version != VERSION {
        return Err(SnapshotError::Version { found: version });
    }
    input.policies(own)?;
    let arrival = input.u64("the number of samples")?;
    input.check(arrival <= ARRIVAL_MAX, "the number of samples is too large")?;
    let last = input.position()?;
    let writers = input.writers()?;
    let departed = input.departed(&writers)?;
    let mut instances: Vec<Instance<P>> = Vec::new();
    for _ in 0..input.count("the instances")? {
        let instance = input.instance(arrival, &writers)?;
        let ascends = instances.last().is_none_or(|last| last.handle < instance.handle);
        input.check(ascends, "instances must be in the order of their handles")?;
        instances.push(instance);
    }
    let mut sets: Vec<(SetId, PendingSet<P>)> = Vec::new();
    for _ in 0..input.count("the coherent sets")? {
        let (id, set) = input.set()?;
        input.check(sets.last().is_none_or(|last| last.0 < id), "sets must be in the order of their sources")?;
        sets.push((id, set));
    }
    input.check(own.coherent || sets.is_empty(), "a cache without coherent access has no sets")?;
    input.check(input.at == bytes.len(), "bytes follow the end")?;
    Ok(Parts { arrival, last, writers, departed, instances, sets })
}

struct Input<'a, F> {
    bytes: &'a [u8],
    at: usize,
    payload: F,
}

type Read<T> = Result<T, SnapshotError>;

impl<'a, F> Input<'a, F> {
    fn check(&self, holds: bool, what: &'static str) -> Read<()> {
        if holds { Ok(()) } else { Err(SnapshotError::Value { at: self.at, what }) }
    }

    fn take(&mut self, count: usize, what: &'static str) -> Read<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..count).ok_or(SnapshotError::Truncated { at: self.bytes.len(), what })?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Read<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn u8(&mut self, what: &'static str) -> Read<u8> {
        self.array(what).map(|[byte]| byte)
    }

    fn flag(&mut self, what: &'static str) -> Read<bool> {
        let byte = self.u8(what)?;
        self.check(byte < 2, "a flag must be 0 or 1")?;
        Ok(byte == 1)
    }

    fn u32(&mut self, what: &'static str) -> Read<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Read<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn time(&mut self, what: &'static str) -> Read<DdsTime> {
        self.array(what).map(|bytes| DdsTime::from_nanos(i64::from_le_bytes(bytes)))
    }

    /// Reads a count of parts, each of which has a byte or more.
    fn count(&mut self, what: &'static str) -> Read<u64> {
        let count = self.u64(what)?;
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(SnapshotError::Truncated { at: self.bytes.len(), what });
        }
        Ok(count)
    }

    fn bytes(&mut self, what: &'static str) -> Read<&'a [u8]> {
        let length = self.count(what)?;
        self.take(length as usize, what)
    }

    fn guid(&mut self) -> Read<Guid> {
        self.array("an identity").map(Guid)
    }

    fn position(&mut self) -> Read<Position> {
        const WHAT: &str = "a position";
        let (domain, view, seq) = (self.u32(WHAT)?, self.u64(WHAT)?, self.u64(WHAT)?);
        Ok(Position { domain, view, seq, index: self.u32(WHAT)? })
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.flag("an optional value")? { read(self).map(Some) } else { Ok(None) }
    }

    fn policies(&mut self, own: &CacheSettings) -> Read<()> {
        let mut expected = Output(Vec::new());
        settings(&mut expected, own);
        let found = self.take(expected.0.len(), "the policies")?;
        for (policy, (own, other)) in POLICIES.into_iter().zip(expected.0.chunks(8).zip(found.chunks(8))) {
            if own != other {
                return Err(SnapshotError::Policies { policy });
            }
        }
        Ok(())
    }

    fn writers(&mut self) -> Read<BTreeMap<Guid, WriterRecord>> {
        let mut writers = BTreeMap::new();
        for _ in 0..self.count("the writers")? {
            let (guid, strength, lifespan) = (self.guid()?, self.strength()?, self.lifespan()?);
            let alive = self.flag("the liveliness of a writer")?;
            let record = WriterRecord { strength, lifespan, alive, instances: BTreeSet::new() };
            self.check(writers.insert(guid, record).is_none(), "a writer must be listed once")?;
        }
        Ok(writers)
    }

    fn strength(&mut self) -> Read<i32> {
        self.u32("a strength").map(u32::cast_signed)
    }

    fn lifespan(&mut self) -> Read<DdsDuration> {
        self.u64("a lifespan").map(DdsDuration::from_nanos)
    }

    fn departed(&mut self, writers: &BTreeMap<Guid, WriterRecord>) -> Read<DepartedWriters> {
        let mut departed = DepartedWriters::default();
        let count = self.count("the writers that went away")?;
        self.check(count <= DEPARTED_MAX as u64, "more writers went away than a cache remembers")?;
        for _ in 0..count {
            let (guid, strength, lifespan) = (self.guid()?, self.strength()?, self.lifespan()?);
            let end = match self.u8("how a writer went away")? {
                0 => WriterEnd::Unmatched,
                1 => WriterEnd::Deleted { autodispose: false },
                2 => WriterEnd::Deleted { autodispose: true },
                3 => WriterEnd::Lost,
                _ => return Err(SnapshotError::Value { at: self.at, what: "a writer goes away in 4 ways" }),
            };
            let position = self.position()?;
            let once = !writers.contains_key(&guid) && !departed.0.contains_key(&guid);
            self.check(once, "a writer must be listed once")?;
            let _ = departed.add(guid, Departed { strength, lifespan, end, position });
        }
        Ok(departed)
    }
}

impl<P, F: FnMut(&[u8]) -> P> Input<'_, F> {
    fn instance(&mut self, arrival: u64, writers: &BTreeMap<Guid, WriterRecord>) -> Read<Instance<P>> {
        let mut own = Instance::new(InstanceHandle(self.array("the handle of an instance")?));
        if self.flag("an instance")? {
            own.set_key(self.bytes("the key of an instance")?.into());
        }
        own.state = match self.u8("the state of an instance")? {
            0 => InstanceState::Alive,
            1 => InstanceState::NotAliveDisposed,
            2 => InstanceState::NotAliveNoWriters,
            _ => return Err(SnapshotError::Value { at: self.at, what: "an instance has 3 states" }),
        };
        own.view = if self.flag("the view state")? { ViewState::NotNew } else { ViewState::New };
        own.life = self.u64("the life of an instance")?;
        own.disposed_generation = self.u32("a generation")?;
        own.no_writers_generation = self.u32("a generation")?;
        for _ in 0..self.count("the writers of an instance")? {
            let (writer, candidate) = (self.guid()?, self.flag("a writer of an instance")?);
            let last = self.option(Self::position)?;
            self.check(writers.contains_key(&writer), "a writer of an instance must be a writer of the cache")?;
            let ascends = own.writers.last().is_none_or(|before| before.writer < writer);
            self.check(ascends, "the writers of an instance must be in the order of their identities")?;
            own.writers.push(Registration { writer, candidate, last });
        }
        own.newest = self.option(|input| Ok((input.time("the newest change")?, input.guid()?)))?;
        own.accepted = self.option(|input| input.time("the last sample"))?;
        own.period_from = self.option(|input| input.time("the period of a deadline"))?;
        own.ended = self.option(|input| input.time("the end of an instance"))?;
        own.pending = self.option(|input| input.sample(arrival))?;
        self.check(own.pending.is_none() || own.accepted.is_some(), "a sample waits for one before it")?;
        let mut before = (0, 0);
        for _ in 0..self.count("the samples of an instance")? {
            let sample = self.sample(arrival)?;
            let place = (sample.arrival, sample.generations());
            let ascends = place.0 > before.0 && place.1 >= before.1 && place.1 <= own.generations();
            self.check(ascends, "samples must be in the order in which they came")?;
            before = place;
            own.samples.push_back(sample);
        }
        self.check(own.is_known() || own.samples.is_empty(), "an unknown instance has no samples")?;
        self.check(!own.is_garbage(), "an instance needs a writer or a sample")?;
        Ok(own)
    }

    fn sample(&mut self, arrival_max: u64) -> Read<Stored<P>> {
        let arrival = self.u64("a sample")?;
        self.check(arrival <= arrival_max, "a sample has a larger number than the last one")?;
        let writer = self.guid()?;
        let (source_timestamp, reception) = (self.time("a timestamp")?, self.time("a timestamp")?);
        let (position, visible) = (self.position()?, self.position()?);
        let (disposed_generation, no_writers_generation) = (self.u32("a generation")?, self.u32("a generation")?);
        let read = self.flag("a sample")?;
        let expires = self.time("the end of a lifespan")?;
        let data = self.option(|input| input.bytes("the data of a sample"))?.map(&mut self.payload);
        Ok(Stored {
            arrival,
            writer,
            source_timestamp,
            reception,
            position,
            visible,
            disposed_generation,
            no_writers_generation,
            read,
            expires,
            loans: 0,
            data,
        })
    }

    fn set(&mut self) -> Read<(SetId, PendingSet<P>)> {
        let id = SetId { source: self.guid()?, number: self.u64("the number of a set")? };
        let mut set = PendingSet { broken: self.flag("a set")?, refused: self.u32("a set")?, ..PendingSet::default() };
        for _ in 0..self.count("the writers of a set")? {
            set.writers.push(self.guid()?);
        }
        for _ in 0..self.count("the changes of a set")? {
            let position = self.position()?;
            let writer = self.guid()?;
            let kind = match self.u8("the kind of a change")? {
                0 => ChangeKind::Write,
                1 => ChangeKind::Register,
                2 => ChangeKind::Dispose,
                3 => ChangeKind::Unregister,
                4 => ChangeKind::DisposeUnregister,
                _ => return Err(SnapshotError::Value { at: self.at, what: "a change has 5 kinds" }),
            };
            let instance = InstanceHandle(self.array("the instance of a change")?);
            let source_timestamp = self.time("a timestamp")?;
            let payload = self.bytes("the payload of a change")?;
            let payload = (self.payload)(payload);
            set.changes
                .push((position, CacheChange { writer, kind, instance, source_timestamp, set: Some(id), payload }));
        }
        let empty = set.changes.is_empty() || (!set.broken && set.refused == 0);
        self.check(empty, "a set that is given up has no changes")?;
        Ok((id, set))
    }
}
