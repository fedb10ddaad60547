//! The objects that one member sends in one subgroup, from view to view. Its publishers, the
//! polling thread and the thread that serves its bulk groups share them. The core's [`Outgoing`]
//! decides; this module adds the ring, the object table, the bulk group and the waiting threads.
use crate::bulk::{BulkGroup, Object};
use crate::error::SendError;
use crate::shared::{Notices, note_waker};
use spindle_core::control::{ObjectName, Outgoing};
use spindle_core::{Claims, Rank, ViewId};
use spindle_fabric::{Doorbell, Frame, Reader, commit_name, name_place};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A member's objects in one subgroup.
#[derive(Debug)]
pub(crate) struct Outbound {
    state: Mutex<OutboundState>,
    room: Condvar,
    notices: Arc<Notices>,
    /// The longest object; 0: none are sent.
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct OutboundState {
    outgoing: Outgoing<Object>,
    lane: Option<OutboundLane>,
    /// The tasks that wait for room.
    wakers: Vec<Waker>,
}

/// The ring, the object table and the bulk group of one view.
#[derive(Debug)]
struct OutboundLane {
    claims: Arc<Claims>,
    /// The rows, with the object table that contains this member's objects until they are delivered
    /// everywhere.
    rows: Reader,
    me: Rank,
    engine: Doorbell,
    group: Option<BulkGroup>,
}

/// A promise that there is room for one more object.
#[derive(Debug)]
#[must_use = "it is taken back when it is dropped"]
pub(crate) struct Permit(Arc<Outbound>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.lock().outgoing.release();
        self.0.notify();
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

    /// Wakes all waiting threads, which check again whether they have a reason to wait.
    pub(crate) fn wake(&self) {
        self.notify();
    }

    /// Wakes all threads and tasks that wait for room.
    fn notify(&self) {
        // Under the lock, so that no thread is between checking and waiting.
        let wakers = {
            let mut state = self.lock();
            self.room.notify_all();
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, OutboundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more object, `at_most` that long.
    pub(crate) fn permit(
        self: &Arc<Self>,
        at_most: Duration,
        in_upcall: bool,
        refusal: impl Fn() -> Option<SendError>,
    ) -> Result<Permit, SendError> {
        let start = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(refusal) = refusal() {
                return Err(refusal);
            }
            if state.outgoing.promise() {
                return Ok(Permit(Arc::clone(self)));
            }
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(match in_upcall {
                    true => SendError::InUpcall,
                    false => SendError::TooMany { most: Outgoing::<Object>::MOST, waited: start.elapsed() },
                });
            }
            // A wait that would be longer than any process lives ends early, and is repeated.
            let left = left.min(Duration::from_secs(3600));
            state = self.room.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As [`permit`](Self::permit), for a task.
    pub(crate) fn poll_permit(
        self: &Arc<Self>,
        context: &Context<'_>,
        refusal: impl Fn() -> Option<SendError>,
    ) -> Poll<Result<Permit, SendError>> {
        let mut state = self.lock();
        if let Some(refusal) = refusal() {
            return Poll::Ready(Err(refusal));
        }
        if state.outgoing.promise() {
            return Poll::Ready(Ok(Permit(Arc::clone(self))));
        }
        // Under the lock under which the tasks to wake are taken.
        note_waker(&mut state.wakers, context.waker());
        Poll::Pending
    }

    /// Sends an object in the place of `frame`.
    pub(crate) fn send(&self, permit: Permit, frame: Frame<'_>, object: Object) {
        let mut state = self.lock();
        let own = state.outgoing.name(object);
        let is_news = state.commit(own, frame);
        drop(state);
        drop(permit);
        if is_news {
            self.notices.ring();
        }
    }

    /// Sends an object again, in the place of `frame`: the object that `name` denotes, which is in
    /// the ring of an ended view. Returns false if no such object exists.
    pub(crate) fn send_again(&self, name: &[u8], frame: Frame<'_>) -> bool {
        let mut state = self.lock();
        let own = ObjectName::decode(name).map(|name| name.own).filter(|own| state.outgoing.object(*own).is_some());
        // An object that is unknown here is lost: the frame is dropped.
        let is_known = own.is_some();
        let is_news = own.is_some_and(|own| state.commit(own, frame));
        drop(state);
        if is_news {
            self.notices.ring();
        }
        is_known
    }

    /// Begins a view in which this member sends.
    pub(crate) fn begin(
        &self,
        view: ViewId,
        claims: Arc<Claims>,
        rows: Reader,
        me: Rank,
        engine: Doorbell,
        is_alone: bool,
    ) {
        let mut state = self.lock();
        state.outgoing.begin(view, is_alone);
        state.lane = Some(OutboundLane { claims, rows, me, engine, group: None });
    }

    /// Ends the view. Returns the own names of the objects that are not known to be delivered
    /// everywhere, by position in the view's ring.
    pub(crate) fn end_view(&self) -> BTreeMap<u64, u64> {
        let mut state = self.lock();
        let (lane, left) = (state.lane.take(), state.outgoing.end_view());
        drop(state);
        // Dropped without the lock, because the drop informs other members.
        drop(lane);
        left
    }

    /// Notes that these objects were sent again, or are delivered.
    pub(crate) fn pass(&self, names: impl Iterator<Item = u64>) {
        let done = self.lock().outgoing.pass(names);
        self.forgotten(done);
    }

    /// Notes that nothing of ended views will be sent again.
    pub(crate) fn forget_ended(&self) {
        let done = self.lock().outgoing.forget_ended();
        self.forgotten(done);
    }

    /// Notes that everything below `position` in this view's ring is delivered everywhere,
    /// including here. Returns the objects there, with their numbers.
    pub(crate) fn settle(&self, position: u64) -> Vec<(u64, Object)> {
        let mut state = self.lock();
        let (numbers, done) = state.outgoing.settle(position);
        let forget = |number| {
            let OutboundLane { rows, me, claims, .. } = state.lane.as_ref()?;
            Some((number, rows.forget_object(*me, claims.ring(), number)?))
        };
        let forgotten = numbers.into_iter().filter_map(forget).collect();
        drop(state);
        self.forgotten(done);
        forgotten
    }

    fn forgotten(&self, objects: Vec<Object>) {
        if !objects.is_empty() {
            drop(objects);
            self.notify();
        }
    }

    /// True if objects wait for a bulk group.
    pub(crate) fn wants_group(&self) -> bool {
        self.lock().outgoing.wants_group()
    }

    /// Notes that the bulk group of this view is open.
    pub(super) fn run(&self, group: BulkGroup) {
        let mut state = self.lock();
        if let Some(lane) = &mut state.lane {
            lane.group = Some(group);
            state.outgoing.group_opened();
            state.hand_on();
        }
    }

    /// Notes that every member has the object with this number of `view`.
    pub(super) fn everywhere(&self, view: ViewId, number: u64) {
        let mut state = self.lock();
        if state.outgoing.everywhere(view, number) {
            state.set_gate();
            state.hand_on();
            if let Some(lane) = &state.lane {
                lane.engine.ring();
            }
        }
    }

    /// Handles the end of the group: no thread waits any more.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        let (lane, _) = (state.lane.take(), state.outgoing.end_view());
        drop(state);
        self.notify();
        drop(lane);
    }
}

impl OutboundState {
    /// Commits `frame` as the name of an object. Returns whether the polling thread has to be
    /// notified.
    fn commit(&mut self, own: u64, frame: Frame<'_>) -> bool {
        let bytes = self.outgoing.object(own).map_or(0, |object| object.len() as u64);
        let (claims, position) = name_place(&frame);
        let is_here = self.lane.as_ref().is_some_and(|lane| Arc::ptr_eq(&lane.claims, claims));
        let number = if is_here { self.outgoing.commit(own, position) } else { None };
        if let (Some(number), Some(lane), Some(object)) = (number, &self.lane, self.outgoing.object(own)) {
            lane.rows.put_object(lane.me, lane.claims.ring(), number, object.clone());
        }
        // The gate is set first, because the engine looks at it when it sees the frame.
        self.set_gate();
        // In the ring of a view that has ended, the object has no number, and waits until it is
        // sent again.
        commit_name(ObjectName { number: number.unwrap_or(u64::MAX), bytes, own }, frame);
        self.hand_on();
        number.is_some() && self.outgoing.wants_group()
    }

    fn set_gate(&self) {
        if let Some(lane) = &self.lane {
            lane.claims.set_gate(self.outgoing.gate());
        }
    }

    /// Submits the objects that the bulk group can take.
    fn hand_on(&mut self) {
        let Some(group) = self.lane.as_ref().and_then(|lane| lane.group.as_ref()) else { return };
        while let Some(object) = self.outgoing.next_to_submit() {
            group.submit(object);
        }
    }
}
