//! The connections between the members of a view: how they are made, continue from the view before,
//! and are made again.
//!
//! A connection whose two ends have [turned](OfiMeeting::carry) to this view continues in it. If
//! there is none, the member with the lower rank calls the other. With the call and the answer,
//! each sends its rank, the view it means, and the location of its copy of the other's row
//! (`hello.rs`). A call for another view is refused and has no effect. If a first call of this
//! member fails, the failure is reported, and the caller may try it again. Addresses travel by
//! other means.
//!
//! A meeting lasts as long as its view, and connects peers that are late, too. The same member
//! calls a broken connection again, after pauses that double, and it continues with the data that
//! the peer [has not applied](spindle_fabric::tcp) (docs/adr/0029). Another call of a peer replaces
//! its connection: its end may have broken without a report to this side. A peer whose connection
//! has ended in order may call again, too, because it has not learned of that end.
use crate::TARGET;
use crate::address::OfiAddress;
use crate::channel::Channel;
use crate::error::{CallFailure, OfiError};
use crate::hello::{HelloMismatch, LinkPurpose, OfiHello, RingTarget};
use crate::info::Info;
use crate::limits::{EVENTS_MAX, PAGE_BYTES};
use crate::link::{OfiLink, gone};
use crate::links::{EndedLink, OfiLinks};
use crate::network::EndpointAddress;
use crate::objects::{ActiveEndpoint, Adapter, ConnectionEvent, EndpointId};
use crate::provider::of as failed_at;
use spindle_core::{Layout, Rank, RowLayout, ViewId};
use spindle_fabric::tcp::Down;
use spindle_fabric::{CopyRegion, Mirror};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

mod connections;

/// The longest single sleep of a meeting while connections are made: not all providers report them
/// by a descriptor.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The same while the meeting waits for calls of peers.
const LOOK_FOR_CALLS: Duration = Duration::from_millis(10);
/// The first pause before a broken connection is called again, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(4);
const PAUSE_MAX: Duration = Duration::from_millis(64);
/// A call or an answer counts as lost if it leads to no connection in this time.
const CALL_MAX: Duration = Duration::from_millis(500);
/// The number of refused calls in a row that show that the peer no longer takes part in the view:
/// its host answers, and no process listens there.
const REFUSALS: u32 = 2;

/// A member and its peers, as far as they are connected.
#[derive(Debug)]
pub struct OfiMeeting {
    // Closed from the top.
    links: OfiLinks,
    /// By rank.
    peers: Box<[MetPeer]>,
    layout: Layout,
    me: Rank,
    purpose: LinkPurpose,
    /// The memory for the copies of the peers' rows.
    mirror: Mirror,
    refused: Vec<HelloMismatch>,
    down: VecDeque<(Rank, Down)>,
    up: VecDeque<Rank>,
    /// True if `up` has an entry that [`advance`](Self::advance) has not reported.
    is_up: bool,
    /// True if a connection is to be made, or made again, while the view runs.
    is_broken: bool,
    has_begun: bool,
}

/// The known state of a peer.
#[derive(Debug)]
struct MetPeer {
    seat: MeetingState,
    /// The address at which it was called.
    address: Option<OfiAddress>,
    /// The copy of its row, from the first connection on.
    copy: Option<Arc<CopyRegion>>,
    /// True if it has been connected.
    has_met: bool,
    /// True if it is not to be connected any more: it has turned to the next view, or broken the
    /// protocol, or its row comes by other means.
    is_done: bool,
    /// The next pause, and the number of calls that were refused in a row.
    pause: Duration,
    refusals: u32,
}

/// The state of the connection to one peer.
#[derive(Debug)]
enum MeetingState {
    /// No peer is expected: not yet, or no longer.
    Empty,
    /// It will call.
    Expected,
    /// It was called at this time and has not answered.
    Called(Instant),
    /// It has called, and was answered at this time.
    Answered(Instant),
    /// It has been connected since this time.
    Taken(Instant),
    /// Its connection has broken, and it is called again at this time.
    Broken(Instant),
    /// Its connection has ended in order.
    Over,
}

impl MeetingState {
    /// Returns true if a connection is to be made.
    fn is_open(&self) -> bool {
        !matches!(self, MeetingState::Empty | MeetingState::Taken(_) | MeetingState::Over)
    }
}

impl OfiMeeting {
    pub(crate) fn new(links: OfiLinks, layout: Layout, me: Rank, purpose: LinkPurpose, mirror: Mirror) -> OfiMeeting {
        let peer = |_: &RowLayout| MetPeer {
            seat: MeetingState::Empty,
            address: None,
            copy: None,
            has_met: false,
            is_done: false,
            pause: PAUSE_MIN,
            refusals: 0,
        };
        let peers = layout.rows().iter().map(peer).collect();
        let (refused, down, up, is_up, is_broken, has_begun) = Default::default();
        OfiMeeting { links, peers, layout, me, purpose, mirror, refused, down, up, is_up, is_broken, has_begun }
    }

    /// Returns the address at which this member listens, for its peers.
    pub fn address(&self) -> &OfiAddress {
        self.links.desk().network().address()
    }

    fn adapter(&self) -> &Arc<Adapter> {
        self.links.desk().adapter()
    }

    /// Lets `peer`, which has a lower rank, call from now on. Others are refused.
    ///
    /// # Panics
    /// If it has a higher rank, which has to be [called](Self::call).
    pub fn expect(&mut self, peer: Rank) {
        assert!(peer < self.me, "of two members the lower rank calls");
        let seat = &mut self.peers[peer.index()].seat;
        if matches!(seat, MeetingState::Empty) {
            *seat = MeetingState::Expected;
            self.is_broken |= self.has_begun;
        }
    }

    /// Calls `peer`, which has a higher rank, unless that is done already; again if an earlier call
    /// has failed.
    ///
    /// # Errors
    /// There is no room, no memory, or none that can be registered, or the address is unreachable.
    ///
    /// # Panics
    /// If it is not of the view, or has a lower rank, and so is to be [expected](Self::expect).
    pub fn call(&mut self, peer: Rank, address: &OfiAddress) -> Result<(), OfiError> {
        assert!(peer > self.me, "of two members the lower rank calls");
        if !matches!(self.peers[peer.index()].seat, MeetingState::Empty) {
            return Ok(());
        }
        self.begin_call(peer, address)
    }

    fn begin_call(&mut self, peer: Rank, address: &OfiAddress) -> Result<(), OfiError> {
        let info = self.adapter().info();
        let (name, format) = (info.provider(), info.address_format());
        if !address.is_of(format) {
            return Err(OfiError::Address { address: address.to_string(), provider: name });
        }
        let place = self.links.desk().place()?;
        let endpoint = self.adapter().endpoint_to(place.queue(), address.parts().1).map_err(failed_at(&name))?;
        let (link, hello) = self.link(peer, place, endpoint)?;
        if let Err(source) = link.endpoint().connect(address.parts().1, &hello.encode()) {
            self.links.forget(peer);
            return Err(OfiError::Refused { rank: peer, address: address.to_string(), source });
        }
        let known = &mut self.peers[peer.index()];
        (known.seat, known.address) = (MeetingState::Called(Instant::now()), Some(address.clone()));
        self.is_broken |= self.has_begun;
        Ok(())
    }

    /// Returns the copy of the row of `rank`.
    fn copy_of(&mut self, rank: Rank) -> Result<Arc<CopyRegion>, OfiError> {
        let theirs = self.layout.row(rank);
        let copy = match &self.peers[rank.index()].copy {
            Some(copy) => Arc::clone(copy),
            None => {
                let copy = self.mirror.copy(&format!("the copy of the row of member {rank}"), theirs.size);
                copy.map_err(|source| OfiError::Region { rank, source })?
            }
        };
        Ok(self.keep_copy(rank, copy))
    }

    fn keep_copy(&mut self, rank: Rank, copy: Arc<CopyRegion>) -> Arc<CopyRegion> {
        let theirs = self.layout.row(rank);
        let kept = &mut self.peers[rank.index()].copy;
        if kept.is_none() {
            // Providers may require that memory is there before it is registered.
            for at in (theirs.control..theirs.size).step_by(PAGE_BYTES) {
                // SAFETY: nothing is announced in a copy that no fabric has yet.
                unsafe { copy.write_words(at, &[0; 8]) };
            }
        }
        Arc::clone(kept.insert(copy))
    }

    fn link(
        &mut self,
        rank: Rank,
        place: EndpointAddress,
        endpoint: ActiveEndpoint,
    ) -> Result<(&mut OfiLink, OfiHello), OfiError> {
        let copy = self.copy_of(rank)?;
        let theirs = self.layout.row(rank);
        // Posts of a running view have gone to the peers that were connected.
        let resumes = self.peers[rank.index()].has_met || self.has_begun;
        let link = self.links.link(rank, (place, endpoint), copy, theirs, resumes)?;
        let hello = OfiHello::new(self.purpose, self.me, self.layout.row(self.me), theirs, link.mine());
        Ok((link, hello))
    }

    /// Lets the connections that both ends have [turned](Self::turn) to `next` continue there, with
    /// the members that have these ranks in `next`.
    ///
    /// A peer can't continue if its rows are longer than the connection's slots allow. It is to be
    /// called or expected in `next`, and computes the same answer. `next` must not have begun.
    pub fn carry(&mut self, next: &mut OfiMeeting, rank_of: impl Fn(Rank) -> Option<Rank>) {
        // A connection that has ended by now does not continue.
        let _ = self.links.look_at_events();
        self.links.look();
        for (rank, channel) in self.links.take_turned(next.purpose.view) {
            let known = &mut self.peers[rank.index()];
            (known.seat, known.is_done) = (MeetingState::Over, true);
            let address = known.address.clone();
            match rank_of(rank) {
                Some(rank) => next.adopt(rank, channel, address),
                None => drop(channel),
            }
        }
    }

    /// Lets the connection to `peer` continue in `next`, the view after this one: this member has
    /// nothing more to post to it here. All posted data leaves first.
    ///
    /// # Panics
    /// If it is not of the view.
    pub fn turn(&mut self, peer: Rank, next: ViewId) {
        self.links.turn(peer, next);
    }

    /// Takes over a connection of the view before, unless there is another.
    fn adopt(&mut self, rank: Rank, channel: Channel, address: Option<OfiAddress>) {
        let is_free = matches!(self.peers[rank.index()].seat, MeetingState::Empty | MeetingState::Expected);
        let (mine, theirs) = (self.layout.row(self.me).clone(), self.layout.row(rank).clone());
        if !is_free || self.has_begun || rank == self.me || !self.links.fits(&channel, &theirs) {
            return;
        }
        let Ok(copy) = self.copy_of(rank) else { return };
        let nowhere = RingTarget { address: 0, key: 0 };
        let (purpose, me) = (self.purpose, self.me);
        let expected = OfiHello::new(purpose, rank, &theirs, &mine, nowhere);
        let greet = |link: &OfiLink| (OfiHello::new(purpose, me, &mine, &theirs, link.mine()), expected);
        let adopted = self.links.adopt(rank, channel, copy, &theirs, greet);
        match adopted {
            Ok(()) => {
                let known = &mut self.peers[rank.index()];
                (known.seat, known.has_met, known.address) = (MeetingState::Taken(Instant::now()), true, address);
            }
            // It is made anew.
            Err(error) => debug!(target: TARGET, rank = rank.0, %error, "connection does not continue"),
        }
    }

    /// Returns true if `peer` is connected, or has been.
    ///
    /// # Panics
    /// If it is not of the view.
    pub fn is_connected(&self, peer: Rank) -> bool {
        self.peers[peer.index()].has_met
    }

    /// Makes progress without waiting. Returns true if all peers are connected that were called or
    /// are expected.
    ///
    /// # Errors
    /// A peer that was called refuses, or is not the member that was meant: it is not called again
    /// before the next [`call`](Self::call). Or the network fails. The meeting continues in both
    /// cases.
    pub fn progress(&mut self) -> Result<bool, OfiError> {
        let looked = self.links.look_at_events();
        self.attend()?;
        looked.map_err(failed_at(&self.adapter().info().provider()))?;
        // Providers connect while they are asked for completions, and some peers have begun to post
        // already.
        self.links.look();
        Ok(!self.peers.iter().any(|peer| peer.seat.is_open()))
    }

    /// Makes progress until all peers are connected that were called or are expected, for at most
    /// `at_most`.
    ///
    /// # Errors
    /// As [`progress`](Self::progress), and [`OfiError::TimedOut`].
    pub fn wait(&mut self, at_most: Duration) -> Result<(), OfiError> {
        let start = Instant::now();
        while !self.progress()? {
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                let waiting = |(rank, peer): (u32, &MetPeer)| peer.seat.is_open().then_some(rank);
                let missing = (0..).zip(&self.peers).filter_map(waiting).collect();
                return Err(OfiError::TimedOut { missing, waited: at_most });
            }
            self.links.nap(left.min(LOOK_AGAIN));
        }
        Ok(())
    }

    /// Returns the reasons of the calls that were refused.
    pub fn refused(&self) -> &[HelloMismatch] {
        &self.refused
    }

    /// Returns the connections.
    #[cfg(test)]
    pub(crate) fn links(&self) -> &OfiLinks {
        &self.links
    }

    /// The same, to post, to flush and to finish.
    #[cfg(test)]
    pub(crate) fn links_mut(&mut self) -> &mut OfiLinks {
        &mut self.links
    }

    /// Returns the longest sleep while connections are made again.
    fn patience(&self) -> Duration {
        let now = Instant::now();
        let waits = self.peers.iter().filter_map(|peer| match peer.seat {
            MeetingState::Broken(at) => Some(at.saturating_duration_since(now)),
            MeetingState::Called(_) | MeetingState::Answered(_) => Some(LOOK_AGAIN),
            MeetingState::Expected => Some(LOOK_FOR_CALLS),
            MeetingState::Empty | MeetingState::Taken(_) | MeetingState::Over => None,
        });
        waits.min().unwrap_or(Duration::MAX)
    }

    /// Handles the events of connections, and calls the peers for which it is time.
    #[cold]
    fn attend(&mut self) -> Result<(), OfiError> {
        let mut outcome = Ok(());
        while let Some(event) = self.links.next_event() {
            let heeded = match event {
                ConnectionEvent::Request { info, data } => self.answer(&info, &data),
                ConnectionEvent::Connected { endpoint, data } => self.connected(endpoint, &data),
                ConnectionEvent::Failed { endpoint, code } => self.lost(endpoint, code),
                ConnectionEvent::Shutdown { endpoint } => self.lost(endpoint, libc::ECONNRESET),
                ConnectionEvent::Other => Ok(()),
            };
            outcome = outcome.and(heeded);
        }
        while let Some(EndedLink { rank, down, is_through }) = self.links.next_ended() {
            match down {
                Down::Os { .. } if is_through => {
                    let known = &mut self.peers[rank.index()];
                    (known.seat, known.is_done) = (MeetingState::Over, true);
                }
                Down::Os { .. } => self.broken(rank),
                Down::Closed => self.peers[rank.index()].seat = MeetingState::Over,
                _ => {
                    let known = &mut self.peers[rank.index()];
                    (known.seat, known.is_done) = (MeetingState::Over, true);
                }
            }
            self.down.push_back((rank, down));
        }
        self.is_broken = self.peers.iter().any(|peer| self.is_awaited(peer));
        if self.is_broken {
            self.call_again();
        }
        outcome
    }

    /// Returns true if a connection to this peer is to be made by this code. The first one of a
    /// view that has not begun is the caller's task.
    fn is_awaited(&self, peer: &MetPeer) -> bool {
        (peer.has_met || self.has_begun) && peer.seat.is_open()
    }

    fn call_again(&mut self) {
        let now = Instant::now();
        for rank in (0..self.peers.len() as u32).map(Rank) {
            let known = &self.peers[rank.index()];
            let is_mine = known.has_met || self.has_begun;
            match known.seat {
                MeetingState::Called(since) if is_mine && now.duration_since(since) >= CALL_MAX => {
                    self.links.forget(rank);
                    self.call_failed(rank, libc::ETIMEDOUT);
                }
                MeetingState::Answered(since) if is_mine && now.duration_since(since) >= CALL_MAX => {
                    self.links.forget(rank);
                    self.peers[rank.index()].seat = MeetingState::Expected;
                }
                MeetingState::Broken(at) if at <= now => {
                    let Some(address) = known.address.clone() else {
                        self.peers[rank.index()].seat = MeetingState::Empty;
                        continue;
                    };
                    if let Err(error) = self.begin_call(rank, &address) {
                        debug!(target: TARGET, rank = rank.0, %error, "peer is not called");
                        match error {
                            OfiError::Refused { source, .. } => self.call_failed(rank, source.code),
                            _ => self.pause(rank),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Handles a broken connection to `rank`. It is made again at once if it lasted for long, and
    /// after a pause if not.
    fn broken(&mut self, rank: Rank) {
        let known = &mut self.peers[rank.index()];
        let was_long = matches!(known.seat, MeetingState::Taken(since) if since.elapsed() > PAUSE_MAX);
        if rank < self.me {
            known.seat = MeetingState::Expected;
        } else if was_long {
            (known.seat, known.pause) = (MeetingState::Broken(Instant::now()), PAUSE_MIN);
        } else {
            self.pause(rank);
        }
    }

    /// Handles a call of `rank` that has failed with `code`.
    fn call_failed(&mut self, rank: Rank, code: i32) {
        self.pause(rank);
        let known = &mut self.peers[rank.index()];
        if !known.has_met {
            // Another process may have its address by now. The peer sends its address again.
            known.seat = MeetingState::Empty;
            return;
        }
        known.refusals = if code == libc::ECONNREFUSED { known.refusals + 1 } else { 0 };
        if known.refusals == REFUSALS {
            self.down.push_back((rank, Down::Refused));
        }
        if known.refusals >= REFUSALS && self.links.is_finished() {
            // It has closed its port, and so needs no end of this view.
            known.seat = MeetingState::Over;
        }
    }

    /// Calls `rank` again after a pause.
    fn pause(&mut self, rank: Rank) {
        let known = &mut self.peers[rank.index()];
        known.seat = MeetingState::Broken(Instant::now() + known.pause);
        known.pause = (2 * known.pause).min(PAUSE_MAX);
    }

    fn answer(&mut self, request: &Info, data: &[u8]) -> Result<(), OfiError> {
        let failed = failed_at(&self.adapter().info().provider());
        let may_call = |peer: &MetPeer| match peer.seat {
            _ if peer.is_done => false,
            // A peer whose connection has ended in order has not learned of that.
            MeetingState::Expected | MeetingState::Answered(_) | MeetingState::Taken(_) | MeetingState::Over => true,
            MeetingState::Empty | MeetingState::Called(_) | MeetingState::Broken(_) => false,
        };
        let read = OfiHello::read(data, self.purpose, self.me, self.layout.rows());
        let (rank, target) = match read {
            Ok((rank, target)) if rank < self.me && may_call(&self.peers[rank.index()]) => (rank, target),
            read => {
                self.refuse(
                    request,
                    read.map_or_else(|why| why, |(got, _)| HelloMismatch::From { expected: None, got }),
                );
                return Ok(());
            }
        };
        // It does not call while its end of the connection is open.
        if self.links.replace(rank) {
            self.down.push_back((rank, gone()));
        }
        self.peers[rank.index()].seat = MeetingState::Expected;
        let network = Arc::clone(self.links.desk().network());
        let (link, hello) = self.link_for(request, rank).inspect_err(|_| {
            // Otherwise the call stays open for as long as the port. The caller may have closed it
            // already.
            let _ = network.listener.reject(request);
        })?;
        link.aim(target);
        if let Err(source) = link.endpoint().accept(&hello.encode()) {
            self.links.forget(rank);
            return Err(failed(source));
        }
        self.peers[rank.index()].seat = MeetingState::Answered(Instant::now());
        Ok(())
    }

    fn link_for(&mut self, request: &Info, rank: Rank) -> Result<(&mut OfiLink, OfiHello), OfiError> {
        let failed = failed_at(&self.adapter().info().provider());
        let place = self.links.desk().place()?;
        let endpoint = self.adapter().endpoint_for(place.queue(), request).map_err(failed)?;
        self.link(rank, place, endpoint)
    }

    fn refuse(&mut self, request: &Info, why: HelloMismatch) {
        debug!(target: TARGET, reason = %why, "call is refused");
        // Bounded, so that callers can't fill the memory.
        if self.refused.len() < EVENTS_MAX as usize {
            self.refused.push(why);
        }
        // The caller may have closed it already.
        let _ = self.links.desk().network().listener.reject(request);
    }

    fn connected(&mut self, endpoint: EndpointId, data: &[u8]) -> Result<(), OfiError> {
        let Some((rank, link)) = self.links.find(endpoint) else { return Ok(()) };
        let known = &mut self.peers[rank.index()];
        if let MeetingState::Called(_) = known.seat {
            let why = match OfiHello::read(data, self.purpose, self.me, self.layout.rows()) {
                Ok((from, target)) if from == rank => {
                    link.aim(target);
                    None
                }
                Ok((got, _)) => Some(HelloMismatch::From { expected: Some(rank), got }),
                Err(source) => Some(source),
            };
            if let Some(source) = why {
                self.links.forget(rank);
                if known.has_met || self.has_begun {
                    self.pause(rank);
                } else {
                    known.seat = MeetingState::Empty;
                }
                return Err(OfiError::Stranger { rank, source });
            }
        }
        link.set_connected();
        (known.seat, known.refusals) = (MeetingState::Taken(Instant::now()), 0);
        if std::mem::replace(&mut known.has_met, true) || self.has_begun {
            if !self.up.contains(&rank) {
                self.up.push_back(rank);
            }
            self.is_up = true;
        }
        self.links.try_all();
        Ok(())
    }

    /// Redirects calls to `rank`, and returns the previous address.
    #[cfg(test)]
    pub(crate) fn misdirect(&mut self, rank: Rank, address: OfiAddress) -> Option<OfiAddress> {
        self.peers[rank.index()].address.replace(address)
    }

    /// Handles a connection that has failed before it was made, or before its event was taken.
    pub(crate) fn lost(&mut self, endpoint: EndpointId, code: i32) -> Result<(), OfiError> {
        let Some((rank, _)) = self.links.find(endpoint) else { return Ok(()) };
        let (known, is_callee) = (&mut self.peers[rank.index()], rank > self.me);
        if let MeetingState::Taken(_) = known.seat {
            self.links.shut(endpoint);
            return Ok(());
        }
        self.links.forget(rank);
        if (known.has_met || self.has_begun) && is_callee {
            self.call_failed(rank, code);
            return Ok(());
        }
        known.seat = if is_callee { MeetingState::Empty } else { MeetingState::Expected };
        if known.has_met || self.has_begun {
            return Ok(());
        }
        let called = known.address.as_ref().filter(|_| is_callee);
        let address = called.map_or("the place that it called from".to_string(), OfiAddress::to_string);
        Err(OfiError::Refused { rank, address, source: CallFailure { call: "connecting", code } })
    }
}
