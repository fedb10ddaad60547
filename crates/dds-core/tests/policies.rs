//! Defaults, consistency, changes and offers of policies: DDS 2.2.3, one row of its table at a time.
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::{DdsDuration, DdsError, ReturnCode};

fn millis(millis: u64) -> DdsDuration {
    DdsDuration::from_millis(millis)
}

fn text(result: Result<(), DdsError>) -> String {
    result.expect_err("the policies are refused").to_string()
}

#[test]
fn defaults_are_those_of_the_specification() {
    let reader = DataReaderQos::default();
    let writer = DataWriterQos::default();
    assert_eq!(reader.reliability.kind, ReliabilityQosPolicyKind::BestEffort);
    assert_eq!(writer.reliability.kind, ReliabilityQosPolicyKind::Reliable);
    assert_eq!(writer.reliability.max_blocking_time, millis(100));
    assert_eq!(TopicQos::default().reliability, reader.reliability);
    assert_eq!(reader.durability.kind, DurabilityQosPolicyKind::Volatile);
    assert_eq!(reader.history.kind, HistoryQosPolicyKind::KeepLast(1));
    assert_eq!(reader.resource_limits, ResourceLimitsQosPolicy::default());
    assert_eq!(reader.resource_limits.max_samples, Length::Unlimited);
    assert!(reader.deadline.period.is_infinite());
    assert_eq!(reader.latency_budget.duration, DdsDuration::ZERO);
    assert_eq!(reader.ownership.kind, OwnershipQosPolicyKind::Shared);
    assert_eq!(writer.ownership_strength.value, 0);
    assert_eq!(reader.liveliness.kind, LivelinessQosPolicyKind::Automatic);
    assert!(reader.liveliness.lease_duration.is_infinite());
    assert_eq!(reader.time_based_filter.minimum_separation, DdsDuration::ZERO);
    assert_eq!(PublisherQos::default().partition.names().collect::<Vec<_>>(), [""]);
    assert_eq!(PublisherQos::default().presentation, PresentationQosPolicy::default());
    assert_eq!(writer.transport_priority.value, 0);
    assert!(writer.lifespan.duration.is_infinite());
    assert_eq!(reader.destination_order.kind, DestinationOrderQosPolicyKind::ByReceptionTimestamp);
    assert!(DomainParticipantFactoryQos::default().entity_factory.autoenable_created_entities);
    assert!(DomainParticipantQos::default().user_data.value.is_empty());
    assert!(writer.writer_data_lifecycle.autodispose_unregistered_instances);
    assert!(reader.reader_data_lifecycle.autopurge_nowriter_samples_delay.is_infinite());
    assert!(reader.reader_data_lifecycle.autopurge_disposed_samples_delay.is_infinite());
    assert_eq!(writer.durability_service.service_cleanup_delay, DdsDuration::ZERO);
    assert_eq!(writer.representation.list(), [RepresentationId::Xcdr1]);
    assert!(reader.type_consistency.rules.allow_type_coercion);
    reader.check(&Supported::all()).unwrap();
    writer.check(&Supported::all()).unwrap();
    TopicQos::default().check(&Supported::all()).unwrap();
    SubscriberQos::default().check(&Supported::all()).unwrap();
}

#[test]
fn every_policy_has_a_name_and_a_number_of_its_own() {
    let mut numbers: Vec<i32> = PolicyId::ALL.iter().map(|policy| *policy as i32).collect();
    assert_eq!(numbers[..24], (1..=24).collect::<Vec<_>>());
    numbers.dedup();
    assert_eq!(numbers.len(), PolicyId::ALL.len());
    assert_eq!(PolicyId::ALL.iter().filter(|policy| policy.is_changeable()).count(), 13);
}

#[test]
fn contradicting_values_are_inconsistent() {
    let mut qos = DataReaderQos::default();
    qos.history.kind = HistoryQosPolicyKind::KeepLast(5);
    qos.resource_limits.max_samples_per_instance = Length::Limited(4);
    let expected = "inconsistent policy: HISTORY is KEEP_LAST 5 and RESOURCE_LIMITS is max_samples unlimited, \
                    max_instances unlimited, max_samples_per_instance 4; the depth must be at most \
                    max_samples_per_instance and max_samples";
    assert_eq!(text(qos.check(&Supported::all())), expected);
    qos.resource_limits.max_samples_per_instance = Length::Limited(5);
    qos.check(&Supported::all()).unwrap();
    qos.resource_limits.max_samples = Length::Limited(4);
    assert!(text(qos.check(&Supported::all())).contains("max_samples must be at least"));
    qos.resource_limits.max_samples_per_instance = Length::Unlimited;
    assert!(text(qos.check(&Supported::all())).contains("the depth must be at most"));
    qos.history.kind = HistoryQosPolicyKind::KeepLast(0);
    assert!(text(qos.check(&Supported::all())).contains("the depth must be 1 or more"));
    qos.history.kind = HistoryQosPolicyKind::KeepAll;
    qos.check(&Supported::all()).unwrap();
    qos.resource_limits.max_instances = Length::Limited(0);
    assert!(text(qos.check(&Supported::all())).contains("a limit of 0"));

    let mut qos = DataReaderQos::default();
    qos.deadline.period = millis(5);
    qos.time_based_filter.minimum_separation = millis(5);
    qos.check(&Supported::all()).unwrap();
    qos.time_based_filter.minimum_separation = millis(6);
    let expected = "DEADLINE is 5 ms and TIME_BASED_FILTER is 6 ms";
    assert!(text(qos.check(&Supported::all())).contains(expected));
    qos = DataReaderQos::default();
    qos.deadline.period = DdsDuration::ZERO;
    assert_eq!(qos.check(&Supported::all()).unwrap_err().code(), ReturnCode::InconsistentPolicy);
    qos = DataReaderQos::default();
    qos.liveliness.lease_duration = DdsDuration::ZERO;
    assert_eq!(qos.check(&Supported::all()).unwrap_err().code(), ReturnCode::InconsistentPolicy);

    let mut qos = DataWriterQos::default();
    qos.durability_service.history_kind = HistoryQosPolicyKind::KeepLast(3);
    qos.durability_service.limits.max_samples = Length::Limited(2);
    assert!(text(qos.check(&Supported::all())).starts_with("inconsistent policy: DURABILITY_SERVICE is KEEP_LAST 3"));
}

#[test]
fn values_without_an_implementation_are_unsupported() {
    let mut qos = DataWriterQos::default();
    qos.representation.value = vec![RepresentationId::Xcdr2, RepresentationId::Xml];
    assert_eq!(text(qos.check(&Supported::all())), "unsupported: DATA_REPRESENTATION XCDR2, XML; use XCDR or XCDR2");
    let mut qos = DataWriterQos::default();
    qos.reliability.kind = ReliabilityQosPolicyKind::BestEffort;
    qos.durability.kind = DurabilityQosPolicyKind::TransientLocal;
    assert_eq!(qos.check(&Supported::all()).unwrap_err().code(), ReturnCode::Unsupported);
}

#[test]
fn consistency_is_derived_and_explicit_levels_must_not_contradict() {
    use ConsistencyKind::*;
    use DurabilityQosPolicyKind::*;
    use ReliabilityQosPolicyKind::*;
    for (reliability, durability, level, allowed) in [
        (BestEffort, Volatile, Unordered, vec![Unordered]),
        (BestEffort, TransientLocal, Unordered, vec![Unordered]),
        (Reliable, Volatile, AtomicMulticast, vec![Unordered, AtomicMulticast, VolatileStorage, LoggedStorage]),
        (Reliable, TransientLocal, VolatileStorage, vec![VolatileStorage, LoggedStorage]),
        (Reliable, Transient, VolatileStorage, vec![VolatileStorage, LoggedStorage]),
        (Reliable, Persistent, LoggedStorage, vec![LoggedStorage]),
    ] {
        let mut qos = DataReaderQos::default();
        qos.reliability.kind = reliability;
        qos.durability.kind = durability;
        assert_eq!(qos.consistency_level(), level);
        qos.check(&Supported::all()).unwrap();
        for kind in [Unordered, AtomicMulticast, VolatileStorage, LoggedStorage] {
            qos.consistency.kind = Some(kind);
            assert_eq!(qos.consistency_level(), kind);
            assert_eq!(
                qos.check(&Supported::all()).is_ok(),
                allowed.contains(&kind),
                "{reliability} {durability} {kind}"
            );
        }
    }
    let mut qos = DataWriterQos::default();
    qos.consistency.ack = AckPoint::Persisted;
    assert!(text(qos.check(&Supported::all())).contains("PERSISTED and DURABLE need a log"));
    qos.durability.kind = DurabilityQosPolicyKind::Persistent;
    qos.check(&Supported::all()).unwrap();
}

#[test]
fn an_enabled_entity_keeps_its_immutable_policies() {
    let old = DataReaderQos::default();
    let mut new = old.clone();
    new.deadline.period = millis(10);
    new.user_data.value = vec![1];
    old.check_change(&new, true, &Supported::all()).unwrap();
    new.history.kind = HistoryQosPolicyKind::KeepLast(2);
    old.check_change(&new, false, &Supported::all()).unwrap();
    let error = old.check_change(&new, true, &Supported::all()).unwrap_err();
    assert_eq!(error.code(), ReturnCode::ImmutablePolicy);
    let expected = "HISTORY of a reader can't change from KEEP_LAST 1 to KEEP_LAST 2 once it is enabled; \
                    create another reader";
    assert_eq!(error.to_string(), expected);
    new.time_based_filter.minimum_separation = millis(11);
    assert_eq!(old.check_change(&new, false, &Supported::all()).unwrap_err().code(), ReturnCode::InconsistentPolicy);

    let mut publisher = PublisherQos::default();
    publisher.partition.name.push("a".to_owned());
    PublisherQos::default().check_change(&publisher, true, &Supported::all()).unwrap();
    publisher.presentation.ordered_access = true;
    assert!(PublisherQos::default().check_change(&publisher, true, &Supported::all()).is_err());
}

#[test]
fn policies_of_the_topic_are_copied() {
    let mut topic = TopicQos::default();
    topic.reliability.kind = ReliabilityQosPolicyKind::Reliable;
    topic.history.kind = HistoryQosPolicyKind::KeepAll;
    topic.ownership.kind = OwnershipQosPolicyKind::Exclusive;
    let mut writer = DataWriterQos::default();
    writer.ownership_strength.value = 7;
    writer.user_data.value = vec![7];
    writer.copy_from_topic_qos(&topic);
    assert_eq!((writer.history, writer.ownership), (topic.history, topic.ownership));
    assert_eq!((writer.ownership_strength.value, writer.user_data.value), (7, vec![7]));
    let mut reader = DataReaderQos::default();
    reader.time_based_filter.minimum_separation = millis(1);
    reader.copy_from_topic_qos(&topic);
    assert_eq!(reader.reliability, topic.reliability);
    assert_eq!(reader.time_based_filter.minimum_separation, millis(1));
}

/// Each case: a change of the writer, a change of the reader, and the policy that no longer fits.
#[test]
fn offers_must_satisfy_requests() {
    type Change<'a> = (&'a dyn Fn(&mut OfferedPolicies), &'a dyn Fn(&mut RequestedPolicies), Option<PolicyId>);
    use DurabilityQosPolicyKind::*;
    let scope = PresentationQosPolicyAccessScopeKind::Topic;
    let reliable = |offer: &mut OfferedPolicies| offer.reliability = ReliabilityQosPolicy::WRITER;
    let none = |_: &mut RequestedPolicies| {};
    let cases: [Change<'_>; 18] = [
        (&|_| {}, &none, None),
        (&|offer| offer.durability.kind = Persistent, &|request| request.durability.kind = Transient, None),
        (
            &|offer| offer.durability.kind = TransientLocal,
            &|request| request.durability.kind = Transient,
            Some(PolicyId::Durability),
        ),
        (&|_| {}, &|request| request.presentation.access_scope = scope, Some(PolicyId::Presentation)),
        (&|_| {}, &|request| request.presentation.coherent_access = true, Some(PolicyId::Presentation)),
        (&|_| {}, &|request| request.presentation.ordered_access = true, Some(PolicyId::Presentation)),
        (&|offer| offer.presentation.coherent_access = true, &none, None),
        (&|offer| offer.deadline.period = millis(5), &|request| request.deadline.period = millis(5), None),
        (&|_| {}, &|request| request.deadline.period = millis(5), Some(PolicyId::Deadline)),
        (&|offer| offer.latency_budget.duration = millis(1), &none, Some(PolicyId::LatencyBudget)),
        (&|offer| offer.ownership.kind = OwnershipQosPolicyKind::Exclusive, &none, Some(PolicyId::Ownership)),
        (
            &|_| {},
            &|request| request.liveliness.kind = LivelinessQosPolicyKind::ManualByTopic,
            Some(PolicyId::Liveliness),
        ),
        (&|_| {}, &|request| request.liveliness.lease_duration = millis(9), Some(PolicyId::Liveliness)),
        (&|_| {}, &|request| request.reliability = ReliabilityQosPolicy::WRITER, Some(PolicyId::Reliability)),
        (&reliable, &|request| request.reliability = ReliabilityQosPolicy::WRITER, None),
        (
            &|_| {},
            &|request| request.destination_order.kind = DestinationOrderQosPolicyKind::BySourceTimestamp,
            Some(PolicyId::DestinationOrder),
        ),
        (
            &|offer| offer.representation.value = vec![RepresentationId::Xcdr2, RepresentationId::Xcdr1],
            &none,
            Some(PolicyId::DataRepresentation),
        ),
        (
            &|offer| {
                offer.reliability = ReliabilityQosPolicy::WRITER;
                offer.consistency.kind = Some(ConsistencyKind::Unordered);
            },
            &|request| request.reliability = ReliabilityQosPolicy::WRITER,
            Some(PolicyId::Consistency),
        ),
    ];
    for (index, (offer, request, expected)) in cases.into_iter().enumerate() {
        let (mut offered, mut requested) = (OfferedPolicies::default(), RequestedPolicies::default());
        offer(&mut offered);
        request(&mut requested);
        let found: Vec<PolicyId> = check_offered(&offered, &requested).iter().map(|found| found.policy).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "case {index}");
    }
    let requested = RequestedPolicies { reliability: ReliabilityQosPolicy::WRITER, ..Default::default() };
    let found = check_offered(&OfferedPolicies::default(), &requested);
    let expected = "RELIABILITY: the writer offers BEST_EFFORT (max_blocking_time 100 ms), the reader requests \
                    RELIABLE (max_blocking_time 100 ms); the offered kind must be at least the requested one";
    assert_eq!(found[0].to_string(), expected);
}

#[test]
fn a_policy_that_the_driver_does_not_honour_is_refused() {
    let supported = Supported::minimum();
    DataReaderQos::default().check(&supported).unwrap();
    DataWriterQos::default().check(&supported).unwrap();
    TopicQos::default().check(&supported).unwrap();
    PublisherQos::default().check(&supported).unwrap();
    DomainParticipantQos::default().check(&supported).unwrap();

    // A hint may have any value, and so may what the cache of a reader does.
    let mut writer = DataWriterQos::default();
    writer.latency_budget.duration = millis(5);
    writer.ownership_strength.value = 3;
    writer.check(&supported).unwrap();
    let mut reader = DataReaderQos::default();
    reader.history.kind = HistoryQosPolicyKind::KeepAll;
    reader.check(&supported).unwrap();
    writer.history.kind = HistoryQosPolicyKind::KeepAll;
    let error = text(writer.check(&supported));
    assert_eq!(error, "unsupported: HISTORY KEEP_ALL of a writer; use its default");

    // A topic may have what one side honours.
    let mut topic = TopicQos::default();
    topic.history.kind = HistoryQosPolicyKind::KeepAll;
    topic.check(&supported).unwrap();
    topic.lifespan.duration = millis(1);
    assert_eq!(text(topic.check(&supported)), "unsupported: LIFESPAN 1 ms of a topic; use its default");

    // A kind may be too strong.
    let mut supported = Supported::all();
    supported.durability = DurabilityQosPolicyKind::TransientLocal;
    supported.access_scope = PresentationQosPolicyAccessScopeKind::Topic;
    supported.liveliness = LivelinessQosPolicyKind::ManualByParticipant;
    supported.consistency = ConsistencyKind::VolatileStorage;
    reader.durability.kind = DurabilityQosPolicyKind::TransientLocal;
    reader.check(&supported).unwrap();
    reader.durability.kind = DurabilityQosPolicyKind::Transient;
    let expected = "unsupported: DURABILITY TRANSIENT of a reader; use a weaker kind, which is kept for fewer joiners";
    assert_eq!(text(reader.check(&supported)), expected);
    let mut subscriber = SubscriberQos::default();
    subscriber.presentation.access_scope = PresentationQosPolicyAccessScopeKind::Group;
    assert!(text(subscriber.check(&supported)).ends_with("of a subscriber; use a narrower access scope"));
    let mut topic = TopicQos::default();
    topic.liveliness.kind = LivelinessQosPolicyKind::ManualByTopic;
    assert_eq!(topic.check(&supported).unwrap_err().code(), ReturnCode::Unsupported);
    let mut topic = TopicQos { reliability: ReliabilityQosPolicy::WRITER, ..TopicQos::default() };
    topic.consistency.kind = Some(ConsistencyKind::LoggedStorage);
    assert_eq!(topic.check(&supported).unwrap_err().code(), ReturnCode::Unsupported);
    // A change is checked, too.
    let old = SubscriberQos::default();
    assert_eq!(old.check_change(&subscriber, false, &supported).unwrap_err().code(), ReturnCode::Unsupported);
}
