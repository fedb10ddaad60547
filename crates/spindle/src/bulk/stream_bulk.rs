//! A member of a bulk group over streams: the core's session, the memory of objects, and the links.
use super::error::{BulkError, BulkSendError, PostError};
use super::event::{BulkEvent, BulkFailure, FailureCause, ObjectId};
use super::settings::BulkSettings;
use spindle_core::Rank;
use spindle_core::rdmc::Hosts;
use spindle_core::rdmc::{AnnouncedBlock, Columns, Input, Output, Session, SessionSendError, Slot};
use spindle_fabric::bulk::{BlockHead, BlockStore, Buffer, BulkDown, BulkLinks, LinkReadiness, Object, PeerWord};
use spindle_transport::Connection;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct StreamBulk {
    links: BulkLinks,
    side: Side,
    /// Counters for the root. They may say that an object is complete here, so they go only when
    /// that was reported to the application, with the poll after that. Counters of a withheld slot
    /// go when the slot is not withheld any more.
    due: Vec<(Slot, Columns)>,
    /// Kept for their memory.
    ready: Vec<LinkReadiness>,
    gone: Vec<Slot>,
}

/// All but the links.
#[derive(Debug)]
struct Side {
    session: Session,
    me: Rank,
    hosts: Hosts,
    object_bytes_max: u64,
    /// By slot.
    cargo: Vec<SlotObject>,
    /// The session's outputs that are not carried out yet.
    outputs: Vec<Output>,
    events: Vec<BulkEvent>,
    /// By rank: whether the member has reported that its part is done.
    finished: Vec<bool>,
    /// The member whose death closes the group, and how the death was noticed.
    loss: Option<(Rank, FailureCause)>,
    failed: Vec<ObjectId>,
    /// Objects that the root has sent and that are not everywhere.
    on_the_way: u64,
    failure: Option<BulkFailure>,
}

/// The memory behind a slot.
#[derive(Debug, Default)]
struct SlotObject {
    /// The object that is on the way, and its length.
    object: Option<(ObjectId, u64)>,
    memory: SlotMemory,
    /// Whether the session waits for room.
    is_room_wanted: bool,
    /// Whether the slot's last object is complete here and not at the other members of this host.
    /// The root must not be informed of it then.
    is_withheld: bool,
    /// The offset in the object of the first block, as long as no buffer exists.
    first: Option<u64>,
    first_bytes: Vec<u8>,
}

#[derive(Debug, Default)]
enum SlotMemory {
    #[default]
    None,
    Sending(Object),
    Receiving(Buffer),
}

impl StreamBulk {
    /// Creates the part of `me`, which is the head of its host, over a stream to every other head.
    pub(super) fn new(
        me: Rank,
        hosts: Hosts,
        settings: &BulkSettings,
        streams: impl IntoIterator<Item = (Rank, Connection)>,
    ) -> Result<StreamBulk, BulkError> {
        let mut outputs = vec![];
        let session = Session::new(settings.session(&hosts, me), &mut outputs)?;
        let peers: Vec<Rank> = hosts.heads().iter().copied().filter(|head| *head != me).collect();
        let links = BulkLinks::new(me, &peers, settings.digest(&hosts), streams)?;
        let side = Side {
            session,
            me,
            object_bytes_max: settings.object_bytes_max,
            cargo: (0..settings.slots).map(|_| SlotObject::default()).collect(),
            outputs,
            events: vec![],
            finished: vec![false; hosts.members() as usize],
            hosts,
            loss: None,
            failed: vec![],
            on_the_way: 0,
            failure: None,
        };
        let mut streams = StreamBulk { links, side, due: vec![], ready: vec![], gone: vec![] };
        streams.act();
        streams.send_to_all();
        streams.act();
        Ok(streams)
    }

    pub(super) fn send(&mut self, object: Object) -> Result<ObjectId, BulkSendError> {
        if let Some(failure) = &self.side.failure {
            return Err(SessionSendError::Closed { dead: failure.dead }.into());
        }
        let bytes = object.len() as u64;
        let id = ObjectId(self.side.session.send(bytes, &mut self.side.outputs)?.0);
        self.side.on_the_way += 1;
        let slot = self.side.slot_of(id);
        let cargo = &mut self.side.cargo[slot];
        cargo.object = Some((id, bytes));
        cargo.memory = SlotMemory::Sending(object);
        self.act();
        Ok(id)
    }

    pub(super) fn post_receive_buffer(&mut self, object: ObjectId, buffer: Buffer) -> Result<(), PostError> {
        self.side.take_buffer(object, buffer)?;
        self.act();
        Ok(())
    }

    pub(super) fn poll(&mut self, events: &mut Vec<BulkEvent>) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        if ready.is_empty() {
            self.links.ready(Duration::ZERO, &mut ready);
        }
        let mut worked = self.has_news();
        // This poll reports the events that were found since the last one.
        if self.side.events.is_empty() {
            let root = self.side.hosts.root();
            for (slot, columns) in self.due.extract_if(.., |(slot, _)| !self.side.is_withheld(*slot)) {
                self.links.post_columns(root, slot, columns);
            }
            if worked {
                self.send_to(root);
                self.act();
            }
        }
        for LinkReadiness { peer, to_receive, to_send } in ready.drain(..) {
            if to_send {
                worked |= self.links.send(peer, &self.side, &mut self.gone);
                self.act();
            }
            if to_receive {
                let (came, down) = self.links.receive(peer, &mut self.side);
                worked |= came | down.is_some();
                self.act();
                if let Some(down) = down {
                    self.lose(peer, down);
                }
            }
        }
        self.ready = ready;
        events.append(&mut self.side.events);
        worked
    }

    pub(super) fn wait(&mut self, at_most: Duration) {
        if !self.has_news() && self.ready.is_empty() {
            self.links.ready(at_most, &mut self.ready);
        }
    }

    pub(super) fn has_unread(&self) -> bool {
        self.has_news() || self.links.has_unread() || !self.ready.is_empty()
    }

    /// True if events or counters wait to be reported.
    fn has_news(&self) -> bool {
        !self.side.events.is_empty() || self.due.iter().any(|(slot, _)| !self.side.is_withheld(*slot))
    }

    /// Withholds from the root that an object is here, until [`release`](Self::release). The object
    /// is being reported to the application.
    pub(super) fn withhold(&mut self, object: ObjectId) {
        let slot = self.side.slot_of(object);
        self.side.cargo[slot].is_withheld = true;
    }

    /// Lets the next poll report the object to the root.
    pub(super) fn release(&mut self, object: ObjectId) {
        let slot = self.side.slot_of(object);
        self.side.cargo[slot].is_withheld = false;
    }

    /// Closes the group, because a member is dead to which no stream exists.
    pub(super) fn close(&mut self, dead: Rank, cause: FailureCause) {
        self.side.bury(dead, cause);
        self.act();
    }

    pub(super) fn failure(&self) -> Option<&BulkFailure> {
        self.side.failure.as_ref()
    }

    /// True if nothing is on the way. The root knows this; the others know it when the root has
    /// reported it.
    pub(super) fn is_at_rest(&self) -> bool {
        let Side { me, ref hosts, ref cargo, ref finished, on_the_way, .. } = self.side;
        let is_said = me == hosts.root() || finished[hosts.root().index()];
        is_said && self.due.is_empty() && on_the_way == 0 && cargo.iter().all(|cargo| cargo.object.is_none())
    }

    pub(super) fn tell_finished(&mut self) {
        self.links.post_finished();
        self.send_to_all();
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.links.is_flushed()
    }

    /// Returns the number of peers that have not reported that their part is done.
    pub(super) fn open(&self) -> u32 {
        let is_open = |head: &&Rank| self.links.is_open(**head) && !self.side.finished[head.index()];
        self.side.hosts.heads().iter().filter(is_open).count() as u32
    }

    fn lose(&mut self, peer: Rank, down: BulkDown) {
        let has_left = self.side.finished[peer.index()];
        // A peer that closed without reading all that came looks like a failure to the system.
        if !(has_left && matches!(down, BulkDown::Closed | BulkDown::Broken | BulkDown::Os { .. })) {
            self.side.bury(peer, FailureCause::Down(Arc::new(down)));
        }
        self.act();
    }

    fn send_to(&mut self, peer: Rank) {
        if !self.links.is_blocked(peer) {
            self.links.send(peer, &self.side, &mut self.gone);
        }
    }

    fn send_to_all(&mut self) {
        for position in (0..self.side.hosts.count()).map(Rank) {
            self.send_to(self.side.rank(position));
        }
    }

    /// Carries out the session's outputs, and the outputs that follow from them.
    fn act(&mut self) {
        loop {
            for slot in self.gone.drain(..) {
                self.side.tell(Input::Gone { slot });
            }
            if self.side.outputs.is_empty() {
                return;
            }
            let outputs = std::mem::take(&mut self.side.outputs);
            for output in &outputs {
                self.carry_out(*output);
            }
            for output in outputs {
                match output {
                    Output::Block { to, .. } | Output::Columns { to, .. } => self.send_to(self.side.rank(to)),
                    Output::Closed { .. } => self.send_to_all(),
                    _ => {}
                }
            }
        }
    }

    fn carry_out(&mut self, output: Output) {
        let side = &mut self.side;
        match output {
            Output::Block { to, slot, at, bytes, columns, .. } => {
                let to = side.rank(to);
                if self.links.is_open(to) && !side.finished[to.index()] {
                    self.links.post_block(to, BlockHead { slot, at, bytes, columns });
                } else {
                    side.bury(to, FailureCause::Left);
                }
            }
            Output::Columns { to: Rank(0), slot, columns }
                if !side.events.is_empty() || !self.due.is_empty() || side.is_withheld(slot) =>
            {
                self.due.push((slot, columns));
            }
            Output::Columns { to, slot, columns } => self.links.post_columns(side.rank(to), slot, columns),
            Output::Size { object, bytes } => side.ask(ObjectId(object.0), bytes),
            Output::Complete { object } => side.complete(ObjectId(object.0)),
            Output::Everywhere { object } => {
                side.on_the_way -= 1;
                side.events.push(BulkEvent::Everywhere { object: ObjectId(object.0) });
            }
            Output::Failed { object } => side.failed.push(ObjectId(object.0)),
            Output::Closed { dead } => {
                // The session knows only the host of the dead member.
                let (dead, cause) = side.loss.clone().unwrap_or((side.rank(dead), FailureCause::Left));
                self.links.close(dead);
                side.close(dead, cause);
            }
        }
    }
}

impl AsFd for StreamBulk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.links.as_fd()
    }
}

impl Side {
    /// Returns the position of a member's head in the session.
    fn position(&self, member: Rank) -> Rank {
        self.hosts.position(member)
    }

    fn rank(&self, position: Rank) -> Rank {
        self.hosts.heads()[position.index()]
    }

    fn is_withheld(&self, slot: Slot) -> bool {
        self.cargo[slot.0 as usize].is_withheld
    }

    fn is_over(&self) -> bool {
        self.loss.is_some()
    }

    fn slot_of(&self, object: ObjectId) -> usize {
        (object.0 % self.cargo.len() as u64) as usize
    }

    /// Passes an input that can't be wrong to the session.
    fn tell(&mut self, input: Input) {
        let told = self.session.handle(input, &mut self.outputs);
        debug_assert!(told.is_ok(), "only counters of peers can be nonsense");
    }

    /// Takes a member for dead.
    fn bury(&mut self, dead: Rank, cause: FailureCause) {
        if !self.is_over() {
            self.loss = Some((dead, cause));
            self.tell(Input::Died { rank: self.position(dead) });
        }
    }

    /// Notes the length of an object, and asks the application for room, once.
    fn announce(&mut self, object: ObjectId, bytes: u64) {
        let slot = self.slot_of(object);
        let cargo = &mut self.cargo[slot];
        if cargo.object.is_none() {
            cargo.object = Some((object, bytes));
            self.events.push(BulkEvent::Allocate { object, bytes });
        }
    }

    /// Handles the session's request for room for an object.
    fn ask(&mut self, object: ObjectId, bytes: u64) {
        self.announce(object, bytes);
        let slot = self.slot_of(object);
        let cargo = &mut self.cargo[slot];
        match cargo.memory {
            SlotMemory::None => cargo.is_room_wanted = true,
            _ => self.tell(Input::Room { object: spindle_core::rdmc::ObjectNumber(object.0) }),
        }
    }

    fn take_buffer(&mut self, object: ObjectId, mut buffer: Buffer) -> Result<(), PostError> {
        let (slot, is_over) = (self.slot_of(object), self.is_over());
        let cargo = &mut self.cargo[slot];
        let expected = match (cargo.object, &cargo.memory) {
            (Some((awaited, bytes)), SlotMemory::None) if awaited == object && !is_over => bytes,
            _ => return Err(PostError::NotAwaited { object }),
        };
        let found = buffer.len() as u64;
        if found != expected {
            return Err(PostError::Length { object, expected, found });
        }
        if let Some(at) = cargo.first.take() {
            // The whole block is copied, even if only a part has come: the rest comes to the
            // buffer.
            buffer[at as usize..][..cargo.first_bytes.len()].copy_from_slice(&cargo.first_bytes);
        }
        cargo.memory = SlotMemory::Receiving(buffer);
        if std::mem::take(&mut cargo.is_room_wanted) {
            self.tell(Input::Room { object: spindle_core::rdmc::ObjectNumber(object.0) });
        }
        Ok(())
    }

    fn complete(&mut self, object: ObjectId) {
        let slot = self.slot_of(object);
        let cargo = &mut self.cargo[slot];
        cargo.object = None;
        let data = match std::mem::take(&mut cargo.memory) {
            SlotMemory::None => return,
            SlotMemory::Sending(object) => object,
            SlotMemory::Receiving(buffer) => buffer.into(),
        };
        self.events.push(BulkEvent::Complete { object, data });
    }

    fn close(&mut self, dead: Rank, cause: FailureCause) {
        let mut objects = std::mem::take(&mut self.failed);
        // Room may have been asked for before the session knows of an object.
        objects.extend(self.cargo.iter().filter_map(|cargo| cargo.object.map(|(object, _)| object)));
        objects.sort_unstable();
        objects.dedup();
        let failure = BulkFailure { dead, cause, objects };
        failure.tell(self.me);
        self.cargo.iter_mut().for_each(|cargo| *cargo = SlotObject::default());
        self.failure = Some(failure.clone());
        self.events.push(BulkEvent::Failed(failure));
    }

    /// Returns the block that these counters announce, if they announce exactly one.
    fn announced(&self, from: Rank, block: &BlockHead) -> Option<AnnouncedBlock> {
        let mut announced = self.session.announced(self.position(from), block.slot, &block.columns);
        announced.next().filter(|_| announced.next().is_none())
    }
}

impl BlockStore for Side {
    fn block(&self, block: &BlockHead) -> &[u8] {
        let cargo = &self.cargo[block.slot.0 as usize];
        let (at, bytes) = (block.at as usize, block.bytes as usize);
        match &cargo.memory {
            SlotMemory::Sending(object) => &object[at..][..bytes],
            SlotMemory::Receiving(buffer) => &buffer[at..][..bytes],
            // Only the first block can be sent before the object has room.
            SlotMemory::None => &cargo.first_bytes[..bytes],
        }
    }

    fn expect(&mut self, from: Rank, block: &BlockHead) -> Result<bool, BulkDown> {
        if self.is_over() {
            return Ok(true);
        }
        let &BlockHead { slot, at, bytes, .. } = block;
        let unasked = BulkDown::Unasked { slot, at, bytes };
        if slot.0 as usize >= self.cargo.len() {
            return Err(unasked);
        }
        let announced = self.announced(from, block).filter(|found| (found.at, found.bytes) == (at, bytes));
        let Some(announced) = announced else { return Err(unasked) };
        if announced.object_bytes > self.object_bytes_max {
            return Err(BulkDown::TooLong { bytes: announced.object_bytes, max: self.object_bytes_max });
        }
        self.announce(ObjectId(announced.object.0), announced.object_bytes);
        Ok(!matches!(self.cargo[slot.0 as usize].memory, SlotMemory::None))
    }

    fn place(&mut self, _: Rank, block: &BlockHead) -> Option<&mut [u8]> {
        if self.is_over() {
            return None;
        }
        let cargo = &mut self.cargo[block.slot.0 as usize];
        let (at, bytes) = (block.at as usize, block.bytes as usize);
        match &mut cargo.memory {
            SlotMemory::Receiving(buffer) => Some(&mut buffer[at..][..bytes]),
            SlotMemory::Sending(_) => None,
            SlotMemory::None => {
                cargo.first = Some(block.at);
                cargo.first_bytes.resize(bytes, 0);
                Some(&mut cargo.first_bytes)
            }
        }
    }

    fn arrived(&mut self, from: Rank, word: PeerWord) -> Result<(), BulkDown> {
        let (slot, columns) = match word {
            _ if self.is_over() && word != PeerWord::Finished => return Ok(()),
            PeerWord::Block(BlockHead { slot, columns, .. }) => (slot, columns),
            PeerWord::Columns { slot, .. } if slot.0 as usize >= self.cargo.len() => {
                return Err(BulkDown::Garbage { word: slot.0.into() });
            }
            PeerWord::Columns { slot, columns } => {
                if self.session.announced(self.position(from), slot, &columns).next().is_some() {
                    return Err(BulkDown::Unsent { slot });
                }
                (slot, columns)
            }
            PeerWord::Closed { dead } if dead.0 >= self.hosts.members() => {
                return Err(BulkDown::Garbage { word: dead.0.into() });
            }
            PeerWord::Closed { dead } => {
                self.loss = Some((dead, FailureCause::Reported { by: from }));
                self.tell(Input::Closed { dead: self.position(dead) });
                return Ok(());
            }
            PeerWord::Finished => {
                self.finished[from.index()] = true;
                return Ok(());
            }
        };
        let input = Input::Columns { from: self.position(from), slot, columns };
        self.session.handle(input, &mut self.outputs).map_err(BulkDown::Nonsense)?;
        // The length of a block's object was checked when the block came. If only the counters
        // announce an object that is too long, no member makes room for it.
        let max = self.object_bytes_max;
        let too_long = |output: &Output| matches!(output, Output::Size { bytes, .. } if *bytes > max);
        match self.outputs.iter().position(too_long).map(|i| self.outputs.remove(i)) {
            Some(Output::Size { bytes, .. }) => Err(BulkDown::TooLong { bytes, max }),
            _ => Ok(()),
        }
    }
}
