//! Macros without parameters.
use super::pieces::{is_identifier, pieces};
use crate::fault::IdlFault;
use crate::limits::{EXPANSIONS_MAX, MACRO_DEPTH_MAX, UNIT_BYTES_MAX};
use std::collections::BTreeMap;

/// The macros that are defined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Macros {
    texts: BTreeMap<String, String>,
    /// How many uses were replaced.
    expansions: usize,
}

impl Macros {
    /// Defines a macro.
    ///
    /// # Errors
    /// `MacroTwice` if it has another text.
    pub(crate) fn define(&mut self, name: &str, text: &str) -> Result<(), IdlFault> {
        match self.texts.insert(name.to_owned(), text.to_owned()) {
            Some(before) if before != text => Err(IdlFault::MacroTwice { name: name.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Defines a macro from `NAME` or `NAME=VALUE`; its text is `1` without a value.
    ///
    /// # Errors
    /// `DefineForm` if it has another form.
    pub(crate) fn define_argument(&mut self, argument: &str) -> Result<(), IdlFault> {
        let (name, text) = argument.split_once('=').unwrap_or((argument, "1"));
        if !is_identifier(name) || text.contains(['\n', '\r']) {
            return Err(IdlFault::DefineForm { text: argument.to_owned() });
        }
        self.texts.insert(name.to_owned(), text.to_owned());
        Ok(())
    }

    pub(super) fn undefine(&mut self, name: &str) {
        self.texts.remove(name);
    }

    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.texts.contains_key(name)
    }

    /// Returns the text that replaces a word; `None` if it is no macro.
    pub(super) fn replacement(&mut self, word: &str) -> Result<Option<String>, IdlFault> {
        if !self.is_defined(word) {
            return Ok(None);
        }
        let mut text = String::new();
        self.expand(word, &mut Vec::new(), &mut text)?;
        Ok(Some(text))
    }

    /// Replaces the macros of a text.
    pub(super) fn replace_all(&mut self, text: &str) -> Result<String, IdlFault> {
        let mut out = String::new();
        for piece in pieces(text) {
            match piece.is_word {
                true => self.expand(piece.text, &mut Vec::new(), &mut out)?,
                false => out.push_str(piece.text),
            }
        }
        Ok(out)
    }

    /// Appends the text of a word. A macro does not replace its own name in its text.
    fn expand(&mut self, word: &str, within: &mut Vec<String>, out: &mut String) -> Result<(), IdlFault> {
        let text = match self.texts.get(word) {
            Some(text) if !within.iter().any(|name| name == word) => text.clone(),
            _ => {
                out.push_str(word);
                return Ok(());
            }
        };
        self.expansions += 1;
        if self.expansions > EXPANSIONS_MAX {
            return Err(IdlFault::MacroCount { limit: EXPANSIONS_MAX });
        }
        if within.len() == MACRO_DEPTH_MAX {
            return Err(IdlFault::MacroDepth { limit: MACRO_DEPTH_MAX });
        }
        within.push(word.to_owned());
        for piece in pieces(&text) {
            match piece.is_word {
                true => self.expand(piece.text, within, out)?,
                false => out.push_str(piece.text),
            }
            if out.len() > UNIT_BYTES_MAX {
                return Err(IdlFault::UnitSize { limit: UNIT_BYTES_MAX });
            }
        }
        within.pop();
        Ok(())
    }
}
