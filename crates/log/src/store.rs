//! A data directory: its owner, its lock, the journal, and one log for each subgroup.
//!
//! | name | content |
//! |---|---|
//! | `lock` | the owner's process id, locked while it lives |
//! | `identity` | group, member, incarnation |
//! | `journal-0`, `journal-1` | the [`Journal`] |
//! | `subgroup-…/` | a [`Log`], its name if it has one, and its snapshots |
use crate::chunk::Chunk;
use crate::config::Config;
use crate::disk::{Disk, Locked, read_file, replace_file};
use crate::error::{Context, Error, Result, in_range};
use crate::format::{Binding, Identity, Mismatch};
use crate::journal::Journal;
use crate::limits::{FORMAT, GROUP_NAME_BYTES_MAX, PAGE_BYTES, SUBGROUPS_MAX};
use crate::log::{Log, Progress, Report};
use crate::names::{self, LogEntry, SUBGROUP, log_path};
use crate::snapshot::Snapshots;
use crate::version::Version;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const IDENTITY: &str = "identity";
const LOCK: &str = "lock";

/// A locked data directory of one member.
pub struct DataDirectory {
    disk: Arc<dyn Disk>,
    identity: Identity,
    _lock: Box<dyn Send + Sync>,
}

impl DataDirectory {
    /// Locks the directory and checks that it belongs to this member. An empty one is initialised.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Foreign`], [`Error::Format`], [`Error::CorruptFile`],
    /// [`Error::Range`] if the name of the group is too long, [`Error::Io`].
    pub fn open(disk: Arc<dyn Disk>, identity: &Identity) -> Result<Self> {
        in_range("the name of the group in bytes", identity.group.len() as u64, 1, GROUP_NAME_BYTES_MAX as u64)?;
        let lock = Self::lock(&*disk)?;
        match Self::identity_of(&*disk)? {
            Some(found) => check(&disk.shown(""), &found, identity)?,
            None => replace_file(&*disk, "", IDENTITY, &identity.encode(), 0)?,
        }
        Ok(Self { disk, identity: identity.clone(), _lock: lock })
    }

    /// Locks a directory, whatever is in it, until the value is dropped.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Io`].
    pub fn lock(disk: &dyn Disk) -> Result<Box<dyn Send + Sync>> {
        match disk.lock(LOCK).during("lock", &disk.shown(LOCK))? {
            Locked::Owned(lock) => Ok(lock),
            Locked::By(pid) => Err(Error::Locked { path: disk.shown(""), pid }),
        }
    }

    /// The identity of a directory, without locking it. `None` if it has none yet.
    ///
    /// # Errors
    /// [`Error::Format`], [`Error::CorruptFile`], [`Error::Io`].
    pub fn identity_of(disk: &dyn Disk) -> Result<Option<Identity>> {
        let shown = disk.shown(IDENTITY);
        let names = disk.list("").during("list", &disk.shown(""))?;
        if !names.iter().any(|name| name == IDENTITY) {
            if names.iter().any(|name| name.starts_with(SUBGROUP) || name.starts_with("journal-")) {
                return Err(Error::CorruptFile { path: shown, reason: "logs exist and the identity is missing" });
            }
            return Ok(None);
        }
        match Identity::parse(&read_file(disk, IDENTITY, PAGE_BYTES)?) {
            Ok(identity) => Ok(Some(identity)),
            Err(Mismatch::Format(found)) => Err(Error::Format { path: shown, found, expected: FORMAT }),
            Err(Mismatch::Damaged(reason)) => Err(Error::CorruptFile { path: shown, reason }),
        }
    }

    /// The process that holds the lock of a directory, if one does: 0 if the file does not say.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn owner(disk: &dyn Disk) -> Result<Option<u32>> {
        match disk.lock(LOCK).during("lock", &disk.shown(LOCK))? {
            Locked::Owned(_) => Ok(None),
            Locked::By(pid) => Ok(Some(pid)),
        }
    }

    /// The subgroups that have a log, in ascending order.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn subgroups(disk: &dyn Disk) -> Result<Vec<u32>> {
        names::subgroups(disk)
    }

    /// The logs in ascending order of their numbers. Damage to one name is in its entry only.
    ///
    /// # Errors
    /// [`Error::Format`] and [`Error::CorruptFile`] of the identity, [`Error::Io`].
    pub fn logs(disk: &dyn Disk) -> Result<Vec<LogEntry>> {
        match Self::identity_of(disk)? {
            Some(identity) => names::list(disk, identity.incarnation),
            None => Ok(Vec::new()),
        }
    }

    /// The number of the log with this name, if there is one.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] if two logs have the name, or none has and a damaged file may have
    /// contained it; [`Error::Format`], [`Error::Io`].
    pub fn find(disk: &dyn Disk, name: &str) -> Result<Option<u32>> {
        let Some(identity) = Self::identity_of(disk)? else { return Ok(None) };
        Ok(names::find(disk, identity.incarnation, name)?.map(|found| found.subgroup))
    }

    /// The owner of the directory.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn log_path(&self, subgroup: u32) -> String {
        log_path(subgroup)
    }

    pub(crate) fn binding(&self, subgroup: u32) -> Binding {
        Binding { incarnation: self.identity.incarnation, subgroup }
    }
}

fn check(path: &str, found: &Identity, expected: &Identity) -> Result<()> {
    let foreign =
        |field, found: String, expected: String| Err(Error::Foreign { path: path.to_owned(), field, found, expected });
    if found.group != expected.group {
        return foreign("group", found.group.clone(), expected.group.clone());
    }
    if found.member != expected.member {
        return foreign("member", found.member.to_string(), expected.member.to_string());
    }
    if found.incarnation != expected.incarnation {
        return foreign("incarnation", format!("{:032x}", found.incarnation), format!("{:032x}", expected.incarnation));
    }
    if found.payloads != expected.payloads {
        return foreign("payloads", format!("{:?}", found.payloads), format!("{:?}", expected.payloads));
    }
    Ok(())
}

/// The logs and the journal of one process, owned by the thread that writes them.
pub struct Store {
    directory: DataDirectory,
    config: Config,
    logs: BTreeMap<u32, Log>,
    journal: Journal,
    poison: Arc<OnceLock<String>>,
}

/// The records of one subgroup in a commit.
pub struct Batch {
    /// The subgroup.
    pub subgroup: u32,
    /// Its records.
    pub chunks: Vec<Chunk>,
}

impl Store {
    /// Opens the directory and the journal. Logs are opened one by one.
    ///
    /// # Errors
    /// As [`DataDirectory::open`] and [`Error::CorruptFile`] of the journal.
    pub fn open(disk: Arc<dyn Disk>, identity: &Identity, config: Config) -> Result<Self> {
        config.check()?;
        Self::open_locked(DataDirectory::open(disk, identity)?, config)
    }

    /// Opens a directory that is locked already, such as after a repair.
    ///
    /// # Errors
    /// [`Error::CorruptFile`], [`Error::Io`].
    pub fn open_locked(directory: DataDirectory, config: Config) -> Result<Self> {
        let poison = Arc::new(OnceLock::new());
        let journal = Journal::open(
            directory.disk.clone(),
            directory.identity.incarnation,
            config.journal_bytes,
            poison.clone(),
        )?;
        Ok(Self { directory, config, logs: BTreeMap::new(), journal, poison })
    }

    /// Opens the log of a subgroup, and creates it if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if acknowledged records are damaged: [`repair`](crate::repair) replaces
    /// them. [`Error::CorruptFile`], [`Error::Format`], [`Error::Io`].
    pub fn open_log(&mut self, subgroup: u32, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
        in_range("the number of subgroups", self.logs.len() as u64, 0, SUBGROUPS_MAX as u64 - 1)?;
        self.logs.remove(&subgroup);
        let (path, binding) = (log_path(subgroup), self.directory.binding(subgroup));
        let disk = self.directory.disk.clone();
        let (log, report) = Log::open(disk, &path, binding, self.config.clone(), self.poison.clone(), progress)?;
        self.logs.insert(subgroup, log);
        Ok(report)
    }

    /// Opens the log with a name, and creates it if there is none. Returns its number, by which all
    /// other calls refer to it. A name has 1 to [`LOG_NAME_BYTES_MAX`](crate::limits::LOG_NAME_BYTES_MAX)
    /// bytes and stays with its log.
    ///
    /// A new log gets the lowest number that no log of the directory uses.
    ///
    /// # Errors
    /// [`Error::Range`] if the name is empty or too long; [`Error::CorruptFile`] if no log has the
    /// name and a damaged file may have contained it; as [`open_log`](Self::open_log).
    pub fn open_named(&mut self, name: &str, progress: &mut dyn FnMut(Progress)) -> Result<(u32, Report)> {
        names::check(name)?;
        let (disk, incarnation) = (self.directory.disk.clone(), self.directory.identity.incarnation);
        let subgroup = match names::find(&*disk, incarnation, name)? {
            Some(found) => {
                if !found.is_whole {
                    names::write(&*disk, self.directory.binding(found.subgroup), name)?;
                }
                found.subgroup
            }
            None => names::create(&*disk, incarnation, name)?,
        };
        Ok((subgroup, self.open_log(subgroup, progress)?))
    }

    /// The log of a subgroup.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn log(&mut self, subgroup: u32) -> Result<&mut Log> {
        self.logs.get_mut(&subgroup).ok_or(Error::Unknown { subgroup })
    }

    /// The open logs.
    pub fn logs(&self) -> impl Iterator<Item = &Log> {
        self.logs.values()
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.directory.disk
    }

    pub(crate) fn subgroups_open(&self) -> Vec<u32> {
        self.logs.keys().copied().collect()
    }

    /// The journal.
    pub fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// The directory, unlocked when it is dropped.
    pub fn into_directory(self) -> DataDirectory {
        self.directory
    }

    /// The owner of the directory.
    pub fn identity(&self) -> &Identity {
        &self.directory.identity
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Why nothing more is written, if a write or sync has failed.
    pub fn poison(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Lets nothing more be written, unless something has failed before.
    pub(crate) fn set_poison(&self, cause: String) {
        let _ = self.poison.set(cause);
    }

    /// Writes the batches of several subgroups, then syncs each touched file once. Returns the
    /// durable frontier or the error of each batch, in order.
    ///
    /// A subgroup whose batch is refused before anything is written ([`Error::is_transient`]) does
    /// not affect the others, and its chunks are as they were.
    pub fn commit(&mut self, batches: &mut [Batch]) -> Vec<Result<Option<Version>>> {
        let written: Vec<Result<()>> = batches
            .iter_mut()
            .map(|batch| match self.logs.get_mut(&batch.subgroup) {
                Some(log) => log.write(&mut batch.chunks),
                None => Err(Error::Unknown { subgroup: batch.subgroup }),
            })
            .collect();
        let synced = batches.iter().zip(written).map(|(batch, written)| {
            written?;
            self.logs.get_mut(&batch.subgroup).ok_or(Error::Unknown { subgroup: batch.subgroup })?.sync()
        });
        synced.collect()
    }

    /// Records the durable frontiers that have moved, when there is nothing else to do.
    ///
    /// # Errors
    /// As [`Log::record_frontier`].
    pub fn record_frontiers(&mut self) -> Result<()> {
        self.logs.values_mut().try_for_each(Log::record_frontier)
    }

    /// The snapshots of a subgroup, for any thread.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn snapshots(&self, subgroup: u32) -> Result<Snapshots> {
        let log = self.logs.get(&subgroup).ok_or(Error::Unknown { subgroup })?;
        Ok(Snapshots::new(log.disk().clone(), log.path(), log.binding(), log.config().reserve_bytes))
    }
}
