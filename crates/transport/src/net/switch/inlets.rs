//! Control messages of others: they are read as long as there is room for events.
use super::Switch;
use crate::net::TARGET;
use crate::net::event::NetEvent;
use crate::net::half_open::ConnectionOrigin;
use crate::net::limits::{ARRIVING_BYTES_MAX, INLETS_MAX};
use crate::net::messages::{Arriving, Brought, Stand};
use crate::net::poller::Wire;
use spindle_core::control::Card;
use tracing::{debug, trace};

/// An incoming connection for control messages.
#[derive(Debug)]
pub(super) struct ControlInlet {
    pub(super) wire: Wire,
    pub(super) source: ConnectionOrigin,
    pub(super) from: Card,
    pub(super) process: u128,
    pub(super) arriving: Arriving,
}

impl Switch {
    /// Reads control messages, if there is room for them.
    pub(super) fn read(&mut self, id: u64) {
        if self.exchange.is_full() {
            self.unread.insert(id);
            return;
        }
        match self.take_in(id) {
            Some(Stand::More) => {
                self.unread.insert(id);
            }
            Some(Stand::Over) => self.close(id),
            Some(Stand::Empty) | None => {}
        }
    }

    pub(super) fn take_in(&mut self, id: u64) -> Option<Stand> {
        let exchange = &self.exchange;
        let inlet = self.inlets.get_mut(&id)?;
        let (from, process) = (&inlet.from, inlet.process);
        let stream = &mut *inlet.wire.stream;
        let (me, mut wrong) = (self.me.card.id.0, None);
        let stand = inlet.arriving.receive(stream, &mut self.buffer, from.id, |brought| match brought {
            Brought::ControlMessage(message, attachment) => {
                trace!(target: TARGET, me, from = from.id.0, ?message, attachment_bytes = attachment.len(), "control message received");
                exchange.tell(NetEvent::ControlMessage { from: from.clone(), process, message, attachment })
            }
            Brought::Garbage => {
                wrong = Some("it sent what is no control message");
                exchange.count(|dropped| dropped.garbage += 1);
            }
            Brought::Forged => {
                wrong = Some("it sent a control message in the name of another");
                exchange.count(|dropped| dropped.forged += 1);
            }
        });
        let is_large = inlet.arriving.len() > ARRIVING_BYTES_MAX / INLETS_MAX;
        if let Some((wrong, source)) = wrong.map(|wrong| (wrong, inlet.source)) {
            self.refuse(source, wrong.into());
        }
        if is_large && self.inlets.values().map(|inlet| inlet.arriving.len()).sum::<usize>() > ARRIVING_BYTES_MAX {
            self.exchange.count(|dropped| dropped.garbage += 1);
            return Some(Stand::Over);
        }
        Some(stand)
    }

    pub(super) fn close(&mut self, id: u64) {
        self.unread.remove(&id);
        if let Some(inlet) = self.inlets.remove(&id) {
            debug!(target: TARGET, me = self.me.card.id.0, member = inlet.from.id.0, "connection for control messages ended");
            inlet.wire.release(&self.poller);
        }
    }
}
