//! The code on the guide's pages is code of the examples.
use std::fs;
use std::path::Path;

/// Checks that every Rust block of a page is a run of lines of this program.
fn compare(page: &str, program: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/guide").join(page)).unwrap();
    let program = fs::read_to_string(root.join("src/bin").join(program)).unwrap();
    let blocks: Vec<_> = page.split("```rust,ignore\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "the page shows no code");
    for block in blocks {
        assert!(format!("\n{program}").contains(&format!("\n{block}")), "not in the program:\n{block}");
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
fn typed_messages_are_shown_as_they_are() {
    compare("typed-messages.md", "typed_messages.rs");
}

#[test]
fn the_service_on_tokio_is_shown_as_it_is() {
    compare("tokio.md", "tokio_service.rs");
}
