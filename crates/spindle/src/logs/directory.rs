//! The check of a data directory before this process joins.
use crate::config::{Config, Subgroup};
use crate::error::JoinError;
use spindle_log::{DataDirectory, Disk, Error, FileDisk};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory in the data directory that shows whether logs can be made there.
const PROBE: &str = "log.probe";
/// The file in it, and its length in bytes.
const PROBE_FILE: (&str, u64) = ("file", 4096);

/// Checks, before others count on this process, that its data directory can hold logs, if a subgroup
/// is logged: it can be written and synced, and has space for the journal and a segment.
///
/// # Errors
/// [`JoinError::LogDir`], [`JoinError::Log`].
pub(crate) fn check(config: &Config) -> Result<(), JoinError> {
    let is_logged = config.subgroups.iter().any(Subgroup::is_logged);
    match &config.data_dir {
        Some(data_dir) if is_logged => probe(data_dir, &config.log.files()),
        _ => Ok(()),
    }
}

/// Writes and syncs a file, and looks at the space. Nothing is left of that.
fn probe(data_dir: &Path, files: &spindle_log::Config) -> Result<(), JoinError> {
    let path = data_dir.join(PROBE);
    let disk = FileDisk::new(&path).map_err(failed(&path))?;
    let _lock = DataDirectory::lock(&disk)?;
    let (name, bytes) = PROBE_FILE;
    let written = disk.create(name, bytes).and_then(|file| file.sync_data());
    written.map_err(failed(&path.join(name)))?;
    let (needed, reserve) = (2 * files.journal_bytes + files.segment_bytes, files.reserve_bytes);
    let free = disk.free_bytes().map_err(failed(&path))?;
    fs::remove_dir_all(&path).map_err(failed(&path))?;
    match free.checked_sub(needed) {
        Some(left) if left >= reserve => Ok(()),
        _ => Err(JoinError::Log(Error::Full { needed, free, reserve })),
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> JoinError {
    let path: PathBuf = path.to_path_buf();
    move |source| JoinError::LogDir { path: path.clone(), source }
}
