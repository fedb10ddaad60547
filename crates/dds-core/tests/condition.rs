//! Conditions and wait sets: triggers, wake-ups, deletion, and many conditions at once.
#![cfg(not(loom))]
use spindle_dds_core::cache::*;
use spindle_dds_core::condition::*;
use spindle_dds_core::filter::Query;
use spindle_dds_core::instance::*;
use spindle_dds_core::policy::PresentationQosPolicyAccessScopeKind;
use spindle_dds_core::qos::*;
use spindle_dds_core::status::*;
use spindle_dds_core::*;
use spindle_xcdr::{DdsType, DynamicType, SampleFormat, encode_sample};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// Long enough for any machine: a test that waits so long fails.
const LONG: DdsDuration = DdsDuration::from_secs(60);

fn code<T: std::fmt::Debug>(result: Result<T, DdsError>) -> ReturnCode {
    result.unwrap_err().code()
}

#[test]
fn a_wait_returns_all_conditions_that_are_true() {
    let set = WaitSet::new();
    let guards: Vec<GuardCondition> = (0..3).map(|_| GuardCondition::new()).collect();
    guards.iter().for_each(|guard| set.attach(guard.condition()).unwrap());
    assert_eq!(code(set.wait(DdsDuration::ZERO)), ReturnCode::Timeout);
    guards[0].set_trigger_value(true);
    guards[2].set_trigger_value(true);
    for _ in 0..2 {
        let active = set.wait(LONG).unwrap();
        assert_eq!(active, [guards[0].condition().clone(), guards[2].condition().clone()]);
    }
    guards[0].set_trigger_value(false);
    assert_eq!(set.wait(LONG).unwrap(), [guards[2].condition().clone()]);
    set.detach(guards[2].condition()).unwrap();
    assert_eq!(code(set.detach(guards[2].condition())), ReturnCode::PreconditionNotMet);
    assert_eq!(code(set.wait(DdsDuration::from_millis(1))), ReturnCode::Timeout);
    assert_eq!(set.conditions().len(), 2);
    // Attached once more, it is still true.
    set.attach(guards[2].condition()).unwrap();
    assert_eq!(set.wait(LONG).unwrap().len(), 1);
}

#[test]
fn a_status_condition_needs_a_status_that_is_enabled_and_has_changed() {
    let condition = StatusCondition::default();
    let lost = StatusMask::NONE.with(StatusKind::SampleLost);
    let set = WaitSet::new();
    set.attach(condition.condition()).unwrap();
    assert_eq!(condition.enabled_statuses(), StatusMask::ANY);
    condition.set_changes(lost);
    assert!(condition.condition().trigger_value() && set.wait(LONG).is_ok());
    condition.set_enabled_statuses(StatusMask::ANY.without(StatusKind::SampleLost));
    assert_eq!(code(set.wait(DdsDuration::ZERO)), ReturnCode::Timeout);
    condition.set_enabled_statuses(lost);
    assert!(set.wait(DdsDuration::ZERO).is_ok());
    condition.set_changes(StatusMask::NONE);
    assert!(!condition.condition().trigger_value());
}

#[derive(Debug, DdsType)]
#[dds(appendable)]
struct Level {
    value: u32,
}

type Payload = Arc<[u8]>;

/// A reader of levels: a cache with its conditions.
struct Reader {
    cache: Arc<Mutex<ReaderCache<Payload>>>,
    conditions: ReadConditions,
}

impl Reader {
    fn new() -> Reader {
        let key_of: KeyReader<Payload> = Arc::new(|_| Ok(Arc::from([])));
        let cache = ReaderCache::new(&DataReaderQos::default(), &SubscriberQos::default(), key_of).unwrap();
        let cache = Arc::new(Mutex::new(cache));
        let reader = Reader { conditions: ReadConditions::new(cache.clone()), cache };
        let writer = WriterInfo { guid: Guid([1; 16]), strength: 0, lifespan: DdsDuration::INFINITE, alive: true };
        reader.event(ReaderEvent::WriterMatched(writer));
        reader
    }

    fn event(&self, event: ReaderEvent<Payload>) {
        let mut cache = self.cache.lock().unwrap();
        let _ = cache.deliver(Position::default(), event, DdsTime::default());
        self.conditions.data_changed();
    }

    fn write(&self, value: u32) {
        self.event(ReaderEvent::Change(CacheChange {
            writer: Guid([1; 16]),
            kind: ChangeKind::Write,
            instance: InstanceHandle::KEYLESS,
            source_timestamp: DdsTime::default(),
            set: None,
            payload: encode_sample(&Level { value }, SampleFormat::default()).unwrap().into(),
        }));
    }
}

#[test]
fn read_and_query_conditions_follow_the_cache() {
    let reader = Reader::new();
    let unread = StateMask::ANY.sample(&[SampleState::NotRead]);
    let any = reader.conditions.create_readcondition(unread);
    let of = Arc::new(DynamicType::new(Level::description()));
    let high = reader.conditions.create_querycondition(StateMask::ANY, Query::new(of, "value > %0", &["10"]).unwrap());
    let set = WaitSet::new();
    set.attach(any.condition()).unwrap();
    set.attach(high.condition()).unwrap();
    assert_eq!(code(set.wait(DdsDuration::ZERO)), ReturnCode::Timeout);
    reader.write(5);
    assert_eq!(set.wait(LONG).unwrap(), [any.condition().clone()]);
    high.set_query_parameters(&["4"]).unwrap();
    assert_eq!(set.wait(LONG).unwrap().len(), 2);
    assert!(high.set_query_parameters(&["x"]).is_err());
    {
        let mut cache = reader.cache.lock().unwrap();
        let selection = cache.read(&Select::any().states(any.states()), DdsTime::default()).unwrap();
        cache.return_loan(selection.loan).unwrap();
        reader.conditions.data_changed();
    }
    assert_eq!(set.wait(LONG).unwrap(), [high.condition().clone()]);
    assert_eq!(high.query().parameters(), ["4"]);
    // The condition selects by its states and its query.
    let unread_high = reader.conditions.create_querycondition(unread, (*high.query()).clone());
    assert_eq!(unread_high.states(), unread);
    let found = |select: &Select<'_>| reader.cache.lock().unwrap().read(select, DdsTime::default()).is_ok();
    assert!(found(&high.select(&high.query())));
    assert!(!found(&unread_high.select(&unread_high.query())));
    assert!(!found(&any.select()));
    reader.conditions.delete_readcondition(unread_high.condition()).unwrap();

    assert_eq!(reader.conditions.len(), 2);
    let other = Reader::new();
    assert_eq!(code(other.conditions.delete_readcondition(any.condition())), ReturnCode::PreconditionNotMet);
    reader.conditions.delete_readcondition(any.condition()).unwrap();
    assert_eq!(code(reader.conditions.delete_readcondition(any.condition())), ReturnCode::PreconditionNotMet);
    assert_eq!(set.conditions(), [high.condition().clone()]);
    assert_eq!(code(set.attach(any.condition())), ReturnCode::AlreadyDeleted);
    reader.conditions.delete_all();
    assert!(reader.conditions.is_empty() && set.conditions().is_empty());
    assert!(!high.condition().trigger_value());
}

#[test]
fn one_thread_waits_at_a_time() {
    let set = WaitSet::new();
    let guard = GuardCondition::new();
    set.attach(guard.condition()).unwrap();
    let mut wait = pin!(set.wait_async());
    let mut context = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert_eq!(code(set.wait(DdsDuration::ZERO)), ReturnCode::PreconditionNotMet);
    guard.set_trigger_value(true);
    assert!(wait.as_mut().poll(&mut context).is_ready());
    assert!(set.wait(DdsDuration::ZERO).is_ok());
    // A wait that is given up leaves the set free.
    guard.set_trigger_value(false);
    {
        let mut given_up = pin!(set.wait_async());
        assert!(given_up.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(code(set.wait(DdsDuration::ZERO)), ReturnCode::Timeout);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_once_for_a_mark() {
    let set = WaitSet::new();
    let guards = [GuardCondition::new(), GuardCondition::new()];
    guards.iter().for_each(|guard| set.attach(guard.condition()).unwrap());
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    let mut wait = pin!(set.wait_async());
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    guards.iter().for_each(|guard| guard.set_trigger_value(true));
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    match wait.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(Ok(active)) => assert_eq!(active.len(), 2),
        other => panic!("{other:?}"),
    }
    let mut wait = pin!(set.wait_async());
    set.close();
    let closed = wait.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(closed, Poll::Ready(Err(DdsError::AlreadyDeleted("wait set"))));
    assert_eq!(code(set.attach(guards[0].condition())), ReturnCode::AlreadyDeleted);
}

/// Each of 1,000 conditions is set many times by several threads, and each time it is seen.
#[test]
fn none_of_a_thousand_conditions_starves_and_no_wake_up_is_lost() {
    const CONDITIONS: usize = 1000;
    const ROUNDS: usize = 20;
    let set = WaitSet::new();
    let guards: Vec<GuardCondition> = (0..CONDITIONS).map(|_| GuardCondition::new()).collect();
    guards.iter().for_each(|guard| set.attach(guard.condition()).unwrap());
    let (seen, barrier) = (Mutex::new(vec![0_usize; CONDITIONS]), Barrier::new(4));
    thread::scope(|scope| {
        for part in 0..4 {
            let (guards, seen, barrier) = (&guards, &seen, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 1..=ROUNDS {
                    for index in (part..CONDITIONS).step_by(4) {
                        guards[index].set_trigger_value(true);
                    }
                    // The next round begins when the reader has seen this one.
                    while (part..CONDITIONS).step_by(4).any(|index| seen.lock().unwrap()[index] < round) {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut left = CONDITIONS * ROUNDS;
        while left > 0 {
            for active in set.wait(LONG).unwrap() {
                let index = guards.iter().position(|guard| *guard.condition() == active).unwrap();
                guards[index].set_trigger_value(false);
                seen.lock().unwrap()[index] += 1;
                left -= 1;
            }
        }
    });
    assert!(seen.lock().unwrap().iter().all(|count| *count == ROUNDS));
}

#[test]
fn conditions_are_deleted_and_sets_closed_while_a_thread_waits() {
    let set = WaitSet::new();
    let (deleted, kept) = (GuardCondition::new(), GuardCondition::new());
    set.attach(deleted.condition()).unwrap();
    set.attach(kept.condition()).unwrap();
    let (waits, waiting) = mpsc::channel();
    thread::scope(|scope| {
        let (set, last) = (&set, &kept);
        let waiter = scope.spawn(move || {
            waits.send(()).unwrap();
            let first = set.wait(LONG).unwrap();
            last.set_trigger_value(false);
            waits.send(()).unwrap();
            (first, code(set.wait(LONG)))
        });
        waiting.recv().unwrap();
        deleted.delete();
        deleted.set_trigger_value(true);
        kept.set_trigger_value(true);
        waiting.recv().unwrap();
        kept.delete();
        set.close();
        let (first, second) = waiter.join().unwrap();
        assert_eq!(first, [kept.condition().clone()]);
        assert_eq!(second, ReturnCode::AlreadyDeleted);
    });
}

#[test]
fn a_condition_in_two_sets_wakes_both() {
    let (guard, sets) = (GuardCondition::new(), [WaitSet::new(), WaitSet::new()]);
    sets.iter().for_each(|set| set.attach(guard.condition()).unwrap());
    thread::scope(|scope| {
        let waiters: Vec<_> = sets.iter().map(|set| scope.spawn(|| set.wait(LONG).unwrap().len())).collect();
        guard.set_trigger_value(true);
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap() == 1));
    });
    drop(sets);
    // The sets are gone, and the condition continues.
    guard.set_trigger_value(true);
    assert!(guard.condition().trigger_value());
}

#[test]
fn conditions_at_group_scope_see_the_state_of_the_access() {
    let key_of: KeyReader<Payload> = Arc::new(|_| Ok(Arc::from([])));
    let mut subscriber = SubscriberQos::default();
    subscriber.presentation.access_scope = PresentationQosPolicyAccessScopeKind::Group;
    subscriber.presentation.ordered_access = true;
    let (reader, guid, now) = (Guid([2; 16]), Guid([1; 16]), DdsTime::default());
    let mut caches = GroupCaches::new(&subscriber).unwrap();
    caches.insert(reader, &DataReaderQos::default(), key_of).unwrap();
    let writer = WriterInfo { guid, strength: 0, lifespan: DdsDuration::INFINITE, alive: true };
    let _ = caches.deliver(reader, Position::default(), ReaderEvent::WriterMatched(writer), now);
    let caches = Arc::new(std::sync::Mutex::new(caches));
    let conditions = ReadConditions::new(Arc::new(GroupSource { caches: caches.clone(), reader }));
    let any = conditions.create_readcondition(StateMask::ANY);
    let _ = caches.lock().unwrap().begin_access(now);
    let change = CacheChange {
        writer: guid,
        kind: ChangeKind::Write,
        instance: InstanceHandle::KEYLESS,
        source_timestamp: now,
        set: None,
        payload: Payload::from([1]),
    };
    let _ = caches.lock().unwrap().deliver(reader, Position::default(), ReaderEvent::Change(change), now);
    assert!(!any.condition().trigger_value());
    let _ = caches.lock().unwrap().end_access(now).unwrap();
    conditions.data_changed();
    assert!(any.condition().trigger_value());
}
