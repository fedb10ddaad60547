//! The admission of processes: founders, and the joiners of each view.
//!
//! From its first view on an id belongs to one process, which is identified by its nonce. Other
//! processes with the id are forgotten.
use super::Roster;
use crate::control::Card;
use crate::ids::{MemberId, Process, ViewId};
use crate::view::View;
use alloc::vec::Vec;

impl<W> Roster<W> {
    /// Notes the founders of the group. Forgets the address of an earlier process with a founder's
    /// id.
    ///
    /// With that address, this process would dial the earlier process for as long as the first view
    /// lasts, and take the founder for another process. Others report the founder's address, in `cards`
    /// or in an announcement of the view.
    pub fn hear_of_founders(&mut self, view: ViewId, founders: &[Process], cards: Vec<Card>) {
        for process in founders.iter().copied() {
            self.note_admitted(view, process);
            let is_another = self.founders.get(&process.id).is_some_and(|known| *known != process.nonce);
            if let Some(book) = self.book.as_mut().filter(|_| is_another && process.id != self.me.id) {
                book.forget(process.id);
            }
        }
        for card in cards {
            let founder = founders.iter().find(|process| process.id == card.id);
            if let Some(process) = founder.filter(|process| self.needs_card(**process, &card)) {
                self.learn(card);
                self.founders.insert(process.id, process.nonce);
            }
        }
    }

    /// True if `card`, as another process has sent it, is a better source for the place of `process` than
    /// what this process knows of it.
    fn needs_card(&self, process: Process, card: &Card) -> bool {
        let Some(book) = &self.book else { return false };
        let is_known = self.founders.get(&process.id) == Some(&process.nonce) && !book.is_unknown(process.id);
        let is_here = self.processes.is_near(process.id) && self.processes.nonce(process.id) == Some(process.nonce);
        process.id != self.me.id && !is_known && !(is_here && card.host != self.host())
    }

    /// Returns the card of a process that creates the group, if it is known.
    pub fn founder_card(&self, process: Process) -> Option<Card> {
        let book = self.book.as_ref()?;
        match process == self.as_process() {
            true => Some(book.card().clone()),
            false if self.founders.get(&process.id) == Some(&process.nonce) => book.card_of(process.id).cloned(),
            false => None,
        }
    }

    /// Returns the process that has identified itself last with this id; its nonce is 0 if none has.
    pub fn asker(&self, id: MemberId) -> Process {
        match id == self.me.id {
            true => self.as_process(),
            false => Process { id, nonce: self.processes.nonce(id).unwrap_or(0) },
        }
    }

    /// Notes the processes that join with `view`.
    pub fn note_joined(&mut self, view: ViewId, joined: &[Process]) {
        self.newcomers.note_view(view);
        for process in joined.iter().copied() {
            let is_known_now = self.newcomers.note(view, process);
            if is_known_now && view > self.begun && !self.newcomers.has_behind(view, process.id) {
                self.note_admitted(view, process);
            }
        }
    }

    /// Notes that this process, and no other, has its id from `view` on. Forgets other processes
    /// with the id.
    ///
    /// One of these may have been a member before it, or may have asked since. A process that has
    /// handed over its memory for the view is identified by that. If this process asked earlier, it
    /// is watched again, and may have ended.
    fn note_admitted(&mut self, view: ViewId, process: Process) {
        let id = process.id;
        if id != self.me.id && self.processes.note_nonce(process) && !self.has_parts(view, id) {
            self.processes.admit(process, &mut self.orders);
        }
    }

    /// True if this process, and no other with its id, joins with the decided `view`.
    pub fn joins_with(&self, view: ViewId) -> bool {
        self.newcomers.nonce(view, self.me.id) == Some(self.nonce)
    }

    /// Notes that the first view of a group is being prepared. Earlier reports about a group do not
    /// count.
    pub fn expect_first(&mut self, view: &View) {
        self.newcomers.clear();
        self.expect(view);
    }

    /// Notes that the next view, with these members, is being prepared.
    pub fn expect(&mut self, view: &View) {
        if !self.newcomers.knows(view.id) {
            let joined = view.members.iter().filter(|id| !self.members.contains(id)).map(|id| self.asker(*id));
            let joined: Vec<Process> = joined.collect();
            self.note_joined(view.id, &joined);
        }
        self.members.extend(&view.members);
    }

    /// True if `id` was not in the view before `view`.
    pub fn is_new(&self, view: ViewId, id: MemberId) -> bool {
        self.newcomers.has(view, id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, me};
    use super::*;
    use crate::control::Instance;
    use crate::control::{Address, Birth, Book, ControlMessage, HostProcess, Me, RosterOrder, ViewAnnouncement};
    use crate::ids::Time;
    use crate::view::View;
    use alloc::string::ToString;

    /// Track record: a founder that had been started again elsewhere, with its id, was dialled at
    /// its old address for as long as the first view lasted. Its own connections counted as those
    /// of another process.
    #[test]
    fn the_address_of_a_process_before_a_founder_is_forgotten() {
        for (nonce, known) in [(1, true), (2, false)] {
            let card = |id, name: &str| {
                let address: Address = alloc::format!("{name}:1").parse().unwrap();
                Card { id: MemberId(id), host: id.into(), address, rack: None }
            };
            let (mine, other) = (card(1, "a"), card(3, "b"));
            let book = Book::new(mine.clone(), crate::control::Seeds::new(Vec::new(), None, mine.address), true);
            let mut roster: Roster<()> = Roster::new(me(1), 1, Some(book));
            let (from, pid, birth, words) = (MemberId(3), 3, Birth::default(), Vec::new());
            let message = ControlMessage::Bootstrap { from, pid, birth, nonce: 1, config: 0, clock: 0, words };
            roster.hear(message, Some((other, 7)), &[], Time(0));
            roster.hear_of_founders(
                ViewId(1),
                &[Process { id: MemberId(1), nonce: 9 }, Process { id: MemberId(3), nonce }],
                Vec::new(),
            );
            assert_eq!(roster.is_far(MemberId(3)), known, "founder {nonce}");
            // Another founder reports where it is.
            let view = View {
                id: ViewId(1),
                members: [1, 3].map(MemberId).to_vec(),
                nonvoters: Vec::new(),
                subgroups: Default::default(),
            };
            roster.expect(&view);
            let told = ViewAnnouncement {
                view,
                decision: Vec::new(),
                newcomers: Vec::new(),
                observers: Vec::new(),
                processes: Vec::new(),
                cards: [card(3, "c")].to_vec(),
            };
            let bytes = told.encode();
            let message =
                ControlMessage::View { incarnation: 5, view: ViewId(1), from: MemberId(2), bytes: bytes.len() as u64 };
            roster.hear(message, None, &bytes, Time(0));
            let address = roster.book().unwrap().far(MemberId(3)).unwrap();
            assert_eq!(address.to_string(), if known { "b:1" } else { "c:1" });
        }
    }

    /// Track record: a view began while processes waited for admission, and forgot them. They were killed before
    /// they asked again. The next view had them, no member knew whose ends to watch for, and it was blocked for good.
    #[test]
    fn the_end_of_a_joiner_is_noticed_though_a_view_has_begun_since_it_asked() {
        for ends_before in [true, false] {
            let mut roster: Roster<()> = Roster::new(me(1), 1, None);
            let view = |id, members: &[u64]| View {
                id: ViewId(id),
                members: members.iter().copied().map(MemberId).collect(),
                nonvoters: Vec::new(),
                subgroups: Default::default(),
            };
            roster.begin(&view(1, &[1, 2]), Time(0));
            roster.hear(ask(me(3), 5, false), None, &[], Time(0));
            roster.set_joiners([MemberId(3)].into_iter());
            roster.expect(&view(2, &[1, 2]));
            roster.begin(&view(2, &[1, 2]), Time(0));
            let unwatches =
                core::iter::from_fn(|| roster.next_order()).any(|order| matches!(order, RosterOrder::Unwatch(_)));
            assert!(!unwatches, "the kernel's word on it would not come");
            if ends_before {
                roster.watched_ended(MemberId(3));
            }
            roster.note_joined(ViewId(3), &[Process { id: MemberId(3), nonce: 5 }]);
            roster.expect(&view(3, &[1, 2, 3]));
            roster.begin(&view(3, &[1, 2, 3]), Time(0));
            if !ends_before {
                roster.watched_ended(MemberId(3));
            }
            assert!(roster.is_dead(MemberId(3)), "it ended before its first view: {ends_before}");
        }
    }

    /// Otherwise the view waits for the dead process for as long as its successor lives.
    #[test]
    fn a_joiner_that_was_decided_on_is_watched_though_its_successor_has_asked_since() {
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        let mut asks = |nonce: u32| {
            roster.hear(ask(Me { pid: 100 + nonce, ..me(3) }, nonce, false), None, &[], Time(0));
        };
        [5, 6, 7].into_iter().for_each(&mut asks);
        let members: Vec<MemberId> = [1, 3].map(MemberId).to_vec();
        let view = View { id: ViewId(2), members, nonvoters: Vec::new(), subgroups: Default::default() };
        roster.note_joined(view.id, &[Process { id: MemberId(3), nonce: 5 }]);
        roster.expect(&view);
        let watches = |order: RosterOrder| match order {
            RosterOrder::Watch { pid, .. } => Some(Some(pid)),
            RosterOrder::Unwatch(_) => Some(None),
            _ => None,
        };
        let orders: Vec<_> = core::iter::from_fn(|| roster.next_order()).filter_map(watches).collect();
        assert_eq!(orders, [Some(105), None, Some(106), None, Some(107), None, Some(105)]);
        assert!(roster.is_instance(MemberId(3), Instance::Near(105)));
    }

    /// Track record: processes learned of a view with a dead member, and their watch found it dead.
    /// They then took the process that joined with its id for dead.
    #[test]
    fn a_process_that_joins_does_not_count_as_the_dead_one_before_it() {
        let (before, after) = (Me { pid: 33, ..me(3) }, Me { pid: 34, ..me(3) });
        let view = |id| View {
            id: ViewId(id),
            members: [1, 2, 3].map(MemberId).to_vec(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        let is_host = |Me { id, pid, birth }: Me| HostProcess { id, host: 0, pid, birth };
        let tell = |roster: &mut Roster<()>, id, newcomers, of| {
            let processes = [me(2), of].map(is_host).to_vec();
            let (decision, observers, cards) = Default::default();
            let told = ViewAnnouncement { view: view(id), decision, newcomers, observers, processes, cards }.encode();
            let message =
                ControlMessage::View { incarnation: 5, view: ViewId(id), from: MemberId(2), bytes: told.len() as u64 };
            roster.hear(message, None, &told, Time(0));
            // The watch of the earlier process may report its finding late, or again.
            roster.found_ended(MemberId(3), 33, before.birth);
        };
        let joins = |nonce| alloc::vec![Process { id: MemberId(3), nonce }];
        for is_told_first in [true, false] {
            let mut roster: Roster<()> = Roster::new(me(1), 1, None);
            tell(&mut roster, 7, Vec::new(), before);
            assert!(roster.is_dead(MemberId(3)));
            if is_told_first {
                // The first teller does not know which process joins. The second one does.
                tell(&mut roster, 9, joins(0), before);
                tell(&mut roster, 9, joins(4), before);
                tell(&mut roster, 9, joins(4), after);
                assert_eq!(roster.process_of(MemberId(3)), Some(after));
                tell(&mut roster, 7, Vec::new(), before);
                assert_eq!(roster.process_of(MemberId(3)), Some(after), "an older view is told of late");
            } else {
                assert!(roster.handed_over(5, ViewId(9), after, ()));
                assert!(!roster.is_dead(MemberId(3)));
                tell(&mut roster, 9, joins(4), before);
            }
            assert!(!roster.is_dead(MemberId(3)));
            assert_eq!(roster.process_of(MemberId(3)), Some(after));
        }
    }

    /// A card that came from the founder itself counts more than one that another process has sent.
    #[test]
    fn the_cards_of_founders_are_learned_unless_they_are_known() {
        let card = |id: u64, host: u128, name: &str| Card {
            id: MemberId(id),
            host,
            address: alloc::format!("{name}:1").parse().unwrap(),
            rack: None,
        };
        let book =
            Book::new(card(1, 1, "a"), crate::control::Seeds::new(Vec::new(), None, card(1, 1, "a").address), true);
        let mut roster: Roster<()> = Roster::new(me(1), 1, Some(book));
        let says = |id, nonce| ControlMessage::Bootstrap {
            from: MemberId(id),
            pid: id as u32,
            birth: Birth::default(),
            nonce,
            config: 0,
            clock: 0,
            words: Vec::new(),
        };
        // Process 2 is known, process 3 is another one by now, process 4 is on this host, and of process 5
        // nothing is known.
        roster.hear(says(2, 8), Some((card(2, 2, "b"), 2)), &[], Time(0));
        roster.hear(says(3, 8), Some((card(3, 3, "c"), 3)), &[], Time(0));
        roster.hear(says(4, 8), None, &[], Time(0));
        let founder = |id, nonce| Process { id: MemberId(id), nonce };
        let founders = [founder(1, 1), founder(2, 8), founder(3, 9), founder(4, 8), founder(5, 8)];
        assert_eq!(roster.founder_card(founders[0]), Some(card(1, 1, "a")));
        assert_eq!(roster.founder_card(founders[1]), Some(card(2, 2, "b")));
        assert_eq!([2, 3, 4].map(|at| roster.founder_card(founders[at])), [None, None, None]);
        let cards = [(1, "x"), (2, "x"), (3, "new"), (4, "x"), (5, "e"), (6, "f")].map(|(id, name)| card(id, 9, name));
        roster.hear_of_founders(ViewId(1), &founders, cards.to_vec());
        let known = [1, 2, 3, 4, 5, 6].map(|id| {
            roster.book().unwrap().far(MemberId(id)).map_or_else(alloc::string::String::new, ToString::to_string)
        });
        assert_eq!(known, ["", "b:1", "new:1", "", "e:1", ""]);
        assert_eq!(roster.founder_card(founders[4]), Some(card(5, 9, "e")));
    }

    /// A process with the id of a dead founder may have asked before this process heard of the
    /// bootstrap.
    #[test]
    fn the_first_view_names_the_founders_and_not_the_processes_that_asked_last() {
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        roster.note_joined(ViewId(1), &[Process { id: MemberId(3), nonce: 5 }]);
        roster.processes.note_nonce(Process { id: MemberId(3), nonce: 34 });
        roster.hear_of_founders(
            ViewId(1),
            &[Process { id: MemberId(1), nonce: 1 }, Process { id: MemberId(3), nonce: 33 }],
            Vec::new(),
        );
        let members: Vec<MemberId> = [1, 3].map(MemberId).to_vec();
        roster.expect_first(&View { id: ViewId(1), members, nonvoters: Vec::new(), subgroups: Default::default() });
        assert_eq!(roster.newcomers.nonce(ViewId(1), MemberId(3)), Some(33));
    }
}
