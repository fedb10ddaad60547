//! Reads XML into the tree.
//!
//! The parser refuses document types, so there are no entities to expand. It reads nested elements
//! without recursion. A scan before it bounds what would take it quadratic time.
use super::error::{ProfileProblem, shorten};
use super::text::SourceText;
use super::tree::{Item, Raw};
use roxmltree::{Document, Node, ParsingOptions};

/// The most attributes of an element.
const ATTRIBUTES_MAX: usize = 32;
/// The most declarations of namespaces in a source.
const NAMESPACES_MAX: usize = 32;
/// The most elements within each other. A valid source has eight.
const DEPTH_MAX: usize = 16;

/// The namespaces of the specification, of its predecessor (DDS for lightweight CCM), and none.
const NAMESPACES: [&str; 4] =
    ["http://www.omg.org/spec/DDS-XML", "http://www.omg.org/dds/", "http://www.omg.org/dds", ""];
/// The namespace of the attributes that name a schema.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Reads the root element; `None` if the text is not well-formed.
pub(super) fn parse(source: &mut SourceText<'_>) -> Option<Item> {
    if let Some((at, message)) = scan(source.text.as_bytes()) {
        source.wrong(source.place(at), "", ProfileProblem::Syntax(message));
        return None;
    }
    let options = ParsingOptions { allow_dtd: false, ..ParsingOptions::default() };
    match Document::parse_with_options(source.text, options) {
        Ok(document) => {
            let root = document.root_element();
            let namespace = root.tag_name().namespace().unwrap_or("");
            if !NAMESPACES.contains(&namespace) {
                let known = NAMESPACES.iter().map(ToString::to_string).filter(|name| !name.is_empty()).collect();
                source.unknown(root.range().start, "", "namespace", namespace, known);
                return None;
            }
            element(source, root, namespace, "", 1)
        }
        Err(error) => {
            let (place, message) = match error {
                roxmltree::Error::DtdDetected => (
                    source.place(source.text.find("<!DOCTYPE").unwrap_or(0)),
                    "document types and entities are not allowed; remove <!DOCTYPE>".to_owned(),
                ),
                error => (
                    source.place_of(error.pos().row, error.pos().col),
                    format!("not well-formed XML: {}", shorten(&error.to_string())),
                ),
            };
            source.wrong(place, "", ProfileProblem::Syntax(message));
            None
        }
    }
}

fn element(
    source: &mut SourceText<'_>,
    node: Node<'_, '_>,
    namespace: &str,
    parent: &str,
    depth: usize,
) -> Option<Item> {
    let (name, at) = (node.tag_name().name(), node.range().start);
    let path = path(parent, node);
    if depth > DEPTH_MAX {
        let message = format!("elements are nested deeper than {DEPTH_MAX}");
        source.wrong(source.place(at), parent, ProfileProblem::Syntax(message));
        return None;
    }
    if node.tag_name().namespace().unwrap_or("") != namespace {
        source.unknown(at, &path, "namespace", node.tag_name().namespace().unwrap_or(""), vec![namespace.to_owned()]);
        return None;
    }
    let attributes: Vec<Item> = node
        .attributes()
        .filter(|attribute| attribute.namespace() != Some(SCHEMA_INSTANCE))
        .map(|attribute| Item {
            name: attribute.name().to_owned(),
            at: attribute.range().start,
            value_at: attribute.range_value().start,
            is_attribute: true,
            raw: Raw::Text(attribute.value().to_owned()),
        })
        .collect();
    let texts = || node.children().filter(Node::is_text);
    let first_text = texts().find(|text| !text.text().unwrap_or("").trim().is_empty());
    let has_elements = node.children().any(|child| child.is_element());
    if let Some(text) = first_text.filter(|_| has_elements) {
        let message = format!("there is text beside the elements of <{name}>; remove it");
        let at = text.range().start + leading(text.text().unwrap_or(""));
        source.wrong(source.place(at), &path, ProfileProblem::Syntax(message));
        return None;
    }
    let value_at = first_text.map_or(at, |text| text.range().start + leading(text.text().unwrap_or("")));
    let raw = if has_elements || (first_text.is_none() && !attributes.is_empty()) {
        let mut items = attributes;
        for child in node.children().filter(Node::is_element) {
            items.extend(element(source, child, namespace, &path, depth + 1));
        }
        Raw::Table(items)
    } else {
        for attribute in attributes {
            source.unknown(attribute.at, &path, "attribute", &attribute.name, Vec::new());
        }
        Raw::Text(texts().filter_map(|text| text.text()).collect())
    };
    Some(Item { name: name.to_owned(), at, value_at, is_attribute: false, raw })
}

/// Returns the path of an element as errors show it: `Library::Profile/datawriter_qos`.
fn path(parent: &str, node: Node<'_, '_>) -> String {
    let (element, name) = (node.tag_name().name(), node.attribute("name").map(shorten));
    match (element, name) {
        ("dds", _) if parent.is_empty() => String::new(),
        ("qos_library", Some(name)) if parent.is_empty() => name,
        ("qos_profile", Some(name)) if !parent.is_empty() => format!("{parent}::{name}"),
        _ if parent.is_empty() => shorten(element),
        _ => format!("{parent}/{}", shorten(element)),
    }
}

fn leading(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// Finds an element with too many attributes, and too many declarations of namespaces. Returns the
/// offset and the message.
fn scan(bytes: &[u8]) -> Option<(usize, String)> {
    let (mut at, mut namespaces) = (0, 0);
    while let Some(start) = find(bytes, at, b"<") {
        let rest = &bytes[start..];
        let skipped = [(&b"<!--"[..], &b"-->"[..]), (b"<![CDATA[", b"]]>"), (b"<?", b"?>")];
        if let Some((open, close)) = skipped.iter().find(|(open, _)| rest.starts_with(open)) {
            at = find(bytes, start + open.len(), close)? + close.len();
            continue;
        }
        let (mut attributes, mut quote) = (0, None);
        at = start + 1;
        while let Some(byte) = bytes.get(at) {
            match (quote, *byte) {
                (None, b'>') => break,
                (None, open @ (b'"' | b'\'')) => quote = Some(open),
                (None, b'=') => attributes += 1,
                (None, b'x') if bytes[at..].starts_with(b"xmlns") => namespaces += 1,
                (Some(open), byte) if open == byte => quote = None,
                _ => {}
            }
            at += 1;
        }
        if attributes > ATTRIBUTES_MAX {
            return Some((start, format!("the element has more than {ATTRIBUTES_MAX} attributes")));
        }
        if namespaces > NAMESPACES_MAX {
            return Some((start, format!("the source has more than {NAMESPACES_MAX} namespaces")));
        }
    }
    None
}

fn find(bytes: &[u8], from: usize, wanted: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(wanted.len()).position(|window| window == wanted).map(|at| from + at)
}
