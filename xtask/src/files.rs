//! The files of the project.
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Directories that contain no text of the project.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// Returns the files below `dir` whose names have one of these extensions, sorted. Symbolic links
/// are left out: they lead to files that are found in their own directory.
pub(crate) fn below(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(dir, extensions, &mut files).with_context(|| format!("can't list the files in {}", dir.display()))?;
    files.sort();
    Ok(files)
}

fn collect(dir: &Path, extensions: &[&str], files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                collect(&path, extensions, files)?;
            }
        } else if kind.is_file() && path.extension().is_some_and(|found| extensions.iter().any(|one| found == *one)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads a file of text.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))
}

/// Returns the path as seen from `root`, for messages.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
