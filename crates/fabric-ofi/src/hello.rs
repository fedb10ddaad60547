//! The bytes that peers exchange: a [`Hello`] with the call and one with the answer, and the
//! [`MessageHead`] of each message.
//!
//! ```text
//! hello = magic (32 bits) rank (16) lines of its control block (16) | incarnation (128) | view (64) |
//!         words of my copy of the reader's row (32) 0 (32) | address of that copy's rings (64) | key (64)         56 - 4 bytes
//! head  = offset / 8 (32 bits) length / 8 (32) | messages taken in (64) | kind (8) bytes written so far (56)      24 bytes
//! ```
//!
//! The first message of each side states, for each ring of the reader's row, the `PUBLISHED` that
//! its writer has applied. A connection that continues in the next view carries two more messages.
//! The first has the view's number and comes behind all posts of the old view (a *turn*). Behind it
//! comes a hello for the new view.
//!
//! All is little-endian. A hello has to fit into the data of InfiniBand's connection manager.
use spindle_core::{Rank, RowLayout, ViewId};
use spindle_fabric::tcp::Down;
use std::fmt;

/// Bytes of a hello.
pub(crate) const HELLO_BYTES: usize = 52;
/// Bytes of a hello as the body of a message, which has whole words.
pub(crate) const HELLO_MESSAGE_BYTES: u64 = (HELLO_BYTES as u64).next_multiple_of(8);
/// Bytes of the body of a turn.
pub(crate) const TURN_BYTES: u64 = 8;
/// The first bytes of every hello; the last of them is the version.
const MAGIC: [u8; 4] = *b"SpO\x03";
/// Bytes of the head of a message.
pub(crate) const HEAD_BYTES: u64 = 24;

/// The view and the group that a connection is for. Both sides must mean the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPurpose {
    /// The incarnation of the group.
    pub incarnation: u128,
    /// The view.
    pub view: ViewId,
}

/// The identity of a side, and the memory that the other side may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OfiHello {
    pub(crate) purpose: LinkPurpose,
    pub(crate) from: Rank,
    /// The length of the control block in the row of the sender of this hello, in the sender's
    /// view.
    pub(crate) control: u64,
    /// The length of the reader's row.
    pub(crate) row: u64,
    pub(crate) target: RingTarget,
}

/// The location of a peer's copy of my rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingTarget {
    pub(crate) address: u64,
    pub(crate) key: u64,
}

/// The reason why a hello is not that of the expected peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloMismatch {
    /// The bytes are not a hello, or one of another version.
    #[error("{bytes} bytes that are no greeting of this version of Spindle")]
    NoHello {
        /// The number of bytes.
        bytes: usize,
    },
    /// It is for another group, or another view.
    #[error("it means view {} of incarnation {:x}, not view {} of incarnation {:x}", got.view.0, got.incarnation, expected.view.0, expected.incarnation)]
    Purpose {
        /// The purpose of this side.
        expected: LinkPurpose,
        /// The purpose in the hello.
        got: LinkPurpose,
    },
    /// It is from a member that has no reason to call, or not from the member that was called.
    #[error("it is from rank {got}, who {}", expected.map_or("has no reason to call".to_string(), |rank| format!("is not rank {rank}")))]
    From {
        /// Rank of the member that was called.
        expected: Option<Rank>,
        /// Rank in the hello.
        got: Rank,
    },
    /// Its rows have other lengths.
    #[error("its rows have other lengths than this view's: it has another version")]
    Lengths,
}

impl OfiHello {
    /// Creates the hello of `me` for a peer with the row `theirs`.
    pub(crate) fn new(
        purpose: LinkPurpose,
        me: Rank,
        mine: &RowLayout,
        theirs: &RowLayout,
        target: RingTarget,
    ) -> OfiHello {
        OfiHello { purpose, from: me, control: mine.control, row: theirs.size, target }
    }

    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&(self.from.0 as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&lines(self.control).to_le_bytes());
        bytes[8..24].copy_from_slice(&self.purpose.incarnation.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.purpose.view.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&words(self.row).to_le_bytes());
        bytes[36..44].copy_from_slice(&self.target.address.to_le_bytes());
        bytes[44..].copy_from_slice(&self.target.key.to_le_bytes());
        bytes
    }

    /// Encodes it as the body of a message.
    pub(crate) fn message(&self) -> [u8; HELLO_MESSAGE_BYTES as usize] {
        let mut body = [0; HELLO_MESSAGE_BYTES as usize];
        body[..HELLO_BYTES].copy_from_slice(&self.encode());
        body
    }

    /// Returns the view that these bytes are for, if they are a hello.
    pub(crate) fn purpose(data: &[u8]) -> Option<LinkPurpose> {
        let bytes = data.first_chunk::<HELLO_BYTES>().filter(|bytes| bytes[..4] == MAGIC)?;
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("it is inside"));
        let incarnation = u128::from(word(8)) | (u128::from(word(16)) << 64);
        Some(LinkPurpose { incarnation, view: ViewId(word(24)) })
    }

    /// Returns the memory that the peer wants written, if its hello equals `self` apart from the
    /// target. Returns `None` if these bytes contain anything else.
    pub(crate) fn target_of(self, data: &[u8]) -> Option<RingTarget> {
        let bytes = data.first_chunk::<HELLO_BYTES>()?;
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("it is inside"));
        let target = RingTarget { address: word(36), key: word(44) };
        (OfiHello { target, ..self }.encode() == *bytes).then_some(target)
    }

    /// Returns the sender of this hello, if it is for `purpose`, and the memory that this peer
    /// wants written. Providers may add bytes at the end.
    pub(crate) fn read(
        data: &[u8],
        purpose: LinkPurpose,
        me: Rank,
        rows: &[RowLayout],
    ) -> Result<(Rank, RingTarget), HelloMismatch> {
        let none = HelloMismatch::NoHello { bytes: data.len() };
        let bytes = data.first_chunk::<HELLO_BYTES>().ok_or(none)?;
        if bytes[..4] != MAGIC {
            return Err(none);
        }
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("it is inside"));
        let half = |at: usize| u16::from_le_bytes(*bytes[at..].first_chunk().expect("it is inside"));
        let got = OfiHello::purpose(data).ok_or(none)?;
        if got != purpose {
            return Err(HelloMismatch::Purpose { expected: purpose, got });
        }
        let from = Rank(half(4).into());
        let Some(theirs) = rows.get(from.index()).filter(|_| from != me) else {
            return Err(HelloMismatch::From { expected: None, got: from });
        };
        let row = u32::from_le_bytes(*bytes[32..].first_chunk().expect("it is inside"));
        if half(6) != lines(theirs.control) || row != words(rows[me.index()].size) {
            return Err(HelloMismatch::Lengths);
        }
        Ok((from, RingTarget { address: word(36), key: word(44) }))
    }
}

/// Both sides compare the result and don't use it otherwise, so its truncation is harmless.
fn lines(bytes: u64) -> u16 {
    (bytes / 64) as u16
}

fn words(bytes: u64) -> u32 {
    (bytes / 8) as u32
}

/// The kind of a message, apart from the words that it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageKind {
    /// It takes one of the reader's slots for messages.
    Post = 0,
    /// It reports credit, and takes no slot.
    Credit = 1,
    /// It is the last message.
    Last = 2,
    /// It states what its writer has applied of the reader's row, and takes a slot.
    Applied = 3,
    /// It gives the location of its writer's copy of the reader's row in a view in which the
    /// connection continues, and takes a slot.
    Hello = 4,
    /// It is the last message of its view, names the next one, and takes a slot.
    Turn = 5,
}

impl MessageKind {
    /// Returns true if it takes one of the reader's slots for posts.
    pub(crate) fn takes_a_place(self) -> bool {
        matches!(self, MessageKind::Post | MessageKind::Applied | MessageKind::Hello | MessageKind::Turn)
    }
}

/// The beginning of a message. Words of the control block follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageHead {
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// The reader's posts that its writer has taken in.
    pub(crate) taken: u64,
    pub(crate) kind: MessageKind,
    /// Bytes that its writer has written into the reader's copy before this message.
    pub(crate) written: u64,
}

impl MessageHead {
    pub(crate) fn encode(&self) -> [[u8; 8]; 3] {
        let last = ((self.written & (u64::MAX >> 8)) << 8) | self.kind as u64;
        [(self.at / 8) | ((self.len / 8) << 32), self.taken, last].map(u64::to_le_bytes)
    }

    /// Reads a message of `bytes` bytes from a peer whose row has `row_bytes`, of which the first
    /// `control_bytes` are words.
    pub(crate) fn decode(words: [u64; 3], bytes: u64, control_bytes: u64, row_bytes: u64) -> Result<MessageHead, Down> {
        let [first, taken, last] = words;
        let (at, len) = ((first & 0xffff_ffff) * 8, (first >> 32) * 8);
        let kind = match last & 0xff {
            0 => Some(MessageKind::Post),
            1 => Some(MessageKind::Credit),
            2 => Some(MessageKind::Last),
            3 => Some(MessageKind::Applied),
            4 => Some(MessageKind::Hello),
            5 => Some(MessageKind::Turn),
            _ => None,
        };
        let may_have = |kind| match kind {
            MessageKind::Applied => true,
            MessageKind::Hello => len == HELLO_MESSAGE_BYTES,
            MessageKind::Turn => len == TURN_BYTES,
            MessageKind::Post | MessageKind::Credit | MessageKind::Last => at + len <= control_bytes,
        };
        match kind {
            Some(kind) if may_have(kind) && bytes == HEAD_BYTES + len => {
                Ok(MessageHead { at, len, taken, kind, written: last >> 8 })
            }
            _ => Err(Down::Garbage { at, len, control_bytes, row_bytes }),
        }
    }
}

impl fmt::Display for LinkPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {} of incarnation {:x}", self.view.0, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::Layout;
    use spindle_fabric::conformance::view;

    const PURPOSE: LinkPurpose = LinkPurpose { incarnation: 7 << 64 | 9, view: ViewId(3) };
    const TARGET: RingTarget = RingTarget { address: u64::MAX - 1, key: 12 };

    #[test]
    fn hellos_survive_encoding() {
        let layout = Layout::new(&view(3, 8)).unwrap();
        let hello = OfiHello::new(PURPOSE, Rank(2), layout.row(Rank(2)), layout.row(Rank(0)), TARGET);
        for more in [0, 4, 140] {
            let mut bytes = hello.encode().to_vec();
            bytes.resize(HELLO_BYTES + more, 0);
            assert_eq!(OfiHello::read(&bytes, PURPOSE, Rank(0), layout.rows()), Ok((Rank(2), TARGET)));
        }
    }

    #[test]
    fn a_hello_in_a_message_says_the_same_or_is_refused() {
        let layout = Layout::new(&view(3, 8)).unwrap();
        let (mine, theirs) = (layout.row(Rank(2)), layout.row(Rank(0)));
        let good = OfiHello::new(PURPOSE, Rank(2), mine, theirs, TARGET);
        let expected = OfiHello::new(PURPOSE, Rank(2), mine, theirs, RingTarget { address: 0, key: 0 });
        assert_eq!(OfiHello::purpose(&good.message()), Some(PURPOSE));
        assert_eq!(expected.target_of(&good.message()), Some(TARGET));
        for bit in 0..HELLO_BYTES * 8 {
            let mut bytes = good.message();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let target = expected.target_of(&bytes);
            assert!(target != Some(TARGET) && target.is_some() == (bit / 8 >= 36), "bit {bit}");
        }
    }

    #[test]
    fn a_hello_with_any_bit_wrong_is_refused_or_says_something_else() {
        let layout = Layout::new(&view(3, 8)).unwrap();
        let hello = OfiHello::new(PURPOSE, Rank(2), layout.row(Rank(2)), layout.row(Rank(0)), TARGET);
        let read = |bytes: &[u8]| OfiHello::read(bytes, PURPOSE, Rank(0), layout.rows());
        for bit in 0..HELLO_BYTES * 8 {
            let mut bytes = hello.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match read(&bytes) {
                // A hello of rank 1 is valid, as far as can be seen.
                Ok((rank, target)) => assert!(bit / 8 >= 36 && target != TARGET || rank == Rank(1), "bit {bit}"),
                Err(error) => assert!(bit / 8 < 36, "bit {bit}: {error}"),
            }
        }
        for len in 0..HELLO_BYTES {
            assert_eq!(read(&hello.encode()[..len]), Err(HelloMismatch::NoHello { bytes: len }));
        }
    }

    #[test]
    fn heads_survive_encoding_and_nonsense_is_refused() {
        let decode = |words, bytes| MessageHead::decode(words, bytes, 512, 4096);
        let words = |head: MessageHead| head.encode().map(u64::from_le_bytes);
        let heads = [
            (0, 0, MessageKind::Credit),
            (8, 504, MessageKind::Post),
            (504, 8, MessageKind::Last),
            (512, 0, MessageKind::Post),
            (0, 1024, MessageKind::Applied),
            (0, HELLO_MESSAGE_BYTES, MessageKind::Hello),
            (0, TURN_BYTES, MessageKind::Turn),
        ];
        for (at, len, kind) in heads {
            let head = MessageHead { at, len, taken: u64::MAX, kind, written: 1 << 40 };
            assert_eq!(decode(words(head), HEAD_BYTES + len).unwrap(), head);
            for bytes in [0, HEAD_BYTES + len - 1, HEAD_BYTES + len + 8] {
                assert!(decode(words(head), bytes).is_err());
            }
        }
        let far = (1 << 35) - 8;
        for (at, len) in [(8, 512), (512, 8), (520, 0), (far, far), (0, far), (far, 0)] {
            let head = MessageHead { at, len, taken: 0, kind: MessageKind::Post, written: 0 };
            let error = decode(words(head), HEAD_BYTES + len).unwrap_err();
            assert!(matches!(error, Down::Garbage { at: a, len: l, .. } if (a, l) == (at, len)), "{error}");
        }
        for kind in [MessageKind::Hello, MessageKind::Turn] {
            assert!(decode([0, 0, kind as u64], HEAD_BYTES).is_err());
        }
        assert!(decode([0, 0, 6], HEAD_BYTES).is_err());
    }
}
