//! The compiler in build scripts.
use crate::compiler::Compiler;
use crate::error::IdlErrors;
use std::path::{Path, PathBuf};

/// Why a build script could not write its output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The files have errors.
    #[error("{0}")]
    Idl(#[from] IdlErrors),
    /// Cargo did not say where to write.
    #[error("the variable OUT_DIR is not set; call `build` in a build script")]
    NoOutput,
    /// There is no file.
    #[error("no file is named; name at least one")]
    NoFile,
    /// The output can't be written.
    #[error("can't write {}: {cause}; check the permissions and the free space", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
}

/// Compiles files in a build script with default settings. See [`Compiler::build`].
///
/// ```no_run
/// fn main() -> Result<(), spindle_idl::BuildError> {
///     spindle_idl::build(&["idl/sensor.idl"])?;
///     Ok(())
/// }
/// ```
///
/// The crate has `include!(concat!(env!("OUT_DIR"), "/sensor.rs"));`.
///
/// # Errors
/// As [`Compiler::build`].
pub fn build(paths: &[impl AsRef<Path>]) -> Result<PathBuf, BuildError> {
    Compiler::new().build(paths)
}

impl Compiler {
    /// Compiles files in a build script: writes the Rust of all files to `OUT_DIR`, under the name of
    /// the first one with the ending `.rs`, and returns its path. Prints `cargo::rerun-if-changed`
    /// for each file that was read, and warnings.
    ///
    /// # Errors
    /// [`BuildError`]. Its text has the errors of all files with their positions.
    pub fn build(&self, paths: &[impl AsRef<Path>]) -> Result<PathBuf, BuildError> {
        let first = paths.first().ok_or(BuildError::NoFile)?.as_ref();
        // Before anything fails, so that a corrected file is compiled again.
        paths.iter().for_each(|path| println!("cargo::rerun-if-changed={}", path.as_ref().display()));
        let folder = std::env::var_os("OUT_DIR").ok_or(BuildError::NoOutput)?;
        let generated = self.compile(paths)?;
        for file in generated.files() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        for warning in generated.warnings() {
            println!("cargo::warning={}", warning.to_string().lines().next().unwrap_or_default());
        }
        let name = first.with_extension("rs");
        let path = Path::new(&folder).join(name.file_name().unwrap_or("idl.rs".as_ref()));
        match std::fs::write(&path, generated.rust()) {
            Ok(()) => Ok(path),
            Err(cause) => Err(BuildError::Write { path, cause }),
        }
    }
}
