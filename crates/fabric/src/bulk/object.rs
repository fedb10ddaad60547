//! The objects that are sent and received, and the memory that contains them.
use crate::region::{FileRegion, OwnRegion, PeerRegion, RegionError, advise_huge_pages};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that don't change any more: an object that is sent, or that was received. Clones are the
/// same bytes.
#[derive(Clone)]
pub struct Object(Arc<ObjectMemory>);

/// Memory to receive an object into. It becomes an [`Object`] once all of the object is there.
#[derive(Debug)]
pub struct Buffer(BufferMemory);

/// Memory that can be shared with other processes, which map it read-only. When it is made into an
/// [`Object`], others on this machine read it in place. It is written again only when all of them
/// have reported that they no longer read it ([`LocalLinks::segment`](super::LocalLinks::segment)).
#[derive(Debug)]
pub struct Segment {
    region: OwnRegion,
    fd: OwnedFd,
    /// The bytes in use, from the start.
    bytes: u64,
    /// The number of the segment in this process.
    id: u64,
    /// Whether an untracked process may read it.
    is_abandoned: AtomicBool,
}

/// The callback for when an object that was lent is dropped.
pub(super) trait Loan: fmt::Debug + Send + Sync {
    /// Called when it is no longer read.
    fn end(&self);
}

/// Memory of another process, mapped.
#[derive(Debug)]
struct LentMemory {
    region: Arc<PeerRegion>,
    bytes: u64,
    loan: Box<dyn Loan>,
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        self.loan.end();
    }
}

#[derive(Debug)]
enum BufferMemory {
    Bytes(Vec<u8>),
    Segment(Segment),
    File(FileRegion),
}

#[derive(Debug)]
enum ObjectMemory {
    Room(BufferMemory),
    Lent(LentMemory),
}

impl Object {
    /// Maps all bytes of a file: they are read from it when they are sent.
    ///
    /// # Errors
    /// [`RegionError`].
    ///
    /// # Safety
    /// No process changes the file, or shortens it, as long as the object or a clone of it lives.
    pub unsafe fn map(file: &File) -> Result<Object, RegionError> {
        let metadata = file.metadata();
        let os = |source| RegionError::Os { call: "fstat", name: FILE.to_string(), source };
        let bytes = metadata.map_err(os)?.len();
        if bytes == 0 {
            return Ok(vec![].into());
        }
        // SAFETY: by this function's contract.
        let region = unsafe { FileRegion::open(FILE, file, bytes, false) }?;
        Ok(Buffer(BufferMemory::File(region)).into())
    }

    /// Returns its segment, if it is in one of this process's.
    pub fn segment(&self) -> Option<&Segment> {
        match &*self.0 {
            ObjectMemory::Room(BufferMemory::Segment(segment)) => Some(segment),
            _ => None,
        }
    }

    /// Returns the vector that contains it, to be used again.
    ///
    /// # Errors
    /// The object, if it is in another kind of memory or has clones.
    pub fn into_vec(self) -> Result<Vec<u8>, Object> {
        match Arc::try_unwrap(self.0) {
            Ok(ObjectMemory::Room(BufferMemory::Bytes(bytes))) => Ok(bytes),
            Ok(other) => Err(Object(Arc::new(other))),
            Err(shared) => Err(Object(shared)),
        }
    }

    /// Returns its segment, if it has no other owner in this process, and it was not abandoned. The
    /// caller must know that no other process reads it on the caller's account (INV-LENT).
    pub(super) fn into_segment(self) -> Result<Segment, Object> {
        match Arc::try_unwrap(self.0) {
            Ok(ObjectMemory::Room(BufferMemory::Segment(segment))) if !segment.is_abandoned.load(Ordering::Relaxed) => {
                Ok(segment)
            }
            Ok(other) => Err(Object(Arc::new(other))),
            Err(shared) => Err(Object(shared)),
        }
    }

    /// Creates an object of the first `bytes` bytes of another process's memory, which has at least
    /// that many and is not written before `loan` is ended.
    pub(super) fn lent(region: Arc<PeerRegion>, bytes: u64, loan: impl Loan + 'static) -> Object {
        Object(Arc::new(ObjectMemory::Lent(LentMemory { region, bytes, loan: Box::new(loan) })))
    }
}

impl Buffer {
    /// Allocates zeroes on the heap, in huge pages if there are many and the system has such pages:
    /// they need fewer faults. `None` if there is no memory for them.
    pub fn zeroed(bytes: u64) -> Option<Buffer> {
        let len = usize::try_from(bytes).ok()?;
        // Reserved first, because a failed allocation would end the process.
        Vec::<u8>::new().try_reserve_exact(len).ok()?;
        let mut bytes = vec![0_u8; len];
        advise_huge_pages(&mut bytes);
        Some(bytes.into())
    }

    /// Copies `bytes` into memory like that of [`zeroed`](Self::zeroed). `None` if there is no
    /// memory for it.
    pub fn copied(bytes: &[u8]) -> Option<Buffer> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).ok()?;
        advise_huge_pages(copy.spare_capacity_mut());
        copy.extend_from_slice(bytes);
        Some(copy.into())
    }

    /// Maps a file, made as long as the object, so that the object is received into it. It has to
    /// be open for reading and writing. The system writes it to the disk at any time: sync it when
    /// the object is complete and dropped.
    ///
    /// # Errors
    /// [`RegionError`]; if the disk has no room for it, [`RegionError::Os`] of `fallocate`.
    ///
    /// # Safety
    /// No other process or thread changes the file, or shortens it, as long as the buffer, or an
    /// object that was made of it, lives.
    pub unsafe fn map(file: &File, bytes: u64) -> Result<Buffer, RegionError> {
        let os = |call| move |errno: Errno| RegionError::Os { call, name: FILE.to_string(), source: errno.into() };
        rustix::fs::ftruncate(file, bytes).map_err(os("ftruncate"))?;
        if bytes == 0 {
            return Ok(vec![].into());
        }
        // A write to a page for which the disk has no room would be a fatal signal.
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            // Some file systems can't guarantee room.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(os("fallocate")(errno)),
        }
        // SAFETY: by this function's contract.
        let region = unsafe { FileRegion::open(FILE, file, bytes, true) }?;
        Ok(Buffer(BufferMemory::File(region)))
    }
}

impl Deref for Object {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            ObjectMemory::Room(room) => room,
            // Its owner does not write it before the loan has ended (INV-LENT).
            ObjectMemory::Lent(lent) => lent.region.bytes(0, lent.bytes),
        }
    }
}

impl From<Vec<u8>> for Object {
    fn from(bytes: Vec<u8>) -> Object {
        Buffer::from(bytes).into()
    }
}

impl From<Segment> for Object {
    fn from(segment: Segment) -> Object {
        Buffer::from(segment).into()
    }
}

impl From<Buffer> for Object {
    fn from(buffer: Buffer) -> Object {
        Object(Arc::new(ObjectMemory::Room(buffer.0)))
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &*self.0 {
            ObjectMemory::Room(BufferMemory::Bytes(_)) => "Bytes",
            ObjectMemory::Room(BufferMemory::Segment(_)) => "Segment",
            ObjectMemory::Room(BufferMemory::File(_)) => "File",
            ObjectMemory::Lent(..) => "Lent",
        };
        write!(f, "Object::{kind}({} bytes)", self.len())
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(BufferMemory::Bytes(bytes))
    }
}

impl From<Segment> for Buffer {
    fn from(segment: Segment) -> Buffer {
        Buffer(BufferMemory::Segment(segment))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            BufferMemory::Bytes(bytes) => bytes,
            BufferMemory::Segment(segment) => segment,
            BufferMemory::File(file) => file.bytes_mut(),
        }
    }
}

impl Deref for BufferMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            BufferMemory::Bytes(bytes) => bytes,
            BufferMemory::Segment(segment) => segment,
            BufferMemory::File(file) => file.bytes(),
        }
    }
}

/// The name of the memory of segments.
pub(super) const NAME: &str = "spindle-object";
/// The name of mapped files.
const FILE: &str = "a mapped file";
/// Bytes that a segment may have beyond twice the wanted bytes, and still be used for them.
const SPARE_BYTES: u64 = 1 << 20;

impl Segment {
    /// Creates zero bytes, all of which have memory: no page is missing when it is first written.
    ///
    /// # Errors
    /// As [`OwnRegion::create`].
    pub fn create(bytes: u64) -> Result<Segment, RegionError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (region, fd) = OwnRegion::create(NAME, bytes.max(1), 0)?;
        Ok(Segment {
            region,
            fd,
            bytes,
            id: COUNT.fetch_add(1, Ordering::Relaxed),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// Marks that its present readers may read it for ever: it is never written again.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the bytes of all of it.
    pub(super) fn size(&self) -> u64 {
        self.region.size()
    }

    /// Returns whether it has room for so many bytes, and not for many more.
    pub(super) fn suits(&self, bytes: u64) -> bool {
        (bytes..=bytes.saturating_mul(2).saturating_add(SPARE_BYTES)).contains(&self.size())
    }

    /// Uses so many bytes of it from now on, with their present contents.
    pub(super) fn resize(&mut self, bytes: u64) {
        assert!(bytes <= self.size(), "it has room for them");
        self.bytes = bytes;
    }
}

/// The descriptor for mapping it.
impl AsFd for Segment {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for Segment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // A writer has exclusive access to it.
        self.region.announced(&(0..self.bytes))
    }
}

impl DerefMut for Segment {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.region.bytes_mut(0, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_what_the_buffer_held() {
        let segment = || {
            let mut segment = Segment::create(5).unwrap();
            segment.copy_from_slice(b"hello");
            segment
        };
        assert!(Buffer::zeroed(0).unwrap().is_empty() && Buffer::zeroed(u64::MAX).is_none());
        assert!(*Buffer::zeroed(20 << 20).unwrap() == vec![0; 20 << 20]);
        for bytes in [0, 5, 20 << 20] {
            assert!(*Buffer::copied(&vec![7; bytes]).unwrap() == vec![7; bytes]);
        }
        let objects = [Object::from(b"hello".to_vec()), segment().into(), Buffer::from(segment()).into()];
        assert!(objects.iter().all(|object| **object == *b"hello"));
        let [vec, segment, _] = objects;
        assert!(vec.segment().is_none());
        let region = PeerRegion::open(NAME, segment.segment().unwrap(), 5).unwrap();
        let ended = Arc::new(AtomicU64::new(0));
        let lent = Object::lent(Arc::new(region), 4, ended.clone());
        drop(segment);
        assert_eq!(*lent, *b"hell", "the memory outlives who made it");
        let lent = lent.into_vec().unwrap_err();
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(lent);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        let clone = vec.clone();
        let vec = vec.into_vec().unwrap_err();
        drop(clone);
        assert_eq!(vec.into_vec().unwrap(), b"hello");
    }

    #[test]
    fn a_file_is_received_into_and_sent_from() {
        let file = || File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        for bytes in [0, 5, 10_000] {
            let file = file();
            // SAFETY: no other process has the file, which this test does not change otherwise.
            let mut buffer = unsafe { Buffer::map(&file, bytes) }.unwrap();
            buffer.fill(7);
            let received = Object::from(buffer);
            assert_eq!(received.len() as u64, bytes);
            assert_eq!(file.metadata().unwrap().len(), bytes);
            // SAFETY: as above.
            let sent = unsafe { Object::map(&file) }.unwrap();
            assert!(*sent == *received && sent.iter().all(|byte| *byte == 7));
            assert!(bytes == 0 || sent.into_vec().is_err());
        }
        let read_only = File::open("/proc/self/exe").unwrap();
        // SAFETY: no process changes a program that runs.
        assert!(unsafe { Object::map(&read_only) }.is_ok());
        // SAFETY: it is not mapped.
        assert!(matches!(unsafe { Buffer::map(&read_only, 5) }, Err(RegionError::Os { call: "ftruncate", .. })));
    }

    impl Loan for Arc<AtomicU64> {
        fn end(&self) {
            self.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_segment_is_used_for_what_it_suits() {
        let mut segment = Segment::create(4 << 20).unwrap();
        for (bytes, suits) in [(0, false), (1 << 20, false), (2 << 20, true), (4 << 20, true), ((4 << 20) + 1, false)] {
            assert_eq!(segment.suits(bytes), suits, "{bytes}");
        }
        segment.resize(2 << 20);
        assert_eq!(segment.len(), 2 << 20);
        let segment = Object::from(segment).into_segment().unwrap();
        segment.abandon();
        assert_eq!(Object::from(segment).into_segment().unwrap_err().len(), 2 << 20);
        assert_eq!(Segment::create(0).unwrap().len(), 0);
    }
}
