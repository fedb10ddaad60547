//! The directory in which a seed stores its promises and votes while a group is created.
//!
//! The directory contains one file, `bootstrap`, which is replaced as a whole: a new file is written
//! and synced, renamed to the old name, and the directory is synced. A lock keeps a second process
//! out. A seed whose directory was never [initialised](initialise_data_dir) takes part without
//! durable votes.
use spindle_core::control::BootstrapRecord;
use spindle_core::wire::bytes::digest;
use spindle_log::disk::create_directories;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tracing::debug;

/// The tracing target of the creation of a group.
const TARGET: &str = "spindle::bootstrap";

const FILE: &str = "bootstrap";
const NEW: &str = "bootstrap.new";
const LOCK: &str = "lock";
const MAGIC: u64 = u64::from_le_bytes(*b"spndfnd1");
/// A bound above the size of the longest record, in bytes.
const BYTES_MAX: u64 = 1 << 16;

/// A data directory that can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// The system refuses an operation.
    #[error("can't {doing} {}: {source}; see that the data directory can be written", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The record can't be read.
    #[error(
        "{} is damaged: restore it from a copy of this host; if there is none, remove it and start without initialising the directory, so \
         that this seed's votes are not relied on",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
    },
    /// The directory belongs to another group.
    #[error("{} is of group {theirs}, not of {ours}; give each group a data directory of its own", path.display())]
    OtherGroup {
        /// The file.
        path: PathBuf,
        /// The group that the directory belongs to.
        theirs: String,
        /// The group of this process.
        ours: String,
    },
    /// Another process uses it.
    #[error("{} is in use by another process; end that one, or give this one another data directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory was initialised before.
    #[error("{} is there: the data directory was initialised before, which is done once; start without initialising it", path.display())]
    Initialised {
        /// The file.
        path: PathBuf,
    },
}

/// Prepares `dir` for a seed of `group`. The seed's votes then count when a majority of the seeds
/// creates the group.
///
/// Call it once, before the group is started for the first time. A seed that has lost its disk must
/// not call it again while the group may live: the vote of another seed may depend on the lost
/// record.
///
/// # Errors
/// [`DataDirError`]; [`DataDirError::Initialised`] if the directory was initialised before.
pub fn initialise_data_dir(dir: &Path, group: &str) -> Result<(), DataDirError> {
    create_directories(dir).map_err(|source| failed("make", dir, source))?;
    let dir = DataDir::open(dir, group)?;
    match dir.is_initialised {
        true => Err(DataDirError::Initialised { path: dir.path.join(FILE) }),
        false => dir.write(&BootstrapRecord::default()),
    }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> DataDirError {
    DataDirError::Io { doing, path: path.to_path_buf(), source }
}

/// An open data directory, locked by this process.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    group: String,
    _lock: File,
    /// Whether it contained a record when it was opened.
    pub(crate) is_initialised: bool,
    /// That record, or an empty one.
    pub(crate) record: BootstrapRecord,
}

impl DataDir {
    pub(crate) fn open(path: &Path, group: &str) -> Result<DataDir, DataDirError> {
        let at = path.join(LOCK);
        let lock = File::options().create(true).write(true).truncate(false).open(&at);
        let lock = lock.map_err(|source| failed("open", &at, source))?;
        match rustix::fs::flock(lock.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(DataDirError::InUse { path: path.to_path_buf() }),
            Err(errno) => return Err(failed("lock", &at, errno.into())),
        }
        let file = path.join(FILE);
        let bytes = match fs::metadata(&file) {
            Ok(there) if there.len() > BYTES_MAX => return Err(DataDirError::Corrupt { path: file }),
            Ok(_) => Some(fs::read(&file).map_err(|source| failed("read", &file, source))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(failed("read", &file, source)),
        };
        let read = bytes.map(|bytes| decode(&bytes).ok_or_else(|| DataDirError::Corrupt { path: file.clone() }));
        let read = read.transpose()?;
        if let Some((theirs, _)) = read.as_ref().filter(|(theirs, _)| theirs != group) {
            let (theirs, ours) = (theirs.clone(), group.to_string());
            return Err(DataDirError::OtherGroup { path: file, theirs, ours });
        }
        let is_initialised = read.is_some();
        debug!(target: TARGET, dir = %path.display(), group, is_initialised, "data directory opened");
        let record = read.map(|(_, record)| record).unwrap_or_default();
        Ok(DataDir { path: path.to_path_buf(), group: group.to_string(), _lock: lock, is_initialised, record })
    }

    /// Replaces the record. The record is on disk when this returns.
    pub(crate) fn write(&self, record: &BootstrapRecord) -> Result<(), DataDirError> {
        let start = Instant::now();
        let (new, file) = (self.path.join(NEW), self.path.join(FILE));
        let written = File::create(&new).and_then(|mut to| {
            to.write_all(&encode(&self.group, record))?;
            to.sync_all()
        });
        written.map_err(|source| failed("write", &new, source))?;
        fs::rename(&new, &file).map_err(|source| failed("replace", &file, source))?;
        let synced = File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.map_err(|source| failed("sync", &self.path, source))?;
        let write_ms = start.elapsed().as_secs_f64() * 1000.0;
        debug!(target: TARGET, dir = %self.path.display(), write_ms, "data directory written");
        Ok(())
    }
}

fn encode(group: &str, record: &BootstrapRecord) -> Vec<u8> {
    let words = record.encode();
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend((group.len() as u64).to_le_bytes());
    bytes.extend(group.bytes());
    bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(digest(bytes.iter().copied()).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(String, BootstrapRecord)> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if digest(body.iter().copied()) != u64::from_le_bytes(*sum) {
        return None;
    }
    let (magic, body) = body.split_first_chunk::<8>()?;
    let (length, body) = body.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    if u64::from_le_bytes(*magic) != MAGIC || length > body.len() {
        return None;
    }
    let (group, body) = body.split_at(length);
    let (words, rest) = body.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let record = BootstrapRecord::decode(&words).filter(|_| rest.is_empty())?;
    Some((String::from_utf8(group.to_vec()).ok()?, record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::control::{BootstrapBallot, Incarnation};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("spindle-data-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_record_is_there_again_and_belongs_to_one_process_of_one_group() {
        let scratch = Scratch::new("record");
        initialise_data_dir(&scratch.0, "g").unwrap();
        let error = initialise_data_dir(&scratch.0, "g").unwrap_err();
        assert!(matches!(error, DataDirError::Initialised { .. }), "{error}");
        let dir = DataDir::open(&scratch.0, "g").unwrap();
        assert!(dir.is_initialised && dir.record == BootstrapRecord::default());
        let promised = BootstrapBallot { round: 7, seed: 1 };
        let record = BootstrapRecord { promised, belongs: Some(Incarnation(u128::MAX)), ..BootstrapRecord::default() };
        dir.write(&record).unwrap();
        assert!(matches!(DataDir::open(&scratch.0, "g"), Err(DataDirError::InUse { .. })));
        drop(dir);
        assert_eq!(DataDir::open(&scratch.0, "g").unwrap().record, record);
        assert!(matches!(DataDir::open(&scratch.0, "h"), Err(DataDirError::OtherGroup { .. })));
    }

    #[test]
    fn every_damage_is_noticed_and_told() {
        let scratch = Scratch::new("damage");
        initialise_data_dir(&scratch.0, "g").unwrap();
        let file = scratch.0.join(FILE);
        let bytes = fs::read(&file).unwrap();
        let mut damaged: Vec<Vec<u8>> = (0..bytes.len()).map(|cut| bytes[..cut].to_vec()).collect();
        damaged.extend((0..bytes.len()).map(|at| {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            damaged
        }));
        for damaged in damaged {
            fs::write(&file, damaged).unwrap();
            let error = DataDir::open(&scratch.0, "g").unwrap_err();
            assert!(matches!(error, DataDirError::Corrupt { .. }), "{error}");
            assert!(error.to_string().starts_with(&format!("{} is damaged: restore", file.display())));
        }
    }

    #[test]
    fn a_directory_that_was_not_initialised_has_no_votes() {
        let scratch = Scratch::new("none");
        fs::create_dir_all(&scratch.0).unwrap();
        assert!(!DataDir::open(&scratch.0, "g").unwrap().is_initialised);
    }
}
