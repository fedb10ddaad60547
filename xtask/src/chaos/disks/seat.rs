//! A seat of a round: a data directory, and one process after the other that uses it.
use super::files;
use super::member::Member;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of a disk that gets full. The log refuses to begin a segment when less than 64 MiB would
/// stay free.
const SMALL_DISK: &str = "160m";

/// A seat.
#[derive(Debug)]
pub(super) struct Seat {
    /// The directory of the seat, with the data directory, copies of it and the filler.
    dir: PathBuf,
    pub(super) member: Option<Member>,
    /// The ids under which its processes have joined, since its directory was last empty.
    pub(super) ids: BTreeSet<u64>,
    /// True if its directory was never wiped, and its first process created the group.
    pub(super) is_complete: bool,
    /// True if its disk is small.
    is_small: bool,
    pub(super) is_full: bool,
    /// True if all other complete logs had the records of this one when it was last read.
    pub(super) is_behind: bool,
    pub(super) has_copy: bool,
    /// True while an old copy is in place of the data directory.
    pub(super) is_old: bool,
}

impl Seat {
    pub(super) fn new(dir: PathBuf, is_small: bool) -> Result<Seat> {
        fs::create_dir_all(&dir)?;
        if is_small {
            let place = dir.to_string_lossy();
            call("mount", &["-t", "tmpfs", "-o", &format!("size={SMALL_DISK}"), "spindle-chaos", &place])?;
        }
        let seat = Seat {
            dir,
            member: None,
            ids: BTreeSet::new(),
            is_complete: true,
            is_small,
            is_full: false,
            is_behind: false,
            has_copy: false,
            is_old: false,
        };
        fs::create_dir(seat.data())?;
        Ok(seat)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn copy(&self) -> PathBuf {
        self.dir.join("copy")
    }

    fn newer(&self) -> PathBuf {
        self.dir.join("newer")
    }

    fn filler(&self) -> PathBuf {
        self.dir.join("filler")
    }

    pub(super) fn is_small(&self) -> bool {
        self.is_small
    }

    pub(super) fn is_running(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.status.is_none())
    }

    /// Whether the directory belongs to a member.
    pub(super) fn has_member(&self) -> Result<bool> {
        Ok(!self.ids.is_empty() || files::member_of(&self.data())?.is_some())
    }

    /// Whether the directory belongs to the member `id`.
    pub(super) fn is_of(&self, id: u64) -> Result<bool> {
        Ok(self.ids.contains(&id) || files::member_of(&self.data())? == Some(id))
    }

    /// Fills the disk up to `spare` bytes.
    pub(super) fn fill(&mut self, spare: u64) -> Result<()> {
        let mut file = File::create(self.filler())?;
        let zeros = vec![0; 1 << 16];
        let mut len = 0;
        while let Ok(count @ 1..) = file.write(&zeros) {
            len += count as u64;
        }
        file.set_len(len.saturating_sub(spare))?;
        self.is_full = true;
        Ok(())
    }

    /// Makes space on the disk again.
    pub(super) fn free(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_full) {
            fs::remove_file(self.filler())?;
        }
        Ok(())
    }

    /// Empties the data directory. Returns the id of the member that it belonged to.
    pub(super) fn wipe(&mut self) -> Result<Option<u64>> {
        let member = files::member_of(&self.data())?;
        fs::remove_dir_all(self.data())?;
        fs::create_dir(self.data())?;
        let _ = fs::remove_dir_all(self.copy());
        (self.is_complete, self.has_copy) = (false, false);
        self.ids.clear();
        Ok(member)
    }

    /// Keeps a copy of the data directory.
    pub(super) fn keep_copy(&mut self) -> Result<()> {
        let _ = fs::remove_dir_all(self.copy());
        copy(&self.data(), &self.copy())?;
        self.has_copy = true;
        Ok(())
    }

    /// Puts the copy in place of the data directory.
    pub(super) fn put_copy(&mut self) -> Result<()> {
        let _ = fs::remove_dir_all(self.newer());
        fs::rename(self.data(), self.newer())?;
        fs::rename(self.copy(), self.data())?;
        (self.has_copy, self.is_old) = (false, true);
        Ok(())
    }

    /// Puts the data directory back that [`put_copy`](Self::put_copy) has replaced.
    pub(super) fn put_back(&mut self) -> Result<()> {
        fs::remove_dir_all(self.data())?;
        fs::rename(self.newer(), self.data())?;
        self.is_old = false;
        Ok(())
    }

    /// Removes the data directory that was replaced, because the old one is up to date again.
    pub(super) fn forget_newer(&mut self) {
        if std::mem::take(&mut self.is_old) {
            let _ = fs::remove_dir_all(self.newer());
        }
    }

    /// Moves the seat's files to a directory that outlives this process's mounts.
    pub(super) fn keep(&mut self, place: &Path) -> Result<()> {
        self.free()?;
        copy(&self.dir, place)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.member = None;
        if self.is_small {
            let _ = call("umount", &["-l", &self.dir.to_string_lossy()]);
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    call("cp", &["-a", &from.to_string_lossy(), &to.to_string_lossy()])
}

fn call(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output().with_context(|| format!("can't start {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
