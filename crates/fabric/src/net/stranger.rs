//! A connection from somebody who has not said yet who that is, or is being told no.
use super::endpoint::Me;
use super::hello::{Answer, Declined, Hello, HelloError, Incoming, Magic, Outgoing};
use super::limits::{HELLO_DEADLINE, READ_BYTES, READS_MAX};
use super::poller::{Poller, Wire};
use super::tls;
use crate::mail::VERSION;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::BorrowedFd;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) wire: Wire,
    pub(super) deadline: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Listening(Incoming),
    /// It is let in with this hello, or not.
    Answering(Outgoing, Option<Hello>),
    /// It was told no, or that its TLS is wrong. Closing at once could lose that, if the system has bytes of it that nobody has read.
    Draining {
        greeted: bool,
    },
}

/// How it stands with it.
#[derive(Debug)]
pub(super) enum Turn {
    Pending,
    /// It is let in.
    Ready(Hello),
    /// It was told no, and may have read it.
    Refused,
    /// It is none of us.
    Garbage,
}

impl Stranger {
    pub(super) fn new(wire: Wire) -> Stranger {
        let stage = Stage::Listening(Incoming::new(Magic::Hello));
        Stranger { wire, deadline: Instant::now() + HELLO_DEADLINE, stage }
    }

    /// Does what can be done. `crowded` is how many mail connections there are, if there may be no more. After anything but
    /// [`Turn::Pending`] not to be called again.
    pub(super) fn progress(&mut self, me: &Me, crowded: Option<u32>, poller: &Poller) -> Turn {
        let stream = &mut *self.wire.stream;
        if let Stage::Listening(incoming) = &mut self.stage {
            let hello = match incoming.receive(stream) {
                Ok(Some(body)) => Hello::decode(body).map_err(HelloError::from),
                Ok(None) if Instant::now() < self.deadline => {
                    let wants_out = stream.holds_back() && stream.send(&[]).is_err();
                    self.wire.want_out(poller, wants_out);
                    return Turn::Pending;
                }
                Ok(None) => return Turn::Garbage,
                Err(error) => Err(error),
            };
            let judged = match hello {
                Ok(hello) => judge(&hello, me, crowded).map_or(Ok(hello), Err),
                Err(HelloError::Version(_)) => Err(Declined::Version(VERSION)),
                Err(HelloError::Io(error)) if tls::is_fault(&error) => {
                    self.stage = Stage::Draining { greeted: false };
                    return self.drain();
                }
                Err(_) => return Turn::Garbage,
            };
            let answer = match &judged {
                Ok(_) => Answer::Welcome(me.card.clone()),
                Err(why) => Answer::Declined(why.clone()),
            };
            self.stage = Stage::Answering(Outgoing::new(answer.encode()), judged.ok());
        }
        if let Stage::Answering(answer, hello) = &mut self.stage {
            match answer.send(stream) {
                Ok(true) => {}
                Ok(false) if Instant::now() < self.deadline => {
                    self.wire.want_out(poller, true);
                    return Turn::Pending;
                }
                Ok(false) | Err(_) => return Turn::Refused,
            }
            self.wire.want_out(poller, false);
            if let Some(hello) = hello.take() {
                return Turn::Ready(hello);
            }
            self.wire.stream.finish();
            self.stage = Stage::Draining { greeted: true };
        }
        self.drain()
    }

    fn drain(&mut self) -> Turn {
        match self.stage {
            _ if drain(self.wire.stream.fd()) && Instant::now() < self.deadline => Turn::Pending,
            Stage::Draining { greeted: false } => Turn::Garbage,
            _ => Turn::Refused,
        }
    }
}

/// Why somebody is not let in.
fn judge(hello: &Hello, me: &Me, crowded: Option<u32>) -> Option<Declined> {
    if hello.group != me.group {
        return Some(Declined::Group(me.group.clone()));
    }
    if hello.process == me.process {
        return Some(Declined::Myself);
    }
    if hello.wanted.is_some_and(|wanted| wanted != me.card.id) {
        return Some(Declined::Member(me.card.id));
    }
    if hello.card.id == me.card.id {
        return Some(Declined::Namesake(me.card.id));
    }
    crowded.map(Declined::TooMany)
}

/// Reads what nobody wants, as it arrives; whether more may come.
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
