//! Events on the standard error, one JSON object a line.
use std::fmt::Display;
use std::io::{Write, stderr};

/// Writes a line with one call, so that it is whole in a pipe or a file even if the process is
/// killed meanwhile.
///
/// `eprintln!` writes each part of an object by itself, because the standard error has no buffer.
pub(crate) fn tell(object: impl Display) {
    // It is not an error if the reader is gone.
    let _ = stderr().lock().write_all(format!("{object}\n").as_bytes());
}
