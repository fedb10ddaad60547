//! The preprocessor: comments, includes, conditions and macros without parameters.
//!
//! It writes the text of one input file with its includes ([`Unit`]), which knows the place of each
//! byte. It ends at the first error. `#pragma keylist` stays in the text, as it belongs to a scope.
mod comments;
mod condition;
mod macros;
mod pieces;
mod unit;

pub(crate) use macros::Macros;
pub(crate) use unit::Unit;

use crate::error::{Checked, Found};
use crate::fault::{IdlFault, IdlNotice};
use crate::limits::{CONDITIONS_MAX, FILE_BYTES_MAX, INCLUDE_DEPTH_MAX, INCLUDES_MAX, LINE_BYTES_MAX, UNIT_BYTES_MAX};
use crate::source::{FileId, Place, Sources};
use comments::Bare;
use pieces::{is_identifier, pieces};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Reads a file of at most [`FILE_BYTES_MAX`] bytes.
pub(crate) fn load(path: &Path, sources: &mut Sources) -> Result<FileId, IdlFault> {
    let cause = |error: std::io::Error| IdlFault::File { cause: error.to_string() };
    let file = std::fs::File::open(path).map_err(cause)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(cause)?;
    if bytes.len() > FILE_BYTES_MAX {
        let bytes = std::fs::metadata(path).map_or(bytes.len() as u64, |about| about.len());
        return Err(IdlFault::FileSize { bytes, limit: FILE_BYTES_MAX });
    }
    let text = String::from_utf8(bytes).map_err(|_| IdlFault::Encoding)?;
    let identity = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    Ok(sources.add(path, &identity, text))
}

/// Makes the text of a file that was loaded.
pub(crate) fn preprocess(
    file: FileId,
    includes: &[PathBuf],
    macros: Macros,
    sources: &mut Sources,
    warnings: &mut Vec<Found<IdlNotice>>,
) -> Checked<Unit> {
    let mut own = Preprocessor {
        sources,
        includes,
        macros,
        unit: Unit::default(),
        stack: Vec::new(),
        once: BTreeSet::new(),
        included: 0,
        warnings,
    };
    own.file(file)?;
    Ok(own.unit)
}

struct Preprocessor<'a> {
    sources: &'a mut Sources,
    includes: &'a [PathBuf],
    macros: Macros,
    unit: Unit,
    /// The files that include each other at present.
    stack: Vec<FileId>,
    /// The files with `#pragma once`.
    once: BTreeSet<FileId>,
    included: usize,
    warnings: &'a mut Vec<Found<IdlNotice>>,
}

/// A condition that is open.
struct Condition {
    directive: String,
    place: Place,
    /// Whether its text counts.
    is_active: bool,
    /// Whether one of its branches was chosen.
    is_taken: bool,
    /// Whether the text around it counts.
    is_reached: bool,
    has_else: bool,
}

/// A line that is a directive.
struct Directive<'a> {
    name: &'a str,
    /// The text behind the name, without the ends of continued lines.
    text: String,
    place: Place,
    /// The byte of the file where the text starts.
    at: usize,
}

const KNOWN: &str = "`include`, `define`, `undef`, `if`, `ifdef`, `ifndef`, `elif`, `else`, `endif`, `pragma`, `error` \
                     and `warning`";

impl Preprocessor<'_> {
    fn file(&mut self, file: FileId) -> Checked<()> {
        if self.once.contains(&file) {
            return Ok(());
        }
        let text = self.sources.file(file).text.clone();
        let bare =
            comments::strip(&text).map_err(|(start, end, fault)| (self.sources.place(file, start, end), fault))?;
        let Bare { text, comments, annotations } = bare;
        self.sources.set_comments(file, comments);
        for (at, name) in annotations {
            let place = self.sources.place(file, at, at + name.len() + 3);
            self.warnings.push((place, IdlNotice::AnnotationInComment { name }));
        }
        self.stack.push(file);
        let (mut conditions, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let is_directive = text[at..].lines().next().unwrap_or_default().trim_start().starts_with('#');
            let end = line_end(&text, at, is_directive);
            if end - at > LINE_BYTES_MAX {
                let fault = IdlFault::LineSize { bytes: end - at, limit: LINE_BYTES_MAX };
                return Err((self.sources.place(file, at, at + 1), fault));
            }
            let is_active = conditions.last().is_none_or(|condition: &Condition| condition.is_active);
            if is_directive {
                self.directive(file, &text, at, end, &mut conditions)?;
            } else if is_active {
                self.line(file, at, &text[at..end])?;
            }
            at = end;
        }
        self.stack.pop();
        match conditions.pop() {
            Some(Condition { directive, place, .. }) => Err((place, IdlFault::ConditionOpen { directive })),
            None if self.unit.copy(file, text.len(), "\n") => Ok(()),
            None => Err(self.full(file, text.len())),
        }
    }

    fn full(&self, file: FileId, at: usize) -> Found<IdlFault> {
        (self.sources.place(file, at, at + 1), IdlFault::UnitSize { limit: UNIT_BYTES_MAX })
    }

    /// Copies a line, and replaces its macros.
    fn line(&mut self, file: FileId, start: usize, line: &str) -> Checked<()> {
        let mut copied = 0;
        for piece in pieces(line).filter(|piece| piece.is_word) {
            let (at, end) = (start + piece.at, start + piece.at + piece.text.len());
            let replacement =
                self.macros.replacement(piece.text).map_err(|fault| (self.sources.place(file, at, end), fault))?;
            if let Some(text) = replacement {
                let is_copied = self.unit.copy(file, start + copied, &line[copied..piece.at]);
                if !is_copied || !self.unit.replace(file, at, end, &text) {
                    return Err(self.full(file, at));
                }
                copied = piece.at + piece.text.len();
            }
        }
        match self.unit.copy(file, start + copied, &line[copied..]) {
            true => Ok(()),
            false => Err(self.full(file, start)),
        }
    }

    fn directive(
        &mut self,
        file: FileId,
        text: &str,
        start: usize,
        end: usize,
        conditions: &mut Vec<Condition>,
    ) -> Checked<()> {
        let line = &text[start..end];
        let hash = line.find('#').unwrap_or_default();
        let name_at = line.len() - line[hash + 1..].trim_start().len();
        let rest = &line[name_at..];
        let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())];
        let directive = Directive {
            name,
            text: rest[name.len()..].replace("\\\r\n", " ").replace("\\\n", " ").trim().to_owned(),
            place: self.sources.place(file, start + hash, start + name_at + name.len()),
            at: start + name_at + name.len(),
        };
        let is_active = conditions.last().is_none_or(|condition| condition.is_active);
        match name {
            "if" | "ifdef" | "ifndef" | "elif" | "else" | "endif" => self.condition(&directive, conditions),
            _ if !is_active => Ok(()),
            "" if directive.text.is_empty() => Ok(()),
            "include" => self.include(file, &directive),
            "define" => self.define(&directive),
            "undef" => {
                self.macros.undefine(&macro_name(&directive, "undef")?);
                Ok(())
            }
            "pragma" => self.pragma(file, &directive, &text[directive.at..end]),
            "error" => Err((directive.place, IdlFault::ErrorDirective { text: directive.text })),
            "warning" => {
                self.warnings.push((directive.place, IdlNotice::WarningDirective { text: directive.text }));
                Ok(())
            }
            _ => Err((directive.place, IdlFault::Directive { name: name.to_owned(), known: KNOWN })),
        }
    }

    fn condition(&mut self, directive: &Directive<'_>, conditions: &mut Vec<Condition>) -> Checked<()> {
        let missing = || (directive.place, IdlFault::ConditionMissing { directive: directive.name.to_owned() });
        match directive.name {
            "endif" => conditions.pop().map(|_| ()).ok_or_else(missing),
            "else" | "elif" => {
                let open = conditions.last_mut().filter(|open| !open.has_else).ok_or_else(missing)?;
                open.has_else = directive.name == "else";
                let may = open.is_reached && !open.is_taken;
                open.is_active = may && (directive.name == "else" || self.holds(directive)?);
                open.is_taken |= open.is_active;
                Ok(())
            }
            _ => {
                if conditions.len() == CONDITIONS_MAX {
                    return Err((directive.place, IdlFault::ConditionDepth { limit: CONDITIONS_MAX }));
                }
                let is_reached = conditions.last().is_none_or(|condition| condition.is_active);
                let is_active = is_reached
                    && match directive.name {
                        "ifdef" => self.macros.is_defined(&macro_name(directive, "ifdef")?),
                        "ifndef" => !self.macros.is_defined(&macro_name(directive, "ifndef")?),
                        _ => self.holds(directive)?,
                    };
                conditions.push(Condition {
                    directive: directive.name.to_owned(),
                    place: directive.place,
                    is_active,
                    is_taken: is_active,
                    is_reached,
                    has_else: false,
                });
                Ok(())
            }
        }
    }

    fn holds(&mut self, directive: &Directive<'_>) -> Checked<bool> {
        condition::holds(&directive.text, &mut self.macros).map_err(|fault| (directive.place, fault))
    }

    fn define(&mut self, directive: &Directive<'_>) -> Checked<()> {
        let word = directive.text.find(|c| !pieces::is_word_character(c)).unwrap_or(directive.text.len());
        let (name, text) = directive.text.split_at(word);
        if !is_identifier(name) {
            return Err((directive.place, IdlFault::MacroName { directive: "define" }));
        }
        if text.starts_with('(') {
            return Err((directive.place, IdlFault::MacroParameters { name: name.to_owned() }));
        }
        self.macros.define(name, text.trim()).map_err(|fault| (directive.place, fault))
    }

    fn pragma(&mut self, file: FileId, directive: &Directive<'_>, line: &str) -> Checked<()> {
        let name = directive.text.split_whitespace().next().unwrap_or_default();
        match name {
            "once" => {
                self.once.insert(file);
                Ok(())
            }
            "keylist" => {
                let at = directive.at - "pragma".len();
                // Continued lines become spaces, so each byte keeps its place.
                let line: String =
                    line.chars().map(|c| if matches!(c, '\\' | '\n' | '\r') { ' ' } else { c }).collect();
                let written = self.unit.replace(file, at - 1, directive.at, "#pragma")
                    && self.unit.copy(file, directive.at, &line)
                    && self.unit.copy(file, directive.at + line.len(), ";\n");
                if written { Ok(()) } else { Err(self.full(file, at)) }
            }
            _ => {
                self.warnings.push((directive.place, IdlNotice::PragmaIgnored { name: name.to_owned() }));
                Ok(())
            }
        }
    }

    fn include(&mut self, file: FileId, directive: &Directive<'_>) -> Checked<()> {
        let place = directive.place;
        let text = self.macros.replace_all(&directive.text).map_err(|fault| (place, fault))?;
        let text = text.trim();
        let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let name = quoted.or(text.strip_prefix('<').and_then(|text| text.strip_suffix('>')));
        let Some(name) = name.filter(|name| !name.is_empty() && !name.contains(['"', '<', '>'])) else {
            return Err((place, IdlFault::IncludeForm));
        };
        let beside = self.sources.path(file).parent().unwrap_or(Path::new("")).to_owned();
        let mut folders = vec![beside];
        folders.extend(self.includes.iter().cloned());
        if quoted.is_none() {
            folders.rotate_left(1);
        }
        let Some(path) = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()) else {
            let named = |folder: &PathBuf| match folder.as_os_str().is_empty() {
                true => "`.`".to_owned(),
                false => format!("`{}`", folder.display()),
            };
            let searched = folders.iter().map(named).collect::<Vec<_>>().join(", ");
            return Err((place, IdlFault::IncludeMissing { name: name.to_owned(), searched }));
        };
        let found = load(&path, self.sources).map_err(|fault| (place, fault))?;
        self.included += 1;
        if self.included > INCLUDES_MAX {
            return Err((place, IdlFault::IncludeCount { limit: INCLUDES_MAX }));
        }
        // A file that includes itself once may have a guard. One that does it again has none.
        if self.stack.iter().filter(|open| **open == found).count() > 1 && !self.once.contains(&found) {
            let from = self.stack.iter().position(|open| *open == found).unwrap_or_default();
            let again = self.stack[from + 1..].iter().position(|open| *open == found).unwrap_or_default();
            let cycle = self.stack[from..=from + 1 + again].iter();
            let chain: Vec<_> = cycle.map(|file| self.sources.path(*file).display().to_string()).collect();
            return Err((place, IdlFault::IncludeCycle { chain: chain.join(" -> ") }));
        }
        if self.stack.len() > INCLUDE_DEPTH_MAX {
            return Err((place, IdlFault::IncludeDepth { limit: INCLUDE_DEPTH_MAX }));
        }
        self.file(found)
    }
}

/// Returns the byte behind a line; a directive continues after a backslash.
fn line_end(text: &str, start: usize, is_directive: bool) -> usize {
    let mut at = start;
    loop {
        let Some(length) = text[at..].find('\n') else { return text.len() };
        let line = text[at..at + length].trim_end_matches('\r');
        at += length + 1;
        if !is_directive || !line.ends_with('\\') {
            return at;
        }
    }
}

fn macro_name(directive: &Directive<'_>, name: &'static str) -> Checked<String> {
    match is_identifier(&directive.text) {
        true => Ok(directive.text.clone()),
        false => Err((directive.place, IdlFault::MacroName { directive: name })),
    }
}
