//! Where a value came from, and what is wrong with it.
use crate::TlsError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody said it.
    Standard,
    /// A place in a file; both numbers from 1, the column in characters.
    File {
        /// The file, as it was named.
        name: String,
        /// The line.
        line: u32,
        /// The column.
        column: u32,
    },
    /// A variable of the environment.
    Variable(String),
    /// An argument of the command, such as `--members`.
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

/// Something about a configuration that its user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where; [`Origin::Standard`] for what is missing everywhere.
    pub origin: Origin,
    /// Which key, if it is about one.
    pub key: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
    /// Whether it keeps the configuration from being used. What does not is a warning.
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
    /// These things are wrong with it, all of them; at least one is an error.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Problem>),
    /// The file can't be read.
    #[error("can't read {}: {source}; name a file that can be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The certificates can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
