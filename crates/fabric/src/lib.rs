//! (see ARCHITECTURE.md)

pub mod probe;
