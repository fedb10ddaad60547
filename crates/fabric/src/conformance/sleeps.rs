//! Cases of sleeps, and of what ends them.
use super::harness::{ConnectedGroup, Harness, PATIENCE, counter};
use crate::fabric::Fabric;
use spindle_core::{Rank, Rows, Table, Trace};
use std::time::Duration;

/// A doorbell costs its ringer a system call only if a thread sleeps.
pub fn a_peer_that_is_awake_is_not_rung<H: Harness>() {
    let group = ConnectedGroup::<H>::new(2);
    assert!(!group.fabrics[0].doorbell().ring());
}

/// No member sleeps longer than it wants to. After such a sleep it is rung until its announcement
/// is withdrawn.
pub fn a_sleep_is_bounded<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let doorbell = group.fabrics[0].doorbell();
    group.fabric(0).begin_sleep();
    for _ in 0..3 {
        assert!(!group.fabric(0).sleep(Duration::from_millis(1)));
    }
    assert!(doorbell.ring());
    group.fabric(0).begin_sleep();
    assert!(group.fabric(0).sleep(PATIENCE), "it was rung between two sleeps");
    assert!(!doorbell.ring());
    group.fabric(0).begin_sleep();
    assert!(!group.fabric(0).sleep(Duration::from_millis(1)));
    group.fabric(0).end_sleep();
    assert!(!doorbell.ring());
}

/// A commit of an application at this moment is not missed.
pub fn a_ring_between_announcement_and_sleep_counts<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let doorbell = group.fabrics[0].doorbell();
    group.fabric(0).begin_sleep();
    assert!(doorbell.ring());
    assert!(group.fabric(0).sleep(PATIENCE));
}

/// A post of a peer is not missed either.
pub fn a_post_between_announcement_and_sleep_counts<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(3);
    let at = counter(&group.layout, Rank(2));
    let before = group.fabrics[0].trace(Rank(2));
    group.fabric(0).begin_sleep();
    group.put(Rank(2), at, 1);
    group.settle();
    assert!(group.fabric(0).sleep(PATIENCE));
    assert_eq!(group.fabrics[0].load(Rank(2), at), 1);
    // A caller that looks only at rows with a trace finds it.
    let after = group.fabrics[0].trace(Rank(2));
    assert!(after == Trace::Stored || after != before, "{after:?}");
}

/// A peer that gets nothing may continue to sleep.
pub fn a_post_rings_only_its_receivers<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(3);
    let at = counter(&group.layout, Rank(2));
    group.fabric(0).begin_sleep();
    group.fabric(2).store(at, 1);
    group.fabric(2).post(&[Rank(1), Rank(2)], at..at + 8);
    group.settle();
    assert!(!group.fabric(0).sleep(Duration::from_millis(1)));
}

/// After a withdrawal no peer rings. A second withdrawal, or one without an announcement, is
/// harmless.
pub fn a_withdrawn_sleep_is_over<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    group.fabric(0).end_sleep();
    group.fabric(0).begin_sleep();
    group.fabric(0).begin_sleep();
    group.fabric(0).end_sleep();
    assert!(!group.fabrics[0].doorbell().ring());
    group.fabric(0).end_sleep();
    assert!(!group.fabrics[0].doorbell().ring());
}

/// It would miss earlier work. The caller looks at the work whose ring withdrew the announcement.
pub fn a_sleep_without_announcement_is_none<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(1);
    let fabric = group.fabric(0);
    assert!(fabric.sleep(Duration::MAX), "it counts as rung");
    fabric.begin_sleep();
    fabric.end_sleep();
    assert!(fabric.sleep(Duration::MAX));
}

/// A ring ends one sleep only: it does not cut the next one short, and the next one is rung anew.
pub fn sleeps_can_follow_each_other<H: Harness>() {
    let mut group = ConnectedGroup::<H>::new(2);
    let doorbell = group.fabrics[1].doorbell();
    for _ in 0..3 {
        group.fabric(1).begin_sleep();
        assert!(doorbell.ring());
        assert!(group.fabric(1).sleep(PATIENCE));
        group.fabric(1).begin_sleep();
        assert!(!group.fabric(1).sleep(Duration::from_millis(1)));
    }
}
