//! One slot: the object that it carries, as one member sees it, and the counters by which the
//! member reports on it.
//!
//! A slot carries one object after the other. Its counters continue from one object to the next.
//! Their values when an object began are its *base*. The base is the same at every member, because
//! all have finished the same objects before it.
use super::schedule::{Hop, Schedule};
use super::settings::SessionSettings;
use super::slot::{Columns, ObjectNumber};
use crate::mutation::mutation;
use alloc::vec::Vec;

/// The facts that a member knows once it knows the length of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) blocks: u32,
    /// Whether the root itself sends it to every member.
    pub(super) is_direct: bool,
}

/// The next block that a member has to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Next {
    hop: Hop,
    /// The block that the member must have for it, by the order in which it receives them; `None`
    /// if it always has it.
    needs: Option<u32>,
}

/// One slot at one member.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) object: ObjectNumber,
    /// The counters when the object began. `ready` and `have` both count blocks, and so share
    /// `have`.
    base: Columns,
    /// The counters that this member reports. `steps` is not up to date until [`Transfer::columns`]
    /// is called.
    mine: Columns,
    pub(super) size: Option<Size>,
    /// Whether the application has made room for the whole object.
    pub(super) has_room: bool,
    /// Blocks that have arrived, without a gap in the order of arrival.
    pub(super) have: u32,
    /// Later blocks that have arrived, too: bit i for the i-th.
    beyond: u64,
    next: Option<Next>,
    /// Blocks posted and not yet sent.
    pub(super) posts: u32,
    /// Peers that have reported that they have the whole object. Only the root is informed.
    pub(super) whole_peers: u32,
    /// Whether the application knows that it is complete.
    pub(super) is_told: bool,
}

impl Transfer {
    /// Returns the slot before it carries anything; `first` is the first object that it will carry.
    pub(super) fn new(first: ObjectNumber, settings: &SessionSettings) -> Transfer {
        let mut transfer = Transfer {
            object: first,
            base: Columns::default(),
            mine: Columns::default(),
            size: None,
            has_room: false,
            have: 0,
            beyond: 0,
            next: None,
            posts: 0,
            whole_peers: 0,
            is_told: false,
        };
        transfer.begin(settings);
        transfer
    }

    /// Finishes the slot's object and prepares for the next one.
    pub(super) fn turn(&mut self, settings: &SessionSettings, schedules: &Schedules) {
        let Some(size) = self.size else { return };
        self.base.bytes += size.bytes + 1;
        self.base.steps += schedules.of(size).steps(size.blocks);
        self.base.have += u64::from(size.blocks);
        let next = ObjectNumber(self.object.0 + u64::from(settings.slots));
        *self = Transfer { base: self.base, mine: self.mine, ..Transfer::new(next, settings) };
        self.begin(settings);
    }

    /// Begins an object. Room for one block always exists.
    fn begin(&mut self, settings: &SessionSettings) {
        if settings.me.0 != 0 {
            self.mine.ready = self.base.have + 1;
        }
    }

    /// Stores the length of the object.
    pub(super) fn learn(&mut self, size: Size, settings: &SessionSettings, schedules: &Schedules) {
        self.size = Some(size);
        self.mine.bytes = self.base.bytes + size.bytes + 1;
        if mutation!(LengthFromBlocks) && settings.me.0 != 0 {
            self.mine.bytes = self.base.bytes + u64::from(size.blocks) * settings.block_bytes + 1;
        }
        if settings.me.0 == 0 {
            (self.have, self.has_room) = (size.blocks, true);
            self.mine.have = self.base.have + u64::from(size.blocks);
        }
        self.find_next(0, settings, schedules);
    }

    /// The length in a peer's counters, if they contain that of this object.
    pub(super) fn length_in(&self, seen: &Columns) -> Option<u64> {
        seen.bytes.checked_sub(self.base.bytes)?.checked_sub(1)
    }

    /// Finds a counter of a peer that has an impossible value, as long as this member has not
    /// finished an object of this `size`. Returns its name, its maximum and its value.
    pub(super) fn find_impossible(
        &self,
        size: Option<Size>,
        seen: &Columns,
        settings: &SessionSettings,
        schedules: &Schedules,
    ) -> Option<(&'static str, u64, u64)> {
        let is_root = settings.me.0 == 0;
        if !is_root && (size.is_none() || self.is_whole()) {
            // Peers may be further than this member knows.
            return None;
        }
        let base = &self.base;
        let bytes = size.map_or(0, |size| size.bytes + 1);
        let steps = size.map_or(0, |size| schedules.of(size).steps(size.blocks));
        let blocks = size.map_or(0, |size| u64::from(size.blocks));
        let most = [
            ("bytes", base.bytes + bytes, seen.bytes),
            ("steps", base.steps + steps, seen.steps),
            // A peer that has finished is ready for the first block of the next object.
            ("ready", base.have + blocks + 1, seen.ready),
            ("have", base.have + blocks, seen.have),
        ];
        let is_shorter = seen.bytes > base.bytes && seen.bytes != base.bytes + bytes;
        most.into_iter().find(|(name, most, now)| now > most || (is_shorter && *name == "bytes"))
    }

    /// Takes the blocks that have arrived according to `seen`, the counters of all peers in this
    /// slot, by rank. Returns whether it took any.
    pub(super) fn take(&mut self, seen: &[Columns], settings: &SessionSettings, schedules: &Schedules) -> bool {
        let Some(size) = self.size.filter(|size| self.have < size.blocks) else { return false };
        let schedule = schedules.of(size);
        // A peer that sent more blocks than that did so without credit.
        let given = (self.mine.ready - self.base.have).min(size.blocks.into()) as u32;
        for i in 0..given.saturating_sub(self.have) {
            let arrival = schedule.arrival(size.blocks, settings.me, self.have + i);
            let is_here = |hop: Hop| seen[hop.from.index()].steps.saturating_sub(self.base.steps) > hop.step;
            self.beyond |= u64::from(arrival.is_some_and(is_here)) << i;
        }
        let count = self.beyond.trailing_ones();
        self.beyond = self.beyond.checked_shr(count).unwrap_or(0);
        self.have += count;
        count > 0
    }

    /// The blocks that a peer would have sent if these were its counters, out of those for which
    /// this member is ready and that it has not taken.
    pub(super) fn announced(
        &self,
        from: crate::Rank,
        size: Size,
        seen: &Columns,
        settings: &SessionSettings,
        schedules: &Schedules,
    ) -> impl Iterator<Item = Hop> {
        let given = (self.mine.ready - self.base.have).min(size.blocks.into()) as u32;
        let steps = seen.steps.saturating_sub(self.base.steps);
        let missing = (self.have..given).filter(|index| !self.holds(*index));
        missing
            .filter_map(move |index| schedules.of(size).arrival(size.blocks, settings.me, index))
            .filter(move |hop| hop.from == from && hop.step < steps)
    }

    /// Grants as much credit as possible, and returns the peers that wait for it.
    pub(super) fn grant(&mut self, settings: &SessionSettings, schedules: &Schedules) -> Vec<crate::Rank> {
        let Some(size) = self.size.filter(|_| self.has_room && settings.me.0 != 0) else { return Vec::new() };
        let end = self.have.saturating_add(settings.ahead).min(size.blocks);
        let given = self.mine.ready - self.base.have;
        self.mine.ready = self.mine.ready.max(self.base.have + u64::from(end));
        let sender = |index| schedules.of(size).arrival(size.blocks, settings.me, index as u32).map(|hop| hop.from);
        let mut senders: Vec<_> = (given..u64::from(end)).filter_map(sender).collect();
        senders.sort_unstable();
        senders.dedup();
        senders
    }

    /// The block that can be sent now: the next one, if it has arrived and its target is ready for
    /// it.
    pub(super) fn sendable(&self, seen: &[Columns]) -> Option<Hop> {
        let next = self.next?;
        let is_here = next.needs.is_none_or(|index| self.holds(index)) || mutation!(SendsUnheld);
        let ready = seen[next.hop.to.index()].ready;
        let is_ready = ready.saturating_sub(self.base.have) > u64::from(next.hop.index) || mutation!(CreditIgnored);
        (is_here && is_ready).then_some(next.hop)
    }

    /// Notes that `hop` is posted.
    pub(super) fn sent(&mut self, hop: &Hop, settings: &SessionSettings, schedules: &Schedules) {
        self.posts += 1;
        self.find_next(hop.step + 1, settings, schedules);
    }

    /// Whether all blocks have arrived and all posts are sent.
    pub(super) fn is_complete(&self) -> bool {
        self.is_whole() && self.has_room && self.next.is_none() && self.posts == 0
    }

    /// Notes that the application knows that the object is complete.
    pub(super) fn tell(&mut self) {
        self.is_told = true;
        self.mine.have = self.base.have + self.size.map_or(0, |size| u64::from(size.blocks));
    }

    /// Whether the object is one block.
    pub(super) fn is_single(&self) -> bool {
        self.size.is_some_and(|size| size.blocks == 1)
    }

    /// Whether every block has arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.size.is_some_and(|size| self.have == size.blocks)
    }

    /// Whether a rise of a peer's `have` completed this object.
    pub(super) fn became_whole(&self, before: u64, now: u64) -> bool {
        let end = self.size.map(|size| self.base.have + u64::from(size.blocks));
        end.is_some_and(|end| before < end && now >= end)
    }

    /// Returns the counters to be posted.
    pub(super) fn columns(&self, schedules: &Schedules) -> Columns {
        let taken = match (self.size, &self.next) {
            (None, _) => 0,
            (Some(_), Some(next)) => next.hop.step + u64::from(mutation!(StepsAhead)),
            (Some(size), None) => schedules.of(size).steps(size.blocks),
        };
        Columns { steps: self.base.steps + taken, ..self.mine }
    }

    fn find_next(&mut self, step: u64, settings: &SessionSettings, schedules: &Schedules) {
        self.next = self.size.and_then(|size| {
            let schedule = schedules.of(size);
            let hop = schedule.next_send(size.blocks, settings.me, step)?;
            Some(Next { hop, needs: schedule.needs(size.blocks, &hop) })
        });
    }

    fn holds(&self, index: u32) -> bool {
        let beyond = index.checked_sub(self.have);
        beyond.is_none_or(|i| self.beyond.checked_shr(i).is_some_and(|bits| bits & 1 == 1))
    }
}

/// The schedules of a group: one for large objects, and one for small objects.
#[derive(Clone, Debug)]
pub(super) struct Schedules {
    pub(super) pipeline: Schedule,
    pub(super) direct: Schedule,
}

impl Schedules {
    pub(super) fn of(&self, size: Size) -> &Schedule {
        if size.is_direct { &self.direct } else { &self.pipeline }
    }
}
