//! The processes behind the members: their liveness, their memory, their requests to join, and the
//! control messages that they send each other beside the rows.
//!
//! A [`Roster`] does not decide which processes are in a view; the engine agrees on that. It holds
//! what this process knows of the processes that the agreement is about, and what they have handed
//! over for later views. A driver passes all input to it, and carries out its [orders](Order). `W`
//! is the driver's handle of a member's row: its memory, or a stream.
//!
//! The tables are types of their own, which know nothing of each other. Read [`Processes`] first:
//! at any time an id belongs to one process. [`Newcomers`] hold the views with which processes join,
//! and [`Statements`] the last views of processes. [`Parts`] and [`Streams`] hold what members have
//! handed over. [`Doubts`] are about members of other hosts. The other files are the methods of the
//! roster, by concern.
mod addresses;
mod admissions;
mod announcements;
mod clocks;
mod connections;
mod doubts;
mod event;
mod farewell;
mod incoming;
mod memory;
mod newcomers;
mod observers;
mod order;
mod outgoing;
mod parts;
mod places;
mod processes;
mod signs_of_life;
mod stopped;
mod streams;
mod watches;

use super::{Birth, Book, IdConflicts};
use crate::ids::{MemberId, Process, Time, ViewId};
use crate::view::View;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use clocks::Clocks;
use doubts::Doubts;
pub use event::{Asks, ControlEvent, Question};
use newcomers::Newcomers;
use observers::Observers;
pub use order::RosterOrder;
use parts::{HandOvers, Parts};
use places::Searches;
use processes::Processes;
use stopped::{Statements, StoppedProcesses};
pub use streams::Arrival;
use streams::Streams;

/// The target of events about processes on other hosts.
const TARGET: &str = "spindle::net";
/// The number of views before the current one whose streams and statements are still known.
const VIEWS_BEHIND_MAX: u64 = 4;

/// The number of earlier processes that are remembered for an id, beside the last one that asked
/// for admission with it.
const FORMER_MAX: usize = 4;

/// This process as others of its host know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Me {
    /// Its id.
    pub id: MemberId,
    /// Its pid.
    pub pid: u32,
    /// Its start, which differs from that of others with its pid.
    pub birth: Birth,
}

/// A process's knowledge of the other processes of its group.
#[derive(Debug)]
pub struct Roster<W> {
    me: Me,
    /// The nonce of this process, which no other process with its id has.
    nonce: u32,
    /// `None`: all members are on this host.
    book: Option<Book>,
    /// The incarnation of the group; 0: not known yet.
    incarnation: u128,
    /// The newest view that has begun here.
    begun: ViewId,
    /// True if this process has begun a view that contains it.
    takes_part: bool,
    /// The decision that led to the newest view, in words.
    decision: Option<(ViewId, Vec<u64>)>,
    /// The members of the view that has begun, and of the one that is being prepared.
    members: BTreeSet<MemberId>,
    /// The nonces with which founders take part in creating the group, as far as they have reported
    /// them. Each one is that of the process whose address is known.
    founders: BTreeMap<MemberId, u32>,
    /// Processes that this process has asked for admission.
    asked: BTreeSet<MemberId>,
    /// Processes that wait for admission, whose ends have to be noticed.
    joiners: BTreeSet<MemberId>,
    processes: Processes,
    newcomers: Newcomers,
    stopped: Statements,
    doubts: Doubts,
    observers: Observers,
    searches: Searches,
    id_conflicts: IdConflicts,
    clocks: Clocks,
    parts: Parts<W>,
    streams: Streams<W>,
    hand_overs: HandOvers,
    news: Vec<ControlEvent>,
    orders: VecDeque<RosterOrder>,
}

impl<W> Roster<W> {
    /// Returns the roster of a process that has met no other, and has drawn this `nonce`, which is
    /// not 0.
    pub fn new(me: Me, nonce: u32, book: Option<Book>) -> Roster<W> {
        let (newcomers, stopped, asked, joiners, decision) = Default::default();
        let (members, doubts, observers, searches, id_conflicts, clocks, orders) = Default::default();
        Roster {
            me,
            nonce,
            book,
            incarnation: 0,
            parts: Parts::new(),
            streams: Streams::new(),
            hand_overs: HandOvers::new(),
            begun: ViewId(0),
            decision,
            newcomers,
            processes: Processes::new(me.id),
            founders: BTreeMap::new(),
            asked,
            joiners,
            takes_part: false,
            searches,
            members,
            stopped,
            doubts,
            observers,
            id_conflicts,
            clocks,
            news: Vec::new(),
            orders,
        }
    }

    /// Returns the next order for the driver.
    pub fn next_order(&mut self) -> Option<RosterOrder> {
        self.orders.pop_front()
    }

    /// True if anything has happened since the news were last [taken](Self::take_news).
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Returns the news since the last call.
    pub fn take_news(&mut self) -> Vec<ControlEvent> {
        core::mem::take(&mut self.news)
    }

    /// Returns this process's id.
    pub fn me(&self) -> MemberId {
        self.me.id
    }

    /// Returns this process.
    pub fn process(&self) -> Me {
        self.me
    }

    /// Returns the book of other hosts, if the group may span them.
    pub fn book(&self) -> Option<&Book> {
        self.book.as_ref()
    }

    /// Sets the incarnation of the group. Parts that others have sent for it already are kept.
    pub fn set_incarnation(&mut self, incarnation: u128) {
        self.incarnation = incarnation;
        self.parts.retain_incarnation(incarnation);
    }

    /// Returns the key of this host; it is never 0. A group of one host needs none, and has 1.
    pub fn host(&self) -> u128 {
        self.book.as_ref().map_or(1, |book| book.card().host)
    }

    /// True if a message about this group is about the group of this process, which may not know
    /// its group yet.
    fn may_be_mine(&self, incarnation: u128) -> bool {
        [incarnation, 0].contains(&self.incarnation)
    }

    /// Returns the incarnation of the group; 0: not known yet.
    pub fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// True if `id` is a member of the view that has begun, or of the one that is being prepared.
    pub fn is_member(&self, id: MemberId) -> bool {
        self.members.contains(&id)
    }

    /// True if this process has begun a view that contains it.
    pub fn takes_part(&self) -> bool {
        self.takes_part
    }

    /// Returns the processes that may wait for this process's memory: the members that it knows,
    /// and the processes that it has asked for admission.
    pub fn counterparts(&self) -> impl Iterator<Item = MemberId> {
        self.asked.union(&self.members).copied().filter(|id| *id != self.me.id)
    }

    /// Returns this process.
    pub fn as_process(&self) -> Process {
        Process { id: self.me.id, nonce: self.nonce }
    }

    /// Notes the processes that wait for admission. A later view may have them, though they never ask again.
    pub(in crate::control) fn set_joiners(&mut self, joiners: impl Iterator<Item = MemberId>) {
        self.joiners = joiners.collect();
    }

    /// Notes that a view has begun. Forgets data of earlier views, and processes that are not in
    /// this view and do not wait for admission.
    pub fn begin(&mut self, view: &View, now: Time) {
        self.begun = view.id;
        self.parts.begin(view.id);
        self.streams.begin(view.id);
        self.newcomers.begin(view.id);
        self.stopped.begin(view.id);
        self.takes_part |= view.members.contains(&self.me.id);
        self.founders.clear();
        let parts = self.parts.members();
        // A joiner that was forgotten could become a member whose end no member would notice.
        let joiners = &self.joiners;
        let wanted: BTreeSet<MemberId> =
            view.members.iter().chain(self.observers.ids()).chain(joiners).copied().chain(parts).collect();
        if let Some(book) = &mut self.book {
            // `members` are those of the previous view and of this one.
            let members = &self.members;
            let has_gone = |id| members.contains(&id) && !view.members.contains(&id);
            let gone = book.retain(view.id, |id| wanted.contains(&id), has_gone, now);
            self.orders.extend(gone.into_iter().map(RosterOrder::UnwatchFar));
        }
        self.processes.begin(&wanted, &self.joiners, &mut self.orders);
        self.hand_overs.retain(&wanted);
        self.orders.push_back(RosterOrder::Retain(wanted));
        self.observers.begin(view);
        self.members = view.members.iter().copied().collect();
        self.doubts.begin(view.id, &self.members);
    }

    /// True if `id` is on another host. It then shares no memory with this process, and nothing
    /// proves its death.
    pub fn is_far(&self, id: MemberId) -> bool {
        self.book.as_ref().is_some_and(|book| book.is_far(id))
    }
}

#[cfg(test)]
mod tests {
    use super::Me;
    use crate::control::{Birth, ControlMessage};
    use crate::ids::{MemberId, ViewId};

    pub(super) fn me(id: u64) -> Me {
        Me { id: MemberId(id), pid: id as u32, birth: Birth::default() }
    }

    /// Returns the request of a process of this host for admission, or only to observe.
    pub(super) fn ask(Me { id: from, pid, birth }: Me, nonce: u32, observer: bool) -> ControlMessage {
        let (config, members, follows) = (4, 1, ViewId(0));
        let (address, rack, seeds, clock) = (None, None, None, 0);
        ControlMessage::Ask { from, pid, birth, nonce, config, members, observer, follows, address, rack, seeds, clock }
    }
}
