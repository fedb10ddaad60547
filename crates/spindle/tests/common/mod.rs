//! Shared code of the tests whose members meet in a directory.
use spindle::Config;
use std::path::PathBuf;
use std::time::Duration;

/// A directory that is removed with the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("spindle-{name}-{}", std::process::id())))
    }

    /// Returns the configuration of a group whose members meet there.
    #[allow(dead_code, reason = "members of one process meet nowhere")]
    pub(crate) fn group(&self, members: u32, gather_timeout: Duration) -> Config {
        Config { runtime_dir: Some(self.0.clone()), gather_timeout, ..Config::new("g", members) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
