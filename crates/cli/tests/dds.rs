//! `spindle dds`, as processes beside a participant of this process.
mod common;

use common::{Done, Running, Scratch};
use rustix::process::Signal;
use serde_json::{Value, json};
use spindle_dds::policy::{PartitionQosPolicy, ReliabilityQosPolicy};
use spindle_dds::qos::*;
use spindle_dds::{DataReader, DataWriter, DdsDuration, DdsType, DomainConfig, DomainParticipant, Guid};
use std::process::Stdio;

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(appendable, name = "sensors::Reading")]
struct Reading {
    #[dds(key, bound = 16)]
    sensor: String,
    value: i64,
}

const IDL: &str = "\
module sensors {
    @appendable struct Reading {
        @key string<16> sensor;
        int64 value;
    };
};
";
const WAIT: DdsDuration = DdsDuration::from_secs(60);

/// Returns a participant of domain 0 of a test.
fn participant(scratch: &Scratch, name: &str) -> DomainParticipant {
    let config =
        DomainConfig { runtime_dir: Some(scratch.runtime_dir()), name: name.to_string(), ..DomainConfig::new(0) };
    DomainParticipant::with(config, DomainParticipantQos::default()).unwrap()
}

fn reader(of: &DomainParticipant, topic: &str, qos: DataReaderQos) -> DataReader<Reading> {
    let topic = of.create_topic::<Reading>(topic, TopicQos::default()).unwrap();
    let subscriber = of.create_subscriber(SubscriberQos::default()).unwrap();
    let reader = subscriber.create_datareader(&topic, qos).unwrap();
    of.wait_for(|directory| directory.reader(reader.guid()).is_some(), WAIT).unwrap();
    reader
}

fn writer(of: &DomainParticipant, topic: &str, qos: DataWriterQos, partition: &str) -> DataWriter<Reading> {
    let topic = of.create_topic::<Reading>(topic, TopicQos::default()).unwrap();
    let publisher = PublisherQos { partition: PartitionQosPolicy::of([partition]), ..PublisherQos::default() };
    let writer = of.create_publisher(publisher).unwrap().create_datawriter(&topic, qos).unwrap();
    of.wait_for(|directory| directory.writer(writer.guid()).is_some(), WAIT).unwrap();
    writer
}

fn reliable() -> DataReaderQos {
    DataReaderQos { reliability: ReliabilityQosPolicy::WRITER, ..DataReaderQos::default() }
}

fn best_effort() -> DataWriterQos {
    DataWriterQos { reliability: ReliabilityQosPolicy::default(), ..DataWriterQos::default() }
}

fn start(scratch: &Scratch, words: &[&str]) -> Running {
    Running::start(scratch.spindle(["dds"]).args(words))
}

fn done(scratch: &Scratch, words: &[&str]) -> Done {
    start(scratch, words).done()
}

fn text(done: &Done) -> String {
    String::from_utf8(done.stdout.clone()).unwrap()
}

/// Returns an identity as texts name it.
fn short(guid: Guid) -> String {
    let text = guid.to_string();
    format!("{}.{}", &text[..8], u32::from_str_radix(&text[24..], 16).unwrap())
}

#[test]
fn echo_prints_what_a_publisher_writes_and_outlives_its_kill() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "viewer");
    let own = reader(&one, "readings", reliable());
    let mut echo = start(&scratch, &["echo", "readings", "--json"]);
    one.wait_for(|directory| directory.readers().count() == 2, WAIT).unwrap();
    let data = r#"{"sensor": "a", "value": 7}"#;
    let publisher = start(&scratch, &["pub", "readings", "--json", data, "--rate", "50"]);
    let samples: Vec<Value> = echo.lines(3).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    for sample in &samples {
        assert_eq!((&sample["data"], &sample["state"]), (&json!({"sensor": "a", "value": 7}), &json!("ALIVE")));
        assert!(sample["source_time"].as_str().unwrap().ends_with('Z'));
    }
    // The position is the same at all readers.
    let positions: Vec<String> = (0..3)
        .map(|_| {
            own.wait_for_data(WAIT).unwrap();
            own.take_next_sample().unwrap().unwrap().info().position.to_string()
        })
        .collect();
    let mut all = echo.lines(10);
    for position in positions {
        while !all.iter().any(|line| line.contains(&format!("{position:?}"))) {
            all = echo.lines(all.len() + 1);
        }
    }

    publisher.signal(Signal::KILL);
    publisher.done();
    let gone = loop {
        let all = echo.lines(all.len() + 1);
        let last: Value = serde_json::from_str(all.last().unwrap()).unwrap();
        if last["state"] != "ALIVE" {
            break (all.len(), last);
        }
    };
    assert_eq!((&gone.1["state"], &gone.1["key"]), (&json!("NOT_ALIVE_NO_WRITERS"), &json!({"sensor": "a"})));
    assert_eq!(gone.1.get("data"), None);

    done(&scratch, &["pub", "readings", "--json", r#"{"sensor": "b", "value": 8}"#]).expect(0);
    // The sample, and the state of its instance when its writer has gone.
    let all = echo.lines(gone.0 + 2);
    let last: Vec<Value> = all[gone.0..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(last[0]["data"], json!({"sensor": "b", "value": 8}));
    assert_eq!((&last[1]["state"], &last[1]["key"]), (&json!("NOT_ALIVE_NO_WRITERS"), &json!({"sensor": "b"})));
    echo.signal(Signal::INT);
    echo.done().expect(0);
    one.wait_for(|directory| directory.participants().count() == 1, WAIT).unwrap();
}

#[test]
fn samples_come_from_the_input_and_are_printed_as_text() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "viewer");
    let _own = reader(&one, "readings", reliable());
    let echo = start(&scratch, &["echo", "readings", "--count", "2"]);
    one.wait_for(|directory| directory.readers().count() == 2, WAIT).unwrap();
    let mut publisher = scratch.spindle(["dds", "pub", "readings"]);
    let mut publisher = Running::start(publisher.stdin(Stdio::piped()));
    publisher.send(b"{\"sensor\": \"a\", \"value\": 1}\n\n{\"sensor\": \"b\", \"value\": -2}\n");
    let published = publisher.done().expect(0);
    assert_eq!(published.errors, ["published 2 samples"]);
    let printed = text(&echo.done().expect(0));
    let ends: Vec<&str> = printed.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect();
    assert_eq!(ends, ["ALIVE {sensor: \"a\", value: 1}", "ALIVE {sensor: \"b\", value: -2}"]);
}

#[test]
fn the_directory_is_shown_as_text_and_as_json() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let writer = writer(&one, "readings", best_effort(), "north");
    let reader = reader(&one, "readings", reliable());
    let pid = std::process::id();
    let (prefix, w, r) = (one.guid().to_string()[..8].to_string(), short(writer.guid()), short(reader.guid()));

    assert_eq!(
        text(&done(&scratch, &["ls"]).expect(0)),
        "\
TOPIC     TYPE              WRITERS  READERS  ORDER DOMAIN
readings  sensors::Reading  1        1        0: members 1; senders 1
"
    );
    assert_eq!(
        text(&done(&scratch, &["ls", "--qos", "--topic", "read*"]).expect(0)),
        format!(
            "\
readings: type sensors::Reading, order domain 0: members 1; senders 1
  writer {w} (station, process 1): RELIABILITY BEST_EFFORT (max_blocking_time 100 ms); PARTITION 'north'
  reader {r} (station, process 1): RELIABILITY RELIABLE (max_blocking_time 100 ms)
"
        )
    );
    assert_eq!(text(&done(&scratch, &["ls", "--topic", "x*"]).expect(0)), "domain 0 has no topics that fit \"x*\"\n");
    let endpoint = |guid: Guid| {
        json!({"guid": guid.to_string(), "participant": one.guid().to_string(), "name": "station", "process": 1,
               "topic": "readings", "type": "sensors::Reading"})
    };
    let mut with_qos = endpoint(writer.guid());
    with_qos["qos"] = json!({"RELIABILITY": "BEST_EFFORT (max_blocking_time 100 ms)", "PARTITION": "'north'"});
    let objects = done(&scratch, &["ls", "--json", "--qos"]).expect(0).objects();
    assert_eq!(objects.len(), 1);
    let hash = one.topic_types("readings").unwrap()[0].hash.unwrap().to_string();
    assert_eq!(objects[0]["types"], json!([{"name": "sensors::Reading", "hash": hash}]));
    assert_eq!(objects[0]["writers"], json!([with_qos]));
    assert_eq!(objects[0]["order_domain"]["senders"], json!([1]));

    assert_eq!(
        text(&done(&scratch, &["ps"]).expect(0)),
        format!(
            "{:9}{:13}{:9}{:w$}HOST  WRITERS   READERS\n{:9}{:13}{:9}{pid}  this  readings  readings\n",
            "PROCESS",
            "PARTICIPANT",
            "NAME",
            "PID",
            "1",
            prefix,
            "station",
            w = pid.to_string().len().max(3) + 2,
        )
    );
    assert_eq!(
        done(&scratch, &["ps", "--json"]).expect(0).objects(),
        [json!({"event": "participant", "guid": one.guid().to_string(), "name": "station", "process": 1, "pid": pid,
                "host": "this", "writers": [endpoint(writer.guid())], "readers": [endpoint(reader.guid())]})]
    );

    assert_eq!(text(&done(&scratch, &["typeof", "readings"]).expect(0)), IDL);
    assert_eq!(
        done(&scratch, &["typeof", "readings", "--json"]).expect(0).objects(),
        [json!({"event": "type", "topic": "readings", "name": "sensors::Reading", "hash": hash, "idl": IDL})]
    );
}

#[test]
fn why_has_all_reasons_and_names_that_are_close() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let wrong = writer(&one, "readings", best_effort(), "north");
    let right = writer(&one, "readings", DataWriterQos::default(), "");
    let reader = reader(&one, "readings", reliable());
    let _close = writer(&one, "Readings", DataWriterQos::default(), "");
    let (wrong, right, r) = (short(wrong.guid()), short(right.guid()), short(reader.guid()));

    let why = done(&scratch, &["why", "readings"]).expect(1);
    let reader_text = format!("reader {r} (station, process 1)");
    assert_eq!(
        text(&why),
        format!(
            "\
writer {wrong} (station, process 1) and {reader_text} don't match:
  PARTITION: the writer is in 'north', the reader in ''; the reader is in the default partition: set its PARTITION, or \
             use '*' at the other side
  RELIABILITY: the writer offers BEST_EFFORT (max_blocking_time 100 ms), the reader requests RELIABLE \
             (max_blocking_time 100 ms); the offered kind must be at least the requested one
writer {right} (station, process 1) and {reader_text} match: the default partition, XCDR, ATOMIC_MULTICAST
topic: the writer has 'Readings', the reader 'readings'; one is probably mistyped
"
        )
        .replace("             ", "")
    );
    assert_eq!(why.errors, ["error: 1 of 2 pairs don't match"]);
    let pair = done(&scratch, &["why", &r, &right, "--json"]).expect(0).objects();
    assert_eq!((pair.len(), &pair[0]["matches"]), (1, &json!(true)));
    assert_eq!(
        pair[0]["terms"],
        json!({"partition": {"writer": "", "reader": ""}, "representation": "XCDR", "consistency": "ATOMIC_MULTICAST"})
    );
    let other = done(&scratch, &["why", &wrong, &right]).expect(2);
    assert_eq!(other.errors, ["error: both are writers; name a writer and a reader"]);
    let none = done(&scratch, &["why", "ffffffffff", &right]).expect(1);
    assert_eq!(none.errors, ["error: no endpoint is \"ffffffffff\"; see `spindle dds ls --qos`"]);
}

#[test]
fn an_unknown_topic_and_data_of_another_type_are_errors() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let _own = reader(&one, "readings", reliable());
    let unknown = "error: precondition not met: no participant of domain 0 has a topic 'raedings', but 'readings'; \
                   check the name and the domain, or start a participant with the topic";
    for words in [
        &["echo", "raedings", "--timeout", "0.5"][..],
        &["typeof", "raedings"],
        &["why", "raedings"],
        &["hz", "raedings", "--timeout", "0.5"],
        &["pub", "raedings", "--json", "{}", "--timeout", "0.5"],
    ] {
        assert_eq!(done(&scratch, words).expect(1).errors, [unknown], "{words:?}");
    }
    let none = done(&scratch, &["echo", "readings", "--timeout", "0.5", "--json"]).expect(1);
    assert_eq!(none.error(), "no sample of topic 'readings' came for 500ms; see `spindle dds why readings`");

    for (data, error) in [
        (r#"{"sensor": "a", "value": "x"}"#, "member value: found the text \"x\"; expected int64"),
        (r#"{"sensor": "a", "vlaue": 1}"#, "member vlaue: no such member; expected sensor, value"),
        (r#"{"sensor": "much too long for it", "value": 1}"#, "member sensor"),
    ] {
        let wrong = done(&scratch, &["pub", "readings", "--json", data]);
        let told = wrong.errors.iter().find(|line| line.starts_with("error: ")).unwrap();
        assert!(told.contains(error), "{told}");
        assert!(matches!(wrong.status.code(), Some(1 | 2)), "{:?}", wrong.status);
    }
    let mut publisher = scratch.spindle(["dds", "pub", "readings"]);
    let mut publisher = Running::start(publisher.stdin(Stdio::piped()));
    publisher.send(b"{\"sensor\": \"a\", \"value\": 1}\n{\"sensor\": 1}\n");
    let wrong = publisher.done().expect(1);
    let expected = "error: line 2 of the input: member sensor: found 1; expected string<16>";
    assert_eq!(wrong.errors.last().unwrap(), expected);
    assert_eq!(done(&scratch, &["pub", "readings", "--json", "{"]).expect(2).errors.len(), 1);

    let mut elsewhere = scratch.spindle(["dds", "ls"]);
    let elsewhere = Running::start(elsewhere.env("SPINDLE_DDS_DOMAIN", "7")).done().expect(0);
    assert_eq!(text(&elsewhere), "domain 7 has no topics\n");
    let mut wrong = scratch.spindle(["dds", "ls"]);
    let wrong = Running::start(wrong.env("SPINDLE_DDS_DOMAIN", "x")).done().expect(2);
    assert_eq!(wrong.errors, ["error: SPINDLE_DDS_DOMAIN=x: a domain is a number, 0 to 4294967295"]);
}

#[test]
fn rates_are_shown_each_second_and_at_the_end() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let _own = reader(&one, "readings", reliable());
    let data = r#"{"sensor": "a", "value": 7}"#;
    let publisher = start(&scratch, &["pub", "readings", "--json", data, "--rate", "100"]);
    one.wait_for(|directory| directory.writers().count() == 1, WAIT).unwrap();
    let mut hz = start(&scratch, &["hz", "readings"]);
    let bw = done(&scratch, &["bw", "readings", "--json", "--duration", "1.5"]).expect(0).objects();
    let summary = bw.last().unwrap();
    assert_eq!(summary["event"], "summary");
    // The header, the size, the text with its length and end, the padding, the number.
    assert_eq!(summary["sample_bytes"], json!({"min": 20.0, "mean": 20.0, "max": 20.0}));
    let line = hz.lines(2).remove(1);
    assert!(line.contains(" Hz; interval "), "{line}");
    hz.signal(Signal::INT);
    let last = text(&hz.done().expect(0));
    assert!(last.lines().last().unwrap().starts_with("all: "), "{last}");
    publisher.signal(Signal::TERM);
    publisher.done().expect(0);
}

#[test]
fn the_doctor_finds_a_sound_domain_and_a_pair_that_does_not_match() {
    let scratch = Scratch::new();
    let sound = text(&done(&scratch, &["doctor"]).expect(0));
    let checks: Vec<&str> = sound.lines().map(|line| line.split(':').next().unwrap()).collect();
    let expected = ["runtime directory", "join", "endpoints", "samples", "leave"];
    assert_eq!(checks, expected.map(|check| format!("ok     {check}")));

    let seed = common::seeds(1).remove(0);
    let words = ["doctor", "--set", "network.insecure=true", "--set"].map(str::to_string);
    let network = ["network.listen", "network.seeds"].map(|key| format!("{key}={seed}"));
    let words = words.into_iter().chain([network[0].clone(), "--set".to_string(), network[1].clone()]);
    Running::start(scratch.spindle(["dds"]).args(words)).done().expect(0);

    let one = participant(&scratch, "station");
    let _writer = writer(&one, "readings", best_effort(), "");
    let _reader = reader(&one, "readings", reliable());
    let wrong = done(&scratch, &["doctor", "--json"]).expect(1);
    assert_eq!(wrong.error(), "1 check failed");
    let found = wrong.objects();
    let endpoints = found.iter().find(|it| it["check"] == "endpoints").unwrap();
    assert!(endpoints["ok"] == false && endpoints["detail"].as_str().unwrap().contains("RELIABILITY"), "{endpoints}");
}

#[test]
fn a_signal_ends_a_wait_for_a_topic_in_order() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let echo = start(&scratch, &["echo", "readings", "--timeout", "60"]);
    one.wait_for(|directory| directory.participants().count() == 2, WAIT).unwrap();
    echo.signal(Signal::INT);
    echo.done().expect(0);
    one.wait_for(|directory| directory.participants().count() == 1, WAIT).unwrap();
}

#[test]
fn a_participant_that_hangs_or_a_directory_of_others_bounds_no_wait() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let hang = |others: usize| {
        let echo = start(&scratch, &["echo", "readings", "--timeout", "60"]);
        one.wait_for(|directory| directory.participants().count() == others + 1, WAIT).unwrap();
        echo.stop();
        echo
    };
    // One of two is no majority, and the process that hangs may continue.
    let echo = hang(1);
    let late = done(&scratch, &["ls", "--join-timeout", "2"]).expect(1);
    assert!(late.errors[0].starts_with("error: domain 0 can't be joined: "), "{:?}", late.errors);
    echo.signal(Signal::KILL);
    one.wait_for(|directory| directory.participants().count() == 1, WAIT).unwrap();
    // Two of three evict it after a second.
    let _two = participant(&scratch, "other");
    let _echo = hang(2);
    assert_eq!(text(&done(&scratch, &["ls"]).expect(0)), "domain 0 has no topics\n");

    let open = scratch.path("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let wrong = done(&scratch, &["doctor", "--runtime-dir", open.to_str().unwrap()]).expect(1);
    let checks = text(&wrong);
    assert!(checks.starts_with("failed runtime directory: ") && checks.lines().count() == 2, "{checks}");
    assert_eq!(wrong.errors, ["error: 2 checks failed"]);
}

#[test]
fn no_sample_of_a_fast_publisher_is_missing_and_all_are_in_order() {
    const SAMPLES: usize = 5000;
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let topic = one.create_topic::<Reading>("readings", TopicQos::default()).unwrap();
    let echo = start(&scratch, &["echo", "readings", "--json", "--count", &SAMPLES.to_string()]);
    one.wait_for(|directory| directory.readers().count() == 1, WAIT).unwrap();
    let lines: String = (0..SAMPLES).map(|i| format!("{{\"sensor\": \"s{}\", \"value\": {i}}}\n", i % 3)).collect();
    let input = std::fs::File::open(scratch.file("input", lines.as_bytes())).unwrap();
    let published = Running::start(scratch.spindle(["dds", "pub", "readings"]).stdin(input)).done().expect(0);
    assert_eq!(published.errors, [format!("published {SAMPLES} samples")]);
    let values = echo.done().expect(0).objects().into_iter().map(|sample| sample["data"]["value"].as_u64());
    assert!(values.eq((0..SAMPLES as u64).map(Some)), "the samples are in the order of their writer");
    drop(topic);
}

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(final, name = "sensors::Reading")]
struct OtherReading {
    sensor: String,
}

#[test]
fn several_types_of_a_topic_are_all_shown() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let _writer = writer(&one, "readings", DataWriterQos::default(), "");
    let other = one.create_topic::<OtherReading>("readings", TopicQos::default()).unwrap();
    one.wait_for(|directory| directory.topics().count() == 2, WAIT).unwrap();
    assert_eq!(one.topic_types("readings").unwrap().len(), 2);
    let types = done(&scratch, &["typeof", "readings", "--json"]).expect(0).objects();
    let idl = "module sensors {\n    @final struct Reading {\n        string sensor;\n    };\n};\n";
    assert_eq!((&types[0]["idl"], &types[1]["idl"]), (&json!(IDL), &json!(idl)));
    let shown = text(&done(&scratch, &["typeof", "readings"]).expect(0));
    let comment = |of: &Value| format!("// type sensors::Reading ({})\n", of["hash"].as_str().unwrap());
    assert_eq!(shown, format!("{}{IDL}\n{}{idl}", comment(&types[0]), comment(&types[1])));
    let listed = text(&done(&scratch, &["ls"]).expect(0));
    assert!(listed.contains("sensors::Reading (2 types)  1        0 "), "{listed}");

    let _other = writer(&one, "others", DataWriterQos::default(), "");
    let words = ["pub", "new", "--type-from", "others", "--json", r#"{"sensor": "a", "value": 1}"#];
    let published = done(&scratch, &words).expect(0);
    assert_eq!(
        published.errors,
        ["warning: no reader of topic 'new' matches now; samples that none reads are lost", "published 1 sample"]
    );
    drop(other);
}

#[test]
fn a_domain_with_other_settings_is_joined_with_the_same() {
    let scratch = Scratch::new();
    let config = DomainConfig {
        runtime_dir: Some(scratch.runtime_dir()),
        suspect_after: Some(std::time::Duration::from_secs(3)),
        ..DomainConfig::new(5)
    };
    let _one = DomainParticipant::with(config, DomainParticipantQos::default()).unwrap();
    let refused = done(&scratch, &["ls", "--domain", "5", "--join-timeout", "2"]).expect(1);
    assert!(refused.errors[0].contains("suspect"), "{:?}", refused.errors);
    done(&scratch, &["ls", "--domain", "5", "--set", "group.suspect_after=3"]).expect(0);
}

#[test]
fn commands_that_come_and_go_cost_no_other_reader_a_sample() {
    const SAMPLES: usize = 1000;
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let _topic = one.create_topic::<Reading>("readings", TopicQos::default()).unwrap();
    let echo = start(&scratch, &["echo", "readings", "--json", "--count", &SAMPLES.to_string()]);
    one.wait_for(|directory| directory.readers().count() == 1, WAIT).unwrap();
    let lines: String = (0..SAMPLES).map(|i| format!("{{\"sensor\": \"s\", \"value\": {i}}}\n")).collect();
    let input = std::fs::File::open(scratch.file("input", lines.as_bytes())).unwrap();
    let words = ["dds", "pub", "readings", "--rate", "500"];
    let publisher = Running::start(scratch.spindle(words).stdin(input));
    one.wait_for(|directory| directory.writers().count() == 1, WAIT).unwrap();
    for _ in 0..3 {
        done(&scratch, &["ls"]).expect(0);
        let hz = done(&scratch, &["hz", "readings", "--duration", "0.2", "--json"]).expect(0).objects();
        assert!(hz.last().unwrap()["samples"].as_u64().unwrap() > 0, "{hz:?}");
    }
    publisher.done().expect(0);
    let values = echo.done().expect(0).objects().into_iter().map(|sample| sample["data"]["value"].as_u64());
    assert!(values.eq((0..SAMPLES as u64).map(Some)), "a sample is missing, or not in order");
}

const PAGE: &str = include_str!("../../../docs/guide/dds-tools.md");

/// Returns the block of the page that contains `words`.
fn block(words: &str) -> &'static str {
    let blocks = PAGE.split("```text\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    blocks.into_iter().find(|block| block.contains(words)).unwrap_or_else(|| panic!("no block with {words:?}"))
}

/// Returns lines with 0 in place of each number, and one space in place of several.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for c in text.trim().chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if !(matches!(c, '0' | ' ') && shape.ends_with(c)) {
            shape.push(c);
        }
    }
    shape
}

#[test]
fn the_page_shows_what_the_commands_print() {
    let scratch = Scratch::new();
    let one = participant(&scratch, "station");
    let writer = writer(&one, "readings", best_effort(), "north");
    let _reader = reader(&one, "readings", reliable());
    let prefix = one.guid().to_string()[..8].to_string();
    let shown = |printed: &str| shape(&printed.replace(&prefix, "4c1d09ab"));
    for (words, of) in [
        (&["ls"][..], "TOPIC "),
        (&["ls", "--qos", "--topic", "read*"], "order domain 0: members 1; senders 1\n  writer"),
        (&["ps"], "PROCESS "),
        (&["typeof", "readings"], "module sensors"),
    ] {
        assert_eq!(shown(&text(&done(&scratch, words).expect(0))), shape(block(of)));
    }
    let why = done(&scratch, &["why", "readings"]).expect(1);
    assert_eq!(shown(&format!("{}{}", text(&why), why.errors.join("\n"))), shape(block("don't match:")));

    let echo = start(&scratch, &["echo", "readings", "--count", "2"]);
    writer.wait_for_subscriptions(1, WAIT).unwrap();
    let sample = Reading { sensor: "a".into(), value: 1 };
    // A BEST_EFFORT writer drops samples while the view changes.
    while writer.lookup_instance(&sample).unwrap().is_none() {
        writer.write(&sample).unwrap();
    }
    writer.unregister_instance(&sample).unwrap();
    let printed = text(&echo.done().expect(0));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(shown(lines[0]), shape(block("ALIVE {sensor")));
    let crash = block("NOT_ALIVE_NO_WRITERS").replace("NO_WRITERS", "DISPOSED");
    assert_eq!(shown(lines[1]), shape(&crash));

    let data = r#"{"sensor": "a", "value": "high"}"#;
    let wrong = done(&scratch, &["pub", "readings", "--json", data]).expect(2);
    assert_eq!(wrong.errors.last().unwrap().as_str(), block("error: --json").trim_end());
    let doctor = text(&done(&Scratch::new(), &["doctor"]).expect(0));
    for (line, shown) in doctor.lines().zip(block("ok     leave").lines()).skip(1) {
        assert_eq!(shape(line), shape(shown));
    }
}
