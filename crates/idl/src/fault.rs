//! The errors and warnings about IDL files.
//!
//! Each text says what is wrong and what to do. The position is in [`Diagnostic`](crate::Diagnostic).

/// A mistake in an IDL file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum IdlFault {
    // Files and directives.
    #[error("can't read the file: {cause}; check the path and its permissions")]
    File { cause: String },
    #[error("the file is not in UTF-8; convert it")]
    Encoding,
    #[error("the file has {bytes} bytes, more than {limit}; split it")]
    FileSize { bytes: u64, limit: usize },
    #[error("the line has {bytes} bytes, more than {limit}; break it")]
    LineSize { bytes: usize, limit: usize },
    #[error("the file with its includes has more than {limit} bytes; split it, or guard its includes")]
    UnitSize { limit: usize },
    #[error("no file `{name}`; it was searched in {searched}; add its folder with `-I`")]
    IncludeMissing { name: String, searched: String },
    #[error("`#include` has the form `#include \"FILE\"` or `#include <FILE>`")]
    IncludeForm,
    #[error("the file includes itself: {chain}; remove one `#include`, or write `#pragma once`")]
    IncludeCycle { chain: String },
    #[error("files include each other more than {limit} deep; include the last one directly")]
    IncludeDepth { limit: usize },
    #[error("more than {limit} files are included; write `#pragma once` into each of them")]
    IncludeCount { limit: usize },
    #[error("unknown directive `#{name}`; there are {known}")]
    Directive { name: String, known: &'static str },
    #[error("`#{directive}` names a macro; write `#{directive} NAME`")]
    MacroName { directive: &'static str },
    #[error("macro `{name}` has parameters, which are not supported; define it without, or use a `const`")]
    MacroParameters { name: String },
    #[error("macro `{name}` is defined twice with different texts; write `#undef {name}` before")]
    MacroTwice { name: String },
    #[error("the texts of macros contain each other more than {limit} deep; define them without macros")]
    MacroDepth { limit: usize },
    #[error("macros are used more than {limit} times; use a `const`")]
    MacroCount { limit: usize },
    #[error("`#{directive}` is not ended; add `#endif`")]
    ConditionOpen { directive: String },
    #[error("`#{directive}` without `#if`, `#ifdef` or `#ifndef` before; remove it")]
    ConditionMissing { directive: String },
    #[error("conditions are more than {limit} deep; combine them")]
    ConditionDepth { limit: usize },
    #[error("`{text}` is no condition; use integers, macros, `defined(NAME)`, `!`, `&&`, `||` and comparisons")]
    ConditionForm { text: String },
    #[error("`#error`: {text}")]
    ErrorDirective { text: String },
    #[error("the comment is not ended; add `*/`")]
    CommentOpen,
    #[error("the text is not ended in its line; add the closing quote")]
    QuoteOpen,
    #[error("`{text}` is no definition of a macro; write `NAME` or `NAME=VALUE`")]
    DefineForm { text: String },

    // Syntax.
    #[error("expected {expected}, found {found}")]
    Syntax { expected: String, found: String },
    #[error("brackets or sequences are more than {limit} deep; define a type for the inner part")]
    Nesting { limit: usize },
    #[error("the expression has more than {limit} operands or operators; split it into constants")]
    Terms { limit: usize },
    #[error("{what} is not supported; {remedy}")]
    Unsupported { what: String, remedy: &'static str },
    #[error("`{name}` is a keyword of IDL; use another name, or escape it: `_{name}`")]
    Keyword { name: String },
    #[error("`{text}` is no {kind}; {remedy}")]
    Literal { text: String, kind: &'static str, remedy: &'static str },
    #[error("an enumerator has no `=`; write the annotation `@value({value})` before `{name}`")]
    Assigned { name: String, value: String },
    #[error("a bit has no `=`; write the annotation `@position({value})` before `{name}`")]
    AssignedBit { name: String, value: String },

    // Names.
    #[error("unknown name `{name}`{}", hint(.nearest.as_ref()))]
    Unknown { name: String, nearest: Option<String> },
    #[error("`{name}` is defined at {first} already; rename one of them{guard}")]
    Twice { name: String, first: String, guard: &'static str },
    #[error("`{name}` differs from `{other}` ({first}) in case only; names in IDL must differ otherwise; rename one")]
    CaseOnly { name: String, other: String, first: String },
    #[error("the name is written `{known}`, not `{name}`; names in IDL have one spelling")]
    Spelling { name: String, known: String },
    #[error("`{name}` is {kind}, not a type; name a type")]
    NoType { name: String, kind: &'static str },
    #[error("`{name}` is {kind}, not a constant; name a constant or a literal")]
    NoConstant { name: String, kind: &'static str },
    #[error("`{name}` is declared, but not defined; add its definition, or include the file that has it")]
    Undefined { name: String },
    #[error("`{name}` was declared as a {declared} at {first}; define it as one")]
    DeclaredAs { name: String, declared: &'static str, first: String },
    #[error("`{name}` is defined at {first} with another text for another input file; compile the files apart")]
    Diverges { name: String, first: String },

    // Constants.
    #[error("{value} is outside of the range of `{kind}`, {low} to {high}; choose another value or type")]
    Range { value: String, kind: String, low: String, high: String },
    #[error("{expected} is needed here, and this is {got}; change the value")]
    ValueType { expected: String, got: String },
    #[error("the operator `{operator}` can't be applied to {operand}; use numbers")]
    Operand { operator: &'static str, operand: &'static str },
    #[error("division by zero; change the divisor")]
    DivisionByZero,
    #[error("the result of `{operator}` exceeds what a constant can hold; use smaller operands")]
    Overflow { operator: &'static str },
    #[error("a constant can't have the type `{kind}`; use a primitive type, a string or an enumeration")]
    ConstantType { kind: String },

    // Types.
    #[error("{what} is {value}; it must be from 1 to {limit}")]
    Size { what: &'static str, value: String, limit: u64 },
    #[error("there are more than {limit} {what}; {remedy}")]
    TooMany { what: &'static str, limit: usize, remedy: &'static str },
    #[error("`{name}` contains itself: {chain}; use a sequence, or `@optional @external` for one member of them")]
    Recursion { name: String, chain: String },
    #[error("`{name}` contains itself in an optional member without a pointer: {chain}; add `@external`")]
    RecursionExternal { name: String, chain: String },
    #[error("a value of `{name}` never ends, as it contains another one: {chain}; add `@optional`, or use a sequence")]
    RecursionOptional { name: String, chain: String },
    #[error("`{base}` is no structure; inherit from a structure")]
    BaseKind { base: String },
    #[error("`{base}` is not defined yet; define it before `{name}`")]
    BaseUndefined { base: String, name: String },
    #[error("`{name}` is {own} and its base `{base}` is {other}; give both the same extensibility")]
    BaseExtensibility { name: String, own: &'static str, base: String, other: &'static str },
    #[error(
        "bounds deeper than the elements of a member have no Rust form; remove the inner bound, or typedef without"
    )]
    BoundDepth,
    #[error("members `{first}` and `{second}` have the same identifier {id}; give one another `@id`")]
    MemberIdTwice { first: String, second: String, id: u32 },
    #[error("identifier {id} is too large; the largest is {limit}")]
    MemberIdRange { id: u32, limit: u32 },
    #[error("member `{name}` is both `@key` and `@optional`; a key is always present, so remove one of them")]
    KeyOptional { name: String },
    #[error("`{name}` inherits from `{base}`, so it can't add the key `{member}`; move the member to `{base}`")]
    KeyInDerived { name: String, base: String, member: String },
    #[error("a member of a union can't be a key; write `switch (@key {discriminator})`")]
    KeyInUnion { discriminator: String },
    #[error("member `{name}` is optional and has a default; an absent member has no value, so remove one of them")]
    DefaultOptional { name: String },
    #[error("a member of type `{kind}` can't have a default; remove `@default`")]
    DefaultType { kind: String },
    #[error("a union can't be mutable here; write `@final` or `@appendable` in front of `{name}`")]
    MutableUnion { name: String },
    #[error("`{kind}` can't select the members of a union; use an integer, `char`, `boolean` or an enumeration")]
    Discriminator { kind: String },
    #[error("label {label} is used twice; remove one of them")]
    LabelTwice { label: String },
    #[error("label {label} has more than 32 bits; choose a smaller value")]
    LabelRange { label: String },
    #[error("the union has two defaults; remove one of them")]
    DefaultTwice,
    #[error("`default` is never selected, as the labels have all values; remove it")]
    DefaultUnreachable,
    #[error("{what} has no members; add one")]
    Empty { what: &'static str },
    #[error("literals `{first}` and `{second}` have the same value {value}; give one another `@value`")]
    EnumValueTwice { first: String, second: String, value: i64 },
    #[error("literal `{name}` has the value {value}, and {bits} bits hold {low} to {high}; raise `@bit_bound`")]
    EnumValueRange { name: String, value: i128, bits: u16, low: i64, high: i64 },
    #[error("two literals are the default; remove one `@default_literal`")]
    DefaultLiteralTwice,
    #[error("bits `{first}` and `{second}` have the same position {position}; give one another `@position`")]
    PositionTwice { first: String, second: String, position: u16 },
    #[error(
        "bit `{name}` has position {position}, and the mask has {bits} bits; raise `@bit_bound` or change `@position`"
    )]
    PositionRange { name: String, position: i128, bits: u16 },
    #[error("`{name}` can't be the name of a bit in Rust; rename it")]
    BitName { name: String },

    // Annotations and pragmas.
    #[error("unknown annotation `@{name}`{}", hint_annotation(.nearest.as_ref()))]
    AnnotationUnknown { name: String, nearest: Option<String> },
    #[error("`@{name}` has no meaning for {target}; it belongs to {belongs}")]
    AnnotationMisplaced { name: String, target: &'static str, belongs: &'static str },
    #[error("`@{name}` occurs twice; remove one of them")]
    AnnotationTwice { name: String },
    #[error("`@{name}` {expected}; write `{example}`")]
    AnnotationArgument { name: String, expected: &'static str, example: &'static str },
    #[error("`@{first}` and `@{second}` exclude each other; remove one of them")]
    AnnotationsExclude { first: String, second: String },
    #[error("`{name}` is no structure; `#pragma keylist` names one that is defined before")]
    KeylistType { name: String },
    #[error("`{name}` has no member `{member}`{}", hint_member(.nearest.as_ref()))]
    KeylistMember { name: String, member: String, nearest: Option<String> },
    #[error("`{name}` has a `@key` or another `#pragma keylist` with other members; keep one of them")]
    KeylistTwice { name: String },
}

fn hint(nearest: Option<&String>) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => "; define it before its use, or include the file that has it".to_owned(),
    }
}

fn hint_annotation(nearest: Option<&String>) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `@{nearest}`?"),
        None => "; remove it, or declare it with `@annotation`".to_owned(),
    }
}

fn hint_member(nearest: Option<&String>) -> String {
    match nearest {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => "; name one of its own members".to_owned(),
    }
}

/// A reason for a warning: the output is valid, and may differ from what was intended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum IdlNotice {
    #[error("`@{name}` is ignored: {reason}")]
    AnnotationIgnored { name: String, reason: &'static str },
    #[error("`#pragma {name}` is ignored; there are `keylist` and `once`")]
    PragmaIgnored { name: String },
    #[error("the comment `//@{name}` has no effect; write the annotation `@{name}` before the member")]
    AnnotationInComment { name: String },
    #[error("`#warning`: {text}")]
    WarningDirective { text: String },
}
