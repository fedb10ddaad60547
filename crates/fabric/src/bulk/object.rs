//! What is sent and received, and what it stands in.
use crate::region::{OwnRegion, PeerRegion, RegionError};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Bytes that don't change any more: what is sent, and what was received. Clones are the same bytes.
#[derive(Clone)]
pub struct Object(Arc<Place>);

/// Memory to receive an object into. It becomes an [`Object`] once all of it is there.
#[derive(Debug)]
pub struct Buffer(Room);

/// Memory that can be shared with other processes, which map it read-only. Made into an [`Object`], it is read by others of this machine
/// where it stands; so it can't be written again after that.
#[derive(Debug)]
pub struct Segment {
    region: OwnRegion,
    fd: OwnedFd,
    bytes: u64,
}

#[derive(Debug)]
enum Room {
    Bytes(Vec<u8>),
    Segment(Segment),
}

#[derive(Debug)]
enum Place {
    Room(Room),
    /// The memory of another process, mapped, and how many bytes of it are the object's.
    Lent(PeerRegion, u64),
}

impl Object {
    /// Its segment, if it stands in one of this process's.
    pub fn segment(&self) -> Option<&Segment> {
        match &*self.0 {
            Place::Room(Room::Segment(segment)) => Some(segment),
            _ => None,
        }
    }

    /// The vector in which it stands, to be used again.
    ///
    /// # Errors
    /// The object, if it stands in something else or has clones.
    pub fn into_vec(self) -> Result<Vec<u8>, Object> {
        match Arc::try_unwrap(self.0) {
            Ok(Place::Room(Room::Bytes(bytes))) => Ok(bytes),
            Ok(other) => Err(Object(Arc::new(other))),
            Err(shared) => Err(Object(shared)),
        }
    }

    /// Maps the segment of another process that `fd` is, which lends the first `bytes` bytes of it.
    ///
    /// # Errors
    /// As [`PeerRegion::open`].
    pub fn lent(fd: impl AsFd, bytes: u64) -> Result<Object, RegionError> {
        Ok(Object(Arc::new(Place::Lent(PeerRegion::open(NAME, fd, bytes.max(1))?, bytes))))
    }
}

impl Deref for Object {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Place::Room(room) => room,
            // Its owner made it an object before lending it, and has no way to write it since.
            Place::Lent(region, bytes) => region.bytes(0, *bytes),
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
        Object(Arc::new(Place::Room(buffer.0)))
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &*self.0 {
            Place::Room(Room::Bytes(_)) => "Bytes",
            Place::Room(Room::Segment(_)) => "Segment",
            Place::Lent(..) => "Lent",
        };
        write!(f, "Object::{kind}({} bytes)", self.len())
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(Room::Bytes(bytes))
    }
}

impl From<Segment> for Buffer {
    fn from(segment: Segment) -> Buffer {
        Buffer(Room::Segment(segment))
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
            Room::Bytes(bytes) => bytes,
            Room::Segment(segment) => segment,
        }
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Room::Bytes(bytes) => bytes,
            Room::Segment(segment) => segment,
        }
    }
}

const NAME: &str = "spindle-object";

impl Segment {
    /// Zero bytes, all of which are there: no page of it is missing when it is written first.
    ///
    /// # Errors
    /// As [`OwnRegion::create`].
    pub fn create(bytes: u64) -> Result<Segment, RegionError> {
        let (region, fd) = OwnRegion::create(NAME, bytes.max(1), 0)?;
        Ok(Segment { region, fd, bytes })
    }
}

/// What maps it.
impl AsFd for Segment {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for Segment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // Whoever writes it borrows it alone.
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
        let objects = [Object::from(b"hello".to_vec()), segment().into(), Buffer::from(segment()).into()];
        assert!(objects.iter().all(|object| **object == *b"hello"));
        let [vec, segment, _] = objects;
        assert!(vec.segment().is_none());
        let lent = Object::lent(segment.segment().unwrap(), 5).unwrap();
        drop(segment);
        assert_eq!(*lent, *b"hello", "the memory outlives who made it");
        let lent = lent.into_vec().unwrap_err();
        let clone = vec.clone();
        let vec = vec.into_vec().unwrap_err();
        drop(clone);
        assert_eq!((vec.into_vec().unwrap(), lent.len()), (b"hello".to_vec(), 5));
    }

    #[test]
    fn a_segment_of_another_length_is_refused_and_none_of_no_bytes() {
        let segment = Segment::create(4096).unwrap();
        assert!(matches!(Object::lent(&segment, 4097), Err(RegionError::Size { expected: 4097, got: 4096 })));
        let empty = Segment::create(0).unwrap();
        assert_eq!(Object::lent(&empty, 0).unwrap().len(), 0);
    }
}
