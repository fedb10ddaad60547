//! The simulated memory: each member's own row, its copies of the other rows, and the data in
//! flight to them.
//!
//! A [`SimTable`] keeps the contract of [`spindle_core::table`] and no more: everything that the
//! contract leaves open is drawn at random. The table records the actions of an engine
//! ([`TableAction`]), and the simulator carries them to the peers after the poll. Data that arrives in
//! the middle of a peer's poll becomes visible through the loads of that peer.
mod row_copy;

use crate::random::mix;
pub(crate) use row_copy::Extent;
use row_copy::RowCopy;
use spindle_core::wire::layout::LINE_BYTES;
use spindle_core::{Found, Frames, Lookup, Rank, Ring, Rows, Table};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

/// The maximum number of stores and posts of one poll: far more than the frames that all rings of a
/// plan hold.
const ACTIONS_MAX: usize = 1 << 17;

/// The delay of a link, in ns, beyond which it lands torn posts in one step.
const BEHIND_NS: u64 = 20_000;

/// The longest time by which a merge may delay the posts that it replaces, in ns.
const MERGED_NS: u64 = 50_000;

/// Returns a bit mask of these members.
pub(crate) fn bits(members: &[Rank]) -> u64 {
    members.iter().fold(0, |bits, member| bits | 1 << member.0)
}

/// An action of an engine on its table in one poll. The actions are recorded in order.
#[derive(Clone, Debug)]
pub(crate) enum TableAction {
    Store {
        at: u64,
        value: u64,
    },
    /// `peers` is a bit mask. `copied` is the start of the range's content in the table's scratch
    /// memory, if it was copied. A `quiet` post rings no doorbell.
    Post {
        peers: u64,
        range: Range<u64>,
        copied: usize,
        quiet: bool,
    },
    /// The doorbells of `peers` (a bit mask), for words of the membership block.
    Wake {
        peers: u64,
    },
}

/// Data in flight from one member to another.
#[derive(Clone, Debug)]
struct InFlight {
    due: u64,
    /// The earliest due time of the parcels that it replaced.
    since: u64,
    /// True if a later parcel replaced it.
    dropped: bool,
    load: InFlightLoad,
    /// The number of steps in which it lands, and the number of steps done.
    steps: u64,
    step: u64,
    salt: u64,
}

#[derive(Clone, Debug)]
enum InFlightLoad {
    /// Shared memory: one store.
    Word { at: u64, value: u64 },
    /// Shared memory: a doorbell.
    EventCount,
    /// Shared memory: the mark that words of the membership block have changed.
    Moved,
    /// Control words; their values are the next ones in `TableLink::words`.
    Control(Range<u64>),
    /// Ring bytes. They are the next ones in `TableLink::bytes`, or are read from the owner's row when
    /// they land.
    Data { range: Range<u64>, late: bool },
}

/// The data in flight from one member to another, in order.
#[derive(Debug, Default)]
pub(crate) struct TableLink {
    queue: VecDeque<InFlight>,
    words: VecDeque<u64>,
    bytes: VecDeque<u8>,
    /// The due time of the newest parcel.
    pub(crate) due: u64,
    /// True if the heap contains an event for the link.
    pub(crate) scheduled: bool,
    /// True if nothing arrives.
    pub(crate) cut: bool,
    /// True if nothing has arrived and nothing ever will, because the owner's memory did not
    /// arrive.
    pub(crate) absent: bool,
}

impl TableLink {
    /// Returns true if nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// An action of another thread in the middle of a poll.
pub(crate) type Interruption = Box<dyn FnOnce()>;

/// One member's memory.
pub(crate) struct SimTable {
    me: Rank,
    pub(crate) rows: Vec<RowCopy>,
    pub(crate) inbound: Vec<RefCell<TableLink>>,
    pub(crate) actions: Vec<TableAction>,
    scratch_words: Vec<u64>,
    scratch_bytes: Vec<u8>,
    /// True if announced frames are copied when they are posted.
    copy_data: bool,
    /// The state of the random decision whether words arrive while the engine polls; None if they
    /// do not.
    mid_poll: Option<Cell<u64>>,
    /// The action in the middle of this poll, and the number of accesses until it.
    interruption: RefCell<Option<Interruption>>,
    interrupted_in: Cell<u64>,
    /// Stores and posts of this poll so far; other parts of the simulator use the count to order
    /// events.
    count: Rc<Cell<u64>>,
    /// True if words of membership blocks have changed.
    moved: Cell<bool>,
    /// True if data has arrived in the middle of a poll that the engine may have missed.
    pub(crate) missed: Cell<bool>,
    /// A word of `owner`'s row that decreased: (owner, offset, before, now).
    pub(crate) went_back: Cell<Option<(Rank, u64, u64, u64)>>,
}

/// The timing of the parcels of one post.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Travel {
    pub(crate) due: u64,
    pub(crate) steps: u64,
    pub(crate) salt: u64,
    pub(crate) merge: bool,
    /// The earliest due time of the posts that it replaces; `u64::MAX` for none.
    pub(crate) since: u64,
}

/// The result of landing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Landed {
    /// True if the peer has to be woken.
    pub(crate) woken: bool,
    /// The due time of the next parcel.
    pub(crate) next: Option<u64>,
}

impl SimTable {
    pub(crate) fn new(
        me: Rank,
        sizes: &[Extent],
        copy_data: bool,
        mid_poll: Option<u64>,
        count: Rc<Cell<u64>>,
    ) -> SimTable {
        SimTable {
            me,
            rows: sizes.iter().map(RowCopy::new).collect(),
            inbound: sizes.iter().map(|_| RefCell::default()).collect(),
            actions: vec![],
            scratch_words: vec![],
            scratch_bytes: vec![],
            copy_data,
            mid_poll: mid_poll.map(Cell::new),
            interruption: RefCell::default(),
            interrupted_in: Cell::new(0),
            count,
            moved: Cell::new(true),
            missed: Cell::new(false),
            went_back: Cell::new(None),
        }
    }

    pub(crate) fn begin_poll(&mut self) {
        self.actions.clear();
        self.scratch_words.clear();
        self.scratch_bytes.clear();
        self.missed.set(false);
        self.count.set(0);
    }

    /// Schedules an action at the engine's `access`-th access to this table from now.
    pub(crate) fn interrupt_at(&mut self, access: u64, interruption: Interruption) {
        self.interruption = RefCell::new(Some(interruption));
        self.interrupted_in = Cell::new(access.max(1));
    }

    /// Ends a poll. An action that was scheduled in the middle of it is executed now at the latest.
    pub(crate) fn end_poll(&self) {
        self.interrupted_in.set(0);
        if let Some(interruption) = self.interruption.take() {
            interruption();
        }
    }

    #[inline]
    fn access(&self) {
        let left = self.interrupted_in.get();
        if left > 1 {
            self.interrupted_in.set(left - 1);
        } else if left == 1 {
            self.end_poll();
        }
    }

    /// Writes an application's word or bytes into my own row.
    pub(crate) fn set_own(&mut self, at: u64, value: u64) {
        self.rows[self.me.index()].set(at, value);
    }

    fn apply_control(&self, owner: Rank, at: u64, value: u64) {
        let row = &self.rows[owner.index()];
        let cell = &row.control[at as usize / 8];
        if value < cell.get() && !row.free.iter().any(|free| free.contains(&at)) {
            self.went_back.set(Some((owner, at, cell.get(), value)));
        }
        cell.set(value);
    }

    /// Lets due words of control blocks arrive in the middle of a poll, one after the other.
    fn arrive(&self, owner: Rank) {
        let Some(chance) = &self.mid_poll else { return };
        let word = mix(chance.get());
        chance.set(word);
        if !word.is_multiple_of(4) {
            return;
        }
        let mut link = self.inbound[owner.index()].borrow_mut();
        let link = &mut *link;
        if link.cut {
            return;
        }
        let control = self.rows[owner.index()].control_bytes();
        for _ in 0..word >> 8 & 3 {
            let Some(InFlight { load, steps: 1, .. }) = link.queue.front() else { return };
            match load {
                InFlightLoad::Word { at, value } if *at < control => self.apply_control(owner, *at, *value),
                InFlightLoad::EventCount => self.missed.set(true),
                InFlightLoad::Moved => self.moved.set(true),
                InFlightLoad::Control(range) => {
                    let dropped = link.queue[0].dropped;
                    for at in range.clone().step_by(8) {
                        let value = link.words.pop_front().expect("a control post brings its words");
                        if !dropped {
                            self.apply_control(owner, at, value);
                        }
                    }
                    self.moved.set(true);
                    self.missed.set(true);
                }
                _ => return,
            }
            link.queue.pop_front();
        }
    }

    /// Puts one store in flight to me (shared memory).
    pub(crate) fn expect_word(&self, owner: Rank, at: u64, value: u64, due: u64) {
        self.expect(
            owner,
            InFlightLoad::Word { at, value },
            Travel { due, steps: 1, salt: 0, merge: false, since: u64::MAX },
        );
    }

    /// Puts a doorbell in flight to me (shared memory).
    pub(crate) fn expect_event_count(&self, owner: Rank, due: u64) {
        self.expect(owner, InFlightLoad::EventCount, Travel { due, steps: 1, salt: 0, merge: false, since: u64::MAX });
    }

    /// Puts in flight to me the mark that words of the membership block have changed (shared
    /// memory).
    pub(crate) fn expect_moved(&self, owner: Rank, due: u64) {
        self.expect(owner, InFlightLoad::Moved, Travel { due, steps: 1, salt: 0, merge: false, since: u64::MAX });
    }

    /// Returns true if a post of this range of my row changes words of its membership block.
    pub(crate) fn is_of_membership(&self, range: &Range<u64>) -> bool {
        range.start < self.rows[self.me.index()].membership
    }

    /// Puts a post of `from` in flight to me. Returns true if the post replaced an earlier one.
    pub(crate) fn expect_post(&self, from: &SimTable, range: &Range<u64>, copied: usize, travel: Travel) -> bool {
        let control = from.rows[from.me.index()].control_bytes();
        let mut merged = false;
        if range.start < control {
            assert!(range.end <= control, "a post of control words ends inside the control block");
            let mut link = self.inbound[from.me.index()].borrow_mut();
            let mut since = u64::MAX;
            let due = link.due.max(travel.due);
            if travel.merge {
                // The search ends at the newest control post that can't be replaced, because no
                // post may overtake it.
                for earlier in link.queue.iter_mut().rev().filter(|parcel| !parcel.dropped) {
                    let InFlightLoad::Control(covered) = &earlier.load else { continue };
                    if earlier.step > 0 || covered.start < range.start || range.end < covered.end {
                        break;
                    }
                    // Without this limit the peer might never see a row that changes all the time.
                    if due > earlier.since + MERGED_NS {
                        break;
                    }
                    since = since.min(earlier.since);
                    earlier.dropped = true;
                    merged = true;
                }
            }
            let words = ((range.end - range.start) / 8) as usize;
            link.words.extend(&from.scratch_words[copied..copied + words]);
            drop(link);
            self.expect(from.me, InFlightLoad::Control(range.clone()), Travel { since, ..travel });
        } else {
            if from.copy_data {
                let len = (range.end - range.start) as usize;
                let bytes = &from.scratch_bytes[copied..copied + len];
                self.inbound[from.me.index()].borrow_mut().bytes.extend(bytes);
            }
            self.expect(from.me, InFlightLoad::Data { range: range.clone(), late: !from.copy_data }, travel);
        }
        merged
    }

    fn expect(&self, owner: Rank, load: InFlightLoad, travel: Travel) {
        let mut link = self.inbound[owner.index()].borrow_mut();
        // A single line or word can't be torn.
        let steps = match &load {
            InFlightLoad::Word { .. } | InFlightLoad::EventCount | InFlightLoad::Moved => 1,
            InFlightLoad::Control(range) | InFlightLoad::Data { range, .. } => {
                let lines = range.end.div_ceil(LINE_BYTES) - range.start / LINE_BYTES;
                travel.steps.min(lines).max(1)
            }
        };
        link.due = link.due.max(travel.due);
        let (due, salt) = (link.due, travel.salt);
        let since = due.min(travel.since);
        link.queue.push_back(InFlight { due, since, dropped: false, load, steps, step: 0, salt });
    }

    /// Returns how many parcels of `owner` are in flight to me.
    pub(crate) fn on_the_way(&self, owner: Rank) -> usize {
        self.inbound[owner.index()].borrow().queue.len()
    }

    /// Loses all parcels of `owner` in flight to me, except the first `kept`.
    pub(crate) fn lose(&self, owner: Rank, kept: usize) {
        let mut link = self.inbound[owner.index()].borrow_mut();
        link.queue.truncate(kept);
        let (mut words, mut bytes) = (0, 0);
        for parcel in &link.queue {
            match &parcel.load {
                InFlightLoad::Control(range) => words += (range.end - range.start) as usize / 8,
                InFlightLoad::Data { range, late: false } => bytes += (range.end - range.start) as usize,
                InFlightLoad::Data { .. }
                | InFlightLoad::Word { .. }
                | InFlightLoad::EventCount
                | InFlightLoad::Moved => {}
            }
        }
        link.words.truncate(words);
        link.bytes.truncate(bytes);
    }

    /// Returns the due time of the next parcel from `owner`.
    pub(crate) fn next_due(&self, owner: Rank) -> Option<u64> {
        self.inbound[owner.index()].borrow().queue.front().map(|parcel| parcel.due)
    }

    /// Lands the due parcels from `from`; `gap` is the time between two steps of a torn post.
    pub(crate) fn land(&mut self, from: &SimTable, now: u64, gap: u64) -> Landed {
        let owner = from.me;
        let mut landed = Landed::default();
        let mut link = std::mem::take(&mut *self.inbound[owner.index()].borrow_mut());
        while let Some(parcel) = link.queue.front_mut() {
            if parcel.due > now {
                landed.next = Some(parcel.due);
                break;
            }
            let (step, steps, salt) = (parcel.step, parcel.steps, parcel.salt);
            let mine = |at: u64| steps == 1 || mix(salt ^ (at / LINE_BYTES)) % steps == step;
            let last = step + 1 == steps;
            // A late link lands faster, or it would never catch up.
            let gap = if now - parcel.due > BEHIND_NS { 0 } else { gap };
            match &parcel.load {
                InFlightLoad::Word { at, value } if *at < self.rows[owner.index()].control_bytes() => {
                    self.apply_control(owner, *at, *value);
                }
                InFlightLoad::Word { at, value } => self.rows[owner.index()].set(*at, *value),
                InFlightLoad::EventCount => landed.woken = true,
                InFlightLoad::Moved => self.moved.set(true),
                InFlightLoad::Control(range) => {
                    self.moved.set(true);
                    for (i, at) in range.clone().step_by(8).enumerate() {
                        if mine(at) && !parcel.dropped {
                            self.apply_control(owner, at, link.words[i]);
                            landed.woken = true;
                        }
                    }
                    if last {
                        link.words.drain(..(range.end - range.start) as usize / 8);
                    }
                }
                InFlightLoad::Data { range, late } => {
                    let mut at = range.start;
                    while at < range.end {
                        let end = range.end.min((at / LINE_BYTES + 1) * LINE_BYTES);
                        if mine(at) {
                            let target = self.rows[owner.index()].slice_mut(at, end - at);
                            if *late {
                                target.copy_from_slice(from.rows[owner.index()].slice(at, end - at));
                            } else {
                                let offset = (at - range.start) as usize;
                                for (i, byte) in target.iter_mut().enumerate() {
                                    *byte = link.bytes[offset + i];
                                }
                            }
                        }
                        at = end;
                    }
                    if last && !*late {
                        link.bytes.drain(..(range.end - range.start) as usize);
                    }
                    landed.woken = true;
                }
            }
            if last {
                link.queue.pop_front();
            } else {
                parcel.step += 1;
                parcel.due = now + gap;
            }
        }
        *self.inbound[owner.index()].borrow_mut() = link;
        landed
    }

    fn add_post(&mut self, peers: &[Rank], range: Range<u64>, quiet: bool) {
        self.access();
        let row = &self.rows[self.me.index()];
        let peers = bits(peers);
        let copied = if range.start < row.control_bytes() {
            let start = self.scratch_words.len();
            self.scratch_words.extend(range.clone().step_by(8).map(|at| row.word(at)));
            start
        } else {
            let start = self.scratch_bytes.len();
            if self.copy_data {
                self.scratch_bytes.extend_from_slice(row.slice(range.start, range.end - range.start));
            }
            start
        };
        self.actions.push(TableAction::Post { peers, range, copied, quiet });
        self.count.set(self.actions.len() as u64);
    }
}

impl Rows for SimTable {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.access();
        if member != self.me {
            self.arrive(member);
        }
        self.rows[member.index()].word(at)
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.rows[member.index()].slice(at, len)
    }

    type Frames<'a>
        = Inline<'a>
    where
        Self: 'a;

    fn frames(&self, member: Rank, ring: &Ring) -> Inline<'_> {
        Inline(Lookup::new(self, member, ring))
    }
}

/// The frames of a table in which objects are stored in their frames, too.
#[derive(Clone, Copy)]
pub(crate) struct Inline<'a>(Lookup<'a, SimTable>);

impl<'a> Frames<'a> for Inline<'a> {
    fn header(self, place: u64) -> [u64; 2] {
        self.0.header(place)
    }

    fn message(self, place: u64) -> Option<Found<'a>> {
        self.0.message(place)
    }

    fn object(self, place: u64) -> Option<Found<'a>> {
        self.0.name(place)
    }
}

impl Table for SimTable {
    fn store(&mut self, at: u64, value: u64) {
        self.access();
        // INV-14: an endless loop would fill memory before any other check noticed it.
        assert!(self.actions.len() < ACTIONS_MAX, "one poll of m{} made {ACTIONS_MAX} stores and posts", self.me);
        self.actions.push(TableAction::Store { at, value });
        self.count.set(self.actions.len() as u64);
        self.rows[self.me.index()].set(at, value);
    }

    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        self.add_post(peers, range, false);
    }

    fn post_quietly(&mut self, peers: &[Rank], range: Range<u64>) {
        self.add_post(peers, range, true);
    }

    fn wake(&mut self, peers: &[Rank]) {
        self.access();
        self.actions.push(TableAction::Wake { peers: bits(peers) });
        self.count.set(self.actions.len() as u64);
    }

    fn membership_moved(&mut self) -> bool {
        self.moved.take()
    }
}

#[cfg(test)]
mod tests;
