//! A compiler of OMG IDL 4.2 for DDS. It makes Rust with `#[derive(DdsType)]` of `spindle-xcdr`.
//!
//! Read [`Compiler`] first. A compilation has four parts, each of which knows only those before:
//!
//! 1. `preprocess` removes comments and directives, and keeps the place of each byte.
//! 2. `parse` makes a syntax tree, with the parser that pest makes from `idl.pest`.
//! 3. `resolve` looks names up, evaluates constants and checks types. Its result is a [`Model`].
//! 4. `rust` writes the Rust.
//!
//! Hostile input ends in an error: depth, size and the number of steps have limits. It does no I/O but
//! to read files, and in [`build`] to write one.
#![forbid(unsafe_code)]

mod compiler;
mod error;
mod expected;
mod fault;
mod grammar;
mod limits;
mod literal;
mod model;
mod parse;
mod preprocess;
mod resolve;
mod rust;
mod script;
mod source;
mod syntax;

pub use compiler::{Compiler, Generated};
pub use error::{Diagnostic, IdlError, IdlErrors, IdlWarning};
pub use fault::{IdlFault, IdlNotice};
pub use model::{
    BitmaskItem, DataType, EnumItem, EnumLiteral, Extensibility, IdFrom, Item, ItemId, ItemKind, Model, Primitive,
    StructItem, StructMember, UnionCase, UnionItem, Value,
};
pub use script::{BuildError, build};
pub use source::{FileId, Place};
