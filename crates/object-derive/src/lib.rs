//! The attribute `commands` of `spindle-object`, which exports and documents it.
//!
//! `parse.rs` reads the methods, with all mistakes that a user can make; this file writes the code.
#![forbid(unsafe_code)]

mod parse;

use parse::{Attribute, Command, Commands};
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{ItemImpl, parse_macro_input};

/// Makes commands of the methods of an `impl` block that have the attribute `#[command]`.
///
/// It implements `StateMachine` for the type, and defines a type with the name of the type and
/// `Calls`, which has a function for each command: it takes the arguments and returns a `Call`.
///
/// A command takes `&mut self`, then perhaps a `&mut Context`, then up to 16 arguments: types with
/// serde, `&str`, or other references that serde can lend from bytes. Its reply is an owned type with
/// serde.
///
/// A method with the attribute `#[query]` takes `&self` instead, and no context. `Replicated::query` asks
/// one member for it. The type with the name of the type and `Queries` has a function for each.
///
/// | attribute | meaning |
/// |---|---|
/// | `#[commands(state = 2)]` | the number of the format of the state; 0 by default |
/// | `#[command]` | a command whose number is the FNV-1a hash of its name |
/// | `#[command(id = 7)]` | a command with this number, which may be renamed |
/// | `#[command(since = 2)]` | a command that is executed once every member has version 2; 1 by default |
/// | `#[query]`, `#[query(id = 7)]` | a query, with a number as a command has |
///
/// A command that exists may not change: neither its types nor, without a given number, its name.
/// Add another one with a later version.
#[proc_macro_attribute]
pub fn commands(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let attribute = parse_macro_input!(attribute as Attribute);
    let mut item = parse_macro_input!(item as ItemImpl);
    match Commands::read(&attribute, &mut item) {
        Ok(commands) => {
            let generated = generate(&commands);
            quote!(#item #generated).into()
        }
        Err(error) => error.into_compile_error().into(),
    }
}

fn generate(Commands { object, name, state, commands, queries }: &Commands) -> Tokens {
    let calls = format_ident!("{name}Calls");
    let about = format!("The calls of the commands of [`{name}`].");
    let version = commands.iter().map(|command| command.since).max();
    let specs = commands.iter().map(spec);
    let functions = commands.iter().map(|command| function(command, object, "call"));
    let arms = commands.iter().map(arm);
    let of_queries = (!queries.is_empty()).then(|| queries_of(name, object, queries));
    let query_specs = queries.iter().map(query_spec);
    let query_arms = queries.iter().map(arm);
    quote! {
        #[doc = #about]
        #[allow(dead_code, unreachable_pub)]
        #[derive(Debug)]
        pub enum #calls {}

        #[automatically_derived]
        #[allow(dead_code, private_interfaces, unreachable_pub)]
        impl #calls {
            #(#functions)*
        }

        #of_queries

        #[automatically_derived]
        impl ::spindle_object::StateMachine for #object {
            const COMMANDS: &'static [::spindle_object::CommandSpec] = &[#(#specs),*];
            const STATE: u32 = #state;
            const VERSION: u32 = #version;
            const QUERIES: &'static [::spindle_object::QuerySpec] = &[#(#query_specs),*];

            fn execute(
                &mut self,
                command: u32,
                arguments: &[u8],
                context: &mut ::spindle_object::Context,
            ) -> ::core::result::Result<::std::vec::Vec<u8>, ::spindle_object::ExecuteError> {
                match command {
                    #(#arms)*
                    id => ::core::result::Result::Err(::spindle_object::ExecuteError::UnknownCommand { id }),
                }
            }

            #[allow(unused_variables)]
            fn answer(
                &self,
                query: u32,
                arguments: &[u8],
            ) -> ::core::result::Result<::std::vec::Vec<u8>, ::spindle_object::ExecuteError> {
                match query {
                    #(#query_arms)*
                    id => ::core::result::Result::Err(::spindle_object::ExecuteError::UnknownCommand { id }),
                }
            }
        }
    }
}

fn spec(Command { id, name, since, signature, .. }: &Command) -> Tokens {
    let name = name.to_string();
    quote!(::spindle_object::CommandSpec { id: #id, name: #name, since: #since, signature: #signature })
}

/// The type with the functions that make queries.
fn queries_of(name: &syn::Ident, object: &syn::Type, queries: &[Command]) -> Tokens {
    let all = format_ident!("{name}Queries");
    let about = format!("The queries of [`{name}`].");
    let functions = queries.iter().map(|query| function(query, object, "query"));
    quote! {
        #[doc = #about]
        #[allow(dead_code, unreachable_pub)]
        #[derive(Debug)]
        pub enum #all {}

        #[automatically_derived]
        #[allow(dead_code, private_interfaces, unreachable_pub)]
        impl #all {
            #(#functions)*
        }
    }
}

fn query_spec(Command { id, name, signature, .. }: &Command) -> Tokens {
    let name = name.to_string();
    quote!(::spindle_object::QuerySpec { id: #id, name: #name, signature: #signature })
}

/// The function that makes a call, or a query.
fn function(command: &Command, object: &syn::Type, role: &str) -> Tokens {
    let Command { name, visibility, arguments, types, reply, .. } = command;
    let about = format!("A {role} of [`{name}`]({}::{name}).", command.object);
    let (made, spec) = match role {
        "query" => (quote!(::spindle_object::Query), query_spec(command)),
        _ => (quote!(::spindle_object::Call), spec(command)),
    };
    quote! {
        #[doc = #about]
        #visibility fn #name(#(#arguments: #types),*) -> #made<#object, #reply> {
            #made::new(#spec, &(#(&#arguments,)*))
        }
    }
}

/// The arm that executes a command, or answers a query.
fn arm(Command { id, name, arguments, types, takes_context, .. }: &Command) -> Tokens {
    let context = if *takes_context { quote!(context,) } else { quote!() };
    quote! {
        #id => {
            let (#(#arguments,)*): (#(#types,)*) = ::spindle_object::decode_arguments(arguments)?;
            ::spindle_object::encode_reply(&self.#name(#context #(#arguments),*))
        }
    }
}
