//! Runs steps one after the other, all of them even if some fail, and prints a summary. A step's
//! output is written to a file in `target/ci-logs` and shown if the step fails.
use crate::process::{Interrupted, Signals, Skipped, StepSession};
use crate::steps::Step;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Exit status after Ctrl-C, the same as in shells.
const INTERRUPTED: u8 = 130;

struct StepOutcome {
    name: &'static str,
    seconds: f64,
    result: Result<String>,
}

impl StepOutcome {
    fn line(&self) -> String {
        let (verdict, remark) = match &self.result {
            Ok(remark) => ("ok", remark.as_str()),
            Err(error) if error.is::<Skipped>() => ("skipped", ""),
            Err(_) => ("FAILED", ""),
        };
        format!("{:<12} {:>8.1}  {verdict:<7} {remark}", self.name, self.seconds).trim_end().to_owned()
    }

    fn is_skipped(&self) -> bool {
        self.result.as_ref().is_err_and(|error| error.is::<Skipped>())
    }
}

/// Runs `steps` and prints a table. The last line contains the numbers of passed and failed steps.
pub(crate) fn run(steps: &[&Step], root: &Path, verbose: bool) -> Result<ExitCode> {
    let signals = Signals::watch()?;
    let mut outcomes = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        print!("[{}/{}] {}: {} ... ", i + 1, steps.len(), step.name, step.about);
        if verbose {
            println!();
        }
        io::stdout().flush()?;
        let outcome = run_one(step, root, verbose, &signals)?;
        if outcome.result.as_ref().is_err_and(|error| error.is::<Interrupted>()) {
            println!("stopped\n{} of {} steps were done", outcomes.len(), steps.len());
            return Ok(ExitCode::from(INTERRUPTED));
        }
        outcomes.push(outcome);
    }
    Ok(sum_up(&outcomes))
}

fn run_one(step: &Step, root: &Path, verbose: bool, signals: &Signals) -> Result<StepOutcome> {
    let path = root.join("target/ci-logs").join(format!("{}.log", step.name));
    let log = if verbose { None } else { Some(create(&path)?) };
    let start = Instant::now();
    let session = StepSession::new(root, log, start + Duration::from_secs(60 * step.minutes), signals);
    let result = (step.run)(&session);
    let outcome = StepOutcome { name: step.name, seconds: start.elapsed().as_secs_f64(), result };
    match &outcome.result {
        Ok(_) => println!("ok ({:.1} s)", outcome.seconds),
        Err(error) if error.is::<Interrupted>() => {}
        Err(error) if error.is::<Skipped>() => println!("{error}"),
        Err(error) => {
            println!("FAILED ({:.1} s)", outcome.seconds);
            if !verbose {
                show(&path)?;
            }
            println!("{}: {error:#}", step.name);
        }
    }
    Ok(outcome)
}

fn create(path: &Path) -> Result<File> {
    let folder = path.parent().context("a log has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    File::create(path).with_context(|| format!("can't write {}", path.display()))
}

fn show(log: &Path) -> Result<()> {
    let mut file = File::open(log).with_context(|| format!("can't read {}", log.display()))?;
    io::copy(&mut file, &mut io::stdout())?;
    Ok(())
}

fn sum_up(outcomes: &[StepOutcome]) -> ExitCode {
    println!("\n{:<12} {:>8}", "step", "seconds");
    for outcome in outcomes {
        println!("{}", outcome.line());
    }
    let skipped: Vec<&str> =
        outcomes.iter().filter(|outcome| outcome.is_skipped()).map(|outcome| outcome.name).collect();
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err() && !outcome.is_skipped()).count();
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    println!("{:<12} {seconds:>8.1}", "all");
    println!("{}", last_line(outcomes.len() - failed - skipped.len(), failed, &skipped));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the last line. It names skipped steps, so that a reader does not mistake them for passed
/// ones.
fn last_line(passed: usize, failed: usize, skipped: &[&str]) -> String {
    match skipped {
        [] => format!("{passed} passed, {failed} failed"),
        names => format!("{passed} passed, {failed} failed, {} skipped: {}", names.len(), names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_names_what_was_skipped() {
        assert_eq!(last_line(3, 1, &[]), "3 passed, 1 failed");
        assert_eq!(last_line(3, 0, &["miri"]), "3 passed, 0 failed, 1 skipped: miri");
    }
}
