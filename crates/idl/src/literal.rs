//! The values of literals.
use crate::fault::IdlFault;
use crate::grammar::Rule;
use crate::syntax::Literal;
use pest::iterators::Pair;

/// Returns the value of a literal.
///
/// # Errors
/// `Literal` if it has no value; `Unsupported` for fixed-point numbers.
pub(crate) fn literal(node: &Pair<'_, Rule>) -> Result<Literal, IdlFault> {
    let text = node.as_str();
    Ok(match node.as_rule() {
        Rule::integer => Literal::Integer(integer(text)?),
        Rule::float_literal => match text.parse() {
            Ok(value) if f64::is_finite(value) => Literal::Float(value),
            _ => return Err(wrong(text, "number", "a double has at most about 1.8e308")),
        },
        Rule::boolean => Literal::Boolean(text == "TRUE"),
        Rule::fixed_literal => {
            let remedy = "write it without `d`";
            return Err(IdlFault::Unsupported { what: format!("the fixed-point literal `{text}`"), remedy });
        }
        Rule::character => match single(text)? {
            code @ 0..=0xff => Literal::Character(code as u8),
            _ => return Err(wrong(text, "character of 8 bits", "write `L` before it, and use `wchar`")),
        },
        Rule::wide_character => match single(&text[1..])? {
            code @ 0..=0xffff => Literal::WideCharacter(code as u16),
            _ => return Err(wrong(text, "character of 16 bits", "use a `wstring`")),
        },
        Rule::text => Literal::Text(joined(node, 1)?),
        _ => Literal::WideText(joined(node, 2)?),
    })
}

fn wrong(text: &str, kind: &'static str, remedy: &'static str) -> IdlFault {
    IdlFault::Literal { text: text.to_owned(), kind, remedy }
}

fn integer(text: &str) -> Result<i128, IdlFault> {
    let parsed = match (text.strip_prefix("0x").or(text.strip_prefix("0X")), text.strip_prefix('0')) {
        (Some(digits), _) => i128::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => i128::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    let is_small = |value: &i128| *value <= u64::MAX.into();
    parsed
        .ok()
        .filter(is_small)
        .ok_or_else(|| wrong(text, "integer", "integers have at most 64 bits, and digits up to 7 behind a leading 0"))
}

/// Returns the code of a character in quotes.
fn single(text: &str) -> Result<u32, IdlFault> {
    let inner = &text[1..text.len() - 1];
    let codes = unescape(inner, text)?;
    match codes.as_slice() {
        [code] => Ok(*code),
        _ => Err(wrong(text, "single character", "use double quotes for text")),
    }
}

/// Returns the text of literals that follow each other, each of which starts with `skip` bytes.
fn joined(node: &Pair<'_, Rule>, skip: usize) -> Result<String, IdlFault> {
    let mut all = String::new();
    for part in node.clone().into_inner() {
        let text = part.as_str();
        for code in unescape(&text[skip..text.len() - 1], text)? {
            match char::from_u32(code) {
                Some('\0') | None => {
                    return Err(wrong(text, "valid text", "remove the character 0, and codes without a character"));
                }
                Some(c) => all.push(c),
            }
        }
    }
    Ok(all)
}

/// Returns the characters of a text whose escapes are replaced.
fn unescape(inner: &str, whole: &str) -> Result<Vec<u32>, IdlFault> {
    let mut codes = Vec::new();
    let mut rest = inner.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\\' {
            codes.push(c.into());
            continue;
        }
        let Some(escape) = rest.next() else { break };
        let mut digits = |radix: u32, max: usize, first: Option<char>| {
            let mut text: String = first.into_iter().collect();
            while text.len() < max {
                let Some(c) = rest.next_if(|c| c.is_digit(radix)) else { break };
                text.push(c);
            }
            u32::from_str_radix(&text, radix).ok()
        };
        let code = match escape {
            'n' => Some(0x0a),
            't' => Some(0x09),
            'v' => Some(0x0b),
            'b' => Some(0x08),
            'r' => Some(0x0d),
            'f' => Some(0x0c),
            'a' => Some(0x07),
            '\\' | '?' | '\'' | '"' => Some(escape.into()),
            'x' => digits(16, 2, None),
            'u' => digits(16, 4, None),
            '0'..='7' => digits(8, 3, Some(escape)),
            _ => None,
        };
        codes.push(
            code.ok_or_else(|| wrong(whole, "valid text", "there is no such escape; write `\\\\` for a backslash"))?,
        );
    }
    Ok(codes)
}
