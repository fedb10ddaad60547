//! The endpoint's thread. It accepts, connects, reads and writes, and waits only for the kernel's
//! list of descriptors that are ready.
use super::TARGET;
use super::connecting::{Connecting, Outcome};
use super::error::NetError;
use super::event::Event;
use super::exchange::{Command, Exchange};
use super::half_open::{HalfOpen, Source};
use super::hello::Hello;
use super::incoming::{Incoming, Turn};
use super::limits::{
    ACCEPTS_MAX, ANSWER_MIN, ANSWER_ROUND_TRIPS, ARRIVING_BYTES_MAX, FAREWELL, HELLO_DEADLINE, INLETS_MAX, LIVES_MAX,
    READ_BYTES, REFUSED_PAUSE, STILL_EVERY,
};
use super::listen::Listener;
use super::liveness::{Fate, LivenessConnections, round_trip};
use super::me::Me;
use super::messages::{Arriving, Brought, Stand};
use super::poller::{IN, Poller, Token, Waker, Wire};
use super::post::{Post, State};
use super::refusals::{Line, Refusals};
use super::resolve::{Found, Names, Resolver, Target};
use crate::stream::Connection;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with, getpeername};
use spindle_core::control::{Address, Card, Purpose};
use spindle_core::{MemberId, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, info, trace, warn};

pub(super) struct Switch {
    me: Me,
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
    inlets: BTreeMap<u64, Inlet>,
    posts: BTreeMap<u64, Post>,
    posts_by_address: BTreeMap<Address, u64>,
    /// Set when the liveness thread was first needed. `None` within: the system has none.
    liveness: Option<Option<LivenessConnections>>,
    lives: BTreeMap<u64, Life>,
    /// Inlets with bytes that have arrived and were not read.
    unread: BTreeSet<u64>,
    /// Whether the poller does not report inlets, because events are not being taken.
    paused: bool,
    /// The buffer through which inlets are read.
    buffer: Box<[u8]>,
}

/// An incoming connection for control messages.
#[derive(Debug)]
struct Inlet {
    wire: Wire,
    source: Source,
    from: Card,
    process: u128,
    arriving: Arriving,
}

/// A liveness connection.
#[derive(Debug)]
struct Life {
    with: Card,
    incarnation: u128,
    view: ViewId,
    /// Dialled by this process.
    dialled: bool,
    /// The time that packets take to the peer and back.
    round_trip: Duration,
    /// The connection, until both liveness threads have it.
    connection: Option<Connection>,
    /// The time by which both must have it.
    deadline: Instant,
}

impl Life {
    fn new(with: Card, incarnation: u128, view: ViewId, dialled: bool) -> Life {
        let (round_trip, deadline) = (Duration::ZERO, Instant::now() + HELLO_DEADLINE);
        Life { with, incarnation, view, dialled, round_trip, connection: None, deadline }
    }

    /// Returns the time by which it must have begun, if it has not.
    fn begins_by(&self) -> Option<Instant> {
        self.connection.as_ref().map(|_| self.deadline)
    }
}

impl Switch {
    pub(super) fn new(
        me: Me,
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
            if let State::Up(wire, _) = &mut post.state {
                wire.stream.finish();
            }
        }
    }

    fn wait(&mut self, end: Option<Instant>) {
        let posts = self.posts.values().filter_map(Post::wake_at);
        let connecting = self.connecting.values().map(Connecting::wake_at);
        let incoming = self.incoming.values().map(|incoming| incoming.deadline);
        let lives = self.lives.values().filter_map(Life::begins_by);
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
            } else if matches!(post.state, State::Pausing(until) if until <= now) {
                self.connect(id);
            }
        }
    }

    /// Records a refused connection or control message of `source`.
    fn refuse(&mut self, source: Source, reason: String) {
        if let Some(line) = self.refusals.note(source, reason, Instant::now()) {
            self.tell_refusal(&line);
        }
    }

    fn tell_refusal(&self, line: &Line) {
        let Line { count, reason, .. } = line;
        warn!(target: TARGET, me = self.me.card.id.0, from = line.from(), count, reason, "refused");
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

    fn has_said_everything(&self) -> bool {
        self.posts.values().all(|post| post.is_flushed() || matches!(post.state, State::Pausing(_)))
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send { to, parcel } => {
                trace!(target: TARGET, me = self.me.card.id.0, %to, bytes = parcel.len(), "message");
                let id = match self.posts_by_address.get(&to) {
                    Some(id) => *id,
                    None => self.add_post(to),
                };
                let Some(post) = self.posts.get_mut(&id) else { return };
                if let Err(why) = post.push(parcel) {
                    let address = post.address.clone();
                    if let Some(why) = why {
                        self.exchange.tell(Event::Failed { address, purpose: Purpose::Control, why });
                    }
                } else if post.can_send() {
                    self.deliver(id);
                }
            }
            Command::Dial { to, whom, purpose } => self.attempt(to, whom, purpose, None),
            Command::LookUp { address } => self.look_up(address),
            Command::Watch { to, whom, incarnation, view } => {
                let is_impossible = matches!(self.liveness, Some(None));
                let counts = |life: &Life| life.dialled || life.begins_by().is_none();
                let is_begun = self.lives.values().any(|life| life.with.id == whom && counts(life));
                if !is_impossible && !is_begun && !self.connecting.values().any(|attempt| attempt.watches(whom)) {
                    self.attempt(to, Some(whom), Purpose::Life { incarnation, view }, None);
                }
            }
            Command::Check { to, whom, incarnation, view } => {
                if !self.connecting.values().any(|attempt| attempt.watches(whom)) {
                    self.attempt(to, Some(whom), Purpose::Life { incarnation, view }, None);
                }
            }
            Command::Unwatch { whom } => {
                for (id, _) in self.connecting.extract_if(.., |_, attempt| attempt.watches(whom)) {
                    self.resolver.forget(id);
                }
                self.release(|life| life.with.id == whom);
            }
            Command::Forget { to } => {
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

    fn look_up(&mut self, address: Address) {
        if self.look_ups.values().any(|other| *other == address) {
            return;
        }
        let id = self.id();
        match self.resolver.resolve(id, &address) {
            Some(found) => self.looked_up(address, found),
            None => drop(self.look_ups.insert(id, address)),
        }
    }

    fn looked_up(&self, address: Address, found: Found) {
        let address_of = |target| match target {
            Target::Ip(ip) => Address::from(ip),
            Target::Unix(_) => address.clone(),
        };
        let found = found.map(|targets| targets.into_iter().map(address_of).collect());
        let found = found.map_err(|source| NetError::Resolve { address: address.clone(), source });
        debug!(target: TARGET, me = self.me.card.id.0, %address, ?found, "name looked up");
        self.exchange.tell(Event::LookedUp { address, found });
    }

    fn add_post(&mut self, address: Address) -> u64 {
        let id = self.id();
        self.posts_by_address.insert(address.clone(), id);
        self.posts.insert(id, Post::new(address));
        self.connect(id);
        id
    }

    /// Starts a connection attempt for control messages.
    fn connect(&mut self, post: u64) {
        let Some(found) = self.posts.get_mut(&post) else { return };
        found.state = State::Trying;
        let address = found.address.clone();
        self.attempt(address, None, Purpose::Control, Some(post));
    }

    fn attempt(&mut self, address: Address, whom: Option<MemberId>, purpose: Purpose, post: Option<u64>) {
        let id = self.id();
        let mut attempt = Connecting::new(Token::Connecting(id), address, whom, purpose, post);
        let found = self.resolver.resolve(id, &attempt.address);
        let outcome = found.and_then(|found| attempt.found(found, &self.me, &self.poller));
        self.connecting.insert(id, attempt);
        self.attempted(id, outcome);
    }

    fn pursue(&mut self, id: u64) {
        let outcome = self.connecting.get_mut(&id).and_then(|attempt| attempt.progress(&self.me, &self.poller));
        self.attempted(id, outcome);
    }

    /// Handles the result of a connection attempt, if there is one.
    fn attempted(&mut self, id: u64, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else { return };
        let Some(attempt) = self.connecting.remove(&id) else { return };
        self.resolver.forget(id);
        let Connecting { address, purpose, post, .. } = attempt;
        if let Purpose::Life { incarnation, view } = purpose {
            match outcome {
                Ok((wire, with, process)) => self.keep(wire, Life::new(with, incarnation, view, true), process),
                Err(why) => {
                    self.tell_failure(&address, purpose, &why);
                    self.exchange.tell(Event::Failed { address, purpose, why });
                }
            }
            return;
        }
        let Some(post) = post else {
            return self.exchange.tell(match outcome {
                Ok((wire, with, process)) => {
                    self.tell_connection(&with, &address, purpose, true);
                    Event::Stream { with, process, purpose, stream: wire.release(&self.poller), dialled: true }
                }
                Err(why) => {
                    self.tell_failure(&address, purpose, &why);
                    Event::Failed { address, purpose, why }
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
                self.exchange.tell(Event::Reached { address: address.clone(), with: card.clone() });
                let wire = wire.pass_on(&self.poller, Token::Post(post));
                for why in found.connected(wire, card) {
                    self.exchange.tell(Event::Failed { address: address.clone(), purpose, why });
                }
                self.deliver(post);
            }
            Err(why) if why.is_final() => self.give_up(post, why),
            Err(why) => {
                self.exchange.tell(Event::Delayed { address, why: why.reason() });
                found.disconnected(Some(why));
            }
        }
    }

    fn tell_connection(&self, with: &Card, address: &Address, purpose: Purpose, dialled: bool) {
        let (me, member) = (self.me.card.id.0, with.id.0);
        debug!(target: TARGET, me, member, %address, ?purpose, dialled, "connected");
    }

    fn tell_failure(&self, address: &Address, purpose: Purpose, why: &NetError) {
        debug!(target: TARGET, me = self.me.card.id.0, %address, ?purpose, reason = %why, "not connected");
    }

    fn give_up(&mut self, post: u64, why: NetError) {
        let Some(Post { address, .. }) = self.posts.remove(&post) else { return };
        info!(target: TARGET, me = self.me.card.id.0, %address, reason = %why, "control messages given up");
        self.posts_by_address.remove(&address);
        let dials: Vec<u64> =
            self.connecting.iter().filter(|(_, attempt)| attempt.post == Some(post)).map(|(id, _)| *id).collect();
        for id in dials {
            self.connecting.remove(&id);
            self.resolver.forget(id);
        }
        self.exchange.tell(Event::Failed { address, purpose: Purpose::Control, why });
    }

    /// Continues to send control messages.
    fn deliver(&mut self, id: u64) {
        let Some(post) = self.posts.get_mut(&id) else { return };
        if post.progress(&self.poller) {
            return;
        }
        let State::Up(_, with) = &post.state else { return };
        let (member, address, waiting) = (with.id.0, &post.address, post.has_messages());
        info!(target: TARGET, me = self.me.card.id.0, member, %address, waiting, "connection for control messages lost");
        self.exchange.tell(Event::Lost { with: with.clone() });
        if waiting {
            post.disconnected(None);
        } else {
            let address = post.address.clone();
            self.posts.remove(&id);
            self.posts_by_address.remove(&address);
        }
    }

    fn accept(&mut self) {
        for i in 0..self.listeners.len() {
            for _ in 0..ACCEPTS_MAX {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let (socket, from) = match acceptfrom_with(&self.listeners[i].socket, flags) {
                    Ok(accepted) => accepted,
                    Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                        self.refuse(Source::Unix, format!("the system can't accept connections: {errno}"));
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
    fn is_known(&self, source: Source) -> bool {
        let is_up = |post: &Post| matches!(&post.state, State::Up(wire, _) if source_at(wire.stream.fd()) == source);
        self.inlets.values().any(|inlet| inlet.source == source) || self.posts.values().any(is_up)
    }

    /// Closes a half-open connection for lack of a slot.
    fn dismiss(&mut self, victim: Option<u64>) {
        if let Some(incoming) = victim.and_then(|id| self.incoming.remove(&id)) {
            self.exchange.count(|dropped| dropped.incoming += 1);
            self.refuse(incoming.source, "too many connections that have not said hello".into());
        }
    }

    fn question(&mut self, id: u64) {
        let Some(incoming) = self.incoming.get_mut(&id) else { return };
        let crowded = (self.inlets.len() >= INLETS_MAX).then_some(self.inlets.len() as u32);
        let turn = incoming.progress(&self.me, crowded, &self.poller);
        match turn {
            Turn::Pending => {
                if incoming.wire.stream.peer().is_some() {
                    let victim = self.half_open.proven(id);
                    self.dismiss(victim);
                }
                return;
            }
            Turn::Refused(_) => self.exchange.count(|dropped| dropped.declined += 1),
            Turn::Garbage(_) => self.exchange.count(|dropped| dropped.incoming += 1),
            Turn::Ready(_) => {}
        }
        self.half_open.remove(id);
        let Some(Incoming { wire, source, .. }) = self.incoming.remove(&id) else { return };
        match turn {
            Turn::Ready(hello) => self.welcome(wire, source, hello),
            Turn::Refused(Some(reason)) | Turn::Garbage(reason) => self.refuse(source, reason),
            Turn::Refused(None) | Turn::Pending => {}
        }
    }

    fn welcome(&mut self, wire: Wire, source: Source, hello: Hello) {
        let Hello { purpose, card, process, .. } = hello;
        self.tell_connection(&card, &card.address, purpose, false);
        if let Purpose::Life { incarnation, view } = purpose {
            return self.keep(wire, Life::new(card, incarnation, view, false), process);
        }
        if purpose != Purpose::Control {
            let stream = wire.release(&self.poller);
            return self.exchange.tell(Event::Stream { with: card, process, purpose, stream, dialled: false });
        }
        // A process that dials again has given up its earlier connection. Data on that one is older
        // than data on this one.
        let same = |inlet: &Inlet| inlet.process == process && inlet.from.id == card.id;
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
        self.inlets.insert(id, Inlet { wire, source, from: card, process, arriving: Arriving::default() });
        self.read(id);
    }

    /// Gives a connection whose only meaning is its end to the liveness thread. If that thread
    /// can't have it, it is closed before its end means anything.
    fn keep(&mut self, wire: Wire, mut life: Life, process: u128) {
        self.exchange.tell(Event::Answers { with: life.with.clone(), process });
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
            self.lives.insert(self.next_id, Life { connection: Some(connection), ..life });
        }
    }

    /// Releases the selected liveness connections.
    fn release(&mut self, is_done: impl Fn(&Life) -> bool) {
        for (id, _) in self.lives.extract_if(.., |_, life| is_done(life)) {
            self.liveness.iter().flatten().for_each(|liveness| liveness.release(id));
        }
    }

    /// Handles the reports of the liveness thread.
    fn hear_of_lives(&mut self) {
        while let Some((id, fate)) = self.liveness.iter_mut().flatten().find_map(LivenessConnections::told) {
            match fate {
                // From now on, only the liveness thread has it.
                Fate::Begun => {
                    if let Some(life) = self.lives.get_mut(&id) {
                        life.connection = None;
                        let (me, member) = (self.me.card.id.0, life.with.id.0);
                        debug!(target: TARGET, me, member, view = life.view.0, "process watched");
                        self.exchange.tell(Event::Watched { with: life.with.clone() });
                    }
                }
                Fate::Over => drop(self.lives.remove(&id)),
                Fate::Ended => {
                    if let Some(Life { with, incarnation, view, round_trip, .. }) = self.lives.remove(&id) {
                        let (me, member) = (self.me.card.id.0, with.id.0);
                        info!(
                            target: TARGET, me, member, view = view.0,
                            evidence = "the connection that ends with its process has ended", "process has ended, or the way to it"
                        );
                        let answer_within = ANSWER_MIN + ANSWER_ROUND_TRIPS * round_trip;
                        self.exchange.tell(Event::Ended { with, incarnation, view, answer_within });
                    }
                }
            }
        }
    }

    /// Reads control messages, if there is room for them.
    fn read(&mut self, id: u64) {
        if self.exchange.is_full() {
            self.unread.insert(id);
            return;
        }
        match self.take_in(id) {
            Some(Stand::More) => {
                self.unread.insert(id);
            }
            Some(Stand::Over) => self.close(id),
            Some(Stand::Empty) | None => {}
        }
    }

    fn take_in(&mut self, id: u64) -> Option<Stand> {
        let exchange = &self.exchange;
        let inlet = self.inlets.get_mut(&id)?;
        let (from, process) = (&inlet.from, inlet.process);
        let stream = &mut *inlet.wire.stream;
        let (me, mut wrong) = (self.me.card.id.0, None);
        let stand = inlet.arriving.receive(stream, &mut self.buffer, from.id, |brought| match brought {
            Brought::ControlMessage(message, attachment) => {
                trace!(target: TARGET, me, from = from.id.0, ?message, attachment_bytes = attachment.len(), "control message received");
                exchange.tell(Event::ControlMessage { from: from.clone(), process, message, attachment })
            }
            Brought::Garbage => {
                wrong = Some("it sent what is no control message");
                exchange.count(|dropped| dropped.garbage += 1);
            }
            Brought::Forged => {
                wrong = Some("it sent a control message in the name of another");
                exchange.count(|dropped| dropped.forged += 1);
            }
        });
        let is_large = inlet.arriving.len() > ARRIVING_BYTES_MAX / INLETS_MAX;
        if let Some((wrong, source)) = wrong.map(|wrong| (wrong, inlet.source)) {
            self.refuse(source, wrong.into());
        }
        if is_large && self.inlets.values().map(|inlet| inlet.arriving.len()).sum::<usize>() > ARRIVING_BYTES_MAX {
            self.exchange.count(|dropped| dropped.garbage += 1);
            return Some(Stand::Over);
        }
        Some(stand)
    }

    fn close(&mut self, id: u64) {
        self.unread.remove(&id);
        if let Some(inlet) = self.inlets.remove(&id) {
            debug!(target: TARGET, me = self.me.card.id.0, member = inlet.from.id.0, "connection for control messages ended");
            inlet.wire.release(&self.poller);
        }
    }
}

/// Returns the source of a connection; `None`: through a Unix socket.
fn source_of(from: Option<SocketAddrAny>) -> Source {
    from.and_then(|from| SocketAddr::try_from(from).ok()).map_or(Source::Unix, Source::from)
}

fn source_at(fd: BorrowedFd<'_>) -> Source {
    source_of(getpeername(fd).ok().flatten())
}
