//! Settings, as processes read them: a file, the environment, flags.
mod common;

use common::{Done, Running, Scratch};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

const FILE: &str = "[group]\nname = \"told\"\nfounders = 2\n\n\
                    [[subgroup]]\nname = \"ticks\"\nsenders = \"first 1\"\nwindow = 8\n\n\
                    [[subgroup]]\nname = \"orders\"\nmessage_bytes_max = \"1KiB\"\n";

fn done(command: &mut Command) -> Done {
    Running::start(command).done()
}

fn text(done: &Done) -> String {
    String::from_utf8(done.stdout.clone()).unwrap()
}

#[test]
fn the_default_directory_is_that_of_the_library() {
    let scratch = Scratch::new();
    let mut explain = scratch.spindle(["config", "explain", "runtime_dir"]);
    let told =
        text(&done(explain.env_remove("SPINDLE_RUNTIME_DIR").env("XDG_RUNTIME_DIR", scratch.path("xdg"))).expect(0));
    let dir = spindle_transport::rendezvous::RuntimeDir::default_path();
    assert!(told.starts_with(&format!("runtime_dir = {}\nfrom      default\n", dir.display())), "{told}");
}

#[test]
fn the_example_passes_the_check() {
    let scratch = Scratch::new();
    let example = done(&mut scratch.spindle(["config", "example"])).expect(0);
    assert!(text(&example).contains("\n[group]\n"));
    let file = scratch.file("example.toml", &example.stdout);
    let checked = done(scratch.spindle(["config", "check"]).arg(&file)).expect(0);
    assert_eq!(text(&checked), format!("{} can be used\n", file.display()));
}

#[test]
fn a_check_tells_all_that_is_wrong_and_its_status_says_so() {
    let scratch = Scratch::new();
    let wrong = "[group]\nfuonders = 3\nsuspect_after = \"5 parsecs\"\n[network]\nseeds = [\"a:1\"]\n";
    let file = scratch.file("wrong.toml", wrong.as_bytes());
    let checked = done(scratch.spindle(["config", "check"]).arg(&file)).expect(2);
    let (told, name) = (text(&checked), file.display().to_string());
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    assert_eq!(lines[0], format!("{name}:2:1: unknown key \"fuonders\" in [group]; did you mean founders?"));
    assert!(lines[1].starts_with(&format!("{name}:3:17: group.suspect_after is \"5 parsecs\"")), "{told}");
    assert!(
        lines[2].contains("warning: group.name is not set")
            && lines[3].contains(": network.seeds is set, and network.listen is not"),
        "{told}"
    );
    assert_eq!(checked.errors, [format!("error: {name} can't be used: 3 errors")]);

    let checked = done(scratch.spindle(["config", "check", "--json"]).arg(&file)).expect(2);
    let object: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&object["ok"], object["problems"].as_array().unwrap().len()), (&json!(false), 4));
    let origin = json!({"kind": "file", "name": name, "line": 2, "column": 1});
    assert_eq!((&object["problems"][0]["origin"], &object["problems"][0]["level"]), (&origin, &json!("error")));
    assert_eq!(object["problems"][2]["origin"], json!({"kind": "default"}));

    let certificates = "[group]\nname = \"a\"\n[network.tls]\nca = \"ca.pem\"\ncert = \"c.pem\"\nkey = \"k.pem\"\n";
    let file = scratch.file("tls.toml", certificates.as_bytes());
    let checked = done(scratch.spindle(["config", "check"]).env("SPINDLE_CONFIG", &file)).expect(2);
    assert!(text(&checked).contains("tls.toml:4:6: network.tls.ca names "), "{}", text(&checked));
    scratch.file("racks.toml", b"[racks]\nrow-1 = [\"127.0.0.2\", \"10.0.0.1/8\"]\n");
    let racks = "[group]\nname = \"a\"\n[network]\nlisten = [\"127.0.0.2:0\"]\ntopology = \"racks.toml\"\n";
    let file = scratch.file("racked.toml", racks.as_bytes());
    let checked = done(scratch.spindle(["config", "check"]).arg(&file)).expect(2);
    let wrong = "racks.toml:2:23: \"10.0.0.1/8\" is an address in a network; did you mean \"10.0.0.0/8\"?";
    assert!(text(&checked).contains(wrong), "{}", text(&checked));
    scratch.file("racks.toml", b"[racks]\nrow-1 = [\"127.0.0.2\", \"10.0.0.0/8\"]\n");
    done(scratch.spindle(["config", "check"]).arg(&file)).expect(0);
    let explained = done(scratch.spindle(["config", "explain", "network.rack", "--config"]).arg(&file)).expect(0);
    assert!(text(&explained).starts_with("network.rack = row-1\nfrom "), "{}", text(&explained));
    assert!(text(&explained).contains("racks.toml:2\n"), "{}", text(&explained));
    let gone = done(&mut scratch.spindle(["config", "check", "no-such-file.toml"])).expect(2);
    assert!(gone.errors[0].contains("can't read no-such-file.toml"), "{:?}", gone.errors);
}

#[test]
fn explain_says_who_said_what() {
    let scratch = Scratch::new();
    let file = scratch.file("told.toml", FILE.as_bytes());
    let explain = |words: &[&str]| {
        let mut command = scratch.spindle(["config", "explain"]);
        command.args(words).env("SPINDLE_CONFIG", &file).env("SPINDLE_SUBGROUP_TICKS_WINDOW", "9");
        done(command.args(["--set", "group.founders=5"])).expect(0)
    };
    let told: Value = serde_json::from_slice(&explain(&["--json"]).stdout).unwrap();
    let of = |key: &str| told["values"].as_array().unwrap().iter().find(|value| value["key"] == key).unwrap().clone();
    let name = file.display().to_string();
    let members = of("group.founders");
    assert_eq!((&members["value"], &members["origin"]), (&json!(5), &json!({"kind": "flag", "name": "--set"})));
    assert_eq!(
        members["hidden"][0],
        json!({"value": 2, "origin": {"kind": "file", "name": name, "line": 3, "column": 12}})
    );
    assert_eq!((&members["variable"], &members["flag"]), (&json!("SPINDLE_GROUP_FOUNDERS"), &json!("--founders")));
    let window = of("subgroup.ticks.window");
    let origin = json!({"kind": "variable", "name": "SPINDLE_SUBGROUP_TICKS_WINDOW"});
    assert_eq!((&window["value"], &window["origin"]), (&json!(9), &origin));
    assert_eq!(of("runtime_dir")["origin"], json!({"kind": "variable", "name": "SPINDLE_RUNTIME_DIR"}));
    assert_eq!((&of("member.id")["value"], &of("group.suspect_after")["value"]), (&Value::Null, &json!("1s")));
    assert_eq!(of("subgroup.orders.window")["value"], 100 * (10_000 + 16) / (1024 + 16));

    let table = text(&explain(&[]));
    let line = table.lines().find(|line| line.starts_with("subgroup.ticks.window ")).unwrap();
    assert!(line.contains(" 9 ") && line.contains("variable SPINDLE_SUBGROUP_TICKS_WINDOW  Messages of"), "{line}");
    let page = text(&explain(&["group.founders"]));
    for part in ["group.founders = 5\n", "flag --set\n", &format!("2 ({name}:3)\n"), "from 1 to 1024\n"] {
        assert!(page.contains(part), "{page} lacks {part:?}");
    }
    assert_eq!(text(&explain(&["network"])).lines().count(), 17);
    assert_eq!(text(&explain(&["window"])).lines().count(), 3);
    let unknown = done(&mut scratch.spindle(["config", "explain", "windo"])).expect(2);
    assert!(unknown.errors[0].contains("no key \"windo\""), "{:?}", unknown.errors);
}

#[test]
fn members_of_one_file_form_its_group_and_talk_in_the_subgroup_that_is_named() {
    let scratch = Scratch::new();
    let file = scratch.file("told.toml", FILE.as_bytes());
    let member = |words: &[&str]| {
        let mut command = scratch.spindle(["member", "--json", "--config"]);
        command.arg(&file).args(words).stdin(Stdio::piped());
        Running::start(&mut command)
    };
    let (mut one, mut two) = (member(&["--id", "1"]), member(&["--id", "2"]));
    one.event("joined");
    // Only the first member sends in the first subgroup.
    assert_eq!(two.event("silent")["subgroup"], "ticks");
    one.send(b"tick\n");
    assert_eq!((one.lines(1), two.lines(1)), (vec!["tick".to_string()], vec!["tick".to_string()]));
    // A third member joins with settings from the variables, and sends in the other subgroup. The
    // first two receive its messages and don't print them.
    let mut command = scratch.spindle(["member", "--json", "--subgroup", "orders"]);
    let mut three = Running::start(command.env("SPINDLE_CONFIG", &file).stdin(Stdio::piped()));
    three.event("joined");
    let long = "x".repeat(1024);
    (0..3000).for_each(|_| three.send(format!("{long}\n").as_bytes()));
    assert_eq!(three.lines(3000)[2999], long);
    let status = done(scratch.spindle(["status", "--json"]).env("SPINDLE_GROUP_NAME", "told")).expect(0);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let names: Vec<&str> =
        status["subgroups"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!((names, status["members"].as_array().unwrap().len()), (vec!["ticks", "orders"], 3));
    let all = Running::all_done(vec![one, two, three]);
    let all: Vec<Done> = all.into_iter().map(|done| done.expect(0)).collect();
    assert!(all[0].stdout == b"tick\n" && all[1].stdout == b"tick\n");
    assert_eq!(all[2].event("finished")["delivered"], 3000);
}

#[test]
fn a_member_with_wrong_settings_says_what_is_wrong_with_them() {
    let scratch = Scratch::new();
    let file = scratch.file("x.toml", b"[group]\nname = \"x\"\nfounders = 0\n[member]\nid = \"one\"\n");
    let wrong = done(scratch.spindle(["member", "--config"]).arg(&file)).expect(2);
    assert_eq!(wrong.errors[0], "error: the settings are wrong:");
    assert!(
        wrong.errors[1].contains("x.toml:3:12: ") && wrong.errors[2].contains("x.toml:5:6: "),
        "{:?}",
        wrong.errors
    );
    let wrong =
        done(scratch.spindle(["member", "x", "--founders", "many", "--json"]).env("SPINDLE_GROUP", "x")).expect(2);
    let error = wrong.error();
    assert!(error.contains("flag --founders: group.founders is \"many\""), "{error}");
    assert!(error.contains("variable SPINDLE_GROUP: warning: no key has this variable"), "{error}");
    let wrong = done(&mut scratch.spindle(["member", "x", "--subgroup", "news"])).expect(2);
    assert!(wrong.errors[0].contains("no such subgroup, but all"), "{:?}", wrong.errors);
    for words in [["member"], ["status"], ["observe"]] {
        let wrong = done(&mut scratch.spindle(words)).expect(2);
        assert!(wrong.errors[0].contains("no group is named"), "{:?}", wrong.errors);
    }
    let warned = done(scratch.spindle(["member", "x", "--json"]).env("SPINDLE_GRUOP_FOUNDERS", "3")).expect(0);
    assert!(warned.event("warning")["message"].as_str().unwrap().contains("did you mean SPINDLE_GROUP_FOUNDERS?"));
}

#[test]
fn listening_beyond_this_host_requires_an_explicit_setting() {
    let scratch = Scratch::new();
    let refused = done(&mut scratch.spindle(["member", "x", "--listen", "0.0.0.0:0"])).expect(2);
    assert!(refused.errors[0].contains("network.insecure = true"), "{:?}", refused.errors);
    let refused = done(&mut scratch.spindle(["member", "x", "--listen", "0.0.0.0:0", "--insecure"])).expect(1);
    assert!(refused.errors[0].contains("advertise"), "{:?}", refused.errors);
}
