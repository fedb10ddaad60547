//! Inheritance, default profiles, topic filters, several sources, and the origin of values.
use spindle_dds_core::DdsDuration;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::profile::{
    EntityKind, ProfileProblem, ProfileSets, ProfileSource, QosProvider, to_toml, to_xml,
};

const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!-- The profiles of the tests. -->
<dds xmlns="http://www.omg.org/spec/DDS-XML" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
     xsi:schemaLocation="http://www.omg.org/spec/DDS-XML dds-xml_qos_definitions.xsd">
  <qos_library name="Base">
    <qos_profile name="Reliable">
      <datawriter_qos>
        <reliability><max_blocking_time><sec>3</sec></max_blocking_time></reliability>
        <history><kind>KEEP_ALL_HISTORY_QOS</kind></history>
      </datawriter_qos>
      <datareader_qos>
        <reliability><kind>RELIABLE_RELIABILITY_QOS</kind></reliability>
        <history><depth>7</depth></history>
      </datareader_qos>
    </qos_profile>
    <datareader_qos name="Latest"><history><kind>KEEP_LAST_HISTORY_QOS</kind><depth>1</depth></history></datareader_qos>
  </qos_library>
  <qos_library name="Control">
    <qos_profile name="Strict" base_name="Base::Reliable" is_default_qos="true">
      <datawriter_qos><ownership_strength><value>1</value></ownership_strength></datawriter_qos>
      <datawriter_qos topic_filter="A*"><history><kind>KEEP_LAST_HISTORY_QOS</kind></history></datawriter_qos>
      <datawriter_qos topic_filter="AB?"><ownership_strength><value>9</value></ownership_strength></datawriter_qos>
      <datawriter_qos topic_filter="[x-z]"><ownership_strength><value>5</value></ownership_strength></datawriter_qos>
      <datareader_qos><deadline><period><sec>1</sec></period></deadline></datareader_qos>
      <domainparticipant_qos>
        <entity_factory><autoenable_created_entities>false</autoenable_created_entities></entity_factory>
      </domainparticipant_qos>
    </qos_profile>
    <qos_profile name="Stricter" base_name="Strict">
      <datareader_qos base_name="Base::Latest"><deadline><period><sec>2</sec></period></deadline>
        <history><depth>2</depth></history></datareader_qos>
    </qos_profile>
  </qos_library>
</dds>"#;

fn provider() -> QosProvider {
    QosProvider::from_xml("qos.xml", XML).unwrap()
}

#[test]
fn fields_are_inherited_across_libraries() {
    let qos = provider().datareader_qos("Control::Strict", "T").unwrap();
    assert_eq!(qos.reliability.kind, ReliabilityQosPolicyKind::Reliable);
    assert_eq!(qos.history.kind, HistoryQosPolicyKind::KeepLast(7));
    assert_eq!(qos.deadline.period, DdsDuration::from_secs(1));
    // The base of an entry counts before the entry, and after the base of the profile.
    let qos = provider().datareader_qos("Control::Stricter", "T").unwrap();
    assert_eq!(qos.reliability.kind, ReliabilityQosPolicyKind::Reliable);
    assert_eq!(qos.history.kind, HistoryQosPolicyKind::KeepLast(2));
    assert_eq!(qos.deadline.period, DdsDuration::from_secs(2));
    assert!(!provider().participant_qos("Control::Stricter").unwrap().entity_factory.autoenable_created_entities);
}

#[test]
fn the_first_filter_that_matches_counts_then_the_entry_without_one() {
    let strength = |topic| provider().datawriter_qos("Control::Strict", topic).unwrap().ownership_strength.value;
    assert_eq!([strength("ABC"), strength("y"), strength("w"), strength("")], [0, 5, 1, 1]);
    let history = |topic| provider().datawriter_qos("Control::Stricter", topic).unwrap().history.kind;
    assert_eq!(history("Alarm"), HistoryQosPolicyKind::KeepLast(1));
    assert_eq!(history("B"), HistoryQosPolicyKind::KeepAll);
    let blocking = provider().datawriter_qos("Control::Strict", "A").unwrap().reliability.max_blocking_time;
    assert_eq!(blocking, DdsDuration::from_secs(3));
}

#[test]
fn a_depth_returns_with_the_kind() {
    let text = "
        [qos_library.L.A.datareader_qos]
        history = { depth = 4 }
        [qos_library.L.B]
        base_name = 'A'
        datareader_qos.history.kind = 'keep_all'
        [qos_library.L.C]
        base_name = 'L::B'
        datareader_qos.history.kind = 'keep_last'
    ";
    let provider = QosProvider::from_toml("qos.toml", text).unwrap();
    let kind = |profile| provider.datareader_qos(profile, "T").unwrap().history.kind;
    assert_eq!(kind("L::B"), HistoryQosPolicyKind::KeepAll);
    assert_eq!(kind("L::C"), HistoryQosPolicyKind::KeepLast(4));
}

#[test]
fn the_default_profile_answers_without_a_name() {
    let provider = provider();
    assert_eq!(provider.default_profile(), Some("Control::Strict"));
    assert_eq!(provider.datawriter_qos(None, "y").unwrap().ownership_strength.value, 5);
    let names: Vec<&str> = provider.profiles().collect();
    assert_eq!(names, ["Base::Latest", "Base::Reliable", "Control::Strict", "Control::Stricter"]);
    let empty = QosProvider::default();
    assert_eq!(empty.publisher_qos(None).unwrap_err().problem, ProfileProblem::NoDefault.into());
    assert_eq!(
        empty.publisher_qos(None).unwrap_err().to_string(),
        "no profile is the default; name one, or set is_default_qos of one to true"
    );
}

#[test]
fn a_question_for_an_unknown_profile_names_the_nearest() {
    let wrong = |name: &str| provider().topic_qos(name, "T").unwrap_err().to_string();
    assert_eq!(wrong("Stricter"), "unknown profile \"Stricter\"; did you mean \"Control::Stricter\"?");
    assert_eq!(wrong("Control::Strikt"), "unknown profile \"Control::Strikt\"; did you mean \"Control::Strict\"?");
}

#[test]
fn sources_of_both_formats_inherit_from_each_other() {
    let toml = "
        [qos_library.Control.Local]
        base_name = 'Strict'
        [[qos_library.Control.Local.datawriter_qos]]
        topic_filter = 'A'
        history = { kind = 'keep_last', depth = 3 }
        [[qos_library.Control.Local.datawriter_qos]]
        base_name = 'Control::Strict'
        lifespan = { duration = '1 s' }
    ";
    let sources =
        [ProfileSource::Toml { name: "local.toml", text: toml }, ProfileSource::Xml { name: "qos.xml", text: XML }];
    let provider = QosProvider::from_sources(&sources).unwrap();
    let history = |topic| provider.datawriter_qos("Control::Local", topic).unwrap().history.kind;
    assert_eq!(history("A"), HistoryQosPolicyKind::KeepLast(3));
    assert_eq!(history("AA"), HistoryQosPolicyKind::KeepLast(1));
    // One after the other: the base comes first, and an error changes nothing.
    let mut provider = QosProvider::from_xml("qos.xml", XML).unwrap();
    provider.load(&[ProfileSource::Xml { name: "again.xml", text: XML }]).unwrap_err();
    provider.load(&sources[..1]).unwrap();
    assert_eq!(provider.profiles().count(), 5);
    let error = QosProvider::from_toml("local.toml", toml).unwrap_err();
    assert_eq!(error.list().len(), 2, "{error}");
}

#[test]
fn an_explanation_has_the_origin_of_each_value() {
    let provider = provider();
    let values = provider.explain("Control::Stricter", EntityKind::DataReader, "T").unwrap();
    let shown: Vec<String> = values
        .iter()
        .filter_map(|value| {
            let place = value.place.as_ref()?;
            Some(format!("{}.{} = {} ({place})", value.policy, value.field, value.value))
        })
        .collect();
    let expected = [
        "deadline.period = \"2 s\" (qos.xml:30:58)",
        "reliability.kind = \"reliable\" (qos.xml:12:28)",
        "history.kind = \"keep_last\" (qos.xml:16:50)",
        "history.depth = 2 (qos.xml:31:25)",
    ];
    assert_eq!(shown, expected);
    assert_eq!(values.len(), 28);
}

#[test]
fn a_library_may_be_the_root_and_occur_twice() {
    let text = r#"<dds><qos_library name="L"><publisher_qos name="A"/></qos_library>
        <qos_library name="L"><qos_profile name="B"/></qos_library></dds>"#;
    assert_eq!(QosProvider::from_xml("a.xml", text).unwrap().profiles().count(), 2);
    let text = r#"<qos_library name="L"><qos_profile name="B" base_name="L::A"/><topic_qos name="A"/></qos_library>"#;
    assert_eq!(QosProvider::from_xml("a.xml", text).unwrap().profiles().count(), 2);
    assert_eq!(QosProvider::from_xml("a.xml", "<dds/>").unwrap().profiles().count(), 0);
    assert_eq!(QosProvider::from_toml("a.toml", "").unwrap().profiles().count(), 0);
}

#[test]
fn filters_that_meet_only_for_some_topics_are_checked_when_asked_for() {
    let text = "
        [[qos_library.L.A.datareader_qos]]
        topic_filter = '*b'
        history = { depth = 4 }
        [qos_library.L.B]
        base_name = 'A'
        [[qos_library.L.B.datareader_qos]]
        topic_filter = 'a*'
        resource_limits = { max_samples = 3 }
    ";
    let provider = QosProvider::from_toml("q.toml", text).unwrap();
    provider.datareader_qos("L::B", "a").unwrap();
    provider.datareader_qos("L::B", "b").unwrap();
    assert_eq!(
        provider.datareader_qos("L::B", "ab").unwrap_err().to_string(),
        "q.toml:4:29: L::B/datareader_qos/history: for topic \"ab\": inconsistent policy: HISTORY is KEEP_LAST 4 and \
         RESOURCE_LIMITS is max_samples 3, max_instances unlimited, max_samples_per_instance unlimited; the depth \
         must be at most max_samples_per_instance and max_samples"
    );
}

#[test]
fn byte_order_marks_line_ends_and_parts_of_texts_are_read() {
    let xml = "\u{feff}<dds>\r\n<qos_library name='L'>\r\n<publisher_qos name='P'><!-- -->\r\n<partition><name>\
               <element><![CDATA[<a>]]>&amp;<!-- -->b</element></name></partition></publisher_qos></qos_library></dds>";
    let qos = QosProvider::from_xml("a.xml", xml).unwrap().publisher_qos("L::P").unwrap();
    assert_eq!(qos.partition.name, ["<a>&b"]);
    let toml = "\u{feff}[qos_library.L.P]\r\npublisher_qos.partition.name = [\r\n'a']\r\n";
    let qos = QosProvider::from_toml("a.toml", toml).unwrap().publisher_qos("L::P").unwrap();
    assert_eq!(qos.partition.name, ["a"]);
}

#[test]
fn what_a_format_cannot_hold_is_not_written() {
    let mut sets = ProfileSets::default();
    sets.publisher.partition = PartitionQosPolicy::of(["a\u{1}"]);
    assert_eq!(
        to_xml("L::P", &sets).unwrap_err().to_string(),
        "L::P/publisher_qos/partition: XML can't contain the character '\\u{1}'; use TOML"
    );
    let toml = to_toml("L::P", &sets).unwrap();
    assert_eq!(QosProvider::from_toml("a.toml", &toml).unwrap().sets("L::P", "T").unwrap(), sets);
    for name in ["P", "L::", "L::P::Q", " L::P"] {
        let expected = format!("the value is {name:?}; allowed is Library::Profile");
        assert_eq!(to_toml(name, &sets).unwrap_err().to_string(), expected);
        assert_eq!(to_xml(name, &sets).unwrap_err().to_string(), expected);
    }
}
