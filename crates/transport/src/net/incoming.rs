//! An incoming connection that has not said yet who it is, or that is being refused.
use super::half_open::ConnectionOrigin;
use super::hello::{Declined, Hello, HelloAnswer, HelloError, HelloReader, HelloWriter, Magic};
use super::limits::{HELLO_DEADLINE, READ_BYTES, READS_MAX};
use super::me::LocalEndpoint;
use super::poller::{Poller, Wire};
use super::security::is_tls_fault;
use crate::stream::Stream;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use spindle_core::control::VERSION;
use std::os::fd::BorrowedFd;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) wire: Wire,
    pub(super) source: ConnectionOrigin,
    pub(super) deadline: Instant,
    stage: IncomingStage,
    /// The reason of its refusal, once it is refused.
    refusal: Option<String>,
}

#[derive(Debug)]
enum IncomingStage {
    Listening(HelloReader),
    /// It is accepted with this hello, or refused.
    Answering(HelloWriter, Option<Hello>),
    /// It was told that it is refused, or that its TLS is invalid. If the system has bytes of it
    /// that were not read, closing at once could lose that answer.
    Draining {
        greeted: bool,
    },
}

/// The state of an incoming connection.
#[derive(Debug)]
pub(super) enum IncomingTurn {
    Pending,
    /// It is accepted.
    Ready(Hello),
    /// It was refused for this reason, and may have read that; `None`: it is this process itself.
    Refused(Option<String>),
    /// It is no Spindle process, for this reason.
    Garbage(String),
}

impl Incoming {
    pub(super) fn new(wire: Wire, source: ConnectionOrigin) -> Incoming {
        let stage = IncomingStage::Listening(HelloReader::new(Magic::Hello));
        Incoming { wire, source, deadline: Instant::now() + HELLO_DEADLINE, stage, refusal: None }
    }

    /// Does what can be done. `crowded` is the number of control connections, if no more are
    /// allowed. Must not be called again after any result but [`IncomingTurn::Pending`].
    pub(super) fn progress(&mut self, me: &LocalEndpoint, crowded: Option<u32>, poller: &Poller) -> IncomingTurn {
        let stream = &mut *self.wire.stream;
        if let IncomingStage::Listening(incoming) = &mut self.stage {
            let hello = match incoming.receive(stream) {
                Ok(Some(body)) => Hello::decode(body).map_err(HelloError::from),
                Ok(None) if Instant::now() < self.deadline => {
                    let wants_out = stream.holds_back() && stream.send(&[]).is_err();
                    self.wire.want_out(poller, wants_out);
                    return IncomingTurn::Pending;
                }
                Ok(None) => return IncomingTurn::Garbage("it said nothing in time".into()),
                Err(error) => Err(error),
            };
            let judged = match hello {
                Ok(hello) => judge(&hello, me, stream, crowded).map_or(Ok(hello), Err),
                Err(HelloError::Version(_)) => Err(Declined::Version(VERSION)),
                Err(HelloError::Io(error)) if is_tls_fault(&error) => {
                    self.stage = IncomingStage::Draining { greeted: false };
                    self.refusal = Some(error.to_string());
                    return self.drain();
                }
                Err(error) => return IncomingTurn::Garbage(error.to_string()),
            };
            self.refusal = judged.as_ref().err().and_then(reason);
            let answer = match &judged {
                Ok(_) => HelloAnswer::Welcome(me.card.clone(), me.process),
                Err(why) => HelloAnswer::Declined(why.clone()),
            };
            self.stage = IncomingStage::Answering(HelloWriter::new(answer.encode()), judged.ok());
        }
        if let IncomingStage::Answering(answer, hello) = &mut self.stage {
            match answer.send(stream) {
                Ok(true) => {}
                Ok(false) if Instant::now() < self.deadline => {
                    self.wire.want_out(poller, true);
                    return IncomingTurn::Pending;
                }
                Ok(false) | Err(_) => return IncomingTurn::Refused(self.refusal.take()),
            }
            self.wire.want_out(poller, false);
            if let Some(hello) = hello.take() {
                return IncomingTurn::Ready(hello);
            }
            self.wire.stream.finish();
            self.stage = IncomingStage::Draining { greeted: true };
        }
        self.drain()
    }

    fn drain(&mut self) -> IncomingTurn {
        match self.stage {
            _ if drain(self.wire.stream.fd()) && Instant::now() < self.deadline => IncomingTurn::Pending,
            IncomingStage::Draining { greeted: false } => {
                IncomingTurn::Garbage(self.refusal.take().unwrap_or_default())
            }
            _ => IncomingTurn::Refused(self.refusal.take()),
        }
    }
}

/// Returns the reason of a refusal for an operator of this process; `None` if there is nothing to
/// do.
fn reason(why: &Declined) -> Option<String> {
    Some(match why {
        Declined::Version(ours) => format!("it speaks another version than {ours}; update the older"),
        Declined::Group(ours) => format!("it looks for another group than {ours}"),
        Declined::Member(me) => format!("it looks for another member than {me} at this address"),
        Declined::IdConflict(id) => {
            format!("it has the id {id} of this process; give one of the two another id, or none")
        }
        Declined::Identity(id) => {
            format!("its certificate does not name {}, as that of id {id} must", super::names::name_of(*id))
        }
        Declined::TooMany(count) => format!("there are {count} control connections, and it would be one too many"),
        Declined::Myself => return None,
    })
}

/// Returns why an incoming connection is refused, if it is.
fn judge(hello: &Hello, me: &LocalEndpoint, stream: &dyn Stream, crowded: Option<u32>) -> Option<Declined> {
    if hello.group != me.group {
        return Some(Declined::Group(me.group.clone()));
    }
    // First, so that a process with another id's certificate learns nothing else.
    if !me.admits(hello.card.id, stream) {
        return Some(Declined::Identity(hello.card.id));
    }
    if hello.process == me.process {
        return Some(Declined::Myself);
    }
    if hello.wanted.is_some_and(|wanted| wanted != me.card.id) {
        return Some(Declined::Member(me.card.id));
    }
    if hello.card.id == me.card.id {
        return Some(Declined::IdConflict(me.card.id));
    }
    crowded.map(Declined::TooMany)
}

/// Reads and discards bytes as they arrive; returns whether more may come.
fn drain(socket: BorrowedFd<'_>) -> bool {
    let mut buffer = vec![0; READ_BYTES];
    for _ in 0..READS_MAX {
        match recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return false,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return errno == Errno::AGAIN,
        }
    }
    true
}
