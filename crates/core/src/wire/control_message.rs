//! The control messages between the processes of a group. `control_message/wire.rs` holds their
//! encoding.
//!
//! Every control message starts with magic, version and kind. This header never changes. The
//! numbers of the kinds that request or refuse something never change either. So two versions of
//! Spindle can report to each other that they differ ([`stranger`]). Decoding never panics: it
//! returns a [`ControlMessage`] or a [`WireError`](super::bytes::WireError).
mod wire;

pub use wire::{Stranger, stranger};

use super::address::Address;
use super::birth::Birth;
use super::port::PortAddress;
use super::query::NoAnswer;
use super::rack::RackName;
use super::records::{NoRecords, WantedRecords};
use super::settings::SharedSettings;
use crate::clock::ClockSkew;
use crate::ids::{MemberId, Rank, SubgroupId, ViewId};
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// The version of everything in a control message after its header.
pub const VERSION: u32 = 20;

/// A control message between processes of a group.
///
/// If `from` is not the process whose control socket sent the message, the receiver never sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlMessage {
    /// The row descriptors: the sender's memory for one view. Carries four file descriptors: the
    /// memory that contains the row, the doorbell, the process, and the lease of the row's range.
    /// If the doorbell has an eventfd, that eventfd follows as a fifth descriptor.
    RowDescriptors {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view that the memory is for.
        view: ViewId,
        /// The owner of the memory.
        from: MemberId,
        /// The owner's process.
        pid: u32,
        /// The start of the process, which differs from that of others with the same number.
        birth: Birth,
        /// The offset of the row in the memory.
        at: u64,
        /// The length of the row in bytes.
        bytes: u64,
        /// Whether the doorbell has an eventfd.
        event: bool,
        /// The address at which other hosts can reach the owner, if any. The members of its host
        /// report it to others.
        address: Option<Address>,
        /// The rack of the owner, if it was configured.
        rack: Option<RackName>,
    },
    /// A request to join.
    Ask {
        /// The joiner. Its control socket is bound, so the id is free.
        from: MemberId,
        /// The joiner's process.
        pid: u32,
        /// The start of the process, which differs from that of others with the same number.
        birth: Birth,
        /// A random number that no other process with its id has had.
        nonce: u32,
        /// The digest of the configuration that all members must share.
        config: u64,
        /// The number of members with which it would create the group; 1 if any number will do.
        members: u32,
        /// True if it only wants to observe.
        observer: bool,
        /// The view that it follows, and at whose end it wants to be admitted; 0: none.
        follows: ViewId,
        /// The address at which other hosts can reach it, if any.
        address: Option<Address>,
        /// The rack of the joiner, if it was configured.
        rack: Option<RackName>,
        /// The digest of the seeds among which it waits, if its seeds come from names that resolve
        /// to several addresses.
        seeds: Option<NonZeroU64>,
        /// Its clock, in ns since 1970; 0 if it does not report it.
        clock: u64,
    },
    /// A refusal: the answer to [`ControlMessage::Ask`], and to any request of another version.
    Refused {
        /// The reason.
        why: Refusal,
    },
    /// An acknowledgement: the other answer to [`ControlMessage::Ask`].
    Wait {
        /// The number of members of the group.
        members: u32,
        /// The member that would lead the next view change.
        leader: MemberId,
        /// True if the group exists and has lost its quorum: only the processes in `present` are
        /// left.
        blocked: bool,
        /// The processes that are members or wait, with their process numbers; 0 if the number is
        /// unknown. At most 1024 are listed.
        present: Vec<(MemberId, u32)>,
    },
    /// A view that was decided, for a process that joins or was left behind. Carries one
    /// descriptor: the encoded view in sealed memory.
    View {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view's number.
        view: ViewId,
        /// The sender.
        from: MemberId,
        /// The length of the encoded view.
        bytes: u64,
    },
    /// A request from another process of this user.
    Request {
        /// The sender, which may be an admin client.
        from: MemberId,
        /// A number that the answer repeats; it has no meaning to the receiver.
        reply: u64,
        /// The request.
        what: Request,
    },
    /// The answer to [`ControlMessage::Request`]. Carries one descriptor: JSON, in sealed memory.
    Answer {
        /// The number of the request.
        reply: u64,
        /// The length of the text.
        bytes: u64,
    },
    /// The application's state, for a joiner. Carries two descriptors: the data, and the ends of
    /// the pipe through which it comes.
    State {
        /// The view in which the state was taken.
        view: ViewId,
        /// The member whose state it is.
        from: MemberId,
    },
    /// The libfabric address at which the sender accepts connections for a view. Goes to members of
    /// lower ranks on other hosts to which the sender has no connection.
    Port {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view that the connection is for.
        view: ViewId,
        /// The sender.
        from: MemberId,
        /// The address.
        address: PortAddress,
    },
    /// A connection for the shared memory that the sender contributes to a bulk group of a view.
    /// Carries one descriptor: a connected socket.
    Bulk {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
        /// The sender.
        from: MemberId,
        /// The index of the bulk group in the view, by the members' own count.
        number: u64,
    },
    /// A request of an observer for objects of a view. It requests at most
    /// [`WANTED_MAX`](crate::limits::WANTED_MAX) of them at once.
    Want {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
        /// The observer.
        from: MemberId,
        /// A number that the answer repeats; it has no meaning to the receiver.
        reply: u64,
        /// The objects.
        objects: Vec<Wanted>,
    },
    /// The answer to [`ControlMessage::Want`], on the same machine. Carries two descriptors: the
    /// data, and the ends of the pipe through which they come.
    Objects {
        /// The member whose objects they are.
        from: MemberId,
        /// The number of the request.
        reply: u64,
    },
    /// A request for the records of a log, of a process whose log lacks them.
    WantRecords {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The process.
        from: MemberId,
        /// A number that the answer repeats; it has no meaning to the receiver.
        reply: u64,
        /// The records.
        wanted: WantedRecords,
    },
    /// The answer to [`ControlMessage::WantRecords`], on the same machine. Carries two descriptors:
    /// the data, and the ends of the pipe through which they come.
    Records {
        /// The process whose log has the records.
        from: MemberId,
        /// The number of the request.
        reply: u64,
    },
    /// The other answer to [`ControlMessage::WantRecords`]: a refusal.
    NoRecords {
        /// The process that refuses.
        from: MemberId,
        /// The number of the request.
        reply: u64,
        /// The reason.
        why: NoRecords,
    },
    /// A query of a member to the application of another one. Carries one descriptor: the query, in
    /// sealed memory, at most [`QUERY_BYTES_MAX`](crate::limits::QUERY_BYTES_MAX).
    Query {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The member that asks.
        from: MemberId,
        /// A number that the answer repeats; it has no meaning to the receiver.
        reply: u64,
        /// The length of the query.
        bytes: u64,
    },
    /// The answer to [`ControlMessage::Query`]. Carries one descriptor: the answer, in sealed memory, at
    /// most [`QUERY_BYTES_MAX`](crate::limits::QUERY_BYTES_MAX).
    QueryAnswer {
        /// The member that answers.
        from: MemberId,
        /// The number of the query.
        reply: u64,
        /// The length of the answer.
        bytes: u64,
    },
    /// The other answer to [`ControlMessage::Query`]: there is none.
    NoAnswer {
        /// The member that was asked.
        from: MemberId,
        /// The number of the query.
        reply: u64,
        /// The reason.
        why: NoAnswer,
    },
    /// A message between processes that bootstrap a group across hosts.
    Bootstrap {
        /// The sender.
        from: MemberId,
        /// The sender's process.
        pid: u32,
        /// The start of the process, which differs from that of others with the same number.
        birth: Birth,
        /// The sender's nonce, which differs from those of other processes with the same id.
        nonce: u32,
        /// The digest of the configuration that all members must share.
        config: u64,
        /// The sender's clock, in ns since 1970; 0 if it does not report it.
        clock: u64,
        /// An encoded message of the core; at most
        /// [`BOOTSTRAP_WORDS_MAX`](crate::limits::BOOTSTRAP_WORDS_MAX) words.
        words: Vec<u64>,
    },
}

/// An object of a view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Wanted {
    /// The subgroup of the message.
    pub subgroup: SubgroupId,
    /// Its sender.
    pub sender: Rank,
    /// Its number among the sender's objects in that subgroup.
    pub number: u64,
}

/// The reason why a process can't join. The values are those of the refusing process.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The process speaks another version.
    #[error("the group speaks protocol version {0}, and this process version {VERSION}; update the older")]
    Version(u32),
    /// The process has other settings.
    #[error(
        "the group has other settings (digest {digest:016x}); give all members the same subgroups, windows, message \
             sizes and time of suspicion",
        digest = settings.digest()
    )]
    Config {
        /// The settings of the refusing process.
        settings: SharedSettings,
        /// The group that the refusing process is a member of; 0 if it waits to create one.
        incarnation: u128,
    },
    /// The group is being created with another number of members.
    #[error("the group is being created by {0} founders; give all the same number")]
    Founders(u32),
    /// The group has this many members, and room for no more.
    #[error("the group is full with {0} members; wait until one leaves")]
    Full(u32),
    /// Another process with this id is alive: a member, or a process that waits to join.
    #[error("id {0} is in use by another process of the group, which is alive; choose another id, or none")]
    InUse(MemberId),
    /// The clock of the process differs too much from that of this one, whose group keeps logs.
    #[error(
        "{0}; set this clock, or that of the members if it is wrong, or allow a larger difference in the settings of all members"
    )]
    Clock(ClockSkew),
    /// This member can't send its state. The answer to [`Request::State`].
    #[error(
        "the members' applications can't give their state: receivers deliver their messages, or their snapshots panic; \
             let handlers deliver, and see the members' logs"
    )]
    NoState(MemberId),
}

/// A request of another process of this user.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Request {
    /// Report your state and that of your group.
    Status,
    /// Leave the group without loss.
    Leave,
    /// Evict this member.
    Evict(MemberId),
    /// Continue without these members although the others are no quorum: an operator says that they
    /// are lost for good.
    Recover(Vec<MemberId>),
    /// Send the application's state, from which the sender will begin.
    State,
    /// Forget the sender: it no longer observes your group. Gets no answer.
    Forget,
    /// Report the view. The answer is [`ControlMessage::View`].
    View,
    /// Expect nothing from the sender in any view after this one: it has begun none of them and
    /// never will. Gets no answer.
    Stopped {
        /// The incarnation of its group; 0 if it has seen none.
        incarnation: u128,
        /// The last view that it has begun; 0 if it has begun none.
        view: ViewId,
        /// The nonce of the process, or of its attempt to join: another process may have its id by
        /// now.
        nonce: u32,
    },
    /// Do not treat the sender as dead in the view that follows this one. It delivers the rest of
    /// this view and then begins the next one. Gets no answer.
    Patience {
        /// The incarnation of its group.
        incarnation: u128,
        /// The view that has ended.
        view: ViewId,
    },
    /// Let the messages of your logged subgroups have clocks later than this one from now on, in ns
    /// since 1970. Subgroups in which later messages have been delivered stay as they are.
    RaiseClocks(u64),
}

impl ControlMessage {
    /// Returns the number of file descriptors that the message carries.
    pub fn fds(&self) -> usize {
        match self {
            Self::RowDescriptors { event, .. } => 4 + usize::from(*event),
            Self::State { .. } | Self::Objects { .. } | Self::Records { .. } => 2,
            Self::View { .. }
            | Self::Answer { .. }
            | Self::Bulk { .. }
            | Self::Query { .. }
            | Self::QueryAnswer { .. } => 1,
            Self::Ask { .. }
            | Self::Refused { .. }
            | Self::Wait { .. }
            | Self::Request { .. }
            | Self::Port { .. }
            | Self::Bootstrap { .. }
            | Self::Want { .. }
            | Self::WantRecords { .. }
            | Self::NoRecords { .. }
            | Self::NoAnswer { .. } => 0,
        }
    }

    /// Returns the sender that the message names, if it names one.
    pub fn from(&self) -> Option<MemberId> {
        match self {
            Self::RowDescriptors { from, .. }
            | Self::Ask { from, .. }
            | Self::View { from, .. }
            | Self::Request { from, .. }
            | Self::State { from, .. }
            | Self::Port { from, .. }
            | Self::Bulk { from, .. }
            | Self::Want { from, .. }
            | Self::Bootstrap { from, .. }
            | Self::WantRecords { from, .. }
            | Self::Records { from, .. }
            | Self::NoRecords { from, .. }
            | Self::Query { from, .. }
            | Self::QueryAnswer { from, .. }
            | Self::NoAnswer { from, .. }
            | Self::Objects { from, .. } => Some(*from),
            Self::Refused { .. } | Self::Wait { .. } | Self::Answer { .. } => None,
        }
    }
}
