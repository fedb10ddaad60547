//! Enumerations.
use crate::attributes::{TypeAttributes, VariantAttributes};
use crate::tokens;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DataEnum, DeriveInput, Error, Result};

/// Returns the implementations for an enumeration.
pub(crate) fn derive(input: &DeriveInput, attributes: &TypeAttributes, data: &DataEnum) -> Result<Tokens> {
    attributes.refuse(
        "an enumeration",
        &[
            (attributes.plain, "plain"),
            (attributes.bitmask, "bitmask"),
            (attributes.discriminator.as_ref().map(Spanned::span), "discriminator"),
            (attributes.extensibility.map(|(_, span)| span), "final` or `appendable` or `mutable"),
        ],
    )?;
    let Some(first) = data.variants.first() else {
        return Err(Error::new(input.ident.span(), "an enumeration has at least one literal"));
    };
    let (bits, bytes, holder) = match attributes.bit_bound {
        None => (32, 4, quote!(i32)),
        Some((bits @ 1..=8, _)) => (bits, 1, quote!(i8)),
        Some((bits @ 9..=16, _)) => (bits, 2, quote!(i16)),
        Some((bits @ 17..=32, _)) => (bits, 4, quote!(i32)),
        Some((bits, span)) => {
            return Err(Error::new(span, format!("an enumeration has 1 to 32 bits, not {bits}")));
        }
    };
    let own = &input.ident;
    let name = tokens::type_name(input, attributes);
    let code = tokens::length_code(bytes);
    let size = usize::from(bytes);
    let dds_type = tokens::dds_type(input, &name, &quote!(::spindle_xcdr::Extensibility::Final), false);
    let mut default = &first.ident;
    let mut literals = Vec::new();
    for variant in &data.variants {
        let ident = &variant.ident;
        let read = VariantAttributes::read(&variant.attrs, &ident.to_string())?;
        if let Some(case) = read.cases.first() {
            return Err(Error::new_spanned(case, "a literal has no `case`; write its value as `Literal = 1`"));
        }
        if read.default {
            default = ident;
        }
        let name = read.name.unwrap_or_else(|| ident.unraw().to_string());
        literals.push((ident, name));
    }
    let descriptions = literals.iter().map(|(ident, name)| {
        let is_default = *ident == default;
        quote! {
            ::spindle_xcdr::EnumLiteral {
                name: ::std::string::String::from(#name),
                value: #own::#ident as i32,
                default: #is_default,
            }
        }
    });
    let idents = literals.iter().map(|(ident, _)| ident);
    Ok(quote! {
        #[automatically_derived]
        impl ::spindle_xcdr::Cdr for #own {
            const LENGTH_CODE: ::spindle_xcdr::LengthCode = #code;
            const SIZE_MIN: usize = #size;

            fn describe(types: &mut ::spindle_xcdr::TypeCollector) -> ::spindle_xcdr::DataType {
                types.named(#name, |_| {
                    ::spindle_xcdr::TypeBody::Enum(::spindle_xcdr::EnumType {
                        bit_bound: #bits,
                        literals: ::std::vec![#(#descriptions),*],
                    })
                })
            }

            fn encode(
                &self,
                to: &mut ::spindle_xcdr::CdrEncoder,
            ) -> ::core::result::Result<(), ::spindle_xcdr::CdrWriteError> {
                let value = ::spindle_xcdr::Discriminator::label(*self) as #holder;
                to.number(value.to_ne_bytes());
                ::core::result::Result::Ok(())
            }

            fn decode(
                from: &mut ::spindle_xcdr::CdrDecoder<'_>,
            ) -> ::core::result::Result<Self, ::spindle_xcdr::CdrReadError> {
                let value = #holder::from_ne_bytes(from.number()?);
                #(if value == #own::#idents as #holder {
                    return ::core::result::Result::Ok(#own::#idents);
                })*
                ::core::result::Result::Err(::spindle_xcdr::derived::no_literal(from, #name, value.into()))
            }

            fn missing() -> Self {
                #own::#default
            }
        }
        #[automatically_derived]
        impl ::spindle_xcdr::Discriminator for #own {
            fn label(self) -> i64 {
                self as i64
            }
        }
        #dds_type
    })
}
