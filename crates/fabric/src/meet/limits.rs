//! Every maximum of the rendezvous, with the relations that they must keep.
use spindle_core::limits::MEMBERS_MAX;
use std::time::Duration;

/// Bytes in the name of a group.
pub const GROUP_NAME_BYTES_MAX: usize = 64;
/// How long a process waits before it tries for the lock or the socket again, at first.
pub(crate) const BACK_OFF_MIN: Duration = Duration::from_millis(1);
/// The same after some attempts; each waits twice as long as the one before.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_millis(20);
/// The longest sleep of a meeting, so that a cancellation is noticed in time.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// The least time between two roster updates to one member. A thousand members that arrive at once would otherwise
/// cost a million messages.
pub(super) const TELL_EVERY: Duration = Duration::from_millis(20);
/// The pause before file descriptors are sent again when too many of this user's are on their way.
pub(super) const STARVED_PAUSE: Duration = Duration::from_millis(1);
/// The time that a connection has to say who it is.
pub(super) const HELLO_TIME: Duration = Duration::from_secs(2);
/// Connections accepted in one round of the founder's loop, so that those already there get their turn.
pub(super) const ACCEPTS_PER_ROUND: usize = 16;
/// Connections that a running group's founder hears at once.
pub(super) const NEWCOMERS_MAX: usize = 16;
/// How long a running group's founder leaves its listener alone when it has no descriptor left for a newcomer.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(250);
/// Connections that wait to be accepted.
pub(super) const BACKLOG: i32 = 256;
/// Bytes in one message.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// What each member hands over: row, doorbell, pidfd.
pub(super) const FDS_PER_MEMBER: usize = 3;
/// Members whose descriptors travel in one message.
pub(super) const MEMBERS_PER_PART: usize = 80;

/// Bytes in one letter between mailboxes.
pub(crate) const LETTER_BYTES_MAX: usize = 16 << 10;
/// Descriptors in one letter: a member's row, doorbell and process.
pub(crate) const LETTER_FDS_MAX: usize = FDS_PER_MEMBER;
/// Letters that are no letters which one look into a mailbox throws away, so that whoever floods it does not hold its
/// owner.
pub(crate) const GARBAGE_PER_LOOK: usize = 64;
/// Bytes of a mailbox's own letters that may lie in others' queues; the system may allow less.
pub(crate) const SEND_BUFFER_BYTES: usize = 1 << 20;
/// How long to wait for a group's lock where the caller gave no deadline. Its holders keep it for well under a
/// millisecond, unless they are stopped.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Letters that wait for room in others' queues: some to each of the most members that there can be.
pub(crate) const OUTBOX_LETTERS_MAX: usize = 8 * MEMBERS_MAX;
/// The pause before letters are sent again to somebody whose queue was full; nothing tells when that changes.
pub(crate) const RESEND_PAUSE: Duration = Duration::from_millis(1);
/// Events that the watch takes from the kernel at once.
pub(crate) const EVENTS_PER_WAIT: usize = 64;

/// Connections that a founder of `members` holds during the meeting.
pub(super) const fn connections_max(members: u32) -> usize {
    2 * members as usize + 16
}

// The kernel's SCM_MAX_FD.
const _: () = assert!(MEMBERS_PER_PART * FDS_PER_MEMBER <= 253);
// The longest messages are the lists of who is here (14 bytes a member at most) and of who takes part.
const _: () = assert!(MEMBERS_MAX * 14 + 128 <= MESSAGE_BYTES_MAX);
// The longest letter is the one that lists who is here, 12 bytes each.
const _: () = assert!(MEMBERS_MAX * 12 + 128 <= LETTER_BYTES_MAX);
const _: () = assert!(LETTER_BYTES_MAX < SEND_BUFFER_BYTES);
