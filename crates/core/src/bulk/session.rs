//! One member's part in a bulk group: which blocks and counters to post, given what has become visible.
//!
//! [`Session`] is told [`Input`]s and answers with [`Output`]s. It owns no memory of objects and no row: the caller copies blocks
//! and keeps the [`Columns`] of each slot in its row. The group's members, root and schedule never change; whoever wants others makes
//! another session, and a session ends with the first death in it.
use super::object::{Schedules, Size, Transfer};
use super::schedule::{Algorithm, Schedule};
use crate::fault::Fault;
use crate::ids::Rank;
use crate::limits;
use crate::planted::planted;
use alloc::vec;
use alloc::vec::Vec;

/// What all members of a bulk group have to agree on, and who I am in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How blocks spread, and among how many.
    pub schedule: Schedule,
    /// My rank in the bulk group; the root's is 0.
    pub me: Rank,
    /// Bytes of a block. Large blocks cost less each, small ones let members begin earlier to pass on.
    pub block_bytes: u64,
    /// Objects that may be on the way at the same time.
    pub slots: u32,
    /// For how many blocks a receiver is ready beyond those that it has, 2 to 64. With too few, senders wait for credit; more than
    /// the latency covers are of no use.
    pub ahead: u32,
    /// Blocks that may be posted and not yet gone, at least 1; objects of one block do not count. With 1 the network rests between two,
    /// for as long as it takes to hear that one is gone; with more, members drift apart and blocks that come early hold up others.
    pub posts_max: u32,
    /// Objects of one block that are shorter than this go from the root to everybody. 0: none do.
    pub direct_below: u64,
}

/// Bytes of a block unless told otherwise: of a few hundred MB on 12.5 GB/s, smaller blocks lose more to latency, and larger ones to the
/// first and last steps, in which not everybody has something to send.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Objects of up to so many bytes go from the root to everybody, unless told otherwise, ...
pub const DIRECT_BYTES: u64 = 16 << 10;
/// ... in groups of up to so many members. The root posts once for each, about 1 µs; on the way through relays every object waits
/// for ceil(log2 members) latencies, and for as many members to look, which may sleep.
pub const DIRECT_MEMBERS: u32 = 16;

impl Settings {
    /// Blocks of [`BLOCK_BYTES`], two objects at a time, and what did best in the model otherwise.
    pub fn new(schedule: Schedule, me: Rank) -> Settings {
        let direct_below = if schedule.members() <= DIRECT_MEMBERS { DIRECT_BYTES + 1 } else { 0 };
        Settings { schedule, me, block_bytes: BLOCK_BYTES, slots: 2, ahead: 2, posts_max: 1, direct_below }
    }
}

/// Which object: the root numbers them from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Object(pub u64);

/// Where an object stands while it is on the way: object `o` has slot `o` modulo the number of slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// A member's counters for one slot. They are columns of its row: all begin at 0, none ever falls, and they run on from one object
/// in the slot to the next. So a post of them may be left out for a later one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Columns {
    /// The lengths of the objects whose length I know, plus one for each.
    pub bytes: u64,
    /// Steps of the schedule that I have taken: what I send in them is posted, ahead of this counter.
    pub steps: u64,
    /// "Ready for block": how many blocks may come, in the order in which I receive them.
    pub ready: u64,
    /// "Have k blocks", raised when an object is complete here: behind [`Output::Complete`], so that who sees it may count on what the
    /// application does about that.
    pub have: u64,
}

/// What happens to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// These counters of a peer have become visible, and with them all blocks that it posted to me before.
    Columns {
        /// Whose.
        from: Rank,
        /// Of which slot.
        slot: Slot,
        /// Their values now.
        columns: Columns,
    },
    /// The application has made room for an object of which it was told [`Output::Size`], and moved the first block there.
    Room {
        /// Which.
        object: Object,
    },
    /// A block that I posted is gone: its memory is not read any more.
    Gone {
        /// Of which slot.
        slot: Slot,
    },
    /// A member is dead.
    Died {
        /// Who.
        rank: Rank,
    },
    /// A peer says that it closed the group.
    Closed {
        /// Whose death it names.
        dead: Rank,
    },
}

/// What a member has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Post a block and then these counters. Answer with [`Input::Gone`].
    Block {
        /// To whom.
        to: Rank,
        /// The slot.
        slot: Slot,
        /// The object.
        object: Object,
        /// Where the block begins in the object, in bytes.
        at: u64,
        /// Its length in bytes; only the last block is shorter than the others.
        bytes: u64,
        /// Whether it is the first that the receiver gets: then it goes to the place that is always kept for one.
        is_first: bool,
        /// My counters.
        columns: Columns,
    },
    /// Post these counters.
    Columns {
        /// To whom.
        to: Rank,
        /// Of which slot.
        slot: Slot,
        /// My counters.
        columns: Columns,
    },
    /// Tell the application how long an object is, so that it makes room. Answer with [`Input::Room`].
    Size {
        /// Which.
        object: Object,
        /// Its length.
        bytes: u64,
    },
    /// Tell the application that it has all of an object and that its memory is not read any more for others. Objects complete in
    /// order.
    Complete {
        /// Which.
        object: Object,
    },
    /// Tell the root's application that an object is complete at every member, and that their applications have been told so.
    Everywhere {
        /// Which.
        object: Object,
    },
    /// Tell the application that an object of which it knows will never be complete.
    Failed {
        /// Which.
        object: Object,
    },
    /// Tell every peer ([`Input::Closed`]) and the application that the group is closed. It is the last output.
    Closed {
        /// Whose death closed it.
        dead: Rank,
    },
}

/// A block that a peer's counters announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    /// Of which object.
    pub object: Object,
    /// How long that is.
    pub object_bytes: u64,
    /// Where the block begins in it, in bytes.
    pub at: u64,
    /// Bytes of the block.
    pub bytes: u64,
    /// Whether it is the first that I get: it may come before there is room for the object.
    pub is_first: bool,
}

/// Why the root can't send now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Somebody else is the root.
    #[error("rank {me} is not the root of the bulk group; have rank 0 send, or make a group with another root")]
    NotRoot {
        /// Me.
        me: Rank,
    },
    /// As many objects as may be are on the way.
    #[error("all {slots} slots are in use; wait until an object is everywhere, or give the group more slots")]
    Full {
        /// How many may be.
        slots: u32,
    },
    /// Block numbers would not fit.
    #[error("an object of {bytes} bytes is longer than {max}, which is what so many blocks hold; take larger blocks")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The longest.
        max: u64,
    },
    /// A member has died.
    #[error("the bulk group was closed when rank {dead} died; make another without it")]
    Closed {
        /// Who.
        dead: Rank,
    },
}

/// What makes no session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{what} is {found}, but has to be {least} to {most}")]
pub struct SessionError {
    /// Which setting.
    pub what: &'static str,
    /// Its value.
    pub found: u64,
    /// The least that it can be.
    pub least: u64,
    /// The most that it can be.
    pub most: u64,
}

/// One member of a bulk group.
#[derive(Clone, Debug)]
pub struct Session {
    settings: Settings,
    schedules: Schedules,
    slots: Vec<Transfer>,
    /// By slot: what every member's counters were last, by rank.
    seen: Vec<Vec<Columns>>,
    /// The next object of the root.
    next: Object,
    /// The first object that is not complete here.
    incomplete: Object,
    /// The first object that is not complete everywhere, as far as the root knows.
    everywhere: Object,
    /// Blocks posted and not yet gone, of objects with more than one.
    posts: u32,
    /// Who is still to be told my counters, of which slot.
    untold: Vec<(usize, Rank)>,
    closed: Option<Rank>,
}

/// How many blocks an object has: at least one, and `None` if their numbers don't fit.
pub fn blocks(bytes: u64, block_bytes: u64) -> Option<u32> {
    u32::try_from(bytes.div_ceil(block_bytes).max(1)).ok()
}

impl Session {
    /// A session, and in `out` the counters to be posted when the peers can be reached.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn new(settings: Settings, out: &mut Vec<Output>) -> Result<Session, SessionError> {
        let members = settings.schedule.members();
        let ranges = [
            ("the number of members", members.into(), 1, limits::MEMBERS_MAX as u64),
            ("the rank", settings.me.0.into(), 0, u64::from(members) - 1),
            ("the size of a block", settings.block_bytes, 1, limits::BULK_BLOCK_BYTES_MAX),
            ("the number of slots", settings.slots.into(), 1, limits::BULK_SLOTS_MAX.into()),
            ("for how many blocks a receiver is ready", settings.ahead.into(), 2, limits::BULK_AHEAD_MAX.into()),
            ("how many blocks may be posted", settings.posts_max.into(), 1, u32::MAX.into()),
        ];
        for (what, found, least, most) in ranges {
            if !(least..=most).contains(&found) {
                return Err(SessionError { what, found, least, most });
            }
        }
        let slots = (0..settings.slots).map(|slot| Transfer::new(Object(slot.into()), &settings)).collect();
        let direct = Schedule::new(Algorithm::Sequential, members);
        let mut session = Session {
            schedules: Schedules { pipeline: settings.schedule.clone(), direct },
            slots,
            seen: vec![vec![Columns::default(); members as usize]; settings.slots as usize],
            settings,
            next: Object(0),
            incomplete: Object(0),
            everywhere: Object(0),
            posts: 0,
            untold: Vec::new(),
            closed: None,
        };
        for slot in 0..session.slots.len() {
            session.greet(slot);
        }
        session.work(out);
        Ok(session)
    }

    /// What all members agreed on.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// My counters of a slot as they stand.
    pub fn columns(&self, slot: Slot) -> Columns {
        self.slots[slot.0 as usize].columns(&self.schedules)
    }

    /// The blocks that I would take for arrived if these counters of a peer became visible, without those that I have taken already. A caller
    /// to whom blocks and counters come one after the other can tell from it which block is to come, and that no peer announces what it
    /// has not sent.
    ///
    /// # Panics
    /// If the rank or the slot is none of this group.
    pub fn announced(&self, from: Rank, slot: Slot, columns: &Columns) -> impl Iterator<Item = Announced> {
        let transfer = &self.slots[slot.0 as usize];
        let size = transfer.size.or_else(|| self.size(transfer.length_in(columns)?));
        let size = size.filter(|_| self.settings.me.0 != 0 && self.closed.is_none());
        let hops = size.map(|size| (size, transfer.announced(from, size, columns, &self.settings, &self.schedules)));
        hops.into_iter().flat_map(move |(size, hops)| {
            hops.map(move |hop| {
                let at = u64::from(hop.block) * self.settings.block_bytes;
                Announced {
                    object: transfer.object,
                    object_bytes: size.bytes,
                    at,
                    bytes: (size.bytes - at).min(self.settings.block_bytes),
                    is_first: hop.index == 0,
                }
            })
        })
    }

    /// The root begins to send an object of so many bytes.
    ///
    /// # Errors
    /// If I am not the root, no slot is free, the object has too many blocks, or the group is closed.
    pub fn send(&mut self, bytes: u64, out: &mut Vec<Output>) -> Result<Object, SendError> {
        let Settings { me, slots, block_bytes, .. } = self.settings;
        if let Some(dead) = self.closed {
            return Err(SendError::Closed { dead });
        }
        if me.0 != 0 {
            return Err(SendError::NotRoot { me });
        }
        let max = u64::from(u32::MAX).saturating_mul(block_bytes);
        let size = self.size(bytes).ok_or(SendError::TooLong { bytes, max })?;
        let (object, slot) = (self.next, self.slot_of(self.next));
        if self.slots[slot].object != object || self.slots[slot].size.is_some() {
            return Err(SendError::Full { slots });
        }
        self.next.0 += 1;
        self.slots[slot].learn(size, &self.settings, &self.schedules);
        self.work(out);
        Ok(object)
    }

    /// Takes an input and does all that follows from it. Once the group is closed, nothing does.
    ///
    /// # Errors
    /// If a peer's counters are nonsense. The session is as if it had not heard them; the peer should be taken for dead.
    ///
    /// # Panics
    /// If a rank, slot or object is none of this group, if more blocks are gone than were posted, or if there is room for an object of
    /// whose size nobody was told.
    pub fn handle(&mut self, input: Input, out: &mut Vec<Output>) -> Result<(), Fault> {
        if self.closed.is_some() {
            return Ok(());
        }
        match input {
            Input::Columns { from, slot, columns } => self.hear(from, slot.0 as usize, columns, out)?,
            Input::Room { object } => {
                let slot = self.slot_of(object);
                let transfer = &mut self.slots[slot];
                assert!(transfer.object == object && transfer.size.is_some(), "room was asked for");
                transfer.has_room = true;
                self.grant(slot);
            }
            Input::Gone { slot } => {
                let transfer = &mut self.slots[slot.0 as usize];
                transfer.posts = transfer.posts.checked_sub(1).expect("it was posted");
                self.posts -= u32::from(!transfer.is_single());
            }
            Input::Died { rank: dead } | Input::Closed { dead } => {
                assert!(dead.0 < self.settings.schedule.members(), "a member of this group");
                self.close(dead, out);
                return Ok(());
            }
        }
        self.work(out);
        Ok(())
    }

    /// A peer's counters.
    fn hear(&mut self, from: Rank, slot: usize, now: Columns, out: &mut Vec<Output>) -> Result<(), Fault> {
        let before = self.seen[slot][from.index()];
        let pairs = [
            ("bytes", before.bytes, now.bytes),
            ("steps", before.steps, now.steps),
            ("ready", before.ready, now.ready),
            ("have", before.have, now.have),
        ];
        let fault = |(counter, before, now)| Fault::Counter { member: from, counter, before, now };
        if let Some(fallen) = pairs.into_iter().find(|(_, before, now)| now < before) {
            return Err(fault(fallen));
        }
        let transfer = &self.slots[slot];
        let size = match (transfer.size, transfer.length_in(&now)) {
            (None, Some(bytes)) if self.settings.me.0 != 0 => {
                Some(self.size(bytes).ok_or_else(|| fault(("bytes", before.bytes, now.bytes)))?)
            }
            (size, _) => size,
        };
        if let Some(wrong) = transfer.find_impossible(size, &now, &self.settings, &self.schedules) {
            return Err(fault(wrong));
        }
        self.seen[slot][from.index()] = now;
        self.slots[slot].whole_peers += u32::from(self.slots[slot].became_whole(before.have, now.have));
        self.learn(slot, size, out);
        self.take(slot);
        Ok(())
    }

    /// Takes over the size of an object, if it is news.
    fn learn(&mut self, slot: usize, size: Option<Size>, out: &mut Vec<Output>) {
        let transfer = &mut self.slots[slot];
        if let (None, Some(size)) = (transfer.size, size) {
            transfer.learn(size, &self.settings, &self.schedules);
            out.push(Output::Size { object: transfer.object, bytes: size.bytes });
        }
    }

    fn size(&self, bytes: u64) -> Option<Size> {
        let blocks = blocks(bytes, self.settings.block_bytes)?;
        Some(Size { bytes, blocks, is_direct: blocks == 1 && bytes < self.settings.direct_below })
    }

    /// Takes the blocks that have come.
    fn take(&mut self, slot: usize) {
        if self.slots[slot].take(&self.seen[slot], &self.settings, &self.schedules) {
            self.grant(slot);
        }
    }

    fn grant(&mut self, slot: usize) {
        for sender in self.slots[slot].grant(&self.settings, &self.schedules) {
            self.tell(slot, sender);
        }
    }

    /// Tells those who may send me the first block of an object that there is room for it.
    fn greet(&mut self, slot: usize) {
        let Some(first) = self.settings.schedule.first_sender(self.settings.me) else { return };
        self.tell(slot, first);
        if first != Rank(0) && self.settings.direct_below > 0 {
            self.tell(slot, Rank(0));
        }
    }

    /// My counters of a slot are to be told to somebody.
    fn tell(&mut self, slot: usize, to: Rank) {
        if !self.untold.contains(&(slot, to)) {
            self.untold.push((slot, to));
        }
    }

    fn post(&self, slot: usize, to: Rank, out: &mut Vec<Output>) {
        let columns = self.slots[slot].columns(&self.schedules);
        out.push(Output::Columns { to, slot: Slot(slot as u32), columns });
    }

    /// Sends what can be sent, of the oldest object first, and finishes what is done.
    fn work(&mut self, out: &mut Vec<Output>) {
        let slots = self.settings.slots;
        let oldest = self.slots.iter().map(|transfer| transfer.object).min().map_or(0, |object| self.slot_of(object));
        for i in 0..slots as usize {
            self.send_blocks((oldest + i) % slots as usize, out);
        }
        self.finish(out);
        for (slot, to) in core::mem::take(&mut self.untold) {
            self.post(slot, to, out);
        }
    }

    fn send_blocks(&mut self, slot: usize, out: &mut Vec<Output>) {
        let is_single = self.slots[slot].is_single();
        while (is_single || self.posts < self.settings.posts_max)
            && let Some(hop) = self.slots[slot].sendable(&self.seen[slot])
            && let Some(size) = self.slots[slot].size
        {
            // A block would keep the counters behind it waiting. Those to others can wait until all blocks are posted.
            if let Some(i) = self.untold.iter().position(|untold| *untold == (slot, hop.to)) {
                self.untold.swap_remove(i);
                self.post(slot, hop.to, out);
            }
            self.slots[slot].sent(&hop, &self.settings, &self.schedules);
            self.posts += u32::from(!is_single);
            let at = u64::from(hop.block) * self.settings.block_bytes;
            out.push(Output::Block {
                to: hop.to,
                slot: Slot(slot as u32),
                object: self.slots[slot].object,
                at,
                bytes: (size.bytes - at).min(self.settings.block_bytes),
                is_first: hop.index == 0,
                columns: self.slots[slot].columns(&self.schedules),
            });
        }
    }

    /// Tells of what is complete, in order, and gives slots to the objects to come.
    fn finish(&mut self, out: &mut Vec<Output>) {
        let peers = self.settings.schedule.members() - 1;
        loop {
            let slot = self.slot_of(self.incomplete);
            let transfer = &mut self.slots[slot];
            if transfer.object != self.incomplete || !transfer.is_complete() {
                break;
            }
            out.push(Output::Complete { object: self.incomplete });
            transfer.tell();
            self.incomplete.0 += 1;
            if self.settings.me.0 != 0 {
                self.tell(slot, Rank(0));
                self.turn(slot, out);
            }
        }
        while self.settings.me.0 == 0 {
            let slot = self.slot_of(self.everywhere);
            let (transfer, missing) = (&self.slots[slot], u32::from(planted!(SlotReusedEarly) && peers > 1));
            if !transfer.is_told || transfer.whole_peers < peers - missing {
                break;
            }
            out.push(Output::Everywhere { object: self.everywhere });
            self.everywhere.0 += 1;
            self.turn(slot, out);
        }
    }

    /// The slot is free for its next object, of which peers may have spoken already.
    fn turn(&mut self, slot: usize, out: &mut Vec<Output>) {
        self.slots[slot].turn(&self.settings, &self.schedules);
        self.greet(slot);
        if self.settings.me.0 != 0 {
            let length = self.seen[slot].iter().find_map(|seen| self.slots[slot].length_in(seen));
            self.learn(slot, length.and_then(|bytes| self.size(bytes)), out);
            self.take(slot);
        }
    }

    fn close(&mut self, dead: Rank, out: &mut Vec<Output>) {
        self.closed = Some(dead);
        // What a member has completed is always a prefix of what was sent.
        let mut failed = false;
        let end = self.incomplete.0 + u64::from(self.settings.slots);
        for object in (self.incomplete.0..end).map(Object) {
            let transfer = &self.slots[self.slot_of(object)];
            let is_known = transfer.object == object && transfer.size.is_some();
            let is_saved = match self.settings.me.0 {
                0 => transfer.whole_peers + 1 == self.settings.schedule.members(),
                _ => transfer.is_whole() && transfer.has_room,
            };
            failed |= !is_known || !is_saved;
            if is_known && (transfer.has_room || !planted!(FailureForgotten)) {
                out.push(if failed { Output::Failed { object } } else { Output::Complete { object } });
            }
        }
        out.push(Output::Closed { dead });
    }

    fn slot_of(&self, object: Object) -> usize {
        (object.0 % u64::from(self.settings.slots)) as usize
    }
}
