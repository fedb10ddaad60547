//! The frames on a stream: a [`FrameHead`] of one word, and the bytes to write.
//!
//! ```text
//! head = offset in the sender's row, in words (32 bits) | length, in words (32 bits)      little-endian
//! ```
//!
//! A frame is inside the control block or behind it, and is not empty.
//!
//! Before the first frame each side sends a *hello*, which states how much of the other's row it
//! has applied. A head of length 0 opens it:
//!
//! ```text
//! hello = rings in the receiver's row (32 bits) | 0 (32 bits), then for each ring the PUBLISHED that was applied (64 bits)
//! ```
//! The last frame of a view is a *turn*: later bytes on the stream belong to the next view, and
//! begin with its hello.
//! ```text
//! turn = 2^32 - 1 (32 bits) | 0 (32 bits), then the number of the next view (64 bits)
//! ```
use super::error::Down;
use spindle_core::ViewId;

/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 8;
/// The largest row, in bytes, that heads can address.
pub(crate) const ROW_BYTES_MAX: u64 = 8 << 32;

/// The destination of a frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHead {
    /// Offset in the sender's row; a multiple of 8.
    pub(super) at: u64,
    /// Length in bytes; a multiple of 8.
    pub(super) len: u64,
}

impl FrameHead {
    pub(super) fn encode(self) -> [u8; HEAD_BYTES] {
        (self.at / 8 + ((self.len / 8) << 32)).to_le_bytes()
    }

    /// Decodes the head that a peer sent, whose row is of `row_bytes`, the first `control_bytes` of
    /// them words.
    pub(super) fn decode(bytes: [u8; HEAD_BYTES], control_bytes: u64, row_bytes: u64) -> Result<FrameHead, Down> {
        let word = u64::from_le_bytes(bytes);
        let head = FrameHead { at: (word & 0xffff_ffff) * 8, len: (word >> 32) * 8 };
        let end = head.at + head.len;
        let crosses = head.at < control_bytes && end > control_bytes;
        if head.len == 0 || end > row_bytes || crosses {
            return Err(Down::Garbage { at: head.at, len: head.len, control_bytes, row_bytes });
        }
        Ok(head)
    }
}

/// Bytes of a turn.
pub(super) const TURN_BYTES: usize = 16;
/// The head of a turn, which is not the head of a frame.
const TURN: u64 = 0xffff_ffff;

/// Encodes the last frame of a view, before those of `next`.
pub(super) fn turn(next: ViewId) -> [u8; TURN_BYTES] {
    let mut bytes = [0; TURN_BYTES];
    bytes[..8].copy_from_slice(&TURN.to_le_bytes());
    bytes[8..].copy_from_slice(&next.0.to_le_bytes());
    bytes
}

/// Returns whether a turn begins with these bytes.
pub(super) fn is_turn(head: [u8; HEAD_BYTES]) -> bool {
    u64::from_le_bytes(head) == TURN
}

/// Encodes the first bytes on a stream, of a sender that has applied the announcements `applied` of
/// the receiver's rings.
pub(super) fn hello(applied: &[u64]) -> Vec<u8> {
    [applied.len() as u64].iter().chain(applied).flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_encoding_and_nonsense_is_refused() {
        for (at, len) in [(0, 8), (0, 64), (56, 8), (64, 128), (184, 8)] {
            let head = FrameHead { at, len };
            assert_eq!(FrameHead::decode(head.encode(), 64, 192).unwrap(), head);
        }
        assert!(is_turn(*turn(ViewId(7)).first_chunk().unwrap()) && !is_turn(FrameHead { at: 0, len: 8 }.encode()));
        assert!(FrameHead::decode(*turn(ViewId(7)).first_chunk().unwrap(), 64, 192).is_err());
        let far = ROW_BYTES_MAX - 8;
        for (at, len) in [(0, 0), (64, 0), (0, 72), (56, 16), (64, 136), (192, 8), (far, 8), (far, far), (0, far)] {
            let error = FrameHead::decode(FrameHead { at, len }.encode(), 64, 192).unwrap_err();
            let Down::Garbage { at: a, len: l, control_bytes: 64, row_bytes: 192 } = error else { panic!("{error}") };
            assert_eq!((a, l), (at, len));
        }
    }
}
