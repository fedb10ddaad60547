//! The compiler: from files to Rust.
use crate::error::{Found, IdlError, IdlErrors, IdlWarning};
use crate::fault::{IdlFault, IdlNotice};
use crate::limits::ERRORS_MAX;
use crate::model::{Extensibility, Model};
use crate::parse::parse;
use crate::preprocess::{Macros, load, preprocess};
use crate::resolve::Resolver;
use crate::rust::generate;
use crate::source::{FileId, Place, Sources};
use std::path::{Path, PathBuf};

/// Compiles IDL files. It has the settings of a compilation.
///
/// ```
/// let text = "module sensor { struct Reading { @key long id; double value; }; };";
/// let generated = spindle_idl::Compiler::new().compile_text("sensor.idl", text).unwrap();
/// assert!(generated.rust().contains("pub struct Reading"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Compiler {
    includes: Vec<PathBuf>,
    defines: Vec<String>,
    default_extensibility: Extensibility,
}

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct Generated {
    rust: String,
    model: Model,
    warnings: Vec<IdlWarning>,
    files: Vec<PathBuf>,
}

impl Generated {
    /// Returns the Rust. It depends on the contents and the names of the files only.
    pub fn rust(&self) -> &str {
        &self.rust
    }

    /// Returns the types and constants.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the warnings, in the order of the files.
    pub fn warnings(&self) -> &[IdlWarning] {
        &self.warnings
    }

    /// Returns the path of the file of a place.
    pub fn path(&self, place: Place) -> &Path {
        self.files.get(place.file.0 as usize).map_or(Path::new(""), PathBuf::as_path)
    }

    /// Returns the paths of all files that were read, with those that were included.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

impl Compiler {
    /// Makes a compiler without folders for includes and without macros. Types without an annotation
    /// are final.
    pub fn new() -> Compiler {
        Compiler::default()
    }

    /// Adds a folder in which files of `#include` are searched, after the folder of the file.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Compiler {
        self.includes.push(folder.into());
        self
    }

    /// Defines a macro: `NAME`, whose text is then `1`, or `NAME=VALUE`.
    #[must_use]
    pub fn define(mut self, definition: impl Into<String>) -> Compiler {
        self.defines.push(definition.into());
        self
    }

    /// Sets the extensibility of structures and unions without an annotation.
    ///
    /// The default is final, as in Cyclone DDS; DDS-XTypes says appendable. Annotate each type if
    /// several compilers read the file.
    #[must_use]
    pub fn default_extensibility(mut self, extensibility: Extensibility) -> Compiler {
        self.default_extensibility = extensibility;
        self
    }

    /// Compiles files to one text. A file that several of them include is compiled once.
    ///
    /// # Errors
    /// All errors that were found, with their positions. An error of syntax ends its file.
    pub fn compile(&self, paths: &[impl AsRef<Path>]) -> Result<Generated, IdlErrors> {
        let mut sources = Sources::default();
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        for path in paths {
            match load(path.as_ref(), &mut sources) {
                Ok(file) => files.push(file),
                Err(fault) => errors.push(IdlError::of_file(path.as_ref(), fault)),
            }
        }
        if !errors.is_empty() {
            return Err(IdlErrors { errors, warnings: Vec::new() });
        }
        files.dedup();
        self.compile_files(&files, sources)
    }

    /// Compiles a text. `path` names it in errors, and files that it includes are searched beside it.
    ///
    /// # Errors
    /// As [`compile`](Compiler::compile).
    pub fn compile_text(&self, path: impl AsRef<Path>, text: &str) -> Result<Generated, IdlErrors> {
        let mut sources = Sources::default();
        let file = sources.add(path.as_ref(), path.as_ref(), text.to_owned());
        self.compile_files(&[file], sources)
    }

    fn compile_files(&self, files: &[FileId], mut sources: Sources) -> Result<Generated, IdlErrors> {
        let (mut units, mut faults, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        let macros = self.macros(files, &sources)?;
        for file in files {
            let unit = preprocess(*file, &self.includes, macros.clone(), &mut sources, &mut notices);
            match unit.map_err(|fault| vec![fault]).and_then(|unit| parse(&unit, &sources)) {
                Ok(unit) => units.push(unit),
                Err(found) => faults.extend(found),
            }
        }
        if !faults.is_empty() {
            return Err(errors(&sources, faults, notices));
        }
        let mut resolver = Resolver::new(&sources, self.default_extensibility);
        units.iter().for_each(|unit| resolver.unit(unit));
        let (model, faults, more) = resolver.finish();
        notices.extend(more);
        if !faults.is_empty() {
            return Err(errors(&sources, faults, notices));
        }
        let names = files.iter().filter_map(|file| sources.path(*file).file_name());
        let names: Vec<_> = names.map(|name| name.to_string_lossy().replace(char::is_control, " ")).collect();
        let rust = format!("// Written by spindle-idl from {}. Do not edit.\n{}", names.join(", "), generate(&model));
        let files = sources.paths().map(Path::to_owned).collect();
        Ok(Generated { rust, model, warnings: warnings(&sources, notices), files })
    }

    fn macros(&self, files: &[FileId], sources: &Sources) -> Result<Macros, IdlErrors> {
        let mut macros = Macros::default();
        for definition in &self.defines {
            if let Err(fault) = macros.define_argument(definition) {
                let path = files.first().map_or(Path::new(""), |file| sources.path(*file));
                return Err(IdlErrors { errors: vec![IdlError::of_file(path, fault)], warnings: Vec::new() });
            }
        }
        Ok(macros)
    }
}

/// Looks the lines up. A fault that two input files share is reported once.
fn errors(sources: &Sources, mut faults: Vec<Found<IdlFault>>, notices: Vec<Found<IdlNotice>>) -> IdlErrors {
    faults.sort_by_key(|(place, _)| *place);
    faults.dedup();
    faults.truncate(ERRORS_MAX);
    let errors = faults.into_iter().map(|found| IdlError::new(sources, found)).collect();
    IdlErrors { errors, warnings: warnings(sources, notices) }
}

fn warnings(sources: &Sources, mut notices: Vec<Found<IdlNotice>>) -> Vec<IdlWarning> {
    notices.sort_by_key(|(place, _)| *place);
    notices.dedup();
    notices.truncate(ERRORS_MAX);
    notices.into_iter().map(|found| IdlWarning::new(sources, found)).collect()
}
