//! The signs of life of members on other hosts: the reports that raise a [doubt](super::doubts),
//! and the connections and answers that refute it.
use super::{Roster, RosterOrder, TARGET};
use crate::control::{Address, Card, DialError};
use crate::ids::{MemberId, Time, ViewId};
use alloc::vec::Vec;
use core::time::Duration;
use tracing::debug;

impl<W> Roster<W> {
    /// Returns the members on other hosts whose processes have ended, or are about to.
    ///
    /// This is a reason to suspect them, not a proof. Messages that they have sent may still
    /// arrive.
    pub fn ended(&self) -> Vec<MemberId> {
        self.doubts.ended()
    }

    /// Notes that the process of `id`, which was watched since `view`, seems to have ended.
    ///
    /// Its connections report that it has ended, or that the way to it is broken. It is asked for a
    /// sign of life, and counts as ended if it gives none `within` this time.
    pub fn seems_ended(&mut self, id: MemberId, incarnation: u128, view: ViewId, within: Duration, now: Time) {
        // Another process may have its id now.
        let is_it = self.doubts.is_member_since(id, view);
        if incarnation != self.incarnation || !is_it || self.doubts.has_ended(id) {
            return;
        }
        if !self.doubt(id, view, Some(within), now) {
            self.doubts.end(id, view);
        }
    }

    /// Notes that the way of `view` to `id` is broken. That process makes the way again if it
    /// lives.
    ///
    /// It is asked for a sign of life, because its watch may not have begun yet. It counts as ended
    /// if its host refuses the connection.
    pub(in crate::control) fn is_cut_off(&mut self, id: MemberId, view: ViewId, now: Time) {
        if self.is_far(id) && !self.doubts.has_ended(id) {
            self.doubt(id, view, None, now);
        }
    }

    /// Asks a member for a sign of life, if it was not asked yet. Returns false if its address is
    /// unknown.
    fn doubt(&mut self, id: MemberId, view: ViewId, within: Option<Duration>, now: Time) -> bool {
        let until = within.map(|within| now + within);
        if self.doubts.limit(id, until, now) {
            return true;
        }
        let Some(address) = self.book.as_ref().and_then(|book| book.far(id)).cloned() else { return false };
        self.orders.push_back(RosterOrder::CheckFar { address: address.clone(), id, view: self.begun });
        debug!(target: TARGET, me = self.me.id.0, member = id.0, ?within, "sign of life asked for");
        self.doubts.ask((id, address), view, until, now);
        true
    }

    /// Notes that a process on another host has identified itself on a new connection, so it lives.
    /// Another process may have the id and address of a member by now.
    pub fn answers(&mut self, with: &Card, process: u128) {
        let streamed = self.streams.process(self.begun, with.id);
        let known = streamed.or(self.processes.far_instance(with.id));
        let address = self.book.as_ref().and_then(|book| book.address_of(with.id));
        if known.map_or(address == Some(&with.address), |known| known == process) {
            self.has_come_back(with.id);
        }
    }

    /// Notes that members at `address` could not be asked for a sign of life.
    pub(super) fn not_asked(&mut self, address: &Address, why: &DialError) {
        for id in self.doubts.not_asked(address, why) {
            self.orders.push_back(RosterOrder::CheckFar { address: address.clone(), id, view: self.begun });
        }
    }

    /// Counts members as ended that were asked for a sign of life and have given none in time.
    ///
    /// An answer takes longer on a busy machine. So a member gets at least a quarter of `patience`,
    /// or all of it if its stream `is_down` too. The end of a process is known sooner if its host
    /// refuses a connection.
    pub(in crate::control) fn settle_doubts(
        &mut self,
        is_down: impl Fn(MemberId) -> bool,
        patience: Duration,
        now: Time,
    ) {
        self.doubts.settle(self.me.id, is_down, patience, now);
    }

    /// True if a member was asked for a sign of life, and counts as ended if it gives none in time.
    pub(in crate::control) fn doubts(&self) -> bool {
        self.doubts.ends().next().is_some()
    }

    /// Returns the time until a member that was asked for a sign of life counts as ended.
    pub(in crate::control) fn patience(&self, now: Time) -> Option<Duration> {
        self.doubts.ends().map(|until| until.since(now)).min()
    }

    /// Notes that the process of `id` has made a stream, or was heard, after its connections had reported its end.
    pub fn has_come_back(&mut self, id: MemberId) {
        if self.doubts.refute(id) {
            debug!(target: TARGET, me = self.me.id.0, member = id.0, "sign of life");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::me;
    use super::*;
    use crate::control::Instance;
    use crate::control::{Book, Purpose, Seeds};
    use crate::view::View;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    /// Returns whether a member on another host counts as ended at these times. The end of its
    /// watch is reported at 0, and it has 5 ms to answer.
    fn doubted(after: impl Fn(&mut Roster<()>, Card), is_down: bool, times: [u64; 3]) -> [bool; 3] {
        let ends = |roster: &mut Roster<()>| {
            roster.seems_ended(MemberId(2), 7, ViewId(9), Duration::from_millis(5), Time(0));
        };
        doubted_when(ends, after, is_down, times)
    }

    /// Like [`doubted`], with `when` as the cause of the doubt.
    fn doubted_when(
        when: impl Fn(&mut Roster<()>),
        after: impl Fn(&mut Roster<()>, Card),
        is_down: bool,
        times: [u64; 3],
    ) -> [bool; 3] {
        let card = |id: u64| {
            let address = alloc::format!("h{id}:1").parse().unwrap();
            Card { id: MemberId(id), host: id.into(), address, rack: None }
        };
        let seed: Address = "seed:1".parse().unwrap();
        let book = Book::new(card(1), Seeds::new(alloc::vec![seed.clone()], None, card(1).address), true);
        let mut roster: Roster<()> = Roster::new(me(1), 1, Some(book));
        roster.set_incarnation(7);
        roster.learn(card(2));
        // The member reports another address than the one at which it is reached.
        roster.reached(&seed, &card(2));
        assert_eq!(roster.book().unwrap().far(MemberId(2)), Some(&seed));
        roster.processes.set_instance(MemberId(2), Instance::Far(3));
        let members: Vec<MemberId> = [1, 2].map(MemberId).to_vec();
        roster.begin(&View { id: ViewId(9), members, nonvoters: Vec::new(), subgroups: Default::default() }, Time(0));
        when(&mut roster);
        let asks =
            core::iter::from_fn(|| roster.next_order()).filter(|order| matches!(order, RosterOrder::CheckFar { .. }));
        assert_eq!(asks.count(), 1);
        after(&mut roster, card(2));
        times.map(|ms| {
            roster.settle_doubts(|_| is_down, Duration::from_millis(100), Time(ms * 1_000_000));
            roster.ended() == [MemberId(2)]
        })
    }

    #[test]
    fn a_member_whose_watch_has_ended_counts_as_ended_if_it_gives_no_sign_of_life() {
        assert_eq!(doubted(|_, _| {}, false, [5, 24, 25]), [false, false, true]);
        assert_eq!(doubted(|_, _| {}, true, [5, 99, 100]), [false, false, true], "its stream is broken, too");
        assert_eq!(doubted(|roster, card| roster.answers(&card, 3), false, [0, 5, 100]), [false; 3]);
        assert_eq!(doubted(|roster, card| roster.has_come_back(card.id), true, [0, 5, 100]), [false; 3]);
        let fails = |roster: &mut Roster<()>, why: DialError| {
            let (purpose, seed) = (Purpose::Life { incarnation: 7, view: ViewId(9) }, "seed:1".parse().unwrap());
            roster.not_dialled(&seed, &purpose, &why);
            core::iter::from_fn(|| roster.next_order())
                .filter(|order| matches!(order, RosterOrder::CheckFar { .. }))
                .count()
        };
        let refused =
            |roster: &mut Roster<()>, _| assert_eq!(fails(roster, DialError::Refused("refused".to_string())), 0);
        assert_eq!(doubted(refused, true, [0, 5, 100]), [true; 3]);
        let fault_here = |roster: &mut Roster<()>, _| {
            let why = || DialError::Other("too many open files".to_string());
            assert_eq!([(); 4].map(|()| fails(roster, why())), [1, 1, 0, 0], "it is asked again, and not for ever");
        };
        assert_eq!(doubted(fault_here, true, [0, 5, 100]), [false, false, true]);
        let another = |roster: &mut Roster<()>, card: Card| roster.answers(&card, 4);
        assert_eq!(doubted(another, false, [5, 24, 25]), [false, false, true], "its successor answers");
        let cut_off = |roster: &mut Roster<()>| roster.is_cut_off(MemberId(2), ViewId(9), Time(0));
        let long = [5, 100, 100_000];
        assert_eq!(doubted_when(cut_off, |_, _| {}, true, long), [false; 3], "a way that breaks is no end");
        assert_eq!(doubted_when(cut_off, refused, true, long), [true; 3]);
        assert_eq!(doubted_when(cut_off, fault_here, true, long), [false; 3]);
        let ends_too = |roster: &mut Roster<()>| {
            cut_off(roster);
            roster.seems_ended(MemberId(2), 7, ViewId(9), Duration::from_millis(5), Time(0));
        };
        assert_eq!(doubted_when(ends_too, |_, _| {}, true, [5, 99, 100]), [false, false, true]);
    }
}
