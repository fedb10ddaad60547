//! Positions of frames in a ring: pure arithmetic, no memory.
//!
//! A ring has `capacity` bytes (a power of two), followed by room for one frame of the largest
//! size. A frame starts at any offset below `capacity` and may extend past it; the next frame then
//! starts the next lap. So a frame is always one contiguous slice, no padding frame exists, and
//! writer and readers find the next position by the same addition.
//!
//! A *position* counts bytes since the view began and never falls. Its low bits are the offset in
//! the ring. Space below position `p` is free when every member has delivered every frame that
//! starts below `p` (INV-FRAME).
//!
//! The capacity is divided into [`SECTORS`] *sectors*. Frames are announced, and their space is
//! freed, at most one sector at a time. So a ring that was filled at once is emptied and filled
//! again in parts, at the same time.

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: u64 = 16;
/// Bytes of the time at which a message of a logged subgroup was sent, at the end of its frame.
pub const TIME_BYTES: u64 = 8;
/// Alignment of frames in bytes, and the unit of their spans. So payloads are 16-byte aligned.
pub const GRANULE_BYTES: u64 = 16;

/// Sectors of a ring.
pub const SECTORS: usize = 8;

/// Bytes of ring space for a frame with `payload` bytes of payload.
pub const fn frame_bytes(payload: u64) -> u64 {
    (HEADER_BYTES + payload + GRANULE_BYTES - 1) & !(GRANULE_BYTES - 1)
}

/// Bit in a header's first word: the frame is a void.
pub const VOID: u64 = 1 << 63;
/// Bit in a header's first word: the frame names an object.
pub const OBJECT: u64 = 1 << 62;

/// The offset of one sender's ring in its row, and its dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ring {
    /// Offset of the ring in its owner's row.
    pub at: u64,
    /// Bytes in which frames may start; a power of two.
    pub capacity: u64,
    /// Bytes of a sector.
    pub sector_bytes: u64,
    /// The largest payload of a new message.
    pub message_bytes_max: u64,
    /// Bytes of a frame with the largest payload, which may be that of a message sent again.
    pub frame_bytes_max: u64,
}

impl Ring {
    /// Returns a ring at `at` that has room for at least `window` frames of `message_bytes_max`.
    pub fn new(at: u64, window: u64, message_bytes_max: u64) -> Ring {
        Ring::with_leftovers(at, window, message_bytes_max, 0, 0)
    }

    /// As [`new`](Self::new), with `trailer_bytes` at the end of each frame, and room for frames of
    /// `leftover_bytes_max`, one at a time. Messages that are sent again may be longer than new
    /// ones.
    pub fn with_leftovers(
        at: u64,
        window: u64,
        message_bytes_max: u64,
        leftover_bytes_max: u64,
        trailer_bytes: u64,
    ) -> Ring {
        let frame_bytes_max = frame_bytes(message_bytes_max.max(leftover_bytes_max) + trailer_bytes);
        let bytes = (window * frame_bytes(message_bytes_max + trailer_bytes)).max(frame_bytes_max);
        let capacity = bytes.next_power_of_two().max(SECTORS as u64 * GRANULE_BYTES);
        let sector_bytes = capacity / SECTORS as u64;
        Ring { at, capacity, sector_bytes, message_bytes_max, frame_bytes_max }
    }

    /// Offset in the row of the word with the time of a message, in a frame of `span` bytes at
    /// `position` of a ring with [trailers](Self::with_leftovers).
    #[inline]
    pub fn time_offset(&self, position: u64, span: u64) -> u64 {
        self.offset(position) + span - TIME_BYTES
    }

    /// Bytes of memory that the ring occupies, including the overhang after `capacity`.
    pub fn size(&self) -> u64 {
        self.capacity + self.frame_bytes_max.next_multiple_of(64)
    }

    /// Offset in the row of the frame at `position`.
    #[inline]
    pub fn offset(&self, position: u64) -> u64 {
        self.at + (position & (self.capacity - 1))
    }

    /// The position after a frame of `span` bytes at `position`.
    #[inline]
    pub fn after(&self, position: u64, span: u64) -> u64 {
        if self.ends_lap(position, span) { (position | (self.capacity - 1)) + 1 } else { position + span }
    }

    /// The sector in which a frame at `position` starts.
    #[inline]
    pub fn sector(&self, position: u64) -> usize {
        ((position & (self.capacity - 1)) / self.sector_bytes) as usize
    }

    /// Whether a frame of `span` bytes at `position` is the last that starts in its sector.
    #[inline]
    pub fn ends_sector(&self, position: u64, span: u64) -> bool {
        // If it is, the two positions differ in a bit above those of the offset in the sector.
        position ^ (position + span) >= self.sector_bytes
    }

    /// Whether a frame of `span` bytes at `position` is the last of its lap.
    #[inline]
    pub fn ends_lap(&self, position: u64, span: u64) -> bool {
        (position & (self.capacity - 1)) + span >= self.capacity
    }
}

/// Prefetches the cache lines of a ring before they are needed, a block at a time. The position of
/// a frame follows from the lengths of the frames before it, so the processor can't prefetch by
/// itself. Small frames from a distant core would wait for each line.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookAhead {
    /// The position after the last one that needs no more work.
    at: u64,
}

impl LookAhead {
    /// The distance to prefetch ahead: as many lines as arrive in the time of one from a distant
    /// core.
    const BYTES: u64 = 2048;
    /// Bytes of a block: a few frames, if they are small.
    pub const BLOCK_BYTES: u64 = 512;

    /// Returns a look-ahead that begins at `place`.
    #[inline]
    pub fn from(place: u64) -> LookAhead {
        LookAhead { at: place }
    }

    /// Notes that the next frame is at `place`. Calls `prefetch` with the positions of blocks ahead
    /// of it, as far as they end below `stop`.
    #[inline(always)]
    pub fn pass(&mut self, place: u64, stop: u64, prefetch: impl Fn(u64)) {
        if place < self.at {
            return;
        }
        // Two blocks at most: inside long frames the processor prefetches by itself.
        self.at = self.at.max(place.saturating_sub(Self::BLOCK_BYTES));
        while place >= self.at {
            if self.at + Self::BYTES + Self::BLOCK_BYTES > stop {
                self.at = place + Self::BLOCK_BYTES;
                return;
            }
            prefetch(self.at + Self::BYTES);
            self.at += Self::BLOCK_BYTES;
        }
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message.
    Message,
    /// A claim that was given up: it has space and a round, but no message.
    Void,
    /// A message that is stored outside the ring: the payload says where each member finds it. It
    /// is announced only after all members have it ([`Claims::set_gate`](crate::Claims::set_gate)).
    Object,
}

/// The first word of a frame's header: span, length and kind. The second word is the frame's round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of the frame.
    pub kind: Kind,
    /// Bytes of the ring that the frame occupies; a multiple of [`GRANULE_BYTES`].
    pub span: u64,
    /// Bytes of payload.
    pub len: u64,
}

impl Header {
    /// Encodes the header as a word: length in the low 32 bits, span in granules above, and
    /// [`VOID`] or [`OBJECT`].
    #[inline]
    pub fn encode(self) -> u64 {
        let kind = match self.kind {
            Kind::Message => 0,
            Kind::Void => VOID,
            Kind::Object => OBJECT,
        };
        kind | (self.span / GRANULE_BYTES) << 32 | self.len
    }

    /// Decodes a header word that a peer wrote. Returns `None` if no frame of this ring can have
    /// it. The length may exceed the limit of messages by the rounding of the largest frame.
    #[inline]
    pub fn decode(word: u64, ring: &Ring) -> Option<Header> {
        let kind = match word & (VOID | OBJECT) {
            0 => return Header::of_message(word, ring.frame_bytes_max),
            VOID => Kind::Void,
            OBJECT => Kind::Object,
            _ => return None,
        };
        let header = Header::of_message(word & !(VOID | OBJECT), ring.frame_bytes_max)?;
        Some(Header { kind, ..header })
    }

    /// As [`decode`](Self::decode), but only for messages stored in their frame. The result has
    /// `len + HEADER_BYTES <= span <= frame_bytes_max`.
    #[inline]
    pub fn of_message(word: u64, frame_bytes_max: u64) -> Option<Header> {
        // A bit of a void or an object makes a span that no frame has.
        let span = (word >> 28) & !(GRANULE_BYTES - 1);
        let len = word & 0xffff_ffff;
        let fits = (span <= frame_bytes_max) & (len + HEADER_BYTES <= span);
        fits.then_some(Header { kind: Kind::Message, span, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_never_leaves_the_ring_and_the_next_one_starts_inside_it() {
        let ring = Ring::new(128, 3, 100);
        let mut position = 0;
        for i in 0..10_000u64 {
            let span = frame_bytes(i * 37 % 101);
            let offset = ring.offset(position);
            assert!(offset >= 128 && offset < 128 + ring.capacity);
            assert!(offset + span <= 128 + ring.size());
            let next = ring.after(position, span);
            assert!(next > position && next <= position + span);
            position = next;
        }
    }

    #[test]
    fn headers_survive_encoding_and_nonsense_is_refused() {
        let ring = Ring::new(0, 4, 1000);
        for len in [0, 1, 15, 16, 17, 999, 1000] {
            for kind in [Kind::Message, Kind::Void, Kind::Object] {
                let header = Header { kind, span: frame_bytes(len), len };
                assert_eq!(Header::decode(header.encode(), &ring), Some(header));
                let plain = Header::of_message(header.encode(), ring.frame_bytes_max);
                assert_eq!(plain.is_some(), kind == Kind::Message);
                assert_eq!(Header::decode(header.encode() | VOID | OBJECT, &ring), None);
            }
        }
        assert_eq!(Header::decode(0, &ring), None);
        assert_eq!(Header::decode(u64::MAX, &ring), None);
        let too_long = Header { kind: Kind::Message, span: frame_bytes(1001), len: 1001 };
        assert_eq!(Header::decode(too_long.encode(), &ring).is_some(), frame_bytes(1001) == frame_bytes(1000));
        let overrun = Header { kind: Kind::Message, span: 32, len: 17 };
        assert_eq!(Header::decode(overrun.encode(), &ring), None);
    }
}
