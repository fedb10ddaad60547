//! The receiving side of one peer's stream in a bulk group.
//!
//! Heads come through a buffer. A block's bytes go straight to their place, except for the few that
//! came in the same read as the head.
use super::error::BulkDown;
use super::store::{BlockStore, PeerWord};
use super::wire::{BlockHead, BulkHead, Greeting, HEAD_BYTES, TAIL_BYTES, VOID, WHOLE};
use spindle_core::Rank;
use spindle_transport::{Space, Stream};
use std::io;

/// Bytes that are read before their meaning is known.
const LOOK_BYTES: usize = 2048;
/// Reads from one peer before the turn of the others.
const READS_MAX: u32 = 8;
/// Bytes of a buffer that serves all peers.
pub(super) const BUFFER_BYTES: usize = HEAD_BYTES + LOOK_BYTES + LOOK_BYTES;

/// The receiving side of one peer's stream.
#[derive(Debug)]
pub(super) struct BulkInbox {
    from: Rank,
    /// The greeting that it must begin with, until it has come.
    greeting: Option<Greeting>,
    /// Bytes that were read and not taken: the beginning of a head or a tail. There are more behind
    /// the head of a block whose place may still become available, for which one look's time is
    /// given.
    kept: Vec<u8>,
    /// The block whose bytes are arriving, and how many have.
    arriving: Option<(BlockHead, u64)>,
}

impl BulkInbox {
    pub(super) fn new(greeting: Greeting) -> BulkInbox {
        let kept = Vec::with_capacity(BUFFER_BYTES);
        BulkInbox { from: greeting.from, greeting: Some(greeting), kept, arriving: None }
    }

    /// Reads the bytes that have arrived, and returns whether there may be more. `bytes` counts
    /// them, also when this fails.
    ///
    /// # Errors
    /// The reason why nothing more will come.
    pub(super) fn receive(
        &mut self,
        stream: &mut dyn Stream,
        buffer: &mut [u8],
        store: &mut impl BlockStore,
        bytes: &mut u64,
    ) -> Result<bool, BulkDown> {
        if !self.kept.is_empty() {
            let kept = self.kept.len();
            buffer[..kept].copy_from_slice(&self.kept);
            if !self.take(&buffer[..kept], store)? {
                return Ok(true);
            }
        }
        for _ in 0..READS_MAX {
            let kept = self.kept.len();
            buffer[..kept].copy_from_slice(&self.kept);
            let look = &mut buffer[kept..kept + LOOK_BYTES];
            let place = match &self.arriving {
                Some((head, got)) if *got < head.bytes => {
                    store.place(self.from, head).map(|place| &mut place[*got as usize..])
                }
                _ => None,
            };
            let straight = place.as_ref().map_or(0, |place| place.len());
            let offered = straight + look.len();
            let result = match place {
                Some(place) => stream.receive(&mut [Space::of(place), Space::of(look)]),
                None => stream.receive(&mut [Space::of(look)]),
            };
            let got = match result {
                Ok(0) => return Err(self.end()),
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(source) => return Err(BulkDown::Os { call: "receiving", source }),
            };
            *bytes += got as u64;
            let placed = got.min(straight);
            if let Some((_, arrived)) = &mut self.arriving {
                *arrived += placed as u64;
            }
            if !self.take(&buffer[..kept + got - placed], store)? {
                return Ok(true);
            }
            if got < offered {
                return Ok(stream.has_arrived());
            }
        }
        Ok(true)
    }

    /// Takes the bytes that were read, keeps those that can't be taken yet, and returns whether to
    /// continue reading now.
    fn take(&mut self, mut bytes: &[u8], store: &mut impl BlockStore) -> Result<bool, BulkDown> {
        self.kept.clear();
        loop {
            if let Some((head, got)) = &mut self.arriving {
                let left = head.bytes - *got;
                let (body, behind) = bytes.split_at((bytes.len() as u64).min(left) as usize);
                if !body.is_empty()
                    && let Some(place) = store.place(self.from, head)
                {
                    place[*got as usize..][..body.len()].copy_from_slice(body);
                }
                *got += body.len() as u64;
                bytes = behind;
                if *got < head.bytes {
                    return Ok(true);
                }
                let Some((tail, behind)) = bytes.split_first_chunk::<TAIL_BYTES>() else { break };
                let head = *head;
                match *tail {
                    WHOLE => store.arrived(self.from, PeerWord::Block(head))?,
                    VOID => {}
                    _ => return Err(BulkDown::Garbage { word: u64::from_le_bytes(*tail) }),
                }
                self.arriving = None;
                bytes = behind;
            }
            let Some((head, behind)) = bytes.split_first_chunk::<HEAD_BYTES>() else { break };
            bytes = behind;
            if let Some(expected) = self.greeting {
                self.greet(head, expected)?;
                continue;
            }
            match BulkHead::decode(head)? {
                BulkHead::Block(block) => {
                    let is_placed = store.expect(self.from, &block)?;
                    self.arriving = Some((block, 0));
                    if !is_placed {
                        self.kept.extend_from_slice(bytes);
                        return Ok(false);
                    }
                }
                BulkHead::Columns { slot, columns } => store.arrived(self.from, PeerWord::Columns { slot, columns })?,
                BulkHead::Closed { dead } => store.arrived(self.from, PeerWord::Closed { dead })?,
                BulkHead::Finished => store.arrived(self.from, PeerWord::Finished)?,
                _ => return Err(garbage(head)),
            }
        }
        self.kept.extend_from_slice(bytes);
        Ok(true)
    }

    fn greet(&mut self, head: &[u8; HEAD_BYTES], expected: Greeting) -> Result<(), BulkDown> {
        let BulkHead::Greeting(found) = BulkHead::decode(head)? else { return Err(garbage(head)) };
        if found != expected {
            return Err(mismatch(expected, found));
        }
        self.greeting = None;
        Ok(())
    }

    /// Returns the error that the end of the stream means here.
    fn end(&self) -> BulkDown {
        if self.kept.is_empty() && self.arriving.is_none() { BulkDown::Closed } else { BulkDown::Broken }
    }
}

fn garbage(head: &[u8; HEAD_BYTES]) -> BulkDown {
    BulkDown::Garbage { word: head.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)) }
}

pub(super) fn mismatch(expected: Greeting, found: Greeting) -> BulkDown {
    BulkDown::Greeting {
        from: expected.from,
        to: expected.to,
        expected: expected.digest,
        found_from: found.from,
        found_to: found.to,
        found: found.digest,
    }
}
