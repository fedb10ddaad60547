//! The log of a subgroup and the snapshots beside it, for other threads than the polling thread.
use super::{DurableFrontier, position, version};
use crate::config::Config;
use crate::handler::LoggedExtent;
use crate::old_logs::DIRECTORY;
use spindle_core::{Position, ViewId};
use spindle_log::{DataDirectory, Disk, Error, FileDisk, Readers, Retention, Snapshots, WriterHandle};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The log of a subgroup at this member, and the snapshots beside it, for threads of the application.
/// See [`Node::log`](crate::Node::log).
///
/// All that uses it has to end before the node is dropped, after which another process may own the
/// files. A handler that is given to [`Node::start`](crate::Node::start) is dropped before the node.
#[derive(Clone)]
pub struct LogAccess {
    name: Arc<str>,
    readers: Readers,
    snapshots: Snapshots,
    writer: WriterHandle,
    number: u32,
    frontier: Arc<DurableFrontier>,
    since: CompleteSince,
}

/// The epoch since which a log lacks no message, which the polling thread changes.
#[derive(Clone, Default, Debug)]
pub(crate) struct CompleteSince(Arc<AtomicU64>);

impl CompleteSince {
    /// `None`: it lacks none at all.
    pub(super) fn set(&self, epoch: Option<ViewId>) {
        self.0.store(epoch.map_or(0, |epoch| epoch.0), Ordering::Release);
    }

    fn get(&self) -> Option<ViewId> {
        Some(ViewId(self.0.load(Ordering::Acquire))).filter(|epoch| epoch.0 > 0)
    }
}

impl fmt::Debug for LogAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogAccess").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LogAccess {
    pub(super) fn new(
        name: &str,
        (readers, snapshots): (Readers, Snapshots),
        (writer, number): (WriterHandle, u32),
        frontier: Arc<DurableFrontier>,
        since: CompleteSince,
    ) -> LogAccess {
        LogAccess { name: name.into(), readers, snapshots, writer, number, frontier, since }
    }

    /// Returns the records on this member's disk. A record is a
    /// [`LoggedMessage`](spindle_log::LoggedMessage).
    ///
    /// In a subgroup that [delivers only what is durable](crate::Durability::LoggedBeforeDelivery) the last
    /// records are not delivered yet, and a change of the view may remove them: see [`Self::newest`].
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Returns the snapshots of the application's state. The version of one is that of the last message
    /// that it contains.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Returns the position up to which all messages, itself excluded, are on the disks of all members,
    /// except for those that stay on too few. `None`: not known yet.
    ///
    /// No message below it is removed from the end of a log, unless an operator gives this member up.
    pub fn durable(&self) -> Option<Position> {
        self.frontier.look(|state| state.frontier())
    }

    /// Returns the newest message on this member's disk that no change of the view removes: the newest one,
    /// or the newest durable one where [only these are
    /// delivered](crate::Durability::LoggedBeforeDelivery). Messages of an earlier process of this member
    /// count there once a message, or a null, of its first view is durable. `None` if there is none.
    ///
    /// # Errors
    /// Those of the log.
    pub fn newest(&self) -> Result<Option<Position>, Error> {
        let newest = match self.frontier.look(|state| state.kept_before()) {
            None => self.readers.durable(),
            Some(end) => self.readers.reader().last_before(version(end))?,
        };
        Ok(newest.map(position))
    }

    /// Returns what the log contains now.
    pub fn extent(&self) -> LoggedExtent {
        let (first, pruned) = (self.readers.oldest().map(position), self.readers.floor().map(position));
        let complete_since = self.since.get();
        let is_complete = pruned.is_none() && complete_since.is_none();
        LoggedExtent { subgroup: self.name.to_string(), first, is_complete, pruned, complete_since }
    }

    /// Prunes whole segments with messages up to `through`, itself included, which a snapshot contains.
    /// A message that is not on the disks of all members stays, as does one that a reader or another member
    /// still needs. Returns the number of segments.
    ///
    /// A process that was started again does not know of the older messages that they are on enough disks.
    /// See [`prune_lost`](Self::prune_lost).
    ///
    /// # Errors
    /// Those of the log.
    pub fn prune(&self, through: Position) -> Result<u64, Error> {
        let oldest = self.readers.oldest().map(position);
        self.prune_before(through, self.frontier.look(|state| state.settled(oldest)))
    }

    /// As [`prune`](Self::prune), and prunes as well what is below [`durable`](Self::durable) and stays on
    /// too few disks: members that had it have left. This log may be the only one with these messages, so
    /// the caller knows that enough other members have a state on disk that contains them.
    ///
    /// # Errors
    /// Those of the log.
    pub fn prune_lost(&self, through: Position) -> Result<u64, Error> {
        self.prune_before(through, self.durable())
    }

    fn prune_before(&self, through: Position, durable: Option<Position>) -> Result<u64, Error> {
        let Some(durable) = durable else { return Ok(0) };
        let (snapshot, before) = (Some(version(through)), Some(version(durable)));
        let (number, rule) = (self.number, Retention { snapshot, before, ..Retention::default() });
        let pruned = self.writer.call(move |store| store.log(number)?.retain(&rule))??;
        Ok(pruned as u64)
    }
}

impl Config {
    /// Returns the snapshots that an earlier process of this member has left for the log of a subgroup,
    /// for reading before, or while, this process joins. `None` if there is no such log.
    ///
    /// # Errors
    /// Those of the directory.
    pub fn old_snapshots(&self, subgroup: &str) -> Result<Option<Snapshots>, Error> {
        let path = self.data_dir.as_ref().map(|data_dir| data_dir.join(DIRECTORY));
        let Some(path) = path.filter(|path| path.exists()) else { return Ok(None) };
        let failed = |cause| Error::Io { operation: "open", path: path.display().to_string(), cause: Arc::new(cause) };
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&path).map_err(failed)?);
        let number = DataDirectory::find(&*disk, subgroup)?;
        number.map(|number| spindle_log::snapshots(&disk, number)).transpose()
    }
}
