//! The code on the guide's pages is code of the examples.
use std::fs;
use std::path::Path;

/// Checks that every Rust block of a page is a run of lines of this program.
fn compare(page: &str, program: &str) {
    compare_blocks(page, "rust,ignore", &format!("src/bin/{program}"));
}

/// Checks that every block of this language on a page is a run of lines of this file.
fn compare_blocks(page: &str, language: &str, file: &str) {
    compare_with_any(page, language, &[file]);
}

/// Checks that every block of this language on a page is a run of lines of one of these files.
fn compare_with_any(page: &str, language: &str, files: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/guide").join(page)).unwrap();
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(root.join(file)).unwrap()).collect();
    let fence = format!("```{language}\n");
    let blocks: Vec<_> = page.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "the page shows no {language}");
    for block in blocks {
        let is_shown = texts.iter().any(|text| format!("\n{text}").contains(&format!("\n{block}")));
        assert!(is_shown, "not in {files:?}:\n{block}");
    }
}

#[test]
fn the_chat_is_shown_as_it_is() {
    compare("chat.md", "chat.rs");
}

#[test]
fn the_replicated_map_is_shown_as_it_is() {
    compare("replicated-map.md", "replicated_map.rs");
}

#[test]
fn the_service_that_rejoins_is_shown_as_it_is() {
    compare("rejoin.md", "rejoin.rs");
}

#[test]
fn the_three_hosts_and_their_settings_are_shown_as_they_are() {
    compare("three-hosts.md", "three_hosts.rs");
    compare_blocks("three-hosts.md", "toml", "three_hosts/member-1.toml");
}

#[test]
fn typed_messages_are_shown_as_they_are() {
    compare("typed-messages.md", "typed_messages.rs");
}

#[test]
fn the_service_on_tokio_is_shown_as_it_is() {
    compare("tokio.md", "tokio_service.rs");
}

#[test]
fn the_replicated_objects_are_shown_as_they_are() {
    let programs = ["src/bin/key_value.rs", "src/bin/bank_ledger.rs"];
    compare_with_any("replicated-objects.md", "rust,ignore", &programs);
}

#[test]
fn the_leader_with_a_lease_is_shown_as_it_is() {
    compare("leader-lease.md", "leader_lease.rs");
}

#[test]
fn the_queue_of_jobs_is_shown_as_it_is() {
    compare("work-queue.md", "work_queue.rs");
}

#[test]
fn the_standby_is_shown_as_it_is() {
    compare("standby.md", "standby.rs");
}
