//! Handles everything that arrives for a process: control messages of its host and of others,
//! streams, memory, and the ends of processes. The roster learns of them; descriptors and streams
//! go to the layers that wait for them.
use super::links::is_sent;
use super::net::dial_error;
use super::restarting;
use super::ways::{Rendezvous, Ways};
use super::{BulkLink, BulkWay, ControlPlane, ControlPlaneEvent, Death, STARVED_PAUSE};
use crate::shared::lock;
use crate::transfer::TransferWay;
use spindle_core::control::{self, ControlMessage, Me, Purpose};
use spindle_core::limits::QUERY_BYTES_MAX;
use spindle_core::{MemberId, ViewId};
use spindle_fabric::{Peer, RowDescriptors};
use spindle_transport::Connection;
use spindle_transport::net::NetEvent;
use spindle_transport::rendezvous::disclose;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// The size of the largest encoded view, in bytes: far more than a view at all limits takes.
const VIEW_BYTES_MAX: u64 = 64 << 20;
/// The most events of other hosts that are handled at one look.
pub(super) const NET_EVENTS_MAX: usize = 256;

impl ControlPlane {
    /// Handles what has arrived. The work is bounded: the rest is announced again.
    pub(crate) fn news(&mut self) -> Vec<ControlPlaneEvent> {
        let mut news = vec![];
        let told = self.notices.take();
        let starved = self.starved_until.take_if(|until| *until <= Instant::now()).is_some();
        if told.displaced {
            self.restore();
        }
        self.deaths.extend(told.deaths.into_iter().map(|(id, watch)| (id, Death::Reported(watch))));
        if told.messages || starved || !self.deaths.is_empty() {
            self.read(&mut news);
        }
        if told.net {
            self.read_net(&mut news);
        }
        self.read_board();
        self.tell_deaths();
        for (to, message, pipe) in told.pipes {
            if let Ways::Rendezvous(rendezvous) = &mut self.ways {
                let _ = rendezvous.outbox.push(to, message, &pipe.map(Arc::new));
            }
        }
        for (to, message, attachment) in told.outgoing {
            self.roster.post_with(to, message, attachment);
        }
        self.gather(&mut news);
        self.step_bootstrap();
        self.step_restart();
        self.flush();
        self.gather(&mut news);
        news
    }

    /// As [`news`](Self::news), including control messages that have come and were not announced
    /// yet.
    pub(crate) fn news_now(&mut self) -> Vec<ControlPlaneEvent> {
        self.notices.note_messages();
        self.news()
    }

    /// Passes on the findings of the roster. Messages about the creation of the group are handled
    /// here.
    pub(super) fn gather(&mut self, news: &mut Vec<ControlPlaneEvent>) {
        self.carry_out();
        let now = self.now();
        for one in self.roster.take_news() {
            if let control::ControlEvent::Died(id) = &one
                && let Some(restart) = &mut self.restart
            {
                restart.gone(*id);
            }
            if let control::ControlEvent::Bootstrap { from, nonce, config, words } = &one {
                if restarting::is_of_restart(words) {
                    self.hear_of_restart(*from, *nonce, *config, words);
                } else if let Some(bootstrap) = &mut self.bootstrap {
                    bootstrap.hear(*from, *nonce, *config, words, now);
                }
            } else {
                news.push(ControlPlaneEvent::Control(one));
            }
        }
    }

    /// Reports ended processes, after all their messages. A row that is on its way to this process
    /// is then not taken for a row of zeros.
    fn tell_deaths(&mut self) {
        let Ways::Rendezvous(rendezvous) = &mut self.ways else { return };
        if self.deaths.is_empty() || !rendezvous.control_socket.is_drained() {
            return;
        }
        for (id, death) in self.deaths.drain(..) {
            match death {
                Death::Found(pid, birth) => self.roster.found_ended(id, pid, birth),
                Death::Reported(watch) if rendezvous.is_death(id, watch) => self.roster.watched_ended(id),
                // Another process with the same id is watched now.
                Death::Reported(_) => {}
            }
        }
    }

    /// Reads the control socket.
    fn read(&mut self, news: &mut Vec<ControlPlaneEvent>) {
        loop {
            let Ways::Rendezvous(rendezvous) = &mut self.ways else { return };
            let Some((message, fds)) = rendezvous.control_socket.receive() else {
                if rendezvous.control_socket.is_starved() {
                    self.starved_until = Some(Instant::now() + STARVED_PAUSE);
                } else {
                    rendezvous.watch.messages_read();
                }
                return;
            };
            self.take(message, fds, news);
        }
    }

    /// Handles a control message of this host, with its descriptors.
    pub(super) fn take(&mut self, message: ControlMessage, fds: Vec<OwnedFd>, news: &mut Vec<ControlPlaneEvent>) {
        match message {
            ControlMessage::RowDescriptors {
                incarnation, view, from, pid, birth, at, bytes, address, rack, ..
            } => {
                if self.take_memory(incarnation, view, Me { id: from, pid, birth }, at..at.saturating_add(bytes), fds) {
                    self.roster.learn_near(from, address, rack);
                }
            }
            ControlMessage::State { view, from } => {
                if let Ok(pipe) = <[OwnedFd; 2]>::try_from(fds) {
                    news.push(ControlPlaneEvent::State { view, from, way: TransferWay::Pipe(pipe) });
                }
            }
            ControlMessage::Objects { from, reply } => {
                if let Ok(pipe) = <[OwnedFd; 2]>::try_from(fds) {
                    news.push(ControlPlaneEvent::Objects { from, reply, way: TransferWay::Pipe(pipe) });
                }
            }
            ControlMessage::Records { from, reply } => {
                if let Ok(pipe) = <[OwnedFd; 2]>::try_from(fds) {
                    news.push(ControlPlaneEvent::Records { from, reply, way: TransferWay::Pipe(pipe) });
                }
            }
            ControlMessage::Bulk { incarnation, view, from, number } => {
                if let Some(socket) = fds.into_iter().next() {
                    let link = BulkLink { number, from, way: BulkWay::Lend(socket) };
                    self.bulk_links.keep(self.roster.incarnation(), incarnation, view, link);
                }
            }
            message => {
                let disclosed = match (&message, fds.first()) {
                    (ControlMessage::View { bytes, .. }, Some(fd)) => disclose(fd, *bytes, VIEW_BYTES_MAX).ok(),
                    (ControlMessage::Query { bytes, .. } | ControlMessage::QueryAnswer { bytes, .. }, Some(fd)) => {
                        disclose(fd, *bytes, QUERY_BYTES_MAX as u64).ok()
                    }
                    _ => None,
                };
                self.hear(message, None, &disclosed.unwrap_or_default());
            }
        }
    }

    /// Handles a control message without descriptors. `sender` includes the process if it was sent
    /// over the network.
    fn hear(&mut self, message: ControlMessage, sender: Option<(control::Card, u128)>, attachment: &[u8]) {
        let now = self.now();
        self.roster.set_clock(self.clock.now());
        self.roster.hear(message, sender, attachment, now);
        self.carry_out();
    }

    /// Takes the memory of a process of this host, and the descriptor that reports its end. Returns
    /// whether both were taken.
    fn take_memory(
        &mut self,
        incarnation: u128,
        view: ViewId,
        from: Me,
        range: Range<u64>,
        mut fds: Vec<OwnedFd>,
    ) -> bool {
        let event = if fds.len() > 4 { fds.pop() } else { None };
        let Ok([row, event_count, pidfd, lease]) = <[OwnedFd; 4]>::try_from(fds) else { return false };
        let (at, bytes) = (range.start, range.end - range.start);
        let way = Peer::Here(RowDescriptors { row, at, bytes, lease, event_count, event });
        if !self.roster.handed_over(incarnation, view, from, way) {
            return false;
        }
        if self.roster.begin_watch(from.id)
            && let Ways::Rendezvous(rendezvous) = &mut self.ways
            && rendezvous.watch(from.id, pidfd).is_err()
        {
            self.roster.not_taken(view, from.id);
        }
        true
    }

    /// Takes what other members of this process have left on the board.
    fn read_board(&mut self) {
        let Ways::Local(board) = &self.ways else { return };
        let board = Arc::clone(board);
        for (view, from, parts) in board.take(self.me) {
            let from = Me { id: from, ..self.roster.process() };
            self.roster.handed_over(self.roster.incarnation(), view, from, Peer::Here(parts));
        }
        for id in lock(&board.gone).iter().copied() {
            if self.roster.is_member(id) && !self.roster.is_dead(id) {
                self.roster.has_ended(id);
            }
        }
    }

    /// Handles what came from other hosts. The rest is announced again.
    fn read_net(&mut self, news: &mut Vec<ControlPlaneEvent>) {
        for _ in 0..NET_EVENTS_MAX {
            let Ways::Rendezvous(Rendezvous { net: Some(net), .. }) = &mut self.ways else { return };
            let Some(event) = net.next() else { return };
            self.take_event(event, news);
        }
        self.notices.tell_of_net();
    }

    fn take_event(&mut self, event: NetEvent, news: &mut Vec<ControlPlaneEvent>) {
        match event {
            NetEvent::ControlMessage { from, process, message, attachment } => {
                self.hear(message, Some((from, process)), &attachment);
            }
            NetEvent::Stream { with, process, purpose, stream, dialled } => {
                let now = self.now();
                if self.roster.recognises(&with, &purpose, now) {
                    self.take_stream(with.id, process, purpose, stream, dialled, news);
                }
            }
            NetEvent::Failed { address, purpose, why } => {
                if is_sent(&purpose) {
                    let is_it = |id: &MemberId| self.roster.book().is_some_and(|book| book.far(*id) == Some(&address));
                    // Its thread no longer waits.
                    self.senders.retain(|(id, of), _| *of != purpose || !is_it(id));
                }
                self.roster.not_dialled(&address, &purpose, &dial_error(&why));
            }
            NetEvent::Reached { address, with } => self.roster.reached(&address, &with),
            NetEvent::Delayed { address, why } => self.roster.delayed(&address, why),
            NetEvent::LookedUp { address, found } => {
                self.roster.looked_up(&address, found.as_deref().map_err(ToString::to_string));
            }
            NetEvent::Lost { with } => self.roster.lost(&with),
            NetEvent::Ended { with, incarnation, view, answer_within } => {
                let now = self.now();
                self.roster.seems_ended(with.id, incarnation, view, answer_within, now);
            }
            NetEvent::Answers { with, process } => self.roster.answers(&with, process),
            _ => {}
        }
        self.carry_out();
    }

    fn take_stream(
        &mut self,
        with: MemberId,
        process: u128,
        purpose: Purpose,
        stream: Connection,
        dialled: bool,
        news: &mut Vec<ControlPlaneEvent>,
    ) {
        match purpose {
            Purpose::Part { incarnation, view } => {
                self.roster.keep_stream((incarnation, view), (with, process), Peer::There(stream));
            }
            Purpose::Observer { incarnation, view } if dialled => {
                self.roster.keep_observer_stream(incarnation, view, with, Peer::There(stream));
            }
            Purpose::Observer { incarnation, view } if incarnation == self.incarnation() => {
                news.push(ControlPlaneEvent::Observer { view, stream });
            }
            purpose if dialled && is_sent(&purpose) => {
                if let Some(sender) = self.senders.remove(&(with, purpose)) {
                    // The thread may have ended if the stream took too long.
                    let _ = sender.send(stream);
                }
            }
            Purpose::Objects { reply, .. } => {
                news.push(ControlPlaneEvent::Objects { from: with, reply, way: TransferWay::Stream(stream) });
            }
            Purpose::Records { reply } => {
                news.push(ControlPlaneEvent::Records { from: with, reply, way: TransferWay::Stream(stream) });
            }
            Purpose::State { view } => {
                news.push(ControlPlaneEvent::State { view, from: with, way: TransferWay::Stream(stream) })
            }
            Purpose::Bulk { incarnation, view, number } => {
                let link = BulkLink { number, from: with, way: BulkWay::Stream(stream) };
                self.bulk_links.keep(self.roster.incarnation(), incarnation, view, link);
            }
            // No other event is passed on.
            _ => {}
        }
    }
}
