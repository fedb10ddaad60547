//! The parser: makes the syntax tree of a unit.
//!
//! [`parse`] first bounds the nesting, since the generated parser is recursive. It reports one error
//! of syntax, or all constructs that are not supported.
use crate::error::Found;
use crate::expected::syntax_error;
use crate::fault::IdlFault;
use crate::grammar::{IdlParser, Rule};
use crate::limits::{NESTING_MAX, TERMS_MAX};
use crate::literal::literal;
use crate::preprocess::Unit;
use crate::source::{Place, Sources};
use crate::syntax::{
    Annotation, Case, Declarator, Definition, DefinitionKind, Enumerator, Expression, ExpressionKind, Literal, Member,
    Name, Primitive, ScopedName, TypeSpec, TypeSpecKind,
};
use pest::Parser;
use pest::iterators::Pair;
use std::hash::{DefaultHasher, Hash, Hasher};

type Node<'a> = Pair<'a, Rule>;

/// Parses a unit.
pub(crate) fn parse(unit: &Unit, sources: &Sources) -> Result<Vec<Definition>, Vec<Found<IdlFault>>> {
    if let Some(at) = too_deep(&unit.text) {
        return Err(vec![(unit.place(sources, at, at + 1), IdlFault::Nesting { limit: NESTING_MAX })]);
    }
    let mut parsed =
        IdlParser::parse(Rule::specification, &unit.text).map_err(|error| vec![syntax_error(&error, unit, sources)])?;
    let mut own = Builder { unit, sources, faults: Vec::new() };
    let definitions = match parsed.next() {
        Some(root) => own.definitions(root),
        None => Vec::new(),
    };
    if own.faults.is_empty() { Ok(definitions) } else { Err(own.faults) }
}

/// Returns the first byte that is nested too deeply.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut sequences, mut quote) = (0_usize, 0_usize, None);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == *byte => quote = None,
            (Some(_), b'\n') => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(*byte),
            (None, b'{' | b'(' | b'[') => depth += 1,
            (None, b'}' | b')' | b']') => depth = depth.saturating_sub(1),
            // A second `<` before or behind makes it a shift.
            (None, b'<') if bytes.get(at + 1) == Some(&b'<') => at += 1,
            (None, b'<') => sequences += 1,
            _ => {}
        }
        if quote.is_none() && matches!(byte, b';' | b'{' | b'}') {
            sequences = 0;
        }
        if depth > NESTING_MAX || sequences > NESTING_MAX {
            return Some(at);
        }
        at += 1;
    }
    None
}

struct Builder<'a> {
    unit: &'a Unit,
    sources: &'a Sources,
    faults: Vec<Found<IdlFault>>,
}

/// Returns the inner nodes that have a rule.
fn all<'a>(node: &Node<'a>, rule: Rule) -> impl Iterator<Item = Node<'a>> + use<'a> {
    node.clone().into_inner().filter(move |inner| inner.as_rule() == rule)
}

fn first<'a>(node: &Node<'a>, rule: Rule) -> Option<Node<'a>> {
    all(node, rule).next()
}

impl Builder<'_> {
    fn place(&self, node: &Node<'_>) -> Place {
        let span = node.as_span();
        self.unit.place(self.sources, span.start(), span.start() + node.as_str().trim_end().len())
    }

    fn fault(&mut self, place: Place, fault: IdlFault) {
        self.faults.push((place, fault));
    }

    fn unsupported(&mut self, node: &Node<'_>, what: impl Into<String>, remedy: &'static str) {
        self.fault(self.place(node), IdlFault::Unsupported { what: what.into(), remedy });
    }

    fn docs(&self, node: &Node<'_>) -> Vec<String> {
        let place = self.place(node);
        let before = self.sources.line(place.file, place.line).chars().take(place.column as usize - 1);
        match before.into_iter().all(char::is_whitespace) {
            true => self.sources.comments_above(place.file, place.line),
            false => Vec::new(),
        }
    }

    fn definitions(&mut self, node: Node<'_>) -> Vec<Definition> {
        all(&node, Rule::definition).filter_map(|inner| self.definition(&inner)).collect()
    }

    fn definition(&mut self, node: &Node<'_>) -> Option<Definition> {
        let annotations = self.annotations(node);
        let body =
            node.clone().into_inner().find(|inner| !matches!(inner.as_rule(), Rule::annotations | Rule::semicolon))?;
        let kind = match body.as_rule() {
            Rule::module => DefinitionKind::Module(self.own_name(&body)?, self.definitions(body)),
            Rule::structure => self.structure(&body)?,
            Rule::union => self.union(&body)?,
            Rule::enumeration => DefinitionKind::Enum(self.own_name(&body)?, self.enumerators(&body, false)),
            Rule::bitmask => DefinitionKind::Bitmask(self.own_name(&body)?, self.enumerators(&body, true)),
            Rule::type_alias => DefinitionKind::Typedef(self.inner_type(&body)?, self.declarators(&body)),
            Rule::constant => {
                DefinitionKind::Constant(self.inner_type(&body)?, self.own_name(&body)?, self.inner_expression(&body)?)
            }
            Rule::keylist => self.keylist(&body)?,
            Rule::annotation_declaration => {
                DefinitionKind::Annotation(self.plain_name(&first(&body, Rule::identifier)?))
            }
            _ => {
                let word = first(&body, Rule::unsupported_word).map_or("this", |word| word.as_str()).to_owned();
                let word_place = self.place(&first(&body, Rule::unsupported_word)?);
                let what = format!("`{word}`");
                let remedy = "only data types are compiled: structures, unions, enumerations and bitmasks";
                self.fault(word_place, IdlFault::Unsupported { what, remedy });
                return None;
            }
        };
        let mut hasher = DefaultHasher::new();
        node.as_str().split_whitespace().for_each(|word| word.hash(&mut hasher));
        Some(Definition { annotations, docs: self.docs(node), digest: hasher.finish(), kind })
    }

    fn structure(&mut self, node: &Node<'_>) -> Option<DefinitionKind> {
        let name = self.own_name(node)?;
        let Some(body) = first(node, Rule::structure_body) else {
            return Some(DefinitionKind::Forward(name, "structure"));
        };
        let base = first(&body, Rule::base).and_then(|base| first(&base, Rule::scoped_name));
        let base = base.map(|base| self.scoped_name(&base));
        let members = all(&body, Rule::member).filter_map(|member| {
            Some(Member {
                annotations: self.annotations(&member),
                docs: self.docs(&member),
                data: self.inner_type(&member)?,
                declarators: self.declarators(&member),
            })
        });
        let members = members.collect();
        Some(DefinitionKind::Struct { name, base, members })
    }

    fn union(&mut self, node: &Node<'_>) -> Option<DefinitionKind> {
        let name = self.own_name(node)?;
        let Some(body) = first(node, Rule::union_body) else {
            return Some(DefinitionKind::Forward(name, "union"));
        };
        let switch = self.annotations(&body);
        let discriminator = self.inner_type(&body)?;
        let cases = all(&body, Rule::case).filter_map(|case| {
            let labels = all(&case, Rule::case_label).map(|label| (self.place(&label), self.inner_expression(&label)));
            let labels = labels.collect();
            Some(Case {
                annotations: self.annotations(&case),
                docs: self.docs(&case),
                labels,
                data: self.inner_type(&case)?,
                declarator: self.declarator(&first(&case, Rule::declarator)?)?,
            })
        });
        let cases = cases.collect();
        Some(DefinitionKind::Union { name, switch, discriminator, cases })
    }

    fn enumerators(&mut self, node: &Node<'_>, is_bitmask: bool) -> Vec<Enumerator> {
        let Some(list) = first(node, Rule::enumerators) else { return Vec::new() };
        let enumerators = all(&list, Rule::enumerator).filter_map(|inner| {
            let name = self.own_name(&inner)?;
            if let Some(assigned) = first(&inner, Rule::assigned) {
                let value = assigned.as_str().trim_start_matches('=').trim().to_owned();
                let (place, name) = (self.place(&assigned), name.text.clone());
                self.fault(
                    place,
                    match is_bitmask {
                        true => IdlFault::AssignedBit { name, value },
                        false => IdlFault::Assigned { name, value },
                    },
                );
            }
            Some(Enumerator { annotations: self.annotations(&inner), docs: self.docs(&inner), name })
        });
        enumerators.collect()
    }

    fn keylist(&mut self, node: &Node<'_>) -> Option<DefinitionKind> {
        let name = self.scoped_name(&first(node, Rule::scoped_name)?);
        let paths = all(node, Rule::key_path).map(|path| (self.place(&path), path.as_str().to_owned()));
        Some(DefinitionKind::Keylist(name, paths.collect()))
    }

    fn annotations(&mut self, node: &Node<'_>) -> Vec<Annotation> {
        let Some(list) = first(node, Rule::annotations) else { return Vec::new() };
        let annotations = all(&list, Rule::annotation).filter_map(|inner| {
            let name = first(&inner, Rule::scoped_name)?;
            let name = name.as_str().split_whitespace().collect::<String>();
            let mut parameters = Vec::new();
            if let Some(list) = first(&inner, Rule::parameters) {
                if let Some(value) = self.inner_expression(&list) {
                    parameters.push((None, value));
                }
                for named in all(&list, Rule::named_parameter) {
                    let key = self.plain_name(&first(&named, Rule::identifier)?);
                    parameters.push((Some(key), self.inner_expression(&named)?));
                }
            }
            Some(Annotation { name, place: self.place(&inner), parameters })
        });
        annotations.collect()
    }

    fn declarators(&mut self, node: &Node<'_>) -> Vec<Declarator> {
        let Some(list) = first(node, Rule::declarators) else { return Vec::new() };
        all(&list, Rule::declarator).filter_map(|inner| self.declarator(&inner)).collect()
    }

    fn declarator(&mut self, node: &Node<'_>) -> Option<Declarator> {
        let name = self.own_name(node)?;
        let dimensions = all(node, Rule::dimension).filter_map(|inner| self.inner_expression(&inner)).collect();
        Some(Declarator { name, dimensions })
    }

    /// Returns the type inside of a node; `None` after a fault.
    fn inner_type(&mut self, node: &Node<'_>) -> Option<TypeSpec> {
        self.type_spec(&first(node, Rule::type_spec)?)
    }

    fn type_spec(&mut self, node: &Node<'_>) -> Option<TypeSpec> {
        let inner = node.clone().into_inner().next()?;
        let bound = |own: &mut Self| first(&inner, Rule::bound).map(|bound| own.expression(&bound));
        let kind = match inner.as_rule() {
            Rule::sequence => {
                let element = self.inner_type(&inner)?;
                TypeSpecKind::Sequence(Box::new(element), bound(self))
            }
            Rule::string => TypeSpecKind::String(bound(self)),
            Rule::wide_string => TypeSpecKind::WideString(bound(self)),
            Rule::primitive => match primitive(inner.as_str()) {
                Some(primitive) => TypeSpecKind::Primitive(primitive),
                None => {
                    self.unsupported(&inner, "`long double`", "use `double`");
                    return None;
                }
            },
            Rule::map => {
                self.unsupported(&inner, "`map`", "use a sequence of structures with a key and a value");
                return None;
            }
            Rule::fixed => {
                self.unsupported(&inner, "`fixed`", "use an integer with a fixed scale, or `double`");
                return None;
            }
            Rule::other_type => {
                self.unsupported(&inner, "`any`", "use a union of the types that occur");
                return None;
            }
            Rule::type_inside => {
                self.unsupported(&inner, "a type inside of another definition", "define it before, and use its name");
                return None;
            }
            _ => TypeSpecKind::Named(self.scoped_name(&inner)),
        };
        Some(TypeSpec { place: self.place(node), kind })
    }

    /// Returns the name that a node defines.
    fn own_name(&mut self, node: &Node<'_>) -> Option<Name> {
        first(node, Rule::identifier).map(|name| self.name(&name))
    }

    fn name(&mut self, node: &Node<'_>) -> Name {
        let name = self.plain_name(node);
        let is_escaped = node.as_str().starts_with('_');
        if !is_escaped && KEYWORDS.iter().any(|word| word.eq_ignore_ascii_case(&name.text)) {
            self.fault(name.place, IdlFault::Keyword { name: name.text.clone() });
        }
        name
    }

    /// Returns a name that may be a keyword.
    fn plain_name(&self, node: &Node<'_>) -> Name {
        let text = node.as_str();
        let text =
            text.strip_prefix('_').filter(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic())).unwrap_or(text);
        Name { text: text.to_owned(), place: self.place(node) }
    }

    fn scoped_name(&mut self, node: &Node<'_>) -> ScopedName {
        let mut inner = node.clone().into_inner().peekable();
        let is_absolute = inner.peek().is_some_and(|part| part.as_rule() == Rule::scope);
        let parts: Vec<_> = inner.filter(|part| part.as_rule() == Rule::identifier).collect();
        let parts = parts.iter().map(|part| self.name(part)).collect();
        ScopedName { is_absolute, parts, place: self.place(node) }
    }

    fn inner_expression(&mut self, node: &Node<'_>) -> Option<Expression> {
        first(node, Rule::expression).map(|inner| self.expression(&inner))
    }

    fn expression(&mut self, node: &Node<'_>) -> Expression {
        let place = self.place(node);
        let (mut terms, mut operators) = (Vec::new(), Vec::new());
        for inner in node.clone().into_inner() {
            match inner.as_rule() {
                Rule::term if terms.len() < TERMS_MAX => terms.push(self.term(&inner)),
                Rule::term => {
                    self.fault(place, IdlFault::Terms { limit: TERMS_MAX });
                    break;
                }
                _ => operators.push(operator(inner.as_str())),
            }
        }
        let mut terms = terms.into_iter();
        let mut operators = operators.into_iter().peekable();
        let first = terms.next();
        let first = first.unwrap_or(nothing(place));
        let mut whole = climb(first, &mut terms, &mut operators, 0);
        whole.place = place;
        self.bounded(whole)
    }

    fn term(&mut self, node: &Node<'_>) -> Expression {
        let place = self.place(node);
        let mut operators = Vec::new();
        let mut value = nothing(place);
        for inner in node.clone().into_inner() {
            let place = self.place(&inner);
            match inner.as_rule() {
                Rule::unary if operators.len() < TERMS_MAX => operators.push(operator(inner.as_str())),
                Rule::unary => {
                    self.fault(place, IdlFault::Terms { limit: TERMS_MAX });
                    return value;
                }
                Rule::expression => value = self.expression(&inner),
                Rule::literal => {
                    let found = inner.clone().into_inner().next().map(|inner| literal(&inner));
                    match found {
                        Some(Ok(literal)) => value = leaf(place, ExpressionKind::Literal(literal)),
                        Some(Err(fault)) => self.fault(place, fault),
                        None => {}
                    }
                }
                Rule::scoped_name => {
                    value = leaf(place, ExpressionKind::Name(self.scoped_name(&inner)));
                }
                _ => {}
            }
        }
        let whole = operators.into_iter().rev().fold(value, |value, operator| Expression {
            place,
            depth: value.depth + 1,
            kind: ExpressionKind::Unary(operator, Box::new(value)),
        });
        self.bounded(whole)
    }

    /// Replaces an expression that is too deep to be evaluated.
    fn bounded(&mut self, expression: Expression) -> Expression {
        if expression.depth <= TERMS_MAX {
            return expression;
        }
        self.fault(expression.place, IdlFault::Terms { limit: TERMS_MAX });
        nothing(expression.place)
    }
}

fn leaf(place: Place, kind: ExpressionKind) -> Expression {
    Expression { place, depth: 1, kind }
}

/// Returns the expression in place of one that is wrong.
fn nothing(place: Place) -> Expression {
    leaf(place, ExpressionKind::Literal(Literal::Integer(0)))
}

/// Combines terms by precedence. The depth is at most the number of levels.
fn climb(
    mut left: Expression,
    terms: &mut impl Iterator<Item = Expression>,
    operators: &mut std::iter::Peekable<impl Iterator<Item = &'static str>>,
    least: u8,
) -> Expression {
    while let Some(operator) = operators.next_if(|operator| level(operator) >= least) {
        let Some(mut right) = terms.next() else { return left };
        while operators.peek().is_some_and(|next| level(next) > level(operator)) {
            right = climb(right, terms, operators, level(operator) + 1);
        }
        let (place, depth) = (left.place, left.depth.max(right.depth) + 1);
        left = Expression { place, depth, kind: ExpressionKind::Binary(operator, Box::new(left), Box::new(right)) };
    }
    left
}

fn level(operator: &str) -> u8 {
    match operator {
        "|" => 1,
        "^" => 2,
        "&" => 3,
        "<<" | ">>" => 4,
        "+" | "-" => 5,
        _ => 6,
    }
}

fn operator(text: &str) -> &'static str {
    ["<<", ">>", "|", "^", "&", "+", "-", "*", "/", "%", "~"].into_iter().find(|known| *known == text).unwrap_or("+")
}

/// Returns a primitive type; `None` for `long double`.
fn primitive(text: &str) -> Option<Primitive> {
    let words: Vec<_> = text.split_whitespace().collect();
    Some(match words.join(" ").as_str() {
        "boolean" => Primitive::Boolean,
        "octet" => Primitive::Octet,
        "char" => Primitive::Char,
        "wchar" => Primitive::WideChar,
        "int8" => Primitive::Int8,
        "uint8" => Primitive::UInt8,
        "short" | "int16" => Primitive::Int16,
        "unsigned short" | "uint16" => Primitive::UInt16,
        "long" | "int32" => Primitive::Int32,
        "unsigned long" | "uint32" => Primitive::UInt32,
        "long long" | "int64" => Primitive::Int64,
        "unsigned long long" | "uint64" => Primitive::UInt64,
        "float" => Primitive::Float,
        "double" => Primitive::Double,
        _ => return None,
    })
}

/// The keywords of the part of IDL that is compiled.
const KEYWORDS: &[&str] = &[
    "any", "bitmask", "boolean", "case", "char", "const", "default", "double", "enum", "FALSE", "float", "int16",
    "int32", "int64", "int8", "long", "module", "octet", "sequence", "short", "string", "struct", "switch", "TRUE",
    "typedef", "uint16", "uint32", "uint64", "uint8", "union", "unsigned", "wchar", "wstring",
];
