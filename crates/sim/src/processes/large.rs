//! The driver of large messages at a member: bulk groups of the view, blocks in flight, and the
//! objects of delivered messages
//! ([ADR 0023](../../../../docs/adr/0023-large-messages-are-announced-when-they-are-everywhere.md)).
//! The core decides; this module opens connections and moves bytes.
use super::blocks::{BulkPacket, Effect, RunningSession};
use super::network::PacketLoad;
use super::objects::{BulkConnection, Dialling, ObjectContent, ProcessObjects};
use super::plan::MS;
use super::process::{Near, ProcessPhase, SimProcess, StreamedTable};
use super::subgroups::Unsent;
use super::world::{BOUNDED, Broken, HostsWorld};
use crate::Violation;
use crate::checkers::Checked;
use crate::checkers::Invariant;
use spindle_core::control::{
    ControlMessage, GroupStep, LINK_LOOK, Member, ObjectGroup, ObjectName, Purpose, SLOTS, TABLE_OBJECTS_MAX,
};
use spindle_core::wire::ring::Kind;
use spindle_core::{Claims, MemberId, Rank, Ring, SubgroupId, Time, View, ViewId};
use std::collections::BTreeMap;

const HELD: Invariant = Invariant(9, "stability truth");

/// The time after which an unreachable host leader is dialled again.
const DIAL_AGAIN_NS: u64 = 100 * MS;

/// Returns the ring of a sender in a subgroup of a member's view.
pub(super) fn ring_of(member: &Member, sender: Rank, subgroup: SubgroupId) -> Option<Ring> {
    let layout = member.engine().layout();
    // An observer or learner may ask for an object of a view with more subgroups.
    let is_there = sender.index() < layout.rows().len() && subgroup.index() < member.view().subgroups.len();
    if is_there { layout.row(sender).subgroup(subgroup)?.ring } else { None }
}

impl HostsWorld<'_> {
    /// Begins a view: from now on this process sends in the rings of that view.
    pub(super) fn begin_large(&mut self, process: &mut SimProcess, view: &View) {
        let SimProcess { phase: ProcessPhase::Member(member), objects, .. } = process else { return };
        objects.links.begin(view.id);
        objects.dialling.retain(|(of, ..), _| *of >= view.id);
        objects.settled.clear();
        for (id, spec) in view.subgroups_of(member.engine().me()) {
            if member.engine().claims(id).is_some() {
                objects.outgoing_in(&spec.name).begin(view.id, spec.members.len() == 1);
            }
        }
    }

    /// Ends a view: leaves its groups, and keeps the objects of the object table for processes that
    /// still need them.
    pub(super) fn end_large(&mut self, process: &mut SimProcess, view: &View) {
        self.settle_objects(process, true);
        let SimProcess { phase: ProcessPhase::Member(member), objects, .. } = process else { return };
        let mine = view.subgroups_of(member.engine().me()).filter(|_| self.broken != Broken::ShelfNotCleared);
        for (id, spec) in mine {
            for sender in &spec.senders {
                let Some(ring) = ring_of(member, *sender, id) else { continue };
                let rest = objects.object_table.take((*sender, ring.at), None);
                if self.broken != Broken::KeepsTooShort {
                    objects.keep(view.id, (id, *sender), rest);
                }
            }
        }
        objects.groups.end_view();
        objects.running.clear();
        self.close_dropped(process);
    }

    /// Ends a view: the frames that are sent `again` get the contents of their objects, and all
    /// other objects of the subgroup are delivered.
    pub(super) fn end_objects(&mut self, process: &mut SimProcess, name: &str, again: &mut [Unsent]) {
        if self.scene.large.is_none() {
            return;
        }
        let outgoing = process.objects.outgoing_in(name);
        let left = outgoing.end_view();
        for unsent in again.iter_mut().filter(|unsent| unsent.kind == Kind::Object) {
            unsent.own = ObjectName::decode(&unsent.bytes).map(|name| name.own);
            if let Some(object) = unsent.own.and_then(|own| outgoing.object(own)) {
                unsent.bytes = object.to_vec();
            }
        }
        let delivered = left.into_values().filter(|own| again.iter().all(|unsent| unsent.own != Some(*own)));
        outgoing.pass(delivered.collect::<Vec<_>>());
    }

    /// Puts an object's name into the ring of a subgroup, and the object into the object table.
    /// Returns false if there is no room now.
    pub(super) fn commit_object(
        &mut self,
        objects: &mut ProcessObjects,
        (claims, row, me): (&Claims, usize, Rank),
        name: &str,
        unsent: &Unsent,
    ) -> bool {
        let outgoing = objects.outgoing_in(name);
        let is_new = unsent.own.is_none();
        if is_new && !outgoing.promise() {
            return false;
        }
        let claim = if is_new {
            claims.claim(ObjectName::BYTES, |_| {})
        } else {
            claims.claim_again(None, ObjectName::BYTES, |_| {})
        };
        if is_new {
            outgoing.release();
        }
        let Ok(claim) = claim else { return false };
        let object: ObjectContent = match unsent.own.and_then(|own| outgoing.object(own)) {
            Some(object) => object.clone(),
            None => unsent.bytes.as_slice().into(),
        };
        let own = unsent.own.unwrap_or_else(|| outgoing.name(object.clone()));
        let number = outgoing.commit(own, claim.position());
        let gate = outgoing.gate();
        let ring = *claims.ring();
        let bytes = object.len() as u64;
        if let Some(number) = number {
            objects.object_table.put((me, ring.at), number, object);
        }
        if self.broken != Broken::GateIgnored {
            claims.set_gate(gate);
        }
        let name = ObjectName { number: number.unwrap_or(u64::MAX), bytes, own };
        self.store.row_mut(row).fill(claim.payload_offset(&ring), &name.encode());
        claims.commit(claim, Kind::Object, ObjectName::BYTES, |position, header| {
            self.store.row_mut(row).set(ring.offset(position), header);
        });
        match is_new {
            true => self.outcome.counts.large_sent += 1,
            false => self.outcome.counts.large_again += 1,
        }
        true
    }

    /// Opens bulk groups, and moves blocks. Returns the time of the next step.
    pub(super) fn move_objects(&mut self, process: &mut SimProcess) -> Result<u64, Violation> {
        if self.scene.large.is_none() {
            return Ok(u64::MAX);
        }
        self.run_groups(process)?;
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        if member.engine().is_changing() {
            return Ok(u64::MAX);
        }
        let (me, now) = (member.engine().me(), Time(self.now));
        for remedy in process.objects.groups.overdue(&member.view().clone(), me, now) {
            let number = process.number;
            self.note(|| format!("process {number} has lost a member to large messages: {remedy:?}"));
            member.remedy(remedy);
        }
        self.open_groups(process)?;
        self.run_groups(process)?;
        self.close_dropped(process);
        let is_pending = process.objects.groups.is_pending();
        Ok(if is_pending { self.now + LINK_LOOK.as_nanos() as u64 } else { u64::MAX })
    }

    fn open_groups(&mut self, process: &mut SimProcess) -> Checked {
        let (ProcessPhase::Member(member), Some(table)) = (&process.phase, &process.table) else {
            unreachable!("a member")
        };
        let (view, me, now) = (table.view.clone(), table.places.me, Time(self.now));
        let wants = |(id, name): &(SubgroupId, &str)| {
            member.engine().claims(*id).is_some()
                && process.objects.outgoing.get(*name).is_some_and(|outgoing| outgoing.wants_group())
        };
        let subgroups = view.subgroups_of(me).map(|(id, spec)| (id, spec.name.as_str()));
        let wanted: Vec<SubgroupId> = subgroups.filter(wants).map(|(id, _)| id).collect();
        for id in &wanted {
            process.objects.groups.want(*id, me, now);
        }
        let knows = process.roster.finds_places(&view, now);
        if !process.objects.groups.may_open(knows, now) {
            return Ok(());
        }
        let mut effects = vec![];
        let of = process.roster.incarnation();
        for link in process.objects.links.take(of, view.id) {
            let book = process.roster.book();
            let group = ObjectGroup::new(&view, link.number, me, |id| book.map_or(0, |book| book.host(id)));
            let (Some(group), Some(from)) = (group, view.rank_of(link.from)) else { continue };
            match link.lends {
                true if group.is_lent_by(from) => {
                    process.objects.groups.began(&group);
                    process.objects.running.insert(link.number, RunningSession::borrower(&group, link.stream));
                }
                true => {}
                false => process.objects.groups.stream_came(&group, from, link.stream, now),
            }
        }
        for number in process.objects.groups.opening() {
            let book = process.roster.book();
            let group = ObjectGroup::new(&view, number, me, |id| book.map_or(0, |book| book.host(id)));
            let Some(group) = group else { continue };
            let has_objects = group.is_mine() && wanted.contains(&group.subgroup());
            for step in process.objects.groups.step(&group, has_objects, now) {
                match step {
                    GroupStep::Dial(head) => self.dial_head(process, head, view.id, number),
                    GroupStep::Begin(streams) => {
                        let mates = self.lend_here(process, &group);
                        let large = self.scene.large.as_ref().expect("there are large messages");
                        let rack = |id| process.roster.book()?.rack(id);
                        let mut running = RunningSession::head(&group, streams, mates, large, rack, &mut effects)?;
                        running.withholds = self.broken != Broken::MatesIgnored;
                        process.objects.groups.began(&group);
                        process.objects.running.insert(number, running);
                        if group.is_mine() {
                            let name = &view.subgroups[group.subgroup().index()].name;
                            process.objects.outgoing_in(name).group_opened();
                        }
                        let (at, root) = (process.number, group.id(group.root()));
                        let algorithm = group.algorithm(|id| process.roster.book()?.rack(id));
                        self.note(|| {
                            format!("process {at} takes part in large messages of member {root}: {algorithm:?}")
                        });
                        self.take_effect(process, number, std::mem::take(&mut effects))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Dials another host leader, unless an attempt is in progress.
    fn dial_head(&mut self, process: &mut SimProcess, head: MemberId, view: ViewId, number: u64) {
        let Some(address) = process.roster.book().and_then(|book| book.far(head)).cloned() else { return };
        let key = (view, number, head);
        let is_due = |dialling: &Dialling| dialling.failed_at.is_some_and(|at| at + DIAL_AGAIN_NS <= self.now);
        if process.objects.dialling.get(&key).is_none_or(is_due) {
            process.objects.dialling.insert(key, Dialling { address: address.clone(), failed_at: None });
            let incarnation = process.roster.incarnation();
            self.begin_attempt(process.number, address, Some(head), Purpose::Bulk { incarnation, view, number });
        }
    }

    /// Gives the other members of this host the connections over which this host leader lends.
    fn lend_here(
        &mut self,
        process: &mut SimProcess,
        group: &ObjectGroup<'_>,
    ) -> Vec<(Rank, super::objects::StreamHandle)> {
        let (me, mut mates) = (group.my_position(), vec![]);
        let places: Vec<Rank> = group.hosts().on_the_host_of(me).filter(|place| *place != me).collect();
        for place in places {
            let id = group.id(group.members()[place.index()]);
            // The others soon suspect a member without an address.
            let Some(other) = self.control_socket_of(process, id) else { continue };
            let connection = self.connect_here(process, other);
            let (incarnation, view, from) = (process.roster.incarnation(), group.view(), process.me.id);
            let message = ControlMessage::Bulk { incarnation, view, from, number: group.number() };
            let near = Near { message: message.encode().into(), attachment: [].into(), row: Some((connection, other)) };
            process.outbox.push_back((id, near));
            mates.push((place, process.objects.stream(connection)));
        }
        mates
    }

    /// Stores a connection of a bulk group that another member has made, or that this process has
    /// dialled.
    pub(super) fn keep_link(
        &mut self,
        process: &mut SimProcess,
        (incarnation, view, number): (u128, ViewId, u64),
        from: MemberId,
        (connection, lends): (usize, bool),
    ) {
        let stream = process.objects.stream(connection);
        let link = BulkConnection { number, from, lends, stream };
        process.objects.links.keep(process.roster.incarnation(), incarnation, view, link);
        self.close_dropped(process);
    }

    /// Handles a failed connection attempt in a bulk group.
    pub(super) fn head_not_dialled(
        &self,
        process: &mut SimProcess,
        address: &spindle_core::control::Address,
        of: Purpose,
    ) {
        let Purpose::Bulk { view, number, .. } = of else { return };
        let all = process.objects.dialling.iter_mut();
        let failed = all.filter(|(key, dialling)| (key.0, key.1) == (view, number) && dialling.address == *address);
        failed.for_each(|(_, dialling)| dialling.failed_at = Some(self.now));
    }

    /// Closes the connections that are no longer needed.
    pub(super) fn close_dropped(&mut self, process: &mut SimProcess) {
        for connection in process.objects.dropped() {
            self.close_side(connection, process.number);
        }
    }

    /// Processes the input of the groups that have begun.
    fn run_groups(&mut self, process: &mut SimProcess) -> Checked {
        let numbers: Vec<u64> = process.objects.running.keys().copied().collect();
        for number in numbers {
            let peers = process.objects.running[&number].peers();
            for (place, connection) in peers {
                let (parcels, is_open) = self.take_parcels(process.number, connection);
                let Some(running) = process.objects.running.get_mut(&number) else { continue };
                let mut effects = vec![];
                for parcel in parcels {
                    running.hear(place, parcel, &mut effects)?;
                }
                if !is_open {
                    running.lose(place, &mut effects)?;
                }
                self.take_effect(process, number, effects)?;
            }
            self.submit(process, number)?;
        }
        Ok(())
    }

    /// Takes the packets for a process over a connection for objects. Returns them, and whether the
    /// connection is open.
    pub(super) fn take_parcels(&mut self, number: usize, connection: usize) -> (Vec<BulkPacket>, bool) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(connection) else { return (vec![], false) };
        let end = connection.end_of(number);
        let mut parcels = vec![];
        let is_open = connection.ends[end].is_open;
        while is_open && connection.ends[1 - end].out.front().is_some_and(|packet| packet.due <= now) {
            match connection.ends[1 - end].out.pop_front().expect("it is there").load {
                PacketLoad::Bulk(parcel) => parcels.push(parcel),
                PacketLoad::Reset => return (parcels, false),
                _ => {}
            }
        }
        (parcels, is_open)
    }

    /// Submits objects to a group of this member's own, as far as the group accepts them.
    fn submit(&mut self, process: &mut SimProcess, number: u64) -> Checked {
        loop {
            let Some(name) = own_subgroup(process, number) else { return Ok(()) };
            let ProcessObjects { outgoing, running, .. } = &mut process.objects;
            let Some(running) = running.get_mut(&number) else { return Ok(()) };
            let Some(object) = outgoing.get_mut(&name).and_then(|outgoing| outgoing.next_to_submit()) else {
                return Ok(());
            };
            let mut effects = vec![];
            running.send(object, &mut effects)?;
            self.take_effect(process, number, effects)?;
        }
    }

    /// Carries out the effects of a group.
    fn take_effect(&mut self, process: &mut SimProcess, number: u64, effects: Vec<Effect>) -> Checked {
        for effect in effects {
            match effect {
                Effect::Send(connection, parcel) => self.send_parcel(process.number, connection, parcel)?,
                Effect::Here(object, content) => {
                    let SimProcess { phase: ProcessPhase::Member(member), objects, .. } = &mut *process else {
                        continue;
                    };
                    let running = &objects.running[&number];
                    let (root, subgroup) = (running.root(), running.subgroup());
                    let Some(ring) = ring_of(member, root, subgroup) else { continue };
                    match objects.object_table.of((root, ring.at)).count() >= TABLE_OBJECTS_MAX {
                        true => objects.groups.lose(root, Time(self.now)),
                        false => objects.object_table.put((root, ring.at), object, content),
                    }
                }
                Effect::Everywhere(object) => {
                    let Some(name) = own_subgroup(process, number) else { continue };
                    self.check_held(process, &name, object)?;
                    let (ProcessPhase::Member(member), Some(table)) = (&process.phase, &process.table) else {
                        continue;
                    };
                    let outgoing = process.objects.outgoing_in(&name);
                    let is_current = outgoing.everywhere(table.view.id, object);
                    let claims = table.view.subgroup(&name).and_then(|id| member.engine().claims(id));
                    if let Some(claims) = claims.filter(|_| is_current) {
                        claims.set_gate(outgoing.gate());
                    }
                }
                Effect::Lost(place) => {
                    let rank = process.objects.running[&number].rank(place);
                    let at = process.number;
                    self.note(|| format!("process {at} has lost rank {rank} in a group for large messages"));
                    self.outcome.counts.groups_closed += 1;
                    process.objects.groups.lose(rank, Time(self.now));
                }
            }
        }
        Ok(())
    }

    /// Checks that each member of the subgroup that is in the view has the object with this number
    /// (INV-HELD).
    fn check_held(&self, process: &SimProcess, name: &str, object: u64) -> Checked {
        let Some(table) = &process.table else { return Ok(()) };
        let (view, root) = (&table.view, table.places.me);
        let Some(id) = view.subgroup(name) else { return Ok(()) };
        let is_lacking = |other: &&SimProcess| {
            let ProcessPhase::Member(member) = &other.phase else { return false };
            let is_in = other.is_alive && other.table.as_ref().is_some_and(|other| other.view == *view);
            let in_group = other.roster.incarnation() == process.roster.incarnation() && member.next().is_none();
            let is_member = view.subgroups[id.index()].members.contains(&member.engine().me());
            let ring = ring_of(member, root, id).filter(|_| is_in && in_group && is_member);
            ring.is_some_and(|ring| other.objects.object_table.get((root, ring.at), object).is_none())
        };
        match self.processes.iter().flatten().map(|other| &**other).find(is_lacking) {
            Some(other) => HELD.broken(format!(
                "object {object} of process {} in subgroup {name} of view {} is announced, and process {} does not have it",
                process.number, view.id, other.number
            )),
            None => Ok(()),
        }
    }

    fn send_parcel(&mut self, number: usize, connection: usize, parcel: BulkPacket) -> Checked {
        let Some(end) = self.connections.get(connection).map(|found| found.end_of(number)) else { return Ok(()) };
        match &parcel {
            BulkPacket::Block { .. } => self.outcome.counts.blocks += 1,
            BulkPacket::Lent(_) => self.outcome.counts.lent += 1,
            _ => {}
        }
        self.send_over(connection, end, PacketLoad::Bulk(parcel), false);
        let Some(large) = &self.scene.large else { return Ok(()) };
        let Some(found) = self.connections.get(connection) else { return Ok(()) };
        let is_block = |load: &PacketLoad| matches!(load, PacketLoad::Bulk(BulkPacket::Block { .. }));
        let blocks = found.ends[end].out.iter().filter(|packet| is_block(&packet.load)).count();
        let most = SLOTS as usize * large.ahead as usize;
        match blocks > most {
            true => BOUNDED.broken(format!("{blocks} blocks are on the way over connection {connection}, not {most}")),
            false => Ok(()),
        }
    }

    /// Releases the objects of delivered messages: those of other members once delivered here, and
    /// this member's own once delivered everywhere.
    pub(super) fn settle_objects(&mut self, process: &mut SimProcess, is_over: bool) {
        let keeps = self.broken != Broken::KeepsTooShort;
        let SimProcess { phase: ProcessPhase::Member(member), objects, table: Some(table), .. } = process else {
            return;
        };
        let (view, me, engine) = (&table.view, table.places.me, member.engine());
        for (id, spec) in view.subgroups_of(me) {
            for (place, sender) in spec.senders.iter().enumerate() {
                let Some(ring) = ring_of(member, *sender, id) else { continue };
                let done = match *sender == me {
                    false if is_over => continue,
                    false => objects.object_table.take((*sender, ring.at), Some(engine.delivered_rounds(id, place))),
                    true => {
                        let position = engine.delivered_everywhere(id).unwrap_or(0);
                        if objects.settled.insert(id, position) == Some(position) {
                            continue;
                        }
                        let (numbers, _) = objects.outgoing_in(&spec.name).settle(position);
                        let remove = |number: u64| Some((number, objects.object_table.remove((me, ring.at), number)?));
                        numbers.into_iter().filter_map(remove).collect()
                    }
                };
                if keeps {
                    objects.keep(view.id, (id, *sender), done);
                }
            }
        }
    }
}

/// Returns the subgroup of a group of this process's own.
fn own_subgroup(process: &SimProcess, number: u64) -> Option<String> {
    let running = process.objects.running.get(&number)?;
    let table: &StreamedTable = process.table.as_ref()?;
    (running.root() == table.places.me).then(|| table.view.subgroups[running.subgroup().index()].name.clone())
}

/// Forgets the names of ended objects, except in subgroups with an object that is to be sent again
/// under its name.
pub(super) fn forget_sent(process: &mut SimProcess) {
    let SimProcess { objects, unsent, .. } = process;
    let waits: BTreeMap<&String, bool> =
        unsent.iter().map(|(name, unsent)| (name, unsent.iter().any(|unsent| unsent.own.is_some()))).collect();
    for (name, outgoing) in &mut objects.outgoing {
        if !waits.get(name).copied().unwrap_or(false) {
            outgoing.forget_ended();
        }
    }
}
