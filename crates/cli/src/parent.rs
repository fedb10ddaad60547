//! The process that has started this one, for those that must not outlive it.
use crate::exit::FAILED;
use anyhow::Context;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::process;

/// Ends this process with `parent`, which has started it, however that ends.
pub(crate) fn stay_with(parent: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("can't tie this process to the one that started it")?;
    // It may have died before the call; then nobody is left to tell.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() as u32 != parent) {
        process::exit(i32::from(FAILED));
    }
    Ok(())
}
