//! The name of a rack.
use super::bytes::{Reader, WireError, Writer};
use crate::limits::RACK_BYTES_MAX;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// The name of a rack: a set of members between which blocks cost less than to other members. 1 to
/// 64 printable ASCII characters without spaces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RackName(Box<str>);

/// The error for a text that can't be the name of a rack.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a rack's name is 1 to {max} letters, digits and signs, all of them ASCII and no spaces; {name:?} is none",
    max = RACK_BYTES_MAX
)]
pub struct RackNameError {
    /// The beginning of the text.
    pub name: String,
}

impl RackName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RackName {
    type Err = RackNameError;

    fn from_str(name: &str) -> Result<RackName, RackNameError> {
        let is_fine = (1..=RACK_BYTES_MAX).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic());
        if is_fine {
            Ok(RackName(name.into()))
        } else {
            Err(RackNameError { name: name.chars().take(RACK_BYTES_MAX).collect() })
        }
    }
}

impl fmt::Display for RackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Appends the name of a process's rack, or an empty text if it has none. No name is empty.
pub(super) fn put_rack(out: &mut Writer, rack: Option<&RackName>) {
    out.text(rack.map_or("", RackName::as_str));
}

pub(super) fn rack(from: &mut Reader<'_>) -> Result<Option<RackName>, WireError> {
    let field = "name of a rack";
    match from.text(field)? {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| WireError::Value { field }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_short_and_of_one_word() {
        for good in ["r", "row-1", "a/b:c", "\"", &"x".repeat(64)] {
            assert_eq!(good.parse::<RackName>().unwrap().to_string(), good);
        }
        for bad in ["", "row 1", "r\u{e4}ck", "a\n", "\0", &"x".repeat(65)] {
            let error = bad.parse::<RackName>().unwrap_err().to_string();
            assert!(error.contains("1 to 64 letters"), "{error}");
        }
    }
}
