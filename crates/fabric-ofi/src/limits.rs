//! The limits of connections: slots for messages, operations in flight, and events that wait.

/// Messages with a slot of their own that a peer may have received and not taken in.
pub(crate) const POSTS_MAX: u64 = 16;
/// After this many posts were taken in, credit is sent to their sender, if no other message carries
/// it.
pub(crate) const CREDIT_STEP: u64 = POSTS_MAX / 2;
/// Slots for incoming messages: those for posts; those for messages of credit only, of which at
/// most two were not taken in, as each reports a step; one for the last message; and one more.
pub(crate) const RECEIVES: u64 = POSTS_MAX + POSTS_MAX / CREDIT_STEP + 2;
/// Slots for messages being sent.
pub(crate) const SENDS: u64 = RECEIVES;
/// Operations of one connection in flight.
pub(crate) const SENDS_MAX: u64 = 128;
/// The smallest number of these that is sufficient.
pub(crate) const QUEUE_MIN: u64 = 8;
/// Bytes of one write.
pub(crate) const WRITE_BYTES_MAX: u64 = 1 << 30;
/// Completions that are taken at once.
pub(crate) const COMPLETIONS: usize = 16;
/// Events that are handled in one call.
pub(crate) const EVENTS_MAX: u32 = 64;
/// The largest number of events that wait in one tray; calls beyond that are refused.
pub(crate) const TRAY_EVENTS_MAX: usize = 64;
/// Distance of the places that are touched so that memory is there.
pub(crate) const PAGE_BYTES: usize = 4096;

const _: () = assert!(RECEIVES + SENDS <= 1 << 8, "slots fit into contexts");
