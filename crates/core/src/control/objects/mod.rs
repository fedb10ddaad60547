//! The decisions about objects: messages that are too long for a ring
//! ([ADR 0023](../../../../../docs/adr/0023-large-messages-are-announced-when-they-are-everywhere.md),
//! [ADR 0025](../../../../../docs/adr/0025-members-keep-large-messages-for-those-who-follow.md)).
//!
//! State machines, each for one subject. The driver holds memory, streams and threads; the machines hold handles of them, which they
//! never look into.
//!
//! - [`Outgoing`] is what one member sends in one subgroup: how many objects may be under way, where the ring's gate is, what is sent again.
//! - [`ObjectGroups`] are the bulk groups of a view: which member makes which stream, when a group begins, and which member is lost to it.
//! - [`GroupLinks`] are the ways in bulk groups that other members have made before this member asked for them.
//! - A [`Shelf`] has the objects of a view that messages [name](ObjectName), until these are delivered.
//! - [`Kept`] is what a member keeps for processes that follow, and [`Serving`] the order in which it sends that.
//! - [`Fetching`] is the other end: what a process that follows has read and can't yield yet, and which member it asks for the objects.
//!
//! Absent on purpose: the blocks of an object, which are the business of [`bulk`](crate::bulk), and the bytes, which are the driver's.
mod fetching;
mod groups;
mod kept;
mod links;
mod outgoing;
mod serving;
mod shelf;

pub use fetching::{Fetched, Fetching};
pub use groups::{LINK_LOOK, ObjectGroup, ObjectGroups, Remedy, Step};
pub use kept::Kept;
pub use links::GroupLinks;
pub use outgoing::{Outgoing, SHELVED_MAX, SLOTS};
pub use serving::{ObjectOrder, Serving};
pub use shelf::{ObjectName, Shelf};

/// The target of events of objects.
const TARGET: &str = "spindle::object";
