//! `spindle member`, as processes: what comes out, and what happens when something goes wrong.
mod common;

use common::{Numbers, Running, Scratch, read};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::Signal;
use std::path::Path;
use std::process::Stdio;

/// Lines of all kinds: empty, long, with carriage returns, in no encoding; the last one without a newline.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut text = Vec::new();
    while text.len() < bytes {
        let len = [0, 1, 40, 90, 5000][numbers.below(100).saturating_sub(95) as usize].max(numbers.below(80));
        text.extend(numbers.bytes(len).into_iter().map(|byte| if byte == b'\n' { b'\r' } else { byte }));
        text.extend_from_slice([b"\n".as_slice(), b"\n\n", b"\r\n"][numbers.below(3) as usize]);
    }
    text.extend_from_slice(b"the last line");
    text
}

/// Lines of a member's output that says origins: (rank, round, line).
fn origins(output: &[u8]) -> Vec<(u32, u64, &[u8])> {
    let lines = output.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n');
    let parse = |line: &'_ [u8]| -> (u32, u64, usize) {
        let space = line.iter().position(|byte| *byte == b' ').unwrap();
        let (rank, round) = std::str::from_utf8(&line[..space]).unwrap().split_once(':').unwrap();
        (rank.parse().unwrap(), round.parse().unwrap(), space + 1)
    };
    lines
        .map(|line| {
            let (rank, round, at) = parse(line);
            (rank, round, &line[at..])
        })
        .collect()
}

#[test]
fn three_members_print_all_lines_of_three_files_in_the_same_order() {
    let scratch = Scratch::new();
    let texts: Vec<_> = (1..=3).map(|seed| text(seed, 2 << 20)).collect();
    let files: Vec<_> = texts.iter().enumerate().map(|(i, text)| scratch.file(&format!("in{i}"), text)).collect();
    let outputs: Vec<_> = (0..3).map(|i| scratch.path(&format!("out{i}"))).collect();
    let members = (0..3).map(|i| {
        let mut command = scratch.member("files", 3);
        command.args(["--id", &(i + 1).to_string()]).arg("--input").arg(&files[i]).arg("--output").arg(&outputs[i]);
        if i == 2 {
            command.arg("--with-origin");
        }
        Running::start(&mut command)
    });
    let members: Vec<_> = members.collect();
    for member in members {
        member.done().expect(0);
    }
    let first = read(&outputs[0]);
    assert!(first == read(&outputs[1]), "the outputs of members 1 and 2 differ");
    let third = read(&outputs[2]);
    let told = origins(&third);
    let plain: Vec<u8> = told.iter().flat_map(|(_, _, line)| [line, b"\n".as_slice()].concat()).collect();
    assert!(first == plain, "the outputs of members 1 and 3 differ");
    assert!(told.is_sorted_by_key(|(rank, round, _)| (*round, *rank)), "the order is by (round, rank)");
    for (rank, text) in (0..).zip(&texts) {
        let own: Vec<u8> = told.iter().filter(|t| t.0 == rank).flat_map(|t| [t.2, b"\n".as_slice()].concat()).collect();
        assert!(own == [text.as_slice(), b"\n"].concat(), "the lines of rank {rank} are not those of its input");
    }
}

#[test]
fn frames_carry_any_bytes_and_say_where_they_come_from() {
    let scratch = Scratch::new();
    let mut numbers = Numbers(7);
    let mut inputs = [Vec::new(), Vec::new()];
    for input in &mut inputs {
        for i in 0..500 {
            let len = [0, 1, 1 << 16, numbers.below(5000)][if i % 50 < 3 { i % 50 } else { 3 }];
            input.extend_from_slice(&(len as u32).to_le_bytes());
            input.extend(numbers.bytes(len));
        }
    }
    let members: Vec<_> = (0..2)
        .map(|i| {
            let file = scratch.file(&format!("in{i}"), &inputs[i]);
            let mut command = scratch.member("frames", 2);
            command.args(["--frames", "--with-origin", "--id", &(i + 1).to_string(), "--input"]).arg(file);
            Running::start(&mut command)
        })
        .collect();
    let outputs: Vec<_> = members.into_iter().map(|member| member.done().expect(0).stdout).collect();
    assert!(outputs[0] == outputs[1], "the outputs differ");
    let mut back = [Vec::new(), Vec::new()];
    let (mut rest, mut places) = (outputs[0].as_slice(), Vec::new());
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(header[..4].try_into().unwrap());
        let rank = u32::from_le_bytes(header[4..8].try_into().unwrap());
        places.push((u64::from_le_bytes(header[8..].try_into().unwrap()), rank));
        back[rank as usize].extend_from_slice(&header[..4]);
        back[rank as usize].extend_from_slice(&behind[..len as usize]);
        rest = &behind[len as usize..];
    }
    assert!(rest.is_empty() && places.is_sorted());
    assert!(back == inputs, "each member's frames come out as they went in");
}

#[test]
fn a_member_with_an_empty_input_delivers_what_the_others_send() {
    let scratch = Scratch::new();
    let file = scratch.file("in", &text(5, 1 << 20));
    let mut silent = Running::start(&mut scratch.member("uneven", 2));
    let talking = Running::start(scratch.member("uneven", 2).arg("--input").arg(&file));
    assert_eq!(silent.event("joined")["members"].as_array().unwrap().len(), 2);
    let finished = silent.event("finished");
    assert_eq!(finished["sent"], 0);
    let (silent, talking) = (silent.done().expect(0), talking.done().expect(0));
    assert!(silent.stdout == talking.stdout);
    assert_eq!(finished["delivered"], silent.stdout.iter().filter(|byte| **byte == b'\n').count());
}

#[test]
fn a_conversation_goes_line_by_line_and_in_fifo_order_too() {
    let scratch = Scratch::new();
    let start = || Running::start(scratch.member("talk", 2).args(["--order", "fifo"]).stdin(Stdio::piped()));
    let (mut one, mut two) = (start(), start());
    one.send(b"hello\n");
    assert_eq!(two.lines(1), ["hello"]);
    two.send(b"hello yourself\nand no newline");
    assert_eq!(one.lines(2), ["hello", "hello yourself"]);
    drop((one.stdin.take(), two.stdin.take()));
    assert_eq!(one.lines(3)[2], "and no newline");
    one.done().expect(0);
    two.done().expect(0);
}

#[test]
fn a_line_that_is_too_long_is_named_and_the_others_hear_that_this_member_gave_up() {
    let scratch = Scratch::new();
    let file = scratch.file("in", format!("short\n\n{}\n", "x".repeat(300_000)).as_bytes());
    let bad =
        Running::start(scratch.member("long", 2).args(["--max-message", "1k", "--id", "1", "--input"]).arg(&file));
    let other = Running::start(scratch.member("long", 2).args(["--max-message", "1024"]).stdin(Stdio::piped()));
    let error = bad.done().expect(1).error();
    for word in ["line 3", "300000 bytes", "1024", "--max-message"] {
        assert!(error.contains(word), "{error:?} lacks {word:?}");
    }
    let error = other.done().expect(3).error();
    assert!(error.contains("member 1") && error.contains("gave the group up"), "{error}");
}

#[test]
fn a_frame_that_is_cut_off_or_too_long_is_named() {
    let scratch = Scratch::new();
    let cut = scratch.file("cut", b"\x01\0\0\0a\x05\0\0\0ab");
    let long = scratch.file("long", b"\x01\0\0\0a\xff\xff\xff\xff");
    let run = |file: &Path| Running::start(scratch.member("cut", 1).args(["--frames", "--input"]).arg(file)).done();
    let error = run(&cut).expect(1).error();
    assert!(error.contains("in the middle of frame 2"), "{error}");
    let error = run(&long).expect(1).error();
    assert!(error.contains("frame 2") && error.contains("4294967295 bytes"), "{error}");
}

#[test]
fn members_that_want_another_group_are_turned_away_and_the_group_forms_without_them() {
    let scratch = Scratch::new();
    let mut first = Running::start(scratch.member("terms", 2).args(["--id", "1"]));
    first.event("waiting");
    let wrong = |extra: &[&str], members| Running::start(scratch.member("terms", members).args(extra)).done();
    let error = wrong(&[], 3).expect(1).error();
    assert!(error.contains("3 members") && error.contains("one of 2"), "{error}");
    let error = wrong(&["--id", "1"], 2).expect(1).error();
    assert!(error.contains(&format!("id 1 is in use by process {}", first.pid())), "{error}");
    let error = wrong(&["--max-message", "100"], 2).expect(1).error();
    assert!(error.contains("differs from the group's"), "{error}");
    Running::start(&mut scratch.member("terms", 2)).done().expect(0);
    first.done().expect(0);
}

#[test]
fn wrong_arguments_are_told_apart_by_status_2() {
    let scratch = Scratch::new();
    let words: [&[&str]; 7] = [
        &["member", "g"],
        &["member", "no/slash", "--members", "1"],
        &["member", "g", "--members", "0"],
        &["member", "g", "--members", "1", "--max-message", "1G"],
        &["member", "g", "--members", "1", "--window", "0"],
        &["member", "g", "--members", "1", "--max-message", "many"],
        &["no-such-command"],
    ];
    for words in words {
        let done = Running::start(&mut scratch.spindle(words)).done().expect(2);
        assert!(done.errors[0].starts_with("error: "), "{words:?}: {:?}", done.errors);
    }
}

#[test]
fn a_member_that_is_killed_ends_the_group_by_name_and_the_next_start_works() {
    let scratch = Scratch::new();
    for _ in 0..3 {
        let member = || Running::start(scratch.member("killed", 3).stdin(Stdio::piped()));
        let mut members = [member(), member(), member()];
        let ids = members.each_mut().map(|member| member.event("joined")["id"].clone());
        let [one, two, victim] = members;
        let name = format!("member {} (rank {}, process {}) died", ids[2], ids[2].as_u64().unwrap() - 1, victim.pid());
        victim.signal(Signal::KILL);
        for member in [one, two] {
            // Its input is still open.
            let error = ended(member);
            assert!(error.contains(&name), "{error:?} lacks {name:?}");
        }
    }
}

/// The message of a member that the group's end stops while its input is open.
fn ended(mut member: Running) -> String {
    let error = member.event("error");
    assert_eq!(error["status"], 3);
    member.done().expect(3).error()
}

#[test]
fn a_founder_that_is_killed_while_it_waits_blocks_nobody() {
    let scratch = Scratch::new();
    let mut founder = Running::start(&mut scratch.member("founder", 2));
    founder.event("waiting");
    founder.signal(Signal::KILL);
    drop(founder);
    let members = [0, 1].map(|_| Running::start(&mut scratch.member("founder", 2)));
    for member in members {
        member.done().expect(0);
    }
}

#[test]
fn strangers_at_the_socket_cost_only_themselves() {
    let scratch = Scratch::new();
    let mut first = Running::start(&mut scratch.member("garbage", 2));
    first.event("waiting");
    let address = SocketAddrUnix::new(scratch.runtime_dir().join("garbage.sock")).unwrap();
    let stranger = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&stranger, &address).unwrap();
    rustix::io::write(&stranger, &Numbers(3).bytes(500)).unwrap();
    let dropped = first.event("dropped");
    assert_eq!(dropped["pid"], std::process::id());
    let silent = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&silent, &address).unwrap();
    Running::start(&mut scratch.member("garbage", 2)).done().expect(0);
    first.done().expect(0);
}

#[test]
fn ctrl_c_stops_a_member_that_waits_and_one_that_runs() {
    let scratch = Scratch::new();
    let mut waiting = Running::start(&mut scratch.member("stop", 2));
    waiting.event("waiting");
    waiting.signal(Signal::INT);
    let error = waiting.done().expect(130).error();
    assert!(error.contains("1 of 2 members are here"), "{error}");
    let member = || Running::start(scratch.member("stop", 2).stdin(Stdio::piped()));
    let (mut one, mut two) = (member(), member());
    two.event("joined");
    let id = one.event("joined")["id"].clone();
    one.signal(Signal::TERM);
    one.event("error");
    one.done().expect(143);
    let error = ended(two);
    assert!(error.contains(&format!("member {id} ")) && error.contains("gave the group up"), "{error}");
}

#[test]
fn nobody_to_come_ends_the_wait_in_time() {
    let scratch = Scratch::new();
    let done = Running::start(scratch.member("alone", 2).args(["--gather-timeout", "1"])).done().expect(1);
    assert!(done.error().contains("1 of 2 members are here"), "{}", done.error());
}

#[test]
fn an_output_that_takes_no_more_ends_the_group() {
    let scratch = Scratch::new();
    let file = scratch.file("in", &text(9, 1 << 20));
    let mut command = scratch.member("full", 2);
    let full = Running::start(command.args(["--output", "/dev/full", "--id", "1", "--input"]).arg(&file));
    let other = Running::start(scratch.member("full", 2).stdin(Stdio::piped()));
    let error = full.done().expect(1).error();
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
    assert!(ended(other).contains("member 1 "));

    let mut command = scratch.member("closed", 2);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = Running::listening(command.args(["--id", "1", "--input"]).arg(&file).stdout(writer), false);
    let other = Running::start(scratch.member("closed", 2).stdin(Stdio::piped()));
    drop(command);
    let error = closed.done().expect(1).error();
    assert!(error.contains("the standard output") && error.contains("Broken pipe"), "{error}");
    assert!(ended(other).contains("member 1 "));
}

#[test]
fn files_that_can_t_be_used_are_told_before_anybody_is_waited_for() {
    let scratch = Scratch::new();
    let file = scratch.file("in", b"precious\n");
    let run = |words: &[&Path]| {
        let mut command = scratch.member("files", 2);
        for (flag, path) in ["--input", "--output"].iter().zip(words) {
            command.arg(flag).arg(path);
        }
        Running::start(&mut command).done().expect(1).error()
    };
    assert!(run(&[&scratch.path("missing")]).contains("missing"));
    assert!(run(&[&scratch.path("")]).contains("is a directory"));
    assert!(run(&[&file, &scratch.path("no/where")]).contains("no/where"));
    assert!(run(&[&file, &file]).contains("input and output"));
    assert_eq!(read(&file), b"precious\n");
}
