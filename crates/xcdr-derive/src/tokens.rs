//! Code that every kind of type has.
use crate::attributes::{Extensibility, TypeAttributes};
use md5::{Digest, Md5};
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::ext::IdentExt;
use syn::{DeriveInput, GenericArgument, Ident, PathArguments, Type};

/// Returns the path of an extensibility.
pub(crate) fn extensibility(extensibility: Extensibility) -> Tokens {
    match extensibility {
        Extensibility::Final => quote!(::spindle_xcdr::Extensibility::Final),
        Extensibility::Appendable => quote!(::spindle_xcdr::Extensibility::Appendable),
        Extensibility::Mutable => quote!(::spindle_xcdr::Extensibility::Mutable),
    }
}

/// Returns the name of the type in DDS.
pub(crate) fn type_name(input: &DeriveInput, attributes: &TypeAttributes) -> String {
    attributes.name.clone().unwrap_or_else(|| input.ident.unraw().to_string())
}

/// Returns the implementation of `DdsType`.
pub(crate) fn dds_type(input: &DeriveInput, name: &str, extensibility: &Tokens, keyed: bool) -> Tokens {
    let own = &input.ident;
    quote! {
        #[automatically_derived]
        impl ::spindle_xcdr::DdsType for #own {
            const NAME: &'static str = #name;
            const EXTENSIBILITY: ::spindle_xcdr::Extensibility = #extensibility;
            const KEYED: bool = #keyed;
        }
    }
}

/// Returns the length code of an integer with this many bytes.
pub(crate) fn length_code(bytes: u16) -> Tokens {
    match bytes {
        1 => quote!(::spindle_xcdr::LengthCode::One),
        2 => quote!(::spindle_xcdr::LengthCode::Two),
        4 => quote!(::spindle_xcdr::LengthCode::Four),
        _ => quote!(::spindle_xcdr::LengthCode::Eight),
    }
}

/// Returns the identifier that is the hash of a name (DDS-XTypes 1.3, 7.3.1.2.1.1).
pub(crate) fn hash_id(name: &str) -> u32 {
    let digest: [u8; 16] = Md5::digest(name.as_bytes()).into();
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]) & 0x0fff_ffff
}

/// Returns the argument of `Option<T>` or `Box<T>`.
pub(crate) fn argument_of<'a>(data: &'a Type, wrapper: &str) -> Option<&'a Type> {
    let Type::Path(path) = data else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == wrapper)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(argument)) => Some(argument),
        _ => None,
    }
}

/// The bounds of a member.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) own: u32,
    pub(crate) element: u32,
}

impl Bounds {
    /// Returns statements that refuse to write a value beyond its bounds.
    pub(crate) fn check_written(self, value: &Tokens, name: &str) -> Tokens {
        let Bounds { own, element } = self;
        let own = (own > 0).then(|| quote!(::spindle_xcdr::Bounded::exceeded(#value, #own)));
        let element = (element > 0).then(|| quote!(::spindle_xcdr::ElementBounded::element_exceeded(#value, #element)));
        let checks = own.into_iter().chain(element);
        quote!(#(::spindle_xcdr::derived::check_written(#checks, #name)?;)*)
    }

    /// Returns a closure that reads a value and refuses it beyond its bounds.
    pub(crate) fn read(self, data: &Type, function: &Ident) -> Tokens {
        let Bounds { own, element } = self;
        let own = (own > 0).then(|| quote!(::spindle_xcdr::Bounded::exceeded(&value, #own)));
        let element = (element > 0).then(|| quote!(::spindle_xcdr::ElementBounded::element_exceeded(&value, #element)));
        let checks: Vec<_> = own.into_iter().chain(element).collect();
        if checks.is_empty() {
            return quote!(<#data as ::spindle_xcdr::Cdr>::#function);
        }
        quote! {
            |from: &mut ::spindle_xcdr::CdrDecoder<'_>| -> ::core::result::Result<#data, ::spindle_xcdr::CdrReadError> {
                let value = <#data as ::spindle_xcdr::Cdr>::#function(from)?;
                #(::spindle_xcdr::derived::check_read(#checks, from)?;)*
                ::core::result::Result::Ok(value)
            }
        }
    }

    /// Returns the description of a type with these bounds.
    pub(crate) fn describe(self, data: &Type, octet: bool) -> Tokens {
        let Bounds { own, element } = self;
        let bounded = (own > 0 || element > 0).then(|| quote!(.bounded(#own, #element)));
        let octets = octet.then(|| quote!(.octets()));
        quote!(<#data as ::spindle_xcdr::Cdr>::describe(types) #bounded #octets)
    }
}
