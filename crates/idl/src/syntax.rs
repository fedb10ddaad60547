//! The syntax tree: what was written, before names are looked up.
use crate::source::Place;

/// An identifier, without the underscore that escapes keywords.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) place: Place,
}

/// A name with scopes.
#[derive(Clone, Debug)]
pub(crate) struct ScopedName {
    /// Whether it begins with `::`.
    pub(crate) is_absolute: bool,
    /// At least one.
    pub(crate) parts: Vec<Name>,
    pub(crate) place: Place,
}

impl ScopedName {
    /// Returns the name as it is written, without spaces.
    pub(crate) fn text(&self) -> String {
        let parts: Vec<_> = self.parts.iter().map(|part| part.text.as_str()).collect();
        format!("{}{}", if self.is_absolute { "::" } else { "" }, parts.join("::"))
    }
}

/// An annotation with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) parameters: Vec<(Option<Name>, Expression)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) place: Place,
    /// The depth of the tree: 1 for literals and names.
    pub(crate) depth: usize,
    pub(crate) kind: ExpressionKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExpressionKind {
    Literal(Literal),
    Name(ScopedName),
    Unary(&'static str, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Character(u8),
    WideCharacter(u16),
    Text(String),
    WideText(String),
}

/// A primitive type of IDL that has an encoding here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of IDL")]
pub enum Primitive {
    Boolean,
    Octet,
    Char,
    WideChar,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float,
    Double,
}

#[derive(Clone, Debug)]
pub(crate) struct TypeSpec {
    pub(crate) place: Place,
    pub(crate) kind: TypeSpecKind,
}

#[derive(Clone, Debug)]
pub(crate) enum TypeSpecKind {
    Primitive(Primitive),
    String(Option<Expression>),
    WideString(Option<Expression>),
    Sequence(Box<TypeSpec>, Option<Expression>),
    Named(ScopedName),
}

#[derive(Clone, Debug)]
pub(crate) struct Declarator {
    pub(crate) name: Name,
    pub(crate) dimensions: Vec<Expression>,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) docs: Vec<String>,
    pub(crate) data: TypeSpec,
    pub(crate) declarators: Vec<Declarator>,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) docs: Vec<String>,
    /// `None` is `default`.
    pub(crate) labels: Vec<(Place, Option<Expression>)>,
    pub(crate) data: TypeSpec,
    pub(crate) declarator: Declarator,
}

#[derive(Clone, Debug)]
pub(crate) struct Enumerator {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) docs: Vec<String>,
    pub(crate) name: Name,
}

/// A definition with its annotations and documentation.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) docs: Vec<String>,
    /// A hash of its text.
    pub(crate) digest: u64,
    pub(crate) kind: DefinitionKind,
}

#[derive(Clone, Debug)]
pub(crate) enum DefinitionKind {
    Module(Name, Vec<Definition>),
    /// A structure or union that is declared only.
    Forward(Name, &'static str),
    Struct {
        name: Name,
        base: Option<ScopedName>,
        members: Vec<Member>,
    },
    Union {
        name: Name,
        switch: Vec<Annotation>,
        discriminator: TypeSpec,
        cases: Vec<Case>,
    },
    Enum(Name, Vec<Enumerator>),
    Bitmask(Name, Vec<Enumerator>),
    Typedef(TypeSpec, Vec<Declarator>),
    Constant(TypeSpec, Name, Expression),
    /// `#pragma keylist`: the type, and the paths of members.
    Keylist(ScopedName, Vec<(Place, String)>),
    /// `@annotation`.
    Annotation(Name),
}
