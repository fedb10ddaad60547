//! Plain types: their layout in memory is their encoding, so values are lent and read in place.
//!
//! The only file of the crate with unsafe code. A [`Plain`] type has no padding and no pointers, and
//! every pattern of bits is a value. Without padding in memory, each member lies at a multiple of its
//! size, so both versions of XCDR place it at the same offset. `#[dds(plain)]` checks this when the
//! type is compiled.
#![allow(unsafe_code)]
use crate::characters::{Char8, Char16, Octet};
use crate::encapsulation::Encapsulation;
use crate::error::CdrReadError;
use crate::format::{ByteOrder, Extensibility, XcdrVersion};

/// A type whose layout in memory is its encoding in the native byte order.
///
/// # Safety
/// The type has no padding, no pointers and no interior mutability, every pattern of bits is a value,
/// and its encoding in both versions of XCDR has the bytes of its memory.
pub unsafe trait Plain: Copy + 'static {
    /// Returns the bytes of the value.
    fn as_bytes(&self) -> &[u8] {
        Self::slice_as_bytes(core::slice::from_ref(self))
    }

    /// Returns the bytes of values that follow each other.
    fn slice_as_bytes(values: &[Self]) -> &[u8] {
        // SAFETY: the pointer and the size are those of a slice that is borrowed as long as the
        // result, and `Plain` says that each of its bytes is initialised.
        unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
    }

    /// Lends a value from its bytes.
    ///
    /// # Errors
    /// `Size` if there are more or fewer bytes; `Alignment` if they don't start at a multiple of the
    /// type's alignment.
    fn from_bytes(bytes: &[u8]) -> Result<&Self, LendError> {
        if bytes.len() != size_of::<Self>() {
            return Err(LendError::Size { expected: size_of::<Self>(), got: bytes.len() });
        }
        let values = Self::slice_from_bytes(bytes)?;
        values.first().ok_or(LendError::Size { expected: size_of::<Self>(), got: 0 })
    }

    /// Lends values from their bytes.
    ///
    /// # Errors
    /// `Size` if the bytes are no multiple of a value's; `Alignment` as above.
    fn slice_from_bytes(bytes: &[u8]) -> Result<&[Self], LendError> {
        let (size, alignment) = (size_of::<Self>(), align_of::<Self>());
        if size == 0 || !bytes.len().is_multiple_of(size) {
            return Err(LendError::Size { expected: size, got: bytes.len() });
        }
        if !bytes.as_ptr().addr().is_multiple_of(alignment) {
            return Err(LendError::Alignment { alignment });
        }
        // SAFETY: the length is a multiple of the size, the pointer is aligned, the bytes are
        // borrowed as long as the result, and `Plain` says that every pattern of bits is a value.
        Ok(unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size) })
    }
}

/// Why a value can't be lent from bytes. It can still be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LendError {
    /// The header is invalid.
    #[error(transparent)]
    Header(#[from] CdrReadError),
    /// The sample has the byte order of another machine.
    #[error("the sample is not in the byte order of this machine; decode it")]
    Order,
    /// The sample is of a type that is not final.
    #[error("the sample has representation {id:#06x}, which no plain type has; decode it")]
    Representation {
        /// The identifier of the sample.
        id: u16,
    },
    /// The size differs from that of the type.
    #[error("there are {got} bytes, and a value has {expected}; the sample is of another type")]
    Size {
        /// The size of a value, in bytes.
        expected: usize,
        /// The bytes that are there.
        got: usize,
    },
    /// The bytes don't start at a multiple of the type's alignment.
    #[error("the bytes don't start at a multiple of {alignment}; place the sample's body there, or decode it")]
    Alignment {
        /// The alignment, in bytes.
        alignment: usize,
    },
}

/// Lends the value of a serialised sample with its header, without decoding it.
///
/// # Errors
/// [`LendError`], after which the sample can still be decoded. The body starts four bytes after the
/// sample, and must lie at a multiple of the type's alignment.
pub fn lend_sample<T: Plain>(sample: &[u8]) -> Result<&T, LendError> {
    let (encapsulation, body) = Encapsulation::read(sample)?;
    if encapsulation.order != ByteOrder::NATIVE {
        return Err(LendError::Order);
    }
    if encapsulation.extensibility != Extensibility::Final {
        return Err(LendError::Representation { id: encapsulation.id() });
    }
    T::from_bytes(body)
}

/// Returns the header of a plain sample of this machine: final, in XCDR2.
pub const fn plain_encapsulation() -> Encapsulation {
    Encapsulation { version: XcdrVersion::Xcdr2, extensibility: Extensibility::Final, order: ByteOrder::NATIVE }
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: a number, or a transparent wrapper of one: no padding, and every pattern of bits
        // is a value, which is encoded as the bytes of its memory.
        unsafe impl Plain for $type {}
    )*};
}

plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, Char8, Char16, Octet);

// SAFETY: an array has no padding between its elements, and is encoded as its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
