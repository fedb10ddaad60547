//! Settings from a file, the environment and a command line, in order of precedence, each with its
//! origin.
//!
//! ```text
//! defaults < file < environment < flags ---effective()--> Effective: a value and an origin for each key
//!                                                                        |-- config()   what to join with
//!                                                                        \-- network()  how to meet over a network
//! ```
//!
//! This module reads only files: one if [`Settings::file`] is called, and the files that it names
//! when they are needed. The caller supplies the environment and the flags. Read [`Settings`]
//! first, then [`KEYS`]. Mistakes are collected, so that all are reported at once.
mod checks;
mod effective;
mod example;
mod file;
mod keys;
mod problem;
mod quantity;
mod topology;
mod value;

pub use effective::{Effective, Entry, FabricSettings, NetworkSettings, TlsFiles};
pub use example::example;
pub use keys::{KEYS, Key};
pub use problem::{Origin, Problem, SettingsError};
pub use quantity::{parse_bytes, parse_time};
pub use value::Value;

use crate::Config;
use keys::{SUBGROUP_NAME, SUBGROUP_STANDARD, VARIABLES, find, nearest, renamed, renamed_variable, variable};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use value::shorten;

/// The variable that names a file. It is no key. The caller that reads the environment reads the
/// file, too.
pub const FILE_VARIABLE: &str = "SPINDLE_CONFIG";

/// The settings given so far. Their order does not matter: files, variables and flags have ranks.
///
/// ```
/// use spindle::settings::{Origin, Settings};
///
/// let mut settings = Settings::from_toml("a.toml", "[group]\nname = \"prices\"\nfounders = 3\n");
/// settings.variables([("SPINDLE_GROUP_FOUNDERS".into(), "5".into())]);
/// let effective = settings.effective()?;
/// assert_eq!(effective.config()?.founders, 5);
/// assert_eq!(effective.entry("group.founders").unwrap().origin.to_string(), "variable SPINDLE_GROUP_FOUNDERS");
/// assert_eq!(effective.entry("group.name").unwrap().origin.to_string(), "a.toml:2");
/// # Ok::<(), spindle::settings::SettingsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings {
    given: Vec<Given>,
    /// Read only when the names of all subgroups are known.
    texts: Vec<Text>,
    subgroups: Vec<FileSubgroup>,
    problems: Vec<Problem>,
    /// Whether a part of a file could not be read: it may contain a value that is missing.
    is_partial: bool,
}

/// A value that was given.
#[derive(Clone, Debug)]
struct Given {
    key: &'static Key,
    subgroup: Option<String>,
    value: Value,
    origin: Origin,
    rank: u8,
}

/// A value that was given outside a file.
#[derive(Clone, Debug)]
struct Text {
    /// The path of a key, or a variable.
    name: String,
    text: OsString,
    origin: Origin,
    rank: u8,
}

/// A subgroup of a file.
#[derive(Clone, Debug)]
struct FileSubgroup {
    name: String,
    origin: Origin,
}

// The value with the highest rank counts.
const RANK_FILE: u8 = 1;
const RANK_VARIABLE: u8 = 2;
const RANK_FLAG: u8 = 3;

impl Settings {
    /// Returns empty settings.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// Returns the settings in a file's text. `name` is used in messages, and relative paths are
    /// relative to its directory. Mistakes are reported by [`effective`](Self::effective).
    pub fn from_toml(name: &str, text: &str) -> Settings {
        let mut settings = Settings::new();
        file::read(&mut settings, name, text);
        settings
    }

    /// Adds the settings of this file.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn file(&mut self, path: &Path) -> Result<(), SettingsError> {
        let name = path.display().to_string();
        let failed = |source| SettingsError::Read { path: path.into(), source };
        let bytes = fs::read(path).map_err(failed)?;
        match utf8(&name, &bytes) {
            Ok(text) => file::read(self, &name, text),
            Err(problem) => {
                self.problems.push(problem);
                self.is_partial = true;
            }
        }
        Ok(())
    }

    /// Adds the settings of an environment: the variables that begin with `SPINDLE_` and are not
    /// empty, without [`FILE_VARIABLE`]. The variable of a key is [`Key::variable`].
    pub fn variables(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        for (name, text) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(VARIABLES) && *name != FILE_VARIABLE) else {
                continue;
            };
            if !text.is_empty() {
                let origin = Origin::Variable(name.to_string());
                self.texts.push(Text { name: name.to_string(), text, origin, rank: RANK_VARIABLE });
            }
        }
    }

    /// Adds the setting of a key by a command argument. `flag` is the argument's name, for
    /// messages.
    pub fn flag(&mut self, path: &str, text: impl AsRef<OsStr>, flag: &str) {
        let origin = Origin::Flag(flag.to_string());
        self.texts.push(Text { name: path.to_string(), text: text.as_ref().into(), origin, rank: RANK_FLAG });
    }

    /// Returns the names of the subgroups, in their order. If no file lists any, there is one,
    /// "all".
    pub fn subgroups(&self) -> Vec<&str> {
        let names: Vec<&str> = self.subgroups.iter().map(|listed| listed.name.as_str()).collect();
        if names.is_empty() { vec![SUBGROUP_STANDARD] } else { names }
    }

    /// Returns true if a file lists the subgroups.
    pub fn lists_subgroups(&self) -> bool {
        !self.subgroups.is_empty()
    }

    /// Returns the effective value of each key.
    ///
    /// # Errors
    /// [`SettingsError::Wrong`] with all problems, including warnings.
    pub fn effective(mut self) -> Result<Effective, SettingsError> {
        if self.subgroups.is_empty() {
            self.subgroups.push(FileSubgroup { name: SUBGROUP_STANDARD.to_string(), origin: Origin::Standard });
        }
        for text in std::mem::take(&mut self.texts) {
            self.understand(text);
        }
        let mut effective = Effective::lay_over(&self);
        effective.problems = self.problems;
        checks::check(&mut effective, &self.subgroups, self.is_partial);
        match effective.problems.iter().any(|problem| problem.is_error) {
            true => Err(SettingsError::Wrong(effective.problems)),
            false => Ok(effective),
        }
    }

    fn understand(&mut self, text: Text) {
        let found = match text.rank {
            RANK_VARIABLE => self.find_variable(&text),
            _ => self.find_path(&text),
        };
        let (key, subgroup) = match found {
            Ok(found) => found,
            Err(problem) => return self.problems.push(problem),
        };
        match key.kind.parse(&text.text) {
            Some(value) => self.given.push(Given { key, subgroup, value, origin: text.origin, rank: text.rank }),
            None => {
                let path = path_of(key, subgroup.as_deref());
                let said = shorten(&text.text.to_string_lossy());
                let message = format!("{path} is {said:?}; allowed is {}", key.allowed());
                self.problems.push(Problem { origin: text.origin, key: Some(path), message, is_error: true });
            }
        }
    }

    fn find_path(&self, text: &Text) -> Result<(&'static Key, Option<String>), Problem> {
        let wrong = |message| Problem { origin: text.origin.clone(), key: None, message, is_error: true };
        match find(&text.name) {
            Some((key, _)) if key.path == SUBGROUP_NAME => {
                Err(wrong("only a file names subgroups, in [[subgroup]]".to_string()))
            }
            Some((key, Some(name))) if !self.has(name) => {
                let (name, names) = (shorten(name), self.subgroups().join(", "));
                Err(wrong(format!("{} is of no subgroup: there is no {name:?}, but {names}", key.leaf())))
            }
            Some((key, name)) => Ok((key, name.map(str::to_string))),
            None => {
                if let Some(new) = renamed(&text.name) {
                    return Err(wrong(format!("{} is called {new} in this version; use the new name", text.name)));
                }
                let names = self.settable().map(|(key, name)| path_of(key, name));
                let near = nearest(&text.name, names).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                Err(wrong(format!("there is no key {:?}{near}", shorten(&text.name))))
            }
        }
    }

    fn find_variable(&self, text: &Text) -> Result<(&'static Key, Option<String>), Problem> {
        let named = |(key, name): &(&'static Key, Option<&str>)| variable(&path_of(key, *name)) == text.name;
        let mut found = self.settable().filter(named);
        let wrong = |message, is_error| Problem { origin: text.origin.clone(), key: None, message, is_error };
        match (found.next(), found.next()) {
            (Some((key, name)), None) => Ok((key, name.map(str::to_string))),
            (Some((_, one)), Some((_, other))) => {
                let (one, other) = (one.unwrap_or_default(), other.unwrap_or_default());
                Err(wrong(format!("it could mean subgroup {one:?} or {other:?}; say it in a file"), true))
            }
            (None, _) => {
                if let Some((key, new)) = renamed_variable(&text.name) {
                    return Err(wrong(format!("the key is called {key} in this version; set {new} instead"), true));
                }
                let names = self.settable().map(|(key, name)| variable(&path_of(key, name)));
                let near = nearest(&text.name, names).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                // Other software may have set it: Kubernetes makes variables for a service called
                // "spindle".
                Err(wrong(format!("no key has this variable{near}"), false))
            }
        }
    }

    /// Returns the keys that can be set outside a file.
    fn settable(&self) -> impl Iterator<Item = (&'static Key, Option<&str>)> {
        self.paths().filter(|(key, _)| key.path != SUBGROUP_NAME)
    }

    fn has(&self, subgroup: &str) -> bool {
        self.subgroups().contains(&subgroup)
    }

    /// Returns all keys of this group, with the subgroup's name for keys of a subgroup.
    fn paths(&self) -> impl Iterator<Item = (&'static Key, Option<&str>)> {
        paths(KEYS, self.subgroups())
    }
}

impl Config {
    /// Returns the configuration in this file. No variable of the environment changes it.
    ///
    /// The command `spindle` also reads variables, which take precedence over the file: `SPINDLE_`
    /// and the path of a key in capitals, such as `SPINDLE_GROUP_FOUNDERS` for `group.founders`
    /// ([`Key::variable`]), and `SPINDLE_CONFIG` ([`FILE_VARIABLE`]) for the path of the file. A
    /// program that is to obey the same variables passes them to [`Settings`]:
    ///
    /// ```no_run
    /// use spindle::settings::{FILE_VARIABLE, Settings};
    ///
    /// let mut settings = Settings::new();
    /// if let Some(path) = std::env::var_os(FILE_VARIABLE) {
    ///     settings.file(path.as_ref())?;
    /// }
    /// settings.variables(std::env::vars_os());
    /// let config = settings.effective()?.config()?;
    /// # Ok::<(), spindle::settings::SettingsError>(())
    /// ```
    ///
    /// # Errors
    /// The file can't be read, or is wrong.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Config, SettingsError> {
        let mut settings = Settings::new();
        settings.file(path.as_ref())?;
        settings.effective()?.config()
    }
}

/// Returns the keys in order. The keys of a subgroup appear together, once for each subgroup.
fn paths<'a>(
    keys: &'static [Key],
    subgroups: Vec<&'a str>,
) -> impl Iterator<Item = (&'static Key, Option<&'a str>)> + use<'a> {
    let is_of_subgroup = |key: &&Key| key.is_of_subgroup();
    let at = keys.iter().position(|key| key.is_of_subgroup()).unwrap_or(keys.len());
    let before = keys[..at].iter().map(|key| (key, None));
    let within = subgroups
        .into_iter()
        .flat_map(move |name| keys.iter().filter(is_of_subgroup).map(move |key| (key, Some(name))));
    before.chain(within).chain(keys[at..].iter().filter(move |key| !is_of_subgroup(key)).map(|key| (key, None)))
}

/// Returns the text of a file.
fn utf8<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Problem> {
    str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
        let last = before.rsplit(|byte| *byte == b'\n').next().unwrap_or(before);
        let column = String::from_utf8_lossy(last).chars().count() as u32 + 1;
        let message = "these bytes are no UTF-8, as TOML has to be".to_string();
        Problem { origin: Origin::File { name: name.to_string(), line, column }, key: None, message, is_error: true }
    })
}

fn path_of(key: &Key, subgroup: Option<&str>) -> String {
    match subgroup {
        Some(name) => key.path.replacen("NAME", name, 1),
        None => key.path.to_string(),
    }
}

#[cfg(test)]
mod tests;
