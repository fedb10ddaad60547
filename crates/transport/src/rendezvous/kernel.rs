//! Queries to the kernel, most of them about processes.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use spindle_core::control::Birth;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// The kernel's answer about a process.
#[derive(Debug)]
pub enum KernelAnswer {
    /// It lives, or did a moment ago. This descriptor becomes readable when it has ended.
    Lives(OwnedFd),
    /// It has ended.
    Ended,
    /// Its number has no meaning here, or the system does not allow the query.
    Unknown,
}

/// Returns the birth of this process.
pub fn own_birth() -> Birth {
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    Birth { namespace, started: started("self").unwrap_or(0) }
}

/// Asks the kernel about the process that had the number `pid` and this `birth`. A number is not
/// used again while its process lives, so the answer for a live process is never [`KernelAnswer::Ended`].
pub fn fate(pid: u32, birth: Birth) -> KernelAnswer {
    let here = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return KernelAnswer::Unknown };
    if birth.namespace == 0 || birth.namespace != here {
        return KernelAnswer::Unknown;
    }
    match pidfd_open(number, PidfdFlags::empty()) {
        Ok(pidfd) => match started(&pid.to_string()) {
            Some(other) if birth.started != 0 && other != birth.started => KernelAnswer::Ended,
            _ => KernelAnswer::Lives(pidfd),
        },
        Err(Errno::SRCH) => KernelAnswer::Ended,
        Err(_) => KernelAnswer::Unknown,
    }
}

/// Returns when a process began: the 22nd field, of which the second may contain anything, in
/// brackets.
fn started(pid: &str) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[name_ends + 1..]).ok()?.split_whitespace().nth(19)?.parse().ok()
}

/// Returns the number in this process's namespace, and the user, of the process that listens where
/// this socket is connected. The number is 0 if the namespace does not have it.
pub(super) fn peer(socket: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `found`, which has as many, and their
    // number to `bytes`.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &mut bytes)
    };
    (got == 0).then(|| (found.pid.cast_unsigned(), found.uid))
}

/// Returns whether no process has this number, or only one that has ended. Not known of a process
/// that has no number here.
pub fn has_ended(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)], Some(&now)) == Ok(1)
        }
        Err(errno) => errno == Errno::SRCH,
    }
}

/// Returns whether a descriptor is of a process: waiting for any other fails with EBADF. Nothing is
/// reaped.
pub(super) fn is_pidfd(fd: BorrowedFd<'_>) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::PidFd(fd), options), Ok(_) | Err(Errno::CHILD | Errno::INTR))
}

/// Returns 128 random bits.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0_u8; 16];
    // SAFETY: the kernel writes at most `bytes.len()` bytes, all of them inside `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_found_by_number_and_birth() {
        let (pid, birth) = (std::process::id(), own_birth());
        assert!(birth.started != 0 && birth.namespace != 0);
        assert!(matches!(fate(pid, birth), KernelAnswer::Lives(_)));
        let before = Birth { started: birth.started - 1, ..birth };
        assert!(matches!(fate(pid, before), KernelAnswer::Ended), "another process had the number");
        let elsewhere = Birth { namespace: birth.namespace + 1, ..birth };
        for unknown in [fate(pid, elsewhere), fate(pid, Birth::default()), fate(0, birth), fate(u32::MAX, birth)] {
            assert!(matches!(unknown, KernelAnswer::Unknown), "{unknown:?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_known_to_have() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        assert!(!has_ended(std::process::id()) && !has_ended(0));
        // It exists until it is waited for, and nevertheless counts as ended.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let number = Pid::from_raw(pid.cast_signed()).unwrap();
        while matches!(waitid(WaitId::Pid(number), options), Err(Errno::INTR)) {}
        assert!(has_ended(pid));
        child.wait().unwrap();
        assert!(has_ended(pid));
        assert!(matches!(fate(pid, own_birth()), KernelAnswer::Ended));
    }
}
