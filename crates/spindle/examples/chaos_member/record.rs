//! What a member of a chaos run writes down, and `cargo xtask chaos` reads: records of 32 bytes in a file that only grows.
//!
//! Each record checks itself, so that a torn tail is told from a record. Whole groups of records are written by one call,
//! by any thread, and never stand mixed with another thread's.

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 32;
/// The subgroup of records that concern none.
pub(crate) const NO_SUBGROUP: u8 = u8::MAX;
/// Bytes of text that fit into one record.
const TEXT_BYTES: usize = 24;

/// What a record says. `a`, `b` and `c` are its three words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The process runs: `a` its instance, `b` the time.
    Start = 1,
    /// The process is a member: `a` its id, `b` and `c` the group's incarnation.
    Joined,
    /// A view has begun at the engine: `a` its number, `b` how many members, `c` the time. As many `Member` follow.
    View,
    /// `a` the view, `b` 1 if it is no voter in it, `c` the id. They come by rank.
    Member,
    /// When view `a` began, or, if that is the largest number, when the process ended in agreement with all, the application's
    /// state of `subgroup` was `b`, after `c` messages since the group was founded.
    State,
    /// What is delivered in `subgroup` from here on belongs to view `a`; `c` the time.
    Stretch,
    /// The deliveries of `subgroup` that follow were made at the time `a`.
    Batch,
    /// A message of the sender with rank `extra`: `a` its round, `b` the sender's instance (high) and the digest's low
    /// half, `c` the number among those of the same instance, `subgroup` and `thread`.
    Deliver,
    /// The same, but its bytes are not what its sender sends: `c` holds the first eight of them.
    Garbage,
    /// This process's `thread` will send no message of `subgroup` with a number of `a` or more before it says so again.
    Reserve,
    /// Every message of `subgroup` and `thread` with a number below `a` was accepted.
    Sent,
    /// The process ends: `a` is an [`End`], `b` the time. `Text` may stand before it.
    End,
    /// Up to 24 bytes of text.
    Text,
}

/// How a member came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum End {
    /// In agreement with all.
    Finished = 1,
    /// As it was asked to.
    Left,
    /// The others went on without it.
    Evicted,
    /// What should not be; the text says what.
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
    const ALL: [Kind; 13] = [
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
    ];
}

impl End {
    /// What `a` of a `Kind::End` means.
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

    /// `text`, in as many records as it takes.
    pub(crate) fn texts(text: &str) -> Vec<Record> {
        let record = |chunk: &[u8]| {
            let mut bytes = [b' '; TEXT_BYTES];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let word = |i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"));
            Record::new(Kind::Text, NO_SUBGROUP, [word(0), word(1), word(2)])
        };
        text.as_bytes().chunks(TEXT_BYTES).map(record).collect()
    }

    /// The text in a `Kind::Text`.
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

    /// `None` if nobody wrote this.
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

/// A number that looks like chance: the last step of splitmix64.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The digest of the one message that `instance` sends under this number. Its padding follows from it.
pub(crate) fn digest(instance: u32, subgroup: u8, thread: u8, number: u64) -> u64 {
    mix(mix(u64::from(instance) << 16 | u64::from(subgroup) << 8 | u64::from(thread)) ^ number)
}
