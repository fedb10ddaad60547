//! Errors of syntax in words.
use crate::error::Found;
use crate::fault::IdlFault;
use crate::grammar::Rule;
use crate::preprocess::Unit;
use crate::source::Sources;
use pest::error::{Error, ErrorVariant, InputLocation};

/// Returns an error of the parser with its place.
pub(crate) fn syntax_error(error: &Error<Rule>, unit: &Unit, sources: &Sources) -> Found<IdlFault> {
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    };
    let rest = unit.text.get(at..).unwrap_or_default();
    let at = at + rest.len() - rest.trim_start().len();
    let rest = rest.trim_start();
    let (found, place) = match rest.chars().next() {
        None => {
            let end = unit.text.trim_end().len();
            ("the end of the file".to_owned(), unit.place(sources, end.saturating_sub(1), end))
        }
        Some(first) => {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = match is_word(first) {
                true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                false => first.len_utf8(),
            };
            (format!("`{}`", &rest[..length]), unit.place(sources, at, at + length))
        }
    };
    let positives = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        ErrorVariant::CustomError { .. } => &[],
    };
    let mut words: Vec<&str> = positives.iter().map(|rule| word(*rule)).filter(|word| !word.is_empty()).collect();
    words.sort_unstable();
    words.dedup();
    let expected = match words.as_slice() {
        [] => "another token".to_owned(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} or {last}", before.join(", ")),
    };
    (place, IdlFault::Syntax { expected, found })
}

fn word(rule: Rule) -> &'static str {
    match rule {
        Rule::EOI | Rule::keylist | Rule::annotation_declaration | Rule::annotation_word => "",
        Rule::definition
        | Rule::module
        | Rule::structure
        | Rule::union
        | Rule::enumeration
        | Rule::bitmask
        | Rule::type_alias
        | Rule::constant
        | Rule::unsupported_definition
        | Rule::unsupported_word => "a definition",
        Rule::annotations | Rule::annotation => "an annotation",
        Rule::parameters => "`(`",
        Rule::named_parameter => "a parameter",
        Rule::structure_body => "`{`",
        Rule::union_body | Rule::kw_switch => "`switch`",
        Rule::base => "`:`",
        Rule::member => "a member",
        Rule::case | Rule::case_label => "a case",
        Rule::enumerators | Rule::enumerator => "a name",
        Rule::declarators | Rule::declarator | Rule::identifier | Rule::scoped_name | Rule::key_path => "a name",
        Rule::type_spec
        | Rule::sequence
        | Rule::string
        | Rule::wide_string
        | Rule::primitive
        | Rule::map
        | Rule::fixed
        | Rule::other_type
        | Rule::type_inside => "a type",
        Rule::expression | Rule::bound | Rule::term | Rule::literal | Rule::unary => "a value",
        Rule::operator | Rule::bound_operator => "an operator",
        Rule::scope => "`::`",
        Rule::dimension | Rule::open_bracket => "`[`",
        Rule::close_bracket => "`]`",
        Rule::open | Rule::balanced => "`{`",
        Rule::close => "`}`",
        Rule::open_paren => "`(`",
        Rule::close_paren => "`)`",
        Rule::less => "`<`",
        Rule::greater => "`>`",
        Rule::semicolon => "`;`",
        Rule::comma => "`,`",
        Rule::colon => "`:`",
        Rule::equals | Rule::assigned => "`=`",
        Rule::kw_case => "`case`",
        Rule::kw_default => "`default`",
        _ => "",
    }
}
