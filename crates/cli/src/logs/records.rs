//! `spindle log cat`, `seek` and `export`: the records of a log.
use super::values::{clock, head, line, object, or_null, time, version};
use super::{Chosen, Directory, Whose, print};
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::progress::ProgressLine;
use crate::quantity::short;
use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use spindle_log::{Place, Reader, Readers, Record, Version, as_owner_changed};
use std::fs::{self, File};
use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};

/// Arguments of `spindle log cat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cat {
    #[command(flatten)]
    whose: Whose,

    #[command(flatten)]
    range: Range,

    /// Print JSON objects, one a line: version, epoch, sequence, clock, time, bytes, sender and sent
    /// (in the logs of a member), and text, or hex if the message is no UTF-8
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of `spindle log seek`.
#[derive(Debug, clap::Args)]
pub(crate) struct SeekArgs {
    #[command(flatten)]
    whose: Whose,

    /// The version, such as 1:40
    #[arg(value_parser = version, required_unless_present = "time")]
    version: Option<Version>,

    /// A time (UTC), such as 2026-11-22T20:47:06Z, or the clock of a record
    #[arg(long, value_name = "TIME", value_parser = clock, conflicts_with = "version")]
    time: Option<u64>,

    /// Print one JSON object: version, epoch, sequence, clock, time, bytes, file, segment, offset
    #[arg(long)]
    pub(super) json: bool,
}

/// Arguments of `spindle log export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    #[command(flatten)]
    whose: Whose,

    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,

    /// The format of the file
    #[arg(long, value_enum, default_value_t = Format::Frames)]
    format: Format,

    #[command(flatten)]
    range: Range,

    /// Print one JSON object at the end: "event" ("exported"), number, name, records, bytes (of the
    /// file), first, last, file
    #[arg(long)]
    pub(super) json: bool,
}

/// The format of an exported file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    /// For each record the length of the payload (4 bytes), epoch, sequence and clock (8 bytes
    /// each), all little-endian, and the payload. In the logs of a member a payload begins with the
    /// sender and the time of sending (8 bytes each)
    Frames,
    /// For each record a JSON object, as `spindle log cat --json` prints it
    Json,
}

/// The records that are read: all, if nothing bounds them.
#[derive(Clone, Debug, clap::Args)]
struct Range {
    /// Begin with the first record of at least this version, such as 1:40
    #[arg(long, value_name = "VERSION", value_parser = version, conflicts_with = "since")]
    from: Option<Version>,

    /// End with the last record of at most this version
    #[arg(long, value_name = "VERSION", value_parser = version, conflicts_with = "until")]
    to: Option<Version>,

    /// Begin with the first record of at least this time (UTC), such as 2026-11-22T20:47:06Z, or of
    /// this clock
    #[arg(long, value_name = "TIME", value_parser = clock)]
    since: Option<u64>,

    /// End with the last record of at most this time
    #[arg(long, value_name = "TIME", value_parser = clock)]
    until: Option<u64>,

    /// End after this many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl Range {
    fn check(&self) -> CliResult {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            return Err(CliError::new(USAGE, format_args!("--from {from} is behind --to {to}")));
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since > until
        {
            let message = format!("--since {} is later than --until {}", time(since), time(until));
            return Err(CliError::new(USAGE, message));
        }
        Ok(())
    }

    /// Calls `take` for each record of the range, in order.
    fn each(
        &self,
        directory: &Directory,
        log: &Chosen,
        readers: &Readers,
        take: &mut dyn FnMut(Record<'_>) -> anyhow::Result<()>,
    ) -> CliResult {
        let mut reader = readers.reader();
        match (self.from, self.since) {
            (Some(from), _) => reader.seek(from),
            (None, Some(since)) => reader.seek_clock(since),
            (None, None) => {}
        }
        for _ in 0..self.limit.unwrap_or(u64::MAX) {
            let next = reader.next().map_err(|error| as_owner_changed(&directory.disk, log.number, error))?;
            let Some(record) = next else { break };
            if self.to.is_some_and(|to| record.version > to) || self.until.is_some_and(|until| record.clock > until) {
                break;
            }
            take(record)?;
        }
        Ok(())
    }
}

pub(super) fn cat(args: &Cat) -> CliResult {
    args.range.check()?;
    let directory = Directory::open(&args.whose.dir)?;
    let log = directory.log(&args.whose.log)?;
    let readers = directory.read(&log, args.json)?;
    let failed = "can't write to the standard output";
    let mut out = BufWriter::new(stdout().lock());
    let outcome = args.range.each(&directory, &log, &readers, &mut |record| {
        let line = if args.json {
            object(&record, directory.identity.payloads).to_string()
        } else {
            line(&record, directory.identity.payloads)
        };
        writeln!(out, "{line}").context(failed)
    });
    // Records that were read before an error are printed all the same.
    out.flush().context(failed)?;
    outcome
}

pub(super) fn seek(args: &SeekArgs) -> CliResult {
    let directory = Directory::open(&args.whose.dir)?;
    let log = directory.log(&args.whose.log)?;
    let readers = directory.read(&log, args.json)?;
    let mut reader = readers.reader();
    let found = find(args, &mut reader).map_err(|error| as_owner_changed(&directory.disk, log.number, error))?;
    let Some((mut keys, bytes, Place { path, segment, offset })) = found else {
        return Err(CliError::new(FAILED, missing(args, &log, &readers)));
    };
    keys.insert("file".into(), path.as_str().into());
    keys.insert("segment".into(), segment.into());
    keys.insert("offset".into(), offset.into());
    let text = |key: &str| keys[key].as_str().unwrap_or_default();
    let line = format!("{} {} {bytes} bytes at offset {offset} of {path}", text("version"), text("time"));
    print(args.json, || Value::Object(keys.clone()), || line)
}

/// The keys, the bytes and the place of a record.
type FoundRecord = (serde_json::Map<String, Value>, usize, Place);

fn find(args: &SeekArgs, reader: &mut Reader) -> Result<Option<FoundRecord>, spindle_log::Error> {
    let record = match (args.version, args.time) {
        (_, Some(clock)) => reader.at_clock(clock)?,
        (version, None) => {
            reader.seek(version.unwrap_or_default());
            reader.next()?
        }
    };
    let keys = record.map(|record| (head(&record), record.payload.len()));
    Ok(keys.zip(reader.place_of_last()).map(|((keys, bytes), place)| (keys, bytes, place)))
}

/// The message if no record is there.
fn missing(args: &SeekArgs, log: &Chosen, readers: &Readers) -> String {
    match (args.version, args.time, readers.oldest(), readers.durable()) {
        (_, Some(clock), Some(oldest), _) => {
            format!("log {log} has no record of {} or before; its first record is {oldest}", time(clock))
        }
        (Some(version), _, Some(_), Some(last)) => {
            format!("log {log} has no record of {version} or behind; its last record is {last}")
        }
        _ => format!("log {log} has no records"),
    }
}

pub(super) fn export(args: &Export) -> CliResult {
    args.range.check()?;
    let directory = Directory::open(&args.whose.dir)?;
    let log = directory.log(&args.whose.log)?;
    let shown = args.output.display().to_string();
    if args.output.exists() && !args.overwrite {
        let message = format!("{shown} exists; name another file, or say --overwrite");
        return Err(CliError::new(FAILED, message));
    }
    let part =
        part_of(&args.output).ok_or_else(|| CliError::new(USAGE, format_args!("{shown:?} is no name of a file")))?;
    let readers = directory.read(&log, args.json)?;
    let written = {
        let mut progress = directory.progress("exporting", &log, args.json);
        write(args, &directory, &log, &readers, &part, &mut progress)
    };
    let written = match written {
        Ok(written) => written,
        Err(failure) => {
            // A part that can't be removed is replaced by the next export.
            let _ = fs::remove_file(&part);
            return Err(failure);
        }
    };
    fs::rename(&part, &args.output).with_context(|| format!("can't rename {} to {shown}", part.display()))?;
    let WrittenRecord { records, bytes, first, last } = written;
    print(
        args.json,
        || {
            json!({"event": "exported", "number": log.number, "name": log.name, "records": records, "bytes": bytes,
                   "first": or_null(first), "last": or_null(last), "file": shown})
        },
        || match (first, last) {
            (Some(first), Some(last)) => {
                let plural = if records == 1 { "" } else { "s" };
                format!("{shown}: {records} record{plural} of log {log}, {first} to {last}, {}B", short(bytes as f64))
            }
            _ => format!("{shown}: no records of log {log}"),
        },
    )
}

#[derive(Default)]
struct WrittenRecord {
    records: u64,
    bytes: u64,
    first: Option<Version>,
    last: Option<Version>,
}

fn write(
    args: &Export,
    directory: &Directory,
    log: &Chosen,
    readers: &Readers,
    part: &Path,
    progress: &mut ProgressLine,
) -> CliResult<WrittenRecord> {
    let failed = || format!("can't write {}", part.display());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(part).with_context(failed)?);
    let mut written = WrittenRecord::default();
    args.range.each(directory, log, readers, &mut |record| {
        let bytes = match args.format {
            Format::Frames => frame(&record),
            Format::Json => format!("{}\n", object(&record, directory.identity.payloads)).into_bytes(),
        };
        out.write_all(&bytes).with_context(failed)?;
        written.records += 1;
        written.bytes += bytes.len() as u64;
        written.first.get_or_insert(record.version);
        written.last = Some(record.version);
        progress.show(|| written.bytes);
        Ok(())
    })?;
    let file = out.into_inner().map_err(|error| anyhow!(error.into_error())).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    Ok(written)
}

/// A record as a frame, in the form of `spindle member --frames --with-origin`.
fn frame(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28 + record.payload.len());
    // Payloads have at most 2 GiB.
    bytes.extend((record.payload.len() as u32).to_le_bytes());
    for number in [record.version.epoch, record.version.sequence, record.clock] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(record.payload);
    bytes
}

/// The name under which a file grows.
fn part_of(output: &Path) -> Option<PathBuf> {
    let name = output.file_name()?.to_string_lossy().into_owned();
    Some(output.with_file_name(format!(".{name}.part")))
}
