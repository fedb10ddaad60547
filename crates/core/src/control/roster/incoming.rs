//! The control messages that arrive.
use super::{Asks, ControlEvent, Roster, StoppedProcesses};
use crate::control::{
    BootstrapMessage, Card, ControlMessage, Incarnation, Instance, ObjectOrder, QueryOrder, RecordOrder, Refusal,
    Request, ViewAnnouncement,
};
use crate::ids::{Process, Time};
use crate::limits::QUERY_BYTES_MAX;

impl<W> Roster<W> {
    /// Handles a control message with its attachment. `sender` is the card and process of the
    /// sender, if the message came over the network.
    ///
    /// Messages with descriptors arrive by [`handed_over`](Self::handed_over).
    pub fn hear(&mut self, message: ControlMessage, sender: Option<(Card, u128)>, attachment: &[u8], now: Time) {
        let is_far = |card: &Card| self.book.as_ref().is_none_or(|book| book.card().host != card.host);
        // A process of this host may write to a seed over the network. It is watched and known like
        // other processes of this host.
        let far = sender.as_ref().filter(|(card, _)| is_far(card)).map(|(card, process)| (card.host, *process));
        let (asks, has_card) = (matches!(message, ControlMessage::Ask { .. }), sender.is_some());
        let says_member = |words: &[u64]| {
            BootstrapMessage::decode(words)
                == Some(BootstrapMessage::Exists { incarnation: Incarnation(self.incarnation) })
        };
        if let (ControlMessage::Bootstrap { words, .. }, Some((card, _))) = (&message, &sender)
            && self.takes_part
            && !self.members.contains(&card.id)
            && says_member(words)
        {
            self.news.push(ControlEvent::Meets(card.clone()));
        }
        // As with streams, a newcomer that brings its memory is the member, wherever an earlier
        // process with its id was.
        let comes = matches!(&message, ControlMessage::Port { incarnation, view, from, .. }
            if self.may_be_mine(*incarnation) && self.is_new(*view, *from));
        let id_conflict = sender.and_then(|(card, _)| {
            if comes {
                self.learn(card);
                return None;
            }
            self.hear_from(card, asks, now)
        });
        let says_member = match &message {
            ControlMessage::Bootstrap { words, .. } => {
                matches!(BootstrapMessage::decode(words), Some(BootstrapMessage::Exists { .. }))
            }
            _ => false,
        };
        match message {
            ControlMessage::Ask {
                from,
                pid,
                birth,
                nonce,
                config,
                members,
                observer,
                follows,
                address,
                rack,
                seeds,
                clock,
            } => {
                let near = self.book.as_ref().zip(address).filter(|_| !has_card);
                let near = near.map(|(book, address)| Card { id: from, host: book.card().host, address, rack });
                let id_conflict = id_conflict.or_else(|| self.hear_from(near?, true, now));
                if !observer && id_conflict.is_none() && self.refuses_clock(from, clock, now) {
                    return;
                }
                // A new process may have the address of a dead one, which is a member until the
                // view has changed.
                let instance = Instance::of(pid, far);
                if id_conflict.is_none() {
                    self.note_process(Process { id: from, nonce }, pid, birth, far);
                }
                self.news.push(ControlEvent::Asks(Asks {
                    id: from,
                    pid,
                    instance,
                    config,
                    members,
                    observer,
                    follows,
                    seeds,
                    id_conflict,
                }));
            }
            // A process with a duplicate id is not the process that is known by this id.
            ControlMessage::Bootstrap { from, pid, birth, nonce, config, clock, words }
                // A process whose clock is wrong creates no group, and still learns of one.
                if id_conflict.is_none() && (!self.refuses_clock(from, clock, now) || says_member) =>
            {
                if !self.takes_part {
                    self.founders.insert(from, nonce);
                    // It may be a member of the first view without having asked this process. Messages
                    // of this host have no card, and the process that is known by the id may be on
                    // another host: which one counts is decided when it asks.
                    if has_card || !self.is_far(from) {
                        self.note_process(Process { id: from, nonce }, pid, birth, far);
                    }
                }
                self.news.push(ControlEvent::Bootstrap { from, nonce, config, words });
            }
            ControlMessage::Want { incarnation, view, from, reply, objects }
                if id_conflict.is_none() && incarnation == self.incarnation =>
            {
                self.news.push(ControlEvent::Wants(ObjectOrder { from, view, reply, objects }));
            }
            ControlMessage::WantRecords { incarnation, from, reply, wanted }
                if id_conflict.is_none() && self.may_be_mine(incarnation) =>
            {
                self.news.push(ControlEvent::WantsRecords(RecordOrder { from, incarnation, reply, wanted }));
            }
            ControlMessage::NoRecords { from, reply, why } if id_conflict.is_none() => {
                self.news.push(ControlEvent::NoRecords { from, reply, why });
            }
            // An attachment that can't be read, or is too long, is empty here.
            ControlMessage::Query { incarnation, from, reply, bytes }
                if id_conflict.is_none() && incarnation == self.incarnation && is_whole(bytes, attachment) =>
            {
                self.news.push(ControlEvent::Asked(QueryOrder { from, reply, bytes: attachment.to_vec() }));
            }
            ControlMessage::QueryAnswer { from, reply, bytes }
                if id_conflict.is_none() && is_whole(bytes, attachment) =>
            {
                self.news.push(ControlEvent::Answered { from, reply, answer: Ok(attachment.to_vec()) });
            }
            ControlMessage::NoAnswer { from, reply, why } if id_conflict.is_none() => {
                self.news.push(ControlEvent::Answered { from, reply, answer: Err(why) });
            }
            ControlMessage::Refused { why: Refusal::Clock(skew) } if !self.is_refused_for(skew) => {}
            ControlMessage::Refused { why } => self.news.push(ControlEvent::Refused(why)),
            ControlMessage::Wait { members, blocked, present, .. } => {
                self.news.push(ControlEvent::Waits { members, blocked, present });
            }
            ControlMessage::View { incarnation, from, .. } => {
                if let Some(told) = ViewAnnouncement::decode(attachment) {
                    self.hear_of_view(incarnation, from, told);
                }
            }
            ControlMessage::Request { from, reply, what: what @ Request::Stopped { incarnation, view, nonce } } => {
                let heard_in = (self.begun.0 != 0).then_some(self.begun);
                self.stopped.note(from, StoppedProcesses { incarnation, last: view, nonce, heard_in });
                // Over the network the statement may arrive after messages that the next process
                // with this id has written to this host.
                if !has_card && view.0 == 0 {
                    // Members learn which processes observe. Newcomers do not watch observers that
                    // may become members.
                    self.forget_observer(from);
                    // Another process may have asked with its id since.
                    if self.processes.nonce(from) == Some(nonce) {
                        // The pid of that other process may be the same.
                        self.processes.set_instance(from, Instance::Near(0));
                        self.has_ended(from);
                    }
                }
                self.news.push(ControlEvent::Requests { from, reply, what });
            }
            ControlMessage::Request { from, reply, what } => {
                self.news.push(ControlEvent::Requests { from, reply, what })
            }
            ControlMessage::Port { incarnation, view, from, address } => {
                self.keep_port((incarnation, view), from, address)
            }
            _ => {}
        }
    }
}

/// Whether the attachment of a query or of an answer has the length that the message gives.
fn is_whole(bytes: u64, attachment: &[u8]) -> bool {
    attachment.len() as u64 == bytes && attachment.len() <= QUERY_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::super::tests::me;
    use super::*;
    use crate::ids::{MemberId, ViewId};
    use alloc::vec::Vec;

    #[test]
    fn a_query_counts_if_it_is_whole_and_for_this_group() {
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        roster.set_incarnation(5);
        let from = MemberId(9);
        let query = |incarnation, bytes| ControlMessage::Query { incarnation, from, reply: 3, bytes };
        roster.hear(query(6, 2), None, b"hi", Time(0));
        roster.hear(query(5, 3), None, b"hi", Time(0));
        roster.hear(ControlMessage::QueryAnswer { from, reply: 3, bytes: 9 }, None, &[], Time(0));
        let long = alloc::vec![0; QUERY_BYTES_MAX + 1];
        roster.hear(query(5, long.len() as u64), None, &long, Time(0));
        assert!(!roster.has_news());
        roster.hear(query(5, 2), None, b"hi", Time(0));
        roster.hear(ControlMessage::QueryAnswer { from, reply: 3, bytes: 0 }, None, &[], Time(0));
        let asked = ControlEvent::Asked(QueryOrder { from, reply: 3, bytes: b"hi".to_vec() });
        let answered = ControlEvent::Answered { from, reply: 3, answer: Ok(Vec::new()) };
        assert_eq!(roster.take_news(), [asked, answered]);
    }

    #[test]
    fn objects_are_given_to_processes_that_follow_this_group() {
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        roster.set_incarnation(5);
        let want = |incarnation| ControlMessage::Want {
            incarnation,
            view: ViewId(2),
            from: MemberId(9),
            reply: 3,
            objects: Vec::new(),
        };
        roster.hear(want(6), None, &[], Time(0));
        assert!(!roster.has_news(), "a group of that name that was");
        roster.hear(want(5), None, &[], Time(0));
        let order = ObjectOrder { from: MemberId(9), view: ViewId(2), reply: 3, objects: Vec::new() };
        assert_eq!(roster.take_news(), [ControlEvent::Wants(order)]);
    }
}
