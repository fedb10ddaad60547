//! Runs processes of two builds in one group, and shows what docs/guide/versions.md promises.
//!
//! The other builds are copies of this tree: one with another version of the packages, one with
//! another version of the protocol.
use crate::dist::version;
use crate::process::StepSession;
use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;
use std::fs;
use std::path::{Path, PathBuf};

/// The file that contains the version of the protocol, and how its line begins.
const PROTOCOL: (&str, &str) = ("crates/core/src/wire/message.rs", "pub const VERSION: u32 = ");
/// The file that contains the version of the packages.
const MANIFEST: &str = "Cargo.toml";

/// Builds the command three times, and runs the builds in one group.
pub(crate) fn check(session: &StepSession<'_>) -> Result<String> {
    let metadata = MetadataCommand::new().manifest_path(session.root().join(MANIFEST)).no_deps().exec()?;
    let dir = metadata.target_directory.join("upgrade").into_std_path_buf();
    let version = version(&metadata)?;
    let mut patch = version.clone();
    patch.patch += 1;
    let protocol = protocol(session.root())?;
    let other = protocol + 1;
    let ours = build(session, &dir, "ours", &[])?;
    let from = format!("\"{version}\"");
    let newer = build(session, &dir, "patch", &[(MANIFEST, from, format!("\"{patch}\""))])?;
    let lines = [protocol, other].map(|number| format!("{}{number};", PROTOCOL.1));
    let names = [protocol, other].map(|number| format!("rendezvous protocol {number})"));
    let [(line, next), (name, named)] = [lines, names].map(|[a, b]| (a, b));
    let foreign =
        build(session, &dir, "protocol", &[(PROTOCOL.0, line, next), ("crates/cli/src/main.rs", name, named)])?;
    let run = dir.join("run");
    if run.exists() {
        fs::remove_dir_all(&run)?;
    }
    fs::create_dir_all(&run)?;
    let mut command = session.command("sh");
    command.current_dir(&run).args(["-euc", SCRIPT]);
    command.env("OURS", ours).env("NEWER", newer).env("FOREIGN", foreign);
    command.env("NEWER_VERSION", patch.to_string());
    let output = session.output(&mut command)?;
    let printed = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    ensure!(output.status.success(), "the builds ended with {}:\n{printed}", output.status);
    for refusal in printed.lines().filter(|line| line.starts_with("refused: ")) {
        for number in [protocol, other] {
            ensure!(refusal.contains(&format!("version {number}")), "{refusal:?} does not name version {number}");
        }
    }
    let refusals = printed.lines().filter(|line| line.starts_with("refused: ")).count();
    ensure!(refusals == 2, "{refusals} refusals instead of 2:\n{printed}");
    Ok(format!(
        "{version} and {patch} run together; protocol {other} is refused by {protocol}, and the other way round"
    ))
}

/// Two builds with one protocol create a group and deliver the same; an observer of the newer build
/// follows the older members. Processes with another protocol are refused.
const SCRIPT: &str = r#"
dir="$PWD/groups"
"$NEWER" --version | grep -qF " $NEWER_VERSION "
seq -f 'ours %.0f' 1000 > in.ours
seq -f 'newer %.0f' 1000 > in.newer
"$OURS" member mixed --founders 2 --runtime-dir "$dir" --input in.ours --output out.ours & ours=$!
"$NEWER" member mixed --founders 2 --runtime-dir "$dir" --input in.newer --output out.newer & newer=$!
wait $ours; wait $newer
cmp out.ours out.newer
sort out.ours > sorted
sort in.ours in.newer | cmp - sorted
refuse() { # a group of build $1 runs, and a process of build $2 comes
    mkfifo "in.$3"
    "$1" member "$3" --founders 1 --runtime-dir "$dir" --input "in.$3" --output /dev/null & running=$!
    exec 9> "in.$3"
    until "$1" status "$3" --runtime-dir "$dir" > status.out 2>&1; do
        kill -0 $running
    done
    status=0
    "$2" member "$3" --runtime-dir "$dir" --gather-timeout 20 --input /dev/null --output /dev/null 2> refused || status=$?
    [ $status = 1 ] || [ $status = 2 ] || { echo "status $status"; cat refused; exit 1; }
    grep '^error' refused | sed 's/^/refused: /'
    exec 9>&-
    wait $running
}
refuse "$OURS" "$FOREIGN" old
refuse "$FOREIGN" "$OURS" new
"#;

/// Returns the version of the protocol in this tree.
fn protocol(root: &Path) -> Result<u32> {
    let text = fs::read_to_string(root.join(PROTOCOL.0))?;
    let line = text.lines().find_map(|line| line.strip_prefix(PROTOCOL.1)).context("no version of the protocol")?;
    Ok(line.trim_end_matches(';').parse()?)
}

/// Builds the command from a copy of this tree with other texts, and returns the path of a binary.
fn build(session: &StepSession<'_>, dir: &Path, name: &str, changes: &[(&str, String, String)]) -> Result<PathBuf> {
    let tree = dir.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fs::create_dir_all(&tree)?;
    let copy = "cp -r Cargo.toml Cargo.lock rust-toolchain.toml README.md LICENSE crates xtask docs \"$0\"";
    session.run(session.command("sh").args(["-euc", copy]).arg(&tree))?;
    for (file, from, to) in changes {
        let path = tree.join(file);
        let text = fs::read_to_string(&path)?;
        ensure!(text.contains(from), "{file} does not contain {from}");
        fs::write(&path, text.replace(from, to))?;
    }
    let mut command = session.command("cargo");
    command.current_dir(&tree).args(["build", "--offline", "--package=spindle-cli"]);
    session.run(command.env("CARGO_TARGET_DIR", dir.join("build")))?;
    let binary = dir.join(format!("spindle-{name}"));
    fs::copy(dir.join("build/debug/spindle"), &binary)?;
    Ok(binary)
}
