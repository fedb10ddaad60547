//! A check that the core is pure. Built for wasm it imports nothing, so it can't reach a clock, a
//! thread, a file or a random number.
//!
//! The build is the core's example `purity`, which drives the protocol and brings its own allocator
//! and panic handler. A dependency on std, direct or indirect, is then a compile error (two panic
//! handlers).
use crate::process::StepSession;
use anyhow::{Context, Result, bail};
use std::fs;
use wasmparser::{Parser, Payload};

const TARGET: &str = "wasm32-unknown-unknown";
/// The function that the example exports, so that the linker keeps everything that it calls.
const EXPORT: &str = "spindle_purity";

/// Builds the example and checks its imports.
pub(crate) fn check(session: &StepSession<'_>) -> Result<String> {
    session.cargo(&["build", "--locked", "--package=spindle-core", "--example=purity", "--target", TARGET])?;
    let metadata = session.metadata()?;
    let path = metadata.target_directory.join(TARGET).join("debug/examples/purity.wasm");
    let module = fs::read(&path).with_context(|| format!("can't read {path}"))?;
    let found = WasmModule::read(&module)?;
    if !found.imports.is_empty() {
        bail!("the core imports {}: it must need nothing from outside", found.imports.join(", "));
    }
    if !found.exports.iter().any(|name| name == EXPORT) {
        bail!("{path} does not export {EXPORT}, so it proves nothing");
    }
    Ok(format!("{} functions, no import", found.functions))
}

#[derive(Default)]
struct WasmModule {
    imports: Vec<String>,
    exports: Vec<String>,
    functions: u32,
}

impl WasmModule {
    fn read(bytes: &[u8]) -> Result<WasmModule> {
        let mut module = WasmModule::default();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        module.imports.push(format!("{}.{}", import.module, import.name));
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        module.exports.push(export?.name.to_owned());
                    }
                }
                Payload::FunctionSection(section) => module.functions += section.count(),
                _ => {}
            }
        }
        Ok(module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_and_exports_are_read() {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        bytes.extend(b"\x01\x04\x01\x60\0\0"); // one type: a function of nothing to nothing
        bytes.extend(b"\x02\x0d\x01\x03env\x05clock\0\0"); // one import: env.clock, a function of that type
        bytes.extend(b"\x07\x06\x01\x02it\0\0"); // one export: it, function 0
        let module = WasmModule::read(&bytes).unwrap();
        assert_eq!((module.imports, module.exports), (vec!["env.clock".to_owned()], vec!["it".to_owned()]));
        assert!(WasmModule::read(b"nonsense").is_err());
    }
}
