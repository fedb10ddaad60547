//! Every maximum and every deadline of what is between hosts, with the relations that they must keep.
use crate::mail::limits::GROUP_NAME_BYTES_MAX;
use spindle_core::limits::{ADDRESS_BYTES_MAX, LETTER_BYTES_MAX, MEMBERS_MAX, RACK_BYTES_MAX};
use std::time::Duration;

/// Bytes in a hello, or in the answer to one, without their heads.
pub(super) const HELLO_BYTES_MAX: usize = 1024;
/// Bytes in what goes with a letter; views of the most members have less.
pub(super) const ENCLOSURE_BYTES_MAX: usize = 64 << 20;

/// How long a name may take to be resolved, and then a connection to come about.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// How long who is connected may take to say who it is, TLS included.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(2);
/// After so long the next of a name's addresses is tried beside those that have not answered.
pub(super) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// So often one that has not answered is tried once more, after as long.
pub(super) const REPEATS_MAX: usize = 3;
/// Of a name's addresses, so many are tried.
pub(super) const ADDRESSES_MAX: usize = 8;
/// So many of them are looked at.
pub(super) const NAME_ADDRESSES_MAX: usize = 4 * MEMBERS_MAX;
/// Names that are resolved at the same time; others wait for their turn.
pub(super) const RESOLVING_MAX: usize = 8;
/// Letters that find no connection for so long are given up.
pub(super) const LETTERS_DEADLINE: Duration = Duration::from_secs(5);
/// The pause before a mail connection is tried again, at first.
pub(super) const BACK_OFF_MIN: Duration = Duration::from_millis(20);
/// The same after some attempts; each is twice as long as the one before.
pub(super) const BACK_OFF_MAX: Duration = Duration::from_secs(1);
/// How long letters may still leave after an endpoint was dropped.
pub(super) const FAREWELL: Duration = Duration::from_millis(200);
/// The pause after the system refused to accept a connection, for want of descriptors or memory.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Connections of one [kind](super::crowd) that have not said hello. For each further one another is closed.
pub(super) const HALF_OPEN_MAX: usize = 256;
/// The same from one address that belongs to no peer.
pub(super) const SOURCE_HALF_OPEN_MAX: usize = HALF_OPEN_MAX / 2;
/// Connections accepted before the turn of those that are open.
pub(super) const ACCEPTS_MAX: usize = 64;
/// Connections that wait in the system's queue.
pub(super) const BACKLOG: i32 = MEMBERS_MAX as i32;
/// Mail connections from others.
pub(super) const INLETS_MAX: usize = 2 * MEMBERS_MAX;
/// Connections that tell of deaths: two who dial each other at once have two.
pub(super) const LIVES_MAX: usize = 2 * MEMBERS_MAX;
/// The process behind a connection that has ended answers on a new one within this and so many round trips: what a busy machine needs to let the
/// threads of both sides run, and what the connection and TLS need.
pub(super) const ANSWER_MIN: Duration = Duration::from_millis(5);
pub(super) const ANSWER_ROUND_TRIPS: u32 = 8;
/// How often who is watched says that nothing has happened, for the sake of what stands between and ends connections that are idle.
pub(super) const STILL_EVERY: Duration = Duration::from_secs(15);
/// Letters that wait for one address.
pub(super) const QUEUE_LETTERS_MAX: usize = 1024;
/// Bytes in them.
pub(super) const QUEUE_BYTES_MAX: usize = 128 << 20;
/// What callers have asked for and the thread has not looked at.
pub(super) const COMMANDS_MAX: usize = 1 << 16;
/// Bytes of letters in that.
pub(super) const COMMAND_BYTES_MAX: usize = 512 << 20;
/// With so many events, or so many bytes in them, nothing more is read until they are taken.
pub(super) const EVENTS_MAX: usize = 4096;
/// Bytes in events.
pub(super) const EVENT_BYTES_MAX: usize = 256 << 20;
/// Bytes of all letters that have arrived in part; a connection that brings more is closed.
pub(super) const ARRIVING_BYTES_MAX: usize = 512 << 20;
/// Bytes read from one connection before the others' turn.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Reads from one connection before the others' turn.
pub(super) const READS_MAX: usize = 16;
/// Letters handed to the system at once.
pub(super) const LETTERS_PER_SEND: usize = 8;
/// Calls to send on one connection before the others' turn.
pub(super) const SENDS_MAX: usize = 64;
/// Events taken from the system at once.
pub(super) const EVENTS_PER_WAIT: usize = 64;

const _: () = assert!(ADDRESS_BYTES_MAX + GROUP_NAME_BYTES_MAX + RACK_BYTES_MAX + 200 <= HELLO_BYTES_MAX);
// Whatever waits, a letter with the largest enclosure finds an empty queue large enough.
const _: () = assert!(ENCLOSURE_BYTES_MAX + LETTER_BYTES_MAX < QUEUE_BYTES_MAX);
const _: () = assert!(QUEUE_BYTES_MAX <= COMMAND_BYTES_MAX);
const _: () = assert!(ENCLOSURE_BYTES_MAX + LETTER_BYTES_MAX < ARRIVING_BYTES_MAX);
const _: () = assert!(ENCLOSURE_BYTES_MAX < u32::MAX as usize);
// A connection is read from before it can be the oldest of its source.
const _: () = assert!(ACCEPTS_MAX < SOURCE_HALF_OPEN_MAX);
