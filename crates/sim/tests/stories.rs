//! Plays the stories in `stories/`, and compares their traces. `cargo xtask stories --bless` writes
//! the traces anew.
use spindle_sim::processes::story;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// If it is set, the traces are written and not compared.
const BLESS: &str = "SPINDLE_BLESS_STORIES";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the stories by name, with their texts.
fn stories() -> BTreeMap<String, String> {
    let entries = fs::read_dir(root().join(FOLDER)).expect("the folder of stories").map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "story"));
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

const FOLDER: &str = "crates/sim/tests/stories";

#[test]
fn each_story_has_the_trace_that_it_shows() {
    let is_blessing = std::env::var_os(BLESS).is_some();
    let mut failures = vec![];
    for (name, text) in stories() {
        match story::tell(&text) {
            Ok(told) if told == text => {}
            Ok(told) if is_blessing => fs::write(root().join(FOLDER).join(&name), told).unwrap(),
            Ok(told) => failures.push(format!("{name}: the trace differs:\n{}", difference(&text, &told))),
            Err(why) => failures.push(format!("{name}: {why}")),
        }
    }
    assert!(
        failures.is_empty(),
        "{}\n`cargo xtask stories --bless` writes the traces; read the difference first",
        failures.join("\n")
    );
}

/// Returns the lines that only one of two texts has, `-` for the old one and `+` for the new one,
/// each group behind the line before it. The lines that both share are a longest common sequence.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut shown, mut is_shared) = (0, 0, String::new(), true);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j, is_shared) = (i + 1, j + 1, true);
            continue;
        }
        if is_shared && i > 0 {
            shown += &format!("  line {i}: {}\n", old[i - 1]);
        }
        is_shared = false;
        if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            shown += &format!("- {}\n", old[i]);
            i += 1;
        } else {
            shown += &format!("+ {}\n", new[j]);
            j += 1;
        }
    }
    shown
}

#[test]
fn a_difference_names_the_lines_that_only_one_text_has() {
    assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n"), "  line 1: a\n- b\n+ x\n");
    assert_eq!(difference("a\n", "a\nb\n"), "  line 1: a\n+ b\n");
    assert_eq!(difference("a\n", "a\n"), "");
}

/// Returns the stories that the pages of a folder link.
fn linked(folder: &str) -> BTreeSet<String> {
    let pages = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut found = BTreeSet::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.ends_with(".story") {
                let target = page.parent().unwrap().join(link);
                assert!(target.is_file(), "{} links {link}, which does not exist", page.display());
                found.insert(target.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn each_story_has_a_title_and_is_linked_from_a_page_of_the_protocol_and_from_the_list_of_stories() {
    let (protocol, testing) = (linked("docs/protocol"), linked("docs/testing"));
    for (name, text) in stories() {
        assert!(protocol.contains(&name), "no page of docs/protocol links {name}");
        assert!(testing.contains(&name), "docs/testing/stories.md does not link {name}");
        let prose: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(prose.len() >= 3 && prose[1] == "#", "{name} does not begin with a title, `#` and some sentences");
        assert!(prose.iter().any(|line| line.contains("nvariant")), "{name} names no invariant");
    }
}
