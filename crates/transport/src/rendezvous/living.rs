//! Proof that a member lives, which remains if the directory is removed, and the lock under which
//! groups are created.
//!
//! Each member of a group has a listening socket with an abstract name, beside its mark in the
//! directory. The name ends with the process that listens, and not before: no file has to exist for
//! it. The kernel reports which process listens, so a name that only a child process keeps open
//! does not count. A second name is bound while addresses and marks are given out. So two processes
//! that hold different directories, one of them removed, do not do that at the same time.
//!
//! Abstract names belong to a network namespace. Processes that share a directory across network
//! namespaces have only the directory's contents: the lock file and the marks.
//!
//! Other users can bind these names, too. The kernel distinguishes them, and their names do not
//! count.
use super::dir::GroupName;
use super::error::RendezvousError;
use super::kernel::{self, random};
use crate::fork::Socket;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, shutdown,
    socket_with,
};
use rustix::process::geteuid;
use spindle_core::MemberId;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The file in which the kernel lists all names of this network namespace.
const LIST: &str = "/proc/net/unix";
/// Connections of processes that check whether a member lives, and that it has not accepted yet.
const PROBES_MAX: i32 = 128;
/// How long a name without a listener keeps other processes from the lock. Either a process that
/// was forked from its holder has the name, or a process has bound it and does not listen yet.
const UNHEARD_MAX: Duration = Duration::from_secs(1);

/// The first character of a name after the common prefix: for members, and for processes that wait
/// to become one.
const MEMBER: char = 'm';
const WAITS: char = 'w';

/// The prefix of the names of a group's members: by user, path of the directory, and group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamePrefix(String);

/// A name that is bound until this is dropped, or its process ends.
#[derive(Debug)]
pub(super) struct BoundName(Socket);

/// The contents of a name.
struct NameContents {
    what: char,
    id: MemberId,
    /// The lower half of the incarnation.
    group: u64,
}

/// The kind of process behind a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// A live process of this user.
    Living,
    /// A process of another user, or a process that was forked from one that has ended.
    Other,
    /// No process listens.
    Nobody,
}

impl NamePrefix {
    pub(super) fn new(dir: &Path, group: &GroupName) -> NamePrefix {
        let text = [dir.as_os_str().as_bytes(), b"\0", group.as_str().as_bytes()].concat();
        // FNV-1a.
        let mix = |hash: u128, byte| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        let hash = text.into_iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix);
        NamePrefix(format!("spindle/{}/{hash:032x}", geteuid().as_raw()))
    }

    /// Claims that the member `id` of the group `incarnation` lives, as long as the result exists.
    /// `None`: the system has no abstract names, or refuses them.
    pub(super) fn live(&self, id: MemberId, incarnation: u128) -> Result<Option<BoundName>, RendezvousError> {
        self.put(MEMBER, id, incarnation)
    }

    /// Claims the same for a process that has the id and is no member.
    pub(super) fn wait(&self, id: MemberId) -> Result<Option<BoundName>, RendezvousError> {
        self.put(WAITS, id, 0)
    }

    fn put(&self, what: char, id: MemberId, incarnation: u128) -> Result<Option<BoundName>, RendezvousError> {
        // Random, so that no other name is like it: a forked process may keep a name that was given
        // up for a moment.
        let random = random().map_err(|source| RendezvousError::io("draw random bits", None, source))? as u32;
        match BoundName::bind(&format!("{}/{what}{}.{:016x}.{random:08x}", self.0, id.0, incarnation as u64)) {
            Err(error @ RendezvousError::FdLimit { .. }) => Err(error),
            bound => Ok(bound.ok().flatten()),
        }
    }

    /// Returns the members that live in this network namespace, by ascending id. None if the system
    /// does not list names.
    pub(super) fn living(&self) -> Result<Vec<MemberId>, RendezvousError> {
        self.find(|said| said.what == MEMBER)
    }

    /// Returns the same as [`living`](Self::living), with processes that are no members.
    pub(super) fn present(&self) -> Result<Vec<MemberId>, RendezvousError> {
        self.find(|_| true)
    }

    /// Returns the same, of those with the id `from` or a higher one.
    pub(super) fn present_from(&self, from: u64) -> Result<Vec<MemberId>, RendezvousError> {
        self.find(|said| said.id.0 >= from)
    }

    /// Returns whether a live process has this id.
    pub(super) fn has(&self, id: MemberId) -> Result<bool, RendezvousError> {
        Ok(!self.find(|said| said.id == id)?.is_empty())
    }

    /// Returns whether the live members belong to the group `incarnation`; `None` if none is known
    /// to live.
    pub(super) fn are_of(&self, incarnation: u128) -> Result<Option<bool>, RendezvousError> {
        let group = incarnation as u64;
        if !self.find(|said| said.what == MEMBER && said.group != group)?.is_empty() {
            return Ok(Some(false));
        }
        Ok((!self.living()?.is_empty()).then_some(true))
    }

    fn find(&self, is_wanted: impl Fn(&NameContents) -> bool) -> Result<Vec<MemberId>, RendezvousError> {
        let Ok(list) = std::fs::read(LIST) else { return Ok(vec![]) };
        let prefix = format!("@{}/", self.0);
        let mut found = BTreeSet::new();
        for line in String::from_utf8_lossy(&list).lines() {
            let Some(at) = line.find(&prefix) else { continue };
            let name = &line[at..];
            let Some(said) = NameContents::parse(&name[prefix.len()..]) else { continue };
            // Both ends of a probe have the name of the process that was probed.
            if is_wanted(&said) && !found.contains(&said.id) && behind(&name[1..])? == Behind::Living {
                found.insert(said.id);
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Takes the exclusive right to give out addresses and marks, in this network namespace.
    /// `None`: another process has it. The result contains no name if the name can't be bound, for
    /// a reason that excludes no other process.
    pub(super) fn lock(&self, waited: Duration) -> Result<Option<Option<BoundName>>, RendezvousError> {
        let name = format!("{}/lock", self.0);
        match BoundName::bind(&name) {
            Ok(Some(bound)) => Ok(Some(Some(bound))),
            Ok(None) => match behind(&name)? {
                Behind::Living => Ok(None),
                Behind::Nobody if waited < UNHEARD_MAX => Ok(None),
                Behind::Nobody | Behind::Other => Ok(Some(None)),
            },
            Err(error @ RendezvousError::FdLimit { .. }) => Err(error),
            Err(_) => Ok(Some(None)),
        }
    }
}

impl NameContents {
    fn parse(name: &str) -> Option<NameContents> {
        let mut rest = name.chars();
        let what = rest.next()?;
        let mut parts = rest.as_str().split('.');
        let id = MemberId(parts.next()?.parse().ok()?);
        Some(NameContents { what, id, group: u64::from_str_radix(parts.next()?, 16).ok()? })
    }
}

impl BoundName {
    /// Binds a name; `None` if it is in use.
    fn bind(name: &str) -> Result<Option<BoundName>, RendezvousError> {
        let failed = |errno: Errno| RendezvousError::io("bind an abstract name", None, errno);
        let socket = new_socket()?;
        match bind(&socket, &address(name).map_err(failed)?) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        }
        listen(&socket, PROBES_MAX).map_err(failed)?;
        Ok(Some(BoundName(Socket::new(socket))))
    }

    /// Closes connections of processes that have checked whether this one lives.
    pub(super) fn see_probes(&self) {
        for _ in 0..PROBES_MAX {
            if accept_with(&self.0, SocketFlags::CLOEXEC).is_err() {
                return;
            }
        }
    }
}

impl AsFd for BoundName {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for BoundName {
    fn drop(&mut self) {
        // Closing would suffice, except that a child that was forked meanwhile could keep the name.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

fn behind(name: &str) -> Result<Behind, RendezvousError> {
    let failed = |errno: Errno| RendezvousError::io("look which process has an abstract name", None, errno);
    let probe = new_socket()?;
    match connect(&probe, &address(name).map_err(failed)?) {
        Ok(()) => {}
        // That many processes have checked, and were not accepted yet.
        Err(Errno::AGAIN) => return Ok(Behind::Living),
        Err(Errno::CONNREFUSED) => return Ok(Behind::Nobody),
        // Another kind of socket, or the system denies access: not a socket of this group.
        Err(Errno::PROTOTYPE | Errno::PERM | Errno::ACCESS) => return Ok(Behind::Other),
        Err(errno) => return Err(failed(errno)),
    }
    let Some((pid, user)) = kernel::peer(probe.as_fd()) else { return Ok(Behind::Living) };
    let is_ours = user == geteuid().as_raw() && !kernel::has_ended(pid);
    Ok(if is_ours { Behind::Living } else { Behind::Other })
}

fn address(name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

fn new_socket() -> Result<OwnedFd, RendezvousError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| RendezvousError::io("make a socket", None, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_living_process_is_listed_until_it_gives_up_its_name() {
        let temp = TempDir::new();
        let key = |group| NamePrefix::new(temp.path(), &GroupName::new(group).unwrap());
        let (mine, other) = (key("g"), key("g.1"));
        assert!(mine.living().unwrap().is_empty());
        let names = [1, 70, u64::MAX].map(|id| mine.live(MemberId(id), u128::MAX).unwrap().expect("abstract names"));
        let _other = other.live(MemberId(5), 7).unwrap();
        assert_eq!(mine.living().unwrap(), [1, 70, u64::MAX].map(MemberId));
        assert_eq!(other.living().unwrap(), [MemberId(5)]);
        let _waits = other.wait(MemberId(6)).unwrap();
        assert_eq!((other.living().unwrap().len(), other.present().unwrap()), (1, vec![MemberId(5), MemberId(6)]));
        assert!(other.has(MemberId(6)).unwrap() && !other.has(MemberId(70)).unwrap());
        assert_eq!([7, 8, 1 << 64 | 7].map(|of| other.are_of(of).unwrap()), [Some(true), Some(false), Some(true)]);
        // Kept by a copy, as in a forked child.
        let copy = names[1].0.as_fd().try_clone_to_owned().unwrap();
        drop(names);
        assert!(mine.living().unwrap().is_empty());
        assert_eq!(mine.are_of(7).unwrap(), None);
        drop(copy);
    }

    #[test]
    fn so_many_look_as_like_to() {
        let temp = TempDir::new();
        let key = NamePrefix::new(temp.path(), &GroupName::new("g").unwrap());
        let name = key.live(MemberId(3), 7).unwrap().expect("abstract names");
        for _ in 0..2 * PROBES_MAX {
            assert_eq!(key.living().unwrap(), [MemberId(3)]);
        }
        name.see_probes();
        assert_eq!(key.living().unwrap(), [MemberId(3)]);
    }

    #[test]
    fn one_has_the_lock_and_a_copy_of_it_has_not() {
        let temp = TempDir::new();
        let key = NamePrefix::new(temp.path(), &GroupName::new("g").unwrap());
        let lock = key.lock(Duration::ZERO).unwrap().expect("free").expect("abstract names");
        assert!(key.lock(UNHEARD_MAX).unwrap().is_none());
        let copy = lock.0.as_fd().try_clone_to_owned().unwrap();
        drop(lock);
        assert!(key.lock(Duration::ZERO).unwrap().is_none(), "it may be about to listen");
        assert!(key.lock(UNHEARD_MAX).unwrap().expect("nobody has it").is_none());
        drop(copy);
        assert!(key.lock(Duration::ZERO).unwrap().expect("free").is_some());
    }
}
