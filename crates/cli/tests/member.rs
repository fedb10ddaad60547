//! `spindle member`, as processes: its output, and its behaviour after errors.
mod common;

use common::{Numbers, Running, Scratch, read};
use rustix::fs::{FileType, Mode};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, sendto, socket};
use rustix::process::Signal;
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

/// Returns lines of all kinds: empty, long, with carriage returns, in no encoding; the last one
/// without a newline.
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

/// Parses the output of a member that prints origins: (view, id, round, line).
fn origins(output: &[u8]) -> Vec<(u64, u64, u64, &[u8])> {
    let lines = output.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n');
    lines
        .map(|line| {
            let space = line.iter().position(|byte| *byte == b' ').unwrap();
            let numbers = std::str::from_utf8(&line[..space]).unwrap().split(':').map(|number| number.parse().unwrap());
            let [view, id, round] = numbers.collect::<Vec<u64>>().try_into().unwrap();
            (view, id, round, &line[space + 1..])
        })
        .collect()
}

/// Each line is written with one call. So a reader never gets a part of a line, even if the writer
/// is killed.
#[test]
fn events_as_json_are_written_line_by_line() {
    let scratch = Scratch::new();
    // Each write is one packet on this socket.
    let (near, far) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let mut command = scratch.member("packets", 1);
    command.arg("--input").arg(scratch.file("in", b"one\ntwo\n")).stdout(Stdio::null()).stderr(far);
    assert!(command.status().unwrap().success());
    drop(command);
    let (mut buffer, mut events) = (vec![0; 1 << 16], vec![]);
    while let (len @ 1.., _) = recv(&near, &mut buffer[..], RecvFlags::empty()).unwrap() {
        let line = std::str::from_utf8(&buffer[..len]).unwrap();
        let event: serde_json::Value = serde_json::from_str(line.strip_suffix('\n').unwrap()).unwrap();
        events.push(event["event"].as_str().unwrap().to_string());
    }
    assert_eq!((events.first().unwrap().as_str(), events.last().unwrap().as_str()), ("joined", "finished"));
}

/// A member whose output takes nothing delivers nothing, and reports it. All others wait when their
/// rings are full.
#[test]
fn an_output_that_takes_nothing_is_told() {
    let scratch = Scratch::new();
    let output = scratch.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &output, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut reader = File::options().read(true).write(true).open(&output).unwrap();
    let text = text(5, 1 << 20);
    let mut command = scratch.member("stalled", 1);
    command.arg("--input").arg(scratch.file("in", &text)).arg("--output").arg(&output);
    let mut member = Running::start(&mut command);
    assert_eq!(member.event("stalled")["stalled"], true);
    let mut got = vec![0; text.len() + 1];
    reader.read_exact(&mut got).unwrap();
    assert!(got == [text.as_slice(), b"\n"].concat(), "the lines are not those of the input");
    member.done().expect(0);
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
    let plain: Vec<u8> = told.iter().flat_map(|(_, _, _, line)| [line, b"\n".as_slice()].concat()).collect();
    assert!(first == plain, "the outputs of members 1 and 3 differ");
    assert!(told.is_sorted_by_key(|(view, id, round, _)| (*view, *round, *id)), "the order is by view, round, rank");
    for (id, text) in (1..).zip(&texts) {
        let own: Vec<u8> = told.iter().filter(|t| t.1 == id).flat_map(|t| [t.3, b"\n".as_slice()].concat()).collect();
        assert!(own == [text.as_slice(), b"\n"].concat(), "the lines of member {id} are not those of its input");
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
    while let Some((header, behind)) = rest.split_first_chunk::<28>() {
        let len = u32::from_le_bytes(header[..4].try_into().unwrap());
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        let (view, id, round) = (number(4), number(12), number(20));
        places.push((view, round, id));
        back[id as usize - 1].extend_from_slice(&header[..4]);
        back[id as usize - 1].extend_from_slice(&behind[..len as usize]);
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
    // Nothing orders these two deliveries: the sender may not have delivered its own message yet.
    assert_eq!(one.lines(1), ["hello"]);
    two.send(b"hello yourself\nand no newline");
    assert_eq!(one.lines(2), ["hello", "hello yourself"]);
    drop((one.stdin.take(), two.stdin.take()));
    assert_eq!(one.lines(3)[2], "and no newline");
    one.done().expect(0);
    two.done().expect(0);
}

/// The messages are longer than a ring, and longer than one read.
#[test]
fn long_lines_and_frames_come_in_their_places() {
    let scratch = Scratch::new();
    let word = |len: usize, seed: u8| (0..len).map(|i| b'a' + (i as u8 ^ seed) % 26).collect::<Vec<u8>>();
    let messages = [word(3, 1), word(1_000_000, 2), word(0, 3), word(70_000, 4), word(300, 5), word(3_000_000, 6)];
    let lines: Vec<u8> = messages.iter().flat_map(|message| [message, &b"\n"[..]].concat()).collect();
    let framed = |message: &Vec<u8>| [&(message.len() as u32).to_le_bytes(), &message[..]].concat();
    let frames: Vec<u8> = messages.iter().flat_map(framed).collect();
    for (extra, bytes) in [(&[][..], lines), (&["--frames"], frames)] {
        let (input, none) = (scratch.file("in", &bytes), scratch.file("none", b""));
        let start = |input: &Path| {
            let mut command = scratch.member("long-lines", 2);
            Running::start(command.args(["--max-message", "1k"]).args(extra).arg("--input").arg(input))
        };
        for done in Running::all_done(vec![start(&input), start(&none)]) {
            assert!(done.expect(0).stdout == bytes, "{extra:?}");
        }
    }
}

#[test]
fn a_line_that_is_too_long_is_named_and_the_others_go_on() {
    let scratch = Scratch::new();
    let file = scratch.file("in", format!("short\n\n{}\n", "x".repeat(300_000)).as_bytes());
    let start = |id, input: &Path| {
        let mut command = scratch.member("long", 2);
        command.env("SPINDLE_GROUP_OBJECT_BYTES_MAX", "100k").args(["--max-message", "1k", "--id", id, "--input"]);
        Running::start(command.arg(input))
    };
    let bad = start("1", &file);
    let other = start("2", Path::new("/dev/null"));
    let error = bad.done().expect(1).error();
    for word in ["line 3", "300000 bytes", "102400", "group.object_bytes_max to 300000"] {
        assert!(error.contains(word), "{error:?} lacks {word:?}");
    }
    let other = other.done().expect(0);
    assert_eq!(other.event("view")["left"], json!([1]));
    // Messages before the line that can't be sent may have been delivered.
    assert!(b"short\n\n".starts_with(&other.stdout), "{:?}", other.stdout);
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
    let mut first = Running::start(scratch.member("terms", 3).args(["--id", "1"]));
    first.event("waiting");
    let wrong = |extra: &[&str], members| Running::start(scratch.member("terms", members).args(extra)).done();
    let error = wrong(&[], 4).expect(1).error();
    assert!(error.contains("created by 3 founders"), "{error}");
    let error = wrong(&["--id", "1"], 3).expect(1).error();
    assert!(error.contains("id 1 is in use in group terms"), "{error}");
    // Processes that only wait report other settings, and wait for those that have their own.
    let mut other = Running::start(scratch.member("terms", 3).args(["--window", "50"]));
    let waiting: serde_json::Value = serde_json::from_str(&other.says("differing\":[")).unwrap();
    let differing = &waiting["differing"];
    assert_eq!(differing, &json!([{"key": "subgroup.all.window", "here": "50", "there": "100"}]));
    other.signal(Signal::TERM);
    let error = other.done().expect(143).stop();
    assert!(error.contains("subgroup.all.window is 100 there and 50 here"), "{error}");
    // Without a number of members a process joins a group of any number.
    let others = [0, 1].map(|_| Running::start(&mut scratch.spindle(["member", "terms", "--json"])));
    let done = Running::all_done(others.into_iter().chain([first]).collect());
    done.into_iter().for_each(|done| drop(done.expect(0)));
}

/// A member, an observer and `status` need no settings of a running group. A setting that was given
/// is not replaced.
#[test]
fn a_running_group_is_joined_with_its_own_settings() {
    let scratch = Scratch::new();
    let list = b"[group]\nsuspect_after = \"7s\"\n[[subgroup]]\nname = \"news\"\nwindow = 7\n";
    let file = scratch.file("news.toml", list);
    let mut first = Running::start(scratch.member("adopts", 1).arg("--config").arg(&file).stdin(Stdio::piped()));
    first.event("joined");
    let refused = |extra: &[&str]| {
        Running::start(scratch.spindle(["member", "adopts", "--json"]).args(extra)).done().expect(1).error()
    };
    let error = refused(&["--suspect-after", "3"]);
    assert!(error.contains("group.suspect_after is 7s there and 3s here; leave group.suspect_after out"), "{error}");
    let error = refused(&["--window", "50"]);
    assert!(error.contains("subgroup.all.window is not set there and 50 here"), "{error}");
    Running::start(&mut scratch.spindle(["status", "adopts"])).done().expect(0);
    let mut observer = Running::start(&mut scratch.spindle(["observe", "adopts", "--json"]));
    observer.event("observing");
    let mut second = Running::start(scratch.spindle(["member", "adopts", "--json"]).stdin(Stdio::piped()));
    let adopted = second.event("adopted");
    let expected = json!({"event": "adopted", "key": "group.suspect_after", "value": "7s", "own": "1s"});
    assert_eq!(adopted, expected);
    second.send(b"from the second\n");
    assert_eq!(first.lines(1), ["from the second"]);
    let members = [first, second, observer];
    Running::all_done(members.into()).into_iter().for_each(|done| drop(done.expect(0)));
}

#[test]
fn wrong_arguments_are_told_apart_by_status_2() {
    let scratch = Scratch::new();
    let words: [&[&str]; 10] = [
        &["member", "g", "--suspect-after", "0"],
        &["member", "g", "--suspect-after", "soon"],
        &["leave", "g"],
        &["status", "no/slash"],
        &["member", "no/slash", "--founders", "1"],
        &["member", "g", "--founders", "0"],
        &["member", "g", "--founders", "1", "--max-message", "1G"],
        &["member", "g", "--founders", "1", "--window", "0"],
        &["member", "g", "--founders", "1", "--max-message", "many"],
        &["no-such-command"],
    ];
    for words in words {
        let done = Running::start(&mut scratch.spindle(words)).done().expect(2);
        assert!(done.errors[0].starts_with("error: "), "{words:?}: {:?}", done.errors);
    }
}

/// Returns the outputs of members that all end with status 0.
fn outputs(members: Vec<Running>) -> Vec<Vec<u8>> {
    Running::all_done(members).into_iter().map(|done| done.expect(0).stdout).collect()
}

/// Returns the members of a complete group of `count`, with pipes as inputs, by id.
fn started(scratch: &Scratch, group: &str, count: u32, words: &[&str]) -> Vec<Running> {
    let member = |id: u32| {
        let mut command = scratch.member(group, count);
        Running::start(command.args(["--id", &id.to_string()]).args(words).stdin(Stdio::piped()))
    };
    let mut members: Vec<_> = (1..=count).map(member).collect();
    members.iter_mut().for_each(|member| drop(member.event("joined")));
    members
}

#[test]
fn a_member_that_is_killed_is_missed_and_the_others_finish_alike() {
    let scratch = Scratch::new();
    let more = text(3, 1 << 20);
    for victim in 0..3 {
        let mut members = started(&scratch, "killed", 3, &[]);
        members.iter_mut().for_each(|member| member.send(b"before\n"));
        members.iter_mut().for_each(|member| drop(member.lines(3)));
        let killed = members.remove(victim);
        killed.signal(Signal::KILL);
        let left: Vec<u64> = (1..=3).filter(|id| *id != victim as u64 + 1).collect();
        for member in &mut members {
            member.send(&more);
            let view = member.view(&left);
            assert_eq!((&view["view"], &view["left"]), (&json!(2), &json!([victim + 1])));
        }
        let outputs = outputs(members);
        let first = &outputs[0];
        assert!(outputs[1] == *first, "the outputs differ");
        assert_eq!(first.len(), "before\n".len() * 3 + 2 * (more.len() + 1));
        killed.done();
    }
}

#[test]
fn a_joiner_gets_all_messages_from_its_view_on() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, "later", 2, &["--with-origin"]);
    members[0].send(b"before\n");
    members.iter_mut().for_each(|member| drop(member.lines(1)));
    let mut late = Running::start(
        scratch.spindle(["member", "later", "--json", "--with-origin", "--id", "7"]).stdin(Stdio::piped()),
    );
    let joined = late.view(&[1, 2, 7]);
    assert_eq!((&joined["event"], &joined["view"], &joined["rank"]), (&json!("joined"), &json!(2), &json!(2)));
    for member in &mut members {
        assert_eq!(member.view(&[1, 2, 7])["joined"], json!([7]));
    }
    members.push(late);
    let texts: Vec<_> = (0..3).map(|seed| text(seed, 1 << 18)).collect();
    members.iter_mut().zip(&texts).for_each(|(member, text)| member.send(text));
    let outputs = outputs(members);
    let line = outputs[0].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert_eq!(&outputs[0][..line], b"1:1:0 before\n");
    assert!(outputs[0] == outputs[1] && outputs[0][line..] == outputs[2], "the outputs differ");
    assert!(origins(&outputs[2]).iter().all(|(view, ..)| *view == 2));
}

#[test]
fn a_member_that_hangs_is_evicted_and_ends_with_status_3() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, "hang", 3, &["--suspect-after", "0.3"]);
    let hung = members.pop().unwrap();
    hung.stop();
    members[0].send(b"waits for it\n");
    for member in &mut members {
        assert_eq!(member.view(&[1, 2])["left"], json!([3]));
        member.send(b"without it\n");
        member.lines(2);
    }
    hung.signal(Signal::CONT);
    let mut hung = hung;
    let error = hung.event("error");
    assert!(error["message"].as_str().unwrap().contains("evicted this member (id 3)"), "{error}");
    hung.done().expect(3);
    let outputs = outputs(members);
    assert!(outputs[0] == outputs[1] && outputs[0] == b"waits for it\nwithout it\nwithout it\n");
}

#[test]
fn the_survivor_of_two_reports_that_it_is_blocked_and_when_it_is_not() {
    let scratch = Scratch::new();
    let mut members = started(&scratch, "two", 2, &["--suspect-after", "0.3"]);
    let hung = members.pop().unwrap();
    hung.stop();
    members[0].send(b"waits for it\n");
    assert_eq!(members[0].event("blocked"), json!({"event": "blocked", "view": 1, "blocked": true}));
    let status = Running::start(&mut scratch.spindle(["status", "two", "--json"])).done().expect(0);
    assert_eq!(status.objects()[0]["blocked"], true);
    // Only the end of the hung process is certain proof.
    hung.signal(Signal::KILL);
    members[0].view(&[1]);
    members[0].send(b"alone\n");
    members[0].lines(2);
    let done = members.remove(0).done().expect(0);
    let told = done.errors.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let told: Vec<_> = told.filter(|told| told["event"] == "blocked").map(|told| told["blocked"].clone()).collect();
    assert_eq!(told, [true, false]);
}

#[test]
fn an_evicted_member_that_may_joins_again_and_goes_on_with_its_input() {
    let scratch = Scratch::new();
    let words = ["--suspect-after", "0.3", "--rejoin", "--with-origin"];
    let mut members = started(&scratch, "again", 3, &words);
    members.iter_mut().for_each(|member| member.send(b"early\n"));
    members.iter_mut().for_each(|member| drop(member.lines(3)));
    members[1].stop();
    members[0].send(b"waits for it\n");
    members[0].view(&[1, 3]);
    members[0].send(b"in between\n");
    members[0].lines(5);
    members[1].signal(Signal::CONT);
    let evicted = members[1].event("evicted");
    assert_eq!((&evicted["sent"], &evicted["unconfirmed"]), (&json!(1), &json!(0)));
    // The member may have delivered the message for which the others waited, before it learned that
    // it was evicted.
    let missed = match evicted["delivered"].as_u64() {
        Some(3) => Some(b"waits for it".as_slice()),
        delivered => {
            assert_eq!(delivered, Some(4));
            None
        }
    };
    members[1].view(&[1, 3, 4]);
    members[1].send(b"late\n");
    members.iter_mut().for_each(|member| member.send(b"last\n"));
    let outputs = outputs(members);
    assert!(outputs[0] == outputs[2], "the outputs differ");
    let (first, again) = (origins(&outputs[0]), origins(&outputs[1]));
    let between: Vec<_> = first.iter().filter(|place| place.0 == 2).collect();
    assert_eq!(between, [&(2, 1, 0, b"in between".as_slice())]);
    // The member has seen everything except these messages.
    let is_seen = |place: &&(u64, u64, u64, &[u8])| place.0 != 2 && Some(place.3) != missed;
    assert!(again.iter().eq(first.iter().filter(is_seen)), "{again:?}");
    let own: Vec<_> = again.iter().filter(|place| place.1 == 4).map(|place| place.3).collect();
    assert_eq!(own, [b"late".as_slice(), b"last"]);
}

#[test]
fn a_founder_that_is_killed_while_it_waits_blocks_no_other() {
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
fn garbage_at_the_control_socket_has_no_effect() {
    let scratch = Scratch::new();
    let throw = |id: u64| {
        let address = SocketAddrUnix::new(scratch.runtime_dir().join(format!("garbage.{id}.sock"))).unwrap();
        let stranger = socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        for (seed, len) in [(1, 0), (2, 1), (3, 16), (4, 500), (5, 20_000)] {
            let bytes = Numbers(seed).bytes(len);
            // If the queue is full, the remaining messages don't matter.
            let _ = sendto(&stranger, &bytes, SendFlags::DONTWAIT, &address);
            let _ = sendto(&stranger, &[b"spndmail".as_slice(), &bytes].concat(), SendFlags::DONTWAIT, &address);
        }
    };
    let mut first = Running::start(scratch.member("garbage", 2).stdin(Stdio::piped()));
    first.event("waiting");
    throw(1);
    let mut second = Running::start(scratch.member("garbage", 2).stdin(Stdio::piped()));
    second.event("joined");
    throw(1);
    throw(2);
    first.send(b"one\n");
    second.send(b"two\n");
    assert_eq!(first.lines(2), second.lines(2));
    outputs(vec![first, second]);
}

#[test]
fn ctrl_c_stops_a_member_that_waits_and_one_that_runs_leaves() {
    let scratch = Scratch::new();
    let mut waiting = Running::start(&mut scratch.member("stop", 2));
    waiting.event("waiting");
    waiting.signal(Signal::INT);
    let error = waiting.done().expect(130).stop();
    assert!(error.contains("1 of 2 members are here"), "{error}");
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let [mut one, mut two] = <[Running; 2]>::try_from(started(&scratch, "stop", 2, &[])).unwrap();
        one.send(b"my last words\n");
        one.lines(1);
        one.signal(signal);
        one.event("stopped");
        let error = one.done().expect(status).stop();
        assert!(error.contains("left the group in order; 1 message was sent and 1 delivered"), "{error}");
        assert_eq!(two.view(&[2])["left"], json!([1]));
        two.send(b"alone\n");
        assert_eq!(two.lines(2), ["my last words", "alone"]);
        two.done().expect(0);
    }
}

#[test]
fn a_member_that_stops_while_it_sends_loses_nothing_that_it_says_it_sent() {
    let scratch = Scratch::new();
    let lines = (0..3_000_000).map(|i| format!("{i}\n")).collect::<String>();
    let file = scratch.file("in", lines.as_bytes());
    let mut other = Running::start(scratch.member("busy", 2).args(["--id", "2"]).stdin(Stdio::piped()));
    let mut busy = Running::start(scratch.member("busy", 2).args(["--id", "1", "--input"]).arg(&file));
    busy.lines(1);
    busy.signal(Signal::INT);
    let busy = busy.done().expect(130);
    let error = busy.stop();
    assert!(error.contains("left the group in order"), "{error}");
    let sent = busy.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert!(error.contains(&format!("; {sent} messages were sent and {sent} delivered")), "{error}");
    other.view(&[2]);
    assert!(other.done().expect(0).stdout == busy.stdout && lines.as_bytes().starts_with(&busy.stdout));
}

#[test]
fn the_wait_ends_in_time_if_no_process_comes() {
    let scratch = Scratch::new();
    let done = Running::start(scratch.member("alone", 2).args(["--gather-timeout", "1"])).done().expect(1);
    assert!(done.error().contains("1 of 2 members are here"), "{}", done.error());
}

#[test]
fn a_member_whose_output_takes_no_more_gives_up_and_the_others_go_on() {
    let scratch = Scratch::new();
    let file = scratch.file("in", &text(9, 1 << 20));
    let start = |group: &str| Running::start(scratch.member(group, 2).args(["--id", "2"]).stdin(Stdio::piped()));
    let goes_on = |mut other: Running| {
        assert_eq!(other.view(&[2])["left"], json!([1]));
        other.send(b"still here\n");
        assert!(other.done().expect(0).stdout.ends_with(b"still here\n"));
    };
    let mut command = scratch.member("full", 2);
    let full = Running::start(command.args(["--output", "/dev/full", "--id", "1", "--input"]).arg(&file));
    let other = start("full");
    let error = full.done().expect(1).error();
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
    goes_on(other);

    let mut command = scratch.member("closed", 2);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = Running::listening(command.args(["--id", "1", "--input"]).arg(&file).stdout(writer), false);
    let other = start("closed");
    drop(command);
    let error = closed.done().expect(141).error();
    assert!(error.contains("the standard output") && error.contains("Broken pipe"), "{error}");
    goes_on(other);
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

#[test]
fn an_orderly_stop_is_no_error_and_nohup_is_heeded() {
    let scratch = Scratch::new();
    let mut command = scratch.spindle(["member", "plain"]);
    let mut member = Running::start(command.stdin(Stdio::piped()));
    member.says("view 1");
    member.signal(Signal::INT);
    // The end of the input is an orderly end, too, and may be noticed first.
    member.says("stopped by signal");
    let errors = member.done().expect(130).errors;
    assert_eq!(
        errors.last().unwrap(),
        "stopped by signal 2 and left the group in order; 0 messages were sent and 0 delivered"
    );

    let binary = scratch.spindle(["member"]).get_program().to_os_string();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" member nohup"]).arg(binary);
    command.env("SPINDLE_RUNTIME_DIR", scratch.runtime_dir()).stdin(Stdio::piped());
    let mut member = Running::start(&mut command);
    member.says("view 1");
    member.signal(Signal::HUP);
    member.send(b"still here\n");
    member.lines(1);
    assert_eq!(member.done().expect(0).stdout, b"still here\n");
}

#[test]
fn a_closed_standard_output_ends_the_command_quietly() {
    let scratch = Scratch::new();
    for words in [&["config", "explain"][..], &["man"], &["completions", "bash"], &["sim", "--seeds", "1"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = scratch.spindle(words);
        let done = Running::listening(command.stdout(writer), false).done().expect(141);
        let errors = done.errors.iter().filter(|line| !line.starts_with("warning: "));
        assert_eq!(errors.count(), 0, "{words:?}: {:?}", done.errors);
    }
}

#[test]
fn the_files_of_killed_groups_are_removed_by_the_next_group() {
    let scratch = Scratch::new();
    let files = || {
        let names = scratch.runtime_dir().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let start = |group: &str| {
        let mut member = Running::start(scratch.member(group, 1).stdin(Stdio::piped()));
        member.event("joined");
        member
    };
    let mut alive = start("alive");
    for i in 0..3 {
        let killed = start(&format!("killed-{i}"));
        killed.signal(Signal::KILL);
        let _ = killed.done();
        assert!(files().len() <= 6, "{:?}", files());
    }
    start("last").done().expect(0);
    assert_eq!(files(), ["alive.1.live", "alive.1.sock", "alive.lock"]);
    alive.send(b"still here\n");
    alive.done().expect(0);
    assert_eq!(files().len(), 0);
}
