//! Real files.
use super::{Disk, File, Locked};
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, IoSlice, Read, Seek, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The zeros that are written at a time when a file is created.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];

/// A directory of a file system.
#[derive(Clone, Debug)]
pub struct FileDisk {
    root: PathBuf,
    is_read_only: bool,
}

/// The longest wait for processes that look whether a lock is held, in steps of a millisecond.
const LOOKS_MAX: u32 = 100;

impl FileDisk {
    /// The directory `root`, which is created if it is missing, with
    /// [`create_directories`].
    ///
    /// # Errors
    /// The error of the file system.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        create_directories(&root)?;
        Ok(Self { root, is_read_only: false })
    }

    /// An existing directory, of which nothing is changed: operations that would are refused, and
    /// files that this process may only read are enough.
    ///
    /// # Errors
    /// The error of the file system, such as that `root` is no directory.
    pub fn read_only(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        fs::read_dir(&root)?;
        Ok(Self { root, is_read_only: true })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The path of something that is about to be changed.
    fn path_to_change(&self, path: &str) -> io::Result<PathBuf> {
        match self.is_read_only {
            true => Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, "the directory was opened for reading only")),
            false => Ok(self.path(path)),
        }
    }

    /// Looks whether a process has the lock, without taking it from a process that starts meanwhile.
    fn look(&self, path: &str) -> io::Result<Locked> {
        let file = match fs::File::open(self.path(path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Locked::Owned(Box::new(()))),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Locked::Owned(Box::new(Lock(file)))),
            Err(TryLockError::WouldBlock) => owner(file),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Creates a directory and the parents that are missing. A crash of the machine after that loses none
/// of them: the directory of each new name is synced.
///
/// # Errors
/// The error of the file system.
pub fn create_directories(path: &Path) -> io::Result<()> {
    create_each(path, &mut |directory| fs::File::open(directory)?.sync_all())
}

/// Creates what is missing, the outermost first. `sync` gets the directory of each new name.
fn create_each(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(ErrorKind::NotFound.into()),
    };
    create_each(parent, sync)?;
    match fs::create_dir(path) {
        // Another process was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created?,
    }
    sync(parent)
}

/// The process that has locked a file, by what it wrote into it.
fn owner(file: fs::File) -> io::Result<Locked> {
    let mut owner = String::new();
    file.take(32).read_to_string(&mut owner)?;
    Ok(Locked::By(owner.trim().parse().unwrap_or(0)))
}

impl Disk for FileDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        fs::create_dir_all(self.path_to_change(path)?)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        fs::read_dir(self.path(path))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create(&self, path: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.path_to_change(path)?)?;
        let mut offset = 0;
        while offset < bytes {
            let step = (bytes - offset).min(ZEROS.len() as u64);
            file.write_all_at(&ZEROS[..step as usize], offset)?;
            offset += step;
        }
        Ok(Arc::new(Opened(file)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Opened(OpenOptions::new().read(true).write(!self.is_read_only).open(self.path(path))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path_to_change(from)?, self.path_to_change(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path_to_change(path)?)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        fs::File::open(self.path(path))?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let status = rustix::fs::statvfs(&self.root)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn lock(&self, path: &str) -> io::Result<Locked> {
        if self.is_read_only {
            return self.look(path);
        }
        let path = self.path(path);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        for look in 0.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(error),
                // Processes that only look have a shared lock for an instant.
                Err(TryLockError::WouldBlock) if look < LOOKS_MAX && file.try_lock_shared().is_ok() => {
                    file.unlock()?;
                    thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => return owner(file),
            }
        }
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Locked::Owned(Box::new(Lock(file))))
    }

    fn shown(&self, path: &str) -> String {
        self.path(path).display().to_string()
    }
}

/// A locked file. It is unlocked explicitly: a child that another thread has just forked, and that has
/// not executed its program yet, has the descriptor too and would hold the lock a little longer.
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file unlocks it as well.
        let _ = self.0.unlock();
    }
}

struct Opened(fs::File);

impl File for Opened {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        loop {
            match rustix::io::pwritev(&self.0, slices, offset) {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buffer, offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn will_read(&self, offset: u64, bytes: u64) {
        // A hint: without it the read takes longer.
        let _ = rustix::fs::fadvise(&self.0, offset, NonZeroU64::new(bytes), rustix::fs::Advice::WillNeed);
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_each_new_name_is_synced() {
        let root = std::env::temp_dir().join(format!("spindle-log-directories-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let mut synced = Vec::new();
        let path = root.join("a/b");
        create_each(&path, &mut |directory| {
            synced.push(directory.to_path_buf());
            Ok(())
        })
        .expect("it can be created");
        let is_there = path.is_dir();
        create_each(&path, &mut |directory| panic!("{}", directory.display())).expect("it exists");
        fs::write(root.join("file"), "").expect("it can be written");
        let refused = create_directories(&root.join("file/c"));
        fs::remove_dir_all(&root).expect("it exists");
        assert!(is_there && refused.is_err());
        assert_eq!(synced, [std::env::temp_dir(), root.clone(), root.join("a")]);
    }
}
