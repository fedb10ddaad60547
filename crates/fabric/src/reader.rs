//! Read access to the rows of a view, wherever their memory is, one span of this process's memory
//! each; and to the objects that messages name.
use crate::bulk::Object;
use crate::object_table::FrameObjects;
use crate::region::{CopyRegion, OwnRegion, PeerRegion, RingSpan, Span, VacantRegion};
use spindle_core::control::ObjectName;
use spindle_core::{Found, Frames, Lookup, Rank, Ring, Rows};
use std::sync::Arc;

/// All rows of a view, for reading. Clones read the same memory and keep it alive.
#[derive(Clone, Debug)]
pub struct Reader {
    spans: Box<[Span]>,
    held: Arc<[RowMemory]>,
    object_table: Arc<FrameObjects>,
}

/// This member's own row, for reading: it keeps no other row in memory.
#[derive(Clone, Debug)]
pub struct OwnRows {
    pub(crate) me: Rank,
    pub(crate) row: Arc<OwnRegion>,
}

/// One ring of a [`Reader`]'s rows, looked up.
#[derive(Clone, Copy, Debug)]
pub struct ReaderFrames<'a> {
    span: RingSpan,
    rows: &'a Reader,
}

/// The memory that contains one row.
#[derive(Debug)]
pub(crate) enum RowMemory {
    Own(Arc<OwnRegion>),
    Peer(Arc<PeerRegion>),
    Copy(Arc<CopyRegion>),
    /// A row that may come later, and takes this range over then.
    Vacant(VacantRegion),
}

impl RowMemory {
    /// Returns true if its owner writes this memory.
    fn is_shared(&self) -> bool {
        match self {
            RowMemory::Own(_) | RowMemory::Peer(_) => true,
            RowMemory::Copy(_) => false,
            RowMemory::Vacant(row) => row.is_mapped(),
        }
    }

    fn span(&self) -> Span {
        match self {
            RowMemory::Own(row) => row.span(),
            RowMemory::Peer(row) => row.span(),
            RowMemory::Copy(row) => row.span(),
            RowMemory::Vacant(row) => row.span(),
        }
    }
}

impl Reader {
    /// Creates a reader of these rows, by rank.
    pub(crate) fn of(rows: Vec<RowMemory>) -> Reader {
        Reader { spans: rows.iter().map(RowMemory::span).collect(), held: rows.into(), object_table: Arc::default() }
    }

    /// Stores an object that a message in this ring of `member` names, or is going to name, by this
    /// number.
    ///
    /// # Panics
    /// If `member` is not of this view, or the ring not inside its row.
    pub fn put_object(&self, member: Rank, ring: &Ring, number: u64, object: Object) {
        self.object_table.put(self.frames(member, ring).span.address(), number, object);
    }

    /// Returns true if there are objects of messages that are not known to be delivered.
    #[inline]
    pub fn has_objects(&self) -> bool {
        !self.object_table.is_empty()
    }

    /// Returns the object of this number that messages in this ring of `member` name, if it is
    /// there.
    ///
    /// # Panics
    /// If `member` is not of this view, or the ring not inside its row.
    pub fn object(&self, member: Rank, ring: &Ring, number: u64) -> Option<Object> {
        self.object_table.clone_of(self.frames(member, ring).span.address(), number)
    }

    /// Returns all objects that messages in this ring of `member` name, with their numbers.
    ///
    /// # Panics
    /// If `member` is not of this view, or the ring not inside its row.
    pub fn objects(&self, member: Rank, ring: &Ring) -> Vec<(u64, Object)> {
        self.object_table.clones_of(self.frames(member, ring).span.address())
    }

    /// Forgets one object, whose message every member has delivered, including this one
    /// (INV-FRAME).
    ///
    /// # Panics
    /// If `member` is not of this view, or the ring not inside its row.
    pub fn forget_object(&self, member: Rank, ring: &Ring, number: u64) -> Option<Object> {
        self.object_table.remove(self.frames(member, ring).span.address(), number)
    }

    /// Returns the number of objects that messages in this ring of `member` name.
    ///
    /// # Panics
    /// If `member` is not of this view, or the ring not inside its row.
    pub fn count_objects(&self, member: Rank, ring: &Ring) -> usize {
        self.object_table.count_of(self.frames(member, ring).span.address())
    }

    /// Forgets the objects of messages in this ring of `member` whose rounds are below `rounds`, or
    /// all of them if no member delivers there. This member has delivered those messages, so it
    /// reads none of them any more (INV-FRAME). Returns the objects, and their numbers.
    ///
    /// # Panics
    /// If `member` is not of this view, or the ring not inside its row.
    pub fn forget_objects(&self, member: Rank, ring: &Ring, rounds: Option<u64>) -> Vec<(u64, Object)> {
        self.object_table.forget(self.frames(member, ring).span.address(), rounds)
    }

    /// Returns true if all rows are read in place, in memory that their owners share with this process.
    pub fn is_shared(&self) -> bool {
        self.held.iter().all(RowMemory::is_shared)
    }

    /// Returns the memory of the row of `member`.
    pub(crate) fn held(&self, member: Rank) -> &RowMemory {
        &self.held[member.index()]
    }

    /// Returns the number of members of the view.
    pub(crate) fn members(&self) -> u32 {
        self.spans.len() as u32
    }
}

impl Rows for OwnRows {
    /// # Panics
    /// As [`Rows::load`], and if it is another member's row.
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.of(member).load(at)
    }

    /// # Panics
    /// As [`Rows::bytes`], and if it is another member's row.
    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.of(member).announced(&(at..at.saturating_add(len)))
    }

    type Frames<'a> = Lookup<'a, OwnRows>;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, OwnRows> {
        Lookup::new(self, member, ring)
    }
}

impl OwnRows {
    fn of(&self, member: Rank) -> &OwnRegion {
        assert_eq!(member, self.me, "another member's row");
        &self.row
    }
}

impl Rows for Reader {
    #[inline]
    fn load(&self, member: Rank, at: u64) -> u64 {
        // SAFETY: `held` keeps every span's region mapped.
        unsafe { self.spans[member.index()].load(at) }
    }

    #[inline]
    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        // SAFETY: `held` keeps every span's region mapped; by the contract of `Rows`, the owner
        // does not write the range.
        unsafe { self.spans[member.index()].bytes(at, len) }
    }

    type Frames<'a> = ReaderFrames<'a>;

    #[inline]
    fn frames(&self, member: Rank, ring: &Ring) -> ReaderFrames<'_> {
        ReaderFrames { span: self.spans[member.index()].ring(ring), rows: self }
    }
}

impl<'a> Frames<'a> for ReaderFrames<'a> {
    #[inline]
    fn header(self, place: u64) -> [u64; 2] {
        // SAFETY: the borrowed reader keeps the ring's region mapped.
        unsafe { self.span.header(place) }
    }

    #[inline]
    fn prefetch(self, place: u64) {
        self.span.prefetch(place);
    }

    #[inline]
    fn message(self, place: u64) -> Option<Found<'a>> {
        // SAFETY: the borrowed reader keeps the ring's region mapped for all of 'a; by the contract
        // of `Frames`, the owner does not write the frame.
        unsafe { self.span.message(place) }
    }

    #[cold]
    #[inline(never)]
    fn object(self, place: u64) -> Option<Found<'a>> {
        // SAFETY: as in `message`.
        let Found { round, span, payload } = unsafe { self.span.object(place) }?;
        let object = self.rows.object_table.find(self.span.address(), ObjectName::decode(payload)?, round)?;
        // SAFETY: the object does not move or change, and stays in the object table, until this
        // member has delivered the message (`forget_objects`); by the contract of `Frames` that is
        // not before the payload's life ends.
        Some(Found { round, span, payload: unsafe { &*object } })
    }
}
