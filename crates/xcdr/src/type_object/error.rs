//! The errors of making and reading type objects.
use super::hash::TypeHash;
use crate::error::{CdrReadError, CdrWriteError};

/// Why a type has no type object, or a type object no type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeObjectError {
    /// The type contains itself.
    #[error("type {name} contains itself; type objects of recursive types are not supported")]
    Recursive {
        /// The name of the type.
        name: String,
    },
    /// The type has no name.
    #[error("the type is no structure, union, enumeration or bit mask; put it into a structure")]
    Unnamed,
    /// The description refers to a type that it lacks.
    #[error("the description lacks type {index}; describe the type anew")]
    Lacks {
        /// The index of the type.
        index: u32,
    },
    /// A type that another one refers to is missing.
    #[error("the type object {hash} is missing; ask its owner for it")]
    Missing {
        /// The hash of the missing type object.
        hash: TypeHash,
    },
    /// The type object is minimal, so it has no names.
    #[error("the type object {hash} is minimal and has no names; ask its owner for the complete one")]
    Minimal {
        /// The hash of the type object.
        hash: TypeHash,
    },
    /// The type object does not have the hash that it is named by.
    #[error("the type object has the hash {got}, and {expected} was expected; it is damaged")]
    Hash {
        /// The hash that was expected.
        expected: TypeHash,
        /// The hash of the bytes.
        got: TypeHash,
    },
    /// The type has a part that is not supported.
    #[error("{what} (kind {kind:#04x}) are not supported")]
    Unsupported {
        /// The part.
        what: &'static str,
        /// The kind of the type identifier.
        kind: u8,
    },
    /// The type object can't be encoded.
    #[error(transparent)]
    Write(#[from] CdrWriteError),
    /// The bytes are no type object.
    #[error("the type object can't be read: {0}")]
    Read(#[from] CdrReadError),
}
