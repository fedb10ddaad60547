//! The control plane's driver: the other processes of a group, and the ways to them. It drives the
//! core's [`Roster`].
//!
//! The roster decides. A [`ControlPlane`] passes it arriving events, carries out its orders, and
//! moves the things that only a process can have: memory, descriptors, streams. `arrivals.rs`
//! passes on everything that arrives, `orders.rs` carries out orders, `bootstrap.rs` serves the
//! creation of a group between hosts, and `links.rs` makes ways for long data. `net.rs` has the
//! connections to other hosts.
use crate::config::Network;
use crate::error::JoinError;
use crate::old_logs::OldLogs;
use crate::random::random_word;
use crate::shared::{Notices, lock};
use crate::transfer::TransferWay;
use rustix::process::{PidfdFlags, pidfd_open};
use spindle_core::control::{self, Birth, Book, ControlMessage, GroupLinks, Me, Purpose, Roster};
use spindle_core::{MemberId, Process, Time, View, ViewId};
use spindle_fabric::{Doorbell, LivenessThread, LogClock, MemberEventCount, Peer};
use spindle_transport::Connection;
use spindle_transport::fork::Owner;
use spindle_transport::rendezvous::{ControlSocket, GroupName, RuntimeDir, Watch, own_birth};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

mod arrivals;
mod bootstrap;
mod bootstrapping;
mod bulk_link;
mod links;
mod net;
mod orders;
mod restarting;
mod ways;

pub(crate) use bootstrapping::{BootstrapDriver, BootstrapTerms};
pub(crate) use bulk_link::{BulkLink, BulkWay};
pub(crate) use net::Net;
pub(crate) use restarting::RestartDriver;
pub(crate) use ways::{Board, SharedRowDescriptors};
use ways::{Rendezvous, Ways};

/// The pause after a control message for whose descriptors there was no room.
const STARVED_PAUSE: Duration = Duration::from_millis(20);

/// A control event of this process.
#[derive(Debug)]
pub(crate) enum ControlPlaneEvent {
    /// An event of the membership.
    Control(control::ControlEvent),
    /// The state of an application begins to come.
    State { view: ViewId, from: MemberId, way: TransferWay },
    /// Requested objects of a member begin to come.
    Objects { from: MemberId, reply: u64, way: TransferWay },
    /// Records of a log begin to come.
    Records { from: MemberId, reply: u64, way: TransferWay },
    /// A process on another host wants to observe a view, over this stream.
    Observer { view: ViewId, stream: Connection },
}

/// How the end of a process of this host was detected.
#[derive(Debug)]
enum Death {
    /// A watch reported it.
    Reported(u64),
    /// The process with this number and birth had ended before it could be watched.
    Found(u32, Birth),
}

/// One process's ways to the others: its address, its outgoing messages, and the watch over them.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    owner: Owner,
    ways: Ways,
    roster: Roster<Peer>,
    pub(crate) me: MemberId,
    origin: Instant,
    /// This process's memory, for views that have not ended.
    shared_rows: BTreeMap<ViewId, SharedRowDescriptors>,
    /// Members that find this process's memory for the next view without a control message.
    shown: BTreeSet<MemberId>,
    /// When to read on, if no descriptor was left for a message in the control socket.
    starved_until: Option<Instant>,
    /// Processes of this host that have ended. The roster learns of them once all their messages
    /// are read.
    deaths: Vec<(MemberId, Death)>,
    /// Threads that wait for a stream: for a state, for objects, or for records.
    senders: BTreeMap<(MemberId, Purpose), Sender<Connection>>,
    /// Ways in bulk groups that other members have handed over.
    bulk_links: GroupLinks<BulkLink>,
    /// The creation of a group between hosts.
    bootstrap: Option<BootstrapDriver>,
    /// The restart of a group. It stays, to answer processes that have missed the decision.
    restart: Option<RestartDriver>,
    hears_restart: bool,
    /// The logs of an earlier process of this member, whose group lives.
    old_logs: Option<OldLogs>,
    end_notice: EndNotice,
    notices: Arc<Notices>,
    /// The clock that is compared with those of processes that ask.
    clock: LogClock,
}

/// Whether this process may say that it writes nothing more. A process with logs may not, unless that is on its
/// disk: the others then count it as dead, and a restart has to know that.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndNotice(Arc<AtomicBool>);

impl EndNotice {
    // Relaxed: the flag is set and read by the thread that ends the member, and protects no other data.
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn hold(&self, held: bool) {
        self.0.store(held, Ordering::Relaxed);
    }
}

impl ControlPlane {
    /// Creates the control plane of a process with an address of its own. A member has a
    /// `event_count`, which shows the others that it lives. With a `network` the group has members
    /// on other hosts.
    pub(crate) fn new(
        control_socket: ControlSocket,
        event_count: Option<&MemberEventCount>,
        network: Option<(&Network, &RuntimeDir, &GroupName)>,
    ) -> Result<ControlPlane, JoinError> {
        let notices = Arc::new(Notices::default());
        let told = Arc::clone(&notices);
        let member = event_count.cloned();
        let hold = move || member.as_ref().and_then(LivenessThread::hold);
        let watch = Watch::spawn(&control_socket, hold, move |notice| told.tell(notice))?;
        let pidfd = pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
        let pidfd = pidfd.map_err(|errno| JoinError::Descriptors(errno.into()))?;
        let me = control_socket.id();
        let open = |(network, dir, group): (&Network, &RuntimeDir, &GroupName)| {
            let told = Arc::clone(&notices);
            Net::open(network, group.clone(), dir, me, event_count.is_some(), move || told.tell_of_net())
        };
        let (net, book) = network.map(open).transpose()?.unzip();
        let process = Process { id: me, nonce: (random_word()? as u32).max(1) };
        Ok(ControlPlane::with(
            Ways::Rendezvous(Rendezvous::new(control_socket, watch, pidfd, net)),
            process,
            book,
            notices,
        ))
    }

    /// Creates the control plane of one of several members in this process.
    pub(crate) fn local(board: &Arc<Board>, me: MemberId) -> ControlPlane {
        let notices = Arc::new(Notices::default());
        lock(&board.event_counts).insert(me, Arc::clone(&notices));
        ControlPlane::with(Ways::Local(Arc::clone(board)), Process { id: me, nonce: 1 }, None, notices)
    }

    fn with(ways: Ways, me: Process, book: Option<Book>, notices: Arc<Notices>) -> ControlPlane {
        let Process { id: me, nonce } = me;
        let (shared_rows, shown, starved_until, deaths, senders, bulk_links, bootstrap) = Default::default();
        let (restart, hears_restart, old_logs) = Default::default();
        ControlPlane {
            owner: Owner::new(),
            ways,
            roster: Roster::new(Me { id: me, pid: std::process::id(), birth: own_birth() }, nonce, book),
            me,
            origin: Instant::now(),
            shared_rows,
            shown,
            starved_until,
            deaths,
            senders,
            bulk_links,
            bootstrap,
            restart,
            hears_restart,
            old_logs,
            end_notice: EndNotice::default(),
            notices,
            clock: LogClock::default(),
        }
    }

    /// Returns the moment from which the control plane counts time.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// Returns the time as the control plane counts it.
    pub(crate) fn now(&self) -> Time {
        Time(0) + self.origin.elapsed()
    }

    /// Notes that this process has logs, and must not say that it writes nothing more.
    pub(crate) fn hold_end_notice(&self) {
        self.end_notice.hold(true);
    }

    /// Notes that the logs of this process say that it writes nothing more, or need not.
    pub(crate) fn allow_end_notice(&self) {
        self.end_notice.hold(false);
    }

    pub(crate) fn end_notice(&self) -> &EndNotice {
        &self.end_notice
    }

    /// Whether this process may say that it ends. A process that restarts its group has asked no member for
    /// admission.
    fn may_say_farewell(&mut self) -> bool {
        let may = |old: &mut OldLogs| old.write_end_notice();
        !self.end_notice.is_held() && self.restart.is_none() && self.old_logs.as_mut().is_none_or(may)
    }

    /// Returns the roster of processes.
    pub(crate) fn roster(&self) -> &Roster<Peer> {
        &self.roster
    }

    /// Runs a step of the control plane with the current time, and carries out its orders.
    pub(crate) fn act<R>(&mut self, act: impl FnOnce(&mut Roster<Peer>, Time) -> R) -> R {
        let now = self.now();
        self.roster.set_clock(self.clock.now());
        let result = act(&mut self.roster, now);
        self.carry_out();
        result
    }

    /// Sets the clock of this process, and how far those of processes that ask for admission may differ.
    pub(crate) fn set_clock(&mut self, clock: LogClock, max: Option<Duration>) {
        self.clock = clock;
        self.roster.bound_clocks(max);
    }

    pub(crate) fn clock(&self) -> &LogClock {
        &self.clock
    }

    pub(crate) fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Waits for control events, up to `at_most`.
    pub(crate) fn wait(&self, at_most: Duration) {
        self.notices.wait(self.patience().map_or(at_most, |patience| patience.min(at_most)));
    }

    pub(crate) fn control_socket(&self) -> Option<&ControlSocket> {
        match &self.ways {
            Ways::Rendezvous(rendezvous) => Some(&rendezvous.control_socket),
            Ways::Local(_) => None,
        }
    }

    pub(crate) fn net(&self) -> Option<&Net> {
        match &self.ways {
            Ways::Rendezvous(rendezvous) => rendezvous.net.as_ref(),
            Ways::Local(_) => None,
        }
    }

    /// Returns the book of processes on other hosts.
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

    /// Returns whether there may be control events.
    #[inline]
    pub(crate) fn has_notice(&self) -> bool {
        self.notices.is_any()
    }

    /// Returns whether there are no control events and no messages that could be sent now.
    pub(crate) fn is_calm(&self) -> bool {
        let is_empty = match &self.ways {
            Ways::Rendezvous(rendezvous) => rendezvous.outbox.is_empty(),
            Ways::Local(_) => true,
        };
        !self.has_notice() && is_empty && self.starved_until.is_none()
    }

    /// Returns when to retry control messages that could not be sent.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let starved = self.starved_until.map(|until| until.saturating_duration_since(Instant::now()));
        let bootstrap = self.bootstrap.as_ref().map(|bootstrap| bootstrap.patience(self.now()));
        let outbox = match &self.ways {
            Ways::Rendezvous(rendezvous) => rendezvous.outbox.patience(),
            Ways::Local(_) => None,
        };
        outbox.into_iter().chain(starved).chain(bootstrap).chain(self.restart_patience()).min()
    }

    /// Sends the messages that can be sent now.
    pub(crate) fn flush_now(&mut self) {
        self.flush();
        self.carry_out();
    }

    fn flush(&mut self) {
        let now = self.now();
        let Ways::Rendezvous(rendezvous) = &mut self.ways else { return };
        // A control message that can't be sent for a reason of this process is lost. Its receiver
        // will miss this member and report that.
        let unreached = rendezvous.outbox.flush(&rendezvous.control_socket).unwrap_or_default();
        self.roster.unreached(unreached);
        self.roster.forget_the_deaf(|id| rendezvous.outbox.holds_for(id), now);
        self.carry_out();
    }

    /// Returns whether every message to the living members of `view` was sent. Processes outside
    /// the view may leave their messages unread.
    pub(crate) fn has_sent_all(&self, view: &View) -> bool {
        match &self.ways {
            Ways::Rendezvous(rendezvous) => {
                !rendezvous.outbox.addressees().any(|to| self.roster.waits_to_reach(to, view))
            }
            Ways::Local(_) => true,
        }
    }

    /// Sends a control message.
    pub(crate) fn post(&mut self, to: MemberId, message: ControlMessage) {
        self.act(|roster, _| roster.post(to, message));
    }

    /// Stores this process's memory for `view`, which can be handed over now.
    pub(crate) fn set_handover(&mut self, view: ViewId, handover: SharedRowDescriptors) {
        self.shared_rows.insert(view, handover);
    }

    /// Returns whether members of this host share memory beyond what they [hand
    /// over](Self::set_handover).
    pub(crate) fn may_show(&self) -> bool {
        matches!(self.ways, Ways::Rendezvous(_))
    }

    /// As [`act`](Self::act). The `shown` members need no control message with this process's
    /// memory meanwhile.
    pub(crate) fn act_without(&mut self, shown: BTreeSet<MemberId>, act: impl FnOnce(&mut Roster<Peer>, Time)) {
        self.shown = shown;
        self.act(act);
        self.shown.clear();
    }

    /// Removes the data of views before `view`, which has begun.
    pub(crate) fn has_begun(&mut self, view: ViewId) {
        self.bulk_links.begin(view);
        self.shared_rows.retain(|of, _| *of >= view);
        // Observers that follow an ended view to its end still need its objects.
        self.senders.retain(|(_, of), _| !matches!(of, Purpose::State { view: of } if *of < view));
        if let Ways::Rendezvous(Rendezvous { net: Some(net), .. }) = &mut self.ways {
            net.begin(view);
        }
        self.carry_out();
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.owner.is_copy() {
            return;
        }
        match &self.ways {
            // Other processes are watched; within one process no other event reports the end.
            Ways::Local(board) => {
                lock(&board.gone).insert(self.me);
                lock(&board.bulk_links).remove(&self.me);
                lock(&board.event_counts).values().for_each(|notices| notices.ring());
            }
            Ways::Rendezvous(_) => {
                if self.may_say_farewell() {
                    self.act(|roster, _| roster.farewell());
                }
                if let Ways::Rendezvous(rendezvous) = &mut self.ways {
                    rendezvous.outbox.hurry();
                }
                // The process waits up to 200 ms until control messages to other hosts are sent.
                self.flush_now();
            }
        }
    }
}

/// Returns a moment after `now`, or the latest possible one.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()))
}

#[cfg(test)]
pub(crate) mod tests;
