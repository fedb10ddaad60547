//! The errors of `mistakes.txt`, each with its exact text. `UPDATE_GOLDEN=1 cargo test -p spindle-idl
//! --test mistakes` writes them anew; read the difference before you commit it.
use spindle_idl::{Compiler, Extensibility, IdlFault, IdlNotice};
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[test]
fn each_mistake_has_its_error() {
    let path = "tests/mistakes.txt";
    let text = std::fs::read_to_string(path).unwrap();
    let (mut written, mut count) = (String::new(), 0);
    for section in text.split("=== ").skip(1) {
        let (name, rest) = section.split_once('\n').unwrap();
        let (idl, _) = rest.split_once("---\n").unwrap();
        let found = match Compiler::new().compile_text("a.idl", idl) {
            Ok(generated) => panic!("{name}: no error\n{}", generated.rust()),
            Err(errors) => errors.to_string(),
        };
        let gap = if count > 0 { "\n" } else { "" };
        write!(written, "{gap}=== {name}\n{idl}---\n{found}\n").unwrap();
        count += 1;
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &written).unwrap();
    }
    assert_eq!(written, std::fs::read_to_string(path).unwrap());
    assert!(count >= 90, "{count}");
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, files: &[(&str, &str)]) -> Scratch {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Scratch(folder)
    }

    /// Compiles files, and returns the errors without the folder.
    fn errors(&self, names: &[&str]) -> String {
        let paths: Vec<_> = names.iter().map(|name| self.0.join(name)).collect();
        let errors = Compiler::new().compile(&paths).unwrap_err();
        errors.to_string().replace(&format!("{}/", self.0.display()), "").replace(&*self.0.to_string_lossy(), ".")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cycle_of_includes_is_named() {
    let scratch = Scratch::new(
        "cycle",
        &[
            ("a.idl", "#include \"b.idl\"\n"),
            ("b.idl", "#include \"a.idl\"\n"),
            ("guarded.idl", "#ifndef G\n#define G\n#include \"guarded.idl\"\nstruct A { long x; };\n#endif\n"),
        ],
    );
    assert_eq!(
        scratch.errors(&["a.idl"]),
        "b.idl:1:1: the file includes itself: a.idl -> b.idl -> a.idl; remove one `#include`, or write `#pragma once`\n    \
         #include \"a.idl\"\n    ^^^^^^^^"
    );
    Compiler::new().compile(&[scratch.0.join("guarded.idl")]).unwrap();
}

#[test]
fn errors_name_the_file_that_was_included() {
    let scratch = Scratch::new(
        "included",
        &[
            ("a.idl", "#include \"b.idl\"\nstruct A { B b; };\n"),
            ("b.idl", "// B\nstruct B { Missing x; };\n"),
            ("c.idl", "#include \"d.idl\"\n#include \"d.idl\"\n"),
            ("d.idl", "struct D { long x; };\n"),
            ("e.idl", "#define T long\n#include \"f.idl\"\n"),
            ("f.idl", "struct F { T x; };\n"),
            ("g.idl", "#define T short\n#include \"f.idl\"\n"),
            ("h.idl", "struct H { D d; };\n"),
        ],
    );
    assert_eq!(
        scratch.errors(&["a.idl"]),
        "b.idl:2:12: unknown name `Missing`; define it before its use, or include the file that has it\n    \
         struct B { Missing x; };\n               ^^^^^^^"
    );
    assert_eq!(
        scratch.errors(&["c.idl"]),
        "d.idl:1:8: `D` is defined at d.idl:1 already; rename one of them, or write `#pragma once` into the file\n    \
         struct D { long x; };\n           ^"
    );
    assert_eq!(
        scratch.errors(&["e.idl", "g.idl"]),
        "f.idl:1:8: `F` is defined at f.idl:1 with another text for another input file; compile the files apart\n    \
         struct F { T x; };\n           ^"
    );
    assert_eq!(
        scratch.errors(&["d.idl", "h.idl"]),
        "h.idl:1:12: unknown name `D`; define it before its use, or include the file that has it\n    \
         struct H { D d; };\n               ^"
    );
    let missing = scratch.errors(&["d.idl", "missing.idl"]);
    assert!(missing.starts_with("missing.idl: can't read the file: No such file"), "{missing}");
}

#[test]
fn a_definition_of_the_command_line_needs_a_name() {
    let errors = Compiler::new().define("1A=2").compile_text("a.idl", "").unwrap_err();
    let [error] = errors.errors() else { panic!("{errors}") };
    assert_eq!(error.kind(), &IdlFault::DefineForm { text: "1A=2".into() });
    assert_eq!((error.line(), error.column(), error.path()), (None, None, Path::new("a.idl")));
}

#[test]
fn the_default_extensibility_applies_to_types_without_one() {
    let text = "struct A { long x; }; @final struct B { long x; }; union U switch (long) { case 1: long x; };";
    let with = |extensibility| Compiler::new().default_extensibility(extensibility).compile_text("a.idl", text);
    let appendable = with(Extensibility::Appendable).unwrap();
    assert_eq!(appendable.rust().matches("appendable").count(), 2, "{}", appendable.rust());
    let error = with(Extensibility::Mutable).unwrap_err();
    assert_eq!(error.errors()[0].kind(), &IdlFault::MutableUnion { name: "U".into() });
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let text = "#pragma prefix \"omg.org\"\n@mutable enum E { ONE };\nstruct A {\n  long x; //@key\n  @try_construct(USE_DEFAULT) long y;\n};\n\
                #warning old\nunion U switch (long) { case 1: @id(3) @default(1) long x; };\n";
    let generated = Compiler::new().compile_text("a.idl", text).unwrap();
    let texts: Vec<_> = generated.warnings().iter().map(ToString::to_string).collect();
    let first: Vec<_> = texts.iter().map(|text| text.lines().next().unwrap()).collect();
    assert_eq!(
        first,
        [
            "a.idl:1:1: `#pragma prefix` is ignored; there are `keylist` and `once`",
            "a.idl:2:1: `@mutable` is ignored: enumerations and bitmasks have one encoding",
            "a.idl:4:11: the comment `//@key` has no effect; write the annotation `@key` before the member",
            "a.idl:5:3: `@try_construct` is ignored: a sample with a member that can't be made is refused",
            "a.idl:7:1: `#warning`: old",
            "a.idl:8:33: `@id` is ignored: the encoding of a union has no identifiers, which are its positions here",
            "a.idl:8:49: `@default` is ignored: the members of a union have the default of their type",
        ]
    );
    assert!(matches!(generated.warnings()[0].kind(), IdlNotice::PragmaIgnored { .. }));
}
