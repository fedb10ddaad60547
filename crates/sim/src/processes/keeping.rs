//! Objects for observers and learners: members keep and send them, and observers and learners wait
//! for them
//! ([ADR 0025](../../../../docs/adr/0025-members-keep-large-messages-for-those-who-follow.md)).
use super::blocks::BulkPacket;
use super::large::ring_of;
use super::ledger::MessageId;
use super::network::{PacketLoad, SimConnection};
use super::objects::{OBJECT_BYTES_MIN, ObjectContent};
use super::plan::{MS, S};
use super::process::{Near, ProcessPhase, SimProcess};
use super::rows::{PolledTable, RowPlaces};
use super::subgroups::decode;
use super::watching::Following;
use super::world::{BOUNDED, HostsWorld};
use crate::checkers::Checked;
use crate::checkers::Invariant;
use spindle_core::control::{Address, ControlMessage, Fetched, Fetching, ObjectName, ObjectOrder, Purpose, Wanted};
use spindle_core::{Lapped, MemberId, Observer, Seen, SubgroupId, Time, View, ViewId};
use std::collections::VecDeque;

const MISSED: Invariant = Invariant(24, "no object is missed without a cause");

/// The pause between two objects for one process. Seldom a member pauses for longer than the
/// process waits.
const PAUSE_NS: u64 = 2 * MS;
const LONG_PAUSE_NS: u64 = 6 * S;
/// The time after a long pause in which a process may miss an object because of it.
const SLOW_ANSWER_NS: u64 = 2 * S;
/// The time after which a member no longer waits for a process that does not read all its objects.
const UNREAD_NS: u64 = 20 * S;
/// The maximum number of messages that are read at once after an object that has yet to arrive.
const READ_ON_MAX: usize = 64;
/// The maximum number of objects that a member keeps.
const KEPT_MAX: usize = 128;

/// A process that receives objects.
#[derive(Debug)]
pub(super) struct ServedProcess {
    connection: usize,
    view: ViewId,
    wanted: VecDeque<Wanted>,
    due: u64,
    since: u64,
}

/// Incoming objects: from this member, as the answer to this question, over this connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectAnswer {
    pub(super) from: MemberId,
    pub(super) reply: u64,
    pub(super) connection: usize,
}

/// The messages that an observer or learner has read and can't yield yet.
#[derive(Debug, Default)]
pub(super) struct SimReorderBuffer {
    fetching: Fetching,
    coming: Option<ObjectArrival>,
}

/// The connection over which objects arrive, with their lengths.
#[derive(Debug)]
struct ObjectArrival {
    question: u64,
    connection: usize,
    lengths: VecDeque<u64>,
}

impl SimReorderBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.fetching.is_empty()
    }

    /// Records that nothing more arrives from this process.
    pub(super) fn lost(&mut self, id: MemberId) {
        self.fetching.lost(id);
    }

    /// Begins to follow another view.
    pub(super) fn begin(&mut self) {
        self.fetching.begin();
    }

    fn want(&mut self, lapped: &Lapped, payload: &[u8], longest: u64) {
        let name = ObjectName::decode(payload).map(|name| (name.number, name.bytes));
        self.fetching.want(lapped, name, longest);
    }

    /// Gives up the connection if its question is over, and returns it.
    fn over(&mut self) -> Option<usize> {
        let question = self.fetching.question();
        self.coming.take_if(|coming| question != Some(coming.question)).map(|coming| coming.connection)
    }
}

impl HostsWorld<'_> {
    /// Sends the objects that a member keeps to the processes that have asked. Returns the time of
    /// the next step.
    pub(super) fn serve_objects(&mut self, process: &mut SimProcess) -> u64 {
        let now = self.now;
        while let Some(order) =
            process.objects.serving.next(process.objects.served.len() + process.objects.pledged.len())
        {
            let far = process.roster.book().and_then(|book| book.far(order.from)).cloned();
            if let Some(address) = far {
                let purpose = Purpose::Objects { view: order.view, reply: order.reply };
                self.begin_attempt(process.number, address, Some(order.from), purpose);
                process.objects.pledged.push(order);
            } else if let Some(other) = self.control_socket_of(process, order.from) {
                let connection = self.connect_here(process, other);
                let message = ControlMessage::Objects { from: process.me.id, reply: order.reply };
                let row = Some((connection, other));
                process
                    .outbox
                    .push_back((order.from, Near { message: message.encode().into(), attachment: [].into(), row }));
                self.begin_to_serve(process, order, connection);
            }
        }
        let mut served = std::mem::take(&mut process.objects.served);
        for one in &mut served {
            while one.due <= now
                && let Some(wanted) = one.wanted.pop_front()
            {
                let object = self.find_object(process, one.view, &wanted);
                if let Some(end) = self.connections.get(one.connection).map(|found| found.end_of(process.number)) {
                    self.send_over(one.connection, end, PacketLoad::Bulk(BulkPacket::Object(object)), false);
                }
                let is_long = self.random.one_in(400);
                one.due = now + self.random.below(if is_long { LONG_PAUSE_NS } else { PAUSE_NS });
                if is_long {
                    self.serves_late_until = self.serves_late_until.max(one.due);
                    let (number, ms) = (process.number, (one.due - now) / MS);
                    self.note(|| format!("process {number} pauses for {ms} ms before it sends the next object"));
                }
            }
        }
        served.retain(|one| {
            let is_read = one.wanted.is_empty() && one.since + UNREAD_NS < now;
            let (_, is_open) = self.take_parcels(process.number, one.connection);
            if is_read || !is_open {
                self.close_side(one.connection, process.number);
            }
            is_open && !is_read
        });
        process.objects.served = served;
        let served = process.objects.served.iter();
        served.map(|one| if one.wanted.is_empty() { now + 100 * MS } else { one.due }).min().unwrap_or(u64::MAX)
    }

    fn begin_to_serve(&mut self, process: &mut SimProcess, order: ObjectOrder, connection: usize) {
        let due = self.now + self.random.below(PAUSE_NS);
        let ObjectOrder { view, objects, .. } = order;
        process.objects.served.push(ServedProcess { connection, view, wanted: objects.into(), due, since: self.now });
    }

    /// Uses an established connection over which a process receives objects.
    pub(super) fn serve_pledged(
        &mut self,
        process: &mut SimProcess,
        to: MemberId,
        (view, reply): (ViewId, u64),
        connection: usize,
    ) {
        let is_it = |order: &ObjectOrder| (order.from, order.view, order.reply) == (to, view, reply);
        match process.objects.pledged.iter().position(is_it) {
            Some(at) => {
                let order = process.objects.pledged.swap_remove(at);
                self.begin_to_serve(process, order, connection);
            }
            None => self.close_side(connection, process.number),
        }
    }

    /// Handles a process to which objects were to be sent and that can't be reached.
    pub(super) fn follower_not_dialled(&self, process: &mut SimProcess, address: &Address, of: Purpose) {
        let Purpose::Objects { view, reply } = of else { return };
        let SimProcess { objects, roster, .. } = process;
        let is_it = |id: MemberId| roster.book().is_some_and(|book| book.far(id) == Some(address));
        objects.pledged.retain(|order| (order.view, order.reply) != (view, reply) || !is_it(order.from));
    }

    /// Returns an object that a member has, or keeps.
    fn find_object(&self, process: &SimProcess, view: ViewId, wanted: &Wanted) -> Option<ObjectContent> {
        let on_shelf = || {
            let ProcessPhase::Member(member) = &process.phase else { return None };
            let ring = ring_of(member, wanted.sender, wanted.subgroup).filter(|_| member.view().id == view)?;
            process.objects.object_table.get((wanted.sender, ring.at), wanted.number).cloned()
        };
        process.objects.object_cache.find(view, wanted).cloned().or_else(on_shelf)
    }

    /// Returns a connection to another process of this host.
    pub(super) fn connect_here(&mut self, process: &SimProcess, other: usize) -> usize {
        let mine = (process.card.clone(), process.nonce);
        let theirs = self.processes[other].as_deref().map(|other| (other.card.clone(), other.nonce));
        let cards = [mine.clone(), theirs.unwrap_or(mine)];
        let ends = [(process.number, process.host), (other, process.host)];
        self.connections.add(SimConnection::new(ends, cards, self.scene.suspect_after_ns))
    }

    pub(super) fn check_kept(&self, process: &SimProcess) -> Checked {
        match process.objects.kept_count > KEPT_MAX {
            true => BOUNDED.broken(format!("process {} keeps {} objects", process.number, process.objects.kept_count)),
            false => Ok(()),
        }
    }

    /// Returns the next deliverable message for an observer or learner. Messages after an object
    /// that has yet to arrive are read, and wait for the object.
    pub(super) fn next_or_ahead(
        &mut self,
        process: &mut SimProcess,
        (observer, places): (&mut Observer, &RowPlaces),
        ahead: &mut SimReorderBuffer,
        view: &View,
    ) -> Result<Option<(Seen, MessageId)>, Lapped> {
        let longest = self.scene.large.as_ref().map_or(0, |large| large.longest);
        let board = PolledTable { store: &mut self.store, places, posts: &mut vec![], object_table: None };
        if ahead.is_empty() {
            match observer.next(&board) {
                Err(lapped) if lapped.is_object => ahead.want(&lapped, observer.payload(), longest),
                next => return next.map(|seen| seen.map(|seen| (seen, decode(observer.payload())))),
            }
        }
        for _ in 0..READ_ON_MAX {
            match observer.next(&board) {
                _ if !ahead.fetching.has_room() => break,
                Ok(Some(seen)) => ahead.fetching.put(seen, observer.payload()),
                Err(lapped) if lapped.is_object => ahead.want(&lapped, observer.payload(), longest),
                // An observer that was lapped reports that again when the gap is next.
                Ok(None) | Err(_) => break,
            }
        }
        self.fetch(process, ahead, view);
        match ahead.fetching.take() {
            Some(Fetched::Message(seen, payload)) => {
                self.outcome.counts.fetched += u64::from(payload.len() >= OBJECT_BYTES_MIN);
                Ok(Some((seen, decode(&payload))))
            }
            Some(Fetched::Gone(lapped)) => Err(lapped),
            None => Ok(None),
        }
    }

    /// Takes the objects that have arrived, and asks for the missing ones.
    fn fetch(&mut self, process: &mut SimProcess, ahead: &mut SimReorderBuffer, view: &View) {
        let now = Time(self.now);
        for ObjectAnswer { from, reply, connection } in std::mem::take(&mut process.objects.answers) {
            let lengths = ahead.fetching.answered(from, reply, now);
            let before = match lengths {
                Some(lengths) => {
                    let coming = ObjectArrival { question: reply, connection, lengths: lengths.into() };
                    ahead.coming.replace(coming).map(|before| before.connection)
                }
                None => Some(connection),
            };
            before.into_iter().for_each(|connection| self.close_side(connection, process.number));
        }
        if let Some(coming) = &ahead.coming {
            let (parcels, is_open) = self.take_parcels(process.number, coming.connection);
            let ObjectArrival { question, lengths, .. } = ahead.coming.as_mut().expect("it is there");
            let question = *question;
            for parcel in parcels {
                let BulkPacket::Object(object) = parcel else { continue };
                if ahead.fetching.question() != Some(question) {
                    break;
                }
                let len = lengths.pop_front();
                match object {
                    Some(object) if len != Some(object.len() as u64) => ahead.fetching.broke_off(),
                    object => ahead.fetching.came(object.map(|object| object.to_vec()), now),
                }
            }
            if !is_open && ahead.fetching.question() == Some(question) {
                ahead.fetching.broke_off();
            }
        }
        let over = ahead.over();
        ahead.fetching.step(view, &mut process.roster, now);
        for connection in over.into_iter().chain(ahead.over()) {
            self.close_side(connection, process.number);
        }
    }

    /// Gives up the connections for objects whose questions are over.
    pub(super) fn give_up_ways(&mut self, number: usize, following: &mut Following) {
        if let Some(connection) = following.ahead.over() {
            self.close_side(connection, number);
        }
    }

    /// Checks that a missed object has a cause: some member of the subgroup has ended or had a
    /// fault.
    pub(super) fn check_missed(&mut self, process: &SimProcess, view: &View, subgroup: SubgroupId) -> Checked {
        self.outcome.counts.objects_missed += 1;
        let within = self.cause_ns();
        let troubles = self.troubled.iter().copied().chain([self.suspended, self.ended, process.paused_until]);
        let last = troubles.max().unwrap_or(0);
        // A process waits for a slow answer while members keep only the newest objects.
        if last + within >= self.now || self.serves_late_until + SLOW_ANSWER_NS >= self.now {
            return Ok(());
        }
        let members = view.subgroups[subgroup.index()].members.iter().map(|rank| view.members[rank.index()]);
        let is_there = |id: MemberId| {
            let is_it = |other: &SimProcess| {
                other.me.id == id && other.is_alive && matches!(other.phase, ProcessPhase::Member(_))
            };
            self.processes.iter().flatten().any(|other| is_it(other))
        };
        match members.into_iter().all(is_there) {
            true => MISSED.broken(format!(
                "process {} misses an object of view {}, and nothing has gone wrong for {} ms",
                process.number,
                view.id,
                (self.now - last) / MS
            )),
            false => Ok(()),
        }
    }
}
