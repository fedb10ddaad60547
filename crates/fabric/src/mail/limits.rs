//! Every maximum of the mail, with the relations that they must keep.
use spindle_core::limits::{LETTER_BYTES_MAX, MEMBERS_MAX};
use std::time::Duration;

/// Bytes in the name of a group.
pub(crate) const GROUP_NAME_BYTES_MAX: usize = 64;
/// How long a process waits before it tries for the lock again, at first.
pub(super) const BACK_OFF_MIN: Duration = Duration::from_millis(1);
/// The same after some attempts; each waits twice as long as the one before.
pub(super) const BACK_OFF_MAX: Duration = Duration::from_millis(20);
/// Descriptors in one letter: a member's memory, doorbell, process, the lease of its row, and its doorbell's eventfd.
pub(super) const LETTER_FDS_MAX: usize = 5;
/// Letters that are no letters which one look into a mailbox throws away, so that whoever floods it does not hold its
/// owner.
pub(super) const GARBAGE_PER_LOOK: usize = 64;
/// Bytes of a mailbox's own letters that may lie in others' queues; the system may allow less.
pub(super) const SEND_BUFFER_BYTES: usize = 1 << 20;
/// How long to wait for a group's lock where the caller gave no deadline. Its holders keep it for a millisecond or two, unless they are stopped; hundreds
/// of processes may want it at once.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Letters that wait for room in others' queues: some to each of the most members that there can be.
pub(super) const OUTBOX_LETTERS_MAX: usize = 8 * MEMBERS_MAX;
/// The pause before letters are sent again to somebody whose queue was full; nothing tells when that changes.
pub(super) const RESEND_PAUSE: Duration = Duration::from_millis(1);
/// The longest such pause. Each is twice as long as the one before, and half as long after a success.
pub(super) const FULL_PAUSE_MAX: Duration = Duration::from_millis(16);
/// The longest pause before letters are sent again to a process without an address; each is twice as long as the one before.
pub(super) const UNREACHED_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Letters that are kept for a process without an address; the oldest are dropped.
pub(super) const UNREACHED_LETTERS_MAX: usize = 64;
/// How often the watch looks whether others still find this process's address.
pub(super) const PLACE_LOOK: Duration = Duration::from_secs(2);
/// How often something is tried again because the directory was removed meanwhile.
pub(super) const VANISHES_MAX: u32 = 16;
/// A mailbox's sockets whose names were removed.
pub(super) const OLD_SOCKETS_MAX: usize = 2;
/// Events that the watch takes from the kernel at once.
pub(super) const EVENTS_PER_WAIT: usize = 64;

const _: () = assert!(LETTER_BYTES_MAX < SEND_BUFFER_BYTES);
