//! Bit masks.
use crate::attributes::TypeAttributes;
use crate::tokens;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use std::collections::BTreeMap;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{DeriveInput, Error, Fields, Ident, Result, Type};

/// Returns the implementations for a bit mask.
pub(crate) fn derive(input: &DeriveInput, attributes: &TypeAttributes, fields: &Fields) -> Result<Tokens> {
    attributes.refuse(
        "a bit mask",
        &[
            (attributes.plain, "plain"),
            (attributes.union, "union"),
            (attributes.discriminator.as_ref().map(Spanned::span), "discriminator"),
            (attributes.extensibility.map(|(_, span)| span), "final` or `appendable` or `mutable"),
        ],
    )?;
    let (holder, bits) = holder(input, fields)?;
    let bit_bound = match attributes.bit_bound {
        None => bits,
        Some((bound, span)) => {
            let smallest = [8, 16, 32, 64].into_iter().find(|bits| bound <= *bits);
            if bound == 0 || smallest != Some(bits) {
                let needed = smallest.map_or_else(|| "no integer".to_owned(), |bits| format!("u{bits}"));
                return Err(Error::new(span, format!("a bit mask of {bound} bits holds {needed}, not u{bits}")));
            }
            bound
        }
    };
    let mut positions = BTreeMap::new();
    let mut flags = Vec::new();
    for (flag, literal) in &attributes.flags {
        let position: u16 = literal.base10_parse()?;
        if position >= bit_bound {
            let message = format!("flag `{flag}` is at position {position}, and there are {bit_bound} bits");
            return Err(Error::new(literal.span(), message));
        }
        if let Some(other) = positions.insert(position, flag) {
            let message = format!("flags `{other}` and `{flag}` have the same position {position}");
            return Err(Error::new(literal.span(), message));
        }
        flags.push((flag, flag.unraw().to_string(), position));
    }
    let own = &input.ident;
    let name = tokens::type_name(input, attributes);
    let bytes = bits / 8;
    let code = tokens::length_code(bytes);
    let size = usize::from(bytes);
    let dds_type = tokens::dds_type(input, &name, &quote!(::spindle_xcdr::Extensibility::Final), false);
    let visibility = &input.vis;
    let constants = flags.iter().map(|(flag, name, position)| {
        let about = format!("The flag `{name}`: bit {position}.");
        quote!(#[doc = #about] #visibility const #flag: #own = #own(1 << #position);)
    });
    let descriptions = flags.iter().map(|(_, name, position)| quote!((::std::string::String::from(#name), #position)));
    Ok(quote! {
        #[allow(dead_code, non_upper_case_globals, unreachable_pub)]
        impl #own {
            #(#constants)*
        }
        #[automatically_derived]
        impl ::spindle_xcdr::Cdr for #own {
            const LENGTH_CODE: ::spindle_xcdr::LengthCode = #code;
            const SIZE_MIN: usize = #size;

            fn describe(types: &mut ::spindle_xcdr::TypeCollector) -> ::spindle_xcdr::DataType {
                types.named(#name, |_| {
                    ::spindle_xcdr::TypeBody::Bitmask(::spindle_xcdr::BitmaskType {
                        bit_bound: #bit_bound,
                        flags: ::std::vec![#(#descriptions),*],
                    })
                })
            }

            fn encode(
                &self,
                to: &mut ::spindle_xcdr::CdrEncoder,
            ) -> ::core::result::Result<(), ::spindle_xcdr::CdrWriteError> {
                to.number(self.0.to_ne_bytes());
                ::core::result::Result::Ok(())
            }

            fn decode(
                from: &mut ::spindle_xcdr::CdrDecoder<'_>,
            ) -> ::core::result::Result<Self, ::spindle_xcdr::CdrReadError> {
                ::core::result::Result::Ok(#own(#holder::from_ne_bytes(from.number()?)))
            }

            fn missing() -> Self {
                #own(0)
            }
        }
        #[automatically_derived]
        impl ::spindle_xcdr::Bitmask for #own {
            fn bits(self) -> u64 {
                self.0.into()
            }

            fn from_bits(bits: u64) -> Self {
                #own(bits as #holder)
            }
        }
        #dds_type
    })
}

/// Returns the integer of a bit mask, and its bits.
fn holder(input: &DeriveInput, fields: &Fields) -> Result<(Ident, u16)> {
    if let Fields::Unnamed(fields) = fields
        && fields.unnamed.len() == 1
        && let Type::Path(path) = &fields.unnamed[0].ty
        && let Some(ident) = path.path.get_ident()
    {
        let bits = [("u8", 8), ("u16", 16), ("u32", 32), ("u64", 64)];
        if let Some((_, bits)) = bits.iter().find(|(name, _)| ident == name) {
            return Ok((ident.clone(), *bits));
        }
    }
    Err(Error::new(input.ident.span(), "a bit mask holds one integer: `u8`, `u16`, `u32` or `u64`"))
}
