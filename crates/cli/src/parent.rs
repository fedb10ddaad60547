//! The process that started this one, for processes that must not outlive it.
use crate::exit::FAILED;
use anyhow::Context;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::process;

/// Ends this process when `parent`, which has started it, ends in any way.
pub(crate) fn stay_with(parent: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("can't tie this process to the one that started it")?;
    // The parent may have died before the call. In that case no process is left to report to.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() as u32 != parent) {
        process::exit(i32::from(FAILED));
    }
    Ok(())
}
