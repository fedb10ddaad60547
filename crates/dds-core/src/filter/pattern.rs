//! The patterns of LIKE and MATCH.

/// A pattern of LIKE.
///
/// The specification names no wildcards, and implementations differ. `%` and `*` stand for any
/// characters, `_` and `?` for one, and `\` makes the next character count as itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LikePattern(Vec<LikePart>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LikePart {
    Any,
    One,
    Char(char),
}

impl LikePattern {
    pub(super) fn new(text: &str) -> LikePattern {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            parts.push(match char {
                '%' | '*' => LikePart::Any,
                '_' | '?' => LikePart::One,
                '\\' => LikePart::Char(chars.next().unwrap_or('\\')),
                char => LikePart::Char(char),
            });
        }
        parts.dedup_by(|left, right| *left == LikePart::Any && *right == LikePart::Any);
        LikePattern(parts)
    }

    /// Returns whether the whole text fits. The work is at most the product of both lengths.
    pub(super) fn fits(&self, text: &str) -> bool {
        let (mut parts, mut rest) = (self.0.as_slice(), text.chars());
        // The parts after the last wildcard for any characters, and the text that they may match.
        let mut retry: Option<(&[LikePart], std::str::Chars<'_>)> = None;
        loop {
            if let Some((LikePart::Any, after)) = parts.split_first() {
                parts = after;
                retry = Some((after, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (parts.split_first(), ahead.next()) {
                (None, None) => return true,
                (Some((part, after)), Some(char)) if *part == LikePart::One || *part == LikePart::Char(char) => {
                    (parts, rest) = (after, ahead);
                }
                (Some(_), None) => return false,
                _ => {
                    let Some((after, from)) = retry.as_mut() else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (parts, rest) = (after, from.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_knows_both_kinds_of_wildcards() {
        for (pattern, text, fit) in [
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("a%", "abc", true),
            ("%c", "abc", true),
            ("*b*", "abc", true),
            ("a_c", "abc", true),
            ("a?c", "ac", false),
            ("a\\%", "a%", true),
            ("a\\%", "ab", false),
            ("%a%b%", "xxaxxbxx", true),
            ("%a%b", "ab-ab", true),
            ("%a%bc", "ab-ab", false),
            ("ä%", "äb", true),
        ] {
            assert_eq!(LikePattern::new(pattern).fits(text), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn a_long_pattern_takes_no_exponential_time() {
        let text = "a".repeat(2000);
        assert!(!LikePattern::new(&"%a".repeat(300).replace("%a", "%aa%")).fits(&text[..599]));
        assert!(!LikePattern::new(&format!("{}b", "%a".repeat(500))).fits(&text));
    }
}
