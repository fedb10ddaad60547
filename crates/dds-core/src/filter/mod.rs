//! Filters of samples: the expressions of content-filtered topics and query conditions (DDS annex B).
//!
//! An expression is checked against the type when it is made, and errors have the column. It is evaluated
//! on the serialised sample, of which it reads the fields that it names and no more.
//!
//! Implementations of DDS disagree in some points, in which this one does the following.
//!
//! - LIKE takes `%` and `*` for any characters, `_` and `?` for one, `\` before one that counts as itself.
//! - MATCH takes a regular expression for the whole text. `!=` is `<>`; `TRUE` and `FALSE` are values.
//! - A field may have indices: `points[3].x`.
//! - A comparison with an absent field is neither true nor false, and only true conditions pass.
//! - The text of a parameter may have quotes or not.
//! - A sample that disposes or unregisters an instance has a key only. An expression over the key is
//!   evaluated on it. Otherwise it passes if the reader knows the instance, which would stay alive else.
mod content;
mod error;
mod lexer;
mod parser;
mod pattern;
mod program;
mod value;

pub use content::{ContentFilter, Query, SortKey};
pub use error::{FilterError, FilterFault};
