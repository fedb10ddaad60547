//! One member's part in a bulk group: the blocks and counters to post, given those that have become
//! visible.
//!
//! [`Session`] takes [`Input`]s and returns [`Output`]s. It owns no memory of objects and no row:
//! the caller copies blocks and keeps the [`Columns`] of each slot in its row. The group's members,
//! root and schedule never change. To change them, the caller creates another session. A session
//! ends with the first death in it.
use super::object::{Schedules, Size, Transfer};
use super::schedule::{Algorithm, Schedule};
use super::settings::{SessionSettings, blocks};
use super::slot::{Columns, ObjectNumber, Slot};
use crate::fault::Fault;
use crate::ids::Rank;
use crate::limits;
use crate::mutation::mutation;
use alloc::vec;
use alloc::vec::Vec;

/// An event at a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// These counters of a peer have become visible, and with them all blocks that it posted to
    /// this member before.
    Columns {
        /// The rank of the peer.
        from: Rank,
        /// The slot of the counters.
        slot: Slot,
        /// Their values now.
        columns: Columns,
    },
    /// The application has made room for an object that was reported to it by [`Output::Size`], and
    /// moved the first block there.
    Room {
        /// The object.
        object: ObjectNumber,
    },
    /// A block that this member posted is sent: its memory is not read any more.
    Gone {
        /// The slot of the block.
        slot: Slot,
    },
    /// A member is dead.
    Died {
        /// The rank of the member.
        rank: Rank,
    },
    /// A peer reports that it closed the group.
    Closed {
        /// The rank whose death it names.
        dead: Rank,
    },
}

/// An action that a member has to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Post a block and then these counters. Answer with [`Input::Gone`].
    Block {
        /// The rank of the receiver.
        to: Rank,
        /// The slot.
        slot: Slot,
        /// The object.
        object: ObjectNumber,
        /// Offset of the block in the object, in bytes.
        at: u64,
        /// Its length in bytes; only the last block is shorter than the others.
        bytes: u64,
        /// Whether it is the first block that the receiver gets: then it goes to the place that is
        /// always reserved for one.
        is_first: bool,
        /// This member's counters.
        columns: Columns,
    },
    /// Post these counters.
    Columns {
        /// The rank of the receiver.
        to: Rank,
        /// The slot of the counters.
        slot: Slot,
        /// This member's counters.
        columns: Columns,
    },
    /// Report the length of an object to the application, so that it makes room. Answer with
    /// [`Input::Room`].
    Size {
        /// The object.
        object: ObjectNumber,
        /// Its length.
        bytes: u64,
    },
    /// Report to the application that it has the whole object and that its memory is not read any
    /// more for others. Objects complete in order.
    Complete {
        /// The object.
        object: ObjectNumber,
    },
    /// Report to the root's application that an object is complete at every member, and that their
    /// applications have been informed.
    Everywhere {
        /// The object.
        object: ObjectNumber,
    },
    /// Report to the application that an object that it knows will never be complete.
    Failed {
        /// The object.
        object: ObjectNumber,
    },
    /// Report to every peer ([`Input::Closed`]) and to the application that the group is closed.
    /// This is the last output.
    Closed {
        /// The rank whose death closed it.
        dead: Rank,
    },
}

/// A block that a peer's counters announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnouncedBlock {
    /// The object of the block.
    pub object: ObjectNumber,
    /// The length of the object.
    pub object_bytes: u64,
    /// Offset of the block in the object, in bytes.
    pub at: u64,
    /// Bytes of the block.
    pub bytes: u64,
    /// Whether it is the first block that this member gets: it may arrive before room for the
    /// object exists.
    pub is_first: bool,
}

/// The reason why the root can't send now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionSendError {
    /// Another member is the root.
    #[error("rank {me} is not the root of the bulk group; have rank 0 send, or make a group with another root")]
    NotRoot {
        /// This member's rank.
        me: Rank,
    },
    /// The maximum number of objects is in transfer.
    #[error("all {slots} slots are in use; wait until an object is everywhere, or give the group more slots")]
    Full {
        /// The maximum number of objects.
        slots: u32,
    },
    /// Block numbers would not fit.
    #[error("an object of {bytes} bytes is longer than {max}, which is what so many blocks hold; take larger blocks")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The maximum length.
        max: u64,
    },
    /// A member has died.
    #[error("the bulk group was closed when rank {dead} died; make another without it")]
    Closed {
        /// The rank of the member.
        dead: Rank,
    },
}

/// The error of a setting for which no session can exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{what} is {found}, but has to be {least} to {most}")]
pub struct SessionError {
    /// The name of the setting.
    pub what: &'static str,
    /// Its value.
    pub found: u64,
    /// Its minimum.
    pub least: u64,
    /// Its maximum.
    pub most: u64,
}

/// One member of a bulk group.
#[derive(Clone, Debug)]
pub struct Session {
    settings: SessionSettings,
    schedules: Schedules,
    slots: Vec<Transfer>,
    /// By slot: the last known counters of every member, by rank.
    seen: Vec<Vec<Columns>>,
    /// The next object of the root.
    next: ObjectNumber,
    /// The first object that is not complete here.
    incomplete: ObjectNumber,
    /// The first object that is not complete everywhere, as far as the root knows.
    everywhere: ObjectNumber,
    /// Blocks posted and not yet sent, of objects with more than one block.
    posts: u32,
    /// Peers that must still receive this member's counters, with the slot.
    untold: Vec<(usize, Rank)>,
    closed: Option<Rank>,
}

impl Session {
    /// Creates a session, and appends to `out` the counters to be posted when the peers can be
    /// reached.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn new(settings: SessionSettings, out: &mut Vec<Output>) -> Result<Session, SessionError> {
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
        let slots = (0..settings.slots).map(|slot| Transfer::new(ObjectNumber(slot.into()), &settings)).collect();
        let direct = Schedule::new(Algorithm::Sequential, members);
        let mut session = Session {
            schedules: Schedules { pipeline: settings.schedule.clone(), direct },
            slots,
            seen: vec![vec![Columns::default(); members as usize]; settings.slots as usize],
            settings,
            next: ObjectNumber(0),
            incomplete: ObjectNumber(0),
            everywhere: ObjectNumber(0),
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

    /// The settings on which all members agreed.
    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    /// This member's current counters of a slot.
    pub fn columns(&self, slot: Slot) -> Columns {
        self.slots[slot.0 as usize].columns(&self.schedules)
    }

    /// The blocks that this member would count as arrived if these counters of a peer became
    /// visible, except those that it has taken already. If a caller receives blocks and counters
    /// one after the other, it can find out the next block to come. It can also check that no peer
    /// announces a block that it has not sent.
    ///
    /// # Panics
    /// If the rank or the slot is not one of this group.
    pub fn announced(&self, from: Rank, slot: Slot, columns: &Columns) -> impl Iterator<Item = AnnouncedBlock> {
        let transfer = &self.slots[slot.0 as usize];
        let size = transfer.size.or_else(|| self.size(transfer.length_in(columns)?));
        let size = size.filter(|_| self.settings.me.0 != 0 && self.closed.is_none());
        let hops = size.map(|size| (size, transfer.announced(from, size, columns, &self.settings, &self.schedules)));
        hops.into_iter().flat_map(move |(size, hops)| {
            hops.map(move |hop| {
                let at = u64::from(hop.block) * self.settings.block_bytes;
                AnnouncedBlock {
                    object: transfer.object,
                    object_bytes: size.bytes,
                    at,
                    bytes: (size.bytes - at).min(self.settings.block_bytes),
                    is_first: hop.index == 0,
                }
            })
        })
    }

    /// Begins to send an object of `bytes` bytes from the root.
    ///
    /// # Errors
    /// If this member is not the root, no slot is free, the object has too many blocks, or the
    /// group is closed.
    pub fn send(&mut self, bytes: u64, out: &mut Vec<Output>) -> Result<ObjectNumber, SessionSendError> {
        let SessionSettings { me, slots, block_bytes, .. } = self.settings;
        if let Some(dead) = self.closed {
            return Err(SessionSendError::Closed { dead });
        }
        if me.0 != 0 {
            return Err(SessionSendError::NotRoot { me });
        }
        let max = u64::from(u32::MAX).saturating_mul(block_bytes);
        let size = self.size(bytes).ok_or(SessionSendError::TooLong { bytes, max })?;
        let (object, slot) = (self.next, self.slot_of(self.next));
        if self.slots[slot].object != object || self.slots[slot].size.is_some() {
            return Err(SessionSendError::Full { slots });
        }
        self.next.0 += 1;
        self.slots[slot].learn(size, &self.settings, &self.schedules);
        self.work(out);
        Ok(object)
    }

    /// Takes an input and does everything that follows from it. Once the group is closed, it does
    /// nothing.
    ///
    /// # Errors
    /// If a peer's counters are invalid. The session ignores them; the caller should treat the peer
    /// as dead.
    ///
    /// # Panics
    /// If a rank, slot or object is not one of this group, if more blocks are sent than were
    /// posted, or if the input reports room for an object whose size was not reported.
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

    /// Takes the counters of a peer.
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

    /// Stores the size of an object, if it was not known.
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

    /// Takes the blocks that have arrived.
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

    /// Informs the peers that may send this member the first block of an object that it has room
    /// for it.
    fn greet(&mut self, slot: usize) {
        let Some(first) = self.settings.schedule.first_sender(self.settings.me) else { return };
        self.tell(slot, first);
        if first != Rank(0) && self.settings.direct_below > 0 {
            self.tell(slot, Rank(0));
        }
    }

    /// Notes that this member's counters of a slot must be sent to a peer.
    fn tell(&mut self, slot: usize, to: Rank) {
        if !self.untold.contains(&(slot, to)) {
            self.untold.push((slot, to));
        }
    }

    fn post(&self, slot: usize, to: Rank, out: &mut Vec<Output>) {
        let columns = self.slots[slot].columns(&self.schedules);
        out.push(Output::Columns { to, slot: Slot(slot as u32), columns });
    }

    /// Sends the blocks that can be sent, of the oldest object first, and finishes objects that are
    /// complete.
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
            // A block would delay the counters behind it. Counters to other peers can wait until
            // all blocks are posted.
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

    /// Reports complete objects, in order, and gives slots to the next objects.
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
            let (transfer, missing) = (&self.slots[slot], u32::from(mutation!(SlotReusedEarly) && peers > 1));
            if !transfer.is_told || transfer.whole_peers < peers - missing {
                break;
            }
            out.push(Output::Everywhere { object: self.everywhere });
            self.everywhere.0 += 1;
            self.turn(slot, out);
        }
    }

    /// Frees the slot for its next object, whose counters peers may have posted already.
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
        // The complete objects of a member are always a prefix of those that were sent.
        let mut failed = false;
        let end = self.incomplete.0 + u64::from(self.settings.slots);
        for object in (self.incomplete.0..end).map(ObjectNumber) {
            let transfer = &self.slots[self.slot_of(object)];
            let is_known = transfer.object == object && transfer.size.is_some();
            let is_saved = match self.settings.me.0 {
                0 => transfer.whole_peers + 1 == self.settings.schedule.members(),
                _ => transfer.is_whole() && transfer.has_room,
            };
            failed |= !is_known || !is_saved;
            if is_known && (transfer.has_room || !mutation!(FailureForgotten)) {
                out.push(if failed { Output::Failed { object } } else { Output::Complete { object } });
            }
        }
        out.push(Output::Closed { dead });
    }

    fn slot_of(&self, object: ObjectNumber) -> usize {
        (object.0 % u64::from(self.settings.slots)) as usize
    }
}
