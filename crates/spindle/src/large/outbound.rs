//! What one member sends in one subgroup as objects, from view to view: shared by its publishers, the polling thread, and the thread that
//! serves its bulk groups.
use crate::bulk::{BulkGroup, Object};
use crate::crew::Notices;
use crate::error::SendError;
use spindle_core::{Claims, Rank, ViewId};
use spindle_fabric::{Doorbell, Frame, ObjectName, Reader};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Objects of one sender in one subgroup that are not delivered everywhere, at most.
pub(super) const OBJECTS_MAX: usize = 8;
/// Objects of one sender that are in blocks on the way at once.
pub(super) const SLOTS: u32 = 4;
const _: () = assert!(0 < SLOTS && SLOTS as usize <= OBJECTS_MAX);

/// A member's objects in one subgroup.
#[derive(Debug)]
pub(crate) struct Outbound {
    state: Mutex<State>,
    room: Condvar,
    notices: Arc<Notices>,
    /// The longest object; 0: none are sent.
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct State {
    lane: Option<Lane>,
    /// By this member's own name: what is not known to be delivered everywhere, of this view's ring and of those of ended ones.
    objects: BTreeMap<u64, Object>,
    named: u64,
    /// Senders that have been promised room.
    permits: usize,
}

/// What goes through the ring of one view.
#[derive(Debug)]
struct Lane {
    view: ViewId,
    claims: Arc<Claims>,
    rows: Reader,
    me: Rank,
    engine: Doorbell,
    /// Nobody else is in the subgroup.
    is_alone: bool,
    /// Objects so far.
    count: u64,
    /// By position in the ring: own names and numbers of those that are not delivered everywhere. They are on this member's shelf.
    sent: BTreeMap<u64, (u64, u64)>,
    /// By position in the ring: numbers of those that some members do not have.
    held: BTreeMap<u64, u64>,
    /// What the bulk group has not been given yet.
    waiting: VecDeque<Object>,
    /// How many it has, that are not everywhere.
    on_the_way: u32,
    group: Option<BulkGroup>,
}

/// A promise that there is room for one more object.
#[derive(Debug)]
#[must_use = "it is taken back when it is dropped"]
pub(crate) struct Permit<'a>(&'a Outbound);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.lock().permits -= 1;
        self.0.room.notify_one();
    }
}

impl Outbound {
    pub(crate) fn new(notices: Arc<Notices>, bytes_max: u64) -> Outbound {
        let (state, room) = Default::default();
        Outbound { state, room, notices, bytes_max }
    }

    /// The longest object; 0: none are sent.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whoever waits looks again whether there is a reason to.
    pub(crate) fn wake(&self) {
        // With the lock, so that nobody is between looking and waiting.
        let _state = self.lock();
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more object, `at_most` that long.
    pub(crate) fn permit(
        &self,
        at_most: Duration,
        in_upcall: bool,
        refusal: impl Fn() -> Option<SendError>,
    ) -> Result<Permit<'_>, SendError> {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(refusal) = refusal() {
                return Err(refusal);
            }
            if state.objects.len() + state.permits < OBJECTS_MAX {
                state.permits += 1;
                return Ok(Permit(self));
            }
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(match in_upcall {
                    true => SendError::InUpcall,
                    false => SendError::TooMany { most: OBJECTS_MAX as u32, waited: start.elapsed() },
                });
            }
            // A wait that would be longer than any process lives ends early, and is gone into again.
            let left = left.min(Duration::from_secs(3600));
            state = self.room.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sends an object in the place of `frame`.
    pub(crate) fn send(&self, permit: Permit<'_>, frame: Frame<'_>, object: Object) {
        let mut state = self.lock();
        let own = state.named;
        state.named += 1;
        state.objects.insert(own, object);
        let is_news = state.commit(own, frame);
        drop(state);
        drop(permit);
        if is_news {
            self.notices.ring();
        }
    }

    /// Sends an object again, in the place of `frame`: that which `name`, in the ring of an ended view, stands for. False if there is none.
    pub(crate) fn send_again(&self, name: &[u8], frame: Frame<'_>) -> bool {
        let mut state = self.lock();
        let own = ObjectName::decode(name).map(|name| name.own).filter(|own| state.objects.contains_key(own));
        // What it does not know is lost: the frame is dropped.
        let is_known = own.is_some();
        let is_news = own.is_some_and(|own| state.commit(own, frame));
        drop(state);
        if is_news {
            self.notices.ring();
        }
        is_known
    }

    /// A view begins in which this member sends.
    pub(crate) fn begin(
        &self,
        view: ViewId,
        claims: Arc<Claims>,
        rows: Reader,
        me: Rank,
        engine: Doorbell,
        is_alone: bool,
    ) {
        let (sent, held, waiting) = Default::default();
        let (count, on_the_way, group) = (0, 0, None);
        let lane = Lane { view, claims, rows, me, engine, is_alone, count, sent, held, waiting, on_the_way, group };
        self.lock().lane = Some(lane);
    }

    /// The view has ended. By position in its ring: own names of what is not known to be delivered everywhere.
    pub(crate) fn end_view(&self) -> BTreeMap<u64, u64> {
        // Taken out of the lock: when it is dropped, others are told.
        let lane = self.lock().lane.take();
        lane.into_iter().flat_map(|mut lane| std::mem::take(&mut lane.sent)).map(|(at, (own, _))| (at, own)).collect()
    }

    /// These were sent again, or are delivered.
    pub(crate) fn pass(&self, names: impl Iterator<Item = u64>) {
        let mut state = self.lock();
        let names: Vec<u64> = names.filter(|own| !state.is_sent(*own)).collect();
        let done: Vec<Object> = names.iter().filter_map(|own| state.objects.remove(own)).collect();
        drop(state);
        self.forgotten(done);
    }

    /// Nothing of ended views is to be sent again any more.
    pub(crate) fn forget_ended(&self) {
        let names: Vec<u64> = self.lock().objects.keys().copied().collect();
        self.pass(names.into_iter());
    }

    /// Everything below `position` in this view's ring is delivered everywhere, here too. The objects there, with their numbers.
    pub(crate) fn settle(&self, position: u64) -> Vec<(u64, Object)> {
        let mut state = self.lock();
        let State { lane: Some(lane), objects, .. } = &mut *state else { return vec![] };
        let rest = lane.sent.split_off(&position);
        let settled = std::mem::replace(&mut lane.sent, rest);
        let done: Vec<Object> = settled.values().filter_map(|(own, _)| objects.remove(own)).collect();
        let numbers = settled.values().map(|(_, number)| *number);
        let forget = |number| Some((number, lane.rows.forget_object(lane.me, lane.claims.ring(), number)?));
        let forgotten = numbers.filter_map(forget).collect();
        drop(state);
        self.forgotten(done);
        forgotten
    }

    fn forgotten(&self, objects: Vec<Object>) {
        if !objects.is_empty() {
            drop(objects);
            self.room.notify_all();
        }
    }

    /// Whether objects wait for a bulk group.
    pub(crate) fn wants_group(&self) -> bool {
        self.lock().lane.as_ref().is_some_and(|lane| lane.group.is_none() && !lane.waiting.is_empty())
    }

    /// The bulk group of this view is there.
    pub(super) fn run(&self, group: BulkGroup) {
        if let Some(lane) = &mut self.lock().lane {
            lane.group = Some(group);
            lane.hand_on();
        }
    }

    /// Every member has the object with this number of `view`.
    pub(super) fn everywhere(&self, view: ViewId, number: u64) {
        let mut state = self.lock();
        let Some(lane) = state.lane.as_mut().filter(|lane| lane.view == view) else { return };
        lane.held.retain(|_, held| *held != number);
        lane.on_the_way = lane.on_the_way.saturating_sub(1);
        lane.set_gate();
        lane.hand_on();
        lane.engine.ring();
    }

    /// The group has ended: nobody waits any more.
    pub(crate) fn end(&self) {
        // With the lock, so that nobody is between looking and waiting.
        let lane = self.lock().lane.take();
        self.room.notify_all();
        drop(lane);
    }
}

impl State {
    /// Whether the object of this name goes through this view's ring.
    fn is_sent(&self, own: u64) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.sent.values().any(|(sent, _)| *sent == own))
    }

    /// Commits `frame` as the name of an object. Whether somebody has to look after that.
    fn commit(&mut self, own: u64, frame: Frame<'_>) -> bool {
        let object = &self.objects[&own];
        let bytes = object.len() as u64;
        let (claims, position) = ObjectName::place(&frame);
        let lane = self.lane.as_mut().filter(|lane| Arc::ptr_eq(&lane.claims, claims));
        let Some(lane) = lane else {
            // In the ring of a view that has ended, it waits for being sent again.
            ObjectName { number: u64::MAX, bytes, own }.commit(frame);
            return false;
        };
        let number = lane.count;
        lane.count += 1;
        lane.rows.put_object(lane.me, lane.claims.ring(), number, object.clone());
        lane.sent.insert(position, (own, number));
        if !lane.is_alone {
            lane.held.insert(position, number);
            lane.waiting.push_back(object.clone());
        }
        // First: the engine looks at the gate when it sees the frame.
        lane.set_gate();
        ObjectName { number, bytes, own }.commit(frame);
        lane.hand_on();
        !lane.is_alone && lane.group.is_none()
    }
}

impl Lane {
    fn set_gate(&self) {
        self.claims.set_gate(self.held.first_key_value().map_or(u64::MAX, |(position, _)| *position));
    }

    /// Gives the bulk group what it can take.
    fn hand_on(&mut self) {
        let Some(group) = &self.group else { return };
        while self.on_the_way < SLOTS
            && let Some(object) = self.waiting.pop_front()
        {
            self.on_the_way += 1;
            group.submit(object);
        }
    }
}
