//! The queries of a member to other members that have no end yet.
//!
//! A query is a control message to one member, and so is its answer: they have no place in the order of
//! messages. Control messages may be lost with a connection, so each query has a deadline, which its
//! driver keeps: it then [forgets](Queries::forget) the query.
//!
//! - INV-QUERY: a query ends once. An answer counts only if it comes from the member that was asked,
//!   with the number of a query that is open. A query to a member ends with the first view without it,
//!   and none is open at a member that has ended.
use super::NoAnswer;
use crate::ids::MemberId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// The queries of a process that may be open at once.
pub const QUERIES_MAX: usize = 1024;

/// A query of another process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryOrder {
    /// The process.
    pub from: MemberId,
    /// The number to repeat in the answer.
    pub reply: u64,
    /// The query, which has a meaning to the application only.
    pub bytes: Vec<u8>,
}

/// The answer of a member, or why there is none.
pub type QueryAnswer = Result<Vec<u8>, NoAnswer>;

/// Why a query is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAsked {
    /// The process is no member of the view.
    NoMember,
    /// Too many are open.
    TooMany,
    /// This process has ended.
    Ended,
}

/// The open queries. `W` is what the driver keeps for the thread that waits.
#[derive(Debug)]
pub struct Queries<W> {
    next: u64,
    members: BTreeSet<MemberId>,
    open: BTreeMap<u64, (MemberId, W)>,
    has_ended: bool,
}

impl<W> Queries<W> {
    /// `members` are those of the view. `first` is the number of the first query. It differs from those of earlier processes with this id,
    /// so that no answer to one of them counts.
    pub fn new(first: u64, members: &[MemberId]) -> Queries<W> {
        Queries { next: first, members: members.iter().copied().collect(), open: BTreeMap::new(), has_ended: false }
    }

    /// Opens a query to a member. Returns its number.
    ///
    /// # Errors
    /// [`NotAsked`].
    pub fn ask(&mut self, to: MemberId, waiting: W) -> Result<u64, NotAsked> {
        if self.has_ended {
            return Err(NotAsked::Ended);
        }
        if !self.members.contains(&to) {
            return Err(NotAsked::NoMember);
        }
        if self.open.len() >= QUERIES_MAX {
            return Err(NotAsked::TooMany);
        }
        let reply = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(reply, (to, waiting));
        Ok(reply)
    }

    /// Ends the query that has an answer. `None`: there is no such query.
    pub fn answered(&mut self, from: MemberId, reply: u64) -> Option<W> {
        let is_of = self.open.get(&reply).is_some_and(|(to, _)| *to == from);
        if is_of { self.open.remove(&reply).map(|(_, waiting)| waiting) } else { None }
    }

    /// Ends a query whose deadline has passed, or that has no asker any more.
    pub fn forget(&mut self, reply: u64) {
        self.open.remove(&reply);
    }

    /// Notes that a view with these members has begun. Returns the queries that end with it.
    pub fn begin(&mut self, members: &[MemberId]) -> Vec<(MemberId, W)> {
        self.members = members.iter().copied().collect();
        let Queries { open, members, .. } = self;
        open.extract_if(.., |_, (to, _)| !members.contains(to)).map(|(_, query)| query).collect()
    }

    /// Ends all queries, now and later.
    pub fn end(&mut self) -> Vec<(MemberId, W)> {
        self.has_ended = true;
        core::mem::take(&mut self.open).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(members: impl IntoIterator<Item = u64>) -> Vec<MemberId> {
        members.into_iter().map(MemberId).collect()
    }

    #[test]
    fn a_query_ends_once_by_the_member_that_was_asked() {
        let mut queries = Queries::new(7, &ids([1, 2, 3]));
        let [first, second] = [queries.ask(MemberId(2), 'a'), queries.ask(MemberId(3), 'b')].map(Result::unwrap);
        assert_eq!((first, second), (7, 8));
        assert_eq!(queries.answered(MemberId(3), first), None, "another member");
        assert_eq!(queries.answered(MemberId(2), 6), None, "an earlier process");
        assert_eq!(queries.answered(MemberId(2), first), Some('a'));
        assert_eq!(queries.answered(MemberId(2), first), None, "twice");
        queries.forget(second);
        assert_eq!(queries.answered(MemberId(3), second), None, "too late");
    }

    #[test]
    fn a_query_ends_with_the_view_without_its_member() {
        let mut queries = Queries::new(0, &ids([1, 2, 3]));
        assert_eq!(queries.ask(MemberId(4), 'x'), Err(NotAsked::NoMember));
        queries.ask(MemberId(2), 'a').unwrap();
        let stays = queries.ask(MemberId(3), 'b').unwrap();
        assert_eq!(queries.begin(&ids([1, 3, 4])), [(MemberId(2), 'a')]);
        assert_eq!(queries.ask(MemberId(2), 'x'), Err(NotAsked::NoMember));
        queries.ask(MemberId(4), 'c').unwrap();
        assert_eq!(queries.answered(MemberId(3), stays), Some('b'));
        assert_eq!(queries.end(), [(MemberId(4), 'c')]);
        assert_eq!(queries.ask(MemberId(3), 'x'), Err(NotAsked::Ended));
    }

    #[test]
    fn open_queries_are_bounded() {
        let mut queries = Queries::new(u64::MAX - 5, &ids([1, 2]));
        let asked: Vec<u64> = (0..QUERIES_MAX).map(|i| queries.ask(MemberId(2), i).unwrap()).collect();
        assert_eq!(queries.ask(MemberId(2), 0), Err(NotAsked::TooMany));
        queries.forget(asked[9]);
        assert!(queries.ask(MemberId(2), 0).is_ok());
    }

    /// A generator of the tests.
    struct Chance(u64);

    impl Chance {
        fn next(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % below
        }
    }

    /// Lets a member ask others over a network that loses, repeats and delays answers, while members come
    /// and go. Returns the first break of INV-QUERY. `forgets_views` is a mistake of the driver.
    fn play(seed: u64, forgets_views: bool) -> Result<u64, &'static str> {
        let mut chance = Chance(seed);
        let mut members = BTreeSet::from([1, 2, 3, 4]);
        let mut queries = Queries::new(chance.next(1 << 40), &ids(members.clone()));
        // By number: whom a query asks, and whether it is open.
        let mut asked: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        let (mut network, mut ended): (Vec<(u64, u64)>, u64) = Default::default();
        for _ in 0..200 {
            match chance.next(8) {
                0..3 => {
                    let to = 1 + chance.next(6);
                    match queries.ask(MemberId(to), to) {
                        Ok(reply) => {
                            if !members.contains(&to) {
                                return Err("a process that is no member was asked");
                            }
                            asked.insert(reply, (to, true));
                            let copies = chance.next(3);
                            (0..copies).for_each(|_| network.push((to, reply)));
                            if chance.next(4) == 0 {
                                network.push((1 + chance.next(6), reply));
                            }
                        }
                        Err(_) if members.contains(&to) => return Err("a member was not asked"),
                        Err(_) => {}
                    }
                }
                3..6 if !network.is_empty() => {
                    let (from, reply) = network.remove(chance.next(network.len() as u64) as usize);
                    let (to, is_open) = asked[&reply];
                    let has_ended = queries.answered(MemberId(from), reply).is_some();
                    if has_ended != (is_open && from == to) {
                        return Err("an answer counts if it must not, or does not count");
                    }
                    if has_ended {
                        asked.insert(reply, (to, false));
                        ended += 1;
                    }
                }
                6 => {
                    let who = 2 + chance.next(5);
                    if !members.remove(&who) {
                        members.insert(who);
                    }
                    if !forgets_views {
                        for (to, waiting) in queries.begin(&ids(members.clone())) {
                            if to.0 != waiting || members.contains(&waiting) {
                                return Err("a query ends though its member stays");
                            }
                            ended += 1;
                        }
                    }
                    let is_gone = |to: &u64| !members.contains(to);
                    asked.values_mut().filter(|(to, _)| is_gone(to)).for_each(|(_, is_open)| *is_open = false);
                }
                _ => {
                    if let Some((reply, (to, _))) = asked.iter().next().map(|(reply, query)| (*reply, *query)) {
                        queries.forget(reply);
                        asked.insert(reply, (to, false));
                    }
                }
            }
            let open = asked.values().filter(|(_, is_open)| *is_open).count();
            if open != queries.open.len() {
                return Err("a query is open without its member");
            }
        }
        Ok(ended)
    }

    #[test]
    fn no_schedule_breaks_the_invariant_and_a_forgotten_view_does() {
        let ended: u64 =
            (0..2000).map(|seed| play(seed, false).unwrap_or_else(|why| panic!("seed {seed}: {why}"))).sum();
        assert!(ended > 10_000, "{ended} queries have ended");
        let found = (0..2000).filter(|seed| play(*seed, true).is_err()).count();
        assert!(found > 1000, "the mistake was found {found} times");
    }
}
