//! The control plane: all that a process decides about the processes of its group, as state machines without I/O
//! ([ADR 0036](../../../../docs/adr/0036-the-control-plane-is-a-state-machine.md)).
//!
//! A driver passes on what has arrived and what the time is, and carries out orders: the crate `spindle`, or the simulator.
//!
//! - A [`Roster`] is what a process knows of the others; its [`Book`] says where those of other hosts are, and the [`Seeds`] where to look for them.
//! - A process that looks for its group [seeks](Seek) it: it may be its [`Founder`]. Between hosts [`Bootstrap`] decides which processes found it.
//! - [`Install`] is a view that has not begun here.
//! - A [`Member`] goes from view to view. It admits processes by [`Joins`], refuses duplicate ids by [`Namesakes`], and dials broken streams
//!   again by [`Redials`].
//! - Messages that no ring holds go as objects. Members send them by [`Outgoing`] and [`ObjectGroups`]; processes that follow get them by [`Kept`], [`Serving`]
//!   and [`Fetching`].
//! - A process that is no member [follows](Follow) the group: an observer, or a process that [learns](Learn) the state of the application before it joins.
//!
//! Control messages are here, too, as data and bytes: a [`Letter`] between processes, whichever way it goes, the [`Card`] and the [`Purpose`] of
//! a connection, and [`Told`], a view with what a process needs that joins it. Whatever the bytes, decoding answers and never panics.
//!
//! Absent on purpose: sockets, files, clocks, randomness. The incarnation of a group is derived from bits that the driver drew.
mod address;
mod birth;
mod book;
mod bootstrap;
mod bootstrapping;
pub mod bytes;
mod card;
mod follow;
mod founder;
mod install;
mod instance;
mod joins;
mod learn;
mod letter;
mod member;
mod namesakes;
mod objects;
mod port;
mod rack;
mod readmissions;
mod redials;
mod roster;
mod seeds;
mod seek;
mod told;

use core::time::Duration;

pub use address::{Address, AddressError, Place};
pub use birth::Birth;
pub use book::{Book, DialError};
pub use bootstrap::{
    Ballot, Bootstrap, Founding, Incarnation, Message, Need, Output, Record, SeedList, SeedState, Setup, To, Waiting,
};
pub use bootstrapping::{Act, Bootstrapping, Waits};
pub use card::{Card, Purpose};
pub use follow::{Follow, FollowError, RowsState, ViewStart};
pub use founder::Founder;
pub use install::{Begun, INSTALL_LOOK, Install};
pub use instance::Instance;
pub use joins::Joins;
pub use learn::{Attempts, CAUGHT_UP, Learn, LearnError, Restored, STATE_WAIT};
pub use letter::{Letter, Refusal, Request, Stranger, VERSION, Wanted, stranger};
pub use member::{Heard, Member, Terms, Words};
pub use namesakes::Namesakes;
pub use objects::{
    Fetched, Fetching, GroupLinks, Kept, LINK_LOOK, ObjectGroup, ObjectGroups, ObjectName, ObjectOrder, Outgoing,
    Remedy, SHELVED_MAX, SLOTS, Serving, Shelf, Step,
};
pub use port::PortAddress;
pub use rack::{RackName, RackNameError};
pub use readmissions::Readmissions;
pub use redials::{Failure, Redials};
pub use roster::{Arrival, Asks, Me, News, Order, Roster};
pub use seeds::{CLAIM_FOR, Claim, Seeds, SeedsKnown, Unreached, mistake};
pub use seek::{Found, Here, Seek, Wants};
pub use told::{HostProcess, Told};

/// The interval at which a process that waits repeats its question.
pub const ASK_EVERY: Duration = Duration::from_millis(200);

/// The digest that an observer shows which takes any group of this version, whose rows it can read, as it is.
pub const ANY_CONFIG: u64 = {
    // FNV-1a.
    let (text, mut hash, mut at) =
        (concat!("any ", env!("CARGO_PKG_VERSION")).as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while at < text.len() {
        hash = (hash ^ text[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
};

/// Whether a process with the configuration `theirs` is let in by one with `mine`; or may follow it, if it is an `observer`.
pub const fn admits(mine: u64, theirs: u64, observer: bool) -> bool {
    mine == theirs || (observer && theirs == ANY_CONFIG)
}
