//! How the processes of one user on one host are a group whose members come and go, without a daemon: each has a
//! [`Mailbox`] in the user's private [`RuntimeDir`], and they write [`Letter`](spindle_core::control::Letter)s to each other. Start reading at
//! [`found_or_find`].
//!
//! What travels is descriptors of memory and processes, never names. So nothing outlives the processes but, after a crash, a lock file of 24
//! bytes and sockets that nobody answers at; the next process that starts removes them.
//!
//! What holds:
//! - *One group of a name.* A process founds a group, or becomes a member of one, only under the group's lock; it founds
//!   one only while no member lives; and it becomes a member only of the group that was founded last. So there are never two
//!   groups with living members, whoever died when, the founder too, and whatever is removed: the lock and the members' marks
//!   have names in the kernel beside their files.
//! - *A path proves nothing.* A process without an address can't be written to. Only its pidfd tells whether it has ended.
//! - *Processes that have written to each other* reach each other without the directory: they hold each other's sockets.
//! - *Nothing blocks for long.* The lock is held for a moment and ends with its process. Sending and receiving do not wait.
//! - *A letter that was sent stays,* even if its sender dies, until the receiver reads it or dies.
//! - *Bytes cost only their sender.* What is no letter, or has another sender than it says (the kernel knows), is dropped
//!   with its descriptors.
//!
//! This is not membership: who is in a view is decided by the members, in their shared memory.
mod dir;
mod enclosure;
mod error;
pub(crate) mod kernel;
pub(crate) mod limits;
mod living;
mod mailbox;
mod outbox;
mod place;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

pub use dir::{DirError, GroupName, NameError, RuntimeDir};
pub use enclosure::{disclose, enclose};
pub use error::MailError;
pub use kernel::{Fate, fate, own_birth};
pub use mailbox::{Delivery, Dropped, Mailbox, found_or_find};
pub use outbox::Outbox;
use spindle_core::MemberId;
pub use watch::{Notice, Watch};

/// The target of events on one host.
const TARGET: &str = "spindle::mail";

/// What a process is that has just taken its address.
#[derive(Debug)]
pub enum Role {
    /// No member lived: it is the first one of a new group.
    Founder {
        /// Its address.
        mailbox: Mailbox,
        /// Random, new for each group.
        incarnation: u128,
    },
    /// It may [ask](spindle_core::control::Letter::Ask) to join.
    Joiner {
        /// Its address.
        mailbox: Mailbox,
        /// Whom to ask, by ascending id. At least one.
        members: Vec<MemberId>,
    },
}

/// What a process is that had its address already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// No member lived: it is the first one of a new group.
    Founder {
        /// Random, new for each group.
        incarnation: u128,
    },
    /// It may [ask](spindle_core::control::Letter::Ask) to join.
    Joiner {
        /// Whom to ask, by ascending id. At least one.
        members: Vec<MemberId>,
    },
}
