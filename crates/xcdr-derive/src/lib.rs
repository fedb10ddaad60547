//! The derive macro `DdsType` of `spindle-xcdr`, which exports and documents it.
//!
//! `attributes.rs` reads `#[dds(…)]`; `structure.rs`, `union.rs`, `enumeration.rs` and `bitmask.rs`
//! each write the code of one kind of type.
#![forbid(unsafe_code)]

mod attributes;
mod bitmask;
mod enumeration;
mod structure;
mod tokens;
mod union;

use attributes::TypeAttributes;
use proc_macro::TokenStream;
use proc_macro2::{Group, TokenStream as Tokens, TokenTree};
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Result, parse_macro_input};

/// Makes a DDS type of a structure or an enumeration.
///
/// | Rust | DDS |
/// |---|---|
/// | a structure with named fields | a structure |
/// | an enumeration without fields | an enumeration |
/// | an enumeration with `#[dds(union, discriminator = T)]` | a union |
/// | a structure with one unsigned integer and `#[dds(bitmask, flags(…))]` | a bit mask |
///
/// Attributes of a type:
///
/// | attribute | meaning |
/// |---|---|
/// | `final`, `appendable`, `mutable` | how it may change; a structure or union must have one |
/// | `name = "a::B"` | its name with modules; the Rust name by default |
/// | `nested` | it is meant as part of other types only |
/// | `autoid = "hash"` | members without `id` have the hash of their name as identifier |
/// | `plain` | its memory is its encoding: final, `#[repr(C)]`, `Copy`, without padding |
/// | `union`, `discriminator = T` | a union, and the type of its discriminator |
/// | `discriminator_key` | the discriminator is the key of the union |
/// | `bitmask`, `flags(NAME = 0)` | a bit mask, and its flags with their positions |
/// | `bit_bound = 8` | the bits of an enumeration or a bit mask |
///
/// Attributes of a member:
///
/// | attribute | meaning |
/// |---|---|
/// | `key` | it belongs to the key |
/// | `id = 7` | its identifier; by default one more than that of the member before |
/// | `hashid`, `hashid = "text"` | its identifier is the hash of its name, or of the text |
/// | `must_understand` | a reader that lacks the member must refuse the sample |
/// | `bound = 8` | the bound of a string (bytes), sequence or map |
/// | `element_bound = 8` | the bound of the elements, which are strings, sequences or maps |
/// | `default = EXPR` | its value if the writer's type lacks it |
/// | `octet` | its `u8` are `octet`, not `uint8` |
/// | `name = "x"` | its name in IDL |
///
/// An enumeration also derives `Clone`, `Copy` and `PartialEq`, a bit mask `Clone` and `Copy`.
///
/// `Option<T>` is an optional member, `Box<T>` an external one.
///
/// A variant of a union has `case = LABEL`, `case(LABEL, LABEL)` or `default`. With one label it holds
/// the member or nothing: `A(T)`, `A`. With several labels or `default` the discriminator comes first:
/// `B(D, T)`, `B(D)`. A literal of an enumeration may have `default` and `name`.
#[proc_macro_derive(DdsType, attributes(dds))]
pub fn dds_type(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// As [`DdsType`](dds_type), for packages that depend on `spindle-dds` and not on `spindle-xcdr`. `spindle-dds` exports
/// it as `DdsType`.
#[proc_macro_derive(DdsTypeOfDds, attributes(dds))]
pub fn dds_type_of_dds(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input).map_or_else(Error::into_compile_error, through_dds).into()
}

/// Names the types of `spindle-xcdr` by their path in `spindle-dds`.
fn through_dds(tokens: Tokens) -> Tokens {
    tokens
        .into_iter()
        .flat_map(|token| match token {
            TokenTree::Ident(name) if name == "spindle_xcdr" => quote::quote!(spindle_dds::xcdr),
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), through_dds(group.stream()));
                inner.set_span(group.span());
                TokenTree::Group(inner).into()
            }
            other => other.into(),
        })
        .collect()
}

fn derive(input: &DeriveInput) -> Result<Tokens> {
    if let Some(parameter) = input.generics.params.first() {
        return Err(Error::new_spanned(parameter, "a DDS type has no parameters; define one type for each use"));
    }
    let attributes = TypeAttributes::read(&input.attrs)?;
    match &input.data {
        Data::Struct(data) => match &data.fields {
            _ if attributes.bitmask.is_some() => bitmask::derive(input, &attributes, &data.fields),
            Fields::Named(fields) => structure::derive(input, &attributes, fields),
            Fields::Unnamed(_) | Fields::Unit => Err(Error::new(
                input.ident.span(),
                "a DDS structure has named fields; a bit mask has one unsigned integer and `#[dds(bitmask)]`",
            )),
        },
        Data::Enum(data) if attributes.union.is_some() => union::derive(input, &attributes, data),
        Data::Enum(data) if has_fields(data) => Err(Error::new(
            input.ident.span(),
            "variants with fields make a union; add `#[dds(union, discriminator = T)]`",
        )),
        Data::Enum(data) => enumeration::derive(input, &attributes, data),
        Data::Union(_) => {
            Err(Error::new(input.ident.span(), "a DDS union is a Rust `enum` with `#[dds(union, discriminator = T)]`"))
        }
    }
}

fn has_fields(data: &DataEnum) -> bool {
    data.variants.iter().any(|variant| !matches!(variant.fields, Fields::Unit))
}
