//! The generated parser of `idl.pest`.
#![allow(missing_docs, reason = "the generated rules have no documentation")]

#[derive(pest_derive::Parser)]
#[grammar = "idl.pest"]
pub(crate) struct IdlParser;
