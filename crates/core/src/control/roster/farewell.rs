//! The reports of this process that it begins no more views, and the use of such reports of others.
use super::{Roster, StoppedProcesses};
use crate::control::{ControlMessage, Request};
use crate::ids::{CLIENT_IDS_FROM, MemberId, ViewId};
use alloc::vec::Vec;

impl<W> Roster<W> {
    /// True if `id`, a member of `view`, never begins that view, by its own statement.
    ///
    /// A process that joins with the view is identified by its nonce. If it was in the previous
    /// view, no other process with its id can have begun that one.
    pub fn never_begins(&self, view: ViewId, id: MemberId) -> bool {
        if !self.newcomers.knows(view) {
            return false;
        }
        let is_its = |word: &StoppedProcesses| match self.newcomers.nonce(view, id) {
            // 0: the nonce is not known here.
            Some(nonce) => nonce != 0 && word.nonce == nonce && word.last < view,
            None => word.last.0 != 0 && word.incarnation == self.incarnation && view.follows(word.last),
        };
        self.stopped.any(id, is_its)
    }

    /// Reports to all known processes on other hosts that this process, a member, begins no view
    /// after `view`.
    pub fn say_stopped(&mut self, view: ViewId) {
        self.write_afar(&self.end_notice(view));
    }

    /// Reports that this process ends, or continues without being a member.
    ///
    /// The processes of its host that it has asked for admission, or that are members with it,
    /// receive the report. So do all known processes on other hosts. Members that wait for its
    /// memory have no other sign of its end. A member's row reports more, and no process waits for
    /// a client.
    pub fn farewell(&mut self) {
        if self.takes_part || self.me.id.0 >= CLIENT_IDS_FROM {
            return;
        }
        let word = self.end_notice(ViewId(0));
        let near: Vec<MemberId> = self.counterparts().filter(|id| !self.is_far(*id)).collect();
        near.into_iter().for_each(|id| self.post(id, word.clone()));
        self.write_afar(&word);
    }

    fn end_notice(&self, view: ViewId) -> ControlMessage {
        let (incarnation, nonce) = (self.incarnation, self.nonce);
        ControlMessage::Request { from: self.me.id, reply: 0, what: Request::Stopped { incarnation, view, nonce } }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, me};
    use super::*;
    use crate::control::{Book, Card, Question, RosterOrder};
    use crate::ids::{Process, Time};
    use crate::view::View;

    #[test]
    fn a_process_that_is_no_member_says_so_to_its_host() {
        let told = |roster: &mut Roster<()>| -> Vec<MemberId> {
            while roster.next_order().is_some() {}
            roster.farewell();
            let words = core::iter::from_fn(|| roster.next_order());
            let near = |order| if let RosterOrder::Near { to, .. } = order { Some(to) } else { None };
            words.filter_map(near).collect()
        };
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        assert_eq!(told(&mut roster), []);
        let question = Question { config: 4, members: 2, observer: false, follows: ViewId(0) };
        roster.ask(MemberId(3), question, Time(0));
        assert_eq!(told(&mut roster), [MemberId(3)]);
        let mut client: Roster<()> = Roster::new(me(CLIENT_IDS_FROM + 1), 1, None);
        client.ask(MemberId(3), Question { observer: true, ..question }, Time(0));
        assert_eq!(told(&mut client), []);
        let view = View {
            id: ViewId(1),
            members: [1, 3].map(MemberId).to_vec(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        roster.begin(&view, Time(0));
        assert!(roster.takes_part() && told(&mut roster).is_empty(), "its row tells");
    }

    /// A process that was admitted and begins anew lives, and never begins the view of its first
    /// attempt.
    #[test]
    fn the_end_notice_of_an_attempt_is_about_that_attempt() {
        let card = |id: u64| Card { id: MemberId(id), host: 7, address: "a:1".parse().unwrap(), rack: None };
        let book = Book::new(card(1), crate::control::Seeds::new(Vec::new(), None, card(1).address), true);
        let mut roster: Roster<()> = Roster::new(me(1), 1, Some(book));
        roster.set_incarnation(5);
        let view = |id, members: &[u64]| View {
            id: ViewId(id),
            members: members.iter().copied().map(MemberId).collect(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        roster.begin(&view(1, &[1]), Time(0));
        let joiner = me(3);
        let asks = |roster: &mut Roster<()>, nonce| {
            roster.hear(ask(joiner, nonce, false), None, &[], Time(0));
        };
        let never_begins = |roster: &Roster<()>, view| roster.never_begins(ViewId(view), joiner.id);
        asks(&mut roster, 33);
        let what = Request::Stopped { incarnation: 5, view: ViewId(0), nonce: 33 };
        roster.hear(ControlMessage::Request { from: joiner.id, reply: 0, what }, None, &[], Time(0));
        assert!(roster.is_dead(joiner.id));
        asks(&mut roster, 34);
        roster.note_joined(ViewId(2), &[Process { id: joiner.id, nonce: 33 }]);
        roster.expect(&view(2, &[1, 3]));
        assert!(!roster.is_dead(joiner.id) && never_begins(&roster, 2));
        // The same statement arrives again, over the network.
        let what = Request::Stopped { incarnation: 5, view: ViewId(0), nonce: 33 };
        roster.hear(ControlMessage::Request { from: joiner.id, reply: 0, what }, Some((card(3), 9)), &[], Time(0));
        assert!(!roster.is_dead(joiner.id));
        roster.begin(&view(2, &[1, 3]), Time(0));
        roster.begin(&view(3, &[1]), Time(0));
        asks(&mut roster, 34);
        roster.expect(&view(4, &[1, 3]));
        assert!(!never_begins(&roster, 4), "the second attempt");
        roster.begin(&view(9, &[1, 3]), Time(0));
        assert!(roster.stopped.is_empty(), "forgotten");
        // Another statement of it arrives before the first view of this process, which is a late
        // one.
        let mut late: Roster<()> = Roster::new(me(1), 1, None);
        let what = Request::Stopped { incarnation: 5, view: ViewId(9), nonce: 34 };
        late.hear(ControlMessage::Request { from: joiner.id, reply: 0, what }, None, &[], Time(0));
        late.begin(&view(10, &[1, 3]), Time(0));
        assert!(!late.stopped.is_empty(), "it is kept until views have begun here");
    }
}
