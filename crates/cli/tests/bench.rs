//! Runs each benchmark once, for a very short time: it ends, its JSON has the documented keys, and
//! it leaves nothing behind.
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// A directory for temporary files of one test, removed at its end.
struct Temp(std::path::PathBuf);

impl Temp {
    fn new(name: &str) -> Temp {
        let path = env::temp_dir().join(format!("sb-{}-{name}", process::id()));
        fs::create_dir(&path).expect("a new directory");
        Temp(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn spindle(temp: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
    command.arg("bench").args(arguments.split(' ')).env("TMPDIR", temp).output().expect("it starts")
}

/// Returns the JSON that `arguments` print.
fn bench(name: &str, arguments: &str) -> Value {
    let temp = Temp::new(name);
    let out = spindle(&temp.0, &format!("{arguments} --json"));
    assert!(out.status.success(), "{arguments}: {}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(fs::read_dir(&temp.0).expect("it is there").count(), 0, "{arguments}: something stayed");
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// Returns the JSON of a run in which every measurement has a slice that counts. On a busy machine a
/// short run may have none, because a pair of slices counts only if the machine did not change its
/// speed between them.
fn measured(name: &str, arguments: &str) -> Value {
    let counts =
        |report: &Value| report["runs"].as_array().is_some_and(|runs| runs.iter().all(|run| run["slices"] != 0));
    let mut reports = (0..8).map(|_| bench(name, arguments));
    reports.find(counts).expect("no measurement of eight runs has a slice that counts")
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number {key:?} in {value}"))
}

#[test]
fn limits() {
    let report = bench("limits", "limits --seconds 0.02 --size 16,1k");
    for (ring, block_bytes) in report["raw_ring"].as_array().expect("a list").iter().zip([16.0, 1024.0]) {
        assert_eq!(number(ring, "block_bytes"), block_bytes);
        assert!(number(ring, "blocks_per_second") > 0.0 && number(ring, "hop_ns") > 0.0);
    }
    for key in
        ["hop_ns", "futex_wake_ns", "futex_wake_rested_ns", "stream_round_trip_ns", "stream_round_trip_blocking_ns"]
    {
        assert!(number(&report[key], "p50") > 0.0, "{key}");
    }
    assert!(number(&report["stream"][1], "bytes_per_second") > 0.0);
    assert!(number(&report["memcpy"][0], "bytes_per_second") > 0.0 && number(&report, "clock_read_ns") > 0.0);
}

#[test]
fn throughput_in_poll_drive() {
    let report = measured("poll", "throughput --seconds 0.2 --size 16,1k");
    let runs = report["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert!(number(run, "messages_per_second") > 0.0, "{run}");
        assert!(number(run, "deliveries_per_second") > number(run, "messages_per_second"), "{run}");
        assert!(number(run, "cpu_ns_per_message") > 0.0 && number(run, "messages_per_send_batch") >= 1.0, "{run}");
        assert_eq!((run["drive"].as_str(), &run["instructions_per_message"]), (Some("poll"), &Value::Null));
        // The ratio is null if the machine changed its mode in each pair.
        assert!(run["ring_ratio"].is_null() || number(run, "ring_ratio") > 0.0, "{run}");
        assert!(run["ratios"].as_object().expect("an object").contains_key("ring"), "{run}");
    }
}

#[test]
fn throughput_in_thread_drive_from_all_in_some_subgroups() {
    let arguments = "throughput --seconds 0.2 --size 128 --drive thread --senders all --subgroups 3 --active 2 \
                     --delivery receiver --against one-subgroup";
    let report = bench("thread", arguments);
    let run = &report["runs"][0];
    assert!(number(run, "messages_per_second") > 0.0, "{run}");
    let names: Vec<_> = run["ratios"].as_object().expect("an object").keys().collect();
    assert_eq!(names, ["one_subgroup"]);
}

#[test]
fn changes_that_do_not_touch_a_stream() {
    let report = bench("elsewhere", "views --members 4 --subgroups 3 --trials 1");
    assert_eq!((number(&report, "members"), number(&report, "subgroups")), (4.0, 3.0));
    // Idle members wake up less than once a second, so they may have used no CPU time.
    assert!(number(&report["quiet"], "cpu_percent") >= 0.0);
    for event in ["create", "alter", "drop", "join", "kill", "leave"] {
        let cost = &report[event];
        assert!(number(&cost["installed"], "p50") > 0.0, "{event}: {cost}");
        let touches = !["create", "alter", "drop"].contains(&event);
        assert_eq!(cost["touched_gap"].is_object(), touches, "{event}: {cost}");
    }
}

#[test]
fn throughput_between_hosts() {
    let report = measured("tcp", "throughput --fabric tcp --seconds 0.1 --size 128,10k");
    for run in report["runs"].as_array().expect("a list") {
        assert!(number(run, "messages_per_second") > 0.0 && run["ring_ratio"].is_null(), "{run}");
        assert!(run["ratios"].as_object().expect("an object").contains_key("stream"), "{run}");
    }
}

/// Returns true if members can send through libfabric. Prints a line if not.
fn has_libfabric() -> bool {
    let temp = Temp::new("libfabric");
    let out = spindle(&temp.0, "throughput --fabric ofi --seconds 0.2 --size 128 --json");
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    if !out.status.success()
        && ["libfabric could not be loaded", "libfabric has no provider"].iter().any(|it| why.contains(it))
    {
        println!("skipped: {why}");
        return false;
    }
    assert!(out.status.success(), "{why}");
    true
}

#[test]
fn throughput_and_latency_through_libfabric() {
    if !has_libfabric() {
        return;
    }
    let report = bench("ofi", "throughput --fabric ofi --seconds 0.5 --size 128,10k");
    for run in report["runs"].as_array().expect("a list") {
        assert!(number(run, "messages_per_second") > 0.0 && run["ring_ratio"].is_null(), "{run}");
        assert!(run["ratios"].as_object().expect("an object").contains_key("stream"), "{run}");
    }
    for wait in ["polling", "hybrid", "interrupt"] {
        let report = bench(&format!("ofi-{wait}"), &format!("latency --seconds 0.3 --fabric ofi --wait {wait}"));
        let run = &report["runs"][0];
        assert_eq!((run["fabric"].as_str(), run["wait"].as_str()), (Some("ofi"), Some(wait)));
        assert!(number(run, "samples") > 0.0 && number(run, "own_p50_ns") > 0.0, "{run}");
    }
}

/// Three commands form a group, as they do in network namespaces of their own, and agree on the
/// deliveries.
#[test]
fn members_that_are_commands_of_their_own() {
    let temp = Temp::new("alone");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let member = |rank: u32| {
        let listen = if rank == 0 { free.to_string() } else { "127.0.0.1:0".to_string() };
        let words = format!(
            "throughput --listen {listen} --seeds {free} --rank {rank} --members 3 --size 128 --senders all --seconds 0.2 --json"
        );
        let path = temp.0.clone();
        std::thread::spawn(move || spindle(&path, &words))
    };
    let members: Vec<_> = [0, 1, 2].map(member).into();
    let reports: Vec<Value> = members
        .into_iter()
        .map(|member| {
            let out = member.join().expect("it ran");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            serde_json::from_slice(&out.stdout).expect("JSON")
        })
        .collect();
    for (report, rank) in reports.iter().zip([0.0, 1.0, 2.0]) {
        assert_eq!(number(report, "rank"), rank);
        assert!(number(report, "delivered") > 0.0 && report["delivered"] == reports[0]["delivered"], "{report}");
    }
}

#[test]
fn an_idle_group() {
    let report = bench("idle", "idle --members 3,4 --subgroups 5 --subgroup-members 3 --seconds 0.3");
    for (run, members) in report["runs"].as_array().expect("a list").iter().zip([3.0, 4.0]) {
        let counts = ["members", "subgroups", "subgroup_members"].map(|key| number(run, key));
        assert_eq!(counts, [members, 5.0, 3.0]);
        for key in ["cpu_percent", "wakes_per_second", "sleepers_cpu_percent"] {
            assert!(number(run, key) >= 0.0, "{key}: {run}");
        }
        assert!(number(run, "private_bytes") > 0.0 && number(run, "join_seconds") > 0.0, "{run}");
    }
}

#[test]
fn latency_beside_idle_subgroups() {
    for how in ["", " --sleeping"] {
        let arguments =
            format!("latency --seconds 0.3 --members 4 --subgroups 6 --subgroup-members 2 --senders all{how}");
        let report = bench(&format!("beside{}", how.len()), &arguments);
        let run = &report["runs"][0];
        let counts = ["members", "subgroups", "subgroup_members", "senders"].map(|key| number(run, key));
        assert_eq!(counts, [4.0, 6.0, 2.0, 2.0]);
        assert!(number(run, "samples") > 0.0 && run["hops"].is_null() && run["wake_ratio"].is_null(), "{run}");
        assert_eq!(run["alone_cpu_ratio"].is_null(), how.is_empty(), "{run}");
        // The ratio is null if the machine changed its mode in each pair.
        assert!(run["alone_ratio"].is_null() || number(run, "alone_ratio") > 0.0, "{run}");
    }
}

#[test]
fn latency() {
    for senders in ["one", "all"] {
        let report = bench(&format!("latency-{senders}"), &format!("latency --seconds 0.3 --senders {senders}"));
        let run = &report["runs"][0];
        assert!(number(run, "samples") > 0.0 && number(run, "p50_ns") <= number(run, "p999_ns"), "{run}");
        assert!(run["wake_ratio"].is_null(), "{run}");
    }
}

#[test]
fn latency_by_the_way_of_waiting() {
    for fabric in ["shm", "tcp"] {
        for wait in ["polling", "hybrid", "interrupt"] {
            let name = format!("{fabric}-{wait}");
            let report = bench(&name, &format!("latency --seconds 0.3 --fabric {fabric} --wait {wait}"));
            let run = &report["runs"][0];
            assert_eq!((run["fabric"].as_str(), run["wait"].as_str()), (Some(fabric), Some(wait)));
            assert!(number(run, "samples") > 0.0 && number(run, "cpu_percent") > 0.0, "{run}");
            assert!(number(run, "own_p50_ns") > 0.0, "{run}");
        }
    }
}

#[test]
fn latency_between_hosts() {
    let report = bench("latency-tcp", "latency --seconds 0.3 --fabric tcp");
    let run = &report["runs"][0];
    assert!(number(run, "samples") > 0.0 && number(run, "own_p50_ns") > 0.0, "{run}");
    assert!(run["hops"].is_null() && run["wake_ratio"].is_null(), "{run}");
}

#[test]
fn latency_of_sleepers() {
    let report = bench("sleeping", "latency --seconds 0.3 --sleeping --senders all");
    let run = &report["runs"][0];
    assert!(number(run, "samples") > 0.0 && number(run, "p50_ns") <= number(run, "max_ns"), "{run}");
    assert!(run["hops"].is_null(), "{run}");
}

#[test]
fn the_block_multicast_is_timed_by_a_model() {
    let report = bench("bulk", "bulk --fabric sim --members 2,7 --size 8M --block 256k");
    let (one, six) = (&report["runs"][0], &report["runs"][1]);
    assert_eq!((number(one, "of_one_receiver"), number(six, "blocks")), (1.0, 6.0 * 32.0));
    assert!(number(six, "ns") > number(six, "optimum_ns") && number(six, "slow_link") < 0.5, "{six}");
    let racks = &report["racks"][4];
    assert!(number(racks, "hybrid_ns") < number(racks, "pipeline_ns"), "{racks}");
}

#[test]
fn the_block_multicast_runs_among_processes() {
    let report = bench("bulk-tcp", "bulk --fabric tcp --members 2,4 --bytes 1,300000 --block 64k --trials 2");
    let runs = report["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 4);
    for run in runs {
        for key in ["bytes_per_second", "reference_bytes_per_second", "stream_ratio", "cpu_seconds"] {
            assert!(number(run, key) > 0.0, "{key}: {run}");
        }
        assert!(run["memcpy_ratio"].is_null() && run["rack_crossings"].is_null(), "{run}");
    }
    let crossings = |more: &str| {
        let arguments = format!("bulk --fabric tcp --members 9 --bytes 8M --block 64k --trials 1 --racks 3{more}");
        number(&bench("bulk-racks", &arguments)["runs"][0], "rack_crossings")
    };
    // Members also send messages about the blocks, so the ratio is above 2.
    let hybrid = crossings("");
    assert!((2.0..2.2).contains(&hybrid), "{hybrid}");
    assert!(crossings(" --algorithm pipeline") > 2.0 * hybrid);
    let report = bench("bulk-shm", "bulk --fabric shm --members 3 --bytes 100,300000 --trials 2");
    for run in report["runs"].as_array().expect("a list") {
        for key in ["bytes_per_second", "copied_bytes_per_second", "lent_bytes_per_second", "memcpy_ratio"] {
            assert!(number(run, key) > 0.0, "{key}: {run}");
        }
    }
}

#[test]
fn small_messages_are_timed_by_a_model() {
    let report = bench("scale", "scale --fabric sim --members 2,9 --size 10k --window 20");
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    let (two, nine) = (&runs[0], &runs[1]);
    assert_eq!((number(nine, "members"), number(nine, "senders"), number(&runs[3], "senders")), (9.0, 1.0, 9.0));
    assert!(number(two, "messages_per_second") > 6.0 * number(nine, "messages_per_second"), "{two} {nine}");
    assert!(number(two, "lone_latency_ns") < number(nine, "lone_latency_ns"), "{two} {nine}");
    assert!(number(nine, "link_use") > 0.9, "{nine}");
    let tcp = bench("scale", "scale --fabric sim --network tcp --members 2 --size 10k --window 20 --senders one");
    assert!(number(two, "messages_per_second") > number(&tcp["runs"][0], "messages_per_second"));
}

#[test]
fn recovery_of_a_log() {
    for (how, warm) in [("", false), (" --warm", true)] {
        let arguments = format!("recovery --bytes 2M --size 100,5000 --trials 2 --points 50{how}");
        let report = bench(&format!("recovery{}", how.len()), &arguments);
        let runs = report["runs"].as_array().expect("a list");
        for (run, size) in runs.iter().zip([100.0, 5000.0]) {
            assert_eq!((number(run, "size_bytes"), number(run, "trials")), (size, 2.0));
            assert!((1.5e6..3e6).contains(&number(run, "bytes")), "{run}");
            for key in ["written", "read", "recovery", "replay"] {
                assert!(number(run, &format!("{key}_bytes_per_second")) > 0.0, "{key}: {run}");
            }
            for key in ["recovery_ratio", "replay_ratio", "recovery_replay_ratio", "progress_reports"] {
                assert!(number(run, key) > 0.0, "{key}: {run}");
            }
            // It is null where the file system does not say what is in memory.
            assert!(run["cached_percent"].is_null() || !warm, "{run}");
            for key in ["by_version_ns", "by_time_ns"] {
                assert!(
                    number(&run[key], "p50") > 0.0 && number(&run[key], "p50") <= number(&run[key], "max"),
                    "{run}"
                );
            }
        }
    }
}

#[test]
fn a_signal_ends_recovery_and_removes_the_log() {
    let temp = Temp::new("recovery-stopped");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
    let words = ["bench", "recovery", "--bytes", "8M", "--size", "100", "--trials", "100", "--points", "10000000"];
    let mut process = command.args(words).env("TMPDIR", &temp.0).stderr(Stdio::piped()).spawn().expect("it starts");
    let count = || fs::read_dir(&temp.0).expect("it is there").count();
    // The signals are handled before the directory is created.
    let until = Instant::now() + Duration::from_secs(30);
    while count() == 0 {
        assert!(Instant::now() < until && process.try_wait().expect("a child").is_none(), "no log");
        thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&process), Signal::INT).expect("it runs");
    let out = process.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(130), "{error}");
    assert!(error.contains("stopped by signal 2"), "{error}");
    assert_eq!(count(), 0, "the log stayed");
}

#[test]
fn invalid_arguments_are_refused() {
    let temp = Temp::new("refused");
    for (arguments, named) in [
        ("throughput --members 0", "--members"),
        ("throughput --size x", "--size"),
        ("throughput --subgroups 2 --active 3", "--active"),
        ("throughput --seconds 0", "--seconds"),
        (
            "throughput --listen 127.0.0.1:0 --seeds 127.0.0.1:1 --rank 2 --size 16",
            "--rank 2: of --members 2 it is one from 0 to 1",
        ),
        ("throughput --listen 127.0.0.1:0 --seeds 127.0.0.1:1 --rank 1", "one --size, not 4"),
        (
            "throughput --listen 127.0.0.1:0 --seeds 127.0.0.1:1 --rank 1 --members 2,3",
            "one number of --members, not 2",
        ),
        ("bulk --fabric tcp --bytes 1023G", "of memory"),
        ("throughput --rank 0", "--listen"),
        ("latency --sleeping --wait polling", "--wait"),
        ("latency --size 4", "--size"),
        ("recovery --bytes 1k", "--bytes 1024"),
        ("recovery --size 2M", "--size 2097152"),
        ("latency --members 1", "--members"),
        ("bulk", "--fabric"),
        ("bulk --fabric sim --block 0", "--block"),
        ("bulk --fabric sim --block 1 --bytes 1M", "--bytes"),
        ("bulk --fabric sim --bytes 1M,2M", "--bytes"),
        ("bulk --fabric tcp --bytes 0", "--bytes"),
        ("bulk --fabric shm --members 100", "--members"),
        ("bulk --fabric shm --quick", "--quick"),
        ("bulk --fabric shm --racks 2", "--racks"),
        ("bulk --fabric tcp --algorithm hybrid", "--racks"),
        ("scale --fabric sim --members 65", "--members"),
        ("scale --fabric sim --size 1M --window 65", "window"),
        ("limits --ring 1 --size 16 --seconds 0.01", "--ring"),
    ] {
        let out = spindle(&temp.0, arguments);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && error.contains(named), "{arguments}: {error}");
    }
}

#[test]
fn the_member_that_was_killed_is_named_and_not_who_lost_it() {
    for arguments in
        ["throughput --members 3 --size 16 --seconds 3600", "bulk --fabric tcp --members 3 --bytes 1M --trials 1000"]
    {
        let temp = Temp::new("killed");
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        command.arg("bench").args(arguments.split(' ')).env("TMPDIR", &temp.0);
        let bench = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let patience = Instant::now() + Duration::from_secs(60);
        let last = loop {
            assert!(Instant::now() < patience, "{arguments}: no members");
            let id = bench.id();
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("its children");
            if let [_, _, last] = children.split_whitespace().collect::<Vec<_>>()[..] {
                break last.parse().expect("a number");
            }
            thread::sleep(Duration::from_millis(5));
        };
        kill_process(Pid::from_raw(last).expect("a process"), Signal::KILL).expect("it is there");
        let out = bench.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{arguments}: {error}");
        assert!(error.contains(&format!("member 2 (process {last}) was killed (signal 9)")), "{arguments}: {error}");
    }
}

#[test]
fn members_are_not_for_people() {
    let temp = Temp::new("member");
    let out = spindle(&temp.0, "member");
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && error.contains("spindle bench"), "{error}");
}
