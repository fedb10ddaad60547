//! Makes the archive of a release, and checks it: `cargo xtask dist`.
//!
//! The archive has the same bytes for the same commit, compiler and linker: paths of this machine
//! are left out of the binary, and files have the time of the commit. [`check`] unpacks the archive
//! and runs its binary.
mod notices;

use crate::process::StepSession;
use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::semver::Version;
use cargo_metadata::{Metadata, MetadataCommand};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The target without a C library of the system, and the one that is built where the first can't be.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "x86_64-unknown-linux-gnu"];
/// The shells whose completions the archive contains, with the names under which they look for them.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "spindle.bash"), ("zsh", "_spindle"), ("fish", "spindle.fish")];
/// Files of the repository that the archive contains, and their directory there.
const FILES: [(&str, &str); 5] = [
    ("README.md", ""),
    ("LICENSE", ""),
    ("deploy/systemd/spindle@.service", "systemd"),
    ("deploy/systemd/spindle@.socket", "systemd"),
    ("deploy/systemd/example.toml", "systemd"),
];
/// The file with the sums of all other files.
const SUMS: &str = "SHA256SUMS";

/// Makes the archive in the directory `dist` of the build directory, checks it, and returns its path.
pub(crate) fn make(session: &StepSession<'_>) -> Result<String> {
    let metadata = MetadataCommand::new().manifest_path(session.root().join("Cargo.toml")).exec()?;
    let target = target()?;
    let binary = build(session, &metadata, target)?;
    let dir = metadata.target_directory.join("dist").into_std_path_buf();
    let name = format!("spindle-{}-{}", version(&metadata)?, target.replace("-unknown", ""));
    let staged = dir.join(&name);
    if staged.exists() {
        fs::remove_dir_all(&staged)?;
    }
    stage(session, &metadata, target, &binary, &staged)?;
    let epoch = epoch(session)?;
    let archive = pack(session, &dir, &name, &epoch)?;
    let bytes = fs::read(&archive)?;
    check(session, &archive, &name, target)?;
    // The files get other times and another order in their directory; the archive must not show it.
    fs::remove_dir_all(&staged)?;
    stage(session, &metadata, target, &binary, &staged)?;
    ensure!(fs::read(pack(session, &dir, &name, &epoch)?)? == bytes, "packed twice, {name}.tar.gz has other bytes");
    let sums = read(session, "sha256sum", &[&format!("{name}.tar.gz")], &dir)?;
    fs::write(dir.join(SUMS), sums)?;
    let dirty =
        read(session, "git", &["status", "--porcelain"], session.root()).is_ok_and(|changes| !changes.is_empty());
    let remark = if dirty { ", with changes that are not committed" } else { "" };
    Ok(format!("{}: {} bytes{remark}", archive.display(), bytes.len()))
}

/// Returns the first target that is installed.
fn target() -> Result<&'static str> {
    let output = Command::new("rustup").args(["target", "list", "--installed"]).stderr(Stdio::null()).output();
    let installed = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let musl = installed.lines().any(|line| line == TARGETS[0]);
    let compiler = Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match (musl, compiler.is_ok_and(|status| status.success())) {
        (true, true) => Ok(TARGETS[0]),
        _ => {
            println!(
                "no static binary: `rustup target add {}` and musl-gcc (package musl-tools) are needed; building for {}",
                TARGETS[0], TARGETS[1]
            );
            Ok(TARGETS[1])
        }
    }
}

/// Builds the command without paths of this machine, and returns the path of the binary.
fn build(session: &StepSession<'_>, metadata: &Metadata, target: &str) -> Result<PathBuf> {
    let dir = metadata.target_directory.join("dist").join("build");
    let mut flags = vec![format!("--remap-path-prefix={}=spindle", session.root().display())];
    for sources in registries(metadata) {
        flags.push(format!("--remap-path-prefix={}=registry", sources.display()));
    }
    let mut command = session.command("cargo");
    command.args(["build", "--locked", "--release", "--package=spindle-cli", "--target", target]);
    command.env("CARGO_TARGET_DIR", &dir).env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    command.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    session.run(&mut command)?;
    Ok(dir.join(target).join("release").join("spindle").into_std_path_buf())
}

/// Returns the directories that contain the sources of dependencies.
fn registries(metadata: &Metadata) -> Vec<PathBuf> {
    let outside = metadata.packages.iter().filter(|package| package.source.is_some());
    let mut found: Vec<PathBuf> = outside
        .filter_map(|package| package.manifest_path.ancestors().nth(2))
        .map(|dir| dir.as_std_path().into())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the version of the command.
pub(crate) fn version(metadata: &Metadata) -> Result<Version> {
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "spindle-cli");
    Ok(package.context("the workspace has no package spindle-cli")?.version.clone())
}

/// Returns the time of the commit, in seconds; of a copy without commits, `SOURCE_DATE_EPOCH`.
fn epoch(session: &StepSession<'_>) -> Result<String> {
    if let Ok(time) = read(session, "git", &["log", "-1", "--format=%ct"], session.root()) {
        return Ok(time.trim().to_owned());
    }
    std::env::var("SOURCE_DATE_EPOCH").context("no commit to take the time from; set SOURCE_DATE_EPOCH")
}

/// Writes all files of the archive below `dir`.
fn stage(session: &StepSession<'_>, metadata: &Metadata, target: &str, binary: &Path, dir: &Path) -> Result<()> {
    let pages = dir.join("man/man1");
    for name in ["bin", "completions", "systemd", "man/man1"] {
        fs::create_dir_all(dir.join(name))?;
    }
    let command = dir.join("bin/spindle");
    fs::copy(binary, &command).with_context(|| format!("can't copy {}", binary.display()))?;
    for (from, to) in FILES {
        let from = session.root().join(from);
        let name = from.file_name().context("a file has a name")?;
        fs::copy(&from, dir.join(to).join(name)).with_context(|| format!("can't copy {}", from.display()))?;
    }
    let command = command.to_str().context("the build directory's path is no text")?;
    for (shell, name) in COMPLETIONS {
        fs::write(dir.join("completions").join(name), read(session, command, &["completions", shell], dir)?)?;
    }
    read(session, command, &["man", "--dir", pages.to_str().context("a path")?], dir)?;
    fs::write(dir.join("THIRD-PARTY.txt"), notices::collect(metadata, "spindle-cli", target)?)?;
    let mut files = list(dir, dir)?;
    files.sort();
    for file in &files {
        let mode = if file == "bin/spindle" { 0o755 } else { 0o644 };
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(mode))?;
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    fs::write(dir.join(SUMS), read(session, "sha256sum", &files, dir)?)?;
    Ok(fs::set_permissions(dir.join(SUMS), fs::Permissions::from_mode(0o644))?)
}

/// Returns the paths of all files below `dir`, relative to `root`.
fn list(root: &Path, dir: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(list(root, &path)?);
        } else {
            found.push(path.strip_prefix(root)?.to_str().context("a path of the archive is no text")?.to_owned());
        }
    }
    Ok(found)
}

/// Packs the directory `name` in `dir`: sorted, owned by root, all of one time.
fn pack(session: &StepSession<'_>, dir: &Path, name: &str, epoch: &str) -> Result<PathBuf> {
    let archive = dir.join(format!("{name}.tar.gz"));
    let mut command = session.command("tar");
    command.current_dir(dir).env("GZIP", "").env("LC_ALL", "C");
    command.args(["--create", "--format=ustar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    command.args(["--mode=u+rwX,go+rX,go-w", &format!("--mtime=@{epoch}"), "--use-compress-program=gzip -n -9"]);
    command.arg("--file").arg(&archive).arg(name);
    session.run(&mut command)?;
    Ok(archive)
}

/// Unpacks `archive`, compares the sums, and runs the binary: its version, a demo, a group of three.
fn check(session: &StepSession<'_>, archive: &Path, name: &str, target: &str) -> Result<()> {
    let dir = archive.with_extension("check");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let mut command = session.command("tar");
    session.run(command.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(&dir))?;
    let root = dir.join(name);
    read(session, "sha256sum", &["--check", "--strict", "--quiet", SUMS], &root)?;
    let files = list(&root, &root)?;
    let summed = fs::read_to_string(root.join(SUMS))?.lines().count();
    ensure!(files.len() == summed + 1, "{SUMS} has {summed} lines for {} files", files.len() - 1);
    for wanted in
        ["man/man1/spindle.1", "man/man1/spindle-member.1", "completions/_spindle", "systemd/spindle@.service"]
    {
        ensure!(files.iter().any(|file| file == wanted), "the archive lacks {wanted}");
    }
    read(session, "bash", &["-n", "completions/spindle.bash"], &root)?;
    let binary = root.join("bin/spindle");
    let image = fs::read(&binary)?;
    for path in [session.root().to_str(), std::env::var("HOME").ok().as_deref()].into_iter().flatten() {
        ensure!(path.len() < 4 || !contains(&image, path), "the binary contains the path {path} of this machine");
    }
    ensure!(!target.ends_with("musl") || !has_interpreter(&image)?, "the binary for {target} is not static");
    let version = spindle(session, &root, &["--version"])?;
    let first = version.split_whitespace().nth(1).unwrap_or_default();
    ensure!(name.contains(&format!("-{first}-")), "the binary in {name} says {version:?}");
    let demo = spindle(session, &root, &["demo", "--seconds", "1"])?;
    ensure!(demo.contains("All 3 members delivered the same"), "a demo of the archive's binary ended with:\n{demo}");
    three(session, &root)?;
    if target.ends_with("musl") {
        refuses_libfabric(session, &root)?;
    }
    Ok(fs::remove_dir_all(&dir)?)
}

/// Runs a group of three members of the archive's binary, each with an input of its own.
fn three(session: &StepSession<'_>, root: &Path) -> Result<()> {
    let script = "for i in 1 2 3; do seq -f \"$i %.0f\" 1000 > in.$i; done
        for i in 1 2 3; do
            bin/spindle member dist --founders 3 --runtime-dir \"$PWD/run\" --input in.$i --output out.$i & pids=\"$pids $!\"
        done
        for pid in $pids; do wait $pid; done
        cmp out.1 out.2; cmp out.1 out.3
        sort out.1 > sorted; sort in.1 in.2 in.3 | cmp - sorted";
    read(session, "sh", &["-euc", &format!("pids=; {script}")], root)
        .context("three members of the archive's binary")?;
    Ok(())
}

/// A static binary can't load libfabric: it has to say so, and not to crash.
fn refuses_libfabric(session: &StepSession<'_>, root: &Path) -> Result<()> {
    let mut command = session.command("bin/spindle");
    command.current_dir(root).args([
        "member",
        "dist",
        "--founders",
        "2",
        "--gather-timeout",
        "5",
        "--input",
        "/dev/null",
    ]);
    command.args(["--runtime-dir", "run", "--insecure", "--listen", "127.0.0.1:0", "--seeds", "127.0.0.1:1"]);
    let output = session.output(command.args(["--set", "network.fabric.kind=ofi"]))?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(1) && printed.contains("libfabric could not be loaded"),
        "asked for libfabric, the static binary ended with {}:\n{printed}",
        output.status
    );
    Ok(())
}

fn spindle(session: &StepSession<'_>, root: &Path, args: &[&str]) -> Result<String> {
    read(session, root.join("bin/spindle").to_str().context("a path is no text")?, args, root)
}

/// Runs a program to its end in `dir`, and returns its output. It must succeed.
fn read(session: &StepSession<'_>, program: &str, args: &[&str], dir: &Path) -> Result<String> {
    let mut command = session.command(program);
    let output = session.output(command.args(args).current_dir(dir).env("LC_ALL", "C"))?;
    if !output.status.success() {
        bail!(
            "`{program} {}` failed ({}):\n{}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed no text"))
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// True if an ELF file for 64 bits names a program that loads it, so is not static.
fn has_interpreter(image: &[u8]) -> Result<bool> {
    let number = |at: usize, bytes: usize| -> Result<usize> {
        let field = image.get(at..at + bytes).context("the binary's header is cut")?;
        Ok(field.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    };
    ensure!(image.starts_with(b"\x7fELF\x02\x01"), "the binary is no ELF file for 64 bits");
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for header in 0..count {
        if number(table + header * size, 4)? == INTERPRETER {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The type of the program header that names the dynamic loader.
const INTERPRETER: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_with_an_interpreter_is_not_static() {
        let mut image = vec![0; 64 + 2 * 56];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (image[32], image[54], image[56]) = (64, 56, 2);
        image[64] = 1;
        assert!(!has_interpreter(&image).unwrap());
        image[64 + 56] = 3;
        assert!(has_interpreter(&image).unwrap());
        assert!(has_interpreter(&image[..100]).is_err());
        assert!(has_interpreter(b"#!/bin/sh").is_err());
    }

    #[test]
    fn a_path_in_a_binary_is_found() {
        assert!(contains(b"\0/home/a/spindle\0", "/home/a"));
        assert!(!contains(b"\0spindle/src\0", "/home/a"));
    }
}
