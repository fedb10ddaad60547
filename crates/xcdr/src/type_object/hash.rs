//! The hash that identifies a type object.
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The identity of a type: the first 14 bytes of the MD5 of its type object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TypeHash(pub [u8; 14]);

impl TypeHash {
    /// Returns the hash of an encoded type object.
    pub fn of_object(object: &[u8]) -> TypeHash {
        let digest: [u8; 16] = Md5::digest(object).into();
        let mut hash = TypeHash([0; 14]);
        hash.0.copy_from_slice(&digest[..14]);
        hash
    }
}

/// Returns the hash of the name of a member, which stands for the name in minimal type objects.
pub(crate) fn name_hash(name: &str) -> [u8; 4] {
    let digest: [u8; 16] = Md5::digest(name.as_bytes()).into();
    [digest[0], digest[1], digest[2], digest[3]]
}

impl fmt::Debug for TypeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeHash({self})")
    }
}

impl fmt::Display for TypeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
