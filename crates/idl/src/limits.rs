//! The maxima of the compiler. Hostile input ends in an error, not in a full stack or memory.

/// The largest file, in bytes.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;
/// The longest line, in bytes; of a directive, with the lines that continue it.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;
/// The largest text of one file with its includes, in bytes.
pub(crate) const UNIT_BYTES_MAX: usize = 4 << 20;
/// The most files that one file includes, counting each inclusion.
pub(crate) const INCLUDES_MAX: usize = 512;
/// The most files that include each other.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 32;
/// The most macros whose texts contain each other.
pub(crate) const MACRO_DEPTH_MAX: usize = 32;
/// The most uses of macros in one file with its includes.
pub(crate) const EXPANSIONS_MAX: usize = 100_000;
/// The most conditions in each other, of `#ifdef` and of an expression of `#if`.
pub(crate) const CONDITIONS_MAX: usize = 64;
/// The most brackets, or sequences, in each other.
pub(crate) const NESTING_MAX: usize = 32;
/// The most operands or operators of one expression, and the depth of its tree.
pub(crate) const TERMS_MAX: usize = 128;
/// The most types in each other without a structure or union between, and the longest chain of bases.
pub(crate) const TYPE_DEPTH_MAX: usize = 32;
/// The most members of a structure or union, with those of its bases.
pub(crate) const MEMBERS_MAX: usize = 4096;
/// The most names that are compared with an unknown one.
pub(crate) const NEAREST_MAX: usize = 4096;
/// The most errors that are reported.
pub(crate) const ERRORS_MAX: usize = 100;

const _: () = assert!(FILE_BYTES_MAX < UNIT_BYTES_MAX && UNIT_BYTES_MAX < u32::MAX as usize);
