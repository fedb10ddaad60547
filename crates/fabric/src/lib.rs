//! (see ARCHITECTURE.md)
pub mod meet;
