//! Wait sets under loom: every interleaving of a thread that waits with threads that signal, delete and
//! close.
#![cfg(loom)]
use loom::thread;
use spindle_dds_core::condition::{GuardCondition, WaitSet};
use spindle_dds_core::{DdsDuration, DdsError};

#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (set, guard) = (WaitSet::new(), GuardCondition::new());
        set.attach(guard.condition()).unwrap();
        let setter = guard.clone();
        let thread = thread::spawn(move || setter.set_trigger_value(true));
        assert_eq!(set.wait(DdsDuration::INFINITE).unwrap(), [guard.condition().clone()]);
        thread.join().unwrap();
    });
}

#[test]
fn a_condition_that_is_set_and_cleared_hides_no_other() {
    loom::model(|| {
        let set = WaitSet::new();
        let (brief, lasting) = (GuardCondition::new(), GuardCondition::new());
        set.attach(brief.condition()).unwrap();
        set.attach(lasting.condition()).unwrap();
        let setter = (brief.clone(), lasting.clone());
        let thread = thread::spawn(move || {
            setter.0.set_trigger_value(true);
            setter.0.set_trigger_value(false);
            setter.1.set_trigger_value(true);
        });
        let active = set.wait(DdsDuration::INFINITE).unwrap();
        assert!(!active.is_empty());
        thread.join().unwrap();
        assert_eq!(set.wait(DdsDuration::INFINITE).unwrap(), [lasting.condition().clone()]);
    });
}

#[test]
fn a_condition_attached_while_a_thread_waits_wakes_it() {
    loom::model(|| {
        let (set, guard) = (WaitSet::new(), GuardCondition::new());
        let other = (set.clone(), guard.clone());
        let thread = thread::spawn(move || {
            other.0.attach(other.1.condition()).unwrap();
            other.1.set_trigger_value(true);
        });
        assert_eq!(set.wait(DdsDuration::INFINITE).unwrap().len(), 1);
        thread.join().unwrap();
    });
}

#[test]
fn a_deletion_races_with_attach_and_leaves_nothing() {
    loom::model(|| {
        let (set, guard) = (WaitSet::new(), GuardCondition::new());
        let other = guard.clone();
        let thread = thread::spawn(move || other.delete());
        let attached = set.attach(guard.condition());
        thread.join().unwrap();
        assert!(set.conditions().is_empty(), "{attached:?}");
    });
}

#[test]
fn a_set_that_is_closed_ends_the_wait() {
    loom::model(|| {
        let (set, guard) = (WaitSet::new(), GuardCondition::new());
        set.attach(guard.condition()).unwrap();
        let other = set.clone();
        let thread = thread::spawn(move || {
            guard.delete();
            other.close();
        });
        assert_eq!(set.wait(DdsDuration::INFINITE), Err(DdsError::AlreadyDeleted("wait set")));
        thread.join().unwrap();
    });
}
