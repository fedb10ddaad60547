//! States of the object that are made from the disk: from a snapshot and the records behind it.
//!
//! - INV-OBJECT-CUT: the state that is made for a bound is that of every member after the last message
//!   within the bound. A snapshot counts only if it is whole, and if the log has all later messages and
//!   the one that it ends with: a log whose end was removed does not have that one.
//!
//! A snapshot is [that of a machine](crate::Machine::snapshot) in a file of `spindle-log`, whose version
//! is that of the last message in it. The state with which a member has joined contains all messages of
//! the epochs before the first one of the member. Its version is the highest one before that epoch.
use crate::machine::{Machine, Stopped};
use crate::settings::Settings;
use crate::snapshot::RestoreError;
use crate::state_machine::StateMachine;
use crate::waiting::Inside;
use spindle::{LogAccess, MemberId, Position, ViewId};
use spindle_log::{Error, Hold, LoggedMessage, Reader, Readers, SnapshotInfo, Snapshots, Version};

mod base;
mod preloading;
mod snapshotting;
#[cfg(test)]
mod tests;

pub(crate) use base::{Base, Joined};
pub(crate) use preloading::Preloading;
pub(crate) use snapshotting::Snapshotting;

/// How often a snapshot is looked for while the log is pruned meanwhile.
const ATTEMPTS_MAX: u32 = 8;
/// The bytes of a snapshot that are written between two looks at whether the thread is to stop.
const CHUNK_BYTES: usize = 1 << 20;

/// The log of the object, as far as it is on this member's disk.
#[derive(Debug)]
pub(crate) struct History<T> {
    log: Files,
    /// The object that the program gives to `join`, encoded; `None` if it can't be.
    first: Option<Vec<u8>>,
    settings: Settings,
    /// The newest snapshot of an earlier process, for the start.
    preloading: Preloading<T>,
}

/// The files of a log.
pub(crate) struct Files {
    pub(crate) readers: Readers,
    pub(crate) snapshots: Snapshots,
    /// The newest record that stays.
    pub(crate) newest: Box<dyn Fn() -> Result<Option<Version>, Error> + Send + Sync>,
    /// The epoch since which the log is complete, if it is not complete at all.
    pub(crate) since: Box<dyn Fn() -> Option<ViewId> + Send + Sync>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    pub(crate) fn of(access: &LogAccess) -> Files {
        let (readers, snapshots) = (access.readers().clone(), access.snapshots().clone());
        let [newest, since] = [access.clone(), access.clone()];
        let newest = Box::new(move || Ok(newest.newest()?.map(version)));
        Files { readers, snapshots, newest, since: Box::new(move || since.extent().complete_since) }
    }
}

/// The messages that a state contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    /// All up to this one.
    Through(Version),
    /// All below this one.
    Before(Version),
    /// All with a clock of at most this.
    Clock(u64),
}

impl Bound {
    /// All messages.
    pub(crate) const ALL: Bound = Bound::Clock(u64::MAX);

    fn contains(self, version: Version, clock: u64) -> bool {
        match self {
            Bound::Through(last) => version <= last,
            Bound::Before(end) => version < end,
            Bound::Clock(last) => clock <= last,
        }
    }
}

/// A state that was made from the disk.
pub(crate) struct Then<T> {
    pub(crate) machine: Machine<T>,
    /// The last message that it contains, and its clock; `None` if it contains none.
    pub(crate) last: Option<(Version, u64)>,
    /// The snapshot from which it was made.
    pub(crate) snapshot: Option<SnapshotInfo>,
}

/// Why a state can't be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum HistoryError {
    /// No snapshot is old enough, and the log does not begin with the first message.
    #[error("the log does not begin with the first message, and no valid snapshot fits it")]
    Pruned {
        /// The oldest snapshot that could be used.
        oldest: Option<(Version, u64)>,
    },
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("{0}")]
    Log(String),
    #[error("the object can't be encoded; correct its `Serialize`")]
    Encode,
    #[error("it was cancelled")]
    Cancelled,
}

impl From<Error> for HistoryError {
    fn from(error: Error) -> HistoryError {
        HistoryError::Log(error.to_string())
    }
}

impl<T: StateMachine> History<T> {
    /// `first` is the machine before the first message, encoded.
    pub(crate) fn new(log: Files, first: Option<Vec<u8>>, settings: Settings, preloading: Preloading<T>) -> History<T> {
        History { log, first, settings, preloading }
    }

    /// Forgets the snapshot of an earlier process that was read for the start.
    pub(crate) fn end_start(&self) {
        self.preloading.forget();
    }

    /// Returns the version of the newest message on disk that stays in the log.
    ///
    /// # Errors
    /// [`HistoryError::Log`].
    pub(crate) fn logged(&self) -> Result<Option<Version>, HistoryError> {
        Ok((self.log.newest)()?)
    }

    /// As [`logged`](Self::logged), with the clock of the message. `None` if no message is there.
    ///
    /// # Errors
    /// [`HistoryError::Log`].
    pub(crate) fn end(&self) -> Result<Option<(Version, u64)>, HistoryError> {
        let Some(last) = self.logged()? else { return Ok(None) };
        match self.log.readers.reader().get(last) {
            Ok(record) => Ok(record.map(|record| (record.version, record.clock))),
            // A log that was emptied has no record yet, and its last version was pruned.
            Err(Error::Pruned { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there are messages below `end` behind the newest snapshot.
    fn has_more(&self, end: Version) -> Result<bool, HistoryError> {
        let newest = self.log.snapshots.versions()?.first().copied();
        let mut reader = self.log.readers.reader();
        if let Some(newest) = newest {
            reader.seek(newest.next());
        }
        Ok(reader.next()?.is_some_and(|record| record.version < end))
    }

    /// Makes the state that contains the messages within `bound`, which are on disk. `is_cancelled` is
    /// asked from time to time.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub(crate) fn state_at(&self, bound: Bound, is_cancelled: &dyn Fn() -> bool) -> Result<Then<T>, HistoryError> {
        let (mut then, mut reader, hold) = self.begin(bound)?;
        then.machine.skip_digests();
        // A command that calls through the handle gets the same error as on the polling thread.
        let _inside = Inside::enter();
        while let Some(record) = reader.next()? {
            if !bound.contains(record.version, record.clock) {
                break;
            }
            if is_cancelled() {
                return Err(HistoryError::Cancelled);
            }
            if let Some(LoggedMessage { sender, payload, .. }) = LoggedMessage::parse(record.payload) {
                then.machine.apply(MemberId(sender), payload)?;
            }
            then.last = Some((record.version, record.clock));
            hold.advance(record.version);
        }
        Ok(then)
    }

    /// Returns the newest state on disk within `bound`, a reader of the records behind it, and what keeps
    /// these from being pruned.
    fn begin(&self, bound: Bound) -> Result<(Then<T>, Reader, Hold), HistoryError> {
        for _ in 0..ATTEMPTS_MAX {
            let then = self.newest(bound)?;
            let from = then.last.map_or(Version::MIN, |(last, _)| last.next());
            let hold = match self.log.readers.hold(from) {
                Ok(hold) => hold,
                // A newer snapshot has come meanwhile.
                Err(Error::Pruned { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut reader = self.log.readers.reader();
            reader.seek(from);
            return Ok((then, reader, hold));
        }
        Err(HistoryError::Pruned { oldest: self.oldest()? })
    }

    /// Returns the state of the newest snapshot within `bound`, or the first state (INV-OBJECT-CUT). A
    /// damaged snapshot is passed over, with a warning.
    ///
    /// # Errors
    /// [`HistoryError`]. A program with another fingerprint than that of a snapshot is refused, however
    /// many others there are.
    pub(crate) fn newest(&self, bound: Bound) -> Result<Then<T>, HistoryError> {
        for version in self.log.snapshots.versions()? {
            let Some(info) = self.info(version).filter(|info| bound.contains(version, info.clock)) else { continue };
            if !self.fits(version)? {
                tracing::warn!(target: "spindle::object", %version, "the log does not continue this snapshot");
                continue;
            }
            match self.load(version) {
                Ok(machine) => {
                    return Ok(Then { machine, last: Some((version, info.clock)), snapshot: Some(info) });
                }
                Err(Loading::Damaged(reason)) => {
                    tracing::warn!(target: "spindle::object", %version, reason, "a snapshot is damaged; an older one is used")
                }
                Err(Loading::Refused(error)) => return Err(Stopped::from(error).into()),
            }
        }
        let is_complete = self.log.readers.floor().is_none() && (self.log.since)().is_none();
        let first = self.first.as_ref().filter(|_| is_complete);
        let Some(first) = first else { return Err(HistoryError::Pruned { oldest: self.oldest()? }) };
        let machine = Machine::restore(first, self.settings.clone()).map_err(Stopped::from)?;
        Ok(Then { machine, last: None, snapshot: None })
    }

    /// Returns the description of a snapshot; `None`, with a warning, if it is damaged or was removed.
    fn info(&self, version: Version) -> Option<SnapshotInfo> {
        let opened = self.log.snapshots.open(version).map(|reader| reader.info());
        opened
            .inspect_err(|error| tracing::warn!(target: "spindle::object", %version, %error, "a snapshot is not read"))
            .ok()
    }

    /// Whether the log has all messages behind the snapshot of this version, and the last one in it.
    fn fits(&self, version: Version) -> Result<bool, HistoryError> {
        let floor = self.log.readers.floor();
        let begins = (self.log.since)().map(|epoch| Version::new(epoch.0, 0));
        if floor.is_some_and(|floor| version < floor) || begins.is_some_and(|begins| version.next() < begins) {
            return Ok(false);
        }
        if is_before_epoch(version) || Some(version) == floor {
            return Ok(true);
        }
        match self.log.readers.reader().get(version) {
            Ok(record) => Ok(record.is_some()),
            Err(Error::Pruned { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn load(&self, version: Version) -> Result<Machine<T>, Loading> {
        if let Some(machine) = self.preloading.take(version) {
            return Ok(machine);
        }
        let bytes = read_all(&self.log.snapshots, version).map_err(|error| Loading::Damaged(error.to_string()))?;
        Machine::restore(&bytes, self.settings.clone()).map_err(|error| match error {
            RestoreError::Format { .. } | RestoreError::Checksum { .. } => Loading::Damaged(error.to_string()),
            error => Loading::Refused(error),
        })
    }

    /// Returns the oldest snapshot that could be used.
    fn oldest(&self) -> Result<Option<(Version, u64)>, HistoryError> {
        for version in self.log.snapshots.versions()?.into_iter().rev() {
            if let Some(info) = self.info(version).filter(|_| self.fits(version).unwrap_or(false)) {
                return Ok(Some((version, info.clock)));
            }
        }
        Ok(None)
    }

    /// Writes a snapshot of this version. It stays beside the one of `kept`, and older ones are removed.
    ///
    /// # Errors
    /// [`HistoryError::Log`], [`HistoryError::Cancelled`]. The snapshots are then as before.
    pub(crate) fn write(
        &self,
        (version, clock): (Version, u64),
        bytes: &[u8],
        kept: Option<Version>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<SnapshotInfo, HistoryError> {
        let mut writer = self.log.snapshots.begin(version, clock)?;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            if is_cancelled() {
                return Err(HistoryError::Cancelled);
            }
            writer.write(chunk)?;
        }
        Ok(writer.finish_beside(kept)?)
    }
}

/// Why a snapshot is not used.
enum Loading {
    Damaged(String),
    Refused(RestoreError),
}

fn read_all(snapshots: &Snapshots, version: Version) -> Result<Vec<u8>, Error> {
    let mut reader = snapshots.open(version)?;
    let mut bytes = Vec::new();
    while let Some(block) = reader.next()? {
        bytes.extend_from_slice(block);
    }
    Ok(bytes)
}

/// The version of a state that contains all messages of the epochs before this one.
pub(crate) fn before_epoch(epoch: ViewId) -> Version {
    Version::new(epoch.0.saturating_sub(1), u64::MAX)
}

fn is_before_epoch(version: Version) -> bool {
    version.sequence == u64::MAX
}

/// Returns the position of a record in its subgroup's order.
pub(crate) fn position(version: Version) -> Position {
    Position { epoch: ViewId(version.epoch), sequence: version.sequence }
}

/// Returns the version of the record at a position.
pub(crate) fn version(position: Position) -> Version {
    Version::new(position.epoch.0, position.sequence)
}
