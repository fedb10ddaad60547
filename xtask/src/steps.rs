//! The steps of CI, in the order in which they run: quick ones first. To add one, add an entry.
use crate::process::{Skipped, StepSession};
use crate::{chaos, cycles, dist, instructions, licences, pages, prose, purity, readme, site, upgrade};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// One check.
pub(crate) struct Step {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Its description, in one line.
    pub(crate) about: &'static str,
    /// How many minutes it may take before it counts as hung.
    pub(crate) minutes: u64,
    /// Runs the step, and returns a remark for the summary, or an empty one.
    pub(crate) run: fn(&StepSession<'_>) -> Result<String>,
}

/// All steps.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "the code is formatted",
        minutes: 2,
        run: |session| session.cargo(&["fmt", "--all", "--check"]),
    },
    Step { name: "clippy", about: "no lint fires, tests and examples included", minutes: 15, run: clippy },
    Step { name: "docs", about: "the documentation builds, every link resolves", minutes: 15, run: site::document },
    Step {
        name: "pages",
        about: "each page is in the contents of the site, its links lead somewhere, and the code has the messages that it lists",
        minutes: 2,
        run: pages::check,
    },
    Step {
        name: "prose",
        about: "sentences of comments and pages begin with the noun that acts",
        minutes: 2,
        run: prose::check,
    },
    Step { name: "cycles", about: "no two files of a crate import from each other", minutes: 2, run: cycles::check },
    Step {
        name: "licences",
        about: "every dependency has an allowed licence, every direct one its line in docs/adr/dependencies.md",
        minutes: 5,
        run: licences::check,
    },
    Step {
        name: "purity",
        about: "the core builds for wasm without std and imports nothing",
        minutes: 5,
        run: purity::check,
    },
    Step { name: "test", about: "the README's test command passes", minutes: 45, run: readme::test },
    Step {
        name: "loom",
        about: "the lock-free files, and wait sets, hold in every interleaving of two or three threads",
        minutes: 15,
        run: loom,
    },
    Step { name: "miri", about: "no undefined behaviour in the pointer code of the fabric", minutes: 10, run: miri },
    Step {
        name: "instructions",
        about: "no message costs more instructions than benches/instructions.json says",
        minutes: 10,
        run: instructions::check,
    },
    Step { name: "scope", about: "every way in which three members can end a view holds", minutes: 20, run: scope },
    Step {
        name: "sim",
        about: "1,200 seeds of the simulator, 3,000 of the block multicast, and 4 of 60 members with 200 subgroups, without a violation",
        minutes: 20,
        run: sim,
    },
    Step {
        name: "views",
        about: "3,000 seeds in which members come and go, without a violation, and enough happens in them",
        minutes: 15,
        run: views,
    },
    Step {
        name: "bootstrap",
        about: "5,000 seeds in which processes of several hosts create a group or find it, without a violation, and enough happens in them",
        minutes: 10,
        run: bootstrap,
    },
    Step {
        name: "restart",
        about: "20,000 seeds of total restarts lose nothing that is durable, and enough happens in them",
        minutes: 10,
        run: restart,
    },
    Step {
        name: "processes",
        about: "6,000 seeds of whole processes, from bootstrap to their ends, without a violation, and enough happens in them",
        minutes: 15,
        run: processes,
    },
    Step {
        name: "mutations",
        about: "every mutation is found, by the simulator or in a small scope",
        minutes: 20,
        run: mutations,
    },
    Step {
        name: "chaos",
        about: "real processes agree that are killed, stopped, started and asked to leave for a minute",
        minutes: 10,
        run: chaos::smoke,
    },
    Step {
        name: "chaos-hosts",
        about: "so do those on several hosts, in network namespaces, whose links are cut, too, for half a minute",
        minutes: 10,
        run: chaos::smoke_among_hosts,
    },
];

/// Steps of a release. CI leaves them out, because they build everything anew.
pub(crate) const RELEASE: &[Step] = &[
    Step {
        name: "package",
        about: "every package can be published, and builds from nothing but its own files",
        minutes: 30,
        run: |session| {
            let unpublished = ["--exclude", "spindle-examples", "--exclude", "xtask"];
            session.cargo(&[&["package", "--locked", "--allow-dirty", "--workspace"], &unpublished[..]].concat())
        },
    },
    Step {
        name: "site",
        about: "mdbook makes the site of the pages, with `cargo doc` and the files that they link to beside it",
        minutes: 15,
        run: site::make,
    },
    Step {
        name: "upgrade",
        about: "builds of two versions run in one group; those of two protocols refuse each other",
        minutes: 30,
        run: upgrade::check,
    },
    Step {
        name: "dist",
        about: "the archive of a release can be made, has the same bytes again, and its binary runs",
        minutes: 40,
        run: dist::make,
    },
];

/// Long variants of steps, which take too long for CI.
pub(crate) const LONG: &[Step] = &[
    Step {
        name: "scope",
        about: "every way in which larger groups can end a view holds",
        minutes: 240,
        run: long_scope,
    },
    Step { name: "loom", about: "the lock-free files hold in longer runs, too", minutes: 120, run: long_loom },
    Step { name: "miri", about: "no undefined behaviour in the core", minutes: 240, run: long_miri },
];

/// Steps that write their results as the new baseline.
pub(crate) const BLESS: &[Step] = &[
    Step { name: "instructions", about: "writes benches/instructions.json", minutes: 15, run: instructions::bless },
    Step { name: "mutations", about: "writes crates/sim/tests/mutations.seeds", minutes: 60, run: bless_mutations },
    Step { name: "stories", about: "writes the traces in crates/sim/tests/stories", minutes: 10, run: bless_stories },
];

/// Checks the workspace, and the library without any of its features, which has neither TLS nor
/// TOML nor JSON.
fn clippy(session: &StepSession<'_>) -> Result<String> {
    session.cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    session.cargo(&[
        "clippy",
        "--locked",
        "--package=spindle-multicast",
        "--lib",
        "--no-default-features",
        "--",
        "-D",
        "warnings",
    ])?;
    let mut command = session.command("cargo");
    command.args([
        "tree",
        "--locked",
        "--package=spindle-multicast",
        "--no-default-features",
        "--edges=normal",
        "--prefix=none",
    ]);
    let tree = session.read(command)?;
    let named = ["rustls", "toml", "serde_json"]
        .into_iter()
        .find(|name| tree.lines().any(|line| line.split(' ').next() == Some(name)));
    ensure!(named.is_none(), "the library without features depends on {}", named.unwrap_or_default());
    Ok(String::new())
}

/// Builds the docs without the command. Its binary has the name of the library, and both would
/// write the same pages.
fn scope(session: &StepSession<'_>) -> Result<String> {
    session.cargo(&[&SCOPE[..], &["--include-ignored", "--skip=long_", "--skip=mutations_"]].concat())
}

fn long_scope(session: &StepSession<'_>) -> Result<String> {
    session.cargo(&[&SCOPE[..], &["--ignored", "--test-threads=1", "long_"]].concat())
}

const SCOPE: [&str; 7] =
    ["test", "--locked", "--release", "--package=spindle-core", "--test=scope", "--", "--nocapture"];

fn sim(session: &StepSession<'_>) -> Result<String> {
    let run = ["run", "--locked", "--release", "--package=spindle-cli", "--", "sim", "--seeds"];
    session.cargo(&[&run[..], &["1200"]].concat())?;
    session.cargo(&[&run[..], &["4", "--large", "--threads", "1"]].concat())?;
    session.cargo(&[&run[..], &["3000", "--bulk"]].concat())
}

const STORIES: [&str; 4] = ["test", "--locked", "--package=spindle-sim", "--test=stories"];

/// Writes the traces of the stories. An expectation that does not hold still fails.
fn bless_stories(session: &StepSession<'_>) -> Result<String> {
    session.run(session.command("cargo").args(STORIES).env("SPINDLE_BLESS_STORIES", "1"))?;
    Ok(String::new())
}

/// The number of seeds with changes of the view, and the events that must occur in them at least.
const VIEWS: [(&str, u64); 3] = [("seeds", 3_000), ("views", 6_000), ("faults", 120_000)];

/// The number of bootstrap seeds between hosts, and the events that must occur in them at least.
const BOOTSTRAP: [(&str, u64); 6] = [
    ("seeds", 5_000),
    ("bootstraps", 4_000),
    ("joins", 8_000),
    ("evictions", 5_000),
    ("restarts", 15_000),
    ("faults", 50_000),
];

fn bootstrap(session: &StepSession<'_>) -> Result<String> {
    let told = search(session, "--bootstrap", &BOOTSTRAP)?;
    let count = |name: &str| told[name].as_u64().unwrap_or(0);
    Ok(format!(
        "{} seeds in {:.0} s: {} groups created, {} joins, {} restarts, {} faults",
        count("seeds"),
        told["elapsed_s"].as_f64().unwrap_or(0.0),
        count("bootstraps"),
        count("joins"),
        count("restarts"),
        count("faults")
    ))
}

/// The number of seeds of total restarts, and the events that must occur in them at least.
const RESTART: [(&str, u64); 14] = [
    ("seeds", 20_000),
    ("restarts", 30_000),
    ("ended_restarting", 90_000),
    ("outbid", 35_000),
    ("proposed_again", 8_000),
    ("learned", 7_000),
    ("refused", 1_000),
    ("recoveries", 600),
    ("lost_disks", 3_000),
    ("joins", 60_000),
    ("view_changes", 90_000),
    ("durable", 1_400_000),
    ("caught_up", 50_000),
    ("faults", 100_000),
];

fn restart(session: &StepSession<'_>) -> Result<String> {
    let told = search(session, "--restart", &RESTART)?;
    let count = |name: &str| told[name].as_u64().unwrap_or(0);
    Ok(format!(
        "{} seeds in {:.0} s: {} restarts, {} recoveries, {} view changes, {} durable messages",
        count("seeds"),
        told["elapsed_s"].as_f64().unwrap_or(0.0),
        count("restarts"),
        count("recoveries"),
        count("view_changes"),
        count("durable")
    ))
}

/// The number of seeds of whole processes, and the events that must occur in them at least.
const PROCESSES: [(&str, u64); 38] = [
    ("seeds", 6_000),
    ("bootstraps", 4_800),
    ("joins", 10_800),
    ("restarts", 6_000),
    ("partitions", 14_400),
    ("heals", 14_400),
    ("evictions", 1_200),
    ("leaves", 600),
    ("views", 14_400),
    ("continued", 60_000),
    ("full", 1_800),
    ("look_ups", 30_000),
    ("moved", 180),
    ("fifo", 1_800_000),
    ("unavailable", 540),
    ("available_again", 900),
    ("proposed", 4_200),
    ("changes", 3_600),
    ("learned", 4_800),
    ("transfers", 4_800),
    ("passed_over", 6),
    ("observed", 300_000),
    ("gaps", 1_800),
    ("large_sent", 90_000),
    ("large", 360_000),
    ("large_again", 12_000),
    ("blocks", 200_000),
    ("lent", 210_000),
    ("fetched", 30_000),
    ("killed_waiting", 30),
    ("killed_founding", 150),
    ("incomplete", 3),
    ("logged", 100_000),
    ("durable", 30_000),
    ("log_returns", 120),
    ("caught_up", 100),
    ("log_cuts", 90),
    ("foreign", 4),
];

fn processes(session: &StepSession<'_>) -> Result<String> {
    let told = search(session, "--processes", &PROCESSES)?;
    let count = |name: &str| told[name].as_u64().unwrap_or(0);
    Ok(format!(
        "{} seeds in {:.0} s: {} bootstraps, {} joins, {} restarts, {} view changes, {} deliveries",
        count("seeds"),
        told["elapsed_s"].as_f64().unwrap_or(0.0),
        count("bootstraps"),
        count("joins"),
        count("restarts"),
        count("views"),
        count("deliveries")
    ))
}

/// Runs the simulator and checks its counts. The first of `floors` is the number of seeds.
fn search(session: &StepSession<'_>, mode: &str, floors: &[(&str, u64)]) -> Result<serde_json::Value> {
    let mut command = session.command("cargo");
    command.args(["run", "--locked", "--release", "--package=spindle-cli", "--", "sim", mode, "--json"]);
    command.args(["--seeds", &floors[0].1.to_string()]);
    let story = || format!("`spindle sim {mode} --seed N` tells the story of a seed N that failed");
    let printed = session.read(command).with_context(story)?;
    let told: serde_json::Value = serde_json::from_str(&printed).context("`spindle sim --json` prints one object")?;
    for (name, least) in floors {
        let count = told[*name].as_u64().with_context(|| format!("no count of {name}"))?;
        ensure!(count >= *least, "{count} {name} are not the {least} that this step is there for");
    }
    Ok(told)
}

fn views(session: &StepSession<'_>) -> Result<String> {
    let told = search(session, "--views", &VIEWS)?;
    let count = |name: &str| told[name].as_u64().unwrap_or(0);
    Ok(format!(
        "{} seeds in {:.0} s: {} view changes, {} faults, {} deliveries checked",
        count("seeds"),
        told["elapsed_s"].as_f64().unwrap_or(0.0),
        count("views"),
        count("faults"),
        count("deliveries")
    ))
}

/// Runs, for each mutation, all seeds up to the first one that shows it.
fn bless_mutations(session: &StepSession<'_>) -> Result<String> {
    let args = ["--package=spindle-sim", "--test=mutations", "--", "--nocapture", "--ignored", "bless"];
    session.run(&mut with_cfg(session, "mutation", &args)?)?;
    Ok(String::new())
}

fn mutations(session: &StepSession<'_>) -> Result<String> {
    let args = ["--package=spindle-sim", "--test=mutations", "--", "--nocapture"];
    session.run(&mut with_cfg(session, "mutation", &args)?)?;
    // No seed shows these mutations: some of the agreement, of first views, of recoveries, of
    // liveness, and of polls in many subgroups.
    let core = ["--package=spindle-core", "--lib", "--test=scope", "--test=engine", "--test=moves"];
    for packages in [&core[..], &["--package=spindle-sim", "--lib"]] {
        let args = [packages, &["--", "--nocapture", "--ignored", "mutations_"]].concat();
        session.run(&mut with_cfg(session, "mutation", &args)?)?;
    }
    Ok(String::new())
}

fn loom(session: &StepSession<'_>) -> Result<String> {
    session.run(&mut with_cfg(session, "loom", &["--package=spindle-core", "--test=loom", "--", "--nocapture"])?)?;
    session.run(&mut with_cfg(session, "loom", &["--package=spindle-fabric", "--test=event_count_model"])?)?;
    session.run(&mut with_cfg(session, "loom", &["--package=spindle-dds-core", "--test=condition_model"])?)?;
    Ok(String::new())
}

fn long_loom(session: &StepSession<'_>) -> Result<String> {
    let args = ["--package=spindle-core", "--test=loom", "--", "--nocapture", "--ignored", "long_"];
    session.run(&mut with_cfg(session, "loom", &args)?)?;
    Ok(String::new())
}

/// Returns the command for a test with `--cfg NAME`. It uses a build directory of its own, so that the others
/// stay warm. Loom's threads have small stacks, which take the frames of release builds only.
fn with_cfg(session: &StepSession<'_>, name: &str, args: &[&str]) -> Result<Command> {
    let metadata = session.metadata()?;
    let mut command = session.command("cargo");
    let profile = if name == "loom" { "--release" } else { "--profile=search" };
    command.args(["test", "--locked", profile]).args(args);
    command.env("RUSTFLAGS", format!("--cfg {name}"));
    command.env("CARGO_TARGET_DIR", metadata.target_directory.join(name));
    Ok(command)
}

/// Runs Miri. It is a component of nightly toolchains, which nothing else here needs, so a missing
/// Miri is reported.
fn miri(session: &StepSession<'_>) -> Result<String> {
    with_miri(session, &["--package=spindle-fabric", "--lib", "--", "region::", "mirror::", "pointers::"])
}

/// Runs Miri on the core. The core has no unsafe code, so only a mistake of Miri or of the compiler
/// could be found.
fn long_miri(session: &StepSession<'_>) -> Result<String> {
    with_miri(session, &["--package=spindle-core", "--lib", "--test=garbage"])
}

fn with_miri(session: &StepSession<'_>, args: &[&str]) -> Result<String> {
    let mut probe = session.command("cargo");
    probe.args(["+nightly", "miri", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().context("can't start cargo")?.success() {
        return Err(Skipped("miri is not installed (`rustup +nightly component add miri rust-src`)".to_owned()).into());
    }
    let mut command = session.command("cargo");
    command.args(["+nightly", "miri", "test", "--locked"]).args(args);
    session.run(command.env("MIRIFLAGS", "-Zmiri-strict-provenance"))?;
    Ok(String::new())
}
