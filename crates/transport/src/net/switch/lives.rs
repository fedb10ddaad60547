//! Connections whose only meaning is their end: the liveness thread has them.
use super::Switch;
use crate::net::TARGET;
use crate::net::event::NetEvent;
use crate::net::limits::{ANSWER_MIN, ANSWER_ROUND_TRIPS, HELLO_DEADLINE, LIVES_MAX, STILL_EVERY};
use crate::net::liveness::{LivenessConnections, LivenessOutcome, round_trip};
use crate::net::poller::{IN, Token, Wire};
use crate::stream::Connection;
use spindle_core::ViewId;
use spindle_core::control::Card;
use std::time::{Duration, Instant};
use tracing::{debug, info};

/// A liveness connection.
#[derive(Debug)]
pub(super) struct LivenessConnection {
    pub(super) with: Card,
    pub(super) incarnation: u128,
    pub(super) view: ViewId,
    /// Dialled by this process.
    pub(super) dialled: bool,
    /// The time that packets take to the peer and back.
    pub(super) round_trip: Duration,
    /// The connection, until both liveness threads have it.
    pub(super) connection: Option<Connection>,
    /// The time by which both must have it.
    pub(super) deadline: Instant,
}

impl LivenessConnection {
    pub(super) fn new(with: Card, incarnation: u128, view: ViewId, dialled: bool) -> LivenessConnection {
        let (round_trip, deadline) = (Duration::ZERO, Instant::now() + HELLO_DEADLINE);
        LivenessConnection { with, incarnation, view, dialled, round_trip, connection: None, deadline }
    }

    /// Returns the time by which it must have begun, if it has not.
    pub(super) fn begins_by(&self) -> Option<Instant> {
        self.connection.as_ref().map(|_| self.deadline)
    }
}

impl Switch {
    /// Gives a connection whose only meaning is its end to the liveness thread. If that thread
    /// can't have it, it is closed before its end means anything.
    pub(super) fn keep(&mut self, wire: Wire, mut life: LivenessConnection, process: u128) {
        self.exchange.tell(NetEvent::Answers { with: life.with.clone(), process });
        let connection = wire.release(&self.poller);
        life.round_trip = round_trip(connection.fd());
        let start = || {
            let liveness = LivenessConnections::start(STILL_EVERY).ok()?;
            self.poller.add(liveness.fd()?, Token::LivenessConnections, IN).ok()?;
            Some(liveness)
        };
        if self.liveness.get_or_insert_with(start).is_none() {
            return;
        }
        if self.lives.len() >= LIVES_MAX || connection.holds_back() {
            return;
        }
        if life.dialled {
            // An earlier one, if this one is a sign of life.
            self.release(|old| old.dialled && old.with.id == life.with.id);
        }
        let Some(liveness) = self.liveness.iter().flatten().next() else { return };
        self.next_id += 1;
        if liveness.keep(self.next_id, connection.fd(), life.dialled).is_ok() {
            self.lives.insert(self.next_id, LivenessConnection { connection: Some(connection), ..life });
        }
    }

    /// Releases the selected liveness connections.
    pub(super) fn release(&mut self, is_done: impl Fn(&LivenessConnection) -> bool) {
        for (id, _) in self.lives.extract_if(.., |_, life| is_done(life)) {
            self.liveness.iter().flatten().for_each(|liveness| liveness.release(id));
        }
    }

    /// Handles the reports of the liveness thread.
    pub(super) fn hear_of_lives(&mut self) {
        while let Some((id, fate)) = self.liveness.iter_mut().flatten().find_map(LivenessConnections::told) {
            match fate {
                // From now on, only the liveness thread has it.
                LivenessOutcome::Begun => {
                    if let Some(life) = self.lives.get_mut(&id) {
                        life.connection = None;
                        let (me, member) = (self.me.card.id.0, life.with.id.0);
                        debug!(target: TARGET, me, member, view = life.view.0, "process watched");
                        self.exchange.tell(NetEvent::Watched { with: life.with.clone() });
                    }
                }
                LivenessOutcome::Over => drop(self.lives.remove(&id)),
                LivenessOutcome::Ended => {
                    if let Some(LivenessConnection { with, incarnation, view, round_trip, .. }) = self.lives.remove(&id)
                    {
                        let (me, member) = (self.me.card.id.0, with.id.0);
                        info!(
                            target: TARGET, me, member, view = view.0,
                            evidence = "the connection that ends with its process has ended", "process has ended, or the way to it"
                        );
                        let answer_within = ANSWER_MIN + ANSWER_ROUND_TRIPS * round_trip;
                        self.exchange.tell(NetEvent::Ended { with, incarnation, view, answer_within });
                    }
                }
            }
        }
    }
}
