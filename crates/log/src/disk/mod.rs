//! The operations of a disk that the log needs, as traits.
//!
//! Every decision of the log is code over [`Disk`] and [`File`], so that it runs over real files
//! ([`FileDisk`]) and over a simulated disk with faults (`SimDisk`, feature `testing`) alike. Paths
//! are relative to the data directory and use `/`.
mod file;
#[cfg(any(test, feature = "testing"))]
mod sim;

pub use file::{FileDisk, create_directories};
#[cfg(any(test, feature = "testing"))]
pub use sim::{Faults, SimDisk};

use crate::error::{Context, Result};
use std::io::{self, IoSlice};
use std::sync::Arc;

/// The end of the name of a file that was not finished.
pub(crate) const TEMPORARY: &str = ".tmp";

/// A directory tree on a disk.
///
/// A change of names (create, rename, remove) survives a crash of the machine only after
/// [`sync_directory`](Self::sync_directory).
pub trait Disk: Send + Sync {
    /// Creates a directory, and its parents. An existing one is no error.
    fn create_directory(&self, path: &str) -> io::Result<()>;
    /// Lists the names in a directory, in no order.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Creates a file of `bytes` zeros, all of them allocated. Replaces an existing file.
    fn create(&self, path: &str, bytes: u64) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Renames a file, atomically, over an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Handles to it stay usable.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &str) -> io::Result<()>;
    /// The bytes that can still be allocated.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Locks a file, which is created, for one process, and notes its id in it.
    fn lock(&self, path: &str) -> io::Result<Locked>;
    /// The path as a user would write it, for messages.
    fn shown(&self, path: &str) -> String;
}

/// An open file.
pub trait File: Send + Sync {
    /// Writes the slices at an offset, and returns how many bytes were written.
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Reads at an offset, and returns how many bytes were read: 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Announces a read, so that it may begin. A hint.
    fn will_read(&self, _offset: u64, _bytes: u64) {}
    /// Makes what was written durable, the length included.
    fn sync_data(&self) -> io::Result<()>;
    /// The length in bytes.
    fn bytes(&self) -> io::Result<u64>;
}

/// The result of an attempt to lock.
pub enum Locked {
    /// Locked until the value is dropped.
    Owned(Box<dyn Send + Sync>),
    /// Another process has the lock. Its id is 0 if the file does not say.
    By(u32),
}

/// Writes all bytes of the slices. A short write is continued; an error is returned.
pub(crate) fn write_all(file: &dyn File, slices: &[&[u8]], mut offset: u64) -> io::Result<()> {
    let (mut first, mut skip) = (0, 0);
    while first < slices.len() {
        let mut batch = [IoSlice::new(&[]); crate::limits::SLICES_MAX];
        let mut count = 0;
        for (slot, slice) in batch.iter_mut().zip(&slices[first..]) {
            *slot = IoSlice::new(if count == 0 { &slice[skip..] } else { slice });
            count += 1;
        }
        if batch[..count].iter().all(|slice| slice.is_empty()) {
            (first, skip) = (first + count, 0);
            continue;
        }
        let mut written = file.write_at(&batch[..count], offset)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset += written as u64;
        while first < slices.len() && written >= slices[first].len() - skip {
            written -= slices[first].len() - skip;
            (first, skip) = (first + 1, 0);
        }
        skip += written;
    }
    Ok(())
}

/// Writes a whole file of `directory` and makes it durable. A crash leaves the file as it was or
/// with these bytes: they are written under a temporary name, synced, renamed, and the directory is
/// synced.
pub(crate) fn replace_file(disk: &dyn Disk, directory: &str, name: &str, bytes: &[u8], length: u64) -> Result<()> {
    let target = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
    let (temporary, shown) = (format!("{target}{TEMPORARY}"), disk.shown(&target));
    let file = disk.create(&temporary, length.max(bytes.len() as u64)).during("create", &shown)?;
    write_all(&*file, &[bytes], 0).during("write", &shown)?;
    file.sync_data().during("sync", &shown)?;
    disk.rename(&temporary, &target).during("rename", &shown)?;
    disk.sync_directory(directory).during("sync", &disk.shown(directory))
}

/// Reads the first `bytes` of a file, or fewer if it is shorter.
pub(crate) fn read_file(disk: &dyn Disk, path: &str, bytes: u64) -> Result<Vec<u8>> {
    let shown = disk.shown(path);
    let file = disk.open(path).during("open", &shown)?;
    let mut content = vec![0; bytes as usize];
    let read = read_full(&*file, &mut content, 0).during("read", &shown)?;
    content.truncate(read);
    Ok(content)
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}
