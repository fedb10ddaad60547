//! One member's part in a bulk group: the core's session between the host leaders, and the objects
//! that a host leader lends to the other members of its host
//! ([ADR 0027](../../../../docs/adr/0027-one-member-of-each-host-takes-part-in-blocks.md)).
//!
//! [`RunningSession`] takes the input of its connections, and returns the packets to send and the
//! completed objects.
use super::objects::{ObjectContent, StreamHandle};
use super::plan::LargeMessages;
use crate::Violation;
use crate::checkers::Checked;
use crate::checkers::Invariant;
use spindle_core::control::{ObjectGroup, RackName, SLOTS};
use spindle_core::rdmc::{Columns, Hosts, Input, ObjectNumber, Output, Schedule, Session, SessionSettings, Slot};
use spindle_core::{MemberId, Rank, SubgroupId};
use std::collections::{BTreeMap, VecDeque};

const FAULTLESS: Invariant = Invariant(11, "monotone rows, single writer");

/// The maximum number of blocks that a member has posted and that have not been sent.
const POSTS_MAX: u32 = 2;

/// A packet for large messages.
#[derive(Clone, Debug)]
pub(super) enum BulkPacket {
    /// A block, followed by the sender's counters.
    Block { slot: Slot, at: u64, columns: Columns, bytes: ObjectContent },
    /// Counters of a slot.
    Columns { slot: Slot, columns: Columns },
    /// An object that a host leader lends.
    Lent(ObjectContent),
    /// A report that one more lent object is available to its readers.
    Has,
    /// The group is closed, because this member is dead.
    Closed(Rank),
    /// An object for an observer or a learner; `None` if it is no longer kept.
    Object(Option<ObjectContent>),
}

/// An action of a member in a bulk group.
#[derive(Debug)]
pub(super) enum Effect {
    /// Sends a packet over a connection.
    Send(usize, BulkPacket),
    /// The object with this number has arrived.
    Here(u64, ObjectContent),
    /// The object with this number has arrived at all members. Occurs only at the root.
    Everywhere(u64),
    /// A member, by its position in the group, has failed.
    Lost(Rank),
}

/// The part of a host leader in a group.
#[derive(Debug)]
struct Relay {
    session: Session,
    /// By position.
    streams: BTreeMap<Rank, StreamHandle>,
    /// By slot.
    cargo: Vec<SimSlotMemory>,
    /// Counters for the root. They wait until the other members of this host have the slot's
    /// object.
    due: Vec<(Slot, Columns)>,
}

/// The memory of a slot.
#[derive(Debug, Default)]
struct SimSlotMemory {
    bytes: Vec<u8>,
    /// True if the object is complete here, and some other member of this host lacks it.
    is_withheld: bool,
}

/// A member of this host to which its host leader lends.
#[derive(Debug)]
struct Mate {
    stream: StreamHandle,
    had: u64,
}

/// One member's part in a group.
#[derive(Debug)]
pub(super) struct RunningSession {
    subgroup: SubgroupId,
    root: Rank,
    /// The ranks of the members in the view, by position in the group.
    members: Vec<Rank>,
    hosts: Hosts,
    /// This member's position in the group.
    me: Rank,
    relay: Option<Relay>,
    mates: BTreeMap<Rank, Mate>,
    /// The stream from the leader of this host.
    borrowed: Option<StreamHandle>,
    /// Objects that are complete here and that some other member of this host lacks.
    lent: VecDeque<ObjectContent>,
    /// The number of objects that have arrived here.
    here: u64,
    /// The numbers of objects that are complete at all other host leaders, and at all members. Only
    /// at the root.
    far: u64,
    everywhere: u64,
    sent: u64,
    is_closed: bool,
    /// True if it reports an object only after the other members of its host have it.
    pub(super) withholds: bool,
}

impl RunningSession {
    /// Returns the part of this member as a host leader. It has streams to the other host leaders,
    /// by position, and to the other members of its host.
    pub(super) fn head<'r>(
        group: &ObjectGroup<'_>,
        streams: Vec<(Rank, StreamHandle)>,
        mates: Vec<(Rank, StreamHandle)>,
        large: &LargeMessages,
        rack: impl Fn(MemberId) -> Option<&'r RackName>,
        effects: &mut Vec<Effect>,
    ) -> Result<RunningSession, Violation> {
        let mut running = RunningSession::new(group);
        running.mates = mates.into_iter().map(|(place, stream)| (place, Mate { stream, had: 0 })).collect();
        let hosts = group.hosts();
        if hosts.count() == 1 {
            return Ok(running);
        }
        let settings = SessionSettings {
            schedule: Schedule::new(group.algorithm(rack), hosts.count()),
            me: hosts.position(group.my_position()),
            block_bytes: large.block_bytes,
            slots: SLOTS,
            ahead: large.ahead,
            posts_max: POSTS_MAX,
            direct_below: large.direct_below,
        };
        let mut outputs = vec![];
        let session = Session::new(settings, &mut outputs).expect("the settings are in their ranges");
        let streams = streams.into_iter().map(|(place, stream)| (hosts.position(place), stream)).collect();
        let cargo = (0..SLOTS).map(|_| SimSlotMemory::default()).collect();
        running.relay = Some(Relay { session, streams, cargo, due: vec![] });
        running.carry_out(outputs, effects)?;
        Ok(running)
    }

    /// Returns the part of this member as one to which the leader of its host lends.
    pub(super) fn borrower(group: &ObjectGroup<'_>, stream: StreamHandle) -> RunningSession {
        RunningSession { borrowed: Some(stream), ..RunningSession::new(group) }
    }

    fn new(group: &ObjectGroup<'_>) -> RunningSession {
        let (relay, mates, borrowed, lent) = Default::default();
        RunningSession {
            subgroup: group.subgroup(),
            root: group.root(),
            members: group.members().to_vec(),
            hosts: group.hosts().clone(),
            me: group.my_position(),
            relay,
            mates,
            borrowed,
            lent,
            here: 0,
            far: 0,
            everywhere: 0,
            sent: 0,
            is_closed: false,
            withholds: true,
        }
    }

    pub(super) fn subgroup(&self) -> SubgroupId {
        self.subgroup
    }

    /// Returns the sending member, by its rank in the view.
    pub(super) fn root(&self) -> Rank {
        self.root
    }

    /// Returns a member's rank in the view.
    pub(super) fn rank(&self, place: Rank) -> Rank {
        self.members[place.index()]
    }

    fn is_root(&self) -> bool {
        self.hosts.root() == self.me
    }

    /// Returns the connections, with the positions of the members at their other ends.
    pub(super) fn peers(&self) -> Vec<(Rank, usize)> {
        let heads = self.relay.iter().flat_map(|relay| &relay.streams);
        let heads = heads.map(|(position, stream)| (self.hosts.heads()[position.index()], **stream));
        let mates = self.mates.iter().map(|(place, mate)| (*place, *mate.stream));
        let head = self.borrowed.iter().map(|stream| (self.hosts.head(self.me), **stream));
        heads.chain(mates).chain(head).collect()
    }

    /// Sends an object. Only the root calls this.
    pub(super) fn send(&mut self, object: ObjectContent, effects: &mut Vec<Effect>) -> Checked {
        if self.is_closed {
            return Ok(());
        }
        if let Some(relay) = &mut self.relay {
            let mut outputs = vec![];
            let sent = relay.session.send(object.len() as u64, &mut outputs);
            let sent = sent.expect("no more is on the way than there are slots");
            relay.cargo[(sent.0 % u64::from(SLOTS)) as usize].bytes = object.to_vec();
            self.carry_out(outputs, effects)?;
        }
        self.sent += 1;
        self.lend(&object, effects);
        self.settle(effects);
        Ok(())
    }

    fn lend(&mut self, object: &ObjectContent, effects: &mut Vec<Effect>) {
        self.lent.push_back(object.clone());
        effects.extend(self.mates.values().map(|mate| Effect::Send(*mate.stream, BulkPacket::Lent(object.clone()))));
    }

    /// Handles a packet from the member at this position.
    pub(super) fn hear(&mut self, from: Rank, parcel: BulkPacket, effects: &mut Vec<Effect>) -> Checked {
        if self.is_closed {
            return Ok(());
        }
        match parcel {
            BulkPacket::Block { slot, at, columns, bytes } => {
                let position = self.hosts.position(from);
                let Some(relay) = &mut self.relay else { return Ok(()) };
                let announced: Vec<_> = relay.session.announced(position, slot, &columns).collect();
                match announced[..] {
                    [one] if (one.at, one.bytes) == (at, bytes.len() as u64) => {
                        let cargo = &mut relay.cargo[slot.0 as usize];
                        cargo.bytes.resize(one.object_bytes as usize, 0);
                        cargo.bytes[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                    }
                    _ => {
                        let len = bytes.len();
                        return FAULTLESS.broken(format!(
                            "a block of {len} bytes at {at} comes from place {from} in slot {slot:?}, its counters announce {announced:?}"
                        ));
                    }
                }
                self.tell(Input::Columns { from: position, slot, columns }, effects)
            }
            BulkPacket::Columns { slot, columns } => {
                let from = self.hosts.position(from);
                self.tell(Input::Columns { from, slot, columns }, effects)
            }
            BulkPacket::Lent(object) => {
                effects.push(Effect::Here(self.here, object));
                self.here += 1;
                // This must follow the effect above, because the host leader relies on the order.
                effects.extend(self.borrowed.iter().map(|stream| Effect::Send(**stream, BulkPacket::Has)));
                Ok(())
            }
            BulkPacket::Has => {
                if let Some(mate) = self.mates.get_mut(&from) {
                    mate.had += 1;
                }
                self.settle(effects);
                Ok(())
            }
            BulkPacket::Closed(dead) => self.close(dead, effects),
            BulkPacket::Object(_) => Ok(()),
        }
    }

    /// Handles the end of the connection to the member at this position.
    pub(super) fn lose(&mut self, place: Rank, effects: &mut Vec<Effect>) -> Checked {
        if let Some(relay) = self.relay.as_mut().filter(|_| self.hosts.head(place) == place) {
            relay.streams.remove(&self.hosts.position(place));
        }
        self.mates.remove(&place);
        self.borrowed.take_if(|_| self.hosts.head(self.me) == place);
        self.close(place, effects)
    }

    /// Closes the group and informs all other members.
    fn close(&mut self, dead: Rank, effects: &mut Vec<Effect>) -> Checked {
        if self.is_closed {
            return Ok(());
        }
        let rank = self.hosts.position(dead);
        self.tell(Input::Died { rank }, effects)?;
        self.is_closed = true;
        effects.extend(self.peers().into_iter().map(|(_, stream)| Effect::Send(stream, BulkPacket::Closed(dead))));
        effects.push(Effect::Lost(dead));
        Ok(())
    }

    fn tell(&mut self, input: Input, effects: &mut Vec<Effect>) -> Checked {
        let Some(relay) = &mut self.relay else { return Ok(()) };
        let mut outputs = vec![];
        if let Err(fault) = relay.session.handle(input, &mut outputs) {
            return FAULTLESS.broken(format!("place {} of a bulk group at {input:?}: {fault}", self.me));
        }
        self.carry_out(outputs, effects)
    }

    /// Carries out the output of the session.
    fn carry_out(&mut self, outputs: Vec<Output>, effects: &mut Vec<Effect>) -> Checked {
        let mut inputs = vec![];
        for output in outputs {
            let Some(relay) = &mut self.relay else { return Ok(()) };
            match output {
                Output::Block { to, slot, at, bytes, columns, .. } => {
                    let bytes = relay.cargo[slot.0 as usize].bytes[at as usize..][..bytes as usize].into();
                    let parcel = BulkPacket::Block { slot, at, columns, bytes };
                    effects.extend(relay.streams.get(&to).map(|stream| Effect::Send(**stream, parcel)));
                    inputs.push(Input::Gone { slot });
                }
                Output::Columns { to: Rank(0), slot, columns } if relay.cargo[slot.0 as usize].is_withheld => {
                    relay.due.push((slot, columns));
                }
                Output::Columns { to, slot, columns } => {
                    let parcel = BulkPacket::Columns { slot, columns };
                    effects.extend(relay.streams.get(&to).map(|stream| Effect::Send(**stream, parcel)));
                }
                Output::Size { object, bytes } => {
                    relay.cargo[slot_of(object.0)].bytes.resize(bytes as usize, 0);
                    inputs.push(Input::Room { object });
                }
                Output::Complete { object } => self.complete(object, effects),
                Output::Everywhere { object } => {
                    self.far = object.0 + 1;
                    self.settle(effects);
                }
                Output::Failed { .. } | Output::Closed { .. } => {}
            }
        }
        inputs.into_iter().try_for_each(|input| self.tell(input, effects))
    }

    /// Handles the completion of an object here.
    fn complete(&mut self, object: ObjectNumber, effects: &mut Vec<Effect>) {
        let Some(relay) = self.relay.as_mut().filter(|_| self.hosts.root() != self.me) else { return };
        let cargo = &mut relay.cargo[slot_of(object.0)];
        let data: ObjectContent = std::mem::take(&mut cargo.bytes).into();
        cargo.is_withheld = self.withholds && !self.mates.is_empty();
        self.lend(&data, effects);
        self.settle(effects);
    }

    /// Reports the objects that all members of this host have, or that all members have.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        let near = self.mates.values().map(|mate| mate.had).min().unwrap_or(u64::MAX);
        if self.is_root() {
            let far = if self.relay.is_some() { self.far } else { u64::MAX };
            while self.everywhere < near.min(far).min(self.sent) {
                self.lent.pop_front();
                effects.push(Effect::Everywhere(self.everywhere));
                self.everywhere += 1;
            }
            return;
        }
        while self.here < near
            && let Some(object) = self.lent.pop_front()
        {
            effects.push(Effect::Here(self.here, object));
            let Some(relay) = &mut self.relay else { return };
            relay.cargo[slot_of(self.here)].is_withheld = false;
            self.here += 1;
            let root = relay.streams.get(&Rank(0)).map(|stream| **stream);
            for (slot, columns) in relay.due.extract_if(.., |(slot, _)| !relay.cargo[slot.0 as usize].is_withheld) {
                effects.extend(root.map(|root| Effect::Send(root, BulkPacket::Columns { slot, columns })));
            }
        }
    }
}

fn slot_of(object: u64) -> usize {
    (object % u64::from(SLOTS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::objects::{ProcessObjects, content};
    use spindle_core::{SubgroupSpec, View, ViewId};
    use std::time::Duration;

    /// Four members on these hosts, of which the first one sends.
    fn view() -> View {
        let members = [1, 2, 3, 4].map(MemberId).to_vec();
        let ranks: Vec<Rank> = (0..4).map(Rank).collect();
        let spec = SubgroupSpec { senders: ranks.clone(), members: ranks, ..SubgroupSpec::of_everyone("s") };
        View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![spec].into() }
    }

    /// Members, the packets in flight between them, and the effects at each.
    struct Case {
        members: Vec<RunningSession>,
        /// Receiver, sender, packet.
        on_the_way: VecDeque<(usize, usize, BulkPacket)>,
        here: Vec<Vec<ObjectContent>>,
        everywhere: u64,
        lost: Vec<usize>,
    }

    impl Case {
        /// Connection 10 a + b leads from position a to position b.
        fn new(hosts: [u128; 4], withholds: bool) -> Case {
            let (view, mut objects) = (view(), ProcessObjects::new(Duration::from_secs(1)));
            let large = LargeMessages { one_in: 1, longest: 640, block_bytes: 64, ahead: 2, direct_below: 0, racks: 0 };
            let host = |id: MemberId| hosts[id.0 as usize - 1];
            let mut case = Case {
                members: vec![],
                on_the_way: VecDeque::new(),
                here: vec![vec![]; 4],
                everywhere: 0,
                lost: vec![],
            };
            let mut begun = vec![];
            for me in 0..4 {
                let group = ObjectGroup::new(&view, 0, Rank(me), host).expect("it can be");
                let places = group.hosts();
                let mut stream = |to: Rank| (to, objects.stream(10 * me as usize + to.index()));
                let mut effects = vec![];
                let running = if places.head(Rank(me)) == Rank(me) {
                    let heads = places.heads().iter().copied().filter(|to| *to != Rank(me));
                    let streams = heads.map(&mut stream).collect();
                    let mates = places.on_the_host_of(Rank(me)).filter(|to| *to != Rank(me)).map(stream).collect();
                    RunningSession::head(&group, streams, mates, &large, |_| None, &mut effects).expect("no fault")
                } else {
                    RunningSession::borrower(&group, stream(places.head(Rank(me))).1)
                };
                case.members.push(RunningSession { withholds, ..running });
                begun.push(effects);
            }
            (0..4).zip(begun).for_each(|(me, effects)| case.take(me, effects));
            case
        }

        fn take(&mut self, me: usize, effects: Vec<Effect>) {
            for effect in effects {
                match effect {
                    Effect::Send(connection, parcel) => self.on_the_way.push_back((connection % 10, me, parcel)),
                    Effect::Here(number, object) => {
                        assert_eq!(number, self.here[me].len() as u64);
                        self.here[me].push(object);
                    }
                    Effect::Everywhere(number) => {
                        assert_eq!(number, self.everywhere);
                        self.everywhere += 1;
                        let lacks = self.here[1..].iter().any(|here| here.len() as u64 <= number);
                        assert!(!lacks || !self.members[me].withholds, "object {number} is not everywhere");
                    }
                    Effect::Lost(place) => self.lost.push(place.index()),
                }
            }
        }

        fn send(&mut self, object: &ObjectContent) {
            let mut effects = vec![];
            self.members[0].send(object.clone(), &mut effects).expect("no fault");
            self.take(0, effects);
        }

        /// Delivers all packets, except those to the member `silent`.
        fn rest(&mut self, silent: Option<usize>) {
            while let Some((to, from, parcel)) = self.on_the_way.pop_front() {
                if silent != Some(to) {
                    let mut effects = vec![];
                    self.members[to].hear(Rank(from as u32), parcel, &mut effects).expect("no fault");
                    self.take(to, effects);
                }
            }
        }
    }

    #[test]
    fn objects_come_to_all_members_wherever_they_are() {
        for hosts in [[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 1], [0, 1, 1, 1], [0, 1, 0, 1]] {
            let mut case = Case::new(hosts, true);
            let objects: Vec<ObjectContent> =
                (1..=9).map(|number| content((7, number), 70 * number as usize)).collect();
            for object in &objects {
                case.send(object);
                case.rest(None);
            }
            assert_eq!(case.everywhere, 9, "{hosts:?}");
            assert!(case.here[1..].iter().all(|here| *here == objects), "{hosts:?}");
        }
    }

    #[test]
    fn an_object_is_not_everywhere_before_the_others_of_a_heads_host_have_it() {
        for (withholds, everywhere) in [(true, 0), (false, 1)] {
            let mut case = Case::new([0, 1, 1, 2], withholds);
            case.send(&content((7, 1), 200));
            case.rest(Some(2));
            assert_eq!(case.everywhere, everywhere);
        }
    }

    #[test]
    fn a_member_that_is_lost_closes_the_group_at_all_members() {
        let mut case = Case::new([0, 1, 1, 2], true);
        let mut effects = vec![];
        case.members[1].lose(Rank(2), &mut effects).expect("no fault");
        case.take(1, effects);
        case.rest(None);
        assert_eq!(case.lost, [2; 3], "by the three others");
        case.send(&content((7, 1), 200));
        case.rest(None);
        assert_eq!(case.everywhere, 0);
    }
}
