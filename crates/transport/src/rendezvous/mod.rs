//! The rendezvous of processes on one host. Processes of one user form a group whose members come
//! and go, without a daemon. Each process has a control socket, its [`ControlSocket`], in the
//! user's private [`RuntimeDir`]. The processes send each other control messages,
//! [`spindle_core::control::ControlMessage`]. Start reading at [`found_or_find`].
//!
//! Control messages carry descriptors of memory and processes, never names. So nothing outlives the
//! processes except, after a crash, a lock file of 24 bytes and sockets at which no process
//! answers. The next process that starts removes them.
//!
//! Invariants:
//! - *One group of a name.* A process creates a group, or becomes a member of one, only under the
//!   group's lock. It creates one only while no member lives, and it becomes a member only of the
//!   group that was created last. So there are never two groups with live members, whichever
//!   process died at whatever time, the founder too, and whatever is removed: the lock and the
//!   members' marks have names in the kernel beside their files.
//! - *A path proves nothing.* Nothing can be sent to a process without an address. Only its pidfd
//!   shows whether it has ended.
//! - *Processes that have sent to each other* reach each other without the directory: they hold
//!   each other's sockets.
//! - *Nothing blocks for long.* The lock is held for a moment and ends with its process. Sending
//!   and receiving do not wait.
//! - *A control message that was sent stays,* even if its sender dies, until the receiver reads it
//!   or dies.
//! - *Bytes cost only their sender.* Bytes that are no control message are dropped with their
//!   descriptors. So are control messages with another sender than they say, which the kernel
//!   knows.
//!
//! This is not membership: the members decide in their shared memory which processes are in a view.
mod attachment;
mod control_socket;
mod dir;
mod error;
mod founding;
mod group_files;
pub(crate) mod kernel;
pub(crate) mod limits;
mod living;
mod outbox;
#[cfg(test)]
mod tests;
mod watch;

pub use attachment::{disclose, enclose};
pub use control_socket::{ControlSocket, ControlSocketDrops, CreateOutcome, SendOutcome};
pub use dir::{DirError, GroupName, NameError, RuntimeDir};
pub use error::RendezvousError;
pub use founding::{Role, found_or_find};
pub use kernel::{KernelAnswer, fate, has_ended, own_birth};
pub use outbox::Outbox;
pub use watch::{Notice, Watch};

/// The target of events on one host.
const TARGET: &str = "spindle::rendezvous";
