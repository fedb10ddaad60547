//! Records that a member of a chaos run writes and `cargo xtask chaos` reads. Each record has 32
//! bytes, and the file only grows.
//!
//! Each record contains its own checksum, so that a reader can distinguish a torn tail from a
//! record. Any thread may write a whole group of records, by one call. The records of two threads
//! are never mixed within a group.

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 32;
/// The subgroup of records that concern none.
pub(crate) const NO_SUBGROUP: u8 = u8::MAX;
/// Bytes of text that fit into one record.
const TEXT_BYTES: usize = 24;

/// The kind of a record. `a`, `b` and `c` are the record's three words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The process runs: `a` its instance, `b` the time.
    Start = 1,
    /// The process is a member: `a` its id, `b` and `c` the group's incarnation.
    Joined,
    /// A view has begun at the engine: `a` its number, `b` how many members, `c` the time. As many
    /// `Member` follow.
    View,
    /// `a` the view, `b` 1 if the member is no voter in it, `c` the id. These records come by rank.
    Member,
    /// The application's state of `subgroup` was `b`, after `c` messages since the group was
    /// created. This was so when view `a` began. If `a` is the largest number, it was so when the
    /// process ended in agreement with all members.
    State,
    /// Later deliveries in `subgroup` belong to view `a`; `c` the time.
    Stretch,
    /// The deliveries of `subgroup` that follow were made at the time `a`.
    Batch,
    /// A message of the sender with rank `extra`: `a` its round, `b` the sender's instance (high)
    /// and the digest's low half, `c` the number among those of the same instance, `subgroup` and
    /// `thread`.
    Deliver,
    /// The same, but its bytes are not what its sender sends: `c` holds the first eight of them.
    Garbage,
    /// This process's `thread` will send no message of `subgroup` with a number of `a` or more
    /// before it writes the next record of this kind.
    Reserve,
    /// Every message of `subgroup` and `thread` with a number below `a` was accepted.
    Sent,
    /// The process ends: `a` is an [`End`], `b` the time. `Text` may come before it.
    End,
    /// Up to 24 bytes of text.
    Text,
    /// A message of `subgroup` that this process sent is durable: `a` the epoch, `b` its sequence
    /// number there.
    Durable,
}

/// The way in which a member ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum End {
    /// It ended in agreement with all members.
    Finished = 1,
    /// It left because it was asked to.
    Left,
    /// The others continued without it.
    Evicted,
    /// It met an unexpected error, which the text states.
    Failed,
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) subgroup: u8,
    pub(crate) thread: u8,
    pub(crate) extra: u8,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::State,
        Kind::Start,
        Kind::Joined,
        Kind::View,
        Kind::Member,
        Kind::Stretch,
        Kind::Batch,
        Kind::Deliver,
        Kind::Garbage,
        Kind::Reserve,
        Kind::Sent,
        Kind::End,
        Kind::Text,
        Kind::Durable,
    ];
}

impl End {
    /// Returns the meaning of `a` in a `Kind::End`.
    pub(crate) fn decode(word: u64) -> Option<End> {
        [End::Finished, End::Left, End::Evicted, End::Failed].into_iter().find(|end| *end as u64 == word)
    }
}

impl Record {
    pub(crate) fn new(kind: Kind, subgroup: u8, [a, b, c]: [u64; 3]) -> Record {
        Record { kind, subgroup, thread: 0, extra: 0, a, b, c }
    }

    pub(crate) fn thread(self, thread: u8) -> Record {
        Record { thread, ..self }
    }

    pub(crate) fn extra(self, extra: u8) -> Record {
        Record { extra, ..self }
    }

    /// Returns `text` in as many records as it takes.
    pub(crate) fn texts(text: &str) -> Vec<Record> {
        let record = |chunk: &[u8]| {
            let mut bytes = [b' '; TEXT_BYTES];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
            Record::new(Kind::Text, NO_SUBGROUP, [word(0), word(1), word(2)])
        };
        text.as_bytes().chunks(TEXT_BYTES).map(record).collect()
    }

    /// Returns the text in a `Kind::Text`.
    pub(crate) fn text(&self) -> Vec<u8> {
        [self.a, self.b, self.c].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let head = [self.kind as u8, self.subgroup, self.thread, self.extra];
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&head);
        for (at, word) in [(8, self.a), (16, self.b), (24, self.c)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let check = check(&bytes).to_le_bytes();
        bytes[4..8].copy_from_slice(&check);
        bytes
    }

    /// Returns the record in `bytes`, or `None` if no process wrote these bytes as a record.
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let mut unchecked = *bytes;
        unchecked[4..8].fill(0);
        if bytes[4..8] != check(&unchecked).to_le_bytes() {
            return None;
        }
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        let [subgroup, thread, extra] = [bytes[1], bytes[2], bytes[3]];
        Some(Record { kind, subgroup, thread, extra, a: word(8), b: word(16), c: word(24) })
    }
}

fn check(bytes: &[u8; RECORD_BYTES]) -> u32 {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let sum = words.fold(0x9e37_79b9_7f4a_7c15, |sum: u64, word| mix(sum ^ word));
    (sum >> 32) as u32
}

/// Returns a pseudo-random number: the last step of splitmix64.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns the digest of the one message that `instance` sends under this number. The message's
/// padding follows from it.
pub(crate) fn digest(instance: u32, subgroup: u8, thread: u8, number: u64) -> u64 {
    mix(mix(u64::from(instance) << 16 | u64::from(subgroup) << 8 | u64::from(thread)) ^ number)
}
