//! Where groups meet: the only file that reads the environment.
use clap::Args;
use std::env;
use std::path::PathBuf;

/// Where the group meets.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// The directory in which groups meet, for you alone (mode 700). All members need the same.
    ///
    /// By default $SPINDLE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/spindle, else /tmp/spindle-UID.
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
}

impl Place {
    /// The directory; `None` leaves it to the library.
    pub(crate) fn dir(&self) -> Option<PathBuf> {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let given = self.runtime_dir.clone().or_else(|| variable("SPINDLE_RUNTIME_DIR"));
        given.or_else(|| variable("XDG_RUNTIME_DIR").map(|dir| dir.join("spindle")))
    }
}
