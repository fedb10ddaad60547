//! Mutations that a test switches on, one at a time, to prove that the tests of crashes find them.
//!
//! Only builds with the feature `testing` contain them. In other builds `mutation!` is the constant
//! `false`. A mutation is active on the thread that switched it on.

/// Whether the named mutation is active.
macro_rules! mutation {
    ($mutation:ident) => {{
        #[cfg(any(test, feature = "testing"))]
        let active = $crate::mutation::is_active($crate::mutation::Mutation::$mutation);
        #[cfg(not(any(test, feature = "testing")))]
        let active = false;
        active
    }};
}
pub(crate) use mutation;

#[cfg(any(test, feature = "testing"))]
pub use mutations::*;

#[cfg(any(test, feature = "testing"))]
mod mutations {
    use std::cell::Cell;

    macro_rules! mutations {
        ($($(#[$doc:meta])* $mutation:ident,)*) => {
            /// The mutations.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            pub enum Mutation { $($(#[$doc])* $mutation,)* }

            impl Mutation {
                /// All mutations.
                pub const ALL: &[Mutation] = &[$(Mutation::$mutation,)*];
            }
        };
    }

    mutations! {
        /// Checksums bind neither the segment nor the generation, and generations are not compared.
        ChecksumsBindNothing,
        /// A new segment is acknowledged before its name is durable.
        NamesNotSynced,
        /// A batch carries the frontier that it will reach itself.
        FrontierBeforeSync,
        /// A failed sync is tried again.
        FailedSyncRetried,
        /// A cut of a suffix is returned before it is durable.
        CutNotSynced,
        /// Every bad record is taken for a torn tail.
        EveryTailCut,
        /// Records that recovery has read are taken for durable without a sync.
        RecoveredNotSynced,
        /// A snapshot is renamed before it is synced.
        SnapshotNotSynced,
        /// Segments are recycled before the new beginning of the log is durable.
        RecycledBeforeRecorded,
        /// A value of the journal is returned before it is durable.
        JournalNotSynced,
        /// A batch is acknowledged when the first of its files is synced.
        OnlyFirstFileSynced,
        /// A log continues in the same generation after recovery.
        SameGeneration,
    }

    thread_local! {
        static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Switches a mutation on for this thread, or all off.
    pub fn activate(mutation: Option<Mutation>) {
        ACTIVE.set(mutation);
    }

    pub(crate) fn is_active(mutation: Mutation) -> bool {
        ACTIVE.get() == Some(mutation)
    }
}
