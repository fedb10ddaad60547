//! `spindle member --metrics`: the page, and the documents that name its metrics.
mod common;

use common::{Running, Scratch};
use rustix::fs::{FileType, Mode};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

fn scrape(url: &str) -> String {
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    page.to_string()
}

/// Returns the value of a series.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Returns names and types of all metrics of a page.
fn families(page: &str) -> BTreeSet<(String, String)> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_string(), kind.to_string())).collect()
}

fn start(scratch: &Scratch, members: u32, more: &[&str]) -> Running {
    Running::start(scratch.member("watched", members).args(more).stdin(Stdio::piped()))
}

fn lone_page() -> String {
    let scratch = Scratch::new();
    let mut member = start(&scratch, 1, &["--metrics", "0"]);
    let url = member.event("metrics")["url"].as_str().unwrap().to_string();
    member.event("joined");
    scrape(&url)
}

#[test]
fn counters_of_the_page_survive_views() {
    let scratch = Scratch::new();
    let mut first = start(&scratch, 2, &["--metrics", "0"]);
    let url = first.event("metrics")["url"].as_str().unwrap().to_string();
    let mut second = start(&scratch, 2, &[]);
    first.event("joined");
    second.event("joined");
    first.send(b"one\ntwo\n");
    second.lines(2);
    let mut third = start(&scratch, 1, &[]);
    third.event("joined");
    first.view(&[1, 2, 3]);
    first.send(b"three\n");
    third.lines(1);
    let patience = Instant::now() + LONG;
    let delivered = "spindle_messages_delivered_total{group=\"watched\",subgroup=\"all\"}";
    let page = loop {
        let page = scrape(&url);
        // A sample is complete at the poll after the delivery.
        let samples = value(&page, "spindle_delivery_latency_seconds_count{group=\"watched\",subgroup=\"all\"}");
        if value(&page, delivered) == Some(3.0) && samples >= Some(1.0) {
            assert!(samples <= Some(3.0), "{page}");
            break page;
        }
        assert!(Instant::now() < patience, "{page}");
    };
    let of_all = "{group=\"watched\",subgroup=\"all\"}";
    assert_eq!(value(&page, "spindle_members{group=\"watched\"}"), Some(3.0), "{page}");
    assert_eq!(value(&page, &format!("spindle_messages_sent_total{of_all}")), Some(3.0), "{page}");
    assert_eq!(value(&page, &format!("spindle_delivered_bytes_total{of_all}")), Some(11.0), "{page}");
    let changes = value(&page, "spindle_view_change_duration_seconds_count{group=\"watched\"}");
    assert!(changes >= Some(1.0), "{page}");
}

#[test]
fn a_taken_port_ends_the_command() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let scratch = Scratch::new();
    let done = start(&scratch, 1, &["--metrics", &address.to_string()]).done().expect(1);
    let error = done.event("error");
    let text = error["message"].as_str().unwrap();
    assert!(text.starts_with(&format!("can't serve metrics at {address}: ")), "{text}");
}

/// The table of the guide has the metrics of the page, and their types.
#[test]
fn the_guide_lists_all_metrics() {
    let guide = include_str!("../../../docs/guide/monitoring.md");
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `spindle_"));
    let listed: BTreeSet<(String, String)> = rows
        .map(|row| {
            let (name, rest) = row.split_once("` | ").unwrap();
            (format!("spindle_{name}"), rest.split_once(" | ").unwrap().0.to_string())
        })
        .collect();
    assert_eq!(listed, families(&lone_page()));
}

/// The output of the second member is a pipe that no process reads.
#[test]
fn a_member_whose_output_blocks_is_told_by_all() {
    let scratch = Scratch::new();
    let output = scratch.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &output, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut reader = File::options().read(true).write(true).open(&output).unwrap();
    let text = "a line\n".repeat(1 << 17);
    let input = scratch.file("in", text.as_bytes());
    let mut first = start(&scratch, 2, &["--id", "1", "--metrics", "0", "--input", input.to_str().unwrap()]);
    let url = first.event("metrics")["url"].as_str().unwrap().to_string();
    let mut second = start(&scratch, 2, &["--id", "2", "--output", output.to_str().unwrap()]);
    let begins = [first.event("lag"), second.event("lag")];
    for (lag, me) in begins.iter().zip([false, true]) {
        assert!(lag["member"] == 2 && lag["me"] == me && lag["over"] == false, "{lag}");
        assert!(lag["behind"].as_u64() > Some(0) && lag["seconds"].as_f64() >= Some(1.0), "{lag}");
    }
    let series = "{group=\"watched\",subgroup=\"all\",member=\"2\"}";
    let page = scrape(&url);
    assert!(value(&page, &format!("spindle_member_lag_seconds{series}")) >= Some(1.0), "{page}");
    let status = scratch.spindle(["status", "watched", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let members = &status["subgroups"][0]["members"];
    assert!(members[0]["lagging_ms"].is_null() && members[1]["lagging_ms"].as_u64() >= Some(1000), "{status}");
    let table = scratch.spindle(["status", "watched"]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains("  lags for ")).count(), 1, "{table}");
    let mut got = vec![0; text.len()];
    reader.read_exact(&mut got).unwrap();
    assert!(got == text.as_bytes());
    for member in [&mut first, &mut second] {
        let lag: Value = serde_json::from_str(&member.says("\"over\":true")).unwrap();
        assert!(lag["event"] == "lag" && lag["member"] == 2, "{lag}");
    }
    // The group has not ended before.
    drop(second.stdin.take());
    first.done().expect(0);
    second.done().expect(0);
}

/// The expressions of the dashboard use metrics of the page, and use all of them but a few.
#[test]
fn the_dashboard_uses_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(include_str!("../../../deploy/grafana/spindle.json")).unwrap();
    let mut series = BTreeSet::new();
    for (name, kind) in families(&lone_page()) {
        match &*kind {
            "histogram" => series.extend(["_bucket", "_count", "_sum"].map(|part| format!("{name}{part}"))),
            _ => _ = series.insert(name),
        }
    }
    let mut used = BTreeSet::new();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables = variables.iter().filter_map(|variable| variable["definition"].as_str());
    for expression in expressions.chain(variables) {
        let names: Vec<&str> = expression
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("spindle_"))
            .collect();
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(series.contains(name), "{name} does not exist: {expression}");
            used.insert(name.to_string());
        }
    }
    let is_shown =
        |name: &str| used.contains(name) || ["_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end));
    let hidden: Vec<&String> = series.iter().filter(|name| !is_shown(name)).collect();
    assert_eq!(hidden, ["spindle_null_batches_total", "spindle_receive_batches_total"]);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "ids of panels are not unique");
}
