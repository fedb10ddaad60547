//! Bugs that can be switched on, one at a time, to prove that the simulator's checkers find them.
//!
//! Only builds with `--cfg planted` contain them. Elsewhere `planted!` is the constant `false`.

/// Whether the named bug is planted and active.
macro_rules! planted {
    ($bug:ident) => {{
        #[cfg(planted)]
        let active = $crate::planted::is_active($crate::planted::Bug::$bug);
        #[cfg(not(planted))]
        let active = false;
        active
    }};
}
pub(crate) use planted;

#[cfg(planted)]
pub use bugs::*;

#[cfg(planted)]
mod bugs {
    use core::sync::atomic::{AtomicU32, Ordering};

    macro_rules! bugs {
        ($($(#[$doc:meta])* $bug:ident,)*) => {
            /// The bugs of this crate.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            #[repr(u32)]
            pub enum Bug { $($(#[$doc])* $bug,)* }

            impl Bug {
                /// All of them.
                pub const ALL: &[Bug] = &[$(Bug::$bug,)*];
            }
        };
    }

    bugs! {
        /// The stability frontier leaves out the last member.
        StableForgetsOne,
        /// `received` counts one place too many.
        ReceivedOneTooMany,
        /// A ring's space is reused when everybody has received it.
        FreedOnReceipt,
        /// Nulls stop one round short for senders of lower rank.
        NullsFallShort,
        /// A null answers every null.
        NullsAnswerNulls,
        /// Rounds are announced before the frames are stamped.
        AnnouncedBeforeStamped,
        /// Control words are posted before the data that they announce.
        ControlBeforeData,
        /// What stands in a ring's overhang is not posted.
        OverhangUnposted,
        /// `delivered` moves to the frontier although the application took only a part.
        DeliveredWithoutTaking,
        /// A void frame takes no round at its sender.
        VoidTakesNoRound,
        /// A full list of checkpoints frees more than was delivered.
        CheckpointsMergeForward,
        /// Skipping empty rounds skips one that is not empty.
        SkipsARound,
        /// The run of one sender's messages goes on past a message of another.
        PassesAnother,
        /// The mark of an announced frame stays, so an old one is announced again a lap later.
        MarkStays,
        /// A member says that it has finished while frames wait to be announced.
        FinishedTooEarly,
        /// `received` is recomputed without regard to what was announced before.
        ReceivedGoesBack,
        /// An exclusive claimer's guesses of its rounds are believed, whatever nulls came between.
        GuessesBelieved,
        /// A message is delivered without waiting for stability.
        DeliveredOnReceipt,
        /// `spoken` is stored before `published`, which its readers look at next.
        SpokenBeforePublished,
        /// A poll that did not look at idle subgroups does not ask for another.
        IdleForgotten,
        /// A Fifo sender does not notice counts by sender that arrive behind the entry.
        FifoRoomUnnoticed,
        /// Applications are told of room only every other time.
        RoomUntold,
        /// Objects are announced before all members have them.
        GateIgnored,
        /// What frees rings is put off, and then forgotten.
        PutOffForgotten,
        /// The final rows of the dead count for nothing.
        DeadRowsUnread,
        /// A leader takes no notice of values that only the dead have accepted.
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
        /// A leader takes a value only if the rows that it has read could make it a decision, whatever the others hold.
        UnreadDontBind,
        /// A row's acceptance is read before its promise.
        AcceptedReadFirst,
        /// A leader leaves out whom it suspects, however few go on.
        EvictsWithoutQuorum,
        /// In a recovery a majority of those that are not given up is enough.
        GivenUpQuorum,
        /// In a recovery rows count whose members have given none up.
        OneGivesUp,
        /// Members that are given up are listened to.
        GivenUpHeard,
        /// The leader of a recovery takes no value that only members that are given up may have decided.
        RecoveryNotAdopted,
        /// A suspicion is never taken back.
        SuspicionKept,
        /// A member that is awaited is suspected for its silence, and not asked for a sign of life.
        AsksNobody,
        /// A member shows that it lives only when it is polled for the first time.
        AskedInVain,
        /// A member awaits none of those that have not received what was announced.
        ReceiptUnawaited,
        /// A member awaits none of those that have not delivered what it sent.
        DeliveryUnawaited,
        /// A member awaits none while its ring has a gate.
        GateUnawaited,
        /// A member awaits none for a process that follows.
        FollowerUnawaited,
        /// A poll hands over as much as before, however long that took.
        PaceKept,
        /// A process counts as dead if another one that had its id before it has ended.
        DeathOfAnother,
        /// Posts of entries are not counted.
        MoveUnshown,
        /// A member looks at the others' membership blocks only when a view begins.
        MovesUnnoticed,
        /// Members whose hosts are not known count as members of this one where large messages go from host to host.
        PlacesGuessed,
        /// A member that promises or accepts wakes no other for it.
        LeaderUnwoken,
        /// All values of a member are written into the same slot.
        OneSlot,
        /// A leader always makes a proposal of its own.
        NeverAdopts,
        /// A leader decides without waiting for acknowledgements.
        DecidesAlone,
        /// A trim is what any member has, not what all have.
        TrimIsLongest,
        /// A member wedges without saying what it has.
        CutUnwritten,
        /// A member promises a ballot before it has wedged what that touches.
        PromisedUnwedged,
        /// A leader takes a ballot before it has wedged what that touches.
        LeaderUnwedged,
        /// A leader proposes to touch subgroups that its ballot does not name.
        TouchedUnnamed,
        /// A subgroup counts as untouched though a member of it does not go on.
        GoneUnnoticed,
        /// A member writes down no cuts of subgroups whose epochs began with earlier views.
        OlderCutUnwritten,
        /// A subgroup that wedged and was not touched stays as it is.
        UnwedgeForgotten,
        /// A subgroup that is touched goes on, if its epoch began with an earlier view.
        OlderEndForgotten,
        /// A member takes what it has of older epochs for all that there is.
        OlderUnclosed,
        /// A member leaves while what it has said in older views is on its way.
        LeavesUnheard,
        /// A member awaits none for subgroups of older epochs.
        OlderUnawaited,
        /// A process begins to follow a view whose end is under way.
        FollowersLetInLate,
        /// What lies beyond the trims is delivered too.
        DeliversBeyondTrim,
        /// A member that the others have evicted goes on.
        EvictedGoesOn,
        /// A ballot is set before its proposal is written.
        BallotBeforeProposal,
        /// What the old view has delivered is sent again.
        ResendsDelivered,
        /// What was announced and not delivered is not sent again.
        ResendForgotten,
        /// In a Fifo subgroup what was delivered beyond the trims is delivered again.
        FifoTwice,
        /// In a Fifo subgroup that is unavailable for a while, what was delivered beyond the trims is delivered again.
        WaitingForgotten,
        /// A message that is sent again may be no longer than new ones.
        LeftoversTooLong,
        /// A block is sent to a member that is not ready for it.
        CreditIgnored,
        /// A block is sent that is not here yet.
        SendsUnheld,
        /// A member that passes an object on tells a length that is a multiple of the blocks'.
        LengthFromBlocks,
        /// A slot is used again although one member is not done with it.
        SlotReusedEarly,
        /// The steps that a member has taken are told one too high.
        StepsAhead,
        /// An object for which there is no room yet fails without a word.
        FailureForgotten,
        /// A seed answers before its promise or vote is on disk.
        AnswersBeforeDisk,
        /// A seed that has not answered counts as one that votes, if it belonged to no group.
        SilenceIsAnAnswer,
        /// A majority of the seeds founds a group although their votes are not on disk.
        AnyMajority,
        /// A process that was a member of a group founds another one.
        EvictedFound,
        /// A seed that leads an attempt does not adopt what others have voted for.
        VotesForgotten,
        /// A seed forgets what it has promised.
        PromisesForgotten,
        /// A process that waits is put into the first view without having acknowledged its incarnation.
        WaitersAreMembers,
        /// Members don't send their incarnation to the seeds.
        MembersKeepSilent,
        /// A process that waits does not heed members that answer.
        MembersUnheard,
        /// A process reports only once what it waits for.
        SilentWhileItWaits,
        /// An answer of a seed counts for ever.
        OldAnswersCount,
        /// Processes that ask between two views are not admitted later.
        AdmissionsLost,
        /// A process that asks a member of its host is not told of the others.
        JoinersUntold,
        /// Any process with the id of a member is that member.
        NoncesIgnored,
        /// The first view of a process is not over when the group has a later one.
        FirstViewNeverOver,
        /// A request to evict a member counts as a proof that it is faulty.
        EvictionIsProof,
        /// A process that could not stay is admitted again at once.
        ReadmittedAtOnce,
        /// A member that has not begun the view is suspected at the first look.
        NoTimeToBegin,
        /// A view begins without missing rows after a fraction of the time for which they are waited for.
        BeginsHastily,
        /// A view begins before the application has got all of the one before.
        RestCutOff,
        /// A member that is cut off does not ask whether the others go on without it.
        CutOffAsksNobody,
        /// Members that meet and do not know each other tell each other nothing.
        StrangersPass,
        /// A member that hears that its side was given up does not tell the others of its side.
        GivenUpUntold,
        /// A stream that breaks is dialled again a few times only.
        RedialsGiveUp,
        /// A stream that breaks is not made again in a view that has ended, in which subgroups go on.
        OlderStreamsLost,
        /// A member that tells of a view does not send the decision that led to it.
        DecisionsUntold,
        /// A founder counts processes that have gone.
        GoneFound,
        /// Streams for a view that has begun are refused.
        LateStreamsRefused,
        /// A process of another host votes as soon as it is admitted, whether members reach it or not.
        FarJoinersVote,
        /// A process with the id of a member is believed as to where that is.
        ConflictsBelieved,
        /// A process with the id of one that was at a seed's address is written to there.
        SeedPlacesKept,
        /// Only the leader of a group that can't go on knows it.
        BlockedUnknown,
        /// A process that asks members of a group that can't go on is told only to wait.
        BlockedUntold,
        /// Members keep for ever what observers need that have gone.
        ObserversKept,
    }

    static ACTIVE: AtomicU32 = AtomicU32::new(u32::MAX);

    /// Makes `bug` the active one, in the whole process.
    pub fn activate(bug: Option<Bug>) {
        ACTIVE.store(bug.map_or(u32::MAX, |bug| bug as u32), Ordering::Relaxed);
    }

    /// The message with which a test fails while `bug` is the active one. Tests that call it take turns.
    ///
    /// # Panics
    /// If the test passes.
    #[cfg(test)]
    pub(crate) fn failure(bug: Bug, test: fn()) -> &'static str {
        use std::sync::{Mutex, PoisonError};
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        activate(Some(bug));
        let held = std::panic::catch_unwind(test);
        activate(None);
        let panic = held.expect_err("the test passes, whatever the bug");
        panic.downcast_ref::<&str>().copied().unwrap_or("values differ")
    }

    /// Whether `bug` is the active one.
    pub fn is_active(bug: Bug) -> bool {
        ACTIVE.load(Ordering::Relaxed) == bug as u32
    }
}
