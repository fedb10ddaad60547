//! Every maximum and every deadline of the connections between hosts, with the relations that must
//! hold between them.
use crate::rendezvous::limits::GROUP_NAME_BYTES_MAX;
use spindle_core::limits::{ADDRESS_BYTES_MAX, CONTROL_MESSAGE_BYTES_MAX, MEMBERS_MAX, RACK_BYTES_MAX};
use std::time::Duration;

/// Bytes in a hello, or in the answer to one, without their heads.
pub(super) const HELLO_BYTES_MAX: usize = 1024;
/// Bytes in the attachment of a control message; a view with the most members needs fewer.
pub(super) const ATTACHMENT_BYTES_MAX: usize = 64 << 20;

/// The time to resolve a name, and again the time to establish a connection.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// The time within which a connected process must say who it is, TLS included.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(2);
/// The time after which the next address of a name is tried beside those that have not answered.
pub(super) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// The time after which an address that has not answered is tried again, if no other is left. It
/// doubles with each try, up to [`NEXT_ADDRESS_AFTER`].
pub(super) const REPEAT_AFTER: Duration = Duration::from_millis(50);
/// The number of further sockets that connect to one address at the same time.
pub(super) const REPEATS_MAX: usize = 3;
/// Addresses of a name that are tried.
pub(super) const ADDRESSES_MAX: usize = 8;
/// Addresses of a name that are looked at.
pub(super) const NAME_ADDRESSES_MAX: usize = 4 * MEMBERS_MAX;
/// Names that are resolved at the same time; others wait for their turn.
pub(super) const RESOLVING_MAX: usize = 8;
/// The time without a connection after which control messages are given up.
pub(super) const CONTROL_MESSAGES_DEADLINE: Duration = Duration::from_secs(5);
/// The first pause before a control connection is tried again.
pub(super) const BACK_OFF_MIN: Duration = Duration::from_millis(20);
/// The longest such pause; each is twice as long as the one before.
pub(super) const BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// The time for control messages to leave after an endpoint was dropped.
pub(super) const FAREWELL: Duration = Duration::from_millis(200);
/// The pause after the system refused to accept a connection, for lack of descriptors or memory.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Connections of one [kind](super::half_open) that have not said hello. For each one more, another
/// is closed.
pub(super) const HALF_OPEN_MAX: usize = 256;
/// The same from one address that belongs to no peer.
pub(super) const SOURCE_HALF_OPEN_MAX: usize = HALF_OPEN_MAX / 2;
/// Connections accepted before the turn of those that are open.
pub(super) const ACCEPTS_MAX: usize = 64;
/// Connections that wait in the system's queue.
pub(super) const BACKLOG: i32 = MEMBERS_MAX as i32;
/// Control connections from others.
pub(super) const INLETS_MAX: usize = 2 * MEMBERS_MAX;
/// Liveness connections. Two processes that dial each other at the same time have two.
pub(super) const LIVES_MAX: usize = 2 * MEMBERS_MAX;
/// The process behind a connection that has ended answers on a new one within this time plus this
/// many round trips. The first lets a busy machine run the threads of both sides; the second covers
/// the connection and TLS.
pub(super) const ANSWER_MIN: Duration = Duration::from_millis(5);
pub(super) const ANSWER_ROUND_TRIPS: u32 = 8;
/// How often a watched process says that nothing has happened, because devices on the path may end
/// idle connections.
pub(super) const STILL_EVERY: Duration = Duration::from_secs(15);
/// Control messages that wait for one address.
pub(super) const QUEUE_CONTROL_MESSAGES_MAX: usize = 1024;
/// Bytes in them.
pub(super) const QUEUE_BYTES_MAX: usize = 128 << 20;
/// Commands of callers that the thread has not looked at.
pub(super) const COMMANDS_MAX: usize = 1 << 16;
/// Bytes of control messages in those commands.
pub(super) const COMMAND_BYTES_MAX: usize = 512 << 20;
/// If this many events wait, or the bytes below, nothing more is read until they are taken.
pub(super) const EVENTS_MAX: usize = 4096;
/// Bytes in events.
pub(super) const EVENT_BYTES_MAX: usize = 256 << 20;
/// Bytes of all control messages that have arrived in part; a connection that brings more is
/// closed.
pub(super) const ARRIVING_BYTES_MAX: usize = 512 << 20;
/// Bytes read from one connection before the others' turn.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Reads from one connection before the others' turn.
pub(super) const READS_MAX: usize = 16;
/// Control messages handed to the system at once.
pub(super) const CONTROL_MESSAGES_PER_SEND: usize = 8;
/// Calls to send on one connection before the others' turn.
pub(super) const SENDS_MAX: usize = 64;
/// Events taken from the system at once.
pub(super) const EVENTS_PER_WAIT: usize = 64;

const _: () = assert!(ADDRESS_BYTES_MAX + GROUP_NAME_BYTES_MAX + RACK_BYTES_MAX + 200 <= HELLO_BYTES_MAX);
// An empty queue always has room for a control message with the largest attachment.
const _: () = assert!(ATTACHMENT_BYTES_MAX + CONTROL_MESSAGE_BYTES_MAX < QUEUE_BYTES_MAX);
const _: () = assert!(QUEUE_BYTES_MAX <= COMMAND_BYTES_MAX);
const _: () = assert!(ATTACHMENT_BYTES_MAX + CONTROL_MESSAGE_BYTES_MAX < ARRIVING_BYTES_MAX);
const _: () = assert!(ATTACHMENT_BYTES_MAX < u32::MAX as usize);
// A connection is read from before it can be the oldest of its source.
const _: () = assert!(ACCEPTS_MAX < SOURCE_HALF_OPEN_MAX);
