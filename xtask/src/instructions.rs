//! Instructions per message, counted by valgrind. The count is the same on every run and every
//! machine of one architecture. So an increase of a few per cent comes from a change of the code
//! and from nothing else.
//!
//! The example `hot_path` runs with two numbers of messages. The difference of the instructions,
//! divided by the difference of the messages, excludes start and end. `benches/instructions.json`
//! contains the baseline; `cargo xtask instructions --bless` writes the current counts.
use crate::process::StepSession;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const BASELINE: &str = "benches/instructions.json";
const TOLERANCE_PERCENT: f64 = 3.0;
/// Two numbers of messages. Both are multiples of every burst times its senders, so that no surplus
/// message is sent.
const MESSAGES: [u64; 2] = [20_480, 40_960];

/// The settings (size, burst, senders), with their names in the baseline.
const SETTINGS: &[(&str, [u64; 3])] = &[
    ("16 B, bursts of 256, 1 sender", [16, 256, 1]),
    ("16 B, bursts of 256, 2 senders", [16, 256, 2]),
    ("128 B, bursts of 256, 1 sender", [128, 256, 1]),
    ("1 KiB, bursts of 64, 1 sender", [1024, 64, 1]),
    ("16 B, one by one, 1 sender", [16, 1, 1]),
    ("16 B, one by one, 2 senders", [16, 1, 2]),
];

/// Counts the instructions and compares them with the baseline.
pub(crate) fn check(session: &StepSession<'_>) -> Result<String> {
    let path = session.root().join(BASELINE);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("can't read {BASELINE}: `cargo xtask instructions --bless` makes it"))?;
    let baseline: Value = serde_json::from_str(&text).with_context(|| format!("{BASELINE} is no JSON"))?;
    let mut verdicts = Vec::new();
    for (name, now) in count(session)? {
        let before = baseline["instructions_per_message"][name].as_f64().with_context(|| {
            format!("{BASELINE} has no number for {name:?}: `cargo xtask instructions --bless` adds it")
        })?;
        verdicts.push((name, before, now, Verdict::of(before, now)));
    }
    println!("\n  {:<32} {:>9} {:>9} {:>8}", "instructions a message", "baseline", "now", "change");
    for (name, before, now, verdict) in &verdicts {
        let change = 100.0 * (now - before) / before;
        println!("  {name:<32} {before:>9.1} {now:>9.1} {change:>+7.1}% {}", verdict.remark());
    }
    let worse = verdicts.iter().filter(|(.., verdict)| *verdict == Verdict::Worse).count();
    let better = verdicts.iter().filter(|(.., verdict)| *verdict == Verdict::Better).count();
    if worse > 0 {
        bail!(
            "{worse} of {} settings cost over {TOLERANCE_PERCENT} % more than {BASELINE} says: \
             make it cheaper, or say why and run `cargo xtask instructions --bless`",
            verdicts.len()
        );
    }
    let cheapest = verdicts.iter().map(|(_, _, now, _)| *now).fold(f64::INFINITY, f64::min);
    let remark = format!("from {cheapest:.1} instructions a message");
    Ok(if better > 0 {
        format!("{remark}; {better} settings got cheaper: `cargo xtask instructions --bless`")
    } else {
        remark
    })
}

/// Counts the instructions and writes the baseline.
pub(crate) fn bless(session: &StepSession<'_>) -> Result<String> {
    let counts = count(session)?;
    let numbers: Map<String, Value> =
        counts.iter().map(|(name, now)| ((*name).to_owned(), json!((now * 10.0).round() / 10.0))).collect();
    let baseline = json!({
        "about": "Instructions a message, sender and both members together, of crates/spindle/examples/hot_path.rs on \
                  x86-64 in release, by valgrind; keys as in xtask/src/instructions.rs. Written by \
                  `cargo xtask instructions --bless`.",
        "instructions_per_message": numbers,
    });
    let path = session.root().join(BASELINE);
    fs::create_dir_all(path.parent().context("the baseline has a folder")?)?;
    fs::write(&path, format!("{baseline:#}\n")).with_context(|| format!("can't write {BASELINE}"))?;
    for (name, now) in &counts {
        println!("  {name:<32} {now:>9.1}");
    }
    Ok(format!("{BASELINE} is written"))
}

#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Same,
    Better,
    Worse,
}

impl Verdict {
    fn of(before: f64, now: f64) -> Verdict {
        let tolerance = before * TOLERANCE_PERCENT / 100.0;
        match now - before {
            more if more > tolerance => Verdict::Worse,
            more if more < -tolerance => Verdict::Better,
            _ => Verdict::Same,
        }
    }

    fn remark(&self) -> &'static str {
        match self {
            Verdict::Same => "",
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
        }
    }
}

fn count(session: &StepSession<'_>) -> Result<Vec<(&'static str, f64)>> {
    session.run(session.command("valgrind").arg("--version")).context(
        "valgrind counts the instructions: install it (`apt-get install valgrind`), or leave this out with \
         `cargo xtask ci --skip instructions`",
    )?;
    session.cargo(&["build", "--locked", "--release", "--package=spindle-multicast", "--example=hot_path"])?;
    let metadata = session.metadata()?;
    let release: PathBuf = metadata.target_directory.join("release").into();
    SETTINGS.iter().map(|(name, setting)| Ok((*name, per_message(session, &release, *setting)?))).collect()
}

fn per_message(session: &StepSession<'_>, release: &Path, [size, burst, senders]: [u64; 3]) -> Result<f64> {
    let mut totals = [0; 2];
    for (total, messages) in totals.iter_mut().zip(MESSAGES) {
        let out = release.join("callgrind.out");
        let mut command = session.command("valgrind");
        command.args(["--tool=callgrind", "--quiet"]).arg(format!("--callgrind-out-file={}", out.display()));
        command.arg(release.join("examples/hot_path"));
        command.args([size, messages, burst, senders].map(|number| number.to_string()));
        session.run(&mut command)?;
        let text = fs::read_to_string(&out).with_context(|| format!("can't read {}", out.display()))?;
        *total = instructions(&text).with_context(|| format!("no sum in {}", out.display()))?;
    }
    let more = totals[1].checked_sub(totals[0]).context("more messages took fewer instructions")?;
    Ok(more as f64 / (MESSAGES[1] - MESSAGES[0]) as f64)
}

/// Returns the sum that callgrind writes at the end of its file.
fn instructions(callgrind: &str) -> Option<u64> {
    let line = callgrind.lines().find_map(|line| line.strip_prefix("totals:").or(line.strip_prefix("summary:")))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_read() {
        assert_eq!(instructions("events: Ir\nfn=(0)\n1 2\ntotals: 12345\n"), Some(12345));
        assert_eq!(instructions("summary: 7 8\n"), Some(7));
        assert_eq!(instructions("events: Ir\n"), None);
    }

    #[test]
    fn three_per_cent_are_noise_and_more_is_not() {
        assert_eq!(Verdict::of(100.0, 102.9), Verdict::Same);
        assert_eq!(Verdict::of(100.0, 97.1), Verdict::Same);
        assert_eq!(Verdict::of(100.0, 103.1), Verdict::Worse);
        assert_eq!(Verdict::of(100.0, 96.9), Verdict::Better);
    }

    #[test]
    fn no_message_too_many_is_sent() {
        for (name, [_, burst, senders]) in SETTINGS {
            assert!(MESSAGES.iter().all(|count| count.is_multiple_of(burst * senders)), "{name}");
        }
    }
}
