//! Attachments of control messages: data that is too long for one travels as memory of its own. The
//! memory is written once and then sealed. So every reader reads the same bytes, and reading can
//! neither fault nor wait.
use super::error::RendezvousError;
use crate::fork::create_file;
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use rustix::io::{Errno, pread, write};
use std::os::fd::{AsFd, OwnedFd};

const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Copies `bytes` to memory that no process can change any more.
///
/// # Errors
/// [`RendezvousError::FdLimit`], or [`RendezvousError::Io`] if there is no memory.
pub fn enclose(bytes: &[u8]) -> Result<OwnedFd, RendezvousError> {
    let failed = |errno: Errno| RendezvousError::io("make an attachment", None, errno);
    let fd = create_file("attachment").map_err(failed)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match write(&fd, rest) {
            Ok(0) => return Err(failed(Errno::NOSPC)),
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    fcntl_add_seals(&fd, SEALS | SealFlags::SEAL).map_err(failed)?;
    Ok(fd)
}

/// Reads the attachment of another process, which has `bytes` by the control message. At most
/// `bytes_max` are expected.
///
/// # Errors
/// [`RendezvousError::AttachmentTooLong`], [`RendezvousError::AttachmentUnsound`], or
/// [`RendezvousError::Io`].
pub fn disclose(fd: impl AsFd, bytes: u64, bytes_max: u64) -> Result<Vec<u8>, RendezvousError> {
    if bytes > bytes_max {
        return Err(RendezvousError::AttachmentTooLong { bytes, max: bytes_max });
    }
    // Only memory has seals, so reading it never waits.
    let sealed = fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SEALS));
    if !sealed || !fstat(&fd).is_ok_and(|found| u64::try_from(found.st_size) == Ok(bytes)) {
        return Err(RendezvousError::AttachmentUnsound { bytes });
    }
    let mut out = vec![0; bytes as usize];
    let mut at = 0;
    while at < out.len() {
        match pread(&fd, &mut out[at..], at as u64) {
            Ok(0) => return Err(RendezvousError::AttachmentUnsound { bytes }),
            Ok(read) => at += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(RendezvousError::io("read an attachment", None, errno)),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_received() {
        for bytes in [vec![], b"view".to_vec(), (0..3_000_000_u32).map(|i| i as u8).collect()] {
            let fd = enclose(&bytes).unwrap();
            assert_eq!(disclose(&fd, bytes.len() as u64, 3_000_000).unwrap(), bytes);
            assert_eq!(write(&fd, b"more"), Err(Errno::PERM));
        }
    }

    #[test]
    fn mutable_or_short_memory_is_refused() {
        let fd = enclose(b"view").unwrap();
        assert!(matches!(disclose(&fd, 4, 3), Err(RendezvousError::AttachmentTooLong { bytes: 4, max: 3 })));
        for wrong in [0, 3, 5] {
            assert!(matches!(disclose(&fd, wrong, 99), Err(RendezvousError::AttachmentUnsound { .. })));
        }
        let open = create_file("open").unwrap();
        write(&open, b"view").unwrap();
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        for fd in [open, pipe] {
            assert!(matches!(disclose(&fd, 4, 99), Err(RendezvousError::AttachmentUnsound { bytes: 4 })));
        }
    }
}
