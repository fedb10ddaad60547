//! The expressions of `#if` and `#elif`.
use super::macros::Macros;
use super::pieces::{is_word_character, pieces};
use crate::fault::IdlFault;
use crate::limits::CONDITIONS_MAX;

/// Evaluates the expression of `#if`. A word that is no macro is 0.
///
/// # Errors
/// `ConditionForm` if it is no expression; those of macros.
pub(super) fn holds(text: &str, macros: &mut Macros) -> Result<bool, IdlFault> {
    let text = text.trim();
    let expanded = macros.replace_all(&replace_defined(text, macros))?;
    let mut own = Condition { rest: &expanded, depth: 0 };
    match own.binary(0) {
        Some(value) if own.rest.trim().is_empty() => Ok(value != 0),
        _ => Err(IdlFault::ConditionForm { text: text.to_owned() }),
    }
}

/// Replaces `defined NAME` and `defined(NAME)` by 0 or 1.
fn replace_defined(text: &str, macros: &Macros) -> String {
    let (mut out, mut skip_to) = (String::new(), 0);
    for piece in pieces(text).filter(|piece| piece.is_word || !piece.text.is_empty()) {
        if piece.at < skip_to {
            continue;
        }
        if piece.is_word && piece.text == "defined" {
            let after = &text[piece.at + piece.text.len()..];
            if let Some((name, length)) = defined_name(after) {
                out.push_str(if macros.is_defined(name) { "1" } else { "0" });
                skip_to = piece.at + piece.text.len() + length;
                // A piece between words may have more than the closing bracket.
                let end = pieces(text).find(|piece| piece.at < skip_to && skip_to < piece.at + piece.text.len());
                if let Some(cut) = end {
                    out.push_str(&text[skip_to..cut.at + cut.text.len()]);
                    skip_to = cut.at + cut.text.len();
                }
                continue;
            }
        }
        out.push_str(piece.text);
    }
    out
}

/// Returns the name after `defined`, and the bytes up to its end.
fn defined_name(after: &str) -> Option<(&str, usize)> {
    let inner = after.trim_start();
    let (inner, is_bracketed) = match inner.strip_prefix('(') {
        Some(inner) => (inner.trim_start(), true),
        None => (inner, false),
    };
    let length = inner.find(|c| !is_word_character(c)).unwrap_or(inner.len());
    let (name, rest) = inner.split_at(length);
    let rest = if is_bracketed { rest.trim_start().strip_prefix(')')? } else { rest };
    (!name.is_empty()).then_some((name, after.len() - rest.len()))
}

struct Condition<'a> {
    rest: &'a str,
    depth: usize,
}

/// The operators, those that bind least first. Longer ones come before their beginnings.
const LEVELS: &[&[&str]] = &[&["||"], &["&&"], &["==", "!="], &["<=", ">=", "<", ">"], &["+", "-"]];

impl Condition<'_> {
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.trim_start().strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn binary(&mut self, level: usize) -> Option<i64> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.eat(operator)) {
            let right = self.binary(level + 1)?;
            left = match *operator {
                "||" => i64::from(left != 0 || right != 0),
                "&&" => i64::from(left != 0 && right != 0),
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<=" => i64::from(left <= right),
                ">=" => i64::from(left >= right),
                "<" => i64::from(left < right),
                ">" => i64::from(left > right),
                "+" => left.checked_add(right)?,
                _ => left.checked_sub(right)?,
            };
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > CONDITIONS_MAX {
            return None;
        }
        let value = if self.eat("!") {
            i64::from(self.unary()? == 0)
        } else if self.eat("-") {
            self.unary()?.checked_neg()?
        } else if self.eat("(") {
            let value = self.binary(0)?;
            if !self.eat(")") {
                return None;
            }
            value
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    fn number(&mut self) -> Option<i64> {
        let rest = self.rest.trim_start();
        let length = rest.find(|c| !is_word_character(c)).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(length);
        self.rest = rest;
        match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
            _ if word.is_empty() => None,
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None if word.starts_with(|c: char| c.is_ascii_digit()) => {
                word.trim_end_matches(['l', 'L', 'u', 'U']).parse().ok()
            }
            None => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_evaluated() {
        let mut macros = Macros::default();
        macros.define("A", "2").unwrap();
        macros.define("B", "(A + 0x10)").unwrap();
        for (text, value) in [
            ("1", true),
            ("0", false),
            ("defined(A) && !defined C", true),
            ("defined ( C ) || defined(A)&&0", false),
            ("B == 18", true),
            ("A >= 3 || -1 < 0", true),
            ("C", false),
            ("!(A != 2)", true),
        ] {
            assert_eq!(holds(text, &mut macros), Ok(value), "{text}");
        }
        for text in ["", "1 +", "(1", "a b", "1 1", &"(".repeat(1000), &"!".repeat(1000)] {
            assert!(matches!(holds(text, &mut macros), Err(IdlFault::ConditionForm { .. })), "{text}");
        }
    }
}
