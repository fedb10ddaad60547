//! The choices that make a representation: version, byte order, extensibility.
use std::fmt;

/// The version of the extended common data representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum XcdrVersion {
    /// XCDR version 1: alignment up to 8, parameter lists for mutable types.
    Xcdr1,
    /// XCDR version 2: alignment up to 4, sizes before appendable and mutable types.
    Xcdr2,
}

impl XcdrVersion {
    /// Returns the largest alignment, in bytes.
    pub const fn align_max(self) -> usize {
        match self {
            XcdrVersion::Xcdr1 => 8,
            XcdrVersion::Xcdr2 => 4,
        }
    }
}

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
}

impl ByteOrder {
    /// The order of this machine.
    pub const NATIVE: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
}

/// How a type may change while older readers and writers exist (DDS-XTypes 1.3, 7.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extensibility {
    /// Not at all.
    Final,
    /// New members may follow the last one.
    Appendable,
    /// Members are identified by their numbers, and may come and go.
    Mutable,
}

impl fmt::Display for Extensibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Extensibility::Final => "final",
            Extensibility::Appendable => "appendable",
            Extensibility::Mutable => "mutable",
        })
    }
}
