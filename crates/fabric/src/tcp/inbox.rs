//! The receiving side of one peer's stream, which fills the copy of that peer's row.
//!
//! Small frames and control words come through a buffer and are applied once they are whole, word
//! by word and each with release order. The engine's thread, which does this, sees all of a frame
//! or nothing, and other threads see no torn word. The bytes of a large frame go straight to the
//! copy. A word may be incomplete there for a while, where no reader looks: no part of the frame is
//! announced before the frame is complete.
//!
//! A peer's bytes are written only to the copy of its own row. A stream that replaces another gets
//! a new inbox, so half a frame of the old one is dropped with it. Its bytes that went straight to
//! the copy are not announced, and come again.
use super::error::Down;
use super::wire::{FrameHead, HEAD_BYTES, TURN_BYTES, is_turn};
use crate::region::CopyRegion;
use spindle_core::ViewId;
use spindle_transport::{Space, Stream};
use std::io;
use std::ops::Range;

/// Bytes that are read before their meaning is known. A frame that is not longer waits in the
/// buffer until it is whole.
const LOOK_BYTES: usize = 4096;
/// Reads from one peer before the turn of the others.
const READS_MAX: u32 = 16;

/// The receiving side of one peer's stream.
#[derive(Debug)]
pub(super) struct RowInbox {
    row_bytes: u64,
    control_bytes: u64,
    /// The beginning of a frame that is not whole.
    kept: Vec<u8>,
    /// The rest of a large frame. `kept` is empty then.
    arriving: Range<u64>,
    /// Whether the control block has come as a whole, as it does to observers.
    has_control: bool,
    hello: RowHello,
    /// The view whose bytes follow on the stream. Nothing more is read here then, and `kept` is the
    /// beginning of those bytes.
    turn: Option<ViewId>,
}

/// The hello that a member sends before its first frame.
#[derive(Debug)]
enum RowHello {
    /// It is still to come, with the counts of so many rings.
    Expected(usize),
    /// It has come, and its counts were not taken.
    Arrived(Box<[u64]>),
    /// It was taken, or none is to come.
    Done,
}

/// Returns the bytes of a buffer that serves all peers, if the longest control block has
/// `control_bytes`.
pub(super) fn buffer_bytes(control_bytes: u64) -> usize {
    HEAD_BYTES + LOOK_BYTES.max(control_bytes as usize) + LOOK_BYTES
}

impl RowInbox {
    /// Creates an inbox for a stream that begins with a hello for `rings` rings, or with none.
    pub(super) fn new(row_bytes: u64, control_bytes: u64, rings: Option<usize>) -> RowInbox {
        let hello = rings.map_or(RowHello::Done, RowHello::Expected);
        RowInbox { row_bytes, control_bytes, kept: vec![], arriving: 0..0, has_control: false, hello, turn: None }
    }

    /// Returns the counts of the peer's hello, once, after it has arrived.
    #[inline]
    pub(super) fn take_hello(&mut self) -> Option<Box<[u64]>> {
        if !matches!(self.hello, RowHello::Arrived(_)) {
            return None;
        }
        match std::mem::replace(&mut self.hello, RowHello::Done) {
            RowHello::Arrived(applied) => Some(applied),
            RowHello::Expected(_) | RowHello::Done => None,
        }
    }

    /// Returns the next view, if all bytes of this one have arrived.
    pub(super) fn turn(&self) -> Option<ViewId> {
        self.turn
    }

    /// Returns the bytes of the next view that have arrived.
    pub(super) fn ahead(&self) -> &[u8] {
        if self.turn.is_some() { &self.kept } else { &[] }
    }

    pub(super) fn has_control(&self) -> bool {
        self.has_control
    }

    /// Reads the bytes that have arrived. `bytes` counts them, also when this fails.
    ///
    /// # Errors
    /// The reason why nothing more will come.
    pub(super) fn receive(
        &mut self,
        copy: &CopyRegion,
        stream: &mut dyn Stream,
        buffer: &mut [u8],
        bytes: &mut u64,
    ) -> Result<bool, Down> {
        for _ in 0..READS_MAX {
            if self.turn.is_some() {
                return Ok(false);
            }
            let kept = self.kept.len();
            buffer[..kept].copy_from_slice(&self.kept);
            let straight = (self.arriving.end - self.arriving.start) as usize;
            let offered = straight + LOOK_BYTES;
            // SAFETY: this thread may write the copy's memory, which outlives this call, and no
            // thread reads what is not announced.
            let place = unsafe { Space::at(copy.pointer(&self.arriving), straight) };
            let look = Space::of(&mut buffer[kept..kept + LOOK_BYTES]);
            let got = match if straight > 0 { stream.receive(&mut [place, look]) } else { stream.receive(&mut [look]) }
            {
                Ok(0) => return Err(self.end()),
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(source) => return Err(Down::Os { call: "receiving", source }),
            };
            *bytes += got as u64;
            let arrived = got.min(straight);
            self.arriving.start += arrived as u64;
            let rest = self.apply(copy, &buffer[..kept + got - arrived])?;
            let rest = kept + got - arrived - rest..kept + got - arrived;
            self.kept.clear();
            self.kept.extend_from_slice(&buffer[rest]);
            if got < offered {
                return Ok(stream.has_arrived());
            }
        }
        Ok(true)
    }

    /// Applies the frames in `bytes`. Returns how many bytes of the last frame, which is
    /// incomplete, are to be kept.
    fn apply(&mut self, copy: &CopyRegion, mut bytes: &[u8]) -> Result<usize, Down> {
        if let RowHello::Expected(rings) = self.hello {
            let Some((head, body)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(bytes.len()) };
            let (word, rings) = (u64::from_le_bytes(*head), rings as u64);
            if word != rings {
                return Err(Down::NoHello { word, rings });
            }
            let Some((counts, behind)) = body.split_at_checked(8 * rings as usize) else { return Ok(bytes.len()) };
            let counts = counts.as_chunks::<8>().0.iter().map(|count| u64::from_le_bytes(*count));
            self.hello = RowHello::Arrived(counts.collect());
            bytes = behind;
        }
        while let Some((head, body)) = bytes.split_first_chunk::<HEAD_BYTES>() {
            if is_turn(*head) {
                let Some((view, behind)) = body.split_first_chunk::<8>() else { break };
                self.turn = Some(ViewId(u64::from_le_bytes(*view)));
                return Ok(behind.len());
            }
            let FrameHead { at, len } = FrameHead::decode(*head, self.control_bytes, self.row_bytes)?;
            if let Some((whole, behind)) = body.split_at_checked(len as usize) {
                copy.store_words(at, whole);
                self.has_control |= len == self.control_bytes && at == 0;
                bytes = behind;
            } else if at < self.control_bytes || len <= LOOK_BYTES as u64 {
                break;
            } else {
                copy.fill(at, body);
                self.arriving = at + body.len() as u64..at + len;
                return Ok(0);
            }
        }
        Ok(bytes.len())
    }

    /// Returns the error that the end of the stream means here.
    fn end(&self) -> Down {
        let head = self.kept.first_chunk().map(|head| FrameHead::decode(*head, self.control_bytes, self.row_bytes));
        let begins_turn = self.kept.first_chunk().is_some_and(|head| is_turn(*head));
        let whole = match (&self.hello, head) {
            _ if begins_turn => TURN_BYTES as u64,
            _ if self.kept.is_empty() => 0,
            (RowHello::Expected(rings), _) => (HEAD_BYTES + 8 * rings) as u64,
            (_, Some(Ok(head))) => head.len + HEAD_BYTES as u64,
            _ => HEAD_BYTES as u64,
        };
        match whole - self.kept.len() as u64 + (self.arriving.end - self.arriving.start) {
            0 => Down::Closed,
            missing => Down::Broken { missing },
        }
    }
}
