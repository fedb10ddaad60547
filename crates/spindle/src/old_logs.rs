//! The logs that an earlier process of this member left in its data directory.
use crate::config::Config;
use crate::error::JoinError;
use spindle_core::control::{LogState, RestartBallot, RestartRecord};
use spindle_core::{MemberId, Position, ViewId};
use spindle_log::{Appender, DataDirectory, Error, FileDisk, Identity, Readers, Store, Version, Writer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tracing::info;

/// How long a process that ends waits for its disk before it ends without an end notice.
const END_NOTICE_MAX: Duration = Duration::from_secs(1);
/// The tracing target of logs.
const TARGET: &str = "spindle::log";
/// The directory of the logs in the data directory.
pub(crate) const DIRECTORY: &str = "log";
/// The kind of the value in the journal that contains the [`RestartRecord`].
pub(crate) const RECORD: u32 = 1;

/// An open data directory with the logs of an earlier process. No other process can open it.
pub(crate) struct OldLogs {
    writer: Writer,
    identity: Identity,
    path: PathBuf,
    record: RestartRecord,
    states: Vec<LogState>,
    /// The numbers of the logs in the directory, by name.
    numbers: BTreeMap<String, u32>,
    /// For each log its last record before it got records from others, without a gap since.
    begins: BTreeMap<String, Option<Position>>,
}

/// A log as a member of the group continues it.
pub(crate) struct OldLog {
    pub(crate) number: u32,
    pub(crate) state: LogState,
    /// Its last record before it got records from others, without a gap since.
    pub(crate) begin: Option<Position>,
}

impl fmt::Debug for OldLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldLogs").field("path", &self.path).field("view", &self.record.view.id).finish_non_exhaustive()
    }
}

impl OldLogs {
    /// Opens the logs in the data directory, if an earlier process of this member left some there.
    ///
    /// # Errors
    /// [`JoinError::LogDir`]; [`JoinError::Log`], also if the directory belongs to another group or
    /// member, or if another process has it open.
    pub(crate) fn open(config: &Config) -> Result<Option<OldLogs>, JoinError> {
        let path = config.data_dir.as_ref().map(|data_dir| data_dir.join(DIRECTORY));
        let Some(path) = path.filter(|path| path.exists()) else { return Ok(None) };
        let disk = FileDisk::new(&path).map_err(|source| JoinError::LogDir { path: path.clone(), source })?;
        let disk = Arc::new(disk);
        let Some(found) = DataDirectory::identity_of(&*disk)? else { return Ok(None) };
        let mut ours = found.clone();
        ours.group.clone_from(&config.group);
        ours.member = config.id.map_or(found.member, |id| id.0);
        let mut store = Store::open(Arc::<FileDisk>::clone(&disk), &ours, config.log.files())?;
        let Some(record) = read(&mut store, &path)? else {
            // That process began no view, and logged nothing.
            if has_records(&mut store, &disk)? {
                return Err(JoinError::OldLogs { path });
            }
            drop(store);
            fs::remove_dir_all(&path).map_err(|source| JoinError::LogDir { path: path.clone(), source })?;
            return Ok(None);
        };
        let (mut states, mut numbers) = (vec![], BTreeMap::new());
        for entry in DataDirectory::logs(&*disk)? {
            let Some(name) = entry.name? else { continue };
            let (number, _) = store.open_named(&name, &mut |_| {})?;
            states.push(state_of(&mut store, &name, number)?);
            numbers.insert(name, number);
        }
        info!(target: TARGET, path = %path.display(), view = record.view.id.0, logs = states.len(), "old logs opened");
        let begins = states.iter().map(|state| (state.name.clone(), state.last)).collect();
        let (identity, writer) = (store.identity().clone(), Writer::start(store, |_| {})?);
        Ok(Some(OldLogs { writer, identity, path, record, states, numbers, begins }))
    }

    /// The id of the member.
    pub(crate) fn member(&self) -> MemberId {
        MemberId(self.identity.member)
    }

    /// The group that wrote the logs.
    pub(crate) fn incarnation(&self) -> u128 {
        self.identity.incarnation
    }

    /// The directory of the logs.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    pub(crate) fn record(&self) -> &RestartRecord {
        &self.record
    }

    /// The contents of the logs.
    pub(crate) fn states(&self) -> &[LogState] {
        &self.states
    }

    /// Replaces the record. It is on disk when this returns.
    pub(crate) fn write(&mut self, record: &RestartRecord) -> Result<(), Error> {
        let written = record.clone();
        self.writer.call(move |store| write(store, &written))??;
        self.record = record.clone();
        Ok(())
    }

    /// Writes that this process, which may have been admitted to the group, writes nothing more to the others,
    /// and returns whether it may say so. It may not if it has voted in a restart as a process that has not.
    pub(crate) fn write_end_notice(&mut self) -> bool {
        let has_voted = self.record.promised != RestartBallot::default();
        let said = RestartRecord { said_last: true, ..self.record.clone() };
        self.record.said_last || !has_voted && write_soon(&self.writer, said)
    }

    /// Notes the last record of a log that gets more, with a clock that is no earlier than that of the record.
    pub(crate) fn note_progress(&mut self, name: &str, (last, clock): (Position, u64)) {
        if let Some(known) = self.states.iter_mut().find(|known| known.name == name && known.last < Some(last)) {
            (known.last, known.clock) = (Some(last), clock);
        }
    }

    /// Notes that a log is to lose the records after `last`.
    pub(crate) fn note_cut(&mut self, name: &str, last: Option<Position>) {
        if let Some(known) = self.states.iter_mut().find(|known| known.name == name && known.last > last) {
            known.last = last;
        }
    }

    /// Notes that a log has got records behind a gap.
    pub(crate) fn note_gap(&mut self, name: &str) {
        let last = self.states.iter().find(|state| state.name == name).and_then(|state| state.last);
        self.begins.insert(name.to_string(), last);
    }

    /// The view before which a log may have a gap. A view that this member entered after all that its log
    /// had is none: the log is short, and whole.
    pub(crate) fn gap_before(&self, name: &str) -> Option<ViewId> {
        self.record.gap_before(name, self.begins.get(name).copied().flatten())
    }

    /// Returns an appender to a log, which must have no other one. The log is created if it does not
    /// exist.
    ///
    /// # Errors
    /// Those of the log: nothing more reaches the disk.
    pub(crate) fn appender(&mut self, name: &str) -> Result<Appender, Error> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let named = name.to_string();
                let (number, _) = self.writer.call(move |store| store.open_named(&named, &mut |_| {}))??;
                self.numbers.insert(name.to_string(), number);
                number
            }
        };
        self.writer.appender(number)
    }

    /// The names of the logs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.numbers.keys()
    }

    /// Returns what reads a log, if it exists.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) fn readers(&self, name: &str) -> Result<Option<Readers>, Error> {
        let Some(number) = self.numbers.get(name).copied() else { return Ok(None) };
        self.writer.call(move |store| store.log(number).map(|log| Some(log.readers())))?
    }

    /// Looks again at the contents of a log, to which records have been appended.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) fn look(&mut self, name: &str) -> Result<(), Error> {
        let Some(number) = self.numbers.get(name).copied() else { return Ok(()) };
        let named = name.to_string();
        let state = self.writer.call(move |store| state_of(store, &named, number))??;
        match self.states.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = state,
            None => self.states.push(state),
        }
        Ok(())
    }

    /// Returns the open store, the record, and each log by name.
    ///
    /// # Errors
    /// Those of the log.
    pub(crate) fn into_store(self) -> Result<(Store, RestartRecord, BTreeMap<String, OldLog>), Error> {
        let OldLogs { writer, record, states, numbers, begins, .. } = self;
        let old = |state: LogState| {
            let begin = begins.get(&state.name).copied().flatten();
            Some((state.name.clone(), OldLog { number: *numbers.get(&state.name)?, state, begin }))
        };
        Ok((writer.stop()?, record, states.into_iter().filter_map(old).collect()))
    }
}

/// Returns the contents of an open log.
fn state_of(store: &mut Store, name: &str, number: u32) -> Result<LogState, Error> {
    let log = store.log(number)?;
    Ok(LogState { name: name.to_string(), last: log.last().map(position), clock: log.last_clock() })
}

/// The position of a record in its subgroup's order.
pub(crate) fn position(version: Version) -> Position {
    Position { epoch: ViewId(version.epoch), sequence: version.sequence }
}

/// The version of the record at a position.
pub(crate) fn version(position: Position) -> Version {
    Version::new(position.epoch.0, position.sequence)
}

/// Whether a log contains anything.
fn has_records(store: &mut Store, disk: &FileDisk) -> Result<bool, Error> {
    for number in DataDirectory::subgroups(disk)? {
        store.open_log(number, &mut |_| {})?;
        let log = store.log(number)?;
        if log.last().is_some() || log.floor().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes the record of a member. It is on disk when this returns.
pub(crate) fn write(store: &mut Store, record: &RestartRecord) -> Result<(), Error> {
    let bytes: Vec<u8> = record.encode().into_iter().flat_map(u64::to_le_bytes).collect();
    store.journal().put(RECORD, &bytes)
}

/// Writes the record of a member that ends, and returns whether it is on disk. A disk that hangs holds the process
/// for a second.
pub(crate) fn write_soon(writer: &Writer, record: RestartRecord) -> bool {
    let (written, result) = mpsc::channel();
    let order = move |store: &mut Store| _ = written.send(write(store, &record).is_ok());
    writer.post(order) && result.recv_timeout(END_NOTICE_MAX) == Ok(true)
}

/// Reads the record of a member; `None` if none was written.
fn read(store: &mut Store, path: &std::path::Path) -> Result<Option<RestartRecord>, Error> {
    let Some(bytes) = store.journal().value(RECORD) else { return Ok(None) };
    let (words, rest) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let record = RestartRecord::decode(&words).filter(|_| rest.is_empty());
    let path = path.join("journal-0").display().to_string();
    record.map(Some).ok_or(Error::CorruptFile { path, reason: "the record of the last view can't be read" })
}
