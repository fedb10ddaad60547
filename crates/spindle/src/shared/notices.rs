//! Notices of other threads to the one that polls a member.
use super::lock::lock;
use spindle_core::MemberId;
use spindle_core::control::ControlMessage;
use spindle_fabric::Doorbell;
use spindle_transport::rendezvous::Notice;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

/// The notices of the watch, and of threads that send states, to the polling thread.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    any: AtomicBool,
    messages: AtomicBool,
    displaced: AtomicBool,
    net: AtomicBool,
    deaths: Mutex<Vec<(MemberId, u64)>>,
    doorbell: Mutex<Option<Doorbell>>,
    /// Pipes that can be handed over, each with its receiver and control message.
    pipes: Mutex<Vec<(MemberId, ControlMessage, [OwnedFd; 2])>>,
    /// Control messages of other threads, each with its receiver and attachment.
    outgoing: Mutex<VecDeque<Outgoing>>,
    /// The thread that waits for events without a row.
    waiter: Mutex<Option<Thread>>,
}

/// A control message with its receiver and attachment.
pub(crate) type Outgoing = (MemberId, ControlMessage, Arc<[u8]>);

/// The most control messages of other threads that one look sends.
const OUTGOING_PER_LOOK: usize = 64;

/// The notices since the last look.
#[derive(Debug)]
pub(crate) struct Noticed {
    pub(crate) messages: bool,
    pub(crate) displaced: bool,
    pub(crate) net: bool,
    /// The watches that report ended processes.
    pub(crate) deaths: Vec<(MemberId, u64)>,
    pub(crate) pipes: Vec<(MemberId, ControlMessage, [OwnedFd; 2])>,
    pub(crate) outgoing: Vec<Outgoing>,
}

impl Notices {
    pub(crate) fn tell(&self, notice: Notice) {
        match notice {
            Notice::Death { token, serial } => lock(&self.deaths).push((MemberId(token), serial)),
            Notice::Messages => self.messages.store(true, Ordering::Release),
            Notice::Displaced => self.displaced.store(true, Ordering::Release),
        }
        self.ring();
    }

    /// Notes that data has come from other hosts.
    pub(crate) fn tell_of_net(&self) {
        self.net.store(true, Ordering::Release);
        self.ring();
    }

    /// Notes that the pipe for data to `to` is made.
    pub(crate) fn tell_of_pipe(&self, to: MemberId, message: ControlMessage, pipe: [OwnedFd; 2]) {
        lock(&self.pipes).push((to, message, pipe));
        self.ring();
    }

    /// Lets the polling thread send a control message.
    pub(crate) fn tell_of_message(&self, to: MemberId, message: ControlMessage, attachment: Arc<[u8]>) {
        lock(&self.outgoing).push_back((to, message, attachment));
        self.ring();
    }

    /// Withdraws a query that has not been sent.
    pub(crate) fn withdraw_query(&self, reply: u64) {
        let is_other =
            |(_, message, _): &Outgoing| !matches!(message, ControlMessage::Query { reply: of, .. } if *of == reply);
        lock(&self.outgoing).retain(is_other);
    }

    /// Wakes the thread that polls this member, or waits for its events, in whatever view it is.
    pub(crate) fn ring(&self) {
        // Release: a thread that sees the flag finds the notice.
        self.any.store(true, Ordering::Release);
        if let Some(doorbell) = &*lock(&self.doorbell) {
            doorbell.ring();
        }
        if let Some(waiter) = &*lock(&self.waiter) {
            waiter.unpark();
        }
    }

    /// Sets the doorbell that wakes the polling thread.
    pub(crate) fn set_doorbell(&self, doorbell: Doorbell) {
        *lock(&self.doorbell) = Some(doorbell);
    }

    /// Makes the next look find something.
    pub(crate) fn note(&self) {
        self.any.store(true, Ordering::Release);
    }

    /// Makes the next look read the control socket.
    pub(crate) fn note_messages(&self) {
        self.messages.store(true, Ordering::Release);
    }

    /// Returns whether there is a notice.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes the notices since the last call.
    pub(crate) fn take(&self) -> Noticed {
        // Acquire: pairs with the release of `ring`. Earlier notices are found now.
        self.any.swap(false, Ordering::AcqRel);
        let [messages, displaced, net] =
            [&self.messages, &self.displaced, &self.net].map(|told| told.swap(false, Ordering::AcqRel));
        let (deaths, pipes) = (std::mem::take(&mut *lock(&self.deaths)), std::mem::take(&mut *lock(&self.pipes)));
        let mut waiting = lock(&self.outgoing);
        let count = waiting.len().min(OUTGOING_PER_LOOK);
        let outgoing = waiting.drain(..count).collect();
        if !waiting.is_empty() {
            self.note();
        }
        Noticed { messages, displaced, net, deaths, pipes, outgoing }
    }

    /// Waits for a notice, up to `at_most`.
    pub(crate) fn wait(&self, at_most: Duration) {
        *lock(&self.waiter) = Some(thread::current());
        // A wake-up that comes before the park is kept.
        if !self.is_any() {
            thread::park_timeout(at_most);
        }
        *lock(&self.waiter) = None;
    }
}
