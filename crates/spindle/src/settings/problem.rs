//! The origin of a value, and problems with it.
use crate::TlsError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The default.
    Standard,
    /// A place in a file; both numbers from 1, the column in characters.
    File {
        /// The file, as it was named by the caller.
        name: String,
        /// The line.
        line: u32,
        /// The column.
        column: u32,
    },
    /// A variable of the environment.
    Variable(String),
    /// An argument of the command, such as `--founders`.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Standard => f.write_str("default"),
            Origin::File { name, line, .. } => write!(f, "{name}:{line}"),
            Origin::Variable(name) => write!(f, "variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A problem of a configuration that its user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place; [`Origin::Standard`] for a value that is missing everywhere.
    pub origin: Origin,
    /// The key, if the problem is about one.
    pub key: Option<String>,
    /// The problem and its remedy.
    pub message: String,
    /// Whether it prevents the use of the configuration. Other problems are warnings.
    pub is_error: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Standard => {}
            Origin::File { name, line, column } => write!(f, "{name}:{line}:{column}: ")?,
            other => write!(f, "{other}: ")?,
        }
        f.write_str(if self.is_error { "" } else { "warning: " })?;
        f.write_str(&self.message)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// All problems of the configuration; at least one is an error.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Problem>),
    /// The file can't be read.
    #[error("can't read {}: {source}; name a file that can be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The certificates can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
