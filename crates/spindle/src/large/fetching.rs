//! What somebody who follows has read of a view and can't tell yet, because an object comes before it that is still to come.
//!
//! Rings are overwritten meanwhile, so it reads on and keeps copies. It asks one member at a time, for all objects that it needs by then; another
//! one if that one has them no more, dies, or takes too long. An object that no member has is missed.
use super::serving::receive_apart;
use crate::crew::{Crew, Notices};
use crate::state::Way;
use spindle_core::control::{Letter, Wanted};
use spindle_core::limits::WANTED_MAX;
use spindle_core::{Lapped, MemberId, Seen, View};
use spindle_fabric::ObjectName;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use tracing::{debug, info};

/// The target of events of objects.
const TARGET: &str = "spindle::object";

/// How long a member may take until its objects begin to come.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// And how long one may take, beside the time for its bytes.
const OBJECT_WAIT: Duration = Duration::from_secs(5);
/// Bytes that come in a second, at least.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Bytes that are kept until it is their turn, at most: then rings are not read on. One object may be longer.
const AHEAD_BYTES_MAX: u64 = 256 << 20;
/// What a message costs beside its bytes.
const ENTRY_BYTES: u64 = 64;

/// Messages of a view, in their order, of which the first is to come.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    entries: VecDeque<Entry>,
    /// How many of them are to come.
    to_come: usize,
    /// Bytes that are here.
    bytes: u64,
    fetch: Option<Fetch>,
    /// Letters so far.
    asked: u64,
    /// Who was asked in vain: others are asked first.
    poor: BTreeSet<MemberId>,
}

#[derive(Debug)]
struct Entry {
    seen: Seen,
    what: What,
}

#[derive(Debug)]
enum What {
    Here(Vec<u8>),
    ToCome {
        wanted: Wanted,
        bytes: u64,
        /// Who has it no more, or could not give it.
        tried: Vec<MemberId>,
    },
    Gone,
}

/// What has come at last.
pub(crate) enum Next {
    Message(Seen, Vec<u8>),
    /// No member has it.
    Gone(Lapped),
}

/// What one member was asked for.
#[derive(Debug)]
struct Fetch {
    from: MemberId,
    reply: u64,
    /// What is still to come, in this order.
    wanted: VecDeque<(Wanted, u64)>,
    coming: Option<Receiver<Option<Vec<u8>>>>,
    until: Instant,
    cancelled: Arc<AtomicBool>,
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Fetch {
    /// What is next has to come in time.
    fn set_limit(&mut self) {
        let bytes = self.wanted.front().map_or(0, |(_, bytes)| *bytes);
        self.until = Instant::now() + OBJECT_WAIT + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
    }
}

impl Ahead {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether more may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < AHEAD_BYTES_MAX
    }

    /// A message that stood in its frame.
    pub(crate) fn put(&mut self, seen: Seen, payload: &[u8]) {
        self.bytes += ENTRY_BYTES + payload.len() as u64;
        self.entries.push_back(Entry { seen, what: What::Here(payload.to_vec()) });
    }

    /// An object, and the name that stood in its frame. It is not longer than `bytes_max`, if it is to be had.
    pub(crate) fn want(&mut self, lapped: &Lapped, name: &[u8], bytes_max: u64) {
        let Lapped { subgroup, sender, round, .. } = *lapped;
        let what = match ObjectName::decode(name).filter(|name| name.bytes <= bytes_max) {
            Some(ObjectName { number, bytes, .. }) => {
                What::ToCome { wanted: Wanted { subgroup, sender, number }, bytes, tried: vec![] }
            }
            None => What::Gone,
        };
        self.bytes += ENTRY_BYTES;
        self.to_come += usize::from(matches!(what, What::ToCome { .. }));
        self.entries.push_back(Entry { seen: Seen { subgroup, sender, round }, what });
    }

    /// The first, if it has come.
    pub(crate) fn take(&mut self) -> Option<Next> {
        if matches!(self.entries.front()?.what, What::ToCome { .. }) {
            return None;
        }
        let Entry { seen, what } = self.entries.pop_front()?;
        self.bytes -= ENTRY_BYTES;
        Some(match what {
            What::Here(payload) => {
                self.bytes -= payload.len() as u64;
                Next::Message(seen, payload)
            }
            What::Gone | What::ToCome { .. } => {
                let Seen { subgroup, sender, round } = seen;
                Next::Gone(Lapped { subgroup, sender, round, is_object: true })
            }
        })
    }

    /// Objects begin to come.
    pub(crate) fn answered(&mut self, from: MemberId, reply: u64, way: Way, notices: &Arc<Notices>) {
        let is_it = |fetch: &&mut Fetch| (fetch.from, fetch.reply) == (from, reply) && fetch.coming.is_none();
        let Some(fetch) = self.fetch.as_mut().filter(is_it) else { return };
        let lengths = fetch.wanted.iter().map(|(_, bytes)| *bytes).collect();
        match receive_apart(way, lengths, Arc::clone(&fetch.cancelled), Arc::clone(notices)) {
            Ok(coming) => {
                fetch.coming = Some(coming);
                fetch.set_limit();
            }
            Err(_) => self.fail(),
        }
    }

    /// Nothing comes from `id` any more.
    pub(crate) fn lost(&mut self, id: MemberId) {
        if self.fetch.as_ref().is_some_and(|fetch| fetch.from == id) {
            self.fail();
        }
    }

    /// A step: takes in what has come of `view`, and asks for what is missing.
    pub(crate) fn step(&mut self, crew: &mut Crew, view: &View) {
        self.take_in();
        while self.fetch.is_none()
            && self.to_come > 0
            && let Some(first) = self.entries.iter().position(|entry| matches!(entry.what, What::ToCome { .. }))
        {
            match self.source(first, crew, view) {
                Some(from) => self.ask(from, crew, view),
                None => {
                    let Seen { subgroup, sender, round } = self.entries[first].seen;
                    let (me, view) = (crew.me.0, view.id.0);
                    info!(
                        target: TARGET, me, view, subgroup = subgroup.0, sender = sender.0, round,
                        "object is missed: no member has it"
                    );
                    self.entries[first].what = What::Gone;
                    self.to_come -= 1;
                }
            }
        }
    }

    fn take_in(&mut self) {
        while let Some(fetch) = &mut self.fetch {
            let come = fetch.coming.as_ref().map_or(Err(TryRecvError::Empty), Receiver::try_recv);
            match come {
                Ok(object) => {
                    let Some((wanted, _)) = fetch.wanted.pop_front() else { return self.fail() };
                    let from = fetch.from;
                    fetch.set_limit();
                    if fetch.wanted.is_empty() {
                        self.fetch = None;
                    }
                    self.came(wanted, from, object);
                }
                Err(TryRecvError::Empty) if Instant::now() < fetch.until => return,
                Err(_) => self.fail(),
            }
        }
    }

    /// `from` has given an object, or has it no more.
    fn came(&mut self, object: Wanted, from: MemberId, payload: Option<Vec<u8>>) {
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

    /// Whoever was asked gives no more. It is asked once more if nobody else has it.
    fn fail(&mut self) {
        let Some(mut fetch) = self.fetch.take() else { return };
        info!(target: TARGET, from = fetch.from.0, objects = fetch.wanted.len(), "objects do not come from this member");
        if !self.poor.insert(fetch.from) {
            for (wanted, _) in std::mem::take(&mut fetch.wanted) {
                self.came(wanted, fetch.from, None);
            }
        }
    }

    /// Whom to ask for the object of an entry: of its subgroup's members who were not asked for it one of this host, if there is one. Many follow
    /// at once, so not all ask the same.
    fn source(&self, entry: usize, crew: &Crew, view: &View) -> Option<MemberId> {
        let Entry { seen, what: What::ToCome { tried, .. } } = &self.entries[entry] else { return None };
        let members = &view.subgroups.get(seen.subgroup.index())?.members;
        let ids = members.iter().map(|rank| view.members[rank.index()]);
        let (count, shift) = (members.len() as u64, crew.me.0);
        let able = (0..count).zip(ids).filter(|(_, id)| !tried.contains(id) && !crew.roster().is_dead(*id));
        let rank = |(i, id): &(u64, MemberId)| (self.poor.contains(id), crew.is_far(*id), (i + shift % count) % count);
        able.min_by_key(rank).map(|(_, id)| id)
    }

    /// Asks `from` for what it may have of that which is missing.
    fn ask(&mut self, from: MemberId, crew: &mut Crew, view: &View) {
        let rank = view.rank_of(from);
        let is_in =
            |seen: &Seen| rank.is_some_and(|rank| view.subgroups[seen.subgroup.index()].members.contains(&rank));
        let mut wanted_of = VecDeque::new();
        let mut sum = self.bytes;
        for Entry { seen, what } in &self.entries {
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
        let (incarnation, reply, me) = (crew.incarnation(), self.asked, crew.me);
        debug!(target: TARGET, me = me.0, view = view.id.0, from = from.0, objects = wanted_of.len(), "objects asked for");
        let objects = wanted_of.iter().map(|(wanted, _)| *wanted).collect();
        crew.post(from, Letter::Want { incarnation, view: view.id, from: me, reply, objects });
        crew.flush_now();
        let until = Instant::now() + ANSWER_WAIT;
        self.fetch = Some(Fetch { from, reply, wanted: wanted_of, coming: None, until, cancelled: Arc::default() });
    }

    /// Another view is followed.
    pub(crate) fn begin(&mut self) {
        *self = Ahead { asked: self.asked, ..Ahead::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::large::Kept;
    use crate::large::serving::tests::sent;
    use spindle_core::{Rank, SubgroupId};

    const PATIENCE: Duration = Duration::from_secs(20);
    const BYTES_MAX: u64 = 1000;

    struct Test {
        ahead: Ahead,
        crew: Crew,
        view: View,
    }

    impl Test {
        /// Somebody who follows three members, whose letters go nowhere.
        fn new() -> Test {
            let crew = Crew::local(&Arc::default(), MemberId(9));
            let view = Config::new("g", 3).view([1, 2, 3].map(MemberId).to_vec());
            Test { ahead: Ahead::default(), crew, view }
        }

        fn want(&mut self, number: u64, bytes: u64) {
            let name = ObjectName { number, bytes, own: 0 };
            let (subgroup, sender) = (SubgroupId(0), Rank(1));
            let lapped = Lapped { subgroup, sender, round: number, is_object: true };
            self.ahead.want(&lapped, &name.encode(), BYTES_MAX);
        }

        fn put(&mut self, round: u64) {
            let seen = Seen { subgroup: SubgroupId(0), sender: Rank(0), round };
            self.ahead.put(seen, &round.to_le_bytes());
        }

        fn step(&mut self) {
            self.ahead.step(&mut self.crew, &self.view);
        }

        /// Whom it has asked, and for which.
        fn asked(&mut self) -> (MemberId, Vec<u64>) {
            self.step();
            let fetch = self.ahead.fetch.as_ref().expect("it has asked somebody");
            (fetch.from, fetch.wanted.iter().map(|(wanted, _)| wanted.number).collect())
        }

        /// The member that was asked answers with those objects that it has.
        fn answer(&mut self, objects: &[(u64, &[u8])]) {
            let (from, numbers) = self.asked();
            let reply = self.ahead.asked;
            let way = || sent(Kept::of(objects), &numbers, false);
            let notices = Arc::clone(self.crew.notices());
            self.ahead.answered(from, reply - 1, way(), &notices);
            assert!(self.ahead.fetch.as_ref().is_some_and(|fetch| fetch.coming.is_none()), "an answer of long ago");
            self.ahead.answered(from, reply, way(), &notices);
            let patience = Instant::now() + PATIENCE;
            while self.ahead.fetch.is_some() {
                self.ahead.take_in();
                assert!(Instant::now() < patience);
                std::thread::yield_now();
            }
        }

        /// What it can tell: rounds, and whether their messages are there.
        fn told(&mut self) -> Vec<(u64, bool)> {
            self.step();
            let next = |next| match next {
                Next::Message(seen, _) => (seen.round, true),
                Next::Gone(lapped) => (lapped.round, false),
            };
            std::iter::from_fn(|| self.ahead.take()).map(next).collect()
        }
    }

    #[test]
    fn what_stands_behind_an_object_waits_for_it() {
        let mut test = Test::new();
        test.want(10, 3);
        test.put(11);
        test.want(12, 4);
        assert_eq!(test.told(), []);
        assert_eq!(test.asked().1, [10, 12]);
        test.put(13);
        test.want(14, 5);
        test.answer(&[(10, b"one"), (12, b"four")]);
        assert_eq!(test.told(), [(10, true), (11, true), (12, true), (13, true)]);
        assert_eq!(test.asked().1, [14]);
        test.answer(&[(14, b"fives")]);
        assert_eq!(test.told(), [(14, true)]);
        assert!(test.ahead.is_empty() && test.ahead.bytes == 0 && test.ahead.to_come == 0);
    }

    #[test]
    fn all_members_are_asked_before_an_object_is_missed() {
        let mut test = Test::new();
        test.want(1, 3);
        test.want(2, 3);
        let mut ids = vec![test.asked().0];
        test.answer(&[(2, b"two")]);
        ids.push(test.asked().0);
        assert_eq!(test.asked().1, [1]);
        // It dies in the midst of it, as far as anybody can tell.
        test.ahead.lost(ids[1]);
        ids.push(test.asked().0);
        test.answer(&[]);
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3].map(MemberId));
        assert_eq!(test.told(), [], "the one that failed is asked once more");
        test.answer(&[]);
        assert_eq!(test.told(), [(1, false), (2, true)]);
    }

    #[test]
    fn members_that_fail_each_time_are_given_up() {
        let mut test = Test::new();
        (1..=40).for_each(|number| test.want(number, 10));
        let mut asked = 0;
        while test.told().is_empty() {
            let (from, numbers) = test.asked();
            assert_eq!(numbers.len(), WANTED_MAX);
            test.ahead.lost(from);
            asked += 1;
            assert!(asked <= 6, "each twice");
        }
    }

    #[test]
    fn names_that_are_none_and_objects_that_are_too_long_are_missed() {
        let mut test = Test::new();
        test.want(1, BYTES_MAX + 1);
        let lapped = Lapped { subgroup: SubgroupId(0), sender: Rank(1), round: 2, is_object: true };
        test.ahead.want(&lapped, b"rubbish", BYTES_MAX);
        assert_eq!(test.told(), [(1, false), (2, false)]);
        assert!(test.ahead.fetch.is_none());
    }
}
