//! Snapshots of a subgroup's state: written beside the log, verified, and only then in place of an
//! older one. Together with the records behind its version a snapshot is the whole state.
use crate::disk::TEMPORARY;
use crate::disk::{Disk, File, read_full, write_all};
use crate::error::{Context, Error, Result};
use crate::format::{Binding, Block, SnapshotHeader};
use crate::limits::{PAGE_BYTES, SNAPSHOT_BLOCK_BYTES};
use crate::mutation::mutation;
use crate::version::Version;
use crc32c::crc32c_append;
use std::sync::Arc;

const PREFIX: &str = "snapshot-";
/// The bytes that are collected before a write.
const WRITE_BYTES: usize = 16 * Block::BYTES;

/// The snapshots of one log, for any thread.
#[derive(Clone)]
pub struct Snapshots {
    disk: Arc<dyn Disk>,
    path: String,
    binding: Binding,
    reserve_bytes: u64,
}

/// A snapshot on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// The last version that it contains.
    pub version: Version,
    /// The clock of that version.
    pub clock: u64,
    /// The bytes of the state.
    pub bytes: u64,
}

impl Snapshots {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: &str, binding: Binding, reserve_bytes: u64) -> Self {
        Self { disk, path: path.to_owned(), binding, reserve_bytes }
    }

    /// Lists the snapshots, newest first.
    ///
    /// # Errors
    /// [`Error::CorruptFile`] if the header of one is damaged, [`Error::Io`].
    pub fn list(&self) -> Result<Vec<SnapshotInfo>> {
        let info = |version| match self.header(version) {
            Ok((_, header)) => Some(Ok(SnapshotInfo { version, clock: header.clock, bytes: header.bytes })),
            Err(error) if is_removed(&error) => None,
            Err(error) => Some(Err(error)),
        };
        self.versions()?.into_iter().filter_map(info).collect()
    }

    /// Lists the versions of the snapshots, newest first, also of damaged ones.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn versions(&self) -> Result<Vec<Version>> {
        let names = self.disk.list(&self.path).during("list", &self.disk.shown(&self.path))?;
        let mut versions: Vec<Version> = names.iter().filter_map(|name| version_in(name)).collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        Ok(versions)
    }

    /// Checks that so many bytes leave enough of the disk free.
    fn check_room(&self, needed: u64, shown: &str) -> Result<()> {
        let (free, reserve) = (self.disk.free_bytes().during("read the free space of", shown)?, self.reserve_bytes);
        if free < needed || free - needed < reserve { Err(Error::Full { needed, free, reserve }) } else { Ok(()) }
    }

    /// Begins a snapshot of everything up to `version`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`].
    pub fn begin(&self, version: Version, clock: u64) -> Result<SnapshotWriter> {
        let path = format!("{}{TEMPORARY}", self.file(version));
        let shown = self.disk.shown(&path);
        self.check_room(PAGE_BYTES, &shown)?;
        let file = self.disk.create(&path, PAGE_BYTES).during("create", &shown)?;
        let header = SnapshotHeader { version, clock, bytes: 0, digest: 0 };
        let (block, pending) = (Vec::with_capacity(Block::BYTES), Vec::with_capacity(WRITE_BYTES));
        Ok(SnapshotWriter {
            snapshots: self.clone(),
            file,
            path,
            header,
            block,
            pending,
            blocks: 0,
            offset: PAGE_BYTES,
            is_done: false,
        })
    }

    /// Opens the snapshot of a version.
    ///
    /// # Errors
    /// [`Error::CorruptFile`], [`Error::Io`].
    pub fn open(&self, version: Version) -> Result<SnapshotReader> {
        let (file, header) = self.header(version)?;
        let path = self.disk.shown(&self.file(version));
        Ok(SnapshotReader::new(file, path, self.binding, header))
    }

    /// Reads all snapshots and checks every checksum. Returns the damage of each.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn verify(&self) -> Result<Vec<Error>> {
        let mut findings = Vec::new();
        for version in self.versions()? {
            let read = self.open(version).and_then(|mut reader| {
                while reader.next()?.is_some() {}
                Ok(())
            });
            match read {
                Err(error @ Error::CorruptFile { .. }) => findings.push(error),
                Err(error) if is_removed(&error) => {}
                other => other?,
            }
        }
        Ok(findings)
    }

    fn file(&self, version: Version) -> String {
        Self::path_in(&self.path, version)
    }

    /// The path of a snapshot of the log in `directory`.
    pub(crate) fn path_in(directory: &str, version: Version) -> String {
        format!("{directory}/{PREFIX}{:016x}-{:016x}", version.epoch, version.sequence)
    }

    fn header(&self, version: Version) -> Result<(Arc<dyn File>, SnapshotHeader)> {
        let path = self.file(version);
        let shown = self.disk.shown(&path);
        let file = self.disk.open(&path).during("open", &shown)?;
        let mut page = vec![0; PAGE_BYTES as usize];
        let read = read_full(&*file, &mut page, 0).during("read", &shown)?;
        match SnapshotHeader::parse(&page[..read], self.binding).filter(|header| header.version == version) {
            Some(header) => Ok((file, header)),
            None => Err(Error::CorruptFile { path: shown, reason: "the header of the snapshot is damaged" }),
        }
    }

    /// Removes the snapshots below a version, except for one.
    fn remove_below(&self, version: Version, kept: Option<Version>) -> Result<()> {
        for found in self.versions()?.into_iter().filter(|found| *found < version && Some(*found) != kept) {
            let path = self.file(found);
            self.disk.remove(&path).during("remove", &self.disk.shown(&path))?;
        }
        Ok(())
    }
}

/// Whether the owner has removed the file, as it does when newer snapshots are complete.
fn is_removed(error: &Error) -> bool {
    matches!(error, Error::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound)
}

fn version_in(name: &str) -> Option<Version> {
    let (epoch, sequence) = name.strip_prefix(PREFIX)?.split_once('-')?;
    (epoch.len() == 16 && sequence.len() == 16).then_some(())?;
    Some(Version::new(u64::from_str_radix(epoch, 16).ok()?, u64::from_str_radix(sequence, 16).ok()?))
}

/// Writes a snapshot. Without [`finish`](Self::finish) nothing of it is left.
pub struct SnapshotWriter {
    snapshots: Snapshots,
    file: Arc<dyn File>,
    path: String,
    header: SnapshotHeader,
    /// The content of the block that is being filled.
    block: Vec<u8>,
    /// Finished blocks that are not written.
    pending: Vec<u8>,
    blocks: u64,
    offset: u64,
    is_done: bool,
}

impl SnapshotWriter {
    /// Adds bytes of the state.
    ///
    /// # Errors
    /// [`Error::Full`] before reserved space is used, [`Error::Io`].
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let step = (SNAPSHOT_BLOCK_BYTES - self.block.len()).min(bytes.len());
            self.block.extend_from_slice(&bytes[..step]);
            bytes = &bytes[step..];
            if self.block.len() == SNAPSHOT_BLOCK_BYTES {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        let header = Block::header(self.snapshots.binding, self.header.version, self.blocks, &self.block);
        self.header.digest = crc32c_append(self.header.digest, &header[..4]);
        self.header.bytes += self.block.len() as u64;
        self.blocks += 1;
        self.pending.extend_from_slice(&header);
        self.pending.extend_from_slice(&self.block);
        self.block.clear();
        if self.pending.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let (shown, needed) = (self.snapshots.disk.shown(&self.path), self.pending.len() as u64);
        self.snapshots.check_room(needed, &shown)?;
        write_all(&*self.file, &[&self.pending], self.offset).during("write", &shown)?;
        self.offset += needed;
        self.pending.clear();
        Ok(())
    }

    /// Makes the snapshot durable, reads it back, puts it in place, and removes older ones.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::CorruptFile`] if the bytes differ when they are read back,
    /// [`Error::Io`]. Older snapshots are left in each case.
    pub fn finish(self) -> Result<SnapshotInfo> {
        self.finish_beside(None)
    }

    /// As [`finish`](Self::finish), and keeps the snapshot of the version `kept`, which the caller
    /// knows to be valid: for the case that the new one is damaged later.
    ///
    /// # Errors
    /// As there.
    pub fn finish_beside(self, kept: Option<Version>) -> Result<SnapshotInfo> {
        self.prepare()?.put_beside(kept)
    }

    /// Makes the snapshot durable and reads it back, but does not put it in place: it does not count,
    /// and a start removes it.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn prepare(mut self) -> Result<PreparedSnapshot> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.flush()?;
        let shown = self.snapshots.disk.shown(&self.path);
        let header = self.header.encode(self.snapshots.binding);
        write_all(&*self.file, &[&header], 0).during("write", &shown)?;
        if !mutation!(SnapshotNotSynced) {
            self.file.sync_data().during("sync", &shown)?;
        }
        let mut reader = SnapshotReader::new(self.file.clone(), shown, self.snapshots.binding, self.header);
        while reader.next()?.is_some() {}
        Ok(PreparedSnapshot(self))
    }
}

/// A snapshot that is on disk, verified, and does not count yet. If it is dropped, its file is removed.
pub struct PreparedSnapshot(SnapshotWriter);

impl PreparedSnapshot {
    /// Puts the snapshot in place, and removes older ones except for that of the version `kept`.
    ///
    /// # Errors
    /// [`Error::Io`]. It can be tried again.
    pub fn put_beside(&mut self, kept: Option<Version>) -> Result<SnapshotInfo> {
        let SnapshotWriter { snapshots, path, header, is_done, .. } = &mut self.0;
        let (SnapshotHeader { version, clock, bytes, .. }, disk) = (*header, &snapshots.disk);
        if !*is_done {
            disk.rename(path, &snapshots.file(version)).during("rename", &disk.shown(path))?;
            *is_done = true;
        }
        disk.sync_directory(&snapshots.path).during("sync", &disk.shown(&snapshots.path))?;
        snapshots.remove_below(version, kept)?;
        Ok(SnapshotInfo { version, clock, bytes })
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = self.snapshots.disk.remove(&self.path);
        }
    }
}

/// Reads a snapshot block by block. Each block is verified before it is returned.
pub struct SnapshotReader {
    file: Arc<dyn File>,
    path: String,
    binding: Binding,
    header: SnapshotHeader,
    buffer: Vec<u8>,
    blocks: u64,
    read: u64,
    digest: u32,
}

impl SnapshotReader {
    fn new(file: Arc<dyn File>, path: String, binding: Binding, header: SnapshotHeader) -> Self {
        Self { file, path, binding, header, buffer: vec![0; Block::BYTES], blocks: 0, read: 0, digest: 0 }
    }

    /// Version, clock and size.
    pub fn info(&self) -> SnapshotInfo {
        SnapshotInfo { version: self.header.version, clock: self.header.clock, bytes: self.header.bytes }
    }

    /// The next bytes of the state, or `None` at its end.
    ///
    /// # Errors
    /// [`Error::CorruptFile`], [`Error::Io`].
    #[expect(clippy::should_implement_trait, reason = "the bytes borrow the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        let damaged = |reason| Error::CorruptFile { path: self.path.clone(), reason };
        let left = self.header.bytes - self.read;
        if left == 0 {
            let is_whole = self.digest == self.header.digest;
            return if is_whole { Ok(None) } else { Err(damaged("the blocks of the snapshot do not belong together")) };
        }
        let offset = PAGE_BYTES + self.blocks * Block::BYTES as u64;
        let wanted = (left as usize).min(SNAPSHOT_BLOCK_BYTES) + Block::HEADER_BYTES;
        let read = read_full(&*self.file, &mut self.buffer[..wanted], offset).during("read", &self.path)?;
        let version = self.header.version;
        let block = Block::parse(self.binding, version, self.blocks, &self.buffer[..read]);
        let Some((content, crc)) = block.filter(|(content, _)| content.len() + Block::HEADER_BYTES == wanted) else {
            return Err(damaged("a block of the snapshot is damaged"));
        };
        self.digest = crc32c_append(self.digest, &crc.to_le_bytes());
        self.blocks += 1;
        self.read += content.len() as u64;
        Ok(Some(content))
    }
}
