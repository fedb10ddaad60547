//! Random sets that are written and read again, and random changes of texts.
//!
//! `DDS_SEED` sets the seed, which a failure prints.
use super::Chance;
use spindle_dds_core::DdsDuration;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::QosSet;
use spindle_dds_core::qos::profile::{ProfileSets, QosProvider, to_toml, to_xml};

/// A type with random values.
trait Random: Sized {
    fn random(chance: &mut Chance) -> Self;
}

macro_rules! one_of {
    ($($type:ty: $($value:expr),*;)*) => {$(
        impl Random for $type {
            fn random(chance: &mut Chance) -> $type {
                let values = [$($value),*];
                values[chance.below(values.len())]
            }
        }
    )*};
}

one_of! {
    bool: false, true;
    ReliabilityQosPolicyKind: ReliabilityQosPolicyKind::BestEffort, ReliabilityQosPolicyKind::Reliable;
    DurabilityQosPolicyKind: DurabilityQosPolicyKind::Volatile, DurabilityQosPolicyKind::TransientLocal,
        DurabilityQosPolicyKind::Transient, DurabilityQosPolicyKind::Persistent;
    PresentationQosPolicyAccessScopeKind: PresentationQosPolicyAccessScopeKind::Instance,
        PresentationQosPolicyAccessScopeKind::Topic, PresentationQosPolicyAccessScopeKind::Group;
    OwnershipQosPolicyKind: OwnershipQosPolicyKind::Shared, OwnershipQosPolicyKind::Exclusive;
    LivelinessQosPolicyKind: LivelinessQosPolicyKind::Automatic, LivelinessQosPolicyKind::ManualByParticipant,
        LivelinessQosPolicyKind::ManualByTopic;
    DestinationOrderQosPolicyKind: DestinationOrderQosPolicyKind::ByReceptionTimestamp,
        DestinationOrderQosPolicyKind::BySourceTimestamp;
    RepresentationId: RepresentationId::Xcdr1, RepresentationId::Xcdr2;
    Option<ConsistencyKind>: None, Some(ConsistencyKind::Unordered), Some(ConsistencyKind::AtomicMulticast),
        Some(ConsistencyKind::VolatileStorage), Some(ConsistencyKind::LoggedStorage);
    AckPoint: AckPoint::Sent, AckPoint::Delivered, AckPoint::Persisted;
    ReadPoint: ReadPoint::Delivered, ReadPoint::Durable;
    i32: 0, 1, -1, i32::MIN, i32::MAX;
    char: 'a', '<', '&', '"', '\\', '\'', '\n', '\r', '\t', ' ', '*', 'ä', '漢', ']', '>', '🦀', ';', '\u{85}', '\u{7f}';
}

impl Random for DdsDuration {
    fn random(chance: &mut Chance) -> DdsDuration {
        let scale = [1, 1_000, 1_000_000, 1_000_000_000][chance.below(4)];
        match chance.below(4) {
            0 => DdsDuration::INFINITE,
            1 => DdsDuration::from_nanos(chance.next() & i64::MAX as u64),
            _ => DdsDuration::from_nanos(chance.below(3_000) as u64 * scale),
        }
    }
}

impl Random for Length {
    fn random(chance: &mut Chance) -> Length {
        match chance.below(3) {
            0 => Length::Unlimited,
            1 => Length::Limited(u32::MAX - chance.below(3) as u32),
            _ => Length::Limited(chance.below(30) as u32 + 1),
        }
    }
}

impl Random for HistoryQosPolicyKind {
    fn random(chance: &mut Chance) -> HistoryQosPolicyKind {
        match chance.below(3) {
            0 => HistoryQosPolicyKind::KeepAll,
            1 => HistoryQosPolicyKind::KeepLast(chance.next() as u32 | 1),
            _ => HistoryQosPolicyKind::KeepLast(chance.below(5) as u32 + 1),
        }
    }
}

impl Random for u8 {
    fn random(chance: &mut Chance) -> u8 {
        chance.next() as u8
    }
}

impl Random for String {
    fn random(chance: &mut Chance) -> String {
        (0..chance.below(6)).map(|_| char::random(chance)).collect()
    }
}

impl<T: Random> Random for Vec<T> {
    fn random(chance: &mut Chance) -> Vec<T> {
        let most = [0, 4, 40][chance.below(3)];
        (0..chance.below(most + 1)).map(|_| T::random(chance)).collect()
    }
}

macro_rules! policies {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Random for $type {
            fn random(chance: &mut Chance) -> $type {
                $type { $($field: Random::random(chance)),* }
            }
        }
    )*};
}

policies! {
    UserDataQosPolicy { value }
    TopicDataQosPolicy { value }
    GroupDataQosPolicy { value }
    DurabilityQosPolicy { kind }
    DurabilityServiceQosPolicy { service_cleanup_delay, history_kind, limits }
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
    HistoryQosPolicy { kind }
    ResourceLimitsQosPolicy { max_samples, max_instances, max_samples_per_instance }
    EntityFactoryQosPolicy { autoenable_created_entities }
    WriterDataLifecycleQosPolicy { autodispose_unregistered_instances }
    ReaderDataLifecycleQosPolicy { autopurge_nowriter_samples_delay, autopurge_disposed_samples_delay }
    DataRepresentationQosPolicy { value }
    ConsistencyQosPolicy { kind, ack, read }
}

impl Random for TypeConsistencyEnforcementQosPolicy {
    fn random(chance: &mut Chance) -> TypeConsistencyEnforcementQosPolicy {
        let mut policy = TypeConsistencyEnforcementQosPolicy::default();
        for field in [
            &mut policy.rules.allow_type_coercion,
            &mut policy.rules.ignore_sequence_bounds,
            &mut policy.rules.ignore_string_bounds,
            &mut policy.rules.ignore_member_names,
            &mut policy.rules.prevent_type_widening,
            &mut policy.force_type_validation,
        ] {
            *field = bool::random(chance);
        }
        policy
    }
}

/// Changes policies of a set, each only if the set stays consistent.
macro_rules! vary {
    ($set:expr, $chance:ident: $($policy:ident),*) => {
        $(for _ in 0..3 {
            let mut next = $set.clone();
            next.$policy = Random::random($chance);
            if $chance.below(4) > 0 && next.check_consistent().is_ok() {
                $set = next;
            }
        })*
    };
}

fn random_sets(chance: &mut Chance) -> ProfileSets {
    let mut sets = ProfileSets::default();
    vary!(sets.factory, chance: entity_factory);
    vary!(sets.participant, chance: user_data, entity_factory);
    vary!(sets.publisher, chance: presentation, partition, group_data, entity_factory);
    vary!(sets.subscriber, chance: presentation, partition, group_data, entity_factory);
    vary!(sets.topic, chance: topic_data, reliability, durability, durability_service, deadline, latency_budget,
        liveliness, destination_order, history, resource_limits, transport_priority, lifespan, ownership,
        representation, consistency);
    vary!(sets.datawriter, chance: reliability, durability, durability_service, deadline, latency_budget, liveliness,
        destination_order, resource_limits, history, transport_priority, lifespan, user_data, ownership,
        ownership_strength, writer_data_lifecycle, representation, consistency);
    vary!(sets.datareader, chance: reliability, durability, deadline, latency_budget, liveliness, destination_order,
        history, resource_limits, user_data, ownership, time_based_filter, reader_data_lifecycle, representation,
        type_consistency, consistency);
    sets
}

#[test]
fn random_sets_are_written_and_read_again() {
    let mut chance = Chance::seeded();
    for round in 0..400 {
        let sets = random_sets(&mut chance);
        let name = ["L::P", "a <&\"> b::ä\\'"][round % 2];
        let xml = to_xml(name, &sets).unwrap();
        let read = QosProvider::from_xml("x.xml", &xml).unwrap_or_else(|error| panic!("{chance}: {error}\n{xml}"));
        assert_eq!(read.sets(name, "T").unwrap(), sets, "{chance}\n{xml}");
        let toml = to_toml(name, &sets).unwrap();
        let read = QosProvider::from_toml("x.toml", &toml).unwrap_or_else(|error| panic!("{chance}: {error}\n{toml}"));
        assert_eq!(read.sets(name, "T").unwrap(), sets, "{chance}\n{toml}");
    }
}

/// Changes some bytes, and repeats or removes some parts.
fn mutate(chance: &mut Chance, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=chance.below(3) {
        let at = chance.below(bytes.len());
        let end = (at + chance.below(60)).min(bytes.len());
        match chance.below(4) {
            0 => bytes[at] = b"<>/\"'=[]{}&;:-0aQ\n\0\xff"[chance.below(20)],
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                let to = chance.below(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => bytes.truncate(bytes.len() - chance.below(30).min(bytes.len() - 1)),
        }
        if bytes.is_empty() {
            bytes.push(b'<');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn random_changes_are_read_or_refused_with_a_place() {
    let mut chance = Chance::seeded();
    let (mut read, mut refused) = (0, 0);
    for _ in 0..150 {
        let sets = random_sets(&mut chance);
        let (xml, toml) = (to_xml("L::P", &sets).unwrap(), to_toml("L::P", &sets).unwrap());
        for _ in 0..10 {
            let texts = [mutate(&mut chance, &xml), mutate(&mut chance, &toml)];
            let found = [QosProvider::from_xml("x", &texts[0]), QosProvider::from_toml("x", &texts[1])];
            for (found, text) in found.into_iter().zip(texts) {
                match found {
                    Ok(provider) => {
                        read += 1;
                        for profile in provider.profiles() {
                            provider.sets(profile, "T").unwrap();
                        }
                    }
                    Err(errors) => {
                        refused += 1;
                        let lines = text.split('\n').count() as u32;
                        for error in errors.list() {
                            let place = error.place.as_ref().unwrap();
                            assert!((1..=lines).contains(&place.line), "{chance}: {error}");
                        }
                    }
                }
            }
        }
    }
    assert!(read > 20 && refused > 1_000, "{read} read, {refused} refused");
}
