//! The limits that all members of a group have to agree on, and when snapshots are written.
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The settings of an object. All members give the same ones: they are part of the
/// [fingerprint](crate::fingerprint). The settings of snapshots are those of one member, and are not.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Settings {
    /// The time without a call after which a session expires, in the time of the log. A call can be
    /// repeated, and its outcome can be asked for, that long. A higher value keeps more replies.
    /// Default: one hour.
    pub session_idle: Duration,
    /// The most sessions. One more replaces the session that was used least recently. Each process
    /// has one. Default: 1024.
    pub sessions_max: u32,
    /// How many calls of a session have a kept outcome, which is also how many calls a process may
    /// have on the way. Default: 256.
    pub calls_kept: u32,
    /// The longest reply that is kept, in bytes. The outcome of a call with a longer reply is kept
    /// without the reply. Default: 4096.
    pub reply_bytes_max: u32,
    /// The most bytes of replies that are kept in all sessions together. Default: 16 MiB.
    pub replies_bytes_max: u64,
    /// The number of commands after which members compare digests of their states; 0 never. If a
    /// member differs, a lower value tells more precisely since which command. Each comparison encodes
    /// the whole state on the polling thread of every member, which also sends a message. Default: 0.
    pub digest_every: u64,
    /// The bytes by which the log of a durable object grows between two snapshots of the object on this
    /// member's disk; 0: snapshots do not depend on bytes. An object whose last snapshot is larger is
    /// written when its log has grown by that size. A lower value makes a restart faster; each
    /// snapshot reads the one before, executes the commands since once more, on a thread of its own, and
    /// needs memory for another copy of the object and its encoded form. Default: 64 MiB.
    #[serde(skip)]
    pub snapshot_every_bytes: u64,
    /// The calls between two snapshots; 0: snapshots do not depend on calls. With 0 for both, none are
    /// written. Default: 0.
    #[serde(skip)]
    pub snapshot_every_commands: u64,
    /// Whether this member prunes its log up to the older of its two newest snapshots. Reads of
    /// earlier states, and a start from a log without snapshots, then are not possible. Default: true.
    #[serde(skip)]
    pub prunes_log: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            session_idle: Duration::from_secs(3600),
            sessions_max: 1024,
            calls_kept: 256,
            reply_bytes_max: 4096,
            replies_bytes_max: 16 << 20,
            digest_every: 0,
            snapshot_every_bytes: 64 << 20,
            snapshot_every_commands: 0,
            prunes_log: true,
        }
    }
}
