//! Writes an example file with every key.
use super::keys::{KEYS, Key, TABLES};

/// The width at which comments are wrapped.
const WIDTH: usize = 100;

/// Returns a file with every key and its meaning. Keys that have a default are set to it; the
/// others are comments.
pub fn example() -> String {
    let mut text = String::new();
    comment(&mut text, "Settings of a member of a Spindle group. Every key may be left out.");
    comment(
        &mut text,
        "What a variable of the environment says counts more than what stands here, and what a flag says, more than that.",
    );
    let mut table = "";
    for key in KEYS {
        if key.table() != table {
            table = key.table();
            let about = TABLES.iter().find(|(name, _)| *name == table).map_or("", |(_, about)| about);
            text.push('\n');
            comment(&mut text, about);
            text.push_str(&if table == "subgroup" { "[[subgroup]]\n".to_string() } else { format!("[{table}]\n") });
        }
        entry(&mut text, key);
    }
    text
}

fn entry(text: &mut String, key: &Key) {
    text.push('\n');
    comment(text, &format!("{}.", key.about));
    let standard = if key.standard.is_empty() { "none" } else { key.standard };
    let variable = key.variable().map(|name| format!("; ${name}")).unwrap_or_default();
    comment(text, &format!("Allowed is {}. Default: {standard}{variable}", key.allowed()));
    // A key without such a default is a choice, which a user should not make by copying.
    let is_set = key.example.trim_matches('"') == key.standard || key.path == "group.name";
    let mark = if is_set { "" } else { "#" };
    text.push_str(&format!("{mark}{} = {}\n", key.leaf(), key.example));
}

/// Adds lines that begin with `# `.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split(' ') {
        if line.len() + word.len() >= WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
