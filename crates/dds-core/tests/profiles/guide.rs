//! The guide: both files give the same policies, and the errors have the texts of the page.
use spindle_dds_core::DdsDuration;
use spindle_dds_core::policy::{HistoryQosPolicyKind, Length};
use spindle_dds_core::qos::profile::QosProvider;

const GUIDE: &str = include_str!("../../../../docs/guide/qos-profiles.md");

fn block(language: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn both_files_of_the_guide_give_the_same_policies() {
    let xml = QosProvider::from_xml("control.xml", block("xml")).unwrap();
    let toml = QosProvider::from_toml("control.toml", block("toml")).unwrap();
    assert_eq!(xml.profiles().collect::<Vec<_>>(), ["Control::Reliable", "Control::Strict"]);
    assert_eq!(xml.default_profile(), toml.default_profile());
    for topic in ["AlarmHigh", "Speed"] {
        for profile in xml.profiles() {
            assert_eq!(xml.sets(profile, topic).unwrap(), toml.sets(profile, topic).unwrap());
        }
    }
    let alarm = xml.datawriter_qos("Control::Strict", "AlarmHigh").unwrap();
    assert_eq!(alarm.history.kind, HistoryQosPolicyKind::KeepAll);
    assert_eq!(alarm.reliability.max_blocking_time, DdsDuration::from_millis(100));
    assert_eq!(alarm.resource_limits.max_samples, Length::Unlimited);
    let speed = xml.datawriter_qos(None, "Speed").unwrap();
    assert_eq!(speed.history.kind, HistoryQosPolicyKind::KeepLast(10));
}

#[test]
fn the_errors_of_the_guide_have_their_texts() {
    let text = "<dds>\n<qos_library name=\"Control\">\n<qos_profile name=\"Reliable\">\n<datawriter_qos>\n\
                <relability/>\n<history><depth>0</depth></history>\n</datawriter_qos></qos_profile></qos_library></dds>";
    let errors = QosProvider::from_xml("control.xml", text).unwrap_err().to_string();
    assert_eq!(errors.trim(), block("text").trim());
}
