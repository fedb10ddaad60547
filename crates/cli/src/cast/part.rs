//! A file that is being received, on disk.
//!
//! The file grows as `.NAME.part` in the directory of its final name NAME. Nothing else is recorded
//! about it. The process that opens it finds its valid pieces by their digests. So the result is
//! correct after any end of the process or the machine, and an unfinished file of another version
//! is not lost.
use super::digest::Digest;
use super::pieces::Pieces;
use super::wire::Offer;
use anyhow::{Context, bail, ensure};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The state in which an offer finds a receiver.
#[derive(Debug)]
pub(super) enum OpenedOffer {
    /// The receiver has the same file.
    Same,
    Part(PartialFile),
}

/// An unfinished file.
#[derive(Debug)]
pub(super) struct PartialFile {
    file: File,
    path: PathBuf,
    target: PathBuf,
    overwrite: bool,
    /// The pieces that the file contains.
    have: Pieces,
}

impl PartialFile {
    /// Looks for the existing pieces of a file in `dir`, and reserves space for the rest.
    ///
    /// # Errors
    /// An error that names the paths of this receiver's host. It is sent to the cast.
    pub(super) fn open(dir: &Path, offer: &Offer, overwrite: bool) -> anyhow::Result<OpenedOffer> {
        let target = dir.join(&offer.name);
        if holds(&target, offer).with_context(|| format!("can't read {}", target.display()))? {
            return Ok(OpenedOffer::Same);
        }
        check_place(&target, overwrite)?;
        let path = dir.join(format!(".{}.part", offer.name));
        let cant = || format!("can't write {}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(&path).with_context(cant)?;
        let there = file.metadata().with_context(cant)?;
        ensure!(there.is_file(), "{} is no file; remove it", path.display());
        let mut have = Pieces::none(offer.count());
        for index in 0..offer.count() {
            let (start, len) = (offer.start(index), offer.len(index));
            if start + len > there.len() {
                break;
            }
            if Digest::of_file(&file, start, len, |_| ()).with_context(cant)? == offer.pieces[index as usize] {
                have.insert(index);
            }
        }
        if there.len() > offer.bytes {
            file.set_len(offer.bytes).with_context(cant)?;
        }
        if let Err(error) = reserve(&file, offer.bytes) {
            if have.is_empty() {
                // The file has no valid piece, and its reserved space would be in the way.
                let _ = fs::remove_file(&path);
            }
            return Err(error).with_context(|| format!("no room for {} bytes in {}", offer.bytes, dir.display()));
        }
        Ok(OpenedOffer::Part(PartialFile { file, path, target, overwrite, have }))
    }

    pub(super) fn have(&self) -> &Pieces {
        &self.have
    }

    /// Writes a piece, unless the file contains it already.
    ///
    /// # Errors
    /// An error that names the paths of this receiver's host.
    pub(super) fn write(&mut self, offer: &Offer, index: u32, data: &[u8]) -> anyhow::Result<()> {
        ensure!(index < offer.count(), "piece {index} was sent of {}", offer.count());
        if self.have.contains(index) {
            return Ok(());
        }
        let (len, digest) = (offer.len(index), Digest::of(data));
        ensure!(data.len() as u64 == len, "piece {index} came with {} bytes, not {len}", data.len());
        ensure!(
            digest == offer.pieces[index as usize],
            "piece {index} came with another digest than it was offered with"
        );
        self.file
            .write_all_at(data, offer.start(index))
            .with_context(|| format!("can't write {}", self.path.display()))?;
        self.have.insert(index);
        Ok(())
    }

    /// Completes a whole file: syncs it to disk, reads it back, and renames it to its final name.
    ///
    /// # Errors
    /// An error that names the paths of this receiver's host.
    pub(super) fn finish(self, offer: &Offer) -> anyhow::Result<()> {
        let PartialFile { file, path, target, overwrite, .. } = self;
        let cant = || format!("can't write {}", path.display());
        file.sync_all().with_context(cant)?;
        let digest = Digest::of_file(&file, 0, offer.bytes, |_| ()).with_context(cant)?;
        if digest != offer.digest {
            fs::remove_file(&path).with_context(cant)?;
            bail!(
                "{} reads back with digest {digest}, not {}, and was removed; cast it again",
                path.display(),
                offer.digest
            );
        }
        // Another process may have created a file there meanwhile.
        check_place(&target, overwrite)?;
        fs::rename(&path, &target)
            .with_context(|| format!("can't rename {} to {}", path.display(), target.display()))?;
        let dir = target.parent().unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).with_context(|| format!("can't sync {}", dir.display()))
    }

    /// Syncs the file to disk, because no cast sends the rest at this time.
    pub(super) fn park(self) {
        // Data that does not reach the disk is sent again.
        let _ = self.file.sync_all();
    }
}

/// Returns true if the same file exists at `path`.
fn holds(path: &Path, offer: &Offer) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() && there.len() == offer.bytes => {
            Ok(Digest::of_file(&File::open(path)?, 0, offer.bytes, |_| ())? == offer.digest)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Fails if no file may be created at `path`.
fn check_place(path: &Path, overwrite: bool) -> anyhow::Result<()> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    ensure!(!there.is_dir(), "{} is a directory", path.display());
    ensure!(overwrite, "{} is another file; start that receiver with --overwrite, or remove it", path.display());
    Ok(())
}

/// Reserves space, so that a full disk is found now. The file's length stays, because it bounds the
/// part that may contain pieces.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        // Some file systems can't reserve space. A full disk is then found during the transfer.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("spindle-part-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }

        fn offer(&self, bytes: &[u8]) -> Offer {
            let path = self.0.join("source");
            fs::write(&path, bytes).unwrap();
            let (digest, pieces) = Digest::of_pieces(&File::open(path).unwrap(), bytes.len() as u64, 10).unwrap();
            Offer { number: 1, name: "file".to_string(), bytes: bytes.len() as u64, piece_bytes: 10, digest, pieces }
        }

        fn open(&self, offer: &Offer, overwrite: bool) -> anyhow::Result<OpenedOffer> {
            PartialFile::open(&self.0, offer, overwrite)
        }

        fn part(&self, offer: &Offer) -> PartialFile {
            match self.open(offer, false).unwrap() {
                OpenedOffer::Part(part) => part,
                OpenedOffer::Same => panic!("the file is not there yet"),
            }
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const BYTES: &[u8] = b"0123456789abcdefghijABCDE";

    #[test]
    fn pieces_in_any_order_make_the_file_and_a_part_knows_what_it_holds() {
        let scratch = Scratch::new("order");
        let offer = scratch.offer(BYTES);
        let mut part = scratch.part(&offer);
        part.write(&offer, 2, &BYTES[20..]).unwrap();
        part.write(&offer, 0, &BYTES[..10]).unwrap();
        // This ends as if the process had been killed.
        drop(part);
        let mut part = scratch.part(&offer);
        assert_eq!(part.have().iter().collect::<Vec<_>>(), [0, 2]);
        part.write(&offer, 1, &BYTES[10..20]).unwrap();
        assert!(part.have().is_all());
        part.finish(&offer).unwrap();
        assert_eq!(fs::read(scratch.0.join("file")).unwrap(), BYTES);
        assert!(!scratch.0.join(".file.part").exists());
        assert!(matches!(scratch.open(&offer, false).unwrap(), OpenedOffer::Same));
    }

    #[test]
    fn damaged_objects_are_not_taken_and_not_kept() {
        let scratch = Scratch::new("damage");
        let offer = scratch.offer(BYTES);
        let mut part = scratch.part(&offer);
        for (index, data, error) in [(0, &BYTES[1..11], "digest"), (2, &BYTES[..10], "bytes"), (3, &BYTES[..0], "of 3")]
        {
            let said = part.write(&offer, index, data).unwrap_err().to_string();
            assert!(said.contains(error), "{said}");
        }
        (0..3).for_each(|i| {
            part.write(&offer, i, &BYTES[i as usize * 10..BYTES.len().min(i as usize * 10 + 10)]).unwrap()
        });
        fs::write(scratch.0.join(".file.part"), [b"X", &BYTES[1..]].concat()).unwrap();
        let error = part.finish(&offer).unwrap_err().to_string();
        assert!(error.contains("reads back with digest"), "{error}");
        assert!(!scratch.0.join("file").exists() && !scratch.0.join(".file.part").exists());
    }

    #[test]
    fn another_file_is_replaced_only_if_asked_and_a_part_of_another_version_is_used() {
        let scratch = Scratch::new("other");
        let offer = scratch.offer(BYTES);
        fs::write(scratch.0.join("file"), "mine").unwrap();
        let error = scratch.open(&offer, false).unwrap_err().to_string();
        assert!(error.contains("--overwrite"), "{error}");
        fs::write(scratch.0.join(".file.part"), [b"0123456789..........", &[b'x'; 100][..]].concat()).unwrap();
        let OpenedOffer::Part(mut part) = scratch.open(&offer, true).unwrap() else {
            panic!("the file is not there yet")
        };
        assert_eq!(part.have().iter().collect::<Vec<_>>(), [0]);
        part.write(&offer, 1, &BYTES[10..20]).unwrap();
        part.write(&offer, 2, &BYTES[20..]).unwrap();
        part.finish(&offer).unwrap();
        assert_eq!(fs::read(scratch.0.join("file")).unwrap(), BYTES);
    }
}
