//! Where a user's groups meet: a directory that nobody else can enter, and the names of groups in it.
//!
//! The directory is the protection: whoever may connect to a socket in it is this user or root. So a directory that
//! others own or can enter is refused, never repaired.
use super::limits::GROUP_NAME_BYTES_MAX;
use rustix::process::geteuid;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes in the path of a Unix socket, without the final zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// No socket in the directory has a shorter name: that of a group of one letter and an id of one digit.
const SHORTEST: &str = "a.1.mail";
const LOCK_SUFFIX: &str = ".lock";

/// A directory that belongs to this user alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuntimeDir {
    path: PathBuf,
}

/// Why no group can meet in a directory.
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
    /// Its group or everybody may use it.
    #[error("others may use {} (mode {mode:03o}); run `chmod 700` on it, or name another directory", path.display())]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is there for all users, as /tmp is.
    #[error("{} is there for all users (mode {mode:04o}); name a directory of your own, such as a new one in it", path.display())]
    Shared {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Something else has this path, or a symbolic link, which could lead anywhere.
    #[error("{} is not a directory; remove it, or name another directory", path.display())]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// A socket in it would have a longer path than the kernel takes.
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
        /// What failed.
        doing: &'static str,
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl RuntimeDir {
    /// The directory at `path`, made with mode 0700 (its missing parents too) if it isn't there.
    ///
    /// # Errors
    /// Whatever could let somebody else take part in a group or prevent one, and what the system refuses.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, DirError> {
        let path = path.into();
        // Longer names are checked when they are known.
        check_length(&path.join(SHORTEST))?;
        match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(DirError::NotADirectory { path }),
            Err(source) => return Err(DirError::Io { doing: "create directory", path, source }),
        }
        let found = match path.symlink_metadata() {
            Ok(found) => found,
            Err(source) => return Err(DirError::Io { doing: "look at directory", path, source }),
        };
        let ours = geteuid().as_raw();
        if !found.is_dir() {
            return Err(DirError::NotADirectory { path });
        }
        // Whoever it belongs to: changing it would cost the others their protection.
        if found.mode() & 0o1002 == 0o1002 {
            return Err(DirError::Shared { path, mode: found.mode() & 0o7777 });
        }
        if found.uid() != ours {
            return Err(DirError::NotYours { path, owner: found.uid(), ours });
        }
        if found.mode() & 0o077 != 0 {
            return Err(DirError::Exposed { path, mode: found.mode() & 0o777 });
        }
        Ok(Self { path })
    }

    /// `spindle` in the session's runtime directory `xdg` (what `$XDG_RUNTIME_DIR` says; libraries read no
    /// environment), or, where there is none, `/tmp/spindle-UID`.
    ///
    /// # Errors
    /// As [`RuntimeDir::new`].
    pub fn default_for_user(xdg: Option<&Path>) -> Result<Self, DirError> {
        match xdg {
            Some(xdg) => Self::new(xdg.join("spindle")),
            None => Self::new(format!("/tmp/spindle-{}", geteuid().as_raw())),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A socket of this name.
    pub(super) fn socket_in(&self, name: &str) -> Result<PathBuf, DirError> {
        let path = self.path.join(name);
        check_length(&path)?;
        Ok(path)
    }

    /// The file under whose lock addresses and marks of `group` are given out. It is never removed: a lock on a file
    /// without a name excludes nobody.
    pub fn lock_path(&self, group: &GroupName) -> PathBuf {
        self.path.join(format!("{group}{LOCK_SUFFIX}"))
    }
}

fn check_length(socket: &Path) -> Result<(), DirError> {
    let bytes = socket.as_os_str().as_bytes().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(DirError::PathTooLong { path: socket.to_owned(), bytes: bytes as u64 });
    }
    Ok(())
}

/// The name under which the members of a group find each other: 1 to 64 characters of `A-Z a-z 0-9 . _ -`, the first
/// of them no dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupName(String);

/// Why a group can't have a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing, or too much.
    #[error("a group's name has 1 to {max} characters, not {got}", max = GROUP_NAME_BYTES_MAX)]
    Length {
        /// How many bytes it has.
        got: u64,
    },
    /// A character that a file's name had better not contain.
    #[error("group name {name:?} contains {character:?}; use letters, digits, '.', '_' and '-'")]
    Character {
        /// The name.
        name: String,
        /// The first wrong character.
        character: char,
    },
    /// A leading dot.
    #[error("group name {name:?} must not start with a dot")]
    LeadingDot {
        /// The name.
        name: String,
    },
}

impl GroupName {
    /// `name`, checked.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
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

    /// The name.
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
    use super::super::tests::TempDir;
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn a_missing_directory_is_made_private() {
        let temp = TempDir::new();
        let dir = RuntimeDir::default_for_user(Some(&temp.path().join("run"))).unwrap();
        assert_eq!(dir.path(), temp.path().join("run/spindle"));
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o700);
        RuntimeDir::new(dir.path()).unwrap();
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
    fn nobody_is_told_to_shut_a_directory_that_is_there_for_all() {
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
    fn paths_that_no_socket_can_have_are_refused() {
        let temp = TempDir::new();
        let long = temp.path().join("x".repeat(100));
        assert!(matches!(RuntimeDir::new(&long), Err(DirError::PathTooLong { .. })));
        assert!(!long.exists());
        let room = SOCKET_PATH_BYTES_MAX - temp.path().as_os_str().len() - "/".len() - SHORTEST.len() - "/".len();
        let dir = RuntimeDir::new(temp.path().join("x".repeat(room))).unwrap();
        dir.socket_in(SHORTEST).unwrap();
        assert!(matches!(dir.socket_in("a.10.mail"), Err(DirError::PathTooLong { .. })));
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
