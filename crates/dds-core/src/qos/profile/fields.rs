//! The fields of each policy, with their names in the platform-specific model (DDS 2.3.3, XTypes Annex C).
use super::value::{FieldKind, Literal, Value};
use crate::policy::*;
use crate::time::DdsDuration;

/// A field of a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: FieldKind,
}

/// A policy as its fields.
pub(super) trait Fields {
    /// Returns the fields, in the order in which they are applied.
    fn fields() -> Vec<Field>;

    /// Sets a field. A value of another kind changes nothing.
    fn set(&mut self, field: &str, value: &Value);

    /// Returns the fields that have a value, with it.
    fn values(&self) -> Vec<(Field, Value)>;
}

/// A type of fields.
trait FieldType: Sized {
    const KIND: FieldKind;
    fn from_value(value: &Value) -> Option<Self>;
    fn to_value(&self) -> Value;
}

macro_rules! field_types {
    ($($type:ty, $variant:ident;)*) => {$(
        impl FieldType for $type {
            const KIND: FieldKind = FieldKind::$variant;

            fn from_value(value: &Value) -> Option<$type> {
                if let Value::$variant(value) = value { Some(value.clone()) } else { None }
            }

            fn to_value(&self) -> Value {
                Value::$variant(self.clone())
            }
        }
    )*};
}

field_types! {
    DdsDuration, Duration;
    Length, Length;
    u32, Count;
    i32, Integer;
    bool, Bool;
    Vec<u8>, Octets;
    Vec<String>, Names;
}

macro_rules! words {
    ($($type:ty { $($value:expr, $standard:literal, $short:literal;)* })*) => {$(
        impl FieldType for $type {
            const KIND: FieldKind =
                FieldKind::Word(&[$(Literal { standard: $standard, short: $short }),*]);

            fn from_value(value: &Value) -> Option<$type> {
                let Value::Word(index) = value else { return None };
                [$($value),*].get(*index).copied()
            }

            fn to_value(&self) -> Value {
                Value::Word([$($value),*].iter().position(|value| value == self).unwrap_or(0))
            }
        }
    )*};
}

words! {
    ReliabilityQosPolicyKind {
        ReliabilityQosPolicyKind::BestEffort, "BEST_EFFORT_RELIABILITY_QOS", "best_effort";
        ReliabilityQosPolicyKind::Reliable, "RELIABLE_RELIABILITY_QOS", "reliable";
    }
    DurabilityQosPolicyKind {
        DurabilityQosPolicyKind::Volatile, "VOLATILE_DURABILITY_QOS", "volatile";
        DurabilityQosPolicyKind::TransientLocal, "TRANSIENT_LOCAL_DURABILITY_QOS", "transient_local";
        DurabilityQosPolicyKind::Transient, "TRANSIENT_DURABILITY_QOS", "transient";
        DurabilityQosPolicyKind::Persistent, "PERSISTENT_DURABILITY_QOS", "persistent";
    }
    // The kind of HISTORY; its depth is a field of its own.
    HistoryWord {
        HistoryWord::KeepLast, "KEEP_LAST_HISTORY_QOS", "keep_last";
        HistoryWord::KeepAll, "KEEP_ALL_HISTORY_QOS", "keep_all";
    }
    PresentationQosPolicyAccessScopeKind {
        PresentationQosPolicyAccessScopeKind::Instance, "INSTANCE_PRESENTATION_QOS", "instance";
        PresentationQosPolicyAccessScopeKind::Topic, "TOPIC_PRESENTATION_QOS", "topic";
        PresentationQosPolicyAccessScopeKind::Group, "GROUP_PRESENTATION_QOS", "group";
    }
    OwnershipQosPolicyKind {
        OwnershipQosPolicyKind::Shared, "SHARED_OWNERSHIP_QOS", "shared";
        OwnershipQosPolicyKind::Exclusive, "EXCLUSIVE_OWNERSHIP_QOS", "exclusive";
    }
    LivelinessQosPolicyKind {
        LivelinessQosPolicyKind::Automatic, "AUTOMATIC_LIVELINESS_QOS", "automatic";
        LivelinessQosPolicyKind::ManualByParticipant, "MANUAL_BY_PARTICIPANT_LIVELINESS_QOS", "manual_by_participant";
        LivelinessQosPolicyKind::ManualByTopic, "MANUAL_BY_TOPIC_LIVELINESS_QOS", "manual_by_topic";
    }
    DestinationOrderQosPolicyKind {
        DestinationOrderQosPolicyKind::ByReceptionTimestamp,
            "BY_RECEPTION_TIMESTAMP_DESTINATIONORDER_QOS", "by_reception_timestamp";
        DestinationOrderQosPolicyKind::BySourceTimestamp,
            "BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS", "by_source_timestamp";
    }
    CoercionWord {
        CoercionWord::Disallow, "DISALLOW_TYPE_COERCION", "disallow_type_coercion";
        CoercionWord::Allow, "ALLOW_TYPE_COERCION", "allow_type_coercion";
    }
    Option<ConsistencyKind> {
        None, "DERIVED_CONSISTENCY_QOS", "derived";
        Some(ConsistencyKind::Unordered), "UNORDERED_CONSISTENCY_QOS", "unordered";
        Some(ConsistencyKind::AtomicMulticast), "ATOMIC_MULTICAST_CONSISTENCY_QOS", "atomic_multicast";
        Some(ConsistencyKind::VolatileStorage), "VOLATILE_STORAGE_CONSISTENCY_QOS", "volatile_storage";
        Some(ConsistencyKind::LoggedStorage), "LOGGED_STORAGE_CONSISTENCY_QOS", "logged_storage";
    }
    AckPoint {
        AckPoint::Sent, "SENT_ACK_QOS", "sent";
        AckPoint::Delivered, "DELIVERED_ACK_QOS", "delivered";
        AckPoint::Persisted, "PERSISTED_ACK_QOS", "persisted";
    }
    ReadPoint {
        ReadPoint::Delivered, "DELIVERED_READ_QOS", "delivered";
        ReadPoint::Durable, "DURABLE_READ_QOS", "durable";
    }
}

/// The kind of HISTORY without its depth.
#[derive(Clone, Copy, PartialEq)]
enum HistoryWord {
    KeepLast,
    KeepAll,
}

/// The kind of TYPE_CONSISTENCY_ENFORCEMENT.
#[derive(Clone, Copy, PartialEq)]
enum CoercionWord {
    Disallow,
    Allow,
}

/// The representations (XTypes 7.6.3.1.1), each with its literals.
const REPRESENTATIONS: [(RepresentationId, Literal); 3] = [
    (RepresentationId::Xcdr1, Literal { standard: "XCDR_DATA_REPRESENTATION", short: "xcdr" }),
    (RepresentationId::Xml, Literal { standard: "XML_DATA_REPRESENTATION", short: "xml" }),
    (RepresentationId::Xcdr2, Literal { standard: "XCDR2_DATA_REPRESENTATION", short: "xcdr2" }),
];

impl FieldType for Vec<RepresentationId> {
    const KIND: FieldKind = FieldKind::Words(&[REPRESENTATIONS[0].1, REPRESENTATIONS[1].1, REPRESENTATIONS[2].1]);

    fn from_value(value: &Value) -> Option<Vec<RepresentationId>> {
        let Value::Words(indices) = value else { return None };
        indices.iter().map(|index| REPRESENTATIONS.get(*index).map(|(id, _)| *id)).collect()
    }

    fn to_value(&self) -> Value {
        let index = |id: &RepresentationId| REPRESENTATIONS.iter().position(|(own, _)| own == id).unwrap_or(0);
        Value::Words(self.iter().map(index).collect())
    }
}

/// Returns the kind of a field by its type.
fn kind_of<T: FieldType>(_: &T) -> FieldKind {
    T::KIND
}

fn assign<T: FieldType>(field: &mut T, value: &Value) {
    if let Some(value) = T::from_value(value) {
        *field = value;
    }
}

/// Implements [`Fields`] for policies whose fields are named as in the specification.
macro_rules! policies {
    ($($policy:ident { $($name:ident),* })*) => {$(
        impl Fields for $policy {
            fn fields() -> Vec<Field> {
                let default = $policy::default();
                vec![$(Field { name: stringify!($name), kind: kind_of(&default.$name) }),*]
            }

            fn set(&mut self, field: &str, value: &Value) {
                match field {
                    $(stringify!($name) => assign(&mut self.$name, value),)*
                    _ => {}
                }
            }

            fn values(&self) -> Vec<(Field, Value)> {
                let values = [$(self.$name.to_value()),*];
                <$policy as Fields>::fields().into_iter().zip(values).collect()
            }
        }
    )*};
}

policies! {
    UserDataQosPolicy { value }
    TopicDataQosPolicy { value }
    GroupDataQosPolicy { value }
    DurabilityQosPolicy { kind }
    PresentationQosPolicy { access_scope, coherent_access, ordered_access }
    DeadlineQosPolicy { period }
    LatencyBudgetQosPolicy { duration }
    OwnershipQosPolicy { kind }
    OwnershipStrengthQosPolicy { value }
    LivelinessQosPolicy { kind, lease_duration }
    TimeBasedFilterQosPolicy { minimum_separation }
    PartitionQosPolicy { name }
    ReliabilityQosPolicy { kind, max_blocking_time }
    TransportPriorityQosPolicy { value }
    LifespanQosPolicy { duration }
    DestinationOrderQosPolicy { kind }
    ResourceLimitsQosPolicy { max_samples, max_instances, max_samples_per_instance }
    EntityFactoryQosPolicy { autoenable_created_entities }
    WriterDataLifecycleQosPolicy { autodispose_unregistered_instances }
    ReaderDataLifecycleQosPolicy { autopurge_nowriter_samples_delay, autopurge_disposed_samples_delay }
    DataRepresentationQosPolicy { value }
    ConsistencyQosPolicy { kind, ack, read }
}

/// Sets the kind of a history, and keeps its depth.
fn set_history(history: &mut HistoryQosPolicyKind, value: &Value) {
    match (HistoryWord::from_value(value), *history) {
        (Some(HistoryWord::KeepAll), _) => *history = HistoryQosPolicyKind::KeepAll,
        (Some(HistoryWord::KeepLast), HistoryQosPolicyKind::KeepAll) => *history = HistoryQosPolicyKind::KeepLast(1),
        _ => {}
    }
}

/// Sets the depth of a history, which has no meaning for KEEP_ALL (DDS 2.2.3.18).
fn set_depth(history: &mut HistoryQosPolicyKind, value: &Value) {
    if let (HistoryQosPolicyKind::KeepLast(depth), Some(given)) = (history, u32::from_value(value)) {
        *depth = given;
    }
}

fn history_values(history: HistoryQosPolicyKind, kind: Field, depth: Field) -> Vec<(Field, Value)> {
    match history {
        HistoryQosPolicyKind::KeepLast(last) => {
            vec![(kind, HistoryWord::KeepLast.to_value()), (depth, last.to_value())]
        }
        HistoryQosPolicyKind::KeepAll => vec![(kind, HistoryWord::KeepAll.to_value())],
    }
}

impl Fields for HistoryQosPolicy {
    fn fields() -> Vec<Field> {
        vec![Field { name: "kind", kind: HistoryWord::KIND }, Field { name: "depth", kind: FieldKind::Count }]
    }

    fn set(&mut self, field: &str, value: &Value) {
        match field {
            "kind" => set_history(&mut self.kind, value),
            "depth" => set_depth(&mut self.kind, value),
            _ => {}
        }
    }

    fn values(&self) -> Vec<(Field, Value)> {
        let fields = HistoryQosPolicy::fields();
        history_values(self.kind, fields[0], fields[1])
    }
}

impl Fields for DurabilityServiceQosPolicy {
    fn fields() -> Vec<Field> {
        let own = [
            Field { name: "service_cleanup_delay", kind: FieldKind::Duration },
            Field { name: "history_kind", kind: HistoryWord::KIND },
            Field { name: "history_depth", kind: FieldKind::Count },
        ];
        own.into_iter().chain(ResourceLimitsQosPolicy::fields()).collect()
    }

    fn set(&mut self, field: &str, value: &Value) {
        match field {
            "service_cleanup_delay" => assign(&mut self.service_cleanup_delay, value),
            "history_kind" => set_history(&mut self.history_kind, value),
            "history_depth" => set_depth(&mut self.history_kind, value),
            limit => self.limits.set(limit, value),
        }
    }

    fn values(&self) -> Vec<(Field, Value)> {
        let fields = DurabilityServiceQosPolicy::fields();
        let mut values = vec![(fields[0], self.service_cleanup_delay.to_value())];
        values.extend(history_values(self.history_kind, fields[1], fields[2]));
        values.extend(self.limits.values());
        values
    }
}

impl Fields for TypeConsistencyEnforcementQosPolicy {
    fn fields() -> Vec<Field> {
        let bool = |name| Field { name, kind: FieldKind::Bool };
        vec![
            Field { name: "kind", kind: CoercionWord::KIND },
            bool("ignore_sequence_bounds"),
            bool("ignore_string_bounds"),
            bool("ignore_member_names"),
            bool("prevent_type_widening"),
            bool("force_type_validation"),
        ]
    }

    fn set(&mut self, field: &str, value: &Value) {
        let rules = &mut self.rules;
        match field {
            "kind" => {
                if let Some(word) = CoercionWord::from_value(value) {
                    rules.allow_type_coercion = word == CoercionWord::Allow;
                }
            }
            "ignore_sequence_bounds" => assign(&mut rules.ignore_sequence_bounds, value),
            "ignore_string_bounds" => assign(&mut rules.ignore_string_bounds, value),
            "ignore_member_names" => assign(&mut rules.ignore_member_names, value),
            "prevent_type_widening" => assign(&mut rules.prevent_type_widening, value),
            "force_type_validation" => assign(&mut self.force_type_validation, value),
            _ => {}
        }
    }

    fn values(&self) -> Vec<(Field, Value)> {
        let rules = &self.rules;
        let word = if rules.allow_type_coercion { CoercionWord::Allow } else { CoercionWord::Disallow };
        let values = [
            word.to_value(),
            rules.ignore_sequence_bounds.to_value(),
            rules.ignore_string_bounds.to_value(),
            rules.ignore_member_names.to_value(),
            rules.prevent_type_widening.to_value(),
            self.force_type_validation.to_value(),
        ];
        TypeConsistencyEnforcementQosPolicy::fields().into_iter().zip(values).collect()
    }
}
