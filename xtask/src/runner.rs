//! Runs steps one after the other, all of them even if some fail, and sums up. A step's output goes to a file in
//! `target/ci-logs` and is shown if it fails.
use crate::process::{Interrupted, Session, Signals};
use crate::steps::Step;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

struct Outcome {
    name: &'static str,
    seconds: f64,
    result: Result<String>,
}

impl Outcome {
    fn line(&self) -> String {
        let (verdict, remark) = match &self.result {
            Ok(remark) => ("ok", remark.as_str()),
            Err(_) => ("FAILED", ""),
        };
        format!("{:<12} {:>8.1}  {verdict:<6} {remark}", self.name, self.seconds).trim_end().to_owned()
    }
}

/// Runs `steps` and prints a table and, as the last line, how many passed and failed.
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

fn run_one(step: &Step, root: &Path, verbose: bool, signals: &Signals) -> Result<Outcome> {
    let path = root.join("target/ci-logs").join(format!("{}.log", step.name));
    let log = if verbose { None } else { Some(create(&path)?) };
    let start = Instant::now();
    let session = Session::new(root, log, start + Duration::from_secs(60 * step.minutes), signals);
    let result = (step.run)(&session);
    let outcome = Outcome { name: step.name, seconds: start.elapsed().as_secs_f64(), result };
    match &outcome.result {
        Ok(_) => println!("ok ({:.1} s)", outcome.seconds),
        Err(error) if error.is::<Interrupted>() => {}
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

fn sum_up(outcomes: &[Outcome]) -> ExitCode {
    println!("\n{:<12} {:>8}", "step", "seconds");
    for outcome in outcomes {
        println!("{}", outcome.line());
    }
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    println!("{:<12} {seconds:>8.1}", "all");
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
