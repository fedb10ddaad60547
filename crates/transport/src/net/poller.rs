//! The kernel's reports of which connections can move bytes.
use super::limits::EVENTS_PER_WAIT;
use crate::stream::Connection;
use crate::waiting::timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The owner of a descriptor's events. Several descriptors may have the same token; none is used
/// again after its owner is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    Wake,
    Listener,
    Connecting(u64),
    Incoming(u64),
    Inlet(u64),
    Post(u64),
    LivenessConnections,
}

impl Token {
    fn number(self) -> u64 {
        match self {
            Token::Wake => 0,
            Token::Listener => 1,
            Token::Connecting(id) => id << 3 | 2,
            Token::Incoming(id) => id << 3 | 3,
            Token::Inlet(id) => id << 3 | 4,
            Token::Post(id) => id << 3 | 5,
            Token::LivenessConnections => 6,
        }
    }

    fn of(number: u64) -> Token {
        let id = number >> 3;
        match number & 7 {
            0 => Token::Wake,
            1 => Token::Listener,
            2 => Token::Connecting(id),
            3 => Token::Incoming(id),
            4 => Token::Inlet(id),
            5 => Token::Post(id),
            _ => Token::LivenessConnections,
        }
    }
}

/// The kernel's list of descriptors.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
}

/// Ends a wait, from any thread.
#[derive(Clone, Debug)]
pub(super) struct Waker(Arc<OwnedFd>);

pub(super) const IN: EventFlags = EventFlags::IN;
pub(super) const OUT: EventFlags = EventFlags::OUT;

impl Poller {
    pub(super) fn new() -> io::Result<(Poller, Waker)> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        let poller = Poller { epoll };
        poller.add(&*waker.0, Token::Wake, IN)?;
        Ok((poller, waker))
    }

    pub(super) fn add(&self, fd: impl AsFd, token: Token, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token.number()), flags)?)
    }

    fn modify(&self, fd: impl AsFd, token: Token, flags: EventFlags) {
        // It was added, and is open.
        let modified = epoll::modify(&self.epoll, fd, EventData::new_u64(token.number()), flags);
        debug_assert!(modified.is_ok());
    }

    /// Closing would suffice, unless another owner holds a duplicate.
    pub(super) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until something can be done; `None`: without a limit.
    ///
    /// # Errors
    /// The system has no memory.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Result<Vec<Token>, Errno> {
        let timeout = at_most.map(timespec);
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_WAIT];
        match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            // Copied, because they may be unaligned.
            Ok((events, _)) => Ok(events.iter().map(|&Event { data, .. }| Token::of(data.u64())).collect()),
            Err(Errno::INTR) => Ok(vec![]),
            Err(errno) => Err(errno),
        }
    }
}

impl Waker {
    pub(super) fn wake(&self) {
        // It takes eight bytes unless its count overflows; then it is readable as well.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Clears the signal, so that the next one wakes again.
    pub(super) fn heard(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
    }
}

/// A connection in the poller's list.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: Connection,
    token: Token,
    wants_out: bool,
}

impl Wire {
    pub(super) fn new(poller: &Poller, stream: Connection, token: Token) -> io::Result<Wire> {
        poller.add(stream.fd(), token, IN)?;
        Ok(Wire { stream, token, wants_out: false })
    }

    /// Sets whether the poller reports that it can send.
    pub(super) fn want_out(&mut self, poller: &Poller, wants: bool) {
        if wants != self.wants_out {
            self.wants_out = wants;
            poller.modify(self.stream.fd(), self.token, if wants { IN | OUT } else { IN });
        }
    }

    pub(super) fn wants_out(&self) -> bool {
        self.wants_out
    }

    /// Removes it from the poller's list.
    pub(super) fn release(self, poller: &Poller) -> Connection {
        poller.remove(self.stream.fd());
        self.stream
    }

    /// Gives it another token in the poller's list.
    pub(super) fn pass_on(self, poller: &Poller, token: Token) -> Wire {
        poller.modify(self.stream.fd(), token, if self.wants_out { IN | OUT } else { IN });
        Wire { token, ..self }
    }
}
