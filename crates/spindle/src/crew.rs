//! The other processes of a group, and the ways to them: a driver of the core's [`Roster`].
//!
//! The roster decides; a [`Crew`] passes it what has arrived, carries out its orders, and moves what only a process can hold: memory,
//! descriptors, streams.
use crate::bootstrap::Bootstrapping;
use crate::data_dir::DataDirError;
use crate::error::JoinError;
use crate::joining::random_word;
use crate::large;
use crate::network::{Net, Network, dial_error};
use crate::state::Way;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use spindle_core::control::{self, Book, Founding, Letter, Me, Order, Purpose, Request, Roster, To, Waits};
use spindle_core::ids::VISITOR_IDS_FROM;
use spindle_core::{MemberId, Process, Time, View, ViewId};
use spindle_fabric::fork::Owner;
use spindle_fabric::mail::{Fate, GroupName, Mailbox, RuntimeDir, Watch, disclose, fate, own_birth};
use spindle_fabric::net::Event;
use spindle_fabric::tcp::Connection;
use spindle_fabric::{Doorbell, MemberBell, Peer, PeerParts};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod notices;
mod ways;

pub(crate) use notices::Notices;
pub(crate) use ways::{Board, Handover};
use ways::{Mail, Ways};

/// Bytes of an encoded view, at most: far more than a view of all limits takes.
const VIEW_BYTES_MAX: u64 = 64 << 20;
/// The pause after a letter for whose descriptors there was no room.
const STARVED_PAUSE: Duration = Duration::from_millis(20);
/// What came from other hosts and is taken in at one look, at most.
const NET_EVENTS_MAX: usize = 256;
/// Views ahead of which ways in bulk groups are kept for.
const VIEWS_AHEAD_MAX: u64 = 4;
/// Ways in bulk groups that are kept until they are asked for.
const BULK_LINKS_MAX: usize = 1 << 12;

/// What has happened to this process's crew.
#[derive(Debug)]
pub(crate) enum News {
    /// Something about the membership.
    Control(control::News),
    /// The state of an application begins to come.
    State { view: ViewId, way: Way },
    /// A process that follows wants objects of a view.
    Wants(large::Order),
    /// Objects of a member begin to come, for which this process has asked.
    Objects { from: MemberId, reply: u64, way: Way },
    /// A process on another host wants to follow a view, over this stream.
    Guest { view: ViewId, stream: Connection },
}

/// The way to another member of a bulk group.
#[derive(Debug)]
pub(crate) struct BulkLink {
    /// Which group of the view.
    pub(crate) number: u64,
    /// The member that has made it.
    pub(crate) from: MemberId,
    pub(crate) way: BulkWay,
}

#[derive(Debug)]
pub(crate) enum BulkWay {
    /// The head of this host lends objects through this socket.
    Lend(OwnedFd),
    Stream(Connection),
}

/// One process's ways to the others: its address, what waits to be sent, and the watch over them.
#[derive(Debug)]
pub(crate) struct Crew {
    owner: Owner,
    ways: Ways,
    roster: Roster<Peer>,
    pub(crate) me: MemberId,
    origin: Instant,
    /// This process's memory, for views that have not ended.
    handovers: BTreeMap<ViewId, Handover>,
    begun: ViewId,
    /// When to read on, if there was no descriptor left for what is in the mailbox.
    starved_until: Option<Instant>,
    /// Threads that wait for a stream: for a state, or for objects.
    senders: BTreeMap<(MemberId, Purpose), Sender<Connection>>,
    /// Ways in bulk groups that others have handed over.
    bulk_links: Vec<(u128, ViewId, BulkLink)>,
    /// How a group between hosts is founded.
    bootstrap: Option<Bootstrapping>,
    notices: Arc<Notices>,
}

impl Crew {
    /// The crew of a process with an address of its own; of a member if it has a `bell`, by which the others know that it lives. With a
    /// `network` it has members on other hosts.
    pub(crate) fn new(
        mailbox: Mailbox,
        bell: Option<&MemberBell>,
        network: Option<(&Network, &RuntimeDir, &GroupName)>,
    ) -> Result<Crew, JoinError> {
        let notices = Arc::new(Notices::default());
        let told = Arc::clone(&notices);
        let watch = Watch::spawn(&mailbox, bell, move |notice| told.tell(notice))?;
        let pidfd = pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
        let pidfd = pidfd.map_err(|errno| JoinError::Descriptors(errno.into()))?;
        let me = mailbox.id();
        let open = |(network, dir, group): (&Network, &RuntimeDir, &GroupName)| {
            let told = Arc::clone(&notices);
            Net::open(network, group.clone(), dir, me, bell.is_some(), move || told.tell_of_net())
        };
        let (net, book) = network.map(open).transpose()?.unzip();
        let process = Process { id: me, nonce: (random_word()? as u32).max(1) };
        Ok(Crew::with(Ways::Mail(Mail::new(mailbox, watch, pidfd, net)), process, book, notices))
    }

    /// That of one of several members in this process.
    pub(crate) fn local(board: &Arc<Board>, me: MemberId) -> Crew {
        let notices = Arc::new(Notices::default());
        lock(&board.bells).insert(me, Arc::clone(&notices));
        Crew::with(Ways::Local(Arc::clone(board)), Process { id: me, nonce: 1 }, None, notices)
    }

    fn with(ways: Ways, me: Process, book: Option<Book>, notices: Arc<Notices>) -> Crew {
        let Process { id: me, nonce } = me;
        let (handovers, starved_until, senders, bulk_links, bootstrap) = Default::default();
        Crew {
            owner: Owner::new(),
            ways,
            roster: Roster::new(Me { id: me, pid: std::process::id(), birth: own_birth() }, nonce, book),
            me,
            origin: Instant::now(),
            handovers,
            begun: ViewId(0),
            starved_until,
            senders,
            bulk_links,
            bootstrap,
            notices,
        }
    }

    /// The moment from which the control plane counts time.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// The time, as the control plane is told it.
    pub(crate) fn now(&self) -> Time {
        Time(0) + self.origin.elapsed()
    }

    /// What is known of the processes.
    pub(crate) fn roster(&self) -> &Roster<Peer> {
        &self.roster
    }

    /// Lets the control plane act now, and carries out what it orders.
    pub(crate) fn act<R>(&mut self, act: impl FnOnce(&mut Roster<Peer>, Time) -> R) -> R {
        let now = self.now();
        let result = act(&mut self.roster, now);
        self.carry_out();
        result
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Waits for news, `at_most` that long.
    pub(crate) fn wait(&self, at_most: Duration) {
        self.notices.wait(self.patience().map_or(at_most, |patience| patience.min(at_most)));
    }

    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        match &self.ways {
            Ways::Mail(mail) => Some(&mail.mailbox),
            Ways::Local(_) => None,
        }
    }

    pub(crate) fn net(&self) -> Option<&Net> {
        match &self.ways {
            Ways::Mail(mail) => mail.net.as_ref(),
            Ways::Local(_) => None,
        }
    }

    /// What is known of other hosts.
    pub(crate) fn book(&self) -> Option<&Book> {
        self.roster.book()
    }

    pub(crate) fn set_incarnation(&mut self, incarnation: u128) {
        self.roster.set_incarnation(incarnation);
    }

    pub(crate) fn incarnation(&self) -> u128 {
        self.roster.incarnation()
    }

    pub(crate) fn set_doorbell(&self, doorbell: Doorbell) {
        self.notices.set_doorbell(doorbell);
    }

    pub(crate) fn is_far(&self, id: MemberId) -> bool {
        self.roster.is_far(id)
    }

    pub(crate) fn pid(&self, id: MemberId) -> u32 {
        if matches!(self.ways, Ways::Local(_)) { std::process::id() } else { self.roster.pid(id) }
    }

    /// Whether there may be news.
    #[inline]
    pub(crate) fn has_notice(&self) -> bool {
        self.notices.is_any()
    }

    /// Whether there are no news, and no letters that could be sent now.
    pub(crate) fn is_calm(&self) -> bool {
        let is_empty = match &self.ways {
            Ways::Mail(mail) => mail.outbox.is_empty(),
            Ways::Local(_) => true,
        };
        !self.has_notice() && is_empty && self.starved_until.is_none()
    }

    /// When to come again for letters that could not be sent.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let starved = self.starved_until.map(|until| until.saturating_duration_since(Instant::now()));
        let bootstrap = self.bootstrap.as_ref().map(|bootstrap| bootstrap.patience(self.now()));
        let outbox = match &self.ways {
            Ways::Mail(mail) => mail.outbox.patience(),
            Ways::Local(_) => None,
        };
        outbox.into_iter().chain(starved).chain(bootstrap).min()
    }

    /// Takes in what has happened. Bounded work: what is left makes noise again.
    pub(crate) fn news(&mut self) -> Vec<News> {
        let mut news = vec![];
        let told = self.notices.take();
        let starved = self.starved_until.take_if(|until| *until <= Instant::now()).is_some();
        if told.displaced {
            self.restore();
        }
        // Before the deaths: what the dead have sent is here.
        if told.mail || starved || !told.deaths.is_empty() {
            self.read(&mut news);
        }
        if told.net {
            self.read_net(&mut news);
        }
        self.read_board();
        for id in told.deaths {
            self.roster.watched_ended(id);
        }
        for (to, letter, pipe) in told.pipes {
            if let Ways::Mail(mail) = &mut self.ways {
                let _ = mail.outbox.push(to, letter, &pipe.map(Arc::new));
            }
        }
        self.gather(&mut news);
        self.step_bootstrap();
        self.flush();
        self.gather(&mut news);
        news
    }

    /// As [`news`](Self::news), with the letters that are here and were not announced yet.
    pub(crate) fn news_now(&mut self) -> Vec<News> {
        self.notices.note_mail();
        self.news()
    }

    /// Passes on what the roster has found out. What concerns the founding is heard here.
    fn gather(&mut self, news: &mut Vec<News>) {
        self.carry_out();
        let now = self.now();
        for one in self.roster.take_news() {
            if let control::News::Founding { from, nonce, config, words } = &one {
                if let Some(bootstrap) = &mut self.bootstrap {
                    bootstrap.hear(*from, *nonce, *config, words, now);
                }
            } else {
                news.push(News::Control(one));
            }
        }
    }

    /// Carries out what the roster orders.
    fn carry_out(&mut self) {
        while let Some(order) = self.roster.next_order() {
            match &mut self.ways {
                Ways::Mail(_) => self.carry_out_one(order),
                Ways::Local(board) => {
                    if let Order::HandOver { view, to } = order {
                        let Some(handover) = self.handovers.get(&view) else { continue };
                        for to in to {
                            let Ok(parts) = handover.try_clone() else { continue };
                            board.leave(to, || drop(lock(&board.parts).insert((view, self.me, to), parts)));
                        }
                    }
                }
            }
        }
        if let Ways::Mail(mail) = &mut self.ways {
            mail.forget_enclosed();
        }
        if self.roster.has_news() {
            self.notices.note();
        }
    }

    fn carry_out_one(&mut self, order: Order) {
        let Ways::Mail(mail) = &mut self.ways else { return };
        match order {
            Order::Near { to, letter, enclosure } => {
                let fds = match letter.fds() {
                    0 => vec![],
                    _ => match mail.enclose(&enclosure) {
                        Some(fd) => vec![fd],
                        None => return,
                    },
                };
                // Full: a process that takes no letters is suspected soon.
                let _ = mail.outbox.push(to, letter, &fds);
            }
            Order::Far { address, whom, letter, enclosure } => {
                if let Some(net) = &mail.net {
                    net.endpoint().send(&address, whom, &letter, &enclosure);
                }
            }
            Order::HandOver { view, to } => self.hand_over(view, &to),
            Order::Dial { address, whom, purpose } => {
                if let Some(net) = &mail.net {
                    net.endpoint().dial(&address, Some(whom), purpose);
                }
            }
            Order::Watch { id, pid, birth } => self.watch(id, pid, birth),
            Order::Unwatch(id) => drop(mail.watch.unwatch(id.0)),
            Order::WatchFar { address, id, view } => {
                if let Some(net) = &mail.net {
                    net.endpoint().watch(&address, id, self.roster.incarnation(), view);
                }
            }
            Order::UnwatchFar(id) => {
                if let Some(net) = &mail.net {
                    net.endpoint().unwatch(id);
                }
            }
            Order::Forget(id) => mail.outbox.forget(id),
            Order::Retain(wanted) => {
                mail.mailbox.retain_peers(|id| wanted.contains(&id));
                // A process that waits to be let in asks again, and visitors wait for one answer only.
                let is_outside = |id: &MemberId| id.0 < VISITOR_IDS_FROM && !wanted.contains(id);
                let outside: BTreeSet<MemberId> = mail.outbox.addressees().filter(is_outside).collect();
                outside.into_iter().for_each(|id| mail.outbox.forget(id));
            }
            Order::Restore => self.restore(),
            Order::LookUp(name) => {
                if let Some(net) = &mail.net {
                    net.endpoint().look_up(&name);
                }
            }
            Order::Probe(ids) => {
                let is_gone = |id: &MemberId| mail.mailbox.reaches(*id).is_ok_and(|reaches| !reaches);
                self.roster.unreached(ids.into_iter().filter(is_gone));
            }
        }
    }

    /// Watches a process of this host. If the system has no room for it: its memory comes with a descriptor of it, or it is suspected.
    fn watch(&mut self, id: MemberId, pid: u32, birth: Option<control::Birth>) {
        let Ways::Mail(mail) = &self.ways else { return };
        let fate = match birth {
            Some(birth) => fate(pid, birth),
            None => i32::try_from(pid)
                .ok()
                .and_then(Pid::from_raw)
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
                .map_or(Fate::Unknown, Fate::Lives),
        };
        match fate {
            Fate::Lives(pidfd) => {
                if mail.watch.watch(id.0, pidfd).is_err() {
                    self.roster.unwatched(id);
                }
            }
            Fate::Unknown => self.roster.unwatched(id),
            Fate::Ended => {
                self.roster.unwatched(id);
                self.roster.has_ended(id);
            }
        }
    }

    /// Makes the socket of this process again, if it was removed. If that can't be done now the watch says so again.
    fn restore(&mut self) {
        let Ways::Mail(mail) = &mut self.ways else { return };
        let is_renewed = mail.mailbox.restore().unwrap_or(false);
        if is_renewed && mail.watch.renew(&mail.mailbox).is_err() {
            // There is no descriptor left. Letters are looked for without being told.
            self.starved_until = Some(Instant::now() + STARVED_PAUSE);
        }
    }

    /// From now on this process takes part in founding a group, or is a member that others find.
    pub(crate) fn set_bootstrap(&mut self, bootstrap: Bootstrapping) {
        self.bootstrap = Some(bootstrap);
    }

    /// From now on it does not.
    pub(crate) fn take_bootstrap(&mut self) -> Option<Bootstrapping> {
        self.bootstrap.take()
    }

    pub(crate) fn bootstrap(&mut self) -> Option<&mut Bootstrapping> {
        self.bootstrap.as_mut()
    }

    /// What this process waits for.
    pub(crate) fn waits(&self) -> Option<Waits> {
        self.bootstrap.as_ref()?.waits()
    }

    /// This process is a member of the group now, which it has not founded.
    ///
    /// # Errors
    /// That could not be written down.
    pub(crate) fn has_joined(&mut self) -> Result<(), DataDirError> {
        let (incarnation, now) = (self.incarnation(), self.now());
        if let Some(bootstrap) = &mut self.bootstrap {
            bootstrap.joined(incarnation, now);
        }
        self.step_bootstrap();
        self.bootstrap.as_mut().and_then(Bootstrapping::take_failure).map_or(Ok(()), Err)
    }

    /// Makes [`news`](Self::news) be looked for if something has to be sent to the seeds.
    pub(crate) fn look_at_bootstrap(&self) {
        if self.bootstrap.as_ref().is_some_and(|bootstrap| bootstrap.patience(self.now()).is_zero()) {
            self.notices.note();
        }
    }

    /// Lets it go on, and sends what it wants sent.
    fn step_bootstrap(&mut self) {
        let Some(mut bootstrap) = self.bootstrap.take() else { return };
        let now = self.now();
        if let Some(book) = self.roster.book() {
            bootstrap.step(book.seeds(), now);
        }
        while let Some((to, letter)) = bootstrap.next_letter(now) {
            match to {
                To::Seed(seed) => {
                    let address = self.roster.book().and_then(|book| book.seeds().list().get(seed as usize)).cloned();
                    if let Some(address) = address {
                        self.roster.write_to(address, None, letter);
                    }
                }
                To::Process(process) => self.roster.post(process.id, letter),
            }
        }
        self.bootstrap = Some(bootstrap);
        self.carry_out();
    }

    /// The group that this process is to begin, if it has just been founded.
    pub(crate) fn take_begun(&mut self) -> Option<Founding> {
        let begun = self.bootstrap.as_mut()?.take_begun()?;
        self.roster.hear_of_founders(&begun.members);
        Some(begun)
    }

    /// Sends what can be sent now.
    pub(crate) fn flush_now(&mut self) {
        self.flush();
        self.carry_out();
    }

    fn flush(&mut self) {
        let now = self.now();
        let Ways::Mail(mail) = &mut self.ways else { return };
        // Letters that can't be sent for a reason of this process are lost; their addressees will miss this member, and say so.
        let unreached = mail.outbox.flush(&mail.mailbox).unwrap_or_default();
        self.roster.unreached(unreached);
        self.roster.forget_the_deaf(|id| mail.outbox.holds_for(id), now);
        self.carry_out();
    }

    /// Reads what is in the mailbox.
    fn read(&mut self, news: &mut Vec<News>) {
        loop {
            let Ways::Mail(mail) = &mut self.ways else { return };
            let Some((letter, fds)) = mail.mailbox.receive() else {
                if mail.mailbox.is_starved() {
                    self.starved_until = Some(Instant::now() + STARVED_PAUSE);
                } else {
                    mail.watch.mail_read();
                }
                return;
            };
            self.take(letter, fds, news);
        }
    }

    /// Takes in a letter of this host, with its descriptors.
    fn take(&mut self, letter: Letter, fds: Vec<OwnedFd>, news: &mut Vec<News>) {
        match letter {
            Letter::Parts { incarnation, view, from, pid, birth, rack, .. } => {
                self.roster.learn_rack(from, rack);
                self.take_memory(incarnation, view, Me { id: from, pid, birth }, fds);
            }
            Letter::State { view, .. } => {
                if let Ok(pipe) = <[OwnedFd; 2]>::try_from(fds) {
                    news.push(News::State { view, way: Way::Pipe(pipe) });
                }
            }
            Letter::Objects { from, reply } => {
                if let Ok(pipe) = <[OwnedFd; 2]>::try_from(fds) {
                    news.push(News::Objects { from, reply, way: Way::Pipe(pipe) });
                }
            }
            Letter::Bulk { incarnation, view, from, number } => {
                if let Some(socket) = fds.into_iter().next() {
                    self.keep_bulk_link(incarnation, view, BulkLink { number, from, way: BulkWay::Lend(socket) });
                }
            }
            letter => {
                let disclosed = match (&letter, fds.first()) {
                    (Letter::View { bytes, .. }, Some(fd)) => disclose(fd, *bytes, VIEW_BYTES_MAX).ok(),
                    _ => None,
                };
                self.hear(letter, None, &disclosed.unwrap_or_default(), news);
            }
        }
    }

    /// Takes in a letter without descriptors, from `sender` with its process if that has sent it over the net.
    fn hear(&mut self, letter: Letter, sender: Option<(control::Card, u128)>, enclosure: &[u8], news: &mut Vec<News>) {
        if let Letter::Want { incarnation, view, from, reply, objects } = letter {
            if incarnation == self.incarnation() {
                news.push(News::Wants(large::Order { from, view, reply, objects }));
            }
            return;
        }
        let now = self.now();
        self.roster.hear(letter, sender, enclosure, now);
        self.carry_out();
    }

    /// Takes in the memory of a process of this host, and the descriptor that tells when it ends.
    fn take_memory(&mut self, incarnation: u128, view: ViewId, from: Me, mut fds: Vec<OwnedFd>) {
        let event = if fds.len() > 3 { fds.pop() } else { None };
        let Ok([row, bell, pidfd]) = <[OwnedFd; 3]>::try_from(fds) else { return };
        let way = Peer::Here(PeerParts { row, bell, event });
        if !self.roster.handed_over(incarnation, view, from, way) || !self.roster.begin_watch(from.id) {
            return;
        }
        let Ways::Mail(mail) = &self.ways else { return };
        if mail.watch.watch(from.id.0, pidfd).is_err() {
            self.roster.not_taken(view, from.id);
        }
    }

    /// Takes in what other members of this process have left.
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

    /// Takes in what came from other hosts. What is left makes noise again.
    fn read_net(&mut self, news: &mut Vec<News>) {
        for _ in 0..NET_EVENTS_MAX {
            let Ways::Mail(Mail { net: Some(net), .. }) = &mut self.ways else { return };
            let Some(event) = net.next() else { return };
            self.take_event(event, news);
        }
        self.notices.tell_of_net();
    }

    fn take_event(&mut self, event: Event, news: &mut Vec<News>) {
        match event {
            Event::Letter { from, process, letter, enclosure } => {
                self.hear(letter, Some((from, process)), &enclosure, news);
            }
            Event::Stream { with, process, purpose, stream, dialled } => {
                let now = self.now();
                if self.roster.recognises(&with, &purpose, now) {
                    self.take_stream(with.id, process, purpose, stream, dialled, news);
                }
            }
            Event::Failed { address, purpose, why } => {
                if is_sent(&purpose) {
                    let is_it = |id: &MemberId| self.roster.book().is_some_and(|book| book.far(*id) == Some(&address));
                    // Its thread waits no longer.
                    self.senders.retain(|(id, of), _| *of != purpose || !is_it(id));
                }
                self.roster.not_dialled(&address, &purpose, &dial_error(&why));
            }
            Event::Reached { address, with } => self.roster.reached(&address, &with),
            Event::Delayed { address, why } => self.roster.delayed(&address, why),
            Event::LookedUp { address, found } => {
                self.roster.looked_up(&address, found.as_deref().map_err(ToString::to_string));
            }
            Event::Lost { with } => self.roster.lost(&with),
            Event::Ended { with, incarnation, view } => self.roster.seems_ended(with.id, incarnation, view),
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
        news: &mut Vec<News>,
    ) {
        match purpose {
            Purpose::Part { incarnation, view } => {
                self.roster.keep_stream((incarnation, view), (with, process), Peer::There(stream));
            }
            Purpose::Guest { incarnation, view } if dialled => {
                self.roster.keep_guest_stream(incarnation, view, with, Peer::There(stream));
            }
            Purpose::Guest { incarnation, view } if incarnation == self.incarnation() => {
                news.push(News::Guest { view, stream });
            }
            purpose if dialled && is_sent(&purpose) => {
                if let Some(sender) = self.senders.remove(&(with, purpose)) {
                    // It may have ended, when this took too long.
                    let _ = sender.send(stream);
                }
            }
            Purpose::Objects { reply, .. } => {
                news.push(News::Objects { from: with, reply, way: Way::Stream(stream) });
            }
            Purpose::State { view } => news.push(News::State { view, way: Way::Stream(stream) }),
            Purpose::Bulk { incarnation, view, number } => {
                let link = BulkLink { number, from: with, way: BulkWay::Stream(stream) };
                self.keep_bulk_link(incarnation, view, link);
            }
            // No other kind is passed on.
            _ => {}
        }
    }

    fn keep_bulk_link(&mut self, incarnation: u128, view: ViewId, link: BulkLink) {
        let is_mine = [incarnation, 0].contains(&self.incarnation());
        // A process that waits to be let in does not know yet which view it will be.
        let is_near = self.begun.0 == 0 || view.0 <= self.begun.0 + VIEWS_AHEAD_MAX;
        if is_mine && is_near && view >= self.begun && self.bulk_links.len() < BULK_LINKS_MAX {
            self.bulk_links.push((incarnation, view, link));
        }
    }

    /// The ways in bulk groups of `view` that others have handed over.
    pub(crate) fn take_bulk_links(&mut self, view: ViewId) -> Vec<BulkLink> {
        let incarnation = self.incarnation();
        if let Ways::Local(board) = &self.ways
            && let Some(links) = lock(&board.bulk_links).get_mut(&self.me)
        {
            self.bulk_links.extend(links.drain(..).map(|(view, link)| (incarnation, view, link)));
        }
        self.bulk_links.retain(|(of, at, _)| *of == incarnation && *at >= view);
        self.bulk_links.extract_if(.., |(_, at, _)| *at == view).map(|(.., link)| link).collect()
    }

    /// Hands a process of this machine the socket through which I lend in a bulk group.
    pub(crate) fn send_bulk_link(&mut self, to: MemberId, view: ViewId, number: u64, socket: OwnedFd) {
        let (incarnation, from) = (self.incarnation(), self.me);
        match &mut self.ways {
            Ways::Local(board) => {
                let link = (view, BulkLink { number, from, way: BulkWay::Lend(socket) });
                board.leave(to, || lock(&board.bulk_links).entry(to).or_default().push(link));
            }
            Ways::Mail(mail) => {
                let letter = Letter::Bulk { incarnation, view, from, number };
                // Full: a process that takes no letters is suspected soon.
                let _ = mail.outbox.push(to, letter, &[Arc::new(socket)]);
            }
        }
    }

    /// Makes the stream to a process on another host in a bulk group. It comes as those that others make. To be called until it is there.
    pub(crate) fn make_bulk_stream(&mut self, to: MemberId, view: ViewId, number: u64) {
        let incarnation = self.incarnation();
        let Some(address) = self.roster.book().and_then(|book| book.far(to)).cloned() else { return };
        if let Ways::Mail(Mail { net: Some(net), .. }) = &mut self.ways {
            net.dial_bulk(address, to, incarnation, view, number);
        }
    }

    /// Makes a stream to `to` for what this process sends there, which the answer yields when it is there.
    pub(crate) fn dial_for(&mut self, to: MemberId, purpose: Purpose) -> Receiver<Connection> {
        let (tell, told) = channel();
        if let Some(net) = self.net()
            && let Some(address) = self.roster.book().and_then(|book| book.far(to))
        {
            net.endpoint().dial(address, Some(to), purpose);
            self.senders.insert((to, purpose), tell);
        }
        told
    }

    /// Whether everything that was to be sent to the members of `view` is on its way. Processes outside may leave their letters lying.
    pub(crate) fn has_sent_all(&self, view: &View) -> bool {
        match &self.ways {
            Ways::Mail(mail) => !mail.outbox.addressees().any(|to| view.members.contains(&to)),
            Ways::Local(_) => true,
        }
    }

    /// Writes a letter.
    pub(crate) fn post(&mut self, to: MemberId, letter: Letter) {
        self.act(|roster, _| roster.post(to, letter));
    }

    /// This process's memory for `view` is made: it can be handed over.
    pub(crate) fn set_handover(&mut self, view: ViewId, handover: Handover) {
        self.handovers.insert(view, handover);
    }

    /// Forgets what concerns views before `view`, which has begun.
    pub(crate) fn has_begun(&mut self, view: ViewId) {
        self.begun = view;
        self.handovers.retain(|of, _| *of >= view);
        // Objects of an ended view are still wanted by processes that follow it to its end.
        self.senders.retain(|(_, of), _| !matches!(of, Purpose::State { view: of } if *of < view));
        if let Ways::Mail(Mail { net: Some(net), .. }) = &mut self.ways {
            net.begin(view);
        }
        self.carry_out();
    }

    /// Hands my memory for `view` to processes of this host.
    fn hand_over(&mut self, view: ViewId, others: &[MemberId]) {
        let rack = self.roster.book().and_then(|book| book.card().rack.clone());
        let incarnation = self.incarnation();
        let Ways::Mail(mail) = &mut self.ways else { return };
        let Some(handover) = self.handovers.get(&view) else { return };
        let mut fds = vec![Arc::clone(&handover.row), Arc::clone(&handover.bell), Arc::clone(&mail.pidfd)];
        fds.extend(handover.event.clone());
        for other in others {
            let (Me { id: from, pid, birth }, event) = (self.roster.process(), handover.event.is_some());
            let letter = Letter::Parts { incarnation, view, from, pid, birth, event, rack: rack.clone() };
            // Full: a process that takes no letters is suspected soon.
            let _ = mail.outbox.push(*other, letter, &fds);
        }
    }
}

/// Whether a stream of this kind is dialled by the process that sends over it.
fn is_sent(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::State { .. } | Purpose::Objects { .. })
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.owner.is_copy() {
            return;
        }
        match &self.ways {
            // The processes of others are watched; within one process nothing else tells.
            Ways::Local(board) => {
                lock(&board.gone).insert(self.me);
                lock(&board.bulk_links).remove(&self.me);
                lock(&board.bells).values().for_each(|notices| notices.ring());
            }
            // This process may go on without being a member. Members that wait for its memory have no other sign of it. The row of a member says more.
            Ways::Mail(mail) if !self.roster.takes_part() && self.me.0 < VISITOR_IDS_FROM => {
                let what = Request::Stopped { incarnation: self.incarnation(), view: ViewId(0) };
                let farewell = Letter::Request { from: self.me, reply: 0, what };
                for id in self.roster.counterparts().filter(|id| !self.is_far(*id)) {
                    let _ = mail.mailbox.send(id, &farewell, &[]);
                }
            }
            Ways::Mail(_) => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A moment after `now`, or the farthest that there is.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()))
}

#[cfg(test)]
pub(crate) mod tests;
