//! Texts that are made to cost much: each ends with an error, and soon.
use spindle_dds_core::qos::profile::{ProfileProblem, QosProvider};
use std::fmt::Write;

fn xml_error(text: &str) -> String {
    QosProvider::from_xml("q.xml", text).unwrap_err().list()[0].to_string()
}

fn toml_error(text: &str) -> String {
    QosProvider::from_toml("q.toml", text).unwrap_err().list()[0].to_string()
}

#[test]
fn entities_are_refused_before_they_expand() {
    let text = "<?xml version=\"1.0\"?>\n<!DOCTYPE dds [\n<!ENTITY a \"aaaaaaaaaa\">\n<!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">\n]>\n<dds>&b;</dds>";
    assert_eq!(xml_error(text), "q.xml:2:1: document types and entities are not allowed; remove <!DOCTYPE>");
    assert_eq!(
        xml_error("<!DOCTYPE dds SYSTEM \"file:///etc/passwd\"><dds/>"),
        "q.xml:1:1: document types and entities are not allowed; remove <!DOCTYPE>"
    );
}

#[test]
fn deep_nesting_is_refused() {
    let (open, close) = ("<a>".repeat(149_000), "</a>".repeat(149_000));
    let errors = QosProvider::from_xml("q.xml", &format!("{open}{close}")).unwrap_err();
    assert_eq!(
        errors.list()[1].to_string(),
        format!("q.xml:1:49: {}: elements are nested deeper than 16", ["a"; 16].join("/"))
    );
    assert!(xml_error(&open).contains("not well-formed XML"));
    for deep in [
        format!("a = {}", "[".repeat(1_000_000)),
        format!("a = {}", "{a=".repeat(300_000)),
        format!("{}a = 1", "a.".repeat(400_000)),
        format!("[{}a]", "a.".repeat(400_000)),
    ] {
        let errors = QosProvider::from_toml("q.toml", &deep).unwrap_err();
        assert!(errors.to_string().contains("not well-formed TOML: "), "{errors}");
    }
}

#[test]
fn a_megabyte_of_garbage_is_refused() {
    for part in
        ["\0", "<", "&", "<!--", "]]>", "x", "\n", "\"", "'", "=", "[", "{", "#", "<a b='", "<![CDATA[", "é", "a=1\n"]
    {
        let text = part.repeat(1_000_000 / part.len());
        QosProvider::from_xml("q.xml", &text).unwrap_err();
        if let Err(errors) = QosProvider::from_toml("q.toml", &text) {
            assert!(errors.list().len() <= 100);
        }
    }
}

#[test]
fn attributes_and_namespaces_are_bounded() {
    let mut text = String::from("<dds");
    for index in 0..90_000 {
        let _ = write!(text, " a{index}=''");
    }
    assert_eq!(xml_error(&format!("{text}/>")), "q.xml:1:1: the element has more than 32 attributes");
    let mut text = String::new();
    for index in 0..40_000 {
        let _ = write!(text, "<a xmlns:b{index}='c'>");
    }
    assert!(xml_error(&text).ends_with(": the source has more than 32 namespaces"), "{}", xml_error(&text));
}

#[test]
fn long_texts_and_many_errors_are_bounded() {
    let text = " ".repeat((1 << 20) + 1);
    let expected = "the source has 1048577 bytes; split it, a source has at most 1048576";
    assert_eq!(xml_error(&text), format!("q.xml:1:1: {expected}"));
    assert_eq!(toml_error(&text), format!("q.toml:1:1: {expected}"));
    let text = format!("<dds>{}</dds>", "<x/>".repeat(200_000));
    assert_eq!(QosProvider::from_xml("q.xml", &text).unwrap_err().list().len(), 100);
    let text = format!("<dds><qos_library name=\"{}\"/><{}/></dds>", "n".repeat(400_000), "x".repeat(400_000));
    assert!(xml_error(&text).len() < 300);
}

/// The parser joins the parts of a text.
#[test]
fn texts_of_many_parts_are_refused() {
    for part in ["&lt;", "<![CDATA[x]]>", "x<!---->", "<?x?>y"] {
        let text = format!("<dds>{}</dds>", part.repeat(1_000_000 / part.len()));
        assert!(xml_error(&text).contains("allowed is elements"), "{part}");
    }
}

#[test]
fn long_rows_of_profiles_are_refused() {
    let mut text = String::from("<dds><qos_library name=\"L\"><qos_profile name=\"P0\"/>");
    for index in 1..15_000 {
        let _ = write!(text, "<qos_profile name=\"P{index}\" base_name=\"P{}\"/>", index - 1);
    }
    text.push_str("</qos_library></dds>");
    assert!(xml_error(&text).ends_with("the profile inherits through more than 32 others; name a base that is nearer"));
}

/// Each profile inherits twice from the one before, so the number of paths doubles.
#[test]
fn rows_that_branch_are_resolved_once() {
    let mut text = String::from("[qos_library.L.P0.datawriter_qos]\nhistory.depth = 2\n");
    for index in 1..=32 {
        let base = index - 1;
        let _ = writeln!(text, "[qos_library.L.P{index}]\nbase_name='P{base}'\ndatawriter_qos.base_name='P{base}'");
        let _ = writeln!(text, "datareader_qos.base_name='P{base}'");
    }
    let provider = QosProvider::from_toml("q.toml", &text).unwrap();
    assert_eq!(provider.datawriter_qos("L::P32", "T").unwrap().history.kind.to_string(), "KEEP_LAST 2");
    let _ = writeln!(text, "[qos_library.L.P33]\nbase_name='P32'");
    assert!(toml_error(&text).contains("more than 32 others"));
}

/// Many profiles inherit many filters, and their patterns are costly.
#[test]
fn the_work_of_the_check_is_bounded() {
    let mut text = String::from("<dds><qos_library name=\"L\"><qos_profile name=\"B\">");
    for index in 0..2_000 {
        let _ = write!(text, "<datawriter_qos topic_filter=\"{}{index}\"/>", "*a?".repeat(80));
    }
    text.push_str("</qos_profile>");
    for index in 0..5_000 {
        let _ = write!(text, "<qos_profile name=\"P{index}\" base_name=\"B\"><datawriter_qos/></qos_profile>");
    }
    text.push_str("</qos_library></dds>");
    let errors = QosProvider::from_xml("q.xml", &text).unwrap_err();
    assert!(matches!(*errors.list()[0].problem, ProfileProblem::TooMuch { .. }), "{errors}");
}

#[test]
fn long_names_and_filters_are_refused() {
    let long = "*a".repeat(250_000);
    for text in [
        format!("<dds><qos_library name='{long}'/></dds>"),
        format!("<dds><qos_library name='L'><qos_profile name='{long}'/></qos_library></dds>"),
        format!("<dds><qos_library name='L'><topic_qos name='P' topic_filter='{long}'/></qos_library></dds>"),
        format!("<dds><qos_library name='L'><topic_qos name='P' base_name='{long}'/></qos_library></dds>"),
    ] {
        let error = xml_error(&text);
        assert!(error.contains("allowed is ") && error.len() < 300, "{error}");
    }
}
