//! The sources of settings: a file, the environment, flags. Only this file reads the environment.
//!
//! The library defines their meaning and precedence ([`spindle::settings`]).
use crate::exit::{CliError, CliResult, USAGE};
use clap::Args;
use spindle::settings::{Effective, FILE_VARIABLE, Settings};
use spindle_transport::rendezvous::{DirError, RuntimeDir};
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The flags that set a key. Subgroup flags apply to the subgroup that the member sends in.
pub(crate) const FLAGS: [(&str, &str); 18] = [
    ("runtime_dir", "--runtime-dir"),
    ("group.name", "GROUP"),
    ("group.founders", "--founders"),
    ("group.suspect_after", "--suspect-after"),
    ("member.id", "--id"),
    ("member.data_dir", "--data-dir"),
    ("member.gather_timeout", "--gather-timeout"),
    ("member.spin_for", "--spin-for"),
    ("subgroup.NAME.order", "--order"),
    ("subgroup.NAME.window", "--window"),
    ("subgroup.NAME.message_bytes_max", "--max-message"),
    ("subgroup.NAME.durability", "--durability"),
    ("subgroup.NAME.durable_copies", "--durable-copies"),
    ("network.listen", "--listen"),
    ("network.advertise", "--advertise"),
    ("network.seeds", "--seeds"),
    ("network.seed_count", "--seed-count"),
    ("network.insecure", "--insecure"),
];

/// The filter of the library's events that are printed.
pub(crate) const LOG_VARIABLE: &str = "SPINDLE_LOG";

/// The number of the DDS domain.
pub(crate) const DOMAIN_VARIABLE: &str = "SPINDLE_DDS_DOMAIN";

/// Returns the number of the DDS domain in the variable, or 0 if it is not set, or empty.
pub(crate) fn dds_domain() -> CliResult<u32> {
    let Some(text) = env::var_os(DOMAIN_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(0) };
    text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        let message = format!("{DOMAIN_VARIABLE}={}: a domain is a number, 0 to {}", text.display(), u32::MAX);
        CliError::new(USAGE, message)
    })
}

/// Returns the filter in the variable; `None`: it is not set, or empty.
pub(crate) fn log_filter() -> Option<CliResult<String>> {
    let filter = env::var_os(LOG_VARIABLE).filter(|filter| !filter.is_empty())?;
    let wrong = |filter: OsString| {
        let message = format!("{LOG_VARIABLE}={}: a filter is text in UTF-8", filter.display());
        CliError::new(USAGE, message)
    };
    Some(filter.into_string().map_err(wrong))
}

/// The directory in which the group meets.
#[derive(Clone, Debug, Args)]
pub(crate) struct RuntimeDirArgs {
    /// The directory in which groups meet, accessible to you alone (mode 700). All members need the
    /// same.
    ///
    /// By default $SPINDLE_RUNTIME_DIR, else the value in a file, else /tmp/spindle-UID, as for
    /// programs that use the library.
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

/// The sources of settings.
#[derive(Clone, Debug, Args)]
pub(crate) struct Sources {
    /// A file with settings (see `spindle config example`). Variables override it, and flags
    /// override variables
    ///
    /// By default $SPINDLE_CONFIG; if that is not set either, no file is read.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Set any key, such as group.founders=3 or subgroup.all.window=100; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    #[command(flatten)]
    place: RuntimeDirArgs,
}

/// The group that a command is for.
#[derive(Clone, Debug, Args)]
pub(crate) struct GroupSelection {
    /// The group's name; a file or $SPINDLE_GROUP_NAME may contain it instead
    pub(crate) group: Option<String>,

    #[command(flatten)]
    pub(crate) sources: Sources,
}

/// A group's name, and the directory in which it meets.
#[derive(Clone, Debug)]
pub(crate) struct GroupLocation {
    pub(crate) group: String,
    pub(crate) dir: PathBuf,
}

impl RuntimeDirArgs {
    /// Returns the directory, without regard to any file; `None`: the value is wrong.
    pub(crate) fn dir(&self) -> Option<PathBuf> {
        let mut settings = Settings::new();
        settings.variables(env::vars_os().filter(|(name, _)| name == "SPINDLE_RUNTIME_DIR"));
        self.say(&mut settings);
        Some(settings.effective().ok()?.runtime_dir())
    }

    fn say(&self, settings: &mut Settings) {
        if let Some(dir) = &self.runtime_dir {
            settings.flag("runtime_dir", dir, "--runtime-dir");
        }
    }
}

impl Sources {
    /// Reads all settings except the flags of a single command.
    pub(crate) fn read(&self) -> CliResult<Settings> {
        let mut settings = Settings::new();
        if let Some(path) = self.file() {
            settings.file(&path)?;
        }
        // These variables are no settings of a member.
        let is_setting = |name: &OsString| name != LOG_VARIABLE && name != DOMAIN_VARIABLE;
        settings.variables(env::vars_os().filter(|(name, _)| is_setting(name)));
        self.place.say(&mut settings);
        for said in &self.set {
            let Some((key, value)) = said.split_once('=') else {
                let message = format!("--set {said}: write KEY=VALUE, such as --set group.founders=3");
                return Err(CliError::new(USAGE, message));
            };
            settings.flag(key.trim(), value.trim(), "--set");
        }
        Ok(settings)
    }

    /// Returns the file, if any is read.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let variable = || env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(variable)
    }
}

impl GroupSelection {
    /// Reads all settings, and the group's name.
    pub(crate) fn read(&self) -> CliResult<Settings> {
        let mut settings = self.sources.read()?;
        if let Some(group) = &self.group {
            settings.flag("group.name", group, flag_of("group.name"));
        }
        Ok(settings)
    }

    /// Finds the group that the command is for.
    pub(crate) fn find(&self) -> CliResult<GroupLocation> {
        GroupLocation::of(&self.read()?.effective()?)
    }
}

impl GroupLocation {
    pub(crate) fn of(effective: &Effective) -> CliResult<GroupLocation> {
        GroupLocation::said(effective, "behind the command")
    }

    /// Does the same as [`of`](Self::of). `place` is the place of the group's name on the command
    /// line.
    pub(crate) fn said(effective: &Effective, place: &str) -> CliResult<GroupLocation> {
        match effective.group() {
            Some(group) => Ok(GroupLocation { group: group.to_string(), dir: effective.runtime_dir() }),
            None => Err(no_group(place)),
        }
    }

    /// Opens the directory in which the group meets, and creates it if it is missing.
    pub(crate) fn open(&self) -> Result<RuntimeDir, DirError> {
        RuntimeDir::new(&self.dir)
    }
}

fn no_group(place: &str) -> CliError {
    let message =
        format!("no group is named; name it {place}, or set group.name in a file (--config) or $SPINDLE_GROUP_NAME");
    CliError::new(USAGE, message)
}

/// Returns the flag that sets this key.
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
