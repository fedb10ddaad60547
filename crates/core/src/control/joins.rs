//! The processes that ask a member for admission, and the moment when the leader admits them.
//!
//! A separate view for each of many joiners would keep the group busy with view changes, and the
//! learners with following them. So a process that asks waits for the learners that observe the
//! group and have yet to ask. Without learners it is admitted after a millisecond.
//!
//! [`Joins`] has no I/O: time is an argument. It does not know which member leads: only the
//! leader's caller asks for the [`due`](Joins::due) processes.
use crate::ids::{CLIENT_IDS_FROM, MemberId, Process, Time, ViewId};
use crate::view::View;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// How long the leader collects joiners if it expects no others.
const QUIET: Duration = Duration::from_millis(1);
/// The longest wait of a joiner, and the longest time for which one learner delays others.
const COLLECT_MAX: Duration = Duration::from_secs(2);
/// The interval at which expected learners are looked for, and how many of them each time.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKED_FOR: usize = 8;

/// The processes that want to join.
#[derive(Debug, Default)]
pub struct Joins {
    /// The joiners by id.
    asking: BTreeMap<MemberId, Asking>,
    /// The times of the first and of the newest request.
    since: Option<(Time, Time)>,
    /// The learners that have not asked yet, and when each began.
    learning: BTreeMap<MemberId, Time>,
    /// When some of them were looked for, and the last of these.
    looked: Option<(Time, MemberId)>,
    /// The processes that were passed on to the engine, by id.
    admitted: BTreeMap<MemberId, Asking>,
}

/// A request for admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asking {
    /// The process's nonce.
    nonce: u32,
    /// The view that it follows; 0: none.
    follows: ViewId,
}

impl Joins {
    /// True if a process asks and was not admitted.
    pub fn is_pending(&self) -> bool {
        self.since.is_some()
    }

    /// True if a process asks and no other is expected.
    pub fn is_complete(&self) -> bool {
        self.is_pending() && self.learning.is_empty()
    }

    /// Returns the processes that ask.
    pub fn asking(&self) -> impl Iterator<Item = MemberId> {
        self.asking.keys().copied()
    }

    /// Notes that `id` has begun to observe. It will ask for admission when it has learned enough.
    pub fn expect(&mut self, id: MemberId, now: Time) {
        // Learners that have used up their time no longer delay any process.
        self.learning.retain(|_, came| *came + COLLECT_MAX > now);
        if id.0 < CLIENT_IDS_FROM && !self.admitted.contains_key(&id) && !self.asking.contains_key(&id) {
            self.learning.entry(id).or_insert(now);
        }
    }

    /// Notes that `process`, which `follows` a view or none (0), asks for admission, and that any
    /// other process with its id no longer does. Returns whether another one was passed on to the
    /// engine, which then has to learn of this one.
    pub fn ask(&mut self, process: Process, follows: ViewId, now: Time) -> bool {
        let Process { id, nonce } = process;
        self.learning.remove(&id);
        if let Some(admitted) = self.admitted.get_mut(&id) {
            return core::mem::replace(admitted, Asking { nonce, follows }).nonce != nonce;
        }
        if self.asking.insert(id, Asking { nonce, follows }).is_none() {
            let first = self.since.map_or(now, |(first, _)| first);
            self.since = Some((first, now));
        }
        false
    }

    /// True if `process` wants to join, rather than another process with its id.
    pub fn has_asked(&self, process: Process) -> bool {
        [&self.asking, &self.admitted]
            .iter()
            .any(|joins| joins.get(&process.id).is_some_and(|asking| asking.nonce == process.nonce))
    }

    /// Forgets `id`: its process has ended or can't be reached.
    pub fn forget(&mut self, id: MemberId) {
        self.learning.remove(&id);
        self.asking.remove(&id);
        self.admitted.remove(&id);
        if self.asking.is_empty() {
            self.since = None;
        }
    }

    fn due_at(&self) -> Option<Time> {
        let (first, newest) = self.since?;
        let expected = self.learning.values().max().map(|came| *came + COLLECT_MAX);
        let quiet = newest + QUIET;
        Some(expected.map_or(quiet, |expected| expected.max(quiet)).min(first + COLLECT_MAX))
    }

    /// Returns the time until the next call of [`due`](Self::due) or [`expected`](Self::expected);
    /// `None` if no process asks.
    pub fn patience(&self, now: Time) -> Option<Duration> {
        let left = self.due_at()?.since(now);
        Some(if self.learning.is_empty() { left } else { left.min(LOOK_EVERY) })
    }

    /// Returns, at intervals, some of the learners that delay other processes, in turn. The caller
    /// [forgets](Self::forget) the ones that have ended.
    pub fn expected(&mut self, now: Time) -> Vec<MemberId> {
        if self.since.is_none() || self.looked.is_some_and(|(at, _)| now < at + LOOK_EVERY) {
            return vec![];
        }
        let last = self.looked.map_or(MemberId(0), |(_, last)| last);
        let (before, behind): (Vec<_>, Vec<_>) = self.learning.keys().copied().partition(|id| *id <= last);
        let expected: Vec<MemberId> = behind.into_iter().chain(before).take(LOOKED_FOR).collect();
        self.looked = expected.last().map(|last| (now, *last));
        expected
    }

    /// Returns the processes to admit now.
    pub fn due(&mut self, now: Time) -> Vec<Process> {
        if self.due_at().is_none_or(|at| at > now) {
            return vec![];
        }
        self.all()
    }

    /// Returns all processes that ask, for a view that begins anyway and admits them.
    pub fn all(&mut self) -> Vec<Process> {
        self.since = None;
        let all = core::mem::take(&mut self.asking);
        self.admitted.extend(&all);
        processes(&all).collect()
    }

    /// Returns the processes that were passed on to an engine and are in no view yet.
    pub fn admitted(&self) -> impl Iterator<Item = Process> {
        processes(&self.admitted)
    }

    /// Returns the ids of all processes that may be admitted.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> {
        self.asking.keys().chain(self.admitted.keys()).chain(self.learning.keys()).copied()
    }

    /// Notes that `view` has begun. Its members no longer ask, whichever member admitted them. A
    /// process that follows an earlier view asks again when it follows this one: it could not begin
    /// the next view before.
    pub fn begin(&mut self, view: &View, now: Time) {
        let is_outside = |id: &MemberId| !view.members.contains(id);
        self.learning.retain(|id, _| is_outside(id));
        let is_behind = |asking: &Asking| asking.follows != ViewId(0) && asking.follows < view.id;
        for joins in [&mut self.asking, &mut self.admitted] {
            joins.retain(|id, _| is_outside(id));
            let behind = joins.extract_if(.., |_, asking| is_behind(asking));
            self.learning.extend(behind.map(|(id, _)| (id, now)));
        }
        if self.asking.is_empty() {
            self.since = None;
        }
    }
}

fn processes(by_id: &BTreeMap<MemberId, Asking>) -> impl Iterator<Item = Process> {
    by_id.iter().map(|(id, asking)| Process { id: *id, nonce: asking.nonce })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ViewId;

    const MS: Duration = Duration::from_millis(1);

    fn joins() -> (Joins, Time) {
        (Joins::default(), Time(0))
    }

    /// The first process with this id.
    fn process(id: u64) -> Process {
        Process { id: MemberId(id), nonce: 1 }
    }

    fn view<const COUNT: usize>(ids: [u64; COUNT]) -> View {
        View { id: ViewId(1), members: ids.map(MemberId).to_vec(), nonvoters: vec![], subgroups: Default::default() }
    }

    /// Track record 189: processes that still followed the view before were admitted, and held up
    /// a view that they could not begin.
    #[test]
    fn a_process_that_follows_an_earlier_view_asks_again() {
        let (mut joins, now) = joins();
        joins.ask(process(4), ViewId(1), now);
        assert_eq!(joins.due(now + QUIET), [process(4)]);
        joins.ask(process(5), ViewId(1), now);
        joins.ask(process(6), ViewId(0), now);
        joins.ask(process(7), ViewId(2), now);
        let next = View { id: ViewId(2), ..view([1, 2]) };
        joins.begin(&next, now + MS);
        assert_eq!(
            (joins.admitted().next(), joins.asking().collect::<Vec<_>>()),
            (None, vec![MemberId(6), MemberId(7)])
        );
        assert_eq!(joins.expected(now + MS), [MemberId(4), MemberId(5)], "the others wait for them");
        joins.ask(process(4), ViewId(2), now + 2 * MS);
        joins.ask(process(5), ViewId(2), now + 2 * MS);
        assert_eq!(joins.due(now + 2 * MS + QUIET), [4, 5, 6, 7].map(process));
    }

    #[test]
    fn a_single_process_is_admitted_at_once() {
        let (mut joins, now) = joins();
        joins.expect(MemberId(4), now);
        assert_eq!(joins.patience(now), None);
        joins.ask(process(4), ViewId(0), now);
        assert_eq!(joins.patience(now), Some(QUIET));
        assert_eq!(joins.due(now), []);
        assert_eq!(joins.due(now + QUIET), [process(4)]);
        // The process may ask again before its view begins.
        joins.ask(process(4), ViewId(0), now + QUIET);
        assert_eq!(joins.due(now + COLLECT_MAX), []);
        assert_eq!(joins.admitted().collect::<Vec<_>>(), [process(4)]);
    }

    #[test]
    fn a_process_that_asks_waits_for_learners() {
        let (mut joins, now) = joins();
        for id in 4..=6 {
            joins.expect(MemberId(id), now);
        }
        joins.ask(process(5), ViewId(0), now);
        assert!(!joins.is_complete());
        assert_eq!(joins.due(now + 100 * MS), []);
        assert_eq!(joins.expected(now + 100 * MS), [MemberId(4), MemberId(6)]);
        joins.ask(process(4), ViewId(0), now + 200 * MS);
        joins.forget(MemberId(6));
        assert!(joins.is_complete());
        assert_eq!(joins.due(now + 200 * MS + QUIET), [process(4), process(5)]);
    }

    #[test]
    fn waits_are_bounded_for_each_process_and_each_learner() {
        let (mut joins, now) = joins();
        joins.expect(MemberId(4), now);
        joins.ask(process(5), ViewId(0), now + (COLLECT_MAX - 10 * MS));
        assert_eq!(joins.due(now + (COLLECT_MAX - MS)), []);
        assert_eq!(joins.due(now + COLLECT_MAX), [process(5)]);

        let (mut joins, now) = self::joins();
        joins.expect(MemberId(4), now);
        joins.ask(process(5), ViewId(0), now);
        // More learners keep arriving.
        joins.expect(MemberId(6), now + (COLLECT_MAX - MS));
        assert_eq!(joins.due(now + (COLLECT_MAX - MS)), []);
        assert_eq!(joins.due(now + COLLECT_MAX), [process(5)]);
    }

    #[test]
    fn clients_never_ask_and_are_not_waited_for() {
        let (mut joins, now) = joins();
        joins.expect(MemberId(CLIENT_IDS_FROM), now);
        joins.ask(process(4), ViewId(0), now);
        assert_eq!(joins.due(now + QUIET), [process(4)]);
    }

    #[test]
    fn a_view_forgets_the_processes_that_it_admits() {
        let (mut joins, now) = joins();
        for id in 4..=6 {
            joins.ask(process(id), ViewId(0), now);
        }
        joins.begin(&view([1, 4, 5]), now);
        assert_eq!(joins.asking().collect::<Vec<_>>(), [MemberId(6)]);
        // The process has waited long enough.
        assert_eq!(joins.due(now + QUIET), [process(6)]);
        joins.begin(&view([1, 6]), now);
        assert!(!joins.is_pending() && joins.admitted().next().is_none());
    }

    #[test]
    fn a_process_takes_the_place_of_another_with_its_id() {
        let (mut joins, now) = joins();
        let second = Process { nonce: 2, ..process(4) };
        assert!(!joins.ask(process(4), ViewId(0), now) && !joins.ask(second, ViewId(0), now));
        assert_eq!(joins.due(now + QUIET), [second]);
        let third = Process { nonce: 3, ..second };
        assert!(joins.ask(third, ViewId(0), now) && !joins.ask(third, ViewId(0), now));
        assert_eq!(joins.admitted().collect::<Vec<_>>(), [third]);
    }
}
