//! The announcements of decided views: the announcement to a joiner or observer, and what it
//! teaches the receiver.
use super::{ControlEvent, Roster, RosterOrder};
use crate::control::{Book, Card, ControlMessage, HostProcess, Request, ViewAnnouncement};
use crate::ids::{MemberId, ViewId};
use crate::mutation::mutation;
use crate::view::View;
use alloc::sync::Arc;
use alloc::vec::Vec;

impl<W> Roster<W> {
    pub(super) fn hear_of_view(&mut self, incarnation: u128, from: MemberId, told: ViewAnnouncement) {
        let ViewAnnouncement { view, decision, newcomers, observers, processes, cards } = told;
        let is_mine = self.may_be_mine(incarnation);
        let is_newest = self.newcomers.newest().is_none_or(|newest| newest <= view.id);
        let is_ahead = is_mine && is_newest && view.id > self.begun;
        // An observer may have missed the views in which another process got the id of a member
        // that it knows.
        let follows = self.begun.0 > 0 && !self.takes_part;
        // The sender may not have begun the view yet. Its other cards may be of processes that have
        // gone, whose ids other processes get later.
        let is_old = view.id < self.begun;
        let observes = |id| observers.iter().any(|(observer, _)| *observer == id);
        let is_current = |id: MemberId| !is_old && (view.members.contains(&id) || observes(id));
        for card in cards.into_iter().filter(|card| is_current(card.id)) {
            // Cards from members are more reliable than the card of a process that only asks with a
            // member's id.
            let is_known = !follows && self.members.contains(&card.id);
            let is_sure = is_ahead && view.members.contains(&card.id) && !is_known;
            if is_sure || self.book.as_ref().is_some_and(|book| book.is_unknown(card.id)) {
                self.learn(card);
            }
        }
        if is_mine {
            if newcomers.iter().any(|process| process.id == self.me.id) {
                self.hear_of_observers(&view, observers);
            }
            self.note_joined(view.id, &newcomers);
            // Pids of another host mean nothing here.
            let me = self.me.id;
            // Without a network this process receives messages only from processes of its host.
            let teller = processes.iter().find(|process| process.id == from).map(|process| process.host);
            let here = if self.book.is_some() { self.host() } else { teller.unwrap_or(0) };
            // An earlier process with the id of this process was a member before it.
            let is_here =
                |process: &HostProcess| process.host == here && process.id != me && view.members.contains(&process.id);
            for HostProcess { id, pid, birth, .. } in processes.into_iter().filter(is_here) {
                if self.newcomers.has_behind(view.id, id) {
                    continue;
                }
                let is_another = self.processes.near(id).is_some_and(|known| known != (pid, birth));
                // Or the known process is another one that waited with that id while this process
                // waited too.
                let waits = self.begun.0 == 0 && !self.has_parts(view.id, id);
                if is_another && is_ahead && (follows || waits) {
                    self.processes.replace(id, (pid, birth), &mut self.orders);
                }
                self.processes.note_near(id, (pid, birth));
                self.is_here(id);
                self.processes.watch(id, &mut self.orders);
            }
        }
        // An earlier process with this one's id may have taken part in the view already.
        let is_anothers = view.members.contains(&self.me.id) && !self.members.contains(&self.me.id);
        if !is_anothers || newcomers.contains(&self.as_process()) || mutation!(NoncesIgnored) {
            self.news.push(ControlEvent::View { incarnation, view, decision });
        }
    }

    /// Notes the decision that led to `view`, for members of the previous view that do not receive
    /// it otherwise.
    pub fn note_decision(&mut self, view: ViewId, words: Vec<u64>) {
        self.decision = Some((view, words)).filter(|_| !mutation!(DecisionsUntold));
    }

    /// Reports a decided view to these processes.
    pub fn tell_view(&mut self, view: &View, to: impl IntoIterator<Item = MemberId>) {
        let mut to = to.into_iter().peekable();
        if to.peek().is_none() {
            return;
        }
        let (message, attachment) = self.message_of(view);
        for to in to {
            self.write(to, message.clone(), Arc::clone(&attachment));
        }
    }

    /// Reports a decided view to the process at the address of this card, whatever is known of its
    /// id.
    pub fn tell_view_at(&mut self, view: &View, whom: &Card) {
        let (message, attachment) = self.message_of(view);
        self.orders.push_back(RosterOrder::Far {
            address: whom.address.clone(),
            whom: Some(whom.id),
            message,
            attachment,
        });
    }

    /// Asks the process at the address of this card for its view, whatever is known of its id.
    pub fn ask_view_at(&mut self, whom: &Card) {
        let message = ControlMessage::Request { from: self.me.id, reply: 0, what: Request::View };
        let (address, whom) = (whom.address.clone(), Some(whom.id));
        self.orders.push_back(RosterOrder::Far { address, whom, message, attachment: Arc::default() });
    }

    fn message_of(&self, view: &View) -> (ControlMessage, Arc<[u8]>) {
        let newcomers = self.newcomers.of(view.id).collect();
        let cards = self.book.as_ref().map(Book::cards).unwrap_or_default();
        let observers = self.observers.ids().iter().filter(|id| !view.members.contains(id));
        let observers = observers.map(|id| (*id, self.pid(*id))).collect();
        let decision = self.decision.as_ref().filter(|(of, _)| *of == view.id);
        let decision = decision.map(|(_, words)| words.clone()).unwrap_or_default();
        let host = self.host();
        let me = HostProcess { id: self.me.id, host, pid: self.me.pid, birth: self.me.birth };
        let processes = self.processes.all_near(host).chain([me]).chain(self.processes.all_far());
        let processes = processes.filter(|process| view.members.contains(&process.id)).collect();
        let told = ViewAnnouncement { view: view.clone(), decision, newcomers, observers, processes, cards };
        let bytes = Arc::<[u8]>::from(told.encode());
        let (incarnation, from) = (self.incarnation, self.me.id);
        (ControlMessage::View { incarnation, view: view.id, from, bytes: bytes.len() as u64 }, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::me;
    use super::*;
    use crate::control::Birth;
    use crate::control::{Address, Seeds};
    use crate::ids::Process;
    use crate::ids::Time;
    use crate::view::View;
    use alloc::string::ToString;

    /// Seed 8867 of whole processes: a founder ended that had not asked the other founders, so none
    /// of them watched it, and the first view never began.
    #[test]
    fn founders_watch_a_founder_of_their_host_that_has_asked_none_of_them() {
        let book = |id, host: u128| {
            let address: Address = "a:1".parse().unwrap();
            let card = Card { id: MemberId(id), host, address: address.clone(), rack: None };
            Some(Book::new(card, Seeds::new(Vec::new(), None, address), true))
        };
        let birth = Birth { namespace: 1, started: 7 };
        let message = ControlMessage::Bootstrap {
            from: MemberId(3),
            pid: 33,
            birth,
            nonce: 5,
            config: 0,
            clock: 0,
            words: Vec::new(),
        };
        let is_watched = |roster: &mut Roster<()>| {
            let orders = core::iter::from_fn(|| roster.next_order());
            let of_it = |order: &RosterOrder| matches!(order, RosterOrder::Watch { id: MemberId(3), pid: 33, .. });
            orders.filter(of_it).count() == 1
        };
        let founders = [1, 2, 3].map(|id| Process { id: MemberId(id), nonce: 5 });
        let members = founders.map(|process| process.id).to_vec();
        let view = View { id: ViewId(1), members, nonvoters: Vec::new(), subgroups: Default::default() };
        // One founder is on another host, and hears of it over the network.
        let hosts = [1, 2];
        let mut told = hosts.map(|host| {
            let mut roster: Roster<()> = Roster::new(me(1), 5, book(1, host));
            roster.set_incarnation(7);
            let card = Card { id: MemberId(3), host: 1, address: "b:1".parse().unwrap(), rack: None };
            roster.hear(message.clone(), (host != 1).then_some((card, 8)), &[], Time(0));
            assert_eq!(is_watched(&mut roster), host == 1);
            roster.hear_of_founders(ViewId(1), &founders, Vec::new());
            roster.expect_first(&view);
            roster.message_of(&view)
        });
        for (host, (message, attachment)) in hosts.into_iter().zip(&mut told) {
            let mut roster: Roster<()> = Roster::new(me(2), 5, book(2, 1));
            roster.set_incarnation(7);
            roster.hear_of_founders(ViewId(1), &founders, Vec::new());
            roster.expect_first(&view);
            let card = Card { id: MemberId(1), host, address: "a:1".parse().unwrap(), rack: None };
            roster.hear(message.clone(), (host != 1).then_some((card, 8)), attachment, Time(0));
            assert!(is_watched(&mut roster), "not by the announcement from host {host}");
        }
    }

    /// Track record 223: a member that had begun a view without process 4 read an announcement of
    /// that view, whose sender had not begun it and still had the card of 4. Another process got
    /// the id later, and this member kept the address and the rack of the first one.
    #[test]
    fn an_announcement_brings_no_card_of_a_process_that_has_gone() {
        let card =
            |id, host, address: &str| Card { id: MemberId(id), host, address: address.parse().unwrap(), rack: None };
        let view = |id, members: &[u64]| View {
            id: ViewId(id),
            members: members.iter().copied().map(MemberId).collect(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        let mine = card(5, 5, "e:1");
        let seeds = Seeds::new(Vec::new(), None, mine.address.clone());
        let mut roster: Roster<()> = Roster::new(me(5), 5, Some(Book::new(mine, seeds, false)));
        roster.set_incarnation(7);
        roster.begin(&view(1, &[1, 4, 5]), Time(0));
        let (leader, first, second) = (card(1, 1, "a:1"), card(4, 4, "d:1"), card(4, 1, "d:2"));
        [leader.clone(), first.clone()].into_iter().for_each(|card| roster.learn(card));
        roster.begin(&view(2, &[1, 5]), Time(0));
        let hear = |roster: &mut Roster<()>, view: View, cards: Vec<Card>| {
            let (decision, newcomers, observers, processes) = Default::default();
            let id = view.id;
            let told = ViewAnnouncement { view, decision, newcomers, observers, processes, cards }.encode();
            let bytes = told.len() as u64;
            let message = ControlMessage::View { incarnation: 7, view: id, from: MemberId(1), bytes };
            roster.hear(message, Some((leader.clone(), 1)), &told, Time(0));
        };
        for old in [1, 2] {
            let members: &[u64] = if old == 1 { &[1, 4, 5] } else { &[1, 5] };
            hear(&mut roster, view(old, members), [leader.clone(), first.clone()].into());
            assert_eq!(roster.book().unwrap().far(MemberId(4)), None, "after an announcement of view {old}");
        }
        // However an old card has come back, the newcomer itself is believed.
        roster.learn(first);
        roster.note_joined(ViewId(3), &[Process { id: MemberId(4), nonce: 9 }]);
        roster.expect(&view(3, &[1, 4, 5]));
        let address = crate::control::PortAddress::new(&[1; 8]).unwrap();
        let port = ControlMessage::Port { incarnation: 7, view: ViewId(3), from: MemberId(4), address };
        roster.hear(port, Some((second.clone(), 1)), &[], Time(0));
        assert_eq!(roster.book().unwrap().far(MemberId(4)), Some(&second.address));
    }

    /// True if process 3 takes part in a view that is reported to it, in which `joined` is a
    /// newcomer.
    fn may_take_part(joined: Process, is_newcomer: bool) -> bool {
        let members: Vec<MemberId> = [1, 3].map(MemberId).to_vec();
        let view = View { id: ViewId(9), members, nonvoters: Vec::new(), subgroups: Default::default() };
        let newcomers = if is_newcomer { alloc::vec![joined] } else { Vec::new() };
        let (decision, observers, processes, cards) = Default::default();
        let told = ViewAnnouncement { view: view.clone(), decision, newcomers, observers, processes, cards }.encode();
        let mut roster: Roster<()> = Roster::new(me(3), 33, None);
        let message =
            ControlMessage::View { incarnation: 7, view: ViewId(9), from: MemberId(1), bytes: told.len() as u64 };
        roster.hear(message, None, &told, Time(0));
        let is_told = roster.take_news().iter().any(|news| matches!(news, ControlEvent::View { .. }));
        assert_eq!(is_told, roster.joins_with(ViewId(9)));
        is_told
    }

    /// The earlier process may have begun the view, and have promised something in it, before it
    /// died.
    #[test]
    fn a_process_has_no_part_in_a_view_that_admits_another_with_its_id() {
        let process = |nonce| Process { id: MemberId(3), nonce };
        assert!(may_take_part(process(33), true));
        assert!(!may_take_part(process(34), true), "another process was admitted");
        assert!(!may_take_part(process(0), true), "the teller does not know which process was admitted");
        assert!(!may_take_part(process(33), false), "it was admitted to an earlier view");
    }

    /// Track record: no living process of its host knew a founder that had died. The first view
    /// waited for its end there for ever.
    #[test]
    fn a_member_watches_a_process_of_its_host_that_only_members_of_others_knew() {
        let card = |id: u64, host| Card {
            id: MemberId(id),
            host,
            address: alloc::format!("h{id}:1").parse().unwrap(),
            rack: None,
        };
        let roster = |id: u64, host| {
            let mine = card(id, host);
            let book = Book::new(mine.clone(), Seeds::new(Vec::new(), None, mine.address), true);
            let mut roster: Roster<()> = Roster::new(me(id), id as u32, Some(book));
            roster.set_incarnation(7);
            roster
        };
        let members: Vec<MemberId> = [1, 2, 3].map(MemberId).to_vec();
        let view = View { id: ViewId(1), members, nonvoters: Vec::new(), subgroups: Default::default() };
        let birth = Birth { namespace: 1, started: 5 };
        let ask = |nonce, pid| ControlMessage::Ask {
            from: MemberId(3),
            pid,
            birth,
            nonce,
            config: 4,
            members: 3,
            observer: false,
            follows: ViewId(0),
            address: Some(card(3, 1).address),
            rack: None,
            seeds: None,
            clock: 0,
        };
        // Member 1 is on the host of member 3, or on another one.
        for (host, watches) in [(1, Some(103)), (9, None)] {
            let mut far = roster(2, 2);
            far.hear(ask(33, 103), Some((card(3, 1), 3)), &[], Time(0));
            far.hear_of_founders(ViewId(1), &[Process { id: MemberId(3), nonce: 33 }], Vec::new());
            // Another process with its id asks after the bootstrap.
            let mut later = roster(2, 2);
            later.hear(ask(34, 104), Some((card(3, 1), 4)), &[], Time(0));
            later.hear_of_founders(ViewId(1), &[Process { id: MemberId(3), nonce: 33 }], Vec::new());
            for (teller, watches) in [(&mut far, watches), (&mut later, None)] {
                teller.expect_first(&view);
                while teller.next_order().is_some() {}
                teller.learn(card(1, host));
                teller.tell_view(&view, [MemberId(1)]);
                let mut told = roster(1, host);
                while let Some(order) = teller.next_order() {
                    if let RosterOrder::Far { message, attachment, .. } = order {
                        told.hear(message, Some((card(2, 2), 2)), &attachment, Time(0));
                    }
                }
                let watched = core::iter::from_fn(|| told.next_order()).find_map(|order| match order {
                    RosterOrder::Watch { id: MemberId(3), pid, .. } => Some(pid),
                    _ => None,
                });
                assert_eq!(watched, watches, "on host {host}");
            }
        }
    }

    /// Track record: a process that follows asked a member that had died, or dialled it at its old
    /// address, though another process had its id by then.
    #[test]
    fn a_process_that_follows_believes_members_of_newer_views_which_processes_these_are() {
        let card = |id: u64, host, name: &str| Card {
            id: MemberId(id),
            host,
            address: alloc::format!("{name}:1").parse().unwrap(),
            rack: None,
        };
        let view = |id| View {
            id: ViewId(id),
            members: [2, 3, 4].map(MemberId).to_vec(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        for takes_part in [false, true] {
            let book = Book::new(card(9, 1, "mine"), Seeds::new(Vec::new(), None, card(9, 1, "mine").address), true);
            let mut roster: Roster<()> = Roster::new(me(9), 1, Some(book));
            roster.set_incarnation(7);
            let tell = |roster: &mut Roster<()>, id, pid, far: &str| {
                let process = HostProcess { id: MemberId(3), host: 1, pid, birth: Birth::default() };
                let (decision, newcomers, observers) = Default::default();
                let cards = alloc::vec![card(2, 1, "near"), card(3, 1, "near"), card(4, 2, far)];
                let told = ViewAnnouncement {
                    view: view(id),
                    decision,
                    newcomers,
                    observers,
                    processes: alloc::vec![process],
                    cards,
                };
                let told = told.encode();
                let message = ControlMessage::View {
                    incarnation: 7,
                    view: ViewId(id),
                    from: MemberId(2),
                    bytes: told.len() as u64,
                };
                roster.hear(message, None, &told, Time(0));
            };
            tell(&mut roster, 5, 103, "before");
            roster.begin(&view(5), Time(0));
            roster.takes_part = takes_part;
            roster.watched_ended(MemberId(3));
            tell(&mut roster, 7, 104, "after");
            let address = roster.book().unwrap().far(MemberId(4)).unwrap().to_string();
            let known = (roster.is_dead(MemberId(3)), roster.pid(MemberId(3)), address.as_str());
            assert_eq!(known, if takes_part { (true, 0, "before:1") } else { (false, 104, "after:1") });
        }
    }
}
