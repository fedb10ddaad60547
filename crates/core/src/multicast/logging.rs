//! The log of a subgroup, as its member's engine sees it: which messages are on their way to the
//! disk, which are there, and which are on the disks of all members.
//!
//! The engine walks the stable messages with a cursor of its own and offers them to the
//! application's log as [`Records`]. The log takes as many as it has room for. It writes them on
//! another thread, and reports the newest that is on disk. The engine stores that as a count in its
//! row (`PERSISTED`), and the smallest count of all members is the durable frontier.
//!
//! Invariants:
//!
//! - INV-LOG-ORDER: the log gets each message below the trims once, in the order of delivery.
//! - INV-LOG-CLOCK: the clock of a message follows from the messages alone: one more than the clock
//!   before it, or the time at which it was sent, if that is later. All members compute the same.
//! - INV-DURABLE: the frontier covers a message only if it is on the disk of every member.
//! - INV-DELIVER-DURABLE: a subgroup that is logged before delivery delivers only messages that the
//!   frontier covers, and, after the end of the epoch, messages on the disks of all members that continue.
//!   So the log is ahead of delivery. A member's cuts are the messages on its disk. Messages that its log
//!   has beyond the trims are cut off, and their senders send them again.
//!
//! A log that lacks records of older epochs *catches up*: until it has them it takes no message of its
//! epoch, and reports nothing as persisted.
use crate::fault::Fault;
use crate::ids::{MemberId, Position, Rank, ViewId};
use crate::multicast::cursor::{Batch, Cursor, Defect, Message, Timed};
use crate::mutation::mutation;
use crate::table::Rows;
use crate::view::SubgroupSpec;
use crate::wire::layout::entry;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes of frames, times the number of senders, that one poll offers to the log.
const BYTES_MAX: u64 = 256 << 10;

/// A message for the log.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its position in the order.
    pub position: Position,
    /// Its hybrid logical clock, in ns since 1970: the same at all members, and later than that of
    /// any message before it.
    pub clock: u64,
    /// The time at which it was sent, by its sender's clock, in ns since 1970.
    pub time: u64,
    /// The message.
    pub message: Message<'a>,
}

/// Messages that are stable and not in the log yet, in order.
#[derive(Debug)]
pub struct Records<'a, R> {
    batch: Batch<'a, R>,
    epoch: ViewId,
    clock: &'a mut u64,
    newest: &'a mut Option<u64>,
    is_blocked: &'a mut bool,
    is_rest: bool,
}

impl<R: Rows> Records<'_, R> {
    /// Whether the epoch of the messages has ended. Then the log has to take all of them, also
    /// beyond the limit of its queue: a view that begins must not wait for a disk. They are no more
    /// than the rings of the epoch have room for.
    pub fn is_rest(&self) -> bool {
        self.is_rest
    }

    /// Calls `take` with one message after the other, until none is left or `take` returns false.
    /// Then the log does not have that message. It is offered again after the next
    /// [`Engine::note_persisted`](crate::Engine::note_persisted).
    pub fn offer(&mut self, mut take: impl FnMut(&Record<'_>) -> bool) {
        while let Some(Timed { time, sequence, message }) = self.batch.peek_timed() {
            let clock = if mutation!(ClockBySender) { time } else { time.max(self.clock.saturating_add(1)) };
            let position = Position { epoch: self.epoch, sequence };
            if !take(&Record { position, clock, time, message }) {
                return;
            }
            (*self.clock, *self.newest) = (clock, Some(sequence));
            self.batch.next();
            // An object is longer than its frame, and takes as long to copy.
            self.batch.spend(message.payload.len() as u64);
        }
        *self.is_blocked = false;
    }
}

/// The log of one subgroup at one member.
#[derive(Hash, Debug)]
pub(crate) struct Logging {
    cursor: Cursor,
    epoch: ViewId,
    copies: usize,
    /// Whether a message is delivered only once it is durable.
    delivers_durable: bool,
    /// The clock of the newest message that the log has, or a later one at the start of an epoch.
    clock: u64,
    /// The newest message of older epochs that is in the log and perhaps not on disk.
    older: Option<Position>,
    /// The sequence number of the newest message of this epoch that the log has.
    newest: Option<u64>,
    /// The sequence number of the newest one that is on disk.
    on_disk: Option<u64>,
    /// The word in my row.
    persisted: u64,
    /// The words of my peers, in their order.
    peers: Box<[u64]>,
    /// The smallest of all, as long as there are enough members.
    durable: u64,
    /// Whether the log had no room for all that was offered.
    is_blocked: bool,
    /// Whether records of older epochs are missing and may come.
    is_catching_up: bool,
    /// Whether I was not in the epoch before.
    is_first: bool,
    /// The members that have the messages of older epochs which were not known to be durable.
    holders: Vec<MemberId>,
}

/// A rise of the durable frontier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurableRise {
    /// All messages of its epoch before it are on the disks of all members.
    pub frontier: Position,
    /// Whether the same holds for the messages of all older epochs, on enough disks. If not, some
    /// members that had them have left the subgroup, and those that came since lack them.
    pub covers_older: bool,
}

impl Logging {
    pub(crate) fn new(spec: &SubgroupSpec, epoch: ViewId, cursor: Cursor) -> Option<Box<Logging>> {
        let copies = spec.durability.copies()?;
        Some(Box::new(Logging {
            cursor,
            epoch,
            copies: copies as usize,
            delivers_durable: spec.durability.delivers_durable(),
            clock: spec.clock,
            older: None,
            newest: None,
            on_disk: None,
            persisted: 0,
            peers: alloc::vec![0; spec.members.len() - 1].into(),
            durable: 0,
            is_blocked: false,
            is_catching_up: false,
            is_first: true,
            holders: Vec::new(),
        }))
    }

    /// As [`Engine::fork`](crate::Engine::fork).
    pub(crate) fn fork(&self) -> Box<Logging> {
        let (cursor, peers, holders) = (self.cursor.fork(), self.peers.clone(), self.holders.clone());
        Box::new(Logging { cursor, peers, holders, ..*self })
    }

    /// Continues in a new epoch, which `stayed` entered of the members of the one before.
    pub(crate) fn follow(&mut self, before: &Logging, stayed: impl Iterator<Item = MemberId>) {
        // If the epoch had a durable frontier, the messages before it needed no more.
        let had = |id: &MemberId| before.durable > 0 || before.is_first || before.holders.contains(id);
        (self.is_first, self.holders) = (false, stayed.filter(had).collect());
        // If only durable messages are delivered, the log has all messages below the trims on disk.
        let newest = before.newest.filter(|_| before.newest != before.on_disk && !before.delivers_durable);
        let newest = newest.map(|sequence| Position { epoch: before.epoch, sequence });
        self.older = newest.or(before.older).filter(|_| !mutation!(OlderForgotten));
    }

    /// The clock of the newest message that the log has, or a later one at the start of an epoch. All
    /// further messages have later ones.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// The sequence numbers that the log has.
    pub(crate) fn count(&self) -> u64 {
        self.cursor.count()
    }

    pub(crate) fn cursor_mut(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    /// Whether the epoch has ended and the log has all of it.
    pub(crate) fn is_at_end(&self) -> bool {
        self.cursor.is_at_end()
    }

    /// Whether everything that the log has is on disk.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_catching_up && self.older.is_none() && self.newest == self.on_disk
    }

    /// Whether more can be offered now. A message that can't be delivered for want of members is sent
    /// again in the next epoch, so it is not logged in this one.
    pub(crate) fn has_more(&self, stable: u64) -> bool {
        !self.is_blocked && self.cursor.count() < stable && !self.lacks_members()
    }

    /// Whether no message can be delivered here, because the subgroup has too few members.
    pub(crate) fn lacks_members(&self) -> bool {
        self.delivers_durable && self.peers.len() + 1 < self.copies
    }

    /// INV-DELIVER-DURABLE: the sequence numbers that may be delivered, if they are stable.
    #[inline]
    pub(crate) fn deliverable(&self) -> u64 {
        match self.delivers_durable && !mutation!(DeliveredBeforeDurable) {
            true => self.durable.saturating_sub(1),
            false => u64::MAX,
        }
    }

    /// INV-DELIVER-DURABLE: the sequence numbers that my cuts contain, if these depend on my disk. Each
    /// member that continues has on disk what is below the trims, and no member has delivered more.
    pub(crate) fn cut(&self) -> Option<u64> {
        let below = if mutation!(CutBelowDurable) { 3 } else { 1 };
        (self.delivers_durable && !mutation!(CutBeyondDisk)).then(|| self.persisted.saturating_sub(below))
    }

    /// Closes the log, as the epoch has ended at these trims. Returns the position from which on the log
    /// has messages that are not part of the epoch, if it has any.
    pub(crate) fn close<R: Rows>(&mut self, rows: &R, trims: &[u64]) -> Option<Position> {
        self.cursor.close(rows, trims);
        let sequence = self.cursor.end()?;
        self.newest.filter(|newest| *newest >= sequence)?;
        Some(Position { epoch: self.epoch, sequence })
    }

    /// Returns the messages below `stable` for the log, or those below the trims once the epoch has
    /// ended.
    pub(crate) fn records<'a, R: Rows>(&'a mut self, rows: &'a R, stable: u64) -> Records<'a, R> {
        let quota = BYTES_MAX * self.cursor.senders().max(1) as u64;
        let Logging { cursor, epoch, clock, newest, is_blocked, .. } = self;
        // Unless all of it is taken.
        *is_blocked = true;
        let is_rest = cursor.is_closed();
        let batch = cursor.advance(rows, stable).at_most(quota);
        Records { batch, epoch: *epoch, clock, newest, is_blocked, is_rest }
    }

    /// The frame that stopped the walk, if one did.
    pub(crate) fn defect(&self) -> Option<Defect> {
        self.cursor.defect()
    }

    /// Sets whether records of older epochs are missing and may come. Once none may come any more, all
    /// that the log has of older epochs is on disk.
    pub(crate) fn set_catching_up(&mut self, is_catching_up: bool) {
        if self.is_catching_up && !is_catching_up {
            (self.older, self.is_blocked) = (None, false);
        }
        self.is_catching_up = is_catching_up;
    }

    /// Notes that everything up to `position` is on disk, and that the log may have room again.
    pub(crate) fn note_persisted(&mut self, position: Option<Position>) {
        self.is_blocked = false;
        let Some(position) = position else { return };
        if self.older.is_some_and(|older| older <= position) {
            self.older = None;
        }
        if position.epoch == self.epoch {
            self.on_disk = self.on_disk.max(Some(position.sequence));
        } else if position.epoch > self.epoch {
            self.on_disk = self.newest;
        }
    }

    /// Computes the word for my row. Returns it if it has changed.
    pub(crate) fn raise_persisted(&mut self) -> Option<u64> {
        if self.older.is_some() || self.is_catching_up {
            return None;
        }
        let count = match self.on_disk {
            _ if mutation!(PersistedBeforeSync) => self.cursor.count(),
            on_disk if on_disk == self.newest => self.cursor.count(),
            on_disk => on_disk.map_or(0, |sequence| sequence + 1),
        };
        let word = (1 + count).max(self.persisted);
        let has_risen = word > self.persisted;
        self.persisted = word;
        has_risen.then_some(word)
    }

    /// Loads the words of all peers, given by rank and the offset of their entries. Returns whether
    /// any changed.
    pub(crate) fn observe<R: Rows>(
        &mut self,
        rows: &R,
        peers: impl Iterator<Item = (Rank, u64)>,
        max: u64,
    ) -> Result<bool, Fault> {
        let mut has_moved = false;
        for ((rank, entry), before) in peers.zip(&mut self.peers) {
            let now = rows.load(rank, entry + entry::PERSISTED);
            if now < *before || now > max {
                return Err(Fault::Counter { member: rank, counter: "persisted", before: *before, now });
            }
            has_moved |= now != *before;
            *before = now;
        }
        Ok(has_moved)
    }

    /// INV-DURABLE: computes the frontier that is on the disks of all members. Returns it if it has
    /// risen.
    pub(crate) fn find_durable(&mut self) -> Option<DurableRise> {
        let before = self.durable;
        let all = match mutation!(DurableOnOne) {
            true => self.persisted.max(self.peers.iter().copied().max().unwrap_or(0)),
            false => {
                let left_out = usize::from(mutation!(DurableForgetsOne));
                let counted = &self.peers[..self.peers.len().saturating_sub(left_out)];
                counted.iter().copied().fold(self.persisted, u64::min)
            }
        };
        if self.peers.len() + 1 >= self.copies || mutation!(TooFewCopies) {
            self.durable = self.durable.max(all);
        }
        let sequence = self.durable.checked_sub(1).filter(|_| self.durable > before)?;
        let too_few = self.holders.len() < self.copies && !mutation!(HoldersForgotten);
        let covers_older = !too_few || mutation!(TooFewCopies);
        Some(DurableRise { frontier: Position { epoch: self.epoch, sequence }, covers_older })
    }

    /// Whether the peer of this index has not persisted everything that my log has.
    pub(crate) fn awaits(&self, peer: usize) -> bool {
        self.newest.is_some_and(|newest| self.peers[peer] < newest + 2) || self.peers[peer] == 0
    }

    /// The sequence numbers that are on my disk; `None` as long as some of older epochs may not be.
    pub(crate) fn persisted(&self) -> Option<u64> {
        self.persisted.checked_sub(1)
    }

    /// As [`persisted`](Self::persisted), for the disks of all members.
    pub(crate) fn durable(&self) -> Option<u64> {
        self.durable.checked_sub(1)
    }

    /// A clock that is no earlier than that of any message here, `rounds` rounds of each sender.
    pub(crate) fn clock_at<R: Rows>(&self, rows: &R, rounds: &[u64]) -> u64 {
        let mut walk = self.fork();
        walk.cursor.close(rows, rounds);
        while !walk.cursor.is_at_end() {
            let before = walk.cursor.count();
            walk.records(rows, 0).offer(|_| true);
            if walk.cursor.count() == before {
                break;
            }
        }
        walk.clock
    }
}
