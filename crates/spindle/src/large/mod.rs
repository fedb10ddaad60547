//! Messages of a group that are too long for a ring. They go as objects, in blocks or lent, and are
//! announced when every member has them ([ADR
//! 0023](../../../docs/adr/0023-large-messages-are-announced-when-they-are-everywhere.md)).
//!
//! The core's state machines of [objects](spindle_core::control::ObjectGroups) decide; this module
//! adds memory, streams, sockets and threads. [`Large`] opens the bulk groups of a view, and
//! [`Outbound`] contains the objects that this member sends through them.
//!
//! A process that follows is not a member. It asks a member for the object that a message names.
//! The [`LargeObjectCache`] contains the objects that a member keeps for that, and the [`LargeObjectServer`]
//! sends them. At the other end, messages wait for their objects in the [`ReorderBuffer`].
mod fetching;
mod object_cache;
mod object_server;
mod outbound;

pub(crate) use fetching::ReorderBuffer;
pub(crate) use object_cache::LargeObjectCache;
pub(crate) use object_server::LargeObjectServer;
pub(crate) use outbound::{Outbound, Permit};

use crate::bulk::{
    Buffer, BulkError, BulkFailure, BulkGroup, BulkNode, BulkSendError, BulkSettings, BulkThread, BulkUpcalls,
    BulkWaiting, FailureCause, ObjectId,
};
use crate::config::Terms;
use crate::control_plane::{BulkLink, BulkWay, ControlPlane};
use crate::mesh::Mesh;
use crate::shared::Notices;
use spindle_core::control::{GroupStep, ObjectGroup, ObjectGroups, Remedy, SLOTS, TABLE_OBJECTS_MAX};
use spindle_core::rdmc::SessionSendError;
use spindle_core::{Engine, Rank, Ring, SubgroupId, View, ViewId};
use spindle_fabric::bulk::{BulkLinksError, LocalPart, Object};
use spindle_fabric::{Fabric, Reader};
use spindle_transport::Connection;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::{debug, error, warn};

/// The target of events of objects.
const TARGET: &str = "spindle::object";

/// The bulk groups of a member in one view.
#[derive(Debug)]
pub(crate) struct Large {
    groups: ObjectGroups<Connection>,
    thread: Option<BulkThread>,
    told: Arc<Told>,
    bytes_max: u64,
    waiting: BulkWaiting,
    /// By number: the served groups in which this member receives. It leaves them when this is
    /// dropped.
    open: BTreeMap<u64, BulkGroup>,
}

/// Reports from the thread that serves the groups to the polling thread.
#[derive(Debug)]
struct Told {
    list: Mutex<Vec<(ViewId, Trouble)>>,
    notices: Arc<Notices>,
}

/// A problem of a bulk group.
#[derive(Debug)]
enum Trouble {
    /// A member is lost to the group.
    Lost(Rank),
    /// This member can't take part.
    Unable(String),
}

impl Trouble {
    /// Returns the problem that the failure of a group with these `members` means.
    fn of(failure: &BulkFailure, members: &[Rank]) -> Trouble {
        match failure.cause {
            FailureCause::Memory(_) => Trouble::Unable(format!("large messages: {failure}")),
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

impl Large {
    pub(crate) fn new(notices: &Arc<Notices>, terms: &Terms) -> Large {
        let told = Arc::new(Told { list: Mutex::default(), notices: Arc::clone(notices) });
        let waiting = match terms.spin_for {
            Duration::MAX => BulkWaiting::Polling,
            Duration::ZERO => BulkWaiting::Interrupt,
            spin_for => BulkWaiting::Hybrid { spin_for },
        };
        let groups = ObjectGroups::new(terms.suspect_after);
        Large { groups, thread: None, told, bytes_max: terms.object_bytes_max, waiting, open: BTreeMap::new() }
    }

    /// Handles the end of the view: leaves its groups.
    pub(crate) fn end_view(&mut self) {
        self.groups.end_view();
        self.open.clear();
        self.told.list.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// True if the caller has to call again soon: links may have to be tried again, or a member may
    /// have to be suspected.
    pub(crate) fn is_pending(&self) -> bool {
        self.groups.is_pending()
    }

    /// True if this view has groups, or will have some.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.are_there()
    }

    /// Takes in what has happened in the groups of `view`. Returns the reason as an error if this
    /// member can't continue.
    pub(crate) fn look(&mut self, view: ViewId, control_plane: &ControlPlane) -> Result<(), String> {
        let told = std::mem::take(&mut *self.told.list.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, trouble) in told.into_iter().filter(|(of, _)| *of == view) {
            match trouble {
                Trouble::Lost(rank) => self.groups.lose(rank, control_plane.now()),
                Trouble::Unable(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Returns the remedies for members of `view` that are lost to a group.
    pub(crate) fn overdue(&mut self, view: &View, me: Rank, control_plane: &ControlPlane) -> Vec<Remedy> {
        self.groups.overdue(view, me, control_plane.now())
    }

    /// Takes in the links that have come, and opens the groups for which `wanted` senders of this
    /// member wait.
    pub(crate) fn open<'a>(
        &mut self,
        control_plane: &mut ControlPlane,
        view: &View,
        engine: &Engine,
        fabric: &Mesh,
        wanted: impl Iterator<Item = (SubgroupId, &'a Arc<Outbound>)>,
    ) {
        let me = engine.me();
        let wanted: Vec<(SubgroupId, &Arc<Outbound>)> = wanted.collect();
        for (subgroup, _) in &wanted {
            self.groups.want(*subgroup, me, control_plane.now());
        }
        let knows = control_plane.act(|roster, now| roster.finds_places(view, now));
        if !self.groups.may_open(knows, control_plane.now()) {
            return;
        }
        for BulkLink { number, from, way, .. } in control_plane.take_bulk_links(view.id) {
            let (Some(from), Some(group)) = (view.rank_of(from), group(view, number, me, control_plane)) else {
                continue;
            };
            match way {
                BulkWay::Lend(socket) if group.is_lent_by(from) => {
                    self.borrow(&group, socket, control_plane, engine, fabric)
                }
                BulkWay::Lend(_) => {}
                BulkWay::Stream(stream) => self.groups.stream_came(&group, from, stream, control_plane.now()),
            }
        }
        for number in self.groups.opening() {
            let Some(group) = group(view, number, me, control_plane) else { continue };
            let outbound = wanted.iter().find(|(id, _)| group.is_mine() && *id == group.subgroup());
            let outbound = outbound.map(|(_, outbound)| *outbound);
            for step in self.groups.step(&group, outbound.is_some(), control_plane.now()) {
                match step {
                    GroupStep::Dial(head) => control_plane.make_bulk_stream(head, view.id, number),
                    GroupStep::Begin(streams) => self.begin(&group, streams, outbound, control_plane, engine, fabric),
                }
            }
        }
    }

    fn settings(&self, group: &ObjectGroup<'_>, control_plane: &ControlPlane) -> BulkSettings {
        let algorithm = group.algorithm(|id| control_plane.book()?.rack(id));
        let (tag, object_bytes_max) = (group.tag(control_plane.incarnation()), self.bytes_max);
        BulkSettings { algorithm, slots: SLOTS, object_bytes_max, tag, ..BulkSettings::default() }
    }

    /// Takes part in a group in which the head of this host lends.
    fn borrow(
        &mut self,
        group: &ObjectGroup<'_>,
        socket: OwnedFd,
        control_plane: &ControlPlane,
        engine: &Engine,
        fabric: &Mesh,
    ) {
        let (hosts, me) = (group.hosts(), group.my_position());
        let settings = self.settings(group, control_plane);
        let part = LocalPart::from_fds(hosts.members(), me, hosts.head(me), vec![socket]);
        let node = part
            .map_err(Into::into)
            .and_then(|part| BulkNode::across_hosts(me, hosts.clone(), &settings, [], Some(part)));
        self.receive(group, node, engine, fabric);
    }

    /// Begins a group whose streams are here.
    fn begin(
        &mut self,
        group: &ObjectGroup<'_>,
        streams: Vec<(Rank, Connection)>,
        outbound: Option<&Arc<Outbound>>,
        control_plane: &mut ControlPlane,
        engine: &Engine,
        fabric: &Mesh,
    ) {
        let settings = self.settings(group, control_plane);
        let part = match Self::lend(group, control_plane) {
            Ok(part) => part,
            Err(error) => {
                let what = format!("large messages of {}: {error}", group.root());
                return self.told.tell(group.view(), Trouble::Unable(what));
            }
        };
        let node = BulkNode::across_hosts(group.my_position(), group.hosts().clone(), &settings, streams, part);
        match outbound {
            Some(outbound) => self.send(group, node, outbound),
            None => self.receive(group, node, engine, fabric),
        }
    }

    /// Sends the other members of this host the sockets through which this member lends. Returns
    /// this member's part, or `None` if this host has no other members.
    fn lend(group: &ObjectGroup<'_>, control_plane: &mut ControlPlane) -> Result<Option<LocalPart>, BulkLinksError> {
        let (hosts, me) = (group.hosts(), group.my_position());
        let here: Vec<Rank> = hosts.on_the_host_of(me).collect();
        if here.len() == 1 {
            return Ok(None);
        }
        let mut mine = None;
        for part in LocalPart::parts_among(&here, hosts.members(), me)? {
            let place = part.me();
            if place == me {
                mine = Some(part);
                continue;
            }
            let member = group.id(group.members()[place.index()]);
            part.into_fds().into_iter().for_each(|socket| {
                control_plane.send_bulk_link(member, group.view(), group.number(), socket);
            });
        }
        Ok(mine)
    }

    fn send(&mut self, group: &ObjectGroup<'_>, node: Result<BulkNode, BulkError>, outbound: &Arc<Outbound>) {
        let upcalls = Sender {
            view: group.view(),
            members: group.members().to_vec(),
            outbound: Arc::clone(outbound),
            told: Arc::clone(&self.told),
        };
        self.groups.began(group);
        if let Some(running) = self.run(group, node, upcalls) {
            outbound.run(running);
        }
    }

    fn receive(&mut self, group: &ObjectGroup<'_>, node: Result<BulkNode, BulkError>, engine: &Engine, fabric: &Mesh) {
        let place = engine.layout().row(group.root()).subgroup(group.subgroup());
        let upcalls = SubgroupReceiver {
            view: group.view(),
            members: group.members().to_vec(),
            root: group.root(),
            ring: place.and_then(|place| place.ring).expect("it sends in the subgroup"),
            rows: fabric.reader(),
            told: Arc::clone(&self.told),
        };
        if let Some(running) = self.run(group, node, upcalls) {
            self.groups.began(group);
            self.open.insert(group.number(), running);
        }
    }

    fn run(
        &mut self,
        group: &ObjectGroup<'_>,
        node: Result<BulkNode, BulkError>,
        upcalls: impl BulkUpcalls + 'static,
    ) -> Option<BulkGroup> {
        let running = node.and_then(|node| {
            let thread = match &mut self.thread {
                Some(thread) => thread,
                none => none.insert(BulkThread::start(self.waiting)?),
            };
            thread.run(node, upcalls)
        });
        let (view, root) = (group.view(), group.root());
        match running {
            Ok(running) => {
                let (me, sender, subgroup) = (group.id(group.me()).0, group.id(root).0, group.subgroup().0);
                debug!(target: TARGET, me, view = view.0, sender, subgroup, "group for large messages is open");
                Some(running)
            }
            Err(error) => {
                // A member that hands over links is responsible for them.
                let is_theirs = !group.is_mine() && matches!(error, BulkError::Links(_));
                let unable = || Trouble::Unable(format!("large messages of {root}: {error}"));
                self.told.tell(view, if is_theirs { Trouble::Lost(root) } else { unable() });
                None
            }
        }
    }
}

/// Returns the bulk group of this number, if such a group can exist.
fn group<'a>(view: &'a View, number: u64, me: Rank, control_plane: &ControlPlane) -> Option<ObjectGroup<'a>> {
    ObjectGroup::new(view, number, me, |id| control_plane.book().map_or(0, |book| book.host(id)))
}

/// The upcalls of a group of which this member is the root.
struct Sender {
    view: ViewId,
    /// By rank in the bulk group.
    members: Vec<Rank>,
    outbound: Arc<Outbound>,
    told: Arc<Told>,
}

impl BulkUpcalls for Sender {
    fn allocate(&mut self, _: ObjectId, _: u64) -> Option<Buffer> {
        None
    }

    fn complete(&mut self, _: ObjectId, _: Object) {}

    fn everywhere(&mut self, object: ObjectId) {
        self.outbound.everywhere(self.view, object.0);
    }

    fn refused(&mut self, error: BulkSendError) {
        // A closed group has reported that itself.
        if !matches!(error, BulkSendError::Session(SessionSendError::Closed { .. }) | BulkSendError::Destroyed) {
            self.told.tell(self.view, Trouble::Unable(error.to_string()));
        }
    }

    fn failed(&mut self, failure: BulkFailure) {
        self.told.tell(self.view, Trouble::of(&failure, &self.members));
    }
}

/// The upcalls of a group in which this member receives.
struct SubgroupReceiver {
    view: ViewId,
    /// By rank in the bulk group.
    members: Vec<Rank>,
    root: Rank,
    ring: Ring,
    rows: Reader,
    told: Arc<Told>,
}

impl BulkUpcalls for SubgroupReceiver {
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
        if self.rows.count_objects(self.root, &self.ring) >= TABLE_OBJECTS_MAX {
            // The root sends objects without announcing them.
            return self.told.tell(self.view, Trouble::Lost(self.root));
        }
        self.rows.put_object(self.root, &self.ring, object.0, data);
    }

    fn failed(&mut self, failure: BulkFailure) {
        self.told.tell(self.view, Trouble::of(&failure, &self.members));
    }
}
