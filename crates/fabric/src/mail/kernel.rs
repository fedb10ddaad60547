//! Two questions to the kernel.
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::io;
use std::os::fd::BorrowedFd;

/// Whether a descriptor is of a process: waiting for any other fails with EBADF. Nothing is reaped.
pub(super) fn is_pidfd(fd: BorrowedFd<'_>) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::PidFd(fd), options), Ok(_) | Err(Errno::CHILD | Errno::INTR))
}

/// 128 random bits.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0_u8; 16];
    // SAFETY: the kernel writes at most `bytes.len()` bytes, all of them inside `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(u128::from_le_bytes(bytes))
}
