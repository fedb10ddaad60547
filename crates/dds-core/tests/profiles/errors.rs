//! The text of each error: the place, the path, the value, the allowed values, and the nearest name.
use super::in_profile;
use spindle_dds_core::qos::profile::QosProvider;

enum Text {
    /// XML within the profile `L::P`, from line 2.
    Within(&'static str),
    Xml(&'static str),
    Toml(&'static str),
}
use Text::{Toml, Within, Xml};

const CASES: &[(Text, &str)] = &[
    (
        Within("<datawriter_qos><relability/></datawriter_qos>"),
        "q.xml:2:17: L::P/datawriter_qos: unknown element \"relability\"; did you mean \"reliability\"?",
    ),
    (
        Within("<datawriter_qos><reliability><kind>RELIABEL_QOS</kind></reliability></datawriter_qos>"),
        "q.xml:2:36: L::P/datawriter_qos/reliability/kind: the value is \"RELIABEL_QOS\"; allowed is BEST_EFFORT_RELIABILITY_QOS or RELIABLE_RELIABILITY_QOS; did you mean RELIABLE_RELIABILITY_QOS?",
    ),
    (
        Within("<datawriter_qos>\n  <reliability>\n    <kind>reliable</kind>\n  </reliability>\n</datawriter_qos>"),
        "q.xml:4:11: L::P/datawriter_qos/reliability/kind: the value is \"reliable\"; allowed is BEST_EFFORT_RELIABILITY_QOS or RELIABLE_RELIABILITY_QOS; did you mean RELIABLE_RELIABILITY_QOS?",
    ),
    (
        Within("<datawriter_qos><history><depth>0</depth></history></datawriter_qos>"),
        "q.xml:2:33: L::P/datawriter_qos/history/depth: the value is \"0\"; allowed is a number from 1 to 4294967295",
    ),
    (
        Within("<datawriter_qos><history><depth>many</depth><dept>1</dept></history></datawriter_qos>"),
        "q.xml:2:33: L::P/datawriter_qos/history/depth: the value is \"many\"; allowed is a number from 1 to 4294967295\nq.xml:2:45: L::P/datawriter_qos/history: unknown element \"dept\"; did you mean \"depth\"?",
    ),
    (
        Within(
            "<datawriter_qos><history><kind>KEEP_ALL_HISTORY_QOS</kind><kind>KEEP_ALL_HISTORY_QOS</kind></history></datawriter_qos>",
        ),
        "q.xml:2:59: L::P/datawriter_qos/history/kind: \"kind\" occurs twice; the first one is at q.xml:2:26, remove one",
    ),
    (
        Within("<datawriter_qos><history/><history/></datawriter_qos>"),
        "q.xml:2:27: L::P/datawriter_qos/history: \"history\" occurs twice; the first one is at q.xml:2:17, remove one",
    ),
    (
        Within("<datawriter_qos/><datawriter_qos/>"),
        "q.xml:2:18: L::P: \"datawriter_qos\" occurs twice; the first one is at q.xml:2:1, remove one",
    ),
    (
        Within("<datawriter_qos topic_filter=\"A*\"/><datawriter_qos topic_filter=\"A*\"/>"),
        "q.xml:2:36: L::P: \"datawriter_qos with topic_filter A*\" occurs twice; the first one is at q.xml:2:1, remove one",
    ),
    (
        Within("<publisher_qos topic_filter=\"A*\"/>"),
        "q.xml:2:16: L::P/publisher_qos: unknown attribute \"topic_filter\"; known are base_name",
    ),
    (
        Within("<datawriter_qos topic_filter=\"\"/>"),
        "q.xml:2:31: L::P/datawriter_qos/topic_filter: the value is empty; allowed is a pattern of topics such as A*, of 1 to 256 bytes",
    ),
    (
        Within("<datareader_qos><deadline><period><sec>DURATION_INFINITE</sec></period></deadline></datareader_qos>"),
        "q.xml:2:40: L::P/datareader_qos/deadline/period/sec: the value is \"DURATION_INFINITE\"; allowed is a number from 0 to 18446744073, or DURATION_INFINITE_SEC; did you mean DURATION_INFINITY?",
    ),
    (
        Within(
            "<datareader_qos><deadline><period><sec>1</sec><nanosec>1000000000</nanosec></period></deadline></datareader_qos>",
        ),
        "q.xml:2:56: L::P/datareader_qos/deadline/period/nanosec: the value is \"1000000000\"; allowed is a number from 0 to 999999999, or DURATION_INFINITE_NSEC",
    ),
    (
        Within(
            "<datareader_qos><deadline><period><sec>DURATION_INFINITE_SEC</sec><nanosec>5</nanosec></period></deadline></datareader_qos>",
        ),
        "q.xml:2:27: L::P/datareader_qos/deadline/period: the value is <sec> DURATION_INFINITE_SEC and <nanosec> 5; allowed is <sec> and <nanosec> that are both finite or both infinite, up to 18446744073 s",
    ),
    (
        Within(
            "<datareader_qos><deadline><period><nanosec>DURATION_INFINITE_NSEC</nanosec></period></deadline></datareader_qos>",
        ),
        "q.xml:2:27: L::P/datareader_qos/deadline/period: the value is <nanosec> DURATION_INFINITE_NSEC; allowed is <sec> and <nanosec> that are both finite or both infinite, up to 18446744073 s",
    ),
    (
        Within("<datareader_qos><deadline><period/></deadline></datareader_qos>"),
        "q.xml:2:27: L::P/datareader_qos/deadline/period: the value is empty; allowed is <sec> and <nanosec>, for example <sec>1</sec>, or DURATION_INFINITY",
    ),
    (
        Within("<datareader_qos><deadline><period><msec>5</msec></period></deadline></datareader_qos>"),
        "q.xml:2:35: L::P/datareader_qos/deadline/period: unknown element \"msec\"; did you mean \"sec\"?",
    ),
    (
        Within("<datareader_qos><deadline><period>5 s</period></deadline></datareader_qos>"),
        "q.xml:2:35: L::P/datareader_qos/deadline/period: the value is \"5 s\"; allowed is <sec> and <nanosec>, for example <sec>1</sec>, or DURATION_INFINITY",
    ),
    (
        Within("<datareader_qos><deadline><period><sec>18446744074</sec></period></deadline></datareader_qos>"),
        "q.xml:2:40: L::P/datareader_qos/deadline/period/sec: the value is \"18446744074\"; allowed is a number from 0 to 18446744073, or DURATION_INFINITE_SEC",
    ),
    (
        Within(
            "<datareader_qos><time_based_filter><minimum_separation><sec>-1</sec></minimum_separation></time_based_filter></datareader_qos>",
        ),
        "q.xml:2:61: L::P/datareader_qos/time_based_filter/minimum_separation/sec: the value is \"-1\"; allowed is a number from 0 to 18446744073, or DURATION_INFINITE_SEC",
    ),
    (
        Within("<topic_qos><transport_priority><value>2147483648</value></transport_priority></topic_qos>"),
        "q.xml:2:39: L::P/topic_qos/transport_priority/value: the value is \"2147483648\"; allowed is a number from -2147483648 to 2147483647",
    ),
    (
        Within("<topic_qos><topic_data><value>1, 256</value></topic_data></topic_qos>"),
        "q.xml:2:31: L::P/topic_qos/topic_data/value: the value is \"1, 256\"; allowed is octets such as 84, 0x71 (for Base64, the element is <valueB64>)",
    ),
    (
        Within("<topic_qos><topic_data><value>1</value><valueB64>AQ==</valueB64></topic_data></topic_qos>"),
        "q.xml:2:40: L::P/topic_qos/topic_data/valueB64: \"value\" occurs twice; the first one is at q.xml:2:24, remove one",
    ),
    (
        Within("<topic_qos><topic_data><valueB64>AR==</valueB64></topic_data></topic_qos>"),
        "q.xml:2:34: L::P/topic_qos/topic_data/valueB64: the value is \"AR==\"; allowed is Base64 such as VGhl",
    ),
    (
        Within("<publisher_qos><presentation><coherent_access>True</coherent_access></presentation></publisher_qos>"),
        "q.xml:2:47: L::P/publisher_qos/presentation/coherent_access: the value is \"True\"; allowed is true, false, 1 or 0",
    ),
    (
        Within("<publisher_qos><partition><name>a</name></partition></publisher_qos>"),
        "q.xml:2:33: L::P/publisher_qos/partition/name: the value is \"a\"; allowed is <element> with a name",
    ),
    (
        Within("<publisher_qos><partition><name><elemnt>a</elemnt></name></partition></publisher_qos>"),
        "q.xml:2:33: L::P/publisher_qos/partition/name: unknown element \"elemnt\"; did you mean \"element\"?",
    ),
    (
        Within("<publisher_qos><time_based_filter/></publisher_qos>"),
        "q.xml:2:16: L::P/publisher_qos: unknown element \"time_based_filter\"; known are presentation, partition, group_data, entity_factory",
    ),
    (
        Within(
            "<datareader_qos><representation><value><element>XCDR3_DATA_REPRESENTATION</element></value></representation></datareader_qos>",
        ),
        "q.xml:2:49: L::P/datareader_qos/representation/value: the value is \"XCDR3_DATA_REPRESENTATION\"; allowed is XCDR_DATA_REPRESENTATION or XML_DATA_REPRESENTATION or XCDR2_DATA_REPRESENTATION; did you mean XCDR_DATA_REPRESENTATION?",
    ),
    (
        Within("<datareader_qos><history kind=\"KEEP_ALL_HISTORY_QOS\"/></datareader_qos>"),
        "q.xml:2:26: L::P/datareader_qos/history: unknown attribute \"kind\"; none is allowed here",
    ),
    (
        Within("<datareader_qos><history><kind id=\"1\">KEEP_ALL_HISTORY_QOS</kind></history></datareader_qos>"),
        "q.xml:2:32: L::P/datareader_qos/history/kind: unknown attribute \"id\"; none is allowed here",
    ),
    (
        Within("<datareader_qos>text<history/></datareader_qos>"),
        "q.xml:2:17: L::P/datareader_qos: there is text beside the elements of <datareader_qos>; remove it",
    ),
    (
        Within("<datareader_qos>text</datareader_qos>"),
        "q.xml:2:17: L::P/datareader_qos: the value is \"text\"; allowed is elements",
    ),
    (
        Within("<datareader_qos><resource_limits><max_samples>0</max_samples></resource_limits></datareader_qos>"),
        "q.xml:2:47: L::P/datareader_qos/resource_limits/max_samples: the value is \"0\"; allowed is a number from 1 to 4294967295, or LENGTH_UNLIMITED",
    ),
    (
        Within(
            "<datareader_qos><resource_limits><initial_samples>1</initial_samples></resource_limits></datareader_qos>",
        ),
        "q.xml:2:34: L::P/datareader_qos/resource_limits: unknown element \"initial_samples\"; known are max_samples, max_instances, max_samples_per_instance",
    ),
    (Within("<datawriter_qos base_name=\"Q\"/>"), "q.xml:2:28: L::P: unknown profile \"L::Q\"; did you mean \"L::P\"?"),
    (
        Within("<datawriter_qos base_name=\"A::B::C\"/>"),
        "q.xml:2:28: L::P/datawriter_qos/base_name: the value is \"A::B::C\"; allowed is a profile: its name, or Library::Profile",
    ),
    (
        Within("<datawriter_qos base_name=\"P\"/>"),
        "q.xml:2:28: L::P: the profile inherits from itself: L::P -> L::P; remove one base_name",
    ),
    (
        Within("<participant_qos/>"),
        "q.xml:2:1: L::P: unknown element \"participant_qos\"; did you mean \"domain_participant_qos\"?",
    ),
    (
        Within(
            "<datareader_qos><history><depth>5</depth></history><resource_limits><max_samples_per_instance>4</max_samples_per_instance></resource_limits></datareader_qos>",
        ),
        "q.xml:2:33: L::P/datareader_qos/history: inconsistent policy: HISTORY is KEEP_LAST 5 and RESOURCE_LIMITS is max_samples unlimited, max_instances unlimited, max_samples_per_instance 4; the depth must be at most max_samples_per_instance and max_samples",
    ),
    (
        Within(
            "<datareader_qos><deadline><period><sec>1</sec></period></deadline><time_based_filter><minimum_separation><sec>2</sec></minimum_separation></time_based_filter></datareader_qos>",
        ),
        "q.xml:2:27: L::P/datareader_qos/deadline: inconsistent policy: DEADLINE is 1 s and TIME_BASED_FILTER is 2 s; the period must be at least minimum_separation",
    ),
    (
        Within(
            "<datawriter_qos><representation><value><element>XML_DATA_REPRESENTATION</element></value></representation></datawriter_qos>",
        ),
        "q.xml:2:1: L::P/datawriter_qos: unsupported: DATA_REPRESENTATION XML; use XCDR or XCDR2",
    ),
    (
        Within(
            "<datawriter_qos topic_filter=\"A?\"><consistency><ack>PERSISTED_ACK_QOS</ack></consistency></datawriter_qos>",
        ),
        "q.xml:2:53: L::P/datawriter_qos/consistency: for topic \"Ax\": inconsistent policy: CONSISTENCY is derived, ack PERSISTED, read DELIVERED and DURABILITY is VOLATILE; PERSISTED and DURABLE need a log: use LOGGED_STORAGE, or DURABILITY PERSISTENT",
    ),
    (Xml("<dds>"), "q.xml:1:1: not well-formed XML: the root node was opened but never closed"),
    (Xml("<profiles/>"), "q.xml:1:1: unknown element \"profiles\"; known are dds, qos_library"),
    (
        Xml("<dds xmlns=\"http://www.example.com\"/>"),
        "q.xml:1:1: unknown namespace \"http://www.example.com\"; did you mean \"http://www.omg.org/spec/DDS-XML\"?",
    ),
    (Xml("<dds><qos_library/></dds>"), "q.xml:1:6: qos_library: the attribute name is missing; add it"),
    (
        Xml("<dds><qos_library name=\"A::B\"/></dds>"),
        "q.xml:1:25: qos_library/name: the value is \"A::B\"; allowed is a name of 1 to 256 bytes without \"::\" and without spaces around it",
    ),
    (
        Xml("<dds><qos_library name=\"L\"><qos_profile/></qos_library></dds>"),
        "q.xml:1:28: L/qos_profile: the attribute name is missing; add it",
    ),
    (
        Xml("<dds><qos_library name=\"L\"><datareader_qos/></qos_library></dds>"),
        "q.xml:1:28: L/datareader_qos: the attribute name is missing; add it",
    ),
    (
        Xml("<dds><qos_library name=\"L\" version=\"2\"><qos_profil name=\"P\"/></qos_library></dds>"),
        "q.xml:1:28: L: unknown attribute \"version\"; known are name\nq.xml:1:40: L: unknown element \"qos_profil\"; did you mean \"qos_profile\"?",
    ),
    (
        Xml("<dds><qos_library name=\"L\"><qos_profile name=\"P\" is_default_qos=\"yes\"/></qos_library></dds>"),
        "q.xml:1:66: L::P/is_default_qos: the value is \"yes\"; allowed is true, false, 1 or 0",
    ),
    (
        Xml("<dds><qos_library name=\"L\"><qos_profile name=\"P\"/>\n<qos_profile name=\"P\"/></qos_library></dds>"),
        "q.xml:2:1: L::P: \"L::P\" occurs twice; the first one is at q.xml:1:28, remove one",
    ),
    (
        Xml(
            "<dds><qos_library name=\"L\"><qos_profile name=\"P\" is_default_qos=\"1\"/>\n<qos_profile name=\"Q\" is_default_qos=\"1\"/></qos_library></dds>",
        ),
        "q.xml:2:1: L::Q: \"is_default_qos\" occurs twice; the first one is at q.xml:1:28, remove one",
    ),
    (
        Xml(
            "<dds><qos_library name=\"L\"><qos_profile name=\"A\" base_name=\"B\"/><qos_profile name=\"B\" base_name=\"L::A\"/></qos_library></dds>",
        ),
        "q.xml:1:98: L::B: the profile inherits from itself: L::A -> L::B -> L::A; remove one base_name",
    ),
    (
        Xml(
            "<dds><qos_library name=\"L\"><qos_profile name=\"Strict\"/><qos_profile name=\"B\" base_name=\"Strickt\"/></qos_library></dds>",
        ),
        "q.xml:1:89: L::B: unknown profile \"L::Strickt\"; did you mean \"L::Strict\"?",
    ),
    (Xml("<dds><types/></dds>"), "q.xml:1:6: unknown element \"types\"; known are qos_library"),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nrelability = { kind = 'reliable' }"),
        "q.toml:2:1: L::P/datawriter_qos: unknown key \"relability\"; did you mean \"reliability\"?",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nreliability = { kind = 'relable' }"),
        "q.toml:2:24: L::P/datawriter_qos/reliability/kind: the value is \"relable\"; allowed is \"best_effort\" or \"reliable\"; did you mean \"reliable\"?",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nreliability = 'reliable'"),
        "q.toml:2:15: L::P/datawriter_qos/reliability: the value is \"reliable\"; allowed is a table",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nreliability = { max_blocking_time = '100 msec' }"),
        "q.toml:2:37: L::P/datawriter_qos/reliability/max_blocking_time: the value is \"100 msec\"; allowed is a time such as \"100 ms\" or \"2 s\" (a bare number is seconds), or \"infinite\"",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nreliability = { max_blocking_time = 0.5 }"),
        "q.toml:2:37: L::P/datawriter_qos/reliability/max_blocking_time: the value is 0.5; allowed is a time such as \"100 ms\" or \"2 s\" (a bare number is seconds), or \"infinite\"",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nhistory = { depth = -1 }"),
        "q.toml:2:21: L::P/datawriter_qos/history/depth: the value is -1; allowed is a number from 1 to 4294967295",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nhistory = { depth = 4294967296 }"),
        "q.toml:2:21: L::P/datawriter_qos/history/depth: the value is 4294967296; allowed is a number from 1 to 4294967295",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nhistory = { depth = '5' }"),
        "q.toml:2:21: L::P/datawriter_qos/history/depth: the value is \"5\"; allowed is a number from 1 to 4294967295",
    ),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nresource_limits = { max_samples = 'infinite' }"),
        "q.toml:2:35: L::P/datawriter_qos/resource_limits/max_samples: the value is \"infinite\"; allowed is a number from 1 to 4294967295, or \"unlimited\"",
    ),
    (
        Toml("[qos_library.L.P.publisher_qos]\npartition = { name = 'a' }"),
        "q.toml:2:22: L::P/publisher_qos/partition/name: the value is \"a\"; allowed is a list of names such as [\"a\", \"b*\"]",
    ),
    (
        Toml("[qos_library.L.P.publisher_qos]\npartition = { name = ['a', 1] }"),
        "q.toml:2:28: L::P/publisher_qos/partition/name: the value is 1; allowed is a name",
    ),
    (
        Toml("[qos_library.L.P.topic_qos]\nrepresentation = { value = ['xcdr4'] }"),
        "q.toml:2:29: L::P/topic_qos/representation/value: the value is \"xcdr4\"; allowed is \"xcdr\" or \"xml\" or \"xcdr2\"; did you mean \"xcdr\"?",
    ),
    (
        Toml("[qos_library.L.P.topic_qos]\ntopic_data = { value = [1, 2, 300] }"),
        "q.toml:2:31: L::P/topic_qos/topic_data/value: the value is 300; allowed is an octet from 0 to 255",
    ),
    (
        Toml("[qos_library.L.P]\nbase_nam = 'Q'"),
        "q.toml:2:1: L::P: unknown key \"base_nam\"; did you mean \"base_name\"?",
    ),
    (
        Toml("[qos_library.L.P]\nis_default_qos = 1"),
        "q.toml:2:18: L::P/is_default_qos: the value is 1; allowed is true or false",
    ),
    (
        Toml("[qos_library.L.P]\ntopic_filter = 'A'"),
        "q.toml:2:1: L::P: unknown key \"topic_filter\"; known are base_name, is_default_qos",
    ),
    (
        Toml("[[qos_library.L.P.publisher_qos]]\n"),
        "q.toml:1:1: L::P/publisher_qos: the value is a list; allowed is a table",
    ),
    (
        Toml("[[qos_library.L.P.datawriter_qos]]\n[[qos_library.L.P.datawriter_qos]]\n"),
        "q.toml:2:1: L::P: \"datawriter_qos\" occurs twice; the first one is at q.toml:1:1, remove one",
    ),
    (
        Toml("[qos_library.'a::b'.P]\n"),
        "q.toml:1:14: qos_library: the value is \"a::b\"; allowed is a name of 1 to 256 bytes without \"::\" and without spaces around it",
    ),
    (Toml("[qos_libary.L.P]\n"), "q.toml:1:2: unknown key \"qos_libary\"; did you mean \"qos_library\"?"),
    (
        Toml("[qos_library.L.P.datawriter_qos]\nhistory.depth = 1\nhistory.depth = 2"),
        "q.toml:3:9: not well-formed TOML: duplicate key",
    ),
    (Toml("[qos_library.L.P\n"), "q.toml:1:17: not well-formed TOML: unclosed table, expected `]`"),
];

#[test]
fn each_error_has_its_place_and_its_remedy() {
    let mut wrong = Vec::new();
    for (text, expected) in CASES {
        let found = match text {
            Within(text) => QosProvider::from_xml("q.xml", &in_profile(text)),
            Xml(text) => QosProvider::from_xml("q.xml", text),
            Toml(text) => QosProvider::from_toml("q.toml", text),
        };
        let found = found.unwrap_err().to_string();
        if found != *expected {
            wrong.push(found);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n---\n"));
}
