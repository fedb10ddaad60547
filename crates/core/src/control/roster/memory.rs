//! The memory of members: what members of this host hand over to this process, and what it hands
//! over to them.
use super::{Arrival, Me, Roster, RosterOrder};
use crate::control::{ControlMessage, Instance, PortAddress};
use crate::ids::{MemberId, ViewId};
use alloc::vec::Vec;

impl<W> Roster<W> {
    /// Takes the memory that a process of this host has handed over for a view. Returns whether it
    /// was taken.
    ///
    /// If it was, the driver watches the process by the descriptor that came with it, or reports
    /// that it cannot ([`not_taken`](Self::not_taken)).
    pub fn handed_over(&mut self, incarnation: u128, view: ViewId, from: Me, way: W) -> bool {
        if incarnation == self.incarnation && view == self.begun && self.members.contains(&from.id) {
            if self.processes.instance(from.id).is_some_and(|instance| instance != Instance::Near(from.pid)) {
                return false;
            }
            self.streams.arrive(Arrival { view, from: from.id, way });
        } else if !self.keep_part(incarnation, view, from.id, way) {
            return false;
        }
        self.processes.note_handed_over(from);
        self.is_here(from.id);
        true
    }

    /// Keeps the memory of `from`, a member of this host, for `view`. Returns whether it is here.
    ///
    /// This process has found the memory without a control message. If the memory has arrived by
    /// control message already, nothing changes.
    pub fn found(&mut self, view: ViewId, from: MemberId, way: W) -> bool {
        self.has_parts(view, from) || self.keep_part(self.incarnation, view, from, way)
    }

    /// Notes that a member turns out to be on this host.
    pub(super) fn is_here(&mut self, id: MemberId) {
        if let Some(view) = self.hand_overs.resume(id) {
            self.hand_over(view, [id]);
        }
    }

    /// Drops what a process has handed over, because that process cannot be watched.
    pub fn not_taken(&mut self, view: ViewId, from: MemberId) {
        self.processes.note_unwatched(from);
        self.parts.drop_of(view, from);
        self.streams.drop_of(view, from);
    }

    /// Keeps what `from` has handed over for a later view, if the view may be one of this group.
    pub(super) fn keep_part(&mut self, incarnation: u128, view: ViewId, from: MemberId, part: W) -> bool {
        self.may_be_mine(incarnation) && self.parts.keep((incarnation, view), from, part, self.begun)
    }

    /// Keeps the libfabric address of `from` in a current or later view. `from` reports it again
    /// until it is called, so a report that comes too early may be dropped.
    pub(super) fn keep_port(&mut self, (incarnation, view): (u128, ViewId), from: MemberId, address: PortAddress) {
        if self.may_be_mine(incarnation) {
            self.parts.keep_port(view, from, address, self.begun);
        }
    }

    /// Returns what `member` has handed over for `view`.
    pub fn take_part(&mut self, view: ViewId, member: MemberId) -> Option<W> {
        self.parts.take(view, member)
    }

    /// True if `member` has handed over its memory, or a stream, for `view`.
    pub fn has_parts(&self, view: ViewId, member: MemberId) -> bool {
        self.parts.has(view, member)
    }

    /// Returns the libfabric address of `member` for `view`, if the member has reported it.
    pub fn port_of(&self, view: ViewId, member: MemberId) -> Option<&PortAddress> {
        self.parts.port(view, member)
    }

    /// Sends this member's libfabric address for `view` to `to`.
    pub fn tell_port(&mut self, view: ViewId, to: MemberId, address: PortAddress) {
        self.post(to, ControlMessage::Port { incarnation: self.incarnation, view, from: self.me.id, address });
    }

    /// Forgets what was handed over for views before this one.
    pub fn pass_over_until(&mut self, view: ViewId) {
        self.parts.pass_over_until(view);
    }

    /// Hands this member's memory for `view` to those of `others` that are on this host.
    pub fn hand_over(&mut self, view: ViewId, others: impl IntoIterator<Item = MemberId>) {
        self.hand_overs.note(view);
        // The same rule holds for control messages.
        let is_here = |id: &MemberId| *id != self.me.id && !self.is_far(*id) && !self.is_dead(*id);
        let to: Vec<MemberId> = others.into_iter().filter(is_here).collect();
        if !to.is_empty() {
            self.orders.push_back(RosterOrder::HandOver { view, to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::VIEWS_AHEAD_MAX;
    use super::super::tests::me;
    use super::*;
    use crate::control::{Address, Book, Card, Seeds};
    use crate::ids::Time;
    use crate::view::View;

    #[test]
    fn parts_of_a_view_that_has_begun_come_too_late_and_stop_no_others() {
        let mut roster = Roster::new(me(1), 1, None);
        roster.set_incarnation(7);
        let members: Vec<MemberId> = [1, 2, 3].map(MemberId).to_vec();
        let view = View { id: ViewId(9), members, nonvoters: Vec::new(), subgroups: Default::default() };
        roster.begin(&view, Time(0));
        assert!(!roster.handed_over(7, ViewId(1), me(2), ()));
        // The newest way of a member in the view that has begun may replace a broken one.
        assert!(roster.handed_over(7, ViewId(9), me(2), ()) && !roster.handed_over(7, ViewId(9), me(4), ()));
        assert_eq!(roster.take_arrivals().len(), 1);
        // The number of views ahead for which parts are kept counts from the oldest kept part.
        let newest = 9 + VIEWS_AHEAD_MAX;
        for next in [10, newest] {
            assert!(roster.handed_over(7, ViewId(next), me(2), ()), "of view {next}");
            assert!(roster.has_parts(ViewId(next), MemberId(2)));
        }
        assert!(!roster.handed_over(7, ViewId(newest + 2), me(2), ()), "too far ahead");
        assert!(!roster.handed_over(8, ViewId(10), me(3), ()), "of another group");
        // The waiting process has received only what a late member handed over for a view that is
        // long over.
        let mut waiting = Roster::new(me(9), 1, None);
        for view in [2, newest + 2] {
            assert!(waiting.handed_over(7, ViewId(view), me(2), ()), "of view {view}");
        }
    }

    /// Track record: the address of a member of this host had vanished for a moment, and nothing
    /// was known of the member. It never got this member's memory for their first view, and one of
    /// the two was evicted.
    #[test]
    fn a_member_that_turns_out_to_be_here_gets_the_memory_that_was_forgotten() {
        let address: Address = "a:1".parse().unwrap();
        let card = Card { id: MemberId(1), host: 1, address: address.clone(), rack: None };
        let mut roster = Roster::new(me(1), 1, Some(Book::new(card, Seeds::new(Vec::new(), None, address), true)));
        roster.set_incarnation(7);
        let members: Vec<MemberId> = [1, 2].map(MemberId).to_vec();
        let view = View { id: ViewId(1), members, nonvoters: Vec::new(), subgroups: Default::default() };
        roster.expect(&view);
        roster.hand_over(view.id, [MemberId(2)]);
        roster.unreached([MemberId(2)]);
        roster.begin(&view, Time(0));
        while roster.next_order().is_some() {}
        assert!(roster.handed_over(7, view.id, me(2), ()));
        assert_eq!(roster.next_order(), Some(RosterOrder::HandOver { view: view.id, to: [MemberId(2)].to_vec() }));
        assert!(roster.handed_over(7, view.id, me(2), ()) && roster.next_order().is_none());
    }

    /// A connection that is made late goes to the address that the peer reports, in the current
    /// view.
    #[test]
    fn a_port_is_kept_for_the_view_that_runs_and_those_to_come() {
        let mut roster: Roster<()> = Roster::new(me(9), 1, None);
        roster.set_incarnation(7);
        roster.begun = ViewId(5);
        let port = |byte| PortAddress::new(&[byte; 5]).unwrap();
        let mut hears = |incarnation, view, byte| {
            let (view, from, address) = (ViewId(view), MemberId(2), port(byte));
            roster.hear(ControlMessage::Port { incarnation, view, from, address }, None, &[], Time(0));
            roster.port_of(view, from) == Some(&port(byte))
        };
        assert!(!hears(8, 5, 1), "it is of another group");
        assert!(!hears(7, 4, 1), "that view is over");
        assert!(hears(7, 5, 1) && hears(7, 5, 2) && hears(7, 6, 3), "the newest counts");
        assert!(!hears(7, 6 + VIEWS_AHEAD_MAX, 1), "that view is far away");
        let next = View {
            id: ViewId(6),
            members: alloc::vec![MemberId(9)],
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        roster.begin(&next, Time(0));
        assert_eq!(roster.port_of(ViewId(5), MemberId(2)), None);
        assert_eq!(roster.port_of(ViewId(6), MemberId(2)), Some(&port(3)));
    }
}
