//! The control messages that this process sends. A message goes to an address if the receiver is on
//! another host, and to the id otherwise.
use super::{Asks, Me, Question, Roster, RosterOrder};
use crate::control::{Address, Book, ControlMessage, Refusal, Request};
use crate::ids::{MemberId, Time};
use crate::view::View;
use alloc::sync::Arc;

impl<W> Roster<W> {
    /// Sends a control message with its attachment.
    pub(super) fn write(&mut self, to: MemberId, mut message: ControlMessage, attachment: Arc<[u8]>) {
        self.clocks.date(&mut message);
        let far = self.book.as_ref().and_then(|book| book.far(to)).cloned();
        // These messages answer a process that asks with the id of a dead member.
        let is_for_asker = matches!(message, ControlMessage::Wait { .. } | ControlMessage::Refused { .. });
        if far.is_none() && self.is_dead(to) && self.members.contains(&to) && !is_for_asker {
            // Control messages to a member are kept until it has an address.
            return;
        }
        self.orders.push_back(match far {
            Some(address) => RosterOrder::Far { address, whom: Some(to), message, attachment },
            None => RosterOrder::Near { to, message, attachment },
        });
    }

    /// True if `view` begins here only when all messages to `to` are on their way: `to` is a member
    /// that is not dead, and may begin the view.
    pub fn waits_to_reach(&self, to: MemberId, view: &View) -> bool {
        view.members.contains(&to) && !self.is_dead(to) && !self.never_begins(view.id, to)
    }

    /// Sends a control message without an attachment.
    pub fn post(&mut self, to: MemberId, message: ControlMessage) {
        self.write(to, message, Arc::default());
    }

    /// Sends a control message with its attachment.
    pub fn post_with(&mut self, to: MemberId, message: ControlMessage, attachment: Arc<[u8]>) {
        self.write(to, message, attachment);
    }

    /// Sends a control message to `id`, or to the duplicate of that id at the address
    /// `id_conflict`.
    pub fn post_at(&mut self, id_conflict: Option<Address>, id: MemberId, message: ControlMessage) {
        match id_conflict {
            Some(address) => self.write_to(address, Some(id), message),
            None => self.post(id, message),
        }
    }

    /// Sends a control message to the process at an address of another host.
    pub fn write_to(&mut self, address: Address, whom: Option<MemberId>, mut message: ControlMessage) {
        self.clocks.date(&mut message);
        self.orders.push_back(RosterOrder::Far { address, whom, message, attachment: Arc::default() });
    }

    /// Answers a request with a text.
    pub fn answer(&mut self, to: MemberId, reply: u64, text: &str) {
        self.write(to, ControlMessage::Answer { reply, bytes: text.len() as u64 }, Arc::from(text.as_bytes()));
    }

    /// Asks `to` for admission, or only for the view.
    pub fn ask(&mut self, to: MemberId, question: Question, now: Time) {
        let message = self.message_for(question, now);
        self.asked.insert(to);
        self.post(to, message);
    }

    /// Asks all processes on other hosts: the seeds, and the known processes.
    pub fn ask_afar(&mut self, question: Question, now: Time) {
        self.look_up(now);
        let message = self.message_for(question, now);
        self.write_afar(&message);
    }

    /// Asks all processes on other hosts for the view.
    pub fn ask_view_afar(&mut self, now: Time) {
        self.look_up(now);
        self.write_afar(&ControlMessage::Request { from: self.me.id, reply: 0, what: Request::View });
    }

    pub(super) fn write_afar(&mut self, message: &ControlMessage) {
        let Some(book) = &self.book else { return };
        let far = |(address, whom): (&Address, Option<MemberId>)| RosterOrder::Far {
            address: address.clone(),
            whom,
            message: message.clone(),
            attachment: Arc::default(),
        };
        self.orders.extend(book.addresses().map(far));
    }

    fn message_for(&mut self, question: Question, now: Time) -> ControlMessage {
        let Question { config, members, observer, follows } = question;
        let seeds = self.book.as_mut().and_then(|book| book.make_claim(now));
        let card = self.book.as_ref().map(Book::card);
        let (address, rack) = (card.map(|card| card.address.clone()), card.and_then(|card| card.rack.clone()));
        let (Me { id: from, pid, birth }, nonce, clock) = (self.me, self.nonce, self.clocks.now());
        ControlMessage::Ask { from, pid, birth, nonce, config, members, observer, follows, address, rack, seeds, clock }
    }

    /// Returns the answer to a process that asks for admission with a duplicate id.
    ///
    /// The answer is a refusal if the process that has the id certainly lives, and `otherwise` if
    /// not. The activity `done` of that process proves that it lives. If that process also waits
    /// for admission, the number of its requests proves it.
    pub fn turn_away(
        &mut self,
        asks: &Asks,
        done: Option<u64>,
        otherwise: ControlMessage,
        now: Time,
    ) -> ControlMessage {
        let done = done.or_else(|| self.book.as_ref()?.asks(asks.id, now));
        match done.is_some_and(|done| self.id_conflicts.ask(asks.id, asks.instance, done, now)) {
            true => ControlMessage::Refused { why: Refusal::InUse(asks.id) },
            false => otherwise,
        }
    }
}
