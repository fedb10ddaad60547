//! What can go wrong, by the call that reports it.
use crate::data_dir::DataDirError;
use crate::gathering::Gathering;
use spindle_core::control::Refusal;
use spindle_core::{Lapped, MemberId, ViewError, ViewId, limits};
use spindle_fabric::mail::{DirError, MailError, NameError};
use spindle_fabric::net::NetError;
use spindle_fabric::{MeshError, OfiError};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a group could not be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The configuration makes no valid view.
    #[error("the configuration is wrong: {0}")]
    View(#[from] ViewError),
    /// There has to be something to send in.
    #[error("the group has no subgroup: add at least one")]
    NoSubgroup,
    /// The group's name won't do.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The directory won't do.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// Taking an address in the group failed.
    #[error(transparent)]
    Mail(#[from] MailError),
    /// Other hosts can't reach this process, or it can't reach them.
    #[error(transparent)]
    Net(#[from] NetError),
    /// libfabric is to carry the rows, and can't.
    #[error(transparent)]
    Ofi(#[from] OfiError),
    /// libfabric is to carry the rows, which it does not encrypt, and TLS is asked for.
    #[error(
        "libfabric encrypts nothing, and this network is to be used with TLS; carry rows over tcp, or, if everybody who can reach \
         the network may read and send, take TLS out and call it insecure"
    )]
    Unencrypted,
    /// libfabric is to carry the rows, which it does not encrypt, beyond this host.
    #[error(
        "libfabric encrypts nothing, and {address} can be reached from other hosts; call the network insecure if everybody there may \
         read and send, or give libfabric a loopback address"
    )]
    Exposed {
        /// Where it would listen.
        address: String,
    },
    /// The number of seeds can't be that of the seeds that are given.
    #[error("seed_count is {count}: {why}")]
    SeedCount {
        /// The number.
        count: u32,
        /// What is wrong with it.
        why: String,
    },
    /// The data directory can't be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The host could not be told from others.
    #[error("can't tell this host from others: {0}; see that /proc is there")]
    Host(io::Error),
    /// The members don't want this one.
    #[error("the members refuse to let this process in: {0}")]
    Refused(Refusal),
    /// No group has so many members.
    #[error("a group has 1 to {max} members, not {got}", max = limits::MEMBERS_MAX)]
    Members {
        /// How many were asked for.
        got: u32,
    },
    /// There is nobody to observe.
    #[error("nobody is in group {group} at {}; start a member, or name the runtime_dir of the others", dir.display())]
    NoGroup {
        /// The group.
        group: String,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// There are members, and none of them speaks.
    #[error(
        "no member of group {group} has answered within {waited:.1?}: they are stopped, or hang; resume or restart them"
    )]
    Silent {
        /// The group.
        group: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The members let this process in and have continued without it, before it had begun the view. [`Config::join`](crate::Config::join) asks
    /// them again by itself for as long as it may wait, and so does [`Config::learn`](crate::Config::learn).
    #[error(
        "the members let this process in to view {view} and have continued without it before it had begun that; join again"
    )]
    LeftOut {
        /// The group.
        incarnation: u128,
        /// The view.
        view: ViewId,
    },
    /// All members were gone before they could let this process in.
    #[error("the group has ended while this process was joining it; start it again")]
    GroupGone,
    /// The group sends faster than this process follows.
    #[error("this process can't follow the group: {0}; join again, or with a larger window")]
    Lapped(#[from] Lapped),
    /// The group sends faster than this process applies.
    #[error("over {bytes} bytes wait to be applied: the group sends faster than this process applies")]
    TooSlow {
        /// How many wait at most.
        bytes: u64,
    },
    /// The member whose state this process was taking over failed.
    #[error("the state did not come to its end: {0}; join again, which asks another member")]
    Source(io::Error),
    /// This application could not take the state over.
    #[error("the state could not be restored: {0}")]
    Restore(io::Error),
    /// Not everybody came, or nobody let this process in.
    #[error("the wait is over: {gathering}; {}", gathering.remedy())]
    TimedOut {
        /// Who was there.
        gathering: Gathering,
    },
    /// The caller asked to stop.
    #[error("cancelled while waiting for the group: {gathering}")]
    Cancelled {
        /// Who was there.
        gathering: Gathering,
    },
    /// The shared memory could not be set up.
    #[error(transparent)]
    Memory(MeshError),
    /// The process has too many file descriptors.
    #[error("no file descriptor left for the members' memory: {0}; raise the limit with `ulimit -n`")]
    Descriptors(io::Error),
    /// A thread could not be started.
    #[error("no thread could be started: {0}")]
    Thread(io::Error),
}

/// Why a group ended at this member before everything was delivered. Every later call on it reports the same.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The others go on without this member: they heard nothing from it for too long, or were told to. Messages that it had
    /// sent may have been delivered or not; it may join again, as a new member.
    #[error(
        "the others evicted this member (id {id}) in view {view}: it was silent for too long, or was told to go; the longest pause between two of \
         its polls took {pause_ms} ms"
    )]
    Evicted {
        /// This member.
        id: MemberId,
        /// The view in which it learned of it.
        view: ViewId,
        /// The longest time in this view in which the member was not polled, but for the sleeps of its polling thread. If it is shorter than `suspect_after`, the network was silent, or an operator's
        /// word is the cause. In ms; zero without a `suspect_after`.
        // A `Duration` would make the results of sending longer, which costs instructions for each message.
        pause_ms: u32,
    },
    /// An operator has said that this member is lost for good (`spindle recover`), and the others continue without it. They may lack what it has delivered
    /// since, and what it had sent. It may join again, as a new member.
    #[error(
        "this member (id {id}) was given up by an operator's recovery after view {view}: the others go on without it, and may lack what it \
         has delivered since"
    )]
    GivenUp {
        /// This member.
        id: MemberId,
        /// The view in which it learned of it.
        view: ViewId,
    },
    /// This member has left, as it was asked to.
    #[error("this member has left the group")]
    Left,
    /// What was agreed on can't be read, or the next view can't be set up here.
    #[error("this member can't go on to the next view: {0}")]
    Stuck(String),
    /// This process gave the group up: it dropped its handle, or its handler panicked.
    #[error("this member gave the group up")]
    Dropped,
}

impl Ended {
    /// `id`, a member of `view`, is not in `next`, with which the others go on.
    pub(crate) fn left_out(id: MemberId, view: ViewId, next: ViewId, pause: Duration) -> Ended {
        match next.era() > view.era() {
            true => Ended::GivenUp { id, view },
            false => Ended::Evicted { id, view, pause_ms: pause.as_millis().try_into().unwrap_or(u32::MAX) },
        }
    }

    /// Whether the others go on without this member against its will: it was [evicted](Ended::Evicted) or [given up](Ended::GivenUp), and may join again.
    pub fn is_left_out(&self) -> bool {
        matches!(self, Ended::Evicted { .. } | Ended::GivenUp { .. })
    }
}

/// Why a message was not accepted. One that was accepted is delivered by every member, or by none if this member dies or is evicted.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// It is longer than the subgroup allows.
    #[error("a message of {len} bytes is over the subgroup's limit of {max} bytes: split it, or raise the limit")]
    TooLong {
        /// Its bytes.
        len: u64,
        /// Bytes allowed.
        max: u64,
    },
    /// The ring was full, and stayed so.
    #[error("the ring is full: the slowest member has delivered nothing for {waited:?}")]
    Full {
        /// How long it was waited for.
        waited: Duration,
    },
    /// So many large messages of this member are on the way in this subgroup, and none of them was delivered everywhere in time.
    #[error("{most} large messages are on the way, and none of them was delivered everywhere within {waited:?}")]
    TooMany {
        /// How many may be.
        most: u32,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A message that is too long for the ring is copied into memory of its own, and there is none.
    #[error("there is no memory for a copy of a message of {len} bytes: free some, or send less at once")]
    NoMemory {
        /// Its bytes.
        len: u64,
    },
    /// Waiting in an upcall would wait for itself.
    #[error("a handler may not wait for room: it runs on the thread that makes room; use try_claim")]
    InUpcall,
    /// In the newest view this member is no sender of the subgroup, the subgroup has fewer members than it needs, or there is no such
    /// subgroup any more. It may send again when a view changes that.
    #[error(
        "this member can't send in this subgroup: in the newest view it is no sender there, or the subgroup has too few members"
    )]
    NoSender,
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}

/// Why nothing was received.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Nothing came in time.
    #[error("nothing was delivered for {waited:?}")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Every member has finished and everything has been received.
    #[error("every member has finished and everything has been received")]
    Finished,
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}

/// Why an observer got nothing. All but the first are final.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// Nothing came in time.
    #[error("nothing was delivered for {waited:?}")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Every member has finished, or has left, and this was everything.
    #[error("every member has finished or left, and this was everything")]
    Finished,
    /// No member lives.
    #[error("all members of the group are gone: what they had agreed on by then was told, and perhaps not all of it")]
    GroupGone,
    /// What the members say can't be read.
    #[error("this process can't follow the group any more: {0}; observe it again, which begins at the present")]
    Stuck(String),
}

/// Why a subgroup's handle could not be given out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The view has no subgroup of this name, or this member is not in it.
    #[error("this member is in no subgroup {name:?}; it is in: {known}")]
    NoSuchSubgroup {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// This member does not send there.
    #[error("this member is no sender of subgroup {name:?}")]
    NoSender {
        /// The subgroup.
        name: String,
    },
    /// It was given out before.
    #[error("the {what} of subgroup {name:?} was taken before")]
    Taken {
        /// "publisher" or "receiver".
        what: &'static str,
        /// The subgroup.
        name: String,
    },
    /// There is no room for what the members would need in a view with this change: all of them stand in one machine's memory.
    #[error("the members' rows would have {bytes} bytes: {why}; ask for smaller windows or messages")]
    Memory {
        /// What all rows would have.
        bytes: u64,
        /// Why that is too much.
        why: String,
    },
    /// The polling thread, which would have to answer, runs this handler.
    #[error("a handler may not ask the group for this: it runs on the thread that would answer; ask on another one")]
    InUpcall,
    /// Nobody answers any more.
    #[error("the group has ended")]
    Ended,
    /// Handles are taken before the first poll.
    #[error("the handles of subgroup {name:?} have to be taken before the group runs")]
    Running {
        /// The subgroup.
        name: String,
    },
}

/// Why a group did not finish.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// Somebody still holds a publisher, has not received everything, or is slow.
    #[error("the group did not finish within {waited:?}: {unfinished}")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
        /// Who has not finished, in words.
        unfinished: String,
    },
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}
