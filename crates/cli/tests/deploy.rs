//! The files in `deploy/`, as far as one machine can test them.
mod common;

use common::{Running, Scratch};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::{Value, json};
use spindle::settings::Settings;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Returns all files below `dir` whose names end in `end`.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let (dirs, here): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let inner = dirs.iter().flat_map(|dir| files(dir, end));
    here.into_iter().filter(|path| path.to_string_lossy().ends_with(end)).chain(inner).collect()
}

#[test]
fn every_file_with_settings_can_be_used() {
    let found = files(&deploy(), ".toml");
    assert!(found.len() >= 3, "{found:?}");
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        let effective = Settings::from_toml(&path.display().to_string(), &text).effective();
        let effective = effective.unwrap_or_else(|error| panic!("{error}"));
        // The job file lacks only the settings that the scheduler provides.
        let is_job = path.ends_with("cluster/job.toml");
        assert_eq!(effective.network().is_none(), is_job, "{}", path.display());
        assert!(is_job || effective.warnings().is_empty(), "{:?}", effective.warnings());
    }
}

#[test]
fn the_settings_that_the_guide_shows_for_one_name_can_be_used() {
    let guide = fs::read_to_string(deploy().join("../docs/guide/deployment.md")).unwrap();
    let (_, shown) = guide.split_once("```toml\n[network]\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    // The guide's network settings replace those with the pods' names.
    let file = fs::read_to_string(deploy().join("kubernetes/spindle.toml")).unwrap();
    let (before, network) = file.split_once("[network]\n").unwrap();
    let (_, tls) = network.split_once("[network.tls]\n").unwrap();
    let text = format!("{before}[network]\n{shown}\n[network.tls]\n{tls}");
    let effective = Settings::from_toml("spindle.toml", &text).effective().unwrap_or_else(|error| panic!("{error}"));
    assert!(effective.warnings().is_empty(), "{:?}", effective.warnings());
    let network = effective.network().unwrap();
    assert_eq!((network.seeds, network.seed_count), (vec!["spindle:7411".to_string()], Some(3)));
}

#[test]
fn the_image_has_the_user_and_the_directory_of_the_pods() {
    let image = fs::read_to_string(deploy().join("Dockerfile")).unwrap();
    let pods = fs::read_to_string(deploy().join("kubernetes/statefulset.yaml")).unwrap();
    let settings = fs::read_to_string(deploy().join("kubernetes/spindle.toml")).unwrap();
    let after = |text: &str, mark: &str| {
        let (_, rest) = text.split_once(mark).unwrap_or_else(|| panic!("no {mark:?}"));
        rest.split([':', '"', '\n', ' ']).next().unwrap().to_string()
    };
    assert_eq!(after(&image, "USER "), after(&pods, "runAsUser: "));
    assert_eq!(after(&image, "SPINDLE_RUNTIME_DIR="), after(&settings, "runtime_dir = \""));
    assert!(image.contains("ENTRYPOINT [\"/usr/bin/spindle\"]") && image.contains("PATH=/usr/bin"));
}

#[test]
fn every_variable_in_a_file_is_that_of_a_key() {
    let mut count = 0;
    for path in ["yaml", ".sh", ".service"].iter().flat_map(|end| files(&deploy(), end)) {
        let text = fs::read_to_string(&path).unwrap();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for word in text.split(|c| !is_word(c)).filter(|word| word.len() > 8 && word.starts_with("SPINDLE_")) {
            let known = spindle::settings::KEYS.iter().filter_map(|key| key.variable()).any(|name| name == word);
            assert!(known || word == spindle::settings::FILE_VARIABLE, "{}: {word}", path.display());
            count += 1;
        }
    }
    assert!(count > 10, "only {count} were looked at");
}

/// Returns the command that prints the settings of a task of a job.
fn task(scratch: &Scratch, variables: &[(&str, &str)]) -> Command {
    // This program replaces that of a scheduler.
    let tool = scratch.file(
        "scontrol",
        b"#!/bin/sh\n[ \"$1 $2 $3\" = \"show hostnames n[1-4]\" ] && printf 'n1\\nn2\\nn3\\nn4\\n'\n",
    );
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    let path = format!("{}:{}", tool.parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.arg(deploy().join("cluster/with-group.sh")).arg(env!("CARGO_BIN_EXE_spindle"));
    command.args(["config", "explain", "--json", "--config"]).arg(deploy().join("cluster/job.toml"));
    command.env_clear().env("PATH", path).envs(variables.iter().copied());
    command
}

fn values(command: &mut Command) -> impl Fn(&str) -> Value + use<> {
    let done = Running::start(command).done().expect(0);
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    move |key| {
        let all = told["values"].as_array().unwrap();
        all.iter().find(|value| value["key"] == key).map(|value| value["value"].clone()).unwrap()
    }
}

#[test]
fn tasks_of_a_job_find_each_other_by_what_the_scheduler_says() {
    let scratch = Scratch::new();
    let slurm = [
        ("SLURM_PROCID", "5"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_JOB_NODELIST", "n[1-4]"),
        ("SLURMD_NODENAME", "n3"),
    ];
    let of = values(&mut task(&scratch, &slurm));
    assert_eq!((of("group.name"), of("group.founders")), (json!("slurm-4711"), json!(8)));
    assert_eq!(of("network.listen"), json!(["0.0.0.0:7412"]));
    assert_eq!(of("network.advertise"), json!("n3:7412"));
    assert_eq!(of("network.seeds"), json!(["n1:7411", "n2:7411", "n3:7411"]));
    // Variables that are already set keep their values.
    let of = values(task(&scratch, &slurm).env("SPINDLE_GROUP_NAME", "mine").env("PORT", "9000"));
    assert_eq!((of("group.name"), of("network.listen")), (json!("mine"), json!(["0.0.0.0:9001"])));
}

#[test]
fn tasks_of_one_host_need_no_network_and_others_a_list_of_hosts() {
    let scratch = Scratch::new();
    let openmpi = |local: &'static str| {
        [
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", local),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("PMIX_NAMESPACE", "prterun@host 1"),
        ]
    };
    let of = values(&mut task(&scratch, &openmpi("4")));
    assert_eq!((of("group.name"), of("group.founders")), (json!("mpi-prterun-host-1"), json!(4)));
    assert_eq!((of("network.listen"), of("network.seeds")), (Value::Null, Value::Null));
    let of = values(task(&scratch, &openmpi("2")).env("HOSTS", "a,b,a"));
    assert_eq!((of("network.listen"), of("network.seeds")), (json!(["0.0.0.0:7411"]), json!(["a:7411", "b:7411"])));
    let done = Running::start(&mut task(&scratch, &openmpi("2"))).done().expect(2);
    assert!(done.errors[0].contains("-x HOSTS=a,b"), "{:?}", done.errors);
    let done = Running::start(&mut task(&scratch, &[])).done().expect(2);
    assert!(done.errors[0].contains("srun or mpirun"), "{:?}", done.errors);
}

#[test]
fn a_service_reads_a_pipe_that_never_ends_and_leaves_in_order() {
    let scratch = Scratch::new();
    let path = scratch.path("input");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // The service manager opens the pipe with the same flags.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let pipe = || OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
    let mut member = Running::start(scratch.spindle(["member", "served", "--rejoin"]).stdin(pipe()));
    for line in ["one", "two"] {
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writeln!(writer, "{line}").unwrap();
    }
    assert_eq!(member.lines(2), ["one", "two"]);
    member.signal(Signal::TERM);
    let done = member.done().expect(143);
    assert!(done.errors.last().unwrap().contains("left the group in order; 2 messages were sent"), "{:?}", done.errors);
}
