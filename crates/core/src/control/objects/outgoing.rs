//! The objects that one member sends in one subgroup, from view to view: which may be sent, which
//! of them hold the ring back, and which are sent again.
//!
//! An object has a *name*, which is the member's own and outlives views, and in each view a
//! *number*, which all members know. Its frame is committed at once. The ring's gate is placed
//! before the first frame whose object some members do not have. The driver sets the gate before it
//! publishes the frame.
use crate::ids::ViewId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The maximum number of objects of one sender in one subgroup that are not delivered everywhere.
const OBJECTS_MAX: usize = 8;
/// The maximum number of objects of one sender whose blocks are under way at once.
pub const SLOTS: u32 = 4;
/// The maximum number of objects of one sender that wait for their messages at a receiver: far more
/// than a sender has under way. A sender with more does not announce its objects, and is lost to
/// its bulk group.
pub const TABLE_OBJECTS_MAX: usize = 4 * OBJECTS_MAX;
const _: () = assert!(0 < SLOTS && SLOTS as usize <= OBJECTS_MAX);

/// A member's objects in one subgroup. `O` is the driver's handle of an object.
#[derive(Debug)]
pub struct Outgoing<O> {
    lane: Option<OutgoingLane<O>>,
    /// The objects that are not known to be delivered everywhere, by name. They belong to this
    /// view's ring or to rings of ended views.
    objects: BTreeMap<u64, O>,
    named: u64,
    /// The number of senders that have been promised room.
    permits: usize,
}

/// The objects in the ring of one view.
#[derive(Debug)]
struct OutgoingLane<O> {
    view: ViewId,
    /// True if the subgroup has no other member.
    is_alone: bool,
    /// The number of objects so far.
    count: u64,
    /// By position in the ring: the names and numbers of the objects that are not delivered
    /// everywhere.
    sent: BTreeMap<u64, (u64, u64)>,
    /// By position in the ring: the numbers of the objects that some members do not have.
    held: BTreeMap<u64, u64>,
    /// The objects that were not passed to the bulk group yet.
    waiting: VecDeque<O>,
    /// The number of objects in the bulk group that some members do not have.
    on_the_way: u32,
    has_group: bool,
}

impl<O> Default for Outgoing<O> {
    fn default() -> Outgoing<O> {
        Outgoing { lane: None, objects: BTreeMap::new(), named: 0, permits: 0 }
    }
}

impl<O: Clone> Outgoing<O> {
    /// The maximum number of objects under way at once.
    pub const MOST: u32 = OBJECTS_MAX as u32;

    /// Promises room for one more object, if it exists. The promise is [returned](Self::release)
    /// when the object has a name, or is not sent.
    pub fn promise(&mut self) -> bool {
        let has_room = self.objects.len() + self.permits < OBJECTS_MAX;
        self.permits += usize::from(has_room);
        has_room
    }

    /// Returns a promise.
    pub fn release(&mut self) {
        self.permits -= 1;
    }

    /// Names an object.
    pub fn name(&mut self, object: O) -> u64 {
        let name = self.named;
        self.named += 1;
        self.objects.insert(name, object);
        name
    }

    /// Returns the object of this name, unless it is delivered everywhere.
    pub fn object(&self, name: u64) -> Option<&O> {
        self.objects.get(&name)
    }

    /// Sends the object of this name in the frame at `position` of this view's ring. Returns its
    /// number. Returns `None` if this member sends in no current view, or if no such object exists.
    /// there is no such object.
    pub fn commit(&mut self, name: u64, position: u64) -> Option<u64> {
        let object = self.objects.get(&name)?;
        let lane = self.lane.as_mut()?;
        let number = lane.count;
        lane.count += 1;
        lane.sent.insert(position, (name, number));
        if !lane.is_alone {
            lane.held.insert(position, number);
            lane.waiting.push_back(object.clone());
        }
        Some(number)
    }

    /// Returns the position of the first frame in this view's ring that may not be announced yet.
    pub fn gate(&self) -> u64 {
        let held = self.lane.as_ref().and_then(|lane| lane.held.first_key_value());
        held.map_or(u64::MAX, |(position, _)| *position)
    }

    /// True if objects wait for a bulk group of this view.
    pub fn wants_group(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| !lane.has_group && !lane.waiting.is_empty())
    }

    /// Notes that the bulk group of this view is open.
    pub fn group_opened(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.has_group = true;
        }
    }

    /// Returns the next object that the bulk group can take. After each commit, and after each
    /// object that all members have, the caller repeats the call until it returns `None`.
    pub fn next_to_submit(&mut self) -> Option<O> {
        let lane = self.lane.as_mut().filter(|lane| lane.has_group && lane.on_the_way < SLOTS)?;
        let object = lane.waiting.pop_front()?;
        lane.on_the_way += 1;
        Some(object)
    }

    /// Notes that every member has the object with this number of `view`. True if that is the
    /// current view; then the gate may have moved.
    pub fn everywhere(&mut self, view: ViewId, number: u64) -> bool {
        let Some(lane) = self.lane.as_mut().filter(|lane| lane.view == view) else { return false };
        lane.held.retain(|_, held| *held != number);
        lane.on_the_way = lane.on_the_way.saturating_sub(1);
        true
    }

    /// Notes that everything below `position` in this view's ring is delivered everywhere,
    /// including here. Returns the numbers of the objects there, and the objects.
    pub fn settle(&mut self, position: u64) -> (Vec<u64>, Vec<O>) {
        let Some(lane) = &mut self.lane else { return Default::default() };
        let rest = lane.sent.split_off(&position);
        let settled = core::mem::replace(&mut lane.sent, rest);
        let done = settled.values().filter_map(|(name, _)| self.objects.remove(name)).collect();
        (settled.values().map(|(_, number)| *number).collect(), done)
    }

    /// Begins a view in which this member sends. `is_alone` says that the subgroup has no other
    /// member.
    pub fn begin(&mut self, view: ViewId, is_alone: bool) {
        let (sent, held, waiting) = Default::default();
        self.lane =
            Some(OutgoingLane { view, is_alone, count: 0, sent, held, waiting, on_the_way: 0, has_group: false });
    }

    /// Ends the view. Returns the names of the objects that are not known to be delivered
    /// everywhere, by position in its ring. Each is sent again or [passed](Self::pass).
    pub fn end_view(&mut self) -> BTreeMap<u64, u64> {
        let sent = self.lane.take().map(|lane| lane.sent).unwrap_or_default();
        sent.into_iter().map(|(position, (name, _))| (position, name)).collect()
    }

    /// Notes that objects of ended views were sent again, or are delivered. Returns the objects
    /// that this view's ring does not hold, which are forgotten.
    pub fn pass(&mut self, names: impl IntoIterator<Item = u64>) -> Vec<O> {
        let is_sent =
            |name: &u64| self.lane.as_ref().is_some_and(|lane| lane.sent.values().any(|(sent, _)| sent == name));
        let names: Vec<u64> = names.into_iter().filter(|name| !is_sent(name)).collect();
        names.iter().filter_map(|name| self.objects.remove(name)).collect()
    }

    /// Notes that no object of an ended view will be sent again. Returns the forgotten objects.
    pub fn forget_ended(&mut self) -> Vec<O> {
        let names: Vec<u64> = self.objects.keys().copied().collect();
        self.pass(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Returns a member that sends in view 1 to others, with a bulk group if it `has_group`.
    fn outgoing(has_group: bool) -> Outgoing<char> {
        let mut outgoing = Outgoing::default();
        outgoing.begin(ViewId(1), false);
        if has_group {
            outgoing.group_opened();
        }
        outgoing
    }

    fn send(outgoing: &mut Outgoing<char>, object: char, position: u64) -> u64 {
        let name = outgoing.name(object);
        outgoing.commit(name, position).expect("a view runs")
    }

    fn submitted(outgoing: &mut Outgoing<char>) -> Vec<char> {
        core::iter::from_fn(|| outgoing.next_to_submit()).collect()
    }

    #[test]
    fn promises_and_objects_share_the_room() {
        let mut outgoing = outgoing(true);
        assert!((0..OBJECTS_MAX).all(|_| outgoing.promise()));
        assert!(!outgoing.promise());
        send(&mut outgoing, 'a', 0);
        outgoing.release();
        assert!(!outgoing.promise(), "the object has taken its place");
        outgoing.release();
        assert!(outgoing.promise(), "one was not sent");
        assert!(!outgoing.promise());
        outgoing.everywhere(ViewId(1), 0);
        assert!(!outgoing.promise(), "everywhere is not delivered everywhere");
        assert_eq!(outgoing.settle(10), (vec![0], vec!['a']));
        assert!(outgoing.promise());
    }

    #[test]
    fn the_gate_stands_before_the_first_object_that_is_not_everywhere() {
        let mut outgoing = outgoing(true);
        assert_eq!(outgoing.gate(), u64::MAX);
        assert_eq!(send(&mut outgoing, 'a', 10), 0);
        assert_eq!(send(&mut outgoing, 'b', 20), 1);
        assert_eq!(outgoing.gate(), 10);
        assert!(outgoing.everywhere(ViewId(1), 1));
        assert_eq!(outgoing.gate(), 10);
        assert!(!outgoing.everywhere(ViewId(2), 0), "another view");
        assert_eq!(outgoing.gate(), 10);
        assert!(outgoing.everywhere(ViewId(1), 0));
        assert_eq!(outgoing.gate(), u64::MAX);
    }

    #[test]
    fn a_bulk_group_gets_as_many_as_it_has_slots() {
        let mut outgoing = outgoing(false);
        assert!(!outgoing.wants_group());
        for i in 0..6 {
            send(&mut outgoing, char::from(b'a' + i), i.into());
        }
        assert!(outgoing.wants_group() && submitted(&mut outgoing).is_empty());
        outgoing.group_opened();
        assert_eq!(submitted(&mut outgoing), ['a', 'b', 'c', 'd']);
        assert!(!outgoing.wants_group());
        outgoing.everywhere(ViewId(1), 2);
        assert_eq!(submitted(&mut outgoing), ['e']);
        assert!((0..2).all(|number| outgoing.everywhere(ViewId(1), number)));
        assert_eq!(submitted(&mut outgoing), ['f']);
    }

    #[test]
    fn a_member_that_is_alone_needs_no_group_and_no_gate() {
        let mut outgoing = Outgoing::default();
        outgoing.begin(ViewId(1), true);
        send(&mut outgoing, 'a', 10);
        assert!(!outgoing.wants_group() && outgoing.gate() == u64::MAX && submitted(&mut outgoing).is_empty());
        assert_eq!(outgoing.settle(11), (vec![0], vec!['a']));
    }

    #[test]
    fn a_view_that_ends_leaves_what_is_sent_again_in_the_next() {
        let mut outgoing = outgoing(true);
        for (object, position) in [('a', 10), ('b', 20), ('c', 30)] {
            send(&mut outgoing, object, position);
        }
        submitted(&mut outgoing);
        outgoing.everywhere(ViewId(1), 0);
        assert_eq!(outgoing.settle(20), (vec![0], vec!['a']));
        let left = outgoing.end_view();
        assert_eq!(left, BTreeMap::from([(20, 1), (30, 2)]));
        assert_eq!(outgoing.commit(1, 5), None, "no view runs");
        assert!(outgoing.settle(u64::MAX).1.is_empty() && !outgoing.wants_group());
        outgoing.begin(ViewId(2), false);
        assert!(!outgoing.everywhere(ViewId(1), 1), "the old view's group says so too late");
        // The first object is sent again with another number. The other one was delivered before
        // the trim.
        assert_eq!(outgoing.commit(1, 5), Some(0));
        assert!(outgoing.wants_group() && outgoing.gate() == 5, "the objects go to the members of this view");
        assert_eq!(outgoing.pass(left.into_values()), ['c']);
        assert_eq!(outgoing.commit(2, 6), None);
        assert_eq!((outgoing.object(1), outgoing.object(2)), (Some(&'b'), None));
        assert!(outgoing.forget_ended().is_empty());
        assert_eq!(outgoing.settle(6), (vec![0], vec!['b']));
    }

    #[test]
    fn messages_that_are_not_resent_are_forgotten() {
        let mut outgoing = outgoing(true);
        send(&mut outgoing, 'a', 10);
        // The application still commits in the ring of the ended view.
        outgoing.end_view();
        outgoing.name('b');
        outgoing.begin(ViewId(2), false);
        send(&mut outgoing, 'c', 0);
        assert_eq!(outgoing.forget_ended(), ['a', 'b']);
        assert_eq!(outgoing.objects.into_values().collect::<Vec<_>>(), ['c']);
    }
}
