//! Each policy in both formats: the value that is named changes, and nothing else.
use super::{toml_sets, xml_sets};
use spindle_dds_core::DdsDuration;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::profile::ProfileSets;

/// Reads a policy of an entity in both formats, and compares all sets.
fn check(entity: &str, xml: &str, toml: &str, change: impl FnOnce(&mut ProfileSets)) {
    let mut expected = ProfileSets::default();
    change(&mut expected);
    assert_ne!(expected, ProfileSets::default(), "{entity} {xml}");
    assert_eq!(xml_sets(&format!("<{entity}>{xml}</{entity}>")), expected, "{xml}");
    assert_eq!(toml_sets(&format!("[qos_library.L.P.{entity}]\n{toml}")), expected, "{toml}");
}

macro_rules! policies {
    ($($name:ident: $entity:ident, $xml:literal, $toml:literal, $change:expr;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($entity), $xml, $toml, $change);
        }
    )*};
}

const MS: DdsDuration = DdsDuration::from_millis(1);

policies! {
    user_data: domain_participant_qos,
        "<user_data><value>84, 0x71 ,0XfF</value></user_data>",
        "user_data = { value = [84, 0x71, 255] }",
        |sets| sets.participant.user_data.value = vec![84, 0x71, 255];
    user_data_in_base64: datareader_qos,
        "<user_data><valueB64>VGhlIHF1
            aWM=</valueB64></user_data>",
        "user_data.valueB64 = 'VGhlIHF1aWM='",
        |sets| sets.datareader.user_data.value = b"The quic".to_vec();
    topic_data: topic_qos,
        "<topic_data><value>0</value></topic_data>",
        "topic_data = { value = \"\\u0000\" }",
        |sets| sets.topic.topic_data.value = vec![0];
    group_data_of_a_publisher: publisher_qos,
        "<group_data><valueB64>/+8=</valueB64></group_data>",
        "group_data = { valueB64 = \"/+8=\" }",
        |sets| sets.publisher.group_data.value = vec![0xff, 0xef];
    durability: datawriter_qos,
        "<durability><kind>TRANSIENT_LOCAL_DURABILITY_QOS</kind></durability>",
        "durability = { kind = \"transient_local\" }",
        |sets| sets.datawriter.durability.kind = DurabilityQosPolicyKind::TransientLocal;
    durability_service: topic_qos,
        "<durability_service>
           <service_cleanup_delay><sec>1</sec><nanosec>500000000</nanosec></service_cleanup_delay>
           <history_kind>KEEP_LAST_HISTORY_QOS</history_kind><history_depth>5</history_depth>
           <max_samples>20</max_samples><max_instances>3</max_instances>
           <max_samples_per_instance>10</max_samples_per_instance>
         </durability_service>",
        "durability_service = { service_cleanup_delay = '1.5 s', history_kind = 'keep_last', history_depth = 5,
           max_samples = 20, max_instances = 3, max_samples_per_instance = 10 }",
        |sets| sets.topic.durability_service = DurabilityServiceQosPolicy {
            service_cleanup_delay: DdsDuration::from_millis(1500),
            history_kind: HistoryQosPolicyKind::KeepLast(5),
            limits: ResourceLimitsQosPolicy {
                max_samples: Length::Limited(20),
                max_instances: Length::Limited(3),
                max_samples_per_instance: Length::Limited(10),
            },
        };
    presentation: subscriber_qos,
        "<presentation><access_scope>GROUP_PRESENTATION_QOS</access_scope>
           <coherent_access>true</coherent_access><ordered_access>1</ordered_access></presentation>",
        "presentation = { access_scope = 'group', coherent_access = true, ordered_access = true }",
        |sets| sets.subscriber.presentation = PresentationQosPolicy {
            access_scope: PresentationQosPolicyAccessScopeKind::Group,
            coherent_access: true,
            ordered_access: true,
        };
    deadline: datareader_qos,
        "<deadline><period><sec>DURATION_ZERO_SEC</sec><nanosec>1000000</nanosec></period></deadline>",
        "deadline = { period = '1 ms' }",
        |sets| sets.datareader.deadline.period = MS;
    latency_budget: datawriter_qos,
        "<latency_budget><duration><nanosec>7</nanosec></duration></latency_budget>",
        "latency_budget = { duration = '7ns' }",
        |sets| sets.datawriter.latency_budget.duration = DdsDuration::from_nanos(7);
    latency_budget_without_a_bound: datawriter_qos,
        "<latency_budget><duration><sec>DURATION_INFINITY</sec></duration></latency_budget>",
        "latency_budget = { duration = 'infinite' }",
        |sets| sets.datawriter.latency_budget.duration = DdsDuration::INFINITE;
    ownership: datawriter_qos,
        "<ownership><kind>EXCLUSIVE_OWNERSHIP_QOS</kind></ownership>",
        "ownership = { kind = 'exclusive' }",
        |sets| sets.datawriter.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    ownership_strength: datawriter_qos,
        "<ownership_strength><value>0xFFFFFFFe</value></ownership_strength>",
        "ownership_strength = { value = -2 }",
        |sets| sets.datawriter.ownership_strength.value = -2;
    liveliness: topic_qos,
        "<liveliness><kind>MANUAL_BY_TOPIC_LIVELINESS_QOS</kind>
           <lease_duration><sec>2</sec></lease_duration></liveliness>",
        "liveliness = { kind = 'manual_by_topic', lease_duration = 2 }",
        |sets| sets.topic.liveliness = LivelinessQosPolicy {
            kind: LivelinessQosPolicyKind::ManualByTopic,
            lease_duration: DdsDuration::from_secs(2),
        };
    time_based_filter: datareader_qos,
        "<time_based_filter><minimum_separation><nanosec>1000000</nanosec></minimum_separation></time_based_filter>",
        "time_based_filter = { minimum_separation = '0.001 s' }",
        |sets| sets.datareader.time_based_filter.minimum_separation = MS;
    partition: publisher_qos,
        "<partition><name><element>a &lt;b&gt;</element><element></element></name></partition>",
        "partition = { name = ['a <b>', ''] }",
        |sets| sets.publisher.partition = PartitionQosPolicy::of(["a <b>", ""]);
    reliability: datareader_qos,
        "<reliability><kind>RELIABLE_RELIABILITY_QOS</kind>
           <max_blocking_time><nanosec>1000000</nanosec></max_blocking_time></reliability>",
        "reliability = { kind = 'reliable', max_blocking_time = '1 ms' }",
        |sets| sets.datareader.reliability = ReliabilityQosPolicy {
            kind: ReliabilityQosPolicyKind::Reliable,
            max_blocking_time: MS,
        };
    transport_priority: topic_qos,
        "<transport_priority><value> -2147483648 </value></transport_priority>",
        "transport_priority = { value = -2147483648 }",
        |sets| sets.topic.transport_priority.value = i32::MIN;
    lifespan: datawriter_qos,
        "<lifespan><duration><sec>86400</sec></duration></lifespan>",
        "lifespan = { duration = '1 d' }",
        |sets| sets.datawriter.lifespan.duration = DdsDuration::from_secs(86_400);
    destination_order: datareader_qos,
        "<destination_order><kind>BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS</kind></destination_order>",
        "destination_order = { kind = 'by_source_timestamp' }",
        |sets| sets.datareader.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp;
    history: datareader_qos,
        "<history><depth>0x10</depth></history>",
        "history = { depth = 16 }",
        |sets| sets.datareader.history.kind = HistoryQosPolicyKind::KeepLast(16);
    history_of_all: datawriter_qos,
        "<history><kind>KEEP_ALL_HISTORY_QOS</kind><depth>3</depth></history>",
        "history = { kind = 'KEEP_ALL_HISTORY_QOS', depth = 3 }",
        |sets| sets.datawriter.history.kind = HistoryQosPolicyKind::KeepAll;
    resource_limits: datawriter_qos,
        "<resource_limits><max_samples>4</max_samples><max_instances>LENGTH_UNLIMITED</max_instances></resource_limits>",
        "resource_limits = { max_samples = 4, max_instances = 'unlimited' }",
        |sets| sets.datawriter.resource_limits.max_samples = Length::Limited(4);
    entity_factory: domain_participant_factory_qos,
        "<entity_factory><autoenable_created_entities>false</autoenable_created_entities></entity_factory>",
        "entity_factory = { autoenable_created_entities = false }",
        |sets| sets.factory.entity_factory.autoenable_created_entities = false;
    writer_data_lifecycle: datawriter_qos,
        "<writer_data_lifecycle><autodispose_unregistered_instances>0</autodispose_unregistered_instances>
         </writer_data_lifecycle>",
        "writer_data_lifecycle = { autodispose_unregistered_instances = false }",
        |sets| sets.datawriter.writer_data_lifecycle.autodispose_unregistered_instances = false;
    reader_data_lifecycle: datareader_qos,
        "<reader_data_lifecycle>
           <autopurge_nowriter_samples_delay><nanosec>1000000</nanosec></autopurge_nowriter_samples_delay>
           <autopurge_disposed_samples_delay><sec>0</sec></autopurge_disposed_samples_delay>
         </reader_data_lifecycle>",
        "reader_data_lifecycle = { autopurge_nowriter_samples_delay = '1 ms', autopurge_disposed_samples_delay = 0 }",
        |sets| sets.datareader.reader_data_lifecycle = ReaderDataLifecycleQosPolicy {
            autopurge_nowriter_samples_delay: MS,
            autopurge_disposed_samples_delay: DdsDuration::ZERO,
        };
    data_representation: topic_qos,
        "<representation><value><element>XCDR2_DATA_REPRESENTATION</element>
           <element>XCDR_DATA_REPRESENTATION</element></value></representation>",
        "representation = { value = ['xcdr2', 'xcdr'] }",
        |sets| sets.topic.representation.value = vec![RepresentationId::Xcdr2, RepresentationId::Xcdr1];
    type_consistency_enforcement: datareader_qos,
        "<type_consistency><kind>DISALLOW_TYPE_COERCION</kind><ignore_sequence_bounds>false</ignore_sequence_bounds>
           <ignore_string_bounds>false</ignore_string_bounds><ignore_member_names>true</ignore_member_names>
           <prevent_type_widening>true</prevent_type_widening><force_type_validation>true</force_type_validation>
         </type_consistency>",
        "type_consistency = { kind = 'disallow_type_coercion', ignore_sequence_bounds = false,
           ignore_string_bounds = false, ignore_member_names = true, prevent_type_widening = true,
           force_type_validation = true }",
        |sets| {
            let policy = &mut sets.datareader.type_consistency;
            policy.rules.allow_type_coercion = false;
            policy.rules.ignore_sequence_bounds = false;
            policy.rules.ignore_string_bounds = false;
            policy.rules.ignore_member_names = true;
            policy.rules.prevent_type_widening = true;
            policy.force_type_validation = true;
        };
    consistency: datawriter_qos,
        "<durability><kind>PERSISTENT_DURABILITY_QOS</kind></durability>
         <consistency><kind>LOGGED_STORAGE_CONSISTENCY_QOS</kind><ack>PERSISTED_ACK_QOS</ack>
           <read>DURABLE_READ_QOS</read></consistency>",
        "durability = { kind = 'persistent' }
         consistency = { kind = 'logged_storage', ack = 'persisted', read = 'durable' }",
        |sets| {
            sets.datawriter.durability.kind = DurabilityQosPolicyKind::Persistent;
            sets.datawriter.consistency = ConsistencyQosPolicy {
                kind: Some(ConsistencyKind::LoggedStorage),
                ack: AckPoint::Persisted,
                read: ReadPoint::Durable,
            };
        };
}

#[test]
fn durations_without_a_bound_have_three_notations() {
    for period in [
        "DURATION_INFINITY",
        "<sec>DURATION_INFINITY</sec><nanosec>DURATION_INFINITY</nanosec>",
        "<sec>DURATION_INFINITE_SEC</sec><nanosec>DURATION_INFINITE_NSEC</nanosec>",
        "<nanosec>0x7fffffff</nanosec><sec>2147483647</sec>",
    ] {
        let text = format!(
            "<datareader_qos><reader_data_lifecycle><autopurge_disposed_samples_delay>{period}\
             </autopurge_disposed_samples_delay></reader_data_lifecycle><latency_budget><duration>{period}</duration>\
             </latency_budget></datareader_qos>"
        );
        assert_eq!(xml_sets(&text).datareader.latency_budget.duration, DdsDuration::INFINITE, "{period}");
    }
}

#[test]
fn times_of_toml_have_units() {
    for (text, nanos) in [
        ("'0 s'", 0),
        ("3", 3_000_000_000),
        ("'3'", 3_000_000_000),
        ("'1.25 us'", 1_250),
        ("'1 µs'", 1_000),
        ("'2min'", 120_000_000_000),
        ("'0.5h'", 1_800_000_000_000),
        ("'18446744073709551614 ns'", u64::MAX - 1),
    ] {
        let sets = toml_sets(&format!("[qos_library.L.P.datawriter_qos.latency_budget]\nduration = {text}"));
        assert_eq!(sets.datawriter.latency_budget.duration.as_nanos(), nanos, "{text}");
    }
}
