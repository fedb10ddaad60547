//! The rows of all processes in all views, and a process's table over them.
//!
//! A row is stored once, and processes of its owner's host read it there. Each process of another
//! host has a copy, which streams fill.
use super::objects::SimObjectTable;
use crate::table::bits;
use spindle_core::control::ObjectName;
use spindle_core::{Found, Frames, Lookup, Rank, Ring, Rows, Table, Trace};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a control block. They can be read after the view is over.
pub(super) type RowWords = Arc<[AtomicU64]>;

/// A row, or a copy of one.
#[derive(Debug)]
pub(super) struct SimRow {
    control: RowWords,
    rings: Box<[u8]>,
    /// The number of posts that have been applied here.
    applied: u64,
    /// True if peers of its host have marked that words of their membership blocks have changed.
    marked: bool,
}

impl SimRow {
    fn control_bytes(&self) -> u64 {
        self.control.len() as u64 * 8
    }

    pub(super) fn word(&self, at: u64) -> u64 {
        if at < self.control_bytes() {
            return self.control[at as usize / 8].load(Ordering::Relaxed);
        }
        u64::from_le_bytes(self.bytes(at, 8).try_into().expect("8 bytes"))
    }

    pub(super) fn set(&mut self, at: u64, value: u64) {
        if at < self.control_bytes() {
            self.control[at as usize / 8].store(value, Ordering::Relaxed);
        } else {
            self.fill(at, &value.to_le_bytes());
        }
    }

    fn bytes(&self, at: u64, len: u64) -> &[u8] {
        let start = at.checked_sub(self.control_bytes()).expect("only rings are read as bytes") as usize;
        &self.rings[start..start + len as usize]
    }

    /// Writes ring bytes.
    pub(super) fn fill(&mut self, at: u64, bytes: &[u8]) {
        let start = (at - self.control_bytes()) as usize;
        self.rings[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the content of a post of this range.
    fn copy(&self, range: &Range<u64>) -> PostedRange {
        let control = self.control_bytes();
        let words = range.start.min(control)..range.end.min(control);
        let frames = range.start.max(control)..range.end.max(control);
        let bytes =
            if frames.is_empty() { Rc::default() } else { self.bytes(frames.start, frames.end - frames.start).into() };
        PostedRange {
            words_at: words.start,
            words: words.step_by(8).map(|at| self.word(at)).collect(),
            bytes_at: frames.start,
            bytes,
        }
    }

    fn apply(&mut self, posted: &PostedRange) {
        // Frames are written before the words that announce them.
        if !posted.bytes.is_empty() {
            self.fill(posted.bytes_at, &posted.bytes);
        }
        for (at, word) in (posted.words_at..).step_by(8).zip(posted.words.iter()) {
            self.set(at, *word);
        }
        self.applied += 1;
    }

    pub(super) fn mark(&mut self) {
        self.marked = true;
    }

    fn bytes_of_all(&self) -> u64 {
        self.control_bytes() + self.rings.len() as u64
    }
}

/// The content of a range of a row.
#[derive(Clone, Debug)]
pub(super) struct PostedRange {
    words_at: u64,
    words: Rc<[u64]>,
    bytes_at: u64,
    bytes: Rc<[u8]>,
}

/// All rows and copies, by number.
#[derive(Debug, Default)]
pub(super) struct SimRows {
    rows: Vec<SimRow>,
}

impl SimRows {
    pub(super) fn add(&mut self, size: u64, control: u64) -> usize {
        self.rows.push(SimRow {
            control: (0..control / 8).map(|_| AtomicU64::new(0)).collect(),
            rings: vec![0; (size - control) as usize].into(),
            applied: 0,
            marked: false,
        });
        self.rows.len() - 1
    }

    pub(super) fn row(&self, number: usize) -> &SimRow {
        &self.rows[number]
    }

    pub(super) fn row_mut(&mut self, number: usize) -> &mut SimRow {
        &mut self.rows[number]
    }

    pub(super) fn words(&self, number: usize) -> RowWords {
        Arc::clone(&self.rows[number].control)
    }

    /// Returns the content of a whole row.
    pub(super) fn snapshot(&self, number: usize) -> PostedRange {
        let row = &self.rows[number];
        row.copy(&(0..row.bytes_of_all()))
    }

    pub(super) fn apply(&mut self, number: usize, posted: &PostedRange) {
        self.rows[number].apply(posted);
    }
}

/// A post of a poll.
#[derive(Clone, Debug)]
pub(super) struct RowPost {
    /// A bit mask of the peers.
    pub(super) peers: u64,
    /// `None` if no peer is on another host.
    pub(super) content: Option<PostedRange>,
    /// True if the post wakes no peer.
    pub(super) quiet: bool,
}

/// A process's table in one view. A member whose row has not arrived has a row of zeros.
#[derive(Clone, Debug)]
pub(super) struct RowPlaces {
    pub(super) me: Rank,
    pub(super) rows: Vec<Option<usize>>,
    /// A bit mask of the members that have a stream, or had one.
    pub(super) far: u64,
    /// A bit mask of the members that lack posts of earlier polls, as far as that matters.
    pub(super) unheard: u64,
    /// The size of my membership block in bytes.
    pub(super) membership: u64,
    /// The number of posts of other hosts when the engine last asked whether words have changed.
    pub(super) seen: Cell<u64>,
}

/// A process's table while its engine is polled.
pub(super) struct PolledTable<'a> {
    pub(super) store: &'a mut SimRows,
    pub(super) places: &'a RowPlaces,
    pub(super) posts: &'a mut Vec<RowPost>,
    /// The object table of the view, from which messages are delivered.
    pub(super) object_table: Option<&'a SimObjectTable>,
}

impl Rows for PolledTable<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.places.rows[member.index()].map_or(0, |row| self.store.row(row).word(at))
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        match self.places.rows[member.index()] {
            Some(row) => self.store.row(row).bytes(at, len),
            None => {
                assert_eq!(len, 0, "a message of a row of zeros");
                &[]
            }
        }
    }

    type Frames<'b>
        = WithObjects<'b>
    where
        Self: 'b;

    fn frames(&self, member: Rank, ring: &Ring) -> WithObjects<'_> {
        WithObjects {
            frames: Lookup::new(self, member, ring),
            ring: (member, ring.at),
            object_table: self.object_table,
        }
    }
}

/// The frames of a ring, whose objects are in an object table.
#[derive(Clone, Copy)]
pub(super) struct WithObjects<'b> {
    frames: Lookup<'b, PolledTable<'b>>,
    ring: (Rank, u64),
    object_table: Option<&'b SimObjectTable>,
}

impl<'b> Frames<'b> for WithObjects<'b> {
    fn header(self, place: u64) -> [u64; 2] {
        self.frames.header(place)
    }

    fn message(self, place: u64) -> Option<Found<'b>> {
        self.frames.message(place)
    }

    fn object(self, place: u64) -> Option<Found<'b>> {
        let found = self.frames.name(place)?;
        let payload = self.object_table?.find(self.ring, ObjectName::decode(found.payload)?, found.round)?;
        Some(Found { payload, ..found })
    }
}

impl PolledTable<'_> {
    fn mine(&self) -> usize {
        self.places.rows[self.places.me.index()].expect("a member has its own row")
    }

    /// Returns a count of the data that has arrived from other hosts.
    fn come(&self) -> u64 {
        let far = (0..).zip(&self.places.rows).filter(|(rank, _)| self.places.far >> rank & 1 == 1);
        far.map(|(_, row)| row.map_or(0, |row| 1 + self.store.row(row).applied)).sum()
    }

    /// Marks at peers of my host that words of my membership block have changed.
    fn mark(&mut self, peers: &[Rank]) {
        for peer in peers.iter().filter(|peer| **peer != self.places.me && self.places.far >> peer.0 & 1 == 0) {
            if let Some(row) = self.places.rows[peer.index()] {
                self.store.row_mut(row).mark();
            }
        }
    }

    fn add(&mut self, peers: &[Rank], range: &Range<u64>, quiet: bool) {
        let peers = bits(peers);
        let content = (peers & self.places.far != 0).then(|| self.store.row(self.mine()).copy(range));
        self.posts.push(RowPost { peers, content, quiet });
    }
}

impl Table for PolledTable<'_> {
    fn store(&mut self, at: u64, value: u64) {
        let mine = self.mine();
        self.store.row_mut(mine).set(at, value);
    }

    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        if range.start < self.places.membership {
            self.mark(peers);
        }
        self.add(peers, &range, false);
    }

    fn post_quietly(&mut self, peers: &[Rank], range: Range<u64>) {
        self.add(peers, &range, true);
    }

    fn wake(&mut self, peers: &[Rank]) {
        self.mark(peers);
        self.posts.push(RowPost { peers: bits(peers), content: None, quiet: false });
    }

    fn posts_cost(&self) -> bool {
        self.places.far != 0
    }

    fn is_heard(&self, peer: Rank) -> bool {
        let is_posted = |post: &RowPost| post.content.is_some() && post.peers & self.places.far >> peer.0 & 1 == 1;
        self.places.unheard >> peer.0 & 1 == 0 && !self.posts.iter().any(is_posted)
    }

    fn membership_moved(&mut self) -> bool {
        let come = self.come();
        let mine = self.mine();
        let is_marked = std::mem::take(&mut self.store.row_mut(mine).marked);
        is_marked | (self.places.seen.replace(come) != come)
    }

    fn trace(&self, member: Rank) -> Trace {
        match self.places.rows[member.index()] {
            Some(_) if self.places.far >> member.0 & 1 == 0 => Trace::Stored,
            // A missing row may arrive through memory or over a stream.
            _ => Trace::Arrived(self.come()),
        }
    }
}
