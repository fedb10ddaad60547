//! The errors of profiles, with their places.
use crate::error::DdsError;
use std::fmt;
use std::sync::Arc;

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The name of the source, as the caller gave it.
    pub source: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.line, self.column)
    }
}

/// An error in a profile, or in a question for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The place; `None` if the error is in a question.
    pub place: Option<Place>,
    /// The path of the element, such as `Library::Profile/datawriter_qos/history/depth`. It is empty for the
    /// source as a whole.
    pub path: String,
    /// The problem.
    pub problem: Box<ProfileProblem>,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for ProfileError {}

/// A problem of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileProblem {
    /// The source is longer than a source may be.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The most bytes.
        most: usize,
    },
    /// The text is not well-formed XML or TOML.
    Syntax(String),
    /// A name is unknown at its place.
    Unknown {
        /// The kind of name: element, attribute, key or profile.
        what: &'static str,
        /// The name.
        name: String,
        /// The known name that is most like it; `None` if none is.
        nearest: Option<String>,
        /// The names that are known at the place.
        known: Vec<String>,
    },
    /// A name that may occur once occurs again.
    Duplicate {
        /// The name.
        name: String,
        /// The place of the first one.
        first: Place,
    },
    /// A value is not allowed.
    Wrong {
        /// The value.
        value: String,
        /// The allowed values, in words.
        allowed: String,
        /// The allowed word that is most like it; `None` if none is.
        nearest: Option<String>,
    },
    /// A required part is missing.
    Missing {
        /// The part.
        what: &'static str,
    },
    /// Profiles inherit from each other in a cycle.
    Cycle {
        /// The profiles of the cycle, the first one also as the last one.
        through: Vec<String>,
    },
    /// A profile inherits through more profiles than allowed.
    TooDeep {
        /// The most profiles in a row.
        most: usize,
    },
    /// The check of all sets would take more work than allowed.
    TooMuch {
        /// The filters and sets that were checked before.
        checked: usize,
    },
    /// The policies of a set contradict each other.
    Inconsistent {
        /// The topic for which the set was made; `None` if the kind of entity has no topic.
        topic: Option<String>,
        /// The contradiction.
        error: DdsError,
    },
    /// A profile was asked for without a name, and none is the default.
    NoDefault,
    /// XML has no notation for a character.
    NotWritable {
        /// The character.
        character: char,
    },
}

impl fmt::Display for ProfileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileProblem::TooLong { bytes, most } => {
                write!(f, "the source has {bytes} bytes; split it, a source has at most {most}")
            }
            ProfileProblem::Syntax(message) => f.write_str(message),
            ProfileProblem::Unknown { what, name, nearest: Some(near), .. } => {
                write!(f, "unknown {what} {name:?}; did you mean {near:?}?")
            }
            ProfileProblem::Unknown { what, name, known, .. } if known.is_empty() => {
                write!(f, "unknown {what} {name:?}; none is allowed here")
            }
            ProfileProblem::Unknown { what, name, known, .. } => {
                write!(f, "unknown {what} {name:?}; known are {}", known.join(", "))
            }
            ProfileProblem::Duplicate { name, first } => {
                write!(f, "{name:?} occurs twice; the first one is at {first}, remove one")
            }
            ProfileProblem::Wrong { value, allowed, nearest } => {
                write!(f, "the value is {value}; allowed is {allowed}")?;
                match nearest {
                    Some(near) => write!(f, "; did you mean {near}?"),
                    None => Ok(()),
                }
            }
            ProfileProblem::Missing { what } => write!(f, "{what} is missing; add it"),
            ProfileProblem::Cycle { through } => {
                write!(f, "the profile inherits from itself: {}; remove one base_name", through.join(" -> "))
            }
            ProfileProblem::TooDeep { most } => {
                write!(f, "the profile inherits through more than {most} others; name a base that is nearer")
            }
            ProfileProblem::TooMuch { checked } => {
                write!(f, "the check ended after {checked} sets because there are too many; use fewer topic filters")
            }
            ProfileProblem::Inconsistent { topic: Some(topic), error } => {
                write!(f, "for topic {topic:?}: {error}")
            }
            ProfileProblem::Inconsistent { topic: None, error } => error.fmt(f),
            ProfileProblem::NoDefault => {
                f.write_str("no profile is the default; name one, or set is_default_qos of one to true")
            }
            ProfileProblem::NotWritable { character } => {
                write!(f, "XML can't contain the character {character:?}; use TOML")
            }
        }
    }
}

/// All errors of a source, by place, or the first hundred. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileErrors(pub(super) Vec<ProfileError>);

impl ProfileErrors {
    /// Returns the errors.
    pub fn list(&self) -> &[ProfileError] {
        &self.0
    }
}

impl fmt::Display for ProfileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ProfileErrors {}

/// The most errors of one source that are reported.
pub(super) const ERRORS_MAX: usize = 100;

/// The longest known name that is compared with a wrong one, in bytes.
const NEAR_BYTES_MAX: usize = 100;

/// The shortest end of a known name that is taken for the name, in bytes.
const END_BYTES_MIN: usize = 5;

/// How alike two names are, from 0 to 1, that are taken for a misspelling.
const ALIKE: f64 = 0.75;

/// Returns the known name that is most like a wrong one. A name that lacks a prefix is like the whole.
pub(super) fn nearest<T: AsRef<str>>(wrong: &str, known: impl IntoIterator<Item = T>) -> Option<String> {
    let wrong = shorten(wrong).to_lowercase();
    let known = known.into_iter().filter(|name| name.as_ref().len() <= NEAR_BYTES_MAX);
    let alike = |name: &str| {
        let is_end = wrong.len() >= END_BYTES_MIN && name.ends_with(&format!("_{wrong}"));
        if is_end { 1.0 } else { strsim::jaro_winkler(&wrong, name) }
    };
    let rated = known.map(|name| (alike(&name.as_ref().to_lowercase()), name));
    let best = rated.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(alike, _)| *alike >= ALIKE).map(|(_, name)| name.as_ref().to_owned())
}

/// Cuts a text to the length that fits into a line of a message.
pub(super) fn shorten(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(60).collect();
    if chars.next().is_some() { head + "..." } else { head }
}
