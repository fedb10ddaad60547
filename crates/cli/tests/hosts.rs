//! `spindle member` on several hosts: here, in several runtime directories, with the network on loopback.
mod common;

use common::{Running, Scratch, read};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;

#[test]
fn members_of_three_hosts_print_the_same_lines_and_two_of_them_share_one() {
    let scratch = Scratch::new();
    // Nobody else gets this port for a while.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let seed = format!("127.0.0.1:{port}");
    let outputs: Vec<_> = (0..4).map(|i| scratch.path(&format!("out{i}"))).collect();
    let members = (0..4).map(|i| {
        let lines: String = (0..2000).map(|line| format!("line {line} of {i}\n")).collect();
        let input = scratch.file(&format!("in{i}"), lines.as_bytes());
        let mut command = scratch.member("wide", 4);
        let listen = if i == 0 { seed.clone() } else { "127.0.0.1:0".to_string() };
        command.args(["--listen", &listen, "--seeds", &seed]);
        command.arg("--runtime-dir").arg(scratch.path(["a", "b", "c", "c"][i]));
        command.arg("--input").arg(input).arg("--output").arg(&outputs[i]);
        Running::start(&mut command)
    });
    let members: Vec<_> = members.collect();
    for member in members {
        member.done().expect(0);
    }
    let first = read(&outputs[0]);
    assert_eq!(first.iter().filter(|byte| **byte == b'\n').count(), 8000);
    for output in &outputs[1..] {
        assert!(read(output) == first, "{} differs from {}", output.display(), outputs[0].display());
    }
}

#[test]
fn who_waits_tells_why_its_seed_is_of_no_use() {
    let scratch = Scratch::new();
    // Nobody else gets this port for a while.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let seed = format!("127.0.0.1:{port}");
    let mut waiting = Running::start(scratch.member("lonely", 2).args(["--listen", "127.0.0.1:0", "--seeds", &seed]));
    let told: Value = serde_json::from_str(&waiting.says("unreached")).unwrap();
    let (here, unreached) = (&told["here"], &told["unreached"][0]);
    assert_eq!((here, &unreached["seed"]), (&json!([]), &json!(seed)));
    assert!(unreached["why"].as_str().unwrap().starts_with("Connection refused"), "{told}");
    waiting.signal(Signal::INT);
    let error = waiting.done().expect(130).error();
    assert!(error.contains(&format!("no seed has answered; {seed}: Connection refused")), "{error}");
}
