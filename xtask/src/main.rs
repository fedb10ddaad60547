//! Checks and chores of this repository. CI runs `cargo xtask ci`, and each of its steps can be run
//! alone.
//!
//! Read [`steps`] first: the table of steps. [`runner`] runs them, [`process`] bounds the processes
//! that they start.
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use steps::{BLESS, LONG, RELEASE, STEPS, Step};

mod chaos;
mod cycles;
mod dist;
mod files;
mod instructions;
mod licences;
mod messages;
mod pages;
mod process;
mod prose;
mod purity;
mod readme;
mod runner;
mod site;
mod steps;
mod upgrade;

const USAGE: &str = "\
Usage: cargo xtask ci [--list] [--from STEP] [--only STEP]... [--skip STEP]... [--verbose]
       cargo xtask STEP [--verbose]
       cargo xtask package | site | upgrade | dist
       cargo xtask instructions --bless
       cargo xtask mutations --bless
       cargo xtask stories --bless
       cargo xtask scope --long
       cargo xtask loom --long
       cargo xtask miri --long

  --list       name the steps and what they check
  --bless      write what is found: benches/instructions.json, crates/sim/tests/mutations.seeds,
               crates/sim/tests/stories
  --long       search what is too large for CI: up to hours
  --from STEP  start at this step
  --only STEP  run this step and no other; may be repeated
  --skip STEP  leave this step out; may be repeated
  --verbose    show the output of steps that pass, too";

/// The request on the command line.
#[derive(PartialEq, Eq, Debug)]
enum CommandRequest {
    Help,
    List,
    Bless(&'static str),
    Chaos(chaos::ChaosOptions),
    Long(&'static str),
    Release(&'static str),
    Run { steps: Vec<&'static str>, verbose: bool },
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match parse(&args).and_then(|request| serve(&request)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn serve(request: &CommandRequest) -> Result<ExitCode> {
    match request {
        CommandRequest::Help => println!("{USAGE}\n\n{}\n\n{}", chaos::USAGE, list()),
        CommandRequest::List => println!("{}", list()),
        CommandRequest::Chaos(options) => return chaos::run(options, &root()?),
        CommandRequest::Bless(name) => return runner::run(&named(BLESS, name), &root()?, true),
        CommandRequest::Long(name) => return runner::run(&named(LONG, name), &root()?, true),
        CommandRequest::Release(name) => return runner::run(&named(RELEASE, name), &root()?, true),
        CommandRequest::Run { steps, verbose } => {
            let chosen: Vec<&Step> = STEPS.iter().filter(|step| steps.contains(&step.name)).collect();
            return runner::run(&chosen, &root()?, *verbose);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(args: &[String]) -> Result<CommandRequest> {
    let (mut from, mut only, mut skip, mut list, mut verbose) = (None, Vec::new(), Vec::new(), false, false);
    let Some((command, rest)) = args.split_first() else { return Ok(CommandRequest::Help) };
    if ["help", "--help", "-h"].contains(&command.as_str()) {
        return Ok(CommandRequest::Help);
    }
    if command == "chaos" {
        return chaos::ChaosOptions::parse(rest).map(CommandRequest::Chaos);
    }
    if let ([step], []) = (&named(RELEASE, command)[..], rest) {
        return Ok(CommandRequest::Release(step.name));
    }
    // Not all of these are steps of ci.
    if let ([step], [flag]) = (&named(BLESS, command)[..], rest)
        && flag == "--bless"
    {
        return Ok(CommandRequest::Bless(step.name));
    }
    let whole = command == "ci";
    if !whole {
        only.push(step(command)?.name);
    }
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{arg} wants the name of a step")).and_then(|s| step(s));
        match arg.as_str() {
            "--verbose" | "-v" => verbose = true,
            "--help" | "-h" => return Ok(CommandRequest::Help),
            "--long" if !named(LONG, command).is_empty() => return Ok(CommandRequest::Long(step(command)?.name)),
            "--skip" if whole => skip.push(value()?.name),
            "--list" if whole => list = true,
            "--from" if whole => from = Some(value()?.name),
            "--only" if whole => only.push(value()?.name),
            other => bail!("unknown argument {other:?}\n{USAGE}"),
        }
    }
    if list {
        return Ok(CommandRequest::List);
    }
    if from.is_some() && !only.is_empty() {
        bail!("--from and --only exclude each other");
    }
    let names = STEPS.iter().map(|step| step.name).filter(|name| !skip.contains(name));
    let steps = match from {
        Some(from) => names.skip_while(|name| *name != from).collect(),
        None => names.filter(|name| only.is_empty() || only.contains(name)).collect(),
    };
    Ok(CommandRequest::Run { steps, verbose })
}

fn step(name: &str) -> Result<&'static Step> {
    STEPS.iter().find(|step| step.name == name).with_context(|| format!("no step {name:?}; there are:\n{}", list()))
}

fn named(steps: &'static [Step], name: &str) -> Vec<&'static Step> {
    steps.iter().filter(|step| step.name == name).collect()
}

fn list() -> String {
    let lines = |steps: &[Step]| -> String {
        let lines: Vec<String> = steps.iter().map(|step| format!("  {:<12} {}", step.name, step.about)).collect();
        lines.join("\n")
    };
    format!("{}\n\nSteps of a release, which ci leaves out:\n{}", lines(STEPS), lines(RELEASE))
}

fn root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(Path::to_path_buf).context("xtask stands in no workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<CommandRequest> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args)
    }

    fn steps(line: &str) -> Vec<&'static str> {
        match parsed(line) {
            Ok(CommandRequest::Run { steps, .. }) => steps,
            other => panic!("{line:?} asked for {other:?}"),
        }
    }

    #[test]
    fn arguments_choose_steps_in_the_order_of_the_table() {
        let all: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(steps("ci"), all);
        assert_eq!(steps("ci --from docs"), all[2..]);
        assert_eq!(steps("ci --only docs --only fmt"), ["fmt", "docs"]);
        assert_eq!(steps("clippy"), ["clippy"]);
        assert_eq!(steps("ci --skip fmt --skip docs"), [&all[1..2], &all[3..]].concat());
        for name in ["instructions", "stories"] {
            assert_eq!(parsed(&format!("{name} --bless")).unwrap(), CommandRequest::Bless(name));
        }
        for name in ["scope", "loom"] {
            assert_eq!(parsed(&format!("{name} --long")).unwrap(), CommandRequest::Long(name));
        }
        assert_eq!(
            parsed("ci --verbose --only fmt").unwrap(),
            CommandRequest::Run { steps: vec!["fmt"], verbose: true }
        );
        assert_eq!(parsed("ci --list").unwrap(), CommandRequest::List);
        assert_eq!(parsed("dist").unwrap(), CommandRequest::Release("dist"));
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        assert!(parsed("ci --only nothing").unwrap_err().to_string().contains("clippy"));
        assert!(parsed("ci --from").is_err());
        assert!(parsed("ci --from fmt --only docs").is_err());
        assert!(parsed("fmt --list").is_err());
        assert!(parsed("fmt --bless").is_err());
        assert!(parsed("ci --long").is_err());
        assert!(parsed("fmtt").is_err());
    }

    #[test]
    fn step_names_are_unique() {
        for (i, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..i].iter().all(|other| other.name != step.name), "{} is there twice", step.name);
        }
    }
}
