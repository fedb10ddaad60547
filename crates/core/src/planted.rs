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
        /// A leader does not wait until everybody has stopped listening to those before it.
        NoFence,
        /// The dead count among those who agree, instead of being left out.
        DeadCountAsPresent,
        /// A leader does not read the last words of the dead.
        DeadRowsUnread,
        /// A leader needs no quorum.
        NoQuorum,
        /// Ballots are ordered by their rounds first.
        RoundsBeforeRanks,
        /// A leader always makes a proposal of its own.
        NeverAdopts,
        /// A leader decides without waiting for acknowledgements.
        DecidesAlone,
        /// A trim is what any member has, not what all have.
        TrimIsLongest,
        /// A member wedges without saying what it has.
        CutUnwritten,
        /// What lies beyond the trims is delivered too.
        DeliversBeyondTrim,
        /// A suspicion stays with the member that has it.
        SuspicionKept,
        /// A member that suspects more than half of the others is believed.
        OutvotedBelieved,
        /// A suspected member's suspicions are still believed.
        ReadsSuspected,
        /// A member that the others have evicted goes on.
        EvictedGoesOn,
        /// A ballot is set before its proposal is written.
        BallotBeforeProposal,
        /// All proposals of a member are written into the same slot.
        OneSlot,
        /// A member whose row never came is held for dead, and the zeros that stand there for its last words.
        AbsentRowsAreLastWords,
        /// What the old view has delivered is sent again.
        ResendsDelivered,
        /// What was announced and not delivered is not sent again.
        ResendForgotten,
        /// In a Fifo subgroup what was delivered beyond the trims is delivered again.
        FifoTwice,
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
    }

    static ACTIVE: AtomicU32 = AtomicU32::new(u32::MAX);

    /// Makes `bug` the active one, in the whole process.
    pub fn activate(bug: Option<Bug>) {
        ACTIVE.store(bug.map_or(u32::MAX, |bug| bug as u32), Ordering::Relaxed);
    }

    /// Whether `bug` is the active one.
    pub fn is_active(bug: Bug) -> bool {
        ACTIVE.load(Ordering::Relaxed) == bug as u32
    }
}
