//! Characters and octets: primitive types of IDL for which Rust has no type of its own.

/// A character of eight bits: `char` of IDL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Char8(pub u8);

/// A character of 16 bits: `wchar` of IDL. It holds a code unit of UTF-16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Char16(pub u16);

/// Eight bits without a meaning: `octet` of IDL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Octet(pub u8);
