//! A private directory in which a group of this process's own children meets.
use anyhow::Context;
use rustix::process::{Pid, test_kill_process};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, process};

/// A directory of this process's own, in which a group meets. Other processes don't look for groups
/// there. It is removed when dropped.
#[derive(Debug)]
pub(crate) struct PrivateDir(PathBuf);

impl PrivateDir {
    /// Creates `PREFIX-PID` in `place`, or in the directory for temporary files. Removes
    /// directories of killed processes there.
    pub(crate) fn create(place: Option<PathBuf>, prefix: &str) -> anyhow::Result<PrivateDir> {
        let parent = place.unwrap_or_else(env::temp_dir);
        DirBuilder::new().recursive(true).mode(0o700).create(&parent).or_else(|error| {
            let made = format!("can't create {}; name another with --runtime-dir", parent.display());
            if parent.is_dir() { Ok(()) } else { Err(error).context(made) }
        })?;
        sweep(&parent, prefix);
        let path = parent.join(format!("{prefix}-{}", process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("can't create {}; name another place with --runtime-dir", path.display()))?;
        Ok(PrivateDir(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the directories of processes that have ended. The directories of other users stay,
/// because only they may remove them.
fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok());
        let gone = |pid| pid == process::id() as i32 || test_kill_process(pid_of(pid)) == Err(rustix::io::Errno::SRCH);
        if pid.is_some_and(|pid: i32| pid > 0 && gone(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn pid_of(pid: i32) -> Pid {
    Pid::from_raw(pid).unwrap_or(Pid::INIT)
}
