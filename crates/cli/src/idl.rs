//! `spindle idl`: compiles IDL files to Rust.
use crate::exit::{CliError, CliResult, FAILED};
use crate::lines;
use anyhow::Context;
use serde_json::{Value as Json, json};
use spindle_idl::{Compiler, Diagnostic, Extensibility, Generated, IdlErrors};
use std::fmt::Display;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// Arguments of `spindle idl`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The IDL files. A file that several of them include is compiled once
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Search included files in this folder, after that of the file; may be repeated
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    includes: Vec<PathBuf>,

    /// Define a macro; its value is 1 if none is given; may be repeated
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    defines: Vec<String>,

    /// How structures and unions without an annotation may change. idlc has the same default;
    /// DDS-XTypes says appendable
    #[arg(long, value_name = "EXTENSIBILITY", default_value = "final")]
    default_extensibility: Change,

    /// Write the Rust to this file instead of the standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write nothing. With --output, fail unless the file has what would be written
    #[arg(long)]
    check: bool,

    /// Print one JSON object.
    ///
    /// "ok"; "errors" and "warnings": lists of {file, line, column (both null if the whole file is
    /// meant), message, text (the line)}; "files": the paths of all files that were read; "rust": the
    /// output, or null with --output, with --check, or after an error.
    #[arg(long)]
    json: bool,
}

/// An extensibility as an argument.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Change {
    /// Not at all
    Final,
    /// By members at the end
    Appendable,
    /// By members with other identifiers
    Mutable,
}

impl From<Change> for Extensibility {
    fn from(change: Change) -> Extensibility {
        match change {
            Change::Final => Extensibility::Final,
            Change::Appendable => Extensibility::Appendable,
            Change::Mutable => Extensibility::Mutable,
        }
    }
}

pub(crate) fn run(args: &Args) -> CliResult {
    compile(args).map_err(|failure| failure.told_as_json(args.json))
}

fn compile(args: &Args) -> CliResult {
    let mut compiler = Compiler::new().default_extensibility(args.default_extensibility.into());
    for folder in &args.includes {
        compiler = compiler.include(folder);
    }
    for definition in &args.defines {
        compiler = compiler.define(definition);
    }
    match compiler.compile(&args.files) {
        Ok(generated) => finish(args, &generated),
        Err(errors) => Err(refuse(args, &errors)?),
    }
}

/// Prints all errors, and returns their number as the failure.
fn refuse(args: &Args, errors: &IdlErrors) -> CliResult<CliError> {
    let (all, warnings) = (errors.errors(), errors.warnings());
    if args.json {
        print_json(false, all.iter().map(object).collect(), warnings.iter().map(object).collect(), &[], None)?;
    } else {
        warnings.iter().for_each(|warning| lines::tell(format_args!("warning: {warning}")));
        all.iter().for_each(|error| lines::tell(format_args!("error: {error}")));
    }
    let count = if all.len() == 1 { "1 error".to_owned() } else { format!("{} errors", all.len()) };
    Ok(CliError::new(FAILED, format_args!("the IDL can't be compiled: {count}; nothing is written")))
}

fn finish(args: &Args, generated: &Generated) -> CliResult {
    let to_output = args.output.is_none() && !args.check;
    if args.json {
        let warnings = generated.warnings().iter().map(object).collect();
        let rust = to_output.then(|| generated.rust());
        print_json(true, Vec::new(), warnings, generated.files(), rust)?;
    } else {
        generated.warnings().iter().for_each(|warning| lines::tell(format_args!("warning: {warning}")));
    }
    match &args.output {
        Some(path) if args.check => is_current(path, generated.rust()),
        Some(path) => Ok(std::fs::write(path, generated.rust())
            .with_context(|| format!("can't write {}; check the folder and its permissions", path.display()))?),
        None if to_output && !args.json => print(generated.rust()),
        None => Ok(()),
    }
}

/// Checks that a file has the output.
fn is_current(path: &Path, rust: &str) -> CliResult {
    let shown = path.display();
    let found = std::fs::read_to_string(path).with_context(|| format!("can't read {shown}; run without --check"))?;
    match found == rust {
        true => Ok(()),
        false => Err(CliError::new(FAILED, format_args!("{shown} differs from the IDL; run again without --check"))),
    }
}

fn object<K: Display>(found: &Diagnostic<K>) -> Json {
    json!({
        "file": found.path().display().to_string(),
        "line": found.line(),
        "column": found.column(),
        "message": found.kind().to_string(),
        "text": found.text(),
    })
}

fn print_json(ok: bool, errors: Vec<Json>, warnings: Vec<Json>, files: &[PathBuf], rust: Option<&str>) -> CliResult {
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let object = json!({"ok": ok, "errors": errors, "warnings": warnings, "files": files, "rust": rust});
    print(&format!("{object}\n"))
}

fn print(text: &str) -> CliResult {
    Ok(stdout().lock().write_all(text.as_bytes()).context("can't write to the standard output")?)
}
