//! The Rust of each file of the corpus. `UPDATE_GOLDEN=1 cargo test -p spindle-idl --test golden`
//! writes it anew; read the difference before you commit it.
use spindle_idl::Compiler;
use std::path::{Path, PathBuf};

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "idl"));
    files.sort();
    files
}

fn compiler() -> Compiler {
    Compiler::new().include("tests/corpus/include")
}

#[test]
fn each_file_of_the_corpus_has_its_rust() {
    let files = corpus();
    assert!(files.len() >= 12, "{files:?}");
    for file in files {
        let generated = compiler().compile(&[&file]).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(generated.warnings(), [], "{}", file.display());
        let golden = Path::new("tests/golden").join(file.with_extension("rs").file_name().unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all("tests/golden").unwrap();
            std::fs::write(&golden, generated.rust()).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(generated.rust(), expected, "{}", golden.display());
    }
}

#[test]
fn all_files_together_are_compiled_once_each() {
    let files = corpus();
    let generated = compiler().compile(&files).unwrap_or_else(|errors| panic!("{errors}"));
    let again = compiler().compile(&files).unwrap();
    assert_eq!(generated.rust(), again.rust());
    assert_eq!(generated.rust().matches("pub struct Base {").count(), 1);
    assert_eq!(generated.files().len(), files.len() + 1, "{:?}", generated.files());
}

#[test]
fn a_macro_of_the_command_line_selects_a_member() {
    let compile = |compiler: Compiler| compiler.compile(&["tests/corpus/preprocessor.idl"]).unwrap();
    assert!(!compile(compiler()).rust().contains("outside"));
    let generated = compile(compiler().define("FROM_OUTSIDE=double"));
    assert!(generated.rust().contains("pub outside: f64,"), "{}", generated.rust());
}

#[test]
fn code_in_comments_is_no_test_of_the_crate() {
    let text = "/// Text:\n///     x = 1\n/// ```\n/// y\n/// ```\nstruct A { long x; };\n";
    let generated = Compiler::new().compile_text("a.idl", text).unwrap();
    assert!(generated.rust().contains("\n/// Text:\n/// x = 1\n/// y\n#[allow"), "{}", generated.rust());
}

/// Runs as a build script when another test starts it; otherwise there is no `OUT_DIR`.
#[test]
fn a_build_script_needs_a_folder() {
    if std::env::var_os("OUT_DIR").is_some() {
        compiler().build(&["tests/corpus/inheritance.idl"]).unwrap();
        return;
    }
    let error = spindle_idl::build(&["tests/corpus/sensor.idl"]).unwrap_err();
    assert_eq!(error.to_string(), "the variable OUT_DIR is not set; call `build` in a build script");
    let none: [&str; 0] = [];
    assert_eq!(spindle_idl::build(&none).unwrap_err().to_string(), "no file is named; name at least one");
}

#[test]
fn a_build_script_writes_its_output_and_names_all_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("out-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut script = std::process::Command::new(std::env::current_exe().unwrap());
    let script = script.args(["--exact", "--nocapture", "a_build_script_needs_a_folder"]).env("OUT_DIR", &folder);
    let output = script.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let written = std::fs::read_to_string(folder.join("inheritance.rs"));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{printed}");
    for file in ["tests/corpus/inheritance.idl", "tests/corpus/include/common.idl"] {
        assert!(printed.contains(&format!("cargo::rerun-if-changed={file}\n")), "{printed}");
    }
    assert_eq!(written.unwrap(), std::fs::read_to_string("tests/golden/inheritance.rs").unwrap());
}
