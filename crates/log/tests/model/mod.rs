//! A model of one log, its snapshots and the journal on a simulated disk: runs random operations,
//! ends the process or the machine at some operation, opens the directory again, and checks.
#![allow(unreachable_pub, dead_code, reason = "each test uses a part of this module")]
use spindle_log::disk::{Faults, SimDisk};
use spindle_log::{
    Config, Damage, DataDirectory, Error, Identity, PayloadKind, Reader, Record, Store, Version, repair,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const SUBGROUP: u32 = 7;

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub fn identity() -> Identity {
    Identity {
        group: "orders".into(),
        member: 3,
        incarnation: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
        payloads: PayloadKind::Opaque,
    }
}

pub fn config() -> Config {
    Config {
        segment_bytes: 8192,
        spares: 1,
        reserve_bytes: 0,
        index_bytes: 256,
        journal_bytes: 32 << 10,
        ..Config::default()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Owned {
    pub version: Version,
    pub clock: u64,
    pub payload: Vec<u8>,
}

impl Owned {
    pub fn record(&self) -> Record<'_> {
        Record { version: self.version, clock: self.clock, payload: &self.payload }
    }
}

pub fn read_all(reader: &mut Reader) -> Result<Vec<Owned>, Error> {
    let mut all = Vec::new();
    while let Some(Record { version, clock, payload }) = reader.next()? {
        all.push(Owned { version, clock, payload: payload.to_vec() });
    }
    Ok(all)
}

pub struct Model {
    pub disk: SimDisk,
    pub random: Random,
    pub store: Option<Store>,
    /// All that was submitted since the last cut, pruned records included.
    pub records: Vec<Owned>,
    /// How many of them are acknowledged.
    pub acked: usize,
    /// How many of them were acknowledged before the last commit. Damage may lose the last batch.
    pub recorded: usize,
    floor: (usize, usize),
    cut: Option<usize>,
    snapshot: Option<Version>,
    snapshot_started: Option<Version>,
    journal: BTreeMap<u32, Vec<u8>>,
    journal_started: Option<(u32, Vec<u8>)>,
    nonce: u64,
    /// Damage was done, so errors are expected.
    pub is_rotten: bool,
    /// Syncs lied, so acknowledged data may be gone.
    pub is_lying: bool,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        Self {
            disk: SimDisk::new(seed, 1 << 30),
            random: Random(seed ^ 0xABCD),
            store: None,
            records: Vec::new(),
            acked: 0,
            recorded: 0,
            floor: (0, 0),
            cut: None,
            snapshot: None,
            snapshot_started: None,
            journal: BTreeMap::new(),
            journal_started: None,
            nonce: 0,
            is_rotten: false,
            is_lying: false,
        }
    }

    fn open_store(&self) -> Result<Store, Error> {
        let mut store = Store::open(Arc::new(self.disk.clone()), &identity(), config())?;
        store.open_log(SUBGROUP, &mut |_| ())?;
        Ok(store)
    }

    /// Opens the directory and checks what is in it. A disk fault is returned.
    pub fn open(&mut self) -> Result<(), Error> {
        let store = match self.open_store() {
            Err(Error::Corrupt(damage)) if self.is_rotten => {
                self.repair(&damage).unwrap_or_else(|error| panic!("repair of {damage:?}: {error}"));
                return self.open();
            }
            other => other?,
        };
        self.check(store)
    }

    /// Replaces the lost range as a peer would.
    pub fn repair(&self, damage: &Damage) -> Result<(), Error> {
        let range: Vec<Owned> = self
            .records
            .iter()
            .filter(|record| Some(record.version) > damage.after)
            .filter(|record| damage.before.is_none_or(|before| record.version < before))
            .filter(|record| damage.before.is_some() || Some(record.version) <= damage.through)
            .cloned()
            .collect();
        let directory = DataDirectory::open(Arc::new(self.disk.clone()), &identity())?;
        let records: Vec<Record<'_>> = range.iter().map(Owned::record).collect();
        repair(&directory, damage, &records)
    }

    /// The damage of the log, if it has one.
    pub fn damage(&self) -> Option<Damage> {
        match self.open_store() {
            Err(Error::Corrupt(damage)) => Some(*damage),
            _ => None,
        }
    }

    fn check(&mut self, mut store: Store) -> Result<(), Error> {
        let log = store.log(SUBGROUP)?;
        let floor = log.floor();
        let found = read_all(&mut log.readers().reader())?;
        let pruned = self.records.iter().filter(|record| Some(record.version) <= floor).count();
        if !self.is_lying {
            assert!(
                (self.floor.0..=self.floor.1).contains(&pruned),
                "pruned {pruned} records, expected {:?}",
                self.floor
            );
        }
        let end = pruned + found.len();
        assert!(end <= self.records.len(), "{} records found, {} written", end, self.records.len());
        for (found, written) in found.iter().zip(&self.records[pruned..]) {
            assert!(found == written, "record {} is not what was written", found.version);
        }
        let least = if self.is_rotten { self.recorded } else { self.acked };
        let is_cut = self.cut == Some(end);
        if !self.is_lying {
            assert!(end >= least || is_cut, "{end} records are left, {least} were acknowledged");
            assert_eq!(log.last(), self.records[..end].last().map(|record| record.version), "the last version");
        }
        self.records.truncate(end);
        (self.acked, self.recorded) = (end, end);
        (self.floor, self.cut) = ((pruned, pruned), None);
        self.check_snapshot(&store)?;
        self.check_journal(&mut store);
        self.store = Some(store);
        Ok(())
    }

    fn check_snapshot(&mut self, store: &Store) -> Result<(), Error> {
        let snapshots = store.snapshots(SUBGROUP)?;
        let list = match snapshots.list() {
            Err(Error::CorruptFile { .. }) if self.is_rotten || self.is_lying => return Ok(()),
            other => other?,
        };
        let newest = list.first().map(|info| info.version);
        if !self.is_lying {
            assert!(newest >= self.snapshot, "snapshot {:?} is left, {:?} was finished", newest, self.snapshot);
        }
        if let Some(version) = newest {
            let mut reader = snapshots.open(version)?;
            let mut content = Vec::new();
            loop {
                match reader.next() {
                    Ok(Some(block)) => content.extend_from_slice(block),
                    Ok(None) => break,
                    Err(Error::CorruptFile { .. }) if self.is_rotten || self.is_lying => return Ok(()),
                    Err(error @ Error::CorruptFile { .. }) => panic!("snapshot: {error}"),
                    Err(error) => return Err(error),
                }
            }
            assert!(content == snapshot_content(version), "the snapshot of {version} is not what was written");
        }
        (self.snapshot, self.snapshot_started) = (newest, None);
        Ok(())
    }

    fn check_journal(&mut self, store: &mut Store) {
        let found: BTreeMap<u32, Vec<u8>> =
            store.journal().values().map(|(kind, value)| (kind, value.to_vec())).collect();
        let mut after = self.journal.clone();
        after.extend(self.journal_started.take());
        if !self.is_lying {
            assert!(found == self.journal || found == after, "the journal lost or invented a value");
        }
        self.journal = found;
    }

    /// Takes what the journal holds for what was put.
    pub fn forget_journal(&mut self) {
        self.journal = BTreeMap::from([(0, Vec::new())]);
    }

    /// One random operation.
    pub fn step(&mut self) -> Result<(), Error> {
        match self.random.below(20) {
            0 => self.prune(),
            // A disk that lies may undo a cut, which is beyond what a log can notice.
            1 if !self.is_lying => self.cut(),
            2 => self.write_snapshot(),
            3 | 4 => self.put(),
            5 | 6 => self.store.as_mut().expect("open").record_frontiers().inspect(|()| self.recorded = self.acked),
            _ => self.append(),
        }
    }

    pub fn append(&mut self) -> Result<(), Error> {
        let mut batch = Vec::new();
        for _ in 0..=self.random.below(4) {
            let last = batch.last().or(self.records.last()).map(|record: &Owned| (record.version, record.clock));
            let (version, clock) = match last {
                Some((version, clock)) if self.random.one_in(8) => (Version::new(version.epoch + 1, 0), clock),
                Some((version, clock)) => {
                    let sequence = version.sequence + 1 + self.random.below(2);
                    (Version::new(version.epoch, sequence), clock + self.random.below(3))
                }
                None => (Version::new(1, 0), 0),
            };
            // Records of equal lengths let bytes of an earlier life lie exactly behind new ones.
            let length = match self.random.below(25) {
                0 => 4000 + self.random.below(20_000),
                1..12 => 488,
                _ => self.random.below(700),
            };
            self.nonce += 1;
            let mut content = Random(self.nonce << 20);
            let payload = (0..length).map(|_| content.below(256) as u8).collect();
            batch.push(Owned { version, clock, payload });
        }
        self.commit(batch)
    }

    /// Appends a record of this many bytes.
    pub fn append_one(&mut self, length: u64) -> Result<(), Error> {
        let last = self.records.last().map_or((Version::new(1, 0), 0), |last| (last.version, last.clock));
        let version = Version::new(last.0.epoch, last.0.sequence + 1);
        self.nonce += 1;
        let mut content = Random(self.nonce << 20);
        let payload = (0..length).map(|_| content.below(256) as u8).collect();
        self.commit(vec![Owned { version, clock: last.1 + 1, payload }])
    }

    fn commit(&mut self, batch: Vec<Owned>) -> Result<(), Error> {
        self.records.extend(batch.iter().cloned());
        let log = self.store.as_mut().expect("open").log(SUBGROUP)?;
        // Without a prepared spare the append makes one.
        if self.random.one_in(2) {
            log.prepare()?;
        }
        let durable = log.append(batch.iter().map(Owned::record))?;
        assert_eq!(durable, self.records.last().map(|record| record.version));
        (self.recorded, self.acked) = (self.acked, self.records.len());
        Ok(())
    }

    fn prune(&mut self) -> Result<(), Error> {
        if self.records.is_empty() {
            return Ok(());
        }
        let from = self.random.below(self.acked as u64) as usize;
        let version = self.records.get(from).map_or(Version::MIN, |record| record.version);
        self.floor.1 = self.floor.1.max(from);
        let log = self.store.as_mut().expect("open").log(SUBGROUP)?;
        log.prune(version)?;
        let floor = log.floor();
        let pruned = self.records.iter().filter(|record| Some(record.version) <= floor).count();
        assert!(pruned <= self.floor.1);
        self.floor = (pruned, pruned);
        Ok(())
    }

    fn cut(&mut self) -> Result<(), Error> {
        let length = self.floor.0 + self.random.below((self.acked - self.floor.0) as u64 + 1) as usize;
        let after = length.checked_sub(1).map(|last| self.records[last].version);
        self.cut = Some(length);
        self.store.as_mut().expect("open").log(SUBGROUP)?.cut_after(after)?;
        self.records.truncate(length);
        (self.acked, self.recorded, self.cut) = (length, length, None);
        Ok(())
    }

    fn write_snapshot(&mut self) -> Result<(), Error> {
        let Some(version) = self.records[..self.acked].last().map(|record| record.version) else { return Ok(()) };
        if Some(version) <= self.snapshot {
            return Ok(());
        }
        self.snapshot_started = Some(version);
        let mut writer = self.store.as_ref().expect("open").snapshots(SUBGROUP)?.begin(version, 1)?;
        snapshot_content(version).chunks(5000).try_for_each(|part| writer.write(part))?;
        let kept = self.snapshot.filter(|_| self.random.one_in(2));
        writer.finish_beside(kept)?;
        let found = self.store.as_ref().expect("open").snapshots(SUBGROUP)?.versions()?;
        assert_eq!(found, [Some(version), kept].into_iter().flatten().collect::<Vec<_>>());
        self.snapshot = Some(version);
        Ok(())
    }

    fn put(&mut self) -> Result<(), Error> {
        let (kind, length) = (self.random.below(3) as u32, self.random.below(100));
        self.nonce += 1;
        let value: Vec<u8> = self.nonce.to_le_bytes().into_iter().cycle().take(8 + length as usize).collect();
        self.journal_started = Some((kind, value.clone()));
        self.store.as_mut().expect("open").journal().put(kind, &value)?;
        self.journal.insert(kind, value);
        self.journal_started = None;
        Ok(())
    }
}

fn snapshot_content(version: Version) -> Vec<u8> {
    let mut random = Random(version.epoch << 32 | version.sequence);
    let length = random.below(3) * 70_000 + random.below(1000);
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// The faults of a seed: each is absent in half of the seeds.
pub fn draw(random: &mut Random) -> Faults {
    let mut rate = |rate: u32| if random.below(2) == 0 { 0 } else { rate };
    let mut faults = Faults {
        write_errors: rate(60),
        sync_errors: rate(60),
        read_errors: rate(80),
        short_writes: rate(4),
        full_creates: rate(10),
        lies: 0,
        tear_bytes: 512,
        crash_after: None,
    };
    if random.below(2) == 0 {
        faults.tear_bytes = 4096;
    }
    if random.below(2) == 0 {
        faults.crash_after = Some(random.below(120));
    }
    faults
}

/// A run of several lives with the faults of the seed. Panics if something is wrong.
pub fn run(seed: u64) {
    let mut model = Model::new(seed);
    for _ in 0..4 {
        let faults = draw(&mut model.random);
        model.disk.set_faults(faults);
        if live(&mut model).is_ok() && model.random.one_in(3) {
            // An orderly end.
            let _ = model.store.take().expect("open").record_frontiers();
        }
        model.store = None;
        if model.random.one_in(3) {
            model.disk.kill();
            model.disk.set_faults(Faults::default());
            if model.random.one_in(2) {
                model.open().unwrap_or_else(|error| panic!("seed {seed}: after a kill: {error}"));
                model.store = None;
            }
        }
        model.disk.crash();
        model.open().unwrap_or_else(|error| panic!("seed {seed}: after a crash: {error}"));
        model.store = None;
    }
}

fn live(model: &mut Model) -> Result<(), Error> {
    model.open()?;
    for _ in 0..model.random.below(40) {
        match model.step() {
            // A refusal leaves everything as it was, but the model had noted the records.
            Err(Error::Full { .. }) => model.records.truncate(model.acked),
            other => other?,
        }
    }
    Ok(())
}
