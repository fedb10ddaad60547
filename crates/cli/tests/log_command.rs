//! `spindle log`: the binary over data directories that the test writes with the library.
mod common;

use common::logs::{BEGIN, SECOND, append, store};
use common::{Done, Running, Scratch};
use serde_json::{Value, json};
use spindle_log::{Record, Version};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn payload(sequence: u64) -> String {
    format!("order {sequence}{}", " ".repeat(sequence as usize % 300))
}

/// A directory with a log of 200 records named `orders`, a second apart; the log 1, whose payloads
/// are no text; and the empty log `prices`.
fn shop(scratch: &Scratch) -> PathBuf {
    let dir = scratch.path("data");
    let mut store = store(&dir);
    assert_eq!(store.open_named("orders", &mut |_| ()).unwrap().0, 0);
    append(&mut store, 0, 0..200, payload);
    store.open_log(1, &mut |_| ()).unwrap();
    for (sequence, payload) in [&b"tab\tbell\x07"[..], b"\xff\x00"].into_iter().enumerate() {
        let record = Record { version: Version::new(2, sequence as u64), clock: BEGIN, payload };
        store.log(1).unwrap().append([record]).unwrap();
    }
    assert_eq!(store.open_named("prices", &mut |_| ()).unwrap().0, 2);
    store.record_frontiers().unwrap();
    dir
}

fn log(scratch: &Scratch, words: &str) -> Command {
    let mut command = scratch.spindle(["log"]);
    command.args(words.split(' ')).current_dir(scratch.path(""));
    command
}

fn done(scratch: &Scratch, words: &str, status: i32) -> Done {
    Running::start(&mut log(scratch, words)).done().expect(status)
}

fn lines(done: &Done) -> Vec<String> {
    String::from_utf8(done.stdout.clone()).unwrap().lines().map(str::to_string).collect()
}

/// The message of a command that fails.
fn error(scratch: &Scratch, words: &str, status: i32) -> String {
    let done = done(scratch, words, status);
    done.errors.last().unwrap_or_else(|| panic!("{words} says nothing")).clone()
}

/// The versions that `cat` prints.
fn cat(scratch: &Scratch, words: &str) -> Vec<String> {
    let printed = lines(&done(scratch, &format!("cat data {words}"), 0));
    printed.iter().map(|line| line.split(' ').next().unwrap().to_string()).collect()
}

fn versions(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|sequence| format!("1:{sequence}")).collect()
}

#[test]
fn ls_lists_names_versions_and_the_owner() {
    let scratch = Scratch::new();
    let dir = shop(&scratch);
    let printed = lines(&done(&scratch, "ls data", 0));
    assert_eq!(printed[0], "data: group shop, member 3, not in use");
    let cells: Vec<Vec<&str>> = printed[1..].iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[1][..5], ["0", "orders", "1:0", "1:199", "2020-11-22T20:03:19.000Z"]);
    assert_eq!(cells[2][..4], ["1", "-", "2:0", "2:1"]);
    assert_eq!(cells[3][..4], ["2", "prices", "-", "-"]);
    let owner = store(&dir);
    let objects = done(&scratch, "ls data --json", 0).objects();
    assert_eq!(objects[0]["event"], "directory");
    assert_eq!(objects[0]["owner"], std::process::id());
    assert_eq!(objects[0]["incarnation"], "00000000000000000000000000000017");
    assert_eq!(objects[1]["name"], "orders");
    assert_eq!((&objects[1]["first"], &objects[1]["last"]), (&json!("1:0"), &json!("1:199")));
    assert!(objects[1]["segments"].as_u64().unwrap() > 3, "{objects:#?}");
    assert_eq!(objects[3]["first"], Value::Null);
    drop(owner);
}

#[test]
fn cat_prints_ranges_of_versions_and_of_time() {
    let scratch = Scratch::new();
    shop(&scratch);
    assert_eq!(cat(&scratch, "orders"), versions(0..200));
    assert_eq!(cat(&scratch, "0 --limit 3"), versions(0..3));
    assert_eq!(cat(&scratch, "orders --from 1:7 --to 1:9"), versions(7..10));
    assert_eq!(cat(&scratch, "orders --from 1:198"), versions(198..200));
    assert_eq!(cat(&scratch, "orders --from 9:0"), versions(0..0));
    let times = "--since 2020-11-22T20:00:30Z --until 2020-11-22T20:00:32.5Z";
    assert_eq!(cat(&scratch, &format!("orders {times}")), versions(30..33));
    let clocks = format!("orders --since {} --until {}", BEGIN + 30 * SECOND, BEGIN + 30 * SECOND);
    assert_eq!(cat(&scratch, &clocks), versions(30..31));
    assert_eq!(cat(&scratch, "orders --since 2020-11-22T20:03:10Z --to 1:191"), versions(190..192));
    assert_eq!(cat(&scratch, "prices"), versions(0..0));
    let printed = lines(&done(&scratch, "cat data 1", 0));
    assert_eq!(printed[0], "2:0 2020-11-22T20:00:00.000Z tab\\tbell\\u{7}");
    assert_eq!(printed[1], "2:1 2020-11-22T20:00:00.000Z \\xff\\x00");
    let objects = done(&scratch, "cat data 1 --json", 0).objects();
    assert_eq!(objects[0]["text"], "tab\tbell\u{7}");
    assert_eq!((&objects[1]["hex"], &objects[1]["bytes"]), (&json!("ff00"), &json!(2)));
    assert_eq!((&objects[1]["epoch"], &objects[1]["clock"]), (&json!(2), &json!(BEGIN)));
}

#[test]
fn seek_finds_a_record_and_its_place() {
    let scratch = Scratch::new();
    shop(&scratch);
    for (words, sequence) in [
        ("1:40", 40),
        ("0:7", 0),
        ("--time 2020-11-22T20:01:00Z", 60),
        ("--time 2020-11-22T20:01:00.999Z", 60),
        ("--time 2100-01-01T00:00:00Z", 199),
    ] {
        let object = &done(&scratch, &format!("seek data orders {words} --json"), 0).objects()[0];
        assert_eq!(object["version"], format!("1:{sequence}"), "{words}");
        // The file has the version at that place, 8 bytes behind the checksum and the length.
        let bytes = fs::read(scratch.path(object["file"].as_str().unwrap())).unwrap();
        let at = object["offset"].as_u64().unwrap() as usize;
        assert_eq!(bytes[at + 16..at + 24], u64::to_le_bytes(sequence), "{words}");
    }
    let line = lines(&done(&scratch, "seek data orders 1:40", 0)).remove(0);
    assert!(line.starts_with("1:40 2020-11-22T20:00:40.000Z 48 bytes at offset "), "{line}");
    let message = error(&scratch, "seek data orders 9:0", 1);
    assert_eq!(message, "error: log orders has no record of 9:0 or behind; its last record is 1:199");
    let message = error(&scratch, "seek data orders --time 1999-01-01T00:00:00Z", 1);
    assert!(
        message.ends_with("has no record of 1999-01-01T00:00:00.000Z or before; its first record is 1:0"),
        "{message}"
    );
    assert_eq!(error(&scratch, "seek data prices 1:0", 1), "error: log prices has no records");
}

#[test]
fn export_writes_every_byte_or_nothing() {
    let scratch = Scratch::new();
    let dir = shop(&scratch);
    let told = lines(&done(&scratch, "export data orders --output out --from 1:10 --to 1:19", 0));
    assert!(told[0].starts_with("out: 10 records of log orders, 1:10 to 1:19, "), "{told:?}");
    let bytes = fs::read(scratch.path("out")).unwrap();
    let mut rest = &bytes[..];
    for sequence in 10..20_u64 {
        let payload = payload(sequence);
        let mut expected = (payload.len() as u32).to_le_bytes().to_vec();
        [1, sequence, BEGIN + sequence * SECOND].iter().for_each(|number| expected.extend(number.to_le_bytes()));
        expected.extend(payload.as_bytes());
        assert_eq!(rest[..expected.len()], expected);
        rest = &rest[expected.len()..];
    }
    assert!(rest.is_empty());
    let message = error(&scratch, "export data orders --output out", 1);
    assert_eq!(message, "error: out exists; name another file, or say --overwrite");
    let object = &done(&scratch, "export data 1 --output out --overwrite --format json --json", 0).objects()[0];
    assert_eq!((&object["records"], &object["last"]), (&json!(2), &json!("2:1")));
    let text = fs::read_to_string(scratch.path("out")).unwrap();
    assert_eq!(text.len() as u64, object["bytes"].as_u64().unwrap());
    let printed = done(&scratch, "cat data 1 --json", 0).stdout;
    assert_eq!(text.as_bytes(), printed);
    // A log that is damaged leaves no file.
    flip(&dir, 0, 1, 4096 + 48 + 40);
    error(&scratch, "export data orders --output none", 1);
    let names: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("none")), "{names:?}");
}

/// Changes one byte of a segment.
fn flip(dir: &std::path::Path, number: u32, segment: u64, offset: usize) {
    let path = dir.join(format!("subgroup-{number:08x}/segment-{segment:016x}"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn verify_names_file_offset_and_versions() {
    let scratch = Scratch::new();
    let dir = shop(&scratch);
    let printed = lines(&done(&scratch, "verify data", 0));
    assert!(printed[0].starts_with("log orders: intact: 200 records, 1:0 to 1:199, "), "{printed:?}");
    assert!(printed[1].starts_with("log 1: intact: 2 records, 2:0 to 2:1, "), "{printed:?}");
    assert!(printed[2].starts_with("log prices: intact: no records, "), "{printed:?}");
    let place = done(&scratch, "seek data orders 1:100 --json", 0).objects().remove(0);
    let (segment, offset) = (place["segment"].as_u64().unwrap(), place["offset"].as_u64().unwrap());
    flip(&dir, 0, segment, offset as usize + 40);
    let damaged = done(&scratch, "verify data", 1);
    let file = format!("data/subgroup-00000000/segment-{segment:016x}");
    let expected = format!(
        "log orders: {file} is damaged at offset {offset}: the checksum of the record differs; versions after 1:99 \
         and before 1:101 are lost"
    );
    assert_eq!(lines(&damaged)[0], expected);
    assert_eq!(damaged.errors, ["error: data is damaged in 1 place"]);
    // The other logs are read all the same.
    assert_eq!(lines(&damaged).len(), 3);
    done(&scratch, "verify data prices", 0);
    let damaged = done(&scratch, "verify data orders --json", 1);
    let object = &damaged.objects()[0];
    assert_eq!((&object["event"], &object["name"]), (&json!("damage"), &json!("orders")));
    assert_eq!((&object["file"], &object["offset"]), (&json!(file), &json!(offset)));
    assert_eq!((&object["after"], &object["before"]), (&json!("1:99"), &json!("1:101")));
    assert_eq!(damaged.objects()[1], json!({"event": "verified", "logs": 1, "damages": 1}));
    assert_eq!(damaged.error(), "data is damaged in 1 place");
    let message = error(&scratch, "cat data orders", 1);
    assert!(message.contains(&format!("{file} is damaged at offset {offset}")), "{message}");
    // Names and the journal are checked, too.
    fs::write(dir.join("subgroup-00000002/name"), b"").unwrap();
    let length = fs::metadata(dir.join("journal-0")).unwrap().len();
    fs::OpenOptions::new().write(true).open(dir.join("journal-0")).unwrap().set_len(length / 2).unwrap();
    let damaged = done(&scratch, "verify data", 1);
    let printed = lines(&damaged);
    assert!(printed[0].starts_with("damage: data/journal-0 is damaged: the file is shorter"), "{printed:?}");
    assert!(printed.last().unwrap().starts_with("log 2: data/subgroup-00000002/name is damaged"), "{printed:?}");
    assert_eq!(damaged.errors, ["error: data is damaged in 3 places"]);
    let listed = done(&scratch, "ls data", 1);
    assert!(lines(&listed).last().unwrap().contains("subgroup-00000002/name is damaged"));
    assert!(error(&scratch, "cat data prices", 1).contains("a name is damaged, see `spindle log verify`"));
}

#[test]
fn prune_removes_whole_segments_by_version_size_and_age() {
    let scratch = Scratch::new();
    shop(&scratch);
    let last = versions(0..200).pop();
    let would = done(&scratch, "prune data orders --before 1:60 --dry-run --json", 0).objects().remove(0);
    assert_eq!((&would["event"], &would["name"]), (&json!("prunable"), &json!("orders")));
    assert_eq!(cat(&scratch, "orders").len(), 200);
    let pruned = done(&scratch, "prune data orders --before 1:60 --json", 0).objects().remove(0);
    assert_eq!(pruned["event"], "pruned");
    for key in ["segments", "bytes", "through"] {
        assert_eq!(pruned[key], would[key]);
    }
    let left = cat(&scratch, "orders");
    assert!(left.len() < 200 && left.contains(&"1:60".to_string()) && left.last() == last.as_ref());
    let first: u64 = left[0].split_once(':').unwrap().1.parse().unwrap();
    assert_eq!(pruned["through"], format!("1:{}", first - 1));
    let message = error(&scratch, "cat data orders --from 1:0", 1);
    assert_eq!(message, format!("error: the record was pruned: the oldest is 1:{first}; start from a snapshot"));
    let line = lines(&done(&scratch, "prune data orders --before 1:0", 0)).remove(0);
    assert!(line.starts_with("log orders: pruned nothing; "), "{line}");
    // By size, then by age: the records are older than any age, and the last segment stays.
    done(&scratch, "prune data orders --max-bytes 20k", 0);
    let objects = done(&scratch, "ls data --json", 0).objects();
    assert!(objects[1]["bytes"].as_u64().unwrap() <= 20 << 10, "{objects:#?}");
    done(&scratch, "prune data orders --older-than 100d", 0);
    assert_eq!(done(&scratch, "ls data --json", 0).objects()[1]["segments"], 1);
    assert_eq!(cat(&scratch, "orders").last(), last.as_ref());
    done(&scratch, "verify data", 0);
}

#[test]
fn prune_keeps_what_no_snapshot_contains() {
    let scratch = Scratch::new();
    let dir = shop(&scratch);
    {
        let mut store = store(&dir);
        store.open_log(0, &mut |_| ()).unwrap();
        let mut writer = store.snapshots(0).unwrap().begin(Version::new(1, 90), BEGIN).unwrap();
        writer.write(b"state").unwrap();
        writer.finish().unwrap();
    }
    done(&scratch, "prune data orders --before 1:190", 0);
    let left = cat(&scratch, "orders");
    assert!(left.contains(&"1:91".to_string()) && !left.contains(&"1:0".to_string()), "{left:?}");
    done(&scratch, "prune data orders --before 1:190 --beyond-snapshot", 0);
    assert!(!cat(&scratch, "orders").contains(&"1:91".to_string()));
}

#[test]
fn a_directory_in_use_is_read_and_not_pruned() {
    let scratch = Scratch::new();
    let dir = shop(&scratch);
    let mut owner = store(&dir);
    owner.open_log(0, &mut |_| ()).unwrap();
    let message = error(&scratch, "prune data orders --before 1:60", 1);
    let pid = std::process::id();
    assert_eq!(message, format!("error: data/ is in use by process {pid}; stop that process or use another directory"));
    done(&scratch, "prune data orders --before 1:60 --dry-run", 0);
    append(&mut owner, 0, 200..210, payload);
    assert_eq!(cat(&scratch, "orders"), versions(0..210));
    done(&scratch, "verify data", 0);
    // Reading has changed nothing, so the owner continues.
    append(&mut owner, 0, 210..220, payload);
    drop(owner);
    done(&scratch, "prune data orders --before 1:60", 0);
}

#[test]
fn mistakes_are_named() {
    let scratch = Scratch::new();
    let dir = shop(&scratch);
    fs::create_dir(scratch.path("empty")).unwrap();
    scratch.file("file", b"");
    let words = |words: &str, status| error(&scratch, words, status);
    let message = words("ls none", 1);
    assert!(message.starts_with("error: can't read none: No such file or directory"), "{message}");
    assert!(!scratch.path("none").exists(), "a command that reads creates nothing");
    assert!(words("ls file", 1).contains("Not a directory"));
    for command in ["ls empty", "cat empty x", "verify empty", "prune empty x --max-bytes 1"] {
        let message = words(command, 1);
        assert!(message.starts_with("error: empty is no data directory: it has no file \"identity\";"), "{message}");
    }
    assert_eq!(fs::read_dir(scratch.path("empty")).unwrap().count(), 0);
    assert_eq!(words("cat data oders", 1), "error: data has no log \"oders\"; it has the logs orders, 1, prices");
    assert!(words("cat data 77", 1).contains("has no log \"77\""));
    let usage = |command: &str, part: &str| {
        let done = done(&scratch, command, 2);
        let told = done.errors.join("\n");
        assert!(told.contains(part), "{command}: {told}");
    };
    usage("cat data orders --from 1", "a version is an epoch and a sequence number, such as 1:40");
    usage("cat data orders --since yesterday", "a time looks like 2026-11-22T20:47:06Z");
    usage("cat data orders --from 1:9 --to 1:3", "--from 1:9 is behind --to 1:3");
    usage("cat data orders --since 9 --until 3", "is later than --until");
    usage("seek data orders", "<VERSION>");
    usage("prune data orders", "--max-bytes");
    usage("prune data orders --max-bytes 1 --before 1:1", "cannot be used with");
    let json = done(&scratch, "cat data oders --json", 1);
    assert!(json.error().contains("it has the logs orders"));
    // A later format, and a damaged identity.
    let path = dir.join("identity");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    fs::write(&path, &bytes).unwrap();
    let message = words("ls data", 1);
    assert_eq!(message, "error: data/identity has format 9, this version reads 1; use the version that wrote it");
    bytes[8] = 1;
    bytes[50] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(words("verify data", 1).starts_with("error: data/identity is damaged: the checksum differs"));
}

#[test]
fn a_reader_that_is_gone_is_no_error() {
    let scratch = Scratch::new();
    let dir = shop(&scratch);
    let mut store = store(&dir);
    store.open_named("orders", &mut |_| ()).unwrap();
    append(&mut store, 0, 200..1200, payload);
    drop(store);
    let bin = env!("CARGO_BIN_EXE_spindle");
    let mut shell = Command::new("bash");
    shell
        .current_dir(scratch.path(""))
        .args(["-c", &format!("{bin} log cat data orders | head -1; exit ${{PIPESTATUS[0]}}")]);
    let done = Running::start(&mut shell).done();
    assert!([0, 141].contains(&done.status.code().unwrap()) && done.errors.is_empty(), "{done:?}");
}
