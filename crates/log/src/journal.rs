//! The journal of the agreement: the last value of each kind (promises, accepted proposals, views),
//! durable before it is returned.
//!
//! Two files of fixed size take turns. An *era* begins in the other file with the whole state and
//! continues with what changes. Each frame is written twice, on pages of its own, so damage to one
//! page loses nothing. All space is allocated when the journal is created: a full disk does not
//! stop the agreement. Each opening begins an era, so nothing is ever written behind a torn frame.
use crate::disk::TEMPORARY;
use crate::disk::{Disk, File, read_full, write_all};
use crate::error::{Context, Error, Result, in_range};
use crate::format::{Binding, Frame, FrameKind};
use crate::limits::{JOURNAL_BYTES_MAX, JOURNAL_KINDS_MAX, JOURNAL_VALUE_BYTES_MAX, PAGE_BYTES, journal_frame_bytes};
use crate::mutation::mutation;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const NAMES: [&str; 2] = ["journal-0", "journal-1"];
/// How often a journal that seems damaged is read before it is called so.
const ATTEMPTS: u32 = 3;

/// Values by kind.
type Values = BTreeMap<u32, Vec<u8>>;

/// The journal of a data directory.
pub struct Journal {
    disk: Arc<dyn Disk>,
    binding: Binding,
    files: [Arc<dyn File>; 2],
    era: u64,
    /// The number of the next frame.
    next: u64,
    offset: u64,
    /// The length of each file.
    bytes: u64,
    values: Values,
    poison: Arc<OnceLock<String>>,
}

/// The newest era that a file holds.
struct Era {
    era: u64,
    /// Whether its state is complete.
    values: Option<Values>,
    is_blank: bool,
}

impl Journal {
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        incarnation: u128,
        bytes: u64,
        poison: Arc<OnceLock<String>>,
    ) -> Result<Self> {
        let binding = Binding { incarnation, subgroup: u32::MAX };
        let found = found(&*disk)?;
        let open = |name: &str| disk.open(name).during("open", &disk.shown(name));
        let mut bytes = bytes;
        if let [one] = found[..] {
            // A crash may have left one new file. Nothing is created beside one that holds values.
            let file = open(one)?;
            newest(&*disk, [&*file, &*file], other(one), binding)?;
            bytes = file.bytes().during("read the length of", &disk.shown(one))?;
        }
        for name in NAMES.into_iter().filter(|name| !found.contains(name)) {
            create(&*disk, name, bytes)?;
        }
        disk.sync_directory("").during("sync", &disk.shown(""))?;
        let files = [open(NAMES[0])?, open(NAMES[1])?];
        let Newest { seen, current, values } = newest(&*disk, [&*files[0], &*files[1]], None, binding)?;
        let bytes = files[0].bytes().during("read the length of", &disk.shown(NAMES[0]))?;
        let mut journal = Self { bytes, disk, binding, files, era: seen, next: 0, offset: 0, values, poison };
        // The next era belongs into the file that does not hold the newest state.
        if journal.era % 2 != current % 2 {
            journal.era += 1;
        }
        let result = journal.begin();
        journal.poisoned(result)?;
        Ok(journal)
    }

    /// The last value of a kind.
    pub fn value(&self, kind: u32) -> Option<&[u8]> {
        self.values.get(&kind).map(Vec::as_slice)
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.values.iter().map(|(kind, value)| (*kind, value.as_slice()))
    }

    /// Replaces the value of a kind. It is durable when this returns.
    ///
    /// # Errors
    /// [`Error::Range`] if the value is too long or the kind is one too many; [`Error::Io`], which
    /// poisons the store, and [`Error::Poisoned`].
    pub fn put(&mut self, kind: u32, value: &[u8]) -> Result<()> {
        if let Some(cause) = self.poison.get() {
            return Err(Error::Poisoned { cause: cause.clone() });
        }
        in_range("the value in bytes", value.len() as u64, 0, JOURNAL_VALUE_BYTES_MAX as u64)?;
        in_range("the kind", u64::from(kind), 0, u64::from(u32::MAX - 1))?;
        let kinds = self.values.len() + usize::from(!self.values.contains_key(&kind));
        in_range("the number of kinds", kinds as u64, 0, JOURNAL_KINDS_MAX as u64)?;
        let others: u64 = self
            .values
            .iter()
            .filter(|(held, _)| **held != kind)
            .map(|(_, held)| journal_frame_bytes(held.len()))
            .sum();
        let state = 2 * (journal_frame_bytes(8) + others + journal_frame_bytes(value.len()));
        in_range("the state of the journal in bytes", state, 0, self.bytes)?;
        let previous = self.values.insert(kind, value.to_vec());
        let result = if self.offset + 2 * journal_frame_bytes(value.len()) > self.bytes {
            self.begin()
        } else {
            self.add(kind, value)
        };
        if result.is_err() {
            match previous {
                Some(previous) => self.values.insert(kind, previous),
                None => self.values.remove(&kind),
            };
        }
        self.poisoned(result)
    }

    fn poisoned(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            let _ = self.poison.set(error.to_string());
        }
        result
    }

    fn add(&mut self, kind: u32, value: &[u8]) -> Result<()> {
        let frame = Frame { era: self.era, number: self.next, kind: FrameKind::Value(kind), value };
        let bytes = frame.encode(self.binding);
        self.write(&[&bytes, &bytes], self.offset)?;
        self.offset += 2 * bytes.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// Begins an era in the other file with the whole state.
    fn begin(&mut self) -> Result<()> {
        self.era += 1;
        let count = (self.values.len() as u64).to_le_bytes();
        let mut frames = vec![Frame { era: self.era, number: 0, kind: FrameKind::Begin, value: &count }];
        for ((kind, value), number) in self.values.iter().zip(1..) {
            frames.push(Frame { era: self.era, number, kind: FrameKind::Value(*kind), value });
        }
        let frames: Vec<Vec<u8>> = frames.iter().map(|frame| frame.encode(self.binding)).collect();
        let slices: Vec<&[u8]> = frames.iter().flat_map(|frame| [frame.as_slice(), frame.as_slice()]).collect();
        self.write(&slices, 0)?;
        self.next = frames.len() as u64;
        self.offset = slices.iter().map(|slice| slice.len() as u64).sum();
        Ok(())
    }

    fn write(&self, slices: &[&[u8]], offset: u64) -> Result<()> {
        let index = (self.era % 2) as usize;
        let shown = self.disk.shown(NAMES[index]);
        write_all(&*self.files[index], slices, offset).during("write", &shown)?;
        if mutation!(JournalNotSynced) {
            return Ok(());
        }
        self.files[index].sync_data().during("sync", &shown)
    }
}

/// The newest whole state of the two files.
struct Newest {
    /// The highest era of which there is a frame.
    seen: u64,
    /// The era of the state, or 0 if there is none yet.
    current: u64,
    values: Values,
}

/// The files that exist.
fn found(disk: &dyn Disk) -> Result<Vec<&'static str>> {
    let names = disk.list("").during("list", &disk.shown(""))?;
    Ok(NAMES.into_iter().filter(|name| names.iter().any(|found| found == name)).collect())
}

/// The other file, which is missing.
fn other(name: &str) -> Option<&'static str> {
    NAMES.into_iter().find(|other| *other != name)
}

/// Reads both files. `missing` is the one that is missing, if one alone is.
fn newest(disk: &dyn Disk, files: [&dyn File; 2], missing: Option<&str>, binding: Binding) -> Result<Newest> {
    let corrupt = |name: &str, reason| Error::CorruptFile { path: disk.shown(name), reason };
    let length = |index: usize| files[index].bytes().during("read the length of", &disk.shown(NAMES[index]));
    let (first, second) = (length(0)?, length(1)?);
    // Both are created with the same length, which never changes.
    if first != second {
        return Err(corrupt(NAMES[usize::from(second < first)], "the file is shorter than the other one"));
    }
    let eras = [read(disk, files[0], NAMES[0], binding)?, read(disk, files[1], NAMES[1], binding)?];
    if let Some(missing) = missing
        && eras.iter().any(|era| era.era > 0)
    {
        return Err(corrupt(missing, "one file of the journal is missing"));
    }
    let seen = eras[0].era.max(eras[1].era);
    let is_new = eras.iter().any(|era| era.is_blank);
    match eras.into_iter().filter(|era| era.values.is_some()).max_by_key(|era| era.era) {
        Some(Era { era, values: Some(values), .. }) => Ok(Newest { seen, current: era, values }),
        // The first era was torn, and nothing had been acknowledged. It is written to the second
        // file until it is whole, so the first stays blank.
        _ if is_new => Ok(Newest { seen, current: 0, values: Values::new() }),
        _ => Err(corrupt(NAMES[0], "neither file of the journal holds a whole state")),
    }
}

/// Checks the journal without changing it. Returns the damage, if there is some.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn verify(disk: &dyn Disk, incarnation: u128) -> Result<Option<Error>> {
    match values(disk, incarnation) {
        Ok(_) => Ok(None),
        Err(error @ Error::CorruptFile { .. }) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Reads the last value of each kind without changing the journal.
///
/// # Errors
/// [`Error::CorruptFile`], [`Error::Io`].
pub(crate) fn values(disk: &dyn Disk, incarnation: u128) -> Result<Values> {
    let binding = Binding { incarnation, subgroup: u32::MAX };
    let found = found(disk)?;
    let open = |name: &str| disk.open(name).during("open", &disk.shown(name));
    let mut attempts = 0;
    // The owner may write while this reads, which can look like damage for an instant.
    loop {
        let result = match found[..] {
            [] => return Ok(Values::new()),
            [one] => {
                let file = open(one)?;
                newest(disk, [&*file, &*file], other(one), binding)
            }
            _ => newest(disk, [&*open(NAMES[0])?, &*open(NAMES[1])?], None, binding),
        };
        match result {
            Ok(newest) => return Ok(newest.values),
            Err(Error::CorruptFile { .. }) if attempts + 1 < ATTEMPTS => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

fn create(disk: &dyn Disk, name: &str, bytes: u64) -> Result<()> {
    let (temporary, shown) = (format!("{name}{TEMPORARY}"), disk.shown(name));
    let file = disk.create(&temporary, bytes).during("create", &shown)?;
    file.sync_data().during("sync", &shown)?;
    disk.rename(&temporary, name).during("rename", &shown)
}

/// Reads the newest era of a file.
fn read(disk: &dyn Disk, file: &dyn File, name: &str, binding: Binding) -> Result<Era> {
    let shown = disk.shown(name);
    let length = file.bytes().during("read the length of", &shown)?.min(JOURNAL_BYTES_MAX);
    let mut bytes = vec![0; length as usize];
    let read = read_full(file, &mut bytes, 0).during("read", &shown)?;
    let bytes = &bytes[..read];
    let frames: Vec<Frame<'_>> =
        (0..read).step_by(PAGE_BYTES as usize).filter_map(|at| Frame::parse(&bytes[at..], binding)).collect();
    let Some(era) = frames.iter().map(|frame| frame.era).max() else {
        return Ok(Era { era: 0, values: None, is_blank: bytes.iter().all(|byte| *byte == 0) });
    };
    let numbered: BTreeMap<u64, &Frame<'_>> =
        frames.iter().filter(|frame| frame.era == era).map(|frame| (frame.number, frame)).collect();
    let begin = numbered.get(&0).filter(|frame| frame.kind == FrameKind::Begin && frame.value.len() == 8);
    let count = begin.map(|frame| crate::format::u64_at(frame.value, 0));
    let is_contiguous = numbered.keys().copied().eq(0..numbered.len() as u64);
    match count {
        Some(count) if is_contiguous && numbered.len() as u64 > count => {
            let mut values = Values::new();
            for frame in numbered.values() {
                if let FrameKind::Value(kind) = frame.kind {
                    values.insert(kind, frame.value.to_vec());
                }
            }
            Ok(Era { era, values: Some(values), is_blank: false })
        }
        // The era was begun and not completed: the state is in the other file.
        Some(count) if numbered.keys().all(|number| *number <= count) => Ok(Era { era, values: None, is_blank: false }),
        None if numbered.len() <= JOURNAL_KINDS_MAX => Ok(Era { era, values: None, is_blank: false }),
        _ => Err(Error::CorruptFile { path: shown, reason: "a value of the journal is missing between others" }),
    }
}
