//! The frames between the members of a bulk group. Each begins with a head of seven words,
//! little-endian:
//!
//! ```text
//! word 0      kind (8 bits) | 0 (24 bits) | slot or rank (32 bits)
//! word 1, 2   what the kind says; of a block: its offset in the object, and its bytes
//! word 3..7   what the kind says; of blocks and counters: the sender's bytes, steps, ready, have
//! ```
//!
//! A block's head is followed by its bytes, and those by a word that says whether they are whole
//! ([`WHOLE`]). The head's counters hold from there on. If the sender gave a block up, because the
//! group was closed, its bytes are not the object's.
use super::error::BulkDown;
use spindle_core::Rank;
use spindle_core::rdmc::{Columns, Slot};

/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 8 * WORDS;
const WORDS: usize = 7;
/// Bytes of the word behind a block.
pub(super) const TAIL_BYTES: usize = 8;
/// The word behind a block whose bytes are those of the object.
pub(super) const WHOLE: [u8; TAIL_BYTES] = *b"is whole";
/// The word behind a block that was given up.
pub(super) const VOID: [u8; TAIL_BYTES] = *b"is void!";
/// The first value of a greeting: the frames are of this version.
const MAGIC: u64 = u64::from_le_bytes(*b"spbulk\x00\x01");

/// The first frame of a connection, by which both ends know that they mean the same group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// A digest of everything that the members have to agree on.
    pub digest: u64,
}

/// The head before the bytes of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHead {
    /// The slot of the object.
    pub slot: Slot,
    /// The offset of the block in the object, in bytes.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The sender's counters once the block is there.
    pub columns: Columns,
}

/// One head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BulkHead {
    Greeting(Greeting),
    Columns {
        slot: Slot,
        columns: Columns,
    },
    Block(BlockHead),
    Closed {
        dead: Rank,
    },
    Finished,
    /// On one machine: an object.
    Object {
        number: u64,
        bytes: u64,
        place: LentPlace,
    },
    /// On one machine: the sender has so many objects.
    Have {
        objects: u64,
    },
    /// On one machine: the sender no longer reads this object.
    Released {
        number: u64,
    },
    /// On one machine: this segment will not be named again.
    Forget {
        segment: u64,
    },
}

/// The place of an object that is lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LentPlace {
    /// Behind the head, in the same message.
    Inside,
    /// In a segment of so many bytes, whose descriptor is in the message.
    New { segment: u64, segment_bytes: u64 },
    /// In a segment whose descriptor was sent before.
    Known { segment: u64 },
}

const GREETING: u64 = 1;
const COLUMNS: u64 = 2;
const BLOCK: u64 = 3;
const CLOSED: u64 = 4;
const FINISHED: u64 = 5;
const OBJECT: u64 = 6;
const HAVE: u64 = 7;
const RELEASED: u64 = 8;
const FORGET: u64 = 9;

impl BulkHead {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let (kind, low, [first, second], Columns { bytes, steps, ready, have }) = match *self {
            BulkHead::Greeting(Greeting { from, to, digest }) => {
                (GREETING, from.0, [MAGIC, digest], Columns { bytes: to.0.into(), ..Columns::default() })
            }
            BulkHead::Columns { slot, columns } => (COLUMNS, slot.0, [0, 0], columns),
            BulkHead::Block(BlockHead { slot, at, bytes, columns }) => (BLOCK, slot.0, [at, bytes], columns),
            BulkHead::Closed { dead } => (CLOSED, dead.0, [0, 0], Columns::default()),
            BulkHead::Finished => (FINISHED, 0, [0, 0], Columns::default()),
            BulkHead::Object { number, bytes, place } => {
                let (low, segment, segment_bytes) = match place {
                    LentPlace::Known { segment } => (0, segment, 0),
                    LentPlace::Inside => (1, 0, 0),
                    LentPlace::New { segment, segment_bytes } => (2, segment, segment_bytes),
                };
                let columns = Columns { bytes: segment, steps: segment_bytes, ..Columns::default() };
                (OBJECT, low, [number, bytes], columns)
            }
            BulkHead::Have { objects } => (HAVE, 0, [objects, 0], Columns::default()),
            BulkHead::Released { number } => (RELEASED, 0, [number, 0], Columns::default()),
            BulkHead::Forget { segment } => (FORGET, 0, [segment, 0], Columns::default()),
        };
        let words = [kind | u64::from(low) << 32, first, second, bytes, steps, ready, have];
        let mut encoded = [0; HEAD_BYTES];
        for (bytes, word) in encoded.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        encoded
    }

    pub(super) fn decode(encoded: &[u8; HEAD_BYTES]) -> Result<BulkHead, BulkDown> {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(encoded.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [word, first, second, bytes, steps, ready, have] = words;
        let (low, columns) = ((word >> 32) as u32, Columns { bytes, steps, ready, have });
        let head = match word & 0xffff_ffff {
            GREETING if first == MAGIC && bytes <= u32::MAX.into() => {
                BulkHead::Greeting(Greeting { from: Rank(low), to: Rank(bytes as u32), digest: second })
            }
            COLUMNS => BulkHead::Columns { slot: Slot(low), columns },
            BLOCK => BulkHead::Block(BlockHead { slot: Slot(low), at: first, bytes: second, columns }),
            CLOSED => BulkHead::Closed { dead: Rank(low) },
            FINISHED => BulkHead::Finished,
            OBJECT => {
                let place = match low {
                    0 => LentPlace::Known { segment: bytes },
                    1 => LentPlace::Inside,
                    _ => LentPlace::New { segment: bytes, segment_bytes: steps },
                };
                BulkHead::Object { number: first, bytes: second, place }
            }
            HAVE => BulkHead::Have { objects: first },
            RELEASED => BulkHead::Released { number: first },
            FORGET => BulkHead::Forget { segment: first },
            _ => return Err(BulkDown::Garbage { word }),
        };
        // Unused words are free for later versions, and are 0 until then.
        if head.encode() == *encoded { Ok(head) } else { Err(BulkDown::Garbage { word }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_encoding_and_nonsense_is_refused() {
        let columns = Columns { bytes: 1, steps: u64::MAX, ready: 3, have: 4 };
        let heads = [
            BulkHead::Greeting(Greeting { from: Rank(7), to: Rank(u32::MAX), digest: 9 }),
            BulkHead::Columns { slot: Slot(3), columns },
            BulkHead::Block(BlockHead { slot: Slot(63), at: 1 << 40, bytes: 1 << 30, columns }),
            BulkHead::Closed { dead: Rank(5) },
            BulkHead::Finished,
            BulkHead::Object { number: 12, bytes: 13, place: LentPlace::Inside },
            BulkHead::Object { number: 12, bytes: 13, place: LentPlace::Known { segment: 4 } },
            BulkHead::Object { number: 12, bytes: 13, place: LentPlace::New { segment: 4, segment_bytes: 17 } },
            BulkHead::Have { objects: 14 },
            BulkHead::Released { number: 15 },
            BulkHead::Forget { segment: 16 },
        ];
        for head in heads {
            let encoded = head.encode();
            assert_eq!(BulkHead::decode(&encoded).unwrap(), head);
            let other = |at: usize| {
                let mut other = encoded;
                other[at] ^= 0x80;
                BulkHead::decode(&other)
            };
            // The kind, and the bytes between it and the slot.
            for at in 0..4 {
                assert!(matches!(other(at), Err(BulkDown::Garbage { .. })), "{head:?} {at}");
            }
        }
        assert!(BulkHead::decode(&[0; HEAD_BYTES]).is_err());
        let mut finished = BulkHead::Finished.encode();
        finished[HEAD_BYTES - 1] = 1;
        assert!(BulkHead::decode(&finished).is_err());
    }
}
