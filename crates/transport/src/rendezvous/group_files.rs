//! The files of a group in the runtime directory: they show which processes have an address there
//! and which are members. The lock under which both change is a file there, too.
//!
//! Each process has a socket, `<group>.<id>.sock`. A second name of the same socket,
//! `<group>.<id>.live`, is the mark that its owner is a member. So connecting shows whether there
//! is a process behind a mark, as it does for an address, and no cleanup is needed to know that.
//! The lock file holds the incarnation of the group that was created last. The last process to
//! leave removes it. If that process was killed, the next process that creates a group in the
//! directory does.
//!
//! All of this is in a directory that may be removed. Then members are found by names that are [no
//! files](super::living), and make their sockets again. A missing socket proves nothing about its
//! process.
use super::dir::{DirError, GroupName, LOCK_SUFFIX, OpenDir, RuntimeDir, lock_name};
use super::error::RendezvousError;
use super::limits::{BACK_OFF_MAX, BACK_OFF_MIN, CENSUS_MAX, LOCK_TICK, SWEPT_MAX};
use super::living::{BoundName, NamePrefix};
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, fstat, lstat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use spindle_core::MemberId;
use spindle_core::ids::CLIENT_IDS_FROM;
use std::fmt::Write;
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

pub(super) const ADDRESS: &str = ".sock";
pub(super) const MARK: &str = ".live";
/// The offset in the lock file of the highest id that was given out, behind the incarnation.
const HIGHEST_AT: u64 = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GroupFiles {
    pub(super) dir: RuntimeDir,
    pub(super) group: GroupName,
    /// The prefix of the names of live members.
    pub(super) key: NamePrefix,
}

/// A path by which the kernel finds a socket, and the directory that it leads through.
#[derive(Debug)]
pub(super) struct Spot {
    path: PathBuf,
    held: Arc<OpenDir>,
    name: String,
}

impl Deref for Spot {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Spot {
    /// Returns the device and inode of the file.
    pub(super) fn found(&self) -> Option<(u64, u64)> {
        let found = statat(self.held.fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    }

    /// Opens the socket as a descriptor by which it can be reached for as long as it lives,
    /// whatever happens to its name.
    pub(super) fn hold(&self) -> Result<OwnedFd, Errno> {
        openat(self.held.fd(), &self.name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }

    /// Returns the path of the file that such a descriptor holds.
    pub(super) fn path_of(&self, fd: BorrowedFd<'_>) -> Option<PathBuf> {
        self.held.path_of(fd)
    }

    /// Gives the file another name.
    pub(super) fn link(&self, other: &Spot) -> Result<(), Errno> {
        rustix::fs::linkat(self.held.fd(), &self.name, other.held.fd(), &other.name, AtFlags::empty())
    }

    pub(super) fn remove(&self) -> Result<(), RendezvousError> {
        match unlinkat(self.held.fd(), &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(RendezvousError::io("remove the stale socket", Some(self), errno)),
        }
    }
}

impl GroupFiles {
    pub(super) fn new(dir: &RuntimeDir, group: &GroupName) -> Self {
        Self { dir: dir.clone(), group: group.clone(), key: NamePrefix::new(dir.path(), group) }
    }

    pub(super) fn address(&self, id: MemberId) -> Result<Spot, DirError> {
        self.spot(self.name(id, ADDRESS))
    }

    pub(super) fn mark(&self, id: MemberId) -> Result<Spot, DirError> {
        self.spot(self.name(id, MARK))
    }

    fn spot(&self, name: String) -> Result<Spot, DirError> {
        let held = self.dir.held();
        let path = self.dir.socket_in(&held, &name)?;
        Ok(Spot { path, held, name })
    }

    /// Returns the path of an address, as shown to operators.
    pub(super) fn shown(&self, id: MemberId) -> PathBuf {
        self.dir.path().join(self.name(id, ADDRESS))
    }

    /// Returns the owner of an address, by the last part of its path: the part before depends on
    /// how the owner names the directory.
    pub(super) fn owner(&self, address: &[u8]) -> Option<MemberId> {
        let name = address.rsplit(|byte| *byte == b'/').next()?;
        self.parse(str::from_utf8(name).ok()?, ADDRESS)
    }

    fn name(&self, id: MemberId, suffix: &str) -> String {
        let mut name = format!("{}.", self.group);
        let written = match id.0.checked_sub(CLIENT_IDS_FROM) {
            Some(number) => write!(name, "v{number}{suffix}"),
            None => write!(name, "{id}{suffix}"),
        };
        debug_assert!(written.is_ok(), "writing to a string can't fail");
        name
    }

    fn parse(&self, name: &str, suffix: &str) -> Option<MemberId> {
        let number = name.strip_prefix(self.group.as_str())?.strip_prefix('.')?.strip_suffix(suffix)?;
        let id = match number.strip_prefix('v') {
            Some(number) => number.parse::<u64>().ok()?.checked_add(CLIENT_IDS_FROM)?,
            None => number.parse().ok()?,
        };
        // A number can be written in more than one way; only the usual one counts.
        (self.name(MemberId(id), suffix) == name).then_some(MemberId(id))
    }

    /// Returns all live processes that have an address, observers and admin clients too, by
    /// ascending id. If the directory has none, returns the live processes that have not made their
    /// addresses again yet.
    pub(super) fn addressees(&self) -> Result<Vec<MemberId>, RendezvousError> {
        self.dir.follow();
        let found = self.living(ADDRESS, |_| Ok(()))?;
        if found.is_empty() { self.key.present() } else { Ok(found) }
    }

    /// Returns all live members, by ascending id.
    pub(super) fn members(&self) -> Result<Vec<MemberId>, RendezvousError> {
        self.dir.follow();
        let found = self.living(MARK, |_| Ok(()))?;
        if found.is_empty() { self.key.living() } else { Ok(found) }
    }

    /// Returns the live processes by the contents of the directory, and applies an action to the
    /// files of dead ones.
    fn living(
        &self,
        suffix: &str,
        left_behind: impl Fn(&Spot) -> Result<(), RendezvousError>,
    ) -> Result<Vec<MemberId>, RendezvousError> {
        let probe = Probe::new()?;
        let mut found = Vec::new();
        for id in self.list(suffix)? {
            let spot = self.spot(self.name(id, suffix))?;
            match probe.answers(&spot)? {
                true => found.push(id),
                false => left_behind(&spot)?,
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the members, by ascending id. If they are so many that it takes long to ask all of
    /// them whether they live, some may have ended.
    pub(super) fn known_members(&self) -> Result<Vec<MemberId>, RendezvousError> {
        self.dir.follow();
        Ok(match self.marked_if_many()? {
            Some(members) => members,
            None => self.members()?,
        })
    }

    /// Returns the ids with a mark if there are many and one of the first belongs to a live member.
    fn marked_if_many(&self) -> Result<Option<Vec<MemberId>>, RendezvousError> {
        let mut marked = self.list(MARK)?;
        let probe = Probe::new()?;
        let lives = |id: &MemberId| self.mark(*id).is_ok_and(|spot| probe.answers(&spot).unwrap_or(false));
        let are_many = marked.len() > CENSUS_MAX && marked.iter().take(CENSUS_MAX).any(lives);
        marked.sort_unstable();
        Ok(are_many.then_some(marked))
    }

    /// Returns the processes for one that comes. Does the same as [`census`](Self::census) unless
    /// the members are so many that this would keep other processes from the lock for long.
    pub(super) fn brief_census(&self, held: &GroupLock) -> Result<Census, RendezvousError> {
        match self.marked_if_many()? {
            Some(members) => Ok(Census { addressees: self.list(ADDRESS)?, members }),
            None => self.census(held),
        }
    }

    /// Returns the live processes, and removes the files of dead ones. Under the lock only: a
    /// socket that is being made looks the same.
    pub(super) fn census(&self, _held: &GroupLock) -> Result<Census, RendezvousError> {
        let addressees = self.living(ADDRESS, Spot::remove)?;
        let mut members = self.living(MARK, Spot::remove)?;
        if members.is_empty() {
            // The directory may have been removed with all their files.
            members = self.key.living()?;
        }
        Ok(Census { addressees, members })
    }

    /// Returns whether the directory exists and contains no address, live or dead.
    pub(super) fn is_deserted(&self) -> bool {
        self.dir.is_current() && self.list(ADDRESS).is_ok_and(|ids| ids.is_empty())
    }

    /// Removes the files of other groups of which no process is left, such as those of killed
    /// processes. Looks at [`SWEPT_MAX`] groups at most, and waits for no lock.
    pub(super) fn sweep_others(&self, dir: &RuntimeDir) {
        let held = self.dir.held();
        let Ok(entries) = Dir::read_from(held.fd()) else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_string));
        let groups = names.filter_map(|name| GroupName::new(name.strip_suffix(LOCK_SUFFIX)?).ok());
        for group in groups.filter(|group| *group != self.group).take(SWEPT_MAX) {
            let other = GroupFiles::new(dir, &group);
            if let Ok(Some(lock)) = other.try_lock()
                && other.key.present().is_ok_and(|present| present.is_empty())
            {
                other.remove_if_deserted(lock);
            }
        }
    }

    /// Removes the lock file, if no process is left in the group.
    pub(super) fn remove_if_deserted(&self, lock: GroupLock) {
        let is_left = |here: Census| here.addressees.is_empty() && here.members.is_empty();
        if self.census(&lock).is_ok_and(is_left) {
            lock.remove();
        }
    }

    fn list(&self, suffix: &str) -> Result<Vec<MemberId>, RendezvousError> {
        let failed = |errno: Errno| RendezvousError::io("list", Some(self.dir.path()), errno);
        let mut found = Vec::new();
        for entry in Dir::read_from(self.dir.held().fd()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some(id) = entry.file_name().to_str().ok().and_then(|name| self.parse(name, suffix)) {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// Takes the group's lock. Processes that wait for it get it in turn.
    pub(super) fn lock(&self, deadline: Instant, cancelled: &AtomicBool) -> Result<GroupLock, RendezvousError> {
        let begin = Instant::now();
        let mut back_off = BACK_OFF_MIN;
        loop {
            if let Some(file) = self.open_lock()?
                && let Some(file) = file.lock(deadline, cancelled)?
                && let Some(lock) = self.claim(file, begin.elapsed())?
            {
                return Ok(lock);
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(RendezvousError::Cancelled);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Err(RendezvousError::Locked { path: self.dir.lock_path(&self.group), waited: begin.elapsed() });
            }
            std::thread::sleep(back_off.min(left));
            back_off = (2 * back_off).min(BACK_OFF_MAX);
        }
    }

    /// Tries to take the lock at this moment.
    pub(super) fn try_lock(&self) -> Result<Option<GroupLock>, RendezvousError> {
        match self.open_lock()? {
            Some(file) if file.try_lock()? => self.claim(file, Duration::ZERO),
            _ => Ok(None),
        }
    }

    /// Opens the lock file. `None`: the directory was removed just now.
    fn open_lock(&self) -> Result<Option<LockFile>, RendezvousError> {
        self.dir.renew()?;
        let (held, path, name) = (self.dir.held(), self.dir.lock_path(&self.group), lock_name(&self.group));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(held.fd(), &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Some(LockFile { file, path, held })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(RendezvousError::io("open the lock file", Some(&path), errno)),
        }
    }

    /// Completes the lock, for a process that has locked the file and has `waited` for that.
    /// `None`: the file excludes no process, or a process with another directory has the lock.
    fn claim(
        &self,
        LockFile { file, path, held }: LockFile,
        waited: Duration,
    ) -> Result<Option<GroupLock>, RendezvousError> {
        // Another process may have removed the file between open and lock.
        let locked = fstat(&file).map_err(|errno| RendezvousError::io("look at the lock file", Some(&path), errno))?;
        let named = lstat(&path).is_ok_and(|named| (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino));
        if !named {
            return Ok(None);
        }
        // The name outlives the directory, and excludes processes that hold another directory.
        Ok(self.key.lock(waited)?.map(|name| GroupLock { file, path, held, name }))
    }
}

/// The lock file of a group, open.
struct LockFile {
    file: OwnedFd,
    path: PathBuf,
    held: Arc<OpenDir>,
}

impl LockFile {
    /// Locks the file, if no process has.
    fn try_lock(&self) -> Result<bool, RendezvousError> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(errno) => Err(RendezvousError::io("lock", Some(&self.path), errno)),
        }
    }

    /// Locks the file, and waits for that if need be: the system serves those that wait in turn.
    /// `None` at the deadline, or if the wait is cancelled.
    fn lock(self, deadline: Instant, cancelled: &AtomicBool) -> Result<Option<LockFile>, RendezvousError> {
        if self.try_lock()? {
            return Ok(Some(self));
        }
        let (locked, wait) = sync_channel(1);
        let path = self.path.clone();
        // Only a thread of its own can be given up, which ends once it has had the lock.
        let waits = move || {
            let result = loop {
                match flock(&self.file, FlockOperation::LockExclusive) {
                    Err(Errno::INTR) => {}
                    result => break result,
                }
            };
            let _ = locked.send(result.map(|()| self));
        };
        let spawned = std::thread::Builder::new().name("spindle-lock".into()).spawn(waits);
        spawned.map_err(|source| RendezvousError::io("start a thread that locks", Some(&path), source))?;
        while !cancelled.load(Ordering::Relaxed) {
            let left = deadline.saturating_duration_since(Instant::now());
            match wait.recv_timeout(left.min(LOCK_TICK)) {
                Ok(file) => return file.map(Some).map_err(|errno| RendezvousError::io("lock", Some(&path), errno)),
                Err(_) if left.is_zero() => break,
                Err(_) => {}
            }
        }
        Ok(None)
    }
}

/// The processes of a group, while its lock is held.
pub(super) struct Census {
    /// As [`GroupFiles::addressees`].
    pub(super) addressees: Vec<MemberId>,
    /// As [`GroupFiles::members`].
    pub(super) members: Vec<MemberId>,
}

/// The exclusive right to give out addresses and marks of a group, for a moment. It ends with its
/// process.
#[derive(Debug)]
pub(super) struct GroupLock {
    file: OwnedFd,
    path: PathBuf,
    held: Arc<OpenDir>,
    name: Option<BoundName>,
}

impl GroupLock {
    /// Returns the group that was created last; `None`: none since the file exists.
    pub(super) fn incarnation(&self) -> Result<Option<u128>, RendezvousError> {
        let mut bytes = [0; 16];
        match rustix::io::pread(&self.file, &mut bytes, 0) {
            // Zeros: a process that was given an id made the file anew. The group that the earlier
            // file named is no longer known here.
            Ok(16) => Ok(Some(u128::from_le_bytes(bytes)).filter(|incarnation| *incarnation != 0)),
            // A founder that died before this was written created nothing.
            Ok(_) => Ok(None),
            Err(errno) => Err(RendezvousError::io("read", Some(&self.path), errno)),
        }
    }

    /// Returns the highest id that was given out, in this group, to a process that had asked for
    /// none; 0: none was.
    pub(super) fn highest_given(&self) -> Result<u64, RendezvousError> {
        let mut bytes = [0; 8];
        match rustix::io::pread(&self.file, &mut bytes, HIGHEST_AT) {
            Ok(8) => Ok(u64::from_le_bytes(bytes)),
            Ok(_) => Ok(0),
            Err(errno) => Err(RendezvousError::io("read", Some(&self.path), errno)),
        }
    }

    pub(super) fn set_highest_given(&self, id: u64) -> Result<(), RendezvousError> {
        match rustix::io::pwrite(&self.file, &id.to_le_bytes(), HIGHEST_AT) {
            Ok(8) => Ok(()),
            Ok(_) => Err(RendezvousError::io("write", Some(&self.path), Errno::NOSPC)),
            Err(errno) => Err(RendezvousError::io("write", Some(&self.path), errno)),
        }
    }

    /// Removes the lock file: no process is left in the group, and no other one gives anything out
    /// meanwhile.
    pub(super) fn remove(self) {
        if let Some(file) = self.path.file_name() {
            let _ = unlinkat(self.held.fd(), file, AtFlags::empty());
        }
    }

    pub(super) fn set_incarnation(&self, incarnation: u128) -> Result<(), RendezvousError> {
        match rustix::io::pwrite(&self.file, &incarnation.to_le_bytes(), 0) {
            Ok(16) => Ok(()),
            Ok(_) => Err(RendezvousError::io("write", Some(&self.path), Errno::NOSPC)),
            Err(errno) => Err(RendezvousError::io("write", Some(&self.path), errno)),
        }
    }
}

impl Drop for GroupLock {
    fn drop(&mut self) {
        // The process that gets the file next finds the name free.
        drop(self.name.take());
        // Closing would suffice, except that a child that was forked meanwhile could keep the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Checks whether a live process is at an address, without leaving a trace there.
#[derive(Debug)]
pub(super) struct Probe(OwnedFd);

impl Probe {
    pub(super) fn new() -> Result<Self, RendezvousError> {
        Ok(Self(new_socket()?))
    }

    pub(super) fn answers(&self, path: &Path) -> Result<bool, RendezvousError> {
        let failed = |errno: Errno| RendezvousError::io("reach", Some(path), errno);
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        match connect(&self.0, &address) {
            Ok(()) => Ok(true),
            // A foreign socket, but a live one.
            Err(Errno::PROTOTYPE | Errno::PERM) => Ok(true),
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// Keeps programs that remove old files out of a directory: those of systemd respect this lock.
/// Others may hold it too. A failure has no effect: files that such a program removes are made
/// again.
pub(super) fn keep_cleaners_out(dir: &RuntimeDir) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(dir.held().fd(), ".", flags, Mode::empty()).ok()?;
    flock(&opened, FlockOperation::NonBlockingLockShared).ok()?;
    Some(opened)
}

pub(super) fn new_socket() -> Result<OwnedFd, RendezvousError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
        .map_err(|errno| RendezvousError::io("make a socket", None, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn names_are_read_as_they_are_written_and_no_others() {
        let temp = TempDir::new();
        let place = GroupFiles::new(&RuntimeDir::new(temp.path()).unwrap(), &GroupName::new("a.1").unwrap());
        for id in [0, 1, CLIENT_IDS_FROM - 1, CLIENT_IDS_FROM, u64::MAX].map(MemberId) {
            let path = place.address(id).unwrap();
            assert_eq!(place.owner(path.as_os_str().as_encoded_bytes()), Some(id));
        }
        assert_eq!(place.shown(MemberId(CLIENT_IDS_FROM + 3)), temp.path().join("a.1.v3.sock"));
        for other in
            ["a.2.sock", "a.1.sock", "a.1.x.sock", "a.1.01.sock", "a.1.+1.sock", "a.1.1.live", "", "a.1.1.sock/"]
        {
            assert_eq!(place.owner(other.as_bytes()), None, "{other}");
        }
        assert_eq!(place.owner(format!("a.1.{CLIENT_IDS_FROM}.sock").as_bytes()), None);
        assert_eq!(place.owner(b"a.1.\xff.sock"), None);
    }
}
