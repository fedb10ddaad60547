//! Hostile input ends in an error or in valid Rust: no panic, no full stack, no search without end.
use spindle_idl::{Compiler, IdlFault};
use std::fmt::Write;

/// A generator of numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

/// Words that change the meaning of a file.
const WORDS: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    ">>",
    "[",
    "]",
    ";",
    ",",
    ":",
    "::",
    "=",
    "@",
    "#",
    "\"",
    "'",
    "\\",
    "//",
    "/*",
    "*/",
    "struct",
    "union",
    "enum",
    "bitmask",
    "module",
    "typedef",
    "const",
    "switch",
    "case",
    "default",
    "sequence",
    "string",
    "long",
    "unsigned",
    "octet",
    "double",
    "boolean",
    "char",
    "any",
    "0",
    "1",
    "-1",
    "255",
    "99999999999999999999",
    "1e999",
    "0x",
    "~",
    "<<",
    "@key",
    "@optional",
    "@external",
    "@id(1)",
    "@default(1)",
    "@value(2)",
    "@bit_bound(3)",
    "@mutable",
    "@appendable",
    "@nested",
    "@topic",
    "@hashid",
    "@autoid(HASH)",
    "@position(63)",
    "corpus",
    "Inner",
    "A",
    "_",
    "é",
    "\n#define A B\n",
    "\n#if 1\n",
    "\n#endif\n",
    "\n#pragma keylist A x\n",
    "\n#include \"sensor.idl\"\n",
    "TRUE",
];

/// Returns a byte of a text where a character starts.
fn boundary(text: &str, random: &mut Random) -> usize {
    let mut at = random.below(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn mutate(text: &mut String, others: &[String], random: &mut Random) {
    let (mut from, mut to) = (boundary(text, random), boundary(text, random));
    (from, to) = (from.min(to), from.max(to).min(from.min(to) + 40));
    while !text.is_char_boundary(to) {
        to -= 1;
    }
    match random.below(6) {
        0 => text.replace_range(from..to, ""),
        1 => {
            let part = text[from..to].to_owned();
            let at = boundary(text, random);
            text.insert_str(at, &part);
        }
        2 => text.insert_str(from, &format!(" {} ", WORDS[random.below(WORDS.len())])),
        3 => {
            // Another word in place of one.
            let end = text[from..].find(|c: char| !c.is_alphanumeric()).map_or(text.len(), |length| from + length);
            text.replace_range(from..end, WORDS[random.below(WORDS.len())]);
        }
        4 => {
            let other = &others[random.below(others.len())];
            let mut lines: Vec<&str> = text.lines().collect();
            let inserted: Vec<_> = other.lines().collect();
            lines.insert(random.below(lines.len() + 1), inserted[random.below(inserted.len())]);
            *text = lines.join("\n");
        }
        _ => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let (left, right) = (random.below(lines.len()), random.below(lines.len()));
                lines.swap(left, right);
            }
            *text = lines.join("\n");
        }
    }
}

#[test]
fn mutations_of_valid_files_end_in_errors_or_in_valid_rust() {
    let mut texts: Vec<(String, String)> = std::fs::read_dir("tests/corpus")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "idl"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect();
    texts.sort();
    let others: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
    let (mut valid, mut wrong) = (0, 0);
    for seed in 1..=6000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut text = others[random.below(others.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut text, &others, &mut random);
        }
        let compiler = Compiler::new().include("tests/corpus/include");
        let outcome = std::panic::catch_unwind(|| compiler.compile_text("tests/corpus/mutated.idl", &text));
        match outcome.unwrap_or_else(|_| panic!("seed {seed}: a panic\n{text}")) {
            Ok(generated) => {
                valid += 1;
                if let Err(error) = syn::parse_file(generated.rust()) {
                    panic!("seed {seed}: no Rust: {error}\n{text}\n{}", generated.rust());
                }
            }
            Err(errors) => {
                wrong += 1;
                assert!(!errors.errors().is_empty() && errors.errors().len() <= 100, "seed {seed}");
                for error in errors.errors() {
                    let line = error.line().unwrap_or_else(|| panic!("seed {seed}: no line: {error}"));
                    assert!(line >= 1 && error.column() >= Some(1), "seed {seed}: {error}");
                }
            }
        }
    }
    assert!(valid > 200 && wrong > 3000, "{valid} valid, {wrong} wrong");
}

/// Returns the first fault of a text.
fn fault(text: &str) -> IdlFault {
    let errors = Compiler::new().compile_text("a.idl", text).unwrap_err();
    errors.errors()[0].kind().clone()
}

#[test]
fn deep_nesting_is_refused() {
    let nesting = IdlFault::Nesting { limit: 32 };
    let many = 100_000;
    let modules = "module m {\n".repeat(many);
    assert_eq!(fault(&modules), nesting);
    assert_eq!(fault(&format!("const long N = {}1;", "(\n".repeat(many))), nesting);
    assert_eq!(fault(&format!("struct A {{ {}", "sequence<\n".repeat(many))), nesting);
    assert_eq!(fault(&format!("interface I {}", "{\n".repeat(many))), nesting);
    let terms = IdlFault::Terms { limit: 128 };
    assert_eq!(fault(&format!("const long N = {}1;", "-\n".repeat(many))), terms);
    assert_eq!(fault(&format!("const long N = 1{};", "\n+ 1".repeat(many))), terms);
    let mut deepest = "1".to_owned();
    for _ in 0..30 {
        deepest = format!("-({deepest}{})", "\n+ 1".repeat(100));
    }
    assert_eq!(fault(&format!("const long N = {deepest};")), terms);
    assert!(matches!(fault(&"#if 1\n".repeat(many)), IdlFault::ConditionDepth { .. }));
    assert!(matches!(fault(&format!("#if {}1\n#endif", "(".repeat(9000))), IdlFault::ConditionForm { .. }));
}

#[test]
fn macros_do_not_explode() {
    for text in ["x M x M", ""] {
        let mut laughs = format!("#define M0 {}\n", text.replace('M', "y"));
        for level in 1..30 {
            let before = format!("M{}", level - 1);
            writeln!(laughs, "#define M{level} {before} {before} {before}").unwrap();
        }
        laughs += "M29\n";
        let fault = fault(&laughs);
        assert!(matches!(fault, IdlFault::MacroCount { .. } | IdlFault::UnitSize { .. }), "{fault:?}");
    }
    let mut chain = "#define M0 long\n".to_owned();
    for level in 1..1000 {
        writeln!(chain, "#define M{level} M{}", level - 1).unwrap();
    }
    assert_eq!(fault(&format!("{chain}struct A {{ M999 x; }};")), IdlFault::MacroDepth { limit: 32 });
    assert!(Compiler::new().compile_text("a.idl", &format!("{chain}struct A {{ M9 x; }};")).is_ok());
    let itself = "#define long long\n#define A B\n#define B A\nstruct S { long x; long A; };";
    assert!(Compiler::new().compile_text("a.idl", itself).is_ok());
}

#[test]
fn long_chains_of_types_need_no_stack() {
    let mut aliases = "typedef sequence<long> T0;\n".to_owned();
    let mut structures = "struct S0 { long x; };\n".to_owned();
    let mut bases = "struct B0 { long x0; };\n".to_owned();
    for level in 1..5000 {
        writeln!(aliases, "typedef sequence<T{}> T{level};", level - 1).unwrap();
        writeln!(structures, "struct S{level} {{ S{} x; }};", level - 1).unwrap();
        writeln!(bases, "struct B{level} : B{} {{ long x{level}; }};", level - 1).unwrap();
    }
    assert!(matches!(fault(&aliases), IdlFault::TooMany { what: "types in each other", .. }));
    assert!(matches!(fault(&bases), IdlFault::TooMany { what: "bases of one structure", .. }));
    assert!(Compiler::new().compile_text("a.idl", &structures).is_ok());
    let cycle = format!("struct S4999;\n{}", structures.replace("S0 { long x", "S0 { S4999 x"));
    assert!(matches!(fault(&cycle), IdlFault::Recursion { .. }));
}

#[test]
fn sizes_have_limits() {
    assert!(matches!(fault(&format!("// {}", "x".repeat(20_000))), IdlFault::LineSize { bytes: 20_003, .. }));
    let members: String = (0..5000).map(|index| format!("long x{index};\n")).collect();
    assert!(matches!(fault(&format!("struct A {{ {members} }};")), IdlFault::TooMany { what: "members", .. }));
    let unknown: String = (0..4000).map(|index| format!("Unknown{index} x{index};\n")).collect();
    let errors = Compiler::new().compile_text("a.idl", &format!("struct A {{ {unknown} }};")).unwrap_err();
    assert_eq!(errors.errors().len(), 100);
    let annotations = "@key\n".repeat(50_000);
    let errors = Compiler::new().compile_text("a.idl", &format!("struct A {{ {annotations} long x; }};")).unwrap_err();
    assert_eq!(errors.errors().len(), 100);
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("large-{}.idl", std::process::id()));
    std::fs::write(&path, vec![b'\n'; (1 << 20) + 1]).unwrap();
    let errors = Compiler::new().compile(&[&path]).unwrap_err();
    assert!(matches!(errors.errors()[0].kind(), IdlFault::FileSize { bytes: 1_048_577, .. }), "{errors}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(Compiler::new().compile(&[&path]).unwrap_err().errors()[0].kind(), &IdlFault::Encoding);
    std::fs::remove_file(&path).unwrap();
}
