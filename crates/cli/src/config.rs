//! `spindle config`: the effective settings and their origins, the errors of a file, and an example
//! file.
use crate::exit::{CliError, CliResult, USAGE};
use crate::settings::{FLAGS, Sources};
use anyhow::Context;
use serde_json::{Value as Json, json};
use spindle::settings::{Effective, Entry, Key, Origin, Problem, SettingsError, Value, example};
use std::io::{Write, stdout};
use std::path::PathBuf;

/// The subcommands of `spindle config`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Reports every error in the settings, one on a line, with its place and a remedy
    ///
    /// The status is 0 if the settings can be used, also if there are warnings. The environment
    /// counts as it does for a member. The command checks whether files can be read, but not
    /// whether names and addresses lead anywhere.
    Check(CheckArgs),
    /// Prints every effective setting and its origin
    Explain(Explain),
    /// Prints a file with every key and its meaning
    Example,
}

/// Arguments of `spindle config check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The file; by default the one that --config or $SPINDLE_CONFIG names
    #[arg(conflicts_with = "config")]
    file: Option<PathBuf>,

    /// Print one JSON object.
    ///
    /// "ok", and "problems": a list of {level ("error" or "warning"), key (or null), message,
    /// origin: {kind: "default", "file", "variable" or "flag", name, line, column}}.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    sources: Sources,
}

/// Arguments of `spindle config explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// A key, such as group.founders, or a table, such as network [default: all]
    key: Option<String>,

    /// Print one JSON object.
    ///
    /// "values": a list of {key, value, origin: {kind: "default", "file", "variable" or "flag",
    /// name, line, column}, about, default, allowed, variable, flag, hidden: a list of {value,
    /// origin}: values from other origins, which do not count}.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    sources: Sources,
}

/// Largest width that one value gives to a column of the table.
const COLUMN_MAX: usize = 36;

pub(crate) fn run(command: ConfigCommand) -> CliResult {
    match command {
        ConfigCommand::Check(args) => check(&args).map_err(|failure| failure.told_as_json(args.json)),
        ConfigCommand::Explain(args) => explain(&args).map_err(|failure| failure.told_as_json(args.json)),
        ConfigCommand::Example => print(&example()),
    }
}

fn check(args: &CheckArgs) -> CliResult {
    let mut sources = args.sources.clone();
    sources.config = args.file.clone().or(sources.config);
    let problems = match sources.read()?.effective() {
        Ok(effective) => effective.warnings().iter().cloned().chain(effective.check_files()).collect(),
        Err(SettingsError::Wrong(problems)) => problems,
        Err(error) => return Err(error.into()),
    };
    let errors = problems.iter().filter(|problem| problem.is_error).count();
    if args.json {
        let problems: Vec<Json> = problems.iter().map(problem_json).collect();
        print(&format!("{}\n", json!({"ok": errors == 0, "problems": problems})))?;
    } else {
        problems.iter().try_for_each(|problem| print(&format!("{problem}\n")))?;
    }
    let whose = sources.file().map_or("the settings".to_string(), |file| file.display().to_string());
    match errors {
        0 if args.json => Ok(()),
        0 => print(&format!("{whose} can be used\n")),
        1 => Err(CliError::new(USAGE, format_args!("{whose} can't be used: 1 error"))),
        errors => Err(CliError::new(USAGE, format_args!("{whose} can't be used: {errors} errors"))),
    }
}

fn explain(args: &Explain) -> CliResult {
    let mut effective = args.sources.read()?.effective()?;
    // The line of this key reports the error. The other values are valid all the same.
    if let Err(error) = effective.find_rack() {
        eprintln!("{error}");
    }
    let entries = chosen(&effective, args.key.as_deref())?;
    if args.json {
        let values: Vec<Json> = entries.iter().map(|entry| entry_json(entry)).collect();
        return print(&format!("{}\n", json!({"values": values})));
    }
    effective.warnings().iter().for_each(|problem| eprintln!("{problem}"));
    match (&entries[..], &args.key) {
        ([entry], Some(_)) => print(&page(entry)),
        _ => print(&table(&entries)),
    }
}

/// Returns the entries that an argument of the command line selects.
fn chosen<'a>(effective: &'a Effective, word: Option<&str>) -> CliResult<Vec<&'a Entry>> {
    let all = effective.entries();
    let Some(word) = word else { return Ok(all.iter().collect()) };
    let inside = format!("{word}.");
    let tests: [&dyn Fn(&Entry) -> bool; 3] =
        [&|entry| entry.path == word || entry.key.path == word, &|entry| entry.path.starts_with(&inside), &|entry| {
            entry.path.rsplit('.').next() == Some(word)
        }];
    let found = tests.iter().map(|test| all.iter().filter(|entry| test(entry)).collect::<Vec<_>>());
    found.into_iter().find(|entries| !entries.is_empty()).ok_or_else(|| {
        let message = format!("there is no key {word:?}; `spindle config explain` lists all");
        CliError::new(USAGE, message)
    })
}

fn table(entries: &[&Entry]) -> String {
    // The effect of a missing value is a whole sentence. The page of the key prints all of it.
    let short = |e: &Entry| match shown(e) {
        text if e.value.is_none() && text.len() > COLUMN_MAX => "(..)".to_string(),
        text => text,
    };
    let rows = entries.iter().map(|e| [e.path.clone(), short(e), e.origin.to_string(), e.key.about.to_string()]);
    let head = ["key", "value", "from", "meaning"].map(str::to_string);
    let rows: Vec<[String; 4]> = [head].into_iter().chain(rows).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count()).filter(|width| *width <= COLUMN_MAX);
        widths.max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    let line =
        |[a, b, c, d]: &[String; 4]| format!("{a:<0$}  {b:<1$}  {c:<2$}  {d}\n", widths[0], widths[1], widths[2]);
    rows.iter().map(line).collect()
}

/// Returns all information about one key.
fn page(entry: &Entry) -> String {
    let key = entry.key;
    let mut lines = vec![format!("{} = {}", entry.path, shown(entry)), format!("from      {}", entry.origin)];
    let hidden = entry.hidden.iter().map(|(value, origin)| format!("hides     {value} ({origin})"));
    lines.extend(hidden);
    lines.push(format!("meaning   {}", key.about));
    lines.push(format!("allowed   {}", key.allowed()));
    lines.push(format!("default   {}", if key.standard.is_empty() { "none" } else { key.standard }));
    lines.extend(entry.variable().map(|name| format!("variable  {name}")));
    lines.extend(flag(key).map(|flag| format!("flag      {flag}")));
    lines.join("\n") + "\n"
}

/// Returns the value, or in parentheses the effect of a missing value.
fn shown(entry: &Entry) -> String {
    match &entry.value {
        Some(value) => value.to_string(),
        None if entry.key.standard.is_empty() => "(none)".to_string(),
        None => format!("({})", entry.key.standard),
    }
}

fn flag(key: &Key) -> Option<&'static str> {
    FLAGS.iter().find(|(path, _)| *path == key.path).map(|(_, flag)| *flag)
}

fn entry_json(entry: &Entry) -> Json {
    let hidden = entry.hidden.iter().map(|(v, origin)| json!({"value": v.to_json(), "origin": origin_json(origin)}));
    json!({
        "key": entry.path,
        "value": entry.value.as_ref().map(Value::to_json),
        "origin": origin_json(&entry.origin),
        "about": entry.key.about,
        "default": if entry.key.standard.is_empty() { Json::Null } else { entry.key.standard.into() },
        "allowed": entry.key.allowed(),
        "variable": entry.variable(),
        "flag": flag(entry.key),
        "hidden": hidden.collect::<Vec<_>>(),
    })
}

fn problem_json(problem: &Problem) -> Json {
    let level = if problem.is_error { "error" } else { "warning" };
    let origin = origin_json(&problem.origin);
    json!({"level": level, "key": problem.key, "message": problem.message, "origin": origin})
}

fn origin_json(origin: &Origin) -> Json {
    match origin {
        Origin::File { name, line, column } => json!({"kind": "file", "name": name, "line": line, "column": column}),
        Origin::Variable(name) => json!({"kind": "variable", "name": name}),
        Origin::Flag(name) => json!({"kind": "flag", "name": name}),
        _ => json!({"kind": "default"}),
    }
}

fn print(text: &str) -> CliResult {
    Ok(stdout().lock().write_all(text.as_bytes()).context("can't write to the standard output")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle::settings::KEYS;

    /// Returns the table of all keys in the form of the guide.
    fn guide() -> String {
        let mut lines = vec![
            "| key | meaning | allowed | default | variable | flag |".to_string(),
            "|---|---|---|---|---|---|".to_string(),
        ];
        let code = |text: String| if text.is_empty() { text } else { format!("`{text}`") };
        lines.extend(KEYS.iter().map(|key| {
            let path = key.path.replacen("subgroup.NAME.", "[[subgroup]] ", 1);
            let variable = code(key.variable().unwrap_or_default());
            let flag = code(flag(key).unwrap_or_default().to_string());
            format!("| `{path}` | {} | {} | {} | {variable} | {flag} |", key.about, key.allowed(), key.standard)
        }));
        lines.join("\n")
    }

    #[test]
    fn the_guide_lists_every_key() {
        let page = include_str!("../guide/configuration.md");
        assert!(page.contains(&guide()), "docs/guide/configuration.md lacks this table:\n{}", guide());
        let part = "[group]\nname = \"prices\"";
        assert!(page.contains(part), "the guide shows a file");
    }
}
