//! The decisions about objects: messages that are too long for a ring
//! ([ADR 0023](../../../../../docs/adr/0023-large-messages-are-announced-when-they-are-everywhere.md),
//! [ADR 0025](../../../../../docs/adr/0025-members-keep-large-messages-for-those-who-follow.md)).
//!
//! This module consists of state machines, each for one subject. The driver holds memory, streams
//! and threads. The machines hold handles of them, which they never inspect.
//!
//! - [`Outgoing`] contains the objects that one member sends in one subgroup: the number under way,
//!   the position of the ring's gate, and the objects to send again.
//! - [`ObjectGroups`] are the bulk groups of a view: which member makes which stream, when a group
//!   begins, and which member is lost to it.
//! - [`GroupLinks`] are the bulk connections that other members have made before this member asked
//!   for them.
//! - A [`ObjectTable`] is a table of the objects of a view that messages [name](ObjectName), until these
//!   messages are delivered.
//! - [`ObjectCache`] is a member's cache of objects for observers, and [`ObjectServer`] the order in which it
//!   sends them.
//! - [`Fetching`] is the observer's side: the messages that it has read and can't yield yet, and
//!   the member that it asks for the objects.
//!
//! Absent on purpose: the blocks of an object, which [`bulk`](crate::rdmc) handles, and the bytes,
//! which the driver holds.
mod fetching;
mod groups;
mod links;
mod object_cache;
mod object_server;
mod object_table;
mod outgoing;

pub use fetching::{Fetched, Fetching};
pub use groups::{GroupStep, LINK_LOOK, ObjectGroup, ObjectGroups, Remedy};
pub use links::GroupLinks;
pub use object_cache::ObjectCache;
pub use object_server::{ObjectOrder, ObjectServer};
pub use object_table::{ObjectName, ObjectTable};
pub use outgoing::{Outgoing, SLOTS, TABLE_OBJECTS_MAX};

/// The target of events of objects.
const TARGET: &str = "spindle::object";
