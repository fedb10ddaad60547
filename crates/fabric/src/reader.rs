//! The rows of a view to read, wherever they stand: one span of this process's memory each.
use crate::region::{CopyRegion, OwnRegion, PeerRegion, RingSpan, Span};
use spindle_core::{Found, Frames, Rank, Ring, Rows};
use std::marker::PhantomData;
use std::sync::Arc;

/// All rows of a view, to read. Clones read the same memory and keep it alive.
#[derive(Clone, Debug)]
pub struct Reader {
    spans: Box<[Span]>,
    _held: Arc<[Held]>,
}

/// One ring of a [`Reader`]'s rows, looked up.
#[derive(Clone, Copy, Debug)]
pub struct ReaderFrames<'a> {
    span: RingSpan,
    _rows: PhantomData<&'a Reader>,
}

/// What one row stands in.
#[derive(Debug)]
pub(crate) enum Held {
    Own(Arc<OwnRegion>),
    Peer(Arc<PeerRegion>),
    Copy(Arc<CopyRegion>),
}

impl Held {
    fn span(&self) -> Span {
        match self {
            Held::Own(row) => row.span(),
            Held::Peer(row) => row.span(),
            Held::Copy(row) => row.span(),
        }
    }
}

impl Reader {
    /// A reader of these rows, by rank.
    pub(crate) fn of(rows: Vec<Held>) -> Reader {
        Reader { spans: rows.iter().map(Held::span).collect(), _held: rows.into() }
    }

    /// Members of the view.
    pub(crate) fn members(&self) -> u32 {
        self.spans.len() as u32
    }
}

impl Rows for Reader {
    #[inline]
    fn load(&self, member: Rank, at: u64) -> u64 {
        // SAFETY: `_held` keeps every span's region mapped.
        unsafe { self.spans[member.index()].load(at) }
    }

    #[inline]
    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        // SAFETY: `_held` keeps every span's region mapped; by the contract of `Rows`, the owner does not write the range.
        unsafe { self.spans[member.index()].bytes(at, len) }
    }

    type Frames<'a> = ReaderFrames<'a>;

    #[inline]
    fn frames(&self, member: Rank, ring: &Ring) -> ReaderFrames<'_> {
        ReaderFrames { span: self.spans[member.index()].ring(ring), _rows: PhantomData }
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
        // SAFETY: the borrowed reader keeps the ring's region mapped for all of 'a; by the contract of `Frames`, the owner does
        // not write the frame.
        unsafe { self.span.message(place) }
    }
}
