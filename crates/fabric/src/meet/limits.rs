//! Every maximum of the rendezvous, with the relations that they must keep.
use spindle_core::limits::MEMBERS_MAX;
use std::time::Duration;

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

/// Connections that a founder of `members` holds during the meeting.
pub(super) const fn connections_max(members: u32) -> usize {
    2 * members as usize + 16
}

// The kernel's SCM_MAX_FD.
const _: () = assert!(MEMBERS_PER_PART * FDS_PER_MEMBER <= 253);
// The longest messages are the lists of who is here (14 bytes a member at most) and of who takes part.
const _: () = assert!(MEMBERS_MAX * 14 + 128 <= MESSAGE_BYTES_MAX);
