//! Mutations: bugs that can be switched on, one at a time, to prove that the simulator's checkers
//! find them.
//!
//! Only builds with `--cfg mutation` contain them. In other builds `mutation!` is the constant
//! `false`.

/// Whether the named bug is planted and active.
macro_rules! mutation {
    ($bug:ident) => {{
        #[cfg(mutation)]
        let active = $crate::mutation::is_active($crate::mutation::Mutation::$bug);
        #[cfg(not(mutation))]
        let active = false;
        active
    }};
}
pub(crate) use mutation;

#[cfg(mutation)]
pub use bugs::*;

#[cfg(mutation)]
mod bugs {
    use core::sync::atomic::{AtomicU32, Ordering};

    macro_rules! bugs {
        ($($(#[$doc:meta])* $bug:ident,)*) => {
            /// The mutations of this crate.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[repr(u32)]
            pub enum Mutation { $($(#[$doc])* $bug,)* }

            impl Mutation {
                /// All mutations.
                pub const ALL: &[Mutation] = &[$(Mutation::$bug,)*];
            }
        };
    }

    bugs! {
        /// The stability frontier leaves out the last member.
        StableForgetsOne,
        /// `received` counts one sequence number too many.
        ReceivedOneTooMany,
        /// A ring's space is reused when all members have received it.
        FreedOnReceipt,
        /// Nulls stop one round short for senders of lower rank.
        NullsFallShort,
        /// A null answers every null.
        NullsAnswerNulls,
        /// Rounds are announced before the frames are stamped.
        AnnouncedBeforeStamped,
        /// Control words are posted before the data that they announce.
        ControlBeforeData,
        /// The frames in a ring's overhang are not posted.
        OverhangUnposted,
        /// `delivered` moves to the frontier although the application took only a part.
        DeliveredWithoutTaking,
        /// A void frame takes no round at its sender.
        VoidTakesNoRound,
        /// A full list of checkpoints frees more than was delivered.
        CheckpointsMergeForward,
        /// Skipping empty rounds skips one that is not empty.
        SkipsARound,
        /// The run of one sender's messages continues past a message of another sender.
        PassesAnother,
        /// The mark of an announced frame stays, so an old one is announced again a lap later.
        MarkStays,
        /// A member reports that it has finished while frames wait to be announced.
        FinishedTooEarly,
        /// `received` is recomputed without regard to what was announced before.
        ReceivedGoesBack,
        /// An exclusive claimer's guesses of its rounds are used, even if nulls came between.
        GuessesBelieved,
        /// A message is delivered without waiting for stability.
        DeliveredOnReceipt,
        /// `spoken` is stored before `published`, which its readers load next.
        SpokenBeforePublished,
        /// A poll that did not look at idle subgroups does not ask for another.
        IdleForgotten,
        /// A Fifo sender does not notice counts by sender that arrive behind the entry.
        FifoRoomUnnoticed,
        /// Applications are notified of room only every other time.
        RoomUntold,
        /// Objects are announced before all members have them.
        GateIgnored,
        /// Counters that free rings are put off, and then forgotten.
        PutOffForgotten,
        /// The final rows of the dead count for nothing.
        DeadRowsUnread,
        /// A leader ignores values that only the dead have accepted.
        DeadValuesUnread,
        /// A dead row counts although it promised a higher ballot.
        DeadWithHigherPromiseCounts,
        /// A member that promised and died counts twice.
        DeadCountedTwice,
        /// A dead member's row counts although its tail may be lost.
        UnfinalRowsCount,
        /// A voter accepts below its promise.
        PromiseForgotten,
        /// A leader needs no quorum.
        NoQuorum,
        /// A leader takes a value only if the rows that it has read could make it a decision, and
        /// ignores what the other rows could contain.
        UnreadDontBind,
        /// A row's acceptance is read before its promise.
        AcceptedReadFirst,
        /// A leader leaves out the members that it suspects, even if too few continue.
        EvictsWithoutQuorum,
        /// In a recovery a majority of the members that are not given up is enough.
        GivenUpQuorum,
        /// In a recovery, rows count although their members have given up no member.
        OneGivesUp,
        /// Rows of members that are given up are still read.
        GivenUpHeard,
        /// The leader of a recovery takes no value that only members that are given up may have
        /// decided.
        RecoveryNotAdopted,
        /// A suspicion is never taken back.
        SuspicionKept,
        /// A member that was cut off counts the others' silence in full.
        CutCounted,
        /// A member that is awaited is suspected for its silence, without being asked for a sign of
        /// life.
        AsksNobody,
        /// A member shows that it is alive only when it is polled for the first time.
        AskedInVain,
        /// A member awaits no peer that has not received what was announced.
        ReceiptUnawaited,
        /// A member awaits no peer that has not delivered what it sent.
        DeliveryUnawaited,
        /// A member awaits no peer while its ring has a gate.
        GateUnawaited,
        /// A member awaits no peer for an observer.
        FollowerUnawaited,
        /// A poll delivers as much as before, however long that took.
        PaceKept,
        /// A process counts as dead if another process that had its id before has ended.
        DeathOfAnother,
        /// Posts of entries are not counted.
        MoveUnshown,
        /// A member reads the membership blocks of its peers only when a view begins.
        MovesUnnoticed,
        /// The poll before a sleep looks at the subgroups that other idle polls look at.
        SleepScanForgotten,
        /// Members whose hosts are not known count as members of this host when large messages go
        /// from host to host.
        PlacesGuessed,
        /// A member that promises or accepts wakes no peer for it.
        LeaderUnwoken,
        /// All values of a member are written into the same slot.
        OneSlot,
        /// A leader always makes a proposal of its own.
        NeverAdopts,
        /// A leader decides without waiting for acknowledgements.
        DecidesAlone,
        /// A trim is the maximum that any member has, not what all have.
        TrimIsLongest,
        /// A member wedges without storing its cuts.
        CutUnwritten,
        /// A member promises a ballot before it has wedged the subgroups that the ballot touches.
        PromisedUnwedged,
        /// A leader takes a ballot before it has wedged the subgroups that the ballot touches.
        LeaderUnwedged,
        /// A leader proposes to touch subgroups that its ballot does not name.
        TouchedUnnamed,
        /// A subgroup counts as untouched although a member of it does not continue.
        GoneUnnoticed,
        /// A member stores no cuts of subgroups whose epochs began with earlier views.
        OlderCutUnwritten,
        /// A subgroup that wedged and was not touched stays wedged.
        UnwedgeForgotten,
        /// A subgroup that is touched continues, if its epoch began with an earlier view.
        OlderEndForgotten,
        /// A member takes the part of older epochs that it has for all of them.
        OlderUnclosed,
        /// A member leaves while its newest words in rows of older views are in transit.
        LeavesUnheard,
        /// A member awaits no peer for subgroups of older epochs.
        OlderUnawaited,
        /// A process begins to observe a view whose end is in progress.
        FollowersLetInLate,
        /// Messages beyond the trims are delivered too.
        DeliversBeyondTrim,
        /// A member that the others have evicted continues.
        EvictedGoesOn,
        /// A ballot is set before its proposal is written.
        BallotBeforeProposal,
        /// Messages that the old view has delivered are sent again.
        ResendsDelivered,
        /// Messages that were announced and not delivered are not sent again.
        ResendForgotten,
        /// In a Fifo subgroup, messages that were delivered beyond the trims are delivered again.
        FifoTwice,
        /// In a Fifo subgroup that is unavailable for a while, messages that were delivered beyond
        /// the trims are delivered again.
        WaitingForgotten,
        /// A message that is sent again may be no longer than new ones.
        LeftoversTooLong,
        /// A block is sent to a member that is not ready for it.
        CreditIgnored,
        /// A block is sent before it has arrived.
        SendsUnheld,
        /// A member that forwards an object reports a length that is a multiple of the blocks'
        /// length.
        LengthFromBlocks,
        /// A slot is used again although one member has not finished with it.
        SlotReusedEarly,
        /// The number of steps that a member reports is one too high.
        StepsAhead,
        /// An object for which no room exists yet fails without a report.
        FailureForgotten,
        /// A seed answers before its promise or vote is on disk.
        AnswersBeforeDisk,
        /// A seed that has not answered counts as one that votes, if it belonged to no group.
        SilenceIsAnAnswer,
        /// A majority of the seeds creates a group although their votes are not on disk.
        AnyMajority,
        /// A process that was a member of a group creates another one.
        EvictedFound,
        /// A seed that leads an attempt does not adopt the value for which others have voted.
        VotesForgotten,
        /// A seed forgets what it has promised.
        PromisesForgotten,
        /// A waiting process is put into the first view without having acknowledged its
        /// incarnation.
        WaitersAreMembers,
        /// Founders do not pass on the decision to create a group.
        DecisionKept,
        /// A decided first view comes without the cards of its members.
        FoundersUnplaced,
        /// Members don't send their incarnation to the seeds.
        MembersKeepSilent,
        /// A waiting process ignores members that answer.
        MembersUnheard,
        /// A process reports only once why it waits.
        SilentWhileItWaits,
        /// An answer of a seed counts for ever.
        OldAnswersCount,
        /// Processes that ask between two views are not admitted later.
        AdmissionsLost,
        /// A view that begins forgets the processes that wait for admission.
        JoinersForgotten,
        /// A process that asks a member of its host is not informed of the other members.
        JoinersUntold,
        /// Any process with the id of a member counts as that member.
        NoncesIgnored,
        /// The first view of a process is not over when the group has a later one.
        FirstViewNeverOver,
        /// A request to evict a member counts as a proof that it is faulty.
        EvictionIsProof,
        /// A process that could not stay is admitted again at once.
        ReadmittedAtOnce,
        /// A member that has not begun the view is suspected at the first check.
        NoTimeToBegin,
        /// A view begins without missing rows after a fraction of the waiting time.
        BeginsHastily,
        /// A view begins before the application has received everything of the one before.
        RestCutOff,
        /// A member that is cut off does not ask whether the others continue without it.
        CutOffAsksNobody,
        /// Members that connect and have not seen each other before exchange no view.
        StrangersPass,
        /// A member that learns that its side was given up does not inform the others of its side.
        GivenUpUntold,
        /// A stream that breaks is dialled again only a few times.
        RedialsGiveUp,
        /// A stream that breaks is not made again in a view that has ended, in which subgroups
        /// continue.
        OlderStreamsLost,
        /// A member that announces a view does not send the decision that led to it.
        DecisionsUntold,
        /// A process that bootstraps the group counts processes that have ended.
        GoneFound,
        /// A group restarts without members of its last view.
        RestartsWithout,
        /// A process that restarts forgets what it has promised.
        RestartPromiseForgotten,
        /// A leader of a restart forgets what others have accepted.
        RestartForgets,
        /// A process that restarts answers before its record is on disk.
        RestartAnswersEarly,
        /// One member decides with which view the group restarts.
        RestartDecidesAlone,
        /// A process begins the view of a restart although it votes on the view after it.
        RestartBeginsLate,
        /// A restart continues from the shortest log.
        RestartTakesShortest,
        /// A leader of a restart proposes a view although logs of its members lack records.
        RestartProposesUnequal,
        /// A log that catches up keeps records that the group does not have.
        ForeignRecordsKept,
        /// A process adopts a group's value of a key that its user gave.
        GivenKeyAdopted,
        /// A process adopts the settings of a process that only waits.
        WaitersAdopted,
        /// Streams for a view that has begun are refused.
        LateStreamsRefused,
        /// A process of another host votes as soon as it is admitted, whether members reach it or
        /// not.
        FarJoinersVote,
        /// The address that a process with the id of a member claims for that id is accepted.
        ConflictsBelieved,
        /// A process forgets the racks of processes of other hosts.
        RacksForgotten,
        /// Messages for a process with the id of one that was at a seed's address are sent to that
        /// address.
        SeedPlacesKept,
        /// Only the leader of a group that can't continue knows that it can't.
        BlockedUnknown,
        /// A process that asks members of a group that can't continue is only asked to wait.
        BlockedUntold,
        /// Members keep data for observers that have ended for ever.
        ObserversKept,
        /// A ring's space is reused when all members have delivered it, though a log may lack it.
        FreedBeforeLogged,
        /// A message counts as persisted once the log has it, before it is on disk.
        PersistedBeforeSync,
        /// A member whose log lacks records continues without those that have them.
        GoesOnIncomplete,
        /// A restart without all members forgets that absent ones may know of deaths.
        RestartForgetsDead,
        /// A restart asks a log for less than it has, and that cuts it.
        RestartCutsBack,
        /// A process that restarts cuts a log whose end it has reported to another leader.
        RestartCutUnreported,
        /// An acceptance counts before it is on the disk of its member, in a view with logged subgroups.
        AcceptedUnwritten,
        /// A member leaves before its disk says that it writes nothing more.
        LeavesUnsaid,
        /// A message counts as durable once it is on the disk of one member.
        DurableOnOne,
        /// Messages become durable in a subgroup that has too few members.
        TooFewCopies,
        /// The clock of a message is the time of its sender, though an earlier message has a later
        /// one.
        ClockBySender,
        /// The clock begins anew with an epoch.
        ClockForgotten,
        /// A clock is raised, and the epoch continues with the clock that it had.
        RaisedWithinEpoch,
        /// A member whose clock has stepped sends with it.
        ClockUnbounded,
        /// A process is admitted whatever its clock is.
        SkewAdmitted,
        /// A process that waits gives up if one other refuses its clock, however many agree with it.
        OneClockCounts,
        /// A new epoch counts as persisted though messages of the one before may not be on disk.
        OlderForgotten,
        /// A member that waits for a peer's disk does not watch whether the peer lives.
        LogUnawaited,
        /// A member leaves before its log is on disk.
        LeavesUnwritten,
        /// A message is delivered when it is stable, though it has to be durable.
        DeliveredBeforeDurable,
        /// The cuts of a subgroup that delivers only what is durable contain messages that are not on disk.
        CutBeyondDisk,
        /// A log keeps messages that are not part of an epoch that has ended.
        LogUncut,
        /// The durable frontier leaves out the disk of the last peer.
        DurableForgetsOne,
        /// The cuts of a subgroup that delivers only what is durable leave out the last durable messages.
        CutBelowDurable,
        /// A read barrier passes while messages that were received are not delivered.
        ReadBeforeDelivery,
        /// A read barrier passes in a view whose end may be decided.
        ReadAfterEviction,
        /// Messages of older epochs count as durable though too few of the members that had them continue.
        HoldersForgotten,
    }

    static ACTIVE: AtomicU32 = AtomicU32::new(u32::MAX);

    /// Makes `bug` the active mutation, in the whole process.
    pub fn activate(bug: Option<Mutation>) {
        ACTIVE.store(bug.map_or(u32::MAX, |bug| bug as u32), Ordering::Relaxed);
    }

    /// Returns the message with which a test fails while `bug` is the active mutation. Tests that
    /// call it run one after the other.
    ///
    /// # Panics
    /// If the test passes.
    #[cfg(test)]
    pub(crate) fn failure(bug: Mutation, test: fn()) -> &'static str {
        use std::sync::{Mutex, PoisonError};
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        activate(Some(bug));
        let held = std::panic::catch_unwind(test);
        activate(None);
        let panic = held.expect_err("the test passes, whatever the bug");
        panic.downcast_ref::<&str>().copied().unwrap_or("values differ")
    }

    /// Whether `bug` is the active mutation.
    pub fn is_active(bug: Mutation) -> bool {
        ACTIVE.load(Ordering::Relaxed) == bug as u32
    }
}
