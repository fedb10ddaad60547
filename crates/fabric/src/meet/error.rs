//! Why a meeting fails, and why one connection to it is dropped.
use super::{Gathering, Present};
use crate::mail::bytes::WireError;
use crate::mail::{DirError, NameError};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use spindle_core::MemberId;
use spindle_core::limits::MEMBERS_MAX;
use std::io;
use std::path::{Path, PathBuf};

/// Why a process did not get into its group. "Ours" is this process's value, "theirs" that of the group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeetError {
    /// No group of this size.
    #[error("a group has 1 to {max} members, not {got}", max = MEMBERS_MAX)]
    Members {
        /// The size that was asked for.
        got: u32,
    },
    /// The directory won't do.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The group's name won't do.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The group runs another version of Spindle.
    #[error("this process speaks version {ours} of the rendezvous and the group version {theirs}; update the older")]
    VersionMismatch {
        /// This process's version.
        ours: u32,
        /// The group's version.
        theirs: u32,
    },
    /// The group waits for another number of members.
    #[error("this process wants a group of {ours} members and the others one of {theirs}; give all the same number")]
    MembersMismatch {
        /// What this process wants.
        ours: u32,
        /// What the founder wants.
        theirs: u32,
    },
    /// The group's members have another configuration.
    #[error(
        "this process's configuration (digest {ours:016x}) differs from the group's ({theirs:016x}); give all \
         members the same subgroups, windows and message sizes"
    )]
    ConfigMismatch {
        /// The digest of this process's configuration.
        ours: u64,
        /// The digest of the founder's.
        theirs: u64,
    },
    /// The wanted id is taken.
    #[error("member id {id} is in use by process {pid}; choose another, or none")]
    IdInUse {
        /// The id.
        id: MemberId,
        /// Who has it.
        pid: u32,
    },
    /// The group is complete.
    #[error(
        "the group is already running with {members} members (processes {pids:?}); wait for its end or name another"
    )]
    GroupRunning {
        /// How many members it has.
        members: u32,
        /// Their processes, by rank.
        pids: Vec<u32>,
    },
    /// The group is another user's.
    #[error("the group belongs to user {theirs}, not to you (user {ours}); name another group or directory")]
    NotYours {
        /// This process's effective user.
        ours: u32,
        /// The group's.
        theirs: u32,
    },
    /// A member of the complete roster was lost before everybody was ready. Nobody got in.
    #[error("member {id} (process {pid}) {why} while the group was being set up; start the group again")]
    MemberLost {
        /// The member.
        id: MemberId,
        /// Its process.
        pid: u32,
        /// What happened to it.
        why: Loss,
    },
    /// The deadline passed.
    #[error("the wait is over: {gathering}; start who is missing, or wait longer")]
    TimedOut {
        /// Who was there.
        gathering: Gathering,
    },
    /// The caller asked to stop.
    #[error("cancelled while waiting for the group: {gathering}")]
    Cancelled {
        /// Who was there.
        gathering: Gathering,
    },
    /// This process, or the system, has no file descriptor left.
    #[error("no file descriptor left to {doing} (this process may have {limit}); raise the limit with `ulimit -n`")]
    FdLimit {
        /// What needed one.
        doing: &'static str,
        /// The soft limit (RLIMIT_NOFILE).
        limit: u64,
    },
    /// The caller's own part failed.
    #[error("can't make this member's memory: {0}")]
    Make(Box<dyn std::error::Error + Send + Sync>),
    /// Who answers at the group's socket is no founder.
    #[error("the process at {} does not keep to the protocol ({fault}); end it, or name another group", socket.display())]
    Founder {
        /// The group's socket.
        socket: PathBuf,
        /// What it did.
        fault: Fault,
    },
    /// The system refused something.
    #[error("can't {doing}{}: {source}", path.as_ref().map(|p| format!(" {}", p.display())).unwrap_or_default())]
    Io {
        /// What was refused.
        doing: &'static str,
        /// Which file, where there is one.
        path: Option<PathBuf>,
        /// The system's reason.
        source: io::Error,
    },
}

/// What happened to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// Its process ended, or it gave up.
    #[error("died or gave up")]
    Gone,
    /// It broke the protocol.
    #[error("broke the protocol")]
    Misbehaved,
    /// It did not do its part by the founder's deadline.
    #[error("was too late")]
    Late,
}

/// Why a connection was dropped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The other side closed it.
    #[error("it closed the connection")]
    Closed,
    /// It said nothing in time.
    #[error("it did not say who it is in time")]
    Silent,
    /// It was the oldest that had said nothing when there were too many connections.
    #[error("too many connections wait")]
    Crowded,
    /// Bytes that are no message.
    #[error("it sent {0}")]
    Wire(#[from] WireError),
    /// More bytes than any message has.
    #[error("it sent too long a message")]
    TooLong,
    /// The wrong number of file descriptors, or such that are not what they should be.
    #[error("it sent {got} file descriptors that do not belong here ({expected} expected)")]
    Fds {
        /// How many came (at least).
        got: u32,
        /// How many should have.
        expected: u32,
    },
    /// A message that has no place here.
    #[error("it sent a message out of turn")]
    OutOfTurn,
    /// A newcomer that does not fit; it was told why.
    #[error("it does not fit: {0}")]
    Refused(&'static str),
    /// The system reported an error of the connection.
    #[error("its connection failed: {0}")]
    Broken(Errno),
}

impl Fault {
    /// The same, said of a member.
    pub(super) fn loss(&self) -> Loss {
        match self {
            Self::Closed | Self::Broken(_) => Loss::Gone,
            Self::Silent | Self::Crowded => Loss::Late,
            _ => Loss::Misbehaved,
        }
    }
}

impl MeetError {
    /// What the system refused, with [`MeetError::FdLimit`] told apart.
    pub(super) fn io(doing: &'static str, path: Option<&Path>, errno: Errno) -> Self {
        if matches!(errno, Errno::MFILE | Errno::NFILE) {
            return Self::fd_limit(doing);
        }
        Self::Io { doing, path: path.map(Path::to_owned), source: errno.into() }
    }

    pub(super) fn fd_limit(doing: &'static str) -> Self {
        Self::FdLimit { doing, limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) }
    }

    pub(super) fn lost(id: MemberId, pid: u32, why: Loss) -> Self {
        Self::MemberLost { id, pid, why }
    }
}

impl std::fmt::Display for Gathering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} members are here (", self.present.len(), self.members)?;
        for (i, Present { id, pid }) in self.present.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match id {
                Some(id) => write!(f, "{comma}member {id}: process {pid}")?,
                None => write!(f, "{comma}process {pid}")?,
            }
        }
        match self.missing() {
            0 => write!(f, "), not all of them ready"),
            missing => write!(f, "), {missing} missing"),
        }
    }
}
