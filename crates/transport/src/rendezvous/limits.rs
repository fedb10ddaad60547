//! Every maximum of the rendezvous on one host, with the relations that must hold between them.
use spindle_core::limits::{CONTROL_MESSAGE_BYTES_MAX, MEMBERS_MAX};
use std::time::Duration;

/// Bytes in the name of a group.
pub(crate) const GROUP_NAME_BYTES_MAX: usize = 64;
/// The first pause before a process tries again to take the lock.
pub(super) const BACK_OFF_MIN: Duration = Duration::from_millis(1);
/// The longest such pause; each is twice as long as the one before.
pub(super) const BACK_OFF_MAX: Duration = Duration::from_millis(20);
/// Descriptors in one control message: a member's memory, doorbell, process, the lease of its row,
/// and its doorbell's eventfd.
pub(super) const CONTROL_MESSAGE_FDS_MAX: usize = 5;
/// Invalid control messages that one look into a control socket discards, so that a flood does not
/// occupy its owner.
pub(super) const GARBAGE_PER_LOOK: usize = 64;
/// Bytes of a process's own control messages that may be in others' queues; the system may allow
/// less.
pub(super) const SEND_BUFFER_BYTES: usize = 1 << 20;
/// How long to wait for a group's lock if the caller gave no deadline. A holder keeps it for a
/// millisecond or two, unless it is stopped; hundreds of processes may want it at the same time.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(10);
/// The number of members up to which a process that looks for the group asks all whether they live.
pub(super) const CENSUS_MAX: usize = 32;
/// How often a process that waits for the lock checks whether the wait was cancelled.
pub(super) const LOCK_TICK: Duration = Duration::from_millis(20);
/// Control messages that wait for room in others' queues: some to each of the most members that are
/// possible.
pub(super) const OUTBOX_CONTROL_MESSAGES_MAX: usize = 8 * MEMBERS_MAX;
/// The first pause before control messages are sent again to a process whose queue was full. No
/// event reports when that changes.
pub(super) const RESEND_PAUSE: Duration = Duration::from_millis(1);
/// The longest such pause. Each is twice as long as the one before, and half as long after a
/// success.
pub(super) const FULL_PAUSE_MAX: Duration = Duration::from_millis(16);
/// The longest pause is once more as long for so many processes whose queues are full.
pub(super) const FULL_PER_PAUSE: u32 = 8;
/// The longest pause before control messages are sent again to a process without an address; each
/// is twice as long as the one before.
pub(super) const UNREACHED_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Control messages that are kept for a process without an address; the oldest are dropped.
pub(super) const UNREACHED_CONTROL_MESSAGES_MAX: usize = 64;
/// How often the watch checks whether others still find this process's address.
pub(super) const PLACE_LOOK: Duration = Duration::from_secs(2);
/// How often an action is repeated because the directory was removed meanwhile.
pub(super) const VANISHES_MAX: u32 = 16;
/// Sockets of a process whose names were removed.
pub(super) const OLD_SOCKETS_MAX: usize = 2;
/// Events that the watch takes from the kernel at once.
pub(super) const EVENTS_PER_WAIT: usize = 64;

const _: () = assert!(CONTROL_MESSAGE_BYTES_MAX < SEND_BUFFER_BYTES);
/// The most other groups whose remains a process looks for when it creates a group.
pub(super) const SWEPT_MAX: usize = 64;
