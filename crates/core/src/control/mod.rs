//! The control plane: the decisions of a process about the other processes of its group, as state
//! machines without I/O
//! ([ADR 0036](../../../../docs/adr/0036-the-control-plane-is-a-state-machine.md)).
//!
//! A driver reports what has arrived and the current time, and carries out orders. The driver is
//! the crate `spindle` or the simulator.
//!
//! - A [`Roster`] is a process's knowledge of the others. Its [`Book`] holds the addresses of
//!   processes on other hosts, and the [`Seeds`] are the addresses at which it looks for them.
//! - A process that looks for its group [seeks](Seek) it, and may be its [`Founder`]. Between hosts
//!   [`Bootstrap`] decides which processes create it.
//! - [`Restart`] decides, after all processes of a group have ended, with which members it
//!   continues.
//! - [`Install`] is a view that has not begun here.
//! - A [`Member`] moves from view to view. It admits processes by [`Joins`], refuses duplicate ids
//!   by [`IdConflicts`], and dials broken streams again by [`Redials`].
//! - Messages that no ring holds are sent as objects. Members send them by [`Outgoing`] and
//!   [`ObjectGroups`]. Observers get them by [`ObjectCache`], [`ObjectServer`] and [`Fetching`].
//! - A member whose log lacks records gets them from others by [`CatchUp`].
//! - Members ask the applications of others by [`Queries`].
//! - A process that is no member [follows](Follow) the group: an observer, or a process that
//!   [learns](Learn) the state of the application before it joins.
//!
//! This module also contains the control messages, as data and as bytes: a [`ControlMessage`]
//! between processes on the same or on different hosts, the [`Card`] and the [`Purpose`] of a
//! connection, and [`ViewAnnouncement`], the announcement of a view to a joiner. Decoding never
//! panics, whatever the bytes are.
//!
//! Absent on purpose: sockets, files, clocks, randomness. The incarnation of a group is derived
//! from random bits that the driver draws.
mod adoption;
mod book;
mod bootstrap;
mod bootstrapping;
mod card_words;
mod catch_up;
mod clock_refusals;
mod follow;
mod founder;
mod id_conflicts;
mod install;
mod instance;
mod joins;
mod learn;
mod member;
mod objects;
mod queries;
mod readmissions;
mod redials;
mod restart;
mod roster;
mod seeds;
mod seek;
mod view_announcement;

use core::time::Duration;

pub use crate::wire::{
    Address, AddressError, Birth, Card, ControlMessage, Difference, Endpoint, NoAnswer, NoRecords, PortAddress,
    Purpose, RackName, RackNameError, RecordBound, Refusal, Request, SharedSettings, Stranger, VERSION, Wanted,
    WantedRecords, stranger,
};
pub use adoption::Adoption;
pub use book::{Book, DialError};
pub use bootstrap::{
    Bootstrap, BootstrapBallot, BootstrapMessage, BootstrapOutput, BootstrapRecord, BootstrapWait, Incarnation,
    InitialView, Need, SeedList, SeedState, Setup, To,
};
pub use bootstrapping::{Act, Bootstrapping, SeedWait};
pub use catch_up::{
    CatchUp, CatchUpAim, CatchUpEnd, CatchUpFailure, LogCompleteness, RECORD_STREAMS_MAX, RecordGap, RecordOrder,
    RecordStreamEnd,
};
pub use follow::{Follow, FollowError, RowsState, ViewStart};
pub use founder::Founder;
pub use id_conflicts::IdConflicts;
pub use install::{Begun, INSTALL_LOOK, Install};
pub use instance::Instance;
pub use joins::Joins;
pub use learn::{Attempts, CAUGHT_UP, Learn, LearnError, Restored, STATE_WAIT};
pub use member::{Declined, Heard, Member, Terms, Words};
pub use objects::{
    Fetched, Fetching, GroupLinks, GroupStep, LINK_LOOK, ObjectCache, ObjectGroup, ObjectGroups, ObjectName,
    ObjectOrder, ObjectServer, ObjectTable, Outgoing, Remedy, SLOTS, TABLE_OBJECTS_MAX,
};
pub use queries::{NotAsked, QUERIES_MAX, Queries, QueryAnswer, QueryOrder};
pub use readmissions::Readmissions;
pub use redials::{Failure, Redials};
pub use restart::{
    LogOrigin, LogState, LongestLog, Restart, RestartBallot, RestartMessage, RestartOutput, RestartRecord,
    RestartSetup, RestartTo, RestartView, RestartWait,
};
pub use roster::{Arrival, Asks, ControlEvent, Me, Question, Roster, RosterOrder};
pub use seeds::{CLAIM_FOR, SeedClaim, Seeds, SeedsKnown, Unreached, mistake};
pub use seek::{FoundGroup, Here, Seek, Wants};
pub use view_announcement::{HostProcess, ViewAnnouncement};

/// The interval at which a waiting process repeats its question.
pub const ASK_EVERY: Duration = Duration::from_millis(200);

/// The configuration digest of an observer that accepts any configuration: it can read the rows of
/// every group of this version.
pub const ANY_CONFIG: u64 = {
    // FNV-1a.
    let (text, mut hash, mut at) = (b"any", 0xcbf2_9ce4_8422_2325_u64, 0);
    while at < text.len() {
        hash = (hash ^ text[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
};

/// True if a process with the configuration `mine` admits one with `theirs`, or lets it observe if
/// it is an `observer`.
pub const fn admits(mine: u64, theirs: u64, observer: bool) -> bool {
    mine == theirs || (observer && theirs == ANY_CONFIG)
}
