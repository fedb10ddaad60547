//! The tasks that a [`Roster`](super::Roster) gives to its driver.
use crate::control::{Address, Birth, ControlMessage, Purpose};
use crate::ids::{MemberId, ViewId};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A task for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RosterOrder {
    /// Send a control message to a process of this host.
    Near {
        /// The process.
        to: MemberId,
        /// The control message.
        message: ControlMessage,
        /// The attachment, shared by all processes that get the message at the same time.
        attachment: Arc<[u8]>,
    },
    /// Send a control message to a process of another host.
    Far {
        /// The address of the process.
        address: Address,
        /// The process that has to be at the address, if it is known.
        whom: Option<MemberId>,
        /// The control message.
        message: ControlMessage,
        /// The attachment, shared by all processes that get the message at the same time.
        attachment: Arc<[u8]>,
    },
    /// Hand over this member's memory for a view to processes of this host.
    HandOver {
        /// The view.
        view: ViewId,
        /// The processes.
        to: Vec<MemberId>,
    },
    /// Make a connection.
    Dial {
        /// The address.
        address: Address,
        /// The process that has to be at the address.
        whom: MemberId,
        /// The purpose of the connection.
        purpose: Purpose,
    },
    /// Watch a process of this host.
    ///
    /// The driver reports its end ([`watched_ended`](super::Roster::watched_ended)), or that it had
    /// ended before ([`found_ended`](super::Roster::found_ended)). If the driver cannot watch it,
    /// the driver reports that ([`unwatched`](super::Roster::unwatched)).
    Watch {
        /// The member id of the process.
        id: MemberId,
        /// The pid of the process.
        pid: u32,
        /// The start of the process, which differs from that of others with its pid; `None` if only
        /// the pid is known.
        birth: Option<Birth>,
    },
    /// Stop watching the process.
    Unwatch(MemberId),
    /// Watch a process of another host by its connections, and report its end
    /// ([`seems_ended`](super::Roster::seems_ended)).
    WatchFar {
        /// The address of the process.
        address: Address,
        /// The member id of the process.
        id: MemberId,
        /// The view from which on it is watched.
        view: ViewId,
    },
    /// Ask a process of another host for a sign of life, because its watch has ended
    /// ([`answers`](super::Roster::answers), [`not_dialled`](super::Roster::not_dialled)).
    CheckFar {
        /// The address of the process.
        address: Address,
        /// The member id of the process.
        id: MemberId,
        /// The view from which on it is watched, if it answers.
        view: ViewId,
    },
    /// Stop watching the process of another host.
    UnwatchFar(MemberId),
    /// Drop the control messages that wait for this process.
    Forget(MemberId),
    /// Keep only these processes of this host. The others are not needed any more.
    Retain(BTreeSet<MemberId>),
    /// Make this process's own address again if it has vanished.
    Restore,
    /// Look up the addresses of a name.
    LookUp(Address),
    /// Report which of these processes of this host have no address
    /// ([`unreached`](super::Roster::unreached)). They may have vanished.
    Probe(Vec<MemberId>),
}
