//! The runtime directory of a user, which no other user can enter, and the names of groups in it.
//!
//! The directory is the protection: only processes of this user or root may connect to a socket in
//! it. So a directory that others own or can enter is refused, never repaired.
//!
//! The process holds the directory open, and finds every file through that descriptor. A relative
//! path and a change of the working directory make no difference, and the path may be longer than
//! that of a socket. If the directory is removed or renamed, [`RuntimeDir::renew`] makes it again
//! at the same path.
use super::TARGET;
use super::limits::{GROUP_NAME_BYTES_MAX, VANISHES_MAX};
use rustix::fs::{Mode, OFlags, fstat, lstat, open, stat};
use rustix::process::geteuid;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::info;

/// Bytes in the path of a Unix socket, without the final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
pub(super) const LOCK_SUFFIX: &str = ".lock";
/// The paths at which a process finds its own descriptors. The second is correct in a thread that
/// does not share those of the others.
const DESCRIPTORS: [&str; 2] = ["/proc/self/fd", "/proc/thread-self/fd"];

/// A directory that only this user can use. Clones hold the same descriptor.
#[derive(Clone, Debug)]
pub struct RuntimeDir {
    /// Absolute, without symbolic links.
    path: PathBuf,
    held: Arc<Mutex<Arc<OpenDir>>>,
}

/// A directory that is held open.
#[derive(Debug)]
pub(super) struct OpenDir {
    fd: OwnedFd,
    /// The device and inode of the directory.
    found: (u64, u64),
    /// The path at which descriptors of this process are found as files, if there is one.
    descriptors: Option<&'static str>,
}

impl PartialEq for RuntimeDir {
    fn eq(&self, other: &RuntimeDir) -> bool {
        self.path == other.path
    }
}

impl Eq for RuntimeDir {}

/// The reason why a directory can't be used for groups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// Another user owns it.
    #[error("{} belongs to user {owner}, not to you (user {ours}); name another directory", path.display())]
    NotYours {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process's effective user.
        ours: u32,
    },
    /// Its group or all users may use it.
    #[error("others may use {} (mode {mode:03o}); run `chmod 700` on it, or name another directory", path.display())]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is shared by all users, as /tmp is.
    #[error("{} is there for all users (mode {mode:04o}); name a directory of your own, such as a new one in it", path.display())]
    Shared {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The path leads to something else, or to a symbolic link, which could lead anywhere.
    #[error("{} is not a directory; remove it, or name another directory", path.display())]
    NotADirectory {
        /// The path that was given.
        path: PathBuf,
    },
    /// The path of a socket in it would be longer than the kernel accepts.
    #[error("{} has {bytes} bytes and a socket's path at most {max}; name a shorter directory or group",
        path.display(), max = SOCKET_PATH_BYTES_MAX)]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// It can't be made or looked at.
    #[error("can't {doing} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        doing: &'static str,
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl RuntimeDir {
    /// Opens the directory at `path`. If it does not exist, makes it with mode 0700, and its
    /// missing parents too.
    ///
    /// # Errors
    /// Anything that could let another user take part in a group or prevent one, and what the
    /// system refuses.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, DirError> {
        let path = path.into();
        again_if_it_vanishes(|| Self::make(path.clone()))
    }

    fn make(path: PathBuf) -> Result<Self, DirError> {
        make(&path)?;
        // A link would be followed below, and could lead elsewhere next time.
        if lstat(&path).is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink()) {
            return Err(DirError::NotADirectory { path });
        }
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(source) => return Err(DirError::Io { doing: "look at directory", path, source }),
        };
        let held = OpenDir::open(&path)?;
        Ok(Self { path, held: Arc::new(Mutex::new(Arc::new(held))) })
    }

    /// Returns whether the path led to another directory than the one that was held, or to none.
    /// From then on the process holds the directory at the path, which is made if there is none.
    ///
    /// # Errors
    /// As [`RuntimeDir::new`]. The process then continues to hold the previous directory.
    pub fn renew(&self) -> Result<bool, DirError> {
        if self.is_current() {
            return Ok(false);
        }
        let fresh = again_if_it_vanishes(|| {
            make(&self.path)?;
            OpenDir::open(&self.path)
        })?;
        let is_other = fresh.found != self.held().found;
        if is_other {
            info!(target: TARGET, path = %self.path.display(), "runtime directory was replaced, and is in use again");
        }
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        Ok(is_other)
    }

    /// Holds the directory to which the path leads now, if there is one. Makes none: only processes
    /// that have an address in it do.
    pub(super) fn follow(&self) {
        if !self.is_current()
            && let Ok(fresh) = OpenDir::open(&self.path)
        {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        }
    }

    /// Returns whether the path leads to the directory that is held.
    pub(super) fn is_current(&self) -> bool {
        let held = self.held();
        // Not followed: a link at the path is not the directory.
        lstat(&self.path).is_ok_and(|found| (found.st_dev, found.st_ino) == held.found)
    }

    /// Returns the directory that is held now.
    pub(super) fn held(&self) -> Arc<OpenDir> {
        Arc::clone(&self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the path at which the groups of this user meet unless another was given:
    /// `/tmp/spindle-UID`, with the effective user. It depends on nothing else, so that all
    /// programs of a user agree on it
    /// ([ADR 0052](../../../../docs/adr/0052-the-default-directory-depends-on-the-user-only.md)).
    pub fn default_path() -> PathBuf {
        format!("/tmp/spindle-{}", geteuid().as_raw()).into()
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path by which the kernel finds a socket of this name in the directory that is
    /// held. The path leads through the directory's descriptor, unless that makes it too long for a
    /// socket.
    pub(super) fn socket_in(&self, held: &OpenDir, name: &str) -> Result<PathBuf, DirError> {
        let through = held.path_of(held.fd.as_fd()).map(|path| path.join(name));
        if let Some(through) = through.filter(|path| check_length(path).is_ok()) {
            return Ok(through);
        }
        let path = self.path.join(name);
        check_length(&path)?;
        Ok(path)
    }

    /// Returns the path of the lock file, under whose lock addresses and member marks of `group`
    /// are given out. A process removes the file only while it holds its lock. After taking the
    /// lock, a process checks that the file still has its name.
    pub fn lock_path(&self, group: &GroupName) -> PathBuf {
        self.path.join(lock_name(group))
    }
}

/// Returns the name of the lock file.
pub(super) fn lock_name(group: &GroupName) -> String {
    format!("{group}{LOCK_SUFFIX}")
}

impl OpenDir {
    /// Opens the directory at a canonical path, if only this user may use it.
    fn open(path: &Path) -> Result<OpenDir, DirError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let failed = |source: rustix::io::Errno| {
            let path = path.to_owned();
            match source {
                rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => DirError::NotADirectory { path },
                source => DirError::Io { doing: "look at directory", path, source: source.into() },
            }
        };
        // A directory of another user may be unreadable, and is refused because of its owner.
        let found = lstat(path).map_err(failed)?;
        check(path, &found)?;
        let fd = open(path, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&fd).map_err(failed)?;
        check(path, &found)?;
        let found = (found.st_dev, found.st_ino);
        let leads_here = |descriptors: &&str| {
            stat(format!("{descriptors}/{}", fd.as_raw_fd())).is_ok_and(|at| (at.st_dev, at.st_ino) == found)
        };
        let descriptors = DESCRIPTORS.into_iter().find(leads_here);
        Ok(OpenDir { fd, found, descriptors })
    }

    /// Returns the path at which a descriptor of this process is found.
    pub(super) fn path_of(&self, fd: BorrowedFd<'_>) -> Option<PathBuf> {
        self.descriptors.map(|descriptors| PathBuf::from(format!("{descriptors}/{}", fd.as_raw_fd())))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Repeats an action if the directory is removed meanwhile.
fn again_if_it_vanishes<T>(attempt: impl Fn() -> Result<T, DirError>) -> Result<T, DirError> {
    let has_vanished =
        |error: &DirError| matches!(error, DirError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
    again_if(has_vanished, attempt)
}

/// Repeats an action, some times at most, if it fails because something that it needs `has_vanished`.
pub(super) fn again_if<T, E>(
    has_vanished: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 0..VANISHES_MAX {
        match attempt() {
            Err(error) if has_vanished(&error) => {}
            done => return done,
        }
    }
    attempt()
}

/// Makes the directory and its parents, unless it exists.
fn make(path: &Path) -> Result<(), DirError> {
    let path = path.to_owned();
    match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(DirError::NotADirectory { path }),
        Err(source) => Err(DirError::Io { doing: "create directory", path, source }),
    }
}

/// Checks that only this user may use what was found at `path`.
fn check(path: &Path, found: &rustix::fs::Stat) -> Result<(), DirError> {
    let path = path.to_owned();
    let (ours, mode) = (geteuid().as_raw(), found.st_mode);
    if !rustix::fs::FileType::from_raw_mode(mode).is_dir() {
        return Err(DirError::NotADirectory { path });
    }
    // This holds for any owner: changing the mode would take protection from the other users.
    if mode & 0o1002 == 0o1002 {
        return Err(DirError::Shared { path, mode: mode & 0o7777 });
    }
    if found.st_uid != ours {
        return Err(DirError::NotYours { path, owner: found.st_uid, ours });
    }
    if mode & 0o077 != 0 {
        return Err(DirError::Exposed { path, mode: mode & 0o777 });
    }
    Ok(())
}

fn check_length(socket: &Path) -> Result<(), DirError> {
    let bytes = socket.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(DirError::PathTooLong { path: socket.to_owned(), bytes: bytes as u64 });
    }
    Ok(())
}

/// The name by which the members of a group find each other: 1 to 64 characters of `A-Z a-z 0-9 . _
/// -`, not beginning with a dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupName(String);

/// The reason why a name is invalid for a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty or too long.
    #[error("a group's name has 1 to {max} characters, not {got}", max = GROUP_NAME_BYTES_MAX)]
    Length {
        /// Its length in bytes.
        got: u64,
    },
    /// It contains a character that should not be in a file's name.
    #[error("group name {name:?} contains {character:?}; use letters, digits, '.', '_' and '-'")]
    Character {
        /// The name.
        name: String,
        /// The first wrong character.
        character: char,
    },
    /// It begins with a dot.
    #[error("group name {name:?} must not start with a dot")]
    LeadingDot {
        /// The name.
        name: String,
    },
}

impl GroupName {
    /// Checks `name`.
    ///
    /// # Errors
    /// The first fault of the name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.is_empty() || name.len() > GROUP_NAME_BYTES_MAX {
            return Err(NameError::Length { got: name.len() as u64 });
        }
        let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if let Some(character) = name.chars().find(|c| !allowed(c)) {
            return Err(NameError::Character { name: name.into(), character });
        }
        if name.starts_with('.') {
            return Err(NameError::LeadingDot { name: name.into() });
        }
        Ok(Self(name.into()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    #[test]
    fn a_missing_directory_is_made_private() {
        let temp = TempDir::new();
        let dir = RuntimeDir::new(temp.path().join("run/spindle")).unwrap();
        assert_eq!(dir.path(), temp.path().join("run/spindle"));
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o700);
        RuntimeDir::new(dir.path()).unwrap();
    }

    #[test]
    fn the_default_depends_on_the_user_only() {
        let uid = fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(RuntimeDir::default_path(), PathBuf::from(format!("/tmp/spindle-{uid}")));
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let temp = TempDir::new();
        for mode in [0o750, 0o701, 0o777] {
            fs::set_permissions(temp.path(), Permissions::from_mode(mode)).unwrap();
            let refused = RuntimeDir::new(temp.path()).unwrap_err();
            assert!(matches!(refused, DirError::Exposed { mode: got, .. } if got == mode), "{refused}");
        }
    }

    #[test]
    fn a_directory_for_all_users_draws_no_warning() {
        let temp = TempDir::new();
        fs::set_permissions(temp.path(), Permissions::from_mode(0o1777)).unwrap();
        let refused = RuntimeDir::new(temp.path()).unwrap_err();
        assert!(matches!(refused, DirError::Shared { mode: 0o1777, .. }), "{refused}");
        assert!(!refused.to_string().contains("chmod"), "{refused}");
    }

    #[test]
    fn a_directory_of_another_user_is_refused_and_the_user_named() {
        let temp = TempDir::new();
        let (path, whose) = if geteuid().is_root() {
            chown(temp.path(), Some(54_321), None).unwrap();
            (temp.path(), 54_321)
        } else {
            (Path::new("/"), 0)
        };
        let refused = RuntimeDir::new(path).unwrap_err();
        assert!(matches!(refused, DirError::NotYours { owner, .. } if owner == whose), "{refused}");
    }

    #[test]
    fn files_and_links_are_refused() {
        let temp = TempDir::new();
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        let link = temp.path().join("link");
        symlink(temp.path(), &link).unwrap();
        for path in [file, link] {
            assert!(matches!(RuntimeDir::new(&path), Err(DirError::NotADirectory { .. })), "{path:?}");
        }
    }

    #[test]
    fn a_directory_may_have_a_longer_path_than_a_socket() {
        let temp = TempDir::new();
        let dir = RuntimeDir::new(temp.path().join("x".repeat(200))).unwrap();
        let socket = dir.socket_in(&dir.held(), "a.1.sock").unwrap();
        fs::write(dir.path().join("a.1.sock"), "").unwrap();
        assert_eq!(fs::metadata(socket).unwrap().ino(), fs::metadata(dir.path().join("a.1.sock")).unwrap().ino());
        let refused = dir.socket_in(&dir.held(), &"x".repeat(107));
        assert!(matches!(refused, Err(DirError::PathTooLong { .. })), "{refused:?}");
    }

    #[test]
    fn a_path_is_made_absolute_and_leads_through_links_once() {
        let temp = TempDir::new();
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        let dir = RuntimeDir::new(link.join("run")).unwrap();
        assert_eq!(dir.path(), real.join("run").canonicalize().unwrap());
    }

    #[test]
    fn a_directory_that_went_is_made_again_and_held() {
        let temp = TempDir::new();
        let dir = RuntimeDir::new(temp.path().join("run")).unwrap();
        let same = dir.clone();
        assert!(!dir.renew().unwrap());
        fs::remove_dir(dir.path()).unwrap();
        assert!(dir.renew().unwrap() && !same.renew().unwrap());
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o700);
        fs::rename(dir.path(), temp.path().join("elsewhere")).unwrap();
        assert!(dir.renew().unwrap());
        // A link at the path is left alone, and the process continues to hold the old directory.
        fs::remove_dir(dir.path()).unwrap();
        symlink(temp.path().join("elsewhere"), dir.path()).unwrap();
        let held = dir.held().found;
        assert!(matches!(dir.renew(), Err(DirError::NotADirectory { .. })));
        assert_eq!(dir.held().found, held);
    }

    #[test]
    fn names() {
        for good in ["a", "demo-1", "A.b_c-9", &"x".repeat(64)] {
            assert_eq!(GroupName::new(good).unwrap().as_str(), good);
        }
        assert_eq!(GroupName::new(""), Err(NameError::Length { got: 0 }));
        assert_eq!(GroupName::new(&"x".repeat(65)), Err(NameError::Length { got: 65 }));
        assert_eq!(GroupName::new(".a"), Err(NameError::LeadingDot { name: ".a".into() }));
        for (bad, which) in [("a/b", '/'), ("a b", ' '), ("a\0", '\0'), ("é", 'é')] {
            assert_eq!(GroupName::new(bad), Err(NameError::Character { name: bad.into(), character: which }));
        }
    }
}
