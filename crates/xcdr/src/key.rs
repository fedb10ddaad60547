//! Key hashes (RTPS 2.5, 9.6.4.8; DDS-XTypes 1.3, 7.6.8).
//!
//! The hash of a key is its encoding as PLAIN_CDR2 in big endian, with the members in the order of
//! their identifiers and each type as if it were final. If the encoding of any key of the type can
//! exceed 16 bytes, the hash is the MD5 of the encoding; else it is the encoding and zeros.
use crate::dds_type::DdsType;
use crate::description::{DataType, TypeBody, TypeDescription};
use crate::encoder::{CdrEncoder, DEPTH_MAX, EncodeKind};
use crate::error::CdrWriteError;
use crate::format::{ByteOrder, XcdrVersion};
use md5::{Digest, Md5};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// The bytes of a key hash.
const HASH_BYTES: u64 = 16;
/// The values of a type that are looked at to find the size of its key.
const STEPS_MAX: u32 = 1 << 16;

/// The identity of an instance of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; HASH_BYTES as usize]);

impl KeyHash {
    /// The hash of types without a key.
    pub const NONE: KeyHash = KeyHash([0; HASH_BYTES as usize]);

    /// Makes the hash of an encoded key; `digest` says whether keys of the type can exceed 16 bytes.
    pub fn of_bytes(key: &[u8], digest: bool) -> KeyHash {
        if digest || key.len() > HASH_BYTES as usize {
            return KeyHash(Md5::digest(key).into());
        }
        let mut hash = KeyHash::NONE;
        hash.0[..key.len()].copy_from_slice(key);
        hash
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({self})")
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Computes the key hashes of one type. Make it once: whether MD5 is needed depends on the type only.
#[derive(Debug)]
pub struct KeyHasher<T> {
    digest: bool,
    of: PhantomData<fn(&T)>,
}

impl<T> Clone for KeyHasher<T> {
    fn clone(&self) -> KeyHasher<T> {
        *self
    }
}

impl<T> Copy for KeyHasher<T> {}

impl<T: DdsType> Default for KeyHasher<T> {
    fn default() -> KeyHasher<T> {
        KeyHasher { digest: key_size_max(&T::description()).is_none(), of: PhantomData }
    }
}

impl<T: DdsType> KeyHasher<T> {
    /// Returns whether hashes are made with MD5.
    pub fn digests(&self) -> bool {
        self.digest
    }

    /// Returns the hash of a value's key; [`KeyHash::NONE`] for types without a key.
    ///
    /// # Errors
    /// [`CdrWriteError`] if the key has no encoding, such as a string beyond its bound.
    pub fn hash(&self, value: &T) -> Result<KeyHash, CdrWriteError> {
        if !T::KEYED {
            return Ok(KeyHash::NONE);
        }
        Ok(KeyHash::of_bytes(&key_bytes(value)?, self.digest))
    }
}

/// Encodes a key as its hash needs it, without MD5.
///
/// # Errors
/// As [`KeyHasher::hash`].
pub fn key_bytes<T: DdsType>(value: &T) -> Result<Vec<u8>, CdrWriteError> {
    let mut to = CdrEncoder::new(XcdrVersion::Xcdr2, ByteOrder::Big).kind(EncodeKind::KeyHash);
    value.encode_key(&mut to)?;
    Ok(to.finish())
}

/// Returns the size of the largest key of a type in bytes, or `None` if it can exceed 16, or if the
/// type has more than 65,536 parts.
pub fn key_size_max(types: &TypeDescription) -> Option<u64> {
    let steps = Cell::new(STEPS_MAX);
    Extent { types, depth: 0, steps: &steps }.after(&types.root, 0, true)
}

/// Computes where values end at most. Ends beyond 16 bytes are `None`.
#[derive(Clone, Copy)]
struct Extent<'a> {
    types: &'a TypeDescription,
    depth: u16,
    /// How many more values are looked at: a description may name many that have no bytes.
    steps: &'a Cell<u32>,
}

impl Extent<'_> {
    /// Returns the end of the largest value that starts at `at`.
    ///
    /// Alignment never moves a later start before an earlier one, so the longest value ends last.
    fn after(self, data: &DataType, at: u64, key: bool) -> Option<u64> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        if self.depth > DEPTH_MAX {
            return None;
        }
        let inner = Extent { depth: self.depth + 1, ..self };
        match data {
            DataType::Primitive(kind) => number(at, kind.size()),
            DataType::String(0) | DataType::WideString(0) => None,
            DataType::String(bound) => ends(number(at, 4)? + u64::from(*bound) + 1),
            DataType::WideString(bound) => ends(number(at, 4)? + 2 * u64::from(*bound)),
            DataType::Sequence(_, 0) | DataType::Map(..) => None,
            DataType::Sequence(element, bound) => {
                let header = if self.types.is_primitive(element) { at } else { number(at, 4)? };
                inner.repeated(element, number(header, 4)?, u64::from(*bound), key)
            }
            DataType::Array(element, dimensions) => {
                let start = if self.types.is_primitive(element) { at } else { number(at, 4)? };
                let count = dimensions.iter().try_fold(1, |count: u64, length| count.checked_mul((*length).into()))?;
                inner.repeated(element, start, count, key)
            }
            DataType::Named(index) => match &self.types.get(*index)?.body {
                TypeBody::Enum(own) => number(at, own.size()),
                TypeBody::Bitmask(own) => number(at, own.size()),
                TypeBody::Struct(own) => {
                    let keyed = key && own.members.iter().any(|member| member.key);
                    let mut members: Vec<_> = own.members.iter().filter(|member| member.key || !keyed).collect();
                    members.sort_by_key(|member| member.id);
                    members.iter().try_fold(at, |at, member| {
                        inner.after(&member.data, if member.optional { at + 1 } else { at }, key)
                    })
                }
                TypeBody::Union(own) => {
                    let start = inner.after(&own.discriminator, at, false)?;
                    let members = own.cases.iter().filter_map(|case| case.data.as_ref());
                    let members = members.filter(|_| !(key && own.discriminator_is_key));
                    members
                        .map(|data| inner.after(data, start, false))
                        .try_fold(start, |end, case| Some(end.max(case?)))
                }
            },
        }
    }

    fn repeated(self, element: &DataType, start: u64, count: u64, key: bool) -> Option<u64> {
        let mut at = start;
        for _ in 0..count {
            let end = self.after(element, at, key)?;
            if end == at {
                break;
            }
            at = end;
        }
        Some(at)
    }
}

/// Returns the end of a number of `size` bytes.
fn number(at: u64, size: usize) -> Option<u64> {
    let alignment = size.min(XcdrVersion::Xcdr2.align_max()) as u64;
    ends(at.next_multiple_of(alignment) + size as u64)
}

fn ends(at: u64) -> Option<u64> {
    (at <= HASH_BYTES).then_some(at)
}
