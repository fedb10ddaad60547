//! `spindle idl`.
mod common;

use common::{Done, Running, Scratch};
use serde_json::{Value, json};

const SENSOR: &str = "module sensor {\n  struct Reading { @key long sensorId; };\n};\n";

fn run(scratch: &Scratch, words: &[&str], code: i32) -> Done {
    let mut command = scratch.spindle([&["idl"], words].concat());
    Running::start(command.current_dir(scratch.path(""))).done().expect(code)
}

#[test]
fn rust_is_printed_or_written_and_checked() {
    let scratch = Scratch::new();
    scratch.file("sensor.idl", SENSOR.as_bytes());
    let printed = String::from_utf8(run(&scratch, &["sensor.idl"], 0).stdout).unwrap();
    assert!(printed.contains("#[dds(name = \"sensor::Reading\", final, plain)]"), "{printed}");
    assert!(run(&scratch, &["sensor.idl", "-o", "sensor.rs"], 0).stdout.is_empty());
    assert_eq!(std::fs::read_to_string(scratch.path("sensor.rs")).unwrap(), printed);
    run(&scratch, &["sensor.idl", "-o", "sensor.rs", "--check"], 0);
    let other = ["sensor.idl", "-o", "sensor.rs", "--check", "--default-extensibility", "mutable"];
    let error = run(&scratch, &other, 1).errors.join("\n");
    assert!(error.contains("sensor.rs differs from the IDL; run again without --check"), "{error}");
    assert!(run(&scratch, &["sensor.idl", "--check"], 0).stdout.is_empty());
}

#[test]
fn includes_and_macros_come_from_the_arguments() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("inc")).unwrap();
    scratch.file("inc/sensor.idl", SENSOR.as_bytes());
    scratch.file("a.idl", b"#include <sensor.idl>\nstruct A { sensor::Reading all[COUNT]; };\n");
    let done = run(&scratch, &["a.idl", "-I", "inc", "-DCOUNT=3", "--json"], 0);
    let object: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(object["files"], json!(["a.idl", "inc/sensor.idl"]));
    assert!(object["rust"].as_str().unwrap().contains("pub all: [sensor::Reading; 3],"), "{object}");
    assert_eq!((&object["ok"], &object["errors"]), (&json!(true), &json!([])));
}

#[test]
fn errors_have_their_places() {
    let scratch = Scratch::new();
    scratch.file("a.idl", b"struct A {\n  lng x; //@key\n};\n");
    let done = run(&scratch, &["a.idl"], 1);
    assert_eq!(
        done.errors.join("\n"),
        "warning: a.idl:2:10: the comment `//@key` has no effect; write the annotation `@key` before the member\n      \
         lng x; //@key\n             ^^^^^^\n\
         error: a.idl:2:3: unknown name `lng`; define it before its use, or include the file that has it\n      \
         lng x; //@key\n      ^^^\n\
         error: the IDL can't be compiled: 1 error; nothing is written"
    );
    let object: Value = serde_json::from_slice(&run(&scratch, &["a.idl", "--json"], 1).stdout).unwrap();
    let error = &object["errors"][0];
    assert_eq!((&error["line"], &error["column"], &error["text"]), (&json!(2), &json!(3), &json!("  lng x; //@key")));
    assert_eq!((&object["ok"], &object["rust"]), (&json!(false), &Value::Null));
    let missing = run(&scratch, &["missing.idl"], 1).errors.join("\n");
    assert!(missing.starts_with("error: missing.idl: can't read the file: No such file"), "{missing}");
    run(&scratch, &["a.idl", "--default-extensibility", "open"], 2);
}
