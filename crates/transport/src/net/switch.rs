//! The endpoint's thread. It accepts, connects, reads and writes, and waits only for the kernel's
//! list of descriptors that are ready.
//!
//! This file has its loop, its deadlines and its commands. The children have what happens on the
//! connections: `dialling.rs`, `accepting.rs`, `posts.rs` and `inlets.rs` for control messages in
//! both directions, and `lives.rs`.
use super::TARGET;
use super::connecting::Connecting;
use super::event::NetEvent;
use super::exchange::{EndpointCommand, Exchange};
use super::half_open::HalfOpen;
use super::incoming::Incoming;
use super::limits::{FAREWELL, READ_BYTES, REFUSED_PAUSE};
use super::listen::Listener;
use super::liveness::LivenessConnections;
use super::me::LocalEndpoint;
use super::poller::{IN, Poller, Token, Waker};
use super::post::{Post, PostState};
use super::refusals::Refusals;
use super::resolve::{Names, Resolver};
use spindle_core::control::{Address, Purpose};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::trace;

mod accepting;
mod dialling;
mod inlets;
mod lives;
mod posts;

use inlets::ControlInlet;
use lives::LivenessConnection;

pub(super) struct Switch {
    me: LocalEndpoint,
    exchange: Arc<Exchange>,
    tell: Box<dyn Fn() + Send + Sync>,
    poller: Poller,
    waker: Waker,
    resolver: Resolver,
    listeners: Vec<Listener>,
    /// Whether the poller reports events of the listeners.
    listens: bool,
    /// Until then, the system can't accept any connection.
    refused_until: Option<Instant>,
    /// The ids of the entries below. No id is used twice.
    next_id: u64,
    connecting: BTreeMap<u64, Connecting>,
    /// Names that are looked up for the caller.
    look_ups: BTreeMap<u64, Address>,
    incoming: BTreeMap<u64, Incoming>,
    half_open: HalfOpen,
    refusals: Refusals,
    inlets: BTreeMap<u64, ControlInlet>,
    posts: BTreeMap<u64, Post>,
    posts_by_address: BTreeMap<Address, u64>,
    /// Set when the liveness thread was first needed. `None` within: the system has none.
    liveness: Option<Option<LivenessConnections>>,
    lives: BTreeMap<u64, LivenessConnection>,
    /// Inlets with bytes that have arrived and were not read.
    unread: BTreeSet<u64>,
    /// Whether the poller does not report inlets, because events are not being taken.
    paused: bool,
    /// The buffer through which inlets are read.
    buffer: Box<[u8]>,
}

impl Switch {
    pub(super) fn new(
        me: LocalEndpoint,
        exchange: Arc<Exchange>,
        listeners: Vec<Listener>,
        names: Names,
        poller: Poller,
        waker: Waker,
        tell: Box<dyn Fn() + Send + Sync>,
    ) -> Switch {
        let resolved = waker.clone();
        Switch {
            me,
            exchange,
            tell,
            poller,
            waker,
            resolver: Resolver::new(names, move || resolved.wake()),
            listeners,
            listens: false,
            refused_until: None,
            next_id: 0,
            connecting: BTreeMap::new(),
            look_ups: BTreeMap::new(),
            incoming: BTreeMap::new(),
            half_open: HalfOpen::default(),
            refusals: Refusals::default(),
            inlets: BTreeMap::new(),
            posts: BTreeMap::new(),
            posts_by_address: BTreeMap::new(),
            liveness: None,
            lives: BTreeMap::new(),
            unread: BTreeSet::new(),
            paused: false,
            buffer: vec![0; READ_BYTES].into(),
        }
    }

    /// Runs until the exchange is stopped, and a moment longer if control messages wait.
    pub(super) fn run(mut self) {
        let mut farewell = None;
        loop {
            let stops = self.exchange.is_stopped();
            for command in self.exchange.commands() {
                self.obey(command);
            }
            while let Some((id, found)) = self.resolver.take() {
                if let Some(address) = self.look_ups.remove(&id) {
                    self.looked_up(address, found);
                    continue;
                }
                let outcome =
                    self.connecting.get_mut(&id).and_then(|attempt| attempt.found(found, &self.me, &self.poller));
                self.attempted(id, outcome);
            }
            self.expire(Instant::now());
            let end = if stops { Some(*farewell.get_or_insert_with(|| Instant::now() + FAREWELL)) } else { None };
            if end.is_some_and(|end| Instant::now() >= end || self.has_said_everything()) {
                break;
            }
            self.adapt(stops);
            for id in if self.paused { BTreeSet::new() } else { std::mem::take(&mut self.unread) } {
                self.read(id);
            }
            if self.exchange.take_untold() {
                (self.tell)();
            }
            self.wait(end);
        }
        for post in self.posts.values_mut() {
            if let PostState::Up(wire, _) = &mut post.state {
                wire.stream.finish();
            }
        }
    }

    fn wait(&mut self, end: Option<Instant>) {
        let posts = self.posts.values().filter_map(Post::wake_at);
        let connecting = self.connecting.values().map(Connecting::wake_at);
        let incoming = self.incoming.values().map(|incoming| incoming.deadline);
        let lives = self.lives.values().filter_map(LivenessConnection::begins_by);
        let wake_at = posts.chain(connecting).chain(incoming).chain(lives).chain(self.refused_until);
        let wake_at = wake_at.chain(self.refusals.wake_at()).chain(end).min();
        let mut at_most = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
        if !self.unread.is_empty() && !self.paused {
            at_most = Some(Duration::ZERO);
        }
        match self.poller.wait(at_most) {
            Ok(tokens) => tokens.into_iter().for_each(|token| self.attend(token)),
            Err(_) => std::thread::sleep(REFUSED_PAUSE),
        }
    }

    fn attend(&mut self, token: Token) {
        match token {
            Token::Wake => self.waker.heard(),
            Token::Listener => self.accept(),
            Token::Connecting(id) => self.pursue(id),
            Token::Incoming(id) => {
                self.half_open.heard(id);
                self.question(id);
            }
            Token::Inlet(id) => self.read(id),
            Token::Post(id) => self.deliver(id),
            Token::LivenessConnections => self.hear_of_lives(),
        }
    }

    /// Does what is due by now.
    fn expire(&mut self, now: Instant) {
        self.refused_until = self.refused_until.filter(|until| now < *until);
        self.refusals.due(now).iter().for_each(|line| self.tell_refusal(line));
        let due: Vec<u64> =
            self.connecting.iter().filter(|(_, attempt)| attempt.wake_at() <= now).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.pursue(id));
        let due: Vec<u64> =
            self.incoming.iter().filter(|(_, incoming)| incoming.deadline <= now).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.question(id));
        self.release(|life| life.begins_by().is_some_and(|by| by <= now));
        let is_due = |post: &Post| post.wake_at().is_some_and(|at| at <= now);
        let due: Vec<u64> = self.posts.iter().filter(|(_, post)| is_due(post)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(post) = self.posts.get_mut(&id) else { continue };
            if let Some(why) = post.gives_up(now) {
                self.give_up(id, why);
            } else if matches!(post.state, PostState::Pausing(until) if until <= now) {
                self.connect(id);
            }
        }
    }

    /// Listens and reads if there is room for the resulting events.
    fn adapt(&mut self, stops: bool) {
        let full = self.exchange.is_full();
        if full != self.paused {
            self.paused = full;
            for (id, inlet) in &self.inlets {
                match full {
                    true => self.poller.remove(inlet.wire.stream.fd()),
                    // If this fails, the connection is as good as dead, and no read detects that.
                    // But it can fail only for lack of memory.
                    false => drop(self.poller.add(inlet.wire.stream.fd(), Token::Inlet(*id), IN)),
                }
            }
            self.unread = self.inlets.keys().copied().collect();
        }
        let listens = !full && !stops && self.refused_until.is_none();
        if listens != self.listens {
            self.listens = listens;
            for listener in &self.listeners {
                match listens {
                    true => drop(self.poller.add(&listener.socket, Token::Listener, IN)),
                    false => self.poller.remove(&listener.socket),
                }
            }
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn obey(&mut self, command: EndpointCommand) {
        match command {
            EndpointCommand::Send { to, parcel } => {
                trace!(target: TARGET, me = self.me.card.id.0, %to, bytes = parcel.len(), "message");
                let id = match self.posts_by_address.get(&to) {
                    Some(id) => *id,
                    None => self.add_post(to),
                };
                let Some(post) = self.posts.get_mut(&id) else { return };
                if let Err(why) = post.push(parcel) {
                    let address = post.address.clone();
                    if let Some(why) = why {
                        self.exchange.tell(NetEvent::Failed { address, purpose: Purpose::Control, why });
                    }
                } else if post.can_send() {
                    self.deliver(id);
                }
            }
            EndpointCommand::Dial { to, whom, purpose } => self.attempt(to, whom, purpose, None),
            EndpointCommand::LookUp { address } => self.look_up(address),
            EndpointCommand::Watch { to, whom, incarnation, view } => {
                let is_impossible = matches!(self.liveness, Some(None));
                let counts = |life: &LivenessConnection| life.dialled || life.begins_by().is_none();
                let is_begun = self.lives.values().any(|life| life.with.id == whom && counts(life));
                if !is_impossible && !is_begun && !self.connecting.values().any(|attempt| attempt.watches(whom)) {
                    self.attempt(to, Some(whom), Purpose::Life { incarnation, view }, None);
                }
            }
            EndpointCommand::Check { to, whom, incarnation, view } => {
                if !self.connecting.values().any(|attempt| attempt.watches(whom)) {
                    self.attempt(to, Some(whom), Purpose::Life { incarnation, view }, None);
                }
            }
            EndpointCommand::Unwatch { whom } => {
                for (id, _) in self.connecting.extract_if(.., |_, attempt| attempt.watches(whom)) {
                    self.resolver.forget(id);
                }
                self.release(|life| life.with.id == whom);
            }
            EndpointCommand::Forget { to } => {
                if let Some(id) = self.posts_by_address.remove(&to) {
                    self.posts.remove(&id);
                }
                let dials: Vec<u64> =
                    self.connecting.iter().filter(|(_, attempt)| attempt.address == to).map(|(id, _)| *id).collect();
                for id in dials {
                    self.connecting.remove(&id);
                    self.resolver.forget(id);
                }
            }
        }
    }
}
