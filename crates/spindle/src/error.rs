//! The errors, one type for each kind of call.
use crate::bootstrap_progress::{BootstrapProgress, settings_remedy, tell_differences};
use crate::data_dir::DataDirError;
use spindle_core::clock::ShownTime;
use spindle_core::control::{Difference, Incarnation, Refusal};
use spindle_core::{Lapped, MemberId, Position, ViewError, ViewId, limits};
use spindle_fabric::MeshError;
use spindle_fabric_ofi::OfiError;
use spindle_transport::net::NetError;
use spindle_transport::rendezvous::{DirError, NameError, RendezvousError};
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
    /// The configuration has no subgroup to send in.
    #[error("the group has no subgroup: add at least one")]
    NoSubgroup,
    /// The group's name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The runtime directory can't be used.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// This process could not take an address in the group.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// Other hosts can't reach this process, or it can't reach them.
    #[error(transparent)]
    Net(#[from] NetError),
    /// libfabric has to carry the rows, and can't.
    #[error(transparent)]
    Ofi(#[from] OfiError),
    /// libfabric has to carry the rows, which it does not encrypt, but the configuration asks for
    /// TLS.
    #[error(
        "libfabric encrypts nothing, and this network is to be used with TLS; carry rows over tcp, or, if each process that reaches the network may read and send, take TLS out and call the network insecure"
    )]
    Unencrypted,
    /// libfabric has to carry the rows, which it does not encrypt, beyond this host.
    #[error(
        "libfabric encrypts nothing, and {address} can be reached from other hosts; call the network insecure if each process there may read and send, or give libfabric a loopback address"
    )]
    Exposed {
        /// The address at which it would listen.
        address: String,
    },
    /// The number of seeds does not fit the seeds that are given.
    #[error("seed_count is {count}: {why}")]
    SeedCount {
        /// The number.
        count: u32,
        /// Why it does not fit.
        why: String,
    },
    /// The data directory can't be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A subgroup is logged, and this process has no place for its log.
    #[error("subgroup {subgroup:?} is logged, and this process has no directory for its log: set member.data_dir")]
    NoDataDir {
        /// The subgroup.
        subgroup: String,
    },
    /// A subgroup is logged, and its name is too long for a log.
    #[error(
        "subgroup {subgroup:?} is logged, and its name has {bytes} bytes, of {max} that a log's name may have: shorten it",
        max = spindle_log::limits::LOG_NAME_BYTES_MAX
    )]
    LogName {
        /// The subgroup.
        subgroup: String,
        /// The length of its name in bytes.
        bytes: u64,
    },
    /// The directory of the logs can't be made or read.
    #[error("can't use {} for logs: {source}; see that the data directory can be written", path.display())]
    LogDir {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The data directory has logs that can't be continued: this process makes all members of its group,
    /// or a program that makes no members has written them.
    #[error("{} has logs that a member of this group can't continue: move the directory away; `spindle log` reads it", path.display())]
    OldLogs {
        /// The directory of the logs.
        path: PathBuf,
    },
    /// The clock of this process is behind the newest record of a log by more than the clocks of two members
    /// may differ.
    #[error(
        "the newest record of the log of subgroup {subgroup:?} in {} is of {}, and the clock of this process shows {}, which is over twice \
         clock_skew_max ({max:.1?}) before; set the clock, or raise clock_skew_max at all members if the log's time is wrong",
        path.display(),
        ShownTime(*log),
        ShownTime(*now)
    )]
    ClockBehindLog {
        /// The directory of the logs.
        path: PathBuf,
        /// The name of the subgroup.
        subgroup: String,
        /// The clock of the record, in ns since 1970.
        log: u64,
        /// The clock of this process, in ns since 1970.
        now: u64,
        /// The [largest difference of clocks](crate::Config::clock_skew_max).
        max: Duration,
    },
    /// A log is not as it was when the restart of the group was decided: another copy of the data directory
    /// is in its place.
    #[error(
        "the log of subgroup {subgroup:?} in {} ends {}, and the restart needs one that ends {}: the directory is a copy of another \
         moment; put the right one in its place, or remove it and join without logs",
        path.display(),
        tell_end(ends.found),
        tell_end(ends.needed)
    )]
    OldCopy {
        /// The directory of the logs.
        path: PathBuf,
        /// The name of the subgroup.
        subgroup: String,
        /// The end of the log.
        ends: Box<LogEnds>,
    },
    /// The data directory has logs of an earlier group of the same name.
    #[error(
        "{} has logs of group {theirs}, and the group that runs under this name is {ours}: end it to restart the other one, or give \
         this process another data_dir",
        path.display()
    )]
    OtherIncarnation {
        /// The directory of the logs.
        path: PathBuf,
        /// The group that wrote them.
        theirs: Incarnation,
        /// The group that runs.
        ours: Incarnation,
    },
    /// The logs can't be opened.
    #[error(transparent)]
    Log(#[from] spindle_log::Error),
    /// This host can't be distinguished from others.
    #[error("can't tell this host from others: {0}; see that /proc is there")]
    Host(io::Error),
    /// The members refuse this process.
    #[error("the members refuse to let this process in: {0}")]
    Refused(Refusal),
    /// The running group has other settings, and this process does not
    /// [adopt](crate::Config::adoption) them.
    #[error(
        "the running group has other settings: {}; {}",
        tell_differences(differences),
        settings_remedy(differences)
    )]
    OtherSettings {
        /// The settings that prevent it, with both values. None are listed if they are too many to
        /// compare.
        differences: Vec<Difference>,
    },
    /// The shared settings of the running group have no meaning for this process.
    #[error(
        "the settings of the running group can't be read: {settings}; report this, and give all members the same version"
    )]
    UnreadableSettings {
        /// The settings, as text.
        settings: String,
    },
    /// A group can't have so many members.
    #[error("a group has 1 to {max} members, not {got}", max = limits::MEMBERS_MAX)]
    Founders {
        /// The number of founders asked for.
        got: u32,
    },
    /// No member exists to observe.
    #[error("group {group} has no members at {}; start a member, or name the runtime_dir of the others", dir.display())]
    NoGroup {
        /// The group.
        group: String,
        /// The directory that was searched.
        dir: PathBuf,
    },
    /// Members exist, and none of them answers.
    #[error(
        "no member of group {group} has answered within {waited:.1?}: they are stopped, or hang; resume or restart them"
    )]
    Silent {
        /// The group.
        group: String,
        /// How long this process waited.
        waited: Duration,
    },
    /// The members admitted this process, and continued without it before it had begun the view.
    /// [`Config::join`](crate::Config::join) and [`Config::learn`](crate::Config::learn) ask them
    /// again by themselves for as long as they may wait.
    #[error(
        "the members let this process in to view {view} and have continued without it before it had begun that; join again"
    )]
    LeftOut {
        /// The group.
        incarnation: u128,
        /// The view.
        view: ViewId,
    },
    /// All members had ended before they could admit this process.
    #[error("the group has ended while this process was joining it; start it again")]
    GroupGone,
    /// The group sends faster than this process follows.
    #[error("this process can't follow the group: {0}; join again, or with a larger window")]
    Lapped(#[from] Lapped),
    /// The group sends faster than this process applies.
    #[error("over {bytes} bytes wait to be applied: the group sends faster than this process applies")]
    TooSlow {
        /// The most bytes that may wait.
        bytes: u64,
    },
    /// The member that sent its state to this process failed.
    #[error("the state did not come to its end: {0}; join again, which asks another member")]
    Source(io::Error),
    /// This application could not take over the state.
    #[error("the state could not be restored: {0}")]
    Restore(io::Error),
    /// Not all members came, or no member admitted this process.
    #[error("the wait is over: {progress}; {}", progress.remedy())]
    TimedOut {
        /// The members that were present.
        progress: Box<BootstrapProgress>,
    },
    /// The caller asked to stop.
    #[error("cancelled while waiting for the group: {progress}")]
    Cancelled {
        /// The members that were present.
        progress: Box<BootstrapProgress>,
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

impl From<MeshError> for JoinError {
    fn from(error: MeshError) -> JoinError {
        JoinError::Memory(error)
    }
}

/// Why a group ended at this member before everything was delivered. Every later call on it reports
/// the same.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The others continue without this member: they received nothing from it for too long, or an
    /// operator evicted it. Messages that it had sent may have been delivered or not. It may join
    /// again, as a new member.
    #[error(
        "the others evicted this member (id {id}) in view {view}: it was silent for too long, or an operator asked for it; the longest pause between two of \
         its polls took {pause_ms} ms"
    )]
    Evicted {
        /// This member.
        id: MemberId,
        /// The view in which it learned this.
        view: ViewId,
        /// The longest time in this view, in ms, in which the member was not polled, without the
        /// sleeps of its polling thread; zero without a `suspect_after`. If it is shorter than
        /// `suspect_after`, the cause is a silent network or an operator's command.
        // A `Duration` would make the results of sending longer, which costs instructions for each
        // message.
        pause_ms: u32,
    },
    /// An operator has declared this member lost for good (`spindle recover`), and the others
    /// continue without it. They may lack the messages that it has delivered or sent since. It may
    /// join again, as a new member.
    #[error(
        "this member (id {id}) was given up by an operator's recovery after view {view}: the others go on without it, and may lack what it \
         has delivered since"
    )]
    GivenUp {
        /// This member.
        id: MemberId,
        /// The view in which it learned this.
        view: ViewId,
    },
    /// This member has left, as requested.
    #[error("this member has left the group")]
    Left,
    /// The decision of the members can't be read, or the next view can't be set up here.
    #[error("this member can't go on to the next view: {0}")]
    Stuck(String),
    /// The log of a subgroup can't be written any more, so this member may not continue: it would
    /// acknowledge messages that its disk does not have.
    #[error("the log of subgroup {subgroup:?} can't be written: {reason}")]
    Log {
        /// The subgroup.
        subgroup: String,
        /// The error of the log.
        reason: String,
    },
    /// The disk of this member has had no space for its log for as long as the member [may
    /// wait](crate::LogSettings::wait_max), while the others waited for it: the group has finished but for
    /// that, or delivers only [what is on all disks](crate::Durability::LoggedBeforeDelivery). The others
    /// continue without it. Their logs have the messages that this member has delivered.
    #[error(
        "the disk has had no space for the log of subgroup {subgroup:?} for {waited_s} s while the others waited for it: {unsynced} messages \
         are not in its log; free space, or let logs be pruned (log_bytes_max), and start it with another data_dir"
    )]
    LogFull {
        /// The subgroup.
        subgroup: String,
        /// The messages that are not on this member's disk.
        unsynced: u64,
        /// How long nothing has reached the disk, in s.
        waited_s: u32,
    },
    /// The log of this member lacks records of a subgroup, and so do those of all members that would continue. The
    /// members that may have them have ended: the group continues once it is restarted with them. Nothing is lost.
    /// If their disks are, give these members up (`lost`).
    #[error(
        "no member that could continue has all records of subgroup {subgroup:?}, and the members that may have them have ended: \
         {ended:?}; start this process and those members again with their data directories, or give up those whose disks are lost (--lost)"
    )]
    LogIncomplete {
        /// The subgroup.
        subgroup: String,
        /// The members of the subgroup that have ended, ascending.
        ended: Vec<MemberId>,
    },
    /// All members have finished, and messages of a subgroup that delivers only [what is
    /// durable](crate::Durability::LoggedBeforeDelivery) have waited for more members for as long as this
    /// member [may wait](crate::LogSettings::wait_max). No member has delivered them.
    #[error(
        "subgroup {subgroup:?} delivers only messages that {copies} members have on disk, and has had {members} for {waited_s} s since the \
         group finished: its last messages are not delivered; let more processes join before the group finishes, or lower durable_copies"
    )]
    TooFewCopies {
        /// The subgroup.
        subgroup: String,
        /// Its members.
        members: u32,
        /// The members that a message needs.
        copies: u32,
        /// How long the messages have waited, in s.
        waited_s: u32,
    },
    /// This process gave the group up: it dropped its handle, or its handler panicked.
    #[error("this member gave the group up")]
    Dropped,
}

impl Ended {
    /// Returns the reason for `id`, a member of `view` that is not in `next`, with which the others
    /// continue.
    pub(crate) fn left_out(id: MemberId, view: ViewId, next: ViewId, pause: Duration) -> Ended {
        match next.era() > view.era() {
            true => Ended::GivenUp { id, view },
            false => Ended::Evicted { id, view, pause_ms: pause.as_millis().try_into().unwrap_or(u32::MAX) },
        }
    }

    /// Returns whether the others continue without this member against its will: it was
    /// [evicted](Ended::Evicted) or [given up](Ended::GivenUp), and may join again.
    pub fn is_left_out(&self) -> bool {
        matches!(self, Ended::Evicted { .. } | Ended::GivenUp { .. })
    }
}

/// Why a message was not accepted. An accepted message is delivered by every member, or by none if
/// this member dies or is evicted.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is longer than the subgroup allows.
    #[error("a message of {len} bytes is over the subgroup's limit of {max} bytes: split it, or raise the limit")]
    TooLong {
        /// Its length in bytes.
        len: u64,
        /// The largest length in bytes.
        max: u64,
    },
    /// The ring was full, and stayed so.
    #[error("the ring is full: the slowest member has delivered nothing for {waited:?}")]
    Full {
        /// How long the caller waited.
        waited: Duration,
    },
    /// This member has the largest number of undelivered large messages in this subgroup, and none
    /// of them was delivered everywhere in time.
    #[error("{most} large messages are on the way, and none of them was delivered everywhere within {waited:?}")]
    TooMany {
        /// That number.
        most: u32,
        /// How long the caller waited.
        waited: Duration,
    },
    /// A message that is too long for the ring is copied into memory of its own, and no memory is
    /// left.
    #[error("there is no memory for a copy of a message of {len} bytes: free some, or send less at once")]
    NoMemory {
        /// Its length in bytes.
        len: u64,
    },
    /// The caller is an upcall, which would wait for itself.
    #[error("a handler may not wait for room: it runs on the thread that makes room; use try_claim")]
    InUpcall,
    /// In the newest view this member is no sender of the subgroup, the subgroup has fewer members
    /// than it needs, or it no longer exists. The member may send again when a view changes that.
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
    /// Nothing was delivered in time.
    #[error("nothing was delivered for {waited:?}")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// Every member has finished and everything has been received.
    #[error("every member has finished and everything has been received")]
    Finished,
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}

/// Why an observer received nothing. All but the first are final.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// Nothing was delivered in time.
    #[error("nothing was delivered for {waited:?}")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// Every member has finished or left, and the observer has received everything.
    #[error("every member has finished or left, and this was everything")]
    Finished,
    /// No member lives.
    #[error("all members of the group have ended: what they had agreed on was reported, but perhaps not all of it")]
    GroupGone,
    /// The data of the members can't be read.
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
        /// The names that exist.
        known: String,
    },
    /// This member does not send in the subgroup.
    #[error("this member is no sender of subgroup {name:?}")]
    NoSender {
        /// The subgroup.
        name: String,
    },
    /// The handle was given out before.
    #[error("the {what} of subgroup {name:?} was taken before")]
    Taken {
        /// "publisher" or "receiver".
        what: &'static str,
        /// The subgroup.
        name: String,
    },
    /// The members would need too much memory in a view with this change: the rows of all are
    /// stored in the memory of one machine.
    #[error("the members' rows would have {bytes} bytes: {why}; ask for smaller windows or messages")]
    Memory {
        /// The size of all rows.
        bytes: u64,
        /// Why it is too much.
        why: String,
    },
    /// The change asks for something that the library does not have yet: a logged subgroup that is
    /// created while the group runs, or another durability.
    #[error(
        "the durability of subgroup {name:?} can't be set while the group runs; set it in the configuration with which the group is created"
    )]
    Unsupported {
        /// The subgroup.
        name: String,
    },
    /// The caller is a handler on the polling thread, which would have to answer.
    #[error("a handler may not ask the group for this: it runs on the thread that would answer; ask on another one")]
    InUpcall,
    /// No thread answers any more.
    #[error("the group has ended")]
    Ended,
    /// Handles have to be taken before the first poll.
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
    /// A member still has a publisher, has not received everything, or is slow.
    #[error("the group did not finish within {waited:?}: {unfinished}")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
        /// The members that have not finished, in words.
        unfinished: String,
    },
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(#[from] Ended),
}

/// The end of a log that is not as a restart needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEnds {
    /// The last record of the log; `None` if there is none.
    pub found: Option<Position>,
    /// The last record with which the group restarts; `None` if it has no record.
    pub needed: Option<Position>,
}

/// Returns the end of a log in words.
fn tell_end(last: Option<Position>) -> String {
    last.map_or_else(|| "before the first one".to_string(), |last| format!("at {last}"))
}
