//! `spindle cast` and `spindle receive`, as processes: files arrive unchanged, and any process may
//! die meanwhile.
mod common;

use common::{Done, Numbers, PATIENCE, Running, Scratch, read};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::{Value, json};
use spindle::{Batch, Config, Subgroup, SubgroupId};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const GROUP: &str = "files";

fn into(scratch: &Scratch, name: &str) -> PathBuf {
    let dir = scratch.path(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn receive(scratch: &Scratch, dir: &Path, words: &[&str]) -> Command {
    // Only deaths count, however busy the machine is.
    let mut command = scratch.spindle(["receive", GROUP, "--suspect-after", "never", "--into"]);
    command.arg(dir).args(words);
    command
}

/// A receiver that has joined the group.
fn receiver(scratch: &Scratch, name: &str, words: &[&str]) -> Running {
    let mut receiver = Running::start(&mut receive(scratch, &into(scratch, name), words));
    receiver.says("receives into");
    receiver
}

fn cast(scratch: &Scratch, file: &Path, words: &[&str]) -> Command {
    let mut command = scratch.spindle(["cast", "--to", GROUP, "--suspect-after", "never"]);
    command.arg(file).args(words);
    if !words.contains(&"--piece") {
        command.args(["--piece", "64k"]);
    }
    command
}

/// Returns the result of a cast: the object that it prints.
fn result(done: &Done) -> Value {
    let [object] = <[Value; 1]>::try_from(done.objects()).unwrap();
    assert_eq!(object["event"], "cast");
    object
}

fn assert_same(scratch: &Scratch, dir: &str, name: &str, bytes: &[u8]) {
    assert!(read(&scratch.path(dir).join(name)) == bytes, "{dir}/{name} is not what was cast");
    assert!(!scratch.path(dir).join(format!(".{name}.part")).exists(), "{dir} still has a part of {name}");
}

#[test]
fn a_file_comes_to_three_receivers_as_it_is() {
    let scratch = Scratch::new();
    let bytes = Numbers(1).bytes((5 << 20) + 123);
    let file = scratch.file("disk.img", &bytes);
    let receivers = ["a", "b", "c"].map(|dir| receiver(&scratch, dir, &["--once"]));
    let done =
        Running::start(&mut cast(&scratch, &file, &["--piece", "64k", "--at-least", "3", "--json"])).done().expect(0);
    let result = result(&done);
    assert_eq!((&result["kept"], &result["failed"]), (&json!([1, 2, 3]), &json!([])));
    assert_eq!((&result["sent_bytes"], &result["bytes"]), (&json!(bytes.len()), &json!(bytes.len())));
    for (receiver, dir) in receivers.into_iter().zip(["a", "b", "c"]) {
        let said = String::from_utf8(receiver.done().expect(0).stdout).unwrap();
        assert!(said.contains(result["digest"].as_str().unwrap()), "{said}");
        assert_same(&scratch, dir, "disk.img", &bytes);
    }
}

#[test]
fn an_empty_file_comes_to_who_starts_after_the_cast() {
    let scratch = Scratch::new();
    let file = scratch.file("empty", b"");
    let cast = Running::start(&mut cast(&scratch, &file, &["--name", "nothing", "--json"]));
    let once = Running::start(&mut receive(&scratch, &into(&scratch, "a"), &["--once", "--json"]));
    let kept = once.done().expect(0).objects();
    assert_eq!(
        (&kept[0]["event"], &kept[0]["bytes"], &kept[0]["name"]),
        (&json!("kept"), &json!(0), &json!("nothing"))
    );
    assert_eq!(result(&cast.done().expect(0))["digest"], kept[0]["digest"]);
    assert_same(&scratch, "a", "nothing", b"");
}

#[test]
fn a_cast_that_is_killed_is_resumed_by_the_next() {
    let scratch = Scratch::new();
    let bytes = Numbers(2).bytes(4 << 20);
    let file = scratch.file("model", &bytes);
    let mut receivers = ["a", "b"].map(|dir| receiver(&scratch, dir, &["--once"]));
    let mut killed = Running::start(&mut cast(&scratch, &file, &["--at-least", "2", "--limit", "300k"]));
    killed.says(" %, ");
    killed.signal(Signal::KILL);
    drop(killed);
    for receiver in &mut receivers {
        receiver.says("ended early");
    }
    assert!(!scratch.path("a/model").exists());
    let done = Running::start(&mut cast(&scratch, &file, &["--at-least", "2", "--json"])).done().expect(0);
    let sent = result(&done)["sent_bytes"].as_u64().unwrap();
    assert!((1..bytes.len() as u64).contains(&sent), "{sent} of {} bytes were sent again", bytes.len());
    for (receiver, dir) in receivers.into_iter().zip(["a", "b"]) {
        receiver.done().expect(0);
        assert_same(&scratch, dir, "model", &bytes);
    }
}

#[test]
fn a_killed_receiver_delays_no_other_and_gets_the_rest_later() {
    let scratch = Scratch::new();
    let bytes = Numbers(3).bytes(6 << 20);
    let file = scratch.file("model", &bytes);
    let others = ["a", "b"].map(|dir| receiver(&scratch, dir, &[]));
    let victim = receiver(&scratch, "c", &["--id", "7"]);
    let mut first = Running::start(&mut cast(&scratch, &file, &["--at-least", "3", "--limit", "1M"]));
    first.says(" %, ");
    victim.signal(Signal::KILL);
    drop(victim);
    let first = first.done().expect(1);
    let error = first.errors.last().unwrap();
    assert!(error.contains("2 of 3 receivers have model; member 7: it went before it had all of it"), "{error}");
    assert_same(&scratch, "a", "model", &bytes);
    assert_same(&scratch, "b", "model", &bytes);
    assert!(!scratch.path("c/model").exists());
    let back = receiver(&scratch, "c", &["--once"]);
    let done = Running::start(&mut cast(&scratch, &file, &["--at-least", "3", "--json"])).done().expect(0);
    let result = result(&done);
    let sent = result["sent_bytes"].as_u64().unwrap();
    assert!((1..bytes.len() as u64).contains(&sent), "{sent} of {} bytes were sent again", bytes.len());
    assert_eq!(result["kept"].as_array().unwrap().len(), 3);
    back.done().expect(0);
    assert_same(&scratch, "c", "model", &bytes);
    for other in others {
        other.signal(Signal::INT);
        other.done().expect(130);
    }
}

#[test]
fn a_receiver_that_comes_in_the_middle_gets_all_of_it() {
    let scratch = Scratch::new();
    let bytes = Numbers(4).bytes(6 << 20);
    let file = scratch.file("late", &bytes);
    let first = receiver(&scratch, "a", &["--once"]);
    let mut running = Running::start(&mut cast(&scratch, &file, &["--limit", "1M", "--json"]));
    // This waits until the first pieces are on the receiver's disk.
    while fs::metadata(scratch.path("a/.late.part")).map_or(0, |there| there.len()) == 0 {
        assert!(running.is_running(), "the cast ended before anything was seen of it");
        std::thread::yield_now();
    }
    let second = receiver(&scratch, "b", &["--once"]);
    let result = result(&running.done().expect(0));
    assert_eq!(result["kept"].as_array().unwrap().len(), 2);
    assert!(result["sent_bytes"].as_u64().unwrap() > bytes.len() as u64, "{result}");
    for (receiver, dir) in [(first, "a"), (second, "b")] {
        receiver.done().expect(0);
        assert_same(&scratch, dir, "late", &bytes);
    }
}

#[test]
fn several_cast_at_once_but_not_files_of_one_name() {
    let scratch = Scratch::new();
    let files = [10, 11].map(|seed| Numbers(seed).bytes(3 << 20));
    let paths = ["one", "two"].into_iter().zip(&files).map(|(name, bytes)| scratch.file(name, bytes));
    let [one, two] = <[PathBuf; 2]>::try_from(paths.collect::<Vec<_>>()).unwrap();
    let _receivers = ["a", "b"].map(|dir| receiver(&scratch, dir, &[]));
    let mut slow = Running::start(&mut cast(&scratch, &one, &["--at-least", "2", "--limit", "100k"]));
    slow.says(" %, ");
    let same = Running::start(&mut cast(&scratch, &two, &["--at-least", "2", "--name", "one"])).done().expect(1);
    assert!(same.errors.last().unwrap().contains("a file of this name at the same time"), "{:?}", same.errors);
    let other = Running::start(&mut cast(&scratch, &two, &["--at-least", "2", "--json"])).done().expect(0);
    assert_eq!(result(&other)["kept"], json!([1, 2]));
    slow.signal(Signal::INT);
    let error = slow.done().expect(130).errors.pop().unwrap();
    assert!(error.contains("cast it again, which goes on from there"), "{error}");
    for dir in ["a", "b"] {
        assert_same(&scratch, dir, "two", &files[1]);
    }
}

#[test]
fn other_files_stay_unless_they_may_be_replaced_and_the_same_file_is_kept() {
    let scratch = Scratch::new();
    let bytes = Numbers(5).bytes(300_000);
    let file = scratch.file("notes", &bytes);
    for (dir, there) in [("a", b"mine".as_slice()), ("b", b"old"), ("c", &bytes)] {
        fs::write(into(&scratch, dir).join("notes"), there).unwrap();
    }
    let refuses = receiver(&scratch, "a", &["--once", "--id", "11"]);
    let replaces = receiver(&scratch, "b", &["--once", "--overwrite", "--id", "12"]);
    let has_it = receiver(&scratch, "c", &["--once", "--id", "13"]);
    let done = Running::start(&mut cast(&scratch, &file, &["--at-least", "3", "--json"])).done().expect(1);
    let error = done.error();
    assert!(error.contains("member 11:") && error.contains("--overwrite"), "{error}");
    let result = result(&done);
    assert_eq!((&result["kept"], &result["failed"][0]["id"]), (&json!([12, 13]), &json!(11)));
    let refused = refuses.done().expect(1);
    assert!(refused.errors.last().unwrap().contains("is another file"), "{:?}", refused.errors);
    replaces.done().expect(0);
    has_it.done().expect(0);
    assert_eq!(read(&scratch.path("a/notes")), b"mine");
    assert_same(&scratch, "b", "notes", &bytes);
    assert_same(&scratch, "c", "notes", &bytes);
}

#[test]
fn a_receiver_that_can_t_write_says_why_and_the_others_go_on() {
    let scratch = Scratch::new();
    let bytes = Numbers(6).bytes(1 << 20);
    let file = scratch.file("data", &bytes);
    fs::create_dir_all(into(&scratch, "a").join(".data.part")).unwrap();
    let _fails = receiver(&scratch, "a", &["--id", "5"]);
    let other = receiver(&scratch, "b", &["--once"]);
    let done = Running::start(&mut cast(&scratch, &file, &["--at-least", "2"])).done().expect(1);
    let error = done.errors.last().unwrap();
    assert!(error.contains("1 of 2 receivers have data; member 5: can't write"), "{error}");
    assert!(error.contains("Is a directory"), "{error}");
    other.done().expect(0);
    assert_same(&scratch, "b", "data", &bytes);
}

#[test]
fn an_impossible_cast_or_receive_is_reported_at_once() {
    let scratch = Scratch::new();
    let file = scratch.file(".hidden", b"secret");
    let fails = |command: &mut Command, status, words: &str| {
        let error = Running::start(command).done().expect(status).errors.pop().unwrap();
        assert!(error.contains(words), "{error}");
    };
    fails(&mut cast(&scratch, &file, &[]), 2, "begins with a dot; give it another with --name");
    fails(&mut cast(&scratch, &file, &["--name", "../up"]), 2, "begins with a dot");
    fails(&mut cast(&scratch, &file, &["--name", "no/where"]), 2, "has a slash");
    fails(&mut cast(&scratch, &file, &["--name", "x", "--piece", "0"]), 2, "--piece 0: from 1 byte");
    fails(&mut cast(&scratch, &file, &["--name", "x", "--limit", "0"]), 2, "--limit 0: nothing would ever be sent");
    fails(&mut cast(&scratch, &scratch.path("missing"), &[]), 1, "missing: No such file");
    let open = scratch.file("open", b"seen");
    fails(&mut scratch.spindle(["cast", open.to_str().unwrap()]), 2, "no group is named; name it with --to, or set");
    let pipe = scratch.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    fails(&mut cast(&scratch, &pipe, &[]), 1, "name a regular file");
    fails(&mut cast(&scratch, Path::new("/proc/cpuinfo"), &[]), 1, "copy it, and cast the copy");
    fails(&mut cast(&scratch, &into(&scratch, "dir"), &[]), 1, "name a regular file");
    fails(&mut receive(&scratch, &scratch.path("missing"), &[]), 1, "name a directory that is there");
    let _first = receiver(&scratch, "a", &[]);
    fails(&mut receive(&scratch, &scratch.path("a"), &[]), 1, "another process receives into");
    let words = ["--name", "x", "--at-least", "2", "--gather-timeout", "1"];
    fails(&mut cast(&scratch, &file, &words), 1, "1 of 2 receivers are here");
}

#[test]
fn a_file_that_becomes_shorter_is_told_so() {
    let scratch = Scratch::new();
    let file = scratch.file("shrinks", &Numbers(8).bytes(1 << 20));
    let mut receiver = receiver(&scratch, "a", &[]);
    let running = Running::start(&mut cast(&scratch, &file, &["--limit", "200k"]));
    // This waits until the first pieces have arrived.
    let part = scratch.path("a").join(".shrinks.part");
    let patience = Instant::now() + PATIENCE;
    while fs::metadata(&part).map_or(0, |there| there.len()) == 0 {
        assert!(Instant::now() < patience && receiver.is_running());
        std::thread::yield_now();
    }
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(1000).unwrap();
    let error = running.done().expect(1).errors.pop().unwrap();
    assert!(error.contains("shrinks became shorter while it was cast; cast it again"), "{error}");
}

#[test]
fn garbage_of_a_member_is_reported_once_and_has_no_effect() {
    let scratch = Scratch::new();
    let bytes = Numbers(7).bytes(200_000);
    let file = scratch.file("data", &bytes);
    let mut receiver = receiver(&scratch, "a", &["--once"]);
    let mut config = Config::new(GROUP, 1);
    config.subgroups = vec![Subgroup { window: 64, message_bytes_max: 4096, ..Subgroup::new("files") }];
    config.runtime_dir = Some(scratch.runtime_dir());
    (config.suspect_after, config.gather_timeout) = (None, PATIENCE);
    let mut node = config.join().unwrap();
    let mut publisher = node.publisher("files").unwrap();
    let group = node.start(|_: SubgroupId, batch: &mut Batch<'_>| batch.for_each(drop)).unwrap();
    for len in [0, 3, 14, 4000, 100_000] {
        publisher.send(&Numbers(8).bytes(len), PATIENCE).unwrap();
        publisher.send(&[b"cast\x01\x01".as_slice(), &Numbers(8).bytes(len)].concat(), PATIENCE).unwrap();
    }
    receiver.says("a message of member 2 is ignored, and others like it: it is no message of a cast");
    group.leave(PATIENCE).unwrap();
    Running::start(&mut cast(&scratch, &file, &[])).done().expect(0);
    let done = receiver.done().expect(0);
    assert_eq!(done.errors.iter().filter(|line| line.contains("is ignored")).count(), 1, "{:?}", done.errors);
    assert_same(&scratch, "a", "data", &bytes);
}

#[test]
fn hosts_that_share_no_memory_get_the_file_too() {
    let scratch = Scratch::new();
    let bytes = Numbers(9).bytes((3 << 20) + 1);
    let file = scratch.file("far", &bytes);
    // No other process gets this port for a while.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let seed = format!("127.0.0.1:{port}");
    let on = |mut command: Command, host: &str, listen: &str| {
        command.args(["--listen", listen, "--seeds", &seed]).arg("--runtime-dir").arg(scratch.path(host));
        Running::start(&mut command)
    };
    let mut receivers = [("a", seed.as_str()), ("b", "127.0.0.1:0")]
        .map(|(dir, listen)| on(receive(&scratch, &into(&scratch, dir), &["--once"]), &format!("host-{dir}"), listen));
    receivers.iter_mut().for_each(|receiver| drop(receiver.says("receives into")));
    let words = ["--at-least", "2", "--piece", "1M", "--json"];
    let done = on(cast(&scratch, &file, &words), "host-c", "127.0.0.1:0").done().expect(0);
    assert_eq!(result(&done)["kept"].as_array().unwrap().len(), 2);
    for (receiver, dir) in receivers.into_iter().zip(["a", "b"]) {
        receiver.done().expect(0);
        assert_same(&scratch, dir, "far", &bytes);
    }
}
