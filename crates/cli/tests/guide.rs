//! The output that pages of the guide show is what the command prints. Numbers differ from run to
//! run, so lines are compared by their shapes: each number counts as 0.
mod common;

use common::logs::{append, store};
use common::{Done, PATIENCE, Running, Scratch, seeds};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Instant;

const FIRST_GROUP: &str = include_str!("../../../docs/guide/first-group.md");
const CLI: &str = include_str!("../../../docs/guide/cli.md");
const IDL: &str = include_str!("../../../docs/guide/idl.md");
const LOG: &str = include_str!("../../../docs/guide/log.md");
const BACKUP: &str = include_str!("../../../docs/guide/backup.md");
const CONFIGURATION: &str = include_str!("../../../docs/guide/configuration.md");
const CAST: &str = include_str!("../../../docs/guide/cast.md");
const HOSTS: &str = include_str!("../../../docs/guide/hosts.md");
const TROUBLESHOOTING: &str = include_str!("../../../docs/guide/troubleshooting.md");
const TUNING: &str = include_str!("../../../docs/guide/tuning.md");
const MONITORING: &str = include_str!("../../../docs/guide/monitoring.md");
const DDS_TOOLS: &str = include_str!("../../../docs/guide/dds-tools.md");
const PERFORMANCE: &str = include_str!("../../../docs/performance.md");
/// The pages whose commands are checked to have their flags.
const PAGES: [&str; 12] = [
    FIRST_GROUP,
    CLI,
    IDL,
    BACKUP,
    DDS_TOOLS,
    CONFIGURATION,
    CAST,
    HOSTS,
    TROUBLESHOOTING,
    TUNING,
    MONITORING,
    PERFORMANCE,
];

/// Returns the contents of the blocks in `language` of a page, in order.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// Returns the block in `language` that contains `words`.
fn block<'a>(page: &'a str, language: &str, words: &str) -> &'a str {
    let found = blocks(page, language).into_iter().find(|block| block.contains(words));
    found.unwrap_or_else(|| panic!("the page has no {language} block with {words:?}"))
}

/// Returns a line with 0 in place of each number, and one space in place of several.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.trim().chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if !(matches!(c, '0' | ' ') && shape.ends_with(c)) {
            shape.push(c);
        }
    }
    shape
}

/// Checks that the lines of a block occur in the output, in the same order.
#[track_caller]
fn assert_shown(block: &str, output: &str) {
    let mut shapes = output.lines().map(shape);
    for line in block.lines() {
        assert!(shapes.any(|shape_of| shape_of == shape(line)), "the output lacks {line:?}, in order:\n{output}");
    }
}

/// Runs commands of a page in a shell, in a directory of the test. Returns all that they print.
fn run(scratch: &Scratch, commands: &str) -> String {
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_spindle")).parent().unwrap().display().to_string();
    let mut shell = Command::new("bash");
    shell.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()));
    shell.env("SPINDLE_RUNTIME_DIR", scratch.runtime_dir()).env_remove("SPINDLE_LOG").stdin(Stdio::null());
    shell.current_dir(scratch.path("")).args(["-c", &format!("set -e; exec 2>&1; {commands}")]);
    let Done { stdout, .. } = Running::start(&mut shell).done().expect(0);
    String::from_utf8(stdout).unwrap()
}

#[test]
fn the_first_page_shows_the_version() {
    let shown = block(FIRST_GROUP, "text", "rendezvous protocol");
    assert!(block(FIRST_GROUP, "sh", "cargo build").ends_with("spindle --version\n"));
    assert_eq!(run(&Scratch::new(), "spindle --version"), shown);
}

#[test]
fn the_first_page_shows_the_demo() {
    for (commands, shown) in [("spindle demo\n", "delivered the same"), ("spindle demo --kill\n", "is killed")] {
        let output = run(&Scratch::new(), block(FIRST_GROUP, "sh", commands));
        assert_shown(block(FIRST_GROUP, "text", shown), &output);
    }
}

#[test]
fn the_first_page_shows_three_members_that_print_the_same_lines() {
    let scratch = Scratch::new();
    let make = block(FIRST_GROUP, "sh", "seq -f").replace("/tmp/fruit", &scratch.path("fruit").display().to_string());
    let members = block(FIRST_GROUP, "sh", "--input a.txt");
    let (compare, grep) = (block(FIRST_GROUP, "sh", "cmp 1.out"), block(FIRST_GROUP, "sh", "grep"));
    let output = run(&scratch, &[&make, members, compare, grep].concat());
    assert_shown("view 1: members 1, 2, 3; this is member 2", &output);
    assert!(FIRST_GROUP.contains("`view 1: members 1, 2, 3; this is member 2`"));
    let shown = [block(FIRST_GROUP, "text", "identical"), block(FIRST_GROUP, "text", "in order")].concat();
    assert!(output.ends_with(&shown), "{output}");
    let first = block(FIRST_GROUP, "sh", "head").replace("1.out", "fruit/1.out");
    for line in run(&scratch, &first).lines().chain(block(FIRST_GROUP, "text", "plum 1").lines()) {
        let (fruit, number) = line.split_once(' ').unwrap();
        assert!(["apple", "pear", "plum"].contains(&fruit) && number.parse::<u32>().is_ok(), "{line:?}");
    }
}

#[test]
fn the_first_page_shows_a_member_that_joins_and_the_status() {
    let scratch = Scratch::new();
    let start = |commands: &str| {
        let words = commands.trim_end().strip_prefix("spindle ").unwrap().split(' ');
        Running::start(scratch.spindle(words).stdin(Stdio::piped()))
    };
    let two = block(FIRST_GROUP, "sh", "spindle member talk --founders 2");
    let mut members = vec![start(two), start(two)];
    members.iter_mut().for_each(|member| drop(member.says("view 1:")));
    members.push(start(block(FIRST_GROUP, "sh", "spindle member talk --with-origin")));
    let view = members[0].says("view 2:");
    assert_shown(block(FIRST_GROUP, "text", "has come"), &view);
    members[2].says("view 2:");
    let status = run(&scratch, block(FIRST_GROUP, "sh", "spindle status"));
    // The states of members depend on the moment.
    let is_sure = |line: &&str| !line.contains("asleep");
    let shown: Vec<&str> = block(FIRST_GROUP, "text", "group talk").lines().filter(is_sure).collect();
    assert_shown(&shown.join("\n"), &status);
    for done in Running::all_done(members) {
        done.expect(0);
    }
}

#[test]
fn the_reference_shows_the_changes_of_a_view() {
    let scratch = Scratch::new();
    let member =
        |members: &str| Running::start(scratch.spindle(["member", "g", "--founders", members]).stdin(Stdio::piped()));
    let mut members: Vec<Running> = (0..3).map(|_| member("3")).collect();
    let second = members.iter_mut().position(|member| member.says("view 1:").contains("this is member 2")).unwrap();
    drop(members.swap_remove(second));
    members[0].says("view 2:");
    members.push(member("1"));
    members[0].says("view 3:");
    assert_shown(block(CLI, "text", "has come"), &members[0].errors.join("\n"));
    for done in Running::all_done(members) {
        done.expect(0);
    }
}

#[test]
fn the_page_on_idl_shows_a_mistake() {
    let scratch = Scratch::new();
    let file = block(IDL, "idl", "module sensor");
    scratch.file("sensor.idl", file.as_bytes());
    let rust = run(&scratch, "spindle idl sensor.idl");
    assert!(rust.contains("pub sensor_id: i32,") && rust.contains("/// A reading of a sensor."), "{rust}");
    scratch.file("sensor.idl", file.replace("Quality quality", "Qality quality").as_bytes());
    assert_eq!(run(&scratch, "spindle idl sensor.idl || true"), block(IDL, "text", "Qality"));
}

#[test]
fn the_page_on_settings_shows_the_mistakes_of_a_file() {
    let scratch = Scratch::new();
    let text = "[group]\nname = \"g\"\nfuonders = 3\n\n\n\nsuspect_after = \"5 parsecs\"\n";
    scratch.file("spindle.toml", text.as_bytes());
    let shown = block(CONFIGURATION, "text", "fuonders");
    let output = run(&scratch, "spindle member --config spindle.toml || test $? = 2");
    assert_eq!(output, shown);
}

/// The logs are the same at each run, so what is printed equals the page.
#[test]
fn the_page_on_logs_shows_what_the_commands_print() {
    let scratch = Scratch::new();
    let dir = scratch.path("data");
    let mut owner = store(&dir);
    owner.open_named("orders", &mut |_| ()).unwrap();
    append(&mut owner, 0, 0..200, |sequence| format!("order {sequence}"));
    owner.open_named("prices", &mut |_| ()).unwrap();
    let refused = run(&scratch, "spindle log prune data orders --before 1:150 || test $? = 1");
    assert_eq!(shape(&refused), shape(block(LOG, "text", "is in use by process")));
    drop(owner);
    let outputs = ["number  name", "1:41 ", " bytes at offset ", "orders.bin: ", "the checksum", "would prune"];
    let commands = blocks(LOG, "sh").into_iter().filter(|commands| commands.contains(" data"));
    for (commands, words) in commands.zip(outputs) {
        let output = match commands.contains("verify") {
            true => with_damage(&scratch, || run(&scratch, &format!("{} || test $? = 1", commands.trim_end()))),
            false => run(&scratch, commands),
        };
        assert_eq!(output, block(LOG, "text", words), "{commands}");
    }
}

/// Starts a member by each of these commands, and waits until each has said these words.
fn start_members(scratch: &Scratch, commands: &str, words: &str) -> Vec<Running> {
    let started = commands.lines().map(|command| {
        let mut member = scratch.spindle(command.split(' ').skip(1));
        Running::listening(member.stdin(Stdio::piped()).current_dir(scratch.path("")), true)
    });
    let mut members: Vec<Running> = started.collect();
    members.iter_mut().for_each(|member| drop(member.says(words)));
    members
}

#[test]
fn the_page_on_logs_shows_a_group_with_logs() {
    let scratch = Scratch::new();
    let commands = block(LOG, "sh", "--durability logged");
    let start = |view: &str| start_members(&scratch, commands, view);
    let mut members = start("view 1:");
    members[0].send(b"hello\n");
    assert_eq!(members[1].lines(1), ["hello"]);
    members[1].send(b"hello to you\n");
    assert_eq!(members[0].lines(2), ["hello", "hello to you"]);
    let shapes = |text: &str| text.lines().map(shape).collect::<Vec<_>>();
    let shown = shapes(block(LOG, "text", "hello to you"));
    let cat = block(LOG, "sh", "cat a all");
    // A message is printed when it is delivered, perhaps before it is on disk.
    while shapes(&run(&scratch, cat)) != shown {
        assert!(members.iter_mut().all(Running::is_running));
    }
    let [one, other] = [cat.to_string(), cat.replace(" a ", " b ")].map(|cat| run(&scratch, &cat));
    assert_eq!(one, other);
    for done in Running::all_done(members) {
        done.expect(0);
    }
    // The group continues its logs.
    for done in Running::all_done(start("view 2:")) {
        done.expect(0);
    }
    assert_eq!(run(&scratch, cat), one);
}

#[test]
fn the_page_on_backups_shows_a_group_that_is_restored() {
    let scratch = Scratch::new();
    let start = |commands: &str, view: &str| start_members(&scratch, commands, view);
    let mut members = start(block(BACKUP, "sh", "--data a"), "view 1:");
    members[0].send(b"hello\n");
    assert_eq!(members[1].lines(1), ["hello"]);
    members[1].send(b"hello to you\n");
    assert_eq!(members[0].lines(2), ["hello", "hello to you"]);
    let shapes = |text: &str| text.lines().map(shape).collect::<Vec<_>>();
    let taken = run(&scratch, block(BACKUP, "sh", "create a"));
    assert_eq!(shapes(&taken), shapes(block(BACKUP, "text", "172 B\n")));
    let clock = taken.split_once("(clock ").unwrap().1.split_once(')').unwrap().0;
    let again = run(&scratch, &block(BACKUP, "sh", "create b").replace("1795973530435431410", clock));
    // The members choose their ids when they start, in either order.
    let anyone = |text: &str| text.replace("member 1", "member N").replace("member 2", "member N");
    assert_eq!(anyone(&again), anyone(&taken.replace("monday", "tuesday")));
    assert_eq!(shapes(&run(&scratch, block(BACKUP, "sh", "verify monday\n"))), shapes(block(BACKUP, "text", "intact")));
    for done in Running::all_done(members) {
        done.expect(0);
    }
    let restored = run(&scratch, block(BACKUP, "sh", "--data c --data d"));
    let incarnation = |text: &str| text.split_once("incarnation ").unwrap().1[..32].to_string();
    let shown = block(BACKUP, "text", "incarnation");
    assert_eq!(restored, shown.replace(&incarnation(shown), &incarnation(&restored)));
    let mut members = start(block(BACKUP, "sh", "--durability logged --data c"), "members 1, 2");
    members[0].send(b"hello again\n");
    assert_eq!(members[1].lines(1), ["hello again"]);
    for done in Running::all_done(members) {
        done.expect(0);
    }
    let (old, new) = (run(&scratch, "spindle log cat a all"), run(&scratch, "spindle log cat c all"));
    assert!(new.starts_with(&old) && new.ends_with("hello again\n"), "{old} {new}");
    // On several hosts.
    let each = block(BACKUP, "sh", "--id 1");
    for (host, command) in ["host1", "host2"].iter().zip(each.lines()) {
        let command = command.replace("--data data", &format!("--data {host}"));
        let shown = run(&scratch, &command);
        assert!(shown.contains("members 1, 2, 3"), "{shown}");
    }
}

/// Calls `then` while one bit of record 1:100 is changed.
fn with_damage(scratch: &Scratch, then: impl Fn() -> String) -> String {
    let place = run(scratch, "spindle log seek data orders 1:100");
    let (at, file) = place.trim_end().split_once("at offset ").unwrap().1.split_once(" of ").unwrap();
    let whole = std::fs::read(scratch.path(file)).unwrap();
    let mut damaged = whole.clone();
    damaged[at.parse::<usize>().unwrap() + 32] ^= 1;
    std::fs::write(scratch.path(file), damaged).unwrap();
    let output = then();
    std::fs::write(scratch.path(file), whole).unwrap();
    output
}

/// Returns the shape of a line about amounts, which are of any unit here.
fn amounts(line: &str) -> String {
    let shape = shape(line).replace("0.0", "0");
    ["kB", "MB", "GB"].into_iter().fold(shape, |shape, unit| shape.replace(&format!("0 {unit} "), "0 B "))
}

#[test]
fn the_page_on_files_shows_a_cast() {
    let scratch = Scratch::new();
    let commands = block(CAST, "sh", "spindle cast");
    let command =
        |begin: &str| commands.lines().find(|line| line.starts_with(begin)).unwrap().split('#').next().unwrap();
    let receive = command("spindle receive");
    scratch.file("model.bin", &vec![7; 2_000_000]);
    let mut receivers: Vec<_> = (0..3)
        .map(|i| {
            let dir = scratch.path(&format!("models{i}"));
            std::fs::create_dir(&dir).unwrap();
            let words = receive.replace("/srv/models", &dir.display().to_string());
            Running::start(&mut scratch.spindle(words.split_whitespace().skip(1)))
        })
        .collect();
    receivers.iter_mut().for_each(|receiver| drop(receiver.says("receives into")));
    let output = run(&scratch, command("spindle cast"));
    let (shown, digest) = block(CAST, "text", "XXH3-128").trim_end().rsplit_once(' ').unwrap();
    let (output, found) = output.trim_end().rsplit_once(' ').unwrap();
    assert!(digest.len() == found.len() && found.chars().all(|c| c.is_ascii_hexdigit()), "{found}");
    // Whether a file takes so long that its progress is printed depends on the machine.
    let lines = |text: &str| text.lines().filter(|line| !line.contains(" %, ")).map(amounts).collect::<Vec<_>>();
    assert_eq!(lines(output), lines(shown));
}

#[test]
fn the_page_on_hosts_shows_a_group_that_lacks_half_of_its_members() {
    let (scratch, seeds) = (Scratch::new(), seeds(3));
    // Each command of the page with addresses that are free, and directories of the test.
    let words = |line: &str| {
        let ports = seeds
            .iter()
            .zip(1..)
            .fold(line.to_owned(), |line, (seed, i)| line.replace(&format!("127.0.0.1:741{i}"), seed));
        ports.replace("/tmp/host", &scratch.path("host").display().to_string())
    };
    let start = |line: &str| {
        let words = words(line);
        Running::start(scratch.spindle(words.split_whitespace().skip(1)).stdin(Stdio::piped()))
    };
    let mut members: Vec<_> = block(HOSTS, "sh", "--founders 3").lines().map(start).collect();
    members.iter_mut().for_each(|member| drop(member.says("view 1:")));
    let joins = block(HOSTS, "sh", "host-d");
    members.push(start(joins));
    members.iter_mut().for_each(|member| drop(member.says("view 2:")));
    let mut observer = start(block(HOSTS, "sh", "spindle observe"));
    observer.says("observes");
    members[0].send(b"a line\n");
    assert_eq!(observer.lines(1), ["a line"]);

    // Stopped first, so that the two end at once for the others.
    let lost: Vec<_> = members.drain(..2).collect();
    lost.iter().for_each(Running::stop);
    lost.iter().for_each(|member| member.signal(Signal::KILL));
    lost.into_iter().for_each(|member| drop(member.done()));
    let mut waits = start(&joins.replace("host-d", "host-f"));
    let shown = block(HOSTS, "text", "are left").trim_end().strip_suffix(" ..").unwrap();
    let found = waits.says("are left");
    assert!(shape(&found).starts_with(&shape(shown)), "{found}");

    let id = |member: &mut Running| {
        let line = member.says("this is member");
        line.rsplit_once(' ').unwrap().1.to_string()
    };
    let left: BTreeSet<String> = members.iter_mut().map(id).collect();
    let view = members[0].says("view 2:");
    let all = view.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() > 3);
    let lost: BTreeSet<&str> = all.filter(|id| !left.contains(*id)).collect();
    let lost: Vec<&str> = lost.into_iter().collect();
    let command = block(HOSTS, "sh", "spindle recover").trim_end();
    let command = command.replace("/run/user/1000/spindle", &scratch.path("host-c").display().to_string());
    let command = format!("{} --yes || test $? = 1", command.replace("1,2", &lost.join(",")));
    let patience = Instant::now() + PATIENCE;
    let output = loop {
        let output = run(&scratch, &command);
        // The member of this host may be the last one to notice.
        if !output.contains("is not blocked") {
            break output;
        }
        assert!(Instant::now() < patience, "{output}");
    };
    // The new view may have the process that waits, too.
    let shown = shape(block(HOSTS, "text", "continues in view").split_inclusive(':').next().unwrap());
    assert!(output.lines().any(|line| shape(line).starts_with(&shown)), "{output}");
}

/// The fields of an event, by its level, target and message.
fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, Vec<String>> {
    let events = lines.filter_map(|line| {
        let (time, event) = line.split_once(' ')?;
        let (message, values) = event.split_at(event.find('=')?);
        let (message, first) = message.rsplit_once(' ')?;
        let names = values.split('=').filter_map(|value| value.rsplit_once(' ')).map(|(_, name)| name.to_string());
        time.ends_with('Z').then(|| (message.to_string(), [first.to_string()].into_iter().chain(names).collect()))
    });
    events.collect()
}

#[test]
fn the_page_on_troubleshooting_shows_the_events_of_a_death() {
    let scratch = Scratch::new();
    let mut members: Vec<Running> = (1..=3)
        .map(|id| {
            let id = id.to_string();
            let mut command = scratch.spindle(["member", "g", "-v", "--founders", "3", "--id", &id]);
            Running::start(command.stdin(Stdio::piped()))
        })
        .collect();
    members.iter_mut().for_each(|member| drop(member.says("view 1:")));
    members.pop().unwrap().signal(Signal::KILL);
    members.iter_mut().for_each(|member| drop(member.says("view 2:")));
    let shown = block(TROUBLESHOOTING, "text", "next view decided");
    let found = fields(members[0].errors.iter().map(String::as_str));
    let (mut compared, shown_events) = (0, fields(shown.lines()));
    for (event, names) in &shown_events {
        // The order of the signs of a death depends on the moment, and so does which of them are seen.
        if let Some(found) = found.get(event) {
            assert_eq!(found, names, "{event}");
            compared += 1;
        }
    }
    for event in ["next view decided", "view ended", "view begins"] {
        let event = format!("INFO  spindle::view: {event}");
        assert!(shown_events.contains_key(&event) && found.contains_key(&event), "{event}: {found:?}");
    }
    assert!(compared >= 4, "{found:?}");
    assert_shown(shown.lines().last().unwrap(), &members[0].errors.join("\n"));
    for done in Running::all_done(members) {
        done.expect(0);
    }
}

/// Returns the commands of a page, in blocks and in sentences.
fn commands(page: &str) -> Vec<&str> {
    let lines = blocks(page, "sh").into_iter().flat_map(str::lines);
    let spans = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    lines.chain(spans).filter(|command| command.starts_with("spindle ")).collect()
}

/// Returns the help of a command of one or two words.
fn help<'a>(known: &mut BTreeMap<Vec<&'a str>, Option<String>>, words: Vec<&'a str>) -> Option<String> {
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        let asked = command.args(&words).arg("--help").output().unwrap();
        asked.status.success().then(|| String::from_utf8(asked.stdout).unwrap())
    };
    known.entry(words.clone()).or_insert_with(ask).clone()
}

#[test]
fn commands_of_the_pages_have_the_flags_that_they_are_shown_with() {
    let (mut known, mut count) = (BTreeMap::new(), 0);
    for command in PAGES.into_iter().flat_map(commands) {
        // A comment, and a command after a pipe, are no part of it.
        let words: Vec<&str> = command.split(['#', '|']).next().unwrap().split_whitespace().skip(1).collect();
        let Some(first) = words.first().filter(|word| word.chars().all(|c| c.is_ascii_lowercase())) else { continue };
        let outer = help(&mut known, vec![first]).unwrap_or_else(|| panic!("no command {first:?}: {command}"));
        let second =
            words.get(1).filter(|word| ["backup", "bench", "config", "dds"].contains(first) && !word.starts_with('-'));
        let inner = second.and_then(|second| help(&mut known, vec![first, second])).unwrap_or_default();
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            let flag = flag.trim_end_matches([',', '.', ')']).split('=').next().unwrap();
            let named = format!("{outer}\n{inner}");
            let mut flags = named.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
            assert!(flags.any(|known| known == flag), "{flag} is no flag: {command}");
            count += 1;
        }
    }
    assert!(count > 30, "the pages show {count} flags");
}

#[test]
fn a_shape_is_free_of_numbers_and_of_widths() {
    assert_eq!(shape("  2.0 s: member 2  (process 19669)"), "0.0 s: member 0 (process 0)");
}
