//! The tree that both formats are read into.

/// A named part of a source: an element or an attribute of XML, a key of TOML.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: String,
    /// The offset of the name, in bytes.
    pub(super) at: usize,
    /// The offset of the value, in bytes.
    pub(super) value_at: usize,
    /// Whether it is an attribute of XML.
    pub(super) is_attribute: bool,
    pub(super) raw: Raw,
}

/// A value before its check.
#[derive(Debug)]
pub(super) enum Raw {
    /// The text of an element or an attribute, or a string of TOML.
    Text(String),
    /// A number of TOML.
    Integer(Option<i128>, String),
    /// A truth value of TOML.
    Bool(bool),
    /// A list of TOML.
    List(Vec<Item>),
    /// The children and attributes of an element, or a table of TOML.
    Table(Vec<Item>),
    /// A value of TOML that nothing accepts, in words.
    Other(String),
}
