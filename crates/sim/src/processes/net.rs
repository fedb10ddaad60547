//! The endpoint of a process: connection attempts, and control messages to other hosts.
use super::network::{PacketLoad, SimConnection};
use super::plan::MS;
use super::process::{ControlQueue, ControlQueueState, NetworkEvent, SimProcess};
use super::world::{DialAttempt, HostsWorld, LivenessWatch, ProcessEvent};
use spindle_core::control::{Address, Card, DialError, Purpose};
use spindle_core::{MemberId, ViewId};
use std::collections::VecDeque;

/// The time in which a connection attempt must connect, and again the time for the answer of the
/// peer.
const CONNECT_NS: u64 = 2_000 * MS;
/// The time after which a silent address is tried again.
const AGAIN_NS: u64 = 250 * MS;
const BACK_OFF_MIN_NS: u64 = 20 * MS;
const BACK_OFF_MAX_NS: u64 = 1_000 * MS;
/// The time that control messages wait for a connection.
const CONTROL_MESSAGES_NS: u64 = 5_000 * MS;
/// The silence after which a connection for control messages counts as broken.
const CONTROL_SILENCE_NS: u64 = 10_000 * MS;
/// The maximum number of control messages that wait for one address.
const CONTROL_MESSAGES_MAX: usize = 1024;

impl HostsWorld<'_> {
    pub(super) fn begin_attempt(&mut self, process: usize, address: Address, whom: Option<MemberId>, purpose: Purpose) {
        self.attempts_made += 1;
        let number = self.attempts_made;
        self.attempts.insert(number, DialAttempt { process, address, whom, purpose, began: self.now });
        self.push(self.now + 20_000, ProcessEvent::Attempt { number });
    }

    fn host_of(&self, process: usize) -> usize {
        self.scene.places[self.place_of(process)].host as usize
    }

    fn place_of(&self, process: usize) -> usize {
        self.process_places[process]
    }

    /// Makes a connection attempt.
    pub(super) fn attempt(&mut self, number: usize) {
        let Some(attempt) = self.attempts.get(&number).cloned() else { return };
        let from = self.host_of(attempt.process);
        if self.living(attempt.process).is_none() {
            self.attempts.remove(&number);
            return;
        }
        if self.full_until(attempt.process) > self.now {
            return self.push(self.now + 20_000, ProcessEvent::Failed { number, refused: false });
        }
        let gives_up = attempt.began + CONNECT_NS;
        let Some((to, listener)) = self.listeners.get(&attempt.address).copied() else {
            return self.push(self.now + 50_000, ProcessEvent::Failed { number, refused: true });
        };
        let is_unreachable = to != from && self.unreachable.contains(&attempt.address);
        if is_unreachable || !self.links.joins(from, to) {
            let (at, is_over) = (self.now + AGAIN_NS, self.now + AGAIN_NS >= gives_up);
            let event = if is_over {
                ProcessEvent::Failed { number, refused: false }
            } else {
                ProcessEvent::Attempt { number }
            };
            return self.push(at.min(gives_up), event);
        }
        let trip = self.links.round_trip(&mut self.random, from, to);
        let Some(target) = listener else {
            return self.push(self.now + trip, ProcessEvent::Failed { number, refused: true });
        };
        let paused_until = self.paused_until(target).max(self.full_until(target));
        if paused_until > self.now + CONNECT_NS {
            // The operating system accepts, but the process does not answer.
            return self.push(self.now + trip + CONNECT_NS, ProcessEvent::Failed { number, refused: false });
        }
        let answers = paused_until.max(self.now + trip + trip / 2);
        self.push(answers, ProcessEvent::Accepted { number });
    }

    fn full_until(&self, process: usize) -> u64 {
        self.processes[process].as_deref().map_or(0, |process| process.full_until)
    }

    fn paused_until(&self, process: usize) -> u64 {
        self.processes[process].as_deref().map_or(0, |process| process.paused_until)
    }

    /// Lets the process at the address learn which process dials.
    pub(super) fn accept(&mut self, number: usize) {
        let Some(attempt) = self.attempts.get(&number).cloned() else { return };
        let from = self.host_of(attempt.process);
        let Some((to, listener)) = self.listeners.get(&attempt.address).copied() else { return };
        let back = self.links.delay(&mut self.random, to, from);
        if !self.links.joins(from, to) {
            return self.push(self.now + CONNECT_NS, ProcessEvent::Failed { number, refused: false });
        }
        let Some(target) = listener.filter(|target| self.living(*target).is_some()) else {
            return self.push(self.now + back, ProcessEvent::Failed { number, refused: false });
        };
        let Some(dialler) = self.living(attempt.process).map(|process| (process.card.clone(), process.nonce)) else {
            self.attempts.remove(&number);
            return;
        };
        let accepting = self.living(target).map(|process| (process.card.clone(), process.nonce)).expect("it lives");
        let is_wrong = attempt.whom.is_some_and(|whom| whom != accepting.0.id);
        if target == attempt.process || is_wrong || dialler.0.id == accepting.0.id {
            return self.push(self.now + back, ProcessEvent::Concluded { number, connection: 0 });
        }
        if let Purpose::Life { incarnation, view } = attempt.purpose {
            self.lives.push(LivenessWatch { processes: [attempt.process, target], incarnation, view });
            self.attempts.remove(&number);
            self.push(self.now, ProcessEvent::Answers { process: target, with: dialler });
            return self.push(self.now + back, ProcessEvent::Answers { process: attempt.process, with: accepting });
        }
        let silence_ns = match attempt.purpose {
            Purpose::Control => CONTROL_SILENCE_NS,
            _ => self.scene.suspect_after_ns / 4,
        };
        let ends = [(attempt.process, from), (target, to)];
        let cards = [dialler.clone(), accepting];
        let connection = self.connections.add(SimConnection::new(ends, cards, silence_ns));
        let now = self.now;
        let purpose = attempt.purpose;
        if purpose == Purpose::Control {
            self.renew_inlet(target, attempt.process, connection);
        } else if let Some(process) = self.living(target) {
            let (with, nonce) = dialler;
            process.heard.push_back(NetworkEvent::Stream { with, process: nonce, purpose, connection, dialled: false });
        }
        self.wake(target, now);
        self.push(now + back, ProcessEvent::Concluded { number, connection });
    }

    /// Closes the previous connection of a process that dials again for control messages, because
    /// the process has given that connection up.
    fn renew_inlet(&mut self, at: usize, from: usize, connection: usize) {
        let now = self.now;
        let Some(process) = self.living(at) else { return };
        let before: Vec<usize> = process.inlets.iter().copied().collect();
        process.inlets.insert(connection);
        for number in before {
            if let Some(old) = self.connections.get_mut(number)
                && old.ends[0].process == from
            {
                old.ends[0].out.retain(|packet| packet.due <= now);
            }
        }
    }

    /// Handles the answer at the dialling process.
    pub(super) fn conclude(&mut self, number: usize, connection: usize) {
        let Some(attempt) = self.attempts.get(&number).cloned() else { return };
        let from = self.host_of(attempt.process);
        let Some(&(to, listener)) = self.listeners.get(&attempt.address) else { return };
        if connection == 0 {
            self.attempts.remove(&number);
            let wanted = attempt.whom;
            let found = listener.and_then(|target| self.living(target)).map(|process| process.card.id);
            let why = match (wanted, found) {
                _ if listener == Some(attempt.process) => DialError::Myself,
                (Some(wanted), Some(found)) if wanted != found => DialError::Elsewhere { wanted },
                _ => DialError::IdConflict("it has the same id".into()),
            };
            return self.give_up(&attempt, why);
        }
        if !self.links.joins(from, to) {
            // The other side takes the connection for open.
            self.break_half(connection);
            return self.push(self.now + CONNECT_NS, ProcessEvent::Failed { number, refused: false });
        }
        self.attempts.remove(&number);
        let Some(found) = self.connections.get(connection) else { return };
        let (with, process) = found.cards[1].clone();
        let now = self.now;
        let Some(dialler) = self.living(attempt.process) else { return self.close(connection, 0) };
        match attempt.purpose {
            Purpose::Control => {
                dialler.heard.push_back(NetworkEvent::Reached(attempt.address.clone(), with.clone()));
                match dialler.posts.get_mut(&attempt.address) {
                    Some(post) => (post.state, post.with) = (ControlQueueState::Up(connection), Some(with)),
                    None => self.close(connection, 0),
                }
            }
            purpose => {
                dialler.heard.push_back(NetworkEvent::Stream { with, process, purpose, connection, dialled: true })
            }
        }
        self.wake(attempt.process, now);
    }

    /// Breaks a connection whose dialling side was never established.
    fn break_half(&mut self, number: usize) {
        let now = self.now;
        if let Some(connection) = self.connections.get_mut(number) {
            connection.is_black = true;
            connection.ends[0].is_open = false;
            connection.ends[1].stuck = Some(now);
            let at = now + connection.silence_ns;
            self.push(at, ProcessEvent::Silence { connection: number, end: 1, since: now });
        }
    }

    pub(super) fn fail(&mut self, number: usize, refused: bool) {
        let Some(attempt) = self.attempts.remove(&number) else { return };
        let why = match refused {
            true => DialError::Refused("connection refused".into()),
            false => DialError::Other("no answer".into()),
        };
        self.give_up(&attempt, why);
    }

    /// Handles a failed connection attempt.
    fn give_up(&mut self, attempt: &DialAttempt, why: DialError) {
        let now = self.now;
        let Some(process) = self.living(attempt.process) else { return };
        let address = attempt.address.clone();
        if attempt.purpose != Purpose::Control {
            process.heard.push_back(NetworkEvent::Failed(address, attempt.purpose, why));
        } else if let Some(post) = process.posts.get_mut(&address) {
            let is_final = matches!(why, DialError::Myself | DialError::IdConflict(_));
            if is_final || now >= post.waiting_since + CONTROL_MESSAGES_NS {
                process.posts.remove(&address);
                process.heard.push_back(NetworkEvent::Failed(address, Purpose::Control, why));
            } else {
                post.state = ControlQueueState::Pausing(now + post.back_off);
                post.back_off = (2 * post.back_off).min(BACK_OFF_MAX_NS);
                process.heard.push_back(NetworkEvent::Delayed(address, "no connection".into()));
            }
        }
        self.wake(attempt.process, now);
    }

    /// Sends a control message to an address, for a process in its step.
    pub(super) fn post(
        &mut self,
        process: &mut SimProcess,
        address: Address,
        whom: Option<MemberId>,
        load: PacketLoad,
    ) {
        let is_new = !process.posts.contains_key(&address);
        let now = self.now;
        let post = process.posts.entry(address.clone()).or_insert_with(|| ControlQueue {
            messages: VecDeque::new(),
            state: ControlQueueState::Trying,
            waiting_since: now,
            back_off: BACK_OFF_MIN_NS,
            with: None,
        });
        if post.messages.len() >= CONTROL_MESSAGES_MAX {
            process.heard.push_back(NetworkEvent::Failed(address, Purpose::Control, DialError::Full));
            return;
        }
        post.messages.push_back((whom, load));
        if is_new {
            self.begin_attempt(process.number, address, None, Purpose::Control);
        }
    }

    /// Moves control messages of a process in its step. Returns the time of the next step.
    pub(super) fn move_posts(&mut self, process: &mut SimProcess) -> u64 {
        let mut wake_at = u64::MAX;
        let addresses: Vec<Address> = process.posts.keys().cloned().collect();
        for address in addresses {
            let number = process.number;
            let post = process.posts.get_mut(&address).expect("it is there");
            match post.state {
                ControlQueueState::Trying => {}
                ControlQueueState::Pausing(until) if until <= self.now => {
                    post.state = ControlQueueState::Trying;
                    self.begin_attempt(number, address, None, Purpose::Control);
                }
                ControlQueueState::Pausing(until) => wake_at = wake_at.min(until),
                ControlQueueState::Up(connection) => self.move_messages(process, &address, connection),
            }
        }
        wake_at
    }

    fn move_messages(&mut self, process: &mut SimProcess, address: &Address, number: usize) {
        let now = self.now;
        // A connection that both sides have closed no longer exists.
        let is_open = self.connections.get_mut(number).is_some_and(|connection| {
            let is_over = connection.ends[1].out.front().is_some_and(|packet| packet.due <= now);
            connection.ends[0].is_open && !is_over
        });
        let post = process.posts.get_mut(address).expect("it is there");
        let Some(with) = post.with.clone() else { return };
        if !is_open {
            self.close(number, 0);
            process.heard.push_back(NetworkEvent::Lost(with));
            post.waiting_since = now;
            post.state = ControlQueueState::Pausing(now + post.back_off);
            post.back_off = (2 * post.back_off).min(BACK_OFF_MAX_NS);
            if post.messages.is_empty() {
                process.posts.remove(address);
            }
            return self.wake(process.number, now + BACK_OFF_MIN_NS);
        }
        if !post.messages.is_empty() {
            post.back_off = BACK_OFF_MIN_NS;
        }
        for (whom, load) in std::mem::take(&mut post.messages) {
            match whom.filter(|whom| *whom != with.id) {
                None => self.send_over(number, 0, load, false),
                Some(wanted) => {
                    let why = DialError::Elsewhere { wanted };
                    process.heard.push_back(NetworkEvent::Failed(address.clone(), Purpose::Control, why));
                }
            }
        }
    }

    /// Watches a process of another host, for a process in its step.
    pub(super) fn watch_far(
        &mut self,
        process: &SimProcess,
        address: Address,
        id: MemberId,
        incarnation: u128,
        view: ViewId,
    ) {
        let is_it =
            |other: usize| self.processes[other].as_deref().is_some_and(|other| other.me.id == id && other.is_alive);
        if !self.lives.iter().any(|life| life.other(process.number).is_some_and(is_it)) {
            self.begin_attempt(process.number, address, Some(id), Purpose::Life { incarnation, view });
        }
    }

    pub(super) fn unwatch_far(&mut self, process: &SimProcess, id: MemberId) {
        let processes = &self.processes;
        let is_it = |other: usize| processes[other].as_deref().is_some_and(|other| other.me.id == id);
        self.lives.retain(|life| !life.other(process.number).is_some_and(is_it));
    }

    /// Returns the control messages that have arrived for a process in its step, with their
    /// senders. It also drops closed connections.
    pub(super) fn take_messages(&mut self, process: &mut SimProcess) -> Vec<(PacketLoad, Card, u128)> {
        let mut taken = vec![];
        let now = self.now;
        process.inlets.retain(|number| {
            let Some(connection) = self.connections.get_mut(*number) else { return false };
            let (card, nonce) = connection.cards[0].clone();
            let mut is_open = connection.ends[1].is_open;
            while connection.ends[0].out.front().is_some_and(|packet| packet.due <= now) {
                let load = connection.ends[0].out.pop_front().expect("it is there").load;
                match load {
                    PacketLoad::Reset => is_open = false,
                    load => taken.push((load, card.clone(), nonce)),
                }
            }
            connection.ends[1].is_open = is_open;
            is_open
        });
        taken
    }
}
