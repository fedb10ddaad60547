//! The reasons why a process can't get or use an address in its group.
use super::dir::{DirError, GroupName};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use spindle_core::MemberId;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An error of a control socket. Bytes that another process sends to it never cause one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The directory can't be used.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// A live process has this address.
    #[error("id {id} is in use in group {group} (at {}); choose another, or none", path.display())]
    IdInUse {
        /// The id.
        id: MemberId,
        /// The group.
        group: GroupName,
        /// The address.
        path: PathBuf,
    },
    /// The id is reserved for observers and admin clients.
    #[error("id {id} is not for members; choose one below {max}", max = spindle_core::ids::CLIENT_IDS_FROM)]
    IdReserved {
        /// The id.
        id: MemberId,
    },
    /// Another process keeps the group's lock, which is never held for long.
    #[error(
        "another process kept {} locked for {waited:?}; end or resume the one that `fuser` names for it",
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited for it.
        waited: Duration,
    },
    /// The caller asked to stop.
    #[error("cancelled while waiting for the group's lock")]
    Cancelled,
    /// This process, or the system, has no file descriptor left.
    #[error("no file descriptor left to {doing} (this process may have {limit}); raise the limit with `ulimit -n`")]
    FdLimit {
        /// The action that needed one.
        doing: &'static str,
        /// The soft limit (RLIMIT_NOFILE).
        limit: u64,
    },
    /// Too many control messages wait until others have read theirs.
    #[error("{max} control messages wait to be taken; forget the members that take none")]
    OutboxFull {
        /// How many may wait.
        max: u64,
    },
    /// An attachment is longer than this process accepts.
    #[error("an attachment of {bytes} bytes; at most {max} were expected")]
    AttachmentTooLong {
        /// Its length by the control message.
        bytes: u64,
        /// The longest that is read.
        max: u64,
    },
    /// An attachment is not what [`enclose`](super::enclose) makes, with the length that the
    /// control message says.
    #[error(
        "an attachment that is no sealed memory of {bytes} bytes; the sender does not keep to the protocol, end it"
    )]
    AttachmentUnsound {
        /// Its length by the control message.
        bytes: u64,
    },
    /// The system refused something.
    #[error("can't {doing}{}: {source}", path.as_ref().map(|p| format!(" {}", p.display())).unwrap_or_default())]
    Io {
        /// The action that was refused.
        doing: &'static str,
        /// The file, where there is one.
        path: Option<PathBuf>,
        /// The system's reason.
        source: io::Error,
    },
}

impl RendezvousError {
    /// Converts an error of the system, with a separate [`RendezvousError::FdLimit`].
    pub(super) fn io(doing: &'static str, path: Option<&Path>, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        let errno = source.raw_os_error();
        if [Errno::MFILE, Errno::NFILE].iter().any(|limit| errno == Some(limit.raw_os_error())) {
            return Self::FdLimit { doing, limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) };
        }
        Self::Io { doing, path: path.map(Path::to_owned), source }
    }
}
