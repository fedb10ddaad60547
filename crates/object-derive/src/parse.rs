//! Reads the methods that are commands or queries.
use proc_macro2::Span;
use quote::ToTokens;
use std::collections::BTreeMap;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute as Attr, Error, FnArg, Ident, ImplItem, ImplItemFn, ItemImpl, LitInt, Pat, Result, ReturnType, Token,
    Type, Visibility, parse_quote,
};

/// The most arguments: serde implements its traits for tuples of this length.
const ARGUMENTS_MAX: usize = 16;

/// The attribute of the block: `state = N`.
pub(crate) struct Attribute {
    state: u32,
}

/// All commands of a block.
pub(crate) struct Commands {
    pub(crate) object: Type,
    pub(crate) name: Ident,
    pub(crate) state: u32,
    pub(crate) commands: Vec<Command>,
    pub(crate) queries: Vec<Command>,
}

/// The part of a method in the object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Command,
    Query,
}

impl Role {
    /// Returns the role by the attributes of a method, and removes its attribute.
    fn take(method: &mut ImplItemFn) -> Result<Option<(Role, Attr)>> {
        let is_role = |attribute: &Attr| Role::of(attribute).is_some();
        let Some(at) = method.attrs.iter().position(is_role) else { return Ok(None) };
        let attribute = method.attrs.remove(at);
        let role = Role::of(&attribute).expect("it was found by that");
        if let Some(second) = method.attrs.iter().find(|attribute| is_role(attribute)) {
            let message = match Role::of(second) == Some(role) {
                true => format!("one `#[{}]` is enough", role.name()),
                false => "a method is a command or a query".to_owned(),
            };
            return Err(Error::new(second.span(), message));
        }
        Ok(Some((role, attribute)))
    }

    fn of(attribute: &Attr) -> Option<Role> {
        [Role::Command, Role::Query].into_iter().find(|role| attribute.path().is_ident(role.name()))
    }

    fn name(self) -> &'static str {
        match self {
            Role::Command => "command",
            Role::Query => "query",
        }
    }
}

/// One command, or one query.
pub(crate) struct Command {
    pub(crate) id: u32,
    pub(crate) object: Ident,
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) since: u32,
    pub(crate) signature: String,
    pub(crate) takes_context: bool,
    pub(crate) arguments: Vec<Ident>,
    pub(crate) types: Vec<Type>,
    pub(crate) reply: Type,
}

impl Parse for Attribute {
    fn parse(input: ParseStream<'_>) -> Result<Attribute> {
        let mut state = 0;
        for (key, value) in keys(input)? {
            match key.to_string().as_str() {
                "state" => state = value,
                _ => return Err(Error::new(key.span(), "unknown key: `commands` has the key `state`")),
            }
        }
        Ok(Attribute { state })
    }
}

/// Reads `key = number, …`.
fn keys(input: ParseStream<'_>) -> Result<Vec<(Ident, u32)>> {
    let mut keys = vec![];
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        keys.push((key, input.parse::<LitInt>()?.base10_parse()?));
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(keys)
}

impl Commands {
    /// Reads the commands of a block, and removes their attributes.
    pub(crate) fn read(attribute: &Attribute, item: &mut ItemImpl) -> Result<Commands> {
        if let Some((_, path, _)) = &item.trait_ {
            return Err(Error::new(path.span(), "`commands` belongs on an impl block of a type, not of a trait"));
        }
        if !item.generics.params.is_empty() {
            return Err(Error::new(item.generics.span(), "an object can't be generic: write the types out"));
        }
        let object = (*item.self_ty).clone();
        let name = match &object {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.clone()),
            _ => None,
        };
        let name = name.ok_or_else(|| Error::new(object.span(), "an object is a struct or an enum with a name"))?;
        let (mut commands, mut queries) = (vec![], vec![]);
        let (mut of_commands, mut of_queries): (BTreeMap<u32, Ident>, BTreeMap<u32, Ident>) = Default::default();
        for method in item.items.iter_mut() {
            let ImplItem::Fn(method) = method else { continue };
            let Some((role, attribute)) = Role::take(method)? else { continue };
            let command = Command::read(method, role, &attribute, &name)?;
            let (names, list) = match role {
                Role::Command => (&mut of_commands, &mut commands),
                Role::Query => (&mut of_queries, &mut queries),
            };
            if let Some(other) = names.insert(command.id, command.name.clone()) {
                let message =
                    format!("`{}` and `{other}` have the same number {}: give one an `id`", command.name, command.id);
                return Err(Error::new(command.name.span(), message));
            }
            list.push(command);
        }
        if commands.is_empty() {
            return Err(Error::new(Span::call_site(), "no method is a command: mark some with `#[command]`"));
        }
        Ok(Commands { object, name, state: attribute.state, commands, queries })
    }
}

impl Command {
    fn read(method: &ImplItemFn, role: Role, attribute: &Attr, object: &Ident) -> Result<Command> {
        let a_role = format!("a {}", role.name());
        if let Some(cfg) = method.attrs.iter().find(|attribute| attribute.path().is_ident("cfg")) {
            return Err(Error::new(
                cfg.span(),
                format!("{a_role} can't depend on the build: all members need the same ones"),
            ));
        }
        let name = method.sig.ident.clone();
        let (mut id, mut since) = (fnv1a(&name.to_string()), 1);
        if let syn::Meta::List(list) = &attribute.meta {
            for (key, value) in list.parse_args_with(keys)? {
                match key.to_string().as_str() {
                    "id" => id = value,
                    "since" if role == Role::Query => {
                        return Err(Error::new(key.span(), "a query has no version: its number is its only key"));
                    }
                    "since" if value == 0 => return Err(Error::new(key.span(), "versions begin with 1")),
                    "since" => since = value,
                    _ if role == Role::Query => {
                        return Err(Error::new(key.span(), "unknown key: `query` has the key `id`"));
                    }
                    _ => return Err(Error::new(key.span(), "unknown key: `command` has the keys `id` and `since`")),
                }
            }
        }
        let signature = &method.sig;
        if let Some(asyncness) = &signature.asyncness {
            return Err(Error::new(asyncness.span(), format!("{a_role} can't be async: it may wait for nothing")));
        }
        if !signature.generics.params.is_empty() {
            return Err(Error::new(
                signature.generics.span(),
                format!("{a_role} can't be generic: write the types out"),
            ));
        }
        let mut inputs = signature.inputs.iter();
        match inputs.next() {
            Some(FnArg::Receiver(this)) if role == Role::Query && this.mutability.is_some() => {
                return Err(Error::new(this.span(), "a query takes `&self`: it changes nothing"));
            }
            Some(FnArg::Receiver(this)) if this.reference.is_some() && this.colon_token.is_none() => {}
            _ if role == Role::Query => return Err(Error::new(name.span(), "a query takes `&self`")),
            _ => return Err(Error::new(name.span(), "a command takes `&mut self`")),
        }
        let (mut takes_context, mut arguments, mut types) = (false, vec![], vec![]);
        for (i, input) in inputs.enumerate() {
            let FnArg::Typed(input) = input else { continue };
            if is_context(&input.ty) && role == Role::Query {
                return Err(Error::new(input.span(), "a query has no context: it has no place in the order"));
            }
            if is_context(&input.ty) {
                if i > 0 {
                    return Err(Error::new(input.span(), "the context is the first argument after `self`"));
                }
                takes_context = true;
                continue;
            }
            check_type(&input.ty)?;
            if matches!(&*input.ty, Type::Reference(reference) if reference.mutability.is_some()) {
                return Err(Error::new(
                    input.ty.span(),
                    "an argument can't be changed: return the change as the reply",
                ));
            }
            match &*input.pat {
                Pat::Ident(pattern) if pattern.by_ref.is_none() && pattern.subpat.is_none() => {
                    arguments.push(pattern.ident.clone());
                }
                other => return Err(Error::new(other.span(), "an argument is a name, no pattern")),
            }
            types.push((*input.ty).clone());
        }
        if types.len() > ARGUMENTS_MAX {
            let message =
                format!("{a_role} has up to {ARGUMENTS_MAX} arguments, and this has {}: pass a struct", types.len());
            return Err(Error::new(name.span(), message));
        }
        let reply = match &signature.output {
            ReturnType::Default => parse_quote!(()),
            ReturnType::Type(_, reply) => (**reply).clone(),
        };
        check_type(&reply)?;
        if let Type::Reference(reference) = &reply {
            return Err(Error::new(reference.span(), "a reply is sent to the caller: return an owned value"));
        }
        let listed: Vec<String> = types.iter().map(text).collect();
        let signature = format!("({})->{}", listed.join(","), text(&reply));
        let (object, visibility) = (object.clone(), method.vis.clone());
        Ok(Command { id, object, name, visibility, since, signature, takes_context, arguments, types, reply })
    }
}

/// Refuses types that mean something else outside of the block.
fn check_type(of: &Type) -> Result<()> {
    if let Type::ImplTrait(found) = of {
        return Err(Error::new(found.span(), "commands and queries can't be generic: write the type out"));
    }
    let mentions_self = |tokens: proc_macro2::TokenStream| mentions(tokens, "Self");
    if mentions_self(of.to_token_stream()) {
        return Err(Error::new(of.span(), "write the name of the type instead of `Self`"));
    }
    Ok(())
}

fn mentions(tokens: proc_macro2::TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        proc_macro2::TokenTree::Ident(ident) => ident == name,
        proc_macro2::TokenTree::Group(group) => mentions(group.stream(), name),
        _ => false,
    })
}

fn is_context(of: &Type) -> bool {
    let Type::Reference(reference) = of else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "Context")
}

/// Returns a type as text without the spaces that depend on the compiler.
fn text(of: &Type) -> String {
    let tokens = of.to_token_stream().to_string();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut text = String::new();
    for part in tokens.split_whitespace() {
        if text.ends_with(is_word) && part.starts_with(is_word) {
            text.push(' ');
        }
        text.push_str(part);
    }
    text
}

/// Returns the FNV-1a hash of 32 bits.
fn fnv1a(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
