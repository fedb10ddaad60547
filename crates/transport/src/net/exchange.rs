//! The exchange between callers and the endpoint's thread: commands in one direction, events in the
//! other.
use super::error::NetError;
use super::event::{EndpointDrops, NetEvent};
use super::limits::{COMMAND_BYTES_MAX, COMMANDS_MAX, EVENT_BYTES_MAX, EVENTS_MAX};
use super::messages::QueuedMessage;
use super::poller::Waker;
use spindle_core::control::{Address, Purpose};
use spindle_core::{MemberId, ViewId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A command of a caller.
#[derive(Debug)]
pub(super) enum EndpointCommand {
    Send { to: Address, parcel: QueuedMessage },
    Dial { to: Address, whom: Option<MemberId>, purpose: Purpose },
    Forget { to: Address },
    Watch { to: Address, whom: MemberId, incarnation: u128, view: ViewId },
    Check { to: Address, whom: MemberId, incarnation: u128, view: ViewId },
    Unwatch { whom: MemberId },
    LookUp { address: Address },
}

#[derive(Debug)]
pub(super) struct Exchange {
    waker: Waker,
    stopped: AtomicBool,
    state: Mutex<ExchangeState>,
}

#[derive(Debug, Default)]
struct ExchangeState {
    commands: VecDeque<EndpointCommand>,
    command_bytes: usize,
    events: VecDeque<NetEvent>,
    event_bytes: usize,
    /// Whether there are events that the caller was not notified of.
    untold: bool,
    /// Whether nothing more is to be read until events are taken.
    full: bool,
    dropped: EndpointDrops,
}

impl Exchange {
    pub(super) fn new(waker: Waker) -> Exchange {
        Exchange { waker, stopped: AtomicBool::new(false), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        // No code here panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ask(&self, command: EndpointCommand) {
        let mut state = self.state();
        let bytes = command.bytes();
        // If there are other commands, the thread has been woken for them and has not looked yet.
        let is_first = state.commands.is_empty();
        if let EndpointCommand::Send { to, .. } = &command
            && (state.commands.len() >= COMMANDS_MAX || state.command_bytes + bytes > COMMAND_BYTES_MAX)
        {
            let why = NetError::QueueFull { address: to.clone(), messages: state.commands.len() as u64 };
            state.tell(NetEvent::Failed { address: to.clone(), purpose: Purpose::Control, why });
        } else {
            state.command_bytes += bytes;
            state.commands.push_back(command);
        }
        drop(state);
        if is_first {
            self.waker.wake();
        }
    }

    pub(super) fn commands(&self) -> VecDeque<EndpointCommand> {
        let mut state = self.state();
        state.command_bytes = 0;
        std::mem::take(&mut state.commands)
    }

    pub(super) fn tell(&self, event: NetEvent) {
        self.state().tell(event);
    }

    /// Returns whether there are events that the caller was not notified of. The caller must notify
    /// it now.
    pub(super) fn take_untold(&self) -> bool {
        std::mem::take(&mut self.state().untold)
    }

    pub(super) fn is_full(&self) -> bool {
        self.state().full
    }

    pub(super) fn receive(&self) -> Option<NetEvent> {
        let mut state = self.state();
        let event = state.events.pop_front()?;
        state.event_bytes -= event.bytes();
        if state.full && state.events.len() <= EVENTS_MAX / 2 && state.event_bytes <= EVENT_BYTES_MAX / 2 {
            state.full = false;
            self.waker.wake();
        }
        Some(event)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state().events.len()
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut EndpointDrops)) {
        count(&mut self.state().dropped);
    }

    pub(super) fn dropped(&self) -> EndpointDrops {
        self.state().dropped
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl ExchangeState {
    fn tell(&mut self, event: NetEvent) {
        self.event_bytes += event.bytes();
        self.events.push_back(event);
        self.untold = true;
        self.full |= self.events.len() >= EVENTS_MAX || self.event_bytes >= EVENT_BYTES_MAX;
    }
}

impl EndpointCommand {
    fn bytes(&self) -> usize {
        match self {
            EndpointCommand::Send { parcel, .. } => parcel.len(),
            EndpointCommand::Dial { .. }
            | EndpointCommand::Forget { .. }
            | EndpointCommand::LookUp { .. }
            | EndpointCommand::Watch { .. }
            | EndpointCommand::Check { .. }
            | EndpointCommand::Unwatch { .. } => 0,
        }
    }
}
