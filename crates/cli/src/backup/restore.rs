//! `spindle backup restore`.
use super::verify::{open, whole};
use super::{on_signals, stopped};
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::lines;
use crate::logs::{escaped_name, print};
use crate::progress::ProgressLine;
use crate::signals::Stop;
use serde_json::json;
use spindle::{GroupRecord, MemberId};
use spindle_log::limits::GROUP_NAME_BYTES_MAX;
use spindle_log::{BackupError, BackupManifest, Config, Disk, FileDisk, Identity, restore};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Arguments of `spindle backup restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the backup
    backup: PathBuf,

    /// A data directory, empty or to be created: once for each member of the new group, in the order of
    /// their ids
    #[arg(long, value_name = "DIR", required = true)]
    data: Vec<PathBuf>,

    /// The name of the new group; by default that of the backup
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// The ids of all members of the new group, such as 1,2,3; by default 1, 2, .. for each --data
    ///
    /// All of them have to start before the group continues.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    members: Vec<u64>,

    /// The member of the one --data, if the others are restored elsewhere from copies of this backup
    #[arg(long, value_name = "ID", requires = "members")]
    id: Option<u64>,

    /// The incarnation of the new group, as the first restore has printed it, if the members are
    /// restored one by one; by default a random one
    #[arg(long, value_name = "HEX", value_parser = incarnation)]
    incarnation: Option<u128>,

    /// Print one JSON object: "event" ("restored"), group, incarnation, members, records, snapshots,
    /// and directories: id, data
    #[arg(long)]
    pub(super) json: bool,
}

/// The directory of the logs in a data directory, and its name until it is whole.
const LOGS: &str = "log";
const PART: &str = "log.restoring";
const STOPPED: &str = "before all directories were restored; nothing of them is left";

fn incarnation(text: &str) -> Result<u128, String> {
    let parsed = u128::from_str_radix(text, 16).ok().filter(|incarnation| *incarnation > 0 && text.len() == 32);
    parsed.ok_or_else(|| "an incarnation has 32 hexadecimal digits".to_string())
}

/// The members of the new group, and those that are restored here.
struct Plan<'a> {
    members: Vec<MemberId>,
    here: Vec<(MemberId, &'a Path)>,
}

impl Args {
    fn plan(&self) -> CliResult<Plan<'_>> {
        let usage = |message: String| Err(CliError::new(USAGE, message));
        let members: Vec<u64> = match &self.members[..] {
            [] => (1..=self.data.len() as u64).collect(),
            members => members.to_vec(),
        };
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) || sorted.first() == Some(&0) {
            return usage("the ids of the members have to differ, from 1 on".to_string());
        }
        let here = match (self.id, &self.data[..]) {
            (Some(id), [data]) if members.contains(&id) => vec![(MemberId(id), data.as_path())],
            (Some(id), [_]) => return usage(format!("member {id} is none of --members")),
            (Some(_), _) => return usage("with --id name one --data".to_string()),
            (None, data) if data.len() == members.len() => {
                members.iter().copied().map(MemberId).zip(data.iter().map(PathBuf::as_path)).collect()
            }
            (None, data) => {
                return usage(format!(
                    "{} members need as many --data, and there are {}; for one of them name its --id",
                    members.len(),
                    data.len()
                ));
            }
        };
        Ok(Plan { members: members.into_iter().map(MemberId).collect(), here })
    }
}

pub(super) fn run(args: &Args) -> CliResult {
    let plan = args.plan()?;
    if let Some(group) = &args.group
        && !(1..=GROUP_NAME_BYTES_MAX).contains(&group.len())
    {
        return Err(CliError::new(USAGE, format_args!("a name of a group has 1 to {GROUP_NAME_BYTES_MAX} bytes")));
    }
    let stop = on_signals()?;
    let backup = open(&args.backup)?;
    let mut targets = plan.here.iter().map(|(id, dir)| Target::open(*id, dir)).collect::<CliResult<Vec<_>>>()?;
    let manifest = whole(&args.backup, &backup, &stop, args.json)?;
    let failed =
        |error: spindle::RestoreError| CliError::new(FAILED, format_args!("{}: {error}", args.backup.display()));
    let last = GroupRecord::parse(&manifest.record).map_err(failed)?;
    let record = last.restored(&plan.members, &manifest).map_err(failed)?;
    warn_of_missing(args.json, &last, &manifest);
    let group = args.group.clone().unwrap_or_else(|| manifest.group.clone());
    let incarnation = args.incarnation.map_or_else(random, Ok)?;
    let (mut records, mut snapshots) = (0, 0);
    for target in &targets {
        let identity = Identity { group: group.clone(), member: target.id.0, incarnation, payloads: manifest.payloads };
        let written = target.write((&backup, &manifest), &identity, &record, (&stop, args.json))?;
        (records, snapshots) = (written.records, written.snapshots);
    }
    // Each is whole by now.
    targets.iter_mut().try_for_each(Target::finish)?;
    let shown = format!("{incarnation:032x}");
    let ids: Vec<u64> = plan.members.iter().map(|id| id.0).collect();
    print(
        args.json,
        || {
            let directories: Vec<_> =
                plan.here.iter().map(|(id, dir)| json!({"id": id.0, "data": dir.display().to_string()})).collect();
            json!({"event": "restored", "group": group, "incarnation": shown, "members": ids, "records": records,
                   "snapshots": snapshots, "directories": directories})
        },
        || {
            let mut lines: Vec<String> =
                plan.here.iter().map(|(id, dir)| format!("{}: member {id}", dir.display())).collect();
            let ids = crate::views::shortened(&ids);
            lines.push(format!("group {group}, incarnation {shown}: members {ids}, {records} records each"));
            lines.join("\n")
        },
    )
}

/// Reports the logged subgroups of which the backup has no log.
fn warn_of_missing(json: bool, last: &GroupRecord, manifest: &BackupManifest) {
    let has_log = |name: &String| manifest.logs.iter().any(|log| log.name.as_ref() == Some(name));
    for spec in last.view().subgroups.iter().filter(|spec| spec.is_logged() && !has_log(&spec.name)) {
        let (log, why) =
            (escaped_name(&spec.name), "the backup has no log of this subgroup, which begins without messages");
        match json {
            true => lines::tell(json!({"event": "incomplete", "log": log, "why": why})),
            false => lines::tell(format_args!("log {log}: {why}")),
        }
    }
}

fn random() -> CliResult<u128> {
    let mut bytes = [0; 16];
    let failed = |error| CliError::new(FAILED, format_args!("can't get random numbers: {error}"));
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(failed)?;
    match got == bytes.len() {
        true => Ok(u128::from_le_bytes(bytes).max(1)),
        false => Err(CliError::new(FAILED, "can't get random numbers; try again")),
    }
}

/// A data directory that is restored. Unless it is finished, nothing of it is left.
struct Target<'a> {
    id: MemberId,
    dir: &'a Path,
    is_new: bool,
    is_done: bool,
}

impl Target<'_> {
    fn open(id: MemberId, dir: &Path) -> CliResult<Target<'_>> {
        let failed =
            |error| CliError::new(FAILED, format_args!("can't use {}: {error}; name another directory", dir.display()));
        match fs::read_dir(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Target { id, dir, is_new: true, is_done: false })
            }
            Err(error) => Err(failed(error)),
            Ok(mut entries) => match entries.next() {
                None => Ok(Target { id, dir, is_new: false, is_done: false }),
                Some(_) => Err(BackupError::NotEmpty { path: dir.display().to_string() }.into()),
            },
        }
    }

    fn write(
        &self,
        (backup, manifest): (&Arc<dyn Disk>, &BackupManifest),
        identity: &Identity,
        record: &[u8],
        (stop, json): (&Stop, bool),
    ) -> CliResult<spindle_log::Restored> {
        let part = self.dir.join(PART);
        let failed = |error| CliError::new(FAILED, format_args!("can't create {}: {error}", part.display()));
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&part).map_err(failed)?);
        let mut progress = ProgressLine::new(&format!("restoring {}", self.dir.display()), manifest.bytes(), json);
        let mut go_on = |bytes| {
            progress.show(|| bytes);
            !stop.flag.load(Ordering::Acquire)
        };
        let record = Some((GroupRecord::KIND, record));
        let restored = restore(backup, manifest, &disk, identity, record, Config::default(), &mut go_on);
        restored.map_err(|error| stopped(error, stop, STOPPED))
    }

    /// Gives the logs the name by which a member finds them.
    fn finish(&mut self) -> CliResult {
        let renamed = fs::rename(self.dir.join(PART), self.dir.join(LOGS));
        let synced = renamed.and_then(|()| fs::File::open(self.dir)?.sync_all());
        self.is_done = true;
        synced.map_err(|error| CliError::new(FAILED, format_args!("can't rename in {}: {error}", self.dir.display())))
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_dir_all(self.dir.join(PART));
            if self.is_new {
                let _ = fs::remove_dir(self.dir);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn plan(words: &str) -> Result<Vec<(u64, String)>, String> {
        let words = ["restore", "b"].into_iter().chain(words.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        let plan = command.args.plan().map_err(|error| format!("{:#}", error.error))?;
        Ok(plan.here.iter().map(|(id, dir)| (id.0, dir.display().to_string())).collect())
    }

    #[test]
    fn each_directory_is_of_one_member() {
        let pairs = |pairs: &[(u64, &str)]| Ok(pairs.iter().map(|(id, dir)| (*id, (*dir).to_string())).collect());
        assert_eq!(plan("--data a --data b"), pairs(&[(1, "a"), (2, "b")]));
        assert_eq!(plan("--data a --data b --members 7,4"), pairs(&[(7, "a"), (4, "b")]));
        assert_eq!(plan("--data a --members 7,4 --id 4"), pairs(&[(4, "a")]));
        for (words, why) in [
            ("--data a --members 1,2", "name its --id"),
            ("--data a --members 1,1", "differ"),
            ("--data a --members 0", "from 1 on"),
            ("--data a --data b --members 1,2 --id 1", "one --data"),
            ("--data a --members 1,2 --id 3", "none of --members"),
            ("--data a --id 3", "--members"),
            ("--data a --incarnation 12", "32 hexadecimal digits"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
        }
    }
}
