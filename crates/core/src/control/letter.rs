//! The control messages between processes of a group, called letters. `letter/wire.rs` holds their encoding.
//!
//! Every letter starts with magic, version and kind. That header never changes, nor do the numbers of the kinds that ask
//! for something or refuse it; so two versions of Spindle can tell each other that they differ ([`stranger`]). Decoding
//! never panics: it returns a letter or a [`WireError`](super::bytes::WireError).
mod wire;

pub use wire::{Stranger, stranger};

use super::address::Address;
use super::birth::Birth;
use super::port::PortAddress;
use super::rack::RackName;
use crate::ids::{MemberId, Rank, SubgroupId, ViewId};
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// The version of everything in a letter after its header.
pub const VERSION: u32 = 13;

/// What processes of a group write to each other.
///
/// A letter whose `from` is not the mailbox that sent it is never received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Letter {
    /// My memory for that view. With four descriptors: the memory of which the row is a range, doorbell, process, and the lease of that range; and with
    /// the doorbell's eventfd behind them, if it has one.
    Parts {
        /// Which group of this name.
        incarnation: u128,
        /// The view that the memory is for.
        view: ViewId,
        /// Whose memory it is.
        from: MemberId,
        /// Its process.
        pid: u32,
        /// What tells that process from others that had its number.
        birth: Birth,
        /// Where in the memory the row begins.
        at: u64,
        /// Bytes of the row.
        bytes: u64,
        /// Whether the doorbell has an eventfd.
        event: bool,
        /// Where it can be reached from other hosts, if it can: the members of its host tell others.
        address: Option<Address>,
        /// The rack that it stands in, if it has been told.
        rack: Option<RackName>,
    },
    /// May I join?
    Ask {
        /// Who wants to; its mailbox is bound, so the id is free.
        from: MemberId,
        /// Its process.
        pid: u32,
        /// What tells that process from others that had its number.
        birth: Birth,
        /// A number that no other process with its id has had, drawn at random.
        nonce: u32,
        /// The digest of everything that all members must have configured alike.
        config: u64,
        /// How many members it would found the group with; 1 if it minds no number.
        members: u32,
        /// It only wants to follow.
        observer: bool,
        /// Where it can be reached from other hosts, if it can.
        address: Option<Address>,
        /// The rack that it stands in, if it has been told.
        rack: Option<RackName>,
        /// The digest of the seeds among which it waits, if it has them from names that stand for several.
        seeds: Option<NonZeroU64>,
    },
    /// No. The answer to [`Letter::Ask`], and to any request of another version.
    Refused {
        /// The reason.
        why: Refusal,
    },
    /// Noted. The other answer to [`Letter::Ask`].
    Wait {
        /// How many members the group has.
        members: u32,
        /// Who would lead the next change.
        leader: MemberId,
        /// The group exists and can't go on: too few members are left, which are those that are present.
        blocked: bool,
        /// Who is here or waits, with their processes, 0 for one that is not known; at most 1024 of them are told.
        present: Vec<(MemberId, u32)>,
    },
    /// A view that was decided, for somebody who joins or was left behind. With one descriptor: the encoded view in
    /// sealed memory.
    View {
        /// Which group of this name.
        incarnation: u128,
        /// The view's number.
        view: ViewId,
        /// Who tells it.
        from: MemberId,
        /// The length of the encoded view.
        bytes: u64,
    },
    /// Another process of this user wants something.
    Request {
        /// Who asks, which may be a visitor.
        from: MemberId,
        /// Comes back in the answer; means nothing to who answers.
        reply: u64,
        /// What it wants.
        what: Request,
    },
    /// The answer to [`Letter::Request`]. With one descriptor: JSON, in sealed memory.
    Answer {
        /// That of the request.
        reply: u64,
        /// The length of the text.
        bytes: u64,
    },
    /// The application's state, for a joiner. With two descriptors: the data and the ends of the pipe through which it
    /// comes.
    State {
        /// The view in which the state was taken.
        view: ViewId,
        /// Whose state it is.
        from: MemberId,
    },
    /// Where I can be called through libfabric, and will answer for that view; for members of lower ranks, on other hosts, to which I have no connection.
    Port {
        /// Which group of this name.
        incarnation: u128,
        /// The view that the connection is for.
        view: ViewId,
        /// Who is there.
        from: MemberId,
        /// Where.
        address: PortAddress,
    },
    /// What I lend in a bulk group of that view comes through this. With one descriptor: a connected socket.
    Bulk {
        /// Which group of this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
        /// Who wrote it.
        from: MemberId,
        /// Which of the view's bulk groups, by the members' own count.
        number: u64,
    },
    /// Objects of that view that who follows it needs; at most [`WANTED_MAX`](crate::limits::WANTED_MAX) of them are asked for at once.
    Want {
        /// Which group of this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
        /// Who follows.
        from: MemberId,
        /// Comes back in the answer; means nothing to who answers.
        reply: u64,
        /// Which.
        objects: Vec<Wanted>,
    },
    /// The answer to [`Letter::Want`], on the same machine. With two descriptors: the data and the ends of the pipe through
    /// which they come.
    Objects {
        /// Whose objects.
        from: MemberId,
        /// That of the question.
        reply: u64,
    },
    /// What processes send to each other while a group between hosts is founded.
    Founding {
        /// Who wrote it.
        from: MemberId,
        /// Which of the processes that have had this id.
        nonce: u32,
        /// The digest of everything that all members must have configured alike.
        config: u64,
        /// A message of the core's, encoded; at most [`FOUNDING_WORDS_MAX`](crate::limits::FOUNDING_WORDS_MAX).
        words: Vec<u64>,
    },
}

/// An object of a view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Wanted {
    /// Where.
    pub subgroup: SubgroupId,
    /// Whose it is.
    pub sender: Rank,
    /// Its number among that sender's there.
    pub number: u64,
}

/// Why somebody can't join. The values are those of who refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It speaks another version.
    #[error("the group speaks version {0}; update the older")]
    Version(u32),
    /// It has another configuration.
    #[error(
        "the group has another configuration (digest {0:016x}); give all members the same subgroups, windows, \
             message sizes and time of suspicion"
    )]
    Config(u64),
    /// It is being founded, by another number of members.
    #[error("the group is being founded by {0} members; give all the same number")]
    Founders(u32),
    /// There is no room for more members than these.
    #[error("the group is full with {0} members; wait until one leaves")]
    Full(u32),
    /// Another process has its id, and lives: a member, or who waits to be one.
    #[error("id {0} is in use by another process of the group, which lives; choose another, or none")]
    InUse(MemberId),
    /// This member can't give its state. The answer to [`Request::State`].
    #[error(
        "the members' applications can't give their state: receivers deliver their messages, or their snapshots panic; \
             let handlers deliver, and see the members' logs"
    )]
    NoState(MemberId),
}

/// What another process of this user may want.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Request {
    /// To know how you and your group stand.
    Status,
    /// That you leave the group, without loss.
    Leave,
    /// That the group goes on without this member.
    Evict(MemberId),
    /// That the group continues without these members, which an operator says are lost for good, although the others are no quorum.
    Recover(Vec<MemberId>),
    /// The application's state, to begin from.
    State,
    /// That you forget the one who asks, which observed your group and does so no more. Not answered.
    Forget,
    /// To know the view. Answered by [`Letter::View`].
    View,
    /// That you count on nothing of the one who asks in any view behind this one: it has begun none of them and never will. Not answered.
    Stopped {
        /// The incarnation of its group; 0 if it has met none.
        incarnation: u128,
        /// The last view that it has begun; 0 if it has begun none.
        view: ViewId,
        /// The number of the process, or of its attempt to join: another may have its id by now.
        nonce: u32,
    },
    /// That you don't take the one who asks for dead in the view that follows this one: it delivers the rest of this one, and begins that one then. Not answered.
    Patience {
        /// The incarnation of its group.
        incarnation: u128,
        /// The view that has ended.
        view: ViewId,
    },
}

impl Letter {
    /// How many descriptors come with it.
    pub fn fds(&self) -> usize {
        match self {
            Self::Parts { event, .. } => 4 + usize::from(*event),
            Self::State { .. } | Self::Objects { .. } => 2,
            Self::View { .. } | Self::Answer { .. } | Self::Bulk { .. } => 1,
            Self::Ask { .. }
            | Self::Refused { .. }
            | Self::Wait { .. }
            | Self::Request { .. }
            | Self::Port { .. }
            | Self::Founding { .. }
            | Self::Want { .. } => 0,
        }
    }

    /// Who says that it wrote it, where it says so.
    pub fn from(&self) -> Option<MemberId> {
        match self {
            Self::Parts { from, .. }
            | Self::Ask { from, .. }
            | Self::View { from, .. }
            | Self::Request { from, .. }
            | Self::State { from, .. }
            | Self::Port { from, .. }
            | Self::Bulk { from, .. }
            | Self::Want { from, .. }
            | Self::Founding { from, .. }
            | Self::Objects { from, .. } => Some(*from),
            Self::Refused { .. } | Self::Wait { .. } | Self::Answer { .. } => None,
        }
    }
}
