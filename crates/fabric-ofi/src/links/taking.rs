//! Taking completions and events from the queues, including those of other views, which are passed
//! on.
use super::OfiLinks;
use crate::channel::{Operation, OperationContext};
use crate::error::CallFailure;
use crate::ffi::FI_EOVERRUN;
use crate::hello::MessageKind;
use crate::limits::{COMPLETIONS, EVENTS_MAX};
use crate::link::{Arrived, OfiLink, gone};
use crate::objects::{Completion, ConnectionEvent, EndpointId};
use spindle_core::Rank;
use spindle_fabric::tcp::Down;

/// The number of times that completions are taken in one look.
const GOES_MAX: u32 = 8;

impl OfiLinks {
    /// Takes completed operations. Returns true if data arrived.
    pub(crate) fn look(&mut self) -> bool {
        let mut arrived = self.take_messages();
        let queues = self.desk.adapter().queues();
        if queues > self.watched {
            // Another view has opened a queue. It is read even if it can't be waited for.
            let _ = self.watch_queues();
        }
        for _ in 0..queues {
            for _ in 0..GOES_MAX {
                match self.take_completions() {
                    Some(came) => arrived |= came,
                    None => break,
                }
            }
            self.next_queue = (self.next_queue + 1) % queues;
        }
        arrived
    }

    /// Takes the entries that other desks have found. Returns true if data arrived with them.
    pub(super) fn take_messages(&mut self) -> bool {
        let mut arrived = false;
        if self.desk.has_messages() {
            for completion in self.desk.take_completions() {
                arrived |= self.take(completion);
            }
        }
        arrived
    }

    /// Takes some completions. Returns true if data arrived with them, or `None` if there are none.
    pub(super) fn take_completions(&mut self) -> Option<bool> {
        let mut completions = [Completion::Done { context: 0, bytes: 0 }; COMPLETIONS];
        let count = match self.desk.adapter().completions(self.next_queue, &mut completions) {
            Ok(count) => count,
            Err(failure) => {
                self.break_all(failure);
                0
            }
        };
        let mut arrived = false;
        for completion in &completions[..count] {
            if let Completion::Failed { code: FI_EOVERRUN, .. } = completion {
                self.desk.tell_all(*completion);
                self.has_passed_on = true;
            }
            arrived |= self.take(*completion);
        }
        (count > 0).then_some(arrived)
    }

    /// Ends all connections: the queue that they share no longer reports the operations of any.
    #[cold]
    pub(super) fn break_all(&mut self, failure: CallFailure) {
        for link in self.links.iter_mut().flatten() {
            let down = Down::Os { call: "receiving", source: failure.to_io() };
            self.ending += u32::from(link.end(down, true));
        }
    }

    /// Takes one completion. Returns true if data arrived with it.
    pub(crate) fn take(&mut self, completion: Completion) -> bool {
        if let Completion::Failed { code: code @ FI_EOVERRUN, .. } = completion {
            // The queue has lost completions, and nothing says of which connections: the context
            // names none.
            self.break_all(CallFailure { call: "the network", code });
            return false;
        }
        let (Completion::Done { context, .. } | Completion::Failed { context, .. }) = completion;
        let OperationContext { number, rank, operation } = OperationContext::unpack(context);
        let Some(rank) = self.numbered(number, rank) else {
            // It belongs to another view, or to a connection that was closed.
            self.has_passed_on |= self.desk.pass_on(number, completion);
            return false;
        };
        let Some(link) = &mut self.links[rank.index()] else { return false };
        link.complete(operation);
        match (completion, operation) {
            (Completion::Done { bytes, .. }, Operation::Receive(slot)) => return self.heard(rank, slot, bytes as u64),
            (Completion::Done { .. }, _) => {}
            (Completion::Failed { code, .. }, operation) => {
                let source = CallFailure { call: "the network", code }.to_io();
                let down = match (code, operation) {
                    // Operations in flight are cancelled when the peer goes.
                    (libc::ECANCELED | libc::ECONNRESET | libc::ENOTCONN | libc::ECONNABORTED | libc::ESHUTDOWN, _) => {
                        gone()
                    }
                    (_, Operation::Receive(_)) => Down::Os { call: "receiving", source },
                    _ => Down::Os { call: "sending", source },
                };
                self.ending += u32::from(link.end(down, true));
            }
        }
        self.untried |= link.has_something_to_send();
        false
    }

    /// Returns the rank to which the link of this number leads. It led to `rank` when the completed
    /// operation was begun.
    fn numbered(&self, number: u32, rank: Rank) -> Option<Rank> {
        let is_it = |link: &Option<OfiLink>| link.as_ref().is_some_and(|link| link.number() == number);
        if self.links.get(rank.index()).is_some_and(is_it) {
            return Some(rank);
        }
        // It has continued from another view, in which the peer had another rank.
        self.links.iter().position(is_it).map(|index| Rank(index as u32))
    }

    /// Takes in the message of `rank` in `slot`. Returns true if data arrived with it.
    pub(super) fn heard(&mut self, rank: Rank, slot: u8, bytes: u64) -> bool {
        let Some(link) = &mut self.links[rank.index()] else { return false };
        let (mut arrived, mut ended) = (false, None);
        match link.take_in(slot, bytes) {
            Ok(Arrived::Message(MessageKind::Credit | MessageKind::Hello) | Arrived::Held) => {}
            Ok(Arrived::Message(MessageKind::Applied)) => {
                ended = link.catch_up(&self.posted, &self.row, &self.image).err()
            }
            Ok(Arrived::Message(MessageKind::Post | MessageKind::Turn)) => arrived = true,
            Ok(Arrived::Message(MessageKind::Last)) => self.ending += u32::from(link.end_in_order()),
            Err(down) => ended = Some(down),
        }
        if let Some(down) = ended {
            self.ending += u32::from(link.end(down, true));
        }
        self.untried |= link.has_something_to_send();
        arrived
    }

    /// Takes the available events: records which connections have ended, and keeps [the
    /// others](Self::next_event).
    ///
    /// # Errors
    /// The queue is no longer usable.
    pub(crate) fn look_at_events(&mut self) -> Result<(), CallFailure> {
        if self.desk.has_messages() {
            self.desk.take_events().into_iter().for_each(|event| self.note(event));
        }
        // So that callers can't fill the memory: events that do not fit wait at the provider.
        let room = (EVENTS_MAX as usize).saturating_sub(self.events.len());
        for _ in 0..room {
            let Some(event) = self.desk.adapter().event()? else { break };
            match self.desk.sort(event) {
                Some(event) => self.note(event),
                None => self.has_passed_on = true,
            }
        }
        Ok(())
    }

    fn note(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Shutdown { endpoint } | ConnectionEvent::Failed { endpoint, .. }
                if self.shut(endpoint) => {}
            event => self.events.push_back(event),
        }
    }

    /// Records that the other side of a connection has gone. Returns true if that connection
    /// existed.
    pub(crate) fn shut(&mut self, endpoint: EndpointId) -> bool {
        let is_it = |link: &&mut OfiLink| link.is_connected() && link.endpoint().id() == endpoint;
        let found = self.links.iter_mut().flatten().find(is_it);
        let is_known = found.is_some();
        if let Some(link) = found {
            self.ending += u32::from(link.end(gone(), true));
        }
        is_known
    }
}
