//! The addresses of processes on other hosts: reports of connections, and the cards that processes
//! send. The addresses themselves are in the [`Book`](super::super::Book).
use super::{ControlEvent, Roster, RosterOrder};
use crate::control::{Address, Card, DialError, Failure, Purpose, RackName};
use crate::ids::{MemberId, Time};
use crate::view::View;
use alloc::string::String;
use alloc::vec::Vec;

impl<W> Roster<W> {
    /// Notes that control messages to these processes of this host did not arrive.
    ///
    /// Messages to members are kept if the members are known to be on this host. A missing address
    /// proves nothing, and the member makes it again.
    pub fn unreached(&mut self, ids: impl IntoIterator<Item = MemberId>) {
        for id in ids {
            let is_member = self.members.contains(&id);
            if is_member && !self.may_be_elsewhere(id) {
                continue;
            }
            self.orders.push_back(RosterOrder::Forget(id));
            if is_member {
                self.hand_overs.forget(id);
            } else {
                self.note_lost(id);
            }
        }
    }

    /// Notes that a connection for control messages with the process at `address` was made.
    pub fn reached(&mut self, address: &Address, with: &Card) {
        if let Some(book) = &mut self.book {
            book.seeds_mut().reached(address, with.id, &with.address);
        }
        if self.takes_part && !self.members.contains(&with.id) {
            self.news.push(ControlEvent::Reached(with.clone()));
        }
    }

    /// Notes that a connection to `address` takes long, and the reason.
    pub fn delayed(&mut self, address: &Address, why: String) {
        if let Some(book) = &mut self.book {
            book.seeds_mut().not_reached(address, why);
        }
    }

    /// Notes that the connection for control messages with this process has ended.
    pub fn lost(&mut self, with: &Card) {
        if let Some(book) = &mut self.book {
            book.asks_no_more(with);
        }
        self.note_lost(with.id);
    }

    /// Reports that the connection with a process is lost. If it observed, it is forgotten until its
    /// next request: a process that follows a view asks again at the end of that view, or when it is
    /// lapped.
    fn note_lost(&mut self, id: MemberId) {
        self.forget_observer(id);
        self.news.push(ControlEvent::Lost(id));
    }

    /// Notes the addresses of a name, or the reason why they are not known.
    pub fn looked_up(&mut self, name: &Address, found: Result<&[Address], String>) {
        if let Some(book) = &mut self.book {
            book.seeds_mut().found(name, found);
        }
    }

    /// Notes that a connection to `address` was not made.
    pub fn not_dialled(&mut self, address: &Address, purpose: &Purpose, why: &DialError) {
        if matches!(purpose, Purpose::Life { .. }) {
            return self.not_asked(address, why);
        }
        let Some(book) = &mut self.book else { return };
        let (lost, streams) = book.not_dialled(address, purpose, why);
        lost.into_iter().for_each(|id| self.note_lost(id));
        let failure = match why {
            DialError::Refused(_) => Failure::Refused,
            DialError::Elsewhere { .. } | DialError::IdConflict(_) => Failure::Another,
            DialError::Myself | DialError::Full | DialError::Other(_) => Failure::Silent,
        };
        // If the view is a later one, this process misses the member there and dials it again.
        let begun = streams.into_iter().filter(|(view, _)| *view <= self.begun);
        begun.for_each(|(view, id)| self.streams.fail(view, id, failure));
    }

    /// Notes the addresses of processes that restart the group with this one, as another one of them has
    /// heard them.
    pub fn hear_of_places(&mut self, cards: Vec<Card>) {
        cards.into_iter().for_each(|card| self.learn(card));
    }

    /// Notes the address of a process.
    pub(super) fn learn(&mut self, card: Card) {
        let Some(book) = &mut self.book else { return };
        let (id, was_far) = (card.id, book.is_far(card.id));
        if book.address_of(id).is_some_and(|known| *known != card.address) {
            self.founders.remove(&id);
        }
        book.learn(card);
        if !was_far && book.is_far(id) {
            // Pending control messages to it were written for this host.
            self.orders.push_back(RosterOrder::Forget(id));
        }
    }

    /// Notes the address of the process that has made a stream. Returns false, and notes nothing,
    /// if it is a duplicate of a member's id.
    ///
    /// A newcomer that brings its memory is the member, wherever an earlier process with its id
    /// was.
    pub fn recognises(&mut self, with: &Card, purpose: &Purpose, now: Time) -> bool {
        let comes = matches!(purpose, Purpose::Part { view, .. } if self.is_new(*view, with.id));
        let is_member = self.members.contains(&with.id) && !comes;
        let lives_here = self.lives_here(with.id);
        let Some(book) = &self.book else { return false };
        if is_member && book.is_id_conflict(with, true, lives_here, now) {
            return false;
        }
        self.learn(with.clone());
        true
    }

    /// True if a process of this host is known by this id.
    fn lives_here(&self, id: MemberId) -> bool {
        id == self.me.id || self.processes.is_near(id)
    }

    /// Returns the hosts of the members of a view, in its order, for a [`RestartRecord`]; 0: unknown.
    ///
    /// [`RestartRecord`]: crate::control::RestartRecord
    pub fn hosts_of(&self, view: &View) -> Vec<u128> {
        let host = |id: &MemberId| match &self.book {
            None => self.host(),
            Some(book) if book.is_far(*id) => book.host(*id),
            Some(book) if self.lives_here(*id) => book.card().host,
            Some(_) => 0,
        };
        view.members.iter().map(host).collect()
    }

    /// Notes the address of a process that reports this card as its own, or that `asks` for
    /// admission.
    ///
    /// If the process has a duplicate id, nothing is noted, and its address is returned.
    pub(super) fn hear_from(&mut self, card: Card, asks: bool, now: Time) -> Option<Address> {
        let is_member = self.members.contains(&card.id);
        let lives_here = self.lives_here(card.id);
        let book = self.book.as_mut()?;
        if book.is_id_conflict(&card, is_member, lives_here, now) {
            return Some(card.address);
        }
        if asks && !is_member {
            book.asked(card.clone(), now);
        }
        self.learn(card);
        None
    }

    /// Notes the rack of a process of this host, and the address at which others reach it.
    ///
    /// The process [has handed over](Self::handed_over) its memory. An earlier process may have had
    /// its id at another address.
    pub fn learn_near(&mut self, id: MemberId, address: Option<Address>, rack: Option<RackName>) {
        if let Some(address) = address {
            self.learn(Card { id, host: self.host(), address, rack: rack.clone() });
        }
        if let Some(book) = &mut self.book {
            book.learn_rack(id, rack);
        }
    }

    /// Orders look-ups of the names that are to be looked up.
    pub(super) fn look_up(&mut self, now: Time) {
        if let Some(book) = &mut self.book {
            self.orders.extend(book.seeds_mut().begin_look_ups(now).into_iter().map(RosterOrder::LookUp));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::me;
    use super::*;
    use crate::control::{Book, ControlMessage, Seeds};
    use crate::ids::ViewId;
    use crate::view::View;
    use alloc::vec::Vec;

    /// The next process with its id may be anywhere.
    #[test]
    fn where_a_member_was_is_forgotten_when_it_has_left() {
        let card = |id: u64| {
            let address = alloc::format!("h{id}:1").parse().unwrap();
            Card { id: MemberId(id), host: id.into(), address, rack: None }
        };
        let book = Book::new(card(1), Seeds::new(Vec::new(), None, card(1).address), true);
        let mut roster: Roster<()> = Roster::new(me(1), 1, Some(book));
        roster.set_incarnation(7);
        for id in [2, 3] {
            roster.learn(card(id));
        }
        for (view, members) in [(1, [1, 2].as_slice()), (2, &[1])] {
            let members = members.iter().copied().map(MemberId).collect();
            let view = View { id: ViewId(view), members, nonvoters: Vec::new(), subgroups: Default::default() };
            roster.expect(&view);
            roster.begin(&view, Time(0));
        }
        // The other process was no member, and may become one.
        assert_eq!([2, 3].map(|id| roster.is_far(MemberId(id))), [false, true]);
        let mut orders = core::iter::from_fn(|| roster.next_order());
        assert!(orders.any(|order| order == RosterOrder::UnwatchFar(MemberId(2))));
    }

    /// Other processes dial it at the address that is reported to them. One of them may know it
    /// only by its memory.
    #[test]
    fn a_process_that_hands_over_its_memory_says_where_it_is_reached() {
        let card = |host, port: u32| Card {
            id: MemberId(3),
            host,
            address: alloc::format!("near:{port}").parse().unwrap(),
            rack: None,
        };
        let mine = Card { id: MemberId(9), ..card(1, 1) };
        let book = Book::new(mine.clone(), Seeds::new(Vec::new(), None, mine.address.clone()), true);
        let mut roster: Roster<()> = Roster::new(me(9), 1, Some(book));
        for before in [card(1, 2), card(2, 2)] {
            roster.learn(before);
            roster.learn_near(MemberId(3), Some(card(1, 4).address), None);
            assert_eq!(roster.book().unwrap().cards(), [card(1, 4), mine.clone()]);
        }
    }

    /// A member at a seed's address may have been left out of the view, and may know no member of
    /// it.
    #[test]
    fn a_process_that_is_reached_and_is_no_member_is_told_of_to_the_member() {
        let card = |id: u64| Card {
            id: MemberId(id),
            host: id.into(),
            address: alloc::format!("h{id}:1").parse().unwrap(),
            rack: None,
        };
        let book = Book::new(card(1), Seeds::new(Vec::new(), None, card(1).address), true);
        let mut roster: Roster<()> = Roster::new(me(1), 1, Some(book));
        roster.reached(&card(3).address, &card(3));
        assert!(!roster.has_news(), "it is no member itself");
        let members = [1, 2].map(MemberId).to_vec();
        let view = View { id: ViewId(4), members, nonvoters: Vec::new(), subgroups: Default::default() };
        roster.begin(&view, Time(0));
        roster.reached(&card(2).address, &card(2));
        assert!(!roster.has_news());
        roster.reached(&card(3).address, &card(3));
        let news = roster.take_news();
        assert!(matches!(&news[..], [ControlEvent::Reached(found)] if *found == card(3)), "{news:?}");
        while roster.next_order().is_some() {}
        roster.tell_view_at(&view, &card(3));
        let order = roster.next_order();
        assert!(
            matches!(order, Some(RosterOrder::Far { address, message: ControlMessage::View { .. }, .. }) if address == card(3).address)
        );
    }
}
