//! Reads TOML into the tree.
use super::error::{ERRORS_MAX, ProfileProblem, shorten};
use super::text::SourceText;
use super::tree::{Item, Raw};
use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

/// Reads the root table. It is as complete as the text allows.
pub(super) fn parse(source: &mut SourceText<'_>) -> Item {
    let (root, errors) = DeTable::parse_recoverable(source.text);
    for error in errors.into_iter().take(ERRORS_MAX) {
        let place = source.place(error.span().unwrap_or(0..0).start);
        let message = format!("not well-formed TOML: {}", shorten(&error.message().trim().replace('\n', "; ")));
        source.wrong(place, "", ProfileProblem::Syntax(message));
    }
    Item { name: String::new(), at: 0, value_at: 0, is_attribute: false, raw: table(root.get_ref()) }
}

fn table(table: &DeTable<'_>) -> Raw {
    let item = |name: &str, at, value: &Spanned<DeValue<'_>>| Item {
        name: name.to_owned(),
        at,
        value_at: value.span().start,
        is_attribute: false,
        raw: raw(value.get_ref()),
    };
    Raw::Table(table.iter().map(|(key, value)| item(key.get_ref(), key.span().start, value)).collect())
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(digits) => {
            Raw::Integer(i128::from_str_radix(digits.as_str(), digits.radix()).ok(), shorten(&digits.to_string()))
        }
        DeValue::Boolean(on) => Raw::Bool(*on),
        DeValue::Float(digits) => Raw::Other(shorten(&digits.to_string())),
        DeValue::Datetime(_) => Raw::Other("a date".to_owned()),
        DeValue::Table(inner) => table(inner),
        DeValue::Array(items) => {
            let item = |item: &Spanned<DeValue<'_>>| Item {
                name: "element".to_owned(),
                at: item.span().start,
                value_at: item.span().start,
                is_attribute: false,
                raw: raw(item.get_ref()),
            };
            Raw::List(items.iter().map(item).collect())
        }
    }
}
