//! Structures.
use crate::attributes::{Extensibility, MemberAttributes, TypeAttributes};
use crate::tokens::{self, Bounds};
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use std::collections::BTreeMap;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Error, Expr, FieldsNamed, Ident, Result, Type};

/// A member of a structure.
struct Member {
    /// The field.
    field: Ident,
    /// The variable that holds its value while the structure is decoded.
    variable: Ident,
    name: String,
    id: u32,
    id_span: Span,
    /// The type, without `Option`.
    data: Type,
    optional: bool,
    external: bool,
    key: bool,
    must_understand: bool,
    octet: bool,
    bounds: Bounds,
    default: Option<Expr>,
    hash_id: Option<String>,
}

/// Returns the implementations for a structure.
pub(crate) fn derive(input: &DeriveInput, attributes: &TypeAttributes, fields: &FieldsNamed) -> Result<Tokens> {
    attributes.refuse(
        "a structure",
        &[
            (attributes.union, "union"),
            (attributes.discriminator.as_ref().map(Spanned::span), "discriminator"),
            (attributes.bit_bound.map(|(_, span)| span), "bit_bound"),
        ],
    )?;
    let extensibility = attributes.required_extensibility(&input.ident)?;
    let members = members(attributes, fields)?;
    let own = &input.ident;
    let name = tokens::type_name(input, attributes);
    let keyed = members.iter().any(|member| member.key);
    let path = tokens::extensibility(extensibility);
    let describe = describe(attributes, &name, &path, &members);
    let dds_type = tokens::dds_type(input, &name, &path, keyed);
    let encode = members.iter().map(|member| member.encode(&format_ident!("encode")));
    let encode_key = encode_key(&members, keyed);
    let decode_sample = decode(extensibility, &path, &members, None);
    let decode_key = decode(extensibility, &path, &members, Some(keyed));
    let missing = members.iter().map(Member::missing);
    let plain = match attributes.plain {
        Some(span) => plain(input, extensibility, span, &members)?,
        None => Tokens::new(),
    };
    Ok(quote! {
        #[automatically_derived]
        impl ::spindle_xcdr::Cdr for #own {
            const LENGTH_CODE: ::spindle_xcdr::LengthCode = ::spindle_xcdr::LengthCode::Next;

            fn describe(types: &mut ::spindle_xcdr::TypeCollector) -> ::spindle_xcdr::DataType {
                #describe
            }

            fn encode(
                &self,
                to: &mut ::spindle_xcdr::CdrEncoder,
            ) -> ::core::result::Result<(), ::spindle_xcdr::CdrWriteError> {
                to.structure(#path, |to| {
                    #(#encode)*
                    ::core::result::Result::Ok(())
                })
            }

            fn encode_key(
                &self,
                to: &mut ::spindle_xcdr::CdrEncoder,
            ) -> ::core::result::Result<(), ::spindle_xcdr::CdrWriteError> {
                let by_id = to.orders_by_id();
                to.structure(#path, |to| {
                    #encode_key
                    ::core::result::Result::Ok(())
                })
            }

            fn decode(
                from: &mut ::spindle_xcdr::CdrDecoder<'_>,
            ) -> ::core::result::Result<Self, ::spindle_xcdr::CdrReadError> {
                #decode_sample
            }

            fn decode_key(
                from: &mut ::spindle_xcdr::CdrDecoder<'_>,
            ) -> ::core::result::Result<Self, ::spindle_xcdr::CdrReadError> {
                #decode_key
            }

            fn missing() -> Self {
                Self { #(#missing),* }
            }
        }
        #dds_type
        #plain
    })
}

fn members(attributes: &TypeAttributes, fields: &FieldsNamed) -> Result<Vec<Member>> {
    let mut members: Vec<Member> = Vec::new();
    let mut ids = BTreeMap::new();
    for (index, field) in fields.named.iter().enumerate() {
        let Some(ident) = field.ident.clone() else { continue };
        let rust_name = ident.unraw().to_string();
        let own = MemberAttributes::read(&field.attrs, &rust_name)?;
        let name = own.name.unwrap_or(rust_name);
        let optional = tokens::argument_of(&field.ty, "Option");
        if let (Some(span), Some(_)) = (own.key, optional) {
            return Err(Error::new(span, "a member of the key is always present; remove `Option` or `key`"));
        }
        let next = members.last().map_or(0, |before| before.id + 1);
        let (id, id_span) = match (&own.id, &own.hash_id) {
            (Some((id, span)), _) => (*id, *span),
            (None, Some((text, span))) if text.is_empty() => (tokens::hash_id(&name), *span),
            (None, Some((text, span))) => (tokens::hash_id(text), *span),
            (None, None) if attributes.autoid_hash => (tokens::hash_id(&name), ident.span()),
            (None, None) => (next, ident.span()),
        };
        if id >= 0x0fff_ffff {
            return Err(Error::new(id_span, format!("identifier {id} is too large; there are 28 bits for it")));
        }
        if let Some(other) = ids.insert(id, name.clone()) {
            return Err(Error::new(id_span, format!("members `{other}` and `{name}` have the same identifier {id}")));
        }
        let data = optional.unwrap_or(&field.ty).clone();
        members.push(Member {
            variable: format_ident!("member_{index}"),
            external: tokens::argument_of(&data, "Box").is_some(),
            field: ident,
            name,
            id,
            id_span,
            optional: optional.is_some(),
            data,
            key: own.key.is_some(),
            must_understand: own.must_understand,
            octet: own.octet,
            bounds: Bounds { own: own.bound, element: own.element_bound },
            default: own.default,
            hash_id: own.hash_id.map(|(text, _)| text),
        });
    }
    Ok(members)
}

fn describe(attributes: &TypeAttributes, name: &str, extensibility: &Tokens, members: &[Member]) -> Tokens {
    let TypeAttributes { nested, autoid_hash, .. } = attributes;
    let members = members.iter().map(|member| {
        let Member { name, id, data, optional, external, key, must_understand, octet, bounds, .. } = member;
        let data = bounds.describe(data, *octet);
        let hash_id = match &member.hash_id {
            Some(text) => quote!(::core::option::Option::Some(::std::string::String::from(#text))),
            None => quote!(::core::option::Option::None),
        };
        quote! {
            ::spindle_xcdr::MemberType {
                name: ::std::string::String::from(#name),
                id: #id,
                data: #data,
                key: #key,
                optional: #optional,
                must_understand: #must_understand,
                external: #external,
                hash_id: #hash_id,
            }
        }
    });
    quote! {
        types.named(#name, |types| {
            let _ = &types;
            ::spindle_xcdr::TypeBody::Struct(::spindle_xcdr::StructType {
                extensibility: #extensibility,
                nested: #nested,
                autoid_hash: #autoid_hash,
                members: ::std::vec![#(#members),*],
            })
        })
    }
}

/// Returns the statements that encode the key: all members if none has the attribute.
fn encode_key(members: &[Member], keyed: bool) -> Tokens {
    let function = format_ident!("encode_key");
    let in_order: Vec<_> = members.iter().filter(|member| member.key || !keyed).collect();
    let mut by_id = in_order.clone();
    by_id.sort_by_key(|member| member.id);
    let statements = in_order.iter().map(|member| member.encode(&function));
    if by_id.iter().map(|member| member.id).eq(in_order.iter().map(|member| member.id)) {
        return quote!(let _ = by_id; #(#statements)*);
    }
    let sorted = by_id.iter().map(|member| member.encode(&function));
    quote! {
        if by_id {
            #(#sorted)*
        } else {
            #(#statements)*
        }
    }
}

/// Returns the expression that decodes a structure, or its key; `keyed` says which types have one.
fn decode(extensibility: Extensibility, path: &Tokens, members: &[Member], keyed: Option<bool>) -> Tokens {
    let function = if keyed.is_some() { format_ident!("decode_key") } else { format_ident!("decode") };
    let is_read = |member: &&Member| member.key || keyed != Some(true);
    let (read, skipped): (Vec<_>, Vec<_>) = members.iter().partition(is_read);
    let statements: Vec<_> = match extensibility {
        Extensibility::Mutable => mutable(&read, &function),
        _ => read.iter().map(|member| member.decode(&function)).collect(),
    };
    let fields = read.iter().map(|Member { field, variable, .. }| quote!(#field: #variable));
    let others = skipped.iter().map(|member| member.missing());
    quote! {
        from.structure(#path, |from| {
            let _ = &from;
            #(#statements)*
            ::core::result::Result::Ok(Self { #(#fields,)* #(#others),* })
        })
    }
}

/// Returns the statements that read the members of a mutable type in any order.
fn mutable(members: &[&Member], function: &Ident) -> Vec<Tokens> {
    let places = members.iter().map(|Member { variable, data, .. }| {
        quote!(let mut #variable: ::core::option::Option<#data> = ::core::option::Option::None;)
    });
    let arms = members.iter().map(|Member { variable, data, id, name, bounds, .. }| {
        let read = bounds.read(data, function);
        quote!(#id => from.place(start, &mut #variable, #read).map_err(|error| error.at(#name))?,)
    });
    let search = quote! {
        while let ::core::option::Option::Some(start) = from.next_member()? {
            match start.head.id {
                #(#arms)*
                _ => from.skip(start)?,
            }
        }
    };
    let results = members.iter().filter(|member| !member.optional).map(|member| member.or_missing());
    places.chain([search]).chain(results).collect()
}

impl Member {
    fn head(&self) -> Tokens {
        let Member { id, must_understand, .. } = self;
        quote!(::spindle_xcdr::MemberHead { id: #id, must_understand: #must_understand })
    }

    /// Returns the statement that encodes the member with a function of `Cdr`.
    fn encode(&self, function: &Ident) -> Tokens {
        let Member { field, name, data, optional, bounds, .. } = self;
        let head = self.head();
        let code = quote!(<#data as ::spindle_xcdr::Cdr>::LENGTH_CODE);
        if *optional {
            let check = bounds.check_written(&quote!(value), name);
            let check = (!check.is_empty())
                .then(|| quote!(if let ::core::option::Option::Some(value) = &self.#field { #check }));
            return quote! {
                #check
                to.optional(#head, #code, self.#field.as_ref().map(|value| {
                    move |to: &mut ::spindle_xcdr::CdrEncoder| ::spindle_xcdr::Cdr::#function(value, to)
                })).map_err(|error| error.at(#name))?;
            };
        }
        let check = bounds.check_written(&quote!(&self.#field), name);
        quote! {
            #check
            to.member(#head, #code, |to| ::spindle_xcdr::Cdr::#function(&self.#field, to))
                .map_err(|error| error.at(#name))?;
        }
    }

    /// Returns the statement that decodes the member of a final or appendable type.
    fn decode(&self, function: &Ident) -> Tokens {
        let Member { variable, name, data, id, optional, bounds, .. } = self;
        let read = bounds.read(data, function);
        if *optional {
            return quote!(let #variable = from.optional(#id, #read).map_err(|error| error.at(#name))?;);
        }
        let or_missing = self.or_missing();
        quote! {
            let #variable = from.member(#read).map_err(|error| error.at(#name))?;
            #or_missing
        }
    }

    /// Returns the field of a value that the writer's type lacks.
    fn missing(&self) -> Tokens {
        let Member { field, data, .. } = self;
        match &self.default {
            Some(default) => quote!(#field: #default),
            None if self.optional => quote!(#field: ::core::option::Option::None),
            None => quote!(#field: <#data as ::spindle_xcdr::Cdr>::missing()),
        }
    }

    /// Returns the statement that gives a member a value that the writer's type lacks.
    fn or_missing(&self) -> Tokens {
        let Member { variable, name, data, id, key, default, .. } = self;
        let missing = match (key, default) {
            (true, _) => quote!(return ::core::result::Result::Err(from.key_missing(#id).at(#name))),
            (false, Some(default)) => quote!(#default),
            (false, None) => quote!(<#data as ::spindle_xcdr::Cdr>::missing()),
        };
        quote! {
            let #variable: #data = match #variable {
                ::core::option::Option::Some(value) => value,
                ::core::option::Option::None => #missing,
            };
        }
    }
}

/// Returns the implementation of `Plain`, with its checks.
fn plain(input: &DeriveInput, extensibility: Extensibility, span: Span, members: &[Member]) -> Result<Tokens> {
    if extensibility != Extensibility::Final {
        return Err(Error::new(span, "a plain type is final; write `#[dds(final, plain)]`"));
    }
    let is_c = input
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("repr"))
        .any(|attribute| attribute.parse_args::<Ident>().is_ok_and(|layout| layout == "C"));
    if !is_c {
        return Err(Error::new(span, "a plain type has the layout of C; add `#[repr(C)]`"));
    }
    if let Some(member) = members.iter().find(|member| member.optional) {
        return Err(Error::new(member.id_span, "a plain type has no optional members"));
    }
    let own = &input.ident;
    let types: Vec<_> = members.iter().map(|member| &member.data).collect();
    let message = format!(
        "`{own}` is not plain: there is padding between its members or at its end; order the members by size, \
         largest first, and fill the end with a member"
    );
    Ok(quote! {
        const _: () = {
            const fn is_plain<T: ::spindle_xcdr::Plain>() {}
            #(is_plain::<#types>();)*
            assert!(::core::mem::size_of::<#own>() == 0 #(+ ::core::mem::size_of::<#types>())*, #message);
        };
        // SAFETY: the type has the layout of C and no padding, and each of its members is plain, so
        // every pattern of bits is a value, and each member lies at a multiple of its size.
        #[automatically_derived]
        unsafe impl ::spindle_xcdr::Plain for #own {}
    })
}
