//! Identities of entities and instances, and positions in the order of samples.
use serde::{Deserialize, Serialize};
use spindle_xcdr::KeyHash;
use std::cmp::Ordering;
use std::fmt;

/// The identity of an entity, unique in its domain. Ties between writers go to the smaller one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// The handle of an instance or an entity (DDS 2.2.2.5.3.16, `InstanceHandle_t`).
///
/// The handle of an instance is the hash of its key, so it is the same at all participants. HANDLE_NIL
/// is `None` of an `Option`. The order of handles is the order of `read_next_instance`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceHandle(pub [u8; 16]);

macro_rules! ordered {
    ($($of:ty),*) => {$(
        impl Ord for $of {
            /// Compares the bytes, as one number: maps compare very often.
            fn cmp(&self, other: &Self) -> Ordering {
                u128::from_be_bytes(self.0).cmp(&u128::from_be_bytes(other.0))
            }
        }

        impl PartialOrd for $of {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
    )*};
}

ordered!(Guid, InstanceHandle);

impl InstanceHandle {
    /// The only instance of a topic without a key.
    pub const KEYLESS: InstanceHandle = InstanceHandle(KeyHash::NONE.0);
}

impl From<KeyHash> for InstanceHandle {
    fn from(hash: KeyHash) -> InstanceHandle {
        InstanceHandle(hash.0)
    }
}

impl From<Guid> for InstanceHandle {
    fn from(guid: Guid) -> InstanceHandle {
        InstanceHandle(guid.0)
    }
}

impl fmt::Display for InstanceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for InstanceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InstanceHandle({self})")
    }
}

/// The place of a sample or an event in the order of its order domain. It is the same at all readers.
///
/// Positions of different order domains are not comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The order domain.
    pub domain: u32,
    /// The view in which the message was delivered.
    pub view: u64,
    /// The sequence number of the message in its view.
    pub seq: u64,
    /// The index of the sample in its message.
    pub index: u32,
}

impl Position {
    /// Returns the order inside of one domain.
    pub fn place(self) -> (u64, u64, u32) {
        (self.view, self.seq, self.index)
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Position) -> Option<Ordering> {
        (self.domain == other.domain).then(|| self.place().cmp(&other.place()))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.domain, self.view, self.seq)?;
        if self.index == 0 { Ok(()) } else { write!(f, "+{}", self.index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_compare_inside_one_domain_only() {
        let at = |domain, view, seq, index| Position { domain, view, seq, index };
        assert!(at(1, 2, 3, 0) < at(1, 2, 3, 1));
        assert!(at(1, 2, 9, 9) < at(1, 3, 0, 0));
        assert_eq!(at(1, 0, 0, 0).partial_cmp(&at(2, 0, 0, 0)), None);
        assert_eq!(at(1, 2, 3, 0).to_string(), "1:2:3");
        assert_eq!(at(1, 2, 3, 4).to_string(), "1:2:3+4");
    }
}
