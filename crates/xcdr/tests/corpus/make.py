#!/usr/bin/env python3
"""Writes the corpus: Rust types and values (types_*.rs) from spec.py, and the bytes that peers make of them (*.golden).

usage: make.py rust                       writes types_*.rs
       make.py cyclonedds                 writes cyclonedds.golden; needs `pip install cyclonedds==11.0.1`
       make.py fastcdr --prefix FOLDER    writes fastcdr.golden; needs g++, and `pip install ros-fastcdr==2.3.3` in the
                                          virtual environment FOLDER, which has the library and its headers

A line of a golden file is: type, version, byte order, kind, bytes in hexadecimal. The kinds are `sample` and `key`, with the
encapsulation header and without padding at the end, `keyhash` (the bytes before MD5), `minimal` and `complete` (the type
identifier), `minimal-object` and `complete-object` (the type object), `information` and `mapping`. A type that the peer can't
encode has the kind `unsupported`, followed by the reason. Rust reads these files; nothing else needs Python.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import spec

HERE = os.path.dirname(os.path.abspath(__file__))
INTS = {"u8": 8, "i8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64}


def parse(text):
    """Returns (constructor, arguments) of a type."""
    match = re.fullmatch(r"(\w+)(?:<(.*)>)?", text)
    head, inner = match.group(1), match.group(2)
    arguments, depth, start = [], 0, 0
    for at, char in enumerate(inner or ""):
        depth += {"<": 1, ">": -1}.get(char, 0)
        if char == "," and depth == 0:
            arguments.append(inner[start:at])
            start = at + 1
    if inner:
        arguments.append(inner[start:])
    return head, arguments


# ---------------------------------------------------------------------------------------------------------------- Rust

def rust_name(name):
    return name if name not in ("final", "type", "match") else "r#" + name


def rust_type(text):
    head, args = parse(text)
    if head == "string":
        return "String"
    if head == "wstring":
        return "WideString"
    if head == "char":
        return "Char8"
    if head == "seq":
        return f"Vec<{rust_type(args[0])}>"
    if head == "arr":
        return f"[{rust_type(args[0])}; {args[1]}]"
    if head == "opt":
        return f"Option<{rust_type(args[0])}>"
    if head == "map":
        return f"BTreeMap<{rust_type(args[0])}, {rust_type(args[1])}>"
    return head


def bounds_of(text):
    """Returns the bound of a type and that of its elements; 0 if there is none."""
    head, args = parse(text)
    if head == "opt":
        return bounds_of(args[0])
    if head in ("string", "wstring"):
        return int(args[0]) if args else 0, 0
    if head == "seq":
        return int(args[1]) if len(args) > 1 else 0, bounds_of(args[0])[0]
    if head == "arr":
        return 0, bounds_of(args[0])[0]
    return 0, 0


def camel(name):
    return name.capitalize() if not name.isupper() else name[0] + name[1:].lower()


def rust_value(text, value):
    head, args = parse(text)
    if head == "opt":
        return "None" if value is None else f"Some({rust_value(args[0], value)})"
    if head == "string":
        return f'"{value}".to_owned()'
    if head == "wstring":
        return f'WideString("{value}".to_owned())'
    if head == "char":
        return f"Char8(b'{value}')"
    if head == "bool":
        return "true" if value else "false"
    if head in ("seq", "arr"):
        elements = ", ".join(rust_value(args[0], v) for v in value)
        return f"vec![{elements}]" if head == "seq" else f"[{elements}]"
    if head == "map":
        entries = ", ".join(f"({rust_value(args[0], k)}, {rust_value(args[1], v)})" for k, v in value.items())
        return f"BTreeMap::from([{entries}])"
    if head in INTS:
        return str(value)
    if head in ("f32", "f64"):
        return repr(float(value))
    own = spec.BY_NAME[head]
    if own["kind"] == "enum":
        return f"{head}::{camel(value)}"
    if own["kind"] == "bitmask":
        flags = [f"{head}::{flag}" for flag in value]
        return flags[0] + "".join(f".with({flag})" for flag in flags[1:]) if flags else f"{head}(0)"
    if own["kind"] == "union":
        disc, member = value
        name, labels, data = case_of(own, disc)
        member = rust_value(data, member)
        if labels is None or len(labels) > 1:
            return f"{head}::{camel(name)}({rust_value(own['disc'], disc)}, {member})"
        return f"{head}::{camel(name)}({member})"
    fields = ", ".join(f"{rust_name(n)}: {rust_value(t, v)}" for (n, t, _), v in zip(own["members"], value))
    return f"{head} {{ {fields} }}"


def case_of(union, disc):
    for name, labels, data in union["cases"]:
        if labels is not None and disc in labels:
            return name, labels, data
    return next(case for case in union["cases"] if case[1] is None)


def rust_bounds(text):
    own, element = bounds_of(text)
    return ([f"bound = {own}"] if own else []) + ([f"element_bound = {element}"] if element else [])


def rust_definition(entry):
    name, kind = entry["name"], entry["kind"]
    dds = [f'name = "corpus::{name}"']
    if kind == "enum":
        if entry["bits"] != 32:
            dds.append(f"bit_bound = {entry['bits']}")
        yield "#[derive(Clone, Copy, Debug, PartialEq, DdsType)]"
        yield f"#[dds({', '.join(dds)})]"
        yield f"pub(crate) enum {name} {{"
        for literal, value in entry["literals"]:
            words = [f'name = "{literal}"'] + (["default"] if literal == entry["default"] else [])
            yield f"    #[dds({', '.join(words)})]"
            yield f"    {camel(literal)} = {value},"
        yield "}"
    elif kind == "bitmask":
        flags = ", ".join(f"{flag} = {position}" for flag, position in entry["flags"])
        dds += ["bitmask", f"bit_bound = {entry['bits']}", f"flags({flags})"]
        yield "#[derive(Clone, Copy, Debug, PartialEq, DdsType)]"
        yield f"#[dds({', '.join(dds)})]"
        yield f"pub(crate) struct {name}(pub(crate) u{entry['bits']});"
    elif kind == "union":
        dds += ["union", entry["ext"], f"discriminator = {entry['disc']}"]
        yield "#[derive(Clone, Debug, PartialEq, DdsType)]"
        yield f"#[dds({', '.join(dds)})]"
        yield f"pub(crate) enum {name} {{"
        for case, labels, data in entry["cases"]:
            words = [f'name = "{case}"']
            if labels is None:
                words.append("default")
            else:
                words.append(f"case({', '.join(rust_value(entry['disc'], label) for label in labels)})")
            yield f"    #[dds({', '.join(words + rust_bounds(data))})]"
            disc = f"{entry['disc']}, " if labels is None or len(labels) > 1 else ""
            yield f"    {camel(case)}({disc}{rust_type(data)}),"
        yield "}"
    else:
        dds.append(entry["ext"])
        if entry["autoid"]:
            dds.append(f'autoid = "{entry["autoid"]}"')
        yield "#[derive(Clone, Debug, PartialEq, DdsType)]"
        yield f"#[dds({', '.join(dds)})]"
        yield f"pub(crate) struct {name} {{"
        for member, data, more in entry["members"]:
            words = ["key"] if more.get("key") else []
            if "id" in more:
                words.append(f"id = {more['id']}")
            if "hashid" in more:
                words.append(f'hashid = "{more["hashid"]}"' if more["hashid"] else "hashid")
            if more.get("must_understand"):
                words.append("must_understand")
            words += rust_bounds(data)
            if rust_name(member) != member:
                words.append(f'name = "{member}"')
            if words:
                yield f"    #[dds({', '.join(words)})]"
            yield f"    pub(crate) {rust_name(member)}: {rust_type(data)},"
        yield "}"


def write_rust():
    groups = [spec.TYPES[:48], spec.TYPES[48:]]
    for number, group in enumerate(groups):
        lines = ["// Written by make.py from spec.py. Do not edit.", "#![cfg_attr(rustfmt, rustfmt_skip)]", ""]
        uses = "BTreeMap" if any("map<" in str(entry) for entry in group) else None
        if number:
            lines.append("use super::types_0::*;")
        lines.append("use super::Visitor;")
        lines.append("use spindle_xcdr::*;")
        if uses:
            lines.append("use std::collections::BTreeMap;")
        for entry in group:
            lines += [""] + list(rust_definition(entry))
        lines += ["", "/// Shows each structure with its value.", "pub(crate) fn visit(visitor: &mut impl Visitor) {"]
        for entry in group:
            if entry["kind"] == "struct":
                lines.append(f"    visitor.case({rust_value(entry['name'], entry['value'])});")
        lines.append("}")
        with open(os.path.join(HERE, f"types_{number}.rs"), "w") as out:
            out.write("\n".join(lines) + "\n")


# ----------------------------------------------------------------------------------------------------------- Cyclone DDS

PY = {"bool": "bool", "f32": "types.float32", "f64": "types.float64", "char": "types.char"}


def py_type(text):
    head, args = parse(text)
    if head == "string":
        return f"types.bounded_str[{args[0]}]" if args else "str"
    if head == "wstring":
        raise NotImplementedError("no wide strings")
    if head in PY:
        return PY[head]
    if head in INTS:
        return f"types.{'u' if head[0] == 'u' else ''}int{INTS[head]}"
    if head == "seq":
        return f"types.sequence[{py_type(args[0])}{', ' + args[1] if len(args) > 1 else ''}]"
    if head == "arr":
        return f"types.array[{py_type(args[0])}, {args[1]}]"
    if head == "opt":
        return f"Optional[{py_type(args[0])}]"
    if head == "map":
        return f"Dict[{py_type(args[0])}, {py_type(args[1])}]"
    return head


def py_definition(entry):
    name, kind = entry["name"], entry["kind"]
    typename = f'typename="corpus.{name}"'
    if kind == "enum":
        if entry["bits"] != 32:
            yield f"@annotate.bit_bound({entry['bits']})"
        default = f', default="{entry["default"]}"' if entry["default"] else ""
        yield f"class {name}(idl.IdlEnum, {typename}{default}):"
        for literal, value in entry["literals"]:
            yield f"    {literal} = {value}"
    elif kind == "bitmask":
        yield "@dataclass"
        yield f"@annotate.bit_bound({entry['bits']})"
        yield f"class {name}(idl.IdlBitmask, {typename}):"
        for flag, position in entry["flags"]:
            yield f"    {flag}: bool = False"
            yield f'    annotate.position("{flag}", {position})'
    elif kind == "union":
        yield f"@annotate.{entry['ext']}"
        yield f"class {name}(idl.IdlUnion, discriminator={py_type(entry['disc'])}, discriminator_is_key={entry['disc_key']}, {typename}):"
        for case, labels, data in entry["cases"]:
            if labels is None:
                yield f"    {case}: types.default[{py_type(data)}]"
            else:
                labels = ", ".join(str(py_value_text(entry["disc"], label)) for label in labels)
                yield f"    {case}: types.case[[{labels}], {py_type(data)}]"
    else:
        yield "@dataclass"
        yield f"@annotate.{entry['ext']}"
        if entry["autoid"]:
            yield f'@annotate.autoid("{entry["autoid"]}")'
        yield f"class {name}(idl.IdlStruct, {typename}):"
        for member, data, more in entry["members"]:
            yield f"    {member}: {py_type(data)}"
            if more.get("key"):
                yield f'    annotate.key("{member}")'
            if "id" in more:
                yield f'    annotate.member_id("{member}", {more["id"]})'
            if "hashid" in more:
                yield f'    annotate.member_hash_id("{member}", {more["hashid"]!r})'
            if more.get("must_understand"):
                yield f'    annotate.must_understand("{member}")'


def py_value_text(text, value):
    own = spec.BY_NAME.get(text)
    return f"{text}.{value}" if own else repr(value)


def py_value(text, value, classes):
    head, args = parse(text)
    if head == "opt":
        return None if value is None else py_value(args[0], value, classes)
    if head in ("seq", "arr"):
        return [py_value(args[0], v, classes) for v in value]
    if head == "map":
        return {py_value(args[0], k, classes): py_value(args[1], v, classes) for k, v in value.items()}
    own = spec.BY_NAME.get(head)
    if own is None:
        return value
    cls = classes[head]
    if own["kind"] == "enum":
        return cls[value]
    if own["kind"] == "bitmask":
        return cls(**{flag: True for flag in value})
    if own["kind"] == "union":
        disc, member = value
        return cls(discriminator=py_value(own["disc"], disc, classes), value=py_value(case_of(own, disc)[2], member, classes))
    return cls(**{n: py_value(t, v, classes) for (n, t, _), v in zip(own["members"], value)})


# Types whose encoding by the Python package differs from its own C library or from the specification; the reason is written
# to the golden file, and another peer has their bytes.
CYCLONE_SKIPS = {
    ("MapString", "xcdr2"): "maps without DHEADER, against DDS-XTypes 7.4.3.5.3",
    ("MapStruct", "xcdr2"): "maps without DHEADER, against DDS-XTypes 7.4.3.5.3",
    ("EnumSized", "xcdr1"): "ignores bit_bound in XCDR1",
    ("EnumSizedMutable", "xcdr1"): "ignores bit_bound in XCDR1",
    ("KeyEnum", "xcdr1"): "ignores bit_bound in XCDR1",
}


def write_cyclonedds():
    from cyclonedds.idl._support import Endianness
    import importlib.metadata
    namespace, missing = {}, {}
    exec("from dataclasses import dataclass\nfrom typing import Optional, Dict\nimport cyclonedds.idl as idl\n"
         "import cyclonedds.idl.annotations as annotate\nimport cyclonedds.idl.types as types\n", namespace)
    lines = [f"# cyclonedds {importlib.metadata.version('cyclonedds')}, by make.py"]
    for entry in spec.TYPES:
        name = entry["name"]
        try:
            exec("\n".join(py_definition(entry)), namespace)
        except (NotImplementedError, NameError) as error:
            lines.append(f"{name} - - unsupported {error}")
            missing[name] = error
            continue
        if entry["kind"] != "struct":
            continue
        cls, value = namespace[name], py_value(name, entry["value"], namespace)
        if any(more.get("hashid") for _, _, more in entry["members"]):
            lines.append(f"{name} - - unsupported a text for @hashid is not encoded before it is hashed")
            continue
        keyed = any(more.get("key") for _, _, more in entry["members"])
        for version in (1, 2):
            reason = CYCLONE_SKIPS.get((name, f"xcdr{version}"))
            if reason:
                lines.append(f"{name} xcdr{version} - unsupported {reason}")
                continue
            for order, endianness in (("le", Endianness.Little), ("be", Endianness.Big)):
                idl = cls.__idl__
                sample = idl.serialize(value, use_version_2=version == 2, endianness=endianness)
                lines.append(f"{name} xcdr{version} {order} sample {sample.hex()}")
                if keyed:
                    key = idl.serialize_key(value, use_version_2=version == 2, endianness=endianness)
                    lines.append(f"{name} xcdr{version} {order} key {sample[:4].hex()}{key.hex()}")
        if keyed and entry["ext"] == "final" and not any(spec.BY_NAME.get(t, {}).get("ext", "final") != "final"
                                                         for _, t, _ in entry["members"]):
            key = cls.__idl__.serialize_key_normalized(value, use_version_2=True, endianness=Endianness.Big)
            lines.append(f"{name} xcdr2 be keyhash {key.hex()}")
        if any("map<" in t for _, t, _ in entry["members"]):
            lines.append(f"{name} - - unsupported no type object with maps")
            continue
        information, mapping = cls.__idl__.get_type_info(), cls.__idl__.get_type_mapping()
        raw = lambda value: value.serialize(endianness=Endianness.Little, use_version_2=True)[4:].hex()
        for kind, own, objects in (("minimal", information.minimal, mapping.identifier_object_pair_minimal),
                                   ("complete", information.complete, mapping.identifier_object_pair_complete)):
            identifier = own.typeid_with_size.type_id
            lines.append(f"{name} - - {kind} {raw(identifier)}")
            found = next(pair.type_object for pair in objects if pair.type_identifier == identifier)
            lines.append(f"{name} - - {kind}-object {raw(found)}")
        lines.append(f"{name} - - information {raw(information)}")
    with open(os.path.join(HERE, "cyclonedds.golden"), "w") as out:
        out.write("\n".join(lines) + "\n")


# -------------------------------------------------------------------------------------------------------------- Fast CDR

def cpp_type(text):
    head, args = parse(text)
    if head == "string":
        return "std::string"
    if head == "wstring":
        return "std::wstring"
    if head in INTS:
        return f"{'u' if head[0] == 'u' else ''}int{INTS[head]}_t"
    if head in ("bool", "char"):
        return head
    if head in ("f32", "f64"):
        return {"f32": "float", "f64": "double"}[head]
    if head == "seq":
        return f"std::vector<{cpp_type(args[0])}>"
    if head == "arr":
        return f"std::array<{cpp_type(args[0])}, {args[1]}>"
    if head == "opt":
        return f"eprosima::fastcdr::optional<{cpp_type(args[0])}>"
    if head == "map":
        return f"std::map<{cpp_type(args[0])}, {cpp_type(args[1])}>"
    return head


def cpp_value(text, value):
    head, args = parse(text)
    if head == "opt":
        return f"{cpp_type(text)}()" if value is None else f"{cpp_type(text)}({cpp_value(args[0], value)})"
    if head == "string":
        return f'std::string("{value}")'
    if head == "wstring":
        # One code unit of UTF-16 in each wchar_t, which Fast CDR writes as 16 bits.
        units = value.encode("utf-16-le")
        codes = ", ".join(hex(int.from_bytes(units[i:i + 2], "little")) for i in range(0, len(units), 2))
        return f"std::wstring{{{codes}}}"
    if head == "char":
        return f"'{value}'"
    if head == "bool":
        return "true" if value else "false"
    if head in INTS:
        return f"{cpp_type(head)}({value}{'ull' if value > 2**63 else 'll'})"
    if head in ("f32", "f64"):
        return f"{cpp_type(head)}({float(value)!r})"
    if head == "seq":
        return f"{cpp_type(text)}{{{', '.join(cpp_value(args[0], v) for v in value)}}}"
    if head == "arr":
        return f"{cpp_type(text)}{{{{{', '.join(cpp_value(args[0], v) for v in value)}}}}}"
    if head == "map":
        return f"{cpp_type(text)}{{{', '.join('{' + cpp_value(args[0], k) + ', ' + cpp_value(args[1], v) + '}' for k, v in value.items())}}}"
    own = spec.BY_NAME[head]
    if own["kind"] == "enum":
        return f"{head}::{value}_"
    if own["kind"] == "bitmask":
        return f"{head}(" + " | ".join(["0ull"] + [f"(1ull << {dict(own['flags'])[flag]})" for flag in value]) + ")"
    if own["kind"] == "union":
        disc, member = value
        name, _, data = case_of(own, disc)
        index = [case[0] for case in own["cases"]].index(name)
        return f"make_{head}_{index}({cpp_value(own['disc'], disc)}, {cpp_value(data, member)})"
    return f"{head}{{{', '.join(cpp_value(t, v) for (_, t, _), v in zip(own['members'], value))}}}"


FLAGS = {"final": ("PLAIN_CDR2", "PLAIN_CDR"), "appendable": ("DELIMIT_CDR2", "PLAIN_CDR"), "mutable": ("PL_CDR2", "PL_CDR")}


def member_ids(entry):
    from hashlib import md5
    following = 0
    for name, _, more in entry["members"]:
        if "id" in more:
            following = more["id"]
        elif "hashid" in more or entry["autoid"] == "hash":
            following = int.from_bytes(md5((more.get("hashid") or name).encode()).digest()[:4], "little") & 0x0fffffff
        yield following
        following += 1


def cpp_definition(entry):
    name, kind = entry["name"], entry["kind"]
    if kind == "enum":
        holder = {8: "int8_t", 16: "int16_t", 32: "int32_t"}[entry["bits"]]
        yield f"enum class {name} : {holder} {{ {', '.join(f'{literal}_ = {value}' for literal, value in entry['literals'])} }};"
    elif kind == "bitmask":
        yield f"using {name} = uint{entry['bits']}_t;"
    elif kind == "union":
        yield f"struct {name} {{ {cpp_type(entry['disc'])} d; int which = 0;"
        for index, (_, _, data) in enumerate(entry["cases"]):
            yield f"    {cpp_type(data)} m{index}{{}};"
        yield "};"
        for index, (_, _, data) in enumerate(entry["cases"]):
            yield (f"{name} make_{name}_{index}({cpp_type(entry['disc'])} d, {cpp_type(data)} m) "
                   f"{{ {name} u; u.d = d; u.which = {index}; u.m{index} = m; return u; }}")
        yield "namespace eprosima { namespace fastcdr {"
        yield f"template<> void serialize(Cdr& cdr, const {name}& u) {{"
        yield "    Cdr::state state(cdr);"
        v2, v1 = FLAGS[entry["ext"]]
        yield (f"    cdr.begin_serialize_type(state, cdr.get_cdr_version() == CdrVersion::XCDRv2 ? "
               f"EncodingAlgorithmFlag::{v2} : EncodingAlgorithmFlag::{v1});")
        yield "    cdr << MemberId(0) << u.d;"
        yield "    switch (u.which) {"
        for index in range(len(entry["cases"])):
            yield f"        case {index}: cdr << MemberId({index + 1}) << u.m{index}; break;"
        yield "    }"
        yield "    cdr.end_serialize_type(state);"
        yield "} } }"
    else:
        yield f"struct {name} {{"
        for member, data, _ in entry["members"]:
            yield f"    {cpp_type(data)} {member}_;"
        yield "};"
        yield "namespace eprosima { namespace fastcdr {"
        yield f"template<> void serialize(Cdr& cdr, const {name}& v) {{"
        yield "    Cdr::state state(cdr);"
        v2, v1 = FLAGS[entry["ext"]]
        yield (f"    cdr.begin_serialize_type(state, cdr.get_cdr_version() == CdrVersion::XCDRv2 ? "
               f"EncodingAlgorithmFlag::{v2} : EncodingAlgorithmFlag::{v1});")
        for (member, _, more), number in zip(entry["members"], member_ids(entry)):
            number = f"must({number})" if more.get("must_understand") else f"MemberId({number})"
            yield f"    cdr << {number} << v.{member}_;"
        yield "    cdr.end_serialize_type(state);"
        yield "} } }"


def write_fastcdr(prefix):
    program = ["#include <array>", "#include <cstdio>", "#include <map>", "#include <string>", "#include <vector>",
               "#include <fastcdr/Cdr.h>", "#include <fastcdr/FastBuffer.h>", "#include <fastcdr/xcdr/optional.hpp>",
               "using namespace eprosima::fastcdr;",
               "MemberId must(uint32_t id) { MemberId own(id); own.must_understand = true; return own; }"]
    for entry in spec.TYPES:
        program += cpp_definition(entry)
    program.append("""
template<class T> void show(const char* name, const T& value, EncodingAlgorithmFlag v1, EncodingAlgorithmFlag v2) {
    for (int version = 1; version <= 2; ++version) {
        for (int big = 0; big <= 1; ++big) {
            std::vector<char> bytes(1 << 16);
            FastBuffer buffer(bytes.data(), bytes.size());
            Cdr cdr(buffer, big ? Cdr::BIG_ENDIANNESS : Cdr::LITTLE_ENDIANNESS,
                    version == 2 ? CdrVersion::XCDRv2 : CdrVersion::XCDRv1);
            cdr.set_encoding_flag(version == 2 ? v2 : v1);
            cdr.serialize_encapsulation();
            cdr << value;
            std::printf("%s xcdr%d %s sample ", name, version, big ? "be" : "le");
            for (size_t at = 0; at < cdr.get_serialized_data_length(); ++at) std::printf("%02x", (unsigned char)bytes[at]);
            std::printf("\\n");
        }
    }
}
int main() {""")
    for entry in spec.TYPES:
        if entry["kind"] == "struct":
            v2, v1 = FLAGS[entry["ext"]]
            value = cpp_value(entry["name"], entry["value"])
            program.append(f"    show(\"{entry['name']}\", {value}, EncodingAlgorithmFlag::{v1}, EncodingAlgorithmFlag::{v2});")
    program.append("}")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "corpus.cpp"), os.path.join(folder, "corpus")
        with open(source, "w") as out:
            out.write("\n".join(program) + "\n")
        lib = os.path.join(prefix, "lib")
        subprocess.run(["g++", "-std=c++14", "-O0", f"-I{prefix}/include", source, "-o", binary, f"-L{lib}", "-lfastcdr",
                        f"-Wl,-rpath,{lib}"], check=True)
        text = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
    with open(os.path.join(HERE, "fastcdr.golden"), "w") as out:
        out.write("# Fast CDR 2.3.3, by make.py\n" + text)


def main():
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    arguments.add_argument("what", choices=["rust", "cyclonedds", "fastcdr"])
    arguments.add_argument("--prefix")
    given = arguments.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Cyclone DDS lists the types that a type reaches in the order of a set.
        os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.path.insert(0, HERE)
    {"rust": write_rust, "cyclonedds": write_cyclonedds, "fastcdr": lambda: write_fastcdr(given.prefix)}[given.what]()


if __name__ == "__main__":
    main()
