//! Where settings come from: a file, the environment, flags. The only file that reads the environment.
//!
//! What they mean, and which counts, is the library's business ([`spindle::settings`]).
use crate::exit::{Failure, Outcome, USAGE};
use clap::Args;
use spindle::settings::{Effective, FILE_VARIABLE, Origin, Settings};
use spindle_fabric::mail::{DirError, RuntimeDir};
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The flags that set a key. Those of a subgroup are for the one that the member sends in.
pub(crate) const FLAGS: [(&str, &str); 16] = [
    ("runtime_dir", "--runtime-dir"),
    ("group.name", "GROUP"),
    ("group.members", "--members"),
    ("group.suspect_after", "--suspect-after"),
    ("member.id", "--id"),
    ("member.data_dir", "--data-dir"),
    ("member.gather_timeout", "--gather-timeout"),
    ("member.spin_for", "--spin-for"),
    ("subgroup.NAME.order", "--order"),
    ("subgroup.NAME.window", "--window"),
    ("subgroup.NAME.message_bytes_max", "--max-message"),
    ("network.listen", "--listen"),
    ("network.advertise", "--advertise"),
    ("network.seeds", "--seeds"),
    ("network.seed_count", "--seed-count"),
    ("network.insecure", "--insecure"),
];

/// Which events of the library are told: a filter.
pub(crate) const LOG_VARIABLE: &str = "SPINDLE_LOG";

/// The filter in the variable; `None`: it is not set, or empty.
pub(crate) fn log_filter() -> Option<Outcome<String>> {
    let filter = env::var_os(LOG_VARIABLE).filter(|filter| !filter.is_empty())?;
    let wrong = |filter: OsString| {
        let message = format!("{LOG_VARIABLE}={}: a filter is text in UTF-8", filter.display());
        Failure::new(USAGE, message)
    };
    Some(filter.into_string().map_err(wrong))
}

/// Where the group meets.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// The directory in which groups meet, for you alone (mode 700). All members need the same.
    ///
    /// By default $SPINDLE_RUNTIME_DIR, else what a file says, else $XDG_RUNTIME_DIR/spindle, else /tmp/spindle-UID.
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

/// Where settings come from.
#[derive(Clone, Debug, Args)]
pub(crate) struct Sources {
    /// A file with settings (see `spindle config example`). Variables count more than it does, and flags more than these
    ///
    /// By default $SPINDLE_CONFIG; if that is not set either, no file is read.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Set any key, such as group.members=3 or subgroup.all.window=100; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    #[command(flatten)]
    place: Place,
}

/// Which group.
#[derive(Clone, Debug, Args)]
pub(crate) struct Whom {
    /// The group's name; a file or $SPINDLE_GROUP_NAME may say it instead
    pub(crate) group: Option<String>,

    #[command(flatten)]
    pub(crate) sources: Sources,
}

/// A group that was named, and where it meets.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) group: String,
    /// `None` leaves it to the library.
    pub(crate) dir: Option<PathBuf>,
}

impl Place {
    /// The directory, without regard to any file; `None` leaves it to the library.
    pub(crate) fn dir(&self) -> Option<PathBuf> {
        let mut settings = Settings::new();
        settings.variables(env::vars_os().filter(|(name, _)| name == "SPINDLE_RUNTIME_DIR"));
        self.say(&mut settings);
        settings.effective().ok()?.runtime_dir()
    }

    fn say(&self, settings: &mut Settings) {
        if let Some(dir) = env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
            let origin = Origin::Variable("XDG_RUNTIME_DIR".to_string());
            settings.fallback("runtime_dir", PathBuf::from(dir).join("spindle"), origin);
        }
        if let Some(dir) = &self.runtime_dir {
            settings.flag("runtime_dir", dir, "--runtime-dir");
        }
    }
}

impl Sources {
    /// Everything that was said but by the flags of a single command.
    pub(crate) fn read(&self) -> Outcome<Settings> {
        let mut settings = Settings::new();
        if let Some(path) = self.file() {
            settings.file(&path)?;
        }
        // This one is no setting of a member.
        settings.variables(env::vars_os().filter(|(name, _)| name != LOG_VARIABLE));
        self.place.say(&mut settings);
        for said in &self.set {
            let Some((key, value)) = said.split_once('=') else {
                let message = format!("--set {said}: write KEY=VALUE, such as --set group.members=3");
                return Err(Failure::new(USAGE, message));
            };
            settings.flag(key.trim(), value.trim(), "--set");
        }
        Ok(settings)
    }

    /// The file, if any is read.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let variable = || env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(variable)
    }
}

impl Whom {
    /// Everything that was said.
    pub(crate) fn read(&self) -> Outcome<Settings> {
        let mut settings = self.sources.read()?;
        if let Some(group) = &self.group {
            settings.flag("group.name", group, flag_of("group.name"));
        }
        Ok(settings)
    }

    /// Which group is meant.
    pub(crate) fn find(&self) -> Outcome<Found> {
        Found::of(&self.read()?.effective()?)
    }
}

impl Found {
    pub(crate) fn of(effective: &Effective) -> Outcome<Found> {
        Found::said(effective, "behind the command")
    }

    /// As [`of`](Self::of), for a command that takes the group's name at this place.
    pub(crate) fn said(effective: &Effective, place: &str) -> Outcome<Found> {
        match effective.group() {
            Some(group) => Ok(Found { group: group.to_string(), dir: effective.runtime_dir() }),
            None => Err(no_group(place)),
        }
    }

    /// Where it meets; made if it is not there.
    pub(crate) fn open(&self) -> Result<RuntimeDir, DirError> {
        self.dir.clone().map_or_else(|| RuntimeDir::default_for_user(None), RuntimeDir::new)
    }
}

fn no_group(place: &str) -> Failure {
    let message =
        format!("no group is named; name it {place}, or set group.name in a file (--config) or $SPINDLE_GROUP_NAME");
    Failure::new(USAGE, message)
}

/// The flag that sets this key.
pub(crate) fn flag_of(path: &str) -> &'static str {
    FLAGS.iter().find(|(key, _)| *key == path).map_or("--set", |(_, flag)| flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;
    use spindle::settings::KEYS;

    #[test]
    fn every_flag_is_one_of_the_member_and_sets_a_key() {
        let cli = Cli::command();
        let member = cli.find_subcommand("member").unwrap();
        for (path, flag) in FLAGS {
            assert!(KEYS.iter().any(|key| key.path == path), "{path}");
            let is_it = |arg: &clap::Arg| match flag.strip_prefix("--") {
                Some(long) => arg.get_long() == Some(long),
                None => arg.get_id().as_str() == flag.to_lowercase(),
            };
            assert!(member.get_arguments().any(is_it), "{flag}");
        }
    }
}
