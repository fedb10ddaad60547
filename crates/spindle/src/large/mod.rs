//! Messages of a group that are too long for a ring: they go as objects, in blocks or lent, and are announced when every member has them
//! ([ADR 0023](../../../docs/adr/0023-large-messages-are-announced-when-they-are-everywhere.md)).
//!
//! For each sender of a subgroup that has such a message there is a [bulk group](crate::bulk) of the subgroup's members, in each view anew. One member
//! of each host, its head, takes part in what goes over streams, and lends it to the others of its host. The sender opens the group; the other heads take
//! part when its stream reaches them, and who is no head when its head's socket does.
//!
//! Who follows is no member, and asks one for the object that a message names: `Kept` is what members keep for that, `Serving` sends it, and
//! `Ahead` is what waits for it at the other end.
mod fetching;
mod kept;
mod outbound;
mod serving;

pub(crate) use fetching::{Ahead, Next};
pub(crate) use kept::Kept;
pub(crate) use outbound::{Outbound, Permit};
pub(crate) use serving::{Order, Serving};

use crate::bulk::{
    Algorithm, Buffer, BulkError, BulkGroup, BulkNode, BulkSendError, BulkSettings, BulkThread, Cause, Failure, Hosts,
    ObjectId, Racks, Upcalls, Waiting,
};
use crate::crew::{BulkLink, BulkWay, Crew, Notices};
use crate::node::Terms;
use spindle_core::bulk::SendError;
use spindle_core::control::RackName;
use spindle_core::{Engine, MemberId, Rank, Ring, SubgroupId, View, ViewId};
use spindle_fabric::bulk::{BulkLinksError, LocalPart, Object};
use spindle_fabric::tcp::Connection;
use spindle_fabric::{Fabric, Mesh, Reader};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::{debug, error, warn};

/// The target of events of objects.
const TARGET: &str = "spindle::object";

/// How often links that did not come about are tried again.
pub(crate) const LINK_LOOK: Duration = Duration::from_millis(50);
/// How long a member may be lost to a bulk group before it is suspected, where silence is not.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// How often a link may be late before who waits for it, and does not make it, takes its maker for lost.
const LATE_MAX: u32 = 3;
/// Objects of one sender that may wait here for their messages: far more than it may have on the way.
const SHELVED_MAX: usize = 4 * outbound::OBJECTS_MAX;

/// The bulk groups of a member in one view.
#[derive(Debug)]
pub(crate) struct Large {
    thread: Option<BulkThread>,
    told: Arc<Told>,
    bytes_max: u64,
    waiting: Waiting,
    /// By number.
    groups: BTreeMap<u64, State>,
    /// Members that are lost to a group of this view, since when.
    lost: Vec<(Rank, Instant)>,
    /// How long they may be before they are suspected.
    grace: Duration,
}

#[derive(Debug)]
enum State {
    /// Its streams are being made; those that are here, by the rank in the view.
    Opening {
        streams: BTreeMap<Rank, Connection>,
        since: Instant,
        /// How often it was late.
        late: u32,
    },
    /// It is served, here by somebody who receives.
    Open(#[expect(dead_code, reason = "it is left when this is dropped")] BulkGroup),
    /// It is served, here by the sender, whose publishers have it.
    Sending,
}

impl State {
    fn opening() -> State {
        State::Opening { streams: BTreeMap::new(), since: Instant::now(), late: 0 }
    }
}

/// What the thread that serves the groups tells the polling thread.
#[derive(Debug)]
struct Told {
    list: Mutex<Vec<(ViewId, Trouble)>>,
    notices: Arc<Notices>,
}

/// What has become of a bulk group.
#[derive(Debug)]
enum Trouble {
    /// A member is lost to it.
    Lost(Rank),
    /// This member can't take part.
    Unable(String),
}

impl Trouble {
    /// What the failure of a group is whose `members` these are.
    fn of(failure: &Failure, members: &[Rank]) -> Trouble {
        match failure.cause {
            Cause::Memory(_) => Trouble::Unable(format!("large messages: {failure}")),
            _ => Trouble::Lost(members[failure.dead.index()]),
        }
    }
}

impl Told {
    fn tell(&self, view: ViewId, trouble: Trouble) {
        match &trouble {
            Trouble::Lost(rank) => {
                warn!(target: TARGET, view = view.0, rank = rank.0, "member is lost to large messages")
            }
            Trouble::Unable(why) => {
                error!(target: TARGET, view = view.0, reason = why, "large messages can't go on here")
            }
        }
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push((view, trouble));
        self.notices.ring();
    }
}

/// One bulk group: which, and who is in it.
struct Group<'a> {
    view: &'a Arc<View>,
    subgroup: SubgroupId,
    /// Whose it is.
    root: Rank,
    me: Rank,
}

impl<'a> Group<'a> {
    /// The group of this number, if there can be one.
    fn of(view: &'a Arc<View>, number: u64, me: Rank) -> Option<Group<'a>> {
        let (subgroup, root) = (SubgroupId((number >> 32) as u32), Rank(number as u32));
        let spec = view.subgroups.get(subgroup.index())?;
        let is_one = spec.senders.contains(&root) && spec.members.contains(&me);
        is_one.then_some(Group { view, subgroup, root, me })
    }

    fn number(&self) -> u64 {
        u64::from(self.subgroup.0) << 32 | u64::from(self.root.0)
    }

    fn members(&self) -> &'a [Rank] {
        &self.view.subgroups[self.subgroup.index()].members
    }

    /// The rank in the bulk group of a member of the subgroup.
    fn place(&self, member: Rank) -> Rank {
        let place = self.members().iter().position(|rank| *rank == member);
        Rank(place.expect("a member of the subgroup") as u32)
    }

    fn id(&self, member: Rank) -> MemberId {
        self.view.members[member.index()]
    }

    /// Whether `from` and I are heads of two hosts.
    fn is_between_heads(&self, from: Rank, crew: &Crew) -> bool {
        let hosts = self.hosts(crew);
        let is_head = |member| hosts.heads().contains(&self.place(member));
        from != self.me && is_head(from) && is_head(self.me)
    }

    /// Whether the stream between me and `other`, heads of two hosts, is mine to make: the root makes all of its own, so that the others hear of the group;
    /// of two others it is the one of the lower rank.
    fn is_mine(&self, other: Rank) -> bool {
        self.me == self.root || (other != self.root && self.me < other)
    }

    /// Which of the members share a host, by their ranks in the bulk group.
    fn hosts(&self, crew: &Crew) -> Hosts {
        let host = |member: &Rank| crew.book().map_or(0, |book| book.host(self.id(*member)));
        let keys: Vec<u128> = self.members().iter().map(host).collect();
        Hosts::new(self.place(self.root), &keys)
    }

    fn settings(&self, hosts: &Hosts, crew: &Crew, object_bytes_max: u64) -> BulkSettings {
        let incarnation = crew.incarnation();
        let words = [incarnation as u64, (incarnation >> 64) as u64, self.view.id.0, self.number()];
        // FNV-1a, word by word.
        let tag = words
            .into_iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3));
        let algorithm = self.algorithm(hosts, |id| crew.book()?.rack(id));
        BulkSettings { algorithm, slots: outbound::SLOTS, object_bytes_max, tag, ..BulkSettings::default() }
    }

    /// How blocks spread from host to host: by racks as soon as there are two of them. All members are told the same racks, and that they were is
    /// checked when their streams begin.
    fn algorithm<'r>(&self, hosts: &Hosts, rack: impl Fn(MemberId) -> Option<&'r RackName>) -> Algorithm {
        let heads = hosts.heads().iter().map(|place| self.id(self.members()[place.index()]));
        let racks = Racks::grouped(heads.map(rack));
        match racks.count() {
            1 => Algorithm::BinomialPipeline,
            _ => Algorithm::Hybrid(racks),
        }
    }
}

impl Large {
    pub(crate) fn new(notices: &Arc<Notices>, terms: &Terms) -> Large {
        let told = Arc::new(Told { list: Mutex::default(), notices: Arc::clone(notices) });
        let (bytes_max, grace) = (terms.object_bytes_max, terms.suspect_after.unwrap_or(LOST_GRACE));
        let waiting = match terms.spin_for {
            Duration::MAX => Waiting::Polling,
            Duration::ZERO => Waiting::Interrupt,
            spin_for => Waiting::Hybrid { spin_for },
        };
        Large { thread: None, told, bytes_max, waiting, groups: BTreeMap::new(), lost: vec![], grace }
    }

    /// The view has ended: leaves its groups.
    pub(crate) fn end_view(&mut self) {
        self.groups.clear();
        self.lost.clear();
        self.told.list.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether to come again soon: links may have to be tried again, or somebody be suspected.
    pub(crate) fn is_pending(&self) -> bool {
        !self.lost.is_empty() || self.groups.values().any(|state| matches!(state, State::Opening { .. }))
    }

    /// Takes in what has happened in the groups of `view`: why this member can't go on, if it can't.
    pub(crate) fn look(&mut self, view: ViewId) -> Result<(), String> {
        let told = std::mem::take(&mut *self.told.list.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, trouble) in told.into_iter().filter(|(of, _)| *of == view) {
            match trouble {
                Trouble::Lost(rank) => self.lost.push((rank, Instant::now())),
                Trouble::Unable(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Who is lost to a group of this view for so long that it must be the way to it that is broken: of a death others tell sooner, and
    /// whoever has left the group because the view or the work was over is not in this view so long.
    pub(crate) fn overdue(&mut self) -> Vec<Rank> {
        let grace = self.grace;
        self.lost.extract_if(.., |(_, since)| since.elapsed() >= grace).map(|(rank, _)| rank).collect()
    }

    /// Takes in the links that have come, and opens the groups that `wanted` senders of this member wait for.
    pub(crate) fn open<'a>(
        &mut self,
        crew: &mut Crew,
        view: &Arc<View>,
        engine: &Engine,
        fabric: &Mesh,
        wanted: impl Iterator<Item = (SubgroupId, &'a Arc<Outbound>)>,
    ) {
        let me = engine.me();
        for BulkLink { number, from, way, .. } in crew.take_bulk_links(view.id) {
            let (Some(from), Some(group)) = (view.rank_of(from), Group::of(view, number, me)) else { continue };
            if !group.members().contains(&from) {
                continue;
            }
            match way {
                // Who takes others for heads than its peers is in no group with them. They learn it when the stream ends.
                BulkWay::Stream(_) if !group.is_between_heads(from, crew) => {}
                BulkWay::Lend(socket) => self.borrow(&group, from, socket, crew, engine, fabric),
                BulkWay::Stream(stream) => {
                    if let State::Opening { streams, .. } = self.groups.entry(number).or_insert_with(State::opening) {
                        streams.insert(from, stream);
                    }
                }
            }
        }
        let wanted: Vec<(SubgroupId, &Arc<Outbound>)> = wanted.collect();
        for (subgroup, _) in &wanted {
            let number = Group { view, subgroup: *subgroup, root: me, me }.number();
            self.groups.entry(number).or_insert_with(State::opening);
        }
        let opening: Vec<u64> =
            self.groups.iter().filter(|(_, s)| matches!(s, State::Opening { .. })).map(|(n, _)| *n).collect();
        for number in opening {
            let Some(group) = Group::of(view, number, me) else { continue };
            let outbound =
                wanted.iter().find(|(id, _)| *id == group.subgroup && group.root == me).map(|(_, outbound)| *outbound);
            self.connect(&group, outbound, crew, engine, fabric);
        }
    }

    /// Takes part in a group in which `from` lends.
    fn borrow(&mut self, group: &Group<'_>, from: Rank, socket: OwnedFd, crew: &Crew, engine: &Engine, fabric: &Mesh) {
        let (hosts, me) = (group.hosts(crew), group.place(group.me));
        // The head of this host lends, and nobody else.
        if hosts.head(me) != group.place(from) || from == group.me {
            return;
        }
        let settings = group.settings(&hosts, crew, self.bytes_max);
        let part = LocalPart::from_fds(hosts.members(), me, hosts.head(me), vec![socket]);
        let node =
            part.map_err(Into::into).and_then(|part| BulkNode::across_hosts(me, hosts, &settings, [], Some(part)));
        self.receive(group, node, engine, fabric);
    }

    /// Makes the streams that are mine to make, and begins when all are there.
    fn connect(
        &mut self,
        group: &Group<'_>,
        outbound: Option<&Arc<Outbound>>,
        crew: &mut Crew,
        engine: &Engine,
        fabric: &Mesh,
    ) {
        let Some(State::Opening { streams, since, late }) = self.groups.get_mut(&group.number()) else { return };
        let (hosts, me) = (group.hosts(crew), group.place(group.me));
        let is_late = since.elapsed() >= self.grace;
        let heads = hosts.heads().iter().filter(|place| **place != me).map(|place| group.members()[place.index()]);
        *late += u32::from(is_late);
        for head in heads.clone().filter(|head| !streams.contains_key(head)) {
            let is_mine = group.is_mine(head);
            if is_mine {
                crew.make_bulk_stream(group.id(head), group.view.id, group.number());
            }
            // Whoever has to make a link judges; who waits for it does when that one has not been judged either.
            if is_late && (is_mine || *late > LATE_MAX) {
                let (view, member) = (group.view.id.0, group.id(head).0);
                warn!(target: TARGET, view, member, is_mine, late, "stream for large messages does not come about");
                self.lost.push((head, Instant::now()));
            }
        }
        if is_late {
            *since = Instant::now();
        }
        if heads.clone().any(|head| !streams.contains_key(&head)) || (group.root == group.me && outbound.is_none()) {
            return;
        }
        let heads: Vec<Rank> = heads.collect();
        let streams = std::mem::take(streams).into_iter().filter(|(member, _)| heads.contains(member));
        let streams = streams.map(|(member, stream)| (group.place(member), stream));
        let settings = group.settings(&hosts, crew, self.bytes_max);
        let part = match Self::lend(group, &hosts, crew) {
            Ok(part) => part,
            Err(error) => {
                let what = format!("large messages of {}: {error}", group.root);
                return self.told.tell(group.view.id, Trouble::Unable(what));
            }
        };
        let node = BulkNode::across_hosts(me, hosts, &settings, streams, part);
        match outbound {
            Some(outbound) => self.send(group, node, outbound),
            None => self.receive(group, node, engine, fabric),
        }
    }

    /// Hands the others of this host the sockets through which I lend, if there are others: my part among them.
    fn lend(group: &Group<'_>, hosts: &Hosts, crew: &mut Crew) -> Result<Option<LocalPart>, BulkLinksError> {
        let me = group.place(group.me);
        let here: Vec<Rank> = hosts.on_the_host_of(me).collect();
        if here.len() == 1 {
            return Ok(None);
        }
        let mut mine = None;
        for part in LocalPart::parts_among(&here, hosts.members(), me)? {
            let member = group.members()[part.me().index()];
            match member == group.me {
                true => mine = Some(part),
                false => part.into_fds().into_iter().for_each(|socket| {
                    crew.send_bulk_link(group.id(member), group.view.id, group.number(), socket);
                }),
            }
        }
        Ok(mine)
    }

    fn send(&mut self, group: &Group<'_>, node: Result<BulkNode, BulkError>, outbound: &Arc<Outbound>) {
        let upcalls = Sender {
            view: group.view.id,
            members: group.members().to_vec(),
            outbound: Arc::clone(outbound),
            told: Arc::clone(&self.told),
        };
        self.groups.insert(group.number(), State::Sending);
        if let Some(running) = self.run(group, node, upcalls) {
            outbound.run(running);
        }
    }

    fn receive(&mut self, group: &Group<'_>, node: Result<BulkNode, BulkError>, engine: &Engine, fabric: &Mesh) {
        let place = engine.layout().row(group.root).place(group.subgroup);
        let upcalls = Receiver {
            view: group.view.id,
            members: group.members().to_vec(),
            root: group.root,
            ring: place.and_then(|place| place.ring).expect("it sends in the subgroup"),
            rows: fabric.reader(),
            told: Arc::clone(&self.told),
        };
        if let Some(running) = self.run(group, node, upcalls) {
            self.groups.insert(group.number(), State::Open(running));
        }
    }

    fn run(
        &mut self,
        group: &Group<'_>,
        node: Result<BulkNode, BulkError>,
        upcalls: impl Upcalls + 'static,
    ) -> Option<BulkGroup> {
        let running = node.and_then(|node| {
            let thread = match &mut self.thread {
                Some(thread) => thread,
                none => none.insert(BulkThread::start(self.waiting)?),
            };
            thread.run(node, upcalls)
        });
        let unable = |what| Trouble::Unable(format!("large messages of {}: {what}", group.root));
        match running {
            Ok(running) => {
                let (view, me, sender) = (group.view.id.0, group.id(group.me).0, group.id(group.root).0);
                debug!(target: TARGET, me, view, sender, subgroup = group.subgroup.0, "group for large messages is open");
                Some(running)
            }
            Err(error) => {
                // What others have handed over is theirs to answer for.
                let is_theirs = group.root != group.me && matches!(error, BulkError::Links(_));
                self.told.tell(group.view.id, if is_theirs { Trouble::Lost(group.root) } else { unable(error) });
                None
            }
        }
    }
}

/// The upcalls of a group whose root this member is.
struct Sender {
    view: ViewId,
    /// By rank in the bulk group.
    members: Vec<Rank>,
    outbound: Arc<Outbound>,
    told: Arc<Told>,
}

impl Upcalls for Sender {
    fn allocate(&mut self, _: ObjectId, _: u64) -> Option<Buffer> {
        None
    }

    fn complete(&mut self, _: ObjectId, _: Object) {}

    fn everywhere(&mut self, object: ObjectId) {
        self.outbound.everywhere(self.view, object.0);
    }

    fn refused(&mut self, error: BulkSendError) {
        // A group that is closed has told so.
        if !matches!(error, BulkSendError::Session(SendError::Closed { .. }) | BulkSendError::Destroyed) {
            self.told.tell(self.view, Trouble::Unable(error.to_string()));
        }
    }

    fn failed(&mut self, failure: Failure) {
        self.told.tell(self.view, Trouble::of(&failure, &self.members));
    }
}

/// The upcalls of a group in which this member receives.
struct Receiver {
    view: ViewId,
    /// By rank in the bulk group.
    members: Vec<Rank>,
    root: Rank,
    ring: Ring,
    rows: Reader,
    told: Arc<Told>,
}

impl Upcalls for Receiver {
    fn allocate(&mut self, _: ObjectId, bytes: u64) -> Option<Buffer> {
        let buffer = Buffer::zeroed(bytes);
        if buffer.is_none() {
            let what =
                format!("there is no memory for a message of {bytes} bytes; lower object_bytes_max at all members");
            self.told.tell(self.view, Trouble::Unable(what));
        }
        buffer
    }

    fn complete(&mut self, object: ObjectId, data: Object) {
        if self.rows.count_objects(self.root, &self.ring) >= SHELVED_MAX {
            // It sends without announcing what it has sent.
            return self.told.tell(self.view, Trouble::Lost(self.root));
        }
        self.rows.put_object(self.root, &self.ring, object.0, data);
    }

    fn failed(&mut self, failure: Failure) {
        self.told.tell(self.view, Trouble::of(&failure, &self.members));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    /// The racks of the bulk group of `root` in the one subgroup of a view of six, of whom rank i stands in `racks[i]`. None: the binomial pipeline.
    fn racks(members: &[u32], racks: [Option<&str>; 6], root: u32) -> Option<Racks> {
        let racks = racks.map(|rack| rack.map(|rack| rack.parse::<RackName>().unwrap()));
        let mut config = Config::new("g", 6);
        config.subgroups[0].members = crate::Who::Ranks(members.to_vec());
        let view = Arc::new(config.view((10..16).map(MemberId).collect()));
        let algorithm = |me: &u32| {
            let number = Group { view: &view, subgroup: SubgroupId(0), root: Rank(root), me: Rank(*me) }.number();
            let group = Group::of(&view, number, Rank(*me)).expect("it sends");
            let hosts = Hosts::new(group.place(group.root), members);
            group.algorithm(&hosts, |id| racks[id.0 as usize - 10].as_ref())
        };
        let mut all: Vec<Algorithm> = members.iter().map(algorithm).collect();
        all.dedup();
        match (all.pop(), all.is_empty()) {
            (Some(Algorithm::Hybrid(racks)), true) => Some(racks),
            (Some(Algorithm::BinomialPipeline), true) => None,
            other => panic!("{other:?}"),
        }
    }

    fn positions(list: &[&[u32]]) -> Option<Racks> {
        Some(Racks::new(list.iter().map(|rack| rack.iter().copied().map(Rank).collect()).collect()).unwrap())
    }

    #[test]
    fn the_senders_rack_is_the_first_and_the_sender_the_first_in_it() {
        let (all, [a, b]) = ([0, 1, 2, 3, 4, 5], [Some("a"), Some("b")]);
        let mixed = [a, a, b, None, b, None];
        assert_eq!(racks(&all, mixed, 0), positions(&[&[0, 1], &[2, 4], &[3, 5]]));
        // Ranks 4, 5, 0, 1, 2, 3 have the positions 0 to 5.
        assert_eq!(racks(&all, mixed, 4), positions(&[&[0, 4], &[1, 5], &[2, 3]]));
        // Only those of the subgroup count.
        assert_eq!(racks(&[1, 3, 4], mixed, 3), positions(&[&[0], &[1], &[2]]));
        assert_eq!(racks(&[2, 4], mixed, 4), None);
        assert_eq!(racks(&all, [a; 6], 2), None);
        assert_eq!(racks(&all, [None; 6], 2), None);
    }
}
