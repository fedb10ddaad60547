//! Messages of a view that an observer has read and can't yield yet, because an object before them
//! is missing.
//!
//! Rings are overwritten meanwhile, so the observer reads on and keeps copies. It asks one member
//! at a time for all objects that it needs at that time. If that member no longer has an object,
//! dies, breaks off or takes too long, the observer asks another. An object that no member has is
//! reported as gone.
//!
//! The driver reads the rows and receives the objects:
//!
//! 1. [`Fetching::step`] asks a member, by an order of the [`Roster`].
//! 2. The driver reports the connection over which the objects come as
//!    [answered](Fetching::answered), and learns what to receive.
//! 3. Each object [came](Fetching::came), or the connection [broke off](Fetching::broke_off).
//!
//! A connection belongs to the [question](Fetching::question) that was pending when it was
//! answered. Once that question is over, the driver closes the connection.
use super::TARGET;
use crate::control::{ControlMessage, Roster, Wanted};
use crate::ids::{MemberId, Time};
use crate::limits::WANTED_MAX;
use crate::multicast::{Lapped, Seen};
use crate::view::View;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use tracing::{debug, info};

/// The longest time until a member begins to send its objects.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// The time limit for one object, in addition to the time for its bytes.
const OBJECT_WAIT: Duration = Duration::from_secs(5);
/// The minimum number of bytes per second.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// The maximum number of bytes that are kept until it is their turn. Above it the rings are not
/// read on. One object may be longer.
const AHEAD_BYTES_MAX: u64 = 256 << 20;
/// The memory of a message in addition to its bytes.
const ENTRY_BYTES: u64 = 64;

/// Messages of a view in their order. The first one is missing.
#[derive(Debug, Default)]
pub struct Fetching {
    entries: VecDeque<FetchedObject>,
    /// The number of missing messages.
    to_come: usize,
    /// The bytes of all messages that are here.
    bytes: u64,
    fetch: Option<Fetch>,
    /// The number of questions so far.
    asked: u64,
    /// Members that were asked without success. Others are asked first.
    poor: BTreeSet<MemberId>,
}

#[derive(Debug)]
struct FetchedObject {
    seen: Seen,
    what: What,
}

#[derive(Debug)]
enum What {
    Here(Vec<u8>),
    ToCome {
        wanted: Wanted,
        bytes: u64,
        /// Members that no longer have it, or could not send it.
        tried: Vec<MemberId>,
    },
    Gone,
}

/// A message that can be yielded now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// The message was read from its frame, or came from a member.
    Message(Seen, Vec<u8>),
    /// No member has the message.
    Gone(Lapped),
}

/// A question to one member.
#[derive(Debug)]
struct Fetch {
    from: MemberId,
    reply: u64,
    /// The missing objects, in this order.
    wanted: VecDeque<(Wanted, u64)>,
    is_answered: bool,
    until: Time,
}

impl Fetch {
    /// Sets the time until which the next object has to come.
    fn set_limit(&mut self, now: Time) {
        let bytes = self.wanted.front().map_or(0, |(_, bytes)| *bytes);
        self.until = now + OBJECT_WAIT + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
    }
}

impl Fetching {
    /// True if no message is missing or waits: messages are yielded as they are read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if more may be read.
    pub fn has_room(&self) -> bool {
        self.bytes < AHEAD_BYTES_MAX
    }

    /// Adds a message whose frame contained its payload.
    pub fn put(&mut self, seen: Seen, payload: &[u8]) {
        self.bytes += ENTRY_BYTES + payload.len() as u64;
        self.entries.push_back(FetchedObject { seen, what: What::Here(payload.to_vec()) });
    }

    /// Adds an object. `name` is the number and the length in bytes from its frame, if that frame
    /// contained a name. An object that is longer than `bytes_max` is reported as gone.
    pub fn want(&mut self, lapped: &Lapped, name: Option<(u64, u64)>, bytes_max: u64) {
        let Lapped { subgroup, sender, round, .. } = *lapped;
        let what = match name.filter(|(_, bytes)| *bytes <= bytes_max) {
            Some((number, bytes)) => {
                What::ToCome { wanted: Wanted { subgroup, sender, number }, bytes, tried: Vec::new() }
            }
            None => What::Gone,
        };
        self.bytes += ENTRY_BYTES;
        self.to_come += usize::from(matches!(what, What::ToCome { .. }));
        self.entries.push_back(FetchedObject { seen: Seen { subgroup, sender, round }, what });
    }

    /// Returns the first message, if it has come or is gone.
    pub fn take(&mut self) -> Option<Fetched> {
        if matches!(self.entries.front()?.what, What::ToCome { .. }) {
            return None;
        }
        let FetchedObject { seen, what } = self.entries.pop_front()?;
        self.bytes -= ENTRY_BYTES;
        Some(match what {
            What::Here(payload) => {
                self.bytes -= payload.len() as u64;
                Fetched::Message(seen, payload)
            }
            What::Gone | What::ToCome { .. } => {
                let Seen { subgroup, sender, round } = seen;
                Fetched::Gone(Lapped { subgroup, sender, round, is_object: true })
            }
        })
    }

    /// Returns the number of the pending question.
    pub fn question(&self) -> Option<u64> {
        self.fetch.as_ref().map(|fetch| fetch.reply)
    }

    /// Notes that `from` begins to send the objects of question `reply`. Returns the lengths of the
    /// objects to receive, in their order; `None` if the question is over, or is answered already.
    pub fn answered(&mut self, from: MemberId, reply: u64, now: Time) -> Option<Vec<u64>> {
        let is_it = |fetch: &&mut Fetch| (fetch.from, fetch.reply) == (from, reply) && !fetch.is_answered;
        let fetch = self.fetch.as_mut().filter(is_it)?;
        fetch.is_answered = true;
        fetch.set_limit(now);
        Some(fetch.wanted.iter().map(|(_, bytes)| *bytes).collect())
    }

    /// Notes that the next object has come over the connection of the pending question, or that the
    /// member no longer has it.
    pub fn came(&mut self, payload: Option<Vec<u8>>, now: Time) {
        let Some(fetch) = self.fetch.as_mut().filter(|fetch| fetch.is_answered) else { return };
        let Some((wanted, _)) = fetch.wanted.pop_front() else { return self.fail() };
        let from = fetch.from;
        fetch.set_limit(now);
        if fetch.wanted.is_empty() {
            self.fetch = None;
        }
        self.place(wanted, from, payload);
    }

    /// Notes that no more objects come over the connection of the pending question.
    pub fn broke_off(&mut self) {
        self.fail();
    }

    /// Notes that no more objects come from `id`.
    pub fn lost(&mut self, id: MemberId) {
        if self.fetch.as_ref().is_some_and(|fetch| fetch.from == id) {
            self.fail();
        }
    }

    /// Gives up a question that takes too long, and asks for the missing objects of `view`. True if
    /// it has asked.
    pub fn step<W>(&mut self, view: &View, roster: &mut Roster<W>, now: Time) -> bool {
        if self.fetch.as_ref().is_some_and(|fetch| now >= fetch.until) {
            self.fail();
        }
        while self.fetch.is_none()
            && self.to_come > 0
            && let Some(first) = self.entries.iter().position(|entry| matches!(entry.what, What::ToCome { .. }))
        {
            match self.source(first, view, roster) {
                Some(from) => {
                    self.ask(from, view, roster, now);
                    return true;
                }
                None => {
                    let Seen { subgroup, sender, round } = self.entries[first].seen;
                    let (me, view) = (roster.me().0, view.id.0);
                    info!(
                        target: TARGET, me, view, subgroup = subgroup.0, sender = sender.0, round,
                        "object is missed: no member has it"
                    );
                    self.entries[first].what = What::Gone;
                    self.to_come -= 1;
                }
            }
        }
        false
    }

    /// Notes that `from` has sent an object, or no longer has it.
    fn place(&mut self, object: Wanted, from: MemberId, payload: Option<Vec<u8>>) {
        let is_it = |what: &What| matches!(what, What::ToCome { wanted, .. } if *wanted == object);
        let Some(entry) = self.entries.iter_mut().find(|entry| is_it(&entry.what)) else { return };
        match (payload, &mut entry.what) {
            (Some(payload), what) => {
                self.bytes += payload.len() as u64;
                self.to_come -= 1;
                *what = What::Here(payload);
            }
            (None, What::ToCome { tried, .. }) => tried.push(from),
            (None, _) => {}
        }
    }

    /// Notes that the asked member sends no more. It is asked once more if no other member has the
    /// objects.
    fn fail(&mut self) {
        let Some(fetch) = self.fetch.take() else { return };
        info!(target: TARGET, from = fetch.from.0, objects = fetch.wanted.len(), "this member sends no objects");
        if !self.poor.insert(fetch.from) {
            for (wanted, _) in fetch.wanted {
                self.place(wanted, fetch.from, None);
            }
        }
    }

    /// Returns the member to ask for the object of an entry. It is a member of the subgroup that
    /// was not asked for it, on this host if possible. Different observers ask different members,
    /// because many may ask at once.
    fn source<W>(&self, entry: usize, view: &View, roster: &Roster<W>) -> Option<MemberId> {
        let FetchedObject { seen, what: What::ToCome { tried, .. } } = &self.entries[entry] else { return None };
        let members = &view.subgroups.get(seen.subgroup.index())?.members;
        let ids = members.iter().map(|rank| view.members[rank.index()]);
        let (count, shift) = (members.len() as u64, roster.me().0);
        let able = (0..count).zip(ids).filter(|(_, id)| !tried.contains(id) && !roster.is_dead(*id));
        let rank =
            |(i, id): &(u64, MemberId)| (self.poor.contains(id), roster.is_far(*id), (i + shift % count) % count);
        able.min_by_key(rank).map(|(_, id)| id)
    }

    /// Asks `from` for the missing objects that it may have.
    fn ask<W>(&mut self, from: MemberId, view: &View, roster: &mut Roster<W>, now: Time) {
        let rank = view.rank_of(from);
        let is_in =
            |seen: &Seen| rank.is_some_and(|rank| view.subgroups[seen.subgroup.index()].members.contains(&rank));
        let mut wanted_of = VecDeque::new();
        let mut sum = self.bytes;
        for FetchedObject { seen, what } in &self.entries {
            let What::ToCome { wanted, bytes, tried } = what else { continue };
            if tried.contains(&from) || !is_in(seen) {
                continue;
            }
            sum = sum.saturating_add(*bytes);
            if wanted_of.len() == WANTED_MAX || !wanted_of.is_empty() && sum > AHEAD_BYTES_MAX {
                break;
            }
            wanted_of.push_back((*wanted, *bytes));
        }
        self.asked += 1;
        let (incarnation, reply, me) = (roster.incarnation(), self.asked, roster.me());
        debug!(target: TARGET, me = me.0, view = view.id.0, from = from.0, objects = wanted_of.len(), "objects asked for");
        let objects = wanted_of.iter().map(|(wanted, _)| *wanted).collect();
        roster.post(from, ControlMessage::Want { incarnation, view: view.id, from: me, reply, objects });
        self.fetch = Some(Fetch { from, reply, wanted: wanted_of, is_answered: false, until: now + ANSWER_WAIT });
    }

    /// Notes that another view is observed.
    pub fn begin(&mut self) {
        *self = Fetching { asked: self.asked, ..Fetching::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Birth, Me, RosterOrder};
    use crate::ids::{Rank, SubgroupId, ViewId};
    use crate::view::{SubgroupSpec, View};
    use alloc::vec;

    const BYTES_MAX: u64 = 1000;

    struct Case {
        fetching: Fetching,
        roster: Roster<()>,
        view: View,
        now: Time,
    }

    fn me(id: u64) -> Me {
        Me { id: MemberId(id), pid: id as u32, birth: Birth::default() }
    }

    fn subgroup(members: &[u32]) -> SubgroupSpec {
        let members: Vec<Rank> = members.iter().copied().map(Rank).collect();
        SubgroupSpec { senders: members.clone(), members, ..SubgroupSpec::of_everyone("s") }
    }

    impl Case {
        /// Process 9, which observes members 1, 2 and 3 of its host.
        fn new() -> Case {
            let members = [1, 2, 3].map(MemberId).to_vec();
            let spec = subgroup(&[0, 1, 2]);
            let view = View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![spec].into() };
            Case { fetching: Fetching::default(), roster: Roster::new(me(9), 1, None), view, now: Time(0) }
        }

        fn lapped(round: u64) -> Lapped {
            Lapped { subgroup: SubgroupId(0), sender: Rank(1), round, is_object: true }
        }

        fn want(&mut self, number: u64, bytes: u64) {
            self.fetching.want(&Case::lapped(number), Some((number, bytes)), BYTES_MAX);
        }

        fn put(&mut self, round: u64) {
            let seen = Seen { subgroup: SubgroupId(0), sender: Rank(0), round };
            self.fetching.put(seen, &round.to_le_bytes());
        }

        fn step(&mut self) -> bool {
            self.fetching.step(&self.view, &mut self.roster, self.now)
        }

        /// Asks, unless it has asked already. Returns the asked member and the objects.
        fn asked(&mut self) -> (MemberId, Vec<u64>) {
            self.step();
            let fetch = self.fetching.fetch.as_ref().expect("it has asked a member");
            (fetch.from, fetch.wanted.iter().map(|(wanted, _)| wanted.number).collect())
        }

        /// Lets the asked member begin to send.
        fn answered(&mut self) -> Option<Vec<u64>> {
            let from = self.asked().0;
            self.fetching.answered(from, self.fetching.asked, self.now)
        }

        /// Lets the asked member answer with the objects that it has.
        fn answer(&mut self, objects: &[(u64, usize)]) {
            let numbers = self.asked().1;
            assert_eq!(self.answered().map(|lengths| lengths.len()), Some(numbers.len()));
            for number in numbers {
                let object = objects.iter().find(|(of, _)| *of == number).map(|(_, bytes)| vec![7; *bytes]);
                self.fetching.came(object, self.now);
            }
            assert_eq!(self.fetching.question(), None);
        }

        /// Returns the rounds that are yielded, and whether each message is present.
        fn yields(&mut self) -> Vec<(u64, bool)> {
            self.step();
            let next = |next| match next {
                Fetched::Message(seen, _) => (seen.round, true),
                Fetched::Gone(lapped) => (lapped.round, false),
            };
            core::iter::from_fn(|| self.fetching.take()).map(next).collect()
        }
    }

    #[test]
    fn messages_behind_an_object_wait_for_it() {
        let mut case = Case::new();
        case.want(10, 3);
        case.put(11);
        case.want(12, 4);
        assert_eq!(case.yields(), []);
        assert_eq!(case.asked().1, [10, 12]);
        case.put(13);
        case.want(14, 5);
        case.answer(&[(10, 3), (12, 4)]);
        assert_eq!(case.yields(), [(10, true), (11, true), (12, true), (13, true)]);
        assert_eq!(case.asked().1, [14]);
        case.answer(&[(14, 5)]);
        assert_eq!(case.yields(), [(14, true)]);
        assert!(case.fetching.is_empty() && case.fetching.bytes == 0 && case.fetching.to_come == 0);
    }

    #[test]
    fn the_question_is_a_message_to_one_member_and_an_answer_to_another_question_is_none() {
        let mut case = Case::new();
        case.want(1, 3);
        assert!(case.step() && !case.step(), "it asks once");
        let (from, reply) = (case.asked().0, case.fetching.asked);
        let mut messages = vec![];
        while let Some(order) = case.roster.next_order() {
            if let RosterOrder::Near { to, message: ControlMessage::Want { view, from, reply, objects, .. }, .. } =
                order
            {
                messages.push((to, view, from, reply, objects.len()));
            }
        }
        assert_eq!(messages, [(from, ViewId(1), MemberId(9), reply, 1)]);
        assert_eq!(case.fetching.answered(from, reply - 1, case.now), None, "an answer of long ago");
        assert_eq!(case.fetching.answered(MemberId(8), reply, case.now), None, "another process");
        case.fetching.came(Some(vec![1, 2, 3]), case.now);
        assert_eq!(case.fetching.question(), Some(reply), "nothing comes before the answer");
        assert_eq!(case.fetching.answered(from, reply, case.now), Some(vec![3]));
        assert_eq!(case.fetching.answered(from, reply, case.now), None, "the same once more");
    }

    #[test]
    fn all_members_are_asked_before_an_object_is_missed() {
        let mut case = Case::new();
        case.want(1, 3);
        case.want(2, 3);
        let mut ids = vec![case.asked().0];
        case.answer(&[(2, 3)]);
        ids.push(case.asked().0);
        assert_eq!(case.asked().1, [1]);
        case.fetching.lost(ids[0]);
        assert!(case.fetching.question().is_some(), "another one is asked");
        case.fetching.lost(ids[1]);
        ids.push(case.asked().0);
        case.answer(&[]);
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3].map(MemberId));
        assert_eq!(case.yields(), [], "the one that failed is asked once more");
        case.answer(&[]);
        assert_eq!(case.yields(), [(1, false), (2, true)]);
    }

    #[test]
    fn a_slow_member_is_given_up_in_time_and_the_next_one_is_asked() {
        let mut case = Case::new();
        case.want(1, 3 * BYTES_PER_SECOND_MIN);
        assert_eq!(case.yields(), [(1, false)], "it is longer than what is taken");
        case.fetching.want(&Case::lapped(1), Some((1, 3 * BYTES_PER_SECOND_MIN)), u64::MAX);
        case.fetching.want(&Case::lapped(2), Some((2, 5)), u64::MAX);
        // This member does not begin to send.
        let silent = case.asked().0;
        case.now += ANSWER_WAIT - Duration::from_nanos(1);
        assert!(!case.step());
        case.now += Duration::from_nanos(1);
        assert!(case.step());
        // This member begins, and takes its time for a long object. The time limit starts again
        // with each object.
        let slow = case.asked().0;
        assert_ne!(slow, silent);
        assert_eq!(case.answered(), Some(vec![3 * BYTES_PER_SECOND_MIN, 5]));
        case.now += OBJECT_WAIT + Duration::from_secs(3) - Duration::from_nanos(1);
        assert!(!case.step());
        case.fetching.came(Some(vec![1]), case.now);
        case.now += OBJECT_WAIT - Duration::from_nanos(1);
        assert!(!case.step());
        case.now += Duration::from_nanos(1);
        assert!(case.step());
        let third = case.asked();
        assert!(third.0 != slow && third.0 != silent && third.1 == [2], "{third:?}");
    }

    #[test]
    fn a_way_that_breaks_off_leaves_what_has_come() {
        let mut case = Case::new();
        case.want(1, 3);
        case.want(2, 3);
        case.answered();
        let first = case.asked().0;
        case.fetching.came(Some(vec![1; 3]), case.now);
        case.fetching.broke_off();
        assert_eq!(case.yields(), [(1, true)]);
        let (second, numbers) = case.asked();
        assert!(second != first && numbers == [2]);
        case.answered();
        case.fetching.came(Some(vec![2; 3]), case.now);
        // The member sends more than was asked for.
        case.fetching.came(Some(vec![3; 3]), case.now);
        assert_eq!(case.yields(), [(2, true)]);
        assert!(case.fetching.is_empty() && case.fetching.bytes == 0);
    }

    #[test]
    fn members_that_fail_each_time_are_given_up() {
        let mut case = Case::new();
        (1..=40).for_each(|number| case.want(number, 10));
        let mut asked = 0;
        while case.yields().is_empty() {
            let (from, numbers) = case.asked();
            assert_eq!(numbers.len(), WANTED_MAX);
            case.fetching.lost(from);
            asked += 1;
            assert!(asked <= 6, "each twice");
        }
    }

    #[test]
    fn dead_members_are_not_asked() {
        let mut case = Case::new();
        let ids = case.view.members.clone();
        case.roster.begin(&case.view, case.now);
        ids[..2].iter().for_each(|id| case.roster.has_ended(*id));
        case.want(1, 3);
        assert_eq!(case.asked().0, ids[2]);
        case.roster.has_ended(ids[2]);
        case.fetching.lost(ids[2]);
        assert_eq!(case.yields(), [(1, false)]);
    }

    #[test]
    fn processes_that_follow_ask_different_members() {
        let asked = |id: u64| {
            let mut case = Case { roster: Roster::new(me(id), 1, None), ..Case::new() };
            case.want(1, 3);
            case.asked().0
        };
        let all: BTreeSet<MemberId> = (9..12).map(asked).collect();
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn only_members_of_the_objects_subgroup_are_asked_for_it() {
        let mut case = Case::new();
        case.view.subgroups.push(subgroup(&[1, 2]));
        let other = Lapped { subgroup: SubgroupId(1), ..Case::lapped(5) };
        case.want(6, 1);
        case.fetching.want(&other, Some((5, 1)), BYTES_MAX);
        assert_eq!(case.asked(), (MemberId(1), vec![6]));
        case.answer(&[(6, 1)]);
        let mut asked = vec![];
        while case.yields().last() != Some(&(5, false)) {
            let (from, numbers) = case.asked();
            assert_eq!(numbers, [5]);
            asked.push(from);
            case.answer(&[]);
        }
        asked.sort_unstable();
        assert_eq!(asked, [2, 3].map(MemberId));
    }

    #[test]
    fn no_more_is_read_or_asked_for_than_there_is_room_for() {
        let mut case = Case::new();
        let half = AHEAD_BYTES_MAX / 2;
        for number in 1..=4 {
            case.fetching.want(&Case::lapped(number), Some((number, half - 200)), u64::MAX);
        }
        assert_eq!(case.asked().1, [1, 2]);
        // An object that is too long for all room is fetched separately.
        let mut case = Case::new();
        case.fetching.want(&Case::lapped(1), Some((1, 2 * AHEAD_BYTES_MAX)), u64::MAX);
        case.want(2, 1);
        assert_eq!(case.asked().1, [1]);
        assert!(case.fetching.has_room());
        case.fetching.bytes += AHEAD_BYTES_MAX;
        assert!(!case.fetching.has_room());
    }

    #[test]
    fn names_that_are_none_and_objects_that_are_too_long_are_missed() {
        let mut case = Case::new();
        case.want(1, BYTES_MAX + 1);
        case.fetching.want(&Case::lapped(2), None, BYTES_MAX);
        assert_eq!(case.yields(), [(1, false), (2, false)]);
        assert_eq!(case.fetching.question(), None);
    }

    #[test]
    fn with_another_view_the_old_questions_are_over() {
        let mut case = Case::new();
        case.want(1, 3);
        let (from, reply) = (case.asked().0, case.fetching.asked);
        case.fetching.begin();
        assert!(case.fetching.is_empty() && case.fetching.question().is_none());
        assert_eq!(case.fetching.answered(from, reply, case.now), None);
        case.want(1, 3);
        case.asked();
        assert_eq!(case.fetching.question(), Some(reply + 1), "numbers go on");
        assert_eq!(case.fetching.answered(from, reply, case.now), None, "the old view's object has the same number");
    }
}
