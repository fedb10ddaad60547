//! Every maximum of the log, and how the maxima relate.

/// The number that each file of this format begins with, after its magic.
pub const FORMAT: u32 = 1;
/// The unit in which disks are assumed to write without tearing at best, and that headers occupy.
pub const PAGE_BYTES: u64 = 4096;
/// Every item of a segment begins at a multiple of this.
pub const ALIGNMENT: u64 = 8;
/// The bytes of a record before its payload.
pub const RECORD_HEADER_BYTES: u64 = 32;
/// The bytes of a batch before its first record.
pub const BATCH_HEADER_BYTES: u64 = 48;
/// The bytes of a frame of the journal before its value.
pub(crate) const JOURNAL_HEADER_BYTES: u64 = 64;
/// The longest payload of a record. Longer ones are refused.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 31;
/// The smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 2 * PAGE_BYTES;
/// The largest segment, those of one large record apart.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 34;
/// The most segments that one log has.
pub const SEGMENTS_MAX: u64 = 1 << 20;
/// The most subgroups of one data directory.
pub const SUBGROUPS_MAX: usize = 4096;
/// The most spare segments that one log keeps.
pub const SPARES_MAX: usize = 16;
/// The most pruned segments that one log keeps for use again, if fewer are configured.
pub const RECYCLED_MAX: usize = 4;
/// The longest name of a group, in bytes.
pub const GROUP_NAME_BYTES_MAX: usize = 255;
/// The longest name of a log, in bytes.
pub const LOG_NAME_BYTES_MAX: usize = 64;
/// The most slices that one system call writes.
pub const SLICES_MAX: usize = 512;
/// The bytes that recovery reads at a time.
pub const SCAN_BYTES: usize = 1 << 20;
/// The bytes that a reader reads at a time once it reads in order.
pub const READ_BYTES: usize = 256 << 10;
/// The smallest size of each of the two files of the journal.
pub const JOURNAL_BYTES_MIN: u64 = 32 << 10;
/// The default size of each of the two files of the journal.
pub const JOURNAL_BYTES: u64 = 4 << 20;
/// The largest size of each of the two files of the journal.
pub const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// The longest value in the journal.
pub const JOURNAL_VALUE_BYTES_MAX: usize = 64 << 10;
/// The most kinds of values in the journal.
pub const JOURNAL_KINDS_MAX: usize = 16;
/// The bytes of a snapshot that one checksum covers.
pub const SNAPSHOT_BLOCK_BYTES: usize = 64 << 10;
/// The most damaged places that one verification lists.
pub const FINDINGS_MAX: usize = 1000;
/// The most readers and learners that hold back pruning.
pub const HOLDS_MAX: usize = 1024;

/// The length of a frame of the journal: whole pages.
pub const fn journal_frame_bytes(value: usize) -> u64 {
    (value as u64 + JOURNAL_HEADER_BYTES).next_multiple_of(PAGE_BYTES)
}

const _: () = {
    assert!(RECORD_HEADER_BYTES.is_multiple_of(ALIGNMENT) && BATCH_HEADER_BYTES.is_multiple_of(ALIGNMENT));
    assert!(PAYLOAD_BYTES_MAX < u32::MAX as u64, "a length of u32::MAX marks a batch");
    assert!((SEGMENT_BYTES_MAX + 2 * PAYLOAD_BYTES_MAX) / ALIGNMENT < 1 << 32, "offsets fill 32 bits of the mask");
    assert!(SEGMENT_BYTES_MIN > PAGE_BYTES + BATCH_HEADER_BYTES + RECORD_HEADER_BYTES);
    assert!(SCAN_BYTES as u64 > PAGE_BYTES && READ_BYTES as u64 > PAGE_BYTES);
    // By default a full state, written twice, leaves space for the largest change.
    assert!(2 * (JOURNAL_KINDS_MAX as u64 + 2) * journal_frame_bytes(JOURNAL_VALUE_BYTES_MAX) <= JOURNAL_BYTES);
};
