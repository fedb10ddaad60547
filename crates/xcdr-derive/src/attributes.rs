//! Reads the attribute `#[dds(…)]` of types, members, variants and flags.
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, Ident, LitInt, LitStr, Result, Token, Type, parenthesized};

/// How a type may change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extensibility {
    Final,
    Appendable,
    Mutable,
}

/// The attributes of a type.
#[derive(Default)]
pub(crate) struct TypeAttributes {
    pub(crate) name: Option<String>,
    pub(crate) extensibility: Option<(Extensibility, Span)>,
    pub(crate) nested: bool,
    pub(crate) autoid_hash: bool,
    pub(crate) plain: Option<Span>,
    pub(crate) union: Option<Span>,
    pub(crate) discriminator: Option<Type>,
    pub(crate) discriminator_key: bool,
    pub(crate) bitmask: Option<Span>,
    pub(crate) bit_bound: Option<(u16, Span)>,
    pub(crate) flags: Vec<(Ident, LitInt)>,
}

/// The attributes of a member of a structure.
#[derive(Default)]
pub(crate) struct MemberAttributes {
    pub(crate) name: Option<String>,
    pub(crate) key: Option<Span>,
    pub(crate) id: Option<(u32, Span)>,
    pub(crate) hash_id: Option<(String, Span)>,
    pub(crate) must_understand: bool,
    pub(crate) bound: u32,
    pub(crate) element_bound: u32,
    pub(crate) octet: bool,
    pub(crate) default: Option<Expr>,
}

/// The attributes of a variant.
#[derive(Default)]
pub(crate) struct VariantAttributes {
    pub(crate) name: Option<String>,
    pub(crate) cases: Vec<Expr>,
    pub(crate) default: bool,
    pub(crate) bound: u32,
    pub(crate) element_bound: u32,
    pub(crate) octet: bool,
}

/// Calls `read` with each word of the attributes `#[dds(…)]`, and the rest of its entry.
fn each(attributes: &[Attribute], mut read: impl FnMut(&Ident, ParseStream<'_>) -> Result<()>) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("dds")) {
        attribute.parse_args_with(|input: ParseStream<'_>| {
            while !input.is_empty() {
                let word = input.call(Ident::parse_any)?;
                read(&word, input)?;
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn unknown(word: &Ident, of: &str, known: &str) -> Error {
    Error::new(word.span(), format!("`{word}` is no attribute of {of}; there are {known}"))
}

fn text(input: ParseStream<'_>) -> Result<LitStr> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn number<N: core::str::FromStr<Err: core::fmt::Display>>(input: ParseStream<'_>) -> Result<(N, Span)> {
    input.parse::<Token![=]>()?;
    let literal: LitInt = input.parse()?;
    let digits = literal.base10_digits().to_owned();
    let value = digits.parse().map_err(|error| Error::new(literal.span(), format!("{digits}: {error}")))?;
    Ok((value, literal.span()))
}

fn bound(input: ParseStream<'_>) -> Result<u32> {
    match number(input)? {
        (0, span) => Err(Error::new(span, "a bound is at least 1; without a bound, remove it")),
        (bound, _) => Ok(bound),
    }
}

impl TypeAttributes {
    pub(crate) fn read(attributes: &[Attribute]) -> Result<TypeAttributes> {
        let mut own = TypeAttributes::default();
        each(attributes, |word, input| own.entry(word, input))?;
        Ok(own)
    }

    fn entry(&mut self, word: &Ident, input: ParseStream<'_>) -> Result<()> {
        match word.to_string().as_str() {
            "name" => self.name = Some(text(input)?.value()),
            "final" => self.extend(Extensibility::Final, word)?,
            "appendable" => self.extend(Extensibility::Appendable, word)?,
            "mutable" => self.extend(Extensibility::Mutable, word)?,
            "nested" => self.nested = true,
            "autoid" => {
                let literal = text(input)?;
                self.autoid_hash = match literal.value().as_str() {
                    "hash" => true,
                    "sequential" => false,
                    _ => return Err(Error::new(literal.span(), "`autoid` is \"hash\" or \"sequential\"")),
                };
            }
            "plain" => self.plain = Some(word.span()),
            "union" => self.union = Some(word.span()),
            "discriminator" => {
                input.parse::<Token![=]>()?;
                self.discriminator = Some(input.parse()?);
            }
            "discriminator_key" => self.discriminator_key = true,
            "bitmask" => self.bitmask = Some(word.span()),
            "bit_bound" => self.bit_bound = Some(number(input)?),
            "flags" => {
                let content;
                parenthesized!(content in input);
                let flags = Punctuated::<Flag, Token![,]>::parse_terminated(&content)?;
                self.flags.extend(flags.into_iter().map(|flag| (flag.name, flag.position)));
            }
            _ => {
                let known = "`name`, `final`, `appendable`, `mutable`, `nested`, `autoid`, `plain`, `union`, \
                             `discriminator`, `discriminator_key`, `bitmask`, `bit_bound` and `flags`";
                return Err(unknown(word, "a type", known));
            }
        }
        Ok(())
    }

    fn extend(&mut self, extensibility: Extensibility, word: &Ident) -> Result<()> {
        if self.extensibility.is_some() {
            return Err(Error::new(word.span(), "a type has one extensibility; remove the other one"));
        }
        self.extensibility = Some((extensibility, word.span()));
        Ok(())
    }

    /// Returns the extensibility that a structure or union must have.
    pub(crate) fn required_extensibility(&self, name: &Ident) -> Result<Extensibility> {
        self.extensibility.map(|(extensibility, _)| extensibility).ok_or_else(|| {
            Error::new(
                name.span(),
                "say how the type may change: `#[dds(final)]`, `#[dds(appendable)]` or `#[dds(mutable)]`; other \
                 implementations of DDS have different defaults",
            )
        })
    }

    /// Refuses the attributes that only other kinds of types have.
    pub(crate) fn refuse(&self, kind: &str, words: &[(Option<Span>, &str)]) -> Result<()> {
        match words.iter().find_map(|(span, word)| span.map(|span| (span, word))) {
            Some((span, word)) => Err(Error::new(span, format!("{kind} has no attribute `{word}`"))),
            None => Ok(()),
        }
    }
}

/// An entry of `flags(…)`.
struct Flag {
    name: Ident,
    position: LitInt,
}

impl syn::parse::Parse for Flag {
    fn parse(input: ParseStream<'_>) -> Result<Flag> {
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Flag { name, position: input.parse()? })
    }
}

impl MemberAttributes {
    pub(crate) fn read(attributes: &[Attribute], member: &str) -> Result<MemberAttributes> {
        let mut own = MemberAttributes::default();
        each(attributes, |word, input| {
            match word.to_string().as_str() {
                "name" => own.name = Some(text(input)?.value()),
                "key" => own.key = Some(word.span()),
                "id" => own.id = Some(number(input)?),
                "hashid" if input.peek(Token![=]) => own.hash_id = Some((text(input)?.value(), word.span())),
                "hashid" => own.hash_id = Some((String::new(), word.span())),
                "must_understand" => own.must_understand = true,
                "bound" => own.bound = bound(input)?,
                "element_bound" => own.element_bound = bound(input)?,
                "octet" => own.octet = true,
                "default" => {
                    input.parse::<Token![=]>()?;
                    own.default = Some(input.parse()?);
                }
                "optional" => {
                    return Err(Error::new(
                        word.span(),
                        "an optional member has the type `Option<T>`; remove `optional`",
                    ));
                }
                "external" => {
                    return Err(Error::new(word.span(), "an external member has the type `Box<T>`; remove `external`"));
                }
                _ => {
                    let known = "`name`, `key`, `id`, `hashid`, `must_understand`, `bound`, `element_bound`, `octet` \
                                 and `default`";
                    return Err(unknown(word, &format!("member `{member}`"), known));
                }
            }
            Ok(())
        })?;
        if let (Some((_, span)), Some(_)) = (own.id, &own.hash_id) {
            return Err(Error::new(span, "a member has one identifier; remove `id` or `hashid`"));
        }
        Ok(own)
    }
}

impl VariantAttributes {
    pub(crate) fn read(attributes: &[Attribute], variant: &str) -> Result<VariantAttributes> {
        let mut own = VariantAttributes::default();
        each(attributes, |word, input| {
            match word.to_string().as_str() {
                "name" => own.name = Some(text(input)?.value()),
                "case" if input.peek(Token![=]) => {
                    input.parse::<Token![=]>()?;
                    own.cases.push(input.parse()?);
                }
                "case" => {
                    let content;
                    parenthesized!(content in input);
                    own.cases.extend(Punctuated::<Expr, Token![,]>::parse_terminated(&content)?);
                }
                "default" => own.default = true,
                "bound" => own.bound = bound(input)?,
                "element_bound" => own.element_bound = bound(input)?,
                "octet" => own.octet = true,
                _ => {
                    let known = "`name`, `case`, `default`, `bound`, `element_bound` and `octet`";
                    return Err(unknown(word, &format!("variant `{variant}`"), known));
                }
            }
            Ok(())
        })?;
        Ok(own)
    }
}
