//! Completions and manual pages, which are made from the parser.
mod common;

use common::{Running, Scratch};

#[test]
fn completions_and_manual_name_the_commands() {
    let scratch = Scratch::new();
    let out = |words: &[&str]| {
        String::from_utf8(Running::start(&mut scratch.spindle(words)).done().expect(0).stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = out(&["completions", shell]);
        assert!(script.contains("member") && script.contains("gather-timeout"), "{shell}");
        assert!(!script.is_empty());
    }
    let manual = out(&["man"]);
    for word in [".TH", "spindle\\-member", "spindle\\-evict", "gather\\-timeout", "suspect\\-after", "subgroups"] {
        assert!(manual.contains(word), "the manual lacks {word:?}");
    }
    assert!(!manual.contains("demo\\-member"), "what is hidden has no page");
    let dir = scratch.path("pages");
    std::fs::create_dir(&dir).unwrap();
    out(&["man", "--dir", dir.to_str().unwrap()]);
    assert!(dir.join("spindle.1").exists() && dir.join("spindle-demo.1").exists());
    assert!(out(&["--version"]).contains("rendezvous protocol"));
}
