//! Unions.
use crate::attributes::{Extensibility, TypeAttributes, VariantAttributes};
use crate::tokens::{self, Bounds};
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::ext::IdentExt;
use syn::{DataEnum, DeriveInput, Error, Expr, Fields, Ident, Result, Type, Variant};

/// A variant of a union.
struct Case {
    variant: Ident,
    name: String,
    labels: Vec<Expr>,
    default: bool,
    /// Whether the variant holds the discriminator, since several values select it.
    holds_discriminator: bool,
    data: Option<Type>,
    octet: bool,
    bounds: Bounds,
}

/// Returns the implementations for a union.
pub(crate) fn derive(input: &DeriveInput, attributes: &TypeAttributes, data: &DataEnum) -> Result<Tokens> {
    attributes.refuse(
        "a union",
        &[
            (attributes.plain, "plain"),
            (attributes.bitmask, "bitmask"),
            (attributes.bit_bound.map(|(_, span)| span), "bit_bound"),
        ],
    )?;
    let own = &input.ident;
    let Some(discriminator) = &attributes.discriminator else {
        return Err(Error::new(own.span(), "a union has a discriminator; add `discriminator = T`, such as `i32`"));
    };
    let extensibility = attributes.required_extensibility(own)?;
    if let (Extensibility::Mutable, Some((_, span))) = (extensibility, attributes.extensibility) {
        return Err(Error::new(span, "mutable unions are not supported; use `final` or `appendable`"));
    }
    let cases = data.variants.iter().map(|variant| case(variant, discriminator)).collect::<Result<Vec<_>>>()?;
    if let Some(second) = cases.iter().filter(|case| case.default).nth(1) {
        return Err(Error::new(second.variant.span(), "a union has one default; remove the other one"));
    }
    let Some(first) = cases.first() else {
        return Err(Error::new(own.span(), "a union has at least one variant"));
    };
    let name = tokens::type_name(input, attributes);
    let path = tokens::extensibility(extensibility);
    let keyed = attributes.discriminator_key;
    let dds_type = tokens::dds_type(input, &name, &path, keyed);
    let describe = describe(attributes, &name, &path, discriminator, &cases);
    let encode = cases.iter().map(|case| case.encode(own, discriminator, &name));
    let key_arms = cases.iter().map(|case| case.encode_key(own, discriminator));
    let fallback = match cases.iter().find(|case| case.default) {
        Some(case) => (case.decode(own), case.missing(own)),
        None => (
            quote! {
                ::core::result::Result::Err(::spindle_xcdr::derived::no_case(
                    from.decoder(),
                    #name,
                    ::spindle_xcdr::Discriminator::label(discriminator),
                ))
            },
            first.missing_first(own),
        ),
    };
    let (decode_other, missing_other) = fallback;
    let selected = cases.iter().filter(|case| !case.labels.is_empty());
    let decode = selected.clone().map(|case| {
        let (test, value) = (case.test(), case.decode(own));
        quote!(if #test { return #value; })
    });
    let missing: Vec<_> = selected
        .map(|case| {
            let (test, value) = (case.test(), case.missing(own));
            quote!(if #test { return #value; })
        })
        .collect();
    let keys = keyed.then(|| {
        quote! {
            fn encode_key(
                &self,
                to: &mut ::spindle_xcdr::CdrEncoder,
            ) -> ::core::result::Result<(), ::spindle_xcdr::CdrWriteError> {
                to.structure(#path, |to| {
                    let discriminator: #discriminator = match self { #(#key_arms)* };
                    ::spindle_xcdr::Cdr::encode(&discriminator, to.encoder())
                })
            }

            fn decode_key(
                from: &mut ::spindle_xcdr::CdrDecoder<'_>,
            ) -> ::core::result::Result<Self, ::spindle_xcdr::CdrReadError> {
                from.structure(#path, |from| {
                    let discriminator = <#discriminator as ::spindle_xcdr::Cdr>::decode(from.decoder())?;
                    ::core::result::Result::Ok(Self::selected(discriminator))
                })
            }
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl #own {
            /// Returns the union whose member a discriminator selects.
            fn selected(discriminator: #discriminator) -> Self {
                #(#missing)*
                #missing_other
            }
        }
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
                    match self { #(#encode)* }
                    ::core::result::Result::Ok(())
                })
            }

            fn decode(
                from: &mut ::spindle_xcdr::CdrDecoder<'_>,
            ) -> ::core::result::Result<Self, ::spindle_xcdr::CdrReadError> {
                from.structure(#path, |from| {
                    let discriminator = <#discriminator as ::spindle_xcdr::Cdr>::decode(from.decoder())?;
                    #(#decode)*
                    #decode_other
                })
            }

            fn missing() -> Self {
                Self::selected(<#discriminator as ::spindle_xcdr::Cdr>::missing())
            }

            #keys
        }
        #dds_type
    })
}

fn case(variant: &Variant, discriminator: &Type) -> Result<Case> {
    let ident = &variant.ident;
    let attributes = VariantAttributes::read(&variant.attrs, &ident.to_string())?;
    let (labels, default) = (attributes.cases, attributes.default);
    if labels.is_empty() && !default {
        let message = "say which discriminators select the variant: `#[dds(case = 1)]` or `#[dds(default)]`";
        return Err(Error::new(ident.span(), message));
    }
    let holds_discriminator = default || labels.len() > 1;
    let fields: Vec<_> = match &variant.fields {
        Fields::Named(fields) => {
            return Err(Error::new_spanned(fields, "a variant of a union has one member without a name: `A(T)`"));
        }
        Fields::Unnamed(fields) => fields.unnamed.iter().map(|field| field.ty.clone()).collect(),
        Fields::Unit => Vec::new(),
    };
    let is_discriminator = |data: &Type| quote!(#data).to_string() == quote!(#discriminator).to_string();
    let data = match (holds_discriminator, fields.as_slice()) {
        (false, []) => None,
        (false, [data]) => Some(data.clone()),
        (false, _) => return Err(Error::new(ident.span(), "a variant with one label holds one member or none")),
        (true, [first]) if is_discriminator(first) => None,
        (true, [first, data]) if is_discriminator(first) => Some(data.clone()),
        (true, _) => {
            let message = "several discriminators select the variant, so it holds the discriminator, then the \
                           member: `A(D, T)`, or `A(D)` without a member";
            return Err(Error::new(ident.span(), message));
        }
    };
    let name = attributes.name.unwrap_or_else(|| ident.unraw().to_string());
    let bounds = Bounds { own: attributes.bound, element: attributes.element_bound };
    let octet = attributes.octet;
    Ok(Case { variant: ident.clone(), name, labels, default, holds_discriminator, data, octet, bounds })
}

fn describe(
    attributes: &TypeAttributes,
    name: &str,
    extensibility: &Tokens,
    discriminator: &Type,
    cases: &[Case],
) -> Tokens {
    let TypeAttributes { nested, discriminator_key, .. } = attributes;
    let cases = cases.iter().enumerate().map(|(index, case)| {
        let Case { name, labels, default, data, octet, bounds, .. } = case;
        let id = index as u32;
        let data = match data {
            Some(data) => {
                let data = bounds.describe(data, *octet);
                quote!(::core::option::Option::Some(#data))
            }
            None => quote!(::core::option::Option::None),
        };
        let labels = labels.iter().map(|label| {
            quote!({
                let label: #discriminator = #label;
                ::spindle_xcdr::Discriminator::label(label) as i32
            })
        });
        quote! {
            ::spindle_xcdr::CaseType {
                name: ::std::string::String::from(#name),
                id: #id,
                labels: ::std::vec![#(#labels),*],
                default: #default,
                data: #data,
            }
        }
    });
    quote! {
        types.named(#name, |types| {
            ::spindle_xcdr::TypeBody::Union(::spindle_xcdr::UnionType {
                extensibility: #extensibility,
                nested: #nested,
                discriminator: <#discriminator as ::spindle_xcdr::Cdr>::describe(types),
                discriminator_is_key: #discriminator_key,
                cases: ::std::vec![#(#cases),*],
            })
        })
    }
}

impl Case {
    /// Returns the test whether `discriminator` selects this variant by a label.
    fn test(&self) -> Tokens {
        let labels = &self.labels;
        quote!(#(discriminator == (#labels))||*)
    }

    /// Returns the pattern that binds the discriminator and the member by reference.
    fn pattern(&self, own: &Ident) -> Tokens {
        let variant = &self.variant;
        match (self.holds_discriminator, &self.data) {
            (true, Some(_)) => quote!(#own::#variant(discriminator, value)),
            (true, None) => quote!(#own::#variant(discriminator)),
            (false, Some(_)) => quote!(#own::#variant(value)),
            (false, None) => quote!(#own::#variant),
        }
    }

    fn encode(&self, own: &Ident, discriminator: &Type, union: &str) -> Tokens {
        let (pattern, name, labels) = (self.pattern(own), &self.name, &self.labels);
        let select = match (self.holds_discriminator, self.default) {
            (false, _) => quote!(let discriminator: &#discriminator = &(#(#labels)*);),
            (true, true) => quote!(),
            (true, false) => {
                let test = quote!(#(*discriminator == (#labels))||*);
                quote! {
                    if !(#test) {
                        return ::core::result::Result::Err(::spindle_xcdr::derived::wrong_case(
                            #union,
                            ::spindle_xcdr::Discriminator::label(*discriminator),
                        ));
                    }
                }
            }
        };
        let member = self.data.as_ref().map(|_| {
            let check = self.bounds.check_written(&quote!(value), name);
            quote! {
                #check
                ::spindle_xcdr::Cdr::encode(value, to.encoder()).map_err(|error| error.at(#name))?;
            }
        });
        quote! {
            #pattern => {
                #select
                ::spindle_xcdr::Cdr::encode(discriminator, to.encoder())?;
                #member
            }
        }
    }

    /// Returns the arm whose value is the discriminator.
    fn encode_key(&self, own: &Ident, discriminator: &Type) -> Tokens {
        let (variant, labels) = (&self.variant, &self.labels);
        if self.holds_discriminator {
            return quote!(#own::#variant(discriminator, ..) => *discriminator,);
        }
        quote! {
            #own::#variant { .. } => {
                let discriminator: #discriminator = #(#labels)*;
                discriminator
            }
        }
    }

    fn decode(&self, own: &Ident) -> Tokens {
        let (variant, name) = (&self.variant, &self.name);
        let read = self.data.as_ref().map(|data| {
            let read = self.bounds.read(data, &quote::format_ident!("decode"));
            quote!((#read)(from.decoder()).map_err(|error| error.at(#name))?)
        });
        let value = match (self.holds_discriminator, read) {
            (true, Some(read)) => quote!(#own::#variant(discriminator, #read)),
            (true, None) => quote!(#own::#variant(discriminator)),
            (false, Some(read)) => quote!(#own::#variant(#read)),
            (false, None) => quote!(#own::#variant),
        };
        quote!(::core::result::Result::Ok(#value))
    }

    fn missing(&self, own: &Ident) -> Tokens {
        let variant = &self.variant;
        let missing = self.data.as_ref().map(|data| quote!(<#data as ::spindle_xcdr::Cdr>::missing()));
        match (self.holds_discriminator, missing) {
            (true, Some(missing)) => quote!(#own::#variant(discriminator, #missing)),
            (true, None) => quote!(#own::#variant(discriminator)),
            (false, Some(missing)) => quote!(#own::#variant(#missing)),
            (false, None) => quote!(#own::#variant),
        }
    }

    /// Returns the value for a discriminator that selects no variant: that of the first label.
    fn missing_first(&self, own: &Ident) -> Tokens {
        let (Some(label), value) = (self.labels.first(), self.missing(own)) else { return self.missing(own) };
        quote!({
            let discriminator = #label;
            let _ = discriminator;
            #value
        })
    }
}
