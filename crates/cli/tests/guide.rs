//! The output that pages of the guide show is what the command prints. Numbers differ from run to
//! run, so lines are compared by their shapes: each number counts as 0.
mod common;

use common::logs::{append, store};
use common::{Done, Running, Scratch};
use std::process::{Command, Stdio};

const FIRST_GROUP: &str = include_str!("../../../docs/guide/first-group.md");
const CLI: &str = include_str!("../../../docs/guide/cli.md");
const LOG: &str = include_str!("../../../docs/guide/log.md");
const CONFIGURATION: &str = include_str!("../../../docs/guide/configuration.md");

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
    for (commands, words) in blocks(LOG, "sh").into_iter().zip(outputs) {
        let output = match commands.contains("verify") {
            true => with_damage(&scratch, || run(&scratch, &format!("{} || test $? = 1", commands.trim_end()))),
            false => run(&scratch, commands),
        };
        assert_eq!(output, block(LOG, "text", words), "{commands}");
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

#[test]
fn a_shape_is_free_of_numbers_and_of_widths() {
    assert_eq!(shape("  2.0 s: member 2  (process 19669)"), "0.0 s: member 0 (process 0)");
}
