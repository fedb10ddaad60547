//! Connection attempts and look-ups of names, and what follows from their results.
use super::Switch;
use super::lives::LivenessConnection;
use crate::net::TARGET;
use crate::net::connecting::{ConnectOutcome, Connecting};
use crate::net::error::NetError;
use crate::net::event::NetEvent;
use crate::net::poller::Token;
use crate::net::resolve::{ConnectTarget, Resolved};
use spindle_core::MemberId;
use spindle_core::control::{Address, Card, Purpose};
use tracing::debug;

impl Switch {
    pub(super) fn look_up(&mut self, address: Address) {
        if self.look_ups.values().any(|other| *other == address) {
            return;
        }
        let id = self.id();
        match self.resolver.resolve(id, &address) {
            Some(found) => self.looked_up(address, found),
            None => drop(self.look_ups.insert(id, address)),
        }
    }

    pub(super) fn looked_up(&self, address: Address, found: Resolved) {
        let address_of = |target| match target {
            ConnectTarget::Ip(ip) => Address::from(ip),
            ConnectTarget::Unix(_) => address.clone(),
        };
        let found = found.map(|targets| targets.into_iter().map(address_of).collect());
        let found = found.map_err(|source| NetError::Resolve { address: address.clone(), source });
        debug!(target: TARGET, me = self.me.card.id.0, %address, ?found, "name looked up");
        self.exchange.tell(NetEvent::LookedUp { address, found });
    }

    pub(super) fn attempt(&mut self, address: Address, whom: Option<MemberId>, purpose: Purpose, post: Option<u64>) {
        let id = self.id();
        let mut attempt = Connecting::new(Token::Connecting(id), address, whom, purpose, post);
        let found = self.resolver.resolve(id, &attempt.address);
        let outcome = found.and_then(|found| attempt.found(found, &self.me, &self.poller));
        self.connecting.insert(id, attempt);
        self.attempted(id, outcome);
    }

    pub(super) fn pursue(&mut self, id: u64) {
        let outcome = self.connecting.get_mut(&id).and_then(|attempt| attempt.progress(&self.me, &self.poller));
        self.attempted(id, outcome);
    }

    /// Handles the result of a connection attempt, if there is one.
    pub(super) fn attempted(&mut self, id: u64, outcome: Option<ConnectOutcome>) {
        let Some(outcome) = outcome else { return };
        let Some(attempt) = self.connecting.remove(&id) else { return };
        self.resolver.forget(id);
        let Connecting { address, purpose, post, .. } = attempt;
        if let Purpose::Life { incarnation, view } = purpose {
            match outcome {
                Ok((wire, with, process)) => {
                    self.keep(wire, LivenessConnection::new(with, incarnation, view, true), process)
                }
                Err(why) => {
                    self.tell_failure(&address, purpose, &why);
                    self.exchange.tell(NetEvent::Failed { address, purpose, why });
                }
            }
            return;
        }
        let Some(post) = post else {
            return self.exchange.tell(match outcome {
                Ok((wire, with, process)) => {
                    self.tell_connection(&with, &address, purpose, true);
                    NetEvent::Stream { with, process, purpose, stream: wire.release(&self.poller), dialled: true }
                }
                Err(why) => {
                    self.tell_failure(&address, purpose, &why);
                    NetEvent::Failed { address, purpose, why }
                }
            });
        };
        match &outcome {
            Ok((_, card, _)) => self.tell_connection(card, &address, purpose, true),
            Err(why) => self.tell_failure(&address, purpose, why),
        }
        let Some(found) = self.posts.get_mut(&post) else { return };
        match outcome {
            Ok((wire, card, _)) => {
                self.exchange.tell(NetEvent::Reached { address: address.clone(), with: card.clone() });
                let wire = wire.pass_on(&self.poller, Token::Post(post));
                for why in found.connected(wire, card) {
                    self.exchange.tell(NetEvent::Failed { address: address.clone(), purpose, why });
                }
                self.deliver(post);
            }
            Err(why) if why.is_final() => self.give_up(post, why),
            Err(why) => {
                self.exchange.tell(NetEvent::Delayed { address, why: why.reason() });
                found.disconnected(Some(why));
            }
        }
    }

    pub(super) fn tell_connection(&self, with: &Card, address: &Address, purpose: Purpose, dialled: bool) {
        let (me, member) = (self.me.card.id.0, with.id.0);
        debug!(target: TARGET, me, member, %address, ?purpose, dialled, "connected");
    }

    pub(super) fn tell_failure(&self, address: &Address, purpose: Purpose, why: &NetError) {
        debug!(target: TARGET, me = self.me.card.id.0, %address, ?purpose, reason = %why, "not connected");
    }
}
