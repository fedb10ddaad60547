//! The processes behind the members: who lives, whose memory has arrived, who wants to join, and what else they write to each
//! other beside the rows.
//!
//! A [`Crew`] has no say in who is in a view; the engine agrees on that. It carries what the agreement is about, and what is
//! needed to begin the next view: everybody's row, doorbell and process.
use crate::error::JoinError;
use crate::gathering::{Gathering, Present};
use crate::large::Order;
use crate::namesakes::Namesakes;
use crate::network::{Net, Network, Told};
use crate::seeds::Claim;
use crate::state::Way;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use spindle_core::{MemberId, View, ViewId};
use spindle_fabric::mail::{
    GroupName, Letter, Mailbox, Notice, Outbox, Refusal, Request, RuntimeDir, VISITOR_IDS_FROM, Watch, disclose,
    enclose,
};
use spindle_fabric::net::{Address, Card, Event, Purpose, RackName};
use spindle_fabric::ofi::OfiAddress;
use spindle_fabric::tcp::Connection;
use spindle_fabric::{Doorbell, MemberBell, Peer, PeerParts};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Bytes of an encoded view, at most: far more than a view of all limits takes.
const VIEW_BYTES_MAX: u64 = 64 << 20;
/// The pause after a letter for whose descriptors there was no room.
const STARVED_PAUSE: Duration = Duration::from_millis(20);
/// How long letters to an observer that does not read them are kept.
const DEAF_MAX: Duration = Duration::from_millis(200);
/// What came from other hosts and is taken in at one look, at most.
const NET_EVENTS_MAX: usize = 256;
/// Views ahead of which memory is kept for.
const VIEWS_AHEAD_MAX: u64 = 4;
/// Ways in bulk groups that are kept until somebody asks for them.
const BULK_LINKS_MAX: usize = 1 << 12;

/// What tells processes apart that have the same id one after the other, or at once. Two hosts may give the same pid, and containers do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Process {
    Near(u32),
    Far(u128),
}

/// What somebody in this process's crew has done.
#[derive(Debug)]
pub(crate) enum News {
    Died(MemberId),
    /// Letters to somebody of another host don't arrive: their connection has ended, or never came about. Perhaps it has ended, too.
    Lost(MemberId),
    Asks {
        id: MemberId,
        pid: u32,
        process: Process,
        config: u64,
        /// How many members it would found the group with; 1 if it minds no number.
        members: u32,
        observer: bool,
        /// Among which seeds it waits.
        seeds: Claim,
        /// Where it is, if its id is another's on another host: a member's, or that of who asked before.
        namesake: Option<Address>,
    },
    /// The state of an application begins to come.
    State {
        view: ViewId,
        way: Way,
    },
    /// Somebody who follows wants objects of a view.
    Wants(Order),
    /// Objects of a member begin to come, for which this process has asked.
    Objects {
        from: MemberId,
        reply: u64,
        way: Way,
    },
    /// Somebody on another host wants to follow a view, over this stream.
    Guest {
        view: ViewId,
        stream: Connection,
    },
    Requests {
        from: MemberId,
        reply: u64,
        what: Request,
    },
    /// To somebody who waits to be let in.
    Refused(Refusal),
    Waits(Gathering),
    View {
        incarnation: u128,
        view: View,
    },
}

/// The way to another member of a bulk group.
#[derive(Debug)]
pub(crate) struct BulkLink {
    /// Which group of the view.
    pub(crate) number: u64,
    /// Who has made it.
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
    ways: Ways,
    pub(crate) me: MemberId,
    incarnation: u128,
    /// What members have handed over for views to come.
    parts: BTreeMap<(ViewId, MemberId), (u128, Part)>,
    /// The newest view that has begun here.
    begun: ViewId,
    /// Who was not in the view before, of the views that are known.
    newcomers: BTreeMap<ViewId, BTreeSet<MemberId>>,
    pids: BTreeMap<MemberId, u32>,
    processes: BTreeMap<MemberId, Process>,
    /// Whose processes are watched over.
    watched: BTreeSet<MemberId>,
    dead: BTreeSet<MemberId>,
    /// Who is in the view that has begun, or in the one that is being prepared.
    members: BTreeSet<MemberId>,
    /// What was read before somebody asked for it.
    early: Vec<News>,
    /// When to read on, if there was no descriptor left for what is in the mailbox.
    starved_until: Option<Instant>,
    /// Threads that wait for a stream to somebody: for a state, or for objects.
    senders: BTreeMap<(MemberId, Purpose), Sender<Connection>>,
    /// Ways in bulk groups that others have handed over.
    bulk_links: Vec<(u128, ViewId, BulkLink)>,
    /// Members on other hosts that begin no more views, with the last that they have begun.
    stopped: BTreeMap<MemberId, ViewId>,
    /// The views from which on those in the one that has begun are members.
    since: BTreeMap<MemberId, ViewId>,
    /// Members on other hosts whose processes have ended, with the views since when they were watched.
    ended: BTreeMap<MemberId, ViewId>,
    /// Who follows without being a member.
    observers: BTreeSet<MemberId>,
    /// Who of them does not read its letters, since when.
    deaf: BTreeMap<MemberId, Instant>,
    namesakes: Namesakes,
    notices: Arc<Notices>,
}

/// What a member has handed over for a view.
#[derive(Debug)]
enum Part {
    /// Its memory, or a stream.
    Way(Peer),
    /// Where it can be called through libfabric.
    Port(OfiAddress),
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them in a process")]
enum Ways {
    Mail {
        mailbox: Mailbox,
        outbox: Outbox,
        watch: Watch,
        pidfd: Arc<OwnedFd>,
        /// To other hosts.
        net: Option<Net>,
    },
    /// All members are in this process.
    Local(Arc<Board>),
}

/// Where the members of one process leave their memory for each other.
#[derive(Debug, Default)]
pub(crate) struct Board {
    parts: Mutex<BTreeMap<(ViewId, MemberId, MemberId), PeerParts>>,
    bells: Mutex<BTreeMap<MemberId, Arc<Notices>>>,
    bulk_links: Mutex<BTreeMap<MemberId, Vec<(ViewId, BulkLink)>>>,
    /// Who hands over nothing any more.
    gone: Mutex<BTreeSet<MemberId>>,
}

/// What the watch tells the polling thread.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    any: AtomicBool,
    mail: AtomicBool,
    net: AtomicBool,
    deaths: Mutex<Vec<u64>>,
    doorbell: Mutex<Option<Doorbell>>,
    /// Pipes that can be handed over, with what letter to whom.
    pipes: Mutex<Vec<(MemberId, Letter, [OwnedFd; 2])>>,
    /// Who waits for news without a row.
    waiter: Mutex<Option<Thread>>,
}

impl Notices {
    fn tell(&self, notice: Notice) {
        match notice {
            Notice::Death(token) => lock(&self.deaths).push(token),
            Notice::Mail => self.mail.store(true, Ordering::Release),
        }
        self.ring();
    }

    /// The pipe is made through which something goes to `to`.
    pub(crate) fn tell_of_pipe(&self, to: MemberId, letter: Letter, pipe: [OwnedFd; 2]) {
        lock(&self.pipes).push((to, letter, pipe));
        self.ring();
    }

    /// Wakes whoever polls this member, or waits for its news, in whatever view it is.
    pub(crate) fn ring(&self) {
        // Release: who sees it finds what was noted.
        self.any.store(true, Ordering::Release);
        if let Some(doorbell) = &*lock(&self.doorbell) {
            doorbell.ring();
        }
        if let Some(waiter) = &*lock(&self.waiter) {
            waiter.unpark();
        }
    }

    /// From now on whoever polls is woken by this.
    fn set_doorbell(&self, doorbell: Doorbell) {
        *lock(&self.doorbell) = Some(doorbell);
    }
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
        let pidfd = Arc::new(pidfd.map_err(|errno| JoinError::Descriptors(errno.into()))?);
        let me = mailbox.id();
        let open = |(network, dir, group): (&Network, &RuntimeDir, &GroupName)| {
            let told = Arc::clone(&notices);
            let tell = move || {
                told.net.store(true, Ordering::Release);
                told.ring();
            };
            Net::open(network, group.clone(), dir, me, bell.is_some(), tell)
        };
        let net = network.map(open).transpose()?;
        Ok(Crew::with(Ways::Mail { mailbox, outbox: Outbox::new(), watch, pidfd, net }, me, notices))
    }

    /// That of one of several members in this process.
    pub(crate) fn local(board: &Arc<Board>, me: MemberId) -> Crew {
        let notices = Arc::new(Notices::default());
        lock(&board.bells).insert(me, Arc::clone(&notices));
        Crew::with(Ways::Local(Arc::clone(board)), me, notices)
    }

    fn with(ways: Ways, me: MemberId, notices: Arc<Notices>) -> Crew {
        let (parts, newcomers, pids, processes, watched, dead, stopped) = Default::default();
        let (since, ended) = Default::default();
        let (members, early, starved_until, senders, bulk_links, observers, deaf, namesakes) = Default::default();
        Crew {
            ways,
            me,
            incarnation: 0,
            parts,
            begun: ViewId(0),
            newcomers,
            pids,
            processes,
            watched,
            dead,
            members,
            early,
            starved_until,
            senders,
            bulk_links,
            stopped,
            since,
            ended,
            observers,
            deaf,
            namesakes,
            notices,
        }
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Waits for news, `at_most` that long.
    pub(crate) fn wait(&self, at_most: Duration) {
        *lock(&self.notices.waiter) = Some(thread::current());
        let at_most = self.patience().map_or(at_most, |patience| patience.min(at_most));
        // A wake-up that comes before the park is kept.
        if !self.notices.any.load(Ordering::Acquire) {
            thread::park_timeout(at_most);
        }
        *lock(&self.notices.waiter) = None;
    }

    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        match &self.ways {
            Ways::Mail { mailbox, .. } => Some(mailbox),
            Ways::Local(_) => None,
        }
    }

    /// Which group it is. What others have sent of it already was kept.
    pub(crate) fn set_incarnation(&mut self, incarnation: u128) {
        self.incarnation = incarnation;
        self.parts.retain(|_, (of, _)| *of == incarnation);
    }

    pub(crate) fn incarnation(&self) -> u128 {
        self.incarnation
    }

    pub(crate) fn set_doorbell(&self, doorbell: Doorbell) {
        self.notices.set_doorbell(doorbell);
    }

    pub(crate) fn pid(&self, id: MemberId) -> u32 {
        if id == self.me || matches!(self.ways, Ways::Local(_)) {
            return std::process::id();
        }
        self.pids.get(&id).copied().unwrap_or(0)
    }

    /// Whether it is `process` that has, or is to have, the part of member `id`.
    pub(crate) fn is_process(&self, id: MemberId, process: Process) -> bool {
        self.processes.get(&id) == Some(&process)
    }

    pub(crate) fn observers(&self) -> &BTreeSet<MemberId> {
        &self.observers
    }

    /// Somebody follows who is told of each view. It is forgotten when its process ends, or when it does not read what it is told.
    /// The answer: whether it is new.
    pub(crate) fn add_observer(&mut self, id: MemberId) -> bool {
        let is_new = self.observers.insert(id);
        // A visitor is never a member, so a wrong number only makes that it is forgotten, and asks again. For those who may become
        // members their own word about their process would not do.
        if self.is_far(id) {
            return is_new;
        }
        let Ways::Mail { watch, .. } = &self.ways else { return is_new };
        let pid = self.pids.get(&id).and_then(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
        if id.0 >= VISITOR_IDS_FROM
            && let Some(pid) = pid
            && self.watched.insert(id)
        {
            let pidfd = pidfd_open(pid, PidfdFlags::empty());
            if !pidfd.is_ok_and(|pidfd| watch.watch(id.0, pidfd).is_ok()) {
                self.watched.remove(&id);
            }
        }
        is_new
    }

    /// As a newcomer: who followed the others by the time of `view` needs what this process sends before it can know of it. Those of other
    /// hosts are known by their streams.
    fn hear_of_observers(&mut self, view: &View, observers: Vec<(MemberId, u32)>) {
        for (id, pid) in observers {
            if id != self.me && !view.members.contains(&id) && !self.is_far(id) {
                self.pids.entry(id).or_insert(pid);
                self.add_observer(id);
            }
        }
    }

    /// It observes no more.
    pub(crate) fn forget_observer(&mut self, id: MemberId) {
        if !self.observers.remove(&id) {
            return;
        }
        if let Ways::Mail { watch, outbox, .. } = &mut self.ways {
            outbox.forget(id);
            if id.0 >= VISITOR_IDS_FROM && self.watched.remove(&id) {
                watch.unwatch(id.0);
            }
        }
    }

    pub(crate) fn is_dead(&self, id: MemberId) -> bool {
        self.dead.contains(&id) || matches!(&self.ways, Ways::Local(board) if lock(&board.gone).contains(&id))
    }

    /// Whose processes on other hosts have ended, or are about to: reasons to suspect them, no proofs. What they have sent may still arrive.
    pub(crate) fn ended(&self) -> Vec<MemberId> {
        self.ended.keys().copied().collect()
    }

    /// Whether there may be news.
    #[inline]
    pub(crate) fn has_notice(&self) -> bool {
        self.notices.any.load(Ordering::Acquire)
    }

    /// Whether there are no news, and no letters that could be sent now.
    pub(crate) fn is_calm(&self) -> bool {
        !self.has_notice() && self.outbox().is_none_or(Outbox::is_empty) && self.starved_until.is_none()
    }

    fn outbox(&self) -> Option<&Outbox> {
        match &self.ways {
            Ways::Mail { outbox, .. } => Some(outbox),
            Ways::Local(_) => None,
        }
    }

    /// When to come again for letters that could not be sent.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let starved = self.starved_until.map(|until| until.saturating_duration_since(Instant::now()));
        self.outbox().and_then(Outbox::patience).into_iter().chain(starved).min()
    }

    /// Takes in what has happened. Bounded work: what is left makes noise again.
    pub(crate) fn news(&mut self) -> Vec<News> {
        let mut news = std::mem::take(&mut self.early);
        // Acquire: pairs with the release of `ring`. What was noted before is found now.
        self.notices.any.swap(false, Ordering::AcqRel);
        let starved = self.starved_until.take_if(|until| *until <= Instant::now()).is_some();
        if self.notices.mail.swap(false, Ordering::AcqRel) || starved {
            // Before the deaths: what the dead have sent is here.
            self.read(&mut news);
        }
        if self.notices.net.swap(false, Ordering::AcqRel) {
            self.read_net(&mut news);
        }
        let deaths = std::mem::take(&mut *lock(&self.notices.deaths));
        if !deaths.is_empty() && matches!(self.ways, Ways::Mail { .. }) {
            self.read(&mut news);
        }
        for id in deaths.into_iter().map(MemberId) {
            if self.observers.remove(&id) {
                self.watched.remove(&id);
            }
            self.dead.insert(id);
            news.push(News::Died(id));
        }
        let pipes = std::mem::take(&mut *lock(&self.notices.pipes));
        for (to, letter, pipe) in pipes {
            if let Ways::Mail { outbox, .. } = &mut self.ways {
                let _ = outbox.push(to, letter, &pipe.map(Arc::new));
            }
        }
        self.flush(&mut news);
        news
    }

    /// As [`news`](Self::news), with the letters that are here and were not announced yet.
    pub(crate) fn news_now(&mut self) -> Vec<News> {
        self.notices.mail.store(true, Ordering::Release);
        self.news()
    }

    /// Sends what can be sent now.
    pub(crate) fn flush_now(&mut self) {
        let mut early = std::mem::take(&mut self.early);
        self.flush(&mut early);
        self.keep(early);
    }

    /// Puts off what nobody has asked for yet.
    fn keep(&mut self, early: Vec<News>) {
        self.early = early;
        if !self.early.is_empty() {
            self.notices.any.store(true, Ordering::Release);
        }
    }

    fn flush(&mut self, news: &mut Vec<News>) {
        let Ways::Mail { mailbox, outbox, .. } = &mut self.ways else { return };
        // Letters that can't be sent for a reason of this process are lost; their addressees will miss this member, and say so.
        let gone = outbox.flush(mailbox).unwrap_or_default();
        for id in gone {
            outbox.forget(id);
            self.observers.remove(&id);
            if self.dead.insert(id) {
                news.push(News::Died(id));
            }
        }
        self.forget_the_deaf();
    }

    /// Members wait for no observer: who lets its letters lie is forgotten with them. It asks again when it looks.
    fn forget_the_deaf(&mut self) {
        let Ways::Mail { outbox, .. } = &mut self.ways else { return };
        if self.observers.is_empty() || outbox.is_empty() {
            return self.deaf.clear();
        }
        let now = Instant::now();
        self.deaf.retain(|id, _| outbox.holds_for(*id));
        for id in self.observers.iter().filter(|id| outbox.holds_for(**id)) {
            self.deaf.entry(*id).or_insert(now);
        }
        for (id, _) in self.deaf.extract_if(.., |_, since| now.duration_since(*since) >= DEAF_MAX) {
            outbox.forget(id);
            self.observers.remove(&id);
        }
    }

    /// Reads what is in the mailbox.
    fn read(&mut self, news: &mut Vec<News>) {
        loop {
            let Ways::Mail { mailbox, watch, .. } = &mut self.ways else { return };
            let Some((letter, fds)) = mailbox.receive() else {
                if mailbox.is_starved() {
                    self.starved_until = Some(Instant::now() + STARVED_PAUSE);
                } else {
                    watch.mail_read();
                }
                return;
            };
            self.take(letter, None, fds, &[], news);
        }
    }

    /// Takes in what came from other hosts. What is left makes noise again.
    fn read_net(&mut self, news: &mut Vec<News>) {
        for _ in 0..NET_EVENTS_MAX {
            let Ways::Mail { net: Some(net), .. } = &mut self.ways else { return };
            let event = net.next();
            if let Some(Event::Stream { with, purpose, .. }) = &event
                && !self.knows_again(with, purpose)
            {
                continue;
            }
            let Ways::Mail { net: Some(net), .. } = &mut self.ways else { return };
            match event {
                None => return,
                Some(Event::Letter { from, process, letter, enclosure }) => {
                    self.take(letter, Some((from, process)), vec![], &enclosure, news);
                }
                Some(Event::Stream { with, purpose: Purpose::Part { incarnation, view }, stream, .. }) => {
                    self.keep_part(incarnation, view, with.id, Part::Way(Peer::There(stream)));
                }
                Some(Event::Lost { with }) => news.push(News::Lost(with.id)),
                Some(Event::Ended { with, incarnation, view }) => {
                    // Who has its id now may be another.
                    let is_it = self.since.get(&with.id).is_none_or(|since| view >= *since);
                    if incarnation == self.incarnation && is_it {
                        self.ended.insert(with.id, view);
                    }
                }
                Some(Event::Failed { address, purpose: Purpose::Mail, why }) => {
                    news.extend(net.unreached(&address, &why).map(News::Lost));
                }
                // What this process follows.
                Some(Event::Stream { with, purpose: Purpose::Guest { incarnation, view }, stream, dialled: true }) => {
                    self.keep_part(incarnation, view, with.id, Part::Way(Peer::There(stream)));
                }
                Some(Event::Stream { purpose: Purpose::Guest { incarnation, view }, stream, .. }) => {
                    if incarnation == self.incarnation {
                        news.push(News::Guest { view, stream });
                    }
                }
                Some(Event::Stream { with, purpose, stream, dialled: true }) if is_sent(&purpose) => {
                    if let Some(sender) = self.senders.remove(&(with.id, purpose)) {
                        // It may have ended, when this took too long.
                        let _ = sender.send(stream);
                    }
                }
                Some(Event::Failed { address, purpose, .. }) if is_sent(&purpose) => {
                    let is_it = |id: &MemberId| net.far(*id) == Some(&address);
                    // Its thread waits no longer.
                    self.senders.retain(|(id, of), _| *of != purpose || !is_it(id));
                }
                Some(Event::Stream { with, purpose: Purpose::Objects { reply, .. }, stream, .. }) => {
                    news.push(News::Objects { from: with.id, reply, way: Way::Stream(stream) });
                }
                Some(Event::Stream { purpose: Purpose::State { view }, stream, .. }) => {
                    news.push(News::State { view, way: Way::Stream(stream) });
                }
                Some(Event::Stream { with, purpose: Purpose::Bulk { incarnation, view, number }, stream, .. }) => {
                    let link = BulkLink { number, from: with.id, way: BulkWay::Stream(stream) };
                    self.keep_bulk_link(incarnation, view, link);
                }
                // Other failures show in what does not come, and are tried again; streams that nobody has use for are closed.
                Some(_) => {}
            }
        }
        self.notices.net.store(true, Ordering::Release);
        self.notices.ring();
    }

    /// Whether it is no namesake of a member that has made a stream; then where it is is noted. Who brings its memory as a newcomer is the member,
    /// wherever one of its id was before.
    fn knows_again(&mut self, with: &Card, purpose: &Purpose) -> bool {
        let comes = matches!(purpose, Purpose::Part { view, .. } if self.is_new(*view, with.id));
        let is_member = self.members.contains(&with.id) && !comes;
        let Ways::Mail { net: Some(net), mailbox, .. } = &mut self.ways else { return false };
        if is_member && net.is_namesake(with, true, mailbox) {
            return false;
        }
        net.learn(with.clone());
        true
    }

    /// Somebody writes who says that it is this, or `asks` to be let in: notes where it is. If it is a namesake nothing is noted, and the answer
    /// is where that is.
    fn hear_from(&mut self, card: Card, asks: bool) -> Option<Address> {
        let is_member = self.members.contains(&card.id);
        let Ways::Mail { net: Some(net), mailbox, .. } = &mut self.ways else { return None };
        if net.is_namesake(&card, is_member, mailbox) {
            return Some(card.address);
        }
        if asks && !is_member {
            net.asked(card)
        } else {
            net.learn(card)
        }
        None
    }

    /// Takes in a letter, with its descriptors or with what was enclosed; from `sender` with its process, if that has sent it over the net.
    fn take(
        &mut self,
        letter: Letter,
        sender: Option<(Card, u128)>,
        fds: Vec<OwnedFd>,
        enclosure: &[u8],
        news: &mut Vec<News>,
    ) {
        let process = sender.as_ref().map(|(_, process)| *process);
        let asks = matches!(letter, Letter::Ask { .. });
        let namesake = sender.and_then(|(card, _)| self.hear_from(card, asks));
        match letter {
            // Who waits to be let in does not know yet which group it will be.
            Letter::Parts { incarnation, view, from, pid, rack, .. } => {
                if let Ways::Mail { net: Some(net), .. } = &mut self.ways {
                    net.learn_rack(from, rack);
                }
                self.keep_parts(incarnation, view, from, pid, fds);
            }
            Letter::Ask { from, pid, config, members, observer, address, rack, seeds } => {
                let near = self.net().zip(address).filter(|_| process.is_none());
                let near = near.map(|(net, address)| Card { id: from, host: net.card().host, address, rack });
                let namesake = namesake.or_else(|| self.hear_from(near?, true));
                // A new process may have the address of a dead one, which is a member until the view has changed.
                let process = process.map_or(Process::Near(pid), Process::Far);
                if namesake.is_some() {
                    // What is known under this id is another's.
                } else if self.members.contains(&from) {
                    self.pids.entry(from).or_insert(pid);
                    self.processes.entry(from).or_insert(process);
                } else if !self.watched.contains(&from) {
                    self.pids.insert(from, pid);
                    self.processes.insert(from, process);
                    self.dead.remove(&from);
                }
                news.push(News::Asks { id: from, pid, process, config, members, observer, seeds, namesake });
            }
            Letter::Refused { why } => news.push(News::Refused(why)),
            Letter::Wait { members, blocked, present, .. } => {
                let present = present.into_iter().map(|(id, pid)| Present { id, pid }).collect();
                news.push(News::Waits(Gathering { blocked, ..Gathering::of(members, present) }));
            }
            Letter::View { incarnation, bytes, .. } => {
                let disclosed = fds.first().and_then(|fd| disclose(fd, bytes, VIEW_BYTES_MAX).ok());
                let Some(Told { view, newcomers, observers, cards }) =
                    Told::decode(disclosed.as_deref().unwrap_or(enclosure))
                else {
                    return;
                };
                let is_mine = [incarnation, 0].contains(&self.incarnation);
                let is_newest = self.newcomers.keys().next_back().is_none_or(|newest| *newest <= view.id);
                let is_ahead = is_mine && is_newest && view.id > self.begun;
                if let Ways::Mail { net: Some(net), .. } = &mut self.ways {
                    for card in cards {
                        // They know better than who only asks with the id of one of them.
                        let is_sure = is_ahead && view.members.contains(&card.id) && !self.members.contains(&card.id);
                        if is_sure { net.learn(card) } else { net.hear_of(card) }
                    }
                }
                if is_mine {
                    if newcomers.contains(&self.me) {
                        self.hear_of_observers(&view, observers);
                    }
                    self.newcomers.insert(view.id, newcomers.into_iter().collect());
                }
                news.push(News::View { incarnation, view });
            }
            Letter::State { view, .. } => {
                if let Ok(pipe) = <[OwnedFd; 2]>::try_from(fds) {
                    news.push(News::State { view, way: Way::Pipe(pipe) });
                }
            }
            Letter::Want { incarnation, view, from, reply, objects } if incarnation == self.incarnation => {
                news.push(News::Wants(Order { from, view, reply, objects }));
            }
            Letter::Objects { from, reply } => {
                if let Ok(pipe) = <[OwnedFd; 2]>::try_from(fds) {
                    news.push(News::Objects { from, reply, way: Way::Pipe(pipe) });
                }
            }
            Letter::Bulk { incarnation, view, from, number } => {
                let Some(socket) = fds.into_iter().next() else { return };
                self.keep_bulk_link(incarnation, view, BulkLink { number, from, way: BulkWay::Lend(socket) });
            }
            Letter::Request { from, reply, what } => news.push(News::Requests { from, reply, what }),
            Letter::Port { incarnation, view, from, address } if !self.has_parts(view, from) => {
                self.keep_part(incarnation, view, from, Part::Port(address));
            }
            _ => {}
        }
    }

    fn keep_parts(&mut self, incarnation: u128, view: ViewId, from: MemberId, pid: u32, mut fds: Vec<OwnedFd>) {
        let event = if fds.len() > 3 { fds.pop() } else { None };
        let Ok([row, bell, pidfd]) = <[OwnedFd; 3]>::try_from(fds) else { return };
        if !self.keep_part(incarnation, view, from, Part::Way(Peer::Here(PeerParts { row, bell, event }))) {
            return;
        }
        if let Ways::Mail { watch, .. } = &self.ways
            && self.watched.insert(from)
            && watch.watch(from.0, pidfd).is_err()
        {
            self.watched.remove(&from);
            self.parts.remove(&(view, from));
            return;
        }
        self.pids.insert(from, pid);
        self.processes.insert(from, Process::Near(pid));
    }

    /// Keeps what `from` has handed over for a view to come, if it may be one of my group.
    fn keep_part(&mut self, incarnation: u128, view: ViewId, from: MemberId, part: Part) -> bool {
        let oldest = self.parts.keys().next().map_or(view.0, |(oldest, _)| oldest.0);
        // Who waits to be let in does not know yet which group it will be.
        let is_mine = [incarnation, 0].contains(&self.incarnation);
        let is_kept = is_mine && view > self.begun && view.0 <= oldest.saturating_add(VIEWS_AHEAD_MAX);
        if is_kept {
            self.parts.insert((view, from), (incarnation, part));
        }
        is_kept
    }

    fn keep_bulk_link(&mut self, incarnation: u128, view: ViewId, link: BulkLink) {
        let is_mine = [incarnation, 0].contains(&self.incarnation);
        // Who waits to be let in does not know yet which view it will be.
        let is_near = self.begun.0 == 0 || view.0 <= self.begun.0 + VIEWS_AHEAD_MAX;
        if is_mine && is_near && view >= self.begun && self.bulk_links.len() < BULK_LINKS_MAX {
            self.bulk_links.push((incarnation, view, link));
        }
    }

    /// The ways in bulk groups of `view` that others have handed over.
    pub(crate) fn take_bulk_links(&mut self, view: ViewId) -> Vec<BulkLink> {
        if let Ways::Local(board) = &self.ways
            && let Some(links) = lock(&board.bulk_links).get_mut(&self.me)
        {
            self.bulk_links.extend(links.drain(..).map(|(view, link)| (self.incarnation, view, link)));
        }
        let incarnation = self.incarnation;
        self.bulk_links.retain(|(of, at, _)| *of == incarnation && *at >= view);
        self.bulk_links.extract_if(.., |(_, at, _)| *at == view).map(|(.., link)| link).collect()
    }

    /// Hands somebody of this machine the socket through which I lend in a bulk group.
    pub(crate) fn send_bulk_link(&mut self, to: MemberId, view: ViewId, number: u64, socket: OwnedFd) {
        let (incarnation, from) = (self.incarnation, self.me);
        match &mut self.ways {
            Ways::Local(board) => {
                let link = (view, BulkLink { number, from, way: BulkWay::Lend(socket) });
                lock(&board.bulk_links).entry(to).or_default().push(link);
                if let Some(notices) = lock(&board.bells).get(&to) {
                    notices.ring();
                }
            }
            Ways::Mail { outbox, .. } => {
                let letter = Letter::Bulk { incarnation, view, from, number };
                // Full: who takes no letters is suspected soon.
                let _ = outbox.push(to, letter, &[Arc::new(socket)]);
            }
        }
    }

    /// Makes the stream to somebody on another host in a bulk group. It comes as those that others make. To be called until it is there.
    pub(crate) fn make_bulk_stream(&mut self, to: MemberId, view: ViewId, number: u64) {
        let incarnation = self.incarnation;
        if let Ways::Mail { net: Some(net), .. } = &mut self.ways {
            net.dial_bulk(to, incarnation, view, number);
        }
    }

    /// What `member` has handed over for `view`.
    pub(crate) fn take_parts(&mut self, view: ViewId, member: MemberId) -> Option<Peer> {
        if let Ways::Local(board) = &self.ways {
            return lock(&board.parts).remove(&(view, member, self.me)).map(Peer::Here);
        }
        match self.parts.remove(&(view, member)) {
            Some((_, Part::Way(way))) => Some(way),
            Some((_, Part::Port(_))) | None => None,
        }
    }

    /// Where `member` can be called through libfabric for `view`, if it has said so.
    pub(crate) fn port_of(&self, view: ViewId, member: MemberId) -> Option<&OfiAddress> {
        match self.parts.get(&(view, member)) {
            Some((_, Part::Port(address))) => Some(address),
            Some((_, Part::Way(_))) | None => None,
        }
    }

    /// Tells `to` where I can be called through libfabric for `view`.
    pub(crate) fn tell_port(&mut self, view: ViewId, to: MemberId, address: OfiAddress) {
        self.post(to, Letter::Port { incarnation: self.incarnation, view, from: self.me, address });
    }

    /// Who of these has no address any more.
    pub(crate) fn unreachable(&self, ids: &[MemberId]) -> Vec<MemberId> {
        let Ways::Mail { mailbox, .. } = &self.ways else { return vec![] };
        // Of other hosts nothing is certain.
        let is_gone = |id: &MemberId| !self.is_far(*id) && mailbox.reaches(*id).is_ok_and(|reaches| !reaches);
        ids.iter().copied().filter(is_gone).collect()
    }

    /// Who of these has no address any more. What they had sent is here then.
    pub(crate) fn look_for(&mut self, ids: &[MemberId]) -> Vec<MemberId> {
        let gone = self.unreachable(ids);
        if gone.is_empty() {
            return gone;
        }
        let mut early = std::mem::take(&mut self.early);
        self.read(&mut early);
        self.keep(early);
        if self.starved_until.is_some() {
            // Their last letters may be among those that could not be read.
            return vec![];
        }
        self.dead.extend(&gone);
        gone
    }

    pub(crate) fn has_parts(&self, view: ViewId, member: MemberId) -> bool {
        match &self.ways {
            Ways::Local(board) => lock(&board.parts).contains_key(&(view, member, self.me)),
            Ways::Mail { .. } => matches!(self.parts.get(&(view, member)), Some((_, Part::Way(_)))),
        }
    }

    /// Whether `id` was not in the view before `view`.
    pub(crate) fn is_new(&self, view: ViewId, id: MemberId) -> bool {
        self.newcomers.get(&view).is_some_and(|newcomers| newcomers.contains(&id))
    }

    /// Whether `id` is on another host, so that it shares no memory with this process, and nothing proves its death.
    pub(crate) fn is_far(&self, id: MemberId) -> bool {
        matches!(&self.ways, Ways::Mail { net: Some(net), mailbox, .. } if !net.is_near(id, mailbox))
    }

    /// The key of the host on which `id` is, as everybody on that host knows it; `None` if nothing is known of `id`.
    pub(crate) fn host(&self, id: MemberId) -> Option<u128> {
        match &self.ways {
            Ways::Mail { net: Some(net), mailbox, .. } => net.host(id, mailbox),
            Ways::Mail { net: None, .. } | Ways::Local(_) => Some(0),
        }
    }

    /// In which rack a member of a view that has begun stands, if it has said so.
    pub(crate) fn rack(&self, id: MemberId) -> Option<&RackName> {
        self.net()?.rack(id)
    }

    pub(crate) fn net(&self) -> Option<&Net> {
        match &self.ways {
            Ways::Mail { net, .. } => net.as_ref(),
            Ways::Local(_) => None,
        }
    }

    /// Notes that `id` says that it begins no view behind `view` of this group.
    pub(crate) fn note_stopped(&mut self, id: MemberId, incarnation: u128, view: ViewId) {
        // Of this host the kernel tells who is dead.
        if incarnation == self.incarnation && self.is_far(id) {
            self.stopped.insert(id, view);
        }
    }

    /// Whether `id` never begins `view`, which it is in. It was in the one before, which says that this is the process of that id that has said so.
    pub(crate) fn never_begins(&self, view: ViewId, id: MemberId) -> bool {
        let was_there = self.newcomers.get(&view).is_some_and(|newcomers| !newcomers.contains(&id));
        was_there && self.stopped.get(&id).is_some_and(|last| last.0 + 1 == view.0)
    }

    /// Tells all whom it knows on other hosts that this process begins no view behind `view`.
    pub(crate) fn say_stopped(&self, view: ViewId) {
        let what = Request::Stopped { incarnation: self.incarnation, view };
        self.write_afar(&Letter::Request { from: self.me, reply: 0, what });
    }

    /// Forgets what was handed over for views before this one.
    pub(crate) fn pass_over_until(&mut self, view: ViewId) {
        self.parts.retain(|(id, _), _| *id >= view);
    }

    /// Hands my memory for `view` to `others`.
    pub(crate) fn hand_over(&mut self, view: ViewId, parts: &Handover, others: &[MemberId]) {
        match &mut self.ways {
            Ways::Local(board) => {
                for other in others {
                    if let Ok(parts) = parts.try_clone() {
                        lock(&board.parts).insert((view, self.me, *other), parts);
                    }
                    if let Some(notices) = lock(&board.bells).get(other) {
                        notices.ring();
                    }
                }
            }
            Ways::Mail { outbox, pidfd, net, mailbox, .. } => {
                let (incarnation, from, pid) = (self.incarnation, self.me, std::process::id());
                let event = parts.event.is_some();
                let mut fds = vec![Arc::clone(&parts.row), Arc::clone(&parts.bell), Arc::clone(pidfd)];
                fds.extend(parts.event.clone());
                for other in others {
                    if net.as_ref().is_some_and(|net| !net.is_near(*other, mailbox)) {
                        continue;
                    }
                    let rack = net.as_ref().and_then(|net| net.card().rack.clone());
                    let letter = Letter::Parts { incarnation, view, from, pid, event, rack };
                    // Full: who takes no letters is suspected soon.
                    let _ = outbox.push(*other, letter, &fds);
                }
            }
        }
    }

    /// Makes the streams to members of `view` on other hosts that are this member's to make: a newcomer knows everybody from who told it
    /// of the view, and those who were there before may not know it yet; of two who are alike in that, it is the one with the lower id.
    /// To be called until all are there. If rows go through libfabric, each other's process is watched over, and that is all.
    pub(crate) fn connect(&mut self, view: &View) {
        let Ways::Mail { net: Some(net), .. } = &mut self.ways else { return };
        let newcomers = self.newcomers.get(&view.id);
        let is_new = |id: MemberId| newcomers.is_some_and(|newcomers| newcomers.contains(&id));
        let me = self.me;
        for id in view.members.iter().copied().filter(|id| *id != me) {
            let is_mine = if is_new(me) == is_new(id) { me < id } else { is_new(me) };
            if is_mine {
                net.watch(id, self.incarnation, view.id);
            }
            if is_mine && !net.uses_ofi() && !self.parts.contains_key(&(view.id, id)) {
                net.dial(id, view.id, Purpose::Part { incarnation: self.incarnation, view: view.id });
            }
        }
    }

    /// Makes the streams over which members on other hosts let this process follow `view`. To be called until all are there.
    pub(crate) fn visit(&mut self, view: &View) {
        let Ways::Mail { net: Some(net), .. } = &mut self.ways else { return };
        for id in &view.members {
            if !self.parts.contains_key(&(view.id, *id)) {
                net.dial(*id, view.id, Purpose::Guest { incarnation: self.incarnation, view: view.id });
            }
        }
    }

    /// Makes a stream to `to` for what this process sends there, which the answer yields when it is there.
    pub(crate) fn dial_for(&mut self, to: MemberId, purpose: Purpose) -> Receiver<Connection> {
        let (tell, told) = channel();
        if let Some(net) = self.net()
            && let Some(address) = net.far(to)
        {
            net.endpoint().dial(address, Some(to), purpose);
            self.senders.insert((to, purpose), tell);
        }
        told
    }

    /// Whether everything that was to be sent to the members of `view` is on its way. Who is outside may leave its letters lying.
    pub(crate) fn has_sent_all(&self, view: &View) -> bool {
        self.outbox().is_none_or(|outbox| !outbox.addressees().any(|to| view.members.contains(&to)))
    }

    /// The next view is being prepared, and these will be in it.
    pub(crate) fn expect(&mut self, view: &View) {
        let members = &self.members;
        let newcomers = || view.members.iter().copied().filter(|id| !members.contains(id)).collect();
        self.newcomers.entry(view.id).or_insert_with(newcomers);
        self.members.extend(&view.members);
    }

    /// Tells those who join of a view that was decided.
    pub(crate) fn tell_view(&mut self, view: &View, to: impl IntoIterator<Item = MemberId>) {
        let Ways::Mail { net, .. } = &self.ways else { return };
        let mut to = to.into_iter().peekable();
        if to.peek().is_none() {
            return;
        }
        let newcomers = self.newcomers.get(&view.id).into_iter().flatten().copied().collect();
        let cards = net.as_ref().map(Net::cards).unwrap_or_default();
        let observers = self.observers.iter().filter(|id| !view.members.contains(id));
        let observers = observers.map(|id| (*id, self.pid(*id))).collect();
        let bytes = Told { view: view.clone(), newcomers, observers, cards }.encode();
        let (incarnation, id, from) = (self.incarnation, view.id, self.me);
        let mut enclosure = Enclosure { bytes: &bytes, fd: None };
        for joiner in to {
            let letter = Letter::View { incarnation, view: id, from, bytes: bytes.len() as u64 };
            self.write(joiner, letter, &mut enclosure);
        }
    }

    /// Writes a letter, with what is enclosed.
    fn write(&mut self, to: MemberId, letter: Letter, enclosure: &mut Enclosure<'_>) {
        let Ways::Mail { outbox, net, mailbox, .. } = &mut self.ways else { return };
        if let Some(net) = net.as_ref().filter(|net| !net.is_near(to, mailbox)) {
            // Who is not known here has written to others, who answer.
            if let Some(address) = net.far(to) {
                net.endpoint().send(address, Some(to), &letter, enclosure.bytes);
            }
            return;
        }
        let fds = if letter.fds() == 0 {
            vec![]
        } else if let Some(fd) = enclosure.fd() {
            vec![fd]
        } else {
            return;
        };
        // Full: who takes no letters is suspected soon.
        let _ = outbox.push(to, letter, &fds);
    }

    /// Asks `to` to be let in, or only to see the view.
    pub(crate) fn ask(&mut self, to: MemberId, config: u64, members: u32, observer: bool) {
        let letter = self.question(config, members, observer);
        self.post(to, letter);
    }

    /// Asks everybody on other hosts: the seeds, and those who were heard of.
    pub(crate) fn ask_afar(&mut self, config: u64, members: u32, observer: bool) {
        self.look_up();
        let question = self.question(config, members, observer);
        self.write_afar(&question);
    }

    /// Asks everybody on other hosts for the view.
    pub(crate) fn ask_view_afar(&mut self) {
        self.look_up();
        self.write_afar(&Letter::Request { from: self.me, reply: 0, what: Request::View });
    }

    /// Whoever asks wants to know whom.
    fn look_up(&mut self) {
        if let Ways::Mail { net: Some(net), .. } = &mut self.ways {
            net.look_up();
        }
    }

    fn write_afar(&self, letter: &Letter) {
        if let Some(net) = self.net() {
            net.addresses().for_each(|(address, whom)| net.endpoint().send(address, whom, letter, &[]));
        }
    }

    fn question(&mut self, config: u64, members: u32, observer: bool) -> Letter {
        let seeds = match &mut self.ways {
            Ways::Mail { net: Some(net), .. } => net.make_claim(),
            _ => None,
        };
        let card = self.net().map(Net::card);
        let (address, rack) = (card.map(|card| card.address.clone()), card.and_then(|card| card.rack.clone()));
        Letter::Ask { from: self.me, pid: std::process::id(), config, members, observer, address, rack, seeds }
    }

    pub(crate) fn post(&mut self, to: MemberId, letter: Letter) {
        self.write(to, letter, &mut Enclosure { bytes: &[], fd: None });
    }

    /// Writes to `id`, or to its `namesake` that is there.
    pub(crate) fn post_at(&mut self, namesake: Option<&Address>, id: MemberId, letter: Letter) {
        match (namesake, self.net()) {
            (Some(address), Some(net)) => net.endpoint().send(address, Some(id), &letter, &[]),
            _ => self.post(id, letter),
        }
    }

    /// What a namesake that asks to be let in is told: no, if whose id it has lives beyond doubt, as what that has `done` shows, or how often it has asked
    /// if it waits to be let in as well; `otherwise` if not.
    pub(crate) fn turn_away(
        &mut self,
        (id, process): (MemberId, Process),
        done: Option<u64>,
        otherwise: Letter,
    ) -> Letter {
        let done = done.or_else(|| self.net()?.asks(id));
        match done.is_some_and(|done| self.namesakes.ask(id, process, done, Instant::now())) {
            true => Letter::Refused { why: Refusal::InUse(id) },
            false => otherwise,
        }
    }

    /// Answers a request with a text.
    pub(crate) fn answer(&mut self, to: MemberId, reply: u64, text: &str) {
        let letter = Letter::Answer { reply, bytes: text.len() as u64 };
        self.write(to, letter, &mut Enclosure { bytes: text.as_bytes(), fd: None });
    }

    /// A view has begun: forgets what concerns earlier ones, and who is not in it.
    pub(crate) fn begin(&mut self, view: &View) {
        self.begun = view.id;
        self.parts.retain(|(id, _), _| *id > view.id);
        let parts = &self.parts;
        let observers = &self.observers;
        let is_wanted = |id: &MemberId| {
            view.members.contains(id) || observers.contains(id) || parts.keys().any(|(_, from)| from == id)
        };
        self.newcomers.retain(|id, _| *id >= view.id);
        self.stopped.retain(|_, last| last.0 + 1 >= view.id.0);
        // Objects of an ended view are still wanted by those who follow it to its end.
        self.senders.retain(|(_, of), _| !matches!(of, Purpose::State { view: of } if *of < view.id));
        if let Ways::Mail { watch, outbox, net, .. } = &mut self.ways {
            if let Some(net) = net {
                // `members` are those of the view before, and of this one.
                let members = &self.members;
                net.retain(view.id, is_wanted, |id| members.contains(id) && !view.members.contains(id));
            }
            for id in self.watched.extract_if(.., |id| !is_wanted(id)) {
                watch.unwatch(id.0);
            }
            // Who waits to be let in asks again, and visitors wait for one answer only.
            let is_outside = |id: &MemberId| id.0 < VISITOR_IDS_FROM && !is_wanted(id);
            let outside: BTreeSet<MemberId> = outbox.addressees().filter(is_outside).collect();
            outside.into_iter().for_each(|id| outbox.forget(id));
        }
        self.pids.retain(|id, _| is_wanted(id));
        self.processes.retain(|id, _| is_wanted(id));
        self.dead.retain(is_wanted);
        self.observers.retain(|id| !view.members.contains(id));
        self.members = view.members.iter().copied().collect();
        self.since.retain(|id, _| self.members.contains(id));
        for id in &self.members {
            self.since.entry(*id).or_insert(view.id);
        }
        let since = &self.since;
        self.ended.retain(|id, watched| since.get(id).is_some_and(|since| *watched >= *since));
    }
}

/// Whether a stream of this kind is dialled by who sends over it.
fn is_sent(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::State { .. } | Purpose::Objects { .. })
}

/// What goes with letters, to one or many.
struct Enclosure<'a> {
    bytes: &'a [u8],
    /// The same as a file, for those of this host; made for the first of them.
    fd: Option<Arc<OwnedFd>>,
}

impl Enclosure<'_> {
    /// `None` if the system has no room for it.
    fn fd(&mut self) -> Option<Arc<OwnedFd>> {
        if self.fd.is_none() {
            self.fd = enclose(self.bytes).ok().map(Arc::new);
        }
        self.fd.clone()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // The processes of others are watched; within one process nobody else tells.
        if let Ways::Local(board) = &self.ways {
            lock(&board.gone).insert(self.me);
            lock(&board.bulk_links).remove(&self.me);
            lock(&board.bells).values().for_each(|notices| notices.ring());
        }
    }
}

/// What a member hands to all others.
#[derive(Debug)]
pub(crate) struct Handover {
    row: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
    event: Option<Arc<OwnedFd>>,
}

impl Handover {
    pub(crate) fn new(parts: PeerParts) -> Handover {
        let PeerParts { row, bell, event } = parts;
        Handover { row: Arc::new(row), bell: Arc::new(bell), event: event.map(Arc::new) }
    }

    fn try_clone(&self) -> std::io::Result<PeerParts> {
        let event = self.event.as_ref().map(|event| event.try_clone()).transpose()?;
        Ok(PeerParts { row: self.row.try_clone()?, bell: self.bell.try_clone()?, event })
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
