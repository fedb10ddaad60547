//! The queue of what is to be sent to one peer of a bulk group: heads, and blocks by their places.
use super::store::BlockStore;
use super::wire::{BlockHead, BulkHead, HEAD_BYTES, TAIL_BYTES, VOID, WHOLE};
use spindle_core::rdmc::{Columns, Slot};
use spindle_transport::Stream;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Slices that are given to the system at once.
const SLICES_MAX: usize = 24;
/// The bytes that are sent in place of a block that was given up.
static NOTHING: [u8; 64 << 10] = [0; 64 << 10];

/// The queue is as long as what its owner posts. A session bounds the blocks, and behind each block
/// there is at most one entry of a slot's counters.
#[derive(Debug, Default)]
pub(super) struct BulkOutbox {
    queue: VecDeque<OutboxItem>,
    /// Bytes of the first item that are gone.
    gone: u64,
}

#[derive(Debug)]
struct OutboxItem {
    head: [u8; HEAD_BYTES],
    body: OutboxBody,
}

#[derive(Clone, Copy, Debug)]
enum OutboxBody {
    None,
    /// No body: the head contains the counters of this slot.
    Columns(Slot),
    Block(BlockHead),
    /// So many bytes in place of a block that was given up, and its tail.
    Void(u64, [u8; TAIL_BYTES]),
}

impl OutboxItem {
    fn bytes(&self) -> u64 {
        let body = match self.body {
            OutboxBody::None | OutboxBody::Columns(_) => 0,
            OutboxBody::Block(BlockHead { bytes, .. }) | OutboxBody::Void(bytes, _) => bytes + TAIL_BYTES as u64,
        };
        HEAD_BYTES as u64 + body
    }
}

impl BulkOutbox {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, head: BulkHead) {
        self.queue.push_back(OutboxItem { head: head.encode(), body: OutboxBody::None });
    }

    /// Queues counters. They replace older ones of the slot if no block of it was posted since.
    pub(super) fn push_columns(&mut self, slot: Slot, columns: Columns) {
        let head = BulkHead::Columns { slot, columns }.encode();
        let begun = usize::from(self.gone > 0);
        for item in self.queue.iter_mut().skip(begun).rev() {
            match item.body {
                OutboxBody::Columns(other) if other == slot => {
                    item.head = head;
                    return;
                }
                OutboxBody::Block(block) if block.slot == slot => break,
                _ => {}
            }
        }
        self.queue.push_back(OutboxItem { head, body: OutboxBody::Columns(slot) });
    }

    pub(super) fn push_block(&mut self, block: BlockHead) {
        self.queue.push_back(OutboxItem { head: BulkHead::Block(block).encode(), body: OutboxBody::Block(block) });
    }

    /// Drops the posts, except for a frame that has begun. A block's bytes are no longer read.
    pub(super) fn give_up(&mut self) {
        self.queue.truncate(usize::from(self.gone > 0));
        if let Some(item) = self.queue.front_mut()
            && let OutboxBody::Block(BlockHead { bytes, .. }) = item.body
        {
            let is_whole = self.gone > HEAD_BYTES as u64 + bytes;
            item.body = OutboxBody::Void(bytes, if is_whole { WHOLE } else { VOID });
        }
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.gone = 0;
    }

    /// Sends as much as the stream accepts, and returns how many bytes; records the slots of blocks
    /// that are gone.
    ///
    /// # Errors
    /// If it will never accept anything any more.
    pub(super) fn send(
        &mut self,
        stream: &mut dyn Stream,
        store: &impl BlockStore,
        gone: &mut Vec<Slot>,
    ) -> io::Result<u64> {
        let mut sent = 0;
        while !self.queue.is_empty() {
            let mut slices = Slices { parts: [IoSlice::new(&[]); SLICES_MAX], used: 0, skip: self.gone };
            for item in &self.queue {
                if !slices.add(item, store) {
                    break;
                }
            }
            match stream.send(&slices.parts[..slices.used]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    sent += bytes as u64;
                    self.pass(bytes as u64, gone);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    fn pass(&mut self, bytes: u64, gone: &mut Vec<Slot>) {
        self.gone += bytes;
        while let Some(first) = self.queue.front().filter(|first| first.bytes() <= self.gone) {
            if let OutboxBody::Block(block) = first.body {
                gone.push(block.slot);
            }
            self.gone -= first.bytes();
            self.queue.pop_front();
        }
    }
}

/// Slices under construction; the first bytes of them are gone.
struct Slices<'a> {
    parts: [IoSlice<'a>; SLICES_MAX],
    used: usize,
    skip: u64,
}

impl<'a> Slices<'a> {
    /// Adds an item; returns whether there was room for all of it.
    fn add(&mut self, item: &'a OutboxItem, store: &'a impl BlockStore) -> bool {
        if !self.part(&item.head) {
            return false;
        }
        match &item.body {
            OutboxBody::None | OutboxBody::Columns(_) => true,
            OutboxBody::Block(block) => {
                let whole = store.block(block);
                debug_assert_eq!(whole.len() as u64, block.bytes);
                self.part(whole) && self.part(&WHOLE)
            }
            OutboxBody::Void(bytes, tail) => {
                let mut left = *bytes;
                while left > 0 {
                    let len = left.min(NOTHING.len() as u64);
                    if !self.part(&NOTHING[..len as usize]) {
                        return false;
                    }
                    left -= len;
                }
                self.part(tail)
            }
        }
    }

    fn part(&mut self, bytes: &'a [u8]) -> bool {
        let skipped = self.skip.min(bytes.len() as u64);
        self.skip -= skipped;
        let rest = &bytes[skipped as usize..];
        if rest.is_empty() {
            return true;
        }
        let Some(part) = self.parts.get_mut(self.used) else { return false };
        *part = IoSlice::new(rest);
        self.used += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::BulkDown;
    use super::super::store::PeerWord;
    use super::*;
    use spindle_core::Rank;
    use spindle_transport::Space;
    use std::os::fd::BorrowedFd;

    /// A stream that accepts so many bytes at a time, and then nothing.
    #[derive(Debug)]
    struct Narrow {
        at_once: usize,
        left: usize,
        taken: Vec<u8>,
    }

    impl Stream for Narrow {
        fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            let len = bytes.len().min(self.at_once).min(self.left);
            if len == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.left -= len;
            self.taken.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn receive(&mut self, _: &mut [Space<'_>]) -> io::Result<usize> {
            unreachable!("nobody receives here")
        }

        fn finish(&mut self) {}

        fn fd(&self) -> BorrowedFd<'_> {
            unreachable!("nobody waits here")
        }
    }

    struct Bytes(Vec<u8>);

    impl BlockStore for Bytes {
        fn block(&self, block: &BlockHead) -> &[u8] {
            &self.0[block.at as usize..][..block.bytes as usize]
        }

        fn expect(&mut self, _: Rank, _: &BlockHead) -> Result<bool, BulkDown> {
            unreachable!("nothing comes")
        }

        fn place(&mut self, _: Rank, _: &BlockHead) -> Option<&mut [u8]> {
            unreachable!("nothing comes")
        }

        fn arrived(&mut self, _: Rank, _: PeerWord) -> Result<(), BulkDown> {
            unreachable!("nothing comes")
        }
    }

    fn block(at: u64, bytes: u64) -> BlockHead {
        BlockHead { slot: Slot(1), at, bytes, columns: Columns { steps: at, ..Columns::default() } }
    }

    fn columns(slot: u32, have: u64) -> (Slot, Columns) {
        (Slot(slot), Columns { have, ..Columns::default() })
    }

    /// Returns the bytes that are sent, so many at a time; `gives_up` takes effect after the first
    /// so many bytes.
    fn sent(outbox: &mut BulkOutbox, at_once: usize, first: usize, gives_up: bool) -> (Vec<u8>, Vec<Slot>) {
        let (store, mut gone) = (Bytes((0..200_000_u32).map(|i| i as u8).collect()), vec![]);
        let mut stream = Narrow { at_once, left: first, taken: vec![] };
        outbox.send(&mut stream, &store, &mut gone).unwrap();
        if gives_up {
            outbox.give_up();
            outbox.push(BulkHead::Closed { dead: Rank(3) });
        }
        stream.left = usize::MAX;
        outbox.send(&mut stream, &store, &mut gone).unwrap();
        assert!(outbox.is_empty());
        (stream.taken, gone)
    }

    #[test]
    fn frames_leave_in_order_however_little_is_taken_at_a_time() {
        let all = |at_once, first| {
            let mut outbox = BulkOutbox::default();
            let (slot, old) = columns(1, 1);
            outbox.push_columns(slot, old);
            outbox.push_block(block(5, 100));
            outbox.push_columns(slot, columns(1, 2).1);
            outbox.push_columns(Slot(0), columns(0, 9).1);
            outbox.push_columns(slot, columns(1, 3).1);
            sent(&mut outbox, at_once, first, false)
        };
        let (expected, gone) = all(usize::MAX, usize::MAX);
        assert_eq!(gone, [Slot(1)]);
        assert_eq!(
            expected.len(),
            4 * HEAD_BYTES + 100 + TAIL_BYTES,
            "of a slot's counters the newest stand behind a block"
        );
        assert_eq!(expected[2 * HEAD_BYTES..][..3], [5, 6, 7]);
        for at_once in 1..30 {
            assert_eq!(all(at_once, 40).0, expected, "{at_once}");
        }
    }

    #[test]
    fn a_block_that_is_given_up_ends_as_void_wherever_it_was_cut() {
        let whole = HEAD_BYTES + 100_000 + TAIL_BYTES;
        for cut in [0, 1, HEAD_BYTES, HEAD_BYTES + 1, whole - 9, whole - 8, whole - 7, whole - 1, whole] {
            let mut outbox = BulkOutbox::default();
            outbox.push_block(block(5, 100_000));
            outbox.push_block(block(7, 100_000));
            let (bytes, _) = sent(&mut outbox, 70_000, cut, true);
            let closed = BulkHead::Closed { dead: Rank(3) }.encode();
            assert_eq!(bytes[bytes.len() - HEAD_BYTES..], closed);
            if cut == 0 {
                assert_eq!(bytes.len(), HEAD_BYTES);
                continue;
            }
            assert_eq!(bytes.len(), whole + HEAD_BYTES, "cut at {cut}");
            let is_whole = cut > whole - TAIL_BYTES;
            assert_eq!(bytes[whole - TAIL_BYTES..whole], if is_whole { WHOLE } else { VOID });
        }
    }
}
