//! Statuses: totals, changes and resets (DDS 2.2.4.1, 2.2.4.2).
use spindle_dds_core::cache::*;
use spindle_dds_core::policy::PolicyId;
use spindle_dds_core::status::*;
use spindle_dds_core::{Guid, InstanceHandle};

const A: Guid = Guid([1; 16]);
const B: Guid = Guid([2; 16]);
const KEY: InstanceHandle = InstanceHandle([7; 16]);

fn liveness(writer: Guid, before: Option<bool>, now: Option<bool>) -> Effects {
    Effects { liveness: vec![WriterLiveness { writer, before, now }], ..Effects::default() }
}

#[test]
fn a_read_resets_the_change_and_the_flag_and_keeps_the_total() {
    let mut statuses = ReaderStatuses::default();
    assert_eq!(statuses.apply(&Effects::default()), StatusMask::NONE);
    let found = statuses.apply(&Effects { lost: 3, ..Effects::default() });
    assert_eq!(found, StatusMask::NONE.with(StatusKind::SampleLost));
    assert_eq!(statuses.changes(), found);
    assert_eq!(statuses.sample_lost(), CountedStatus { total_count: 3, total_count_change: 3 });
    assert_eq!(statuses.changes(), StatusMask::NONE);
    assert_eq!(statuses.sample_lost(), CountedStatus { total_count: 3, total_count_change: 0 });
    let _ = statuses.apply(&Effects { lost: 1, ..Effects::default() });
    assert_eq!(statuses.sample_lost(), CountedStatus { total_count: 4, total_count_change: 1 });
}

#[test]
fn matches_and_liveliness_go_up_and_down() {
    let mut statuses = ReaderStatuses::default();
    for writer in [A, B] {
        let found = statuses.apply(&liveness(writer, None, Some(true)));
        assert!(found.contains(StatusKind::SubscriptionMatched) && found.contains(StatusKind::LivelinessChanged));
    }
    let found = statuses.apply(&liveness(A, Some(true), Some(false)));
    assert_eq!(found, StatusMask::NONE.with(StatusKind::LivelinessChanged));
    let alive = LivelinessChangedStatus {
        alive_count: 1,
        not_alive_count: 1,
        alive_count_change: 1,
        not_alive_count_change: 1,
        last_publication_handle: Some(A.into()),
    };
    assert_eq!(statuses.liveliness_changed(), alive);
    let _ = statuses.apply(&liveness(A, Some(false), None));
    let _ = statuses.apply(&liveness(B, Some(true), None));
    let gone = LivelinessChangedStatus {
        alive_count: 0,
        not_alive_count: 0,
        alive_count_change: -1,
        not_alive_count_change: -1,
        last_publication_handle: Some(B.into()),
    };
    assert_eq!(statuses.liveliness_changed(), gone);
    let matched = MatchedStatus {
        total_count: 2,
        total_count_change: 2,
        current_count: 0,
        current_count_change: 0,
        last_handle: Some(B.into()),
    };
    assert_eq!(statuses.subscription_matched(), matched);
}

#[test]
fn rejections_and_deadlines_name_the_last_instance() {
    let mut statuses = ReaderStatuses::default();
    let found = statuses.apply(&Effects {
        data_available: true,
        rejected: vec![(RejectedReason::Samples, InstanceHandle::KEYLESS), (RejectedReason::Instances, KEY)],
        deadlines: vec![MissedDeadline { instance: KEY, verdict: None, periods: 3 }],
        ..Effects::default()
    });
    let expected = [StatusKind::DataAvailable, StatusKind::SampleRejected, StatusKind::RequestedDeadlineMissed];
    assert_eq!(found, expected.into_iter().collect());
    let rejected = statuses.sample_rejected();
    assert_eq!((rejected.total_count, rejected.last_reason), (2, Some(RejectedReason::Instances)));
    assert_eq!(rejected.last_instance_handle, Some(KEY));
    let missed = statuses.requested_deadline_missed();
    assert_eq!((missed.total_count, missed.last_instance_handle), (3, Some(KEY)));
    assert_eq!(statuses.changes(), StatusMask::NONE.with(StatusKind::DataAvailable));
    statuses.reset_data_available();
    assert!(statuses.changes().is_empty());
}

#[test]
fn incompatible_policies_are_counted_each() {
    let mut statuses = WriterStatuses::default();
    statuses.count_incompatible(&[]);
    assert!(statuses.changes().is_empty());
    statuses.count_incompatible(&[PolicyId::Durability, PolicyId::Deadline]);
    statuses.count_incompatible(&[PolicyId::Durability]);
    let status = statuses.offered_incompatible_qos();
    assert_eq!((status.total_count, status.last_policy), (2, Some(PolicyId::Durability)));
    let counts: Vec<_> = status.policies.iter().map(|own| (own.policy, own.count)).collect();
    assert_eq!(counts, [(PolicyId::Durability, 2), (PolicyId::Deadline, 1)]);
    assert_eq!(statuses.offered_incompatible_qos().total_count_change, 0);
    let mut statuses = ReaderStatuses::default();
    statuses.count_incompatible(&[PolicyId::Ownership]);
    assert_eq!(statuses.changes(), StatusMask::NONE.with(StatusKind::RequestedIncompatibleQos));
    assert_eq!(statuses.requested_incompatible_qos().last_policy, Some(PolicyId::Ownership));
}

#[test]
fn writers_topics_and_subscribers_have_their_own() {
    let mut writer = WriterStatuses::default();
    writer.count_liveliness_lost();
    writer.count_deadline_missed(KEY, 2);
    writer.count_matched(B.into(), true);
    writer.count_matched(B.into(), false);
    let expected = [StatusKind::LivelinessLost, StatusKind::OfferedDeadlineMissed, StatusKind::PublicationMatched];
    assert_eq!(writer.changes(), expected.into_iter().collect());
    assert_eq!(writer.liveliness_lost().total_count, 1);
    assert_eq!(writer.offered_deadline_missed().total_count, 2);
    let matched = writer.publication_matched();
    assert_eq!((matched.total_count, matched.current_count, matched.current_count_change), (1, 0, 0));
    assert!(writer.changes().is_empty());

    let mut topic = TopicStatuses::default();
    topic.count_inconsistent();
    assert_eq!(topic.changes(), StatusMask::NONE.with(StatusKind::InconsistentTopic));
    assert_eq!(topic.inconsistent_topic().total_count_change, 1);
    assert_eq!(topic.inconsistent_topic().total_count_change, 0);

    let mut subscriber = SubscriberStatuses::default();
    subscriber.set_data_on_readers();
    assert_eq!(subscriber.changes(), StatusMask::NONE.with(StatusKind::DataOnReaders));
    subscriber.reset_data_on_readers();
    assert!(subscriber.changes().is_empty());
}
