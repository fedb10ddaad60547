//! Incoming connections, until they have said what they are for.
use super::Switch;
use super::inlets::ControlInlet;
use super::lives::LivenessConnection;
use crate::net::TARGET;
use crate::net::event::NetEvent;
use crate::net::half_open::ConnectionOrigin;
use crate::net::hello::Hello;
use crate::net::incoming::{Incoming, IncomingTurn};
use crate::net::limits::{ACCEPTS_MAX, INLETS_MAX, REFUSED_PAUSE};
use crate::net::messages::{Arriving, Stand};
use crate::net::poller::{Token, Wire};
use crate::net::post::{Post, PostState};
use crate::net::refusals::RefusalLine;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with, getpeername};
use spindle_core::control::Purpose;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;
use tracing::warn;

impl Switch {
    pub(super) fn accept(&mut self) {
        for i in 0..self.listeners.len() {
            for _ in 0..ACCEPTS_MAX {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let (socket, from) = match acceptfrom_with(&self.listeners[i].socket, flags) {
                    Ok(accepted) => accepted,
                    Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                        self.refuse(ConnectionOrigin::Unix, format!("the system can't accept connections: {errno}"));
                        self.refused_until = Some(Instant::now() + REFUSED_PAUSE);
                        return;
                    }
                    Err(Errno::AGAIN) => break,
                    // The first connection in the queue is gone.
                    Err(_) => continue,
                };
                let id = self.id();
                let source = source_of(from);
                let wire =
                    self.me.wrap(socket, false).and_then(|stream| Wire::new(&self.poller, stream, Token::Incoming(id)));
                if let Ok(wire) = wire {
                    // The poller reports it at once if bytes have come with it.
                    let victim = self.half_open.admit(id, source, self.is_known(source));
                    self.incoming.insert(id, Incoming::new(wire, source));
                    self.dismiss(victim);
                }
            }
        }
    }

    /// Returns whether a control connection to or from this address is open.
    pub(super) fn is_known(&self, source: ConnectionOrigin) -> bool {
        let is_up =
            |post: &Post| matches!(&post.state, PostState::Up(wire, _) if source_at(wire.stream.fd()) == source);
        self.inlets.values().any(|inlet| inlet.source == source) || self.posts.values().any(is_up)
    }

    /// Closes a half-open connection for lack of a slot.
    pub(super) fn dismiss(&mut self, victim: Option<u64>) {
        if let Some(incoming) = victim.and_then(|id| self.incoming.remove(&id)) {
            self.exchange.count(|dropped| dropped.incoming += 1);
            self.refuse(incoming.source, "too many connections that have not said hello".into());
        }
    }

    pub(super) fn question(&mut self, id: u64) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let crowded = (self.inlets.len() >= INLETS_MAX).then_some(self.inlets.len() as u32);
        let turn = incoming.progress(&self.me, crowded, &self.poller);
        match turn {
            IncomingTurn::Pending => {
                if incoming.wire.stream.peer().is_some() {
                    let victim = self.half_open.proven(id);
                    self.dismiss(victim);
                }
                return;
            }
            IncomingTurn::Refused(_) => self.exchange.count(|dropped| dropped.declined += 1),
            IncomingTurn::Garbage(_) => self.exchange.count(|dropped| dropped.incoming += 1),
            IncomingTurn::Ready(_) => {}
        }
        self.half_open.remove(id);
        let Some(Incoming { wire, source, .. }) = self.incoming.remove(&id) else { return };
        match turn {
            IncomingTurn::Ready(hello) => self.welcome(wire, source, hello),
            IncomingTurn::Refused(Some(reason)) | IncomingTurn::Garbage(reason) => self.refuse(source, reason),
            IncomingTurn::Refused(None) | IncomingTurn::Pending => {}
        }
    }

    pub(super) fn welcome(&mut self, wire: Wire, source: ConnectionOrigin, hello: Hello) {
        let Hello { purpose, card, process, .. } = hello;
        self.tell_connection(&card, &card.address, purpose, false);
        if let Purpose::Life { incarnation, view } = purpose {
            return self.keep(wire, LivenessConnection::new(card, incarnation, view, false), process);
        }
        if purpose != Purpose::Control {
            let stream = wire.release(&self.poller);
            return self.exchange.tell(NetEvent::Stream { with: card, process, purpose, stream, dialled: false });
        }
        // A process that dials again has given up its earlier connection. Data on that one is older
        // than data on this one.
        let same = |inlet: &ControlInlet| inlet.process == process && inlet.from.id == card.id;
        let before: Vec<u64> = self.inlets.iter().filter(|(_, inlet)| same(inlet)).map(|(id, _)| *id).collect();
        for id in before {
            while self.take_in(id) == Some(Stand::More) {}
            self.close(id);
        }
        let id = self.id();
        let wire = wire.pass_on(&self.poller, Token::Inlet(id));
        if self.paused {
            self.poller.remove(wire.stream.fd());
        }
        self.inlets.insert(id, ControlInlet { wire, source, from: card, process, arriving: Arriving::default() });
        self.read(id);
    }

    /// Records a refused connection or control message of `source`.
    pub(super) fn refuse(&mut self, source: ConnectionOrigin, reason: String) {
        if let Some(line) = self.refusals.note(source, reason, Instant::now()) {
            self.tell_refusal(&line);
        }
    }

    pub(super) fn tell_refusal(&self, line: &RefusalLine) {
        let RefusalLine { count, reason, .. } = line;
        warn!(target: TARGET, me = self.me.card.id.0, from = line.from(), count, reason, "refused");
    }
}

/// Returns the source of a connection; `None`: through a Unix socket.
fn source_of(from: Option<SocketAddrAny>) -> ConnectionOrigin {
    from.and_then(|from| SocketAddr::try_from(from).ok()).map_or(ConnectionOrigin::Unix, ConnectionOrigin::from)
}

fn source_at(fd: BorrowedFd<'_>) -> ConnectionOrigin {
    source_of(getpeername(fd).ok().flatten())
}
