//! Names that are so close that one is probably a mistake.
use super::reason::{Mismatch, PartitionHint};
use crate::policy::PartitionQosPolicy;

/// The longest names, in characters, that are compared by character.
const NAME_MAX: usize = 256;

/// Returns the reason why endpoints of two topics don't meet, if the names of the topics differ by case,
/// by surrounding white space, by a leading `rt/` or `/`, or by one character.
pub fn near_miss(writer_topic: &str, reader_topic: &str) -> Option<Mismatch> {
    let (writer, reader) = (writer_topic.to_owned(), reader_topic.to_owned());
    is_close(writer_topic, reader_topic).then_some(Mismatch::Topic { writer, reader, close: true })
}

/// Returns whether two different names are probably meant to be one.
pub(super) fn is_close(left: &str, right: &str) -> bool {
    left != right && (plain(left) == plain(right) || differs_by_one(left, right))
}

/// Returns a name without what is easily got wrong.
fn plain(name: &str) -> String {
    let name = name.trim();
    let name = name.strip_prefix("rt/").unwrap_or(name).trim_start_matches('/');
    name.chars().filter(|char| !matches!(char, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Returns whether one character is added, missing, changed, or swapped with the next one. Names of fewer
/// than four characters differ by one on purpose too often.
fn differs_by_one(left: &str, right: &str) -> bool {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let (short, long) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    if short.len() < 4 || long.len() > NAME_MAX || long.len() - short.len() > 1 {
        return false;
    }
    let same = short.iter().zip(&long).take_while(|(left, right)| left == right).count();
    if short.len() < long.len() {
        return short[same..] == long[same + 1..];
    }
    // Digits count things: "lidar1" and "lidar2" are both meant.
    if same < short.len() && short[same].is_numeric() && long[same].is_numeric() {
        return false;
    }
    let swapped = same + 1 < short.len() && short[same] == long[same + 1] && short[same + 1] == long[same];
    short[same + 1..] == long[same + 1..] || swapped && short[same + 2..] == long[same + 2..]
}

/// Finds the probable mistake in the partitions of a writer and a reader that don't match.
pub(super) fn partition(writer: &PartitionQosPolicy, reader: &PartitionQosPolicy) -> PartitionHint {
    for own in writer.names() {
        if let Some(other) = reader.names().find(|other| is_close(own, other)) {
            return PartitionHint::Close { writer: own.to_owned(), reader: other.to_owned() };
        }
    }
    if writer.names().eq([""]) {
        return PartitionHint::Default { side: "writer" };
    }
    if reader.names().eq([""]) {
        return PartitionHint::Default { side: "reader" };
    }
    let patterns = |policy: &PartitionQosPolicy| policy.names().all(|name| name.contains(['*', '?', '[']));
    if patterns(writer) && patterns(reader) { PartitionHint::Patterns } else { PartitionHint::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_found() {
        for (left, right) in [
            ("Square", "square"),
            ("rt/chatter", "/chatter"),
            ("robot_state", "robotstate"),
            ("Square ", "Square"),
            ("Sqare", "Square"),
            ("Squrae", "Square"),
            ("Squart", "Square"),
        ] {
            assert!(is_close(left, right) && is_close(right, left), "{left} {right}");
        }
        for (left, right) in [("Square", "Square"), ("Square", "Circle"), ("a", "b"), ("lidar1", "lidar2"), ("", "a")] {
            assert!(!is_close(left, right), "{left} {right}");
        }
        let expected = "topic: the writer has 'Square', the reader 'square'; one is probably mistyped";
        assert_eq!(near_miss("Square", "square").unwrap().to_string(), expected);
        assert_eq!(near_miss("Square", "Circle"), None);
    }
}
