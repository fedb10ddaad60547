//! The directory of a domain: its participants, topics, types, endpoints and policies, and all that follows
//! from them.
//!
//! [`Directory`] is a state machine. All participants apply the same [`DirectoryCommand`]s in the same order,
//! so all have the same directory at the same [version](Directory::version), and no other exchange takes
//! place: both sides of a pair compute the same match, or the same reasons against it. The changes that
//! follow from a command are [`DirectoryEvent`]s, in one order at all participants.
//!
//! - **Matches** are a function of the entries (INV-DIRECTORY): a directory that is made at once from the
//!   entries has the same matches as one that grew. So a snapshot has the entries only.
//! - **Order domains.** A topic is bound to an order domain when its first writer comes, and as long as it has
//!   an endpoint. The topics of a publisher with GROUP access have one domain. [`DomainPlan`] says which
//!   processes are members of its subgroup, which send, and which only observe.
//! - **Types** travel as type objects (XTypes 7.3.4), and stay as long as an entity refers to them.
//!
//! **Absent on purpose:** `ignore_*` and listeners, which concern one participant, and the expiry of
//! processes, which the group decides.
mod command;
#[allow(clippy::module_inception)]
mod directory;
mod domain;
mod entry;
mod error;
mod event;
mod pairs;
mod plan;
mod replica;
mod stored;
mod types;

pub use command::{DirectoryCommand, EntityChange};
pub use directory::{Applied, Directory};
pub use entry::{ParticipantEntry, ReaderEntry, TopicEntry, WriterEntry};
pub use error::DirectoryError;
pub use event::DirectoryEvent;
pub use plan::{DomainPlan, StreamKind};
pub use replica::{DirectoryMessage, DirectoryMessageError, DirectoryReplica};
